//! A queue goes on on another node.

use dunlin_matchmaking::{EndReason, HandedTicket, Initiator, MatchEffect, MatchRefusal, MatchRules, TicketStatus};

use crate::rig::{Rig, criteria, request};

fn rules() -> MatchRules {
    MatchRules { players_min: 2, players_max: 2, party_max: 2, fill_wait_ms: 0, ..MatchRules::default() }
}

fn handed(rig: &mut Rig) -> Vec<HandedTicket> {
    rig.matchmaker.hand_over(rig.now_ms, 100).into_iter().map(|(_, ticket)| ticket).collect()
}

#[test]
fn tickets_of_two_queues_meet_in_one() {
    let (mut old, mut new) = (Rig::new(rules()), Rig::new(rules()));
    let left = old.ticket(&["a"]);
    let stayed = new.ticket(&["b"]);
    old.pass(1_000);
    new.pass(1_000);
    let [ticket] = handed(&mut old).try_into().expect("one ticket waits");
    assert_eq!((old.status(left), old.matchmaker.gauges().pending), (None, 0));
    assert!(!old.matchmaker.has_unfinished());
    old.ticket(&["a"]);

    let taken = new.matchmaker.take_over(new.now_ms, ticket).expect("accepted");
    new.pass(0);
    assert_eq!(new.placed[&taken], new.placed[&stayed]);
    assert_eq!(new.matchmaker.counters().submitted, 1, "the ticket was submitted elsewhere");
}

#[test]
fn a_ticket_keeps_its_time_its_wishes_and_its_confirmations() {
    let (mut old, mut new) = (Rig::new(rules()), Rig::new(rules()));
    let mut wished = request(&["a", "b"]);
    (wished.initiator, wished.region, wished.skill) = (Initiator::User("a".into()), Some("eu".into()), 7);
    wished.criteria = criteria(&[("mode", "duel")]);
    old.submit(wished).expect("accepted");
    old.pass(2_000);
    let [ticket] = handed(&mut old).try_into().expect("one ticket is unconfirmed");
    let confirm_timeout_ms = rules().confirm_timeout_ms;
    let expected = HandedTicket {
        users: vec![("a".into(), true), ("b".into(), false)],
        criteria: criteria(&[("mode", "duel")]),
        region: Some("eu".into()),
        skill: 7,
        age_ms: 2_000,
        left_ms: confirm_timeout_ms - 2_000,
    };
    assert_eq!(ticket, expected);

    let taken = new.matchmaker.take_over(new.now_ms, ticket).expect("accepted");
    assert_eq!(new.status(taken), Some(TicketStatus::Unconfirmed(vec!["b".into()])));
    new.pass(confirm_timeout_ms - 2_001);
    assert!(new.ended.is_empty());
    new.pass(1);
    assert_eq!(new.ended[&taken], EndReason::Unconfirmed);
}

#[test]
fn tickets_whose_time_is_over_stay_and_end() {
    let mut rig = Rig::new(rules());
    let waiting = rig.ticket(&["a"]);
    let mut unconfirmed = request(&["b", "c"]);
    unconfirmed.initiator = Initiator::User("b".into());
    let invited = rig.submit(unconfirmed).expect("accepted");
    let MatchRules { confirm_timeout_ms, ticket_timeout_ms, .. } = rules();
    rig.pass(0);
    // A node that hands tickets over has not run the timers since.
    rig.now_ms += confirm_timeout_ms;
    let [left] = handed(&mut rig).try_into().expect("one has time left");
    assert_eq!(left.left_ms, ticket_timeout_ms - confirm_timeout_ms);
    rig.matchmaker.take_over(rig.now_ms, HandedTicket { left_ms: 0, ..left }).expect("it comes back");
    assert_eq!(handed(&mut rig), []);
    rig.pass(0);
    assert_eq!((rig.status(waiting), rig.ended[&invited], rig.ended.len()), (None, EndReason::Unconfirmed, 2));
}

#[test]
fn tickets_with_a_room_stay() {
    let mut rig = Rig::new(rules());
    let placed = rig.ticket(&["a"]);
    rig.ticket(&["b"]);
    rig.pass(0);
    assert!(handed(&mut rig).is_empty() && rig.matchmaker.has_unfinished());
    assert!(matches!(rig.status(placed), Some(TicketStatus::Placed(_))));
}

#[test]
fn a_ticket_that_breaks_the_rules_is_refused() {
    let mut rig = Rig::new(MatchRules { tickets_max: 2, ..rules() });
    rig.ticket(&["a"]);
    let of = |users: &[&str]| HandedTicket {
        users: users.iter().map(|user| ((*user).into(), true)).collect(),
        criteria: criteria(&[]),
        region: None,
        skill: 0,
        age_ms: u64::MAX,
        left_ms: u64::MAX,
    };
    let mut take = |users: &[&str]| rig.matchmaker.take_over(1_000, of(users));
    assert_eq!(take(&[]), Err(MatchRefusal::Users));
    assert_eq!(take(&["b", "b"]), Err(MatchRefusal::Users));
    assert_eq!(take(&["b", "c", "d"]), Err(MatchRefusal::Users));
    assert_eq!(take(&[""]), Err(MatchRefusal::Users));
    assert_eq!(take(&["a"]), Err(MatchRefusal::UserHasTicket));
    assert!(take(&["b"]).is_ok());
    assert_eq!(take(&["c"]), Err(MatchRefusal::QueueFull));
}

#[test]
fn a_ticket_with_which_no_queue_goes_on_ends_and_its_users_are_free() {
    let (mut old, mut new) = (Rig::new(rules()), Rig::new(rules()));
    old.ticket(&["a"]);
    let [ticket] = handed(&mut old).try_into().expect("one ticket waits");
    let newer = old.ticket(&["a"]);
    assert_eq!(old.matchmaker.take_over(old.now_ms, ticket.clone()), Err(MatchRefusal::UserHasTicket));
    for (rig, pending) in [(&mut old, 1), (&mut new, 0)] {
        let mut effects = Vec::new();
        let ended = rig.matchmaker.end_handed(rig.now_ms, ticket.clone(), &mut effects);
        let users = vec!["a".into()];
        let expected = MatchEffect::Ended { ticket: ended, users, reason: EndReason::Lost, channel: None };
        assert_eq!(effects, [expected]);
        assert_eq!(rig.status(ended), Some(TicketStatus::Ended(EndReason::Lost)));
        let lost = EndReason::ALL.iter().position(|reason| *reason == EndReason::Lost).expect("it is a reason");
        assert_eq!((rig.matchmaker.counters().ended[lost], rig.matchmaker.gauges().pending), (1, pending));
    }
    assert_eq!(old.matchmaker.ticket_of("a"), Some(newer));
    new.ticket(&["a"]);
}

#[test]
fn tickets_of_a_queue_that_places_none_still_end() {
    let mut rig = Rig::new(rules());
    let [first, second] = [rig.ticket(&["a"]), rig.ticket(&["b"])];
    let mut effects = Vec::new();
    rig.matchmaker.run_timers(rig.now_ms + rules().ticket_timeout_ms, &mut effects);
    rig.perform(effects);
    assert!(rig.placed.is_empty());
    assert_eq!([rig.ended[&first], rig.ended[&second]], [EndReason::TimedOut; 2]);
}
