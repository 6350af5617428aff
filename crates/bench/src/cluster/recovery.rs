//! Many sessions connect to a node that has just started, and recover. The scenario measures the number of reads of the
//! stream, and the effect on publishers of the same stream on another node. Storms with recoveries alternate with
//! storms without.
//!
//! The node and its sessions have one core, and all other processes the other one, as if these were two machines.

use std::time::Duration;

use serde::Serialize;

use super::args::ClusterRecoveryArgs;
use super::histories::{self, Positions};
use super::nats::NatsProcesses;
use super::node;
use crate::api;
use crate::commands::EncodingOption;
use crate::control::{
    ClientsRole, MessageContent, Publish, PublishRate, PublisherReport, PublisherRole, Recovered, RecoveryGroup, Role,
    Target, WorkerCommand, WorkerReply,
};
use crate::error::Error;
use crate::goal::Goal;
use crate::latency::Summary;
use crate::metrics::MetricsSample;
use crate::proc::{self, Cores};
use crate::progress::Progress;
use crate::report::{self, Line, ratio, time};
use crate::spawn::{ServerProcess, setting};
use crate::tally::Tally;
use crate::worker_process::{Worker, source_address};

/// Maximum ratio of the p99 of others' acknowledgements in a storm to that without a storm.
const OTHERS_P99_GOAL: f64 = 3.0;
const SESSIONS_PER_WORKER: usize = 4_000;
const HANDSHAKES_MAX: usize = 256;
const PAYLOAD_BYTES: usize = 128;
/// The others publish in slices of this duration until the storm is over.
const SLICE: Duration = Duration::from_millis(250);

#[derive(Debug, Serialize)]
struct ClusterRecoveryReport {
    scenario: &'static str,
    machine: String,
    server: String,
    nats_servers: usize,
    sessions: usize,
    channels: usize,
    positions: usize,
    publications_per_second: f64,
    recovering: StormFigures,
    /// The same sessions, without a recovery.
    subscribing: StormFigures,
    /// Ratio of the p99 of others' acknowledgements in a storm of recoveries to that before the storm.
    others_p99_ratio: f64,
    /// The same for sessions that only subscribe.
    others_p99_ratio_without_recovery: f64,
    goals: Vec<Goal>,
}

/// All storms of a kind.
#[derive(Debug, Serialize)]
struct StormFigures {
    ready: u64,
    unrecovered: u64,
    publications: u64,
    missing: u64,
    failed: std::collections::BTreeMap<String, u64>,
    /// From the TCP connection of a session to the reply to its subscription.
    time: Summary,
    /// By storm: reads of channels that the node requested, and reads that several sessions shared.
    reads: Vec<u64>,
    reads_shared: Vec<u64>,
    seconds: Vec<f64>,
    others_quiet: Summary,
    others_beside: Summary,
    others_refused: u64,
}

/// The measurements of all storms of a kind.
#[derive(Default)]
struct Storms {
    recovered: Recovered,
    quiet: PublisherReport,
    beside: PublisherReport,
    reads: Vec<u64>,
    reads_shared: Vec<u64>,
    seconds: Vec<f64>,
}

/// The processes of a run.
struct RecoveryRig<'a> {
    args: &'a ClusterRecoveryArgs,
    publisher: Worker,
    next_sequence: u64,
    writer: ServerProcess,
    nats: NatsProcesses,
    tally: Tally,
    storm_cores: Cores,
}

/// Runs the scenario.
pub fn run(args: &ClusterRecoveryArgs) -> Result<(), Error> {
    args.check()?;
    let progress = Progress::new(args.run.output.quiet);
    let mut rig = RecoveryRig::start(args, &progress)?;
    let (mut recovering, mut subscribing) = (Storms::default(), Storms::default());
    for turn in 1..=args.turns {
        for recovers in [turn % 2 == 1, turn % 2 == 0] {
            progress.doing(format!("turn {turn} of {}, recovering: {recovers}", args.turns));
            rig.storm(recovers, if recovers { &mut recovering } else { &mut subscribing })?;
        }
    }
    progress.finish();
    let report = ClusterRecoveryReport::new(&rig, &recovering, &subscribing);
    report::publish(&report, &report.lines(), &args.run.output)
}

impl<'a> RecoveryRig<'a> {
    fn start(args: &'a ClusterRecoveryArgs, progress: &Progress) -> Result<Self, Error> {
        progress.doing("starting NATS and a node".into());
        let Cores { server, clients } = args.run.pin.cores();
        let rest_cores = Cores { server: server.clone(), clients: server };
        let storm_cores = Cores { server: clients.clone(), clients };
        let nats = NatsProcesses::start(&args.nats, &rest_cores.server)?;
        let writer = ServerProcess::start(&settings(args, "writer", &nats), &rest_cores)?;
        let tally = Tally::create()?;
        let publisher = Worker::start(&Role::Publisher(PublisherRole {
            target: target(&writer, "others"),
            api_key: None,
            payload_bytes: PAYLOAD_BYTES,
            tally: tally.path(),
            cores: rest_cores.clients,
        }))?;
        match publisher.answer()? {
            WorkerReply::Connected(_) => {}
            other => return Err(publisher.unexpected(&other)),
        }
        Ok(RecoveryRig { args, publisher, next_sequence: 0, writer, nats, tally, storm_cores })
    }

