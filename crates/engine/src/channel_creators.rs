//! Limits on the channels that one client creates. A channel that holds publications and that no other client has used
//! counts against the session that published first, its user and its address.

use hashbrown::HashMap;

use crate::options::ChannelOptions;

/// A session, its user and its address, each as a hash; 0 for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelCreator {
    /// The session.
    pub session: u64,
    /// The session's user; 0 for the anonymous user.
    pub user: u64,
    /// The session's address; 0 if it is unknown.
    pub source: u64,
}

impl ChannelCreator {
    /// The hash that identifies it: the user; for the anonymous user the address, or else the session.
    pub(crate) const fn identity(self) -> u64 {
        match (self.user, self.source) {
            (0, 0) => self.session,
            (0, source) => source,
            (user, _) => user,
        }
    }

    fn parts(self) -> [(CreatorKind, u64); 3] {
        [(CreatorKind::Session, self.session), (CreatorKind::User, self.user), (CreatorKind::Source, self.source)]
    }
}

/// The kind of limit that a count belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CreatorKind {
    Session,
    User,
    Source,
}

/// The users of a channel: none (0), one user or address (its hash), or several. Use by the application counts as
/// several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UsedBy(u64);

impl UsedBy {
    const NOBODY: Self = Self(0);
    const SEVERAL: Self = Self(u64::MAX);

    /// Adds one more use; `None` for the application.
    pub(crate) fn add(&mut self, creator: Option<ChannelCreator>) {
        let by = creator.map_or(Self::SEVERAL, |creator| Self(creator.identity()));
        *self = if *self == Self::NOBODY || *self == by { by } else { Self::SEVERAL };
    }

    /// Whether the channel may count against `creator`: no other client has used it.
    pub(crate) fn is_left_to(self, creator: ChannelCreator) -> bool {
        self == Self::NOBODY || self == Self(creator.identity())
    }

    /// The only user or address, as a hash; 0 for several or none.
    pub(crate) fn only(self) -> u64 {
        if self.is_shared() { 0 } else { self.0 }
    }

    /// Whether the channel counts against no creator.
    pub(crate) fn is_shared(self) -> bool {
        self == Self::SEVERAL
    }
}

/// The number of channels of each creator.
#[derive(Default)]
pub(crate) struct MakerCounts {
    counts: HashMap<(CreatorKind, u64), u32, foldhash::quality::FixedState>,
}

impl MakerCounts {
    /// The limit that one more channel would exceed, on one of `shares` shards.
    pub(crate) fn full(&self, creator: ChannelCreator, options: &ChannelOptions, shares: u16) -> Option<CreatorKind> {
        let is_full = |&(kind, hash): &(CreatorKind, u64)| {
            let channels_max = match kind {
                CreatorKind::Session => options.session_channels_max,
                CreatorKind::User => options.user_channels_max,
                CreatorKind::Source => options.source_channels_max,
            };
            let share = channels_max.div_ceil(usize::from(shares.max(1)));
            channels_max > 0
                && hash != 0
                && self.counts.get(&(kind, hash)).is_some_and(|count| *count as usize >= share)
        };
        creator.parts().into_iter().find(is_full).map(|(kind, _)| kind)
    }

    /// Counts one more channel against `creator`.
    pub(crate) fn add(&mut self, creator: ChannelCreator) {
        for part in creator.parts().into_iter().filter(|(_, hash)| *hash != 0) {
            *self.counts.entry(part).or_insert(0) += 1;
        }
    }

    /// Counts one channel less against `creator`.
    pub(crate) fn remove(&mut self, creator: ChannelCreator) {
        for part in creator.parts().into_iter().filter(|(_, hash)| *hash != 0) {
            let count = self.counts.get_mut(&part).expect("what is removed was added");
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&part);
            }
        }
    }

    /// The number of entries; 0 when no channel counts against a creator.
    pub(crate) fn len(&self) -> usize {
        self.counts.len()
    }
}
