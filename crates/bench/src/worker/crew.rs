//! A worker of a scenario: the clients of one crew that belong to this process, in one thread with one epoll, which also watches the
//! rings of direct sockets. They
//! connect, subscribe, publish and leave at times that do not depend on the target.

mod api_link;
mod bot;
mod checks;
mod intervals;
mod member;
mod phase;
mod publishing;
mod schedule;
mod settling;
mod subscriptions;
mod tracks;

use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use rustls::ClientConfig;

use self::api_link::ApiLink;
use self::bot::Bot;
use self::checks::{Arrivals, Checks, Inbox, OfMember, Sink};
use self::member::{Link, Member, connected};
use self::phase::Phase;
use self::publishing::{OwnStream, Publishing};
use self::schedule::Schedule;
use self::settling::Settling;
use self::subscriptions::{chosen, source_address};
use self::tracks::Tracks;
use super::dialogue::{Ended, LoadSessionStage};
use super::direct::{DirectEvent, DirectKey, DirectSockets};
use super::direct_session::{DirectSession, discard};
use super::publisher::{poll_entry, prefer_this_process, wait};
use super::secure::{secure, tls_config};
use super::session::Session;
use super::{BUFFER_BYTES, answer, commands_for, poll_failed, wait_for_events};
use crate::commands;
use crate::control::{WorkerCommand, WorkerReply};
use crate::error::Error;
use crate::proc;
use crate::scenario::crew_commands::{
    CrewCommand, CrewReply, CrewReport, CrewRole, PhaseOrder, SocketKind, Subscribe, Via,
};
use crate::scenario::streams::Streams;
use crate::tally::Tally;

const COMMANDS: Token = Token(usize::MAX);
/// The rings of direct sockets have something.
const DIRECT: Token = Token(usize::MAX - 1);
/// How often each ring is entered in one turn. The kernel reports about twenty completions at a time (Linux 6.18).
const LOOKS_PER_TURN: usize = 8;
/// Wait between attempts to write to full sockets.
const BLOCKED_NS: u64 = 1_000_000;
const IDLE_NS: u64 = 1_000_000_000;

pub fn play(role: CrewRole) -> Result<(), Error> {
    let poll = Poll::new().map_err(poll_failed)?;
    let commands = commands_for(&poll, COMMANDS)?;
    let direct = match role.plan.sockets {
        SocketKind::Descriptors => None,
        SocketKind::Direct => Some(direct_sockets(&role, &poll)?),
    };
    let tally = Tally::open(Path::new(&role.tally))?;
    if role.plan.publish > 0.0 {
        prefer_this_process();
    }
    let crew = Crew {
        net: Net {
            tls: if role.target.tls { Some(tls_config()?) } else { None },
            poll,
            direct,
            buffer: vec![0; BUFFER_BYTES],
            blocked: Vec::new(),
        },
        members: Vec::new(),
        checks: Checks::new(&role, Streams::open(&role.streams)?),
        publishing: Publishing::new(&role),
        phase: Phase::none(&role.place),
        settling: Settling::new(proc::now_ns()),
        report: CrewReport::default(),
        counts: MemberCounts::default(),
        delivered_ever: 0,
        role,
    };
    crew.run(&commands, &tally)
}

fn direct_sockets(role: &CrewRole, poll: &Poll) -> Result<DirectSockets, Error> {
    let place = &role.place;
    let sources: Vec<_> = (0..place.sources.len()).map(|number| source_address(&place.sources, number)).collect();
    let address = role.target.address;
    // Other interfaces have their own addresses.
    let sources = if address.ip().is_loopback() && address.is_ipv4() { sources.as_slice() } else { &[] };
    let sockets = DirectSockets::new(place.connections, address, sources).map_err(ring_failed)?;
    let notice = sockets.notice();
    poll.registry().register(&mut SourceFd(&notice), DIRECT, Interest::READABLE).map_err(poll_failed)?;
    Ok(sockets)
}

