//! The owner of channels: orders publications, keeps history and presence, and notifies the shards with subscribers. It
//! is also the home of users and opens rooms.

mod api;
mod broadcast;
mod channel_table;
mod channels;
mod commit;
mod due;
mod history_bytes;
mod homes;
mod log;
mod newest;
mod parked;
mod peers;
mod propose;
mod reconfigure;
mod recovery;
mod room_messages;
mod room_openings;
mod rooms;

use std::{collections::BTreeMap, sync::Arc};

use dunlin_protocol::{ClientInfo, DeltaEncoder, ErrorCode};
use hashbrown::HashMap;
use rand_chacha::{
    ChaCha8Rng,
    rand_core::{RngCore, SeedableRng},
};

use crate::{
    Effects, Options, SessionKey, ShardIndex,
    answers::Answers,
    api::HistoryQuery,
    channel::{Audience, OwnedChannel},
    epochs::Epochs,
    frame::{Delivery, DeliveryBody},
    history_stream::{Reader, Stream},
    kept_bytes::KeptBytes,
    log_in_flight::LogTraffic,
    message::{HistoryPart, NotSubscribed, Notice, ShardMessage, Subscribed, Subscriber, SubscriptionRequest},
    names::namespace_options,
    pace::Bucket,
    planted::Bug,
};

use channel_table::ChannelTable;
use newest::KeyQueries;
use peers::PeerQueries;
use room_messages::WaitingMessages;
use room_openings::WaitingOpenings;

use super::{Context, Seed, ShardIdentity, room::RoomThread};

/// The channels that a shard owns, the users whose home it is, and the rooms that it has opened.
pub(super) struct Owner {
    /// Sessions on the whole node of the users whose home this shard is, if sessions are counted.
    homes: HashMap<Arc<str>, Vec<(ShardIndex, SessionKey)>, foldhash::quality::FixedState>,
    /// The number of these users' sessions on other nodes.
    elsewhere: HashMap<Arc<str>, u32, foldhash::quality::FixedState>,
    /// The state of the room threads, by index.
    room_threads: Vec<RoomThread>,
    /// The number of rooms that this shard has ever opened.
    rooms_opened: u64,
    /// The number of rooms whose world is not created yet.
    rooms_opening: usize,
    room_openings: Bucket,
    /// Rooms that were closed with joins in flight, by number: how many joins each has not answered yet.
    closed_rooms: HashMap<u64, u32, foldhash::quality::FixedState>,
    waiting_messages: WaitingMessages,
    waiting_openings: WaitingOpenings,
    channels: ChannelTable,
    /// Whether a namespace has a log other than memory.
    has_logs: bool,
    /// Whether nodes share the channels of a namespace.
    has_shared: bool,
    log_traffic: LogTraffic,
    /// Subscriptions that wait until other nodes' messages arrive or other nodes have sent their keys, by channel.
    #[allow(clippy::vec_box, reason = "they come boxed, and are passed on boxed")]
    awaiting_peers: BTreeMap<Arc<str>, Vec<Box<SubscriptionRequest>>>,
    peer_queries: PeerQueries,
    key_queries: KeyQueries,
    kept_bytes: KeptBytes,
    epochs: Epochs,
    /// Cache of answers to recoveries.
    answers: Answers,
    /// Bytes of the newest publications of keys, over the channels that this shard owns.
    cached_bytes: usize,
    /// Computes patches of publications.
    deltas: DeltaEncoder,
}

impl Owner {
    pub(super) fn new(identity: ShardIdentity, options: &Options, seed: Seed) -> Self {
        let mut of_epochs = ChaCha8Rng::from_seed(seed.shard);
        of_epochs.set_stream(1);
        let hasher = || foldhash::quality::FixedState::with_seed(seed.node);
        Self {
            homes: HashMap::with_hasher(hasher()),
            elsewhere: HashMap::with_hasher(hasher()),
            room_threads: vec![RoomThread::default(); usize::from(options.room_threads)],
            rooms_opened: 0,
            rooms_opening: 0,
            room_openings: identity.share(options.room_openings.per_second),
            closed_rooms: HashMap::default(),
            waiting_messages: WaitingMessages::default(),
            waiting_openings: WaitingOpenings::default(),
            channels: ChannelTable::new(seed.node),
            has_logs: options.has_logs(),
            has_shared: options.has_shared(),
            log_traffic: LogTraffic::default(),
            awaiting_peers: BTreeMap::new(),
            peer_queries: PeerQueries::default(),
            key_queries: KeyQueries::default(),
            kept_bytes: KeptBytes::default(),
            epochs: Epochs::new(of_epochs.next_u64()),
            answers: Answers::default(),
            cached_bytes: 0,
            deltas: DeltaEncoder::default(),
        }
    }

