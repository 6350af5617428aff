//! Checks the latest lane: a subscriber never receives an older publication after a newer one, the tag `skipped` counts
//! every replaced publication, and the subscriber ends with the newest one.

use crate::{
    model::{ChannelFacts, Model},
    wire::PublicationBody,
};

use super::Subscription;

impl Subscription {
    pub(super) fn next_latest(&mut self, model: &Model, number: u64, seen: &PublicationBody) -> Result<(), String> {
        let published = &model.published[number as usize];
        let facts = model.channel(&self.channel).ok_or("a publication in an unknown channel")?;
        if seen.offset > 0 {
            if self.positioned && self.offset.is_none_or(|last| seen.offset <= last) {
                return Err(format!("{}: offset {} after {:?}", self.channel, seen.offset, self.offset));
            }
            self.offset = Some(seen.offset);
        }
        let skipped = match seen.tags.get("skipped") {
            Some(skipped) => skipped.parse().map_err(|_| format!("skipped: {skipped}"))?,
            None => 0,
        };
        let key = lane_key(facts, published.key());
        let last = self.keys_seen.insert(key.clone(), published.count);
        let between = |low: u64| {
            let of_key = facts.by_key.get(&key).map_or(&[][..], Vec::as_slice);
            let between = of_key.iter().filter(|&&count| count > low && count < published.count);
            between.filter(|&&count| self.passes_filter(model, facts, count)).count() as u64
        };
        let (upper, lower) = match last {
            Some(last) if published.count <= last => {
                return Err(format!("{} {key:?}: {} comes after {last}", self.channel, published.count));
            }
            // What a pace leaves out is not tagged.
            Some(last) if model.has_paces => (between(last), 0),
            Some(last) => (between(last), between(last)),
            None if self.newest_follows_reply && published.count <= self.request_count => (0, 0),
            None if published.count <= self.request_count.max(self.recovered_count) => {
                return Err(format!(
                    "{} {key:?}: {} is delivered live, but was published before the subscription",
                    self.channel, published.count
                ));
            }
            None if model.has_paces => (between(self.request_count), 0),
            None => (between(self.request_count), between(self.live_count)),
        };
        if (lower..=upper).contains(&skipped) {
            Ok(())
        } else {
            let count = published.count;
            Err(format!("{} {key:?}: {skipped} skipped before {count}, not {lower} to {upper}", self.channel))
        }
    }

    /// Whether publication number `count` of the API passes the subscriber's filter.
    fn passes_filter(&self, model: &Model, facts: &ChannelFacts, count: u64) -> bool {
        let number = facts.of_api[count as usize - 1];
        model.published[number as usize].passes(self.filter.as_ref())
    }

    pub(super) fn check_newest(&self, model: &Model, facts: &ChannelFacts) -> Result<(), String> {
        for (key, counts) in &facts.by_key {
            let newest = counts.iter().rev().find(|&&count| self.passes_filter(model, facts, count));
            let newest = newest.copied().unwrap_or(0);
            let seen = self.keys_seen.get(key).copied();
            if newest > self.live_count && seen != Some(newest) {
                return Err(format!(
                    "{} {key:?}: the newest is {newest}, but the subscriber has {seen:?}",
                    self.channel
                ));
            }
        }
        Ok(())
    }
}

/// The key of a publication's slot in the latest lane: the value of the tag if the namespace has a conflation key, and
/// `None` otherwise.
pub fn lane_key(facts: &ChannelFacts, tag: Option<&String>) -> Option<String> {
    let is_keyed = facts.rules.as_ref().is_some_and(|rules| rules.conflation_key.is_some());
    tag.filter(|_| is_keyed).cloned()
}
