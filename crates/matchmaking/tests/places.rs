//! Places in rooms: joining, reservations, rooms that fail.

use std::sync::Arc;

use dunlin_matchmaking::{EndReason, MatchEffect, MatchRefusal, MatchRules, OpenFailure, SkillWindow, TicketStatus};

use crate::rig::{Rig, criteria, request};

fn pairs() -> MatchRules {
    MatchRules { players_min: 2, players_max: 4, fill_wait_ms: 1_000, ..MatchRules::default() }
}

#[test]
fn a_full_room_opens_at_once_and_a_smaller_one_after_the_wait() {
    let mut rig = Rig::new(pairs());
    let full = ["a", "b", "c", "d"].map(|user| rig.ticket(&[user]));
    let rest = ["e", "f"].map(|user| rig.ticket(&[user]));
    rig.pass(0);
    assert!(full.iter().all(|id| rig.placed[id].len() == 1 && rig.placed[id] == rig.placed[&full[0]]));
    rig.pass(999);
    assert!(rest.iter().all(|id| rig.status(*id) == Some(TicketStatus::Waiting)));
    rig.pass(1);
    assert_eq!(rig.placed[&rest[0]], rig.placed[&rest[1]]);
    assert_eq!(rig.opened, 2);
    // One user alone gets no room.
    let alone = rig.ticket(&["g", "h", "i"]);
    rig.cancel(alone, None).expect("waits");
    let alone = rig.ticket(&["g"]);
    rig.players("arena:1", 4);
    rig.rooms.remove("arena:2");
    rig.report();
    rig.pass(5_000);
    assert_eq!(rig.opened, 3, "the tickets of the closed room got a new one, with a place for the single user");
    assert_eq!(rig.placed[&alone], rig.placed[&rest[0]][1..]);
}

#[test]
fn open_rooms_are_filled_before_new_ones_open() {
    let mut rig = Rig::new(pairs());
    for user in ["a", "b", "c"] {
        rig.ticket(&[user]);
    }
    rig.pass(1_000);
    rig.players("arena:1", 3);
    // A party of two does not fit; the single user behind it does, though it is younger.
    let (party, single) = (rig.ticket(&["d", "e"]), rig.ticket(&["f"]));
    rig.pass(0);
    assert_eq!(rig.placed[&single], ["arena:1".into()]);
    assert_eq!(rig.status(party), Some(TicketStatus::Waiting));
    rig.pass(1_000);
    assert_eq!(rig.placed[&party], ["arena:2".into()]);
    // Reserved places are not given away, and players who leave make room.
    let late = rig.ticket(&["g"]);
    rig.players("arena:1", 4);
    rig.players("arena:1", 3);
    rig.pass(0);
    assert_eq!(rig.placed[&late], ["arena:1".into()]);
}

#[test]
fn only_new_players_use_reserved_places() {
    let mut rig = Rig::new(pairs());
    let first = ["a", "b", "c"].map(|user| rig.ticket(&[user]));
    rig.pass(1_000);
    rig.players("arena:1", 2);
    let joined =
        |rig: &Rig| first.iter().filter(|id| matches!(rig.status(**id), Some(TicketStatus::Joined(_)))).count();
    assert_eq!(joined(&rig), 2);
    // A player leaves and another, who had no ticket, was there before: nobody new has come.
    *rig.rooms.get_mut("arena:1").expect("open") = 1;
    rig.report();
    *rig.rooms.get_mut("arena:1").expect("open") = 2;
    rig.report();
    assert_eq!(joined(&rig), 2);
    // The room has 4 places: 2 players and the reserved one leave 1.
    let late = ["d", "e"].map(|user| rig.ticket(&[user]));
    rig.pass(0);
    assert_eq!(rig.placed[&late[0]], ["arena:1".into()]);
    assert_eq!(rig.status(late[1]), Some(TicketStatus::Waiting));
    rig.players("arena:1", 4);
    assert_eq!(joined(&rig), 3);
}

