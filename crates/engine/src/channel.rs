//! A channel on its owner's shard: its subscribers, its presence and its stream.

use std::sync::Arc;

use hashbrown::HashMap;

use dunlin_protocol::ClientInfo;

use crate::{
    FrameClass, ShardIndex,
    channel_creators::{ChannelCreator, UsedBy},
    conflation_keys::KeyCache,
    history_stream::{Stream, present_bytes_max},
    idempotency::Results,
    log_in_flight::ChannelLog,
    message::{Subscriber, SubscriptionRequest},
    names::NamespaceIndex,
    room::{RoomKey, RoomThreadIndex},
    slab::SlabKey,
    timers::{Scheduled, TimerOwner, Timers},
};

/// A channel in the table of its owner. It finds nothing after the channel was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChannelKey(pub(crate) SlabKey);

/// A channel owned by this shard. It exists while it has subscribers, a stream in memory, or an open room.
#[derive(Debug)]
pub(crate) struct OwnedChannel {
    pub(crate) key: ChannelKey,
    pub(crate) name: Arc<str>,
    pub(crate) namespace: NamespaceIndex,
    pub(crate) stream: Option<Box<Stream>>,
    /// Created with the first session in it: most namespaces keep no presence.
    presence: Option<Box<Presence>>,
    pub(crate) scheduled: Scheduled,
    /// The room that is open or opening.
    pub(crate) room: Option<Box<OwnedRoom>>,
    /// For namespaces with a log: present while the channel is in memory or something waits for the log.
    pub(crate) log: Option<Box<ChannelLog>>,
    /// Created with the first publication that has an idempotency key.
    pub(crate) results: Option<Box<Results>>,
    /// Created with the first publication, if the namespace has a key cache.
    pub(crate) key_cache: Option<Box<KeyCache>>,
    /// The channel's number in compact classes, unique on the node; 0 until a subscription needs it.
    pub(crate) number: u64,
    /// Who has subscribed or published here.
    pub(crate) used_by: UsedBy,
    /// The creator whose limits the channel and its publications count against: the only one that has used it.
    pub(crate) creator: Option<Box<ChannelCreator>>,
    /// Set while the channel has no subscribers.
    pub(crate) idle: Option<Box<Idle>>,
    /// Whether the node receives other nodes' messages to the channel, if it has no log.
    pub(crate) following: Following,
    listeners: Vec<Listener>,
    subscribers: u32,
}

/// Whether the node receives what other nodes send to a channel.
#[derive(Debug)]
pub(crate) enum Following {
    Not,
    /// Requested; messages may still be lost.
    Asked,
    /// Requested, and subscriptions wait for the confirmation.
    Awaited(Box<ParkedSubscriptions>),
    Confirmed,
    /// Confirmed, and subscriptions wait for the keys of other nodes.
    Gathering(Box<ParkedSubscriptions>),
}

/// Subscriptions that wait, in the order of arrival. In a box of their own, because few channels have any.
#[derive(Debug)]
#[allow(clippy::vec_box, reason = "requests come boxed, and are passed on boxed")]
pub(crate) struct ParkedSubscriptions(Vec<Box<SubscriptionRequest>>);

impl Following {
    /// Whether other nodes' messages are known to arrive.
    pub(crate) const fn is_confirmed(&self) -> bool {
        matches!(self, Self::Confirmed | Self::Gathering(_))
    }

    /// Whether subscriptions wait.
    pub(crate) const fn has_parked(&self) -> bool {
        matches!(self, Self::Awaited(_) | Self::Gathering(_))
    }

    /// Adds a subscription that waits for the confirmation.
    pub(crate) fn wait_for_confirmation(&mut self, request: Box<SubscriptionRequest>) {
        if let Self::Awaited(parked) = self {
            return parked.0.push(request);
        }
        debug_assert!(matches!(self, Self::Asked), "a request to follow is in flight");
        *self = Self::Awaited(Box::new(ParkedSubscriptions(vec![request])));
    }

    /// Adds a subscription that waits for the keys of other nodes. Returns whether it is the first.
    pub(crate) fn wait_for_keys(&mut self, request: Box<SubscriptionRequest>) -> bool {
        if let Self::Gathering(parked) = self {
            parked.0.push(request);
            return false;
        }
        debug_assert!(matches!(self, Self::Confirmed), "what others receive meanwhile must arrive");
        *self = Self::Gathering(Box::new(ParkedSubscriptions(vec![request])));
        true
    }

    /// The confirmation, or the keys of other nodes, have arrived. Returns the subscriptions that waited for them.
    #[allow(clippy::vec_box, reason = "requests come boxed, and are passed on boxed")]
    pub(crate) fn confirm(&mut self) -> Vec<Box<SubscriptionRequest>> {
        match std::mem::replace(self, Self::Confirmed) {
            Self::Awaited(parked) | Self::Gathering(parked) => parked.0,
            Self::Not | Self::Asked | Self::Confirmed => Vec::new(),
        }
    }
}

