//! The cost of a followed channel: memory in the protocol core, and requests to NATS.

use std::sync::Arc;

use bytes::Bytes;
use dunlin_cluster::{
    core::{BroadcastNamespace, Core, CoreEffect, CoreEvent, CoreLimits, CoreOptions, StreamedNamespace},
    link::{LinkEffect, LinkEvent, LinkName, MessageHeaders, ReadAnswer, StoredMessage, StreamShape, StreamState},
};
use dunlin_engine::{Event, Now, ShardIndex};
use dunlin_proof::allocations::{Counting, in_use};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const CHANNELS: usize = 100_000;
/// The limit that the project has set; the memory of the engine is not included.
const CHANNEL_BYTES_MAX: usize = 1_024;

/// A core whose streams answer at once and contain only the core's own fences.
struct Rig {
    core: Core,
    sequence: u64,
    fence: Option<StoredMessage>,
    requests: usize,
    subscriptions: usize,
    attached: usize,
}

const NOW: Now = Now { mono_us: 1_000_000, unix_ms: 1_700_000_000_000 };

impl Rig {
    fn new() -> Self {
        let namespace = StreamedNamespace {
            name: "chat".into(),
            partitions: 1,
            history_ttl_ms: 60_000,
            history_bytes_max: usize::MAX,
        };
        let options = CoreOptions {
            prefix: "dn".into(),
            node: "n1".into(),
            namespaces: vec![None, Some(namespace)],
            broadcasts: vec![None, Some(BroadcastNamespace { name: "chat".into(), is_wide: false })],
            has_leases: false,
            has_room_logs: false,
            creatable: Vec::new(),
            limits: CoreLimits::default(),
        };
        let mut rig =
            Self { core: Core::new(options), sequence: 0, fence: None, requests: 0, subscriptions: 0, attached: 0 };
        for link in LinkName::ALL {
            rig.handle(CoreEvent::Link(LinkEvent::Connected { link, max_payload: 1 << 20 }));
        }
        rig
    }

    fn handle(&mut self, event: CoreEvent) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            let mut effects = Vec::new();
            self.core.handle(NOW, event, &mut effects);
            for effect in effects {
                match effect {
                    CoreEffect::Link(effect) => events.extend(self.answer(effect).map(CoreEvent::Link)),
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    fn answer(&mut self, effect: LinkEffect) -> Option<LinkEvent> {
        match effect {
            LinkEffect::Subscribe { .. } | LinkEffect::Unsubscribe { .. } => {
                self.subscriptions += 1;
                None
            }
            LinkEffect::Describe { request, .. } => {
                self.requests += 1;
                let shape = StreamShape { messages_per_subject_max: Some(11), ..StreamShape::default() };
                let metadata = vec![("dunlin.epoch".into(), "e".into())];
                Some(LinkEvent::StreamInfo {
                    request,
                    outcome: Ok(Box::new(StreamState {
                        shape,
                        metadata,
                        last_sequence: self.sequence,
                        ..StreamState::default()
                    })),
                })
            }
            LinkEffect::Publish { subject, headers, payload, .. } => {
                self.requests += 1;
                self.sequence += 1;
                Some(self.fence_returns(subject, headers, payload))
            }
            LinkEffect::LastOf { request, subjects, .. } => {
                self.requests += 1;
                // The other two subjects are those of the fence and the epoch record.
                self.attached += subjects.len() - 2;
                let messages = self.fence.clone().into_iter().collect();
                let answer = ReadAnswer { messages, up_to_sequence: self.sequence, ..ReadAnswer::default() };
                Some(LinkEvent::Answered { request, outcome: Ok(answer) })
            }
            // The read of an audit, which compares sequences.
            LinkEffect::Sequences { request, .. } => {
                self.requests += 1;
                Some(LinkEvent::Answered { request, outcome: Ok(ReadAnswer::default()) })
            }
            other => panic!("{other:?}"),
        }
    }

    fn fence_returns(&mut self, subject: Box<str>, headers: MessageHeaders, payload: Bytes) -> LinkEvent {
        let republished = headers
            .clone()
            .with("Nats-Subject", subject.clone())
            .with("Nats-Sequence", self.sequence.to_string())
            .with("Nats-Last-Sequence", "0");
        let live: Box<str> = subject.replacen(".p.", ".r.", 1).into();
        let (sequence, last_sequence, time_ms) = (self.sequence, 0, NOW.unix_ms);
        self.fence =
            Some(StoredMessage { subject, sequence, last_sequence, time_ms, headers, payload: payload.clone() });
        LinkEvent::Delivered { subject: live, reply: None, headers: republished, payload, is_by_wildcard: false }
    }
}

#[test]
fn a_followed_channel_takes_little_memory_and_few_requests() {
    let names: Vec<Arc<str>> = (0..CHANNELS).map(|number| format!("chat:{number}").into()).collect();
    let mut rig = Rig::new();
    let (before, requests_before) = (in_use(), rig.requests);
    let shard = ShardIndex(0);
    // All follows arrive while the core attaches the first channel, as after a restart.
    let mut effects = Vec::new();
    for channel in &names {
        rig.core.handle(NOW, CoreEvent::Follow { shard, channel: Arc::clone(channel), namespace: 1 }, &mut effects);
    }
    for effect in effects {
        let effect = match effect {
            CoreEffect::Link(effect) => effect,
            CoreEffect::ToShard { event: Event::Followed { .. }, .. } => continue,
            other => panic!("{other:?}"),
        };
        if let Some(event) = rig.answer(effect) {
            rig.handle(CoreEvent::Link(event));
        }
    }
    assert_eq!((rig.core.counters().followed, rig.core.counters().attached), (CHANNELS as u64, CHANNELS as u64));
    let bytes = usize::try_from(in_use().bytes - before.bytes).unwrap() / CHANNELS;
    let requests = rig.requests - requests_before;
    println!("{bytes} bytes for a followed channel, {requests} requests for {CHANNELS} channels");
    assert!(bytes <= CHANNEL_BYTES_MAX, "{bytes} bytes for a followed channel");
    // A fence and one read for the first channel; a fence, a comparison, and a read for each 500 of the others.
    assert!(requests <= CHANNELS / 500 + 5, "{requests} requests");
    // The subscriptions of the partition, one wide subscription for all channels, and the broadcast subscriptions of
    // the first channels, which the core keeps.
    assert!(rig.subscriptions <= 9 + CoreLimits::default().wide_channels_min, "{} subscriptions", rig.subscriptions);
}
