use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{dice::Dice, script::Script};

fn crowd(params: &Value) -> Script {
    Script::new(Box::new(Crowd::new(params).expect("good parameters")))
}

/// The position and the state of each object, by id.
fn shown(script: &Script) -> Vec<(ObjectId, Position, Vec<u8>)> {
    let mut objects = script.of_kind(MOVER);
    objects.sort_by_key(|(id, _)| *id);
    objects.into_iter().map(|(id, object)| (id, object.position, object.state)).collect()
}

#[test]
fn only_moving_objects_change() {
    for (permille, moving) in [(1_000, 200), (250, 50), (1, 0), (0, 0)] {
        let mut script = crowd(&json!({"objects": 200, "moving_permille": permille, "state_bytes": 16}));
        for _ in 0..100 {
            let before = shown(&script);
            script.ticks(1);
            let changed = before.iter().zip(shown(&script)).filter(|(before, after)| before.2 != after.2).count();
            assert_eq!(changed, moving);
        }
        let kept = shown(&script).iter().all(|(_, _, state)| state.len() == 16);
        assert!(kept, "states keep their length");
    }
}

#[test]
fn states_have_the_configured_size() {
    for bytes in [8, 9, 12, 1_024] {
        let mut script = crowd(&json!({"objects": 3, "state_bytes": bytes}));
        script.ticks(2);
        assert!(shown(&script).iter().all(|(_, _, state)| state.len() == bytes));
    }
}

#[test]
fn an_input_is_found_in_the_players_object() {
    for own in [false, true] {
        let mut script = crowd(&json!({"objects": 10, "player_objects": own}));
        let players: Vec<_> = (0..3).map(|_| script.join("")).collect();
        assert_eq!(script.room.object_count(), if own { 13 } else { 10 });
        for (stamp, player) in players.iter().enumerate() {
            assert!(script.input(*player, &(stamp as u64 + 1_000).to_le_bytes()));
        }
        script.ticks(5);
        for (stamp, player) in players.iter().enumerate() {
            let object = script.object(script.avatar(*player));
            assert_eq!(object.state[..8], (stamp as u64 + 1_000).to_le_bytes());
        }
        for bad in [&[][..], &[0; 7], &[0; 9]] {
            assert!(!script.input(players[0], bad));
        }
    }
}

#[test]
fn a_players_object_moves_its_view_and_leaves_with_it() {
    let mut script = crowd(&json!({"objects": 0, "player_objects": true}));
    let player = script.join("");
    for step in 0..500_u64 {
        script.input(player, &(step * 77).to_le_bytes());
        script.ticks(1);
        let world = script.room.world();
        assert_eq!(world.view_of(player), Some(world.grid().cell_of(script.place(player))));
    }
    script.room.leave(player);
    assert_eq!(script.room.object_count(), 0);
}

#[test]
fn players_without_objects_have_spread_viewpoints() {
    let mut script = crowd(&json!({"objects": 1, "columns": 10, "rows": 10}));
    let mut views: Vec<_> = (0..100)
        .map(|_| {
            let player = script.join("");
            script.room.world().view_of(player)
        })
        .collect();
    views.sort();
    views.dedup();
    assert!(views.len() > 70, "{}", views.len());
}

#[test]
fn a_crowd_without_objects_gives_players_none() {
    let mut script = crowd(&json!({"objects": 0}));
    let player = script.join("");
    assert!(!script.input(player, &[0; 8]));
    script.ticks(3);
    assert_eq!(script.room.world().avatar_of(player), None);
}

#[test]
fn players_of_a_full_world_get_no_object() {
    let simulation = Box::new(Crowd::new(&json!({"objects": 2, "player_objects": true})).expect("good parameters"));
    let options = dunlin_rooms::RoomOptions { objects_max: 3, ..dunlin_rooms::RoomOptions::default() };
    let mut script = Script::with(options, simulation);
    script.join("");
    assert_eq!(script.try_join("").expect_err("refused").code, 409);
}

#[test]
fn parameters_out_of_bounds_are_named() {
    for (params, name) in [
        (json!({"objects": 100_001}), "`objects`"),
        (json!({"state_bytes": 7}), "`state_bytes`"),
        (json!({"state_bytes": 1_025}), "`state_bytes`"),
        (json!({"moving_permille": 1_001}), "`moving_permille`"),
        (json!({"player_objects": 1}), "`player_objects`"),
        (json!({"players": 1}), "`players`"),
    ] {
        let complaint = Crowd::new(&params).err().expect("refused").0;
        assert!(complaint.contains(name), "{complaint}");
    }
}

