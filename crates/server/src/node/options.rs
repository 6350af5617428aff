//! What the threads and sockets of a node are told. Filled from the configuration by the one who starts the node.

use std::{net::SocketAddr, sync::Arc};

use super::AdmissionOptions;
use crate::{
    net::{Place, ReactorWish},
    tls::Certificates,
};
use dunlin_engine::Wire;
use dunlin_engine::event::{ConnectionClaims, SubscriptionClaims, TokenError};

/// Options of threads and sockets.
#[derive(Clone, Debug)]
pub struct NetOptions {
    /// What the shards are to wait on.
    pub reactor: ReactorWish,
    /// Where to listen. Port 0 lets the kernel choose; [`crate::node::Node::local_addr`] tells what it chose.
    pub listen: SocketAddr,
    /// Shard threads, each with its own listener on the same port.
    pub shard_count: u16,
    /// The paths at which clients come in; requests to all other paths are handed over.
    pub places: Vec<Place>,
    /// What a client may make the receiver of its frames hold.
    pub websocket_limits: dunlin_websocket::Limits,
    /// What TLS shows; `None` without.
    pub certificates: Option<Arc<Certificates>>,
    /// The same, where only the server speaks.
    pub uni_websocket_limits: dunlin_websocket::Limits,
    /// Bytes of commands that wait for a session which is being asked about, come by requests of their own.
    pub mail_bytes_max: usize,
    /// Who may come in, and how fast.
    pub admission: AdmissionOptions,
    /// Connections that a shard may have more than the emptiest one, before it gives those it accepts to that; 0 leaves them
    /// where the kernel puts them.
    pub shard_imbalance_max: u32,
    /// Sessions of the node at a time; the next is refused with 503. 0 for no bound but the number of files.
    pub sessions_max: u32,
    /// Connections that the kernel keeps until they are accepted, per shard.
    pub backlog: u32,
    /// Unsent bytes in the kernel's buffer from which a socket counts as full (`TCP_NOTSENT_LOWAT`); 0 leaves it to the
    /// system.
    pub notsent_lowat_bytes: u32,
    /// Bytes of a request's head, request line included.
    pub head_bytes_max: usize,
    /// Bytes of a request's first line.
    pub request_line_bytes_max: usize,
    /// Time for a request's head to come, from the moment of the accept.
    pub head_timeout_ms: u64,
    /// Time for a refused client to hang up after it has been answered.
    pub linger_timeout_ms: u64,
    /// Bytes read from one connection in one turn, at most [`crate::net::READ_BUFFER_BYTES`].
    pub read_bytes_per_turn: usize,
    /// Messages that fit into one ring between two shards; there are two rings for each ordered pair.
    pub ring_messages: usize,
    /// Requests of the control thread that wait for a shard; the next waits in the asker's task.
    pub inbox_requests: usize,
}

impl NetOptions {
    /// What a client that speaks this may make the receiver of its frames hold.
    pub(super) const fn limits(&self, wire: Wire) -> &dunlin_websocket::Limits {
        if wire.is_unidirectional() { &self.uni_websocket_limits } else { &self.websocket_limits }
    }
}

impl Default for NetOptions {
    fn default() -> Self {
        Self {
            reactor: ReactorWish::Auto,
            listen: SocketAddr::from(([127, 0, 0, 1], 8000)),
            shard_count: 1,
            places: vec![Place::websocket("/connection/websocket")],
            websocket_limits: dunlin_websocket::Limits::default(),
            certificates: None,
            uni_websocket_limits: dunlin_websocket::Limits::default(),
            mail_bytes_max: 262_144,
            admission: AdmissionOptions::default(),
            shard_imbalance_max: 32,
            sessions_max: 0,
            backlog: 4_096,
            notsent_lowat_bytes: 16_384,
            head_bytes_max: 16_384,
            request_line_bytes_max: 4_096,
            head_timeout_ms: 5_000,
            linger_timeout_ms: 2_000,
            read_bytes_per_turn: 16_384,
            ring_messages: 1_024,
            inbox_requests: 1_024,
        }
    }
}

/// Judges tokens. Called on the shard's thread, where it may neither block nor wait for another thread.
pub trait VerifyTokens: Send + Sync + 'static {
    /// What a connection token says, as far as that is cheap to find out.
    fn verify_connection(&self, token: &str, now_unix_s: u64) -> Judged<ConnectionClaims>;

    /// What a subscription token says, as far as that is cheap to find out.
    fn verify_subscription(&self, token: &str, now_unix_s: u64) -> Judged<SubscriptionClaims>;

    /// Has a token judged on another thread, and its answer told from there, or at once when that cannot be done.
    fn verify_elsewhere(&self, question: TokenQuestion);
}

/// What is found out about a token on the shard's own thread.
#[derive(Debug)]
pub enum Judged<C> {
    /// Everything: what it says, or why it does not count.
    Now(Result<C, TokenError>),
    /// Nothing: [`VerifyTokens::verify_elsewhere`] is to be asked.
    Elsewhere,
}

impl<C> Judged<C> {
    /// With other claims.
    pub fn map<D>(self, claims: impl FnOnce(C) -> D) -> Judged<D> {
        match self {
            Self::Now(outcome) => Judged::Now(outcome.map(claims)),
            Self::Elsewhere => Judged::Elsewhere,
        }
    }
}

/// What a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// For a session.
    Connection,
    /// For a subscription.
    Subscription,
}

/// A token to be judged on another thread.
pub struct TokenQuestion {
    /// What it is for.
    pub kind: TokenKind,
    /// The JWT.
    pub token: Box<str>,
    /// To be called once, on whatever thread; it neither blocks nor waits.
    pub answer: Box<dyn FnOnce(TokenAnswer) + Send>,
}

/// What a token is worth.
#[derive(Debug)]
pub enum TokenAnswer {
    /// One for a session.
    Connection(Result<ConnectionClaims, TokenError>),
    /// One for a subscription.
    Subscription(Result<SubscriptionClaims, TokenError>),
}

impl TokenKind {
    /// The answer for a token of this kind that does not count.
    pub fn refused(self, error: TokenError) -> TokenAnswer {
        match self {
            Self::Connection => TokenAnswer::Connection(Err(error)),
            Self::Subscription => TokenAnswer::Subscription(Err(error)),
        }
    }
}
