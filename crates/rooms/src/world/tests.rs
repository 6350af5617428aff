//! Compares worlds with a model without incremental state, which compares complete states before and after each tick.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use proptest::{collection::vec, prelude::*};

use super::{NewObject, Object, SavedForm, Scope, Visibility, World, WorldError};
use crate::{
    CellIndex, Grid, GridShape, ObjectId, PlayerId, Position, RoomOptions, SnapshotFormat, binary::Reader, state,
};

const SHAPE: GridShape =
    GridShape { columns: 4, rows: 3, cell_units: 10, near_cells: 1, far_cells: 0, far_interval_ticks: 1 };

const FORM: SavedForm = SavedForm { version: 2, is_of_other_map: false };

fn options() -> RoomOptions {
    RoomOptions {
        objects_max: 12,
        state_bytes_max: 3,
        events_per_tick_max: 4,
        event_bytes_max: 16,
        ..RoomOptions::default()
    }
}

fn grid() -> Grid {
    Grid::new(SHAPE).expect("a map")
}

fn world() -> World {
    World::new(grid(), &options(), 7)
}

fn at(x: u32, y: u32) -> Position {
    Position { x, y }
}

fn new_object(position: Position) -> NewObject<'static> {
    NewObject { position, kind: 1, visibility: Visibility::Everyone, state: b"s" }
}

/// The visibility of an object; players are identified by their order of joining.
#[derive(Clone, Copy, Debug)]
enum Sight {
    Everyone,
    Nobody,
    Owner(usize),
}

#[derive(Clone, Debug)]
enum Op {
    Spawn { x: u32, y: u32, sight: Sight, state: Vec<u8> },
    Despawn(usize),
    Move { object: usize, x: u32, y: u32 },
    SetState { object: usize, state: Vec<u8> },
    SetVisibility { object: usize, sight: Sight },
    Join,
    Leave(usize),
    Look { player: usize, x: u32, y: u32 },
    Tick,
}

fn sight() -> impl Strategy<Value = Sight> {
    prop_oneof![4 => Just(Sight::Everyone), 1 => Just(Sight::Nobody), 2 => (0..4usize).prop_map(Sight::Owner)]
}

fn op() -> impl Strategy<Value = Op> {
    let (x, y) = (0..45u32, 0..35u32);
    let state = || vec(0..3u8, 0..5);
    let object = 0..16usize;
    prop_oneof![
        3 => (x.clone(), y.clone(), sight(), state()).prop_map(|(x, y, sight, state)| Op::Spawn { x, y, sight, state }),
        2 => object.clone().prop_map(Op::Despawn),
        6 => (object.clone(), x.clone(), y.clone()).prop_map(|(object, x, y)| Op::Move { object, x, y }),
        2 => (object.clone(), state()).prop_map(|(object, state)| Op::SetState { object, state }),
        2 => (object, sight()).prop_map(|(object, sight)| Op::SetVisibility { object, sight }),
        1 => Just(Op::Join),
        1 => (0..4usize).prop_map(Op::Leave),
        1 => (0..4usize, x, y).prop_map(|(player, x, y)| Op::Look { player, x, y }),
        4 => Just(Op::Tick),
    ]
}

/// The players who see an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SeenBy {
    In(CellIndex),
    To(PlayerId),
}

#[derive(Default)]
struct Model {
    objects: BTreeMap<ObjectId, Object>,
    players: BTreeMap<PlayerId, Position>,
    /// Objects that have changed since the last tick.
    touched: BTreeSet<ObjectId>,
    /// The objects that were visible after the last tick.
    visible: BTreeMap<ObjectId, SeenBy>,
    /// The objects after the last tick.
    before: BTreeMap<ObjectId, Object>,
    /// Whether the world keeps them, because players receive what has changed.
    keeps_states: bool,
    last_object: u32,
    last_player: u32,
}

impl Model {
    fn visible_now(&self) -> BTreeMap<ObjectId, SeenBy> {
        let visible = self.objects.iter().filter_map(|(&id, object)| {
            let visible = match object.visibility {
                Visibility::Everyone => SeenBy::In(grid().cell_of(object.position)),
                Visibility::Owner(player) => SeenBy::To(player),
                Visibility::Nobody => return None,
            };
            Some((id, visible))
        });
        visible.collect()
    }

