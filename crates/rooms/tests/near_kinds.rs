//! Kinds that are visible only near, from a game to what each client shows: random rooms with players on their node and on
//! others, compared with the rule.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use dunlin_rooms::{
    Base, CellIndex, FormatSet, Grid, GridShape, InputError, Mirror, NewObject, ObjectId, PlayerId, Position, Refusal,
    Replica, RestoreError, Room, RoomOptions, Schema, Simulation, SnapshotFormat, TickUpdate, Visibility, Visitor,
    World, state, wire,
};
use proptest::prelude::*;
use serde_json::Value;

use crate::picture::Chance;

state! {
    /// A kind that is visible in the whole view.
    struct Sheep: 1 {
        heading: u8 [angle(), delta_bits(4)],
        wool: u16 [delta_bits(3)],
    }
}

state! {
    /// A kind that is visible only near.
    struct Print: 2 {
        age: u8,
    }
}

const SHEEP: u16 = 1;
const PRINT: u16 = 2;
/// Without fields, and visible only near as well.
const SPECK: u16 = 3;
const ROCK: u16 = 4;

/// Objects of all kinds come, walk, change, hide and go.
struct Meadow {
    shape: GridShape,
    /// Of the kinds that are visible only near, in units.
    ranges: BTreeMap<u16, u32>,
}

fn is_visible_at(ranges: &BTreeMap<u16, u32>, shape: &GridShape, kind: u16, distance: u16) -> bool {
    distance <= shape.near_cells
        && ranges.get(&kind).is_none_or(|units| u32::from(distance) <= units.div_ceil(shape.cell_units))
}

fn distance(grid: &Grid, one: CellIndex, other: CellIndex) -> u16 {
    let ((left, top), (column, row)) = (grid.place(one), grid.place(other));
    left.abs_diff(column).max(top.abs_diff(row))
}

impl Meadow {
    fn anywhere(world: &mut World) -> Position {
        let (width, height) = world.grid().size_units();
        Position { x: world.random_below(width), y: world.random_below(height) }
    }

    fn spawn(world: &mut World) {
        let position = Self::anywhere(world);
        let visibility = if world.random_below(12) == 0 { Visibility::Nobody } else { Visibility::Everyone };
        let added = match world.random_below(7) {
            0 => world.add(position, visibility, &Sheep { heading: 0, wool: 7 }),
            1 => world.spawn(NewObject { position, kind: ROCK, visibility, state: b"rock" }),
            2..5 => world.add(position, visibility, &Print { age: 0 }),
            _ => world.spawn(NewObject { position, kind: SPECK, visibility, state: b"" }),
        };
        added.expect("there is room");
    }

    fn change(world: &mut World, id: ObjectId, kind: u16) {
        let bits = world.random();
        let outcome = match kind {
            SHEEP => world.update(id, |sheep: &mut Sheep| {
                sheep.heading = sheep.heading.wrapping_add(bits as u8 % 5);
                sheep.wool ^= (bits >> 8) as u16 % 3;
            }),
            PRINT => world.update(id, |print: &mut Print| print.age = bits as u8 % 4),
            _ => world.set_state(id, &bits.to_le_bytes()[..bits as usize % 4]),
        };
        outcome.expect("it is of this kind");
    }
}

impl Simulation for Meadow {
    fn grid(&self) -> GridShape {
        self.shape
    }

    fn schema(&self) -> Schema {
        let schema = Schema::new().with::<Sheep>().with::<Print>();
        self.ranges.iter().fold(schema, |schema, (kind, units)| schema.with_visible_within(*kind, *units))
    }

    fn start(&mut self, world: &mut World) {
        (0..40).for_each(|_| Self::spawn(world));
    }

    fn join(&mut self, world: &mut World, player: PlayerId, _: &Visitor<'_>, _: &[u8]) -> Result<(), Refusal> {
        let position = Self::anywhere(world);
        world.set_viewpoint(player, position);
        Ok(())
    }

    fn leave(&mut self, _: &mut World, _: PlayerId) {}

