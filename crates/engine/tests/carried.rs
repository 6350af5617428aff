//! What a recorded room is told of its players' connections.

use std::num::NonZeroU32;

use dunlin_engine::counters::NamespaceRoomCounters;
use dunlin_protocol::Encoding;
use dunlin_rooms::{
    GridShape, PlayerId, ZONES,
    recording::{Carried, CarriedWait},
};
use serde_json::json;

use crate::hall::{Hall, Meadow, options};

const ARENA: &str = "arena:a";
const TICK_US: u64 = 16_667;
const SENT: Carried = Carried {
    had_tick: 0,
    tick: 0,
    paced_ticks: 0,
    limited_ticks: 0,
    waited_ticks: 0,
    wait: CarriedWait::Connection,
    is_sent: true,
    zone_ages_ticks: [0; ZONES],
};

fn hall_with(limit: Option<u32>, meadow: Meadow) -> Hall {
    let mut options = options();
    let room = options.namespaces.last_mut().and_then(|arena| arena.room.as_mut()).expect("rooms");
    room.frame_bytes_per_second = limit.and_then(NonZeroU32::new);
    let mut hall = Hall::new(1, options);
    (hall.meadow, hall.is_recorded) = (meadow, true);
    hall
}

fn hall() -> Hall {
    hall_with(None, Meadow::default())
}

fn run(hall: &mut Hall, ticks: u32) {
    for _ in 0..ticks {
        hall.node.step_to(hall.node.now.mono_us + TICK_US);
        hall.tick();
    }
}

fn tick_of(hall: &Hall) -> u32 {
    hall.only_room().1.room().tick_number()
}

fn rooms(hall: &Hall) -> NamespaceRoomCounters {
    hall.node.shards[0].counters().namespaces[1].rooms
}

/// What was told since the last call. Two ticks pass: with the first, the shard tells, and with the second, the room records it.
fn told(hall: &mut Hall) -> Vec<(PlayerId, Carried)> {
    run(hall, 2);
    std::mem::take(&mut hall.carried)
}

/// A room with two players, who get each tick.
fn two_players() -> Hall {
    let mut hall = hall();
    hall.gather(&[("a", Encoding::Json, 0), ("b", Encoding::Protobuf, 0)], ARENA);
    run(&mut hall, 100);
    assert_eq!(told(&mut hall), [], "who gets each tick is not told of");
    hall
}

/// Of one of the two players.
fn bytes_per_second(hall: &mut Hall) -> u32 {
    let before = rooms(hall).frame_bytes;
    run(hall, 60);
    (rooms(hall).frame_bytes - before) as u32 / 2
}

#[test]
fn a_full_socket_is_told_when_it_takes_a_tick_again() {
    let mut hall = two_players();
    let had_tick = tick_of(&hall);
    for (skipped, wait_ticks) in [(1, 2), (8, 9), (200, 201)] {
        let had_tick = tick_of(&hall).max(had_tick);
        hall.node.client("a").room_bytes = 0;
        run(&mut hall, wait_ticks);
        assert_eq!(hall.carried, [], "it is told after the fact");
        hall.take("a", usize::MAX);
        let tick = tick_of(&hall);
        assert_eq!(tick, had_tick + wait_ticks);
        let expected = Carried { had_tick, tick, waited_ticks: skipped, ..SENT };
        assert_eq!(told(&mut hall), [(PlayerId(1), expected)]);
    }
    // One tick late, but none was skipped.
    hall.node.client("a").room_bytes = 0;
    run(&mut hall, 1);
    hall.take("a", usize::MAX);
    assert_eq!(told(&mut hall), []);
    hall.check("a", ARENA);
}

#[test]
fn ticks_that_come_at_once_are_no_fault_of_the_connection() {
    let mut hall = two_players();
    let had_tick = tick_of(&hall);
    for name in ["a", "b"] {
        hall.node.client(name).room_bytes = 0;
    }
    // The shard was busy for a while: it writes when it has taken all ticks.
    hall.node.step_to(hall.node.now.mono_us + 4 * TICK_US);
    for _ in 0..4 {
        hall.tick();
    }
    hall.take("a", usize::MAX);
    hall.take("b", usize::MAX);
    let expected = Carried { had_tick, tick: had_tick + 4, waited_ticks: 3, wait: CarriedWait::Shard, ..SENT };
    assert_eq!(told(&mut hall), [1, 2].map(|player| (PlayerId(player), expected)));
}

