use dunlin_protocol::Encoding;
use dunlin_rooms::{Angle, Object, Position, RoomInfo, RoomOptions, State};
use serde_json::json;

use super::*;
use crate::{
    dice::Dice,
    script::{ScopedEvent, Script, events},
};

fn game(params: &Value) -> Script {
    Script::new(Box::new(TagGame::new(params).expect("good parameters")))
}

/// A duel in a room: the players stand at known places, and can be tagged.
fn duel(params: &Value) -> (Script, PlayerId, PlayerId) {
    let info = RoomInfo { channel: "tag:1".into(), seed: 42, ..RoomInfo::default() };
    let simulation = Box::new(TagGame::new(params).expect("good parameters"));
    let mut script = Script::with_info(RoomOptions::default(), info, simulation);
    let (ada, ben) = placed(&mut script);
    (script, ada, ben)
}

fn placed(script: &mut Script) -> (PlayerId, PlayerId) {
    let ada = script.join_as(&Visitor::of_user("ada"), r#"{"name":"Ada"}"#).expect("let in");
    let ben = script.join(r#"{"name":"Ben"}"#);
    script.ticks(90);
    for (player, place) in [(ada, Position { x: 1_000, y: 2_000 }), (ben, Position { x: 1_600, y: 2_000 })] {
        run_to(script, player, place);
    }
    (ada, ben)
}

fn run_to(script: &mut Script, player: PlayerId, to: Position) {
    for _ in 0..2_000 {
        let from = script.place(player);
        let way = |from: u32, to: u32| i64::from(to) - i64::from(from);
        let (x, y) = (way(from.x, to.x), way(from.y, to.y));
        if (x, y) == (0, 0) {
            script.input(player, &[0, 0, 0]);
            script.ticks(1);
            return;
        }
        // Full speed is 127 and covers about ten units per tick, so 12 covers about one unit.
        let [dx, dy] = [x, y].map(|way| (way * 12).clamp(-90, 90) as i8);
        script.input(player, &[0, dx.cast_unsigned(), dy.cast_unsigned()]);
        script.ticks(1);
    }
    panic!("the player does not arrive");
}

fn shoot(script: &mut Script, player: PlayerId, seen_tick: u32, at: Position) -> bool {
    let angle = (Angle::between(script.place(player), at).to_bits() >> 16) as u16;
    let data = [&[1][..], &seen_tick.to_le_bytes(), &angle.to_le_bytes()].concat();
    script.input(player, &data)
}

fn condition(script: &Script, player: PlayerId) -> u8 {
    script.object(script.avatar(player)).state[3]
}

fn score(script: &Script, player: PlayerId) -> u32 {
    let avatar = script.avatar(player).0.to_le_bytes();
    let labels = script.of_kind(objects::Label::KIND);
    let (_, Object { state, .. }) = labels.iter().find(|(_, label)| label.state.starts_with(&avatar)).expect("a label");
    u32::from_le_bytes(state[4..8].try_into().expect("4 bytes"))
}

fn named<'a>(emitted: &'a [ScopedEvent], name: &str) -> Vec<&'a Value> {
    emitted.iter().filter_map(|(_, event)| event.get(name)).collect()
}

