//! Kills a process while it commits. All acknowledged publications must be stored once and in order.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Write},
    process::Stdio,
    sync::{Arc, Mutex},
};

use dunlin_engine::{
    Event, ShardIndex,
    event::ShardEvents,
    log::{LoadNumber, LoadQuery, LogTerms, ProposalNumber},
};
use dunlin_storage::{Completions, LoadRequest, Storage, StorageOptions, StoreRequest};

use crate::harness::{ScratchDirectory, TERMS, TestStorage, child, directory_of_child, offsets, record_of};

const CHANNELS: [&str; 4] = ["chat:1", "chat:2", "market:a", "x"];

/// Writes each acknowledged publication to standard output, and stores the next one.
struct ChildCompletions {
    storage: Mutex<Option<Arc<Storage>>>,
}

impl ShardEvents for ChildCompletions {
    fn send(&self, _: ShardIndex, event: Event<'static>) -> bool {
        match event {
            Event::Committed { channel, outcome, .. } => self.committed(&channel, outcome.expect("the disk works")),
            Event::Loaded { channel, outcome, .. } => self.loaded(&channel, outcome.expect("it can be read").top),
            other => panic!("{other:?}"),
        }
        true
    }
}

impl Completions for ChildCompletions {}

impl ChildCompletions {
    fn committed(&self, channel: &str, offset: u64) {
        // One write call, so that the parent reads complete lines.
        let line = format!("stored {channel} {offset}\n");
        std::io::stdout().write_all(line.as_bytes()).expect("the parent reads");
        self.store(channel, offset + 8);
    }

    fn loaded(&self, channel: &str, top: u64) {
        // The requests share one lock. Otherwise the first publication could be stored, and the ninth requested after
        // it, before the others.
        let storage = self.storage.lock().unwrap();
        for next in 1..=8 {
            Self::request(storage.as_ref(), channel, top + next);
        }
    }

    fn store(&self, channel: &str, offset: u64) {
        Self::request(self.storage.lock().unwrap().as_ref(), channel, offset);
    }

    fn request(storage: Option<&Arc<Storage>>, channel: &str, offset: u64) {
        let (shard, proposal) = (ShardIndex(0), ProposalNumber(offset));
        let data = format!("{{\"number\":{offset},\"padding\":\"{}\"}}", "x".repeat(offset as usize * 37 % 900));
        let record = Box::new(record_of(offset, data));
        let terms = LogTerms { is_synced: offset.is_multiple_of(64), ..TERMS };
        let request = StoreRequest { shard, channel: channel.into(), proposal, record, begins: None, terms };
        storage.expect("it is open").store(request).expect("there is room");
    }
}

#[test]
fn child_stores_until_it_is_killed() {
    let Some(directory) = directory_of_child() else { return };
    let completions = Arc::new(ChildCompletions { storage: Mutex::new(None) });
    // Small memtables, so that tables are constantly written and compacted.
    let options = StorageOptions { memtable_bytes: 256 << 10, ..StorageOptions::at(directory) };
    let answered = Arc::clone(&completions) as Arc<dyn Completions>;
    let storage = Arc::new(Storage::open(&options, answered).expect("the storage opens"));
    *completions.storage.lock().unwrap() = Some(Arc::clone(&storage));
    for channel in CHANNELS {
        let (shard, load) = (ShardIndex(0), LoadNumber(0));
        let query = LoadQuery::newest(1);
        let request = LoadRequest { shard, channel: channel.into(), load, query, terms: TERMS };
        storage.load(request).expect("there is room");
    }
    loop {
        std::thread::park();
    }
}

#[test]
fn acknowledged_publications_survive_a_kill() {
    let directory = ScratchDirectory::new();
    let path = directory.join("data");
    let mut acknowledged: HashMap<String, Vec<u64>> = HashMap::new();
    let mut epochs: HashMap<String, Box<str>> = HashMap::new();
    for killed_after in kills() {
        let mut process = child("crashes::child_stores_until_it_is_killed", &path)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the child starts");
        let mut lines = BufReader::new(process.stdout.take().expect("it is piped")).lines();
        let mut stored = 0;
        while let Some(Ok(line)) = lines.next() {
            let Some(("stored", rest)) = line.rsplit_once("stored ").map(|(_, rest)| ("stored", rest)) else {
                continue;
            };
            let (channel, offset) = rest.split_once(' ').expect("a channel and an offset");
            acknowledged.entry(channel.to_owned()).or_default().push(offset.parse().expect("a number"));
            stored += 1;
            if stored == killed_after {
                // SIGKILL. Lines that are still in the pipe were also acknowledged.
                process.kill().expect("it runs");
            }
        }
        process.wait().expect("it has ended");
        assert!(stored >= killed_after, "the child has ended by itself");
        see_that_all_is_there(&path, &acknowledged, &mut epochs);
    }
}

