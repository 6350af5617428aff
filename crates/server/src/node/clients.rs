//! The connections of a shard, from accept to end. A connection becomes a session, is passed to the HTTP server, or is
//! refused.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, TcpStream},
    os::fd::AsRawFd,
    sync::Arc,
    time::Duration,
};

use dunlin_engine::{Event, ShardIndex, Wire, lifecycle::Lifecycle};
use dunlin_net::{
    Acceptor, BodyStage, Completion, ConnectionKey, ConnectionStage, Connections, HeadBuffer, HeadStage, HeadVerdict,
    PickedHeaders, Reactor, RefusalReason, Refused, SessionStage, is_out_of_files,
};
use dunlin_websocket::ReceiveError;
use tokio::sync::oneshot;

use super::{
    Adoption, DrainPlan, Emulated, HandOver, NetCounters,
    admission::Admission,
    deadlines::ConnectionDeadlines,
    drain::Life,
    engine::Engine,
    shard_thread::Shared,
    sockets::{Arrived, Sockets},
};
use crate::{
    otlp::TraceContext,
    telemetry::session_events::{ConnectionAccepted, ConnectionEnded, ConnectionRefused, logs_connections},
    webhooks::Happened,
};

/// Maximum number of bytes that are read from a refused client.
const LINGER_BYTES_MAX: usize = 256 * 1024;

/// Maximum number of queued requests per session.
const MAIL_MAX: usize = 256;

/// The connections of one shard.
pub(super) struct Clients<R> {
    index: ShardIndex,
    shared: Arc<Shared>,
    pub(super) sockets: Sockets<R>,
    table: Connections,
    admission: Admission,
    deadlines: ConnectionDeadlines,
    /// Forwarded header fields of sessions, by session index.
    picked_headers: HashMap<u32, PickedHeaders>,
    /// When connections began, by their index; only of those whose beginning was logged.
    begun_us: HashMap<u32, u64>,
    /// Resumed sessions with unread bytes.
    resumed: Vec<ConnectionKey>,
    /// Number of sessions.
    sessions: u32,
    life: Life,
    counters: NetCounters,
}

/// Input that needs more than the connection's own state to be processed.
enum IntakeOutcome {
    Nothing,
    Session,
    Head(HeadVerdict),
    Body(Result<(), RefusalReason>),
    TooMuch,
}

impl<R: Reactor> Clients<R> {
    pub(super) fn new(index: ShardIndex, shared: Arc<Shared>, reactor: R) -> Self {
        Self {
            index,
            sockets: Sockets::new(reactor, shared.net.certificates.clone()),
            table: Connections::default(),
            admission: Admission::new(Arc::clone(&shared)),
            deadlines: ConnectionDeadlines::default(),
            picked_headers: HashMap::new(),
            begun_us: HashMap::new(),
            resumed: Vec::new(),
            sessions: 0,
            life: Life::Open,
            counters: NetCounters::default(),
            shared,
        }
    }

    /// Processes what sockets report. Returns an accepted socket, whose shard the caller chooses before it calls this
    /// again; `None` when nothing is left in this turn. Without `intake`, nothing is accepted and read.
    pub(super) fn read(&mut self, intake: bool, engine: &mut Engine) -> Option<TcpStream> {
        while let Some(arrived) = self.sockets.next(intake && engine.takes_more(), engine) {
            let completion = match arrived {
                Arrived::Completion(completion) => completion,
                Arrived::TlsFailed(connection) => {
                    self.counters.tls_failures += 1;
                    self.hang_up_insecure(connection, engine);
                    continue;
                }
            };
            match completion {
                // Every turn checks all sources, so no other action is necessary after a wake-up. A TLS record may contain
                // no data of the client.
                Completion::Woken | Completion::Received { bytes: [], .. } => {}
                Completion::Accepted { stream } if !is_below(&stream, self.shared.net.descriptors_below) => {
                    self.counters.accepts_reserved += 1;
                }
                Completion::Accepted { stream } => {
                    self.counters.accepted += 1;
                    return Some(stream);
                }
                Completion::AcceptFailed { out_of_files: true } => self.counters.accepts_out_of_files += 1,
                Completion::AcceptFailed { out_of_files: false } => self.counters.accepts_failed += 1,
                Completion::Writable { connection } => {
                    if self.table.session_mut(connection).is_some() || self.sockets.has_waiting(connection) {
                        engine.mark_dirty(connection);
                    }
                }
                Completion::Ended { connection } => self.end(connection, engine),
                Completion::Received { connection, bytes } => {
                    let Some(stage) = self.table.get_mut(connection) else { continue };
                    let outcome = on_bytes(stage, engine, &self.shared.acceptor, connection, bytes);
                    self.follow(connection, outcome, engine);
                }
            }
        }
        None
    }

