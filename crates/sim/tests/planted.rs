//! Mistakes that are planted in the engine are found: the checkers can fail. That the same seeds pass without them is what
//! `tests/seeds.rs` shows.

use dunlin_engine::planted::Bug;
use dunlin_sim::run;

/// Seeds within which each mistake must be found. All of them pass without one.
const SEEDS_MAX: u64 = 200;

/// The first seed that finds `bug`, and what it says.
fn find(bug: Bug) -> (u64, String) {
    let found = (0..SEEDS_MAX).find_map(|seed| {
        let failure = run(seed, false, &|shard| shard.plant(bug)).failure?;
        Some((seed, failure))
    });
    let (seed, failure) = found.unwrap_or_else(|| panic!("{bug:?} is not found within {SEEDS_MAX} seeds"));
    println!("{bug:?} is found by seed {seed}: {failure}");
    assert_eq!(run(seed, false, &|_| {}).failure, None, "seed {seed} fails without {bug:?} as well");
    (seed, failure)
}

#[test]
fn a_recovery_that_loses_its_first_publication_is_found() {
    let (_, failure) = find(Bug::RecoveryLosesFirst);
    assert!(failure.contains("recovered from") || failure.contains("recovered ["), "{failure}");
}

#[test]
fn a_subscription_left_behind_at_the_owner_is_found() {
    let (_, failure) = find(Bug::LateAnswerLeaks);
    let places = ["channels {", "present {", "encodes and deliveries", "still holds", "players", "seats are"];
    assert!(places.iter().any(|place| failure.contains(place)), "{failure}");
}

#[test]
fn a_latest_lane_that_keeps_the_older_publication_is_found() {
    let (_, failure) = find(Bug::LatestKeepsOlder);
    assert!(failure.contains("skipped before") || failure.contains("the newest is"), "{failure}");
}

#[test]
fn a_frame_cut_off_by_the_close_frame_is_found() {
    find(Bug::SlowCloseCutsFrame);
}

#[test]
fn a_snapshot_that_builds_on_one_that_was_never_written_is_found() {
    let (_, failure) = find(Bug::BaseSetWhenOffered);
    assert!(failure.contains("builds on a tick that is not here") || failure.contains("is seen as"), "{failure}");
}

#[test]
fn an_event_for_others_is_found() {
    let (_, failure) = find(Bug::EventReachesAll);
    assert!(failure.contains("is told"), "{failure}");
}

#[test]
fn a_connect_that_is_answered_before_all_owners_are_is_found() {
    let (_, failure) = find(Bug::ConnectAnsweredEarly);
    assert!(failure.contains("connect is answered without") || failure.contains("error 106"), "{failure}");
}

/// Whether a patch did not fit what its client had.
fn is_about_a_patch(failure: &str) -> bool {
    failure.contains("a patch makes") || failure.contains("a copy of what is not there")
}

#[test]
fn a_patch_of_what_a_filter_left_out_is_found() {
    let (_, failure) = find(Bug::FilteredGetsPatch);
    assert!(is_about_a_patch(&failure), "{failure}");
}

#[test]
fn a_patch_of_what_came_before_the_last_publication_is_found() {
    let (_, failure) = find(Bug::PatchOverUnkept);
    assert!(is_about_a_patch(&failure), "{failure}");
}

#[test]
fn an_idempotency_key_forgotten_early_is_found() {
    let (_, failure) = find(Bug::OneKeyRemembered);
    assert!(failure.contains("before: Some"), "{failure}");
}

#[test]
fn a_recovery_answered_as_another_is_found() {
    let (_, failure) = find(Bug::AnswerOfAnother);
    assert!(failure.contains("recovered from"), "{failure}");
}
