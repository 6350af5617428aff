//! Subscriptions of sessions to channels: how a client's are checked and negotiated, how the server makes its own, how they
//! are extended, and how they end. Server-side ones come from the connection token, a backend, the personal channel, the
//! client's request in `connect`, or the API.

use std::sync::Arc;

use bytes::Bytes;
use dunlin_protocol::{
    DataForm, Disconnect, ErrorCode, FilterError, Payload, Push, Reply, SubRefreshRequest, SubscribeRequest,
    SubscribeResult, TagsFilter, UnsubscribeCode,
};

use crate::{
    SessionKey,
    backend::{Overrides, ProxyError, ProxyIndex, ProxyRequestKind, ProxyResponse, ProxyResult},
    event::{ServerSubscription, SubscriptionClaims, SubscriptionGrant, TokenError},
    history_stream::encoded_bytes_max,
    hub::{HubEntry, LocalChannelId},
    message::{NotSubscribed, RecoverFrom, ShardRequest, Subscribed, Subscriber, SubscriptionRequest},
    names::NamespaceIndex,
    options::{Lane, NamespaceOptions, RecoveryMode},
    planted::Bug,
    record::{RecordLevel, SessionIncident},
    refused::{Refused, RefusedCommand},
    room::{Departure, LeftSeat},
    seats::RoomRoute,
    session::{
        Ending, Paused, PausedOn, ProxiedCommand, Session, Subscription, SubscriptionExtra, SubscriptionFlags,
        SubscriptionParams,
    },
    shard::NamespaceChange,
};

use super::{
    Context, Sessions,
    commands::{CommandOutcome, CommandRef, NO_CHANNEL},
    deadlines::UNANSWERED_GRACE_MS,
    permission::Permission,
    time_to_live::{AlreadyExpired, TimeToLive, expiry_us},
};

/// The parameters of a new subscription.
pub(super) struct NewSubscription<'a> {
    pub(super) channel: &'a str,
    pub(super) namespace: NamespaceIndex,
    pub(super) flags: SubscriptionFlags,
    pub(super) info: Option<Payload>,
    pub(super) data: Option<Payload>,
    /// The time to live in the reply to the client.
    pub(super) ttl_s: Option<u32>,
    pub(super) expiry_us: u64,
    pub(super) was_recovering: bool,
    pub(super) recover: Option<RecoverFrom>,
    /// The filter on its publications; the hub stores it.
    pub(super) filter: Option<Arc<TagsFilter>>,
    /// The parameters for joining the channel's room, if it has one.
    pub(super) joins: Option<&'a SubscriptionParams>,
}

impl Sessions {
    pub(super) fn subscribe(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        command_id: u32,
        request: &SubscribeRequest<'_>,
    ) -> CommandOutcome {
        let channel = &*request.channel;
        if channel.is_empty() || !matches!(&*request.delta, "" | "fossil") {
            let why = if channel.is_empty() { NO_CHANNEL } else { "a delta that is not fossil" };
            return Err(RefusedCommand::bad_request(why));
        }
        self.may_subscribe(context, key, request)?;
        let filter = self.tags_filter(context, key, request)?;
        let params = SubscriptionParams {
            channel: channel.into(),
            filter,
            recover: request.recover,
            epoch: (&*request.epoch).into(),
            offset: request.offset,
            positioned: request.positioned,
            recoverable: request.recoverable,
            join_leave: request.join_leave,
            reject_unrecoverable: request.flag.rejects_unrecoverable(),
            compact: request.flag.wants_compaction(),
            delta: !request.delta.is_empty(),
            data: request.data.map_or_else(Bytes::new, Bytes::copy_from_slice),
            ended: None,
        };
        if let Some(proxy) = context.subscribe_proxy(channel).filter(|_| request.token.is_empty()) {
            let data = request.data.and_then(|data| self.table.at(key.index).payload(data));
            let kind = ProxyRequestKind::Subscribe { channel: self.channel_name(channel), data };
            self.send_proxy_request(
                key,
                command_id,
                (proxy, kind),
                ProxiedCommand::Subscribe(params),
                &mut context.effects,
            );
            return Ok(None);
        }
        if request.token.is_empty() {
            let grant = SubscriptionGrant::default();
            self.request_subscription(context, key, command_id, &params, grant)?;
            return Ok(None);
        }
        let paused_on = PausedOn::Subscribe { command_id, params: Box::new(params) };
        self.wait_for_token(key, paused_on, &request.token, &mut context.effects);
        Ok(None)
    }

    /// Checks everything that does not depend on a token, in the order of errors that clients of the protocol expect.
    fn may_subscribe(&self, context: &Context, key: SessionKey, request: &SubscribeRequest<'_>) -> Result<(), Refused> {
        let channel = &*request.channel;
        let session = self.table.at(key.index);
        if channel.len() > context.options.channel.name_bytes_max {
            let why = "the name of the channel is longer than channel.max_length";
            return Err(Refused::new(ErrorCode::BadRequest, why));
        }
        if self.hub.find(channel).is_some_and(|id| session.subscription(id).is_some()) {
            return Err(ErrorCode::AlreadySubscribed.into());
        }
        if session.subscriptions.len() >= context.options.client.channel_limit {
            return Err(ErrorCode::LimitExceeded.into());
        }
        let index = context.resolve(channel)?;
        if request.kind != 0 || context.names.is_private(channel) && request.token.is_empty() {
            return Err(ErrorCode::PermissionDenied.into());
        }
        let user = session.info.as_ref().map_or("", |info| &info.user);
        let is_decided_elsewhere = !request.token.is_empty() || context.subscribe_proxy(channel).is_some();
        let is_open =
            is_decided_elsewhere || context.is_open_to(user, channel, index) || context.options.client.insecure;
        if !is_open {
            return Err(ErrorCode::PermissionDenied.into());
        }
        if request.tags_filter.is_some() && !context.namespace(index).allow_tags_filter {
            let why = "allow_tags_filter is off in the namespace of the channel";
            return Err(Refused::new(ErrorCode::BadRequest, why));
        }
        Ok(())
    }

