//! The snapshots of players with a bandwidth limit, `schema/vectors/room/limited.json`: objects that move evenly in all
//! zones of the view, while zones wait, as the server decides it. The test compares what the snapshots say of the waits with
//! what the client has.
//! With `WRITE_VECTORS` in the environment, it writes the file.

use std::{fs, num::NonZeroU32, path::PathBuf, sync::Arc};

use dunlin_protocol::Encoding;
use dunlin_rooms::{
    Allowance, Base, CellIndex, FormatSet, Grid, GridShape, Mirror, ObjectId, ObjectView, Replica, TickUpdate,
    UpdateWriter, wire,
};
use serde_json::{Value, json};

use crate::vectors::hex;

const SHAPE: GridShape =
    GridShape { columns: 12, rows: 12, cell_units: 100, near_cells: 4, far_cells: 1, far_interval_ticks: 2 };
const TICKS: u32 = 100;
const TICKS_PER_SECOND: u32 = 30;
const START_US: u64 = 1_000_000_000;
/// Units per tick.
const SPEED: u32 = 3;
/// The cells in which an object moves: two of each zone around [`CENTER`].
const CELLS: [(u32, u32); 8] = [(5, 5), (6, 4), (7, 5), (3, 6), (9, 5), (5, 2), (10, 5), (4, 0)];
const CENTER: (u32, u32) = (5, 5);
/// Bytes per second, of the snapshots' data in Protobuf.
const LIMIT: NonZeroU32 = NonZeroU32::new(2_400).expect("above 0");

fn cell((column, row): (u32, u32)) -> CellIndex {
    CellIndex(row * u32::from(SHAPE.columns) + column)
}

/// The object moves back and forth within its cell. Each starts elsewhere.
fn x_at(id: u32, tick: u32) -> u32 {
    10 + ((tick + 7 * id) * SPEED % 160).abs_diff(80)
}

fn update(grid: &Grid, tick: u32, is_keyframe: bool) -> Arc<TickUpdate> {
    let mut writer = UpdateWriter::default();
    let encodings = FormatSet::default().with(Encoding::Json).with(Encoding::Protobuf);
    let time_us = START_US + u64::from(tick) * 1_000_000 / u64::from(TICKS_PER_SECOND);
    writer.begin(tick, time_us, encodings, is_keyframe);
    let mut objects: Vec<_> = (1..).zip(CELLS).map(|(id, place)| (cell(place), id)).collect();
    objects.sort_unstable();
    for (cell, id) in objects {
        let object = ObjectView { id: ObjectId(id), kind: 1, x: x_at(id, tick), y: 50, state: b"" };
        let changed = (!is_keyframe).then_some(object);
        writer.cell(cell, changed.into_iter(), [].into_iter(), [object].into_iter());
    }
    Arc::new(writer.finish(grid))
}

/// A player with its client.
struct Player {
    view_at: fn(u32) -> (u32, u32),
    base: Base,
    allowance: Allowance,
    replica: Replica,
    /// Snapshots in which cells have waited for longer than the client expects without `waited`.
    waits: usize,
}

impl Player {
    /// The snapshot of a tick; `None` if the limit skips it.
    fn step(&mut self, mirror: &mut Mirror) -> Option<Value> {
        let view = cell((self.view_at)(mirror.tick()));
        self.allowance.refill(mirror.time_us(), LIMIT);
        if !self.allowance.allows_frame(mirror.time_us(), LIMIT, mirror.reaches(self.base)) {
            return None;
        }
        let zones = self.allowance.zones(Some(LIMIT), view, mirror);
        let [json, protobuf] = [Encoding::Json, Encoding::Protobuf].map(|encoding| {
            let body = mirror.body_of_zones(encoding, view, self.base, zones);
            let mut data = Vec::new();
            wire::write_player_header(encoding, 0, 0, None, &mut data);
            data.extend_from_slice(&body.bytes[..body.data_bytes]);
            (data, body)
        });
        let text = String::from_utf8(json.0).expect("UTF-8");
        let snapshot: Value = serde_json::from_str(&text).expect("JSON");
        if self.base.tick > 0 {
            self.check_waits(&snapshot, view);
        }
        self.replica.apply(Encoding::Protobuf, &protobuf.0).expect("a good snapshot");
        // Half of what the player has saved is gone with the first frame, so that zones wait soon.
        let frame_bytes = if self.base.tick == 0 { LIMIT.get() as usize / 2 } else { protobuf.0.len() };
        self.allowance.written(frame_bytes, &protobuf.1);
        self.base = Base { tick: mirror.tick(), view };
        Some(json!({ "json": text, "protobuf": hex(&protobuf.0) }))
    }

