//! Decodes snapshots from JSON. `None` for invalid input.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::Deserialize;

use super::staged::{Staged, StagedObject};
use crate::wire::{Text, read_object};

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
    grid: Option<GridFields>,
    view: u32,
    #[serde(borrow)]
    cells: Vec<CellFields<'a>>,
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
}

pub(super) fn read(data: &[u8], staged: &mut Staged) -> Option<()> {
    let fields: SnapshotFields<'_> = read_object(data)?;
    staged.ack = fields.ack;
    staged.avatar = fields.avatar;
    staged.tick = fields.tick;
    staged.base = fields.base;
    staged.time_us = fields.time_us;
    staged.view = fields.view;
    staged.has_own = fields.own.is_some();
    for object in fields.own.into_iter().flat_map(|own| own.objects) {
        let object = stage(&object, &mut staged.states)?;
        staged.own.push(object);
    }
    for cell in fields.cells {
        staged.departed.extend(cell.departed);
        for object in &cell.upserts {
            let object = stage(object, &mut staged.states)?;
            staged.upserts.push(object);
        }
        staged.push_cell(cell.cell, cell.full);
    }
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

fn stage(fields: &ObjectFields<'_>, states: &mut Vec<u8>) -> Option<StagedObject> {
    let start = states.len();
    if let Some(Text(state)) = &fields.state {
        BASE64_STANDARD.decode_vec(state.as_bytes(), states).ok()?;
    }
    let ObjectFields { id, kind, x, y, .. } = *fields;
    Some(StagedObject { id, kind, x, y, state: start..states.len() })
}
