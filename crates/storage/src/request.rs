//! Requests to a storage, and their answers.

use std::{fmt, sync::Arc};

use dunlin_engine::{
    ShardIndex,
    event::ShardEvents,
    log::{LoadNumber, LoadQuery, LogRecord, LogTerms, ProposalNumber},
};

use crate::{error::StorageError, free_space::SpaceShortage};

/// A publication to store; answered with [`dunlin_engine::Event::Committed`].
#[derive(Debug)]
pub struct StoreRequest {
    /// The shard that receives the answer.
    pub shard: ShardIndex,
    /// The channel.
    pub channel: Arc<str>,
    /// Returned with the answer.
    pub proposal: ProposalNumber,
    /// The publication with the offset that its owner expects. It is above the earlier offsets. The storage gives a
    /// lower one if an earlier one was not used.
    pub record: Box<LogRecord>,
    /// The epoch with which the channel begins, if the storage has none for it; see [`dunlin_engine::Effect::Propose`].
    pub begins: Option<Box<str>>,
    /// How the channel is stored.
    pub terms: LogTerms,
}

impl StoreRequest {
    /// The bytes that the publication takes in the queue, and about as many in the write-ahead log.
    pub(crate) fn bytes(&self) -> usize {
        self.record.kept_bytes()
    }
}

/// A part of a channel to read; answered with [`dunlin_engine::Event::Loaded`].
#[derive(Debug)]
pub struct LoadRequest {
    /// The shard that receives the answer.
    pub shard: ShardIndex,
    /// The channel.
    pub channel: Arc<str>,
    /// Returned with the answer.
    pub load: LoadNumber,
    /// The requested part.
    pub query: LoadQuery,
    /// How the channel is stored.
    pub terms: LogTerms,
}

/// Receives the answers. It is called on the storage's threads, so an implementation must pass answers on and return.
/// Answers about a channel's publications are in the order of the requests.
pub trait Completions: ShardEvents + 'static {
    /// Several answers were passed, and no other follows immediately. An implementation can now wake the receivers.
    fn flush(&self) {}
    /// A write failed, and nothing is stored until [`Completions::resumed`]. Called before the answers about that
    /// write.
    fn poisoned(&self, _error: &StorageError) {}
    /// The cause of a failed write has passed, and the storage writes again.
    fn resumed(&self) {}
    /// Publications are refused from now on, until [`Completions::space_enough`], because free space is short.
    fn space_short(&self, _shortage: &SpaceShortage) {}
    /// Free space is not short any more.
    fn space_enough(&self) {}
}

/// Receives the result of a write of entries that are not publications. Called on a thread of the storage, never on the
/// thread that writes, which may hold locks that it takes.
pub type EntriesDone = Box<dyn FnOnce(Result<(), StorageError>) + Send>;

/// The receiver of a result that waits for it.
pub(crate) struct Done(pub(crate) EntriesDone);

impl fmt::Debug for Done {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        text.write_str("Done")
    }
}