    /// The token of a `subscribe` or `sub_refresh` was verified.
    pub(in crate::shard) fn subscription_token_verified(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        outcome: Result<SubscriptionClaims, TokenError>,
    ) {
        let waits =
            |paused_on: &PausedOn| matches!(paused_on, PausedOn::Subscribe { .. } | PausedOn::SubRefresh { .. });
        let Some(Paused { paused_on, unparsed }) = self.table.take_paused(key, waits) else { return };
        match paused_on {
            PausedOn::Subscribe { command_id, params } => {
                let outcome = self.subscribe_with_token(context, key, command_id, &params, outcome);
                let command = CommandRef { id: command_id, command: "subscribe", channel: Some(&params.channel) };
                self.answer(context, key, command, outcome);
            }
            PausedOn::SubRefresh { command_id, channel } => {
                let outcome = self.sub_refresh_with_token(context, key, &channel, outcome).map(Some);
                let command = CommandRef { id: command_id, command: "sub_refresh", channel: Some(&channel) };
                self.answer(context, key, command, outcome);
            }
            _ => unreachable!("looked at above"),
        }
        self.resume(key, unparsed);
    }

    fn subscribe_with_token(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        command_id: u32,
        params: &SubscriptionParams,
        outcome: Result<SubscriptionClaims, TokenError>,
    ) -> CommandOutcome {
        let claims = outcome.map_err(|error| match error {
            TokenError::Expired => ErrorCode::TokenExpired,
            TokenError::Invalid => ErrorCode::PermissionDenied,
            TokenError::Unavailable => ErrorCode::Internal,
        })?;
        self.check_claims(key, &params.channel, &claims)?;
        self.request_subscription(context, key, command_id, params, claims.grant)?;
        Ok(None)
    }

    /// Whether the token was issued for this session and channel.
    pub(super) fn check_claims(
        &self,
        key: SessionKey,
        channel: &str,
        claims: &SubscriptionClaims,
    ) -> Result<(), Disconnect> {
        let info = self.table.get(key).and_then(|session| session.info.as_ref());
        let is_ours = info.is_some_and(|info| {
            *info.user == *claims.user && (claims.client.is_empty() || *info.client == *claims.client)
        });
        if is_ours && claims.channel == channel { Ok(()) } else { Err(Disconnect::INVALID_TOKEN) }
    }

    /// Sends a client's authorized subscription to the channel's owner.
    pub(super) fn request_subscription(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        command_id: u32,
        params: &SubscriptionParams,
        grant: SubscriptionGrant,
    ) -> Result<(), Refused> {
        let namespace = context.resolve(&params.channel)?;
        let session = self.table.at(key.index);
        if context.namespace(namespace).room.is_some() && !session.wire.is_websocket() {
            // A room's snapshots have WebSocket framing, which would break an HTTP response.
            return Err(Refused::new(ErrorCode::NotAvailable, "rooms are for WebSockets alone"));
        }
        // The API may have subscribed the session during the token check or the backend request.
        if self.hub.find(&params.channel).is_some_and(|id| session.subscription(id).is_some()) {
            return Err(ErrorCode::AlreadySubscribed.into());
        }
        if session.subscriptions.len() >= context.options.client.channel_limit {
            return Err(ErrorCode::LimitExceeded.into());
        }
        let Ok(ttl) = TimeToLive::until(grant.expires_at_ms, context.now) else {
            return Err(ErrorCode::Expired.into());
        };
        let flags = self.subscription_flags(context, key, Some(params), namespace, grant.overrides);
        // The client keeps its position, and retries later.
        if flags.recoverable && params.recover && !self.rates.recoveries.try_take(context.now.mono_us) {
            context.counters.recoveries_refused += 1;
            let why = "more recoveries in a second than client.recovery_rate_limit";
            return Err(Refused::new(ErrorCode::TooManyRequests, why));
        }
        let filters_max = context.options.channel.tags_filters_max;
        if params.filter.as_ref().is_some_and(|filter| !self.hub.takes_filter(&params.channel, filter, filters_max)) {
            return Err(ErrorCode::LimitExceeded.into());
        }
        let options = context.namespace(namespace);
        let recover = recover_from(params, flags, options);
        let new_subscription = NewSubscription {
            channel: &params.channel,
            namespace,
            flags,
            info: grant.info,
            data: grant.data,
            // If a backend refreshes the subscription, the client does not need the time.
            ttl_s: ttl.filter(|_| options.sub_refresh_proxy.is_none()).map(TimeToLive::whole_s),
            expiry_us: context.subscription_expiry_us(namespace, ttl),
            was_recovering: params.recover || recover.is_some(),
            recover,
            filter: params.filter.clone(),
            joins: options.room.is_some().then_some(params),
        };
        self.send_subscription_request(context, key, command_id, new_subscription);
        if let Some(code) = params.ended
            && let Some(id) = self.hub.find(&params.channel)
        {
            self.end_subscription(context, key, id, code);
        }
        Ok(())
    }

