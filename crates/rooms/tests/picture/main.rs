//! Random worlds through encoder, mirror and replica. For any base and any sequence of frames, a client sees the state
//! that a naive model predicts.

mod model;

use std::collections::BTreeMap;

use self::model::{Chance, Thing, World, all_formats};
use dunlin_rooms::{
    Band, Base, CellIndex, FarCells, Grid, GridShape, Mirror, ObjectId, Position, Replica, SnapshotFormat, wire,
};
use proptest::prelude::*;

/// Far cells wait for fewer ticks than this.
const FAR_WAIT_TICKS_MAX: u32 = 13;

const TAILS: [&[u8]; 2] = [b"}}}", b""];

/// A client, and the state that it should have.
struct Client {
    format: SnapshotFormat,
    view: CellIndex,
    base: Base,
    /// The far cells that the client knows, for a client whose far cells may be postponed.
    far: Option<FarCells>,
    is_limited: bool,
    replica: Replica,
    /// For each visible cell, the tick of the content that the client shows.
    cell_ticks: BTreeMap<CellIndex, u32>,
    own: BTreeMap<u32, Thing>,
    is_own_dirty: bool,
    ack: u32,
    /// The number of frames that the client still misses, as if its socket were full.
    absent_ticks: u32,
}

impl Client {
    fn new(index: usize) -> Self {
        Self {
            format: SnapshotFormat::ALL[index % 4],
            view: CellIndex(0),
            base: Base::default(),
            far: None,
            is_limited: index % 3 == 2,
            replica: Replica::default(),
            cell_ticks: BTreeMap::new(),
            own: BTreeMap::new(),
            is_own_dirty: true,
            ack: 0,
            absent_ticks: 0,
        }
    }

    fn live(&mut self, chance: &mut Chance, grid: &Grid) {
        if chance.below(5) == 0 {
            let (width, height) = grid.size_units();
            let position = if chance.below(2) == 0 {
                Position { x: chance.below(width), y: chance.below(height) }
            } else {
                let corner = grid.corner(self.view);
                let step = grid.shape().cell_units;
                Position { x: corner.x + chance.below(2 * step), y: corner.y + chance.below(2 * step) }
            };
            self.view = grid.cell_of(position);
        }
        if chance.below(6) == 0 {
            self.is_own_dirty = true;
            self.own = (0..chance.below(3)).map(|index| (900_000 + index, Thing::any(chance, grid))).collect();
        }
        if self.absent_ticks == 0 && chance.below(8) == 0 {
            self.absent_ticks = chance.below(25);
        }
        if let Some(far) = &mut self.far {
            far.is_postponed = chance.below(4) != 0;
        }
        self.ack += chance.below(3);
    }

    fn receive(&mut self, mirror: &mut Mirror, grid: &Grid) {
        let body = mirror.body_with_far(self.format, self.view, self.base, self.far);
        let own = (self.is_own_dirty || body.base_tick == 0).then(|| {
            let mut own = Vec::new();
            wire::encode_own(
                self.format,
                mirror.schema(),
                self.own.iter().map(|(id, thing)| thing.view(*id, Position::default())),
                &mut own,
            );
            own
        });
        let mut frame = Vec::new();
        let encoding = self.format.encoding();
        wire::write_player_header(encoding, self.ack, 77, own.as_deref(), &mut frame);
        assert!(frame.len() <= wire::HEADER_BYTES_MAX + own.map_or(0, |own| own.len()));
        if self.format.is_typed() && self.base.tick == 0 {
            wire::write_schema(encoding, mirror.schema(), &mut frame);
        }
        let (data, tail) = body.bytes.split_at(body.data_bytes);
        assert_eq!(tail, TAILS[encoding.index()]);
        frame.extend_from_slice(data);
        self.replica.apply(encoding, &frame).expect("a good snapshot");
        self.is_own_dirty = false;

        let interval = u32::from(grid.shape().far_interval_ticks);
        let is_full = body.base_tick == 0;
        let known_tick = self.far.map_or(body.base_tick, |far| far.known_tick.min(body.base_tick));
        let is_far_due = is_full || body.tick / interval > known_tick / interval;
        let is_postponed = self.far.is_some_and(|far| far.is_postponed) && body.tick - known_tick < FAR_WAIT_TICKS_MAX;
        assert_eq!(body.is_far_postponed, is_far_due && is_postponed && !is_full);
        let is_far_due = is_far_due && !body.is_far_postponed;
        if self.is_limited {
            self.far = Some(FarCells { known_tick: body.far_tick, is_postponed: false });
        }
        let before = std::mem::take(&mut self.cell_ticks);
        self.cell_ticks = grid
            .visible(self.view)
            .map(|(cell, band)| match before.get(&cell) {
                Some(tick) if band == Band::Far && !is_far_due => (cell, *tick),
                _ => (cell, body.tick),
            })
            .collect();
        self.base = Base { tick: body.tick, view: self.view };
    }

