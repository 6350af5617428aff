//! Entries of rooms.

use std::{ops::RangeInclusive, sync::mpsc::channel};

use dunlin_storage::{
    EntryBatch, PathCompressor, PathOwner, PathPage, PathPlace, PathQuery, RoomCheckpoint, StorageError,
};

use crate::harness::{ScratchDirectory, TestStorage};

pub fn write(opened: &TestStorage, batch: EntryBatch) -> Result<(), StorageError> {
    let (sender, receiver) = channel();
    let done = Box::new(move |outcome| sender.send(outcome).expect("the test waits"));
    opened.storage.write_entries(batch, done).expect("there is room");
    receiver.recv().expect("it is answered")
}

pub const ROOM: &str = "arena:1";

/// Stores blocks with these times of their first points: of a user, or of an anonymous player if the name is a number.
pub fn put(opened: &TestStorage, room: &str, user: &str, times_ms: &[u64], expires_ms: u64) {
    let (mut batch, mut compressor) = (EntryBatch::new(false), PathCompressor::default());
    for &first_ms in times_ms {
        let place = PathPlace { owner: owner(user), first_ms, player: 7 };
        assert!(batch.put_block(room, &place, expires_ms, &block_of(first_ms), &mut compressor) < 40);
    }
    write(opened, batch).expect("the disk works");
}

pub fn owner(user: &str) -> PathOwner {
    user.parse().map_or_else(|_| PathOwner::User(user.into()), PathOwner::Player)
}

fn block_of(first_ms: u64) -> [u8; 4_096] {
    [first_ms as u8; 4_096]
}

pub fn query(user: Option<&str>, times_ms: RangeInclusive<u64>, blocks_max: usize) -> PathQuery {
    PathQuery { room: ROOM.into(), owner: user.map(owner), times_ms, reach_ms: 0, from: None, blocks_max }
}

fn page(opened: &TestStorage, query: PathQuery) -> PathPage {
    let (sender, receiver) = channel();
    let done = Box::new(move |outcome| sender.send(outcome).expect("the test waits"));
    opened.storage.read_paths(query, done).expect("there is room");
    receiver.recv().expect("it is answered").expect("the disk works")
}

/// The blocks of all pages, and the number of pages.
pub fn read(opened: &TestStorage, mut query: PathQuery) -> (Vec<(PathOwner, u64)>, usize) {
    let (mut found, mut pages) = (Vec::new(), 0);
    loop {
        let PathPage { blocks, next } = page(opened, query.clone());
        assert!(blocks.len() <= query.blocks_max);
        for block in blocks {
            assert_eq!(*block.bytes, block_of(block.place.first_ms));
            found.push((block.place.owner, block.place.first_ms));
        }
        pages += 1;
        match next {
            Some(place) => query.from = Some(place),
            None => return (found, pages),
        }
    }
}

#[test]
fn blocks_are_read_from_the_one_that_a_time_is_in() {
    let directory = ScratchDirectory::new();
    let opened = TestStorage::open(&directory.0);
    put(&opened, ROOM, "ada", &[0, 100, 200, 300], u64::MAX);
    put(&opened, ROOM, "bob", &[50, 150, 250, 350], u64::MAX);
    put(&opened, ROOM, "7", &[120], u64::MAX);
    put(&opened, "arena:10", "ada", &[150], u64::MAX);
    put(&opened, ROOM, "gone", &[100, 150], 1);
    let of = |user, times_ms| {
        let (found, _) = read(&opened, query(Some(user), times_ms, 100));
        found.into_iter().map(|(_, first_ms)| first_ms).collect::<Vec<_>>()
    };
    assert_eq!(of("ada", 150..=250), [100, 200]);
    assert_eq!(of("ada", 0..=u64::MAX), [0, 100, 200, 300]);
    assert_eq!(of("ada", 100..=100), [0, 100]);
    assert_eq!(of("bob", 0..=60), [50]);
    assert_eq!(of("7", 0..=500), [120]);
    assert_eq!(of("8", 0..=500), [0; 0]);
    assert_eq!(of("gone", 0..=500), [0; 0], "it has expired");

    let all: Vec<_> = [("7", 120), ("ada", 100), ("ada", 200), ("bob", 50), ("bob", 150), ("bob", 250)]
        .map(|(user, ms)| (owner(user), ms))
        .into();
    for blocks_max in 1..12 {
        let (found, pages) = read(&opened, query(None, 150..=250, blocks_max));
        assert_eq!(found, all, "with at most {blocks_max}");
        assert!(pages >= 6_usize.div_ceil(blocks_max), "{pages}");
    }

    let mut batch = EntryBatch::new(true);
    batch.delete_paths(ROOM);
    write(&opened, batch).expect("the disk works");
    assert_eq!(read(&opened, query(None, 0..=u64::MAX, 100)), (Vec::new(), 1));
}