    /// Sends a subscription to the channel's owner.
    pub(super) fn send_subscription_request(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        command_id: u32,
        new_subscription: NewSubscription<'_>,
    ) {
        let NewSubscription { channel: name, namespace, flags, info, data, ttl_s, expiry_us, .. } = new_subscription;
        let NewSubscription { was_recovering, recover, filter, joins, .. } = new_subscription;
        let session = self.table.at(key.index);
        let of_session = session.info.as_ref().expect("an authenticated session has its info");
        let info = info.map(|chan_info| Arc::new(of_session.with_chan_info(chan_info)));
        let subscriber = Subscriber {
            class: session.class(flags),
            join_leave: flags.join_leave,
            info: flags.needs_client_info().then(|| Arc::clone(info.as_ref().unwrap_or(of_session))),
            presence: flags.presence,
            announced: flags.announced,
        };
        let id = self.hub.hold(name, namespace);
        let place = filter.as_ref().and_then(|filter| self.hub.hold_filter(id, filter));
        let channel = Arc::clone(&self.hub.channel(id).name);
        let of_visitor = || Arc::clone(info.as_ref().unwrap_or(of_session));
        let joins = joins.map(|params| (params, of_visitor()));
        let (seat, join) =
            joins.map(|(params, info)| self.take_seat(context, key, (&channel, namespace), params, info)).unzip();
        let extra = SubscriptionExtra { info, ttl_s, data, ending: None, seat, refresh: None };
        let is_needed = extra.outlives_answer() || extra.ttl_s.is_some() || extra.data.is_some();
        let session = self.table.at_mut(key.index);
        session.subscriptions.reserve_exact(1);
        let extra = is_needed.then(|| Box::new(extra));
        session.subscriptions.push(Subscription { channel: id, place: None, flags, filter: place, expiry_us, extra });
        let positioned = flags.positioned;
        let answer_may_be_large = recover.is_some() || context.namespace(namespace).cache_keys_max > 0;
        let asker = match command_id {
            // A request by the server itself.
            0 => context.asker(key, command_id),
            _ => self.register_request(context, key, command_id, answer_may_be_large),
        };
        let request = SubscriptionRequest {
            answer_may_be_large,
            channel,
            asker,
            creator: self.table.at(key.index).creator(context.identity.index, context.node_seed),
            subscriber,
            positioned,
            was_recovering,
            recover,
            filter,
            join,
        };
        context.request(context.owner(name), ShardRequest::Subscribe(Box::new(request)));
    }

    /// The owner has answered a subscription. Its publications follow this answer.
    pub(in crate::shard) fn subscribed(
        &mut self,
        context: &mut Context,
        request: SubscriptionRequest,
        outcome: Result<Box<Subscribed>, NotSubscribed>,
    ) {
        let key = request.asker.session;
        if let Some(join) = &request.join {
            self.release_opening(key, join, context.now.mono_us);
        }
        let is_there = self.table.get(key).is_some_and(Session::is_authenticated);
        if !is_there {
            // The session closed before the owner answered, so the owner needs the unsubscribe now.
            context.counters.late_messages += 1;
            return self.leave_unanswered(context, request, outcome.ok());
        }
        let id = self.hub.find(&request.channel).expect("a session that waits for an answer holds the channel");
        let subscription = self.table.at(key.index).subscription(id).expect("it waits for this answer");
        let is_server_side = subscription.flags.server_side;
        let (outcome, ending) = match outcome {
            Ok(subscribed) => {
                let (result, ending) = self.enter(context, key, id, &request, *subscribed);
                (Ok(result), ending)
            }
            Err(refused) => (Err(refused), self.withdraw(context, key, id)),
        };
        if is_server_side {
            self.schedule_session(context, key);
            return self.server_side_answered(context, key, id, outcome, ending);
        }
        let outcome = outcome.map(|result| Some(Reply::Subscribe(Box::new(result)))).map_err(RefusedCommand::from);
        let command =
            CommandRef { id: request.asker.command_id, command: "subscribe", channel: Some(&request.channel) };
        self.answer(context, key, command, outcome);
        self.on_owner_reply(key, request.answer_may_be_large, &mut context.effects);
        self.schedule_session(context, key);
        match ending {
            Some(Ending::Asked { command_id }) => {
                self.drop_subscription(context, key, id);
                self.reply(context, key, command_id, &Reply::Unsubscribe);
            }
            Some(Ending::Forced { code, reason }) => {
                self.end_subscription_with(context, key, id, code, &reason);
            }
            None => return,
        }
        self.recall_after_ending(key, id, &mut context.effects);
    }

    /// The session of an answered subscription has ended.
    fn leave_unanswered(
        &mut self,
        context: &mut Context,
        request: SubscriptionRequest,
        accepted: Option<Box<Subscribed>>,
    ) {
        let seat = request.join.as_ref().and_then(|join| self.seats.find(join.seat));
        if let Some(subscribed) = accepted {
            let left = subscribed.room.zip(request.join.as_ref()).map(|((room, _), join)| {
                // The client does not have the token of this join. It can only come back by its user, or by its
                // previous token.
                let noted = seat.and_then(|seat| self.seats.at(seat).departure);
                let is_known = subscribed.is_back || !join.info.user.is_empty();
                let may_come_back = noted == Some(Departure::Lost) && is_known;
                let departure = if may_come_back { Departure::Lost } else { Departure::Left };
                LeftSeat { room, seat: join.seat, departure }
            });
            context.leave_owner(request.channel, request.subscriber, left);
        }
        if let Some(seat) = seat {
            self.free_seat(context, seat);
        }
    }

