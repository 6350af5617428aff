//! The owner of channels: orders publications, keeps history and presence, and notifies the shards with subscribers. It
//! is also the home of users and opens rooms.
//!
//! [`Owner`] takes the requests and events about channels and passes them on to what they concern: the table of channels
//! ([`channel_table`]), their histories ([`histories`]), logs ([`log_traffic`]), rooms ([`room_directory`]), the homes of
//! users ([`homes`]) and queries to other nodes ([`presence_queries`], [`room_queries`], [`pages`]). What concerns several of them is here
//! and in [`publish`], [`pages`] and [`rooms`].

mod channel_table;
mod histories;
mod homes;
mod log_traffic;
mod presence_queries;
mod room_directory;
mod room_queries;

mod pages;
mod publish;
mod rooms;

use std::sync::Arc;

use dunlin_protocol::ErrorCode;
use rand_chacha::{
    ChaCha8Rng,
    rand_core::{RngCore, SeedableRng},
};

use crate::{
    Effects, Options, ShardIndex,
    api::{ApiAnswer, ApiRequest, ApiResult, Survey},
    backend::PublishHow,
    broadcast::BroadcastMessage,
    channel::{Audience, ChannelKey, Following, OwnedChannel},
    counters::ChannelRefusal,
    creators::{ChannelCreator, CreatorKind},
    event::{ClusterPresence, PeerQueryNumber, PresenceKind, Ticket},
    frame::{Delivery, DeliveryBody},
    history_stream::{Reader, Stream},
    log_in_flight::{Draft, HistoryReader, ProposalParams, ReplyTo},
    message::{NotSubscribed, Notice, ShardRequest, Subscribed, Subscriber, SubscriptionRequest},
    names::{NamespaceIndex, namespace_options},
    options::NamespaceOptions,
    refused::Refused,
    token_bucket::RefillRate,
};

use channel_table::ChannelTable;
use histories::{Histories, add_newest, keys_for_peer};
use homes::UserHomes;
use log_traffic::LogTraffic;
use pages::KeyQueries;
use presence_queries::{PresenceCommand, PresenceQueries};
use publish::send_out;
use room_directory::{BackendMessage, NO_PUBLICATIONS, RoomDirectory};
use room_queries::RoomQueries;

use super::{Context, HISTORY_OFF, NamespaceChange, PRESENCE_OFF, Seed, ShardIdentity};

/// The channels that a shard owns, the users whose home it is, and the rooms that it has opened.
pub(super) struct Owner {
    channels: ChannelTable,
    histories: Histories,
    log_traffic: LogTraffic,
    key_queries: KeyQueries,
    presence_queries: PresenceQueries,
    rooms: RoomDirectory,
    room_queries: RoomQueries,
    homes: UserHomes,
    /// Whether a namespace has a log other than memory.
    has_logs: bool,
    /// Whether nodes share the channels of a namespace.
    has_shared: bool,
}

/// A channel that a request or an event names. Its name is looked up once, where it arrives.
#[derive(Debug)]
struct NamedChannel<'a> {
    name: &'a Arc<str>,
    namespace: NamespaceIndex,
    /// `None` until the channel exists.
    key: Option<ChannelKey>,
}

impl Owner {
    pub(super) fn new(identity: ShardIdentity, options: &Options, seed: Seed) -> Self {
        let mut of_epochs = ChaCha8Rng::from_seed(seed.shard);
        of_epochs.set_stream(1);
        Self {
            channels: ChannelTable::new(seed.node),
            histories: Histories::new(of_epochs.next_u64()),
            log_traffic: LogTraffic::default(),
            key_queries: KeyQueries::default(),
            presence_queries: PresenceQueries::default(),
            rooms: RoomDirectory::new(identity, options),
            room_queries: RoomQueries::default(),
            homes: UserHomes::new(seed.node),
            has_logs: options.has_logs(),
            has_shared: options.has_shared(),
        }
    }

