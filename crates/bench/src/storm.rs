//! Disconnects all sessions at once and checks that they reconnect and receive every publication of that time exactly
//! once.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::api;
use crate::args::{ServerArgs, StormArgs};
use crate::control::{
    ClientsRole, MessageContent, Publish, PublishRate, PublisherReport, PublisherRole, Returned, Role,
    SubscriberReport, Target, WorkerCommand, WorkerReply,
};
use crate::error::Error;
use crate::goal::Goal;
use crate::latency::Summary;
use crate::proc::{self, Cores};
use crate::progress::Progress;
use crate::report::{self, CHANNEL, Line, per_second, ratio, time};
use crate::spawn::ServerProcess;
use crate::tally::Tally;
use crate::worker_process::{Worker, source_address};

const SESSIONS_PER_WORKER: usize = 4_000;
/// Maximum number of concurrent handshakes at the beginning. Reconnects are limited only by their own delays.
const HANDSHAKES_MAX: usize = 256;
/// Publications that are missing after this time without any arrival count as lost.
const ARRIVAL_PATIENCE: Duration = Duration::from_secs(3);
/// Time between two health checks.
const HEALTH_EVERY: Duration = Duration::from_millis(50);

/// The result of `storm`.
#[derive(Debug, Serialize)]
pub struct StormReport {
    scenario: &'static str,
    machine: String,
    server: String,
    sessions: usize,
    publications_per_second: f64,
    publications: u64,
    deliveries: u64,
    lost: u64,
    duplicated: u64,
    back: u64,
    attempts: u64,
    /// Failed attempts, by the error that the client received.
    failed: BTreeMap<String, u64>,
    unrecovered: u64,
    /// From the cut to the completed recovery, including the client's own delay (0.5 to 1 s at first).
    absence: Summary,
    health: Health,
    /// Processor time of the server from the cut until all were back.
    server_cpu_ns: u64,
    server_cores_busy: f64,
    goals: Vec<Goal>,
}

/// The responses of `/health` during the storm.
#[derive(Debug, Default, Serialize)]
struct Health {
    probes: u64,
    unanswered: u64,
    slowest_us: u64,
}

/// Runs the scenario.
pub fn run(args: &StormArgs) -> Result<(), Error> {
    args.check()?;
    let cores = args.run.pin.cores();
    let progress = Progress::new(args.run.output.quiet);
    progress.doing("starting the server".into());
    let server = ServerProcess::start(&with_recovery(&args.run.server), &cores)?;
    let mut rig = StormRig::start(&server, args, &cores)?;
    rig.connect(args.sessions, &progress)?;
    let watch = HealthWatch::start(server.address);
    let duration_ns = args.duration.as_nanos() as u64;
    let publish = Publish { first_sequence: 0, duration_ns, pace: PublishRate::PerSecond(args.rate) };
    rig.publisher.send_command(&WorkerCommand::Publish(publish))?;
    thread::sleep(args.duration / 10);
    progress.counting("coming back".into(), args.sessions as u64);
    let (cut_at, cpu_before_ns) = (Instant::now(), proc::cpu_ns(server.pid)?);
    let returned = rig.cut(&progress)?;
    let (away, cpu_ns) = (cut_at.elapsed(), proc::cpu_ns(server.pid)?.saturating_sub(cpu_before_ns));
    progress.doing("publishing on".into());
    let published = rig.published()?;
    let received = rig.received(published.publications)?;
    let health = watch.end();
    progress.finish();
    let cut = returned.cut as f64;
    let report = StormReport {
        scenario: "storm",
        machine: proc::machine(),
        server: server.name.clone(),
        sessions: args.sessions,
        publications_per_second: args.rate,
        publications: published.publications,
        deliveries: received.deliveries,
        lost: received.lost,
        duplicated: received.duplicated,
        goals: vec![
            Goal::at_least("sessions that are back", Some(returned.back as f64), cut.max(args.sessions as f64), ""),
            Goal::at_most("lost", Some(received.lost as f64), 0.0, ""),
            Goal::at_most("duplicated", Some(received.duplicated as f64), 0.0, ""),
            Goal::at_most("recoveries that failed", Some(returned.unrecovered as f64), 0.0, ""),
            Goal::at_least("publications accepted", Some(published.accepted as f64), published.publications as f64, ""),
            Goal::at_most("unanswered looks at /health", Some(health.unanswered as f64), 0.0, ""),
        ],
        back: returned.back,
        attempts: returned.attempts,
        failed: returned.failed,
        unrecovered: returned.unrecovered,
        absence: returned.absence.summary(),
        health,
        server_cpu_ns: cpu_ns,
        server_cores_busy: ratio(cpu_ns as f64, away.as_nanos() as f64),
    };
    report::publish(&report, &report.lines(), &args.run.output)
}

