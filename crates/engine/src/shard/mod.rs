//! A shard: the sessions of one I/O thread and the channels it owns, as one state machine.

mod admin;
mod agreement;
mod ask;
mod backend;
mod close;
mod commands;
mod connect;
mod deliver;
mod due;
mod owner;
mod permission;
mod publication;
mod refresh;
mod room_input;
mod room_owner;
mod room_seat;
mod secret;
mod server_side;
mod sub_refresh;
mod subscribe;
mod unsubscribe;
mod users;

use std::{
    collections::VecDeque,
    hash::{BuildHasher, Hash},
    sync::Arc,
};

use dunlin_protocol::DeltaEncoder;
use hashbrown::HashMap;
use rand_chacha::{
    ChaCha8Rng,
    rand_core::{RngCore, SeedableRng},
};

pub use secret::shard_of_session;

use close::DrainProgress;
use room_owner::RoomThread;

use crate::{
    Effect, Effects, Event, Now, Options, SessionKey, ShardIndex, Wire,
    answers::Answers,
    channel::OwnedChannel,
    counters::{Counters, NamespaceCounters},
    frame::{FrameRef, Scratch},
    hub::Hub,
    message::ShardMessage,
    names::{Names, NamespaceIndex, namespace_options},
    options::NamespaceOptions,
    outbox::{Outgoing, Slots},
    pace::{Bucket, Pace},
    seats::Seats,
    session::SessionTable,
    timers::Timers,
};

/// Which shard of how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardIdentity {
    /// This shard.
    pub index: ShardIndex,
    /// Shards of the node.
    pub count: u16,
}

/// Where chance comes from.
#[derive(Clone, Copy, Debug)]
pub struct Seed {
    /// The same on all shards of a node: places channels and hashes names.
    pub node: u64,
    /// The shard's own: session ids, epochs, the first ping's moment. Unpredictable in production.
    pub shard: [u8; 32],
}

/// One I/O thread's share of the node: its sessions, and the channels it owns.
pub struct Shard {
    identity: ShardIdentity,
    options: Arc<Options>,
    node_seed: u64,
    names: Names,
    random: ChaCha8Rng,
    sessions: SessionTable,
    /// Sessions by user id.
    users: HashMap<Arc<str>, Vec<SessionKey>, foldhash::quality::FixedState>,
    /// Sessions on the whole node of the users that this shard is the home of, where their number counts.
    homes: HashMap<Arc<str>, Vec<(ShardIndex, SessionKey)>, foldhash::quality::FixedState>,
    /// Questions that were ever asked of backends.
    questions_asked: u64,
    hub: Hub,
    seats: Seats,
    /// What is known of the room threads, by their index.
    room_threads: Vec<RoomThread>,
    /// Rooms that this shard has ever opened.
    rooms_opened: u64,
    /// How many joins each room has yet to answer that was closed with joins on the way to it, by its number.
    closed_rooms: HashMap<u64, u32, foldhash::quality::FixedState>,
    channels: HashMap<Arc<str>, OwnedChannel, foldhash::quality::FixedState>,
    /// Channels that were given a number.
    channels_numbered: u64,
    timers: Timers,
    counters: Counters,
    /// Messages of this shard to itself, handled before the event that led to them is done.
    local: VecDeque<ShardMessage>,
    /// Deliveries of this turn: namespace and time of acceptance.
    delivered: Vec<(NamespaceIndex, u64)>,
    /// Bytes and frames that one session may have been given in this turn, at the most.
    turn_bytes: usize,
    turn_frames: usize,
    /// Lends its capacity to the encoders.
    scratch: Scratch,
    /// What recoveries are answered with.
    answers: Answers,
    /// Makes patches of publications.
    deltas: DeltaEncoder,
    /// What a channel's filters say of the publication that is being delivered; lends its capacity.
    verdicts: Vec<bool>,
    /// The ping of each wire, by [`Wire::index`].
    pings: [FrameRef; Wire::ALL.len()],
    draining: bool,
    /// This shard's share of what the node takes in a second.
    connects: Bucket,
    recoveries: Bucket,
    /// How far a staged drain has come.
    drain_progress: DrainProgress,
    #[cfg(feature = "planted-bugs")]
    pub(crate) planted: Option<crate::planted::Bug>,
}

