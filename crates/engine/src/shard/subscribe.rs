//! Subscribing.

use std::sync::Arc;

use bytes::Bytes;
use dunlin_protocol::{
    ClientInfo, Disconnect, ErrorCode, Payload, Reply, SubscribeRequest, SubscribeResult, TagsFilter,
};
use dunlin_rooms::Refusal;

use crate::{
    Effects, Now, SessionKey,
    backend::{Ask, Overrides, ProxyIndex},
    event::{SubscriptionClaims, TokenError},
    hub::{HubEntry, LocalChannelId},
    message::{NotSubscribed, RecoverFrom, Request, SubscribeOrder, Subscribed, Subscriber},
    names::NamespaceIndex,
    options::Lane,
    seats::RoomRoad,
    session::{
        AskedFor, Ending, Held, Session, SubscribeWish, Subscription, SubscriptionExtra, SubscriptionFlags, Waiting,
    },
};

use super::{
    Shard,
    agreement::recover_from,
    permission::Permission,
    refresh::{AlreadyExpired, expiry_us, ttl_s},
};

/// What a subscription is to be.
pub(super) struct Terms<'a> {
    pub(super) channel: &'a str,
    pub(super) namespace: NamespaceIndex,
    pub(super) flags: SubscriptionFlags,
    pub(super) info: Option<Payload>,
    pub(super) data: Option<Payload>,
    /// What the client is told of its time to live.
    pub(super) ttl_s: Option<u32>,
    pub(super) expiry_us: u64,
    pub(super) was_recovering: bool,
    pub(super) recover: Option<RecoverFrom>,
    /// Which publications it gets, if not all; the hub takes it.
    pub(super) filter: Option<Arc<TagsFilter>>,
    /// What the session joins the channel's room with, if it has one.
    pub(super) joins: Option<&'a SubscribeWish>,
}

impl Shard {
    pub(super) fn subscribe(
        &mut self,
        now: Now,
        key: SessionKey,
        command_id: u32,
        request: &SubscribeRequest<'_>,
        effects: &mut Effects,
    ) -> Result<Option<Reply>, Disconnect> {
        let channel = &*request.channel;
        if channel.is_empty() || !matches!(&*request.delta, "" | "fossil") {
            return Err(Disconnect::BAD_REQUEST);
        }
        if let Err(code) = self.may_subscribe(key, request) {
            return Ok(Some(Reply::Error(code)));
        }
        let Ok(filter) = self.tags_filter(key, request)? else { return Ok(Some(Reply::Error(ErrorCode::BadRequest))) };
        let wish = SubscribeWish {
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
        };
        if let Some(proxy) = self.subscribe_proxy(channel).filter(|_| request.token.is_empty()) {
            let data = request.data.and_then(|data| self.payload(key, data));
            let ask = Ask::Subscribe { channel: self.channel_name(channel), data };
            self.ask_backend(key, command_id, proxy, ask, AskedFor::Subscribe(wish), effects);
            return Ok(None);
        }
        if request.token.is_empty() {
            let claims = SubscriptionClaims::default();
            return Ok(self.order_subscription(now, key, command_id, &wish, claims, effects).err().map(Reply::Error));
        }
        let waiting = Waiting::Subscribe { command_id, wish: Box::new(wish) };
        self.wait_for_token(key, waiting, &request.token, effects);
        Ok(None)
    }

