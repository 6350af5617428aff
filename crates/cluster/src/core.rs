//! The cluster protocol as a state machine: events in, effects out. It does no I/O, reads no clock, and is
//! deterministic.
//!
//! - *Attach* ([`sync`]): the node subscribes to a channel's live subject. Then it publishes a fence, a message of its
//!   own in the same stream, on the same connection. When the fence comes back, the subscription is known to be active,
//!   and the node reads the newest message of each channel from a replica that has the fence. From there on the chain
//!   holds.
//! - *Chain* ([`channel`], [`follow`]): each republished message names its predecessor in its channel. Late and duplicate
//!   messages are dropped. A missing one is read from the stream before anything later is delivered.
//! - *Audit* ([`sync`]): a lost message without a successor breaks no chain. So the newest messages are compared after
//!   each change of the stream's leader, each reconnect, each overflow, and every 30 seconds.
//! - *Epoch* ([`truncation`], [`epoch`], [`known_stream`]): a stream that was truncated begins a new epoch, in which no older position is
//!   valid.
//! - *Holes* ([`holes`]): each message names its predecessors, so that a read shows when one of them is missing.
//! - *Standing* ([`standing`]): whether each stream exists and stores messages. One that is gone is created again.
//! - *Publish* ([`publish`]): each message has an id, by which the stream drops duplicates. It is retried until the
//!   stream has acknowledged it, and committed when it comes back in the order of the stream.
//! - *Broadcast* ([`broadcast`]): publications without an offset are sent over core NATS, at most once. A follow is
//!   answered when the servers of all nodes know the subscription ([`interest`]).
//! - *Load* ([`read`], [`page`], [`ahead`]): pages of history, with a proof of completeness. The stream keeps one message more
//!   than the history of a channel, so if it has at most as many messages after a position as the history, none was
//!   trimmed. Another node may have the messages of a channel that this node has just attached in memory
//!   ([`peer_window`]).
//! - *Keys* ([`seen_idempotency_keys`], [`idempotency_questions`]): the idempotency keys of the stream, which its servers may forget.
//! - *Nodes* ([`peers`]): heartbeats, and queries to the live nodes.
//! - *Leases* ([`leases`]): which nodes are live, decided by a stream.

mod ahead;
mod broadcast;
mod channel;
mod channels;
mod context;
mod counters;
mod epoch;
mod event;
mod follow;
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
mod seen_idempotency_keys;
mod silence;
mod standing;
mod sync;
mod timers;
mod truncation;
mod window;

use std::sync::Arc;

use dunlin_engine::{
    Now, ShardIndex,
    log::{LoadNumber, LoadQuery, LogError},
};

use crate::{
    link::{LinkEvent, LinkName, MessageHeaders, PublishFault, ReadAnswer, ReadFault, StoredMessage, StreamState},
    names::PartitionId,
    planted::CoreBug,
};

pub use broadcast::{BroadcastDrop, BroadcastNamespace};
pub use counters::{CoreCounters, StrayCounters};
pub(crate) use epoch::epoch_of;
pub use event::{CoreEffect, CoreEvent};
pub use options::{CoreLimits, CoreOptions, StreamedNamespace};
pub use standing::{StreamChange, StreamTrouble, UnusableStream};

use ahead::ReadyLoad;
use broadcast::Broadcasts;
use channel::{Comparison, FollowedChannel, WaitingLoad};
use channels::Channels;
use context::Context;
use idempotency_questions::KeyQuestions;
use interest::{InterestChecks, Nodes};
use known_stream::{FactsChange, KnownStream, StreamFacts};
use leases::Leases;
use page::Pages;
use partition::{Partition, Partitions};
use peer_window::WindowQuestions;
use peers::{LiveNode, PeerEvent, Peers};
use publish::{Outgoing, Waiter};
use read::{EndedRead, Purpose, Read};
use seen_idempotency_keys::SeenKeys;
use standing::{Answered, Creation, Described, StreamKey, StreamWatch};
use sync::{HeadSyncs, Heads, HeadsAnswer, HeadsRead};
use timers::{LinksUp, Requester, Timer};

