//! Bugs that tests of the simulator plant, to check that the simulator finds them. Without the feature `planted-bugs`,
//! which only tests enable, [`Planted::is`] is `false` at compile time, and no planted bug is compiled.

#[cfg(feature = "planted-bugs")]
use crate::Shard;

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A recovery lacks the first publication that was missed, and says that it is complete.
    RecoveryLosesFirst,
    /// An owner is not notified of a session that ends while it answers.
    LateAnswerLeaks,
    /// The latest lane keeps the publication that waits and drops the newer one.
    LatestKeepsOlder,
    /// A slow session's last frame is cut off by the close frame.
    SlowCloseCutsFrame,
    /// A snapshot counts as what the client has when it is offered to the socket, written or not.
    BaseSetWhenOffered,
    /// An event for some players of a room reaches all of them.
    EventReachesAll,
    /// `connect` is answered with the first owner's answer to a server-side subscription.
    ConnectAnsweredEarly,
    /// A subscriber whose filter left a publication out is sent a patch of it.
    FilteredGetsPatch,
    /// A patch follows a publication that is not in the stream, of the one before that.
    PatchOverUnkept,
    /// A channel remembers no idempotency key but the newest.
    OneKeyRemembered,
    /// Who subscribes is not sent the newest publication of the oldest key.
    KeyMissing,
    /// A recovery is answered with what another one was that ended at the same publication.
    AnswerOfAnother,
    /// A session that waits for the owners' answers is listed again when they have come.
    CorkedIsListedTwice,
    /// Commands do not wait for the replies to earlier ones, and a reply closes a session as slow.
    RepliesAreNotPaced,
    /// A publication is acknowledged when it is proposed to the log.
    AcknowledgedBeforeCommit,
    /// A publication is delivered when it is proposed to the log.
    DeliveredBeforeCommit,
    /// A second publication with an idempotency key is published while the first one is on its way to the log.
    PendingKeyPasses,
    /// A subscription that waits for a page does not get what is committed until the page has come.
    ParkedMissesMeanwhile,
    /// What another node has broadcast is broadcast again.
    BroadcastRepeated,
    /// A channel that is opened does not know the idempotency keys that its log has kept.
    KeysNotRestored,
}

/// The bug that a shard has, if a test has planted one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Planted {
    #[cfg(feature = "planted-bugs")]
    bug: Option<Bug>,
}

impl Planted {
    #[cfg(feature = "planted-bugs")]
    pub(crate) const fn is(self, bug: Bug) -> bool {
        matches!(self.bug, Some(planted) if planted as u8 == bug as u8)
    }

    #[cfg(not(feature = "planted-bugs"))]
    #[allow(clippy::unused_self, reason = "the same signature with the feature")]
    pub(crate) const fn is(self, _: Bug) -> bool {
        false
    }
}

#[cfg(feature = "planted-bugs")]
impl Shard {
    /// Gives the shard a bug.
    pub fn plant(&mut self, bug: Bug) {
        self.set_planted(Planted { bug: Some(bug) });
    }
}
