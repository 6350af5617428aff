//! Rate limits on opening rooms, per session and per address.
//!
//! Only the owner of a channel knows whether a join opens a room, and only the session's shard knows the session. The
//! session's shard therefore reserves an opening for each join, and releases it if the answer says that the join opened
//! no room.

use hashbrown::HashMap;

use crate::{
    RefillRate, SessionKey, SourceKey,
    options::RoomOpenings,
    room::{Opening, RoomRefusal},
};

/// The sessions and addresses of a shard that have opened rooms recently.
#[derive(Debug)]
pub(super) struct Openers {
    session: Option<RefillRate>,
    source: Option<RefillRate>,
    /// When each token bucket is full again. A bucket that is not in the map is full.
    full_at_ns: HashMap<Opener, u64, foldhash::quality::FixedState>,
    /// The number of buckets at which full ones are removed.
    swept_at: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Opener {
    Session(SessionKey),
    Source(SourceKey),
}

/// No buckets are removed below this number.
const OPENERS_MIN: usize = 256;

impl Openers {
    /// The limit per address is divided equally between `shards` shards. A session is on one shard, so its limit is
    /// not.
    pub(super) fn new(limits: RoomOpenings, shards: u16) -> Self {
        Self {
            session: RefillRate::new(limits.session_per_second),
            source: RefillRate::share(limits.source_per_second, shards),
            full_at_ns: HashMap::default(),
            swept_at: OPENERS_MIN,
        }
    }

    /// Applies other limits; tokens that were taken stay taken.
    pub(super) fn set_limits(&mut self, limits: RoomOpenings, shards: u16) {
        self.session = RefillRate::new(limits.session_per_second);
        self.source = RefillRate::share(limits.source_per_second, shards);
    }

    pub(super) fn reserve(&mut self, session: SessionKey, source: Option<SourceKey>, now_us: u64) -> Opening {
        if !self.take(self.session, Opener::Session(session), now_us) {
            return Opening::Refused(RoomRefusal::SessionRate);
        }
        if let Some(source) = source
            && !self.take(self.source, Opener::Source(source), now_us)
        {
            self.put_back(self.session, Opener::Session(session), now_us);
            return Opening::Refused(RoomRefusal::AddressRate);
        }
        Opening::Reserved
    }

    pub(super) fn release(&mut self, session: SessionKey, source: Option<SourceKey>, now_us: u64) {
        self.put_back(self.session, Opener::Session(session), now_us);
        if let Some(source) = source {
            self.put_back(self.source, Opener::Source(source), now_us);
        }
    }

    fn take(&mut self, rate: Option<RefillRate>, opener: Opener, now_us: u64) -> bool {
        let Some(rate) = rate else { return true };
        let Some(full_at_ns) = rate.take(self.full_at_ns.get(&opener).copied().unwrap_or(0), now_us) else {
            return false;
        };
        self.full_at_ns.insert(opener, full_at_ns);
        if self.full_at_ns.len() >= self.swept_at {
            // Buckets fill up within little more than a second, so the table stays proportional to the joins of that
            // time.
            self.full_at_ns.retain(|_, full_at_ns| *full_at_ns / 1_000 > now_us);
            self.swept_at = OPENERS_MIN.max(self.full_at_ns.len() * 2);
            self.full_at_ns.shrink_to(self.swept_at);
        }
        true
    }

    fn put_back(&mut self, rate: Option<RefillRate>, opener: Opener, now_us: u64) {
        let (Some(rate), Some(full_at_ns)) = (rate, self.full_at_ns.get_mut(&opener)) else { return };
        *full_at_ns = rate.put_back(*full_at_ns);
        if *full_at_ns / 1_000 <= now_us {
            self.full_at_ns.remove(&opener);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;

    #[test]
    fn buckets_that_are_full_again_are_dropped() {
        let mut openers =
            Openers::new(RoomOpenings { session_per_second: 1, source_per_second: 1, ..RoomOpenings::default() }, 1);
        for index in 1..=20_000_u32 {
            // A thousand sessions per second, each from its own address.
            let session = SessionKey { index, generation: 1 };
            let source = NonZeroU64::new(index.into()).map(SourceKey);
            assert_eq!(openers.reserve(session, source, u64::from(index) * 1_000), Opening::Reserved);
        }
        let kept = openers.full_at_ns.len();
        assert!((2_000..=4_000).contains(&kept), "{kept} buckets");
    }

    #[test]
    fn released_openings_leave_no_entry() {
        let mut openers = Openers::new(RoomOpenings::default(), 1);
        let (session, source) = (SessionKey { index: 1, generation: 1 }, NonZeroU64::new(7).map(SourceKey));
        for now_us in 0..1_000 {
            assert_eq!(openers.reserve(session, source, now_us), Opening::Reserved);
            openers.release(session, source, now_us);
        }
        assert!(openers.full_at_ns.is_empty());
    }
}
