//! Runs clusters with fixed seeds, and checks that bugs between shards and cores are found. Bugs inside
//! of the cores are in `mutants.rs`.

mod find;
mod pass;

use dunlin_sim::{ClusterFlaw, run_cluster_flawed, run_clustered};

use pass::{assert_all_pass, assert_reached};

const FIXED_SEEDS: u64 = 600;
/// Number of seeds within which each bug must be found. All of them pass without a bug.
const SEEDS_MAX: u64 = 1_500;
/// The fixed seeds must reach each case of [`REACHED`] at least this often.
const REACHED_MIN: u64 = 50;

const REACHED: [&str; 56] = [
    "cluster: ahead",
    "cluster: audit",
    "cluster: broadcast",
    "cluster: broadcast by wildcard",
    "cluster: broadcast seen",
    "cluster: closed by server",
    "cluster: committed",
    "cluster: connection cut",
    "cluster: crash",
    "cluster: disconnected on all nodes",
    "cluster: stream truncated",
    "cluster: stream created by a node",
    "cluster: stream emptied",
    "cluster: stream removed",
    "cluster: store full",
    "cluster: held back",
    "cluster: followed",
    "cluster: gap",
    "cluster: history",
    "cluster: hole detected",
    "cluster: history removed",
    "cluster: keys of all nodes",
    "cluster: key answered",
    "cluster: late",
    "cluster: leader killed",
    "cluster: lease begun",
    "cluster: lease taken",
    "cluster: lost tail",
    "cluster: message lost",
    "cluster: message of a node",
    "cluster: never republished",
    "cluster: no leader",
    "cluster: node joined",
    "cluster: no keys elsewhere",
    "cluster: node lost",
    "cluster: node restarted with keys",
    "cluster: not committed",
    "cluster: not recovered",
    "cluster: partitioned",
    "cluster: peer window",
    "cluster: published once",
    "cluster: recovered",
    "cluster: replica damaged",
    "cluster: request rejected",
    "cluster: retry",
    "cluster: servers restarted in turn",
    "cluster: shared read",
    "cluster: silence",
    "cluster: slow answer",
    "cluster: stale replica",
    "cluster: survey complete",
    "cluster: survey partial",
    "cluster: truncation detected",
    "cluster: user at rest",
    "cluster: user rejected",
    "cluster: versioned",
];

/// Seeds that failed in earlier versions.
const FOUND_SEEDS: [u64; 38] = [
    1_193,
    1_676,
    50_420,
    50_930,
    60_805,
    60_808,
    61_240,
    64_372,
    91_036,
    100_315,
    130_203,
    775_125,
    775_836,
    20_639,
    20_718,
    777_141,
    778_853,
    880_562,
    900_715,
    901_093,
    901_270,
    901_730,
    2_002_045,
    2_003_844,
    2_007_560,
    2_007_809,
    3_001_785,
    3_003_370,
    4_020_874,
    4_032_988,
    4_052_008,
    5_001_908,
    5_002_409,
    1_795_662_667_962,
    1_795_698_203_509,
    1_795_718_547_544,
    1_795_719_754_138,
    1_795_944_388_576,
];

#[test]
fn seeds_that_failed_before_pass() {
    assert_all_pass("clustered", FOUND_SEEDS, |seed| run_clustered(seed, false));
}

#[test]
fn fixed_seeds_pass_and_reach_all_cases() {
    let reached = assert_all_pass("clustered", 0..FIXED_SEEDS, |seed| run_clustered(seed, false));
    assert_reached(&reached, &REACHED, REACHED_MIN);
}

#[test]
fn a_seed_determines_the_run() {
    for seed in 0..5 {
        assert_eq!(run_clustered(seed, false), run_clustered(seed, false));
    }
}

/// Checks that a bug between shards and cores is found.
fn find_between(flaw: ClusterFlaw, texts: &[&str]) {
    let run = |seed, has_flaw| if has_flaw { run_cluster_flawed(seed, flaw) } else { run_clustered(seed, false) };
    find::find(flaw, SEEDS_MAX, texts, run);
}

#[test]
fn forwarding_a_received_broadcast_is_found() {
    find_between(ClusterFlaw::BroadcastRepeated, &["again"]);
}

#[test]
fn keys_that_only_other_nodes_have_are_found_missing() {
    find_between(ClusterFlaw::KeysNotGathered, &["has None as the newest of key"]);
}
