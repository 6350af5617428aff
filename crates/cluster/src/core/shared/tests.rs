use std::sync::Arc;

use dunlin_engine::{
    Now, ShardIndex,
    log::{LoadNumber, LoadQuery},
};

use super::*;
use crate::{
    core::{CoreEffect, CoreEvent, CoreLimits, CoreOptions, StreamedNamespace},
    link::{LinkEvent, RequestNumber, StreamShape, StreamState},
};

const NOW: Now = Now { mono_us: 1_000_000, unix_ms: 1_700_000_000_000 };
const SHARD: ShardIndex = ShardIndex(0);
const SHARED_READS_MIN: usize = 3;
/// Where the fence is; the newest message of each channel is at a tenth of it.
const FENCE: u64 = 100;

/// A core whose servers answer at once, but for reads of messages, which it keeps.
struct Rig {
    core: Core,
    fence: Option<StoredMessage>,
    ranges: Vec<(RequestNumber, Option<Box<str>>)>,
}

impl Rig {
    fn new() -> Self {
        let namespace = StreamedNamespace { name: "chat".into(), partitions: 1, history_ttl_ms: 60_000 };
        let core = Core::new(CoreOptions {
            prefix: "dn".into(),
            node: "n1".into(),
            namespaces: vec![None, Some(namespace)],
            broadcasts: vec![None, None],
            limits: CoreLimits { shared_reads_min: SHARED_READS_MIN, ..CoreLimits::default() },
        });
        let mut rig = Self { core, fence: None, ranges: Vec::new() };
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
                if let CoreEffect::Link(effect) = effect {
                    events.extend(self.answer(effect).map(CoreEvent::Link));
                }
            }
        }
    }

    fn answer(&mut self, effect: LinkEffect) -> Option<LinkEvent> {
        let (request, messages) = match effect {
            LinkEffect::Describe { request, .. } => {
                let shape = StreamShape { messages_per_subject_max: Some(11), ..StreamShape::default() };
                let metadata = vec![("dunlin.epoch".into(), "e".into())];
                let state = StreamState { shape, metadata, last_sequence: FENCE, ..StreamState::default() };
                return Some(LinkEvent::StreamInfo { request, outcome: Ok(Box::new(state)) });
            }
            LinkEffect::Publish { subject, headers, payload, .. } => {
                let sequence = self.fence.as_ref().map_or(FENCE, |fence| fence.sequence + 1);
                let republished = headers
                    .clone()
                    .with("Nats-Subject", subject.clone())
                    .with("Nats-Sequence", sequence.to_string())
                    .with("Nats-Last-Sequence", "0");
                let live: Box<str> = subject.replacen(".p.", ".r.", 1).into();
                self.fence = Some(StoredMessage { headers, ..stored(&subject, sequence) });
                let (subject, is_by_wildcard) = (live, false);
                return Some(LinkEvent::Delivered {
                    subject,
                    reply: None,
                    headers: republished,
                    payload,
                    is_by_wildcard,
                });
            }
            LinkEffect::LastOf { request, subjects, .. } => {
                let of_channels = subjects.iter().filter(|subject| !subject.contains('%'));
                let heads = of_channels.map(|subject| stored(subject, FENCE / 10));
                (request, heads.chain(self.fence.clone()).collect())
            }
            LinkEffect::FirstSince { request, .. } => (request, vec![stored("dn.p.chat.0.old", 1)]),
            LinkEffect::Sequences { request, .. } => (request, Vec::new()),
            LinkEffect::Range { request, subject, .. } => {
                self.ranges.push((request, subject));
                return None;
            }
            _ => return None,
        };
        Some(LinkEvent::Answered { request, outcome: Ok(ReadAnswer { messages, ..ReadAnswer::default() }) })
    }

    /// So many clients that have missed publications of a channel each. Their reads wait.
    fn recover(&mut self, channels: usize) {
        for number in 0..channels {
            let channel: Arc<str> = format!("chat:{number}").into();
            self.handle(CoreEvent::Follow { shard: SHARD, channel: Arc::clone(&channel), namespace: 1 });
            let query = LoadQuery { after: Some(2), publications_max: 100 };
            self.handle(CoreEvent::Load { shard: SHARD, channel, load: LoadNumber(number as u64), query });
        }
    }
}

fn stored(subject: &str, sequence: u64) -> StoredMessage {
    StoredMessage {
        subject: subject.into(),
        sequence,
        last_sequence: 0,
        time_ms: NOW.unix_ms,
        headers: crate::link::MessageHeaders::new(),
        payload: bytes::Bytes::new(),
    }
}

/// How many reads are shared after the first one has been answered, and the subject of the next one.
fn shared_behind_the_first(waiting: usize) -> (u64, bool) {
    let mut rig = Rig::new();
    rig.recover(1 + waiting);
    let (request, subject) = rig.ranges.pop().expect("the first one is read at once");
    assert!(rig.ranges.is_empty(), "one read of a partition is under way at a time");
    let messages = vec![stored(&subject.expect("by itself"), FENCE / 10)];
    let outcome = Ok(ReadAnswer { messages, ..ReadAnswer::default() });
    rig.handle(CoreEvent::Link(LinkEvent::Answered { request, outcome }));
    let (_, subject) = rig.ranges.pop().expect("the next one is read");
    (rig.core.counters().shared_reads, subject.is_none())
}

#[test]
fn recoveries_share_a_read_from_the_configured_number_on() {
    assert_eq!(shared_behind_the_first(SHARED_READS_MIN - 1), (0, false));
    assert_eq!(shared_behind_the_first(SHARED_READS_MIN), (1, true));
}