fn ring_failed(source: std::io::Error) -> Error {
    Error::os("use a ring of io_uring", source, "remove sockets = \"direct\" from the crew")
}

struct Crew {
    role: CrewRole,
    net: Net,
    /// By the connection's number, divided by the number of processes.
    members: Vec<Member>,
    counts: MemberCounts,
    checks: Checks,
    publishing: Publishing,
    phase: Phase,
    settling: Settling,
    report: CrewReport,
    delivered_ever: u64,
}

/// The sockets of all members.
struct Net {
    poll: Poll,
    /// None if sockets have descriptors.
    direct: Option<DirectSockets>,
    tls: Option<Arc<ClientConfig>>,
    buffer: Vec<u8>,
    /// Members with bytes that the kernel has not accepted yet.
    blocked: Vec<usize>,
}

/// Members by their state.
#[derive(Default)]
struct MemberCounts {
    ready: u64,
    handshakes: usize,
}

impl Crew {
    fn run(mut self, commands: &Receiver<WorkerCommand>, tally: &Tally) -> Result<(), Error> {
        let mut events = Events::with_capacity(1024);
        let slot = tally.slot(self.role.place.worker);
        loop {
            let now_ns = proc::now_ns();
            self.phase.cpu.begin_due(now_ns);
            self.open_due(now_ns)?;
            self.churn_due(now_ns);
            self.publish_due(now_ns);
            self.play_due(now_ns);
            self.flush_blocked();
            self.answer_what_is_over(now_ns);
            let is_busy = self.read_direct()?;
            self.wait(&mut events, is_busy)?;
            for event in &events {
                if event.token() < DIRECT {
                    self.on_event(event.token().0, event.is_writable(), event.is_read_closed());
                }
            }
            slot.deliveries.store(self.delivered_ever + self.report.received.delivered, Ordering::Relaxed);
            slot.ready.store(self.counts.ready, Ordering::Relaxed);
            while let Ok(command) = commands.try_recv() {
                match command {
                    WorkerCommand::Crew(CrewCommand::Phase(order)) => self.begin(&order),
                    WorkerCommand::Crew(CrewCommand::Settle { patience_ns }) => {
                        self.cut_phase();
                        self.settling.begin(proc::now_ns(), patience_ns);
                    }
                    _ => answer(&WorkerReply::Failed { message: "a crew takes no such command".into() }),
                }
            }
        }
    }

    fn begin(&mut self, order: &PhaseOrder) {
        self.phase = Phase::of(order, self.role.plan.connect_rate, &self.role.place, &self.phase);
        for number in (self.phase.connections..self.members.len()).rev() {
            self.close(number);
        }
        self.members.truncate(self.phase.connections);
    }

    /// The phase ends early, if it has not ended.
    fn cut_phase(&mut self) {
        if self.phase.end_ns.is_some() {
            self.phase.cut(self.members.len(), &self.role.place);
            self.phase.cpu.end();
        }
    }

    /// Waits until something is due or arrives. The kernel waits with the precision of nanoseconds only in ppoll.
    fn wait(&mut self, events: &mut Events, is_busy: bool) -> Result<(), Error> {
        wait_for_events(&mut self.net.poll, events, Some(Duration::ZERO))?;
        let timeout_ns = self.next_due_ns().saturating_sub(proc::now_ns());
        if is_busy || !events.is_empty() || timeout_ns == 0 {
            return Ok(());
        }
        wait(&mut [poll_entry(self.net.poll.as_raw_fd(), libc::POLLIN)], timeout_ns);
        wait_for_events(&mut self.net.poll, events, Some(Duration::ZERO))
    }

