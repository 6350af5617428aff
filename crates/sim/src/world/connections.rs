//! Connections of clients: opens them, transfers bytes and closes them. A shard ends its turn with writes to all dirty
//! sessions, in batches like those of the server.

use dunlin_engine::{Event, SessionKey};

use crate::{
    client::{Client, ClientPhase, Next, OperatorAction, ReceiveContext, ToServer},
    plan::ReadSpeed,
    socket::{ServerSide, SimConnection},
};

use super::{NodeWorld, backend::BACKEND_DISCONNECT};

/// Maximum number of sends in a batch. The reactors of the server use 16 and 1,024.
const BATCH_MAX: usize = 16;

/// How many bytes of a connection are transferred.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Service {
    /// A random part, limited by the client's read speed.
    Some,
    Full,
}

impl NodeWorld {
    /// Connects a client to a random shard.
    pub(super) fn open(&mut self, index: usize) -> Result<(), String> {
        let shard = self.harness.chance.below(self.node.threads.len());
        let number = self.connections.len();
        let session = self.free_session(shard, number);
        let profile = &self.clients[index].profile;
        let wire = profile.wire;
        self.connections.push(SimConnection {
            client: index,
            shard,
            session,
            kernel: std::collections::VecDeque::new(),
            kernel_bytes_max: profile.kernel_bytes,
            to_server: std::collections::VecDeque::new(),
            paused: false,
            is_dirty: false,
            is_full: false,
            server: ServerSide::Open,
            client_is_there: true,
            idle_until_us: 0,
            pongs_us: Vec::new(),
            opened_us: self.harness.now_us,
            may_be_slow: false,
            queued: (0, 0),
        });
        self.harness.line(|| format!("client {index} opens connection {number}: {session:?} on {shard}"));
        self.clients[index].open(number);
        self.handle(shard, Event::Opened { session, wire, source: None, address: None })?;
        // A few clients never send a connect command.
        if !self.harness.chance.percent(3) {
            self.with_act_context(index, Client::connect);
        }
        Ok(())
    }

    fn free_session(&mut self, shard: usize, connection: usize) -> SessionKey {
        let state = &mut self.sockets[shard];
        let index = state.connections.iter().position(Option::is_none).unwrap_or_else(|| {
            state.connections.push(None);
            state.generations.push(0);
            state.connections.len() - 1
        });
        state.connections[index] = Some(connection);
        state.generations[index] += 1;
        SessionKey { index: index as u32, generation: state.generations[index] }
    }

    /// Drops a connection on the client's side without a close frame.
    pub(super) fn drop_client(&mut self, index: usize) {
        let Some(number) = self.clients[index].connection else { return };
        self.harness.line(|| format!("client {index} is gone from connection {number}"));
        let connection = &mut self.connections[number];
        connection.client_is_there = false;
        connection.kernel.clear();
        if self.harness.chance.percent(50) {
            connection.to_server.clear();
        }
        let away_us = if self.harness.chance.percent(90) { 500_000 } else { 5_000_000 };
        let until_us = self.harness.now_us + self.harness.chance.between(0, away_us);
        self.clients[index].leave(until_us);
    }

    /// Moves the frames that a client sent to its connection.
    pub(super) fn flush_to_server(&mut self, index: usize) {
        let client = &mut self.clients[index];
        if let Some(number) = client.connection {
            self.connections[number].to_server.extend(client.to_server.drain(..));
        }
    }

    /// Transfers bytes of some connections that are not idle.
    pub(super) fn serve_some(&mut self) -> Result<(), String> {
        let open: Vec<usize> = (0..self.connections.len()).filter(|&number| self.is_served(number)).collect();
        if open.is_empty() {
            return Ok(());
        }
        for _ in 0..self.harness.chance.between(1, 3) {
            let number = *self.harness.chance.pick(&open);
            self.serve(number, Service::Some)?;
        }
        Ok(())
    }

    fn is_served(&self, number: usize) -> bool {
        let connection = &self.connections[number];
        !connection.is_over() && connection.idle_until_us <= self.harness.now_us
    }

