//! Passes events to shards and performs their effects, like the threads of the server, in a random order.

use std::{cmp::Reverse, sync::Arc};

use dunlin_engine::{
    Effect, Event, SessionKey,
    api::{ApiRequest, ApiResult},
    event::Ticket,
    message::{Notice, ShardMessage, ShardRequest},
    room::FromRoom,
};

use crate::socket::ServerSide;

use super::{NodeWorld, Verification};

/// Maximum bytes that closing a session adds to a full queue: a close frame, or a push and the last chunk.
const CLOSE_BYTES_MAX: usize = 300;
/// Maximum bytes that the tag `skipped` adds to a queued frame.
const SKIPPED_TAG_BYTES_MAX: usize = 32;
/// Maximum bytes of a snapshot. One snapshot may be partly written.
const SNAPSHOT_BYTES_MAX: usize = 8_000;
/// Maximum number of rooms in the plan.
const ROOMS_MAX: usize = 2;
/// Maximum bytes of one publication in the plan.
const DELIVERY_BYTES_MAX: usize = 1_600;
/// Maximum number of channels in the plan with leave messages.
const LEAVES_MAX: usize = 4;
/// Maximum bytes of the other replies and pushes. See [`FRAMES_MAX`] for their number.
const REPLY_BYTES_MAX: usize = 24_000;
/// Maximum bytes of a join or a leave message, and of a publication without its data.
const ENVELOPE_BYTES_MAX: usize = 300;
/// Maximum bytes, without data, of all publications, joins and leaves that one frame of commands causes.
const PUBLICATIONS_BYTES_MAX: usize = 16 * ENVELOPE_BYTES_MAX;
/// Part of each JSON command that publishes.
const PUBLISH: &[u8] = b"\"publish\"";
/// Maximum number of replies and pushes that a timer or an operator causes.
const FRAMES_MAX: usize = 20;

impl NodeWorld {
    /// Passes an event to a shard and performs the effects. Returns the API replies.
    pub(super) fn handle(&mut self, shard: usize, event: Event<'_>) -> Result<Vec<(Ticket, ApiResult)>, String> {
        let now = self.harness.now();
        let growth = QueueGrowth::of(&event);
        let written = if let Event::Wrote { session, .. } = &event { Some(*session) } else { None };
        let before = self.closes(shard);
        let event = self.through_seam(shard, event);
        let thread = &mut self.node.threads[shard];
        thread.shard.handle(now, event, &mut thread.effects);
        self.seam.list(&mut thread.effects.dirty);
        for key in std::mem::take(&mut thread.effects.dirty) {
            self.harness.trace.number(u64::from(key.index) << 32 | u64::from(key.generation));
            let connection = self.find(shard, key).ok_or("a session that is gone is listed for writing")?;
            if std::mem::replace(&mut self.connections[connection].is_dirty, true) {
                return Err(format!("{key:?} is listed twice"));
            }
            self.sockets[shard].dirty.push(key);
        }
        if let Some(connection) = written.and_then(|session| self.find(shard, session)) {
            let session = self.connections[connection].session;
            self.connections[connection].is_dirty = self.node.threads[shard].shard.has_outgoing(session);
        }
        let mut answers = Vec::new();
        for effect in std::mem::take(&mut self.node.threads[shard].effects.list) {
            self.perform(shard, effect, &mut answers)?;
        }
        self.check_queues(shard, before, growth)?;
        Ok(answers)
    }

