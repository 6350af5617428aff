use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::Arc,
};

use dunlin_proof::chance::Xorshift;
use dunlin_protocol::Encoding;

use super::{Base, Mirror, SnapshotBody, ZONES, Zones, zones::zone};
use crate::{
    CellIndex, ClockRate, FormatSet, Grid, GridShape, ObjectId, ObjectView, Schema, TickTime, TickUpdate, UpdateWriter,
    grid::HISTORY_TICKS,
};

const HISTORY: u32 = HISTORY_TICKS as u32;

fn grid() -> Grid {
    let shape = GridShape { columns: 4, rows: 4, cell_units: 100, near_cells: 1, far_cells: 0, far_interval_ticks: 1 };
    Grid::new(shape).expect("a good shape")
}

/// An update that contains `cells`. The flag states whether a cell's object has changed; otherwise it has departed.
fn update(tick: u32, is_keyframe: bool, cells: &[(u32, bool)]) -> Arc<TickUpdate> {
    let mut writer = UpdateWriter::default();
    let encodings = FormatSet::default().with(Encoding::Json).with(Encoding::Protobuf);
    writer.begin(tick, u64::from(tick), encodings, is_keyframe);
    for (cell, is_there) in cells {
        let id = ObjectId(cell + 1);
        let objects = || is_there.then_some(ObjectView { id, kind: 1, x: tick, y: 0, state: b"s" }).into_iter();
        writer.cell(CellIndex(*cell), objects(), (!is_there).then_some(id).into_iter(), objects());
    }
    Arc::new(writer.finish(&grid()))
}

fn mirror() -> Mirror {
    Mirror::new(grid(), 60, update(1, true, &[(0, true), (5, true)]), [b"}}}", b""])
}

fn base(tick: u32) -> Base {
    Base { tick, view: CellIndex(0) }
}

fn body(mirror: &mut Mirror, base: Base) -> serde_json::Value {
    let body = mirror.body(Encoding::Json, CellIndex(0), base);
    let (data, tail) = body.bytes.split_at(body.data_bytes);
    assert_eq!(tail, b"}}}");
    serde_json::from_slice(&[b"{", data].concat()).expect("a header's brace and a body are an object")
}

#[test]
fn a_base_is_usable_while_the_history_has_it() {
    let mut mirror = mirror();
    for tick in 2..=HISTORY + 2 {
        mirror.apply(update(tick, false, &[(0, true)]));
    }
    let at_the_limit = body(&mut mirror, base(2));
    assert_eq!((at_the_limit["base"].as_u64(), at_the_limit.get("grid")), (Some(2), None));
    assert_eq!(at_the_limit["cells"][0]["upserts"][0]["x"], HISTORY + 2);
    assert_eq!(at_the_limit["cells"].as_array().map(Vec::len), Some(1), "cell 5 has not changed");

    let past_it = body(&mut mirror, base(1));
    assert!(past_it.get("base").is_none() && past_it["grid"]["columns"] == 4);
    assert_eq!(past_it["cells"].as_array().map(Vec::len), Some(2));
    assert_eq!(mirror.counters().assemblies_full, 1);
    assert_eq!(mirror.counters().assemblies_catch_up, 1);
}

#[test]
fn bases_before_a_keyframe_are_ignored() {
    let mut mirror = mirror();
    mirror.apply(update(2, false, &[(0, true)]));
    mirror.apply(update(3, true, &[(0, true)]));
    assert!(body(&mut mirror, base(2)).get("base").is_none());
    assert_eq!(body(&mut mirror, base(3))["base"], 3);
    assert!(body(&mut mirror, base(4)).get("base").is_none(), "a base in the future is ignored as well");
    assert!(body(&mut mirror, base(0)).get("base").is_none());
    mirror.apply(update(4, false, &[(0, true)]));
    assert_eq!(body(&mut mirror, base(3))["base"], 3);
}

