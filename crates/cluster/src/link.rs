//! The requests of the cluster protocol to its connections to NATS ([`LinkEffect`]), and their events ([`LinkEvent`]).
//!
//! Guarantees of the connections:
//!
//! - Each effect with a [`RequestNumber`] is answered once, with an event that repeats the number.
//! - Effects for one connection are sent in order, including a [`LinkEffect::Subscribe`] and a later
//!   [`LinkEffect::Publish`] on [`LinkName::Live`].
//! - Nothing is queued for a connection that is down: such a request is answered with [`PublishFault::Disconnected`] or
//!   [`ReadFault::Disconnected`], and dropped. After [`LinkEvent::Connected`], the subscriptions of [`LinkName::Live`]
//!   are active again, but messages from the time in between are lost.
//! - The connections retry nothing: the protocol decides about retries.

use bytes::Bytes;

use crate::streams::StreamTerms;

/// The number of a request to NATS, assigned by the requester.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestNumber(pub u64);

/// The three connections of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LinkName {
    /// Subscriptions, and the fences that must follow them on one connection.
    Live,
    /// Publications and their acknowledgements.
    Publish,
    /// Direct gets, which delay later requests on the same connection.
    Read,
}

impl LinkName {
    /// Every variant.
    pub const ALL: [Self; 3] = [Self::Live, Self::Publish, Self::Read];

    /// The name in logs and metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Publish => "publish",
            Self::Read => "read",
        }
    }
}

/// The headers of a message. There are few, so they are stored as a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MessageHeaders(Vec<(Box<str>, Box<str>)>);

impl MessageHeaders {
    /// No headers.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Appends a header.
    pub fn push(&mut self, name: impl Into<Box<str>>, value: impl Into<Box<str>>) {
        self.0.push((name.into(), value.into()));
    }

    /// Returns the headers with one more.
    #[must_use]
    pub fn with(mut self, name: impl Into<Box<str>>, value: impl Into<Box<str>>) -> Self {
        self.push(name, value);
        self
    }

    /// The first value of a header. Names are compared exactly: NATS keeps their case.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(have, _)| *have == name).map(|(_, value)| value)
    }

    /// The value of a header with a number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.parse().ok()
    }

    /// All headers, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Approximate bytes of the headers in a message.
    pub fn bytes(&self) -> usize {
        self.iter().map(|(name, value)| name.len() + value.len() + 4).sum()
    }

    /// Whether there are no headers.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A message that a stream has stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredMessage {
    /// The subject that it was published to.
    pub subject: Box<str>,
    /// The message's position in the stream.
    pub sequence: u64,
    /// The header `Nats-Last-Sequence`; 0 if it is missing. In a republished message, it is the sequence of the
    /// previous message with the same subject. In an answer to a read, it is the sequence of the previous message in
    /// the answer.
    pub last_sequence: u64,
    /// Unix time at which the stream's leader stored it.
    pub time_ms: u64,
    /// The publisher's headers, without those of the server.
    pub headers: MessageHeaders,
    /// The body.
    pub payload: Bytes,
}

/// The acknowledgement that a stream has stored a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishAck {
    /// The name of the stream.
    pub stream: Box<str>,
    /// The sequence of the message.
    pub sequence: u64,
    /// Whether a message with the same `Nats-Msg-Id` had been stored before, at this sequence.
    pub is_duplicate: bool,
}

/// Why a message was not acknowledged. Except after [`PublishFault::Refused`], the message may be stored anyway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PublishFault {
    /// No stream has the subject, or its stream has no leader.
    NoResponders,
    /// Timeout.
    TimedOut,
    /// The stream has refused the message.
    Refused {
        /// A code like an HTTP status.
        code: u16,
        /// The more specific code of NATS; 0 if it is missing.
        error_code: u64,
        /// NATS's text.
        description: Box<str>,
    },
    /// The connection is down, or went down before the answer arrived.
    Disconnected,
}

/// The `error_code`s of answers that concern the whole stream: the account, the server, its memory or its disk has no
/// room, or the stream is sealed.
const STORES_NOTHING: [u64; 5] = [10_002, 10_023, 10_028, 10_047, 10_109];
/// The store has failed. A server that shuts down gives this answer as well.
const STORE_FAILED: u64 = 10_077;

/// The `error_code` of an answer: the newest message of the subject is not the expected one.
const WRONG_LAST_SEQUENCE: u64 = 10_071;

impl PublishFault {
    /// Whether the newest message of the subject is not the expected one.
    pub const fn is_wrong_last_sequence(&self) -> bool {
        matches!(self, Self::Refused { error_code: WRONG_LAST_SEQUENCE, .. })
    }