/// Settings with history, so that the channel keeps publications while the sessions are disconnected.
fn with_recovery(args: &ServerArgs) -> ServerArgs {
    let mut settings: Vec<String> = [
        "channel.without_namespace.history_size=100000",
        "channel.without_namespace.history_ttl=10m",
        "channel.without_namespace.force_recovery=true",
        "client.recovery_max_publication_limit=100000",
    ]
    .map(String::from)
    .into();
    settings.extend(args.set.iter().cloned());
    ServerArgs { set: settings, ..args.clone() }
}

/// The processes of a storm.
struct StormRig {
    publisher: Worker,
    workers: Vec<Worker>,
    tally: Tally,
    sessions: u64,
}

impl StormRig {
    fn start(server: &ServerProcess, args: &StormArgs, cores: &Cores) -> Result<Self, Error> {
        let tally = Tally::create()?;
        let target = Target {
            address: server.address,
            path: server.path.clone(),
            encoding: args.encoding,
            channel: format!("{CHANNEL}{}", std::process::id()),
            join: None,
            content: MessageContent::Protocol,
            tls: false,
        };
        let count = args.workers.unwrap_or_else(|| args.sessions.div_ceil(SESSIONS_PER_WORKER)).max(1);
        let workers = (0..count).map(|worker| {
            Worker::start(&Role::ReconnectingSubscribers(ClientsRole {
                target: target.clone(),
                worker,
                source: source_address(worker),
                handshakes_max: HANDSHAKES_MAX.div_ceil(count),
                slow_receive_bytes: 0,
                tally: tally.path(),
                cores: cores.clients.clone(),
                others: Vec::new(),
            }))
        });
        let workers = workers.collect::<Result<Vec<_>, _>>()?;
        let publisher = Worker::start(&Role::Publisher(PublisherRole {
            target,
            api_key: None,
            payload_bytes: args.payload_bytes,
            tally: tally.path(),
            cores: cores.clients.clone(),
        }))?;
        match publisher.answer()? {
            WorkerReply::Connected(_) => Ok(StormRig { publisher, workers, tally, sessions: args.sessions as u64 }),
            other => Err(publisher.unexpected(&other)),
        }
    }

    fn connect(&mut self, sessions: usize, progress: &Progress) -> Result<(), Error> {
        progress.counting("connecting".into(), sessions as u64);
        let count = self.workers.len();
        for (number, worker) in self.workers.iter_mut().enumerate() {
            let part = sessions / count + usize::from(number < sessions % count);
            worker.send_command(&WorkerCommand::Connect { sessions: part, slow: 0 })?;
        }
        for worker in &self.workers {
            match worker.answer()? {
                WorkerReply::Connected(connected) if connected.failed.is_empty() => progress.at(self.tally.ready()),
                other => return Err(worker.unexpected(&other)),
            }
        }
        Ok(())
    }

