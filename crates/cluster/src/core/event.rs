//! The inputs of a core ([`CoreEvent`]) and its outputs ([`CoreEffect`]).

use std::sync::Arc;

use dunlin_engine::{
    ShardIndex,
    broadcast::BroadcastMessage,
    event::Ticket,
    log::{LoadNumber, LoadQuery, LogError, LogPage, LogRecord, ProposalNumber},
};

use crate::link::{LinkEffect, LinkEvent};

use super::{
    StreamChange,
    peers::{PeerEffect, PeerEvent},
};

/// What an event takes besides the data of a message.
const OVERHEAD_BYTES: usize = 256;

/// An input of a core.
#[derive(Debug)]
pub enum CoreEvent {
    /// An event of the connections.
    Link(LinkEvent),
    /// See [`dunlin_engine::Effect::Propose`].
    Propose {
        /// The owner of the channel on this node.
        shard: ShardIndex,
        /// The channel.
        channel: Arc<str>,
        /// The number of its namespace.
        namespace: u16,
        /// Returned with the answer.
        proposal: ProposalNumber,
        /// The publication, without offset.
        record: Box<LogRecord>,
    },
    /// See [`dunlin_engine::Effect::Load`].
    Load {
        /// The owner of the channel on this node.
        shard: ShardIndex,
        /// The channel.
        channel: Arc<str>,
        /// Returned with the answer.
        load: LoadNumber,
        /// The part to read.
        query: LoadQuery,
    },
    /// See [`dunlin_engine::Effect::Trim`].
    Trim {
        /// The owner of the channel on this node.
        shard: ShardIndex,
        /// The channel.
        channel: Arc<str>,
        /// The number of its namespace.
        namespace: u16,
        /// Returned with the answer; `None` if nobody waits.
        ticket: Option<Ticket>,
    },
    /// See [`dunlin_engine::Effect::Follow`].
    Follow {
        /// The owner of the channel on this node.
        shard: ShardIndex,
        /// The channel.
        channel: Arc<str>,
        /// The number of its namespace.
        namespace: u16,
    },
    /// See [`dunlin_engine::Effect::Unfollow`].
    Unfollow {
        /// The channel.
        channel: Arc<str>,
        /// The only one that has used it, as a hash; 0 for several or none.
        only_user: u64,
    },
    /// See [`dunlin_engine::Effect::Broadcast`].
    Broadcast {
        /// The channel.
        channel: Arc<str>,
        /// The number of its namespace.
        namespace: u16,
        /// The message to send.
        message: BroadcastMessage,
    },
    /// A shard had no space for a message of a channel. Its subscribers must resubscribe.
    Undelivered {
        /// The channel.
        channel: Arc<str>,
    },
    /// An event about other nodes.
    Peers(PeerEvent),
    /// The deadline of [`Core::next_deadline_us`] has passed.
    Woke,
}

impl CoreEvent {
    /// The bytes that it takes while it is queued.
    pub(crate) fn bytes(&self) -> usize {
        let of_message = match self {
            Self::Propose { record, .. } => record.kept_bytes(),
            Self::Broadcast { message, .. } => message.kept_bytes(),
            _ => 0,
        };
        OVERHEAD_BYTES + of_message
    }
}

/// An action for the caller of a core.
#[derive(Debug)]
pub enum CoreEffect {
    /// An action of the connections.
    Link(LinkEffect),
    /// See [`dunlin_engine::Event::Committed`].
    Committed {
        /// The shard of the proposal.
        shard: ShardIndex,
        /// The channel.
        channel: Arc<str>,
        /// The proposal.
        proposal: ProposalNumber,
        /// The offset, or the error.
        outcome: Result<u64, LogError>,
    },
    /// See [`dunlin_engine::Event::TrimCommitted`].
    TrimCommitted {
        /// The shard of the removal.
        shard: ShardIndex,
        /// The removal.
        ticket: Ticket,
        /// Whether the stream has stored it.
        outcome: Result<(), LogError>,
    },
    /// See [`dunlin_engine::Event::Loaded`].
    Loaded {
        /// The shard of the load.
        shard: ShardIndex,
        /// The channel.
        channel: Arc<str>,
        /// The load.
        load: LoadNumber,
        /// The page, or the error.
        outcome: Result<Box<LogPage>, LogError>,
    },
    /// See [`dunlin_engine::Event::Replicated`].
    Replicated {
        /// The owner of the channel on this node.
        shard: ShardIndex,
        /// The channel.
        channel: Arc<str>,
        /// The publication, with its offset.
        record: Box<LogRecord>,
    },
    /// See [`dunlin_engine::Event::Followed`].
    Followed {
        /// The owner of the channel on this node.
        shard: ShardIndex,
        /// The channel.
        channel: Arc<str>,
    },
    /// See [`dunlin_engine::Event::BroadcastReceived`].
    BroadcastReceived {
        /// The owner of the channel on this node.
        shard: ShardIndex,
        /// The channel.
        channel: Arc<str>,
        /// The message of another node.
        message: BroadcastMessage,
    },
    /// See [`dunlin_engine::Event::Trimmed`].
    Trimmed {
        /// The owner of the channel on this node.
        shard: ShardIndex,
        /// The channel.
        channel: Arc<str>,
        /// Publications up to this offset are gone.
        through: u64,
    },
    /// See [`dunlin_engine::Event::Interrupted`].
    Interrupted {
        /// The owner of the channel on this node.
        shard: ShardIndex,
        /// The channel.
        channel: Arc<str>,
    },
    /// A stream has become unusable or usable, or was created again.
    StreamChanged {
        /// The stream.
        stream: Box<str>,
        /// The change.
        change: StreamChange,
    },
    /// An event about other nodes.
    Peers(PeerEffect),
}
