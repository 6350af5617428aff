//! The cluster protocol as a state machine: events in, effects out. It does no I/O, reads no clock, and is
//! deterministic.
//!
//! - *Attach* ([`sync`]): the node subscribes to a channel's live subject. Then it publishes a fence, a message of its
//!   own in the same stream, on the same connection. When the fence comes back, the subscription is known to be active,
//!   and the node reads the newest message of each channel from a replica that has the fence. From there on the chain
//!   holds.
//! - *Chain* ([`follow`]): each republished message names its predecessor in its channel. Late and duplicate messages
//!   are dropped. A missing one is read from the stream before anything later is delivered.
//! - *Audit* ([`sync`]): a lost message without a successor breaks no chain. So the newest messages are compared after
//!   each change of the stream's leader, each reconnect, each overflow, and every 30 seconds.
//! - *Epoch* ([`truncation`], [`epoch`]): a stream that was truncated begins a new epoch, in which no older position is
//!   valid.
//! - *Holes* ([`holes`]): each message names its predecessors, so that a read shows when one of them is missing.
//! - *Standing* ([`standing`]): whether each stream exists and stores messages. One that is gone is created again.
//! - *Publish* ([`publish`]): each message has an id, by which the stream drops duplicates. It is retried until the
//!   stream has acknowledged it, and committed when it comes back in the order of the stream.
//! - *Broadcast* ([`broadcast`]): publications without an offset are sent over core NATS, at most once. A follow is
//!   answered when the servers of all nodes know the subscription ([`interest`]).
//! - *Load* ([`read`], [`ahead`]): pages of history, with a proof of completeness. The stream keeps one message more
//!   than the history of a channel, so if it has at most as many messages after a position as the history, none was
//!   trimmed. Another node may have the messages of a channel that this node has just attached in memory
//!   ([`peer_window`]).
//! - *Nodes* ([`peers`]): heartbeats, and queries to the live nodes.
//! - *Leases* ([`leases`]): which nodes are live, decided by a stream.

mod ahead;
mod broadcast;
mod channel;
mod counters;
mod epoch;
mod event;
mod follow;
mod holes;
mod interest;
pub mod leases;
mod lingering;
mod options;
mod outbox;
mod partition;
mod peer_window;
pub mod peers;
mod publish;
mod read;
#[cfg(test)]
mod rig;
mod seen_keys;
mod shared;
mod silence;
mod standing;
mod sync;
mod timers;
mod truncation;
mod window;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use dunlin_engine::Now;

use crate::{
    link::{LinkEffect, LinkEvent, LinkName, RequestNumber},
    names::PartitionId,
    planted::PlantedInCore,
};

pub use broadcast::{BroadcastDrop, BroadcastNamespace};
pub use counters::CoreCounters;
pub(crate) use epoch::epoch_of;
pub use event::{CoreEffect, CoreEvent};
pub use options::{CoreLimits, CoreOptions, StreamedNamespace};
pub use standing::{StreamChange, StreamTrouble, UnusableStream};

use ahead::AheadLoad;
use broadcast::Broadcasts;
use channel::FollowedChannel;
use interest::InterestChecks;
use leases::Leases;
use lingering::Lingering;
use partition::Partitions;
use peer_window::WindowQuestion;
use peers::{LiveNode, PeerEvent, Peers};
use publish::{Publishing, PublishingKey, Waiter};
use seen_keys::SeenKeys;
use silence::Silence;
use standing::StreamKey;
use timers::{LinksUp, Requester, Timer};
use window::WindowMemory;

/// The protocol of one node.
#[derive(Debug)]
pub struct Core {
    options: CoreOptions,
    links: LinksUp,
    peers: Peers,
    leases: Leases,
    silence: Silence,
    payload_bytes_max: usize,
    partitions: Partitions,
    channels: BTreeMap<Arc<str>, FollowedChannel>,
    window_memory: WindowMemory,
    lingering: Lingering,
    broadcasts: Broadcasts,
    interest: InterestChecks,
    /// Loads after positions that this node has not reached, by channel.
    ahead: BTreeMap<Arc<str>, Vec<AheadLoad>>,
    /// Queries for the windows of other nodes, by channel, and the loads that wait for them.
    window_questions: BTreeMap<Arc<str>, WindowQuestion>,
    window_loads: usize,
    requests: BTreeMap<RequestNumber, Requester>,
    publishing: BTreeMap<PublishingKey, Publishing>,
    publishing_by_id: BTreeMap<Box<str>, PublishingKey>,
    seen_keys: SeenKeys,
    /// Channels with messages that wait for space in the publish window.
    waiting_channels: VecDeque<Arc<str>>,
    /// Messages sent and not acknowledged.
    in_flight: usize,
    timers: BTreeSet<(u64, Timer)>,
    numbered: u64,
    counters: CoreCounters,
    planted: PlantedInCore,
}

