//! The logs of rooms in streams of real servers.

use bytes::Bytes;
use dunlin_cluster::{
    core::{
        leases::LeaseChange,
        room_logs::{KeptRoom, RoomLogEffect, RoomLogEvent, RoomLogFault, RoomLogNames, RoomLogNumber},
    },
    thread::ClusterOptions,
};
use dunlin_proof::nats::NatsServers;
use serde_json::Value;

use crate::thread::{ThreadOfNode, cluster_options};

const CHANNEL: &str = "game:*1";
/// Two parts.
const CHECKPOINT_BYTES: usize = 300 << 10;

fn start(servers: &NatsServers, node: &str) -> ThreadOfNode {
    let options = cluster_options(&servers.urls(), node, 1);
    let started = ThreadOfNode::start_with(ClusterOptions { keeps_rooms: true, partitions: 1, ..options });
    started.announce(node);
    // Without a lease, it opens no room.
    assert!(matches!(started.lease_change(), LeaseChange::Began { .. }));
    started
}

fn open(node: &ThreadOfNode, number: u64) -> Result<KeptRoom, RoomLogFault> {
    let log = RoomLogNumber(number);
    node.room_log(RoomLogEvent::Open { log, channel: CHANNEL.into() });
    match node.room_log_answer() {
        RoomLogEffect::Opened { log: opened, outcome } if opened == log => outcome,
        other => panic!("{other:?}"),
    }
}

fn record(node: &ThreadOfNode, number: u64, tick: u64) {
    let log = RoomLogNumber(number);
    node.room_log(RoomLogEvent::Record { log, tick, bytes: steps(tick) });
    assert_eq!(node.room_log_answer(), RoomLogEffect::Recorded { log, tick });
}

fn checkpoint(node: &ThreadOfNode, number: u64, tick: u64) {
    let log = RoomLogNumber(number);
    node.room_log(RoomLogEvent::Checkpoint { log, tick, bytes: state(tick), goes_first: false });
    assert_eq!(node.room_log_answer(), RoomLogEffect::CheckpointStored { log, bytes: CHECKPOINT_BYTES });
}

fn end(node: &ThreadOfNode, number: u64, keeps: bool) {
    let log = RoomLogNumber(number);
    node.room_log(RoomLogEvent::End { log, keeps });
    assert_eq!(node.room_log_answer(), RoomLogEffect::Ended { log });
}

fn steps(tick: u64) -> Bytes {
    Bytes::copy_from_slice(&tick.to_le_bytes())
}

fn state(tick: u64) -> Bytes {
    vec![u8::try_from(tick % 251).expect("below 251"); CHECKPOINT_BYTES].into()
}

/// The number of messages in the stream of the logs, once it is this or the time is over.
async fn messages_in_the_end(servers: &NatsServers, expected: u64) -> u64 {
    let client = async_nats::connect(servers.urls()).await.expect("the servers take a client");
    let subject = format!("$JS.API.STREAM.INFO.{}", RoomLogNames::new("dn").stream);
    let deadline = tokio::time::Instant::now() + crate::links::PATIENCE;
    loop {
        let answer = client.request(subject.clone(), Bytes::new()).await.expect("the stream answers");
        let info: Value = serde_json::from_slice(&answer.payload).expect("JSON");
        let messages = info["state"]["messages"].as_u64().expect("a number");
        if messages == expected || tokio::time::Instant::now() >= deadline {
            return messages;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_room_goes_on_with_its_log_on_another_node_and_leaves_nothing_when_it_ends() {
    let servers = NatsServers::start(1, "");
    let (a, b) = (start(&servers, "a"), start(&servers, "b"));
    assert_eq!(open(&a, 1), Ok(KeptRoom::default()), "a new room");
    record(&a, 1, 1);
    checkpoint(&a, 1, 1);
    record(&a, 1, 2);
    checkpoint(&a, 1, 2);
    (3..=5).for_each(|tick| record(&a, 1, tick));
    // Two parts and three records: everything before the newest checkpoint is purged.
    assert_eq!(messages_in_the_end(&servers, 5).await, 5);
    assert_eq!(open(&b, 1), Err(RoomLogFault::Held { by: "a".into() }), "its holder lives");
    end(&a, 1, true);
    let kept = open(&b, 2).expect("it is released");
    let records = (3..=5).map(|tick| (tick, steps(tick))).collect();
    assert!(kept == KeptRoom { checkpoint: Some((2, state(2))), records }, "the checkpoint and the records after it");
    record(&b, 2, 6);
    end(&b, 2, false);
    assert_eq!(messages_in_the_end(&servers, 0).await, 0);
    assert_eq!(open(&a, 2), Ok(KeptRoom::default()), "the room that has ended does not come back");
    a.stop();
    b.stop();
}

#[tokio::test]
async fn a_room_whose_log_is_unusable_is_given_up_unread() {
    let servers = NatsServers::start(1, "");
    let a = start(&servers, "a");
    open(&a, 1).expect("a new room");
    checkpoint(&a, 1, 1);
    end(&a, 1, true);
    let log = RoomLogNumber(2);
    a.room_log(RoomLogEvent::Open { log, channel: CHANNEL.into() });
    end(&a, 2, false);
    assert_eq!(messages_in_the_end(&servers, 0).await, 0);
    a.stop();
}