#[test]
fn places_that_are_used_before_the_room_is_announced_end_the_wait() {
    let mut rig = Rig::new(pairs());
    let tickets = ["a", "b"].map(|user| rig.ticket(&[user]));
    let mut effects = Vec::new();
    rig.matchmaker.place(rig.now_ms + 1_000, &mut effects);
    let [MatchEffect::OpenRoom { room, channel, .. }] = &effects[..] else { panic!("{effects:?}") };
    // Others have joined the room, and its report overtakes the answer that it is open.
    rig.rooms.insert(Arc::clone(channel), 0);
    rig.players(channel, 2);
    assert!(tickets.iter().all(|id| matches!(rig.status(*id), Some(TicketStatus::Joined(_)))));
    rig.matchmaker.on_room_opened(rig.now_ms, *room, &mut Vec::new());
    assert_eq!(rig.matchmaker.gauges().pending, 0, "they would count towards the limit of tickets for ever");
}

#[test]
fn rooms_and_tickets_with_different_criteria_stay_apart() {
    let mut rig = Rig::new(pairs());
    let mut with = |user, mode| {
        let mut request = request(&[user]);
        request.criteria = criteria(&[("mode", mode)]);
        rig.submit(request).expect("accepted")
    };
    let tickets = [with("a", "duel"), with("b", "team"), with("c", "duel"), with("d", "team"), with("e", "other")];
    rig.pass(1_000);
    assert_eq!(rig.placed[&tickets[0]], rig.placed[&tickets[2]]);
    assert_eq!(rig.placed[&tickets[1]], rig.placed[&tickets[3]]);
    assert_ne!(rig.placed[&tickets[0]], rig.placed[&tickets[1]]);
    assert_eq!(rig.status(tickets[4]), Some(TicketStatus::Waiting));
}

#[test]
fn the_skill_window_widens() {
    let rules = MatchRules { skill: SkillWindow { width: 100, growth_per_s: 100, width_max: 0 }, ..pairs() };
    let mut rig = Rig::new(rules);
    let mut with = |user, skill| {
        let mut request = request(&[user]);
        request.skill = skill;
        rig.submit(request).expect("accepted")
    };
    let tickets = [with("a", 1_000), with("b", 1_300), with("c", 1_700)];
    rig.pass(1_999);
    assert!(rig.placed.is_empty());
    // The window of the first reaches the second, and not the third.
    rig.pass(1);
    assert_eq!(rig.placed[&tickets[0]], rig.placed[&tickets[1]]);
    assert!(!rig.placed.contains_key(&tickets[2]));
    // The mean of the room is 1,150.
    rig.pass(2_499);
    assert!(!rig.placed.contains_key(&tickets[2]));
    rig.pass(1);
    assert_eq!(rig.placed[&tickets[2]], rig.placed[&tickets[0]]);
}

#[test]
fn a_region_is_ignored_after_its_wait() {
    let mut rig = Rig::new(MatchRules { region_wait_ms: 3_000, ..pairs() });
    let mut with = |user, region: &str| {
        let mut request = request(&[user]);
        request.region = Some(region.into());
        rig.submit(request).expect("accepted")
    };
    let (first, second, other) = (with("a", "eu"), with("b", "eu"), with("c", "us"));
    rig.pass(1_000);
    assert_eq!(rig.placed[&first], rig.placed[&second]);
    rig.pass(1_999);
    assert_eq!(rig.status(other), Some(TicketStatus::Waiting));
    rig.pass(1);
    assert_eq!(rig.placed[&other], rig.placed[&first]);
}

#[test]
fn unused_places_are_released() {
    let mut rig = Rig::new(MatchRules { reserve_timeout_ms: 2_000, ..pairs() });
    let tickets = ["a", "b", "c", "d"].map(|user| rig.ticket(&[user]));
    rig.pass(0);
    rig.players("arena:1", 2);
    assert_eq!(rig.status(tickets[1]), Some(TicketStatus::Joined("arena:1".into())));
    rig.pass(1_999);
    assert_eq!(rig.status(tickets[2]), Some(TicketStatus::Placed("arena:1".into())));
    assert_eq!(rig.matchmaker.gauges().reserved_places, 2);
    rig.pass(1);
    assert_eq!(rig.status(tickets[2]), Some(TicketStatus::Ended(EndReason::NotJoined)));
    assert_eq!(rig.matchmaker.gauges().reserved_places, 0);
    let next = rig.ticket(&["e", "f"]);
    rig.pass(0);
    assert_eq!(rig.placed[&next], ["arena:1".into()]);
    // The status of a ticket that is over is kept for a minute.
    rig.pass(59_998);
    assert!(rig.status(tickets[2]).is_some());
    rig.pass(2);
    assert_eq!(rig.status(tickets[2]), None);
}

