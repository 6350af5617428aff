//! Checks that the simulator finds bugs of the server that it plays: between shards, in the log and in room threads, and that the
//! same seeds pass without them. Bugs inside of the engine and of the cluster are in `mutants.rs`.

mod find;

use dunlin_sim::{
    KeptFlaw, LogFlaw, NodeFlaw, RunOutcome, SeatFlaw, run, run_kept, run_log_flawed, run_logged, run_node_flawed,
    run_seated,
};

/// Number of seeds within which each bug must be found. All of them pass without a bug.
const SEEDS_MAX: u64 = 200;

#[test]
fn losing_the_first_recovered_publication_is_found() {
    find_in_node(NodeFlaw::RecoveryLosesFirst, &["recovered from", "recovered [", "the subscriber at", ", without "]);
}

#[test]
fn a_leaked_subscription_at_the_owner_is_found() {
    find_in_node(
        NodeFlaw::LateAnswerLeaks,
        &["channels {", "present {", "encodes and deliveries", "still holds", "players", "seats are"],
    );
}

#[test]
fn a_missing_newest_publication_of_a_key_is_found() {
    find_in_node(NodeFlaw::KeyMissing, &["but the reply lacks it"]);
}

#[test]
fn a_frame_cut_off_by_the_close_frame_is_found() {
    find_in_node(NodeFlaw::SlowCloseCutsFrame, &[]);
}

#[test]
fn dropping_an_idempotency_key_early_is_found() {
    find_in_node(NodeFlaw::OneKeyRemembered, &["published before: Some"]);
}

#[test]
fn listing_a_connecting_session_twice_is_found() {
    find_in_node(NodeFlaw::ListedTwice, &["is listed twice"]);
}

#[test]
fn sharing_a_recovery_reply_with_another_position_is_found() {
    find_in_node(NodeFlaw::AnswerOfAnother, &["recovered from", "recovered ["]);
}

/// Checks that a node without a log finds `flaw` with one of `texts`, if there are any.
fn find_in_node(flaw: NodeFlaw, texts: &[&str]) {
    let is_expected = |failure: &String| texts.is_empty() || texts.iter().any(|text| failure.contains(text));
    find::find(flaw, SEEDS_MAX, texts, |seed, has_flaw| {
        if !has_flaw {
            return run(seed, false);
        }
        // In other seeds, another check may be the first that fails.
        let outcome = run_node_flawed(seed, flaw);
        RunOutcome { failure: outcome.failure.filter(is_expected), ..outcome }
    });
}

/// Checks that a world with a log finds `flaw` with one of `texts`.
fn find_in_log(flaw: LogFlaw, texts: &[&str]) {
    let is_expected = |failure: &String| texts.iter().any(|text| failure.contains(text));
    find::find(flaw, SEEDS_MAX, texts, |seed, has_flaw| {
        if !has_flaw {
            return run_logged(seed, false);
        }
        // In other seeds, another check may be the first that fails.
        let outcome = run_log_flawed(seed, flaw);
        RunOutcome { failure: outcome.failure.filter(is_expected), ..outcome }
    });
}

#[test]
fn acknowledging_before_the_commit_is_found() {
    find_in_log(LogFlaw::CommitsWhenProposed, &["acknowledged"]);
}

#[test]
fn delivering_before_the_commit_is_found() {
    find_in_log(LogFlaw::CommitsClientsWhenProposed, &["is received, but", "is not in the reply"]);
}

#[test]
fn a_cut_page_that_is_taken_as_the_whole_is_found() {
    find_in_log(LogFlaw::CutPageIsWhole, &["which is a gap", "the history has a gap"]);
}

#[test]
fn a_parked_subscription_that_misses_publications_is_found() {
    find_in_log(LogFlaw::MissesWhileLoading, &[", but Some(", ", without ", "is missing in the history"]);
}

#[test]
fn an_owner_that_does_not_know_the_newest_publication_is_found() {
    find_in_log(LogFlaw::PageLacksNewest, &["is stored, but"]);
}

#[test]
fn keys_of_the_first_page_only_are_found() {
    find_in_log(LogFlaw::CutPageIsWhole, &["the newest of key", "is sent as the newest of its key"]);
}

/// Checks that a world with a stored room finds `flaw`.
fn find_kept(flaw: KeptFlaw, texts: &[&str]) {
    find::find(flaw, SEEDS_MAX, texts, |seed, has_flaw| run_kept(seed, false, has_flaw.then_some(flaw)));
}

#[test]
fn sending_a_tick_before_it_is_logged_is_found() {
    find_kept(KeptFlaw::ShowsUnlogged, &["was received, but"]);
}

#[test]
fn losing_players_when_the_node_stops_is_found() {
    find_kept(KeptFlaw::StopsWithoutDrain, &["resumes with", "left while the node stopped"]);
}

#[test]
fn restoring_a_room_without_its_log_is_found() {
    find_kept(KeptFlaw::ForgetsLog, &["continues after tick"]);
}

#[test]
fn losing_players_with_their_connections_in_a_stored_room_is_found() {
    find_kept(KeptFlaw::LosesSeats, &["leaves with its connection"]);
}

#[test]
fn a_seat_that_expires_one_tick_late_is_found() {
    find_kept(KeptFlaw::GraceIsLonger, &["the players are"]);
}

#[test]
fn players_that_never_expire_after_a_restart_are_found() {
    find_kept(
        KeptFlaw::RestoresClients,
        &["the room has", "had seat None, but leaves", "the players are", "gets PlayerId"],
    );
}

/// Checks that a node with rooms finds `flaw`.
fn find_seated(flaw: SeatFlaw, texts: &[&str]) {
    let run = |seed, has_flaw| if has_flaw { run_seated(seed, flaw) } else { run(seed, false) };
    find::find(flaw, SEEDS_MAX, texts, run);
}

#[test]
fn losing_players_with_their_connections_is_found() {
    find_seated(SeatFlaw::LeavesAtOnce, &["leaves with its connection"]);
}

#[test]
fn a_grace_period_that_is_one_tick_too_long_is_found() {
    find_seated(SeatFlaw::StaysLonger, &["the players are"]);
}

#[test]
fn delivering_an_event_to_other_players_is_found() {
    find_seated(SeatFlaw::EventReachesAll, &["receives"]);
}

#[test]
fn sending_an_input_twice_when_a_room_has_moved_is_found() {
    // Few seeds have rooms that move.
    let run = |seed, has_flaw| if has_flaw { run_seated(seed, SeatFlaw::ForgetsLastInput) } else { run(seed, false) };
    find::find(SeatFlaw::ForgetsLastInput, 1_000, &["must not be applied", "view, ack and avatar are"], run);
}

#[test]
fn a_grace_period_that_is_one_tick_too_short_is_found() {
    find_seated(SeatFlaw::LeavesEarly, &["the players are"]);
}
