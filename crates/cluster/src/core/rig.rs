//! A core for tests, with servers that answer it.

use dunlin_engine::{Now, ShardIndex};

use super::{Core, CoreEffect, CoreEvent, CoreLimits, CoreOptions, StreamedNamespace};
use crate::{
    link::{
        LinkEffect, LinkEvent, LinkName, MessageHeaders, ReadAnswer, ReadFault, RequestNumber, StoredMessage,
        StreamShape, StreamState,
    },
    record::MESSAGE_ID,
};

pub(super) const NOW: Now = Now { mono_us: 1_000_000, unix_ms: 1_700_000_000_000 };
pub(super) const SHARD: ShardIndex = ShardIndex(0);
/// The sequence of the first fence; the newest message of each channel is at a tenth of it.
pub(super) const FENCE: u64 = 100;

/// A core whose servers answer at once, except for reads of messages and publications to channels, which it stores.
pub(super) struct Rig {
    pub(super) core: Core,
    now: Now,
    fence: Option<StoredMessage>,
    /// The newest message of each channel.
    pub(super) newest: u64,
    /// Whether the replica that answers has no message of any channel.
    pub(super) has_no_messages: bool,
    /// The effects of the core, except those for its connections.
    pub(super) effects: Vec<CoreEffect>,
    pub(super) ranges: Vec<(RequestNumber, Option<Box<str>>)>,
    /// Answers about newest messages that are still under way; `None` if none is held back.
    pub(super) held_heads: Option<Vec<LinkEvent>>,
    /// The messages of this node, with the ids by which the stream drops duplicates.
    pub(super) sent: Vec<(RequestNumber, Box<str>)>,
    /// Whether its own heartbeats do not arrive.
    pub(super) is_deaf: bool,
    /// Whether the stream refuses to list all leases.
    pub(super) refuses_lists: bool,
    /// Messages to other nodes, with their subjects.
    pub(super) unstored: Vec<(Box<str>, bytes::Bytes)>,
}

impl Rig {
    pub(super) fn new(limits: CoreLimits) -> Self {
        Self::with_leases(limits, false)
    }

    pub(super) fn with_leases(limits: CoreLimits, has_leases: bool) -> Self {
        let namespace = StreamedNamespace {
            name: "chat".into(),
            partitions: 1,
            history_ttl_ms: 60_000,
            history_bytes_max: usize::MAX,
        };
        let core = Core::new(CoreOptions {
            prefix: "dn".into(),
            node: "n1".into(),
            namespaces: vec![None, Some(namespace)],
            broadcasts: vec![None, None],
            has_leases,
            has_room_logs: false,
            creatable: Vec::new(),
            limits,
        });
        let mut rig = Self {
            core,
            now: NOW,
            fence: None,
            newest: FENCE / 10,
            has_no_messages: false,
            effects: Vec::new(),
            ranges: Vec::new(),
            held_heads: None,
            sent: Vec::new(),
            is_deaf: false,
            refuses_lists: false,
            unstored: Vec::new(),
        };
        for link in LinkName::ALL {
            rig.handle(CoreEvent::Link(LinkEvent::Connected { link, max_payload: 1 << 20 }));
        }
        rig
    }

    /// Handles the timers that are due `after_us` after the start.
    pub(super) fn wait(&mut self, after_us: u64) {
        self.now = Now { mono_us: NOW.mono_us + after_us, ..NOW };
        self.handle(CoreEvent::Woke);
    }

    pub(super) fn handle(&mut self, event: CoreEvent) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            let mut effects = Vec::new();
            self.core.handle(self.now, event, &mut effects);
            for effect in effects {
                match effect {
                    CoreEffect::Link(effect) => events.extend(self.answer(effect).map(CoreEvent::Link)),
                    effect => self.effects.push(effect),
                }
            }
        }
    }

    fn answer(&mut self, effect: LinkEffect) -> Option<LinkEvent> {
        let (request, messages) = match effect {
            LinkEffect::Describe { request, .. } => {
                let shape = StreamShape {
                    messages_per_subject_max: Some(11),
                    duplicate_window_ms: 300_000,
                    ..StreamShape::default()
                };
                let metadata = vec![("dunlin.epoch".into(), "e".into())];
                let state = StreamState { shape, metadata, last_sequence: FENCE, ..StreamState::default() };
                return Some(LinkEvent::StreamInfo { request, outcome: Ok(Box::new(state)) });
            }
            LinkEffect::Publish { subject, .. } if subject.starts_with("dn.l.") => return None,
            LinkEffect::Publish { request: Some(request), subject, headers, .. } if !subject.contains('%') => {
                self.sent.push((request, headers.get(MESSAGE_ID).unwrap_or_default().into()));
                return None;
            }
            // A connection receives its own messages as well.
            LinkEffect::Publish { request: None, subject, headers, payload, .. } if *subject == *"dn.n" => {
                if self.is_deaf {
                    return None;
                }
                let (reply, is_by_wildcard) = (None, false);
                return Some(LinkEvent::Delivered { subject, reply, headers, payload, is_by_wildcard });
            }
            LinkEffect::Publish { request: None, subject, payload, .. } if !subject.starts_with("dn.p.") => {
                self.unstored.push((subject, payload));
                return None;
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
            LinkEffect::LastOf { request, subjects, .. } if self.refuses_lists && subjects[0].ends_with('*') => {
                let refused = ReadFault::Refused { code: 400, error_code: 0, description: "too many".into() };
                return Some(LinkEvent::Answered { request, outcome: Err(refused) });
            }
            LinkEffect::LastOf { request, subjects, .. } => {
                let is_empty = self.has_no_messages;
                let of_channels = subjects.iter().filter(|subject| !is_empty && !subject.contains('%'));
                let heads = of_channels.map(|subject| stored(subject, self.newest));
                let messages: Vec<_> = heads.chain(self.fence.clone()).collect();
                if let Some(held) = &mut self.held_heads {
                    held.push(answered(request, messages));
                    return None;
                }
                (request, messages)
            }
            LinkEffect::FirstSince { request, .. } => (request, vec![stored("dn.p.chat.0.old", 1)]),
            LinkEffect::Sequences { request, .. } => (request, Vec::new()),
            LinkEffect::Range { request, subject, .. } => {
                self.ranges.push((request, subject));
                return None;
            }
            _ => return None,
        };
        Some(answered(request, messages))
    }

    /// Delivers the oldest answer about newest messages that was held back.
    pub(super) fn release_heads(&mut self) {
        let held = self.held_heads.as_mut().expect("answers are held back");
        let answer = held.remove(0);
        self.handle(CoreEvent::Link(answer));
    }
}

fn answered(request: RequestNumber, messages: Vec<StoredMessage>) -> LinkEvent {
    LinkEvent::Answered { request, outcome: Ok(ReadAnswer { messages, ..ReadAnswer::default() }) }
}

pub(super) fn stored(subject: &str, sequence: u64) -> StoredMessage {
    StoredMessage {
        subject: subject.into(),
        sequence,
        last_sequence: 0,
        time_ms: NOW.unix_ms,
        headers: MessageHeaders::new(),
        payload: bytes::Bytes::new(),
    }
}
