//! What a storage is asked, and what it answers.

use std::{fmt, sync::Arc};

use dunlin_engine::{
    ShardIndex,
    log::{LoadNumber, LoadQuery, LogError, LogPage, LogRecord, LogTerms, ProposalNumber},
};

use crate::error::StorageError;

/// A publication that is to be stored; answered with [`Completions::committed`].
#[derive(Debug)]
pub struct StoreRequest {
    /// Who is answered.
    pub shard: ShardIndex,
    /// The channel.
    pub channel: Arc<str>,
    /// Given back with the answer.
    pub proposal: ProposalNumber,
    /// The publication with its offset, which is above those before it.
    pub record: Box<LogRecord>,
    /// How.
    pub terms: LogTerms,
}

/// A part of a channel that is to be read; answered with [`Completions::loaded`].
#[derive(Debug)]
pub struct LoadRequest {
    /// Who is answered.
    pub shard: ShardIndex,
    /// The channel. Its epoch begins with the first load.
    pub channel: Arc<str>,
    /// Given back with the answer.
    pub load: LoadNumber,
    /// Which part.
    pub query: LoadQuery,
    /// How the channel is stored.
    pub terms: LogTerms,
}

/// The answer to a [`StoreRequest`].
#[derive(Debug)]
pub struct StoreAnswer {
    /// The channel.
    pub channel: Arc<str>,
    /// Which publication.
    pub proposal: ProposalNumber,
    /// Its offset.
    pub outcome: Result<u64, LogError>,
}

/// The answer to a [`LoadRequest`].
#[derive(Debug)]
pub struct LoadAnswer {
    /// The channel.
    pub channel: Arc<str>,
    /// Which load.
    pub load: LoadNumber,
    /// The part.
    pub outcome: Result<Box<LogPage>, LogError>,
}

/// Takes the answers. They come on the storage's threads, so an implementation passes them on and returns. Answers about a
/// channel's publications come in the order of the requests.
pub trait Completions: Send + Sync + 'static {
    /// A publication is stored, or it is not.
    fn committed(&self, shard: ShardIndex, answer: StoreAnswer);
    /// A part of a channel was read, or it was not.
    fn loaded(&self, shard: ShardIndex, answer: LoadAnswer);
    /// Several answers were given, and none follows at once: the time to wake who waits for them.
    fn flush(&self) {}
    /// A write failed, and nothing is stored from now on. Called once, before the answers about that write.
    fn poisoned(&self, _error: &StorageError) {}
}

/// What became of a write of entries that are no publications. Called on the writer's thread.
pub type EntriesDone = Box<dyn FnOnce(Result<(), StorageError>) + Send>;

/// Entries of rooms that are written together, all or none.
pub struct EntryBatch {
    pub(crate) changes: Vec<EntryChange>,
    pub(crate) bytes: usize,
    pub(crate) is_synced: bool,
}

pub(crate) enum EntryChange {
    Put { family: crate::family::Family, key: Vec<u8>, value: Vec<u8> },
    DeleteRange { family: crate::family::Family, begin: Vec<u8>, end: Vec<u8> },
}

impl fmt::Debug for EntryBatch {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { changes, bytes, is_synced } = self;
        write!(text, "EntryBatch {{ changes: {}, bytes: {bytes}, is_synced: {is_synced} }}", changes.len())
    }
}
