//! Options of a backend.

use std::{fmt, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use dunlin_engine::lifecycle::LifecycleKinds;
use dunlin_net::ClientTls;
use dunlin_protocol::Disconnect;
use dunlin_token::SecretUrl;
use hyper::HeaderMap;

/// One proxy of the configuration.
#[derive(Clone, Debug)]
pub struct ProxyOptions {
    /// Its name in metrics and logs: `client.proxy.connect`, `proxies.NAME`.
    pub label: String,
    /// The URL of the backend, `http` or `https`.
    pub endpoint: SecretUrl,
    /// Timeout from the request to the end of the response.
    pub timeout_ms: u64,
    /// Lower-case names of header fields that are forwarded from the session's own HTTP request.
    pub http_headers: Vec<Box<str>>,
    /// Whether `x-real-ip` and `x-forwarded-for`, if they are forwarded, contain the address that the server
    /// determined.
    pub trusts_proxies: bool,
    /// Header fields of every request. They override forwarded fields. Their values are marked as sensitive.
    pub static_headers: HeaderMap,
    /// Mappings of statuses other than 200.
    pub transforms: Vec<StatusTransform>,
    /// Encodes application data as base64, so that it need not be JSON.
    pub binary_encoding: bool,
    /// Sends `meta` of the connection to the backend.
    pub include_meta: bool,
    /// TLS options that differ from the defaults.
    pub tls: Option<Arc<ClientTls>>,
    /// Maximum number of concurrent requests; further ones fail at once.
    pub requests_max: usize,
    /// Maximum length of a response.
    pub response_bytes_max: usize,
    /// Number of consecutive failures that open the circuit breaker; 0 for never.
    pub breaker_failures_max: u32,
    /// How long the circuit breaker stays open.
    pub breaker_pause_ms: u64,
}

impl ProxyOptions {
    /// Options with the default values.
    pub fn new(label: impl Into<String>, endpoint: SecretUrl) -> Self {
        Self {
            label: label.into(),
            endpoint,
            timeout_ms: 1_000,
            http_headers: Vec::new(),
            trusts_proxies: false,
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

/// A mapping of an HTTP status (`http.status_to_code_transforms`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusTransform {
    /// HTTP status of the response, other than 200.
    pub status: u16,
    /// The mapped result.
    pub to: Transformed,
}

/// The error or disconnect that clients receive for an HTTP status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transformed {
    /// The command fails with this error.
    Error {
        /// The code, 100 to 1,999.
        code: u16,
        /// The message for the client.
        message: Box<str>,
        /// Whether the client should retry.
        temporary: bool,
    },
    /// The session is closed.
    Disconnect(Disconnect),
}

/// Where events of sessions, channels and rooms are sent (`webhooks.*`).
#[derive(Clone, Debug)]
pub struct WebhookOptions {
    /// The URL of the backend, `http` or `https`.
    pub endpoint: SecretUrl,
    /// The kinds of events that the backend wants.
    pub kinds: LifecycleKinds,
    /// The keys of the signatures: the current one, and the previous one if there is one.
    pub keys: Vec<WebhookKey>,
    /// Timeout of a request.
    pub timeout_ms: u64,
    /// Maximum number of events in a request.
    pub batch_events_max: usize,
    /// Time to wait for more events.
    pub batch_wait_ms: u64,
    /// Maximum number of events that wait.
    pub queue_events_max: usize,
    /// Maximum bytes of events that wait.
    pub queue_bytes_max: usize,
    /// How long events are sent again.
    pub retry_timeout_ms: u64,
    /// Maximum time between two attempts.
    pub retry_delay_ms_max: u64,
    /// Header fields of every request. Their values are marked as sensitive.
    pub static_headers: HeaderMap,
    /// TLS options that differ from the defaults.
    pub tls: Option<Arc<ClientTls>>,
}

/// A key of signatures. Its `Debug` output omits it.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookKey(Vec<u8>);

impl WebhookKey {
    /// Reads `whsec_`, followed by 24 to 64 bytes in base64, as the Standard Webhooks specification recommends.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = STANDARD.decode(text.strip_prefix("whsec_")?).ok()?;
        (24..=64).contains(&bytes.len()).then_some(Self(bytes))
    }

    /// The bytes of the key, for cryptographic functions.
    pub fn reveal(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for WebhookKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WebhookKey(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_24_to_64_bytes_in_base64_behind_its_prefix() {
        let text = |bytes: usize| format!("whsec_{}", STANDARD.encode(vec![7; bytes]));
        for (bytes, is_key) in [(23, false), (24, true), (64, true), (65, false)] {
            assert_eq!(WebhookKey::parse(&text(bytes)).map(|key| key.reveal().len()), is_key.then_some(bytes));
        }
        let bare = STANDARD.encode([7; 32]);
        assert!([&*bare, "whsec_", "whsec_not base64", ""].iter().all(|text| WebhookKey::parse(text).is_none()));
        assert!(!format!("{:?}", WebhookKey::parse(&text(32))).contains('7'));
    }
}
