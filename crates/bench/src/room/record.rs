//! Records a treasure hunt, replays it, and replays it with one input changed.

use std::time::Duration;

use serde::Serialize;
use serde_json::json;

use super::args::{RecordArgs, in_range};
use super::player_commands::PlayerBehavior;
use super::rig::{RoomRig, RoomSetup, Scratch, room_settings};
use super::side::Side;
use super::tamper::{Tampered, tamper};
use super::verify::Verified;
use super::{Found, finish};
use crate::error::Error;
use crate::goal::Goal;
use crate::proc::{self, Cores};
use crate::progress::Progress;
use crate::report::{Line, size};
use crate::spawn::ServerProcess;

/// The result of `room record`.
#[derive(Debug, Serialize)]
struct Report {
    scenario: &'static str,
    machine: String,
    cores: Cores,
    players: usize,
    minutes: f64,
    game: Side,
    recording_bytes: u64,
    verified: Verified,
    tampered: Tampered,
    goals: Vec<Goal>,
}

/// Runs the scenario.
pub fn run(args: &RecordArgs) -> Result<(), Error> {
    args.play.check()?;
    in_range("minutes", args.minutes, 0.01, 1_440.0)?;
    let cores = args.run.pin.cores();
    let progress = Progress::new(args.run.output.quiet);
    let scratch = Scratch::create()?;
    let mut server = args.run.server.clone();
    let rate = ("ticks_per_second", json!(args.play.ticks_per_second));
    server.set.splice(0..0, room_settings("treasure_hunt", &json!({}), &[scratch.recording(), rate]));
    let setup = RoomSetup {
        play: PlayerBehavior::Hunt,
        join: Some("{}".into()),
        looks_from_own: true,
        keeps_observations: true,
        ..args.play.setup(&cores)
    };
    let mut rig = RoomRig::start(ServerProcess::start(&server, &cores)?, &setup, &scratch, &progress)?;
    let duration = Duration::from_secs_f64(60.0 * args.minutes);
    let phase = rig.phase(args.play.inputs_per_second, duration, "hunting", &progress)?;
    let verified = rig.verify(&scratch, &progress)?;
    let (tampered, recording_bytes) = match scratch.recordings(0).first() {
        Some(path) => {
            progress.doing("replaying with an input changed".into());
            let recording = super::verify::read_recording(path)?;
            (tamper(&recording), recording.len() as u64)
        }
        None => (Tampered::default(), 0),
    };
    progress.finish();
    let game = Side::new("treasure hunt", &phase);
    let report = report(args, cores, Played { game, recording_bytes, verified, tampered });
    let is_right = report.verified.is_good() && report.tampered.is_found() && report.game.is_sound();
    let found = Found { is_right, lines: report.lines() };
    finish(&report, &found, &args.run.output)
}

/// The game, and what its replay found.
struct Played {
    game: Side,
    recording_bytes: u64,
    verified: Verified,
    tampered: Tampered,
}

fn report(args: &RecordArgs, cores: Cores, played: Played) -> Report {
    let Played { game, recording_bytes, verified, tampered } = played;
    let goals = vec![
        Goal::at_most("recorded hashes that differ", Some(verified.recording_faults.len() as f64), 0.0, ""),
        Goal::at_most("snapshots that differ", Some(verified.mismatches as f64), 0.0, ""),
        Goal::at_least("a changed input is found at its tick", Some(f64::from(tampered.is_found())), 1.0, ""),
    ];
    Report {
        scenario: "room record",
        machine: proc::machine(),
        cores,
        players: args.play.players,
        minutes: args.minutes,
        game,
        recording_bytes,
        verified,
        tampered,
        goals,
    }
}

impl Report {
    fn lines(&self) -> Vec<Line> {
        let load = format!("{} players hunt for {} minutes", self.players, self.minutes);
        let mut lines = vec![Line::new("machine", &self.machine), Line::new("load", load)];
        lines.extend(self.game.lines());
        lines.push(Line::new("recording", size(self.recording_bytes)));
        lines.push(self.verified.line());
        lines.push(self.tampered.line());
        lines.extend(self.goals.iter().map(Goal::line));
        lines
    }
}
