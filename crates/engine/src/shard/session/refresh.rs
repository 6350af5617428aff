//! Extends sessions: by a token from the client, or by a backend that is called when the session expires.

use std::sync::Arc;

use dunlin_protocol::{Disconnect, ErrorCode, Payload, RefreshResult, Reply};

use crate::{
    Effects, Now, SessionKey,
    backend::{ProxyError, ProxyRequestKind, ProxyResponse, ProxyResult},
    event::{ConnectionClaims, ServerSubscription, TokenError},
    hub::LocalChannelId,
    message::ShardRequest,
    session::PausedOn,
};

use super::{Context, Sessions};

/// How much longer something goes on, as in Centrifugo, when the backend could not be asked: a minute.
pub(super) const UNANSWERED_GRACE_MS: u64 = 60_000;

impl Sessions {
    pub(super) fn refresh(
        &mut self,
        context: &Context,
        key: SessionKey,
        command_id: u32,
        token: &str,
        effects: &mut Effects,
    ) -> Result<(), Disconnect> {
        if token.is_empty() || context.options.backend.refresh.is_some() {
            context.because(if token.is_empty() {
                "no token is given"
            } else {
                "client.proxy.refresh is enabled: the backend refreshes connections, not the client"
            });
            return Err(Disconnect::BAD_REQUEST);
        }
        self.wait_for_token(key, PausedOn::Refresh { command_id }, token, effects);
        Ok(())
    }

    /// A token that `refresh` presented was verified.
    pub(super) fn refresh_with_token(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        outcome: Result<ConnectionClaims, TokenError>,
        effects: &mut Effects,
    ) -> Result<Reply, Disconnect> {
        let claims = match outcome {
            Ok(claims) => claims,
            Err(TokenError::Expired) => return Err(Disconnect::EXPIRED),
            Err(TokenError::Invalid) => return Err(Disconnect::INVALID_TOKEN),
            Err(TokenError::Unavailable) => return Ok(Reply::Error(ErrorCode::Internal)),
        };
        let Some(session) = self.table.get_mut(key) else { return Err(Disconnect::BAD_REQUEST) };
        let Some(info) = &session.info else { return Err(Disconnect::BAD_REQUEST) };
        if *info.user != *claims.user {
            return Err(Disconnect::INVALID_TOKEN);
        }
        let ttl_s = match ttl_s(context.now, claims.expires_at_s) {
            Ok(Some(0)) | Err(AlreadyExpired) => return Ok(Reply::Error(ErrorCode::Expired)),
            Ok(ttl_s) => ttl_s,
        };
        if claims.meta.is_some() {
            session.extra.get_or_insert_default().meta = claims.meta;
        }
        if let Some(conn_info) = claims.info {
            self.show_with(context, key, &conn_info, effects);
        }
        self.expire_after(context, key, ttl_s);
        if self.has_other_subscriptions(key, &claims.subscriptions) {
            // The client reconnects and gets the subscriptions of the new token.
            return Err(Disconnect::INSUFFICIENT_STATE);
        }
        // The session's id and the version are as in the reply to `connect`, and are not repeated.
        Ok(Reply::Refresh(RefreshResult { client: Arc::default(), version: "", ttl_s }))
    }

