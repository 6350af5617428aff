//! `dunlin replay FILE --answers BYTES`: the console of a node starts this process, so that a game that panics, never returns or
//! takes all memory ends this process and not the node. `crates/server/src/http/console/replay_process.rs` asks.
//!
//! Each line of standard output is an object with one member: `tick` while the recording is replayed for the first time, then `index`,
//! then `ticks` for each line of standard input, `{"from":1,"count":120}`. Instead of any of them, `error` says why not. Before
//! `ticks`, lines with `tick` say how far the replay is that leads there.
//!
//! With `--recording-bytes N`, the recording is the first N bytes of standard input: the node has it from another node.

use std::{
    any::Any,
    fs::File,
    io::{self, BufRead as _, Read as _, Write as _},
    os::fd::AsFd as _,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    process,
    time::{Duration, Instant},
};

use dunlin_games::Registry;
use dunlin_rooms::recording::Header;
use serde_json::{Value, json};

use super::{
    Failure, Recording,
    film::{Film, Ticks},
    make, read,
};

/// The recording has at most this part of the memory, and so have the checkpoints. The rest is for the game, and for answers.
const MEMORY_PARTS: u64 = 4;

/// Maximum length of a line of standard output. One tick with all objects may have more.
pub(crate) const ANSWER_LINE_BYTES_MAX: usize = 32 << 20;

/// Time between two lines with the tick.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

/// The lowest priority: shards and rooms of the node do not wait for a replay.
const NICENESS: libc::c_int = 19;

/// Where the recording is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Input<'a> {
    File(&'a Path),
    /// So many bytes of standard input.
    Bytes(u64),
}

/// Maximum bytes of a recording that is replayed in this much memory.
pub(crate) const fn recording_bytes_max(memory_bytes_max: u64) -> u64 {
    memory_bytes_max / MEMORY_PARTS
}

pub(super) fn run(input: Input<'_>, memory_bytes_max: u64, registry: &Registry) -> Result<(), Failure> {
    let mut lines = Lines { out: confine(memory_bytes_max).map_err(Failure::Runtime)?, told: Instant::now() };
    let answering = || answer(input, recording_bytes_max(memory_bytes_max), registry, &mut lines);
    let why = match catch_unwind(AssertUnwindSafe(answering)) {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(why)) => why,
        Err(panic) => format!("the game has panicked: {}", text_of(&*panic)),
    };
    lines.write(&json!({ "error": why }));
    Ok(())
}

/// Takes memory and priority from this process, and standard output from the game. Returns standard output.
fn confine(memory_bytes_max: u64) -> io::Result<File> {
    let done = |result: libc::c_int| if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    let data = libc::rlimit { rlim_cur: memory_bytes_max, rlim_max: memory_bytes_max };
    let no_core = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the calls read these structures, which are initialized.
    unsafe {
        done(libc::setrlimit(libc::RLIMIT_DATA, &raw const data))?;
        done(libc::setrlimit(libc::RLIMIT_CORE, &raw const no_core))?;
    }
    // SAFETY: the calls take only numbers. The node's end ends a game that never returns as well.
    unsafe {
        done(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
        done(libc::setpriority(libc::PRIO_PROCESS, 0, NICENESS))?;
    }
    let out = io::stdout().as_fd().try_clone_to_owned()?;
    // SAFETY: both descriptors are open, and no other thread runs yet.
    match unsafe { libc::dup2(libc::STDERR_FILENO, libc::STDOUT_FILENO) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(File::from(out)),
    }
}

fn answer(input: Input<'_>, bytes_max: u64, registry: &Registry, lines: &mut Lines) -> Result<(), String> {
    // Held, so that the node does not delete the file meanwhile.
    let Recording { bytes: recording, file: _file } = match input {
        Input::File(path) => read(path, bytes_max).map_err(|failure| reason(&failure))?,
        Input::Bytes(bytes) => Recording { bytes: read_input(bytes, bytes_max)?, file: None },
    };
    let header = Header::read(&recording).map_err(|error| error.to_string())?;
    let new_game = || make(&header, registry);
    let checkpoint_bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
    let film = Film::new(&recording, &header, &new_game, checkpoint_bytes_max, |tick| lines.progress(tick))?;
    lines.write(&json!({ "index": film.index }));
    for question in io::stdin().lock().lines() {
        let question = question.map_err(|error| error.to_string())?;
        let Ticks { from, count } = serde_json::from_str(&question).map_err(|error| error.to_string())?;
        let ticks = film.ticks(from, count, |tick| lines.progress(tick));
        lines.write(&match ticks {
            Ok(ticks) => json!({ "ticks": ticks }),
            Err(why) => json!({ "error": why }),
        });
    }
    Ok(())
}

fn read_input(bytes: u64, bytes_max: u64) -> Result<Vec<u8>, String> {
    if bytes > bytes_max {
        return Err(format!("the recording is larger than {bytes_max} bytes, the limit of this command"));
    }
    let mut recording = Vec::new();
    // Of questions that follow, the lock keeps what has been read as well.
    io::stdin().lock().take(bytes).read_to_end(&mut recording).map_err(|error| error.to_string())?;
    if recording.len() as u64 == bytes { Ok(recording) } else { Err("the recording has not arrived".to_owned()) }
}

/// Without the path, which is the console's affair.
fn reason(failure: &Failure) -> String {
    match failure {
        Failure::Replay(_, text) => format!("the recording {text}"),
        Failure::File(_, error) => format!("the recording cannot be read: {error}"),
        other => other.to_string(),
    }
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a message")
}

/// Standard output, which nobody else writes to.
struct Lines {
    out: File,
    /// When a tick was told.
    told: Instant,
}

impl Lines {
    /// Says from time to time how far the replay is: the node waits for a line, and not for an answer.
    fn progress(&mut self, tick: u32) {
        if self.told.elapsed() >= PROGRESS_INTERVAL {
            self.told = Instant::now();
            self.write(&json!({ "tick": tick }));
        }
    }

    /// Writes a line. Ends the process if nobody reads any more.
    fn write(&mut self, line: &Value) {
        let mut text = line.to_string();
        if text.len() >= ANSWER_LINE_BYTES_MAX {
            text = json!({ "error": format!("this tick has more than {ANSWER_LINE_BYTES_MAX} bytes") }).to_string();
        }
        text.push('\n');
        if self.out.write_all(text.as_bytes()).is_err() {
            process::exit(0);
        }
    }
}
