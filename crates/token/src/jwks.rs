//! Published sets of public keys (RFC 7517): the known keys, and when to fetch a set.

mod endpoint;
mod fetch;
mod private_addresses;

use std::collections::{HashMap, HashSet};

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    SecretUrl, TokenFault,
    jws::Algorithm,
    public_key::{Jwk, PublicKey},
};

pub use endpoint::Endpoint;
pub(super) use fetch::fetch;

/// Maximum number of key sets. There is more than one only if the configured URL contains placeholders.
const SETS_MAX: usize = 64;

/// Maximum number of keys in one set.
const KEYS_MAX: usize = 256;

/// Maximum number of `kid`s that are remembered as missing from a set until the next fetch.
const ABSENT_MAX: usize = 1_024;

/// Minimum time between a failed fetch and the next one.
const FAILED_PAUSE_MS: u64 = 1_000;

/// The source of a key set and its validity.
#[derive(Clone, Debug)]
pub struct JwksOptions {
    /// The URL of the set.
    pub endpoint: Endpoint,
    /// Timeout of one fetch.
    pub timeout_ms: u64,
    /// Maximum length of the response.
    pub response_bytes_max: usize,
    /// Minimum time between two fetches, regardless of how many unknown keys are requested.
    pub cache_min_ms: u64,
    /// Time after which a key is no longer used without another fetch.
    pub cache_max_ms: u64,
    /// The URL may use plain HTTP and a private network.
    pub is_unsafe_allowed: bool,
}

/// The result of looking up a key.
#[derive(Debug)]
pub(super) enum LookUp {
    /// The key.
    Key(PublicKey),
    /// Wait for the fetch in progress.
    Wait,
    /// Start a fetch and wait for it.
    Fetch,
    /// The key is unavailable.
    Fault(TokenFault),
}

/// The result of a fetch.
#[derive(Debug)]
pub(super) struct Fetched {
    pub(super) keys: Vec<(Box<str>, PublicKey)>,
    /// The `max-age` of the response.
    pub(super) max_age_ms: Option<u64>,
}

/// All key sets by URL. Times are milliseconds on the caller's clock.
#[derive(Debug, Default)]
pub(super) struct KeySets {
    sets: HashMap<SecretUrl, KeySet>,
}

#[derive(Debug, Default)]
struct KeySet {
    keys: Vec<(Box<str>, PublicKey)>,
    /// Until this time no fetch is needed.
    fresh_until_ms: u64,
    /// Until this time the keys are used if a fetch fails.
    usable_until_ms: u64,
    next_fetch_ms: u64,
    is_fetching: bool,
    has_failed: bool,
    absent: HashSet<Box<str>>,
}

impl KeySets {
    /// Looks up a key by its `kid`. After [`LookUp::Fetch`] the caller must fetch the set.
    pub(super) fn look_up(&mut self, url: &SecretUrl, key_id: &str, algorithm: Algorithm, now_ms: u64) -> LookUp {
        if !self.sets.contains_key(url) {
            if self.sets.len() >= SETS_MAX {
                return LookUp::Fault(TokenFault::Busy);
            }
            self.sets.insert(url.clone(), KeySet::default());
        }
        let Some(set) = self.sets.get_mut(url) else { return LookUp::Fault(TokenFault::Busy) };
        if now_ms < set.fresh_until_ms
            && let Some(found) = set.find(key_id, algorithm)
        {
            return found;
        }
        if set.is_fetching {
            return LookUp::Wait;
        }
        if now_ms >= set.next_fetch_ms {
            set.is_fetching = true;
            return LookUp::Fetch;
        }
        set.without_fetch(key_id, algorithm, now_ms)
    }

    /// Looks up a key after the fetch that the caller waited for. It does not request another fetch.
    pub(super) fn settle(&mut self, url: &SecretUrl, key_id: &str, algorithm: Algorithm, now_ms: u64) -> LookUp {
        let Some(set) = self.sets.get_mut(url) else { return LookUp::Fault(TokenFault::KeysUnavailable) };
        if !set.has_failed && set.absent.len() < ABSENT_MAX && !set.keys.iter().any(|(known, _)| **known == *key_id) {
            set.absent.insert(key_id.into());
        }
        set.without_fetch(key_id, algorithm, now_ms)
    }

    /// Stores the result of a fetch.
    pub(super) fn fetched(&mut self, url: &SecretUrl, outcome: Option<Fetched>, options: &JwksOptions, now_ms: u64) {
        let Some(set) = self.sets.get_mut(url) else { return };
        set.is_fetching = false;
        set.has_failed = outcome.is_none();
        let Some(fetched) = outcome else {
            set.next_fetch_ms = now_ms.saturating_add(options.cache_min_ms.min(FAILED_PAUSE_MS));
            return;
        };
        let (least_ms, most_ms) = (options.cache_min_ms, options.cache_max_ms.max(options.cache_min_ms));
        let fresh_ms = fetched.max_age_ms.unwrap_or(most_ms).clamp(least_ms, most_ms);
        set.keys = fetched.keys;
        set.absent.clear();
        set.next_fetch_ms = now_ms.saturating_add(least_ms);
        set.fresh_until_ms = now_ms.saturating_add(fresh_ms);
        set.usable_until_ms = now_ms.saturating_add(most_ms);
    }
}

impl KeySet {
    /// The key with this `kid`; a fault if its algorithm is a different one.
    fn find(&self, key_id: &str, algorithm: Algorithm) -> Option<LookUp> {
        let mut named = self.keys.iter().filter(|(known, _)| **known == *key_id).map(|(_, key)| key).peekable();
        named.peek()?;
        let found = named.find(|key| key.is_for(algorithm));
        Some(found.map_or(LookUp::Fault(TokenFault::Algorithm), |key| LookUp::Key(key.clone())))
    }

    fn without_fetch(&self, key_id: &str, algorithm: Algorithm, now_ms: u64) -> LookUp {
        if now_ms < self.usable_until_ms
            && let Some(found) = self.find(key_id, algorithm)
        {
            return found;
        }
        // A `kid` that was never requested may belong to a new key: the client should retry, so the fault is temporary.
        let is_known_absent = !self.has_failed && self.absent.contains(key_id);
        LookUp::Fault(if is_known_absent { TokenFault::UnknownKey } else { TokenFault::KeysUnavailable })
    }
}

#[derive(Deserialize)]
struct KeyList<'j> {
    #[serde(borrow)]
    keys: Vec<&'j RawValue>,
}

/// The usable signature keys of a set. Others are ignored (RFC 7517, section 5).
pub(super) fn parse(json: &[u8]) -> Option<Vec<(Box<str>, PublicKey)>> {
    let list: KeyList<'_> = serde_json::from_slice(json).ok()?;
    let keys = list.keys.iter().take(KEYS_MAX);
    Some(keys.filter_map(|raw| serde_json::from_str::<Jwk>(raw.get()).ok()?.usable()).collect())
}

#[cfg(test)]
mod tests;
