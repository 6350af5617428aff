//! A channel on its owner's shard: its subscribers, its presence and its stream.

use std::sync::Arc;

use hashbrown::HashMap;

use dunlin_protocol::ClientInfo;

use crate::{
    FrameClass, ShardIndex,
    creators::{ChannelCreator, UsedBy},
    history_stream::{Stream, present_bytes_max},
    idempotency::Results,
    key_cache::KeyCache,
    log_in_flight::ChannelLog,
    message::Subscriber,
    names::NamespaceIndex,
    room::{RoomKey, RoomThreadIndex},
    timers::Scheduled,
};

/// A channel owned by this shard. It exists while somebody listens, its stream is remembered or its room is open.
#[derive(Debug)]
pub(crate) struct OwnedChannel {
    pub(crate) name: Arc<str>,
    pub(crate) namespace: NamespaceIndex,
    pub(crate) stream: Option<Box<Stream>>,
    /// Made with the first session in it: most namespaces keep no presence.
    presence: Option<Box<Presence>>,
    pub(crate) scheduled: Scheduled,
    /// The room that is open, or about to be.
    pub(crate) room: Option<Box<OwnedRoom>>,
    /// Where the namespace has a log: there while the channel is in memory, or something waits for the log.
    pub(crate) log: Option<Box<ChannelLog>>,
    /// Made with the first publication that has an idempotency key.
    pub(crate) results: Option<Box<Results>>,
    /// Made with the first publication, where the namespace has one.
    pub(crate) key_cache: Option<Box<KeyCache>>,
    /// What compact classes call it, unique on the node; 0 as long as nobody asked.
    pub(crate) number: u64,
    /// Who has subscribed or published here.
    pub(crate) used_by: UsedBy,
    /// Whom it counts for, with its publications: the one who has used it.
    pub(crate) creator: Option<Box<ChannelCreator>>,
    /// Set as long as nobody listens.
    pub(crate) idle: Option<Box<Idle>>,
    /// Whether other nodes' messages to it are asked for, where it has no log.
    pub(crate) following: Following,
    listeners: Vec<Listener>,
    subscribers: u32,
}

/// Whether what other nodes send to a channel comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Following {
    Not,
    /// It is not known whether all of it comes.
    Asked,
    /// The same, and subscriptions wait for that.
    Awaited,
    Confirmed,
}

impl Following {
    /// Whether subscriptions wait.
    pub(crate) const fn has_parked(self) -> bool {
        matches!(self, Self::Awaited)
    }
}

/// A channel that nobody listens to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Idle {
    /// Since when, as its shard's list of such channels has it.
    pub(crate) since_us: u64,
    /// When it was last used.
    pub(crate) used_us: u64,
}

/// A room as the owner of its channel knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnedRoom {
    pub(crate) key: RoomKey,
    pub(crate) thread: RoomThreadIndex,
    /// Joins that it has not answered.
    pub(crate) joins_on_way: u32,
    /// Players whose leave was not sent to it.
    pub(crate) players: u32,
    /// Its world is made.
    pub(crate) is_made: bool,
}

/// A shard with subscribers of a channel, and what they want.
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

/// What is delivered, for the question who gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Audience {
    /// All subscribers.
    Publications,
    /// Those who get joins and leaves.
    JoinLeaves,
}

impl OwnedChannel {
    /// A channel that nobody listens to yet.
    pub(crate) fn new(name: Arc<str>, namespace: NamespaceIndex) -> Self {
        Self {
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

    /// Adds a subscriber on `shard`.
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

    /// Removes a subscriber on `shard` that was added as the same.
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

    /// Adds a session to presence.
    pub(crate) fn enter(&mut self, info: &Arc<ClientInfo>) {
        self.presence.get_or_insert_default().add(info);
    }

    /// Shows a session otherwise in presence, if it is there.
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

    /// Whether an answer that tells of everyone has no more than `bytes_max` bytes. Looks at no more than it has to.
    pub(crate) fn clients_fit(&self, bytes_max: usize) -> bool {
        let mut clients = self.presence.iter().flat_map(|presence| presence.clients.values());
        let left = clients.try_fold(bytes_max, |left, info| left.checked_sub(present_bytes_max(info)));
        left.is_some()
    }

    pub(crate) fn clients(&self) -> Vec<Arc<ClientInfo>> {
        self.presence.as_ref().map_or_else(Vec::new, |presence| presence.clients())
    }

    /// How many sessions and distinct users are there.
    pub(crate) fn presence_stats(&self) -> (u32, u32) {
        self.presence.as_ref().map_or((0, 0), |presence| presence.stats())
    }

    /// How many subscribers there are on the node.
    pub(crate) fn subscribers(&self) -> u32 {
        self.subscribers
    }

    /// The classes of the subscribers in the audience; one may come more than once.
    pub(crate) fn classes(&self, audience: Audience) -> impl Iterator<Item = FrameClass> {
        let wants = self.listeners.iter().flat_map(|listener| &listener.wants);
        wants.filter(move |want| want.of(audience) > 0).map(|want| want.class)
    }

    /// The shards that have subscribers in the audience.
    pub(crate) fn listening_shards(&self, audience: Audience) -> impl Iterator<Item = ShardIndex> {
        let wants = move |listener: &&Listener| listener.wants.iter().any(|want| want.of(audience) > 0);
        self.listeners.iter().filter(wants).map(|listener| listener.shard)
    }

    /// Whether nothing is left to remember.
    pub(crate) fn is_forgettable(&self) -> bool {
        self.subscribers == 0
            && self.stream.is_none()
            && self.room.is_none()
            && self.log.is_none()
            && self.results.is_none()
            && self.key_cache.is_none()
            && !self.following.has_parked()
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

/// Who is in a channel.
#[derive(Debug, Default)]
struct Presence {
    clients: HashMap<Arc<str>, Arc<ClientInfo>, foldhash::quality::FixedState>,
    /// How many sessions each user has here.
    users: HashMap<Arc<str>, u32, foldhash::quality::FixedState>,
}

impl Presence {
    /// Adds a session.
    fn add(&mut self, info: &Arc<ClientInfo>) {
        if self.clients.insert(Arc::clone(&info.client), Arc::clone(info)).is_none() {
            *self.users.entry(Arc::clone(&info.user)).or_insert(0) += 1;
        }
    }

    /// Removes a session.
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

    /// Sessions and distinct users.
    fn stats(&self) -> (u32, u32) {
        (self.clients.len() as u32, self.users.len() as u32)
    }
}

#[cfg(test)]
mod tests;
