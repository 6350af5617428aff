//! The channels that a shard owns: found by name once, where the name arrives, and by key after that. Also who has
//! created them, and which of them may be evicted.

use std::{
    collections::BTreeMap,
    hash::BuildHasher,
    ops::{Index, IndexMut},
    sync::Arc,
};

use hashbrown::{HashTable, hash_table::Entry};

use crate::{
    Now,
    channel::{ChannelKey, Idle, OwnedChannel},
    channel_creators::{ChannelCreator, CreatorKind, MakerCounts},
    names::NamespaceIndex,
    options::ChannelOptions,
    shard::ShardIdentity,
    shrink::shrink_table,
    slab::Slab,
};

/// Maximum number of idle channels to check for one that has not been used since it became idle.
const SECOND_CHANCES: usize = 16;

/// All channels of a shard.
pub(super) struct ChannelTable {
    /// By the hash of the name. The names are in the channels only: a name that is found leads to its channel anyway.
    by_name: HashTable<ChannelKey>,
    hasher: foldhash::quality::FixedState,
    channels: Slab<Box<OwnedChannel>>,
    /// Channels without subscribers, by the time since when; the first are evicted first. The name makes the order of
    /// two of the same time independent of the slots, which differ from run to run of a node.
    idle: BTreeMap<(u64, Arc<str>), ChannelKey>,
    creators: MakerCounts,
    /// The number of channels that were given a number.
    numbered: u64,
}

