//! How long a subscription goes on: refreshed by a token of the client's, or by a backend that is asked when it expires.

use dunlin_protocol::{Disconnect, ErrorCode, Payload, Reply, SubRefreshRequest, UnsubscribeCode};

use crate::{
    Effects, Now, SessionKey,
    backend::{Ask, BackendAnswer, BackendOutcome, BackendRefusal},
    event::{SubscriptionClaims, TokenError},
    hub::LocalChannelId,
    session::{Subscription, Waiting},
};

use super::{
    Shard,
    refresh::{UNANSWERED_GRACE_MS, ttl_s},
    subscribe::with_chan_info,
};

impl Shard {
    pub(super) fn sub_refresh(
        &mut self,
        key: SessionKey,
        command_id: u32,
        request: &SubRefreshRequest<'_>,
        effects: &mut Effects,
    ) -> Result<Option<Reply>, Disconnect> {
        let channel = &*request.channel;
        if channel.is_empty() {
            return Err(Disconnect::BAD_REQUEST);
        }
        let session = self.sessions.at(key.index);
        let subscription = self.hub.find(channel).and_then(|id| session.subscription(id));
        let Some(subscription) = subscription.filter(|subscription| !subscription.is_ending()) else {
            return Ok(Some(Reply::Error(ErrorCode::PermissionDenied)));
        };
        let namespace = self.hub.channel(subscription.channel).namespace;
        if subscription.flags.server_side || self.namespace(namespace).sub_refresh_proxy.is_some() {
            // It is not the client's to refresh.
            return Err(Disconnect::BAD_REQUEST);
        }
        if request.token.is_empty() || request.kind != 0 {
            return Ok(Some(Reply::Error(ErrorCode::BadRequest)));
        }
        let waiting = Waiting::SubRefresh { command_id, channel: channel.into() };
        self.wait_for_token(key, waiting, &request.token, effects);
        Ok(None)
    }

    pub(super) fn sub_refresh_with_token(
        &mut self,
        now: Now,
        key: SessionKey,
        channel: &str,
        outcome: Result<SubscriptionClaims, TokenError>,
    ) -> Result<Reply, Disconnect> {
        let claims = match outcome {
            Ok(claims) => claims,
            Err(TokenError::Expired) => return Ok(Reply::Error(ErrorCode::TokenExpired)),
            Err(TokenError::Invalid) => return Err(Disconnect::INVALID_TOKEN),
            Err(TokenError::Unavailable) => return Ok(Reply::Error(ErrorCode::Internal)),
        };
        self.check_claims(key, channel, &claims)?;
        let Ok(ttl_s) = ttl_s(now, claims.expires_at_s) else { return Ok(Reply::Error(ErrorCode::Expired)) };
        let session = self.sessions.at(key.index);
        let id = self.hub.find(channel).filter(|id| session.subscription(*id).is_some());
        let Some(id) = id else { return Ok(Reply::Error(ErrorCode::PermissionDenied)) };
        let expiry_us = self.subscription_expiry_us(now, self.hub.channel(id).namespace, ttl_s);
        self.show_as(key, id, claims.info);
        self.move_expiry(key, id, expiry_us);
        Ok(Reply::SubRefresh { ttl_s })
    }

    /// Publications and the leave show the session so from now on; presence keeps what the subscription came with.
    fn show_as(&mut self, key: SessionKey, id: LocalChannelId, chan_info: Option<Payload>) {
        let session = self.sessions.at_mut(key.index);
        let of_session = session.info.clone();
        let Some(subscription) = session.subscription_mut(id) else { return };
        let info = chan_info.zip(of_session).map(|(chan_info, of_session)| with_chan_info(&of_session, chan_info));
        if info.is_some() || subscription.extra.is_some() {
            subscription.extra.get_or_insert_default().info = info;
        }
    }

    fn move_expiry(&mut self, key: SessionKey, id: LocalChannelId, expiry_us: u64) {
        let session = self.sessions.at_mut(key.index);
        if let Some(subscription) = session.subscription_mut(id) {
            subscription.expiry_us = expiry_us;
            session.deadlines.subscriptions_us = session.deadlines.subscriptions_us.min(expiry_us);
            self.schedule_session(key);
        }
    }

    /// A subscription has expired. A backend may have it go on.
    pub(super) fn subscription_expires(
        &mut self,
        now: Now,
        key: SessionKey,
        id: LocalChannelId,
        effects: &mut Effects,
    ) {
        let Some(session) = self.sessions.get(key) else { return };
        if session.subscription(id).is_none() {
            // Dealing with another one has closed the session.
            return;
        }
        let channel = self.hub.channel(id);
        let (name, namespace) = (std::sync::Arc::clone(&channel.name), channel.namespace);
        let Some(proxy) = self.namespace(namespace).sub_refresh_proxy else {
            return self.end_expired(now, key, id, effects);
        };
        let question = self.ask(key, None, proxy, Ask::SubRefresh { channel: name }, effects);
        if let Some(subscription) = self.sessions.at_mut(key.index).subscription_mut(id) {
            // Nothing is due until there is an answer, and there will be one.
            subscription.expiry_us = u64::MAX;
            subscription.extra.get_or_insert_default().refresh = Some(question);
        }
    }

    fn end_expired(&mut self, now: Now, key: SessionKey, id: LocalChannelId, effects: &mut Effects) {
        let subscription = self.sessions.get(key).and_then(|session| session.subscription(id));
        match subscription.map(|subscription: &Subscription| subscription.flags.server_side) {
            Some(true) => self.close(now, key, &Disconnect::SUBSCRIPTION_EXPIRED, effects),
            Some(false) => self.end_subscription(now, key, id, UnsubscribeCode::EXPIRED, effects),
            None => {}
        }
    }

    /// A backend was asked whether a subscription goes on, and has answered.
    pub(super) fn subscription_refreshed(
        &mut self,
        now: Now,
        key: SessionKey,
        id: LocalChannelId,
        outcome: BackendOutcome,
        effects: &mut Effects,
    ) {
        let answer = match outcome {
            Ok(BackendAnswer::SubRefresh(answer)) => answer,
            Err(BackendRefusal::Disconnect(disconnect)) => return self.close(now, key, &disconnect, effects),
            Ok(_) | Err(_) => return self.move_expiry(key, id, now.after_ms(UNANSWERED_GRACE_MS)),
        };
        let ttl_s = ttl_s(now, answer.expires_at_s);
        let (false, Ok(ttl_s)) = (answer.expired || matches!(ttl_s, Ok(Some(0))), ttl_s) else {
            return self.end_expired(now, key, id, effects);
        };
        if answer.info.is_some() {
            self.show_as(key, id, answer.info);
        }
        let expiry_us = self.subscription_expiry_us(now, self.hub.channel(id).namespace, ttl_s);
        self.move_expiry(key, id, expiry_us);
    }
}
