//! The shard threads, and the handle with which the control thread sends them requests.

mod admission;
mod busy_window;
mod clients;
mod clock;
mod cluster;
mod deadlines;
mod drain;
mod engine;
mod event_queue;
mod inbox;
mod options;
mod peers;
mod placement;
mod port_holder;
mod recent_retransmissions;
mod report;
mod rings;
mod secure;
mod services;
mod shard_thread;
mod shard_waker;
mod sockets;
mod start;
mod storage;

use std::{
    collections::BTreeSet,
    fmt,
    net::{IpAddr, SocketAddr, TcpStream},
    ops::Bound,
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use dunlin_config::RoomsOptions;
use dunlin_engine::api::{ApiRequest, ApiResult};
use dunlin_engine::insight::SessionsQuery;
use dunlin_engine::{NamespaceNames, ShardIndex, Wire};
use dunlin_net::{NoReactor, OriginCheck, PickedHeaders, ReactorChoice, Refused, TlsSession};
use dunlin_protocol::ErrorCode;
use dunlin_queues::declared::SHARD_INBOX;
use dunlin_token::VerifyTokens;
use futures_util::future::join_all;
use tokio::sync::{Semaphore, SemaphorePermit, mpsc, oneshot};

use inbox::{ReportRequest, ToShard};
use shard_thread::Shared;

use crate::{
    access_sync::AccessKeeper,
    backend::ProxyClient,
    otlp::Tracer,
    rooms::{BuilderReport, PathCounts, RecordingReport, RoomReport, Rooms, SurvivalReport, ThreadReport},
    webhooks::Webhooks,
};

pub(crate) use shard_waker::ShardWaker;

pub use admission::{Admitted, SourceNetwork};
pub use cluster::{ClusterInbox, NodeCluster, NodeQuery};
pub(crate) use cluster::{GoneNodes, RoomLogReceiver};
pub use drain::DrainPlan;
pub use event_queue::ShardQueues;
pub use options::NodeNetOptions;
pub use report::{
    NetCounters, NodeSessions, NodeSurvey, RecentSegments, SessionSocket, ShardReport, ShardSessions, TurnShares,
};
pub use storage::{NodeStorage, StorageEnd};

/// A connection on its way to the control thread, because its first request is not for a client path.
#[derive(Debug)]
pub struct HandOver {
    /// The socket, in non-blocking mode.
    pub stream: TcpStream,
    /// The peer's address.
    pub peer: SocketAddr,
    /// All bytes read so far: the request's head, and any bytes after it.
    pub head: Vec<u8>,
    /// The TLS state, if the connection uses TLS.
    pub tls: Option<Box<TlsSession>>,
}

/// The logs of a node's channels, and the queues in which they answer the shards.
#[derive(Clone)]
pub struct NodeLogs {
    /// The queues of all shards.
    pub queues: Arc<ShardQueues>,
    /// Stores durable channels; `None` if there are none.
    pub storage: Option<Arc<NodeStorage>>,
    /// Orders channels that several nodes share; `None` without a cluster.
    pub cluster: Option<Arc<NodeCluster>>,
}

/// The parts of a node.
pub struct NodeStart {
    /// Options of threads and sockets.
    pub net: NodeNetOptions,
    /// Options of sessions and channels.
    pub engine: Arc<dunlin_engine::Options>,
    /// Options of rooms. The engine's options contain the number of room threads.
    pub rooms: RoomsOptions,
    /// Verifies tokens.
    pub tokens: Arc<dyn VerifyTokens>,
    /// Sends requests to backends.
    pub backends: Arc<dyn ProxyClient>,
    /// Sends events to the application's backend; `None` if it wants none.
    pub webhooks: Option<Arc<Webhooks>>,
    /// Traces the creation of rooms, and recoveries; `None` if they are not traced.
    pub tracer: Option<Arc<Tracer>>,
    /// The logs of channels.
    pub logs: NodeLogs,
    /// Checks origins.
    pub origins: OriginCheck,
    /// Takes each connection that does not become a WebSocket. Bounded: when it is full, the connection receives 503.
    pub hand_over: mpsc::Sender<HandOver>,
}

/// Why a node could not be started.
#[derive(Debug)]
pub enum StartError {
    /// The listener could not be created.
    Listen {
        /// Where it should listen.
        address: SocketAddr,
        /// What chooses another port, in the words of its user.
        setting: &'static str,
        /// The process that has the port, if that is why and it is known.
        holder: Option<String>,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A reactor, a thread or a file could not be created.
    Resource {
        /// The missing resource, for the error message.
        what: &'static str,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// No reactor is available.
    Reactor(NoReactor),
    /// The operating system returned no random bytes.
    Random,
}

/// Limits on new sessions that can change at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveAdmission {
    /// Maximum number of sessions of the node; 0 for no limit. Existing sessions above it stay.
    pub sessions_max: u32,
    /// Handshakes per second and node; 0 for no limit.
    pub handshakes_per_second: u32,
}

/// Why a request to a node failed.
#[derive(Debug)]
pub enum NodeError {
    /// Its threads have ended.
    Stopped,
    /// The stream to adopt is unusable.
    Stream(std::io::Error),
}

/// The result of a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// Every session received its last frames and was closed.
    Complete,
    /// The deadline passed first.
    Late {
        /// Number of sessions that were cut off.
        sessions: u32,
    },
}

/// A connection whose request the control thread has read, and which becomes a session.
#[derive(Debug)]
pub struct Adoption {
    /// The session's transport and encoding.
    pub wire: Wire,
    /// Whether its client may send compressed messages.
    pub inflates: bool,
    /// The bytes to write first.
    pub response: Vec<u8>,
    /// The session's connect request, from the body of its HTTP request.
    pub request: Option<Vec<u8>>,
    /// Bytes that were read after the request.
    pub read: Vec<u8>,
    /// Header fields that are forwarded to backends.
    pub headers: Option<PickedHeaders>,
    /// The TLS state, if the connection uses TLS.
    pub tls: Option<Box<TlsSession>>,
    /// The reserved place for the session.
    pub admitted: Admitted,
}

/// The result of commands in a separate HTTP request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emulated {
    /// The commands are or will be executed.
    Taken,
    /// The session does not exist.
    Unknown,
    /// Too many bytes are queued for the session.
    Busy,
}

