//! The thread of a cluster: the protocol and its connections on one runtime, besides the shards.
//!
//! Shards queue requests without blocking. Publications and loads beyond the limit are refused. Follows and unfollows
//! are never refused, because the shard and the protocol would otherwise disagree about a channel. The events of the
//! protocol for shards are passed to [`ClusterHost`] on this thread.

mod deliveries;
pub(crate) mod preparation;

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
        mpsc::SyncSender,
    },
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use dunlin_engine::{
    Now,
    event::ShardEvents,
    log::{LogBusy, LogError},
};
use dunlin_queues::{AdmittedReceiver, AdmittedSender, answer_channel, declared::CLUSTER_REQUESTS};
use tokio::time::{sleep_until, timeout};

use crate::{
    core::{
        BroadcastDrop, BroadcastNamespace, Core, CoreCounters, CoreEffect, CoreEvent, CoreLimits, StreamChange,
        UnusableStream,
        peers::{LiveNodes, PeerEffect, PeerEvent},
        room_logs::RoomLogEffect,
    },
    links::{ConnectFaults, LinkOptions, Links},
    streams::{StreamDifference, StreamFault},
};

use deliveries::Deliveries;
use preparation::{HEADER_BYTES, Prepared, prepare};

/// Maximum number of requests and events handled before effects are performed.
const EVENTS_PER_TURN: usize = 256;
/// Timeout for the last messages of a node that stops.
const STOP_TIMEOUT: Duration = Duration::from_millis(500);

/// A namespace whose channels are ordered by the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterNamespace {
    /// The namespace's name; empty for channels outside all namespaces.
    pub name: Box<str>,
    /// `history_size`.
    pub history_size: usize,
    /// `history_ttl`.
    pub history_ttl_ms: u64,
    /// `history_meta_ttl`.
    pub meta_ttl_ms: u64,
    /// `history_memory_limit` of the namespace; `usize::MAX` for none.
    pub history_bytes_max: usize,
}

/// The cluster options of a node.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// The connections.
    pub links: LinkOptions,
    /// The prefix of all names in NATS.
    pub prefix: Box<str>,
    /// The id of this run of this node; no two runs have the same one.
    pub node: Box<str>,
    /// By the number of the namespace: 0 for channels outside all namespaces, then in the order of the options.
    pub namespaces: Vec<Option<ClusterNamespace>>,
    /// By the same number; `None` for namespaces whose channels are not shared.
    pub broadcasts: Vec<Option<BroadcastNamespace>>,
    /// Whether the logs of rooms are kept in the cluster.
    pub keeps_rooms: bool,
    /// The number of replicas of streams that this node creates.
    pub replicas: u16,
    /// Whether streams that this node creates are stored only in the servers' memory.
    pub is_in_memory: bool,
    /// The number of partitions of namespaces whose streams this node creates.
    pub partitions: u16,
    /// The duplicate window of streams that this node creates.
    pub duplicate_window_ms: u64,
    /// Maximum size of a publication.
    pub publication_bytes_max: usize,
    /// Limits and times of the protocol.
    pub limits: CoreLimits,
    /// How long servers may be unreachable or without a leader at the start.
    pub start_timeout: Duration,
    /// Maximum number of publications and loads of all shards that wait for the thread.
    pub requests_max: usize,
    /// Maximum bytes of these, with those of broadcasts.
    pub requests_bytes_max: usize,
}

/// The node of a cluster's thread. It is called on this thread, so an implementation must pass everything on and return.
pub trait ClusterHost: ShardEvents {
    /// The number of shards.
    fn shard_count(&self) -> u16;
    /// An effect about other nodes.
    fn peers(&self, effect: PeerEffect);
    /// An answer about a room's log.
    fn room_log(&self, effect: RoomLogEffect);
    /// A stream has become unusable or usable, or was created again.
    fn stream_changed(&self, stream: &str, change: &StreamChange);
    /// [`ClusterState::is_ready`] has changed. It is false initially.
    fn readiness_changed(&self, is_ready: bool);
}

/// Why a node cannot join the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterFault {
    /// No server accepts a connection.
    Connect(ConnectFaults),
    /// A stream differs from its required configuration, or cannot be created.
    Stream(StreamFault),
    /// The servers' maximum message size is smaller than the node's publications.
    MaxPayload {
        /// `max_payload` of the server.
        there: usize,
        /// The required size.
        wanted: usize,
    },
    /// The thread could not be started.
    Thread {
        /// The text of the operating system.
        why: String,
    },
}

