//! Extends subscriptions: by a token from the client, or by a backend that is called when the subscription expires.

use std::sync::Arc;

use dunlin_protocol::{Disconnect, ErrorCode, Payload, Reply, SubRefreshRequest, UnsubscribeCode};

use crate::{
    SessionKey,
    backend::{ProxyError, ProxyRequestKind, ProxyResponse, ProxyResult},
    event::{SubscriptionClaims, TokenError},
    hub::LocalChannelId,
    refused::{Refused, RefusedCommand},
    session::{PausedOn, Subscription},
};

use super::{
    Context, Sessions,
    commands::{CommandOutcome, NO_CHANNEL},
    refresh::{AlreadyExpired, TimeToLive, UNANSWERED_GRACE_MS},
};

impl Sessions {
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
}
