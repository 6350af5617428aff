//! Kills a node with sessions, which recover on the other nodes.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::args::ClusterFailoverArgs;
use super::failover::target;
use crate::control::{ClientsRole, Publish, PublishRate, PublisherRole, Returned, Role, WorkerCommand, WorkerReply};
use crate::error::Error;
use crate::latency::Summary;
use crate::proc::Cores;
use crate::report::{Line, time};
use crate::spawn::ServerProcess;
use crate::tally::Tally;
use crate::worker_process::{Worker, source_address};

const SESSIONS_PER_WORKER: usize = 4_000;
const HANDSHAKES_MAX: usize = 256;
const PAYLOAD_BYTES: usize = 128;
const CHANNEL: &str = "failover";
/// Publications before the node is killed.
const BEFORE: Duration = Duration::from_secs(2);
/// By then, the workers know that sessions will be lost.
const NOTICE: Duration = Duration::from_millis(500);
/// What has not arrived when nothing arrived for this long is lost.
const ARRIVAL_PATIENCE: Duration = Duration::from_secs(3);

/// What became of the sessions.
#[derive(Debug, Serialize)]
pub struct NodeLoss {
    sessions: usize,
    publications: u64,
    /// Sessions of the killed node.
    pub cut: u64,
    pub back: u64,
    attempts: u64,
    failed: BTreeMap<String, u64>,
    pub unrecovered: u64,
    /// From the close of the connection to the answer that completes the subscription elsewhere.
    pub absence: Summary,
    /// Lost or duplicated, of all sessions.
    pub missed: u64,
}

/// Kills the last node.
pub fn lose_node(args: &ClusterFailoverArgs, nodes: &mut Vec<ServerProcess>, cores: &Cores) -> Result<NodeLoss, Error> {
    let tally = Tally::create()?;
    let mut workers = start_workers(args, nodes, cores, &tally)?;
    let mut publisher = Worker::start(&Role::Publisher(PublisherRole {
        target: target(&nodes[0], CHANNEL),
        api_key: None,
        payload_bytes: PAYLOAD_BYTES,
        tally: tally.path().to_owned(),
        cores: cores.clients.clone(),
    }))?;
    match publisher.answer()? {
        WorkerReply::Connected(_) => {}
        other => return Err(publisher.unexpected(&other)),
    }
    let duration_ns = args.duration.as_nanos() as u64;
    let pace = PublishRate::PerSecond(args.rate);
    publisher.send_command(&WorkerCommand::Publish(Publish { first_sequence: 0, duration_ns, pace }))?;
    thread::sleep(BEFORE);
    if let Some(node) = nodes.pop() {
        for worker in &mut workers {
            worker.send_command(&WorkerCommand::Lose { address: node.address })?;
        }
        thread::sleep(NOTICE);
        node.kill();
    }
    let mut returned = Returned::default();
    for worker in &workers {
        match worker.answer()? {
            WorkerReply::Returned(one) => returned.add(&one),
            other => return Err(worker.unexpected(&other)),
        }
    }
    let publications = match publisher.answer()? {
        WorkerReply::Published(report) => report.publications,
        other => return Err(publisher.unexpected(&other)),
    };
    let missed = missed(&mut workers, &tally, publications, args.sessions as u64)?;
    Ok(NodeLoss {
        sessions: args.sessions,
        publications,
        cut: returned.cut,
        back: returned.back,
        attempts: returned.attempts,
        failed: returned.failed.clone(),
        unrecovered: returned.unrecovered,
        absence: returned.absence.summary(),
        missed,
    })
}

/// Sessions on all nodes in turn.
fn start_workers(
    args: &ClusterFailoverArgs,
    nodes: &[ServerProcess],
    cores: &Cores,
    tally: &Tally,
) -> Result<Vec<Worker>, Error> {
    let count = args.sessions.div_ceil(SESSIONS_PER_WORKER);
    let start = |worker| {
        Worker::start(&Role::Returners(ClientsRole {
            target: target(&nodes[0], CHANNEL),
            worker,
            source: source_address(worker),
            handshakes_max: HANDSHAKES_MAX.div_ceil(count),
            slow_receive_bytes: 0,
            tally: tally.path().to_owned(),
            cores: cores.clients.clone(),
            others: nodes[1..].iter().map(|node| node.address).collect(),
        }))
    };
    let mut workers = (0..count).map(start).collect::<Result<Vec<_>, _>>()?;
    for (number, worker) in workers.iter_mut().enumerate() {
        let sessions = args.sessions / count + usize::from(number < args.sessions % count);
        worker.send_command(&WorkerCommand::Connect { sessions, slow: 0 })?;
    }
    for worker in &workers {
        match worker.answer()? {
            WorkerReply::Connected(connected) if connected.failed.is_empty() => {}
            other => return Err(worker.unexpected(&other)),
        }
    }
    Ok(workers)
}

/// Waits until all publications have arrived or are lost.
fn missed(workers: &mut [Worker], tally: &Tally, publications: u64, sessions: u64) -> Result<u64, Error> {
    let (mut deliveries, mut changed) = (tally.deliveries(), Instant::now());
    while deliveries < publications * sessions && changed.elapsed() < ARRIVAL_PATIENCE {
        thread::sleep(Duration::from_millis(5));
        let now = tally.deliveries();
        if now != deliveries {
            (deliveries, changed) = (now, Instant::now());
        }
    }
    let mut missed = 0;
    for worker in workers {
        worker.send_command(&WorkerCommand::End { end_sequence: publications })?;
        match worker.answer()? {
            WorkerReply::Received(received) => missed += received.lost + received.duplicated,
            other => return Err(worker.unexpected(&other)),
        }
    }
    Ok(missed)
}

impl NodeLoss {
    pub fn lines(&self) -> Vec<Line> {
        let Summary { p50_us, p99_us, max_us, .. } = self.absence;
        let mut lines = vec![
            Line::new(
                "a node killed",
                format!(
                    "{} of {} sessions cut, {} back after {} attempts; {} publications, {} lost or duplicated",
                    self.cut, self.sessions, self.back, self.attempts, self.publications, self.missed
                ),
            ),
            Line::new(
                "complete elsewhere after",
                format!("p50 {}, p99 {}, the last {}", time(p50_us), time(p99_us), time(max_us)),
            ),
        ];
        if !self.failed.is_empty() {
            lines.push(Line::new("attempts that failed", format!("{:?}", self.failed)));
        }
        lines
    }
}
