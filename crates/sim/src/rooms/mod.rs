//! The reference model of rooms: what the game recorded and what clients requested. It shares no code with the engine.

mod game;
mod life;
mod seats;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use dunlin_engine::room::RoomKey;
use dunlin_protocol::UnsubscribeCode;
use dunlin_rooms::PlayerId;

use crate::{model::Fate, plan::RoomPlan, wire::ClientPosition};

pub use game::{Game, GameOptions};
pub use life::{Life, PlayerAt, Version, between};
pub use seats::SeatTruth;

/// The book, shared by the games of all rooms and whoever checks what clients are told of them.
#[derive(Clone, Default)]
pub struct Book(Arc<Mutex<Pages>>);

impl Book {
    /// Opens it.
    pub fn pages(&self) -> MutexGuard<'_, Pages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is in the book. Joins, inputs and events have numbers, which the data carries that clients and games send.
#[derive(Default)]
pub struct Pages {
    /// Rooms by key; a channel has one after another.
    pub lives: BTreeMap<RoomKey, Life>,
    /// Rooms that were closed before their threads heard of them.
    pub ended_unopened: BTreeMap<RoomKey, UnsubscribeCode>,
    /// Attempts to join.
    pub joins: Vec<Join>,
    pub inputs: Vec<SentInput>,
    pub events: Vec<EmittedEvent>,
    /// Events by channel, epoch and offset.
    pub positions: BTreeMap<(String, String, u64), u64>,
    /// The first thing that a game saw and that should not have been.
    pub wrong: Option<String>,
    /// Players that the backend removed.
    pub kicked: BTreeSet<(RoomKey, PlayerId)>,
    /// Players that another connection took over from one that the node had not noticed to be gone.
    pub taken: BTreeSet<(RoomKey, PlayerId)>,
    /// How often what happened.
    pub reached: BTreeMap<&'static str, u64>,
}

/// An attempt to join.
#[derive(Clone, Debug)]
pub struct Join {
    pub channel: String,
    pub user: String,
    /// The room that was asked.
    pub room: Option<RoomKey>,
    /// What the game made of it, once it was asked.
    pub outcome: Option<Result<PlayerId, u16>>,
    /// Epoch and top of the channel when the owner heard of it.
    pub answered_at: Option<ClientPosition>,
    /// When that was, in Unix milliseconds.
    pub answered_ms: u64,
    /// Whether the player was in the room before.
    pub is_back: bool,
    /// Events of the room before the tick of the join.
    pub events_before: usize,
}

/// An input.
#[derive(Clone, Debug)]
pub struct SentInput {
    /// The join whose player sent it; `None` for one of somebody who was not in the room.
    pub join: Option<u64>,
    /// The client's number for it.
    pub number: u32,
    /// Whether there is something wrong with it.
    pub fault: InputFault,
    /// What became of it.
    pub fate: Fate,
    /// Whether the game has had it.
    pub applied: bool,
}

/// What is wrong with an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputFault {
    /// Nothing.
    None,
    /// Its number is not above those before.
    Stale,
    /// It is longer than an input may be.
    TooLong,
    /// It is not of the format.
    Malformed,
    /// The game makes nothing of it, but nobody else knows.
    Senseless,
}

/// An event.
#[derive(Clone, Debug)]
pub struct EmittedEvent {
    pub room: RoomKey,
    pub tick: u32,
    /// Its players, once the tick is over.
    pub players: BTreeSet<PlayerId>,
    /// Who may recover it; `None` for everybody.
    pub users: Option<BTreeSet<String>>,
    /// When the owner took it, in Unix milliseconds.
    pub accepted_ms: Option<u64>,
}

impl Pages {
    /// Notes an attempt of `user` to join; returns its number.
    pub fn begin_join(&mut self, channel: &str, user: &str) -> u64 {
        let (channel, user) = (channel.to_owned(), user.to_owned());
        self.joins.push(Join {
            channel,
            user,
            room: None,
            outcome: None,
            answered_at: None,
            answered_ms: 0,
            is_back: false,
            events_before: 0,
        });
        self.joins.len() as u64 - 1
    }

    /// Notes an input; returns its number.
    pub fn begin_input(&mut self, join: Option<u64>, number: u32, fault: InputFault) -> u64 {
        self.inputs.push(SentInput { join, number, fault, fate: Fate::Open, applied: false });
        self.inputs.len() as u64 - 1
    }

    /// Notes something that a game saw and that should not have been.
    pub fn blame(&mut self, what: String) {
        self.wrong.get_or_insert(what);
    }

    /// The last tick of a room is lost: nobody is told of it.
    pub fn lose_tick(&mut self, room: RoomKey) {
        let Self { lives, events, .. } = self;
        if let Some(life) = lives.get_mut(&room) {
            let tick = life.tick;
            life.events.retain(|event| events[*event as usize].tick < tick);
            life.tick -= 1;
        }
    }

    /// Whether the backend removes somebody in the tick that runs now.
    pub fn set_kicking(&mut self, room: RoomKey, is_kicking: bool) {
        if let Some(life) = self.lives.get_mut(&room) {
            life.is_kicking = is_kicking;
        }
    }

