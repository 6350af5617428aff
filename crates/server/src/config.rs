//! Configuration: what was typed, and what it means.
//!
//! [`Config`] is the meaning. Everything in it is parsed, defaulted and checked; whoever holds one looks at no raw
//! setting again. It comes from a tree of typed text (a file, environment variables, flags), and the tree is read by one
//! table of keys, from which the reference page and the JSON Schema are written as well.

// Text from outside is read here: no way of reading may end the process.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::string_slice))]

pub mod holding;
pub mod reference;

mod duration;
mod input;
mod keys;
mod nearest;
mod origin;
mod problem;
mod proxies;
mod publications;
mod relations;
mod resolve;
mod rooms;
mod secret;
mod settings;
mod tokens;
mod transports;
mod tree;
mod value;

use std::{collections::BTreeSet, net::IpAddr, path::PathBuf, sync::Arc};

use dunlin_games::Registry;
use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConstantTimeEq as _};

use crate::tls::TlsFiles;
use crate::{
    net::{Place, ReactorWish},
    node::AdmissionOptions,
    rooms::RoomsOptions,
};

use crate::{
    backend::ProxyOptions,
    token::{JwksOptions, PublicKey, Rules},
};

pub use self::{
    input::{Document, Flag, Input},
    origin::AllowedOrigins,
    problem::{Problem, Problems, Source},
    secret::Secret,
    tree::Format,
};

/// A node's settings.
#[derive(Clone, Debug)]
pub struct Config {
    /// What the shards share.
    pub engine: Arc<dunlin_engine::Options>,
    /// Rooms.
    pub rooms: RoomsOptions,
    /// I/O threads; at least 1 and at most 256.
    pub shards: usize,
    /// What the shards wait on.
    pub reactor: ReactorWish,
    /// This node.
    pub node: NodeOptions,
    /// Sockets.
    pub net: NetOptions,
    /// Who may come in, and how fast.
    pub admission: AdmissionOptions,
    /// The listener that sockets and HTTP share.
    pub http_server: HttpServerOptions,
    /// The WebSocket endpoint.
    pub websocket: WebSocketOptions,
    /// How else clients come.
    pub transports: TransportOptions,
    /// Which pages may open a WebSocket.
    pub allowed_origins: AllowedOrigins,
    /// The server API.
    pub http_api: HttpApiOptions,
    /// Path of the health check; `None` when it is off.
    pub health_prefix: Option<String>,
    /// Path of the metrics; `None` when they are off.
    pub prometheus_prefix: Option<String>,
    /// How old what the shards reported may be on the page of metrics.
    pub prometheus_survey_age_max_ms: u64,
    /// Path of the page of what the shards hold; `None` when it is off.
    pub debug_prefix: Option<String>,
    /// Path of the API's description; `None` when it is off.
    pub swagger_prefix: Option<String>,
    /// Keys that tokens are verified with.
    pub token: TokenOptions,
    /// Backends that are asked; their places are those that the engine's options name.
    pub backends: Vec<ProxyOptions>,
    /// Logging.
    pub log: LogOptions,
    /// How the node goes.
    pub shutdown: ShutdownOptions,
    /// File that holds the process id while the node runs.
    pub pid_file: Option<PathBuf>,
    /// The demonstration: static pages and a publisher; `None` outside of demonstrations.
    pub demo: Option<DemoOptions>,
}

impl Default for Config {
    /// What a node does whose operator sets nothing.
    fn default() -> Self {
        match Self::from_input(&Input::default()) {
            Ok((config, _)) => config,
            Err(problems) => unreachable!("the defaults are right: {problems}"),
        }
    }
}

impl Config {
    /// What `input` means with the simulations that come with Dunlin, and what is odd about it.
    ///
    /// # Errors
    /// All that keeps it from having a meaning.
    pub fn from_input(input: &Input) -> Result<(Self, Vec<Problem>), Problems> {
        Self::with_registry(input, &Registry::built_in())
    }

