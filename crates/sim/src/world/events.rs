//! Passes events to shards and performs their effects, as the server's threads do, in a random order.

use std::{cmp::Reverse, sync::Arc};

use dunlin_engine::{
    Effect, Event, SessionKey,
    api::{ApiRequest, ApiResult},
    event::Ticket,
    message::{Notice, ShardMessage},
    room::FromRoom,
};

use crate::{ring::ShardRing, socket::ServerSide};

use super::{NodeWorld, Place, Verification};

/// Bytes that the end of a session may add behind a full queue: a close frame, or a push and the last chunk.
const GOODBYE_BYTES_MAX: usize = 300;
/// Bytes that the tag `skipped` may add to a frame that waits.
const SKIPPED_TAG_BYTES_MAX: usize = 32;
/// Bytes of a snapshot, of which one may be half written.
const SNAPSHOT_BYTES_MAX: usize = 8_000;
/// Rooms of the plan.
const ROOMS_MAX: usize = 2;
/// Bytes that one publication takes: all of the plan are smaller.
const DELIVERY_BYTES_MAX: usize = 1_600;
/// Channels of the plan that tell who leaves.
const LEAVES_MAX: usize = 4;
/// Bytes that another reply or push may take, and how many of them a timer or an operator may lead to.
const REPLY_BYTES_MAX: usize = 24_000;
/// Bytes of a join or a leave, and of a publication beside its data.
const AROUND_DATA_BYTES_MAX: usize = 300;
/// The same of all that one frame of commands leads to.
const PUBLICATIONS_BYTES_MAX: usize = 16 * AROUND_DATA_BYTES_MAX;
/// A command that leads to a publication, in JSON.
const PUBLISH: &[u8] = b"\"publish\"";
/// See [`REPLY_BYTES_MAX`].
const FRAMES_MAX: usize = 20;

impl NodeWorld {
    /// Gives an event to a shard and performs what comes of it. Answers of the API are returned.
    pub(super) fn handle(&mut self, shard: usize, event: Event<'_>) -> Result<Vec<(Ticket, ApiResult)>, String> {
        let now = self.now();
        let most = Most::of(&event);
        let written = if let Event::Wrote { session, .. } = &event { Some(*session) } else { None };
        let before = self.closes(shard);
        let place = &mut self.places[shard];
        place.shard.handle(now, event, &mut place.effects);
        for key in std::mem::take(&mut place.effects.dirty) {
            self.trace.number(u64::from(key.index) << 32 | u64::from(key.generation));
            let connection = self.find(shard, key).ok_or("a session that is gone has something to write")?;
            if std::mem::replace(&mut self.connections[connection].is_dirty, true) {
                return Err(format!("{key:?} is listed twice"));
            }
            self.places[shard].dirty.push(key);
        }
        if let Some(connection) = written.and_then(|session| self.find(shard, session)) {
            let session = self.connections[connection].session;
            self.connections[connection].is_dirty = self.places[shard].shard.has_outgoing(session);
        }
        let mut answers = Vec::new();
        for effect in std::mem::take(&mut self.places[shard].effects.list) {
            self.perform(shard, effect, &mut answers)?;
        }
        self.check_waiting(shard, before, most)?;
        Ok(answers)
    }

