//! Sets of public keys that others publish (RFC 7517): which of them are known, and when they are to be fetched.

mod endpoint;
mod fetch;

use std::collections::{HashMap, HashSet};

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    Fault,
    public_key::{Jwk, PublicKey},
    signed::Algorithm,
};

pub use endpoint::Endpoint;
pub(super) use fetch::fetch;

/// Addresses of key sets. There are more only where an address is made of what tokens say.
const SETS_MAX: usize = 64;

/// Keys of one set.
const KEYS_MAX: usize = 256;

/// Names that a set was found not to have, until it is fetched again.
const ABSENT_MAX: usize = 1_024;

/// Time after a failed fetch in which there is no other.
const FAILED_PAUSE_MS: u64 = 1_000;

/// Where keys are fetched, and how long they count.
#[derive(Clone, Debug)]
pub struct JwksOptions {
    /// Where.
    pub endpoint: Endpoint,
    /// Time for one fetch.
    pub timeout_ms: u64,
    /// Bytes of the answer.
    pub response_bytes_max: usize,
    /// Time between two fetches, however many unknown keys are asked for.
    pub cache_min_ms: u64,
    /// Time after which a key is no longer believed without another fetch.
    pub cache_max_ms: u64,
    /// The address may be plain HTTP, and lie in a private network.
    pub is_unsafe_allowed: bool,
}

/// What there is to do about a key.
#[derive(Debug)]
pub(super) enum LookUp {
    /// Here it is.
    Key(PublicKey),
    /// To wait for the fetch that is under way.
    Wait,
    /// To fetch, and to wait for that.
    Fetch,
    /// It is not to be had.
    Fault(Fault),
}

/// What a fetch has brought.
#[derive(Debug)]
pub(super) struct Fetched {
    pub(super) keys: Vec<(Box<str>, PublicKey)>,
    /// How long the answer says that it holds.
    pub(super) max_age_ms: Option<u64>,
}

/// All sets, by address. Times are milliseconds on a clock of the caller's.
#[derive(Debug, Default)]
pub(super) struct KeySets {
    sets: HashMap<Box<str>, KeySet>,
}

#[derive(Debug, Default)]
struct KeySet {
    keys: Vec<(Box<str>, PublicKey)>,
    /// Until then nobody needs to ask again.
    fresh_until_ms: u64,
    /// Until then the keys do if they cannot be had anew.
    usable_until_ms: u64,
    next_fetch_ms: u64,
    is_fetching: bool,
    has_failed: bool,
    absent: HashSet<Box<str>>,
}

impl KeySets {
    /// What there is to do for a key of this name. After [`LookUp::Fetch`] the caller has to fetch.
    pub(super) fn look_up(&mut self, url: &str, key_id: &str, algorithm: Algorithm, now_ms: u64) -> LookUp {
        if !self.sets.contains_key(url) {
            if self.sets.len() >= SETS_MAX {
                return LookUp::Fault(Fault::Busy);
            }
            self.sets.insert(url.into(), KeySet::default());
        }
        let Some(set) = self.sets.get_mut(url) else { return LookUp::Fault(Fault::Busy) };
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

    /// The same after the fetch that was waited for: there is no other.
    pub(super) fn settle(&mut self, url: &str, key_id: &str, algorithm: Algorithm, now_ms: u64) -> LookUp {
        let Some(set) = self.sets.get_mut(url) else { return LookUp::Fault(Fault::KeysUnavailable) };
        if !set.has_failed && set.absent.len() < ABSENT_MAX && !set.keys.iter().any(|(known, _)| **known == *key_id) {
            set.absent.insert(key_id.into());
        }
        set.without_fetch(key_id, algorithm, now_ms)
    }

    /// A fetch has ended.
    pub(super) fn fetched(&mut self, url: &str, outcome: Option<Fetched>, options: &JwksOptions, now_ms: u64) {
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
    /// The key of this name; a fault where it is there, and not for this algorithm.
    fn find(&self, key_id: &str, algorithm: Algorithm) -> Option<LookUp> {
        let mut named = self.keys.iter().filter(|(known, _)| **known == *key_id).map(|(_, key)| key).peekable();
        named.peek()?;
        let found = named.find(|key| key.is_for(algorithm));
        Some(found.map_or(LookUp::Fault(Fault::Algorithm), |key| LookUp::Key(key.clone())))
    }

    fn without_fetch(&self, key_id: &str, algorithm: Algorithm, now_ms: u64) -> LookUp {
        if now_ms < self.usable_until_ms
            && let Some(found) = self.find(key_id, algorithm)
        {
            return found;
        }
        // Whose name nobody has looked for yet may be of a new key: that is to be asked for again, not refused for good.
        let is_known_absent = !self.has_failed && self.absent.contains(key_id);
        LookUp::Fault(if is_known_absent { Fault::UnknownKey } else { Fault::KeysUnavailable })
    }
}

#[derive(Deserialize)]
struct KeyList<'j> {
    #[serde(borrow)]
    keys: Vec<&'j RawValue>,
}

/// The keys of a set that can be used for signatures. Others are passed over (RFC 7517, section 5).
pub(super) fn parse(json: &[u8]) -> Option<Vec<(Box<str>, PublicKey)>> {
    let list: KeyList<'_> = serde_json::from_slice(json).ok()?;
    let keys = list.keys.iter().take(KEYS_MAX);
    Some(keys.filter_map(|raw| serde_json::from_str::<Jwk>(raw.get()).ok()?.usable()).collect())
}

#[cfg(test)]
mod tests;
