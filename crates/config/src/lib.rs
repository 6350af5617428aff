//! Configuration: parses settings and converts them to typed options.
//!
//! [`Config`] is the result. All its values are parsed, defaulted and checked, so no other code reads raw settings. It
//! is built from a tree of typed values (a file, environment variables, flags). One table of keys describes the tree;
//! the reference page and the JSON Schema are generated from the same table.

// This crate parses text from outside, so nothing here may panic.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::string_slice))]

pub mod key_support;
pub mod migrate;
pub mod reference;
pub mod reload;

mod admin;
mod api_keys;
mod backend_options;
mod broker;
mod duration;
mod files;
mod input;
mod keys;
mod logging;
mod matchmaking;
mod nearest;
mod opentelemetry;
mod origin;
mod problem;
mod profiling;
mod proxies;
mod publications;
mod reader;
mod redacted_settings;
mod redis;
mod relations;
mod resolve;
mod room_settings;
mod rooms;
mod secret_files;
mod settings;
mod tokens;
mod transports;
mod tree;
mod tree_text;
mod value;
mod variables;
mod webhooks;

use std::{
    collections::BTreeSet,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use dunlin_games::Registry;
use dunlin_net::{ClientEndpoint, ReactorOption, TlsFiles, TrustedProxies};
use dunlin_storage::StorageOptions;
use dunlin_token::TokenOptions;

pub use self::{
    admin::{AdminAccess, AdminOptions, ReplayOptions},
    api_keys::ApiKeys,
    backend_options::{ProxyOptions, StatusTransform, Transformed, WebhookKey, WebhookOptions},
    broker::BrokerSettings,
    input::{ConfigInput, Document, Flag},
    matchmaking::{LOBBY_KEY, LOBBY_REMOVAL, LobbySettings, MatchSettings},
    opentelemetry::{MetricsOptions, OpenTelemetryOptions, Sampler, TraceOptions},
    origin::AllowedOrigins,
    problem::{Problem, Problems, SettingSource},
    profiling::PyroscopeOptions,
    redacted_settings::ShownSetting,
    reload::{Changes, Loaded, NeedsRestart, Values},
    room_settings::{OverrunPolicy, PathSettings, RecordingSettings, RoomSettings, RoomSurvival, RoomsOptions},
    tree::Format,
};

/// The environment variable that sets a key; `None` for unknown keys and for keys in lists.
pub fn variable_of(path: &str) -> Option<String> {
    variables::variables_of_keys().into_iter().find(|(_, known)| known == path).map(|(variable, _)| variable)
}

/// The options of a node.
#[derive(Clone, Debug)]
pub struct Config {
    /// The configuration file; `None` if none was read.
    pub file: Option<String>,
    /// Options that the shards share.
    pub engine: Arc<dunlin_engine::Options>,
    /// Rooms.
    pub rooms: RoomsOptions,
    /// Matchmaking, by namespace.
    pub matchmaking: Vec<MatchSettings>,
    /// The lobbies, by namespace of the rooms.
    pub lobbies: Vec<LobbySettings>,
    /// Number of I/O threads, 1 to 256.
    pub shards: usize,
    /// The reactor of the shards.
    pub reactor: ReactorOption,
    /// Options of this node.
    pub node: NodeOptions,
    /// Options of sockets.
    pub net: NetOptions,
    /// Limits on new sessions.
    pub admission: AdmissionOptions,
    /// The public listener.
    pub http_server: HttpServerOptions,
    /// The WebSocket endpoint.
    pub websocket: WebSocketOptions,
    /// The other transports.
    pub transports: TransportOptions,
    /// Origins of pages that may open a WebSocket.
    pub allowed_origins: AllowedOrigins,
    /// The server API.
    pub http_api: HttpApiOptions,
    /// Path of the health check; `None` when it is off.
    pub health_prefix: Option<String>,
    /// Whether the health check fails while the node cannot use its cluster.
    pub health_requires_cluster: bool,
    /// Path of the metrics; `None` when they are off.
    pub prometheus_prefix: Option<String>,
    /// Maximum age of the shards' reports on the metrics page.
    pub prometheus_survey_age_max_ms: u64,
    /// Path of the debug page; `None` when it is off.
    pub debug_prefix: Option<String>,
    /// The console; `None` when it is off.
    pub admin: Option<AdminOptions>,
    /// Path of the API's `OpenAPI` description; `None` when it is off.
    pub swagger_prefix: Option<String>,
    /// Keys that verify tokens.
    pub token: TokenOptions,
    /// Backends; the engine's options refer to them by index.
    pub backends: Vec<ProxyOptions>,
    /// Where events of sessions, channels and rooms are sent; `None` if nowhere.
    pub webhooks: Option<WebhookOptions>,
    /// Where profiles are pushed; `None` if nowhere.
    pub pyroscope: Option<PyroscopeOptions>,
    /// Where traces and metrics are sent; `None` if nowhere.
    pub opentelemetry: Option<OpenTelemetryOptions>,
    /// Logging.
    pub log: LogOptions,
    /// Options of the shutdown.
    pub shutdown: ShutdownOptions,
    /// File for the process id while the node runs.
    pub pid_file: Option<PathBuf>,
    /// The storage; `None` if it has no path.
    pub storage: Option<StorageOptions>,
    /// Backups of the storage of a running node; `None` if they have no directory.
    pub backup: Option<StorageBackupSettings>,
    /// The NATS servers that connect the nodes of a cluster; `None` for a node on its own.
    pub broker: Option<BrokerSettings>,
    /// The demo: static pages; `None` if it is disabled.
    pub demo: Option<DemoOptions>,
}

/// Options of backups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageBackupSettings {
    /// The directory of the backups.
    pub path: PathBuf,
    /// Time between two scheduled backups; 0 for none.
    pub interval_ms: u64,
    /// Number of backups that are kept.
    pub backups_max: usize,
}

