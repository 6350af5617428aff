//! The log of a namespace: it determines who orders the channels' publications, and when they become visible. This
//! module is the interface between a channel's owner and a log on disk or in a cluster. The log performs
//! [`crate::Effect::Propose`] and the related effects, and answers with [`crate::Event::Committed`] and the related
//! events.
//!
//! The owner relies on these guarantees:
//!
//! - Each [`crate::Effect::Propose`] is answered with one [`crate::Event::Committed`], and each [`crate::Effect::Load`]
//!   with one [`crate::Event::Loaded`]. A node that has crashed receives no answers.
//! - Events about one channel arrive in the order of their offsets. An event whose offset is not above all earlier ones
//!   is a duplicate.
//! - After [`crate::Effect::Follow`], every publication of the channel arrives as an event or is in a page that was
//!   requested later. It may be in both. [`crate::Event::Interrupted`] ends this: publications may be missing before it,
//!   but no later [`crate::Event::Replicated`] or [`crate::Event::Trimmed`] precedes it.
//! - A publication that the log refused is not in the log, or arrives as [`crate::Event::Replicated`]. So a crash never
//!   loses a publication that a client has seen.
//!
//! - A page may have fewer publications than requested, or more. [`LogPage::floor`] and [`LogPage::through`] say what it
//!   contains, and the owner loads the rest.
//! - Loading stores nothing. The epoch of a channel without publications is that of its pages; the log stores it with
//!   the first publication, which states it (`begins` of [`crate::Effect::Propose`]).
//!
//! The epoch of a channel changes when offsets may be assigned again.

use std::sync::Arc;

use dunlin_protocol::{ErrorCode, Publication};

use crate::history_stream::kept_bytes;

/// Who orders the publications of a namespace's channels, and when they are delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PublicationLog {
    /// The owner assigns the offset and delivers the publication at once.
    #[default]
    Memory,
    /// The owner assigns the offset and delivers the publication when the log has stored it.
    OrderedByOwner,
    /// The log assigns the offset when it has stored the publication; other nodes write to it as well.
    OrderedByLog,
}

/// A proposed publication, by its number on the owner's shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProposalNumber(pub u64);

/// The number of a page load on the owner's shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LoadNumber(pub u64);

/// A publication as a log stores it.
#[derive(Clone, Debug)]
pub struct LogRecord {
    /// The publication. Its offset is 0 until the log assigns it.
    pub publication: Arc<Publication>,
    /// The epoch of the publication's version.
    pub version_epoch: Box<str>,
    /// A log that stores keys accepts only one record per key while the key's result is kept. It answers a repeated
    /// one with the offset of the first.
    pub idempotency_key: Option<Box<str>>,
}

impl LogRecord {
    /// The bytes that a history counts for its publication: data, tags, info and a fixed overhead.
    pub fn kept_bytes(&self) -> usize {
        kept_bytes(&self.publication)
    }
}

/// How long a log keeps a channel's publications. Earlier deletions use [`crate::Effect::Trim`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRetention {
    /// The number of newest publications to keep.
    pub publications_max: usize,
    /// How long to keep a publication.
    pub ttl_ms: u64,
}

/// How a log stores a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogTerms {
    /// How long publications are kept.
    pub retention: LogRetention,
    /// How long the epoch and the offsets are kept after the last publication.
    pub meta_ttl_ms: u64,
    /// How long the result of an idempotency key is kept.
    pub result_ttl_ms: u64,
    /// A commit is synced to disk, so that it survives a power failure.
    pub is_synced: bool,
}

/// The part of a channel's log to load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadQuery {
    /// Publications above this offset, oldest first; `None` for the newest.
    pub after: Option<u64>,
    /// The newest publications are those below this offset; `u64::MAX` for the end of the log.
    pub below: u64,
    /// The maximum number of publications.
    pub publications_max: usize,
    /// The page may end with the publication that reaches this number of bytes.
    pub bytes_max: usize,
}

impl LoadQuery {
    /// The oldest publications above an offset.
    pub const fn after(offset: u64, publications_max: usize) -> Self {
        Self { after: Some(offset), below: u64::MAX, publications_max, bytes_max: usize::MAX }
    }

    /// The newest publications.
    pub const fn newest(publications_max: usize) -> Self {
        Self { after: None, below: u64::MAX, publications_max, bytes_max: usize::MAX }
    }

    /// With this limit on bytes.
    #[must_use]
    pub const fn within(self, bytes_max: usize) -> Self {
        Self { bytes_max, ..self }
    }
}

/// Part of a channel's log.
#[derive(Clone, Debug, Default)]
pub struct LogPage {
    /// The channel's epoch.
    pub epoch: Box<str>,
    /// The offset of the newest publication ever.
    pub top: u64,
    /// The page contains every publication of the log with an offset above `floor`, up to `through`. `floor` is the
    /// requested offset, or a higher one if the log has deleted publications above that.
    pub floor: u64,
    /// See `floor`.
    pub through: u64,
    /// In ascending order of offset.
    pub records: Vec<LogRecord>,
    /// The page of the newest publications was cut at `floor` by a limit; the log has older ones.
    pub has_more_below: bool,
    /// Version of the newest publication, which may have expired; 0 for none. Only set for a page of the newest
    /// publications.
    pub version: u64,
    /// The epoch of the version.
    pub version_epoch: Box<str>,
}

