//! Decodes snapshots from JSON. `None` for invalid input.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::Deserialize;

use super::staged::{Staged, StagedObject};
use crate::{
    ClockRate, Schema,
    schema::{Field, FieldType, FieldWriter, RawValue, write_integer},
    wire::{Text, read_json_object},
};

#[derive(Default, Deserialize)]
#[serde(default)]
struct SnapshotFields<'a> {
    ack: u32,
    avatar: u32,
    #[serde(borrow)]
    own: Option<OwnFields<'a>>,
    tick: u32,
    base: u32,
    time_us: u64,
    #[serde(default = "full_rate")]
    rate: u32,
    waited: u32,
    moved: bool,
    grid: Option<GridFields>,
    #[serde(borrow)]
    schema: Option<&'a serde_json::value::RawValue>,
    view: u32,
    #[serde(borrow)]
    cells: Vec<CellFields<'a>>,
}

fn full_rate() -> u32 {
    ClockRate::FULL.permille().into()
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct OwnFields<'a> {
    #[serde(borrow)]
    objects: Vec<ObjectFields<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct GridFields {
    columns: u32,
    rows: u32,
    cell_units: u32,
    near_cells: u32,
    far_cells: u32,
    far_interval_ticks: u32,
    ticks_per_second: u32,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct CellFields<'a> {
    cell: u32,
    full: bool,
    departed: Vec<u32>,
    #[serde(borrow)]
    upserts: Vec<ObjectFields<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ObjectFields<'a> {
    id: u32,
    kind: u16,
    x: u32,
    y: u32,
    #[serde(borrow)]
    state: Option<Text<'a>>,
    fields: Option<serde_json::Map<String, serde_json::Value>>,
}

pub(super) fn read(data: &[u8], schema: &Schema, staged: &mut Staged) -> Option<()> {
    let fields: SnapshotFields<'_> = read_json_object(data)?;
    if let Some(document) = fields.schema {
        staged.schema = Some(Schema::from_document(document.get().as_bytes()).ok()?);
    }
    let received = staged.schema.take();
    let schema = received.as_ref().unwrap_or(schema);
    staged.ack = fields.ack;
    staged.avatar = fields.avatar;
    staged.tick = fields.tick;
    staged.base = fields.base;
    staged.time_us = fields.time_us;
    staged.view = fields.view;
    staged.rate = ClockRate::from_permille(fields.rate)?;
    staged.waited = fields.waited;
    staged.moved = fields.moved;
    staged.has_own = fields.own.is_some();
    for object in fields.own.into_iter().flat_map(|own| own.objects) {
        let object = stage(&object, schema, &mut staged.states)?;
        staged.own.push(object);
    }
    for cell in fields.cells {
        staged.departed.extend(cell.departed);
        for object in &cell.upserts {
            let object = stage(object, schema, &mut staged.states)?;
            staged.upserts.push(object);
        }
        staged.push_cell(cell.cell, cell.full, (0, 0));
    }
    staged.schema = received;
    let Some(grid) = fields.grid else { return Some(()) };
    staged.set_grid([
        grid.columns,
        grid.rows,
        grid.cell_units,
        grid.near_cells,
        grid.far_cells,
        grid.far_interval_ticks,
        grid.ticks_per_second,
    ])
}

fn stage(fields: &ObjectFields<'_>, schema: &Schema, states: &mut Vec<u8>) -> Option<StagedObject> {
    let start = states.len();
    if let Some(Text(state)) = &fields.state {
        BASE64_STANDARD.decode_vec(state.as_bytes(), states).ok()?;
    }
    let ObjectFields { id, kind, x, y, .. } = *fields;
    if let Some(values) = &fields.fields {
        let kind = schema.kind(kind).filter(|_| fields.state.is_none())?;
        let mut writer = FieldWriter::new(kind.fields.len(), states);
        for field in kind.fields.iter() {
            put_value(field, values.get(&*field.name)?, &mut writer)?;
        }
        writer.finish();
    }
    Some(StagedObject { id, kind, x, y, state: start..states.len(), is_decoded: true })
}

/// Appends a named value to a state.
fn put_value(field: &Field, value: &serde_json::Value, out: &mut FieldWriter<'_>) -> Option<()> {
    let number = match &field.of {
        FieldType::Integer(integer) => value.as_i64().filter(|number| (integer.min..=integer.max).contains(number))?,
        FieldType::Flag => value.as_bool()?.into(),
        FieldType::Choice(names) => {
            let name = value.as_str()?;
            i64::try_from(names.iter().position(|of| of == name)?).ok()?
        }
        FieldType::Object => u32::try_from(value.as_u64()?).ok()?.into(),
        FieldType::Text { bytes_max } => {
            let text = value.as_str().filter(|text| text.len() <= usize::from(*bytes_max))?;
            out.put(field, RawValue::Bytes(text.as_bytes()));
            return Some(());
        }
        FieldType::List { of, count_min, count_max } => {
            let values = value.as_array()?;
            if !(usize::from(*count_min)..=usize::from(*count_max)).contains(&values.len()) {
                return None;
            }
            let mut elements = Vec::new();
            for value in values {
                let number = value.as_i64().filter(|number| (of.min..=of.max).contains(number))?;
                write_integer(number, *of, &mut elements);
            }
            out.put(field, RawValue::Bytes(&elements));
            return Some(());
        }
    };
    out.put(field, RawValue::Number(number));
    Some(())
}
