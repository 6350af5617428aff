//! Checks that the simulator finds bugs that are planted in the engine, and that the same seeds pass without them.

use dunlin_engine::planted::Bug;
use dunlin_sim::{KeptFlaw, SeatFlaw, run, run_kept, run_logged, run_seated};

/// Number of seeds within which each bug must be found. All of them pass without a bug.
const SEEDS_MAX: u64 = 200;

/// The first seed that finds `bug`, and its failure.
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
fn losing_the_first_recovered_publication_is_found() {
    let (_, failure) = find(Bug::RecoveryLosesFirst);
    let texts = ["recovered from", "recovered [", "the subscriber at", ", without "];
    assert!(texts.iter().any(|text| failure.contains(text)), "{failure}");
}

#[test]
fn a_leaked_subscription_at_the_owner_is_found() {
    let (_, failure) = find(Bug::LateAnswerLeaks);
    let texts = ["channels {", "present {", "encodes and deliveries", "still holds", "players", "seats are"];
    assert!(texts.iter().any(|text| failure.contains(text)), "{failure}");
}

#[test]
fn keeping_the_older_publication_in_the_latest_lane_is_found() {
    let (_, failure) = find(Bug::LatestKeepsOlder);
    assert!(failure.contains("skipped before") || failure.contains("the newest is"), "{failure}");
}

#[test]
fn a_missing_newest_publication_of_a_key_is_found() {
    let (_, failure) = find(Bug::KeyMissing);
    assert!(failure.contains("but the reply lacks it"), "{failure}");
}

#[test]
fn a_frame_cut_off_by_the_close_frame_is_found() {
    find(Bug::SlowCloseCutsFrame);
}

#[test]
fn a_snapshot_with_an_unwritten_base_is_found() {
    let (_, failure) = find(Bug::BaseSetWhenOffered);
    assert!(failure.contains("builds on a tick that is not here") || failure.contains("is seen as"), "{failure}");
}

#[test]
fn delivering_an_event_to_other_players_is_found() {
    let (_, failure) = find(Bug::EventReachesAll);
    assert!(failure.contains("receives"), "{failure}");
}

#[test]
fn a_connect_reply_before_all_owners_replied_is_found() {
    let (_, failure) = find(Bug::ConnectAnsweredEarly);
    assert!(failure.contains("the connect reply lacks") || failure.contains("error 106"), "{failure}");
}

/// Whether a delta did not apply to the data of its client.
fn is_about_a_patch(failure: &str) -> bool {
    failure.contains("a patch yields") || failure.contains("a copy beyond the end of the source")
}

#[test]
fn a_delta_on_a_filtered_publication_is_found() {
    let (_, failure) = find(Bug::FilteredGetsPatch);
    assert!(is_about_a_patch(&failure), "{failure}");
}

#[test]
fn a_delta_on_a_publication_before_the_last_is_found() {
    let (_, failure) = find(Bug::PatchOverUnkept);
    assert!(is_about_a_patch(&failure), "{failure}");
}

#[test]
fn dropping_an_idempotency_key_early_is_found() {
    let (_, failure) = find(Bug::OneKeyRemembered);
    assert!(failure.contains("published before: Some"), "{failure}");
}

#[test]
fn listing_a_connecting_session_twice_is_found() {
    let (_, failure) = find(Bug::CorkedIsListedTwice);
    assert!(failure.contains("is listed twice"), "{failure}");
}

#[test]
fn a_recovery_without_pacing_is_found() {
    let (_, failure) = find(Bug::RepliesAreNotPaced);
    let texts = ["were closed as slow, but only", "was closed with Some(3008)"];
    assert!(texts.iter().any(|text| failure.contains(text)), "{failure}");
}

#[test]
fn sharing_a_recovery_reply_with_another_position_is_found() {
    let (_, failure) = find(Bug::AnswerOfAnother);
    assert!(failure.contains("recovered from") || failure.contains("recovered ["), "{failure}");
}

