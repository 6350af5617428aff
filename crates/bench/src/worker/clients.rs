//! A worker with subscribers: one thread, one epoll, one read buffer.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll, Token};
use rustls::ClientConfig;

use super::dialogue::{Ended, LoadSessionStage, Observer};
use super::secure::{secure, tls_config};
use super::sequences::Sequences;
use super::session::{Session, Taken};
use super::{BUFFER_BYTES, answer, commands_for, poll_failed, wait_for_events};
use crate::control::{ClientsRole, Connected, Slow, SubscriberReport, WorkerCommand, WorkerReply};
use crate::error::Error;
use crate::payload::{Stamp, StampFinder};
use crate::proc;
use crate::tally::Tally;

const COMMANDS: Token = Token(usize::MAX);
/// Maximum time without progress of any session.
const CONNECT_PATIENCE: Duration = Duration::from_secs(30);
/// A slow reader that reads again has received everything when no data arrives for this long.
const SLOW_PATIENCE: Duration = Duration::from_secs(3);

pub fn play(role: ClientsRole) -> Result<(), Error> {
    let poll = Poll::new().map_err(poll_failed)?;
    let commands = commands_for(&poll, COMMANDS)?;
    let tally = Tally::open(Path::new(&role.tally))?;
    let tls = if role.target.tls { Some(tls_config()?) } else { None };
    let clients = Clients {
        tls,
        poll,
        sessions: Vec::new(),
        finder: StampFinder::new(),
        buffer: vec![0; BUFFER_BYTES],
        to_open: 0,
        slow_to_open: 0,
        handshakes: 0,
        connected: Connected::default(),
        phase: Phase::default(),
        slow_closed: BTreeMap::new(),
        waiting: None,
        role,
    };
    clients.run(&commands, &tally)
}

struct Clients {
    role: ClientsRole,
    /// The TLS configuration of connections, if they use TLS.
    tls: Option<Arc<ClientConfig>>,
    poll: Poll,
    sessions: Vec<Reader>,
    finder: StampFinder,
    buffer: Vec<u8>,
    to_open: usize,
    slow_to_open: usize,
    handshakes: usize,
    connected: Connected,
    phase: Phase,
    slow_closed: BTreeMap<String, u64>,
    waiting: Option<Waiting>,
}

/// A command whose answer is pending.
enum Waiting {
    Connected { patience: Instant },
    Slow { patience: Instant, end_sequence: u64 },
}

/// A session, and the publications that it expects.
struct Reader {
    /// None after its end.
    session: Option<Session>,
    sequences: Sequences,
    slow: bool,
}

#[derive(Default)]
struct Phase {
    first_sequence: u64,
    received: SubscriberReport,
    deliveries_ever: u64,
    cpu_before_ns: u64,
}

/// Processes the publications of one read of one session.
struct Sink<'a> {
    finder: &'a StampFinder,
    sequences: &'a mut Sequences,
    phase: &'a mut Phase,
    slow: bool,
    read_ns: Option<u64>,
}

impl Observer for Sink<'_> {
    fn frame(&mut self) {
        if !self.slow {
            self.phase.received.frames += 1;
        }
    }

    fn message(&mut self, message: &[u8]) -> bool {
        let stamp = self.finder.find(message);
        if let Some(stamp) = stamp {
            self.publication(stamp);
        }
        stamp.is_some()
    }
}

impl Sink<'_> {
    fn publication(&mut self, stamp: Stamp) {
        if stamp.sequence < self.phase.first_sequence && !self.slow {
            self.phase.received.late += 1;
        } else if self.sequences.take(stamp.sequence) && !self.slow {
            self.phase.deliveries_ever += 1;
            let read_ns = *self.read_ns.get_or_insert_with(proc::now_ns);
            self.phase.received.latency.record_ns(read_ns.saturating_sub(stamp.intended_ns));
        }
    }
}

impl Clients {
    fn run(mut self, commands: &Receiver<WorkerCommand>, tally: &Tally) -> Result<(), Error> {
        let mut events = Events::with_capacity(1024);
        let slot = tally.slot(self.role.worker);
        loop {
            self.open_more()?;
            self.answer_what_is_settled();
            let timeout = self.waiting.as_ref().map(|_| Duration::from_millis(20));
            wait_for_events(&mut self.poll, &mut events, timeout)?;
            for event in &events {
                if event.token() != COMMANDS {
                    self.on_event(event.token().0, event.is_writable(), event.is_read_closed());
                }
            }
            slot.deliveries.store(self.phase.deliveries_ever, Ordering::Relaxed);
            slot.ready.store(self.connected.ready as u64, Ordering::Relaxed);
            while let Ok(command) = commands.try_recv() {
                self.on_command(&command)?;
            }
        }
    }

