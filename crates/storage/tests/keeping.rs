//! Stored entries are read while they are kept, and not afterwards.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use dunlin_engine::log::{LoadQuery, LogBusy, LogError, LogRetention, LogTerms};
use dunlin_storage::{ClockSource, EntryBatch, PageLimits, QueueLimits, StorageOptions};

use crate::harness::{ScratchDirectory, TERMS, TestStorage, offsets, record, record_of};

#[test]
fn publications_and_epoch_survive_a_restart() {
    let directory = ScratchDirectory::new();
    let opened = TestStorage::open(&directory.0);
    let epoch = opened.newest("chat:1", 10).epoch;
    assert_eq!(epoch.len(), 8);
    for offset in 1..=20 {
        opened.store("chat:1", offset);
    }
    opened.store("chat:2", 1);
    drop(opened);

    let opened = TestStorage::open(&directory.0);
    let page = opened.newest("chat:1", 5);
    assert_eq!((page.epoch, page.top, page.floor, page.through), (epoch.clone(), 20, 15, 20));
    let page = opened.newest("chat:1", 100);
    assert_eq!((offsets(&page), page.floor), ((1..=20).collect(), 0));
    let page = opened.after("chat:1", 7, 4);
    assert_eq!((offsets(&page), page.floor, page.through, page.top), (vec![8, 9, 10, 11], 7, 11, 20));
    let page = opened.after("chat:1", 20, 4);
    assert_eq!((offsets(&page), page.floor, page.through), (vec![], 20, 20));
    assert_ne!(opened.newest("chat:2", 5).epoch, epoch);
    assert_eq!(offsets(&opened.newest("chat:2", 5)), [1]);
}

#[test]
fn the_newest_page_is_marked_when_cut_by_size() {
    let directory = ScratchDirectory::new();
    let limits = PageLimits { bytes_max: 400, ..PageLimits::default() };
    let options = StorageOptions { pages: limits, ..StorageOptions::at(&directory.0) };
    let opened = TestStorage::with(&options).expect("the storage opens");
    for offset in 1..=20 {
        opened.store("chat:1", offset);
    }
    let page = opened.newest("chat:1", 100);
    assert!(page.records.len() < 20 && page.has_more_below && page.floor > 0, "{page:?}");
    assert!(opened.newest("chat:1", 2).has_more_below);
    opened.store("chat:2", 1);
    assert!(!opened.newest("chat:2", 1).has_more_below, "there is nothing below");
}

#[test]
fn replies_follow_the_request_order_and_offsets_are_unique() {
    let directory = ScratchDirectory::new();
    let opened = TestStorage::open(&directory.0);
    for offset in 1..=500 {
        opened.propose("chat:1", record(offset), TERMS).expect("there is room");
    }
    let outcomes: Vec<_> = opened.commits(500).into_iter().map(|(.., outcome)| outcome).collect();
    assert_eq!(outcomes, (1..=500).map(Ok).collect::<Vec<_>>());
    assert_eq!(opened.store_with("chat:1", record(500), TERMS), Err(LogError::Unavailable));
    assert_eq!(opened.store_with("chat:1", record(502), TERMS), Ok(502));
    let page = opened.after("chat:1", 499, 10);
    assert_eq!((offsets(&page), page.floor), (vec![500, 502], 499), "an offset that was refused is not missing");
}

#[test]
fn trimming_keeps_the_newest_and_raises_the_floor() {
    let directory = ScratchDirectory::new();
    let opened = TestStorage::open(&directory.0);
    let terms = LogTerms { retention: LogRetention { publications_max: 10, ..TERMS.retention }, ..TERMS };
    for offset in 1..=200 {
        assert_eq!(opened.store_with("chat:1", record(offset), terms), Ok(offset));
    }
    let page = opened.newest("chat:1", 100);
    assert_eq!((offsets(&page), page.floor), ((191..=200).collect(), 190));
    let page = opened.after("chat:1", 3, 100);
    assert_eq!((offsets(&page), page.floor), ((191..=200).collect(), 190));
    opened.storage.compact();
    let kept = opened.inspect().check().expect("all can be read").publications;
    assert!((10..=10 + 64).contains(&kept), "{kept} are on disk");
}