    /// Moves the pending requests to logs into the effects.
    pub(super) fn take_log_requests(&mut self, effects: &mut Effects) {
        let requests = &mut self.log_traffic.requests;
        // Most events have none, and this runs after each write to a session.
        if !requests.is_empty() {
            effects.list.append(requests);
        }
    }

    pub(super) fn channel_count(&self) -> usize {
        self.channels.len()
    }

    pub(super) fn answers_kept(&self) -> [usize; 2] {
        self.answers.kept()
    }

    /// Proposed publications, their bytes, and requests that wait for a page or for other nodes.
    pub(super) fn log_holdings(&self) -> [usize; 3] {
        let LogTraffic { proposals, proposal_bytes, parked, .. } = &self.log_traffic;
        [*proposals, *proposal_bytes, parked.requests() + self.peer_queries_waiting()]
    }

    pub(super) fn cached_bytes(&self) -> usize {
        self.cached_bytes
    }

    /// Updates a session's info in presence.
    pub(super) fn show_in_presence(&mut self, name: &str, info: &Arc<ClientInfo>) {
        if let Some(channel) = self.channels.named_mut(name) {
            channel.show_as(info);
        }
    }

    pub(in crate::shard) fn serve_subscribe(&mut self, context: &mut Context, request: Box<SubscriptionRequest>) {
        if request.join.is_some() {
            return self.serve_join(context, request);
        }
        if self.has_logs || self.has_shared {
            return self.subscribe_when_ready(context, request);
        }
        let outcome = self.accept_subscription(context, &request, None).map_err(NotSubscribed::from);
        self.answer_subscription(context, request, outcome);
    }

    /// Sends the result of a subscription to the session's shard, followed by the join to all subscribers.
    pub(super) fn answer_subscription(
        &mut self,
        context: &mut Context,
        request: Box<SubscriptionRequest>,
        outcome: Result<Subscribed, NotSubscribed>,
    ) {
        let outcome = outcome.map(|mut subscribed| {
            if context.planted.is(Bug::RecoveryLosesFirst) && !subscribed.publications.is_empty() {
                subscribed.publications.remove(0);
                // The shared encoding still contains it.
                subscribed.encoded = None;
            }
            subscribed
        });
        let (asker, channel) = (request.asker, Arc::clone(&request.channel));
        let info = request.subscriber.info.clone().filter(|_| request.subscriber.announced);
        let accepted = outcome.is_ok();
        context.notify(asker.shard, Notice::Subscribed { request, outcome: outcome.map(Box::new) });
        if accepted && let Some(info) = info {
            self.announce_join(context, &channel, info);
        }
    }

    /// Adds a subscriber. Its missed publications are in `page`, or in memory without one.
    pub(super) fn accept_subscription(
        &mut self,
        context: &mut Context,
        request: &SubscriptionRequest,
        page: Option<&mut Stream>,
    ) -> Result<Subscribed, ErrorCode> {
        let outcome = self.add_subscriber(context, request, page);
        if outcome.is_ok() {
            self.record_use(context.now, &request.channel, Some(request.creator), false);
        }
        self.review(context, &request.channel);
        outcome
    }

    fn add_subscriber(
        &mut self,
        context: &mut Context,
        request: &SubscriptionRequest,
        page: Option<&mut Stream>,
    ) -> Result<Subscribed, ErrorCode> {
        let namespace = context.names.resolve(&request.channel)?;
        let options = Arc::clone(&context.options);
        let namespace_options = namespace_options(&options, namespace);
        if request.positioned {
            self.stream(context, &request.channel, namespace)?;
        }
        let channel = self.owned(context, &request.channel, namespace)?;
        let subscribed = match page.as_deref().or(channel.stream.as_deref()) {
            Some(stream) if request.positioned => {
                let reader = Reader::User(request.join.as_ref().map_or("", |join| &join.info.user));
                let filter = request.filter.as_deref();
                stream.subscribe(request.recover.as_ref(), reader, filter, namespace_options, &options.client)
            }
            Some(_) | None => Ok(Subscribed::default()),
        };
        let mut subscribed = match subscribed {
            Ok(subscribed) => subscribed,
            Err(code) => {
                context.count(namespace).unrecovered += 1;
                return Err(code);
            }
        };
        channel.add(request.asker.shard, &request.subscriber);
        if request.subscriber.presence
            && let Some(info) = &request.subscriber.info
        {
            channel.enter(info);
        }
        let source = self.add_newest(context, request, &mut subscribed);
        self.encode_missed(context, namespace, request, &mut subscribed, source, page);
        if request.subscriber.class.compact {
            let key = self.channels.find(&request.channel).expect("a channel with a subscriber is not forgotten");
            subscribed.channel_number = self.channels.number_of(key, context.identity);
        }
        if subscribed.was_recovering {
            let counters = context.count(namespace);
            *(if subscribed.recovered { &mut counters.recovered } else { &mut counters.unrecovered }) += 1;
        }
        Ok(subscribed)
    }

