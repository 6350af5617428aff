//! The sessions of a shard: checks and answers clients' commands, and queues publications for subscribers.

mod api;
mod backend;
mod close;
mod commands;
mod connect;
mod connect_plan;
mod deliver;
mod due;
mod negotiation;
mod pacing;
mod permission;
mod reconfigure;
mod recording;
mod refresh;
mod requests;
mod room_input;
mod room_openings;
mod room_seat;
mod secret;
mod server_side;
mod slow;
mod sub_refresh;
mod subscribe;
mod unsubscribe;
mod users;

use std::sync::Arc;

use hashbrown::HashMap;

pub(super) use commands::{CommandProgress, CommandsLeft};
pub use secret::shard_of_session;

use crate::{
    Options, SessionKey, Wire,
    frame::FrameRef,
    hub::Hub,
    names::NamespaceIndex,
    options::ClientOptions,
    outbox::{Outgoing, Slots},
    pace::Bucket,
    planted::Bug,
    seats::Seats,
    session::{SessionTable, UnparsedCommands},
};

use super::{Context, Seed, ShardIdentity, openers::Openers};

use close::DrainProgress;
use recording::Recording;

/// The sessions of a shard, and their subscriptions.
pub(super) struct Sessions {
    table: SessionTable,
    /// Sessions by user id.
    users: HashMap<Arc<str>, Vec<SessionKey>, foldhash::quality::FixedState>,
    /// The number of proxy requests sent so far, which is the number of the next one.
    proxy_requests_sent: u64,
    hub: Hub,
    seats: Seats,
    openers: Openers,
    /// Deliveries of this turn: namespace and time of acceptance.
    delivered: Vec<(NamespaceIndex, u64)>,
    /// Upper bounds on the bytes and frames queued for one session in this turn.
    turn_bytes: usize,
    turn_frames: usize,
    /// Results of a channel's filters for the publication that is being delivered; reused to keep its capacity.
    verdicts: Vec<bool>,
    /// The ping of each wire, by [`Wire::index`].
    pings: [FrameRef; Wire::ALL.len()],
    draining: bool,
    /// This shard's share of the node's rate limits.
    connects: Bucket,
    recoveries: Bucket,
    /// The progress of a staged drain.
    drain_progress: DrainProgress,
    /// Rate limits on log records.
    recording: Recording,
    /// A session whose commands are resumed after the current event or message.
    resumed: Option<(SessionKey, UnparsedCommands)>,
}

impl Sessions {
    pub(super) fn new(identity: ShardIdentity, options: &Options, seed: Seed) -> Self {
        let hasher = foldhash::quality::FixedState::with_seed(seed.node);
        Self {
            table: SessionTable::default(),
            users: HashMap::with_hasher(hasher),
            proxy_requests_sent: 0,
            hub: Hub::new(seed.node),
            seats: Seats::default(),
            openers: Openers::new(options.room_openings, identity.count),
            delivered: Vec::new(),
            turn_bytes: 0,
            turn_frames: 0,
            verdicts: Vec::new(),
            pings: Wire::ALL.map(|wire| FrameRef::fixed(crate::frame::ping_frame(wire))),
            draining: false,
            connects: identity.share(options.client.connects_per_second),
            recoveries: identity.share(options.client.recoveries_per_second),
            drain_progress: DrainProgress::default(),
            recording: Recording::new(options.records, identity.count),
            resumed: None,
        }
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
        self.turn_bytes <= client.queue_bytes_max / 4 && self.turn_frames <= client.queue_frames_max / 4
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
}