    fn on_command(&mut self, command: &WorkerCommand) -> Result<(), Error> {
        match *command {
            WorkerCommand::Connect { sessions, slow } => {
                self.to_open = sessions;
                self.slow_to_open = slow;
                self.waiting = Some(Waiting::Connected { patience: Instant::now() + CONNECT_PATIENCE });
            }
            WorkerCommand::Begin { first_sequence } => {
                // Sessions that ended between two phases are reported with the later one.
                let closed = std::mem::take(&mut self.phase.received.closed);
                self.phase = Phase {
                    first_sequence,
                    received: SubscriberReport { closed, ..SubscriberReport::default() },
                    deliveries_ever: self.phase.deliveries_ever,
                    cpu_before_ns: proc::own_cpu_ns(),
                };
                // A slow reader is counted over the whole run: it may read the publications of one phase in the next.
                for reader in self.sessions.iter_mut().filter(|reader| !reader.slow) {
                    reader.sequences = Sequences { next: first_sequence, ..Sequences::default() };
                }
                answer(&WorkerReply::Done);
            }
            WorkerCommand::End { end_sequence } => {
                answer(&WorkerReply::Received(Box::new(self.end_phase(end_sequence))));
            }
            WorkerCommand::PauseSlow => {
                for reader in self.sessions.iter_mut().filter(|reader| reader.slow) {
                    if let Some(session) = &mut reader.session {
                        self.poll.registry().deregister(session.socket()).map_err(poll_failed)?;
                    }
                }
                answer(&WorkerReply::Done);
            }
            WorkerCommand::WakeSlow { end_sequence } => {
                for (number, reader) in self.sessions.iter_mut().enumerate().filter(|(_, reader)| reader.slow) {
                    if let Some(session) = &mut reader.session {
                        let registry = self.poll.registry();
                        registry.register(session.socket(), Token(number), Interest::READABLE).map_err(poll_failed)?;
                    }
                }
                self.waiting = Some(Waiting::Slow { patience: Instant::now() + SLOW_PATIENCE, end_sequence });
            }
            WorkerCommand::Publish(_)
            | WorkerCommand::Send(_)
            | WorkerCommand::Play(_)
            | WorkerCommand::Crew(_)
            | WorkerCommand::Cut
            | WorkerCommand::Lose { .. }
            | WorkerCommand::Recover { .. } => {
                answer(&WorkerReply::Failed { message: "subscribers do nothing but read".into() });
            }
        }
        Ok(())
    }

    fn open_more(&mut self) -> Result<(), Error> {
        while self.to_open > 0 && self.handshakes < self.role.handshakes_max {
            let slow = self.slow_to_open > 0;
            self.to_open -= 1;
            self.slow_to_open -= usize::from(slow);
            let receive_bytes = slow.then_some(self.role.slow_receive_bytes);
            match Session::open(self.role.source, self.role.target.address, receive_bytes, true) {
                Ok(mut session) => {
                    if let Some(config) = &self.tls {
                        session.speak_tls(secure(config)?);
                    }
                    let token = Token(self.sessions.len());
                    let interest = Interest::READABLE | Interest::WRITABLE;
                    self.poll.registry().register(session.socket(), token, interest).map_err(poll_failed)?;
                    self.sessions.push(Reader { session: Some(session), sequences: Sequences::default(), slow });
                    self.handshakes += 1;
                }
                Err(err) => *self.connected.failed.entry(format!("open: {err}")).or_default() += 1,
            }
        }
        Ok(())
    }

    fn on_event(&mut self, number: usize, writable: bool, read_closed: bool) {
        let Some(reader) = self.sessions.get_mut(number) else { return };
        let Some(session) = &mut reader.session else { return };
        let before = session.stage();
        let mut result = Ok(());
        if before == LoadSessionStage::Connecting && writable {
            result = session.connected(&self.role.target);
            // From now on, wait only for readable data.
            let token = Token(number);
            let reregistered = self.poll.registry().reregister(session.socket(), token, Interest::READABLE);
            result = result.and(reregistered.map_err(|err| format!("register: {err}")));
        } else if before != LoadSessionStage::Connecting {
            let mut sink = Sink {
                finder: &self.finder,
                sequences: &mut reader.sequences,
                phase: &mut self.phase,
                slow: reader.slow,
                read_ns: None,
            };
            result = read_all(session, &self.role, &mut self.buffer, &mut sink, read_closed);
        }
        let after = session.stage();
        if before != LoadSessionStage::Ready && (after == LoadSessionStage::Ready || result.is_err()) {
            self.handshakes -= 1;
        }
        if before != LoadSessionStage::Ready && after == LoadSessionStage::Ready {
            self.connected.ready += 1;
            // This session can only be expected to receive later publications.
            reader.sequences.next = reader.sequences.next.max(self.phase.first_sequence);
        }
        self.be_patient(reader_is_slow(&self.sessions, number));
        if let Err(why) = result {
            self.end_session(number, after, why);
        }
    }