/// A handle to a running node: cheap to clone; dropping it does not stop the threads.
#[derive(Clone)]
pub struct Node {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    rooms: Rooms,
    /// The names of the namespaces at the start. A reload adds no namespaces with rooms.
    names: NamespaceNames,
    shards: Arc<[ShardHandle]>,
    /// Permits for [`Node::sessions`]. The places in the shards' queues that these leave are for their counters.
    session_queries: Semaphore,
    access: AccessKeeper,
    node_seed: u64,
    local_addr: SocketAddr,
    reactor: ReactorChoice,
}

/// The control thread's connection to a shard.
#[derive(Debug)]
struct ShardHandle {
    inbox: mpsc::Sender<ToShard>,
    /// The bytes of [`SHARD_INBOX`] that are free. A request holds its bytes until it is answered, so that the shard itself
    /// counts nothing.
    free_bytes: Semaphore,
    reports: mpsc::Sender<ReportRequest>,
    shard_waker: Arc<ShardWaker>,
}

impl Node {
    /// Binds the listeners and starts the shard threads. Connections are accepted when this returns.
    ///
    /// # Errors
    /// [`StartError`]; all threads have ended.
    pub fn start(start: NodeStart) -> Result<Self, StartError> {
        start::start(start)
    }

    /// The address of the listeners.
    pub fn local_addr(&self) -> SocketAddr {
        self.inner.local_addr
    }

    /// The cluster of the node; `None` without a cluster.
    pub fn cluster(&self) -> Option<&Arc<NodeCluster>> {
        self.inner.shared.cluster.as_ref()
    }

    /// The storage of durable channels; `None` if none is configured.
    pub fn storage(&self) -> Option<&Arc<NodeStorage>> {
        self.inner.shared.storage.as_ref()
    }

    /// The rules about who may not connect.
    pub fn access(&self) -> &AccessKeeper {
        &self.inner.access
    }

    /// The shards' reactor, and why it was chosen.
    pub fn reactor(&self) -> &ReactorChoice {
        &self.inner.reactor
    }

    /// The number of shards.
    pub fn shard_count(&self) -> u16 {
        self.inner.shards.len() as u16
    }

    /// Sends a request to the owner of `channel`. Waits while the shard's inbox is full.
    ///
    /// # Errors
    /// [`NodeError`]
    pub async fn ask_owner(&self, channel: &str, request: ApiRequest) -> Result<ApiResult, NodeError> {
        let owner = dunlin_engine::owner_of(channel, self.shard_count(), self.inner.node_seed);
        self.inner.shards[usize::from(owner.0)].ask(request).await
    }

