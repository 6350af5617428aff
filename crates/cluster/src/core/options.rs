//! The options of a core: namespaces, limits and times.

use crate::streams::StreamTerms;

use super::{BroadcastNamespace, peers::PeerLimits};

/// A namespace whose channels have a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamedNamespace {
    /// The namespace's name; empty for channels outside all namespaces.
    pub name: Box<str>,
    /// The number of streams that its channels are divided over.
    pub partitions: u16,
    /// How long the publications of a channel are kept after the newest one.
    pub history_ttl_ms: u64,
    /// Maximum bytes of a channel's publications in memory, counted as [`dunlin_engine::log::LogRecord::kept_bytes`].
    pub history_bytes_max: usize,
}

/// The options of a core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreOptions {
    /// The prefix of all names in NATS.
    pub prefix: Box<str>,
    /// The id of this run of this node; it is unique among nodes and runs.
    pub node: Box<str>,
    /// By the number of the namespace: 0 for channels outside all namespaces, then in the order of the options.
    pub namespaces: Vec<Option<StreamedNamespace>>,
    /// By the same number; `None` for namespaces whose channels are not shared.
    pub broadcasts: Vec<Option<BroadcastNamespace>>,
    /// Whether the nodes have leases, and the stream that stores them.
    pub has_leases: bool,
    /// Whether rooms are kept in the cluster, in the stream of their logs. Needs leases.
    pub has_room_logs: bool,
    /// The streams that this node creates when they are gone.
    pub creatable: Vec<StreamTerms>,
    /// Limits and times.
    pub limits: CoreLimits,
}

impl CoreOptions {
    /// Whether the channels of a namespace have a stream.
    pub(super) fn is_streamed(&self, namespace: u16) -> bool {
        self.namespaces.get(usize::from(namespace)).is_some_and(Option::is_some)
    }
}

/// Limits and times of the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreLimits {
    /// Maximum number of messages sent and not acknowledged.
    pub publish_window_max: usize,
    /// How long a publication is retried.
    pub publish_timeout_ms: u64,
    /// Timeout of a load of a page.
    pub load_timeout_ms: u64,
    /// How long the follow of a channel without a stream waits until all nodes' servers know the subscription.
    pub follow_timeout_ms: u64,
    /// How long the window of another node is awaited.
    pub window_timeout_ms: u64,
    /// Maximum number of channels for which another node is queried at a time. Further ones are read from the stream.
    pub windows_max: usize,
    /// How long a channel stays followed without subscribers.
    pub linger_ms: u64,
    /// Maximum number of channels that stay followed so, once with and once without a stream. Beyond it, the one that has
    /// lingered for longest ends.
    pub lingering_max: usize,
    /// Time between audits of a partition.
    pub audit_interval_ms: u64,
    /// How long a gap may stay open while the connections are up.
    pub gap_timeout_ms: u64,
    /// Number of waiting recoveries of a partition from which they share one read.
    pub shared_reads_min: usize,
    /// How long a connection may return no answers before another server is tried.
    pub silence_timeout_ms: u64,
    /// Maximum number of republished messages of a channel that wait for a gap or for the attach.
    pub buffered_max: usize,
    /// Maximum bytes of these messages, per channel.
    pub buffered_bytes_max: usize,
    /// Maximum bytes of publications in memory, of all channels. The oldest of the largest windows are evicted.
    pub window_bytes_max: usize,
    /// Maximum bytes of the idempotency keys that the node has seen and remembers. The oldest are forgotten.
    pub seen_keys_bytes_max: usize,
    /// Number of followed channels, of a partition or of a namespace without streams, from which one wildcard
    /// subscription receives all messages. A subscription takes some kilobytes here and in the server.
    pub wide_channels_min: usize,
    /// Limits of the node table and of surveys.
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
            lingering_max: 4_096,
            audit_interval_ms: 30_000,
            gap_timeout_ms: 1_000,
            shared_reads_min: 25,
            silence_timeout_ms: 5_000,
            buffered_max: 1_024,
            buffered_bytes_max: 4 << 20,
            window_bytes_max: 1 << 30,
            seen_keys_bytes_max: 32 << 20,
            wide_channels_min: 2_000,
            peers: PeerLimits::default(),
        }
    }
}
