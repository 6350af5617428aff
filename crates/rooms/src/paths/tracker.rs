//! Records the paths of all players of a room.

use std::sync::Arc;

use crate::{
    ObjectId, PlayerId, Position, Room,
    paths::block::{BlockHeader, BlockWriter, PathPoint},
};

/// The settings of a room's path recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathTerms {
    /// Players are observed in each tick that is a multiple of this. At least 1.
    pub interval_ticks: u32,
    /// A block spans at most this many ticks. At least 1.
    pub block_ticks: u32,
}

/// A block that is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinishedBlock {
    /// The player's user; empty for the anonymous user.
    pub user: Arc<str>,
    /// The player.
    pub player: PlayerId,
    /// The Unix time of the first point; greater than that of the player's previous block.
    pub first_ms: u64,
    /// The number of points.
    pub points: u32,
    /// The block.
    pub bytes: Box<[u8]>,
}

/// The open blocks of a room's players. The memory is bounded: one block and a name per player.
#[derive(Debug)]
pub struct PathTracker {
    terms: PathTerms,
    /// In the order of the players' numbers.
    open: Vec<OpenPath>,
    last_tick: u32,
    nobody: Arc<str>,
}

#[derive(Debug)]
struct OpenPath {
    player: PlayerId,
    user: Arc<str>,
    avatar: Option<ObjectId>,
    block: BlockWriter,
    first_ms: u64,
    /// The tick in which the block ends.
    ends_tick: u32,
    /// The player's last position; `None` before its first point.
    position: Option<Position>,
}

/// Spreads the ends of blocks of players that started together.
const PHASE_STEP: u32 = 0x9e37_79b1;

impl PathTracker {
    /// A tracker for a room without players.
    pub fn new(terms: PathTerms) -> Self {
        let terms = PathTerms { interval_ticks: terms.interval_ticks.max(1), block_ticks: terms.block_ticks.max(1) };
        Self { terms, open: Vec::new(), last_tick: 0, nobody: Arc::from("") }
    }

    /// A player has joined. Players without this call are recorded as anonymous.
    pub fn join(&mut self, player: PlayerId, user: &Arc<str>) {
        if let Err(place) = self.open.binary_search_by_key(&player, |path| path.player) {
            self.open.insert(place, OpenPath::new(player, Arc::clone(user)));
        }
    }

    /// Observes the players after a tick, whose Unix time is `time_ms`.
    pub fn observe(&mut self, room: &Room, time_ms: u64, finished: &mut impl FnMut(FinishedBlock)) {
        let tick = room.tick_number();
        if tick < self.last_tick {
            // The tick numbers have restarted.
            self.finish(finished);
        }
        self.last_tick = tick;
        let is_due = tick.is_multiple_of(self.terms.interval_ticks);
        if !is_due && self.open.len() == room.player_count() {
            return;
        }
        let terms = TickTerms { tick, time_ms, ticks_per_second: room.options().ticks_per_second, terms: self.terms };
        self.forget_leavers(room, finished);
        for (place, (player, avatar, position)) in room.world().player_positions().enumerate() {
            if self.open.get(place).is_none_or(|path| path.player != player) {
                self.open.insert(place, OpenPath::new(player, Arc::clone(&self.nobody)));
            }
            if is_due {
                self.open[place].observe(avatar, position, &terms, finished);
            }
        }
    }

    /// Hands over the blocks of players that have left. Both lists are in the order of the numbers.
    fn forget_leavers(&mut self, room: &Room, finished: &mut impl FnMut(FinishedBlock)) {
        let mut here = room.world().players().peekable();
        self.open.retain_mut(|path| {
            while here.next_if(|player| *player < path.player).is_some() {}
            let stays = here.peek() == Some(&path.player);
            if !stays {
                path.finish(finished);
            }
            stays
        });
    }

    /// Hands over all blocks, at the end of a room.
    pub fn finish(&mut self, finished: &mut impl FnMut(FinishedBlock)) {
        for path in &mut self.open {
            path.finish(finished);
        }
    }

    /// Approximate memory in bytes.
    pub fn memory_bytes(&self) -> usize {
        let blocks: usize = self.open.iter().map(|path| path.block.memory_bytes() + path.user.len()).sum();
        self.open.capacity() * size_of::<OpenPath>() + blocks
    }
}

/// Values that are the same for all players in a tick.
struct TickTerms {
    tick: u32,
    time_ms: u64,
    ticks_per_second: u32,
    terms: PathTerms,
}

impl OpenPath {
    fn new(player: PlayerId, user: Arc<str>) -> Self {
        let block = BlockWriter::default();
        Self { player, user, avatar: None, block, first_ms: 0, ends_tick: 0, position: None }
    }

    fn observe(
        &mut self,
        avatar: Option<ObjectId>,
        position: Position,
        terms: &TickTerms,
        finished: &mut impl FnMut(FinishedBlock),
    ) {
        if self.block.points() > 0 && (terms.tick >= self.ends_tick || self.avatar != avatar) {
            self.finish(finished);
        }
        if self.position == Some(position) && self.avatar == avatar {
            return;
        }
        (self.position, self.avatar) = (Some(position), avatar);
        if self.block.points() > 0 {
            if self.block.add(PathPoint { tick: terms.tick, position }) {
                return;
            }
            self.finish(finished);
        }
        self.begin(position, terms);
    }

    fn begin(&mut self, position: Position, terms: &TickTerms) {
        // The key of a block is its time, so a clock that goes back must not produce the same key twice.
        self.first_ms = terms.time_ms.max(self.first_ms + 1);
        let phase = self.player.0.wrapping_mul(PHASE_STEP) % terms.terms.block_ticks;
        let past = (u64::from(terms.tick) + u64::from(phase)) % u64::from(terms.terms.block_ticks);
        self.ends_tick = terms.tick.saturating_add(terms.terms.block_ticks - past as u32);
        let header = BlockHeader {
            player: self.player,
            avatar: self.avatar,
            user: &self.user,
            ticks_per_second: terms.ticks_per_second,
            interval_ticks: terms.terms.interval_ticks,
            first_tick: terms.tick,
            first_ms: self.first_ms,
        };
        self.block.begin(&header, position);
    }

    fn finish(&mut self, finished: &mut impl FnMut(FinishedBlock)) {
        if self.block.points() == 0 {
            return;
        }
        finished(FinishedBlock {
            user: Arc::clone(&self.user),
            player: self.player,
            first_ms: self.first_ms,
            points: self.block.points(),
            bytes: self.block.bytes().into(),
        });
        self.block.clear();
    }
}
