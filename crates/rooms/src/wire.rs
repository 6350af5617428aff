//! What rooms and their clients say to each other inside `data`, as `schema/room.proto` and `docs/rooms-protocol.md` say.

use std::borrow::Cow;

use dunlin_protocol::Encoding;

use crate::{ObjectId, ObjectView, Position};

/// Bytes of a player's header at the most, without the objects that it alone is sent.
pub const HEADER_BYTES_MAX: usize = 48;

/// Appends the header that stands in front of a [`crate::Body`]: `own` is [`crate::PlayerChange::own`], if it is news to
/// the client. The header's length depends on `own` alone.
pub fn write_player_header(encoding: Encoding, ack: u32, avatar: u32, own: Option<&[u8]>, out: &mut Vec<u8>) {
    let _ = (encoding, ack, avatar, own, out);
    todo!()
}

/// Appends what [`crate::PlayerChange::own`] holds, from the objects that a player alone is sent; their `x` and `y` are
/// from the map's corner.
pub fn encode_own<'a>(encoding: Encoding, objects: impl Iterator<Item = ObjectView<'a>>, out: &mut Vec<u8>) {
    let _ = (encoding, objects.count(), out);
    todo!()
}

/// An input, as a client sends it: the `data` of `publish`, or of `send`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input<'a> {
    /// Counts the inputs of one subscription, from 1.
    pub number: u32,
    /// For `send`, which names no channel: the room. Empty for the session's only one.
    pub room: Cow<'a, str>,
    /// For the game.
    pub data: Cow<'a, [u8]>,
}

/// What came is no input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoInput;

/// Reads an input.
///
/// # Errors
/// [`NoInput`]
pub fn decode_input(encoding: Encoding, bytes: &[u8]) -> Result<Input<'_>, NoInput> {
    let _ = (encoding, bytes);
    todo!()
}

/// Appends an input as a client sends it.
pub fn encode_input(encoding: Encoding, input: &Input<'_>, out: &mut Vec<u8>) {
    let _ = (encoding, input, out);
    todo!()
}

/// A hash of what a client is told about an object: the same in the world and in a replica of it.
pub fn object_hash(id: ObjectId, kind: u16, position: Position, state: &[u8]) -> u64 {
    let _ = (id, kind, position, state);
    todo!()
}
