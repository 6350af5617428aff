//! The steps of a room between two ticks.

use std::fmt;

use dunlin_protocol::Encoding;

use super::{
    call_outcome::CallOutcomeRef,
    role::{put_role, read_role},
};
use crate::{
    CallId, ListingChange, PlayerId, Visitor,
    binary::{Reader, Unreadable, put_bytes, put_number},
};

/// A step of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedStep<'a> {
    /// A client asks to join.
    Join {
        /// The client.
        visitor: Visitor<'a>,
        /// The encoding of its frames.
        encoding: Encoding,
        /// Bytes for the game.
        data: &'a [u8],
    },
    /// A player or a spectator leaves.
    Leave {
        /// The player or spectator.
        player: PlayerId,
    },
    /// A player has lost its connection.
    Away {
        /// The player.
        player: PlayerId,
    },
    /// A client comes back to its player.
    Back {
        /// The player.
        player: PlayerId,
        /// The client.
        visitor: Visitor<'a>,
        /// The encoding of its frames.
        encoding: Encoding,
    },
    /// An input.
    Input {
        /// The player.
        player: PlayerId,
        /// The client's number of the input.
        number: u32,
        /// Bytes for the game.
        data: &'a [u8],
    },
    /// A message of the backend.
    Message {
        /// Bytes for the game.
        data: &'a [u8],
    },
    /// The backend changes how the room is listed.
    Listing {
        /// The change, as [`ListingChange::write`] writes it.
        change: &'a [u8],
    },
    /// The backend removes a player.
    Kick {
        /// The player.
        player: PlayerId,
        /// The reason for its client.
        reason: &'a str,
    },
    /// The backend's answer to a call of the game.
    Answer {
        /// The call.
        call: CallId,
        /// The answer, or the error.
        outcome: CallOutcomeRef<'a>,
    },
}

impl<'a> RecordedStep<'a> {
    pub(super) fn write(self, out: &mut Vec<u8>) {
        match self {
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

    pub(super) fn read(kind: u8, reader: &mut Reader<'a>) -> Result<Self, Unreadable> {
        Ok(match kind {
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
    put_role(visitor.is_spectator, visitor.address, out);
}

fn read_visitor<'a>(reader: &mut Reader<'a>) -> Result<Visitor<'a>, Unreadable> {
    let (user, client, info) = (reader.text()?, reader.text()?, reader.bytes()?);
    let (is_spectator, address) = read_role(|count| reader.take(count))?.ok_or(Unreadable::Wrong)?;
    Ok(Visitor { user, client, info, is_spectator, address })
}

fn read_encoding(reader: &mut Reader<'_>) -> Result<Encoding, Unreadable> {
    Encoding::ALL.get(usize::from(reader.byte()?)).copied().ok_or(Unreadable::Wrong)
}

/// A description for humans.
impl fmt::Display for RecordedStep<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Leave { player } => write!(f, "player {} leaves", player.0),
            Self::Listing { change } => match ListingChange::read(change) {
                Some(change) => write!(f, "the backend changes the listing: {change}"),
                None => write!(f, "the backend changes the listing: {}", Hex(change)),
            },
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
                write!(f, "user {:?} joins as a {role}", visitor.user)?;
                if let Some(address) = visitor.address {
                    write!(f, " from {address}")?;
                }
                write!(f, " with data {}", Hex(data))
            }
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
