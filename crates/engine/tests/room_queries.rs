//! In a cluster, other nodes are asked for a room before it is opened.

use std::sync::Arc;

use dunlin_engine::{
    Event, Options, ShardIndex,
    options::RoomOpenings,
    room::{
        FromRoom, JoinedAs, NotJoined, PROMISES_MAX, RoomElsewhere, RoomKey, RoomRefusal, RoomSite, RoomThreadIndex,
        ToRoom,
    },
};
use dunlin_protocol::{Encoding, Payload};
use rand_chacha::{
    ChaCha8Rng,
    rand_core::{RngCore, SeedableRng},
};
use serde_json::{Value, json};

use crate::{
    hall::{Hall, options},
    node,
};

const ROOM: &str = "arena:1";
/// Time after which a join asks again.
const ASK_AGAIN_MS: u64 = 50;

fn hall(shards: u16) -> Hall {
    let mut options = options();
    options.log.peer_queries_max = 10;
    let mut hall = Hall::new(shards, options);
    for name in ["a", "b", "c"] {
        hall.open(name, Encoding::Json, 0);
    }
    hall
}

fn join(hall: &mut Hall, name: &str) {
    hall.seen(name).messages.clear();
    hall.subscribe(name, ROOM);
    hall.tick();
}

/// The reply to a join, if there is one.
fn reply(hall: &Hall, name: &str) -> Option<Value> {
    let messages = hall.seen[name].messages.iter().map(|text| serde_json::from_str::<Value>(text).expect("JSON"));
    messages.into_iter().find(|message| message["id"] == 2)
}

/// Answers the only query.
fn answer(hall: &mut Hall, found: &RoomElsewhere) {
    let queries = std::mem::take(&mut hall.node.room_queries);
    let [(shard, channel)] = &queries[..] else { panic!("{queries:?}") };
    hall.node.handle(*shard, Event::RoomQueried { channel: Arc::clone(channel), found: found.clone() });
    hall.tick();
    hall.tick();
}

/// Answers all questions of a join in the same way, until it is refused.
fn answer_until_refused(hall: &mut Hall, name: &str, found: &RoomElsewhere) {
    let (begun_us, mut questions) = (hall.node.now.mono_us, 0);
    while reply(hall, name).is_none() {
        if hall.node.room_queries.is_empty() {
            hall.node.wait(1);
        } else {
            answer(hall, found);
            questions += 1;
        }
    }
    let waited_us = hall.node.now.mono_us - begun_us;
    assert!((3_000_000..3_500_000).contains(&waited_us), "it has waited for three seconds, not {waited_us} µs");
    assert!((10..16).contains(&questions), "it asks less and less often: {questions} times");
}

fn elsewhere() -> RoomElsewhere {
    RoomElsewhere::Open { node: "n2".into(), site: None }
}

fn refused(hall: &Hall, refusal: RoomRefusal) -> u64 {
    let counted = |shard: &dunlin_engine::Shard| shard.counters().namespaces[1].rooms.refused[refusal as usize];
    hall.node.shards.iter().map(counted).sum()
}

/// The state that another node is told.
fn state(hall: &mut Hall) -> Value {
    hall.node.answers.clear();
    hall.node.ask_api(&json!({"room_state": {"channel": ROOM}}));
    answers(hall).remove(0)
}

fn open_by_api(hall: &mut Hall) {
    hall.node.answers.clear();
    hall.node.ask_api(&json!({"open_room": {"channel": ROOM}}));
}

fn answers(hall: &Hall) -> Vec<Value> {
    hall.node.answers.iter().map(node::api::answer).collect()
}

#[test]
fn a_room_that_no_other_node_has_is_opened_once() {
    for shards in [1, 2] {
        let mut hall = hall(shards);
        join(&mut hall, "a");
        join(&mut hall, "b");
        assert_eq!((reply(&hall, "a"), reply(&hall, "b"), hall.rooms.len()), (None, None, 0));
        let asked = |shard: &dunlin_engine::Shard| shard.counters().namespaces[1].rooms.queries;
        assert_eq!(hall.node.shards.iter().map(asked).sum::<u64>(), 1, "both joins wait for one question");
        assert_eq!(state(&mut hall), "Asking");
        answer(&mut hall, &RoomElsewhere::Nowhere { is_contended: false });
        for name in ["a", "b"] {
            assert!(reply(&hall, name).expect("a reply").get("error").is_none());
        }
        assert_eq!((hall.rooms.len(), state(&mut hall)), (1, json!("Open")));
        join(&mut hall, "c");
        assert!(reply(&hall, "c").expect("a reply").get("error").is_none());
        assert!(hall.node.room_queries.is_empty(), "nobody is asked for a room that is open here");
        // A late answer changes nothing.
        let late = Event::RoomQueried { channel: ROOM.into(), found: elsewhere() };
        let owner = hall.rooms.keys().next().expect("a room").owner.0;
        hall.node.handle(owner, late);
        assert_eq!(hall.node.shards[usize::from(owner)].counters().late_messages, 1);
    }
}

#[test]
fn a_room_of_another_node_is_not_opened() {
    let mut hall = hall(1);
    join(&mut hall, "a");
    answer(&mut hall, &elsewhere());
    let error = json!({"code": 421, "message": "the room is open on the node n2"});
    assert_eq!(reply(&hall, "a").expect("a reply")["error"], error);
    // The next join asks again.
    join(&mut hall, "a");
    answer_until_refused(&mut hall, "a", &RoomElsewhere::Unanswered);
    assert_eq!(reply(&hall, "a").expect("a reply")["error"]["code"], 111);
    assert_eq!((refused(&hall, RoomRefusal::Elsewhere), refused(&hall, RoomRefusal::Unanswered)), (1, 1));
    assert!(hall.rooms.is_empty());
    assert_eq!(state(&mut hall), "None");
}

