//! `dunlin replay`.

use std::{
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
};

use clap::Args;
use dunlin_games::Registry;
use dunlin_rooms::{Simulation, recording};

use super::{Failure, output};

/// Replay the recording of a room and compare the state hashes.
#[derive(Debug, Args)]
pub(super) struct ReplayArgs {
    /// Recording: a file that a node wrote into `record_directory`
    file: PathBuf,
}

/// Maximum length of a recording: days of a room with a hundred players.
const RECORDING_BYTES_MAX: u64 = 1 << 30;

/// Ticks between two lines of progress: ten minutes at 60 ticks per second.
const PROGRESS_TICKS: u32 = 36_000;

pub(super) fn run(args: &ReplayArgs, registry: &Registry) -> Result<(), Failure> {
    let failed = |text: String| Failure::Replay(args.file.clone(), text);
    let bytes = read(&args.file)?;
    let header = recording::Header::read(&bytes).map_err(|error| failed(error.to_string()))?;
    let simulation = make(&header, registry).map_err(failed)?;
    let mut replay = recording::replay(&bytes, |_| simulation).map_err(|error| failed(error.to_string()))?;
    output::line(format_args!("{}: {:?} with seed {}", args.file.display(), header.simulation, header.seed))?;
    let mut ticks = 0;
    while let Some(tick) = replay.next_tick() {
        match tick {
            Ok(tick) => ticks = tick,
            // The recording is truncated, and valid up to this tick.
            Err(recording::ReplayError::BreaksOff) if ticks > 0 => {
                output::line(format_args!("the recording is truncated after tick {ticks}"))?;
            }
            Err(error) => return Err(failed(error.to_string())),
        }
        if ticks.is_multiple_of(PROGRESS_TICKS) {
            output::line(format_args!("tick {ticks}"))?;
        }
    }
    let room = replay.room();
    let (players, objects) = (room.player_count(), room.object_count());
    output::line(format_args!(
        "{ticks} ticks, {ticks} hashes compared, all equal; {players} players and {objects} objects at the end"
    ))
}

/// Reads a complete recording, which must be a regular file.
fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let failed = |error| Failure::File(path.to_owned(), error);
    let refused = |text: String| Failure::Replay(path.to_owned(), text);
    let file = File::open(path).map_err(failed)?;
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(refused("is not a regular file".to_owned()));
    }
    let mut bytes = Vec::new();
    file.take(RECORDING_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > RECORDING_BYTES_MAX {
        return Err(refused(format!("is larger than {RECORDING_BYTES_MAX} bytes, the limit of `dunlin replay`")));
    }
    Ok(bytes)
}

fn make(header: &recording::Header, registry: &Registry) -> Result<Box<dyn Simulation>, String> {
    let params =
        serde_json::from_str(&header.params).map_err(|error| format!("its parameters are not JSON: {error}"))?;
    let made = registry.make(&header.simulation, &params);
    let made = made.ok_or_else(|| format!("unknown simulation {:?}", header.simulation))?;
    made.map_err(|error| error.to_string())
}
