//! Measures how checkpoints of a room affect the latency of publications: `checkpoint_latency DIRECTORY TURNS SECONDS
//! MEBIBYTES`. Each turn publishes 2,000 times per second: without checkpoints, with one per second in one piece, and
//! with one per second in parts. A part is queued when the previous one is written.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use dunlin_engine::{
    Event, ShardIndex,
    event::ShardEvents,
    log::{LogRecord, LogRetention, LogTerms, ProposalNumber},
};
use dunlin_protocol::{Payload, Publication};
use dunlin_storage::{Completions, EntryBatch, Storage, StorageOptions, StoreRequest};

const PUBLICATIONS_PER_S: u64 = 2_000;
const CHANNELS: u64 = 100;
const PART_BYTES: usize = 256 << 10;
const ROOM: &str = "arena:1";

/// How checkpoints are written.
#[derive(Clone, Copy, Debug)]
enum Pieces {
    None,
    One,
    Parts,
}

/// The commit time of each publication, in microseconds since the beginning.
struct CommitTimes {
    began: Instant,
    at_us: Vec<AtomicU64>,
    answered: AtomicU64,
}

impl ShardEvents for CommitTimes {
    fn send(&self, _: ShardIndex, event: Event<'static>) -> bool {
        if let Event::Committed { proposal, outcome, .. } = event {
            outcome.expect("the disk works");
            let at_us = self.began.elapsed().as_micros() as u64;
            self.at_us[proposal.0 as usize].store(at_us, Ordering::SeqCst);
            self.answered.fetch_add(1, Ordering::SeqCst);
        }
        true
    }
}

impl Completions for CommitTimes {}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, directory, turns, seconds, mebibytes] = &*arguments else {
        eprintln!("usage: checkpoint_latency DIRECTORY TURNS SECONDS MEBIBYTES");
        std::process::exit(2);
    };
    let number = |text: &String| text.parse::<u64>().expect("a number");
    let (turns, seconds, bytes) = (number(turns), number(seconds), (number(mebibytes) as usize) << 20);
    let (directory, world) = (Path::new(directory), Arc::new(world(bytes)));
    std::fs::create_dir_all(directory).expect("the directory can be made");
    for is_synced in [false, true] {
        for turn in 0..turns {
            for pieces in [Pieces::None, Pieces::One, Pieces::Parts] {
                let mut latencies = publish(&directory.join("turn"), pieces, is_synced, seconds, &world);
                latencies.sort_unstable();
                let at = |permille: usize| latencies[(latencies.len() - 1) * permille / 1_000] as f64 / 1_000.0;
                println!(
                    "synced {is_synced}, turn {turn}, {pieces:?}: p50 {:.2} ms, p99 {:.2} ms, p99.9 {:.2} ms, longest {:.2} ms",
                    at(500),
                    at(990),
                    at(999),
                    at(1_000)
                );
            }
        }
    }
}

/// Publishes at the fixed rate. Returns latencies in microseconds, measured from the time at which each publication was
/// due.
fn publish(path: &Path, pieces: Pieces, is_synced: bool, seconds: u64, world: &Arc<Vec<u8>>) -> Vec<u64> {
    let publications = PUBLICATIONS_PER_S * seconds;
    let times = Arc::new(CommitTimes {
        began: Instant::now(),
        at_us: (0..publications).map(|_| AtomicU64::new(0)).collect(),
        answered: AtomicU64::new(0),
    });
    let opened = Storage::open(&StorageOptions::at(path), Arc::clone(&times) as Arc<dyn Completions>);
    let storage = Arc::new(opened.expect("it opens"));
    let began_us = times.began.elapsed().as_micros() as u64;
    let due_us = |number: u64| began_us + number * 1_000_000 / PUBLICATIONS_PER_S;
    for number in 0..publications {
        let wait_us = due_us(number).saturating_sub(times.began.elapsed().as_micros() as u64);
        thread::sleep(Duration::from_micros(wait_us));
        storage.store(request(number, is_synced)).expect("there is room");
        if number % PUBLICATIONS_PER_S == PUBLICATIONS_PER_S / 2 {
            save(&storage, pieces, number, world);
        }
    }
    while times.answered.load(Ordering::SeqCst) < publications || Arc::strong_count(&storage) > 1 {
        thread::sleep(Duration::from_millis(1));
    }
    drop(storage);
    std::fs::remove_dir_all(path).expect("it can be removed");
    let at_us = times.at_us.iter().map(|at_us| at_us.load(Ordering::SeqCst));
    at_us.enumerate().map(|(number, at_us)| at_us.saturating_sub(due_us(number as u64))).collect()
}

fn request(number: u64, is_synced: bool) -> StoreRequest {
    let publication = Publication {
        data: Payload::from_json(vec![b'1'; 200].into()),
        info: None,
        offset: number / CHANNELS + 1,
        tags: Vec::new(),
        time_ms: 0,
        epoch: Box::default(),
        version: 0,
    };
    let retention = LogRetention { publications_max: 1_000_000, ttl_ms: 3_600_000 };
    let record = LogRecord { publication: Arc::new(publication), version_epoch: Box::default(), idempotency_key: None };
    StoreRequest {
        shard: ShardIndex(0),
        channel: format!("market:{}", number % CHANNELS).into(),
        proposal: ProposalNumber(number),
        record: Box::new(record),
        begins: None,
        terms: LogTerms { retention, meta_ttl_ms: 7_200_000, result_ttl_ms: 300_000, is_synced },
    }
}

/// A world that does not compress.
fn world(bytes: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

/// Saves a checkpoint on a separate thread, as a room does.
fn save(storage: &Arc<Storage>, pieces: Pieces, tick: u64, world: &Arc<Vec<u8>>) {
    let (storage, world) = (Arc::clone(storage), Arc::clone(world));
    thread::spawn(move || match pieces {
        Pieces::None => {}
        Pieces::One => write(&storage, tick, vec![world.to_vec()]),
        Pieces::Parts => write(&storage, tick, world.rchunks(PART_BYTES).map(<[u8]>::to_vec).collect()),
    });
}

/// Writes the last part, and then the parts before it.
fn write(storage: &Arc<Storage>, tick: u64, mut parts: Vec<Vec<u8>>) {
    let Some(part) = parts.pop() else { return };
    let mut batch = EntryBatch::new(false);
    batch.put_checkpoint(ROOM, 1, tick * 1_000 + parts.len() as u64, part);
    if parts.is_empty() {
        batch.delete_checkpoints(ROOM, 1, tick * 1_000);
    }
    let again = Arc::clone(storage);
    let written = storage.write_entries(
        batch,
        Box::new(move |outcome| {
            outcome.expect("the disk works");
            write(&again, tick, parts);
        }),
    );
    written.expect("there is room");
}
