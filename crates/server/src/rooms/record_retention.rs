//! What is kept of the recordings of rooms: at most so many bytes in a directory, and each for so long.
//!
//! The thread that writes a recording asks for each chunk ([`RecordDirectory::admit`]); if the limit is reached, it deletes the
//! recordings that ended first. Another thread looks at all directories once a minute ([`Recordings::keep_until_stopped`]): for
//! those that are too old, and for files that others have added or removed.
//!
//! Who writes or replays a recording holds a shared lock on its file, and it is deleted with an exclusive one. So this
//! holds for replays of any process, and the locks of a process end with it.

use std::{
    collections::{BTreeSet, VecDeque},
    fs::{self, File, OpenOptions, TryLockError},
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use dunlin_config::{RecordingSettings, RoomSettings};

use super::{recorder::parts_of_file, shared::Shared};
use crate::telemetry::events;

/// Time between two looks at all directories.
const SWEEP_INTERVAL: Duration = Duration::from_mins(1);

/// Maximum files that a look at a directory remembers: those that may be deleted next.
const OLDEST_MAX: usize = 100_000;

/// Maximum files that are deleted before others may have the lock.
const BATCH_FILES: usize = 100;

/// Pause between two batches. The lock is not fair: the thread that has just given it back would have it again.
const BATCH_PAUSE: Duration = Duration::from_millis(1);

/// Minimum age of a file without bytes that is deleted. Before, it may be about to be written, and not locked yet.
const EMPTY_AGE_MIN: Duration = Duration::from_mins(1);

/// Minimum time between two looks at a directory in which nothing can be deleted: each one reads all of its names.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The directories in which a node records rooms.
#[derive(Default)]
pub(super) struct Recordings {
    directories: Vec<Arc<RecordDirectory>>,
}

/// A directory with recordings. It counts those of other processes as well.
pub(super) struct RecordDirectory {
    settings: RecordingSettings,
    kept: Mutex<Kept>,
    /// Held while the directory is read, which `kept` does not wait for.
    looking: Mutex<()>,
    /// [`OLDEST_MAX`]
    oldest_max: usize,
    /// [`Kept::bytes`] for metrics, which wait for no disk.
    bytes: AtomicU64,
    deletions: [AtomicU64; Deletion::ALL.len()],
    cut: [AtomicU64; CutReason::ALL.len()],
}

#[derive(Default)]
struct Kept {
    /// Of all recordings, and of chunks that are being written.
    bytes: u64,
    /// Of chunks that are being written.
    in_flight: u64,
    /// Of chunks that the last look may not have seen in their files.
    unseen: u64,
    /// Those that were written last at the earliest time come first.
    oldest: VecDeque<Candidate>,
    /// The last of them if there are more. When all of them have been tried, the next look begins here: what cannot be deleted, or
    /// is in use, takes no places of it.
    rest_after: Option<Candidate>,
    /// When the directory was looked at.
    looked: Option<Instant>,
    /// A recording of this node has ended since then.
    has_ended: bool,
    /// By [`Deletion`].
    unlogged: [Unlogged; Deletion::ALL.len()],
}

/// Deletions of which the log says nothing yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Unlogged {
    files: u64,
    bytes: u64,
}

/// What a look at a directory finds.
#[derive(Default)]
struct Found {
    bytes: u64,
    oldest: BTreeSet<Candidate>,
    has_rest: bool,
}

/// A file as it was when the directory was looked at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    written: SystemTime,
    path: PathBuf,
    bytes: u64,
}

/// The place of a chunk that is being written.
pub(super) struct Admitted<'a> {
    directory: &'a RecordDirectory,
    bytes: u64,
}

/// The outcome of a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// Deleted for `record_bytes_max`.
    Size,
    /// Deleted for `record_ttl`.
    Age,
    /// The file system refused it.
    Failed,
}

impl Deletion {
    /// All outcomes, in the order of the counters.
    pub const ALL: [Self; 3] = [Self::Size, Self::Age, Self::Failed];

    /// The outcome as a metric label.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Size => "size",
            Self::Age => "age",
            Self::Failed => "failed",
        }
    }

    /// The option that asks for it; `None` if nothing is deleted.
    const fn key(self) -> Option<&'static str> {
        match self {
            Self::Size => Some("room.record_bytes_max"),
            Self::Age => Some("room.record_ttl"),
            Self::Failed => None,
        }
    }
}

