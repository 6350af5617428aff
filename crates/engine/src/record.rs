//! Records of session events for the log, as values. The caller formats and writes them.

#![allow(missing_docs, reason = "a field whose name says all has no comment")]

use std::{borrow::Cow, sync::Arc};

use dunlin_protocol::ClientInfo;

use crate::event::SessionKey;

/// Which records a shard makes. Each level includes those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum RecordLevel {
    /// No records, at no cost.
    #[default]
    Nothing,
    /// Error replies, and sessions that the server closes.
    Refusals,
    /// Sessions that connect or leave, and subscriptions that the server ends.
    Sessions,
    /// All commands.
    Commands,
}

/// Levels and rate limits of a shard's records (`log.*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordOptions {
    /// The highest level that is recorded.
    pub level: RecordLevel,
    /// Records per second of the node, for each level; 0 for no limit. Records above it are counted.
    pub node_per_second: u32,
    /// Refusals per second of one session; 0 for no limit. Refusals above it are counted.
    pub session_per_second: u32,
}

/// A record about a session.
#[derive(Clone, Debug)]
pub struct SessionRecord {
    pub session: SessionKey,
    /// User and client id, if known.
    pub info: Option<Arc<ClientInfo>>,
    pub what: SessionIncident,
    /// Records that the rate limit suppressed since the last one.
    pub suppressed: u64,
}

/// An event of a session. No variant contains a payload or a token.
#[derive(Clone, Debug)]
pub enum SessionIncident {
    /// A command was answered with an error.
    CommandRefused {
        subject: CommandSubject,
        command_id: u32,
        /// The code of the error.
        code: u32,
        /// The reason, if the code does not determine it.
        why: Option<&'static str>,
    },
    /// The server closed the session.
    Disconnected {
        /// The command that caused it, if any.
        subject: Option<CommandSubject>,
        code: u16,
        /// The reason that the client receives.
        reason: Cow<'static, str>,
        /// Details, if code and reason do not determine them.
        why: Option<&'static str>,
        /// Bytes and frames queued for the session's socket.
        queued: (usize, usize),
    },
    /// The session was authenticated and admitted.
    Connected,
    /// The client closed the session.
    Left {
        /// The code of its close frame.
        code: Option<u16>,
    },
    /// The transport has ended.
    Gone,
    /// The server ended a subscription.
    Unsubscribed { channel: Arc<str>, code: u32 },
    /// A command was received.
    CommandReceived { subject: CommandSubject, command_id: u32 },
}

/// A command's name and channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandSubject {
    /// The command's name, as in metrics.
    pub command: &'static str,
    /// The channel, if the command names one.
    pub channel: Option<Arc<str>>,
}

impl SessionIncident {
    /// The lowest level that records it.
    pub const fn level(&self) -> RecordLevel {
        match self {
            Self::CommandRefused { .. } | Self::Disconnected { .. } => RecordLevel::Refusals,
            Self::Connected | Self::Left { .. } | Self::Gone | Self::Unsubscribed { .. } => RecordLevel::Sessions,
            Self::CommandReceived { .. } => RecordLevel::Commands,
        }
    }
}
