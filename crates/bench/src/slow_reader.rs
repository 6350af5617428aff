//! Readers that stop reading, and what the others notice of it: pairs of runs, each on a fresh server where it is ours to start.

use serde::Serialize;

use crate::args::SlowReaderArgs;
use crate::control::Slow;
use crate::error::Error;
use crate::fanout::{LoadFigures, Settings, ready_rig};
use crate::proc::{self, Cores};
use crate::progress::Progress;
use crate::report::{self, Line, ratio};
use crate::rig::Phase;
use crate::spawn::Server;

/// What `slow-reader` found.
#[derive(Debug, Serialize)]
pub struct SlowReaderReport {
    scenario: &'static str,
    machine: String,
    server: String,
    settings: Settings,
    /// Runs in which all read.
    without: LoadFigures,
    /// The readers that read on, in runs in which others stopped.
    with: LoadFigures,
    /// 99th percentile of the second over that of the first.
    p99_ratio: f64,
    /// What became of those that stopped, one entry a run.
    slow_readers: Vec<Slow>,
}

/// Runs the scenario. The order of the two runs alternates, so that a drift of the machine meets both alike.
pub fn run(args: &SlowReaderArgs) -> Result<(), Error> {
    args.load.check(args.slow_readers)?;
    let cores = args.pin.cores();
    let progress = Progress::new(args.output.quiet);
    let (mut without, mut with, mut slow_readers) = (Phase::default(), Phase::default(), Vec::new());
    let mut name = String::new();
    for pair in 0..args.pairs {
        let order = if pair % 2 == 0 { [0, args.slow_readers] } else { [args.slow_readers, 0] };
        for slow in order {
            let label = format!("pair {} of {}, {slow} slow", pair + 1, args.pairs);
            let (phase, outcome) = run_once(args, slow, &cores, &label, &mut name, &progress)?;
            if slow == 0 {
                without.add(&phase)
            } else {
                with.add(&phase)
            }
            slow_readers.extend(outcome);
        }
    }
    progress.finish();
    let (without, with) = (LoadFigures::new(&without), LoadFigures::new(&with));
    let report = SlowReaderReport {
        scenario: "slow-reader",
        machine: proc::machine(),
        server: name,
        settings: Settings::new(&args.load, &cores),
        p99_ratio: ratio(with.p99_us() as f64, without.p99_us() as f64),
        without,
        with,
        slow_readers,
    };
    report::publish(&report, &report.lines(), &args.output)
}

fn run_once(
    args: &SlowReaderArgs,
    slow: usize,
    cores: &Cores,
    label: &str,
    name: &mut String,
    progress: &Progress,
) -> Result<(Phase, Option<Slow>), Error> {
    let server = Server::start(&args.server, cores)?;
    name.clone_from(&server.name);
    let mut rig = ready_rig(server, &args.load, slow, &args.server.api_key, cores, progress)?;
    let pace = args.load.pace(slow);
    rig.phase(pace, args.load.warm_up, "warming up", progress)?;
    if slow > 0 {
        rig.pause_slow()?;
    }
    let phase = rig.phase(pace, args.load.duration, label, progress)?;
    let outcome = if slow > 0 { Some(rig.wake_slow()?) } else { None };
    Ok((phase, outcome))
}

impl SlowReaderReport {
    fn lines(&self) -> Vec<Line> {
        let mut lines = vec![Line::new("machine", &self.machine), self.settings.line(), Line::new("", "")];
        lines.push(Line::new("WITHOUT", ""));
        lines.extend(self.without.lines());
        lines.push(Line::new("WITH SLOW READERS", ""));
        lines.extend(self.with.lines());
        lines.push(Line::new("p99 of the others", format!("{:.2} × that without slow readers", self.p99_ratio)));
        lines.extend(self.slow_readers.iter().map(Slow::line));
        lines
    }
}
