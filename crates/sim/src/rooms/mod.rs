//! The reference model of rooms: what the game recorded and what clients sent. It shares no code with the engine.

mod game;
mod kinds;
mod record;
mod seats;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use dunlin_engine::room::RoomKey;
use dunlin_protocol::UnsubscribeCode;
use dunlin_rooms::PlayerId;

use crate::{model::Outcome, plan::RoomPlan, wire::ClientPosition};

pub use game::{Game, GameOptions};
pub use kinds::has_form;
pub use record::{PlayerAt, RoomRecord, Version, between};
pub use seats::{Departures, SeatModel};

/// Time for which a join waits for a room that another node may have.
const JOIN_WAIT_US: u64 = 3_000_000;

/// The model of rooms, shared by the games and the checks.
#[derive(Clone, Default)]
pub struct SharedRoomModel(Arc<Mutex<RoomModel>>);

impl SharedRoomModel {
    pub fn lock(&self) -> MutexGuard<'_, RoomModel> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The model of rooms. Joins, inputs and events are numbered. The payloads that clients and games send contain the
/// numbers.
#[derive(Default)]
pub struct RoomModel {
    /// Rooms by key. A channel may have several rooms, one after another.
    pub records: BTreeMap<RoomKey, RoomRecord>,
    /// Rooms that were closed before the message to open them reached a room thread.
    pub ended_unopened: BTreeMap<RoomKey, UnsubscribeCode>,
    pub joins: Vec<Join>,
    pub inputs: Vec<SentInput>,
    pub events: Vec<EmittedEvent>,
    /// Events by channel, epoch and offset.
    pub positions: BTreeMap<(String, String, u64), u64>,
    /// The first check that failed within a game.
    pub failure: Option<String>,
    /// Players that the backend kicked.
    pub kicked: BTreeSet<(RoomKey, PlayerId)>,
    /// Players that a new connection took over before the node detected the loss of the old connection.
    pub taken_over: BTreeSet<(RoomKey, PlayerId)>,
    /// How often each labelled case occurred.
    pub reached: BTreeMap<&'static str, u64>,
}

/// An attempt to join.
#[derive(Clone, Debug)]
pub struct Join {
    pub channel: String,
    pub user: String,
    /// The room that handled it.
    pub room: Option<RoomKey>,
    /// The decision of the game, once it was made.
    pub outcome: Option<Result<PlayerId, u16>>,
    /// When the client sent it.
    pub begun_us: u64,
    /// The epoch and the top offset of the channel when the owner got the outcome.
    pub answered_at: Option<ClientPosition>,
    /// When the owner got the outcome, in Unix milliseconds.
    pub answered_ms: u64,
    /// Whether the client asked for the fields of states.
    pub is_typed: bool,
    /// Whether the player was in the room before.
    pub is_back: bool,
    /// Number of events of the room before the tick of the join.
    pub events_before: usize,
}

#[derive(Clone, Debug)]
pub struct SentInput {
    /// The join whose player sent it, or `None` if the client was not in the room.
    pub join: Option<u64>,
    /// The number that the client gave it.
    pub number: u32,
    pub fault: InputFault,
    pub outcome: Outcome,
    /// Whether it reached the game.
    pub applied: bool,
}

/// What is wrong with an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputFault {
    None,
    /// Its number is not higher than that of an earlier input.
    Stale,
    /// It is longer than the limit.
    TooLong,
    Malformed,
    /// It is well-formed, but the game rejects it.
    RejectedByGame,
}

#[derive(Clone, Debug)]
pub struct EmittedEvent {
    pub room: RoomKey,
    pub tick: u32,
    /// The recipients, known at the end of the tick.
    pub players: BTreeSet<PlayerId>,
    /// The users that may recover it, or `None` for all.
    pub users: Option<BTreeSet<String>>,
    /// When the owner accepted it, in Unix milliseconds.
    pub accepted_ms: Option<u64>,
}

impl RoomModel {
    /// Records an attempt of `user` to join and returns its number.
    pub fn begin_join(&mut self, channel: &str, user: &str, now_us: u64) -> u64 {
        let (channel, user) = (channel.to_owned(), user.to_owned());
        self.joins.push(Join {
            channel,
            user,
            room: None,
            outcome: None,
            begun_us: now_us,
            answered_at: None,
            answered_ms: 0,
            is_typed: false,
            is_back: false,
            events_before: 0,
        });
        self.joins.len() as u64 - 1
    }

