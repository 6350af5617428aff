//! A shard: the sessions of one I/O thread and the channels that it owns, as one state machine.
//!
//! Its two halves, [`Owner`] and [`Sessions`], borrow the [`Context`] and have no access to each other. They exchange
//! requests and notices only, on one shard as between two.

mod context;
mod dispatch;
mod owner;
mod sessions;

use std::{
    hash::{BuildHasher, Hash},
    sync::Arc,
};

pub use sessions::shard_of_session;

use context::Context;
use owner::Owner;
use sessions::{Listing, Sessions};

use dunlin_protocol::decode_connect;

use crate::{
    Effects, Event, Now, Options, SessionKey, ShardIndex, Wire,
    api::{ApiAnswer, ApiRequest, Survey},
    counters::Counters,
    event::Ticket,
    options::NamespaceOptions,
    outbox::Outgoing,
    timers::TimerOwner,
    token_bucket::{Bucket, RefillRate},
};

/// A shard's index, and the number of shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardIdentity {
    /// This shard.
    pub index: ShardIndex,
    /// Shards of the node.
    pub count: u16,
}

impl ShardIdentity {
    /// A token bucket with this shard's share of a rate limit of the node.
    fn share(self, per_second: u32) -> Bucket {
        Bucket::full(RefillRate::share(per_second, self.count))
    }
}

/// The seeds of all randomness.
#[derive(Clone, Copy, Debug)]
pub struct Seed {
    /// Assigns channels to shards and hashes names. Must be the same on all shards of a node.
    pub node: u64,
    /// The shard's own: for session ids, epochs, and the time of the first ping. Must be unpredictable in production.
    pub shard: [u8; 32],
}

