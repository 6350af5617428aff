//! The shard threads, and the handle by which the control thread talks to them.

mod admission;
mod answers;
mod clock;
mod deadlines;
mod doorbell;
mod drain;
mod effects;
mod emulation;
mod flush;
mod inbox;
mod intake;
mod options;
mod peers;
mod placement;
mod report;
mod secure;
mod shard_thread;
mod start;

use std::{
    fmt,
    net::{IpAddr, SocketAddr, TcpStream},
    sync::{Arc, atomic::Ordering},
};

use dunlin_engine::Wire;
use dunlin_engine::api::{Answer, ApiRequest};
use dunlin_protocol::ErrorCode;
use tokio::sync::{mpsc, oneshot};

use inbox::ToShard;
use shard_thread::Shared;

use crate::{
    backend::{AskBackends, PickedHeaders},
    net::Refused,
    rooms::{RoomReport, Rooms, RoomsOptions, ThreadReport},
    tls::TlsSession,
};

pub(crate) use doorbell::Doorbell;

pub use crate::net::{NoReactor, OriginCheck, ReactorChoice, ReactorKind, ReactorWish, RefusalReason, TrustedProxies};
pub use admission::{AdmissionOptions, Admitted};
pub use drain::DrainPlan;
pub use options::{Judged, NetOptions, TokenAnswer, TokenKind, TokenQuestion, VerifyTokens};
pub use report::{NetCounters, ShardReport};

/// A connection whose first request is not for the WebSocket path, on its way to the control thread.
#[derive(Debug)]
pub struct HandOver {
    /// The socket, in non-blocking mode.
    pub stream: TcpStream,
    /// The other end.
    pub peer: SocketAddr,
    /// All that was read from it: the request's head, and whatever came behind it.
    pub head: Vec<u8>,
    /// Its TLS, if it has.
    pub tls: Option<Box<TlsSession>>,
}

/// What a node is started with.
pub struct NodeStart {
    /// Threads and sockets.
    pub net: NetOptions,
    /// Sessions and channels.
    pub engine: Arc<dunlin_engine::Options>,
    /// Rooms. There are as many threads for them as the engine's options say.
    pub rooms: RoomsOptions,
    /// Judges tokens.
    pub tokens: Arc<dyn VerifyTokens>,
    /// Asks backends.
    pub backends: Arc<dyn AskBackends>,
    /// Judges origins.
    pub origins: OriginCheck,
    /// Takes connections of which no WebSocket becomes. Bounded: when it is full, the connection gets a 503.
    pub hand_over: mpsc::Sender<HandOver>,
}

/// Why a node could not be started.
#[derive(Debug)]
pub enum StartError {
    /// The address cannot be listened on.
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The reactor, a thread or a file that the shards need could not be had.
    Resource {
        /// What.
        what: &'static str,
        /// Why not.
        source: std::io::Error,
    },
    /// There is nothing for the shards to wait on.
    Reactor(NoReactor),
    /// The system gave no random bytes.
    Random,
}

/// Why a node did not do as it was asked.
#[derive(Debug)]
pub enum NodeError {
    /// Its threads have ended.
    Stopped,
    /// The stream that it was to adopt is of no use.
    Stream(std::io::Error),
}

/// How a drain ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// Every session had its last frames and is gone.
    Complete,
    /// The deadline passed first.
    Late {
        /// Sessions that were cut off.
        sessions: u32,
    },
}

/// A connection that the control thread has read a request from, as which it becomes a session.
#[derive(Debug)]
pub struct Adoption {
    /// What the session speaks.
    pub wire: Wire,
    /// Its client may send compressed messages.
    pub inflates: bool,
    /// What is to be written first.
    pub response: Vec<u8>,
    /// What the session says with its request.
    pub request: Option<Vec<u8>>,
    /// What had already been read behind the request.
    pub read: Vec<u8>,
    /// What the request had for backends.
    pub headers: Option<PickedHeaders>,
    /// Its TLS, if it has.
    pub tls: Option<Box<TlsSession>>,
    /// Its place among the sessions.
    pub admitted: Admitted,
}

/// What became of commands that came by a request of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emulated {
    /// They are or will be carried out.
    Taken,
    /// There is no such session.
    Unknown,
    /// Too much waits for the session already.
    Busy,
}

/// A running node. A handle: cheap to clone, and of no influence on the threads when dropped.
#[derive(Clone)]
pub struct Node {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    rooms: Rooms,
    shards: Arc<[ShardDoor]>,
    node_seed: u64,
    local_addr: SocketAddr,
    reactor: ReactorChoice,
}

/// How a shard is reached from outside.
#[derive(Debug)]
struct ShardDoor {
    inbox: mpsc::Sender<ToShard>,
    doorbell: Arc<Doorbell>,
}

impl Node {
    /// Binds the listeners and starts the shard threads. When this returns, connections are accepted.
    ///
    /// # Errors
    /// [`StartError`]; no thread is left behind.
    pub fn start(start: NodeStart) -> Result<Self, StartError> {
        start::start(start)
    }