    fn input(&mut self, _: &mut World, _: PlayerId, _: &[u8]) -> Result<(), InputError> {
        Ok(())
    }

    fn tick(&mut self, world: &mut World) {
        let step = world.grid().shape().cell_units;
        let walked = |world: &mut World, Position { x, y }: Position| Position {
            x: (x + world.random_below(2 * step)).saturating_sub(step),
            y: (y + world.random_below(2 * step)).saturating_sub(step),
        };
        let objects: Vec<_> =
            world.objects().map(|(id, object)| (id, object.kind, object.position, object.visibility)).collect();
        for (id, kind, position, visibility) in objects {
            match world.random_below(30) {
                0..5 => {
                    let to = walked(world, position);
                    world.move_to(id, to);
                }
                5..10 => Self::change(world, id, kind),
                10 => drop(world.despawn(id)),
                11 => {
                    let player = world.players().next().filter(|_| visibility == Visibility::Nobody);
                    let hidden =
                        [Visibility::Nobody, Visibility::Everyone][usize::from(visibility == Visibility::Nobody)];
                    world.set_visibility(id, player.map_or(hidden, Visibility::Owner));
                }
                12 => world.set_visibility(id, Visibility::Everyone),
                _ => {}
            }
        }
        (0..3).for_each(|_| Self::spawn(world));
        for player in world.players().collect::<Vec<_>>() {
            let corner = world.grid().corner(world.view_of(player).expect("a player"));
            match world.random_below(6) {
                0 => {
                    let to = Self::anywhere(world);
                    world.set_viewpoint(player, to);
                }
                1 | 2 => {
                    let to = walked(world, corner);
                    world.set_viewpoint(player, to);
                }
                _ => {}
            }
        }
    }

    fn save(&self, _: &mut Vec<u8>) {}

    fn restore(&mut self, _: &[u8]) -> Result<(), RestoreError> {
        Ok(())
    }
}

/// A player's client.
struct Client {
    format: SnapshotFormat,
    /// Whether it is on another node.
    is_remote: bool,
    base: Base,
    view: CellIndex,
    /// What only this player receives, and whether its client does not have it yet.
    own: (Option<Vec<u8>>, bool),
    replica: Replica,
}

impl Client {
    fn receive(&mut self, mirror: &mut Mirror, names: &BTreeMap<u32, u16>, meadow: &Meadow) {
        let body = mirror.body(self.format, self.view, self.base);
        let encoding = self.format.encoding();
        let mut frame = Vec::new();
        let (own, is_news) = &self.own;
        let own = own.as_deref().filter(|_| *is_news || body.base_tick == 0);
        wire::write_player_header(encoding, 0, 0, own, &mut frame);
        if self.format.is_typed() && self.base.tick == 0 {
            wire::write_schema(encoding, mirror.schema(), &mut frame);
        }
        frame.extend_from_slice(&body.bytes[..body.data_bytes]);
        self.replica.apply(encoding, &frame).expect("a good snapshot");
        if self.format == SnapshotFormat::Json {
            self.check_named(&serde_json::from_slice(&frame).expect("JSON"), names, meadow);
        }
        self.own.1 = false;
        self.base = Base { tick: body.tick, view: self.view };
    }

    /// What is not visible to the player is not even mentioned.
    fn check_named(&self, snapshot: &Value, names: &BTreeMap<u32, u16>, meadow: &Meadow) {
        let grid = Grid::new(meadow.shape).expect("a good shape");
        for cell in snapshot["cells"].as_array().expect("cells") {
            let place = CellIndex(cell["cell"].as_u64().expect("a cell") as u32);
            let distance = distance(&grid, self.view, place);
            let ids = |name: &str| cell[name].as_array().cloned().unwrap_or_default();
            let upserted = ids("upserts").into_iter().map(|object| object["id"].clone());
            for id in ids("departed").into_iter().chain(upserted) {
                let kind = names[&(id.as_u64().expect("an id") as u32)];
                assert!(is_visible_at(&meadow.ranges, &meadow.shape, kind, distance), "{id} of {kind} in {cell}");
            }
        }
    }

