//! What the protocol of a cluster tells the connections to NATS ([`LinkEffect`]), and what they report ([`LinkEvent`]).
//!
//! Guarantees of the connections:
//!
//! - Each effect with a [`RequestNumber`] is answered once, with an event that repeats the number.
//! - Effects for one connection are sent in the order in which they were given, a [`LinkEffect::Subscribe`] before the
//!   [`LinkEffect::Publish`] on [`LinkName::Live`] that follows it.
//! - Nothing is sent blind: what a connection cannot send at once, because it is down, is answered with
//!   [`PublishFault::Disconnected`] or [`ReadFault::Disconnected`], and forgotten. After [`LinkEvent::Connected`] the
//!   subscriptions of [`LinkName::Live`] are in force again, but messages between are lost.
//! - Nothing is tried again: retries are decisions of the protocol.

use bytes::Bytes;

/// A request to NATS, numbered by who made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestNumber(pub u64);

/// The three connections of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LinkName {
    /// Subscriptions, and the fences that must follow them on one connection.
    Live,
    /// Publications and their acknowledgements.
    Publish,
    /// Direct gets, which delay what comes behind them.
    Read,
}

impl LinkName {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Live, Self::Publish, Self::Read];

    /// Its name in logs and metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Publish => "publish",
            Self::Read => "read",
        }
    }
}

/// The headers of a message. Few, so a list.
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

    /// The same with one more header.
    #[must_use]
    pub fn with(mut self, name: impl Into<Box<str>>, value: impl Into<Box<str>>) -> Self {
        self.push(name, value);
        self
    }

    /// The first value of a header. Names are compared exactly: NATS keeps their case.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(have, _)| *have == name).map(|(_, value)| value)
    }

    /// A header with a number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.parse().ok()
    }

    /// All headers in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// About what they take in a message.
    pub fn bytes(&self) -> usize {
        self.iter().map(|(name, value)| name.len() + value.len() + 4).sum()
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A message that a stream has stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredMessage {
    /// The subject that it was published to.
    pub subject: Box<str>,
    /// Its position in the stream.
    pub sequence: u64,
    /// The header `Nats-Last-Sequence`; 0 if there is none. In a republished message, the sequence of the message before
    /// it with the same subject. In an answer to a read, the sequence of the message before it in the answer.
    pub last_sequence: u64,
    /// Unix time at which the stream's leader stored it.
    pub time_ms: u64,
    /// The publisher's headers, without those of the server.
    pub headers: MessageHeaders,
    /// Its body.
    pub payload: Bytes,
}

/// That a stream has stored a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishAck {
    /// The stream.
    pub stream: Box<str>,
    /// The position of the message.
    pub sequence: u64,
    /// A message with the same `Nats-Msg-Id` was stored before, at this sequence.
    pub is_duplicate: bool,
}

/// Why a message was not acknowledged. After any of these but [`PublishFault::Refused`] it may be stored nevertheless.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PublishFault {
    /// No stream listens to the subject, or its stream has no leader.
    NoResponders,
    /// No answer in time.
    TimedOut,
    /// The stream has refused it.
    Refused {
        /// Like a status of HTTP.
        code: u16,
        /// NATS's own, more specific code; 0 if there is none.
        error_code: u64,
        /// NATS's text.
        description: Box<str>,
    },
    /// The connection is down, or went down before the answer came.
    Disconnected,
}

/// `error_code` of an answer: the newest message of the subject is another one.
const WRONG_LAST_SEQUENCE: u64 = 10_071;

impl PublishFault {
    /// Whether the newest message of the subject is another one than was expected.
    pub const fn is_wrong_last_sequence(&self) -> bool {
        matches!(self, Self::Refused { error_code: WRONG_LAST_SEQUENCE, .. })
    }
}

/// Answer to a read. It has everything that was asked for and that the answering replica had.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadAnswer {
    /// By rising sequences.
    pub messages: Vec<StoredMessage>,
    /// The highest sequence of the replica that answered, where NATS says it (to [`LinkEffect::LastOf`]); otherwise 0.
    pub up_to_sequence: u64,
    /// Messages that match and come behind the last of the answer, where NATS says it; otherwise 0.
    pub pending: u64,
    /// It came in several parts, perhaps of several replicas.
    pub is_in_parts: bool,
}

/// Why a read has no answer. That nothing was found is an answer without messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadFault {
    /// Nobody answers for the stream: it does not exist, or has no leader.
    NoResponders,
    /// No complete answer in time.
    TimedOut,
    /// The server has refused the request.
    Refused {
        /// Like a status of HTTP.
        code: u16,
        /// NATS's own, more specific code; 0 if there is none.
        error_code: u64,
        /// NATS's text.
        description: Box<str>,
    },
    /// The answer cannot be understood.
    Malformed {
        /// What is wrong with it.
        what: &'static str,
    },
    /// The connection is down, or went down before the answer came.
    Disconnected,
}

/// What a stream keeps, as the server says.
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

