//! Runs clusters with fixed seeds, and checks that planted bugs in the protocol are found.

use std::collections::BTreeMap;

use dunlin_cluster::{core::Core, planted::CoreBug};
use dunlin_engine::{Shard, planted::Bug};
use dunlin_sim::{RunOutcome, run_clustered};

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
const FOUND_SEEDS: [u64; 13] = [
    1_193,
    1_676,
    20_639,
    20_718,
    777_141,
    778_853,
    880_562,
    5_001_908,
    5_002_409,
    1_795_662_667_962,
    1_795_698_203_509,
    1_795_718_547_544,
    1_795_719_754_138,
];

#[test]
fn seeds_that_failed_before_pass() {
    for seed in FOUND_SEEDS {
        assert_eq!(run_clustered(seed, false, &|_| {}, &|_| {}).failure, None, "seed {seed}");
    }
}

#[test]
fn fixed_seeds_pass_and_reach_all_cases() {
    let outcomes: Vec<RunOutcome> = (0..FIXED_SEEDS).map(|seed| run_clustered(seed, false, &|_| {}, &|_| {})).collect();
    let failures: Vec<(u64, &String)> =
        outcomes.iter().filter_map(|outcome| Some((outcome.seed, outcome.failure.as_ref()?))).collect();
    assert!(
        failures.is_empty(),
        "replay with `cargo run -p dunlin-sim -- --seed SEED --world clustered --trace`: {failures:#?}"
    );
    let mut reached: BTreeMap<&str, u64> = BTreeMap::new();
    for (what, times) in outcomes.iter().flat_map(|outcome| &outcome.reached) {
        *reached.entry(what).or_insert(0) += times;
    }
    let rare: Vec<_> =
        REACHED.iter().filter(|what| reached.get(**what).is_none_or(|times| *times < REACHED_MIN)).collect();
    assert!(rare.is_empty(), "{rare:?} are reached too rarely in {reached:#?}");
}

#[test]
fn a_seed_determines_the_run() {
    for seed in 0..5 {
        assert_eq!(run_clustered(seed, false, &|_| {}, &|_| {}), run_clustered(seed, false, &|_| {}, &|_| {}));
    }
}

/// The failure of the first seed that finds `bug`.
fn find(bug: CoreBug) -> String {
    find_planted(&format!("{bug:?}"), "", &|_| {}, &|core| core.plant(bug))
}

/// Checks that a seed finds `bug` with a failure that contains `text`, for bugs with several kinds of failures.
fn find_as(bug: CoreBug, text: &str) {
    find_planted(&format!("{bug:?}"), text, &|_| {}, &|core| core.plant(bug));
}

fn find_planted(bug: &str, text: &str, prepare: &dyn Fn(&mut Shard), prepare_core: &dyn Fn(&mut Core)) -> String {
    let found = (0..SEEDS_MAX).find_map(|seed| {
        let failure = run_clustered(seed, false, prepare, prepare_core).failure?;
        failure.contains(text).then_some((seed, failure))
    });
    let (seed, failure) = found.unwrap_or_else(|| panic!("{bug} is not found within {SEEDS_MAX} seeds"));
    println!("{bug} is found by seed {seed}: {failure}");
    assert_eq!(run_clustered(seed, false, &|_| {}, &|_| {}).failure, None, "seed {seed} fails without {bug} as well");
    failure
}

#[test]
fn attaching_without_a_fence_is_found() {
    find(CoreBug::AttachWithoutFence);
}

#[test]
fn an_undetected_gap_is_found() {
    find(CoreBug::GapNotNoticed);
}

#[test]
fn a_missing_audit_of_the_tail_is_found() {
    let failure = find(CoreBug::TailNotAudited);
    assert!(failure.contains("at rest"), "{failure}");
}

#[test]
fn a_count_rule_off_by_one_is_found() {
    find(CoreBug::CountRuleOffByOne);
}

#[test]
fn trusting_a_stale_replica_is_found() {
    find(CoreBug::StaleReplicaBelieved);
}

