//! The writer after a failed write: it refuses, and writes again when the cause has passed.

use std::{
    sync::{Arc, mpsc::RecvTimeoutError},
    time::{Duration, Instant},
};

use rocksdb::WriteBatch;

use crate::{
    counters::StorageCounters,
    database::Database,
    error::StorageError,
    family::Family,
    heads::{ChannelSet, HeadCache},
    keys,
    records::ChannelHead,
    writer::{PendingAnswer, WriteTask, Writer},
};

/// Time between two attempts to write again; it doubles while they fail, up to the maximum.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// A commit that failed. A part of it may be in the write-ahead log, although its publications were refused.
pub(crate) struct FailedCommit {
    channels: Vec<(Arc<str>, Option<ChannelHead>)>,
    result_keys: Vec<Vec<u8>>,
    retry_at: Instant,
    pause: Duration,
}

impl FailedCommit {
    /// Notes what is stored without the commit. The database has not applied it.
    pub(crate) fn new(database: &Database, changed: &ChannelSet, answers: &[PendingAnswer]) -> Self {
        let stored = |channel: &Arc<str>| {
            let head = database.head(&keys::channel_key(channel)).ok()?;
            Some((Arc::clone(channel), head))
        };
        let channels: Vec<_> = changed.iter().filter_map(stored).collect();
        let result_key = |answer: &PendingAnswer| match answer {
            PendingAnswer::Stored { request, outcome } => {
                // An offset that is stored is the one of an earlier publication, whose key stays.
                let (_, head) = channels.iter().find(|(channel, _)| *channel == request.channel)?;
                let top = head.as_ref().map_or(0, |head| head.top);
                let key = request.record.idempotency_key.as_deref().filter(|_| outcome.is_ok_and(|at| at > top))?;
                Some(keys::result_key(&request.channel, key))
            }
            PendingAnswer::Entries(_) | PendingAnswer::Trimmed { .. } => None,
        };
        Self {
            result_keys: answers.iter().filter_map(result_key).collect(),
            channels,
            retry_at: Instant::now() + PAUSE_MIN,
            pause: PAUSE_MIN,
        }
    }

    /// Nothing was written yet, because the database could not be opened.
    pub(crate) fn at_start() -> Self {
        let retry_at = Instant::now() + PAUSE_MIN;
        Self { channels: Vec::new(), result_keys: Vec::new(), retry_at, pause: PAUSE_MIN }
    }

    /// Removes what the log has of the commit, so that a refused publication is not published later.
    fn undo(&self, database: &Database) -> Result<(), StorageError> {
        let mut batch = WriteBatch::default();
        for (channel, head) in &self.channels {
            let key = keys::channel_key(channel);
            let top = head.as_ref().map_or(0, |head| head.top);
            if database.head(&key)?.is_none_or(|found| found.top <= top) {
                continue;
            }
            let begin = keys::publication_key(channel, top.saturating_add(1));
            batch.delete_range_cf(database.family(Family::Publications), begin, keys::behind(&key));
            match head {
                Some(head) => batch.put_cf(database.family(Family::Heads), key, head.encode()),
                None => batch.delete_cf(database.family(Family::Heads), key),
            }
        }
        if !batch.is_empty() {
            for key in &self.result_keys {
                batch.delete_cf(database.family(Family::Idempotency), key);
            }
            database.commit(batch, true)?;
        }
        Ok(())
    }
}

impl Writer {
    /// The next task. While nothing is written, tries to write again in between. `None` when the storage is dropped.
    pub(crate) fn next_task(&mut self) -> Option<WriteTask> {
        loop {
            let Some(failed) = &self.failed else { return self.tasks.recv().ok() };
            let left = failed.retry_at.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.try_to_resume();
                continue;
            }
            match self.tasks.recv_timeout(left) {
                Ok(task) => return Some(task),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    fn try_to_resume(&mut self) {
        let Some(mut failed) = self.failed.take() else { return };
        failed.pause = (failed.pause * 2).min(PAUSE_MAX);
        failed.retry_at = Instant::now() + failed.pause;
        let can_pass = self.shared.fault().is_some_and(|error| error.fault.can_pass());
        if !can_pass || !self.shared.can_write() {
            self.failed = Some(failed);
            return;
        }
        // Reopening closes the database.
        self.database = None;
        let reopened = self.shared.reopen().and_then(|database| failed.undo(&database).map(|()| database));
        self.database = self.shared.get().ok();
        if reopened.is_err() {
            self.failed = Some(failed);
            return;
        }
        // It has heads of the failed commit.
        self.heads = HeadCache::new(self.heads.heads_max());
        self.account.reset();
        StorageCounters::add(&self.shared.counters.resumed, 1);
        self.completions.resumed();
        self.apply_trims();
    }
}
