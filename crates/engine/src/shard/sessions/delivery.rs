//! The delivery of publications, joins and leaves to subscribers: once per frame class, by the lane of the namespace.

use std::sync::Arc;

use dunlin_protocol::{Disconnect, NotJson};

use crate::{
    FrameClass, SessionKey, Wire,
    filters::{FilterPlace, Filters},
    frame::{ClassFrames, Delivery, DeliveryBody, FramePlace, FrameRef},
    hub::{HubEntry, LocalChannelId},
    names::NamespaceIndex,
    options::{ClientOptions, Lane},
    room::EventAudience,
    shard::hash_of,
};

use super::{Context, open_sessions::OpenSessions};

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
    channel: LocalChannelId,
    class: FrameClass,
    route: Route,
    whole: FrameRef,
    /// For subscribers that were sent the previous publication.
    patch: Option<FrameRef>,
    /// Whether the stream's next publication may be a patch against it.
    is_newest: bool,
}

/// Delivers publications, joins and leaves to the sessions of a shard, and sums up the deliveries of one turn of the caller.
/// Sessions are written once per turn, so a turn must queue far less than their limits.
#[derive(Default)]
pub(in crate::shard) struct Deliveries {
    /// Namespace and time of acceptance of each publication of the turn.
    delivered: Vec<(NamespaceIndex, u64)>,
    /// Upper bounds on the bytes and frames that the turn has queued for one session.
    bytes: usize,
    frames: usize,
    /// The frames of publications that are followed, until all sockets have them.
    followed: Vec<FollowedFrame>,
    /// Results of a channel's filters for the publication that is being delivered; reused to keep its capacity.
    verdicts: Vec<bool>,
}

/// A frame whose last socket is awaited.
struct FollowedFrame {
    namespace: NamespaceIndex,
    accepted_us: u64,
    frame: FrameRef,
}

/// Maximum number of frames that are followed at a time. Further ones are counted, but not followed to their last socket, so
/// that slow clients neither keep more publications in memory nor make turns longer.
const FOLLOWED_MAX: usize = 16;

/// How long a frame is followed. Then it counts as taken, so that one stalled client does not occupy all places. The last
/// bucket of the histogram begins there.
const FOLLOWED_US_MAX: u64 = 10_000_000;

impl Deliveries {
    /// Queues a delivery for all its recipients on this shard.
    pub(super) fn deliver(&mut self, context: &mut Context, sessions: &mut OpenSessions, delivery: &Arc<Delivery>) {
        if let Some(audience) = delivery.audience() {
            return self.deliver_to_players(context, sessions, delivery, audience);
        }
        // The last subscriber left while the delivery was in flight.
        let Some(id) = context.counters.found_or_late(sessions.hub.find(&delivery.channel)) else { return };
        if delivery.is_followed {
            let waited_us = context.now.mono_us.saturating_sub(delivery.accepted_us);
            context.count(delivery.namespace).publish_to_shard.observe(waited_us);
        }
        let route = route(context, id, delivery);
        self.judge(sessions.hub.filters(id), delivery);
        let mut excluded = Vec::new();
        let mut count = 0;
        for (place, ClassFrames { class, whole, patch }) in delivery.frames() {
            match whole {
                Ok(_) => {
                    let shared = |place| FrameRef::shared(Arc::clone(delivery), place);
                    let frames = Frames {
                        channel: id,
                        class: *class,
                        route,
                        whole: shared(FramePlace::Whole(place)),
                        patch: patch.as_ref().map(|_| shared(FramePlace::Patch(place))),
                        is_newest: delivery.publication().is_some_and(|publication| publication.offset > 0),
                    };
                    count += self.fan_out(context, sessions, &frames, &mut excluded);
                    if delivery.is_followed {
                        self.follow(context, delivery, frames);
                    }
                }
                Err(NotJson) => excluded.extend(everyone(sessions, id, *class, &Disconnect::INAPPROPRIATE_PROTOCOL)),
            }
        }
        self.add(delivery);
        let counters = &mut context.counters.namespaces[usize::from(delivery.namespace.0)];
        match route {
            Route::Reliable | Route::Latest { .. } => counters.deliveries += count,
            Route::JoinLeave => counters.join_leave_deliveries += count,
        }
        for (key, disconnect) in excluded {
            if disconnect == Disconnect::SLOW {
                sessions.close_slow(context, key);
            } else {
                sessions.close(context, key, &disconnect);
            }
        }
    }

    /// Evaluates each filter of the channel once for a publication.
    fn judge(&mut self, filters: Option<&Filters>, delivery: &Delivery) {
        match filters.zip(delivery.publication()) {
            Some((filters, publication)) => filters.judge(&publication.tags, &mut self.verdicts),
            None => self.verdicts.clear(),
        }
    }