    /// Activates an accepted subscription.
    fn enter(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        id: LocalChannelId,
        request: &SubscriptionRequest,
        subscribed: Subscribed,
    ) -> (SubscribeResult, Option<Ending>) {
        let Subscriber { class, join_leave, .. } = request.subscriber;
        let filter = self.table.at(key.index).subscription(id).and_then(|subscription| subscription.filter);
        let entry = HubEntry { session: key.index, filter, join_leave, has_newest: subscribed.has_newest };
        let place = self.hub.add(id, class, entry);
        let namespace = self.hub.channel(id).namespace;
        context.count(namespace).subscriptions += 1;
        let session = self.table.at_mut(key.index);
        let subscription = session.subscription_mut(id).expect("it waits for this answer");
        subscription.place = Some(place);
        let flags = subscription.flags;
        let mut extra = subscription.extra.take();
        let (ttl_s, data, ending) = match &mut extra {
            Some(extra) => (extra.ttl_s, extra.data.take(), extra.ending.take()),
            None => (None, None, None),
        };
        let seat = extra.as_ref().and_then(|extra| extra.seat);
        subscription.extra = extra.filter(|extra| extra.outlives_answer());
        let expiry_us = subscription.expiry_us;
        session.deadlines.subscriptions_us = session.deadlines.subscriptions_us.min(expiry_us);
        if let Some((seat, (room, thread))) = seat.zip(subscribed.room) {
            self.join_room(context.now, seat, RoomRoute { key: room, thread }, &mut context.effects);
        }
        let (epoch, offset) = if flags.positioned { (subscribed.epoch, subscribed.offset) } else { Default::default() };
        let result = SubscribeResult {
            ttl_s,
            recoverable: flags.recoverable,
            positioned: flags.positioned,
            epoch,
            offset,
            publications: subscribed.publications,
            recovered: subscribed.recovered,
            was_recovering: request.was_recovering,
            data: match request.join.as_ref().and_then(|join| join.claim.given) {
                Some(token) => Some(token.answer(subscribed.is_back, data)),
                None => data,
            },
            patches: subscribed.patches,
            encoded: subscribed.encoded,
            delta: flags.delta,
            channel_number: subscribed.channel_number,
        };
        (result, ending)
    }

    /// Removes a subscription that the owner refused.
    fn withdraw(&mut self, context: &mut Context, key: SessionKey, id: LocalChannelId) -> Option<Ending> {
        let subscription = self.table.at_mut(key.index).remove_subscription(id).expect("it waits for this answer");
        self.release(&subscription);
        let extra = subscription.extra?;
        if let Some(seat) = extra.seat {
            self.free_seat(context, seat);
        }
        extra.ending
    }

    /// The filter that the client requests, if any.
    pub(super) fn tags_filter(
        &self,
        context: &Context,
        key: SessionKey,
        request: &SubscribeRequest<'_>,
    ) -> Result<Option<Arc<TagsFilter>>, RefusedCommand> {
        let Some(bytes) = request.tags_filter else { return Ok(None) };
        let encoding = self.table.at(key.index).encoding();
        match TagsFilter::parse(encoding, bytes, &context.options.channel.tags_filter) {
            Ok(filter) => Ok(Some(Arc::new(filter))),
            Err(FilterError::Malformed) => Err(RefusedCommand::bad_request("a tags filter that cannot be decoded")),
            Err(_) => Err(ErrorCode::BadRequest.into()),
        }
    }

    /// The options of a subscription: those that its namespace or its overrides force, and those that the client
    /// requests and may have.
    pub(super) fn subscription_flags(
        &self,
        context: &Context,
        key: SessionKey,
        params: Option<&SubscriptionParams>,
        namespace: NamespaceIndex,
        overrides: Overrides,
    ) -> SubscriptionFlags {
        let options = context.namespace(namespace);
        // The session counts as a subscriber here, because all other checks have passed.
        let session = self.table.at(key.index);
        let sees_history = || context.permits_subscriber(session, Permission::history(options));
        let sees_presence = || context.permits_subscriber(session, Permission::presence(options));
        let requests = |what: fn(&SubscriptionParams) -> bool| params.is_some_and(what);
        let announced = overrides.join_leave.unwrap_or(options.join_leave);
        let recoverable = overrides.force_recovery.unwrap_or(options.force_recovery)
            || requests(|params| params.recoverable) && (options.allow_recovery || sees_history());
        let positioned = recoverable
            || overrides.force_positioning.unwrap_or(options.force_positioning)
            || requests(|params| params.positioned) && (options.allow_positioning || sees_history());
        let join_leave = overrides.force_push_join_leave.unwrap_or(options.force_push_join_leave)
            || requests(|params| params.join_leave) && options.join_leave && sees_presence();
        SubscriptionFlags {
            join_leave,
            positioned: positioned && options.has_positions(),
            recoverable: recoverable && options.has_positions(),
            // In a room, the session itself encodes the snapshots, for plain classes.
            compact: requests(|params| params.compact) && options.allow_channel_compaction && options.room.is_none(),
            // The latest lane skips publications, so a patch might have no base.
            delta: requests(|params| params.delta)
                && options.allow_delta
                && options.room.is_none()
                && options.delivery == Lane::Reliable,
            server_side: false,
            from_token: false,
            presence: overrides.presence.unwrap_or(options.presence),
            announced,
        }
    }

