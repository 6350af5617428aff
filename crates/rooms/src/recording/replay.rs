//! Iterates over a recording, tick by tick.

use std::fmt;

use hashbrown::HashMap;

use super::{Carried, Header, Record, RecordedStep};
use crate::{
    GameCall, GridError, ListingChange, PlayerId, Refusal, Room, Scoped, Simulation,
    binary::{Reader, Unreadable},
};

/// A room that replays a recording.
pub struct Replay<'a> {
    header: Header,
    room: Room,
    records: Reader<'a>,
    /// The last player of each user.
    players: HashMap<&'a str, PlayerId, foldhash::quality::FixedState>,
    is_over: bool,
    watched: Option<Watched<'a>>,
}

/// A tick of a recording from which a replay can go on, without the ticks before it.
#[derive(Clone, Debug)]
pub struct Checkpoint<'a> {
    tick: u32,
    saved: Vec<u8>,
    records: Reader<'a>,
    players: HashMap<&'a str, PlayerId, foldhash::quality::FixedState>,
}

/// The steps, events and calls collected for a tick, and what was told of connections before it.
#[derive(Default)]
struct Watched<'a> {
    steps: Vec<ReplayedStep<'a>>,
    events: Vec<Scoped>,
    calls: Vec<GameCall>,
    carried: Vec<(PlayerId, Carried)>,
    untold: Vec<PlayerId>,
}

/// A step that was replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayedStep<'a> {
    /// The step.
    pub step: RecordedStep<'a>,
    /// For a join: the player in the room, or the refusal.
    pub joined: Option<Result<PlayerId, Refusal>>,
}

/// Why a recording cannot be replayed, or not to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayError {
    /// The bytes are not a recording.
    NoRecording,
    /// The recording has an unknown version of the format.
    UnknownVersion(u8),
    /// A record cannot be decoded.
    Malformed,
    /// The recording ends within a record: it is truncated.
    BreaksOff,
    /// The simulation's map is invalid.
    Grid(GridError),
    /// The game cannot restore what it has saved.
    Restore,
    /// The replayed state differs from the recorded one.
    Divergence {
        /// The tick after which it differs.
        tick: u32,
        /// The recorded state hash.
        expected: u64,
        /// The actual state hash.
        actual: u64,
    },
}

/// Starts to replay a recording with the simulation that `make` creates for its header.
///
/// # Errors
/// All of [`ReplayError`] except [`ReplayError::Restore`] and [`ReplayError::Divergence`].
pub fn replay(recording: &[u8], make: impl FnOnce(&Header) -> Box<dyn Simulation>) -> Result<Replay<'_>, ReplayError> {
    let mut records = Reader::new(recording);
    let header = Header::read_from(&mut records)?;
    let room = Room::open(header.options.clone(), header.info(), make(&header)).map_err(ReplayError::Grid)?;
    Ok(Replay { header, room, records, players: HashMap::default(), is_over: false, watched: None })
}

impl<'a> Replay<'a> {
    /// The header of the recording.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Replays the next tick; returns its number. `None` at the end of the recording, and after any error except a
    /// divergence.
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

    /// Replays up to the end; returns the number of the last tick.
    ///
    /// # Errors
    /// The first error.
    pub fn finish(&mut self) -> Result<u32, ReplayError> {
        while let Some(result) = self.next_tick() {
            result?;
        }
        Ok(self.room.tick_number())
    }

