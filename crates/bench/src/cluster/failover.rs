//! First, a node is killed, and its clients recover on the other nodes. Then a NATS server that leads streams is
//! killed. Publications to these streams wait for an election, and those to other streams do not.

use serde::Serialize;

use super::args::ClusterFailoverArgs;
use super::leader_loss::{LeaderLoss, LeaderLossRig};
use super::nats::NatsProcesses;
use super::node;
use super::node_loss::{self, NodeLoss};
use crate::commands::EncodingOption;
use crate::control::{MessageContent, Target};
use crate::error::Error;
use crate::goal::Goal;
use crate::proc;
use crate::progress::Progress;
use crate::report::{self, Line};
use crate::spawn::{ServerProcess, setting};

/// From the detection of the closed connection to the recovery on another node, including the delay of SDKs, 0.5 to 1
/// s.
const BACK_S_GOAL: f64 = 2.0;
/// From the election to the first acknowledgement.
const ACCEPTED_MS_GOAL: f64 = 500.0;
/// Longest time without an acknowledgement in a stream whose leader is alive.
const OTHERS_PAUSE_MS_GOAL: f64 = 500.0;
const NODES: usize = 3;

#[derive(Debug, Serialize)]
struct ClusterFailoverReport {
    scenario: &'static str,
    machine: String,
    server: String,
    nats_servers: usize,
    partitions: u16,
    node_loss: NodeLoss,
    leader_losses: Vec<LeaderLoss>,
    goals: Vec<Goal>,
}

/// Runs the scenario.
pub fn run(args: &ClusterFailoverArgs) -> Result<(), Error> {
    args.check()?;
    let progress = Progress::new(args.run.output.quiet);
    let cores = args.run.pin.cores();
    progress.doing("starting NATS and three nodes".into());
    let mut nats = NatsProcesses::start(&args.nats, &[])?;
    let more = [
        setting("channel.without_namespace.force_recovery", true),
        setting("broker.nats.jetstream.partitions", args.partitions),
    ];
    let mut nodes = Vec::new();
    for number in 0..NODES {
        let settings = node::in_cluster(&args.run.server, &format!("node-{number}"), &nats, &more);
        nodes.push(ServerProcess::start(&settings, &cores)?);
    }
    let mut leader_losses = Vec::new();
    let mut rig = LeaderLossRig::start(args, &nodes, &cores)?;
    for turn in 1..=args.turns {
        progress.doing(format!("loss {turn} of {} of a server that leads streams", args.turns));
        leader_losses.push(rig.lose_leader(args, &mut nats)?);
    }
    drop(rig);
    progress.doing("losing a node".into());
    let node_loss = node_loss::lose_node(args, &mut nodes, &cores)?;
    progress.finish();
    let report = ClusterFailoverReport {
        scenario: "cluster failover",
        machine: proc::machine(),
        server: nodes[0].name.clone(),
        nats_servers: nats.replicas(),
        partitions: args.partitions,
        goals: goals(&node_loss, &leader_losses),
        node_loss,
        leader_losses,
    };
    report::publish(&report, &report.lines(), &args.run.output)
}

/// The target for clients of a channel on a node.
pub fn target(node: &ServerProcess, channel: &str) -> Target {
    Target {
        address: node.address,
        path: node.path.clone(),
        encoding: EncodingOption::Json,
        channel: channel.to_owned(),
        join: None,
        content: MessageContent::Protocol,
        tls: false,
    }
}

fn goals(node: &NodeLoss, leaders: &[LeaderLoss]) -> Vec<Goal> {
    let longest = |of: fn(&LeaderLoss) -> Option<f64>| {
        leaders.iter().map(of).try_fold(0.0_f64, |longest, found| Some(longest.max(found?)))
    };
    // If a server leads all streams, there is no pause of others.
    let others_pause_ms = leaders.iter().filter_map(|loss| loss.others_pause_ms).reduce(f64::max);
    let missed = leaders.iter().map(LeaderLoss::missed).sum::<u64>();
    vec![
        Goal::at_least("sessions of the killed node that are back", Some(node.back as f64), node.cut as f64, ""),
        Goal::at_most("recoveries that failed", Some(node.unrecovered as f64), 0.0, ""),
        Goal::at_most("lost or duplicated, killed node", Some(node.missed as f64), 0.0, ""),
        Goal::at_most("the last one is complete after", Some(node.absence.max_us as f64 / 1e6), BACK_S_GOAL, "s"),
        Goal::at_most("lost, duplicated or refused, killed leader", Some(missed as f64), 0.0, ""),
        Goal::at_most("accepted again after the election", longest(|loss| loss.accepted_ms), ACCEPTED_MS_GOAL, "ms"),
        Goal::at_most("longest pause of other streams", others_pause_ms, OTHERS_PAUSE_MS_GOAL, "ms"),
    ]
}

impl ClusterFailoverReport {
    fn lines(&self) -> Vec<Line> {
        let mut lines = vec![Line::new("machine", &self.machine)];
        lines.extend(self.leader_losses.iter().map(LeaderLoss::line));
        lines.extend(self.node_loss.lines());
        lines.extend(self.goals.iter().map(Goal::line));
        lines
    }
}