fn play(script: &mut Script, dice: &mut Dice, ticks: u32) {
    for _ in 0..ticks {
        if script.room.player_count() < 20 {
            script.join("");
        }
        for _ in 0..5 {
            script.input(PlayerId(dice.below(25) as u32), &dice.below(1 << 30).to_le_bytes());
        }
        script.tick();
    }
}

/// The hash is the same for every build on every machine. It must change only with an intended change of the crowd.
#[test]
fn a_crowd_is_deterministic() {
    let params = json!({"moving_permille": 700, "player_objects": true});
    let mut script = crowd(&params);
    play(&mut script, &mut Dice(5), 1_000);
    assert_eq!(script.room.state_hash(), 0xc23b_ac30_f904_1ace);
}

#[test]
fn a_saved_crowd_continues() {
    for own in [false, true] {
        let params = json!({"moving_permille": 700, "player_objects": own});
        let (mut script, mut dice) = (crowd(&params), Dice(5));
        play(&mut script, &mut dice, 200);
        let mut other = script.restored(Box::new(Crowd::new(&params).expect("good parameters")));
        let mut other_dice = Dice(dice.0);
        for _ in 0..4 {
            assert_eq!(other.room.state_hash(), script.room.state_hash());
            play(&mut script, &mut dice, 50);
            play(&mut other, &mut other_dice, 50);
        }
        assert_eq!(other.room.state_hash(), script.room.state_hash());
        let mut saved = Vec::new();
        let mut crowd = Crowd::new(&params).expect("good parameters");
        crowd.save(&mut saved);
        saved.push(1);
        assert_eq!(crowd.restore(&saved), Err(RestoreError));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_crowd_restores_arbitrary_bytes_without_panic(saved in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut crowd = Crowd::new(&Value::Null).expect("good parameters");
        let _ = crowd.restore(&saved);
    }
}

#[test]
fn its_memory_is_that_of_its_objects_and_players() {
    let with_objects = |objects: u32| {
        let mut script = crowd(&json!({"objects": objects, "player_objects": true}));
        script.ticks(1);
        script
    };
    let (few, mut many) = (with_objects(10), with_objects(1_000));
    let before = many.room.game_bytes();
    assert!(before > few.room.game_bytes() + 900 * size_of::<Mover>(), "{before}");
    let players: Vec<_> = (0..100).map(|_| many.join("")).collect();
    assert!(many.room.game_bytes() >= before + 100 * size_of::<Mover>());
    for player in players {
        many.leave(player);
    }
    many.ticks(1);
    assert_eq!(many.room.game_bytes(), before);
}

#[test]
fn some_objects_are_visible_only_near() {
    for is_typed in [false, true] {
        let params = json!({"objects": 100, "near_permille": 300, "near_units": 400, "typed": is_typed});
        let mut script = crowd(&params);
        script.ticks(3);
        assert_eq!((script.of_kind(MOVER).len(), script.of_kind(NEAR_MOVER).len()), (70, 30));
        let schema = script.room.schema();
        assert_eq!((schema.visible_within(MOVER), schema.visible_within(NEAR_MOVER)), (None, Some(400)));
        assert_eq!(schema.kinds().len(), if is_typed { 2 } else { 0 });
        let of_one = script.of_kind(NEAR_MOVER).swap_remove(0);
        script.ticks(1);
        assert_ne!(script.object(of_one.0).state, of_one.1.state, "it changes as the others do");
    }
    assert!(crowd(&json!({})).room.schema().ranges().is_empty());
}

#[test]
fn objects_of_both_kinds_move_in_proportion() {
    let mut script = crowd(&json!({"objects": 100, "near_permille": 500, "moving_permille": 500, "state_bytes": 16}));
    let states = |script: &Script| {
        [MOVER, NEAR_MOVER].map(|kind| {
            let mut objects = script.of_kind(kind);
            objects.sort_by_key(|(id, _)| *id);
            objects
        })
    };
    let before = states(&script);
    script.ticks(1);
    let moving = before.into_iter().zip(states(&script)).map(|(before, after)| {
        before.iter().zip(&after).filter(|((_, before), (_, after))| before.state != after.state).count()
    });
    assert_eq!(moving.collect::<Vec<_>>(), [25, 25]);
}
