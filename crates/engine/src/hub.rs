//! The subscription index of a shard: which of its sessions subscribe to which channel. A delivery visits only the
//! subscribers of its channel.

use std::sync::Arc;

use hashbrown::HashMap;

use dunlin_protocol::TagsFilter;

use crate::{
    FrameClass,
    filters::{FilterPlace, Filters},
    names::NamespaceIndex,
    shrink::shrink_map,
};

/// Capacity of the table of channel numbers that is kept when it is empty.
const NUMBERS_KEPT: usize = 1_024;

/// A channel's number on a listening shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LocalChannelId(pub(crate) u32);

/// One session's entry among a channel's subscribers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HubEntry {
    /// The session's index.
    pub(crate) session: u32,
    /// The filter on its publications.
    pub(crate) filter: Option<FilterPlace>,
    /// Whether it receives joins and leaves.
    pub(crate) join_leave: bool,
    /// For delta classes: whether it was sent the stream's newest publication, so that the next one may be a patch.
    pub(crate) has_newest: bool,
}

const _: () = assert!(size_of::<HubEntry>() == 8, "a delivery walks these: eight to a cache line");

/// A channel with subscriptions of this shard's sessions, accepted or pending.
#[derive(Debug)]
pub(crate) struct LocalChannel {
    pub(crate) name: Arc<str>,
    pub(crate) namespace: NamespaceIndex,
    /// The number of subscriptions that use this entry, including pending ones.
    uses: u32,
    /// The subscribers by frame class; no list is empty.
    subscribers: Vec<(FrameClass, Vec<HubEntry>)>,
    /// Present while a subscription has a filter: most channels have none.
    filters: Option<Box<Filters>>,
}

/// The subscription index of a shard.
#[derive(Debug)]
pub(crate) struct Hub {
    by_name: HashMap<Arc<str>, LocalChannelId, foldhash::quality::FixedState>,
    channels: Vec<Option<LocalChannel>>,
    free: Vec<LocalChannelId>,
    seed: u64,
}

impl Hub {
    /// An empty index.
    pub(crate) fn new(node_seed: u64) -> Self {
        Self {
            by_name: HashMap::with_hasher(foldhash::quality::FixedState::with_seed(node_seed)),
            channels: Vec::new(),
            free: Vec::new(),
            seed: node_seed,
        }
    }

    /// The number of `name`, if a session of this shard uses the channel.
    pub(crate) fn find(&self, name: &str) -> Option<LocalChannelId> {
        self.by_name.get(name).copied()
    }

    /// The channel with this number, which is in use.
    pub(crate) fn channel(&self, id: LocalChannelId) -> &LocalChannel {
        self.channels[id.0 as usize].as_ref().expect("a channel lives as long as a subscription holds it")
    }

    /// Adds a use of `name` for a new subscription.
    pub(crate) fn hold(&mut self, name: &str, namespace: NamespaceIndex) -> LocalChannelId {
        let id = match self.find(name) {
            Some(id) => id,
            None => self.insert(name, namespace),
        };
        self.channel_mut(id).uses += 1;
        id
    }

    /// Removes a use of a channel; the last one removes the entry.
    pub(crate) fn release(&mut self, id: LocalChannelId) {
        let channel = self.channel_mut(id);
        channel.uses -= 1;
        if channel.uses == 0 {
            debug_assert!(channel.subscribers.is_empty(), "every subscriber holds its channel");
            let channel = self.channels[id.0 as usize].take().expect("checked above");
            self.by_name.remove(&channel.name);
            shrink_map(&mut self.by_name);
            self.free.push(id);
            if self.free.len() == self.channels.len() {
                // No number is in use, so the table can start anew; this releases the memory of a burst.
                self.channels.clear();
                self.free.clear();
                self.channels.shrink_to(NUMBERS_KEPT);
                self.free.shrink_to(NUMBERS_KEPT);
            }
        }
    }

