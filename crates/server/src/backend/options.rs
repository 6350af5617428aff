//! How a backend is asked.

use std::sync::Arc;

use dunlin_protocol::Disconnect;
use hyper::{HeaderMap, Uri};

use crate::config::Secret;

/// One proxy of the configuration.
#[derive(Clone, Debug)]
pub struct ProxyOptions {
    /// Its place in the configuration, for metrics and logs: `client.proxy.connect`, `proxies.NAME`.
    pub label: String,
    /// Where requests go: an `http` or `https` address.
    pub endpoint: Uri,
    /// Time for a question, from the request to the end of the answer.
    pub timeout_ms: u64,
    /// Lower-case names of the header fields of a session's own request that are passed on.
    pub http_headers: Vec<Box<str>>,
    /// Header fields of every request, over those that are passed on.
    pub static_headers: HeaderMap,
    /// What statuses other than 200 mean.
    pub transforms: Vec<StatusTransform>,
    /// Application bytes go as base64, and need not be JSON.
    pub binary_encoding: bool,
    /// Backends are told what the token or the connect hook said for them alone.
    pub include_meta: bool,
    /// The client's side of TLS, where it is not as usual.
    pub tls: Option<Arc<ClientTls>>,
    /// Questions at a time; one more is answered at once.
    pub requests_max: usize,
    /// Bytes of an answer.
    pub response_bytes_max: usize,
    /// Failures in a row after which the backend is left alone; 0 for never.
    pub breaker_failures_max: u32,
    /// How long.
    pub breaker_pause_ms: u64,
}

impl ProxyOptions {
    /// With the configuration's defaults.
    pub fn new(label: impl Into<String>, endpoint: Uri) -> Self {
        Self {
            label: label.into(),
            endpoint,
            timeout_ms: 1_000,
            http_headers: Vec::new(),
            static_headers: HeaderMap::new(),
            transforms: Vec::new(),
            binary_encoding: false,
            include_meta: false,
            tls: None,
            requests_max: 256,
            response_bytes_max: 1 << 20,
            breaker_failures_max: 20,
            breaker_pause_ms: 1_000,
        }
    }
}

/// The client's side of TLS (`http.tls`).
#[derive(Clone, Debug, Default)]
pub struct ClientTls {
    /// Certificates of the authorities that count, as PEM; empty for those of the system.
    pub server_ca_pem: String,
    /// The client's own certificate, as PEM; empty for none.
    pub cert_pem: String,
    /// Its key, as PEM.
    pub key_pem: Option<Secret>,
    /// The name that the server's certificate has to have; empty for that of the endpoint.
    pub server_name: String,
    /// Believe any certificate. For development.
    pub insecure_skip_verify: bool,
}

/// What a status means (`http.status_to_code_transforms`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusTransform {
    /// The status.
    pub status: u16,
    /// What it means.
    pub to: Transformed,
}

/// What a client is told of a status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transformed {
    /// An error.
    Error {
        /// Its code, 100 to 1,999.
        code: u16,
        /// What to say.
        message: Box<str>,
        /// Whether to try again.
        temporary: bool,
    },
    /// To go.
    Disconnect(Disconnect),
}