    fn follow(&mut self, connection: ConnectionKey, outcome: IntakeOutcome, engine: &mut Engine) {
        match outcome {
            IntakeOutcome::Nothing => {}
            IntakeOutcome::Session => {
                self.sockets.sample(connection, engine.now().mono_us);
                self.watch(connection, engine);
            }
            IntakeOutcome::Head(verdict) => self.carry_out(connection, verdict, engine),
            IntakeOutcome::Body(pushed) => self.body_came(connection, pushed, engine),
            IntakeOutcome::TooMuch => self.end(connection, engine),
        }
    }

    /// Registers a socket on this shard.
    pub(super) fn settle(&mut self, stream: TcpStream, engine: &mut Engine) {
        let peer = stream.peer_addr().ok().map(|peer| peer.ip());
        let connection = self.table.insert(ConnectionStage::Head(HeadStage::default()));
        if let Err(error) = self.sockets.open(connection, stream) {
            self.count_failed_accept(&error);
            self.forget(connection);
            return;
        }
        self.admission.came_from(connection, peer);
        self.note_beginning(connection, engine);
        ConnectionAccepted { shard: self.index, connection, address: peer }.emit();
        if !self.sockets.begin_tls(connection) {
            self.counters.tls_failures += 1;
            return self.end(connection, engine);
        }
        self.deadlines.head.set(engine.now().mono_us + self.shared.net.head_timeout_ms * 1_000, connection);
        if let Some(oldest) = peer.and_then(|peer| self.admission.add_pending(connection, peer)) {
            self.evict_pending(oldest, engine);
        }
    }

    /// Closes a connection without a session, because its address has too many of them.
    fn evict_pending(&mut self, connection: ConnectionKey, engine: &mut Engine) {
        let refused = Refused::from(RefusalReason::AddressPending);
        self.counters.refused[refused.reason.index()] += 1;
        ConnectionRefused { shard: self.index, connection, reason: refused.reason.name() }.emit();
        if matches!(self.table.get_mut(connection), Some(ConnectionStage::Head(_) | ConnectionStage::Body(_))) {
            self.sockets.send_now(connection, &refused.response, engine);
        }
        self.end(connection, engine);
    }

    pub(super) fn adopt(&mut self, stream: TcpStream, adoption: Adoption, engine: &mut Engine) {
        let Adoption { wire, inflates, response, request, mut read, headers, tls, admitted } = adoption;
        let connection = self.table.insert(ConnectionStage::Session(SessionStage::new(wire, inflates)));
        if !self.life.is_open() {
            // The client may have received status 101 already, so the only option is to close the connection.
            self.counters.refused[RefusalReason::Draining.index()] += 1;
            self.forget(connection);
            return;
        }
        if let Err(error) = self.sockets.open(connection, stream) {
            self.count_failed_accept(&error);
            self.forget(connection);
            return;
        }
        self.admission.was_found(connection, admitted.address());
        self.note_beginning(connection, engine);
        if let Some(tls) = tls {
            self.sockets.continue_tls(connection, tls, engine);
        }
        if request.as_ref().is_some_and(|request| !engine.can_open(wire, request)) {
            return self.refuse(connection, &RefusalReason::Connect.into(), engine);
        }
        admitted.take_over();
        self.counters.adopted += 1;
        self.keep_headers(connection, headers);
        let opening = Opening { wire, response: &response, request: request.as_deref(), read: &mut read };
        self.begin_session(connection, opening, engine);
    }

    fn count_failed_accept(&mut self, error: &io::Error) {
        let count = match error.kind() {
            io::ErrorKind::QuotaExceeded => &mut self.counters.accepts_shard_full,
            _ if is_out_of_files(error) => &mut self.counters.accepts_out_of_files,
            _ => &mut self.counters.accepts_failed,
        };
        *count += 1;
    }