#[test]
fn who_leaves_behind_is_told_of_at_once() {
    let mut hall = two_players();
    let had_tick = tick_of(&hall);
    hall.node.client("a").room_bytes = 0;
    run(&mut hall, 30);
    hall.leave("a");
    let expected = Carried { had_tick, tick: had_tick + 31, waited_ticks: 30, is_sent: false, ..SENT };
    assert_eq!(told(&mut hall), [(PlayerId(1), expected)]);
    // And the last one, with whom the shard forgets the room.
    let had_tick = tick_of(&hall);
    hall.node.client("b").room_bytes = 0;
    run(&mut hall, 2);
    hall.leave("b");
    let expected = Carried { had_tick, tick: had_tick + 3, waited_ticks: 2, is_sent: false, ..SENT };
    assert_eq!(told(&mut hall), [(PlayerId(2), expected)]);
}

#[test]
fn who_leaves_with_the_newest_tick_is_not_told_of() {
    let mut hall = two_players();
    hall.leave("a");
    hall.unsubscribe("b", ARENA);
    assert_eq!(told(&mut hall), []);
}

#[test]
fn a_first_snapshot_that_waits_is_told() {
    let mut hall = two_players();
    hall.open("c", Encoding::Json, 0);
    hall.subscribe("c", ARENA);
    hall.pass();
    hall.node.client("c").room_bytes = 0;
    run(&mut hall, 5);
    hall.take("c", usize::MAX);
    let expected = Carried { tick: tick_of(&hall), waited_ticks: 4, ..SENT };
    assert_eq!(told(&mut hall), [(PlayerId(3), expected)]);
}

#[test]
fn a_pace_is_told_and_is_no_wait() {
    let mut hall = hall();
    hall.open("a", Encoding::Json, 0);
    hall.join("a", ARENA, &json!({"updates_per_second_max": 10}));
    run(&mut hall, 2);
    let first = tick_of(&hall);
    hall.carried.clear();
    run(&mut hall, 19);
    let carried = std::mem::take(&mut hall.carried);
    let [(player, one), (_, another), (_, _)] = carried[..] else { panic!("{carried:?}") };
    assert_eq!((player, one.paced_ticks, one.skipped_ticks()), (PlayerId(1), 5, 5), "every sixth of 60 ticks");
    assert_eq!((one.had_tick <= first, another.had_tick), (true, one.tick));

    // At the pace of all ticks, nothing is told; below it, each second one.
    for (pace, paced_ticks) in [(60, None), (30, Some(1))] {
        hall.send_json(
            "a",
            &json!({"id": 3, "rpc": {"method": "dunlin.subscription_pace", "data":
                {"channel": ARENA, "updates_per_second_max": pace}}}),
        );
        run(&mut hall, 10);
        hall.carried.clear();
        run(&mut hall, 10);
        let told: Vec<u32> = hall.carried.iter().map(|(_, carried)| carried.paced_ticks).collect();
        assert_eq!(told, vec![paced_ticks.unwrap_or_default(); if paced_ticks.is_some() { 5 } else { 0 }]);
    }

    // A socket that is full meanwhile: the ticks that its pace leaves out are the first ones.
    hall.carried.clear();
    hall.node.client("a").room_bytes = 0;
    run(&mut hall, 8);
    hall.take("a", usize::MAX);
    let carried = told(&mut hall);
    let (_, behind) = carried.iter().max_by_key(|(_, carried)| carried.waited_ticks).expect("it was behind");
    assert_eq!((behind.paced_ticks, behind.limited_ticks), (1, 0));
    assert!((5..=7).contains(&behind.waited_ticks) && behind.wait == CarriedWait::Connection, "{behind:?}");
}

