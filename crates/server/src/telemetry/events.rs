//! What is worth a log line: an event is a struct, and its `emit` is the one place that knows level, wording and fields.
//!
//! No event holds a payload, a token or a key. What comes from outside is written through [`Outside`]. Events whose cause
//! lies outside are told at most once a second each, with the number of those that were not told.

use std::{fmt, io, net::SocketAddr, path::Path, sync::OnceLock, time::Duration, time::Instant};

use dunlin_protocol::ErrorCode;
use tracing::{error, info, warn};

use super::{api_counters::HttpRefusal, log::Outside, throttle::Throttle};
use crate::{http::api::Method, rooms::FailureReason};

/// The node accepts connections.
pub struct NodeStarted<'a> {
    /// Where.
    pub address: SocketAddr,
    /// The server's version.
    pub version: &'a str,
    /// The node's name.
    pub name: &'a str,
    /// How many shards.
    pub shards: usize,
    /// What they wait on.
    pub reactor: &'a str,
    /// Why on that.
    pub reactor_reason: &'a str,
}

impl NodeStarted<'_> {
    /// Tells it.
    pub fn emit(&self) {
        info!(address = %self.address, version = self.version, node = %Outside(self.name), shards = self.shards,
            reactor = self.reactor, reactor_reason = self.reactor_reason, "dunlin is listening");
    }
}

/// A set of public keys for tokens was fetched.
pub struct KeysFetched<'a> {
    /// From where.
    pub url: &'a str,
    /// How many of its keys can be used.
    pub keys: usize,
}

impl KeysFetched<'_> {
    /// Tells it.
    pub fn emit(&self) {
        info!(url = %Outside(self.url), keys = self.keys, "keys for tokens were fetched");
    }
}

/// A set of public keys for tokens could not be fetched. It is tried at most once a second.
pub struct KeysNotFetched<'a> {
    /// From where.
    pub url: &'a str,
    /// Why not.
    pub why: &'a dyn fmt::Display,
}

impl KeysNotFetched<'_> {
    /// Tells it.
    pub fn emit(&self) {
        let why = self.why.to_string();
        warn!(url = %Outside(self.url), why = %Outside(&why), "keys for tokens could not be fetched");
    }
}

/// A backend did not answer, or not as it should.
pub struct BackendFailed<'a> {
    /// The proxy's place in the configuration.
    pub proxy: &'a str,
    /// What was asked.
    pub kind: &'a str,
    /// What came of it.
    pub outcome: &'a str,
    /// Why.
    pub why: &'a dyn fmt::Display,
}

impl BackendFailed<'_> {
    /// Tells it, at most once a second.
    pub fn emit(&self) {
        static THROTTLE: Throttle = Throttle::new();
        let Some(suppressed) = THROTTLE.admit(now_s()) else { return };
        let why = self.why.to_string();
        warn!(proxy = self.proxy, kind = self.kind, outcome = self.outcome, why = %Outside(&why), suppressed,
            "a backend failed");
    }
}

/// There is an internal port.
pub struct InternalPort {
    /// Where.
    pub address: SocketAddr,
}

impl InternalPort {
    /// Tells it.
    pub fn emit(&self) {
        info!(address = %self.address, "the internal port is open");
    }
}

/// The settings leave a door open that an operator should know of.
pub struct OpenDoor {
    /// Which, as the key that opens it.
    pub key: &'static str,
    /// What it means.
    pub meaning: &'static str,
}

impl OpenDoor {
    /// Tells it.
    pub fn emit(&self) {
        warn!(key = self.key, "{}", self.meaning);
    }
}

/// A key that others than its owner may read.
pub struct OpenKeyFile<'a> {
    /// Where it is.
    pub path: &'a Path,
}

impl OpenKeyFile<'_> {
    /// Tells it.
    pub fn emit(&self) {
        warn!(path = %Outside(&self.path.to_string_lossy()), "others than its owner may read the key of TLS; make its mode 0600");
    }
}