impl Shard {
    /// An empty shard.
    pub fn new(identity: ShardIdentity, options: Arc<Options>, seed: Seed) -> Self {
        let room_threads = vec![RoomThread::default(); usize::from(options.room_threads)];
        let scratch = Scratch::new(options.client.compression);
        let hasher = || foldhash::quality::FixedState::with_seed(seed.node);
        let share = |per_second| Bucket::full(Pace::share(per_second, identity.count));
        Self {
            identity,
            names: Names::new(&options, seed.node),
            counters: Counters::new(options.namespaces.len() + 1),
            node_seed: seed.node,
            random: ChaCha8Rng::from_seed(seed.shard),
            sessions: SessionTable::default(),
            users: HashMap::with_hasher(hasher()),
            homes: HashMap::with_hasher(hasher()),
            questions_asked: 0,
            hub: Hub::new(seed.node),
            seats: Seats::default(),
            room_threads,
            rooms_opened: 0,
            closed_rooms: HashMap::default(),
            channels: HashMap::with_hasher(hasher()),
            channels_numbered: 0,
            timers: Timers::default(),
            local: VecDeque::new(),
            delivered: Vec::new(),
            turn_bytes: 0,
            turn_frames: 0,
            scratch,
            answers: Answers::default(),
            deltas: DeltaEncoder::default(),
            verdicts: Vec::new(),
            pings: Wire::ALL.map(|wire| FrameRef::fixed(crate::frame::ping_frame(wire))),
            draining: false,
            connects: share(options.client.connects_per_second),
            recoveries: share(options.client.recoveries_per_second),
            options,
            drain_progress: DrainProgress::default(),
            #[cfg(feature = "planted-bugs")]
            planted: None,
        }
    }

    /// Takes in one event. What has to be done about it is appended to `effects`.
    pub fn handle(&mut self, now: Now, event: Event<'_>, effects: &mut Effects) {
        match event {
            Event::Opened { session, wire } => self.open(now, session, wire, effects),
            Event::Received { session, frame } => self.receive(now, session, frame, effects),
            Event::Pinged { session, payload } => self.answer_websocket_ping(now, session, payload, effects),
            Event::CloseReceived { session, code } => self.peer_closes(now, session, code, effects),
            Event::Violated { session, code, what } => self.peer_violates(now, session, code, what, effects),
            Event::Wrote { session, bytes } => self.wrote(session, bytes, effects),
            Event::Gone { session } => self.forget_session(session, effects),
            Event::Authenticated { session, outcome } => self.token_verified(now, session, outcome, effects),
            Event::BackendAnswered { session, question, outcome } => {
                self.backend_answered(now, session, question, outcome, effects);
            }
            Event::SubscriptionAuthorized { session, outcome } => {
                self.subscription_token_verified(now, session, outcome, effects);
            }
            Event::Message { from: _, message } => self.take_message(now, message, effects),
            Event::FromRoom { from, message } => self.hear_room(now, from, message, effects),
            Event::Api { ticket, request } => self.answer_api(now, ticket, request, effects),
            Event::Woke => self.handle_due(now, effects),
            Event::TurnEnded => self.measure_turn(now),
            Event::DrainSome { sessions_max } => self.drain_some(now, sessions_max, effects),
            Event::Drain => self.drain(now, effects),
        }
        self.settle(now, effects);
        self.tidy_timers();
    }

    /// Handles the shard's messages to itself.
    fn settle(&mut self, now: Now, effects: &mut Effects) {
        while let Some(message) = self.local.pop_front() {
            self.take_message(now, message, effects);
        }
    }