    /// Transfers all bytes of clients that read without delay.
    pub(super) fn serve_prompt(&mut self) -> Result<(), String> {
        for index in 0..self.clients.len() {
            let prompt = self.clients[index].profile.read_speed == ReadSpeed::Prompt;
            if let Some(number) = self.clients[index].connection.filter(|&number| prompt && self.is_served(number)) {
                self.serve(number, Service::Full)?;
            }
        }
        Ok(())
    }

    /// Transfers bytes of one connection in both directions, and closes it if it has ended.
    pub(super) fn serve(&mut self, number: usize, service: Service) -> Result<(), String> {
        self.deliver_to_server(number, service)?;
        self.find_writable(number, service);
        self.end_turn(self.connections[number].shard, service)?;
        self.read(number, service)?;
        self.end_connection(number, service)
    }

    fn deliver_to_server(&mut self, number: usize, service: Service) -> Result<(), String> {
        let most = if service == Service::Full { usize::MAX } else { self.harness.chance.below(4) };
        for _ in 0..most {
            let connection = &mut self.connections[number];
            let (shard, session) = (connection.shard, connection.session);
            if !connection.has_socket() || connection.paused {
                break;
            }
            let Some(item) = connection.to_server.pop_front() else { break };
            self.harness.line(|| match &item {
                ToServer::Frame(frame, _) => format!("{session:?} on {shard} sends {}", String::from_utf8_lossy(frame)),
                other => format!("{session:?} on {shard}: {other:?}"),
            });
            let event = match &item {
                ToServer::Frame(frame, has_pong) => {
                    if *has_pong {
                        self.connections[number].pongs_us.push(self.harness.now_us);
                    }
                    self.harness.trace.bytes(frame);
                    Event::Received { session, frame }
                }
                ToServer::Ping(payload) => Event::Pinged { session, payload },
                ToServer::Close(code) => Event::CloseReceived { session, code: *code },
                ToServer::Violation(code) => Event::Violated { session, code: *code, what: "broken frame" },
            };
            self.handle(shard, event)?;
        }
        Ok(())
    }

    /// Lets the client read, limited by its read speed.
    fn read(&mut self, number: usize, service: Service) -> Result<(), String> {
        let connection = &self.connections[number];
        let index = connection.client;
        if !connection.client_is_there || connection.kernel.is_empty() {
            return Ok(());
        }
        let most = match self.clients[index].profile.read_speed {
            _ if service == Service::Full => usize::MAX,
            ReadSpeed::Slow if self.has_seldom_pings() => 0,
            ReadSpeed::Prompt => usize::MAX,
            ReadSpeed::Usual => self.harness.chance.below(4_000),
            ReadSpeed::Slow => self.harness.chance.below(150),
        };
        let unix_ms = self.harness.unix_ms();
        let Self { harness, plan, model, tokens, clients, connections, actions, .. } = self;
        let kernel = &mut connections[number].kernel;
        let bytes = kernel.drain(..kernel.len().min(most));
        let mut receiving = ReceiveContext {
            options: &plan.options,
            rooms: plan.rooms.as_ref(),
            model,
            tokens,
            ended: &actions.unsubscribed,
            subscribed: &actions.subscribed,
            lost: &actions.lost,
            expired_by_backend: &actions.expired_by_backend,
            now_us: harness.now_us,
            unix_ms,
        };
        let next = clients[index].read(&mut receiving, bytes).map_err(|error| format!("client {index}: {error}"))?;
        self.flush_to_server(index);
        for next in next {
            self.handle_next(index, number, next)?;
        }
        Ok(())
    }

    fn handle_next(&mut self, index: usize, number: usize, next: Next) -> Result<(), String> {
        match next {
            Next::Connected => self.with_act_context(index, Client::resubscribe),
            Next::Resubscribes(channel) => {
                self.with_act_context(index, |client, context| client.resubscribe_to(context, &channel));
            }
            Next::Closed(code) => {
                self.check_close(index, number, code)?;
                let client = &mut self.clients[index];
                let comes_back = code.is_none_or(|code| matches!(code, 0..3500 | 4000..4500 | 5000..));
                if !comes_back {
                    client.reset();
                }
                // Most clients reply and close the connection. Some wait until the server closes it.
                if !self.harness.chance.percent(20) {
                    if self.clients[index].profile.wire.is_websocket() {
                        self.connections[number].to_server.push_back(ToServer::Close(code));
                    }
                    self.drop_client(index);
                }
            }
        }
        Ok(())
    }

