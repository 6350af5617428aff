//! Whether the cost depends only on subscribers: the same channel with the same subscribers on two servers, one of
//! which has many more connections. Both run on the same core and receive publications alternately.

use serde::Serialize;

use crate::args::{ServerArgs, SubscribersArgs};
use crate::error::Error;
use crate::fanout::{LoadFigures, Settings};
use crate::goal::Goal;
use crate::proc;
use crate::progress::Progress;
use crate::report::{self, Line, ratio};
use crate::rig::{FanoutPhase, FanoutRig, FanoutSetup};
use crate::spawn::ServerProcess;

/// Maximum ratio of the cost of a delivery with many connections to that without them.
const COST_RATIO_GOAL: f64 = 1.1;

/// The result of `subscribers`.
#[derive(Debug, Serialize)]
pub struct SubscribersReport {
    scenario: &'static str,
    machine: String,
    server: String,
    settings: Settings,
    /// Number of connections on the server with many.
    connections: usize,
    /// The server on which all connections are subscribed.
    alone: LoadFigures,
    /// The server with many other connections.
    among_many: LoadFigures,
    /// Processor time of a delivery on the second server, divided by that on the first, over all turns.
    cost_ratio: f64,
    /// The same for each pair of turns, which shows the variation.
    cost_ratio_by_pair: Vec<f64>,
    goals: Vec<Goal>,
}

/// Runs the scenario. The order of the two alternates, so that a drift of the machine affects both equally.
pub fn run(args: &SubscribersArgs) -> Result<(), Error> {
    args.check()?;
    let cores = args.run.pin.cores();
    let progress = Progress::new(args.run.output.quiet);
    let start = |server_args: &ServerArgs| -> Result<FanoutRig, Error> {
        progress.doing("starting a server".into());
        let server = ServerProcess::start(server_args, &cores)?;
        FanoutRig::start(server, &FanoutSetup::of(&args.load, &cores))?.ready(
            &args.load,
            0,
            &args.run.server.start.api_key,
            &progress,
        )
    };
    let (mut alone, mut among_many) = (start(&args.run.server)?, start(&args.run.server.next(false))?);
    among_many.connect_bystanders(args.connections - args.load.subscribers, &progress)?;
    let name = alone.server.name.clone();
    let pace = args.load.pace(0);
    let warm = |rig: &mut FanoutRig| rig.phase(pace, args.load.warm_up, "warming up", &progress);
    let closed = (warm(&mut alone)?.received.closed, warm(&mut among_many)?.received.closed);
    let turn = args.load.duration / args.load.turns;
    let mut sides = (FanoutPhase::default(), FanoutPhase::default());
    let mut cost_ratio_by_pair = Vec::new();
    for number in 0..args.load.turns {
        let label = format!("turn {} of {}", number + 1, args.load.turns);
        let (first, second);
        if number % 2 == 0 {
            first = alone.phase(pace, turn, &label, &progress)?;
            second = among_many.phase(pace, turn, &label, &progress)?;
        } else {
            second = among_many.phase(pace, turn, &label, &progress)?;
            first = alone.phase(pace, turn, &label, &progress)?;
        }
        cost_ratio_by_pair.push(ratio(cost_ns(&second), cost_ns(&first)));
        sides.0.add(&first);
        sides.1.add(&second);
    }
    progress.finish();
    let cost_ratio = ratio(cost_ns(&sides.1), cost_ns(&sides.0));
    let report = SubscribersReport {
        scenario: "subscribers",
        machine: proc::machine(),
        server: name,
        settings: Settings::new(&args.load, &cores),
        connections: args.connections,
        goals: vec![
            Goal::at_most("a delivery among many, against one alone", Some(cost_ratio), COST_RATIO_GOAL, "×"),
            Goal::at_most("lost or duplicated", Some(missed(&sides.0) + missed(&sides.1)), 0.0, ""),
        ],
        alone: LoadFigures::new(&sides.0, &closed.0),
        among_many: LoadFigures::new(&sides.1, &closed.1),
        cost_ratio,
        cost_ratio_by_pair,
    };
    report::publish(&report, &report.lines(), &args.run.output)
}

/// Processor time of one delivery.
fn cost_ns(phase: &FanoutPhase) -> f64 {
    ratio(phase.server_cpu_ns as f64, phase.received.deliveries as f64)
}

fn missed(phase: &FanoutPhase) -> f64 {
    (phase.received.lost + phase.received.duplicated) as f64
}

impl SubscribersReport {
    fn lines(&self) -> Vec<Line> {
        let mut lines = vec![Line::new("machine", &self.machine), self.settings.line(), Line::new("alone", "")];
        lines.extend(self.alone.lines());
        lines.push(Line::new(format!("among {} connections", self.connections), ""));
        lines.extend(self.among_many.lines());
        let pairs: Vec<String> = self.cost_ratio_by_pair.iter().map(|ratio| format!("{ratio:.3}")).collect();
        let cost = format!("{:.3} × that alone (by pair: {})", self.cost_ratio, pairs.join(", "));
        lines.push(Line::new("cost among many", cost));
        lines.extend(self.goals.iter().map(Goal::line));
        lines
    }
}