    pub(in crate::shard) fn serve_unsubscribe(
        &mut self,
        context: &mut Context,
        name: &Arc<str>,
        shard: ShardIndex,
        subscriber: &Subscriber,
    ) {
        let channel = self.channels.named_mut(name).expect("a channel with a subscriber is not forgotten");
        channel.remove(shard, subscriber);
        if let Some(info) = &subscriber.info {
            channel.leave(info);
        }
        self.review(context, name);
        if let Some(info) = subscriber.info.as_ref().filter(|_| subscriber.announced) {
            self.announce_leave(context, name, Arc::clone(info));
        }
    }

    /// Sends a join or leave to the subscribers that receive them.
    fn send_join_or_leave(&mut self, context: &mut Context, name: &Arc<str>, body: DeliveryBody) {
        let Ok(namespace) = context.names.resolve(name) else { return };
        let delivery = Delivery::new(Arc::clone(name), namespace, body, context.now.mono_us);
        self.send_out(context, delivery, Audience::JoinLeaves);
    }

    /// Encodes a delivery once for each frame class in use, and sends it once to each listening shard.
    pub(super) fn send_out(&mut self, context: &mut Context, mut delivery: Delivery, audience: Audience) {
        let Some(channel) = self.channels.named(&delivery.channel) else { return };
        delivery = delivery.numbered(channel.number);
        for class in channel.classes(audience) {
            delivery.encode(class, &mut context.scratch);
        }
        let encodes = delivery.encodes();
        if encodes == 0 {
            return;
        }
        context.counters.namespaces[usize::from(delivery.namespace.0)].encodes += encodes as u64;
        let delivery = Arc::new(delivery);
        let Self { channels, .. } = self;
        let Context { local, identity, .. } = context;
        let channel = channels.named(&delivery.channel).expect("found above");
        let players = delivery.audience();
        let has_some = |shard| players.is_none_or(|players| !players.seats_on(shard).is_empty());
        for shard in channel.listening_shards(audience).filter(|shard| has_some(*shard)) {
            let message = ShardMessage::Notice(Notice::Deliver(Arc::clone(&delivery)));
            if shard == identity.index {
                local.push_back(message);
            } else {
                context.effects.list.push(crate::Effect::Send { to: shard, message });
            }
        }
    }

    /// The sessions in a channel's presence.
    pub(super) fn presence(&self, name: &str) -> Vec<Arc<ClientInfo>> {
        self.channels.named(name).map_or_else(Vec::new, OwnedChannel::clients)
    }

    /// As [`Owner::presence`], for a session, unless the reply exceeds its limit. A truncated list would look complete.
    pub(in crate::shard) fn presence_within(
        &mut self,
        context: &mut Context,
        name: &str,
        bytes_max: usize,
    ) -> Result<Vec<Arc<ClientInfo>>, ErrorCode> {
        let Some(channel) = self.channels.named(name) else { return Ok(Vec::new()) };
        if channel.clients_fit(bytes_max) {
            return Ok(channel.clients());
        }
        let namespace = channel.namespace;
        context.count(namespace).presences_refused += 1;
        Err(ErrorCode::LimitExceeded)
    }

    /// The number of sessions and distinct users in a channel's presence.
    pub(in crate::shard) fn presence_stats(&self, name: &str) -> (u32, u32) {
        self.channels.named(name).map_or((0, 0), OwnedChannel::presence_stats)
    }

    /// A part of a channel's history. A channel without a stream is answered as an empty one, and no state is created
    /// for it.
    pub(super) fn history(
        &mut self,
        context: &mut Context,
        name: &Arc<str>,
        query: &HistoryQuery,
        reader: Reader<'_>,
    ) -> Result<HistoryPart, ErrorCode> {
        let namespace = context.names.resolve(name)?;
        let has_stream = self.channels.named(name).is_some_and(|channel| channel.stream.is_some());
        let part = if has_stream {
            self.stream(context, name, namespace)?.history(query, reader)?
        } else {
            Stream::new(self.epochs.of(name)).history(query, reader)?
        };
        context.count(namespace).histories_cut += u64::from(part.is_cut);
        Ok(part)
    }
}
