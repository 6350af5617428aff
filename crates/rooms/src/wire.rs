//! Encoding of the messages between rooms and clients inside `data`, as defined in `schema/room.proto` and
//! `docs/rooms-protocol.md`.

mod hash;
mod json;
mod protobuf;

use std::borrow::Cow;

use dunlin_protocol::Encoding;

use crate::{CellIndex, GridShape, ObjectView};

pub use hash::object_hash;
pub(crate) use json::{Text, read_object};
pub(crate) use protobuf::{number, snapshot};

/// Maximum bytes of a player's header, without the player's own objects.
pub const HEADER_BYTES_MAX: usize = 48;

/// Appends the header before a [`crate::SnapshotBody`]. `own` is [`crate::PlayerChange::own`], if the client does not
/// have it yet. The header's length depends only on `own`.
pub fn write_player_header(encoding: Encoding, ack: u32, avatar: u32, own: Option<&[u8]>, out: &mut Vec<u8>) {
    match encoding {
        Encoding::Json => json::write_player_header(ack, avatar, own, out),
        Encoding::Protobuf => protobuf::write_player_header(ack, avatar, own, out),
    }
}

/// Appends the value of [`crate::PlayerChange::own`] for a player's own objects, whose `x` and `y` are relative to the
/// map's corner.
pub fn encode_own<'a>(encoding: Encoding, objects: impl Iterator<Item = ObjectView<'a>>, out: &mut Vec<u8>) {
    match encoding {
        Encoding::Json => json::write_own(objects, out),
        Encoding::Protobuf => protobuf::write_own(objects, out),
    }
}

/// An input of a client: the `data` of `publish` or `send`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input<'a> {
    /// Counts the inputs of one subscription, from 1.
    pub number: u32,
    /// For `send`, which names no channel: the room. Empty for the session's only room.
    pub room: Cow<'a, str>,
    /// Bytes for the game.
    pub data: Cow<'a, [u8]>,
}

/// The bytes are not an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoInput;

/// Decodes an input. Unknown fields are skipped; everything else must have the defined format.
///
/// # Errors
/// [`NoInput`]
pub fn decode_input(encoding: Encoding, bytes: &[u8]) -> Result<Input<'_>, NoInput> {
    let input = match encoding {
        Encoding::Json => json::read_input(bytes),
        Encoding::Protobuf => protobuf::read_input(bytes),
    };
    input.filter(|input| input.number != 0).ok_or(NoInput)
}

/// Appends an input in the form that clients send.
pub fn encode_input(encoding: Encoding, input: &Input<'_>, out: &mut Vec<u8>) {
    match encoding {
        Encoding::Json => json::write_input(input, out),
        Encoding::Protobuf => protobuf::write_input(input, out),
    }
}

/// The part of a body before its cells.
pub(crate) struct BodyHead<'a> {
    pub(crate) tick: u32,
    /// 0 for none.
    pub(crate) base: u32,
    pub(crate) time_us: u64,
    /// The map, and the ticks per second.
    pub(crate) grid: Option<(&'a GridShape, u32)>,
    pub(crate) view: CellIndex,
}

/// Starts a body.
pub(crate) fn write_body_head(encoding: Encoding, head: &BodyHead<'_>, out: &mut Vec<u8>) {
    match encoding {
        Encoding::Json => json::write_body_head(head, out),
        Encoding::Protobuf => protobuf::write_body_head(head, out),
    }
}

/// Ends a body after its segments.
pub(crate) fn write_body_end(encoding: Encoding, out: &mut Vec<u8>) {
    if encoding == Encoding::Json {
        json::write_body_end(out);
    }
}

/// Appends an object to the objects of a segment, which are all of `out`. A separator may precede the object's bytes.
///
/// Returns the number of bytes of the object itself.
pub(crate) fn write_upsert(encoding: Encoding, object: &ObjectView<'_>, out: &mut Vec<u8>) -> usize {
    part_upserts(encoding, out);
    let start = out.len();
    match encoding {
        Encoding::Json => json::write_object(object, out),
        Encoding::Protobuf => protobuf::write_object(protobuf::UPSERTS, object, out),
    }
    out.len() - start
}

/// Appends the separator between an object and the previous ones, which are all of `out`.
pub(crate) fn part_upserts(encoding: Encoding, out: &mut Vec<u8>) {
    if encoding == Encoding::Json && !out.is_empty() {
        out.push(b',');
    }
}

/// The fields of a cell's segment, except its objects.
pub(crate) struct SegmentHead<'a> {
    pub(crate) cell: CellIndex,
    pub(crate) is_full: bool,
    pub(crate) departed: &'a [u32],
}

/// Appends a segment; `upserts` contains its encoded objects with separators. Segments are concatenated. In JSON each
/// ends with a comma, and [`write_body_end`] removes the last one.
///
/// Returns the index in `out` where the objects begin.
pub(crate) fn write_segment(encoding: Encoding, head: &SegmentHead<'_>, upserts: &[u8], out: &mut Vec<u8>) -> usize {
    match encoding {
        Encoding::Json => json::write_segment(head, upserts, out),
        Encoding::Protobuf => protobuf::write_segment(head, upserts, out),
    }
}

#[cfg(test)]
mod tests;
