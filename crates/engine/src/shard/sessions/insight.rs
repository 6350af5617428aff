//! Lists the sessions of a shard with what waits for their sockets.

use std::{collections::BinaryHeap, sync::Arc};

use dunlin_protocol::ClientInfo;

use crate::{
    insight::{
        CommandsWaitFor, FRAMES_EXAMINED_MAX, PaceFacts, PingFacts, QueueFacts, QueueLimits, SessionFacts,
        SessionsPage, SessionsQuery,
    },
    options::ClientOptions,
    outbox::DividedQueue,
    pace::{BytePace, UpdatePace},
    session::{PausedOn, Phase, Session, Subscription},
};

use super::{Context, open_sessions::OpenSessions};

/// What a list of sessions is made from.
pub(in crate::shard) struct Listing<'a> {
    pub(in crate::shard) context: &'a Context,
    pub(in crate::shard) sessions: &'a OpenSessions,
}

impl<'a> Listing<'a> {
    /// The authenticated sessions that a query selects, those that have been behind for longest first.
    pub(in crate::shard) fn page(&self, query: &SessionsQuery) -> SessionsPage {
        let chosen = self.choose(query);
        let has_more = chosen.len() > query.sessions_max;
        let mut frames_left = FRAMES_EXAMINED_MAX;
        let sessions = chosen
            .into_iter()
            .take(query.sessions_max)
            .map(|(behind_since_us, session, info)| self.facts(session, info, behind_since_us, &mut frames_left));
        let client = &self.context.options.client;
        let limits = QueueLimits { bytes_max: client.queue_bytes_max, frames_max: client.queue_frames_max };
        SessionsPage { sessions: sessions.collect(), has_more, limits }
    }

    /// The first sessions after the place of the query, and one more if there is one. Only their places are compared, so
    /// that a list of many sessions costs little for each that is not on the page.
    fn choose(&self, query: &SessionsQuery) -> Vec<(u64, &'a Session, &'a Arc<ClientInfo>)> {
        let OpenSessions { hub, users, table, .. } = self.sessions;
        let channel = query.channel.as_ref().map(|channel| hub.find(channel));
        if channel == Some(None) {
            return Vec::new();
        }
        let channel = channel.flatten();
        let after = query.after.as_ref().map(|place| (place.behind_since_us, &*place.client));
        let candidates: Box<dyn Iterator<Item = &'a Session> + '_> = match &query.user {
            Some(user) => Box::new(users.of(user).iter().filter_map(|key| table.get(*key))),
            None => Box::new(table.iter()),
        };
        let mut chosen = BinaryHeap::new();
        for session in candidates {
            let Some(info) = session.info.as_ref().filter(|_| session.is_authenticated()) else { continue };
            let fits = query.client.as_ref().is_none_or(|client| **client == *info.client)
                && query.address.is_none_or(|address| session.address == Some(address))
                && channel.is_none_or(|id| session.subscription(id).is_some_and(|found| !found.is_ending()));
            if !fits {
                continue;
            }
            let since_us = table.outbox_at(session.key.index).oldest_us().unwrap_or(u64::MAX);
            if after.is_none_or(|after| (since_us, &*info.client) > after) {
                chosen.push((since_us, &*info.client, session.key.index));
                if chosen.len() > query.sessions_max.saturating_add(1) {
                    chosen.pop();
                }
            }
        }
        let in_order = chosen.into_sorted_vec().into_iter();
        in_order
            .filter_map(|(since_us, _, index)| {
                let session = table.at(index);
                Some((since_us, session, session.info.as_ref()?))
            })
            .collect()
    }

    fn facts(
        &self,
        session: &Session,
        info: &Arc<ClientInfo>,
        behind_since_us: u64,
        frames_left: &mut usize,
    ) -> SessionFacts {
        let Self { context, sessions } = self;
        let now_us = context.now.mono_us;
        let outbox = sessions.table.outbox_at(session.key.index);
        let DividedQueue { channels, has_more_channels, unexamined_frames } =
            outbox.by_channel(&sessions.hub, now_us, frames_left);
        SessionFacts {
            session: session.key,
            info: Arc::clone(info),
            wire: session.wire,
            address: session.address,
            subscriptions: session.subscriptions.len() as u32,
            is_connecting: session.phase == Phase::Connecting,
            commands_wait_for: session.paused.as_ref().map(|paused| waits_for(&paused.paused_on)),
            queue: QueueFacts { limited_us: self.limited_us(session), unexamined_frames, ..outbox.facts(now_us) },
            behind_since_us,
            channels,
            are_channels_cut: has_more_channels || unexamined_frames > 0,
            paces: PaceFacts {
                bytes_per_second: outbox.byte_pace().map(BytePace::bytes_per_second),
                is_held: outbox.is_held(),
                ..paces(session)
            },
            pings: pings(session, &context.options.client, now_us),
        }
    }
}

impl Listing<'_> {
    /// How long the room that has skipped ticks for longest has done so.
    fn limited_us(&self, session: &Session) -> u64 {
        let seats = session.subscriptions.iter().filter_map(|subscription| subscription.extra.as_ref()?.seat);
        let since_us = seats.filter_map(|seat| self.sessions.seats.limited_since_us(seat)).min();
        since_us.map_or(0, |since_us| self.context.now.mono_us.saturating_sub(since_us))
    }
}

fn paces(session: &Session) -> PaceFacts {
    let paces = || session.subscriptions.iter().filter_map(Subscription::pace);
    let slowest = paces().max_by_key(|pace| pace.interval_us());
    PaceFacts {
        subscriptions: paces().count() as u32,
        updates_per_second_min: slowest.map(UpdatePace::updates_per_second),
        ..PaceFacts::default()
    }
}

fn pings(session: &Session, client: &ClientOptions, now_us: u64) -> PingFacts {
    let ping_age_us = session.pinged_us(client).map(|pinged_us| now_us.saturating_sub(pinged_us));
    let round_trip_us = session.round_trip.us();
    // Before the first pong it is not known whether a ping was sent at all.
    let is_answered = round_trip_us.is_some() && !session.awaits_pong;
    PingFacts {
        pong_age_us: ping_age_us
            .zip(round_trip_us)
            .filter(|_| is_answered)
            .map(|(ping, trip)| ping.saturating_sub(trip)),
        round_trip_us,
        unanswered_us: ping_age_us.filter(|_| session.awaits_pong),
    }
}

const fn waits_for(paused_on: &PausedOn) -> CommandsWaitFor {
    match paused_on {
        PausedOn::Connect { .. }
        | PausedOn::Refresh { .. }
        | PausedOn::Subscribe { .. }
        | PausedOn::SubRefresh { .. } => CommandsWaitFor::Token,
        PausedOn::Admission(_) | PausedOn::Subscriptions(_) | PausedOn::Ending { .. } => CommandsWaitFor::Channel,
        PausedOn::Backend(_) => CommandsWaitFor::Backend,
        PausedOn::Pace(_) => CommandsWaitFor::Socket,
    }
}
