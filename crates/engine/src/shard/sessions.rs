//! The sessions of a shard: checks and answers clients' commands, and queues publications for subscribers.
//!
//! [`Sessions`] passes each event and message on to what it concerns: a delivery ([`delivery`]), a command of a session or
//! what one waited for ([`commands`]), its `connect` ([`connect`]), a subscription ([`subscribe`]), an extension
//! ([`refresh`]), a pace ([`pacing`]), a deadline ([`deadlines`]), an input ([`inputs`]) or a message of a room ([`room_messages`]), or the end of
//! all sessions ([`drain`]). All of them change the sessions and what they hold ([`open_sessions`]).

mod commands;
mod connect;
mod deadlines;
mod delivery;
mod drain;
mod inputs;
mod insight;
mod node_rates;
mod open_sessions;
mod openers;
mod pacing;
mod permission;
mod recording;
mod refresh;
mod room_messages;
mod subscribe;
mod time_to_live;
mod users;

pub(super) use commands::{CommandProgress, CommandsLeft};
pub use connect::shard_of_session;
pub(super) use insight::Listing;

use core::net::IpAddr;

use dunlin_protocol::{Disconnect, HistoryResult, PresenceResult, PresenceStatsResult, Reply};

use crate::{
    Options, SessionKey, SourceKey, Wire,
    access_rules::{AccessRule, Applied},
    api::{ApiAnswer, ApiRequest, ApiResult, SessionFilter},
    frame::FrameRef,
    message::Notice,
    refused::RefusedCommand,
    session::Session,
};

use super::{Context, Seed, ShardIdentity};

use commands::{CommandRef, Executing};
use connect::Connecting;
use deadlines::DueSession;
use delivery::Deliveries;
use drain::Drain;
use node_rates::Rates;
use open_sessions::OpenSessions;
use pacing::Pacing;
use refresh::Refreshing;
use room_messages::RoomMessages;
use subscribe::{Subscribing, check_server_side};

/// The sessions of a shard, and their subscriptions.
pub(super) struct Sessions {
    pub(super) all: OpenSessions,
    pub(super) deliveries: Deliveries,
    /// The ping of each wire, by [`Wire::index`].
    pings: [FrameRef; Wire::ALL.len()],
    rates: Rates,
    drain: Drain,
}

impl Sessions {
    pub(super) fn new(identity: ShardIdentity, options: &Options, seed: Seed) -> Self {
        Self {
            all: OpenSessions::new(identity, options, seed.node),
            deliveries: Deliveries::default(),
            pings: Wire::ALL.map(|wire| FrameRef::fixed(crate::frame::ping_frame(wire))),
            rates: Rates::new(identity, options),
            drain: Drain::default(),
        }
    }

    pub(super) fn set_options(&mut self, context: &Context) {
        self.rates.set(context);
    }

    /// What a command of a session, or an answer that one waited for, works with.
    pub(super) fn executing<'s>(&'s mut self, context: &'s mut Context, key: SessionKey) -> Executing<'s> {
        Executing { context, sessions: &mut self.all, rates: &mut self.rates, key }
    }

    fn connecting<'s>(&'s mut self, context: &'s mut Context, key: SessionKey) -> Connecting<'s> {
        Connecting { context, sessions: &mut self.all, rates: &mut self.rates, key }
    }

    fn subscribing<'s>(&'s mut self, context: &'s mut Context, key: SessionKey) -> Subscribing<'s> {
        Subscribing { context, sessions: &mut self.all, rates: &mut self.rates, key }
    }

    fn refreshing<'s>(&'s mut self, context: &'s mut Context, key: SessionKey) -> Refreshing<'s> {
        Refreshing { context, sessions: &mut self.all, key }
    }

    fn due<'s>(&'s mut self, context: &'s mut Context, key: SessionKey) -> DueSession<'s> {
        DueSession { context, sessions: &mut self.all, key, pings: &self.pings }
    }

