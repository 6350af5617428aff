//! The Protobuf encoding of `schema/room.proto`, field by field.

use std::borrow::Cow;

use dunlin_protocol::protobuf::wire::{ProtobufSink, Reader, Value, write_bytes, write_flag, write_number};

use super::{BodyHead, Input, SegmentHead};
use crate::{ObjectId, ObjectView, Schema};

/// Field numbers of `Snapshot`.
pub(crate) mod snapshot {
    pub(crate) const ACK: u32 = 1;
    pub(crate) const AVATAR: u32 = 2;
    pub(crate) const OWN: u32 = 3;
    pub(crate) const TICK: u32 = 4;
    pub(crate) const BASE: u32 = 5;
    pub(crate) const TIME_US: u32 = 6;
    pub(crate) const GRID: u32 = 7;
    pub(crate) const VIEW: u32 = 8;
    pub(crate) const CELLS: u32 = 9;
    pub(crate) const SCHEMA: u32 = 10;
    pub(crate) const RATE: u32 = 11;
    pub(crate) const WAITED: u32 = 12;
    pub(crate) const MOVED: u32 = 13;
}

/// Field numbers of `CellUpdate`.
pub(crate) mod cell_update {
    pub(crate) const CELL: u32 = 1;
    pub(crate) const FULL: u32 = 2;
    pub(crate) const DEPARTED: u32 = 3;
    pub(crate) const UPSERTS: u32 = 4;
    pub(crate) const CHANGES: u32 = 5;
}

pub(super) use cell_update::UPSERTS;
/// `Own.objects`.
const OWN_OBJECTS: u32 = 1;

const VARINT: u32 = 0;
const FIXED_64: u32 = 1;
const LENGTH_PREFIXED: u32 = 2;
const FIXED_32: u32 = 5;

pub(super) fn write_player_header(ack: u32, avatar: u32, own: Option<&[u8]>, out: &mut Vec<u8>) {
    write_tag(snapshot::ACK, FIXED_32, out);
    out.extend_from_slice(&ack.to_le_bytes());
    write_tag(snapshot::AVATAR, FIXED_32, out);
    out.extend_from_slice(&avatar.to_le_bytes());
    if let Some(own) = own {
        write_tag(snapshot::OWN, LENGTH_PREFIXED, out);
        out.varint(own.len() as u64);
        out.extend_from_slice(own);
    }
}

pub(super) fn write_own<'a>(objects: impl Iterator<Item = ObjectView<'a>>, out: &mut Vec<u8>) {
    for object in objects {
        write_object(OWN_OBJECTS, &object, out);
    }
}

/// Appends `object` as the field `field` of the enclosing message.
pub(super) fn write_object(field: u32, object: &ObjectView<'_>, out: &mut Vec<u8>) {
    let ObjectView { id, kind, x, y, state } = *object;
    // Everything before the state at once: this runs for each object of each tick.
    let mut head = ObjectHead::default();
    for (tag, number) in (1..).zip([id.0, kind.into(), x, y]).map(|(field, number)| (field << 3 | VARINT, number)) {
        if number != 0 {
            head.byte(tag as u8);
            head.varint(number);
        }
    }
    if !state.is_empty() {
        head.byte((5 << 3 | LENGTH_PREFIXED) as u8);
        head.varint(state.len() as u32);
    }
    out.extend_from_slice(head.finish((field << 3 | LENGTH_PREFIXED) as u8, state.len()));
    out.extend_from_slice(state);
}

/// Bytes for the tag and the length of an object, and for all of it except the bytes of its state.
const OBJECT_PREFIX_BYTES: usize = 6;
const OBJECT_HEAD_BYTES: usize = OBJECT_PREFIX_BYTES + 4 * 6 + 6;

/// The encoding of an object up to its state. The prefix is written last, directly before the fields.
struct ObjectHead {
    bytes: [u8; OBJECT_HEAD_BYTES],
    end: usize,
}

impl Default for ObjectHead {
    fn default() -> Self {
        Self { bytes: [0; OBJECT_HEAD_BYTES], end: OBJECT_PREFIX_BYTES }
    }
}

impl ObjectHead {
    #[inline]
    fn byte(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.end) {
            *place = byte;
            self.end += 1;
        }
    }

    #[inline]
    fn varint(&mut self, mut number: u32) {
        while number >= 0x80 {
            self.byte(number as u8 | 0x80);
            number >>= 7;
        }
        self.byte(number as u8);
    }

    #[inline]
    fn finish(&mut self, tag: u8, state_bytes: usize) -> &[u8] {
        let end = self.end;
        let length = (end - OBJECT_PREFIX_BYTES + state_bytes) as u32;
        let start = OBJECT_PREFIX_BYTES - 1 - varint_bytes(length.into());
        self.end = start;
        self.byte(tag);
        self.varint(length);
        self.bytes.get(start..end).unwrap_or_default()
    }
}