/// The arguments that most methods of a core need.
struct Turn<'a> {
    now: Now,
    effects: &'a mut Vec<CoreEffect>,
}

impl Turn<'_> {
    fn link(&mut self, effect: LinkEffect) {
        self.effects.push(CoreEffect::Link(effect));
    }
}

impl Core {
    /// A core without connections.
    pub fn new(options: CoreOptions) -> Self {
        Self {
            partitions: Partitions::new(&options),
            broadcasts: Broadcasts::new(&options),
            interest: InterestChecks::new(&options.prefix, &options.node),
            peers: Peers::new(&options.prefix, &options.node, options.limits.peers.clone()),
            leases: Leases::new(&options.prefix, options.has_leases),
            options,
            links: LinksUp::default(),
            silence: Silence::default(),
            payload_bytes_max: 0,
            channels: BTreeMap::new(),
            window_memory: WindowMemory::default(),
            lingering: Lingering::default(),
            ahead: BTreeMap::new(),
            window_questions: BTreeMap::new(),
            window_loads: 0,
            requests: BTreeMap::new(),
            publishing: BTreeMap::new(),
            publishing_by_id: BTreeMap::new(),
            seen_keys: SeenKeys::default(),
            waiting_channels: VecDeque::new(),
            in_flight: 0,
            timers: BTreeSet::new(),
            numbered: 0,
            counters: CoreCounters::default(),
            planted: PlantedInCore::default(),
        }
    }

    #[cfg(feature = "planted-bugs")]
    pub(crate) const fn set_planted(&mut self, planted: PlantedInCore) {
        self.planted = planted;
        self.peers.planted = planted;
    }

    /// Handles one event. The caller performs the effects in order.
    pub fn handle(&mut self, now: Now, event: CoreEvent, effects: &mut Vec<CoreEffect>) {
        let turn = &mut Turn { now, effects };
        match event {
            CoreEvent::Link(event) => self.on_link(turn, event),
            CoreEvent::Propose { shard, channel, namespace, proposal, record } => {
                self.propose(turn, shard, &channel, namespace, proposal, &record);
            }
            CoreEvent::Load { shard, channel, load, query } => self.load(turn, shard, &channel, load, query),
            CoreEvent::Trim { shard, channel, namespace, ticket } => {
                let waiter = ticket.map_or(Waiter::Nobody, |ticket| Waiter::Trim { shard, ticket });
                self.purge(turn, &channel, namespace, waiter);
            }
            CoreEvent::Follow { shard, channel, namespace } => {
                self.follow(turn, shard, &channel, namespace);
                self.follow_broadcasts(turn, shard, &channel, namespace);
            }
            CoreEvent::Unfollow { channel, only_user } => {
                self.unfollow(turn, &channel, only_user);
                self.unfollow_broadcasts(turn, &channel, only_user);
            }
            CoreEvent::Broadcast { channel, namespace, message } => {
                self.broadcast(turn, &channel, namespace, &message);
            }
            CoreEvent::Undelivered { channel } => {
                self.counters.undelivered += 1;
                self.interrupt(turn, &channel);
            }
            CoreEvent::Peers(event) => {
                if matches!(event, PeerEvent::Depart) {
                    self.release_lease(turn);
                }
                self.peers.handle(turn, event);
                self.give_up_checks(turn);
            }
            CoreEvent::Woke => {}
        }
        self.run_timers(turn);
        self.peers.run_deadlines(turn);
        self.review_check_of_nodes(turn);
        self.review_leases(turn);
    }

    /// The time of the next [`CoreEvent::Woke`], on the clock of [`Now::mono_us`].
    pub fn next_deadline_us(&self) -> Option<u64> {
        let timer = self.timers.first().map(|(due_us, _)| *due_us);
        [timer, self.peers.next_deadline_us()].into_iter().flatten().min()
    }

    /// The counters.
    pub fn counters(&self) -> CoreCounters {
        let (followed, in_flight) = (self.channels.len() as u64, self.in_flight as u64);
        let (broadcast_channels, peers) = (self.broadcasts.channel_count() as u64, self.peers.counters());
        let leases = self.leases.counters();
        let (seen_keys, seen_keys_bytes) = self.seen_keys.size();
        let (seen_keys, seen_keys_bytes) = (seen_keys as u64, seen_keys_bytes as u64);
        CoreCounters {
            followed,
            seen_keys,
            seen_keys_bytes,
            lingering: (self.lingering.len() + self.broadcasts.lingering.len()) as u64,
            window_bytes: self.window_memory.bytes() as u64,
            in_flight,
            broadcast_channels,
            peers,
            leases,
            ..self.counters.clone()
        }
    }

