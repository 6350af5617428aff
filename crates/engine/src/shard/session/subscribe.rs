//! Subscribes sessions to channels.

use std::sync::Arc;

use bytes::Bytes;
use dunlin_protocol::{Disconnect, ErrorCode, Payload, Reply, SubscribeRequest, SubscribeResult, TagsFilter};

use crate::{
    SessionKey,
    backend::{ProxyIndex, ProxyRequestKind},
    event::{SubscriptionClaims, SubscriptionGrant, TokenError},
    hub::{HubEntry, LocalChannelId},
    message::{NotSubscribed, RecoverFrom, ShardRequest, Subscribed, Subscriber, SubscriptionRequest},
    names::NamespaceIndex,
    planted::Bug,
    refused::{Refused, RefusedCommand},
    room::{Departure, LeftSeat},
    seats::RoomRoute,
    session::{
        Ending, Paused, PausedOn, ProxiedCommand, Session, Subscription, SubscriptionExtra, SubscriptionFlags,
        SubscriptionParams,
    },
};

use super::{
    Context, Sessions,
    commands::{CommandOutcome, CommandRef, NO_CHANNEL},
    negotiation::recover_from,
    refresh::TimeToLive,
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
            let data = request.data.and_then(|data| self.payload(key, data));
            let kind = ProxyRequestKind::Subscribe { channel: self.channel_name(channel), data };
            self.send_proxy_request(
                key,
                command_id,
                proxy,
                kind,
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
        let paused =
            self.table.get_mut(key).and_then(|session| session.paused.take_if(|paused| waits(&paused.paused_on)));
        let Some(paused) = paused else { return };
        let Paused { paused_on, unparsed } = *paused;
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
            joins.map(|(params, info)| self.take_seat(context, key, &channel, namespace, params, info)).unzip();
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
            creator: self.creator(context, key),
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
        if context.planted.is(Bug::LateAnswerLeaks) {
            return;
        }
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
}
impl Context {
    /// The backend that authorizes subscriptions to `channel` without a token. `None` if the channel's name lists its
    /// users.
    fn subscribe_proxy(&self, channel: &str) -> Option<ProxyIndex> {
        let namespace = self.names.resolve(channel).ok()?;
        self.namespace(namespace).subscribe_proxy.filter(|_| !self.is_user_limited(channel, namespace))
    }
}
