//! The timers of a core, and its pending requests.

use std::sync::Arc;

use crate::names::PartitionId;

use super::{publish::PublishingKey, room_logs::RoomLogNumber, stream_standing::StreamKey};

/// The reason of a timer. A timer whose reason no longer applies has no effect.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// A fence has not come back.
    Fence(PartitionId),
    /// The newest messages are read again.
    Heads(PartitionId),
    /// The stream is described again.
    Describe(StreamKey),
    Audit(PartitionId),
    /// The read in flight is retried.
    Read(PartitionId),
    /// A message is retried, given up, or read from the stream.
    Publish(PublishingKey),
    /// A channel without subscribers is detached.
    Linger(Arc<str>),
    /// The broadcast subscription of a channel without subscribers is removed.
    BroadcastLinger(Arc<str>),
    /// A gap has been open for too long.
    Gap(Arc<str>),
    /// Loads that wait for an attach, or for a position, are refused.
    Loads(Arc<str>),
    /// A query for the window of another node timed out.
    PeerWindow(Arc<str>),
    /// A question for the keys that other nodes have seen timed out.
    PeerKeys(Arc<str>),
    /// A follow that was not confirmed is answered.
    Follow(Arc<str>),
    /// The check of subscriptions starts or continues.
    InterestCheck,
    /// This node's lease must be renewed, or another one has been silent for too long.
    Leases,
    /// A request of a room's log is sent again, or given up.
    RoomLog(RoomLogNumber),
    /// Rooms that no node holds are looked for again, or this node leaves although its logs have not ended.
    RoomLogs,
}

/// The receiver of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Requester {
    Describe(StreamKey),
    Create(StreamKey),
    Fence(PartitionId),
    Heads {
        partition: PartitionId,
        chunk: usize,
        sync: u64,
    },
    Read {
        partition: PartitionId,
        read: u64,
    },
    AgeFloor(PartitionId),
    Marks(PartitionId),
    SharedRead(PartitionId),
    Publish(PublishingKey),
    Lease,
    RoomLog(RoomLogNumber),
    /// The newest messages of all logs of rooms.
    Orphans,
}

/// The connections that are up.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LinksUp {
    pub(super) live: bool,
    pub(super) publish: bool,
    pub(super) read: bool,
}
