//! Measures stored paths. Players of a treasure hunt walk for some time, and each is recorded 60 times per second:
//! `path_size DIRECTORY PLAYERS SECONDS`.
//!
//! Prints the bytes per point on disk, the processor time as a share of the walked time, and the bytes of plain points
//! with only `RocksDB`'s own compression.

use std::{path::Path, sync::Arc, time::Duration};

use dunlin_engine::{Event, ShardIndex, event::ShardEvents};
use dunlin_games::Registry;
use dunlin_proof::chance::Xorshift;
use dunlin_protocol::Encoding;
use dunlin_rooms::{
    PlayerId, Room, RoomOptions, Visitor,
    paths::{FinishedBlock, PathTerms, PathTracker, decode_block},
};
use dunlin_storage::{Completions, EntryBatch, PathCompressor, PathOwner, PathPlace, Storage, StorageOptions};

const TICKS_PER_SECOND: u32 = 60;
const CHANNEL: &str = "arena:hunt";
/// The default of `room.paths.block_interval`.
const BLOCK_TICKS: u32 = 5 * TICKS_PER_SECOND;
const FIRST_MS: u64 = 1_700_000_000_000;

struct Nobody;

impl ShardEvents for Nobody {
    fn send(&self, _: ShardIndex, _: Event<'static>) -> bool {
        true
    }
}

impl Completions for Nobody {}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, directory, players, seconds] = &*arguments else {
        eprintln!("usage: path_size DIRECTORY PLAYERS SECONDS");
        std::process::exit(2);
    };
    let (players, seconds): (u32, u32) = (players.parse().expect("a number"), seconds.parse().expect("a number"));
    let directory = Path::new(directory);
    std::fs::create_dir_all(directory).expect("the directory can be made");

    let (blocks, observed) = walk(players, seconds);
    let points: u64 = blocks.iter().map(|block| u64::from(block.points)).sum();
    let raw_bytes: usize = blocks.iter().map(|block| block.bytes.len()).sum();
    println!(
        "{points} points in {} blocks; {:.2} bytes a point before compression",
        blocks.len(),
        raw_bytes as f64 / points as f64
    );

    let before = cpu_time(libc::CLOCK_PROCESS_CPUTIME_ID);
    store(&directory.join("storage"), &blocks);
    let stored = cpu_time(libc::CLOCK_PROCESS_CPUTIME_ID).saturating_sub(before);
    let share = |time: Duration| time.as_secs_f64() * 100.0 / f64::from(seconds);
    println!(
        "processor time: {:.2} % of a core for looking at players, {:.2} % for compressing, storing and compacting",
        share(observed),
        share(stored)
    );
    let per_point = |path: &Path| table_bytes(path) as f64 / points as f64;
    println!("on disk: {:.2} bytes a point", per_point(&compacted(&directory.join("storage"))));
    let plain_blocks = plain(&directory.join("plain-blocks"), &blocks, true);
    println!(
        "plain points of 12 bytes in the same blocks, compressed by RocksDB alone: {:.2} bytes a point",
        per_point(&plain_blocks)
    );
    let plain_points = plain(&directory.join("plain-points"), &blocks, false);
    println!("an entry for each point, compressed by RocksDB alone: {:.2} bytes a point", per_point(&plain_points));
}

/// Returns all blocks, and the processor time of the tracker.
fn walk(players: u32, seconds: u32) -> (Vec<FinishedBlock>, Duration) {
    let params = serde_json::json!({ "columns": 32, "rows": 32 });
    let simulation = Registry::built_in().make("treasure_hunt", &params).expect("it exists").expect("valid");
    let options = RoomOptions { ticks_per_second: TICKS_PER_SECOND, ..RoomOptions::default() };
    let mut room = Room::new(options, 1, simulation).expect("possible");
    let mut tracker = PathTracker::new(PathTerms { interval_ticks: 1, block_ticks: BLOCK_TICKS });
    let mut chance = Xorshift::new(7);
    for number in 0..players {
        let user: Arc<str> = format!("user-{number}").into();
        let joined = room.join(&Visitor::of_user(&user), Encoding::Protobuf, b"").expect("there is room");
        tracker.join(joined.player, &user);
    }
    let (mut blocks, mut observed) = (Vec::new(), Duration::ZERO);
    for tick in 1..=seconds * TICKS_PER_SECOND {
        for player in 1..=players {
            turn(&mut room, PlayerId(player), tick, &mut chance);
        }
        room.tick(0);
        let time_ms = FIRST_MS + u64::from(tick) * 1_000 / u64::from(TICKS_PER_SECOND);
        let before = cpu_time(libc::CLOCK_THREAD_CPUTIME_ID);
        tracker.observe(&room, time_ms, &mut |block| blocks.push(block));
        observed += cpu_time(libc::CLOCK_THREAD_CPUTIME_ID).saturating_sub(before);
    }
    tracker.finish(&mut |block| blocks.push(block));
    (blocks, observed)
}