impl Default for Config {
    /// The configuration without any settings.
    fn default() -> Self {
        match Self::from_input(&ConfigInput::default()) {
            Ok((config, _)) => config,
            Err(problems) => unreachable!("the defaults are right: {problems}"),
        }
    }
}

impl Config {
    /// The options for `input` and the built-in simulations, with warnings.
    ///
    /// # Errors
    /// All errors in the configuration.
    pub fn from_input(input: &ConfigInput) -> Result<(Self, Vec<Problem>), Problems> {
        Self::with_registry(input, &Registry::built_in())
    }

    /// The options for `input` and these simulations, with warnings.
    ///
    /// # Errors
    /// All errors in the configuration.
    pub fn with_registry(input: &ConfigInput, registry: &Registry) -> Result<(Self, Vec<Problem>), Problems> {
        Self::read(input, registry, None).map(|loaded| (loaded.config, loaded.warnings))
    }

    /// As [`Self::with_registry`], with the values that were set.
    ///
    /// # Errors
    /// All errors in the configuration.
    pub fn load(input: &ConfigInput, registry: &Registry) -> Result<Loaded, Problems> {
        Self::read(input, registry, None)
    }

    /// As [`Self::load`], for a node that is about to start: also checks the files and directories in the
    /// configuration, and what the program was built with.
    ///
    /// # Errors
    /// All errors in the configuration, and all files that cannot be used.
    pub fn load_to_start(input: &ConfigInput, registry: &Registry, program: Program) -> Result<Loaded, Problems> {
        Self::read(input, registry, Some(program))
    }

    fn read(input: &ConfigInput, registry: &Registry, program: Option<Program>) -> Result<Loaded, Problems> {
        let mut problems = Problems::default();
        let settings = input.settings(&mut problems);
        let read = BTreeSet::new();
        let mut reader = resolve::Reader { settings: &settings, problems: &mut problems, registry, read };
        let mut config = resolve::config(&mut reader);
        if let Some(program) = program {
            files::check(&mut reader, &config, program);
        }
        config.file = input.document.as_ref().map(|document| document.name.clone());
        problems.name_tables(&settings);
        if !problems.errors.is_empty() {
            return Err(problems);
        }
        Ok(Loaded {
            config,
            warnings: problems.warnings,
            values: Values::of(&settings),
            has_document_settings: settings.has_document_settings,
            service_variables: settings.of_services,
        })
    }
}

/// The program that is about to start with a configuration.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Returns the reason if the pages of a directory cannot be served.
    pub check_site: fn(&Path) -> Result<(), String>,
    /// Whether it was built with a storage.
    pub has_storage: bool,
}

/// The warning about an empty `client.allowed_origins`.
pub const NO_PAGE_ADMITTED: &str = "client.allowed_origins is empty, so no page of a browser can connect; set it to the \
                                    origins of your pages, such as [\"https://example.com\"]";

