//! `room`: what rooms cost, how late they are, and whether every player sees what is there.
//!
//! - `args`: the command line. `everyone`, `views`, `spike`, `slow`, `rooms`, `record`: the scenarios; `rig` is what they are
//!   made of, `side` what their reports are made of; `tamper` changes a recording.
//! - `orders`: what players' processes are told (`worker::players` plays them). `observation`, `verify`: what they saw, and
//!   whether it was so.
//! - `figures`, `metrics`: what servers say of themselves.

pub mod args;
pub mod observation;
pub mod orders;

mod everyone;
mod figures;
mod metrics;
mod record;
mod rig;
mod rooms;
mod side;
mod slow;
mod spike;
mod tamper;
mod verify;
mod views;

use serde::Serialize;

use self::args::{RoomArgs, RoomScenario};
use crate::args::OutputArgs;
use crate::error::Error;
use crate::report::{self, Line};

/// Runs what the command line says.
pub fn run(args: &RoomArgs) -> Result<(), Error> {
    match &args.scenario {
        RoomScenario::Everyone(args) => everyone::run(args),
        RoomScenario::Views(args) => views::run(args),
        RoomScenario::Spike(args) => spike::run(args),
        RoomScenario::Slow(args) => slow::run(args),
        RoomScenario::Rooms(args) => rooms::run(args),
        RoomScenario::Record(args) => record::run(args),
    }
}

/// How a run ends.
struct Found {
    /// Whether players saw what was there.
    is_right: bool,
    lines: Vec<Line>,
}

/// Publishes the report. A run in which players saw something else than there was has failed.
fn finish(report: &impl Serialize, found: &Found, output: &OutputArgs) -> Result<(), Error> {
    report::publish(report, &found.lines, output)?;
    if found.is_right {
        return Ok(());
    }
    let did = "showed players something else than there was".into();
    Err(Error::Server { did, remedy: "see `verified`, `broken`, `closed` and `inconsistent` in the report".into() })
}
