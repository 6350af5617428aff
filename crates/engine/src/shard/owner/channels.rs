//! The channels that a shard owns, from the first use to the last: their subscribers, what is kept of their publications,
//! and the logs that store them.

use std::sync::Arc;

use dunlin_protocol::ErrorCode;

use crate::{
    Options, ShardIndex,
    api::ApiAnswer,
    backend::PublishHow,
    broadcast::BroadcastMessage,
    channel::{Audience, ChannelKey, Following, OwnedChannel},
    channel_creators::{ChannelCreator, CreatorKind},
    counters::{ChannelRefusal, Suppression},
    event::Ticket,
    frame::{Delivery, DeliveryBody},
    history_stream::{Reader, Stream},
    lifecycle::{Lifecycle, LifecycleKind},
    log::{LogError, LogRecord, ProposalNumber},
    log_in_flight::{Draft, LogPhase, Proposal, ProposalParams, ReplyTo},
    message::{NotSubscribed, Notice, Subscribed, Subscriber, SubscriptionRequest},
    names::{NamespaceIndex, namespace_options},
    options::NamespaceOptions,
    refused::Refused,
    shard::{HISTORY_OFF, NamespaceChange},
};

use super::{
    Context,
    channel_table::ChannelTable,
    histories::{Histories, add_newest},
    log_traffic::LogTraffic,
    publish::{ProposalOutcome, Publishing, send_out},
};

/// A channel that a request or an event names. Its name is looked up once, where it arrives.
#[derive(Debug)]
pub(super) struct NamedChannel<'a> {
    pub(super) name: &'a Arc<str>,
    pub(super) namespace: NamespaceIndex,
    /// `None` until the channel exists.
    pub(super) key: Option<ChannelKey>,
}

/// The channels of a shard, with the totals of what they keep and of what they have on the way to logs. Flows change a
/// channel through these fields, and then call [`Channels::review`], which makes the totals agree.
pub(in crate::shard) struct Channels {
    pub(super) table: ChannelTable,
    pub(super) histories: Histories,
    pub(super) log_traffic: LogTraffic,
    /// Whether a namespace has a log other than memory.
    pub(super) has_logs: bool,
    /// Whether nodes share the channels of a namespace.
    pub(super) has_shared: bool,
}

impl Channels {
    /// `secret` differs at each start; see [`Histories::new`].
    pub(super) fn new(options: &Options, node_seed: u64, secret: u64) -> Self {
        Self {
            table: ChannelTable::new(node_seed),
            histories: Histories::new(secret),
            log_traffic: LogTraffic::default(),
            has_logs: options.has_logs(),
            has_shared: options.has_shared(),
        }
    }

    /// Applies the options that do not concern single channels.
    pub(super) fn set_options(&mut self, options: &Options) {
        self.has_logs = options.has_logs();
        self.has_shared = options.has_shared();
    }

    /// Accepts or refuses a publication, and answers the publisher. A duplicate, or a publication older than the
    /// channel's version, is answered but not published.
    pub(super) fn propose(&mut self, context: &mut Context, name: &Arc<str>, draft: Draft, reply_to: ReplyTo) {
        self.propose_to(context, (name, self.table.find(name)), draft, reply_to);
    }

    /// As [`Channels::propose`], to a channel that was looked up.
    pub(super) fn propose_to(
        &mut self,
        context: &mut Context,
        (name, mut key): (&Arc<str>, Option<ChannelKey>),
        draft: Draft,
        reply_to: ReplyTo,
    ) {
        let creator = draft.creator;
        let outcome = context.resolve(name).and_then(|namespace| {
            let channel = NamedChannel { name, namespace, key };
            let mut publishing = Publishing { context, channels: self, channel };
            let outcome = publishing.try_propose(draft, reply_to);
            key = publishing.channel.key;
            outcome
        });
        match outcome {
            Ok(ProposalOutcome::Proposed) if self.has_logs => self.review_if_any(context, key),
            Ok(ProposalOutcome::Proposed) => {}
            Ok(ProposalOutcome::Suppressed(position)) => {
                if let Some(key) = key {
                    self.table.record_use(key, context.now, creator, true);
                    self.review(context, key);
                }
                context.answer_publication(name, reply_to, Ok(position));
            }
            Err(refused) => {
                self.review_if_any(context, key);
                context.answer_publication(name, reply_to, Err(refused));
            }
        }
    }

