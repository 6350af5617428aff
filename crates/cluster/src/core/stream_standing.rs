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
};

use super::{
    Context, CoreEffect, Requester, Timer,
    epoch::epoch_of,
    known_stream::{StreamFacts, facts},
};

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
    RoomLogs,
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

#[derive(Clone, Debug, PartialEq, Eq)]
enum Standing {
    /// It was not described yet.
    Unknown,
    Usable,
    Unusable(StreamTrouble),
}

/// What a description means for those who use the stream.
#[derive(Debug)]
pub(super) enum Described {
    Nothing,
    /// The stream is there, and has these.
    There(StreamFacts),
    /// The stream is gone: what this node has of it proves nothing.
    Gone,
}

/// What the attempt to create a stream means for those who use it.
#[derive(Debug)]
pub(super) enum Creation {
    Nothing,
    /// It was created with this epoch, and describes itself.
    Done {
        epoch: Box<str>,
        state: Box<StreamState>,
    },
}

/// What the answer to a message means for those who use the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answered {
    Nothing,
    /// The stream has begun to refuse messages.
    Refusing,
    /// It stores messages again.
    Storing,
}

/// A stream as a whole: whether it is there, and stores messages.
#[derive(Debug)]
pub(super) struct StreamWatch {
    key: StreamKey,
    /// Its name.
    stream: Box<str>,
    standing: Standing,
    is_describing: bool,
    /// When the newest description was requested.
    described_us: u64,
    /// Since when nobody has answered for it.
    unanswered_since_us: Option<u64>,
}

impl StreamWatch {
    pub(super) fn new(key: StreamKey, stream: &str) -> Self {
        Self {
            key,
            stream: stream.into(),
            standing: Standing::Unknown,
            is_describing: false,
            described_us: 0,
            unanswered_since_us: None,
        }
    }

    pub(super) fn is_usable(&self) -> bool {
        self.standing == Standing::Usable
    }

    /// The stream, if this node cannot use it.
    pub(super) fn unusable(&self) -> Option<UnusableStream> {
        match &self.standing {
            Standing::Unusable(trouble) => {
                Some(UnusableStream { stream: self.stream.clone(), trouble: trouble.clone() })
            }
            Standing::Unknown | Standing::Usable => None,
        }
    }

    pub(super) const fn is_unusable(&self) -> bool {
        matches!(self.standing, Standing::Unusable(_))
    }

    const fn is_absent(&self) -> bool {
        matches!(self.standing, Standing::Unusable(StreamTrouble::Absent { .. }))
    }

    const fn is_refusing(&self) -> bool {
        matches!(self.standing, Standing::Unusable(StreamTrouble::Refusing { .. }))
    }

    /// Requests the description of the stream, its epoch and its limits, unless it is being described.
    pub(super) fn describe(&mut self, context: &mut Context) {
        if self.is_describing {
            return;
        }
        (self.is_describing, self.described_us) = (true, context.now.mono_us);
        let request = context.request(Requester::Describe(self.key));
        context.link(LinkEffect::Describe { request, stream: self.stream.clone() });
    }

    /// Requests a description for a message that got no answer, of which there may be many.
    fn describe_unless_done(&mut self, context: &mut Context) {
        let due_us = self.described_us + DESCRIBE_PAUSE_US;
        if context.now.mono_us >= due_us {
            self.describe(context);
        } else {
            context.set_timer(due_us, Timer::Describe(self.key));
        }
    }

    /// Takes a description, or the error instead of it.
    pub(super) fn described(
        &mut self,
        context: &mut Context,
        outcome: Result<Box<StreamState>, ReadFault>,
    ) -> Described {
        self.is_describing = false;
        match &outcome {
            Err(ReadFault::TimedOut | ReadFault::NoResponders) => context.on_silence(LinkName::Read),
            _ => context.unanswered.end(LinkName::Read),
        }
        match outcome {
            Ok(state) => {
                let Some(facts) = facts(&state) else {
                    self.set(context, Standing::Unusable(StreamTrouble::Foreign));
                    self.describe_after(context, DESCRIBE_RETRY_US);
                    return Described::Nothing;
                };
                self.unanswered_since_us = None;
                // Only a stored message shows that a stream that refused messages takes them again.
                if !self.is_refusing() {
                    self.set(context, Standing::Usable);
                }
                Described::There(facts)
            }
            Err(ReadFault::Refused { error_code: NOT_FOUND, .. }) => self.not_found(context),
            // The connection describes all streams when it is open again.
            Err(ReadFault::Disconnected) => Described::Nothing,
            Err(fault) => {
                let why = match fault {
                    ReadFault::Refused { description, .. } => Some(description),
                    _ => None,
                };
                self.not_answered(context, why);
                self.describe_after(context, DESCRIBE_RETRY_US);
                Described::Nothing
            }
        }
    }