    /// Sends a request to every shard. Returns one result per shard, by index; an internal error for shards that have
    /// stopped.
    pub async fn ask_all(&self, request: ApiRequest) -> Vec<ApiResult> {
        // Send all requests before waiting for the first result.
        let mut waiting = Vec::with_capacity(self.inner.shards.len());
        for shard in self.inner.shards.iter() {
            let held = shard.hold(request.bytes()).await;
            let (reply, answer) = oneshot::channel();
            let is_sent = shard.send(ToShard::Api { request: request.clone(), reply }).await.is_ok();
            waiting.push(is_sent.then_some((answer, held)));
        }
        let mut answers = Vec::with_capacity(waiting.len());
        for answer in waiting {
            let answer = match answer {
                Some((answer, _held)) => answer.await.ok(),
                None => None,
            };
            answers.push(answer.unwrap_or(Err(ErrorCode::Internal.into())));
        }
        answers
    }

    /// The reports of all shards. Shards that do not report within [`REPORT_TIMEOUT`] are listed.
    pub async fn survey(&self) -> NodeSurvey {
        let deadline = tokio::time::Instant::now() + REPORT_TIMEOUT;
        let reports = self.inner.shards.iter().map(|shard| tokio::time::timeout_at(deadline, shard.report()));
        let mut survey = NodeSurvey::default();
        for (index, report) in (0..).zip(join_all(reports).await) {
            match report {
                Ok(Some(report)) => survey.reports.push(*report),
                Ok(None) | Err(_) => survey.silent.push(ShardIndex(index)),
            }
        }
        survey
    }

    /// The shards that do not react within [`REPORT_TIMEOUT`]. Costs them nothing but a turn.
    pub async fn silent_shards(&self) -> Vec<ShardIndex> {
        let deadline = tokio::time::Instant::now() + REPORT_TIMEOUT;
        let answers = self.inner.shards.iter().map(|shard| tokio::time::timeout_at(deadline, shard.react()));
        let silent = |(index, answer): (u16, Result<Option<()>, _>)| {
            answer.ok().flatten().is_none().then_some(ShardIndex(index))
        };
        (0..).zip(join_all(answers).await).filter_map(silent).collect()
    }

    /// The sessions that a query selects, with their sockets: from each shard as many as the query allows. Their places
    /// are Unix times. Shards that do not answer within [`REPORT_TIMEOUT`] are listed. Further queries wait.
    pub async fn sessions(&self, mut query: SessionsQuery) -> NodeSessions {
        let clock = self.inner.shared.clock;
        if let Some(after) = &mut query.after {
            after.behind_since_us = clock.mono_us_of(after.behind_since_us);
        }
        let _held = self.inner.session_queries.acquire().await;
        let deadline = tokio::time::Instant::now() + REPORT_TIMEOUT;
        let query = Arc::new(query);
        let pages = self.inner.shards.iter().map(|shard| tokio::time::timeout_at(deadline, shard.sessions(&query)));
        let mut sessions = NodeSessions::default();
        for (index, page) in (0..).zip(join_all(pages).await) {
            match page {
                Ok(Some(mut page)) => {
                    for facts in &mut page.page.sessions {
                        facts.behind_since_us = clock.unix_us_of(facts.behind_since_us);
                    }
                    sessions.shards.push(*page);
                }
                Ok(None) | Err(_) => sessions.silent.push(ShardIndex(index)),
            }
        }
        sessions
    }

    /// Whether every shard's thread has ended.
    pub fn has_stopped(&self) -> bool {
        self.inner.shards.iter().all(|shard| shard.inbox.is_closed())
    }

    /// The reports of the shards that report in time, by index.
    pub async fn report(&self) -> Vec<ShardReport> {
        self.survey().await.reports
    }

    /// The reports of all room threads.
    pub fn room_threads(&self) -> Vec<ThreadReport> {
        self.inner.rooms.threads()
    }

    /// The report of the room builder.
    pub fn room_builder(&self) -> BuilderReport {
        self.inner.rooms.builder()
    }

    /// The number of players with a client in a room of this node, on all nodes; `None` if it has no such room.
    pub fn players_of_room(&self, channel: &str) -> Option<u32> {
        self.inner.rooms.players_of(channel)
    }

    /// The number of the room of a channel among the stored rooms, for [`Node::forget_room`].
    pub fn stored_room(&self, channel: &str) -> Option<u64> {
        self.inner.rooms.kept().and_then(|kept| kept.claim_of(channel))
    }

