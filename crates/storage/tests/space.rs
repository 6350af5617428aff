//! Limits on the disk space of publications: at each limit, and one past it.

use std::{
    fs,
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use dunlin_engine::log::{LogError, LogRecord, LogRetention, LogTerms};
use dunlin_protocol::{ClientInfo, Payload};
use dunlin_storage::{ClockSource, DiskLimits, EntryBatch, NamespaceDiskLimits, StorageOptions};

use crate::{
    harness::{
        CHILD_DIRECTORY, ScratchDirectory, TERMS, TestStorage, child, directory_of_child, offsets, record, record_of,
    },
    rooms,
};

/// Bytes of a publication besides its data.
const FIXED_BYTES: usize = 256;

/// A publication with this number of bytes of data.
fn padded(offset: u64, data_bytes: usize) -> LogRecord {
    let mut data = format!("{{\"number\":{offset},\"padding\":\"");
    data.push_str(&"x".repeat(data_bytes - data.len() - 2));
    data.push_str("\"}");
    record_of(offset, data)
}

/// Runs a test of this binary, whose directory is on a file system of its own.
fn on_small_disk(test: &str, megabytes: usize) {
    let directory = ScratchDirectory::new();
    let command_of_child = child(test, &directory.0);
    let script = format!("mount -t tmpfs -o size={megabytes}m tmpfs \"$0\" && exec \"$@\"");
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "sh", "-c", &script]).arg(&directory.0);
    command.arg(command_of_child.get_program()).args(command_of_child.get_args()).env(CHILD_DIRECTORY, &directory.0);
    let output = command.output().expect("util-linux is installed");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && printed.contains("done"),
        "{printed}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Takes free space, so that this number of bytes is left, or up to a page less.
fn leave_free(opened: &TestStorage, file: &Path, bytes: u64) {
    let free = opened.storage.free_bytes().expect("Linux knows it");
    fs::write(file, vec![0; usize::try_from(free - bytes).expect("it fits")]).expect("there is space");
}

#[test]
fn child_has_little_free_space() {
    const RESERVE_BYTES: u64 = 16 << 20;
    let Some(directory) = directory_of_child() else { return };
    let options = StorageOptions {
        free_space_min_bytes: RESERVE_BYTES,
        memtable_bytes: 256 << 10,
        ..StorageOptions::at(directory.join("data"))
    };
    let opened = TestStorage::with(&options).expect("it opens");
    let keyed = |offset| LogRecord { idempotency_key: Some("key".into()), ..record(offset) };
    assert_eq!(opened.store_with("chat:1", keyed(1), TERMS), Ok(1));
    leave_free(&opened, &directory.join("file"), RESERVE_BYTES + (100 << 10));
    let left = usize::try_from(opened.storage.free_bytes().expect("Linux knows it") - RESERVE_BYTES).expect("it fits");
    let refused = opened.store_with("chat:1", padded(2, left - FIXED_BYTES + 1), TERMS);
    assert_eq!(refused, Err(LogError::LowSpace), "one past the limit");
    assert_eq!(opened.storage.poison(), None);
    // The owner has used the offset 2.
    assert_eq!(opened.store_with("chat:1", padded(3, left - FIXED_BYTES), TERMS), Ok(2), "at the limit");

    leave_free(&opened, &directory.join("another file"), RESERVE_BYTES / 2);
    for offset in 4..10 {
        assert_eq!(opened.store_with("chat:1", record(offset), TERMS), Err(LogError::LowSpace));
    }
    assert_eq!(opened.store_with("chat:2", record(1), TERMS), Err(LogError::LowSpace));
    let shortage = opened.storage.space_shortage().expect("space is short");
    assert!(shortage.reserve_bytes == RESERVE_BYTES && shortage.free_bytes < RESERVE_BYTES, "{shortage}");
    // Everything else goes on.
    assert_eq!(opened.store_with("chat:1", keyed(10), TERMS), Ok(1), "a repeated publication is answered");
    let mut batch = EntryBatch::new(true);
    batch.put_checkpoint(rooms::ROOM, 1, 1, b"state".to_vec());
    assert_eq!(rooms::write(&opened, batch), Ok(()));
    assert_eq!(opened.after("chat:1", 0, 10).records.len(), 2);
    opened.storage.trim("chat:1".into(), 1, None);
    assert_eq!(opened.after("chat:1", 0, 10).floor, 1);
    assert_eq!(opened.storage.poison(), None);

    fs::remove_file(directory.join("another file")).expect("it is there");
    fs::remove_file(directory.join("file")).expect("it is there");
    assert_eq!(opened.storage.space_shortage(), None);
    assert_eq!(opened.store_with("chat:1", record(11), TERMS), Ok(3), "what was refused leaves no gap");
    assert_eq!(opened.store_with("chat:2", record(2), TERMS), Ok(1));
    let counts = opened.storage.counts();
    assert_eq!((counts.refused_low_space, counts.resumed), (8, 0));
    assert_eq!(*opened.answers.shortages.lock().unwrap(), [true, false]);
    drop(opened);
    let page = TestStorage::open(&directory.join("data")).after("chat:1", 0, 10);
    assert_eq!((page.floor, page.top, page.records.len()), (1, 3, 2));
    println!("done");
}