impl Config {
    /// Whether clients can connect, but no browser page can.
    pub fn admits_no_page(&self) -> bool {
        let has_places = self.websocket.handler_prefix.is_some() || !self.transports.places.is_empty();
        has_places && self.demo.is_none() && self.allowed_origins.is_empty()
    }
}

/// Options of this node (`node.*`).
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// The node's name in the response to `info`; empty to use host name and port.
    pub name: String,
    /// Where matchmaking opens rooms for tickets with this region; empty for none.
    pub region: String,
}

/// Options of sockets and threads (`net.*`, `client.connection_limit`).
#[derive(Clone, Debug)]
pub struct NetOptions {
    /// Maximum number of concurrent WebSocket connections; further ones receive status 503. 0: limited only by the
    /// number of file descriptors.
    pub connections_max: usize,
    /// Number of unsent bytes in the kernel from which a socket counts as full (`TCP_NOTSENT_LOWAT`); 0 keeps the
    /// kernel's default.
    pub tcp_notsent_lowat_bytes: usize,
    /// Maximum number of connections in the accept queue of each listener.
    pub accept_backlog: u32,
    /// Maximum length of a request's head: request line and header fields.
    pub head_bytes_max: usize,
    /// Maximum length of a request line; not above that of the head.
    pub request_line_bytes_max: usize,
    /// Timeout for the head of a request.
    pub head_timeout_ms: u64,
    /// Maximum number of HTTP connections per port.
    pub http_connections_max: usize,
    /// Maximum number of HTTP connections per address and port; 0 for no limit.
    pub http_address_connections_max: usize,
    /// Additional HTTP connections per port that are reserved for operators' paths.
    pub http_reserved_connections_max: usize,
    /// File descriptors that connections on the public port leave for others; 0 to compute them.
    pub reserved_open_files: usize,
    /// Maximum time between two requests of an HTTP connection.
    pub idle_timeout_ms: u64,
    /// Time for a refused client to close its connection after the response.
    pub linger_timeout_ms: u64,
    /// Maximum number of connections per address and shard that have no session; 0 for no limit.
    pub pending_address_connections_max: u32,
    /// Maximum number of connections of each shard on `io_uring`, where they use no file descriptors; 0 to use file
    /// descriptors.
    pub shard_connections_max: u32,
    /// Maximum difference between the connections of a shard and of the emptiest shard; 0 for no limit.
    pub shard_imbalance_max: u32,
    /// Resident memory above which new sessions are refused; 0 for no limit.
    pub memory_bytes_max: u64,
    /// Maximum number of bytes read from one connection per turn.
    pub read_bytes_per_turn: usize,
    /// Capacity of a ring between two shards.
    pub ring_messages_max: usize,
    /// Maximum number of the control thread's requests that wait for a shard.
    pub inbox_requests_max: usize,
}

/// Limits on new sessions (`client.connection_rate_limit` and others).
#[derive(Clone, Debug)]
pub struct AdmissionOptions {
    /// Handshakes per second and node; further ones receive status 503. 0 for no limit.
    pub handshakes_per_second: u32,
    /// Concurrent sessions per IPv4 address or IPv6 /64; further ones receive status 429. 0 for no limit.
    pub source_sessions_max: u32,
    /// Handshakes per second and address; further ones receive status 429. 0 for no limit.
    pub source_handshakes_per_second: u32,
    /// Maximum number of addresses without a session that are remembered for their rate.
    pub idle_sources_max: usize,
    /// Proxies whose `X-Forwarded-For` is trusted.
    pub trusted_proxies: TrustedProxies,
}

impl Default for AdmissionOptions {
    fn default() -> Self {
        Self {
            handshakes_per_second: 0,
            source_sessions_max: 0,
            source_handshakes_per_second: 0,
            idle_sources_max: 65_536,
            trusted_proxies: TrustedProxies::default(),
        }
    }
}

/// Options of the listener (`http_server.*`).
#[derive(Clone, Debug)]
pub struct HttpServerOptions {
    /// `None` for all interfaces, IPv6 and IPv4.
    pub address: Option<IpAddr>,
    /// TCP port; 0 for any free one.
    pub port: u16,
    /// The internal port; `None` if the public port serves all endpoints.
    pub internal: Option<InternalListener>,
    /// TLS of the public port; `None` without TLS.
    pub tls: Option<TlsFiles>,
}

