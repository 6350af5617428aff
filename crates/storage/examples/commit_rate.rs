//! Compares the storage with bare `RocksDB` write batches of the same sizes: `commit_rate DIRECTORY PUBLICATIONS
//! BYTES`. With `--huge-pages TURNS`, compares memtables in huge pages of 2 MiB with memtables on the heap, in
//! alternating turns.

use std::{
    path::Path,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use dunlin_engine::{
    Event, ShardIndex,
    event::ShardEvents,
    log::{LogRecord, LogRetention, LogTerms, ProposalNumber},
};
use dunlin_protocol::{Payload, Publication};
use dunlin_storage::{Completions, Storage, StorageOptions, StoreRequest};

const CHANNELS: u64 = 1_000;
const IN_FLIGHT_MAX: u64 = 4_096;

#[derive(Default)]
struct AnswerCount {
    answered: AtomicU64,
    waiting: Mutex<()>,
    changed: Condvar,
}

impl ShardEvents for AnswerCount {
    fn send(&self, _: ShardIndex, event: Event<'static>) -> bool {
        if let Event::Committed { outcome, .. } = event {
            outcome.expect("the disk works");
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

impl AnswerCount {
    fn wait_for(&self, answered: u64) {
        let held = self.waiting.lock().expect("not poisoned");
        let is_short = |(): &mut ()| self.answered.load(Ordering::SeqCst) < answered;
        drop(self.changed.wait_while(held, is_short).expect("not poisoned"));
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let (directory, publications, bytes, turns) = match &*arguments {
        [_, directory, publications, bytes] => (directory, publications, bytes, None),
        [_, directory, publications, bytes, option, turns] if option == "--huge-pages" => {
            (directory, publications, bytes, Some(turns.parse().expect("a number")))
        }
        _ => {
            eprintln!("usage: commit_rate DIRECTORY PUBLICATIONS BYTES [--huge-pages TURNS]");
            std::process::exit(2);
        }
    };
    let (publications, bytes) = (publications.parse().expect("a number"), bytes.parse().expect("a number"));
    let directory = Path::new(directory);
    std::fs::create_dir_all(directory).expect("the directory can be made");
    if let Some(turns) = turns {
        return compare_huge_pages(directory, publications, bytes, turns);
    }
    let (per_s, batch) = through_storage(&directory.join("storage"), 0, publications, bytes);
    println!("storage: {per_s:.0} publications/s, {batch} in a batch");
    let bare_per_s = bare(&directory.join("bare"), publications, bytes, batch);
    println!("bare batches: {bare_per_s:.0} publications/s; ratio {:.2}", per_s / bare_per_s);
}

/// Each turn has one storage of each kind, in alternating order.
fn compare_huge_pages(directory: &Path, publications: u64, bytes: usize, turns: u32) {
    let mut ratios = Vec::new();
    for turn in 0..turns {
        let path = directory.join("turn");
        let measure = |huge_page_bytes| {
            let (per_s, _) = through_storage(&path, huge_page_bytes, publications, bytes);
            std::fs::remove_dir_all(&path).expect("it can be removed");
            per_s
        };
        let (heap, huge) = if turn % 2 == 0 {
            (measure(0), measure(2 << 20))
        } else {
            let huge = measure(2 << 20);
            (measure(0), huge)
        };
        println!("heap {heap:.0}, huge pages {huge:.0} publications/s; ratio {:.3}", huge / heap);
        ratios.push(huge / heap);
    }
    ratios.sort_by(f64::total_cmp);
    println!("median of the ratios: {:.3}", ratios.get(ratios.len() / 2).copied().unwrap_or_default());
}

/// Returns the publications per second, and per batch.
fn through_storage(path: &Path, huge_page_bytes: usize, publications: u64, bytes: usize) -> (f64, u64) {
    let answers = Arc::new(AnswerCount::default());
    let options = StorageOptions { huge_page_bytes, ..StorageOptions::at(path) };
    let storage = Storage::open(&options, Arc::clone(&answers) as Arc<dyn Completions>).expect("it opens");
    let retention = LogRetention { publications_max: 1_000_000, ttl_ms: 3_600_000 };
    let terms = LogTerms { retention, meta_ttl_ms: 7_200_000, result_ttl_ms: 300_000, is_synced: false };
    let channels: Vec<Arc<str>> = (0..CHANNELS).map(|number| format!("market:{number}").into()).collect();
    let data = Payload::from_json(vec![b'1'; bytes].into());
    let began = Instant::now();
    for number in 0..publications {
        answers.wait_for((number + 1).saturating_sub(IN_FLIGHT_MAX));
        let publication = Publication {
            data: data.clone(),
            info: None,
            offset: number / CHANNELS + 1,
            tags: Vec::new(),
            time_ms: 0,
            epoch: Box::default(),
            version: 0,
        };
        let record = Box::new(LogRecord {
            publication: Arc::new(publication),
            version_epoch: Box::default(),
            idempotency_key: None,
        });
        let channel = Arc::clone(&channels[(number % CHANNELS) as usize]);
        let (shard, proposal) = (ShardIndex(0), ProposalNumber(number));
        storage.store(StoreRequest { shard, channel, proposal, record, begins: None, terms }).expect("there is room");
    }
    answers.wait_for(publications);
    let per_s = publications as f64 / began.elapsed().as_secs_f64();
    (per_s, publications.div_ceil(storage.counts().commits.max(1)))
}

fn bare(path: &Path, publications: u64, bytes: usize, batch_publications: u64) -> f64 {
    let db = rocksdb::DB::open_default(path).expect("it opens");
    let value = vec![b'1'; bytes];
    let began = Instant::now();
    let mut batch = rocksdb::WriteBatch::new();
    for number in 0..publications {
        let key = format!("market:{}:{:020}", number % CHANNELS, number / CHANNELS);
        batch.put(key, &value);
        if batch.len() as u64 >= batch_publications {
            db.write(std::mem::take(&mut batch)).expect("the disk works");
        }
    }
    db.write(batch).expect("the disk works");
    publications as f64 / began.elapsed().as_secs_f64()
}
