//! The publisher: an open loop in a separate process, so that reading never delays a publication.

use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::Receiver;

use super::dialogue::{LoadSessionStage, Observer};
use super::secure::{secure, tls_config};
use super::session::{Session, Taken};
use super::{answer, commands};
use crate::api::Responses;
use crate::commands;
use crate::control::{
    AcknowledgementPause, Connected, Publish, PublishRate, PublisherReport, PublisherRole, WorkerCommand, WorkerReply,
};
use crate::error::Error;
use crate::latency::Latency;
use crate::payload::{Stamp, write_payload};
use crate::proc;
use crate::report::whole;
use crate::tally::Tally;

/// Maximum number of unsent bytes. Above it, the server is considered stuck.
const OUT_BYTES_MAX: usize = 64 << 20;
const ANSWER_PATIENCE_NS: u64 = 5_000_000_000;
/// Interval at which a saturating publisher checks for space in its window.
const WINDOW_POLL_NS: u64 = 50_000;
const IDLE_POLL_NS: u64 = 1_000_000_000;

pub fn play(role: PublisherRole) -> Result<(), Error> {
    let (wake, woken) = pair()?;
    let commands = commands(move || {
        // A full pipe also wakes the publisher.
        let _ = (&wake).write(&[1]);
    });
    let source = std::net::Ipv4Addr::LOCALHOST.into();
    let mut session = Session::open(source, role.target.address, None, false).map_err(|err| lost(&err.to_string()))?;
    if role.target.tls {
        session.speak_tls(secure(&tls_config()?)?);
    }
    session.allow_unsent(OUT_BYTES_MAX);
    prefer_this_process();
    let mut publisher = Publisher {
        tally: Tally::open(Path::new(&role.tally))?,
        buffer: vec![0; 64 * 1024],
        session,
        answers: Answers::default(),
        responses: Responses::default(),
        payload: Vec::new(),
        role,
    };
    publisher.connect()?;
    answer(&WorkerReply::Connected(Connected { ready: 1, ..Connected::default() }));
    publisher.serve(&commands, woken)
}

fn pair() -> Result<(UnixStream, UnixStream), Error> {
    let failed = |source| Error::os("make a pipe", source, "check the limit of open files (ulimit -n)");
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    ours.set_nonblocking(true).and_then(|()| theirs.set_nonblocking(true)).map_err(failed)?;
    Ok((ours, theirs))
}

/// Raises the priority of this process. Otherwise a publication could wait for the processor behind a thousand readers,
/// and be late because of the load generator. Both calls are best effort; the result contains the lag.
pub fn prefer_this_process() {
    // SAFETY: plain system calls on this process without pointers.
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, -10);
        libc::prctl(libc::PR_SET_TIMERSLACK, 1_000);
    }
}

struct Publisher {
    role: PublisherRole,
    tally: Tally,
    buffer: Vec<u8>,
    /// With the HTTP API, only its socket is used.
    session: Session,
    answers: Answers,
    responses: Responses,
    payload: Vec<u8>,
}

/// The server's answers to publish commands.
#[derive(Default)]
struct Answers {
    accepted: u64,
    refused: BTreeMap<String, u64>,
    /// Intended times of publications without an answer, by the command's id. Not used with the HTTP API.
    awaited: HashMap<u32, u64>,
    acknowledged: Latency,
    /// The time of the last acknowledgement, or of the beginning of the phase.
    last_ns: u64,
    pause: AcknowledgementPause,
}

impl Answers {
    fn count(&self) -> u64 {
        self.accepted + self.refused.values().sum::<u64>()
    }

    fn take(&mut self, error: u32) {
        match error {
            0 => self.accepted += 1,
            code => *self.refused.entry(code.to_string()).or_default() += 1,
        }
    }
}

impl Observer for Answers {
    fn reply(&mut self, id: u32, error: u32) {
        self.take(error);
        if let (Some(intended_ns), 0) = (self.awaited.remove(&id), error) {
            let now_ns = proc::now_ns();
            self.acknowledged.record_ns(now_ns.saturating_sub(intended_ns));
            let pause = AcknowledgementPause { from_ns: self.last_ns, until_ns: now_ns };
            if pause.ns() > self.pause.ns() {
                self.pause = pause;
            }
            self.last_ns = now_ns;
        }
    }
}

impl Publisher {
    fn connect(&mut self) -> Result<(), Error> {
        let fd = self.session.socket().as_raw_fd();
        let deadline_ns = proc::now_ns() + ANSWER_PATIENCE_NS;
        while proc::now_ns() < deadline_ns {
            if self.session.stage() == LoadSessionStage::Connecting {
                if !wait(&mut [poll_entry(fd, libc::POLLOUT)], ANSWER_PATIENCE_NS) {
                    break;
                }
                if self.role.api_key.is_some() {
                    return Ok(());
                }
                self.session.connected(&self.role.target).map_err(|why| lost(&why))?;
            } else if wait(&mut [poll_entry(fd, libc::POLLIN)], ANSWER_PATIENCE_NS) {
                self.read()?;
            }
            if self.session.stage() == LoadSessionStage::Ready {
                return Ok(());
            }
        }
        Err(lost("no answer in 5 s"))
    }

