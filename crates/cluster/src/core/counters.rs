//! Counters of a core, for metrics.

use crate::link::LinkName;

use super::{BroadcastDrop, leases::LeaseCounters, peers::PeerCounters, room_logs::RoomLogCounters};

/// Counters of a core.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CoreCounters {
    /// Channels that are followed, including those that linger (gauge).
    pub followed: u64,
    /// Channels that linger, with and without a stream (gauge).
    pub lingering: u64,
    /// Channels that were attached.
    pub attached: u64,
    /// Republished messages.
    pub delivered: u64,
    /// Republished messages that were known already.
    pub late: u64,
    /// Gaps in the chain of a channel.
    pub gaps: u64,
    /// Gaps that a comparison of the newest messages found: the end was lost.
    pub lost_tails: u64,
    /// Streams that were found to be truncated.
    pub truncations: u64,
    /// Messages that are missing although a later one names them.
    pub holes: u64,
    /// Streams that were found to be gone.
    pub streams_absent: u64,
    /// Streams that this node has created because they were gone.
    pub streams_created: u64,
    /// Messages that were read to fill a gap.
    pub filled: u64,
    /// Channels whose subscribers must resubscribe, because a gap cannot be filled or the stream was replaced.
    pub interrupted: u64,
    /// Channels whose subscribers must resubscribe, because a shard's queue was full.
    pub undelivered: u64,
    /// Overflows of the queue of messages of NATS, here or in a server.
    pub overflows: u64,
    /// Completed audits.
    pub audits: u64,
    /// Answers of replicas that lacked messages known to be stored.
    pub stale_answers: u64,
    /// Messages that were left out of an answer, because a replica has damaged them.
    pub damaged_messages: u64,
    /// What was disregarded.
    pub strays: StrayCounters,
    /// Idempotency keys of publications that this node has seen (gauge).
    pub seen_keys: u64,
    /// Their bytes (gauge).
    pub seen_keys_bytes: u64,
    /// Publications that were answered with an earlier one, because this node has seen their key.
    pub keys_answered: u64,
    /// Questions for keys that were not answered by each live node in time.
    pub keys_unanswered: u64,
    /// Bytes of publications in the windows of followed channels (gauge).
    pub window_bytes: u64,
    /// Messages that were sent again.
    pub retries: u64,
    /// Publications that were given up.
    pub abandoned: u64,
    /// Messages sent and not acknowledged (gauge).
    pub in_flight: u64,
    /// Loads after positions that this node had not reached.
    pub ahead: u64,
    /// Reads of a channel's messages.
    pub reads: u64,
    /// Reads that many recoveries shared.
    pub shared_reads: u64,
    /// Windows of other nodes that were used instead of a read.
    pub peer_windows: u64,
    /// Connections that were closed because nothing was received.
    pub silent_connections: u64,
    /// Channels whose broadcasts the node receives, including those that linger (gauge).
    pub broadcast_channels: u64,
    /// Follows that were answered before all nodes' servers knew the subscription.
    pub follows_unconfirmed: u64,
    /// Broadcasts passed to the connection.
    pub broadcasts_sent: u64,
    /// Broadcasts of other nodes that were delivered.
    pub broadcasts_received: u64,
    /// Broadcasts that were dropped, in the order of [`BroadcastDrop::ALL`].
    pub broadcasts_dropped: [u64; BroadcastDrop::ALL.len()],
    /// Connections that were opened, in the order of [`LinkName::ALL`].
    pub links_opened: [u64; LinkName::ALL.len()],
    /// Counters about other nodes.
    pub peers: PeerCounters,
    /// Counters of leases.
    pub leases: LeaseCounters,
    /// Counters of the logs of rooms.
    pub room_logs: RoomLogCounters,
}

/// What a core has disregarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StrayCounters {
    /// Messages and answers that came too late for what they belong to, or that Dunlin did not send.
    pub late: u64,
    /// What cannot happen, and has happened. Each is a bug; a debug build ends at the first one.
    pub impossible: u64,
}

impl StrayCounters {
    /// What a message or an answer refers to. Counts it if that is gone, or was never there.
    pub(super) fn found_or_late<T>(&mut self, found: Option<T>) -> Option<T> {
        self.late += u64::from(found.is_none());
        found
    }

    /// What must be there, for the reason that is given.
    pub(super) fn expected<T>(&mut self, found: Option<T>, why: &str) -> Option<T> {
        debug_assert!(found.is_some(), "{why}");
        self.impossible += u64::from(found.is_none());
        found
    }

    /// Counts what cannot happen, for the reason that is given.
    pub(super) fn count_impossible(&mut self, why: &str) {
        debug_assert!(false, "{why}");
        self.impossible += 1;
    }
}