    /// Checks everything that does not depend on a token, in the order in which users of the protocol expect the errors.
    fn may_subscribe(&self, key: SessionKey, request: &SubscribeRequest<'_>) -> Result<(), ErrorCode> {
        let channel = &*request.channel;
        let session = self.sessions.at(key.index);
        if channel.len() > self.options.channel.name_bytes_max {
            return Err(ErrorCode::BadRequest);
        }
        if self.hub.find(channel).is_some_and(|id| session.subscription(id).is_some()) {
            return Err(ErrorCode::AlreadySubscribed);
        }
        if session.subscriptions.len() >= self.options.client.channel_limit {
            return Err(ErrorCode::LimitExceeded);
        }
        let index = self.names.resolve(channel)?;
        if request.kind != 0 || self.names.is_private(channel) && request.token.is_empty() {
            return Err(ErrorCode::PermissionDenied);
        }
        let user = session.info.as_ref().map_or("", |info| &info.user);
        let is_decided_elsewhere = !request.token.is_empty() || self.subscribe_proxy(channel).is_some();
        let is_open = is_decided_elsewhere || self.is_open_to(user, channel, index) || self.options.client.insecure;
        if !is_open {
            return Err(ErrorCode::PermissionDenied);
        }
        if request.tags_filter.is_some() && !self.namespace(index).allow_tags_filter {
            return Err(ErrorCode::BadRequest);
        }
        Ok(())
    }

    /// Who is asked about subscriptions to `channel` that come without a token. Nobody, where its name lists its users.
    fn subscribe_proxy(&self, channel: &str) -> Option<ProxyIndex> {
        let namespace = self.names.resolve(channel).ok()?;
        self.namespace(namespace).subscribe_proxy.filter(|_| !self.is_user_limited(channel, namespace))
    }

    /// A subscription token was verified, for `subscribe` or for `sub_refresh`.
    pub(super) fn subscription_token_verified(
        &mut self,
        now: Now,
        key: SessionKey,
        outcome: Result<SubscriptionClaims, TokenError>,
        effects: &mut Effects,
    ) {
        let waits = |waiting: &Waiting| matches!(waiting, Waiting::Subscribe { .. } | Waiting::SubRefresh { .. });
        let held = self.sessions.get_mut(key).and_then(|session| session.held.take_if(|held| waits(&held.waiting)));
        let Some(held) = held else { return };
        let Held { waiting, rest } = *held;
        let (command_id, answer) = match waiting {
            Waiting::Subscribe { command_id, wish } => {
                (command_id, self.subscribe_with_token(now, key, command_id, &wish, outcome, effects))
            }
            Waiting::SubRefresh { command_id, channel } => {
                (command_id, self.sub_refresh_with_token(now, key, &channel, outcome).map(Some))
            }
            _ => unreachable!("looked at above"),
        };
        match answer {
            Ok(Some(reply)) => self.reply(now, key, command_id, &reply, effects),
            Ok(None) => {}
            Err(disconnect) => self.close(now, key, &disconnect, effects),
        }
        self.resume(now, key, rest, effects);
    }

    fn subscribe_with_token(
        &mut self,
        now: Now,
        key: SessionKey,
        command_id: u32,
        wish: &SubscribeWish,
        outcome: Result<SubscriptionClaims, TokenError>,
        effects: &mut Effects,
    ) -> Result<Option<Reply>, Disconnect> {
        let claims = match outcome {
            Ok(claims) => claims,
            Err(TokenError::Expired) => return Ok(Some(Reply::Error(ErrorCode::TokenExpired))),
            Err(TokenError::Invalid) => return Ok(Some(Reply::Error(ErrorCode::PermissionDenied))),
            Err(TokenError::Unavailable) => return Ok(Some(Reply::Error(ErrorCode::Internal))),
        };
        self.check_claims(key, &wish.channel, &claims)?;
        Ok(self.order_subscription(now, key, command_id, wish, claims, effects).err().map(Reply::Error))
    }

    /// Whether the token was made for this session and channel.
    pub(super) fn check_claims(
        &self,
        key: SessionKey,
        channel: &str,
        claims: &SubscriptionClaims,
    ) -> Result<(), Disconnect> {
        let info = self.sessions.get(key).and_then(|session| session.info.as_ref());
        let is_ours = info.is_some_and(|info| {
            *info.user == *claims.user && (claims.client.is_empty() || *info.client == *claims.client)
        });
        if is_ours && claims.channel == channel { Ok(()) } else { Err(Disconnect::INVALID_TOKEN) }
    }

