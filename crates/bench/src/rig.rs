//! The setup of most scenarios: a server, subscribers and a publisher.

use std::thread;
use std::time::{Duration, Instant};

use crate::args::{LoadArgs, PublishVia};
use crate::commands::EncodingOption;
use crate::control::{
    ClientsRole, Connected, Publish, PublishRate, PublisherReport, PublisherRole, Role, Slow, SubscriberReport, Target,
    WorkerCommand, WorkerReply,
};
use crate::error::Error;
use crate::proc::{self, Cores, Memory, Ticks};
use crate::progress::Progress;
use crate::report::{CHANNEL, whole};
use crate::spawn::ServerProcess;
use crate::tally::{Tally, WORKERS_MAX};
use crate::worker_process::{Worker, source_address};

/// Default number of sessions in one worker, well below 20,000 open files.
const SESSIONS_PER_WORKER: usize = 4_000;
const HANDSHAKES_MAX: usize = 256;
/// Publications that are missing after this time without any arrival count as lost.
const ARRIVAL_PATIENCE: Duration = Duration::from_secs(3);
const MEMORY_EVERY: Duration = Duration::from_millis(100);

/// The configuration of the clients.
#[derive(Clone)]
pub struct FanoutSetup {
    /// Maximum number of sessions.
    pub sessions_max: usize,
    pub encoding: EncodingOption,
    /// Number of worker processes.
    pub workers: Option<usize>,
    /// Receive buffer of slow readers.
    pub slow_receive_bytes: usize,
    /// The cores of all processes.
    pub cores: Cores,
}

impl FanoutSetup {
    /// The clients of a load.
    pub fn of(load: &LoadArgs, cores: &Cores) -> Self {
        FanoutSetup {
            sessions_max: load.subscribers,
            encoding: load.encoding,
            workers: load.workers,
            slow_receive_bytes: load.slow_receive_bytes,
            cores: cores.clone(),
        }
    }
}

/// A server and its clients.
pub struct FanoutRig {
    // Dropped in this order, so that clients disconnect before the server ends.
    publisher: Option<Worker>,
    workers: Vec<Worker>,
    /// Sessions that are connected but subscribed to another channel.
    bystanders: Vec<Worker>,
    /// The server under test.
    pub server: ServerProcess,
    tally: Tally,
    target: Target,
    cores: Cores,
    ready: usize,
    slow: usize,
    next_sequence: u64,
}

/// The measurements of one phase.
#[derive(Default)]
pub struct FanoutPhase {
    /// The sum of all subscribers without slow readers.
    pub received: SubscriberReport,
    /// The publisher.
    pub published: PublisherReport,
    /// Publications times readers that are expected to keep up.
    pub offered: u64,
    /// Processor time of the server, until the last delivery.
    pub server_cpu_ns: u64,
    /// The same in ticks of user and kernel mode.
    pub server_split: Ticks,
    /// From the first publication to the last delivery.
    pub wall_ns: u64,
    /// Memory of the server when the first phase began.
    pub memory_before: Option<Memory>,
    /// Memory of the server when the last phase was over.
    pub memory_after: Option<Memory>,
    /// Maximum observed private memory of the server.
    pub anon_bytes_max: u64,
}

