//! Ten thousand tickets into rooms of eight.

use std::{collections::BTreeMap, fs};

use dunlin_matchmaking::{MatchRules, OpenFailure, SkillWindow, TicketId, TicketStatus};

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

/// Maximum CPU time of a pass, for 99 of 100 passes. An undisturbed one takes at most 20 ms. CPU time includes what other programs
/// displace from the caches, so the bound only finds work that grows with the square of the tickets and compares nothing.
const PASS_US_MAX: u64 = 200_000;
/// Maximum number of comparisons of a pass per waiting ticket.
const COMPARED_PER_TICKET_MAX: u64 = 2 * 32;

/// CPU time of this thread in microseconds, without the time in which others had the processor. The kernel brings it up to
/// date at each of its ticks.
fn cpu_time_us() -> u64 {
    let times = fs::read_to_string("/proc/thread-self/schedstat").expect("Linux has it");
    let cpu_ns: u64 = times.split(' ').next().and_then(|time| time.parse().ok()).expect("a number first");
    cpu_ns / 1_000
}

/// Submits 10,000 tickets, lets the users come, and returns the CPU times of the passes in microseconds.
///
/// The number of comparisons of each pass is the same on every machine. The bound on time counts CPU time, which does not grow
/// while the thread waits for a processor, and is far above what an undisturbed pass takes.
fn play(rules: MatchRules, sizes: &[u32], modes: u32, skills: u32) -> (Rig, Vec<u64>) {
    let mut rig = Rig::new(rules);
    let mut tickets = BTreeMap::new();
    let (mut durations_us, mut most_compared) = (Vec::new(), 0);
    for index in 0..10_000 {
        let users = party(index, sizes);
        let mut request = request(&users.iter().map(String::as_str).collect::<Vec<_>>());
        request.criteria = criteria(&[("mode", &(index % modes).to_string())]);
        request.skill = mixed(index).checked_rem(skills).unwrap_or(0).cast_signed();
        tickets.insert(rig.submit(request).expect("accepted"), users.len());
    }
    while tickets.keys().any(|id| rig.status(*id) == Some(TicketStatus::Waiting)) {
        let (begun_us, compared) = (cpu_time_us(), rig.matchmaker.counters().compared);
        rig.pass(100);
        durations_us.push(cpu_time_us() - begun_us);
        let compared = rig.matchmaker.counters().compared - compared;
        assert!(compared <= 10_000 * COMPARED_PER_TICKET_MAX, "{compared} comparisons");
        most_compared = most_compared.max(compared);
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
    println!("at most {most_compared} comparisons in a pass");
    assert!(p99(&durations_us) < PASS_US_MAX, "{durations_us:?}");
    (rig, durations_us)
}

fn window(width: u32, growth_per_s: u32) -> SkillWindow {
    SkillWindow { width, growth_per_s, width_max: 0 }
}

fn rules() -> MatchRules {
    MatchRules { players_min: 8, players_max: 8, fill_wait_ms: 0, reserve_timeout_ms: 100_000, ..MatchRules::default() }
}

fn p99(durations_us: &[u64]) -> u64 {
    durations_us[durations_us.len() * 99 / 100]
}

fn print(name: &str, rig: &Rig, durations_us: &[u64]) {
    let (p99, max) = (p99(durations_us), durations_us[durations_us.len() - 1]);
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
    let rules = MatchRules { players_min: 5, fill_wait_ms: 10_000, skill: window(10, 10), ..rules() };
    let (rig, durations_us) = play(rules, &[5], 1, 3_000);
    assert_eq!(rig.opened, 10_000);
    print("parties of five, skill window", &rig, &durations_us);
}

/// No room suits anybody: 10,000 tickets and 500 open rooms of other skills and another region.
#[test]
fn unsuitable_rooms_get_no_tickets() {
    let rules = MatchRules { players_min: 1, skill: window(5, 0), rooms_opening_max: 500, ..rules() };
    let mut rig = Rig::new(MatchRules { tickets_max: 20_000, ..rules });
    let submit = |rig: &mut Rig, index: u32, skill: u32, region: &str| {
        let mut request = request(&[&format!("{region}{index}")]);
        (request.skill, request.region) = (skill.cast_signed(), Some(region.into()));
        rig.submit(request).expect("accepted")
    };
    for index in 0..500 {
        submit(&mut rig, index, index * 100, "us");
    }
    rig.pass(0);
    assert_eq!(rig.opened, 500);
    for index in 0..10_000 {
        submit(&mut rig, index, 50 + index * 100, "eu");
    }
    rig.opens = Err(OpenFailure::Busy);
    let (begun_us, before) = (cpu_time_us(), rig.matchmaker.counters().compared);
    rig.pass(0);
    let (took_us, compared) = (cpu_time_us() - begun_us, rig.matchmaker.counters().compared - before);
    println!("no room suits: {compared} comparisons, {took_us} us");
    assert!(compared <= 2 * 10_000, "{compared} comparisons");
    assert!(took_us < PASS_US_MAX, "{took_us} us");
}

/// Parties of seven do not fill a room of a thousand, and each looks at many others. A pass ends before it has tried them all,
/// and the next one goes on behind it, so that those who would fit have their turn.
#[test]
fn large_rooms_that_are_hardly_ever_full() {
    let rules = MatchRules { players_max: 1_000, players_min: 1_000, ticket_timeout_ms: 1_000_000, ..rules() };
    let mut rig = Rig::new(MatchRules { skill: window(2_000, 0), ..rules });
    let mut submit = |index: u32, size: u32| {
        let users = party(index, &[size]);
        let mut request = request(&users.iter().map(String::as_str).collect::<Vec<_>>());
        request.skill = index.cast_signed();
        rig.submit(request).expect("accepted")
    };
    for index in 0..9_999 {
        submit(index, 7);
    }
    // With 142 parties of seven these are 1,000 users.
    let last = submit(9_999, 6);
    let mut passes = 0;
    while !rig.placed.contains_key(&last) {
        let (begun_us, before) = (cpu_time_us(), rig.matchmaker.counters().compared);
        rig.pass(100);
        let (took_us, compared) = (cpu_time_us() - begun_us, rig.matchmaker.counters().compared - before);
        assert!(compared <= 10_000 * COMPARED_PER_TICKET_MAX, "{compared} comparisons");
        assert!(took_us < PASS_US_MAX, "{took_us} us");
        passes += 1;
        assert!(passes < 100, "the passes go on where the last one stopped");
    }
    assert_eq!(rig.opened, 1);
    assert!(passes > 1, "one pass does not try all");
    println!("rooms of a thousand: {passes} passes");
}

#[test]
fn skills() {
    let rules = MatchRules { skill: window(5, 50), ..rules() };
    let (rig, durations_us) = play(MatchRules { players_min: 1, fill_wait_ms: 5_000, ..rules }, &[1, 1, 2], 3, 100_000);
    print("skill window", &rig, &durations_us);
}
