//! A worker with subscribers that reconnect as the SDKs do: after a jittered delay that grows with each attempt, and
//! with the position of their last publication.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll, Token};

use super::dialogue::{Ended, LoadSessionStage, Observer};
use super::sequences::Sequences;
use super::session::Session;
use super::{BUFFER_BYTES, answer, commands_for, poll_failed, wait_for_events};
use crate::commands::{self, EncodingOption};
use crate::control::{ClientsRole, Connected, Returned, SubscriberReport, WorkerCommand, WorkerReply};
use crate::error::Error;
use crate::payload::StampFinder;
use crate::proc;
use crate::tally::Tally;
use crate::wire;

const COMMANDS: Token = Token(usize::MAX);
/// The delays of the JavaScript SDK: from half a second to twenty seconds.
const DELAY_MIN_MS: u64 = 500;
const DELAY_MAX_MS: u64 = 20_000;
/// Timeout for sessions to reconnect.
const RETURN_PATIENCE: Duration = Duration::from_mins(1);
/// Timeout for the first sessions to become ready.
const CONNECT_PATIENCE: Duration = Duration::from_secs(30);

pub fn play(role: ClientsRole) -> Result<(), Error> {
    let poll = Poll::new().map_err(poll_failed)?;
    let commands = commands_for(&poll, COMMANDS)?;
    let tally = Tally::open(Path::new(&role.tally))?;
    let random = proc::now_ns() ^ (role.worker as u64) << 48 | 1;
    let subscribers = ReconnectingSubscribers {
        poll,
        sessions: Vec::new(),
        finder: StampFinder::new(),
        buffer: vec![0; BUFFER_BYTES],
        to_open: 0,
        handshakes: 0,
        ready: 0,
        deliveries: 0,
        due: BinaryHeap::new(),
        epoch: String::new(),
        random,
        failed: BTreeMap::new(),
        returned: None,
        patience: None,
        role,
    };
    subscribers.run(&commands, &tally)
}

struct ReconnectingSubscribers {
    role: ClientsRole,
    poll: Poll,
    sessions: Vec<ReconnectingSubscriber>,
    finder: StampFinder,
    buffer: Vec<u8>,
    /// Number of sessions that are not opened for the first time yet.
    to_open: usize,
    /// Sessions of the first connect that are neither ready nor failed.
    handshakes: usize,
    ready: u64,
    deliveries: u64,
    /// The sessions that will retry, by time.
    due: BinaryHeap<Reverse<(Instant, usize)>>,
    /// The epoch of the channel, from the first subscription.
    epoch: String,
    random: u64,
    /// Failed attempts.
    failed: BTreeMap<String, u64>,
    /// The result for sessions that were cut off, while the worker waits for them.
    returned: Option<Returned>,
    patience: Option<Instant>,
}

/// A session, or the state for its reconnect.
struct ReconnectingSubscriber {
    session: Option<Session>,
    sequences: Sequences,
    attempts: u32,
    /// The time of the cut, until the session is back.
    away_since: Option<Instant>,
    /// Whether it was cut off and is back.
    is_back: bool,
    /// The node that it connects to: the target, then the others.
    place: usize,
    /// Its position, if there are other nodes.
    offset: u64,
}

/// Processes the messages of one session.
struct Sink<'a> {
    finder: &'a StampFinder,
    sequences: &'a mut Sequences,
    encoding: EncodingOption,
    epoch: &'a mut String,
    /// Its newest offset, if offsets are not the numbers of publications.
    offset: Option<&'a mut u64>,
    deliveries: &'a mut u64,
    unrecovered: u64,
}

impl Observer for Sink<'_> {
    /// Processes the publications of a push or of a recovery.
    fn message(&mut self, message: &[u8]) -> bool {
        let mut rest = message;
        let mut found = false;
        while let Some((stamp, after)) = self.finder.take(rest) {
            found = true;
            *self.deliveries += u64::from(self.sequences.take(stamp.sequence));
            rest = after;
        }
        if let (Some(offset), Some(newest)) = (self.offset.as_deref_mut(), wire::newest_offset(message)) {
            *offset = newest.max(*offset);
        }
        let Some(position) = wire::subscribed(self.encoding, message) else { return found };
        if self.epoch.is_empty() {
            self.epoch.push_str(&position.epoch);
        }
        self.unrecovered += u64::from(position.was_recovering && !position.recovered);
        // A reply that the session must process.
        false
    }
}

