//! `room`: the cost and the latency of rooms, and whether every player sees the state of the world.
//!
//! - `args`: the command line. `everyone`, `views`, `spike`, `slow`, `rooms`, `record`, `survival`: the scenarios;
//!   `rig` is their common setup, `side` their common report; `tamper` changes a recording.
//! - `player_commands`: commands to the workers with players (`worker::players` executes them). `observation`,
//!   `verify`: the state that the players saw, and its comparison with the world.
//! - `figures`: the servers' own figures.

pub mod args;
pub mod observation;
pub mod player_commands;

mod everyone;
mod figures;
mod record;
mod rig;
mod rooms;
mod side;
mod slow;
mod spike;
mod survival;
mod tamper;
mod verify;
mod views;

use serde::Serialize;

use self::args::{RoomArgs, RoomScenario};
use crate::args::OutputArgs;
use crate::error::Error;
use crate::report::{self, Line};

/// Runs the scenario of the command line.
pub fn run(args: &RoomArgs) -> Result<(), Error> {
    match &args.scenario {
        RoomScenario::Everyone(args) => everyone::run(args),
        RoomScenario::Views(args) => views::run(args),
        RoomScenario::Spike(args) => spike::run(args),
        RoomScenario::Slow(args) => slow::run(args),
        RoomScenario::Rooms(args) => rooms::run(args),
        RoomScenario::Record(args) => record::run(args),
        RoomScenario::Survival(args) => survival::run(args),
    }
}

/// The outcome of a run.
struct Found {
    /// Whether players saw the correct state.
    is_right: bool,
    lines: Vec<Line>,
}

/// Publishes the report. A run fails if players saw an incorrect state.
fn finish(report: &impl Serialize, found: &Found, output: &OutputArgs) -> Result<(), Error> {
    report::publish(report, &found.lines, output)?;
    if found.is_right {
        return Ok(());
    }
    let did = "showed players something else than there was".into();
    Err(Error::Server { did, remedy: "see `verified`, `broken`, `closed` and `inconsistent` in the report".into() })
}