impl FanoutRig {
    /// Starts the client processes; no session is opened yet.
    pub fn start(server: ServerProcess, setup: &FanoutSetup) -> Result<Self, Error> {
        let tally = Tally::create()?;
        let target = Target {
            address: server.address,
            path: server.path.clone(),
            encoding: setup.encoding,
            channel: format!("{CHANNEL}{}", std::process::id()),
            join: None,
            content: server.content,
            tls: server.tls,
        };
        let count = setup.workers.unwrap_or_else(|| setup.sessions_max.div_ceil(SESSIONS_PER_WORKER));
        if !(1..=WORKERS_MAX).contains(&count) {
            let remedy = format!("give 1 to {WORKERS_MAX}");
            return Err(Error::Setting { name: "workers", value: count.to_string(), remedy });
        }
        let mut workers = Vec::new();
        for worker in 0..count {
            workers.push(Worker::start(&Role::Clients(ClientsRole {
                target: target.clone(),
                worker,
                source: source_address(worker),
                handshakes_max: HANDSHAKES_MAX.div_ceil(count),
                slow_receive_bytes: setup.slow_receive_bytes,
                tally: tally.path(),
                cores: setup.cores.clients.clone(),
                others: Vec::new(),
            }))?);
        }
        let cores = setup.cores.clone();
        Ok(FanoutRig {
            publisher: None,
            workers,
            bystanders: Vec::new(),
            server,
            tally,
            target,
            cores,
            ready: 0,
            slow: 0,
            next_sequence: 0,
        })
    }

    /// Connects the subscribers and the publisher.
    pub fn ready(
        mut self,
        load: &LoadArgs,
        slow_readers: usize,
        api_key: &str,
        progress: &Progress,
    ) -> Result<Self, Error> {
        self.connect(load.subscribers, slow_readers, progress)?;
        self.start_publisher(load, api_key)?;
        Ok(self)
    }

    /// Connects the publisher.
    pub fn start_publisher(&mut self, load: &LoadArgs, api_key: &str) -> Result<(), Error> {
        let publisher = Worker::start(&Role::Publisher(PublisherRole {
            target: self.target.clone(),
            api_key: (load.publish_via == PublishVia::Api).then(|| api_key.to_owned()),
            payload_bytes: load.payload_bytes,
            tally: self.tally.path(),
            cores: self.cores.clients.clone(),
        }))?;
        match publisher.answer()? {
            WorkerReply::Connected(_) => self.publisher = Some(publisher),
            other => return Err(publisher.unexpected(&other)),
        }
        Ok(())
    }

    /// Opens more sessions, evenly spread. The slow readers among them are all in the first process.
    pub fn connect(&mut self, sessions: usize, slow: usize, progress: &Progress) -> Result<(), Error> {
        progress.counting("connecting".into(), (self.ready + sessions) as u64);
        let count = self.workers.len();
        for (number, worker) in self.workers.iter_mut().enumerate() {
            let part = sessions / count + usize::from(number < sessions % count);
            let slow_here = if number == 0 { slow.min(part) } else { 0 };
            worker.send_command(&WorkerCommand::Connect { sessions: part, slow: slow_here })?;
        }
        let mut all = Connected::default();
        for worker in &self.workers {
            let connected = loop {
                progress.at(self.tally.ready());
                match worker.answer_within(Duration::from_millis(100))? {
                    Some(WorkerReply::Connected(connected)) => break connected,
                    Some(other) => return Err(worker.unexpected(&other)),
                    None => {}
                }
            };
            all.ready += connected.ready;
            for (why, count) in connected.failed {
                *all.failed.entry(why).or_default() += count;
            }
        }
        if !all.failed.is_empty() || all.ready != self.ready + sessions {
            let did = format!("refused sessions ({} of {} ready): {:?}", all.ready, self.ready + sessions, all.failed);
            let remedy = "check its log, its connection limits, and that anonymous clients may subscribe";
            return Err(Error::Server { did, remedy: remedy.into() });
        }
        self.ready = all.ready;
        self.slow += slow;
        Ok(())
    }

