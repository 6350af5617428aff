//! What was found out about tokens whose signatures are dear, so that a storm of reconnects asks for each of them once.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use sha2::{Digest as _, Sha256};

use super::{
    Fault,
    claims::{Purpose, Said, Validity},
};

/// Bytes that an entry takes beside what the token says.
const ENTRY_BYTES: usize = 512;

/// A token and what it is for, as a hash that nobody can aim at another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Fingerprint([u8; 32]);

impl Fingerprint {
    pub(super) fn of(purpose: Purpose, token: &str) -> Self {
        Self(Sha256::new().chain_update([purpose as u8]).chain_update(token.as_bytes()).finalize().into())
    }
}

/// Tokens that were found good. Bounded in bytes: what was not asked for in the time in which half of them came anew is
/// forgotten. A lock, taken for a look-up at a connect or a subscribe, never for a delivery.
#[derive(Debug)]
pub(super) struct Cache {
    halves: Mutex<Halves>,
    half_bytes_max: usize,
}

#[derive(Debug, Default)]
struct Halves {
    young: HashMap<Fingerprint, Entry>,
    old: HashMap<Fingerprint, Entry>,
    young_bytes: usize,
}

#[derive(Clone, Debug)]
struct Entry {
    said: Arc<Said>,
    validity: Validity,
    /// The second from which it is to be verified again: keys are taken back.
    again_at_s: u64,
    bytes: usize,
}

impl Cache {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { halves: Mutex::default(), half_bytes_max: bytes_max / 2 }
    }

    /// What a token says that was verified before; the fault is its time. `None`: it has to be verified.
    pub(super) fn get(&self, fingerprint: &Fingerprint, now_unix_s: u64) -> Option<Result<Arc<Said>, Fault>> {
        let mut halves = self.halves.lock().unwrap_or_else(PoisonError::into_inner);
        let young = halves.young.get(fingerprint).cloned();
        let entry = if let Some(entry) = young {
            entry
        } else {
            let entry = halves.old.remove(fingerprint)?;
            self.put(&mut halves, *fingerprint, entry.clone());
            entry
        };
        if entry.again_at_s <= now_unix_s {
            return None;
        }
        Some(entry.validity.check(now_unix_s).map(|()| entry.said))
    }

    /// Remembers a token until `again_at_s`.
    pub(super) fn remember(
        &self,
        fingerprint: Fingerprint,
        said: Arc<Said>,
        validity: Validity,
        again_at_s: u64,
        token_bytes: usize,
    ) {
        let entry = Entry { said, validity, again_at_s, bytes: token_bytes + ENTRY_BYTES };
        let mut halves = self.halves.lock().unwrap_or_else(PoisonError::into_inner);
        self.put(&mut halves, fingerprint, entry);
    }

    fn put(&self, halves: &mut Halves, fingerprint: Fingerprint, entry: Entry) {
        if entry.bytes > self.half_bytes_max {
            return;
        }
        if halves.young_bytes + entry.bytes > self.half_bytes_max {
            halves.old = std::mem::take(&mut halves.young);
            halves.young_bytes = 0;
        }
        halves.young_bytes += entry.bytes;
        if let Some(before) = halves.young.insert(fingerprint, entry) {
            halves.young_bytes -= before.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use dunlin_engine::event::ConnectionClaims;

    use super::*;

    fn remember(cache: &Cache, token: &str, validity: Validity, again_at_s: u64) -> Fingerprint {
        let fingerprint = Fingerprint::of(Purpose::Connection, token);
        let said = Arc::new(Said::Connection(ConnectionClaims { user: token.to_owned(), ..Default::default() }));
        cache.remember(fingerprint, said, validity, again_at_s, token.len());
        fingerprint
    }

    #[test]
    fn a_token_is_known_for_one_purpose_and_for_its_time() {
        let cache = Cache::new(1 << 20);
        let fingerprint = remember(&cache, "a", Validity { from_s: None, until_s: Some(20) }, 100);
        assert!(matches!(cache.get(&fingerprint, 19), Some(Ok(_))));
        assert!(matches!(cache.get(&fingerprint, 20), Some(Err(Fault::Time))));
        assert!(cache.get(&fingerprint, 100).is_none(), "keys are taken back");
        assert!(cache.get(&Fingerprint::of(Purpose::Subscription, "a"), 19).is_none());
        assert!(cache.get(&Fingerprint::of(Purpose::Connection, "b"), 19).is_none());
    }

    #[test]
    fn it_holds_no_more_than_it_may_and_keeps_what_is_asked_for() {
        let cache = Cache::new(20 * (ENTRY_BYTES + 4));
        let kept = remember(&cache, "kept", Validity::default(), u64::MAX);
        let left = remember(&cache, "left", Validity::default(), u64::MAX);
        for index in 0..1_000 {
            remember(&cache, &format!("{index:04}"), Validity::default(), u64::MAX);
            assert!(cache.get(&kept, 0).is_some(), "after {index}");
            let halves = cache.halves.lock().unwrap();
            assert!(halves.young.len() + halves.old.len() <= 20);
        }
        assert!(cache.get(&left, 0).is_none());
    }

    #[test]
    fn a_cache_of_nothing_remembers_nothing() {
        let cache = Cache::new(0);
        let fingerprint = remember(&cache, "a", Validity::default(), u64::MAX);
        assert!(cache.get(&fingerprint, 0).is_none());
    }
}