    /// Carries out the decision about a connection's first request.
    fn carry_out(&mut self, connection: ConnectionKey, verdict: HeadVerdict, engine: &mut Engine) {
        if !matches!(verdict, HeadVerdict::Unfinished)
            && let Some(ConnectionStage::Head(HeadStage { buffer })) = self.table.get_mut(connection)
        {
            self.admission.find_source(connection, buffer.bytes());
        }
        match verdict {
            HeadVerdict::Unfinished => {}
            HeadVerdict::Refused(refused) => self.refuse(connection, &refused, engine),
            HeadVerdict::HandOver => self.hand_over(connection, engine),
            HeadVerdict::WebSocket { wire, inflates, response, connect, head_len, headers } => {
                if let Err(refused) = self.admit(connection, engine) {
                    return self.refuse(connection, &refused, engine);
                }
                self.keep_headers(connection, headers);
                let mut behind_head = self.become_session(connection, SessionStage::new(wire, inflates), head_len);
                self.counters.upgraded += 1;
                let read = &mut behind_head;
                let opening = Opening { wire, response: &response, request: connect.as_deref(), read };
                self.begin_session(connection, opening, engine);
            }
            HeadVerdict::Stream { wire, response, body, head_len, headers } => {
                let Some(stage) = self.table.get_mut(connection) else { return };
                let ConnectionStage::Head(HeadStage { buffer }) = stage else { return };
                let behind_head = std::mem::take(buffer).into_bytes().split_off(head_len);
                let due_us = engine.now().mono_us + self.shared.net.head_timeout_ms * 1_000;
                let mut body = body;
                let pushed = body.push(&behind_head);
                *stage = ConnectionStage::Body(Box::new(BodyStage { wire, response, body, headers, due_us }));
                self.deadlines.head.set(due_us, connection);
                self.body_came(connection, pushed, engine);
            }
        }
    }

    /// Processes a piece of a request's body, or its error. The last piece makes the connection a session.
    fn body_came(&mut self, connection: ConnectionKey, pushed: Result<(), RefusalReason>, engine: &mut Engine) {
        if let Err(reason) = pushed {
            return self.refuse(connection, &reason.into(), engine);
        }
        let Some(ConnectionStage::Body(stage)) = self.table.get_mut(connection) else { return };
        if !stage.body.is_whole() {
            return;
        }
        let wire = stage.wire;
        if !engine.can_open(wire, stage.body.bytes()) {
            return self.refuse(connection, &RefusalReason::Connect.into(), engine);
        }
        if let Err(refused) = self.admit(connection, engine) {
            return self.refuse(connection, &refused, engine);
        }
        let Some(stage) = self.table.get_mut(connection) else { return };
        let ConnectionStage::Body(request) =
            std::mem::replace(stage, ConnectionStage::Session(SessionStage::new(wire, false)))
        else {
            unreachable!("it was one just now")
        };
        let BodyStage { response, body, headers, .. } = *request;
        self.keep_headers(connection, headers);
        self.counters.upgraded += 1;
        let request = body.into_bytes();
        let opening = Opening { wire, response: &response, request: Some(&request), read: &mut [] };
        self.begin_session(connection, opening, engine);
    }

    /// Admits a connection as a session, or returns the response. Must be called before the handshake is processed.
    fn admit(&self, connection: ConnectionKey, engine: &Engine) -> Result<(), Refused> {
        if !self.life.is_open() {
            return Err(self.admission.refused_for_now(RefusalReason::Draining));
        }
        self.admission.admit(connection, engine.now().mono_us)
    }

    /// Removes a connection from the table. Its source address is kept until the index is reused.
    fn forget(&mut self, connection: ConnectionKey) -> Option<ConnectionStage> {
        let stage = self.table.remove(connection)?;
        self.begun_us.remove(&connection.index);
        self.admission.remove_pending(connection);
        self.shared.loads.leave(self.index.0);
        Some(stage)
    }

    /// Makes a connection a session. Returns the bytes after the head.
    fn become_session(&mut self, connection: ConnectionKey, session: SessionStage, head_len: usize) -> Vec<u8> {
        let stage = self.table.get_mut(connection);
        match stage.map(|stage| std::mem::replace(stage, ConnectionStage::Session(session))) {
            Some(ConnectionStage::Head(HeadStage { buffer })) => buffer.into_bytes().split_off(head_len),
            _ => unreachable!("only a head is judged"),
        }
    }

