//! Runs under seeds: always the same ones, fresh ones, and the same one twice.

use std::{
    process::Command,
    time::{SystemTime, UNIX_EPOCH},
};

use dunlin_sim::{Outcome, run};

const FIXED_SEEDS: u64 = 300;
const FRESH_SEEDS: u64 = 100;

fn assert_all_pass(seeds: impl Iterator<Item = u64>) {
    let failures: Vec<Outcome> =
        seeds.map(|seed| run(seed, false, &|_| {})).filter(|outcome| outcome.failure.is_some()).collect();
    assert!(failures.is_empty(), "replay with `cargo run -p dunlin-sim -- --seed SEED --trace`: {failures:#?}");
}

#[test]
fn the_fixed_seeds_pass() {
    assert_all_pass(0..FIXED_SEEDS);
}

#[test]
fn fresh_seeds_pass() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970");
    let start = now.as_millis() as u64;
    println!("{FRESH_SEEDS} seeds from {start}");
    assert_all_pass(start..start + FRESH_SEEDS);
}

#[test]
fn a_run_follows_from_its_seed() {
    let mut hashes = std::collections::HashSet::new();
    for seed in 0..20 {
        let (first, second) = (run(seed, false, &|_| {}), run(seed, false, &|_| {}));
        assert_eq!(first, second);
        assert!(hashes.insert(first.trace_hash), "two seeds led to the same run");
    }
}

#[test]
fn a_run_is_the_same_in_another_process() {
    let once = || {
        let output = Command::new(env!("CARGO_BIN_EXE_dunlin-sim")).args(["--seed", "7"]).output();
        String::from_utf8(output.expect("the program is there").stdout).expect("it prints text")
    };
    let first = once();
    assert!(first.contains(&format!("trace hash {:016x}", run(7, false, &|_| {}).trace_hash)), "{first}");
    assert_eq!(first, once());
}