    /// Checks that the server had a reason to close the connection.
    fn check_close(&self, index: usize, number: usize, code: Option<u16>) -> Result<(), String> {
        let (client, connection) = (&self.clients[index], &self.connections[number]);
        let is_informed =
            |action: &OperatorAction| Some(action.code) == code && action.is_about(&client.profile.user, &client.id);
        let is_about = |action: &OperatorAction| action.is_about(&client.profile.user, &client.id);
        let was_subscribed = || self.actions.subscribed.iter().any(is_about);
        let explained = client.permits_close(code, self.harness.unix_ms())
            || self.actions.disconnected.iter().any(is_informed)
            || match code {
                Some(3001) => self.actions.drained,
                // Unidirectional transports close the connection where others reply with an error.
                Some(_) if client.profile.wire.is_unidirectional() && client.id.is_empty() => true,
                // The backend may have limited or ended the session before the client received the connect reply.
                Some(3005) if client.id.is_empty() => {
                    let backend = &self.plan.options.backend;
                    backend.connect.is_some() || backend.refresh.is_some()
                }
                Some(3005) => self.actions.expired_by_backend.contains(&(client.id.clone(), String::new())),
                Some(3006) => self.has_ended_by_time(client),
                Some(3010) => !self.actions.lost.is_empty(),
                Some(3505) => was_subscribed(),
                // The client refreshed a subscription that an operator had made.
                Some(3501) => client.close_reasons.sub_refreshed && was_subscribed(),
                Some(BACKEND_DISCONNECT) => self.actions.backend_disconnected,
                // `check_queues` decided this when it happened.
                Some(3008) => connection.may_be_slow,
                Some(3012) => self.missed_pong(client.pings, connection),
                Some(3506) => {
                    client.profile.encoding == dunlin_protocol::Encoding::Json && !self.actions.opaque.is_empty()
                }
                _ => false,
            };
        if explained { Ok(()) } else { Err(format!("client {index} was closed with {code:?} without a reason")) }
    }

    /// Whether a server-side subscription may have ended because it expired, or because the backend expired it.
    fn has_ended_by_time(&self, client: &Client) -> bool {
        let mut made =
            self.actions.subscribed.iter().filter(|action| action.is_about(&client.profile.user, &client.id));
        let mut expired_by_backend =
            self.actions.expired_by_backend.iter().filter(|(of, channel)| *of == client.id && !channel.is_empty());
        made.any(|action| action.expires_at_s.is_some_and(|at_s| at_s * 1_000 <= self.harness.unix_ms()))
            || expired_by_backend.next().is_some()
    }

    /// Whether the pong for the last of `pings` pings was late or missing.
    fn missed_pong(&self, pings: u64, connection: &SimConnection) -> bool {
        let answers_us = &connection.pongs_us;
        let came_after = |deadline_us: u64| answers_us.last().is_some_and(|&pong_us| pong_us >= deadline_us);
        let mut closes = self.actions.no_pongs.iter().filter(|(shard, _)| *shard == connection.shard);
        pings > 0
            && (pings > answers_us.len() as u64
                || closes.any(|&(_, at_us)| at_us >= connection.opened_us && came_after(at_us)))
    }

    fn end_connection(&mut self, number: usize, service: Service) -> Result<(), String> {
        let connection = &self.connections[number];
        let (index, shard, session) = (connection.client, connection.shard, connection.session);
        if connection.client_is_there && connection.is_at_end() {
            let client = &self.clients[index];
            if connection.server == ServerSide::Finished
                && (client.is_within_frame() || client.phase != ClientPhase::Over)
            {
                return Err(format!("{session:?} ended without a close frame"));
            }
            if service == Service::Full || self.harness.chance.percent(50) {
                self.drop_client(index);
            }
        }
        let connection = &self.connections[number];
        let lost = connection.server == ServerSide::HungUp || connection.has_socket() && !connection.client_is_there;
        if lost && (service == Service::Full || self.harness.chance.percent(40)) {
            self.connections[number].server = ServerSide::Gone;
            self.connections[number].is_dirty = false;
            self.sockets[shard].connections[session.index as usize] = None;
            self.handle(shard, Event::Gone { session })?;
        }
        Ok(())
    }
}