    /// Processes commands, and answers pings in between.
    fn serve(&mut self, commands: &Receiver<WorkerCommand>, mut woken: UnixStream) -> Result<(), Error> {
        loop {
            let fd = self.session.socket().as_raw_fd();
            let mut entries = [poll_entry(fd, libc::POLLIN), poll_entry(woken.as_raw_fd(), libc::POLLIN)];
            wait(&mut entries, IDLE_POLL_NS);
            if entries[0].revents != 0 {
                self.read()?;
            }
            if entries[1].revents != 0 {
                // The number of bytes is irrelevant, because all commands are read below.
                let _ = woken.read(&mut [0; 64]);
            }
            while let Ok(command) = commands.try_recv() {
                match command {
                    WorkerCommand::Publish(command) => {
                        let published = self.publish_all(&command)?;
                        answer(&WorkerReply::Published(Box::new(published)));
                    }
                    _ => answer(&WorkerReply::Failed { message: "the publisher only publishes".into() }),
                }
            }
        }
    }

    fn publish_all(&mut self, command: &Publish) -> Result<PublisherReport, Error> {
        self.answers = Answers { last_ns: proc::now_ns(), ..Answers::default() };
        let cpu_before_ns = proc::own_cpu_ns();
        let mut schedule = Schedule::new(command, proc::now_ns(), self.tally.deliveries());
        let mut lag = Latency::default();
        loop {
            let now_ns = proc::now_ns();
            while let Some(intended_ns) = schedule.due(now_ns, &self.tally) {
                lag.record_ns(now_ns - intended_ns);
                self.enqueue(Stamp { intended_ns, sequence: command.first_sequence + schedule.published });
                schedule.published += 1;
            }
            self.flush()?;
            let Some(pause_ns) = schedule.pause_ns(proc::now_ns()) else { break };
            self.wait_and_read(pause_ns)?;
        }
        self.wait_for_answers(schedule.published)?;
        Ok(PublisherReport {
            publications: schedule.published,
            accepted: self.answers.accepted,
            refused: self.answers.refused.clone(),
            lag,
            acknowledged: self.answers.acknowledged.clone(),
            pause: self.answers.pause,
            cpu_ns: proc::own_cpu_ns() - cpu_before_ns,
        })
    }

    fn enqueue(&mut self, stamp: Stamp) {
        let target = &self.role.target;
        self.payload.clear();
        write_payload(&mut self.payload, stamp, self.role.payload_bytes);
        let bytes = if let Some(key) = &self.role.api_key {
            commands::api_publish(&target.address.to_string(), key, &target.channel, &self.payload)
        } else {
            // Ids must be above zero and differ from those of connect and subscribe.
            let id = (stamp.sequence % 1_000_000_000) as u32 + 10;
            self.answers.awaited.insert(id, stamp.intended_ns);
            commands::publish(target.encoding, id, &target.channel, &self.payload)
        };
        self.session.queue(&bytes);
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.session.flush().map_err(|why| lost(&why))
    }

    fn wait_for_answers(&mut self, published: u64) -> Result<(), Error> {
        let mut patience_ns = proc::now_ns() + ANSWER_PATIENCE_NS;
        while self.answers.count() < published && proc::now_ns() < patience_ns {
            let before = self.answers.count();
            self.wait_and_read(ANSWER_PATIENCE_NS)?;
            self.flush()?;
            if self.answers.count() > before {
                patience_ns = proc::now_ns() + ANSWER_PATIENCE_NS;
            }
        }
        Ok(())
    }

    fn wait_and_read(&mut self, pause_ns: u64) -> Result<(), Error> {
        let writes = if self.session.is_blocked() { libc::POLLOUT } else { 0 };
        let mut entries = [poll_entry(self.session.socket().as_raw_fd(), libc::POLLIN | writes)];
        if wait(&mut entries, pause_ns) && entries[0].revents & !libc::POLLOUT != 0 {
            self.read()?;
        }
        Ok(())
    }

    fn read(&mut self) -> Result<(), Error> {
        if self.role.api_key.is_some() {
            return self.read_responses();
        }
        loop {
            let taken = self.session.read(&self.role.target, &mut self.buffer, &mut self.answers);
            match taken.map_err(|why| lost(&why))? {
                Taken::Bytes { more: true, .. } => {}
                Taken::Bytes { .. } | Taken::Nothing => return Ok(()),
            }
        }
    }