    /// Sends an allowed subscription of the client's to the channel's owner.
    pub(super) fn order_subscription(
        &mut self,
        now: Now,
        key: SessionKey,
        command_id: u32,
        wish: &SubscribeWish,
        claims: SubscriptionClaims,
        effects: &mut Effects,
    ) -> Result<(), ErrorCode> {
        let namespace = self.names.resolve(&wish.channel)?;
        // The API may have subscribed the session while a token or a backend was asked about.
        let session = self.sessions.at(key.index);
        if self.hub.find(&wish.channel).is_some_and(|id| session.subscription(id).is_some()) {
            return Err(ErrorCode::AlreadySubscribed);
        }
        if session.subscriptions.len() >= self.options.client.channel_limit {
            return Err(ErrorCode::LimitExceeded);
        }
        let ttl_s = match ttl_s(now, claims.expires_at_s) {
            Ok(Some(0)) | Err(AlreadyExpired) => return Err(ErrorCode::Expired),
            Ok(ttl_s) => ttl_s,
        };
        let flags = self.subscription_flags(key, Some(wish), namespace, claims.overrides);
        // The client keeps its position, and asks again later.
        if flags.recoverable && wish.recover && !self.recoveries.takes(now.mono_us) {
            self.counters.recoveries_refused += 1;
            return Err(ErrorCode::TooManyRequests);
        }
        let filters_max = self.options.channel.tags_filters_max;
        if wish.filter.as_ref().is_some_and(|filter| !self.hub.takes_filter(&wish.channel, filter, filters_max)) {
            return Err(ErrorCode::LimitExceeded);
        }
        let options = self.namespace(namespace);
        let recover = recover_from(wish, flags, options);
        let terms = Terms {
            channel: &wish.channel,
            namespace,
            flags,
            info: claims.info,
            data: claims.data,
            // Where a backend is asked, the client has no part in it.
            ttl_s: ttl_s.filter(|_| options.sub_refresh_proxy.is_none()),
            expiry_us: self.subscription_expiry_us(now, namespace, ttl_s),
            was_recovering: wish.recover || recover.is_some(),
            recover,
            filter: wish.filter.clone(),
            joins: options.room.is_some().then_some(wish),
        };
        self.order(key, command_id, terms, effects);
        Ok(())
    }

    /// Sends a subscription to the channel's owner.
    pub(super) fn order(&mut self, key: SessionKey, command_id: u32, terms: Terms<'_>, effects: &mut Effects) {
        let Terms { channel: name, namespace, flags, info, data, ttl_s, expiry_us, .. } = terms;
        let Terms { was_recovering, recover, filter, joins, .. } = terms;
        let session = self.sessions.at(key.index);
        let of_session = session.info.as_ref().expect("an authenticated session has its info");
        let info = info.map(|chan_info| with_chan_info(of_session, chan_info));
        let subscriber = Subscriber {
            class: session.class(flags),
            join_leave: flags.join_leave,
            info: flags.shows_who().then(|| Arc::clone(info.as_ref().unwrap_or(of_session))),
            presence: flags.presence,
            announced: flags.announced,
        };
        let id = self.hub.hold(name, namespace);
        let place = filter.as_ref().and_then(|filter| self.hub.hold_filter(id, filter));
        let channel = Arc::clone(&self.hub.channel(id).name);
        let (seat, join) = joins.map(|wish| self.take_seat(key, &channel, namespace, wish)).unzip();
        let extra = SubscriptionExtra { info, ttl_s, data, ending: None, seat, refresh: None };
        let is_needed = extra.outlives_answer() || extra.ttl_s.is_some() || extra.data.is_some();
        let session = self.sessions.at_mut(key.index);
        session.subscriptions.reserve_exact(1);
        let extra = is_needed.then(|| Box::new(extra));
        session.subscriptions.push(Subscription { channel: id, place: None, flags, filter: place, expiry_us, extra });
        let positioned = flags.positioned;
        let asker = self.asker(key, command_id);
        let order = SubscribeOrder { channel, asker, subscriber, positioned, was_recovering, recover, filter, join };
        self.ask_owner(name, Request::Subscribe(Box::new(order)), effects);
    }