    /// What changes of paces, and the turns of paced subscribers, work with.
    pub(super) fn pacing<'s>(&'s mut self, context: &'s mut Context) -> Pacing<'s> {
        Pacing { context, sessions: &mut self.all }
    }

    /// What a message of a room works with.
    pub(super) fn room_messages<'s>(&'s mut self, context: &'s mut Context) -> RoomMessages<'s> {
        RoomMessages { context, sessions: &mut self.all }
    }

    pub(super) fn open(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        wire: Wire,
        from: (Option<SourceKey>, Option<IpAddr>),
    ) {
        context.counters.sessions_opened += 1;
        let end_us = context.now.after_ms(context.options.client.stale_close_delay_ms);
        self.all.table.insert(Session::new(key, wire, from, end_us));
        self.all.table.schedule(key, &mut context.timers);
        if self.drain.admits_none {
            self.all.close(context, key, &Disconnect::SHUTDOWN);
        }
    }

    /// Passes the owner's answer on to the session that sent the request.
    pub(super) fn take_notice(&mut self, context: &mut Context, notice: Notice) {
        let is_reply_large = matches!(notice, Notice::Presence { .. } | Notice::History { .. });
        let (command, channel, asker, reply) = match notice {
            Notice::Deliver(delivery) => return self.deliveries.deliver(context, &mut self.all, &delivery),
            Notice::RoomOver { channel, room, code, reason } => {
                return self.room_messages(context).room_is_over(&channel, room, (code, reason));
            }
            Notice::RoomMoves { channel, room } => {
                return self.room_messages(context).room_moves(&channel, room);
            }
            Notice::Subscribed { request, outcome } if request.is_keeping() => {
                let key = request.asker.session;
                return self.subscribing(context, key).rejoined(*request, outcome);
            }
            Notice::Subscribed { request, outcome } => {
                let key = request.asker.session;
                return self.subscribing(context, key).subscribed(*request, outcome);
            }
            Notice::PositionLost { channel } => {
                return self.all.end_stale(context, &channel, |flags| flags.positioned);
            }
            Notice::FollowingLost { channel } => return self.all.end_stale(context, &channel, |_| true),
            Notice::Arrived { user, asker, admission } => {
                return self.connecting(context, asker.session).arrived(&user, admission);
            }
            Notice::JoinWaits { asker } => {
                return self.all.table.large_reply_is_late(asker.session, &mut context.effects);
            }
            Notice::JoinDue { request } => {
                let key = request.asker.session;
                return self.subscribing(context, key).join_is_due(request);
            }
            Notice::Superseded { session } => return self.all.close(context, session, &Disconnect::CONNECTION_LIMIT),
            Notice::Published { channel, asker, outcome } => {
                ("publish", channel, asker, outcome.map(|()| Reply::Publish))
            }
            Notice::Presence { channel, asker, outcome } => {
                ("presence", channel, asker, outcome.map(|clients| Reply::Presence(PresenceResult { clients })))
            }
            Notice::PresenceStats { channel, asker, outcome } => (
                "presence_stats",
                channel,
                asker,
                outcome.map(|(num_clients, num_users)| {
                    Reply::PresenceStats(PresenceStatsResult { num_clients, num_users })
                }),
            ),
            Notice::History { channel, asker, outcome } => (
                "history",
                channel,
                asker,
                outcome.map(|part| {
                    let part = *part;
                    Reply::History(HistoryResult {
                        publications: part.publications,
                        epoch: part.epoch,
                        offset: part.offset,
                    })
                }),
            ),
        };
        if self.all.table.is_gone(asker.session) {
            context.counters.late_messages += 1;
            return;
        }
        let outcome = reply.map(Some).map_err(RefusedCommand::from);
        let command = CommandRef { id: asker.command_id, command, channel: Some(&channel) };
        self.all.answer(context, asker.session, command, outcome);
        self.all.table.owner_replied(asker.session, is_reply_large, &mut context.effects);
    }

