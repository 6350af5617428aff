//! What the backend learns of rooms.

use dunlin_engine::{lifecycle::LifecycleKind, room::FromRoom};
use dunlin_protocol::Encoding;
use serde_json::json;

use crate::hall::{Hall, options};

fn hall(channel_events: bool) -> Hall {
    let mut options = options();
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