    /// What `input` means with these simulations, and what is odd about it.
    ///
    /// # Errors
    /// All that keeps it from having a meaning.
    pub fn with_registry(input: &Input, registry: &Registry) -> Result<(Self, Vec<Problem>), Problems> {
        let mut problems = Problems::default();
        let settings = input.settings(&mut problems);
        let read = BTreeSet::new();
        let mut reader = resolve::Reader { settings: &settings, problems: &mut problems, registry, read };
        let config = resolve::config(&mut reader);
        if problems.errors.is_empty() { Ok((config, problems.warnings)) } else { Err(problems) }
    }
}

/// Options of this node (`node.*`).
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// Its name, as told by the API's `info`; empty for one made of host name and port.
    pub name: String,
}

/// Options of sockets and threads (`net.*`, `client.connection_limit`).
#[derive(Clone, Debug)]
pub struct NetOptions {
    /// WebSocket connections of the node at a time, the next of which is answered with 503; 0 leaves it to the number of files.
    pub connections_max: usize,
    /// Unsent bytes in the kernel from which a socket counts as full (`TCP_NOTSENT_LOWAT`); 0 leaves the kernel's.
    pub tcp_notsent_lowat_bytes: usize,
    /// Connections that each listener's kernel queue holds.
    pub accept_backlog: u32,
    /// Bytes of a request's head: request line and header fields.
    pub head_bytes_max: usize,
    /// Bytes of a request's first line; at most those of the head.
    pub request_line_bytes_max: usize,
    /// Time for a request's head to come.
    pub head_timeout_ms: u64,
    /// Connections of the HTTP server at a time.
    pub http_connections_max: usize,
    /// Time that an HTTP connection may wait between two requests.
    pub idle_timeout_ms: u64,
    /// Time for a refused client to hang up after it was answered.
    pub linger_timeout_ms: u64,
    /// Connections that a shard may have more than the emptiest one; 0 for any number.
    pub shard_imbalance_max: u32,
    /// Resident memory of the process from which nobody is let in; 0 for no bound.
    pub memory_bytes_max: u64,
    /// Bytes read from one connection before the next has its turn.
    pub read_bytes_per_turn: usize,
    /// Messages in one ring between two shards.
    pub ring_messages_max: usize,
    /// Requests of the control thread that wait for a shard.
    pub inbox_requests_max: usize,
}

/// Options of the listener (`http_server.*`).
#[derive(Clone, Debug)]
pub struct HttpServerOptions {
    /// `None` for all interfaces, IPv6 and IPv4.
    pub address: Option<IpAddr>,
    /// TCP port; 0 for any free one.
    pub port: u16,
    /// The port for what clients have no business with; `None` when that is on the one port as well.
    pub internal: Option<InternalDoor>,
    /// What TLS on the port for clients shows; `None` without TLS.
    pub tls: Option<TlsFiles>,
}

/// The internal port (`http_server.internal_address`, `http_server.internal_port`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InternalDoor {
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
    /// What one client may make the node hold.
    pub limits: dunlin_websocket::Limits,
    /// Whether messages are compressed where the client can.
    pub compression: bool,
}

/// Transports beside the WebSocket.
#[derive(Clone, Debug)]
pub struct TransportOptions {
    /// Those that are on, and where.
    pub places: Vec<Place>,
    /// Where commands come in by requests of their own; `None` if no transport needs that.
    pub emulation: Option<EmulationOptions>,
    /// Path of the endpoint that does nothing but answer; `None` where it is off.
    pub init_prefix: Option<String>,
    /// What one client of `uni_websocket` may make the node hold.
    pub uni_websocket_limits: dunlin_websocket::Limits,
    /// Bytes of commands that wait for a session, come by requests of their own.
    pub mail_bytes_max: usize,
}

/// Commands that come by requests of their own (`emulation.*`).
#[derive(Clone, Debug)]
pub struct EmulationOptions {
    /// The path.
    pub handler_prefix: String,
    /// Bytes of a request's body.
    pub body_bytes_max: usize,
}

