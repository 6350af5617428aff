//! Latency from publishing to receiving in channels with each durability. Each durability has a separate server. All
//! servers run alternately on the same core. Between the turns, the bench itself syncs a file on the same disk.

use serde::Serialize;

use super::args::LatencyArgs;
use super::disk;
use crate::args::ServerArgs;
use crate::error::Error;
use crate::fanout::{LoadFigures, Settings};
use crate::folder::DataFolder;
use crate::goal::Goal;
use crate::latency::{Latency, Summary};
use crate::proc;
use crate::progress::Progress;
use crate::report::{self, Line, ratio, time};
use crate::rig::{FanoutPhase, FanoutRig, FanoutSetup};
use crate::spawn::{ServerProcess, setting};

const KINDS: [&str; 3] = ["memory", "disk", "disk_sync"];
/// Maximum latency that storing may add, at the 99th percentile.
const ADDED_MS_GOAL: f64 = 3.0;
/// Maximum latency that syncing may add, in syncs.
const ADDED_SYNCS_GOAL: f64 = 2.0;

/// The result of `latency`.
#[derive(Debug, Serialize)]
struct LatencyReport {
    scenario: &'static str,
    machine: String,
    server: String,
    settings: Settings,
    sides: Vec<Side>,
    /// Duration of a sync of a file on the same disk.
    sync: Summary,
    /// p99 of `disk` minus p99 of `memory`, in microseconds.
    disk_added_us: i64,
    /// The same for `disk_sync`.
    disk_sync_added_us: i64,
    /// The same in syncs, from the p99 of both.
    disk_sync_added_syncs: f64,
    goals: Vec<Goal>,
}

#[derive(Debug, Serialize)]
struct Side {
    durability: &'static str,
    #[serde(flatten)]
    load: LoadFigures,
}

struct Turns {
    durability: &'static str,
    rig: FanoutRig,
    phase: FanoutPhase,
    closed: std::collections::BTreeMap<String, u64>,
}

/// Runs the scenario. The order rotates, so that a drift of the machine affects all sides equally.
pub fn run(args: &LatencyArgs) -> Result<(), Error> {
    args.check()?;
    let progress = Progress::new(args.run.output.quiet);
    let folder = DataFolder::make(args.data.directory.as_deref(), "storage")?;
    let mut sides = Vec::new();
    for durability in KINDS {
        sides.push(start(args, durability, &folder, &progress)?);
    }
    let name = sides[0].rig.server.name.clone();
    let (pace, turn) = (args.load.pace(0), args.load.duration / args.load.turns);
    let mut synced = Latency::default();
    for number in 0..args.load.turns {
        sides.rotate_left(1);
        for side in &mut sides {
            let label = format!("turn {} of {}, {}", number + 1, args.load.turns, side.durability);
            let phase = side.rig.phase(pace, turn, &label, &progress)?;
            side.phase.add(&phase);
        }
        synced.add(&disk::syncs(&folder.join("synced"), turn / 4)?);
    }
    progress.finish();
    sides.sort_by_key(|side| KINDS.iter().position(|kind| *kind == side.durability));
    let report = LatencyReport::new(args, name, &sides, synced.summary());
    report::publish(&report, &report.lines(), &args.run.output)
}

fn start(
    args: &LatencyArgs,
    durability: &'static str,
    folder: &DataFolder,
    progress: &Progress,
) -> Result<Turns, Error> {
    progress.doing(format!("starting a server, {durability}"));
    let cores = args.run.pin.cores();
    let mut server: ServerArgs = args.run.server.next(false);
    server.start.port = None;
    server.set.extend([
        setting("channel.without_namespace.history_size", 1_000),
        setting("channel.without_namespace.history_ttl", "1h"),
        setting("channel.without_namespace.durability", durability),
        setting("storage.path", folder.join(durability).display()),
    ]);
    let process = ServerProcess::start(&server, &cores)?;
    let mut rig = FanoutRig::start(process, &FanoutSetup::of(&args.load, &cores))?.ready(
        &args.load,
        0,
        &args.run.server.start.api_key,
        progress,
    )?;
    let warm = rig.phase(args.load.pace(0), args.load.warm_up, "warming up", progress)?;
    Ok(Turns { durability, rig, phase: FanoutPhase::default(), closed: warm.received.closed })
}

impl LatencyReport {
    fn new(args: &LatencyArgs, server: String, turns: &[Turns], sync: Summary) -> Self {
        let side =
            |side: &Turns| Side { durability: side.durability, load: LoadFigures::new(&side.phase, &side.closed) };
        let sides: Vec<Side> = turns.iter().map(side).collect();
        let p99_us = |at: usize| sides[at].load.p99_us().cast_signed();
        let (disk_added_us, disk_sync_added_us) = (p99_us(1) - p99_us(0), p99_us(2) - p99_us(0));
        let disk_sync_added_syncs = ratio(disk_sync_added_us as f64, sync.p99_us as f64);
        let missed: u64 = sides.iter().map(|side| side.load.missed()).sum();
        let added = Some(disk_added_us as f64 / 1e3);
        let goals = vec![
            Goal::at_most("lost or duplicated", Some(missed as f64), 0.0, ""),
            Goal::at_most("p99 that disk adds to memory", added, ADDED_MS_GOAL, "ms"),
            Goal::at_most(
                "p99 that disk_sync adds, in p99 of one sync",
                Some(disk_sync_added_syncs),
                ADDED_SYNCS_GOAL,
                "×",
            ),
        ];
        LatencyReport {
            scenario: "storage latency",
            machine: proc::machine(),
            server,
            settings: Settings::new(&args.load, &args.run.pin.cores()),
            sides,
            sync,
            disk_added_us,
            disk_sync_added_us,
            disk_sync_added_syncs,
            goals,
        }
    }

    fn lines(&self) -> Vec<Line> {
        let mut lines = vec![Line::new("machine", &self.machine), self.settings.line()];
        for side in &self.sides {
            lines.push(Line::new(side.durability, ""));
            lines.extend(side.load.lines());
        }
        let Summary { p50_us, p99_us, count, .. } = self.sync;
        lines.push(Line::new("one sync", format!("p50 {}, p99 {} ({count} syncs)", time(p50_us), time(p99_us))));
        lines.extend(self.goals.iter().map(Goal::line));
        lines
    }
}