#[test]
fn joins_are_forwarded_to_the_node_that_has_the_room() {
    let mut hall = hall(1);
    let site = RoomSite {
        node: "n2".into(),
        room: RoomKey { owner: ShardIndex(3), number: 9 },
        thread: RoomThreadIndex(5),
        sends_changes: true,
    };
    let found = RoomElsewhere::Open { node: "n2".into(), site: Some(Box::new(site.clone())) };
    for name in ["a", "b"] {
        hall.subscribe(name, ROOM);
    }
    hall.node.room_queries.clear();
    hall.node.handle(0, Event::RoomQueried { channel: ROOM.into(), found });
    // The relay follows the only room thread.
    let sent: Vec<(u16, ToRoom)> = hall.node.to_rooms.drain(..).collect();
    let [(1, ToRoom::OpenRemote { room, site: opened, .. }), joins @ ..] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!((&**opened, joins.len(), hall.rooms.len()), (&site, 2, 0));
    let room = *room;
    for (_, message) in sent.into_iter().skip(1) {
        let ToRoom::Join { room: of, request } = message else { panic!("a join") };
        assert_eq!(of, room);
        hall.on_message(0, FromRoom::Joined { room, request, outcome: Ok(JoinedAs { is_back: false }) });
    }
    hall.tick();
    for name in ["a", "b"] {
        assert!(reply(&hall, name).expect("a reply").get("error").is_none());
    }
    hall.subscribe("c", ROOM);
    assert!(hall.node.room_queries.is_empty(), "nobody is asked for a room that is known");
    assert!(matches!(hall.node.to_rooms.pop_front(), Some((1, ToRoom::Join { .. }))));
    assert_eq!(state(&mut hall), "None", "the node that has the room answers for it");
    open_by_api(&mut hall);
    assert_eq!(answers(&hall), [json!({"error": 107})]);
    hall.node.answers.clear();
    hall.node.ask_api(&json!({"close_room": {"channel": ROOM}}));
    assert_eq!(answers(&hall), [json!("no room")], "it is closed where it is");
    hall.on_message(0, FromRoom::Failed { room, channel: ROOM.into(), refusal: None });
    hall.tick();
    let ends = hall.seen["a"].messages.iter().filter(|message| message.contains(r#""unsubscribe":{"code":2510"#));
    assert_eq!(ends.count(), 1);
    join(&mut hall, "a");
    assert_eq!(hall.node.room_queries.len(), 1, "the room may have moved");
    let failed = hall.node.shards[0].counters().namespaces[1].rooms.failed;
    assert_eq!(failed, 0, "it is a room of the other node");
}

#[test]
fn the_server_api_opens_no_room_of_another_node() {
    let mut hall = hall(1);
    for (found, answered) in [(elsewhere(), json!({"error": 107})), (RoomElsewhere::Unanswered, json!({"error": 111}))]
    {
        open_by_api(&mut hall);
        assert_eq!(answers(&hall), [Value::Null; 0]);
        answer(&mut hall, &found);
        assert_eq!(answers(&hall), [answered]);
    }
    open_by_api(&mut hall);
    answer(&mut hall, &RoomElsewhere::Nowhere { is_contended: false });
    assert_eq!((answers(&hall).len(), hall.rooms.len()), (1, 1));
}

#[test]
fn a_room_that_another_node_was_promised_is_left_to_it() {
    let mut hall = hall(1);
    let contended = RoomElsewhere::Nowhere { is_contended: true };
    assert_eq!(state(&mut hall), "None", "and it is promised for two seconds");
    hall.node.step_to(hall.node.now.mono_us + 1_999_000);
    join(&mut hall, "a");
    assert_eq!(state(&mut hall), "Asking", "a third node has to compare its id");
    answer(&mut hall, &contended);
    assert_eq!((reply(&hall, "a"), hall.rooms.len()), (None, 0), "the join asks again");
    hall.node.wait(ASK_AGAIN_MS);
    answer(&mut hall, &contended);
    assert_eq!((hall.rooms.len(), state(&mut hall)), (1, json!("Open")), "the time of the promise is over");
}

#[test]
fn joins_wait_for_a_room_that_moves() {
    let mut hall = hall(1);
    for name in ["a", "b"] {
        join(&mut hall, name);
    }
    answer(&mut hall, &RoomElsewhere::Unanswered);
    assert_eq!((reply(&hall, "a"), hall.node.room_queries.len()), (None, 0));
    assert_eq!(state(&mut hall), "None", "while they pause, this node asks nobody, and promises the room");
    hall.leave("b");
    hall.node.wait(ASK_AGAIN_MS - 1);
    assert!(hall.node.room_queries.is_empty());
    hall.node.wait(1);
    answer(&mut hall, &RoomElsewhere::Nowhere { is_contended: false });
    assert!(reply(&hall, "a").expect("a reply").get("error").is_none());
    assert_eq!(hall.rooms.len(), 1);
    let (host, _) = hall.only_room();
    assert_eq!(host.player_count(), 1, "the other client is gone");
}

#[test]
fn a_join_asks_again_when_what_is_stored_of_the_room_cannot_be_read() {
    let mut hall = hall(1);
    hall.subscribe("a", ROOM);
    let nowhere = RoomElsewhere::Nowhere { is_contended: false };
    let query = |hall: &mut Hall| {
        let (shard, channel) = hall.node.room_queries.pop().expect("the others are asked");
        hall.node.handle(shard, Event::RoomQueried { channel, found: nowhere.clone() });
    };
    query(&mut hall);
    let sent: Vec<(u16, ToRoom)> = hall.node.to_rooms.drain(..).collect();
    let [(_, ToRoom::Open { room, .. }), (_, ToRoom::Join { .. })] = &sent[..] else { panic!("{sent:?}") };
    let room = *room;
    for (_, message) in sent {
        if let ToRoom::Join { request, .. } = message {
            hall.on_message(0, FromRoom::Joined { room, request, outcome: Err(NotJoined::Unavailable) });
        }
    }
    hall.on_message(0, FromRoom::Failed { room, channel: ROOM.into(), refusal: None });
    assert_eq!((reply(&hall, "a"), hall.node.room_queries.len()), (None, 0));
    hall.node.wait(ASK_AGAIN_MS);
    query(&mut hall);
    hall.pass();
    hall.tick();
    assert!(reply(&hall, "a").expect("a reply").get("error").is_none());
    assert_eq!(hall.rooms.len(), 1);
}

/// A join whose session ends, or unsubscribes, while a room has it, or while it waits.
#[test]
fn a_join_that_nobody_waits_for_does_not_ask_again() {
    let leave: fn(&mut Hall) = |hall| hall.leave("d");
    let unsubscribe: fn(&mut Hall) = |hall| hall.unsubscribe("d", ROOM);
    let close: fn(&mut Hall) = |hall| hall.node.ask_api(&json!({"disconnect": {"user": "ann"}}));
    for end in [leave, unsubscribe, close] {
        for is_in_room in [false, true] {
            let mut hall = hall(1);
            hall.node.open("d", Encoding::Json, 0);
            hall.seen.insert("d".to_owned(), crate::hall::Seen::default());
            hall.send_json("d", &json!({"id": 1, "connect": {"token": "user=ann"}}));
            join(&mut hall, "d");
            if is_in_room {
                let (shard, channel) = hall.node.room_queries.pop().expect("the others are asked");
                let found = RoomElsewhere::Nowhere { is_contended: false };
                hall.node.handle(shard, Event::RoomQueried { channel, found });
                let sent: Vec<(u16, ToRoom)> = hall.node.to_rooms.drain(..).collect();
                let [(_, ToRoom::Open { room, .. }), (_, ToRoom::Join { .. })] = &sent[..] else { panic!("{sent:?}") };
                let room = *room;
                end(&mut hall);
                hall.node.to_rooms.clear();
                for (_, message) in sent {
                    if let ToRoom::Join { request, .. } = message {
                        hall.on_message(0, FromRoom::Joined { room, request, outcome: Err(NotJoined::Unavailable) });
                    }
                }
                hall.on_message(0, FromRoom::Failed { room, channel: ROOM.into(), refusal: None });
            } else {
                answer(&mut hall, &RoomElsewhere::Unanswered);
                end(&mut hall);
                hall.node.wait(ASK_AGAIN_MS);
            }
            assert_eq!((hall.node.room_queries.len(), hall.rooms.len()), (0, 0), "in the room: {is_in_room}");
            hall.node.wait(5_000);
            assert_eq!(hall.node.room_queries.len(), 0, "in the room: {is_in_room}");
            hall.look();
            if hall.seen["d"].messages.iter().any(|message| message.contains(r#""id":3"#)) {
                assert!(reply(&hall, "d").expect("a reply")["error"].is_object(), "both commands are answered");
            }
            assert_eq!(hall.holdings(), [0, 0], "in the room: {is_in_room}");
        }
    }
}

#[test]
fn joins_wait_while_too_many_rooms_are_opened() {
    let mut options = options();
    options.log.peer_queries_max = 10;
    options.room_openings.per_second = 1;
    let mut hall = Hall::new(1, options);
    hall.open("a", Encoding::Json, 0);
    hall.open("b", Encoding::Json, 0);
    let nowhere = RoomElsewhere::Nowhere { is_contended: false };
    join(&mut hall, "a");
    answer(&mut hall, &nowhere);
    assert!(reply(&hall, "a").expect("a reply").get("error").is_none(), "at the limit");
    hall.seen("b").messages.clear();
    hall.subscribe("b", "arena:2");
    answer(&mut hall, &nowhere);
    assert_eq!((reply(&hall, "b"), refused(&hall, RoomRefusal::Rate)), (None, 0), "past it");
    while reply(&hall, "b").is_none() {
        if hall.node.room_queries.is_empty() {
            hall.node.wait(1);
        } else {
            answer(&mut hall, &nowhere);
        }
    }
    assert!(reply(&hall, "b").expect("a reply").get("error").is_none());
    assert_eq!(hall.rooms.len(), 2);
    // Without other nodes, nothing moves here, and the client tries again.
    let mut options = crate::hall::options();
    options.room_openings.per_second = 1;
    let mut hall = Hall::new(1, options);
    for (name, channel) in [("a", ROOM), ("b", "arena:2")] {
        hall.open(name, Encoding::Json, 0);
        hall.subscribe(name, channel);
        hall.tick();
    }
    assert_eq!(reply(&hall, "b").expect("a reply")["error"]["code"], 111);
    assert_eq!(refused(&hall, RoomRefusal::Rate), 1);
}

#[test]
fn joins_that_pause_go_to_the_room_that_their_channel_gets() {
    let site = RoomSite {
        node: "n2".into(),
        room: RoomKey { owner: ShardIndex(3), number: 9 },
        thread: RoomThreadIndex(5),
        sends_changes: true,
    };
    let there = RoomElsewhere::Open { node: "n2".into(), site: Some(Box::new(site)) };
    let mut hall = hall(1);
    for found in [RoomElsewhere::Nowhere { is_contended: false }, there] {
        join(&mut hall, "a");
        answer(&mut hall, &RoomElsewhere::Unanswered);
        open_by_api(&mut hall);
        hall.subscribe("b", ROOM);
        let (shard, channel) = hall.node.room_queries.pop().expect("the others are asked");
        hall.node.handle(shard, Event::RoomQueried { channel, found });
        let is_join = |(_, message): &&(u16, ToRoom)| matches!(message, ToRoom::Join { .. });
        assert_eq!(hall.node.to_rooms.iter().filter(is_join).count(), 2, "{:?}", hall.node.to_rooms);
        if hall.node.to_rooms.iter().any(|(_, message)| matches!(message, ToRoom::OpenRemote { .. })) {
            break;
        }
        hall.tick();
        assert!(reply(&hall, "a").expect("a reply").get("error").is_none());
        hall.node.wait(5_000);
        assert!(hall.node.room_queries.is_empty(), "nothing is left of the pause");
        for name in ["a", "b"] {
            hall.unsubscribe(name, ROOM);
        }
        hall.node.ask_api(&json!({"close_room": {"channel": ROOM}}));
        hall.tick();
        assert!(hall.rooms.is_empty());
    }
}

/// An answer with missed events may be large, so the next such command waits for it, and all commands behind that one.
#[test]
fn commands_do_not_wait_for_a_join_that_waits_for_its_room() {
    let mut hall = hall(1);
    hall.send_json("a", &json!({"id": 2, "subscribe": {"channel": ROOM, "recover": true, "epoch": "", "offset": 0}}));
    hall.send_json("a", &json!({"id": 3, "subscribe": {"channel": "news"}}));
    hall.send_json("a", &json!({"id": 4, "rpc": {"method": "none"}}));
    let is_answered = |hall: &Hall, id: u32| {
        hall.seen["a"].messages.iter().any(|message| message.starts_with(&format!(r#"{{"id":{id},"#)))
    };
    hall.look();
    assert_eq!([2, 3, 4].map(|id| is_answered(&hall, id)), [false, true, true], "other nodes may take long to answer");
    answer(&mut hall, &RoomElsewhere::Unanswered);
    hall.node.wait(1);
    assert!(!is_answered(&hall, 2));
    hall.node.wait(ASK_AGAIN_MS);
    answer(&mut hall, &RoomElsewhere::Nowhere { is_contended: false });
    assert!(reply(&hall, "a").expect("a reply").get("error").is_none());
    // The next large answer counts again.
    hall.send_json(
        "a",
        &json!({"id": 5, "subscribe": {"channel": "arena:2", "recover": true, "epoch": "", "offset": 0}}),
    );
    hall.send_json("a", &json!({"id": 6, "subscribe": {"channel": "sport"}}));
    hall.look();
    assert_eq!([5, 6].map(|id| is_answered(&hall, id)), [false, true]);
    let (shard, channel) = hall.node.room_queries.pop().expect("the others are asked");
    hall.node.handle(shard, Event::RoomQueried { channel, found: RoomElsewhere::Nowhere { is_contended: false } });
    // The room is open, and its answer may be large.
    hall.send_json("a", &json!({"id": 7, "subscribe": {"channel": "weather"}}));
    hall.look();
    assert_eq!([5, 7].map(|id| is_answered(&hall, id)), [false, false]);
    hall.tick();
    assert_eq!([5, 7].map(|id| is_answered(&hall, id)), [true, true]);
}

fn late_options() -> Options {
    let mut options = options();
    options.log.peer_queries_max = 10;
    options.client.queue_bytes_max = 8_192;
    options
}

/// A hall with peers, in which `a` reads nothing, and three rooms have ended. What each sent takes nearly half of its queue.
fn hall_that_recovers() -> Hall {
    let mut hall = Hall::new(1, late_options());
    hall.open("p", Encoding::Json, 0);
    let nowhere = RoomElsewhere::Nowhere { is_contended: false };
    for channel in ["arena:1", "arena:2", "arena:3"] {
        hall.subscribe("p", channel);
        answer(&mut hall, &nowhere);
        let (room, _) = hall.rooms.pop_first().expect("it is open");
        for _ in 0..10 {
            let data = Payload::from_json(format!("\"{}\"", "x".repeat(250)).into());
            hall.on_message(0, FromRoom::Event { room, channel: channel.into(), data, audience: None });
        }
        hall.on_message(0, FromRoom::Failed { room, channel: channel.into(), refusal: None });
    }
    hall.open("a", Encoding::Json, 0);
    hall.subscribe("a", "sport");
    hall.look();
    hall.node.client("a").room_bytes = 0;
    hall
}

/// `a` recovers the three rooms at once.
fn recover_three(hall: &mut Hall) {
    for (id, channel) in [(11, "arena:1"), (12, "arena:2"), (13, "arena:3")] {
        hall.send_json("a", &json!({"id": id, "subscribe": {"channel": channel, "recover": true, "epoch": ""}}));
    }
}

/// `a` joins again the two rooms that it could not join, and reads.
fn recover_again(hall: &mut Hall) {
    for (id, channel) in [(21, "arena:2"), (22, "arena:3")] {
        hall.send_json("a", &json!({"id": id, "subscribe": {"channel": channel, "recover": true, "epoch": ""}}));
    }
    for _ in 0..4 {
        none_is_elsewhere(hall);
        hall.take("a", usize::MAX);
        hall.tick();
    }
    assert_eq!(answered(hall, "a", &[21, 22]), [21, 22]);
}

/// The other nodes do not have the rooms for which they are asked.
fn none_is_elsewhere(hall: &mut Hall) {
    let channels = asked(hall);
    have_none(hall, &channels);
}

/// A hall in which one of three joins of `a` is answered, and the others are late.
fn hall_with_late_joins() -> Hall {
    let mut hall = hall_that_recovers();
    recover_three(&mut hall);
    none_is_elsewhere(&mut hall);
    assert_eq!(hall.rooms.len(), 3);
    hall
}

#[test]
fn late_joins_are_answered_as_fast_as_their_client_reads() {
    let mut hall = hall_with_late_joins();
    let (bytes, frames) = hall.queued("a");
    assert!(frames > 0 && bytes < 8_192 / 2, "one of three answers is queued: {bytes}");
    hall.node.client("a").room_bytes = usize::MAX;
    for answered in 1..=3 {
        let place = hall.node.client("a").place;
        hall.node.write(place);
        hall.tick();
        let replies = hall.seen["a"].messages.iter().filter(|message| message.starts_with(r#"{"id":1"#));
        let (with_all, all) = replies.fold((0, 0), |(with_all, all), reply| {
            let publications = reply.matches(r#""offset""#).count();
            (with_all + usize::from(publications >= 10 && reply.contains(r#""recovered":true"#)), all + 1)
        });
        assert!(with_all == all && all >= answered, "{all} of {answered}: {:?}", hall.seen["a"].messages);
    }
    assert_eq!(hall.node.shards[0].unanswered_joins(), 0);
}

/// The ids of the commands that the client has a reply to.
fn answered(hall: &Hall, name: &str, ids: &[u64]) -> Vec<u64> {
    let messages = hall.seen[name].messages.iter().map(|text| serde_json::from_str::<Value>(text).expect("JSON"));
    let replied: Vec<_> = messages.filter_map(|message| message["id"].as_u64()).collect();
    ids.iter().copied().filter(|id| replied.contains(id)).collect()
}

#[test]
fn a_late_join_is_answered_after_a_command_that_waited_with_it() {
    let mut hall = hall_with_late_joins();
    hall.send_json("p", &json!({"id": 20, "publish": {"channel": "sport", "data": "x".repeat(3_500)}}));
    assert!(hall.queued("a").0 > 8_192 * 3 / 4, "over the limit for all commands");
    hall.send_json("a", &json!({"id": 20, "unsubscribe": {"channel": "sport"}}));
    let to_half = hall.queued("a").0 - 8_192 / 2;
    hall.take("a", to_half);
    hall.take("a", usize::MAX);
    assert_eq!(answered(&hall, "a", &[11, 20]), [11, 20]);
    for _ in 0..3 {
        hall.tick();
    }
    assert_eq!(answered(&hall, "a", &[11, 12, 13]), [11, 12, 13]);
    assert_eq!(hall.node.shards[0].unanswered_joins(), 0);
}

/// The rooms report that they were empty for the maximum time.
fn report_idle(hall: &mut Hall) {
    let rooms: Vec<_> = hall.rooms.iter().map(|(room, (host, _))| (*room, host.channel().as_ref().into())).collect();
    for (room, channel) in rooms {
        hall.on_message(0, FromRoom::Idle { room, channel });
    }
    hall.pass();
}

/// After its only session has gone, the shard holds nothing for it, and its rooms are closed.
fn nothing_is_left(hall: &mut Hall) {
    hall.leave("a");
    hall.tick();
    report_idle(hall);
    assert_eq!((hall.holdings(), hall.rooms.len()), ([0, 0], 0));
}

#[test]
fn a_room_with_a_late_join_is_not_idle() {
    let mut hall = hall_with_late_joins();
    report_idle(&mut hall);
    assert_eq!(hall.rooms.len(), 3);
    hall.node.client("a").room_bytes = usize::MAX;
    for _ in 0..4 {
        hall.take("a", usize::MAX);
        hall.tick();
    }
    assert_eq!(answered(&hall, "a", &[11, 12, 13]), [11, 12, 13]);
    nothing_is_left(&mut hall);
}

#[test]
fn a_room_that_ends_before_a_late_join_is_asked_for_again() {
    let mut hall = hall_with_late_joins();
    hall.node.ask_api(&json!({"close_room": {"channel": "arena:2"}}));
    hall.node.ask_api(&json!({"close_room": {"channel": "arena:3"}}));
    hall.pass();
    for _ in 0..4 {
        hall.take("a", usize::MAX);
        none_is_elsewhere(&mut hall);
    }
    assert_eq!(answered(&hall, "a", &[11, 12, 13]), [11, 12, 13]);
    nothing_is_left(&mut hall);
}

/// A client that answers pings and reads nothing keeps neither rooms open nor places taken.
#[test]
fn late_joins_whose_client_does_not_read_are_refused() {
    let mut hall = hall_with_late_joins();
    let unread = |hall: &Hall| hall.node.shards[0].counters().namespaces[1].rooms.joins_unread;
    hall.node.wait(2_999);
    assert_eq!((unread(&hall), hall.node.shards[0].unanswered_joins()), (0, 2), "at the limit");
    report_idle(&mut hall);
    assert_eq!(hall.rooms.len(), 3);
    hall.node.wait(1);
    assert_eq!((unread(&hall), hall.node.shards[0].unanswered_joins()), (2, 0), "past it");
    report_idle(&mut hall);
    assert_eq!(hall.rooms.len(), 1, "nobody joins the others any more");
    hall.node.client("a").room_bytes = usize::MAX;
    hall.take("a", usize::MAX);
    hall.tick();
    assert_eq!(answered(&hall, "a", &[11, 12, 13]), [11, 12, 13]);
    let replies = hall.seen["a"].messages.iter().map(|text| serde_json::from_str::<Value>(text).expect("JSON"));
    let codes: Vec<_> = replies
        .filter_map(|reply| Some((reply["error"]["code"].as_u64()?, reply["error"]["temporary"].as_bool())))
        .collect();
    assert_eq!(codes, [(111, Some(true)); 2], "the client may try again");
    recover_again(&mut hall);
    nothing_is_left(&mut hall);
}

/// A client gives a join up after five seconds, whatever the join has waited for.
#[test]
fn a_late_join_is_refused_before_its_client_gives_it_up() {
    let mut hall = hall_that_recovers();
    recover_three(&mut hall);
    hall.node.wait(2_900);
    none_is_elsewhere(&mut hall);
    let unread = |hall: &Hall| hall.node.shards[0].counters().namespaces[1].rooms.joins_unread;
    assert_eq!((unread(&hall), hall.node.shards[0].unanswered_joins()), (0, 2), "their client reads nothing");
    hall.node.wait(1_599);
    assert_eq!((unread(&hall), hall.node.shards[0].unanswered_joins()), (0, 2), "at the limit");
    hall.node.wait(1);
    assert_eq!((unread(&hall), hall.node.shards[0].unanswered_joins()), (2, 0), "past it");
}

#[test]
fn of_two_held_joins_the_one_that_began_first_ends_first() {
    let mut hall = hall_that_recovers();
    let recover = |hall: &mut Hall, id: u64, channel: &str| {
        hall.send_json("a", &json!({"id": id, "subscribe": {"channel": channel, "recover": true, "epoch": ""}}));
    };
    recover(&mut hall, 11, "arena:1");
    recover(&mut hall, 12, "arena:2");
    hall.node.wait(2_000);
    recover(&mut hall, 13, "arena:3");
    assert_eq!(asked(&mut hall).len(), 3);
    have_none(&mut hall, &["arena:1".into(), "arena:3".into()]);
    hall.node.wait(900);
    have_none(&mut hall, &["arena:2".into()]);
    let unread = |hall: &Hall| hall.node.shards[0].counters().namespaces[1].rooms.joins_unread;
    for (wait_ms, refused) in [(1_599, 0), (1, 1), (499, 1), (1, 2)] {
        hall.node.wait(wait_ms);
        assert_eq!(unread(&hall), refused);
    }
}

/// A client counts from its command, so the time of its token check counts.
#[test]
fn a_join_with_a_slow_token_is_held_for_less_long() {
    let mut hall = hall_that_recovers();
    for (id, channel, token) in [(11, "arena:1", ""), (12, "arena:2", "later")] {
        let subscribe = json!({"channel": channel, "token": token, "recover": true, "epoch": ""});
        hall.send_json("a", &json!({"id": id, "subscribe": subscribe}));
    }
    hall.node.wait(1_000);
    hall.node.answer("a", "channel=arena:2");
    hall.node.wait(1_000);
    assert_eq!(asked(&mut hall).len(), 2);
    have_none(&mut hall, &["arena:1".into(), "arena:2".into()]);
    let unread = |hall: &Hall| hall.node.shards[0].counters().namespaces[1].rooms.joins_unread;
    hall.node.wait(2_499);
    assert_eq!(unread(&hall), 0, "at the limit");
    hall.node.wait(1);
    assert_eq!(unread(&hall), 1, "past it");
}

/// At the limits, and one below what the two joins need that are held at the same time.
#[test]
fn late_joins_are_bounded_in_number_and_in_bytes() {
    let bytes_max = 8 * 2 * 512;
    for (requests_max, bytes_max, has_space) in [(2, bytes_max, true), (1, bytes_max, false), (2, bytes_max - 8, false)]
    {
        let mut hall = hall_that_recovers();
        recover_three(&mut hall);
        let mut options = late_options();
        (options.log.parked_max, options.log.parked_bytes_max) = (requests_max, bytes_max);
        hall.node.handle(0, Event::Reconfigured { options: Arc::new(options) });
        none_is_elsewhere(&mut hall);
        for _ in 0..4 {
            hall.take("a", usize::MAX);
            hall.tick();
        }
        let replies = hall.seen["a"].messages.iter().map(|text| serde_json::from_str::<Value>(text).expect("JSON"));
        let refused = replies.filter(|reply| reply["error"]["code"] == 111).count();
        assert_eq!(refused, usize::from(!has_space));
        assert_eq!(hall.node.shards[0].counters().namespaces[1].rooms.joins_unheld, u64::from(!has_space));
        assert_eq!(answered(&hall, "a", &[11, 12, 13]), [11, 12, 13]);
        nothing_is_left(&mut hall);
    }
}

#[test]
fn joins_that_wait_count_with_their_data() {
    for (bytes_max, is_refused) in [(2 * (512 + 600), false), (2 * (512 + 600) - 1, true)] {
        let mut options = options();
        options.log.peer_queries_max = 10;
        options.log.parked_bytes_max = 8 * bytes_max;
        let mut hall = Hall::new(1, options);
        hall.open("a", Encoding::Json, 0);
        for number in 1..=2 {
            hall.join("a", &format!("arena:{number}"), &json!("x".repeat(598)));
        }
        hall.look();
        let error = reply(&hall, "a").map(|reply| reply["error"]["code"].clone());
        assert_eq!(error, is_refused.then_some(json!(111)));
    }
}

#[test]
fn late_joins_that_nobody_waits_for_are_forgotten() {
    let leave: fn(&mut Hall) = |hall| hall.leave("a");
    let close: fn(&mut Hall) = |hall| hall.node.ask_api(&json!({"disconnect": {"user": ""}}));
    let unsubscribe: fn(&mut Hall) = |hall| {
        for number in 1..=3 {
            hall.unsubscribe("a", &format!("arena:{number}"));
        }
    };
    for end in [leave, unsubscribe, close] {
        let mut hall = hall_with_late_joins();
        end(&mut hall);
        hall.node.client("a").room_bytes = usize::MAX;
        let place = hall.node.client("a").place;
        hall.node.write(place);
        hall.leave("a");
        for _ in 0..3 {
            hall.tick();
        }
        let players: usize = hall.rooms.values().map(|(host, _)| host.player_count()).sum();
        assert_eq!((hall.holdings(), players), ([0, 0], 0));
        report_idle(&mut hall);
        assert_eq!(hall.rooms.len(), 0);
    }
}

#[test]
fn a_late_join_that_its_session_refuses_keeps_no_room_open() {
    let mut hall = hall(1);
    hall.send_json("a", &json!({"id": 2, "subscribe": {"channel": ROOM, "recover": true, "epoch": "", "offset": 0}}));
    answer(&mut hall, &RoomElsewhere::Unanswered);
    hall.node.ask_api(&json!({"unsubscribe": {"channel": ROOM, "user": ""}}));
    hall.node.wait(ASK_AGAIN_MS);
    answer(&mut hall, &RoomElsewhere::Nowhere { is_contended: false });
    assert_eq!(hall.rooms.len(), 1, "it opens the room, and its subscription is over");
    assert!(reply(&hall, "a").expect("a reply").get("error").is_some());
    assert_eq!(hall.node.shards[0].unanswered_joins(), 0);
    report_idle(&mut hall);
    assert_eq!((hall.holdings(), hall.rooms.len()), ([0, 0], 0));
}

#[test]
fn a_room_of_another_node_is_forgotten_with_its_last_late_join() {
    let mut hall = hall_that_recovers();
    recover_three(&mut hall);
    for channel in asked(&mut hall) {
        let room = RoomKey { owner: ShardIndex(3), number: 9 };
        let site = RoomSite { node: "n2".into(), room, thread: RoomThreadIndex(5), sends_changes: true };
        let found = RoomElsewhere::Open { node: "n2".into(), site: Some(Box::new(site)) };
        hall.node.handle(0, Event::RoomQueried { channel: channel.as_str().into(), found });
    }
    let sent = |hall: &mut Hall, is_it: fn(&ToRoom) -> bool| {
        hall.node.to_rooms.drain(..).filter(|(_, message)| is_it(message)).count()
    };
    assert_eq!(sent(&mut hall, |message| matches!(message, ToRoom::Join { .. })), 1, "the others are held");
    hall.leave("a");
    assert_eq!(sent(&mut hall, |message| matches!(message, ToRoom::Close { .. })), 2);
}

/// The channels that the other nodes are asked for.
fn asked(hall: &mut Hall) -> Vec<String> {
    hall.node.room_queries.drain(..).map(|(_, channel)| (*channel).to_owned()).collect()
}

/// The other nodes do not have the rooms of these channels.
fn have_none(hall: &mut Hall, channels: &[String]) {
    for channel in channels {
        let found = RoomElsewhere::Nowhere { is_contended: false };
        hall.node.handle(0, Event::RoomQueried { channel: channel.as_str().into(), found });
    }
    hall.tick();
}

fn hall_that_opens(change: fn(&mut RoomOpenings)) -> Hall {
    let mut options = options();
    options.log.peer_queries_max = 10;
    change(&mut options.room_openings);
    let mut hall = Hall::new(1, options);
    for number in 1..=5 {
        hall.open(&number.to_string(), Encoding::Json, 0);
    }
    hall
}

/// The client `number` joins a room of its own, which no other node has.
fn join_own(hall: &mut Hall, number: u32) {
    hall.subscribe(&number.to_string(), &format!("arena:{number}"));
    let channels = asked(hall);
    assert_eq!(channels, [format!("arena:{number}")]);
    have_none(hall, &channels);
}

#[test]
fn joins_ask_again_when_this_node_may_open_a_room_and_in_the_order_of_arrival() {
    let mut hall = hall_that_opens(|openings| openings.per_second = 1);
    for number in 1..=4 {
        join_own(&mut hall, number);
    }
    assert_eq!(hall.rooms.len(), 1, "at the limit, and past it");
    for number in 2..=3 {
        hall.node.wait(999);
        assert_eq!(asked(&mut hall), [""; 0], "the limit has no space");
        hall.node.wait(1);
        let channels = asked(&mut hall);
        assert_eq!(channels, [format!("arena:{number}")]);
        if number == 2 {
            // It does not overtake those that wait.
            join_own(&mut hall, 5);
        }
        have_none(&mut hall, &channels);
        assert_eq!(hall.rooms.len(), number);
    }
    assert_eq!(refused(&hall, RoomRefusal::Rate), 0);
    hall.node.wait(1_000);
    hall.look();
    assert_eq!(reply(&hall, "4"), None, "it has waited for three seconds, and asks a last time");
    let channels = asked(&mut hall);
    assert_eq!(channels, ["arena:4", "arena:5"]);
    have_none(&mut hall, &channels);
    assert_eq!(reply(&hall, "4").expect("nobody has the room")["error"]["code"], 111);
    assert_eq!(refused(&hall, RoomRefusal::Rate), 1);
    assert!(reply(&hall, "5").expect("a reply").get("error").is_none());
    assert_eq!(hall.node.shards[0].unanswered_joins(), 0);
}

#[test]
fn a_turn_lasts_until_the_other_nodes_have_answered() {
    let mut hall = hall_that_opens(|openings| openings.per_second = 2);
    for number in 1..=3 {
        join_own(&mut hall, number);
    }
    hall.subscribe("4", "arena:4");
    assert_eq!(asked(&mut hall), ["arena:4"]);
    // The answer is there before the timer: two rooms may be opened.
    hall.node.now.mono_us += 1_000_000;
    have_none(&mut hall, &["arena:4".to_owned()]);
    assert_eq!(asked(&mut hall), ["arena:3", "arena:4"]);
    hall.subscribe("5", "arena:5");
    have_none(&mut hall, &["arena:5".to_owned()]);
    have_none(&mut hall, &["arena:3".to_owned(), "arena:4".to_owned()]);
    let is_answered = |number: u32| reply(&hall, &number.to_string()).is_some();
    assert_eq!([3, 4, 5].map(is_answered), [true, true, false], "it does not overtake those whose turn has come");
}

#[test]
fn joins_in_the_line_learn_that_another_node_has_opened_their_room() {
    let mut hall = hall_that_opens(|openings| openings.opening_max = 1);
    hall.reports_made = false;
    for number in 1..=2 {
        join_own(&mut hall, number);
    }
    // One more join of the channel, which a node does not answer.
    hall.subscribe("3", "arena:2");
    assert_eq!(asked(&mut hall), ["arena:2"]);
    hall.node.handle(0, Event::RoomQueried { channel: "arena:2".into(), found: RoomElsewhere::Unanswered });
    hall.node.wait(2_999);
    assert_eq!(asked(&mut hall), [""; 0]);
    hall.node.wait(1);
    assert_eq!(asked(&mut hall), ["arena:2"]);
    hall.node.handle(0, Event::RoomQueried { channel: "arena:2".into(), found: elsewhere() });
    hall.tick();
    for name in ["2", "3"] {
        assert_eq!(reply(&hall, name).expect("a reply")["error"]["code"], 421);
    }
    assert_eq!((refused(&hall, RoomRefusal::Queue), hall.node.shards[0].unanswered_joins()), (0, 0));
}

#[test]
fn joins_in_the_line_learn_what_others_are_told_of_their_room() {
    let mut hall = hall_that_opens(|openings| openings.opening_max = 1);
    hall.reports_made = false;
    for number in 1..=2 {
        join_own(&mut hall, number);
    }
    let ask: [fn(&mut Hall); 2] = [
        |hall| hall.subscribe("3", "arena:2"),
        |hall| hall.node.ask_api(&json!({"open_room": {"channel": "arena:2"}})),
    ];
    for ask in ask {
        assert_eq!(reply(&hall, "2"), None);
        ask(&mut hall);
        assert_eq!(asked(&mut hall), ["arena:2"]);
        hall.node.handle(0, Event::RoomQueried { channel: "arena:2".into(), found: elsewhere() });
        hall.tick();
        assert_eq!(reply(&hall, "2").expect("a reply")["error"]["code"], 421);
        assert_eq!(hall.node.shards[0].unanswered_joins(), 0);
        hall.seen("2").messages.clear();
        join_own(&mut hall, 2);
    }
}

/// The answer to a request of the server API that opens a room which no other node has: `null`, or the code of its error.
fn opened_by_api(hall: &mut Hall, channel: &str) -> Value {
    hall.node.answers.clear();
    hall.node.ask_api(&json!({"open_room": {"channel": channel}}));
    have_none(hall, &[channel.to_owned()]);
    answers(hall).pop().map_or(Value::Null, |answer| answer["error"].clone())
}

/// Requests of the server API take turns with the joins in the line, and the rate of both together is the limit.
#[test]
fn requests_of_the_api_open_rooms_while_joins_wait_in_the_line() {
    let mut hall = hall_that_opens(|openings| openings.per_second = 4);
    for number in 6..=8 {
        hall.open(&number.to_string(), Encoding::Json, 0);
    }
    for number in 1..=8 {
        join_own(&mut hall, number);
    }
    assert_eq!((hall.rooms.len(), asked(&mut hall)), (4, vec![]), "four wait in line");
    for turn in 0..4 {
        assert_eq!(opened_by_api(&mut hall, &format!("arena:first{turn}")), Value::Null, "turn {turn}");
        asked(&mut hall);
        assert_eq!(opened_by_api(&mut hall, &format!("arena:second{turn}")), 111, "turn {turn}: it is not its turn");
        asked(&mut hall);
        hall.node.wait(499);
        assert_eq!(asked(&mut hall), [""; 0], "turn {turn}: one room of the second was opened by the request");
        hall.node.wait(1);
        let channels = asked(&mut hall);
        assert_eq!(channels, [format!("arena:{}", 5 + turn)]);
        have_none(&mut hall, &channels);
        assert_eq!(hall.rooms.len(), 4 + 2 * (turn + 1));
    }
    let joined = |number: u32| reply(&hall, &number.to_string()).is_some_and(|reply| reply.get("error").is_none());
    assert!((1..=8).all(joined), "no join was refused");
}

/// The joins in the line leave one of eight places, and do not wait for more.
#[test]
fn requests_of_the_api_open_rooms_while_joins_wait_for_worlds() {
    let mut hall = hall_that_opens(|openings| openings.opening_max = 8);
    hall.reports_made = false;
    for number in 6..=11 {
        hall.open(&number.to_string(), Encoding::Json, 0);
    }
    for number in 1..=11 {
        join_own(&mut hall, number);
    }
    assert_eq!(hall.rooms.len(), 8, "at the limit, and past it");
    assert_eq!(opened_by_api(&mut hall, "arena:first"), 111, "the limit is for all");
    asked(&mut hall);
    make(&mut hall, "arena:1");
    assert_eq!(asked(&mut hall), [""; 0]);
    assert_eq!(opened_by_api(&mut hall, "arena:first"), Value::Null);
    asked(&mut hall);
    make(&mut hall, "arena:2");
    assert_eq!(opened_by_api(&mut hall, "arena:second"), 111, "joins are next");
    asked(&mut hall);
    make(&mut hall, "arena:3");
    let channels = asked(&mut hall);
    assert_eq!(channels, ["arena:9"]);
    have_none(&mut hall, &channels);
    assert_eq!(opened_by_api(&mut hall, "arena:second"), Value::Null);
}

/// The world of a room is created.
fn make(hall: &mut Hall, channel: &str) {
    let room = hall.rooms.iter().find(|(_, (host, _))| **host.channel() == *channel).map(|(room, _)| *room);
    hall.on_message(0, FromRoom::Made { room: room.expect("it is open"), channel: channel.into() });
}

/// The questions of a channel's overdue joins are bounded, in whatever order these have come.
#[test]
fn joins_in_the_line_ask_a_last_time_together() {
    let mut hall = hall_that_opens(|openings| openings.opening_max = 1);
    hall.reports_made = false;
    join_own(&mut hall, 1);
    for name in ["2", "3", "4"] {
        hall.subscribe(name, "arena:2");
        let channels = asked(&mut hall);
        have_none(&mut hall, &channels);
        hall.node.wait(100);
    }
    hall.node.wait(2_700);
    let error = |hall: &Hall, name: &str| reply(hall, name).map(|reply| reply["error"]["code"].clone());
    let channels = asked(&mut hall);
    assert_eq!(channels, ["arena:2"], "the first has waited for three seconds");
    have_none(&mut hall, &channels);
    assert_eq!(["2", "3", "4"].map(|name| error(&hall, name)), [Some(json!(111)), None, None]);
    hall.node.wait(399);
    assert_eq!(asked(&mut hall), [""; 0], "the others wait for each other");
    hall.node.wait(1);
    let channels = asked(&mut hall);
    assert_eq!(channels, ["arena:2"]);
    have_none(&mut hall, &channels);
    assert_eq!(["3", "4"].map(|name| error(&hall, name)), [Some(json!(111)), Some(json!(111))]);
    assert_eq!(hall.node.shards[0].unanswered_joins(), 0);
}

#[test]
fn joins_ask_again_when_fewer_rooms_are_being_opened() {
    let mut hall = hall_that_opens(|openings| openings.opening_max = 1);
    hall.reports_made = false;
    for number in 1..=4 {
        join_own(&mut hall, number);
    }
    assert_eq!(hall.rooms.len(), 1, "at the limit, and past it");
    hall.leave("2");
    hall.node.wait(2_000);
    assert_eq!(asked(&mut hall), [""; 0]);
    let made = |hall: &mut Hall, number: u32| {
        let channel = format!("arena:{number}");
        let room = hall.rooms.iter().find(|(_, (host, _))| **host.channel() == channel).map(|(room, _)| *room);
        let made = FromRoom::Made { room: room.expect("it is open"), channel: channel.as_str().into() };
        hall.on_message(0, made);
    };
    made(&mut hall, 1);
    let channels = asked(&mut hall);
    assert_eq!(channels, ["arena:3"], "nobody waits for the room before it");
    join_own(&mut hall, 5);
    assert_eq!(hall.rooms.len(), 1, "the place is taken");
    // The room is open elsewhere, so the next one may be opened here.
    hall.node.handle(0, Event::RoomQueried { channel: "arena:3".into(), found: elsewhere() });
    hall.tick();
    assert_eq!(reply(&hall, "3").expect("a reply")["error"]["code"], 421);
    let channels = asked(&mut hall);
    assert_eq!(channels, ["arena:4"]);
    have_none(&mut hall, &channels);
    assert!(reply(&hall, "4").expect("a reply").get("error").is_none());
    made(&mut hall, 4);
    let channels = asked(&mut hall);
    have_none(&mut hall, &channels);
    assert!(reply(&hall, "5").expect("a reply").get("error").is_none());
    assert_eq!(refused(&hall, RoomRefusal::Queue), 0);
}

#[test]
fn joins_that_wait_are_limited_apart_from_the_server_api() {
    let mut options = options();
    options.log.peer_queries_max = 10;
    options.log.parked_max = 3;
    options.namespaces[0].room.as_mut().expect("it has rooms").messages_max = 2;
    let mut hall = Hall::new(1, options);
    let names = ["a", "b", "c", "d"];
    for name in names {
        hall.open(name, Encoding::Json, 0);
        join(&mut hall, name);
    }
    let refusals = names.map(|name| reply(&hall, name).map(|reply| reply["error"]["code"].clone()));
    assert_eq!(refusals, [None, None, None, Some(json!(111))], "at the limit, and one past it");
    open_by_api(&mut hall);
    assert_eq!(answers(&hall), [Value::Null; 0], "joins take no place of the server API");
    answer(&mut hall, &RoomElsewhere::Nowhere { is_contended: false });
    assert_eq!((answers(&hall).len(), hall.only_room().0.player_count()), (1, 3));
    assert_eq!(hall.node.shards[0].unanswered_joins(), 0);
}

/// Three nodes whose backends open the same room again and again, over a network that delays messages at random.
struct Nodes {
    halls: Vec<Hall>,
    in_flight: Vec<InFlight>,
    /// The answers to the question of each node, while it waits for some.
    asked: [Option<Vec<(usize, Value)>>; 3],
}

#[derive(Debug)]
enum InFlight {
    Question {
        from: usize,
        to: usize,
    },
    Answer {
        from: usize,
        to: usize,
        state: Value,
    },
    /// The question is over, and its node has not processed that.
    Found {
        node: usize,
        found: RoomElsewhere,
    },
}

impl Nodes {
    fn new() -> Self {
        Self { halls: (0..3).map(|_| hall(1)).collect(), in_flight: Vec::new(), asked: [None, None, None] }
    }

    fn open(&mut self, node: usize) {
        let hall = &mut self.halls[node];
        open_by_api(hall);
        hall.pass();
        if hall.node.room_queries.drain(..).next().is_some() {
            self.asked[node] = Some(Vec::new());
            let others = (0..3).filter(|other| *other != node);
            self.in_flight.extend(others.map(|to| InFlight::Question { from: node, to }));
        }
    }

    /// A message arrives. The order of two messages means nothing: different threads process them.
    fn deliver(&mut self, place: usize) {
        match self.in_flight.swap_remove(place) {
            InFlight::Question { from, to } => {
                let state = state(&mut self.halls[to]);
                self.in_flight.push(InFlight::Answer { from: to, to: from, state });
            }
            InFlight::Answer { from, to, state } => {
                let answers = self.asked[to].as_mut().expect("it waits for two answers");
                answers.push((from, state));
                if answers.len() == 2 {
                    let found = found(to, &self.asked[to].take().expect("they are there"));
                    self.in_flight.push(InFlight::Found { node: to, found });
                }
            }
            InFlight::Found { node, found } => {
                let event = Event::RoomQueried { channel: ROOM.into(), found };
                self.halls[node].node.handle(0, event);
                self.halls[node].pass();
            }
        }
        assert!(self.holders() <= 1, "one node has the room");
    }

    fn holders(&self) -> usize {
        self.halls.iter().map(|hall| hall.rooms.len()).sum()
    }

    fn fail(&mut self) {
        for hall in &mut self.halls {
            if let Some((room, _)) = hall.rooms.pop_first() {
                hall.on_message(0, FromRoom::Failed { room, channel: ROOM.into(), refusal: None });
                hall.pass();
            }
        }
    }
}

/// As the server's `peers::rooms`.
fn found(own: usize, answers: &[(usize, Value)]) -> RoomElsewhere {
    let asking = || answers.iter().filter(|(_, state)| state == "Asking").map(|(node, _)| *node);
    if answers.iter().any(|(_, state)| state == "Open") {
        elsewhere()
    } else if asking().any(|other| other < own) {
        RoomElsewhere::Unanswered
    } else {
        RoomElsewhere::Nowhere { is_contended: asking().next().is_some() }
    }
}

#[test]
fn one_of_three_nodes_opens_a_room_and_opens_it_again() {
    for seed in 0..300 {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut below = |bound: usize| random.next_u32() as usize % bound;
        let mut nodes = Nodes::new();
        for _ in 0..300 {
            match below(8) {
                0 => nodes.open(below(3)),
                1 if below(4) == 0 => nodes.fail(),
                _ if !nodes.in_flight.is_empty() => nodes.deliver(below(nodes.in_flight.len())),
                _ => {}
            }
        }
        // Without further failures, the nodes ask in turn. No promise is over by then: time stands still.
        while !nodes.in_flight.is_empty() {
            nodes.deliver(0);
        }
        nodes.fail();
        for node in 0..3 {
            nodes.open(node);
            while !nodes.in_flight.is_empty() {
                nodes.deliver(0);
            }
        }
        assert_eq!(nodes.holders(), 1, "seed {seed}: the nodes have promised the room to each other");
    }
}

#[test]
fn promised_rooms_are_limited() {
    let mut hall = hall(1);
    let ask = |hall: &mut Hall, number: usize| {
        hall.node.answers.clear();
        hall.node.ask_api(&json!({"room_state": {"channel": format!("arena:{number}")}}));
        answers(hall).remove(0)
    };
    for number in 0..PROMISES_MAX {
        assert_eq!(ask(&mut hall, number), "None");
    }
    assert_eq!(ask(&mut hall, PROMISES_MAX), json!({"error": 111}), "past the limit");
    hall.node.step_to(hall.node.now.mono_us + 2_000_000);
    assert_eq!(ask(&mut hall, PROMISES_MAX), "None", "the others are over");
}

#[test]
fn requests_that_wait_for_other_nodes_are_limited() {
    let mut options = options();
    options.log.peer_queries_max = 10;
    options.namespaces[0].room.as_mut().expect("it has rooms").messages_max = 2;
    let mut hall = Hall::new(1, options);
    for _ in 0..2 {
        open_by_api(&mut hall);
        assert_eq!(answers(&hall), [Value::Null; 0], "at the limit");
    }
    open_by_api(&mut hall);
    assert_eq!(answers(&hall), [json!({"error": 111})], "past it");
    hall.open("a", Encoding::Json, 0);
    join(&mut hall, "a");
    assert_eq!((reply(&hall, "a"), hall.node.room_queries.len()), (None, 1), "a join has a limit of its own");
}