#[test]
fn trimmed_publications_are_in_no_page() {
    let directory = ScratchDirectory::new();
    let opened = TestStorage::open(&directory.0);
    for offset in 1..=50 {
        opened.store("chat:1", offset);
    }
    let epoch = opened.newest("chat:1", 1).epoch;
    opened.storage.trim("chat:1".into(), 30, None);
    let page = opened.newest("chat:1", 100);
    assert_eq!((offsets(&page), page.floor), ((31..=50).collect(), 30));
    opened.storage.trim("chat:1".into(), u64::MAX, None);
    let page = opened.newest("chat:1", 100);
    assert_eq!((offsets(&page), page.floor, page.top), (vec![], 50, 50));
    opened.store("chat:1", 51);
    assert_eq!(offsets(&opened.after("chat:1", 50, 9)), [51]);
    assert_eq!(opened.newest("chat:1", 1).epoch, epoch);
    opened.storage.remove("chat:1".into());
    let page = opened.newest("chat:1", 100);
    assert_eq!((offsets(&page), page.top), (vec![], 0));
    assert_ne!(page.epoch, epoch, "its offsets begin again");
}

#[test]
fn publications_after_a_removal_have_a_new_epoch() {
    let directory = ScratchDirectory::new();
    let opened = TestStorage::open(&directory.0);
    opened.store("chat:1", 1);
    let epoch = opened.newest("chat:1", 1).epoch;
    // The writer waits in the callback, so that the next requests are one batch.
    let (release, held) = std::sync::mpsc::channel::<()>();
    let wait = Box::new(move |_| {
        let _ = held.recv();
    });
    opened.storage.write_entries(EntryBatch::new(false), wait).expect("there is room");
    opened.storage.remove("chat:1".into());
    opened.propose("chat:1", record(7), TERMS).expect("there is room");
    drop(release);
    assert_eq!(opened.commits(2).last().map(|(.., outcome)| *outcome), Some(Ok(7)));
    let page = opened.after("chat:1", 0, 9);
    assert_eq!((offsets(&page), page.floor, page.top), (vec![7], 0, 7));
    assert_ne!(page.epoch, epoch);
}

#[test]
fn pages_have_bounds() {
    let directory = ScratchDirectory::new();
    let pages = PageLimits { publications_max: 8, bytes_max: 4_000 };
    let opened = TestStorage::with(&StorageOptions { pages, ..StorageOptions::at(&directory.0) }).expect("it opens");
    for offset in 1..=20 {
        let data = format!("{{\"number\":{offset},\"padding\":\"{}\"}}", "x".repeat(if offset > 10 { 990 } else { 1 }));
        assert_eq!(opened.store_with("chat:1", record_of(offset, data), TERMS), Ok(offset));
    }
    let page = opened.after("chat:1", 0, 100);
    assert_eq!((offsets(&page).len(), page.through), (8, 8));
    let page = opened.after("chat:1", 12, 100);
    assert_eq!((offsets(&page), page.through), (vec![13, 14, 15, 16], 16));
    let page = opened.newest("chat:1", 100);
    assert_eq!((offsets(&page), page.floor), (vec![17, 18, 19, 20], 16));
}