    /// Queues `frames` for the subscribers of their class. The cost per subscriber is one non-atomic increment: no
    /// lock, no hash of a name, no allocation. Subscribers with a pace are not visited: see [`crate::paced_subscribers`].
    fn fan_out(
        &self,
        context: &mut Context,
        sessions: &mut OpenSessions,
        frames: &Frames,
        excluded: &mut Vec<(SessionKey, Disconnect)>,
    ) -> u64 {
        let Frames { channel: id, class, route, .. } = *frames;
        let Self { verdicts, .. } = self;
        let OpenSessions { hub, table: sessions, .. } = sessions;
        let Context { options, counters, timers, now, .. } = context;
        let channel = hub.channel_mut(id);
        let namespace = &mut counters.namespaces[usize::from(channel.namespace.0)];
        let fails =
            |filter: Option<FilterPlace>| filter.is_some_and(|filter| verdicts.get(filter.index()) == Some(&false));
        let mut count = 0;
        let mut is_paced = false;
        for list in channel.lists_mut(class) {
            let filter_of_paced = list.filter_of_paced();
            if let (Route::Latest { key_hash }, Some(paced)) = (route, &mut list.paced) {
                if fails(filter_of_paced) {
                    namespace.filtered += list.entries.len() as u64;
                } else {
                    paced.put(key_hash, frames.whole.clone(), &options.client);
                    is_paced = true;
                }
                continue;
            }
            for HubEntry { session, filter, join_leave, has_newest } in &mut list.entries {
                // Joins and leaves are not filtered.
                if fails(*filter) {
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
        }
        if is_paced {
            hub.schedule_turns(id, timers, now.mono_us);
        }
        count
    }

    /// Queues an event for its recipients on this shard. Other subscribers are not visited.
    fn deliver_to_players(
        &mut self,
        context: &mut Context,
        sessions: &mut OpenSessions,
        delivery: &Arc<Delivery>,
        audience: &EventAudience,
    ) {
        let mut frames: [Option<FrameRef>; Wire::ALL.len()] = Default::default();
        for (place, class_frames) in delivery.frames() {
            let shared = || FrameRef::shared(Arc::clone(delivery), FramePlace::Whole(place));
            frames[class_frames.class.wire.index()] = class_frames.whole.is_ok().then(shared);
        }
        let mut slow = Vec::new();
        let mut unwritable = Vec::new();
        for seat in audience.seats_on(context.identity.index) {
            let Some(index) = sessions.seats.find(*seat) else { continue };
            let seat = sessions.seats.at(index);
            let key = seat.session;
            if seat.room.is_none() {
                continue;
            }
            let Some(frame) = &frames[seat.wire.index()] else {
                unwritable.push(key);
                continue;
            };
            let outbox = sessions.table.outbox(key.index);
            outbox.push(frame.clone());
            context.counters.namespaces[usize::from(delivery.namespace.0)].deliveries += 1;
            outbox.list(key.index, &mut context.effects);
            if outbox.is_too_far_behind(&context.options.client) {
                slow.push(key);
            }
        }
        self.add(delivery);
        for key in slow {
            sessions.close_slow(context, key);
        }
        for key in unwritable {
            sessions.close(context, key, &Disconnect::INAPPROPRIATE_PROTOCOL);
        }
    }

    /// Awaits the last socket of a publication.
    fn follow(&mut self, context: &mut Context, delivery: &Delivery, frames: Frames) {
        let Delivery { namespace, accepted_us, .. } = *delivery;
        for frame in std::iter::once(frames.whole).chain(frames.patch) {
            if frame.is_last() {
                continue;
            }
            if self.followed.len() >= FOLLOWED_MAX {
                context.count(namespace).frames_unfollowed += 1;
            } else {
                self.followed.push(FollowedFrame { namespace, accepted_us, frame });
            }
        }
    }

    /// Adds a delivery; a publication is measured at the end of the turn.
    fn add(&mut self, delivery: &Delivery) {
        self.bytes += delivery.frame_bytes_max();
        self.frames += 1;
        if delivery.publication().is_some() {
            self.delivered.push((delivery.namespace, delivery.accepted_us));
        }
    }

    pub(in crate::shard) fn takes_more(&self, client: &ClientOptions) -> bool {
        self.bytes <= client.queue_bytes_max / 4 && self.frames <= client.queue_frames_max / 4
    }

    /// Ends the turn, after its writes: measures the latency of its publications, from acceptance to now.
    pub(in crate::shard) fn end(&mut self, context: &mut Context) {
        (self.bytes, self.frames) = (0, 0);
        for (namespace, accepted_us) in self.delivered.drain(..) {
            let waited_us = context.now.mono_us.saturating_sub(accepted_us);
            context.count(namespace).publish_to_socket.observe(waited_us);
        }
        self.followed.retain(|FollowedFrame { namespace, accepted_us, frame }| {
            let waited_us = context.now.mono_us.saturating_sub(*accepted_us);
            let is_awaited = !frame.is_last() && waited_us <= FOLLOWED_US_MAX;
            if !is_awaited {
                context.count(*namespace).publish_to_last_socket.observe(waited_us);
            }
            is_awaited
        });
    }
}

fn everyone<'a>(
    sessions: &'a OpenSessions,
    id: LocalChannelId,
    class: FrameClass,
    disconnect: &'a Disconnect,
) -> impl Iterator<Item = (SessionKey, Disconnect)> + 'a {
    let subscribers = sessions.hub.channel(id).subscribers_of(class);
    subscribers.map(|entry| (sessions.table.at(entry.session).key, disconnect.clone()))
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
