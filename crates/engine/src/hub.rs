//! The subscription index of a shard: which of its sessions subscribe to which channel. A delivery visits only the
//! subscribers of its channel.

use std::sync::Arc;

use hashbrown::HashMap;

use dunlin_protocol::TagsFilter;

use crate::{
    FrameClass,
    filters::{FilterPlace, Filters},
    names::NamespaceIndex,
    pace::UpdatePace,
    paced_subscribers::PacedSubscribers,
    shrink::shrink_map,
    timers::{TimerOwner, Timers},
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

/// Which of a channel's lists a subscriber is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListKey {
    class: FrameClass,
    turns: Turns,
}

/// When the subscribers of a list are queued publications of the latest lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turns {
    /// At once.
    None,
    /// At their own paces. A publication must be the newest among those that pass their filter, so it is the same for all
    /// of the list.
    Paced { filter: Option<FilterPlace> },
}

impl ListKey {
    /// The list of a subscription with this filter.
    pub(crate) fn new(class: FrameClass, filter: Option<FilterPlace>, is_paced: bool) -> Self {
        Self { class, turns: if is_paced { Turns::Paced { filter } } else { Turns::None } }
    }
}

/// Subscribers of a channel that are queued the same frames at the same time, or share what they are queued in turns.
#[derive(Debug)]
pub(crate) struct SubscriberList {
    key: ListKey,
    pub(crate) entries: Vec<HubEntry>,
    /// Present if the list is paced.
    pub(crate) paced: Option<Box<PacedSubscribers>>,
}

/// A channel with subscriptions of this shard's sessions, accepted or pending.
#[derive(Debug)]
pub(crate) struct LocalChannel {
    pub(crate) name: Arc<str>,
    pub(crate) namespace: NamespaceIndex,
    /// The number of subscriptions that use this entry, including pending ones.
    uses: u32,
    /// No list is empty.
    subscribers: Vec<SubscriberList>,
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

    /// Adds a subscriber; returns its index in its list.
    pub(crate) fn add(&mut self, id: LocalChannelId, key: ListKey, entry: HubEntry, pace: Option<UpdatePace>) -> u32 {
        let lists = &mut self.channel_mut(id).subscribers;
        let index = lists.iter().position(|list| list.key == key).unwrap_or_else(|| {
            lists.reserve_exact(1);
            lists.push(SubscriberList { key, entries: Vec::with_capacity(1), paced: None });
            lists.len() - 1
        });
        let list = &mut lists[index];
        list.entries.push(entry);
        if let Some(pace) = pace {
            list.paced.get_or_insert_default().add(pace);
        }
        (list.entries.len() - 1) as u32
    }

    /// Removes the subscriber at `place`, and returns it. Returns as well the subscriber that moved to `place`, if one did.
    pub(crate) fn remove(
        &mut self,
        id: LocalChannelId,
        (key, place): (ListKey, u32),
        timers: &mut Timers,
    ) -> (HubEntry, Option<HubEntry>) {
        let lists = &mut self.channel_mut(id).subscribers;
        let index = lists.iter().position(|list| list.key == key).expect("a subscriber's class has a list");
        let SubscriberList { entries, paced, .. } = &mut lists[index];
        let removed = entries.swap_remove(place as usize);
        if entries.is_empty() {
            if let Some(paced) = lists.swap_remove(index).paced {
                timers.abandon(paced.scheduled);
            }
            return (removed, None);
        }
        if let Some(paced) = paced {
            paced.remove(place);
        }
        if entries.len() * 4 < entries.capacity() {
            entries.shrink_to(entries.len() * 2);
        }
        (removed, entries.get(place as usize).copied())
    }

    /// Schedules the next turn of the subscribers of each paced list of a channel.
    pub(crate) fn schedule_turns(&mut self, id: LocalChannelId, timers: &mut Timers, now_us: u64) {
        let LocalChannel { name, subscribers, .. } = self.channel_mut(id);
        for paced in subscribers.iter_mut().filter_map(|list| list.paced.as_deref_mut()) {
            if let Some(due_us) = paced.next_us() {
                let due_us = due_us.max(now_us);
                timers.schedule(&mut paced.scheduled, due_us, || TimerOwner::Channel(Arc::clone(name)));
            }
        }
    }

    /// Whether the next turn of a paced list of the channel is scheduled at `due_us`.
    pub(crate) fn turns_are_due_at(&self, name: &str, due_us: u64) -> bool {
        let lists = self.find(name).map(|id| &self.channel(id).subscribers);
        let mut paced = lists.into_iter().flatten().filter_map(|list| list.paced.as_ref());
        paced.any(|paced| paced.scheduled.is_at(due_us))
    }

    /// The channel and the number of its list whose next turn is scheduled at `due_us`; that entry is consumed.
    pub(crate) fn take_due_turns(&mut self, name: &str, due_us: u64) -> Option<(LocalChannelId, usize)> {
        let id = self.find(name)?;
        let takes = |list: &mut SubscriberList| list.paced.as_mut().is_some_and(|paced| paced.scheduled.take(due_us));
        Some((id, self.channel_mut(id).subscribers.iter_mut().position(takes)?))
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
    /// All subscribers.
    pub(crate) fn subscribers(&self) -> impl Iterator<Item = &HubEntry> {
        self.subscribers.iter().flat_map(|list| &list.entries)
    }

    /// The subscribers of one class.
    pub(crate) fn subscribers_of(&self, class: FrameClass) -> impl Iterator<Item = &HubEntry> {
        self.subscribers.iter().filter(move |list| list.key.class == class).flat_map(|list| &list.entries)
    }

    /// The lists of one class, mutable, to record what their subscribers were sent.
    pub(crate) fn lists_mut(&mut self, class: FrameClass) -> impl Iterator<Item = &mut SubscriberList> {
        self.subscribers.iter_mut().filter(move |list| list.key.class == class)
    }

    /// The list of a paced subscription, which must exist.
    pub(crate) fn paced_mut(&mut self, key: ListKey) -> &mut PacedSubscribers {
        let list = self.subscribers.iter_mut().find(|list| list.key == key);
        list.and_then(|list| list.paced.as_deref_mut()).expect("a paced subscriber's list is paced")
    }

    /// The paced list with this number, which must exist.
    pub(crate) fn paced_list_mut(&mut self, number: usize) -> (&[HubEntry], &mut PacedSubscribers) {
        let SubscriberList { entries, paced, .. } = &mut self.subscribers[number];
        (entries, paced.as_deref_mut().expect("its turn was due"))
    }
}

impl SubscriberList {
    /// The filter that publications for a paced list have to pass.
    pub(crate) fn filter_of_paced(&self) -> Option<FilterPlace> {
        match self.key.turns {
            Turns::Paced { filter } => filter,
            Turns::None => None,
        }
    }
}