    /// Sends a subscription that [`Sessions::check_server_side`] accepted to its channel's owner.
    pub(super) fn request_server_side(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        subscription: ServerSubscription,
    ) {
        let Ok(namespace) = context.names.resolve(&subscription.channel) else { return };
        let ttl = TimeToLive::until(subscription.grant.expires_at_ms, context.now).unwrap_or(Some(TimeToLive::OVER));
        let mut flags = self.subscription_flags(context, key, None, namespace, subscription.grant.overrides);
        (flags.server_side, flags.from_token) = (true, subscription.from_token);
        let was_recovering = subscription.recover_since.is_some();
        let since = subscription.recover_since.filter(|_| flags.recoverable);
        let new_subscription = NewSubscription {
            channel: &subscription.channel,
            namespace,
            flags,
            info: subscription.grant.info,
            data: subscription.grant.data,
            // The client is not involved in its expiry.
            ttl_s: None,
            expiry_us: context.subscription_expiry_us(namespace, ttl),
            was_recovering,
            recover: since.map(|(offset, epoch)| RecoverFrom { offset, epoch, reject_unrecoverable: false }),
            filter: None,
            joins: None,
        };
        self.send_subscription_request(context, key, 0, new_subscription);
    }

    /// Subscribes a session by the API.
    pub(super) fn subscribe_by_api(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        subscription: &ServerSubscription,
    ) {
        let Some(session) = self.table.get_mut(key) else { return };
        let id = self.hub.find(&subscription.channel);
        if id.is_some_and(|id| session.subscription(id).is_some()) {
            // An existing subscription stays as it is.
            return;
        }
        if session.subscriptions.len() >= context.options.client.channel_limit {
            return self.close(context, key, &Disconnect::CHANNEL_LIMIT);
        }
        let mut subscription = subscription.clone();
        if let Some(Paused { paused_on: PausedOn::Subscriptions(pending), .. }) = session.paused.as_deref_mut() {
            pending.missing += 1;
            let place = pending.positions.iter().position(|(channel, _)| *channel == subscription.channel);
            let position = place.map(|place| pending.positions.swap_remove(place).1);
            if let (Some(position), None) = (position, &subscription.recover_since) {
                subscription.recover_since = Some(position);
                self.take_late_recovery(context, key, &subscription);
            }
        }
        self.request_server_side(context, key, subscription);
    }

    /// The client has requested, in a `connect` that is not answered yet, the recovery of a subscription that the API
    /// makes now.
    fn take_late_recovery(&mut self, context: &mut Context, key: SessionKey, subscription: &ServerSubscription) {
        if self.take_recovery(context, subscription).is_err()
            && let Some(Paused { paused_on: PausedOn::Subscriptions(pending), .. }) =
                self.table.at_mut(key.index).paused.as_deref_mut()
        {
            pending.refused.get_or_insert(ErrorCode::TooManyRequests.into());
        }
    }

    /// An owner has answered a server-side subscription.
    pub(super) fn server_side_answered(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        id: LocalChannelId,
        mut outcome: Result<SubscribeResult, NotSubscribed>,
        ending: Option<Ending>,
    ) {
        let recovered_bytes = self.fit_recovery(context, key, &mut outcome);
        let is_accepted = outcome.is_ok();
        let channel = is_accepted.then(|| Arc::clone(&self.hub.channel(id).name));
        if ending.is_some() && is_accepted {
            // The subscription ended before the client was informed.
            self.drop_subscription(context, key, id);
        }
        let session = self.table.at_mut(key.index);
        if let Some(Paused { paused_on: PausedOn::Subscriptions(pending), .. }) = session.paused.as_deref_mut() {
            pending.missing -= 1;
            pending.recovered_bytes += recovered_bytes;
            let subs = &mut pending.result.subs;
            let mut again = None;
            match (outcome, channel) {
                (Ok(result), Some(channel)) if ending.is_none() => {
                    if subs.iter().any(|(name, _)| **name == *channel) {
                        again = Some((channel, result));
                    } else {
                        subs.push((Box::from(&*channel), result));
                    }
                }
                (Ok(_), _) => {}
                (Err(refused), _) => {
                    pending.refused.get_or_insert(refused.of_connect());
                }
            }
            if let Some((channel, result)) = again {
                // The API has ended the subscription in the reply and made another one. The push that ends the first
                // one is queued after the reply, so this push must follow it.
                self.send_subscribed(context, key, &channel, &result);
            }
            return self.enter_if_complete(context, key);
        }
        let is_ending = ending.is_some();
        match (outcome, ending) {
            (Ok(result), None) => {
                self.send_subscribed(context, key, &channel.unwrap_or_default(), &result);
            }
            (Err(_), None) => context.counters.server_subscriptions_refused += 1,
            (_, Some(Ending::Asked { command_id })) => {
                self.reply(context, key, command_id, &Reply::Unsubscribe);
            }
            (_, Some(Ending::Forced { .. })) => {}
        }
        if is_ending {
            self.recall_after_ending(key, id, &mut context.effects);
        }
    }

    /// Truncates the recovery of a server-side subscription if it does not fit next to the rest of the answer to
    /// `connect`, or next to the queued bytes. Returns the remaining bytes of the recovery.
    fn fit_recovery(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        outcome: &mut Result<SubscribeResult, NotSubscribed>,
    ) -> usize {
        let Ok(result) = outcome else { return 0 };
        let other_bytes = match self.table.at(key.index).paused.as_deref() {
            Some(Paused { paused_on: PausedOn::Subscriptions(pending), .. }) => pending.recovered_bytes,
            _ => self.table.outbox(key.index).queued_bytes(),
        };
        context.cut_recovery(result, other_bytes)
    }