    /// Whether a player's client may be told with `code` that it is out.
    pub fn is_removed(&self, room: RoomKey, player: PlayerId, code: u32) -> bool {
        match UnsubscribeCode(code) {
            UnsubscribeCode::KICKED => self.kicked.contains(&(room, player)),
            UnsubscribeCode::SEAT_TAKEN => self.taken.contains(&(room, player)),
            _ => false,
        }
    }

    /// Whether the room is over, with `code`.
    pub fn ended_with(&self, room: RoomKey, code: u32) -> bool {
        self.lives.get(&room).is_some_and(|life| life.ended.iter().any(|ended| ended.0 == code))
    }

    /// Whether an attempt to join may be answered with an error: the game's own, or that the room is gone.
    ///
    /// # Errors
    /// If it may not.
    pub fn refuse_join(&mut self, join: u64, plan: Option<&RoomPlan>, code: u32, message: &str) -> Result<(), String> {
        let record = self.joins[join as usize].clone();
        let may_be_full = plan.is_some_and(|plan| plan.options.players_max < 100);
        let is_over = record.room.is_some_and(|room| !self.lives[&room].ended.is_empty());
        let is_true = match record.outcome {
            Some(Err(refused)) if u32::from(refused) == code => message == format!("not by {code}"),
            // Of a room that ended right then.
            Some(_) => {
                let was_closed = record.room.is_some_and(|room| self.ended_with(room, UnsubscribeCode::ROOM_CLOSED.0));
                code == 100 && is_over || code == 400 && was_closed && message == "room closed"
            }
            // Without a number nobody could note it.
            None => code == 100 || code == 400 && (may_be_full || matches!(message, "not by 400" | "room closed")),
        };
        self.count(if code == 100 { "join to a room that is gone" } else { "join refused" });
        if is_true { Ok(()) } else { Err(format!("join {join} is refused with {code}, {message}: {record:?}")) }
    }

    /// Counts that something was reached.
    pub fn count(&mut self, what: &'static str) {
        *self.reached.entry(what).or_insert(0) += 1;
    }

    /// The room and player that a join led to.
    pub fn seat_of(&self, join: u64) -> Option<(RoomKey, PlayerId)> {
        let join = self.joins.get(join as usize)?;
        Some((join.room?, join.outcome?.ok()?))
    }

    /// Notes that `event` has got its position in its channel.
    ///
    /// # Errors
    /// If it, or its position, was there before, or if it came before an earlier one.
    pub fn positioned(&mut self, channel: &str, at: &ClientPosition, event: u64, now_ms: u64) -> Result<(), String> {
        let emitted = self.events.get_mut(event as usize).ok_or_else(|| format!("nobody told event {event}"))?;
        if emitted.accepted_ms.replace(now_ms).is_some() {
            return Err(format!("{channel}: event {event} is published twice"));
        }
        let last = self.stream(channel, &at.epoch, ..).next_back().map_or(0, |(offset, _)| offset);
        if at.offset != last + 1 && last > 0 || self.at(channel, at).is_some() {
            return Err(format!("{channel}: event {event} gets {at:?}, and the last one has {last}"));
        }
        self.positions.insert((channel.to_owned(), at.epoch.clone(), at.offset), event);
        Ok(())
    }

    /// The event at a position.
    pub fn at(&self, channel: &str, at: &ClientPosition) -> Option<u64> {
        self.positions.get(&(channel.to_owned(), at.epoch.clone(), at.offset)).copied()
    }

    /// Offsets and numbers of the events in an epoch of a channel.
    pub fn stream(
        &self,
        channel: &str,
        epoch: &str,
        offsets: impl std::ops::RangeBounds<u64>,
    ) -> impl DoubleEndedIterator<Item = (u64, u64)> {
        let place = |offset: u64| (channel.to_owned(), epoch.to_owned(), offset);
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
        let range = place(first)..=place(last.max(first.saturating_sub(1)));
        let is_empty = last < first;
        let found = if is_empty { None } else { Some(self.positions.range(range)) };
        found.into_iter().flatten().map(|((_, _, offset), event)| (*offset, *event))
    }

    /// Whether `user` may be sent `event` in a recovery.
    pub fn may_recover(&self, event: u64, user: &str) -> bool {
        let emitted = &self.events[event as usize];
        emitted.users.as_ref().is_none_or(|users| !user.is_empty() && users.contains(user))
    }
}

/// The number behind `mark` at the beginning of what a client or a game sent.
pub fn numbered(data: &[u8], mark: &str) -> Option<u64> {
    let text = data.strip_prefix(mark.as_bytes())?;
    let digits: String = text.iter().take_while(|byte| byte.is_ascii_digit()).map(|&byte| char::from(byte)).collect();
    digits.parse().ok()
}

/// Tick and number of an event.
pub fn event_number(data: &[u8]) -> Option<(u32, u64)> {
    let tick = numbered(data, r#"{"tick":"#)?;
    let prefix = format!(r#"{{"tick":{tick},"event":{{"e":"#);
    Some((u32::try_from(tick).ok()?, numbered(data, &prefix)?))
}
