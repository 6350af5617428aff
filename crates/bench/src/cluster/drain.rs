//! A rolling update: each node is shut down and restarted, and the next one follows when the sessions of the previous
//! one have recovered on other nodes. At the same time, a publisher publishes on any node that accepts it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::{Value, json};

use super::args::ClusterDrainArgs;
use super::nats::NatsProcesses;
use super::node;
use super::sessions::NodeSessions;
use crate::api;
use crate::args::ServerArgs;
use crate::control::Returned;
use crate::error::Error;
use crate::goal::Goal;
use crate::latency::Summary;
use crate::payload::{Stamp, write_payload};
use crate::proc::{self, Cores};
use crate::progress::Progress;
use crate::report::{self, Line, time};
use crate::spawn::{ServerProcess, setting};

const NODES: usize = 3;
const CHANNEL: &str = "drain";
const PAYLOAD_BYTES: usize = 128;
/// Duration of publishing before the first node stops, and after the last one is back.
const BEFORE: Duration = Duration::from_secs(2);
/// Time for the workers to learn that sessions will be lost.
const NOTICE: Duration = Duration::from_millis(500);
/// `shutdown.timeout`: at three quarters of it, a node closes all remaining sessions at once.
const SHUTDOWN_TIMEOUT_S: u64 = 60;
/// Maximum number of attempts for one publication, on alternating nodes.
const ATTEMPTS_MAX: u64 = 200;
/// Maximum ratio of the sessions closed in a second to the configured rate. It is above 1, because the clients measure
/// closes with their own clock on busy cores.
const RATE_GOAL: f64 = 1.1;

#[derive(Debug, Serialize)]
struct ClusterDrainReport {
    scenario: &'static str,
    machine: String,
    server: String,
    nats_servers: usize,
    sessions: usize,
    sessions_per_second: u32,
    publications: u64,
    /// Failed attempts to publish, by the node's answer.
    retried: BTreeMap<String, u64>,
    /// Lost or duplicated publications of all sessions.
    missed: u64,
    drains: Vec<NodeDrain>,
    goals: Vec<Goal>,
}

/// A node that was restarted.
#[derive(Debug, Serialize)]
struct NodeDrain {
    /// Its number of sessions.
    cut: u64,
    /// Sessions that have recovered on other nodes.
    back: u64,
    unrecovered: u64,
    /// From SIGTERM to the end of the process.
    stopped_s: f64,
    /// The highest number of sessions closed within one second.
    closed_per_second_max: u64,
    /// From the close of the connection to the reply to the subscription on another node.
    absence: Summary,
    failed: BTreeMap<String, u64>,
}

/// Runs the scenario.
pub fn run(args: &ClusterDrainArgs) -> Result<(), Error> {
    args.check()?;
    let progress = Progress::new(args.run.output.quiet);
    let cores = args.run.pin.cores();
    progress.doing("starting NATS and three nodes".into());
    let nats = NatsProcesses::start(&args.nats, &[])?;
    let settings: Vec<ServerArgs> = (0..NODES).map(|number| node_settings(args, number, &nats)).collect();
    let mut nodes =
        settings.iter().map(|settings| ServerProcess::start(settings, &cores)).collect::<Result<Vec<_>, _>>()?;
    let mut sessions = NodeSessions::start(args.sessions, &nodes, CHANNEL, &cores)?;
    let addresses = nodes.iter().map(|node| node.operators).collect();
    let load = DrainPublisher::start(addresses, args.run.server.start.api_key.clone(), args.rate);
    thread::sleep(BEFORE);
    let mut drains = Vec::new();
    for (number, settings) in settings.iter().enumerate() {
        progress.doing(format!("stopping node {} of {NODES}", number + 1));
        let node = nodes.remove(0);
        let (drain, node) = drain(node, settings, &mut sessions, &cores)?;
        drains.push(drain);
        nodes.push(node);
    }
    thread::sleep(BEFORE);
    let published = load.end()?;
    let missed = sessions.missed(published.publications)?;
    progress.finish();
    let report = ClusterDrainReport {
        scenario: "cluster drain",
        machine: proc::machine(),
        server: nodes[0].name.clone(),
        nats_servers: nats.replicas(),
        sessions: args.sessions,
        sessions_per_second: args.sessions_per_second,
        goals: goals(args, &drains, missed),
        publications: published.publications,
        retried: published.retried,
        missed,
        drains,
    };
    report::publish(&report, &report.lines(), &args.run.output)
}

/// The settings of a node. It keeps its port, so that clients find it after the restart, and is healthy only when it
/// can use the cluster.
fn node_settings(args: &ClusterDrainArgs, number: usize, nats: &NatsProcesses) -> ServerArgs {
    let more = [
        setting("channel.without_namespace.force_recovery", true),
        setting("channel.without_namespace.history_size", 10_000),
        setting("client.recovery_max_publication_limit", 10_000),
        setting("health.requires_cluster", true),
        setting("shutdown.timeout", format!("{SHUTDOWN_TIMEOUT_S}s")),
        setting("shutdown.sessions_per_second", args.sessions_per_second),
    ];
    node::in_cluster(&args.run.server, &format!("node-{number}"), nats, &more)
}

