//! Compares rewound worlds with a model that stores all positions of all ticks.

use std::{collections::BTreeMap, sync::Arc};

use proptest::{collection::vec, prelude::*, sample::Index};

use super::*;
use crate::{Grid, GridShape, NewObject, RoomOptions, Visibility, World, world::SavedForm};

const SHAPE: GridShape =
    GridShape { columns: 4, rows: 3, cell_units: 10, near_cells: 1, far_cells: 0, far_interval_ticks: 1 };

type Positions = BTreeMap<ObjectId, Position>;

fn world(ticks_max: u8) -> World {
    let mut world = World::new(Grid::new(SHAPE).expect("a map"), &RoomOptions::default(), 7);
    world.keep_past(ticks_max);
    world
}

fn spawn(world: &mut World, x: u32, y: u32) -> ObjectId {
    let position = Position { x, y };
    let object = NewObject { position, kind: 1, visibility: Visibility::Everyone, state: b"" };
    world.spawn(object).expect("there is room")
}

fn positions(world: &World) -> Positions {
    world.objects().map(|(id, object)| (id, object.position)).collect()
}

fn settle(world: &mut World) {
    world.settle();
    world.forget_changes(false);
}

fn restored(world: &World) -> Result<World, Unreadable> {
    let mut saved = Vec::new();
    world.save(&mut saved);
    world.save_past(&mut saved);
    let mut reader = Reader::new(&saved);
    let form = SavedForm { version: 2, is_of_other_map: false };
    let mut restored =
        World::restore(world.grid().clone(), &RoomOptions::default(), Arc::default(), form, &mut reader)?;
    restored.restore_past(&mut reader)?;
    assert_eq!(reader.left(), 0);
    Ok(restored)
}

#[derive(Clone, Debug)]
enum Op {
    Spawn(u32, u32),
    Despawn(Index),
    Move(Index, u32, u32),
    SetState(Index, u8),
    /// Moves to the second half of the tick.
    Advance,
    Restore,
}

fn op() -> impl Strategy<Value = Op> {
    let place = || (0..40_u32, 0..30_u32);
    prop_oneof![
        2 => place().prop_map(|(x, y)| Op::Spawn(x, y)),
        1 => any::<Index>().prop_map(Op::Despawn),
        5 => (any::<Index>(), place()).prop_map(|(which, (x, y))| Op::Move(which, x, y)),
        1 => (any::<Index>(), any::<u8>()).prop_map(|(which, state)| Op::SetState(which, state)),
        3 => Just(Op::Advance),
        1 => Just(Op::Restore),
    ]
}

fn check(world: &World, then: &Positions, tick: u32, ids: &[ObjectId]) -> Result<(), TestCaseError> {
    let rewound = world.rewind(tick);
    prop_assert_eq!(rewound.tick(), tick);
    for id in ids {
        prop_assert_eq!(rewound.position(*id), then.get(id).copied(), "{:?} after tick {}", id, tick);
    }
    for (place, radius) in [(Position { x: 17, y: 12 }, 9), (Position { x: 3, y: 28 }, 16), (Position::default(), 99)] {
        let far = |at: &Position| u64::from(at.x.abs_diff(place.x)).pow(2) + u64::from(at.y.abs_diff(place.y)).pow(2);
        let mut expected: Vec<_> = then.iter().map(|(id, at)| (far(at), *id, *at)).collect();
        expected.retain(|(distance, ..)| *distance <= u64::from(radius).pow(2));
        expected.sort_unstable_by_key(|(distance, id, _)| (*distance, *id));
        let near = rewound.near(place, radius).map(|near| (near.distance_squared, near.id, near.position));
        prop_assert_eq!(near.collect::<Vec<_>>(), expected, "after tick {}", tick);
    }
    Ok(())
}