/// A stream at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamState {
    /// What it keeps.
    pub shape: StreamShape,
    /// The sequence of the oldest message that it has.
    pub first_sequence: u64,
    /// The highest sequence that it has given.
    pub last_sequence: u64,
    /// Its metadata, of Dunlin and of the server.
    pub metadata: Vec<(Box<str>, Box<str>)>,
    /// Whether it has a leader at the moment. A stream with one replica always has.
    pub has_leader: bool,
}

impl StreamState {
    /// The value of a metadata key.
    pub fn metadata(&self, name: &str) -> Option<&str> {
        self.metadata.iter().find(|(have, _)| &**have == name).map(|(_, value)| &**value)
    }
}

/// What the connections report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// A connection is open, for the first time or again.
    Connected {
        /// Which one.
        link: LinkName,
        /// The largest message that the server takes: headers and body.
        max_payload: usize,
    },
    /// A connection has gone down. It is being opened again.
    Disconnected {
        /// Which one.
        link: LinkName,
    },
    /// Messages of [`LinkName::Live`] may be missing: a queue has overflown here or in the server.
    SlowConsumer,
    /// A message on a subscription of [`LinkName::Live`].
    Delivered {
        /// The subject of the message. Of a republished one, the stream's subject is in the header `Nats-Subject`.
        subject: Box<str>,
        /// The subject for answers, if the sender waits for one.
        reply: Option<Box<str>>,
        /// All its headers, those of the server as well.
        headers: MessageHeaders,
        /// Its body.
        payload: Bytes,
        /// It came by a subscription with a wildcard. A message that matches several subscriptions comes once by each.
        is_by_wildcard: bool,
    },
    /// Answer to [`LinkEffect::Publish`] with a number.
    Acknowledged {
        /// Whose answer it is.
        request: RequestNumber,
        /// Where it is stored, or why it may not be.
        outcome: Result<PublishAck, PublishFault>,
    },
    /// Answer to a read.
    Answered {
        /// Whose answer it is.
        request: RequestNumber,
        /// What was found.
        outcome: Result<ReadAnswer, ReadFault>,
    },
    /// Answer to [`LinkEffect::Describe`].
    StreamInfo {
        /// Whose answer it is.
        request: RequestNumber,
        /// The stream; `Refused` with error code 10059 if it does not exist.
        outcome: Result<Box<StreamState>, ReadFault>,
    },
}

/// What the connections are to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkEffect {
    /// Have messages of the subject reported with [`LinkEvent::Delivered`]. Done by [`LinkName::Live`].
    Subscribe {
        /// May have wildcards.
        subject: Box<str>,
    },
    /// Ends what [`LinkEffect::Subscribe`] began.
    Unsubscribe {
        /// The same text.
        subject: Box<str>,
    },
    /// Send a message.
    Publish {
        /// By which connection.
        link: LinkName,
        /// If set, the acknowledgement of a stream is awaited, and reported with [`LinkEvent::Acknowledged`].
        request: Option<RequestNumber>,
        /// Without wildcards.
        subject: Box<str>,
        /// Its headers.
        headers: MessageHeaders,
        /// Its body.
        payload: Bytes,
    },
    /// Read the newest message of each subject (`multi_last`).
    LastOf {
        /// Given back with the answer.
        request: RequestNumber,
        /// The stream.
        stream: Box<str>,
        /// At most 1,024 that match.
        subjects: Vec<Box<str>>,
        /// Leave out messages with a lower sequence.
        floor: Option<u64>,
    },
    /// Read messages from a sequence on. An answer has fewer than asked for only where the replica has no more.
    Range {
        /// Given back with the answer.
        request: RequestNumber,
        /// The stream.
        stream: Box<str>,
        /// Only messages of this subject. NATS scans all others between them.
        subject: Option<Box<str>>,
        /// The first sequence of interest.
        from: u64,
        /// So many at most.
        messages_max: usize,
    },
    /// Read messages with known sequences. Those that are gone are left out of the answer.
    Sequences {
        /// Given back with the answer.
        request: RequestNumber,
        /// The stream.
        stream: Box<str>,
        /// At most 1,024.
        sequences: Vec<u64>,
    },
    /// Read the first message that was stored at or after a time.
    FirstSince {
        /// Given back with the answer.
        request: RequestNumber,
        /// The stream.
        stream: Box<str>,
        /// Unix time.
        time_ms: u64,
    },
    /// Give the connection up and open another one, at the next server.
    Reconnect {
        /// Which one.
        link: LinkName,
    },
    /// Read the state of a stream from its leader.
    Describe {
        /// Given back with the answer.
        request: RequestNumber,
        /// The stream.
        stream: Box<str>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_found_by_their_exact_name() {
        let headers = MessageHeaders::new().with("Nats-Sequence", "17").with("nats-sequence", "18");
        assert_eq!(headers.get("Nats-Sequence"), Some("17"));
        assert_eq!(headers.number("nats-sequence"), Some(18));
        assert_eq!(headers.number("Nats-Last-Sequence"), None);
    }
}
