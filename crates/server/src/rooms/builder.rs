//! The room builder: one thread that creates and drops rooms. Both operations run game code of unknown duration, so no
//! thread that ticks runs them.
//!
//! If creating a room does not end, only that room fails: the watchdog abandons the thread, as it does with a room
//! thread, and a new thread continues with the next room.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    process,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, Sender},
    },
    thread,
    time::Duration,
};

use dunlin_config::{RoomSettings, RoomSurvival};
use dunlin_engine::{host::Runner, room::RoomKey};
use dunlin_games::Registry;
use dunlin_rooms::{Grid, Room, RoomInfo, RoomOverrides, WorldError};
use tokio::sync::mpsc;

use super::{
    FailureReason, ThreadWaker,
    job::{Failure, discard, panicked, shortened},
    paths::{PathSink, RoomPaths},
    recorder::RoomRecorder,
    report::BuilderReport,
    restore::{OpenedRoom, open_kept},
    scheduled_room::Live,
    shared::Shared,
    survival::RoomEntries,
    system::{self, Granted},
    thread::Worker,
};
use crate::otlp::{OpenSpan, Parent, SpanKind, Tracer};

/// The room builder; see the module's documentation.
pub(super) struct RoomBuilder {
    shared: Arc<Shared>,
    /// The working thread locks it while it waits.
    tasks: Mutex<Receiver<Task>>,
    /// The room threads, by index.
    threads: Vec<ToThread>,
    progress: Mutex<Progress>,
    /// When the current task counts as stuck; never while the thread waits.
    stuck_at_ns: AtomicU64,
    worker: Mutex<Option<Worker>>,
}

/// The ring and the waker of a room thread.
pub(super) struct ToThread {
    pub(super) made: Sender<Made>,
    pub(super) waker: Arc<ThreadWaker>,
}

/// A task that runs game code.
pub(super) enum Task {
    Make(Box<BuildRequest>),
    /// Drop a room that has ended.
    Discard {
        namespace: u16,
        settings: Arc<RoomSettings>,
        live: Box<Live>,
    },
    /// Check whether the node stops.
    Stop,
}

/// A room to create.
pub(super) struct BuildRequest {
    /// The index of its room thread.
    pub(super) thread: u16,
    /// The room's index in that thread's scheduler.
    pub(super) place: usize,
    pub(super) key: RoomKey,
    pub(super) channel: Arc<str>,
    pub(super) namespace: u16,
    pub(super) settings: Arc<RoomSettings>,
    pub(super) overrides: Arc<RoomOverrides>,
    pub(super) seed: u64,
}

/// The result of a build request.
pub(super) struct Made {
    pub(super) place: usize,
    pub(super) key: RoomKey,
    pub(super) outcome: Result<(Box<Live>, Grid), Failure>,
}

/// The state of the thread.
struct Progress {
    /// The generation of the current thread; abandoned threads have lower ones.
    generation: u32,
    running: Option<Running>,
    report: BuilderReport,
    /// Held until the builder has ended.
    alive: Option<mpsc::Sender<()>>,
    /// The receiver of paths; held until the builder has ended.
    paths: Option<PathSink>,
}

struct Running {
    namespace: u16,
    began_ns: u64,
    /// The room that fails if the task does not end.
    room: Option<(u16, usize, RoomKey)>,
}

impl RoomBuilder {
    pub(super) fn new(
        shared: Arc<Shared>,
        tasks: Receiver<Task>,
        threads: Vec<ToThread>,
        alive: Option<mpsc::Sender<()>>,
        paths: Option<PathSink>,
    ) -> Self {
        Self {
            shared,
            tasks: Mutex::new(tasks),
            threads,
            progress: Mutex::new(Progress {
                generation: 0,
                running: None,
                report: BuilderReport::default(),
                alive,
                paths,
            }),
            stuck_at_ns: AtomicU64::new(u64::MAX),
            worker: Mutex::new(None),
        }
    }

    pub(super) fn report(&self) -> BuilderReport {
        self.progress().report
    }

