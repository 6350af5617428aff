//! The deadlines of sessions: pings, pongs and expiries; and the extension of a session by a token from the client, or by a
//! backend, which is called when it expires.

use std::sync::Arc;

use dunlin_protocol::{Disconnect, ErrorCode, Payload, RefreshResult, Reply};

use crate::{
    Effect, SessionKey,
    backend::{ProxyError, ProxyRequestKind, ProxyResponse, ProxyResult},
    event::{ConnectionClaims, ServerSubscription, TokenError},
    hub::LocalChannelId,
    message::ShardRequest,
    refused::RefusedCommand,
    session::{PausedOn, Phase},
    timers::TimerOwner,
};

use super::{
    Context, Sessions,
    time_to_live::{AlreadyExpired, TimeToLive, expiry_us},
};

/// How long a session or subscription is extended when the backend is unavailable: a minute, as in Centrifugo.
pub(super) const UNANSWERED_GRACE_MS: u64 = 60_000;

impl Sessions {
    /// Handles a session's timer, if it is active; returns whether it is.
    pub(in crate::shard) fn take_due(&mut self, context: &mut Context, due_us: u64, key: SessionKey) -> bool {
        let counts = self.table.get_mut(key).is_some_and(|session| session.scheduled.take(due_us));
        if counts {
            self.session_is_due(context, key);
            self.schedule_session(context, key);
        }
        counts
    }

    pub(in crate::shard) fn is_due_at(&self, key: SessionKey, due_us: u64) -> bool {
        self.table.get(key).is_some_and(|session| session.scheduled.is_at(due_us))
    }

    /// Schedules the session's next deadline.
    pub(super) fn schedule_session(&mut self, context: &mut Context, key: SessionKey) {
        let Some(session) = self.table.get_mut(key) else { return };
        let due_us = session.deadlines.next_us();
        if due_us != u64::MAX {
            context.timers.schedule(&mut session.scheduled, due_us, || TimerOwner::Session(key));
        }
    }

    fn session_is_due(&mut self, context: &mut Context, key: SessionKey) {
        let Some(session) = self.table.get_mut(key) else { return };
        let (deadlines, phase) = (session.deadlines, session.phase);
        if deadlines.end_us <= context.now.mono_us {
            if phase == Phase::Closing {
                session.deadlines.end_us = u64::MAX;
                context.effects.list.push(Effect::HangUp { session: key });
            } else {
                self.close(context, key, &Disconnect::STALE);
            }
            return;
        }
        if deadlines.expiry_us <= context.now.mono_us {
            return self.session_expires(context, key);
        }
        if deadlines.pong_us <= context.now.mono_us {
            let is_paused = session.is_paused_for_pace();
            if session.awaits_pong && is_paused && self.table.outbox(key.index).take_progress() {
                // The pong may have arrived, behind commands that wait for a slow but not stalled socket.
                let pong_us = context.now.after_ms(context.options.client.pong_timeout_ms);
                self.table.at_mut(key.index).deadlines.pong_us = pong_us;
                return;
            }
            let session = self.table.at_mut(key.index);
            if session.awaits_pong {
                return self.close(context, key, &Disconnect::NO_PONG);
            }
            session.deadlines.pong_us = u64::MAX;
        }
        if deadlines.subscriptions_us <= context.now.mono_us {
            self.expire_subscriptions(context, key);
        }
        if deadlines.ping_us <= context.now.mono_us {
            self.ping(context, key);
        }
    }

    fn ping(&mut self, context: &mut Context, key: SessionKey) {
        let client = &context.options.client;
        // Another deadline may have closed the session.
        let Some(session) = self.table.get_mut(key).filter(|session| session.phase == Phase::Live) else { return };
        session.expect_pong(client, context.now);
        let ping = self.pings[session.wire.index()].clone();
        self.table.outbox(key.index).trim();
        self.queue_frame(context, key, ping);
    }

    fn expire_subscriptions(&mut self, context: &mut Context, key: SessionKey) {
        let session = self.table.at_mut(key.index);
        let is_over = |expiry_us: u64| expiry_us <= context.now.mono_us;
        // A subscription that its owner has not answered yet is checked again after the answer.
        let expired: Vec<LocalChannelId> = session
            .subscriptions
            .iter()
            .filter(|subscription| subscription.place.is_some() && is_over(subscription.expiry_us))
            .map(|subscription| subscription.channel)
            .collect();
        for id in expired {
            self.subscription_expires(context, key, id);
        }
        let session = self.table.at_mut(key.index);
        let left = session.subscriptions.iter().filter(|subscription| subscription.place.is_some());
        session.deadlines.subscriptions_us = left.map(|subscription| subscription.expiry_us).min().unwrap_or(u64::MAX);
    }

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
        let expiry_us = session_expiry_us(context, ttl);
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

/// The deadline of a session with this time to live. A backend is asked at the expiry; without one, the client has
/// a grace period to refresh.
pub(super) fn session_expiry_us(context: &Context, ttl: Option<TimeToLive>) -> u64 {
    let grace_ms =
        if context.options.backend.refresh.is_some() { 0 } else { context.options.client.expired_close_delay_ms };
    expiry_us(context.now, ttl, grace_ms)
}
