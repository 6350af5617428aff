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
    fs::{self, File, TryLockError},
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
const OLDEST_MAX: usize = 1_000;

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
    /// Those that were written last at the earliest time come first.
    oldest: VecDeque<Candidate>,
    /// When the directory was looked at.
    looked: Option<Instant>,
    /// A recording of this node has ended since then.
    has_ended: bool,
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
    }
}

impl RecordDirectory {
    fn new(settings: RecordingSettings) -> Self {
        let (deletions, cut) = Default::default();
        Self { settings, kept: Mutex::default(), bytes: AtomicU64::new(0), deletions, cut }
    }

    pub(super) fn path(&self) -> &Path {
        &self.settings.directory
    }

    pub(super) fn count_cut(&self, reason: CutReason) {
        add_one(self.cut.get(reason as usize));
    }

    /// Takes space for a chunk, for which recordings that have ended may be deleted; `None` if that is not enough.
    pub(super) fn admit(&self, bytes: u64) -> Option<Admitted<'_>> {
        let mut kept = self.kept();
        if kept.looked.is_none() {
            self.look(&mut kept);
        }
        self.free(&mut kept, bytes);
        if self.is_above(&kept, bytes) {
            return None;
        }
        kept.in_flight += bytes;
        self.set_bytes(&mut kept, |kept| kept.saturating_add(bytes));
        Some(Admitted { directory: self, bytes })
    }

    /// A recording has ended, and may be deleted from now on.
    pub(super) fn note_end(&self) {
        self.kept().has_ended = true;
    }

    /// Deletes recordings that have been kept for long enough, and those beyond the limit.
    fn sweep(&self, now: SystemTime) {
        let mut kept = self.kept();
        let ttl = Duration::from_millis(self.settings.ttl_ms);
        let kept_since = Some(ttl).filter(|ttl| !ttl.is_zero()).and_then(|ttl| now.checked_sub(ttl));
        loop {
            self.look(&mut kept);
            let mut is_deleted = false;
            while let Some(oldest) =
                kept.oldest.pop_front_if(|oldest| kept_since.is_some_and(|since| oldest.written < since))
            {
                is_deleted |= self.delete(&mut kept, &oldest, Deletion::Age);
            }
            // One look remembers some files. If all of them were deleted, more may follow.
            if !is_deleted || !kept.oldest.is_empty() {
                break;
            }
        }
        self.free(&mut kept, 0);
    }

    /// Deletes the oldest recordings until so many bytes more are within the limit, or there is nothing to delete.
    fn free(&self, kept: &mut Kept, bytes: u64) {
        while self.is_above(kept, bytes) {
            let mut is_deleted = false;
            while self.is_above(kept, bytes)
                && let Some(oldest) = kept.oldest.pop_front()
            {
                is_deleted |= self.delete(kept, &oldest, Deletion::Size);
            }
            if !self.is_above(kept, bytes) {
                return;
            }
            let is_due = kept.looked.is_none_or(|looked| looked.elapsed() >= LOOK_INTERVAL);
            if !is_deleted && !is_due && !kept.has_ended {
                return;
            }
            self.look(kept);
            if kept.oldest.is_empty() {
                return;
            }
        }
    }

    fn is_above(&self, kept: &Kept, bytes: u64) -> bool {
        let bytes_max = self.settings.bytes_max;
        bytes_max > 0 && kept.bytes.saturating_add(bytes) > bytes_max
    }

    /// Reads the sizes and times of all recordings.
    fn look(&self, kept: &mut Kept) {
        (kept.looked, kept.has_ended) = (Some(Instant::now()), false);
        let (mut bytes, mut oldest) = (0_u64, BTreeSet::new());
        match recordings_in(&self.settings.directory) {
            // It is made with the first recording.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return events::RecordingsUnread { path: &self.settings.directory, source: &error }.emit(),
            Ok(candidates) => {
                for candidate in candidates {
                    bytes = bytes.saturating_add(candidate.bytes);
                    oldest.insert(candidate);
                    if oldest.len() > OLDEST_MAX {
                        oldest.pop_last();
                    }
                }
            }
        }
        kept.oldest = oldest.into_iter().collect();
        // A chunk that is being written may be in its file already, and counts twice then, until the next look.
        let in_flight = kept.in_flight;
        self.set_bytes(kept, |_| bytes.saturating_add(in_flight));
    }

    /// Whether the file is gone. Counts the outcome, unless the recording is in use.
    fn delete(&self, kept: &mut Kept, oldest: &Candidate, why: Deletion) -> bool {
        // A file without bytes is about to be written, and its writer may not have its lock yet.
        if oldest.bytes == 0 {
            return false;
        }
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
        }
        is_deleted
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
    let file = File::open(path)?;
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
    fn more_files_are_deleted_than_a_look_remembers() {
        let rig = Rig::new("many", OLDEST_MAX as u64 + 1, 0);
        let count = OLDEST_MAX as u64 + 2;
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
