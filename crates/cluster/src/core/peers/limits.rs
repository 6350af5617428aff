//! Limits and counters of the node table and of surveys.

/// Limits and times of the node table and of surveys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerLimits {
    /// Time between two heartbeats.
    pub heartbeat_interval_ms: u64,
    /// A node that has been silent for this long is not live.
    pub silence_timeout_ms: u64,
    /// How long a survey waits for answers.
    pub survey_timeout_ms: u64,
    /// Maximum number of other nodes.
    pub nodes_max: usize,
    /// Maximum number of this node's surveys that wait for answers.
    pub surveys_max: usize,
    /// Maximum bytes of the answers to all of them.
    pub survey_bytes_max: usize,
    /// Maximum number of queries of other nodes that this node answers at a time.
    pub queries_max: usize,
    /// Maximum number of users whose sessions on other nodes are counted.
    pub users_max: usize,
}

impl Default for PeerLimits {
    fn default() -> Self {
        Self {
            heartbeat_interval_ms: 500,
            silence_timeout_ms: 1_500,
            survey_timeout_ms: 1_000,
            nodes_max: 256,
            surveys_max: 256,
            survey_bytes_max: 64 << 20,
            queries_max: 256,
            users_max: 1_000_000,
        }
    }
}

/// Counters about other nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerCounters {
    /// Other live nodes (gauge).
    pub live: u64,
    /// Other live nodes with another version.
    pub other_version: u64,
    /// Other live nodes whose clock is off.
    pub clock_off: u64,
    /// Whether another node has the id of this one.
    pub same_id: bool,
    /// Nodes that became silent without a clean stop.
    pub lost: u64,
    /// How often this node has sent no heartbeat for so long that other nodes may have counted it as lost.
    pub own_silences: u64,
    /// Surveys that were started.
    pub surveys: u64,
    /// Surveys that ended without the answer of a live node.
    pub incomplete: u64,
    /// Surveys refused because of a limit.
    pub surveys_refused: u64,
    /// Queries of other nodes.
    pub queries: u64,
    /// Queries refused because of a limit.
    pub queries_refused: u64,
    /// Users whose sessions on other nodes are counted (gauge).
    pub users_elsewhere: u64,
    /// Sessions on other nodes that were not counted because of a limit.
    pub users_uncounted: u64,
    /// Messages that are invalid, or come from more nodes than the table holds.
    pub dropped: u64,
}
