//! Paths of players. Room threads pass complete blocks to one thread, which compresses them and passes them to the
//! storage. A tick never waits for this thread. If its queue is full, a block is dropped and counted.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, SyncSender},
    },
    thread,
};

use dunlin_config::RoomSettings;
use dunlin_engine::host::{CompletedTick, Runner, Step};
use dunlin_queues::declared::PATH_BLOCKS;
use dunlin_rooms::{
    PlayerId, Room,
    paths::{FinishedBlock, PathTerms, PathTracker},
};
use dunlin_storage::{EntryBatch, PathCompressor, PathOwner, PathPlace};
use tokio::sync::mpsc;

use crate::node::NodeStorage;

/// Maximum number of blocks in one write.
const BATCH_BLOCKS_MAX: usize = 256;

/// Counts of blocks since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathCounts {
    /// Stored blocks.
    pub stored: u64,
    /// Points in the stored blocks.
    pub points: u64,
    /// Bytes of the stored values.
    pub stored_bytes: u64,
    /// Blocks that were dropped because the queue was full.
    pub queue_full: u64,
    /// Blocks that were dropped because the storage refused them or failed.
    pub storage_failed: u64,
}

#[derive(Debug, Default)]
struct PathCounters {
    stored: AtomicU64,
    points: AtomicU64,
    stored_bytes: AtomicU64,
    queue_full: AtomicU64,
    storage_failed: AtomicU64,
}

/// The queue of the thread that stores paths. The thread ends when all of these are dropped.
#[derive(Clone, Debug)]
pub(super) struct PathSink {
    queue: SyncSender<QueuedBlock>,
    counters: Arc<PathCounters>,
}

/// Reads the counts without keeping the thread alive.
#[derive(Clone, Debug, Default)]
pub(super) struct PathMeter(Arc<PathCounters>);

/// A block on its way to the storage.
struct QueuedBlock {
    channel: Arc<str>,
    retention_ms: u64,
    block: FinishedBlock,
}

/// Records the paths of one room. It moves with the room's runner. On drop it sends the remaining points.
pub(super) struct RoomPaths {
    tracker: PathTracker,
    channel: Arc<str>,
    retention_ms: u64,
    sink: PathSink,
}

impl PathSink {
    /// Starts the thread. `alive` is held until everything is passed to the storage.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(super) fn start(
        storage: Arc<NodeStorage>,
        blocks_max: usize,
        alive: mpsc::Sender<()>,
    ) -> io::Result<(Self, PathMeter)> {
        let (queue, blocks) = PATH_BLOCKS.with_messages(blocks_max).std_channel();
        let counters = Arc::new(PathCounters::default());
        let of_thread = Arc::clone(&counters);
        thread::Builder::new().name("room-paths".to_owned()).spawn(move || {
            store_all(&blocks, &storage, &of_thread);
            drop(alive);
        })?;
        Ok((Self { queue, counters: Arc::clone(&counters) }, PathMeter(counters)))
    }

    fn push(&self, block: QueuedBlock) {
        if self.queue.try_send(block).is_err() {
            self.counters.queue_full.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl PathMeter {
    pub(super) fn counts(&self) -> PathCounts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        PathCounts {
            stored: get(&self.0.stored),
            points: get(&self.0.points),
            stored_bytes: get(&self.0.stored_bytes),
            queue_full: get(&self.0.queue_full),
            storage_failed: get(&self.0.storage_failed),
        }
    }
}

impl RoomPaths {
    /// Begins the paths of a room, if its namespace stores paths. A restored room already has players.
    pub(super) fn start(
        channel: &Arc<str>,
        settings: &RoomSettings,
        sink: Option<&PathSink>,
        runner: &Runner,
    ) -> Option<Self> {
        let (paths, sink) = (settings.paths?, sink?.clone());
        let block_ticks = paths.block_ms.saturating_mul(u64::from(settings.room.ticks_per_second)) / 1_000;
        let block_ticks = u32::try_from(block_ticks).unwrap_or(u32::MAX);
        let mut tracker = PathTracker::new(PathTerms { interval_ticks: paths.interval_ticks, block_ticks });
        for (player, user) in runner.seat_users() {
            tracker.join(player, user);
        }
        Some(Self { tracker, channel: Arc::clone(channel), retention_ms: paths.retention_ms, sink })
    }

    /// Records the positions of the players after a tick with these steps.
    pub(super) fn end_tick(&mut self, steps: &[Step], done: &CompletedTick, room: &Room, time_us: u64) {
        for (player, user) in joined(steps, done) {
            self.tracker.join(player, user);
        }
        let Self { tracker, channel, retention_ms, sink } = self;
        let mut pass_on =
            |block| sink.push(QueuedBlock { channel: Arc::clone(channel), retention_ms: *retention_ms, block });
        tracker.observe(room, time_us / 1_000, &mut pass_on);
    }
}

impl Drop for RoomPaths {
    fn drop(&mut self) {
        let Self { tracker, channel, retention_ms, sink } = self;
        tracker.finish(&mut |block| {
            sink.push(QueuedBlock { channel: Arc::clone(channel), retention_ms: *retention_ms, block });
        });
    }
}

/// The players who joined in this tick, with their users.
fn joined<'a>(steps: &'a [Step], done: &'a CompletedTick) -> impl Iterator<Item = (PlayerId, &'a Arc<str>)> {
    let users = steps.iter().filter_map(|step| match step {
        Step::Join { info, .. } => Some(&info.user),
        _ => None,
    });
    done.joins().zip(users).filter_map(|((_, player), user)| Some((player?.player, user)))
}