#[test]
fn tickets_whose_room_closes_wait_again_and_end_after_four_failures() {
    let mut rig = Rig::new(MatchRules { players_min: 1, players_max: 1, ..pairs() });
    let ticket = rig.ticket(&["a"]);
    for failures in 1..=4 {
        rig.pass(0);
        assert_eq!(rig.placed[&ticket].len(), failures);
        rig.report();
        rig.rooms.clear();
        rig.report();
    }
    assert_eq!(rig.ended[&ticket], EndReason::RoomFailed);
    assert_eq!(rig.matchmaker.counters().rooms_failed, 4);
    rig.ticket(&["a"]);
}

#[test]
fn a_room_that_never_shows_up_in_a_report_fails() {
    let mut rig = Rig::new(MatchRules { reserve_timeout_ms: 2_000, ..pairs() });
    let ticket = rig.ticket(&["a", "b", "c", "d"]);
    rig.pass(0);
    rig.rooms.clear();
    rig.now_ms += 1_999;
    rig.report();
    assert!(matches!(rig.status(ticket), Some(TicketStatus::Placed(_))));
    rig.now_ms += 1;
    rig.report();
    assert_eq!(rig.status(ticket), Some(TicketStatus::Waiting));
}

#[test]
fn while_the_node_opens_no_rooms_tickets_wait_until_their_timeout() {
    let mut rig = Rig::new(MatchRules { ticket_timeout_ms: 10_000, ..pairs() });
    rig.opens = Err(OpenFailure::Busy);
    let ticket = rig.ticket(&["a", "b", "c", "d"]);
    for _ in 0..9 {
        rig.pass(1_000);
        assert_eq!(rig.status(ticket), Some(TicketStatus::Waiting));
    }
    rig.pass(1_000);
    assert_eq!(rig.ended[&ticket], EndReason::TimedOut);
    // A room that can never be opened ends its ticket sooner.
    rig.opens = Err(OpenFailure::Failed);
    let ticket = rig.ticket(&["a", "b", "c", "d"]);
    (0..4).for_each(|_| rig.pass(1_000));
    assert_eq!(rig.ended[&ticket], EndReason::RoomFailed);
}

#[test]
fn the_queue_is_bounded() {
    let mut rig = Rig::new(MatchRules { tickets_max: 3, players_min: 4, ..pairs() });
    let tickets = ["a", "b", "c"].map(|user| rig.ticket(&[user]));
    assert_eq!(rig.submit(request(&["d"])), Err(MatchRefusal::QueueFull));
    rig.cancel(tickets[0], Some("a")).expect("waits");
    rig.ticket(&["d"]);
    // So is the number of ended tickets whose status is kept.
    for _ in 0..3 {
        let again = rig.matchmaker.ticket_of("d").expect("waits");
        rig.cancel(again, None).expect("waits");
        rig.ticket(&["d"]);
    }
    assert_eq!(rig.status(tickets[0]), None);
    assert_eq!(rig.matchmaker.counters().refused.iter().sum::<u64>(), 1);
}

fn exactly(players: u32) -> MatchRules {
    MatchRules { players_min: players, players_max: players, ..MatchRules::default() }
}

#[test]
fn a_single_user_does_not_keep_two_parties_apart() {
    let mut rig = Rig::new(exactly(4));
    let single = rig.ticket(&["a"]);
    let parties = [rig.ticket(&["b", "c"]), rig.ticket(&["d", "e"])];
    rig.pass(0);
    assert_eq!(rig.placed[&parties[0]], ["arena:1".into()]);
    assert_eq!(rig.placed[&parties[1]], ["arena:1".into()]);
    assert_eq!(rig.status(single), Some(TicketStatus::Waiting));
    // With one that makes a room full, the single user, who is the oldest, comes first.
    rig.ticket(&["f", "g"]);
    rig.ticket(&["h"]);
    rig.ticket(&["i", "j"]);
    rig.pass(0);
    assert_eq!(rig.placed[&single], ["arena:2".into()]);
}

