//! Configuration: what was typed, and what it means.
//!
//! [`Config`] is the meaning. Everything in it is parsed, defaulted and checked; whoever holds one looks at no raw
//! setting again. It comes from a tree of typed text (a file, environment variables, flags), and the tree is read by one
//! table of keys, from which the reference page and the JSON Schema are written as well.

mod origin;
mod secret;

use std::{net::IpAddr, path::PathBuf, sync::Arc};

pub use self::{origin::AllowedOrigins, secret::Secret};

/// A node's settings.
#[derive(Clone, Debug)]
pub struct Config {
    /// What the shards share.
    pub engine: Arc<dunlin_engine::Options>,
    /// I/O threads; at least 1 and at most 256.
    pub shards: usize,
    /// What the shards wait on.
    pub reactor: Reactor,
    /// This node.
    pub node: NodeOptions,
    /// Sockets.
    pub net: NetOptions,
    /// The listener that sockets and HTTP share.
    pub http_server: HttpServerOptions,
    /// WebSockets.
    pub websocket: WebSocketOptions,
    /// Which pages may open a WebSocket.
    pub allowed_origins: AllowedOrigins,
    /// The server API.
    pub http_api: HttpApiOptions,
    /// Path of the health check; `None` when it is off.
    pub health_prefix: Option<String>,
    /// Path of the metrics; `None` when they are off.
    pub prometheus_prefix: Option<String>,
    /// Keys that tokens are verified with.
    pub token: TokenOptions,
    /// Logging.
    pub log: LogOptions,
    /// Time between SIGTERM and giving up on sessions that do not take their last frames.
    pub shutdown_timeout_ms: u64,
    /// File that holds the process id while the node runs.
    pub pid_file: Option<PathBuf>,
    /// The demonstration: static pages and a publisher; `None` outside of demonstrations.
    pub demo: Option<DemoOptions>,
}

/// What the shards wait on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reactor {
    /// The best that the kernel offers.
    #[default]
    Auto,
    /// `epoll`.
    Epoll,
}

/// Options of this node (`node.*`).
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// Its name, as told by the API's `info`; empty for one made of host name and port.
    pub name: String,
}

/// Options of sockets (`net.*`, `client.connection_limit`).
#[derive(Clone, Debug)]
pub struct NetOptions {
    /// `TCP_NOTSENT_LOWAT`; 0 leaves the kernel's.
    pub tcp_notsent_lowat_bytes: usize,
    /// `SO_SNDBUF`; 0 leaves the kernel's, which grows by itself.
    pub send_buffer_bytes: usize,
    /// Connections that each listener's kernel queue holds.
    pub accept_backlog: u32,
    /// Open connections of the node, of any kind; one more is answered with 503.
    pub connections_max: usize,
    /// Messages in the ring from one shard to another.
    pub ring_messages_max: usize,
}

/// Options of the listener (`http_server.*`).
#[derive(Clone, Debug)]
pub struct HttpServerOptions {
    /// `None` for all interfaces, IPv6 and IPv4.
    pub address: Option<IpAddr>,
    /// TCP port; 0 for any free one.
    pub port: u16,
    /// Bytes of a request's head (request line and header fields).
    pub head_bytes_max: usize,
    /// Time from the connection's first moment, or the end of the last answer, until a begun head is whole.
    pub head_timeout_ms: u64,
    /// Time that an HTTP connection may wait between requests.
    pub idle_timeout_ms: u64,
}

/// Options of WebSockets (`websocket.*`).
#[derive(Clone, Debug)]
pub struct WebSocketOptions {
    /// Path of the endpoint; `None` when it is off.
    pub handler_prefix: Option<String>,
    /// What one client may make the node hold.
    pub limits: dunlin_websocket::Limits,
    /// Time in which a peer must take some of what waits for it; then the session ends with 3009.
    pub write_timeout_ms: u64,
}

/// Options of the server API (`http_api.*`).
#[derive(Clone, Debug)]
pub struct HttpApiOptions {
    /// Path under which the methods lie; `None` when the API is off.
    pub handler_prefix: Option<String>,
    /// Who may use it.
    pub access: ApiAccess,
    /// Bytes of a request's body.
    pub request_bytes_max: usize,
    /// Requests being answered at the same time; one more is answered with 503.
    pub requests_max: usize,
    /// Time for the shards to answer.
    pub timeout_ms: u64,
}

/// Who may use the server API.
#[derive(Clone, Debug)]
pub enum ApiAccess {
    /// Nobody: neither a key nor `insecure` is set. Requests get 401.
    Nobody,
    /// Who knows the key.
    Key(Secret),
    /// Everyone who reaches the port (`http_api.insecure`).
    Everyone,
}

/// Keys of tokens (`client.token.*`, `client.subscription_token.*`).
#[derive(Clone, Debug, Default)]
pub struct TokenOptions {
    /// Of connection tokens.
    pub connection: TokenKeys,
    /// Of subscription tokens; `None` for those of connection tokens.
    pub subscription: Option<TokenKeys>,
}

/// HMAC keys of one kind of token. With no key no token is valid.
#[derive(Clone, Debug, Default)]
pub struct TokenKeys {
    /// The key.
    pub hmac: Option<Secret>,
    /// The key before it.
    pub hmac_previous: Option<Secret>,
    /// Unix time in seconds until which the previous key counts; `None` for without end.
    pub hmac_previous_valid_until_s: Option<u64>,
}

/// Options of logging (`log.*`).
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// What is worth a line.
    pub level: LogLevel,
    /// Where lines go; `None` for standard error.
    pub file: Option<PathBuf>,
}

/// What is worth a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogLevel {
    /// Nothing.
    None,
    /// Errors.
    Error,
    /// And what may become one.
    Warn,
    /// And what an operator wants to know.
    #[default]
    Info,
    /// And what a developer wants to know.
    Debug,
    /// Everything.
    Trace,
}

/// Options of the demonstration (`demo.*`).
#[derive(Clone, Debug)]
pub struct DemoOptions {
    /// Directory of the pages served at `/`.
    pub dir: PathBuf,
}
