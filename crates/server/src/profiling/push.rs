//! Sends profiles to the server, each once.

use std::{fmt::Write as _, sync::Arc, time::Duration};

use bytes::Bytes;
use dunlin_config::PyroscopeOptions;
use dunlin_profiles::SAMPLES_PER_SECOND;
use http_body_util::{BodyExt as _, Limited};
use hyper::header::HeaderMap;
use tokio::time::timeout;

use super::{PushOutcome, Recorded, Shared};
use crate::{backend::Endpoint, telemetry::profile_events::ProfileLost};

/// How much of a response is read: the reason of a refusal, and so that the connection can be used again.
const RESPONSE_BYTES_MAX: usize = 4_096;

/// The work of the sending thread.
pub(super) struct Pusher {
    endpoint: Endpoint,
    /// The application with its tags, as the server reads it: `dunlin{env=production}`, percent-encoded.
    name: String,
    headers: HeaderMap,
    timeout: Duration,
    shared: Arc<Shared>,
}

impl Pusher {
    /// # Errors
    /// Why the address or a certificate cannot be used.
    pub(super) fn new(options: &PyroscopeOptions, node: &str, shared: Arc<Shared>) -> Result<Self, String> {
        let endpoint = Endpoint::new(&options.endpoint, options.tls.as_deref(), 1)?;
        let name = percent_encoded(&labels(options, node));
        let timeout = Duration::from_millis(options.timeout_ms);
        Ok(Self { endpoint, name, headers: options.headers.clone(), timeout, shared })
    }

    pub(super) async fn run(self) {
        while !self.shared.is_stopped() {
            match self.shared.take() {
                Some(recorded) => self.push(recorded).await,
                None => self.shared.changed.notified().await,
            }
        }
    }

    async fn push(&self, recorded: Recorded) {
        let Recorded { kind, pprof, from_unix_s, until_unix_s } = recorded;
        let query = format!(
            "format=pprof&name={}&from={from_unix_s}&until={until_unix_s}&sampleRate={SAMPLES_PER_SECOND}&spyName=dunlin",
            self.name
        );
        let (outcome, why) = match timeout(self.timeout, self.exchange(&query, pprof.into())).await {
            Err(_) => (PushOutcome::Timeout, "no response in time".to_owned()),
            Ok(Err(why)) => (PushOutcome::Unreachable, why),
            Ok(Ok((status, text))) => (PushOutcome::of_status(status), format!("status {status}: {text}")),
        };
        self.shared.counters.count(kind, outcome);
        if outcome != PushOutcome::Taken {
            ProfileLost { kind: kind.name(), outcome: outcome.name(), why: &why }.emit();
        }
    }

    /// Returns the status of the response, and the beginning of its text.
    async fn exchange(&self, query: &str, pprof: Bytes) -> Result<(u16, String), String> {
        let response = self.endpoint.post_binary(query, self.headers.clone(), pprof).await?;
        let status = response.status().as_u16();
        // The status has decided already. An error only costs the text and the connection.
        let body = Limited::new(response.into_body(), RESPONSE_BYTES_MAX).collect().await;
        let text = body.map(|body| String::from_utf8_lossy(&body.to_bytes()).trim().to_owned()).unwrap_or_default();
        Ok((status, self.scrubbed(&text)))
    }

    /// A text without what the header fields and the URL keep secret.
    pub(super) fn scrubbed(&self, text: &str) -> String {
        let secrets = self.headers.values().filter_map(|value| value.to_str().ok());
        let text = secrets.fold(text.to_owned(), |text, secret| text.replace(secret, "…"));
        self.endpoint.scrub(&text)
    }
}

/// The application with its tags, and that of the node.
fn labels(options: &PyroscopeOptions, node: &str) -> String {
    let mut tags: Vec<_> = options.tags.iter().map(|(name, value)| format!("{name}={value}")).collect();
    if !node.is_empty() && !options.tags.iter().any(|(name, _)| name == "node") {
        tags.push(format!("node={}", node.replace([',', '{', '}'], "_")));
    }
    let PyroscopeOptions { application_name, .. } = options;
    if tags.is_empty() { application_name.clone() } else { format!("{application_name}{{{}}}", tags.join(",")) }
}

fn percent_encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}