    fn begin_session(&mut self, connection: ConnectionKey, opening: Opening<'_>, engine: &mut Engine) {
        // The first bytes on a new socket fit into its buffer, or the socket is broken.
        let is_sent = opening.response.is_empty() || self.sockets.send_now(connection, opening.response, engine);
        self.open_session(connection, opening, engine);
        if !is_sent {
            self.end(connection, engine);
        }
    }

    fn keep_headers(&mut self, connection: ConnectionKey, headers: Option<PickedHeaders>) {
        if let Some(mut headers) = headers {
            if self.shared.tracer.is_some() {
                headers = TraceContext::shorten_picked(&headers);
            }
            self.picked_headers.insert(connection.index, headers);
        }
    }

    fn open_session(&mut self, connection: ConnectionKey, opening: Opening<'_>, engine: &mut Engine) {
        let Opening { wire, request, read, .. } = opening;
        self.admission.remove_pending(connection);
        self.sessions += 1;
        self.counters.opened[wire.index()] += 1;
        let source = self.admission.source_key(connection);
        let address = self.admission.address(connection).map(|address| address.to_canonical());
        engine.handle(Event::Opened { session: connection, wire, source, address });
        let Some(session) = self.table.session_mut(connection) else { return };
        if let Some(request) = request {
            engine.feed_message(session, connection, request);
        }
        engine.feed(session, connection, read);
        self.watch(connection, engine);
    }

    /// Whether the queue to the control thread has space for this connection.
    fn may_hand_over(&mut self, connection: ConnectionKey) -> bool {
        let net = &self.shared.net;
        if self.shared.hand_over.capacity() > net.handed_over_reserved {
            return true;
        }
        match self.table.get_mut(connection) {
            Some(ConnectionStage::Head(HeadStage { buffer })) => {
                net.operators_paths.iter().any(|path| is_request_for(buffer.bytes(), path))
            }
            _ => false,
        }
    }

    fn hand_over(&mut self, connection: ConnectionKey, engine: &mut Engine) {
        let may_hand_over = self.may_hand_over(connection);
        let place = self.shared.hand_over.clone().try_reserve_owned().ok();
        let Some(place) = place.filter(|_| may_hand_over) else {
            return self.refuse(connection, &RefusalReason::ControlBusy.into(), engine);
        };
        let mut behind_head = Vec::new();
        let (stream, tls) = match self.sockets.release(connection, &mut behind_head) {
            Ok(released) => released,
            Err(error) => {
                // The socket has no file descriptor, and none is left for it.
                self.count_failed_accept(&error);
                return self.refuse(connection, &RefusalReason::ControlBusy.into(), engine);
            }
        };
        let Some(ConnectionStage::Head(HeadStage { buffer })) = self.forget(connection) else { return };
        let mut head = buffer.into_bytes();
        head.append(&mut behind_head);
        match stream.peer_addr() {
            Ok(peer) => {
                self.counters.handed_over += 1;
                place.send(HandOver { stream, peer, head, tls });
            }
            // The peer has closed the connection during the request.
            Err(_) => self.counters.abandoned += 1,
        }
    }

    /// Responds, and waits for the client to close the connection.
    fn refuse(&mut self, connection: ConnectionKey, refused: &Refused, engine: &mut Engine) {
        self.counters.refused[refused.reason.index()] += 1;
        ConnectionRefused { shard: self.index, connection, reason: refused.reason.name() }.emit();
        let is_sent = self.sockets.send_now(connection, &refused.response, engine);
        self.sockets.finish(connection, engine);
        let Some(stage) = self.table.get_mut(connection) else { return };
        *stage = ConnectionStage::Lingering { bytes_left: LINGER_BYTES_MAX };
        if is_sent {
            self.linger(connection, engine);
        } else {
            self.end(connection, engine);
        }
    }

    /// Reads from a connection for a short time, although nothing more is sent to it.
    fn linger(&mut self, connection: ConnectionKey, engine: &Engine) {
        self.deadlines.linger.set(engine.now().mono_us + self.shared.net.linger_timeout_ms * 1_000, connection);
    }

    /// Closes a connection whose TLS has failed, after sending an alert if possible.
    fn hang_up_insecure(&mut self, connection: ConnectionKey, engine: &mut Engine) {
        match self.table.get_mut(connection) {
            Some(stage @ (ConnectionStage::Head(_) | ConnectionStage::Body(_))) => {
                *stage = ConnectionStage::Lingering { bytes_left: 0 };
                self.sockets.finish(connection, engine);
                self.linger(connection, engine);
            }
            Some(ConnectionStage::Session(_) | ConnectionStage::Lingering { .. }) => self.end(connection, engine),
            None => {}
        }
    }

