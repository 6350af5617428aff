//! Runs random requests, restarts and compactions, and compares the storage with a model that keeps everything in a
//! list.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use dunlin_engine::log::{LogPage, LogRetention, LogTerms};
use dunlin_storage::{ClockSource, DiskLimits, NamespaceDiskLimits, StorageOptions};
use proptest::prelude::*;

use crate::harness::{ScratchDirectory, TERMS, TestStorage, offsets, record};

const TTL_MS: u64 = 1_000;
const PUBLICATIONS_MAX: usize = 12;
/// The limit on the bytes of one of the channels: a little less than those of `PUBLICATIONS_MAX` publications.
const BYTES_MAX: u64 = 3_000;
const LIMITED_CHANNEL: u8 = 1;

#[derive(Clone, Debug)]
enum Step {
    /// Store consecutive publications, after a gap of `left_out` offsets.
    Store {
        channel: u8,
        count: u8,
        left_out: u64,
    },
    Trim {
        channel: u8,
        below_top: u64,
    },
    Remove {
        channel: u8,
    },
    Wait {
        ms: u64,
    },
    Reopen,
    Compact,
}

fn step() -> impl Strategy<Value = Step> {
    let channel = 0_u8..3;
    prop_oneof![
        8 => (channel.clone(), 1_u8..30, 0_u64..3).prop_map(|(channel, count, left_out)| Step::Store { channel, count, left_out }),
        2 => (channel.clone(), 0_u64..20).prop_map(|(channel, below_top)| Step::Trim { channel, below_top }),
        1 => channel.prop_map(|channel| Step::Remove { channel }),
        2 => (0..TTL_MS).prop_map(|ms| Step::Wait { ms }),
        1 => Just(Step::Reopen),
        1 => Just(Step::Compact),
    ]
}

/// A channel of the model: offsets with the time at which each was stored.
#[derive(Clone, Debug, Default)]
struct ModelChannel {
    stored: Vec<(u64, u64)>,
    top: u64,
    /// Publications up to this offset are not kept.
    trimmed: u64,
    epoch: Box<str>,
}

impl ModelChannel {
    fn kept(&self, now_ms: u64) -> Vec<u64> {
        let floor = self.trimmed.max(self.top.saturating_sub(PUBLICATIONS_MAX as u64));
        let is_kept = |(offset, ms): &&(u64, u64)| *offset > floor && ms + TTL_MS > now_ms;
        self.stored.iter().filter(is_kept).map(|(offset, _)| *offset).collect()
    }

    /// Checks that no stored publication above the floor is missing in the page.
    fn see_that_nothing_is_hidden(&self, page: &LogPage) {
        let found = offsets(page);
        for (offset, _) in &self.stored {
            let is_covered = (page.floor + 1..=page.through).contains(offset);
            assert!(!is_covered || found.contains(offset), "{offset} is missing in {page:?}");
        }
    }
}

struct Play {
    storage: Option<TestStorage>,
    directory: ScratchDirectory,
    now_ms: &'static AtomicU64,
    clock: ClockSource,
    channels: BTreeMap<u8, ModelChannel>,
}

impl Play {
    fn open(&mut self) {
        self.storage = None;
        let options = StorageOptions { clock: self.clock, ..StorageOptions::at(self.directory.join("data")) };
        let storage = TestStorage::with(&options).expect("it opens");
        let limits = NamespaceDiskLimits { channel_bytes_max: BYTES_MAX, evicts: true, bytes_max: 0 };
        storage.storage.set_disk_limits(DiskLimits {
            bytes_max: 0,
            namespaces: vec![limits],
            namespace_of: Some(Arc::new(|channel| (channel == name(LIMITED_CHANNEL)).then_some(0))),
        });
        self.storage = Some(storage);
    }