/// The failure of the first seed of a world with a log that finds `bug`.
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
fn acknowledging_before_the_commit_is_found() {
    let failure = find_logged(Bug::AcknowledgedBeforeCommit);
    assert!(failure.contains("acknowledged"), "{failure}");
}

#[test]
fn delivering_before_the_commit_is_found() {
    let failure = find_logged(Bug::DeliveredBeforeCommit);
    let texts = ["is received, but", "is not in the reply"];
    assert!(texts.iter().any(|text| failure.contains(text)), "{failure}");
}

#[test]
fn a_cut_page_that_is_taken_as_the_whole_is_found() {
    let failure = find_logged(Bug::CutPageTakenAsWhole);
    assert!(failure.contains("is missing in the history"), "{failure}");
}

#[test]
fn a_parked_subscription_that_misses_publications_is_found() {
    let failure = find_logged(Bug::ParkedMissesMeanwhile);
    let texts = ["is committed", "without", "is missing in the history"];
    assert!(texts.iter().any(|text| failure.contains(text)), "{failure}");
}

#[test]
fn keys_of_the_first_page_only_are_found() {
    let failure = find_logged(Bug::KeysOfFirstPage);
    let texts = ["the newest of key", "is sent as the newest of its key"];
    assert!(texts.iter().any(|text| failure.contains(text)), "{failure}");
}

/// The failure of the first seed of a world with a stored room that finds `flaw`.
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
fn sending_a_tick_before_it_is_logged_is_found() {
    let failure = find_kept(KeptFlaw::ShowsUnlogged);
    assert!(failure.contains("was received, but"), "{failure}");
}

#[test]
fn losing_players_when_the_node_stops_is_found() {
    let failure = find_kept(KeptFlaw::StopsWithoutDrain);
    assert!(failure.contains("resumes with") || failure.contains("left while the node stopped"), "{failure}");
}

#[test]
fn restoring_a_room_without_its_log_is_found() {
    let failure = find_kept(KeptFlaw::ForgetsLog);
    assert!(failure.contains("continues after tick"), "{failure}");
}

#[test]
fn losing_players_with_their_connections_in_a_stored_room_is_found() {
    let failure = find_kept(KeptFlaw::LosesSeats);
    assert!(failure.contains("leaves with its connection"), "{failure}");
}

#[test]
fn a_seat_that_expires_one_tick_late_is_found() {
    let failure = find_kept(KeptFlaw::GraceIsLonger);
    assert!(failure.contains("the players are"), "{failure}");
}

#[test]
fn players_that_never_expire_after_a_restart_are_found() {
    let failure = find_kept(KeptFlaw::RestoresClients);
    let texts = ["the room has", "the players are", "gets PlayerId"];
    assert!(texts.iter().any(|text| failure.contains(text)), "{failure}");
}

/// The failure of the first seed of a node with rooms that finds `flaw`.
fn find_seated(flaw: SeatFlaw) -> String {
    let found = (0..SEEDS_MAX).find_map(|seed| Some((seed, run_seated(seed, flaw).failure?)));
    let (seed, failure) = found.unwrap_or_else(|| panic!("{flaw:?} is not found within {SEEDS_MAX} seeds"));
    println!("{flaw:?} is found by seed {seed}: {failure}");
    assert_eq!(run(seed, false, &|_| {}).failure, None, "seed {seed} fails without {flaw:?} as well");
    failure
}

#[test]
fn losing_players_with_their_connections_is_found() {
    let failure = find_seated(SeatFlaw::LeavesAtOnce);
    assert!(failure.contains("leaves with its connection"), "{failure}");
}

#[test]
fn a_grace_period_that_is_one_tick_too_long_is_found() {
    let failure = find_seated(SeatFlaw::StaysLonger);
    assert!(failure.contains("the players are"), "{failure}");
}

#[test]
fn a_grace_period_that_is_one_tick_too_short_is_found() {
    let failure = find_seated(SeatFlaw::LeavesEarly);
    assert!(failure.contains("the players are"), "{failure}");
}