#[test]
fn an_emptied_cell_is_known_as_empty() {
    let mut mirror = mirror();
    mirror.apply(update(2, false, &[(5, false)]));
    assert_eq!(body(&mut mirror, base(1))["cells"], serde_json::json!([{"cell": 5, "departed": [6]}]));
    let everything = body(&mut mirror, Base::default());
    assert_eq!(everything["cells"].as_array().map(Vec::len), Some(1));
    let moved_in = body(&mut mirror, Base { tick: 2, view: CellIndex(15) });
    assert_eq!(moved_in["cells"].as_array().map(Vec::len), Some(1), "cell 0 in full, and nothing of cell 5");
}

#[test]
fn quiet_cells_outlive_the_update_that_they_came_with() {
    let mut mirror = mirror();
    let last_about_5 = update(2, false, &[(1, true), (5, true)]);
    mirror.apply(Arc::clone(&last_about_5));
    for tick in 3..=HISTORY + 10 {
        mirror.apply(update(tick, false, &[(1, true)]));
    }
    assert_eq!(Arc::strong_count(&last_about_5), 1, "the update is dropped");
    let everything = body(&mut mirror, Base::default());
    let cells = everything["cells"].as_array().expect("cells");
    let x = |index: usize| cells[index]["upserts"][0]["x"].as_u64();
    assert_eq!((x(0), x(1), x(2)), (Some(1), Some(u64::from(HISTORY) + 10), Some(2)), "of cells 0, 1 and 5");
}

#[test]
fn quiet_cells_outlive_the_keyframe() {
    let keyframe = update(1, true, &[(0, true), (1, true), (5, true)]);
    let mut mirror = Mirror::new(grid(), 60, Arc::clone(&keyframe), [b"}}}", b""]);
    for tick in 2..=HISTORY + 1 {
        mirror.apply(update(tick, false, &[(1, true)]));
    }
    assert_eq!(Arc::strong_count(&keyframe), 2, "cells 0 and 5 still refer to it");
    mirror.apply(update(HISTORY + 2, false, &[(1, true)]));
    assert_eq!(Arc::strong_count(&keyframe), 1, "the keyframe is dropped");
    let everything = body(&mut mirror, Base::default());
    let x: Vec<Option<u64>> = (0..3).map(|cell: usize| everything["cells"][cell]["upserts"][0]["x"].as_u64()).collect();
    assert_eq!(x, [Some(1), Some(u64::from(HISTORY) + 2), Some(1)]);
}