    /// Answers `connect` if all owners have answered.
    fn enter_if_complete(&mut self, context: &mut Context, key: SessionKey) {
        let waits_for_all = !context.planted.is(Bug::ConnectAnsweredEarly);
        let is_complete = |paused: &Paused| matches!(&paused.paused_on, PausedOn::Subscriptions(pending) if pending.missing == 0 || !waits_for_all);
        let session = self.table.at_mut(key.index);
        let Some(paused) = session.paused.take_if(|paused| is_complete(paused)) else { return };
        let Paused { paused_on, unparsed } = *paused;
        let PausedOn::Subscriptions(pending) = paused_on else { unreachable!("looked at above") };
        self.answer_connect(context, key, *pending);
        self.resume(key, unparsed);
    }

    /// Sends the push of a server-side subscription to the client. Recovered publications follow as pushes.
    fn send_subscribed(&mut self, context: &mut Context, key: SessionKey, channel: &str, result: &SubscribeResult) {
        self.push(context, key, &Push::Subscribe { channel, result });
        for publication in &result.publications {
            let (channel, data) = (channel.into(), DataForm::Plain);
            self.push(context, key, &Push::Publication { channel, publication, data, skipped: 0 });
        }
    }

    /// Ends the subscriptions to a channel that cannot continue, so that their clients resubscribe.
    pub(in crate::shard) fn end_stale(
        &mut self,
        context: &mut Context,
        channel: &str,
        is_stale: fn(&SubscriptionFlags) -> bool,
    ) {
        let Some(id) = context.counters.found_or_late(self.hub.find(channel)) else { return };
        let entries = self.hub.channel(id).classes().flat_map(|(_, subscribers)| subscribers);
        let keys: Vec<SessionKey> = entries.map(|entry| self.table.at(entry.session).key).collect();
        for key in keys {
            let subscription = self.table.get(key).and_then(|session| session.subscription(id));
            match subscription.map(|subscription| subscription.flags).filter(is_stale) {
                Some(flags) if flags.server_side => {
                    self.close(context, key, &Disconnect::INSUFFICIENT_STATE);
                }
                Some(_) => self.end_subscription(context, key, id, UnsubscribeCode::INSUFFICIENT_STATE),
                None => {}
            }
        }
    }

    pub(super) fn sub_refresh(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        command_id: u32,
        request: &SubRefreshRequest<'_>,
    ) -> CommandOutcome {
        let channel = &*request.channel;
        if channel.is_empty() {
            return Err(RefusedCommand::bad_request(NO_CHANNEL));
        }
        let session = self.table.at(key.index);
        let subscription = self.hub.find(channel).and_then(|id| session.subscription(id));
        let Some(subscription) = subscription.filter(|subscription| !subscription.is_ending()) else {
            return Err(ErrorCode::PermissionDenied.into());
        };
        let namespace = self.hub.channel(subscription.channel).namespace;
        if subscription.flags.server_side || context.namespace(namespace).sub_refresh_proxy.is_some() {
            let why = "the server or its backend refreshes this subscription, not the client";
            return Err(RefusedCommand::bad_request(why));
        }
        if request.token.is_empty() || request.kind != 0 {
            let is_missing = request.token.is_empty();
            let why = if is_missing { "no token is given" } else { "a type of subscription other than 0" };
            return Err(Refused::new(ErrorCode::BadRequest, why).into());
        }
        let paused_on = PausedOn::SubRefresh { command_id, channel: channel.into() };
        self.wait_for_token(key, paused_on, &request.token, &mut context.effects);
        Ok(None)
    }

    pub(super) fn sub_refresh_with_token(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        channel: &str,
        outcome: Result<SubscriptionClaims, TokenError>,
    ) -> Result<Reply, RefusedCommand> {
        let claims = outcome.map_err(|error| match error {
            TokenError::Expired => RefusedCommand::from(ErrorCode::TokenExpired),
            TokenError::Invalid => Disconnect::INVALID_TOKEN.into(),
            TokenError::Unavailable => ErrorCode::Internal.into(),
        })?;
        self.check_claims(key, channel, &claims)?;
        let ttl = TimeToLive::until(claims.grant.expires_at_ms, context.now);
        let ttl = ttl.map_err(|AlreadyExpired| ErrorCode::Expired)?;
        let session = self.table.at(key.index);
        let id = self.hub.find(channel).filter(|id| session.subscription(*id).is_some());
        let Some(id) = id else { return Err(ErrorCode::PermissionDenied.into()) };
        let expiry_us = context.subscription_expiry_us(self.hub.channel(id).namespace, ttl);
        self.show_as(context, key, id, claims.grant.info);
        self.move_expiry(context, key, id, expiry_us);
        Ok(Reply::SubRefresh { ttl_s: ttl.map(TimeToLive::whole_s) })
    }

    /// Updates the subscription's channel info in publications, presence and the leave.
    fn show_as(&mut self, context: &mut Context, key: SessionKey, id: LocalChannelId, chan_info: Option<Payload>) {
        let session = self.table.at_mut(key.index);
        let of_session = session.info.clone();
        let Some(subscription) = session.subscription_mut(id) else { return };
        let info =
            chan_info.zip(of_session).map(|(chan_info, of_session)| Arc::new(of_session.with_chan_info(chan_info)));
        if info.is_some() || subscription.extra.is_some() {
            subscription.extra.get_or_insert_default().info = info;
        }
        self.show_in_presence(context, key, id);
    }

    fn move_expiry(&mut self, context: &mut Context, key: SessionKey, id: LocalChannelId, expiry_us: u64) {
        let session = self.table.at_mut(key.index);
        if let Some(subscription) = session.subscription_mut(id) {
            subscription.expiry_us = expiry_us;
            session.deadlines.subscriptions_us = session.deadlines.subscriptions_us.min(expiry_us);
            self.schedule_session(context, key);
        }
    }

