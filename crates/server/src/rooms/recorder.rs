//! Recordings of rooms: each recording has a thread that writes records from a bounded channel to a file. A disk that
//! is slower than the room, or has no space left for it (`record_bytes_max`), ends the recording, never the room.

use std::{
    collections::HashMap,
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock, PoisonError},
    thread,
    time::{SystemTime, UNIX_EPOCH},
};

use dunlin_config::RoomSettings;
use dunlin_engine::{
    event::NodeSlot,
    host::{CompletedTick, Step, visitor_of},
    room::SeatKey,
};
use dunlin_queues::{CountedReceiver, CountedSender, declared::RECORDING_CHUNKS};
use dunlin_rooms::{
    ListingChange, PlayerId, Room, RoomInfo,
    recording::{Carried, Header, Recorder},
};
use tokio::sync::mpsc;

use super::record_retention::{CutReason, RecordDirectory, hold};
use crate::telemetry::events;

/// The extension of recordings.
pub(crate) const EXTENSION: &str = "dunlin-room";
/// Minimum size of a complete chunk.
const CHUNK_BYTES: usize = 16 * 1_024;
/// Number of ticks after which an incomplete chunk is written.
const CHUNK_TICKS: u32 = 60;
/// Maximum number of characters of a channel name in a file name.
const NAME_CHARS_MAX: usize = 100;

/// Records one room. It moves with the room's runner, and is lost with it if the game does not return.
pub(super) struct RoomRecorder {
    recording: Recorder,
    players: HashMap<SeatKey, RecordedSeat>,
    /// Number of recorded steps of the current tick.
    steps_recorded: usize,
    tail: Arc<Tail>,
}

/// The player of a seat.
struct RecordedSeat {
    player: PlayerId,
    /// Whether the player stays when its connection is lost. A spectator does not.
    stays: bool,
}

/// The end of a recording. The scheduler holds it as well, so that the last records are written even if the runner
/// never returns.
pub(super) struct Tail {
    unwritten: Mutex<Unwritten>,
    /// Why the recording ended before its room, if it did.
    cut: Arc<OnceLock<CutReason>>,
}

/// Records that are not sent to the writer yet.
struct Unwritten {
    bytes: Vec<u8>,
    ticks: u32,
    /// `None` after the recording has ended.
    writer: Option<CountedSender<Vec<u8>>>,
}

impl RoomRecorder {
    /// Starts the recording of a room at tick 0, with the listing with which it was opened. `alive` is held until everything
    /// is written.
    pub(super) fn start(
        room: &Room,
        settings: &RoomSettings,
        listing: &ListingChange,
        directory: &Arc<RecordDirectory>,
        alive: Option<mpsc::Sender<()>>,
    ) -> Self {
        let RoomInfo { channel, params, seed } = room.world().info();
        let path = file_of(directory.path(), channel);
        let header = Header {
            simulation: settings.simulation.clone(),
            params: params.to_string(),
            seed: *seed,
            channel: channel.to_string(),
            options: settings.room.clone(),
        };
        let mut recording = Recorder::new(&header, Vec::new());
        if !listing.is_empty() {
            recording.change_listing(listing);
        }
        let bytes = Vec::with_capacity(CHUNK_BYTES);
        let (writer, mut chunks) = RECORDING_CHUNKS.counted_channel();
        let cut = Arc::new(OnceLock::new());
        let (of_thread, to) = (Arc::clone(&cut), Arc::clone(directory));
        let spawned = thread::Builder::new().name("room-record".to_owned()).spawn(move || {
            let failed = write_all(&path, &to, &mut chunks).err();
            // Set before the channel ends, which would be taken for a disk that is too slow.
            if let Some(failed) = &failed {
                let _ = of_thread.set(failed.reason());
            }
            drop(chunks);
            if let Some(reason) = of_thread.get() {
                to.count_cut(*reason);
                let source = failed.as_ref().and_then(WriteFault::error);
                events::RecordingCut { path: &path, reason: reason.name(), source }.emit();
            }
            drop(alive);
        });
        if spawned.is_err() {
            directory.count_cut(*cut.get_or_init(|| CutReason::Disk));
        }
        let unwritten = Unwritten { bytes, ticks: 0, writer: spawned.is_ok().then_some(writer) };
        let tail = Arc::new(Tail { unwritten: Mutex::new(unwritten), cut });
        Self { recording, players: HashMap::new(), steps_recorded: 0, tail }
    }

    /// The tail of the recording.
    pub(super) fn tail(&self) -> &Arc<Tail> {
        &self.tail
    }

    /// Records what the connections of players have carried.
    pub(super) fn carried(&mut self, told: &[(PlayerId, Carried)]) {
        for (player, carried) in told {
            self.recording.carried(*player, *carried);
        }
    }