    /// Where the node listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.inner.local_addr
    }

    /// What its shards wait on, and why.
    pub fn reactor(&self) -> &ReactorChoice {
        &self.inner.reactor
    }

    /// How many shards it has.
    pub fn shard_count(&self) -> u16 {
        self.inner.shards.len() as u16
    }

    /// Asks the owner of `channel`. Waits while the shard's inbox is full.
    ///
    /// # Errors
    /// [`NodeError`]
    pub async fn ask_owner(&self, channel: &str, request: ApiRequest) -> Result<Answer, NodeError> {
        let owner = dunlin_engine::owner_of(channel, self.shard_count(), self.inner.node_seed);
        self.inner.shards[usize::from(owner.0)].ask(request).await
    }

    /// Asks every shard. One answer for each, by shard index; that of a shard that has stopped is an internal error.
    pub async fn ask_all(&self, request: ApiRequest) -> Vec<Answer> {
        // All are asked before the first is waited for.
        let mut waiting = Vec::with_capacity(self.inner.shards.len());
        for shard in self.inner.shards.iter() {
            let (reply, answer) = oneshot::channel();
            let is_sent = shard.send(ToShard::Api { request: request.clone(), reply }).await.is_ok();
            waiting.push(is_sent.then_some(answer));
        }
        let mut answers = Vec::with_capacity(waiting.len());
        for answer in waiting {
            let answer = match answer {
                Some(answer) => answer.await.ok(),
                None => None,
            };
            answers.push(answer.unwrap_or(Err(ErrorCode::Internal)));
        }
        answers
    }

    /// What every shard counts, by shard index. Shards that have stopped are missing.
    pub async fn report(&self) -> Vec<ShardReport> {
        let mut waiting = Vec::with_capacity(self.inner.shards.len());
        for shard in self.inner.shards.iter() {
            let (reply, report) = oneshot::channel();
            if shard.send(ToShard::Report { reply }).await.is_ok() {
                waiting.push(report);
            }
        }
        let mut reports = Vec::with_capacity(waiting.len());
        for report in waiting {
            reports.extend(report.await.map(|report| *report));
        }
        reports
    }

    /// What every room thread counts, by its number.
    pub fn room_threads(&self) -> Vec<ThreadReport> {
        self.inner.rooms.threads()
    }

    /// What there is to tell of every room, by its channel's name.
    pub fn rooms(&self) -> Vec<RoomReport> {
        self.inner.rooms.rooms()
    }

    /// Lets nobody in while the process has more memory than it may.
    pub fn set_over_memory(&self, is_over: bool) {
        self.inner.shared.gate.set_over_memory(is_over);
    }

    /// Lets a client in whose connection is from `peer` and who sent a request with this head, or says what to answer. To be
    /// asked before it is answered that it may.
    ///
    /// # Errors
    /// The answer.
    pub fn admit(&self, peer: Option<IpAddr>, head: &[u8]) -> Result<Admitted, Refused> {
        Admitted::new(&self.inner.shared, peer, head)
    }

    /// Gives a connection that becomes a session to a shard. The stream may be in either mode.
    ///
    /// # Errors
    /// [`NodeError`]; the stream is closed.
    pub async fn adopt(&self, stream: TcpStream, adoption: Adoption) -> Result<(), NodeError> {
        crate::net::set_up_adopted(&stream, self.inner.shared.net.notsent_lowat_bytes).map_err(NodeError::Stream)?;
        let shard = &self.inner.shards[usize::from(self.inner.shared.loads.place_anywhere())];
        shard.send(ToShard::Adopt { stream, adoption: Box::new(adoption) }).await
    }

    /// Gives commands to the session with this secret id, on whichever shard it is.
    ///
    /// # Errors
    /// [`NodeError`]
    pub async fn emulate(&self, secret: &str, commands: Vec<u8>) -> Result<Emulated, NodeError> {
        let shard =
            dunlin_engine::shard_of_session(secret).and_then(|shard| self.inner.shards.get(usize::from(shard.0)));
        let Some(shard) = shard else { return Ok(Emulated::Unknown) };
        let (reply, emulated) = oneshot::channel();
        shard.send(ToShard::Emulate { secret: secret.into(), commands, reply }).await?;
        emulated.await.map_err(|_| NodeError::Stopped)
    }

    /// Ends the node: no more connections are accepted, sessions are closed with 3001 after their reliable lanes, idle ones
    /// first and as fast as `plan` says, and when all are gone, or its time is over, the threads end.
    pub async fn drain(&self, plan: DrainPlan) -> Drained {
        let all_gone = async {
            let mut waiting = Vec::with_capacity(self.inner.shards.len());
            for shard in self.inner.shards.iter() {
                let (gone, is_gone) = oneshot::channel();
                if shard.send(ToShard::Drain { plan, gone }).await.is_ok() {
                    waiting.push(is_gone);
                }
            }
            for is_gone in waiting {
                // An error: the thread has ended before, and its sessions with it.
                let _ = is_gone.await;
            }
        };
        let drained = match tokio::time::timeout(plan.timeout, all_gone).await {
            Ok(()) => Drained::Complete,
            Err(_) => Drained::Late { sessions: self.inner.shared.sessions.load(Ordering::Relaxed) },
        };
        self.inner.stop();
        for shard in self.inner.shards.iter() {
            shard.inbox.closed().await;
        }
        // Rooms go last: until then there are players.
        self.inner.rooms.stop();
        self.inner.rooms.ended().await;
        drained
    }
}

impl Inner {
    fn stop(&self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        for shard in self.shards.iter() {
            shard.doorbell.ring();
        }
    }
}

impl ShardDoor {
    async fn ask(&self, request: ApiRequest) -> Result<Answer, NodeError> {
        let (reply, answer) = oneshot::channel();
        self.send(ToShard::Api { request, reply }).await?;
        answer.await.map_err(|_| NodeError::Stopped)
    }

    async fn send(&self, message: ToShard) -> Result<(), NodeError> {
        self.inbox.send(message).await.map_err(|_| NodeError::Stopped)?;
        self.doorbell.ring();
        Ok(())
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen { address, source } => write!(f, "can't listen on {address}: {source}"),
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