/// Certificates were read again.
pub struct CertificatesRenewed<'a> {
    /// Why those from before are still shown, if they are.
    pub error: Option<&'a dyn std::fmt::Display>,
}

impl CertificatesRenewed<'_> {
    /// Tells it.
    pub fn emit(&self) {
        match self.error {
            None => info!("new connections are shown the certificates that were just read"),
            Some(error) => warn!(%error, "certificates could not be read again; those from before are still shown"),
        }
    }
}

/// The demonstration runs.
pub struct DemoStarted<'a> {
    /// Where its pages lie.
    pub dir: &'a Path,
    /// Where to look at it.
    pub address: SocketAddr,
}

impl DemoStarted<'_> {
    /// Tells it.
    pub fn emit(&self) {
        info!(dir = %Outside(&self.dir.to_string_lossy()), url = %format_args!("http://{}/", self.address),
            "the demonstration is on: anyone who reaches the port may look at it");
    }
}

/// The demonstration's publisher was refused, and ends.
pub struct DemoRefused<'a> {
    /// Where it wanted to publish.
    pub channel: &'a str,
    /// Why it may not.
    pub error: ErrorCode,
}

impl DemoRefused<'_> {
    /// Tells it.
    pub fn emit(&self) {
        error!(
            channel = self.channel,
            error = self.error.message(),
            "the demonstration cannot publish its prices; it needs the namespaces of demo/config.json"
        );
    }
}

/// The demonstration's players were refused, and end.
pub struct DemoBotsRefused<'a> {
    /// Where they wanted to play.
    pub room: &'a str,
    /// The code of the error.
    pub code: u32,
}

impl DemoBotsRefused<'_> {
    /// Tells it.
    pub fn emit(&self) {
        error!(
            channel = self.room,
            code = self.code,
            "the demonstration's players are not let in; they need the namespaces of demo/config.json"
        );
    }
}

/// A signal asks the node to go.
pub struct ShutdownBegun {
    /// The signal's name.
    pub signal: &'static str,
    /// How long sessions may take.
    pub timeout: Duration,
}

impl ShutdownBegun {
    /// Tells it.
    pub fn emit(&self) {
        info!(signal = self.signal, timeout_s = self.timeout.as_secs_f64(), "closing sessions with 3001 (shutdown)");
    }
}

/// The node has gone.
pub struct ShutdownEnded {
    /// Sessions that were cut off at the deadline.
    pub sessions_cut: u32,
}

impl ShutdownEnded {
    /// Tells it.
    pub fn emit(&self) {
        if self.sessions_cut == 0 {
            info!("all sessions are closed");
        } else {
            warn!(sessions = self.sessions_cut, "cut off sessions that did not take their last frames in time");
        }
    }
}

/// A second signal ends the process at once.
pub struct ShutdownForced {
    /// The signal's name.
    pub signal: &'static str,
}

impl ShutdownForced {
    /// Tells it.
    pub fn emit(&self) {
        warn!(signal = self.signal, "a second signal: stopping at once");
    }
}

/// All shard threads ended although nobody asked them to.
pub struct NodeLost;

impl NodeLost {
    /// Tells it.
    pub fn emit(&self) {
        error!("the shards have stopped answering");
    }
}

/// An HTTP connection or request was refused.
pub struct HttpRefused<'a> {
    /// Why.
    pub reason: HttpRefusal,
    /// Who.
    pub peer: Option<SocketAddr>,
    /// What was wrong, without anything of the request's content.
    pub detail: &'a dyn fmt::Display,
}

impl HttpRefused<'_> {
    /// Tells it, at most once a second for each reason.
    pub fn emit(&self) {
        static THROTTLES: [Throttle; HttpRefusal::ALL.len()] = [const { Throttle::new() }; HttpRefusal::ALL.len()];
        let Some(suppressed) = THROTTLES.get(self.reason as usize).and_then(|throttle| throttle.admit(now_s())) else {
            return;
        };
        warn!(reason = self.reason.name(), peer = self.peer.map(tracing::field::display), suppressed,
            detail = %self.detail, "refused an HTTP request");
    }
}