    /// When a subscription with so long to live is dealt with: where a backend is asked it is asked then, and otherwise
    /// the client has some time to refresh.
    pub(super) fn subscription_expiry_us(&self, now: Now, namespace: NamespaceIndex, ttl_s: Option<u32>) -> u64 {
        let asks = self.namespace(namespace).sub_refresh_proxy.is_some();
        expiry_us(now, ttl_s, if asks { 0 } else { self.options.client.expired_sub_close_delay_ms })
    }

    /// What a subscription gets: what its namespace or its overrides force, and of what the client wishes what it may have.
    pub(super) fn subscription_flags(
        &self,
        key: SessionKey,
        wish: Option<&SubscribeWish>,
        namespace: NamespaceIndex,
        overrides: Overrides,
    ) -> SubscriptionFlags {
        let options = self.namespace(namespace);
        // Like any subscriber, the session counts as subscribed here: everything else about it has been checked.
        let session = self.sessions.at(key.index);
        let sees_history = || self.permits_subscriber(session, Permission::history(options));
        let sees_presence = || self.permits_subscriber(session, Permission::presence(options));
        let wishes = |what: fn(&SubscribeWish) -> bool| wish.is_some_and(what);
        let announced = overrides.join_leave.unwrap_or(options.join_leave);
        let recoverable = overrides.force_recovery.unwrap_or(options.force_recovery)
            || wishes(|wish| wish.recoverable) && (options.allow_recovery || sees_history());
        let positioned = recoverable
            || overrides.force_positioning.unwrap_or(options.force_positioning)
            || wishes(|wish| wish.positioned) && (options.allow_positioning || sees_history());
        let join_leave = overrides.force_push_join_leave.unwrap_or(options.force_push_join_leave)
            || wishes(|wish| wish.join_leave) && options.join_leave && sees_presence();
        SubscriptionFlags {
            join_leave,
            positioned: positioned && options.has_positions(),
            recoverable: recoverable && options.has_positions(),
            // What a room shows is framed by the session itself, for plain classes.
            compact: wishes(|wish| wish.compact) && options.allow_channel_compaction && options.room.is_none(),
            // The slots of the latest lane lose publications, so that a patch would have nothing to stand on.
            delta: wishes(|wish| wish.delta)
                && options.allow_delta
                && options.room.is_none()
                && options.delivery == Lane::Reliable,
            server_side: false,
            from_token: false,
            presence: overrides.presence.unwrap_or(options.presence),
            announced,
        }
    }

