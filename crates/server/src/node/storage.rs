//! The storage of a node. Passes requests of shards to the storage, and results back.

use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use dunlin_engine::{
    ShardIndex,
    log::{LoadNumber, LoadQuery, LogError, LogTerms},
};
use dunlin_storage::{
    Completions, EntriesDone, LoadAnswer, LoadRequest, SpaceShortage, Storage, StorageError, StorageOptions,
    StoreAnswer, StoreRequest,
};

use super::answers::{AnswerSender, Answered};
use crate::telemetry::{
    StorageState,
    storage_events::{SpaceEnough, SpaceShort, StorageFailed, StorageResumed},
};

/// An open storage, and the shards that use it.
#[derive(Debug)]
pub struct NodeStorage {
    storage: Storage,
    answers: Arc<ShardAnswers>,
}

impl NodeStorage {
    /// Opens the storage of a node with this number of shards.
    ///
    /// # Errors
    /// See [`dunlin_storage::StorageFault`].
    pub fn open(options: &StorageOptions, shard_count: u16) -> Result<Self, StorageError> {
        let senders = (0..shard_count).map(|_| OnceLock::new()).collect();
        let answers = Arc::new(ShardAnswers { senders, durable: RwLock::default() });
        let completions = Arc::clone(&answers) as Arc<dyn Completions>;
        Ok(Self { storage: Storage::open(options, completions)?, answers })
    }

    /// The state of the storage, for the metrics.
    pub fn state(&self) -> StorageState {
        let fault = self.storage.poison().map(|error| error.fault.label());
        StorageState {
            counts: self.storage.counts(),
            history_bytes: self.storage.history_bytes(),
            free_bytes: self.storage.free_bytes(),
            fault,
        }
    }

    /// The storage itself, for callers other than shards.
    pub const fn storage(&self) -> &Storage {
        &self.storage
    }

    /// Sets the namespaces that the log lists when the storage fails.
    pub fn set_durable_namespaces(&self, names: Vec<String>) {
        *self.answers.durable.write().unwrap_or_else(PoisonError::into_inner) = names;
    }

    /// Logs why nothing is stored, if so.
    pub fn log_fault(&self) {
        if let Some(error) = self.storage.poison() {
            self.answers.poisoned(&error);
        }
    }

    /// Sets the receiver of a shard's results. Must be called before the shard's first request.
    pub(super) fn connect(&self, shard: ShardIndex, sender: AnswerSender) {
        if let Some(place) = self.answers.senders.get(usize::from(shard.0)) {
            let is_first = place.set(sender).is_ok();
            debug_assert!(is_first, "a shard starts once");
        }
    }

    pub(super) fn store(&self, request: StoreRequest) -> Result<(), LogError> {
        self.storage.store(request)
    }

    pub(super) fn load(
        &self,
        shard: ShardIndex,
        channel: Arc<str>,
        load: LoadNumber,
        query: LoadQuery,
        terms: LogTerms,
    ) -> Result<(), LogError> {
        self.storage.load(LoadRequest { shard, channel, load, query, terms })
    }

    pub(super) fn trim(&self, channel: Arc<str>, through: u64, done: Option<EntriesDone>) {
        self.storage.trim(channel, through, done);
    }
}

/// Receives results on the threads of the storage, and sends each to its shard.
#[derive(Debug)]
struct ShardAnswers {
    senders: Box<[OnceLock<AnswerSender>]>,
    /// Namespaces with `durability`.
    durable: RwLock<Vec<String>>,
}

impl ShardAnswers {
    fn send(&self, shard: ShardIndex, answered: Answered) {
        if let Some(sender) = self.senders.get(usize::from(shard.0)).and_then(OnceLock::get) {
            sender.send_answer(answered);
        }
    }
}

impl Completions for ShardAnswers {
    fn committed(&self, shard: ShardIndex, answer: StoreAnswer) {
        let StoreAnswer { channel, proposal, outcome } = answer;
        self.send(shard, Answered::Committed { channel, proposal, outcome });
    }

    fn loaded(&self, shard: ShardIndex, answer: LoadAnswer) {
        let LoadAnswer { channel, load, outcome } = answer;
        self.send(shard, Answered::Loaded { channel, load, outcome });
    }

    fn poisoned(&self, error: &StorageError) {
        let namespaces = self.durable.read().unwrap_or_else(PoisonError::into_inner);
        StorageFailed { error, namespaces: &namespaces }.emit();
    }

    fn resumed(&self) {
        let namespaces = self.durable.read().unwrap_or_else(PoisonError::into_inner);
        StorageResumed { namespaces: &namespaces }.emit();
    }

    fn space_short(&self, shortage: &SpaceShortage) {
        let namespaces = self.durable.read().unwrap_or_else(PoisonError::into_inner);
        SpaceShort { shortage, namespaces: &namespaces }.emit();
    }

    fn space_enough(&self) {
        let namespaces = self.durable.read().unwrap_or_else(PoisonError::into_inner);
        SpaceEnough { namespaces: &namespaces }.emit();
    }
}