    /// Gives the rings what is queued and takes what they have, within the limit of a turn. Returns whether there is more at once.
    fn read_direct(&mut self) -> Result<bool, Error> {
        for _ in 0..LOOKS_PER_TURN {
            let Some(sockets) = &mut self.net.direct else { return Ok(false) };
            sockets.look().map_err(ring_failed)?;
            let mut has_taken = false;
            while let Some((key, event)) = self.net.direct.as_mut().and_then(DirectSockets::next_event) {
                self.on_direct_event(key, event);
                has_taken = true;
            }
            if !has_taken {
                break;
            }
        }
        // What was just queued does not wait for the next turn.
        let Some(sockets) = &mut self.net.direct else { return Ok(false) };
        sockets.look().map_err(ring_failed)?;
        Ok(sockets.is_busy())
    }

    fn can_open(&self) -> bool {
        self.members.len() < self.phase.connections && self.counts.handshakes < self.role.place.handshakes_max
    }

    fn next_due_ns(&self) -> u64 {
        let phase = &self.phase;
        let now_ns = proc::now_ns();
        let mut due_ns = now_ns + IDLE_NS;
        if self.can_open() {
            due_ns = due_ns.min(phase.connects.as_ref().map_or(Some(now_ns), Schedule::next_ns).unwrap_or(u64::MAX));
        }
        for next_ns in [phase.next_ns(), self.settling.next_ns(now_ns)].into_iter().flatten() {
            due_ns = due_ns.min(next_ns);
        }
        if !self.net.blocked.is_empty() {
            due_ns = due_ns.min(now_ns + BLOCKED_NS);
        }
        due_ns
    }

    fn open_due(&mut self, now_ns: u64) -> Result<(), Error> {
        while self.can_open() {
            let intended_ns = match &mut self.phase.connects {
                Some(schedule) => match schedule.due(now_ns) {
                    Some(intended_ns) => intended_ns,
                    None => break,
                },
                None => now_ns,
            };
            let number = self.members.len();
            let member = self.open(number, intended_ns)?;
            self.members.push(member);
        }
        Ok(())
    }

    fn open(&mut self, number: usize, intended_ns: u64) -> Result<Member, Error> {
        let link = match self.link(number)? {
            Ok(link) => {
                self.counts.handshakes += 1;
                link
            }
            Err(err) => {
                *self.report.connections.failed.entry(format!("open: {err}")).or_default() += 1;
                Link::Closed
            }
        };
        let bot = self.role.plan.play.as_ref().map(|plan| Box::new(Bot::new(plan, self.role.target.encoding)));
        Ok(Member::new(link, intended_ns, bot))
    }

    fn link(&mut self, number: usize) -> Result<std::io::Result<Link>, Error> {
        let connection = self.role.place.connection(number);
        if self.net.direct.is_some() {
            let (greeting, answers) = self.greeting(connection);
            let sockets = self.net.direct.as_mut();
            let session = sockets.map(|sockets| DirectSession::open(sockets, number as u32, greeting, answers));
            return Ok(Ok(session.map_or(Link::Closed, |session| Link::Direct(Box::new(session)))));
        }
        let source = source_address(&self.role.place.sources, number);
        let interest = Interest::READABLE | Interest::WRITABLE;
        let registry = self.net.poll.registry();
        if self.role.plan.via == Via::Api {
            return Ok(match ApiLink::open(source, self.role.operators) {
                Ok(mut link) => {
                    registry.register(link.socket(), Token(number), interest).map_err(poll_failed)?;
                    Ok(Link::Api(Box::new(link)))
                }
                Err(err) => Err(err),
            });
        }
        let mut session = match Session::open(source, self.role.target.address, None, false) {
            Ok(session) => session,
            Err(err) => return Ok(Err(err)),
        };
        if let Some(config) = &self.net.tls {
            session.speak_tls(secure(config)?);
        }
        let (greeting, answers) = self.greeting(connection);
        session.greet_with_answers(greeting, answers);
        registry.register(session.socket(), Token(number), interest).map_err(poll_failed)?;
        Ok(Ok(Link::Session(Box::new(session))))
    }