fn store_all(blocks: &Receiver<QueuedBlock>, storage: &NodeStorage, counters: &Arc<PathCounters>) {
    let mut compressor = PathCompressor::default();
    while let Ok(first) = blocks.recv() {
        let mut batch = EntryBatch::new(false);
        let mut sum = PathCounts::default();
        let more = || blocks.try_recv().ok();
        for queued in std::iter::once(first).chain(std::iter::from_fn(more)).take(BATCH_BLOCKS_MAX) {
            let QueuedBlock { channel, retention_ms, block } = queued;
            let FinishedBlock { user, player, first_ms, points, bytes } = block;
            let owner = if user.is_empty() { PathOwner::Player(player.0) } else { PathOwner::User((&*user).into()) };
            let place = PathPlace { owner, first_ms, player: player.0 };
            let expires_ms = first_ms.saturating_add(retention_ms);
            let length = batch.put_block(&channel, &place, expires_ms, &bytes, &mut compressor);
            sum.stored += 1;
            sum.points += u64::from(points);
            sum.stored_bytes += length as u64;
        }
        let of_writer = Arc::clone(counters);
        let written = storage.storage().write_entries(
            batch,
            Box::new(move |outcome| match outcome {
                Ok(()) => note(&of_writer, sum),
                Err(_) => note(&of_writer, PathCounts { storage_failed: sum.stored, ..PathCounts::default() }),
            }),
        );
        if written.is_err() {
            note(counters, PathCounts { storage_failed: sum.stored, ..PathCounts::default() });
        }
    }
}

fn note(counters: &PathCounters, sum: PathCounts) {
    counters.stored.fetch_add(sum.stored, Ordering::Relaxed);
    counters.points.fetch_add(sum.points, Ordering::Relaxed);
    counters.stored_bytes.fetch_add(sum.stored_bytes, Ordering::Relaxed);
    counters.storage_failed.fetch_add(sum.storage_failed, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(number: u32) -> QueuedBlock {
        let block = FinishedBlock {
            user: Arc::from(""),
            player: PlayerId(number),
            first_ms: 0,
            points: 1,
            bytes: Box::default(),
        };
        QueuedBlock { channel: Arc::from("arena:1"), retention_ms: 1, block }
    }

    #[test]
    fn a_full_queue_drops_blocks_and_counts_them() {
        const BLOCKS_MAX: usize = 3;
        let (queue, blocks) = PATH_BLOCKS.with_messages(BLOCKS_MAX).std_channel();
        let sink = PathSink { queue, counters: Arc::default() };
        let dropped = || PathMeter(Arc::clone(&sink.counters)).counts().queue_full;
        (0..BLOCKS_MAX as u32).for_each(|number| sink.push(block(number)));
        assert_eq!(dropped(), 0, "they fit exactly");
        sink.push(block(9));
        assert_eq!(dropped(), 1, "one more does not");
        assert_eq!(blocks.recv().map(|queued| queued.block.player), Ok(PlayerId(0)));
        sink.push(block(10));
        assert_eq!(dropped(), 1, "there is room again");
        let waiting: Vec<u32> = blocks.try_iter().map(|queued| queued.block.player.0).collect();
        assert_eq!(waiting, [1, 2, 10]);
    }
}