#[test]
fn single_users_find_each_other_behind_many_parties() {
    let mut rig = Rig::new(exactly(5));
    for party in 0..200 {
        let [a, b, c] = ["a", "b", "c"].map(|seat| format!("{seat}{party}"));
        rig.ticket(&[&a, &b, &c]);
    }
    rig.pass(0);
    assert_eq!(rig.opened, 0);
    let singles = ["d", "e"].map(|user| rig.ticket(&[user]));
    rig.pass(0);
    assert_eq!(rig.opened, 1);
    assert_eq!(rig.placed[&singles[0]], rig.placed[&singles[1]]);
}

#[test]
fn a_room_of_the_region_is_found_behind_many_others() {
    let mut rig = Rig::new(MatchRules { players_min: 3, fill_wait_ms: 0, rooms_opening_max: 300, ..exactly(4) });
    let mut regional = |region: &str, users: &[&str]| {
        let mut request = request(users);
        request.region = Some(region.into());
        rig.submit(request).expect("accepted")
    };
    for party in 0..200 {
        let [a, b, c] = ["a", "b", "c"].map(|seat| format!("{seat}{party}"));
        regional("us", &[&a, &b, &c]);
    }
    let host = regional("eu", &["d", "e", "f"]);
    let guest = regional("eu", &["g"]);
    let late = regional("eu", &["h"]);
    rig.pass(0);
    assert_eq!(rig.placed[&host], rig.placed[&guest]);
    rig.cancel(guest, None).expect("placed");
    rig.pass(0);
    assert_eq!(rig.placed[&late], rig.placed[&host], "its place is free again");
}

#[test]
fn rooms_that_others_have_opened_are_filled() {
    let mut rig = Rig::new(pairs());
    let duel = || criteria(&[("mode", "duel")]);
    let with = |rig: &mut Rig, user, criteria| {
        let mut request = request(&[user]);
        request.criteria = criteria;
        rig.submit(request).expect("accepted")
    };
    rig.adopt("arena:own", "1", Some(duel()));
    assert!(rig.matchmaker.has_room("arena:own", "1") && !rig.matchmaker.has_room("arena:own", "2"));
    // A single user, who would get no room of its own.
    let (ann, plain) = (with(&mut rig, "ann", duel()), rig.ticket(&["bob"]));
    rig.pass(0);
    assert_eq!(rig.placed[&ann], ["arena:own".into()]);
    assert_eq!(rig.status(plain), Some(TicketStatus::Waiting), "other criteria");
    rig.players("arena:own", 1);
    assert!(matches!(rig.status(ann), Some(TicketStatus::Joined(_))));
    // 4 places at most, as in rooms of matchmaking.
    let more = ["c", "d", "e", "f"].map(|user| with(&mut rig, user, duel()));
    rig.pass(0);
    assert_eq!(more.map(|id| rig.placed.contains_key(&id)), [true, true, true, false]);
    assert_eq!(rig.opened, 0);

    // It moves to another node, which counts its players anew.
    rig.joined.clear();
    rig.adopt("arena:own", "1", Some(duel()));
    rig.pass(0);
    assert_eq!(more.map(|id| rig.placed.get(&id).map_or(0, Vec::len)), [1, 1, 1, 0]);

    // The channel gets another room: who has not come waits again, and is placed in the new one.
    rig.rooms.insert("arena:own".into(), 0);
    rig.adopt("arena:own", "2", Some(duel()));
    rig.pass(0);
    assert_eq!(more.map(|id| rig.placed[&id].len()), [2, 2, 2, 1]);
    // A room that is gone is forgotten.
    rig.rooms.remove("arena:own");
    rig.report();
    assert!(!rig.matchmaker.has_room("arena:own", "2"));
    assert_eq!(rig.matchmaker.gauges().rooms, 0);
}

