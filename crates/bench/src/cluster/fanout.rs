//! One channel with many subscribers on a node of a cluster, alternating with the same load on a node without a
//! cluster. Of the cluster's other nodes, one has a few subscribers of the channel, and one has none.

use serde::Serialize;

use super::args::ClusterFanoutArgs;
use super::nats::NatsProcesses;
use super::node;
use crate::error::Error;
use crate::fanout::{LoadFigures, Settings};
use crate::goal::Goal;
use crate::proc::{self, Cores};
use crate::progress::Progress;
use crate::report::{self, Line, ratio};
use crate::rig::{FanoutPhase, FanoutRig, FanoutSetup};
use crate::spawn::ServerProcess;

/// Maximum ratio of the processor time of a delivery on a node of a cluster to that on a node without a cluster.
const COST_RATIO_GOAL: f64 = 1.05;
/// The number of nodes with subscribers: one with all, and one with a few.
const NODES_THAT_LISTEN: f64 = 2.0;
/// Number of subscribers on another node.
const FEW: usize = 10;

#[derive(Debug, Serialize)]
struct ClusterFanoutReport {
    scenario: &'static str,
    machine: String,
    server: String,
    nats_servers: usize,
    settings: Settings,
    alone: LoadFigures,
    in_cluster: LoadFigures,
    /// Processor time of a delivery in the cluster, divided by that of a delivery on the node without a cluster.
    cost_ratio: f64,
    cost_ratio_by_pair: Vec<f64>,
    /// Messages of the channel that the NATS servers have sent to nodes, from their own counters.
    nats_messages: u64,
    nats_messages_per_publication: f64,
    goals: Vec<Goal>,
}

/// The sides of a run.
struct FanoutSides {
    alone: FanoutRig,
    in_cluster: FanoutRig,
    // These subscribers only need to be connected.
    _few: FanoutRig,
    _nobody: ServerProcess,
    nats: NatsProcesses,
}

/// Runs the scenario. The order alternates, so that a drift of the machine affects both sides equally.
pub fn run(args: &ClusterFanoutArgs) -> Result<(), Error> {
    args.check()?;
    let progress = Progress::new(args.run.output.quiet);
    let cores = args.run.pin.cores();
    let mut sides = FanoutSides::start(args, &cores, &progress)?;
    let name = sides.in_cluster.server.name.clone();
    let pace = args.load.pace(0);
    let warm = |rig: &mut FanoutRig| rig.phase(pace, args.load.warm_up, "warming up", &progress);
    let closed = [warm(&mut sides.alone)?.received.closed, warm(&mut sides.in_cluster)?.received.closed];
    let turn = args.load.duration / args.load.turns;
    let (mut alone, mut in_cluster) = (FanoutPhase::default(), FanoutPhase::default());
    let mut cost_ratio_by_pair = Vec::new();
    let messages_before = sides.nats_messages()?;
    for number in 0..args.load.turns {
        let label = format!("turn {} of {}", number + 1, args.load.turns);
        let mut pair = [0.0; 2];
        for is_in_cluster in [number % 2 == 0, number % 2 == 1] {
            let rig = if is_in_cluster { &mut sides.in_cluster } else { &mut sides.alone };
            let phase = rig.phase(pace, turn, &label, &progress)?;
            pair[usize::from(is_in_cluster)] = cost_ns(&phase);
            if is_in_cluster { &mut in_cluster } else { &mut alone }.add(&phase);
        }
        cost_ratio_by_pair.push(ratio(pair[1], pair[0]));
    }
    let nats_messages = sides.nats_messages()? - messages_before;
    progress.finish();
    let nats_messages_per_publication = ratio(nats_messages as f64, in_cluster.published.publications as f64);
    let cost_ratio = ratio(cost_ns(&in_cluster), cost_ns(&alone));
    let missed = |phase: &FanoutPhase| (phase.received.lost + phase.received.duplicated) as f64;
    let goals = vec![
        Goal::at_most("lost or duplicated", Some(missed(&alone) + missed(&in_cluster)), 0.0, ""),
        Goal::at_most("a delivery in the cluster, compared with one without", Some(cost_ratio), COST_RATIO_GOAL, "×"),
        Goal::at_most(
            "NATS messages per publication, with 2 nodes that listen",
            Some(nats_messages_per_publication),
            NODES_THAT_LISTEN,
            "",
        ),
    ];
    let report = ClusterFanoutReport {
        scenario: "cluster fanout",
        machine: proc::machine(),
        server: name,
        nats_servers: sides.nats.replicas(),
        settings: Settings::new(&args.load, &cores),
        alone: LoadFigures::new(&alone, &closed[0]),
        in_cluster: LoadFigures::new(&in_cluster, &closed[1]),
        cost_ratio,
        cost_ratio_by_pair,
        nats_messages,
        nats_messages_per_publication,
        goals,
    };
    report::publish(&report, &report.lines(), &args.run.output)
}

impl FanoutSides {
    fn start(args: &ClusterFanoutArgs, cores: &Cores, progress: &Progress) -> Result<Self, Error> {
        progress.doing("starting NATS and four nodes".into());
        // The NATS servers share the clients' cores, because only the nodes are measured on their core.
        let nats = NatsProcesses::start(&args.nats, &cores.clients)?;
        let (load, api_key) = (&args.load, &args.run.server.start.api_key);
        let node = |name: &str| ServerProcess::start(&node::in_cluster(&args.run.server, name, &nats, &[]), cores);
        let in_cluster =
            FanoutRig::start(node("all")?, &FanoutSetup::of(load, cores))?.ready(load, 0, api_key, progress)?;
        let setup = FanoutSetup { sessions_max: FEW, ..FanoutSetup::of(load, cores) };
        let mut few = FanoutRig::start(node("few")?, &setup)?;
        few.connect(FEW, 0, progress)?;
        let nobody = node("nobody")?;
        let alone = ServerProcess::start(&node::alone(&args.run.server, &[]), cores)?;
        let alone = FanoutRig::start(alone, &FanoutSetup::of(load, cores))?.ready(load, 0, api_key, progress)?;
        Ok(FanoutSides { alone, in_cluster, _few: few, _nobody: nobody, nats })
    }

    /// The number of messages of the channel that were sent to nodes.
    fn nats_messages(&self) -> Result<u64, Error> {
        self.nats.messages_of(&node::live_subject(self.in_cluster.channel()))
    }
}

/// Processor time of one delivery.
fn cost_ns(phase: &FanoutPhase) -> f64 {
    ratio(phase.server_cpu_ns as f64, phase.received.deliveries as f64)
}

impl ClusterFanoutReport {
    fn lines(&self) -> Vec<Line> {
        let mut lines = vec![Line::new("machine", &self.machine), self.settings.line()];
        for (name, load) in [("on its own", &self.alone), ("in a cluster", &self.in_cluster)] {
            lines.push(Line::new(name, ""));
            lines.extend(load.lines());
        }
        let pairs: Vec<String> = self.cost_ratio_by_pair.iter().map(|ratio| format!("{ratio:.3}")).collect();
        let cost = format!("{:.3} × that on its own (by pair: {})", self.cost_ratio, pairs.join(", "));
        lines.push(Line::new("cost of a delivery in the cluster", cost));
        lines.extend(self.goals.iter().map(Goal::line));
        lines
    }
}
