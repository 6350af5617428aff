//! Log events. An event is a struct, and its `emit` determines level, message and fields.
//!
//! No event contains a payload, a token or a key. Text from outside is written through [`Outside`]. Events that
//! clients can cause are logged at most once per second each, with the number of suppressed ones.

use std::{
    collections::BTreeSet,
    fmt, io,
    net::SocketAddr,
    path::Path,
    sync::{Mutex, OnceLock, PoisonError},
    time::{Duration, Instant},
};

use tracing::{error, info, warn};

use super::{api_counters::HttpRefusal, log::Outside, throttle::Throttle};
use crate::{http::api::Method, rooms::FailureReason};

/// The node accepts connections.
pub struct NodeStarted<'a> {
    /// Address and port of the listener.
    pub address: SocketAddr,
    /// The server's version.
    pub version: &'a str,
    /// The node's name.
    pub name: &'a str,
    /// The number of shards.
    pub shards: usize,
    /// The shards' reactor.
    pub reactor: &'a str,
    /// Why this reactor was chosen.
    pub reactor_reason: &'a str,
    /// What the storage has, if there is one.
    pub storage: Option<&'a str>,
}

impl NodeStarted<'_> {
    /// Logs it.
    pub fn emit(&self) {
        info!(address = %self.address, version = self.version, node = %Outside(self.name), shards = self.shards,
            reactor = self.reactor, reactor_reason = self.reactor_reason, storage = self.storage, "dunlin is listening");
    }
}

/// The source of the configuration.
pub struct ConfigurationRead<'a> {
    /// The configuration file, if one was read.
    pub file: Option<&'a str>,
}

impl ConfigurationRead<'_> {
    /// Logs it.
    pub fn emit(&self) {
        if let Some(file) = self.file {
            info!(file = %Outside(file), "configuration file loaded");
        } else {
            info!("no configuration file found; using the environment, flags and defaults");
        }
    }
}

/// A backend request failed.
pub struct BackendFailed<'a> {
    /// The proxy's name in the configuration.
    pub proxy: &'a str,
    /// The kind of request.
    pub kind: &'a str,
    /// The result.
    pub outcome: &'a str,
    /// The error, unescaped.
    pub why: &'a dyn fmt::Display,
}

impl BackendFailed<'_> {
    /// Logs it, at most once a second.
    pub fn emit(&self) {
        static THROTTLE: Throttle = Throttle::new();
        let Some(suppressed) = THROTTLE.admit(now_s()) else { return };
        let why = self.why.to_string();
        warn!(proxy = self.proxy, kind = self.kind, outcome = self.outcome, why = %Outside(&why), suppressed,
            "backend request failed");
    }
}

/// The node listens on the internal port.
pub struct InternalPort {
    /// Address and port of the listener.
    pub address: SocketAddr,
}

impl InternalPort {
    /// Logs it.
    pub fn emit(&self) {
        info!(address = %self.address, "listening on the internal port");
    }
}

/// A setting is insecure.
pub struct InsecureSetting {
    /// The key.
    pub key: &'static str,
    /// The consequence.
    pub meaning: &'static str,
}

impl InsecureSetting {
    /// Logs it.
    pub fn emit(&self) {
        warn!(key = self.key, "{}", self.meaning);
    }
}

/// Users other than the owner can read the private key.
pub struct OpenKeyFile<'a> {
    /// Path of the key file.
    pub path: &'a Path,
}

impl OpenKeyFile<'_> {
    /// Logs it.
    pub fn emit(&self) {
        warn!(path = %Outside(&self.path.to_string_lossy()), "users other than its owner can read the TLS key file; \
            change its mode to 0600");
    }
}

/// The certificates were reloaded.
pub struct CertificatesRenewed<'a> {
    /// Why the reload failed and the old certificates stay in use; `None` if it succeeded.
    pub error: Option<&'a dyn std::fmt::Display>,
}

impl CertificatesRenewed<'_> {
    /// Logs it.
    pub fn emit(&self) {
        match self.error {
            None => info!("certificates reloaded; new connections use them"),
            Some(error) => warn!(%error, "failed to reload certificates; the old ones stay in use"),
        }
    }
}

/// The demo is running.
pub struct DemoStarted<'a> {
    /// The directory of its pages.
    pub dir: &'a Path,
    /// The address of the pages.
    pub address: SocketAddr,
}

impl DemoStarted<'_> {
    /// Logs it.
    pub fn emit(&self) {
        info!(dir = %Outside(&self.dir.to_string_lossy()), url = %format_args!("http://{}/", self.address),
            "demo pages enabled: anyone who can reach the port can see them");
    }
}