    /// Handles a request about a channel that this shard owns, or about a user whose home it is.
    pub(super) fn serve(&mut self, context: &mut Context, request: ShardRequest) {
        match request {
            ShardRequest::Subscribe(request) if request.join.is_some() => self.serve_join(context, request),
            ShardRequest::Subscribe(request) => self.subscribe_when_ready(context, request),
            ShardRequest::Unsubscribe { channel, shard, subscriber, seat } => {
                let key = self.channels.find(&channel).expect("a channel with a subscriber is not forgotten");
                if let Some(left) = seat {
                    self.serve_leave(key, left, &mut context.effects);
                }
                self.serve_unsubscribe(context, key, shard, &subscriber);
            }
            ShardRequest::Arrive { user, asker } => self.homes.serve_arrival(context, user, asker),
            ShardRequest::Depart { user, shard, session } => {
                self.homes.serve_departure(context, &user, shard, session);
            }
            ShardRequest::Publish { channel, data, info, how, creator, asker } => {
                let draft = Draft { data, info: Some(info), how: *how, audience: None, creator: Some(creator) };
                self.propose(context, &channel, draft, ReplyTo::Session(asker));
            }
            ShardRequest::ShowAs { channel, info } => {
                if let Some(key) = self.channels.find(&channel) {
                    self.channels[key].show_as(&info);
                }
            }
            ShardRequest::Presence { channel, bytes_max, asker } => {
                self.serve_presence(
                    context,
                    channel,
                    PresenceCommand { kind: PresenceKind::Clients, bytes_max, asker },
                );
            }
            ShardRequest::PresenceStats { channel, asker } => {
                let (kind, bytes_max) = (PresenceKind::Stats, usize::MAX);
                self.serve_presence(context, channel, PresenceCommand { kind, bytes_max, asker });
            }
            ShardRequest::History { channel, query, reader, asker } => {
                let reader = HistoryReader::User(reader);
                self.serve_history(context, &channel, query, reader, ReplyTo::Session(asker));
            }
        }
    }

    /// Handles a request of the server API, and answers it as soon as possible.
    pub(super) fn serve_api(&mut self, context: &mut Context, ticket: Ticket, request: ApiRequest) {
        let answer = match request {
            ApiRequest::Publish { channel, .. } if context.is_room(&channel) => {
                Err(Refused::new(ErrorCode::NotAvailable, NO_PUBLICATIONS))
            }
            ApiRequest::Publish { channel, data, how } => {
                let draft = Draft { data, info: None, how, audience: None, creator: None };
                return self.propose(context, &channel.into(), draft, ReplyTo::Api(ticket));
            }
            ApiRequest::History { channel, query } => {
                match context.require(&channel, NamespaceOptions::has_stream, HISTORY_OFF) {
                    Ok(()) => {
                        let (name, reply_to) = (channel.into(), ReplyTo::Api(ticket));
                        return self.serve_history(context, &name, query, HistoryReader::Server, reply_to);
                    }
                    Err(refused) => Err(refused),
                }
            }
            ApiRequest::SendToRoom { channel, data } => {
                return self.send_message_to_room(context, ticket, &channel, BackendMessage::Data(data));
            }
            ApiRequest::ChangeListing { channel, change } => {
                let message = BackendMessage::Listing(change);
                return self.send_message_to_room(context, ticket, &channel, message);
            }
            ApiRequest::KickFromRoom { channel, order } => {
                return self.send_message_to_room(context, ticket, &channel, BackendMessage::Kick(order));
            }
            ApiRequest::OpenRoom { channel, overrides } => {
                return self.open_room_by_api(context, ticket, &channel.into(), &overrides);
            }
            ApiRequest::HistoryRemove { channel } => match self.remove_history(context, &channel.into(), ticket) {
                Ok(None) => return,
                Ok(Some(done)) => Ok(done),
                Err(refused) => Err(refused),
            },
            request => self.carry_out_api(context, request),
        };
        context.answer_api(ticket, answer);
    }

