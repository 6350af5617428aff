use dunlin_rooms::{Object, ObjectId, RoomOptions, State, StateWriter, Visibility};
use proptest::prelude::*;
use serde_json::json;

use super::{
    objects::{Chest, ClueMarker, NameTag, Player, Purse},
    *,
};
use crate::{
    dice::Dice,
    script::{ScopedEvent, Script, events, publications},
};

const DIG: &[u8] = &[1];

fn hunt(params: &Value) -> Script {
    Script::new(Box::new(TreasureHunt::new(params).expect("good parameters")))
}

fn small() -> Script {
    hunt(&json!({"columns": 8, "rows": 8, "treasures": 40, "obstacles": 20, "clue_interval_s": 0}))
}

fn bytes_of<T: State>(state: &T) -> Vec<u8> {
    let mut bytes = Vec::new();
    assert_eq!(StateWriter::write(state, &mut bytes), 0);
    bytes
}

fn only(objects: Vec<(ObjectId, Object)>) -> (ObjectId, Object) {
    let [object] = <[_; 1]>::try_from(objects).expect("one object");
    object
}

/// Walks a player to a place at full speed. Returns the events of that time.
fn walk_to(script: &mut Script, player: PlayerId, to: Position) -> Vec<ScopedEvent> {
    let mut emitted = Vec::new();
    for _ in 0..10_000 {
        let from = script.place(player);
        let (x, y) = (i64::from(to.x) - i64::from(from.x), i64::from(to.y) - i64::from(from.y));
        if x.abs().max(y.abs()) <= 8 {
            script.input(player, &[0, 0, 0]);
            return emitted;
        }
        let [dx, dy] = [x, y].map(|way| way.clamp(-90, 90) as i8);
        script.input(player, &[0, dx.cast_unsigned(), dy.cast_unsigned()]);
        emitted.extend(script.ticks(1));
    }
    panic!("the player does not arrive");
}