/// The internal port (`http_server.internal_address`, `http_server.internal_port`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InternalListener {
    /// `None` for all interfaces, IPv6 and IPv4.
    pub address: Option<IpAddr>,
    /// TCP port.
    pub port: u16,
}

/// Options of the WebSocket endpoint (`websocket.*`).
#[derive(Clone, Debug)]
pub struct WebSocketOptions {
    /// Path of the endpoint; `None` when it is off.
    pub handler_prefix: Option<String>,
    /// Limits of one client.
    pub limits: dunlin_websocket::WebSocketLimits,
    /// Whether permessage-deflate is offered.
    pub compression: bool,
}

/// Transports other than the WebSocket.
#[derive(Clone, Debug)]
pub struct TransportOptions {
    /// The enabled transports with their paths.
    pub places: Vec<ClientEndpoint>,
    /// The endpoint for commands in separate HTTP requests; `None` if no transport needs it.
    pub emulation: Option<EmulationOptions>,
    /// Path of the endpoint that tests the connection; `None` when it is off.
    pub init_prefix: Option<String>,
    /// Limits of one client of `uni_websocket`.
    pub uni_websocket_limits: dunlin_websocket::WebSocketLimits,
    /// Maximum number of queued bytes per session from separate HTTP requests.
    pub mail_bytes_max: usize,
}

/// Options of the emulation endpoint (`emulation.*`).
#[derive(Clone, Debug)]
pub struct EmulationOptions {
    /// The path.
    pub handler_prefix: String,
    /// Maximum length of a request's body.
    pub body_bytes_max: usize,
}

/// Options of the server API (`http_api.*`).
#[derive(Clone, Debug)]
pub struct HttpApiOptions {
    /// Path prefix of the methods; `None` when the API is off.
    pub handler_prefix: Option<String>,
    /// Serves the API on the public port even if there is an internal port.
    pub external: bool,
    /// Who may use the API.
    pub access: ApiAccess,
    /// Maximum length of a request's body.
    pub request_bytes_max: usize,
    /// Maximum number of concurrent requests; further ones receive status 503.
    pub requests_max: usize,
    /// Timeout for the shards' responses.
    pub timeout_ms: u64,
    /// Report API errors as HTTP statuses.
    pub transport_errors: bool,
    /// Maximum number of channels in a broadcast.
    pub broadcast_channels_max: usize,
    /// Maximum number of commands in a batch.
    pub batch_commands_max: usize,
}

/// Who may use the server API.
#[derive(Clone, Debug)]
pub enum ApiAccess {
    /// Nobody: neither a key nor `insecure` is set. Requests receive status 401.
    Nobody,
    /// Callers with one of these keys.
    Keys(ApiKeys),
    /// Everyone who can reach the port (`http_api.insecure`).
    Everyone,
}

/// Options of logging (`log.*`).
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// The minimum level of Dunlin's own lines.
    pub level: LogLevel,
    /// The minimum level of libraries' lines, if that is higher.
    pub library_level: LogLevel,
    /// The log file; `None` for standard error.
    pub file: Option<PathBuf>,
    /// Maximum number of queued lines.
    pub lines_max: usize,
}

/// The minimum level of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogLevel {
    /// Nothing.
    None,
    /// Errors only.
    Error,
    /// Warnings and above.
    Warn,
    /// Information for operators and above.
    #[default]
    Info,
    /// Information for developers and above.
    Debug,
    /// All lines.
    Trace,
}

/// Options of the shutdown (`shutdown.*`).
#[derive(Clone, Copy, Debug)]
pub struct ShutdownOptions {
    /// Time to close all sessions, after which the remaining ones are cut off.
    pub timeout_ms: u64,
    /// Time before the shutdown in which only the health check reports it.
    pub delay_ms: u64,
    /// Sessions closed per second; 0 to choose a rate from the timeout.
    pub sessions_per_second: u32,
}

/// Options of the demo (`demo.*`).
#[derive(Clone, Debug)]
pub struct DemoOptions {
    /// Directory of the pages served at `/`.
    pub dir: PathBuf,
    /// Whether visitors get tokens of guests.
    pub has_guests: bool,
}

#[cfg(test)]
mod tests;