    /// The first commands of a connection, and their number.
    fn greeting(&self, connection: u64) -> (Vec<u8>, usize) {
        let encoding = self.role.target.encoding;
        if let Some(play) = &self.role.plan.play {
            return (commands::hello(encoding, Some(&play.room), play.join.as_deref()), 2);
        }
        let channels: Vec<String> =
            self.subscriptions(connection).iter().map(|channel| self.channel_name(*channel)).collect();
        (commands::hello_to(encoding, &channels), channels.len() + 1)
    }

    fn channel_name(&self, channel: u32) -> String {
        format!("{}-{channel}", self.role.target.channel)
    }

    /// The channels of a connection.
    fn subscriptions(&self, connection: u64) -> Vec<u32> {
        let (plan, channels) = (&self.role.plan, self.role.load.channels);
        match plan.subscribe {
            Subscribe::None => Vec::new(),
            Subscribe::All => (0..channels).collect(),
            Subscribe::Single => vec![(connection % u64::from(channels)) as u32],
            Subscribe::Random => chosen(connection, plan.channels_per_client, channels),
        }
    }

    fn churn_due(&mut self, now_ns: u64) {
        while let Some(intended_ns) = self.phase.churn.due(now_ns) {
            let Some(number) = self.next_to_replace() else { return };
            self.close(number);
            self.report.connections.churned += 1;
            // A failure to open is counted; only a failed registration ends the worker, at the next connection.
            if let Ok(member) = self.open(number, intended_ns) {
                self.members[number] = member;
            }
        }
    }

    fn next_to_replace(&mut self) -> Option<usize> {
        let count = self.members.len();
        let from = self.phase.churn_next;
        let number = (from..from + count).map(|at| at % count.max(1)).find(|&at| self.members[at].is_ready)?;
        self.phase.churn_next = number + 1;
        Some(number)
    }

    fn publish_due(&mut self, now_ns: u64) {
        while let Some(intended_ns) = self.phase.publications.due(now_ns) {
            let Some(own) = self.publishing.stream(self.phase.published) else { return };
            self.phase.published += 1;
            if self.members.get(own.member).is_some_and(|member| member.is_ready) {
                self.publish(own, intended_ns);
            } else {
                self.report.sent.unsent += 1;
            }
        }
    }

    /// Each player sends its next input in turn.
    fn play_due(&mut self, now_ns: u64) {
        while let Some(intended_ns) = self.phase.inputs.due(now_ns) {
            let Some(number) = self.phase.inputs_due.checked_rem(self.members.len()) else { return };
            self.phase.inputs_due += 1;
            let (member, plan) = (&mut self.members[number], self.role.plan.play.as_ref());
            let Some((bot, plan)) = member.bot.as_mut().zip(plan).filter(|_| member.is_ready) else {
                self.report.sent.unsent += 1;
                continue;
            };
            let frame = bot.input(plan, intended_ns, &mut self.report.played);
            let (Some(frame), Link::Session(session)) = (frame, &mut member.link) else { continue };
            let sent = session.send(&frame);
            self.report.sent.lag.record_ns(proc::now_ns().saturating_sub(intended_ns));
            self.after_write(number, sent);
        }
    }

    fn publish(&mut self, own: OwnStream, intended_ns: u64) {
        let name = self.channel_name(own.channel);
        let sent_ns = proc::now_ns();
        let (publication, payload) = self.publishing.write(own.stream, intended_ns, sent_ns, &self.checks.streams);
        let sent = self.members[own.member].publish(&self.role, &name, publication, payload);
        self.report.sent.published += 1;
        self.report.sent.lag.record_ns(sent_ns.saturating_sub(intended_ns));
        self.after_write(own.member, sent);
    }

    fn flush_blocked(&mut self) {
        for number in std::mem::take(&mut self.net.blocked) {
            if let Some(member) = self.members.get_mut(number) {
                let flushed = member.flush();
                self.after_write(number, flushed);
            }
        }
    }

