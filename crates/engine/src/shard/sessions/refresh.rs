//! The extension of a session or a subscription, by a token from the client, by the API, or by a backend, which is called
//! when it expires.

use std::sync::Arc;

use dunlin_protocol::{Disconnect, ErrorCode, Payload, Push, RefreshResult, Reply, SubRefreshRequest, UnsubscribeCode};

use crate::{
    SessionKey,
    backend::{ProxyError, ProxyRequestKind, ProxyResponse, ProxyResult},
    event::{ConnectionClaims, ServerSubscription, SubscriptionClaims, TokenError},
    hub::LocalChannelId,
    names::NamespaceIndex,
    refused::{Refused, RefusedCommand},
    session::{Paused, PausedOn, Session, Subscription},
};

use super::{
    Context,
    commands::{CommandOutcome, NO_CHANNEL},
    open_sessions::OpenSessions,
    time_to_live::{AlreadyExpired, TimeToLive, expiry_us},
};

const NOT_SUBSCRIBED: &str = "the client is not subscribed to the channel";

/// How long a session or subscription is extended when the backend is unavailable: a minute, as in Centrifugo.
pub(super) const UNANSWERED_GRACE_MS: u64 = 60_000;

/// The extension of one session, or of one of its subscriptions.
pub(super) struct Refreshing<'s> {
    pub(super) context: &'s mut Context,
    pub(super) sessions: &'s mut OpenSessions,
    pub(super) key: SessionKey,
}

