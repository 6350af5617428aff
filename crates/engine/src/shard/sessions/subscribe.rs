//! Subscriptions of sessions to channels: how a client's are checked and negotiated, how the server makes its own, and what
//! follows the answer of the owner. Server-side ones come from the connection token, a backend, the personal channel, the
//! client's request in `connect`, or the API.

use std::sync::Arc;

use bytes::Bytes;
use dunlin_protocol::{
    ClientInfo, DataForm, Disconnect, ErrorCode, FilterError, Payload, Push, Reply, SubscribeRequest, SubscribeResult,
    TagsFilter, UnsubscribeCode,
};
use rand_chacha::rand_core::RngCore;

use crate::{
    SessionKey,
    backend::{Overrides, ProxyIndex, ProxyRequestKind},
    event::{RecoveryReport, ServerSubscription, SubscriptionClaims, SubscriptionGrant, TokenError},
    history_stream::encoded_bytes_max,
    hub::{HubEntry, LocalChannelId},
    lifecycle::BY_CLIENT,
    message::{AnswerPace, NotSubscribed, RecoverFrom, ShardRequest, Subscribed, Subscriber, SubscriptionRequest},
    names::NamespaceIndex,
    options::{Lane, NamespaceOptions, RecoveryMode},
    pace::UpdatePace,
    refused::{Refused, RefusedCommand},
    room::{
        Departure, JOIN_HELD_MAX_MS, JOIN_WAIT_MAX_MS, JoinParams, LeftSeat, Opening, SeatClaim, SeatToken,
        asks_for_typed_snapshots, asks_to_spectate,
    },
    session::{
        DueJoin, Ending, Paused, PausedOn, ProxiedCommand, Session, Share, Subscription, SubscriptionExtra,
        SubscriptionFlags, SubscriptionParams,
    },
    session_seats::{RoomRoute, SeatIndex},
};

use super::{
    Context,
    commands::{CommandOutcome, CommandRef, NO_CHANNEL},
    connect::Connecting,
    inputs::send_kept,
    node_rates::Rates,
    open_sessions::OpenSessions,
    pacing,
    permission::{self, Permission, is_open_to, is_user_limited},
    refresh::subscription_expiry_us,
    time_to_live::{AlreadyExpired, TimeToLive},
};

const TOO_MANY_SUBSCRIPTIONS: &str = "the session has client.channel_limit subscriptions";
const UNREAD: &str =
    "the room is open, but the answer did not fit into the session's queue in time: the client reads too slowly";
const REVOKED_TOKEN: &str = "the subscription token is revoked";
const INVALID_TOKEN: &str = "the subscription token is not valid; a line about the token says why";

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
    pub(super) pace: Option<UpdatePace>,
    /// The parameters for joining the channel's room, if it has one.
    pub(super) joins: Option<&'a SubscriptionParams>,
}

/// A subscription of one session: its request, the answer of its owner, or its end by the client.
pub(super) struct Subscribing<'s> {
    pub(super) context: &'s mut Context,
    pub(super) sessions: &'s mut OpenSessions,
    pub(super) rates: &'s mut Rates,
    pub(super) key: SessionKey,
}

