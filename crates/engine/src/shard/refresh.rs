//! How long a session goes on: refreshed by a token of the client's, or by a backend that is asked when it expires.

use std::sync::Arc;

use dunlin_protocol::{Disconnect, ErrorCode, RefreshResult, Reply};

use crate::{
    Effects, Now, SessionKey,
    backend::{Ask, BackendAnswer, BackendOutcome, BackendRefusal},
    event::{ConnectionClaims, ServerSubscription, TokenError},
    session::Waiting,
};

use super::Shard;

/// How much longer something goes on, as in Centrifugo, when the backend could not be asked: a minute.
pub(super) const UNANSWERED_GRACE_MS: u64 = 60_000;

impl Shard {
    pub(super) fn refresh(
        &mut self,
        key: SessionKey,
        command_id: u32,
        token: &str,
        effects: &mut Effects,
    ) -> Result<(), Disconnect> {
        if token.is_empty() || self.options.backend.refresh.is_some() {
            return Err(Disconnect::BAD_REQUEST);
        }
        self.wait_for_token(key, Waiting::Refresh { command_id }, token, effects);
        Ok(())
    }

    /// A token that `refresh` presented was verified.
    pub(super) fn refresh_with_token(
        &mut self,
        now: Now,
        key: SessionKey,
        outcome: Result<ConnectionClaims, TokenError>,
    ) -> Result<Reply, Disconnect> {
        let claims = match outcome {
            Ok(claims) => claims,
            Err(TokenError::Expired) => return Err(Disconnect::EXPIRED),
            Err(TokenError::Invalid) => return Err(Disconnect::INVALID_TOKEN),
            Err(TokenError::Unavailable) => return Ok(Reply::Error(ErrorCode::Internal)),
        };
        let Some(session) = self.sessions.get_mut(key) else { return Err(Disconnect::BAD_REQUEST) };
        let Some(info) = &mut session.info else { return Err(Disconnect::BAD_REQUEST) };
        if *info.user != *claims.user {
            return Err(Disconnect::INVALID_TOKEN);
        }
        let ttl_s = match ttl_s(now, claims.expires_at_s) {
            Ok(Some(0)) | Err(AlreadyExpired) => return Ok(Reply::Error(ErrorCode::Expired)),
            Ok(ttl_s) => ttl_s,
        };
        if claims.info.is_some() {
            Arc::make_mut(info).conn_info = claims.info;
        }
        if claims.meta.is_some() {
            session.extra.get_or_insert_default().meta = claims.meta;
        }
        self.expire_after(now, key, ttl_s);
        if self.has_other_subscriptions(key, &claims.subscriptions) {
            // The client connects again, and gets what the new token says.
            return Err(Disconnect::INSUFFICIENT_STATE);
        }
        // The session's id and the version stay as `connect` told them, and are not told again.
        Ok(Reply::Refresh(RefreshResult { client: Arc::default(), version: "", ttl_s }))
    }

    /// Whether the session lacks one of the subscriptions of its new token, or has one of its old token's that the new
    /// one has not.
    fn has_other_subscriptions(&self, key: SessionKey, claimed: &[ServerSubscription]) -> bool {
        let session = self.sessions.at(key.index);
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
    pub(super) fn expire_after(&mut self, now: Now, key: SessionKey, ttl_s: Option<u32>) {
        let expiry_us = self.session_expiry_us(now, ttl_s);
        self.sessions.at_mut(key.index).deadlines.expiry_us = expiry_us;
        self.schedule_session(key);
    }

    /// When a session with so long to live is dealt with: where a backend is asked it is asked then, and otherwise the
    /// client has some time to refresh.
    pub(super) fn session_expiry_us(&self, now: Now, ttl_s: Option<u32>) -> u64 {
        let grace_ms =
            if self.options.backend.refresh.is_some() { 0 } else { self.options.client.expired_close_delay_ms };
        expiry_us(now, ttl_s, grace_ms)
    }

    /// The session has expired.
    pub(super) fn session_expires(&mut self, now: Now, key: SessionKey, effects: &mut Effects) {
        let Some(proxy) = self.options.backend.refresh else {
            return self.close(now, key, &Disconnect::EXPIRED, effects);
        };
        // Nothing is due until there is an answer, and there will be one.
        self.sessions.at_mut(key.index).deadlines.expiry_us = u64::MAX;
        let question = self.ask(key, None, proxy, Ask::Refresh, effects);
        self.sessions.at_mut(key.index).extra.get_or_insert_default().refresh = Some(question);
    }

    /// A backend was asked whether the session goes on, and has answered.
    pub(super) fn session_refreshed(
        &mut self,
        now: Now,
        key: SessionKey,
        outcome: BackendOutcome,
        effects: &mut Effects,
    ) {
        let answer = match outcome {
            Ok(BackendAnswer::Refresh(answer)) => answer,
            Err(BackendRefusal::Disconnect(disconnect)) => return self.close(now, key, &disconnect, effects),
            Ok(_) | Err(_) => {
                self.sessions.at_mut(key.index).deadlines.expiry_us = now.after_ms(UNANSWERED_GRACE_MS);
                return self.schedule_session(key);
            }
        };
        let ttl_s = ttl_s(now, answer.expires_at_s);
        let (false, Ok(ttl_s)) = (answer.expired || matches!(ttl_s, Ok(Some(0))), ttl_s) else {
            return self.close(now, key, &Disconnect::EXPIRED, effects);
        };
        let session = self.sessions.at_mut(key.index);
        if let (Some(info), Some(new)) = (&mut session.info, answer.info) {
            Arc::make_mut(info).conn_info = Some(new);
        }
        if answer.meta.is_some() {
            session.extra.get_or_insert_default().meta = answer.meta;
        }
        self.expire_after(now, key, ttl_s);
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
