//! Writes a storage before a server opens it.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use dunlin_engine::event::ShardEvents;
use dunlin_engine::log::{LogRecord, LogRetention, LogTerms, ProposalNumber};
use dunlin_engine::{Event, ShardIndex};
use dunlin_protocol::{Payload, Publication};
use dunlin_storage::{Completions, Storage, StorageOptions, StoreRequest};

use crate::error::Error;
use crate::progress::Progress;

/// Maximum number of queued publications.
const IN_FLIGHT_MAX: u64 = 4_096;

/// The content to write.
#[derive(Clone, Copy, Debug)]
pub struct Fill {
    pub publications: u64,
    pub channels: u64,
    pub payload_bytes: usize,
}

/// Name of a channel.
pub fn channel(number: u64) -> String {
    format!("disk:{number}")
}

/// Fills a directory. Its entries do not expire within a day.
pub fn fill(path: &Path, fill: Fill, progress: &Progress) -> Result<(), Error> {
    let answers = Arc::new(AnswerCount::default());
    let completions = Arc::clone(&answers) as Arc<dyn Completions>;
    let storage = Storage::open(&StorageOptions::at(path), completions).map_err(|error| failed(&error))?;
    let day_ms = 24 * 60 * 60 * 1_000;
    let retention = LogRetention { publications_max: 1_000_000, ttl_ms: day_ms };
    let terms = LogTerms { retention, meta_ttl_ms: 2 * day_ms, result_ttl_ms: 300_000, is_synced: false };
    let channels: Vec<Arc<str>> = (0..fill.channels).map(|number| channel(number).into()).collect();
    progress.counting(format!("filling {}", path.display()), fill.publications);
    for number in 0..fill.publications {
        let answered = answers.wait_for((number + 1).saturating_sub(IN_FLIGHT_MAX));
        progress.at(answered);
        let record = Box::new(record(number, number / fill.channels + 1, fill.payload_bytes));
        let channel = Arc::clone(&channels[(number % fill.channels) as usize]);
        let (shard, proposal) = (ShardIndex(0), ProposalNumber(number));
        storage
            .store(StoreRequest { shard, channel, proposal, record, begins: None, terms })
            .map_err(|error| failed(&error))?;
    }
    answers.wait_for(fill.publications);
    if answers.refused.load(Ordering::SeqCst) > 0 {
        return Err(failed(&storage.poison()));
    }
    Ok(())
}

fn failed(why: &dyn std::fmt::Debug) -> Error {
    let remedy = "give --directory an empty directory on a disk with space".to_owned();
    Error::Server { did: format!("could not be given a storage ({why:?})"), remedy }
}

/// A JSON string with a compression ratio similar to that of names and prices.
fn record(number: u64, offset: u64, payload_bytes: usize) -> LogRecord {
    let mut text = String::with_capacity(payload_bytes + 20);
    text.push('"');
    let mut state = number;
    while text.len() + 1 < payload_bytes {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let _ = write!(text, "{:x} price ", state >> 40);
    }
    text.truncate(payload_bytes.max(2) - 1);
    text.push('"');
    let publication = Publication {
        data: Payload::from_json(text.into_bytes().into()),
        info: None,
        offset,
        tags: Vec::new(),
        time_ms: 0,
        epoch: Box::default(),
        version: 0,
    };
    LogRecord { publication: Arc::new(publication), version_epoch: Box::default(), idempotency_key: None }
}

/// Counts the answers of the storage.
#[derive(Default)]
struct AnswerCount {
    answered: AtomicU64,
    refused: AtomicU64,
    waiting: Mutex<()>,
    changed: Condvar,
}

impl AnswerCount {
    fn wait_for(&self, answered: u64) -> u64 {
        let held = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let is_short = |(): &mut ()| self.answered.load(Ordering::SeqCst) < answered;
        drop(self.changed.wait_while(held, is_short).unwrap_or_else(PoisonError::into_inner));
        self.answered.load(Ordering::SeqCst)
    }
}

impl ShardEvents for AnswerCount {
    fn send(&self, _: ShardIndex, event: Event<'static>) -> bool {
        if let Event::Committed { outcome, .. } = event {
            self.refused.fetch_add(u64::from(outcome.is_err()), Ordering::SeqCst);
            self.answered.fetch_add(1, Ordering::SeqCst);
        }
        true
    }
}

impl Completions for AnswerCount {
    fn flush(&self) {
        let _held = self.waiting.lock();
        self.changed.notify_all();
    }
}
