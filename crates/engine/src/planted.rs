//! Mistakes that a test of the simulator plants, to see that it finds them. None of this is there without the feature
//! `planted-bugs`, which only tests turn on.

use crate::{Shard, message::Subscribed};

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A recovery lacks the first publication that was missed, and says that it is complete.
    RecoveryLosesFirst,
    /// An owner is not told that a session went while it answered.
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
    /// A recovery is answered with what another one was that ended at the same publication.
    AnswerOfAnother,
}

impl Shard {
    /// Makes the shard wrong.
    pub fn plant(&mut self, bug: Bug) {
        self.planted = Some(bug);
    }

    /// Loses what [`Bug::RecoveryLosesFirst`] loses.
    pub(crate) fn lose_first(&self, subscribed: &mut Subscribed) {
        if self.planted == Some(Bug::RecoveryLosesFirst) && !subscribed.publications.is_empty() {
            subscribed.publications.remove(0);
            // What was encoded for all has it still.
            subscribed.encoded = None;
        }
    }
}
