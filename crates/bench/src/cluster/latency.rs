//! Publications into one channel: with history in memory on a node without a cluster, in a stream on a node of a
//! cluster, and by a bare NATS client to the same stream. The three alternate, first at a fixed rate. Then the latter
//! two alternate with a full window of publications in flight.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::args::ClusterLatencyArgs;
use super::bare::{Acknowledged, BareClient};
use super::nats::NatsProcesses;
use super::node;
use crate::args::{LoadArgs, ServerArgs};
use crate::control::PublishRate;
use crate::error::Error;
use crate::fanout::{LoadFigures, Settings};
use crate::goal::Goal;
use crate::latency::{Latency, Summary};
use crate::proc::{self, Cores};
use crate::progress::Progress;
use crate::report::{self, Line, grouped, per_second, ratio, time};
use crate::rig::{FanoutPhase, FanoutRig, FanoutSetup};
use crate::spawn::ServerProcess;

/// Maximum latency that a stream may add, as a multiple of the bare client's median.
const ADDED_MEDIANS_GOAL: f64 = 1.5;
const ADDED_P99S_GOAL: f64 = 3.0;
/// Minimum ratio of the publications per second to those of the bare client.
const THROUGHPUT_GOAL: f64 = 0.8;
const NODE: &str = "node";

#[derive(Debug, Serialize)]
struct ClusterLatencyReport {
    scenario: &'static str,
    machine: String,
    server: String,
    nats_servers: usize,
    settings: Settings,
    memory: LoadFigures,
    stream: LoadFigures,
    /// Time from a publication of the bare client to its acknowledgement.
    bare: Summary,
    turns: Vec<Turn>,
    /// Latency that the stream adds to the median, in medians of the bare client; the next field has the same for the
    /// 99th percentile.
    added_medians: f64,
    added_p99s: f64,
    throughput: ThroughputFigures,
    goals: Vec<Goal>,
}

/// Latencies of one turn.
#[derive(Debug, Serialize)]
struct Turn {
    memory: Summary,
    stream: Summary,
    bare: Summary,
}

/// Figures with a full window in flight.
#[derive(Debug, Serialize)]
struct ThroughputFigures {
    window: u64,
    node_publications_per_second: f64,
    bare_publications_per_second: f64,
    /// The same with message ids, as nodes send them.
    bare_publications_per_second_with_ids: f64,
    /// Ratio of the node to the bare client without ids.
    ratio: f64,
    ratio_by_turn: Vec<f64>,
    ratio_with_ids: f64,
    /// Processor time per publication of each process, for which all processes of one machine compete.
    node_cpu_ns: f64,
    clients_cpu_ns: f64,
    nats_cpu_ns_beside_node: f64,
    nats_cpu_ns_beside_bare: f64,
    nats_cpu_ns_beside_bare_with_ids: f64,
}

/// The sides of a run.
struct Sides {
    memory: FanoutRig,
    stream: FanoutRig,
    bare: BareClient,
    nats: NatsProcesses,
    /// The load at a fixed rate, even if the arguments request saturation.
    load: LoadArgs,
    window: u64,
    closed: [BTreeMap<String, u64>; 2],
    name: String,
    machine: String,
}

/// Measurements at a fixed rate.
#[derive(Default)]
struct AtRate {
    memory: FanoutPhase,
    stream: FanoutPhase,
    bare: Latency,
    turns: Vec<Turn>,
}

/// Measurements with a full window in flight.
#[derive(Default)]
struct InWindow {
    node: FanoutPhase,
    /// Without ids, and with ids.
    bare: [Acknowledged; 2],
    ratio_by_turn: Vec<f64>,
    nats_cpu_beside_node_ns: u64,
    nats_cpu_beside_bare_ns: [u64; 2],
}

/// Runs the scenario. The order rotates, so that a drift of the machine affects all sides equally.
pub fn run(args: &ClusterLatencyArgs) -> Result<(), Error> {
    args.check()?;
    let progress = Progress::new(args.run.output.quiet);
    let cores = args.run.pin.cores();
    let mut sides = Sides::start(args, &cores, &progress)?;
    let turn = args.load.duration / args.load.turns;
    // The bare client runs in this process, on the core of the node.
    proc::pin_self(&cores.server).map_err(|source| Error::os("pin to a core", source, "give --no-pin"))?;
    let (mut at_rate, mut in_window) = (AtRate::default(), InWindow::default());
    for number in 1..=args.load.turns {
        let label = format!("turn {number} of {}", args.load.turns);
        sides.turn_at_rate(number, turn, &label, &mut at_rate, &progress)?;
        sides.turn_in_window(number, turn / 2, &label, &mut in_window, &progress)?;
    }
    progress.finish();
    let report = ClusterLatencyReport::new(&sides, &cores, at_rate, &in_window);
    report::publish(&report, &report.lines(), &args.run.output)
}