    fn perform(&mut self, shard: usize, effect: Effect, answers: &mut Vec<(Ticket, ApiResult)>) -> Result<(), String> {
        self.trace.line(self.now_us, || format!("shard {shard}: {effect:?}"));
        match effect {
            Effect::Send { to, message } => {
                self.trace.number(u64::from(to.0));
                if usize::from(to.0) == shard {
                    return Err("a shard sends to itself".to_owned());
                }
                let from = dunlin_engine::ShardIndex(shard as u16);
                let ring = ShardRing::place(from, to, self.plan.shards, &message);
                self.rings[ring].push(message);
            }
            Effect::Authenticate { session, token } => self.verify(shard, session, false, &token),
            Effect::AuthorizeSubscription { session, token } => self.verify(shard, session, true, &token),
            Effect::SendProxyRequest { session, request } => self.send_proxy_request(shard, session, &request)?,
            Effect::Pause { session } => self.known(shard, session)?.paused = true,
            Effect::Resume { session } => self.known(shard, session)?.paused = false,
            Effect::Recall { session } => self.places[shard].recalled.push(session),
            Effect::Finish { session } => {
                let connection = self.known(shard, session)?;
                if connection.server == ServerSide::Finished || connection.is_dirty {
                    return Err(format!("{session:?} is to be finished twice, or with bytes waiting"));
                }
                if connection.server == ServerSide::Open {
                    connection.server = ServerSide::Finished;
                }
            }
            Effect::HangUp { session } => self.known(shard, session)?.server = ServerSide::HungUp,
            Effect::ToRoom { thread, message } => self.send_to_room(shard, thread, message)?,
            Effect::Propose { .. }
            | Effect::Load { .. }
            | Effect::Trim { .. }
            | Effect::Follow { .. }
            | Effect::Unfollow { .. }
            | Effect::Broadcast { .. }
            | Effect::ShareUserSessions { .. }
            | Effect::QueryPeers { .. } => return Err("no namespace has a log, or is shared".to_owned()),
            Effect::Answer { ticket, .. } if self.room_requests.remove(&ticket.0) => {}
            Effect::Answer { ticket, answer, .. } => answers.push((ticket, answer)),
        }
        Ok(())
    }

    /// The connection of a session that the shard speaks of: it must still be known.
    fn known(&mut self, shard: usize, session: SessionKey) -> Result<&mut crate::socket::SimConnection, String> {
        let connection =
            self.find(shard, session).ok_or_else(|| format!("an effect for {session:?}, which is gone"))?;
        self.trace.number(connection as u64);
        Ok(&mut self.connections[connection])
    }

    pub(super) fn find(&self, shard: usize, session: SessionKey) -> Option<usize> {
        let connection = (*self.places[shard].connections.get(session.index as usize)?)?;
        (self.connections[connection].session == session).then_some(connection)
    }

    fn verify(&mut self, shard: usize, session: SessionKey, is_subscription: bool, token: &str) {
        let delay_us = if self.chance.percent(70) { 0 } else { self.chance.between(0, 300_000) };
        let number = self.steps << 20 | self.verifications.len() as u64;
        self.verifications.push(Reverse(Verification {
            due_us: self.now_us + delay_us,
            number,
            shard,
            session,
            is_subscription,
            token: token.to_owned(),
        }));
    }

    /// Gives verdicts on tokens to the shards that wait for them, whether their sessions are still there or not.
    pub(super) fn finish_verifications(&mut self) -> Result<(), String> {
        while self.verifications.peek().is_some_and(|Reverse(next)| next.due_us <= self.now_us) {
            let Some(Reverse(due)) = self.verifications.pop() else { break };
            let (session, unix_ms) = (due.session, self.unix_ms());
            // One that nobody made is told from all others at once.
            let is_put_off = self.chance.percent(3) && self.tokens.find(&due.token).is_some();
            if is_put_off {
                self.model.count("token put off");
            }
            if due.is_subscription {
                let outcome = if is_put_off {
                    Err(self.tokens.put_off(&due.token))
                } else {
                    self.tokens.verify_subscription(&due.token, unix_ms)
                };
                self.handle(due.shard, Event::SubscriptionAuthorized { session, outcome })?;
            } else {
                let outcome = if is_put_off {
                    Err(self.tokens.put_off(&due.token))
                } else {
                    self.tokens.verify_connection(&due.token, unix_ms)
                };
                self.handle(due.shard, Event::Authenticated { session, outcome })?;
            }
        }
        Ok(())
    }

    /// Wakes every shard whose deadline has passed.
    pub(super) fn wake_shards(&mut self) -> Result<(), String> {
        for shard in 0..self.places.len() {
            while self.places[shard].shard.next_deadline_us().is_some_and(|due_us| due_us <= self.now_us) {
                let before = self.closes(shard).no_pong;
                self.handle(shard, Event::Woke)?;
                if self.closes(shard).no_pong > before {
                    self.deeds.no_pongs.push((shard, self.now_us));
                }
            }
        }
        Ok(())
    }