    /// Remembers a member whose socket is full. Ends one that cannot be written to.
    fn after_write(&mut self, number: usize, written: Result<(), Ended>) {
        match written {
            Ok(()) if self.members[number].is_blocked() && !self.net.blocked.contains(&number) => {
                self.net.blocked.push(number);
            }
            Ok(()) => {}
            Err(why) => self.end(number, why),
        }
    }

    fn on_event(&mut self, number: usize, writable: bool, read_closed: bool) {
        let client = self.role.place.connection(number);
        let Some(member) = self.members.get_mut(number) else { return };
        let mut read = Arrivals { at_ns: proc::now_ns(), has_progress: false };
        let result = match &mut member.link {
            Link::Session(session) if session.stage() == LoadSessionStage::Connecting => {
                if writable {
                    connected(session, &self.role.target, &self.net.poll, number)
                } else {
                    Ok(())
                }
            }
            Link::Session(session) => {
                let of = OfMember { client, is_ready: member.is_ready, inbox: &mut member.inbox };
                let bot = member.bot.as_deref_mut().zip(self.role.plan.play.as_ref());
                let mut sink = Sink {
                    checks: &mut self.checks,
                    report: &mut self.report,
                    of,
                    bot,
                    awaited: Some(&mut member.awaited),
                    arrivals: &mut read,
                };
                session.read_all(&self.role.target, &mut self.net.buffer, &mut sink, read_closed)
            }
            Link::Api(link) => link.on_event(writable, &mut self.net.buffer, |publication, error| {
                publication.answered(error, read.at_ns, &mut self.report.sent, &self.checks.streams);
                read.has_progress = true;
            }),
            Link::Direct(_) | Link::Closed => return,
        };
        self.after_read(number, &read, result);
    }

    fn on_direct_event(&mut self, key: DirectKey, event: DirectEvent) {
        let number = key.number as usize;
        let client = self.role.place.connection(number);
        let Some(sockets) = &mut self.net.direct else { return };
        let member = self.members.get_mut(number);
        let Some(Member { link: Link::Direct(session), is_ready, inbox, .. }) =
            member.filter(|member| matches!(&member.link, Link::Direct(session) if session.key() == key))
        else {
            // The session was closed before the kernel knew.
            return discard(event, sockets);
        };
        let mut read = Arrivals { at_ns: proc::now_ns(), has_progress: false };
        let mut sink = Sink {
            checks: &mut self.checks,
            report: &mut self.report,
            of: OfMember { client, is_ready: *is_ready, inbox },
            bot: None,
            awaited: None,
            arrivals: &mut read,
        };
        let result = session.on_event(event, sockets, &self.role.target, &mut sink);
        self.after_read(number, &read, result);
    }

    fn after_read(&mut self, number: usize, read: &Arrivals, result: Result<(), Ended>) {
        if read.has_progress {
            self.settling.arrived(read.at_ns);
            self.phase.cpu.arrived();
        }
        if result.is_ok() {
            self.note_ready(number, read.at_ns);
        }
        // Pongs may have filled the socket.
        self.after_write(number, result);
    }

    fn note_ready(&mut self, number: usize, now_ns: u64) {
        let connection = self.role.place.connection(number);
        if !self.members[number].is_open() || self.members[number].is_ready {
            return;
        }
        let streams: Vec<u32> =
            self.subscriptions(connection).into_iter().flat_map(|channel| self.streams_of(channel)).collect();
        let member = &mut self.members[number];
        member.inbox = Inbox::new(Tracks::begin(streams.into_iter(), &self.checks.streams));
        member.is_ready = true;
        self.counts.handshakes -= 1;
        self.counts.ready += 1;
        self.settling.connected(now_ns);
        self.report.connections.connected += 1;
        self.report.connections.time.record_ns(now_ns.saturating_sub(member.intended_ns));
    }

