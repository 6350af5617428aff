//! `dunlin replay`.

mod answers;
mod connections;
mod difference;
mod film;
mod other_rules;
mod page;
mod state;
mod steps;

use std::{
    fmt,
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
};

use clap::{Args, ValueEnum};
use dunlin_games::Registry;
use dunlin_rooms::{
    ListingState, Simulation,
    recording::{Header, Replay, ReplayError, replay},
};
use serde_json::{Value, json};

use super::{Failure, output};
use crate::rooms::hold_recording;

pub(crate) use answers::{ANSWER_LINE_BYTES_MAX, recording_bytes_max};

/// Replay the recording of a room and compare the state hashes.
#[derive(Debug, Args)]
pub(super) struct ReplayArgs {
    /// Recording: a file that a node wrote into `record_directory`
    file: PathBuf,

    /// Stop after this tick and print its state
    #[arg(long)]
    tick: Option<u32>,

    /// Print the objects after the last tick, or after --tick
    #[arg(long)]
    objects: bool,

    /// Print the events and publications of all ticks, or of --tick
    #[arg(long)]
    events: bool,

    /// Print what happened to the room: joins, leaves, inputs, messages, calls, answers, changes of the listing, and what the
    /// connections of players did not carry, of all ticks or of --tick
    #[arg(long)]
    steps: bool,

    /// Replay a second recording and print the first tick after which the rooms differ, and how: exit code 1 if they do
    #[arg(long, value_name = "FILE", conflicts_with_all = ["tick", "objects", "events", "steps"])]
    diff: Option<PathBuf>,

    /// Replay the recording with this simulation as well, and print the first tick after which players would see something
    /// else, and how long the ticks of both take: exit code 1 if there is one
    #[arg(long, value_name = "SIMULATION", conflicts_with_all = ["tick", "objects", "events", "steps", "diff"])]
    with: Option<String>,

    /// Open a page that shows the room: a timeline, the map as the server had it or as a player could see it, inputs and events
    #[arg(long, conflicts_with_all = ["tick", "objects", "events", "steps", "diff", "with", "format"])]
    page: bool,

    /// TCP port of the page on this machine; 0: any free port
    #[arg(long, value_name = "PORT", default_value_t = 0, requires = "page")]
    port: u16,

    /// Answer the console of a node on standard output, in at most this much memory
    #[arg(long, value_name = "BYTES", hide = true, conflicts_with_all = ["tick", "objects", "events", "steps", "diff", "with", "page", "format"])]
    answers: Option<u64>,

    /// Read the recording from standard input: so many bytes, before the questions
    #[arg(long, value_name = "BYTES", hide = true, requires = "answers")]
    recording_bytes: Option<u64>,

    /// Output format. In `json`, each line is a JSON object
    #[arg(short = 'o', long = "output", value_name = "FORMAT", default_value = "text")]
    format: Format,
}

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
}

/// Maximum length of a recording: days of a room with a hundred players.
const RECORDING_BYTES_MAX: u64 = 1 << 30;

/// Ticks between two lines of progress: ten minutes at 60 ticks per second.
const PROGRESS_TICKS: u32 = 36_000;

pub(super) fn run(args: &ReplayArgs, registry: &Registry) -> Result<(), Failure> {
    if let Some(other) = &args.diff {
        return difference::run([&args.file, other], args.format, registry);
    }
    if let Some(simulation) = &args.with {
        return other_rules::run(&args.file, simulation, args.format, registry);
    }
    if let Some(memory_bytes_max) = args.answers {
        let input = args.recording_bytes.map_or(answers::Input::File(&args.file), answers::Input::Bytes);
        return answers::run(input, memory_bytes_max, registry);
    }
    let failed = |text: String| Failure::Replay(args.file.clone(), text);
    // Held while it is replayed, so that a node does not delete the file for its limits.
    let Recording { bytes, file: _file } = read(&args.file, RECORDING_BYTES_MAX)?;
    if args.page {
        return page::run(&args.file, bytes, args.port, registry);
    }
    let (header, mut replay) = begin(&args.file, &bytes, registry)?;
    if args.format == Format::Text {
        output::line(format_args!("{}: {:?} with seed {}", args.file.display(), header.simulation, header.seed))?;
    }
    if args.events || args.steps {
        replay.watch();
    }
    let (mut ticks, mut listing) = (0, ListingState::default());
    while args.tick.is_none_or(|last| ticks < last)
        && let Some(tick) = replay.next_tick()
    {
        match tick {
            Ok(tick) => ticks = tick,
            // The recording is truncated, and valid up to this tick.
            Err(ReplayError::BreaksOff) if ticks > 0 => {
                if args.format == Format::Text {
                    output::line(format_args!("the recording is truncated after tick {ticks}"))?;
                }
                break;
            }
            Err(error) => return Err(failed(error.to_string())),
        }
        if args.tick.is_none_or(|last| ticks == last) {
            if args.steps {
                steps::print(&replay, &listing, args.format)?;
            }
            if args.events {
                state::print_events(&replay, args.format)?;
            }
        }
        if args.steps {
            listing.clone_from(replay.room().world().listing());
        }
        if ticks.is_multiple_of(PROGRESS_TICKS) && args.format == Format::Text {
            output::line(format_args!("tick {ticks}"))?;
        }
    }
    if let Some(tick) = args.tick.filter(|tick| *tick != ticks) {
        return Err(failed(format!("has no tick {tick}: the last one is {ticks}")));
    }
    print_end(args, &header, &replay)
}

