//! A room thread: takes the next due room from its scheduler, runs it, returns it, and sleeps until the next tick.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    process,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use super::{
    ThreadWaker,
    job::{Job, save_and_discard},
    scheduler::Scheduler,
    shared::Shared,
    system::{self, Granted, ThreadId},
};

/// The state of a room thread that survives the replacement of the thread.
pub(super) struct RoomThread {
    pub(super) index: u16,
    pub(super) shared: Arc<Shared>,
    pub(super) waker: Arc<ThreadWaker>,
    scheduler: Mutex<Scheduler>,
    /// When the current job counts as stuck; never without a job.
    pub(super) stuck_at_ns: AtomicU64,
    /// The current thread.
    pub(super) worker: Mutex<Option<Worker>>,
    /// A room has failed since the watchdog's last check.
    pub(super) has_failures: AtomicBool,
}

/// A running thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Worker {
    pub(super) thread: ThreadId,
    pub(super) granted: Granted,
}

/// Maximum time that a thread waits for a tick before it checks for messages, because there may be a request for a new
/// room.
const NAP_MAX: Duration = Duration::from_millis(20);

/// Maximum delay before shards are woken for new messages; longer only if a job takes longer than expected, in which
/// case the watchdog wakes them.
const UNANNOUNCED_NS_MAX: u64 = 500_000;

impl RoomThread {
    pub(super) fn new(index: u16, shared: Arc<Shared>, waker: Arc<ThreadWaker>, scheduler: Scheduler) -> Self {
        Self {
            index,
            shared,
            waker,
            scheduler: Mutex::new(scheduler),
            stuck_at_ns: AtomicU64::new(u64::MAX),
            worker: Mutex::new(None),
            has_failures: AtomicBool::new(false),
        }
    }

    /// Locks the scheduler. No game code runs with the lock held, so a poisoned lock still protects consistent data.
    pub(super) fn scheduler(&self) -> MutexGuard<'_, Scheduler> {
        self.scheduler.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes shards for messages that were sent before the current job, which may take unexpectedly long.
    pub(super) fn announce_if_at_work(&self) {
        if self.stuck_at_ns.load(Ordering::Acquire) != u64::MAX {
            let now_ns = self.shared.now_ns();
            self.scheduler().announce(now_ns);
        }
    }

    /// Whether the current job takes too long.
    pub(super) fn is_stuck(&self) -> bool {
        self.stuck_at_ns.load(Ordering::Acquire) <= self.shared.now_ns()
    }

    /// Notifies the watchdog of failures.
    fn note_failures(&self, scheduler: &Scheduler) {
        if !scheduler.failures.is_empty() {
            self.has_failures.store(true, Ordering::Release);
        }
    }

    /// The settings that the kernel granted the current thread.
    pub(super) fn granted(&self) -> Granted {
        let worker = *self.worker.lock().unwrap_or_else(PoisonError::into_inner);
        worker.map_or(Granted::default(), |worker| worker.granted)
    }
}

/// Starts a thread with this generation.
///
/// # Errors
/// The error of the operating system.
pub(super) fn spawn(room_thread: &Arc<RoomThread>, generation: u32) -> std::io::Result<()> {
    let room_thread = Arc::clone(room_thread);
    let name = format!("rooms-{}", room_thread.index);
    thread::Builder::new().name(name).spawn(move || live(&room_thread, generation)).map(drop)
}

/// Panics of games are caught where their code is called. A panic that arrives here is a bug in the server, with the
/// same consequences as on a shard.
fn live(room_thread: &RoomThread, generation: u32) {
    if catch_unwind(AssertUnwindSafe(|| work(room_thread, generation))).is_err() {
        eprintln!("dunlin: room thread {} panicked, see above; the process ends", room_thread.index);
        process::abort();
    }
}