    /// Cuts off all sessions, and waits until they are back.
    fn cut(&mut self, progress: &Progress) -> Result<Returned, Error> {
        for worker in &mut self.workers {
            worker.send_command(&WorkerCommand::Cut)?;
        }
        let mut all = Returned::default();
        for worker in &self.workers {
            let returned = loop {
                progress.at(self.tally.ready());
                match worker.answer_within(Duration::from_millis(20))? {
                    Some(WorkerReply::Returned(returned)) => break returned,
                    Some(other) => return Err(worker.unexpected(&other)),
                    None => {}
                }
            };
            all.add(&returned);
        }
        Ok(all)
    }

    fn published(&mut self) -> Result<PublisherReport, Error> {
        match self.publisher.answer()? {
            WorkerReply::Published(published) => Ok(*published),
            other => Err(self.publisher.unexpected(&other)),
        }
    }

    /// Waits until all publications have arrived or are lost.
    fn received(&mut self, publications: u64) -> Result<SubscriberReport, Error> {
        let (mut deliveries, mut changed) = (self.tally.deliveries(), Instant::now());
        while deliveries < publications * self.sessions && changed.elapsed() < ARRIVAL_PATIENCE {
            thread::sleep(Duration::from_millis(5));
            let now = self.tally.deliveries();
            if now != deliveries {
                (deliveries, changed) = (now, Instant::now());
            }
        }
        let mut all = SubscriberReport::default();
        for worker in &mut self.workers {
            worker.send_command(&WorkerCommand::End { end_sequence: publications })?;
        }
        for worker in &self.workers {
            match worker.answer()? {
                WorkerReply::Received(received) => {
                    all.deliveries += received.deliveries;
                    all.lost += received.lost;
                    all.duplicated += received.duplicated;
                }
                other => return Err(worker.unexpected(&other)),
            }
        }
        Ok(all)
    }
}

/// Requests the server's health repeatedly.
struct HealthWatch {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Health>,
}

impl HealthWatch {
    fn start(address: SocketAddr) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let is_over_seen = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            let mut health = Health::default();
            while !is_over_seen.load(Ordering::Relaxed) {
                let asked_at = Instant::now();
                health.probes += 1;
                health.unanswered += u64::from(api::get(address, "/health").is_err());
                health.slowest_us = health.slowest_us.max(asked_at.elapsed().as_micros() as u64);
                thread::sleep(HEALTH_EVERY);
            }
            health
        });
        HealthWatch { is_over, thread }
    }

    fn end(self) -> Health {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().expect("asking does not panic")
    }
}

impl StormReport {
    fn lines(&self) -> Vec<Line> {
        let absence = &self.absence;
        let mut lines = vec![
            Line::new("machine", &self.machine),
            Line::new("load", format!("{} sessions, {} publications/s", self.sessions, self.publications_per_second)),
            Line::new(
                "deliveries",
                format!(
                    "{} of {} publications to each ({} lost, {} duplicated)",
                    self.deliveries, self.publications, self.lost, self.duplicated
                ),
            ),
            Line::new(
                "back",
                format!(
                    "{} after {} attempts: p50 {}, p99 {}, the last after {}",
                    self.back,
                    self.attempts,
                    time(absence.p50_us),
                    time(absence.p99_us),
                    time(absence.max_us)
                ),
            ),
            Line::new(
                "server",
                format!(
                    "{:.2} cores busy until all were back, {:.0} sessions per CPU-second",
                    self.server_cores_busy,
                    per_second(self.back, self.server_cpu_ns)
                ),
            ),
            Line::new(
                "/health",
                format!(
                    "{} of {} unanswered, the slowest took {}",
                    self.health.unanswered,
                    self.health.probes,
                    time(self.health.slowest_us)
                ),
            ),
        ];
        if !self.failed.is_empty() {
            lines.push(Line::new("attempts that failed", format!("{:?}", self.failed)));
        }
        lines.extend(self.goals.iter().map(Goal::line));
        lines
    }
}