    /// Records the players that leave, and `steps`, at the beginning of a tick. They are recorded before the game runs,
    /// so that the recording contains the tick in which a room fails. Exception: from the first step of a player who
    /// joins in this tick on, steps are recorded at the end of the tick, because the player's id is not known before.
    /// In rooms with seats, this exception begins with the join itself, because the client may have returned to an
    /// existing player.
    pub(super) fn begin_tick(&mut self, expiring: impl Iterator<Item = PlayerId>, steps: &[Step]) {
        expiring.for_each(|player| self.recording.leave(player));
        let mut joining = Vec::new();
        self.steps_recorded = 0;
        for step in steps {
            match step {
                Step::Join { claim, .. } if claim.given.is_some() => break,
                Step::Join { seat, .. } => joining.push(*seat),
                Step::Leave { seat } | Step::Input { seat, .. } | Step::Away { seat, .. } if joining.contains(seat) => {
                    break;
                }
                // The players that a kick removes are known only after the tick.
                Step::Kick { .. } => break,
                _ => {}
            }
            self.record(step, None);
            self.steps_recorded += 1;
        }
    }

    /// Records the result of a tick. Calls the game for its state.
    pub(super) fn end_tick(&mut self, steps: &[Step], done: &CompletedTick, room: &Room) {
        let (mut joins, mut kicks) = (done.joins(), done.ordered_kicks());
        let mut untold = Vec::new();
        for (index, step) in steps.iter().enumerate() {
            let mut back = None;
            if let Step::Join { seat, claim, .. } = step
                && let Some((_, Some(entered))) = joins.next()
            {
                if let Some(left_seat) = entered.left_seat {
                    self.players.remove(&left_seat);
                }
                let stays = claim.given.is_some();
                self.players.insert(*seat, RecordedSeat { player: entered.player, stays });
                if seat.shard.node() != NodeSlot::OWN {
                    untold.push(entered.player);
                }
                back = entered.is_back.then_some(entered.player);
            }
            if let Step::Kick { order, .. } = step {
                let players = kicks.next().unwrap_or_default();
                for player in players {
                    self.recording.kick(*player, &order.reason);
                }
            }
            if index >= self.steps_recorded {
                self.record(step, back);
            }
        }
        for player in untold {
            self.recording.untold(player);
        }
        self.recording.tick(room);
    }

    /// Records a step. `back` is the existing player to which a join returned.
    fn record(&mut self, step: &Step, back: Option<PlayerId>) {
        match step {
            Step::Join { info, address, is_spectator, format, data, .. } => {
                let visitor = visitor_of(info, *address, *is_spectator);
                match back {
                    Some(player) => self.recording.back(player, &visitor, format.encoding()),
                    None => self.recording.join(&visitor, format.encoding(), data),
                }
            }
            Step::Leave { seat } => {
                if let Some(RecordedSeat { player, .. }) = self.players.remove(seat) {
                    self.recording.leave(player);
                }
            }
            Step::Input { seat, number, data } => {
                if let Some(RecordedSeat { player, .. }) = self.players.get(seat) {
                    self.recording.input(*player, *number, data);
                }
            }
            Step::Message { data, .. } => self.recording.message(data),
            Step::Answer { call, outcome } => {
                self.recording.answer(*call, outcome.as_ref().map(|data| &data[..]));
            }
            Step::ChangeListing { change, .. } => self.recording.change_listing(change),
            Step::Away { seat, .. } => match self.players.remove(seat) {
                Some(RecordedSeat { player, stays: true }) => self.recording.away(player),
                Some(RecordedSeat { player, stays: false }) => self.recording.leave(player),
                None => {}
            },
            // A kick is recorded at the end of the tick, with its players. `AllAway` occurs only in a room that
            // continues after a restart, which is not recorded.
            Step::Kick { .. } | Step::AllAway { .. } => {}
        }
    }

    /// Copies the records to the tail, which ends the recording even if the game does not return.
    pub(super) fn keep(&mut self, ticks: u32) {
        self.tail.keep(self.recording.written(), ticks);
        self.recording.written().clear();
    }
}

impl Tail {
    /// Whether the recording ended before its room.
    pub(super) fn is_cut(&self) -> bool {
        self.cut.get().is_some()
    }

    /// Writes the remaining records. No records may follow.
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
        // A room may end before its first tick.
        if unwritten.bytes.is_empty() {
            return;
        }
        let chunk = std::mem::take(&mut unwritten.bytes);
        let bytes = chunk.len();
        if let Some(writer) = &unwritten.writer
            && writer.try_send(chunk, bytes).is_err()
        {
            // It is set already if the writer has ended.
            let _ = self.cut.set(CutReason::Disk);
            unwritten.writer = None;
        }
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        self.end();
    }
}

/// Channel `chat:1` at Unix time 5 s becomes `chat_1-5000.dunlin-room`.
fn file_of(dir: &Path, channel: &str) -> PathBuf {
    let name = name_of_files(channel);
    let unix_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    dir.join(format!("{name}-{unix_ms}.{EXTENSION}"))
}

