//! Encoding of the messages between rooms and clients inside `data`, as defined in `schema/room.proto` and
//! `docs/rooms-protocol.md`.

mod changes;
mod hash;
mod json;
mod protobuf;

use std::borrow::Cow;

use dunlin_protocol::Encoding;

use crate::{CellIndex, ClockRate, GridShape, ObjectView, Schema, SnapshotFormat, ZONES, grid::HISTORY_TICKS};

pub use changes::ObjectBefore;
pub(crate) use changes::{ChangeList, ChangeReader, Changes, KnownObject, WHOLE, are_changes_of, position_bits};
pub use hash::object_hash;
pub(crate) use json::{Text, read_object as read_json_object};
pub(crate) use protobuf::{cell_update, number, read_object, snapshot};

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
pub fn encode_own<'a>(
    format: impl Into<SnapshotFormat>,
    schema: &Schema,
    objects: impl Iterator<Item = ObjectView<'a>>,
    out: &mut Vec<u8>,
) {
    match format.into() {
        SnapshotFormat::Json => json::write_own(None, objects, out),
        SnapshotFormat::TypedJson => json::write_own(Some(schema), objects, out),
        SnapshotFormat::Protobuf | SnapshotFormat::TypedProtobuf => protobuf::write_own(objects, out),
    }
}

/// Appends the schema, after the header, for a client that does not have it yet. A game without kinds has none.
pub fn write_schema(encoding: Encoding, schema: &Schema, out: &mut Vec<u8>) {
    match encoding {
        _ if schema.is_empty() => {}
        Encoding::Json => json::write_schema(schema, out),
        Encoding::Protobuf => protobuf::write_schema(schema, out),
    }
}

/// Appends, after the header, that the room has moved to another node since the client's last snapshot.
pub fn write_moved(encoding: Encoding, out: &mut Vec<u8>) {
    match encoding {
        Encoding::Json => json::write_moved(out),
        Encoding::Protobuf => protobuf::write_moved(out),
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
    pub(crate) rate: ClockRate,
    /// See [`zone_waits`].
    pub(crate) waited: u32,
}

/// Bits of a zone's wait.
const ZONE_WAIT_BITS: usize = 4;
const ZONE_WAIT_TICKS_MAX: u32 = (1 << ZONE_WAIT_BITS) - 1;
/// The history of a tick ends before a zone has waited for longer.
const _: () = assert!(HISTORY_TICKS <= 1 << ZONE_WAIT_BITS);

/// The waits of all zones as one number, the nearest zone in the lowest bits.
pub(crate) fn zone_waits(ticks: [u32; ZONES]) -> u32 {
    let wait = |(zone, ticks): (usize, u32)| ticks.min(ZONE_WAIT_TICKS_MAX) << (zone * ZONE_WAIT_BITS);
    ticks.into_iter().enumerate().map(wait).sum()
}

/// The wait of a zone.
pub(crate) fn zone_wait(waits: u32, zone: usize) -> u32 {
    waits >> (zone * ZONE_WAIT_BITS) & ZONE_WAIT_TICKS_MAX
}

/// A number of a body's head that is left out at its usual value.
struct HeadNumber {
    /// The field number in Protobuf.
    field: u32,
    /// The name in JSON, with its separators.
    json: &'static str,
    value: Option<u32>,
}

impl BodyHead<'_> {
    /// The numbers behind `view`, in both encodings.
    fn numbers(&self) -> [HeadNumber; 2] {
        let rate = (!self.rate.is_full()).then(|| self.rate.permille().into());
        let waited = (self.waited != 0).then_some(self.waited);
        [
            HeadNumber { field: snapshot::RATE, json: ",\"rate\":", value: rate },
            HeadNumber { field: snapshot::WAITED, json: ",\"waited\":", value: waited },
        ]
    }
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
pub(crate) fn write_upsert(
    format: SnapshotFormat,
    schema: &Schema,
    object: &ObjectView<'_>,
    out: &mut Vec<u8>,
) -> usize {
    part_upserts(format, out);
    let start = out.len();
    match format {
        SnapshotFormat::Json => json::write_object(None, object, out),
        SnapshotFormat::TypedJson => json::write_object(Some(schema), object, out),
        SnapshotFormat::Protobuf | SnapshotFormat::TypedProtobuf => {
            protobuf::write_object(protobuf::UPSERTS, object, out);
        }
    }
    out.len() - start
}

/// Appends the separator between an object and the previous ones, which are all of `out`.
pub(crate) fn part_upserts(format: SnapshotFormat, out: &mut Vec<u8>) {
    if format.encoding() == Encoding::Json && !out.is_empty() {
        out.push(b',');
    }
}

/// The fields of a cell's segment, except its objects.
pub(crate) struct SegmentHead<'a> {
    pub(crate) cell: CellIndex,
    pub(crate) is_full: bool,
    pub(crate) departed: &'a [u32],
    /// The bits of a [`ChangeList`].
    pub(crate) changes: &'a [u8],
}

impl SegmentHead<'_> {
    /// Whether a segment without objects says nothing.
    pub(crate) fn is_nothing(&self) -> bool {
        !self.is_full && self.departed.is_empty() && self.changes.is_empty()
    }
}

/// Appends a segment; `upserts` contains its encoded objects with separators. Segments are concatenated. In JSON each
/// ends with a comma, and [`write_body_end`] removes the last one.
///
/// Returns the index in `out` where the objects begin.
pub(crate) fn write_segment(
    format: SnapshotFormat,
    head: &SegmentHead<'_>,
    upserts: &[u8],
    out: &mut Vec<u8>,
) -> usize {
    match format.encoding() {
        Encoding::Json => json::write_segment(head, upserts, out),
        Encoding::Protobuf => protobuf::write_segment(head, upserts, out),
    }
}

#[cfg(test)]
mod tests;