    /// What a session waited for may go on: joins first, because they are older than its commands.
    pub(super) fn recalled(&mut self, context: &mut Context, key: SessionKey) {
        if let Some(outbox) = self.all.table.outbox_of(key) {
            // Before both: what goes on waiting paces the session again.
            outbox.end_pace();
        }
        self.subscribing(context, key).send_due_joins();
        self.all.resume_paced(key);
    }

    /// Handles a request, and returns the answer.
    pub(super) fn serve_api(&mut self, context: &mut Context, request: ApiRequest) -> ApiResult {
        match request {
            ApiRequest::Disconnect { user, only, whitelist, disconnect } => {
                let keys = self.all.sessions_of(&user, &only, &whitelist);
                Ok(self.all.disconnect_all(context, &keys, &disconnect))
            }
            ApiRequest::Subscribe { user, only, subscription } => {
                check_server_side(context, &subscription)?;
                let keys = self.all.sessions_of(&user, &only, &[]);
                for key in &keys {
                    self.subscribing(context, *key).subscribe_by_api(&subscription);
                }
                Ok(ApiAnswer::Done { sessions: keys.len() as u32 })
            }
            ApiRequest::Refresh { user, only, expired, expires_at_ms, info } => {
                let keys = self.all.sessions_of(&user, &only, &[]);
                for key in &keys {
                    self.refreshing(context, *key).refresh_by_api(expired, expires_at_ms, info.as_ref());
                }
                Ok(ApiAnswer::Done { sessions: keys.len() as u32 })
            }
            ApiRequest::Unsubscribe { channel, user, only, code } => {
                if !channel.is_empty() {
                    context.resolve(&channel)?;
                }
                let keys = self.all.sessions_of(&user, &only, &[]);
                Ok(self.all.unsubscribe_all(context, &keys, &channel, code))
            }
            ApiRequest::SetPace { user, only, change } => {
                let keys = self.all.sessions_of(&user, &only, &[]);
                self.pacing(context).change_all(&keys, &change)
            }
            ApiRequest::Access(rules) => Ok(self.apply_access(context, &rules)),
            request => unreachable!("{request:?} is about a channel"),
        }
    }

    /// Applies rules about who may not connect, and closes the sessions of users who are blocked now.
    fn apply_access(&mut self, context: &mut Context, rules: &[AccessRule]) -> ApiAnswer {
        context.access.evict(context.now.unix_ms);
        let mut sessions = 0;
        for rule in rules {
            let is_new = context.access.apply(rule.clone(), context.now.unix_ms) == Applied::New;
            if let Some(user) = rule.blocked_user().filter(|_| is_new) {
                let keys = self.all.sessions_of(user, &SessionFilter::default(), &[]);
                sessions += keys.len();
                self.all.disconnect_all(context, &keys, &Disconnect::FORCE_NO_RECONNECT);
            }
        }
        ApiAnswer::Done { sessions: sessions as u32 }
    }

    /// Handles a session's timer, if it is active; returns whether it is.
    pub(super) fn take_due(&mut self, context: &mut Context, due_us: u64, key: SessionKey) -> bool {
        let counts = self.all.table.get_mut(key).is_some_and(|session| session.scheduled.take(due_us));
        if counts {
            self.subscribing(context, key).refuse_overdue_joins();
            self.due(context, key).meet();
            self.all.table.schedule(key, &mut context.timers);
        }
        counts
    }

    /// Closes up to `sessions_max` sessions.
    pub(super) fn drain_some(&mut self, context: &mut Context, sessions_max: usize) {
        self.drain.close_some(context, &mut self.all, sessions_max);
    }

    /// Closes every session and admits none.
    pub(super) fn drain(&mut self, context: &mut Context) {
        self.drain.close_all(context, &mut self.all);
    }

    /// The numbers of sessions, of channels with their subscriptions, and of users.
    pub(super) fn holdings(&self) -> [usize; 3] {
        [self.all.table.len(), self.all.hub.len(), self.all.users.len()]
    }
}