    fn check(&self, world: &World) {
        let grid = &world.grid;
        assert_eq!((self.replica.tick(), self.replica.time_us()), (world.tick, world.time_us()));
        assert_eq!((self.replica.ack(), self.replica.avatar()), (self.ack, Some(ObjectId(77))));
        assert_eq!(self.replica.view(), self.view);
        assert_eq!(self.replica.grid(), Some(grid));
        let mut shown: BTreeMap<CellIndex, BTreeMap<u32, Thing>> = BTreeMap::new();
        let mut own = BTreeMap::new();
        for (id, seen) in self.replica.objects() {
            let thing = Thing { position: seen.position, kind: seen.kind, state: seen.state.clone() };
            match seen.cell {
                Some(cell) => drop(shown.entry(cell).or_default().insert(id.0, thing)),
                None => drop(own.insert(id.0, thing)),
            }
        }
        assert_eq!(own, self.own);
        assert!(shown.keys().all(|cell| self.cell_ticks.contains_key(cell)), "no object is outside the view");
        for (cell, tick) in &self.cell_ticks {
            let shown = shown.remove(cell).unwrap_or_default();
            let then = world.cell_at(*tick, *cell);
            if *tick == world.tick {
                assert_eq!(shown, then, "{cell:?}, which shows the current tick");
            } else {
                assert_eq!(grid.band(self.view, *cell), Some(Band::Far), "near cells show the current tick");
                assert!(shown.iter().all(|(id, thing)| then.get(id) == Some(thing)), "{cell:?} as of {tick}");
                let stayed = |id: &u32| (*tick..=world.tick).all(|tick| world.cell_at(tick, *cell).contains_key(id));
                assert!(
                    then.keys().filter(|id| stayed(id)).all(|id| shown.contains_key(id)),
                    "{cell:?} lacks an object"
                );
            }
            let hash = shown.iter().fold(0, |hash, (id, thing)| hash ^ thing.hash(*id));
            assert_eq!(self.replica.cell_hash(*cell), hash);
        }
    }
}

fn play(shape: GridShape, seed: u64, ticks: u32, clients: usize) {
    let grid = Grid::new(shape).expect("a good shape");
    let mut chance = Chance(seed);
    let mut world = World::new(grid.clone(), &mut chance);
    let mut mirror = Mirror::new(grid.clone(), 60, world.keyframe(), TAILS);
    let mut clients: Vec<_> = (0..clients).map(Client::new).collect();
    for _ in 0..ticks {
        let update = world.step(&mut chance);
        assert!(update.formats().covers(all_formats()));
        mirror.apply(update);
        if chance.below(40) == 0 {
            mirror.apply(world.keyframe());
        }
        let before = mirror.counters();
        let mut alike: Vec<_> = Vec::new();
        for client in &mut clients {
            client.live(&mut chance, &grid);
            if client.absent_ticks > 0 {
                client.absent_ticks -= 1;
                continue;
            }
            alike.push((client.format, client.view, client.base, client.far));
            client.receive(&mut mirror, &grid);
            client.check(&world);
        }
        let asked = alike.len() as u64;
        let far_key = |far: &Option<FarCells>| far.map(|far| (far.known_tick, far.is_postponed));
        alike.sort_unstable_by_key(|(format, view, base, far)| (*format, *view, base.tick, base.view, far_key(far)));
        alike.dedup();
        let after = mirror.counters();
        assert_eq!(after.bodies - before.bodies, asked);
        assert!(after.assemblies - before.assemblies <= alike.len() as u64, "clients in the same state share a body");
    }
}

fn shapes() -> impl Strategy<Value = GridShape> {
    (1..9_u16, 1..9_u16, 1..40_u32, 0..3_u16, 0..3_u16, 1..16_u16).prop_map(
        |(columns, rows, cell_units, near_cells, far_cells, far_interval_ticks)| GridShape {
            columns,
            rows,
            cell_units,
            near_cells,
            far_cells,
            far_interval_ticks,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_client_sees_the_world(shape in shapes(), seed: u64) {
        play(shape, seed, 80, 8);
    }
}

#[test]
fn all_clients_see_a_world_of_one_cell() {
    let shape =
        GridShape { columns: 1, rows: 1, cell_units: 65_536, near_cells: 0, far_cells: 0, far_interval_ticks: 1 };
    play(shape, 1, 300, 20);
}

#[test]
fn far_cells_are_sent_at_their_interval() {
    let shape =
        GridShape { columns: 20, rows: 20, cell_units: 500, near_cells: 1, far_cells: 2, far_interval_ticks: 6 };
    play(shape, 2, 300, 20);
}
