//! Sends profiles to the server, each once.

use std::{fmt::Write as _, sync::Arc};

use dunlin_config::PyroscopeOptions;
use dunlin_profiles::SAMPLES_PER_SECOND;

use super::{PushOutcome, Recorded, Shared};
use crate::{
    backend::{NoResponse, PushTarget},
    telemetry::profile_events::ProfileLost,
};

/// The work of the sending thread.
pub(super) struct Pusher {
    target: PushTarget,
    /// The application with its tags, as the server reads it: `dunlin{env=production}`, percent-encoded.
    name: String,
    shared: Arc<Shared>,
}

impl Pusher {
    /// # Errors
    /// Why the address or a certificate cannot be used.
    pub(super) fn new(options: &PyroscopeOptions, node: &str, shared: Arc<Shared>) -> Result<Self, String> {
        let PyroscopeOptions { endpoint, tls, headers, timeout_ms, .. } = options;
        let target = PushTarget::new(endpoint, tls.as_deref(), headers.clone(), *timeout_ms)?;
        Ok(Self { target, name: percent_encoded(&labels(options, node)), shared })
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
        let (outcome, why) = match self.target.post("application/octet-stream", Some(&query), pprof.into()).await {
            Err(NoResponse::Timeout) => (PushOutcome::Timeout, "no response in time".to_owned()),
            Err(NoResponse::Unreachable(why)) => (PushOutcome::Unreachable, why),
            Ok((head, body)) => {
                let (status, text) = (head.status.as_u16(), String::from_utf8_lossy(&body));
                (PushOutcome::of_status(status), format!("status {status}: {}", self.target.scrubbed(text.trim())))
            }
        };
        self.shared.counters.count(kind, outcome);
        if outcome != PushOutcome::Taken {
            ProfileLost { kind: kind.name(), outcome: outcome.name(), why: &why }.emit();
        }
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
