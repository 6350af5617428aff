//! The limit on open file descriptors. Each connection uses one, at least while it is accepted, and the storage, the internal
//! port, NATS and backends need some at any time: without one, the storage can write no further table.

use dunlin_config::Config;

use crate::{node::Node, telemetry::config_events};

/// Files other than sessions and HTTP connections: listeners, reactors, logs, connections to backends.
const OTHER_FILES: u64 = 256;

/// Minimum number of sessions that must be possible without a configured limit.
const SESSIONS_MIN: u64 = 1_000;

/// Files of the storage besides tables: write-ahead logs, the files that a flush, a compaction or a backup writes.
const STORAGE_OTHER_FILES: u64 = 64;
/// Connections to NATS, also while they are made again.
const NATS_FILES: u64 = 16;
/// Log files, pages, certificates and secrets that are read again, the files of `/proc` for metrics.
const FEW_FILES: u64 = 32;
/// Tables that the storage must be able to open at a time.
const STORAGE_TABLES_MIN: u64 = 32;

/// How the file descriptors of the process are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OpenFiles {
    /// The limit of the process; `None` if it is not known.
    limit: Option<u64>,
    /// Descriptors that connections on the public port do not use.
    pub(super) reserved: u64,
    /// Maximum number of tables that the storage has open.
    pub(super) storage_max: u16,
}

impl OpenFiles {
    /// Raises the limit as far as possible, and divides it.
    pub(super) fn of(config: &Config) -> Self {
        Self::divided(config, raise())
    }

    fn divided(config: &Config, limit: Option<u64>) -> Self {
        let tables = config.storage.as_ref().map_or(0, |storage| storage.open_files_max);
        let Some(limit_known) = limit else { return Self { limit, reserved: 0, storage_max: tables } };
        let wanted = match config.net.reserved_open_files {
            0 => needed_by_others(config).min(limit_known / 2),
            given => (given as u64).min(limit_known),
        };
        // Tables leave the rest of the reserve to the others.
        let besides = needed_by_others(config) - u64::from(tables);
        let tables_max = wanted.saturating_sub(besides).max(wanted / 4).max(STORAGE_TABLES_MIN);
        let storage_max = u16::try_from(tables_max.min(u64::from(tables))).unwrap_or(tables);
        Self { limit, reserved: wanted, storage_max }
    }

    /// Connections on the public port use only descriptors below this number. The kernel gives the lowest free one, so
    /// that as many are in use as its number says.
    pub(super) fn connections_below(&self) -> u32 {
        let below = self.limit.map_or(u64::MAX, |limit| limit - self.reserved);
        u32::try_from(below).unwrap_or(u32::MAX)
    }

    /// Warns if the limit is too low.
    pub(super) fn warn(&self, config: &Config, node: &Node) {
        let (sessions_max, http_connections_max) = (config.net.connections_max, config.net.http_connections_max);
        let (needed, what_allows) = match node.reactor().connections_max {
            None => (
                needed(sessions_max, http_connections_max),
                "client.connection_limit and net.http_connections_limit allow",
            ),
            Some(connections_max) => {
                warn_few_places(u64::from(connections_max), u64::from(node.shard_count()), sessions_max as u64);
                (http_connections_max as u64 + OTHER_FILES, "net.http_connections_limit allows")
            }
        };
        if let Some(limit) = self.limit.filter(|limit| *limit < needed) {
            config_events::FewOpenFiles { limit, needed, reserved: self.reserved, what_allows }.emit();
        }
    }
}

fn warn_few_places(connections_max: u64, shards: u64, connection_limit: u64) {
    if connections_max * shards < connection_limit {
        config_events::FewPlaces { connections_max, shards, connection_limit }.emit();
    }
}

/// A connection for traces, and one for metrics.
const OTLP_FILES: u64 = 2;

/// What everything but connections on the public port may have open.
fn needed_by_others(config: &Config) -> u64 {
    let storage = config.storage.as_ref().map_or(0, |of| u64::from(of.open_files_max) + STORAGE_OTHER_FILES);
    let nats = if config.broker.is_some() { NATS_FILES } else { 0 };
    let backends: u64 = config.backends.iter().map(|proxy| proxy.requests_max as u64).sum();
    let told = u64::from(config.webhooks.is_some())
        + u64::from(config.pyroscope.is_some())
        + config.opentelemetry.as_ref().map_or(0, |_| OTLP_FILES);
    storage + nats + backends + told + config.net.http_reserved_connections_max as u64 + FEW_FILES
}

fn needed(sessions_max: usize, http_connections_max: usize) -> u64 {
    let sessions = if sessions_max == 0 { SESSIONS_MIN } else { sessions_max as u64 };
    sessions + http_connections_max as u64 + OTHER_FILES
}

/// Raises the soft limit to the hard limit. Returns the resulting limit.
fn raise() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is owned by this function and outlives both calls.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) != 0 {
            return None;
        }
        let raised = libc::rlimit { rlim_cur: limit.rlim_max, rlim_max: limit.rlim_max };
        let is_raised = libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) == 0;
        Some(if is_raised { raised.rlim_cur } else { limit.rlim_cur })
    }
}

#[cfg(test)]
mod tests {
    use dunlin_config::{ConfigInput, Document, Format};

    use super::*;

    #[test]
    fn open_files_needed_grow_with_the_connections() {
        assert_eq!(needed(0, 4_096), 5_352);
        assert_eq!(needed(100_000, 10), 100_266);
    }

    fn divided(settings: &str, limit: u64) -> (u64, u16, u32) {
        let document = Document { name: "dunlin.json".to_owned(), format: Format::Json, text: settings.to_owned() };
        let input = ConfigInput { document: Some(document), ..ConfigInput::default() };
        let (config, _) = Config::from_input(&input).expect("valid settings");
        let files = OpenFiles::divided(&config, Some(limit));
        (files.reserved, files.storage_max, files.connections_below())
    }

    #[test]
    fn connections_leave_what_others_may_open() {
        let storage = r#"{"storage":{"path":"/s"}}"#;
        assert_eq!(divided("{}", 1_048_576), (96, 0, 1_048_480));
        assert_eq!(divided(storage, 1_048_576), (672, 512, 1_047_904));
        // With a low limit, they get half of it, and the storage has fewer tables open.
        assert_eq!(divided("{}", 96), (48, 0, 48));
        assert_eq!(divided(storage, 512), (256, 96, 256));
        assert_eq!(divided(storage, 64), (32, 32, 32));
        let given = r#"{"storage":{"path":"/s"},"net":{"reserved_open_files":100}}"#;
        assert_eq!(divided(given, 512), (100, 32, 412));
        assert_eq!(divided(given, 64), (64, 32, 0));
    }
}