    /// The room as it is now, directly after a tick, and the place in the recording.
    pub fn checkpoint(&self) -> Checkpoint<'a> {
        let mut saved = Vec::new();
        self.room.save(&mut saved);
        Checkpoint { tick: self.room.tick_number(), saved, records: self.records, players: self.players.clone() }
    }

    /// Goes on from a checkpoint of the same recording, with a new simulation for its header.
    ///
    /// # Errors
    /// [`ReplayError::Restore`]
    pub fn resume(
        header: &Header,
        checkpoint: &Checkpoint<'a>,
        simulation: Box<dyn Simulation>,
    ) -> Result<Self, ReplayError> {
        let room =
            Room::restore(header.options.clone(), &checkpoint.saved, simulation).map_err(|_| ReplayError::Restore)?;
        let (records, players) = (checkpoint.records, checkpoint.players.clone());
        Ok(Self { header: header.clone(), room, records, players, is_over: false, watched: None })
    }

    /// From now on, collects [`Replay::steps`], [`Replay::events`], [`Replay::calls`], [`Replay::carried`] and
    /// [`Replay::untold`].
    pub fn watch(&mut self) {
        self.watched = Some(Watched::default());
    }

    /// The steps before the last tick, in order.
    pub fn steps(&self) -> &[ReplayedStep<'a>] {
        self.watched.as_ref().map_or(&[], |watched| &watched.steps)
    }

    /// The events that the simulation sent in the last tick.
    pub fn events(&self) -> &[Scoped] {
        self.watched.as_ref().map_or(&[], |watched| &watched.events)
    }

    /// The calls to the backend that the simulation made before and in the last tick.
    pub fn calls(&self) -> &[GameCall] {
        self.watched.as_ref().map_or(&[], |watched| &watched.calls)
    }

    /// What was told before the last tick of the connections of players, in order.
    pub fn carried(&self) -> &[(PlayerId, Carried)] {
        self.watched.as_ref().map_or(&[], |watched| &watched.carried)
    }

    /// The players who came before the last tick and of whose connections nothing is told.
    pub fn untold(&self) -> &[PlayerId] {
        self.watched.as_ref().map_or(&[], |watched| &watched.untold)
    }

    /// The room after the last tick.
    pub fn room(&self) -> &Room {
        &self.room
    }

    /// The user's player in the room, or its last one.
    pub fn player_of(&self, user: &str) -> Option<PlayerId> {
        self.players.get(user).copied()
    }

    fn apply(&mut self, record: Record<'a>) -> Option<Result<u32, ReplayError>> {
        match record {
            Record::Step(step) => match self.apply_step(step) {
                Ok(joined) => {
                    if let Some(watched) = &mut self.watched {
                        watched.steps.push(ReplayedStep { step, joined });
                    }
                    None
                }
                Err(error) => {
                    self.is_over = true;
                    Some(Err(error))
                }
            },
            Record::Carried { player, carried } => {
                if let Some(watched) = &mut self.watched {
                    watched.carried.push((player, carried));
                }
                None
            }
            Record::Untold { player } => {
                if let Some(watched) = &mut self.watched {
                    watched.untold.push(player);
                }
                None
            }
            Record::Tick { state_hash: expected } => {
                match &mut self.watched {
                    Some(watched) => (watched.events, watched.calls) = self.room.tick_with_events(),
                    None => drop(self.room.tick_without_update()),
                }
                let (tick, actual) = (self.room.tick_number(), self.room.state_hash());
                let divergence = ReplayError::Divergence { tick, expected, actual };
                Some(if expected == actual { Ok(tick) } else { Err(divergence) })
            }
        }
    }

    /// Returns the result of a join.
    fn apply_step(&mut self, step: RecordedStep<'a>) -> Result<Option<Result<PlayerId, Refusal>>, ReplayError> {
        match step {
            RecordedStep::Join { visitor, encoding, data } => {
                // A game that refused a join refuses it again; otherwise, the state hash differs.
                let joined = self.room.join(&visitor, encoding, data).map(|joined| joined.player);
                if let Ok(player) = joined {
                    self.players.insert(visitor.user, player);
                }
                return Ok(Some(joined));
            }
            RecordedStep::Away { player } => {
                self.room.away(player);
            }
            RecordedStep::Back { player, visitor, encoding } => {
                self.room.back(player, &visitor, encoding);
            }
            RecordedStep::Leave { player } => self.room.leave(player),
            RecordedStep::Input { player, number, data } => {
                self.room.input(player, number, data);
            }
            RecordedStep::Listing { change } => {
                let change = ListingChange::read(change).ok_or(ReplayError::Malformed)?;
                // Metadata that was refused is refused again.
                let _ = self.room.change_listing(&change);
            }
            RecordedStep::Kick { player, reason } => {
                self.room.kick(player, reason);
            }
            RecordedStep::Message { data } => {
                // The answer is not needed, and a refused message is refused again.
                let _ = self.room.message(data);
            }
            RecordedStep::Answer { call, outcome } => {
                self.room.answer(call, outcome.to_result());
            }
        }
        Ok(None)
    }
}

/// A description for humans.
impl fmt::Display for ReplayedStep<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.step)?;
        match &self.joined {
            None => Ok(()),
            Some(Ok(player)) => write!(f, ": is player {}", player.0),
            Some(Err(Refusal { code, message })) => write!(f, ": is refused with {code}: {message}"),
        }
    }
}

impl Checkpoint<'_> {
    /// The last tick before it.
    pub fn tick(&self) -> u32 {
        self.tick
    }

    /// The memory that it takes.
    pub fn memory_bytes(&self) -> usize {
        self.saved.capacity() + self.players.allocation_size()
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
            Self::Restore => f.write_str("the game cannot restore what it has saved"),
            Self::Divergence { tick, expected, actual } => {
                write!(f, "tick {tick} differs: its state hash was {expected:016x} and is now {actual:016x}")
            }
        }
    }
}

impl std::error::Error for ReplayError {}
