//! The log of a namespace: what orders its channels' publications, and when they become visible. This module is the
//! interface between a channel's owner and a log on a disk or in a cluster. The log performs [`crate::Effect::Propose`]
//! and the effects next to it, and answers with [`crate::Event::Committed`] and the events next to it.
//!
//! The owner relies on these guarantees:
//!
//! - Each [`crate::Effect::Propose`] is answered with one [`crate::Event::Committed`], and each [`crate::Effect::Load`]
//!   with one [`crate::Event::Loaded`]. A node that has crashed receives no answers.
//! - Events about one channel arrive in the order of their offsets. An event whose offset is not above all earlier ones
//!   repeats what is known.
//! - After [`crate::Effect::Follow`], every publication of the channel arrives as an event or is in a page that was
//!   requested later. It may be in both.
//! - A publication that a log has refused is not in the log, or arrives as [`crate::Event::Replicated`]. So a crash
//!   never takes back a publication that a client has seen.
//!
//! A log keeps an epoch for each channel from its first load on. The epoch changes when offsets may be assigned again.

use std::sync::Arc;

use dunlin_protocol::{ErrorCode, Publication};

/// Who orders the publications of a namespace's channels, and when they are delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PublicationLog {
    /// The owner gives the offset, and the publication is seen at once.
    #[default]
    Memory,
    /// The owner gives the offset; the publication is seen when the log has stored it.
    OrderedByOwner,
    /// The log gives the offset when it has stored the publication; other nodes write to it as well.
    OrderedByLog,
}

/// A proposed publication, by its number on the owner's shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProposalNumber(pub u64);

/// A page that is being loaded, by its number on the owner's shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LoadNumber(pub u64);

/// A publication as a log keeps it.
#[derive(Clone, Debug)]
pub struct LogRecord {
    /// The publication. Its offset is 0 as long as the log has not given it.
    pub publication: Arc<Publication>,
    /// The version of its data; 0 for none.
    pub version: u64,
    /// In which epoch the version counts.
    pub version_epoch: Box<str>,
    /// A log that keeps keys stores one record with it, within its time.
    pub idempotency_key: Option<Box<str>>,
}

/// How long a log keeps a channel's publications. What leaves for another reason leaves by [`crate::Effect::Trim`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRetention {
    /// The number of publications to keep, the newest.
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
    /// A commit is synced to the disk, so that it survives a loss of power.
    pub is_synced: bool,
}

/// Which part of a channel's log is to be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadQuery {
    /// What comes behind this offset, the oldest first; without it, the newest.
    pub after: Option<u64>,
    /// The maximum number of publications.
    pub publications_max: usize,
}

/// Part of a channel's log.
#[derive(Clone, Debug, Default)]
pub struct LogPage {
    /// The channel's epoch.
    pub epoch: Box<str>,
    /// The offset of the newest publication that there ever was.
    pub top: u64,
    /// Every publication that the log has with an offset above this one, up to `through`, is in the page. It is what was
    /// asked for, or higher where the log has forgotten something.
    pub floor: u64,
    /// See `floor`.
    pub through: u64,
    /// By rising offsets.
    pub records: Vec<LogRecord>,
    /// The page of the newest publications ends at `floor` because of its size; the log has more below.
    pub has_more_below: bool,
    /// Version of the newest publication, which may have expired; 0 for none. Only with the newest publications.
    pub version: u64,
    /// In which epoch the version counts.
    pub version_epoch: Box<str>,
    /// Results of idempotency keys, the oldest first. Only with the newest publications.
    pub results: Vec<LogResult>,
}

/// Result of a publication with an idempotency key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogResult {
    /// The idempotency key.
    pub key: Box<str>,
    /// Offset of the publication.
    pub offset: u64,
    /// Epoch of the channel when it was published.
    pub epoch: Box<str>,
    /// Time until the log forgets the result.
    pub remaining_ms: u64,
}

/// Why a log does not do what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogError {
    /// It has too much to do.
    Busy,
    /// It cannot be reached, or did not answer in time.
    Unavailable,
    /// The publication is larger than the log takes.
    TooLarge,
    /// It is broken. The channels of the namespace take no more publications, and nothing is tried again.
    Broken,
}

impl LogError {
    /// The error of the protocol: temporary, except for a publication that is too large.
    pub const fn code(self) -> ErrorCode {
        match self {
            Self::Busy => ErrorCode::TooManyRequests,
            Self::TooLarge => ErrorCode::BadRequest,
            Self::Unavailable | Self::Broken => ErrorCode::Internal,
        }
    }

    /// Why a request was refused, with the remedy, for answers and records that have room for a text.
    pub const fn why(self) -> &'static str {
        match self {
            Self::Busy => "the queue of the storage is full; try again, and see dunlin_storage_refused_total",
            Self::Unavailable => "the log of the namespace could not be read or cannot be reached; see the node's log",
            Self::TooLarge => "the publication is larger than the servers of the cluster take; see max_payload of NATS",
            Self::Broken => {
                "the storage of the namespace stores nothing since a write failed; /health names the failure and the remedy"
            }
        }
    }
}

/// Bounds on what waits for logs, of one shard. What is past them is answered with error 111.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLimits {
    /// Publications that were proposed and not answered.
    pub proposals_max: usize,
    /// Their bytes.
    pub proposal_bytes_max: usize,
    /// Publications that wait for the outcome of one with the same key or version, for each such one.
    pub duplicates_max: usize,
    /// Requests that wait for a page.
    pub parked_max: usize,
    /// Commands about presence that wait for other nodes; 0 for a node on its own, which asks nobody.
    pub peer_queries_max: usize,
    /// Publications of a channel that stay in memory. The oldest leave it, and are loaded when somebody needs them.
    pub tail_publications_max: usize,
}

impl Default for LogLimits {
    fn default() -> Self {
        Self {
            proposals_max: 4_096,
            proposal_bytes_max: 16 << 20,
            duplicates_max: 64,
            parked_max: 16_384,
            peer_queries_max: 0,
            tail_publications_max: 1_000,
        }
    }
}
