//! Seats: a player outlives its client's connection for a grace period.

use dunlin_engine::host::{Step, TickRecord};
use dunlin_protocol::Encoding;
use dunlin_rooms::ObjectId;
use serde_json::{Value, json};

use crate::{
    hall::{Hall, Seen, options},
    node::api,
};

const ARENA: &str = "arena:a";
const GRACE_TICKS: u32 = 5;

fn hall(change: impl FnOnce(&mut dunlin_engine::options::RoomLimits)) -> Hall {
    let mut options = options();
    let limits = options.namespaces[0].room.as_mut().expect("rooms");
    limits.gives_seat_tokens = true;
    change(limits);
    let mut hall = Hall::new(2, options);
    hall.seat_grace_ticks = GRACE_TICKS;
    hall
}

fn open(hall: &mut Hall, name: &str, shard: u16) {
    hall.open(name, Encoding::Json, shard);
}

/// Joins and runs a tick; returns the data of the reply.
fn join(hall: &mut Hall, name: &str, data: &Value) -> Value {
    hall.join(name, ARENA, data);
    hall.tick();
    joined(hall, name)
}

fn joined(hall: &mut Hall, name: &str) -> Value {
    let messages = std::mem::take(&mut hall.seen(name).messages);
    let replies = messages.iter().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let reply = replies.into_iter().find(|reply| reply["id"] == 2).unwrap_or_else(|| panic!("{name}: {messages:?}"));
    if reply["error"].is_null() { reply["subscribe"]["data"].clone() } else { reply["error"].clone() }
}

fn token(data: &Value) -> Value {
    json!({ "seat_token": data["seat_token"] })
}

fn avatar(hall: &Hall, name: &str) -> Option<ObjectId> {
    hall.seen[name].replicas.get(ARENA)?.avatar()
}

fn players(hall: &Hall) -> usize {
    hall.only_room().1.room().player_count()
}

fn state_of(hall: &Hall, avatar: Option<ObjectId>) -> Option<Vec<u8>> {
    let world = hall.only_room().1.room().world();
    avatar.and_then(|avatar| world.object(avatar)).map(|object| object.state.clone())
}

#[test]
fn a_lost_connections_player_stays_for_the_grace_period() {
    for late_ticks in [0, 1] {
        let mut hall = hall(|_| {});
        open(&mut hall, "a", 0);
        let first = join(&mut hall, "a", &json!({}));
        assert_eq!(first["seat_resumed"], false);
        let player = avatar(&hall, "a");
        hall.forget("a");
        // The first tick handles the loss; the last one of the grace period handles the join.
        for _ in 0..GRACE_TICKS - 1 + late_ticks {
            hall.tick();
            assert_eq!((players(&hall), state_of(&hall, player).as_deref()), (1, Some(&b"away"[..])));
        }
        open(&mut hall, "b", 1);
        let second = join(&mut hall, "b", &token(&first));
        assert_eq!(second["seat_resumed"], late_ticks == 0, "{late_ticks} late");
        assert_ne!(second["seat_token"], first["seat_token"], "each join gets its own token");
        assert_eq!(avatar(&hall, "b") == player, late_ticks == 0, "{late_ticks} late");
        let state = if late_ticks == 0 { &b"back"[..] } else { b"me" };
        assert_eq!((players(&hall), state_of(&hall, avatar(&hall, "b")).as_deref()), (1, Some(state)));
        hall.check("b", ARENA);
    }
}

#[test]
fn a_new_connection_replaces_a_stale_one_of_its_player() {
    for shard in [0, 1] {
        let mut hall = hall(|_| {});
        open(&mut hall, "a", 0);
        let first = join(&mut hall, "a", &json!({}));
        let player = avatar(&hall, "a");
        open(&mut hall, "b", shard);
        let second = join(&mut hall, "b", &token(&first));
        assert_eq!((second["seat_resumed"].as_bool(), avatar(&hall, "b")), (Some(true), player));
        let unsubscribed = r#"{"push":{"channel":"arena:a","unsubscribe":{"code":2011,"reason":"seat taken over"}}}"#;
        assert_eq!(hall.seen("a").messages, [unsubscribed]);
        assert_eq!((players(&hall), hall.only_room().0.player_count()), (1, 1));
        // Messages of the old connection have no effect.
        hall.publish("a", ARENA, 1, b"shout");
        hall.forget("a");
        for _ in 0..2 * GRACE_TICKS {
            hall.tick();
            hall.check("b", ARENA);
        }
        assert_eq!(players(&hall), 1);
        // A token becomes invalid once its client proves that it has the next one.
        hall.publish("b", ARENA, 1, b"shout");
        open(&mut hall, "c", 0);
        assert_eq!(join(&mut hall, "c", &token(&first))["seat_resumed"], false);
        assert_eq!(players(&hall), 2);
    }
}