#[test]
fn a_page_is_as_long_as_requested() {
    let directory = ScratchDirectory::new();
    let opened = TestStorage::open(&directory.0);
    for offset in (1..=30).filter(|offset| *offset != 20) {
        opened.store("chat:1", offset);
    }
    let before = opened.storage.counts().page_publications;
    let page = opened.below("chat:1", 12, 3);
    assert_eq!((offsets(&page), page.floor, page.through), (vec![9, 10, 11], 8, 11));
    assert!(page.has_more_below);
    let page = opened.below("chat:1", 21, 1);
    assert_eq!((offsets(&page), page.floor, page.through), (vec![19], 18, 20), "20 was refused and is not missing");
    let page = opened.below("chat:1", 3, 10);
    assert_eq!((offsets(&page), page.floor, page.has_more_below), (vec![1, 2], 0, false));
    assert!(opened.below("chat:1", 1, 10).records.is_empty());
    assert_eq!(offsets(&opened.below("chat:1", 99, 1)), [30]);
    let within = LoadQuery::after(0, 1_000).within(1);
    assert_eq!(offsets(&opened.try_load("chat:1", within, TERMS).expect("it can be read")), [1]);
    assert_eq!(opened.storage.counts().page_publications - before, 3 + 1 + 2 + 1 + 1, "no more was read");
    let fewer = LogTerms { retention: LogRetention { publications_max: 5, ..TERMS.retention }, ..TERMS };
    let page = opened.try_load("chat:1", LoadQuery::after(0, 100), fewer).expect("it can be read");
    assert_eq!((offsets(&page), page.floor), ((26..=30).collect(), 25), "the limit was lowered");
}

#[test]
fn a_repeated_idempotency_key_is_answered_with_the_first_offset() {
    const KEYS: u64 = 3_000;
    let keyed = |offset: u64, key: u64| {
        let mut keyed = record(offset);
        keyed.idempotency_key = Some(format!("key-{key}").into());
        keyed
    };
    let directory = ScratchDirectory::new();
    let opened = TestStorage::open(&directory.0);
    for offset in 1..=KEYS {
        opened.propose("chat:1", keyed(offset, offset), TERMS).expect("there is room");
    }
    opened.commits(KEYS as usize);
    assert_eq!(opened.store_with("chat:1", keyed(KEYS + 1, 1), TERMS), Ok(1));
    drop(opened);
    let opened = TestStorage::open(&directory.0);
    assert_eq!(opened.store_with("chat:1", keyed(KEYS + 2, 7), TERMS), Ok(7));
    assert_eq!(opened.newest("chat:1", 1).top, KEYS, "nothing was stored");
    assert_eq!(opened.store_with("chat:2", keyed(1, 7), TERMS), Ok(1), "keys are those of a channel");
    opened.storage.remove("chat:1".into());
    assert_eq!(opened.store_with("chat:1", keyed(1, 7), TERMS), Ok(1), "a removed channel has no keys");
}

#[test]
fn the_version_comes_with_the_newest_publications() {
    let directory = ScratchDirectory::new();
    let opened = TestStorage::open(&directory.0);
    let mut versioned = record(1);
    versioned.version_epoch = "v".into();
    Arc::make_mut(&mut versioned.publication).version = 12;
    assert_eq!(opened.store_with("chat:1", versioned, TERMS), Ok(1));
    drop(opened);
    let opened = TestStorage::open(&directory.0);
    let loaded = opened.newest("chat:1", 9);
    assert_eq!((loaded.version, &*loaded.version_epoch), (12, "v"));
}

#[test]
fn reading_stores_nothing() {
    let directory = ScratchDirectory::new();
    let opened = TestStorage::open(&directory.0);
    let epochs: Vec<_> = (0..100).map(|number| opened.newest(&format!("chat:{number}"), 9).epoch).collect();
    for number in 0..100 {
        opened.after(&format!("chat:{number}"), 3, 9);
        opened.storage.trim(format!("chat:{number}").into(), u64::MAX, None);
        opened.storage.remove(format!("chat:{number}").into());
    }
    assert_eq!(opened.newest("chat:7", 9).epoch, epochs[7]);
    assert_eq!(opened.inspect().check().expect("all can be read").channels, 0);
    assert_eq!(opened.storage.counts().commits, 0);
    drop(opened);
    let opened = TestStorage::open(&directory.0);
    let again: Vec<_> = (0..100).map(|number| opened.newest(&format!("chat:{number}"), 9).epoch).collect();
    assert_eq!(again, epochs, "a position in an empty channel is valid after a restart");
    opened.store("chat:7", 1);
    assert_eq!(opened.newest("chat:7", 9).epoch, epochs[7], "and after the first publication");
    assert_eq!(opened.inspect().check().expect("all can be read").channels, 1);
}