    /// Handles requests that are answered at once.
    fn carry_out_api(&mut self, context: &mut Context, request: ApiRequest) -> ApiResult {
        match request {
            ApiRequest::Presence { channel } => {
                context.require(&channel, |options| options.presence, PRESENCE_OFF)?;
                let clients = self.channels.named(&channel).map_or_else(Vec::new, OwnedChannel::clients);
                Ok(ApiAnswer::Presence(clients))
            }
            ApiRequest::PresenceStats { channel } => {
                context.require(&channel, |options| options.presence, PRESENCE_OFF)?;
                let (num_clients, num_users) =
                    self.channels.named(&channel).map_or((0, 0), OwnedChannel::presence_stats);
                Ok(ApiAnswer::PresenceStats { num_clients, num_users })
            }
            ApiRequest::NewestKeys { channel } => {
                context.resolve(&channel)?;
                let keys =
                    self.channels.named(&channel).map_or_else(Vec::new, |channel| keys_for_peer(context, channel));
                Ok(ApiAnswer::NewestKeys(keys))
            }
            ApiRequest::RoomState { channel, wait_ms } => {
                Ok(ApiAnswer::RoomState(self.room_state_for_peer(context, channel.into(), wait_ms)?))
            }
            ApiRequest::Channels => {
                let subscribed = self.channels.iter().filter(|channel| channel.subscribers() > 0);
                let counted = subscribed.map(|channel| (Arc::clone(&channel.name), channel.subscribers()));
                Ok(ApiAnswer::Channels(counted.collect()))
            }
            ApiRequest::CloseRoom { channel } => self.close_room_by_api(context, &channel),
            ApiRequest::ReservePlaces { channel, reservations } => self.reserve_places(context, &channel, reservations),
            request => unreachable!("{request:?} is not about a channel"),
        }
    }

    pub(super) fn survey(&self, survey: &mut Survey) {
        survey.cached_bytes = self.histories.key_bytes() as u64;
        survey.channels = self.channels.iter().filter(|channel| channel.subscribers() > 0).count() as u32;
    }

    /// Removes a channel's history, and returns the answer; `None` if the log answers the ticket when it has stored it.
    fn remove_history(
        &mut self,
        context: &mut Context,
        name: &Arc<str>,
        ticket: Ticket,
    ) -> Result<Option<ApiAnswer>, Refused> {
        context.require(name, NamespaceOptions::keeps_publications, HISTORY_OFF)?;
        let mut channel = self.channels.find(name).and_then(|key| self.channels.get_mut(key));
        if let Some(channel) = channel.as_deref_mut() {
            self.histories.remove_keys(context, channel);
            self.histories.clear_stream(channel);
        }
        let is_logged = self.has_logs && context.is_logged_name(name);
        match channel {
            Some(channel) => {
                if is_logged {
                    self.log_traffic.trim(channel, Some(ticket));
                }
                self.histories.count_stream(context, channel);
            }
            None if is_logged => self.log_traffic.trim_through(name, u64::MAX, Some(ticket)),
            None => {}
        }
        Ok((!is_logged).then_some(ApiAnswer::Done { sessions: 0 }))
    }

    fn serve_presence(&mut self, context: &mut Context, channel: Arc<str>, command: PresenceCommand) {
        let owned = self.channels.named(&channel);
        self.presence_queries.serve(context, channel, owned, command);
    }

    /// Answers the presence commands that waited for the other nodes.
    pub(super) fn peers_answered(
        &mut self,
        context: &mut Context,
        query: PeerQueryNumber,
        outcome: &Result<ClusterPresence, ErrorCode>,
    ) {
        self.presence_queries.peers_answered(context, query, outcome);
    }

    /// Stores the number of a user's sessions on other nodes.
    pub(super) fn count_elsewhere(&mut self, context: &Context, user: Arc<str>, sessions: u32) {
        self.homes.count_elsewhere(context, user, sessions);
    }

    /// Accepts or refuses a subscription to a channel that was looked up, and answers it.
    fn subscribe(
        &mut self,
        context: &mut Context,
        mut key: Option<ChannelKey>,
        request: Box<SubscriptionRequest>,
        page: Option<&mut Stream>,
    ) {
        let outcome = self.accept_named(context, &mut key, &request, page).map_err(NotSubscribed::from);
        self.answer_subscription(context, key, request, outcome);
    }

