//! A room thread: takes what is due from its deck, runs it, puts it back, and sleeps until the next tick.

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
    ThreadDoor,
    deck::Deck,
    heap,
    job::{Job, discard},
    shared::Shared,
    system::{self, Granted, ThreadId},
};

/// A place for a room thread: everything that its successor would need.
pub(super) struct Seat {
    pub(super) index: u16,
    pub(super) shared: Arc<Shared>,
    pub(super) door: Arc<ThreadDoor>,
    deck: Mutex<Deck>,
    /// When what the thread is at will have taken too long; never, while it is at nothing.
    pub(super) stuck_at_ns: AtomicU64,
    /// Who sits there.
    pub(super) worker: Mutex<Option<Worker>>,
    /// Somebody failed since the watchdog last looked.
    pub(super) has_news: AtomicBool,
}

/// A thread that works.
#[derive(Clone, Copy, Debug)]
pub(super) struct Worker {
    pub(super) thread: ThreadId,
    /// Told when the thread is stopped for taking too much memory.
    pub(super) stopped: &'static AtomicBool,
    pub(super) granted: Granted,
}

/// A thread that waits for a tick looks for messages after this time at the latest: somebody may want a new room.
const NAP_MAX: Duration = Duration::from_millis(20);

/// What was sent to shards is announced after this time, whatever there is to do; later only if a job takes longer than
/// expected, and then by the watchdog.
const UNANNOUNCED_NS_MAX: u64 = 500_000;

impl Seat {
    pub(super) fn new(index: u16, shared: Arc<Shared>, door: Arc<ThreadDoor>, deck: Deck) -> Self {
        Self {
            index,
            shared,
            door,
            deck: Mutex::new(deck),
            stuck_at_ns: AtomicU64::new(u64::MAX),
            worker: Mutex::new(None),
            has_news: AtomicBool::new(false),
        }
    }

    /// The deck. Nothing that is done with it runs a game's code, so it is whole whoever had it before.
    pub(super) fn deck(&self) -> MutexGuard<'_, Deck> {
        self.deck.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells shards of what was sent to them before the job that the thread is at: it may take longer than anybody thought.
    pub(super) fn announce_if_at_work(&self) {
        if self.stuck_at_ns.load(Ordering::Acquire) != u64::MAX {
            let now_ns = self.shared.now_ns();
            self.deck().announce(now_ns);
        }
    }

    /// What the kernel granted who sits there.
    pub(super) fn granted(&self) -> Granted {
        let worker = *self.worker.lock().unwrap_or_else(PoisonError::into_inner);
        worker.map_or(Granted::default(), |worker| worker.granted)
    }
}

/// Starts a thread for this seat, to work as number `crew`.
///
/// # Errors
/// The system's.
pub(super) fn spawn(seat: &Arc<Seat>, crew: u32) -> std::io::Result<()> {
    let seat = Arc::clone(seat);
    let name = format!("rooms-{}", seat.index);
    thread::Builder::new().name(name).spawn(move || live(&seat, crew)).map(drop)
}

/// A game's panics are caught where it is called. One that comes here is a mistake of the server's, which what a shard
/// makes of its own holds for.
fn live(seat: &Seat, crew: u32) {
    if catch_unwind(AssertUnwindSafe(|| work(seat, crew))).is_err() {
        eprintln!("dunlin: room thread {} panicked, see above; the process ends", seat.index);
        process::abort();
    }
}

fn work(seat: &Seat, crew: u32) {
    seat.door.attend();
    let granted = system::ask_for_punctuality();
    let worker = Worker { thread: system::this_thread(), stopped: heap::stopped_flag(), granted };
    *seat.worker.lock().unwrap_or_else(PoisonError::into_inner) = Some(worker);
    loop {
        match next(seat, crew) {
            Next::Run(job) => {
                let namespace = job.namespace;
                let finished = job.run();
                let mut deck = seat.deck();
                if deck.crew != crew {
                    drop(deck);
                    // Whatever comes of it now, its room is over.
                    discard_finished(finished);
                    seat.shared.regain_thread(namespace);
                    seat.deck().counters.came_back += 1;
                    return;
                }
                seat.stuck_at_ns.store(u64::MAX, Ordering::Release);
                deck.put_back(finished, &seat.shared, seat.shared.now_ns());
                if !deck.news.is_empty() {
                    seat.has_news.store(true, Ordering::Release);
                }
            }
            Next::Nap(time) => thread::park_timeout(time),
            Next::Sleep => {
                thread::park();
                seat.door.waiting.disarm();
            }
            Next::Replaced => return,
            Next::Stop => return end(seat),
        }
    }
}

/// What a thread does next.
enum Next {
    Run(Job),
    /// Wait for a tick.
    Nap(Duration),
    /// Wait for a message.
    Sleep,
    /// Somebody else has the deck.
    Replaced,
    Stop,
}

fn next(seat: &Seat, crew: u32) -> Next {
    let shared = &*seat.shared;
    let mut deck = seat.deck();
    if deck.crew != crew {
        return Next::Replaced;
    }
    if shared.is_stopping() {
        return Next::Stop;
    }
    let now_ns = shared.now_ns();
    deck.post.flush();
    deck.take_messages(shared, now_ns);
    deck.tell_load(now_ns);
    if let Some(job) = deck.next_job(shared, now_ns) {
        // Mostly once for all rooms of a time, since waking a shard costs more than the tick of a small room. But nobody's
        // news waits for a job that is known to be long, or for many short ones.
        if now_ns.saturating_sub(deck.announced_ns).saturating_add(job.expected_ns) > UNANNOUNCED_NS_MAX {
            deck.announce(now_ns);
        }
        let timeout_ns = job.settings.tick_stuck_timeout_ms.saturating_mul(1_000_000);
        seat.stuck_at_ns.store(now_ns.saturating_add(timeout_ns), Ordering::Release);
        return Next::Run(job);
    }
    deck.announce(now_ns);
    if let Some(due_ns) = deck.next_ns() {
        // The time that telling took is part of the wait.
        return Next::Nap(Duration::from_nanos(due_ns.saturating_sub(shared.now_ns())).min(NAP_MAX));
    }
    seat.door.waiting.arm();
    // To be looked for after the arming: what comes from here on rings. So does room for what waits.
    deck.post.flush();
    deck.post.announce();
    if deck.post.has_messages() || shared.is_stopping() {
        seat.door.waiting.disarm();
        return Next::Nap(Duration::ZERO);
    }
    Next::Sleep
}

fn discard_finished(finished: super::job::Finished) {
    // Unwinding out of a game's own dropping ends with this thread, which ends anyway.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(finished)));
}

fn end(seat: &Seat) {
    let rooms = seat.deck().empty_out();
    rooms.for_each(discard);
    seat.deck().alive = None;
}

#[cfg(test)]
mod tests;