    /// Takes over into the model what the storage has evicted, and checks that it was due.
    fn note_evicted(&mut self, channel: u8) {
        let now_ms = self.now_ms.load(Ordering::Relaxed);
        let Some(storage) = &self.storage else { return };
        let known = self.channels.entry(channel).or_default();
        let (found, kept) = (offsets(&storage.newest(&name(channel), 1_000)), known.kept(now_ms));
        assert!(kept.ends_with(&found), "{found:?} of {kept:?}");
        let bytes: u64 = found.iter().map(|offset| 256 + record(*offset).publication.data.bytes().len() as u64).sum();
        assert!(bytes <= BYTES_MAX, "{found:?}");
        if let [oldest, ..] = *found
            && found.len() < kept.len()
        {
            assert!(bytes > BYTES_MAX / 2, "{found:?} of {kept:?}");
            known.trimmed = oldest - 1;
        }
        let totals = storage.storage.history_bytes();
        assert!(totals.iter().all(|(namespace, bytes)| namespace.is_none() || *bytes <= BYTES_MAX), "{totals:?}");
    }

    fn take(&mut self, step: &Step) {
        let now_ms = self.now_ms.load(Ordering::Relaxed);
        let Some(storage) = &self.storage else { return };
        match *step {
            Step::Store { channel, count, left_out } => {
                let known = self.channels.entry(channel).or_default();
                let retention = LogRetention { publications_max: PUBLICATIONS_MAX, ttl_ms: TTL_MS };
                let terms = LogTerms { retention, ..TERMS };
                for number in 1..=u64::from(count) {
                    let offset = known.top + number + left_out;
                    storage.propose(&name(channel), record(offset), terms).expect("there is room");
                    known.stored.push((offset, now_ms));
                }
                // Answers arrive in order, so all previous ones have arrived with this one.
                let last = known.top + u64::from(count) + left_out + 1;
                assert_eq!(storage.store_with(&name(channel), record(last), terms), Ok(last));
                known.stored.push((last, now_ms));
                known.top = last;
                if channel == LIMITED_CHANNEL {
                    self.note_evicted(channel);
                }
            }
            Step::Trim { channel, below_top } => {
                let known = self.channels.entry(channel).or_default();
                known.trimmed = known.trimmed.max(known.top.saturating_sub(below_top));
                storage.storage.trim(name(channel).into(), known.top.saturating_sub(below_top), None);
            }
            Step::Remove { channel } => {
                self.channels.remove(&channel);
                storage.storage.remove(name(channel).into());
            }
            Step::Wait { ms } => {
                self.now_ms.fetch_add(ms, Ordering::Relaxed);
            }
            Step::Reopen => self.open(),
            Step::Compact => storage.storage.compact(),
        }
    }

    fn compare(&mut self, after: u64) {
        let now_ms = self.now_ms.load(Ordering::Relaxed);
        let Some(storage) = &self.storage else { return };
        for channel in 0..3 {
            let known = self.channels.entry(channel).or_default();
            let kept = known.kept(now_ms);
            let page = storage.newest(&name(channel), 1_000);
            assert_eq!((offsets(&page), page.top, page.through), (kept.clone(), known.top, known.top));
            known.see_that_nothing_is_hidden(&page);
            let page = storage.newest(&name(channel), 5);
            assert_eq!(offsets(&page), kept[kept.len().saturating_sub(5)..]);
            known.see_that_nothing_is_hidden(&page);
            for publications_max in [3, 1_000] {
                let page = storage.after(&name(channel), after, publications_max);
                let behind: Vec<u64> = kept.iter().copied().filter(|offset| *offset > after).collect();
                assert_eq!(offsets(&page), behind[..behind.len().min(publications_max)]);
                assert!(page.floor >= after, "{page:?}");
                known.see_that_nothing_is_hidden(&page);
            }
            if known.epoch.is_empty() {
                known.epoch.clone_from(&page.epoch);
            }
            assert_eq!(known.epoch, page.epoch);
        }
    }
}

fn name(channel: u8) -> String {
    ["a", "a:b", "chat:long name"][usize::from(channel)].to_owned()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn pages_are_those_of_the_model(steps in prop::collection::vec((step(), 0_u64..60), 1..30)) {
        static NOW_MS: AtomicU64 = AtomicU64::new(1_000_000);
        let clock = ClockSource::Given(|| NOW_MS.load(Ordering::Relaxed));
        let directory = ScratchDirectory::new();
        let mut play = Play { storage: None, directory, now_ms: &NOW_MS, clock, channels: BTreeMap::new() };
        play.open();
        for (step, after) in &steps {
            play.take(step);
            play.compare(*after);
        }
    }
}