/// Options of the server API (`http_api.*`).
#[derive(Clone, Debug)]
pub struct HttpApiOptions {
    /// Path under which the methods lie; `None` when the API is off.
    pub handler_prefix: Option<String>,
    /// It is on the public port, although there is an internal one.
    pub external: bool,
    /// Who may use it.
    pub access: ApiAccess,
    /// Bytes of a request's body.
    pub request_bytes_max: usize,
    /// Requests being answered at the same time; one more is answered with 503.
    pub requests_max: usize,
    /// Time for the shards to answer.
    pub timeout_ms: u64,
    /// Errors are told by the HTTP status.
    pub transport_errors: bool,
    /// Channels in one broadcast.
    pub broadcast_channels_max: usize,
    /// Commands in one batch.
    pub batch_commands_max: usize,
}

/// Who may use the server API.
#[derive(Clone, Debug)]
pub enum ApiAccess {
    /// Nobody: neither a key nor `insecure` is set. Requests get 401.
    Nobody,
    /// Who knows a key.
    Keys(ApiKeys),
    /// Everyone who reaches the port (`http_api.insecure`).
    Everyone,
}

/// The keys that open the server API, as their SHA-256 hashes: what is compared says nothing of the key, its length
/// included.
#[derive(Clone)]
pub struct ApiKeys(Vec<[u8; 32]>);

impl ApiKeys {
    /// Each of these.
    pub fn new<'a>(keys: impl IntoIterator<Item = &'a Secret>) -> Self {
        Self(keys.into_iter().map(|key| Sha256::digest(key.reveal()).into()).collect())
    }

    /// Whether what was offered is one of them, in a time that does not tell how near it came, or to which.
    pub fn admit(&self, offered: &[u8]) -> bool {
        let offered: [u8; 32] = Sha256::digest(offered).into();
        self.0.iter().fold(Choice::from(0), |found, key| found | key.ct_eq(&offered)).into()
    }
}

impl std::fmt::Debug for ApiKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ApiKeys({})", self.0.len())
    }
}

/// Keys of tokens (`client.token.*`, `client.subscription_token.*`).
#[derive(Clone, Debug)]
pub struct TokenOptions {
    /// Of connection tokens.
    pub connection: TokenKeys,
    /// Of subscription tokens; `None` for those of connection tokens.
    pub subscription: Option<TokenKeys>,
    /// Tokens that may wait for their signature by a public key to be checked, or for keys.
    pub waiting_max: usize,
    /// Bytes of tokens that are remembered once such a signature was checked.
    pub cache_bytes_max: usize,
}

impl Default for TokenOptions {
    /// Without a key.
    fn default() -> Self {
        let (connection, subscription) = (TokenKeys::default(), None);
        Self { connection, subscription, waiting_max: 65_536, cache_bytes_max: 1 << 26 }
    }
}

/// Keys of one kind of token. With no key no token is valid.
#[derive(Clone, Debug, Default)]
pub struct TokenKeys {
    /// The key.
    pub hmac: Option<Secret>,
    /// The key before it.
    pub hmac_previous: Option<Secret>,
    /// Unix time in seconds until which the previous key counts; `None` for without end.
    pub hmac_previous_valid_until_s: Option<u64>,
    /// The public key of RS256, RS384 and RS512.
    pub rsa: Option<PublicKey>,
    /// The public key of ES256, ES384 or ES512, as its curve says.
    pub ecdsa: Option<PublicKey>,
    /// Where a set of public keys is published. With it no other key counts.
    pub jwks: Option<Arc<JwksOptions>>,
    /// What else a token has to be.
    pub rules: Rules,
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

/// How a node goes (`shutdown.*`).
#[derive(Clone, Copy, Debug)]
pub struct ShutdownOptions {
    /// Time to close all sessions in, and to give up on those that do not take their last frames.
    pub timeout_ms: u64,
    /// Time before that in which only the health check tells of it.
    pub delay_ms: u64,
    /// Sessions closed in a second; 0 for as many as it takes.
    pub sessions_per_second: u32,
}

/// Options of the demonstration (`demo.*`).
#[derive(Clone, Debug)]
pub struct DemoOptions {
    /// Directory of the pages served at `/`.
    pub dir: PathBuf,
    /// Players for the arena.
    pub bots: usize,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{
        keys::{Groups, Key, Kind, Support},
        value::Value,
        *,
    };