/// Why a log refuses a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogError {
    /// A queue on the way to the log and back is full.
    Busy(LogBusy),
    /// The log cannot be reached, or did not answer in time.
    Unavailable,
    /// The publication is larger than the log accepts.
    TooLarge,
    /// The log stores nothing since a write has failed. It accepts publications again when the cause has passed; the
    /// owner retries nothing.
    Broken,
    /// The publication would leave less free space than the log reserves.
    LowSpace,
    /// The publication exceeds the limit on the stored bytes of its channel.
    ChannelFull,
    /// The publication exceeds the limit on the stored bytes of its namespace.
    NamespaceFull,
    /// The publication exceeds the limit on the stored bytes of the node.
    NodeFull,
}

/// The queue that is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogBusy {
    /// Publications for the writer of the storage.
    StorageWrites,
    /// Loads for the readers of the storage.
    StorageReads,
    /// Requests for the thread of the cluster.
    ClusterRequests,
    /// Loads of a partition of the cluster.
    ClusterReads,
    /// Pages of loads that take several pages.
    Pages,
    /// Events for the shard.
    Events,
}

impl LogBusy {
    const fn why(self) -> &'static str {
        match self {
            Self::StorageWrites => {
                "the queue of the storage is full: storage.queue_writes_limit or storage.queue_bytes_limit; publish more slowly, or raise the limit"
            }
            Self::StorageReads => {
                "the reads of the storage are at storage.queue_reads_limit; retry, or raise it or storage.readers"
            }
            Self::ClusterRequests => {
                "the queue of the cluster is full: broker.nats.jetstream.requests_limit or requests_size_limit; send less at once, or raise the limit"
            }
            Self::ClusterReads => "too many reads of a partition of the cluster wait for each other; retry",
            Self::Pages => {
                "the shard is reading too many long histories from their logs; retry, or ask for shorter ones"
            }
            Self::Events => "the queue of events for the shard is full, so a page of the log was dropped; retry",
        }
    }
}

impl LogError {
    /// The error of the protocol: temporary, except for a publication that is too large.
    pub const fn code(self) -> ErrorCode {
        match self {
            Self::Busy(_) | Self::LowSpace | Self::ChannelFull | Self::NamespaceFull | Self::NodeFull => {
                ErrorCode::TooManyRequests
            }
            Self::TooLarge => ErrorCode::BadRequest,
            Self::Unavailable | Self::Broken => ErrorCode::Internal,
        }
    }

    /// The reason of a refusal, with the remedy, for answers and records that carry a text.
    pub const fn why(self) -> &'static str {
        match self {
            Self::Busy(queue) => queue.why(),
            Self::Unavailable => "the log of the namespace could not be read or cannot be reached; see the node's log",
            Self::TooLarge => "the publication is larger than the servers of the cluster take; see max_payload of NATS",
            Self::Broken => {
                "the storage of the namespace stores nothing since a write failed; /health names the failure and the remedy"
            }
            Self::LowSpace => {
                "the publication would leave less free space on disk than storage.free_space_min; free space, see /health"
            }
            Self::ChannelFull => {
                "the publication is beyond history_disk_limit of the namespace; raise it, or set history_overflow to evict"
            }
            Self::NamespaceFull => {
                "the stored history of the namespace is at its history_disk_total_limit; raise it, keep less history, or remove some"
            }
            Self::NodeFull => {
                "the stored history of the node is at channel.history_disk_limit; raise it, keep less history, or remove some"
            }
        }
    }
}

/// Limits on what waits for logs, per shard. Requests beyond them are answered with error 111.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLimits {
    /// Publications proposed and not answered yet.
    pub proposals_max: usize,
    /// Bytes of the publications proposed and not answered yet.
    pub proposal_bytes_max: usize,
    /// Publications that wait for the outcome of a proposal with the same key or version, per proposal.
    pub duplicates_max: usize,
    /// Requests that wait for a page or for other nodes, such as joins for a room.
    pub parked_max: usize,
    /// Bytes of these requests. One session has at most an eighth of them.
    pub parked_bytes_max: usize,
    /// Bytes of pages of loads that take several pages.
    pub gathered_bytes_max: usize,
    /// Presence commands that wait for other nodes; 0 for a single node, which asks no other one for anything.
    pub peer_queries_max: usize,
    /// Publications per channel that stay in memory. Older ones are evicted, and loaded on demand.
    pub tail_publications_max: usize,
}

impl LogLimits {
    /// Whether the node is one of a cluster, and asks the others.
    pub const fn has_peers(&self) -> bool {
        self.peer_queries_max > 0
    }
}

impl Default for LogLimits {
    fn default() -> Self {
        Self {
            proposals_max: 4_096,
            proposal_bytes_max: 16 << 20,
            duplicates_max: 64,
            parked_max: 16_384,
            parked_bytes_max: 16 << 20,
            gathered_bytes_max: 128 << 20,
            peer_queries_max: 0,
            tail_publications_max: 1_000,
        }
    }
}
