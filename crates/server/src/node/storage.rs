//! The storage of a node. Passes requests of shards to the storage, and results back.

use std::{
    sync::{Arc, Condvar, Mutex, PoisonError, RwLock},
    time::Duration,
};

use dunlin_engine::{
    Event, ShardIndex,
    event::ShardEvents,
    log::{LoadNumber, LoadQuery, LogError, LogTerms},
};
use dunlin_storage::{
    Completions, EntriesDone, LoadRequest, SpaceShortage, Storage, StorageError, StorageOptions, StoreRequest,
};

use super::event_queue::ShardQueues;
use crate::telemetry::{
    StorageState,
    storage_events::{RoomsNotHandedOver, SpaceEnough, SpaceShort, StorageFailed, StorageResumed},
};

/// An open storage, and the shards that use it.
#[derive(Debug)]
pub struct NodeStorage {
    storage: Storage,
    answers: Arc<ShardAnswers>,
    /// Fields are dropped in their order, so the database is closed before this.
    _open: OpenStorage,
}

/// The end of a storage: of its last user, and of the threads of its database.
#[derive(Clone, Debug, Default)]
pub struct StorageEnd(Arc<(Mutex<bool>, Condvar)>);

impl StorageEnd {
    /// Waits for it. Returns whether it came within this time.
    pub fn wait(&self, timeout: Duration) -> bool {
        let (has_ended, changed) = &*self.0;
        let has_ended = has_ended.lock().unwrap_or_else(PoisonError::into_inner);
        *changed.wait_timeout_while(has_ended, timeout, |ended| !*ended).unwrap_or_else(PoisonError::into_inner).0
    }
}

#[derive(Debug)]
struct OpenStorage(StorageEnd);

impl Drop for OpenStorage {
    fn drop(&mut self) {
        let (has_ended, changed) = &*self.0.0;
        *has_ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        changed.notify_all();
    }
}

impl NodeStorage {
    /// Opens the storage of a node.
    ///
    /// # Errors
    /// See [`dunlin_storage::StorageFault`].
    pub fn open(options: &StorageOptions, queues: Arc<ShardQueues>) -> Result<(Self, StorageEnd), StorageError> {
        let answers = Arc::new(ShardAnswers { queues, durable: RwLock::default() });
        let completions = Arc::clone(&answers) as Arc<dyn Completions>;
        let end = StorageEnd::default();
        let open = OpenStorage(end.clone());
        Ok((Self { storage: Storage::open(options, completions)?, answers, _open: open }, end))
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

    /// Writes what is queued; nothing is stored afterwards. Logs what the next server of `dunlin dev` does not find.
    pub fn close(&self) {
        self.storage.close();
        if self.storage.is_development()
            && let Some(error) = self.storage.poison()
        {
            RoomsNotHandedOver { error: &error }.emit();
        }
    }

    /// Logs why nothing is stored, if so.
    pub fn log_fault(&self) {
        if let Some(error) = self.storage.poison() {
            self.answers.poisoned(&error);
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

/// Receives answers on the threads of the storage, and sends each to its shard.
#[derive(Debug)]
struct ShardAnswers {
    queues: Arc<ShardQueues>,
    /// Namespaces with `durability`.
    durable: RwLock<Vec<String>>,
}

impl ShardEvents for ShardAnswers {
    fn send(&self, to: ShardIndex, event: Event<'static>) -> bool {
        self.queues.send(to, event)
    }
}

impl Completions for ShardAnswers {
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
