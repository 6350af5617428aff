//! Decodes snapshots from Protobuf. `None` for invalid input.

use std::ops::Range;

use dunlin_protocol::protobuf::wire::{Reader, Value};

use super::staged::{GridNumbers, Staged, StagedObject};
use crate::{
    ClockRate, Schema,
    wire::{cell_update, number, snapshot},
};

pub(super) fn read(data: &[u8], staged: &mut Staged) -> Option<()> {
    let mut reader = Reader::new(data);
    let mut grid: Option<GridNumbers> = None;
    while let Some((field, value)) = reader.field().ok()? {
        match field {
            snapshot::ACK => staged.ack = fixed_32(value)?,
            snapshot::AVATAR => staged.avatar = fixed_32(value)?,
            snapshot::OWN => read_own(data, value.bytes().ok()?, staged)?,
            snapshot::TICK => staged.tick = number(value)?,
            snapshot::BASE => staged.base = number(value)?,
            snapshot::TIME_US => staged.time_us = fixed_64(value)?,
            snapshot::GRID => read_grid(value.bytes().ok()?, grid.get_or_insert_default())?,
            snapshot::VIEW => staged.view = number(value)?,
            snapshot::SCHEMA => staged.schema = Some(Schema::from_document(value.bytes().ok()?).ok()?),
            snapshot::RATE => staged.rate = ClockRate::from_permille(number(value)?)?,
            snapshot::WAITED => staged.waited = number(value)?,
            snapshot::MOVED => staged.moved = value.varint().ok()? != 0,
            snapshot::CELLS => read_cell(data, value.bytes().ok()?, staged)?,
            _ => {}
        }
    }
    grid.map_or(Some(()), |numbers| staged.set_grid(numbers))
}

fn read_grid(message: &[u8], numbers: &mut GridNumbers) -> Option<()> {
    let mut reader = Reader::new(message);
    while let Some((field, value)) = reader.field().ok()? {
        if let Some(place) = numbers.get_mut(field as usize - 1) {
            *place = number(value)?;
        }
    }
    Some(())
}

fn read_own(data: &[u8], message: &[u8], staged: &mut Staged) -> Option<()> {
    staged.has_own = true;
    let mut reader = Reader::new(message);
    while let Some((field, value)) = reader.field().ok()? {
        if field == 1 {
            staged.own.push(read_object(data, value.bytes().ok()?)?);
        }
    }
    Some(())
}

fn read_cell(data: &[u8], message: &[u8], staged: &mut Staged) -> Option<()> {
    let (mut cell, mut is_full, mut changes) = (0, false, 0..0);
    let mut reader = Reader::new(message);
    while let Some((field, value)) = reader.field().ok()? {
        match (field, value) {
            (cell_update::CELL, value) => cell = number(value)?,
            (cell_update::FULL, value) => is_full = value.varint().ok()? != 0,
            (cell_update::DEPARTED, Value::Bytes(packed)) => {
                let mut ids = Reader::new(packed);
                while !ids.rest().is_empty() {
                    staged.departed.push(ids.varint().ok()?.try_into().ok()?);
                }
            }
            (cell_update::DEPARTED, value) => staged.departed.push(number(value)?),
            (cell_update::CHANGES, value) => changes = range_in(data, value.bytes().ok()?)?,
            (cell_update::UPSERTS, value) => {
                let object = read_object(data, value.bytes().ok()?)?;
                staged.upserts.push(object);
            }
            _ => {}
        }
    }
    staged.push_cell(cell, is_full, (changes.start, changes.end));
    Some(())
}

/// Decodes an object; `message` must be a slice of `data`.
fn read_object(data: &[u8], message: &[u8]) -> Option<StagedObject> {
    let mut object = StagedObject::default();
    let mut reader = Reader::new(message);
    while let Some((field, value)) = reader.field().ok()? {
        match field {
            1 => object.id = number(value)?,
            2 => object.kind = number(value)?.try_into().ok()?,
            3 => object.x = number(value)?,
            4 => object.y = number(value)?,
            5 => object.state = range_in(data, value.bytes().ok()?)?,
            _ => {}
        }
    }
    Some(object)
}

/// The range of `part`, a slice of `data`, in `data`.
fn range_in(data: &[u8], part: &[u8]) -> Option<Range<usize>> {
    let start = part.as_ptr().addr().checked_sub(data.as_ptr().addr())?;
    let range = start..start + part.len();
    (range.end <= data.len()).then_some(range)
}

fn fixed_32(value: Value<'_>) -> Option<u32> {
    match value {
        Value::Fixed32(number) => Some(number),
        _ => None,
    }
}

fn fixed_64(value: Value<'_>) -> Option<u64> {
    match value {
        Value::Fixed64(number) => Some(number),
        _ => None,
    }
}
