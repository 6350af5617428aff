//! The watchdog: sees to it that a game that does not come back costs its own room alone, and tells the log what failed.

use std::{
    sync::{Arc, PoisonError, atomic::Ordering},
    thread,
    time::Duration,
};

use super::{
    FailureReason, system,
    thread::{Seat, spawn},
};
use crate::telemetry::events;

/// Time between two looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Starts it.
///
/// # Errors
/// The system's.
pub(super) fn start(seats: Vec<Arc<Seat>>) -> std::io::Result<thread::Thread> {
    let watchdog = thread::Builder::new().name("rooms-watch".to_owned()).spawn(move || watch(&seats))?;
    Ok(watchdog.thread().clone())
}

fn watch(seats: &[Arc<Seat>]) {
    // Seats whose thread could not be replaced yet.
    let mut vacant = vec![false; seats.len()];
    loop {
        for (seat, vacant) in seats.iter().zip(&mut vacant) {
            seat.announce_if_at_work();
            *vacant |= give_up_stuck(seat);
            if *vacant {
                let crew = seat.deck().crew;
                match spawn(seat, crew) {
                    Ok(()) => *vacant = false,
                    Err(source) => events::RoomThreadMissing { thread: seat.index, source: &source }.emit(),
                }
            }
            tell_news(seat);
        }
        if seats.iter().all(|seat| seat.shared.is_stopping()) {
            return;
        }
        thread::park_timeout(LOOK_INTERVAL);
    }
}

/// Takes the deck from a thread that has been at one thing for too long. Whether it did.
fn give_up_stuck(seat: &Seat) -> bool {
    let worker = *seat.worker.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(worker) = worker else { return false };
    let is_stopped = || worker.stopped.load(Ordering::Acquire);
    let is_late = || seat.stuck_at_ns.load(Ordering::Acquire) <= seat.shared.now_ns();
    if !is_stopped() && !is_late() {
        return false;
    }
    let mut deck = seat.deck();
    // Only with the deck does it count: the thread may just have come back.
    let reason = if is_stopped() {
        FailureReason::Memory
    } else if is_late() {
        FailureReason::Stuck
    } else {
        return false;
    };
    deck.abandon_running(reason, &seat.shared);
    seat.stuck_at_ns.store(u64::MAX, Ordering::Release);
    *seat.worker.lock().unwrap_or_else(PoisonError::into_inner) = None;
    seat.has_news.store(true, Ordering::Release);
    drop(deck);
    // It may have come back in the meantime, and ended.
    let _ = system::make_idle(worker.thread);
    true
}

fn tell_news(seat: &Seat) {
    if !seat.has_news.swap(false, Ordering::AcqRel) {
        return;
    }
    let news: Vec<_> = seat.deck().news.drain(..).collect();
    for failed in news {
        events::RoomFailed {
            channel: &failed.channel,
            simulation: &failed.simulation,
            reason: failed.reason,
            detail: &failed.detail,
        }
        .emit();
    }
}
