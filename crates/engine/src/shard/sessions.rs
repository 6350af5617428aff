//! The sessions of a shard: checks and answers clients' commands, and queues publications for subscribers.

mod close;
mod commands;
mod connect;
mod deadlines;
mod node_rates;
mod openers;
mod permission;
mod recording;
mod rooms;
mod subscribe;
mod time_to_live;
mod turn;
mod users;

pub(super) use commands::{CommandProgress, CommandsLeft};
pub use connect::shard_of_session;

use std::sync::Arc;

use dunlin_protocol::{Disconnect, NotJson, Payload, Push, UnsubscribeCode};

use crate::{
    FrameClass, Options, SessionKey, Wire,
    api::{ApiAnswer, ApiRequest, ApiResult, SessionFilter, Survey},
    frame::{ClassFrames, Delivery, DeliveryBody, FramePlace, FrameRef},
    hub::{Hub, HubEntry, LocalChannelId},
    options::{ClientOptions, Lane},
    outbox::{Outgoing, Slots},
    planted::Bug,
    seats::Seats,
    session::{Paused, PausedOn, Phase, Session, SessionTable, UnparsedCommands},
    shard::hash_of,
};

use super::{Context, Seed, ShardIdentity};

use close::Drain;
use node_rates::Rates;
use recording::Recording;
use time_to_live::TimeToLive;
use turn::TurnLoad;
use users::UserSessions;

/// The sessions of a shard, and their subscriptions.
pub(super) struct Sessions {
    table: SessionTable,
    users: UserSessions,
    /// The number of proxy requests sent so far, which is the number of the next one.
    proxy_requests_sent: u64,
    hub: Hub,
    seats: Seats,
    turn: TurnLoad,
    /// Results of a channel's filters for the publication that is being delivered; reused to keep its capacity.
    verdicts: Vec<bool>,
    /// The ping of each wire, by [`Wire::index`].
    pings: [FrameRef; Wire::ALL.len()],
    rates: Rates,
    drain: Drain,
    /// Rate limits on log records.
    recording: Recording,
    /// A session whose commands are resumed after the current event or message.
    resumed: Option<(SessionKey, UnparsedCommands)>,
}

/// Lower bounds of the classes of [`Survey::behind_sessions`], in microseconds.
const BEHIND_BOUNDS_US: [u64; 5] = [1_000, 10_000, 100_000, 1_000_000, 10_000_000];

/// The subscribers and the lane of a delivery.
#[derive(Clone, Copy)]
enum Route {
    /// Every subscriber, reliable lane.
    Reliable,
    /// Every subscriber, latest lane, the slot of this key.
    Latest { key_hash: u64 },
    /// Subscribers that receive joins and leaves, reliable lane.
    JoinLeave,
}

/// The frames of a publication for the subscribers of a class.
struct Frames {
    route: Route,
    whole: FrameRef,
    /// For subscribers that were sent the previous publication.
    patch: Option<FrameRef>,
    /// Whether the stream's next publication may be a patch against it.
    is_newest: bool,
}

impl Sessions {
    pub(super) fn new(identity: ShardIdentity, options: &Options, seed: Seed) -> Self {
        Self {
            table: SessionTable::default(),
            users: UserSessions::new(seed.node),
            proxy_requests_sent: 0,
            hub: Hub::new(seed.node),
            seats: Seats::default(),
            turn: TurnLoad::default(),
            verdicts: Vec::new(),
            pings: Wire::ALL.map(|wire| FrameRef::fixed(crate::frame::ping_frame(wire))),
            rates: Rates::new(identity, options),
            drain: Drain::default(),
            recording: Recording::new(options.records, identity.count),
            resumed: None,
        }
    }

    pub(super) fn set_paces(&mut self, context: &Context) {
        self.rates.set(context);
    }

    /// Measures the latency, from acceptance to now, of this turn's deliveries.
    pub(super) fn measure_turn(&mut self, context: &mut Context) {
        self.turn.end(context);
    }

