//! The limit on open file descriptors: each connection uses one.

use dunlin_config::Config;

use crate::telemetry::config_events;

/// Files other than sessions and HTTP connections: listeners, reactors, logs, connections to backends.
const OTHER_FILES: u64 = 256;

/// Minimum number of sessions that must be possible without a configured limit.
const SESSIONS_MIN: u64 = 1_000;

/// Raises the limit as far as possible, and warns if it is too low.
pub(super) fn provide(config: &Config) {
    let Some(limit) = raise() else { return };
    let needed = needed(config.net.connections_max, config.net.http_connections_max);
    if limit < needed {
        config_events::FewOpenFiles { limit, needed }.emit();
    }
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
    use super::*;

    #[test]
    fn open_files_needed_grow_with_the_connections() {
        assert_eq!(needed(0, 4_096), 5_352);
        assert_eq!(needed(100_000, 10), 100_266);
    }
}