#[test]
fn a_pace_of_the_session_is_not_taken_for_its_connection() {
    let mut hall = two_players();
    // A quarter of what the players are sent.
    let pace = bytes_per_second(&mut hall) / 4;
    hall.send_json(
        "a",
        &json!({"id": 3, "rpc": {"method": "dunlin.session_pace", "data": {"bytes_per_second_max": pace}}}),
    );
    for _ in 0..600 {
        // Here the shard wakes when the session may be sent more.
        hall.node.wait(17);
        hall.tick();
    }
    let told = told(&mut hall);
    assert!(!told.is_empty() && rooms(&hall).skipped_ticks > 0);
    for (player, carried) in told {
        assert_eq!((player, carried.wait, carried.paced_ticks), (PlayerId(1), CarriedWait::SessionPace, 0));
    }
}

#[test]
fn ticks_that_a_bandwidth_limit_leaves_out_are_told() {
    let free = bytes_per_second(&mut two_players());
    let play = |limit| {
        let mut hall = hall_with(Some(limit), Meadow::default());
        hall.gather(&[("a", Encoding::Json, 0)], ARENA);
        run(&mut hall, 600);
        (told(&mut hall), rooms(&hall))
    };
    let (told, counted) = play(8 * free);
    assert_eq!((told, counted.limited_ticks), (vec![], 0), "it has as much as it needs");
    let (told, counted) = play(free / 8);
    let limited: u64 = told.iter().map(|(_, carried)| u64::from(carried.limited_ticks)).sum();
    assert!(limited > 0 && limited <= counted.limited_ticks, "{limited}, {counted:?}");
    // Those since the last frame are not told yet.
    assert!(limited + 120 > counted.limited_ticks, "{limited}, {counted:?}");
    assert!(told.iter().all(|(_, carried)| carried.waited_ticks == 0 && carried.paced_ticks == 0), "{told:?}");
    for pair in told.windows(2) {
        assert!(pair[0].1.tick <= pair[1].1.had_tick, "{pair:?}");
    }
}

#[test]
fn zones_that_wait_are_told_with_their_ages() {
    let shape =
        GridShape { columns: 12, rows: 12, cell_units: 100, near_cells: 4, far_cells: 1, far_interval_ticks: 2 };
    let meadow = Meadow { shape, sheep: 900, ..Meadow::default() };
    let play = |limit| {
        let mut hall = hall_with(limit, meadow);
        hall.gather(&[("a", Encoding::Json, 0)], ARENA);
        hall.publish("a", ARENA, 1, &[150, 150]);
        run(&mut hall, 600);
        (told(&mut hall), rooms(&hall))
    };
    let (told, free) = play(None);
    assert_eq!(told, []);
    let (told, counted) = play(Some((free.frame_bytes / 10 / 3) as u32));
    let waiting: Vec<Carried> =
        told.iter().map(|(_, carried)| *carried).filter(|c| c.zone_ages_ticks != [0; 4]).collect();
    let waits = |zone: usize| waiting.iter().filter(|carried| carried.zone_ages_ticks[zone] > 0).count() as u64;
    assert!(counted.near_postponed > 0 && waits(0) == 0, "{counted:?}");
    // The last two frames are not told yet.
    assert!(counted.far_postponed.abs_diff(waits(3)) <= 2, "{} of {}", waits(3), counted.far_postponed);
    assert!(waiting.len() as u64 <= counted.frames, "at most one for each frame");
    // A zone ages by the ticks between two frames while it waits.
    for pair in waiting.windows(2).filter(|pair| pair[0].tick == pair[1].had_tick) {
        for (before, after) in pair[0].zone_ages_ticks.iter().zip(pair[1].zone_ages_ticks) {
            let ticks = pair[1].tick - pair[0].tick;
            assert!(*before == 0 || after == 0 || after == before + ticks || after <= 2 * ticks, "{pair:?}");
        }
    }
}

#[test]
fn a_room_that_is_not_recorded_is_told_nothing() {
    let mut hall = hall();
    hall.is_recorded = false;
    hall.open("a", Encoding::Json, 0);
    hall.join("a", ARENA, &json!({"updates_per_second_max": 10}));
    run(&mut hall, 30);
    hall.node.client("a").room_bytes = 0;
    run(&mut hall, 30);
    hall.take("a", usize::MAX);
    hall.leave("a");
    assert_eq!(told(&mut hall), []);
}
