//! Checks what a subscription starts with if the newest publication of each key is kept: complete, and no key twice.

use dunlin_engine::options::NamespaceOptions;

use crate::{
    model::{ChannelFacts, Model},
    wire::PublicationBody,
};

use super::{RecoveryLimits, Subscription, lane_key};

/// Keys that the plan's publications have, the missing one included.
const KEYS_OF_PLAN: usize = 4;

/// More bytes than a publication of the plan takes in the cache.
const PUBLICATION_BYTES_MAX: usize = 2_000;

impl Subscription {
    /// Takes in the newest publications of keys that came with the answer to a subscribe command.
    ///
    /// # Errors
    /// If one is older than it may be, comes twice, or is missing.
    pub(super) fn newest_of_keys(
        &mut self,
        model: &mut Model,
        limits: RecoveryLimits,
        rules: &NamespaceOptions,
        seen: &[PublicationBody],
    ) -> Result<(), String> {
        for publication in seen {
            let number = model.recognise(&self.channel, publication, None)?;
            self.check_wanted(model, number)?;
            let facts = model.channel(&self.channel).ok_or("an unknown channel")?;
            let published = &model.published[number as usize];
            let key = lane_key(facts, published.key());
            let known = newest_at(facts, key.as_ref(), self.asked_count);
            if published.count < known {
                return Err(format!("{} {key:?}: {} comes, and {known} is newer", self.channel, published.count));
            }
            if self.keys_seen.insert(key.clone(), published.count).is_some() {
                return Err(format!("{} {key:?}: two publications come with the answer", self.channel));
            }
        }
        // What others recover may leave no room for them.
        let is_cut = limits.recovery_bytes_max == 0 && seen.is_empty();
        let bytes_max = limits.queue_bytes_max / 2;
        let is_all_kept = rules.cache_keys_max >= KEYS_OF_PLAN
            && bytes_max >= KEYS_OF_PLAN * PUBLICATION_BYTES_MAX
            && !limits.forgets;
        if is_all_kept && !self.has_newest_behind && !is_cut {
            self.check_keys(model, rules)?;
            model.count("newest of each key");
        }
        Ok(())
    }

    /// No key may be missing whose newest publication the client may have.
    fn check_keys(&self, model: &Model, rules: &NamespaceOptions) -> Result<(), String> {
        let facts = model.channel(&self.channel).ok_or("an unknown channel")?;
        for (key, counts) in &facts.by_key {
            let known = newest_at(facts, key.as_ref(), self.asked_count);
            let may_lack = |&count: &u64| {
                let published = &model.published[facts.of_api[count as usize - 1] as usize];
                let is_old = published.accepted_ms + rules.cache_keys_ttl_ms <= self.live_ms;
                !published.passes(self.filter.as_ref()) || is_old
            };
            let is_lacked = known > facts.keys_removed && !self.keys_seen.contains_key(key);
            // It, or one that came while the answer was on its way.
            if is_lacked && !counts.iter().filter(|&&count| count >= known).any(may_lack) {
                return Err(format!("{} {key:?}: the newest was {known}, and the answer lacks it", self.channel));
            }
        }
        Ok(())
    }
}

/// The newest publication of a key among the first `count` of the API; 0 if there is none.
fn newest_at(facts: &ChannelFacts, key: Option<&String>, count: u64) -> u64 {
    let counts = facts.by_key.get(&key.cloned()).map_or(&[][..], Vec::as_slice);
    counts.iter().rev().find(|&&of_key| of_key <= count).copied().unwrap_or(0)
}
