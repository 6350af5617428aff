//! Mistakes that are planted in the engine are found: the checkers can fail. That the same seeds pass without them is what
//! `tests/seeds.rs` shows.

use dunlin_engine::planted::Bug;
use dunlin_sim::{KeptFlaw, SeatFlaw, run, run_kept, run_logged, run_seated};

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
    let words = ["recovered from", "recovered [", "the subscriber at", ", without "];
    assert!(words.iter().any(|word| failure.contains(word)), "{failure}");
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
fn a_subscription_without_the_newest_of_a_key_is_found() {
    let (_, failure) = find(Bug::KeyMissing);
    assert!(failure.contains("and the answer lacks it"), "{failure}");
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
    assert!(failure.contains("receives"), "{failure}");
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
fn a_session_that_is_listed_twice_while_it_connects_is_found() {
    let (_, failure) = find(Bug::CorkedIsListedTwice);
    assert!(failure.contains("is listed twice"), "{failure}");
}

#[test]
fn a_recovery_that_is_not_paced_is_found() {
    let (_, failure) = find(Bug::RepliesAreNotPaced);
    let words = ["were closed as slow, of which", "was closed with Some(3008)"];
    assert!(words.iter().any(|word| failure.contains(word)), "{failure}");
}

#[test]
fn a_recovery_answered_as_another_is_found() {
    let (_, failure) = find(Bug::AnswerOfAnother);
    assert!(failure.contains("recovered from") || failure.contains("recovered ["), "{failure}");
}

/// The first seed of a world with a log that finds `bug`, and what it says.
fn find_logged(bug: Bug) -> String {
    let found = (0..SEEDS_MAX).find_map(|seed| {
        let failure = run_logged(seed, false, &|shard| shard.plant(bug)).failure?;
        Some((seed, failure))
    });
    let (seed, failure) = found.unwrap_or_else(|| panic!("{bug:?} is not found within {SEEDS_MAX} seeds"));
    println!("{bug:?} is found by seed {seed}: {failure}");
    assert_eq!(run_logged(seed, false, &|_| {}).failure, None, "seed {seed} fails without {bug:?} as well");
    failure
}

#[test]
fn a_publication_acknowledged_before_it_is_committed_is_found() {
    let failure = find_logged(Bug::AcknowledgedBeforeCommit);
    assert!(failure.contains("acknowledged"), "{failure}");
}

#[test]
fn a_publication_delivered_before_it_is_committed_is_found() {
    let failure = find_logged(Bug::DeliveredBeforeCommit);
    assert!(failure.contains("is seen, and"), "{failure}");
}

#[test]
fn a_second_publication_with_a_key_that_is_on_its_way_is_found() {
    let failure = find_logged(Bug::PendingKeyPasses);
    assert!(failure.contains("publications with the key"), "{failure}");
}

#[test]
fn a_key_that_is_used_again_after_a_crash_is_found() {
    let failure = find_logged(Bug::KeysNotRestored);
    assert!(failure.contains("publications with the key") && !failure.contains(" 0 crashes later"), "{failure}");
}

#[test]
fn a_parked_subscription_that_misses_what_came_meanwhile_is_found() {
    let failure = find_logged(Bug::ParkedMissesMeanwhile);
    assert!(failure.contains("is committed") || failure.contains("without"), "{failure}");
}

/// The first seed of a world with a kept room that finds `flaw`, and what it says.
fn find_kept(flaw: KeptFlaw) -> String {
    let found = (0..SEEDS_MAX).find_map(|seed| {
        let failure = run_kept(seed, false, &|_| {}, Some(flaw)).failure?;
        Some((seed, failure))
    });
    let (seed, failure) = found.unwrap_or_else(|| panic!("{flaw:?} is not found within {SEEDS_MAX} seeds"));
    println!("{flaw:?} is found by seed {seed}: {failure}");
    assert_eq!(run_kept(seed, false, &|_| {}, None).failure, None, "seed {seed} fails without {flaw:?} as well");
    failure
}

#[test]
fn a_tick_that_is_shown_before_it_is_logged_is_found() {
    let failure = find_kept(KeptFlaw::ShowsUnlogged);
    assert!(failure.contains("was seen, and"), "{failure}");
}

#[test]
fn players_who_leave_because_the_node_stops_are_found() {
    let failure = find_kept(KeptFlaw::StopsWithoutDrain);
    assert!(failure.contains("comes back to") || failure.contains("left while the node stopped"), "{failure}");
}

#[test]
fn a_room_that_goes_on_without_its_log_is_found() {
    let failure = find_kept(KeptFlaw::ForgetsLog);
    assert!(failure.contains("goes on behind tick"), "{failure}");
}

#[test]
fn players_who_leave_with_their_connections_are_found() {
    let failure = find_kept(KeptFlaw::LosesSeats);
    assert!(failure.contains("leaves with its connection"), "{failure}");
}

#[test]
fn a_seat_that_expires_one_tick_late_is_found() {
    let failure = find_kept(KeptFlaw::GraceIsLonger);
    assert!(failure.contains("the players are"), "{failure}");
}

#[test]
fn players_who_never_expire_after_a_restart_are_found() {
    let failure = find_kept(KeptFlaw::RestoresClients);
    let words = ["the room has", "the players are", "gets PlayerId"];
    assert!(words.iter().any(|word| failure.contains(word)), "{failure}");
}

/// The first seed of a node with rooms that finds `flaw`, and what it says.
fn find_seated(flaw: SeatFlaw) -> String {
    let found = (0..SEEDS_MAX).find_map(|seed| Some((seed, run_seated(seed, flaw).failure?)));
    let (seed, failure) = found.unwrap_or_else(|| panic!("{flaw:?} is not found within {SEEDS_MAX} seeds"));
    println!("{flaw:?} is found by seed {seed}: {failure}");
    assert_eq!(run(seed, false, &|_| {}).failure, None, "seed {seed} fails without {flaw:?} as well");
    failure
}

#[test]
fn a_player_that_leaves_with_its_connection_is_found() {
    let failure = find_seated(SeatFlaw::LeavesAtOnce);
    assert!(failure.contains("leaves with its connection"), "{failure}");
}

#[test]
fn a_grace_that_is_one_tick_too_long_is_found() {
    let failure = find_seated(SeatFlaw::StaysLonger);
    assert!(failure.contains("the players are"), "{failure}");
}

#[test]
fn a_grace_that_is_one_tick_too_short_is_found() {
    let failure = find_seated(SeatFlaw::LeavesEarly);
    assert!(failure.contains("the players are"), "{failure}");
}