#[test]
fn publications_leave_the_reserve_of_free_space() {
    on_small_disk("space::child_has_little_free_space", 64);
}

const CHANNEL_MAX: u64 = 100_000;
const TOTAL_MAX: u64 = 1_000_000;

/// Namespaces by the beginning of a channel's name: `chat` evicts, `news` refuses, and `all` has no limit of its own.
fn limits(node_bytes_max: u64) -> DiskLimits {
    let of = |evicts, channel_bytes_max, bytes_max| NamespaceDiskLimits { channel_bytes_max, evicts, bytes_max };
    let namespace_of = |channel: &str| ["chat", "news", "all"].iter().position(|name| channel.starts_with(name));
    DiskLimits {
        bytes_max: node_bytes_max,
        namespaces: vec![of(true, CHANNEL_MAX, 0), of(false, CHANNEL_MAX, TOTAL_MAX), of(true, 0, 0)],
        namespace_of: Some(Arc::new(move |channel| u16::try_from(namespace_of(channel)?).ok())),
    }
}

fn limited(options: &StorageOptions, node_bytes_max: u64) -> TestStorage {
    let opened = TestStorage::with(options).expect("it opens");
    opened.storage.set_disk_limits(limits(node_bytes_max));
    opened
}

/// A publication that counts as this number of bytes.
fn counted(offset: u64, bytes: u64) -> LogRecord {
    padded(offset, usize::try_from(bytes).expect("it fits") - FIXED_BYTES)
}

/// The bytes of a namespace.
fn stored_bytes(opened: &TestStorage, namespace: u16) -> u64 {
    let totals = opened.storage.history_bytes();
    totals.iter().find(|(number, _)| *number == Some(namespace)).map_or(0, |(_, bytes)| *bytes)
}

#[test]
fn the_oldest_publications_of_a_channel_leave_at_its_limit() {
    let directory = ScratchDirectory::new();
    let options = StorageOptions::at(directory.join("data"));
    let opened = limited(&options, 0);
    for offset in 1..=10 {
        assert_eq!(opened.store_with("chat:1", counted(offset, CHANNEL_MAX / 10), TERMS), Ok(offset));
    }
    assert_eq!((opened.after("chat:1", 0, 20).floor, stored_bytes(&opened, 0)), (0, CHANNEL_MAX), "at the limit");
    assert_eq!(opened.store_with("chat:1", counted(11, 300), TERMS), Ok(11), "one past the limit");
    let page = opened.after("chat:1", 0, 20);
    assert!((1..=3).contains(&page.floor), "a part is evicted: {}", page.floor);
    // A client that has received less than that does not recover.
    assert_eq!(offsets(&page), (page.floor + 1..=11).collect::<Vec<_>>());
    assert!(opened.after("chat:1", page.floor - 1, 20).floor == page.floor);
    assert_eq!(stored_bytes(&opened, 0), (10 - page.floor) * (CHANNEL_MAX / 10) + 300);
    let refused = opened.store_with("chat:1", counted(12, CHANNEL_MAX + 1), TERMS);
    assert_eq!(refused, Err(LogError::ChannelFull), "larger than the limit by itself");
    assert_eq!(opened.store_with("chat:1", counted(13, CHANNEL_MAX), TERMS), Ok(12));
    assert_eq!((opened.after("chat:1", 0, 20).floor, stored_bytes(&opened, 0)), (11, CHANNEL_MAX));
    assert_eq!(opened.storage.counts().evictions, 2);
    // The limit holds after a restart.
    drop(opened);
    let opened = limited(&options, 0);
    assert_eq!(opened.store_with("chat:1", counted(13, 300), TERMS), Ok(13));
    assert_eq!((opened.after("chat:1", 0, 20).floor, stored_bytes(&opened, 0)), (12, 300));
}