    /// Handles the expiry of a subscription, which a backend may extend.
    pub(super) fn subscription_expires(&mut self, context: &mut Context, key: SessionKey, id: LocalChannelId) {
        let Some(session) = self.table.get(key) else { return };
        if session.subscription(id).is_none() {
            // The expiry of an earlier subscription has closed the session.
            return;
        }
        let channel = self.hub.channel(id);
        let (name, namespace) = (std::sync::Arc::clone(&channel.name), channel.namespace);
        let Some(proxy) = context.namespace(namespace).sub_refresh_proxy else {
            return self.end_expired(context, key, id);
        };
        let request_id = self.push_proxy_request(
            key,
            None,
            proxy,
            ProxyRequestKind::SubRefresh { channel: name },
            &mut context.effects,
        );
        if let Some(subscription) = self.table.at_mut(key.index).subscription_mut(id) {
            // No expiry until the response, which is guaranteed.
            subscription.expiry_us = u64::MAX;
            subscription.extra.get_or_insert_default().refresh = Some(request_id);
        }
    }

    fn end_expired(&mut self, context: &mut Context, key: SessionKey, id: LocalChannelId) {
        let subscription = self.table.get(key).and_then(|session| session.subscription(id));
        match subscription.map(|subscription: &Subscription| subscription.flags.server_side) {
            Some(true) => self.close(context, key, &Disconnect::SUBSCRIPTION_EXPIRED),
            Some(false) => self.end_subscription(context, key, id, UnsubscribeCode::EXPIRED),
            None => {}
        }
    }

    /// A backend has responded to the refresh of a subscription.
    pub(super) fn subscription_refreshed(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        id: LocalChannelId,
        outcome: ProxyResult,
    ) {
        let answer = match outcome {
            Ok(ProxyResponse::SubRefresh(answer)) => answer,
            Err(ProxyError::Disconnect(disconnect)) => return self.close(context, key, &disconnect),
            Ok(_) | Err(_) => return self.move_expiry(context, key, id, context.now.after_ms(UNANSWERED_GRACE_MS)),
        };
        let (false, Ok(ttl)) = (answer.expired, TimeToLive::until(answer.expires_at_ms, context.now)) else {
            return self.end_expired(context, key, id);
        };
        if answer.info.is_some() {
            self.show_as(context, key, id, answer.info);
        }
        let expiry_us = context.subscription_expiry_us(self.hub.channel(id).namespace, ttl);
        self.move_expiry(context, key, id, expiry_us);
    }

    pub(super) fn unsubscribe(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        command_id: u32,
        channel: &str,
    ) -> CommandOutcome {
        if channel.is_empty() {
            return Err(RefusedCommand::bad_request(NO_CHANNEL));
        }
        let Some(id) = self.hub.find(channel) else { return Ok(Some(Reply::Unsubscribe)) };
        let Some(subscription) = self.table.at_mut(key.index).subscription_mut(id) else {
            return Ok(Some(Reply::Unsubscribe));
        };
        if subscription.is_ending() {
            return Ok(Some(Reply::Unsubscribe));
        }
        if subscription.place.is_none() {
            // The unsubscribe command is answered after the subscribe command, which the owner has not answered yet.
            subscription.extra.get_or_insert_default().ending = Some(Ending::Asked { command_id });
            return Ok(None);
        }
        self.drop_subscription(context, key, id);
        Ok(Some(Reply::Unsubscribe))
    }

    /// Ends a subscription and informs the client. Does nothing if the session no longer has it: the push about an
    /// earlier one may have closed the session.
    pub(super) fn end_subscription(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        id: LocalChannelId,
        code: UnsubscribeCode,
    ) {
        self.end_subscription_with(context, key, id, code, code.reason());
    }

    /// As [`Sessions::end_subscription`], with another reason.
    pub(super) fn end_subscription_with(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        id: LocalChannelId,
        code: UnsubscribeCode,
        reason: &str,
    ) {
        let session = self.table.get_mut(key);
        let Some(subscription) = session.and_then(|session| session.subscription_mut(id)) else { return };
        if subscription.place.is_none() {
            // The owner has not answered yet. If the client has unsubscribed already, that takes precedence.
            subscription
                .extra
                .get_or_insert_default()
                .ending
                .get_or_insert_with(|| Ending::Forced { code, reason: reason.into() });
            return;
        }
        let channel = Arc::clone(&self.hub.channel(id).name);
        self.drop_subscription(context, key, id);
        if context.records(RecordLevel::Sessions) {
            let what = SessionIncident::Unsubscribed { channel: Arc::clone(&channel), code: code.0 };
            self.record(context, key, what);
        }
        let push = Push::Unsubscribe { channel: &channel, code, reason };
        self.push(context, key, &push);
    }

    /// Ends a subscription: removes it from the session, from the hub and from its owner.
    pub(super) fn drop_subscription(&mut self, context: &mut Context, key: SessionKey, id: LocalChannelId) {
        let session = self.table.at_mut(key.index);
        let Some(subscription) = session.remove_subscription(id) else { return };
        self.table.outbox(key.index).discard_latest(id);
        self.detach(context, key, &subscription, Departure::Left);
    }