    /// Opens sessions that are subscribed to another channel, in separate processes.
    pub fn connect_bystanders(&mut self, sessions: usize, progress: &Progress) -> Result<(), Error> {
        progress.doing(format!("connecting {sessions} bystanders"));
        let count = sessions.div_ceil(SESSIONS_PER_WORKER);
        let target = Target { channel: format!("{}-aside", self.target.channel), ..self.target.clone() };
        for number in 0..count {
            let worker = self.workers.len() + number;
            let mut bystanders = Worker::start(&Role::Clients(ClientsRole {
                target: target.clone(),
                worker,
                source: source_address(worker),
                handshakes_max: HANDSHAKES_MAX.div_ceil(count),
                slow_receive_bytes: 0,
                tally: self.tally.path(),
                cores: self.cores.clients.clone(),
                others: Vec::new(),
            }))?;
            let part = sessions / count + usize::from(number < sessions % count);
            bystanders.send_command(&WorkerCommand::Connect { sessions: part, slow: 0 })?;
            self.bystanders.push(bystanders);
        }
        for bystanders in &self.bystanders {
            match bystanders.answer()? {
                WorkerReply::Connected(connected) if connected.failed.is_empty() => {}
                other => return Err(bystanders.unexpected(&other)),
            }
        }
        Ok(())
    }

    /// Publishes for a time, and waits until all publications have arrived or are lost.
    pub fn phase(
        &mut self,
        pace: PublishRate,
        duration: Duration,
        label: &str,
        progress: &Progress,
    ) -> Result<FanoutPhase, Error> {
        let first_sequence = self.next_sequence;
        self.send_to_all(&WorkerCommand::Begin { first_sequence })?;
        let readers = (self.ready - self.slow) as u64;
        let expected = match pace {
            PublishRate::PerSecond(rate) => whole((rate * duration.as_secs_f64()).ceil()) * readers,
            PublishRate::Window { .. } => 0,
        };
        progress.counting(label.to_owned(), expected);
        let mut watch = Watch::start(self)?;
        let duration_ns = duration.as_nanos() as u64;
        self.publisher_mut()?.send_command(&WorkerCommand::Publish(Publish { first_sequence, duration_ns, pace }))?;
        let mut published: Option<Box<PublisherReport>> = None;
        loop {
            match &published {
                None => published = self.published_within(Duration::from_millis(5))?,
                Some(_) => thread::sleep(Duration::from_millis(5)),
            }
            watch.look(self)?;
            progress.at(watch.deliveries);
            let Some(published) = &published else { continue };
            let arrived = watch.deliveries >= published.publications * readers;
            if arrived || watch.changed.elapsed() > ARRIVAL_PATIENCE {
                break;
            }
        }
        let published = *published.expect("the loop ends only with it");
        self.next_sequence += published.publications;
        let offered = published.publications * readers;
        let received = self.end_phase()?;
        watch.phase(self, received, published, offered)
    }

    /// The channel of the publications.
    pub fn channel(&self) -> &str {
        &self.target.channel
    }

    /// Makes the slow readers stop reading.
    pub fn pause_slow(&mut self) -> Result<(), Error> {
        self.send_to_all(&WorkerCommand::PauseSlow)
    }

    /// Makes the slow readers read again, and returns their results.
    pub fn wake_slow(&mut self) -> Result<Slow, Error> {
        let worker = self.workers.first_mut().expect("there is at least one worker");
        worker.send_command(&WorkerCommand::WakeSlow { end_sequence: self.next_sequence })?;
        match worker.answer()? {
            WorkerReply::Slow(slow) => Ok(slow),
            other => Err(worker.unexpected(&other)),
        }
    }

    fn publisher_mut(&mut self) -> Result<&mut Worker, Error> {
        self.publisher.as_mut().ok_or(Error::Worker { role: "publisher", message: "it was not started".into() })
    }

    fn published_within(&mut self, patience: Duration) -> Result<Option<Box<PublisherReport>>, Error> {
        let worker = self.publisher_mut()?;
        match worker.answer_within(patience)? {
            Some(WorkerReply::Published(published)) => Ok(Some(published)),
            Some(other) => Err(worker.unexpected(&other)),
            None => Ok(None),
        }
    }