fn work(room_thread: &RoomThread, generation: u32) {
    room_thread.waker.attend();
    let granted = system::request_punctual_scheduling();
    let worker = Worker { thread: system::this_thread(), granted };
    *room_thread.worker.lock().unwrap_or_else(PoisonError::into_inner) = Some(worker);
    loop {
        match next(room_thread, generation) {
            Next::Run(job) => {
                let namespace = job.namespace;
                let finished = job.run();
                let mut scheduler = room_thread.scheduler();
                if scheduler.generation != generation {
                    drop(scheduler);
                    // Its room has ended, whatever the result.
                    discard_finished(finished);
                    // Under the lock, as `abandon_running`: a reader of the counters sees both changes or none.
                    let mut scheduler = room_thread.scheduler();
                    scheduler.counters.came_back += 1;
                    room_thread.shared.regain_thread(namespace);
                    return;
                }
                room_thread.stuck_at_ns.store(u64::MAX, Ordering::Release);
                scheduler.put_back(finished, room_thread.shared.now_ns());
                room_thread.note_failures(&scheduler);
            }
            Next::Nap(time) => thread::park_timeout(time),
            Next::Sleep => {
                thread::park();
                room_thread.waker.waiting.disarm();
            }
            Next::Replaced => return,
            Next::Stop => return end(room_thread),
        }
    }
}

/// The next action of a thread.
enum Next {
    Run(Job),
    /// Wait for a tick.
    Nap(Duration),
    /// Wait for a message.
    Sleep,
    /// Another thread has taken over the scheduler.
    Replaced,
    Stop,
}

fn next(room_thread: &RoomThread, generation: u32) -> Next {
    let shared = &*room_thread.shared;
    let mut scheduler = room_thread.scheduler();
    if scheduler.generation != generation {
        return Next::Replaced;
    }
    if shared.is_stopping() {
        return Next::Stop;
    }
    let now_ns = shared.now_ns();
    scheduler.links.flush();
    scheduler.take_messages(shared, now_ns);
    scheduler.take_made(shared, now_ns);
    scheduler.take_returned_calls();
    scheduler.release_held();
    room_thread.note_failures(&scheduler);
    scheduler.report_load(now_ns);
    let (busy_since_ns, now_ns) = (now_ns, shared.now_ns());
    if let Some(job) = scheduler.next_job(shared, busy_since_ns, now_ns) {
        // Shards are usually woken once for all rooms that are due at the same time, because waking costs more than the
        // tick of a small room. But messages do not wait for a long job or for many short ones.
        if now_ns.saturating_sub(scheduler.announced_ns).saturating_add(job.expected_ns) > UNANNOUNCED_NS_MAX {
            scheduler.announce(now_ns);
        }
        let timeout_ns = job.settings.tick_stuck_timeout_ms.saturating_mul(1_000_000);
        room_thread.stuck_at_ns.store(now_ns.saturating_add(timeout_ns), Ordering::Release);
        return Next::Run(job);
    }
    scheduler.announce(now_ns);
    if let Some(due_ns) = scheduler.next_ns() {
        // The time spent on reporting is part of the wait.
        return Next::Nap(Duration::from_nanos(due_ns.saturating_sub(shared.now_ns())).min(NAP_MAX));
    }
    room_thread.waker.waiting.arm();
    // Check after arming: later messages and space in rings wake the thread.
    scheduler.links.flush();
    scheduler.links.announce();
    let has_made = scheduler.take_made(shared, now_ns);
    room_thread.note_failures(&scheduler);
    if has_made || scheduler.links.has_messages() || shared.is_stopping() {
        room_thread.waker.waiting.disarm();
        return Next::Nap(Duration::ZERO);
    }
    Next::Sleep
}

fn discard_finished(finished: super::job::Finished) {
    // If the game's drop panics, this thread ends, which it does anyway.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(finished)));
}

fn end(room_thread: &RoomThread) {
    let rooms = room_thread.scheduler().empty_out();
    rooms.for_each(save_and_discard);
    room_thread.scheduler().alive = None;
}

#[cfg(test)]
mod tests;