    /// Shuts down the sending side of a session's socket, and keeps reading for a short time.
    pub(super) fn finish(&mut self, session: ConnectionKey, engine: &mut Engine) {
        self.sockets.finish(session, engine);
        // With TLS, encrypted bytes may be left. This method is called again when they are sent.
        if self.sockets.has_waiting(session) {
            return;
        }
        if let Some(stage) = self.table.session_mut(session)
            && !std::mem::replace(&mut stage.finished, true)
        {
            self.linger(session, engine);
        }
    }

    /// Closes a connection in any stage.
    pub(super) fn end(&mut self, connection: ConnectionKey, engine: &mut Engine) {
        let begun_us = self.begun_us.get(&connection.index).copied();
        let Some(stage) = self.forget(connection) else { return };
        if logs_connections() {
            self.log_end(connection, &stage, begun_us.map(|begun_us| engine.now().mono_us - begun_us));
        }
        if matches!(stage, ConnectionStage::Session(_)) {
            engine.handle(Event::Gone { session: connection });
            // What the kernel has counted about this connection is gone with its socket.
            self.tell_backend(engine);
        }
        self.sockets.close(connection);
        match stage {
            ConnectionStage::Head(HeadStage { buffer }) => self.counters.abandoned += u64::from(was_begun(&buffer)),
            ConnectionStage::Body(_) => self.counters.abandoned += 1,
            ConnectionStage::Lingering { .. } => {}
            ConnectionStage::Session(_) => {
                self.sessions -= 1;
                self.picked_headers.remove(&connection.index);
                self.admission.dismiss(connection, engine.now().mono_us);
            }
        }
    }

    /// Passes events to the webhooks. Must be called before the sockets of sessions that have ended are closed.
    pub(super) fn tell_backend(&mut self, engine: &mut Engine) {
        let Some(webhooks) = &self.shared.webhooks else { return };
        for event in engine.take_lifecycle() {
            let traffic = match event.what {
                Lifecycle::Disconnected { session, .. } => self.sockets.traffic(session),
                _ => None,
            };
            webhooks.push(Happened { event, traffic });
        }
    }

    /// Records recoveries, as parts of the traces of their sessions' own requests.
    pub(super) fn trace_recoveries(&self, engine: &mut Engine) {
        let Some(tracer) = &self.shared.tracer else { return };
        let now_us = engine.now().mono_us;
        for report in engine.take_recoveries() {
            let client = || self.picked_headers(report.session).as_deref().and_then(TraceContext::of_picked);
            let Some(span) = tracer.open_recovery(now_us, client) else { continue };
            let took = Duration::from_micros(now_us.saturating_sub(report.asked_us));
            let mut span = span.begun_before(took);
            span.set("dunlin.channel", &*report.channel);
            span.set("dunlin.recovered", if report.is_recovered { "yes" } else { "no" });
            span.set("dunlin.publications", i64::try_from(report.publications).unwrap_or(i64::MAX));
        }
    }

    fn note_beginning(&mut self, connection: ConnectionKey, engine: &Engine) {
        if logs_connections() {
            self.begun_us.insert(connection.index, engine.now().mono_us);
        }
    }

    /// Must be called before the socket is closed.
    fn log_end(&mut self, connection: ConnectionKey, stage: &ConnectionStage, took_us: Option<u64>) {
        let (address, traffic) = (self.admission.address_so_far(connection), self.sockets.traffic(connection));
        let (stage, took) = (stage.name(), took_us.map(Duration::from_micros));
        ConnectionEnded { shard: self.index, connection, stage, address, took, traffic }.emit();
    }

    /// Stops reading from a session.
    pub(super) fn pause(&mut self, session: ConnectionKey) {
        if let Some(stage) = self.table.session_mut(session) {
            stage.paused = true;
            self.sockets.pause(session);
        }
    }

    /// Reads from a session again, after its unread bytes.
    pub(super) fn resume(&mut self, session: ConnectionKey) {
        if let Some(stage) = self.table.session_mut(session) {
            stage.paused = false;
            if stage.unread.is_empty() && stage.mail.is_none() {
                self.sockets.resume(session);
            } else {
                self.resumed.push(session);
            }
        }
    }

