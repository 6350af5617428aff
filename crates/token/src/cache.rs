//! The cache of verified tokens. It contains tokens whose signatures are expensive to verify, so that a storm of
//! reconnects verifies each of them once.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use sha2::{Digest as _, Sha256};

use super::{
    TokenFault, TokenKind,
    claims::{Validity, VerifiedClaims},
};

/// Estimated overhead of an entry, without the claims.
const ENTRY_BYTES: usize = 512;

/// A SHA-256 hash of a token and its purpose. Nobody can craft a token with the hash of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Fingerprint([u8; 32]);

impl Fingerprint {
    pub(super) fn of(kind: TokenKind, token: &str) -> Self {
        Self(Sha256::new().chain_update([kind as u8]).chain_update(token.as_bytes()).finalize().into())
    }
}

/// A cache of valid tokens, bounded in bytes. When new entries have filled half of it, all entries that were not used
/// in the meantime are evicted. A mutex protects it; a look-up happens once per connect or subscribe, never per
/// delivery.
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
    claims: Arc<VerifiedClaims>,
    validity: Validity,
    /// The time from which the token must be verified again, because its key may have been revoked.
    again_at_ms: u64,
    bytes: usize,
}

impl Cache {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { halves: Mutex::default(), half_bytes_max: bytes_max / 2 }
    }

    /// The claims of a verified token, or [`TokenFault::Time`] if it is expired. `None`: the token must be verified.
    pub(super) fn get(
        &self,
        fingerprint: &Fingerprint,
        now_unix_ms: u64,
    ) -> Option<Result<Arc<VerifiedClaims>, TokenFault>> {
        let mut halves = self.halves.lock().unwrap_or_else(PoisonError::into_inner);
        let young = halves.young.get(fingerprint).cloned();
        let entry = if let Some(entry) = young {
            entry
        } else {
            let entry = halves.old.remove(fingerprint)?;
            self.put(&mut halves, *fingerprint, entry.clone());
            entry
        };
        if entry.again_at_ms <= now_unix_ms {
            return None;
        }
        Some(entry.validity.check(now_unix_ms).map(|()| entry.claims))
    }

    /// Removes all entries.
    pub(super) fn clear(&self) {
        *self.halves.lock().unwrap_or_else(PoisonError::into_inner) = Halves::default();
    }

    /// Stores a token until `again_at_ms`.
    pub(super) fn remember(
        &self,
        fingerprint: Fingerprint,
        claims: Arc<VerifiedClaims>,
        validity: Validity,
        again_at_ms: u64,
        token_bytes: usize,
    ) {
        let entry = Entry { claims, validity, again_at_ms, bytes: token_bytes + ENTRY_BYTES };
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

    fn remember(cache: &Cache, token: &str, validity: Validity, again_at_ms: u64) -> Fingerprint {
        let fingerprint = Fingerprint::of(TokenKind::Connection, token);
        let claims =
            Arc::new(VerifiedClaims::Connection(ConnectionClaims { user: token.to_owned(), ..Default::default() }));
        cache.remember(fingerprint, claims, validity, again_at_ms, token.len());
        fingerprint
    }

    #[test]
    fn cached_tokens_are_valid_for_their_purpose_and_time() {
        let cache = Cache::new(1 << 20);
        let fingerprint = remember(&cache, "a", Validity { from_ms: Some(10), until_ms: Some(20) }, 100);
        assert!(matches!(cache.get(&fingerprint, 9), Some(Err(TokenFault::Time))));
        assert!(matches!(cache.get(&fingerprint, 10), Some(Ok(_))));
        assert!(matches!(cache.get(&fingerprint, 19), Some(Ok(_))));
        assert!(matches!(cache.get(&fingerprint, 20), Some(Err(TokenFault::Time))));
        assert!(cache.get(&fingerprint, 100).is_none(), "keys are taken back");
        assert!(cache.get(&Fingerprint::of(TokenKind::Subscription, "a"), 19).is_none());
        assert!(cache.get(&Fingerprint::of(TokenKind::Connection, "b"), 19).is_none());
    }

    #[test]
    fn the_cache_is_bounded_and_keeps_used_entries() {
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
    fn a_cache_of_size_0_stores_nothing() {
        let cache = Cache::new(0);
        let fingerprint = remember(&cache, "a", Validity::default(), u64::MAX);
        assert!(cache.get(&fingerprint, 0).is_none());
    }
}
