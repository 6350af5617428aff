//! Compares the NATS servers with what nodes need. It neither stores nor changes anything.

mod nodes;
mod permissions;
mod servers;
mod streams;
mod system;

use std::{
    fmt,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde::Serialize;

use crate::{links::LinkOptions, thread::ClusterOptions};

/// Timeout of one request.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// A larger difference between clocks makes publications expire early or late.
const CLOCK_OFFSET_WARNED_MS: u64 = 5_000;
/// Streams keep messages for this much longer than positions are valid.
const CLOCK_OFFSET_MAX_MS: u64 = 60_000;

/// One result of the check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClusterFinding {
    /// What was checked.
    pub subject: String,
    /// The result.
    pub state: FindingState,
    /// The details, and the remedy.
    pub text: String,
}

/// The result of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FindingState {
    /// As nodes need it.
    Good,
    /// Nodes work, with a disadvantage that the text states.
    Warning,
    /// The check cannot determine the result from this host.
    Unknown,
    /// Nodes do not start, or lose publications.
    Wrong,
}

impl fmt::Display for FindingState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Good => "good",
            Self::Warning => "warning",
            Self::Unknown => "unknown",
            Self::Wrong => "wrong",
        })
    }
}

/// Checks the servers, the permissions of the user, the streams and the clocks; with a user of the system account, also
/// what only that user can see.
pub async fn check_cluster(options: &ClusterOptions, system: Option<&LinkOptions>) -> Vec<ClusterFinding> {
    let mut findings = Findings::default();
    if let Some(mut server) = servers::check(options, &mut findings).await {
        permissions::check(&mut server, options, &mut findings).await;
        let nodes = nodes::running(&server.client, options).await;
        streams::check(&server.client, options, nodes.len(), &mut findings).await;
        nodes::judge(&nodes, &mut findings);
    }
    system::check(system, &mut findings).await;
    findings.all
}

#[derive(Default)]
struct Findings {
    all: Vec<ClusterFinding>,
}

impl Findings {
    fn add(&mut self, state: FindingState, subject: impl fmt::Display, text: impl fmt::Display) {
        self.all.push(ClusterFinding { subject: subject.to_string(), state, text: text.to_string() });
    }
}

/// When a request was sent and answered, on the clock of this machine.
#[derive(Clone, Copy, Debug)]
struct AskedAt {
    before_ms: u64,
    after_ms: u64,
}

impl AskedAt {
    /// Minimum offset of the answering server's clock; negative if it is behind.
    fn offset_ms(self, there_ms: u64) -> i64 {
        let difference = |later: u64, earlier: u64| i64::try_from(later.saturating_sub(earlier)).unwrap_or(i64::MAX);
        if there_ms > self.after_ms {
            difference(there_ms, self.after_ms)
        } else {
            -difference(self.before_ms, there_ms)
        }
    }
}

fn clock_finding(offset_ms: i64) -> (FindingState, String) {
    let state = match offset_ms.unsigned_abs() {
        off_ms if off_ms > CLOCK_OFFSET_MAX_MS => FindingState::Wrong,
        off_ms if off_ms > CLOCK_OFFSET_WARNED_MS => FindingState::Warning,
        _ => FindingState::Good,
    };
    let text = match state {
        FindingState::Good => "its clock and the clock of this machine agree".to_owned(),
        _ => format!(
            "its clock and the clock of this machine differ by {} s: synchronize both, because histories expire by the servers' \
             clocks and are compared with the nodes' clocks",
            offset_ms / 1_000
        ),
    };
    (state, text)
}

fn unix_ms() -> u64 {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(unix.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_offset_is_measured_from_the_request_window() {
        let asked = AskedAt { before_ms: 10_000, after_ms: 12_000 };
        for (there_ms, offset_ms) in
            [(10_000, 0), (11_000, 0), (12_000, 0), (12_500, 500), (9_000, -1_000), (0, -10_000)]
        {
            assert_eq!(asked.offset_ms(there_ms), offset_ms, "{there_ms}");
        }
    }

    #[test]
    fn clock_offsets_are_classified_at_their_limits() {
        for (offset_ms, state) in [
            (0, FindingState::Good),
            (-5_000, FindingState::Good),
            (5_001, FindingState::Warning),
            (-60_000, FindingState::Warning),
            (60_001, FindingState::Wrong),
        ] {
            assert_eq!(clock_finding(offset_ms).0, state, "{offset_ms}");
        }
    }
}
