//! `dunlin replay`.

use std::{fs, path::PathBuf};

use clap::Args;
use dunlin_games::Registry;
use dunlin_rooms::{Simulation, recording};

use super::Failure;

/// Play a room's recording again, and compare.
#[derive(Debug, Args)]
pub(super) struct ReplayArgs {
    /// A file that a node wrote into `record_directory`
    file: PathBuf,
}

/// Ticks between two lines of progress: ten minutes at 60 ticks a second.
const PROGRESS_TICKS: u32 = 36_000;

pub(super) fn run(args: &ReplayArgs, registry: &Registry) -> Result<(), Failure> {
    let failed = |text: String| Failure::Replay(args.file.clone(), text);
    let bytes = fs::read(&args.file).map_err(|error| Failure::File(args.file.clone(), error))?;
    let header = recording::Header::read(&bytes).map_err(|error| failed(error.to_string()))?;
    let simulation = make(&header, registry).map_err(failed)?;
    let mut replay = recording::replay(&bytes, |_| simulation).map_err(|error| failed(error.to_string()))?;
    println!("{}: {:?} with seed {}", args.file.display(), header.simulation, header.seed);
    let mut ticks = 0;
    while let Some(tick) = replay.next_tick() {
        match tick {
            Ok(tick) => ticks = tick,
            // Whoever wrote it was cut off; what is there is right.
            Err(recording::ReplayError::BreaksOff) if ticks > 0 => {
                println!("the recording breaks off after tick {ticks}");
            }
            Err(error) => return Err(failed(error.to_string())),
        }
        if ticks.is_multiple_of(PROGRESS_TICKS) {
            println!("tick {ticks}");
        }
    }
    let room = replay.room();
    let (players, objects) = (room.player_count(), room.object_count());
    println!(
        "{ticks} ticks, {ticks} hashes compared, all the same; {players} players and {objects} objects at the end"
    );
    Ok(())
}

fn make(header: &recording::Header, registry: &Registry) -> Result<Box<dyn Simulation>, String> {
    let params =
        serde_json::from_str(&header.params).map_err(|error| format!("its parameters are not JSON: {error}"))?;
    let made = registry.make(&header.simulation, &params);
    let made = made.ok_or_else(|| format!("there is no simulation {:?} here", header.simulation))?;
    made.map_err(|error| error.to_string())
}