impl fmt::Display for ClusterFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(faults) => write!(f, "{faults}; see `broker.nats.url` and `broker.nats.tls`"),
            Self::Stream(fault) => fault.fmt(f),
            Self::MaxPayload { there, wanted } => write!(
                f,
                "the NATS servers take messages of {there} bytes, and publications with their headers have up to {wanted}: \
                 raise `max_payload` there, or lower `client.queue_max_size`"
            ),
            Self::Thread { why } => write!(f, "the thread of the cluster cannot be started: {why}"),
        }
    }
}

impl std::error::Error for ClusterFault {}

/// The state of a cluster's thread, for metrics and `/health`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterState {
    /// The counters of the protocol.
    pub counters: CoreCounters,
    /// Whether all connections are up and all streams are usable.
    pub is_ready: bool,
    /// The streams that this node cannot use, and why.
    pub unusable_streams: Vec<UnusableStream>,
    /// The number of requests that wait for the thread.
    pub requests_queued: usize,
    /// Publications and loads that were refused because the queue was full.
    pub requests_refused: usize,
    /// The number of effects that wait for the connections.
    pub effects_waiting: usize,
    /// The live nodes, including this one, by id. Empty before [`PeerEvent::Announce`].
    pub nodes: LiveNodes,
}

/// A running cluster thread. Dropping it ends the thread as [`ClusterThread::stop`] does.
#[derive(Debug)]
pub struct ClusterThread {
    requests: AdmittedSender<CoreEvent>,
    shared: Arc<SharedState>,
    limits: RequestLimits,
    /// Maximum message size of the servers at the start.
    payload_bytes_max: usize,
    thread: Mutex<Option<thread::JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct SharedState {
    queued: AtomicUsize,
    queued_bytes: AtomicUsize,
    refused: AtomicUsize,
    broadcasts_refused: AtomicUsize,
    counts_refused: AtomicUsize,
    state: Mutex<ClusterState>,
}

impl ClusterThread {
    /// Connects, creates and checks the streams, and starts the thread. Returns when the streams exist, with the
    /// tolerable differences.
    ///
    /// # Errors
    /// See [`ClusterFault`].
    pub fn start(
        options: ClusterOptions,
        host: Arc<dyn ClusterHost>,
    ) -> Result<(Self, Vec<StreamDifference>), ClusterFault> {
        let queue = CLUSTER_REQUESTS.with_messages(options.requests_max).with_bytes(options.requests_bytes_max);
        let (requests, receiver) = queue.admitted_channel();
        let shared = Arc::new(SharedState::default());
        let (prepared, outcome) = answer_channel();
        let limits = RequestLimits { requests_max: queue.messages.max, bytes_max: queue.bytes_max() };
        let of_thread = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("cluster".to_owned())
            .spawn(move || live(&options, receiver, &of_thread, host, &prepared))
            .map_err(|error| ClusterFault::Thread { why: error.to_string() })?;
        let (differences, payload_bytes_max) =
            outcome.recv().unwrap_or_else(|_| Err(ClusterFault::Thread { why: "it has ended".to_owned() }))?;
        let thread = Mutex::new(Some(thread));
        Ok((Self { requests, shared, limits, payload_bytes_max, thread }, differences))
    }

    /// Queues a publication or a load.
    ///
    /// # Errors
    /// If the queue is full, or the thread has ended.
    pub fn request(&self, request: CoreEvent) -> Result<(), LogError> {
        if !self.limits.fits(self.shared.queued(), request.bytes()) {
            self.shared.refused.fetch_add(1, Ordering::Relaxed);
            return Err(LogError::Busy(LogBusy::ClusterRequests));
        }
        self.send(request)
    }