    fn send_to_all(&mut self, command: &WorkerCommand) -> Result<(), Error> {
        for worker in &mut self.workers {
            worker.send_command(command)?;
        }
        for worker in &self.workers {
            match worker.answer()? {
                WorkerReply::Done => {}
                other => return Err(worker.unexpected(&other)),
            }
        }
        Ok(())
    }

    fn end_phase(&mut self) -> Result<SubscriberReport, Error> {
        let command = WorkerCommand::End { end_sequence: self.next_sequence };
        for worker in &mut self.workers {
            worker.send_command(&command)?;
        }
        let mut all = SubscriberReport::default();
        for worker in &self.workers {
            match worker.answer()? {
                WorkerReply::Received(received) => all.add(&received),
                other => return Err(worker.unexpected(&other)),
            }
        }
        Ok(all)
    }
}

/// Watches the server while a phase runs.
struct Watch {
    deliveries_before: u64,
    deliveries: u64,
    /// When the last delivery was seen.
    changed: Instant,
    start: Instant,
    cpu_before_ns: u64,
    split_before: Ticks,
    /// Processor time of the server when the last delivery was seen.
    cpu_ns: u64,
    memory_before: Memory,
    memory_seen: Instant,
    anon_bytes_max: u64,
}

impl Watch {
    fn start(rig: &FanoutRig) -> Result<Self, Error> {
        let memory = proc::memory(rig.server.pid)?;
        let cpu_ns = proc::cpu_ns(rig.server.pid)?;
        let now = Instant::now();
        Ok(Watch {
            deliveries_before: rig.tally.deliveries(),
            deliveries: 0,
            changed: now,
            start: now,
            cpu_before_ns: cpu_ns,
            split_before: proc::ticks(rig.server.pid)?,
            cpu_ns,
            memory_before: memory,
            memory_seen: now,
            anon_bytes_max: memory.anon_bytes,
        })
    }

    fn look(&mut self, rig: &FanoutRig) -> Result<(), Error> {
        let deliveries = rig.tally.deliveries().saturating_sub(self.deliveries_before);
        if deliveries != self.deliveries {
            self.deliveries = deliveries;
            self.changed = Instant::now();
            self.cpu_ns = proc::cpu_ns(rig.server.pid)?;
        }
        if self.memory_seen.elapsed() > MEMORY_EVERY {
            self.memory_seen = Instant::now();
            self.anon_bytes_max = self.anon_bytes_max.max(proc::memory(rig.server.pid)?.anon_bytes);
        }
        Ok(())
    }

    fn phase(
        self,
        rig: &FanoutRig,
        received: SubscriberReport,
        published: PublisherReport,
        offered: u64,
    ) -> Result<FanoutPhase, Error> {
        let memory_after = proc::memory(rig.server.pid)?;
        let split = proc::ticks(rig.server.pid)?;
        Ok(FanoutPhase {
            received,
            published,
            offered,
            server_cpu_ns: self.cpu_ns - self.cpu_before_ns,
            server_split: Ticks {
                user: split.user.saturating_sub(self.split_before.user),
                system: split.system.saturating_sub(self.split_before.system),
            },
            wall_ns: (self.changed - self.start).as_nanos() as u64,
            memory_before: Some(self.memory_before),
            memory_after: Some(memory_after),
            anon_bytes_max: self.anon_bytes_max.max(memory_after.anon_bytes),
        })
    }
}

impl FanoutPhase {
    /// Adds a later phase of the same kind.
    pub fn add(&mut self, later: &FanoutPhase) {
        self.received.add(&later.received);
        self.published.add(&later.published);
        self.offered += later.offered;
        self.server_cpu_ns += later.server_cpu_ns;
        self.server_split.user += later.server_split.user;
        self.server_split.system += later.server_split.system;
        self.wall_ns += later.wall_ns;
        self.memory_before = self.memory_before.or(later.memory_before);
        self.memory_after = later.memory_after.or(self.memory_after);
        self.anon_bytes_max = self.anon_bytes_max.max(later.anon_bytes_max);
    }
}