/// A channel without subscribers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Idle {
    /// Key of the channel in its shard's list of idle channels.
    pub(crate) since_us: u64,
    /// When it was last used.
    pub(crate) used_us: u64,
}

/// What the owner of a channel stores about its room.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnedRoom {
    pub(crate) key: RoomKey,
    pub(crate) thread: RoomThreadIndex,
    /// Joins sent to the room and not answered yet.
    pub(crate) pending_joins: u32,
    /// Players whose leave has not been sent to the room yet.
    pub(crate) players: u32,
    /// Whether the room's world has been created.
    pub(crate) is_made: bool,
}

/// A shard with subscribers of a channel, and the frames that they need.
#[derive(Debug)]
struct Listener {
    shard: ShardIndex,
    wants: Vec<Want>,
}

/// How many subscribers of one class there are on a shard.
#[derive(Clone, Copy, Debug)]
struct Want {
    class: FrameClass,
    publications: u32,
    join_leaves: u32,
}

/// The subscribers that a delivery is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Audience {
    /// All subscribers.
    Publications,
    /// Subscribers that receive joins and leaves.
    JoinLeaves,
}

impl OwnedChannel {
    /// A channel without subscribers.
    pub(crate) fn new(key: ChannelKey, name: Arc<str>, namespace: NamespaceIndex) -> Self {
        Self {
            key,
            name,
            namespace,
            stream: None,
            presence: None,
            scheduled: Scheduled::default(),
            room: None,
            log: None,
            results: None,
            key_cache: None,
            number: 0,
            used_by: UsedBy::default(),
            creator: None,
            idle: None,
            following: Following::Not,
            listeners: Vec::new(),
            subscribers: 0,
        }
    }

    pub(crate) fn add(&mut self, shard: ShardIndex, subscriber: &Subscriber) {
        let place = self.listeners.iter().position(|listener| listener.shard == shard).unwrap_or_else(|| {
            self.listeners.reserve_exact(1);
            self.listeners.push(Listener { shard, wants: Vec::with_capacity(1) });
            self.listeners.len() - 1
        });
        let want = self.listeners[place].want_mut(subscriber.class);
        want.publications += 1;
        want.join_leaves += u32::from(subscriber.join_leave);
        self.subscribers += 1;
    }

    /// Removes a subscriber on `shard` that was added with the same options.
    pub(crate) fn remove(&mut self, shard: ShardIndex, subscriber: &Subscriber) {
        let place = self.listeners.iter().position(|listener| listener.shard == shard);
        let place = place.expect("a shard unsubscribes only what its owner accepted");
        let listener = &mut self.listeners[place];
        let want = listener.want_mut(subscriber.class);
        want.publications -= 1;
        want.join_leaves -= u32::from(subscriber.join_leave);
        if want.publications == 0 {
            listener.wants.retain(|want| want.publications > 0);
        }
        if listener.wants.is_empty() {
            self.listeners.swap_remove(place);
        }
        self.subscribers -= 1;
    }

    pub(crate) fn enter(&mut self, info: &Arc<ClientInfo>) {
        self.presence.get_or_insert_default().add(info);
    }

    /// Replaces a session's info in presence, if the session is there.
    pub(crate) fn show_as(&mut self, info: &Arc<ClientInfo>) {
        if let Some(shown) = self.presence.as_mut().and_then(|presence| presence.clients.get_mut(&info.client)) {
            *shown = Arc::clone(info);
        }
    }

    /// Removes a session from presence, if it is there.
    pub(crate) fn leave(&mut self, info: &ClientInfo) {
        let Some(presence) = &mut self.presence else { return };
        presence.remove(info);
        if presence.clients.is_empty() {
            self.presence = None;
        }
    }

    /// Whether a presence reply with all sessions has at most `bytes_max` bytes. Stops counting at the limit.
    pub(crate) fn clients_fit(&self, bytes_max: usize) -> bool {
        let mut clients = self.presence.iter().flat_map(|presence| presence.clients.values());
        let left = clients.try_fold(bytes_max, |left, info| left.checked_sub(present_bytes_max(info)));
        left.is_some()
    }

    pub(crate) fn clients(&self) -> Vec<Arc<ClientInfo>> {
        self.presence.as_ref().map_or_else(Vec::new, |presence| presence.clients())
    }

    /// The number of sessions and of distinct users in presence.
    pub(crate) fn presence_stats(&self) -> (u32, u32) {
        self.presence.as_ref().map_or((0, 0), |presence| presence.stats())
    }

    /// The number of subscribers on the node.
    pub(crate) fn subscribers(&self) -> u32 {
        self.subscribers
    }