    /// Queues a broadcast. It is dropped and counted if the queue is half full: the other half is reserved for requests
    /// that must not be lost.
    pub fn broadcast(&self, request: CoreEvent) {
        if self.limits.of_broadcasts().fits(self.shared.queued(), request.bytes()) {
            // A thread that has ended sends nothing, because the node is stopping.
            let _ = self.send(request);
        } else {
            self.shared.broadcasts_refused.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Maximum size of a broadcast that the servers accept, without the headers of NATS.
    pub fn broadcast_bytes_max(&self) -> usize {
        self.payload_bytes_max.saturating_sub(2 * HEADER_BYTES)
    }

    /// Queues a request that must not be refused.
    ///
    /// # Errors
    /// If the thread has ended.
    pub fn send(&self, request: CoreEvent) -> Result<(), LogError> {
        self.shared.queued.fetch_add(1, Ordering::Relaxed);
        self.shared.queued_bytes.fetch_add(request.bytes(), Ordering::Relaxed);
        self.requests.send(request).map_err(|_| LogError::Unavailable)
    }

    /// Ends the thread, after this node has sent its last heartbeat. Waits at most two seconds for the release of its
    /// lease, and half a second for the connections.
    pub fn stop(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = self.send(CoreEvent::Peers(PeerEvent::Depart));
            // A panic was reported by the thread itself.
            let _ = thread.join();
        }
    }

    /// The state of the thread.
    pub fn state(&self) -> ClusterState {
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let broadcasts_refused = self.shared.broadcasts_refused.load(Ordering::Relaxed) as u64;
        state.counters.broadcasts_dropped[BroadcastDrop::QueueFull as usize] = broadcasts_refused;
        state.counters.peers.users_uncounted += self.shared.counts_refused.load(Ordering::Relaxed) as u64;
        ClusterState {
            requests_queued: self.shared.queued.load(Ordering::Relaxed),
            requests_refused: self.shared.refused.load(Ordering::Relaxed),
            ..state
        }
    }
}

impl Drop for ClusterThread {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The number and the bytes of queued requests.
#[derive(Clone, Copy, Debug)]
struct QueuedRequests {
    requests: usize,
    bytes: usize,
}

#[derive(Clone, Copy, Debug)]
struct RequestLimits {
    requests_max: usize,
    bytes_max: usize,
}

impl RequestLimits {
    /// Whether a request with this number of bytes may be queued.
    const fn fits(self, queued: QueuedRequests, bytes: usize) -> bool {
        queued.requests < self.requests_max && queued.bytes + bytes <= self.bytes_max
    }

    /// The other half is reserved for requests that must not be lost.
    const fn of_broadcasts(self) -> Self {
        Self { requests_max: self.requests_max.div_ceil(2), bytes_max: self.bytes_max.div_ceil(2) }
    }
}

impl SharedState {
    fn queued(&self) -> QueuedRequests {
        let get = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
        QueuedRequests { requests: get(&self.queued), bytes: get(&self.queued_bytes) }
    }

    fn taken(&self, request: &CoreEvent) {
        self.queued.fetch_sub(1, Ordering::Relaxed);
        self.queued_bytes.fetch_sub(request.bytes(), Ordering::Relaxed);
    }
}

type Started = Result<(Vec<StreamDifference>, usize), ClusterFault>;

fn live(
    options: &ClusterOptions,
    requests: AdmittedReceiver<CoreEvent>,
    shared: &SharedState,
    host: Arc<dyn ClusterHost>,
    prepared: &SyncSender<Started>,
) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return drop(prepared.send(Err(ClusterFault::Thread { why: error.to_string() }))),
    };
    runtime.block_on(async {
        match prepare(options).await {
            Ok(Prepared { core, differences, payload_bytes_max }) => {
                if prepared.send(Ok((differences, payload_bytes_max))).is_ok() {
                    let links = Links::start(&options.links);
                    let started = Instant::now();
                    let deliveries = Deliveries::new(host, shared, options.limits.peers.users_max);
                    Running { core, links, requests, shared, deliveries, started, nodes_version: 0 }.run().await;
                }
            }
            Err(fault) => drop(prepared.send(Err(fault))),
        }
    });
    runtime.shutdown_background();
}

struct Running<'a> {
    core: Core,
    links: Links,
    requests: AdmittedReceiver<CoreEvent>,
    shared: &'a SharedState,
    deliveries: Deliveries<'a>,
    started: Instant,
    /// The version of the published table of nodes.
    nodes_version: u64,
}