impl Sides {
    fn start(args: &ClusterLatencyArgs, cores: &Cores, progress: &Progress) -> Result<Self, Error> {
        progress.doing("starting NATS and two nodes".into());
        let nats = NatsProcesses::start(&args.nats, &[])?;
        let load = LoadArgs { saturate: None, ..args.load.clone() };
        let start = |server: &ServerArgs| -> Result<FanoutRig, Error> {
            FanoutRig::start(ServerProcess::start(server, cores)?, &FanoutSetup::of(&load, cores))?.ready(
                &load,
                0,
                &args.run.server.start.api_key,
                progress,
            )
        };
        let mut memory = start(&node::alone(&args.run.server, &[]))?;
        let mut stream = start(&node::in_cluster(&args.run.server, NODE, &nats, &[]))?;
        let server = nats.server_of(&format!("{NODE} publish"))?;
        let bare = BareClient::connect(&nats.url(server), "bare", load.payload_bytes)?;
        let pace = PublishRate::PerSecond(load.rate);
        let warm = |rig: &mut FanoutRig| rig.phase(pace, load.warm_up, "warming up", progress);
        let closed = [warm(&mut memory)?.received.closed, warm(&mut stream)?.received.closed];
        let name = stream.server.name.clone();
        let window = args.load.saturate.unwrap_or(1);
        Ok(Sides { memory, stream, bare, nats, load, window, closed, name, machine: proc::machine() })
    }

    fn turn_at_rate(
        &mut self,
        number: u32,
        turn: Duration,
        label: &str,
        all: &mut AtRate,
        progress: &Progress,
    ) -> Result<(), Error> {
        let pace = PublishRate::PerSecond(self.load.rate);
        let (mut memory, mut stream, mut bare) = Default::default();
        for place in 0..3 {
            match (number + place) % 3 {
                0 => memory = self.memory.phase(pace, turn, &format!("{label}, memory"), progress)?,
                1 => stream = self.stream.phase(pace, turn, &format!("{label}, stream"), progress)?,
                _ => {
                    progress.doing(format!("{label}, bare client"));
                    bare = self.bare.at_rate(self.load.rate, turn)?;
                }
            }
        }
        all.add(&memory, &stream, &bare);
        Ok(())
    }

    fn turn_in_window(
        &mut self,
        number: u32,
        turn: Duration,
        label: &str,
        all: &mut InWindow,
        progress: &Progress,
    ) -> Result<(), Error> {
        let (mut node, mut bare) = (FanoutPhase::default(), [Acknowledged::default(); 2]);
        let readers = self.load.subscribers as u64;
        let pace = PublishRate::Window { window: self.window, readers };
        for place in 0..3 {
            let before_ns = self.nats.cpu_ns()?;
            match (number + place) % 3 {
                0 => {
                    node = self.stream.phase(pace, turn, &format!("{label}, window, node"), progress)?;
                    all.nats_cpu_beside_node_ns += self.nats.cpu_ns()? - before_ns;
                }
                with_ids => {
                    let (with_ids, at) = (with_ids == 2, with_ids as usize - 1);
                    progress.doing(format!("{label}, window, bare client, ids: {with_ids}"));
                    bare[at] = self.bare.in_window(self.window, with_ids, turn)?;
                    all.nats_cpu_beside_bare_ns[at] += self.nats.cpu_ns()? - before_ns;
                }
            }
        }
        let node_per_second = per_second(node.published.accepted, node.wall_ns);
        all.ratio_by_turn.push(ratio(node_per_second, bare[0].per_second()));
        all.node.add(&node);
        for (all, bare) in all.bare.iter_mut().zip(bare) {
            all.add(bare);
        }
        Ok(())
    }
}

impl AtRate {
    fn add(&mut self, memory: &FanoutPhase, stream: &FanoutPhase, bare: &Latency) {
        self.turns.push(Turn {
            memory: memory.received.latency.summary(),
            stream: stream.received.latency.summary(),
            bare: bare.summary(),
        });
        self.memory.add(memory);
        self.stream.add(stream);
        self.bare.add(bare);
    }
}