#[test]
fn unsubscribed_and_disconnected_players_leave_at_once() {
    let mut hall = hall(|_| {});
    for name in ["a", "b"] {
        open(&mut hall, name, 0);
        join(&mut hall, name, &json!({}));
    }
    hall.unsubscribe("a", ARENA);
    hall.tick();
    assert_eq!(players(&hall), 1);
    hall.node.ask_api(&json!({"disconnect": {"user": ""}}));
    hall.tick();
    assert_eq!(players(&hall), 0);
}

#[test]
fn without_a_grace_period_players_leave_with_their_connections() {
    let mut hall = hall(|_| {});
    hall.seat_grace_ticks = 0;
    open(&mut hall, "a", 0);
    join(&mut hall, "a", &json!({}));
    hall.forget("a");
    hall.tick();
    assert_eq!(players(&hall), 0);
}

#[test]
fn a_kicked_players_client_gets_the_reason() {
    let mut hall = hall(|_| {});
    for (name, shard) in [("a", 0), ("b", 0), ("c", 1)] {
        open(&mut hall, name, shard);
    }
    let lost = join(&mut hall, "c", &json!({}));
    for name in ["a", "b"] {
        join(&mut hall, name, &json!({}));
    }
    hall.forget("c");
    hall.publish("a", ARENA, 1, b"kick");
    hall.tick();
    assert_eq!((players(&hall), hall.only_room().0.player_count()), (1, 1), "an away player is kicked as well");
    let unsubscribed = r#"{"push":{"channel":"arena:a","unsubscribe":{"code":2012,"reason":"no sheep dogs"}}}"#;
    assert!(hall.seen("b").messages.iter().any(|message| message == unsubscribed), "{:?}", hall.seen("b").messages);
    for _ in 0..3 {
        hall.tick();
        hall.check("a", ARENA);
    }
    // The seat of a kicked player is invalid. The game decides whether its user may join again.
    open(&mut hall, "d", 1);
    assert_eq!(join(&mut hall, "d", &token(&lost))["seat_resumed"], false);
}

#[test]
fn the_backend_kicks_connected_and_away_players() {
    let mut hall = hall(|_| {});
    for (name, shard) in [("a", 0), ("b", 1), ("c", 1)] {
        open(&mut hall, name, shard);
        join(&mut hall, name, &json!({}));
    }
    open(&mut hall, "s", 0);
    join(&mut hall, "s", &json!({"seat": "spectator"}));
    open(&mut hall, "d", 0);
    let lost = join(&mut hall, "d", &json!({}));
    hall.forget("d");
    hall.tick();
    let mut kick = |player: u32, reason: &str| {
        hall.node.ask_api(&json!({"kick_from_room": {"channel": ARENA, "player": player, "reason": reason}}));
        hall.tick();
        std::mem::take(&mut hall.node.answers).iter().map(api::answer).collect::<Vec<_>>()
    };
    assert_eq!(kick(5, ""), [json!({"data": "1"})], "an away player");
    // At the limit of 16 bytes, and one past it.
    assert_eq!(kick(2, "no sheep dogs 16"), [json!({"data": "1"})]);
    assert_eq!(kick(1, "no sheep dogs, 17"), [json!({"error": 107})]);
    let nobody = json!({"refused": 404, "message": "no such player or spectator is in the room"});
    assert_eq!(kick(2, ""), std::slice::from_ref(&nobody), "the player has left");
    assert_eq!(kick(3, ""), [json!({"data": "1"})]);
    assert_eq!(kick(4, ""), [json!({"data": "1"})], "a spectator");
    assert_eq!((players(&hall), hall.only_room().0.player_count()), (1, 1));
    for (name, reason) in [("b", "no sheep dogs 16"), ("c", "kicked"), ("s", "kicked")] {
        let unsubscribed = json!({"push": {"channel": ARENA, "unsubscribe": {"code": 2012, "reason": reason}}});
        let messages = hall.seen(name).messages.clone();
        let unsubscribed = unsubscribed.to_string();
        assert!(messages.contains(&unsubscribed), "{name}: {messages:?}");
    }
    hall.check("a", ARENA);
    open(&mut hall, "e", 1);
    assert_eq!(join(&mut hall, "e", &token(&lost))["seat_resumed"], false);
}

