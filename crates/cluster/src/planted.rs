//! Bugs that tests of the simulator plant, to check that the simulator finds them. Without the feature `planted-bugs`,
//! which only tests enable, [`PlantedInCore::is`] is `false` at compile time.

#[cfg(feature = "planted-bugs")]
use crate::core::Core;

/// A bug of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoreBug {
    /// The newest messages are read without a fence.
    AttachWithoutFence,
    /// A message is passed on though the one before it is missing.
    GapNotNoticed,
    /// An audit does not look at channels that are attached.
    TailNotAudited,
    /// A page counts as complete with one message more than proves it.
    CountRuleOffByOne,
    /// An answer without the fence is believed.
    StaleReplicaBelieved,
    /// A message that is known is passed on again.
    LateDuplicatePassedOn,
    /// A node takes its own broadcast for another node's.
    OwnEchoPassedOn,
    /// A follow is answered before other nodes' servers know of it.
    FollowNotConfirmed,
    /// A stream that has lost its end is taken for the same.
    TruncationNotNoticed,
    /// A position that this node has not reached is taken for one that nobody has.
    PositionAheadRefused,
    /// A connection that leads nowhere is kept.
    SilenceBorne,
    /// A shared read counts as complete however many messages it has.
    SharedReadNotCounted,
    /// A survey waits for a node that does not answer.
    SilentNodeAwaited,
    /// A survey does not name the nodes without an answer.
    MissingAnswerNotNamed,
    /// A node that is silent counts as live.
    SilentNodeKept,
    /// Sessions of users on a node that is gone are counted.
    UsersOfLostNodeKept,
    /// A node answers with its window though it lacks a part of what is asked for.
    ShortWindowBelieved,
    /// A node takes a lease whose renewals the stream cannot store.
    LeaseTakenFromSilentStream,
    /// A node believes that its lease was taken when the second copy of a renewal is refused.
    RefusedRenewalNotRead,
}

/// The bug that a core has, if a test has planted one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PlantedInCore {
    #[cfg(feature = "planted-bugs")]
    bug: Option<CoreBug>,
}

impl PlantedInCore {
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

#[cfg(feature = "planted-bugs")]
impl Core {
    /// Gives the core a bug.
    pub fn plant(&mut self, bug: CoreBug) {
        self.set_planted(PlantedInCore { bug: Some(bug) });
    }
}