/// The protocol of one node.
#[derive(Debug)]
pub struct Core {
    context: Context,
    peers: Peers,
    leases: Leases,
    partitions: Partitions,
    channels: Channels,
    broadcasts: Broadcasts,
    interest: InterestChecks,
    window_questions: WindowQuestions,
    key_questions: KeyQuestions,
    outgoing: Outgoing,
    seen_keys: SeenKeys,
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
            context: Context::new(options),
            channels: Channels::default(),
            window_questions: WindowQuestions::default(),
            key_questions: KeyQuestions::default(),
            outgoing: Outgoing::default(),
            seen_keys: SeenKeys::default(),
        }
    }

    /// Plants a bug in the core.
    #[cfg(feature = "planted-bugs")]
    pub fn plant(&mut self, bug: CoreBug) {
        self.context.planted = crate::planted::PlantedInCore::of(bug);
    }

    /// Handles one event. The caller performs the effects in order.
    pub fn handle(&mut self, now: Now, event: CoreEvent, effects: &mut Vec<CoreEffect>) {
        self.context.now = now;
        // One argument instead of two through all methods. The lists are moved, not copied.
        std::mem::swap(&mut self.context.effects, effects);
        match event {
            CoreEvent::Link(event) => self.on_link(event),
            CoreEvent::Propose { shard, channel, namespace, proposal, record } => {
                self.propose(shard, &channel, namespace, proposal, &record);
            }
            CoreEvent::Load { shard, channel, load, query } => self.load(shard, &channel, load, query),
            CoreEvent::Trim { shard, channel, namespace, ticket } => {
                let waiter = ticket.map_or(Waiter::Nobody, |ticket| Waiter::Trim { shard, ticket });
                self.purge(&channel, namespace, waiter);
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
                    self.leases.release(&mut self.context);
                }
                self.peers.handle(&mut self.context, event);
                self.give_up_checks();
            }
            CoreEvent::Woke => {}
        }
        self.run_timers();
        self.peers.run_deadlines(&mut self.context);
        let (interest, mut nodes, context) = self.interest();
        interest.review_nodes(context, &mut nodes);
        self.leases.review(&mut self.context, &self.peers);
        self.review_key_questions();
        std::mem::swap(&mut self.context.effects, effects);
    }

    /// The time of the next [`CoreEvent::Woke`], on the clock of [`Now::mono_us`].
    pub fn next_deadline_us(&self) -> Option<u64> {
        let timer = self.context.timers.first().map(|(due_us, _)| *due_us);
        [timer, self.peers.next_deadline_us()].into_iter().flatten().min()
    }

    /// The counters.
    pub fn counters(&self) -> CoreCounters {
        let (followed, in_flight) = (self.channels.len() as u64, self.outgoing.in_flight as u64);
        let (broadcast_channels, peers) = (self.broadcasts.channel_count() as u64, self.peers.counters());
        let leases = self.leases.counters();
        let (seen_keys, seen_keys_bytes) = self.seen_keys.size();
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
        self.peers.has_departed() && !self.leases.is_releasing()
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
            LinkEvent::Acknowledged { request, outcome } => match self.context.requests.remove(&request) {
                Some(Requester::Publish(key)) => self.acknowledged(key, request, outcome),
                Some(Requester::Lease) => {
                    Leases::note_silence(&mut self.context, &outcome);
                    self.stream_answered(StreamKey::Leases, outcome.as_ref().err());
                    self.leases.acknowledged(&mut self.context, request, outcome);
                }
                Some(Requester::Fence(partition)) => {
                    self.stream_answered(StreamKey::Partition(partition), outcome.as_ref().err());
                }
                other => self.context.count_other_requester(other),
            },
            LinkEvent::Answered { request, outcome } => {
                let outcome = read::without_damaged(&mut self.context, outcome);
                match self.context.requests.remove(&request) {
                    Some(Requester::Heads { partition, chunk, sync }) => {
                        self.heads_read(partition, HeadsAnswer { chunk, sync, outcome });
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
                    other => self.context.count_other_requester(other),
                }
            }
            LinkEvent::StreamInfo { request, outcome } => match self.context.requests.remove(&request) {
                Some(Requester::Describe(stream)) => self.described(stream, outcome),
                Some(Requester::Create(stream)) => self.created(stream, outcome),
                other => self.context.count_other_requester(other),
            },
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
        self.send_waiting();
    }

    fn disconnected(&mut self, link: LinkName) {
        self.context.silence.end(link);
        match link {
            LinkName::Live => self.context.links.live = false,
            LinkName::Publish => self.context.links.publish = false,
            LinkName::Read => self.context.links.read = false,
        }
        self.peers.on_links(&mut self.context);
        self.leases.disconnected();
        self.give_up_checks();
    }

    fn stream_keys(&self) -> impl Iterator<Item = StreamKey> + '_ {
        let leases = self.leases.has_stream().then_some(StreamKey::Leases);
        self.partitions.ids().map(StreamKey::Partition).chain(leases)
    }

    fn watches(&self) -> impl Iterator<Item = &StreamWatch> + '_ {
        let leases = self.leases.has_stream().then_some(&self.leases.watch);
        self.partitions.iter().map(|partition| &partition.stream.watch).chain(leases)
    }

    fn watch_mut(&mut self, key: StreamKey) -> (&mut StreamWatch, &mut Context) {
        let watch = match key {
            StreamKey::Partition(id) => &mut self.partitions[id].stream.watch,
            StreamKey::Leases => &mut self.leases.watch,
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
            (Described::Nothing, _) => {}
            (Described::There(facts), StreamKey::Partition(id)) => self.facts_known(id, facts),
            (Described::There(facts), StreamKey::Leases) => self.leases.facts_known(&mut self.context, facts.epoch),
            (Described::Gone, _) => {
                match key {
                    StreamKey::Partition(id) => self.interrupt_all(id),
                    StreamKey::Leases => self.leases.stream_gone(&mut self.context),
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
        if self.context.planted.is(CoreBug::TruncationNotNoticed) {
            return;
        }
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
        self.seen_keys.forget_stream(id);
        self.begin_epoch_of_channels(id);
        self.sync(id, HeadSyncs::audit_anew);
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

    /// Answers a load from the window, or reads what is missing.
    fn load(&mut self, shard: ShardIndex, name: &Arc<str>, load: LoadNumber, query: LoadQuery) {
        let due_us = self.context.now.after_ms(self.context.options.limits.load_timeout_ms);
        let waiting = WaitingLoad { due_us, shard, load, query, has_asked: false };
        let Some(channel) = self.channels.get_mut(name) else {
            return self.context.effects.push(waiting.refused(name, LogError::Unavailable));
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
        let channel = self.channels.get_mut(name);
        let Some(channel) = self.context.strays.expected(channel, "the loads of a channel end with it") else {
            return self.context.effects.push(waiting.refused(name, LogError::Unavailable));
        };
        let is_ahead =
            |after: &u64| *after > channel.position && !self.context.planted.is(CoreBug::PositionAheadRefused);
        if let Some(after) = query.after.filter(is_ahead) {
            return self.wait_for_position(name, waiting, after);
        }
        if channel.answers_from_window(query) {
            let pages = Pages::new(&self.partitions[channel.partition].stream, channel, self.context.now);
            self.context.effects.push(waiting.loaded(name, pages.of_window(query)));
            return;
        }
        if self.ask_for_window(name, waiting) {
            return;
        }
        let newest = self.channels.get(name).map_or(0, |channel| channel.newest.sequence);
        // If nothing is stored after the window's floor, only the proof for the part below it is missing.
        let after = query.after.unwrap_or(0);
        let through = if newest > after { newest } else { 0 };
        self.queue_read(name, Purpose::Load(waiting), (after, through));
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
        let Some(channel) = self.context.strays.expected(channel, "only a followed channel is read") else { return };
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
        read.messages.list.iter().for_each(|message| self.note_key(self.context.now, id, message));
        let channel = self.channels.get_mut(name);
        let Some(channel) = self.context.strays.expected(channel, "the reads of a channel end with it") else {
            return self.refuse_read(read);
        };
        let stream = &self.partitions[id].stream;
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

    /// Refuses the loads of a channel that have waited for too long.
    fn refuse_overdue_loads(&mut self, name: &Arc<str>) {
        // It may have been detached.
        let Some(channel) = self.channels.get_mut(name) else { return };
        for waiting in channel.take_due_loads(self.context.now.mono_us) {
            self.context.effects.push(waiting.refused(name, LogError::Unavailable));
        }
    }

    /// Makes a load wait until the channel has reached its position, or nothing was published up to it.
    fn wait_for_position(&mut self, name: &Arc<str>, waiting: WaitingLoad, after: u64) {
        let channel = self.channels.get_mut(name);
        let Some(channel) = self.context.strays.expected(channel, "the channel has a position") else { return };
        let id = channel.partition;
        self.context.counters.ahead += 1;
        channel.ahead.push(waiting, after);
        self.context.set_timer(waiting.due_us, Timer::Loads(Arc::clone(name)));
        self.partitions[id].syncs.compare(name);
        self.sync(id, HeadSyncs::start);
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

    /// Follows a channel.
    fn attach(&mut self, name: &Arc<str>, channel: FollowedChannel) {
        let id = channel.partition;
        self.channels.insert(Arc::clone(name), channel);
        self.partitions[id].syncs.attach(name);
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
                    // What an earlier one has read may have detached it.
                    let Some(channel) = self.channels.get(name) else { continue };
                    let pages = Pages::new(&self.partitions[channel.partition].stream, channel, self.context.now);
                    self.context.effects.push(waiting.loaded(name, pages.ahead(after, compared)));
                }
            }
        }
    }

    fn run_timers(&mut self) {
        while let Some((due_us, _)) = self.context.timers.first()
            && *due_us <= self.context.now.mono_us
            && let Some((_, timer)) = self.context.timers.pop_first()
        {
            match timer {
                Timer::Fence(id) => self.sync(id, HeadSyncs::fence_overdue),
                Timer::Heads(id) => self.sync(id, HeadSyncs::read_missing),
                Timer::Describe(stream) => self.describe(stream),
                Timer::Audit(id) => self.sync(id, HeadSyncs::audit_if_due),
                Timer::Read(partition) => self.resume_reads(partition),
                Timer::Publish(key) => self.review_publishing(key),
                Timer::Linger(channel) => self.linger_over(&channel),
                Timer::BroadcastLinger(channel) => self.broadcasts.linger_over(&mut self.context, &channel),
                Timer::Gap(channel) => self.gap_overdue(&channel),
                Timer::Loads(channel) => self.refuse_overdue_loads(&channel),
                Timer::PeerWindow(channel) => self.window_overdue(&channel),
                Timer::PeerKeys(channel) => self.keys_overdue(&channel),
                Timer::Follow(channel) => self.interest.follow_overdue(&mut self.context, &channel),
                Timer::InterestCheck => {
                    let (interest, mut nodes, context) = self.interest();
                    interest.run(context, &mut nodes);
                }
                Timer::Leases => self.leases.on_timer(&mut self.context),
            }
        }
    }
}
