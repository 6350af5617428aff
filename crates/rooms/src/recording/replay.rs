//! Iterates over a recording, tick by tick.

use std::fmt;

use hashbrown::HashMap;

use super::{Header, Record};
use crate::{
    GridError, ListingChange, PlayerId, Room, Scoped, Simulation,
    binary::{Reader, Unreadable},
};

/// A room that goes through what was recorded of another.
pub struct Replay<'a> {
    header: Header,
    room: Room,
    records: Reader<'a>,
    /// The last player that each user joined as.
    players: HashMap<&'a str, PlayerId, foldhash::quality::FixedState>,
    is_over: bool,
    watched: Option<Watched>,
}

/// What is collected of a tick.
#[derive(Default)]
struct Watched {
    steps: Vec<String>,
    events: Vec<Scoped>,
}

/// Why a recording is not replayed, or not to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayError {
    /// These bytes are no recording.
    NoRecording,
    /// The recording is in a version of the format that is not known here.
    UnknownVersion(u8),
    /// There is something in it that means nothing.
    Malformed,
    /// The recording ends within a record: it is truncated.
    BreaksOff,
    /// The simulation's map is not possible.
    Grid(GridError),
    /// The room is not what it was when it was recorded.
    Divergence {
        /// The tick after which it is not.
        tick: u32,
        /// The state hash that was recorded.
        expected: u64,
        /// The state hash now.
        actual: u64,
    },
}

/// Begins to replay a recording with the simulation that `make` makes for its header.
///
/// # Errors
/// All of [`ReplayError`] but [`ReplayError::Divergence`].
pub fn replay(recording: &[u8], make: impl FnOnce(&Header) -> Box<dyn Simulation>) -> Result<Replay<'_>, ReplayError> {
    let mut records = Reader::new(recording);
    let header = Header::read_from(&mut records)?;
    let room = Room::open(header.options.clone(), header.info(), make(&header)).map_err(ReplayError::Grid)?;
    Ok(Replay { header, room, records, players: HashMap::default(), is_over: false, watched: None })
}

impl<'a> Replay<'a> {
    /// How the recording begins.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Goes on to the end of the next tick; returns its number. `None` at the end of the recording, and after anything but
    /// a divergence.
    pub fn next_tick(&mut self) -> Option<Result<u32, ReplayError>> {
        if let Some(watched) = &mut self.watched {
            *watched = Watched::default();
        }
        while !self.is_over && self.records.left() > 0 {
            match Record::read(&mut self.records) {
                Ok(record) => {
                    if let Some(result) = self.apply(record) {
                        return Some(result);
                    }
                }
                Err(error) => {
                    self.is_over = true;
                    return Some(Err(error.into()));
                }
            }
        }
        None
    }

    /// Goes on to the end; returns the number of the last tick.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn finish(&mut self) -> Result<u32, ReplayError> {
        while let Some(result) = self.next_tick() {
            result?;
        }
        Ok(self.room.tick_number())
    }

    /// From now on [`Replay::steps`] and [`Replay::events`] are collected.
    pub fn watch(&mut self) {
        self.watched = Some(Watched::default());
    }

    /// What happened to the room before the last tick, in order: joins, leaves and inputs, in words.
    pub fn steps(&self) -> &[String] {
        self.watched.as_ref().map_or(&[], |watched| &watched.steps)
    }

    /// What the simulation sent in the last tick.
    pub fn events(&self) -> &[Scoped] {
        self.watched.as_ref().map_or(&[], |watched| &watched.events)
    }

    /// The room after the last tick.
    pub fn room(&self) -> &Room {
        &self.room
    }

    /// Who the user is, or was last, in the room.
    pub fn player_of(&self, user: &str) -> Option<PlayerId> {
        self.players.get(user).copied()
    }

    fn apply(&mut self, record: Record<'a>) -> Option<Result<u32, ReplayError>> {
        if let Some(watched) = &mut self.watched
            && !matches!(record, Record::Tick { .. })
        {
            watched.steps.push(record.to_string());
        }
        match record {
            Record::Join { visitor, encoding, data } => {
                // A game that refused a join refuses it again; if not, the state hash differs.
                if let Ok(joined) = self.room.join(&visitor, encoding, data) {
                    self.players.insert(visitor.user, joined.player);
                }
                None
            }
            Record::Away { player } => {
                self.room.away(player);
                None
            }
            Record::Back { player, visitor, encoding } => {
                self.room.back(player, &visitor, encoding);
                None
            }
            Record::Leave { player } => {
                self.room.leave(player);
                None
            }
            Record::Input { player, number, data } => {
                self.room.input(player, number, data);
                None
            }
            Record::Listing { change } => {
                let Some(change) = ListingChange::read(change) else {
                    self.is_over = true;
                    return Some(Err(ReplayError::Malformed));
                };
                // Metadata that was refused is refused again.
                let _ = self.room.change_listing(&change);
                None
            }
            Record::Kick { player, reason } => {
                self.room.kick(player, reason);
                None
            }
            Record::Message { data } => {
                // The answer is of no use, and a refusal is one again.
                let _ = self.room.message(data);
                None
            }
            Record::Answer { call, outcome } => {
                self.room.answer(call, outcome.to_result());
                None
            }
            Record::Tick { state_hash: expected } => {
                match &mut self.watched {
                    Some(watched) => watched.events = self.room.tick_with_events(),
                    None => drop(self.room.tick_without_update()),
                }
                let (tick, actual) = (self.room.tick_number(), self.room.state_hash());
                let divergence = ReplayError::Divergence { tick, expected, actual };
                Some(if expected == actual { Ok(tick) } else { Err(divergence) })
            }
        }
    }
}

impl From<Unreadable> for ReplayError {
    fn from(unreadable: Unreadable) -> Self {
        match unreadable {
            Unreadable::Short => Self::BreaksOff,
            Unreadable::Wrong => Self::Malformed,
        }
    }
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRecording => f.write_str("this is no recording"),
            Self::UnknownVersion(version) => write!(f, "recordings of version {version} are not known here"),
            Self::Malformed => f.write_str("the recording is malformed"),
            Self::BreaksOff => f.write_str("the recording breaks off"),
            Self::Grid(error) => write!(f, "the simulation's map is not possible: {error}"),
            Self::Divergence { tick, expected, actual } => {
                write!(f, "tick {tick} differs: its state hash was {expected:016x} and is now {actual:016x}")
            }
        }
    }
}

impl std::error::Error for ReplayError {}
