//! Limits on the disk space of publications: at each limit, and one past it.

use std::{fs, path::Path, process::Command};

use dunlin_engine::log::{LogError, LogRecord};
use dunlin_storage::{EntryBatch, StorageOptions};

use crate::{
    harness::{CHILD_DIRECTORY, ScratchDirectory, TERMS, TestStorage, child, directory_of_child, record, record_of},
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
    let test = child(test, &directory.0);
    let script = format!("mount -t tmpfs -o size={megabytes}m tmpfs \"$0\" && exec \"$@\"");
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "sh", "-c", &script]).arg(&directory.0);
    command.arg(test.get_program()).args(test.get_args()).env(CHILD_DIRECTORY, &directory.0);
    let output = command.output().expect("util-linux is installed");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("done"), "{text}{}", String::from_utf8_lossy(&output.stderr));
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
    opened.storage.trim("chat:1".into(), 1);
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
