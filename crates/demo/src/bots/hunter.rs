//! The behavior of a bot. `docs/rooms.md` describes the messages of the hunt.

use dunlin_protocol::Encoding;
use dunlin_rooms::{ObjectId, Position, Replica, SeenObject};
use rand_chacha::{
    ChaCha8Rng,
    rand_core::{RngCore as _, SeedableRng as _},
};
use serde::Deserialize;

use super::connection::Lost;

const CHEST: u16 = 3;
const PURSE: u16 = 7;

/// Energy cost of a dig.
const DIG_ENERGY: u8 = 10;

/// Distance in units at which a bot digs, well within the reach of a dig.
const NEAR: u32 = 24;

/// Distance in units below which a bot slows down, so that it does not overshoot: its path between two acts.
const BRAKING: u32 = 160;

/// Maximum preference for a chest, in units of distance. Preferences differ between bots, so that they spread.
const TASTE: u64 = 1_500;

/// Percentage of bots that run to clues.
const RUNNERS_PERCENT: u32 = 80;

/// A bot.
pub struct Hunter {
    random: ChaCha8Rng,
    taste: u64,
    replica: Replica,
    runs_to_clues: bool,
    /// Offset of its dig from a clue, so that not all bots stand at the same place.
    place_at_clue: (i32, i32),
    clue: Option<Position>,
    stroll: Option<Position>,
    last_walk: [u8; 3],
}

/// A bot's state and what it sees.
struct Surroundings {
    me: Position,
    is_digging: bool,
    energy: u8,
    chest: Option<Position>,
}

impl Hunter {
    /// A bot whose behavior the seed determines.
    pub fn new(seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut offset = || (random.next_u32() % (2 * NEAR)).cast_signed() - NEAR.cast_signed();
        let place_at_clue = (offset(), offset());
        Self {
            runs_to_clues: random.next_u32() % 100 < RUNNERS_PERCENT,
            taste: random.next_u64(),
            random,
            replica: Replica::default(),
            place_at_clue,
            clue: None,
            stroll: None,
            last_walk: [0; 3],
        }
    }

    /// Applies a snapshot.
    ///
    /// # Errors
    /// [`Lost::Closed`] if it is invalid; a new connection receives the full state.
    pub fn see(&mut self, snapshot: &[u8]) -> Result<(), Lost> {
        self.replica.apply(Encoding::Protobuf, snapshot).map_err(|_| Lost::Closed)
    }

    /// Processes an event. Only clues matter to bots.
    pub fn on_event(&mut self, event: &[u8]) {
        let Ok(EventBody { event }) = serde_json::from_slice(event) else { return };
        if let Some(clue) = event.clue.or_else(|| event.welcome.and_then(|welcome| welcome.clue)) {
            self.clue = Some(Position { x: clue.x, y: clue.y });
        } else if event.clue_over.is_some() {
            self.clue = None;
        }
    }

    /// The next input; `None` to continue.
    pub fn act(&mut self) -> Option<Vec<u8>> {
        let Surroundings { me, is_digging, energy, chest } = self.look_around()?;
        if is_digging {
            return None;
        }
        let treasure = self.clue.filter(|_| self.runs_to_clues).map(|clue| self.at_clue(clue)).or(chest);
        let Some(goal) = treasure else { return self.walk(me, self.stroll?) };
        if me.x.abs_diff(goal.x).max(me.y.abs_diff(goal.y)) > NEAR {
            return self.walk(me, goal);
        }
        if energy < DIG_ENERGY {
            return self.send_walk([0, 0, 0]);
        }
        self.last_walk = [0; 3];
        Some(vec![1])
    }

    fn at_clue(&self, clue: Position) -> Position {
        let (x, y) = self.place_at_clue;
        Position { x: clue.x.saturating_add_signed(x / 2), y: clue.y.saturating_add_signed(y / 2) }
    }

    fn look_around(&mut self) -> Option<Surroundings> {
        let avatar = self.replica.object(self.replica.avatar()?)?;
        let (me, is_digging) = (avatar.position, avatar.state.get(3) == Some(&1));
        let (mut energy, mut best) = (0, None);
        for (id, SeenObject { position, kind, state, .. }) in self.replica.objects() {
            if kind == &PURSE {
                energy = state.get(6).copied().unwrap_or(0);
            } else if kind == &CHEST && state.first() == Some(&0) {
                // Prefer the older one of two equal chests, because the iteration order is unspecified.
                let rank = (self.chest_cost(me, id, *position), id);
                best = best.filter(|(other, _)| *other < rank).or(Some((rank, *position)));
            }
        }
        self.choose_stroll(me);
        Some(Surroundings { me, is_digging, energy, chest: best.map(|(_, position)| position) })
    }

    /// The distance of a chest plus this bot's preference. The value is stable, so the bot does not waver.
    fn chest_cost(&self, me: Position, chest: ObjectId, place: Position) -> u64 {
        let distance = u64::from(me.x.abs_diff(place.x)) + u64::from(me.y.abs_diff(place.y));
        let taste = (u64::from(chest.0) ^ self.taste).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        distance + taste % TASTE
    }

    /// The destination if there is nothing to dig for; changes from time to time.
    fn choose_stroll(&mut self, me: Position) {
        let Some((width, height)) = self.replica.grid().map(dunlin_rooms::Grid::size_units) else { return };
        let arrived = self.stroll.is_none_or(|goal| me.x.abs_diff(goal.x).max(me.y.abs_diff(goal.y)) <= NEAR);
        if arrived {
            self.stroll = Some(Position { x: self.random.next_u32() % width, y: self.random.next_u32() % height });
        }
    }

    fn walk(&mut self, me: Position, goal: Position) -> Option<Vec<u8>> {
        let way = |from: u32, to: u32| i64::from(to) - i64::from(from);
        let (x, y) = (way(me.x, goal.x), way(me.y, goal.y));
        // Full speed is 127. The world limits the length of the vector.
        let slow = x.abs().max(y.abs()).max(i64::from(BRAKING));
        let component = |way: i64| ((way * 127 / slow) as i8).cast_unsigned();
        self.send_walk([0, component(x), component(y)])
    }

    /// Sends only changes.
    fn send_walk(&mut self, walk: [u8; 3]) -> Option<Vec<u8>> {
        let is_changed = walk != self.last_walk;
        self.last_walk = walk;
        is_changed.then(|| walk.to_vec())
    }
}

/// The part of an event that bots use.
#[derive(Deserialize)]
struct EventBody {
    event: Event,
}

#[derive(Deserialize)]
struct Event {
    clue: Option<Clue>,
    welcome: Option<Welcome>,
    clue_over: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct Welcome {
    clue: Option<Clue>,
}

#[derive(Clone, Copy, Deserialize)]
struct Clue {
    x: u32,
    y: u32,
}

#[cfg(test)]
mod tests;
