//! Finds a planted bug.

use std::fmt::Debug;

use dunlin_sim::RunOutcome;

/// Checks that one of the first `seeds_max` seeds finds `bug`, that its failure contains one of `texts` unless there are
/// none, and that the seed passes without the bug. `run` runs a seed, with the bug or without it.
pub fn find(bug: impl Debug, seeds_max: u64, texts: &[&str], run: impl Fn(u64, bool) -> RunOutcome) {
    let found = (0..seeds_max).find_map(|seed| Some((seed, run(seed, true).failure?)));
    let (seed, failure) = found.unwrap_or_else(|| panic!("{bug:?} is not found within {seeds_max} seeds"));
    println!("{bug:?} is found by seed {seed}: {failure}");
    assert_eq!(run(seed, false).failure, None, "seed {seed} fails without {bug:?} as well");
    assert!(texts.is_empty() || texts.iter().any(|text| failure.contains(text)), "{failure}");
}