#[test]
fn locked_and_unsuitable_rooms_get_no_players() {
    let mut rig = Rig::new(pairs());
    rig.closed.insert("arena:locked".into());
    rig.adopt("arena:locked", "1", Some(criteria(&[])));
    rig.adopt("arena:odd", "2", None);
    let ticket = rig.ticket(&["ann"]);
    rig.pass(0);
    assert_eq!(rig.status(ticket), Some(TicketStatus::Waiting));
    rig.closed.clear();
    rig.report();
    rig.pass(0);
    assert_eq!(rig.placed[&ticket], ["arena:locked".into()]);

    // Where skill matters, a room with players of unknown skill suits nobody.
    let mut rig = Rig::new(MatchRules { skill: SkillWindow { width: 100, ..SkillWindow::default() }, ..pairs() });
    rig.adopt("arena:own", "1", Some(criteria(&[])));
    let ticket = rig.ticket(&["ann"]);
    rig.pass(0);
    assert_eq!(rig.status(ticket), Some(TicketStatus::Waiting));
}

#[test]
fn bound_places_are_used_by_their_own_users() {
    let mut rig = Rig::new(pairs());
    let [pair, single] = [&["a", "b"][..], &["c"]].map(|users| rig.ticket(users));
    rig.pass(1_000);
    let channel: Arc<str> = "arena:1".into();
    // A player without a ticket joins before the reservations have reached the room.
    rig.bound.insert(Arc::clone(&channel), Vec::new());
    rig.players(&channel, 1);
    assert_eq!(rig.status(pair), Some(TicketStatus::Placed(Arc::clone(&channel))));
    assert_eq!(rig.matchmaker.gauges().reserved_places, 3);
    rig.bound.insert(Arc::clone(&channel), vec![(pair.0, 1), (single.0, 0)]);
    rig.players(&channel, 3);
    assert_eq!(rig.status(pair), Some(TicketStatus::Placed(Arc::clone(&channel))));
    assert_eq!(rig.status(single), Some(TicketStatus::Joined(Arc::clone(&channel))));
    assert_eq!(rig.matchmaker.gauges().reserved_places, 1);
    rig.bound.insert(Arc::clone(&channel), vec![(pair.0, 0), (single.0, 0)]);
    rig.players(&channel, 4);
    assert_eq!(rig.status(pair), Some(TicketStatus::Joined(channel)));
    assert!(rig.withdrawn.is_empty());
}

#[test]
fn overbooked_tickets_wait_again() {
    let mut rig = Rig::new(MatchRules { ticket_timeout_ms: 10_000, ..pairs() });
    let tickets = [&["a"][..], &["b"], &["c", "d"]].map(|users| rig.ticket(users));
    rig.pass(1_000);
    let channel: Arc<str> = "arena:1".into();
    // One user of the pair has come, and others have taken two places of the single users. With more places, nobody waits again.
    let reported = vec![(tickets[0].0, 1), (tickets[1].0, 1), (tickets[2].0, 1)];
    rig.bound.insert(Arc::clone(&channel), reported);
    rig.players(&channel, 2);
    assert!(rig.withdrawn.is_empty());
    rig.places = 4;
    rig.report();
    assert_eq!(rig.withdrawn, [tickets[1]], "one place too many: the newest ticket that has no user there");
    rig.players(&channel, 3);
    assert_eq!(rig.withdrawn, [tickets[1], tickets[0]]);
    assert_eq!(rig.matchmaker.counters().withdrawn, 2);
    assert_eq!(rig.status(tickets[0]), Some(TicketStatus::Waiting));
    assert_eq!(rig.status(tickets[2]), Some(TicketStatus::Placed(channel)), "it is not divided");
    let gauges = rig.matchmaker.gauges();
    assert_eq!((gauges.pending, gauges.reserved_places), (2, 1));
    // Both have the time of a new ticket, and find another room.
    rig.pass(9_999);
    assert_eq!(rig.placed[&tickets[0]], ["arena:1".into(), "arena:2".into()]);
    assert_eq!(rig.placed[&tickets[1]], rig.placed[&tickets[0]]);
}