    /// Whether all streams are usable and all connections are up.
    pub fn is_ready(&self) -> bool {
        let LinksUp { live, publish, read } = self.links;
        live && publish && read && self.are_streams_usable()
    }

    /// All live nodes, including this one, by id. Empty until this node is a member of the cluster.
    pub fn live_nodes(&self) -> Vec<LiveNode> {
        self.peers.live_nodes()
    }

    /// A version that changes with [`Self::live_nodes`].
    pub fn nodes_version(&self) -> u64 {
        self.peers.table_version()
    }

    /// Whether this node has left the cluster.
    pub fn has_departed(&self) -> bool {
        self.peers.has_departed()
    }

    fn on_link(&mut self, turn: &mut Turn<'_>, event: LinkEvent) {
        match event {
            LinkEvent::Connected { link, max_payload } => self.connected(turn, link, max_payload),
            LinkEvent::Disconnected { link } => self.disconnected(turn, link),
            LinkEvent::SlowConsumer => self.audit_after_overflow(turn),
            LinkEvent::Delivered { subject, headers, payload, is_by_wildcard, .. } => {
                let is_taken = self.peers.take(turn, &subject, &headers, &payload)
                    || self.take_window_message(turn, &subject, &payload)
                    || self.interest_arrived(turn, &subject, &headers)
                    || self.lease_arrived(turn, &subject, &headers)
                    || self.broadcast_arrived(turn, &subject, &headers, &payload, is_by_wildcard);
                if !is_taken {
                    self.delivered(turn, &subject, headers, payload);
                }
            }
            LinkEvent::Acknowledged { request, outcome } => match self.requests.remove(&request) {
                Some(Requester::Publish(key)) => self.acknowledged(turn, key, request, outcome),
                Some(Requester::Lease) => self.lease_acknowledged(turn, request, outcome),
                Some(Requester::Fence(partition)) => {
                    self.stream_answered(turn, StreamKey::Partition(partition), outcome.as_ref().err());
                }
                _ => {}
            },
            LinkEvent::Answered { request, outcome } => {
                let outcome = self.without_damaged(outcome);
                match self.requests.remove(&request) {
                    Some(Requester::Heads { partition, chunk, sync }) => {
                        self.heads_read(turn, partition, chunk, sync, outcome);
                    }
                    Some(Requester::Read { partition, read }) => self.range_read(turn, partition, read, outcome),
                    Some(Requester::AgeFloor(partition)) => self.age_floor_read(turn, partition, outcome),
                    Some(Requester::SharedRead(partition)) => self.shared_read(turn, partition, outcome),
                    Some(Requester::Marks(partition)) => self.marks_read(turn, partition, outcome),
                    Some(Requester::Lease) => self.lease_read(turn, request, outcome),
                    _ => {}
                }
            }
            LinkEvent::StreamInfo { request, outcome } => match self.requests.remove(&request) {
                Some(Requester::Describe(stream)) => self.described(turn, stream, outcome),
                Some(Requester::Create(stream)) => self.created(turn, stream, outcome),
                _ => {}
            },
        }
    }

    fn connected(&mut self, turn: &mut Turn<'_>, link: LinkName, max_payload: usize) {
        self.counters.links_opened[link as usize] += 1;
        match link {
            LinkName::Live => {
                self.links.live = true;
                self.subscribe_own_subjects(turn);
                self.audit_all(turn);
            }
            LinkName::Publish => {
                self.links.publish = true;
                self.payload_bytes_max = max_payload;
                self.send_waiting(turn);
            }
            LinkName::Read => {
                self.links.read = true;
                let keys: Vec<StreamKey> = self.stream_keys().collect();
                for key in keys {
                    self.describe(turn, key);
                }
                let ids: Vec<PartitionId> = self.partitions.ids().collect();
                for id in ids {
                    self.resume_reads(turn, id);
                }
            }
        }
        self.peers.on_links(turn, self.links, self.payload_bytes_max);
    }

    fn disconnected(&mut self, turn: &mut Turn<'_>, link: LinkName) {
        self.silence.end(link);
        match link {
            LinkName::Live => self.links.live = false,
            LinkName::Publish => self.links.publish = false,
            LinkName::Read => self.links.read = false,
        }
        self.peers.on_links(turn, self.links, self.payload_bytes_max);
        self.leases_disconnected();
        self.give_up_checks(turn);
    }
}
