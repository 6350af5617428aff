//! What a core counts, for metrics.

use crate::link::LinkName;

use super::{BroadcastDrop, leases::LeaseCounters, peers::PeerCounters};

/// What a core counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CoreCounters {
    /// Channels that are followed, those that linger included.
    pub followed: u64,
    /// Channels that were attached.
    pub attached: u64,
    /// Republished messages.
    pub delivered: u64,
    /// Of these, those that were known already.
    pub late: u64,
    /// Gaps in the chain of a channel.
    pub gaps: u64,
    /// Gaps that were found by comparing the newest messages: a lost end.
    pub lost_tails: u64,
    /// Streams that were found to have lost their end.
    pub truncations: u64,
    /// Messages that were read to fill a gap.
    pub filled: u64,
    /// Channels whose subscribers start anew, because a gap cannot be filled or the stream is another one.
    pub interrupted: u64,
    /// Audits that are complete.
    pub audits: u64,
    /// Answers of replicas that did not have what was known to be stored.
    pub stale_answers: u64,
    /// Messages that were sent again.
    pub retries: u64,
    /// Publications that were given up.
    pub abandoned: u64,
    /// Messages that are sent and not acknowledged, at the moment.
    pub in_flight: u64,
    /// Loads behind positions that this node had not reached.
    pub ahead: u64,
    /// Reads of a channel's messages.
    pub reads: u64,
    /// Reads that many recoveries shared.
    pub shared_reads: u64,
    /// Windows of other nodes that were used instead of a read.
    pub peer_windows: u64,
    /// Connections that were given up because nothing came.
    pub silences: u64,
    /// Channels whose broadcasts the node receives, those that linger included.
    pub broadcast_channels: u64,
    /// Follows that were answered before all nodes' servers knew of them.
    pub follows_unconfirmed: u64,
    /// Broadcasts that were handed to the connection.
    pub broadcasts_sent: u64,
    /// Broadcasts of other nodes that were passed on.
    pub broadcasts_received: u64,
    /// Broadcasts that were dropped, in the order of [`BroadcastDrop::ALL`].
    pub broadcasts_dropped: [u64; BroadcastDrop::ALL.len()],
    /// Connections that were opened, in the order of [`LinkName::ALL`].
    pub links_opened: [u64; LinkName::ALL.len()],
    /// About other nodes.
    pub peers: PeerCounters,
    /// About leases.
    pub leases: LeaseCounters,
}