/// Stops a node, waits until its sessions have recovered, and restarts it.
fn drain(
    node: ServerProcess,
    settings: &ServerArgs,
    sessions: &mut NodeSessions,
    cores: &Cores,
) -> Result<(NodeDrain, ServerProcess), Error> {
    let settings = settings.at(Some(node.address.port()), settings.tls);
    sessions.expect_loss(node.address)?;
    thread::sleep(NOTICE);
    let stopped = node.stop(Duration::from_secs(SHUTDOWN_TIMEOUT_S + 5))?;
    let node = ServerProcess::start(&settings, cores)?;
    let Returned { cut, back, failed, unrecovered, absence, ended_at_ms, .. } = sessions.wait_until_back()?;
    let drain = NodeDrain {
        cut,
        back,
        unrecovered,
        stopped_s: stopped.as_secs_f64(),
        closed_per_second_max: most_in_a_second(ended_at_ms),
        absence: absence.summary(),
        failed,
    };
    Ok((drain, node))
}

/// The highest number of these times, in milliseconds, within one second.
fn most_in_a_second(mut times_ms: Vec<u64>) -> u64 {
    times_ms.sort_unstable();
    let within = |(place, from): (usize, &u64)| times_ms[place..].partition_point(|time| *time < from + 1_000) as u64;
    times_ms.iter().enumerate().map(within).max().unwrap_or(0)
}

/// Publishes at a fixed rate. If a node refuses a publication, it is sent to the next node.
struct DrainPublisher {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Result<Published, Error>>,
}

#[derive(Default)]
struct Published {
    publications: u64,
    retried: BTreeMap<String, u64>,
}

impl DrainPublisher {
    fn start(nodes: Vec<SocketAddr>, api_key: String, rate: f64) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            let mut published = Published::default();
            let (began, mut place) = (Instant::now(), 0);
            while !until.load(Ordering::Relaxed) {
                let due = Duration::from_secs_f64(published.publications as f64 / rate);
                thread::sleep(due.saturating_sub(began.elapsed()));
                published.publish(&nodes, &mut place, &api_key)?;
            }
            Ok(published)
        });
        Self { is_over, thread }
    }

    fn end(self) -> Result<Published, Error> {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().expect("the publisher does not panic")
    }
}

impl Published {
    /// Publishes the next publication. Its idempotency key prevents duplicates after an unanswered attempt.
    fn publish(&mut self, nodes: &[SocketAddr], place: &mut usize, api_key: &str) -> Result<(), Error> {
        let mut payload = Vec::new();
        let sequence = self.publications;
        write_payload(&mut payload, Stamp { intended_ns: proc::now_ns(), sequence }, PAYLOAD_BYTES);
        let data: Value = serde_json::from_slice(&payload).expect("a payload is a JSON string");
        let body =
            json!({ "channel": CHANNEL, "data": data, "idempotency_key": format!("drain-{sequence}") }).to_string();
        for _ in 0..ATTEMPTS_MAX {
            let why = match api::post(nodes[*place], "/api/publish", api_key, &body) {
                Ok(answer) => {
                    let answer: Value = serde_json::from_str(&answer).unwrap_or_default();
                    if answer["result"]["offset"].is_u64() {
                        self.publications += 1;
                        return Ok(());
                    }
                    answer["error"].to_string()
                }
                Err(error) => error.to_string(),
            };
            *self.retried.entry(why).or_default() += 1;
            *place = (*place + 1) % nodes.len();
            thread::sleep(Duration::from_millis(10));
        }
        let did = format!("took publication {sequence} in none of {ATTEMPTS_MAX} attempts: {:?}", self.retried);
        Err(Error::Server { did, remedy: "check the nodes' logs".into() })
    }
}

fn goals(args: &ClusterDrainArgs, drains: &[NodeDrain], missed: u64) -> Vec<Goal> {
    let sum = |of: fn(&NodeDrain) -> u64| drains.iter().map(of).sum::<u64>() as f64;
    let closed = drains.iter().map(|drain| drain.closed_per_second_max).max().unwrap_or(0) as f64;
    let rate = f64::from(args.sessions_per_second);
    vec![
        Goal::at_least("sessions that are back", Some(sum(|drain| drain.back)), sum(|drain| drain.cut), ""),
        Goal::at_least("sessions that were closed", Some(sum(|drain| drain.cut)), args.sessions as f64, ""),
        Goal::at_most("recoveries that failed", Some(sum(|drain| drain.unrecovered)), 0.0, ""),
        Goal::at_most("lost or duplicated", Some(missed as f64), 0.0, ""),
        Goal::at_most("closed in a second, against the configured rate", Some(closed / rate), RATE_GOAL, "×"),
    ]
}

impl ClusterDrainReport {
    fn lines(&self) -> Vec<Line> {
        let mut lines = vec![
            Line::new("machine", &self.machine),
            Line::new(
                "load",
                format!(
                    "{} sessions on {NODES} nodes; {} publications, {} lost or duplicated; retried: {:?}",
                    self.sessions, self.publications, self.missed, self.retried
                ),
            ),
        ];
        lines.extend(self.drains.iter().map(NodeDrain::line));
        lines.extend(self.goals.iter().map(Goal::line));
        lines
    }
}

impl NodeDrain {
    fn line(&self) -> Line {
        let Summary { p50_us, p99_us, max_us, .. } = self.absence;
        let NodeDrain { cut, back, stopped_s, closed_per_second_max, .. } = self;
        let text = format!(
            "{cut} sessions, {back} back; ended after {stopped_s:.1} s; at most {closed_per_second_max} closed in a second; \
             away p50 {}, p99 {}, max {}",
            time(p50_us),
            time(p99_us),
            time(max_us)
        );
        Line::new("node stopped", text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_second_can_begin_at_any_time() {
        assert_eq!(most_in_a_second(Vec::new()), 0);
        assert_eq!(most_in_a_second(vec![5_000, 1_900, 2_100, 2_899, 2_900]), 3);
    }
}
