//! Extends sessions: by a token from the client, or by a backend that is called when the session expires.

use std::sync::Arc;

use dunlin_protocol::{Disconnect, ErrorCode, Payload, RefreshResult, Reply};

use crate::{
    Now, SessionKey,
    backend::{ProxyError, ProxyRequestKind, ProxyResponse, ProxyResult},
    event::{ConnectionClaims, ServerSubscription, TokenError},
    hub::LocalChannelId,
    message::ShardRequest,
    refused::RefusedCommand,
    session::PausedOn,
};

use super::{Context, Sessions};

/// How long a session or subscription is extended when the backend is unavailable: a minute, as in Centrifugo.
pub(super) const UNANSWERED_GRACE_MS: u64 = 60_000;

impl Sessions {
    pub(super) fn refresh(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        command_id: u32,
        token: &str,
    ) -> Result<(), RefusedCommand> {
        if token.is_empty() || context.options.backend.refresh.is_some() {
            return Err(RefusedCommand::bad_request(if token.is_empty() {
                "no token is given"
            } else {
                "client.proxy.refresh is enabled: the backend refreshes connections, not the client"
            }));
        }
        self.wait_for_token(key, PausedOn::Refresh { command_id }, token, &mut context.effects);
        Ok(())
    }

    /// The token of a `refresh` was verified.
    pub(super) fn refresh_with_token(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        outcome: Result<ConnectionClaims, TokenError>,
    ) -> Result<Reply, RefusedCommand> {
        let claims = outcome.map_err(|error| match error {
            TokenError::Expired => RefusedCommand::from(Disconnect::EXPIRED),
            TokenError::Invalid => Disconnect::INVALID_TOKEN.into(),
            TokenError::Unavailable => ErrorCode::Internal.into(),
        })?;
        let Some(session) = self.table.get_mut(key) else { return Err(Disconnect::BAD_REQUEST.into()) };
        let Some(info) = &session.info else { return Err(Disconnect::BAD_REQUEST.into()) };
        if *info.user != *claims.user {
            return Err(Disconnect::INVALID_TOKEN.into());
        }
        let ttl = TimeToLive::until(claims.expires_at_ms, context.now).map_err(|AlreadyExpired| ErrorCode::Expired)?;
        if claims.meta.is_some() {
            session.extra.get_or_insert_default().meta = claims.meta;
        }
        if let Some(conn_info) = claims.info {
            self.show_with(context, key, &conn_info);
        }
        self.expire_after(context, key, ttl);
        if self.has_other_subscriptions(key, &claims.subscriptions) {
            // The client reconnects and receives the subscriptions of the new token.
            return Err(Disconnect::INSUFFICIENT_STATE.into());
        }
        // The session's id and the version are the same as in the reply to `connect`, and are not repeated.
        Ok(Reply::Refresh(RefreshResult { client: Arc::default(), version: "", ttl_s: ttl.map(TimeToLive::whole_s) }))
    }

    /// Updates the session's connection info in publications, presence and leaves.
    pub(super) fn show_with(&mut self, context: &mut Context, key: SessionKey, conn_info: &Payload) {
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
            self.show_in_presence(context, key, channel);
        }
    }

    /// Sends the session's info in presence to the owner. The message arrives after the subscription.
    pub(super) fn show_in_presence(&mut self, context: &mut Context, key: SessionKey, id: LocalChannelId) {
        let session = self.table.at(key.index);
        let Some(subscription) = session.subscription(id).filter(|subscription| subscription.flags.presence) else {
            return;
        };
        let Some(info) = session.info.as_ref().map(|of_session| Arc::clone(subscription.info(of_session))) else {
            return;
        };
        let channel = Arc::clone(&self.hub.channel(id).name);
        let owner = context.owner(&channel);
        context.request(owner, ShardRequest::ShowAs { channel, info });
    }

    /// Whether the session's subscriptions differ from its new token: one is missing, or one from its old token is not
    /// in the new one.
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

    /// Sets the session's expiry, or never.
    pub(super) fn expire_after(&mut self, context: &mut Context, key: SessionKey, ttl: Option<TimeToLive>) {
        let expiry_us = context.session_expiry_us(ttl);
        self.table.at_mut(key.index).deadlines.expiry_us = expiry_us;
        self.schedule_session(context, key);
    }

    /// Handles the session's expiry.
    pub(super) fn session_expires(&mut self, context: &mut Context, key: SessionKey) {
        let Some(proxy) = context.options.backend.refresh else {
            return self.close(context, key, &Disconnect::EXPIRED);
        };
        // No expiry until the response, which is guaranteed.
        self.table.at_mut(key.index).deadlines.expiry_us = u64::MAX;
        let request_id = self.push_proxy_request(key, None, proxy, ProxyRequestKind::Refresh, &mut context.effects);
        self.table.at_mut(key.index).extra.get_or_insert_default().refresh = Some(request_id);
    }

    /// A backend has responded to the refresh of a session.
    pub(super) fn session_refreshed(&mut self, context: &mut Context, key: SessionKey, outcome: ProxyResult) {
        let answer = match outcome {
            Ok(ProxyResponse::Refresh(answer)) => answer,
            Err(ProxyError::Disconnect(disconnect)) => return self.close(context, key, &disconnect),
            Ok(_) | Err(_) => {
                self.table.at_mut(key.index).deadlines.expiry_us = context.now.after_ms(UNANSWERED_GRACE_MS);
                return self.schedule_session(context, key);
            }
        };
        let (false, Ok(ttl)) = (answer.expired, TimeToLive::until(answer.expires_at_ms, context.now)) else {
            return self.close(context, key, &Disconnect::EXPIRED);
        };
        if answer.meta.is_some() {
            self.table.at_mut(key.index).extra.get_or_insert_default().meta = answer.meta;
        }
        if let Some(conn_info) = answer.info {
            self.show_with(context, key, &conn_info);
        }
        self.expire_after(context, key, ttl);
    }
}
impl Context {
    /// The deadline of a session with this time to live. A backend is asked at the expiry; without one, the client has
    /// a grace period to refresh.
    pub(super) fn session_expiry_us(&self, ttl: Option<TimeToLive>) -> u64 {
        let grace_ms =
            if self.options.backend.refresh.is_some() { 0 } else { self.options.client.expired_close_delay_ms };
        expiry_us(self.now, ttl, grace_ms)
    }
}