/// The sessions of one I/O thread, and the channels that it owns.
///
/// # Contract with the caller
///
/// The caller owns clocks, sockets and rings, and decides nothing. [`Shard::handle`] takes what has happened, and lists what
/// to do in [`Effects`]. [`Shard::outgoing`] lends the bytes to write. All other methods read, at any time. A shard is used
/// by one thread at a time, and may move to another one between turns. The caller keeps to these rules; a shard may panic if
/// one is broken.
///
/// # What a shard promises
///
/// **Order.** A subscriber receives the reply to its subscription, with what it recovers, before the first publication, and
/// the publications of a channel in the order of their offsets, each once. Where the namespace allows it, some are skipped:
/// the newest one follows. One that cannot be delivered without a gap ends the subscription or the session, so that the
/// client recovers. Replies carry the numbers of their commands, and may come in another order.
///
/// **What a reply to a publisher means.** In a namespace with a log, the log has committed the publication. In any other
/// one, the owner has accepted it and has sent it to the shards with subscribers; it is lost with the process.
///
/// **Timers** are the shard's: it has no clock, and names the next time that it needs.
///
/// # What the caller promises
///
/// **Order of calls.** A turn has three parts:
///
/// 1. Any number of events, in the order of their time, which never goes back. While [`Shard::takes_more`] is false, what
///    clients and other threads have sent waits for the next turn.
/// 2. The writes. For each session in [`Effects::dirty`], and each one whose socket has become writable:
///    [`Shard::outgoing`], one write of its slices, and [`Event::Wrote`] with at most the bytes that were offered. Several
///    sessions may be offered before the first `Wrote`: slices are valid until the `Wrote` of their session. From the first
///    `outgoing` to the last `Wrote`, no other event comes in between. A write that took nothing needs no `Wrote`, and one
///    that failed ends with [`Event::Gone`] after this part. A session that becomes dirty in this part is written in the
///    next turn, which begins without waiting.
/// 3. [`Event::TurnEnded`].
///
/// [`Event::Woke`] is due when [`Shard::next_deadline_us`] has passed, which each event may move.
///
/// **Sessions.** [`Event::Opened`] comes first, with an index that is free and a generation that the index has not had.
/// [`Event::Gone`] comes last and exactly once, whoever ended the transport, and frees the index. [`Event::Received`] never
/// comes between [`Effect::Pause`] and [`Effect::Resume`]: what was read already waits with the caller. A closing session
/// ignores what it receives, except [`Event::CloseReceived`].
///
/// **Shards.** A node's shards have the same number of shards, node seed and options, from which they compute a channel's
/// owner ([`owner_of`]). New options arrive with [`Event::Reconfigured`], at each shard in the same order, but not at the same
/// time. What one shard sends another with [`Effect::Send`] arrives as [`Event::Message`] in the order of sending; only
/// requests to an owner and notices from one may overtake each other. What a room thread sends arrives in order as
/// [`Event::FromRoom`].
///
/// **The end.** [`Event::DrainSome`] closes some sessions, [`Event::Drain`] all, and admits no more. Both may come at any time.
/// A shard may be dropped at any time: it promises nothing to a client that is not in an effect or in `outgoing` yet. What
/// was proposed to a log and not answered may have been stored.
///
/// **Effects** are performed in the order of [`Effects::list`]. Those of one event may be delayed, but not behind those of
/// later events. They need not wait for the writes of [`Effects::dirty`]: [`Effect::Finish`] is listed when its session has
/// nothing left to write. For a session that is gone, `outgoing` is empty, and its effects ask for nothing.
///
/// | effect | what the caller owes |
/// |---|---|
/// | [`Effect::Send`], [`Effect::ToRoom`] | delivery to the other shard or the room thread, once and in order |
/// | [`Effect::Authenticate`], [`Effect::AuthorizeSubscription`], [`Effect::SendProxyRequest`] | the answer, once, also if it is a failure. It may be left out when the session is gone |
/// | [`Effect::Propose`], [`Effect::Load`] | [`Event::Committed`] or [`Event::Loaded`], once and within a bounded time, also if it is a failure; those of a channel's proposals come in the order of the proposals ([`crate::log`]) |
/// | [`Effect::Trim`] | [`Event::TrimCommitted`], once, if it has a ticket, which is when somebody waits for it |
/// | [`Effect::Follow`] of a channel with a log | [`Event::Replicated`] and [`Event::Trimmed`], in the order of the log, until [`Effect::Unfollow`]. If one of them is lost, [`Event::Interrupted`] comes next, before any later one and before any later [`Event::Committed`] |
/// | [`Effect::Follow`] of a channel without a log | [`Event::Followed`], then [`Event::BroadcastReceived`] until [`Effect::Unfollow`]. Some may be lost |
/// | [`Effect::QueryPeers`], [`Effect::QueryKeys`], [`Effect::QueryRoom`] | the answer, once and within a bounded time, also if no node has answered |
/// | [`Effect::Broadcast`], [`Effect::ShareUserSessions`] | an attempt |
/// | [`Effect::Pause`], [`Effect::Resume`] | to stop and continue reading |
/// | [`Effect::Recall`] | [`Event::Recalled`] in the next turn or later, unless the session is gone: the session's commands that waited go on |
/// | [`Effect::Finish`] | to shut down the sending side; `Gone` follows when the peer closes |
/// | [`Effect::HangUp`] | to close the transport, and `Gone`, unless it has come already |
/// | [`Effect::Answer`] | to pass it on. Each ticket of [`Event::Api`] gets exactly one; tickets of requests in flight differ |
///
/// A queue from other threads to a shard is bounded ([`Event::for_full_queue`]). If it is full, an answer arrives without
/// its content, as a refusal, and a message of another node is lost. The loss of a publication or a trim becomes
/// [`Event::Interrupted`], so that subscribers recover. The caller counts the loss of a broadcast, and sends the number of
/// a user's sessions later.
///
/// An answer for a session or channel that has ended in the meantime is dropped. Where only an end can explain it, it is
/// counted in [`Counters::late_messages`].
pub struct Shard {
    context: Context,
    owner: Owner,
    sessions: Sessions,
}

impl Shard {
    /// An empty shard.
    pub fn new(identity: ShardIdentity, options: Arc<Options>, seed: Seed) -> Self {
        let (owner, sessions) = (Owner::new(identity, &options, seed), Sessions::new(identity, &options, seed));
        Self { context: Context::new(identity, options, seed), owner, sessions }
    }

    /// Handles one event. Appends the actions for the caller to `effects`.
    pub fn handle(&mut self, now: Now, event: Event<'_>, effects: &mut Effects) {
        self.context.now = now;
        // One argument instead of two through all of the shard's methods. The lists are moved, not copied.
        std::mem::swap(&mut self.context.effects, effects);
        self.dispatch(event);
        self.settle();
        self.owner.take_log_requests(&mut self.context.effects);
        self.tidy_timers();
        std::mem::swap(&mut self.context.effects, effects);
    }

