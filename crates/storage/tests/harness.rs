//! A storage in a separate directory, and a collector of its answers.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use dunlin_engine::{
    Event, ShardIndex,
    event::ShardEvents,
    log::{LoadNumber, LoadQuery, LogError, LogPage, LogRecord, LogRetention, LogTerms, ProposalNumber},
};
use dunlin_protocol::{Payload, Publication};
use dunlin_storage::{
    Completions, Inspection, LoadRequest, SpaceShortage, Storage, StorageError, StorageOptions, StoreRequest,
};

/// Maximum time that a test waits for a condition. Only a failing test waits this long.
const WAIT_MAX: Duration = Duration::from_mins(1);

/// The environment variable with the directory of a child process, which is this binary with one test.
pub const CHILD_DIRECTORY: &str = "DUNLIN_STORAGE_CHILD";

pub const TERMS: LogTerms = LogTerms {
    retention: LogRetention { publications_max: 1_000_000, ttl_ms: 3_600_000 },
    meta_ttl_ms: 7_200_000,
    result_ttl_ms: 300_000,
    is_synced: false,
};

/// A directory that is removed on drop.
pub struct ScratchDirectory(pub PathBuf);

impl ScratchDirectory {
    pub fn new() -> Self {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("dunlin-storage-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).expect("the directory for temporary files can be written");
        Self(path)
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for ScratchDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Channel, number and outcome of a publication.
type CommitOutcome = (String, u64, Result<u64, LogError>);

/// Stores all answers until the test reads them.
#[derive(Default)]
pub struct AnswerCollector {
    commits: Mutex<Vec<CommitOutcome>>,
    pages: Mutex<HashMap<u64, Result<Box<LogPage>, LogError>>>,
    resumed: Mutex<bool>,
    /// Each begin (`true`) and end of a shortage of free space.
    pub shortages: Mutex<Vec<bool>>,
    changed: Condvar,
}

impl ShardEvents for AnswerCollector {
    fn send(&self, shard: ShardIndex, event: Event<'static>) -> bool {
        assert_eq!(shard, ShardIndex(3));
        match event {
            Event::Committed { channel, proposal, outcome } => {
                self.commits.lock().unwrap().push((channel.to_string(), proposal.0, outcome));
            }
            Event::Loaded { load, outcome, .. } => drop(self.pages.lock().unwrap().insert(load.0, outcome)),
            other => panic!("{other:?}"),
        }
        self.changed.notify_all();
        true
    }
}

impl Completions for AnswerCollector {
    fn resumed(&self) {
        *self.resumed.lock().unwrap() = true;
        self.changed.notify_all();
    }

    fn space_short(&self, shortage: &SpaceShortage) {
        assert!(shortage.to_string().contains("`storage.free_space_min`"), "{shortage}");
        self.shortages.lock().unwrap().push(true);
    }

    fn space_enough(&self) {
        self.shortages.lock().unwrap().push(false);
    }
}

/// An open storage with its answers.
pub struct TestStorage {
    pub storage: Storage,
    pub answers: Arc<AnswerCollector>,
    requests: AtomicU64,
}

impl TestStorage {
    pub fn open(path: &Path) -> Self {
        Self::with(&StorageOptions::at(path)).expect("the storage opens")
    }

    pub fn with(options: &StorageOptions) -> Result<Self, StorageError> {
        let answers = Arc::new(AnswerCollector::default());
        let storage = Storage::open(options, Arc::clone(&answers) as Arc<dyn Completions>)?;
        Ok(Self { storage, answers, requests: AtomicU64::new(0) })
    }

    pub fn inspect(&self) -> Inspection {
        self.storage.inspect().expect("it is open")
    }

    /// Queues a publication. Returns the number that its answer will have.
    pub fn propose(&self, channel: &str, record: LogRecord, terms: LogTerms) -> Result<u64, LogError> {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let (shard, record) = (ShardIndex(3), Box::new(record));
        self.storage.store(StoreRequest {
            shard,
            channel: channel.into(),
            proposal: ProposalNumber(number),
            record,
            begins: None,
            terms,
        })?;
        Ok(number)
    }

    /// Stores the first publication of a channel that has told clients this epoch.
    pub fn store_first(&self, channel: &str, offset: u64, epoch: &str) {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let (shard, record) = (ShardIndex(3), Box::new(record(offset)));
        let request = StoreRequest {
            shard,
            channel: channel.into(),
            proposal: ProposalNumber(number),
            record,
            begins: Some(epoch.into()),
            terms: TERMS,
        };
        self.storage.store(request).expect("there is room");
        assert_eq!(self.outcome(number), Ok(offset));
    }

    /// Stores a publication and waits for the answer.
    pub fn store_with(&self, channel: &str, record: LogRecord, terms: LogTerms) -> Result<u64, LogError> {
        let number = self.propose(channel, record, terms)?;
        self.outcome(number)
    }

    /// Waits for the answer to a publication.
    fn outcome(&self, number: u64) -> Result<u64, LogError> {
        let commits = self.answers.commits.lock().unwrap();
        let answered = |commits: &Vec<CommitOutcome>| commits.iter().any(|(_, n, _)| *n == number);
        let waited = self.answers.changed.wait_timeout_while(commits, WAIT_MAX, |commits| !answered(commits)).unwrap();
        let (.., outcome) = waited.0.iter().find(|(_, n, _)| *n == number).expect("it is answered");
        *outcome
    }

    pub fn store(&self, channel: &str, offset: u64) {
        assert_eq!(self.store_with(channel, record(offset), TERMS), Ok(offset));
    }

    /// Waits for this number of answers about publications, and returns all of them.
    pub fn commits(&self, count: usize) -> Vec<CommitOutcome> {
        let commits = self.answers.commits.lock().unwrap();
        let waited =
            self.answers.changed.wait_timeout_while(commits, WAIT_MAX, |commits| commits.len() < count).unwrap();
        waited.0.clone()
    }

    /// Waits until the storage writes again.
    pub fn wait_until_resumed(&self) {
        let resumed = self.answers.resumed.lock().unwrap();
        let waited = self.answers.changed.wait_timeout_while(resumed, WAIT_MAX, |resumed| !*resumed).unwrap();
        assert!(*waited.0, "{:?}", self.storage.poison());
    }

    pub fn try_load(&self, channel: &str, query: LoadQuery, terms: LogTerms) -> Result<LogPage, LogError> {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let (shard, load) = (ShardIndex(3), LoadNumber(number));
        self.storage.load(LoadRequest { shard, channel: channel.into(), load, query, terms })?;
        let pages = self.answers.pages.lock().unwrap();
        let waited =
            self.answers.changed.wait_timeout_while(pages, WAIT_MAX, |pages| !pages.contains_key(&number)).unwrap();
        let outcome = { waited.0 }.remove(&number).expect("it is answered");
        outcome.map(|loaded| *loaded)
    }

    /// Trims a channel and waits for the answer.
    pub fn trim(&self, channel: &str, through: u64) -> Result<(), StorageError> {
        let (sender, receiver) = std::sync::mpsc::channel();
        let done = Box::new(move |outcome| sender.send(outcome).expect("the test waits"));
        self.storage.trim(channel.into(), through, Some(done));
        receiver.recv_timeout(WAIT_MAX).expect("it is answered")
    }

    pub fn newest(&self, channel: &str, publications_max: usize) -> LogPage {
        self.try_load(channel, LoadQuery::newest(publications_max), TERMS).expect("it can be read")
    }

    pub fn below(&self, channel: &str, below: u64, publications_max: usize) -> LogPage {
        let query = LoadQuery { below, ..LoadQuery::newest(publications_max) };
        self.try_load(channel, query, TERMS).expect("it can be read")
    }

    pub fn after(&self, channel: &str, after: u64, publications_max: usize) -> LogPage {
        let query = LoadQuery::after(after, publications_max);
        self.try_load(channel, query, TERMS).expect("it can be read")
    }
}

/// A publication whose data contains its offset.
pub fn record(offset: u64) -> LogRecord {
    record_of(offset, format!("{{\"number\":{offset}}}"))
}

pub fn record_of(offset: u64, data: impl Into<Vec<u8>>) -> LogRecord {
    let publication = Publication {
        data: Payload::from_json(data.into().into()),
        info: None,
        offset,
        tags: Vec::new(),
        time_ms: 0,
        epoch: Box::default(),
        version: 0,
    };
    LogRecord { publication: Arc::new(publication), version_epoch: Box::default(), idempotency_key: None }
}

pub fn offsets(page: &LogPage) -> Vec<u64> {
    for record in &page.records {
        let offset = record.publication.offset;
        assert!(record.publication.data.bytes().starts_with(format!("{{\"number\":{offset}").as_bytes()), "{record:?}");
    }
    page.records.iter().map(|record| record.publication.offset).collect()
}

/// Runs this binary with one test, which reads the directory from [`CHILD_DIRECTORY`].
pub fn child(test: &str, directory: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a test is a file"));
    command.args(["--exact", test, "--nocapture", "--test-threads", "1"]).env(CHILD_DIRECTORY, directory);
    command
}

/// The directory of a child process; `None` in a run of all tests.
pub fn directory_of_child() -> Option<PathBuf> {
    std::env::var_os(CHILD_DIRECTORY).map(PathBuf::from)
}
