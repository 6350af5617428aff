//! Rounds, their winners, and the messages of the backend.

use std::{cmp::Reverse, collections::BTreeMap};

use dunlin_rooms::{ObjectId, Refusal, Scope, World};
use serde_json::Value;

use super::{report, runner::TagRunner};

/// Maximum number of points that win a round.
pub const SCORE_LIMIT_MAX: u32 = 1_000;
/// Seconds between two rounds.
const PAUSE_S: u32 = 5;
/// The refusal code of a message that the game does not know.
const BAD_MESSAGE: u16 = 460;
/// The reason with which the room closes.
pub const LAST_ROUND_OVER: &str = "the last round is over";
/// Maximum number of runners on the scoreboard.
const LEADERS_MAX: usize = 10;

/// The current round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Round {
    /// Counts from 1.
    pub number: u32,
    /// Points that win it.
    pub score_limit: u32,
    /// Number of rounds after which the room closes; 0: never.
    pub rounds_max: u32,
    /// The tick in which the next round begins, after this one is over.
    pub next_round_tick: Option<u32>,
    /// Whether the scoreboard has changed since it was last sent.
    pub is_changed: bool,
    /// The first tick in which it may be sent again.
    pub next_report_tick: u32,
}

/// A message of the backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoundCommand {
    /// Points that win the round from now on.
    pub score_limit: Option<u32>,
    /// Begin a round now.
    pub starts_round: bool,
}

impl Round {
    /// The first round.
    pub fn new(score_limit: u32, rounds_max: u32) -> Self {
        Self { number: 1, score_limit, rounds_max, next_round_tick: None, is_changed: true, next_report_tick: 0 }
    }

    /// Whether projectiles can be fired, which is not the case between two rounds.
    pub fn is_playing(&self) -> bool {
        self.next_round_tick.is_none()
    }

    /// Whether the next round begins in this tick.
    pub fn is_due(&self, world: &World) -> bool {
        self.next_round_tick.is_some_and(|tick| world.tick() >= tick)
    }

    /// Whether the room closes after this round. The backend can begin rounds, so the number may be beyond the last
    /// one.
    pub fn is_last(&self) -> bool {
        self.rounds_max > 0 && self.number >= self.rounds_max
    }

    /// Ends the round with a winner. Returns `false` if the round was already over.
    pub fn finish(&mut self, world: &mut World, winner: &TagRunner) -> bool {
        if !self.is_playing() {
            return false;
        }
        let next = world.tick().saturating_add(PAUSE_S * world.ticks_per_second());
        self.next_round_tick = Some(next);
        let _ = world.emit(Scope::All, &report::round_over(self, winner, next));
        self.list(world);
        true
    }

    /// Begins the next round.
    pub fn begin(&mut self, world: &mut World) {
        self.number = self.number.saturating_add(1);
        self.next_round_tick = None;
        self.is_changed = true;
        let _ = world.emit(Scope::All, &report::round_started(self));
        // A player who joined the last round late could hardly win. A room with a single round stays open.
        world.set_locked(self.is_last());
        self.list(world);
    }

    /// Shows the round in lists of rooms.
    pub fn list(&self, world: &mut World) {
        // Refused if the operator allows less metadata than this; then the list shows none.
        let _ = world.set_metadata(&report::metadata(self));
    }

    /// Sends the scoreboard if it has changed, at most once per second.
    pub fn report(&mut self, world: &mut World, runners: &BTreeMap<ObjectId, TagRunner>) {
        if !self.is_changed || world.tick() < self.next_report_tick {
            return;
        }
        let scores = report::scores(self, &leaders(runners), runners.len());
        // If this tick has reached its limit on events, the next one tries again.
        self.is_changed = world.emit(Scope::All, &scores).is_err();
        self.next_report_tick = world.tick().saturating_add(world.ticks_per_second());
    }
}

impl RoundCommand {
    /// Parses a message: an object with `score_limit`, `start_round`, or neither to request the state.
    ///
    /// # Errors
    /// [`Refusal`] with code 460.
    pub fn read(data: &[u8]) -> Result<Self, Refusal> {
        let Ok(Value::Object(fields)) = serde_json::from_slice(data) else {
            return Err(refusal("the message is not a JSON object"));
        };
        let mut command = Self::default();
        for (name, value) in &fields {
            match (name.as_str(), value) {
                ("score_limit", value) => command.score_limit = Some(score_limit(value)?),
                ("start_round", Value::Bool(starts_round)) => command.starts_round = *starts_round,
                ("start_round", _) => return Err(refusal("`start_round` is not true or false")),
                _ => return Err(refusal("the message may have `score_limit` and `start_round`")),
            }
        }
        Ok(command)
    }
}

/// The best runners in descending order. Of runners with equal points, the oldest is first.
pub fn leaders(runners: &BTreeMap<ObjectId, TagRunner>) -> Vec<(ObjectId, &TagRunner)> {
    let mut ranked: Vec<(ObjectId, &TagRunner)> = runners.iter().map(|(id, runner)| (*id, runner)).collect();
    ranked.sort_unstable_by_key(|(id, runner)| (Reverse(runner.score), *id));
    ranked.truncate(LEADERS_MAX);
    ranked
}

fn score_limit(value: &Value) -> Result<u32, Refusal> {
    let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
    number
        .filter(|number| (1..=SCORE_LIMIT_MAX).contains(number))
        .ok_or_else(|| refusal("`score_limit` is not a whole number from 1 to 1000"))
}

fn refusal(message: &str) -> Refusal {
    Refusal { code: BAD_MESSAGE, message: message.into() }
}