#[test]
fn a_large_keyframe_is_dropped_in_parts() {
    let shape =
        GridShape { columns: 50, rows: 4, cell_units: 100, near_cells: 49, far_cells: 0, far_interval_ticks: 1 };
    let grid = Grid::new(shape).expect("a good shape");
    let mut writer = UpdateWriter::default();
    writer.begin(1, 1, FormatSet::default().with(Encoding::Json), true);
    for cell in 0..200 {
        let object = ObjectView { id: ObjectId(cell + 1), kind: 1, x: 1, y: 0, state: b"s" };
        writer.cell(CellIndex(cell), std::iter::empty::<ObjectView<'_>>(), [].into_iter(), [object].into_iter());
    }
    let keyframe = Arc::new(writer.finish(&grid));
    let mut mirror = Mirror::new(grid, 60, Arc::clone(&keyframe), [b"}}}", b""]);
    let mut ticks = 0;
    while Arc::strong_count(&keyframe) > 1 {
        ticks += 1;
        mirror.apply(update(1 + ticks, false, &[(3, ticks % 2 == 0)]));
        let cells = body(&mut mirror, Base::default())["cells"].as_array().map(Vec::len);
        assert_eq!(cells, Some(200 - (ticks % 2) as usize), "after {ticks} ticks");
        assert!(ticks <= HISTORY + 4, "64 cells a tick");
    }
    assert_eq!(ticks, HISTORY + 4);
    assert_eq!(body(&mut mirror, Base::default())["cells"].as_array().map(Vec::len), Some(200));
}

#[test]
fn equal_views_share_a_body_and_buffers_are_reused() {
    let mut mirror = mirror();
    mirror.apply(update(2, false, &[(0, true)]));
    let one = mirror.body(Encoding::Protobuf, CellIndex(0), base(1));
    let other = mirror.body(Encoding::Protobuf, CellIndex(0), base(1));
    assert!(Rc::ptr_eq(&one, &other));
    assert_eq!((mirror.counters().bodies, mirror.counters().assemblies), (2, 1));
    let too_old = mirror.body(Encoding::Protobuf, CellIndex(0), base(0));
    let none = mirror.body(Encoding::Protobuf, CellIndex(0), base(77));
    assert!(Rc::ptr_eq(&too_old, &none), "all clients with a full state share it");
    drop((other, too_old, none));

    let bytes_before = one.bytes.clone();
    mirror.apply(update(3, false, &[(0, true)]));
    let next = mirror.body(Encoding::Protobuf, CellIndex(0), base(2));
    assert!(!Rc::ptr_eq(&one, &next));
    assert_eq!(one.bytes, bytes_before, "a body in use does not change");
    let address = Rc::as_ptr(&one);
    drop(one);
    mirror.apply(update(4, false, &[(0, true)]));
    let reused = [base(3), base(2), base(1)].map(|base| mirror.body(Encoding::Protobuf, CellIndex(0), base));
    assert!(reused.iter().any(|body| Rc::as_ptr(body) == address), "its buffer is reused");
}

#[test]
fn a_client_one_tick_behind_gets_the_updates_segments() {
    let mut mirror = mirror();
    let update = update(2, false, &[(0, true), (1, true), (5, true), (9, true)]);
    mirror.apply(Arc::clone(&update));
    for encoding in Encoding::ALL {
        let body = mirror.body(encoding, CellIndex(0), base(1));
        let own: Vec<_> = (0..3)
            .flat_map(|place| update.deltas(encoding.into())[update.delta(encoding.into(), place)].to_vec())
            .collect();
        let own = own.strip_suffix(b",").filter(|_| encoding == Encoding::Json).unwrap_or(&own);
        assert!(body.bytes.windows(own.len()).any(|window| window == own), "cells 0, 1 and 5, but not 9");
        assert!(body.bytes.len() < own.len() + 80);
    }
}

#[test]
fn views_and_cells_outside_the_map_show_nothing() {
    let mut mirror = mirror();
    mirror.apply(update(2, false, &[(0, true), (99, true)]));
    assert_eq!(mirror.history.latest().cell_count(), 1);
    for encoding in Encoding::ALL {
        let body = mirror.body(encoding, CellIndex(u32::MAX), Base { tick: 1, view: CellIndex(4_000) });
        assert_eq!(body.tick, 2);
    }
}

#[test]
fn a_zone_takes_what_has_changed_and_not_what_comes_into_view() {
    let mut mirror = mirror();
    let zones = |known_ticks| Some(Zones { known_ticks, waiting: [false; ZONES] });
    mirror.apply(update(2, false, &[(10, true)]));
    let moved = mirror.body_of_zones(Encoding::Json, CellIndex(5), base(1), zones([1; ZONES]));
    assert!(moved.bytes.windows(9).any(|window| window == br#""cell":10"#));
    assert_eq!(moved.zone_bytes, [0; ZONES]);

    mirror.apply(update(3, false, &[(10, true)]));
    let view = CellIndex(5);
    let stayed = mirror.body_of_zones(Encoding::Json, view, Base { tick: 2, view }, zones(moved.zone_ticks));
    assert!(stayed.zone_bytes[0] > 0 && stayed.zone_bytes[1..] == [0; ZONES - 1]);
}

#[test]
fn a_slowed_room_has_fewer_ticks_per_second() {
    let at = |permille: u32| {
        let rate = ClockRate::from_permille(permille).expect("a rate");
        let mut writer = UpdateWriter::new(Arc::default(), 100);
        writer.begin(1, TickTime { unix_us: 1, rate }, FormatSet::default().with(Encoding::Json), true);
        let grid = grid();
        let keyframe = Arc::new(writer.finish(&grid));
        Mirror::new(grid, 60, keyframe, [b"", b""]).ticks_per_real_second()
    };
    assert_eq!([1_000, 999, 250, 20, 1].map(at), [60, 59, 15, 1, 1]);
}

#[test]
fn a_zone_is_as_important_as_its_most_important_object() {
    let shape = GridShape { columns: 9, rows: 1, cell_units: 100, near_cells: 4, far_cells: 1, far_interval_ticks: 1 };
    let grid = Grid::new(shape).expect("a good shape");
    let mut writer = UpdateWriter::new(Arc::new(Schema::new().with_weight(2, 3).with_weight(4, 5)), 100);
    let mut update = |tick, cells: &[(u32, &[u16])]| {
        writer.begin(tick, u64::from(tick), FormatSet::default().with(Encoding::Json), tick == 1);
        for (cell, kinds) in cells {
            let object =
                |(id, kind): (u32, &u16)| ObjectView { id: ObjectId(id), kind: *kind, x: tick, y: 0, state: b"" };
            let objects = || (cell * 10 + 1..).zip(*kinds).map(object);
            writer.cell(CellIndex(*cell), objects(), [].into_iter(), objects());
        }
        Arc::new(writer.finish(&grid))
    };
    let keyframe = update(1, &[(0, &[1]), (2, &[1, 2, 1]), (3, &[4]), (5, &[2])]);
    let mut mirror = Mirror::new(grid.clone(), 60, keyframe, [b"}}}", b""]);
    assert_eq!(mirror.zone_weights(CellIndex(0)), [1, 3, 5, 3]);
    assert_eq!(mirror.zone_weights(CellIndex(4)), [5, 3, 1, 1]);
    mirror.apply(update(2, &[(2, &[1]), (3, &[]), (5, &[1])]));
    assert_eq!(mirror.zone_weights(CellIndex(0)), [1; ZONES], "they are gone");
    mirror.apply(update(3, &[(5, &[4])]));
    assert_eq!(mirror.zone_weights(CellIndex(0)), [1, 1, 1, 5]);
    mirror.apply(update(1, &[(0, &[2])]));
    assert_eq!(mirror.zone_weights(CellIndex(0)), [3, 1, 1, 1], "a keyframe has all cells");
}

/// 60 objects of four kinds walk on a map and cross 3 borders in each tick; players look from 20 cells in each tick.
#[test]
fn the_cells_of_a_view_are_looked_at_again_only_when_an_important_object_has_left_one() {
    const TICKS: u32 = 200;
    let shape = GridShape { columns: 24, rows: 24, cell_units: 9, near_cells: 4, far_cells: 1, far_interval_ticks: 2 };
    let grid = Grid::new(shape).expect("a good shape");
    let schema = (1..=4_u8).fold(Schema::new(), |schema, weight| schema.with_weight(weight.into(), weight));
    let mut writer = UpdateWriter::new(Arc::new(schema), 9);
    let mut random = Xorshift::new(1);
    let mut places: Vec<(u32, u32)> = (0..60).map(|_| (random.below(24) as u32, random.below(24) as u32)).collect();
    let views = || (0..20).map(|number| CellIndex(7 + 28 * number));
    let (mut mirror, mut cells_before, mut cells_of_views) = (None, BTreeSet::new(), 0);
    for tick in 1..=TICKS {
        for (column, row) in &mut places {
            let walks = random.below(20) == 0;
            for place in [column, row].into_iter().filter(|_| walks) {
                *place = (*place + random.below(3) as u32).saturating_sub(1).min(23);
            }
        }
        let mut objects: BTreeMap<CellIndex, Vec<ObjectView<'_>>> = BTreeMap::new();
        for (id, (column, row)) in (0..).zip(&places) {
            let object = ObjectView { id: ObjectId(id + 1), kind: (id % 4) as u16 + 1, x: tick % 9, y: 0, state: b"" };
            objects.entry(CellIndex(row * 24 + column)).or_default().push(object);
        }
        writer.begin(tick, u64::from(tick), FormatSet::default().with(Encoding::Json), tick == 1);
        let cells: BTreeSet<CellIndex> = objects.keys().copied().collect();
        for cell in cells.union(&cells_before) {
            let all = || objects.get(cell).into_iter().flatten().copied();
            writer.cell(*cell, all(), [].into_iter(), all());
        }
        cells_before = cells;
        let update = Arc::new(writer.finish(&grid));
        let mirror = mirror.get_or_insert_with(|| Mirror::new(grid.clone(), 60, Arc::clone(&update), [b"}}}", b""]));
        mirror.apply(update);
        for view in views() {
            let mut expected = [1; ZONES];
            for (cell, object) in objects.iter().flat_map(|(cell, objects)| objects.iter().map(move |of| (*cell, of))) {
                if let Some(zone) = zone(&grid, view, cell) {
                    expected[zone] = expected[zone].max(object.kind as u8);
                }
            }
            assert_eq!(mirror.zone_weights(view), expected, "tick {tick}, {view:?}");
            cells_of_views += grid.visible(view).count() as u64;
        }
    }
    let weighed = mirror.map_or(0, |mirror| mirror.counters().weighed_cells);
    println!("{weighed} cells looked at, of {cells_of_views} in the views of {TICKS} ticks");
    assert!(weighed < cells_of_views / 4);
}

/// A row of cells, each with an object that changes in each tick, and a player who sees six cells in each direction.
fn row() -> Mirror {
    let shape =
        GridShape { columns: 20, rows: 1, cell_units: 100, near_cells: 4, far_cells: 2, far_interval_ticks: 15 };
    let grid = Grid::new(shape).expect("a good shape");
    let update = |tick: u32| {
        let mut writer = UpdateWriter::new(Arc::default(), 100);
        writer.begin(tick, u64::from(tick), FormatSet::default().with(Encoding::Json), tick == 1);
        for cell in 0..20 {
            let object = || [ObjectView { id: ObjectId(cell + 1), kind: 1, x: tick, y: 0, state: b"s" }].into_iter();
            writer.cell(CellIndex(cell), object(), [].into_iter(), object());
        }
        Arc::new(writer.finish(&grid))
    };
    let mut mirror = Mirror::new(grid.clone(), 60, update(1), [b"}}}", b""]);
    (2..=14).for_each(|tick| mirror.apply(update(tick)));
    mirror
}

fn cells_of(body: &SnapshotBody) -> Vec<u64> {
    let bytes = [b"{", &body.bytes[..body.data_bytes]].concat();
    let value: serde_json::Value = serde_json::from_slice(&bytes).expect("a header's brace and a body are an object");
    value["cells"].as_array().into_iter().flatten().filter_map(|cell| cell["cell"].as_u64()).collect()
}

/// The far cells are nearly as old as the history. What is near waits nevertheless, except what comes from an older zone.
#[test]
fn zones_keep_their_ticks_when_the_view_moves() {
    let mut mirror = row();
    let zones = Zones { known_ticks: [13, 12, 11, 1], waiting: [true; ZONES] };
    let mut body_at = |view| {
        let base = Base { tick: 13, view: CellIndex(8) };
        mirror.body_of_zones(Encoding::Json, CellIndex(view), base, Some(zones))
    };
    let stays = body_at(8);
    assert_eq!((cells_of(&stays), stays.zone_ticks), (vec![7, 8, 9], [14, 12, 11, 1]));
    let moves = body_at(9);
    assert_eq!((moves.zone_ticks, moves.is_postponed), ([14, 12, 11, 1], [false, true, true, false]));
    // The nearest three; 11 and 13 from the next older zone; and 15, which comes into view.
    assert_eq!(cells_of(&moves), [8, 9, 10, 11, 13, 15]);
}
