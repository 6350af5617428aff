//! The standing of each stream: whether this node can use it, why not, and what it does about a stream that is gone.
//!
//! A stream is described when a connection for reads opens, when its leader changes, at the beginning of each audit, and
//! whenever it does not answer. Its *standing* follows from the answers:
//!
//! - *Absent*: NATS says that it does not exist. All its channels are interrupted at once, so that no load is answered
//!   from memory as if nothing were lost. If a second description confirms it, this node creates the stream, with a new
//!   epoch; of several nodes that do, one succeeds. The creator publishes the epoch in the stream, so that all others
//!   learn of it without an audit.
//! - *Refusing*: the stream exists and stores nothing, for example because a store is full. The first refusal shows it,
//!   and the first stored message ends it. Meanwhile an audit is in flight, whose fence is sent again and again.
//! - *Silent*: nobody has answered for longer than `publish_timeout_ms`. Elections take less.
//! - *Foreign*: it exists and was not created by Dunlin.

use std::fmt;

use crate::{
    link::{LinkEffect, LinkName, PublishFault, ReadFault, StreamState},
    names::PartitionId,
    planted::CoreBug,
};

use super::{Context, Core, CoreEffect, Requester, Timer, epoch::epoch_of, partition::facts};

/// Time until a failed description of a stream is retried.
const DESCRIBE_RETRY_US: u64 = 500_000;
/// Minimum time between descriptions that messages without an answer request.
const DESCRIBE_PAUSE_US: u64 = 250_000;
/// Time until a failed creation of a stream is retried.
const CREATE_RETRY_US: u64 = 2_000_000;
/// NATS errors: the stream does not exist, and it exists already.
const NOT_FOUND: u64 = 10_059;
const EXISTS: u64 = 10_058;

/// A stream of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum StreamKey {
    Partition(PartitionId),
    Leases,
}

/// Why a node cannot use a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamTrouble {
    /// The stream does not exist.
    Absent {
        /// Why this node cannot create it, once it has tried.
        why_not_created: Option<Box<str>>,
    },
    /// It stores nothing, with NATS's reason.
    Refusing {
        /// The reason.
        why: Box<str>,
    },
    /// Nobody answers for it.
    Silent {
        /// NATS's reason, if it gave one.
        why: Option<Box<str>>,
    },
    /// Another program created it.
    Foreign,
}

impl fmt::Display for StreamTrouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent { why_not_created: None } => f.write_str("it does not exist; this node creates it"),
            Self::Absent { why_not_created: Some(why) } => {
                write!(f, "it does not exist, and this node cannot create it: {why}")
            }
            Self::Refusing { why } => write!(f, "it stores nothing: {why}"),
            Self::Silent { why: None } => f.write_str("nobody answers for it: it has no leader"),
            Self::Silent { why: Some(why) } => write!(f, "nobody answers for it: {why}"),
            Self::Foreign => f.write_str("another program created it: it has no dunlin.epoch in its metadata"),
        }
    }
}

/// A change of a stream, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamChange {
    /// This node cannot use it.
    Unusable(StreamTrouble),
    /// This node can use it again.
    Usable,
    /// This node has created it, with this epoch, because it was gone.
    Created {
        /// The epoch of the stream.
        epoch: Box<str>,
    },
}

/// A stream that a node cannot use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnusableStream {
    /// Its name.
    pub stream: Box<str>,
    /// The reason.
    pub trouble: StreamTrouble,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Standing {
    /// It was not described yet.
    #[default]
    Unknown,
    Usable,
    Unusable(StreamTrouble),
}

/// What this node knows about a stream as a whole.
#[derive(Debug, Default)]
pub(super) struct StreamWatch {
    standing: Standing,
    is_describing: bool,
    /// When the newest description was requested.
    described_us: u64,
    /// Since when nobody has answered for it.
    unanswered_since_us: Option<u64>,
}

impl StreamWatch {
    pub(super) fn is_usable(&self) -> bool {
        self.standing == Standing::Usable
    }

    pub(super) const fn trouble(&self) -> Option<&StreamTrouble> {
        match &self.standing {
            Standing::Unusable(trouble) => Some(trouble),
            Standing::Unknown | Standing::Usable => None,
        }
    }

    const fn is_absent(&self) -> bool {
        matches!(self.standing, Standing::Unusable(StreamTrouble::Absent { .. }))
    }

    pub(super) const fn is_refusing(&self) -> bool {
        matches!(self.standing, Standing::Unusable(StreamTrouble::Refusing { .. }))
    }

    /// Requests the description of the stream, unless it is being described.
    pub(super) fn describe(&mut self, context: &mut Context, key: StreamKey, stream: &str) {
        if self.is_describing {
            return;
        }
        (self.is_describing, self.described_us) = (true, context.now.mono_us);
        let request = context.request(Requester::Describe(key));
        context.link(LinkEffect::Describe { request, stream: stream.into() });
    }

