//! Heap profiles.

use std::{
    hint::black_box,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use dunlin_profiles::{HeapError, HeapView, Names, heap_profile, sample_heap};

use crate::{decoded::Decoded, process};

const INTERVAL_BYTES: usize = 4_096;

/// More than enough for two threads to meet.
const PROFILES_MAX: usize = 50;

#[test]
fn of_profiles_at_the_same_time_one_is_made_and_the_others_are_told() {
    let _process = process();
    sample_heap(INTERVAL_BYTES).expect("this program has the allocator");
    let were_refused = AtomicBool::new(false);
    let profiles = || {
        let mut made = 0;
        for _ in 0..PROFILES_MAX {
            if were_refused.load(Ordering::Relaxed) {
                break;
            }
            match heap_profile(HeapView::InUse, &mut Names::default()) {
                Ok(_) => made += 1,
                Err(error) => {
                    assert_eq!(error, HeapError::Busy);
                    were_refused.store(true, Ordering::Relaxed);
                }
            }
        }
        made
    };
    let made: usize = thread::scope(|scope| {
        let both = [scope.spawn(profiles), scope.spawn(profiles)];
        both.into_iter().map(|thread| thread.join().expect("it does not panic")).sum()
    });
    assert!(were_refused.into_inner() && made > 0, "{made}");
}

#[test]
fn threads_allocate_and_free_each_other_s_blocks_during_profiles() {
    const BLOCK_BYTES: usize = 100_000;
    const BLOCKS: usize = 400;
    let _process = process();
    sample_heap(INTERVAL_BYTES).expect("this program has the allocator");
    let has_ended = AtomicBool::new(false);
    let profile = thread::scope(|scope| {
        let (sender, receiver) = std::sync::mpsc::sync_channel::<Vec<u8>>(64);
        scope.spawn(|| {
            let sender = sender;
            while !has_ended.load(Ordering::Relaxed) {
                for size in 0..1_000 {
                    if sender.send(vec![1; size]).is_err() {
                        return;
                    }
                }
            }
        });
        scope.spawn(move || receiver.into_iter().map(|block| black_box(block).len()).sum::<usize>());
        let kept: Vec<_> = (0..BLOCKS).map(|_| black_box(vec![1_u8; BLOCK_BYTES])).collect();
        let profile = heap_profile(HeapView::InUse, &mut Names::default());
        has_ended.store(true, Ordering::Relaxed);
        drop(kept);
        Decoded::of(&profile.expect("no other one is being made"))
    });
    let in_use = profile.sum(3);
    // Blocks of this size are all sampled; whatever else is in use comes on top.
    assert!(in_use > i64::try_from(BLOCKS * BLOCK_BYTES).expect("some megabytes") * 9 / 10, "{in_use}");
}
