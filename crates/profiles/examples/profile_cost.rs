//! What a CPU profile costs the thread that it samples: the processor time of the same work with a profile and without,
//! in turns.
//!
//! `cargo run --profile measured -p dunlin-profiles --example profile_cost -- [TURNS [DEPTH]]`

use std::{
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use dunlin_profiles::{Names, cpu_profile};

/// Calls of one piece of work: a quarter of a second or so.
const CALLS: u64 = 6_000_000;

fn main() {
    let mut given = std::env::args().skip(1).map(|text| text.parse().expect("numbers"));
    let turns: usize = given.next().unwrap_or(40);
    let depth = given.next().unwrap_or(30) as u32;
    let mut ratios: Vec<f64> = (0..turns).map(|turn| compare(depth, turn % 2 == 0)).collect();
    ratios.sort_by(f64::total_cmp);
    let mean = ratios.iter().sum::<f64>() / turns as f64;
    let variance = ratios.iter().map(|ratio| (ratio - mean).powi(2)).sum::<f64>() / (turns.max(2) - 1) as f64;
    let error = (variance / turns as f64).sqrt();
    println!(
        "with a profile: {mean:.4} ± {error:.4} of the processor time without (median {:.4}; {turns} pairs)",
        ratios[turns / 2]
    );
}

/// The order alternates, so that a drift of the machine affects both equally.
fn compare(depth: u32, is_profiled_first: bool) -> f64 {
    if is_profiled_first {
        let profiled = profiled_ns(depth);
        profiled / plain_ns(depth)
    } else {
        let plain = plain_ns(depth);
        profiled_ns(depth) / plain
    }
}

fn profiled_ns(depth: u32) -> f64 {
    let is_done = Arc::new(AtomicBool::new(false));
    let recorder = thread::spawn({
        let is_done = Arc::clone(&is_done);
        move || {
            // Ends without looking names up, which another thread does in the server too.
            let _ = cpu_profile(Duration::from_mins(1), &mut Names::default(), || is_done.load(Ordering::Acquire));
        }
    });
    // The recorder looks for threads once when it begins, and then once per second.
    thread::sleep(Duration::from_millis(1_300));
    let spent = plain_ns(depth);
    is_done.store(true, Ordering::Release);
    recorder.join().expect("the recorder ends");
    spent
}

/// Processor time of this thread for the work.
fn plain_ns(depth: u32) -> f64 {
    let before = thread_ns();
    for call in 0..CALLS {
        black_box(recurse(depth, call));
    }
    (thread_ns() - before) as f64
}

/// A stack as deep as that of a shard.
#[inline(never)]
fn recurse(depth: u32, value: u64) -> u64 {
    let mixed = black_box(value).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31);
    if depth == 0 { mixed } else { recurse(depth - 1, mixed).wrapping_add(1) }
}

fn thread_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is valid for the call.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(result, 0, "each thread has a clock of its processor time");
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}
