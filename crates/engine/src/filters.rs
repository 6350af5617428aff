//! The tags filters of one channel's subscribers on a shard. Equal filters are stored once and evaluated once per
//! publication.

use std::{num::NonZeroU16, sync::Arc};

use dunlin_protocol::{Tags, TagsFilter};
use hashbrown::HashMap;

/// The index of a subscription's filter in its channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FilterPlace(NonZeroU16);

/// The filters of a channel. A filter keeps its index while a subscription uses it.
#[derive(Debug)]
pub(crate) struct Filters {
    filters: Vec<Option<Used>>,
    places: HashMap<Arc<TagsFilter>, FilterPlace, foldhash::quality::FixedState>,
    free: Vec<FilterPlace>,
}

#[derive(Debug)]
struct Used {
    filter: Arc<TagsFilter>,
    /// The number of subscriptions that use it.
    uses: u32,
}

impl FilterPlace {
    /// The index of this filter in the verdicts of [`Filters::judge`].
    pub(crate) fn index(self) -> usize {
        usize::from(self.0.get()) - 1
    }
}

impl Filters {
    /// No filters. Filters come from clients, so the seed must be a secret.
    pub(crate) fn new(seed: u64) -> Self {
        let places = HashMap::with_hasher(foldhash::quality::FixedState::with_seed(seed));
        Self { filters: Vec::new(), places, free: Vec::new() }
    }

    /// Whether one more subscription may use this filter, if `filters_max` distinct ones are allowed.
    pub(crate) fn takes(&self, filter: &TagsFilter, filters_max: usize) -> bool {
        self.places.len() < filters_max || self.places.contains_key(filter)
    }

    /// Adds one use of a filter, for a new subscription. `None` if every index is taken.
    pub(crate) fn hold(&mut self, filter: &Arc<TagsFilter>) -> Option<FilterPlace> {
        if let Some(&place) = self.places.get(filter) {
            self.used_mut(place).uses += 1;
            return Some(place);
        }
        let place = if let Some(place) = self.free.pop() {
            place
        } else {
            let number = NonZeroU16::new(u16::try_from(self.filters.len() + 1).ok()?)?;
            self.filters.push(None);
            FilterPlace(number)
        };
        self.filters[place.index()] = Some(Used { filter: Arc::clone(filter), uses: 1 });
        self.places.insert(Arc::clone(filter), place);
        Some(place)
    }

    /// Removes one use of a filter.
    pub(crate) fn release(&mut self, place: FilterPlace) {
        let used = self.used_mut(place);
        used.uses -= 1;
        if used.uses == 0 {
            let used = self.filters[place.index()].take().expect("used until now");
            self.places.remove(&used.filter);
            self.free.push(place);
        }
    }

    /// Whether no subscription uses a filter.
    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Writes to `verdicts`, by [`FilterPlace::index`], whether a publication with these tags passes each filter.
    pub(crate) fn judge(&self, tags: &Tags, verdicts: &mut Vec<bool>) {
        let passes = |used: &Option<Used>| used.as_ref().is_some_and(|used| used.filter.passes(tags));
        verdicts.clear();
        verdicts.extend(self.filters.iter().map(passes));
    }

    fn used_mut(&mut self, place: FilterPlace) -> &mut Used {
        self.filters[place.index()].as_mut().expect("a subscription holds it")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn equals(value: &str) -> Arc<TagsFilter> {
        let test = dunlin_protocol::TagTest::Equals(value.into());
        Arc::new(TagsFilter::Tag { key: "k".into(), test })
    }

    #[test]
    fn equal_filters_share_one_entry() {
        let mut filters = Filters::new(1);
        let mut verdicts = Vec::new();
        let a = filters.hold(&equals("a")).expect("room");
        let b = filters.hold(&equals("b")).expect("room");
        assert_eq!(filters.hold(&equals("a")), Some(a));
        assert_eq!((filters.takes(&equals("a"), 2), filters.takes(&equals("c"), 2)), (true, false));
        let tags = vec![("k".into(), "a".into())];
        filters.judge(&tags, &mut verdicts);
        assert_eq!((verdicts.len(), verdicts[a.index()], verdicts[b.index()]), (2, true, false));
        filters.release(a);
        assert!(!filters.takes(&equals("c"), 2), "one subscription still uses it");
        filters.release(a);
        assert!(filters.takes(&equals("c"), 2));
        assert_eq!(filters.hold(&equals("c")), Some(a), "its index is free");
        filters.release(a);
        filters.release(b);
        assert!(filters.is_empty());
    }
}
