//! Parties, and users in several tickets.

use dunlin_matchmaking::{EndReason, Initiator, MatchCriteria, MatchRefusal, MatchRules, TicketId, TicketStatus};

use crate::rig::{Rig, request};

fn rules() -> MatchRules {
    MatchRules { players_min: 1, players_max: 4, party_max: 3, fill_wait_ms: 0, ..MatchRules::default() }
}

fn invite(rig: &mut Rig, users: &[&str]) -> Result<TicketId, MatchRefusal> {
    let mut request = request(users);
    request.initiator = Initiator::User(users[0].into());
    rig.submit(request)
}

fn confirm(rig: &mut Rig, ticket: TicketId, user: &str) -> Result<(), MatchRefusal> {
    rig.matchmaker.confirm(rig.now_ms, ticket, &user.into())
}

#[test]
fn a_party_is_placed_when_all_have_confirmed() {
    let mut rig = Rig::new(rules());
    let ticket = invite(&mut rig, &["a", "b", "c"]).expect("accepted");
    rig.pass(1_000);
    assert_eq!(rig.status(ticket), Some(TicketStatus::Unconfirmed(vec!["b".into(), "c".into()])));
    confirm(&mut rig, ticket, "c").expect("invited");
    confirm(&mut rig, ticket, "c").expect("twice is fine");
    rig.pass(0);
    assert_eq!(rig.status(ticket), Some(TicketStatus::Unconfirmed(vec!["b".into()])));
    confirm(&mut rig, ticket, "b").expect("invited");
    rig.pass(0);
    assert_eq!(rig.placed[&ticket], ["arena:1".into()]);
    assert_eq!(rig.matchmaker.gauges().reserved_places, 3);
}

#[test]
fn an_unconfirmed_invitation_does_not_block_its_users() {
    let mut rig = Rig::new(rules());
    let invitation = invite(&mut rig, &["stranger", "a"]).expect("accepted");
    // The invited user is placed alone, and can't be in both.
    let own = rig.ticket(&["a"]);
    assert_eq!(confirm(&mut rig, invitation, "a"), Err(MatchRefusal::UserHasTicket));
    rig.pass(0);
    assert_eq!(rig.placed[&own].len(), 1);
    rig.pass(15_000);
    assert_eq!(rig.ended[&invitation], EndReason::Unconfirmed);
    // Who is not invited cannot confirm, see or cancel.
    let invitation = invite(&mut rig, &["stranger", "b"]).expect("accepted");
    assert_eq!(confirm(&mut rig, invitation, "c"), Err(MatchRefusal::UnknownTicket));
    assert_eq!(rig.matchmaker.status(invitation, Some("c")), None);
    assert_eq!(rig.cancel(invitation, Some("c")), Err(MatchRefusal::UnknownTicket));
    // Who is invited can decline.
    rig.cancel(invitation, Some("b")).expect("invited");
    assert_eq!(confirm(&mut rig, invitation, "b"), Err(MatchRefusal::TicketOver));
    assert_eq!(rig.cancel(invitation, Some("b")), Err(MatchRefusal::TicketOver));
}

#[test]
fn a_user_is_in_one_ticket_at_a_time() {
    let mut rig = Rig::new(rules());
    let first = rig.ticket(&["a", "b"]);
    for users in [&["a"][..], &["c", "b"]] {
        assert_eq!(rig.submit(request(users)), Err(MatchRefusal::UserHasTicket));
    }
    assert_eq!(invite(&mut rig, &["b", "c"]), Err(MatchRefusal::UserHasTicket));
    // Also while places are reserved for it.
    rig.pass(0);
    assert_eq!(rig.submit(request(&["a"])), Err(MatchRefusal::UserHasTicket));
    rig.cancel(first, Some("b")).expect("placed");
    assert_eq!(rig.matchmaker.gauges().reserved_places, 0);
    let second = rig.ticket(&["a"]);
    rig.pass(0);
    rig.players("arena:1", 1);
    assert_eq!(rig.status(second), Some(TicketStatus::Joined("arena:1".into())));
    rig.ticket(&["a"]);
}

#[test]
fn tickets_with_unusable_users_are_refused() {
    let mut rig = Rig::new(rules());
    let long = "x".repeat(256);
    for users in [&[][..], &["a", "a"], &["", "b"], &["a", "b", "c", "d"], &[&long]] {
        assert_eq!(rig.submit(request(users)), Err(MatchRefusal::Users), "{users:?}");
    }
    let mut foreign = request(&["a", "b"]);
    foreign.initiator = Initiator::User("c".into());
    assert_eq!(rig.submit(foreign), Err(MatchRefusal::Users));
    rig.ticket(&["a", "b", &"x".repeat(255)]);
}

#[test]
fn criteria_are_bounded() {
    let pairs = |count: usize, name: usize, value: usize| {
        let name = |index| format!("{index}{}", "n".repeat(name - 1)).into_boxed_str();
        MatchCriteria::new((0..count).map(|index| (name(index), "v".repeat(value).into())))
    };
    assert!(pairs(8, 64, 64).is_ok());
    for (count, name, value) in [(9, 64, 64), (1, 65, 64), (1, 64, 65)] {
        assert_eq!(pairs(count, name, value), Err(MatchRefusal::Criteria), "{count} {name} {value}");
    }
    let mut rig = Rig::new(rules());
    for (region, outcome) in [(64, true), (65, false), (0, false)] {
        let mut request = request(&["a"]);
        request.region = Some("r".repeat(region).into());
        assert_eq!(rig.submit(request).is_ok(), outcome, "a region of {region} bytes");
    }
}