    /// As [`Owner::accept_subscription`], if the name of the channel is still allowed. Sets the key of the channel.
    fn accept_named(
        &mut self,
        context: &mut Context,
        key: &mut Option<ChannelKey>,
        request: &SubscriptionRequest,
        page: Option<&mut Stream>,
    ) -> Result<Subscribed, Refused> {
        let namespace = match context.names.resolve(&request.channel) {
            Ok(namespace) => namespace,
            Err(code) => {
                self.review_if_any(context, *key);
                return Err(code.into());
            }
        };
        let mut channel = NamedChannel { name: &request.channel, namespace, key: *key };
        let outcome = self.accept_subscription(context, &mut channel, request, page);
        *key = channel.key;
        outcome
    }

    /// Adds a subscriber. Its missed publications are in `page`, or in memory without one.
    fn accept_subscription(
        &mut self,
        context: &mut Context,
        channel: &mut NamedChannel<'_>,
        request: &SubscriptionRequest,
        page: Option<&mut Stream>,
    ) -> Result<Subscribed, Refused> {
        let outcome = self.add_subscriber(context, channel, request, page);
        if let Some(key) = channel.key {
            if outcome.is_ok() {
                self.channels.record_use(key, context.now, Some(request.creator), false);
            }
            self.review(context, key);
        }
        outcome
    }

    fn add_subscriber(
        &mut self,
        context: &mut Context,
        channel: &mut NamedChannel<'_>,
        request: &SubscriptionRequest,
        page: Option<&mut Stream>,
    ) -> Result<Subscribed, Refused> {
        let namespace = channel.namespace;
        let key = self.ensure(context, channel)?;
        let channel = &mut self.channels[key];
        if request.positioned {
            self.histories.open_stream(context, channel);
        }
        let subscribed = match page.as_deref().or(channel.stream.as_deref()) {
            Some(stream) if request.positioned => {
                let options = namespace_options(&context.options, namespace);
                let reader = Reader::User(request.join.as_ref().map_or("", |join| &join.info.user));
                let filter = request.filter.as_deref();
                stream.subscribe(request.recover.as_ref(), reader, filter, options, &context.options.client)
            }
            Some(_) | None => Ok(Subscribed::default()),
        };
        let mut subscribed = match subscribed {
            Ok(subscribed) => subscribed,
            Err(code) => {
                context.count(namespace).unrecovered += 1;
                return Err(code.into());
            }
        };
        channel.add(request.asker.shard, &request.subscriber);
        if request.subscriber.presence
            && let Some(info) = &request.subscriber.info
        {
            channel.enter(info);
        }
        let source = add_newest(context, channel, request, &mut subscribed);
        self.histories.encode_missed(context, channel, request, (&mut subscribed, source), page);
        if request.subscriber.class.compact {
            subscribed.channel_number = self.channels.number_of(key, context.identity);
        }
        if subscribed.was_recovering {
            let counters = context.count(namespace);
            *(if subscribed.recovered { &mut counters.recovered } else { &mut counters.unrecovered }) += 1;
            counters.recovered_publications += subscribed.publications.len() as u64;
        }
        Ok(subscribed)
    }

    fn refuse_subscription(
        &mut self,
        context: &mut Context,
        key: Option<ChannelKey>,
        request: Box<SubscriptionRequest>,
        refused: Refused,
    ) {
        self.review_if_any(context, key);
        self.answer_subscription(context, key, request, Err(refused.into()));
    }

    /// Sends the result of a subscription to the session's shard, followed by the join to all subscribers.
    fn answer_subscription(
        &mut self,
        context: &mut Context,
        key: Option<ChannelKey>,
        request: Box<SubscriptionRequest>,
        outcome: Result<Subscribed, NotSubscribed>,
    ) {
        let (asker, name) = (request.asker, Arc::clone(&request.channel));
        let info = request.subscriber.info.clone().filter(|_| request.subscriber.announced);
        let accepted = outcome.is_ok();
        context.notify(asker.shard, Notice::Subscribed { request, outcome: outcome.map(Box::new) });
        if accepted && let Some(info) = info {
            self.announce(context, (&name, key), BroadcastMessage::Join(info));
        }
    }

    fn serve_unsubscribe(
        &mut self,
        context: &mut Context,
        key: ChannelKey,
        shard: ShardIndex,
        subscriber: &Subscriber,
    ) {
        let channel = &mut self.channels[key];
        channel.remove(shard, subscriber);
        if let Some(info) = &subscriber.info {
            channel.leave(info);
        }
        let left = subscriber.info.as_ref().filter(|_| subscriber.announced);
        let left = left.map(|info| (Arc::clone(&channel.name), Arc::clone(info)));
        self.review(context, key);
        if let Some((name, info)) = left {
            self.announce(context, (&name, Some(key)), BroadcastMessage::Leave(info));
        }
    }

