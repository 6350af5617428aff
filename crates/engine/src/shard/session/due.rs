//! Handles a session's deadlines: pings, pongs, expiries and closes.

use dunlin_protocol::Disconnect;

use crate::{Effect, SessionKey, hub::LocalChannelId, session::Phase, timers::TimerOwner};

use super::{Context, Sessions};

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
        session.deadlines.ping_us = context.now.after_ms(client.ping_interval_ms);
        session.late_pongs = session.late_pongs.saturating_add(u8::from(session.awaits_pong));
        // A pong may arrive even if none is required, except on unidirectional transports.
        session.awaits_pong = !session.wire.is_unidirectional();
        if client.pong_timeout_ms > 0 && session.awaits_pong {
            session.deadlines.pong_us = context.now.after_ms(client.pong_timeout_ms);
        }
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
}