    fn check(&self, room: &Room, player: PlayerId, meadow: &Meadow) {
        let grid = room.grid();
        let expected: BTreeSet<u32> = room
            .world()
            .objects()
            .filter(|(_, object)| {
                let distance = distance(grid, self.view, grid.cell_of(object.position));
                match object.visibility {
                    Visibility::Everyone => is_visible_at(&meadow.ranges, &meadow.shape, object.kind, distance),
                    Visibility::Owner(owner) => owner == player,
                    Visibility::Nobody => false,
                }
            })
            .map(|(id, _)| id.0)
            .collect();
        let seen: BTreeSet<u32> = self.replica.objects().map(|(id, _)| id.0).collect();
        assert_eq!(seen, expected, "from {:?} with {:?} after {:?}", self.view, self.format, self.base);
        for (id, seen) in self.replica.objects() {
            let object = room.world().object(id).expect("it is expected");
            let is_in_cell = object.visibility == Visibility::Everyone;
            let cell = is_in_cell.then(|| grid.cell_of(object.position));
            assert_eq!((seen.position, seen.kind, seen.cell), (object.position, object.kind, cell));
            assert_eq!(seen.state, object.state);
        }
    }
}

fn sent(update: &Arc<TickUpdate>) -> Arc<TickUpdate> {
    Arc::new(TickUpdate::from_bytes(&update.to_bytes()).expect("it was written here"))
}