    /// Applies an operation to both, and compares the immediate results.
    fn apply(&mut self, op: &Op, world: &mut World) {
        let nth = |number: usize| self.objects.keys().nth(number).copied().unwrap_or(ObjectId(1_000));
        let player = |number: usize| PlayerId(number as u32 + 1);
        let visibility = |sight| match sight {
            Sight::Everyone => Visibility::Everyone,
            Sight::Nobody => Visibility::Nobody,
            Sight::Owner(number) => Visibility::Owner(player(number)),
        };
        match *op {
            Op::Spawn { x, y, sight, ref state } => {
                let (position, visibility) = (at(x, y), visibility(sight));
                let result = world.spawn(NewObject { position, kind: 5, visibility, state });
                if self.objects.len() == 12 {
                    assert_eq!(result, Err(WorldError::TooManyObjects));
                } else if state.len() > 3 {
                    assert_eq!(result, Err(WorldError::StateTooLong));
                } else {
                    self.last_object += 1;
                    let id = ObjectId(self.last_object);
                    assert_eq!(result, Ok(id));
                    let object =
                        Object { position: at(x.min(39), y.min(29)), kind: 5, visibility, state: state.clone() };
                    self.objects.insert(id, object);
                    self.touched.insert(id);
                }
            }
            Op::Despawn(number) => {
                let id = nth(number);
                assert_eq!(world.despawn(id), self.objects.remove(&id).is_some());
            }
            Op::Move { object, x, y } => {
                let id = nth(object);
                world.move_to(id, at(x, y));
                self.change(id, |object| object.position = at(x.min(39), y.min(29)));
            }
            Op::SetState { object, ref state } => {
                let id = nth(object);
                let expected = match self.objects.contains_key(&id) {
                    false => Err(WorldError::NoSuchObject),
                    true if state.len() > 3 => Err(WorldError::StateTooLong),
                    true => Ok(()),
                };
                assert_eq!(world.set_state(id, state), expected);
                if expected.is_ok() {
                    self.change(id, |object| object.state.clone_from(state));
                }
            }
            Op::SetVisibility { object, sight } => {
                let id = nth(object);
                let visibility = visibility(sight);
                world.set_visibility(id, visibility);
                self.change(id, |object| object.visibility = visibility);
            }
            Op::Join => {
                self.last_player += 1;
                let id = PlayerId(self.last_player);
                assert_eq!(world.add_player(SnapshotFormat::Protobuf, false), Some(id));
                self.players.insert(id, at(0, 0));
            }
            Op::Leave(number) => {
                assert_eq!(
                    world.remove_player(player(number)).is_some(),
                    self.players.remove(&player(number)).is_some()
                );
            }
            Op::Look { player: number, x, y } => {
                world.set_viewpoint(player(number), at(x, y));
                self.players.entry(player(number)).and_modify(|viewpoint| *viewpoint = at(x.min(39), y.min(29)));
            }
            Op::Tick => self.tick(world),
        }
    }

    fn change(&mut self, id: ObjectId, change: impl FnOnce(&mut Object)) {
        if let Some(object) = self.objects.get_mut(&id) {
            let before = object.clone();
            change(object);
            if *object != before {
                self.touched.insert(id);
            }
        }
    }

    /// Ends a tick in the world and in the model, and compares the changes.
    fn tick(&mut self, world: &mut World) {
        world.advance();
        let hash_before = world.state_hash();
        let ownerless_before = self.disown();
        world.settle();
        if ownerless_before == 0 {
            assert_eq!(world.state_hash(), hash_before, "settling changes nothing");
        }
        let visible = self.visible_now();
        let mut own_news = BTreeSet::new();
        let (mut departed, mut changed) = (BTreeSet::new(), BTreeSet::new());
        for (&id, &before) in self.visible.iter().filter(|(id, before)| visible.get(id) != Some(before)) {
            match before {
                SeenBy::In(cell) => _ = departed.insert((cell, id)),
                SeenBy::To(player) => _ = own_news.insert(player),
            }
        }
        for (&id, &now) in visible.iter().filter(|(id, _)| self.touched.contains(id)) {
            match now {
                SeenBy::In(cell) => _ = changed.insert((cell, id)),
                SeenBy::To(player) => _ = own_news.insert(player),
            }
        }
        compare_changes(world, &departed, &changed);
        self.compare_before(world, &changed);
        for player in world.player_table().iter() {
            assert_eq!(player.is_own_dirty, own_news.contains(&player.id), "{:?}", player.id);
            let own: Vec<ObjectId> = world.own_of(player).map(|view| view.id).collect();
            let to_it = visible.iter().filter(|(_, visible)| **visible == SeenBy::To(player.id)).map(|(&id, _)| id);
            assert_eq!(own, to_it.collect::<Vec<_>>());
        }
        self.keeps_states = !world.tick().is_multiple_of(3);
        world.forget_changes(self.keeps_states);
        self.before.clone_from(&self.objects);
        self.visible = visible;
        self.touched.clear();
        self.compare(world);
    }