    /// Removes a channel's history, and returns the answer; `None` if the log answers the ticket when it has stored it.
    pub(super) fn remove_history(
        &mut self,
        context: &mut Context,
        name: &Arc<str>,
        ticket: Ticket,
    ) -> Result<Option<ApiAnswer>, Refused> {
        context.require(name, NamespaceOptions::keeps_publications, HISTORY_OFF)?;
        let mut channel = self.table.find(name).and_then(|key| self.table.get_mut(key));
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

    /// Accepts or refuses a subscription to a channel that was looked up, and answers it.
    pub(super) fn subscribe(
        &mut self,
        context: &mut Context,
        mut key: Option<ChannelKey>,
        request: Box<SubscriptionRequest>,
        page: Option<&mut Stream>,
    ) {
        let outcome = self.accept_named(context, &mut key, &request, page).map_err(NotSubscribed::from);
        self.answer_subscription(context, key, request, outcome);
    }

    /// As [`Channels::accept_subscription`], if the name of the channel is still allowed. Sets the key of the channel.
    pub(super) fn accept_named(
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
    pub(super) fn accept_subscription(
        &mut self,
        context: &mut Context,
        channel: &mut NamedChannel<'_>,
        request: &SubscriptionRequest,
        page: Option<&mut Stream>,
    ) -> Result<Subscribed, Refused> {
        let outcome = self.add_subscriber(context, channel, request, page);
        if let Some(key) = channel.key {
            if outcome.is_ok() {
                self.table.record_use(key, context.now, Some(request.creator), false);
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
        let channel = &mut self.table[key];
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
        if channel.subscribers() == 1 && context.tells(LifecycleKind::Occupied, namespace) {
            context.tell(Lifecycle::Occupied { channel: Arc::clone(&channel.name) });
        }
        if request.subscriber.presence
            && let Some(info) = &request.subscriber.info
        {
            channel.enter(info);
        }
        let source = add_newest(context, channel, request, &mut subscribed);
        self.histories.encode_missed(context, channel, request, (&mut subscribed, source), page);
        if request.subscriber.class.compact {
            subscribed.channel_number = self.table.number_of(key, context.identity);
        }
        if subscribed.was_recovering {
            let counters = context.count(namespace);
            *(if subscribed.recovered { &mut counters.recovered } else { &mut counters.unrecovered }) += 1;
            counters.recovered_publications += subscribed.publications.len() as u64;
        }
        Ok(subscribed)
    }

    pub(super) fn refuse_subscription(
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
    pub(super) fn answer_subscription(
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

    pub(super) fn serve_unsubscribe(
        &mut self,
        context: &mut Context,
        key: ChannelKey,
        shard: ShardIndex,
        subscriber: &Subscriber,
    ) {
        let channel = &mut self.table[key];
        channel.remove(shard, subscriber);
        if channel.subscribers() == 0 && context.tells(LifecycleKind::Vacated, channel.namespace) {
            context.tell(Lifecycle::Vacated { channel: Arc::clone(&channel.name) });
        }
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
        let Some(channel) = key.and_then(|key| self.table.get(key)) else { return };
        let delivery = Delivery::new(Arc::clone(&channel.name), namespace, body, context.now.mono_us);
        send_out(context, channel, delivery, Audience::JoinLeaves);
    }

    /// Delivers a broadcast of another node: what has no offset.
    pub(in crate::shard) fn broadcast_received(
        &mut self,
        context: &mut Context,
        name: &Arc<str>,
        message: BroadcastMessage,
    ) {
        let found = self.table.find(name).map(|key| (key, self.table[key].namespace));
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
                let params = ProposalParams { how, audience: None, accepted_us, is_followed: false };
                let channel = NamedChannel { name, namespace, key: Some(key) };
                // With too many channels, a publication cannot be kept for new subscribers; this channel exists
                // already.
                let mut publishing = Publishing { context, channels: self, channel };
                let delivered = publishing.deliver_publication(publication, &params, None);
                debug_assert!(delivered.is_ok(), "the channel is there");
                self.review(context, key);
            }
        }
    }

    /// The channel, created on first use. At the limit of the node, a channel without subscribers is evicted. The caller
    /// reviews the channel at the end.
    pub(super) fn ensure(
        &mut self,
        context: &mut Context,
        channel: &mut NamedChannel<'_>,
    ) -> Result<ChannelKey, Refused> {
        if let Some(key) = channel.key {
            return Ok(key);
        }
        // Each shard has an equal part of the node's limit.
        let channels_max = context.options.channel.channels_max.div_ceil(usize::from(context.identity.count));
        if self.table.len() >= channels_max && !(channels_max > 0 && self.evict_idle_channel(context)) {
            return Err(refuse_channel(context, ChannelRefusal::Node));
        }
        let key = self.table.insert(channel.name, channel.namespace);
        context.counters.channels_kept = self.table.len() as u64;
        channel.key = Some(key);
        Ok(key)
    }

    /// Evicts a channel without subscribers. Returns whether there was one.
    fn evict_idle_channel(&mut self, context: &mut Context) -> bool {
        let Some(key) = self.table.next_to_evict() else { return false };
        context.counters.channels_evicted += 1;
        self.forget_channel(context, key);
        true
    }

    /// Whether a session may publish the first publication of a channel's stream.
    pub(super) fn check_creator(
        &self,
        context: &mut Context,
        channel: Option<ChannelKey>,
        creator: ChannelCreator,
    ) -> Result<(), Refused> {
        let (options, shards) = (&context.options.channel, context.identity.count);
        let Some(limit) = self.table.creator_limit(channel, creator, options, shards) else { return Ok(()) };
        let refusal = match limit {
            CreatorKind::Session => ChannelRefusal::Session,
            CreatorKind::User => ChannelRefusal::User,
            CreatorKind::Source => ChannelRefusal::Address,
        };
        Err(refuse_channel(context, refusal))
    }

    /// Updates the state of a channel after a change: drops a channel without state, and otherwise records whether it
    /// may be evicted. Does nothing if the channel is gone.
    pub(super) fn review(&mut self, context: &mut Context, key: ChannelKey) {
        let Some(channel) = self.table.get_mut(key) else { return };
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
        self.table.set_idle(key, is_idle, context.now.mono_us);
    }

    pub(super) fn review_if_any(&mut self, context: &mut Context, key: Option<ChannelKey>) {
        if let Some(key) = key {
            self.review(context, key);
        }
    }

    pub(super) fn review_and_schedule(&mut self, context: &mut Context, key: ChannelKey) {
        self.review(context, key);
        if let Some(channel) = self.table.get_mut(key) {
            channel.schedule(&mut context.timers);
        }
    }

    fn forget_channel(&mut self, context: &mut Context, key: ChannelKey) {
        let Some(mut channel) = self.table.remove(key) else { return };
        self.histories.forget_keys(&mut channel);
        let is_logged = channel.log.is_some();
        self.log_traffic.close(&mut channel);
        self.histories.forget_stream(context, &mut channel, is_logged);
        if !matches!(channel.following, Following::Not) {
            self.log_traffic.unfollow(&channel);
        }
        context.timers.abandon(channel.scheduled);
        context.counters.channels_kept = self.table.len() as u64;
    }

    /// Handles a channel's timer, if it is active; returns whether it is.
    pub(in crate::shard) fn take_due(&mut self, context: &mut Context, due_us: u64, name: &str) -> bool {
        let Some(key) = self.table.find(name) else { return false };
        let is_active = self.table[key].scheduled.take(due_us);
        if is_active {
            self.expire(context, key);
        }
        is_active
    }

    pub(in crate::shard) fn is_due_at(&self, name: &str, due_us: u64) -> bool {
        self.table.named(name).is_some_and(|channel| channel.scheduled.is_at(due_us))
    }

    /// Drops what has expired: cached keys, idempotency results, the publications of the stream, and its position.
    fn expire(&mut self, context: &mut Context, key: ChannelKey) {
        let channel = &mut self.table[key];
        self.histories.forget_old_keys(context, channel);
        let is_needed = channel.subscribers() > 0 || channel.log.as_ref().is_some_and(|log| !log.is_quiet());
        if let Some(results) = &mut channel.results {
            results.forget_old(context.now.mono_us);
            channel.results.take_if(|results| results.next_us().is_none());
        }
        if self.histories.expire_publications(context, channel) {
            self.log_traffic.expire(context, channel);
        }
        self.histories.expire_position(context, channel, is_needed);
        self.review_and_schedule(context, key);
    }

    /// Tells the backend of the occupied channels of namespaces with a changed `channel_events`. If it is on, the backend has
    /// not heard of them. If it is off, nobody would tell it when they are vacated.
    pub(in crate::shard) fn tell_of_switched(&self, context: &mut Context, before: &Options) {
        let is_told = |options: &Options, index| namespace_options(options, index).channel_events;
        let known = before.namespaces.len();
        let switched: Vec<bool> = (0..=known as u16)
            .map(NamespaceIndex)
            .map(|index| is_told(before, index) != is_told(&context.options, index))
            .collect();
        if !switched.contains(&true) {
            return;
        }
        let is_switched = |channel: &OwnedChannel| switched.get(usize::from(channel.namespace.0)) == Some(&true);
        for channel in self.table.iter().filter(|channel| is_switched(channel) && channel.subscribers() > 0) {
            let (name, is_on) = (Arc::clone(&channel.name), context.namespace(channel.namespace).channel_events);
            if is_on {
                context.tell_if_wanted(Lifecycle::Occupied { channel: name });
            } else {
                context.tell_if_wanted(Lifecycle::Vacated { channel: name });
            }
        }
    }

    /// Truncates or removes histories after a change of options.
    pub(in crate::shard) fn shorten_streams(&mut self, context: &mut Context, changes: &[NamespaceChange]) {
        let change_of = |namespace: u16| changes.get(usize::from(namespace)).copied().unwrap_or(NamespaceChange::None);
        let affected: Vec<(ChannelKey, NamespaceChange)> = self
            .table
            .iter()
            .map(|channel| (channel.key, change_of(channel.namespace.0)))
            .filter(|(_, change)| *change != NamespaceChange::None)
            .collect();
        for (key, change) in affected {
            // A review removes no other channel.
            let channel = &mut self.table[key];
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

    /// This node or another one has removed the history of a channel.
    pub(in crate::shard) fn history_trimmed(&mut self, context: &mut Context, name: &Arc<str>, through: u64) {
        let Some(key) = context.counters.found_or_late(self.table.find(name)) else { return };
        let channel = &mut self.table[key];
        if let Some(log) = channel.log.as_deref_mut() {
            log.floor = log.floor.max(through);
            if let LogPhase::Opening { meanwhile, .. } = &mut log.phase {
                meanwhile.clear();
            }
        }
        self.histories.clear_stream(channel);
        self.histories.forget_keys(channel);
        self.histories.count_stream(context, channel);
    }

    /// The log has stopped following a channel: its subscribers resubscribe, even those without a position, because
    /// publications of other nodes would not reach them. A channel that is still opening has no state to lose.
    pub(in crate::shard) fn log_interrupted(&mut self, context: &mut Context, name: &Arc<str>) {
        let Some(key) = context.counters.found_or_late(self.table.find(name)) else { return };
        let channel = &mut self.table[key];
        if channel.log.as_ref().is_none_or(|log| !log.is_open()) {
            return;
        }
        for shard in channel.listening_shards(Audience::Publications) {
            context.notify(shard, Notice::FollowingLost { channel: Arc::clone(name) });
        }
        self.histories.forget_stream(context, channel, true);
        // The log still answers the shard's pending requests; the channel's log is not closed before that.
        self.review(context, key);
    }

    /// A log has committed or refused a proposed publication.
    pub(in crate::shard) fn proposal_committed(
        &mut self,
        context: &mut Context,
        name: &Arc<str>,
        number: ProposalNumber,
        outcome: Result<u64, LogError>,
    ) {
        let found = self.table.find(name).and_then(|key| {
            let owned = &mut self.table[key];
            let top = owned.stream.as_ref().map_or(0, |stream| stream.top());
            let proposal = self.log_traffic.take_proposal(owned, number)?;
            Some((NamedChannel { name, namespace: owned.namespace, key: Some(key) }, key, top, proposal))
        });
        let Some((channel, key, top, mut proposal)) = context.counters.found_or_late(found) else { return };
        match outcome {
            // A log answers in order, so what it has stored anew is above all that was committed. At or below it is the
            // earlier publication with the same key.
            Ok(offset) if proposal.publication.offset > 0 && offset <= top => {
                self.answer_repeated(context, key, proposal, offset);
            }
            Ok(offset) => {
                proposal.publication.offset = offset;
                Publishing { context, channels: self, channel }.commit(proposal);
            }
            Err(error) => {
                self.table.release_creator(key);
                self.review(context, key);
                for reply_to in proposal.duplicates.into_iter().chain([proposal.reply_to]) {
                    context.answer_publication(name, reply_to, Err(error.into()));
                }
            }
        }
    }

    /// Answers a publication whose idempotency key the log has with the position of the earlier one.
    fn answer_repeated(&mut self, context: &mut Context, key: ChannelKey, proposal: Proposal, offset: u64) {
        let channel = &self.table[key];
        let (name, position) = (Arc::clone(&channel.name), (offset, channel.epoch()));
        context.count(channel.namespace).suppressed[Suppression::Idempotency as usize] += 1;
        self.table.record_use(key, context.now, proposal.creator, true);
        self.review(context, key);
        for reply_to in proposal.duplicates.into_iter().chain([proposal.reply_to]) {
            context.answer_publication(&name, reply_to, Ok(position.clone()));
        }
    }

    /// Another node has published to a channel that this node follows.
    pub(in crate::shard) fn publication_replicated(
        &mut self,
        context: &mut Context,
        name: &Arc<str>,
        record: LogRecord,
    ) {
        let Some(key) = context.counters.found_or_late(self.table.find(name)) else { return };
        let owned = &mut self.table[key];
        let Some(log) = context.counters.found_or_late(owned.log.as_deref_mut()) else { return };
        let version = (record.publication.version, &*record.version_epoch);
        if log.note_while_opening(&record.publication, version, context.options.log.tail_publications_max) {
            return;
        }
        let LogRecord { publication, version_epoch, .. } = record;
        let how = PublishHow { version: publication.version, version_epoch, ..PublishHow::default() };
        let params = ProposalParams { how, audience: None, accepted_us: context.now.mono_us, is_followed: false };
        let publication = Arc::unwrap_or_clone(publication);
        let proposal =
            Proposal { publication, params, creator: None, reply_to: ReplyTo::Nobody, duplicates: Vec::new() };
        let channel = NamedChannel { name, namespace: owned.namespace, key: Some(key) };
        Publishing { context, channels: self, channel }.commit(proposal);
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