    /// Connects all sessions to a node with nothing in memory.
    fn storm(&mut self, recovers: bool, storms: &mut Storms) -> Result<(), Error> {
        let args = self.args;
        let channels =
            histories::publish(&self.writer, &args.run.server.start.api_key, args.channels, args.publications)?;
        let groups = groups(args, &channels, recovers);
        let cold = ServerProcess::start(&settings(args, "cold", &self.nats), &self.storm_cores)?;
        let mut workers = self.start_workers(&cold)?;
        let before = metrics(&cold)?;
        self.publish_slice(args.before, &mut storms.quiet)?;
        let began_ns = proc::now_ns();
        let count = workers.len();
        for (number, worker) in workers.iter_mut().enumerate() {
            let groups = groups.iter().map(|group| part(group, number, count)).collect();
            worker.send_command(&WorkerCommand::Recover { groups })?;
        }
        let mut waiting: Vec<&Worker> = workers.iter().collect();
        while !waiting.is_empty() {
            self.publish_slice(SLICE, &mut storms.beside)?;
            let mut still_waiting = Vec::new();
            for worker in waiting {
                match worker.answer_within(Duration::ZERO)? {
                    Some(WorkerReply::Recovered(recovered)) => storms.recovered.add(&recovered),
                    Some(other) => return Err(worker.unexpected(&other)),
                    None => still_waiting.push(worker),
                }
            }
            waiting = still_waiting;
        }
        storms.seconds.push((proc::now_ns() - began_ns) as f64 / 1e9);
        let since = metrics(&cold)?.since(&before);
        let count = |name: &str| report::whole(since.sum(name).unwrap_or(0.0));
        storms.reads.push(count("dunlin_cluster_reads_total"));
        storms.reads_shared.push(count("dunlin_cluster_reads_shared_total"));
        Ok(())
    }

    fn start_workers(&self, cold: &ServerProcess) -> Result<Vec<Worker>, Error> {
        let count = self.args.sessions.div_ceil(SESSIONS_PER_WORKER);
        let start = |worker| {
            Worker::start(&Role::Recoverers(ClientsRole {
                target: target(cold, ""),
                worker,
                source: source_address(worker),
                handshakes_max: HANDSHAKES_MAX.div_ceil(count),
                slow_receive_bytes: 0,
                tally: self.tally.path(),
                cores: self.storm_cores.clients.clone(),
                others: Vec::new(),
            }))
        };
        (0..count).map(start).collect()
    }

    /// The others publish for a time, and wait for all answers.
    fn publish_slice(&mut self, duration: Duration, report: &mut PublisherReport) -> Result<(), Error> {
        let pace = PublishRate::PerSecond(self.args.rate);
        let duration_ns = duration.as_nanos() as u64;
        let publish = Publish { first_sequence: self.next_sequence, duration_ns, pace };
        self.publisher.send_command(&WorkerCommand::Publish(publish))?;
        match self.publisher.answer()? {
            WorkerReply::Published(published) => {
                self.next_sequence += published.publications;
                report.add(&published);
                Ok(())
            }
            other => Err(self.publisher.unexpected(&other)),
        }
    }
}

fn settings(args: &ClusterRecoveryArgs, name: &str, nats: &NatsProcesses) -> crate::args::ServerArgs {
    let recovery = [setting("channel.without_namespace.force_recovery", true)];
    node::in_cluster(&args.run.server, name, nats, &recovery)
}

fn target(server: &ServerProcess, channel: &str) -> Target {
    Target {
        address: server.address,
        path: server.path.clone(),
        encoding: EncodingOption::Json,
        channel: channel.to_owned(),
        join: None,
        content: MessageContent::Protocol,
        tls: false,
    }
}

/// The sessions, evenly spread over channels and positions. The first position misses the fewest publications.
fn groups(args: &ClusterRecoveryArgs, channels: &[Positions], recovers: bool) -> Vec<RecoveryGroup> {
    let count = args.channels * args.positions;
    let mut groups = Vec::with_capacity(count);
    for number in 0..count {
        let (channel, position) = (&channels[number % args.channels], number / args.channels);
        let missing = args.publications * (position + 1) / (args.positions + 1);
        groups.push(RecoveryGroup {
            channel: channel.channel.clone(),
            epoch: channel.epoch.clone(),
            offset: channel.offsets[args.publications - 1 - missing],
            sessions: args.sessions / count + usize::from(number < args.sessions % count),
            expected: recovers.then_some(missing as u64),
        });
    }
    groups
}