impl ReconnectingSubscribers {
    fn run(mut self, commands: &Receiver<WorkerCommand>, tally: &Tally) -> Result<(), Error> {
        let mut events = Events::with_capacity(1024);
        let slot = tally.slot(self.role.worker);
        loop {
            self.open_first()?;
            self.open_due()?;
            self.answer_what_is_settled();
            let timeout = self.timeout();
            wait_for_events(&mut self.poll, &mut events, timeout)?;
            for event in &events {
                if event.token() != COMMANDS {
                    self.on_event(event.token().0, event.is_writable(), event.is_read_closed());
                }
            }
            slot.deliveries.store(self.deliveries, Ordering::Relaxed);
            slot.ready.store(self.ready, Ordering::Relaxed);
            while let Ok(command) = commands.try_recv() {
                self.on_command(&command);
            }
        }
    }

    fn timeout(&self) -> Option<Duration> {
        let next = self.due.peek().map(|Reverse((due, _))| due.saturating_duration_since(Instant::now()));
        let look = self.patience.map(|_| Duration::from_millis(20));
        next.into_iter().chain(look).min()
    }

    fn on_command(&mut self, command: &WorkerCommand) {
        match *command {
            WorkerCommand::Connect { sessions, .. } => {
                self.to_open = sessions;
                self.patience = Some(Instant::now() + CONNECT_PATIENCE);
            }
            WorkerCommand::Cut => self.cut(),
            WorkerCommand::Lose { address } => self.expect_loss(address),
            WorkerCommand::End { end_sequence } => {
                let mut received = SubscriberReport::default();
                for subscriber in &mut self.sessions {
                    let settled = subscriber.sequences.settle(end_sequence);
                    received.deliveries += settled.received;
                    received.lost += settled.lost;
                    received.duplicated += settled.duplicated;
                }
                answer(&WorkerReply::Received(Box::new(received)));
            }
            _ => answer(&WorkerReply::Failed { message: "these subscribers only come back".into() }),
        }
    }

    /// Drops every connection, as in a network failure.
    fn cut(&mut self) {
        self.failed.clear();
        self.returned = Some(Returned { cut: self.sessions.len() as u64, ..Returned::default() });
        self.patience = Some(Instant::now() + RETURN_PATIENCE);
        let now = Instant::now();
        for number in 0..self.sessions.len() {
            let subscriber = &mut self.sessions[number];
            subscriber.session = None;
            subscriber.attempts = 0;
            subscriber.is_back = false;
            subscriber.away_since = Some(now);
            self.come_back_later(number);
        }
        self.ready = 0;
    }

    /// Marks the sessions of this address, which will be lost without a cut.
    fn expect_loss(&mut self, address: SocketAddr) {
        self.failed.clear();
        self.sessions.iter_mut().for_each(|subscriber| subscriber.is_back = false);
        let cut = self.sessions.iter().filter(|subscriber| address_of(&self.role, subscriber.place) == address).count();
        self.returned = Some(Returned { cut: cut as u64, ..Returned::default() });
        self.patience = Some(Instant::now() + RETURN_PATIENCE);
    }

    fn come_back_later(&mut self, number: usize) {
        let attempts = self.sessions[number].attempts;
        let spread_ms = DELAY_MAX_MS.min(DELAY_MIN_MS << attempts.min(16));
        let delay_ms = DELAY_MAX_MS.min(DELAY_MIN_MS + self.random() % spread_ms);
        self.due.push(Reverse((Instant::now() + Duration::from_millis(delay_ms), number)));
    }