    /// Removes a subscription, which its session no longer lists, from the hub and from its owner. A pending one is
    /// handled when the owner answers.
    pub(super) fn detach(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        subscription: &Subscription,
        departure: Departure,
    ) {
        let id = subscription.channel;
        if let Some(place) = subscription.place {
            let session = self.table.at(key.index);
            let subscriber = session.subscriber(subscription);
            let seat = subscription.seat();
            let room = seat.and_then(|seat| self.room_of(context, seat));
            let left = room.map(|(room, seat)| LeftSeat { room, seat, departure });
            if let Some(moved) = self.hub.remove(id, subscriber.class, place) {
                let moved = self.table.at_mut(moved.session).subscription_mut(id);
                moved.expect("the index and the sessions agree").place = Some(place);
            }
            let channel = self.hub.channel(id);
            let (name, namespace) = (Arc::clone(&channel.name), channel.namespace);
            context.count(namespace).subscriptions -= 1;
            context.leave_owner(name, subscriber, left);
            if let Some(seat) = seat {
                self.free_seat(context, seat);
            }
        } else if let Some(seat) = subscription.seat() {
            let departure = if subscription.is_ending() { Departure::Left } else { departure };
            self.seats.at_mut(seat).departure = Some(departure);
        }
        self.release(subscription);
    }

    /// Releases a subscription's channel and filter in the hub.
    pub(super) fn release(&mut self, subscription: &Subscription) {
        if let Some(filter) = subscription.filter {
            self.hub.release_filter(subscription.channel, filter);
        }
        self.hub.release(subscription.channel);
    }

    /// Ends subscriptions whose channels became unknown, or whose positions became invalid.
    pub(in crate::shard) fn end_subscriptions_of(&mut self, context: &mut Context, changes: &[NamespaceChange]) {
        let mut ended: Vec<(SessionKey, LocalChannelId, UnsubscribeCode)> = Vec::new();
        for session in self.table.iter() {
            for subscription in &session.subscriptions {
                let namespace = self.hub.channel(subscription.channel).namespace;
                let code = match changes.get(usize::from(namespace.0)) {
                    Some(NamespaceChange::Retired) => UnsubscribeCode::SERVER,
                    // A client cannot resubscribe where it did not subscribe itself: such a subscription continues
                    // without a position.
                    Some(NamespaceChange::StreamGone)
                        if subscription.flags.positioned && !subscription.flags.server_side =>
                    {
                        UnsubscribeCode::INSUFFICIENT_STATE
                    }
                    _ => continue,
                };
                ended.push((session.key, subscription.channel, code));
            }
        }
        for (key, id, code) in ended {
            self.end_subscription(context, key, id, code);
        }
    }
}

impl Context {
    /// Removes the publications of a recovery that does not fit next to `other_bytes`. Returns the bytes of the
    /// recovery.
    pub(super) fn cut_recovery(&mut self, result: &mut SubscribeResult, other_bytes: usize) -> usize {
        let bytes = match &result.encoded {
            Some(encoded) => encoded.bytes().len(),
            None => result.publications.iter().map(|publication| encoded_bytes_max(publication)).sum(),
        };
        if bytes == 0 || other_bytes == 0 || other_bytes + bytes <= self.options.client.recovery_bytes_max() {
            return bytes;
        }
        // The client continues from the top, as after any incomplete recovery.
        if result.recovered {
            result.offset = result.publications.last().map_or(result.offset, |newest| newest.offset);
        }
        result.publications.clear();
        (result.patches, result.encoded, result.recovered) = (Vec::new(), None, false);
        self.counters.recoveries_cut += 1;
        0
    }

    /// The backend that authorizes subscriptions to `channel` without a token. `None` if the channel's name lists its
    /// users.
    fn subscribe_proxy(&self, channel: &str) -> Option<ProxyIndex> {
        let namespace = self.names.resolve(channel).ok()?;
        self.namespace(namespace).subscribe_proxy.filter(|_| !self.is_user_limited(channel, namespace))
    }

    /// The deadline of a subscription with this time to live. A backend is asked at the expiry; without one, the client
    /// has a grace period to refresh.
    pub(super) fn subscription_expiry_us(&self, namespace: NamespaceIndex, ttl: Option<TimeToLive>) -> u64 {
        let asks = self.namespace(namespace).sub_refresh_proxy.is_some();
        expiry_us(self.now, ttl, if asks { 0 } else { self.options.client.expired_sub_close_delay_ms })
    }

    /// Whether a server-side subscription is possible. Rooms have none, because the client has to send the data of the
    /// join.
    pub(super) fn check_server_side(&self, subscription: &ServerSubscription) -> Result<NamespaceIndex, ErrorCode> {
        let namespace = self.names.resolve(&subscription.channel)?;
        if self.namespace(namespace).room.is_some() {
            return Err(ErrorCode::NotAvailable);
        }
        match TimeToLive::until(subscription.grant.expires_at_ms, self.now) {
            Ok(_) => Ok(namespace),
            Err(AlreadyExpired) => Err(ErrorCode::Expired),
        }
    }

    pub(super) fn leave_owner(&mut self, channel: Arc<str>, subscriber: Subscriber, seat: Option<LeftSeat>) {
        let owner = self.owner(&channel);
        let request = ShardRequest::Unsubscribe { channel, shard: self.identity.index, subscriber, seat };
        self.request(owner, request);
    }
}

/// The position to recover a subscription from. Cache recovery also applies without a request, if the namespace enables
/// it.
pub(super) fn recover_from(
    params: &SubscriptionParams,
    flags: SubscriptionFlags,
    options: &NamespaceOptions,
) -> Option<RecoverFrom> {
    let is_auto = options.auto_cache_recover && options.recovery_mode == RecoveryMode::Cache;
    if !flags.recoverable || !params.recover && !is_auto {
        return None;
    }
    let (offset, epoch) = if params.recover { (params.offset, params.epoch.clone()) } else { Default::default() };
    Some(RecoverFrom { offset, epoch, reject_unrecoverable: params.reject_unrecoverable })
}