    /// Adds a subscriber; returns its index.
    pub(crate) fn add(&mut self, id: LocalChannelId, class: FrameClass, entry: HubEntry) -> u32 {
        let lists = &mut self.channel_mut(id).subscribers;
        let place = lists.iter().position(|(of, _)| *of == class).unwrap_or_else(|| {
            lists.reserve_exact(1);
            lists.push((class, Vec::with_capacity(1)));
            lists.len() - 1
        });
        let (_, subscribers) = &mut lists[place];
        subscribers.push(entry);
        (subscribers.len() - 1) as u32
    }

    /// Removes the subscriber at `place`. Returns the subscriber that moved to `place`, if one did.
    pub(crate) fn remove(&mut self, id: LocalChannelId, class: FrameClass, place: u32) -> Option<HubEntry> {
        let lists = &mut self.channel_mut(id).subscribers;
        let list = lists.iter().position(|(of, _)| *of == class).expect("a subscriber's class has a list");
        let (_, subscribers) = &mut lists[list];
        subscribers.swap_remove(place as usize);
        if subscribers.is_empty() {
            lists.swap_remove(list);
            return None;
        }
        if subscribers.len() * 4 < subscribers.capacity() {
            subscribers.shrink_to(subscribers.len() * 2);
        }
        subscribers.get(place as usize).copied()
    }

    /// The number of channels.
    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    fn insert(&mut self, name: &str, namespace: NamespaceIndex) -> LocalChannelId {
        let name: Arc<str> = name.into();
        let channel =
            LocalChannel { name: Arc::clone(&name), namespace, uses: 0, subscribers: Vec::new(), filters: None };
        let channel = Some(channel);
        let id = if let Some(id) = self.free.pop() {
            self.channels[id.0 as usize] = channel;
            id
        } else {
            self.channels.push(channel);
            LocalChannelId((self.channels.len() - 1) as u32)
        };
        self.by_name.insert(name, id);
        id
    }

    /// Whether a subscription to `name` may use this filter: the channel has an equal one, or fewer distinct ones than
    /// the limit.
    pub(crate) fn takes_filter(&self, name: &str, filter: &TagsFilter, filters_max: usize) -> bool {
        let filters = self.find(name).and_then(|id| self.filters(id));
        filters.map_or(filters_max > 0, |filters| filters.takes(filter, filters_max))
    }

    /// Adds a use of a filter for a new subscription to the channel; `None` if every filter index is taken, see
    /// [`Hub::takes_filter`].
    pub(crate) fn hold_filter(&mut self, id: LocalChannelId, filter: &Arc<TagsFilter>) -> Option<FilterPlace> {
        let seed = self.seed;
        let filters = &mut self.channel_mut(id).filters;
        filters.get_or_insert_with(|| Box::new(Filters::new(seed))).hold(filter)
    }

    /// Removes a use of a subscription's filter.
    pub(crate) fn release_filter(&mut self, id: LocalChannelId, place: FilterPlace) {
        let channel = self.channel_mut(id);
        let filters = channel.filters.as_mut().expect("a subscription holds one of them");
        filters.release(place);
        if filters.is_empty() {
            channel.filters = None;
        }
    }

    /// The filters of a channel, if it has any.
    pub(crate) fn filters(&self, id: LocalChannelId) -> Option<&Filters> {
        self.channel(id).filters.as_deref()
    }

    pub(crate) fn channel_mut(&mut self, id: LocalChannelId) -> &mut LocalChannel {
        self.channels[id.0 as usize].as_mut().expect("a channel lives as long as a subscription holds it")
    }
}

impl LocalChannel {
    /// The classes with subscribers, and their subscribers.
    pub(crate) fn classes(&self) -> impl Iterator<Item = (FrameClass, &[HubEntry])> {
        self.subscribers.iter().map(|(class, subscribers)| (*class, &**subscribers))
    }

    /// The subscribers of one class, mutable, to record what they were sent.
    pub(crate) fn subscribers_mut(&mut self, class: FrameClass) -> &mut [HubEntry] {
        let list = self.subscribers.iter_mut().find(|(of, _)| *of == class);
        list.map_or(&mut [], |(_, subscribers)| subscribers)
    }

    /// The subscribers of one class.
    pub(crate) fn subscribers(&self, class: FrameClass) -> &[HubEntry] {
        self.classes().find(|(of, _)| *of == class).map_or(&[], |(_, subscribers)| subscribers)
    }
}
