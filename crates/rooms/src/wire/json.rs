//! The JSON encoding of `schema/room.proto`: the same names; bytes as base64.

use std::borrow::Cow;

use base64::{Engine, prelude::BASE64_STANDARD};
use dunlin_protocol::Decimal;
use serde::Deserialize;

use super::{BodyHead, Input, SegmentHead};
use crate::{
    ObjectView, Schema,
    schema::{FieldReader, FieldType, RawValue, low_bits, read_integer},
};

/// Digits of `u32::MAX`.
const DIGITS_MAX: usize = 10;

pub(super) fn write_player_header(ack: u32, avatar: u32, own: Option<&[u8]>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"ack\":");
    write_wide(ack, out);
    out.extend_from_slice(b",\"avatar\":");
    write_wide(avatar, out);
    if let Some(own) = own {
        out.extend_from_slice(b",\"own\":");
        out.extend_from_slice(own);
    }
    out.push(b',');
}

/// Writes a number padded with spaces to a constant length.
fn write_wide(number: u32, out: &mut Vec<u8>) {
    let end = out.len() + DIGITS_MAX;
    write_number(number.into(), out);
    out.resize(end, b' ');
}

pub(super) fn write_own<'a>(schema: Option<&Schema>, objects: impl Iterator<Item = ObjectView<'a>>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"objects\":[");
    for (index, object) in objects.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_object(schema, &object, out);
    }
    out.extend_from_slice(b"]}");
}

/// Appends an object; with a schema, its fields instead of its state, if it has the form of its kind.
pub(super) fn write_object(schema: Option<&Schema>, object: &ObjectView<'_>, out: &mut Vec<u8>) {
    let ObjectView { id, kind, x, y, state } = *object;
    out.extend_from_slice(b"{\"id\":");
    write_number(id.0.into(), out);
    write_field(",\"kind\":", kind.into(), out);
    write_field(",\"x\":", x.into(), out);
    write_field(",\"y\":", y.into(), out);
    let fields_start = out.len();
    if schema.is_none_or(|schema| write_fields(schema, object, out).is_none()) {
        out.truncate(fields_start);
        if !state.is_empty() {
            out.extend_from_slice(b",\"state\":");
            write_base64(state, out);
        }
    }
    out.push(b'}');
}

/// Appends the fields of an object. `None` if the state does not have the form of its kind; then something may have been
/// appended.
fn write_fields(schema: &Schema, object: &ObjectView<'_>, out: &mut Vec<u8>) -> Option<()> {
    let kind = schema.kind(object.kind)?;
    out.extend_from_slice(b",\"fields\":{");
    let mut state = FieldReader::new(kind.fields.len(), object.state);
    for (place, field) in kind.fields.iter().enumerate() {
        let value = state.next(field)?;
        if place > 0 {
            out.push(b',');
        }
        write_text(&field.name, out);
        out.push(b':');
        match (value, &field.of) {
            (RawValue::Number(number), FieldType::Flag) => {
                out.extend_from_slice(if number == 1 { b"true" } else { b"false" });
            }
            (RawValue::Number(index), FieldType::Choice(names)) => {
                write_text(names.get(low_bits(index) as usize)?, out);
            }
            (RawValue::Number(number), _) => write_signed(number, out),
            (RawValue::Bytes(elements), FieldType::List { of, .. }) => {
                out.push(b'[');
                for (place, element) in elements.chunks_exact(of.bytes.into()).enumerate() {
                    if place > 0 {
                        out.push(b',');
                    }
                    write_signed(read_integer(element, *of), out);
                }
                out.push(b']');
            }
            (RawValue::Bytes(text), _) => write_text(std::str::from_utf8(text).ok()?, out),
        }
    }
    out.push(b'}');
    state.is_finished().then_some(())
}

fn write_signed(number: i64, out: &mut Vec<u8>) {
    if number < 0 {
        out.push(b'-');
    }
    write_number(number.unsigned_abs(), out);
}

pub(super) fn write_schema(schema: &Schema, out: &mut Vec<u8>) {
    out.extend_from_slice(b"\"schema\":");
    out.extend_from_slice(schema.document().as_bytes());
    out.push(b',');
}

pub(super) fn write_moved(out: &mut Vec<u8>) {
    out.extend_from_slice(b"\"moved\":true,");
}