impl Running<'_> {
    async fn run(mut self) {
        let mut effects = Vec::new();
        loop {
            let Some(event) = self.next().await else { return };
            let now = self.now();
            self.core.handle(now, event, &mut effects);
            for _ in 1..EVENTS_PER_TURN {
                let Some(event) = self.try_next() else { break };
                self.core.handle(now, event, &mut effects);
            }
            self.perform_all(&mut effects);
            self.publish_state();
            if self.core.has_departed() {
                let _ = timeout(STOP_TIMEOUT, self.links.close()).await;
                return;
            }
        }
    }

    /// The next request, event or deadline; `None` at the end.
    async fn next(&mut self) -> Option<CoreEvent> {
        let deadline = self.core.next_deadline_us().map(|due_us| self.started + Duration::from_micros(due_us));
        let is_ready = self.takes_requests();
        let expiry = async {
            match deadline {
                Some(deadline) => sleep_until(deadline.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            event = self.links.next() => event.map(CoreEvent::Link),
            () = expiry => Some(CoreEvent::Woke),
            request = self.requests.recv(), if is_ready => {
                request.inspect(|request| self.shared.taken(request))
            }
        }
    }

    /// An event that has already arrived. Those of the connections take precedence, so that their queues stay short.
    fn try_next(&mut self) -> Option<CoreEvent> {
        if let Some(event) = self.links.try_next() {
            return Some(CoreEvent::Link(event));
        }
        if !self.takes_requests() {
            return None;
        }
        let request = self.requests.try_recv().ok()?;
        self.shared.taken(&request);
        Some(request)
    }

    fn takes_requests(&self) -> bool {
        !self.links.is_full()
    }

    fn now(&self) -> Now {
        let mono_us = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now { mono_us, unix_ms: u64::try_from(unix.as_millis()).unwrap_or(u64::MAX) }
    }

    fn perform_all(&mut self, effects: &mut Vec<CoreEffect>) {
        while !effects.is_empty() {
            for effect in effects.drain(..) {
                self.perform(effect);
            }
            // No shard has delivered a later message of these channels, so their subscribers miss nothing unnoticed.
            for channel in self.deliveries.take_undelivered() {
                self.core.handle(self.now(), CoreEvent::Undelivered { channel }, effects);
            }
            if effects.is_empty() {
                self.deliveries.send_held();
            }
        }
        self.deliveries.send_counts();
    }

    fn perform(&mut self, effect: CoreEffect) {
        match effect {
            CoreEffect::Link(effect) => self.links.perform(effect),
            CoreEffect::ToShard { shard, event } => self.deliveries.send(shard, event),
            CoreEffect::StreamChanged { stream, change } => self.deliveries.host().stream_changed(&stream, &change),
            CoreEffect::Peers(PeerEffect::UserSessionsElsewhere { user, sessions }) => {
                self.deliveries.count(&user, sessions);
            }
            CoreEffect::Peers(effect) => self.deliveries.host().peers(effect),
            CoreEffect::RoomLog(effect) => self.deliveries.host().room_log(effect),
        }
    }

    fn publish_state(&mut self) {
        let is_ready = self.core.is_ready();
        let version = self.core.nodes_version();
        // Without a connection, nothing is known about them.
        let unusable_streams = if is_ready { Vec::new() } else { self.core.unusable_streams() };
        let has_other_nodes = std::mem::replace(&mut self.nodes_version, version) != version;
        let nodes = has_other_nodes.then(|| self.core.live_nodes().into());
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.counters = self.core.counters();
        state.effects_waiting = self.links.waiting();
        state.unusable_streams = unusable_streams;
        if let Some(nodes) = nodes {
            state.nodes = nodes;
        }
        let was_ready = std::mem::replace(&mut state.is_ready, is_ready);
        drop(state);
        if was_ready != is_ready {
            self.deliveries.host().readiness_changed(is_ready);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_queue_is_reserved_for_requests_that_must_not_be_lost() {
        let takes = |requests, bytes, requests_max, bytes_max| {
            RequestLimits { requests_max, bytes_max }.of_broadcasts().fits(QueuedRequests { requests, bytes: 0 }, bytes)
        };
        assert!(takes(7, 1, 16, 100) && !takes(8, 1, 16, 100));
        assert!(takes(0, 1, 1, 100) && !takes(1, 1, 1, 100));
        assert!(takes(0, 50, 16, 100) && !takes(0, 51, 16, 100));
    }

    #[test]
    fn requests_are_bounded_in_number_and_bytes() {
        let limits = RequestLimits { requests_max: 4, bytes_max: 1_000 };
        for (requests, bytes, of_next, fits) in
            [(3, 0, 1_000, true), (4, 0, 1, false), (0, 900, 100, true), (0, 900, 101, false)]
        {
            assert_eq!(limits.fits(QueuedRequests { requests, bytes }, of_next), fits, "{requests} {bytes} {of_next}");
        }
    }
}
