//! Records a room and replays it.
//!
//! A recording consists of the room's seed and options, followed for each tick by its joins, leaves, inputs,
//! messages and answers of the backend in order, and the state hash after the tick. A replay must produce the same
//! hashes; otherwise it reports the first tick that differs. Between them stands what the connections of players have
//! carried, as far as it is known, which has no effect on the room.
//!
//! Format: [`MAGIC`], a version byte, the header, and records up to the end. A record is a byte for its kind, followed
//! by its fields. Numbers are varints with 7 bits per byte, the lowest first; the top bit is set if more bytes follow.
//! Strings and bytes are prefixed with their length; a hash has 8 bytes, little-endian. A truncated recording is valid
//! up to its last complete record.

mod call_outcome;
mod carried;
mod comparison;
mod inputs;
mod replay;
mod role;
mod step;

use dunlin_protocol::Encoding;

use crate::{
    CallError, CallId, ListingChange, PlayerId, Room, RoomInfo, RoomOptions, Visitor,
    binary::{Reader, Unreadable, put_bytes, put_number},
};

pub use call_outcome::CallOutcomeRef;
pub use carried::{Carried, CarriedWait};
pub use comparison::{Comparison, Difference, compare};
pub use inputs::{RecordedInput, carried, inputs};
pub use replay::{Checkpoint, Replay, ReplayError, ReplayedStep, replay};
pub use role::{put_role, read_role};
pub use step::RecordedStep;

/// The first bytes of every recording.
pub const MAGIC: &[u8; 8] = b"DUNLINRR";
/// The version of the format that is written. Version 1 has no spectators, messages or calls, and stores only the user
/// of a visitor. Version 2 has no addresses. Version 3 does not have what connections carried.
const VERSION: u8 = 4;
/// The first version with what connections carried.
const TELLS_OF_CONNECTIONS: u8 = 4;
/// The kind of a record of what a connection carried.
const CARRIED: u8 = 48;
/// The kind of a record of a player of whose connection nothing is told.
const UNTOLD: u8 = 49;
/// Maximum ticks per second; as in [`RoomOptions::ticks_per_second`].
const TICKS_PER_SECOND_MAX: u32 = 240;

/// The settings that a room must be created with to replay the recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The simulation's name.
    pub simulation: String,
    /// The room's parameters, a JSON document.
    pub params: String,
    /// The room's seed.
    pub seed: u64,
    /// The room's channel; empty if unknown.
    pub channel: String,
    /// The room's options.
    pub options: RoomOptions,
}

/// Writes a recording. The holder of the room calls it for every step that is applied to the room, in order.
#[derive(Debug)]
pub struct Recorder {
    out: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Record<'a> {
    Step(RecordedStep<'a>),
    Tick { state_hash: u64 },
    Carried { player: PlayerId, carried: Carried },
    Untold { player: PlayerId },
}

impl Recorder {
    /// Starts a recording of a room at tick 0, before any step has been applied to it. The recording is appended to
    /// `out`.
    pub fn new(header: &Header, mut out: Vec<u8>) -> Self {
        header.write(&mut out);
        Self { out }
    }

    /// Records a call of [`Room::join`], whatever its result.
    pub fn join(&mut self, visitor: &Visitor<'_>, encoding: Encoding, data: &[u8]) {
        self.step(RecordedStep::Join { visitor: *visitor, encoding, data });
    }

    /// Records a call of [`Room::leave`].
    pub fn leave(&mut self, player: PlayerId) {
        self.step(RecordedStep::Leave { player });
    }

    /// Records a call of [`Room::away`].
    pub fn away(&mut self, player: PlayerId) {
        self.step(RecordedStep::Away { player });
    }

    /// Records a call of [`Room::back`].
    pub fn back(&mut self, player: PlayerId, visitor: &Visitor<'_>, encoding: Encoding) {
        self.step(RecordedStep::Back { player, visitor: *visitor, encoding });
    }

    /// Records a call of [`Room::input`].
    pub fn input(&mut self, player: PlayerId, number: u32, data: &[u8]) {
        self.step(RecordedStep::Input { player, number, data });
    }

    /// Records a call of [`Room::message`], whatever its result.
    pub fn message(&mut self, data: &[u8]) {
        self.step(RecordedStep::Message { data });
    }

    /// Records a call of [`Room::change_listing`], whatever its result.
    pub fn change_listing(&mut self, change: &ListingChange) {
        let mut written = Vec::new();
        change.write(&mut written);
        self.step(RecordedStep::Listing { change: &written });
    }

    /// Records a call of [`Room::kick`].
    pub fn kick(&mut self, player: PlayerId, reason: &str) {
        self.step(RecordedStep::Kick { player, reason });
    }

    /// Records a call of [`Room::answer`], whatever its result.
    pub fn answer(&mut self, call: CallId, outcome: Result<&[u8], &CallError>) {
        self.step(RecordedStep::Answer { call, outcome: CallOutcomeRef::of(outcome) });
    }

