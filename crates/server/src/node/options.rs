//! Options of the threads and sockets of a node. The caller that starts the node fills them from the configuration.

use std::{net::SocketAddr, sync::Arc};

use dunlin_config::AdmissionOptions;
use dunlin_engine::Wire;
use dunlin_net::{Certificates, ClientEndpoint, ReactorOption};

/// Options of threads and sockets.
#[derive(Clone, Debug)]
pub struct NodeNetOptions {
    /// The requested reactor.
    pub reactor: ReactorOption,
    /// The address of the listeners. With port 0 the kernel chooses the port; [`crate::node::Node::local_addr`] returns
    /// it.
    pub listen: SocketAddr,
    /// Number of shard threads. Each has its own listener on the same port.
    pub shard_count: u16,
    /// The paths for clients. Requests to other paths are passed to the control thread.
    pub places: Vec<ClientEndpoint>,
    /// Limits of the messages of one client.
    pub websocket_limits: dunlin_websocket::WebSocketLimits,
    /// The TLS certificates; `None` without TLS.
    pub certificates: Option<Arc<Certificates>>,
    /// Limits of the messages of one client on a unidirectional WebSocket.
    pub uni_websocket_limits: dunlin_websocket::WebSocketLimits,
    /// Maximum number of queued bytes per paused session from separate HTTP requests.
    pub mail_bytes_max: usize,
    /// Paths of operators. Requests to them and to paths below them are passed on even when other requests are refused.
    pub operators_paths: Vec<String>,
    /// Capacity of the queue to the control thread that is reserved for operators' requests.
    pub handed_over_reserved: usize,
    /// Limits on new sessions.
    pub admission: AdmissionOptions,
    /// Maximum difference between the connections of a shard and of the emptiest shard, above which new connections are
    /// moved; 0 to keep the kernel's choice.
    pub shard_imbalance_max: u32,
    /// Maximum number of connections of each shard, on `io_uring` with direct descriptors; 0 to use file descriptors.
    pub shard_connections_max: u32,
    /// Maximum number of sessions of the node; further ones receive status 503. 0 for no limit except that on files.
    pub sessions_max: u32,
    /// Connections whose file descriptor is not below this number are closed, so that others find some.
    pub descriptors_below: u32,
    /// Capacity of the kernel's accept queue, per shard.
    pub backlog: u32,
    /// Number of unsent bytes in the kernel from which a socket counts as full (`TCP_NOTSENT_LOWAT`); 0 keeps the
    /// kernel's default.
    pub notsent_lowat_bytes: u32,
    /// Maximum length of a request's head, including the request line.
    pub head_bytes_max: usize,
    /// Maximum length of a request line.
    pub request_line_bytes_max: usize,
    /// Maximum number of connections per address and shard that have no session; beyond it the oldest is closed. 0 for
    /// no limit.
    pub pending_address_connections_max: u32,
    /// Timeout for a request's head, counted from the accept.
    pub head_timeout_ms: u64,
    /// Time for a refused client to close its connection after the response.
    pub linger_timeout_ms: u64,
    /// Maximum number of bytes read from one connection per turn, at most [`dunlin_net::READ_BUFFER_BYTES`].
    pub read_bytes_per_turn: usize,
    /// Capacity of a ring between two shards; there are two rings for each ordered pair.
    pub ring_messages: usize,
    /// Capacity of a shard's inbox; further requests wait in the caller's task.
    pub inbox_requests: usize,
}

impl NodeNetOptions {
    /// The limits for messages of a client with this wire.
    pub(super) const fn limits(&self, wire: Wire) -> &dunlin_websocket::WebSocketLimits {
        if wire.is_unidirectional() { &self.uni_websocket_limits } else { &self.websocket_limits }
    }
}

impl Default for NodeNetOptions {
    fn default() -> Self {
        Self {
            reactor: ReactorOption::Auto,
            listen: SocketAddr::from(([127, 0, 0, 1], 8000)),
            shard_count: 1,
            places: vec![ClientEndpoint::websocket("/connection/websocket")],
            websocket_limits: dunlin_websocket::WebSocketLimits::default(),
            certificates: None,
            uni_websocket_limits: dunlin_websocket::WebSocketLimits::default(),
            mail_bytes_max: 262_144,
            operators_paths: Vec::new(),
            handed_over_reserved: 0,
            admission: AdmissionOptions::default(),
            shard_imbalance_max: 32,
            shard_connections_max: 262_144,
            sessions_max: 0,
            descriptors_below: u32::MAX,
            backlog: 4_096,
            notsent_lowat_bytes: 16_384,
            head_bytes_max: 16_384,
            request_line_bytes_max: 4_096,
            pending_address_connections_max: 1_024,
            head_timeout_ms: 5_000,
            linger_timeout_ms: 2_000,
            read_bytes_per_turn: 16_384,
            ring_messages: 1_024,
            inbox_requests: 1_024,
        }
    }
}