impl ChannelTable {
    pub(super) fn new(node_seed: u64) -> Self {
        Self {
            by_name: HashTable::new(),
            hasher: foldhash::quality::FixedState::with_seed(node_seed),
            channels: Slab::default(),
            idle: BTreeMap::new(),
            creators: MakerCounts::default(),
            numbered: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.channels.len()
    }

    /// Looks up a name. A key finds nothing after its channel was removed, so it may be kept over steps that remove
    /// channels; what outlives the event keeps the name.
    pub(super) fn find(&self, name: &str) -> Option<ChannelKey> {
        let is_meant = |key: &ChannelKey| *self.channels[key.0].name == *name;
        self.by_name.find(self.hasher.hash_one(name), is_meant).copied()
    }

    pub(super) fn get(&self, key: ChannelKey) -> Option<&OwnedChannel> {
        self.channels.get(key.0).map(|channel| &**channel)
    }

    pub(super) fn get_mut(&mut self, key: ChannelKey) -> Option<&mut OwnedChannel> {
        self.channels.get_mut(key.0).map(|channel| &mut **channel)
    }

    /// As [`Self::find`] and [`Self::get`], for what reads a channel once.
    pub(super) fn named(&self, name: &str) -> Option<&OwnedChannel> {
        self.get(self.find(name)?)
    }

    /// All channels, in an order that depends on their names and the seed only.
    pub(super) fn iter(&self) -> impl Iterator<Item = &OwnedChannel> {
        self.by_name.iter().map(|key| &self[*key])
    }

    /// Adds a channel, which does not exist yet.
    pub(super) fn insert(&mut self, name: &Arc<str>, namespace: NamespaceIndex) -> ChannelKey {
        let make = |key| Box::new(OwnedChannel::new(ChannelKey(key), Arc::clone(name), namespace));
        let key = ChannelKey(self.channels.insert_with(make));
        let Self { by_name, hasher, channels, .. } = self;
        let name_of = |key: &ChannelKey| &*channels[key.0].name;
        let hash_of = |key: &ChannelKey| hasher.hash_one(name_of(key));
        match by_name.entry(hasher.hash_one(&**name), |known| *name_of(known) == **name, hash_of) {
            Entry::Vacant(vacant) => vacant.insert(key),
            Entry::Occupied(_) => unreachable!("a channel is created once"),
        };
        key
    }

    /// Removes a channel. It no longer counts against its creator.
    pub(super) fn remove(&mut self, key: ChannelKey) -> Option<Box<OwnedChannel>> {
        let hash = self.hasher.hash_one(&*self.get(key)?.name);
        match self.by_name.find_entry(hash, |known| *known == key) {
            Ok(entry) => entry.remove(),
            Err(_) => unreachable!("a channel in the slab is found by its name"),
        };
        let mut channel = self.channels.remove(key.0)?;
        shrink_table(&mut self.by_name, |key| self.hasher.hash_one(&*self.channels[key.0].name));
        if let Some(idle) = channel.idle.take() {
            self.idle.remove(&(idle.since_us, Arc::clone(&channel.name)));
        }
        if let Some(creator) = channel.creator.take() {
            self.creators.remove(*creator);
        }
        Some(channel)
    }

    /// Records whether a channel may be evicted.
    pub(super) fn set_idle(&mut self, key: ChannelKey, is_idle: bool, now_us: u64) {
        let channel = &mut self.channels[key.0];
        match &mut channel.idle {
            Some(idle) if !is_idle => {
                self.idle.remove(&(idle.since_us, Arc::clone(&channel.name)));
                channel.idle = None;
            }
            None if is_idle => {
                channel.idle = Some(Box::new(Idle { since_us: now_us, used_us: now_us }));
                self.idle.insert((now_us, Arc::clone(&channel.name)), key);
            }
            _ => {}
        }
    }

    /// The channel to evict: without subscribers, and approximately the least recently used one.
    pub(super) fn next_to_evict(&mut self) -> Option<ChannelKey> {
        for looked_at in 0..=SECOND_CHANCES {
            let ((since_us, _), key) = self.idle.first_key_value()?;
            let (since_us, key) = (*since_us, *key);
            let idle = self.channels[key.0].idle.as_mut().expect("a channel in the list of idle ones is idle");
            if idle.used_us <= since_us || looked_at == SECOND_CHANCES {
                return Some(key);
            }
            idle.since_us = idle.used_us;
            let used_us = idle.used_us;
            if let Some(((_, name), key)) = self.idle.pop_first() {
                self.idle.insert((used_us, name), key);
            }
        }
        None
    }

    /// The limit that stops a session from publishing the first publication of a channel.
    pub(super) fn creator_limit(
        &self,
        channel: Option<ChannelKey>,
        creator: ChannelCreator,
        options: &ChannelOptions,
        shards: u16,
    ) -> Option<CreatorKind> {
        let others_use_it = |channel: &OwnedChannel| !channel.used_by.is_left_to(creator);
        let channel = channel.and_then(|key| self.get(key));
        if channel.is_some_and(|channel| channel.creator.is_some() || others_use_it(channel)) {
            return None;
        }
        self.creators.full(creator, options, shards)
    }

    /// Records a use of a channel. A session that has published in the channel becomes its creator, as long as no other
    /// session uses it.
    pub(super) fn record_use(&mut self, key: ChannelKey, now: Now, creator: Option<ChannelCreator>, publishes: bool) {
        let Some(channel) = self.channels.get_mut(key.0) else { return };
        if let Some(idle) = &mut channel.idle {
            idle.used_us = now.mono_us;
        }
        channel.used_by.add(creator);
        let has_stream = channel.stream.as_ref().is_some_and(|stream| !stream.is_new());
        let has_publications = has_stream || channel.key_cache.is_some();
        if publishes && let Some(log) = channel.log.as_deref_mut() {
            log.is_creator_reserved = false;
        }
        // A creator that was only reserved may be another than the first user.
        let used_by = channel.used_by;
        if let Some(creator) = channel.creator.take_if(|creator| !used_by.is_left_to(**creator)) {
            self.creators.remove(*creator);
        }
        let counts = publishes && has_publications && !used_by.is_shared() && channel.creator.is_none();
        if let Some(creator) = creator.filter(|_| counts) {
            channel.creator = Some(Box::new(creator));
            self.creators.add(creator);
        }
    }

    /// Counts a channel against the creator of a proposal in flight, if it will count when that is committed.
    pub(super) fn reserve_creator(&mut self, key: ChannelKey, creator: Option<ChannelCreator>) {
        let (Some(channel), Some(creator)) = (self.channels.get_mut(key.0), creator) else { return };
        if channel.creator.is_some() || !channel.used_by.is_left_to(creator) {
            return;
        }
        if let Some(log) = channel.log.as_deref_mut() {
            log.is_creator_reserved = true;
            channel.creator = Some(Box::new(creator));
            self.creators.add(creator);
        }
    }

    /// Ends a reservation after a refused proposal, unless another one is in flight.
    pub(super) fn release_creator(&mut self, key: ChannelKey) {
        let Some(channel) = self.channels.get_mut(key.0) else { return };
        let Some(log) = channel.log.as_deref_mut() else { return };
        if log.has_proposals() || !std::mem::take(&mut log.is_creator_reserved) {
            return;
        }
        if let Some(creator) = channel.creator.take() {
            self.creators.remove(*creator);
        }
    }

    /// The number of a channel: unique on the node, above 0. It fits into the protocol's 63 bits, because reaching that
    /// limit would take a shard centuries.
    pub(super) fn number_of(&mut self, key: ChannelKey, identity: ShardIdentity) -> u64 {
        let channel = &mut self.channels[key.0];
        if channel.number == 0 {
            channel.number = self.numbered * u64::from(identity.count) + u64::from(identity.index.0) + 1;
            self.numbered += 1;
        }
        channel.number
    }

    /// Entries of the counts of channels per creator, and channels without subscribers. Both are 0 when all channels
    /// have been dropped.
    pub(super) fn holdings(&self) -> [usize; 2] {
        [self.creators.len(), self.idle.len()]
    }
}

impl Index<ChannelKey> for ChannelTable {
    type Output = OwnedChannel;

    fn index(&self, key: ChannelKey) -> &OwnedChannel {
        &self.channels[key.0]
    }
}

impl IndexMut<ChannelKey> for ChannelTable {
    fn index_mut(&mut self, key: ChannelKey) -> &mut OwnedChannel {
        &mut self.channels[key.0]
    }
}