    /// Moves some messages from one ring.
    pub(super) fn deliver_some(&mut self) -> Result<(), String> {
        let full: Vec<usize> = (0..self.rings.len()).filter(|&ring| !self.rings[ring].is_empty()).collect();
        if full.is_empty() {
            return Ok(());
        }
        let ring = *self.chance.pick(&full);
        for _ in 0..self.chance.between(1, 4) {
            self.deliver(ring)?;
        }
        if self.chance.percent(50) {
            let shard = self.chance.below(self.places.len());
            self.handle(shard, Event::TurnEnded)?;
        }
        Ok(())
    }

    /// Moves one message; returns whether there was one.
    pub(super) fn deliver(&mut self, ring: usize) -> Result<bool, String> {
        let Some(message) = self.rings[ring].pop(self.now_us) else { return Ok(false) };
        let (from, to) = (self.rings[ring].from, self.rings[ring].to);
        self.trace.line(self.now_us, || format!("{from:?} to {to:?}: {message:?}"));
        self.handle(usize::from(to.0), Event::Message { from, message })?;
        Ok(true)
    }

    /// Asks a shard on behalf of an operator; the answer comes at once, and alone.
    pub(super) fn ask(&mut self, shard: usize, request: ApiRequest) -> Result<ApiResult, String> {
        self.next_ticket += 1;
        let ticket = Ticket(self.next_ticket);
        self.trace.line(self.now_us, || format!("operator to shard {shard}: {request:?}"));
        let mut answers = self.handle(shard, Event::Api { ticket, request })?;
        match answers.pop() {
            Some((of, answer)) if of == ticket && answers.is_empty() => Ok(answer),
            other => Err(format!("{other:?} answers an operator")),
        }
    }

    /// Opens a room on behalf of an operator; the answer comes when its world is made.
    pub(super) fn ask_to_open_room(&mut self, shard: usize, channel: &str) -> Result<(), String> {
        self.ask_about_room(shard, ApiRequest::OpenRoom { channel: channel.into(), overrides: Arc::default() })
    }

    /// Asks for something that a room thread answers.
    pub(super) fn ask_about_room(&mut self, shard: usize, request: ApiRequest) -> Result<(), String> {
        self.next_ticket += 1;
        self.room_requests.insert(self.next_ticket);
        self.handle(shard, Event::Api { ticket: Ticket(self.next_ticket), request })?;
        Ok(())
    }

    /// After an event: nobody has more waiting than the bound, and whoever was closed as slow had reason to be.
    fn check_waiting(&mut self, shard: usize, before: Closes, most: Most) -> Result<(), String> {
        let (client, has_rooms) = (&self.plan.options.client, self.plan.rooms.is_some());
        let (bytes_max, frames_max) = (client.queue_bytes_max, client.queue_frames_max);
        let after = self.closes(shard);
        let slow = after.slow - before.slow;
        // Those who are closed leave channels, which others are told, who may be closed over that in turn.
        let echoes = (after.all - before.all).saturating_sub(1) as usize * LEAVES_MAX;
        let most = Most { bytes: most.bytes + echoes * DELIVERY_BYTES_MAX, frames: most.frames + echoes, ..most };
        let mut suspects = 0;
        let Self { places, connections, .. } = self;
        let Place { shard, connections: of_shard, .. } = &mut places[shard];
        for &number in of_shard.iter().flatten() {
            let connection = &mut connections[number];
            let (bytes, frames) = shard.queued(connection.session).unwrap_or_default();
            // A snapshot that was begun, and those that are due.
            let of_rooms = if has_rooms { (SNAPSHOT_BYTES_MAX, 1 + ROOMS_MAX) } else { (0, 0) };
            let of_replies = (REPLY_BYTES_MAX + bytes_max / 4, FRAMES_MAX + frames_max / 4);
            let bytes_most = bytes_max + of_replies.0 + GOODBYE_BYTES_MAX + frames * SKIPPED_TAG_BYTES_MAX + of_rooms.0;
            if frames > frames_max + of_replies.1 + 1 + of_rooms.1 || bytes > bytes_most {
                return Err(format!("{bytes} bytes in {frames} frames wait for {:?}", connection.session));
            }
            let was = std::mem::replace(&mut connection.waiting, (bytes, frames));
            // What waited may have got its tags when it was last offered to the socket.
            if most.is_snapshot && (bytes > was.0 + frames * SKIPPED_TAG_BYTES_MAX || frames > was.1 + ROOMS_MAX) {
                return Err(format!("a snapshot waits for {:?}: {bytes} bytes, {frames} frames", connection.session));
            }
            let is_suspect = was.0 + most.bytes > bytes_max || was.1 + most.frames > frames_max;
            suspects += u64::from(is_suspect);
            connection.may_be_slow |= is_suspect && slow > 0;
            // What is due because of a room takes no memory, and before `connect` is answered things may wait unlisted.
            let has_outgoing = shard.has_outgoing(connection.session);
            let has_too_much = !has_rooms && has_outgoing && bytes == 0;
            if has_outgoing != connection.is_dirty || has_too_much {
                return Err(format!(
                    "{bytes} bytes wait for {:?}, listed: {}",
                    connection.session, connection.is_dirty
                ));
            }
        }
        if slow > suspects {
            return Err(format!("{slow} sessions were closed as slow, of which {suspects} were"));
        }
        Ok(())
    }

