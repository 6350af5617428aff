//! Records a room and replays it.
//!
//! A recording consists of the room's seed and options, followed for each tick by its joins, leaves, inputs,
//! messages and answers of the backend in order, and the state hash after the tick. A replay must produce the same
//! hashes; otherwise it reports the first tick that differs.
//!
//! Format: [`MAGIC`], a version byte, the header, and records up to the end. A record is a byte for its kind, followed
//! by its fields. Numbers are varints with 7 bits per byte, the lowest first, the top bit set if more bytes follow.
//! Texts and bytes follow their length; a hash has 8 bytes, the lowest first. A truncated recording is valid up to its
//! last complete record.

mod call_outcome;
mod comparison;
mod inputs;
mod replay;

use std::fmt;

use dunlin_protocol::Encoding;

use crate::{
    CallError, CallId, ListingChange, PlayerId, Room, RoomInfo, RoomOptions, Visitor,
    binary::{Reader, Unreadable, put_bytes, put_number},
};

use call_outcome::CallOutcomeRef;
pub use comparison::{Comparison, Difference, compare};
pub use inputs::{RecordedInput, inputs};
pub use replay::{Replay, ReplayError, replay};

/// How every recording begins.
pub const MAGIC: &[u8; 8] = b"DUNLINRR";
/// The version of the format that is written. Version 1 has no spectators, no messages and no calls, and knows of a visitor only the
/// user.
const VERSION: u8 = 2;
/// Ticks in a second at the most; as in [`RoomOptions::ticks_per_second`].
const TICKS_PER_SECOND_MAX: u32 = 240;

/// What a room has to be made of, to be what was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The simulation's name.
    pub simulation: String,
    /// Its parameters, a JSON document.
    pub params: String,
    /// The room's seed.
    pub seed: u64,
    /// The room's channel; empty if it is not known.
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
    Join {
        visitor: Visitor<'a>,
        encoding: Encoding,
        data: &'a [u8],
    },
    Leave {
        player: PlayerId,
    },
    Away {
        player: PlayerId,
    },
    Back {
        player: PlayerId,
        visitor: Visitor<'a>,
        encoding: Encoding,
    },
    Input {
        player: PlayerId,
        number: u32,
        data: &'a [u8],
    },
    Tick {
        state_hash: u64,
    },
    Message {
        data: &'a [u8],
    },
    /// A change as [`crate::ListingChange::write`] writes it.
    Listing {
        change: &'a [u8],
    },
    Kick {
        player: PlayerId,
        reason: &'a str,
    },
    Answer {
        call: CallId,
        outcome: CallOutcomeRef<'a>,
    },
}

impl Recorder {
    /// Begins a recording of a room at tick 0, before anything has been applied to it. It is appended to `out`.
    pub fn new(header: &Header, mut out: Vec<u8>) -> Self {
        header.write(&mut out);
        Self { out }
    }

    /// [`Room::join`] is called, whatever comes of it.
    pub fn join(&mut self, visitor: &Visitor<'_>, encoding: Encoding, data: &[u8]) {
        Record::Join { visitor: *visitor, encoding, data }.write(&mut self.out);
    }

    /// [`Room::leave`] is called.
    pub fn leave(&mut self, player: PlayerId) {
        Record::Leave { player }.write(&mut self.out);
    }

    /// [`Room::away`] is called.
    pub fn away(&mut self, player: PlayerId) {
        Record::Away { player }.write(&mut self.out);
    }

    /// [`Room::back`] is called.
    pub fn back(&mut self, player: PlayerId, visitor: &Visitor<'_>, encoding: Encoding) {
        Record::Back { player, visitor: *visitor, encoding }.write(&mut self.out);
    }

    /// [`Room::input`] is called.
    pub fn input(&mut self, player: PlayerId, number: u32, data: &[u8]) {
        Record::Input { player, number, data }.write(&mut self.out);
    }

    /// [`Room::message`] is called, whatever comes of it.
    pub fn message(&mut self, data: &[u8]) {
        Record::Message { data }.write(&mut self.out);
    }

    /// [`Room::change_listing`] is called, whatever comes of it.
    pub fn change_listing(&mut self, change: &ListingChange) {
        let mut written = Vec::new();
        change.write(&mut written);
        Record::Listing { change: &written }.write(&mut self.out);
    }

    /// [`Room::kick`] is called.
    pub fn kick(&mut self, player: PlayerId, reason: &str) {
        Record::Kick { player, reason }.write(&mut self.out);
    }

    /// [`Room::answer`] is called, whatever comes of it.
    pub fn answer(&mut self, call: CallId, outcome: Result<&[u8], &CallError>) {
        Record::Answer { call, outcome: CallOutcomeRef::of(outcome) }.write(&mut self.out);
    }

    /// [`Room::tick`] has been called.
    pub fn tick(&mut self, room: &Room) {
        Record::Tick { state_hash: room.state_hash() }.write(&mut self.out);
    }

    /// What has been written. The caller takes out what it has put away; how much there is before that is its to bound.
    pub fn written(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }
}

