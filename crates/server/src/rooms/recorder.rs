//! Recordings of rooms: what happens to a room goes through a bounded channel to a thread of the recording's own, which
//! writes it to a file. A disk that is slower than the room ends the recording, never the room.

use std::{
    collections::HashMap,
    fs::{self, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::{SystemTime, UNIX_EPOCH},
};

use dunlin_engine::{
    host::{Done, Step},
    room::SeatKey,
};
use dunlin_rooms::{
    PlayerId, Room, Visitor,
    recording::{Header, Recorder},
};
use tokio::sync::mpsc;

use super::RoomSettings;
use crate::telemetry::events;

/// What recordings' names end in.
const EXTENSION: &str = "dunlin-room";
/// Bytes that are worth the way to the writer.
const CHUNK_BYTES: usize = 16 * 1_024;
/// Ticks after which what there is goes there anyway.
const CHUNK_TICKS: u32 = 60;
/// Chunks that may wait for the disk.
const CHUNKS_MAX: usize = 64;
/// Characters of a channel's name in a file's name.
const NAME_CHARS_MAX: usize = 100;

/// Records one room. It goes where the room goes, and with it is lost when a game does not come back.
pub(super) struct RoomRecorder {
    recording: Recorder,
    /// Who sits where.
    players: HashMap<SeatKey, PlayerId>,
    /// Steps of the tick that is under way that are recorded.
    steps_recorded: usize,
    tail: Arc<Tail>,
}

/// The end of a recording. The room's place in its deck has it as well, so that what a room did last is written even if
/// the room never comes back.
pub(super) struct Tail {
    unwritten: Mutex<Unwritten>,
    /// The recording ended before its room.
    is_cut: Arc<AtomicBool>,
}

/// What is not with the writer yet.
struct Unwritten {
    bytes: Vec<u8>,
    ticks: u32,
    /// `None` once nothing more is written.
    writer: Option<SyncSender<Vec<u8>>>,
}

impl RoomRecorder {
    /// Begins to record a room that is at tick 0, if its namespace says so. `alive` is held until all is written.
    pub(super) fn start(
        channel: &str,
        settings: &RoomSettings,
        seed: u64,
        alive: Option<mpsc::Sender<()>>,
    ) -> Option<Self> {
        let path = file_of(settings.record_dir.as_deref()?, channel);
        let header = Header {
            simulation: settings.simulation.clone(),
            params: settings.params.to_string(),
            seed,
            options: settings.room.clone(),
        };
        let recording = Recorder::new(&header, Vec::new());
        let bytes = Vec::with_capacity(CHUNK_BYTES);
        let (writer, chunks) = sync_channel(CHUNKS_MAX);
        let is_cut = Arc::new(AtomicBool::new(false));
        let told_cut = Arc::clone(&is_cut);
        let spawned = thread::Builder::new().name("room-record".to_owned()).spawn(move || {
            let written = write_all(&path, &chunks);
            let is_behind = told_cut.load(Ordering::Acquire);
            if is_behind || written.is_err() {
                events::RecordingCut { path: &path, source: written.err().as_ref() }.emit();
            }
            drop(alive);
        });
        is_cut.fetch_or(spawned.is_err(), Ordering::AcqRel);
        let unwritten = Unwritten { bytes, ticks: 0, writer: spawned.is_ok().then_some(writer) };
        let tail = Arc::new(Tail { unwritten: Mutex::new(unwritten), is_cut });
        Some(Self { recording, players: HashMap::new(), steps_recorded: 0, tail })
    }

    /// Where the recording ends.
    pub(super) fn tail(&self) -> &Arc<Tail> {
        &self.tail
    }

    /// A tick is about to begin with `steps`. They are recorded before anything comes of them: the tick that a room fails
    /// in is the one that somebody wants to see again. Only from the first step of a player who joins in this very tick on
    /// they wait for its end, since nobody knows the player's number before.
    pub(super) fn begin_tick(&mut self, steps: &[Step]) {
        let mut joining = Vec::new();
        self.steps_recorded = 0;
        for step in steps {
            match step {
                Step::Join { seat, .. } => joining.push(*seat),
                Step::Leave { seat } | Step::Input { seat, .. } if joining.contains(seat) => break,
                Step::Leave { .. } | Step::Input { .. } => {}
            }
            self.record(step);
            self.steps_recorded += 1;
        }
    }

    /// The tick has led to `done`. Asks the game for its state.
    pub(super) fn end_tick(&mut self, steps: &[Step], done: &Done, room: &Room) {
        let mut joins = done.joins();
        for (index, step) in steps.iter().enumerate() {
            if let Step::Join { seat, .. } = step
                && let Some((_, Some(player))) = joins.next()
            {
                self.players.insert(*seat, player);
            }
            if index >= self.steps_recorded {
                self.record(step);
            }
        }
        self.recording.tick(room);
    }

    fn record(&mut self, step: &Step) {
        match step {
            Step::Join { user, encoding, data, .. } => self.recording.join(&Visitor { user }, *encoding, data),
            Step::Leave { seat } => {
                if let Some(player) = self.players.remove(seat) {
                    self.recording.leave(player);
                }
            }
            Step::Input { seat, number, data } => {
                if let Some(player) = self.players.get(seat) {
                    self.recording.input(*player, *number, data);
                }
            }
        }
    }

    /// Copies what was recorded to the tail: what another thread frees must not be of the room's account.
    pub(super) fn keep(&mut self, ticks: u32) {
        self.tail.keep(self.recording.written(), ticks);
        self.recording.written().clear();
    }
}

impl Tail {
    /// Whether the recording ended before its room.
    pub(super) fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Acquire)
    }

    /// Writes what there is. Nothing comes after it.
    pub(super) fn end(&self) {
        let mut unwritten = self.unwritten.lock().unwrap_or_else(PoisonError::into_inner);
        self.hand_over(&mut unwritten);
        unwritten.writer = None;
    }

    fn keep(&self, bytes: &[u8], ticks: u32) {
        let mut unwritten = self.unwritten.lock().unwrap_or_else(PoisonError::into_inner);
        if unwritten.writer.is_none() {
            return;
        }
        unwritten.bytes.extend_from_slice(bytes);
        unwritten.ticks += ticks;
        if unwritten.bytes.len() >= CHUNK_BYTES || unwritten.ticks >= CHUNK_TICKS {
            self.hand_over(&mut unwritten);
        }
    }

    fn hand_over(&self, unwritten: &mut Unwritten) {
        unwritten.ticks = 0;
        let chunk = std::mem::take(&mut unwritten.bytes);
        if let Some(writer) = &unwritten.writer
            && writer.try_send(chunk).is_err()
        {
            self.is_cut.store(true, Ordering::Release);
            unwritten.writer = None;
        }
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        self.end();
    }
}

/// `chat:1` of the Unix time 5 s is `chat_1-5000.dunlin-room`.
fn file_of(dir: &Path, channel: &str) -> PathBuf {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let name: String = channel.chars().take(NAME_CHARS_MAX).map(|c| if is_plain(c) { c } else { '_' }).collect();
    let unix_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    dir.join(format!("{name}-{unix_ms}.{EXTENSION}"))
}

/// Never over a file that is there.
fn write_all(path: &Path, chunks: &Receiver<Vec<u8>>) -> io::Result<()> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    chunks.iter().try_for_each(|chunk| file.write_all(&chunk))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_s_name_makes_no_path() {
        let file = file_of(Path::new("/r"), "a:../é#7");
        let name = file.file_name().and_then(|name| name.to_str()).expect("a name");
        assert_eq!(file.parent(), Some(Path::new("/r")));
        assert!(name.starts_with("a______7-") && name.ends_with(".dunlin-room"), "{name}");
        let long = file_of(Path::new("/r"), &"x".repeat(1_000));
        assert!(long.as_os_str().len() < 150);
    }
}
