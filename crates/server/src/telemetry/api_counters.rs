//! Counters of the control thread: API requests and HTTP connections.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::http::api::{ApiError, Method};

/// Counters of the control thread.
#[derive(Default)]
pub struct ControlCounters {
    requests: PerMethod<AtomicU64>,
    /// By [`ApiError::index`].
    errors: PerMethod<[AtomicU64; ApiError::INDICES]>,
    refused: [AtomicU64; HttpRefusal::ALL.len()],
    connections: AtomicU64,
    /// Recordings that the console has open.
    replays: AtomicU64,
    /// Successful and failed reloads of certificates.
    certificates: [AtomicU64; 2],
    /// Successful and failed backups of the storage.
    backups: [AtomicU64; 2],
    /// Failures to delete old backups.
    undeleted_backups: AtomicU64,
    /// Unix seconds.
    last_backup_s: AtomicU64,
    reloads: [AtomicU64; ReloadOutcome::ALL.len()],
    /// Unix seconds.
    last_reload_s: AtomicU64,
    /// `net.memory_limit`, which a reload can change; 0 for none.
    memory_bytes_max: AtomicU64,
}

/// One value for each method. Arrays of this length do not implement `Default`.
struct PerMethod<T>([T; Method::ALL.len()]);

impl<T: Default> Default for PerMethod<T> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| T::default()))
    }
}

/// The result of a configuration reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReloadOutcome {
    /// Some keys have changed or require a restart.
    Applied,
    /// The configuration is unchanged.
    Unchanged,
    /// The configuration is invalid.
    Refused,
}

impl ReloadOutcome {
    /// All results, in the order of the counters.
    pub const ALL: [Self; 3] = [Self::Applied, Self::Unchanged, Self::Refused];

    /// The result as a metric label.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Unchanged => "unchanged",
            Self::Refused => "refused",
        }
    }
}

/// Why an HTTP connection or request was refused before it was handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpRefusal {
    /// The limit on HTTP connections is reached.
    Connections,
    /// The limit on HTTP connections per address is reached.
    AddressConnections,
    /// The longest idle connection was closed in favor of another one.
    GaveWay,
    /// The limit on concurrent API requests is reached.
    Busy,
    /// The API key is missing or wrong.
    Unauthorized,
    /// The request body exceeds `http_api.request_size_limit`.
    BodyTooLarge,
    /// The body did not arrive in time.
    BodyTimeout,
    /// The body is not JSON, or does not have the method's format.
    Malformed,
    /// An invalid WebSocket handshake on a kept-alive connection.
    Handshake,
    /// A page of another site: a handshake with an origin that is not allowed, or a request to the console, or to the API with
    /// `http_api.insecure`.
    Origin,
    /// A limit on new sessions is reached.
    Admission,
    /// The connection was idle for too long.
    Idle,
    /// The head of a request did not arrive in time.
    HeadTimeout,
    /// A limit on requests that are forwarded to other nodes is reached.
    Forwards,
    /// A password of the console is wrong, or was not judged because too many have been wrong.
    SignIn,
    /// A recording was not opened in the console: `admin.replays_limit` or `admin.sign_in_replays_limit` is reached.
    Replays,
}

impl HttpRefusal {
    /// All reasons, in the order of the counters.
    pub const ALL: [Self; 16] = [
        Self::Connections,
        Self::AddressConnections,
        Self::GaveWay,
        Self::Busy,
        Self::Unauthorized,
        Self::BodyTooLarge,
        Self::BodyTimeout,
        Self::Malformed,
        Self::Handshake,
        Self::Origin,
        Self::Admission,
        Self::Idle,
        Self::HeadTimeout,
        Self::Forwards,
        Self::SignIn,
        Self::Replays,
    ];

    /// The reason as a metric label and in logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::AddressConnections => "address_connections",
            Self::GaveWay => "gave_way",
            Self::Busy => "busy",
            Self::Unauthorized => "unauthorized",
            Self::BodyTooLarge => "body_too_large",
            Self::BodyTimeout => "body_timeout",
            Self::Malformed => "malformed",
            Self::Handshake => "handshake",
            Self::Origin => "origin",
            Self::Admission => "admission",
            Self::Idle => "idle",
            Self::HeadTimeout => "head_timeout",
            Self::Forwards => "forwards",
            Self::SignIn => "sign_in",
            Self::Replays => "replays",
        }
    }
}

impl ControlCounters {
    /// Sets how many recordings the console has open.
    pub fn set_replays(&self, open: usize) {
        self.replays.store(open as u64, Ordering::Relaxed);
    }

