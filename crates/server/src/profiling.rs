//! Profiles that are pushed to a Pyroscope server all the time (`profiling.pyroscope.*`).
//!
//! One thread records: processor time for an interval, and at its end the heap. Another one sends what it has recorded, with
//! `POST /ingest?format=pprof`, the simplest of the server's ways to take a profile: its body is the profile itself. Of each
//! kind, one profile waits at most, and a newer one replaces it. So a server that is slow or away costs no memory, and no
//! shard waits for either thread. A profile that was not taken is counted, and not sent again: the next one covers the time
//! that follows.
//!
//! An operator's request comes first, because a process has one profile of each kind at a time. A request for the processor
//! time ends the recording in progress. One for the heap waits until the profile in progress is made.

mod counters;
mod push;
mod record;
#[cfg(test)]
mod tests;
mod waits;

use std::{
    fmt, io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use dunlin_config::PyroscopeOptions;
use dunlin_profiles::{CpuError, HeapError, HeapView, Names, cpu_profile, heap_profile};
use tokio::sync::Notify;

use counters::Counters;
use push::Pusher;
use record::Recorder;

pub use counters::{ProfileCounts, ProfileKind, PushOutcome};
pub use waits::WaitTotals;

/// How long an operator's request waits for the profile in progress to end.
const HAND_OVER_TIMEOUT: Duration = Duration::from_secs(2);

const HAND_OVER_POLL: Duration = Duration::from_millis(10);

/// Requests of operators for a CPU profile.
static OPERATORS: AtomicUsize = AtomicUsize::new(0);

/// Whether the continuous recording has the process's only CPU profile.
static IS_RECORDING: AtomicBool = AtomicBool::new(false);

/// Whether the process's only heap profile is made for the server.
static IS_MAKING_HEAP: AtomicBool = AtomicBool::new(false);

/// The profiles that are pushed, until it is dropped.
pub struct Profiling {
    shared: Arc<Shared>,
}

/// What the threads share.
struct Shared {
    counters: Counters,
    /// The profile of each kind that waits.
    waiting: Mutex<[Option<Recorded>; ProfileKind::ALL.len()]>,
    /// There is one more profile, or the end has come.
    changed: Notify,
    is_stopped: AtomicBool,
}

/// A profile, compressed.
struct Recorded {
    kind: ProfileKind,
    pprof: Vec<u8>,
    from_unix_s: u64,
    until_unix_s: u64,
}

/// Why no profiles are pushed.
#[derive(Debug)]
pub enum ProfilingError {
    /// A thread could not be started.
    Thread(io::Error),
    /// The address or the TLS options cannot be used, for this reason.
    Endpoint(String),
}

impl Profiling {
    /// Starts the threads. `node` is the name of the node; empty for none.
    ///
    /// # Errors
    /// [`ProfilingError`]
    pub fn start(options: &PyroscopeOptions, node: &str) -> Result<Self, ProfilingError> {
        let shared = Arc::new(Shared::default());
        let pusher = Pusher::new(options, node, Arc::clone(&shared)).map_err(ProfilingError::Endpoint)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(ProfilingError::Thread)?;
        // From here on, an error stops the threads.
        let profiling = Self { shared: Arc::clone(&shared) };
        let push = move || runtime.block_on(pusher.run());
        thread::Builder::new().name("profile-push".to_owned()).spawn(push).map_err(ProfilingError::Thread)?;
        let recorder = Recorder::new(Duration::from_millis(options.interval_ms), shared);
        thread::Builder::new()
            .name("profiles".to_owned())
            .spawn(move || recorder.run())
            .map_err(ProfilingError::Thread)?;
        Ok(profiling)
    }

    /// The counters at this moment.
    pub fn counts(&self) -> ProfileCounts {
        self.shared.counters.now()
    }
}

impl Drop for Profiling {
    fn drop(&mut self) {
        self.shared.is_stopped.store(true, Ordering::Relaxed);
        self.shared.changed.notify_one();
    }
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            counters: Counters::default(),
            waiting: Mutex::default(),
            changed: Notify::new(),
            is_stopped: AtomicBool::new(false),
        }
    }
}

impl Shared {
    /// Has a profile sent. One of its kind that still waits is dropped.
    fn put(&self, recorded: Recorded) {
        let kind = recorded.kind;
        let replaced = {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.get_mut(kind as usize).and_then(|place| place.replace(recorded))
        };
        if replaced.is_some() {
            self.counters.count(kind, PushOutcome::Replaced);
        }
        self.changed.notify_one();
    }

    fn take(&self) -> Option<Recorded> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.iter_mut().find_map(Option::take)
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }
}

/// Whether an operator wants the process's only CPU profile.
fn operator_waits() -> bool {
    OPERATORS.load(Ordering::Relaxed) > 0
}

/// Records a CPU profile for an operator. Blocks.
///
/// # Errors
/// [`CpuError`]
pub fn cpu_profile_for_operator(duration: Duration, is_cancelled: impl Fn() -> bool) -> Result<Vec<u8>, CpuError> {
    struct Request;
    impl Drop for Request {
        fn drop(&mut self) {
            OPERATORS.fetch_sub(1, Ordering::Relaxed);
        }
    }
    OPERATORS.fetch_add(1, Ordering::Relaxed);
    let _request = Request;
    let begun = Instant::now();
    loop {
        match cpu_profile(duration, &mut Names::default(), &is_cancelled) {
            Err(CpuError::Busy) if IS_RECORDING.load(Ordering::Relaxed) && begun.elapsed() < HAND_OVER_TIMEOUT => {
                thread::sleep(HAND_OVER_POLL);
            }
            result => return result,
        }
    }
}

/// Makes a heap profile for an operator. Blocks.
///
/// # Errors
/// [`HeapError`]
pub fn heap_profile_for_operator(view: HeapView) -> Result<Vec<u8>, HeapError> {
    let begun = Instant::now();
    loop {
        match heap_profile(view, &mut Names::default()) {
            Err(HeapError::Busy) if IS_MAKING_HEAP.load(Ordering::Relaxed) && begun.elapsed() < HAND_OVER_TIMEOUT => {
                thread::sleep(HAND_OVER_POLL);
            }
            result => return result,
        }
    }
}

impl fmt::Display for ProfilingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Thread(error) => write!(f, "can't get a thread for profiles: {error}"),
            Self::Endpoint(why) => write!(f, "profiling.pyroscope: {why}"),
        }
    }
}

impl std::error::Error for ProfilingError {}
