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
mod openers;
mod pacing;
mod permission;
mod rates;
mod recording;
mod refresh;
mod requests;
mod room_input;
mod room_seat;
mod secret;
mod server_side;
mod sub_refresh;
mod subscribe;
mod unsubscribe;
mod users;

pub(super) use commands::{CommandProgress, CommandsLeft};
pub use secret::shard_of_session;

use crate::{
    Options, SessionKey, Wire,
    frame::FrameRef,
    hub::Hub,
    options::ClientOptions,
    outbox::{Outgoing, Slots},
    planted::Bug,
    seats::Seats,
    session::{SessionTable, UnparsedCommands},
};

use super::{Context, Seed, ShardIdentity};

use close::Drain;
use deliver::TurnLoad;
use rates::Rates;
use recording::Recording;
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
}