    /// Sends a join or leave to the subscribers on all nodes.
    fn announce(&self, context: &mut Context, (name, key): (&Arc<str>, Option<ChannelKey>), message: BroadcastMessage) {
        let Ok(namespace) = context.names.resolve(name) else { return };
        let body = match &message {
            BroadcastMessage::Join(info) => DeliveryBody::Join(Arc::clone(info)),
            BroadcastMessage::Leave(info) => DeliveryBody::Leave(Arc::clone(info)),
            BroadcastMessage::Publication(_) => unreachable!("a publication is delivered when it is committed"),
        };
        self.send_join_or_leave(context, key, namespace, body);
        if context.is_shared(namespace) {
            context.broadcast(name, message);
        }
    }

    /// Sends a join or leave to the subscribers that receive them.
    fn send_join_or_leave(
        &self,
        context: &mut Context,
        key: Option<ChannelKey>,
        namespace: NamespaceIndex,
        body: DeliveryBody,
    ) {
        let Some(channel) = key.and_then(|key| self.channels.get(key)) else { return };
        let delivery = Delivery::new(Arc::clone(&channel.name), namespace, body, context.now.mono_us);
        send_out(context, channel, delivery, Audience::JoinLeaves);
    }

    /// Delivers a broadcast of another node: what has no offset.
    pub(super) fn broadcast_received(&mut self, context: &mut Context, name: &Arc<str>, message: BroadcastMessage) {
        let found = self.channels.find(name).map(|key| (key, self.channels[key].namespace));
        let found = found.filter(|(_, namespace)| context.is_shared(*namespace));
        let Some((key, namespace)) = context.counters.found_or_late(found) else { return };
        // Another node may allow a name that new options of this one do not allow.
        let is_allowed = context.names.resolve(name).is_ok();
        match message {
            BroadcastMessage::Join(info) if is_allowed => {
                self.send_join_or_leave(context, Some(key), namespace, DeliveryBody::Join(info));
            }
            BroadcastMessage::Leave(info) if is_allowed => {
                self.send_join_or_leave(context, Some(key), namespace, DeliveryBody::Leave(info));
            }
            BroadcastMessage::Join(_) | BroadcastMessage::Leave(_) => {}
            // Only a log assigns offsets.
            BroadcastMessage::Publication(publication) if publication.offset > 0 => {
                context.counters.late_messages += 1;
            }
            BroadcastMessage::Publication(publication) => {
                let (how, accepted_us) = (PublishHow::default(), context.now.mono_us);
                let params = ProposalParams { how, audience: None, accepted_us };
                let mut channel = NamedChannel { name, namespace, key: Some(key) };
                // With too many channels, a publication cannot be kept for new subscribers; this channel exists
                // already.
                let delivered = self.deliver_publication(context, &mut channel, publication, &params, None);
                debug_assert!(delivered.is_ok(), "the channel is there");
                self.review(context, key);
            }
        }
    }

    /// The channel, created on first use. At the limit of the node, a channel without subscribers is evicted. The caller
    /// reviews the channel at the end.
    fn ensure(&mut self, context: &mut Context, channel: &mut NamedChannel<'_>) -> Result<ChannelKey, Refused> {
        if let Some(key) = channel.key {
            return Ok(key);
        }
        // Each shard has an equal part of the node's limit.
        let channels_max = context.options.channel.channels_max.div_ceil(usize::from(context.identity.count));
        if self.channels.len() >= channels_max && !(channels_max > 0 && self.evict_idle_channel(context)) {
            return Err(refuse_channel(context, ChannelRefusal::Node));
        }
        let key = self.channels.insert(channel.name, channel.namespace);
        context.counters.channels_kept = self.channels.len() as u64;
        channel.key = Some(key);
        Ok(key)
    }

