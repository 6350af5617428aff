//! Rooms on a shard: membership, the schedule of writes, and the input of players.

use dunlin_engine::{
    Wire,
    room::{FromRoom, JoinedAs, NotJoined, RoomRefusal, SeatToken, ToRoom},
};
use dunlin_protocol::{Encoding, Payload, UnsubscribeCode};
use serde_json::{Value, json};

use crate::{
    hall::{self, Hall, options},
    node,
};

const ARENA: &str = "arena:a";

#[test]
fn a_seat_token_is_parsed_from_join_data_and_hidden_in_debug_output() {
    let token = SeatToken(0xab);
    let answer = token.answer(false, None);
    assert_eq!(&answer.bytes()[..], br#"{"seat_token":"000000000000000000000000000000ab","seat_resumed":false}"#);
    assert_eq!(SeatToken::in_join_data(answer.bytes()), Some(token));
    let with_more = r#"{"name":"Ada","seat_token":"000000000000000000000000000000AB"}"#;
    assert_eq!(SeatToken::in_join_data(with_more.as_bytes()), Some(token));
    let (short, long, signed) = ("ab", "0".repeat(33), format!("+{}", "0".repeat(31)));
    for text in [short, &long, &signed, "", "zz"] {
        assert_eq!(SeatToken::in_join_data(json!({ "seat_token": text }).to_string().as_bytes()), None, "{text}");
    }
    assert_eq!(SeatToken::in_join_data(b"seat_token"), None);
    assert_eq!(format!("{token:?}"), "SeatToken");
}

fn hall(shards: u16) -> Hall {
    Hall::new(shards, options())
}

/// Two in JSON and two in Protobuf, over two shards.
const FOUR: [(&str, Encoding, u16); 4] =
    [("a", Encoding::Json, 0), ("b", Encoding::Protobuf, 0), ("c", Encoding::Json, 1), ("d", Encoding::Protobuf, 1)];

fn rooms_counters(hall: &Hall) -> dunlin_engine::counters::NamespaceRoomCounters {
    let mut sum = dunlin_engine::counters::NamespaceRoomCounters::default();
    for shard in &hall.node.shards {
        let rooms = &shard.counters().namespaces[1].rooms;
        sum.opened += rooms.opened;
        sum.closed += rooms.closed;
        sum.failed += rooms.failed;
        sum.joins_accepted += rooms.joins_accepted;
        sum.joins_refused += rooms.joins_refused;
        sum.joins_gone += rooms.joins_gone;
        sum.frames += rooms.frames;
        sum.skipped_ticks += rooms.skipped_ticks;
        sum.inputs += rooms.inputs;
    }
    sum
}

#[test]
fn all_clients_see_the_newest_world_and_nothing_leaks() {
    let mut hall = hall(2);
    hall.gather(&FOUR, ARENA);
    for tick in 0..200_u32 {
        if tick % 10 == 0 {
            hall.node.step_to(hall.node.now.mono_us + 2_000_000);
            let to = [(tick % 250) as u8, (tick * 7 % 250) as u8];
            hall.publish("a", ARENA, tick / 10 + 1, &to);
        }
        hall.tick();
        for (name, ..) in FOUR {
            hall.check(name, ARENA);
        }
        assert_eq!(hall.seen["a"].replicas[ARENA].ack(), tick / 10 + 1);
    }
    assert_eq!(hall.holdings(), [4, 2]);
    assert_eq!(rooms_counters(&hall).frames, 201 * 4);
    assert_eq!(rooms_counters(&hall).skipped_ticks, 0);
    hall.unsubscribe("a", ARENA);
    hall.leave("b");
    hall.tick();
    hall.check("c", ARENA);
    let before = hall.seen["a"].snapshots;
    hall.tick();
    assert_eq!(hall.seen["a"].snapshots, before, "no snapshot after the unsubscription");
    hall.leave("c");
    hall.leave("d");
    assert_eq!(hall.holdings(), [0, 0]);
    hall.tick();
    assert_eq!(hall.only_room().0.player_count(), 0);
    assert!(hall.strays.is_empty());
}

#[test]
fn a_refused_join_has_the_games_code_and_message() {
    for (encoding, shard) in [(Encoding::Json, 0), (Encoding::Json, 1), (Encoding::Protobuf, 0)] {
        let mut hall = hall(2);
        hall.open("a", encoding, shard);
        // A JSON session sends the document, a Protobuf session its text.
        let data = if encoding == Encoding::Json { "no" } else { "\"no\"" };
        hall.send_json("a", &json!({"id": 2, "subscribe": {"channel": ARENA, "data": data}}));
        assert_eq!(hall.holdings()[0], 1, "a seat waits for the answer");
        hall.tick();
        if encoding == Encoding::Json {
            assert_eq!(hall.seen["a"].messages, [r#"{"id":2,"error":{"code":450,"message":"not today"}}"#]);
        }
        assert_eq!(hall.holdings(), [0, 0]);
        assert_eq!(rooms_counters(&hall).joins_refused, 1);
        hall.subscribe("a", ARENA);
        hall.tick();
        hall.check("a", ARENA);
    }
}

#[test]
fn a_session_that_ends_during_its_join_leaves_the_room() {
    for how in ["gone", "unsubscribe", "api", "close"] {
        let mut hall = hall(2);
        hall.open("a", Encoding::Json, 0);
        hall.open("b", Encoding::Json, 0);
        hall.subscribe("a", ARENA);
        hall.subscribe("b", ARENA);
        match how {
            "gone" => hall.leave("a"),
            "unsubscribe" => hall.unsubscribe("a", ARENA),
            "api" => hall.node.ask_api(&json!({"unsubscribe": {"channel": ARENA, "user": ""}})),
            _ => hall.node.receive("a", b"nonsense".to_vec()),
        }
        assert_eq!(hall.holdings()[0], 2, "{how}: the seat is kept until the answer");
        hall.tick();
        hall.tick();
        let players = usize::from(how != "api");
        assert_eq!(hall.only_room().0.player_count(), players, "{how}");
        assert_eq!(hall.holdings(), [players, players], "{how}");
        assert_eq!(hall.seen["a"].snapshots, 0, "{how}");
        if how == "unsubscribe" {
            let subscribed = hall.seen["a"].messages[0].contains("subscribe");
            assert!(subscribed && hall.seen["a"].messages[1] == r#"{"id":3,"unsubscribe":{}}"#);
        }
        if players == 1 {
            hall.check("b", ARENA);
        }
    }
}

/// Splits a client's frame at each of its bytes, and queues other frames between the two parts.
#[test]
fn a_partly_written_frame_is_finished_first() {
    for encoding in Encoding::ALL {
        let mut hall = hall(1);
        hall.gather(&[("a", encoding, 0), ("b", encoding, 0)], ARENA);
        let mut number = 0;
        let room = hall.only_room().0.key();
        for bytes in 0..400 {
            hall.node.client("a").room_bytes = bytes;
            hall.tick();
            let (waiting_bytes, frames) = hall.queued("a");
            assert!(frames <= 1 && waiting_bytes < 4_096, "{waiting_bytes} bytes in {frames} frames");
            if bytes % 3 == 0 {
                number += 1;
                let data = Payload::from_json(number.to_string().into());
                hall.on_message(0, FromRoom::Event { room, channel: ARENA.into(), data, audience: None });
            }
            if bytes % 2 == 0 {
                hall.tick();
            }
            hall.take("a", usize::MAX);
            hall.check("a", ARENA);
            hall.check("b", ARENA);
        }
        assert_eq!(hall.seen["a"].events.len(), number);
        assert!(hall.seen["a"].rest_is_empty());
    }
}

/// The end addresses of the slices to write to a client.
fn slice_ends(hall: &mut Hall, name: &str) -> Vec<*const u8> {
    let (shard, session) = hall.node.client(name).place;
    let outgoing = hall.node.shards[usize::from(shard)].outgoing(session);
    outgoing.map(|slice| slice.as_ptr_range().end).collect()
}

#[test]
fn the_rest_of_a_partly_written_frame_is_shared() {
    for encoding in Encoding::ALL {
        // In the head, and in the body.
        for bytes in [1, if encoding == Encoding::Json { 90 } else { 40 }] {
            let mut hall = hall(1);
            hall.gather(&[("a", encoding, 0), ("b", encoding, 0)], ARENA);
            for name in ["a", "b"] {
                hall.publish(name, ARENA, 1, &[9, 9]);
            }
            hall.tick();
            for name in ["a", "b"] {
                hall.node.client(name).room_bytes = bytes;
            }
            hall.tick();
            let ends = ["a", "b"].map(|name| slice_ends(&mut hall, name));
            assert!(
                !ends[0].is_empty() && ends[0].last() == ends[1].last(),
                "{encoding:?}, {bytes}: both share one body"
            );
            assert_eq!(hall.queued("a").1, 1, "one frame is queued");
            for name in ["a", "b"] {
                hall.take(name, usize::MAX);
                hall.check(name, ARENA);
            }
        }
    }
}

#[test]
fn unsubscribing_does_not_cut_a_partly_written_frame() {
    for how in ["unsubscribe", "api", "close", "violation"] {
        let mut hall = hall(1);
        hall.gather(&[("a", Encoding::Json, 0), ("b", Encoding::Json, 0)], ARENA);
        hall.node.client("a").room_bytes = 7;
        hall.tick();
        let before = hall.seen["a"].snapshots;
        match how {
            "unsubscribe" => hall.unsubscribe("a", ARENA),
            "api" => hall.node.ask_api(&json!({"unsubscribe": {"channel": ARENA, "user": ""}})),
            "close" => hall.node.receive("a", b"nonsense".to_vec()),
            _ => {
                let (shard, session) = hall.node.client("a").place;
                hall.node.handle(shard, dunlin_engine::Event::CloseReceived { session, code: Some(1_000) });
            }
        }
        hall.tick();
        hall.take("a", usize::MAX);
        assert_eq!(hall.seen["a"].snapshots, before + 1, "{how}: only the partly written frame");
        assert!(hall.seen["a"].rest_is_empty(), "{how}");
    }
}

#[test]
fn a_stalled_session_keeps_one_frame_and_catches_up_with_the_next() {
    for (taken, frames_after) in [(0, 1), (9, 2)] {
        let mut options = options();
        options.client.queue_bytes_max = 512;
        options.client.queue_frames_max = 4;
        let mut hall = Hall::new(1, options);
        hall.gather(&[("a", Encoding::Protobuf, 0), ("b", Encoding::Protobuf, 0)], ARENA);
        hall.node.client("a").room_bytes = taken;
        hall.tick();
        let queued = hall.queued("a");
        for _ in 0..600 {
            hall.node.step_to(hall.node.now.mono_us + 16_667);
            hall.tick();
            let now = hall.queued("a");
            assert_eq!(now.0, queued.0, "bytes do not grow");
            assert!(now.1 <= 2, "{} frames", now.1);
        }
        hall.node.ask_api(&json!({"survey": {}}));
        let Some(Ok(dunlin_engine::api::ApiAnswer::Survey(survey))) = hall.node.answers.pop() else {
            panic!("a survey")
        };
        assert_eq!(survey.behind_sessions, [1; 5], "it has waited for ten seconds, and the survey counts it");
        // Together with the partly written frame this exceeds the limit, but that frame does not count.
        let data = "x".repeat(512 - 40 - queued.0 / 2);
        hall.node.ask_api(&json!({"publish": {"channel": ARENA, "data": data}}));
        let before = hall.seen["a"].snapshots;
        hall.take("a", usize::MAX);
        assert_eq!(hall.seen["a"].snapshots - before, frames_after);
        hall.check("a", ARENA);
        assert!(rooms_counters(&hall).skipped_ticks >= 599);
        hall.tick();
        hall.check("a", ARENA);
        assert!(hall.seen["a"].messages.is_empty(), "it was not closed");
    }
}

#[test]
fn a_session_in_several_rooms_receives_them_in_turn() {
    let mut hall = hall(2);
    hall.open("a", Encoding::Json, 0);
    let rooms = ["arena:a", "arena:b", "arena:c"];
    for room in rooms {
        hall.subscribe("a", room);
    }
    for _ in 0..20 {
        hall.tick();
        if hall.seen["a"].snapshots > 0 {
            for room in rooms {
                hall.check("a", room);
            }
        }
    }
    // The socket accepts a little more than one frame at a time: every room gets its turn.
    for _ in 0..30 {
        hall.take("a", 150);
        hall.tick();
    }
    let ticks: Vec<u32> = rooms.iter().map(|room| hall.seen["a"].replicas[*room].tick()).collect();
    assert!(ticks.iter().all(|tick| *tick > 30), "{ticks:?}");
    hall.take("a", usize::MAX);
    for room in rooms {
        hall.check("a", room);
    }
    hall.send("a", "", 1, b"shout");
    hall.send("a", "arena:b", 1, b"shout");
    hall.tick();
    let channels: Vec<&str> = hall.seen["a"].events.iter().map(|(channel, ..)| channel.as_str()).collect();
    assert_eq!(channels, ["arena:b"], "an input without a room is ambiguous");
    assert_eq!(hall.node.shards[0].counters().inputs_refused, [0, 0, 0, 0, 0, 1]);
}

#[test]
fn a_failed_room_is_reopened_and_old_players_do_not_affect_it() {
    let mut hall = hall(2);
    hall.gather(&FOUR, ARENA);
    let old = *hall.rooms.keys().next().expect("a room");
    let (mut host, _) = hall.rooms.remove(&old).expect("a room");
    // The room itself notifies "c"; for the others, the owner is faster.
    let mut posts = Vec::new();
    host.end(UnsubscribeCode::ROOM_FAILED, None, &NotJoined::Gone, &mut posts);
    hall.open("e", Encoding::Json, 1);
    let (first, rest): (Vec<_>, Vec<_>) = posts.into_iter().partition(|(shard, _)| shard.0 == 1);
    for (shard, message) in first {
        hall.on_message(shard.0, message);
    }
    hall.on_message(old.owner.0, FromRoom::Failed { room: old, channel: ARENA.into(), refusal: None });
    hall.subscribe("e", ARENA);
    hall.tick();
    for (shard, message) in rest {
        hall.on_message(shard.0, message);
    }
    hall.tick();
    let new = *hall.rooms.keys().next().expect("a new room");
    assert_ne!(new, old);
    hall.check("e", ARENA);
    for name in ["a", "c"] {
        let over = r#"{"push":{"channel":"arena:a","unsubscribe":{"code":2510,"reason":"room failed"}}}"#;
        assert_eq!(hall.seen[name].messages.last().map(String::as_str), Some(over), "{name}");
    }
    for (name, ..) in FOUR {
        hall.subscribe(name, ARENA);
    }
    hall.tick();
    for (name, ..) in FOUR {
        hall.check(name, ARENA);
    }
    assert_eq!(hall.only_room().0.player_count(), 5);
    assert_eq!((rooms_counters(&hall).opened, rooms_counters(&hall).failed), (2, 1));
}

#[test]
fn a_room_is_not_closed_while_a_join_is_in_flight() {
    let mut hall = hall(1);
    hall.empty_ticks_max = 3;
    hall.gather(&[("a", Encoding::Json, 0)], ARENA);
    let room = *hall.rooms.keys().next().expect("a room");
    let idle = || FromRoom::Idle { room, channel: ARENA.into() };
    hall.on_message(0, idle());
    assert!(hall.node.to_rooms.is_empty(), "a player is in the room");
    hall.unsubscribe("a", ARENA);
    hall.tick();
    hall.subscribe("a", ARENA);
    hall.on_message(0, idle());
    assert!(matches!(hall.node.to_rooms.back(), Some((0, ToRoom::Join { .. }))), "a join is in flight");
    hall.tick();
    hall.check("a", ARENA);
    hall.unsubscribe("a", ARENA);
    for _ in 0..4 {
        hall.tick();
    }
    assert!(hall.rooms.is_empty());
    hall.subscribe("a", ARENA);
    hall.tick();
    hall.tick();
    hall.check("a", ARENA);
    assert_eq!((rooms_counters(&hall).opened, rooms_counters(&hall).closed), (2, 1));
}

#[test]
fn a_join_to_a_failed_room_gets_a_temporary_error() {
    let mut hall = hall(1);
    hall.open("a", Encoding::Json, 0);
    hall.subscribe("a", ARENA);
    let Some((_, ToRoom::Open { room, .. })) = hall.node.to_rooms.pop_front() else { panic!("a room is opened") };
    let Some((_, ToRoom::Join { request, .. })) = hall.node.to_rooms.pop_front() else { panic!("a join") };
    hall.on_message(0, FromRoom::Failed { room, channel: ARENA.into(), refusal: None });
    hall.on_message(0, FromRoom::Joined { room, request, outcome: Err(NotJoined::Gone) });
    hall.look();
    let error = r#"{"id":2,"error":{"code":100,"message":"internal server error","temporary":true}}"#;
    assert_eq!(hall.seen["a"].messages, [error]);
    assert_eq!(hall.holdings(), [0, 0]);
    assert!(hall.node.to_rooms.is_empty());
}

#[test]
fn a_join_to_a_closed_room_gets_a_permanent_error() {
    for has_let_in in [false, true] {
        let mut hall = hall(1);
        hall.open("a", Encoding::Json, 0);
        hall.open("b", Encoding::Json, 0);
        hall.subscribe("a", ARENA);
        hall.subscribe("b", ARENA);
        if has_let_in {
            // The answers are in flight when the room is closed.
            let messages = std::mem::take(&mut hall.node.to_rooms);
            hall.node.ask_api(&json!({"close_room": {"channel": ARENA}}));
            for (_, message) in messages {
                let ToRoom::Join { room, request } = message else { continue };
                hall.on_message(0, FromRoom::Joined { room, request, outcome: Ok(JoinedAs { is_back: false }) });
            }
            hall.node.to_rooms.clear();
        } else {
            hall.node.ask_api(&json!({"close_room": {"channel": ARENA}}));
            hall.pass();
        }
        hall.look();
        for name in ["a", "b"] {
            assert_eq!(hall.seen[name].messages, [r#"{"id":2,"error":{"code":400,"message":"room closed"}}"#]);
        }
        assert_eq!((hall.holdings(), rooms_counters(&hall).joins_gone), ([0, 0], 2));
        hall.subscribe("a", ARENA);
        hall.tick();
        hall.check("a", ARENA);
    }
}

#[test]
fn the_api_opens_and_closes_rooms() {
    let mut hall = hall(2);
    hall.node.ask_api(&json!({"open_room": {"channel": ARENA}}));
    hall.node.ask_api(&json!({"open_room": {"channel": ARENA}}));
    hall.pass();
    assert_eq!(hall.rooms.len(), 1);
    hall.gather(&FOUR, ARENA);
    // A client that joins after the close gets a new room.
    hall.open("e", Encoding::Json, 0);
    hall.node.ask_api(&json!({"close_room": {"channel": ARENA}}));
    hall.node.ask_api(&json!({"close_room": {"channel": ARENA}}));
    hall.subscribe("e", ARENA);
    hall.tick();
    hall.check("e", ARENA);
    let answers: Vec<Value> = hall.node.answers.iter().map(node::api::answer).collect();
    let done = |sessions: u32| json!({"sessions": sessions});
    assert_eq!(answers, [done(0), done(0), done(4), json!("no room")]);
    let over = r#"{"push":{"channel":"arena:a","unsubscribe":{"code":2010,"reason":"room closed"}}}"#;
    assert_eq!(hall.seen["a"].messages.last().map(String::as_str), Some(over));
    hall.node.answers.clear();
    hall.node.ask_api(&json!({"open_room": {"channel": "news"}}));
    hall.node.ask_api(&json!({"close_room": {"channel": "nowhere:a"}}));
    let answers: Vec<Value> = hall.node.answers.iter().map(node::api::answer).collect();
    assert_eq!(answers, [json!({"error": 108}), json!({"error": 102})]);
}

#[test]
fn open_rooms_are_limited() {
    let mut options = options();
    (options.rooms_max, options.channel.channels_max) = (2, 3);
    let mut hall = Hall::new(1, options);
    hall.gather(&[("a", Encoding::Json, 0)], ARENA);
    hall.node.ask_api(&json!({"open_room": {"channel": "arena:b"}}));
    hall.pass();
    assert_eq!(hall.rooms.len(), 2);
    for past in ["arena:c", "arena:d"] {
        hall.seen("a").messages.clear();
        hall.subscribe("a", past);
        hall.tick();
        assert_eq!(hall.seen["a"].messages, [r#"{"id":2,"error":{"code":106,"message":"limit exceeded"}}"#]);
    }
    hall.node.ask_api(&json!({"open_room": {"channel": "arena:c"}}));
    let answers: Vec<Value> = hall.node.answers.drain(..).map(|answer| node::api::answer(&answer)).collect();
    assert_eq!(answers, [json!({"sessions": 0}), json!({"error": 106})]);
    let counted = |hall: &Hall| {
        let rooms = &hall.node.shards[0].counters().namespaces[1].rooms;
        (rooms.opened, rooms.refused[RoomRefusal::Limit as usize])
    };
    assert_eq!(counted(&hall), (2, 3));
    assert_eq!((hall.rooms.len(), hall.holdings()), (2, [1, 1]));
    // A refusal creates no channel, and open rooms still accept joins.
    hall.seen("a").messages.clear();
    hall.subscribe("a", "news");
    hall.subscribe("a", "arena:b");
    hall.tick();
    assert!(hall.seen["a"].messages.iter().all(|message| !message.contains("error")));
    hall.check("a", "arena:b");
    // A closed room frees its slot.
    hall.unsubscribe("a", "news");
    hall.node.ask_api(&json!({"close_room": {"channel": ARENA}}));
    hall.subscribe("a", "arena:c");
    hall.tick();
    hall.check("a", "arena:c");
    assert_eq!(counted(&hall), (3, 3));
}

#[test]
fn inputs_past_each_limit_are_refused() {
    let mut hall = hall(1);
    hall.gather(&[("a", Encoding::Json, 0), ("b", Encoding::Json, 0)], ARENA);
    hall.open("c", Encoding::Json, 0);
    hall.look();
    hall.seen("a").messages.clear();
    hall.seen("b").messages.clear();
    let error = |hall: &mut Hall, name: &str| {
        hall.look();
        let last: Value = serde_json::from_str(&hall.seen(name).messages.pop().expect("a reply")).expect("JSON");
        last["error"]["code"].as_u64()
    };
    hall.publish("a", ARENA, 1, &[7; 16]);
    assert_eq!(error(&mut hall, "a"), None, "at the size limit");
    hall.publish("a", ARENA, 2, &[7; 17]);
    assert_eq!(error(&mut hall, "a"), Some(107), "one byte past the limit");
    hall.publish("a", ARENA, 1, b"xx");
    assert_eq!(error(&mut hall, "a"), Some(107), "not above the last number");
    hall.send_json("a", &json!({"id": 4, "publish": {"channel": ARENA, "data": {"number": "x"}}}));
    assert_eq!(error(&mut hall, "a"), Some(107), "not an input");
    hall.publish("c", ARENA, 1, b"xx");
    assert_eq!(error(&mut hall, "c"), Some(103), "not in the room");
    for number in 3..12 {
        hall.publish("a", ARENA, number, b"xx");
        assert_eq!(error(&mut hall, "a"), None, "input {number} of a burst of ten");
    }
    hall.publish("a", ARENA, 12, b"xx");
    assert_eq!(error(&mut hall, "a"), Some(111), "the eleventh of a burst");
    hall.node.step_to(hall.node.now.mono_us + 99_999);
    hall.publish("a", ARENA, 12, b"xx");
    assert_eq!(error(&mut hall, "a"), Some(111), "a microsecond before the refill");
    hall.node.step_to(hall.node.now.mono_us + 1);
    hall.publish("a", ARENA, 12, b"xx");
    assert_eq!(error(&mut hall, "a"), None);
    // Eleven inputs are in flight; the limit is twelve.
    hall.publish("b", ARENA, 1, b"xx");
    assert_eq!(error(&mut hall, "b"), None);
    hall.publish("b", ARENA, 2, b"xx");
    assert_eq!(error(&mut hall, "b"), Some(111), "the room has not taken any input yet");
    hall.send("b", ARENA, 2, b"xx");
    hall.tick();
    hall.publish("b", ARENA, 2, b"xx");
    assert_eq!(error(&mut hall, "b"), None, "the room has taken inputs");
    assert_eq!(hall.node.shards[0].counters().inputs_refused, [1, 1, 1, 2, 2, 1]);
    assert_eq!(rooms_counters(&hall).inputs, 13);
    hall.send_json("b", &json!({"send": {"data": {"number": "x"}}}));
    hall.look();
    assert!(hall.seen["b"].messages.is_empty(), "it is dropped: {:?}", hall.seen["b"].messages);
    assert_eq!(hall.node.shards[0].counters().inputs_refused, [2, 1, 1, 2, 2, 1]);
}

#[test]
fn events_reach_and_are_recovered_by_their_audience_only() {
    let mut options = options();
    options.client.insecure = true;
    let mut hall = Hall::new(2, options);
    for (name, user, shard) in [("ann", "ann", 0), ("bob", "bob", 1), ("nobody", "", 0)] {
        hall.open(name, Encoding::Json, shard);
        hall.leave(name);
        hall.node.clients.remove(name);
        hall.node.open(name, Encoding::Json, shard);
        hall.send_json(name, &json!({"id": 1, "connect": {"token": format!("user={user}")}}));
        hall.subscribe(name, ARENA);
    }
    hall.tick();
    hall.node.open("listener", Encoding::Json, 1);
    hall.send_json("listener", &json!({"id": 1, "connect": {}}));
    hall.seen.insert("listener".to_owned(), hall::Seen::default());
    hall.subscribe("listener", "news");
    hall.publish("ann", ARENA, 1, b"shout");
    hall.publish("ann", ARENA, 2, b"whisper");
    hall.publish("nobody", ARENA, 1, b"whisper");
    hall.publish("bob", ARENA, 1, b"news");
    hall.tick();
    let offsets = |hall: &Hall, name: &str| hall.seen[name].events.iter().map(|event| event.1).collect::<Vec<u64>>();
    assert_eq!(offsets(&hall, "ann"), [1, 2]);
    assert_eq!(offsets(&hall, "bob"), [1]);
    assert_eq!(offsets(&hall, "nobody"), [1, 3]);
    assert_eq!(hall.seen["listener"].events, [("news".to_owned(), 1, r#""news""#.to_owned())]);
    let history = |hall: &mut Hall, name: &str| {
        hall.send_json(name, &json!({"id": 5, "history": {"channel": ARENA, "limit": -1}}));
        hall.look();
        let reply = hall.seen(name).messages.pop().expect("a reply");
        let reply: Value = serde_json::from_str(&reply).expect("JSON");
        let publications = reply["history"]["publications"].as_array().cloned().unwrap_or_default();
        publications.iter().filter_map(|publication| publication["offset"].as_u64()).collect::<Vec<u64>>()
    };
    assert_eq!(history(&mut hall, "ann"), [1, 2]);
    assert_eq!(history(&mut hall, "bob"), [1]);
    assert_eq!(history(&mut hall, "nobody"), [1], "anonymous users are no recipients");
    hall.node.ask_api(&json!({"history": {"channel": ARENA, "limit": -1}}));
    let answer = node::api::answer(&hall.node.answers.pop().expect("an answer"));
    assert_eq!(answer["publications"].as_array().map(Vec::len), Some(3), "the application may read everything");
    for (name, recovered, offset) in [("ann", vec![1, 2], 0), ("bob", vec![1], 0), ("nobody", vec![1], 0)] {
        hall.unsubscribe(name, ARENA);
        hall.send_json(name, &json!({"id": 6, "subscribe": {"channel": ARENA, "recover": true, "offset": offset}}));
        hall.tick();
        let reply = hall.seen[name].messages.iter().find(|message| message.starts_with(r#"{"id":6"#));
        let reply: Value = serde_json::from_str(reply.expect("a reply")).expect("JSON");
        assert_eq!(reply["subscribe"]["recovered"], true, "{name}: {reply}");
        let publications = reply["subscribe"]["publications"].as_array().expect("what was missed");
        let offsets: Vec<i32> =
            publications.iter().map(|publication| publication["offset"].as_i64().expect("one") as i32).collect();
        assert_eq!(offsets, recovered, "{name}");
        hall.check(name, ARENA);
    }
}

#[test]
fn history_stores_the_audience_of_events() {
    let mut hall = hall(1);
    hall.gather(&[("a", Encoding::Json, 0)], ARENA);
    hall.publish("a", ARENA, 1, b"whisper");
    hall.publish("a", ARENA, 2, b"whisper");
    hall.pass();
    let mut posts = Vec::new();
    for (host, table) in hall.rooms.values_mut() {
        let batch = host.begin();
        let done = table.run(&batch, 1);
        host.finish(done, &mut posts);
    }
    let audiences: Vec<_> = posts
        .iter()
        .filter_map(|(_, message)| match message {
            FromRoom::Event { audience: Some(audience), .. } => Some((**audience).clone()),
            _ => None,
        })
        .collect();
    assert_eq!(audiences.len(), 2);
    let (seats, users) = (audiences[0].seats.clone(), audiences[0].users.clone());
    assert!(std::sync::Arc::ptr_eq(&seats, &audiences[1].seats), "both events share it");
    drop(audiences);
    for (shard, message) in posts {
        hall.on_message(shard.0, message);
    }
    hall.look();
    assert_eq!(hall.seen["a"].events.len(), 2);
    assert_eq!(std::sync::Arc::strong_count(&seats), 1, "no event holds the seats any more");
    assert_eq!(std::sync::Arc::strong_count(&users), 3, "each event holds its readers");
}

/// A session on another shard than its room's owner: the room's own messages overtake the owner's.
fn overtaken() -> (Hall, u16) {
    let owner = dunlin_engine::owner_of(ARENA, 2, node::NODE_SEED).0;
    let mut hall = hall(2);
    hall.open("a", Encoding::Json, 1 - owner);
    hall.subscribe("a", ARENA);
    hall.node.holds_rings = true;
    hall.tick();
    hall.tick();
    assert_eq!(hall.holdings(), [1, 1], "its ticks have arrived");
    assert_eq!((hall.seen["a"].messages.len(), hall.seen["a"].snapshots), (0, 0), "the answer has not arrived");
    (hall, owner)
}

fn release_rings(hall: &mut Hall) {
    hall.node.holds_rings = false;
    hall.node.settle();
    hall.look();
}

#[test]
fn snapshots_and_events_follow_the_subscribe_reply() {
    let (mut hall, _) = overtaken();
    release_rings(&mut hall);
    assert_eq!((hall.seen["a"].messages.len(), hall.seen["a"].snapshots), (1, 1));
    hall.check("a", ARENA);
    hall.tick();
    hall.check("a", ARENA);
}

#[test]
fn a_room_end_before_the_subscribe_reply_is_sent_after_it() {
    for how in ["failed", "closed"] {
        let (mut hall, owner) = overtaken();
        if how == "failed" {
            let room = *hall.rooms.keys().next().expect("a room");
            let (mut host, _) = hall.rooms.remove(&room).expect("a room");
            let mut posts = Vec::new();
            host.end(UnsubscribeCode::ROOM_FAILED, None, &NotJoined::Gone, &mut posts);
            assert_eq!(posts.len(), 1);
            for (shard, message) in posts {
                hall.on_message(shard.0, message);
            }
            hall.on_message(owner, FromRoom::Failed { room, channel: ARENA.into(), refusal: None });
        } else {
            hall.node.ask_api(&json!({"close_room": {"channel": ARENA}}));
            hall.pass();
        }
        assert_eq!(hall.holdings(), [1, 0], "{how}: a pending seat");
        release_rings(&mut hall);
        let messages = &hall.seen["a"].messages;
        assert!(messages[0].starts_with(r#"{"id":2,"subscribe""#), "{how}: {messages:?}");
        let code = if how == "failed" { "2510" } else { "2010" };
        assert!(messages[1].contains(code), "{how}: {messages:?}");
        assert_eq!((messages.len(), hall.seen["a"].snapshots), (2, 0), "{how}");
        assert_eq!(hall.holdings(), [0, 0], "{how}");
        hall.subscribe("a", ARENA);
        hall.tick();
        hall.check("a", ARENA);
    }
}

#[test]
fn a_mirror_is_dropped_with_its_last_seat_and_created_with_the_next() {
    let mut hall = hall(2);
    hall.gather(&[("a", Encoding::Json, 0), ("b", Encoding::Protobuf, 1)], ARENA);
    for round in 0..20 {
        // Both in the same tick, and with a tick in between.
        hall.unsubscribe("a", ARENA);
        if round % 2 == 0 {
            hall.tick();
        }
        hall.subscribe("a", ARENA);
        if round % 3 == 0 {
            // A third session joins while the second waits, and leaves while the first one joins.
            let name = format!("c{round}");
            hall.open(&name, Encoding::Json, 0);
            hall.subscribe(&name, ARENA);
            hall.leave(&name);
        }
        hall.tick();
        hall.check("a", ARENA);
        hall.check("b", ARENA);
        hall.tick();
        assert_eq!(hall.only_room().0.player_count(), 2);
        assert_eq!(hall.holdings(), [2, 2]);
    }
    assert!(hall.strays.is_empty());
}

/// Snapshots have WebSocket framing, which an HTTP response cannot contain.
#[test]
fn players_on_response_streams_are_refused() {
    let mut hall = hall(1);
    for wire in [Wire::Sse, Wire::HttpStreamJson, Wire::HttpStreamProtobuf] {
        let name = format!("{wire:?}");
        hall.node.open_on(&name, wire, 0);
        for command in [json!({"id": 1, "connect": {}}), json!({"id": 2, "subscribe": {"channel": ARENA}})] {
            hall.node.receive(&name, node::wire::commands(wire.encoding(), &[command]));
        }
        hall.pass();
        let came = node::wire::take(wire, &mut hall.node.client(&name).received);
        let refused = came.iter().any(
            |came| matches!(came, node::wire::Came::Message(message) if message["id"] == 2 && message["error"]["code"] == 108),
        );
        assert!(refused, "{wire:?}");
    }
    assert_eq!(rooms_counters(&hall).opened, 0);
}