#[test]
fn path_reads_include_every_player_at_the_start_time() {
    let directory = ScratchDirectory::new();
    let opened = TestStorage::open(&directory.0);
    // Blocks of 100 ms of three players, whose blocks begin at different times; the third has left.
    let blocks = [(1, 0), (2, 40), (3, 60), (1, 100), (2, 140), (1, 200), (2, 240), (1, 300)];
    let (mut batch, mut compressor) = (EntryBatch::new(false), PathCompressor::default());
    for (player, first_ms) in blocks {
        let place = PathPlace { owner: owner("ada"), first_ms, player };
        batch.put_block(ROOM, &place, u64::MAX, &block_of(first_ms), &mut compressor);
    }
    write(&opened, batch).expect("the disk works");
    let of = |times_ms: RangeInclusive<u64>, reach_ms, blocks_max| {
        let mut query = PathQuery { reach_ms, ..query(Some("ada"), times_ms, blocks_max) };
        let mut found = Vec::new();
        loop {
            let PathPage { blocks, next } = page(&opened, query.clone());
            found.extend(blocks.into_iter().map(|block| (block.place.player, block.place.first_ms)));
            match next {
                Some(place) => query.from = Some(place),
                None => return found,
            }
        }
    };
    for (start, end) in [(0, 10), (45, 60), (99, 99), (150, 160), (201, 230), (239, 239), (240, 400), (300, 301)] {
        let expected: Vec<(u32, u64)> =
            blocks.into_iter().filter(|(_, first_ms)| first_ms + 100 > start && *first_ms <= end).collect();
        for blocks_max in [1, 2, 9] {
            let found = of(start..=end, 100, blocks_max);
            assert!(expected.iter().all(|block| found.contains(block)), "{start} to {end}: {found:?}");
            assert!(found.len() <= expected.len() + 2, "{start} to {end}: {found:?}");
        }
    }
    // For a time long after the last blocks, only the block of the last player is read.
    assert_eq!(of(1_000..=1_001, 100, 9), [(1, 300)]);
    assert_eq!(of(150..=160, 0, 9), [(2, 140)], "without the reach, a player is missing");
}

#[test]
fn the_newest_checkpoint_up_to_a_tick_is_found() {
    let directory = ScratchDirectory::new();
    let opened = TestStorage::open(&directory.0);
    let mut batch = EntryBatch::new(true);
    for tick in [60, 120, 180] {
        batch.put_checkpoint("arena:1", 1, tick, vec![1, tick as u8]);
        batch.put_checkpoint("arena:1", 2, tick + 1, vec![2, tick as u8]);
    }
    write(&opened, batch).expect("the disk works");
    drop(opened);
    let opened = TestStorage::open(&directory.0);
    let newest = |up_to| opened.storage.newest_checkpoint("arena:1", 1, up_to).expect("it can be read");
    assert_eq!(newest(u64::MAX), Some(RoomCheckpoint { tick: 180, bytes: [1, 180].into() }));
    assert_eq!(newest(179).map(|checkpoint| checkpoint.tick), Some(120));
    assert_eq!(newest(59), None);
    let all = opened.storage.checkpoints("arena:1", 2, 0..=u64::MAX, 1_000).expect("it can be read");
    assert_eq!(all.iter().map(|checkpoint| checkpoint.tick).collect::<Vec<_>>(), [61, 121, 181]);
    let mut batch = EntryBatch::new(false);
    batch.delete_checkpoints("arena:1", 1, 180);
    write(&opened, batch).expect("the disk works");
    assert_eq!(newest(179), None);
    let mut batch = EntryBatch::new(false);
    for room in ["arena:2", "arena:10", "b"] {
        batch.put_checkpoint(room, 1, 7, vec![]);
        batch.put_checkpoint(room, 2, 8, vec![]);
    }
    write(&opened, batch).expect("the disk works");
    let rooms = |after, rooms_max| opened.storage.rooms_with_checkpoints(after, rooms_max).expect("it can be read");
    assert_eq!(rooms(None, 10), ["b".into(), "arena:1".into(), "arena:2".into(), "arena:10".into()]);
    assert_eq!(rooms(None, 2), ["b".into(), "arena:1".into()]);
    assert_eq!(rooms(Some("arena:1"), 10), ["arena:2".into(), "arena:10".into()]);
    let mut batch = EntryBatch::new(false);
    batch.delete_all_checkpoints("arena:10");
    write(&opened, batch).expect("the disk works");
    assert_eq!(rooms(Some("arena:2"), 10), []);
    assert_eq!(newest(180).map(|checkpoint| checkpoint.tick), Some(180));
}
