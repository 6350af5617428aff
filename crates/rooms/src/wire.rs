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

/// Bytes of a player's header at the most, without the objects that it alone is sent.
pub const HEADER_BYTES_MAX: usize = 48;

/// Appends the header that stands in front of a [`crate::SnapshotBody`]: `own` is [`crate::PlayerChange::own`], if it is news to
/// the client. The header's length depends on `own` alone.
pub fn write_player_header(encoding: Encoding, ack: u32, avatar: u32, own: Option<&[u8]>, out: &mut Vec<u8>) {
    match encoding {
        Encoding::Json => json::write_player_header(ack, avatar, own, out),
        Encoding::Protobuf => protobuf::write_player_header(ack, avatar, own, out),
    }
}

/// Appends what [`crate::PlayerChange::own`] holds, from the objects that a player alone is sent; their `x` and `y` are
/// from the map's corner.
pub fn encode_own<'a>(encoding: Encoding, objects: impl Iterator<Item = ObjectView<'a>>, out: &mut Vec<u8>) {
    match encoding {
        Encoding::Json => json::write_own(objects, out),
        Encoding::Protobuf => protobuf::write_own(objects, out),
    }
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

/// Reads an input. Unknown fields are skipped; everything else has to be of the format.
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

/// Appends an input as a client sends it.
pub fn encode_input(encoding: Encoding, input: &Input<'_>, out: &mut Vec<u8>) {
    match encoding {
        Encoding::Json => json::write_input(input, out),
        Encoding::Protobuf => protobuf::write_input(input, out),
    }
}

/// What stands in a body in front of its cells.
pub(crate) struct BodyHead<'a> {
    pub(crate) tick: u32,
    /// 0 for none.
    pub(crate) base: u32,
    pub(crate) time_us: u64,
    /// The map, and the ticks in a second.
    pub(crate) grid: Option<(&'a GridShape, u32)>,
    pub(crate) view: CellIndex,
}

/// Begins a body.
pub(crate) fn write_body_head(encoding: Encoding, head: &BodyHead<'_>, out: &mut Vec<u8>) {
    match encoding {
        Encoding::Json => json::write_body_head(head, out),
        Encoding::Protobuf => protobuf::write_body_head(head, out),
    }
}

/// Ends a body behind its segments.
pub(crate) fn write_body_end(encoding: Encoding, out: &mut Vec<u8>) {
    if encoding == Encoding::Json {
        json::write_body_end(out);
    }
}

/// Appends an object of a cell to those of its segment, which are all of `out`. Its bytes are the last ones; in front of
/// them may be what parts it from the object before.
///
/// Returns how many bytes are the object's own.
pub(crate) fn write_upsert(encoding: Encoding, object: &ObjectView<'_>, out: &mut Vec<u8>) -> usize {
    part_upserts(encoding, out);
    let start = out.len();
    match encoding {
        Encoding::Json => json::write_object(object, out),
        Encoding::Protobuf => protobuf::write_object(protobuf::UPSERTS, object, out),
    }
    out.len() - start
}

/// Appends what parts an object from those before it, which are all of `out`.
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
