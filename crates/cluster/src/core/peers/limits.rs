//! Bounds, and what is counted.

/// Bounds and times of the node table and of surveys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerLimits {
    /// Time between two heartbeats.
    pub heartbeat_interval_ms: u64,
    /// A node that has been silent for so long is not live.
    pub silence_timeout_ms: u64,
    /// How long a survey waits for answers.
    pub survey_timeout_ms: u64,
    /// Other nodes that are known.
    pub nodes_max: usize,
    /// Surveys of this node that wait for answers.
    pub surveys_max: usize,
    /// Bytes of the answers to all of them.
    pub survey_bytes_max: usize,
    /// Questions of other nodes that this node is answering.
    pub queries_max: usize,
    /// Users with sessions on other nodes whose sessions are counted.
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

/// What is counted about other nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerCounters {
    /// Other nodes that are live.
    pub live: u64,
    /// Of these, those with another version.
    pub other_version: u64,
    /// Of these, those whose clock is off.
    pub clock_off: u64,
    /// Whether another node has the id of this one.
    pub same_id: bool,
    /// Nodes that became silent without stopping in order.
    pub lost: u64,
    /// Surveys that were begun.
    pub surveys: u64,
    /// Of these, those that ended without the answer of a live node.
    pub incomplete: u64,
    /// Surveys that were refused because of a bound.
    pub surveys_refused: u64,
    /// Questions of other nodes.
    pub queries: u64,
    /// Of these, those that were refused because of a bound.
    pub queries_refused: u64,
    /// Users with sessions on other nodes whose sessions are counted.
    pub users_elsewhere: u64,
    /// Sessions on other nodes that were not counted because of a bound.
    pub users_uncounted: u64,
    /// Messages that make no sense, or are from more nodes than the table holds.
    pub dropped: u64,
}