impl Refreshing<'_> {
    pub(super) fn refresh(&mut self, command_id: u32, token: &str) -> Result<(), RefusedCommand> {
        if token.is_empty() || self.context.options.backend.refresh.is_some() {
            return Err(RefusedCommand::bad_request(if token.is_empty() {
                "no token is given"
            } else {
                "client.proxy.refresh is enabled: the backend refreshes connections, not the client"
            }));
        }
        self.sessions.table.wait_for_token(
            self.key,
            PausedOn::Refresh { command_id },
            token,
            &mut self.context.effects,
        );
        Ok(())
    }

    /// The token of a `refresh` was verified.
    pub(super) fn refresh_with_token(
        &mut self,
        outcome: Result<ConnectionClaims, TokenError>,
    ) -> Result<Reply, RefusedCommand> {
        let claims = outcome.map_err(|error| match error {
            TokenError::Expired => RefusedCommand::from(Disconnect::EXPIRED),
            TokenError::Invalid => Disconnect::INVALID_TOKEN.into(),
            TokenError::Unavailable => ErrorCode::Internal.into(),
        })?;
        self.context.check_revoked(&claims.user, &claims.token)?;
        let Some(session) = self.sessions.table.get_mut(self.key) else { return Err(Disconnect::BAD_REQUEST.into()) };
        let Some(info) = &session.info else { return Err(Disconnect::BAD_REQUEST.into()) };
        if *info.user != *claims.user {
            return Err(Disconnect::INVALID_TOKEN.into());
        }
        let ttl =
            TimeToLive::until(claims.expires_at_ms, self.context.now).map_err(|AlreadyExpired| ErrorCode::Expired)?;
        if claims.meta.is_some() {
            session.extra.get_or_insert_default().meta = claims.meta;
        }
        if let Some(conn_info) = claims.info {
            self.show_with(&conn_info);
        }
        self.expire_after(ttl);
        if self.has_other_subscriptions(&claims.subscriptions) {
            // The client reconnects and receives the subscriptions of the new token.
            return Err(Disconnect::INSUFFICIENT_STATE.into());
        }
        // The session's id and the version are the same as in the reply to `connect`, and are not repeated.
        Ok(Reply::Refresh(RefreshResult { client: Arc::default(), version: "", ttl_s: ttl.map(TimeToLive::whole_s) }))
    }

    /// Updates the session's connection info in publications, presence and leaves.
    pub(super) fn show_with(&mut self, conn_info: &Payload) {
        let session = self.sessions.table.at_mut(self.key.index);
        let Some(info) = &mut session.info else { return };
        Arc::make_mut(info).conn_info = Some(conn_info.clone());
        for subscription in &mut session.subscriptions {
            if let Some(shown) = subscription.extra.as_mut().and_then(|extra| extra.info.as_mut()) {
                Arc::make_mut(shown).conn_info = Some(conn_info.clone());
            }
        }
        let channels: Vec<LocalChannelId> =
            session.subscriptions.iter().map(|subscription| subscription.channel).collect();
        for channel in channels {
            self.sessions.show_in_presence(self.context, self.key, channel);
        }
    }

    /// Whether the session's subscriptions differ from its new token: one is missing, or one from its old token is not
    /// in the new one.
    fn has_other_subscriptions(&self, claimed: &[ServerSubscription]) -> bool {
        let session = self.sessions.table.at(self.key.index);
        let claimed = || claimed.iter().filter(|claimed| !claimed.channel.is_empty());
        let lacks = claimed().any(|claimed| {
            let id = self.sessions.hub.find(&claimed.channel);
            id.and_then(|id| session.subscription(id)).is_none_or(crate::session::Subscription::is_ending)
        });
        let is_claimed = |channel: &str| claimed().any(|claimed| *claimed.channel == *channel);
        let from_token = session.subscriptions.iter().filter(|subscription| subscription.flags.from_token);
        lacks || from_token.into_iter().any(|known| !is_claimed(&self.sessions.hub.channel(known.channel).name))
    }

    /// Sets the session's expiry, or never.
    pub(super) fn expire_after(&mut self, ttl: Option<TimeToLive>) {
        let expiry_us = session_expiry_us(self.context, ttl);
        self.sessions.table.at_mut(self.key.index).deadlines.expiry_us = expiry_us;
        self.sessions.table.schedule(self.key, &mut self.context.timers);
    }

    /// Handles the session's expiry.
    pub(super) fn session_expires(&mut self) {
        let Some(proxy) = self.context.options.backend.refresh else {
            return self.sessions.close(self.context, self.key, &Disconnect::EXPIRED);
        };
        // No expiry until the response, which is guaranteed.
        self.sessions.table.at_mut(self.key.index).deadlines.expiry_us = u64::MAX;
        let request_id = self.sessions.push_proxy_request(
            self.key,
            None,
            proxy,
            ProxyRequestKind::Refresh,
            &mut self.context.effects,
        );
        self.sessions.table.at_mut(self.key.index).extra.get_or_insert_default().refresh = Some(request_id);
    }

    /// A backend has responded to the refresh of a session.
    pub(super) fn session_refreshed(&mut self, outcome: ProxyResult) {
        let answer = match outcome {
            Ok(ProxyResponse::Refresh(answer)) => answer,
            Err(ProxyError::Disconnect(disconnect)) => return self.sessions.close(self.context, self.key, &disconnect),
            Ok(_) | Err(_) => {
                self.sessions.table.at_mut(self.key.index).deadlines.expiry_us =
                    self.context.now.after_ms(UNANSWERED_GRACE_MS);
                return self.sessions.table.schedule(self.key, &mut self.context.timers);
            }
        };
        let (false, Ok(ttl)) = (answer.expired, TimeToLive::until(answer.expires_at_ms, self.context.now)) else {
            return self.sessions.close(self.context, self.key, &Disconnect::EXPIRED);
        };
        if answer.meta.is_some() {
            self.sessions.table.at_mut(self.key.index).extra.get_or_insert_default().meta = answer.meta;
        }
        if let Some(conn_info) = answer.info {
            self.show_with(&conn_info);
        }
        self.expire_after(ttl);
    }

    pub(super) fn sub_refresh(&mut self, command_id: u32, request: &SubRefreshRequest<'_>) -> CommandOutcome {
        let channel = &*request.channel;
        if channel.is_empty() {
            return Err(RefusedCommand::bad_request(NO_CHANNEL));
        }
        let session = self.sessions.table.at(self.key.index);
        let subscription = self.sessions.hub.find(channel).and_then(|id| session.subscription(id));
        let Some(subscription) = subscription.filter(|subscription| !subscription.is_ending()) else {
            return Err(Refused::new(ErrorCode::PermissionDenied, NOT_SUBSCRIBED).into());
        };
        let namespace = self.sessions.hub.channel(subscription.channel).namespace;
        if subscription.flags.server_side || self.context.namespace(namespace).sub_refresh_proxy.is_some() {
            let why = "the server or its backend refreshes this subscription, not the client";
            return Err(RefusedCommand::bad_request(why));
        }
        if request.token.is_empty() || request.kind != 0 {
            let is_missing = request.token.is_empty();
            let why = if is_missing { "no token is given" } else { "a type of subscription other than 0" };
            return Err(Refused::new(ErrorCode::BadRequest, why).into());
        }
        let paused_on = PausedOn::SubRefresh { command_id, channel: channel.into() };
        self.sessions.table.wait_for_token(self.key, paused_on, &request.token, &mut self.context.effects);
        Ok(None)
    }

    pub(super) fn sub_refresh_with_token(
        &mut self,
        channel: &str,
        outcome: Result<SubscriptionClaims, TokenError>,
    ) -> Result<Reply, RefusedCommand> {
        let claims = outcome.map_err(|error| match error {
            TokenError::Expired => RefusedCommand::from(ErrorCode::TokenExpired),
            TokenError::Invalid => Disconnect::INVALID_TOKEN.into(),
            TokenError::Unavailable => ErrorCode::Internal.into(),
        })?;
        self.context.check_revoked(&claims.user, &claims.token)?;
        self.sessions.check_claims(self.key, channel, &claims)?;
        let ttl = TimeToLive::until(claims.grant.expires_at_ms, self.context.now);
        let ttl = ttl.map_err(|AlreadyExpired| ErrorCode::Expired)?;
        let session = self.sessions.table.at(self.key.index);
        let id = self.sessions.hub.find(channel).filter(|id| session.subscription(*id).is_some());
        let Some(id) = id else { return Err(Refused::new(ErrorCode::PermissionDenied, NOT_SUBSCRIBED).into()) };
        let expiry_us = subscription_expiry_us(self.context, self.sessions.hub.channel(id).namespace, ttl);
        self.show_as(id, claims.grant.info);
        self.move_expiry(id, expiry_us);
        Ok(Reply::SubRefresh { ttl_s: ttl.map(TimeToLive::whole_s) })
    }

    /// Updates the subscription's channel info in publications, presence and the leave.
    fn show_as(&mut self, id: LocalChannelId, chan_info: Option<Payload>) {
        let session = self.sessions.table.at_mut(self.key.index);
        let of_session = session.info.clone();
        let Some(subscription) = session.subscription_mut(id) else { return };
        let info =
            chan_info.zip(of_session).map(|(chan_info, of_session)| Arc::new(of_session.with_chan_info(chan_info)));
        if info.is_some() || subscription.extra.is_some() {
            subscription.extra.get_or_insert_default().info = info;
        }
        self.sessions.show_in_presence(self.context, self.key, id);
    }

    fn move_expiry(&mut self, id: LocalChannelId, expiry_us: u64) {
        let session = self.sessions.table.at_mut(self.key.index);
        if let Some(subscription) = session.subscription_mut(id) {
            subscription.expiry_us = expiry_us;
            session.deadlines.subscriptions_us = session.deadlines.subscriptions_us.min(expiry_us);
            self.sessions.table.schedule(self.key, &mut self.context.timers);
        }
    }

    /// Handles the expiry of a subscription, which a backend may extend.
    pub(super) fn subscription_expires(&mut self, id: LocalChannelId) {
        let Some(session) = self.sessions.table.get(self.key) else { return };
        if session.subscription(id).is_none() {
            // The expiry of an earlier subscription has closed the session.
            return;
        }
        let channel = self.sessions.hub.channel(id);
        let (name, namespace) = (std::sync::Arc::clone(&channel.name), channel.namespace);
        let Some(proxy) = self.context.namespace(namespace).sub_refresh_proxy else {
            return self.end_expired(id);
        };
        let request_id = self.sessions.push_proxy_request(
            self.key,
            None,
            proxy,
            ProxyRequestKind::SubRefresh { channel: name },
            &mut self.context.effects,
        );
        if let Some(subscription) = self.sessions.table.at_mut(self.key.index).subscription_mut(id) {
            // No expiry until the response, which is guaranteed.
            subscription.expiry_us = u64::MAX;
            subscription.extra.get_or_insert_default().refresh = Some(request_id);
        }
    }

    fn end_expired(&mut self, id: LocalChannelId) {
        let subscription = self.sessions.table.get(self.key).and_then(|session| session.subscription(id));
        match subscription.map(|subscription: &Subscription| subscription.flags.server_side) {
            Some(true) => self.sessions.close(self.context, self.key, &Disconnect::SUBSCRIPTION_EXPIRED),
            Some(false) => self.sessions.end_subscription(self.context, self.key, id, UnsubscribeCode::EXPIRED),
            None => {}
        }
    }

    /// A backend has responded to the refresh of a subscription.
    pub(super) fn subscription_refreshed(&mut self, id: LocalChannelId, outcome: ProxyResult) {
        let answer = match outcome {
            Ok(ProxyResponse::SubRefresh(answer)) => answer,
            Err(ProxyError::Disconnect(disconnect)) => return self.sessions.close(self.context, self.key, &disconnect),
            Ok(_) | Err(_) => return self.move_expiry(id, self.context.now.after_ms(UNANSWERED_GRACE_MS)),
        };
        let (false, Ok(ttl)) = (answer.expired, TimeToLive::until(answer.expires_at_ms, self.context.now)) else {
            return self.end_expired(id);
        };
        if answer.info.is_some() {
            self.show_as(id, answer.info);
        }
        let expiry_us = subscription_expiry_us(self.context, self.sessions.hub.channel(id).namespace, ttl);
        self.move_expiry(id, expiry_us);
    }

    /// Sets a session's expiry and sends it to its client.
    pub(super) fn refresh_by_api(&mut self, expired: bool, expires_at_ms: Option<u64>, info: Option<&Payload>) {
        let (false, Ok(ttl)) = (expired, TimeToLive::until(expires_at_ms, self.context.now)) else {
            return self.sessions.close(self.context, self.key, &Disconnect::EXPIRED);
        };
        let ttl_s = ttl.map(TimeToLive::whole_s);
        let Some(session) = self.sessions.table.get_mut(self.key) else { return };
        if let Some(Paused { paused_on: PausedOn::Subscriptions(pending), .. }) = session.paused.as_deref_mut() {
            // The reply to `connect` contains it.
            pending.result.ttl_s = ttl_s.filter(|_| self.context.options.backend.refresh.is_none());
        } else {
            self.sessions.push(self.context, self.key, &Push::Refresh { ttl_s });
        }
        if self.sessions.table.get(self.key).is_some_and(Session::is_authenticated) {
            if let Some(info) = info {
                self.show_with(info);
            }
            self.expire_after(ttl);
        }
    }
}

/// The deadline of a session with this time to live. A backend is asked at the expiry; without one, the client has
/// a grace period to refresh.
pub(super) fn session_expiry_us(context: &Context, ttl: Option<TimeToLive>) -> u64 {
    let grace_ms =
        if context.options.backend.refresh.is_some() { 0 } else { context.options.client.expired_close_delay_ms };
    expiry_us(context.now, ttl, grace_ms)
}

/// The deadline of a subscription with this time to live. A backend is asked at the expiry; without one, the client
/// has a grace period to refresh.
pub(super) fn subscription_expiry_us(context: &Context, namespace: NamespaceIndex, ttl: Option<TimeToLive>) -> u64 {
    let asks = context.namespace(namespace).sub_refresh_proxy.is_some();
    expiry_us(context.now, ttl, if asks { 0 } else { context.options.client.expired_sub_close_delay_ms })
}