    /// Publications, presence and leaves show the session with this connection info from now on.
    pub(super) fn show_with(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        conn_info: &Payload,
        effects: &mut Effects,
    ) {
        let session = self.table.at_mut(key.index);
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
            self.show_in_presence(context, key, channel, effects);
        }
    }

    /// Sends the info that presence shows for the session to the owner. It arrives after the subscription.
    pub(super) fn show_in_presence(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        id: LocalChannelId,
        effects: &mut Effects,
    ) {
        let session = self.table.at(key.index);
        let Some(subscription) = session.subscription(id).filter(|subscription| subscription.flags.presence) else {
            return;
        };
        let Some(info) = session.info.as_ref().map(|of_session| Arc::clone(subscription.info(of_session))) else {
            return;
        };
        let channel = Arc::clone(&self.hub.channel(id).name);
        let owner = context.owner(&channel);
        context.request(owner, ShardRequest::ShowAs { channel, info }, effects);
    }

    /// Whether the session lacks one of the subscriptions of its new token, or has one of its old token's that the new
    /// one has not.
    fn has_other_subscriptions(&self, key: SessionKey, claimed: &[ServerSubscription]) -> bool {
        let session = self.table.at(key.index);
        let claimed = || claimed.iter().filter(|claimed| !claimed.channel.is_empty());
        let lacks = claimed().any(|claimed| {
            let id = self.hub.find(&claimed.channel);
            id.and_then(|id| session.subscription(id)).is_none_or(crate::session::Subscription::is_ending)
        });
        let is_claimed = |channel: &str| claimed().any(|claimed| *claimed.channel == *channel);
        let from_token = session.subscriptions.iter().filter(|subscription| subscription.flags.from_token);
        lacks || from_token.into_iter().any(|known| !is_claimed(&self.hub.channel(known.channel).name))
    }

    /// The session expires in `ttl_s` seconds, or never.
    pub(super) fn expire_after(&mut self, context: &mut Context, key: SessionKey, ttl_s: Option<u32>) {
        let expiry_us = context.session_expiry_us(ttl_s);
        self.table.at_mut(key.index).deadlines.expiry_us = expiry_us;
        self.schedule_session(context, key);
    }

    /// The session has expired.
    pub(super) fn session_expires(&mut self, context: &mut Context, key: SessionKey, effects: &mut Effects) {
        let Some(proxy) = context.options.backend.refresh else {
            return self.close(context, key, &Disconnect::EXPIRED, effects);
        };
        // Nothing is due until there is an answer, and there will be one.
        self.table.at_mut(key.index).deadlines.expiry_us = u64::MAX;
        let request_id = self.push_proxy_request(key, None, proxy, ProxyRequestKind::Refresh, effects);
        self.table.at_mut(key.index).extra.get_or_insert_default().refresh = Some(request_id);
    }

    /// A backend was asked whether the session goes on, and has answered.
    pub(super) fn session_refreshed(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        outcome: ProxyResult,
        effects: &mut Effects,
    ) {
        let answer = match outcome {
            Ok(ProxyResponse::Refresh(answer)) => answer,
            Err(ProxyError::Disconnect(disconnect)) => return self.close(context, key, &disconnect, effects),
            Ok(_) | Err(_) => {
                self.table.at_mut(key.index).deadlines.expiry_us = context.now.after_ms(UNANSWERED_GRACE_MS);
                return self.schedule_session(context, key);
            }
        };
        let ttl_s = ttl_s(context.now, answer.expires_at_s);
        let (false, Ok(ttl_s)) = (answer.expired || matches!(ttl_s, Ok(Some(0))), ttl_s) else {
            return self.close(context, key, &Disconnect::EXPIRED, effects);
        };
        if answer.meta.is_some() {
            self.table.at_mut(key.index).extra.get_or_insert_default().meta = answer.meta;
        }
        if let Some(conn_info) = answer.info {
            self.show_with(context, key, &conn_info, effects);
        }
        self.expire_after(context, key, ttl_s);
    }
}
impl Context {
    /// When a session with so long to live is dealt with: where a backend is asked it is asked then, and otherwise the
    /// client has some time to refresh.
    pub(super) fn session_expiry_us(&self, ttl_s: Option<u32>) -> u64 {
        let grace_ms =
            if self.options.backend.refresh.is_some() { 0 } else { self.options.client.expired_close_delay_ms };
        expiry_us(self.now, ttl_s, grace_ms)
    }
}

/// The moment lies in the past.
pub(super) struct AlreadyExpired;

/// The longest time to live that counts, as in Centrifugo: a year.
const TTL_MAX_S: u64 = 365 * 24 * 60 * 60;

/// Seconds until `expires_at_s`, at most [`TTL_MAX_S`].
pub(super) fn ttl_s(now: Now, expires_at_s: Option<u64>) -> Result<Option<u32>, AlreadyExpired> {
    let Some(expires_at_s) = expires_at_s else { return Ok(None) };
    let ttl_s = expires_at_s.checked_sub(now.unix_ms / 1_000).ok_or(AlreadyExpired)?;
    Ok(Some(ttl_s.min(TTL_MAX_S) as u32))
}

/// When something that lives for `ttl_s` is over, with a grace.
pub(super) fn expiry_us(now: Now, ttl_s: Option<u32>, grace_ms: u64) -> u64 {
    match ttl_s {
        Some(ttl_s) => now.after_ms(grace_ms.saturating_add(u64::from(ttl_s) * 1_000)),
        None => u64::MAX,
    }
}