    fn through_seam<'e>(&mut self, shard: usize, event: Event<'e>) -> Event<'e> {
        let mut seam = std::mem::take(&mut self.seam);
        let event = seam.receive(event, |session| self.find(shard, session).is_none());
        self.seam = seam;
        event
    }

    fn perform(&mut self, shard: usize, effect: Effect, answers: &mut Vec<(Ticket, ApiResult)>) -> Result<(), String> {
        self.harness.line(|| format!("shard {shard}: {effect:?}"));
        match effect {
            Effect::Send { to, message } => {
                self.harness.trace.number(u64::from(to.0));
                if usize::from(to.0) == shard {
                    return Err("a shard sends a message to itself".to_owned());
                }
                if let Some(message) = self.seam.pass(message) {
                    self.node.send(shard, to, message);
                }
            }
            Effect::Authenticate { session, token } => self.verify(shard, session, false, &token),
            Effect::AuthorizeSubscription { session, token } => self.verify(shard, session, true, &token),
            Effect::SendProxyRequest { session, request } => self.send_proxy_request(shard, session, &request)?,
            Effect::Pause { session } => self.known(shard, session)?.paused = true,
            Effect::Resume { session } => self.known(shard, session)?.paused = false,
            Effect::Recall { session } => self.node.threads[shard].recalled.push(session),
            Effect::Finish { session } => {
                let connection = self.known(shard, session)?;
                if connection.server == ServerSide::Finished || connection.is_dirty {
                    return Err(format!("{session:?} is finished twice, or with queued bytes"));
                }
                if connection.server == ServerSide::Open {
                    connection.server = ServerSide::Finished;
                }
            }
            Effect::HangUp { session } => self.known(shard, session)?.server = ServerSide::HungUp,
            Effect::ToRoom { thread, message } => self.send_to_room(shard, thread, message)?,
            Effect::QueryRoom { channel } => self.ask_other_nodes(shard, &channel)?,
            Effect::Propose { .. }
            | Effect::Load { .. }
            | Effect::Trim { .. }
            | Effect::Follow { .. }
            | Effect::Unfollow { .. }
            | Effect::Broadcast { .. }
            | Effect::ShareUserSessions { .. }
            | Effect::QueryPeers { .. }
            | Effect::QueryKeys { .. } => {
                return Err("an effect of a log or a cluster, but no namespace has either".to_owned());
            }
            Effect::Answer { ticket, .. } if self.room_requests.remove(&ticket.0) => {}
            Effect::Answer { ticket, answer, .. } => answers.push((ticket, answer)),
        }
        Ok(())
    }

    /// Returns the connection of a session. Fails if the session is gone.
    fn known(&mut self, shard: usize, session: SessionKey) -> Result<&mut crate::socket::SimConnection, String> {
        let connection =
            self.find(shard, session).ok_or_else(|| format!("an effect for the session {session:?}, which is gone"))?;
        self.harness.trace.number(connection as u64);
        Ok(&mut self.connections[connection])
    }

    pub(super) fn find(&self, shard: usize, session: SessionKey) -> Option<usize> {
        let connection = (*self.sockets[shard].connections.get(session.index as usize)?)?;
        (self.connections[connection].session == session).then_some(connection)
    }

    fn verify(&mut self, shard: usize, session: SessionKey, is_subscription: bool, token: &str) {
        let delay_us = if self.harness.chance.percent(70) { 0 } else { self.harness.chance.between(0, 300_000) };
        let number = self.harness.steps << 20 | self.verifications.len() as u64;
        self.verifications.push(Reverse(Verification {
            due_us: self.harness.now_us + delay_us,
            number,
            shard,
            session,
            is_subscription,
            token: token.to_owned(),
        }));
    }

    /// Passes the results of token verifications that are due to the shards, whether the sessions still exist or not.
    pub(super) fn finish_verifications(&mut self) -> Result<(), String> {
        while self.verifications.peek().is_some_and(|Reverse(next)| next.due_us <= self.harness.now_us) {
            let Some(Reverse(due)) = self.verifications.pop() else { break };
            let (session, unix_ms) = (due.session, self.harness.unix_ms());
            // A token that was never issued is always rejected as invalid.
            let is_unavailable = self.harness.chance.percent(3) && self.tokens.find(&due.token).is_some();
            if is_unavailable {
                self.model.count("token verification unavailable");
            }
            if due.is_subscription {
                let outcome = if is_unavailable {
                    Err(self.tokens.mark_unavailable(&due.token))
                } else {
                    self.tokens.verify_subscription(&due.token, unix_ms)
                };
                self.handle(due.shard, Event::SubscriptionAuthorized { session, outcome })?;
            } else {
                let outcome = if is_unavailable {
                    Err(self.tokens.mark_unavailable(&due.token))
                } else {
                    self.tokens.verify_connection(&due.token, unix_ms)
                };
                self.handle(due.shard, Event::Authenticated { session, outcome })?;
            }
        }
        Ok(())
    }

    /// Wakes each shard whose deadline has passed.
    pub(super) fn wake_shards(&mut self) -> Result<(), String> {
        for shard in 0..self.node.threads.len() {
            while self.node.threads[shard].is_due(self.harness.now_us) {
                let before = self.closes(shard).no_pong;
                self.handle(shard, Event::Woke)?;
                if self.closes(shard).no_pong > before {
                    self.actions.no_pongs.push((shard, self.harness.now_us));
                }
            }
        }
        Ok(())
    }

    /// Delivers some messages of one ring.
    pub(super) fn deliver_some(&mut self) -> Result<(), String> {
        let full: Vec<usize> = (0..self.node.rings.len()).filter(|&ring| !self.node.rings[ring].is_empty()).collect();
        if full.is_empty() {
            return Ok(());
        }
        let ring = *self.harness.chance.pick(&full);
        for _ in 0..self.harness.chance.between(1, 4) {
            self.deliver(ring)?;
        }
        if self.harness.chance.percent(50) {
            let shard = self.harness.chance.below(self.node.threads.len());
            self.handle(shard, Event::TurnEnded)?;
        }
        Ok(())
    }

    /// Delivers one message of a ring. Returns whether there was one.
    pub(super) fn deliver(&mut self, ring: usize) -> Result<bool, String> {
        let Some(message) = self.node.rings[ring].pop(self.harness.now_us) else { return Ok(false) };
        let (from, to) = (self.node.rings[ring].from, self.node.rings[ring].to);
        self.harness.line(|| format!("{from:?} to {to:?}: {message:?}"));
        let abandoned = match &message {
            ShardMessage::Request(ShardRequest::AbandonJoin { seat, .. }) => Some(*seat),
            _ => None,
        };
        self.handle(usize::from(to.0), Event::Message { from, message })?;
        self.other_nodes.abandoned.extend(abandoned);
        Ok(true)
    }

    /// Sends an operator's request to a shard. The shard must reply at once, and only to this request.
    pub(super) fn call_api(&mut self, shard: usize, request: ApiRequest) -> Result<ApiResult, String> {
        self.next_ticket += 1;
        let ticket = Ticket(self.next_ticket);
        self.harness.line(|| format!("operator to shard {shard}: {request:?}"));
        let mut answers = self.handle(shard, Event::Api { ticket, request })?;
        match answers.pop() {
            Some((of, answer)) if of == ticket && answers.is_empty() => Ok(answer),
            other => Err(format!("unexpected reply to an operator: {other:?}")),
        }
    }

    /// Opens a room for an operator. The reply follows when the room thread has created the room.
    pub(super) fn request_open_room(&mut self, shard: usize, channel: &str) -> Result<(), String> {
        self.send_room_request(shard, ApiRequest::OpenRoom { channel: channel.into(), overrides: Arc::default() })
    }

    /// Sends a request that a room thread completes.
    pub(super) fn send_room_request(&mut self, shard: usize, request: ApiRequest) -> Result<(), String> {
        self.next_ticket += 1;
        self.room_requests.insert(self.next_ticket);
        self.handle(shard, Event::Api { ticket: Ticket(self.next_ticket), request })?;
        Ok(())
    }

    /// Checks the queues after an event: none exceeds its bound, and each session that was closed as slow may have been
    /// slow.
    fn check_queues(&mut self, shard: usize, before: Closes, growth: QueueGrowth) -> Result<(), String> {
        let (client, has_rooms) = (&self.plan.options.client, self.plan.rooms.is_some());
        let moves = self.plan.rooms.as_ref().is_some_and(|rooms| rooms.moves);
        let (bytes_max, frames_max) = (client.queue_bytes_max, client.queue_frames_max);
        let after = self.closes(shard);
        let slow = after.slow - before.slow;
        // A closed session leaves its channels. Other sessions get leave messages, and may be closed as slow in turn.
        let leave_messages = (after.all - before.all).saturating_sub(1) as usize * LEAVES_MAX;
        let growth = QueueGrowth {
            bytes: growth.bytes + leave_messages * DELIVERY_BYTES_MAX,
            frames: growth.frames + leave_messages,
            ..growth
        };
        let mut suspects = 0;
        let Self { node, sockets, connections, .. } = self;
        let (thread, of_shard) = (&mut node.threads[shard], &sockets[shard].connections);
        let shard = &mut thread.shard;
        for &number in of_shard.iter().flatten() {
            let connection = &mut connections[number];
            let (bytes, frames) = shard.queued(connection.session).unwrap_or_default();
            // One partly written snapshot, and one due snapshot for each room.
            let of_rooms = if has_rooms { (SNAPSHOT_BYTES_MAX, 1 + ROOMS_MAX) } else { (0, 0) };
            let of_replies = (REPLY_BYTES_MAX + bytes_max / 4, FRAMES_MAX + frames_max / 4);
            let bytes_most = bytes_max + of_replies.0 + CLOSE_BYTES_MAX + frames * SKIPPED_TAG_BYTES_MAX + of_rooms.0;
            if frames > frames_max + of_replies.1 + 1 + of_rooms.1 || bytes > bytes_most {
                return Err(format!("the queue of {:?} has {bytes} bytes in {frames} frames", connection.session));
            }
            let was = std::mem::replace(&mut connection.queued, (bytes, frames));
            // The queued frames may have got the tag `skipped` when they were last offered to the socket.
            if growth.is_snapshot && (bytes > was.0 + frames * SKIPPED_TAG_BYTES_MAX || frames > was.1 + ROOMS_MAX) {
                return Err(format!(
                    "a snapshot was queued for {:?}: {bytes} bytes, {frames} frames",
                    connection.session
                ));
            }
            let is_suspect = was.0 + growth.bytes > bytes_max || was.1 + growth.frames > frames_max;
            suspects += u64::from(is_suspect);
            connection.may_be_slow |= is_suspect && slow > 0;
            // Due snapshots take no memory, and before the connect reply, a session may have queued bytes without being
            // listed. The due snapshot of a room that moves is gone, and its session is still listed.
            let has_outgoing = shard.has_outgoing(connection.session);
            let has_too_much = !has_rooms && has_outgoing && bytes == 0;
            let is_listed = has_outgoing || connection.is_dirty && moves;
            if is_listed != connection.is_dirty || has_too_much {
                return Err(format!(
                    "{bytes} bytes are queued for {:?}, listed: {}",
                    connection.session, connection.is_dirty
                ));
            }
        }
        if slow > suspects {
            return Err(format!("{slow} sessions were closed as slow, but only {suspects} may have been slow"));
        }
        Ok(())
    }

    fn closes(&self, shard: usize) -> Closes {
        let counters = self.node.threads[shard].shard.counters();
        Closes { all: counters.closes.iter().sum(), slow: counters.closes[8], no_pong: counters.closes[12] }
    }
}

