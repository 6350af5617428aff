//! Random worlds through encoder, mirror and replica. For any base and any sequence of frames, a client sees the state
//! that a naive model predicts, also one whose mirror is on another node.

mod model;

use std::{collections::BTreeMap, sync::Arc};

pub use self::model::Chance;
use self::model::{Thing, World, all_formats};
use dunlin_rooms::{
    Base, CellIndex, Grid, GridShape, Mirror, ObjectId, Position, Replica, SnapshotFormat, TickUpdate, ZONES, Zones,
    wire,
};
use proptest::prelude::*;

/// Cells wait for fewer ticks than this.
const WAIT_TICKS_MAX: u32 = 13;
/// Ticks whose changes a mirror has.
const HISTORY_TICKS: u32 = 16;

const TAILS: [&[u8]; 2] = [b"}}}", b""];

fn distance(grid: &Grid, view: CellIndex, cell: CellIndex) -> u16 {
    let ((left, top), (column, row)) = (grid.place(view), grid.place(cell));
    left.abs_diff(column).max(top.abs_diff(row))
}

/// The zone of a visible cell.
fn zone(grid: &Grid, view: CellIndex, cell: CellIndex) -> usize {
    let distance = distance(grid, view, cell);
    let near = grid.shape().near_cells;
    match distance {
        0 => 0,
        _ if distance > near => 3,
        1 => 0,
        _ if distance * 2 <= near + 1 => 1,
        _ => 2,
    }
}

