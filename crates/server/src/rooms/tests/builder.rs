//! Rooms are created and dropped while other rooms tick.

use std::sync::atomic::Ordering;

use dunlin_config::{RoomSettings, RoomsOptions};
use dunlin_engine::room::{FromRoom, NotJoined, RoomKey};
use dunlin_protocol::UnsubscribeCode;

use super::{
    games::{ENDLESS_ON, GATE},
    rig::{Rig, options, settings, wait_until},
};
use crate::rooms::FailureReason;

/// A timeout that the watchdog never reaches, so that the gate can block a game for any time.
const NO_TIMEOUT_MS: u64 = 1_000_000_000;

/// Receives this number of ticks of a room, to prove that it continues.
fn see_ticks(rig: &mut Rig, of: RoomKey, count: u32) {
    let mut seen = 0;
    rig.take_until("ticks of the other room", |message| {
        seen += u32::from(matches!(message, FromRoom::Tick { room, .. } if *room == of));
        seen >= count
    });
}

#[test]
fn creating_and_dropping_rooms_delays_no_tick() {
    let gated = RoomSettings { tick_stuck_timeout_ms: NO_TIMEOUT_MS, ..settings("gated") };
    let mut rig = Rig::start(1, vec![settings("walk"), gated]);
    let walk = rig.open(0, "walk");
    let ann = rig.join(walk, "ann");
    assert_eq!(rig.wait_joined(ann), Ok(()));
    let rooms: Vec<_> = (0..3).map(|_| rig.open(1, "gated")).collect();
    wait_until("a constructor", || GATE.constructors.load(Ordering::Acquire) == 1);
    see_ticks(&mut rig, walk, 20);
    assert_eq!(GATE.constructors.load(Ordering::Acquire), 1, "it is still at the first");
    let thread = rig.rooms.threads().remove(0);
    assert_eq!((thread.rooms, thread.opening), (4, 3));
    // Nor does it delay the answer to a join whose session has ended.
    let gone = rig.join(rooms[2], "ben");
    rig.abandon(rooms[2], gone);
    assert_eq!(rig.wait_joined(gone), Err(NotJoined::Gone));
    assert_eq!(rig.rooms.threads().remove(0).opening, 3);

    GATE.is_shut.store(false, Ordering::Release);
    let mut made = Vec::new();
    rig.take_until("rooms that are made", |message| {
        made.extend(if let FromRoom::Made { room, .. } = message { Some(*room) } else { None });
        made.len() == rooms.len()
    });
    assert_eq!(made, rooms);
    assert_eq!(rig.rooms.threads().remove(0).opening, 0);

    GATE.is_shut.store(true, Ordering::Release);
    rig.close(rooms[0], UnsubscribeCode::ROOM_CLOSED);
    wait_until("a destructor", || GATE.destructors.load(Ordering::Acquire) == 1);
    see_ticks(&mut rig, walk, 20);
    GATE.is_shut.store(false, Ordering::Release);
    let counters = rig.counters();
    assert_eq!((counters.replaced, counters.failed), (0, [0; FailureReason::ALL.len()]));
}

/// Makes the creation of a room fail, and checks that a ticking room and the next room to be created are not affected.
fn one_is_not_made(rig: &mut Rig, reason: FailureReason) {
    let walk = rig.open(0, "walk");
    let ann = rig.join(walk, "ann");
    assert_eq!(rig.wait_joined(ann), Ok(()));
    let bad = rig.open(1, "bad");
    let next = rig.open(0, "next");
    let bob = rig.join(next, "bob");
    let (mut has_failed, mut is_made) = (false, false);
    rig.take_until("the failure, and the next room", |message| {
        has_failed |= matches!(message, FromRoom::Failed { room, .. } if *room == bad);
        is_made |= matches!(message, FromRoom::Made { room, .. } if *room == next);
        has_failed && is_made
    });
    assert_eq!(rig.wait_joined(bob), Ok(()));
    see_ticks(rig, walk, 5);
    let mut failed = [0; FailureReason::ALL.len()];
    failed[reason as usize] = 1;
    let counters = rig.counters();
    assert_eq!((counters.failed, counters.replaced), (failed, 0));
}

#[test]
fn a_constructor_that_does_not_end_fails_its_room_alone() {
    let bad = RoomSettings { tick_stuck_timeout_ms: 200, ..settings("endless") };
    let mut rig = Rig::start(1, vec![settings("walk"), bad]);
    one_is_not_made(&mut rig, FailureReason::Stuck);
    assert_eq!(rig.rooms.builder().replaced, 1);
    ENDLESS_ON.store(false, Ordering::Release);
    wait_until("the old thread's end", || rig.rooms.builder().came_back == 1);
}

#[test]
fn a_constructor_that_panics_fails_its_room_alone() {
    let mut rig = Rig::start(1, vec![settings("walk"), settings("stillborn")]);
    one_is_not_made(&mut rig, FailureReason::Panic);
    assert_eq!(rig.rooms.builder().replaced, 0);
}

#[test]
fn a_room_closed_before_its_creation_is_dropped() {
    let mut rig = Rig::start(1, vec![settings("walk")]);
    let rooms: Vec<_> = (0..20).map(|_| rig.open(0, "walk")).collect();
    for room in rooms {
        rig.close(room, UnsubscribeCode::ROOM_CLOSED);
    }
    let last = rig.open(0, "last");
    let ann = rig.join(last, "ann");
    assert_eq!(rig.wait_joined(ann), Ok(()));
    wait_until("one room", || rig.rooms.rooms().len() == 1 && rig.rooms.threads()[0].opening == 0);
    rig.close(last, UnsubscribeCode::ROOM_CLOSED);
    wait_until("no memory", || rig.rooms.memory_bytes() == 0);
}

#[test]
fn rooms_are_refused_at_the_memory_limit_of_all_rooms() {
    // One room reaches the limit.
    let mut rig = Rig::with(1, 1, RoomsOptions { memory_bytes_max: 1, ..options(vec![settings("walk")]) });
    let first = rig.open(0, "first");
    let ann = rig.join(first, "ann");
    assert_eq!(rig.wait_joined(ann), Ok(()), "at the limit");
    assert!(rig.rooms.memory_bytes() > 1);
    let second = rig.open(0, "second");
    let bob = rig.join(second, "bob");
    match rig.wait_joined(bob) {
        Err(NotJoined::Refused(refusal)) => assert_eq!(refusal.code, 106),
        // The join was read after the room had been refused.
        other => assert_eq!(other, Err(NotJoined::Unavailable), "one past it"),
    }
    wait_until("the refusal", || rig.counters().failed[FailureReason::TotalMemory as usize] == 1);
    see_ticks(&mut rig, first, 5);
    rig.close(first, UnsubscribeCode::ROOM_CLOSED);
    wait_until("its memory", || rig.rooms.memory_bytes() == 0);
    let third = rig.open(0, "third");
    let cid = rig.join(third, "cid");
    assert_eq!(rig.wait_joined(cid), Ok(()));
}