#[test]
fn a_joining_player_has_a_runner_a_label_and_a_welcome() {
    let mut script = game(&json!({"score_limit": 7}));
    let ada = script.join(r#"{"name":" Ada ","colour":3}"#);
    let avatar = script.avatar(ada);
    assert_eq!(script.object(avatar).state, [3, 0, 0, 2], "safe at first");
    let emitted = script.ticks(1);
    let welcome = json!({"welcome": {"player": avatar.0, "name": "Ada", "round": 1, "score_limit": 7}});
    assert!(emitted.contains(&(Some(vec![ada]), welcome)), "{emitted:?}");
    let leader = json!({"player": avatar.0, "name": "Ada", "colour": 3, "score": 0});
    let scores = json!({"scores": {"round": 1, "score_limit": 7, "runners": 1, "leaders": [leader]}});
    assert!(emitted.contains(&(None, scores)), "{emitted:?}");
    assert_eq!(script.room.world().view_of(ada), Some(script.room.grid().cell_of(script.place(ada))));
    script.ticks(60);
    assert_eq!(condition(&script, ada), 0);
    assert_eq!(script.try_join("7").expect_err("refused").code, 400);
    script.room.leave(ada);
    assert_eq!(script.room.object_count(), 0);
}

#[test]
fn players_run_as_clients_predict() {
    let (mut script, ada, _) = duel(&Value::Null);
    let way = |tick: i64| (127 * 640 * tick).div_euclid(127 * 60);
    let (start, tick) = (script.place(ada), i64::from(script.room.tick_number()));
    script.input(ada, &[0, 127, 0]);
    script.ticks(30);
    let x = start.x + u32::try_from(way(tick + 30) - way(tick)).expect("to the right");
    assert_eq!(script.place(ada), Position { x, y: start.y });
    assert_eq!(script.object(script.avatar(ada)).state[1..3], [127, 0]);
}

#[test]
fn a_shot_tags_its_target_and_scores_a_point() {
    let (mut script, ada, ben) = duel(&Value::Null);
    let (seen, target) = (script.room.tick_number(), script.place(ben));
    assert!(shoot(&mut script, ada, seen, target));
    let emitted = script.ticks(30);
    let tagged = named(&emitted, "tagged");
    assert_eq!(tagged.len(), 1, "{emitted:?}");
    assert_eq!((&tagged[0]["by_name"], &tagged[0]["name"]), (&json!("Ada"), &json!("Ben")));
    assert_eq!((score(&script, ada), score(&script, ben)), (1, 0));
    assert_eq!(condition(&script, ben), 1, "out");
    assert!(script.of_kind(objects::Projectile::KIND).is_empty());
    // A runner that is out does not run or shoot, and returns elsewhere.
    script.input(ben, &[0, 127, 0]);
    assert!(shoot(&mut script, ben, seen, target));
    script.ticks(10);
    assert_eq!(script.place(ben), target);
    assert!(script.of_kind(objects::Projectile::KIND).is_empty());
    script.ticks(120);
    assert_ne!(script.place(ben), target);
    assert_eq!(condition(&script, ben), 2, "safe for a second");
    script.ticks(60);
    assert_eq!(condition(&script, ben), 0);
}

/// Ben runs across Ada's line of fire. Ada sees him 12 ticks late, and aims at the place where, in this view, he meets
/// the projectile.
fn shot_at_a_moving_target(claimed_lag_ticks: u32) -> usize {
    const LAG: u32 = 12;
    let (mut script, ada, ben) = duel(&Value::Null);
    script.input(ben, &[0, 0, (-127_i8).cast_unsigned()]);
    script.ticks(LAG + 10);
    let now = script.room.tick_number();
    let seen = script.room.world().rewind(now - LAG).position(script.avatar(ben)).expect("he was there");
    // A projectile needs 600 / 25 = 24 ticks; until then he runs 24 × 10.67 units.
    let meeting = Position { x: seen.x, y: seen.y - 270 };
    assert!(shoot(&mut script, ada, now.wrapping_sub(claimed_lag_ticks), meeting));
    named(&script.ticks(36), "tagged").len()
}

#[test]
fn a_shot_at_a_moving_target_hits_with_rewind_and_misses_without() {
    assert_eq!(shot_at_a_moving_target(12), 1);
    assert_eq!(shot_at_a_moving_target(0), 0, "judged by the newest positions");
    assert_eq!(shot_at_a_moving_target(u32::MAX / 2), 0, "a tick that has not been cannot be seen");
}

#[test]
fn runners_reload() {
    let (mut script, ada, _) = duel(&Value::Null);
    let mut shots = 0;
    let mut last = Vec::new();
    for _ in 0..48 {
        let seen = script.room.tick_number();
        assert!(shoot(&mut script, ada, seen, Position { x: 1_000, y: 100 }));
        let now = script.of_kind(objects::Projectile::KIND);
        shots += now.iter().filter(|(id, _)| !last.contains(id)).count();
        last = now.into_iter().map(|(id, _)| id).collect();
        script.ticks(1);
    }
    assert_eq!(shots, 2, "one in 400 ms, which are 24 ticks");
    script.ticks(36);
    assert!(script.of_kind(objects::Projectile::KIND).is_empty(), "they do not fly on");
}

#[test]
fn away_players_are_safe_and_returning_ones_continue() {
    let (mut script, ada, ben) = duel(&Value::Null);
    let target = script.place(ben);
    script.input(ben, &[0, 50, 0]);
    script.room.away(ben);
    script.ticks(1);
    assert_eq!(script.object(script.avatar(ben)).state[1..], [0, 0, 3], "it stands, and is shown as away");
    let seen = script.room.tick_number();
    shoot(&mut script, ada, seen, target);
    assert!(named(&script.ticks(40), "tagged").is_empty());
    assert!(script.room.back(ben, &Visitor::of_user(""), Encoding::Json));
    assert_eq!(condition(&script, ben), 2, "safe for a second");
    script.ticks(61);
    let seen = script.room.tick_number();
    shoot(&mut script, ada, seen, target);
    assert_eq!(named(&script.ticks(40), "tagged").len(), 1);
}

#[test]
fn idle_players_are_kicked_and_away_players_are_not() {
    let mut script = game(&json!({"idle_limit_s": 2}));
    let (ada, ben, cyd) = (script.join(""), script.join(""), script.join(""));
    script.room.away(cyd);
    let mut kicked = Vec::new();
    for tick in 0..240 {
        if tick % 30 == 0 {
            script.input(ada, &[0, 0, 0]);
        }
        kicked.extend(script.tick().removals.kicked);
    }
    assert_eq!(kicked.len(), 1, "{kicked:?}");
    assert_eq!((kicked[0].0, &*kicked[0].1), (ben, "idle for 2 seconds"));
    let here = |player| script.room.world().is_player(player);
    assert!(here(ada) && !here(ben) && here(cyd));
}

#[test]
fn a_round_ends_with_a_winner_and_the_next_one_begins() {
    let (mut script, ada, ben) = duel(&json!({"score_limit": 1}));
    let (seen, target) = (script.room.tick_number(), script.place(ben));
    shoot(&mut script, ada, seen, target);
    let emitted = script.ticks(30);
    let over = named(&emitted, "round_over");
    assert_eq!((over.len(), &over[0]["name"], &over[0]["round"]), (1, &json!("Ada"), &json!(1)));
    // Runners cannot shoot between rounds.
    let seen = script.room.tick_number();
    shoot(&mut script, ada, seen, target);
    assert!(script.of_kind(objects::Projectile::KIND).is_empty());
    let emitted = script.ticks(300);
    assert_eq!(named(&emitted, "round_started"), [&json!({"round": 2, "score_limit": 1})]);
    assert_eq!((score(&script, ada), condition(&script, ben)), (0, 2));
    assert!(named(&emitted, "scores").iter().any(|scores| scores["round"] == 2));
}

#[test]
fn the_room_closes_after_the_last_round() {
    let (mut script, ada, ben) = duel(&json!({"score_limit": 1, "rounds": 1}));
    let (seen, target) = (script.room.tick_number(), script.place(ben));
    shoot(&mut script, ada, seen, target);
    // The room waits for the backend's answer to the result.
    let mut calls = Vec::new();
    for _ in 0..30 {
        let outcome = script.tick();
        assert_eq!(outcome.removals.closing, None);
        calls.extend(outcome.calls.sent);
    }
    assert!(script.answer(calls[0].id, Ok(b"{}")));
    assert_eq!(script.tick().removals.closing.as_deref(), Some("the last round is over"));
}

#[test]
fn the_room_closes_at_once_without_a_backend_and_in_time_if_it_hangs() {
    let closes_after = |calls_max: usize| {
        let options = RoomOptions { calls_max, ..RoomOptions::default() };
        let params = json!({"score_limit": 1, "rounds": 1});
        let mut script = Script::with(options, Box::new(TagGame::new(&params).expect("good parameters")));
        let (ada, ben) = placed(&mut script);
        let (seen, target) = (script.tick_number(), script.place(ben));
        shoot(&mut script, ada, seen, target);
        assert!((0..30).any(|_| !named(&script.ticks(1), "round_over").is_empty()), "a runner is hit");
        (0..1_000).find(|_| script.tick().removals.closing.is_some())
    };
    assert_eq!(closes_after(0), Some(0));
    let timeout = 3 * 60;
    assert!(closes_after(64).is_some_and(|ticks| (timeout - 2..=timeout).contains(&ticks)), "{:?}", closes_after(64));
}

/// Plays a round that Ada wins at once, and returns the game's call to the backend.
fn won_round(script: &mut Script, ada: PlayerId, ben: PlayerId) -> dunlin_rooms::GameCall {
    let (seen, target) = (script.tick_number(), script.place(ben));
    shoot(script, ada, seen, target);
    let mut calls: Vec<_> = (0..30).flat_map(|_| script.tick().calls.sent).collect();
    assert_eq!(calls.len(), 1, "{calls:?}");
    calls.remove(0)
}

#[test]
fn the_backend_gets_the_result_of_a_round_and_players_see_its_answer() {
    let (mut script, ada, ben) = duel(&json!({"score_limit": 1}));
    let call = won_round(&mut script, ada, ben);
    assert_eq!(&*call.method, "round_over");
    let scores = json!([{"user": "ada", "name": "Ada", "score": 1}, {"user": "", "name": "Ben", "score": 0}]);
    let sent: Value = serde_json::from_slice(&call.data).expect("JSON");
    assert_eq!(sent, json!({"room": "tag:1", "round": 1, "scores": scores}));

    // A restored copy waits for the same answer.
    let mut copy = script.restored(Box::new(TagGame::new(&json!({"score_limit": 1})).expect("good")));
    for script in [&mut script, &mut copy] {
        assert!(script.answer(call.id, Ok(br#"{"message":"Ada is first of the day"}"#)));
        let shown = json!({"round": 1, "message": "Ada is first of the day"});
        assert_eq!(named(&script.ticks(1), "result"), [&shown]);
    }
    assert_eq!(script.state_hash(), copy.state_hash());
}

#[test]
fn players_see_why_a_result_is_lost() {
    let long = "x".repeat(1_000);
    let refused = |message: &str| CallError::Refused(Refusal { code: 1_000, message: message.into() });
    for (error, shown) in [
        (CallError::Failed, "failed"),
        (CallError::Lost, "lost"),
        (refused("the season is over"), "the season is over"),
        (refused(&long), &long[..200]),
    ] {
        let (mut script, ada, ben) = duel(&json!({"score_limit": 1}));
        let call = won_round(&mut script, ada, ben);
        assert!(script.answer(call.id, Err(error)));
        assert_eq!(named(&script.ticks(1), "result"), [&json!({"round": 1, "error": shown})]);
        assert!(!named(&script.ticks(400), "round_started").is_empty(), "the game continues");
    }
}

#[test]
fn malformed_backend_answers_are_harmless() {
    for answer in [&b""[..], b"no JSON", b"[7]", b"{\"message\":7}", &[255; 40]] {
        let (mut script, ada, ben) = duel(&json!({"score_limit": 1}));
        let call = won_round(&mut script, ada, ben);
        assert!(script.answer(call.id, Ok(answer)));
        assert_eq!(named(&script.ticks(1), "result"), [&json!({"round": 1, "message": ""})], "{answer:?}");
    }
}

#[test]
fn lists_show_the_round_and_the_last_of_several_is_locked() {
    let (mut script, ada, ben) = duel(&json!({"score_limit": 1, "rounds": 2}));
    let listed = |script: &Script| {
        let listing = script.world().listing();
        (serde_json::from_str::<Value>(&listing.metadata).expect("JSON"), listing.is_locked)
    };
    assert_eq!(listed(&script), (json!({"round": 1, "phase": "playing"}), false));
    let call = won_round(&mut script, ada, ben);
    assert_eq!(listed(&script), (json!({"round": 1, "phase": "over"}), false));
    assert!(script.answer(call.id, Ok(b"")));
    script.ticks(301);
    assert_eq!(listed(&script), (json!({"round": 2, "phase": "last"}), true));
    assert_eq!(script.try_join("").expect_err("a locked room").code, 423);
    // A player who is away can still return.
    script.reconnect(ada);
}

#[test]
fn a_room_with_one_round_is_open() {
    let script = game(&json!({"rounds": 1}));
    let listing = script.world().listing();
    assert_eq!((&*listing.metadata, listing.is_locked), (r#"{"phase":"last","round":1}"#, false));
}

#[test]
fn the_name_of_the_token_overrides_the_chosen_one() {
    let mut script = game(&Value::Null);
    let visitor = Visitor { info: br#"{"name":"Ada"}"#, ..Visitor::of_user("7") };
    script.join_as(&visitor, r#"{"name":"Ben"}"#).expect("let in");
    let emitted = script.ticks(1);
    assert_eq!(named(&emitted, "welcome")[0]["name"], "Ada");
}

#[test]
fn the_room_also_closes_if_the_backend_has_begun_more_rounds() {
    let (mut script, ada, ben) = duel(&json!({"score_limit": 1, "rounds": 1}));
    script.room.message(br#"{"start_round":true}"#).expect("taken");
    script.ticks(61);
    let (seen, target) = (script.room.tick_number(), script.place(ben));
    shoot(&mut script, ada, seen, target);
    let is_closed = (0..240).any(|_| script.tick().removals.closing.is_some());
    assert!(is_closed, "the backend does not answer");
}

#[test]
fn the_backend_sets_the_score_limit_and_begins_a_round() {
    let mut script = game(&json!({"bots": 3}));
    let answer = |script: &mut Script, message: &str| {
        let answer = script.room.message(message.as_bytes());
        answer.map(|answer| serde_json::from_slice::<Value>(&answer).expect("JSON")).map_err(|refused| refused.code)
    };
    assert_eq!(answer(&mut script, "{}"), Ok(json!({"round": 1, "score_limit": 10, "players": 0})));
    assert_eq!(
        answer(&mut script, r#"{"score_limit":1000}"#),
        Ok(json!({"round": 1, "score_limit": 1_000, "players": 0}))
    );
    let both = r#"{"score_limit":3,"start_round":true}"#;
    assert_eq!(answer(&mut script, both), Ok(json!({"round": 2, "score_limit": 3, "players": 0})));
    assert_eq!(named(&script.ticks(1), "round_started"), [&json!({"round": 2, "score_limit": 3})]);
    for bad in ["", "7", "{", r#"{"score_limit":0}"#, r#"{"score_limit":1001}"#, r#"{"start_round":1}"#, r#"{"x":1}"#] {
        assert_eq!(answer(&mut script, bad), Err(460), "{bad}");
    }
}

#[test]
fn spectators_follow_the_leader_and_take_no_place() {
    let options = RoomOptions { players_max: 2, ..RoomOptions::default() };
    let mut script = Script::with(options, Box::new(TagGame::new(&Value::Null).expect("good parameters")));
    let ada = script.join("");
    let watching = Visitor { is_spectator: true, ..Visitor::default() };
    let spectator = script.room.join(&watching, Encoding::Json, b"").expect("let in").player;
    script.join("");
    assert_eq!(script.try_join("").expect_err("a full room").code, 400);
    script.ticks(1);
    let world = script.room.world();
    assert_eq!(world.avatar_of(spectator), Some(script.avatar(ada)), "of two without points the older one");
    assert_eq!(world.view_of(spectator), world.view_of(ada));
    assert_eq!((world.player_count(), world.spectator_count()), (2, 1));
}

#[test]
fn bots_play_by_themselves() {
    let mut script = game(&json!({"bots": 50, "score_limit": 1_000}));
    let emitted = script.ticks(60 * 30);
    assert_eq!(script.of_kind(objects::Runner::KIND).len(), 50);
    let scores = named(&emitted, "scores");
    let best = scores.last().expect("a scoreboard")["leaders"][0]["score"].as_u64();
    assert!(best >= Some(2), "{best:?}");
    assert_eq!(script.room.player_count(), 0);
}

#[test]
fn a_game_continues_from_where_it_was_saved() {
    let params = json!({"bots": 20, "score_limit": 4});
    let mut script = game(&params);
    let players: Vec<PlayerId> = (0..4).map(|_| script.join("")).collect();
    let mut dice = Dice(7);
    let play = |script: &mut Script, dice: &mut Dice| {
        for player in &players {
            let data = match dice.below(4) {
                0 => vec![0, dice.byte(), dice.byte()],
                1 => vec![1, dice.byte(), 0, 0, 0, dice.byte(), dice.byte()],
                2 => (0..dice.below(9)).map(|_| dice.byte()).collect(),
                _ => continue,
            };
            script.input(*player, &data);
        }
        script.ticks(1);
    };
    for tick in 0..600 {
        play(&mut script, &mut dice);
        if tick % 50 == 0 {
            let mut copy = script.restored(Box::new(TagGame::new(&params).expect("good parameters")));
            let mut same_dice = Dice(dice.0);
            let mut other = Dice(dice.0);
            for _ in 0..20 {
                play(&mut script, &mut same_dice);
                play(&mut copy, &mut other);
            }
            assert_eq!(script.room.state_hash(), copy.room.state_hash(), "after tick {tick}");
            dice = same_dice;
        }
    }
    let mut saved = Vec::new();
    TagGame::new(&params).expect("good parameters").save(&mut saved);
    for length in 0..saved.len() {
        assert!(TagGame::new(&params).expect("good parameters").restore(&saved[..length]).is_err(), "{length}");
    }
}

#[test]
fn events_have_the_documented_form() {
    let (mut script, ada, ben) = duel(&Value::Null);
    let (seen, target) = (script.room.tick_number(), script.place(ben));
    shoot(&mut script, ada, seen, target);
    let mut tagged = Vec::new();
    for _ in 0..30 {
        tagged.extend(events(script.tick()).into_iter().filter(|(_, event)| event.get("tagged").is_some()));
    }
    let (by, player) = (script.avatar(ada).0, script.avatar(ben).0);
    let expected = json!({"tagged": {
        "by": by, "by_name": "Ada", "player": player, "name": "Ben", "x": target.x, "y": target.y
    }});
    assert_eq!(tagged, [(Some(vec![ada, ben]), expected)]);
}

#[test]
fn its_memory_is_that_of_its_runners_and_shots() {
    let mut script = game(&json!({}));
    assert_eq!(script.room.game_bytes(), 0);
    let players: Vec<_> = (0..20).map(|_| script.join(r#"{"name":"Ada"}"#)).collect();
    let joined = script.room.game_bytes();
    assert!(joined >= 20 * (size_of::<TagRunner>() + 3), "{joined}");
    let shoot = [&[1][..], &0_u32.to_le_bytes(), &[0, 0]].concat();
    assert!(script.input(players[0], &shoot));
    assert!(script.room.game_bytes() > joined, "a shot is in flight");
    for player in players {
        script.leave(player);
    }
    script.ticks(120);
    assert_eq!(script.room.game_bytes(), 0);
}