/// Why a recording ended before its room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutReason {
    /// The disk was too slow or failed.
    Disk,
    /// `record_bytes_max`: recordings that are written or replayed have all of it.
    Limit,
}

impl CutReason {
    /// All reasons, in the order of the counters.
    pub const ALL: [Self; 2] = [Self::Disk, Self::Limit];

    /// The reason as a metric label and in logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Disk => "disk",
            Self::Limit => "limit",
        }
    }
}

/// Counts of the recordings of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordingReport {
    /// Bytes in all directories.
    pub bytes: u64,
    /// By [`Deletion`].
    pub deletions: [u64; Deletion::ALL.len()],
    /// By [`CutReason`].
    pub cut: [u64; CutReason::ALL.len()],
}

impl Recordings {
    /// The directories of these namespaces.
    pub(super) fn of<'a>(namespaces: impl Iterator<Item = &'a Arc<RoomSettings>>) -> Self {
        let mut directories: Vec<Arc<RecordDirectory>> = Vec::new();
        for settings in namespaces.filter_map(|settings| settings.recording.as_ref()) {
            // The configuration has checked that the limits of a directory do not differ.
            if directories.iter().all(|known| known.settings.directory != settings.directory) {
                directories.push(Arc::new(RecordDirectory::new(settings.clone())));
            }
        }
        Self { directories }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.directories.is_empty()
    }

    /// The paths of the directories.
    pub(super) fn paths(&self) -> BTreeSet<PathBuf> {
        self.directories.iter().map(|directory| directory.settings.directory.clone()).collect()
    }

    /// The directory in which rooms with these settings are recorded.
    pub(super) fn directory_of(&self, settings: &RoomSettings) -> Option<&Arc<RecordDirectory>> {
        let wanted = &settings.recording.as_ref()?.directory;
        self.directories.iter().find(|directory| directory.settings.directory == *wanted)
    }

    pub(super) fn report(&self) -> RecordingReport {
        let mut report = RecordingReport::default();
        let add = |sums: &mut [u64], counts: &[AtomicU64]| {
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count.load(Ordering::Relaxed));
        };
        for directory in &self.directories {
            report.bytes += directory.bytes.load(Ordering::Relaxed);
            add(&mut report.deletions, &directory.deletions);
            add(&mut report.cut, &directory.cut);
        }
        report
    }

    /// Starts the thread that looks at the directories; `None` without a directory. It ends after [`Shared::is_stopping`], and is
    /// then to be unparked.
    pub(super) fn start(shared: &Arc<Shared>) -> io::Result<Option<thread::Thread>> {
        if shared.recordings.is_empty() {
            return Ok(None);
        }
        let shared = Arc::clone(shared);
        let spawned = thread::Builder::new().name("recordings".to_owned()).spawn(move || {
            shared.recordings.keep_until(|| shared.is_stopping());
        })?;
        Ok(Some(spawned.thread().clone()))
    }

    fn keep_until(&self, is_stopping: impl Fn() -> bool) {
        while !is_stopping() {
            self.directories.iter().for_each(|directory| directory.sweep(SystemTime::now()));
            thread::park_timeout(SWEEP_INTERVAL);
        }
        self.directories.iter().for_each(|directory| directory.log_deletions());
    }
}

impl RecordDirectory {
    pub(super) fn new(settings: RecordingSettings) -> Self {
        let (kept, looking, bytes, deletions, cut) = Default::default();
        Self { settings, kept, looking, oldest_max: OLDEST_MAX, bytes, deletions, cut }
    }

    pub(super) fn path(&self) -> &Path {
        &self.settings.directory
    }

    pub(super) fn count_cut(&self, reason: CutReason) {
        add_one(self.cut.get(reason as usize));
    }