    /// Changes the standing. Returns the change, if it is one for the log.
    fn change(&mut self, standing: Standing) -> Option<StreamChange> {
        let before = std::mem::replace(&mut self.standing, standing);
        match (&before, &self.standing) {
            (before, now) if before == now => None,
            (_, Standing::Unusable(trouble)) => Some(StreamChange::Unusable(trouble.clone())),
            (Standing::Unusable(_), Standing::Usable) => Some(StreamChange::Usable),
            _ => None,
        }
    }
}

impl Core {
    /// The streams that this node cannot use, and why.
    pub fn unusable_streams(&self) -> Vec<UnusableStream> {
        let of = |key: StreamKey| {
            let (name, watch) = self.watched(key);
            Some(UnusableStream { stream: name.into(), trouble: watch.trouble()?.clone() })
        };
        self.stream_keys().filter_map(of).collect()
    }

    /// Whether this node can use all streams.
    pub fn are_streams_usable(&self) -> bool {
        self.stream_keys().all(|key| self.watched(key).1.is_usable())
    }

    pub(super) fn stream_keys(&self) -> impl Iterator<Item = StreamKey> + '_ {
        let leases = self.leases.has_stream().then_some(StreamKey::Leases);
        self.partitions.ids().map(StreamKey::Partition).chain(leases)
    }

    fn watched(&self, key: StreamKey) -> (&str, &StreamWatch) {
        match key {
            StreamKey::Partition(id) => {
                let partition = &self.partitions[id];
                (&partition.names.stream, &partition.watch)
            }
            StreamKey::Leases => (self.leases.stream(), &self.leases.watch),
        }
    }

    fn watch_mut(&mut self, key: StreamKey) -> (&mut StreamWatch, &str, &mut Context) {
        let (watch, name) = match key {
            StreamKey::Partition(id) => {
                let partition = &mut self.partitions[id];
                (&mut partition.watch, &*partition.names.stream)
            }
            StreamKey::Leases => self.leases.watch_mut(),
        };
        (watch, name, &mut self.context)
    }

    fn set_standing(&mut self, key: StreamKey, standing: Standing) {
        let Some(change) = self.watch_mut(key).0.change(standing) else { return };
        let unusable = self.stream_keys().filter_map(|key| self.watched(key).1.trouble());
        let count = u32::try_from(unusable.count()).unwrap_or(u32::MAX);
        self.peers.set_unusable_streams(count);
        self.report_stream(key, change);
    }

    fn report_stream(&mut self, key: StreamKey, change: StreamChange) {
        let stream = self.watched(key).0.into();
        self.context.effects.push(CoreEffect::StreamChanged { stream, change });
    }

    /// Requests the description of a stream: its epoch and its limits.
    pub(super) fn describe(&mut self, key: StreamKey) {
        let (watch, name, context) = self.watch_mut(key);
        watch.describe(context, key, name);
    }

    /// Requests a description for a message that got no answer, of which there may be many.
    fn describe_unless_done(&mut self, key: StreamKey) {
        let due_us = self.watched(key).1.described_us + DESCRIBE_PAUSE_US;
        if self.context.now.mono_us >= due_us {
            self.describe(key);
        } else {
            self.context.set_timer(due_us, Timer::Describe(key));
        }
    }

    pub(super) fn described(&mut self, key: StreamKey, outcome: Result<Box<StreamState>, ReadFault>) {
        self.watch_mut(key).0.is_describing = false;
        match &outcome {
            Err(ReadFault::TimedOut | ReadFault::NoResponders) => self.context.on_silence(LinkName::Read),
            _ => self.context.silence.end(LinkName::Read),
        }
        let retry_us = self.context.now.mono_us + DESCRIBE_RETRY_US;
        match outcome {
            Ok(state) => {
                let Some(facts) = facts(&state) else {
                    self.set_standing(key, Standing::Unusable(StreamTrouble::Foreign));
                    return self.context.set_timer(retry_us, Timer::Describe(key));
                };
                self.stream_is_there(key);
                match key {
                    StreamKey::Partition(id) => self.facts_known(id, facts),
                    StreamKey::Leases => self.leases.facts_known(&mut self.context, facts.epoch),
                }
            }
            Err(ReadFault::Refused { error_code: NOT_FOUND, .. }) => self.stream_is_absent(key),
            // The connection describes all streams when it is open again.
            Err(ReadFault::Disconnected) => {}
            Err(fault) => {
                let why = match fault {
                    ReadFault::Refused { description, .. } => Some(description),
                    _ => None,
                };
                self.stream_is_silent(key, why);
                self.context.set_timer(retry_us, Timer::Describe(key));
            }
        }
    }

    /// A stream has described itself.
    fn stream_is_there(&mut self, key: StreamKey) {
        let (watch, ..) = self.watch_mut(key);
        watch.unanswered_since_us = None;
        // Only a stored message shows that a stream that refused messages takes them again.
        if !watch.is_refusing() {
            self.set_standing(key, Standing::Usable);
        }
    }

    fn stream_is_absent(&mut self, key: StreamKey) {
        let (watch, ..) = self.watch_mut(key);
        watch.unanswered_since_us = None;
        if self.context.planted.is(CoreBug::AbsentStreamIgnored) {
            return self.context.set_timer(self.context.now.mono_us + DESCRIBE_RETRY_US, Timer::Describe(key));
        }
        if self.watched(key).1.is_absent() {
            return self.create_stream(key);
        }
        let trouble = StreamTrouble::Absent { why_not_created: None };
        self.set_standing(key, Standing::Unusable(trouble));
        self.context.counters.streams_absent += 1;
        match key {
            StreamKey::Partition(id) => self.interrupt_all(id),
            StreamKey::Leases => self.leases.stream_gone(&mut self.context),
        }
        // A stream that is gone often was not the only one: the servers have lost their disk.
        let others: Vec<StreamKey> = self.stream_keys().filter(|other| *other != key).collect();
        for other in others {
            self.describe(other);
        }
        self.context.set_timer(self.context.now.mono_us + DESCRIBE_RETRY_US, Timer::Describe(key));
    }

    /// Creates a stream that is gone, with a new epoch.
    fn create_stream(&mut self, key: StreamKey) {
        let number = self.context.next_number();
        let (name, _) = self.watched(key);
        let Some(terms) = self.context.options.creatable.iter().find(|terms| *terms.name == *name) else {
            return self.context.set_timer(self.context.now.mono_us + CREATE_RETRY_US, Timer::Describe(key));
        };
        let epoch = epoch_of(&self.context.options.node, name, number).into();
        let terms = Box::new(terms.clone());
        let request = self.context.request(Requester::Create(key));
        self.context.link(LinkEffect::Create { request, terms, epoch });
    }

    pub(super) fn created(&mut self, key: StreamKey, outcome: Result<Box<StreamState>, ReadFault>) {
        let why = match outcome {
            Ok(state) => {
                self.context.counters.streams_created += 1;
                let epoch: Box<str> = facts(&state).map(|facts| facts.epoch).unwrap_or_default();
                self.report_stream(key, StreamChange::Created { epoch: epoch.clone() });
                if let StreamKey::Partition(id) = key {
                    self.publish_first_epoch(id, epoch);
                }
                return self.described(key, Ok(state));
            }
            // Another node was faster.
            Err(ReadFault::Refused { error_code: EXISTS, .. }) => return self.describe(key),
            Err(ReadFault::Disconnected) => return,
            Err(ReadFault::Refused { description, error_code, .. }) => format!("{description} ({error_code})").into(),
            Err(_) => {
                "no answer: the servers have no leader, or the user may not publish to $JS.API.STREAM.CREATE.*".into()
            }
        };
        let trouble = StreamTrouble::Absent { why_not_created: Some(why) };
        self.set_standing(key, Standing::Unusable(trouble));
        self.context.set_timer(self.context.now.mono_us + CREATE_RETRY_US, Timer::Describe(key));
    }

    fn stream_is_silent(&mut self, key: StreamKey, why: Option<Box<str>>) {
        let timeout_us = self.context.options.limits.publish_timeout_ms * 1_000;
        if !self.context.links.read {
            return;
        }
        let now_us = self.context.now.mono_us;
        let (watch, ..) = self.watch_mut(key);
        let since_us = *watch.unanswered_since_us.get_or_insert(now_us);
        // Absent and refusing say more.
        if now_us >= since_us + timeout_us && !watch.is_absent() && !watch.is_refusing() {
            self.set_standing(key, Standing::Unusable(StreamTrouble::Silent { why }));
        }
    }

    /// A message to a stream was answered, or was not.
    pub(super) fn stream_answered(&mut self, key: StreamKey, fault: Option<&PublishFault>) {
        let refusal = match fault {
            None => None,
            Some(PublishFault::NoResponders | PublishFault::TimedOut) => return self.describe_unless_done(key),
            Some(PublishFault::Disconnected) => return,
            Some(fault) => fault.store_refusal(),
        };
        let (watch, ..) = self.watch_mut(key);
        if let Some(why) = refusal {
            // The text may contain figures that change; the first one is reported.
            let was_refusing = watch.is_refusing();
            if !was_refusing && !watch.is_absent() {
                self.set_standing(key, Standing::Unusable(StreamTrouble::Refusing { why }));
                if let StreamKey::Partition(id) = key {
                    // Its fence shows when the stream stores messages again.
                    self.needs_audit(id);
                    self.start_sync(id);
                }
            }
        } else if fault.is_none() && watch.is_refusing() {
            self.set_standing(key, Standing::Usable);
        }
    }
}

#[cfg(test)]
mod tests;