    fn end_session(&mut self, number: usize, stage: LoadSessionStage, why: Ended) {
        let Some(reader) = self.sessions.get_mut(number) else { return };
        // Dropping the socket closes it, which also takes it out of the poll.
        reader.session = None;
        let counts = match (stage, reader.slow) {
            (LoadSessionStage::Ready, true) => &mut self.slow_closed,
            (LoadSessionStage::Ready, false) => &mut self.phase.received.closed,
            _ => &mut self.connected.failed,
        };
        *counts.entry(why).or_default() += 1;
        if stage == LoadSessionStage::Ready {
            self.connected.ready -= 1;
        }
    }

    /// Restarts the timeout because there was progress.
    fn be_patient(&mut self, by_slow: bool) {
        match &mut self.waiting {
            Some(Waiting::Connected { patience }) => *patience = Instant::now() + CONNECT_PATIENCE,
            Some(Waiting::Slow { patience, .. }) if by_slow => *patience = Instant::now() + SLOW_PATIENCE,
            _ => {}
        }
    }

    fn answer_what_is_settled(&mut self) {
        match self.waiting {
            Some(Waiting::Connected { patience }) => {
                if Instant::now() > patience {
                    let given_up = (self.to_open + self.handshakes) as u64;
                    self.to_open = 0;
                    *self.connected.failed.entry("no answer in 30 s".into()).or_default() += given_up;
                } else if self.to_open > 0 || self.handshakes > 0 {
                    return;
                }
                answer(&WorkerReply::Connected(self.connected.clone()));
            }
            Some(Waiting::Slow { patience, end_sequence }) => {
                let reads_on =
                    |reader: &&Reader| reader.slow && reader.session.is_some() && reader.sequences.next < end_sequence;
                if Instant::now() <= patience && self.sessions.iter().any(|reader| reads_on(&reader)) {
                    return;
                }
                answer(&WorkerReply::Slow(self.slow_outcome(end_sequence)));
            }
            None => return,
        }
        self.waiting = None;
    }

    fn end_phase(&mut self, end_sequence: u64) -> SubscriberReport {
        let mut received = std::mem::take(&mut self.phase.received);
        for reader in self.sessions.iter_mut().filter(|reader| !reader.slow) {
            let settled = reader.sequences.settle(end_sequence);
            received.deliveries += settled.received;
            received.lost += settled.lost;
            received.duplicated += settled.duplicated;
        }
        received.cpu_ns = proc::own_cpu_ns() - self.phase.cpu_before_ns;
        received
    }

    fn slow_outcome(&self, end_sequence: u64) -> Slow {
        let mut slow = Slow { closed: self.slow_closed.clone(), ..Slow::default() };
        for reader in self.sessions.iter().filter(|reader| reader.slow) {
            slow.sessions += 1;
            slow.deliveries += reader.sequences.received;
            match &reader.session {
                Some(_) if reader.sequences.next >= end_sequence => {
                    slow.newest += 1;
                    slow.skipped += reader.sequences.lost;
                }
                Some(_) => slow.behind += 1,
                None => {}
            }
        }
        slow
    }
}

fn reader_is_slow(sessions: &[Reader], number: usize) -> bool {
    sessions.get(number).is_some_and(|reader| reader.slow)
}

fn read_all(
    session: &mut Session,
    role: &ClientsRole,
    buffer: &mut [u8],
    sink: &mut Sink<'_>,
    read_closed: bool,
) -> Result<(), Ended> {
    loop {
        sink.read_ns = None;
        match session.read(&role.target, buffer, sink)? {
            Taken::Nothing => return Ok(()),
            Taken::Bytes { bytes, more } => {
                if !sink.slow {
                    sink.phase.received.reads += 1;
                    sink.phase.received.bytes += bytes as u64;
                }
                // A read that did not fill the buffer has emptied the socket (epoll(7)), unless the end follows.
                if !more && !read_closed {
                    return Ok(());
                }
            }
        }
    }
}
