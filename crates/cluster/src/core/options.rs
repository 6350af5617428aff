//! What a core is made with: namespaces, bounds and times.

use super::{BroadcastNamespace, peers::PeerLimits};

/// A namespace whose channels have a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamedNamespace {
    /// Its name; empty for channels without a namespace.
    pub name: Box<str>,
    /// Streams that its channels are divided over.
    pub partitions: u16,
    /// How long publications of a channel are kept after the newest.
    pub history_ttl_ms: u64,
}

/// What a core is made with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreOptions {
    /// Begins all names in NATS.
    pub prefix: Box<str>,
    /// This run of this node; no two nodes and no two runs have the same one.
    pub node: Box<str>,
    /// By the number of the namespace: 0 for channels without one, then in the order of the options.
    pub namespaces: Vec<Option<StreamedNamespace>>,
    /// By the same number; `None` for namespaces whose channels nodes do not share.
    pub broadcasts: Vec<Option<BroadcastNamespace>>,
    /// Whether the nodes have leases, and so the stream that keeps them.
    pub has_leases: bool,
    /// Bounds and times.
    pub limits: CoreLimits,
}

/// Bounds and times of the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreLimits {
    /// Messages that are sent and not acknowledged.
    pub publish_window_max: usize,
    /// How long a publication is tried.
    pub publish_timeout_ms: u64,
    /// How long a page of history may take.
    pub load_timeout_ms: u64,
    /// How long the follow of a channel without a stream waits until all nodes' servers know of it.
    pub follow_timeout_ms: u64,
    /// How long the window of another node is awaited.
    pub window_timeout_ms: u64,
    /// Channels about which another node is asked at a time. Those of further ones are read.
    pub windows_max: usize,
    /// How long a channel stays followed without listeners.
    pub linger_ms: u64,
    /// Time between audits of a partition.
    pub audit_interval_ms: u64,
    /// How long a gap may stay open while the connections are up.
    pub gap_timeout_ms: u64,
    /// Recoveries of a partition that wait from which on they share one read.
    pub shared_reads_min: usize,
    /// How long a connection may bring nothing of what was asked for before another server is tried.
    pub silence_timeout_ms: u64,
    /// Republished messages of a channel that wait for a gap or for the attach.
    pub buffered_max: usize,
    /// Followed channels of a partition, or of a namespace without streams, from which on one subscription brings all its
    /// messages. A subscription takes some kilobytes here, and some in the server.
    pub wide_channels_min: usize,
    /// Of the node table and of surveys.
    pub peers: PeerLimits,
}

impl Default for CoreLimits {
    fn default() -> Self {
        Self {
            publish_window_max: 1_024,
            publish_timeout_ms: 10_000,
            load_timeout_ms: 5_000,
            follow_timeout_ms: 1_000,
            window_timeout_ms: 100,
            windows_max: 1_024,
            linger_ms: 30_000,
            audit_interval_ms: 30_000,
            gap_timeout_ms: 1_000,
            shared_reads_min: 25,
            silence_timeout_ms: 5_000,
            buffered_max: 1_024,
            wide_channels_min: 2_000,
            peers: PeerLimits::default(),
        }
    }
}