    /// Whether resumed sessions have unread bytes.
    pub(super) fn has_resumed(&self) -> bool {
        !self.resumed.is_empty()
    }

    /// Processes the unread bytes of resumed sessions, once per turn each.
    pub(super) fn feed_resumed(&mut self, engine: &mut Engine) {
        for connection in std::mem::take(&mut self.resumed) {
            let Some(session) = self.table.session_mut(connection) else { continue };
            if session.paused {
                continue;
            }
            engine.feed_unread(session, connection);
            if !session.paused {
                self.sockets.resume(connection);
            }
            self.watch(connection, engine);
        }
    }

    /// Passes `commands` from a separate HTTP request to the session with this secret id, whose transport carries data
    /// only from the server. If the session is paused, they are queued in order.
    pub(super) fn emulate(&mut self, secret: &str, commands: Vec<u8>, engine: &mut Engine) -> Emulated {
        let Some(key) = engine.find_session(secret) else { return Emulated::Unknown };
        let Some(session) = self.table.session_mut(key).filter(|session| session.wire.is_emulated()) else {
            return Emulated::Unknown;
        };
        if !session.paused && session.mail.is_none() {
            engine.feed_message(session, key, &commands);
            return Emulated::Taken;
        }
        let mail = session.mail.get_or_insert_default();
        let waiting: usize = mail.iter().map(Vec::len).sum();
        if waiting + commands.len() > self.shared.net.mail_bytes_max || mail.len() >= MAIL_MAX {
            return Emulated::Busy;
        }
        mail.push_back(commands);
        Emulated::Taken
    }

    /// Sets a deadline for an incomplete message.
    fn watch(&mut self, connection: ConnectionKey, engine: &Engine) {
        let Some(session) = self.table.session_mut(connection) else { return };
        if session.receiver.unfinished_since_ms().is_some() && !session.watched {
            session.watched = true;
            let age_max_us = self.shared.net.limits(session.wire).unfinished_age_max_ms * 1_000;
            // The receiver counts whole milliseconds, so "longer than" begins with the next one.
            self.deadlines.message.set(engine.now().mono_us + age_max_us + 1_000, connection);
        }
    }

    /// The next deadline. Those of connections count only with `intake`, because without it nothing is read.
    pub(super) fn next_deadline_us(&self, intake: bool) -> Option<u64> {
        self.deadlines.next_us().filter(|_| intake).into_iter().chain(self.life.next_us()).min()
    }

    /// Must be called after the sockets were read.
    pub(super) fn meet_deadlines(&mut self, engine: &mut Engine) {
        let now_us = engine.now().mono_us;
        while let Some(connection) = self.deadlines.head.pop_due(now_us) {
            match self.table.get_mut(connection) {
                Some(ConnectionStage::Head(_)) => self.refuse(connection, &RefusalReason::HeadTimeout.into(), engine),
                // The deadline of the head has passed, but that of the body has not.
                Some(ConnectionStage::Body(stage)) if stage.due_us <= now_us => {
                    self.refuse(connection, &RefusalReason::BodyTimeout.into(), engine);
                }
                _ => {}
            }
        }
        while let Some(connection) = self.deadlines.linger.pop_due(now_us) {
            match self.table.get_mut(connection) {
                Some(ConnectionStage::Lingering { .. }) => self.end(connection, engine),
                Some(ConnectionStage::Session(session)) if session.finished => self.end(connection, engine),
                _ => {}
            }
        }
        while let Some(connection) = self.deadlines.message.pop_due(now_us) {
            self.check_message_age(connection, engine);
        }
    }

    fn check_message_age(&mut self, connection: ConnectionKey, engine: &mut Engine) {
        let Some(session) = self.table.session_mut(connection) else { return };
        let limits = self.shared.net.limits(session.wire);
        session.watched = false;
        // A message whose rest has arrived but was not processed is not late.
        let is_waiting_for_us = session.paused || !session.unread.is_empty() || self.sockets.has_unread(connection);
        if session.receiver.overdue(engine.now().mono_ms(), limits) && !is_waiting_for_us {
            session.deaf = true;
            engine.violated(connection, ReceiveError::MessageOverdue);
        } else {
            // A different message may have begun since; check again after the same time.
            self.watch(connection, engine);
        }
    }