#[test]
fn a_game_closes_its_room_with_a_reason() {
    let mut hall = hall(|_| {});
    for (name, shard) in [("a", 0), ("b", 1)] {
        open(&mut hall, name, shard);
        join(&mut hall, name, &json!({}));
        hall.seen(name).messages.clear();
    }
    hall.publish("a", ARENA, 1, b"close");
    hall.tick();
    hall.tick();
    assert!(hall.rooms.is_empty());
    let unsubscribed = r#"{"push":{"channel":"arena:a","unsubscribe":{"code":2010,"reason":"the sheep sleep"}}}"#;
    for name in ["a", "b"] {
        assert!(
            hall.seen(name).messages.iter().any(|message| message == unsubscribed),
            "{:?}",
            hall.seen(name).messages
        );
    }
}

#[test]
fn a_spectator_sees_the_room_without_a_seat() {
    let mut hall = hall(|_| {});
    for (name, shard) in [("a", 0), ("s", 1)] {
        open(&mut hall, name, shard);
    }
    join(&mut hall, "a", &json!({}));
    let data = join(&mut hall, "s", &json!({"seat": "spectator"}));
    assert_eq!(data, Value::Null, "a spectator gets no seat token");
    let world = hall.only_room().1.room().world();
    assert_eq!((world.player_count(), world.spectator_count()), (1, 1));
    // The spectator's input is not applied.
    hall.publish("s", ARENA, 1, b"shout");
    hall.tick();
    hall.tick();
    assert!(hall.seen("a").events.is_empty());
    assert!(hall.seen["s"].snapshots > 1 && avatar(&hall, "s").is_none());
    hall.forget("s");
    hall.tick();
    assert_eq!(hall.only_room().1.room().world().spectator_count(), 0);
}

#[test]
fn a_restart_keeps_players_and_drops_spectators() {
    let mut hall = hall(|_| {});
    for (name, data) in [("a", json!({})), ("s", json!({"seat": "spectator"}))] {
        open(&mut hall, name, 0);
        join(&mut hall, name, &data);
    }
    let (_, runner) = hall.rooms.values_mut().next().expect("a room");
    let steps = vec![Step::AllAway { grace_ticks: 10 }];
    runner.replay(runner.ticks_run() + 1, &TickRecord { state_hash: None, steps }).expect("it follows");
    let world = runner.room().world();
    assert_eq!((world.player_count(), world.spectator_count()), (1, 0));
}

/// A session of a user.
fn open_as(hall: &mut Hall, name: &str, user: &str, shard: u16) {
    hall.node.open(name, Encoding::Json, shard);
    hall.send_json(name, &json!({"id": 1, "connect": {"token": format!("user={user};info={{\"level\":3}}")}}));
    hall.seen.insert(name.to_owned(), Seen::default());
    hall.look();
    hall.seen(name).messages.clear();
}

#[test]
fn a_user_reconnects_without_a_token() {
    let mut hall = hall(|_| {});
    for (name, user) in [("a", "ann"), ("b", "ben")] {
        open_as(&mut hall, name, user, 0);
        join(&mut hall, name, &json!({}));
    }
    let player = avatar(&hall, "a");
    hall.forget("a");
    open_as(&mut hall, "c", "ann", 1);
    assert_eq!(join(&mut hall, "c", &json!({}))["seat_resumed"], true);
    assert_eq!(avatar(&hall, "c"), player);
    // A player with a client is not taken over by its user without a token.
    open_as(&mut hall, "d", "ben", 1);
    assert_eq!(join(&mut hall, "d", &json!({}))["seat_resumed"], false);
    assert_eq!(players(&hall), 3);
}