/// The expiry is in the past.
#[derive(Debug)]
pub(super) struct AlreadyExpired;

/// Maximum time to live: a year, as in Centrifugo. Longer ones are truncated.
const TTL_MAX_S: u64 = 365 * 24 * 60 * 60;

/// The time until the expiry of a session or subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimeToLive {
    ms: u64,
}

impl TimeToLive {
    /// Of something that has expired since it was admitted.
    pub(super) const OVER: Self = Self { ms: 0 };

    /// The time until `expires_at_ms`, at most [`TTL_MAX_S`]; `None` for no expiry.
    pub(super) fn until(expires_at_ms: Option<u64>, now: Now) -> Result<Option<Self>, AlreadyExpired> {
        let Some(expires_at_ms) = expires_at_ms else { return Ok(None) };
        let ms = expires_at_ms.checked_sub(now.unix_ms).filter(|ms| *ms > 0).ok_or(AlreadyExpired)?;
        Ok(Some(Self { ms: ms.min(TTL_MAX_S * 1_000) }))
    }

    /// Whole seconds for the client. A part of a second counts as one, because messages leave 0 out.
    pub(super) const fn whole_s(self) -> u32 {
        self.ms.div_ceil(1_000) as u32
    }
}

/// The deadline of something with this time to live, with a grace period.
pub(super) fn expiry_us(now: Now, ttl: Option<TimeToLive>, grace_ms: u64) -> u64 {
    let Some(ttl) = ttl else { return u64::MAX };
    // The grace period is the client's time to refresh, which it begins after the whole seconds that it was told. Counted
    // from the expiry, a fraction of a second would be taken from it.
    let ttl_ms = if grace_ms == 0 { ttl.ms } else { u64::from(ttl.whole_s()) * 1_000 };
    now.after_ms(grace_ms.saturating_add(ttl_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expiry_counts_to_the_millisecond() {
        let now = Now { mono_us: 5_000_000, unix_ms: 1_700_000_000_900 };
        for (expires_at_ms, expected) in [
            (None, Some((None, u64::MAX))),
            (Some(1_700_000_000_899), None),
            (Some(1_700_000_000_900), None),
            (Some(1_700_000_000_901), Some((Some(1), 5_001_000))),
            (Some(1_700_000_001_000), Some((Some(1), 5_100_000))),
            (Some(1_700_000_001_900), Some((Some(1), 6_000_000))),
            (Some(1_700_000_001_901), Some((Some(2), 6_001_000))),
            (Some(u64::MAX), Some((Some(31_536_000), 31_536_005_000_000))),
        ] {
            let ttl = TimeToLive::until(expires_at_ms, now).ok();
            let seen = ttl.map(|ttl| (ttl.map(TimeToLive::whole_s), expiry_us(now, ttl, 0)));
            assert_eq!(seen, expected, "{expires_at_ms:?}");
        }
    }

    #[test]
    fn a_grace_period_begins_when_the_client_refreshes() {
        let now = Now { mono_us: 5_000_000, unix_ms: 1_700_000_000_900 };
        for (expires_at_ms, expected_us) in [(1_700_000_005_000, 11_000_000), (1_700_000_005_900, 11_000_000)] {
            let ttl = TimeToLive::until(Some(expires_at_ms), now).expect("it has not expired");
            assert_eq!(expiry_us(now, ttl, 1_000), expected_us, "{expires_at_ms}");
        }
    }
}