    /// Accepts no more connections, and closes all sessions according to the plan. `gone` is notified after the last one.
    pub(super) fn begin_drain(&mut self, plan: DrainPlan, gone: oneshot::Sender<()>, now_us: u64) {
        let of_node = self.shared.gate.sessions.count();
        self.life = Life::begin_drain(plan, gone, [self.sessions, of_node], now_us);
        self.sockets.stop_listening();
    }

    /// Closes the sessions of the current step during a drain.
    pub(super) fn drain_on(&mut self, engine: &mut Engine) {
        if let Some(event) = self.life.drain_on(engine.now().mono_us) {
            engine.handle(event);
        }
    }

    pub(super) fn report_drained(&mut self) {
        if self.sessions == 0 {
            self.life.report_drained();
        }
    }

    /// The header fields of a session's request that are forwarded to backends.
    pub(super) fn picked_headers(&self, session: ConnectionKey) -> Option<PickedHeaders> {
        self.picked_headers.get(&session.index).cloned()
    }

    /// The address of the connection's client.
    pub(super) fn address(&self, connection: ConnectionKey) -> Option<IpAddr> {
        self.admission.address(connection)
    }

    /// The counters of the connections and their sockets.
    pub(super) fn counters(&self) -> NetCounters {
        let mut net = self.counters.clone();
        net.connections = self.table.len() as u64;
        net.connections_max = self.shared.loads.connections_max().map_or(0, u64::from);
        net.sessions = u64::from(self.sessions);
        self.sockets.count_into(&mut net);
        net
    }
}

/// What a session begins with.
struct Opening<'a> {
    wire: Wire,
    /// The bytes to write first; empty if they were written.
    response: &'a [u8],
    /// The connect request, if the HTTP request contains one.
    request: Option<&'a [u8]>,
    /// Bytes that were read after the HTTP request.
    read: &'a mut [u8],
}

fn on_bytes(
    stage: &mut ConnectionStage,
    engine: &mut Engine,
    acceptor: &Acceptor,
    connection: ConnectionKey,
    bytes: &mut [u8],
) -> IntakeOutcome {
    match stage {
        ConnectionStage::Session(session) => {
            if !session.take_ignored_bytes(bytes.len()) {
                return IntakeOutcome::TooMuch;
            }
            // An HTTP client sends no commands after its request.
            if !session.wire.is_websocket() {
                return IntakeOutcome::Nothing;
            }
            engine.feed(session, connection, bytes);
            IntakeOutcome::Session
        }
        ConnectionStage::Body(stage) => IntakeOutcome::Body(stage.body.push(bytes)),
        ConnectionStage::Head(HeadStage { buffer }) => IntakeOutcome::Head(acceptor.judge(buffer, bytes)),
        ConnectionStage::Lingering { bytes_left } => match bytes_left.checked_sub(bytes.len()) {
            Some(fewer) => {
                *bytes_left = fewer;
                IntakeOutcome::Nothing
            }
            None => IntakeOutcome::TooMuch,
        },
    }
}

fn is_below(stream: &TcpStream, descriptor: u32) -> bool {
    u32::try_from(stream.as_raw_fd()).is_ok_and(|found| found < descriptor)
}

/// Whether a request is for `path` or for a path below it.
fn is_request_for(head: &[u8], path: &str) -> bool {
    let mut words = head.trim_ascii_start().split(u8::is_ascii_whitespace);
    let rest = words.nth(1).and_then(|target| target.strip_prefix(path.as_bytes()));
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'/' | b'?')))
}

fn was_begun(buffer: &HeadBuffer) -> bool {
    !buffer.bytes().is_empty()
}

#[cfg(test)]
mod tests {
    use super::is_request_for;

    #[test]
    fn a_path_prefix_matches_itself_and_its_subpaths() {
        for (line, path, expected) in [
            ("GET /health HTTP/1.1\r\n", "/health", true),
            ("\r\nGET /health?a=b HTTP/1.1\r\n", "/health", true),
            ("POST /api/publish HTTP/1.1\r\n", "/api", true),
            ("POST /apis HTTP/1.1\r\n", "/api", false),
            ("GET /elsewhere/health HTTP/1.1\r\n", "/health", false),
            ("GET", "/health", false),
            ("", "/health", false),
        ] {
            assert_eq!(is_request_for(line.as_bytes(), path), expected, "{line:?} {path}");
        }
    }
}
