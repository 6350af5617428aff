//! Runs seeds that must pass.

use std::collections::BTreeMap;

use dunlin_sim::RunOutcome;

/// Checks that all seeds pass in the world that `run` runs. Returns how often they reached each case.
pub fn assert_all_pass(
    world: &str,
    seeds: impl IntoIterator<Item = u64>,
    run: impl Fn(u64) -> RunOutcome,
) -> BTreeMap<String, u64> {
    let (mut reached, mut failures) = (BTreeMap::new(), Vec::new());
    for outcome in seeds.into_iter().map(run) {
        failures.extend(outcome.failure.map(|failure| (outcome.seed, failure)));
        for (what, times) in outcome.reached {
            *reached.entry(what).or_insert(0) += times;
        }
    }
    assert!(
        failures.is_empty(),
        "replay with `cargo run -p dunlin-sim -- --seed SEED --world {world} --trace`: {failures:#?}"
    );
    reached
}

/// Checks that each case was reached at least `times_min` times.
pub fn assert_reached(reached: &BTreeMap<String, u64>, cases: &[&str], times_min: u64) {
    let times = |case: &str| reached.get(case).copied().unwrap_or(0);
    let rare: Vec<_> = cases.iter().filter(|case| times(case) < times_min).collect();
    assert!(rare.is_empty(), "{rare:?} are reached too rarely in {reached:#?}");
}