    /// Deletes the stored state of a channel's room that was closed. Returns when the deletion is written.
    ///
    /// # Errors
    /// Why the state may come back.
    pub async fn forget_room(&self, channel: &str, closed: Option<u64>) -> Result<(), &'static str> {
        let Some(kept) = self.inner.rooms.kept() else { return Ok(()) };
        let channel = channel.to_owned();
        let forgotten = tokio::task::spawn_blocking(move || kept.forget(&channel, closed)).await;
        forgotten.unwrap_or(Err("the node is stopping"))
    }

    /// Whether stored rooms are in the cluster.
    pub fn keeps_rooms_in_cluster(&self) -> bool {
        self.inner.rooms.kept().is_some_and(|kept| kept.is_in_cluster())
    }

    /// The channels of rooms in the cluster that no node has, and that this one is to open. Waits for some.
    pub async fn orphaned_rooms(&self) -> Vec<Box<str>> {
        match self.inner.rooms.kept() {
            Some(kept) => kept.orphans().await,
            None => std::future::pending().await,
        }
    }

    /// Whether the game of this node could not go on with the room of a channel a moment ago, so that other nodes of the
    /// cluster are to open it.
    pub fn leaves_room_to_others(&self, channel: &str) -> bool {
        self.inner.rooms.kept().is_some_and(|kept| kept.leaves_to_others(channel))
    }

    /// The counters of stored rooms; `None` without a storage.
    pub fn room_survival(&self) -> Option<SurvivalReport> {
        self.inner.rooms.survival()
    }

    /// The counters of rooms with players on several nodes; `None` outside a cluster.
    pub fn room_relay(&self) -> Option<dunlin_relay::RelayCounters> {
        self.inner.rooms.relay()
    }

    /// The memory of all rooms in bytes.
    pub fn room_memory_bytes(&self) -> u64 {
        self.inner.rooms.memory_bytes()
    }

    /// Counts of stored paths.
    pub fn path_counts(&self) -> PathCounts {
        self.inner.rooms.path_counts()
    }

    /// Counts of recordings.
    pub fn recordings(&self) -> RecordingReport {
        self.inner.rooms.recordings()
    }

    /// The directories in which rooms are recorded.
    pub fn record_directories(&self) -> BTreeSet<PathBuf> {
        self.inner.rooms.record_directories()
    }

    /// Maximum duration of a block of a path, if the rooms of the channel's namespace store paths.
    ///
    /// # Errors
    /// 102 or 107, as for a subscription to the channel.
    pub fn path_block_ms(&self, channel: &str) -> Result<Option<u64>, ErrorCode> {
        Ok(self.inner.rooms.path_block_ms(self.inner.names.index_of(channel)?))
    }

    /// Whether the namespace of a channel has rooms.
    ///
    /// # Errors
    /// 102 or 107, as for a subscription to the channel.
    pub fn has_rooms(&self, channel: &str) -> Result<bool, ErrorCode> {
        Ok(self.inner.rooms.has_rooms(self.inner.names.index_of(channel)?))
    }

    /// The report of the room of a channel.
    pub fn room_of(&self, channel: &str) -> Option<RoomReport> {
        self.inner.rooms.room_of(channel)
    }

    /// The reports of at most `count` rooms from this channel on, sorted by channel.
    pub fn rooms_from(&self, from: Bound<&str>, count: usize) -> Vec<RoomReport> {
        self.inner.rooms.rooms_from(from, count)
    }

    /// The reports of all rooms, sorted by channel.
    pub fn rooms(&self) -> Vec<RoomReport> {
        self.inner.rooms.rooms()
    }

    /// Changes the limits on new sessions.
    pub fn set_admission(&self, limits: LiveAdmission) {
        let LiveAdmission { sessions_max, handshakes_per_second } = limits;
        self.inner.shared.gate.sessions.set_max(sessions_max);
        self.inner.shared.gate.set_handshake_rate(handshakes_per_second);
    }

    /// Replaces the options of every shard. The new options must come from [`dunlin_engine::Options::succeeded_by`] of
    /// the current ones. Calls must not overlap, so that all shards receive all options in the same order. Returns when
    /// all shards use the new options.
    ///
    /// # Errors
    /// [`NodeError`]
    pub async fn reconfigure(&self, options: Arc<dunlin_engine::Options>) -> Result<(), NodeError> {
        let mut waiting = Vec::with_capacity(self.inner.shards.len());
        for shard in self.inner.shards.iter() {
            let (done, is_done) = oneshot::channel();
            shard.send(ToShard::Reconfigure { options: Arc::clone(&options), done }).await?;
            waiting.push(is_done);
        }
        for is_done in waiting {
            is_done.await.map_err(|_| NodeError::Stopped)?;
        }
        Ok(())
    }

    /// Refuses new sessions while the process is above its memory limit.
    pub fn set_over_memory(&self, is_over: bool) {
        self.inner.shared.gate.set_over_memory(is_over);
    }

    /// Admits a client whose connection is from `peer` and whose request has this head, or returns the response. Must
    /// be called before the handshake response is sent.
    ///
    /// # Errors
    /// The response to a refused client.
    pub fn admit(&self, peer: Option<IpAddr>, head: &[u8]) -> Result<Admitted, Refused> {
        Admitted::new(&self.inner.shared, peer, head)
    }

    /// The address of the client whose request with this head came from `peer`, which may be a trusted proxy.
    pub fn client_of(&self, peer: IpAddr, head: &[u8]) -> IpAddr {
        self.inner.shared.gate.proxies().client(peer, head)
    }

    /// Passes a connection that becomes a session to a shard. The stream may be in blocking mode or not.
    ///
    /// # Errors
    /// [`NodeError`]; the stream is closed.
    pub async fn adopt(&self, stream: TcpStream, adoption: Adoption) -> Result<(), NodeError> {
        dunlin_net::set_up_adopted(&stream, self.inner.shared.net.notsent_lowat_bytes).map_err(NodeError::Stream)?;
        let shard = &self.inner.shards[usize::from(self.inner.shared.loads.place_anywhere())];
        shard.send(ToShard::Adopt { stream, adoption: Box::new(adoption) }).await
    }

    /// Passes commands to the session with this secret id, on any shard.
    ///
    /// # Errors
    /// [`NodeError`]
    pub async fn emulate(&self, secret: &str, commands: Vec<u8>) -> Result<Emulated, NodeError> {
        let shard =
            dunlin_engine::shard_of_session(secret).and_then(|shard| self.inner.shards.get(usize::from(shard.0)));
        let Some(shard) = shard else { return Ok(Emulated::Unknown) };
        let _held = shard.hold(commands.len()).await;
        let (reply, emulated) = oneshot::channel();
        shard.send(ToShard::Emulate { secret: secret.into(), commands, reply }).await?;
        emulated.await.map_err(|_| NodeError::Stopped)
    }

    /// Whether the node is being shut down.
    pub fn is_draining(&self) -> bool {
        self.inner.rooms.is_draining()
    }

    /// Shuts the node down: stops accepting connections, closes sessions with 3001 after their reliable lanes, idle
    /// ones first, at the rate of `plan`. The threads end when all sessions are closed or the time is over.
    pub async fn drain(&self, plan: DrainPlan) -> Drained {
        self.inner.rooms.begin_drain();
        let all_gone = async {
            let mut waiting = Vec::with_capacity(self.inner.shards.len());
            for shard in self.inner.shards.iter() {
                let (gone, is_gone) = oneshot::channel();
                if shard.send(ToShard::Drain { plan, gone }).await.is_ok() {
                    waiting.push(is_gone);
                }
            }
            for is_gone in waiting {
                // An error means that the thread has ended, and its sessions with it.
                let _ = is_gone.await;
            }
        };
        let drained = match tokio::time::timeout(plan.timeout, all_gone).await {
            Ok(()) => Drained::Complete,
            Err(_) => Drained::Late { sessions: self.inner.shared.gate.sessions.count() },
        };
        self.inner.stop();
        for shard in self.inner.shards.iter() {
            shard.inbox.closed().await;
        }
        // Rooms stop last, because they have players until all sessions are closed.
        self.inner.rooms.stop();
        self.inner.rooms.ended().await;
        drained
    }
}

