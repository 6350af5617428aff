//! Room threads: run the ticks of a node's rooms on time.
//!
//! `dunlin_engine::host` makes the decisions about a room. This module adds the threads, their rings from and to the
//! shards, the schedule of ticks, and the handling of rooms whose game panics, does not return, or uses too much
//! memory. A thread holds the lock of its *scheduler* only while no game code runs, so that another thread can replace
//! it.

mod builder;
mod calls;
mod checkpoints_and_steps;
mod clock;
mod first_rooms;
mod held_ticks;
mod job;
mod links;
mod paths;
mod record_retention;
mod recorder;
mod relay_thread;
mod report;
mod restore;
mod scheduled_room;
mod scheduler;
mod shared;
mod survival;
mod system;
mod thread;
mod thread_waker;
mod tick_schedule;
mod watchdog;

use std::{
    collections::BTreeSet,
    io,
    ops::Bound,
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
    thread::Thread,
    time::Duration,
};

use dunlin_cluster::node_frames::NodeFramesOptions;
use dunlin_config::{RoomSurvival, RoomsOptions};
use dunlin_queues::{
    declared::{MADE_ROOMS, ROOM_RING, ROOM_TASKS},
    end_channel,
};
use dunlin_relay::RelayCounters;
use tokio::sync::{Mutex, mpsc};

use builder::{RoomBuilder, Task, ToThread};
use calls::CallLink;
use paths::{PathMeter, PathSink};
use record_retention::Recordings;
use relay_thread::{RelayHandle, RelayRings};
use scheduler::Scheduler;
use shared::Shared;
use survival::KeptRooms;
use thread::RoomThread;

use crate::{
    backend::ProxyClient,
    node::{NodeCluster, NodeStorage, ShardWaker},
    otlp::Tracer,
};

pub(crate) use links::RoomLinks;
pub use paths::PathCounts;
pub(crate) use record_retention::hold as hold_recording;
pub use record_retention::{CutReason, Deletion, RecordingReport};
#[cfg(test)]
pub(crate) use recorder::EXTENSION as RECORDING_EXTENSION;
pub(crate) use recorder::{name_of_files as name_of_recordings, parts_of_file as parts_of_recording};
pub use report::{
    BuilderReport, FailureReason, FineHistogram, RoomCounters, RoomReport, TICK_BOUNDS_US, ThreadReport, TickHistogram,
};
pub use survival::SurvivalReport;
pub use system::Granted;
pub(crate) use thread_waker::ThreadWaker;

/// The room threads of a node.
pub(crate) struct Rooms {
    shared: Arc<Shared>,
    room_threads: Vec<Arc<RoomThread>>,
    builder: Arc<RoomBuilder>,
    tasks: std::sync::mpsc::Sender<Task>,
    watchdog: Option<Thread>,
    /// Deletes old recordings; `None` if no rooms are recorded.
    recordings: Option<Thread>,
    /// In a cluster.
    relay: Option<RelayHandle>,
    paths: PathMeter,
    /// Disconnected when all threads have ended.
    ended: Mutex<mpsc::Receiver<()>>,
}

/// Maximum time that the shutdown waits for game code to return.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// The same, if rooms are saved.
pub(crate) const SAVE_TIMEOUT: Duration = Duration::from_secs(10);

/// What rooms use of their node.
pub(crate) struct RoomsOfNode<'a> {
    pub(crate) node_seed: u64,
    /// The connection to other nodes of a cluster.
    pub(crate) frames: Option<NodeFramesOptions>,
    pub(crate) storage: Option<Arc<NodeStorage>>,
    /// Its cluster, where rooms are stored if there is one.
    pub(crate) cluster: Option<&'a Arc<NodeCluster>>,
    pub(crate) backends: &'a Arc<dyn ProxyClient>,
    /// Traces the creation of rooms.
    pub(crate) tracer: Option<Arc<Tracer>>,
}

impl<'a> RoomsOfNode<'a> {
    pub(crate) fn new(
        (node_seed, storage): (u64, Option<Arc<NodeStorage>>),
        cluster: Option<&'a Arc<NodeCluster>>,
        backends: &'a Arc<dyn ProxyClient>,
        tracer: Option<&Arc<Tracer>>,
    ) -> Self {
        let frames = cluster.map(|cluster| cluster.frames().clone());
        Self { node_seed, frames, storage, cluster, backends, tracer: tracer.cloned() }
    }
}