impl Subscribing<'_> {
    fn connecting(&mut self) -> Connecting<'_> {
        Connecting { context: self.context, sessions: self.sessions, rates: self.rates, key: self.key }
    }

    pub(super) fn subscribe(&mut self, command_id: u32, request: &SubscribeRequest<'_>) -> CommandOutcome {
        let channel = &*request.channel;
        if channel.is_empty() || !matches!(&*request.delta, "" | "fossil") {
            let why = if channel.is_empty() { NO_CHANNEL } else { "a delta that is not fossil" };
            return Err(RefusedCommand::bad_request(why));
        }
        self.may_subscribe(request)?;
        let filter = self.tags_filter(request)?;
        let namespace = self.context.resolve(channel)?;
        let pace = pacing::pace_in(self.context, namespace, request.data.unwrap_or_default())?;
        let params = SubscriptionParams {
            commanded_us: self.context.now.mono_us,
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
            pace,
            ended: None,
        };
        if let Some(proxy) = self.subscribe_proxy(channel).filter(|_| request.token.is_empty()) {
            let data = request.data.and_then(|data| self.sessions.table.at(self.key.index).payload(data));
            let kind = ProxyRequestKind::Subscribe { channel: self.sessions.channel_name(channel), data };
            self.sessions.send_proxy_request(
                self.key,
                command_id,
                (proxy, kind),
                ProxiedCommand::Subscribe(params),
                &mut self.context.effects,
            );
            return Ok(None);
        }
        if request.token.is_empty() {
            let grant = SubscriptionGrant::default();
            self.request_subscription(command_id, &params, grant)?;
            return Ok(None);
        }
        let paused_on = PausedOn::Subscribe { command_id, params: Box::new(params) };
        self.sessions.table.wait_for_token(self.key, paused_on, &request.token, &mut self.context.effects);
        Ok(None)
    }

    /// Checks everything that does not depend on a token, in the order of errors that clients of the protocol expect.
    fn may_subscribe(&self, request: &SubscribeRequest<'_>) -> Result<(), Refused> {
        let channel = &*request.channel;
        let session = self.sessions.table.at(self.key.index);
        if channel.len() > self.context.options.channel.name_bytes_max {
            let why = "the name of the channel is longer than channel.max_length";
            return Err(Refused::new(ErrorCode::BadRequest, why));
        }
        if self.sessions.hub.find(channel).is_some_and(|id| session.subscription(id).is_some()) {
            return Err(ErrorCode::AlreadySubscribed.into());
        }
        if session.subscriptions.len() >= self.context.options.client.channel_limit {
            return Err(Refused::new(ErrorCode::LimitExceeded, TOO_MANY_SUBSCRIPTIONS));
        }
        let index = self.context.resolve(channel)?;
        if request.kind != 0 {
            return Err(permission::of_other_type());
        }
        if self.context.names.is_private(channel) && request.token.is_empty() {
            return Err(permission::needs_token());
        }
        let user = session.info.as_ref().map_or("", |info| &info.user);
        let is_decided_elsewhere = !request.token.is_empty() || self.subscribe_proxy(channel).is_some();
        let is_open = is_decided_elsewhere
            || is_open_to(self.context, user, channel, index)
            || self.context.options.client.insecure;
        if !is_open {
            return Err(permission::not_open_to(self.context, user, channel, index));
        }
        if request.tags_filter.is_some() && !self.context.namespace(index).allow_tags_filter {
            let why = "allow_tags_filter is off in the namespace of the channel";
            return Err(Refused::new(ErrorCode::BadRequest, why));
        }
        Ok(())
    }

    pub(super) fn subscribe_with_token(
        &mut self,
        command_id: u32,
        params: &SubscriptionParams,
        outcome: Result<SubscriptionClaims, TokenError>,
    ) -> CommandOutcome {
        let claims = outcome.map_err(|error| match error {
            TokenError::Expired => Refused::from(ErrorCode::TokenExpired),
            TokenError::Invalid => Refused::new(ErrorCode::PermissionDenied, INVALID_TOKEN),
            TokenError::Unavailable => ErrorCode::Internal.into(),
        })?;
        if self.context.check_revoked(&claims.user, &claims.token).is_err() {
            return Err(Refused::new(ErrorCode::PermissionDenied, REVOKED_TOKEN).into());
        }
        self.sessions.check_claims(self.key, &params.channel, &claims)?;
        self.request_subscription(command_id, params, claims.grant)?;
        Ok(None)
    }

    /// Sends a client's authorized subscription to the channel's owner.
    pub(super) fn request_subscription(
        &mut self,
        command_id: u32,
        params: &SubscriptionParams,
        grant: SubscriptionGrant,
    ) -> Result<(), Refused> {
        let namespace = self.context.resolve(&params.channel)?;
        let session = self.sessions.table.at(self.key.index);
        if self.context.namespace(namespace).room.is_some() && !session.wire.is_websocket() {
            // A room's snapshots have WebSocket framing, which would break an HTTP response.
            return Err(Refused::new(ErrorCode::NotAvailable, "rooms are for WebSockets alone"));
        }
        // The API may have subscribed the session during the token check or the backend request.
        if self.sessions.hub.find(&params.channel).is_some_and(|id| session.subscription(id).is_some()) {
            return Err(ErrorCode::AlreadySubscribed.into());
        }
        if session.subscriptions.len() >= self.context.options.client.channel_limit {
            return Err(Refused::new(ErrorCode::LimitExceeded, TOO_MANY_SUBSCRIPTIONS));
        }
        let Ok(ttl) = TimeToLive::until(grant.expires_at_ms, self.context.now) else {
            return Err(ErrorCode::Expired.into());
        };
        let flags = self.subscription_flags(Some(params), namespace, grant.overrides);
        // The client keeps its position, and retries later.
        if flags.recoverable && params.recover && !self.rates.recoveries.try_take(self.context.now.mono_us) {
            self.context.counters.recoveries_refused += 1;
            let why = "more recoveries in a second than client.recovery_rate_limit";
            return Err(Refused::new(ErrorCode::TooManyRequests, why));
        }
        let filters_max = self.context.options.channel.tags_filters_max;
        if params
            .filter
            .as_ref()
            .is_some_and(|filter| !self.sessions.hub.takes_filter(&params.channel, filter, filters_max))
        {
            return Err(ErrorCode::LimitExceeded.into());
        }
        let options = self.context.namespace(namespace);
        let recover = recover_from(params, flags, options);
        let new_subscription = NewSubscription {
            channel: &params.channel,
            namespace,
            flags,
            info: grant.info,
            data: grant.data,
            // If a backend refreshes the subscription, the client does not need the time.
            ttl_s: ttl.filter(|_| options.sub_refresh_proxy.is_none()).map(TimeToLive::whole_s),
            expiry_us: subscription_expiry_us(self.context, namespace, ttl),
            was_recovering: params.recover || recover.is_some(),
            recover,
            filter: params.filter.clone(),
            pace: params.pace,
            joins: options.room.is_some().then_some(params),
        };
        self.send_subscription_request(command_id, new_subscription);
        if let Some(code) = params.ended
            && let Some(id) = self.sessions.hub.find(&params.channel)
        {
            self.sessions.end_subscription(self.context, self.key, id, code);
        }
        Ok(())
    }

    /// Sends a subscription to the channel's owner.
    pub(super) fn send_subscription_request(&mut self, command_id: u32, new_subscription: NewSubscription<'_>) {
        let NewSubscription { channel: name, namespace, flags, info, data, ttl_s, expiry_us, .. } = new_subscription;
        let NewSubscription { was_recovering, recover, filter, pace, joins, .. } = new_subscription;
        let session = self.sessions.table.at(self.key.index);
        let of_session = session.info.as_ref().expect("an authenticated session has its info");
        let info = info.map(|chan_info| Arc::new(of_session.with_chan_info(chan_info)));
        let subscriber = Subscriber {
            class: session.class(flags),
            join_leave: flags.join_leave,
            info: flags.needs_client_info().then(|| Arc::clone(info.as_ref().unwrap_or(of_session))),
            presence: flags.presence,
            announced: flags.announced,
        };
        let id = self.sessions.hub.hold(name, namespace);
        let place = filter.as_ref().and_then(|filter| self.sessions.hub.hold_filter(id, filter));
        let channel = Arc::clone(&self.sessions.hub.channel(id).name);
        let of_visitor = || Arc::clone(info.as_ref().unwrap_or(of_session));
        let joins = joins.map(|params| (params, of_visitor()));
        let (seat, join) = joins.map(|(params, info)| self.take_seat((&channel, namespace), params, info)).unzip();
        if let Some(seat) = seat {
            self.sessions.seats.set_pace(seat, pace);
        }
        let extra = SubscriptionExtra { info, ttl_s, data, ending: None, seat, refresh: None, pace };
        let is_needed = extra.outlives_answer() || extra.ttl_s.is_some() || extra.data.is_some();
        let session = self.sessions.table.at_mut(self.key.index);
        session.subscriptions.reserve_exact(1);
        let extra = is_needed.then(|| Box::new(extra));
        session.subscriptions.push(Subscription { channel: id, place: None, flags, filter: place, expiry_us, extra });
        let positioned = flags.positioned;
        let is_large = recover.is_some() || self.context.namespace(namespace).cache_keys_max > 0;
        let asker = match command_id {
            // A request by the server itself.
            0 => self.context.asker(self.key, command_id),
            _ => self.sessions.register_request(self.context, self.key, command_id, is_large),
        };
        let request = SubscriptionRequest {
            answer: if is_large { AnswerPace::Awaited } else { AnswerPace::Short },
            channel,
            asker,
            creator: self
                .sessions
                .table
                .at(self.key.index)
                .creator(self.context.identity.index, self.context.node_seed),
            subscriber,
            positioned,
            was_recovering,
            asked_us: self.context.now.mono_us,
            recover,
            filter,
            join,
        };
        self.context.request(self.context.owner(name), ShardRequest::Subscribe(Box::new(request)));
    }

    /// Reports a recovery, if that is wanted.
    fn report_recovery(&mut self, request: &SubscriptionRequest, subscribed: &Subscribed) {
        if request.was_recovering && self.context.options.following.recoveries {
            self.context.effects.recoveries.push(RecoveryReport {
                session: self.key,
                channel: Arc::clone(&request.channel),
                asked_us: request.asked_us,
                is_recovered: subscribed.recovered,
                publications: subscribed.publications.len(),
            });
        }
    }

    /// The owner has answered a subscription. Its publications follow this answer.
    pub(in crate::shard) fn subscribed(
        &mut self,
        request: SubscriptionRequest,
        outcome: Result<Box<Subscribed>, NotSubscribed>,
    ) {
        if let Some(join) = &request.join {
            self.release_opening(join);
        }
        let is_there = self.sessions.table.get(self.key).is_some_and(Session::is_authenticated);
        if !is_there {
            // The session closed before the owner answered, so the owner needs the unsubscribe now.
            self.context.counters.late_messages += 1;
            return self.leave_unanswered(request, outcome.ok());
        }
        let id =
            self.sessions.hub.find(&request.channel).expect("a session that waits for an answer holds the channel");
        let subscription = self.sessions.table.at(self.key.index).subscription(id).expect("it waits for this answer");
        let is_server_side = subscription.flags.server_side;
        let (outcome, ending) = match outcome {
            Ok(subscribed) => {
                self.report_recovery(&request, &subscribed);
                let (result, ending) = self.enter(id, &request, *subscribed);
                (Ok(result), ending)
            }
            Err(refused) => (Err(refused), self.withdraw(id)),
        };
        if is_server_side {
            self.sessions.table.schedule(self.key, &mut self.context.timers);
            return self.server_side_answered(id, outcome, ending);
        }
        let outcome = outcome.map(|result| Some(Reply::Subscribe(Box::new(result)))).map_err(RefusedCommand::from);
        let command =
            CommandRef { id: request.asker.command_id, command: "subscribe", channel: Some(&request.channel) };
        self.sessions.answer(self.context, self.key, command, outcome);
        let was_awaited = request.answer == AnswerPace::Awaited;
        self.sessions.table.owner_replied(self.key, was_awaited, &mut self.context.effects);
        self.sessions.table.schedule(self.key, &mut self.context.timers);
        match ending {
            Some(Ending::Asked { command_id }) => {
                self.sessions.drop_subscription(self.context, self.key, id, BY_CLIENT);
                self.sessions.reply(self.context, self.key, command_id, &Reply::Unsubscribe);
            }
            Some(Ending::Forced { code, reason }) => {
                self.sessions.end_subscription_with(self.context, self.key, id, code, &reason);
            }
            None => return,
        }
        self.sessions.table.recall_after_ending(self.key, id, &mut self.context.effects);
    }

    /// The owner has answered the join of a seat that is kept.
    pub(in crate::shard) fn rejoined(
        &mut self,
        request: SubscriptionRequest,
        outcome: Result<Box<Subscribed>, NotSubscribed>,
    ) {
        let join = request.join.as_deref().expect("the caller has looked at it");
        let seat = self.sessions.seats.find(join.seat).expect("a seat is kept until its join is answered");
        let route = outcome.ok().and_then(|subscribed| subscribed.room).map(|(key, thread)| RoomRoute { key, thread });
        let (departure, channel) = (self.sessions.seats.at(seat).departure, self.sessions.seats.at(seat).channel);
        let namespace = self.sessions.hub.channel(channel).namespace;
        match (departure, route) {
            (Some(departure), route) => {
                if let Some(RoomRoute { key: room, .. }) = route {
                    self.context.leave_room(request.channel, LeftSeat { room, seat: join.seat, departure });
                }
                self.sessions.free_seat(self.context, seat);
            }
            (None, Some(route)) => {
                self.context.count(namespace).rooms.seats_kept += 1;
                self.join_room(seat, route);
            }
            (None, None) => {
                self.context.count(namespace).rooms.seats_not_kept += 1;
                self.sessions.seats.release_inputs(seat);
                self.sessions.end_subscription(self.context, self.key, channel, UnsubscribeCode::ROOM_FAILED);
            }
        }
    }

    /// The room of a join that waited for other nodes is open.
    pub(in crate::shard) fn join_is_due(&mut self, request: Box<SubscriptionRequest>) {
        let session = self.sessions.table.get(self.key).filter(|session| session.is_authenticated());
        let subscription = session.zip(self.sessions.hub.find(&request.channel));
        let subscription = subscription.and_then(|(session, id)| session.subscription(id));
        if subscription.is_none_or(Subscription::is_ending) {
            return self.refuse_due_join(*request, ErrorCode::Internal.into());
        }
        let join = request.join.as_deref().expect("only joins wait for rooms");
        let until_us = held_until_us(self.context, join);
        let extra = self.sessions.table.at_mut(self.key.index).extra.get_or_insert_default();
        extra.hold_join(DueJoin { request, until_us });
        self.send_due_joins();
        self.sessions.table.schedule(self.key, &mut self.context.timers);
    }

    /// Refuses the joins whose client has not read for too long. Whoever answers pings and reads nothing would keep their rooms
    /// open, and the places of other sessions' joins taken.
    pub(in crate::shard) fn refuse_overdue_joins(&mut self) {
        let now_us = self.context.now.mono_us;
        while let Some(request) =
            self.sessions.table.get_mut(self.key).and_then(|session| session.take_overdue_join(now_us))
        {
            let seat = request.join.as_ref().and_then(|join| self.sessions.seats.find(join.seat));
            let seat = self.sessions.seats.at(seat.expect("a join has a seat until it is answered"));
            let namespace = self.sessions.hub.channel(seat.channel).namespace;
            self.context.count(namespace).rooms.joins_unread += 1;
            self.refuse_due_join(*request, Refused::new(ErrorCode::TooManyRequests, UNREAD));
        }
    }

    /// Each join that the owner has sent goes back to it, or is refused here: the owner counts it for its room until then.
    fn refuse_due_join(&mut self, request: SubscriptionRequest, why: Refused) {
        if let Some(join) = &request.join {
            self.context.drop_due_join(Arc::clone(&request.channel), join.seat);
        }
        self.subscribed(request, Err(why.into()));
    }

    /// Sends the joins of the session whose rooms are open to them, one at a time, as its commands with large answers.
    pub(in crate::shard) fn send_due_joins(&mut self) {
        let Some(session) = self.sessions.table.get(self.key).filter(|session| session.has_due_joins()) else { return };
        if session.awaits_large_reply {
            return;
        }
        let outbox = self.sessions.table.outbox(self.key.index);
        // Their own replies do not count as frames to come: they would wait for themselves.
        if outbox.is_over_pace(&self.context.options.client, Share::Quarter, 0) {
            return outbox.pace();
        }
        let session = self.sessions.table.at_mut(self.key.index);
        let next = session.extra.as_mut().and_then(|extra| extra.due_joins.pop_front());
        let Some(DueJoin { mut request, .. }) = next else { return };
        session.awaits_large_reply = true;
        request.answer = AnswerPace::Awaited;
        self.context.request(self.context.owner(&request.channel), ShardRequest::Subscribe(request));
    }

    /// The session of an answered subscription has ended.
    fn leave_unanswered(&mut self, request: SubscriptionRequest, accepted: Option<Box<Subscribed>>) {
        let seat = request.join.as_ref().and_then(|join| self.sessions.seats.find(join.seat));
        if let Some(subscribed) = accepted {
            let left = subscribed.room.zip(request.join.as_ref()).map(|((room, _), join)| {
                // The client does not have the token of this join. It can only come back by its user, or by its
                // previous token.
                let noted = seat.and_then(|seat| self.sessions.seats.at(seat).departure);
                let is_known = subscribed.is_back || !join.info.user.is_empty();
                let may_come_back = noted == Some(Departure::Lost) && is_known;
                let departure = if may_come_back { Departure::Lost } else { Departure::Left };
                LeftSeat { room, seat: join.seat, departure }
            });
            self.context.leave_owner(request.channel, request.subscriber, left);
        }
        if let Some(seat) = seat {
            self.sessions.free_seat(self.context, seat);
        }
    }

    /// Activates an accepted subscription.
    fn enter(
        &mut self,
        id: LocalChannelId,
        request: &SubscriptionRequest,
        subscribed: Subscribed,
    ) -> (SubscribeResult, Option<Ending>) {
        let Subscriber { join_leave, .. } = request.subscriber;
        let filter =
            self.sessions.table.at(self.key.index).subscription(id).and_then(|subscription| subscription.filter);
        let entry = HubEntry { session: self.key.index, filter, join_leave, has_newest: subscribed.has_newest };
        let session = self.sessions.table.at(self.key.index);
        let subscription = session.subscription(id).expect("it waits for this answer");
        let of_subscription = subscription.pace();
        let list = session.list_key(subscription, of_subscription);
        let of_entry = of_subscription.filter(|_| subscription.seat().is_none());
        let place = self.sessions.hub.add(id, list, entry, of_entry);
        let namespace = self.sessions.hub.channel(id).namespace;
        let counters = self.context.count(namespace);
        counters.subscriptions += 1;
        counters.paced_subscriptions += u64::from(of_subscription.is_some());
        let session = self.sessions.table.at_mut(self.key.index);
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
        self.sessions.tell_subscribed(self.context, self.key, id);
        if let Some((seat, (room, thread))) = seat.zip(subscribed.room) {
            self.join_room(seat, RoomRoute { key: room, thread });
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
    fn withdraw(&mut self, id: LocalChannelId) -> Option<Ending> {
        let subscription =
            self.sessions.table.at_mut(self.key.index).remove_subscription(id).expect("it waits for this answer");
        self.sessions.release(&subscription);
        let extra = subscription.extra?;
        if let Some(seat) = extra.seat {
            self.sessions.free_seat(self.context, seat);
        }
        extra.ending
    }

    /// The filter that the client requests, if any.
    pub(super) fn tags_filter(
        &self,
        request: &SubscribeRequest<'_>,
    ) -> Result<Option<Arc<TagsFilter>>, RefusedCommand> {
        let Some(bytes) = request.tags_filter else { return Ok(None) };
        let encoding = self.sessions.table.at(self.key.index).encoding();
        match TagsFilter::parse(encoding, bytes, &self.context.options.channel.tags_filter) {
            Ok(filter) => Ok(Some(Arc::new(filter))),
            Err(FilterError::Malformed) => Err(RefusedCommand::bad_request("a tags filter that cannot be decoded")),
            Err(_) => Err(ErrorCode::BadRequest.into()),
        }
    }

    /// The options of a subscription: those that its namespace or its overrides force, and those that the client
    /// requests and may have.
    pub(super) fn subscription_flags(
        &self,
        params: Option<&SubscriptionParams>,
        namespace: NamespaceIndex,
        overrides: Overrides,
    ) -> SubscriptionFlags {
        let options = self.context.namespace(namespace);
        // The session counts as a subscriber here, because all other checks have passed.
        let session = self.sessions.table.at(self.key.index);
        let sees_history = || Permission::history(options).is_given_to_subscriber(self.context, session);
        let sees_presence = || Permission::presence(options).is_given_to_subscriber(self.context, session);
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

    /// Sends a subscription that [`check_server_side`] accepted to its channel's owner.
    pub(super) fn request_server_side(&mut self, subscription: ServerSubscription) {
        let Ok(namespace) = self.context.names.resolve(&subscription.channel) else { return };
        let ttl =
            TimeToLive::until(subscription.grant.expires_at_ms, self.context.now).unwrap_or(Some(TimeToLive::OVER));
        let mut flags = self.subscription_flags(None, namespace, subscription.grant.overrides);
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
            expiry_us: subscription_expiry_us(self.context, namespace, ttl),
            was_recovering,
            recover: since.map(|(offset, epoch)| RecoverFrom { offset, epoch, reject_unrecoverable: false }),
            filter: None,
            pace: None,
            joins: None,
        };
        self.send_subscription_request(0, new_subscription);
    }

    /// Subscribes a session by the API.
    pub(super) fn subscribe_by_api(&mut self, subscription: &ServerSubscription) {
        let Some(session) = self.sessions.table.get_mut(self.key) else { return };
        let id = self.sessions.hub.find(&subscription.channel);
        if id.is_some_and(|id| session.subscription(id).is_some()) {
            // An existing subscription stays as it is.
            return;
        }
        if session.subscriptions.len() >= self.context.options.client.channel_limit {
            return self.sessions.close(self.context, self.key, &Disconnect::CHANNEL_LIMIT);
        }
        let mut subscription = subscription.clone();
        if let Some(Paused { paused_on: PausedOn::Subscriptions(pending), .. }) = session.paused.as_deref_mut() {
            pending.missing += 1;
            let place = pending.positions.iter().position(|(channel, _)| *channel == subscription.channel);
            let position = place.map(|place| pending.positions.swap_remove(place).1);
            if let (Some(position), None) = (position, &subscription.recover_since) {
                subscription.recover_since = Some(position);
                self.take_late_recovery(&subscription);
            }
        }
        self.request_server_side(subscription);
    }

    /// The client has requested, in a `connect` that is not answered yet, the recovery of a subscription that the API
    /// makes now.
    fn take_late_recovery(&mut self, subscription: &ServerSubscription) {
        if self.rates.take_recovery(self.context, subscription).is_err()
            && let Some(Paused { paused_on: PausedOn::Subscriptions(pending), .. }) =
                self.sessions.table.at_mut(self.key.index).paused.as_deref_mut()
        {
            pending.refused.get_or_insert(ErrorCode::TooManyRequests.into());
        }
    }

    /// An owner has answered a server-side subscription.
    pub(super) fn server_side_answered(
        &mut self,
        id: LocalChannelId,
        mut outcome: Result<SubscribeResult, NotSubscribed>,
        ending: Option<Ending>,
    ) {
        let recovered_bytes = self.fit_recovery(&mut outcome);
        let is_accepted = outcome.is_ok();
        let channel = is_accepted.then(|| Arc::clone(&self.sessions.hub.channel(id).name));
        if let Some(ending) = ending.as_ref().filter(|_| is_accepted) {
            // The subscription ended before the client was informed.
            let code = match ending {
                Ending::Asked { .. } => BY_CLIENT,
                Ending::Forced { code, .. } => *code,
            };
            self.sessions.drop_subscription(self.context, self.key, id, code);
        }
        let session = self.sessions.table.at_mut(self.key.index);
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
                self.send_subscribed(&channel, &result);
            }
            return self.enter_if_complete();
        }
        let is_ending = ending.is_some();
        match (outcome, ending) {
            (Ok(result), None) => {
                self.send_subscribed(&channel.unwrap_or_default(), &result);
            }
            (Err(_), None) => self.context.counters.server_subscriptions_refused += 1,
            (_, Some(Ending::Asked { command_id })) => {
                self.sessions.reply(self.context, self.key, command_id, &Reply::Unsubscribe);
            }
            (_, Some(Ending::Forced { .. })) => {}
        }
        if is_ending {
            self.sessions.table.recall_after_ending(self.key, id, &mut self.context.effects);
        }
    }

    /// Truncates the recovery of a server-side subscription if it does not fit next to the rest of the answer to
    /// `connect`, or next to the queued bytes. Returns the remaining bytes of the recovery.
    fn fit_recovery(&mut self, outcome: &mut Result<SubscribeResult, NotSubscribed>) -> usize {
        let Ok(result) = outcome else { return 0 };
        let other_bytes = match self.sessions.table.at(self.key.index).paused.as_deref() {
            Some(Paused { paused_on: PausedOn::Subscriptions(pending), .. }) => pending.recovered_bytes,
            _ => self.sessions.table.outbox(self.key.index).queued_bytes(),
        };
        self.cut_recovery(result, other_bytes)
    }

    /// Answers `connect` if all owners have answered.
    fn enter_if_complete(&mut self) {
        let is_complete =
            |paused: &Paused| matches!(&paused.paused_on, PausedOn::Subscriptions(pending) if pending.missing == 0);
        let session = self.sessions.table.at_mut(self.key.index);
        let Some(paused) = session.paused.take_if(|paused| is_complete(paused)) else { return };
        let Paused { paused_on, unparsed } = *paused;
        let PausedOn::Subscriptions(pending) = paused_on else { unreachable!("looked at above") };
        self.connecting().answer_connect(*pending);
        self.sessions.resume(self.key, unparsed);
    }

    /// Sends the push of a server-side subscription to the client. Recovered publications follow as pushes.
    fn send_subscribed(&mut self, channel: &str, result: &SubscribeResult) {
        self.sessions.push(self.context, self.key, &Push::Subscribe { channel, result });
        for publication in &result.publications {
            let (channel, data) = (channel.into(), DataForm::Plain);
            self.sessions.push(self.context, self.key, &Push::Publication { channel, publication, data, skipped: 0 });
        }
    }

    pub(super) fn unsubscribe(&mut self, command_id: u32, channel: &str) -> CommandOutcome {
        if channel.is_empty() {
            return Err(RefusedCommand::bad_request(NO_CHANNEL));
        }
        let Some(id) = self.sessions.hub.find(channel) else { return Ok(Some(Reply::Unsubscribe)) };
        let Some(subscription) = self.sessions.table.at_mut(self.key.index).subscription_mut(id) else {
            return Ok(Some(Reply::Unsubscribe));
        };
        if subscription.is_ending() {
            return Ok(Some(Reply::Unsubscribe));
        }
        if subscription.place.is_none() {
            // The unsubscribe command is answered after the subscribe command, which the owner has not answered yet.
            subscription.extra.get_or_insert_default().ending = Some(Ending::Asked { command_id });
            if let Some(seat) = subscription.seat() {
                self.sessions.abandon_join(self.context, id, seat, Departure::Left);
            }
            return Ok(None);
        }
        self.sessions.drop_subscription(self.context, self.key, id, BY_CLIENT);
        Ok(Some(Reply::Unsubscribe))
    }

    /// Takes a seat for a session that joins. Returns it with the parameters for the room.
    pub(super) fn take_seat(
        &mut self,
        (channel, namespace): (&str, NamespaceIndex),
        params: &SubscriptionParams,
        info: Arc<ClientInfo>,
    ) -> (SeatIndex, Box<JoinParams>) {
        // The seat may outlive the session's subscription, until the owner has answered.
        let id = self.sessions.hub.hold(channel, namespace);
        let wire = self.sessions.table.at(self.key.index).wire;
        let is_typed = asks_for_typed_snapshots(&params.data);
        let (index, seat) = self.sessions.seats.take(self.context.identity.index, self.key, (wire, is_typed), id);
        let source = self.sessions.table.at(self.key.index).source;
        let opening = self.rates.openings.reserve(self.key, source, self.context.now.mono_us);
        let is_spectator = asks_to_spectate(&params.data);
        let claim = if is_spectator { SeatClaim::default() } else { seat_claim(self.context, namespace, &params.data) };
        let shows_address = self.context.namespace(namespace).room.as_ref().is_some_and(|room| room.shows_address);
        let address = self.sessions.table.at(self.key.index).address.filter(|_| shows_address);
        self.sessions.seats.at_mut(index).token = claim.given;
        let data = params.data.clone();
        // The client counts from its command: it gives up whatever its token and its backend have taken of the time.
        let held_until_us = params.commanded_us.saturating_add(JOIN_HELD_MAX_MS * 1_000);
        let waits_until_us = self.context.now.after_ms(JOIN_WAIT_MAX_MS).min(held_until_us);
        let join = JoinParams {
            seat,
            info,
            address,
            is_spectator,
            is_typed,
            data,
            opening,
            claim,
            waits_until_us,
            held_until_us,
        };
        (index, Box::new(join))
    }

    /// A session's subscription to a room has been accepted.
    pub(super) fn join_room(&mut self, seat: SeatIndex, route: RoomRoute) {
        let (session, channel) = (self.sessions.seats.at(seat).session, self.sessions.seats.at(seat).channel);
        let namespace = self.sessions.hub.channel(channel).namespace;
        self.sessions.seats.find_or_insert_room(route.key, channel, namespace);
        self.sessions.table.outbox(session.index).add_seat(seat);
        if self.sessions.seats.join_room(seat, route) {
            self.seat_is_due(seat);
            send_kept(self.context, &mut self.sessions.seats, seat);
        }
    }

    /// Releases an opening that a join of this session did not use. If the session has ended, its openings are only
    /// refilled by time.
    pub(super) fn release_opening(&mut self, join: &JoinParams) {
        if join.opening == Opening::Reserved
            && let Some(session) = self.sessions.table.get(self.key)
        {
            let source = session.source;
            self.rates.openings.release(self.key, source, self.context.now.mono_us);
        }
    }

    fn seat_is_due(&mut self, seat: SeatIndex) {
        if let Some(session) = self.sessions.seats.mark_due(seat) {
            let outbox = self.sessions.table.outbox(session);
            outbox.seat_is_due(self.context.now.mono_us);
            outbox.list(session, &mut self.context.effects);
        }
    }

    /// Removes the publications of a recovery that does not fit next to `other_bytes`. Returns the bytes of the
    /// recovery.
    fn cut_recovery(&mut self, result: &mut SubscribeResult, other_bytes: usize) -> usize {
        let bytes = match &result.encoded {
            Some(encoded) => encoded.bytes().len(),
            None => result.publications.iter().map(|publication| encoded_bytes_max(publication)).sum(),
        };
        if bytes == 0 || other_bytes == 0 || other_bytes + bytes <= self.context.options.client.recovery_bytes_max() {
            return bytes;
        }
        // The client continues from the top, as after any incomplete recovery.
        if result.recovered {
            result.offset = result.publications.last().map_or(result.offset, |newest| newest.offset);
        }
        result.publications.clear();
        (result.patches, result.encoded, result.recovered) = (Vec::new(), None, false);
        self.context.counters.recoveries_cut += 1;
        0
    }

    /// The backend that authorizes subscriptions to `channel` without a token. `None` if the channel's name lists its
    /// users.
    fn subscribe_proxy(&self, channel: &str) -> Option<ProxyIndex> {
        let namespace = self.context.names.resolve(channel).ok()?;
        self.context.namespace(namespace).subscribe_proxy.filter(|_| !is_user_limited(self.context, channel, namespace))
    }
}