    /// Records an input and returns its number.
    pub fn begin_input(&mut self, join: Option<u64>, number: u32, fault: InputFault) -> u64 {
        self.inputs.push(SentInput { join, number, fault, outcome: Outcome::Unknown, applied: false });
        self.inputs.len() as u64 - 1
    }

    /// Records a check that failed within a game. Only the first one is kept.
    pub fn record_failure(&mut self, what: String) {
        self.failure.get_or_insert(what);
    }

    /// Removes the last tick of a room, which was lost before it was published.
    pub fn lose_tick(&mut self, room: RoomKey) {
        let Self { records, events, .. } = self;
        if let Some(record) = records.get_mut(&room) {
            let tick = record.tick;
            record.events.retain(|event| events[*event as usize].tick < tick);
            record.tick -= 1;
        }
    }

    /// Nobody outside of the room has seen its last tick: its events are lost.
    pub fn lose_events_of_last_tick(&mut self, room: RoomKey) {
        let Self { records, events, .. } = self;
        if let Some(record) = records.get_mut(&room) {
            let tick = record.tick;
            record.events.retain(|event| events[*event as usize].tick < tick);
        }
    }

    /// A tick begins: whether the backend kicks a player in it, and for each client, whether its joins are those of kept seats.
    pub fn begin_tick(&mut self, room: RoomKey, is_kicking: bool, keeping: BTreeMap<String, VecDeque<bool>>) {
        if let Some(record) = self.records.get_mut(&room) {
            (record.is_kicking, record.keeping) = (is_kicking, keeping);
        }
    }

    /// Sets whether the backend kicks a player in the current tick.
    pub fn set_kicking(&mut self, room: RoomKey, is_kicking: bool) {
        if let Some(record) = self.records.get_mut(&room) {
            record.is_kicking = is_kicking;
        }
    }

    /// Whether a player's subscription may end with `code` because it was kicked or taken over.
    pub fn is_removed(&self, room: RoomKey, player: PlayerId, code: u32) -> bool {
        match UnsubscribeCode(code) {
            UnsubscribeCode::KICKED => self.kicked.contains(&(room, player)),
            UnsubscribeCode::SEAT_TAKEN => self.taken_over.contains(&(room, player)),
            _ => false,
        }
    }

    /// Whether the room ended with `code`, also for a player who could not follow it to another node.
    pub fn ended_with(&self, room: RoomKey, code: u32) -> bool {
        let has_moved = self.records.get(&room).is_some_and(|record| record.moves > 0);
        has_moved && code == UnsubscribeCode::ROOM_FAILED.0
            || self.records.get(&room).is_some_and(|record| record.ended.iter().any(|ended| ended.0 == code))
    }

    /// Checks that a join may fail because the room is on no node, or a node does not answer: it has waited.
    ///
    /// # Errors
    /// If it was refused too early.
    pub fn give_up_join(&mut self, join: u64, plan: Option<&RoomPlan>, now_us: u64) -> Result<(), String> {
        let record = &self.joins[join as usize];
        let has_waited = plan.is_some_and(|plan| plan.asks_nodes) && now_us >= record.begun_us + JOIN_WAIT_US;
        if !has_waited || record.outcome.is_some() {
            return Err(format!("join {join} is given up at {now_us}: {record:?}"));
        }
        self.count("join given up");
        Ok(())
    }

    /// Checks that a join may fail with this error: the game rejected it, or the room ended.
    ///
    /// # Errors
    /// If the join must not fail with this error.
    pub fn reject_join(&mut self, join: u64, plan: Option<&RoomPlan>, code: u32, message: &str) -> Result<(), String> {
        let record = self.joins[join as usize].clone();
        let may_be_full = plan.is_some_and(|plan| plan.options.players_max < 100);
        let is_over = record.room.is_some_and(|room| !self.records[&room].ended.is_empty());
        let is_valid = match record.outcome {
            Some(Err(refused)) if u32::from(refused) == code => message == format!("not by {code}"),
            // The room ended after the game had decided.
            Some(_) => {
                let was_closed = record.room.is_some_and(|room| self.ended_with(room, UnsubscribeCode::ROOM_CLOSED.0));
                code == 100 && is_over || code == 400 && was_closed && message == "room closed"
            }
            // The game could not record a join without a number.
            None => code == 100 || code == 400 && (may_be_full || matches!(message, "not by 400" | "room closed")),
        };
        self.count(if code == 100 { "join to an ended room" } else { "join rejected" });
        if is_valid { Ok(()) } else { Err(format!("join {join} is rejected with {code}, {message}: {record:?}")) }
    }

