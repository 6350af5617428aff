//! Errors of a storage that cannot be opened, written or read. Each fault must be reported.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicU64, Ordering},
};

use dunlin_engine::log::{LoadQuery, LogError, LogTerms};
use dunlin_storage::{
    ClockSource, DamagedLogPolicy, FORMAT_VERSION, Inspection, StartPolicy, StorageError, StorageFault, StorageOptions,
};

use crate::harness::{ScratchDirectory, TERMS, TestStorage, child, directory_of_child, offsets, record, record_of};

fn fault_of(opened: Result<TestStorage, StorageError>) -> StorageFault {
    let error = opened.err().expect("it does not open");
    let text = error.to_string();
    assert!(text.contains(error.path.to_str().expect("a text")) && text.contains(error.fault.remedy()), "{text}");
    error.fault
}

fn files_with(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("it can be read");
    let paths = entries.map(|entry| entry.expect("it can be read").path());
    let mut files: Vec<_> = paths.filter(|path| path.extension().is_some_and(|found| found == extension)).collect();
    files.sort();
    files
}

/// The non-empty file of the write-ahead log.
fn log_file(directory: &Path) -> PathBuf {
    let is_used = |path: &PathBuf| fs::metadata(path).is_ok_and(|metadata| metadata.len() > 0);
    files_with(directory, "log").into_iter().rfind(is_used).expect("there is a log")
}

/// Copies the files of an open storage, so that the copy looks as after a kill.
fn killed_copy(directory: &ScratchDirectory, name: &str, opened: &TestStorage) -> PathBuf {
    let copy = directory.join(name);
    fs::create_dir(&copy).expect("it can be written");
    for entry in fs::read_dir(opened.storage.path()).expect("it can be read") {
        let path = entry.expect("it can be read").path();
        fs::copy(&path, copy.join(path.file_name().expect("it is a file"))).expect("it can be copied");
    }
    copy
}

/// The content of the file `STORAGE`.
fn with_checksum(text: &str) -> String {
    // FNV-1a, as in the storage.
    let add = |sum: u64, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let sum = text.bytes().fold(0xcbf2_9ce4_8422_2325, add);
    format!("{text}check {sum:016x}\n")
}

fn flip_bit(file: &Path, position: usize) {
    let mut bytes = fs::read(file).expect("it can be read");
    bytes[position] ^= 0x10;
    fs::write(file, bytes).expect("it can be written");
}

#[test]
fn child_keeps_a_storage_open() {
    let Some(directory) = directory_of_child() else { return };
    let _desk = TestStorage::open(&directory);
    println!("opened");
    // Wait until the parent closes the pipe.
    let _ = std::io::stdin().read_line(&mut String::new());
}

