//! Limits of bytes per player and second.

use std::num::NonZeroU32;

use dunlin_engine::counters::NamespaceRoomCounters;
use dunlin_protocol::Encoding;

use crate::hall::{Hall, options};

const ARENA: &str = "arena:a";
const TICK_US: u64 = 16_667;
const SECONDS: u64 = 10;

/// Ten seconds of two players; checks after each tick that no player was sent more than the limit allows.
fn play(limit: Option<u32>) -> NamespaceRoomCounters {
    let mut options = options();
    let room = options.namespaces.last_mut().and_then(|arena| arena.room.as_mut()).expect("rooms");
    room.frame_bytes_per_second = limit.and_then(NonZeroU32::new);
    let mut hall = Hall::new(1, options);
    hall.gather(&[("a", Encoding::Json, 0), ("b", Encoding::Protobuf, 0)], ARENA);
    let rooms = |hall: &Hall| hall.node.shards[0].counters().namespaces[1].rooms;
    let (mut before, mut largest) = (rooms(&hall).frame_bytes, 0);
    for tick in 1..=SECONDS * 60 {
        hall.node.step_to(hall.node.now.mono_us + TICK_US);
        hall.tick();
        let sent = rooms(&hall).frame_bytes;
        largest = largest.max(sent - before);
        before = sent;
        if let Some(limit) = limit {
            // For both: what was saved up, what has come since, and a frame that is owed, before and after a first one.
            let allowed = 2 * u64::from(limit) * (1_000_000 + tick * TICK_US) / 1_000_000;
            assert!(sent <= allowed + 2 * largest + 8_192, "{sent} bytes after {tick} ticks, {allowed} are allowed");
        }
    }
    // After some silence they are sent the newest tick, and nothing is missing.
    hall.node.step_to(hall.node.now.mono_us + 60_000_000);
    hall.tick();
    hall.check("a", ARENA);
    hall.check("b", ARENA);
    rooms(&hall)
}

#[test]
fn over_the_limit_ticks_are_skipped_and_the_bytes_stay_below_it() {
    let free = play(None);
    assert_eq!((free.limited_ticks, free.far_postponed, free.skipped_ticks), (0, 0, 0));
    let per_player_and_second = (free.frame_bytes / 2 / SECONDS) as u32;

    let ample = play(Some(per_player_and_second * 8));
    assert_eq!((ample.limited_ticks, ample.frames, ample.frame_bytes), (0, free.frames, free.frame_bytes));

    let scarce = play(Some(per_player_and_second / 8));
    assert!(scarce.limited_ticks > 0, "{scarce:?}");
    assert!(scarce.frames > 2 * SECONDS && scarce.frames < free.frames / 2, "{scarce:?}");
    assert_eq!(scarce.frames + scarce.limited_ticks, free.frames);
}