/// A client, and the state that it should have.
struct Client {
    format: SnapshotFormat,
    view: CellIndex,
    base: Base,
    /// The zones that the client knows, for a client whose cells may wait.
    zones: Option<Zones>,
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
            zones: None,
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
        if let Some(zones) = &mut self.zones {
            zones.waiting = std::array::from_fn(|_| chance.below(4) != 0);
        }
        self.ack += chance.below(3);
    }

    fn receive(&mut self, mirror: &mut Mirror, world: &World) {
        let grid = &world.grid;
        let body = mirror.body_of_zones(self.format, self.view, self.base, self.zones);
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
        let known_tick =
            |zone: usize| self.zones.map_or(body.base_tick, |zones| zones.known_ticks[zone].min(body.base_tick));
        let is_due = |zone: usize| is_full || zone < 3 || body.tick / interval > known_tick(zone) / interval;
        let is_postponed: [bool; ZONES] = std::array::from_fn(|zone| {
            let (age, gap) = (body.tick - known_tick(zone), body.tick - body.base_tick);
            let may_wait = zone > 0 && !is_full && age < WAIT_TICKS_MAX && age + gap < HISTORY_TICKS;
            is_due(zone) && may_wait && self.zones.is_some_and(|zones| zones.waiting[zone])
        });
        assert_eq!(body.is_postponed, is_postponed);
        let before = std::mem::take(&mut self.cell_ticks);
        self.cell_ticks = grid
            .visible(self.view)
            .map(|(cell, _)| {
                let now = zone(grid, self.view, cell);
                // One that has come from a zone with an older tick does not wait.
                let is_older = || known_tick(zone(grid, self.base.view, cell)) < known_tick(now);
                // Neither does one of which the player sees more kinds now, or fewer.
                let kinds = |view| [0, 1, 2, 3].map(|kind| world.is_near(kind, distance(grid, view, cell)));
                let is_as_deep = kinds(self.base.view) == kinds(self.view);
                match before.get(&cell) {
                    Some(tick) if (!is_due(now) || is_postponed[now]) && !is_older() && is_as_deep => (cell, *tick),
                    _ => (cell, body.tick),
                }
            })
            .collect();
        if self.is_limited {
            let segments: u32 = body.zone_bytes.iter().sum();
            assert!(segments as usize <= body.data_bytes, "zones have {:?} bytes", body.zone_bytes);
            self.zones = Some(Zones { known_ticks: body.zone_ticks, waiting: [false; ZONES] });
        }
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
            let distance = distance(grid, self.view, *cell);
            let then = world.near_at(*tick, *cell, distance);
            if *tick == world.tick {
                assert_eq!(shown, then, "{cell:?}, which shows the current tick");
            } else {
                let zone = zone(grid, self.view, *cell);
                assert!(zone == 3 || self.is_limited && zone > 0, "{cell:?} shows {tick}");
                if let Some(zones) = self.zones {
                    assert!(zones.known_ticks[zone] <= *tick, "the lower bound of a zone");
                    assert!(world.tick - tick < WAIT_TICKS_MAX.max(grid.shape().far_interval_ticks.into()));
                }
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

/// A mirror on another node than the room.
struct Remote {
    mirror: Mirror,
    /// Whether the node receives changes: it has a player who does, and both nodes know them.
    has_changes: bool,
    /// The first tick after which each update has had them.
    since: u32,
}

impl Remote {
    fn new(world: &mut World) -> Self {
        let (keyframe, grid) = (TickUpdate::from_bytes(&world.keyframe().to_bytes()), world.grid.clone());
        let mirror = Mirror::new(grid, 60, Arc::new(keyframe.expect("a keyframe")), TAILS);
        Self { mirror, has_changes: false, since: world.tick }
    }

    fn apply(&mut self, world: &World, update: &TickUpdate) {
        let bytes = if self.has_changes { update.to_bytes_with_changes() } else { update.to_bytes() };
        let arrived = if update.is_keyframe() {
            TickUpdate::from_bytes(&bytes)
        } else {
            TickUpdate::from_bytes_in(&bytes, self.mirror.schema(), world.grid.shape().cell_units)
        };
        let arrived = arrived.expect("the room has written it");
        assert_eq!(arrived.formats().contains(SnapshotFormat::TypedProtobuf), self.has_changes);
        self.mirror.apply(Arc::new(arrived));
        if !self.has_changes {
            self.since = update.tick();
        }
    }

    /// Advances by a tick. Sometimes players who receive changes come and leave, or the link between the nodes is lost, and the
    /// players join again.
    fn live(&mut self, chance: &mut Chance, world: &mut World, update: &TickUpdate, clients: &mut [Client]) {
        if chance.below(30) == 0 {
            self.has_changes = !self.has_changes;
        }
        if chance.below(50) > 0 {
            return self.apply(world, update);
        }
        *self = Self { has_changes: self.has_changes, ..Self::new(world) };
        for client in clients {
            (client.base, client.zones, client.is_own_dirty) = (Base::default(), None, true);
        }
    }

    /// Whether a client of this mirror gets what one on the room's node gets. Of JSON, nodes send each other whole states; and
    /// what is in the history from before the first changes is sent as a whole.
    fn equals_local(&self, client: &Client) -> bool {
        client.format != SnapshotFormat::TypedJson && client.base.tick >= self.since + HISTORY_TICKS
    }
}

fn play(shape: GridShape, seed: u64, ticks: u32, clients: usize) {
    let grid = Grid::new(shape).expect("a good shape");
    let mut chance = Chance(seed);
    let mut world = World::new(grid.clone(), &mut chance);
    let mut mirror = Mirror::new(grid.clone(), 60, world.keyframe(), TAILS);
    let mut remote = Remote::new(&mut world);
    let mut remote_clients: Vec<_> = (0..clients).map(Client::new).collect();
    let mut clients: Vec<_> = (0..clients).map(Client::new).collect();
    for _ in 0..ticks {
        let update = world.step(&mut chance);
        assert!(update.formats().covers(all_formats()));
        remote.live(&mut chance, &mut world, &update, &mut remote_clients);
        mirror.apply(update);
        if chance.below(40) == 0 {
            let keyframe = world.keyframe();
            remote.apply(&world, &keyframe);
            mirror.apply(keyframe);
        }
        let before = mirror.counters();
        let mut alike: Vec<_> = Vec::new();
        for client in &mut clients {
            client.live(&mut chance, &grid);
            if client.absent_ticks > 0 {
                client.absent_ticks -= 1;
                continue;
            }
            alike.push((client.format, client.view, client.base, client.zones));
            client.receive(&mut mirror, &world);
            client.check(&world);
        }
        let asked = alike.len() as u64;
        let zones_key = |zones: &Option<Zones>| zones.map(|zones| (zones.known_ticks, zones.waiting));
        alike.sort_unstable_by_key(|(format, view, base, zones)| {
            (*format, *view, base.tick, base.view, zones_key(zones))
        });
        alike.dedup();
        let after = mirror.counters();
        assert_eq!(after.bodies - before.bodies, asked);
        assert!(after.assemblies - before.assemblies <= alike.len() as u64, "clients in the same state share a body");
        for client in &mut remote_clients {
            client.live(&mut chance, &grid);
            if client.absent_ticks > 0 {
                client.absent_ticks -= 1;
                continue;
            }
            if remote.equals_local(client) {
                let body = |mirror: &mut Mirror| {
                    mirror.body_of_zones(client.format, client.view, client.base, client.zones).bytes.clone()
                };
                assert_eq!(body(&mut remote.mirror), body(&mut mirror));
            }
            client.receive(&mut remote.mirror, &world);
            client.check(&world);
        }
    }
}

fn shapes() -> impl Strategy<Value = GridShape> {
    (1..9_u16, 1..9_u16, 1..40_u32, 0..6_u16, 0..3_u16, 1..16_u16).prop_map(
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
fn zones_wait_on_their_own() {
    let shape =
        GridShape { columns: 20, rows: 20, cell_units: 500, near_cells: 4, far_cells: 1, far_interval_ticks: 3 };
    play(shape, 3, 300, 20);
}

#[test]
fn far_cells_are_sent_at_their_interval() {
    let shape =
        GridShape { columns: 20, rows: 20, cell_units: 500, near_cells: 1, far_cells: 2, far_interval_ticks: 6 };
    play(shape, 2, 300, 20);
}