/// How the names of the recordings of a channel begin. Those of other channels may begin so as well.
pub(crate) fn name_of_files(channel: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    channel.chars().take(NAME_CHARS_MAX).map(|c| if is_plain(c) { c } else { '_' }).collect()
}

/// The room and the time in a name such as `chat_1-5000.dunlin-room`; `None` for any other name, such as one with a path.
pub(crate) fn parts_of_file(file: &str) -> Option<(&str, u64)> {
    let (name, time) = file.strip_suffix(EXTENSION)?.strip_suffix('.')?.rsplit_once('-')?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_recording = name.bytes().all(is_plain) && time.bytes().all(|byte| byte.is_ascii_digit());
    if is_recording { time.parse().ok().map(|began_ms| (name, began_ms)) } else { None }
}

/// Why the rest of a recording was not written.
enum WriteFault {
    Disk(io::Error),
    Limit,
}

impl WriteFault {
    const fn reason(&self) -> CutReason {
        match self {
            Self::Disk(_) => CutReason::Disk,
            Self::Limit => CutReason::Limit,
        }
    }

    const fn error(&self) -> Option<&io::Error> {
        match self {
            Self::Disk(error) => Some(error),
            Self::Limit => None,
        }
    }
}

/// Never overwrites a file, and leaves none without bytes.
fn write_all(
    path: &Path,
    directory: &RecordDirectory,
    chunks: &mut CountedReceiver<Vec<u8>>,
) -> Result<(), WriteFault> {
    fs::create_dir_all(directory.path()).map_err(WriteFault::Disk)?;
    // NFS takes a shared lock only of a file that is open for reading.
    let opened = OpenOptions::new().read(true).write(true).create_new(true).open(path);
    let mut file = opened.map_err(WriteFault::Disk)?;
    hold(&file);
    let written = write_chunks(&mut file, directory, chunks);
    if file.metadata().is_ok_and(|metadata| metadata.len() == 0) {
        if let Err(error) = fs::remove_file(path) {
            events::RecordingUndeleted { path, source: &error }.emit();
        }
        return written;
    }
    // It can be deleted only when its lock has ended.
    drop(file);
    directory.note_end();
    written
}

fn write_chunks(
    file: &mut File,
    directory: &RecordDirectory,
    chunks: &mut CountedReceiver<Vec<u8>>,
) -> Result<(), WriteFault> {
    while let Some(chunk) = chunks.blocking_recv() {
        let _admitted = directory.admit(chunk.len() as u64).ok_or(WriteFault::Limit)?;
        file.write_all(&chunk).map_err(WriteFault::Disk)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use dunlin_config::RecordingSettings;

    use super::*;

    #[test]
    fn a_file_into_which_nothing_was_written_is_removed() {
        let folder = std::env::temp_dir().join(format!("dunlin-recorder-empty-{}", std::process::id()));
        let settings = RecordingSettings { directory: folder.clone(), bytes_max: 3, ttl_ms: 0 };
        let directory = RecordDirectory::new(settings);
        let path = folder.join("arena_1-5.dunlin-room");
        let write = |bytes: &[u8]| {
            let (writer, mut chunks) = RECORDING_CHUNKS.counted_channel();
            let unwritten = Unwritten { bytes: bytes.to_vec(), ticks: 0, writer: Some(writer) };
            drop(Tail { unwritten: Mutex::new(unwritten), cut: Arc::default() });
            let failed = write_all(&path, &directory, &mut chunks).err();
            (failed.map(|fault| fault.reason()), fs::read(&path).ok())
        };
        assert_eq!(write(b""), (None, None), "the room ended before its first tick");
        assert_eq!(write(b"more"), (Some(CutReason::Limit), None));
        assert_eq!(write(b"all"), (None, Some(b"all".to_vec())));
        fs::remove_dir_all(&folder).expect("it was made");
    }

    #[test]
    fn a_room_without_a_tick_sends_no_chunk() {
        let (writer, mut chunks) = RECORDING_CHUNKS.counted_channel();
        let unwritten = Unwritten { bytes: Vec::new(), ticks: 0, writer: Some(writer) };
        Tail { unwritten: Mutex::new(unwritten), cut: Arc::default() }.end();
        assert_eq!(chunks.blocking_recv(), None);
    }

    #[test]
    fn channel_names_are_escaped_in_file_names() {
        let file = file_of(Path::new("/r"), "a:../é#7");
        let name = file.file_name().and_then(|name| name.to_str()).expect("a name");
        assert_eq!(file.parent(), Some(Path::new("/r")));
        assert!(name.starts_with("a______7-") && name.ends_with(".dunlin-room"), "{name}");
        let long = file_of(Path::new("/r"), &"x".repeat(1_000));
        assert!(long.as_os_str().len() < 150);
    }
}