/// Counters of closed sessions of a shard.
#[derive(Clone, Copy)]
struct Closes {
    all: u64,
    slow: u64,
    no_pong: u64,
}

/// The maximum that an event adds to the queue of one session.
#[derive(Clone, Copy)]
struct QueueGrowth {
    bytes: usize,
    frames: usize,
    /// Whether the event is a snapshot. Snapshots are never queued.
    is_snapshot: bool,
}

impl QueueGrowth {
    fn of(event: &Event<'_>) -> Self {
        match event {
            Event::Message { message: ShardMessage::Notice(Notice::Deliver(_)), .. } => {
                Self { bytes: DELIVERY_BYTES_MAX, frames: 1, is_snapshot: false }
            }
            Event::FromRoom { message: FromRoom::Keyframe { .. } | FromRoom::Tick { .. }, .. } => {
                Self { bytes: 0, frames: 0, is_snapshot: true }
            }
            // Replies never close a session as slow, whatever their number. Only publications do.
            Event::Received { frame: json @ [b'{', ..], .. } => {
                let commands = json.split(|&byte| byte == b'\n').count();
                let publishes = json.windows(PUBLISH.len()).any(|window| window == PUBLISH);
                let data_bytes = if publishes { json.len() } else { 0 };
                let frames = commands + LEAVES_MAX;
                Self { bytes: data_bytes + frames * ENVELOPE_BYTES_MAX, frames, is_snapshot: false }
            }
            Event::Received { frame, .. } => {
                Self { bytes: frame.len() + PUBLICATIONS_BYTES_MAX, frames: FRAMES_MAX, is_snapshot: false }
            }
            // The sessions of this shard get the leave messages in this event. Other shards get notices.
            Event::Message { message: ShardMessage::Notice(_), .. } | Event::Gone { .. } => {
                let bytes = LEAVES_MAX * ENVELOPE_BYTES_MAX;
                Self { bytes, frames: LEAVES_MAX, is_snapshot: false }
            }
            Event::Wrote { .. } => Self { bytes: 0, frames: 0, is_snapshot: false },
            Event::Api { .. } => Self { bytes: 5 * REPLY_BYTES_MAX, frames: FRAMES_MAX, is_snapshot: false },
            // An awaited result arrived, and the session runs the rest of its commands.
            _ => Self { bytes: PUBLICATIONS_BYTES_MAX, frames: FRAMES_MAX, is_snapshot: false },
        }
    }
}
