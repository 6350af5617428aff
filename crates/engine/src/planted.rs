//! Bugs that tests of the simulator plant, to check that the simulator finds them. Without the feature `planted-bugs`,
//! which only tests enable, [`Planted::is`] is `false` at compile time, and no planted bug is compiled.

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// The latest lane keeps the queued publication and drops the newer one.
    LatestKeepsOlder,
    /// A snapshot becomes the base when it is offered to the socket, whether or not it is written.
    BaseSetWhenOffered,
    /// `connect` is answered after the first owner's answer to a server-side subscription.
    ConnectAnsweredEarly,
    /// A subscriber whose filter dropped a publication is sent a patch against it.
    FilteredGetsPatch,
    /// A patch is based on a publication that is not the previous one in the stream.
    PatchOverUnkept,
    /// Commands do not wait for the replies to earlier ones, so that replies close a session as slow.
    RepliesAreNotPaced,
}

/// The bug planted in a shard, if any.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Planted {
    #[cfg(feature = "planted-bugs")]
    bug: Option<Bug>,
}

impl Planted {
    #[cfg(feature = "planted-bugs")]
    pub(crate) const fn of(bug: Bug) -> Self {
        Self { bug: Some(bug) }
    }

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
