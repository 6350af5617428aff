//! The cluster protocol as a state machine: events in, effects out. It does no I/O, reads no clock, and is
//! deterministic.
//!
//! - *Attach* ([`sync`]): the node subscribes to a channel's live subject. Then it publishes a fence, a message of its
//!   own in the same stream, on the same connection. When the fence comes back, the subscription is known to be active,
//!   and the node reads the newest message of each channel from a replica that has the fence. From there on the chain
//!   holds.
//! - *Chain* ([`channel`]): each republished message names its predecessor in its channel. Late and duplicate
//!   messages are dropped. A missing one is read from the stream before anything later is delivered.
//! - *Audit* ([`sync`]): a lost message without a successor breaks no chain. So the newest messages are compared after
//!   each change of the stream's leader, each reconnect, each overflow, and every 30 seconds.
//! - *Epoch* ([`truncation`], [`epoch`], [`known_stream`]): a stream that was truncated begins a new epoch, in which no
//!   older position is valid.
//! - *Holes* ([`holes`]): each message names its predecessors, so that a read shows when one of them is missing.
//! - *Standing* ([`stream_standing`]): whether each stream exists and stores messages. One that is gone is created again.
//! - *Publish* ([`publish`]): each message has an id, by which the stream drops duplicates. It is retried until the
//!   stream has acknowledged it, and committed when it comes back in the order of the stream.
//! - *Broadcast* ([`broadcast`]): publications without an offset are sent over core NATS, at most once. A follow is
//!   answered when the servers of all nodes know the subscription ([`interest`]).
//! - *Load* ([`read`], [`page`], [`ahead`]): pages of history, with a proof of completeness. The stream keeps one
//!   message more than the history of a channel, so if it has at most as many messages after a position as the history,
//!   none was trimmed. Another node may have the messages of a channel that this node has just attached in memory
//!   ([`peer_window`]).
//! - *Keys* ([`seen_idempotency_keys`], [`idempotency_questions`]): the idempotency keys of the stream, which its
//!   servers may forget.
//! - *Nodes* ([`peers`]): heartbeats, and queries to the live nodes.
//! - *Leases* ([`leases`]): which nodes are live, decided by a stream.
//! - *Rooms* ([`room_logs`]): what a room needs to continue on another node.
//!
//! Each of them is a type that owns its state. [`Core`] calls the one that an event is for, with the parts of the others
//! that it needs, and acts on what it returns: a truncated stream interrupts channels, a channel with a gap is read.

mod ahead;
mod broadcast;
mod channel;
mod channels;
mod context;
mod counters;
mod epoch;
mod event;
mod holes;
mod idempotency_questions;
mod interest;
mod known_stream;
pub mod leases;
mod lingering;
mod options;
mod outbox;
mod page;
mod partition;
mod peer_window;
pub mod peers;
mod publish;
mod read;
#[cfg(test)]
mod rig;
pub mod room_logs;
mod seen_idempotency_keys;
mod stream_standing;
mod sync;
mod timers;
mod truncation;
mod unanswered_requests;
mod window;

use std::sync::Arc;

use bytes::Bytes;
use dunlin_engine::{
    Event, Now, ShardIndex,
    log::{LoadNumber, LoadQuery, LogError},
};

use crate::{
    link::{
        LinkEvent, LinkName, MessageHeaders, PublishAck, PublishFault, ReadAnswer, ReadFault, RequestNumber,
        StoredMessage, StreamState,
    },
    names::{EPOCH_TOKEN, PartitionId, decode_token, is_fence},
    record,
};

pub use broadcast::{BroadcastDrop, BroadcastNamespace};
pub use counters::{CoreCounters, StrayCounters};
pub(crate) use epoch::epoch_of;
pub use event::{CoreEffect, CoreEvent};
pub use options::{CoreLimits, CoreOptions, StreamedNamespace};
pub use stream_standing::{StreamChange, StreamTrouble, UnusableStream};

use ahead::ReadyLoad;
use broadcast::Broadcasts;
use channel::{Advanced, Attaching, ChannelAction, ChannelEvent, Comparison, FollowedChannel, WaitingLoad};
use channels::Channels;
use context::Context;
use idempotency_questions::{Asking, KeyQuestions};
use interest::{InterestChecks, Nodes};
use known_stream::{FactsChange, KnownStream, StreamFacts};
use leases::Leases;
use page::Pages;
use partition::{Partition, Partitions};
use peer_window::{OwnWindow, WindowMessage, WindowQuestions};
use peers::{LiveNode, PeerEvent, Peers};
use publish::{Acknowledged, Outgoing, Proposed, PublishingKey, Sending, Waiter};
use read::{EndedRead, Purpose, Read};
use room_logs::RoomLogs;
use stream_standing::{Answered, Creation, Described, StreamKey, StreamWatch};
use sync::{HeadSyncs, Heads, HeadsAnswer, HeadsRead};
use timers::{LinksUp, Requester, Timer};

/// The protocol of one node.
#[derive(Debug)]
pub struct Core {
    context: Context,
    peers: Peers,
    leases: Leases,
    room_logs: RoomLogs,
    partitions: Partitions,
    channels: Channels,
    broadcasts: Broadcasts,
    interest: InterestChecks,
    window_questions: WindowQuestions,
    key_questions: KeyQuestions,
    outgoing: Outgoing,
    departure: Departure,
}