    /// Every key that is judged by itself, with its path, and then the others if asked for.
    fn each(groups: Groups, prefix: &str, inherited_too: bool, visit: &mut dyn FnMut(&str, &'static Key)) {
        let mut seen = BTreeSet::new();
        for key in keys::names(groups) {
            let path = if prefix.is_empty() { key.name.to_owned() } else { format!("{prefix}.{}", key.name) };
            assert!(seen.insert(key.name), "{path} is there twice");
            let judged = matches!(key.support, Support::Yes | Support::Own) || inherited_too;
            match key.kind {
                Kind::Table(inner) if judged => each(inner, &path, inherited_too, visit),
                Kind::Tables(inner) if judged => each(inner, &format!("{path}[]"), inherited_too, visit),
                _ => {}
            }
            visit(&path, key);
        }
    }

    #[test]
    fn every_supported_key_is_read_and_no_other() {
        let input = Input {
            document: Some(Document {
                name: "test.json".to_owned(),
                format: Format::Json,
                text: r#"{"channel": {"namespaces": [{"name": "chat"}]}, "rpc": {"namespaces": [{"name": "app"}]},
                    "proxies": [{"name": "main", "endpoint": "http://127.0.0.1/"}],
                    "client": {"connect_code_to_unidirectional_disconnect": {"transforms": [{"code": 100}]}}}"#
                    .to_owned(),
            }),
            ..Input::default()
        };
        let mut problems = Problems::default();
        let settings = input.settings(&mut problems);
        let (registry, read) = (Registry::built_in(), BTreeSet::new());
        let mut reader = resolve::Reader { settings: &settings, problems: &mut problems, registry: &registry, read };
        resolve::config(&mut reader);
        let mut read = reader.read;
        each(keys::ROOT, "", false, &mut |path, key| {
            let supported = matches!(key.support, Support::Yes | Support::Own);
            if supported && !matches!(key.kind, Kind::Table(_) | Kind::Tables(_)) {
                assert!(read.remove(path), "{path} is called supported and read by nobody");
            }
        });
        assert!(read.is_empty(), "read, but not called supported: {read:?}");
    }

    #[test]
    fn every_key_has_a_default_and_a_description() {
        each(keys::ROOT, "", true, &mut |path, key| {
            match key.kind {
                Kind::Table(_) | Kind::Tables(_) => assert_eq!(key.default, "", "{path}"),
                _ => drop(Value::default_of(key)),
            }
            let own_words = matches!(key.support, Support::Yes | Support::Own);
            assert_eq!(own_words, !key.doc.is_empty(), "{path}");
            assert!(!own_words || key.doc.ends_with('.'), "{path}");
        });
    }

    #[test]
    fn every_variable_sets_one_key() {
        let mut by_name = BTreeMap::new();
        for (name, path) in input::variables_of_keys() {
            assert_eq!(by_name.insert(name.clone(), path.clone()), None, "{name}: {path}");
        }
        assert_eq!(by_name["DUNLIN_CLIENT_TOKEN_HMAC_SECRET_KEY"], "client.token.hmac_secret_key");
        assert_eq!(by_name["DUNLIN_CHANNEL_NAMESPACES"], "channel.namespaces");
    }

    #[test]
    fn the_defaults_are_those_of_the_engine() {
        let config = Config::default();
        let engine = dunlin_engine::Options::default();
        assert_eq!(format!("{:?}", config.engine.client), format!("{:?}", engine.client));
        assert_eq!(format!("{:?}", config.engine.channel), format!("{:?}", engine.channel));
        let without_namespace = dunlin_engine::options::NamespaceOptions {
            history_meta_ttl_ms: 720 * 3_600_000,
            ..engine.without_namespace
        };
        assert_eq!(format!("{:?}", config.engine.without_namespace), format!("{without_namespace:?}"));
        assert_eq!(config.websocket.limits, dunlin_websocket::Limits::default());
        assert!(matches!(config.http_api.access, ApiAccess::Nobody));
        assert!(config.token.connection.hmac.is_none());
        assert!((1..=256).contains(&config.shards));
    }
}