impl Inner {
    fn stop(&self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        for shard in self.shards.iter() {
            shard.shard_waker.wake();
        }
    }
}

/// Maximum number of concurrent calls of [`Node::sessions`].
const SESSION_QUERIES_MAX: usize = 4;

/// Timeout for the shards' reports. The pages that need them answer within a second, also if a shard does not.
pub const REPORT_TIMEOUT: Duration = Duration::from_millis(750);

impl ShardHandle {
    /// The report of the shard; `None` if it has ended.
    fn new(inbox: mpsc::Sender<ToShard>, reports: mpsc::Sender<ReportRequest>, shard_waker: Arc<ShardWaker>) -> Self {
        Self { inbox, free_bytes: Semaphore::new(SHARD_INBOX.bytes_max()), reports, shard_waker }
    }

    /// Waits until this many bytes are free, and holds them. A request that is larger than the bound waits until nothing
    /// else is held.
    async fn hold(&self, bytes: usize) -> Option<SemaphorePermit<'_>> {
        let bytes = u32::try_from(bytes.min(SHARD_INBOX.bytes_max())).unwrap_or(u32::MAX);
        // It is never closed.
        self.free_bytes.acquire_many(bytes).await.ok()
    }

    async fn report(&self) -> Option<Box<ShardReport>> {
        let (reply, report) = oneshot::channel();
        self.reports.send(ReportRequest::Counters(reply)).await.ok()?;
        self.shard_waker.wake();
        report.await.ok()
    }

    /// Waits for the shard's next turn; `None` if it has ended.
    async fn react(&self) -> Option<()> {
        let (reply, reaction) = oneshot::channel();
        self.reports.send(ReportRequest::Reaction(reply)).await.ok()?;
        self.shard_waker.wake();
        reaction.await.ok()
    }

    /// A part of the shard's sessions; `None` if it has ended.
    async fn sessions(&self, query: &Arc<SessionsQuery>) -> Option<Box<ShardSessions>> {
        let (reply, sessions) = oneshot::channel();
        self.reports.send(ReportRequest::Sessions { query: Arc::clone(query), reply }).await.ok()?;
        self.shard_waker.wake();
        sessions.await.ok()
    }

    async fn ask(&self, request: ApiRequest) -> Result<ApiResult, NodeError> {
        let _held = self.hold(request.bytes()).await;
        let (reply, answer) = oneshot::channel();
        self.send(ToShard::Api { request, reply }).await?;
        answer.await.map_err(|_| NodeError::Stopped)
    }

    async fn send(&self, message: ToShard) -> Result<(), NodeError> {
        self.inbox.send(message).await.map_err(|_| NodeError::Stopped)?;
        self.shard_waker.wake();
        Ok(())
    }
}

