//! Opens directories that released versions have written, reads them, and continues writing.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use dunlin_engine::log::{LoadQuery, LogRetention, LogTerms};
use dunlin_protocol::ClientInfo;
use dunlin_storage::{EntryBatch, StorageOptions, StorageReport};

use crate::{
    harness::{ScratchDirectory, TestStorage, offsets, record},
    rooms::{ROOM, owner, put, query, read, write},
};

/// The entries of a fixture never expire.
const FOR_EVER: LogTerms = LogTerms {
    retention: LogRetention { publications_max: 15, ttl_ms: u64::MAX },
    meta_ttl_ms: u64::MAX,
    result_ttl_ms: u64::MAX,
    is_synced: false,
};

/// The environment variable with the directory to which the fixture of this version is written:
/// `DUNLIN_FIXTURE=crates/storage/tests/fixtures/storage-1 cargo test -p dunlin-storage this_version_writes`. The
/// fixture of a released version is never written again.
const FIXTURE_VARIABLE: &str = "DUNLIN_FIXTURE";

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/storage-1")
}

/// Opens a fixture, although the clock is years ahead of the end of its last run.
fn open(path: &Path) -> TestStorage {
    TestStorage::with(&StorageOptions { clock_ahead_ms_max: u64::MAX, ..StorageOptions::at(path) }).expect("it opens")
}

/// Writes entries of all kinds, in tables and in the write-ahead log.
fn fill(path: &Path, backups: &Path) {
    let opened = open(path);
    for offset in 1..=20 {
        let mut stored = record(offset);
        if offset == 18 {
            stored.idempotency_key = Some("order-18".into());
            stored.version_epoch = "v".into();
            Arc::make_mut(&mut stored.publication).version = 7;
        }
        assert_eq!(opened.store_with("chat:1", stored, FOR_EVER), Ok(offset));
    }
    let mut batch = EntryBatch::new(true);
    for first_tick in [0, 600] {
        batch.put_checkpoint("arena:1", 1, first_tick, vec![1; 30]);
    }
    write(&opened, batch).expect("the disk works");
    put(&opened, ROOM, "ada", &[0, 600], u64::MAX);
    // A backup writes everything to tables.
    opened.storage.back_up(backups).expect("it is made");
    for offset in 21..=23 {
        assert_eq!(opened.store_with("chat:1", record(offset), FOR_EVER), Ok(offset));
    }
    let mut full = record(1);
    let mut publication = (*full.publication).clone();
    let info = ClientInfo { user: "ada".into(), client: "c1".into(), conn_info: None, chan_info: None };
    publication.info = Some(info.into());
    publication.tags = vec![("side".into(), "buy".into())];
    full.publication = publication.into();
    assert_eq!(opened.store_with("chat:2", full, FOR_EVER), Ok(1));
    opened.storage.trim("chat:1".into(), 10, None);
}

/// Checks that all entries of [`fill`] exist, and adds a publication.
fn see_all(path: &Path) {
    let opened = open(path);
    let report = opened.inspect().check().expect("all can be read");
    let expected = StorageReport {
        channels: 2,
        publications: 14,
        results: 1,
        blocks: 2,
        checkpoints: 2,
        ..StorageReport::default()
    };
    assert_eq!(report, expected);
    let newest = LoadQuery::newest(100);
    let page = opened.try_load("chat:1", newest, FOR_EVER).expect("it can be read");
    assert_eq!((offsets(&page), page.floor, page.top), ((11..=23).collect(), 10, 23));
    let keyed = &page.records[7];
    assert_eq!(
        (keyed.idempotency_key.as_deref(), keyed.publication.version, &*keyed.version_epoch),
        (Some("order-18"), 7, "v")
    );
    let page = opened.newest("chat:2", 9);
    let publication = &page.records[0].publication;
    assert_eq!(publication.info.as_ref().map(|info| &*info.user), Some("ada"));
    assert_eq!(publication.tags.len(), 1);
    let (blocks, _) = read(&opened, query(None, 0..=u64::MAX, 9));
    assert_eq!(blocks, [(owner("ada"), 0), (owner("ada"), 600)]);
    let checkpoint = opened.storage.newest_checkpoint("arena:1", 1, u64::MAX).expect("it can be read");
    assert_eq!(checkpoint.map(|checkpoint| checkpoint.tick), Some(600));
    let mut repeated = record(24);
    repeated.idempotency_key = Some("order-18".into());
    assert_eq!(opened.store_with("chat:1", repeated, FOR_EVER), Ok(18));
    assert_eq!(opened.store_with("chat:1", record(24), FOR_EVER), Ok(24));
}

#[test]
fn a_storage_of_version_1_is_opened_and_continued() {
    let directory = ScratchDirectory::new();
    let copy = directory.join("data");
    fs::create_dir(&copy).expect("it can be made");
    for entry in fs::read_dir(fixture()).expect("there is a fixture") {
        let path = entry.expect("an entry").path();
        fs::copy(&path, copy.join(path.file_name().expect("a file"))).expect("it can be copied");
    }
    let epoch = String::from_utf8(fs::read(copy.join("epoch")).expect("the fixture names it")).expect("it is text");
    fs::remove_file(copy.join("epoch")).expect("it is a copy");
    see_all(&copy);
    let opened = open(&copy);
    let page = opened.after("chat:1", 10, 100);
    assert_eq!((offsets(&page), page.top), ((11..=24).collect(), 24));
    assert_eq!(&*page.epoch, epoch, "nothing was lost, so clients recover");
    opened.storage.compact();
    assert_eq!(offsets(&opened.after("chat:1", 10, 100)), (11..=24).collect::<Vec<_>>());
}

#[test]
fn this_version_writes_what_the_fixture_has() {
    let directory = ScratchDirectory::new();
    let data = directory.join("data");
    fill(&data, &directory.join("backups"));
    if let Some(fixture) = std::env::var_os(FIXTURE_VARIABLE).map(PathBuf::from) {
        fs::create_dir_all(&fixture).expect("it can be made");
        for entry in fs::read_dir(&data).expect("it is there") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a file").to_string_lossy().into_owned();
            // Skip the files that RocksDB does not need to open the storage.
            if !["LOCK", "LOG", "OPTIONS", "IDENTITY"].iter().any(|other| name.starts_with(other)) {
                fs::copy(&path, fixture.join(&name)).expect("it can be copied");
            }
        }
        let epoch = open(&data).newest("chat:1", 1).epoch;
        fs::write(fixture.join("epoch"), &*epoch).expect("it can be written");
    }
    see_all(&data);
}
