//! A shard thread: its event loop, which passes what arrives to the engine, and the engine's effects to those who perform
//! them.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use dunlin_engine::{
    Effect, Event, ShardIndex,
    api::{ApiAnswer, ApiRequest, ApiResult},
    event::Ticket,
};
use dunlin_net::{Acceptor, Reactor};
use dunlin_storage::StoreRequest;
use dunlin_token::VerifyTokens;
use tokio::sync::mpsc;

use super::{
    HandOver, NodeNetOptions, ShardReport, ShardSessions,
    admission::Gate,
    busy_window::TurnTimes,
    clients::Clients,
    clock::Clock,
    cluster::NodeCluster,
    engine::Engine,
    inbox::{Asker, Inbox, ReportRequest, ToShard},
    placement::{Loads, Placement},
    rings::Rings,
    services::Services,
    storage::NodeStorage,
};
use crate::{backend::ProxyClient, otlp::Tracer, webhooks::Webhooks};

/// Requests of the control thread, and events, processed per turn.
const REQUESTS_PER_TURN: usize = 64;

/// The state that all shards of a node share.
pub(super) struct Shared {
    pub(super) net: NodeNetOptions,
    pub(super) acceptor: Acceptor,
    pub(super) tokens: Arc<dyn VerifyTokens>,
    pub(super) backends: Arc<dyn ProxyClient>,
    pub(super) webhooks: Option<Arc<Webhooks>>,
    pub(super) tracer: Option<Arc<Tracer>>,
    pub(super) storage: Option<Arc<NodeStorage>>,
    pub(super) cluster: Option<Arc<NodeCluster>>,
    pub(super) hand_over: mpsc::Sender<HandOver>,
    pub(super) clock: Clock,
    pub(super) gate: Gate,
    pub(super) loads: Loads,
    /// Makes the threads end. After setting it, all shards must be woken.
    pub(super) stopping: AtomicBool,
}

/// The state of one shard's thread.
pub(super) struct ShardThread<R> {
    pub(super) index: ShardIndex,
    pub(super) shared: Arc<Shared>,
    pub(super) engine: Engine,
    pub(super) clients: Clients<R>,
    pub(super) rings: Rings,
    pub(super) inbox: Inbox,
    pub(super) services: Services,
    pub(super) placement: Placement,
    pub(super) times: TurnTimes,
}

impl<R: Reactor> ShardThread<R> {
    /// Runs until it is stopped.
    ///
    /// # Errors
    /// The error of the reactor.
    pub(super) fn run(mut self) -> io::Result<()> {
        while !self.shared.stopping.load(Ordering::Relaxed) {
            self.turn()?;
        }
        Ok(())
    }

    /// One turn: waits, reads input, passes it to the engine, performs the effects, and writes each dirty session once.
    fn turn(&mut self) -> io::Result<()> {
        let timeout = self.timeout();
        self.clients.sockets.wait(timeout)?;
        self.inbox.disarm();
        self.engine.read_clock();
        self.times.turn_began(self.engine.now().mono_us);

        let intake = self.rings.begin_turn(self.engine.now().mono_us);
        self.read_sockets(intake);
        self.rings.deliver(&mut self.engine);
        self.take_report_requests();
        if intake {
            self.take_requests();
            self.take_events();
            self.engine.recall();
            self.clients.feed_resumed(&mut self.engine);
            self.clients.meet_deadlines(&mut self.engine);
        }
        self.engine.meet_deadlines();
        self.clients.drain_on(&mut self.engine);
        self.perform_effects();
        // Before the writes, so that the other shards can write at the same time.
        self.rings.announce();
        self.clients.sockets.flush(&mut self.engine);
        self.perform_effects();
        self.rings.announce();
        self.rings.announce_room();

        self.engine.read_clock();
        self.engine.handle(Event::TurnEnded);
        self.times.turn_ended(self.engine.now().mono_us);
        self.clients.report_drained();
        Ok(())
    }

