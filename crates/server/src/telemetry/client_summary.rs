//! Summarizes the shards' counters about clients in at most one log line every few seconds, so that shards never log.

use std::time::Duration;

use dunlin_net::RefusalReason;

use super::session_events::{ClientsMisbehaved, ShardsFull};
use crate::node::{Node, ShardReport};

/// Interval between two checks.
const INTERVAL: Duration = Duration::from_secs(10);

/// Checks the counters until the node has ended.
pub async fn watch(node: Node) {
    let mut before = Totals::default();
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let survey = node.survey().await;
        if node.has_stopped() {
            return;
        }
        // The next check includes the counters of a late shard.
        if !survey.silent.is_empty() {
            continue;
        }
        let now = Totals::of(&survey.reports);
        now.full_since(&before).emit();
        now.since(&before).emit();
        before = now;
    }
}

#[derive(Default)]
struct Totals {
    malformed_frames: u64,
    violations: u64,
    slow_sessions: u64,
    accept_failures: u64,
    shard_full: u64,
    /// Maximum number of connections of a shard.
    connections_max: u64,
    refused: [u64; RefusalReason::ALL.len()],
}

impl Totals {
    fn of(shards: &[ShardReport]) -> Self {
        let mut totals = Self::default();
        for ShardReport { counters, net, .. } in shards {
            totals.malformed_frames += counters.malformed_frames;
            totals.violations += counters.violations;
            totals.slow_sessions += counters.slow_bytes + counters.slow_frames;
            totals.accept_failures += net.accepts_out_of_files + net.accepts_reserved + net.accepts_failed;
            totals.shard_full += net.accepts_shard_full;
            totals.connections_max = net.connections_max;
            for (total, count) in totals.refused.iter_mut().zip(net.refused) {
                *total += count;
            }
        }
        totals
    }

    fn full_since(&self, before: &Self) -> ShardsFull {
        ShardsFull {
            interval_s: INTERVAL.as_secs(),
            refused: self.shard_full.saturating_sub(before.shard_full),
            connections_max: self.connections_max,
        }
    }

    fn since(&self, before: &Self) -> ClientsMisbehaved {
        let refused = self.refused.iter().zip(before.refused).map(|(now, before)| now.saturating_sub(before));
        let mostly = refused.clone().zip(RefusalReason::ALL).filter(|(count, _)| *count > 0);
        let mostly = mostly.max_by_key(|(count, _)| *count);
        ClientsMisbehaved {
            interval_s: INTERVAL.as_secs(),
            malformed_frames: self.malformed_frames.saturating_sub(before.malformed_frames),
            violations: self.violations.saturating_sub(before.violations),
            slow_sessions: self.slow_sessions.saturating_sub(before.slow_sessions),
            refused: refused.sum(),
            refused_mostly: mostly.map(|(_, reason)| reason.name()),
            accept_failures: self.accept_failures.saturating_sub(before.accept_failures),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changes_are_reported() {
        let mut before = Totals { malformed_frames: 4, ..Totals::default() };
        before.refused[RefusalReason::HeadTimeout.index()] = 9;
        let mut now = Totals { malformed_frames: 6, slow_sessions: 1, ..Totals::default() };
        now.refused[RefusalReason::HeadTimeout.index()] = 10;
        now.refused[RefusalReason::Origin.index()] = 3;
        let expected = ClientsMisbehaved {
            interval_s: INTERVAL.as_secs(),
            malformed_frames: 2,
            slow_sessions: 1,
            refused: 4,
            refused_mostly: Some("origin"),
            ..ClientsMisbehaved::default()
        };
        assert_eq!(now.since(&before), expected);
        let quiet = ClientsMisbehaved { interval_s: INTERVAL.as_secs(), ..ClientsMisbehaved::default() };
        assert_eq!(now.since(&now), quiet, "without refused connections, there is no reason");
    }
}