/// One worker's part of a group.
fn part(group: &RecoveryGroup, worker: usize, workers: usize) -> RecoveryGroup {
    let sessions = group.sessions / workers + usize::from(worker < group.sessions % workers);
    RecoveryGroup { sessions, ..group.clone() }
}

fn metrics(node: &ServerProcess) -> Result<MetricsSample, Error> {
    Ok(MetricsSample::parse(&api::get(node.operators, "/metrics")?))
}

impl StormFigures {
    fn new(storms: &Storms) -> Self {
        let refused = |report: &PublisherReport| report.refused.values().sum::<u64>();
        StormFigures {
            ready: storms.recovered.ready,
            unrecovered: storms.recovered.unrecovered,
            publications: storms.recovered.publications,
            missing: storms.recovered.missing,
            failed: storms.recovered.failed.clone(),
            time: storms.recovered.time.summary(),
            reads: storms.reads.clone(),
            reads_shared: storms.reads_shared.clone(),
            seconds: storms.seconds.clone(),
            others_quiet: storms.quiet.acknowledged.summary(),
            others_beside: storms.beside.acknowledged.summary(),
            others_refused: refused(&storms.quiet) + refused(&storms.beside),
        }
    }

    fn others_p99_ratio(&self) -> f64 {
        ratio(self.others_beside.p99_us as f64, self.others_quiet.p99_us as f64)
    }

    fn lines(&self, name: &str) -> Vec<Line> {
        let both = |summary: &Summary| format!("p50 {}, p99 {}", time(summary.p50_us), time(summary.p99_us));
        let mut lines = vec![
            Line::new(
                name,
                format!(
                    "{} sessions ready, {} of them not recovered; {} publications, {} missing",
                    self.ready, self.unrecovered, self.publications, self.missing
                ),
            ),
            Line::new("storms", format!("{:.1?} s; a session: {}", self.seconds, both(&self.time))),
            Line::new("reads", format!("{:?}, of which shared reads served many: {:?}", self.reads, self.reads_shared)),
            Line::new(
                "others' acknowledgements",
                format!(
                    "{} before, {} in the storm; {} refused",
                    both(&self.others_quiet),
                    both(&self.others_beside),
                    self.others_refused
                ),
            ),
        ];
        if !self.failed.is_empty() {
            lines.push(Line::new("failed", format!("{:?}", self.failed)));
        }
        lines
    }
}

impl ClusterRecoveryReport {
    fn new(rig: &RecoveryRig<'_>, recovering: &Storms, subscribing: &Storms) -> Self {
        let args = rig.args;
        let (recovering, subscribing) = (StormFigures::new(recovering), StormFigures::new(subscribing));
        let all = args.sessions as f64 * f64::from(args.turns);
        let recovered = recovering.ready.saturating_sub(recovering.unrecovered) as f64;
        let reads = recovering.reads.iter().max().map(|reads| *reads as f64);
        let others_p99_ratio = recovering.others_p99_ratio();
        let goals = vec![
            Goal::at_least("sessions that recovered", Some(recovered), all, ""),
            Goal::at_most("publications missing", Some(recovering.missing as f64), 0.0, ""),
            Goal::at_most("reads of a storm", reads, (args.channels * args.positions) as f64, ""),
            Goal::at_most("p99 of others, in a storm", Some(others_p99_ratio), OTHERS_P99_GOAL, "×"),
        ];
        ClusterRecoveryReport {
            scenario: "cluster recovery",
            machine: proc::machine(),
            server: rig.writer.name.clone(),
            nats_servers: rig.nats.replicas(),
            sessions: args.sessions,
            channels: args.channels,
            positions: args.positions,
            publications_per_second: args.rate,
            others_p99_ratio,
            others_p99_ratio_without_recovery: subscribing.others_p99_ratio(),
            recovering,
            subscribing,
            goals,
        }
    }

    fn lines(&self) -> Vec<Line> {
        let load = format!(
            "{} sessions, {} positions in each of {} channels; others publish {}/s",
            self.sessions, self.positions, self.channels, self.publications_per_second
        );
        let mut lines = vec![Line::new("machine", &self.machine), Line::new("load", load)];
        lines.extend(self.recovering.lines("recovering"));
        lines.extend(self.subscribing.lines("only subscribing"));
        let ratio = format!("{:.2} ×", self.others_p99_ratio_without_recovery);
        lines.push(Line::new("p99 of others, sessions that only subscribe", ratio));
        lines.extend(self.goals.iter().map(Goal::line));
        lines
    }
}