    fn dispatch(&mut self, event: Event<'_>) {
        let Self { context, owner, sessions } = self;
        match event {
            Event::Opened { session, wire, source, address } => {
                sessions.open(context, session, wire, (source, address));
            }
            Event::Received { session, frame } => self.receive(session, frame),
            Event::Pinged { session, payload } => {
                sessions.all.answer_websocket_ping(context, session, payload);
            }
            Event::CloseReceived { session, code } => sessions.all.peer_closes(context, session, code),
            Event::Violated { session, code, what } => {
                sessions.all.peer_violates(context, session, code, what);
            }
            Event::Wrote { session, bytes } => sessions.all.wrote(context, session, bytes),
            Event::Gone { session } => sessions.all.forget_session(context, session),
            Event::Authenticated { session, outcome } => {
                sessions.executing(context, session).token_verified(outcome);
            }
            Event::ProxyResponded { session, request_id, outcome } => {
                sessions.executing(context, session).backend_answered(request_id, outcome);
            }
            Event::SubscriptionAuthorized { session, outcome } => {
                sessions.executing(context, session).subscription_token_verified(outcome);
            }
            Event::Message { from: _, message } => self.take_message(message),
            Event::FromRoom { from, message } => self.take_room_message(from, message),
            Event::Api { ticket, request } => self.serve_api(ticket, request),
            Event::Committed { channel, proposal, outcome } => {
                owner.channels.proposal_committed(context, &channel, proposal, outcome);
            }
            Event::Replicated { channel, record } => {
                owner.channels.publication_replicated(context, &channel, *record);
            }
            Event::Followed { channel } => owner.serving(context).channel_followed(&channel),
            Event::BroadcastReceived { channel, message } => {
                owner.channels.broadcast_received(context, &channel, message);
            }
            Event::Trimmed { channel, through } => owner.channels.history_trimmed(context, &channel, through),
            Event::TrimCommitted { ticket, outcome } => context.answer_trim(ticket, outcome),
            Event::Interrupted { channel } => owner.channels.log_interrupted(context, &channel),
            Event::UserSessionsElsewhere { user, sessions } => owner.homes.count_elsewhere(context, user, sessions),
            Event::PeersAnswered { query, outcome } => owner.presence_queries.peers_answered(context, query, &outcome),
            Event::KeysAnswered { channel, found } => owner.serving(context).keys_answered(&channel, found),
            Event::RoomQueried { channel, found } => owner.rooms(context).room_queried(&channel, &found),
            Event::Loaded { channel, load, outcome } => {
                owner.serving(context).page_loaded(&channel, load, outcome.map(|page| *page));
            }
            Event::Woke => self.handle_due(),
            Event::Recalled { session } => sessions.recalled(context, session),
            Event::TurnEnded => sessions.deliveries.end(context),
            Event::DrainSome { sessions_max } => sessions.drain_some(context, sessions_max),
            Event::Reconfigured { options } => self.reconfigure(options),
            Event::Drain => sessions.drain(context),
        }
    }