    /// Why the stream stores no message at all, in the words of NATS; `None` if the fault is of another kind.
    pub fn store_refusal(&self) -> Option<Box<str>> {
        let Self::Refused { error_code, description, .. } = self else { return None };
        let is_closing = description.contains("closed") || description.contains("shutdown");
        let stores_nothing = STORES_NOTHING.contains(error_code) || *error_code == STORE_FAILED && !is_closing;
        stores_nothing.then(|| format!("{description} ({error_code})").into())
    }
}

/// The answer to a read. It has everything that was requested and that the answering replica has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadAnswer {
    /// In ascending order of sequence.
    pub messages: Vec<StoredMessage>,
    /// The highest sequence of the answering replica, if NATS reports it (for [`LinkEffect::LastOf`]); otherwise 0.
    pub up_to_sequence: u64,
    /// The number of matching messages after the last one of the answer, if NATS reports it; otherwise 0.
    pub pending: u64,
    /// Whether the answer consists of several parts, possibly of several replicas.
    pub is_in_parts: bool,
}

/// Why a read has no answer. If nothing was found, the answer has no messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadFault {
    /// There is no responder for the stream: it does not exist, or has no leader.
    NoResponders,
    /// Timeout before the answer was complete.
    TimedOut,
    /// The server has refused the request.
    Refused {
        /// A code like an HTTP status.
        code: u16,
        /// The more specific code of NATS; 0 if it is missing.
        error_code: u64,
        /// NATS's text.
        description: Box<str>,
    },
    /// The answer cannot be parsed.
    Malformed {
        /// The fault.
        what: &'static str,
    },
    /// The connection is down, or went down before the answer arrived.
    Disconnected,
}

/// The limits of a stream, as reported by the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamShape {
    /// `max_msgs_per_subject`; `None` for no limit.
    pub messages_per_subject_max: Option<u64>,
    /// `max_age`; `None` for no limit.
    pub age_max_ms: Option<u64>,
    /// `duplicate_window`.
    pub duplicate_window_ms: u64,
    /// `num_replicas`.
    pub replicas: u16,
    /// `allow_atomic`.
    pub is_atomic_allowed: bool,
}

/// The state of a stream at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamState {
    /// The stream's limits.
    pub shape: StreamShape,
    /// The sequence of its oldest message.
    pub first_sequence: u64,
    /// The highest sequence that it has assigned.
    pub last_sequence: u64,
    /// The stream's metadata, from Dunlin and from the server.
    pub metadata: Vec<(Box<str>, Box<str>)>,
    /// Whether it has a leader now. A stream with one replica always has one.
    pub has_leader: bool,
}

impl StreamState {
    /// The value of a metadata key.
    pub fn metadata(&self, name: &str) -> Option<&str> {
        self.metadata.iter().find(|(have, _)| &**have == name).map(|(_, value)| &**value)
    }
}

/// An event of the connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// A connection is open, for the first time or again.
    Connected {
        /// The connection.
        link: LinkName,
        /// The largest message that the server accepts: headers and body.
        max_payload: usize,
    },
    /// A connection has gone down, and is being reopened.
    Disconnected {
        /// The connection.
        link: LinkName,
    },
    /// Messages of [`LinkName::Live`] may be missing, because of a queue overflow here or in the server.
    SlowConsumer,
    /// A message on a subscription of [`LinkName::Live`].
    Delivered {
        /// The subject of the message. For a republished one, the header `Nats-Subject` has the stream's subject.
        subject: Box<str>,
        /// The subject for answers, if the sender expects one.
        reply: Option<Box<str>>,
        /// All headers, including those of the server.
        headers: MessageHeaders,
        /// The body.
        payload: Bytes,
        /// Whether a wildcard subscription received it. A message that matches several subscriptions is received once
        /// by each.
        is_by_wildcard: bool,
    },
    /// Answer to [`LinkEffect::Publish`] with a number.
    Acknowledged {
        /// The number of the request.
        request: RequestNumber,
        /// Where the message is stored, or why it may not be.
        outcome: Result<PublishAck, PublishFault>,
    },
    /// Answer to a read.
    Answered {
        /// The number of the request.
        request: RequestNumber,
        /// The messages found.
        outcome: Result<ReadAnswer, ReadFault>,
    },
    /// Answer to [`LinkEffect::Describe`] or [`LinkEffect::Create`].
    StreamInfo {
        /// The number of the request.
        request: RequestNumber,
        /// The stream; `Refused` with error code 10059 if it does not exist.
        outcome: Result<Box<StreamState>, ReadFault>,
    },
}

