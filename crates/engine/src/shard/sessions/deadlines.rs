//! The deadlines of sessions: pings, pongs and expiries.

use dunlin_protocol::Disconnect;

use crate::{Effect, SessionKey, frame::FrameRef, hub::LocalChannelId, session::Phase};

use super::{Context, open_sessions::OpenSessions, refresh::Refreshing};

/// A session with a deadline that has passed.
pub(super) struct DueSession<'s> {
    pub(super) context: &'s mut Context,
    pub(super) sessions: &'s mut OpenSessions,
    pub(super) key: SessionKey,
    pub(super) pings: &'s [FrameRef],
}

impl DueSession<'_> {
    fn refreshing(&mut self) -> Refreshing<'_> {
        Refreshing { context: self.context, sessions: self.sessions, key: self.key }
    }

    /// Does what is due now. The caller schedules the next deadline.
    pub(super) fn meet(&mut self) {
        self.end_hold();
        let Some(session) = self.sessions.table.get_mut(self.key) else { return };
        let (deadlines, phase) = (session.deadlines, session.phase);
        if deadlines.end_us <= self.context.now.mono_us {
            if phase == Phase::Closing {
                session.deadlines.end_us = u64::MAX;
                self.context.effects.list.push(Effect::HangUp { session: self.key });
            } else {
                self.sessions.close(self.context, self.key, &Disconnect::STALE);
            }
            return;
        }
        if deadlines.expiry_us <= self.context.now.mono_us {
            return self.refreshing().session_expires();
        }
        if deadlines.pong_us <= self.context.now.mono_us {
            let is_paused = session.is_paused_for_pace();
            if session.awaits_pong && is_paused && self.sessions.table.outbox(self.key.index).take_progress() {
                // The pong may have arrived, behind commands that wait for a slow but not stalled socket.
                let pong_us = self.context.now.after_ms(self.context.options.client.pong_timeout_ms);
                self.sessions.table.at_mut(self.key.index).deadlines.pong_us = pong_us;
                return;
            }
            let session = self.sessions.table.at_mut(self.key.index);
            if session.awaits_pong {
                return self.sessions.close(self.context, self.key, &Disconnect::NO_PONG);
            }
            session.deadlines.pong_us = u64::MAX;
        }
        if deadlines.subscriptions_us <= self.context.now.mono_us {
            self.expire_subscriptions();
        }
        if deadlines.ping_us <= self.context.now.mono_us {
            self.ping();
        }
    }

    /// Lets the session be sent to again, if its pace allows it.
    fn end_hold(&mut self) {
        let now_us = self.context.now.mono_us;
        let session = self.sessions.table.get_mut(self.key);
        let Some(extra) = session.and_then(|session| session.extra.as_mut()) else { return };
        if extra.held_until_us.take_if(|until_us| *until_us <= now_us).is_none() {
            return;
        }
        let outbox = self.sessions.table.outbox(self.key.index);
        outbox.refill(now_us);
        // The reliable lane may have spent bytes in the meantime.
        if let Some(until_us) = outbox.held_until_us() {
            self.sessions.table.at_mut(self.key.index).extra.get_or_insert_default().held_until_us = Some(until_us);
        } else {
            outbox.list(self.key.index, &mut self.context.effects);
        }
    }

    fn ping(&mut self) {
        let client = &self.context.options.client;
        // Another deadline may have closed the session.
        let Some(session) = self.sessions.table.get_mut(self.key).filter(|session| session.phase == Phase::Live) else {
            return;
        };
        session.expect_pong(client, self.context.now);
        let ping = self.pings[session.wire.index()].clone();
        self.sessions.table.outbox(self.key.index).trim();
        self.sessions.queue_frame(self.context, self.key, ping);
    }

    fn expire_subscriptions(&mut self) {
        let session = self.sessions.table.at_mut(self.key.index);
        let is_over = |expiry_us: u64| expiry_us <= self.context.now.mono_us;
        // A subscription that its owner has not answered yet is checked again after the answer.
        let expired: Vec<LocalChannelId> = session
            .subscriptions
            .iter()
            .filter(|subscription| subscription.place.is_some() && is_over(subscription.expiry_us))
            .map(|subscription| subscription.channel)
            .collect();
        for id in expired {
            self.refreshing().subscription_expires(id);
        }
        let session = self.sessions.table.at_mut(self.key.index);
        let left = session.subscriptions.iter().filter(|subscription| subscription.place.is_some());
        session.deadlines.subscriptions_us = left.map(|subscription| subscription.expiry_us).min().unwrap_or(u64::MAX);
    }
}