#[test]
fn one_seat_per_user_is_enforced_where_configured() {
    let mut hall = hall(|limits| limits.is_one_seat_per_user = true);
    open_as(&mut hall, "a", "ann", 0);
    join(&mut hall, "a", &json!({}));
    let player = avatar(&hall, "a");
    open_as(&mut hall, "b", "ann", 1);
    let second = join(&mut hall, "b", &json!({}));
    assert_eq!(second["seat_resumed"], true);
    assert_eq!((players(&hall), avatar(&hall, "b")), (1, player));
    assert!(hall.seen("a").messages.iter().any(|message| message.contains(r#""code":2011"#)));
    // Another user's token has no effect, and anonymous users are not limited.
    open_as(&mut hall, "c", "ben", 0);
    assert_eq!(join(&mut hall, "c", &token(&second))["seat_resumed"], false);
    for name in ["d", "e"] {
        open(&mut hall, name, 0);
        assert_eq!(join(&mut hall, name, &json!({}))["seat_resumed"], false);
    }
    assert_eq!(players(&hall), 4);
}

#[test]
fn a_users_away_players_are_limited_in_a_room() {
    // The configured limit is two. Users without an id have no limit.
    for (user, stay) in [("ann", &[2, 3][..]), ("", &[1, 2, 3])] {
        let mut hall = hall(|_| {});
        hall.seat_grace_ticks = 100;
        for name in ["a", "b", "c"] {
            open_as(&mut hall, name, user, 0);
            join(&mut hall, name, &json!({}));
        }
        for name in ["a", "b", "c"] {
            hall.forget(name);
            hall.tick();
            assert_eq!(players(&hall), 3, "all stay at the limit, and past it until the next tick");
        }
        hall.tick();
        let here: Vec<u32> = hall.only_room().1.room().world().players().map(|player| player.0).collect();
        assert_eq!(here, stay, "the player away for longest leaves, user {user:?}");
    }
}

#[test]
fn a_token_is_valid_until_its_client_has_the_next_one() {
    let mut hall = hall(|_| {});
    open(&mut hall, "a", 0);
    let first = join(&mut hall, "a", &json!({}));
    let player = avatar(&hall, "a");
    // The answers are lost with their connections.
    let mut lost = Vec::new();
    for name in ["b", "c"] {
        open(&mut hall, name, 1);
        lost.push(join(&mut hall, name, &token(&first)));
        hall.forget(name);
    }
    open(&mut hall, "d", 0);
    let fourth = join(&mut hall, "d", &token(&first));
    for answer in lost.iter().chain([&fourth]) {
        assert_eq!(answer["seat_resumed"], true);
    }
    assert_eq!((avatar(&hall, "d"), players(&hall)), (player, 1));
    // A token of an answer that was not the last is invalid. Use of the last token invalidates the earlier ones.
    open(&mut hall, "e", 1);
    assert_eq!(join(&mut hall, "e", &token(&lost[0]))["seat_resumed"], false);
    open(&mut hall, "f", 1);
    let sixth = join(&mut hall, "f", &token(&fourth));
    assert_eq!((&sixth["seat_resumed"], avatar(&hall, "f")), (&json!(true), player));
    open(&mut hall, "g", 0);
    assert_eq!(join(&mut hall, "g", &token(&first))["seat_resumed"], false, "an invalid token has no effect");
    // An input also proves that the client has the answer.
    hall.publish("f", ARENA, 1, b"shout");
    open(&mut hall, "h", 0);
    assert_eq!(join(&mut hall, "h", &token(&fourth))["seat_resumed"], false, "an invalid token has no effect");
    open(&mut hall, "i", 0);
    assert_eq!(join(&mut hall, "i", &token(&sixth))["seat_resumed"], true);
    assert_eq!((avatar(&hall, "i"), players(&hall)), (player, 4));
}

#[test]
fn a_token_without_effect_is_counted_with_its_reason() {
    let mut hall = hall(|_| {});
    open_as(&mut hall, "a", "ann", 0);
    let first = join(&mut hall, "a", &json!({}));
    let forged = json!({"seat_token": "0".repeat(32)});
    for (name, user, data, expected) in [
        ("b", "ann", &token(&first), (0, 0)),
        ("c", "", &forged, (1, 0)),
        ("d", "ben", &token(&first), (1, 1)),
        ("e", "", &token(&first), (1, 2)),
        ("f", "", &json!({"seat_token": "short"}), (1, 2)),
    ] {
        open_as(&mut hall, name, user, 1);
        join(&mut hall, name, data);
        assert_eq!((hall.tokens_refused.unknown, hall.tokens_refused.other_user), expected, "{name}");
    }
}

#[test]
fn backend_data_and_a_seat_token_are_merged_into_one_object() {
    let mut options = crate::hall::options();
    options.namespaces[0].room.as_mut().expect("rooms").gives_seat_tokens = true;
    let mut hall = Hall::new(2, options);
    hall.seat_grace_ticks = GRACE_TICKS;
    let mut returned = json!({});
    for (name, data, expected) in [
        ("a", r#"{"hat":"red"}"#, json!({"hat": "red"})),
        ("b", "{ }", json!({})),
        ("c", "[1]", json!([1])),
        ("d", "7", json!(7)),
    ] {
        open(&mut hall, name, 0);
        let grant = format!("channel={ARENA};data={data}");
        hall.send_json(name, &json!({"id": 2, "subscribe": {"channel": ARENA, "token": grant, "data": returned}}));
        hall.tick();
        let mut answer = joined(&mut hall, name);
        if let Some(members) = answer.as_object_mut() {
            let token = members.remove("seat_token").expect("a token");
            assert_eq!(members.remove("seat_resumed"), Some((name == "b").into()));
            returned = json!({"seat_token": token});
        }
        assert_eq!(answer, expected, "data that is not an object is sent unchanged");
        hall.forget(name);
    }
    assert_eq!(players(&hall), 1);
}