#[test]
fn a_channel_begins_with_the_epoch_that_clients_have_heard() {
    static NOW_MS: AtomicU64 = AtomicU64::new(1_000_000);
    let directory = ScratchDirectory::new();
    let clock = ClockSource::Given(|| NOW_MS.load(Ordering::Relaxed));
    let options = StorageOptions { clock, ..StorageOptions::at(&directory.0) };
    let opened = TestStorage::with(&options).expect("it opens");
    let heard = opened.newest("chat:1", 9).epoch;
    // The channel stays open and empty for longer than a head would be kept.
    NOW_MS.fetch_add(100_000_000, Ordering::Relaxed);
    assert_ne!(opened.newest("chat:1", 9).epoch, heard, "offsets could have begun again");
    opened.store_first("chat:1", 2, &heard);
    let page = opened.after("chat:1", 0, 9);
    assert_eq!((&page.epoch, offsets(&page), page.floor), (&heard, vec![2], 0));
    opened.store_first("chat:1", 3, "unknown");
    assert_eq!(opened.newest("chat:1", 9).epoch, heard, "its epoch is known");
    NOW_MS.fetch_add(100_000_000, Ordering::Relaxed);
    let page = opened.newest("chat:1", 9);
    assert!(page.top == 0 && page.epoch != heard, "an expired channel begins again: {page:?}");
}

#[test]
fn publications_and_heads_expire() {
    static NOW_MS: AtomicU64 = AtomicU64::new(1_000_000);
    let directory = ScratchDirectory::new();
    let clock = ClockSource::Given(|| NOW_MS.load(Ordering::Relaxed));
    let opened = TestStorage::with(&StorageOptions { clock, ..StorageOptions::at(&directory.0) }).expect("it opens");
    let epoch = opened.newest("chat:1", 9).epoch;
    let mut keyed = record(1);
    keyed.idempotency_key = Some("order-7".into());
    assert_eq!(opened.store_with("chat:1", keyed, TERMS), Ok(1));
    NOW_MS.fetch_add(1_800_000, Ordering::Relaxed);
    opened.store("chat:1", 2);
    NOW_MS.fetch_add(1_800_001, Ordering::Relaxed);
    for is_compacted in [false, true] {
        let page = opened.newest("chat:1", 9);
        assert_eq!((offsets(&page), page.floor), (vec![2], 1), "{is_compacted}");
        let page = opened.after("chat:1", 0, 9);
        assert_eq!((offsets(&page), page.floor, page.through), (vec![2], 1, 2), "{is_compacted}");
        opened.storage.compact();
    }
    let left = opened.inspect().check().expect("all can be read");
    assert_eq!((left.publications, left.results), (1, 0), "compaction removes what has expired");
    NOW_MS.fetch_add(3_600_000, Ordering::Relaxed);
    let page = opened.after("chat:1", 0, 9);
    assert_eq!((offsets(&page), page.floor, page.top), (vec![], 2, 2));
    assert_eq!(page.epoch, epoch);
    NOW_MS.fetch_add(20_000_000, Ordering::Relaxed);
    let page = opened.newest("chat:1", 9);
    assert_eq!((offsets(&page), page.top), (vec![], 0));
    assert_ne!(page.epoch, epoch);
}

#[test]
fn a_full_queue_refuses() {
    let directory = ScratchDirectory::new();
    let queues = QueueLimits { write_bytes_max: 2_000, ..QueueLimits::default() };
    let opened = TestStorage::with(&StorageOptions { queues, ..StorageOptions::at(&directory.0) }).expect("it opens");
    let at_the_limit = record_of(1, vec![b' '; 2_000 - 256]);
    assert_eq!(opened.store_with("chat:1", at_the_limit, TERMS), Ok(1));
    let one_past = record_of(2, vec![b' '; 2_000 - 255]);
    assert_eq!(opened.store_with("chat:1", one_past, TERMS), Err(LogError::Busy(LogBusy::StorageWrites)));
    assert_eq!(opened.storage.counts().refused, 1);
}