    /// The classes of the subscribers in the audience; a class may occur more than once.
    pub(crate) fn classes(&self, audience: Audience) -> impl Iterator<Item = FrameClass> {
        let wants = self.listeners.iter().flat_map(|listener| &listener.wants);
        wants.filter(move |want| want.of(audience) > 0).map(|want| want.class)
    }

    /// The shards that have subscribers in the audience.
    pub(crate) fn listening_shards(&self, audience: Audience) -> impl Iterator<Item = ShardIndex> {
        let wants = move |listener: &&Listener| listener.wants.iter().any(|want| want.of(audience) > 0);
        self.listeners.iter().filter(wants).map(|listener| listener.shard)
    }

    /// Whether the channel holds no state and can be dropped.
    pub(crate) fn is_forgettable(&self) -> bool {
        self.subscribers == 0
            && self.stream.is_none()
            && self.room.is_none()
            && self.log.is_none()
            && self.results.is_none()
            && self.key_cache.is_none()
            && !self.following.has_parked()
    }

    /// Whether this is its room.
    pub(crate) fn has_room(&self, key: RoomKey) -> bool {
        self.room.as_ref().is_some_and(|room| room.key == key)
    }

    /// Its room, if it is still this one.
    pub(crate) fn room_mut(&mut self, key: RoomKey) -> Option<&mut OwnedRoom> {
        self.room.as_deref_mut().filter(|room| room.key == key)
    }

    /// The log, if the channel is open: its newest publications are in memory.
    pub(crate) fn open_log(&mut self) -> Option<&mut ChannelLog> {
        self.log.as_deref_mut().filter(|log| log.is_open())
    }

    /// The epoch of its stream; empty without a stream.
    pub(crate) fn epoch(&self) -> Box<str> {
        self.stream.as_ref().map_or_else(Box::default, |stream| stream.epoch().into())
    }

    /// Schedules the next expiry of the stream, the idempotency results or the keys. The timer has the name of the
    /// channel, whose order decides between two of the same time, and which finds its successor as well.
    pub(crate) fn schedule(&mut self, timers: &mut Timers) {
        let of_stream = self.stream.as_ref().map(|stream| stream.data_until_us.min(stream.meta_until_us));
        let of_results = self.results.as_ref().and_then(|results| results.next_us());
        let of_keys = self.key_cache.as_ref().and_then(|cache| cache.next_us());
        let Some(due_us) = of_stream.into_iter().chain(of_results).chain(of_keys).min() else { return };
        timers.schedule(&mut self.scheduled, due_us, || TimerOwner::Channel(Arc::clone(&self.name)));
    }

    /// Bytes of its key cache.
    pub(crate) fn cached_bytes(&self) -> usize {
        self.key_cache.as_ref().map_or(0, |cache| cache.bytes())
    }

    /// Whether it has subscribers, or something waits for its log or for other nodes.
    pub(crate) fn is_in_use(&self) -> bool {
        self.subscribers > 0 || self.following.has_parked() || self.log.as_ref().is_some_and(|log| !log.is_quiet())
    }
}

impl Listener {
    fn want_mut(&mut self, class: FrameClass) -> &mut Want {
        let place = self.wants.iter().position(|want| want.class == class).unwrap_or_else(|| {
            self.wants.reserve_exact(1);
            self.wants.push(Want { class, publications: 0, join_leaves: 0 });
            self.wants.len() - 1
        });
        &mut self.wants[place]
    }
}

impl Want {
    fn of(self, audience: Audience) -> u32 {
        match audience {
            Audience::Publications => self.publications,
            Audience::JoinLeaves => self.join_leaves,
        }
    }
}

/// The sessions in a channel's presence.
#[derive(Debug, Default)]
struct Presence {
    clients: HashMap<Arc<str>, Arc<ClientInfo>, foldhash::quality::FixedState>,
    /// The number of sessions per user.
    users: HashMap<Arc<str>, u32, foldhash::quality::FixedState>,
}

impl Presence {
    fn add(&mut self, info: &Arc<ClientInfo>) {
        if self.clients.insert(Arc::clone(&info.client), Arc::clone(info)).is_none() {
            *self.users.entry(Arc::clone(&info.user)).or_insert(0) += 1;
        }
    }

    fn remove(&mut self, info: &ClientInfo) {
        if self.clients.remove(&info.client).is_none() {
            return;
        }
        let sessions = self.users.get_mut(&info.user).expect("every session's user is counted");
        *sessions -= 1;
        if *sessions == 0 {
            self.users.remove(&info.user);
        }
    }

    fn clients(&self) -> Vec<Arc<ClientInfo>> {
        self.clients.values().cloned().collect()
    }

    /// The number of sessions and of distinct users.
    fn stats(&self) -> (u32, u32) {
        (self.clients.len() as u32, self.users.len() as u32)
    }
}

#[cfg(test)]
mod tests;