impl Rooms {
    /// Starts `thread_count` threads and connects them with the shards of these wakers. Returns each shard's ends of
    /// the rings.
    ///
    /// # Errors
    /// A thread could not be started. All others have ended.
    pub(crate) fn start(
        options: RoomsOptions,
        thread_count: u16,
        shard_wakers: &[Arc<ShardWaker>],
        of_node: RoomsOfNode<'_>,
    ) -> io::Result<(Self, Vec<RoomLinks>)> {
        let RoomsOfNode { node_seed, frames, storage, cluster, backends, tracer } = of_node;
        let mut wakers: Vec<Arc<ThreadWaker>> = (0..thread_count).map(|_| Arc::default()).collect();
        let frames = frames.filter(|_| thread_count > 0);
        // For the shards, the relay is one more room thread.
        wakers.extend(frames.iter().map(|_| Arc::default()));
        let ring_messages = options.ring_messages;
        let (links, mut outgoing) = links::connect(shard_wakers, &wakers, &ROOM_RING.with_messages(ring_messages));
        let relay_rings = frames.is_some().then(|| {
            let (waker, shards) = (wakers.pop(), outgoing.pop());
            let (waker, shards) = (waker.expect("added above"), shards.expect("connected above"));
            let threads = outgoing.iter_mut().zip(&wakers);
            let threads = links::connect_relay(threads, &waker, &ROOM_RING.with_messages(ring_messages));
            RelayRings { shards, threads, waker }
        });
        let keeps = options.namespaces.iter().flatten().any(|settings| settings.survival != RoomSurvival::None);
        let kept = match cluster.filter(|_| keeps && thread_count > 0) {
            Some(cluster) => Some(KeptRooms::in_cluster(cluster)),
            None => storage.clone().map(|storage| Arc::new(KeptRooms::on_disk(storage))),
        };
        let mut shared = Shared::new(options, shard_wakers.len() as u16, node_seed, kept);
        shared.tracer = tracer;
        let shared = Arc::new(shared);
        let (alive, ended) = end_channel();
        let stores_paths = shared.options.namespaces.iter().flatten().any(|settings| settings.paths.is_some());
        let paths = match storage.filter(|_| stores_paths && thread_count > 0) {
            Some(storage) => Some(PathSink::start(storage, shared.options.path_blocks_max, alive.clone())?),
            None => None,
        };
        let (sink, meter) = paths.unzip();
        // `room.opening_limit` bounds the rooms that are being created, and a room ends once.
        let (tasks, waiting_tasks) = ROOM_TASKS.admitted_std_channel();
        let mut to_threads = Vec::with_capacity(wakers.len());
        let room_threads: Vec<Arc<RoomThread>> = (0..)
            .zip(wakers.into_iter().zip(outgoing))
            .map(|(index, (waker, links))| {
                let (made, made_rooms) = MADE_ROOMS.admitted_std_channel();
                to_threads.push(ToThread { made, waker: Arc::clone(&waker) });
                let calls = CallLink::new(Arc::clone(backends), Arc::clone(&waker));
                let scheduler = Scheduler::new(index, links, calls, (tasks.clone(), made_rooms), alive.clone());
                Arc::new(RoomThread::new(index, Arc::clone(&shared), waker, scheduler))
            })
            .collect();
        let alive_relay = alive.clone();
        let alive = Some(alive).filter(|_| thread_count > 0);
        let builder = Arc::new(RoomBuilder::new(Arc::clone(&shared), waiting_tasks, to_threads, alive, sink));
        let mut rooms = Self {
            shared,
            room_threads,
            builder,
            tasks,
            watchdog: None,
            recordings: None,
            relay: None,
            paths: meter.unwrap_or_default(),
            ended: Mutex::new(ended),
        };
        for room_thread in &rooms.room_threads {
            thread::spawn(room_thread, 0).inspect_err(|_| rooms.stop())?;
        }
        if thread_count > 0 {
            builder::spawn(&rooms.builder, 0).inspect_err(|_| rooms.stop())?;
            let watchdog = watchdog::start(rooms.room_threads.clone(), Arc::clone(&rooms.builder));
            rooms.watchdog = Some(watchdog.inspect_err(|_| rooms.stop())?);
            rooms.recordings = Recordings::start(&rooms.shared).inspect_err(|_| rooms.stop())?;
        }
        if let Some((rings, frames)) = relay_rings.zip(frames) {
            // Tests of a single node have frames without a cluster.
            let gone = cluster.map(|cluster| Arc::clone(cluster.gone_nodes())).unwrap_or_default();
            let relay = relay_thread::start(rings, frames, (Arc::clone(&rooms.shared), gone), alive_relay);
            rooms.relay = Some(relay.inspect_err(|_| rooms.stop())?);
        }
        Ok((rooms, links))
    }

    /// Begins the shutdown: players stay in stored rooms without their clients.
    pub(crate) fn begin_drain(&self) {
        self.shared.draining.store(true, Ordering::Release);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.shared.is_draining()
    }

