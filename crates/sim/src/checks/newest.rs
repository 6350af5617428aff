//! Checks the newest publication of each key that the server sends with a subscribe reply: no key may be missing or
//! appear twice.

use dunlin_engine::options::NamespaceOptions;

use crate::{
    model::{ChannelFacts, Model},
    wire::PublicationBody,
};

use super::{RecoveryLimits, Subscription, lane_key};

/// Number of keys in the plan. Publications without a key count as one.
const KEYS_OF_PLAN: usize = 4;

/// An upper bound for the bytes of one publication in the cache.
const PUBLICATION_BYTES_MAX: usize = 2_000;

impl Subscription {
    /// Records the newest publication of each key from a subscribe reply.
    ///
    /// # Errors
    /// If a publication is outdated, a key appears twice, or a key is missing.
    pub(super) fn newest_of_keys(
        &mut self,
        model: &mut Model,
        limits: RecoveryLimits,
        rules: &NamespaceOptions,
        seen: &[PublicationBody],
    ) -> Result<(), String> {
        for publication in seen {
            let number = model.identify(&self.channel, publication, None)?;
            self.check_filter(model, number)?;
            let facts = model.channel(&self.channel).ok_or("an unknown channel")?;
            let published = &model.published[number as usize];
            let key = lane_key(facts, published.key());
            let known = newest_at(facts, key.as_ref(), self.request_count);
            if published.count < known {
                return Err(format!("{} {key:?}: received {}, but {known} is newer", self.channel, published.count));
            }
            if self.keys_seen.insert(key.clone(), published.count).is_some() {
                return Err(format!("{} {key:?}: two publications in the reply", self.channel));
            }
        }
        // If other recoveries use up the byte limit, the server sends none.
        let is_cut = limits.recovery_bytes_max == 0 && seen.is_empty();
        let bytes_max = limits.queue_bytes_max / 2;
        let is_all_kept = rules.cache_keys_max >= KEYS_OF_PLAN
            && bytes_max >= KEYS_OF_PLAN * PUBLICATION_BYTES_MAX
            && !limits.evicts_channels;
        if is_all_kept && !self.newest_follows_reply && !is_cut {
            self.check_keys(model, rules)?;
            model.count("newest of each key");
        }
        Ok(())
    }

    /// Checks that no key is missing whose newest publication passes the filter and has not expired.
    fn check_keys(&self, model: &Model, rules: &NamespaceOptions) -> Result<(), String> {
        let facts = model.channel(&self.channel).ok_or("an unknown channel")?;
        for (key, counts) in &facts.by_key {
            let known = newest_at(facts, key.as_ref(), self.request_count);
            let may_lack = |&count: &u64| {
                let published = &model.published[facts.of_api[count as usize - 1] as usize];
                let is_old = published.accepted_ms + rules.cache_keys_ttl_ms <= self.live_ms;
                !published.passes(self.filter.as_ref()) || is_old
            };
            let is_lacked = known > facts.keys_removed && !self.keys_seen.contains_key(key);
            // The newest one may be a publication that was accepted while the reply was in flight.
            if is_lacked && !counts.iter().filter(|&&count| count >= known).any(may_lack) {
                return Err(format!("{} {key:?}: the newest was {known}, but the reply lacks it", self.channel));
            }
        }
        Ok(())
    }
}

/// The newest publication with this key among the first `count` API publications, or 0 if there is none.
fn newest_at(facts: &ChannelFacts, key: Option<&String>, count: u64) -> u64 {
    let counts = facts.by_key.get(&key.cloned()).map_or(&[][..], Vec::as_slice);
    counts.iter().rev().find(|&&of_key| of_key <= count).copied().unwrap_or(0)
}
