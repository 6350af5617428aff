//! The deadlines of sessions, their refresh and their end: pings, pongs and expiries; the extension of a session by a token
//! from the client or by a backend, which is called when it expires; the close, and which of the queued frames are still
//! written.

use std::sync::Arc;

use dunlin_protocol::{Disconnect, ErrorCode, Payload, RefreshResult, Reply};
use dunlin_websocket::{close::append_close_reply, header::append_pong};

use crate::{
    Effect, Effects, SessionKey,
    backend::{ProxyError, ProxyRequestKind, ProxyResponse, ProxyResult},
    event::{ConnectionClaims, ServerSubscription, TokenError},
    frame::{FrameRef, close_frame},
    hub::LocalChannelId,
    message::ShardRequest,
    outbox::Slots,
    record::SessionIncident,
    refused::RefusedCommand,
    room::Departure,
    session::{Deadlines, PausedOn, Phase},
    timers::TimerOwner,
};

use super::{
    Context, Sessions,
    commands::CommandRef,
    time_to_live::{AlreadyExpired, TimeToLive, expiry_us},
};

/// How long a session or subscription is extended when the backend is unavailable: a minute, as in Centrifugo.
pub(super) const UNANSWERED_GRACE_MS: u64 = 60_000;

/// Whether queued frames are sent before the close frame.
#[derive(Clone, Copy, PartialEq, Eq)]
enum QueuedFrames {
    Send,
    Discard,
}

/// What led to the end of a session, for its record.
#[derive(Clone, Copy, Default)]
pub(super) struct Cause<'a> {
    /// The command that is not carried out.
    pub(super) command: Option<CommandRef<'a>>,
    /// The reason, if that of the disconnect does not determine it.
    pub(super) why: Option<&'static str>,
}