impl StartError {
    /// The error of a listener. `setting` chooses another port.
    pub(crate) fn listen(address: SocketAddr, setting: &'static str, source: std::io::Error) -> Self {
        let is_taken = source.kind() == std::io::ErrorKind::AddrInUse;
        let holder = is_taken.then(|| port_holder::holder_of(address)).flatten();
        Self::Listen { address, setting, holder, source }
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen { address, setting, holder, source } => {
                write!(f, "can't listen on {address}: {source}")?;
                match holder {
                    Some(holder) => {
                        write!(f, ". {holder} has the port: stop it, or choose another port with {setting}")
                    }
                    None if source.kind() == std::io::ErrorKind::AddrInUse => {
                        write!(f, ". Choose another port with {setting}, or stop the program that has this one")
                    }
                    None => Ok(()),
                }
            }
            Self::Resource { what, source } => write!(f, "can't get {what}: {source}"),
            Self::Reactor(error) => error.fmt(f),
            Self::Random => f.write_str("the system gave no random bytes"),
        }
    }
}

impl std::error::Error for StartError {}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped => f.write_str("the node has stopped"),
            Self::Stream(source) => write!(f, "can't adopt the stream: {source}"),
        }
    }
}

impl std::error::Error for NodeError {}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn requests_to_a_shard_are_bounded_in_bytes_until_they_are_answered() {
        let waker = dunlin_net::Waker::eventfd().expect("an eventfd");
        let shard_waker = Arc::new(ShardWaker::new(Arc::new(waker)));
        let ((inbox, _requests), (reports, _asked)) = (mpsc::channel(1), mpsc::channel(1));
        let shard = ShardHandle::new(inbox, reports, shard_waker);
        let first = shard.hold(SHARD_INBOX.bytes_max() - 1_000).now_or_never().flatten();
        let second = shard.hold(1_000).now_or_never().flatten();
        assert!(first.is_some() && second.is_some(), "at the limit");
        assert!(shard.hold(1).now_or_never().is_none(), "past it");
        drop(second);
        assert!(shard.hold(1_000).now_or_never().flatten().is_some(), "there is space again");
        drop(first);
        assert!(shard.hold(usize::MAX).now_or_never().flatten().is_some(), "a larger one waits for all others");
    }
}
