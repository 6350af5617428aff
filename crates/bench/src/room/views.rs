//! Compares players who see a part of the map with players who see all of it.

use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use super::args::{ViewsArgs, in_range};
use super::rig::{RoomPhase, RoomRig, RoomSetup, Scratch, room_settings};
use super::side::Side;
use super::verify::Verified;
use super::{Found, finish};
use crate::args::ServerArgs;
use crate::error::Error;
use crate::goal::Goal;
use crate::proc::{self, Cores};
use crate::progress::Progress;
use crate::report::{Line, ratio};
use crate::spawn::ServerProcess;

/// Number of visible cells in each direction from the cell of the viewpoint.
const NEAR_CELLS: u32 = 2;

/// The result of `room views`.
#[derive(Debug, Serialize)]
struct Report {
    scenario: &'static str,
    machine: String,
    cores: Cores,
    players: usize,
    objects: u32,
    moving_permille: u32,
    /// Number of cells of the map; the next field is the number that a player away from the edges sees.
    cells: u32,
    visible_cells: u32,
    /// Average number of cells with a viewpoint per tick, in the verified run.
    occupied_cells: Option<f64>,
    views: Side,
    everything: Side,
    verified: Option<Verified>,
    goals: Vec<Goal>,
}

/// Runs the scenario.
pub fn run(args: &ViewsArgs) -> Result<(), Error> {
    args.play.check()?;
    in_range("objects", args.objects.into(), 1.0, 100_000.0)?;
    in_range("moving-permille", args.moving_permille.into(), 0.0, 1_000.0)?;
    in_range("cells", args.cells.into(), 1.0, 256.0)?;
    in_range("verify-seconds", args.verify_seconds, 0.0, 3_600.0)?;
    let cores = args.run.pin.cores();
    let progress = Progress::new(args.run.output.quiet);
    let verified = if args.verify_seconds > 0.0 { Some(verify(args, &cores, &progress)?) } else { None };
    let views = measure(args, false, &cores, &progress)?;
    let everything = measure(args, true, &cores, &progress)?;
    progress.finish();
    let report = report(args, cores, (&views, &everything), verified);
    let found = Found { is_right: report.is_right(), lines: report.lines() };
    finish(&report, &found, &args.run.output)
}

fn server(args: &ViewsArgs, everything: bool, more: &[(&str, Value)]) -> ServerArgs {
    let params = json!({
        "objects": args.objects,
        "moving_permille": args.moving_permille,
        "columns": args.cells,
        "rows": args.cells,
        "near_cells": NEAR_CELLS,
        "everyone_sees_everything": everything,
    });
    let rate = ("ticks_per_second", json!(args.play.ticks_per_second));
    let more: Vec<_> = more.iter().cloned().chain([rate]).collect();
    let mut server = args.run.server.clone();
    server.set.splice(0..0, room_settings("crowd", &params, &more));
    server
}

/// A separate run with a recording. Also returns the number of cells with a viewpoint per tick.
fn verify(args: &ViewsArgs, cores: &Cores, progress: &Progress) -> Result<Verified, Error> {
    let scratch = Scratch::create()?;
    let server = ServerProcess::start(&server(args, false, &[scratch.recording()]), cores)?;
    let setup = RoomSetup { keeps_observations: true, full_every: 1, ..args.play.setup(cores) };
    let mut rig = RoomRig::start(server, &setup, &scratch, progress)?;
    let duration = Duration::from_secs_f64(args.verify_seconds);
    rig.phase(args.play.inputs_per_second, duration, "a run to verify", progress)?;
    rig.verify(&scratch, progress)
}

fn measure(args: &ViewsArgs, everything: bool, cores: &Cores, progress: &Progress) -> Result<RoomPhase, Error> {
    let scratch = Scratch::create()?;
    let server = ServerProcess::start(&server(args, everything, &[]), cores)?;
    let mut rig = RoomRig::start(server, &args.play.setup(cores), &scratch, progress)?;
    let pace = args.play.inputs_per_second;
    rig.phase(pace, args.play.warm_up(), "warming up", progress)?;
    let label = if everything { "everybody sees everything" } else { "views" };
    rig.phase(pace, args.play.duration(), label, progress)
}

fn report(
    args: &ViewsArgs,
    cores: Cores,
    (views, everything): (&RoomPhase, &RoomPhase),
    verified: Option<Verified>,
) -> Report {
    let (views, everything) = (Side::new("views", views), Side::new("everything", everything));
    let occupied_cells = verified.as_ref().map(|verified| verified.views_per_tick);
    let per_cell = occupied_cells.zip(views.server.encodes_per_tick).map(|(cells, bodies)| ratio(bodies, cells));
    let of = |views: f64, everything: f64| Some(ratio(views, everything));
    let tick = views.server.tick_p99_us.zip(everything.server.tick_p99_us);
    let goals = vec![
        Goal::at_most(
            "bytes of a snapshot, against everything",
            of(views.bytes_per_snapshot(), everything.bytes_per_snapshot()),
            0.125,
            "×",
        ),
        Goal::at_most("tick p99, against everything", tick.map(|(own, other)| ratio(own, other)), 0.125, "×"),
        Goal::at_most(
            "processor time a snapshot, against everything",
            of(views.server_cpu_us_per_snapshot, everything.server_cpu_us_per_snapshot),
            0.125,
            "×",
        ),
        // One body from the previous tick, and one for players that are behind or have just entered the cell.
        Goal::at_most("bodies a tick and occupied cell", per_cell, 2.0, ""),
    ];
    Report {
        scenario: "room views",
        machine: proc::machine(),
        cores,
        players: args.play.players,
        objects: args.objects,
        moving_permille: args.moving_permille,
        cells: args.cells * args.cells,
        visible_cells: (2 * NEAR_CELLS + 1).min(args.cells).pow(2),
        occupied_cells,
        views,
        everything,
        verified,
        goals,
    }
}

impl Report {
    fn is_right(&self) -> bool {
        self.verified.as_ref().is_none_or(Verified::is_good) && self.views.is_sound() && self.everything.is_sound()
    }

    fn lines(&self) -> Vec<Line> {
        let seen = 100.0 * f64::from(self.visible_cells) / f64::from(self.cells);
        let load = format!(
            "{} players, {} objects ({} ‰ move); {} cells (a player sees {:.1} %)",
            self.players, self.objects, self.moving_permille, self.cells, seen
        );
        let mut lines = vec![Line::new("machine", &self.machine), Line::new("load", load)];
        lines.extend(self.views.lines());
        lines.extend(self.everything.lines());
        if let Some(cells) = self.occupied_cells {
            lines.push(Line::new("occupied cells", format!("{cells:.1} in a tick")));
        }
        lines.extend(self.verified.as_ref().map(Verified::line));
        lines.extend(self.goals.iter().map(Goal::line));
        lines
    }
}