impl InWindow {
    fn figures(&self, window: u64) -> ThroughputFigures {
        let node_publications_per_second = per_second(self.node.published.accepted, self.node.wall_ns);
        let [bare_publications_per_second, with_ids_per_second] = self.bare.map(Acknowledged::per_second);
        let of_node = |ns: u64| ratio(ns as f64, self.node.published.publications as f64);
        let of_bare = |at: usize| ratio(self.nats_cpu_beside_bare_ns[at] as f64, self.bare[at].publications as f64);
        ThroughputFigures {
            window,
            node_publications_per_second,
            bare_publications_per_second,
            bare_publications_per_second_with_ids: with_ids_per_second,
            ratio_with_ids: ratio(node_publications_per_second, with_ids_per_second),
            ratio: ratio(node_publications_per_second, bare_publications_per_second),
            ratio_by_turn: self.ratio_by_turn.clone(),
            node_cpu_ns: of_node(self.node.server_cpu_ns),
            clients_cpu_ns: of_node(self.node.received.cpu_ns + self.node.published.cpu_ns),
            nats_cpu_ns_beside_node: of_node(self.nats_cpu_beside_node_ns),
            nats_cpu_ns_beside_bare: of_bare(0),
            nats_cpu_ns_beside_bare_with_ids: of_bare(1),
        }
    }
}

impl ClusterLatencyReport {
    fn new(sides: &Sides, cores: &Cores, at_rate: AtRate, in_window: &InWindow) -> Self {
        let memory = LoadFigures::new(&at_rate.memory, &sides.closed[0]);
        let stream = LoadFigures::new(&at_rate.stream, &sides.closed[1]);
        let bare = at_rate.bare.summary();
        let in_bare = |stream_us: u64, memory_us: u64, bare_us: u64| {
            ratio(stream_us.saturating_sub(memory_us) as f64, bare_us as f64)
        };
        let added_medians = in_bare(stream.p50_us(), memory.p50_us(), bare.p50_us);
        let added_p99s = in_bare(stream.p99_us(), memory.p99_us(), bare.p99_us);
        let throughput = in_window.figures(sides.window);
        let missed = memory.missed() + stream.missed() + in_window.node.received.lost;
        let goals = vec![
            Goal::at_most("lost or duplicated", Some(missed as f64), 0.0, ""),
            Goal::at_most(
                "median that the stream adds, in medians of the bare client",
                Some(added_medians),
                ADDED_MEDIANS_GOAL,
                "×",
            ),
            Goal::at_most(
                "p99 that the stream adds, in p99 of the bare client",
                Some(added_p99s),
                ADDED_P99S_GOAL,
                "×",
            ),
            Goal::at_least(
                "publications per second, compared with the bare client",
                Some(throughput.ratio),
                THROUGHPUT_GOAL,
                "×",
            ),
        ];
        ClusterLatencyReport {
            scenario: "cluster latency",
            machine: sides.machine.clone(),
            server: sides.name.clone(),
            nats_servers: sides.nats.replicas(),
            settings: Settings::new(&sides.load, cores),
            memory,
            stream,
            bare,
            turns: at_rate.turns,
            added_medians,
            added_p99s,
            throughput,
            goals,
        }
    }

    fn lines(&self) -> Vec<Line> {
        let mut lines = vec![Line::new("machine", &self.machine), self.settings.line()];
        for (name, load) in [("in memory", &self.memory), ("in a stream", &self.stream)] {
            lines.push(Line::new(name, ""));
            lines.extend(load.lines());
        }
        let Summary { p50_us, p99_us, count, .. } = self.bare;
        let bare = format!("p50 {}, p99 {} ({count} publications)", time(p50_us), time(p99_us));
        lines.push(Line::new("bare client, acknowledged", bare));
        for (number, Turn { memory, stream, bare }) in self.turns.iter().enumerate() {
            let both = |summary: &Summary| format!("{} / {}", time(summary.p50_us), time(summary.p99_us));
            let value = format!("memory {}, stream {}, bare {}", both(memory), both(stream), both(bare));
            lines.push(Line::new(format!("turn {}: p50 / p99", number + 1), value));
        }
        let throughput = &self.throughput;
        let by_turn: Vec<String> = throughput.ratio_by_turn.iter().map(|ratio| format!("{ratio:.2}")).collect();
        lines.push(Line::new(
            format!("{} in flight", throughput.window),
            format!(
                "node {} publications/s, bare client {} ({:.2} ×; by turn: {}), with ids {} ({:.2} ×)",
                grouped(throughput.node_publications_per_second),
                grouped(throughput.bare_publications_per_second),
                throughput.ratio,
                by_turn.join(", "),
                grouped(throughput.bare_publications_per_second_with_ids),
                throughput.ratio_with_ids
            ),
        ));
        let us = |ns: f64| format!("{:.0} µs", ns / 1e3);
        lines.push(Line::new(
            "CPU time for a publication",
            format!(
                "node {}, its clients {}, NATS {} beside the node, {} beside the bare client, {} with ids",
                us(throughput.node_cpu_ns),
                us(throughput.clients_cpu_ns),
                us(throughput.nats_cpu_ns_beside_node),
                us(throughput.nats_cpu_ns_beside_bare),
                us(throughput.nats_cpu_ns_beside_bare_with_ids)
            ),
        ));
        lines.extend(self.goals.iter().map(Goal::line));
        lines
    }
}