/// Changes the direction about once per second, with any angle and speed. Players never stand still, because standing
/// would need no bytes.
fn turn(room: &mut Room, player: PlayerId, tick: u32, chance: &mut Xorshift) {
    let draw = chance.draw();
    if !draw.is_multiple_of(u64::from(TICKS_PER_SECOND)) && tick > 1 {
        return;
    }
    let [dx, dy] = [draw >> 8, draw >> 16].map(|byte| (byte as u8).max(1));
    assert!(room.input(player, tick, &[0, dx, dy]));
}

fn store(path: &Path, blocks: &[FinishedBlock]) {
    let storage = Storage::open(&StorageOptions::at(path), Arc::new(Nobody)).expect("it opens");
    let mut compressor = PathCompressor::default();
    for chunk in blocks.chunks(64) {
        let mut batch = EntryBatch::new(false);
        for block in chunk {
            let place = PathPlace {
                owner: PathOwner::User((&*block.user).into()),
                first_ms: block.first_ms,
                player: block.player.0,
            };
            batch.put_block(CHANNEL, &place, u64::MAX, &block.bytes, &mut compressor);
        }
        let (sender, done) = std::sync::mpsc::channel();
        storage.write_entries(batch, Box::new(move |outcome| drop(sender.send(outcome)))).expect("there is room");
        done.recv().expect("it is answered").expect("the disk works");
    }
}

/// Compacts a storage, and returns its directory.
fn compacted(path: &Path) -> std::path::PathBuf {
    Storage::open(&StorageOptions::at(path), Arc::new(Nobody)).expect("it opens").compact();
    path.to_owned()
}

/// Writes plain points to a separate `RocksDB`, with a block or a point per entry.
fn plain(path: &Path, blocks: &[FinishedBlock], in_blocks: bool) -> std::path::PathBuf {
    let mut options = rocksdb::Options::default();
    options.create_if_missing(true);
    options.set_compression_type(rocksdb::DBCompressionType::Zstd);
    options.set_compression_options(-14, 3, 0, 0);
    let db = rocksdb::DB::open(&options, path).expect("it opens");
    let mut disabled = rocksdb::WriteOptions::default();
    disabled.disable_wal(true);
    for block in blocks {
        let decoded = decode_block(&block.bytes).expect("a block");
        let mut value = Vec::new();
        for point in decoded.points {
            for number in [point.tick, point.position.x, point.position.y] {
                value.extend_from_slice(&number.to_le_bytes());
            }
            if !in_blocks {
                db.put_opt(key(block, u64::from(point.tick)), &value[4..], &disabled).expect("the disk works");
                value.clear();
            }
        }
        if in_blocks {
            db.put_opt(key(block, block.first_ms), &value, &disabled).expect("the disk works");
        }
    }
    db.flush().expect("the disk works");
    db.compact_range(None::<&[u8]>, None::<&[u8]>);
    path.to_owned()
}

fn key(block: &FinishedBlock, number: u64) -> Vec<u8> {
    [CHANNEL.as_bytes(), block.user.as_bytes(), &number.to_be_bytes()].concat()
}

fn table_bytes(path: &Path) -> u64 {
    let files = std::fs::read_dir(path).expect("it exists").flatten();
    let tables = files.filter(|file| file.path().extension().is_some_and(|extension| extension == "sst"));
    tables.map(|file| file.metadata().map_or(0, |metadata| metadata.len())).sum()
}

fn cpu_time(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a value that outlives the call.
    assert_eq!(unsafe { libc::clock_gettime(clock, &raw mut time) }, 0);
    Duration::new(time.tv_sec.cast_unsigned(), u32::try_from(time.tv_nsec).unwrap_or(0))
}