    /// The bytes to write to the session's socket now, in order, up to the limit of one write. The caller reports how
    /// many were written with [`Event::Wrote`], before any other event. Empty for a session that has ended since it was
    /// listed.
    ///
    /// The caller may call this for several sessions before the first of these events. The slices of each stay valid in
    /// memory until then, although the borrow ends: shared frames are reference-counted, a session's lanes and the
    /// frames of its seats belong to it alone, and no table or lane grows here. Batched writes rely on this;
    /// `tests/outgoing_together.rs` checks it.
    pub fn outgoing(&mut self, session: SessionKey) -> Outgoing<'_> {
        self.sessions.all.outgoing(&mut self.context, session)
    }

    /// Whether the request that opens a session of this wire can be decoded. A client of a unidirectional stream learns
    /// it from the status of the response, and so before the session is opened: `EventSource` would repeat the request
    /// after any response with status 200. Other clients read the close code.
    pub fn can_open(&self, wire: Wire, request: &[u8]) -> bool {
        let has_status = wire.is_unidirectional() && !wire.is_websocket();
        !has_status || decode_connect(request, self.context.shape_limits()).is_ok()
    }

    /// Whether there is anything to write to the session's socket.
    pub fn has_outgoing(&self, session: SessionKey) -> bool {
        self.sessions.all.table.has_outgoing(session)
    }

    /// Bytes and frames queued for the session's socket; `None` if there is no such session.
    pub fn queued(&self, session: SessionKey) -> Option<(usize, usize)> {
        self.sessions.all.table.queued(session)
    }

    /// The session with this secret id, if it belongs to this shard and is open.
    pub fn find_session(&self, secret: &str) -> Option<SessionKey> {
        self.sessions.all.find_session(&self.context, secret)
    }

    /// The deadline for [`Event::Woke`], on the clock of [`Now::mono_us`].
    pub fn next_deadline_us(&self) -> Option<u64> {
        self.context.timers.next_us()
    }

    /// Whether the shard accepts more events before the next [`Event::TurnEnded`]. Sessions are written once per turn,
    /// so a turn must queue far less than their limits. Otherwise a session that reads at full speed would be closed as
    /// slow.
    pub fn takes_more(&self) -> bool {
        self.sessions.deliveries.takes_more(&self.context.options.client)
    }

    /// The shard's counters.
    pub fn counters(&self) -> &Counters {
        &self.context.counters
    }

    /// Whether the shard has no sessions.
    pub fn is_empty(&self) -> bool {
        self.sessions.holdings()[0] == 0
    }

    /// The sizes of the shard's tables: sessions, channels with local subscriptions, owned channels, users. All are 0
    /// when all sessions have ended and all streams have expired.
    pub fn holdings(&self) -> [usize; 4] {
        let [sessions, local, users] = self.sessions.holdings();
        [sessions, local, self.owner.channel_count(), users]
    }

    /// The seats of the shard's sessions, including pending ones, and its room mirrors. Both are 0 when all sessions
    /// have ended and all answers have arrived.
    pub fn room_holdings(&self) -> [usize; 2] {
        self.sessions.all.seats.holdings()
    }

    /// In a cluster, the joins that wait for the room of a channel of this shard, or for its answer.
    pub fn unanswered_joins(&self) -> usize {
        self.owner.room_queries.unanswered()
    }

    /// When the first of the joins that wait for their clients is given up; `None` if none waits.
    pub fn next_join_given_up_us(&self) -> Option<u64> {
        let first =
            |session: &crate::session::Session| session.extra.as_ref()?.due_joins.front().map(|join| join.until_us);
        self.sessions.all.table.iter().filter_map(first).min()
    }

    /// Entries of the counts of channels per creator, and channels without subscribers. Both are 0 when all channels
    /// have been dropped.
    pub fn channel_holdings(&self) -> [usize; 2] {
        self.owner.channel_holdings()
    }

    /// The number of users with sessions whose home is this shard, if sessions are counted. 0 when all sessions have
    /// ended.
    pub fn users_at_home(&self) -> usize {
        self.owner.users_at_home()
    }

    /// Bytes of the shard's histories: as counted, and as they are.
    pub fn history_bytes(&self) -> [usize; 2] {
        self.owner.history_bytes()
    }

    /// Entries of the shard's timers: at most twice the number of active ones, plus a few.
    pub fn timer_entries(&self) -> usize {
        self.context.timers.len()
    }

    /// The number of cached answers to recoveries, and their bytes.
    pub fn answers_kept(&self) -> [usize; 2] {
        self.owner.answers_kept()
    }

    /// What waits for logs: proposed publications, their bytes, and requests that wait for a page.
    pub fn log_holdings(&self) -> [usize; 3] {
        self.owner.log_holdings()
    }

    /// Bytes of the shard's newest publications of keys.
    pub fn cached_bytes(&self) -> usize {
        self.owner.cached_bytes()
    }

    /// Handles the shard's messages to itself, and resumes commands that had to wait.
    fn settle(&mut self) {
        loop {
            if let Some((key, unparsed)) = self.sessions.all.take_resumed() {
                self.resume(key, unparsed);
            } else if let Some(message) = self.context.local.pop_front() {
                self.take_message(message);
            } else {
                return;
            }
        }
    }

    /// Handles every deadline that has passed.
    fn handle_due(&mut self) {
        let Self { context, owner, sessions } = self;
        while let Some((due_us, timer)) = context.timers.pop(context.now.mono_us) {
            let counts = match timer {
                TimerOwner::Session(key) => sessions.take_due(context, due_us, key),
                TimerOwner::Channel(name) => {
                    owner.channels.take_due(context, due_us, &name)
                        || owner.rooms(context).wake_joins(due_us, &name)
                        || sessions.pacing(context).take_turns(due_us, &name)
                }
            };
            if !counts {
                context.timers.count_popped_invalid();
            }
        }
    }

    /// Removes inactive timer entries once they are the majority.
    fn tidy_timers(&mut self) {
        let Self { context, owner, sessions } = self;
        context.timers.tidy(|due_us, timer| match timer {
            TimerOwner::Session(key) => sessions.all.table.is_due_at(*key, due_us),
            TimerOwner::Channel(name) => {
                owner.channels.is_due_at(name, due_us)
                    || owner.room_queries.asks_again_at(name, due_us)
                    || sessions.all.hub.turns_are_due_at(name, due_us)
            }
        });
    }

    /// Applies new options, made by [`Options::succeeded_by`] from the current ones.
    ///
    /// Sessions, channels and rooms stay. What the new options no longer allow ends now: subscriptions to retired
    /// namespaces, and positions in streams that are removed.
    fn reconfigure(&mut self, options: Arc<Options>) {
        let Self { context, owner, sessions } = self;
        let before = context.reconfigure(options);
        sessions.set_options(context);
        owner.set_options(context);
        owner.channels.tell_of_switched(context, &before);
        let all = |options: &Options| -> Vec<NamespaceOptions> {
            std::iter::once(&options.without_namespace).chain(&options.namespaces).cloned().collect()
        };
        let changes: Vec<NamespaceChange> = all(&before)
            .iter()
            .zip(&all(&context.options))
            .map(|(old, new)| NamespaceChange::between(old, new))
            .collect();
        if changes.iter().all(|change| *change == NamespaceChange::None) {
            return;
        }
        owner.channels.shorten_streams(context, &changes);
        sessions.all.end_subscriptions_of(context, &changes);
    }

    /// Sends requests of the server API about channels to the owner, and those about users to the sessions.
    fn serve_api(&mut self, ticket: Ticket, request: ApiRequest) {
        let Self { context, owner, sessions } = self;
        match request {
            ApiRequest::Survey => {
                let mut survey = Survey::default();
                owner.survey(&mut survey);
                sessions.all.survey(context, &mut survey);
                context.answer_api(ticket, Ok(ApiAnswer::Survey(Box::new(survey))));
            }
            ApiRequest::Sessions(query) => {
                let page = Listing { context, sessions: &sessions.all }.page(&query);
                context.answer_api(ticket, Ok(ApiAnswer::Sessions(Box::new(page))));
            }
            ApiRequest::Disconnect { .. }
            | ApiRequest::Subscribe { .. }
            | ApiRequest::Refresh { .. }
            | ApiRequest::Unsubscribe { .. }
            | ApiRequest::SetPace { .. }
            | ApiRequest::Access(_) => {
                let answer = sessions.serve_api(context, request);
                context.answer_api(ticket, answer);
            }
            ApiRequest::Publish { .. }
            | ApiRequest::Presence { .. }
            | ApiRequest::PresenceStats { .. }
            | ApiRequest::History { .. }
            | ApiRequest::HistoryRemove { .. }
            | ApiRequest::NewestKeys { .. }
            | ApiRequest::RoomState { .. }
            | ApiRequest::Channels
            | ApiRequest::OpenRoom { .. }
            | ApiRequest::CloseRoom { .. }
            | ApiRequest::SendToRoom { .. }
            | ApiRequest::ChangeListing { .. }
            | ApiRequest::KickFromRoom { .. }
            | ApiRequest::ReservePlaces { .. } => owner.serve_api(context, ticket, request),
        }
    }
}