/// A signal started the shutdown.
pub struct ShutdownBegun {
    /// The signal's name.
    pub signal: &'static str,
    /// The maximum duration of the shutdown.
    pub timeout: Duration,
}

impl ShutdownBegun {
    /// Logs it.
    pub fn emit(&self) {
        info!(signal = self.signal, timeout_s = self.timeout.as_secs_f64(), "closing sessions with 3001 (shutdown)");
    }
}

/// The shutdown is complete.
pub struct ShutdownEnded {
    /// Number of sessions that were cut off at the timeout.
    pub sessions_cut: u32,
}

impl ShutdownEnded {
    /// Logs it.
    pub fn emit(&self) {
        if self.sessions_cut == 0 {
            info!("all sessions are closed");
        } else {
            warn!(sessions = self.sessions_cut, "sessions cut off at the shutdown timeout with unsent frames");
        }
    }
}

/// The process ends before its database is closed.
pub struct StorageStillOpen;

impl StorageStillOpen {
    /// Logs it.
    pub fn emit(&self) {
        warn!(
            "the process ends while a thread uses its database. What was stored is safe; a room that was being saved goes on at its last checkpoint"
        );
    }
}

/// A second signal ends the process at once.
pub struct ShutdownForced {
    /// The signal's name.
    pub signal: &'static str,
}

impl ShutdownForced {
    /// Logs it.
    pub fn emit(&self) {
        warn!(signal = self.signal, "second signal; exiting immediately");
    }
}

/// All shard threads have ended unexpectedly.
pub struct NodeLost;

impl NodeLost {
    /// Logs it.
    pub fn emit(&self) {
        error!("the shards have stopped");
    }
}

/// An HTTP connection or request was refused.
pub struct HttpRefused<'a> {
    /// Selects the counter and the throttle.
    pub reason: HttpRefusal,
    /// `None` if the socket is closed already.
    pub peer: Option<SocketAddr>,
    /// The reason, without any content of the request.
    pub detail: &'a dyn fmt::Display,
}

impl HttpRefused<'_> {
    /// Logs it, at most once a second for each reason.
    pub fn emit(&self) {
        static THROTTLES: [Throttle; HttpRefusal::ALL.len()] = [const { Throttle::new() }; HttpRefusal::ALL.len()];
        let Some(suppressed) = THROTTLES.get(self.reason as usize).and_then(|throttle| throttle.admit(now_s())) else {
            return;
        };
        info!(reason = self.reason.name(), peer = self.peer.map(tracing::field::display), suppressed,
            detail = %self.detail, "HTTP request refused");
    }
}

/// An API request uses an unsupported method or field.
pub struct ApiFieldUnsupported {
    /// The requested API method.
    pub method: Method,
    /// The field, or the whole method.
    pub field: &'static str,
}

impl ApiFieldUnsupported {
    /// Logs it, at most once a second.
    pub fn emit(&self) {
        static THROTTLE: Throttle = Throttle::new();
        if let Some(suppressed) = THROTTLE.admit(now_s()) {
            warn!(
                method = self.method.name(),
                field = self.field,
                suppressed,
                "unsupported API method or field; error 108"
            );
        }
    }
}

/// The body of an API request has a field that the method does not have. It has no effect.
pub struct ApiFieldUnknown {
    /// The requested API method.
    pub method: Method,
    /// The path of the field in the body. It comes from outside.
    pub field: String,
}

impl ApiFieldUnknown {
    /// Maximum number of fields that are logged in the life of the process.
    const FIELDS_MAX: usize = 100;

    /// Logs it once for each field of a method.
    pub fn emit(self) {
        static LOGGED: Mutex<BTreeSet<(&'static str, String)>> = Mutex::new(BTreeSet::new());
        let mut logged = LOGGED.lock().unwrap_or_else(PoisonError::into_inner);
        let Self { method, field } = self;
        if logged.len() < Self::FIELDS_MAX && logged.insert((method.name(), field.clone())) {
            warn!(method = method.name(), field = %Outside(&field), "unknown field in an API request; it is ignored");
        }
    }
}

/// A room has failed.
pub struct RoomFailed<'a> {
    /// Channel of the room, unescaped.
    pub channel: &'a str,
    /// Its simulation's name.
    pub simulation: &'a str,
    /// Also the label of `dunlin_rooms_failed_total`.
    pub reason: FailureReason,
    /// The simulation's message, or the measured value.
    pub detail: &'a str,
}

