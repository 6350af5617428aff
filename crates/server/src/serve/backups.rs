//! Backups of a running node's storage: on request and on schedule, one at a time.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use dunlin_config::{Config, StorageBackupSettings};
use dunlin_storage::{BackupInfo, StorageError};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use crate::{
    node::NodeStorage,
    telemetry::{
        api_counters::ControlCounters,
        storage_events::{BackupFailed, BackupMade, OldBackupsKept},
    },
};

/// Maximum pause after a scheduled backup that failed.
const RETRY_AFTER_MAX: Duration = Duration::from_mins(10);

/// Makes backups of the storage.
pub struct BackupMaker {
    storage: Arc<NodeStorage>,
    settings: StorageBackupSettings,
    /// Has one permit, for the backup that is being made.
    permits: Arc<Semaphore>,
    counters: Arc<ControlCounters>,
}

/// The result of a request for a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum BackupOutcome {
    /// The backup was made.
    Made(MadeBackup),
    /// Another backup is being made.
    Busy,
    /// The backup could not be made.
    Failed {
        /// The error, with a remedy.
        error: String,
    },
}

/// A backup that was just made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MadeBackup {
    /// The directory of the backups.
    pub directory: String,
    /// Its number in the directory.
    pub number: u32,
    /// Unix time in seconds.
    pub made_s: i64,
    /// Its files.
    pub files: u32,
    /// Bytes of its files, including those of files that it shares with earlier backups.
    pub bytes: u64,
    /// How long it took.
    pub duration_ms: u64,
    /// Why old backups could not be deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

/// Starts the scheduled backups; `None` if no directory is configured for backups.
pub(super) fn start(
    config: &Config,
    storage: Option<Arc<NodeStorage>>,
    counters: &Arc<ControlCounters>,
) -> Option<Arc<BackupMaker>> {
    let settings = config.backup.clone()?;
    let maker = Arc::new(BackupMaker::new(storage?, settings, Arc::clone(counters)));
    tokio::spawn(Arc::clone(&maker).make_on_schedule());
    Some(maker)
}

/// Waits for a backup that is being made.
pub(super) async fn stop(backups: Option<Arc<BackupMaker>>, timeout: Duration) {
    if let Some(backups) = backups {
        let _ = tokio::time::timeout(timeout, backups.stop()).await;
    }
}

impl BackupMaker {
    pub(super) fn new(
        storage: Arc<NodeStorage>,
        settings: StorageBackupSettings,
        counters: Arc<ControlCounters>,
    ) -> Self {
        Self { storage, settings, permits: Arc::new(Semaphore::new(1)), counters }
    }

    /// Makes a backup, deletes old ones, and counts and logs the result.
    pub async fn make(self: Arc<Self>) -> BackupOutcome {
        let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else { return BackupOutcome::Busy };
        let made = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            self.make_blocking()
        });
        match made.await {
            Ok(Ok(made)) => BackupOutcome::Made(made),
            Ok(Err(error)) => BackupOutcome::Failed { error: error.to_string() },
            Err(_) => BackupOutcome::Failed { error: "the thread of the backup has ended early".to_owned() },
        }
    }

    /// Makes a backup after each interval. Returns at once if none is configured.
    pub(super) async fn make_on_schedule(self: Arc<Self>) {
        let interval = Duration::from_millis(self.settings.interval_ms);
        let maker = Arc::clone(&self);
        let newest_s = tokio::task::spawn_blocking(move || maker.newest_s()).await.unwrap_or_default();
        if interval.is_zero() {
            return;
        }
        let since = newest_s.map(|newest_s| UNIX_EPOCH + Duration::from_secs(newest_s));
        let age = since.map(|since| SystemTime::now().duration_since(since).unwrap_or_default());
        let mut pause = age.map_or(Duration::ZERO, |age| interval.saturating_sub(age));
        loop {
            tokio::time::sleep(pause).await;
            pause = match Arc::clone(&self).make().await {
                BackupOutcome::Made(_) => interval,
                BackupOutcome::Busy | BackupOutcome::Failed { .. } => interval.min(RETRY_AFTER_MAX),
            };
        }
    }

    /// Waits for a backup that is being made, and prevents further ones.
    pub(super) async fn stop(&self) {
        let _permit = self.permits.acquire().await;
        self.permits.close();
    }

    /// The time of the newest backup in the directory.
    fn newest_s(&self) -> Option<u64> {
        let newest = dunlin_storage::backups(&self.settings.path).ok()?.pop()?;
        let newest_s = u64::try_from(newest.made_s).ok()?;
        self.counters.note_last_backup(newest_s);
        Some(newest_s)
    }

    fn make_blocking(&self) -> Result<MadeBackup, StorageError> {
        let (directory, begun) = (self.settings.path.as_path(), Instant::now());
        let BackupInfo { number, made_s, bytes, files } =
            self.storage.storage().back_up(directory).inspect_err(|error| self.note_failure(directory, error))?;
        let deleted = dunlin_storage::keep_backups(directory, self.settings.backups_max);
        let made = MadeBackup {
            directory: directory.display().to_string(),
            number,
            made_s,
            files,
            bytes,
            duration_ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
            warning: deleted.as_ref().err().map(ToString::to_string),
        };
        self.counters.count_backup(u64::try_from(made_s).unwrap_or_default());
        BackupMade { made: &made }.emit();
        if let Err(error) = &deleted {
            self.counters.count_undeleted_backups();
            OldBackupsKept { directory, error }.emit();
        }
        Ok(made)
    }

    fn note_failure(&self, directory: &Path, error: &StorageError) {
        self.counters.count_failed_backup();
        BackupFailed { directory, error }.emit();
    }
}