#[test]
fn a_channel_that_may_not_evict_refuses() {
    let directory = ScratchDirectory::new();
    let opened = limited(&StorageOptions::at(directory.join("data")), 0);
    assert_eq!(opened.store_with("news:1", counted(1, CHANNEL_MAX - 1_000), TERMS), Ok(1));
    assert_eq!(opened.store_with("news:1", counted(2, 1_001), TERMS), Err(LogError::ChannelFull));
    assert_eq!(opened.store_with("news:1", counted(3, 1_000), TERMS), Ok(2));
    assert_eq!(opened.store_with("news:2", counted(1, 1_000), TERMS), Ok(1), "other channels go on");
    opened.storage.trim("news:1".into(), 1, None);
    assert_eq!(opened.store_with("news:1", counted(4, CHANNEL_MAX - 1_000), TERMS), Ok(3), "there is space again");
    assert_eq!(opened.storage.counts().refused_channel_full, 1);
}

#[test]
fn tags_and_info_count_as_in_memory() {
    let directory = ScratchDirectory::new();
    let path = directory.join("data");
    let options = StorageOptions::at(&path);
    let described = |offset, data_bytes| {
        let mut record = padded(offset, data_bytes);
        let payload = |text: &'static str| Some(Payload::from_json(text.into()));
        let publication = Arc::get_mut(&mut record.publication).expect("it is new");
        publication.tags = vec![("colour".into(), "blue".into()), ("size".into(), "9".into())];
        publication.info = Some(Arc::new(ClientInfo {
            user: "ann".into(),
            client: "c1".into(),
            conn_info: payload(r#"{"name":"Ann"}"#),
            chan_info: payload("[1]"),
        }));
        record
    };
    let opened = limited(&options, 0);
    let besides = described(1, 1_000).kept_bytes() - 1_000;
    let at_limit = usize::try_from(CHANNEL_MAX).expect("it fits") - besides;
    assert_eq!(opened.store_with("news:1", described(1, at_limit + 1), TERMS), Err(LogError::ChannelFull));
    assert_eq!(opened.store_with("news:1", described(2, at_limit), TERMS), Ok(1), "the size that memory counts");
    assert_eq!(stored_bytes(&opened, 1), CHANNEL_MAX);
    opened.storage.trim("news:1".into(), 1, None);
    assert_eq!(opened.store_with("news:1", described(3, 1_000), TERMS), Ok(2));
    drop(opened);
    // Counted from what is stored.
    assert!(replace_account(&path, "news:1", None).is_some());
    let opened = limited(&options, 0);
    let rest = at_limit - besides - 1_000;
    assert_eq!(opened.store_with("news:1", described(4, rest + 1), TERMS), Err(LogError::ChannelFull));
    let at_limit = opened.store_with("news:1", described(5, rest), TERMS);
    assert!(at_limit.is_ok(), "at the limit: {at_limit:?}");
}

#[test]
fn a_namespace_at_its_limit_refuses_and_the_others_go_on() {
    let directory = ScratchDirectory::new();
    let options = StorageOptions::at(directory.join("data"));
    let opened = limited(&options, 0);
    for channel in 0..10 {
        let bytes = CHANNEL_MAX - u64::from(channel == 9) * 1_000;
        assert_eq!(opened.store_with(&format!("news:{channel}"), counted(1, bytes), TERMS), Ok(1));
    }
    assert_eq!(opened.store_with("news:x", counted(1, 1_001), TERMS), Err(LogError::NamespaceFull));
    assert_eq!(opened.store_with("chat:1", counted(1, 1_001), TERMS), Ok(1));
    assert_eq!(opened.store_with("other:1", counted(1, 1_001), TERMS), Ok(1), "of no namespace");
    drop(opened);
    let opened = limited(&options, 0);
    assert_eq!(opened.store_with("news:x", counted(1, 1_001), TERMS), Err(LogError::NamespaceFull), "after a restart");
    assert_eq!(opened.store_with("news:x", counted(2, 1_000), TERMS), Ok(1));
    assert_eq!(stored_bytes(&opened, 1), TOTAL_MAX);
    assert_eq!(opened.store_with("news:y", counted(1, 300), TERMS), Err(LogError::NamespaceFull));
    opened.storage.remove("news:3".into());
    assert_eq!(opened.store_with("news:y", counted(2, CHANNEL_MAX), TERMS), Ok(1), "there is space again");
    assert_eq!(stored_bytes(&opened, 1), TOTAL_MAX);
    assert_eq!(opened.storage.counts().refused_namespace_full, 2);
}

#[test]
fn the_limit_of_the_node_holds_for_all_namespaces() {
    let directory = ScratchDirectory::new();
    let opened = limited(&StorageOptions::at(directory.join("data")), 50_000);
    assert_eq!(opened.store_with("all:1", counted(1, 20_000), TERMS), Ok(1));
    assert_eq!(opened.store_with("chat:1", counted(1, 20_000), TERMS), Ok(1));
    assert_eq!(opened.store_with("all:2", counted(1, 10_001), TERMS), Err(LogError::NodeFull));
    assert_eq!(opened.store_with("other:1", counted(1, 10_000), TERMS), Ok(1), "of no namespace");
    assert_eq!(opened.store_with("chat:1", counted(2, 300), TERMS), Err(LogError::NodeFull));
    opened.storage.trim("all:1".into(), u64::MAX, None);
    assert_eq!(opened.store_with("chat:1", counted(3, 20_000), TERMS), Ok(2));
    // A reload that lowers the limit, and one that lifts it.
    opened.storage.set_disk_limits(limits(1_000));
    assert_eq!(opened.store_with("chat:1", counted(4, 300), TERMS), Err(LogError::NodeFull));
    opened.storage.set_disk_limits(limits(0));
    assert_eq!(opened.store_with("chat:1", counted(5, 300), TERMS), Ok(3));
    assert_eq!(opened.storage.counts().refused_node_full, 3);
}

#[test]
fn publications_that_left_by_number_or_time_do_not_count() {
    static NOW_MS: AtomicU64 = AtomicU64::new(1_000_000);
    let directory = ScratchDirectory::new();
    let clock = ClockSource::Given(|| NOW_MS.load(Ordering::Relaxed));
    let options = StorageOptions { clock, ..StorageOptions::at(directory.join("data")) };
    let opened = limited(&options, 60_000);
    let newest = LogTerms { retention: LogRetention { publications_max: 2, ttl_ms: 1_000 }, ..TERMS };
    for offset in 1..=20 {
        assert_eq!(opened.store_with("all:1", counted(offset, 20_000), newest), Ok(offset));
        assert!(stored_bytes(&opened, 2) <= 40_000);
    }
    assert_eq!(opened.store_with("all:2", counted(1, 20_001), newest), Err(LogError::NodeFull));
    NOW_MS.fetch_add(1_000, Ordering::Relaxed);
    assert_eq!(opened.store_with("all:1", counted(21, 20_000), newest), Ok(21));
    assert_eq!(stored_bytes(&opened, 2), 20_000);
    // A channel that is not used leaves the total when it is determined anew.
    NOW_MS.fetch_add(1_000, Ordering::Relaxed);
    opened.storage.set_disk_limits(limits(60_000));
    assert_eq!(opened.store_with("all:2", counted(2, 60_000), newest), Ok(1));
    assert_eq!(stored_bytes(&opened, 2), 60_000);
}

/// Writes the file `STORAGE` as an earlier release does at a start: without the lines that it does not know.
fn note_as_an_earlier_release(path: &Path) {
    let file = path.join("STORAGE");
    let text = std::fs::read_to_string(&file).expect("it is there");
    let is_known = |line: &&str| {
        ["dunlin storage", "format", "power_era", "damage_era", "closed", "boot"]
            .into_iter()
            .any(|known| line.starts_with(known))
    };
    let kept: Vec<&str> = text.lines().filter(is_known).collect();
    let kept = kept.join("\n") + "\n";
    let step = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let sum = kept.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, step);
    std::fs::write(&file, format!("{kept}check {sum:016x}\n")).expect("it can be written");
}