    /// Takes space for a chunk, for which recordings that have ended may be deleted; `None` if that is not enough.
    pub(super) fn admit(&self, bytes: u64) -> Option<Admitted<'_>> {
        let looked = self.kept().looked;
        if looked.is_none() {
            self.look(looked);
        }
        let mut kept = self.free(bytes);
        if self.is_above(&kept, bytes) {
            return None;
        }
        kept.in_flight += bytes;
        kept.unseen = kept.unseen.saturating_add(bytes);
        self.set_bytes(&mut kept, |kept| kept.saturating_add(bytes));
        Some(Admitted { directory: self, bytes })
    }

    /// A recording has ended, and may be deleted from now on.
    pub(super) fn note_end(&self) {
        self.kept().has_ended = true;
    }

    /// Deletes recordings that have been kept for long enough, and those beyond the limit.
    fn sweep(&self, now: SystemTime) {
        let ttl = Duration::from_millis(self.settings.ttl_ms);
        let kept_since = Some(ttl).filter(|ttl| !ttl.is_zero()).and_then(|ttl| now.checked_sub(ttl));
        loop {
            let looked = self.kept().looked;
            self.look(looked);
            while kept_since.is_some_and(|since| self.delete_some_before(since)) {
                thread::sleep(BATCH_PAUSE);
            }
            let kept = self.kept();
            if !kept.oldest.is_empty() || kept.rest_after.is_none() {
                break;
            }
        }
        drop(self.free(0));
        self.log_deletions();
    }

    /// Deletes a batch of those that were written last before this time. Whether others may follow.
    fn delete_some_before(&self, since: SystemTime) -> bool {
        let mut kept = self.kept();
        for _ in 0..BATCH_FILES {
            let Some(oldest) = kept.oldest.pop_front_if(|oldest| oldest.written < since) else { return false };
            self.delete(&mut kept, &oldest, Deletion::Age);
        }
        true
    }

    /// Deletes the oldest recordings until so many bytes more are within the limit, or there is nothing to delete.
    fn free(&self, bytes: u64) -> MutexGuard<'_, Kept> {
        let mut is_deleted = false;
        loop {
            let mut kept = self.kept();
            let mut tried = 0;
            while self.is_above(&kept, bytes)
                && tried < BATCH_FILES
                && let Some(oldest) = kept.oldest.pop_front()
            {
                tried += 1;
                is_deleted |= self.delete(&mut kept, &oldest, Deletion::Size);
            }
            if !self.is_above(&kept, bytes) {
                return kept;
            }
            if !kept.oldest.is_empty() {
                drop(kept);
                thread::sleep(BATCH_PAUSE);
                continue;
            }
            let is_due = kept.looked.is_none_or(|looked| looked.elapsed() >= LOOK_INTERVAL);
            if !is_deleted && !is_due && !kept.has_ended && kept.rest_after.is_none() {
                return kept;
            }
            is_deleted = false;
            let looked = kept.looked;
            drop(kept);
            self.look(looked);
        }
    }

    fn is_above(&self, kept: &Kept, bytes: u64) -> bool {
        let bytes_max = self.settings.bytes_max;
        bytes_max > 0 && kept.bytes.saturating_add(bytes) > bytes_max
    }

    /// Reads the sizes and times of all recordings, unless another thread has done so after `looked`.
    fn look(&self, looked: Option<Instant>) {
        let _one_at_a_time = self.looking.lock().unwrap_or_else(PoisonError::into_inner);
        let after = {
            let mut kept = self.kept();
            if kept.looked != looked {
                return;
            }
            (kept.has_ended, kept.unseen) = (false, kept.in_flight);
            let is_tried = kept.oldest.is_empty();
            kept.rest_after.take().filter(|_| is_tried)
        };
        let found = self.find(after.as_ref());
        let mut kept = self.kept();
        kept.looked = Some(Instant::now());
        match found {
            Ok(Found { bytes, oldest, has_rest }) => {
                kept.rest_after = oldest.last().filter(|_| has_rest).cloned();
                kept.oldest = oldest.into_iter().collect();
                // A chunk that was written meanwhile may be in its file already, and counts twice then, until the next look. A file
                // that was deleted meanwhile counts until its turn comes, which is the next one.
                let unseen = kept.unseen;
                self.set_bytes(&mut kept, |_| bytes.saturating_add(unseen));
            }
            Err(error) => events::RecordingsUnread { path: &self.settings.directory, source: &error }.emit(),
        }
    }

    /// The oldest recordings after this one, and the bytes of all.
    fn find(&self, after: Option<&Candidate>) -> io::Result<Found> {
        let mut found = Found::default();
        let candidates = match recordings_in(&self.settings.directory) {
            // It is made with the first recording.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
            candidates => candidates?,
        };
        let empty_since = SystemTime::now().checked_sub(EMPTY_AGE_MIN);
        for candidate in candidates {
            found.bytes = found.bytes.saturating_add(candidate.bytes);
            let is_new = candidate.bytes == 0 && empty_since.is_none_or(|since| candidate.written > since);
            if is_new || after.is_some_and(|after| candidate <= *after) {
                continue;
            }
            found.oldest.insert(candidate);
            if found.oldest.len() > self.oldest_max {
                found.oldest.pop_last();
                found.has_rest = true;
            }
        }
        Ok(found)
    }

    /// Whether the file is gone. Counts the outcome, unless the recording is in use.
    fn delete(&self, kept: &mut Kept, oldest: &Candidate, why: Deletion) -> bool {
        let outcome = match delete_unused(&oldest.path) {
            Ok(false) => return false,
            Ok(true) => why,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.set_bytes(kept, |kept| kept.saturating_sub(oldest.bytes));
                return true;
            }
            Err(error) => {
                events::RecordingUndeleted { path: &oldest.path, source: &error }.emit();
                Deletion::Failed
            }
        };
        add_one(self.deletions.get(outcome as usize));
        let is_deleted = outcome != Deletion::Failed;
        if is_deleted {
            self.set_bytes(kept, |kept| kept.saturating_sub(oldest.bytes));
            let unlogged = kept.unlogged.get_mut(outcome as usize).expect("each has a place");
            unlogged.files += 1;
            unlogged.bytes = unlogged.bytes.saturating_add(oldest.bytes);
        }
        is_deleted
    }

    fn log_deletions(&self) {
        let unlogged = std::mem::take(&mut self.kept().unlogged);
        for (deletion, Unlogged { files, bytes }) in Deletion::ALL.into_iter().zip(unlogged) {
            if let Some(key) = deletion.key().filter(|_| files > 0) {
                events::RecordingsDeleted { path: self.path(), files, bytes, key }.emit();
            }
        }
    }

    fn set_bytes(&self, kept: &mut Kept, change: impl FnOnce(u64) -> u64) {
        kept.bytes = change(kept.bytes);
        self.bytes.store(kept.bytes, Ordering::Relaxed);
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Admitted<'_> {
    /// It is in the file now, or the recording has ended.
    fn drop(&mut self) {
        let mut kept = self.directory.kept();
        kept.in_flight = kept.in_flight.checked_sub(self.bytes).expect("it was added when it was admitted");
    }
}

