//! All players send many more inputs for a short time.

use std::time::Duration;

use serde::Serialize;
use serde_json::json;

use super::args::{SpikeArgs, in_range};
use super::figures::ServerStats;
use super::player_commands::{Played, PlayersCommand};
use super::rig::{RoomPhase, RoomRig, RoomSetup, Scratch, room_settings};
use super::side::Side;
use super::verify::Verified;
use super::{Found, finish};
use crate::error::Error;
use crate::goal::Goal;
use crate::proc::{self, Cores};
use crate::progress::Progress;
use crate::report::{Line, grouped, ratio};
use crate::spawn::ServerProcess;

/// Duration and number of steps of the rise.
const RISE: Duration = Duration::from_millis(500);
const RISE_STEPS: u32 = 5;
/// Time after which all figures must be as before the spike.
const RECOVERY: Duration = Duration::from_secs(1);
/// Two intervals of 60 Hz are 33.3 ms. This is the next lower bound of the histogram.
const TWO_INTERVALS_S: f64 = 0.033;

/// The result of `room spike`.
#[derive(Debug, Serialize)]
struct Report {
    scenario: &'static str,
    machine: String,
    cores: Cores,
    players: usize,
    inputs_per_second: f64,
    factor: f64,
    before: Side,
    spike: Side,
    after: Side,
    /// All inputs of the run.
    inputs: u64,
    /// Inputs that the room has acknowledged.
    acknowledged: u64,
    /// Inputs that the server rejected.
    turned_away: u64,
    lost: u64,
    verified: Verified,
    goals: Vec<Goal>,
}

/// Runs the scenario.
pub fn run(args: &SpikeArgs) -> Result<(), Error> {
    args.play.check()?;
    in_range("factor", args.factor, 1.0, 1_000.0)?;
    in_range("spike-seconds", args.spike_seconds, 0.1, 3_600.0)?;
    let cores = args.run.pin.cores();
    let progress = Progress::new(args.run.output.quiet);
    let scratch = Scratch::create()?;
    let mut server = args.run.server.clone();
    let rate = ("ticks_per_second", json!(args.play.ticks_per_second));
    let params = json!({"objects": 0, "player_objects": true});
    server.set.splice(0..0, room_settings("crowd", &params, &[scratch.recording(), rate]));
    let setup = RoomSetup { keeps_observations: true, looks_from_own: true, ..args.play.setup(&cores) };
    let mut rig = RoomRig::start(ServerProcess::start(&server, &cores)?, &setup, &scratch, &progress)?;
    let phases = Phases::run(&mut rig, args, &progress)?;
    let verified = rig.verify(&scratch, &progress)?;
    progress.finish();
    let report = phases.report(args, cores, verified);
    let found = Found { is_right: report.is_right(), lines: report.lines() };
    finish(&report, &found, &args.run.output)
}

struct Phases {
    before: RoomPhase,
    spike: RoomPhase,
    after: RoomPhase,
    /// The players' measurements after the last reply.
    end: Played,
    /// The server's counters of the whole run.
    server_stats: ServerStats,
}

impl Phases {
    fn run(rig: &mut RoomRig, args: &SpikeArgs, progress: &Progress) -> Result<Self, Error> {
        let calm = args.play.inputs_per_second;
        rig.phase(calm, args.play.warm_up(), "warming up", progress)?;
        let before = rig.phase(calm, args.play.duration(), "before", progress)?;
        let spike = Self::spike(rig, args, progress)?;
        rig.phase(calm, RECOVERY, "getting back to normal", progress)?;
        let after = rig.phase(calm, args.play.duration(), "after", progress)?;
        let end = rig.phase(0.0, RECOVERY, "waiting for the last answers", progress)?.played;
        Ok(Phases { before, spike, after, end, server_stats: rig.server_stats()? })
    }

    fn spike(rig: &mut RoomRig, args: &SpikeArgs, progress: &Progress) -> Result<RoomPhase, Error> {
        let calm = args.play.inputs_per_second;
        let mut watch = rig.begin(calm)?;
        for step in 1..=RISE_STEPS {
            let share = f64::from(step) / f64::from(RISE_STEPS);
            let inputs_per_second = calm * (1.0 + (args.factor - 1.0) * share);
            rig.play_all(&PlayersCommand::Pace { inputs_per_second })?;
            rig.wait(&mut watch, RISE / RISE_STEPS, "inputs rise", progress)?;
        }
        rig.watch(watch, Duration::from_secs_f64(args.spike_seconds), "spike", progress)
    }

    fn report(&self, args: &SpikeArgs, cores: Cores, verified: Verified) -> Report {
        let side = Side::new;
        let (before, spike, after) =
            (side("before", &self.before), side("spike", &self.spike), side("after", &self.after));
        let late_by_two = self.spike.server_stats.late_by(TWO_INTERVALS_S);
        let turned_away = self.server_stats.inputs_turned_away();
        let lost = self.end.inputs_ever.saturating_sub(self.end.acknowledged_ever + turned_away);
        let p99_ms = |side: &Side| side.effect.p99_us as f64 / 1e3;
        let goals = vec![
            Goal::at_most("inputs lost", Some(lost as f64), 0.0, ""),
            Goal::at_most("ticks late by two intervals", late_by_two, 0.0, ""),
            Goal::at_most("ticks passed over", spike.server.ticks_skipped, 0.0, ""),
            Goal::at_most("input to effect in the spike, p99", Some(p99_ms(&spike)), 150.0, "ms"),
            Goal::at_most("the same after it, against before", Some(ratio(p99_ms(&after), p99_ms(&before))), 1.5, "×"),
        ];
        Report {
            scenario: "room spike",
            machine: proc::machine(),
            cores,
            players: args.play.players,
            inputs_per_second: args.play.inputs_per_second,
            factor: args.factor,
            before,
            spike,
            after,
            inputs: self.end.inputs_ever,
            acknowledged: self.end.acknowledged_ever,
            turned_away,
            lost,
            verified,
            goals,
        }
    }
}

impl Report {
    fn is_right(&self) -> bool {
        self.verified.is_good() && [&self.before, &self.spike, &self.after].iter().all(|side| side.is_sound())
    }

    fn lines(&self) -> Vec<Line> {
        let load = format!(
            "{} players, {} inputs/s each, {} × that in the spike",
            self.players, self.inputs_per_second, self.factor
        );
        let mut lines = vec![Line::new("machine", &self.machine), Line::new("load", load)];
        for side in [&self.before, &self.spike, &self.after] {
            lines.extend(side.lines());
        }
        let inputs = format!(
            "{} sent, {} acknowledged, {} turned away, {} lost",
            grouped(self.inputs as f64),
            grouped(self.acknowledged as f64),
            grouped(self.turned_away as f64),
            self.lost
        );
        lines.push(Line::new("inputs", inputs));
        lines.push(self.verified.line());
        lines.extend(self.goals.iter().map(Goal::line));
        lines
    }
}
