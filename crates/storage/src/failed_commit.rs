//! A failed write. While there is one, the writer refuses; it writes again when the cause has passed.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use rocksdb::WriteBatch;

use crate::{
    database::Database, error::StorageError, family::Family, heads::ChannelSet, keys, records::ChannelHead,
    shared_database::SharedDatabase, writer::PendingAnswer,
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

    /// The time until the next attempt.
    pub(crate) fn time_left(&self) -> Duration {
        self.retry_at.saturating_duration_since(Instant::now())
    }

    /// Opens the database again and removes the commit from it, if the cause of the failure has passed. Otherwise returns
    /// `false`, and the next attempt is later.
    pub(crate) fn try_to_undo(&mut self, shared: &SharedDatabase, database: &mut Option<Arc<Database>>) -> bool {
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        self.retry_at = Instant::now() + self.pause;
        let can_pass = shared.fault().is_some_and(|error| error.fault.can_pass());
        if !can_pass || !shared.can_write() {
            return false;
        }
        // Reopening closes the database.
        *database = None;
        let undone = shared.reopen().and_then(|reopened| self.undo(&reopened));
        *database = shared.get().ok();
        undone.is_ok()
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
