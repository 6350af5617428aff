//! Subscribes sessions to channels.

use std::sync::Arc;

use bytes::Bytes;
use dunlin_protocol::{Disconnect, ErrorCode, Payload, Reply, SubscribeRequest, SubscribeResult, TagsFilter};
use dunlin_rooms::Refusal;

use crate::{
    SessionKey,
    backend::{ProxyIndex, ProxyRequestKind},
    event::{SubscriptionClaims, SubscriptionGrant, TokenError},
    hub::{HubEntry, LocalChannelId},
    message::{NotSubscribed, RecoverFrom, ShardRequest, Subscribed, Subscriber, SubscriptionRequest},
    names::NamespaceIndex,
    planted::Bug,
    room::{Departure, LeftSeat},
    seats::RoomRoute,
    session::{
        Ending, Paused, PausedOn, ProxiedCommand, Session, Subscription, SubscriptionExtra, SubscriptionFlags,
        SubscriptionParams,
    },
};

use super::{Context, Sessions, negotiation::recover_from, refresh::TimeToLive};

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
    ) -> Result<Option<Reply>, Disconnect> {
        let channel = &*request.channel;
        if channel.is_empty() || !matches!(&*request.delta, "" | "fossil") {
            context.note_refusal_reason(if channel.is_empty() {
                "no channel is named"
            } else {
                "a delta that is not fossil"
            });
            return Err(Disconnect::BAD_REQUEST);
        }
        if let Err(code) = self.may_subscribe(context, key, request) {
            return Ok(Some(Reply::Error(code)));
        }
        let Ok(filter) = self.tags_filter(context, key, request)? else {
            return Ok(Some(Reply::Error(ErrorCode::BadRequest)));
        };
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
            return Ok(self.request_subscription(context, key, command_id, &params, grant).err().map(Reply::Error));
        }
        let paused_on = PausedOn::Subscribe { command_id, params: Box::new(params) };
        self.wait_for_token(key, paused_on, &request.token, &mut context.effects);
        Ok(None)
    }

    /// Checks everything that does not depend on a token, in the order of errors that clients of the protocol expect.
    fn may_subscribe(
        &self,
        context: &Context,
        key: SessionKey,
        request: &SubscribeRequest<'_>,
    ) -> Result<(), ErrorCode> {
        let channel = &*request.channel;
        let session = self.table.at(key.index);
        if channel.len() > context.options.channel.name_bytes_max {
            context.note_refusal_reason("the name of the channel is longer than channel.max_length");
            return Err(ErrorCode::BadRequest);
        }
        if self.hub.find(channel).is_some_and(|id| session.subscription(id).is_some()) {
            return Err(ErrorCode::AlreadySubscribed);
        }
        if session.subscriptions.len() >= context.options.client.channel_limit {
            return Err(ErrorCode::LimitExceeded);
        }
        let index = context.resolve(channel)?;
        if request.kind != 0 || context.names.is_private(channel) && request.token.is_empty() {
            return Err(ErrorCode::PermissionDenied);
        }
        let user = session.info.as_ref().map_or("", |info| &info.user);
        let is_decided_elsewhere = !request.token.is_empty() || context.subscribe_proxy(channel).is_some();
        let is_open =
            is_decided_elsewhere || context.is_open_to(user, channel, index) || context.options.client.insecure;
        if !is_open {
            return Err(ErrorCode::PermissionDenied);
        }
        if request.tags_filter.is_some() && !context.namespace(index).allow_tags_filter {
            context.note_refusal_reason("allow_tags_filter is off in the namespace of the channel");
            return Err(ErrorCode::BadRequest);
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
        let (command_id, answer) = match paused_on {
            PausedOn::Subscribe { command_id, params } => {
                let answer = self.subscribe_with_token(context, key, command_id, &params, outcome);
                self.note_command_if_refused(context, key, &answer, "subscribe", Some(&params.channel));
                (command_id, answer)
            }
            PausedOn::SubRefresh { command_id, channel } => {
                let answer = self.sub_refresh_with_token(context, key, &channel, outcome).map(Some);
                self.note_command_if_refused(context, key, &answer, "sub_refresh", Some(&channel));
                (command_id, answer)
            }
            _ => unreachable!("looked at above"),
        };
        match answer {
            Ok(Some(reply)) => self.reply(context, key, command_id, &reply),
            Ok(None) => {}
            Err(disconnect) => self.close(context, key, &disconnect),
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
    ) -> Result<Option<Reply>, Disconnect> {
        let claims = match outcome {
            Ok(claims) => claims,
            Err(TokenError::Expired) => return Ok(Some(Reply::Error(ErrorCode::TokenExpired))),
            Err(TokenError::Invalid) => return Ok(Some(Reply::Error(ErrorCode::PermissionDenied))),
            Err(TokenError::Unavailable) => return Ok(Some(Reply::Error(ErrorCode::Internal))),
        };
        self.check_claims(key, &params.channel, &claims)?;
        Ok(self.request_subscription(context, key, command_id, params, claims.grant).err().map(Reply::Error))
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
    ) -> Result<(), ErrorCode> {
        let namespace = context.resolve(&params.channel)?;
        let session = self.table.at(key.index);
        if context.namespace(namespace).room.is_some() && !session.wire.is_websocket() {
            // A room's snapshots have WebSocket framing, which would break an HTTP response.
            context.note_refusal_reason("rooms are for WebSockets alone");
            return Err(ErrorCode::NotAvailable);
        }
        // The API may have subscribed the session during the token check or the backend request.
        if self.hub.find(&params.channel).is_some_and(|id| session.subscription(id).is_some()) {
            return Err(ErrorCode::AlreadySubscribed);
        }
        if session.subscriptions.len() >= context.options.client.channel_limit {
            return Err(ErrorCode::LimitExceeded);
        }
        let Ok(ttl) = TimeToLive::until(grant.expires_at_ms, context.now) else { return Err(ErrorCode::Expired) };
        let flags = self.subscription_flags(context, key, Some(params), namespace, grant.overrides);
        // The client keeps its position, and retries later.
        if flags.recoverable && params.recover && !self.rates.recoveries.try_take(context.now.mono_us) {
            context.counters.recoveries_refused += 1;
            context.note_refusal_reason("more recoveries in a second than client.recovery_rate_limit");
            return Err(ErrorCode::TooManyRequests);
        }
        let filters_max = context.options.channel.tags_filters_max;
        if params.filter.as_ref().is_some_and(|filter| !self.hub.takes_filter(&params.channel, filter, filters_max)) {
            return Err(ErrorCode::LimitExceeded);
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
        let reply = match outcome {
            Ok(result) => Reply::Subscribe(Box::new(result)),
            Err(NotSubscribed::Error(code)) => Reply::Error(code),
            Err(NotSubscribed::Refused(refusal)) => refused(refusal),
        };
        if !matches!(reply, Reply::Subscribe(_)) {
            self.note_command(context, key, "subscribe", Some(&request.channel));
        }
        self.reply(context, key, request.asker.command_id, &reply);
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

/// The reply with the game's code and message. Codes below 400 are reserved for the server.
fn refused(refusal: Refusal) -> Reply {
    Reply::Refused { code: refusal.code.clamp(400, 1_999), message: refusal.message, temporary: false }
}