impl Header {
    /// Reads the beginning of a recording.
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

    /// What the room was opened with.
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
            Self::Join { visitor, encoding, data } => {
                out.extend_from_slice(&[4, encoding.index() as u8]);
                put_visitor(&visitor, out);
                put_bytes(data, out);
            }
            Self::Away { player } => {
                out.push(5);
                put_number(u64::from(player.0), out);
            }
            Self::Back { player, visitor, encoding } => {
                out.extend_from_slice(&[6, encoding.index() as u8]);
                put_number(u64::from(player.0), out);
                put_visitor(&visitor, out);
            }
            Self::Leave { player } => {
                out.push(2);
                put_number(u64::from(player.0), out);
            }
            Self::Input { player, number, data } => {
                out.push(3);
                put_number(u64::from(player.0), out);
                put_number(u64::from(number), out);
                put_bytes(data, out);
            }
            Self::Message { data } => {
                out.push(7);
                put_bytes(data, out);
            }
            Self::Listing { change } => {
                out.push(16);
                put_bytes(change, out);
            }
            Self::Kick { player, reason } => {
                out.push(17);
                put_number(u64::from(player.0), out);
                put_bytes(reason.as_bytes(), out);
            }
            Self::Answer { call, outcome } => {
                out.push(32);
                put_number(u64::from(call.0), out);
                outcome.write(out);
            }
        }
    }

    fn read(reader: &mut Reader<'a>) -> Result<Self, Unreadable> {
        Ok(match reader.byte()? {
            0 => Self::Tick { state_hash: reader.word()? },
            1 => Self::Join {
                encoding: read_encoding(reader)?,
                visitor: Visitor::of_user(reader.text()?),
                data: reader.bytes()?,
            },
            2 => Self::Leave { player: PlayerId(reader.number_of()?) },
            3 => Self::Input {
                player: PlayerId(reader.number_of()?),
                number: reader.number_of()?,
                data: reader.bytes()?,
            },
            4 => Self::Join { encoding: read_encoding(reader)?, visitor: read_visitor(reader)?, data: reader.bytes()? },
            5 => Self::Away { player: PlayerId(reader.number_of()?) },
            6 => {
                let encoding = read_encoding(reader)?;
                Self::Back { player: PlayerId(reader.number_of()?), visitor: read_visitor(reader)?, encoding }
            }
            7 => Self::Message { data: reader.bytes()? },
            16 => Self::Listing { change: reader.bytes()? },
            17 => Self::Kick { player: PlayerId(reader.number_of()?), reason: reader.text()? },
            32 => Self::Answer { call: CallId(reader.number_of()?), outcome: CallOutcomeRef::read(reader)? },
            _ => return Err(Unreadable::Wrong),
        })
    }
}

fn put_visitor(visitor: &Visitor<'_>, out: &mut Vec<u8>) {
    put_bytes(visitor.user.as_bytes(), out);
    put_bytes(visitor.client.as_bytes(), out);
    put_bytes(visitor.info, out);
    out.push(visitor.is_spectator.into());
}

fn read_visitor<'a>(reader: &mut Reader<'a>) -> Result<Visitor<'a>, Unreadable> {
    let (user, client, info) = (reader.text()?, reader.text()?, reader.bytes()?);
    let is_spectator = match reader.byte()? {
        0 => false,
        1 => true,
        _ => return Err(Unreadable::Wrong),
    };
    Ok(Visitor { user, client, info, is_spectator })
}

fn read_encoding(reader: &mut Reader<'_>) -> Result<Encoding, Unreadable> {
    Encoding::ALL.get(usize::from(reader.byte()?)).copied().ok_or(Unreadable::Wrong)
}

/// For people: what happened to the room.
impl fmt::Display for Record<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Leave { player } => write!(f, "player {} leaves", player.0),
            Self::Listing { change } => write!(f, "the backend changes the listing: {}", Hex(change)),
            Self::Kick { player, reason } => write!(f, "the backend removes player {}: {reason:?}", player.0),
            Self::Message { data } => write!(f, "the backend sends the message {}", Hex(data)),
            Self::Answer { call, outcome: CallOutcomeRef::Data(data) } => {
                write!(f, "the backend answers call {}: {}", call.0, Hex(data))
            }
            Self::Answer { call, outcome } => write!(f, "call {} has no answer: {outcome:?}", call.0),
            Self::Input { player, number, data } => {
                write!(f, "player {} sends input {number}: {}", player.0, Hex(data))
            }
            Self::Away { player } => write!(f, "the client of player {} is gone", player.0),
            Self::Back { player, visitor, .. } => {
                write!(f, "a client of user {:?} comes back to player {}", visitor.user, player.0)
            }
            Self::Join { visitor, data, .. } => {
                let role = if visitor.is_spectator { "spectator" } else { "player" };
                write!(f, "user {:?} joins as a {role} with data {}", visitor.user, Hex(data))
            }
            Self::Tick { state_hash } => write!(f, "tick with state hash {state_hash:016x}"),
        }
    }
}

/// Bytes as hexadecimal digits.
struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