/// For each child, the number of answers after which it is killed. `DUNLIN_STORAGE_KILLS` is the number of children;
/// the default is 5.
fn kills() -> Vec<u32> {
    let count = std::env::var("DUNLIN_STORAGE_KILLS").map_or(5, |count| count.parse().expect("a number"));
    (0..count).map(|number: u32| [1, 40, 700, 3_000, 220][number as usize % 5] + number * 7 % 61).collect()
}

fn see_that_all_is_there(
    path: &std::path::Path,
    acknowledged: &HashMap<String, Vec<u64>>,
    epochs: &mut HashMap<String, Box<str>>,
) {
    let opened = TestStorage::open(path);
    for (channel, stored) in acknowledged {
        assert!(stored.is_sorted_by(|one, next| one < next), "{channel}: no offset is given twice");
        let (mut found, mut after) = (Vec::new(), 0);
        loop {
            let page = opened.after(channel, after, 500);
            assert_eq!(page.floor, after, "{channel}: nothing is missing");
            let epoch = epochs.entry(channel.clone()).or_insert_with(|| page.epoch.clone());
            assert_eq!(*epoch, page.epoch, "{channel}");
            found.extend(offsets(&page));
            after = page.through;
            if page.through == page.top {
                break;
            }
        }
        assert!(found.is_sorted_by(|one, next| one < next), "{channel}");
        let missing: Vec<_> = stored.iter().filter(|offset| found.binary_search(offset).is_err()).collect();
        assert_eq!(missing, Vec::<&u64>::new(), "{channel}: acknowledged, and not there");
    }
}

#[test]
fn child_removes_until_it_is_killed() {
    let Some(directory) = directory_of_child() else { return };
    let opened = TestStorage::open(&directory);
    for number in 0.. {
        let channel = format!("chat:{number}");
        for offset in 1..=20 {
            opened.store(&channel, offset);
        }
        opened.trim(&channel, u64::MAX).expect("the disk works");
        std::io::stdout().write_all(format!("removed {number}\n").as_bytes()).expect("the parent reads");
    }
}

#[test]
fn an_acknowledged_removal_survives_a_kill() {
    let directory = ScratchDirectory::new();
    for killed_after in [0, 3, 7] {
        let path = directory.join(&format!("data-{killed_after}"));
        let mut process = child("crashes::child_removes_until_it_is_killed", &path)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the child starts");
        let mut removed = 0;
        for line in BufReader::new(process.stdout.take().expect("it is piped")).lines().map_while(Result::ok) {
            let Some((_, number)) = line.rsplit_once("removed ") else { continue };
            removed = number.parse().expect("a number");
            if removed == killed_after {
                process.kill().expect("it runs");
            }
        }
        process.wait().expect("it has ended");
        let opened = TestStorage::open(&path);
        for number in 0..=removed {
            let page = opened.newest(&format!("chat:{number}"), 100);
            assert_eq!((offsets(&page), page.top), (Vec::new(), 20), "chat:{number}");
        }
    }
}

#[test]
fn a_removal_of_nothing_is_answered() {
    let directory = ScratchDirectory::new();
    let opened = TestStorage::open(&directory.join("data"));
    assert_eq!(opened.trim("chat:1", u64::MAX), Ok(()));
    assert_eq!(opened.trim(&"x".repeat(70_000), u64::MAX), Ok(()));
}

/// Completions that panic, although they must not.
struct PanickingCompletions;

impl ShardEvents for PanickingCompletions {
    fn send(&self, _: ShardIndex, _: Event<'static>) -> bool {
        panic!("a planted panic");
    }
}

impl Completions for PanickingCompletions {}

#[test]
fn child_panics_on_the_writer_thread() {
    let Some(directory) = directory_of_child() else { return };
    let storage = Storage::open(&StorageOptions::at(directory), Arc::new(PanickingCompletions)).expect("it opens");
    let (shard, proposal) = (ShardIndex(0), ProposalNumber(1));
    let record = Box::new(record_of(1, "1".to_owned()));
    storage
        .store(StoreRequest { shard, channel: "x".into(), proposal, record, begins: None, terms: TERMS })
        .expect("there is room");
    loop {
        std::thread::park();
    }
}

#[test]
fn a_panic_on_a_thread_of_the_storage_ends_the_process() {
    let directory = ScratchDirectory::new();
    let output = child("crashes::child_panics_on_the_writer_thread", &directory.join("data")).output();
    let output = output.expect("the child starts");
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{printed}");
    assert!(printed.contains("the thread `storage-write` panicked"), "{printed}");
}