pub(super) fn write_segment(head: &SegmentHead<'_>, upserts: &[u8], out: &mut Vec<u8>) -> usize {
    out.extend_from_slice(b"{\"cell\":");
    write_number(head.cell.0.into(), out);
    if head.is_full {
        out.extend_from_slice(b",\"full\":true");
    }
    if !head.departed.is_empty() {
        out.extend_from_slice(b",\"departed\":[");
        for (index, id) in head.departed.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            write_number((*id).into(), out);
        }
        out.push(b']');
    }
    if !upserts.is_empty() {
        out.extend_from_slice(b",\"upserts\":[");
    }
    let start = out.len();
    if !upserts.is_empty() {
        out.extend_from_slice(upserts);
        out.push(b']');
    }
    out.extend_from_slice(b"},");
    start
}

pub(super) fn write_body_head(head: &BodyHead<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"\"tick\":");
    write_number(head.tick.into(), out);
    write_field(",\"base\":", head.base.into(), out);
    out.extend_from_slice(b",\"time_us\":");
    write_number(head.time_us, out);
    if let Some((shape, ticks_per_second)) = head.grid {
        out.extend_from_slice(b",\"grid\":{\"columns\":");
        write_number(shape.columns.into(), out);
        write_field(",\"rows\":", shape.rows.into(), out);
        write_field(",\"cell_units\":", shape.cell_units.into(), out);
        write_field(",\"near_cells\":", shape.near_cells.into(), out);
        write_field(",\"far_cells\":", shape.far_cells.into(), out);
        write_field(",\"far_interval_ticks\":", shape.far_interval_ticks.into(), out);
        write_field(",\"ticks_per_second\":", ticks_per_second.into(), out);
        out.push(b'}');
    }
    out.extend_from_slice(b",\"view\":");
    write_number(head.view.0.into(), out);
    for number in head.numbers() {
        if let Some(value) = number.value {
            out.extend_from_slice(number.json.as_bytes());
            write_number(value.into(), out);
        }
    }
    out.extend_from_slice(b",\"cells\":[");
}

pub(super) fn write_body_end(out: &mut Vec<u8>) {
    if out.last() == Some(&b',') {
        out.pop();
    }
    out.extend_from_slice(b"]}");
}

pub(super) fn write_input(input: &Input<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"number\":");
    write_number(input.number.into(), out);
    if !input.data.is_empty() {
        out.extend_from_slice(b",\"data\":");
        write_base64(&input.data, out);
    }
    if !input.room.is_empty() {
        out.extend_from_slice(b",\"room\":");
        write_text(&input.room, out);
    }
    out.push(b'}');
}

/// Fields that a client may omit are options, so that `null` is accepted as well.
#[derive(Deserialize)]
struct InputFields<'a> {
    number: Option<u32>,
    #[serde(borrow)]
    data: Option<Text<'a>>,
    #[serde(borrow)]
    room: Option<Text<'a>>,
}

/// A string, borrowed if it has no escapes.
#[derive(Deserialize)]
#[serde(transparent)]
pub(crate) struct Text<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

pub(super) fn read_input(bytes: &[u8]) -> Option<Input<'_>> {
    let fields: InputFields<'_> = read_object(bytes)?;
    Some(Input {
        number: fields.number.unwrap_or_default(),
        room: fields.room.map_or(Cow::Borrowed(""), |text| text.0),
        data: match fields.data {
            Some(text) => Cow::Owned(BASE64_STANDARD.decode(text.0.as_bytes()).ok()?),
            None => Cow::Borrowed(&[]),
        },
    })
}

/// Parses exactly one JSON object. (From a list, Serde would take the fields in order.)
pub(crate) fn read_object<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<T> {
    let first = bytes.iter().find(|byte| !matches!(byte, b' ' | b'\t' | b'\n' | b'\r'));
    if first != Some(&b'{') {
        return None;
    }
    serde_json::from_slice(bytes).ok()
}

/// Writes the field `name`, which includes quotes and separators, unless `number` is 0.
fn write_field(name: &str, number: u64, out: &mut Vec<u8>) {
    if number != 0 {
        out.extend_from_slice(name.as_bytes());
        write_number(number, out);
    }
}

fn write_number(number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(Decimal::new(number).as_bytes());
}

fn write_base64(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    let start = out.len();
    out.resize(start + bytes.len().div_ceil(3) * 4, 0);
    // The encoded length equals the reserved length.
    let written = BASE64_STANDARD.encode_slice(bytes, &mut out[start..]).unwrap_or_default();
    out.truncate(start + written);
    out.push(b'"');
}

/// Writes a string with the escapes that RFC 8259 requires.
fn write_text(text: &str, out: &mut Vec<u8>) {
    // A vector takes all that is written.
    let _ = serde_json::to_writer(out, text);
}
