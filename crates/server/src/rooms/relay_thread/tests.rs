//! Tests of single turns of the relay's thread. The test acts as a shard and as the node of a room.

use std::collections::VecDeque;

use bytes::Bytes;
use dunlin_engine::{
    ShardIndex,
    event::NodeSlot,
    room::{FromRoom, JoinedAs, RoomKey, RoomSite, RoomThreadIndex, SeatClaim, SeatKey, ToRoom},
};
use dunlin_protocol::Payload;
use dunlin_queues::declared::ROOM_RING;

use super::*;
use crate::{
    node::ShardWaker,
    rooms::{RoomLinks, links, tests::rig},
};

const RING_MESSAGES: usize = 4;
const EVENTS: usize = 20;
const ROOM: RoomKey = RoomKey { owner: ShardIndex(0), number: 7 };

#[derive(Default)]
struct FakeFrames {
    sent: Vec<Vec<u8>>,
    arrived: VecDeque<Vec<u8>>,
}

impl FrameLink for FakeFrames {
    fn send(&mut self, _: Arc<str>, frame: Vec<u8>) -> bool {
        self.sent.push(frame);
        true
    }

    fn try_next(&mut self) -> Option<FrameEvent> {
        self.arrived.pop_front().map(|frame| FrameEvent::Frame(frame.into()))
    }

    fn take_dropped(&self) -> u64 {
        0
    }
}

/// The relay of a node with one shard and no room thread, and the shard's links.
fn desk() -> (Desk<FakeFrames>, RoomLinks) {
    let shard_waker = Arc::new(ShardWaker::new(Arc::new(dunlin_net::Waker::eventfd().expect("an eventfd"))));
    let waker = Arc::<ThreadWaker>::default();
    let queue = ROOM_RING.with_messages(RING_MESSAGES);
    let (mut of_shards, mut outgoing) = links::connect(&[shard_waker], &[Arc::clone(&waker)], &queue);
    let rings = RelayRings { shards: outgoing.remove(0), threads: ThreadLinks::default(), waker };
    let options = RelayOptions { node: "edge".into(), shard_count: 1, room_threads: 0 };
    (Desk::new(Relay::new(options), rings, FakeFrames::default(), Arc::default()), of_shards.remove(0))
}

/// The frames that the relay of the room's node sends about `messages`.
fn frames_of(host: &mut Relay, messages: impl IntoIterator<Item = FromRoom>) -> Vec<Vec<u8>> {
    let shard = NodeSlot(1).shard(0).expect("a shard");
    let mut frames = Vec::new();
    for message in messages {
        host.take_from_room(1, shard, message);
        frames.extend(host.take_effects(1).into_iter().filter_map(|effect| match effect {
            RelayEffect::Send { frame, .. } => Some(frame),
            _ => None,
        }));
    }
    frames
}

#[test]
fn no_frame_is_read_while_a_shard_is_behind() {
    let (mut desk, mut shard) = desk();
    let mut host = Relay::new(RelayOptions { node: "host".into(), shard_count: 1, room_threads: 1 });
    let site = Box::new(RoomSite { node: "host".into(), room: ROOM, thread: RoomThreadIndex(0), sends_changes: true });
    let seat = SeatKey { shard: ShardIndex(0), index: 0, generation: 1 };
    shard.send(RoomThreadIndex(0), ToRoom::OpenRemote { room: ROOM, channel: "a".into(), site });
    let request = Box::new(rig::join_request(seat, "ann", SeatClaim::default()));
    shard.send(RoomThreadIndex(0), ToRoom::Join { room: ROOM, request });
    desk.turn();
    for frame in std::mem::take(&mut desk.frames.sent) {
        host.receive(1, &frame);
    }
    let joined = host.take_effects(1).into_iter().find_map(|effect| match effect {
        RelayEffect::ToThread { message: ToRoom::Join { room, request }, .. } => {
            Some(FromRoom::Joined { room, request, outcome: Ok(JoinedAs { is_back: false }) })
        }
        _ => None,
    });
    let event = |number: usize| FromRoom::Event {
        room: ROOM,
        channel: "a".into(),
        data: Payload::from_json(Bytes::from(number.to_string())),
        audience: None,
    };
    desk.frames.arrived = frames_of(&mut host, joined.into_iter().chain((0..EVENTS).map(event))).into();
    assert_eq!(desk.frames.arrived.len(), 1 + EVENTS);
    let mut received = Vec::new();
    for _ in 0..=EVENTS {
        for _ in 0..3 {
            desk.turn();
            assert!(desk.rings.shards.overflow_len() <= 1, "{} messages wait", desk.rings.shards.overflow_len());
        }
        while let Some(message) = shard.next(0) {
            if let FromRoom::Event { data, .. } = message {
                received.push(String::from_utf8_lossy(data.bytes()).into_owned());
            }
        }
        shard.announce_room();
    }
    assert_eq!(received, (0..EVENTS).map(|number| number.to_string()).collect::<Vec<_>>());
    let counters = desk.relay.counters();
    assert!(counters.limits[RelayLimit::Behind as usize] > 0);
    assert_eq!(counters.losses.iter().sum::<u64>(), 0, "the frames were late by nothing");
}
