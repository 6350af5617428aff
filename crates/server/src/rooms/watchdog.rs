//! The watchdog: abandons a room whose game code does not return, so that it costs only its own room, and logs
//! failures.

use std::{
    sync::{Arc, PoisonError, atomic::Ordering},
    thread,
    time::Duration,
};

use super::{
    builder::{self, RoomBuilder},
    system,
    thread::{RoomThread, spawn},
};
use crate::telemetry::events;

/// Interval between two checks.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Starts the watchdog.
///
/// # Errors
/// The error of the operating system.
pub(super) fn start(room_threads: Vec<Arc<RoomThread>>, builder: Arc<RoomBuilder>) -> std::io::Result<thread::Thread> {
    let watchdog =
        thread::Builder::new().name("rooms-watch".to_owned()).spawn(move || watch(&room_threads, &builder))?;
    Ok(watchdog.thread().clone())
}

fn watch(room_threads: &[Arc<RoomThread>], builder: &Arc<RoomBuilder>) {
    // Room threads whose thread could not be replaced yet.
    let mut vacant = vec![false; room_threads.len()];
    let mut has_no_builder = false;
    loop {
        for (room_thread, vacant) in room_threads.iter().zip(&mut vacant) {
            room_thread.announce_if_at_work();
            *vacant |= give_up_stuck(room_thread);
            if *vacant {
                let generation = room_thread.scheduler().generation;
                match spawn(room_thread, generation) {
                    Ok(()) => *vacant = false,
                    Err(source) => events::RoomThreadMissing { thread: room_thread.index, source: &source }.emit(),
                }
            }
            report_changes(room_thread);
        }
        has_no_builder |= builder.give_up_stuck();
        if has_no_builder {
            match builder::spawn(builder, builder.generation()) {
                Ok(()) => has_no_builder = false,
                Err(source) => events::RoomBuilderMissing { source: &source }.emit(),
            }
        }
        if room_threads.iter().all(|room_thread| room_thread.shared.is_stopping()) {
            return;
        }
        thread::park_timeout(LOOK_INTERVAL);
    }
}

/// Takes the scheduler from a thread whose job takes too long. Returns whether it did.
fn give_up_stuck(room_thread: &RoomThread) -> bool {
    let worker = *room_thread.worker.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(worker) = worker else { return false };
    if !room_thread.is_stuck() {
        return false;
    }
    let mut scheduler = room_thread.scheduler();
    // Check again under the lock, because the job may have just ended.
    if !room_thread.is_stuck() {
        return false;
    }
    scheduler.abandon_running(&room_thread.shared);
    room_thread.stuck_at_ns.store(u64::MAX, Ordering::Release);
    *room_thread.worker.lock().unwrap_or_else(PoisonError::into_inner) = None;
    room_thread.has_failures.store(true, Ordering::Release);
    drop(scheduler);
    // An error means that the thread has ended in the meantime.
    let _ = system::make_idle(worker.thread);
    true
}

fn report_changes(room_thread: &RoomThread) {
    if !room_thread.has_failures.swap(false, Ordering::AcqRel) {
        return;
    }
    let failures: Vec<_> = room_thread.scheduler().failures.drain(..).collect();
    for failed in failures {
        events::RoomFailed {
            channel: &failed.channel,
            simulation: &failed.simulation,
            reason: failed.reason,
            detail: &failed.detail,
        }
        .emit();
    }
}