#[test]
fn a_channel_of_an_earlier_release_is_counted_at_its_next_publication() {
    let directory = ScratchDirectory::new();
    let path = directory.join("data");
    let opened = TestStorage::open(&path);
    for offset in 1..=5 {
        assert_eq!(opened.store_with("news:1", counted(offset, CHANNEL_MAX / 5), TERMS), Ok(offset));
    }
    drop(opened);
    // An earlier release stores no account.
    assert!(replace_account(&path, "news:1", None).is_some());
    let opened = limited(&StorageOptions::at(&path), 0);
    assert_eq!(opened.store_with("news:1", counted(6, 300), TERMS), Err(LogError::ChannelFull));
    assert_eq!(opened.inspect().check().expect("it can be read").results, 0, "an account is no result");
}

#[test]
fn an_account_that_a_crash_left_behind_is_completed() {
    let directory = ScratchDirectory::new();
    let path = directory.join("data");
    let open = || limited(&StorageOptions::at(&path), 0);
    let part = CHANNEL_MAX / 5;
    let opened = open();
    (1..=2).for_each(|offset| assert_eq!(opened.store_with("news:1", counted(offset, part), TERMS), Ok(offset)));
    drop(opened);
    let at_two = replace_account(&path, "news:1", None);
    let opened = open();
    (3..=4).for_each(|offset| assert_eq!(opened.store_with("news:1", counted(offset, part), TERMS), Ok(offset)));
    drop(opened);
    // Accounts are written after their publications.
    replace_account(&path, "news:1", at_two);
    let opened = open();
    assert_eq!(
        opened.store_with("news:1", counted(5, part + 1), TERMS),
        Err(LogError::ChannelFull),
        "one byte past it"
    );
    assert_eq!(opened.store_with("news:1", counted(6, part), TERMS), Ok(5), "at the limit");
    drop(opened);
    let at_five = replace_account(&path, "news:1", None);
    // A power loss may take the newest publications.
    let opened = open();
    assert_eq!(opened.store_with("news:2", counted(1, part), TERMS), Ok(1));
    drop(opened);
    replace_account(&path, "news:2", at_five);
    let opened = open();
    (2..=5).for_each(|offset| assert_eq!(opened.store_with("news:2", counted(offset, part), TERMS), Ok(offset)));
    assert_eq!(opened.store_with("news:2", counted(6, 300), TERMS), Err(LogError::ChannelFull));
}

/// Replaces the account of a channel's bytes in a closed storage, and returns it.
fn replace_account(path: &Path, channel: &str, account: Option<Vec<u8>>) -> Option<Vec<u8>> {
    let mut options = rocksdb::Options::default();
    options.create_missing_column_families(true);
    let names = rocksdb::DB::list_cf(&options, path).expect("it is a database");
    let db = rocksdb::DB::open_cf(&options, path, names).expect("it opens");
    let key = [&[0, 6], channel.as_bytes(), &[0xff]].concat();
    let family = db.cf_handle("idempotency").expect("it is there");
    let before = db.get_cf(family, &key).expect("it can be read");
    match account {
        Some(account) => db.put_cf(family, &key, account),
        None => db.delete_cf(family, &key),
    }
    .expect("it can be written");
    drop(db);
    note_as_an_earlier_release(path);
    before
}
