//! What happens to a core, and what is to be done for it.

use std::sync::Arc;

use dunlin_engine::{
    ShardIndex,
    broadcast::BroadcastMessage,
    log::{LoadNumber, LoadQuery, LogError, LogPage, LogRecord, ProposalNumber},
};

use crate::link::{LinkEffect, LinkEvent};

use super::peers::{PeerEffect, PeerEvent};

/// What happens to a core.
#[derive(Debug)]
pub enum CoreEvent {
    /// The connections report something.
    Link(LinkEvent),
    /// See [`dunlin_engine::Effect::Propose`].
    Propose {
        /// The owner of the channel on this node.
        shard: ShardIndex,
        /// The channel.
        channel: Arc<str>,
        /// The number of its namespace.
        namespace: u16,
        /// Given back with the answer.
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
        /// Given back with the answer.
        load: LoadNumber,
        /// What to read.
        query: LoadQuery,
    },
    /// See [`dunlin_engine::Effect::Trim`].
    Trim {
        /// The channel.
        channel: Arc<str>,
        /// The number of its namespace.
        namespace: u16,
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
    },
    /// See [`dunlin_engine::Effect::Broadcast`].
    Broadcast {
        /// The channel.
        channel: Arc<str>,
        /// The number of its namespace.
        namespace: u16,
        /// What to send.
        message: BroadcastMessage,
    },
    /// About other nodes.
    Peers(PeerEvent),
    /// The deadline of [`Core::next_deadline_us`] has passed.
    Woke,
}

/// What is to be done for a core.
#[derive(Debug)]
pub enum CoreEffect {
    /// The connections are to do something.
    Link(LinkEffect),
    /// See [`dunlin_engine::Event::Committed`].
    Committed {
        /// Who proposed.
        shard: ShardIndex,
        /// The channel.
        channel: Arc<str>,
        /// The proposal.
        proposal: ProposalNumber,
        /// The offset, or why there is none.
        outcome: Result<u64, LogError>,
    },
    /// See [`dunlin_engine::Event::Loaded`].
    Loaded {
        /// Who asked.
        shard: ShardIndex,
        /// The channel.
        channel: Arc<str>,
        /// The load.
        load: LoadNumber,
        /// The page, or why there is none.
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
    /// See [`dunlin_engine::Event::Broadcasted`].
    Broadcasted {
        /// The owner of the channel on this node.
        shard: ShardIndex,
        /// The channel.
        channel: Arc<str>,
        /// What another node has sent.
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
    /// About other nodes.
    Peers(PeerEffect),
}
