//! One room without and with `survival`, alternately: the cost of checkpoints and of the log in ticks and processor
//! time.

use serde::Serialize;
use serde_json::{Value, json};

use super::args::{SurvivalArgs, in_range};
use super::rig::{RoomPhase, RoomRig, Scratch, room_settings};
use super::side::Side;
use super::{Found, finish};
use crate::args::ServerArgs;
use crate::error::Error;
use crate::goal::Goal;
use crate::proc::{self, Cores};
use crate::progress::Progress;
use crate::report::{Line, ratio};
use crate::spawn::ServerProcess;

const NONE: &str = "none";
const CHECKPOINT: &str = "checkpoint";
const EXACT: &str = "exact";

/// The result of `room survival`.
#[derive(Debug, Serialize)]
struct Report {
    scenario: &'static str,
    machine: String,
    cores: Cores,
    players: usize,
    ticks_per_second: u32,
    inputs_per_second: f64,
    checkpoint_interval: String,
    sides: Vec<Side>,
    /// Each setting compared with the side without `survival` in the same turn.
    compared: Vec<Compared>,
    goals: Vec<Goal>,
}

/// A side compared with the one without `survival`, by turn.
#[derive(Debug, Serialize)]
struct Compared {
    name: &'static str,
    cpu_ratio_by_turn: Vec<f64>,
    tick_mean_ratio_by_turn: Vec<f64>,
    ticks_late_by_turn: Vec<f64>,
    checkpoints: f64,
    log_records: f64,
    log_bytes: f64,
}

/// A setting of `survival`.
struct Contender {
    name: &'static str,
    phases: Vec<RoomPhase>,
}

/// Runs the scenario.
pub fn run(args: &SurvivalArgs) -> Result<(), Error> {
    args.play.check()?;
    in_range("objects", args.objects.into(), 1.0, 100_000.0)?;
    in_range("turns", args.turns.into(), 1.0, 100.0)?;
    let cores = args.run.pin.cores();
    let progress = Progress::new(args.run.output.quiet);
    let mut contenders = [NONE, CHECKPOINT, EXACT].map(|name| Contender { name, phases: Vec::new() });
    for turn in 1..=args.turns {
        for contender in &mut contenders {
            contender.run_once(args, &cores, &format!("turn {turn} of {}", args.turns), &progress)?;
        }
        // The order alternates, so that a drift of the machine affects all settings equally.
        contenders.reverse();
    }
    progress.finish();
    contenders.sort_by_key(|contender| [NONE, CHECKPOINT, EXACT].iter().position(|name| *name == contender.name));
    let report = report(args, cores, contenders);
    let found = Found { is_right: report.sides.iter().all(Side::is_sound), lines: report.lines() };
    finish(&report, &found, &args.run.output)
}

fn server(args: &SurvivalArgs, survival: &str, scratch: &Scratch) -> ServerArgs {
    let mut server = args.run.server.clone();
    let params = json!({"objects": args.objects, "everyone_sees_everything": true, "state_bytes": 10});
    let mut more: Vec<(&str, Value)> = vec![("ticks_per_second", json!(args.play.ticks_per_second))];
    more.push(("survival", survival.into()));
    more.push(("checkpoint_interval", args.checkpoint_interval.as_str().into()));
    let storage = format!("storage.path={}", scratch.path().join("storage").display());
    server.set.splice(0..0, room_settings("crowd", &params, &more).into_iter().chain([storage]));
    server
}

impl Contender {
    fn run_once(&mut self, args: &SurvivalArgs, cores: &Cores, turn: &str, progress: &Progress) -> Result<(), Error> {
        progress.doing(format!("{turn}: starting {}", self.name));
        let scratch = Scratch::create()?;
        let server = ServerProcess::start(&server(args, self.name, &scratch), cores)?;
        let mut rig = RoomRig::start(server, &args.play.setup(cores), &scratch, progress)?;
        let pace = args.play.inputs_per_second;
        rig.phase(pace, args.play.warm_up(), "warming up", progress)?;
        let phase = rig.phase(pace, args.play.duration(), &format!("{turn}: {}", self.name), progress)?;
        self.phases.push(phase);
        Ok(())
    }