    /// The generation of the current thread.
    pub(super) fn generation(&self) -> u32 {
        self.progress().generation
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a task and executes it. Returns whether the thread of `generation` continues.
    pub(super) fn carry_out_next(&self, generation: u32) -> bool {
        let task = self.tasks.lock().unwrap_or_else(PoisonError::into_inner).recv();
        if self.shared.is_stopping() {
            let mut progress = self.progress();
            (progress.alive, progress.paths) = (None, None);
            return false;
        }
        match task {
            Ok(Task::Make(request)) => self.make(generation, &request),
            Ok(Task::Discard { namespace, settings, live }) => {
                self.begin(namespace, &settings, None);
                discard(live);
                self.finish(generation, namespace)
            }
            Ok(Task::Stop) => true,
            Err(_) => false,
        }
    }

    fn make(&self, generation: u32, request: &BuildRequest) -> bool {
        let mut span = self.shared.tracer.as_ref().map(|tracer| open_span(tracer, request));
        let BuildRequest { thread, place, key, namespace, ref settings, .. } = *request;
        if let Some(failure) = self.shared.refusal_of_room(namespace) {
            fail(span.as_mut(), failure.reason);
            self.hand_over(thread, Made { place, key, outcome: Err(failure) });
            return true;
        }
        let entries = match self.claim_entries(request) {
            Ok(entries) => entries,
            Err(failure) => {
                fail(span.as_mut(), failure.reason);
                self.hand_over(thread, Made { place, key, outcome: Err(failure) });
                return true;
            }
        };
        self.begin(namespace, settings, Some((thread, place, key)));
        let registry = &self.shared.options.registry;
        let made = match &entries {
            Some(entries) => open_kept(registry, request, entries, &|| self.go_on(generation, settings)),
            None => make_room(registry, request).map(|runner| OpenedRoom { runner, writer: None }),
        };
        let is_in_time = self.finish(generation, namespace);
        if let Some(entries) = entries.filter(|_| made.is_err() || !is_in_time) {
            entries.end(false);
        }
        if !is_in_time {
            fail(span.as_mut(), FailureReason::Stuck);
            // The room has failed in the meantime. If its drop panics, this thread ends, which it does anyway.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(made)));
            return false;
        }
        if let Ok(OpenedRoom { writer: Some(writer), .. }) = &made
            && self.shared.is_stopping()
        {
            // Its room thread may have ended already.
            writer.entries.end(false);
        }
        if let Some(span) = &mut span {
            describe(span, &made);
        }
        let outcome = made.map(|opened| self.enliven(request, opened));
        self.hand_over(thread, Made { place, key, outcome });
        true
    }

    /// The storage entries of the room, if rooms of its namespace are stored.
    fn claim_entries(&self, request: &BuildRequest) -> Result<Option<Arc<RoomEntries>>, Failure> {
        let settings = &request.settings;
        let Some(kept) = self.shared.kept.as_ref().filter(|_| settings.survival != RoomSurvival::None) else {
            return Ok(None);
        };
        let waker = Arc::clone(&self.threads[usize::from(request.thread)].waker);
        let timeout = Duration::from_millis(settings.tick_stuck_timeout_ms);
        let claimed = kept.claim(&request.channel, waker, timeout);
        let detail = "the channel's room before it has not ended".to_owned();
        // Joins wait for the room: its end is on the way.
        claimed.map(Some).ok_or(Failure { reason: FailureReason::Storage, detail })
    }

    fn enliven(&self, request: &BuildRequest, opened: OpenedRoom) -> (Box<Live>, Grid) {
        let BuildRequest { channel, namespace, settings, overrides, .. } = request;
        let OpenedRoom { runner, writer } = opened;
        let alive = self.progress().alive.clone();
        // A recording begins with the first tick.
        let is_new = runner.ticks_run() == 0 && writer.as_ref().is_none_or(|writer| !writer.is_restored);
        let directory = self.shared.recordings.directory_of(settings).filter(|_| is_new);
        let recorder = directory
            .map(|directory| RoomRecorder::start(runner.room(), settings, &overrides.listing, directory, alive));
        let paths = RoomPaths::start(channel, settings, self.progress().paths.as_ref(), &runner);
        let grid = runner.room().grid().clone();
        let mut share = self.shared.share_of_memory();
        // Without the game's report, which follows after the first tick: no game code runs here.
        share.set(runner.room().world_bytes() as u64, 0);
        let (namespace, settings) = (*namespace, Arc::clone(settings));
        (Box::new(Live { runner, recorder, writer, paths, namespace, settings, share }), grid)
    }

    /// Restarts the watchdog's timeout, because the task continues with another call of the game.
    fn go_on(&self, generation: u32, settings: &RoomSettings) {
        let progress = self.progress();
        if progress.generation == generation && progress.running.is_some() {
            self.set_timeout(self.shared.now_ns(), settings);
        }
    }

    fn set_timeout(&self, from_ns: u64, settings: &RoomSettings) {
        let timeout_ns = settings.tick_stuck_timeout_ms.saturating_mul(1_000_000);
        self.stuck_at_ns.store(from_ns.saturating_add(timeout_ns), Ordering::Release);
    }

    fn begin(&self, namespace: u16, settings: &RoomSettings, room: Option<(u16, usize, RoomKey)>) {
        let began_ns = self.shared.now_ns();
        self.progress().running = Some(Running { namespace, began_ns, room });
        self.set_timeout(began_ns, settings);
    }

    /// Whether the thread of `generation` was not abandoned.
    fn finish(&self, generation: u32, namespace: u16) -> bool {
        let mut progress = self.progress();
        if progress.generation != generation {
            progress.report.came_back += 1;
            self.shared.regain_thread(namespace);
            return false;
        }
        self.stuck_at_ns.store(u64::MAX, Ordering::Release);
        if let Some(running) = progress.running.take() {
            progress.report.busy_ns += self.shared.now_ns() - running.began_ns;
        }
        true
    }

    fn hand_over(&self, thread: u16, made: Made) {
        let to = &self.threads[usize::from(thread)];
        // A thread that has ended needs no result.
        let _ = to.made.send(made);
        // The thread may wait for a tick, and requests wait for the result.
        to.waker.call();
    }

    /// Whether the current task takes too long.
    fn is_stuck(&self) -> bool {
        self.stuck_at_ns.load(Ordering::Acquire) <= self.shared.now_ns()
    }

    /// Abandons the thread if its task takes too long. Returns whether it did.
    pub(super) fn give_up_stuck(&self) -> bool {
        let worker = *self.worker.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(worker) = worker else { return false };
        if !self.is_stuck() {
            return false;
        }
        let mut progress = self.progress();
        // Check again under the lock, because the task may have just ended.
        if !self.is_stuck() {
            return false;
        }
        let Some(Running { namespace, room, .. }) = progress.running.take() else { return false };
        progress.generation += 1;
        progress.report.replaced += 1;
        self.shared.lose_thread(namespace);
        self.stuck_at_ns.store(u64::MAX, Ordering::Release);
        *self.worker.lock().unwrap_or_else(PoisonError::into_inner) = None;
        drop(progress);
        if let Some((thread, place, key)) = room {
            let failure = Failure { reason: FailureReason::Stuck, detail: String::new() };
            self.hand_over(thread, Made { place, key, outcome: Err(failure) });
        }
        // An error means that the thread has ended in the meantime.
        let _ = system::make_idle(worker.thread);
        true
    }
}

/// The span of the creation of a room. It belongs to the request of the server API that opens the room, if there is one.
fn open_span(tracer: &Arc<Tracer>, request: &BuildRequest) -> OpenSpan {
    let opener = tracer.room_openers().of(&request.channel);
    let mut span = tracer.open("room create", SpanKind::Internal, opener.as_ref().map_or(Parent::None, Parent::Own));
    span.set("dunlin.channel", &*request.channel);
    span.set("dunlin.simulation", &*request.settings.simulation);
    span
}

/// Adds what became of a room that is being created.
fn describe(span: &mut OpenSpan, made: &Result<OpenedRoom, Failure>) {
    match made {
        Ok(OpenedRoom { runner, writer }) => {
            let is_restored = writer.as_ref().is_some_and(|writer| writer.is_restored);
            span.set("dunlin.restored", if is_restored { "yes" } else { "no" });
            span.set("dunlin.tick", i64::try_from(runner.ticks_run()).unwrap_or(i64::MAX));
        }
        Err(failure) => span.fail(failure.reason.name()),
    }
}

/// The span of a room that is not created has failed.
fn fail(span: Option<&mut OpenSpan>, reason: FailureReason) {
    if let Some(span) = span {
        span.fail(reason.name());
    }
}

/// Starts a thread with this generation.
///
/// # Errors
/// The error of the operating system.
pub(super) fn spawn(builder: &Arc<RoomBuilder>, generation: u32) -> std::io::Result<()> {
    let builder = Arc::clone(builder);
    thread::Builder::new().name("rooms-build".to_owned()).spawn(move || live(&builder, generation)).map(drop)
}

/// Panics of games are caught where their code is called. A panic that arrives here is a bug in the server.
fn live(builder: &RoomBuilder, generation: u32) {
    let worked = catch_unwind(AssertUnwindSafe(|| {
        let worker = Worker { thread: system::this_thread(), granted: Granted::default() };
        *builder.worker.lock().unwrap_or_else(PoisonError::into_inner) = Some(worker);
        while builder.carry_out_next(generation) {}
    }));
    if worked.is_err() {
        eprintln!("dunlin: the room builder panicked, see above; the process ends");
        process::abort();
    }
}

pub(super) fn make_room(registry: &Registry, request: &BuildRequest) -> Result<Runner, Failure> {
    let BuildRequest { channel, settings, overrides, seed, .. } = request;
    let made = catch_unwind(AssertUnwindSafe(|| {
        let no_start = |detail: String| Failure { reason: FailureReason::Start, detail };
        // The configured parameters were checked with this simulation.
        let reason = if overrides.params.is_empty() { FailureReason::Start } else { FailureReason::Params };
        let refused = |detail: String| Failure { reason, detail };
        let params = overrides.params_over(&settings.params).map_err(|error| refused(error.0))?;
        let simulation = registry
            .make(&settings.simulation, &params)
            .ok_or_else(|| no_start("there is no such simulation".to_owned()))?
            .map_err(|error| refused(shortened(&error.0)))?;
        let info = RoomInfo { channel: (**channel).into(), params: params.to_string().into(), seed: *seed };
        let mut room =
            Room::open(settings.room.clone(), info, simulation).map_err(|error| refused(error.to_string()))?;
        // Applied before any player can join, and after the game's own listing.
        let of_listing = |error: WorldError| Failure { reason: FailureReason::Params, detail: error.to_string() };
        room.change_listing(&overrides.listing).map_err(of_listing)?;
        Ok(room)
    }));
    Ok(Runner::new(made.map_err(panicked)??))
}