    /// The owner has answered a subscription. From here on its publications come, behind this answer.
    pub(super) fn subscribed(
        &mut self,
        now: Now,
        order: SubscribeOrder,
        outcome: Result<Box<Subscribed>, NotSubscribed>,
        effects: &mut Effects,
    ) {
        let key = order.asker.session;
        let is_there = self.sessions.get(key).is_some_and(Session::is_authenticated);
        if !is_there {
            // The session went while the owner answered, so the owner has to be told now.
            self.counters.late_messages += 1;
            #[cfg(feature = "planted-bugs")]
            if self.planted == Some(crate::planted::Bug::LateAnswerLeaks) {
                return;
            }
            let seat = order.join.as_ref().and_then(|join| self.seats.find(join.seat));
            if let Ok(subscribed) = outcome {
                let room = subscribed.room.zip(order.join).map(|((room, _), join)| (room, join.seat));
                self.leave_owner(order.channel, order.subscriber, room, effects);
            }
            if let Some(seat) = seat {
                self.free_seat(seat);
            }
            return;
        }
        let id = self.hub.find(&order.channel).expect("a session that waits for an answer holds the channel");
        let subscription = self.sessions.at(key.index).subscription(id).expect("it waits for this answer");
        let is_server_side = subscription.flags.server_side;
        let (outcome, ending) = match outcome {
            Ok(subscribed) => {
                let (result, ending) = self.enter(now, key, id, &order, *subscribed, effects);
                (Ok(result), ending)
            }
            Err(refused) => (Err(refused), self.withdraw(key, id)),
        };
        if is_server_side {
            self.schedule_session(key);
            return self.server_side_answered(now, key, id, outcome, ending, effects);
        }
        let reply = match outcome {
            Ok(result) => Reply::Subscribe(Box::new(result)),
            Err(NotSubscribed::Error(code)) => Reply::Error(code),
            Err(NotSubscribed::Refused(refusal)) => refused(refusal),
        };
        self.reply(now, key, order.asker.command_id, &reply, effects);
        self.schedule_session(key);
        match ending {
            Some(Ending::Asked { command_id }) => {
                self.drop_subscription(key, id, effects);
                self.reply(now, key, command_id, &Reply::Unsubscribe, effects);
            }
            Some(Ending::Forced(code)) => self.end_subscription(now, key, id, code, effects),
            None => return,
        }
        self.resume_after_ending(now, key, id, effects);
    }

    /// Lets a session go on that waits to subscribe again to a channel which it has now left.
    pub(super) fn resume_after_ending(&mut self, now: Now, key: SessionKey, id: LocalChannelId, effects: &mut Effects) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let waits_for = |held: &mut Box<Held>| matches!(held.waiting, Waiting::Ending { channel } if channel == id);
        if let Some(held) = session.held.take_if(waits_for) {
            self.resume(now, key, held.rest, effects);
        }
    }

    /// Makes an accepted subscription a live one.
    fn enter(
        &mut self,
        now: Now,
        key: SessionKey,
        id: LocalChannelId,
        order: &SubscribeOrder,
        subscribed: Subscribed,
        effects: &mut Effects,
    ) -> (SubscribeResult, Option<Ending>) {
        let Subscriber { class, join_leave, .. } = order.subscriber;
        let filter = self.sessions.at(key.index).subscription(id).and_then(|subscription| subscription.filter);
        let entry = HubEntry { session: key.index, filter, join_leave, has_newest: subscribed.has_newest };
        let place = self.hub.add(id, class, entry);
        let namespace = self.hub.channel(id).namespace;
        self.count(namespace).subscriptions += 1;
        let session = self.sessions.at_mut(key.index);
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
            self.sit_down(now, seat, RoomRoad { key: room, thread }, effects);
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
            was_recovering: order.was_recovering,
            data,
            patches: subscribed.patches,
            encoded: subscribed.encoded,
            delta: flags.delta,
            channel_number: subscribed.channel_number,
        };
        (result, ending)
    }

    /// Takes back a subscription that the owner refused.
    fn withdraw(&mut self, key: SessionKey, id: LocalChannelId) -> Option<Ending> {
        let subscription = self.sessions.at_mut(key.index).remove_subscription(id).expect("it waits for this answer");
        self.release(&subscription);
        let extra = subscription.extra?;
        if let Some(seat) = extra.seat {
            self.free_seat(seat);
        }
        extra.ending
    }
}

/// The reply with what the game says. Codes below 400 are the server's, so a game has to keep away from them.
fn refused(refusal: Refusal) -> Reply {
    Reply::Refused { code: refusal.code.clamp(400, 1_999), message: refusal.message, temporary: false }
}

/// The session's info as a channel shows it that has its own about the session.
pub(super) fn with_chan_info(of_session: &ClientInfo, chan_info: Payload) -> Arc<ClientInfo> {
    Arc::new(ClientInfo { chan_info: Some(chan_info), ..of_session.clone() })
}