/// Protects a recording from deletion for as long as the file is open. A file system without locks protects it as well: what
/// cannot be locked is not deleted.
pub(crate) fn hold(recording: &File) {
    let _ = recording.try_lock_shared();
}

/// The recordings in a directory.
fn recordings_in(directory: &Path) -> io::Result<impl Iterator<Item = Candidate>> {
    let of_entry = |entry: io::Result<fs::DirEntry>| {
        // An entry that cannot be read may have been deleted meanwhile.
        let entry = entry.ok().filter(|entry| entry.file_name().to_str().and_then(parts_of_file).is_some())?;
        let metadata = entry.metadata().ok().filter(fs::Metadata::is_file)?;
        Some(Candidate { written: metadata.modified().ok()?, path: entry.path(), bytes: metadata.len() })
    };
    Ok(fs::read_dir(directory)?.filter_map(of_entry))
}

/// Deletes a recording. `false` if somebody writes or replays it.
fn delete_unused(path: &Path) -> io::Result<bool> {
    // NFS takes an exclusive lock only of a file that is open for writing. Others delete also what is read-only.
    let file = OpenOptions::new().read(true).write(true).open(path).or_else(|_| File::open(path))?;
    match file.try_lock() {
        Ok(()) => fs::remove_file(path).map(|()| true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn add_one(count: Option<&AtomicU64>) {
    count.expect("each has a counter").fetch_add(1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE_BYTES: u64 = 100;

    /// A directory with this limit and age, and files that ended one second after the other.
    struct Rig {
        directory: RecordDirectory,
        began: SystemTime,
    }

    impl Rig {
        fn new(name: &str, bytes_max: u64, ttl_s: u64) -> Self {
            let directory = std::env::temp_dir().join(format!("dunlin-retention-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&directory);
            fs::create_dir_all(&directory).expect("a directory");
            let settings = RecordingSettings { directory, bytes_max, ttl_ms: ttl_s * 1_000 };
            let began = SystemTime::now().checked_sub(Duration::from_hours(1)).expect("a time");
            Self { directory: RecordDirectory::new(settings), began }
        }

        fn path(&self, index: u64) -> PathBuf {
            self.directory.path().join(format!("arena_1-{index}.dunlin-room"))
        }

        /// A recording that ended so many seconds after the first one.
        fn add(&self, index: u64) -> File {
            let file = File::create_new(self.path(index)).expect("a file");
            file.set_len(FILE_BYTES).expect("its size");
            file.set_modified(self.began + Duration::from_secs(index)).expect("its time");
            file
        }

        /// A file into which nothing was written.
        fn add_empty(&self, index: u64, written: SystemTime) -> File {
            let file = File::create_new(self.path(index)).expect("a file");
            file.set_modified(written).expect("its time");
            file
        }

        fn left(&self) -> Vec<u64> {
            (0..100).filter(|index| self.path(*index).exists()).collect()
        }

        fn counts(&self) -> (u64, [u64; 3]) {
            let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
            (load(&self.directory.bytes), self.directory.deletions.each_ref().map(load))
        }
    }

    impl Drop for Rig {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(self.directory.path());
        }
    }

    #[test]
    fn at_the_limit_all_are_kept_and_one_byte_more_deletes_what_ended_first() {
        let rig = Rig::new("size", 4 * FILE_BYTES, 0);
        // The names are not in the order of the ends.
        for index in [2, 0, 1] {
            rig.add(index);
        }
        fs::write(rig.directory.path().join("notes.txt"), [0; 1_000]).expect("it is no recording");
        drop(rig.directory.admit(FILE_BYTES).expect("it fits"));
        assert_eq!((rig.left(), rig.counts()), (vec![0, 1, 2], (4 * FILE_BYTES, [0; 3])));
        drop(rig.directory.admit(1).expect("it fits without the oldest"));
        assert_eq!((rig.left(), rig.counts()), (vec![1, 2], (3 * FILE_BYTES + 1, [1, 0, 0])));
        drop(rig.directory.admit(2 * FILE_BYTES).expect("it fits without both"));
        assert_eq!((rig.left(), rig.counts().1), (vec![], [3, 0, 0]));
    }

    #[test]
    fn what_is_written_or_replayed_is_not_deleted_and_the_next_chunk_is_refused() {
        let rig = Rig::new("in-use", 3 * FILE_BYTES, 1);
        let running: Vec<File> = (0..2).map(|index| rig.add(index)).collect();
        running.iter().for_each(hold);
        let replayed = rig.add(2);
        hold(&replayed);
        assert!(rig.directory.admit(1).is_none());
        rig.directory.sweep(SystemTime::now());
        assert_eq!((rig.left(), rig.counts()), (vec![0, 1, 2], (3 * FILE_BYTES, [0; 3])));
        // When its replay has ended, it goes.
        drop(replayed);
        rig.directory.sweep(SystemTime::now());
        assert_eq!((rig.left(), rig.counts()), (vec![0, 1], (2 * FILE_BYTES, [0, 1, 0])));
        assert!(rig.directory.admit(1).is_some());
    }

    #[test]
    fn recordings_are_kept_for_as_long_as_they_may_be() {
        let rig = Rig::new("age", 0, 10);
        for index in 0..3 {
            rig.add(index);
        }
        rig.directory.sweep(rig.began + Duration::from_secs(10));
        assert_eq!(rig.left(), [0, 1, 2], "ten seconds after its end, the first one is kept");
        rig.directory.sweep(rig.began + Duration::from_secs(12));
        assert_eq!((rig.left(), rig.counts()), (vec![2], (FILE_BYTES, [0, 2, 0])));
    }

    #[test]
    fn without_limits_nothing_is_deleted() {
        let rig = Rig::new("unlimited", 0, 0);
        rig.add(0);
        rig.directory.sweep(SystemTime::now() + Duration::from_hours(1_000_000));
        drop(rig.directory.admit(u64::MAX / 2).expect("there is no limit"));
        assert_eq!((rig.left(), rig.counts().1), (vec![0], [0; 3]));
    }

    #[test]
    fn more_files_are_deleted_than_a_look_remembers_and_than_a_batch_has() {
        let count = BATCH_FILES as u64 * 3 + 2;
        let mut rig = Rig::new("many", count - 1, 0);
        rig.directory.oldest_max = BATCH_FILES + 1;
        for index in 0..count {
            let file = File::create_new(rig.path(index)).expect("a file");
            file.set_len(1).expect("its size");
            file.set_modified(rig.began + Duration::from_secs(index)).expect("its time");
        }
        drop(rig.directory.admit(count - 1).expect("it fits without all of them"));
        assert_eq!(rig.counts(), (count - 1, [count, 0, 0]));
        assert_eq!(recordings_in(rig.directory.path()).expect("a directory").count(), 0);
    }

    #[test]
    fn files_without_bytes_are_deleted_and_keep_no_others_from_it() {
        let mut rig = Rig::new("empty", FILE_BYTES, 0);
        rig.directory.oldest_max = 10;
        for index in 0..11 {
            rig.add_empty(index, rig.began);
        }
        let written = rig.add_empty(11, rig.began);
        hold(&written);
        rig.add_empty(12, SystemTime::now());
        rig.add(13);
        drop(rig.directory.admit(FILE_BYTES).expect("it fits without the last one"));
        assert_eq!((rig.left(), rig.counts()), (vec![11, 12], (FILE_BYTES, [12, 0, 0])));
    }

    #[test]
    fn what_is_in_use_keeps_no_others_from_their_deletion() {
        for ttl_s in [0, 1] {
            let mut rig = Rig::new("hidden", 11 * FILE_BYTES, ttl_s);
            rig.directory.oldest_max = 10;
            let in_use: Vec<File> = (0..11).map(|index| rig.add(index)).collect();
            in_use.iter().for_each(hold);
            rig.add(11);
            if ttl_s == 0 {
                drop(rig.directory.admit(0).expect("it fits without the last one"));
            } else {
                rig.directory.sweep(SystemTime::now());
            }
            assert_eq!(rig.left(), (0..11).collect::<Vec<_>>(), "{ttl_s}");
        }
    }

    #[test]
    fn the_log_has_what_was_deleted_since_the_last_sweep() {
        let rig = Rig::new("log", 2 * FILE_BYTES, 30 * 60);
        (0..3).for_each(|index| drop(rig.add(index)));
        drop(rig.directory.admit(FILE_BYTES).expect("it fits without two"));
        let unlogged = |files| Unlogged { files, bytes: files * FILE_BYTES };
        assert_eq!(rig.directory.kept().unlogged, [2, 0, 0].map(unlogged));
        assert!(!rig.directory.delete_some_before(SystemTime::now()), "that was the last one");
        assert_eq!(rig.directory.kept().unlogged, [2, 1, 0].map(unlogged));
        rig.directory.sweep(SystemTime::now());
        assert_eq!(rig.directory.kept().unlogged, [0, 0, 0].map(unlogged));
    }

    #[test]
    fn what_has_ended_a_moment_ago_gives_way() {
        let rig = Rig::new("ended", 2 * FILE_BYTES, 0);
        let running = rig.add(0);
        hold(&running);
        assert!(rig.directory.admit(2 * FILE_BYTES).is_none());
        drop(running);
        assert!(rig.directory.admit(2 * FILE_BYTES).is_none(), "the directory was looked at a moment ago");
        rig.directory.note_end();
        assert!(rig.directory.admit(2 * FILE_BYTES).is_some());
    }

    #[test]
    fn what_is_being_written_counts() {
        let rig = Rig::new("in-flight", 10, 0);
        let admitted = rig.directory.admit(6).expect("it fits");
        rig.directory.sweep(SystemTime::now());
        assert!(rig.directory.admit(5).is_none());
        drop(rig.directory.admit(4).expect("it fits as well"));
        drop(admitted);
        // Nothing was written.
        rig.directory.sweep(SystemTime::now());
        assert_eq!(rig.counts().0, 0);
    }

    #[test]
    fn a_directory_belongs_to_all_namespaces_that_record_into_it() {
        let of = |directory: &str| {
            let recording = RecordingSettings { directory: directory.into(), bytes_max: 1, ttl_ms: 0 };
            Arc::new(RoomSettings { recording: Some(recording), ..RoomSettings::default() })
        };
        let settings = [of("/a"), of("/b"), of("/a"), Arc::new(RoomSettings::default())];
        let recordings = Recordings::of(settings.iter());
        assert_eq!(recordings.paths(), BTreeSet::from(["/a".into(), "/b".into()]));
        let [first, other, same, none] = settings.each_ref().map(|settings| recordings.directory_of(settings));
        assert!(first.zip(same).is_some_and(|(first, same)| Arc::ptr_eq(first, same)));
        assert!(other.is_some_and(|other| other.path() == Path::new("/b")) && none.is_none());
    }
}