    fn streams_of(&self, channel: u32) -> impl Iterator<Item = u32> {
        let step = self.role.load.channels as usize;
        let spans = self.role.load.publishers.iter();
        spans.flat_map(move |span| (channel..span.count).step_by(step).map(move |number| span.first + number))
    }

    /// The target has ended a connection, or it has failed.
    fn end(&mut self, number: usize, why: Ended) {
        let connections = &mut self.report.connections;
        let is_ready = self.members[number].is_ready;
        let counts = if is_ready { &mut connections.closed } else { &mut connections.failed };
        *counts.entry(why).or_default() += 1;
        self.close(number);
    }

    fn close(&mut self, number: usize) {
        let client = self.role.place.connection(number);
        let member = &mut self.members[number];
        if matches!(member.link, Link::Closed) {
            return;
        }
        if member.is_ready {
            self.counts.ready -= 1;
        } else {
            self.counts.handshakes -= 1;
        }
        let inbox = member.close(self.net.direct.as_mut());
        self.checks.gaps.forget(client, &inbox.tracks);
    }

    fn answer_what_is_over(&mut self, now_ns: u64) {
        if self.phase.end_ns.is_some_and(|end_ns| now_ns >= end_ns) {
            self.phase.end_ns = None;
            self.phase.cpu.end();
            answer(&WorkerReply::Crew(CrewReply::PhaseOver));
        }
        if self.settling.is_due(now_ns) && self.is_settled(now_ns) {
            self.settling.end();
            let report = self.settled_report();
            answer(&WorkerReply::Crew(CrewReply::Settled(Box::new(report))));
        }
    }

    fn is_settled(&mut self, now_ns: u64) -> bool {
        if self.counts.handshakes > 0 || self.members.len() < self.phase.connections {
            if self.settling.waits_for_connections(now_ns) {
                return false;
            }
            self.give_up_connections();
        }
        if !self.settling.waits_for_arrivals(now_ns) {
            return true;
        }
        self.read_refusals();
        let (streams, gaps) = (&self.checks.streams, &self.checks.gaps);
        self.members.iter().all(|one| one.unanswered() == 0 && one.inbox.tracks.behind(streams, gaps) == 0)
    }

    /// Connections that are not ready have failed, also those that were not begun.
    fn give_up_connections(&mut self) {
        for number in 0..self.members.len() {
            if !self.members[number].is_ready && !matches!(self.members[number].link, Link::Closed) {
                self.end(number, "no answer in time".into());
            }
        }
        let left = self.phase.connections - self.members.len();
        if left > 0 {
            self.phase.connections = self.members.len();
            let failed = self.report.connections.failed.entry("earlier ones took too long".into());
            *failed.or_default() += left as u64;
        }
    }

    fn read_refusals(&mut self) {
        let place = &self.role.place;
        let members = self.members.iter_mut().enumerate();
        let tracks = members.map(|(number, member)| (place.connection(number), &mut member.inbox.tracks));
        self.checks.gaps.read_refusals(&self.checks.streams, tracks);
    }

    fn settled_report(&mut self) -> CrewReport {
        self.read_refusals();
        for (number, member) in self.members.iter_mut().enumerate() {
            let client = self.role.place.connection(number);
            member.inbox.settle(client, &mut self.checks, &mut self.report.received);
            if let Some(bot) = member.bot.as_mut().filter(|_| member.is_ready) {
                bot.settle(&mut self.report.played);
            }
        }
        let settled = self.checks.gaps.settle();
        self.report.received.lost += settled.lost_by_gone;
        self.report.received.unchecked += settled.unremembered;
        self.delivered_ever += self.report.received.delivered;
        let mut report = std::mem::take(&mut self.report);
        report.connections.open = self.counts.ready;
        report.intervals = self.checks.intervals.take();
        report.cpu_ns = self.phase.cpu.spent_ns();
        report
    }
}