    /// Counts one occurrence of a labelled case.
    pub fn count(&mut self, what: &'static str) {
        *self.reached.entry(what).or_insert(0) += 1;
    }

    /// The room and the player of a successful join.
    pub fn seat_of(&self, join: u64) -> Option<(RoomKey, PlayerId)> {
        let join = self.joins.get(join as usize)?;
        Some((join.room?, join.outcome?.ok()?))
    }

    /// Records the position that the channel assigned to `event`.
    ///
    /// # Errors
    /// If the event already has a position, or if the position is taken or not the next one.
    pub fn positioned(&mut self, channel: &str, at: &ClientPosition, event: u64, now_ms: u64) -> Result<(), String> {
        let emitted = self.events.get_mut(event as usize).ok_or_else(|| format!("no game emitted event {event}"))?;
        if emitted.accepted_ms.replace(now_ms).is_some() {
            return Err(format!("{channel}: event {event} is published twice"));
        }
        let last = self.stream(channel, &at.epoch, ..).next_back().map_or(0, |(offset, _)| offset);
        if at.offset != last + 1 && last > 0 || self.at(channel, at).is_some() {
            return Err(format!("{channel}: event {event} gets {at:?}, but the last offset is {last}"));
        }
        self.positions.insert((channel.to_owned(), at.epoch.clone(), at.offset), event);
        Ok(())
    }

    pub fn at(&self, channel: &str, at: &ClientPosition) -> Option<u64> {
        self.positions.get(&(channel.to_owned(), at.epoch.clone(), at.offset)).copied()
    }

    /// Offsets and numbers of the events in an epoch of a channel, in order.
    pub fn stream(
        &self,
        channel: &str,
        epoch: &str,
        offsets: impl std::ops::RangeBounds<u64>,
    ) -> impl DoubleEndedIterator<Item = (u64, u64)> {
        let key = |offset: u64| (channel.to_owned(), epoch.to_owned(), offset);
        let first = match offsets.start_bound() {
            std::ops::Bound::Included(&first) => first,
            std::ops::Bound::Excluded(&before) => before + 1,
            std::ops::Bound::Unbounded => 0,
        };
        let last = match offsets.end_bound() {
            std::ops::Bound::Included(&last) => last,
            std::ops::Bound::Excluded(&after) => after - 1,
            std::ops::Bound::Unbounded => u64::MAX,
        };
        let range = key(first)..=key(last.max(first.saturating_sub(1)));
        let is_empty = last < first;
        let found = if is_empty { None } else { Some(self.positions.range(range)) };
        found.into_iter().flatten().map(|((_, _, offset), event)| (*offset, *event))
    }

    /// Whether a recovery of `user` may contain `event`.
    pub fn may_recover(&self, event: u64, user: &str) -> bool {
        let emitted = &self.events[event as usize];
        emitted.users.as_ref().is_none_or(|users| !user.is_empty() && users.contains(user))
    }
}

/// The number after the prefix `mark` in a payload.
pub fn numbered(data: &[u8], mark: &str) -> Option<u64> {
    let text = data.strip_prefix(mark.as_bytes())?;
    let digits: String = text.iter().take_while(|byte| byte.is_ascii_digit()).map(|&byte| char::from(byte)).collect();
    digits.parse().ok()
}

/// The tick and the number of an event.
pub fn event_number(data: &[u8]) -> Option<(u32, u64)> {
    let tick = numbered(data, r#"{"tick":"#)?;
    let prefix = format!(r#"{{"tick":{tick},"event":{{"e":"#);
    Some((u32::try_from(tick).ok()?, numbered(data, &prefix)?))
}