    /// Evicts a channel without subscribers. Returns whether there was one.
    fn evict_idle_channel(&mut self, context: &mut Context) -> bool {
        let Some(key) = self.channels.next_to_evict() else { return false };
        context.counters.channels_evicted += 1;
        self.forget_channel(context, key);
        true
    }

    /// Whether a session may publish the first publication of a channel's stream.
    fn check_creator(
        &self,
        context: &mut Context,
        channel: Option<ChannelKey>,
        creator: ChannelCreator,
    ) -> Result<(), Refused> {
        let (options, shards) = (&context.options.channel, context.identity.count);
        let Some(limit) = self.channels.creator_limit(channel, creator, options, shards) else { return Ok(()) };
        let refusal = match limit {
            CreatorKind::Session => ChannelRefusal::Session,
            CreatorKind::User => ChannelRefusal::User,
            CreatorKind::Source => ChannelRefusal::Address,
        };
        Err(refuse_channel(context, refusal))
    }

    /// Updates the state of a channel after a change: drops a channel without state, and otherwise records whether it
    /// may be evicted. Does nothing if the channel is gone.
    fn review(&mut self, context: &mut Context, key: ChannelKey) {
        let Some(channel) = self.channels.get_mut(key) else { return };
        let is_quiet = channel.log.as_ref().is_none_or(|log| log.is_quiet()) && !channel.following.has_parked();
        if channel.subscribers() == 0 && is_quiet {
            // The epoch can be computed from the channel's name, or the log has it.
            channel.stream.take_if(|stream| stream.is_new());
            self.histories.drop_bare_stream(context, channel);
            if channel.stream.is_none() {
                self.log_traffic.close(channel);
            }
        }
        self.histories.forget_keys_not_followed(context, channel);
        self.log_traffic.review_following(context, channel);
        if channel.is_forgettable() {
            return self.forget_channel(context, key);
        }
        self.histories.count_stream(context, channel);
        // The results must stay known, to detect a publication that is repeated with its idempotency key.
        let is_idle = channel.subscribers() == 0 && channel.room.is_none() && channel.results.is_none() && is_quiet;
        self.channels.set_idle(key, is_idle, context.now.mono_us);
    }

    fn review_if_any(&mut self, context: &mut Context, key: Option<ChannelKey>) {
        if let Some(key) = key {
            self.review(context, key);
        }
    }

    fn review_and_schedule(&mut self, context: &mut Context, key: ChannelKey) {
        self.review(context, key);
        if let Some(channel) = self.channels.get_mut(key) {
            channel.schedule(&mut context.timers);
        }
    }

    fn forget_channel(&mut self, context: &mut Context, key: ChannelKey) {
        let Some(mut channel) = self.channels.remove(key) else { return };
        self.histories.forget_keys(&mut channel);
        let is_logged = channel.log.is_some();
        self.log_traffic.close(&mut channel);
        self.histories.forget_stream(context, &mut channel, is_logged);
        if !matches!(channel.following, Following::Not) {
            self.log_traffic.unfollow(&channel);
        }
        context.timers.abandon(channel.scheduled);
        context.counters.channels_kept = self.channels.len() as u64;
    }

    /// Handles a channel's timer, if it is active; returns whether it is.
    pub(super) fn take_due(&mut self, context: &mut Context, due_us: u64, name: &str) -> bool {
        let Some(key) = self.channels.find(name) else { return false };
        let is_active = self.channels[key].scheduled.take(due_us);
        if is_active {
            self.expire(context, key);
        }
        is_active
    }

    pub(super) fn is_due_at(&self, name: &str, due_us: u64) -> bool {
        self.channels.named(name).is_some_and(|channel| channel.scheduled.is_at(due_us))
    }

