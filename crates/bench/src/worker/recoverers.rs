//! A worker with sessions that connect once, recover from given positions, and report the recovered publications.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll, Token};

use super::dialogue::{Ended, LoadSessionStage, Observer};
use super::session::Session;
use super::{BUFFER_BYTES, answer, commands_for, poll_failed, wait_for_events};
use crate::commands::{self, EncodingOption};
use crate::control::{ClientsRole, Recovered, RecoveryGroup, WorkerCommand, WorkerReply};
use crate::error::Error;
use crate::payload::StampFinder;
use crate::proc;
use crate::tally::Tally;
use crate::wire;

const COMMANDS: Token = Token(usize::MAX);
/// Timeout for sessions to become ready.
const PATIENCE: Duration = Duration::from_mins(2);

pub fn play(role: ClientsRole) -> Result<(), Error> {
    let poll = Poll::new().map_err(poll_failed)?;
    let commands = commands_for(&poll, COMMANDS)?;
    let tally = Tally::open(Path::new(&role.tally))?;
    let recoverers = Recoverers {
        poll,
        sessions: Vec::new(),
        finder: StampFinder::new(),
        buffer: vec![0; BUFFER_BYTES],
        waiting: Vec::new(),
        handshakes: 0,
        recovered: None,
        give_up: Instant::now(),
        role,
    };
    recoverers.run(&commands, &tally)
}

struct Recoverers {
    role: ClientsRole,
    poll: Poll,
    sessions: Vec<Recoverer>,
    finder: StampFinder,
    buffer: Vec<u8>,
    /// The groups of the sessions that are to be opened, the next one last.
    waiting: Vec<RecoveryGroup>,
    /// Sessions that are neither ready nor failed.
    handshakes: usize,
    /// The result of the current command.
    recovered: Option<Recovered>,
    give_up: Instant,
}

struct Recoverer {
    /// None after its end.
    session: Option<Session>,
    opened_ns: u64,
    /// The number of publications that it must recover; none if it does not recover.
    expected: Option<u64>,
}

/// Processes the messages of one session.
struct Sink<'a> {
    finder: &'a StampFinder,
    encoding: EncodingOption,
    publications: u64,
    is_recovered: bool,
}

impl Observer for Sink<'_> {
    fn message(&mut self, message: &[u8]) -> bool {
        let Some(position) = wire::subscribed(self.encoding, message) else { return false };
        self.is_recovered |= position.recovered;
        let mut rest = message;
        while let Some((_, after)) = self.finder.take(rest) {
            self.publications += 1;
            rest = after;
        }
        false
    }
}

impl Recoverers {
    fn run(mut self, commands: &Receiver<WorkerCommand>, tally: &Tally) -> Result<(), Error> {
        let mut events = Events::with_capacity(1024);
        let slot = tally.slot(self.role.worker);
        loop {
            self.open_more()?;
            self.answer_what_is_settled();
            let timeout = self.recovered.as_ref().map(|_| Duration::from_millis(20));
            wait_for_events(&mut self.poll, &mut events, timeout)?;
            for event in &events {
                if event.token() != COMMANDS {
                    self.on_event(event.token().0, event.is_writable(), event.is_read_closed());
                }
            }
            slot.ready.store(self.recovered.as_ref().map_or(0, |recovered| recovered.ready), Ordering::Relaxed);
            while let Ok(command) = commands.try_recv() {
                match command {
                    WorkerCommand::Recover { groups } => self.begin(&groups),
                    _ => answer(&WorkerReply::Failed { message: "these subscribers only recover".into() }),
                }
            }
        }
    }

    /// Sessions of all groups are opened alternately.
    fn begin(&mut self, groups: &[RecoveryGroup]) {
        let most = groups.iter().map(|group| group.sessions).max().unwrap_or(0);
        for round in 0..most {
            self.waiting.extend(groups.iter().filter(|group| group.sessions > round).cloned());
        }
        self.recovered = Some(Recovered::default());
        self.give_up = Instant::now() + PATIENCE;
    }

    fn open_more(&mut self) -> Result<(), Error> {
        while self.handshakes < self.role.handshakes_max
            && let Some(group) = self.waiting.pop()
        {
            let target = &self.role.target;
            let mut session = match Session::open(self.role.source, target.address, None, true) {
                Ok(session) => session,
                Err(err) => {
                    self.fail(format!("open: {err}"));
                    continue;
                }
            };
            session.greet_with(match group.expected {
                Some(_) => commands::hello_again(target.encoding, &group.channel, &group.epoch, group.offset),
                None => commands::hello(target.encoding, Some(&group.channel), None),
            });
            let interest = Interest::READABLE | Interest::WRITABLE;
            let token = Token(self.sessions.len());
            self.poll.registry().register(session.socket(), token, interest).map_err(poll_failed)?;
            let opened_ns = proc::now_ns();
            self.sessions.push(Recoverer { session: Some(session), opened_ns, expected: group.expected });
            self.handshakes += 1;
        }
        Ok(())
    }

    fn fail(&mut self, why: Ended) {
        if let Some(recovered) = &mut self.recovered {
            *recovered.failed.entry(why).or_default() += 1;
        }
    }

    fn on_event(&mut self, number: usize, writable: bool, read_closed: bool) {
        let Some(recoverer) = self.sessions.get_mut(number) else { return };
        let Some(session) = &mut recoverer.session else { return };
        let before = session.stage();
        let mut sink =
            Sink { finder: &self.finder, encoding: self.role.target.encoding, publications: 0, is_recovered: false };
        let result = if before == LoadSessionStage::Connecting {
            if !writable {
                return;
            }
            let connected = session.connected(&self.role.target);
            let registry = self.poll.registry();
            let reregistered = registry.reregister(session.socket(), Token(number), Interest::READABLE);
            connected.and(reregistered.map_err(|err| format!("register: {err}")))
        } else {
            session.read_all(&self.role.target, &mut self.buffer, &mut sink, read_closed)
        };
        let is_ready = before != LoadSessionStage::Ready && session.stage() == LoadSessionStage::Ready;
        if let (true, Some(recovered)) = (is_ready, &mut self.recovered) {
            self.handshakes -= 1;
            recovered.ready += 1;
            recovered.time.record_ns(proc::now_ns() - recoverer.opened_ns);
            if let Some(expected) = recoverer.expected {
                recovered.unrecovered += u64::from(!sink.is_recovered);
                recovered.publications += sink.publications;
                recovered.missing += expected.saturating_sub(sink.publications);
            }
        }
        if let Err(why) = result {
            recoverer.session = None;
            self.handshakes -= usize::from(!is_ready && before != LoadSessionStage::Ready);
            self.fail(why);
        }
    }

    fn answer_what_is_settled(&mut self) {
        let is_over = Instant::now() > self.give_up;
        if !is_over && (self.handshakes > 0 || !self.waiting.is_empty()) {
            return;
        }
        if let Some(mut recovered) = self.recovered.take() {
            let given_up = (self.handshakes + self.waiting.len()) as u64;
            if given_up > 0 {
                recovered.failed.insert("not ready in 2 minutes".into(), given_up);
            }
            answer(&WorkerReply::Recovered(Box::new(recovered)));
        }
    }
}