proptest! {
    #[test]
    fn a_rewound_world_equals_the_past_one(ticks_max in 0..6_u8, ops in vec(op(), 1..120)) {
        let mut world = world(ticks_max);
        let mut ids = vec![spawn(&mut world, 1, 1)];
        settle(&mut world);
        // The state after each tick; the last entry is that of the last completed tick.
        let mut history = vec![positions(&world)];
        let mut is_in_tick = false;
        for op in ops {
            match op {
                Op::Spawn(x, y) => ids.push(spawn(&mut world, x, y)),
                Op::Despawn(which) => drop(world.despawn(*which.get(&ids))),
                Op::Move(which, x, y) => world.move_to(*which.get(&ids), Position { x, y }),
                Op::SetState(which, state) => drop(world.set_state(*which.get(&ids), &[state])),
                Op::Advance if is_in_tick => {
                    settle(&mut world);
                    history.push(positions(&world));
                    is_in_tick = false;
                }
                Op::Advance => {
                    world.advance();
                    is_in_tick = true;
                }
                Op::Restore if is_in_tick => continue,
                Op::Restore => {
                    let again = restored(&world).expect("what was saved is good");
                    prop_assert_eq!(again.state_hash(), world.state_hash());
                    world = again;
                }
            }
            let newest = history.len() - 1;
            let oldest = newest.saturating_sub(ticks_max.into());
            for (tick, then) in history.iter().enumerate().skip(oldest) {
                if ticks_max > 0 {
                    check(&world, then, tick as u32, &ids)?;
                }
            }
            prop_assert_eq!(world.rewind(u32::MAX).tick() as usize, newest);
            prop_assert_eq!(world.rewind(0).tick() as usize, oldest);
            let past = &world.objects.past;
            prop_assert!(past.ticks.len() <= ticks_max.into());
            let capacity: usize = past.ticks.iter().map(|past| past.entries.capacity()).sum();
            prop_assert_eq!(past.entry_capacity, capacity);
        }
    }
}

#[test]
fn a_world_without_a_past_returns_the_present() {
    let mut world = world(0);
    let id = spawn(&mut world, 1, 1);
    for x in 2..5 {
        world.advance();
        world.move_to(id, Position { x, y: 1 });
        settle(&mut world);
    }
    assert_eq!((world.rewind(1).tick(), world.rewind(1).position(id)), (3, Some(Position { x: 4, y: 1 })));
    assert_eq!(world.objects.past.memory_bytes(), 0);
    let mut saved = Vec::new();
    world.save_past(&mut saved);
    assert_eq!(saved, [0], "only the number of ticks");
    assert_eq!(restored(&world).expect("readable").state_hash(), world.state_hash());
}

/// A world after five ticks in which an object moved.
fn moved(ticks_max: u8) -> World {
    let mut world = world(ticks_max);
    let id = spawn(&mut world, 1, 1);
    settle(&mut world);
    for x in 2..7 {
        world.advance();
        world.move_to(id, Position { x, y: 1 });
        settle(&mut world);
    }
    world
}

#[test]
fn the_past_is_part_of_the_hash() {
    let world = moved(3);
    let mut other = moved(3);
    assert_eq!(world.state_hash(), other.state_hash());
    other.objects.past.ticks[1].hash ^= 1;
    assert_ne!(world.state_hash(), other.state_hash());
    // An unfinished tick is also part of the hash, and its order as well.
    let mut one = moved(3);
    one.move_to(ObjectId(1), Position { x: 9, y: 9 });
    one.move_to(ObjectId(1), Position { x: 6, y: 1 });
    assert_ne!(world.state_hash(), one.state_hash(), "`now` is not empty");
    assert_ne!(moved(2).state_hash(), world.state_hash());
}

#[test]
fn a_past_that_was_not_saved_is_refused() {
    let world = moved(3);
    let mut saved = Vec::new();
    world.save_past(&mut saved);
    let read = |bytes: &[u8]| {
        let mut world = moved(3);
        world.restore_past(&mut Reader::new(bytes))
    };
    assert_eq!(read(&saved), Ok(()));
    for length in 0..saved.len() {
        assert!(read(&saved[..length]).is_err(), "{length} bytes");
    }
    for place in 0..saved.len() {
        for value in [0, 1, 2, 7, 0x7f, 0x80, 0xff] {
            let mut bad = saved.clone();
            bad[place] = value;
            let _ = read(&bad);
        }
    }
    // Ticks that are not consecutive, and a last one that is not the world's.
    assert_eq!(read(&[3, 2, 3, 0, 5, 0, 0]), Err(Unreadable::Wrong));
    assert_eq!(read(&[3, 1, 4, 0, 0]), Err(Unreadable::Wrong));
    assert_eq!(read(&[3, 1, 5, 0, 0]), Ok(()));
    // The number of ticks at the limit, and one past it.
    assert_eq!(read(&[2, 2, 4, 0, 5, 0, 0]), Ok(()));
    assert_eq!(read(&[1, 2, 4, 0, 5, 0, 0]), Err(Unreadable::Wrong));
}