pub(super) fn write_segment(head: &SegmentHead<'_>, upserts: &[u8], out: &mut Vec<u8>) -> usize {
    let departed: usize = head.departed.iter().map(|id| varint_bytes((*id).into())).sum();
    let departed_field = if departed == 0 { 0 } else { 1 + varint_bytes(departed as u64) + departed };
    let flag = if head.is_full { 2 } else { 0 };
    let changes = head.changes;
    let changes_field = if changes.is_empty() { 0 } else { 1 + varint_bytes(changes.len() as u64) + changes.len() };
    write_tag(snapshot::CELLS, LENGTH_PREFIXED, out);
    let bytes = number_bytes(head.cell.0) + flag + departed_field + changes_field + upserts.len();
    out.varint(bytes as u64);
    write_number(out, cell_update::CELL, head.cell.0.into());
    write_flag(out, cell_update::FULL, head.is_full);
    if departed > 0 {
        write_tag(cell_update::DEPARTED, LENGTH_PREFIXED, out);
        out.varint(departed as u64);
        for id in head.departed {
            out.varint((*id).into());
        }
    }
    write_bytes(out, cell_update::CHANGES, changes);
    let start = out.len();
    out.extend_from_slice(upserts);
    start
}

pub(super) fn write_schema(schema: &Schema, out: &mut Vec<u8>) {
    write_bytes(out, snapshot::SCHEMA, schema.document().as_bytes());
}

pub(super) fn write_moved(out: &mut Vec<u8>) {
    write_flag(out, snapshot::MOVED, true);
}

/// Reads what [`write_object`] appended.
pub(crate) fn read_object(bytes: &[u8]) -> Option<ObjectView<'_>> {
    let (_, message) = Reader::new(bytes).field().ok()??;
    let mut reader = Reader::new(message.bytes().ok()?);
    let mut object = ObjectView { id: ObjectId(0), kind: 0, x: 0, y: 0, state: &[] };
    while let Some((field, value)) = reader.field().ok()? {
        match field {
            1 => object.id = ObjectId(number(value)?),
            2 => object.kind = number(value)?.try_into().ok()?,
            3 => object.x = number(value)?,
            4 => object.y = number(value)?,
            5 => object.state = value.bytes().ok()?,
            _ => {}
        }
    }
    Some(object)
}

pub(super) fn write_body_head(head: &BodyHead<'_>, out: &mut Vec<u8>) {
    write_number(out, snapshot::TICK, head.tick.into());
    write_number(out, snapshot::BASE, head.base.into());
    write_tag(snapshot::TIME_US, FIXED_64, out);
    out.extend_from_slice(&head.time_us.to_le_bytes());
    if let Some((shape, ticks_per_second)) = head.grid {
        let numbers = [
            shape.columns.into(),
            shape.rows.into(),
            shape.cell_units,
            shape.near_cells.into(),
            shape.far_cells.into(),
            shape.far_interval_ticks.into(),
            ticks_per_second,
        ];
        write_tag(snapshot::GRID, LENGTH_PREFIXED, out);
        out.varint(numbers.into_iter().map(number_bytes).sum::<usize>() as u64);
        for (field, number) in (1..).zip(numbers) {
            write_number(out, field, number.into());
        }
    }
    write_tag(snapshot::VIEW, VARINT, out);
    out.varint(head.view.0.into());
    for number in head.numbers() {
        if let Some(value) = number.value {
            write_number(out, number.field, value.into());
        }
    }
}

pub(super) fn write_input(input: &Input<'_>, out: &mut Vec<u8>) {
    write_number(out, 1, input.number.into());
    write_bytes(out, 2, &input.data);
    write_bytes(out, 3, input.room.as_bytes());
}

pub(super) fn read_input(bytes: &[u8]) -> Option<Input<'_>> {
    let mut input = Input { number: 0, room: Cow::Borrowed(""), data: Cow::Borrowed(&[]) };
    let mut reader = Reader::new(bytes);
    while let Some((field, value)) = reader.field().ok()? {
        match field {
            1 => input.number = number(value)?,
            2 => input.data = Cow::Borrowed(value.bytes().ok()?),
            3 => input.room = Cow::Borrowed(value.text().ok()?),
            _ => {}
        }
    }
    Some(input)
}

/// A `uint32`; `None` if it is too large.
pub(crate) fn number(value: Value<'_>) -> Option<u32> {
    value.varint().ok().and_then(|number| u32::try_from(number).ok())
}

/// All field numbers here are below 16, so a tag is one byte.
fn write_tag(field: u32, wire_type: u32, out: &mut Vec<u8>) {
    out.push((field << 3 | wire_type) as u8);
}

/// Bytes of a field with `number`, including the tag.
fn number_bytes(number: u32) -> usize {
    if number == 0 { 0 } else { 1 + varint_bytes(number.into()) }
}

fn varint_bytes(number: u64) -> usize {
    (number | 1).ilog2() as usize / 7 + 1
}
