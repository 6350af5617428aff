//! The timers of a core, and its pending requests.

use std::sync::Arc;

use crate::{link::RequestNumber, names::PartitionId};

use super::{Core, Turn, publish::PublishingKey, standing::StreamKey};

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
    /// Loads that wait for an attach are refused.
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
}

/// The receiver of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Requester {
    Describe(StreamKey),
    Create(StreamKey),
    Fence(PartitionId),
    Heads { partition: PartitionId, chunk: usize, sync: u64 },
    Read { partition: PartitionId, read: u64 },
    AgeFloor(PartitionId),
    Marks(PartitionId),
    SharedRead(PartitionId),
    Publish(PublishingKey),
    Lease,
}

/// The connections that are up.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LinksUp {
    pub(super) live: bool,
    pub(super) publish: bool,
    pub(super) read: bool,
}

impl Core {
    /// Registers the receiver of a new request's answer.
    pub(super) fn request(&mut self, requester: Requester) -> RequestNumber {
        let number = RequestNumber(self.next_number());
        self.requests.insert(number, requester);
        number
    }

    pub(super) fn next_number(&mut self) -> u64 {
        self.numbered += 1;
        self.numbered
    }

    pub(super) fn set_timer(&mut self, due_us: u64, timer: Timer) {
        self.timers.insert((due_us, timer));
    }

    pub(super) fn run_timers(&mut self, turn: &mut Turn<'_>) {
        while let Some((due_us, _)) = self.timers.first()
            && *due_us <= turn.now.mono_us
            && let Some((_, timer)) = self.timers.pop_first()
        {
            match timer {
                Timer::Fence(partition) => self.fence_overdue(turn, partition),
                Timer::Heads(partition) => self.read_missing_heads(turn, partition),
                Timer::Describe(stream) => self.describe(turn, stream),
                Timer::Audit(partition) => self.audit(turn, partition),
                Timer::Read(partition) => self.resume_reads(turn, partition),
                Timer::Publish(key) => self.review_publishing(turn, key),
                Timer::Linger(channel) => self.linger_over(turn, &channel),
                Timer::BroadcastLinger(channel) => self.broadcast_linger_over(turn, &channel),
                Timer::Gap(channel) => self.gap_overdue(turn, &channel),
                Timer::Loads(channel) => self.refuse_overdue_loads(turn, &channel),
                Timer::PeerWindow(channel) => self.window_overdue(turn, &channel),
                Timer::PeerKeys(channel) => self.keys_overdue(turn, &channel),
                Timer::Follow(channel) => self.follow_overdue(turn, &channel),
                Timer::InterestCheck => self.run_check(turn),
                Timer::Leases => self.lease_timer(turn),
            }
        }
    }
}