/// One send of a batch.
struct Send {
    connection: usize,
    session: SessionKey,
    offered_bytes: usize,
    /// The bytes that the kernel took.
    taken: Vec<u8>,
    /// Bytes at its start that a planted bug loses.
    lost_bytes: usize,
}

impl NodeWorld {
    /// Lists a session for writing again if its full socket has room.
    pub(super) fn find_writable(&mut self, number: usize, service: Service) {
        let connection = &self.connections[number];
        if !connection.is_full || connection.room() == 0 || !connection.has_socket() {
            return;
        }
        if service == Service::Full || self.harness.chance.percent(60) {
            let connection = &mut self.connections[number];
            connection.is_full = false;
            self.sockets[connection.shard].dirty.push(connection.session);
        }
    }

    /// Writes to each dirty session. All sends of a batch are offered to the sockets before the shard gets the results.
    pub(super) fn end_turn(&mut self, shard: usize, service: Service) -> Result<(), String> {
        if service == Service::Some && self.harness.chance.percent(30) {
            // The turn continues.
            return Ok(());
        }
        for session in std::mem::take(&mut self.node.threads[shard].recalled) {
            if self.find(shard, session).is_some() {
                self.handle(shard, Event::Recalled { session })?;
            }
        }
        while !self.sockets[shard].dirty.is_empty() {
            let dirty = std::mem::take(&mut self.sockets[shard].dirty);
            for batch in dirty.chunks(BATCH_MAX) {
                let sends = self.offer(shard, batch, service)?;
                for send in sends {
                    self.sent(shard, send)?;
                }
            }
            if service == Service::Some {
                break;
            }
        }
        Ok(())
    }

    fn offer(&mut self, shard: usize, batch: &[SessionKey], service: Service) -> Result<Vec<Send>, String> {
        let mut sends: Vec<Send> = Vec::new();
        for &session in batch {
            let Some(connection) = self.find(shard, session) else { continue };
            if !self.connections[connection].has_socket() || self.connections[connection].is_full {
                continue;
            }
            if sends.iter().any(|send| send.session == session) {
                return Err(format!("{session:?} is offered twice in a batch"));
            }
            let most = match self.harness.chance.below(10) {
                _ if service == Service::Full => usize::MAX,
                0 => 1,
                1..4 => self.harness.chance.below(300),
                _ => usize::MAX,
            };
            let mut left = self.connections[connection].room().min(most);
            let (mut taken, mut offered_bytes, mut is_cut) = (Vec::new(), 0, false);
            let is_slow = self.connections[connection].may_be_slow;
            let mut lost_bytes = None;
            for slice in self.node.threads[shard].shard.outgoing(session) {
                if slice.is_empty() {
                    return Err(format!("{session:?} is offered an empty slice"));
                }
                offered_bytes += slice.len();
                let part = &slice[..slice.len().min(left)];
                lost_bytes.get_or_insert_with(|| self.seam.lose(connection, is_slow, part.len()));
                is_cut |= !part.is_empty() && part.len() < slice.len();
                taken.extend_from_slice(part);
                left -= part.len();
            }
            if offered_bytes > 0 {
                self.seam.note_cut(connection, is_cut);
                let lost_bytes = lost_bytes.unwrap_or_default();
                sends.push(Send { connection, session, offered_bytes, taken, lost_bytes });
            } else {
                self.connections[connection].is_dirty = false;
            }
        }
        Ok(sends)
    }

    fn sent(&mut self, shard: usize, send: Send) -> Result<(), String> {
        let Send { connection, session, offered_bytes, taken, lost_bytes } = send;
        let bytes = taken.len();
        self.harness.trace.bytes(&taken);
        self.written_bytes += bytes as u64;
        if self.connections[connection].client_is_there {
            self.connections[connection].kernel.extend(&taken[lost_bytes..]);
        }
        if bytes > 0 {
            self.handle(shard, Event::Wrote { session, bytes })?;
        }
        if self.node.threads[shard].shard.counters().writes_beyond_offer > 0 {
            return Err(format!("{session:?} wrote more than it was offered"));
        }
        if bytes < offered_bytes {
            self.connections[connection].is_full = true;
        } else if self.node.threads[shard].shard.has_outgoing(session) {
            self.sockets[shard].dirty.push(session);
        }
        Ok(())
    }
}
