//! Room threads: they tick the rooms of a node and keep the time.
//!
//! What is decided about a room is decided by `dunlin_engine::host`. Here are the threads, their rings to and from the
//! shards, when which room ticks, and what happens to a room whose game panics, does not come back, or takes too much
//! memory: a thread holds its *deck* only between the calls of games' code, so that another can take it over.

mod deck;
mod door;
mod heap;
mod job;
mod post;
mod recorder;
mod report;
mod schedule;
mod settings;
mod shared;
mod slot;
mod system;
mod thread;
mod watchdog;

use std::{
    io,
    sync::{Arc, atomic::Ordering},
    thread::Thread,
    time::Duration,
};

use tokio::sync::{Mutex, mpsc};

use deck::Deck;
use shared::Shared;
use thread::Seat;

use crate::node::Doorbell;

pub(crate) use door::ThreadDoor;
pub(crate) use post::RoomLinks;
pub use report::{FailureReason, RoomCounters, RoomReport, TICK_BOUNDS_US, ThreadReport, TickHistogram};
pub use settings::{RoomSettings, RoomsOptions};
pub use system::Granted;

/// The room threads of a node.
pub(crate) struct Rooms {
    shared: Arc<Shared>,
    seats: Vec<Arc<Seat>>,
    watchdog: Option<Thread>,
    /// Ends when all threads have ended.
    ended: Mutex<mpsc::Receiver<()>>,
}

/// How long the end of a node waits for games' code to come back.
const END_TIMEOUT: Duration = Duration::from_secs(1);

impl Rooms {
    /// Starts `thread_count` threads, connected with the shards behind `doorbells`. Gives what each shard needs.
    ///
    /// # Errors
    /// A thread could not be had. None is left behind.
    pub(crate) fn start(
        options: RoomsOptions,
        thread_count: u16,
        doorbells: &[Arc<Doorbell>],
        node_seed: u64,
    ) -> io::Result<(Self, Vec<RoomLinks>)> {
        let doors: Vec<Arc<ThreadDoor>> = (0..thread_count).map(|_| Arc::default()).collect();
        let (links, posts) = post::connect(doorbells, &doors, options.ring_messages.max(1));
        let shared = Arc::new(Shared::new(options, doorbells.len() as u16, node_seed));
        heap::spare_panic_hooks();
        let (alive, ended) = mpsc::channel(1);
        let seats: Vec<Arc<Seat>> = (0..)
            .zip(doors.into_iter().zip(posts))
            .map(|(index, (door, post))| {
                let deck = Deck::new(index, post, alive.clone());
                Arc::new(Seat::new(index, Arc::clone(&shared), door, deck))
            })
            .collect();
        let mut rooms = Self { shared, seats, watchdog: None, ended: Mutex::new(ended) };
        for seat in &rooms.seats {
            thread::spawn(seat, 0).inspect_err(|_| rooms.stop())?;
        }
        if thread_count > 0 {
            rooms.watchdog = Some(watchdog::start(rooms.seats.clone()).inspect_err(|_| rooms.stop())?);
        }
        Ok((rooms, links))
    }

    /// Tells all threads to end.
    pub(crate) fn stop(&self) {
        self.shared.stopping.store(true, Ordering::Release);
        self.seats.iter().for_each(|seat| seat.door.call());
        if let Some(watchdog) = &self.watchdog {
            watchdog.unpark();
        }
    }

    /// Waits until all threads have ended, or one is held up by a game.
    pub(crate) async fn ended(&self) {
        let _ = tokio::time::timeout(END_TIMEOUT, async { self.ended.lock().await.recv().await }).await;
    }

    /// What every thread counts.
    pub(crate) fn threads(&self) -> Vec<ThreadReport> {
        let report = |seat: &Arc<Seat>| {
            let granted = seat.granted();
            let deck = seat.deck();
            ThreadReport {
                thread: seat.index,
                granted,
                rooms: deck.room_count(),
                players: deck.player_count(),
                load_permille: deck.load.permille,
                counters: deck.counters.clone(),
            }
        };
        self.seats.iter().map(report).collect()
    }

    /// What there is to tell of every room, by its channel's name.
    pub(crate) fn rooms(&self) -> Vec<RoomReport> {
        let mut rooms: Vec<RoomReport> = self.seats.iter().flat_map(|seat| seat.deck().report()).collect();
        rooms.sort_unstable_by(|a, b| a.channel.cmp(&b.channel));
        rooms
    }
}

#[cfg(test)]
mod tests;
