//! Many small rooms: whether all tick on time, or the largest number that does.

use serde::Serialize;
use serde_json::json;

use super::args::{RoomsArgs, in_range};
use super::rig::{RoomPhase, RoomRig, RoomSetup, Scratch, room_settings};
use super::side::Side;
use super::{Found, finish};
use crate::error::Error;
use crate::goal::Goal;
use crate::proc::{self, Cores};
use crate::progress::Progress;
use crate::report::Line;
use crate::spawn::ServerProcess;

/// The largest number may be too low by this fraction of it.
const PRECISION: usize = 16;
const ROOMS_MAX: usize = 20_000;
const GOAL: f64 = 500.0;

/// The result of `room rooms`.
#[derive(Debug, Serialize)]
struct Report {
    scenario: &'static str,
    machine: String,
    cores: Cores,
    players_per_room: usize,
    ticks_per_second: u32,
    /// The largest number of rooms that ticked on time.
    rooms_held: usize,
    tries: Vec<Try>,
    goals: Vec<Goal>,
}

#[derive(Debug, Serialize)]
struct Try {
    rooms: usize,
    held: bool,
    #[serde(flatten)]
    side: Side,
}

/// Runs the scenario.
pub fn run(args: &RoomsArgs) -> Result<(), Error> {
    args.play.check()?;
    in_range("rooms", args.rooms.unwrap_or(1) as f64, 1.0, ROOMS_MAX as f64)?;
    in_range("from", args.from as f64, 1.0, ROOMS_MAX as f64)?;
    in_range("players-per-room", args.players_per_room as f64, 1.0, 10_000.0)?;
    let cores = args.run.pin.cores();
    let progress = Progress::new(args.run.output.quiet);
    let mut tries = Vec::new();
    let mut attempt = |rooms: usize| -> Result<bool, Error> {
        let phase = measure(args, rooms, &cores, &progress)?;
        let side = Side::new(&format!("{rooms} rooms"), &phase);
        let held = holds(&side);
        tries.push(Try { rooms, held, side });
        Ok(held)
    };
    let rooms_held = match args.rooms {
        Some(rooms) => {
            if attempt(rooms)? {
                rooms
            } else {
                0
            }
        }
        None => largest(args.from, ROOMS_MAX, &mut attempt)?,
    };
    progress.finish();
    let wanted = args.rooms.map_or(GOAL, |rooms| rooms as f64);
    let report = Report {
        scenario: "room rooms",
        machine: proc::machine(),
        cores,
        players_per_room: args.players_per_room,
        ticks_per_second: args.play.ticks_per_second,
        rooms_held,
        goals: vec![Goal::at_least("rooms without an overrun", Some(rooms_held as f64), wanted, "")],
        tries,
    };
    let is_right = report.tries.iter().all(|one| !one.held || one.side.is_sound());
    let found = Found { is_right, lines: report.lines() };
    finish(&report, &found, &args.run.output)
}

/// Whether no tick took longer than its interval, began after the next was due, or was skipped.
fn holds(side: &Side) -> bool {
    let none = |count: Option<f64>| count == Some(0.0);
    none(side.server.overruns) && none(side.server.ticks_late) && none(side.server.ticks_skipped)
}

fn measure(args: &RoomsArgs, rooms: usize, cores: &Cores, progress: &Progress) -> Result<RoomPhase, Error> {
    let scratch = Scratch::create()?;
    let mut server = args.run.server.clone();
    let params = json!({"objects": 8, "player_objects": true, "everyone_sees_everything": true});
    let rate = ("ticks_per_second", json!(args.play.ticks_per_second));
    server.set.splice(0..0, room_settings("crowd", &params, &[rate]));
    let setup = RoomSetup {
        players: rooms * args.players_per_room,
        players_per_room: args.players_per_room,
        ..args.play.setup(cores)
    };
    let mut rig = RoomRig::start(ServerProcess::start(&server, cores)?, &setup, &scratch, progress)?;
    let pace = args.play.inputs_per_second;
    rig.phase(pace, args.play.warm_up(), "warming up", progress)?;
    rig.phase(pace, args.play.duration(), &format!("{rooms} rooms"), progress)
}

/// The approximately largest number that holds. Doubles the number until one does not hold, and then bisects.
fn largest(from: usize, max: usize, holds: &mut impl FnMut(usize) -> Result<bool, Error>) -> Result<usize, Error> {
    let (mut good, mut next) = (0, from);
    let mut bad = loop {
        if !holds(next)? {
            break next;
        }
        good = next;
        if next >= max {
            return Ok(good);
        }
        next = (next * 2).min(max);
    };
    while bad - good > (good / PRECISION).max(1) {
        let middle = good + (bad - good) / 2;
        if holds(middle)? {
            good = middle;
        } else {
            bad = middle;
        }
    }
    Ok(good)
}

impl Report {
    fn lines(&self) -> Vec<Line> {
        let load = format!("rooms of {} players at {} ticks/s", self.players_per_room, self.ticks_per_second);
        let mut lines = vec![Line::new("machine", &self.machine), Line::new("load", load)];
        lines.extend(self.tries.iter().flat_map(|one| one.side.lines()));
        for one in &self.tries {
            lines.push(Line::new(format!("{} rooms", one.rooms), if one.held { "held" } else { "did not hold" }));
        }
        lines.extend(self.goals.iter().map(Goal::line));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_for_the_largest_number_takes_few_tries() {
        for limit in [0, 1, 63, 64, 65, 500, 19_999, 20_000, 30_000] {
            let mut tries = 0;
            let mut holds = |rooms: usize| {
                tries += 1;
                Ok(rooms <= limit)
            };
            let found = largest(64, ROOMS_MAX, &mut holds).unwrap();
            assert!(found <= limit && found + (found / PRECISION).max(1) >= limit.min(ROOMS_MAX), "{limit}: {found}");
            assert!(tries <= 16, "{limit}: {tries}");
        }
    }
}