/// A request to the connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkEffect {
    /// Subscribe to a subject. Messages are reported with [`LinkEvent::Delivered`]. Done by [`LinkName::Live`].
    Subscribe {
        /// May contain wildcards.
        subject: Box<str>,
    },
    /// End a subscription of [`LinkEffect::Subscribe`].
    Unsubscribe {
        /// The subject of [`LinkEffect::Subscribe`].
        subject: Box<str>,
    },
    /// Send a message.
    Publish {
        /// The connection to use.
        link: LinkName,
        /// If set, a stream must acknowledge the message, which is reported with [`LinkEvent::Acknowledged`].
        request: Option<RequestNumber>,
        /// The subject, without wildcards.
        subject: Box<str>,
        /// The headers.
        headers: MessageHeaders,
        /// The body.
        payload: Bytes,
    },
    /// Read the newest message of each subject (`multi_last`).
    LastOf {
        /// Returned with the answer.
        request: RequestNumber,
        /// The stream.
        stream: Box<str>,
        /// The subjects; at most 1,024 may match.
        subjects: Vec<Box<str>>,
        /// Leave out messages with a lower sequence.
        floor: Option<u64>,
    },
    /// Read messages from a sequence on. An answer has fewer than requested only if the replica has no more.
    Range {
        /// Returned with the answer.
        request: RequestNumber,
        /// The stream.
        stream: Box<str>,
        /// Only messages of this subject. NATS scans all others between them.
        subject: Option<Box<str>>,
        /// The first sequence of interest.
        from: u64,
        /// Maximum number of messages.
        messages_max: usize,
    },
    /// Read messages with known sequences. Missing messages are left out of the answer.
    Sequences {
        /// Returned with the answer.
        request: RequestNumber,
        /// The stream.
        stream: Box<str>,
        /// At most 1,024.
        sequences: Vec<u64>,
    },
    /// Read the first message that was stored at or after a time.
    FirstSince {
        /// Returned with the answer.
        request: RequestNumber,
        /// The stream.
        stream: Box<str>,
        /// Unix time.
        time_ms: u64,
    },
    /// Close the connection and open another one, to the next server.
    Reconnect {
        /// The connection.
        link: LinkName,
    },
    /// Create a stream. Answered with [`LinkEvent::StreamInfo`]; `Refused` with error code 10058 if it exists.
    Create {
        /// Returned with the answer.
        request: RequestNumber,
        /// The configuration.
        terms: Box<StreamTerms>,
        /// The epoch of the new stream.
        epoch: Box<str>,
    },
    /// Delete the messages of a subject with lower sequences. Not answered: what a lost request leaves, the next one
    /// deletes.
    Purge {
        /// The stream.
        stream: Box<str>,
        /// The subject.
        subject: Box<str>,
        /// The first sequence that stays.
        below: u64,
    },
    /// Read the state of a stream from its leader.
    Describe {
        /// Returned with the answer.
        request: RequestNumber,
        /// The stream.
        stream: Box<str>,
    },
}

/// What an effect or an event takes while it is queued, besides its parts of variable size.
const QUEUED_OVERHEAD_BYTES: usize = 256;

impl LinkEvent {
    /// The bytes that it takes while it is queued.
    pub(crate) fn bytes(&self) -> usize {
        QUEUED_OVERHEAD_BYTES
            + match self {
                Self::Delivered { subject, reply, headers, payload, .. } => {
                    subject.len() + reply.as_ref().map_or(0, |reply| reply.len()) + headers.bytes() + payload.len()
                }
                Self::Answered { outcome: Ok(answer), .. } => answer.messages.iter().map(StoredMessage::bytes).sum(),
                _ => 0,
            }
    }
}

impl StoredMessage {
    /// The bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + self.subject.len() + self.headers.bytes() + self.payload.len()
    }
}

impl LinkEffect {
    /// The bytes that it takes while it is queued.
    pub(crate) fn bytes(&self) -> usize {
        QUEUED_OVERHEAD_BYTES
            + match self {
                Self::Publish { headers, payload, .. } => headers.bytes() + payload.len(),
                Self::LastOf { subjects, .. } => subjects.iter().map(|subject| subject.len()).sum(),
                Self::Sequences { sequences, .. } => size_of_val(&**sequences),
                _ => 0,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_store_is_told_from_other_refusals() {
        let refused = |error_code, description: &str| {
            PublishFault::Refused { code: 503, error_code, description: description.into() }.store_refusal()
        };
        for (error_code, description) in [(10_023, "insufficient resources"), (10_077, "no space left on device")] {
            assert_eq!(refused(error_code, description).as_deref(), Some(&*format!("{description} ({error_code})")));
        }
        for (error_code, description) in
            [(10_071, "wrong last sequence"), (10_158, "duplicate"), (10_054, "too large"), (10_077, "store is closed")]
        {
            assert_eq!(refused(error_code, description), None, "{description}");
        }
        assert_eq!(PublishFault::NoResponders.store_refusal(), None);
    }

    #[test]
    fn headers_are_found_by_their_exact_name() {
        let headers = MessageHeaders::new().with("Nats-Sequence", "17").with("nats-sequence", "18");
        assert_eq!(headers.get("Nats-Sequence"), Some("17"));
        assert_eq!(headers.number("nats-sequence"), Some(18));
        assert_eq!(headers.number("Nats-Last-Sequence"), None);
    }
}