    fn not_found(&mut self, context: &mut Context) -> Described {
        self.unanswered_since_us = None;
        if self.is_absent() {
            self.create(context);
            return Described::Nothing;
        }
        self.set(context, Standing::Unusable(StreamTrouble::Absent { why_not_created: None }));
        context.counters.streams_absent += 1;
        self.describe_after(context, DESCRIBE_RETRY_US);
        Described::Gone
    }

    fn not_answered(&mut self, context: &mut Context, why: Option<Box<str>>) {
        if !context.links.read {
            return;
        }
        let (now_us, timeout_ms) = (context.now.mono_us, context.options.limits.publish_timeout_ms);
        let since_us = *self.unanswered_since_us.get_or_insert(now_us);
        // Absent and refusing say more.
        if now_us >= since_us + timeout_ms * 1_000 && !self.is_absent() && !self.is_refusing() {
            self.set(context, Standing::Unusable(StreamTrouble::Silent { why }));
        }
    }

    /// Creates the stream, which is gone, with a new epoch.
    fn create(&mut self, context: &mut Context) {
        let number = context.next_number();
        let Some(terms) = context.options.creatable.iter().find(|terms| terms.name == self.stream) else {
            return self.describe_after(context, CREATE_RETRY_US);
        };
        let epoch = epoch_of(&context.options.node, &self.stream, number).into();
        let terms = Box::new(terms.clone());
        let request = context.request(Requester::Create(self.key));
        context.link(LinkEffect::Create { request, terms, epoch });
    }

    /// Takes the answer to the request to create the stream.
    pub(super) fn created(&mut self, context: &mut Context, outcome: Result<Box<StreamState>, ReadFault>) -> Creation {
        let why = match outcome {
            Ok(state) => {
                context.counters.streams_created += 1;
                let epoch: Box<str> = facts(&state).map(|facts| facts.epoch).unwrap_or_default();
                self.report(context, StreamChange::Created { epoch: epoch.clone() });
                return Creation::Done { epoch, state };
            }
            // Another node was faster.
            Err(ReadFault::Refused { error_code: EXISTS, .. }) => {
                self.describe(context);
                return Creation::Nothing;
            }
            Err(ReadFault::Disconnected) => return Creation::Nothing,
            Err(ReadFault::Refused { description, error_code, .. }) => format!("{description} ({error_code})").into(),
            Err(_) => {
                "no answer: the servers have no leader, or the user may not publish to $JS.API.STREAM.CREATE.*".into()
            }
        };
        self.set(context, Standing::Unusable(StreamTrouble::Absent { why_not_created: Some(why) }));
        self.describe_after(context, CREATE_RETRY_US);
        Creation::Nothing
    }

    /// A message to the stream was answered, or was not.
    pub(super) fn answered(&mut self, context: &mut Context, fault: Option<&PublishFault>) -> Answered {
        let refusal = match fault {
            None => None,
            Some(PublishFault::NoResponders | PublishFault::TimedOut) => {
                self.describe_unless_done(context);
                return Answered::Nothing;
            }
            Some(PublishFault::Disconnected) => return Answered::Nothing,
            Some(fault) => fault.store_refusal(),
        };
        if let Some(why) = refusal {
            // The text may contain figures that change; the first one is reported.
            if !self.is_refusing() && !self.is_absent() {
                self.set(context, Standing::Unusable(StreamTrouble::Refusing { why }));
                return Answered::Refusing;
            }
        } else if fault.is_none() && self.is_refusing() {
            self.set(context, Standing::Usable);
            return Answered::Storing;
        }
        Answered::Nothing
    }

    fn describe_after(&self, context: &mut Context, pause_us: u64) {
        context.set_timer(context.now.mono_us + pause_us, Timer::Describe(self.key));
    }

    /// Changes the standing, and reports the change.
    fn set(&mut self, context: &mut Context, standing: Standing) {
        let before = std::mem::replace(&mut self.standing, standing);
        let change = match (&before, &self.standing) {
            (before, now) if before == now => return,
            (_, Standing::Unusable(trouble)) => StreamChange::Unusable(trouble.clone()),
            (Standing::Unusable(_), Standing::Usable) => StreamChange::Usable,
            _ => return,
        };
        self.report(context, change);
    }

    fn report(&self, context: &mut Context, change: StreamChange) {
        context.effects.push(CoreEffect::StreamChanged { stream: self.stream.clone(), change });
    }
}

#[cfg(test)]
mod tests;
