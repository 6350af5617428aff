//! What the backend learns of rooms.

use dunlin_engine::{
    Event, ShardIndex,
    lifecycle::LifecycleKind,
    room::{FromRoom, JoinedAs, RoomElsewhere, RoomKey, RoomSite, RoomThreadIndex, ToRoom},
};
use dunlin_protocol::Encoding;
use serde_json::json;

use crate::hall::{Hall, options};

fn hall(channel_events: bool) -> Hall {
    hall_with(channel_events, 0)
}

/// In a cluster, other nodes may have a room: `peer_queries_max` above 0.
fn hall_with(channel_events: bool, peer_queries_max: usize) -> Hall {
    let mut options = options();
    options.log.peer_queries_max = peer_queries_max;
    let of_rooms = [LifecycleKind::RoomOpened, LifecycleKind::RoomEnded];
    options.lifecycle = of_rooms.into_iter().collect();
    options.namespaces[0].channel_events = channel_events;
    let mut hall = Hall::new(2, options);
    hall.open("a", Encoding::Json, 0);
    hall
}

/// The events since the last call.
fn told(hall: &mut Hall) -> Vec<String> {
    let (told, rest) = std::mem::take(&mut hall.node.sent).into_iter().partition(|line| line.starts_with("event "));
    hall.node.sent = rest;
    told
}

#[test]
fn a_room_opens_when_its_world_is_created_and_ends_once() {
    let mut hall = hall(true);
    hall.reports_made = false;
    hall.subscribe("a", "arena:1");
    hall.tick();
    assert_eq!(told(&mut hall), [""; 0], "its world is not created");
    let (room, channel) =
        hall.rooms.iter().map(|(room, (host, _))| (*room, host.channel().clone())).next().expect("it");
    for _ in 0..2 {
        hall.on_message(room.owner.0, FromRoom::Made { room, channel: channel.clone() });
    }
    assert_eq!(told(&mut hall), [r#"event room_opened {"channel":"arena:1"}"#], "once");
    hall.node.ask_api(&json!({"close_room": {"channel": "arena:1"}}));
    hall.tick();
    assert_eq!(told(&mut hall), [r#"event room_ended {"channel":"arena:1","code":2010,"reason":null}"#]);
}

#[test]
fn a_room_that_fails_has_ended_unless_it_never_opened() {
    let mut hall = hall(true);
    hall.subscribe("a", "arena:1");
    hall.tick();
    let fail = |hall: &mut Hall| {
        let (room, channel) =
            hall.rooms.iter().map(|(room, (host, _))| (*room, host.channel().clone())).next().expect("it");
        hall.on_message(room.owner.0, FromRoom::Failed { room, channel, refusal: None });
    };
    fail(&mut hall);
    let failed = r#"event room_ended {"channel":"arena:1","code":2510,"reason":null}"#;
    assert_eq!(told(&mut hall), [r#"event room_opened {"channel":"arena:1"}"#, failed]);
    let mut hall = self::hall(true);
    hall.reports_made = false;
    hall.subscribe("a", "arena:1");
    hall.tick();
    fail(&mut hall);
    assert_eq!(told(&mut hall), [""; 0]);
}

#[test]
fn nothing_is_told_of_rooms_without_channel_events() {
    let mut hall = hall(false);
    hall.subscribe("a", "arena:1");
    hall.tick();
    hall.node.ask_api(&json!({"close_room": {"channel": "arena:1"}}));
    hall.tick();
    assert_eq!(told(&mut hall), [""; 0]);
}

/// A node with players of a room that another node has knows its link to that node, not the room: the room may go on.
#[test]
fn only_the_node_that_has_a_room_tells_of_it() {
    let mut hall = hall_with(true, 10);
    hall.subscribe("a", "arena:1");
    let (owner, _) = hall.node.room_queries.pop().expect("the others are asked");
    let site = RoomSite {
        node: "n2".into(),
        room: RoomKey { owner: ShardIndex(0), number: 9 },
        thread: RoomThreadIndex(0),
        sends_changes: true,
    };
    let found = RoomElsewhere::Open { node: "n2".into(), site: Some(Box::new(site)) };
    hall.node.handle(owner, Event::RoomQueried { channel: "arena:1".into(), found });
    let sent: Vec<ToRoom> = hall.node.to_rooms.drain(..).map(|(_, message)| message).collect();
    let [ToRoom::OpenRemote { room, .. }, ToRoom::Join { .. }] = &sent[..] else { panic!("{sent:?}") };
    let room = *room;
    let Some(ToRoom::Join { request, .. }) = sent.into_iter().nth(1) else { panic!("a join") };
    hall.on_message(owner, FromRoom::Joined { room, request, outcome: Ok(JoinedAs { is_back: false }) });
    hall.on_message(owner, FromRoom::Made { room, channel: "arena:1".into() });
    hall.on_message(owner, FromRoom::Failed { room, channel: "arena:1".into(), refusal: None });
    hall.tick();
    let ends = hall.seen["a"].messages.iter().filter(|message| message.contains(r#""code":2510"#)).count();
    assert_eq!((ends, told(&mut hall)), (1, Vec::new()), "the client has to join again, and the room has not ended");
}