#[test]
fn a_directory_in_use_is_refused() {
    let directory = ScratchDirectory::new();
    let path = directory.join("data");
    let mut holder = child("faults::child_keeps_a_storage_open", &path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the child starts");
    let output = BufReader::new(holder.stdout.take().expect("it is piped"));
    let mut lines = output.lines().map(|line| line.expect("it is text"));
    assert!(lines.any(|line| line.ends_with("opened")));
    assert_eq!(fault_of(TestStorage::with(&StorageOptions::at(&path))), StorageFault::Locked);
    drop(holder.stdin.take());
    holder.wait().expect("it has ended");
    TestStorage::open(&path).store("chat:1", 1);
}

#[test]
fn other_directories_and_newer_formats_are_refused() {
    let directory = ScratchDirectory::new();
    fs::write(directory.join("photo.jpg"), "").expect("it can be written");
    assert_eq!(fault_of(TestStorage::with(&StorageOptions::at(&directory.0))), StorageFault::NotStorage);
    let path = directory.join("data");
    drop(TestStorage::open(&path));
    fs::write(path.join("STORAGE"), "dunlin storage\nformat 2\nsomething new\n").expect("it can be written");
    let newer = StorageFault::NewerFormat { found: 2, known: FORMAT_VERSION };
    assert_eq!(fault_of(TestStorage::with(&StorageOptions::at(&path))), newer);
    fs::write(path.join("STORAGE"), "garbage").expect("it can be written");
    let fault = fault_of(TestStorage::with(&StorageOptions::at(&path)));
    assert!(matches!(fault, StorageFault::Corruption(_)), "{fault:?}");
    let fault = fault_of(TestStorage::with(&StorageOptions::at(directory.join("no/parent"))));
    assert!(matches!(fault, StorageFault::Io(_)), "{fault:?}");
}

/// The names and contents of all files.
fn contents(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = fs::read_dir(directory).expect("it can be read");
    let paths = entries.map(|entry| entry.expect("it can be read").path());
    paths.map(|path| (path.clone(), fs::read(path).expect("it can be read"))).collect()
}

fn inspected(path: &Path) -> Result<u64, StorageError> {
    let mut lines = Vec::new();
    let opened = Inspection::open(&StorageOptions::at(path))?;
    opened.check()?;
    assert!(opened.sizes().len() > 1);
    opened.export(None, &mut lines)
}

/// A storage with publications in tables and in the log, after a clean end and after a kill.
fn storages_with_tables(directory: &ScratchDirectory) -> [PathBuf; 2] {
    let path = directory.join("data");
    let opened = TestStorage::open(&path);
    (1..=20).for_each(|offset| opened.store("chat:1", offset));
    opened.storage.compact();
    (21..=30).for_each(|offset| opened.store("chat:1", offset));
    let killed = killed_copy(directory, "killed", &opened);
    drop(opened);
    [path, killed]
}

#[test]
fn each_missing_file_is_refused_at_each_start_and_named() {
    let directory = ScratchDirectory::new();
    for path in storages_with_tables(&directory) {
        let mut names: Vec<String> = ["CURRENT", "STORAGE"].map(str::to_owned).into();
        let name_of = |path: &PathBuf| path.file_name().and_then(|name| name.to_str()).expect("it is text").to_owned();
        for extension in ["sst", "log"] {
            names.extend(files_with(&path, extension).iter().map(name_of));
        }
        names.extend(contents(&path).keys().map(name_of).filter(|name| name.starts_with("MANIFEST")));
        assert!(names.len() >= 5, "{names:?}");
        for name in &names {
            let (file, aside) = (path.join(name), directory.join("aside"));
            fs::rename(&file, &aside).expect("it is there");
            for start in 1..=2 {
                let error = TestStorage::with(&StorageOptions::at(&path)).err();
                let error = error.unwrap_or_else(|| panic!("{name}, start {start}: {names:?}"));
                let text = error.to_string();
                assert!(text.contains(name) && text.contains("backup"), "{name}, start {start}: {text}");
            }
            let before = contents(&path);
            let error = inspected(&path).expect_err("a file is missing");
            assert!(error.to_string().contains(name), "{name}: {error}");
            assert_eq!(contents(&path), before, "{name}: reading changes nothing");
            fs::rename(&aside, &file).expect("it is there");
        }
        let before = contents(&path);
        assert_eq!(inspected(&path), Ok(30));
        assert_eq!(contents(&path), before, "reading changes nothing");
        assert_eq!(offsets(&TestStorage::open(&path).after("chat:1", 0, 100)), (1..=30).collect::<Vec<_>>());
    }
}

#[test]
fn a_storage_of_which_only_the_marker_is_left_is_refused() {
    let directory = ScratchDirectory::new();
    for path in storages_with_tables(&directory) {
        for file in contents(&path).into_keys().filter(|file| !file.ends_with("STORAGE")) {
            fs::remove_file(file).expect("it is there");
        }
        for _ in 1..=2 {
            let fault = fault_of(TestStorage::with(&StorageOptions::at(&path)));
            assert_eq!(fault, StorageFault::MissingFile("CURRENT".to_owned()));
        }
    }
}

#[test]
fn a_log_that_was_cut_after_a_clean_end_is_refused() {
    let directory = ScratchDirectory::new();
    let [path, _] = storages_with_tables(&directory);
    let log = log_file(&path);
    let bytes = fs::read(&log).expect("it can be read");
    fs::write(&log, &bytes[..bytes.len() - 1]).expect("it can be written");
    for _ in 1..=2 {
        let fault = fault_of(TestStorage::with(&StorageOptions::at(&path)));
        assert!(
            matches!(&fault, StorageFault::DamagedLog(why) if why.contains("when the storage was closed")),
            "{fault:?}"
        );
    }
    fs::remove_file(&log).expect("it is there");
    let options = StorageOptions { damaged_log: DamagedLogPolicy::KeepUntilDamage, ..StorageOptions::at(&path) };
    let page = TestStorage::with(&options).expect("it is permitted").after("chat:1", 0, 100);
    assert_eq!((offsets(&page), page.top), ((1..=20).collect(), 20));
    assert_eq!(offsets(&TestStorage::open(&path).after("chat:1", 0, 100)), (1..=20).collect::<Vec<_>>());
}

#[test]
fn other_files_beside_a_storage_are_no_error() {
    let directory = ScratchDirectory::new();
    let [path, _] = storages_with_tables(&directory);
    fs::write(path.join("seats.json"), "{}").expect("it can be written");
    fs::write(path.join("notes.log"), "").expect("it can be written");
    assert_eq!(inspected(&path), Ok(30));
    TestStorage::open(&path).store("chat:1", 31);
}

#[test]
fn a_creation_that_was_interrupted_is_repeated() {
    let directory = ScratchDirectory::new();
    let path = directory.join("data");
    fs::create_dir(&path).expect("it can be written");
    let lines = "dunlin storage\nformat 1\npower_era 0\ndamage_era 0\nclosed 0\nboot \nmade 0\nnewest_log 0\n";
    fs::write(path.join("STORAGE"), with_checksum(lines)).expect("it can be written");
    TestStorage::open(&path).store("chat:1", 1);
}

#[test]
fn a_torn_end_of_the_log_is_dropped() {
    let directory = ScratchDirectory::new();
    let opened = TestStorage::open(&directory.join("data"));
    for offset in 1..=10 {
        opened.store("chat:1", offset);
    }
    let epoch = opened.newest("chat:1", 1).epoch;
    for cut_bytes in [1, 10, 60] {
        let copy = killed_copy(&directory, &format!("cut-{cut_bytes}"), &opened);
        let log = log_file(&copy);
        let bytes = fs::read(&log).expect("it can be read");
        fs::write(&log, &bytes[..bytes.len() - cut_bytes]).expect("it can be written");
        let page = TestStorage::open(&copy).newest("chat:1", 100);
        assert_eq!((offsets(&page), page.top, page.epoch), ((1..=9).collect(), 9, epoch.clone()), "{cut_bytes} bytes");
    }
}

#[test]
fn a_damaged_log_is_refused_or_kept_until_the_damage() {
    let directory = ScratchDirectory::new();
    let opened = TestStorage::open(&directory.join("data"));
    for offset in 1..=100 {
        opened.store("chat:1", offset);
    }
    let epoch = opened.newest("chat:1", 1).epoch;
    let copy = killed_copy(&directory, "damaged", &opened);
    let log = log_file(&copy);
    flip_bit(&log, fs::metadata(&log).expect("it is there").len() as usize / 2);
    let mut options = StorageOptions::at(&copy);
    let fault = fault_of(TestStorage::with(&options));
    assert!(matches!(fault, StorageFault::DamagedLog(_)), "{fault:?}");
    options.damaged_log = DamagedLogPolicy::KeepUntilDamage;
    let page = TestStorage::with(&options).expect("it opens").newest("chat:1", 200);
    assert!((1..100).contains(&page.top), "{}", page.top);
    assert_eq!(offsets(&page), (1..=page.top).collect::<Vec<_>>());
    assert_ne!(page.epoch, epoch, "clients have seen what is lost");
    options.damaged_log = DamagedLogPolicy::Refuse;
    assert_eq!(TestStorage::with(&options).expect("it opens").newest("chat:1", 1).epoch, page.epoch);
}

#[test]
fn a_failed_start_with_discarded_damage_keeps_the_note() {
    static NOW_MS: AtomicU64 = AtomicU64::new(1_000_000_000_000);
    let directory = ScratchDirectory::new();
    let clock = ClockSource::Given(|| NOW_MS.load(Ordering::Relaxed));
    let options = |path: &Path| StorageOptions { clock, ..StorageOptions::at(path) };
    let opened = TestStorage::with(&options(&directory.join("data"))).expect("it opens");
    for offset in 1..=100 {
        opened.store("chat:1", offset);
    }
    let epoch = opened.newest("chat:1", 1).epoch;
    let copy = killed_copy(&directory, "damaged", &opened);
    let log = log_file(&copy);
    flip_bit(&log, fs::metadata(&log).expect("it is there").len() as usize / 2);
    let mut options = options(&copy);
    options.damaged_log = DamagedLogPolicy::KeepUntilDamage;
    NOW_MS.fetch_add(options.clock_ahead_ms_max + 1, Ordering::Relaxed);
    let fault = fault_of(TestStorage::with(&options));
    assert!(matches!(fault, StorageFault::ClockAhead { .. }), "{fault:?}");
    NOW_MS.store(1_000_000_000_000, Ordering::Relaxed);
    let page = TestStorage::with(&options).expect("it opens").newest("chat:1", 200);
    assert!(page.top < 100, "{}", page.top);
    assert_ne!(page.epoch, epoch, "clients have seen what is lost");
}

#[test]
fn after_power_loss_unsynced_channels_get_a_new_epoch() {
    let directory = ScratchDirectory::new();
    let opened = TestStorage::open(&directory.join("data"));
    let synced = LogTerms { is_synced: true, ..TERMS };
    opened.store("chat:1", 1);
    assert_eq!(opened.store_with("safe:1", record(1), synced), Ok(1));
    let epochs = |opened: &TestStorage| ["chat:1", "safe:1"].map(|channel| opened.newest(channel, 9).epoch);
    let before = epochs(&opened);
    let copy = killed_copy(&directory, "powerless", &opened);
    let killed = TestStorage::open(&copy);
    assert_eq!(epochs(&killed), before, "the process has ended, nothing more");
    let copy = killed_copy(&directory, "powerless-2", &killed);
    let state = fs::read_to_string(copy.join("STORAGE")).expect("it can be read");
    let lines = state.lines().filter(|line| !line.starts_with("check "));
    let lines =
        lines.map(|line| if line.starts_with("boot ") { "boot another\n".to_owned() } else { format!("{line}\n") });
    fs::write(copy.join("STORAGE"), with_checksum(&lines.collect::<String>())).expect("it can be written");
    let restarted = TestStorage::open(&copy);
    let after = epochs(&restarted);
    assert_ne!(after[0], before[0]);
    assert_eq!(after[1], before[1]);
    assert_eq!(offsets(&restarted.newest("chat:1", 9)), [1], "its history stays");
    restarted.store("chat:1", 2);
    drop(restarted);
    assert_eq!(epochs(&TestStorage::open(&copy)), after);
}

#[test]
fn a_flipped_bit_in_a_table_is_reported() {
    let directory = ScratchDirectory::new();
    let path = directory.join("data");
    let opened = TestStorage::open(&path);
    for offset in 1..=300 {
        let data = format!("{{\"number\":{offset},\"padding\":\"{}\"}}", "x".repeat(500));
        assert_eq!(opened.store_with("chat:1", record_of(offset, data), TERMS), Ok(offset));
    }
    opened.storage.compact();
    drop(opened);
    // The largest table is that of the publications.
    let size = |path: &PathBuf| fs::metadata(path).map_or(0, |metadata| metadata.len());
    let table = files_with(&path, "sst").into_iter().max_by_key(size).expect("there are tables");
    flip_bit(&table, 200);
    let opened = TestStorage::open(&path);
    let all = LoadQuery::after(0, 1_000);
    assert_eq!(opened.try_load("chat:1", all, TERMS).err(), Some(LogError::Unavailable));
    let fault = opened.storage.last_read_fault().expect("it was noted").fault;
    assert!(matches!(fault, StorageFault::Corruption(_)), "{fault:?}");
    assert!(matches!(opened.inspect().check().expect_err("it reads all").fault, StorageFault::Corruption(_)));
    assert_eq!(opened.storage.poison(), None, "what can be written is written");
}

/// Any result other than an error or the same pages would be a silent loss.
#[test]
fn a_flipped_bit_anywhere_is_reported_or_harmless() {
    const POSITIONS: usize = 12;
    let directory = ScratchDirectory::new();
    let opened = TestStorage::open(&directory.join("data"));
    for offset in 1..=40 {
        opened.store("chat:1", offset);
    }
    opened.storage.compact();
    for offset in 41..=60 {
        opened.store("chat:1", offset);
    }
    let expected = opened.after("chat:1", 0, 100);
    let mut reported = 0;
    for entry in fs::read_dir(opened.storage.path()).expect("it can be read") {
        let name = entry.expect("it can be read").file_name().into_string().expect("it is text");
        // Files for human readers, and the lock.
        if name.starts_with("LOG") || name.starts_with("OPTIONS") || name == "LOCK" {
            continue;
        }
        for number in 0..POSITIONS {
            let copy = killed_copy(&directory, &format!("{name}-{number}"), &opened);
            let file = copy.join(&name);
            let length = fs::metadata(&file).expect("it is there").len() as usize;
            if length > 0 {
                flip_bit(&file, length * number / POSITIONS);
            }
            let Ok(damaged) = TestStorage::with(&StorageOptions::at(&copy)) else {
                reported += 1;
                continue;
            };
            let all = LoadQuery::after(0, 100);
            match damaged.try_load("chat:1", all, TERMS) {
                Ok(loaded) if loaded.epoch == expected.epoch => {
                    assert_eq!(offsets(&loaded), offsets(&expected), "{name}, {number}");
                    assert_eq!((loaded.top, loaded.floor), (60, 0), "{name}, {number}");
                }
                Ok(loaded) => panic!("{name}, {number}: another epoch, and no error: {loaded:?}"),
                Err(_) => reported += 1,
            }
        }
    }
    assert!(reported > POSITIONS, "{reported} of the damages were reported");
}

#[test]
fn a_clock_far_ahead_is_refused_and_one_behind_is_not_followed() {
    static NOW_MS: AtomicU64 = AtomicU64::new(1_000_000_000_000);
    let directory = ScratchDirectory::new();
    let path = directory.join("data");
    let clock = ClockSource::Given(|| NOW_MS.load(Ordering::Relaxed));
    let options = StorageOptions { clock, ..StorageOptions::at(&path) };
    TestStorage::with(&options).expect("it opens").store("chat:1", 1);
    NOW_MS.fetch_add(options.clock_ahead_ms_max + 1, Ordering::Relaxed);
    let ahead_ms = options.clock_ahead_ms_max + 1;
    for _ in 1..=2 {
        assert_eq!(fault_of(TestStorage::with(&options)), StorageFault::ClockAhead { ahead_ms });
        let opened = Inspection::open(&options).expect("reading needs no clock");
        opened.check().expect("all can be read");
        assert_eq!(opened.export(None, &mut Vec::new()), Ok(1), "nothing has expired by the clock of the last run");
    }
    NOW_MS.store(5, Ordering::Relaxed);
    let opened = TestStorage::with(&options).expect("it opens");
    opened.store("chat:1", 2);
    NOW_MS.store(1_000_000_000_000, Ordering::Relaxed);
    assert_eq!(offsets(&opened.newest("chat:1", 9)), [1, 2], "nothing has expired");
}

#[test]
fn a_clock_far_ahead_can_be_accepted_once() {
    static NOW_MS: AtomicU64 = AtomicU64::new(1_000_000_000_000);
    let directory = ScratchDirectory::new();
    let clock = ClockSource::Given(|| NOW_MS.load(Ordering::Relaxed));
    let options = StorageOptions { clock, clock_ahead_ms_max: 1_000, ..StorageOptions::at(directory.join("data")) };
    TestStorage::with(&options).expect("it opens").store("chat:1", 1);
    NOW_MS.fetch_add(1_000, Ordering::Relaxed);
    drop(TestStorage::with(&options).expect("the limit is not reached"));
    NOW_MS.fetch_add(1_001, Ordering::Relaxed);
    assert_eq!(fault_of(TestStorage::with(&options)), StorageFault::ClockAhead { ahead_ms: 1_001 });
    let accepting = StorageOptions { clock_ahead_ms_max: u64::MAX, ..options.clone() };
    TestStorage::with(&accepting).expect("it is accepted").store("chat:1", 2);
    assert_eq!(offsets(&TestStorage::with(&options).expect("once is enough").newest("chat:1", 9)), [1, 2]);
}

#[test]
fn missing_huge_pages_are_an_error() {
    let directory = ScratchDirectory::new();
    let mut options = StorageOptions::at(directory.join("data"));
    // More memory than any machine has.
    (options.huge_page_bytes, options.memtable_bytes) = (2 << 20, 1 << 50);
    let fault = fault_of(TestStorage::with(&options));
    assert!(matches!(fault, StorageFault::FewHugePages { needed: 0x2000_0000, .. }), "{fault:?}");
}

/// Fills the disk to the last byte.
fn fill(filler: &Path) {
    let mut file = fs::File::create(filler).expect("there is space for a name");
    while file.write(&[0; 4096]).is_ok_and(|bytes| bytes > 0) {}
}

#[test]
fn child_starts_on_a_full_disk() {
    let Some(directory) = directory_of_child() else { return };
    let (used, filler) = (directory.join("data"), directory.join("filler"));
    let options = StorageOptions { free_space_min_bytes: 0, ..StorageOptions::at(&used) };
    let opened = TestStorage::with(&options).expect("it opens");
    (1..=3).for_each(|offset| opened.store("chat:1", offset));
    drop(opened);
    for (path, next) in [(used, 4), (directory.join("fresh"), 1)] {
        fill(&filler);
        let options = StorageOptions { free_space_min_bytes: 0, ..StorageOptions::at(path) };
        assert!(matches!(fault_of(TestStorage::with(&options)), StorageFault::DiskFull(_)));
        let options = StorageOptions { start: StartPolicy::OpenLater, ..options };
        let opened = TestStorage::with(&options).expect("it refuses until there is space");
        assert!(matches!(opened.storage.poison().expect("it is full").fault, StorageFault::DiskFull(_)));
        assert_eq!(opened.store_with("chat:1", record(next), TERMS), Err(LogError::Broken));
        assert_eq!(opened.try_load("chat:1", LoadQuery::newest(9), TERMS).err(), Some(LogError::Unavailable));
        assert!(opened.trim("chat:1", 1).is_err());
        fs::remove_file(&filler).expect("it is there");
        opened.wait_until_resumed();
        assert_eq!(opened.store_with("chat:1", record(next), TERMS), Ok(next));
        let page = opened.newest("chat:1", 9);
        assert_eq!((page.top, page.records.last().map(|record| record.publication.offset)), (next, Some(next)));
    }
    println!("filled");
}

#[test]
fn child_fills_a_small_disk() {
    let Some(directory) = directory_of_child() else { return };
    // The disk is really full, not only down to the reserve.
    let options = StorageOptions { free_space_min_bytes: 0, ..StorageOptions::at(directory.join("data")) };
    let opened = TestStorage::with(&options).expect("it opens");
    opened.newest("chat:1", 1);
    let data = |offset| format!("{{\"number\":{offset},\"padding\":\"{}\"}}", "x".repeat(60_000));
    let mut stored = 0;
    let refusal = loop {
        match opened.store_with("chat:1", record_of(stored + 1, data(stored + 1)), TERMS) {
            Ok(offset) => stored = offset,
            Err(error) => break error,
        }
    };
    assert_eq!(refusal, LogError::Broken);
    let poison = opened.storage.poison().expect("it is poisoned").clone();
    assert!(matches!(poison.fault, StorageFault::DiskFull(_)), "{poison}");
    assert_eq!(opened.store_with("chat:2", record(1), TERMS), Err(LogError::Broken), "the disk is still full");
    let page = opened.after("chat:1", stored - 3, 10);
    assert_eq!(offsets(&page), [stored - 2, stored - 1, stored], "reads continue");
    assert_eq!(opened.trim("chat:1", 1).map_err(|error| error.fault), Err(StorageFault::Poisoned));
    fs::remove_file(directory.join("ballast")).expect("it is there");
    opened.wait_until_resumed();
    assert_eq!(opened.storage.poison(), None);
    let page = opened.after("chat:1", stored - 3, 10);
    assert_eq!(offsets(&page), [stored - 2, stored - 1, stored], "a refused publication does not appear later");
    assert_eq!(opened.store_with("chat:1", record(stored + 2), TERMS), Ok(stored + 2));
    assert_eq!(opened.after("chat:1", 0, 1).floor, 1, "what was removed meanwhile is removed");
    drop(opened);
    let opened = TestStorage::open(&directory.join("data"));
    let page = opened.after("chat:1", stored - 2, 10);
    assert_eq!(offsets(&page), [stored - 1, stored, stored + 2]);
    println!("filled");
}

#[test]
fn child_runs_out_of_descriptors() {
    let Some(directory) = directory_of_child() else { return };
    // Small memtables, so that tables are written soon.
    let options = StorageOptions { memtable_bytes: 128 << 10, ..StorageOptions::at(directory.join("data")) };
    let opened = TestStorage::with(&options).expect("it opens");
    let descriptors = fs::read_dir("/proc/self/fd").expect("Linux has it").count();
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel reads and writes the structure.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) }, 0);
    let few = libc::rlimit { rlim_cur: descriptors as u64, ..limit };
    // SAFETY: as above.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const few) }, 0);
    let mut stored = 0;
    let refusal = loop {
        let data = format!("{{\"number\":{},\"padding\":\"{}\"}}", stored + 1, "x".repeat(10_000));
        match opened.store_with("chat:1", record_of(stored + 1, data), TERMS) {
            Ok(offset) => stored = offset,
            Err(error) => break error,
        }
    };
    assert_eq!(refusal, LogError::Broken);
    // SAFETY: as above.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    opened.wait_until_resumed();
    let page = opened.after("chat:1", stored - 1, 10);
    assert_eq!(offsets(&page), [stored], "{page:?}");
    assert_eq!(opened.store_with("chat:1", record(stored + 2), TERMS), Ok(stored + 2));
    println!("resumed");
}