/// Whether a server-side subscription is possible. Rooms have none, because the client has to send the data of the
/// join.
pub(super) fn check_server_side(
    context: &Context,
    subscription: &ServerSubscription,
) -> Result<NamespaceIndex, ErrorCode> {
    let namespace = context.names.resolve(&subscription.channel)?;
    if context.namespace(namespace).room.is_some() {
        return Err(ErrorCode::NotAvailable);
    }
    match TimeToLive::until(subscription.grant.expires_at_ms, context.now) {
        Ok(_) => Ok(namespace),
        Err(AlreadyExpired) => Err(ErrorCode::Expired),
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

/// Until when a session holds a join whose room is open. What the join has waited for its room counts: its client gives up in
/// the end, whatever the join has waited for.
fn held_until_us(context: &Context, join: &JoinParams) -> u64 {
    context.now.after_ms(JOIN_WAIT_MAX_MS).min(join.held_until_us)
}

fn seat_claim(context: &mut Context, namespace: NamespaceIndex, join_data: &[u8]) -> SeatClaim {
    let Some(room) = context.namespace(namespace).room.as_ref().filter(|room| room.gives_seat_tokens) else {
        return SeatClaim::default();
    };
    let is_one_per_user = room.is_one_seat_per_user;
    let (high, low) = (u128::from(context.random.next_u64()), u128::from(context.random.next_u64()));
    SeatClaim {
        given: Some(SeatToken(high << 64 | low)),
        returned: SeatToken::in_join_data(join_data),
        is_one_per_user,
        keeps_returned: true,
    }
}
