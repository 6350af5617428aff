//! Players that stop reading and continue later.

use std::time::Duration;

use serde::Serialize;
use serde_json::json;

use super::args::{SlowArgs, in_range};
use super::player_commands::PlayersCommand;
use super::rig::{RoomPhase, RoomRig, RoomSetup, Scratch, room_settings};
use super::side::{Side, summary_line};
use super::verify::Verified;
use super::{Found, finish};
use crate::error::Error;
use crate::goal::Goal;
use crate::latency::Summary;
use crate::proc::{self, Cores};
use crate::progress::Progress;
use crate::report::{Line, size};
use crate::spawn::ServerProcess;

/// Time for the kernel's buffers to fill.
const FILLING: Duration = Duration::from_secs(2);
/// A few pages that the allocator may return or request in the meantime.
const MEMORY_SLACK_BYTES: f64 = 256.0 * 1024.0;

/// The result of `room slow`.
#[derive(Debug, Serialize)]
struct Report {
    scenario: &'static str,
    machine: String,
    cores: Cores,
    players: usize,
    slow_players: usize,
    pause_seconds: f64,
    before: Side,
    /// While the slow players do not read.
    paused: Side,
    /// After the slow players have resumed reading.
    awake: Side,
    /// Private memory of the server before the pause. The next fields: 2 s into the pause, and the maximum from then to
    /// its end.
    memory_before_bytes: u64,
    memory_filled_bytes: u64,
    memory_paused_bytes_max: u64,
    /// Slow players that have emptied their socket. The next fields: players that are up to date, and the time that
    /// this took.
    drained: u64,
    caught_up: u64,
    catch_up: Summary,
    verified: Verified,
    goals: Vec<Goal>,
}

/// Runs the scenario.
pub fn run(args: &SlowArgs) -> Result<(), Error> {
    args.play.check()?;
    in_range("slow-players", args.slow_players as f64, 1.0, args.play.players as f64)?;
    in_range("pause-seconds", args.pause_seconds, 2.5, 3_600.0)?;
    let cores = args.run.pin.cores();
    let progress = Progress::new(args.run.output.quiet);
    let scratch = Scratch::create()?;
    let mut server = args.run.server.clone();
    let rate = ("ticks_per_second", json!(args.play.ticks_per_second));
    let params = json!({"everyone_sees_everything": true});
    server.set.splice(0..0, room_settings("crowd", &params, &[scratch.recording(), rate]));
    let setup = RoomSetup {
        slow: args.slow_players,
        slow_receive_bytes: args.slow_receive_bytes,
        keeps_observations: true,
        ..args.play.setup(&cores)
    };
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
    paused: RoomPhase,
    awake: RoomPhase,
    memory_filled_bytes: u64,
    memory_paused_bytes_max: u64,
}

impl Phases {
    fn run(rig: &mut RoomRig, args: &SlowArgs, progress: &Progress) -> Result<Self, Error> {
        let pace = args.play.inputs_per_second;
        rig.phase(pace, args.play.warm_up(), "warming up", progress)?;
        let before = rig.phase(pace, args.play.duration(), "before", progress)?;
        rig.play_all(&PlayersCommand::Pause)?;
        let mut watch = rig.begin(pace)?;
        rig.wait(&mut watch, FILLING, "buffers fill", progress)?;
        let memory_filled_bytes = watch.anon_bytes();
        let left = Duration::from_secs_f64(args.pause_seconds).saturating_sub(FILLING);
        let paused = rig.watch(watch, left, "some don't read", progress)?;
        let looks = left.as_millis() as usize / 100;
        let recent = paused.memory.iter().rev().take(looks).map(|memory| memory.anon_bytes);
        let memory_paused_bytes_max = recent.max().unwrap_or(0);
        let watch = rig.begin(pace)?;
        rig.play_all(&PlayersCommand::Wake)?;
        let awake = rig.watch(watch, args.play.duration(), "all read again", progress)?;
        Ok(Phases { before, paused, awake, memory_filled_bytes, memory_paused_bytes_max })
    }

    fn report(&self, args: &SlowArgs, cores: Cores, verified: Verified) -> Report {
        let slow = args.slow_players as f64;
        let played = &self.awake.played;
        let catch_up = played.catch_up.summary();
        let growth = self.memory_paused_bytes_max.saturating_sub(self.memory_filled_bytes);
        let two_ticks_ms = 2_000.0 / f64::from(args.play.ticks_per_second);
        let goals = vec![
            Goal::at_least("slow players that are up to date", Some(played.caught_up as f64), slow, ""),
            Goal::at_most(
                "up to date after their socket was empty, at most",
                Some(catch_up.max_us as f64 / 1e3),
                two_ticks_ms,
                "ms",
            ),
            Goal::at_most("memory gained while they don't read", Some(growth as f64), MEMORY_SLACK_BYTES, "bytes"),
        ];
        Report {
            scenario: "room slow",
            machine: proc::machine(),
            cores,
            players: args.play.players,
            slow_players: args.slow_players,
            pause_seconds: args.pause_seconds,
            before: Side::new("before", &self.before),
            paused: Side::new("some don't read", &self.paused),
            awake: Side::new("all read again", &self.awake),
            memory_before_bytes: self.before.memory.last().map_or(0, |memory| memory.anon_bytes),
            memory_filled_bytes: self.memory_filled_bytes,
            memory_paused_bytes_max: self.memory_paused_bytes_max,
            drained: played.drained,
            caught_up: played.caught_up,
            catch_up,
            verified,
            goals,
        }
    }
}

impl Report {
    fn is_right(&self) -> bool {
        self.verified.is_good() && [&self.before, &self.paused, &self.awake].iter().all(|side| side.is_sound())
    }

    fn lines(&self) -> Vec<Line> {
        let load =
            format!("{} players, {} of them do not read for {} s", self.players, self.slow_players, self.pause_seconds);
        let mut lines = vec![Line::new("machine", &self.machine), Line::new("load", load)];
        for side in [&self.before, &self.paused, &self.awake] {
            lines.extend(side.lines());
        }
        let memory = format!(
            "{} before, {} when buffers were full, then {} at most",
            size(self.memory_before_bytes),
            size(self.memory_filled_bytes),
            size(self.memory_paused_bytes_max)
        );
        lines.push(Line::new("private memory", memory));
        lines.push(summary_line("up to date again", &self.catch_up));
        lines.push(self.verified.line());
        lines.extend(self.goals.iter().map(Goal::line));
        lines
    }
}
