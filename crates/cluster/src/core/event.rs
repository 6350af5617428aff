//! The inputs of a core ([`CoreEvent`]) and its outputs ([`CoreEffect`]).

use std::sync::Arc;

use dunlin_engine::{
    Event, ShardIndex,
    broadcast::BroadcastMessage,
    event::Ticket,
    log::{LoadNumber, LoadQuery, LogRecord, ProposalNumber},
};

use crate::link::{LinkEffect, LinkEvent};

use super::{
    StreamChange,
    peers::{PeerEffect, PeerEvent},
    room_logs::{RoomLogEffect, RoomLogEvent},
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
    /// A request about a room's log.
    RoomLog(RoomLogEvent),
    /// The deadline of [`Core::next_deadline_us`] has passed.
    Woke,
}

impl CoreEvent {
    /// The bytes that it takes while it is queued.
    pub(crate) fn bytes(&self) -> usize {
        let of_message = match self {
            Self::Propose { record, .. } => record.kept_bytes(),
            Self::Broadcast { message, .. } => message.kept_bytes(),
            Self::RoomLog(RoomLogEvent::Record { bytes, .. } | RoomLogEvent::Checkpoint { bytes, .. }) => bytes.len(),
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
    /// An event for a shard: the answer to its request, or a message of another node for the owner of a channel.
    ToShard {
        /// The shard.
        shard: ShardIndex,
        /// The event.
        event: Event<'static>,
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
    /// An answer about a room's log.
    RoomLog(RoomLogEffect),
}