fn play(shape: GridShape, ranges: BTreeMap<u16, u32>, seed: u64) {
    let meadow = Meadow { shape, ranges };
    let game = Meadow { shape, ranges: meadow.ranges.clone() };
    let mut room = Room::new(RoomOptions::default(), seed, Box::new(game)).expect("a map");
    let all = SnapshotFormat::ALL.into_iter().fold(FormatSet::default(), FormatSet::with);
    let keyframe = room.keyframe(all);
    let grid = room.grid().clone();
    let mut mirrors =
        [Arc::clone(&keyframe), sent(&keyframe)].map(|keyframe| Mirror::new(grid.clone(), 60, keyframe, [b"", b""]));
    let mut clients = BTreeMap::new();
    for index in 0..8 {
        let format = SnapshotFormat::ALL[index % 4];
        let joined = room.join(&Visitor::of_user(""), format, b"").expect("there is room");
        let is_remote = index >= 4;
        let (base, view, replica) = (Base::default(), CellIndex(0), Replica::default());
        clients.insert(joined.player, Client { format, is_remote, base, view, own: (None, false), replica });
    }
    let (mut chance, mut names) = (Chance(seed), BTreeMap::new());
    for tick in 1..=70 {
        let outcome = room.tick(tick);
        names.extend(room.world().objects().map(|(id, object)| (id.0, object.kind)));
        mirrors[1].apply(sent(&outcome.update));
        mirrors[0].apply(outcome.update);
        if chance.below(40) == 0 {
            let keyframe = room.keyframe(all);
            mirrors[1].apply(sent(&keyframe));
            mirrors[0].apply(keyframe);
        }
        for change in outcome.players {
            let client = clients.get_mut(&change.player).expect("a player");
            client.view = change.view;
            if let Some(own) = change.own {
                client.own = (Some(own.to_vec()), true);
            }
        }
        for (player, client) in &mut clients {
            // Some are slow, up to a base that is too old.
            if !(tick / 20 % 2 == 1 && player.0 % 3 == 0 || chance.below(4) == 0) {
                client.receive(&mut mirrors[usize::from(client.is_remote)], &names, &meadow);
                client.check(&room, *player, &meadow);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn a_player_sees_the_kinds_that_are_near_enough(
        (columns, rows, cell_units, near_cells) in (1..9_u16, 1..9_u16, 1..40_u32, 0..6_u16),
        ranges in proptest::collection::btree_map(1..5_u16, 1..160_u32, 0..4),
        seed: u64,
    ) {
        let shape = GridShape { columns, rows, cell_units, near_cells, far_cells: 0, far_interval_ticks: 1 };
        play(shape, ranges, seed);
    }
}

/// The scene of a figure: 200 objects on 9 × 9 cells in view, of which nine tenths are of one kind, all move in each tick.
struct Dust {
    within: Option<u32>,
}

const DUST_SHAPE: GridShape =
    GridShape { columns: 9, rows: 9, cell_units: 256, near_cells: 4, far_cells: 0, far_interval_ticks: 1 };

impl Simulation for Dust {
    fn grid(&self) -> GridShape {
        DUST_SHAPE
    }

    fn schema(&self) -> Schema {
        let schema = Schema::new().with::<Sheep>().with::<Print>();
        self.within.map_or(schema.clone(), |units| schema.with_visible_within(PRINT, units))
    }

    fn start(&mut self, world: &mut World) {
        for number in 0..200 {
            let position = Meadow::anywhere(world);
            let added = if number % 10 == 0 {
                world.add(position, Visibility::Everyone, &Sheep { heading: 0, wool: 7 })
            } else {
                world.add(position, Visibility::Everyone, &Print { age: 0 })
            };
            added.expect("there is room");
        }
    }

    fn join(&mut self, _: &mut World, _: PlayerId, _: &Visitor<'_>, _: &[u8]) -> Result<(), Refusal> {
        Ok(())
    }

    fn leave(&mut self, _: &mut World, _: PlayerId) {}

    fn input(&mut self, _: &mut World, _: PlayerId, _: &[u8]) -> Result<(), InputError> {
        Ok(())
    }

    fn tick(&mut self, world: &mut World) {
        let objects: Vec<_> = world.objects().map(|(id, object)| (id, object.kind, object.position)).collect();
        for (id, kind, Position { x, y }) in objects {
            let by = world.random_below(81);
            let (by, down) = (by % 9, by / 9);
            world.move_to(id, Position { x: (x + by).saturating_sub(4), y: (y + down).saturating_sub(4) });
            Meadow::change(world, id, kind);
        }
    }

    fn save(&self, _: &mut Vec<u8>) {}

    fn restore(&mut self, _: &[u8]) -> Result<(), RestoreError> {
        Ok(())
    }
}

/// Bytes of a snapshot on average, of a player who stands in the middle, or walks a cell in each tenth tick.
fn bytes_of(within: Option<u32>, format: SnapshotFormat, walks: bool) -> usize {
    let mut room = Room::new(RoomOptions::default(), 1, Box::new(Dust { within })).expect("a map");
    room.join(&Visitor::of_user(""), format, b"").expect("there is room");
    let keyframe = room.keyframe(FormatSet::default().with(format));
    let mut mirror = Mirror::new(room.grid().clone(), 60, keyframe, [b"", b""]);
    let (mut base, mut bytes) = (Base { tick: 0, view: CellIndex(40) }, 0);
    for tick in 1..=201 {
        mirror.apply(room.tick(tick).update);
        let view = CellIndex(if walks { 36 + (tick / 10 % 9) as u32 } else { 40 });
        let body = mirror.body(format, view, base);
        base = Base { tick: body.tick, view };
        bytes += if tick > 1 { body.bytes.len() } else { 0 };
    }
    bytes / 200
}

/// `docs/adr/0020-zones-of-a-view.md` has these figures.
#[test]
fn kinds_that_are_visible_near_save_bytes() {
    for walks in [false, true] {
        for format in SnapshotFormat::ALL {
            let everywhere = bytes_of(None, format, walks);
            let near = bytes_of(Some(256), format, walks);
            let ratio = near as f64 / everywhere as f64;
            println!("walks: {walks}, {format:?}: {everywhere} bytes, near {near}, {ratio:.2}");
            assert!(ratio < 0.4, "the nine cells of 81 have a ninth of nine tenths: {ratio:.2}");
        }
    }
}