    /// Xorshift (Marsaglia), which is sufficient to spread delays.
    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random >> 16
    }

    fn open_first(&mut self) -> Result<(), Error> {
        while self.to_open > 0 && self.handshakes < self.role.handshakes_max {
            self.to_open -= 1;
            self.handshakes += 1;
            self.sessions.push(ReconnectingSubscriber {
                session: None,
                sequences: Sequences::default(),
                attempts: 0,
                away_since: None,
                is_back: false,
                place: self.sessions.len() % (1 + self.role.others.len()),
                offset: 0,
            });
            self.open(self.sessions.len() - 1)?;
        }
        Ok(())
    }

    fn open_due(&mut self) -> Result<(), Error> {
        let now = Instant::now();
        while let Some(Reverse((due, number))) = self.due.peek().copied()
            && due <= now
        {
            self.due.pop();
            self.open(number)?;
        }
        Ok(())
    }

    fn open(&mut self, number: usize) -> Result<(), Error> {
        let target = &self.role.target;
        let subscriber = &mut self.sessions[number];
        subscriber.attempts += 1;
        let opened = Session::open(self.role.source, address_of(&self.role, subscriber.place), None, true);
        let mut session = match opened {
            Ok(session) => session,
            Err(err) => {
                self.fail(number, format!("open: {err}"));
                return Ok(());
            }
        };
        if subscriber.away_since.is_some() {
            // With one publisher and one channel from its beginning, the offset is the number of publications so far.
            let is_alone = self.role.others.is_empty();
            let offset = if is_alone { subscriber.sequences.next } else { subscriber.offset };
            session.greet_with(commands::hello_again(target.encoding, &target.channel, &self.epoch, offset));
        }
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.poll.registry().register(session.socket(), Token(number), interest).map_err(poll_failed)?;
        subscriber.session = Some(session);
        Ok(())
    }

    fn on_event(&mut self, number: usize, writable: bool, read_closed: bool) {
        let Some(subscriber) = self.sessions.get_mut(number) else { return };
        let Some(session) = &mut subscriber.session else { return };
        let before = session.stage();
        let mut unrecovered = 0;
        let result = if before == LoadSessionStage::Connecting && writable {
            let connected = session.connected(&self.role.target);
            let registry = self.poll.registry();
            let reregistered = registry.reregister(session.socket(), Token(number), Interest::READABLE);
            connected.and(reregistered.map_err(|err| format!("register: {err}")))
        } else if before == LoadSessionStage::Connecting {
            Ok(())
        } else {
            let mut sink = Sink {
                finder: &self.finder,
                sequences: &mut subscriber.sequences,
                encoding: self.role.target.encoding,
                epoch: &mut self.epoch,
                offset: (!self.role.others.is_empty()).then_some(&mut subscriber.offset),
                deliveries: &mut self.deliveries,
                unrecovered: 0,
            };
            let read = session.read_all(&self.role.target, &mut self.buffer, &mut sink, read_closed);
            unrecovered = sink.unrecovered;
            read
        };
        let after = session.stage();
        if before != LoadSessionStage::Ready && after == LoadSessionStage::Ready {
            self.welcome(number);
        }
        if let Some(returned) = &mut self.returned {
            returned.unrecovered += unrecovered;
        }
        if let Err(why) = result {
            self.ready -= u64::from(after == LoadSessionStage::Ready);
            self.fail(number, why);
        }
    }

    fn welcome(&mut self, number: usize) {
        self.ready += 1;
        let subscriber = &mut self.sessions[number];
        match (subscriber.away_since.take(), &mut self.returned) {
            (Some(since), Some(outcome)) => {
                outcome.back += 1;
                subscriber.is_back = true;
                outcome.attempts += u64::from(subscriber.attempts);
                outcome.absence.record_ns(since.elapsed().as_nanos() as u64);
            }
            _ => self.handshakes = self.handshakes.saturating_sub(1),
        }
    }

    /// Processes the end of a session or a failed attempt. After the cut, the session retries; before it, the run has
    /// failed.
    fn fail(&mut self, number: usize, why: Ended) {
        *self.failed.entry(why).or_default() += 1;
        let subscriber = &mut self.sessions[number];
        subscriber.session = None;
        if let Some(returned) = &mut self.returned {
            // A session that was back and is lost again counts as away.
            returned.back -= u64::from(std::mem::take(&mut subscriber.is_back));
            if subscriber.away_since.is_none() {
                subscriber.away_since = Some(Instant::now());
                subscriber.attempts = 0;
                returned.ended_at_ms.push(proc::now_ns() / 1_000_000);
            }
            // The sessions of a node are spread over all other nodes.
            let others = self.role.others.len();
            subscriber.place = (subscriber.place + 1 + number.checked_rem(others).unwrap_or(0)) % (1 + others);
            self.come_back_later(number);
        } else {
            self.handshakes = self.handshakes.saturating_sub(1);
        }
    }

    fn answer_what_is_settled(&mut self) {
        let Some(patience) = self.patience else { return };
        let is_over = Instant::now() > patience;
        if let Some(returned) = &self.returned {
            if returned.back < returned.cut && !is_over {
                return;
            }
            let failed = self.failed.clone();
            answer(&WorkerReply::Returned(Box::new(Returned { failed, ..returned.clone() })));
        } else {
            if (self.to_open > 0 || self.handshakes > 0) && !is_over {
                return;
            }
            if is_over {
                *self.failed.entry("no answer in 30 s".into()).or_default() += 1;
            }
            let failed = self.failed.clone();
            answer(&WorkerReply::Connected(Connected { ready: self.ready as usize, failed }));
        }
        self.patience = None;
    }
}

fn address_of(role: &ClientsRole, place: usize) -> SocketAddr {
    place.checked_sub(1).and_then(|other| role.others.get(other)).copied().unwrap_or(role.target.address)
}
