//! Checks that the simulator finds bugs inside of the engine and of the cluster's core, and that the same seeds pass without them.
//!
//! `make mutants` compiles this file in a copy of the sources with the bugs of `mutants.txt`.

mod find;

use dunlin_engine::mutants::plant;
use dunlin_sim::{RunOutcome, run, run_clustered};

/// Number of seeds within which each bug must be found. All of them pass without a bug.
const NODE_SEEDS_MAX: u64 = 1_000;
const CLUSTER_SEEDS_MAX: u64 = 1_500;

/// A delta did not apply to the data of its client.
const PATCH_FAILURES: [&str; 2] = ["a patch yields", "a copy beyond the end of the source"];

/// Runs a seed with the bug or without it.
fn with(bug: &'static str, has_bug: bool, run: impl Fn() -> RunOutcome) -> RunOutcome {
    plant(if has_bug { bug } else { "" });
    run()
}

/// Checks that a node without a log finds `bug`.
fn find_in_node(bug: &'static str, texts: &[&str]) {
    find::find(bug, NODE_SEEDS_MAX, texts, |seed, has_bug| with(bug, has_bug, || run(seed, false)));
}

/// Checks that a cluster finds `bug`.
fn find_in_cluster(bug: &'static str, texts: &[&str]) {
    find::find(bug, CLUSTER_SEEDS_MAX, texts, |seed, has_bug| with(bug, has_bug, || run_clustered(seed, false)));
}

/// Checks that a seed finds `bug` with a failure that contains `text`, for bugs with several kinds of failures.
fn find_in_cluster_as(bug: &'static str, text: &str) {
    find::find(bug, CLUSTER_SEEDS_MAX, &[text], |seed, has_bug| {
        let outcome = with(bug, has_bug, || run_clustered(seed, false));
        let failure = outcome.failure.filter(|failure| !has_bug || failure.contains(text));
        RunOutcome { failure, ..outcome }
    });
}

#[test]
fn keeping_the_older_publication_in_the_latest_lane_is_found() {
    find_in_node("LatestKeepsOlder", &["skipped before", "the newest is"]);
}

#[test]
fn a_snapshot_with_an_unwritten_base_is_found() {
    find_in_node("BaseSetWhenOffered", &["builds on a tick that is not here", "is seen as"]);
}

#[test]
fn sending_inputs_twice_when_a_room_has_moved_is_found() {
    find_in_node("InputsSentTwice", &["must not be applied"]);
}

#[test]
fn losing_inputs_while_a_room_moves_is_found() {
    find_in_node("HeldInputsLost", &["an accepted input is lost"]);
}

#[test]
fn a_session_that_stays_listed_without_its_snapshot_is_found() {
    find_in_node("MovedSessionStaysListed", &["is at tick", "listed: false"]);
}

#[test]
fn a_connect_reply_before_all_owners_replied_is_found() {
    find_in_node("ConnectAnsweredEarly", &["the connect reply lacks", "error 106"]);
}

#[test]
fn a_delta_on_a_filtered_publication_is_found() {
    find_in_node("FilteredGetsPatch", &PATCH_FAILURES);
}

#[test]
fn a_delta_on_a_publication_before_the_last_is_found() {
    find_in_node("PatchOverUnkept", &PATCH_FAILURES);
}

#[test]
fn a_recovery_without_pacing_is_found() {
    find_in_node("RepliesAreNotPaced", &["were closed as slow, but only", "was closed with Some(3008)"]);
}

#[test]
fn a_missing_schema_is_found() {
    find_in_node("SchemaNotSent", &["the snapshot is malformed", "asked for fields"]);
}

#[test]
fn a_missing_keyframe_for_the_names_of_fields_is_found() {
    find_in_node("NamesNeedNoKeyframe", &["fields are due", "is seen as"]);
}

#[test]
fn a_join_that_asks_on_for_nobody_is_found() {
    find_in_node("AbandonedJoinAsksOn", &["for which nobody waits"]);
}