/// A request of the server API asks for what this version does not have.
pub struct ApiFieldUnsupported {
    /// The method.
    pub method: Method,
    /// The field, or the whole method.
    pub field: &'static str,
}

impl ApiFieldUnsupported {
    /// Tells it, at most once a second.
    pub fn emit(&self) {
        static THROTTLE: Throttle = Throttle::new();
        if let Some(suppressed) = THROTTLE.admit(now_s()) {
            warn!(
                method = self.method.name(),
                field = self.field,
                suppressed,
                "the API was asked for what this version does not support; answered 108"
            );
        }
    }
}

/// A room ended that nobody closed.
pub struct RoomFailed<'a> {
    /// Its channel.
    pub channel: &'a str,
    /// Its simulation's name.
    pub simulation: &'a str,
    /// Why.
    pub reason: FailureReason,
    /// What the simulation said, or what was measured.
    pub detail: &'a str,
}

impl RoomFailed<'_> {
    /// Tells it, at most once a second.
    pub fn emit(&self) {
        static THROTTLE: Throttle = Throttle::new();
        if let Some(suppressed) = THROTTLE.admit(now_s()) {
            error!(channel = %Outside(self.channel), simulation = %Outside(self.simulation),
                reason = self.reason.name(), suppressed, detail = %Outside(self.detail),
                "a room failed; its players are unsubscribed with 2510 and may come back to a new one");
        }
    }
}

/// A thread that a game held up could not be replaced; it is tried again.
pub struct RoomThreadMissing<'a> {
    /// The thread's number.
    pub thread: u16,
    /// Why.
    pub source: &'a io::Error,
}

impl RoomThreadMissing<'_> {
    /// Tells it, at most once a second.
    pub fn emit(&self) {
        static THROTTLE: Throttle = Throttle::new();
        if let Some(suppressed) = THROTTLE.admit(now_s()) {
            error!(thread = self.thread, error = %self.source, suppressed, "cannot replace a room thread; its rooms stand still");
        }
    }
}

/// A recording ended before its room.
pub struct RecordingCut<'a> {
    /// The file.
    pub path: &'a Path,
    /// Why it could not be written; `None` if it was not written fast enough.
    pub source: Option<&'a io::Error>,
}

impl RecordingCut<'_> {
    /// Tells it, at most once a second.
    pub fn emit(&self) {
        static THROTTLE: Throttle = Throttle::new();
        if let Some(suppressed) = THROTTLE.admit(now_s()) {
            warn!(file = %Outside(&self.path.to_string_lossy()), error = self.source.map(tracing::field::display), suppressed,
                "a room's recording ends before the room: the disk was too slow, or failed");
        }
    }
}

/// Clients did, in the time that was looked at, what an operator may want to know.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ClientsMisbehaved {
    /// The time that was looked at.
    pub interval_s: u64,
    /// Messages that were not of the protocol.
    pub malformed_frames: u64,
    /// Breaches of the WebSocket protocol.
    pub violations: u64,
    /// Sessions that read too slowly.
    pub slow_sessions: u64,
    /// Connections that were refused.
    pub refused: u64,
    /// The most frequent reason of those.
    pub refused_mostly: &'static str,
    /// Connections that could not be accepted.
    pub accept_failures: u64,
}

impl ClientsMisbehaved {
    /// Tells it, if there is anything to tell.
    pub fn emit(&self) {
        let nothing = Self { interval_s: self.interval_s, refused_mostly: self.refused_mostly, ..Self::default() };
        if *self != nothing {
            warn!(
                interval_s = self.interval_s,
                malformed_frames = self.malformed_frames,
                violations = self.violations,
                slow_sessions = self.slow_sessions,
                refused = self.refused,
                refused_mostly = self.refused_mostly,
                accept_failures = self.accept_failures,
                "clients were closed or refused"
            );
        }
    }
}

/// Seconds since the first event, for [`Throttle`].
fn now_s() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_secs()
}