    /// The maximum duration of the next wait; zero if there is work. Otherwise this arms the wake flag, so that threads
    /// with messages for this shard ring it.
    fn timeout(&mut self) -> Option<Duration> {
        if self.has_own_work() {
            return Some(Duration::ZERO);
        }
        self.inbox.arm();
        // Check after arming: later messages wake the shard.
        self.rings.flush();
        self.rings.announce();
        let intake = self.rings.may_take_in();
        // The flush may have ended a phase without intake, which leaves unread sockets and resumed sessions.
        let has_left = self.inbox.has_input() || self.has_input_left();
        let is_called = self.inbox.has_report_requests() || self.rings.has_messages() || (intake && has_left);
        if is_called || self.shared.stopping.load(Ordering::Relaxed) {
            self.inbox.disarm();
            return Some(Duration::ZERO);
        }
        let due_us =
            [self.clients.next_deadline_us(intake), self.engine.next_deadline_us()].into_iter().flatten().min();
        due_us.map(|due_us| Duration::from_micros(due_us.saturating_sub(self.engine.now().mono_us)))
    }

    /// Whether work is left for which no thread will ring.
    fn has_own_work(&self) -> bool {
        (self.rings.may_take_in() && self.has_input_left()) || self.engine.has_effects()
    }

    /// Whether input is left that the last turn did not read.
    fn has_input_left(&self) -> bool {
        self.clients.sockets.has_more() || self.clients.has_resumed() || self.engine.has_recalled()
    }

    fn read_sockets(&mut self, intake: bool) {
        while let Some(stream) = self.clients.read(intake, &mut self.engine) {
            if let Some(stream) = self.placement.place(stream) {
                self.clients.settle(stream, &mut self.engine);
            }
        }
    }

    fn take_requests(&mut self) {
        for _ in 0..REQUESTS_PER_TURN {
            if !self.engine.takes_more() {
                return;
            }
            let Some(request) = self.inbox.next_request() else { return };
            match request {
                // Nobody waits for the answer any more, and some cost the shard a visit of all its channels.
                ToShard::Api { request, reply } if reply.is_closed() && request.only_reads() => {}
                ToShard::Api { request, reply } => self.ask_engine(Asker::Api(reply), request),
                ToShard::Accepted { stream } => self.clients.settle(stream, &mut self.engine),
                ToShard::Adopt { stream, adoption } => self.clients.adopt(stream, *adoption, &mut self.engine),
                ToShard::Emulate { secret, commands, reply } => {
                    let emulated = self.clients.emulate(&secret, commands, &mut self.engine);
                    // An error means that the requester has stopped waiting.
                    let _ = reply.send(emulated);
                }
                ToShard::Reconfigure { options, done } => {
                    self.engine.handle(Event::Reconfigured { options });
                    // An error means that the requester has stopped waiting. It asks the shard again.
                    let _ = done.send(());
                }
                ToShard::Drain { plan, gone } => self.clients.begin_drain(plan, gone, self.engine.now().mono_us),
            }
        }
    }

    /// Sends reports even while an overflow waits, because a report causes no message. A turn lists sessions once,
    /// because that visits all of them.
    fn take_report_requests(&mut self) {
        while let Some(request) = self.inbox.next_report_request() {
            match request {
                // A report for a requester that has stopped waiting would cost the shard a visit of all its sessions.
                ReportRequest::Sessions { reply, .. } if reply.is_closed() => {}
                ReportRequest::Counters(reply) if reply.is_closed() => {}
                // An error means that the requester has stopped waiting.
                ReportRequest::Reaction(reply) => drop(reply.send(())),
                ReportRequest::Counters(reply) => self.ask_engine(Asker::Report(reply), ApiRequest::Survey),
                ReportRequest::Sessions { query, reply } => {
                    return self.ask_engine(Asker::Sessions(reply), ApiRequest::Sessions(query));
                }
            }
        }
    }

    fn ask_engine(&mut self, asker: Asker, request: ApiRequest) {
        let ticket = self.inbox.issue(asker);
        self.engine.handle(Event::Api { ticket, request });
    }

