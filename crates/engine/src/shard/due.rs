//! What is due: pings, pongs, expiries, ends, and streams to forget.

use std::sync::Arc;

use dunlin_protocol::Disconnect;

use crate::names::namespace_options;
use crate::{Effect, Effects, Now, SessionKey, hub::LocalChannelId, session::Phase, timers::TimerOwner};

use super::Shard;

impl Shard {
    /// Deals with every deadline that has passed.
    pub(super) fn handle_due(&mut self, now: Now, effects: &mut Effects) {
        while let Some((due_us, owner)) = self.timers.pop(now.mono_us) {
            match owner {
                TimerOwner::Session(key) => {
                    let counts = self.sessions.get_mut(key).is_some_and(|session| session.scheduled.take(due_us));
                    if counts {
                        self.session_is_due(now, key, effects);
                        self.schedule_session(key);
                    } else {
                        self.timers.popped_void();
                    }
                }
                TimerOwner::Channel(name) => {
                    let counts = self.channels.get_mut(&name).is_some_and(|channel| channel.scheduled.take(due_us));
                    if counts {
                        self.channel_is_due(now, &name);
                    } else {
                        self.timers.popped_void();
                    }
                }
            }
        }
    }

    /// Sees to it that the session comes up at its next deadline.
    pub(super) fn schedule_session(&mut self, key: SessionKey) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let due_us = session.deadlines.next_us();
        if due_us != u64::MAX {
            self.timers.schedule(&mut session.scheduled, due_us, || TimerOwner::Session(key));
        }
    }

    /// Drops the entries that no longer count, once they are the most.
    pub(super) fn tidy_timers(&mut self) {
        let Self { timers, sessions, channels, .. } = self;
        timers.tidy(|due_us, owner| match owner {
            TimerOwner::Session(key) => sessions.get(*key).is_some_and(|session| session.scheduled.is_at(due_us)),
            TimerOwner::Channel(name) => channels.get(name).is_some_and(|channel| channel.scheduled.is_at(due_us)),
        });
    }

    fn session_is_due(&mut self, now: Now, key: SessionKey, effects: &mut Effects) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let (deadlines, phase) = (session.deadlines, session.phase);
        if deadlines.end_us <= now.mono_us {
            if phase == Phase::Closing {
                session.deadlines.end_us = u64::MAX;
                effects.list.push(Effect::HangUp { session: key });
            } else {
                self.close(now, key, &Disconnect::STALE, effects);
            }
            return;
        }
        if deadlines.expiry_us <= now.mono_us {
            return self.session_expires(now, key, effects);
        }
        if deadlines.pong_us <= now.mono_us {
            if session.awaits_pong {
                return self.close(now, key, &Disconnect::NO_PONG, effects);
            }
            session.deadlines.pong_us = u64::MAX;
        }
        if deadlines.subscriptions_us <= now.mono_us {
            self.expire_subscriptions(now, key, effects);
        }
        if deadlines.ping_us <= now.mono_us {
            self.ping(now, key, effects);
        }
    }

    fn ping(&mut self, now: Now, key: SessionKey, effects: &mut Effects) {
        let client = &self.options.client;
        // What else was due may have closed it.
        let Some(session) = self.sessions.get_mut(key).filter(|session| session.phase == Phase::Live) else { return };
        session.deadlines.ping_us = now.after_ms(client.ping_interval_ms);
        // A pong may come even where none is demanded, but not from those who cannot speak.
        session.awaits_pong = !session.wire.is_unidirectional();
        if client.pong_timeout_ms > 0 && session.awaits_pong {
            session.deadlines.pong_us = now.after_ms(client.pong_timeout_ms);
        }
        let ping = self.pings[session.wire.index()].clone();
        self.sessions.outbox(key.index).trim();
        self.queue_frame(now, key, ping, effects);
    }

    fn expire_subscriptions(&mut self, now: Now, key: SessionKey, effects: &mut Effects) {
        let session = self.sessions.at_mut(key.index);
        let is_over = |expiry_us: u64| expiry_us <= now.mono_us;
        // One that its owner has not answered yet comes up again when it has.
        let expired: Vec<LocalChannelId> = session
            .subscriptions
            .iter()
            .filter(|subscription| subscription.place.is_some() && is_over(subscription.expiry_us))
            .map(|subscription| subscription.channel)
            .collect();
        for id in expired {
            self.subscription_expires(now, key, id, effects);
        }
        let session = self.sessions.at_mut(key.index);
        let left = session.subscriptions.iter().filter(|subscription| subscription.place.is_some());
        session.deadlines.subscriptions_us = left.map(|subscription| subscription.expiry_us).min().unwrap_or(u64::MAX);
    }

    /// Sees to it that the channel comes up when its stream, or part of it, is to be forgotten.
    pub(super) fn schedule_channel(&mut self, name: &str) {
        let Some(channel) = self.channels.get_mut(name) else { return };
        let of_stream = channel.stream.as_ref().map(|stream| stream.data_until_us.min(stream.meta_until_us));
        let of_results = channel.results.as_ref().and_then(|results| results.next_us());
        let Some(due_us) = of_stream.into_iter().chain(of_results).min() else { return };
        let owner = Arc::clone(&channel.name);
        self.timers.schedule(&mut channel.scheduled, due_us, || TimerOwner::Channel(owner));
    }

    fn channel_is_due(&mut self, now: Now, name: &str) {
        let Some(channel) = self.channels.get_mut(name) else { return };
        let is_listened_to = channel.subscribers() > 0;
        if let Some(results) = &mut channel.results {
            results.forget_old(now.mono_us);
            channel.results.take_if(|results| results.next_us().is_none());
        }
        if let Some(stream) = channel.stream.as_mut().filter(|stream| stream.data_until_us <= now.mono_us) {
            stream.clear();
            stream.data_until_us = u64::MAX;
            if stream.take_answers() {
                self.answers.forget(name);
            }
        }
        if let Some(stream) = channel.stream.as_mut().filter(|stream| stream.meta_until_us <= now.mono_us) {
            // A position that somebody listens by is not forgotten.
            if is_listened_to {
                let remembered_ms = stream.remembered_ms(namespace_options(&self.options, channel.namespace));
                stream.meta_until_us = now.after_ms(remembered_ms.max(1));
            } else if channel.stream.take().is_some_and(|mut stream| stream.take_answers()) {
                // Where positions are forgotten before publications are.
                self.answers.forget(name);
            }
        }
        if channel.is_forgettable() {
            self.forget_channel(name);
        } else {
            self.schedule_channel(name);
        }
    }
}
