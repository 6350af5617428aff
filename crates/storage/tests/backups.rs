//! Backups of an open storage, and their restore.

use std::fs;

use dunlin_storage::{StorageFault, backups, keep_backups, restore, verify_backups};

use crate::harness::{ScratchDirectory, TERMS, TestStorage, offsets, record_of};

#[test]
fn a_restored_backup_has_all_earlier_publications() {
    let directory = ScratchDirectory::new();
    let (data, kept) = (directory.join("data"), directory.join("backups"));
    let opened = TestStorage::open(&data);
    let store = |range: std::ops::RangeInclusive<u64>| {
        for offset in range {
            let data = format!("{{\"number\":{offset},\"padding\":\"{}\"}}", "x".repeat(1_000));
            assert_eq!(opened.store_with("chat:1", record_of(offset, data), TERMS), Ok(offset));
        }
    };
    store(1..=300);
    let first = opened.storage.back_up(&kept).expect("it is made");
    store(301..=320);
    let second = opened.storage.back_up(&kept).expect("it is made");
    store(321..=330);
    assert_eq!((first.number, second.number), (1, 2));
    assert_eq!(verify_backups(&kept).expect("they are whole").len(), 2);

    let elsewhere = directory.join("restored");
    assert_eq!(restore(&kept, None, &elsewhere).expect("it is restored").number, 2);
    let restored = TestStorage::open(&elsewhere);
    let page = restored.after("chat:1", 0, 1_000);
    assert_eq!((offsets(&page), page.top), ((1..=320).collect(), 320));
    assert_ne!(page.epoch, opened.newest("chat:1", 1).epoch, "clients have seen more than the backup has");
    restored.store("chat:1", 321);
    drop(restored);
    let elsewhere = directory.join("older");
    restore(&kept, Some(1), &elsewhere).expect("it is restored");
    assert_eq!(TestStorage::open(&elsewhere).newest("chat:1", 1).top, 300);

    keep_backups(&kept, 1).expect("the older one goes");
    assert_eq!(backups(&kept).expect("one is left").iter().map(|backup| backup.number).collect::<Vec<_>>(), [2]);
}

#[test]
fn a_restore_needs_an_empty_directory_and_a_complete_backup() {
    let directory = ScratchDirectory::new();
    let (data, kept) = (directory.join("data"), directory.join("backups"));
    let opened = TestStorage::open(&data);
    opened.store("chat:1", 1);
    assert_eq!(backups(&kept).expect_err("there is none").fault, StorageFault::NoBackup);
    opened.storage.back_up(&kept).expect("it is made");
    assert_eq!(restore(&kept, None, &data).expect_err("it is in use").fault, StorageFault::NotEmpty);
    let missing = restore(&kept, Some(9), &directory.join("empty")).expect_err("there is none");
    assert_eq!(missing.fault, StorageFault::NoBackup);

    let shared = fs::read_dir(kept.join("shared_checksum")).expect("tables are there");
    let table = shared.map(|entry| entry.expect("it can be read").path()).next().expect("there is a table");
    let mut bytes = fs::read(&table).expect("it can be read");
    bytes[20] ^= 1;
    fs::write(&table, bytes).expect("it can be written");
    let damaged = verify_backups(&kept).expect_err("a checksum is wrong");
    assert_eq!((damaged.path, damaged.fault.label()), (table, "corruption"));
    let into = directory.join("empty");
    let damaged = restore(&kept, None, &into).expect_err("a checksum is wrong");
    assert!(matches!(damaged.fault, StorageFault::Corruption(_)), "{damaged}");
    assert!(TestStorage::with(&dunlin_storage::StorageOptions::at(&into)).is_err(), "half a restore is no storage");
}

#[test]
fn publications_are_exported_as_lines() {
    let directory = ScratchDirectory::new();
    let opened = TestStorage::open(&directory.join("data"));
    opened.store("chat:1", 1);
    opened.store("chat:2", 1);
    assert_eq!(opened.store_with("chat:1", record_of(2, vec![0xff, 0]), TERMS), Ok(2));
    let export = |channel| {
        let mut lines = Vec::new();
        let count = opened.inspect().export(channel, &mut lines).expect("it can be read");
        let text = String::from_utf8(lines).expect("it is text");
        assert_eq!(text.lines().count() as u64, count);
        text.lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect::<Vec<serde_json::Value>>()
    };
    assert_eq!(export(None).len(), 3);
    let lines = export(Some("chat:1"));
    assert_eq!((&lines[0]["channel"], &lines[0]["data"]["number"]), (&"chat:1".into(), &1.into()));
    assert_eq!((&lines[1]["offset"], &lines[1]["b64data"]), (&2.into(), &"/wA=".into()));
    let sizes = opened.inspect().sizes();
    assert!(sizes.iter().any(|size| size.name == "publications" && size.entries == 3), "{sizes:?}");
}
