//! How sessions end, and what of them reaches the socket.

use dunlin_protocol::Disconnect;
use dunlin_websocket::header::{append_close_reply, append_pong};

use crate::{
    Effect, Effects, Now, SessionKey,
    frame::{FrameRef, goodbye},
    outbox::Slots,
    session::{Deadlines, Phase},
};

use super::Shard;

/// Whether what waits is still sent before the goodbye.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waiting {
    IsSent,
    IsDropped,
}

/// Where in the table a staged drain is.
#[derive(Clone, Copy, Default)]
pub(super) struct DrainProgress {
    next: u32,
    /// The table has been walked once.
    idle_are_gone: bool,
}

impl Shard {
    /// Ends a session: its subscriptions are over at once, what waits for it is sent, and a close frame behind it.
    pub(super) fn close(&mut self, now: Now, key: SessionKey, disconnect: &Disconnect, effects: &mut Effects) {
        self.close_with(now, key, disconnect, Waiting::IsSent, effects);
    }

    /// Ends a session that is too far behind: what waits for it is dropped.
    pub(super) fn close_slow(&mut self, now: Now, key: SessionKey, effects: &mut Effects) {
        let outbox = self.sessions.outbox(key.index);
        if outbox.has_too_many_bytes(&self.options.client) {
            self.counters.slow_bytes += 1;
        } else {
            self.counters.slow_frames += 1;
        }
        #[cfg(feature = "planted-bugs")]
        if self.planted == Some(crate::planted::Bug::SlowCloseCutsFrame) {
            self.sessions.outbox(key.index).forget_begun();
        }
        self.close_with(now, key, &Disconnect::SLOW, Waiting::IsDropped, effects);
    }

    fn close_with(
        &mut self,
        now: Now,
        key: SessionKey,
        disconnect: &Disconnect,
        waiting: Waiting,
        effects: &mut Effects,
    ) {
        if !self.begin_close(now, key, effects) {
            return;
        }
        self.counters.count_close(disconnect.code);
        let wire = self.sessions.at(key.index).wire;
        let goodbye = goodbye(wire, disconnect, self.options.client.uni_websocket, &mut self.scratch);
        self.say_goodbye(now, key, goodbye, waiting, effects);
    }

    /// The peer said goodbye: say it back, then hang up.
    pub(super) fn peer_closes(&mut self, now: Now, key: SessionKey, code: Option<u16>, effects: &mut Effects) {
        if !self.begin_close(now, key, effects) {
            if let Some(session) = self.sessions.get_mut(key) {
                let is_first = session.goodbyes.hear();
                if is_first && session.goodbyes.said() {
                    effects.list.push(Effect::HangUp { session: key });
                }
            }
            return;
        }
        self.sessions.at_mut(key.index).goodbyes.hear();
        let mut goodbye = Vec::new();
        append_close_reply(code, &mut goodbye);
        self.say_goodbye(now, key, goodbye, Waiting::IsDropped, effects);
    }

    /// The peer broke the WebSocket protocol.
    pub(super) fn peer_violates(
        &mut self,
        now: Now,
        key: SessionKey,
        code: u16,
        what: &'static str,
        effects: &mut Effects,
    ) {
        self.counters.violations += 1;
        let reason = std::borrow::Cow::Borrowed(what);
        self.close_with(now, key, &Disconnect { code, reason }, Waiting::IsSent, effects);
    }

    /// Takes the session out of everything but the table. Returns whether it was open until now.
    fn begin_close(&mut self, now: Now, key: SessionKey, effects: &mut Effects) -> bool {
        let Some(session) = self.sessions.get_mut(key) else { return false };
        if session.phase == Phase::Closing {
            return false;
        }
        session.deadlines =
            Deadlines { end_us: now.after_ms(self.options.client.close_timeout_ms), ..Deadlines::NEVER };
        if session.held.take().is_some() {
            // So that the peer's goodbye is read.
            effects.list.push(Effect::Resume { session: key });
        }
        self.leave_everything(key, effects);
        self.sessions.at_mut(key.index).phase = Phase::Closing;
        self.schedule_session(key);
        let outbox = self.sessions.outbox(key.index);
        if std::mem::take(&mut outbox.corked) {
            // What waits belongs behind an answer that does not come, and nobody was told to write it.
            outbox.discard_unbegun();
            outbox.listed = false;
        }
        true
    }