    fn closes(&self, shard: usize) -> Closes {
        let counters = self.places[shard].shard.counters();
        Closes { all: counters.closes.iter().sum(), slow: counters.closes[8], no_pong: counters.closes[12] }
    }
}

/// Closes of a shard by their reason.
#[derive(Clone, Copy)]
struct Closes {
    all: u64,
    slow: u64,
    no_pong: u64,
}

/// The most that an event may add to one session's queue.
#[derive(Clone, Copy)]
struct Most {
    bytes: usize,
    frames: usize,
    /// It is a snapshot, which never waits.
    is_snapshot: bool,
}

impl Most {
    fn of(event: &Event<'_>) -> Self {
        match event {
            Event::Message { message: ShardMessage::Notice(Notice::Deliver(_)), .. } => {
                Self { bytes: DELIVERY_BYTES_MAX, frames: 1, is_snapshot: false }
            }
            Event::FromRoom { message: FromRoom::Keyframe { .. } | FromRoom::Tick { .. }, .. } => {
                Self { bytes: 0, frames: 0, is_snapshot: true }
            }
            // Replies close nobody as slow, however many a frame of commands brings: only what is published does.
            Event::Received { frame: json @ [b'{', ..], .. } => {
                let commands = json.split(|&byte| byte == b'\n').count();
                let publishes = json.windows(PUBLISH.len()).any(|window| window == PUBLISH);
                let data_bytes = if publishes { json.len() } else { 0 };
                let frames = commands + LEAVES_MAX;
                Self { bytes: data_bytes + frames * AROUND_DATA_BYTES_MAX, frames, is_snapshot: false }
            }
            Event::Received { frame, .. } => {
                Self { bytes: frame.len() + PUBLICATIONS_BYTES_MAX, frames: FRAMES_MAX, is_snapshot: false }
            }
            // Sessions of the same shard get the leaves of one that is gone in this event, those of other shards get notices.
            Event::Message { message: ShardMessage::Notice(_), .. } | Event::Gone { .. } => {
                let bytes = LEAVES_MAX * AROUND_DATA_BYTES_MAX;
                Self { bytes, frames: LEAVES_MAX, is_snapshot: false }
            }
            Event::Wrote { .. } => Self { bytes: 0, frames: 0, is_snapshot: false },
            Event::Api { .. } => Self { bytes: 5 * REPLY_BYTES_MAX, frames: FRAMES_MAX, is_snapshot: false },
            // What a session was held for has come, and the rest of its commands are carried out.
            _ => Self { bytes: PUBLICATIONS_BYTES_MAX, frames: FRAMES_MAX, is_snapshot: false },
        }
    }
}