#[test]
fn child_finds_a_disk_that_takes_no_writes() {
    let Some(directory) = directory_of_child() else { return };
    let fault = fault_of(TestStorage::with(&StorageOptions::at(directory.join("data"))));
    assert!(matches!(fault, StorageFault::NotWritable(_)), "{fault:?}");
    println!("refused");
}

#[test]
fn a_read_only_disk_is_named() {
    let directory = ScratchDirectory::new();
    let this = std::env::current_exe().expect("a test is a file");
    let script = "mount -t tmpfs tmpfs \"$0\" && DUNLIN_STORAGE_CHILD=\"$0/data\" \"$1\" --exact \
        faults::child_keeps_a_storage_open </dev/null && mount -o remount,ro \"$0\" && exec \"$1\" --exact \
        faults::child_finds_a_disk_that_takes_no_writes --nocapture";
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "sh", "-c", script]).arg(&directory.0).arg(this);
    let output = command.env(crate::harness::CHILD_DIRECTORY, &directory.0).output().expect("util-linux is installed");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && printed.contains("refused"), "{printed}");
}

#[test]
fn a_storage_without_descriptors_writes_again_when_it_gets_some() {
    let directory = ScratchDirectory::new();
    let output = child("faults::child_runs_out_of_descriptors", &directory.0).output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("resumed"), "{text}{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_full_disk_stops_writes_until_there_is_space_and_nothing_else() {
    see_on_a_small_disk("faults::child_fills_a_small_disk");
}

#[test]
fn a_storage_that_starts_on_a_full_disk_opens_when_there_is_space() {
    see_on_a_small_disk("faults::child_starts_on_a_full_disk");
}

fn see_on_a_small_disk(name: &str) {
    let directory = ScratchDirectory::new();
    let filler = child(name, &directory.0);
    // A separate file system in a mount namespace that ends with the child. The ballast is larger than the maximum size
    // of the write-ahead log, which opening converts to tables.
    let script =
        "mount -t tmpfs -o size=48m tmpfs \"$0\" && head -c 30000000 /dev/zero > \"$0/ballast\" && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "sh", "-c", script]).arg(&directory.0);
    command.arg(filler.get_program()).args(filler.get_args()).env(crate::harness::CHILD_DIRECTORY, &directory.0);
    let output = command.output().expect("util-linux is installed");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("filled"), "{text}{}", String::from_utf8_lossy(&output.stderr));
}