    /// See [`super::Shard::outgoing`].
    pub(super) fn outgoing(&mut self, context: &mut Context, session: SessionKey) -> Outgoing<'_> {
        self.tag_skipped(context, session, Slots::OfNextWrite);
        let Self { table, seats, hub, .. } = self;
        let Some(outbox) = table.outbox_of(session) else { return Outgoing::default() };
        outbox.offer_room_frames(|seat| seats.offer(seat, |channel| &hub.channel(channel).name));
        if context.planted.is(Bug::BaseSetWhenOffered) {
            outbox.offered_seats().for_each(|seat| seats.base_is_offered(seat));
        }
        outbox.outgoing(seats)
    }

    pub(super) fn has_outgoing(&mut self, session: SessionKey) -> bool {
        self.table.outbox_of(session).is_some_and(|outbox| outbox.is_writable())
    }

    pub(super) fn queued(&mut self, session: SessionKey) -> Option<(usize, usize)> {
        self.table.get(session)?;
        let outbox = self.table.outbox(session.index);
        Some((outbox.queued_bytes(), outbox.queued_frames()))
    }

    pub(super) fn takes_more(&self, client: &ClientOptions) -> bool {
        self.turn.takes_more(client)
    }

    /// The numbers of sessions, of channels with their subscriptions, and of users.
    pub(super) fn holdings(&self) -> [usize; 3] {
        [self.table.len(), self.hub.len(), self.users.len()]
    }

    pub(super) fn room_holdings(&self) -> [usize; 2] {
        self.seats.holdings()
    }

    /// Takes the session whose commands have to be resumed, if any.
    pub(super) fn take_resumed(&mut self) -> Option<(SessionKey, UnparsedCommands)> {
        // Most events resume nothing. Copying the empty value costs more than the test, and this runs after each write.
        self.resumed.as_ref()?;
        self.resumed.take()
    }

    /// Writes the tag `skipped` into the publications of the session's latest lane that follow skipped ones.
    fn tag_skipped(&mut self, context: &mut Context, session: SessionKey, which: Slots) {
        let Self { table: sessions, .. } = self;
        let Context { scratch, counters, .. } = context;
        let Some(outbox) = sessions.outbox_of(session).filter(|outbox| !outbox.is_corked()) else { return };
        outbox.tag_skipped(which, |frame, skipped| {
            let namespace = frame.delivery()?.namespace;
            counters.namespaces[usize::from(namespace.0)].encodes_skipped += 1;
            frame.with_skipped(skipped, scratch)
        });
    }

    /// Handles a request, and returns the answer.
    pub(in crate::shard) fn serve_api(&mut self, context: &mut Context, request: ApiRequest) -> ApiResult {
        match request {
            ApiRequest::Disconnect { user, only, whitelist, disconnect } => {
                let keys = self.sessions_of(&user, &only, &whitelist);
                Ok(self.disconnect_all(context, &keys, &disconnect))
            }
            ApiRequest::Subscribe { user, only, subscription } => {
                context.check_server_side(&subscription)?;
                let keys = self.sessions_of(&user, &only, &[]);
                for key in &keys {
                    self.subscribe_by_api(context, *key, &subscription);
                }
                Ok(ApiAnswer::Done { sessions: keys.len() as u32 })
            }
            ApiRequest::Refresh { user, only, expired, expires_at_ms, info } => {
                let keys = self.sessions_of(&user, &only, &[]);
                for key in &keys {
                    self.refresh_by_api(context, *key, expired, expires_at_ms, info.as_ref());
                }
                Ok(ApiAnswer::Done { sessions: keys.len() as u32 })
            }
            ApiRequest::Unsubscribe { channel, user, only, code } => {
                if !channel.is_empty() {
                    context.resolve(&channel)?;
                }
                let keys = self.sessions_of(&user, &only, &[]);
                Ok(self.unsubscribe_all(context, &keys, &channel, code))
            }
            request => unreachable!("{request:?} is about a channel"),
        }
    }

    pub(in crate::shard) fn survey(&mut self, context: &Context, survey: &mut Survey) {
        survey.sessions = self.table.iter().filter(|session| session.phase == Phase::Live).count() as u32;
        let namespaces = context.counters.namespaces.iter();
        survey.subscriptions = namespaces.map(|counters| counters.subscriptions).sum::<u64>() as u32;
        [survey.seats, survey.rooms] = self.seats.holdings().map(|count| count as u32);
        survey.users = self.users.ids().map(|user| hash_of(user, context.node_seed)).collect();
        for outbox in self.table.outboxes() {
            survey.queued_bytes += outbox.queued_bytes() as u64;
            survey.queued_frames += outbox.queued_frames() as u64;
            let age_us = outbox.oldest_us().map_or(0, |oldest_us| context.now.mono_us.saturating_sub(oldest_us));
            survey.queue_age_ms_max = survey.queue_age_ms_max.max(age_us / 1_000);
            for (class, bound_us) in survey.behind_sessions.iter_mut().zip(BEHIND_BOUNDS_US) {
                *class += u32::from(age_us > bound_us);
            }
        }
    }

    /// The authenticated sessions of `user` that match `only`, except the `spared` ones.
    fn sessions_of(&self, user: &str, only: &SessionFilter, spared: &[Box<str>]) -> Vec<SessionKey> {
        let passes = |key: &SessionKey| {
            let Some(session) = self.table.get(*key) else { return false };
            let Some(info) = &session.info else { return false };
            let secret = session.extra.as_ref().map_or("", |extra| &extra.secret);
            only.client.as_ref().is_none_or(|client| **client == *info.client)
                && only.session.as_ref().is_none_or(|wanted| !secret.is_empty() && **wanted == *secret)
                && !spared.iter().any(|spared| **spared == *info.client)
        };
        self.users.of(user).iter().copied().filter(passes).collect()
    }

    /// Sets a session's expiry and sends it to its client.
    fn refresh_by_api(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        expired: bool,
        expires_at_ms: Option<u64>,
        info: Option<&Payload>,
    ) {
        let (false, Ok(ttl)) = (expired, TimeToLive::until(expires_at_ms, context.now)) else {
            return self.close(context, key, &Disconnect::EXPIRED);
        };
        let ttl_s = ttl.map(TimeToLive::whole_s);
        let Some(session) = self.table.get_mut(key) else { return };
        if let Some(Paused { paused_on: PausedOn::Subscriptions(pending), .. }) = session.paused.as_deref_mut() {
            // The reply to `connect` contains it.
            pending.result.ttl_s = ttl_s.filter(|_| context.options.backend.refresh.is_none());
        } else {
            self.push(context, key, &Push::Refresh { ttl_s });
        }
        if self.table.get(key).is_some_and(Session::is_authenticated) {
            if let Some(info) = info {
                self.show_with(context, key, info);
            }
            self.expire_after(context, key, ttl);
        }
    }

    fn disconnect_all(&mut self, context: &mut Context, keys: &[SessionKey], disconnect: &Disconnect) -> ApiAnswer {
        for key in keys {
            self.close(context, *key, disconnect);
        }
        ApiAnswer::Done { sessions: keys.len() as u32 }
    }

    fn unsubscribe_all(
        &mut self,
        context: &mut Context,
        keys: &[SessionKey],
        channel: &str,
        code: UnsubscribeCode,
    ) -> ApiAnswer {
        let mut sessions = 0;
        for &key in keys {
            let Some(session) = self.table.get_mut(key) else { continue };
            let asked_for = session.paused.as_mut().and_then(|paused| paused.subscription_params());
            let asked_for = asked_for.filter(|params| channel.is_empty() || *params.channel == *channel);
            let is_asked_for = asked_for.map(|params| params.ended.get_or_insert(code)).is_some();
            let going_on = session.subscriptions.iter().filter(|subscription| !subscription.is_ending());
            let of_channel: Vec<LocalChannelId> = going_on
                .map(|subscription| subscription.channel)
                .filter(|id| channel.is_empty() || *self.hub.channel(*id).name == *channel)
                .collect();
            sessions += u32::from(is_asked_for || !of_channel.is_empty());
            for id in of_channel {
                self.end_subscription(context, key, id, code);
            }
        }
        ApiAnswer::Done { sessions }
    }

    /// Queues a delivery for all its recipients on this shard.
    pub(in crate::shard) fn deliver(&mut self, context: &mut Context, delivery: &Arc<Delivery>) {
        if let Some(audience) = delivery.audience() {
            return self.deliver_to_players(context, delivery, audience);
        }
        // The last subscriber left while the delivery was in flight.
        let Some(id) = context.counters.found_or_late(self.hub.find(&delivery.channel)) else { return };
        let route = route(context, id, delivery);
        let keeps_patches = context.planted.is(Bug::PatchOverUnkept);
        self.judge(id, delivery);
        let mut excluded = Vec::new();
        let mut count = 0;
        for (place, ClassFrames { class, whole, patch }) in delivery.frames() {
            match whole {
                Ok(_) => {
                    let shared = |place| FrameRef::shared(Arc::clone(delivery), place);
                    let frames = Frames {
                        route,
                        whole: shared(FramePlace::Whole(place)),
                        patch: patch.as_ref().map(|_| shared(FramePlace::Patch(place))),
                        is_newest: delivery
                            .publication()
                            .is_some_and(|publication| publication.offset > 0 || keeps_patches),
                    };
                    count += self.fan_out(context, id, *class, &frames, &mut excluded);
                }
                Err(NotJson) => excluded.extend(self.everyone(id, *class, &Disconnect::INAPPROPRIATE_PROTOCOL)),
            }
        }
        self.turn.add(delivery);
        let counters = &mut context.counters.namespaces[usize::from(delivery.namespace.0)];
        match route {
            Route::Reliable | Route::Latest { .. } => counters.deliveries += count,
            Route::JoinLeave => counters.join_leave_deliveries += count,
        }
        for (key, disconnect) in excluded {
            if disconnect == Disconnect::SLOW {
                self.close_slow(context, key);
            } else {
                self.close(context, key, &disconnect);
            }
        }
    }

    /// Evaluates each filter of the channel once for a publication.
    fn judge(&mut self, id: LocalChannelId, delivery: &Delivery) {
        let filters = self.hub.filters(id);
        match filters.zip(delivery.publication()) {
            Some((filters, publication)) => filters.judge(&publication.tags, &mut self.verdicts),
            None => self.verdicts.clear(),
        }
    }

    /// Queues `frames` for the subscribers of their class. The cost per subscriber is one non-atomic increment: no
    /// lock, no hash of a name, no allocation.
    fn fan_out(
        &mut self,
        context: &mut Context,
        id: LocalChannelId,
        class: FrameClass,
        frames: &Frames,
        excluded: &mut Vec<(SessionKey, Disconnect)>,
    ) -> u64 {
        let filtered_keeps_patches = context.planted.is(Bug::FilteredGetsPatch);
        let keeps_older = context.planted.is(Bug::LatestKeepsOlder);
        let route = frames.route;
        let Self { hub, table: sessions, verdicts, .. } = self;
        let Context { options, counters, .. } = context;
        let channel = hub.channel_mut(id);
        let namespace = &mut counters.namespaces[usize::from(channel.namespace.0)];
        let mut count = 0;
        for HubEntry { session, filter, join_leave, has_newest } in channel.subscribers_mut(class) {
            // Joins and leaves are not filtered.
            if filter.is_some_and(|filter| verdicts.get(filter.index()) == Some(&false)) {
                if filtered_keeps_patches {
                    continue;
                }
                // The next publication cannot be a patch against one that this subscriber does not have.
                *has_newest = false;
                namespace.filtered += 1;
                continue;
            }
            let (session, join_leave) = (*session, *join_leave);
            let frame = frames.patch.as_ref().filter(|_| *has_newest).unwrap_or(&frames.whole);
            *has_newest = frames.is_newest || matches!(route, Route::JoinLeave) && *has_newest;
            let outbox = sessions.outbox(session);
            match route {
                Route::Reliable => outbox.push(frame.clone()),
                Route::Latest { key_hash } if keeps_older && outbox.has_slot(key_hash) => continue,
                Route::Latest { key_hash } => {
                    let replaced = outbox.push_latest(key_hash, id, frame.clone());
                    namespace.skipped += u64::from(replaced);
                }
                Route::JoinLeave if join_leave => outbox.push(frame.clone()),
                Route::JoinLeave => continue,
            }
            count += 1;
            outbox.list(session, &mut context.effects);
            if outbox.is_too_far_behind(&options.client) {
                let key = SessionKey { index: session, generation: outbox.generation };
                excluded.push((key, Disconnect::SLOW));
            }
        }
        count
    }

    fn everyone<'a>(
        &'a self,
        id: LocalChannelId,
        class: FrameClass,
        disconnect: &'a Disconnect,
    ) -> impl Iterator<Item = (SessionKey, Disconnect)> + 'a {
        let subscribers = self.hub.channel(id).subscribers(class).iter();
        subscribers.map(|entry| (self.table.at(entry.session).key, disconnect.clone()))
    }
}

fn route(context: &Context, id: LocalChannelId, delivery: &Delivery) -> Route {
    match &delivery.body {
        DeliveryBody::Join(_) | DeliveryBody::Leave(_) => Route::JoinLeave,
        // A room's events, unlike its snapshots, must not be skipped.
        DeliveryBody::Publication { .. } if context.namespace(delivery.namespace).room.is_some() => Route::Reliable,
        DeliveryBody::Publication { conflation_key, .. } => match context.namespace(delivery.namespace).delivery {
            Lane::Reliable => Route::Reliable,
            Lane::Latest => Route::Latest { key_hash: hash_of(&(id.0, conflation_key), context.node_seed) },
        },
    }
}