    /// Compares the ticks that the snapshot gives for its cells with the states of the client.
    fn check_waits(&mut self, snapshot: &Value, view: CellIndex) {
        let Base { tick, view: base_view } = self.base;
        let waits = snapshot["waited"].as_u64().map(|waits| [0, 4, 8, 12].map(|shift| (waits >> shift & 15) as u32));
        let far_multiple = tick / u32::from(SHAPE.far_interval_ticks) * u32::from(SHAPE.far_interval_ticks);
        let said_ticks = waits.map_or([tick, tick, tick, far_multiple], |waits| waits.map(|wait| tick - wait));
        self.waits += usize::from(waits.is_some());
        for update in snapshot["cells"].as_array().expect("cells").iter().filter(|update| update["full"] != true) {
            let id = update["upserts"][0]["id"].as_u64().expect("an object") as u32;
            let updated = CellIndex(update["cell"].as_u64().expect("a cell") as u32);
            let seen = self.replica.object(ObjectId(id)).expect("only full cells have new objects");
            let x = seen.position.x % SHAPE.cell_units;
            let said_tick = said_ticks[zone(base_view, updated)];
            let is_exact = view == base_view && !self.has_moved() && (waits.is_some() || zone(view, updated) < 3);
            let last_tick = if is_exact { said_tick } else { tick };
            assert!((said_tick..=last_tick).any(|tick| x_at(id, tick) == x), "object {id} of {said_tick}: {snapshot}");
        }
    }

    /// Then cells may be newer than the oldest of their zone.
    fn has_moved(&self) -> bool {
        (1..self.base.tick).any(|tick| (self.view_at)(tick) != (self.view_at)(self.base.tick))
    }
}

/// `docs/rooms-protocol.md` describes the zones.
fn zone(view: CellIndex, cell: CellIndex) -> usize {
    let columns = u32::from(SHAPE.columns);
    let (across, down) = ((view.0 % columns).abs_diff(cell.0 % columns), (view.0 / columns).abs_diff(cell.0 / columns));
    match across.max(down) {
        0 | 1 => 0,
        2 => 1,
        3 | 4 => 2,
        _ => 3,
    }
}

fn vector(name: &str, view_at: fn(u32) -> (u32, u32), is_sent: fn(u32) -> bool) -> Value {
    let grid = Grid::new(SHAPE).expect("a good shape");
    let mut mirror = Mirror::new(grid.clone(), TICKS_PER_SECOND, update(&grid, 1, true), [b"}}}", b""]);
    let (allowance, replica) = (Allowance::new(mirror.time_us(), LIMIT), Replica::default());
    let mut player = Player { view_at, base: Base::default(), allowance, replica, waits: 0 };
    let mut steps = Vec::new();
    for tick in 2..=TICKS {
        mirror.apply(update(&grid, tick, false));
        if is_sent(tick) {
            steps.extend(player.step(&mut mirror));
        }
    }
    assert!(player.waits > 20 && player.waits < steps.len(), "{} of {}", player.waits, steps.len());
    json!({ "name": name, "steps": steps })
}

#[test]
fn snapshots_say_how_long_cells_have_waited() {
    let vectors = [
        vector("a player who stands", |_| CENTER, |_| true),
        vector(
            "a player who walks, and whose connection skips ticks",
            |tick| (5 + tick / 20 % 3, 5),
            |tick| tick % 7 > 0,
        ),
    ];
    let lines: Vec<_> = vectors.iter().map(|vector| format!("    {vector}")).collect();
    let about =
        "Snapshots of players with a bandwidth limit: objects move evenly in all zones of the view, while zones wait.";
    let expected = format!("{{\n  \"about\": \"{about}\",\n  \"vectors\": [\n{}\n  ]\n}}\n", lines.join(",\n"));
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../schema/vectors/room/limited.json");
    if std::env::var_os("WRITE_VECTORS").is_some() {
        fs::write(&path, &expected).expect("a writable tree");
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(found == expected, "limited.json is not what a room sends; write it with WRITE_VECTORS=1");
}