    /// How many recordings the console has open.
    pub fn replays(&self) -> u64 {
        self.replays.load(Ordering::Relaxed)
    }

    /// Sets `net.memory_limit`.
    pub fn set_memory_bytes_max(&self, bytes_max: u64) {
        self.memory_bytes_max.store(bytes_max, Ordering::Relaxed);
    }

    /// `net.memory_limit`; 0 for none.
    pub fn memory_bytes_max(&self) -> u64 {
        self.memory_bytes_max.load(Ordering::Relaxed)
    }

    /// Counts a request and its error, if any.
    pub fn count_request(&self, method: Method, error: Option<&ApiError>) {
        add(self.requests.0.get(method as usize));
        if let Some(error) = error {
            add(self.errors.0.get(method as usize).and_then(|codes| codes.get(error.index())));
        }
    }

    /// Adds one to the counter of this reason.
    pub fn count_refusal(&self, reason: HttpRefusal) {
        add(self.refused.get(reason as usize));
    }

    /// Counts a configuration reload.
    pub fn count_reload(&self, outcome: ReloadOutcome, now_s: u64) {
        add(self.reloads.get(outcome as usize));
        if outcome != ReloadOutcome::Refused {
            self.last_reload_s.store(now_s, Ordering::Relaxed);
        }
    }

    /// The number of configuration reloads with this result.
    pub fn reloads(&self, outcome: ReloadOutcome) -> u64 {
        load(self.reloads.get(outcome as usize))
    }

    /// Unix time in seconds of the last successful reload; 0 before the first.
    pub fn last_reload_s(&self) -> u64 {
        self.last_reload_s.load(Ordering::Relaxed)
    }

    /// Counts a reload of certificates.
    pub fn count_certificates(&self, is_renewed: bool) {
        add(self.certificates.get(usize::from(!is_renewed)));
    }

    /// The number of successful or failed reloads of certificates.
    pub fn certificates(&self, is_renewed: bool) -> u64 {
        load(self.certificates.get(usize::from(!is_renewed)))
    }

    /// Counts a backup of the storage that was made at this time.
    pub fn count_backup(&self, made_s: u64) {
        add(self.backups.first());
        self.last_backup_s.store(made_s, Ordering::Relaxed);
    }

    /// Counts a backup of the storage that failed.
    pub fn count_failed_backup(&self) {
        add(self.backups.get(1));
    }

    /// Counts a failure to delete old backups.
    pub fn count_undeleted_backups(&self) {
        self.undeleted_backups.fetch_add(1, Ordering::Relaxed);
    }

    /// How often old backups could not be deleted.
    pub fn undeleted_backups(&self) -> u64 {
        self.undeleted_backups.load(Ordering::Relaxed)
    }

    /// The number of successful or failed backups of the storage.
    pub fn backups(&self, is_made: bool) -> u64 {
        load(self.backups.get(usize::from(!is_made)))
    }

    /// Unix time in seconds of the newest backup; 0 if none is known.
    pub fn last_backup_s(&self) -> u64 {
        self.last_backup_s.load(Ordering::Relaxed)
    }

    /// Stores the time of the newest backup, which is read from the directory at the start.
    pub fn note_last_backup(&self, made_s: u64) {
        self.last_backup_s.store(made_s, Ordering::Relaxed);
    }

    /// Counts a new connection.
    pub fn connection_opened(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the end of a connection.
    pub fn connection_closed(&self) {
        let before = self.connections.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "a connection is closed once");
    }

    /// The number of open connections.
    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    /// The number of requests of a method.
    pub fn requests(&self, method: Method) -> u64 {
        load(self.requests.0.get(method as usize))
    }

    /// The errors of a method by code; codes that have not occurred are omitted. Those of games count as one.
    pub fn errors(&self, method: Method) -> impl Iterator<Item = (u32, u64)> + '_ {
        let counts = self.errors.0.get(method as usize).into_iter().flatten();
        let counts = counts.map(|count| count.load(Ordering::Relaxed));
        ApiError::CODES.into_iter().chain([ApiError::GAME_CODE]).zip(counts).filter(|(_, count)| *count > 0)
    }

    /// The number of refusals for a reason.
    pub fn refused(&self, reason: HttpRefusal) -> u64 {
        load(self.refused.get(reason as usize))
    }
}

fn add(count: Option<&AtomicU64>) {
    if let Some(count) = count {
        count.fetch_add(1, Ordering::Relaxed);
    }
}

fn load(count: Option<&AtomicU64>) -> u64 {
    count.map_or(0, |count| count.load(Ordering::Relaxed))
}
