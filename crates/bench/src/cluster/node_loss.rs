//! Kills a node with sessions, which recover on the other nodes.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use serde::Serialize;

use super::args::ClusterFailoverArgs;
use super::failover::target;
use super::sessions::NodeSessions;
use crate::control::{Publish, PublishRate, PublisherRole, Role, WorkerCommand, WorkerReply};
use crate::error::Error;
use crate::latency::Summary;
use crate::proc::Cores;
use crate::report::{Line, time};
use crate::spawn::ServerProcess;
use crate::worker_process::Worker;

const PAYLOAD_BYTES: usize = 128;
const CHANNEL: &str = "failover";
/// Duration of publishing before the node is killed.
const BEFORE: Duration = Duration::from_secs(2);
/// Time for the workers to learn that sessions will be lost.
const NOTICE: Duration = Duration::from_millis(500);

/// The outcome of the sessions.
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
    /// From the close of the connection to the reply to the subscription on another node.
    pub absence: Summary,
    /// Lost or duplicated publications of all sessions.
    pub missed: u64,
}

/// Kills the last node.
pub fn lose_node(args: &ClusterFailoverArgs, nodes: &mut Vec<ServerProcess>, cores: &Cores) -> Result<NodeLoss, Error> {
    let mut sessions = NodeSessions::start(args.sessions, nodes, CHANNEL, cores)?;
    let mut publisher = Worker::start(&Role::Publisher(PublisherRole {
        target: target(&nodes[0], CHANNEL),
        api_key: None,
        payload_bytes: PAYLOAD_BYTES,
        tally: sessions.tally().path(),
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
        sessions.expect_loss(node.address)?;
        thread::sleep(NOTICE);
        node.kill();
    }
    let returned = sessions.wait_until_back()?;
    let publications = match publisher.answer()? {
        WorkerReply::Published(report) => report.publications,
        other => return Err(publisher.unexpected(&other)),
    };
    let missed = sessions.missed(publications)?;
    Ok(NodeLoss {
        sessions: args.sessions,
        publications,
        cut: returned.cut,
        back: returned.back,
        attempts: returned.attempts,
        failed: returned.failed,
        unrecovered: returned.unrecovered,
        absence: returned.absence.summary(),
        missed,
    })
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
