use dunlin_engine::Event;
use dunlin_protocol::{Payload, Publication, Tags};

use std::sync::Arc;

use super::*;
use crate::{
    core::{
        CoreEffect, CoreEvent, CoreLimits,
        rig::{FENCE, Rig, SHARD},
    },
    link::{LinkEvent, MessageHeaders},
    names::encode_token,
};

const DATA_BYTES: usize = 1_000;

fn entry(offset: u64) -> WindowEntry {
    let data = Payload::from_opaque(vec![b'x'; DATA_BYTES].into());
    let (info, tags, epoch) = (None, Tags::new(), Box::default());
    let publication = Arc::new(Publication { data, info, offset, tags, time_ms: 0, epoch, version: offset });
    let record = LogRecord { publication, version_epoch: Box::default(), idempotency_key: None };
    WindowEntry { time_ms: 0, record }
}

fn of_entries(count: usize) -> WindowLimits {
    WindowLimits { entries_max: 1_000, bytes_max: count * entry(1).record.kept_bytes() }
}

fn offsets(window: &Window) -> Vec<u64> {
    window.behind(0).map(WindowEntry::sequence).collect()
}

#[test]
fn a_window_evicts_the_oldest_at_its_limit_of_bytes() {
    let mut window = Window::starting_at(0);
    (1..=3).for_each(|offset| window.push(entry(offset), of_entries(3)));
    assert_eq!((offsets(&window), window.floor()), (vec![1, 2, 3], 0));
    window.push(entry(4), of_entries(3));
    assert_eq!((offsets(&window), window.floor(), window.bytes()), (vec![2, 3, 4], 1, of_entries(3).bytes_max));
    let exact = of_entries(3);
    window.push(entry(5), WindowLimits { bytes_max: exact.bytes_max - 1, ..exact });
    assert_eq!((offsets(&window), window.floor()), (vec![4, 5], 3));
}

#[test]
fn a_publication_above_the_limit_leaves_its_version_and_time() {
    let mut window = Window::starting_at(0);
    window.push(entry(7), WindowLimits { bytes_max: 10, ..of_entries(1) });
    assert_eq!((offsets(&window), window.floor(), window.bytes()), (vec![], 7, 0));
    let newest = window.newest().expect("it is known");
    assert_eq!((newest.offset, newest.version), (7, 7));
}

impl Rig {
    fn follow_channel(&mut self, channel: &str) {
        self.handle(CoreEvent::Follow { shard: SHARD, channel: channel.into(), namespace: 1 });
    }

    /// Delivers the next message of a channel.
    fn deliver_to(&mut self, channel: &str, sequence: u64, last_sequence: u64) {
        let headers = MessageHeaders::new()
            .with("Nats-Subject", format!("dn.p.chat.0.{}", encode_token(channel)))
            .with("Nats-Sequence", sequence.to_string())
            .with("Nats-Last-Sequence", last_sequence.to_string());
        let subject = format!("dn.r.chat.0.{}", encode_token(channel)).into();
        let (payload, reply, is_by_wildcard) = (vec![b'x'; DATA_BYTES].into(), None, false);
        self.handle(CoreEvent::Link(LinkEvent::Delivered { subject, reply, headers, payload, is_by_wildcard }));
    }

    fn window_of(&self, channel: &str) -> Vec<u64> {
        offsets(&self.core.channels.get(channel).expect("it is followed").window)
    }
}

#[test]
fn a_channel_whose_message_a_shard_did_not_take_is_interrupted() {
    let mut rig = Rig::new(CoreLimits::default());
    rig.follow_channel("chat:1");
    rig.deliver_to("chat:1", 201, FENCE / 10);
    rig.effects.clear();
    rig.handle(CoreEvent::Undelivered { channel: "chat:1".into() });
    let is_end = |effect: &CoreEffect| match effect {
        CoreEffect::ToShard { event: Event::Interrupted { channel }, .. } => **channel == *"chat:1",
        _ => false,
    };
    assert!(rig.effects.iter().any(is_end), "{:?}", rig.effects);
    assert_eq!((rig.core.counters().followed, rig.core.counters().window_bytes), (0, 0));
    // Another message of the channel is not delivered until it is followed again.
    rig.effects.clear();
    rig.deliver_to("chat:1", 202, 201);
    assert!(rig.effects.is_empty(), "{:?}", rig.effects);
}

#[test]
fn the_node_evicts_from_the_largest_windows() {
    let mut rig = Rig::new(CoreLimits { window_bytes_max: 8_000, ..CoreLimits::default() });
    let newest = FENCE / 10;
    for channel in ["chat:quiet", "chat:loud", "chat:new"] {
        rig.follow_channel(channel);
    }
    rig.deliver_to("chat:quiet", 201, newest);
    let mut last = newest;
    for sequence in 210..230 {
        rig.deliver_to("chat:loud", sequence, last);
        last = sequence;
        let bytes = rig.core.counters().window_bytes;
        let held: usize = rig.core.channels.iter().map(|(_, channel)| channel.window.bytes()).sum();
        assert!(bytes <= 8_000 && bytes == held as u64, "{bytes} are counted, {held} are held");
    }
    // The loud channel has filled the rest, and has evicted nothing of the other one.
    assert_eq!((rig.window_of("chat:quiet"), rig.window_of("chat:loud").len()), (vec![10, 201], 4));
    // A third channel takes from the one that is above an equal share.
    rig.deliver_to("chat:new", 300, newest);
    rig.deliver_to("chat:new", 301, 300);
    assert_eq!(rig.window_of("chat:quiet"), vec![10, 201]);
    assert_eq!(rig.window_of("chat:new").last(), Some(&301));
    assert!(rig.core.counters().window_bytes <= 8_000);
}