    fn read_responses(&mut self) -> Result<(), Error> {
        let bytes = match self.session.socket().read(&mut self.buffer) {
            Ok(0) => return Err(lost("it closed the API connection")),
            Ok(bytes) => bytes,
            Err(err) if err.kind() == std::io::ErrorKind::WouldBlock => return Ok(()),
            Err(err) => return Err(lost(&err.to_string())),
        };
        self.responses.push(self.buffer.get(..bytes).unwrap_or_default());
        while let Some(error) = self.responses.next().map_err(|why| lost(&why))? {
            self.answers.take(error);
        }
        Ok(())
    }
}

/// The schedule of publications.
struct Schedule {
    pace: PublishRate,
    start_ns: u64,
    duration_ns: u64,
    deliveries_before: u64,
    published: u64,
}

impl Schedule {
    fn new(command: &Publish, now_ns: u64, deliveries_before: u64) -> Self {
        Schedule {
            pace: command.pace,
            start_ns: now_ns,
            duration_ns: command.duration_ns,
            deliveries_before,
            published: 0,
        }
    }

    /// The intended time of the next publication, if that time has come.
    fn due(&self, now_ns: u64, tally: &Tally) -> Option<u64> {
        let intended_ns = self.next_ns(now_ns);
        let over = intended_ns >= self.start_ns + self.duration_ns;
        if over || intended_ns > now_ns {
            return None;
        }
        if let PublishRate::Window { window, readers } = self.pace {
            let delivered = tally.deliveries().saturating_sub(self.deliveries_before) / readers.max(1);
            if self.published.saturating_sub(delivered) >= window {
                return None;
            }
        }
        Some(intended_ns)
    }

    /// The time until the next publication; none after the end of the phase.
    fn pause_ns(&self, now_ns: u64) -> Option<u64> {
        let next_ns = self.next_ns(now_ns);
        let over = next_ns >= self.start_ns + self.duration_ns;
        match self.pace {
            _ if over => None,
            PublishRate::PerSecond(_) => Some(next_ns.saturating_sub(now_ns)),
            PublishRate::Window { .. } => Some(WINDOW_POLL_NS),
        }
    }

    fn next_ns(&self, now_ns: u64) -> u64 {
        match self.pace {
            PublishRate::PerSecond(rate) => self.start_ns + whole(self.published as f64 * 1e9 / rate),
            PublishRate::Window { .. } => now_ns,
        }
    }
}

fn lost(why: &str) -> Error {
    Error::Server { did: format!("failed the publisher ({why})"), remedy: "check its log and its limits".into() }
}

pub fn poll_entry(fd: RawFd, events: i16) -> libc::pollfd {
    libc::pollfd { fd, events, revents: 0 }
}

/// Waits with nanosecond precision, which std and mio do not support. Returns whether an entry is ready.
pub fn wait(entries: &mut [libc::pollfd], timeout_ns: u64) -> bool {
    let seconds = (timeout_ns / 1_000_000_000).cast_signed();
    let timeout = libc::timespec { tv_sec: seconds, tv_nsec: (timeout_ns % 1_000_000_000).cast_signed() };
    // SAFETY: the entries and the timeout are valid for the call; no signal mask is given.
    let ready = unsafe {
        libc::ppoll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, &raw const timeout, std::ptr::null())
    };
    ready > 0
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    fn schedule(pace: PublishRate) -> Schedule {
        Schedule::new(&Publish { first_sequence: 0, duration_ns: 1_000_000_000, pace }, 1_000, 0)
    }

    #[test]
    fn a_late_open_loop_keeps_its_schedule() {
        let tally = Tally::create().unwrap();
        let mut schedule = schedule(PublishRate::PerSecond(4.0));
        let mut times = Vec::new();
        while let Some(intended_ns) = schedule.due(u64::MAX / 2, &tally) {
            times.push(intended_ns - 1_000);
            schedule.published += 1;
        }
        assert_eq!(times, [0, 250_000_000, 500_000_000, 750_000_000]);
        assert_eq!(schedule.pause_ns(1_000), None);
    }

    #[test]
    fn an_open_loop_is_never_early() {
        let tally = Tally::create().unwrap();
        let mut schedule = schedule(PublishRate::PerSecond(4.0));
        schedule.published = 1;
        assert_eq!(schedule.due(250_000_999, &tally), None);
        assert_eq!(schedule.pause_ns(250_000_900), Some(100));
        assert_eq!(schedule.due(250_001_000, &tally), Some(250_001_000));
    }

    #[test]
    fn a_window_opens_with_the_deliveries() {
        let tally = Tally::create().unwrap();
        let mut schedule = schedule(PublishRate::Window { window: 2, readers: 3 });
        schedule.published = 2;
        assert_eq!(schedule.due(5_000, &tally), None);
        tally.slot(0).deliveries.store(2, Ordering::Relaxed);
        assert_eq!(schedule.due(5_000, &tally), None, "one of three readers lacks it");
        tally.slot(1).deliveries.store(1, Ordering::Relaxed);
        assert_eq!(schedule.due(5_000, &tally), Some(5_000));
        assert_eq!(schedule.due(1_000_001_000, &tally), None, "the time is over");
    }
}