/// How far the departure of this node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Departure {
    None,
    /// Its lease is released when its rooms are: another node would claim a room whose last checkpoint is not stored.
    OfRooms,
    OfLease,
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
            room_logs: RoomLogs::new(&options.prefix, options.has_room_logs),
            departure: Departure::None,
            context: Context::new(options),
            channels: Channels::default(),
            window_questions: WindowQuestions::default(),
            key_questions: KeyQuestions::default(),
            outgoing: Outgoing::default(),
        }
    }

    /// Handles one event. The caller performs the effects in order.
    pub fn handle(&mut self, now: Now, event: CoreEvent, effects: &mut Vec<CoreEffect>) {
        self.context.now = now;
        // One argument instead of two through all methods. The lists are moved, not copied.
        std::mem::swap(&mut self.context.effects, effects);
        match event {
            CoreEvent::Link(event) => self.on_link(event),
            CoreEvent::Propose { shard, channel, namespace, proposal, record } => {
                let waiter = Waiter::Proposal { shard, proposal };
                let proposed = Proposed { channel: &channel, namespace, waiter };
                let (outgoing, context, mut sending) = self.outgoing();
                outgoing.propose(context, &mut sending, &proposed, &record);
            }
            CoreEvent::Load { shard, channel, load, query } => self.load(shard, &channel, load, query),
            CoreEvent::Trim { shard, channel, namespace, ticket } => {
                let waiter = ticket.map_or(Waiter::Nobody, |ticket| Waiter::Trim { shard, ticket });
                self.purge(&Proposed { channel: &channel, namespace, waiter });
            }
            CoreEvent::Follow { shard, channel, namespace } => {
                self.follow(shard, &channel, namespace);
                self.broadcasts.follow(&mut self.context, shard, &channel, namespace);
                // With a stream, the page that the engine loads is the answer.
                if !self.context.options.is_streamed(namespace) {
                    let (interest, mut nodes, context) = self.interest();
                    interest.confirm_follow(context, &mut nodes, shard, &channel);
                }
            }
            CoreEvent::Unfollow { channel, only_user } => {
                self.unfollow(&channel, only_user);
                self.broadcasts.unfollow(&mut self.context, &channel, only_user);
            }
            CoreEvent::Broadcast { channel, namespace, message } => {
                self.broadcasts.broadcast(&mut self.context, &channel, namespace, &message);
            }
            CoreEvent::Undelivered { channel } => {
                self.context.counters.undelivered += 1;
                self.interrupt(&channel);
            }
            CoreEvent::Peers(event) => {
                if matches!(event, PeerEvent::Depart) {
                    self.departure = Departure::OfRooms;
                    self.room_logs.depart(&mut self.context);
                }
                self.peers.handle(&mut self.context, event);
                self.give_up_checks();
            }
            CoreEvent::RoomLog(event) => self.room_logs.handle(&mut self.context, event),
            CoreEvent::Woke => {}
        }
        self.run_timers();
        self.peers.run_deadlines(&mut self.context);
        let (interest, mut nodes, context) = self.interest();
        interest.review_nodes(context, &mut nodes);
        self.leases.review(&mut self.context, &self.peers);
        self.review_room_logs();
        self.review_key_questions();
        std::mem::swap(&mut self.context.effects, effects);
    }

    /// A lease may have changed, or the last log of a node that leaves has ended.
    fn review_room_logs(&mut self) {
        let news = self.leases.take_news();
        if news.is_own_lost {
            self.room_logs.check_all(&mut self.context);
        }
        if news.is_other_over {
            self.room_logs.find_orphans(&mut self.context);
        }
        if self.departure == Departure::OfRooms && !self.room_logs.is_ending(self.context.now.mono_us) {
            self.departure = Departure::OfLease;
            self.leases.release(&mut self.context);
        }
    }

    /// The time of the next [`CoreEvent::Woke`], on the clock of [`Now::mono_us`].
    pub fn next_deadline_us(&self) -> Option<u64> {
        let timer = self.context.timers.first().map(|(due_us, _)| *due_us);
        [timer, self.peers.next_deadline_us()].into_iter().flatten().min()
    }

    /// The counters.
    pub fn counters(&self) -> CoreCounters {
        let (followed, in_flight) = (self.channels.len() as u64, self.outgoing.in_flight() as u64);
        let (broadcast_channels, peers) = (self.broadcasts.channel_count() as u64, self.peers.counters());
        let leases = self.leases.counters();
        let (seen_keys, seen_keys_bytes) = self.key_questions.seen.size();
        let (seen_keys, seen_keys_bytes) = (seen_keys as u64, seen_keys_bytes as u64);
        CoreCounters {
            followed,
            seen_keys,
            seen_keys_bytes,
            lingering: (self.channels.lingering.len() + self.broadcasts.lingering.len()) as u64,
            window_bytes: self.channels.window_bytes() as u64,
            in_flight,
            broadcast_channels,
            peers,
            leases,
            room_logs: self.room_logs.counters(),
            strays: self.context.strays,
            ..self.context.counters.clone()
        }
    }

    /// Whether all streams are usable and all connections are up.
    pub fn is_ready(&self) -> bool {
        let LinksUp { live, publish, read } = self.context.links;
        live && publish && read && self.are_streams_usable()
    }

    /// The streams that this node cannot use, and why.
    pub fn unusable_streams(&self) -> Vec<UnusableStream> {
        self.watches().filter_map(StreamWatch::unusable).collect()
    }

    /// Whether this node can use all streams.
    pub fn are_streams_usable(&self) -> bool {
        self.watches().all(StreamWatch::is_usable)
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
        self.departure == Departure::OfLease && self.peers.has_departed() && !self.leases.is_releasing()
    }

    fn on_link(&mut self, event: LinkEvent) {
        match event {
            LinkEvent::Connected { link, max_payload } => self.connected(link, max_payload),
            LinkEvent::Disconnected { link } => self.disconnected(link),
            LinkEvent::SlowConsumer => {
                // Unlike after a reconnect, the subscriptions are active, and a lost fence is sent again when it is overdue.
                self.context.counters.overflows += 1;
                for partition in self.partitions.iter_mut() {
                    partition.syncs.audit(&mut self.context, &mut partition.stream, &mut self.channels);
                }
            }
            LinkEvent::Delivered { subject, headers, payload, is_by_wildcard, .. } => {
                let is_taken = self.peers.take(&mut self.context, &subject, &headers, &payload)
                    || self.take_window_message(&subject, &payload)
                    || self.interest_arrived(&subject, &headers)
                    || self.leases.arrived(&mut self.context, &subject, &headers)
                    || self.broadcasts.arrived(&mut self.context, &subject, &headers, &payload, is_by_wildcard);
                if !is_taken {
                    self.delivered(&subject, headers, payload);
                }
            }
            LinkEvent::Acknowledged { request, outcome } => self.on_acknowledged(request, outcome),
            LinkEvent::Answered { request, outcome } => self.on_answered(request, outcome),
            LinkEvent::StreamInfo { request, outcome } => match self.context.requests.remove(&request) {
                Some(Requester::Describe(stream)) => self.described(stream, outcome),
                Some(Requester::Create(stream)) => self.created(stream, outcome),
                other => self.context.count_other_requester(other),
            },
        }
    }

    fn on_acknowledged(&mut self, request: RequestNumber, outcome: Result<PublishAck, PublishFault>) {
        match self.context.requests.remove(&request) {
            Some(Requester::Publish(key)) => self.acknowledged(key, request, outcome),
            Some(Requester::Lease) => {
                Leases::note_silence(&mut self.context, &outcome);
                self.stream_answered(StreamKey::Leases, outcome.as_ref().err());
                self.leases.acknowledged(&mut self.context, request, outcome);
            }
            Some(Requester::RoomLog(log)) => {
                Leases::note_silence(&mut self.context, &outcome);
                self.stream_answered(StreamKey::RoomLogs, outcome.as_ref().err());
                self.room_logs.acknowledged(&mut self.context, (log, request), outcome);
            }
            Some(Requester::Fence(partition)) => {
                self.stream_answered(StreamKey::Partition(partition), outcome.as_ref().err());
            }
            other => self.context.count_other_requester(other),
        }
    }

    fn on_answered(&mut self, request: RequestNumber, outcome: Result<ReadAnswer, ReadFault>) {
        let damaged_before = self.context.counters.damaged_messages;
        let outcome = read::without_damaged(&mut self.context, outcome);
        match self.context.requests.remove(&request) {
            Some(Requester::Heads { partition, chunk, sync }) => {
                let is_damaged = self.context.counters.damaged_messages > damaged_before;
                self.heads_read(partition, HeadsAnswer { chunk, sync, is_damaged, outcome });
            }
            Some(Requester::Read { partition: id, read }) => {
                let Partition { stream, reads, .. } = &mut self.partitions[id];
                if reads.take_answer(&mut self.context, stream, read, outcome) {
                    self.resume_reads(id);
                }
            }
            Some(Requester::AgeFloor(id)) => {
                let Partition { stream, reads, .. } = &mut self.partitions[id];
                if stream.take_age_floor(outcome) {
                    self.resume_reads(id);
                } else {
                    reads.retry(&mut self.context, stream);
                }
            }
            Some(Requester::SharedRead(partition)) => self.shared_read(partition, outcome),
            Some(Requester::Marks(partition)) => {
                // After a failure, the next audit reads them again.
                let marks = &mut self.partitions[partition].stream.marks;
                if outcome.is_ok_and(|answer| marks.review(&answer.messages)) {
                    self.on_truncation(partition);
                }
            }
            Some(Requester::Lease) => self.leases.read_answered(&mut self.context, request, outcome),
            Some(Requester::RoomLog(log)) => {
                self.room_logs.read_answered(&mut self.context, &self.leases, (log, request), outcome);
            }
            Some(Requester::Orphans) => {
                self.room_logs.orphans_read(&mut self.context, &self.leases, outcome);
            }
            other => self.context.count_other_requester(other),
        }
    }

    fn connected(&mut self, link: LinkName, max_payload: usize) {
        self.context.counters.links_opened[link as usize] += 1;
        match link {
            LinkName::Live => {
                self.context.links.live = true;
                self.partitions.subscribe(&mut self.context);
                // The connection renews its subscriptions, and a fence may have been lost.
                for partition in self.partitions.iter_mut() {
                    partition.syncs.audit_anew(&mut self.context, &mut partition.stream, &mut self.channels);
                }
            }
            LinkName::Publish => {
                self.context.links.publish = true;
                self.context.payload_bytes_max = max_payload;
            }
            LinkName::Read => {
                self.context.links.read = true;
                let keys: Vec<StreamKey> = self.stream_keys().collect();
                for key in keys {
                    self.describe(key);
                }
                let ids: Vec<PartitionId> = self.partitions.ids().collect();
                for id in ids {
                    self.resume_reads(id);
                }
            }
        }
        self.peers.on_links(&mut self.context);
        // After the other nodes have heard of this one, because a message may wait for their answers.
        let (outgoing, context, mut sending) = self.outgoing();
        outgoing.send_waiting(context, &mut sending);
    }

    fn disconnected(&mut self, link: LinkName) {
        self.context.unanswered.end(link);
        match link {
            LinkName::Live => self.context.links.live = false,
            LinkName::Publish => self.context.links.publish = false,
            LinkName::Read => self.context.links.read = false,
        }
        self.peers.on_links(&mut self.context);
        self.leases.disconnected();
        self.give_up_checks();
    }

    fn run_timers(&mut self) {
        while let Some((due_us, _)) = self.context.timers.first()
            && *due_us <= self.context.now.mono_us
            && let Some((_, timer)) = self.context.timers.pop_first()
        {
            match timer {
                Timer::Fence(id) => self.sync(id, |syncs, context, stream, _| syncs.fence_overdue(context, stream)),
                Timer::Heads(id) => self.sync(id, HeadSyncs::read_missing),
                Timer::Describe(stream) => self.describe(stream),
                Timer::Audit(id) => self.sync(id, HeadSyncs::audit_if_due),
                Timer::Read(partition) => self.resume_reads(partition),
                Timer::Publish(key) => self.review_message(key),
                Timer::Linger(channel) => self.linger_over(&channel),
                Timer::BroadcastLinger(channel) => self.broadcasts.linger_over(&mut self.context, &channel),
                Timer::Gap(channel) => {
                    if self.channels.is_gap_overdue(&mut self.context, &channel) {
                        self.interrupt(&channel);
                    }
                }
                Timer::Loads(channel) => self.refuse_overdue_loads(&channel),
                Timer::PeerWindow(channel) => {
                    for load in self.window_questions.take_overdue(&channel, self.context.now.mono_us) {
                        self.serve_load(&channel, load);
                    }
                }
                Timer::PeerKeys(channel) => {
                    let (questions, context, mut asking) = self.key_questions();
                    if questions.overdue(context, &mut asking, &channel) {
                        self.send_of_channel(&channel);
                    }
                }
                Timer::Follow(channel) => self.interest.follow_overdue(&mut self.context, &channel),
                Timer::InterestCheck => {
                    let (interest, mut nodes, context) = self.interest();
                    interest.run(context, &mut nodes);
                }
                Timer::Leases => self.leases.on_timer(&mut self.context),
                Timer::RoomLog(log) => self.room_logs.advance(&mut self.context, log),
                Timer::RoomLogs => self.room_logs.on_timer(&mut self.context),
            }
        }
    }

    fn stream_keys(&self) -> impl Iterator<Item = StreamKey> + '_ {
        let leases = self.leases.has_stream().then_some(StreamKey::Leases);
        let room_logs = self.room_logs.has_stream().then_some(StreamKey::RoomLogs);
        self.partitions.ids().map(StreamKey::Partition).chain(leases).chain(room_logs)
    }

    fn watches(&self) -> impl Iterator<Item = &StreamWatch> + '_ {
        let leases = self.leases.has_stream().then_some(&self.leases.watch);
        let room_logs = self.room_logs.has_stream().then_some(&self.room_logs.watch);
        self.partitions.iter().map(|partition| &partition.stream.watch).chain(leases).chain(room_logs)
    }

    fn watch_mut(&mut self, key: StreamKey) -> (&mut StreamWatch, &mut Context) {
        let watch = match key {
            StreamKey::Partition(id) => &mut self.partitions[id].stream.watch,
            StreamKey::Leases => &mut self.leases.watch,
            StreamKey::RoomLogs => &mut self.room_logs.watch,
        };
        (watch, &mut self.context)
    }

    fn describe(&mut self, key: StreamKey) {
        let (watch, context) = self.watch_mut(key);
        watch.describe(context);
    }

    /// Other nodes learn of it with the next heartbeat.
    fn count_unusable_streams(&mut self) {
        let count = self.watches().filter(|watch| watch.is_unusable()).count();
        self.peers.set_unusable_streams(u32::try_from(count).unwrap_or(u32::MAX));
    }

    fn described(&mut self, key: StreamKey, outcome: Result<Box<StreamState>, ReadFault>) {
        let (watch, context) = self.watch_mut(key);
        let described = watch.described(context, outcome);
        self.count_unusable_streams();
        match (described, key) {
            // Each log finds out with its next message that the stream of rooms was created again.
            (Described::Nothing, _) | (Described::There(_), StreamKey::RoomLogs) => {}
            (Described::There(facts), StreamKey::Partition(id)) => self.facts_known(id, facts),
            (Described::There(facts), StreamKey::Leases) => self.leases.facts_known(&mut self.context, facts.epoch),
            (Described::Gone, _) => {
                match key {
                    StreamKey::Partition(id) => self.interrupt_all(id),
                    StreamKey::Leases => self.leases.stream_gone(&mut self.context),
                    StreamKey::RoomLogs => {}
                }
                // A stream that is gone often was not the only one: the servers have lost their disk.
                let others: Vec<StreamKey> = self.stream_keys().filter(|other| *other != key).collect();
                for other in others {
                    self.describe(other);
                }
            }
        }
    }

    fn created(&mut self, key: StreamKey, outcome: Result<Box<StreamState>, ReadFault>) {
        let (watch, context) = self.watch_mut(key);
        match watch.created(context, outcome) {
            Creation::Nothing => self.count_unusable_streams(),
            Creation::Done { epoch, state } => {
                if let StreamKey::Partition(id) = key {
                    self.partitions[id].stream.publish_first_epoch(&mut self.context, epoch);
                }
                self.described(key, Ok(state));
            }
        }
    }

    fn stream_answered(&mut self, key: StreamKey, fault: Option<&PublishFault>) {
        let (watch, context) = self.watch_mut(key);
        let answered = watch.answered(context, fault);
        if answered == Answered::Nothing {
            return;
        }
        self.count_unusable_streams();
        if let (Answered::Refusing, StreamKey::Partition(id)) = (answered, key) {
            // Its fence shows when the stream stores messages again.
            self.sync(id, HeadSyncs::audit);
        }
    }

    /// A stream has stated its epoch and its limits.
    fn facts_known(&mut self, id: PartitionId, facts: StreamFacts) {
        match self.partitions[id].stream.take_facts(facts) {
            FactsChange::None => {}
            FactsChange::First => self.partitions[id].syncs.need_audit(),
            FactsChange::Replaced => self.begin_epoch(id),
        }
        self.sync(id, HeadSyncs::start);
        self.resume_reads(id);
    }

    /// A stream, or one of its replicas, has lost a message. All positions in it become invalid, on all nodes.
    fn on_hole(&mut self, id: PartitionId) {
        self.context.counters.holes += 1;
        self.on_truncation(id);
    }

    /// A stream was truncated. All positions in it become invalid, on all nodes.
    fn on_truncation(&mut self, id: PartitionId) {
        self.context.counters.truncations += 1;
        self.partitions[id].stream.truncated(&mut self.context);
        self.begin_epoch(id);
    }

    fn epoch_arrived(&mut self, id: PartitionId, message: &StoredMessage) {
        let Some(arrived) = self.partitions[id].stream.epoch_arrived(message) else { return };
        if arrived.begins {
            self.begin_epoch(id);
        }
        if !arrived.is_described {
            self.describe(StreamKey::Partition(id));
        }
    }

    /// The positions of all channels become invalid, and subscribers with a position must resubscribe.
    fn begin_epoch(&mut self, id: PartitionId) {
        self.partitions[id].stream.begin_epoch();
        self.key_questions.seen.forget_stream(id);
        self.begin_epoch_of_channels(id);
        self.sync(id, HeadSyncs::audit_anew);
    }

    /// All positions of a partition have become invalid.
    fn begin_epoch_of_channels(&mut self, id: PartitionId) {
        self.interrupt_all(id);
        for name in self.channels.of_partition(id, |_| true) {
            let action = self.on_channel(&name, ChannelEvent::EpochBegan);
            self.act(&name, action);
        }
    }

    fn interrupt_all(&mut self, id: PartitionId) {
        for name in self.channels.of_partition(id, FollowedChannel::is_attached) {
            self.interrupt(&name);
        }
    }

    /// Calls the attaches and audits of a partition.
    fn sync<T>(
        &mut self,
        id: PartitionId,
        call: impl FnOnce(&mut HeadSyncs, &mut Context, &mut KnownStream, &mut Channels) -> T,
    ) -> T {
        let Partition { stream, syncs, .. } = &mut self.partitions[id];
        call(syncs, &mut self.context, stream, &mut self.channels)
    }

    /// The newest messages of channels were read.
    fn heads_read(&mut self, id: PartitionId, answer: HeadsAnswer) {
        let read =
            self.sync(id, |syncs, context, stream, channels| syncs.take_heads(context, stream, channels, answer));
        match read {
            HeadsRead::Nothing => {}
            HeadsRead::EpochBegan => self.begin_epoch(id),
            HeadsRead::Truncated => self.on_truncation(id),
            HeadsRead::Hole => self.on_hole(id),
            HeadsRead::Heads(heads) => {
                for name in &heads.channels {
                    // A message that has waited for its channel may have shown a truncation. The heads are of before it.
                    if !self.partitions[id].syncs.is_behind(heads.sync) {
                        return;
                    }
                    self.head_known(name, &heads);
                }
                self.sync(id, HeadSyncs::end_if_complete);
            }
        }
    }

    /// The newest message of a channel is known.
    fn head_known(&mut self, name: &Arc<str>, heads: &Heads) {
        let (head, fence) = (heads.of(name), heads.fence);
        // It may have been detached in the meantime.
        let Some(channel) = self.context.strays.found_or_late(self.channels.get_mut(name)) else { return };
        if !channel.is_attached() {
            if channel.is_attached_by(heads.attach) {
                self.attached(name, head, fence);
            }
            return;
        }
        if let Comparison::Missing { through, is_lost_tail } = channel.compare(head, fence, &self.context) {
            self.context.counters.lost_tails += u64::from(is_lost_tail);
            self.found_missing(name, through);
        }
        if let Some(channel) = self.channels.get_mut(name) {
            channel.ahead.compared(heads.attach, fence);
            self.serve_ahead(name);
        }
    }

    fn follow(&mut self, shard: ShardIndex, name: &Arc<str>, namespace: u16) {
        if self.channels.follow_again(&mut self.context, shard, name) {
            return;
        }
        let Some(partition) = self.partitions.of_channel(&self.context.options, name, namespace) else { return };
        self.attach(name, FollowedChannel::new(shard, partition));
    }

    /// Attaches a channel that the engine does not follow; it lingers.
    fn attach_for_a_while(&mut self, name: &Arc<str>, partition: PartitionId) {
        if self.channels.contains(name) {
            return;
        }
        self.attach(name, FollowedChannel::new(ShardIndex(0), partition));
        self.unfollow(name, 0);
    }

    /// Follows a channel.
    fn attach(&mut self, name: &Arc<str>, channel: FollowedChannel) {
        let id = channel.partition;
        self.channels.insert(Arc::clone(name), channel);
        self.partitions[id].syncs.attach(name);
        self.sync(id, HeadSyncs::start);
    }

    /// The newest message of a channel that is being attached is known.
    fn attached(&mut self, name: &Arc<str>, head: Option<&StoredMessage>, fence: u64) {
        let action = self.on_channel(name, ChannelEvent::HeadRead { head, fence });
        let id = self.channels.get(name).map(|channel| channel.partition);
        let Some(id) = self.context.strays.expected(id, "its newest message was read for it") else { return };
        self.context.counters.attached += 1;
        self.partitions[id].syncs.attached(name);
        if let Some(head) = head {
            self.key_questions.seen.note_message(&self.context, &self.partitions[id].stream, head);
        }
        self.channels.bound_windows(&self.context, name);
        self.act(name, action);
    }

    /// Handles what has waited for the newest message of a channel.
    fn resume(&mut self, name: &Arc<str>, waiting: Attaching) {
        for load in waiting.loads {
            self.serve_load(name, load);
        }
        for message in waiting.buffered.into_messages() {
            self.message_arrived(name, message);
        }
        self.send_of_channel(name);
    }

    fn unfollow(&mut self, name: &Arc<str>, only_user: u64) {
        if !self.channels.linger(&mut self.context, name, only_user) {
            return;
        }
        // Those that have lingered for longest end beyond the limit and the share of a user.
        while let Some(name) = self.channels.lingering.excess(self.context.options.limits.lingering_max, only_user) {
            self.detach(&name, LogError::Unavailable);
        }
    }

    fn linger_over(&mut self, name: &Arc<str>) {
        let Some(channel) = self.channels.get(name) else { return };
        if channel.following.lingers_until_us().is_none_or(|until_us| until_us > self.context.now.mono_us) {
            return;
        }
        if channel.outbox.unresolved.is_empty() {
            self.detach(name, LogError::Unavailable);
        } else {
            // Its answer comes over the channel, at the latest after `publish_timeout_ms`.
            self.unfollow(name, 0);
        }
    }

    /// It cannot be determined what a channel's subscribers have missed, so they must resubscribe.
    fn interrupt(&mut self, name: &Arc<str>) {
        let Some(channel) = self.channels.get(name) else { return };
        let (shard, is_followed) = (channel.shard, channel.is_followed());
        self.context.counters.interrupted += 1;
        self.detach(name, LogError::Unavailable);
        if is_followed {
            let event = Event::Interrupted { channel: Arc::clone(name) };
            self.context.effects.push(CoreEffect::ToShard { shard, event });
        }
    }

    /// Detaches a channel. Its pending loads are answered with the error.
    fn detach(&mut self, name: &Arc<str>, error: LogError) {
        let Some(mut channel) = self.channels.remove(&mut self.context, name) else { return };
        let id = channel.partition;
        let Partition { stream, syncs, .. } = &mut self.partitions[id];
        syncs.detach(&mut self.context, stream, name);
        for waiting in channel.take_due_loads(u64::MAX) {
            self.context.effects.push(waiting.refused(name, error));
        }
        for waiting in self.window_questions.take_loads(name) {
            self.context.effects.push(waiting.refused(name, error));
        }
        self.key_questions.drop_channel(name);
        if self.partitions[id].reads.drop_channel(&mut self.context, name, error) {
            self.resume_reads(id);
        }
        for key in channel.outbox.unresolved {
            self.outgoing.end(&mut self.context, &mut self.channels, key, Err(error));
        }
    }

    /// A message on a subscription: a fence, a change of leader, or a message of a followed channel.
    fn delivered(&mut self, subject: &str, headers: MessageHeaders, payload: Bytes) {
        if let Some(id) = self.partitions.with_leader_subject(subject) {
            let partition = &mut self.partitions[id];
            partition.stream.watch.describe(&mut self.context);
            // The new leader may not have the fence in flight.
            partition.syncs.audit_anew(&mut self.context, &mut partition.stream, &mut self.channels);
            let (outgoing, context, mut sending) = self.outgoing();
            return outgoing.send_again(context, &mut sending, id);
        }
        // A token contains no dot.
        let Some((prefix, token)) = subject.rsplit_once('.') else { return };
        let Some(id) = self.partitions.with_live_prefix(prefix) else { return };
        let message = record::republished(headers, payload);
        let Some(message) = self.context.strays.found_or_late(message) else { return };
        let marks = &mut self.partitions[id].stream.marks;
        let is_other_stream = marks.is_followed_too_low(&message);
        marks.push(&message, self.context.now.mono_us);
        if is_other_stream {
            self.partitions[id].stream.watch.describe(&mut self.context);
            self.partitions[id].syncs.audit_soon(&mut self.context, id);
        }
        if is_fence(token) {
            // A wildcard subscription receives those of other nodes as well.
            if *self.partitions[id].stream.names.live_fence_subject(&self.context.options.node) == *subject {
                let is_truncated = self.sync(id, |syncs, context, stream, channels| {
                    syncs.fence_returned(context, stream, channels, &message)
                });
                if is_truncated {
                    self.on_truncation(id);
                }
            }
            return;
        }
        if token == EPOCH_TOKEN {
            return self.epoch_arrived(id, &message);
        }
        let Some(name) = self.context.strays.found_or_late(decode_token(token)) else { return };
        // A wildcard subscription receives the messages of all channels.
        let Some(name) = self.channels.name(&name) else { return };
        self.context.counters.delivered += 1;
        self.message_arrived(&name, message);
    }

    /// Applies the rule of the chain.
    fn message_arrived(&mut self, name: &Arc<str>, message: StoredMessage) {
        let action = self.on_channel(name, ChannelEvent::Arrived(message));
        self.context.counters.gaps += u64::from(matches!(action, ChannelAction::ReadGap));
        self.act(name, action);
    }

    /// Messages of a channel are missing, up to `through`. They are read before anything later is delivered.
    fn found_missing(&mut self, name: &Arc<str>, through: u64) {
        let action = self.on_channel(name, ChannelEvent::FoundMissing { through });
        self.act(name, action);
    }

    /// The missing messages have been read: all that the stream has after the newest known one, up to the end of the
    /// gap.
    fn gap_filled(&mut self, name: &Arc<str>, messages: &[StoredMessage]) {
        for message in messages {
            let is_behind = self.channels.get(name).is_some_and(|channel| message.sequence > channel.position);
            if is_behind {
                self.context.counters.filled += 1;
                self.pass_on(name, message);
            }
        }
        let action = self.on_channel(name, ChannelEvent::GapRead);
        self.act(name, action);
        self.serve_ahead(name);
    }

    /// Gives an event to a channel. Nothing is to be done if the channel was detached in the meantime.
    fn on_channel(&mut self, name: &Arc<str>, event: ChannelEvent<'_>) -> ChannelAction {
        let Some(channel) = self.channels.get(name) else { return ChannelAction::Nothing };
        let stream = &self.partitions[channel.partition].stream;
        self.channels.on(&self.context, stream, name, event)
    }

    fn act(&mut self, name: &Arc<str>, action: ChannelAction) {
        match action {
            ChannelAction::Nothing => {}
            ChannelAction::Impossible => self.context.strays.impossible += 1,
            ChannelAction::CountLate => self.context.counters.late += 1,
            ChannelAction::Deliver(message) => self.pass_on(name, &message),
            ChannelAction::Truncated { partition } => self.on_truncation(partition),
            ChannelAction::Hole { partition } => self.on_hole(partition),
            ChannelAction::ReadGap => {
                let due_us = self.context.now.after_ms(self.context.options.limits.gap_timeout_ms);
                self.context.set_timer(due_us, Timer::Gap(Arc::clone(name)));
                self.fill(name);
            }
            ChannelAction::Resume(waiting) => self.resume(name, waiting),
            ChannelAction::Replay(buffered) => {
                for message in buffered.into_messages() {
                    self.message_arrived(name, message);
                }
            }
        }
    }

    /// Delivers the next message of a channel.
    fn pass_on(&mut self, name: &Arc<str>, message: &StoredMessage) {
        let channel = self.context.strays.expected(self.channels.get_mut(name), "the message is the next of a channel");
        let Some(channel) = channel else { return };
        let stream = &self.partitions[channel.partition].stream;
        self.key_questions.seen.note_message(&self.context, stream, message);
        let advanced = channel.advance(message, self.context.now.mono_us, stream.window_limits());
        let (shard, is_followed) = (channel.shard, channel.is_followed());
        let has_ahead = !channel.ahead.is_empty();
        let returned = channel.outbox.take_returned(channel.position);
        let own = message.headers.get(record::MESSAGE_ID).and_then(|id| self.outgoing.with_id(id, name));
        self.channels.bound_windows(&self.context, name);
        match advanced {
            Advanced::Published(record) => {
                // The engine already has this node's own publication, but not another node's duplicate of it.
                let is_known = own.is_some_and(|key| self.outgoing.has_own_id(key));
                if is_followed && !is_known {
                    let event = Event::Replicated { channel: Arc::clone(name), record };
                    self.context.effects.push(CoreEffect::ToShard { shard, event });
                }
            }
            Advanced::Purged { through } => {
                if is_followed {
                    let event = Event::Trimmed { channel: Arc::clone(name), through };
                    self.context.effects.push(CoreEffect::ToShard { shard, event });
                }
            }
        }
        for (sequence, key) in own.map(|key| (message.sequence, key)).into_iter().chain(returned) {
            self.outgoing.end(&mut self.context, &mut self.channels, key, Ok(sequence));
        }
        if has_ahead {
            self.serve_ahead(name);
        }
        // Messages that waited for them can be sent.
        self.send_of_channel(name);
    }

    /// Answers a load from the window, or reads what is missing.
    fn load(&mut self, shard: ShardIndex, name: &Arc<str>, load: LoadNumber, query: LoadQuery) {
        let due_us = self.context.now.after_ms(self.context.options.limits.load_timeout_ms);
        let waiting = WaitingLoad { due_us, shard, load, query, has_asked: false };
        let Some(channel) = self.channels.get_mut(name) else {
            return self.refuse(name, waiting);
        };
        if let Some(attaching) = channel.attaching_mut() {
            attaching.loads.push(waiting);
            self.context.set_timer(due_us, Timer::Loads(Arc::clone(name)));
        } else {
            self.serve_load(name, waiting);
        }
    }

    fn serve_load(&mut self, name: &Arc<str>, waiting: WaitingLoad) {
        let query = waiting.query;
        // The channel's loads end with it, except those that were taken out of it before: an earlier one of them may have
        // read that messages are missing, which detaches it.
        let Some(channel) = self.channels.get_mut(name) else { return self.refuse(name, waiting) };
        if let Some(after) = query.after.filter(|after| *after > channel.position) {
            return self.wait_for_position(name, waiting, after);
        }
        let stream = &self.partitions[channel.partition].stream;
        if channel.answers_from_window(query) {
            let pages = Pages::new(stream, channel, self.context.now);
            self.context.effects.push(waiting.loaded(name, pages.of_window(query)));
            return;
        }
        let (oldest, epoch) = (channel.window.oldest(), stream.current_epoch());
        let own = OwnWindow { channel: name, oldest, epoch };
        if self.window_questions.ask(&mut self.context, &self.peers, own, waiting) {
            return;
        }
        let newest = channel.newest.sequence;
        // If nothing is stored after the window's floor, only the proof for the part below it is missing.
        let after = query.after.unwrap_or(0);
        let through = if newest > after { newest } else { 0 };
        self.queue_read(name, Purpose::Load(waiting), (after, through));
    }

    /// Makes a load wait until the channel has reached its position, or nothing was published up to it.
    fn wait_for_position(&mut self, name: &Arc<str>, waiting: WaitingLoad, after: u64) {
        let channel = self.channels.get_mut(name);
        let Some(channel) = self.context.strays.expected(channel, "the channel has a position") else {
            return self.refuse(name, waiting);
        };
        let id = channel.partition;
        self.context.counters.ahead += 1;
        channel.ahead.push(waiting, after);
        self.context.set_timer(waiting.due_us, Timer::Loads(Arc::clone(name)));
        self.partitions[id].syncs.compare(name);
        self.sync(id, HeadSyncs::start);
    }

    /// Answers the loads whose position is reached, or never will be.
    fn serve_ahead(&mut self, name: &Arc<str>) {
        let Some(channel) = self.channels.get_mut(name).filter(|channel| !channel.ahead.is_empty()) else { return };
        let (position, has_gap) = (channel.position, channel.gap().is_some());
        for ready in channel.ahead.take_ready(position, has_gap) {
            match ready {
                ReadyLoad::Reached(waiting) => self.serve_load(name, waiting),
                ReadyLoad::NothingBetween { waiting, after, compared } => {
                    // As in `serve_load`, it may be gone.
                    let Some(channel) = self.channels.get(name) else {
                        self.refuse(name, waiting);
                        continue;
                    };
                    let pages = Pages::new(&self.partitions[channel.partition].stream, channel, self.context.now);
                    self.context.effects.push(waiting.loaded(name, pages.ahead(after, compared)));
                }
            }
        }
    }

    fn refuse(&mut self, name: &Arc<str>, waiting: WaitingLoad) {
        self.context.effects.push(waiting.refused(name, LogError::Unavailable));
    }

    /// Refuses the loads of a channel that have waited for too long.
    fn refuse_overdue_loads(&mut self, name: &Arc<str>) {
        // It may have been detached.
        let Some(channel) = self.channels.get_mut(name) else { return };
        for waiting in channel.take_due_loads(self.context.now.mono_us) {
            self.refuse(name, waiting);
        }
    }

    /// Reads the messages that a gap lacks.
    fn fill(&mut self, name: &Arc<str>) {
        let channel = self.channels.get(name);
        let missing = channel.and_then(|channel| Some((channel.newest.sequence, channel.gap()?.through)));
        let Some(missing) = self.context.strays.expected(missing, "a gap has begun") else { return };
        self.queue_read(name, Purpose::Fill, missing);
    }

    fn queue_read(&mut self, name: &Arc<str>, purpose: Purpose, range: (u64, u64)) {
        let number = self.context.next_number();
        let channel = self.channels.get(name);
        let Some(channel) = self.context.strays.expected(channel, "only a followed channel is read") else {
            if let Purpose::Load(waiting) = purpose {
                self.refuse(name, waiting);
            }
            return;
        };
        let id = channel.partition;
        let read = Read::new(number, name, channel, purpose, range);
        if self.partitions[id].reads.push(&mut self.context, read) {
            self.resume_reads(id);
        }
    }

    fn resume_reads(&mut self, id: PartitionId) {
        loop {
            let Partition { stream, reads, .. } = &mut self.partitions[id];
            match reads.next(&mut self.context, stream, &self.channels) {
                None => return,
                Some(EndedRead::InWindow { channel, waiting }) => self.serve_load(&channel, waiting),
                Some(EndedRead::Complete(read)) => self.end_read(id, &read),
            }
        }
    }

    fn shared_read(&mut self, id: PartitionId, outcome: Result<ReadAnswer, ReadFault>) {
        let Partition { stream, reads, .. } = &mut self.partitions[id];
        let (shared, messages) = reads.take_shared(&mut self.context, stream, outcome);
        for mut read in shared {
            let Some(channel) = self.channels.get(&read.channel) else {
                // A gap that could not be filled has detached the channel.
                self.refuse_read(&read);
                continue;
            };
            let Partition { stream, reads, .. } = &mut self.partitions[id];
            if messages.complete(&self.context, stream, channel, &mut read) {
                self.end_read(id, &read);
            } else {
                reads.push_alone(read);
            }
        }
        self.resume_reads(id);
    }

    /// A read has all messages that it needs.
    fn end_read(&mut self, id: PartitionId, read: &Read) {
        let name = &read.channel;
        let stream = &self.partitions[id].stream;
        let Some(floor) = read.complete_after(&self.context, stream, self.channels.get(name)) else {
            self.refuse_read(read);
            return self.on_hole(id);
        };
        let Purpose::Load(waiting) = read.purpose else {
            return if floor <= read.after { self.gap_filled(name, &read.messages.list) } else { self.interrupt(name) };
        };
        let seen = &mut self.key_questions.seen;
        read.messages.list.iter().for_each(|message| seen.note_message(&self.context, stream, message));
        let channel = self.channels.get_mut(name);
        let Some(channel) = self.context.strays.expected(channel, "the reads of a channel end with it") else {
            return self.refuse_read(read);
        };
        let page = Pages::new(stream, channel, self.context.now).of_read(read, floor);
        if !read.ended_early() {
            let through = read.position.min(read.below().saturating_sub(1));
            channel.window.extend_below(&read.messages.list, floor, through, stream.window_limits());
            self.channels.bound_windows(&self.context, name);
        }
        self.context.effects.push(waiting.loaded(name, page));
    }

    fn refuse_read(&mut self, read: &Read) {
        if let Purpose::Load(waiting) = read.purpose {
            self.context.effects.push(waiting.refused(&read.channel, LogError::Unavailable));
        }
    }

    /// The messages of this node, and what they are sent with.
    fn outgoing(&mut self) -> (&mut Outgoing, &mut Context, Sending<'_>) {
        let Self { context, outgoing, channels, partitions, key_questions: keys, peers, leases, .. } = self;
        (outgoing, context, Sending { channels, partitions, keys, peers, leases })
    }

    fn send_of_channel(&mut self, name: &Arc<str>) {
        let (outgoing, context, mut sending) = self.outgoing();
        outgoing.send_of_channel(context, &mut sending, name);
    }

    fn purge(&mut self, proposed: &Proposed<'_>) {
        let (name, namespace) = (proposed.channel, proposed.namespace);
        let Some(partition) = self.partitions.of_channel(&self.context.options, name, namespace) else {
            return proposed.waiter.answer(&mut self.context, Arc::clone(name), Err(LogError::Unavailable));
        };
        self.attach_for_a_while(name, partition);
        let (outgoing, context, mut sending) = self.outgoing();
        outgoing.purge(context, &mut sending, proposed, partition);
    }

    /// The stream has answered a message of this node, or there was no answer.
    fn acknowledged(&mut self, key: PublishingKey, request: RequestNumber, outcome: Result<PublishAck, PublishFault>) {
        self.outgoing.note_answer(&mut self.context, &outcome);
        if let Some((name, id)) = self.outgoing.target_of(key) {
            self.stream_answered(StreamKey::Partition(id), outcome.as_ref().err());
            let (outgoing, context, mut sending) = self.outgoing();
            match outgoing.acknowledged(context, &mut sending, (key, request), outcome) {
                Acknowledged::Nothing => {}
                Acknowledged::Truncated => self.on_truncation(id),
                Acknowledged::NewestIsOther => self.partitions[id].syncs.audit_soon(&mut self.context, id),
            }
            self.send_of_channel(&name);
        }
        let (outgoing, context, mut sending) = self.outgoing();
        outgoing.send_waiting(context, &mut sending);
    }

    /// A message's timer is due.
    fn review_message(&mut self, key: PublishingKey) {
        let (outgoing, context, mut sending) = self.outgoing();
        let Some((name, through)) = outgoing.review(context, &mut sending, key) else { return };
        // Messages of the channel are known to be stored and have not arrived: they are read.
        let is_missing = |channel: &FollowedChannel| channel.is_attached() && channel.position < through;
        if self.channels.get(&name).is_some_and(is_missing) {
            self.context.counters.gaps += 1;
            self.found_missing(&name, through);
        }
        self.outgoing.await_longer(&mut self.context, key);
    }

    /// The questions for idempotency keys, and what they are asked with.
    fn key_questions(&mut self) -> (&mut KeyQuestions, &mut Context, Asking<'_>) {
        let Self { context, outgoing, channels, partitions, key_questions, peers, leases, .. } = self;
        let messages = outgoing.messages_mut();
        (key_questions, context, Asking { channels, partitions, messages, peers, leases })
    }

    /// The table of nodes, or the connections, may have changed.
    fn review_key_questions(&mut self) {
        let (questions, _, asking) = self.key_questions();
        for name in questions.note_nodes(&asking) {
            let (questions, context, mut asking) = self.key_questions();
            if questions.review(context, &mut asking, &name) {
                self.send_of_channel(&name);
            }
        }
    }

    /// Handles a message of another node about a channel. Returns whether it is one.
    fn take_window_message(&mut self, subject: &str, payload: &Bytes) -> bool {
        if !self.peers.is_about_windows(subject) {
            return false;
        }
        match serde_json::from_slice(payload) {
            Ok(WindowMessage::Question(request)) => {
                let Some(subject) = self.peers.window_answer_subject(&request.node) else { return true };
                let channel = self.channels.get(&request.channel);
                let own = channel.map(|channel| (channel, &self.partitions[channel.partition].stream));
                let answer = request.answer(&self.context, own);
                self.context.publish(subject, MessageHeaders::new(), answer);
            }
            Ok(WindowMessage::Answer(answer)) => {
                let Self { context, window_questions, channels, partitions, .. } = self;
                if let Some((name, loads)) = window_questions.take_answer(context, channels, partitions, answer) {
                    for load in loads {
                        self.serve_load(&name, load);
                    }
                }
            }
            Ok(WindowMessage::KeyQuestion(question)) => {
                self.key_questions.answer(&mut self.context, &self.peers, &self.partitions, question);
            }
            Ok(WindowMessage::KeyAnswer(answer)) => {
                let (questions, context, mut asking) = self.key_questions();
                if let Some(name) = questions.take_answer(context, &mut asking, answer) {
                    self.send_of_channel(&name);
                }
            }
            Err(_) => self.context.strays.late += 1,
        }
        true
    }

    /// The checks of subscriptions, and what they are called with.
    fn interest(&mut self) -> (&mut InterestChecks, Nodes<'_>, &mut Context) {
        let nodes = Nodes { broadcasts: &mut self.broadcasts, peers: &self.peers };
        (&mut self.interest, nodes, &mut self.context)
    }

    fn interest_arrived(&mut self, subject: &str, headers: &MessageHeaders) -> bool {
        let (interest, mut nodes, context) = self.interest();
        interest.arrived(context, &mut nodes, subject, headers)
    }

    /// A connection is down, or the node stops, so no follow can be confirmed.
    fn give_up_checks(&mut self) {
        let (interest, mut nodes, context) = self.interest();
        interest.give_up(context, &mut nodes);
    }
}