    /// Passes events from other threads to the engine.
    fn take_events(&mut self) {
        for _ in 0..REQUESTS_PER_TURN {
            if !self.engine.takes_more() {
                return;
            }
            let Some(event) = self.inbox.next_event() else { return };
            self.engine.handle(event);
        }
    }

    /// Performs all effects, including those that result from performing them. This terminates: a token result or a
    /// hang-up causes messages and replies, but no further effect of its kind for the same session.
    pub(super) fn perform_effects(&mut self) {
        while let Some(mut effects) = self.engine.take_effects() {
            for effect in effects.drain(..) {
                self.perform(effect);
            }
            self.engine.performed(effects);
        }
        self.engine.log_records(self.index);
        self.clients.tell_backend(&mut self.engine);
        self.clients.trace_recoveries(&mut self.engine);
    }

    fn perform(&mut self, effect: Effect) {
        let Self { engine, clients, rings, services, .. } = self;
        let known_at_once = match effect {
            Effect::Send { to, message } => return rings.send(to, message),
            Effect::ToRoom { thread, message } => return rings.send_to_room(thread, message),
            Effect::Pause { session } => return clients.pause(session),
            Effect::Resume { session } => return clients.resume(session),
            Effect::Recall { session } => return engine.recall_later(session),
            Effect::Finish { session } => return clients.finish(session, engine),
            Effect::HangUp { session } => return clients.end(session, engine),
            Effect::Answer { ticket, answer } => return self.answer(ticket, answer),
            Effect::SendProxyRequest { session, request } => {
                let (headers, address) = (clients.picked_headers(session), clients.address(session));
                return services.ask_backend(session, *request, headers, address);
            }
            Effect::Unfollow { channel, only_user } => return services.unfollow(channel, only_user),
            Effect::Broadcast { channel, message } => return services.broadcast(channel, message),
            Effect::ShareUserSessions { user, sessions } => return services.share_user_sessions(user, sessions),
            Effect::Authenticate { session, token } => services.authenticate(session, token, engine.now().unix_ms),
            Effect::AuthorizeSubscription { session, token } => {
                services.authorize(session, token, engine.now().unix_ms)
            }
            Effect::Propose { channel, proposal, record, begins, terms } => {
                services.propose(StoreRequest { shard: self.index, channel, proposal, record, begins, terms })
            }
            Effect::Load { channel, load, query, terms } => services.load(channel, load, query, terms),
            Effect::Trim { channel, through, ticket } => services.trim(channel, through, ticket),
            Effect::Follow { channel } => services.follow(channel),
            Effect::QueryPeers { query, channel, kind } => services.query_peers(query, channel, kind),
            Effect::QueryKeys { channel } => services.query_keys(channel),
            Effect::QueryRoom { channel } => services.query_room(channel),
        };
        if let Some(event) = known_at_once {
            engine.handle(event);
        }
    }

    /// Passes a result to its requester, unless that has stopped waiting.
    fn answer(&mut self, ticket: Ticket, answer: ApiResult) {
        match self.inbox.redeem(ticket) {
            Asker::Api(reply) => drop(reply.send(answer)),
            Asker::Report(reply) => {
                let Ok(ApiAnswer::Survey(survey)) = answer else { unreachable!("a survey is what was asked for") };
                let mut net = self.clients.counters();
                self.rings.count_into(&mut net);
                self.placement.count_into(&mut net);
                self.inbox.count_into(&mut net);
                self.times.count_into(&mut net, self.engine.now().mono_us);
                let counters = self.engine.counters().clone();
                drop(reply.send(Box::new(ShardReport { shard: self.index, counters, survey: *survey, net })));
            }
            Asker::Sessions(reply) => {
                let Ok(ApiAnswer::Sessions(page)) = answer else { unreachable!("sessions are what was asked for") };
                let now_us = self.engine.now().mono_us;
                let sockets = &mut self.clients.sockets;
                let sockets = page.sessions.iter().map(|facts| sockets.facts(facts.session, now_us)).collect();
                let turns = self.times.shares(now_us);
                drop(reply.send(Box::new(ShardSessions { shard: self.index, page: *page, sockets, turns })));
            }
        }
    }
}