#[test]
fn a_join_that_is_run_for_nobody_is_found() {
    find_in_node("AbandonedJoinIsRun", &["is run, whose session has ended"]);
}

#[test]
fn a_promise_of_a_room_that_is_not_kept_is_found() {
    find_in_node("PromiseNotKept", &["which is promised to another node"]);
}

#[test]
fn a_join_that_does_not_wait_for_its_room_is_found() {
    find_in_node("JoinDoesNotWait", &["is given up at"]);
}

#[test]
fn attaching_without_a_fence_is_found() {
    find_in_cluster("AttachWithoutFence", &[]);
}

#[test]
fn an_undetected_gap_is_found() {
    find_in_cluster("GapNotNoticed", &[]);
}

#[test]
fn a_missing_audit_of_the_tail_is_found() {
    find_in_cluster("TailNotAudited", &["at rest"]);
}

#[test]
fn a_count_rule_off_by_one_is_found() {
    find_in_cluster("CountRuleOffByOne", &[]);
}

#[test]
fn trusting_a_stale_replica_is_found() {
    find_in_cluster("StaleReplicaBelieved", &[]);
}

#[test]
fn waiting_for_a_stream_that_is_gone_is_found() {
    find_in_cluster("AbsentStreamIgnored", &["at rest"]);
}

#[test]
fn delivering_a_late_broadcast_is_found() {
    find_in_cluster("LateBroadcastPassedOn", &["again or after"]);
}

#[test]
fn delivering_a_late_duplicate_is_found() {
    find_in_cluster("LateDuplicatePassedOn", &[]);
}

#[test]
fn delivering_the_echo_of_an_own_broadcast_is_found() {
    find_in_cluster("OwnEchoPassedOn", &["again"]);
}

#[test]
fn a_subscribe_reply_before_other_nodes_forward_broadcasts_is_found() {
    find_in_cluster("FollowNotConfirmed", &["did not receive broadcast"]);
}

#[test]
fn an_undetected_truncation_is_found() {
    find_in_cluster("TruncationNotNoticed", &["lost position"]);
}

#[test]
fn an_undetected_hole_is_found() {
    find_in_cluster("HoleNotNoticed", &[]);
}

#[test]
fn a_damaged_message_taken_for_whole_is_found() {
    find_in_cluster("DamagedMessageTaken", &["3506"]);
}

#[test]
fn not_asking_other_nodes_for_keys_is_found() {
    find_in_cluster("KeysNotAsked", &["publications with the key"]);
}

#[test]
fn rejecting_a_position_ahead_of_this_node_is_found() {
    find_in_cluster("PositionAheadRefused", &[]);
}

#[test]
fn keeping_a_partitioned_connection_is_found() {
    find_in_cluster("SilenceBorne", &[]);
}

#[test]
fn not_counting_a_shared_read_is_found() {
    find_in_cluster("SharedReadNotCounted", &[]);
}

#[test]
fn a_survey_that_waits_for_a_silent_node_is_found() {
    find_in_cluster("SilentNodeAwaited", &["does not end by its deadline"]);
}

#[test]
fn an_unmarked_partial_survey_is_found() {
    find_in_cluster("MissingAnswerNotNamed", &[]);
}

#[test]
fn trusting_an_incomplete_window_of_another_node_is_found() {
    find_in_cluster("ShortWindowBelieved", &[]);
}

#[test]
fn counting_a_silent_node_as_live_is_found() {
    // Another kind of failure is that subscriptions wait for its reply.
    find_in_cluster_as("SilentNodeKept", "are live for it");
}

#[test]
fn counting_sessions_of_a_lost_node_is_found() {
    find_in_cluster("UsersOfLostNodeKept", &["is rejected at rest"]);
}

#[test]
fn taking_a_lease_while_the_stream_stores_nothing_is_found() {
    find_in_cluster("LeaseTakenFromSilentStream", &["its renewals are delivered"]);
}

#[test]
fn ignoring_a_rejected_renewal_is_found() {
    find_in_cluster("RefusedRenewalNotRead", &["its renewals are delivered"]);
}
