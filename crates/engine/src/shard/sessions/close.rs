//! The end of sessions: the close, which of the queued frames are still written, and drains.

use dunlin_protocol::Disconnect;
use dunlin_websocket::{close::append_close_reply, header::append_pong};

use crate::{
    Effect, Effects, SessionKey,
    frame::{FrameRef, close_frame},
    outbox::Slots,
    record::SessionIncident,
    room::Departure,
    session::{Deadlines, Phase},
};

use super::{Context, Sessions, commands::CommandRef};

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