    /// The stored rooms; `None` without a storage.
    pub(crate) fn kept(&self) -> Option<Arc<KeptRooms>> {
        self.shared.kept.clone()
    }

    /// The counters of stored rooms; `None` without a storage.
    pub(crate) fn survival(&self) -> Option<SurvivalReport> {
        self.shared.kept.as_ref().map(|kept| kept.report())
    }

    /// Makes all threads end.
    pub(crate) fn stop(&self) {
        self.shared.stopping.store(true, Ordering::Release);
        self.room_threads.iter().for_each(|room_thread| room_thread.waker.call());
        if let Some(relay) = &self.relay {
            relay.waker.call();
        }
        // The builder may have ended already.
        let _ = self.tasks.send(Task::Stop);
        for thread in self.watchdog.iter().chain(&self.recordings) {
            thread.unpark();
        }
    }

    /// Waits until all threads have ended, or the timeout has passed.
    pub(crate) async fn ended(&self) {
        let timeout = if self.shared.kept.is_some() { SAVE_TIMEOUT } else { END_TIMEOUT };
        let _ = tokio::time::timeout(timeout, async { self.ended.lock().await.recv().await }).await;
    }

    pub(crate) fn threads(&self) -> Vec<ThreadReport> {
        let report = |room_thread: &Arc<RoomThread>| {
            let granted = room_thread.granted();
            let scheduler = room_thread.scheduler();
            let (players, spectators) = scheduler.audience();
            ThreadReport {
                thread: room_thread.index,
                granted,
                rooms: scheduler.room_count(),
                opening: scheduler.opening_count(),
                players,
                spectators,
                load_permille: scheduler.load.permille,
                counters: scheduler.counters.clone(),
            }
        };
        self.room_threads.iter().map(report).collect()
    }

    /// The counters of the relay; `None` outside a cluster.
    pub(crate) fn relay(&self) -> Option<RelayCounters> {
        self.relay.as_ref().map(RelayHandle::counters)
    }

    /// The report of the room builder.
    pub(crate) fn builder(&self) -> BuilderReport {
        self.builder.report()
    }

    /// Counts of stored paths.
    pub(crate) fn path_counts(&self) -> PathCounts {
        self.paths.counts()
    }

    /// Counts of recordings.
    pub(crate) fn recordings(&self) -> RecordingReport {
        self.shared.recordings.report()
    }

    /// The directories in which rooms are recorded.
    pub(crate) fn record_directories(&self) -> BTreeSet<PathBuf> {
        self.shared.recordings.paths()
    }

    /// Maximum duration of a block of a path, if the rooms of a namespace store paths.
    pub(crate) fn path_block_ms(&self, namespace: u16) -> Option<u64> {
        let settings = self.shared.options.namespaces.get(usize::from(namespace));
        Some(settings?.as_ref()?.paths?.block_ms)
    }

    /// Whether a namespace has rooms.
    pub(crate) fn has_rooms(&self, namespace: u16) -> bool {
        self.shared.options.namespaces.get(usize::from(namespace)).is_some_and(Option::is_some)
    }

    /// The memory of all rooms in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.shared.memory_bytes()
    }

    /// The number of players with a client in the room of a channel.
    pub(crate) fn players_of(&self, channel: &str) -> Option<u32> {
        self.room_threads.iter().find_map(|room_thread| room_thread.scheduler().players_of(channel))
    }

    /// The report of the room of a channel.
    pub(crate) fn room_of(&self, channel: &str) -> Option<RoomReport> {
        self.room_threads.iter().find_map(|room_thread| room_thread.scheduler().report_of(channel))
    }

    /// The reports of at most `count` rooms from this channel on, sorted by channel.
    pub(crate) fn rooms_from(&self, from: Bound<&str>, count: usize) -> Vec<RoomReport> {
        let of_threads = self.room_threads.iter();
        let mut rooms: Vec<RoomReport> =
            of_threads.flat_map(|room_thread| room_thread.scheduler().report_from(from, count)).collect();
        rooms.sort_unstable_by(|a, b| a.channel.cmp(&b.channel));
        rooms.truncate(count);
        rooms
    }

    /// The reports of all rooms, sorted by channel.
    pub(crate) fn rooms(&self) -> Vec<RoomReport> {
        let mut rooms: Vec<RoomReport> =
            self.room_threads.iter().flat_map(|room_thread| room_thread.scheduler().report()).collect();
        rooms.sort_unstable_by(|a, b| a.channel.cmp(&b.channel));
        rooms
    }
}

#[cfg(test)]
mod tests;