#[test]
fn waiting_for_a_stream_that_is_gone_is_found() {
    let failure = find(CoreBug::AbsentStreamIgnored);
    assert!(failure.contains("at rest"), "{failure}");
}

#[test]
fn delivering_a_late_broadcast_is_found() {
    let failure = find(CoreBug::LateBroadcastPassedOn);
    assert!(failure.contains("again or after"), "{failure}");
}

#[test]
fn delivering_a_late_duplicate_is_found() {
    find(CoreBug::LateDuplicatePassedOn);
}

#[test]
fn delivering_the_echo_of_an_own_broadcast_is_found() {
    let failure = find(CoreBug::OwnEchoPassedOn);
    assert!(failure.contains("again"), "{failure}");
}

#[test]
fn forwarding_a_received_broadcast_is_found() {
    let failure = find_planted("BroadcastRepeated", "", &|shard| shard.plant(Bug::BroadcastRepeated), &|_| {});
    assert!(failure.contains("again"), "{failure}");
}

#[test]
fn keys_that_only_other_nodes_have_are_found_missing() {
    let failure = find_planted("KeysNotGathered", "", &|shard| shard.plant(Bug::KeysNotGathered), &|_| {});
    assert!(failure.contains("has None as the newest of key"), "{failure}");
}

#[test]
fn a_subscribe_reply_before_other_nodes_forward_broadcasts_is_found() {
    let failure = find(CoreBug::FollowNotConfirmed);
    assert!(failure.contains("did not receive broadcast"), "{failure}");
}

#[test]
fn an_undetected_truncation_is_found() {
    let failure = find(CoreBug::TruncationNotNoticed);
    assert!(failure.contains("lost position"), "{failure}");
}

#[test]
fn an_undetected_hole_is_found() {
    find(CoreBug::HoleNotNoticed);
}

#[test]
fn a_damaged_message_taken_for_whole_is_found() {
    let failure = find(CoreBug::DamagedMessageTaken);
    assert!(failure.contains("3506"), "{failure}");
}

#[test]
fn not_asking_other_nodes_for_keys_is_found() {
    let failure = find(CoreBug::KeysNotAsked);
    assert!(failure.contains("publications with the key"), "{failure}");
}

#[test]
fn rejecting_a_position_ahead_of_this_node_is_found() {
    find(CoreBug::PositionAheadRefused);
}

#[test]
fn keeping_a_partitioned_connection_is_found() {
    find(CoreBug::SilenceBorne);
}

#[test]
fn not_counting_a_shared_read_is_found() {
    find(CoreBug::SharedReadNotCounted);
}

#[test]
fn a_survey_that_waits_for_a_silent_node_is_found() {
    let failure = find(CoreBug::SilentNodeAwaited);
    assert!(failure.contains("does not end by its deadline"), "{failure}");
}

#[test]
fn an_unmarked_partial_survey_is_found() {
    find(CoreBug::MissingAnswerNotNamed);
}

#[test]
fn trusting_an_incomplete_window_of_another_node_is_found() {
    find(CoreBug::ShortWindowBelieved);
}

#[test]
fn counting_a_silent_node_as_live_is_found() {
    // Another kind of failure is that subscriptions wait for its reply.
    find_as(CoreBug::SilentNodeKept, "are live for it");
}

#[test]
fn counting_sessions_of_a_lost_node_is_found() {
    let failure = find(CoreBug::UsersOfLostNodeKept);
    assert!(failure.contains("is rejected at rest"), "{failure}");
}

#[test]
fn taking_a_lease_while_the_stream_stores_nothing_is_found() {
    let failure = find(CoreBug::LeaseTakenFromSilentStream);
    assert!(failure.contains("its renewals are delivered"), "{failure}");
}

#[test]
fn ignoring_a_rejected_renewal_is_found() {
    let failure = find(CoreBug::RefusedRenewalNotRead);
    assert!(failure.contains("its renewals are delivered"), "{failure}");
}