impl RoomFailed<'_> {
    /// Logs it, at most once a second.
    pub fn emit(&self) {
        static THROTTLE: Throttle = Throttle::new();
        if let Some(suppressed) = THROTTLE.admit(now_s()) {
            let reason = self.reason.name();
            if self.reason.keeps_checkpoint() {
                error!(channel = %Outside(self.channel), simulation = %Outside(self.simulation), reason, suppressed,
                    detail = %Outside(self.detail), "room failed; its checkpoint is kept");
            } else {
                error!(channel = %Outside(self.channel), simulation = %Outside(self.simulation), reason, suppressed,
                    detail = %Outside(self.detail),
                    "room failed; players are unsubscribed with 2510 and can rejoin a new room");
            }
        }
    }
}

/// A room thread that is stuck in a game could not be replaced. Another attempt follows.
pub struct RoomThreadMissing<'a> {
    /// The index of the thread.
    pub thread: u16,
    /// The error of the operating system.
    pub source: &'a io::Error,
}

impl RoomThreadMissing<'_> {
    /// Logs it, at most once a second.
    pub fn emit(&self) {
        static THROTTLE: Throttle = Throttle::new();
        if let Some(suppressed) = THROTTLE.admit(now_s()) {
            error!(thread = self.thread, error = %self.source, suppressed, "cannot replace a room thread; its rooms \
                do not tick");
        }
    }
}

/// The thread that returns freed memory to the operating system could not be started.
pub struct NoTrim<'a> {
    /// The error of the operating system.
    pub source: &'a io::Error,
}

impl NoTrim<'_> {
    /// Logs it.
    pub fn emit(&self) {
        warn!(error = %self.source, "cannot start the thread that returns freed memory to the operating system");
    }
}

/// The room builder's thread, which is stuck in a game, could not be replaced. Another attempt follows.
pub struct RoomBuilderMissing<'a> {
    /// The error of the operating system.
    pub source: &'a io::Error,
}

impl RoomBuilderMissing<'_> {
    /// Logs it, at most once a second.
    pub fn emit(&self) {
        static THROTTLE: Throttle = Throttle::new();
        if let Some(suppressed) = THROTTLE.admit(now_s()) {
            error!(error = %self.source, suppressed, "cannot replace the room builder's thread; no rooms can open");
        }
    }
}

/// A recording ended before its room.
pub struct RecordingCut<'a> {
    /// The file.
    pub path: &'a Path,
    /// The reason, as in the metric.
    pub reason: &'static str,
    /// The error; `None` if the disk was too slow, or `record_bytes_max` is reached.
    pub source: Option<&'a io::Error>,
}

impl RecordingCut<'_> {
    /// Logs it, at most once a second.
    pub fn emit(&self) {
        static THROTTLE: Throttle = Throttle::new();
        if let Some(suppressed) = THROTTLE.admit(now_s()) {
            warn!(file = %Outside(&self.path.to_string_lossy()), reason = self.reason,
                error = self.source.map(tracing::field::display), suppressed,
                "the recording of a room ended early: the disk was too slow or failed, or room.record_bytes_max is reached");
        }
    }
}

/// A recording was not deleted for its limits. It is tried again.
pub struct RecordingUndeleted<'a> {
    /// The file.
    pub path: &'a Path,
    /// The error.
    pub source: &'a io::Error,
}

impl RecordingUndeleted<'_> {
    /// Logs it, at most once a second.
    pub fn emit(&self) {
        static THROTTLE: Throttle = Throttle::new();
        if let Some(suppressed) = THROTTLE.admit(now_s()) {
            warn!(file = %Outside(&self.path.to_string_lossy()), error = %self.source, suppressed,
                "cannot delete an old recording");
        }
    }
}

/// Recordings were deleted for a limit of their directory since the last line.
pub struct RecordingsDeleted<'a> {
    /// The directory.
    pub path: &'a Path,
    /// Number of files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The option that asked for it.
    pub key: &'static str,
}

impl RecordingsDeleted<'_> {
    /// Logs it. A look at the directory, once a minute, has one line for each option.
    pub fn emit(&self) {
        info!(directory = %Outside(&self.path.to_string_lossy()), files = self.files, bytes = self.bytes, key = self.key,
            "recordings of rooms were deleted");
    }
}

/// The limits of a directory with recordings cannot be kept, because it cannot be read.
pub struct RecordingsUnread<'a> {
    /// The directory.
    pub path: &'a Path,
    /// The error.
    pub source: &'a io::Error,
}

impl RecordingsUnread<'_> {
    /// Logs it, at most once a second.
    pub fn emit(&self) {
        static THROTTLE: Throttle = Throttle::new();
        if let Some(suppressed) = THROTTLE.admit(now_s()) {
            warn!(directory = %Outside(&self.path.to_string_lossy()), error = %self.source, suppressed,
                "cannot read the directory of recordings: old ones are not deleted");
        }
    }
}

/// Seconds since the first event, for [`Throttle`].
pub(super) fn now_s() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_secs()
}