    /// Records a completed [`Room::tick`].
    pub fn tick(&mut self, room: &Room) {
        Record::Tick { state_hash: room.state_hash() }.write(&mut self.out);
    }

    /// Records what a player's connection carried. It stands between two ticks of the room, of which the first is not before
    /// what is told.
    pub fn carried(&mut self, player: PlayerId, carried: Carried) {
        Record::Carried { player, carried }.write(&mut self.out);
    }

    /// Records that nothing is told of a player's connection until it comes back: it is on another node.
    pub fn untold(&mut self, player: PlayerId) {
        Record::Untold { player }.write(&mut self.out);
    }

    fn step(&mut self, step: RecordedStep<'_>) {
        Record::Step(step).write(&mut self.out);
    }

    /// The bytes written so far. The caller removes what it has stored, and is responsible for limiting the size.
    pub fn written(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }
}

/// Whether a recording has what connections carried. Those of earlier versions do not.
pub fn tells_of_connections(recording: &[u8]) -> bool {
    recording.get(MAGIC.len()).is_some_and(|version| *version >= TELLS_OF_CONNECTIONS)
}

impl Header {
    /// Reads the header of a recording.
    ///
    /// # Errors
    /// [`ReplayError::NoRecording`], [`ReplayError::UnknownVersion`], [`ReplayError::Malformed`],
    /// [`ReplayError::BreaksOff`]
    pub fn read(recording: &[u8]) -> Result<Self, ReplayError> {
        Self::read_from(&mut Reader::new(recording))
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(MAGIC);
        out.push(VERSION);
        put_bytes(self.simulation.as_bytes(), out);
        put_bytes(self.params.as_bytes(), out);
        put_number(self.seed, out);
        let options = &self.options;
        put_number(u64::from(options.ticks_per_second), out);
        for bound in [
            options.objects_max,
            options.state_bytes_max,
            options.players_max,
            options.events_per_tick_max,
            options.event_bytes_max,
            options.spectators_max,
        ] {
            put_number(bound as u64, out);
        }
        put_bytes(self.channel.as_bytes(), out);
        for bound in [options.metadata_bytes_max, options.calls_max, options.call_bytes_max] {
            put_number(bound as u64, out);
        }
    }

    /// The settings that the room was opened with.
    pub fn info(&self) -> RoomInfo {
        let (channel, params) = (self.channel.as_str().into(), self.params.as_str().into());
        RoomInfo { channel, params, seed: self.seed }
    }

    fn read_from(reader: &mut Reader<'_>) -> Result<Self, ReplayError> {
        if reader.take(MAGIC.len()) != Ok(MAGIC) {
            return Err(ReplayError::NoRecording);
        }
        match reader.byte()? {
            version @ 1..=VERSION => Ok(Self::read_fields(reader, version)?),
            version => Err(ReplayError::UnknownVersion(version)),
        }
    }

    fn read_fields(reader: &mut Reader<'_>, version: u8) -> Result<Self, Unreadable> {
        let (simulation, params) = (reader.text()?.to_owned(), reader.text()?.to_owned());
        let seed = reader.number()?;
        let ticks_per_second = reader.number_of()?;
        if !(1..=TICKS_PER_SECOND_MAX).contains(&ticks_per_second) {
            return Err(Unreadable::Wrong);
        }
        let mut options = RoomOptions {
            ticks_per_second,
            objects_max: reader.number_of()?,
            state_bytes_max: reader.number_of()?,
            players_max: reader.number_of()?,
            events_per_tick_max: reader.number_of()?,
            event_bytes_max: reader.number_of()?,
            spectators_max: if version >= 2 { reader.number_of()? } else { 0 },
            metadata_bytes_max: 0,
            calls_max: 0,
            call_bytes_max: 0,
        };
        let channel = if version >= 2 { reader.text()?.to_owned() } else { String::new() };
        if version >= 2 {
            options.metadata_bytes_max = reader.number_of()?;
            (options.calls_max, options.call_bytes_max) = (reader.number_of()?, reader.number_of()?);
        }
        Ok(Self { simulation, params, seed, channel, options })
    }
}

impl<'a> Record<'a> {
    fn write(self, out: &mut Vec<u8>) {
        match self {
            Self::Tick { state_hash } => {
                out.push(0);
                out.extend_from_slice(&state_hash.to_le_bytes());
            }
            Self::Step(step) => step.write(out),
            Self::Carried { player, carried } => {
                out.push(CARRIED);
                carried.write(player, out);
            }
            Self::Untold { player } => {
                out.push(UNTOLD);
                put_number(u64::from(player.0), out);
            }
        }
    }

    fn read(reader: &mut Reader<'a>) -> Result<Self, Unreadable> {
        Ok(match reader.byte()? {
            0 => Self::Tick { state_hash: reader.word()? },
            CARRIED => {
                let (player, carried) = Carried::read(reader)?;
                Self::Carried { player, carried }
            }
            UNTOLD => Self::Untold { player: PlayerId(reader.number_of()?) },
            kind => Self::Step(RecordedStep::read(kind, reader)?),
        })
    }
}
