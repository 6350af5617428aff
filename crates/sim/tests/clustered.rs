//! Runs clusters with fixed seeds, and checks that planted bugs in the protocol are found.

mod find;
mod pass;

use dunlin_cluster::{core::Core, planted::CoreBug};
use dunlin_sim::{ClusterFlaw, RunOutcome, run_cluster_flawed, run_clustered};

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
const FOUND_SEEDS: [u64; 22] = [
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
    assert_all_pass("clustered", FOUND_SEEDS, |seed| run_planted(seed, None));
}

#[test]
fn fixed_seeds_pass_and_reach_all_cases() {
    let reached = assert_all_pass("clustered", 0..FIXED_SEEDS, |seed| run_planted(seed, None));
    assert_reached(&reached, &REACHED, REACHED_MIN);
}

#[test]
fn a_seed_determines_the_run() {
    for seed in 0..5 {
        assert_eq!(run_planted(seed, None), run_planted(seed, None));
    }
}

/// Checks that `bug` is found.
fn find(bug: CoreBug, texts: &[&str]) {
    find::find(bug, SEEDS_MAX, texts, |seed, has_bug| run_planted(seed, has_bug.then_some(bug)));
}

/// Checks that a seed finds `bug` with a failure that contains `text`, for bugs with several kinds of failures.
fn find_as(bug: CoreBug, text: &str) {
    find::find(bug, SEEDS_MAX, &[text], |seed, has_bug| {
        let outcome = run_planted(seed, has_bug.then_some(bug));
        let failure = outcome.failure.filter(|failure| !has_bug || failure.contains(text));
        RunOutcome { failure, ..outcome }
    });
}

/// Checks that a bug between shards and cores is found.
fn find_between(flaw: ClusterFlaw, texts: &[&str]) {
    let run = |seed, has_flaw| if has_flaw { run_cluster_flawed(seed, flaw) } else { run_planted(seed, None) };
    find::find(flaw, SEEDS_MAX, texts, run);
}

fn run_planted(seed: u64, bug: Option<CoreBug>) -> RunOutcome {
    let plant = |core: &mut Core| {
        if let Some(bug) = bug {
            core.plant(bug);
        }
    };
    run_clustered(seed, false, &|_| {}, &plant)
}

#[test]
fn attaching_without_a_fence_is_found() {
    find(CoreBug::AttachWithoutFence, &[]);
}

#[test]
fn an_undetected_gap_is_found() {
    find(CoreBug::GapNotNoticed, &[]);
}

#[test]
fn a_missing_audit_of_the_tail_is_found() {
    find(CoreBug::TailNotAudited, &["at rest"]);
}

#[test]
fn a_count_rule_off_by_one_is_found() {
    find(CoreBug::CountRuleOffByOne, &[]);
}

#[test]
fn trusting_a_stale_replica_is_found() {
    find(CoreBug::StaleReplicaBelieved, &[]);
}

#[test]
fn waiting_for_a_stream_that_is_gone_is_found() {
    find(CoreBug::AbsentStreamIgnored, &["at rest"]);
}

#[test]
fn delivering_a_late_broadcast_is_found() {
    find(CoreBug::LateBroadcastPassedOn, &["again or after"]);
}

#[test]
fn delivering_a_late_duplicate_is_found() {
    find(CoreBug::LateDuplicatePassedOn, &[]);
}

#[test]
fn delivering_the_echo_of_an_own_broadcast_is_found() {
    find(CoreBug::OwnEchoPassedOn, &["again"]);
}

#[test]
fn forwarding_a_received_broadcast_is_found() {
    find_between(ClusterFlaw::BroadcastRepeated, &["again"]);
}

#[test]
fn keys_that_only_other_nodes_have_are_found_missing() {
    find_between(ClusterFlaw::KeysNotGathered, &["has None as the newest of key"]);
}

#[test]
fn a_subscribe_reply_before_other_nodes_forward_broadcasts_is_found() {
    find(CoreBug::FollowNotConfirmed, &["did not receive broadcast"]);
}

#[test]
fn an_undetected_truncation_is_found() {
    find(CoreBug::TruncationNotNoticed, &["lost position"]);
}

#[test]
fn an_undetected_hole_is_found() {
    find(CoreBug::HoleNotNoticed, &[]);
}

#[test]
fn a_damaged_message_taken_for_whole_is_found() {
    find(CoreBug::DamagedMessageTaken, &["3506"]);
}

#[test]
fn not_asking_other_nodes_for_keys_is_found() {
    find(CoreBug::KeysNotAsked, &["publications with the key"]);
}

#[test]
fn rejecting_a_position_ahead_of_this_node_is_found() {
    find(CoreBug::PositionAheadRefused, &[]);
}

#[test]
fn keeping_a_partitioned_connection_is_found() {
    find(CoreBug::SilenceBorne, &[]);
}

#[test]
fn not_counting_a_shared_read_is_found() {
    find(CoreBug::SharedReadNotCounted, &[]);
}

#[test]
fn a_survey_that_waits_for_a_silent_node_is_found() {
    find(CoreBug::SilentNodeAwaited, &["does not end by its deadline"]);
}

#[test]
fn an_unmarked_partial_survey_is_found() {
    find(CoreBug::MissingAnswerNotNamed, &[]);
}

#[test]
fn trusting_an_incomplete_window_of_another_node_is_found() {
    find(CoreBug::ShortWindowBelieved, &[]);
}

#[test]
fn counting_a_silent_node_as_live_is_found() {
    // Another kind of failure is that subscriptions wait for its reply.
    find_as(CoreBug::SilentNodeKept, "are live for it");
}

#[test]
fn counting_sessions_of_a_lost_node_is_found() {
    find(CoreBug::UsersOfLostNodeKept, &["is rejected at rest"]);
}

#[test]
fn taking_a_lease_while_the_stream_stores_nothing_is_found() {
    find(CoreBug::LeaseTakenFromSilentStream, &["its renewals are delivered"]);
}

#[test]
fn ignoring_a_rejected_renewal_is_found() {
    find(CoreBug::RefusedRenewalNotRead, &["its renewals are delivered"]);
}