#[test]
fn a_joining_player_has_an_avatar_a_tag_and_a_purse() {
    let mut script = small();
    let ada = script.join(r#"{"name":" Ada ","colour":3}"#);
    let avatar = script.avatar(ada);
    assert_eq!(script.object(avatar).state, [3, 0, 0, 0]);
    let (_, tag) = only(script.of_kind(NameTag::KIND));
    assert_eq!(tag.state, [&avatar.0.to_le_bytes()[..], &[0; 4], b"Ada"].concat());
    assert_eq!((tag.position, tag.visibility), (script.place(ada), Visibility::Everyone));
    let (_, purse) = only(script.of_kind(Purse::KIND));
    assert_eq!((purse.state, purse.visibility), (vec![0, 0, 0, 0, 0, 0, 100], Visibility::Owner(ada)));

    let looks = json!({"player": avatar.0, "name": "Ada", "colour": 3});
    let welcome = json!({"welcome": {"player": avatar.0, "name": "Ada", "colour": 3, "clue": null}});
    assert_eq!(script.ticks(1), [(Some(vec![ada]), json!({"joined": looks})), (Some(vec![ada]), welcome)]);
    let view = script.room.world().view_of(ada);
    assert_eq!(view, Some(script.room.grid().cell_of(script.place(ada))));
}

#[test]
fn a_leaving_player_removes_its_objects_and_sends_an_event_nearby() {
    let mut script = hunt(&json!({"everyone_sees_everything": true, "columns": 4, "rows": 4}));
    let (ada, ben) = (script.join(r#"{"name":"Ada"}"#), script.join(r#"{"name":"Ben"}"#));
    script.ticks(1);
    let (objects, avatar) = (script.room.object_count(), script.avatar(ada));
    script.room.leave(ada);
    assert_eq!(script.ticks(1), [(Some(vec![ben]), json!({"left": {"player": avatar.0, "name": "Ada"}}))]);
    assert_eq!(script.room.object_count(), objects - 3);
    assert!(!script.input(ada, DIG), "a player who has left cannot play");
}

#[test]
fn events_nearby_are_not_for_those_far_away() {
    let mut script = hunt(&json!({"near_cells": 0, "far_cells": 0, "treasures": 0, "obstacles": 0}));
    let ada = script.join("");
    script.ticks(1);
    let ben = script.join("");
    let emitted: Vec<_> = script.ticks(1).into_iter().filter(|(_, event)| event.get("joined").is_some()).collect();
    assert_ne!(script.room.world().view_of(ada), script.room.world().view_of(ben), "a map of 4,096 cells");
    assert_eq!(emitted.len(), 1);
    assert_eq!(emitted[0].0, Some(vec![ben]));
}

#[test]
fn malformed_joins_and_joins_to_a_full_map_are_refused() {
    let params = json!({"treasures": 0, "obstacles": 0});
    let simulation = Box::new(TreasureHunt::new(&params).expect("good parameters"));
    let mut script = Script::with(RoomOptions { objects_max: 5, ..RoomOptions::default() }, simulation);
    assert_eq!(script.try_join("{").expect_err("refused").code, 400);
    script.join("");
    for _ in 0..3 {
        let refused = script.try_join("").expect_err("refused");
        assert_eq!((refused.code, &*refused.message), (409, "the world is full"));
        assert_eq!(script.room.object_count(), 3, "a refused player leaves no objects");
    }
}

#[test]
fn players_walk_as_clients_predict() {
    let mut script = small();
    let ada = script.join("");
    walk_to(&mut script, ada, Position { x: 2_000, y: 2_000 });
    script.ticks(1);
    let way = |v: i64, tick: i64| (v * 640 * tick).div_euclid(127 * 60);
    let (start, tick) = (script.place(ada), i64::from(script.room.tick_number()));
    // The input requests more than the maximum speed, which the world limits.
    assert!(script.input(ada, &[0, 127, (-128_i8).cast_unsigned()]));
    let (vx, vy) = (127 * 127 / 181, -128 * 127 / 181);
    script.ticks(90);
    let predicted = |at: u32, v: i64| at.saturating_add_signed((way(v, tick + 90) - way(v, tick)) as i32);
    assert_eq!(script.place(ada), Position { x: predicted(start.x, vx), y: predicted(start.y, vy) });
    let avatar = script.object(script.avatar(ada));
    assert_eq!(avatar.state[1..3], [vx, vy].map(|v| (v as i8).cast_unsigned()));
}

#[test]
fn name_tags_stay_until_their_player_goes_to_another_cell() {
    let mut script = small();
    let ada = script.join("");
    let mut moves = 0;
    let mut last = script.place(ada);
    script.input(ada, &[0, 127, 0]);
    for _ in 0..200 {
        script.ticks(1);
        let (_, tag) = only(script.of_kind(NameTag::KIND));
        let grid = script.room.grid();
        assert_eq!(grid.cell_of(tag.position), grid.cell_of(script.place(ada)));
        moves += u32::from(tag.position != last);
        last = tag.position;
    }
    assert!((1..=5).contains(&moves), "{moves}");
}

#[test]
fn a_chest_is_dug_up_and_another_one_buried() {
    let mut script = small();
    let ada = script.join(r#"{"name":"Ada"}"#);
    let (chest, Object { position, .. }) = script.of_kind(Chest::KIND).remove(0);
    walk_to(&mut script, ada, position);
    assert!(script.input(ada, DIG));
    assert_eq!(script.object(script.avatar(ada)).state[1..], [0, 0, 1], "stands and digs");
    assert_eq!(script.ticks(59), []);
    assert_eq!(script.object(chest).state, [0], "its value is hidden");

    let emitted = script.ticks(1);
    let state = script.object(chest).state.clone();
    let value = u16::from_le_bytes([state[1], state[2]]);
    assert!((10..=50).contains(&value), "{value}");
    let avatar = script.avatar(ada);
    assert_eq!(state, bytes_of(&Chest { is_open: true, value, finder: Some(avatar) }));
    let place = script.place(ada);
    let found = json!({"found": {
        "player": avatar.0, "name": "Ada", "treasure": chest.0, "value": value, "x": place.x, "y": place.y
    }});
    assert_eq!(emitted, [(Some(vec![ada]), found)]);
    let (_, purse) = only(script.of_kind(Purse::KIND));
    assert_eq!(purse.state[..6], bytes_of(&Purse { score: value.into(), chests: 1, energy: 0 })[..6]);
    let (_, tag) = only(script.of_kind(NameTag::KIND));
    assert_eq!(tag.state[4..8], u32::from(value).to_le_bytes());

    script.ticks(599);
    assert_eq!((script.object(chest).state[0], script.of_kind(Chest::KIND).len()), (1, 40));
    script.ticks(1);
    assert_eq!((script.room.world().object(chest), script.of_kind(Chest::KIND).len()), (None, 40));
}

#[test]
fn digging_reaches_48_units_and_no_further() {
    for (distance, reaches) in [(48, true), (49, false)] {
        let mut treasures = Treasures::default();
        let mut script = Script::new(Box::new(Prepared(move |world: &mut World| {
            // Across a border of cells.
            let (place, chest) = (Position { x: 500, y: 500 }, Position { x: 500 + distance, y: 500 });
            let treasure = treasure::Treasure { value: 7, shares: 1, is_chest: true };
            let id = treasures.bury(world, chest, treasure).expect("a place");
            let find = treasures.dig(world, place, ObjectId(1));
            assert_eq!(find.map(|find| find.treasure), reaches.then_some(id));
            assert_eq!(treasures.dig(world, place, ObjectId(1)), None, "once");
        })));
        script.ticks(1);
    }
}

/// A simulation that does one thing in each tick.
struct Prepared<F>(F);

impl<F: FnMut(&mut World) + Send> Simulation for Prepared<F> {
    fn grid(&self) -> GridShape {
        MAP
    }
    fn schema(&self) -> Schema {
        super::objects::schema()
    }
    fn start(&mut self, _: &mut World) {}
    fn join(&mut self, _: &mut World, _: PlayerId, _: &Visitor<'_>, _: &[u8]) -> Result<(), Refusal> {
        Ok(())
    }
    fn leave(&mut self, _: &mut World, _: PlayerId) {}
    fn input(&mut self, _: &mut World, _: PlayerId, _: &[u8]) -> Result<(), InputError> {
        Ok(())
    }
    fn tick(&mut self, world: &mut World) {
        (self.0)(world);
    }
    fn save(&self, _: &mut Vec<u8>) {}
    fn restore(&mut self, _: &[u8]) -> Result<(), RestoreError> {
        Ok(())
    }
}

#[test]
fn digging_uses_energy_and_rest_restores_it() {
    let mut script = hunt(&json!({"treasures": 0, "obstacles": 0, "clue_interval_s": 0}));
    let ada = script.join("");
    let energy = |script: &Script| only(script.of_kind(Purse::KIND)).1.state[6];
    let doing = |script: &Script| script.object(script.avatar(ada)).state[3];
    let mut digs = 0;
    // A dig costs ten energy, and five are regained in the meantime.
    while script.input(ada, DIG) && doing(&script) == 1 {
        digs += 1;
        script.ticks(60);
    }
    assert_eq!((digs, energy(&script)), (19, 5));
    script.ticks(60);
    assert_eq!(energy(&script), 10);
    assert!(script.input(ada, DIG));
    assert_eq!((doing(&script), energy(&script)), (1, 0));
    script.ticks(60 * 25);
    assert_eq!(energy(&script), 100);
}

#[test]
fn walking_aborts_a_dig() {
    let mut script = small();
    let ada = script.join("");
    let state = |script: &Script| script.object(script.avatar(ada)).state[1..].to_vec();
    script.input(ada, DIG);
    script.input(ada, &[0, 0, 0]);
    script.input(ada, &[2, 3]);
    assert_eq!(state(&script), [0, 0, 1]);
    script.input(ada, &[0, 5, 0]);
    assert_eq!(state(&script), [5, 0, 0]);
    script.input(ada, &[2, 3]);
    assert_eq!(state(&script), [5, 0, 2 + 3]);
    script.ticks(119);
    assert_eq!(state(&script), [5, 0, 2 + 3]);
    script.ticks(1);
    assert_eq!(state(&script), [5, 0, 0]);
}

#[test]
fn a_clue_is_sent_to_all_and_yields_ten_shares() {
    let mut script = hunt(&json!({"columns": 4, "rows": 4, "treasures": 0, "obstacles": 0, "clue_interval_s": 60}));
    let players: Vec<_> = (0..3).map(|_| script.join("")).collect();
    script.ticks(60 * 60 - 1);
    assert!(script.of_kind(ClueMarker::KIND).is_empty());
    let emitted = script.ticks(1);
    let (marker, Object { position, state, .. }) = only(script.of_kind(ClueMarker::KIND));
    let (treasure, hidden) = only(script.of_kind(Chest::KIND));
    assert_eq!((hidden.position, hidden.visibility), (position, Visibility::Nobody));
    assert_eq!(state, bytes_of(&ClueMarker { shares: 10, value: 100, until: 7_200 }));
    let clue = json!({
        "x": position.x, "y": position.y, "treasure": treasure.0, "shares": 10, "value": 100, "until": 7_200
    });
    assert_eq!(emitted, [(None, json!({"clue": clue}))]);
    let (late, last) = (script.join(""), script.tick());
    let welcome = events(last).into_iter().find(|(players, _)| *players == Some(vec![late]));
    assert_eq!(welcome.map(|(_, event)| event["welcome"]["clue"].clone()), Some(clue));

    for player in &players {
        walk_to(&mut script, *player, position);
    }
    let mut emitted = Vec::new();
    for round in 1..=4_u8 {
        for player in &players {
            script.input(*player, DIG);
        }
        emitted.extend(script.ticks(60));
        if round < 4 {
            assert_eq!(script.object(marker).state[0], 10 - 3 * round);
        }
    }
    assert_eq!(emitted.iter().filter(|(_, event)| event.get("found").is_some()).count(), 10);
    assert_eq!(emitted.last(), Some(&(None, json!({"clue_over": {"treasure": treasure.0, "found": true}}))));
    assert!(script.of_kind(ClueMarker::KIND).is_empty() && script.of_kind(Chest::KIND).is_empty());
}

#[test]
fn an_ignored_clue_is_replaced_by_the_next() {
    let mut script = hunt(&json!({"treasures": 0, "obstacles": 0, "clue_interval_s": 1}));
    script.join("");
    script.ticks(60);
    let (treasure, _) = only(script.of_kind(Chest::KIND));
    let emitted = script.ticks(60);
    assert_eq!(emitted[0], (None, json!({"clue_over": {"treasure": treasure.0, "found": false}})));
    assert_eq!(emitted.len(), 2);
    assert_eq!((script.of_kind(ClueMarker::KIND).len(), script.of_kind(Chest::KIND).len()), (1, 1));
}

#[test]
fn the_leaderboard_is_published_when_it_changed_and_once_a_second_at_most() {
    let mut script = hunt(&json!({"treasures": 0, "obstacles": 0, "leaderboard_channel": "leaders:hunt"}));
    let published = |script: &mut Script, ticks| -> Vec<(Box<str>, Value)> {
        (0..ticks).flat_map(|_| publications(script.tick())).collect()
    };
    assert!(published(&mut script, 100).is_empty(), "the room is empty");
    let players: Vec<_> = (0..12).map(|_| script.join("")).collect();
    let emitted = published(&mut script, 1);
    assert_eq!(&*emitted[0].0, "leaders:hunt");
    assert_eq!(
        (emitted[0].1["players"].clone(), emitted[0].1["leaders"].as_array().map(Vec::len)),
        (json!(12), Some(10))
    );
    let first = json!({"player": script.avatar(players[0]).0, "name": "Hunter 1", "colour": 1, "score": 0});
    assert_eq!(emitted[0].1["leaders"][0], first);
    // Each hunter is three objects: its avatar, its tag and its purse.
    assert_eq!((emitted[0].1["objects"].clone(), script.room.object_count()), (json!(36), 36));
    assert!(published(&mut script, 600).is_empty(), "nothing is new");
    for player in &players[..10] {
        script.room.leave(*player);
        assert!(published(&mut script, 1).len() <= 1);
    }
    let emitted = published(&mut script, 60);
    assert_eq!(emitted.len(), 1, "what changed within the second, together");
    assert_eq!(
        (emitted[0].1["players"].clone(), emitted[0].1["leaders"].as_array().map(Vec::len)),
        (json!(2), Some(2))
    );
}

#[test]
fn a_small_world_has_fewer_objects() {
    let params = json!({"treasures": 100, "obstacles": 100, "clue_interval_s": 1});
    let simulation = Box::new(TreasureHunt::new(&params).expect("good parameters"));
    let mut script = Script::with(RoomOptions { objects_max: 150, ..RoomOptions::default() }, simulation);
    assert_eq!((script.room.object_count(), script.ticks(120)), (150, Vec::new()));
    assert!(script.of_kind(ClueMarker::KIND).is_empty());
}

#[test]
fn parameters_out_of_bounds_are_named() {
    for (params, name) in [
        (json!({"treasures": 50_001}), "`treasures`"),
        (json!({"obstacles": -1}), "`obstacles`"),
        (json!({"clue_interval_s": 86_401}), "`clue_interval_s`"),
        (json!({"leaderboard_channel": 1}), "`leaderboard_channel`"),
        (json!({"columns": 0}), "`columns`"),
        (json!({"treasure": 1}), "`treasure`"),
        (json!("x"), "the parameters"),
    ] {
        let complaint = TreasureHunt::new(&params).err().expect("refused").0;
        assert!(complaint.contains(name), "{complaint}");
    }
    assert!(TreasureHunt::new(&json!({"treasures": 50_000, "obstacles": 50_000, "clue_interval_s": 86_400})).is_ok());
}

/// Players who join, walk, dig, wave, send invalid inputs and leave at random.
fn play(script: &mut Script, dice: &mut Dice, players: &mut Vec<PlayerId>, ticks: u32) {
    for _ in 0..ticks {
        if players.len() < 50 {
            players.push(script.join(""));
        } else if dice.below(50) == 0 {
            let left = players.remove(dice.below(50) as usize);
            script.room.leave(left);
        }
        for _ in 0..10 {
            let player = players[dice.below(players.len() as u64) as usize];
            let data = [dice.byte() % 4, dice.byte(), dice.byte()];
            match data[0] {
                1 => script.input(player, &data[..1]),
                2 => script.input(player, &data[..2]),
                _ => script.input(player, &data),
            };
        }
        script.tick();
    }
}

fn busy() -> Box<dyn Simulation> {
    let params = json!({"columns": 8, "rows": 8, "clue_interval_s": 2, "leaderboard_channel": "leaders"});
    Box::new(TreasureHunt::new(&params).expect("good parameters"))
}

/// The hash is the same for every build on every machine. It must change only with an intended change of the hunt.
#[test]
fn a_hunt_of_fifty_players_is_deterministic() {
    let mut script = Script::new(busy());
    play(&mut script, &mut Dice(7), &mut Vec::new(), 1_000);
    let found: u32 = script.of_kind(NameTag::KIND).iter().map(|(_, tag)| u32::from(tag.state[4])).sum();
    assert!(found > 0, "something was found");
    assert_eq!(script.room.state_hash(), 0xdaca_9086_2fde_5e3d);
    let mut other = Script::new(busy());
    play(&mut other, &mut Dice(8), &mut Vec::new(), 1_000);
    assert_ne!(other.room.state_hash(), script.room.state_hash());
}

#[test]
fn a_saved_hunt_continues() {
    let (mut script, mut dice, mut players) = (Script::new(busy()), Dice(3), Vec::new());
    play(&mut script, &mut dice, &mut players, 500);
    let mut other = script.restored(busy());
    let (mut other_dice, mut other_players) = (Dice(dice.0), players.clone());
    assert_eq!(other.room.state_hash(), script.room.state_hash());
    for _ in 0..5 {
        play(&mut script, &mut dice, &mut players, 100);
        play(&mut other, &mut other_dice, &mut other_players, 100);
        assert_eq!(other.room.state_hash(), script.room.state_hash());
    }
}

#[test]
fn foreign_saved_states_are_refused() {
    let mut script = Script::new(busy());
    play(&mut script, &mut Dice(3), &mut Vec::new(), 200);
    let mut saved = Vec::new();
    let mut hunt = TreasureHunt::new(&Value::Null).expect("good parameters");
    script.room.save(&mut saved);
    assert_eq!(hunt.restore(&saved), Err(RestoreError), "the world is in front of it");
    saved.clear();
    hunt.save(&mut saved);
    assert_eq!(hunt.restore(&saved), Ok(()));
    for length in 0..saved.len() {
        assert_eq!(hunt.restore(&saved[..length]), Err(RestoreError), "{length}");
    }
    saved.push(0);
    assert_eq!(hunt.restore(&saved), Err(RestoreError));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_inputs_do_not_panic(
        inputs in prop::collection::vec((0_usize..6, prop::collection::vec(any::<u8>(), 0..5), 0_u32..40), 1..200)
    ) {
        let params = json!({"columns": 2, "rows": 3, "cell_units": 64, "treasures": 60, "obstacles": 0,
            "clue_interval_s": 1});
        let mut script = hunt(&params);
        let players: Vec<_> = (0..5).map(|_| script.join("")).collect();
        for (player, data, ticks) in inputs {
            // One in six inputs is from an unknown player.
            let player = players.get(player).copied().unwrap_or(PlayerId(99));
            let before = script.of_kind(Player::KIND);
            if !script.input(player, &data) {
                prop_assert_eq!(before, script.of_kind(Player::KIND), "a bad input changes nothing");
            }
            script.ticks(ticks);
            let (width, height) = script.room.grid().size_units();
            for player in &players {
                let Position { x, y } = script.place(*player);
                prop_assert!(x < width && y < height);
            }
            for (_, purse) in script.of_kind(Purse::KIND) {
                prop_assert!(purse.state[6] <= 100);
            }
            // The number of chests is constant, and a clue adds two objects.
            let objects = script.room.object_count();
            prop_assert!(objects == 60 + 15 || objects == 62 + 15, "{objects}");
        }
    }

    #[test]
    fn arbitrary_saved_bytes_do_not_panic(saved in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut hunt = TreasureHunt::new(&Value::Null).expect("good parameters");
        let _ = hunt.restore(&saved);
    }

    #[test]
    fn arbitrary_joins_do_not_panic(data in prop::collection::vec(any::<u8>(), 0..60)) {
        let mut script = small();
        let joined = script.room.join(&Visitor::of_user(""), dunlin_protocol::Encoding::Json, &data);
        prop_assert!(joined.is_ok() || joined.is_err_and(|refusal| refusal.code == 400));
    }
}

#[test]
fn its_memory_is_that_of_its_players_and_chests() {
    let mut script = small();
    let before = script.room.game_bytes();
    assert!(before >= 40 * size_of::<treasure::Treasure>(), "{before}");
    let players: Vec<_> = (0..50).map(|_| script.join(r#"{"name":"Ada"}"#)).collect();
    let joined = script.room.game_bytes();
    assert!(joined >= before + 50 * (size_of::<HuntPlayer>() + 3), "{before}, then {joined}");
    for player in players {
        script.leave(player);
    }
    assert_eq!(script.room.game_bytes(), before);
}
