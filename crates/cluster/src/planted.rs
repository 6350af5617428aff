//! Bugs that tests of the simulator plant, to check that the simulator finds them. Without the feature `planted-bugs`,
//! which only tests enable, [`PlantedInCore::is`] is `false` at compile time.

/// A bug of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoreBug {
    /// The newest messages are read without a fence.
    AttachWithoutFence,
    /// A message is delivered although its predecessor is missing.
    GapNotNoticed,
    /// An audit skips attached channels.
    TailNotAudited,
    /// A page counts as complete with one message more than the proof allows.
    CountRuleOffByOne,
    /// An answer without the fence is accepted.
    StaleReplicaBelieved,
    /// A known message is delivered again.
    LateDuplicatePassedOn,
    /// A node mistakes its own broadcast for another node's.
    OwnEchoPassedOn,
    /// A broadcast is delivered behind a newer one of the same node.
    LateBroadcastPassedOn,
    /// A follow is answered before other nodes' servers know the subscription.
    FollowNotConfirmed,
    /// A truncated stream is not detected.
    TruncationNotNoticed,
    /// A read with a hole counts as complete.
    HoleNotNoticed,
    /// A message whose data is not as long as its publisher said is taken for whole.
    DamagedMessageTaken,
    /// A stream that does not exist is taken for one without a leader.
    AbsentStreamIgnored,
    /// A position that this node has not reached is treated as one that no node has reached.
    PositionAheadRefused,
    /// A broken connection is kept.
    SilenceBorne,
    /// A shared read counts as complete regardless of its number of messages.
    SharedReadNotCounted,
    /// A survey waits for a node that does not answer.
    SilentNodeAwaited,
    /// A survey does not report the nodes without an answer.
    MissingAnswerNotNamed,
    /// A silent node counts as live.
    SilentNodeKept,
    /// Sessions of users on a lost node are counted.
    UsersOfLostNodeKept,
    /// A node does not ask the others for the keys of a channel that it has just attached.
    KeysNotAsked,
    /// A node answers with its window although a part of the request is missing.
    ShortWindowBelieved,
    /// A node takes a lease whose renewals the stream cannot store.
    LeaseTakenFromSilentStream,
    /// A node concludes that its lease was taken when the second copy of a renewal is refused.
    RefusedRenewalNotRead,
}

/// The bug planted in a core, if any.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PlantedInCore {
    #[cfg(feature = "planted-bugs")]
    bug: Option<CoreBug>,
}

impl PlantedInCore {
    #[cfg(feature = "planted-bugs")]
    pub(crate) const fn of(bug: CoreBug) -> Self {
        Self { bug: Some(bug) }
    }

    #[cfg(feature = "planted-bugs")]
    pub(crate) const fn is(self, bug: CoreBug) -> bool {
        matches!(self.bug, Some(planted) if planted as u8 == bug as u8)
    }

    #[cfg(not(feature = "planted-bugs"))]
    #[allow(clippy::unused_self, reason = "the same signature with the feature")]
    pub(crate) const fn is(self, _: CoreBug) -> bool {
        false
    }
}
