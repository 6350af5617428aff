//! Clients and their sockets: opening, transferring bytes, closing.

use dunlin_engine::{Event, SessionKey};

use crate::{
    client::{Client, ClientPhase, Next, OperatorAction, ReceiveContext, Upward},
    plan::ReadSpeed,
    socket::{ServerSide, SimConnection},
};

use super::{NodeWorld, backend::BACKEND_DISCONNECT};

/// How much of a connection's bytes move.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Service {
    /// As chance and the client's pace have it.
    Some,
    Full,
}

impl NodeWorld {
    /// A client connects, to whatever shard accepts it.
    pub(super) fn open(&mut self, index: usize) -> Result<(), String> {
        let shard = self.chance.below(self.places.len());
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
            upward: std::collections::VecDeque::new(),
            paused: false,
            is_dirty: false,
            is_full: false,
            server: ServerSide::Open,
            client_is_there: true,
            idle_until_us: 0,
            pongs_us: Vec::new(),
            opened_us: self.now_us,
            may_be_slow: false,
            waiting: (0, 0),
        });
        self.trace.line(self.now_us, || format!("client {index} opens connection {number}: {session:?} on {shard}"));
        self.clients[index].open(number);
        self.handle(shard, Event::Opened { session, wire, source: None, address: None })?;
        // A few never say who they are.
        if !self.chance.percent(3) {
            self.with_initiative(index, Client::connect);
        }
        Ok(())
    }

    fn free_session(&mut self, shard: usize, connection: usize) -> SessionKey {
        let place = &mut self.places[shard];
        let index = place.connections.iter().position(Option::is_none).unwrap_or_else(|| {
            place.connections.push(None);
            place.generations.push(0);
            place.connections.len() - 1
        });
        place.connections[index] = Some(connection);
        place.generations[index] += 1;
        SessionKey { index: index as u32, generation: place.generations[index] }
    }

    /// The client's end of a connection is gone, without a word.
    pub(super) fn drop_client(&mut self, index: usize) {
        let Some(number) = self.clients[index].connection else { return };
        self.trace.line(self.now_us, || format!("client {index} is gone from connection {number}"));
        let connection = &mut self.connections[number];
        connection.client_is_there = false;
        connection.kernel.clear();
        if self.chance.percent(50) {
            connection.upward.clear();
        }
        let away_us = if self.chance.percent(90) { 500_000 } else { 5_000_000 };
        let until_us = self.now_us + self.chance.between(0, away_us);
        self.clients[index].leave(until_us);
    }

    /// Puts what a client wants to say on its connection.
    pub(super) fn send_upward(&mut self, index: usize) {
        let client = &mut self.clients[index];
        if let Some(number) = client.connection {
            self.connections[number].upward.extend(client.upward.drain(..));
        }
    }

    /// Serves some connections, as far as they are not idle.
    pub(super) fn serve_some(&mut self) -> Result<(), String> {
        let open: Vec<usize> = (0..self.connections.len()).filter(|&number| self.is_served(number)).collect();
        if open.is_empty() {
            return Ok(());
        }
        for _ in 0..self.chance.between(1, 3) {
            let number = *self.chance.pick(&open);
            self.serve(number, Service::Some)?;
        }
        Ok(())
    }

    fn is_served(&self, number: usize) -> bool {
        let connection = &self.connections[number];
        !connection.is_over() && connection.idle_until_us <= self.now_us
    }

    /// Serves those who never wait.
    pub(super) fn serve_prompt(&mut self) -> Result<(), String> {
        for index in 0..self.clients.len() {
            let prompt = self.clients[index].profile.pace == ReadSpeed::Prompt;
            if let Some(number) = self.clients[index].connection.filter(|&number| prompt && self.is_served(number)) {
                self.serve(number, Service::Full)?;
            }
        }
        Ok(())
    }

    /// Moves bytes of one connection, in both directions, and what has come to an end to its end.
    pub(super) fn serve(&mut self, number: usize, service: Service) -> Result<(), String> {
        self.take_upward(number, service)?;
        self.find_writable(number, service);
        self.end_turn(self.connections[number].shard, service)?;
        self.read(number, service)?;
        self.end_connection(number, service)
    }

    fn take_upward(&mut self, number: usize, service: Service) -> Result<(), String> {
        let most = if service == Service::Full { usize::MAX } else { self.chance.below(4) };
        for _ in 0..most {
            let connection = &mut self.connections[number];
            let (shard, session) = (connection.shard, connection.session);
            if !connection.has_socket() || connection.paused {
                break;
            }
            let Some(item) = connection.upward.pop_front() else { break };
            self.trace.line(self.now_us, || match &item {
                Upward::Frame(frame, _) => format!("{session:?} on {shard} says {}", String::from_utf8_lossy(frame)),
                other => format!("{session:?} on {shard}: {other:?}"),
            });
            let event = match &item {
                Upward::Frame(frame, has_pong) => {
                    if *has_pong {
                        self.connections[number].pongs_us.push(self.now_us);
                    }
                    self.trace.bytes(frame);
                    Event::Received { session, frame }
                }
                Upward::Ping(payload) => Event::Pinged { session, payload },
                Upward::Close(code) => Event::CloseReceived { session, code: *code },
                Upward::Violation(code) => Event::Violated { session, code: *code, what: "broken frame" },
            };
            self.handle(shard, event)?;
        }
        Ok(())
    }

    /// The client reads, at its pace.
    fn read(&mut self, number: usize, service: Service) -> Result<(), String> {
        let connection = &self.connections[number];
        let index = connection.client;
        if !connection.client_is_there || connection.kernel.is_empty() {
            return Ok(());
        }
        let most = match self.clients[index].profile.pace {
            _ if service == Service::Full => usize::MAX,
            ReadSpeed::Prompt => usize::MAX,
            ReadSpeed::Usual => self.chance.below(4_000),
            ReadSpeed::Slow => self.chance.below(150),
        };
        let unix_ms = self.unix_ms();
        let Self { plan, model, tokens, clients, connections, deeds, now_us, .. } = self;
        let kernel = &mut connections[number].kernel;
        let bytes = kernel.drain(..kernel.len().min(most));
        let mut receiving = ReceiveContext {
            options: &plan.options,
            rooms: plan.rooms.as_ref(),
            model,
            tokens,
            ended: &deeds.unsubscribed,
            subscribed: &deeds.subscribed,
            lost: &deeds.lost,
            lapsed: &deeds.lapsed,
            now_us: *now_us,
            unix_ms,
        };
        let next = clients[index].read(&mut receiving, bytes).map_err(|error| format!("client {index}: {error}"))?;
        self.send_upward(index);
        for next in next {
            self.go_on(index, number, next)?;
        }
        Ok(())
    }

    fn go_on(&mut self, index: usize, number: usize, next: Next) -> Result<(), String> {
        match next {
            Next::Connected => self.with_initiative(index, Client::resubscribe),
            Next::Resubscribes(channel) => {
                self.with_initiative(index, |client, initiative| client.resubscribe_to(initiative, &channel));
            }
            Next::Closed(code) => {
                self.judge_close(index, number, code)?;
                let client = &mut self.clients[index];
                let comes_back = code.is_none_or(|code| matches!(code, 0..3500 | 4000..4500 | 5000..));
                if !comes_back {
                    client.forget_everything();
                }
                // Most answer and hang up; some wait for the server to do so.
                if !self.chance.percent(20) {
                    if self.clients[index].profile.wire.is_websocket() {
                        self.connections[number].upward.push_back(Upward::Close(code));
                    }
                    self.drop_client(index);
                }
            }
        }
        Ok(())
    }

    /// Whether the server had reason to close.
    fn judge_close(&self, index: usize, number: usize, code: Option<u16>) -> Result<(), String> {
        let (client, connection) = (&self.clients[index], &self.connections[number]);
        let is_informed =
            |action: &OperatorAction| Some(action.code) == code && action.is_about(&client.profile.user, &client.id);
        let is_about = |action: &OperatorAction| action.is_about(&client.profile.user, &client.id);
        let was_subscribed = || self.deeds.subscribed.iter().any(is_about);
        let explained = client.explains_close(code, self.unix_ms())
            || self.deeds.disconnected.iter().any(is_informed)
            || match code {
                Some(3001) => self.deeds.drained,
                // What is an error elsewhere.
                Some(_) if client.profile.wire.is_unidirectional() && client.id.is_empty() => true,
                // The backend may have let it in for a time, or ended it, before the answer was out.
                Some(3005) if client.id.is_empty() => {
                    let backend = &self.plan.options.backend;
                    backend.connect.is_some() || backend.refresh.is_some()
                }
                Some(3005) => self.deeds.lapsed.contains(&(client.id.clone(), String::new())),
                Some(3006) => self.has_ended_by_time(client),
                Some(3010) => !self.deeds.lost.is_empty(),
                Some(3505) => was_subscribed(),
                // Of a subscription that it took for its own.
                Some(3501) => client.misdeeds.sub_refreshed && was_subscribed(),
                Some(BACKEND_DISCONNECT) => self.deeds.backend_disconnected,
                // Judged when it happened.
                Some(3008) => connection.may_be_slow,
                Some(3012) => self.missed_pong(client.pings, connection),
                Some(3506) => {
                    client.profile.encoding == dunlin_protocol::Encoding::Json && !self.deeds.opaque.is_empty()
                }
                _ => false,
            };
        if explained { Ok(()) } else { Err(format!("client {index} was closed with {code:?} for no reason")) }
    }

    /// Whether a subscription that the server made may be over: by its time, or because the backend said so.
    fn has_ended_by_time(&self, client: &Client) -> bool {
        let mut made = self.deeds.subscribed.iter().filter(|action| action.is_about(&client.profile.user, &client.id));
        let mut lapsed = self.deeds.lapsed.iter().filter(|(of, channel)| *of == client.id && !channel.is_empty());
        made.any(|action| action.expires_at_s.is_some_and(|at_s| at_s * 1_000 <= self.unix_ms()))
            || lapsed.next().is_some()
    }

    /// Whether a pong came too late for the last of `pings`, or never.
    fn missed_pong(&self, pings: u64, connection: &SimConnection) -> bool {
        let answers_us = &connection.pongs_us;
        let came_after = |deadline_us: u64| answers_us.last().is_some_and(|&pong_us| pong_us >= deadline_us);
        let mut closes = self.deeds.no_pongs.iter().filter(|(shard, _)| *shard == connection.shard);
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
                return Err(format!("{session:?} was finished without a close frame"));
            }
            if service == Service::Full || self.chance.percent(50) {
                self.drop_client(index);
            }
        }
        let connection = &self.connections[number];
        let lost = connection.server == ServerSide::HungUp || connection.has_socket() && !connection.client_is_there;
        if lost && (service == Service::Full || self.chance.percent(40)) {
            self.connections[number].server = ServerSide::Gone;
            self.connections[number].is_dirty = false;
            self.places[shard].connections[session.index as usize] = None;
            self.handle(shard, Event::Gone { session })?;
        }
        Ok(())
    }
}