    /// Compares what the world knows of changed objects as they were after the last tick.
    fn compare_before(&self, world: &World, changed: &BTreeSet<(CellIndex, ObjectId)>) {
        for (cell, slot) in world
            .objects
            .cells
            .dirty()
            .iter()
            .flat_map(|&cell| world.objects.changed_in(cell).map(move |slot| (cell, slot)))
        {
            assert!(changed.contains(&(cell, slot.id)));
            let was_here = self.keeps_states && self.visible.get(&slot.id) == Some(&SeenBy::In(cell));
            let expected = self.before.get(&slot.id).filter(|_| was_here);
            let corner = grid().corner(cell);
            let found = world.objects.before_in_cell(cell, slot);
            let found = found.map(|before| (before.x + corner.x, before.y + corner.y, before.state));
            assert_eq!(found, expected.map(|object| (object.position.x, object.position.y, &object.state[..])));
        }
    }

    /// Removes the owners that are not in the room from their objects; returns the number of these objects.
    fn disown(&mut self) -> usize {
        let players = &self.players;
        let is_gone = |object: &&mut Object| matches!(object.visibility, Visibility::Owner(player) if !players.contains_key(&player));
        self.objects.values_mut().filter(is_gone).map(|object| object.visibility = Visibility::Nobody).count()
    }

    fn compare(&self, world: &World) {
        world.objects.cells.assert_counted();
        world.players.assert_counted();
        assert_eq!(world.object_count(), self.objects.len());
        let mut objects: Vec<_> = world.objects().map(|(id, object)| (id, object.clone())).collect();
        objects.sort_unstable_by_key(|(id, _)| *id);
        assert_eq!(objects, self.objects.clone().into_iter().collect::<Vec<_>>());
        for cell in (0..12).map(CellIndex) {
            let of_cell = self.objects.iter().filter(|(_, object)| grid().cell_of(object.position) == cell);
            let actual: BTreeSet<ObjectId> = world.objects_in(cell).map(|(id, _)| id).collect();
            assert_eq!(actual, of_cell.clone().map(|(&id, _)| id).collect());
            let shown = of_cell.filter(|(_, object)| object.visibility == Visibility::Everyone);
            let hash = shown.fold(0, |hash, (&id, object)| {
                hash ^ crate::wire::object_hash(id, object.kind, object.position, &object.state)
            });
            assert_eq!(world.cell_hash(cell), hash);
            let viewers =
                self.players.iter().filter(|(_, viewpoint)| grid().band(grid().cell_of(**viewpoint), cell).is_some());
            assert_eq!(world.player_table().viewers(&grid(), cell), viewers.map(|(&id, _)| id).collect::<Vec<_>>());
        }
        // A restored world has also recomputed its hash.
        let mut saved = Vec::new();
        world.save(&mut saved);
        let mut reader = Reader::new(&saved);
        let restored =
            World::restore(grid(), &options(), Arc::default(), FORM, &mut reader).expect("what was saved is restored");
        assert_eq!(reader.left(), 0);
        assert_eq!(restored.state_hash(), world.state_hash());
        let mut again = Vec::new();
        restored.save(&mut again);
        assert_eq!(again, saved);
    }
}

