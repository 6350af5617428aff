//! Paces that subscribers state, where scripts cannot show them: in rooms, and for many subscribers.

use std::num::NonZeroU32;

use dunlin_protocol::Encoding;
use serde_json::json;

use crate::{
    hall::{Hall, options},
    node::{Node, options as node_options},
};

const ARENA: &str = "arena:a";
const TICK_US: u64 = 16_667;

/// The snapshots that were written to players, and how many of them were assembled in full.
fn snapshots(hall: &Hall) -> (u64, u64) {
    let rooms = hall.node.shards[0].counters().namespaces[1].rooms;
    (rooms.frames, rooms.assemblies_full)
}

fn run(hall: &mut Hall, ticks: u32) {
    for _ in 0..ticks {
        hall.node.step_to(hall.node.now.mono_us + TICK_US);
        hall.tick();
    }
}

/// Runs until the next snapshot, and compares it with the world.
fn check_next(hall: &mut Hall) {
    let (before, _) = snapshots(hall);
    while snapshots(hall).0 == before {
        run(hall, 1);
    }
    hall.check("a", ARENA);
}

#[test]
fn a_player_is_sent_the_newest_tick_at_its_pace() {
    let mut hall = Hall::new(1, options());
    hall.open("a", Encoding::Json, 0);
    hall.join("a", ARENA, &json!({"updates_per_second_max": 10}));
    run(&mut hall, 2);
    let (first, full) = snapshots(&hall);
    assert_eq!(first, 1);
    run(&mut hall, 60);
    let (frames, full_after) = snapshots(&hall);
    // Every sixth of 60 ticks, as a difference: the history reaches back to the one before.
    assert_eq!((frames - first, full_after - full), (10, 0));
    let rooms = hall.node.shards[0].counters().namespaces[1].rooms;
    assert_eq!((rooms.paced_ticks, rooms.skipped_ticks), (50, 0));
    check_next(&mut hall);
    // Faster, at once.
    hall.send_json(
        "a",
        &json!({"id": 3, "rpc": {"method": "dunlin.subscription_pace", "data":
            {"channel": ARENA, "updates_per_second_max": 30}}}),
    );
    let (before, _) = snapshots(&hall);
    run(&mut hall, 60);
    assert_eq!(snapshots(&hall).0 - before, 30);
    // Below four a second the history is too short, so each is a full one.
    hall.send_json(
        "a",
        &json!({"id": 4, "rpc": {"method": "dunlin.subscription_pace", "data":
            {"channel": ARENA, "updates_per_second_max": 1}}}),
    );
    let (before, full) = snapshots(&hall);
    // The counts of a mirror are those before the last tick.
    run(&mut hall, 181);
    let (frames, full_after) = snapshots(&hall);
    assert_eq!((frames - before, full_after - full), (3, 3));
    check_next(&mut hall);
    // Without a pace, every tick.
    hall.send_json(
        "a",
        &json!({"id": 5, "rpc": {"method": "dunlin.subscription_pace", "data":
            {"channel": ARENA, "updates_per_second_max": null}}}),
    );
    let (before, _) = snapshots(&hall);
    run(&mut hall, 10);
    assert_eq!(snapshots(&hall).0 - before, 10);
    hall.check("a", ARENA);
    assert_eq!(hall.node.shards[0].counters().namespaces[1].paced_subscriptions, 0);
    hall.leave("a");
}

/// The age of what a player with a bandwidth limit sees is that of zones that wait.
#[test]
fn a_pace_does_not_make_a_view_old() {
    let mut options = options();
    let room = options.namespaces.last_mut().and_then(|arena| arena.room.as_mut()).expect("rooms");
    room.frame_bytes_per_second = NonZeroU32::new(100_000_000);
    let mut hall = Hall::new(1, options);
    hall.meadow.shape.far_interval_ticks = 1;
    hall.open("a", Encoding::Json, 0);
    hall.join("a", ARENA, &json!({"updates_per_second_max": 10}));
    run(&mut hall, 62);
    let rooms = hall.node.shards[0].counters().namespaces[1].rooms;
    assert_eq!((rooms.frames, rooms.limited_ticks, rooms.view_age.count()), (11, 0, 10));
    assert_eq!(rooms.view_age.sum_us, 10 * 16_666, "one tick each");
}

/// Publishes to each of the keys.
fn publish(node: &mut Node, keys: u32) {
    for key in 0..keys {
        let publish = json!({"publish": {"channel": "p", "data": key, "tags": {"k": key.to_string()}}});
        node.ask_api(&publish);
    }
}

#[test]
fn a_publication_visits_no_paced_subscriber_and_turns_are_taken_in_parts() {
    let mut options = dunlin_engine::Options::default();
    node_options::permissive(&mut options);
    node_options::set(&mut options, "namespace.delivery=latest");
    node_options::set(&mut options, "namespace.conflation_key=k");
    let mut node = Node::new(1, options);
    let names: Vec<String> = (0..20).map(|number| format!("s{number}")).collect();
    for name in &names {
        node.open(name, Encoding::Json, 0);
        node.receive(name, br#"{"id":1,"connect":{}}"#.to_vec());
        node.receive(name, br#"{"id":2,"subscribe":{"channel":"p","data":{"updates_per_second_max":1}}}"#.to_vec());
    }
    let deliveries = |node: &Node| node.shards[0].counters().namespaces[0].deliveries;
    publish(&mut node, 1);
    node.wait(1);
    assert_eq!(deliveries(&node), 20);
    publish(&mut node, 500);
    publish(&mut node, 500);
    assert_eq!(deliveries(&node), 20, "all rest");
    // 10,000 frames: more than one turn of the event loop queues.
    node.wait(1_010);
    assert_eq!(deliveries(&node), 20 + 20 * 500);
    assert_eq!(node.shards[0].counters().namespaces[0].pace_skipped, 20 * 500);
    for name in &names {
        assert!(node.client(name).received.len() > 500 * 20, "{name}");
    }
}