fn print_end(args: &ReplayArgs, header: &Header, replay: &Replay<'_>) -> Result<(), Failure> {
    let room = replay.room();
    let (ticks, players, objects) = (room.tick_number(), room.player_count(), room.object_count());
    match args.format {
        Format::Json => {
            let Header { simulation, params, seed, .. } = header;
            let params: Value = serde_json::from_str(params).unwrap_or_default();
            let mut end = json!({
                "simulation": simulation, "params": params, "seed": seed, "tick": ticks,
                "state_hash": hash_text(room.state_hash()), "players": players, "object_count": objects,
            });
            if args.objects {
                end["objects"] = state::objects(room.world());
            }
            output::line(end)
        }
        Format::Text => {
            if args.objects {
                state::print_objects(room.world())?;
            }
            if args.tick.is_some() {
                let hash = hash_text(room.state_hash());
                output::line(format_args!("tick {ticks}: {players} players, {objects} objects, state hash {hash}"))?;
            }
            let at_the_end = if args.tick.is_some() { "" } else { " at the end" };
            output::line(format_args!(
                "{ticks} ticks, {ticks} hashes compared, all equal; {players} players and {objects} objects{at_the_end}"
            ))
        }
    }
}

/// Begins to replay a recording with the simulation that wrote it.
fn begin<'a>(path: &Path, bytes: &'a [u8], registry: &Registry) -> Result<(Header, Replay<'a>), Failure> {
    let failed = |text: String| Failure::Replay(path.to_owned(), text);
    let header = Header::read(bytes).map_err(|error| failed(error.to_string()))?;
    let simulation = make(&header, registry).map_err(failed)?;
    let replay = replay(bytes, |_| simulation).map_err(|error| failed(error.to_string()))?;
    Ok((header, replay))
}

/// The bytes of a recording.
struct Recording {
    bytes: Vec<u8>,
    /// The open file, which a node does not delete; `None` if there is none.
    file: Option<File>,
}

/// Reads a complete recording, which must be a regular file of at most this length.
fn read(path: &Path, bytes_max: u64) -> Result<Recording, Failure> {
    let failed = |error| Failure::File(path.to_owned(), error);
    let refused = |text: String| Failure::Replay(path.to_owned(), text);
    let file = File::open(path).map_err(failed)?;
    hold_recording(&file);
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(refused("is not a regular file".to_owned()));
    }
    let mut bytes = Vec::new();
    (&file).take(bytes_max.saturating_add(1)).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > bytes_max {
        return Err(refused(format!("is larger than {bytes_max} bytes, the limit of this command")));
    }
    Ok(Recording { bytes, file: Some(file) })
}

fn make(header: &Header, registry: &Registry) -> Result<Box<dyn Simulation>, String> {
    make_named(&header.simulation, header, registry)
}

/// The simulation `name` with the parameters of the recording.
fn make_named(name: &str, header: &Header, registry: &Registry) -> Result<Box<dyn Simulation>, String> {
    let params =
        serde_json::from_str(&header.params).map_err(|error| format!("its parameters are not JSON: {error}"))?;
    let made = registry.make(name, &params).ok_or_else(|| {
        let names: Vec<_> = registry.names().collect();
        format!("unknown simulation {name:?}: this program has {}", names.join(", "))
    })?;
    made.map_err(|error| format!("simulation {name:?}: {error}"))
}

fn hash_text(hash: u64) -> String {
    format!("{hash:016x}")
}

/// Bytes as hexadecimal digits.
struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use clap::{Parser as _, error::ErrorKind};

    #[test]
    fn the_page_refuses_options_of_the_text() {
        let parse = |options: &[&str]| {
            crate::cli::Cli::try_parse_from(["dunlin", "replay", "FILE", "--page"].iter().chain(options)).map(|_| ())
        };
        parse(&[]).expect("the page alone");
        for options in [&["-o", "json"][..], &["--tick", "5"], &["--diff", "OTHER"], &["--with", "tag"], &["--events"]]
        {
            let error = parse(options).expect_err("they have no effect on the page");
            assert_eq!(error.kind(), ErrorKind::ArgumentConflict, "{options:?}");
        }
    }
}