/// The state of a drain, which ends all sessions.
#[derive(Clone, Copy, Default)]
pub(super) struct Drain {
    /// Whether new sessions are closed at once.
    pub(super) admits_none: bool,
    /// The position of a staged drain in the table.
    next: u32,
    /// Whether the first pass over the table, which closes idle sessions, is complete.
    idle_are_gone: bool,
}

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

    /// Ends a session: its subscriptions end at once, queued frames are sent, followed by a close frame.
    pub(super) fn close(&mut self, context: &mut Context, key: SessionKey, disconnect: &Disconnect) {
        self.close_for(context, key, disconnect, Cause::default());
    }

    /// As [`Sessions::close`], with the cause.
    pub(super) fn close_for(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        disconnect: &Disconnect,
        cause: Cause<'_>,
    ) {
        self.close_with(context, key, disconnect, cause, QueuedFrames::Send);
    }

    fn close_with(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        disconnect: &Disconnect,
        cause: Cause<'_>,
        queued: QueuedFrames,
    ) {
        let is_open = self.table.get(key).is_some_and(|session| session.phase != Phase::Closing);
        if is_open {
            self.record_disconnect(context, key, disconnect, cause);
        }
        // A session that must not reconnect leaves its rooms at once.
        let departure = if disconnect.reconnects() { Departure::Lost } else { Departure::Left };
        if !self.begin_close(context, key, departure) {
            return;
        }
        context.counters.count_close(disconnect.code);
        if disconnect.code == Disconnect::CONNECTION_CLOSED.code {
            // As in Centrifugo, the client gets neither frames nor a reason: it is to see a lost connection.
            self.table.outbox(key.index).discard_unbegun();
            context.effects.list.push(Effect::HangUp { session: key });
            return;
        }
        let wire = self.table.at(key.index).wire;
        let close_frame = close_frame(wire, disconnect, context.options.client.uni_websocket, &mut context.scratch);
        self.send_close_frame(context, key, close_frame, queued);
    }

    /// Ends a session that is too far behind, and drops its queue.
    pub(super) fn close_slow(&mut self, context: &mut Context, key: SessionKey) {
        let outbox = self.table.outbox(key.index);
        if outbox.has_too_many_bytes(&context.options.client) {
            context.counters.slow_bytes += 1;
        } else {
            context.counters.slow_frames += 1;
        }
        self.close_with(context, key, &Disconnect::SLOW, Cause::default(), QueuedFrames::Discard);
    }

    /// The peer has sent a close frame. Replies to it, then closes the socket.
    pub(in crate::shard) fn peer_closes(&mut self, context: &mut Context, key: SessionKey, code: Option<u16>) {
        if !self.begin_close(context, key, Departure::Lost) {
            if let Some(session) = self.table.get_mut(key) {
                let is_first = session.close_handshake.set_received();
                if is_first && session.close_handshake.is_sent() {
                    context.effects.list.push(Effect::HangUp { session: key });
                }
            }
            return;
        }
        self.record(context, key, SessionIncident::Left { code });
        self.table.at_mut(key.index).close_handshake.set_received();
        let mut close_frame = Vec::new();
        append_close_reply(code, &mut close_frame);
        self.send_close_frame(context, key, close_frame, QueuedFrames::Discard);
    }

    /// The peer violated the WebSocket protocol.
    pub(in crate::shard) fn peer_violates(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        code: u16,
        what: &'static str,
    ) {
        context.counters.violations += 1;
        let reason = std::borrow::Cow::Borrowed(what);
        self.close(context, key, &Disconnect { code, reason });
    }

    /// Removes the session from all indices except the table. Returns whether it was open.
    fn begin_close(&mut self, context: &mut Context, key: SessionKey, departure: Departure) -> bool {
        let Some(session) = self.table.get_mut(key) else { return false };
        if session.phase == Phase::Closing {
            return false;
        }
        session.deadlines =
            Deadlines { end_us: context.now.after_ms(context.options.client.close_timeout_ms), ..Deadlines::NEVER };
        if session.paused.take().is_some() {
            // The session must read on to receive the peer's close frame.
            context.effects.list.push(Effect::Resume { session: key });
        }
        self.leave_everything(context, key, departure);
        self.table.at_mut(key.index).phase = Phase::Closing;
        self.schedule_session(context, key);
        let outbox = self.table.outbox(key.index);
        outbox.end_pace();
        if let Some(before_cork) = outbox.uncork() {
            // The queued frames would have followed an answer that is not sent any more.
            outbox.discard_latest_and_behind(before_cork);
        }
        true
    }

    fn send_close_frame(&mut self, context: &mut Context, key: SessionKey, close_frame: Vec<u8>, queued: QueuedFrames) {
        if queued == QueuedFrames::Send {
            self.tag_skipped(context, key, Slots::All);
        }
        let outbox = self.table.outbox(key.index);
        match queued {
            QueuedFrames::Send => outbox.settle_latest(),
            QueuedFrames::Discard => outbox.discard_unbegun(),
        }
        outbox.closing = true;
        if !close_frame.is_empty() {
            outbox.push(FrameRef::own(close_frame.into_boxed_slice(), context.now.mono_us));
        } else if outbox.is_empty() {
            return self.on_close_frame_sent(key, &mut context.effects);
        }
        outbox.list(key.index, &mut context.effects);
    }

    /// Ends all subscriptions and removes the session from its user's list.
    pub(super) fn leave_everything(&mut self, context: &mut Context, key: SessionKey, departure: Departure) {
        let session = self.table.at_mut(key.index);
        let was_authenticated = session.is_authenticated();
        let place = session.user_place;
        for subscription in std::mem::take(&mut session.subscriptions) {
            self.detach(context, key, &subscription, departure);
        }
        if was_authenticated && let Some(info) = self.table.at(key.index).info.clone() {
            self.remove_from_user(context, key, &info.user, place);
        }
    }

    /// The kernel has accepted `bytes` bytes.
    pub(in crate::shard) fn wrote(&mut self, context: &mut Context, key: SessionKey, bytes: usize) {
        let Self { table: sessions, seats, .. } = self;
        let Context { counters, .. } = context;
        let Some(outbox) = sessions.outbox_of(key) else { return };
        let mut left = outbox.wrote(bytes);
        if left > 0 {
            left = outbox.wrote_room_frames(left, seats, |written| counters.count_room_frame(written));
        }
        counters.written_bytes += bytes as u64;
        if left > 0 {
            // It is unknown which bytes the peer has received, so nothing more can be sent to it.
            counters.writes_beyond_offer += 1;
            context.effects.list.push(Effect::HangUp { session: key });
            return;
        }
        let commands_wait = outbox.on_socket_progress();
        let is_over = !outbox.is_writable();
        let is_closing = outbox.closing;
        if is_over {
            outbox.unlist();
            outbox.trim_after_burst();
        }
        if commands_wait {
            self.pace_progresses(context, key);
        }
        if is_over && is_closing {
            self.on_close_frame_sent(key, &mut context.effects);
        }
    }

    /// The kernel has accepted all frames of a closing session.
    fn on_close_frame_sent(&mut self, key: SessionKey, effects: &mut Effects) {
        let session = self.table.at_mut(key.index);
        if session.close_handshake.set_sent() {
            effects.list.push(if session.close_handshake.is_received() {
                Effect::HangUp { session: key }
            } else {
                Effect::Finish { session: key }
            });
        }
    }

    /// The transport has ended.
    pub(in crate::shard) fn forget_session(&mut self, context: &mut Context, key: SessionKey) {
        if self.table.get(key).is_none() {
            return;
        }
        self.record(context, key, SessionIncident::Gone);
        self.leave_everything(context, key, Departure::Lost);
        if let Some(session) = self.table.remove(key) {
            context.timers.abandon(session.scheduled);
        }
    }

    pub(in crate::shard) fn answer_websocket_ping(&mut self, context: &mut Context, key: SessionKey, payload: &[u8]) {
        let mut pong = Vec::with_capacity(payload.len() + 2);
        append_pong(payload, &mut pong);
        self.queue_frame(context, key, FrameRef::own(pong.into_boxed_slice(), context.now.mono_us));
    }

    /// Closes up to `sessions_max` sessions. The first pass over the table closes idle sessions, which have nothing
    /// queued and wait for no answer. So no session has to store when it was last used. A second pass closes the rest.
    pub(in crate::shard) fn drain_some(&mut self, context: &mut Context, sessions_max: usize) {
        let mut left = sessions_max;
        while left > 0 {
            let Drain { next, idle_are_gone, .. } = self.drain;
            let Some(key) = self.table.next_from(next) else {
                (self.drain.next, self.drain.idle_are_gone) = (0, true);
                if idle_are_gone {
                    return;
                }
                continue;
            };
            self.drain.next = key.index + 1;
            let session = self.table.at(key.index);
            let (is_open, is_paused) = (session.phase != Phase::Closing, session.paused.is_some());
            let is_idle = !is_paused && self.table.outbox(key.index).is_empty();
            if is_open && (idle_are_gone || is_idle) {
                self.close(context, key, &Disconnect::SHUTDOWN);
                left -= 1;
            }
        }
    }

    /// Closes every session and admits none.
    pub(in crate::shard) fn drain(&mut self, context: &mut Context) {
        self.drain.admits_none = true;
        let keys: Vec<SessionKey> = self.table.iter().map(|session| session.key).collect();
        for key in keys {
            self.close(context, key, &Disconnect::SHUTDOWN);
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
