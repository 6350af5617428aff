//! Recordings of rooms: what happens to a room goes through a bounded channel to a thread of the recording's own, which
//! writes it to a file. A disk that is slower than the room ends the recording, never the room.

use std::{
    collections::HashMap,
    fs::{self, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::{
        Arc,
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

/// Records one room.
pub(super) struct RoomRecorder {
    recording: Recorder,
    /// Who sits where.
    players: HashMap<SeatKey, PlayerId>,
    /// `None` once the recording is cut.
    writer: Option<SyncSender<Vec<u8>>>,
    is_cut: Arc<AtomicBool>,
    ticks_kept: u32,
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
        let writer = spawned.is_ok().then_some(writer);
        Some(Self { recording, players: HashMap::new(), writer, is_cut, ticks_kept: 0 })
    }

    /// A tick began with `steps`, and led to `done`.
    pub(super) fn tick(&mut self, steps: &[Step], done: &Done, room: &Room) {
        let mut joins = done.joins();
        for step in steps {
            match step {
                Step::Join { seat, user, encoding, data } => {
                    self.recording.join(&Visitor { user }, *encoding, data);
                    if let Some((_, Some(player))) = joins.next() {
                        self.players.insert(*seat, player);
                    }
                }
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
        self.recording.tick(room);
        self.ticks_kept += 1;
        if self.recording.written().len() >= CHUNK_BYTES || self.ticks_kept >= CHUNK_TICKS {
            self.hand_over();
        }
    }

    /// Whether it ended before its room.
    pub(super) fn is_cut(&self) -> bool {
        self.writer.is_none()
    }

    fn hand_over(&mut self) {
        self.ticks_kept = 0;
        let chunk = std::mem::take(self.recording.written());
        if let Some(writer) = &self.writer
            && writer.try_send(chunk).is_err()
        {
            self.is_cut.store(true, Ordering::Release);
            self.writer = None;
        }
    }
}

impl Drop for RoomRecorder {
    fn drop(&mut self) {
        self.hand_over();
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
