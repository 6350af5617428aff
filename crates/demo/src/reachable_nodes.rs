//! The nodes of the server, what they refuse, and whether one of them answers.

use std::{
    fmt,
    net::SocketAddr,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::{key::KEY, report};

/// How long no request succeeds before that is reported. A server that starts takes a moment.
const SILENCE: Duration = Duration::from_secs(5);

/// The addresses of the nodes, which all threads share.
pub struct Nodes {
    pub addresses: Box<[SocketAddr]>,
    silence: Mutex<Silence>,
}

/// The time since the last success.
#[derive(Debug, Default)]
struct Silence {
    /// When the first request failed after it; `None` if none did.
    since: Option<Instant>,
    is_reported: bool,
}

/// A request that a node refuses for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub node: SocketAddr,
    /// An error code of the protocol, a code of a room, or an HTTP status.
    pub code: u32,
    pub message: Box<str>,
}

impl Nodes {
    pub fn new(addresses: &[SocketAddr]) -> Self {
        Self { addresses: addresses.into(), silence: Mutex::default() }
    }

    /// A request has succeeded.
    pub fn succeeded(&self) {
        if self.silence().succeeded() {
            report(format_args!("the server answers again"));
        }
    }

    /// A request to a node has failed, and is tried again.
    pub fn failed(&self, node: SocketAddr, why: &dyn fmt::Display) {
        if self.silence().failed(Instant::now()) {
            report(format_args!(
                "--node {node}: no request has succeeded for {} s ({why}): start the server there, give the address of another one, or \
                 read its log; trying again",
                SILENCE.as_secs()
            ));
        }
    }

    /// Whether requests have failed since the last success.
    #[cfg(test)]
    pub fn is_silent(&self) -> bool {
        self.silence().since.is_some()
    }

    fn silence(&self) -> std::sync::MutexGuard<'_, Silence> {
        self.silence.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Silence {
    /// Returns whether the silence that ends was reported.
    fn succeeded(&mut self) -> bool {
        std::mem::take(self).is_reported
    }

    /// Returns whether the silence is to be reported now.
    fn failed(&mut self, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        let is_due = !self.is_reported && now >= since + SILENCE;
        self.is_reported |= is_due;
        is_due
    }
}

impl Refusal {
    /// Reports that something was refused in a channel, and the remedy.
    pub fn report(&self, what: &str, channel: &str) {
        report(format_args!("{what} in {channel} is refused: {}", self.remedy(channel)));
    }

    /// The setting, its value, and what to do.
    fn remedy(&self, channel: &str) -> String {
        let Self { node, code, message } = self;
        let namespace = channel.split_once(':').map_or("", |(namespace, _)| namespace);
        match code {
            102 | 103 | 107 | 108 => format!(
                "--node {node} answers {message:?} ({code}): its configuration needs the namespace {namespace:?} of demo/config.json"
            ),
            401 => format!(
                "--node {node} does not accept the key (HTTP 401): set {KEY} to http_api.key of its configuration"
            ),
            404 => format!(
                "--node {node} has no such path (HTTP 404): give the address of a Dunlin server, with http_server.internal_port if it has \
                 one, and without http_api.disabled"
            ),
            421 => format!("--node {node} answers {message:?} ({code}): name that node in the first --node"),
            _ => format!("--node {node} answers {message:?} ({code}): read its log"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silence_is_reported_once() {
        let (mut silence, start) = (Silence::default(), Instant::now());
        assert!(!silence.succeeded());
        assert!(!silence.failed(start));
        assert!(!silence.failed(start + SILENCE.saturating_sub(Duration::from_millis(1))));
        assert_eq!([0, 1].map(|more| silence.failed(start + SILENCE + Duration::from_secs(more))), [true, false]);
        assert_eq!([(); 2].map(|()| silence.succeeded()), [true, false]);
        assert!(!silence.failed(start + SILENCE * 2), "another silence begins");
    }

    #[test]
    fn a_refusal_names_the_setting_its_value_and_the_remedy() {
        let node = SocketAddr::from(([127, 0, 0, 1], 8000));
        for (code, words) in [
            (102, ["--node 127.0.0.1:8000", "\"why\" (102)", "the namespace \"ticker\" of demo/config.json"]),
            (401, ["--node 127.0.0.1:8000", "HTTP 401", "set DUNLIN_HTTP_API_KEY to http_api.key"]),
            (404, ["--node 127.0.0.1:8000", "HTTP 404", "http_server.internal_port"]),
            (421, ["--node 127.0.0.1:8000", "\"why\" (421)", "in the first --node"]),
            (112, ["--node 127.0.0.1:8000", "\"why\" (112)", "read its log"]),
        ] {
            let remedy = Refusal { node, code, message: "why".into() }.remedy("ticker:ACME");
            assert!(words.iter().all(|words| remedy.contains(words)), "{remedy}");
        }
    }
}
