//! Ten thousand tickets into rooms of eight.

use std::{collections::BTreeMap, time::Instant};

use dunlin_matchmaking::{MatchRules, TicketId, TicketStatus};

use crate::rig::{Rig, criteria, request};

/// The users of ticket `index`, by a fixed sequence of party sizes.
fn party(index: u32, sizes: &[u32]) -> Vec<String> {
    let size = sizes[index as usize % sizes.len()];
    (0..size).map(|seat| format!("u{index}.{seat}")).collect()
}

/// Numbers without a visible order.
fn mixed(index: u32) -> u32 {
    index.wrapping_mul(2_654_435_761) >> 8
}

/// Submits 10,000 tickets, lets the users come, and returns the durations of the passes in microseconds.
fn play(rules: MatchRules, sizes: &[u32], modes: u32, skills: u32) -> (Rig, Vec<u128>) {
    let mut rig = Rig::new(rules);
    let mut tickets = BTreeMap::new();
    let mut durations_us = Vec::new();
    for index in 0..10_000 {
        let users = party(index, sizes);
        let mut request = request(&users.iter().map(String::as_str).collect::<Vec<_>>());
        request.criteria = criteria(&[("mode", &(index % modes).to_string())]);
        request.skill = mixed(index).checked_rem(skills).unwrap_or(0).cast_signed();
        tickets.insert(rig.submit(request).expect("accepted"), users.len());
    }
    while tickets.keys().any(|id| rig.status(*id) == Some(TicketStatus::Waiting)) {
        let begun = Instant::now();
        rig.pass(100);
        durations_us.push(begun.elapsed().as_micros());
        assert!(rig.ended.is_empty(), "{:?}", rig.ended);
        assert!(rig.now_ms < 100_000, "all are placed in time");
    }
    let mut players = BTreeMap::new();
    for (ticket, size) in &tickets {
        let [room] = &rig.placed[ticket][..] else { panic!("{ticket:?} is in {:?}", rig.placed[ticket]) };
        *players.entry(room.clone()).or_insert(0) += *size as u32;
    }
    assert!(players.values().all(|players| *players <= 8), "no room has more users than places");
    rig.joined = players.iter().map(|(channel, players)| (channel.clone(), u64::from(*players))).collect();
    rig.rooms = players;
    rig.report();
    let joined = |id: &TicketId| matches!(rig.status(*id), Some(TicketStatus::Joined(_)));
    assert!(tickets.keys().all(joined), "all users came");
    assert_eq!(rig.matchmaker.gauges().reserved_places, 0);
    durations_us.sort_unstable();
    (rig, durations_us)
}

fn rules() -> MatchRules {
    MatchRules { players_min: 8, players_max: 8, fill_wait_ms: 0, reserve_timeout_ms: 100_000, ..MatchRules::default() }
}

fn print(name: &str, rig: &Rig, durations_us: &[u128]) {
    let (p99, max) = (durations_us[durations_us.len() * 99 / 100], durations_us[durations_us.len() - 1]);
    let (rooms, passes) = (rig.opened, durations_us.len());
    println!("{name}: {rooms} rooms in {passes} passes, p99 {p99} us, longest {max} us");
}

#[test]
fn single_users_fill_rooms() {
    let (rig, durations_us) = play(rules(), &[1], 1, 0);
    assert_eq!(rig.opened, 1_250);
    print("single users", &rig, &durations_us);
}

#[test]
fn all_at_once() {
    let (rig, durations_us) = play(MatchRules { rooms_opening_max: 10_000, ..rules() }, &[1], 1, 0);
    assert_eq!((rig.opened, durations_us.len()), (1_250, 1));
    print("single users in one pass", &rig, &durations_us);
}

#[test]
fn parties_stay_together() {
    let rules = MatchRules { players_min: 2, fill_wait_ms: 3_000, ..rules() };
    let (rig, durations_us) = play(rules, &[1, 2, 5, 1, 3], 7, 0);
    // 24,000 users.
    assert!((3_000..3_200).contains(&rig.opened), "{} rooms", rig.opened);
    print("parties, 7 modes", &rig, &durations_us);
}

#[test]
fn skills_and_parties_that_fit_badly() {
    let rules =
        MatchRules { players_min: 5, fill_wait_ms: 10_000, skill_window: 10, skill_window_per_s: 10, ..rules() };
    let (rig, durations_us) = play(rules, &[5], 1, 3_000);
    assert_eq!(rig.opened, 10_000);
    print("parties of five, skill window", &rig, &durations_us);
}

#[test]
fn skills() {
    let rules = MatchRules { skill_window: 5, skill_window_per_s: 50, ..rules() };
    let (rig, durations_us) = play(MatchRules { players_min: 1, fill_wait_ms: 5_000, ..rules }, &[1, 1, 2], 3, 100_000);
    print("skill window", &rig, &durations_us);
}
