//! The bandwidth limit per player.

use std::num::NonZeroU32;

use dunlin_engine::counters::NamespaceRoomCounters;
use dunlin_protocol::Encoding;
use dunlin_rooms::GridShape;

use crate::hall::{Hall, Meadow, options};

const ARENA: &str = "arena:a";
const TICK_US: u64 = 16_667;
const SECONDS: u64 = 10;

/// A node whose rooms have the given meadow.
fn hall(limit: Option<u32>, meadow: Meadow) -> Hall {
    let mut options = options();
    let room = options.namespaces.last_mut().and_then(|arena| arena.room.as_mut()).expect("rooms");
    room.frame_bytes_per_second = limit.and_then(NonZeroU32::new);
    let mut hall = Hall::new(1, options);
    hall.meadow = meadow;
    hall
}

fn rooms(hall: &Hall) -> NamespaceRoomCounters {
    hall.node.shards[0].counters().namespaces[1].rooms
}

/// Runs ten seconds with two players; checks after each tick that no player was sent more than the limit allows.
fn play(limit: Option<u32>, meadow: Meadow) -> NamespaceRoomCounters {
    let mut hall = hall(limit, meadow);
    hall.gather(&[("a", Encoding::Json, 0), ("b", Encoding::Protobuf, 0)], ARENA);
    let (mut before, mut largest) = (rooms(&hall).frame_bytes, 0);
    for tick in 1..=SECONDS * 60 {
        hall.node.step_to(hall.node.now.mono_us + TICK_US);
        hall.tick();
        let sent = rooms(&hall).frame_bytes;
        largest = largest.max(sent - before);
        before = sent;
        if let Some(limit) = limit {
            // For both players: the burst, the refill since then, and one frame of debt, before and after a first
            // frame.
            let allowed = 2 * u64::from(limit) * (1_000_000 + tick * TICK_US) / 1_000_000;
            assert!(sent <= allowed + 2 * largest + 8_192, "{sent} bytes after {tick} ticks, {allowed} are allowed");
        }
    }
    // After a pause they receive the newest tick, and nothing is missing.
    hall.node.step_to(hall.node.now.mono_us + 60_000_000);
    hall.tick();
    hall.check("a", ARENA);
    hall.check("b", ARENA);
    rooms(&hall)
}

#[test]
fn ticks_are_skipped_to_stay_below_the_bandwidth_limit() {
    let free = play(None, Meadow::default());
    assert_eq!((free.limited_ticks, free.far_postponed, free.skipped_ticks), (0, 0, 0));
    let per_player_and_second = (free.frame_bytes / 2 / SECONDS) as u32;

    let ample = play(Some(per_player_and_second * 8), Meadow::default());
    assert_eq!((ample.limited_ticks, ample.frames, ample.frame_bytes), (0, free.frames, free.frame_bytes));

    let scarce = play(Some(per_player_and_second / 8), Meadow::default());
    assert!(scarce.limited_ticks > 0, "{scarce:?}");
    assert!(scarce.frames > 2 * SECONDS && scarce.frames < free.frames / 2, "{scarce:?}");
    assert_eq!(scarce.frames + scarce.limited_ticks, free.frames);
}

#[test]
fn far_cells_wait_before_ticks_are_skipped() {
    let shape = GridShape { far_cells: 2, ..Meadow::default().shape };
    let meadow = Meadow { shape, sheep: 800, is_quiet: false };
    let free = play(None, meadow);
    assert_eq!((free.limited_ticks, free.far_postponed), (0, 0));
    let per_player_and_second = (free.frame_bytes / 2 / SECONDS) as u32;

    let less = play(Some(per_player_and_second / 10 * 7), meadow);
    assert!(less.far_postponed > 0, "{less:?}");
    assert_eq!((less.limited_ticks, less.frames), (0, free.frames), "near cells are sent with each tick");

    let scarce = play(Some(per_player_and_second / 5), meadow);
    assert!(scarce.far_postponed > 0 && scarce.limited_ticks > 0, "{scarce:?}");
}

/// A player who has exhausted its allowance jumps away and gets the full state of its new view. The allowance refills
/// for longer than the history of ticks reaches back, and the room does not change in that time.
#[test]
fn frames_resume_after_a_burst_used_the_allowance() {
    let shape = GridShape { near_cells: 4, ..Meadow::default().shape };
    let meadow = Meadow { shape, sheep: 800, is_quiet: true };
    let join = [("a", Encoding::Json, 0)];
    let mut free = hall(None, meadow);
    free.gather(&join, ARENA);
    free.tick();
    let limit = 2 * rooms(&free).frame_bytes as u32;

    let mut hall = hall(Some(limit), meadow);
    hall.gather(&join, ARENA);
    let mut number = 0;
    while rooms(&hall).limited_ticks == 0 {
        number += 1;
        assert!(number < 10, "the allowance is exhausted after a few jumps");
        hall.send("a", "", number, if number % 2 == 1 { &[240, 240] } else { &[0, 0] });
        ticks(&mut hall, 1);
    }
    ticks(&mut hall, 150);
    let (before, seconds) = (rooms(&hall), 2);
    ticks(&mut hall, seconds * 60);
    let after = rooms(&hall);
    assert_eq!(after.frames - before.frames, seconds * 60, "a frame with each tick");
    assert!(after.frame_bytes - before.frame_bytes <= seconds * u64::from(limit));
    hall.check("a", ARENA);
}

fn ticks(hall: &mut Hall, count: u64) {
    for _ in 0..count {
        hall.node.step_to(hall.node.now.mono_us + TICK_US);
        hall.tick();
    }
}