    fn say_goodbye(&mut self, now: Now, key: SessionKey, goodbye: Vec<u8>, waiting: Waiting, effects: &mut Effects) {
        if waiting == Waiting::IsSent {
            self.tag_skipped(key, Slots::All);
        }
        let outbox = self.sessions.outbox(key.index);
        match waiting {
            Waiting::IsSent => outbox.settle_latest(),
            Waiting::IsDropped => outbox.discard_unbegun(),
        }
        outbox.closing = true;
        if !goodbye.is_empty() {
            outbox.push(FrameRef::own(goodbye.into_boxed_slice(), now.mono_us));
        } else if outbox.is_empty() {
            return self.has_said_goodbye(key, effects);
        }
        if !std::mem::replace(&mut outbox.listed, true) {
            effects.dirty.push(key);
        }
    }

    /// Ends all subscriptions and takes the session out of its user's list.
    pub(super) fn leave_everything(&mut self, key: SessionKey, effects: &mut Effects) {
        let session = self.sessions.at_mut(key.index);
        let was_authenticated = session.is_authenticated();
        let place = session.user_place;
        for subscription in std::mem::take(&mut session.subscriptions) {
            self.detach(key, &subscription, effects);
        }
        if was_authenticated && let Some(info) = self.sessions.at(key.index).info.clone() {
            self.remove_from_user(key, &info.user, place, effects);
        }
    }

    /// The kernel took `bytes` bytes.
    pub(super) fn wrote(&mut self, key: SessionKey, bytes: usize, effects: &mut Effects) {
        let Self { sessions, seats, counters, .. } = self;
        let Some(outbox) = sessions.outbox_of(key) else { return };
        let of_rooms = outbox.wrote(bytes);
        if of_rooms > 0 {
            outbox.wrote_room_frames(of_rooms, seats, |written| counters.count_room_frame(written));
        }
        counters.written_bytes += bytes as u64;
        if !outbox.is_empty() {
            return;
        }
        outbox.listed = false;
        if !outbox.closing {
            return;
        }
        self.has_said_goodbye(key, effects);
    }

    /// All that there was to say to a session that closes is with the kernel.
    fn has_said_goodbye(&mut self, key: SessionKey, effects: &mut Effects) {
        let session = self.sessions.at_mut(key.index);
        if session.goodbyes.say() {
            effects.list.push(if session.goodbyes.heard() {
                Effect::HangUp { session: key }
            } else {
                Effect::Finish { session: key }
            });
        }
    }

    /// The transport is gone.
    pub(super) fn forget_session(&mut self, key: SessionKey, effects: &mut Effects) {
        if self.sessions.get(key).is_none() {
            return;
        }
        self.leave_everything(key, effects);
        if let Some(session) = self.sessions.remove(key) {
            self.timers.abandon(session.scheduled);
        }
    }

    pub(super) fn answer_websocket_ping(&mut self, now: Now, key: SessionKey, payload: &[u8], effects: &mut Effects) {
        let mut pong = Vec::with_capacity(payload.len() + 2);
        append_pong(payload, &mut pong);
        self.queue_frame(now, key, FrameRef::own(pong.into_boxed_slice(), now.mono_us), effects);
    }

    /// Closes up to `sessions_max` sessions. First come, in the order of the table, those that are idle: nothing waits for
    /// their sockets, and they wait for no answer. So no session has to remember when it was last used. When the table has
    /// been walked once, the rest follow.
    pub(super) fn drain_some(&mut self, now: Now, sessions_max: usize, effects: &mut Effects) {
        let mut left = sessions_max;
        while left > 0 {
            let DrainProgress { next, idle_are_gone } = self.drain_progress;
            let Some(key) = self.sessions.next_from(next) else {
                self.drain_progress = DrainProgress { next: 0, idle_are_gone: true };
                if idle_are_gone {
                    return;
                }
                continue;
            };
            self.drain_progress.next = key.index + 1;
            let session = self.sessions.at(key.index);
            let (is_open, is_held) = (session.phase != Phase::Closing, session.held.is_some());
            let is_idle = !is_held && self.sessions.outbox(key.index).is_empty();
            if is_open && (idle_are_gone || is_idle) {
                self.close(now, key, &Disconnect::SHUTDOWN, effects);
                left -= 1;
            }
        }
    }

    /// Closes every session and admits none.
    pub(super) fn drain(&mut self, now: Now, effects: &mut Effects) {
        self.draining = true;
        let keys: Vec<SessionKey> = self.sessions.iter().map(|session| session.key).collect();
        for key in keys {
            self.close(now, key, &Disconnect::SHUTDOWN, effects);
        }
    }
}