    /// Drops what has expired: cached keys, idempotency results, the publications of the stream, and its position.
    fn expire(&mut self, context: &mut Context, key: ChannelKey) {
        let channel = &mut self.channels[key];
        self.histories.forget_old_keys(context, channel);
        let is_logged = channel.log.is_some();
        let is_needed = channel.subscribers() > 0 || channel.log.as_ref().is_some_and(|log| !log.is_quiet());
        if let Some(results) = &mut channel.results {
            results.forget_old(context.now.mono_us);
            channel.results.take_if(|results| results.next_us().is_none());
        }
        if let Some(stream) = channel.stream.as_mut().filter(|stream| stream.data_until_us <= context.now.mono_us) {
            stream.data_until_us = u64::MAX;
            self.histories.clear_stream(channel);
            self.log_traffic.expire(context, channel);
        }
        if let Some(stream) = channel.stream.as_mut().filter(|stream| stream.meta_until_us <= context.now.mono_us) {
            // A position that subscribers depend on does not expire.
            if is_needed {
                let remembered_ms = namespace_options(&context.options, channel.namespace).remembered_ms();
                stream.meta_until_us = context.now.after_ms(remembered_ms.max(1));
            } else {
                self.histories.forget_stream(context, channel, is_logged);
            }
        }
        self.review_and_schedule(context, key);
    }

    /// Applies the options that do not concern channels.
    pub(super) fn set_paces(&mut self, context: &Context) {
        let options = &context.options;
        self.has_logs = options.has_logs();
        self.has_shared = options.has_shared();
        self.rooms.set_pace(RefillRate::share(options.room_openings.per_second, context.identity.count));
        if !context.has_homes() {
            self.homes.clear();
        }
    }

    /// Truncates or removes histories after a change of options.
    pub(super) fn shorten_streams(&mut self, context: &mut Context, changes: &[NamespaceChange]) {
        let change_of = |namespace: u16| changes.get(usize::from(namespace)).copied().unwrap_or(NamespaceChange::None);
        let affected: Vec<(ChannelKey, NamespaceChange)> = self
            .channels
            .iter()
            .map(|channel| (channel.key, change_of(channel.namespace.0)))
            .filter(|(_, change)| *change != NamespaceChange::None)
            .collect();
        for (key, change) in affected {
            // A review removes no other channel.
            let channel = &mut self.channels[key];
            if change != NamespaceChange::Trimmed {
                self.histories.forget_keys(channel);
                channel.results = None;
                self.histories.forget_stream(context, channel, false);
                self.review(context, key);
            } else if channel.stream.is_some() {
                self.histories.shorten_stream(context, channel);
                self.review_and_schedule(context, key);
            }
        }
    }

    /// Moves the pending requests to logs into the effects.
    pub(super) fn take_log_requests(&mut self, effects: &mut Effects) {
        self.log_traffic.take_requests(effects);
    }

    pub(super) fn channel_count(&self) -> usize {
        self.channels.len()
    }

    /// Entries of the counts of channels per creator, and channels without subscribers. Both are 0 when all channels
    /// have been dropped.
    pub(super) fn channel_holdings(&self) -> [usize; 2] {
        self.channels.holdings()
    }

    /// The number of users with sessions whose home is this shard, if sessions are counted.
    pub(super) fn users_at_home(&self) -> usize {
        self.homes.len()
    }

    /// Bytes of the shard's histories: as counted, and as they are.
    pub(super) fn history_bytes(&self) -> [usize; 2] {
        self.histories.stream_bytes(&self.channels)
    }

    pub(super) fn answers_kept(&self) -> [usize; 2] {
        self.histories.answers_kept()
    }

    /// Proposed publications, their bytes, and requests that wait for a page or for other nodes.
    pub(super) fn log_holdings(&self) -> [usize; 3] {
        let [proposals, proposal_bytes, parked] = self.log_traffic.holdings();
        [proposals, proposal_bytes, parked + self.presence_queries.waiting()]
    }

    pub(super) fn cached_bytes(&self) -> usize {
        self.histories.key_bytes()
    }
}

fn refuse_channel(context: &mut Context, refusal: ChannelRefusal) -> Refused {
    context.counters.channels_refused[refusal as usize] += 1;
    let why = match refusal {
        ChannelRefusal::Node => "the node has channel.max_channels channels, and none without subscribers; raise it",
        ChannelRefusal::Session => {
            "the session has created channel.max_channels_per_session channels; raise it, or use fewer channels"
        }
        ChannelRefusal::User => {
            "the user's sessions have created channel.max_channels_per_user channels; raise it, or use fewer channels"
        }
        ChannelRefusal::Address => {
            "the address has created channel.max_channels_per_address channels; raise it, or use fewer channels"
        }
    };
    Refused::new(ErrorCode::LimitExceeded, why)
}