    fn compared_with(&self, other: &Contender) -> Compared {
        let by_turn = |figure: fn(&RoomPhase) -> f64| {
            self.phases.iter().zip(&other.phases).map(|(own, others)| ratio(figure(own), figure(others))).collect()
        };
        let sum = |figure: fn(&RoomPhase) -> f64| self.phases.iter().map(figure).sum();
        Compared {
            name: self.name,
            cpu_ratio_by_turn: by_turn(RoomPhase::cpu_ns_per_snapshot),
            tick_mean_ratio_by_turn: by_turn(|phase| phase.server_stats.figures().tick_mean_us.unwrap_or(0.0)),
            ticks_late_by_turn: self.phases.iter().map(ticks_late).collect(),
            checkpoints: sum(|phase| phase.server_stats.counted("dunlin_room_checkpoints_total")),
            log_records: sum(|phase| phase.server_stats.counted("dunlin_room_log_records_total")),
            log_bytes: sum(|phase| phase.server_stats.counted("dunlin_room_log_bytes_total")),
        }
    }
}

fn ticks_late(phase: &RoomPhase) -> f64 {
    phase.server_stats.figures().ticks_late.unwrap_or(0.0)
}

fn report(args: &SurvivalArgs, cores: Cores, contenders: [Contender; 3]) -> Report {
    let [none, ..] = &contenders;
    let compared: Vec<Compared> = contenders.iter().map(|contender| contender.compared_with(none)).collect();
    let late = |compared: &Compared| compared.ticks_late_by_turn.iter().sum::<f64>();
    let [of_none, _, of_exact] = &*compared else { unreachable!("there are three") };
    let goals = vec![Goal::at_most(
        "ticks late with the log, beyond those without",
        Some((late(of_exact) - late(of_none)).max(0.0)),
        0.0,
        "",
    )];
    let sides = contenders.into_iter().map(|contender| {
        let name = format!("survival {}", contender.name);
        let mut whole = RoomPhase::default();
        contender.phases.into_iter().for_each(|phase| whole.add(phase));
        Side::new(&name, &whole)
    });
    Report {
        scenario: "room survival",
        machine: proc::machine(),
        cores,
        players: args.play.players,
        ticks_per_second: args.play.ticks_per_second,
        inputs_per_second: args.play.inputs_per_second,
        checkpoint_interval: args.checkpoint_interval.clone(),
        sides: sides.collect(),
        compared,
        goals,
    }
}

impl Report {
    fn lines(&self) -> Vec<Line> {
        let load = format!(
            "{} players, {} ticks/s, {} inputs/s each, a checkpoint every {}",
            self.players, self.ticks_per_second, self.inputs_per_second, self.checkpoint_interval
        );
        let mut lines = vec![Line::new("machine", &self.machine), Line::new("load", load)];
        lines.extend(self.sides.iter().flat_map(Side::lines));
        lines.extend(self.compared.iter().map(Compared::line));
        lines.extend(self.goals.iter().map(Goal::line));
        lines
    }
}

impl Compared {
    fn line(&self) -> Line {
        let list = |figures: &[f64], digits| {
            figures.iter().map(|figure| format!("{figure:.digits$}")).collect::<Vec<_>>().join(", ")
        };
        let text = format!(
            "processor time a snapshot × {}; mean tick × {}; ticks late {}; {} checkpoints, {} log records of {:.0} bytes",
            list(&self.cpu_ratio_by_turn, 2),
            list(&self.tick_mean_ratio_by_turn, 2),
            list(&self.ticks_late_by_turn, 0),
            self.checkpoints,
            self.log_records,
            ratio(self.log_bytes, self.log_records),
        );
        Line::new(format!("{} against none", self.name), text)
    }
}
