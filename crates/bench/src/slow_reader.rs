//! Readers that stop reading, and the effect on the others: pairs of runs, each on a fresh server if this program
//! starts it.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::args::SlowReaderArgs;
use crate::control::Slow;
use crate::error::Error;
use crate::fanout::{LoadFigures, Settings, slow_readers_line};
use crate::proc::{self, Cores};
use crate::progress::Progress;
use crate::report::{self, Line, ratio};
use crate::rig::{FanoutPhase, FanoutRig, FanoutSetup};
use crate::spawn::ServerProcess;

/// The result of `slow-reader`.
#[derive(Debug, Serialize)]
pub struct SlowReaderReport {
    scenario: &'static str,
    machine: String,
    server: String,
    settings: Settings,
    /// Runs in which all readers read.
    without: LoadFigures,
    /// The remaining readers, in runs in which others stopped reading.
    with: LoadFigures,
    /// 99th percentile with slow readers, divided by that without, over all runs.
    p99_ratio: f64,
    /// The same for each pair, which shows the variation.
    p99_ratio_by_pair: Vec<f64>,
    /// The outcome of the readers that stopped, one entry per run.
    slow_readers: Vec<Slow>,
}

/// The sum of the runs of one kind.
#[derive(Default)]
struct Side {
    phase: FanoutPhase,
    closed_in_warm_up: BTreeMap<String, u64>,
}

struct Scenario<'a> {
    args: &'a SlowReaderArgs,
    cores: Cores,
    progress: Progress,
    server: String,
    without: Side,
    with: Side,
    slow_readers: Vec<Slow>,
}

/// Runs the scenario. The order of the two runs alternates, so that a drift of the machine affects both equally.
pub fn run(args: &SlowReaderArgs) -> Result<(), Error> {
    args.load.check(args.slow_readers)?;
    let mut scenario = Scenario {
        args,
        cores: args.run.pin.cores(),
        progress: Progress::new(args.run.output.quiet),
        server: String::new(),
        without: Side::default(),
        with: Side::default(),
        slow_readers: Vec::new(),
    };
    let mut p99_ratio_by_pair = Vec::new();
    for pair in 1..=args.pairs {
        let label = format!("pair {pair} of {}", args.pairs);
        let (without_us, with_us) = if pair % 2 == 1 {
            let without_us = scenario.run_once(0, &label)?;
            (without_us, scenario.run_once(args.slow_readers, &label)?)
        } else {
            let with_us = scenario.run_once(args.slow_readers, &label)?;
            (scenario.run_once(0, &label)?, with_us)
        };
        p99_ratio_by_pair.push(ratio(with_us as f64, without_us as f64));
    }
    scenario.progress.finish();
    let report = scenario.report(p99_ratio_by_pair);
    report::publish(&report, &report.lines(), &args.run.output)
}

impl Scenario<'_> {
    /// Runs on a fresh rig and adds to its side; returns the 99th percentile of the remaining readers.
    fn run_once(&mut self, slow: usize, label: &str) -> Result<u64, Error> {
        let args = self.args;
        let server = ServerProcess::start(&args.run.server, &self.cores)?;
        self.server.clone_from(&server.name);
        let mut rig = FanoutRig::start(server, &FanoutSetup::of(&args.load, &self.cores))?.ready(
            &args.load,
            slow,
            &args.run.server.start.api_key,
            &self.progress,
        )?;
        let pace = args.load.pace(slow);
        let warm = rig.phase(pace, args.load.warm_up, "warming up", &self.progress)?;
        if slow > 0 {
            rig.pause_slow()?;
        }
        let phase = rig.phase(pace, args.load.duration, &format!("{label}, {slow} slow"), &self.progress)?;
        if slow > 0 {
            self.slow_readers.push(rig.wake_slow()?);
        }
        let side = if slow == 0 { &mut self.without } else { &mut self.with };
        side.phase.add(&phase);
        for (why, count) in warm.received.closed {
            *side.closed_in_warm_up.entry(why).or_default() += count;
        }
        Ok(phase.received.latency.summary().p99_us)
    }

    fn report(self, p99_ratio_by_pair: Vec<f64>) -> SlowReaderReport {
        let figures = |side: &Side| LoadFigures::new(&side.phase, &side.closed_in_warm_up);
        let (without, with) = (figures(&self.without), figures(&self.with));
        SlowReaderReport {
            scenario: "slow-reader",
            machine: proc::machine(),
            server: self.server,
            settings: Settings::new(&self.args.load, &self.cores),
            p99_ratio: ratio(with.p99_us() as f64, without.p99_us() as f64),
            p99_ratio_by_pair,
            without,
            with,
            slow_readers: self.slow_readers,
        }
    }
}

impl SlowReaderReport {
    fn lines(&self) -> Vec<Line> {
        let mut lines = vec![Line::new("machine", &self.machine), self.settings.line(), Line::new("without", "")];
        lines.extend(self.without.lines());
        lines.push(Line::new("with", ""));
        lines.extend(self.with.lines());
        let pairs: Vec<String> = self.p99_ratio_by_pair.iter().map(|ratio| format!("{ratio:.2}")).collect();
        let others = format!("{:.2} × that without slow readers (by pair: {})", self.p99_ratio, pairs.join(", "));
        lines.push(Line::new("p99 of the others", others));
        lines.extend(self.slow_readers.iter().map(slow_readers_line));
        lines
    }
}
