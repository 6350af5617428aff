//! The shard threads, and the handle by which the control thread talks to them.

mod options;
mod report;

use std::{fmt, net::SocketAddr, net::TcpStream, sync::Arc, time::Duration};

use dunlin_engine::api::{Answer, ApiRequest};
use dunlin_protocol::Encoding;
use tokio::sync::mpsc;

pub use crate::net::{OriginCheck, RefusalReason};
pub use options::{NetOptions, VerifyTokens};
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
}

/// What a node is started with.
pub struct NodeStart {
    /// Threads and sockets.
    pub net: NetOptions,
    /// Sessions and channels.
    pub engine: Arc<dunlin_engine::Options>,
    /// Judges tokens.
    pub tokens: Arc<dyn VerifyTokens>,
    /// Judges origins.
    pub origins: OriginCheck,
    /// Takes connections that are not WebSockets. Bounded: when it is full, the connection gets a 503.
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
    /// The system gave no random bytes.
    Random,
}

/// Why a node did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeError {
    /// Its threads have ended.
    Stopped,
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

/// A running node. A handle: cheap to clone, and of no influence on the threads when dropped.
#[derive(Clone)]
pub struct Node {}

impl Node {
    /// Binds the listeners and starts the shard threads. When this returns, connections are accepted.
    ///
    /// # Errors
    /// [`StartError`]; no thread is left behind.
    pub fn start(_start: NodeStart) -> Result<Self, StartError> {
        todo!()
    }

    /// Where the node listens.
    pub fn local_addr(&self) -> SocketAddr {
        todo!()
    }

    /// Asks the owner of `channel`. Waits while the shard's inbox is full.
    ///
    /// # Errors
    /// [`NodeError`]
    pub async fn ask_owner(&self, _channel: &str, _request: ApiRequest) -> Result<Answer, NodeError> {
        todo!()
    }

    /// Asks every shard. One answer for each, by shard index; that of a shard that has stopped is an internal error.
    pub async fn ask_all(&self, _request: ApiRequest) -> Vec<Answer> {
        todo!()
    }

    /// What every shard counts, by shard index. Shards that have stopped are missing.
    pub async fn report(&self) -> Vec<ShardReport> {
        todo!()
    }

    /// Gives a WebSocket that the control thread has answered with 101 to a shard. `read` is what had already been read
    /// behind the request. The stream may be in either mode.
    ///
    /// # Errors
    /// [`NodeError`]; the stream is closed.
    pub async fn adopt(&self, _stream: TcpStream, _encoding: Encoding, _read: Vec<u8>) -> Result<(), NodeError> {
        todo!()
    }

    /// Ends the node: no more connections are accepted, every session is closed with 3001 after its reliable lane, and
    /// when all are gone, or `deadline` has passed, the threads end.
    pub async fn drain(&self, _deadline: Duration) -> Drained {
        todo!()
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen { address, source } => write!(f, "can't listen on {address}: {source}"),
            Self::Resource { what, source } => write!(f, "can't get {what}: {source}"),
            Self::Random => f.write_str("the system gave no random bytes"),
        }
    }
}

impl std::error::Error for StartError {}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped => f.write_str("the node has stopped"),
        }
    }
}

impl std::error::Error for NodeError {}