    /// What to write to the session's socket now, in order, up to a bound for one write. The caller says how much of it
    /// went with [`Event::Wrote`], before any other event. Nothing, for a session that has gone since it was listed.
    ///
    /// Several sessions may be asked about before the first of these events. The slices of each stay where and as they are
    /// meanwhile, though the borrow ends: shared frames are counted, a session's lanes and the frame of its seat are its own,
    /// and neither tables nor lanes grow here. Batches of writes rely on it; `tests/outgoing_together.rs` looks after it.
    pub fn outgoing(&mut self, session: SessionKey) -> Outgoing<'_> {
        self.tag_skipped(session, Slots::OfNextWrite);
        let Self { sessions, seats, hub, .. } = self;
        let Some(outbox) = sessions.outbox_of(session).filter(|outbox| !outbox.corked) else {
            return Outgoing::default();
        };
        outbox.offer_room_frames(|seat| seats.offer(seat, |channel| &hub.channel(channel).name));
        #[cfg(feature = "planted-bugs")]
        if self.planted == Some(crate::planted::Bug::BaseSetWhenOffered) {
            outbox.offered_seats().for_each(|seat| seats.base_is_offered(seat));
        }
        outbox.outgoing(seats)
    }

    /// Whether anything waits for the session's socket.
    pub fn has_outgoing(&mut self, session: SessionKey) -> bool {
        self.sessions.outbox_of(session).is_some_and(|outbox| !outbox.corked && !outbox.is_empty())
    }

    /// Bytes and frames that wait for the session's socket; `None` if there is no such session.
    pub fn waiting(&mut self, session: SessionKey) -> Option<(usize, usize)> {
        self.sessions.get(session)?;
        let outbox = self.sessions.outbox(session.index);
        Some((outbox.queued_bytes(), outbox.queued_frames()))
    }

    /// When to send [`Event::Woke`] at the latest, on the clock of [`Now::mono_us`].
    pub fn next_deadline_us(&self) -> Option<u64> {
        self.timers.next_us()
    }

    /// Whether more is to be taken in before the next [`Event::TurnEnded`]. Sessions are written to once a turn, so what a
    /// turn gives them has to stay well below their bounds, lest one that reads as fast as it can is taken for slow.
    pub fn takes_more(&self) -> bool {
        let client = &self.options.client;
        self.turn_bytes <= client.queue_bytes_max / 4 && self.turn_frames <= client.queue_frames_max / 4
    }

    /// What the shard has counted.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Whether no session is left.
    pub fn is_empty(&self) -> bool {
        self.sessions.len() == 0
    }

    /// What the shard still holds: sessions, channels with local subscriptions, channels owned, users. All are 0 when
    /// everybody has left and every stream is forgotten.
    pub fn holdings(&self) -> [usize; 4] {
        [self.sessions.len(), self.hub.len(), self.channels.len(), self.users.len()]
    }

    /// What the shard's sessions hold of rooms: places in them, those included that wait for an answer, and pictures of
    /// rooms. Both are 0 when everybody has left and every answer has come.
    pub fn room_holdings(&self) -> [usize; 2] {
        self.seats.holdings()
    }

    /// Entries of the shard's timers: at most twice those that count, and a few.
    pub fn timer_entries(&self) -> usize {
        self.timers.len()
    }

    /// Answers to recoveries that the shard keeps for those who come from the same position, and their bytes.
    pub fn answers_kept(&self) -> [usize; 2] {
        self.answers.kept()
    }

    fn take_message(&mut self, now: Now, message: ShardMessage, effects: &mut Effects) {
        match message {
            ShardMessage::Request(request) => self.serve(now, request, effects),
            ShardMessage::Notice(notice) => self.note(now, notice, effects),
        }
    }

    fn send(&mut self, to: ShardIndex, message: ShardMessage, effects: &mut Effects) {
        if to == self.identity.index {
            self.local.push_back(message);
        } else {
            effects.list.push(Effect::Send { to, message });
        }
    }

    /// Writes the tag `skipped` into the publications of the session's latest lane that follow skipped ones.
    fn tag_skipped(&mut self, session: SessionKey, which: Slots) {
        let Self { sessions, scratch, counters, .. } = self;
        let Some(outbox) = sessions.outbox_of(session) else { return };
        outbox.tag_skipped(which, |frame, skipped| {
            let namespace = frame.delivery()?.namespace;
            counters.namespaces[usize::from(namespace.0)].encodes_skipped += 1;
            frame.with_skipped(skipped, scratch)
        });
    }

    fn owner(&self, channel: &str) -> ShardIndex {
        owner_of(channel, self.identity.count, self.node_seed)
    }

    fn namespace(&self, namespace: NamespaceIndex) -> &NamespaceOptions {
        namespace_options(&self.options, namespace)
    }

    fn count(&mut self, namespace: NamespaceIndex) -> &mut NamespaceCounters {
        &mut self.counters.namespaces[usize::from(namespace.0)]
    }

    /// An id in the form of a UUID, version 4 (RFC 9562).
    fn new_client_id(&mut self) -> Arc<str> {
        let (high, low) = (self.random.next_u64(), self.random.next_u64());
        let high = (high & !0xf000) | 0x4000;
        let low = (low & !(0b11 << 62)) | (0b10 << 62);
        format!(
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xffff,
            low >> 48,
            low & 0xffff_ffff_ffff
        )
        .into()
    }

    /// Eight letters that no earlier stream of the channel has had.
    fn new_epoch(&mut self) -> Box<str> {
        (0..8).map(|_| char::from(b'a' + (self.random.next_u32() % 26) as u8)).collect::<String>().into()
    }
}

/// The shard that owns `channel`, on a node with `shard_count` shards and the node seed `node_seed`.
pub fn owner_of(channel: &str, shard_count: u16, node_seed: u64) -> ShardIndex {
    let hash = hash_of(&channel, node_seed ^ 0x6475_6e6c_696e_6f77);
    // The high bits by multiplication: an even spread without a division (Lemire, "Fast random integer generation").
    ShardIndex(((u128::from(hash) * u128::from(shard_count)) >> 64) as u16)
}

fn hash_of(value: &(impl Hash + ?Sized), seed: u64) -> u64 {
    foldhash::quality::FixedState::with_seed(seed).hash_one(value)
}