/// Why presence cannot be read.
const PRESENCE_OFF: &str = "presence is off in the namespace of the channel";

/// Why history cannot be read.
const HISTORY_OFF: &str = "history_size or history_ttl is 0 in the namespace of the channel";

/// How new options affect the existing channels of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NamespaceChange {
    None,
    /// The history of the channels may have to be truncated.
    Trimmed,
    /// The channels no longer have a stream.
    StreamGone,
    /// The channels no longer belong to a known namespace.
    Retired,
}

impl NamespaceChange {
    fn between(before: &NamespaceOptions, after: &NamespaceOptions) -> Self {
        let is_shorter = after.history_size < before.history_size
            || after.history_ttl_ms < before.history_ttl_ms
            || after.history_meta_ttl_ms < before.history_meta_ttl_ms
            || after.history_bytes_max != before.history_bytes_max
            || after.history_overflow != before.history_overflow;
        if after.is_retired {
            if before.is_retired { Self::None } else { Self::Retired }
        } else if before.has_stream() && !after.has_stream() {
            Self::StreamGone
        } else if is_shorter {
            Self::Trimmed
        } else {
            Self::None
        }
    }
}

/// The shard that owns `channel`, on a node with `shard_count` shards and the node seed `node_seed`.
pub fn owner_of(channel: &str, shard_count: u16, node_seed: u64) -> ShardIndex {
    let hash = hash_of(&channel, node_seed ^ 0x6475_6e6c_696e_6f77);
    // The high bits by multiplication: an even spread without a division (Lemire, "Fast random integer generation").
    ShardIndex(((u128::from(hash) * u128::from(shard_count)) >> 64) as u16)
}

pub(crate) fn hash_of(value: &(impl Hash + ?Sized), seed: u64) -> u64 {
    foldhash::quality::FixedState::with_seed(seed).hash_one(value)
}