fn compare_changes(
    world: &World,
    departed: &BTreeSet<(CellIndex, ObjectId)>,
    changed: &BTreeSet<(CellIndex, ObjectId)>,
) {
    let dirty: BTreeSet<CellIndex> = departed.iter().chain(changed).map(|&(cell, _)| cell).collect();
    assert_eq!(world.objects.cells.dirty(), dirty.into_iter().collect::<Vec<_>>());
    for cell in (0..12).map(CellIndex) {
        let of_cell = |all: &BTreeSet<(CellIndex, ObjectId)>| all.iter().filter(|(c, _)| *c == cell).copied().collect();
        let expected: Vec<(CellIndex, ObjectId)> = of_cell(departed);
        let actual: Vec<_> = world.objects.cells.departed(cell).iter().map(|&(cell, id, _)| (cell, id)).collect();
        assert_eq!(actual, expected);
        let actual: BTreeSet<ObjectId> = world.objects.changed_in(cell).map(|slot| slot.id).collect();
        let expected: Vec<(CellIndex, ObjectId)> = of_cell(changed);
        assert_eq!(actual, expected.into_iter().map(|(_, id)| id).collect());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_world_equals_its_model(ops in vec(op(), 0..80)) {
        let (mut world, mut model) = (world(), Model::default());
        for op in &ops {
            model.apply(op, &mut world);
        }
        model.tick(&mut world);
    }

    #[test]
    fn damaged_bytes_restore_a_valid_world_or_none(
        ops in vec(op(), 0..40), place in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>(),
    ) {
        let (mut world, mut model) = (world(), Model::default());
        for op in &ops {
            model.apply(op, &mut world);
        }
        let mut saved = Vec::new();
        world.save(&mut saved);
        let whole = saved.len();
        *place.get_mut(&mut saved) = byte;
        saved.truncate(cut.index(whole) + 1);
        if let Ok(mut restored) = World::restore(grid(), &options(), Arc::default(), FORM, &mut Reader::new(&saved)) {
            for id in restored.objects().map(|(id, _)| id).collect::<Vec<_>>() {
                restored.despawn(id);
            }
            prop_assert_eq!(restored.spawn(new_object(at(1, 1))).is_ok(), true);
            restored.settle();
        }
    }
}

/// Ends a tick; returns for each cell the changed and the departed ids.
fn tick(world: &mut World) -> Vec<(u32, Vec<u32>, Vec<u32>)> {
    world.advance();
    world.settle();
    let visible = world.objects.cells.dirty().iter().map(|&cell| {
        let changed = world.objects.changed_in(cell).map(|slot| slot.id.0).collect();
        (cell.0, changed, world.objects.cells.departed(cell).iter().map(|(_, id, _)| id.0).collect())
    });
    let visible = visible.collect();
    world.forget_changes(false);
    visible
}

#[test]
fn old_states_are_kept_only_while_they_are_needed() {
    let mut world = world();
    let id = world.spawn(new_object(at(5, 5))).expect("there is room");
    let mut bytes_after = |state: &[u8], keeps_states| {
        world.set_state(id, state).expect("it is short");
        world.settle();
        world.forget_changes(keeps_states);
        world.memory_bytes()
    };
    let few = [b"abc", b"abd"].map(|state| bytes_after(state, false));
    let more = [b"abe", b"abf", b"abg"].map(|state| bytes_after(state, true));
    assert_eq!((few[0], more[0]), (few[1], few[1]), "the first tick of a player who receives changes keeps nothing");
    assert!(more[1] > few[1] && more[2] == more[1]);
    assert_eq!(bytes_after(b"abh", false), few[1]);
}

state! {
    /// A kind.
    struct Lamp: 1 {
        is_on: bool,
    }
}

#[test]
fn a_struct_is_read_from_a_state_of_its_form() {
    let mut world = world();
    let lamp = world.add(at(5, 5), Visibility::Everyone, &Lamp { is_on: false }).expect("there is room");
    let turn_on = |lamp: &mut Lamp| lamp.is_on = true;
    assert_eq!((world.update(lamp, turn_on), world.object(lamp).map(|lamp| &*lamp.state)), (Ok(()), Some(&[1][..])));
    world.set_state(lamp, b"on").expect("it is short");
    assert_eq!(world.update(lamp, turn_on), Err(WorldError::WrongState), "a state of another form");
    assert_eq!(world.set(lamp, &Lamp { is_on: false }), Ok(()), "the whole state is replaced");
    let other = NewObject { kind: 2, state: &[1], ..new_object(at(5, 5)) };
    let other = world.spawn(other).expect("there is room");
    assert_eq!(world.update(other, turn_on), Err(WorldError::WrongState), "an object of another kind");
    assert_eq!(world.set(other, &Lamp { is_on: true }), Err(WorldError::WrongState));
    assert!(world.despawn(lamp));
    assert_eq!(world.update(lamp, turn_on), Err(WorldError::NoSuchObject));
}

#[test]
#[should_panic = "does not declare Lamp"]
fn a_struct_that_is_not_declared_ends_a_test() {
    let mut world = world();
    world.be_strict();
    let _ = world.add(at(5, 5), Visibility::Everyone, &Lamp { is_on: false });
}

#[test]
fn an_object_spawned_and_despawned_in_one_tick_is_invisible() {
    let mut world = world();
    let id = world.spawn(new_object(at(5, 5))).expect("there is room");
    assert!(world.despawn(id));
    assert!(!world.despawn(id));
    assert_eq!(tick(&mut world), []);
    let id = world.spawn(new_object(at(5, 5))).expect("there is room");
    assert_eq!(id, ObjectId(2), "numbers are never reused");
}

#[test]
fn an_object_that_returns_to_its_cell_has_not_departed() {
    let mut world = world();
    let id = world.spawn(new_object(at(5, 5))).expect("there is room");
    tick(&mut world);
    world.move_to(id, at(15, 5));
    world.move_to(id, at(6, 5));
    assert_eq!(tick(&mut world), [(0, vec![1], vec![])]);
    world.move_to(id, at(15, 25));
    assert_eq!(tick(&mut world), [(0, vec![], vec![1]), (9, vec![1], vec![])]);
    world.set_visibility(id, Visibility::Nobody);
    assert_eq!(tick(&mut world), [(9, vec![], vec![1])]);
    world.move_to(id, at(0, 0));
    assert_eq!(tick(&mut world), []);
    world.set_visibility(id, Visibility::Everyone);
    assert_eq!(tick(&mut world), [(0, vec![1], vec![])]);
    world.despawn(id);
    assert_eq!(tick(&mut world), [(0, vec![], vec![1])]);
}

#[test]
fn unchanged_objects_are_not_sent() {
    let mut world = world();
    let id = world.spawn(new_object(at(1_000, 1_000))).expect("there is room");
    tick(&mut world);
    world.move_to(id, at(39, 29));
    world.move_to(id, at(2_000, 29));
    world.set_state(id, b"s").expect("it is there");
    world.set_visibility(id, Visibility::Everyone);
    world.set_viewpoint(PlayerId(9), at(5, 5));
    world.set_avatar(PlayerId(9), Some(id));
    assert_eq!(tick(&mut world), []);
}

#[test]
fn events_are_limited_and_must_be_json() {
    let cases = [
        ("{\"a\":[1,2]}", Ok(())),
        ("\"12345678901234\"", Ok(())),
        ("\"123456789012345\"", Err(WorldError::BadEvent)),
        ("", Err(WorldError::BadEvent)),
        ("{", Err(WorldError::BadEvent)),
        ("1 2", Err(WorldError::BadEvent)),
        ("\"\n\"", Err(WorldError::BadEvent)),
        ("nul", Err(WorldError::BadEvent)),
        (" null\n", Ok(())),
    ];
    for (event, expected) in cases {
        assert_eq!(world().emit(Scope::All, event), expected, "{event}");
        assert_eq!(world().publish("news", event), expected, "{event}");
    }
    let mut world = world();
    assert_eq!(world.publish("", "1"), Err(WorldError::BadEvent));
    assert_eq!(world.publish(&"n".repeat(17), "1"), Err(WorldError::BadEvent));
    assert_eq!(world.publish(&"n".repeat(16), "1"), Ok(()));
    for _ in 1..4 {
        assert_eq!(world.emit(Scope::Near(CellIndex(3)), "1"), Ok(()));
    }
    assert_eq!(world.emit(Scope::All, "1"), Err(WorldError::TooManyEvents));
    world.forget_events();
    assert_eq!(world.emit(Scope::All, "1"), Ok(()));
}

#[test]
fn random_numbers_are_below_their_bound_and_depend_on_the_seed() {
    let numbers = |seed| {
        let mut world = World::new(grid(), &options(), seed);
        (0..50).map(|bound| world.random_below(bound + 1)).collect::<Vec<_>>()
    };
    assert!(numbers(1).iter().enumerate().all(|(bound, &number)| number as usize <= bound));
    assert_eq!(numbers(1), numbers(1));
    assert_ne!(numbers(1), numbers(2));
    assert_eq!(world().random(), 2_910_824_217_569_608_635, "the same in every build");
}

#[test]
fn every_part_of_a_world_is_in_its_hash() {
    let changes: [fn(&mut World); 11] = [
        |_| {},
        World::advance,
        |world| assert_ne!(world.random(), 0),
        |world| assert!(world.despawn(ObjectId(1))),
        |world| world.move_to(ObjectId(1), at(6, 5)),
        |world| world.set_state(ObjectId(1), b"t").expect("it is there"),
        |world| world.set_visibility(ObjectId(1), Visibility::Nobody),
        |world| world.set_viewpoint(PlayerId(1), at(1, 0)),
        |world| world.set_avatar(PlayerId(1), Some(ObjectId(1))),
        |world| assert!(world.remove_player(PlayerId(1)).is_some()),
        |world| world.emit(Scope::Player(PlayerId(1)), "1").expect("there is room"),
    ];
    let hashes = changes.map(|change| {
        let mut world = world();
        world.spawn(new_object(at(5, 5))).expect("there is room");
        world.add_player(SnapshotFormat::Json, false).expect("there is room");
        tick(&mut world);
        change(&mut world);
        world.state_hash()
    });
    assert_eq!(hashes.iter().collect::<BTreeSet<_>>().len(), hashes.len());
}
