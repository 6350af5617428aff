//! Subscribing, unsubscribing, and refreshing a subscription.

use std::sync::Arc;

use bytes::Bytes;
use dunlin_protocol::{
    ClientInfo, Disconnect, ErrorCode, Payload, Push, Reply, SubscribeRequest, SubscribeResult, UnsubscribeCode,
};
use dunlin_rooms::Refusal;

use crate::{
    Effects, Now, SessionKey,
    event::{SubscriptionClaims, TokenError},
    hub::{HubEntry, LocalChannelId},
    message::{NotSubscribed, RecoverFrom, Request, SubscribeOrder, Subscribed, Subscriber},
    names::NamespaceIndex,
    room::{RoomKey, SeatKey},
    seats::RoomRoad,
    session::{
        Ending, Held, Phase, Session, SubscribeWish, Subscription, SubscriptionExtra, SubscriptionFlags, Waiting,
    },
};

use super::{
    Shard,
    connect::{AlreadyExpired, expiry_us, ttl_s},
};

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
        let wish = SubscribeWish {
            channel: channel.into(),
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
        if request.token.is_empty() {
            return Ok(self.order_subscription(now, key, command_id, &wish, None, effects).err().map(Reply::Error));
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
        let namespace = self.namespace(self.names.resolve(channel)?);
        if request.kind != 0 || self.names.is_private(channel) && request.token.is_empty() {
            return Err(ErrorCode::PermissionDenied);
        }
        let listed_users = self.names.listed_users(channel).filter(|_| namespace.allow_user_limited_channels);
        let is_open = if let Some(mut users) = listed_users {
            !session.is_anonymous() && users.any(|user| session.is_of_user(user))
        } else {
            let counts = namespace.allow_subscribe_for_anonymous || !session.is_anonymous();
            namespace.allow_subscribe_for_client && counts
        };
        if request.token.is_empty() && !is_open && !self.options.client.insecure {
            return Err(ErrorCode::PermissionDenied);
        }
        if request.has_tags_filter { Err(ErrorCode::BadRequest) } else { Ok(()) }
    }

    /// A subscription token was verified, for `subscribe` or for `sub_refresh`.
    pub(super) fn subscription_token_verified(
        &mut self,
        now: Now,
        key: SessionKey,
        outcome: Result<SubscriptionClaims, TokenError>,
        effects: &mut Effects,
    ) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let Some(held) = session.held.take() else { return };
        let (command_id, answer) = match &held.waiting {
            Waiting::Subscribe { command_id, wish } => {
                (*command_id, self.subscribe_with_token(now, key, *command_id, wish, outcome, effects))
            }
            Waiting::SubRefresh { command_id, channel } => {
                (*command_id, self.sub_refresh_with_token(now, key, channel, outcome).map(Some))
            }
            Waiting::Connect { .. } | Waiting::Refresh { .. } | Waiting::Ending { .. } => {
                unreachable!("these do not wait for a subscription token")
            }
        };
        match answer {
            Ok(Some(reply)) => self.reply(now, key, command_id, &reply, effects),
            Ok(None) => {}
            Err(disconnect) => self.close(now, key, &disconnect, effects),
        }
        self.resume(now, key, &held, effects);
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
        Ok(self.order_subscription(now, key, command_id, wish, Some(claims), effects).err().map(Reply::Error))
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

    /// Sends an allowed subscription to the channel's owner.
    fn order_subscription(
        &mut self,
        now: Now,
        key: SessionKey,
        command_id: u32,
        wish: &SubscribeWish,
        claims: Option<SubscriptionClaims>,
        effects: &mut Effects,
    ) -> Result<(), ErrorCode> {
        let namespace = self.names.resolve(&wish.channel)?;
        let claims = claims.unwrap_or_default();
        let ttl_s = match ttl_s(now, claims.expires_at_s) {
            Ok(Some(0)) | Err(AlreadyExpired) => return Err(ErrorCode::Expired),
            Ok(ttl_s) => ttl_s,
        };
        let flags = self.subscription_flags(key, wish, namespace);
        let options = self.namespace(namespace);
        let shows_who = options.presence || options.join_leave;
        let session = self.sessions.at(key.index);
        let of_session = session.info.as_ref().expect("a live session has its info");
        let info = claims.info.map(|chan_info| with_chan_info(of_session, chan_info));
        let subscriber = Subscriber {
            class: session.class(flags),
            join_leave: flags.join_leave,
            info: shows_who.then(|| Arc::clone(info.as_ref().unwrap_or(of_session))),
        };
        let recover = (flags.recoverable && wish.recover).then(|| RecoverFrom {
            offset: wish.offset,
            epoch: wish.epoch.clone(),
            reject_unrecoverable: wish.reject_unrecoverable,
        });
        let has_room = options.room.is_some();
        // The client keeps its position, and asks again later.
        if recover.is_some() && !self.recoveries.takes(now.mono_us) {
            self.counters.recoveries_refused += 1;
            return Err(ErrorCode::TooManyRequests);
        }
        let expiry_us = expiry_us(now, ttl_s, self.options.client.expired_sub_close_delay_ms);
        let id = self.hub.hold(&wish.channel, namespace);
        let channel = Arc::clone(&self.hub.channel(id).name);
        let (seat, join) = has_room.then(|| self.take_seat(key, &channel, namespace, wish)).unzip();
        let extra = (info.is_some() || ttl_s.is_some() || claims.data.is_some() || has_room)
            .then(|| Box::new(SubscriptionExtra { info, ttl_s, data: claims.data, ending: None, seat }));
        let session = self.sessions.at_mut(key.index);
        session.subscriptions.reserve_exact(1);
        session.subscriptions.push(Subscription { channel: id, place: None, flags, expiry_us, extra });
        let order = SubscribeOrder {
            channel,
            asker: self.asker(key, command_id),
            subscriber,
            positioned: flags.positioned,
            was_recovering: wish.recover,
            recover,
            join,
        };
        self.ask_owner(&wish.channel, Request::Subscribe(Box::new(order)), effects);
        Ok(())
    }

    fn subscription_flags(
        &self,
        key: SessionKey,
        wish: &SubscribeWish,
        namespace: NamespaceIndex,
    ) -> SubscriptionFlags {
        let options = self.namespace(namespace);
        // Like any subscriber, the session counts as subscribed here: everything else about it has been checked.
        let session = self.sessions.at(key.index);
        let as_subscriber = |for_client: bool, for_subscriber: bool, for_anonymous: bool| {
            (for_client || for_subscriber) && (for_anonymous || !session.is_anonymous()) || self.options.client.insecure
        };
        let sees_history = as_subscriber(
            options.allow_history_for_client,
            options.allow_history_for_subscriber,
            options.allow_history_for_anonymous,
        );
        let sees_presence = as_subscriber(
            options.allow_presence_for_client,
            options.allow_presence_for_subscriber,
            options.allow_presence_for_anonymous,
        );
        let recoverable = options.force_recovery || wish.recoverable && (options.allow_recovery || sees_history);
        let positioned =
            recoverable || options.force_positioning || wish.positioned && (options.allow_positioning || sees_history);
        let join_leave = options.force_push_join_leave || wish.join_leave && options.join_leave && sees_presence;
        SubscriptionFlags {
            join_leave,
            positioned: positioned && options.has_positions(),
            recoverable: recoverable && options.has_positions(),
            // What a room shows is framed by the session itself, for plain classes.
            compact: wish.compact && options.allow_channel_compaction && options.room.is_none(),
            delta: false,
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
        let is_there = self.sessions.get(key).is_some_and(|session| session.phase == Phase::Live);
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
        let (reply, ending) = match outcome {
            Ok(subscribed) => self.enter(now, key, id, &order, *subscribed, effects),
            Err(NotSubscribed::Error(code)) => (Reply::Error(code), self.withdraw(key, id)),
            Err(NotSubscribed::Refused(refusal)) => (refused(refusal), self.withdraw(key, id)),
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
    fn resume_after_ending(&mut self, now: Now, key: SessionKey, id: LocalChannelId, effects: &mut Effects) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let waits_for = |held: &mut Box<Held>| matches!(held.waiting, Waiting::Ending { channel } if channel == id);
        if let Some(held) = session.held.take_if(waits_for) {
            self.resume(now, key, &held, effects);
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
    ) -> (Reply, Option<Ending>) {
        let Subscriber { class, join_leave, .. } = order.subscriber;
        let place = self.hub.add(id, class, HubEntry { session: key.index, join_leave });
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
        subscription.extra = extra.filter(|extra| extra.info.is_some() || seat.is_some());
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
            patches: Vec::new(),
            delta: flags.delta,
            channel_number: subscribed.channel_number,
        };
        (Reply::Subscribe(Box::new(result)), ending)
    }

    /// Takes back a subscription that the owner refused.
    fn withdraw(&mut self, key: SessionKey, id: LocalChannelId) -> Option<Ending> {
        let subscription = self.sessions.at_mut(key.index).remove_subscription(id).expect("it waits for this answer");
        self.hub.release(id);
        let extra = subscription.extra?;
        if let Some(seat) = extra.seat {
            self.free_seat(seat);
        }
        extra.ending
    }

    pub(super) fn unsubscribe(
        &mut self,
        key: SessionKey,
        command_id: u32,
        channel: &str,
        effects: &mut Effects,
    ) -> Result<Option<Reply>, Disconnect> {
        if channel.is_empty() {
            return Err(Disconnect::BAD_REQUEST);
        }
        let Some(id) = self.hub.find(channel) else { return Ok(Some(Reply::Unsubscribe)) };
        let Some(subscription) = self.sessions.at_mut(key.index).subscription_mut(id) else {
            return Ok(Some(Reply::Unsubscribe));
        };
        if subscription.is_ending() {
            return Ok(Some(Reply::Unsubscribe));
        }
        if subscription.place.is_none() {
            // Answered after the subscribe command, which the owner still has.
            subscription.extra.get_or_insert_default().ending = Some(Ending::Asked { command_id });
            return Ok(None);
        }
        self.drop_subscription(key, id, effects);
        Ok(Some(Reply::Unsubscribe))
    }

    /// Ends a subscription and tells the client. Nothing happens if the session no longer has it: telling it about
    /// another one may have been what closed it.
    pub(super) fn end_subscription(
        &mut self,
        now: Now,
        key: SessionKey,
        id: LocalChannelId,
        code: UnsubscribeCode,
        effects: &mut Effects,
    ) {
        let session = self.sessions.get_mut(key);
        let Some(subscription) = session.and_then(|session| session.subscription_mut(id)) else { return };
        if subscription.place.is_none() {
            // The owner still has it. The client may have ended it already, which then counts.
            subscription.extra.get_or_insert_default().ending.get_or_insert(Ending::Forced(code));
            return;
        }
        let channel = Arc::clone(&self.hub.channel(id).name);
        self.drop_subscription(key, id, effects);
        let push = Push::Unsubscribe { channel: &channel, code, reason: code.reason() };
        self.push(now, key, &push, effects);
    }

    /// Ends a subscription: out of the session's list, out of the index, and off the owner's books.
    pub(super) fn drop_subscription(&mut self, key: SessionKey, id: LocalChannelId, effects: &mut Effects) {
        let session = self.sessions.at_mut(key.index);
        let Some(subscription) = session.remove_subscription(id) else { return };
        self.sessions.outbox(key.index).discard_latest(id);
        self.detach(key, &subscription, effects);
    }

    /// Takes a subscription that is off its session's list out of the index and off the owner's books. One that the owner
    /// has not answered yet is dealt with when the answer comes.
    pub(super) fn detach(&mut self, key: SessionKey, subscription: &Subscription, effects: &mut Effects) {
        let id = subscription.channel;
        if let Some(place) = subscription.place {
            let session = self.sessions.at(key.index);
            let subscriber = self.subscriber(session, subscription);
            let seat = subscription.seat();
            let room = seat.and_then(|seat| self.room_of(seat));
            if let Some(moved) = self.hub.remove(id, subscriber.class, place) {
                let moved = self.sessions.at_mut(moved.session).subscription_mut(id);
                moved.expect("the index and the sessions agree").place = Some(place);
            }
            let channel = self.hub.channel(id);
            let (name, namespace) = (Arc::clone(&channel.name), channel.namespace);
            self.count(namespace).subscriptions -= 1;
            self.leave_owner(name, subscriber, room, effects);
            if let Some(seat) = seat {
                self.free_seat(seat);
            }
        }
        self.hub.release(id);
    }

    fn subscriber(&self, session: &Session, subscription: &Subscription) -> Subscriber {
        let options = self.namespace(self.hub.channel(subscription.channel).namespace);
        let info = session.info.as_ref().filter(|_| options.presence || options.join_leave);
        Subscriber {
            class: session.class(subscription.flags),
            join_leave: subscription.flags.join_leave,
            info: info.map(|info| Arc::clone(subscription.info(info))),
        }
    }

    fn leave_owner(
        &mut self,
        channel: Arc<str>,
        subscriber: Subscriber,
        seat: Option<(RoomKey, SeatKey)>,
        effects: &mut Effects,
    ) {
        let owner = self.owner(&channel);
        let request = Request::Unsubscribe { channel, shard: self.identity.index, subscriber, seat };
        self.send(owner, crate::message::ShardMessage::Request(request), effects);
    }
}

/// The reply with what the game says. Codes below 400 are the server's, so a game has to keep away from them.
fn refused(refusal: Refusal) -> Reply {
    Reply::Refused { code: refusal.code.clamp(400, 1_999), message: refusal.message }
}

/// The session's info as a channel shows it that has its own about the session.
pub(super) fn with_chan_info(of_session: &ClientInfo, chan_info: Payload) -> Arc<ClientInfo> {
    Arc::new(ClientInfo { chan_info: Some(chan_info), ..of_session.clone() })
}
