//! The behavior of a thread at its limits.

use std::{
    path::{Path, PathBuf},
    sync::atomic::Ordering,
};

use dunlin_config::{RecordingSettings, RoomSettings, RoomsOptions};
use dunlin_engine::{ShardIndex, room::FromRoom};

use super::{
    games,
    rig::{Rig, options, recording_in, settings, wait_until},
};
use crate::rooms::{FailureReason, RecordingReport};

/// A directory for recordings of this process.
fn record_dir(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("dunlin-record-{name}-{}", std::process::id()))
}

/// The bytes of the only recording in the directory.
fn recording(dir: &Path) -> Vec<u8> {
    let mut files = std::fs::read_dir(dir).into_iter().flatten();
    files.next().and_then(|file| std::fs::read(file.ok()?.path()).ok()).unwrap_or_default()
}

#[test]
fn a_game_that_panics_when_it_is_recorded_fails_alone() {
    let dir = record_dir("spoilt");
    super::one_fails_alone("rogue", b"spoil", FailureReason::Panic, |room| {
        room.recording = Some(recording_in(&record_dir("spoilt")));
    });
    std::fs::remove_dir_all(&dir).expect("the recordings");
}

#[test]
fn the_tick_that_a_room_fails_in_is_recorded() {
    for (name, input) in [("panic", &b"panic"[..]), ("hang", b"hang")] {
        let dir = record_dir(name);
        let recorded =
            RoomSettings { recording: Some(recording_in(&dir)), tick_stuck_timeout_ms: 500, ..settings("rogue") };
        let mut rig = Rig::start(1, vec![recorded]);
        let room = rig.open(0, "a");
        let seat = rig.join(room, "ann");
        assert_eq!(rig.wait_joined(seat), Ok(()));
        rig.input(room, seat, 1, input);
        rig.take_until("the failure", |message| matches!(message, FromRoom::Failed { .. }));
        wait_until("the last tick on disk", || recording(&dir).windows(input.len()).any(|bytes| bytes == input));
        std::fs::remove_dir_all(&dir).expect("the directory");
    }
}

#[test]
fn a_recording_beyond_the_limit_ends_and_its_room_goes_on() {
    let dir = record_dir("limit");
    // One that has ended gives way first.
    std::fs::create_dir_all(&dir).expect("a directory");
    let ended = dir.join("b-1.dunlin-room");
    std::fs::write(&ended, [0; 2_048]).expect("a file");
    let limited = RecordingSettings { bytes_max: 2_048, ..recording_in(&dir) };
    let mut rig = Rig::start(1, vec![RoomSettings { recording: Some(limited), ..settings("walk") }]);
    let room = rig.open(0, "a");
    let seat = rig.join(room, "ann");
    assert_eq!(rig.wait_joined(seat), Ok(()));
    wait_until("the end of the recording", || rig.rooms.recordings().cut == [0, 1]);
    assert!(!ended.exists());
    let RecordingReport { bytes, deletions, .. } = rig.rooms.recordings();
    assert_eq!(deletions, [1, 0, 0]);
    assert!((1..=2_048).contains(&bytes), "{bytes}");
    let kept = recording(&dir).len();
    assert!((1..=2_048).contains(&kept), "what was written is kept: {kept}");
    let tick = rig.rooms.rooms()[0].tick;
    wait_until("further ticks", || rig.rooms.rooms()[0].tick > tick + 10);
    std::fs::remove_dir_all(&dir).expect("the directory");
}

#[test]
fn rooms_open_until_the_limit_of_lost_threads() {
    let mut rogue = settings("rogue");
    rogue.tick_stuck_timeout_ms = 1_000;
    let rooms = RoomsOptions { lost_threads_max: 2, ..options(vec![settings("walk"), rogue]) };
    let mut rig = Rig::with(1, 1, rooms);
    // Two rooms may block a thread. On a busy machine, a room can fail before its game spins, and its thread then
    // returns, so the loop may need more rooms.
    while games::SPINS_BEGUN.load(Ordering::Acquire) < 2 {
        let bad = rig.open(1, "bad");
        let bob = rig.join(bad, "bob");
        if rig.wait_joined(bob) == Ok(()) {
            rig.input(bad, bob, 1, b"spin");
            rig.take_until("the failure", |message| matches!(message, FromRoom::Failed { room, .. } if *room == bad));
        }
    }
    let lost = |rig: &Rig| rig.counters().replaced - rig.counters().came_back;
    wait_until("threads that do not spin", || lost(&rig) == 2);
    let barred = |rig: &Rig| rig.counters().failed[FailureReason::Barred as usize];
    let before = barred(&rig);
    // The answer to a join would depend on whether it arrives before the room is refused.
    let bad = rig.open(1, "bad");
    rig.take_until(
        "a third thread that may not be lost",
        |message| matches!(message, FromRoom::Failed { room, .. } if *room == bad),
    );
    assert_eq!((lost(&rig), barred(&rig)), (2, before + 1));
    // Rooms of other namespaces may still open.
    let good = rig.open(0, "good");
    let ann = rig.join(good, "ann");
    assert_eq!(rig.wait_joined(ann), Ok(()));
    // Threads that have returned no longer count.
    games::SPINS_ON.store(false, Ordering::Release);
    wait_until("the lost threads", || lost(&rig) == 0);
    let bad = rig.open(1, "bad");
    let bob = rig.join(bad, "bob");
    assert_eq!(rig.wait_joined(bob), Ok(()));
}

#[test]
fn a_stalled_shard_pauses_only_its_own_rooms() {
    let mut fast = settings("walk");
    fast.room.ticks_per_second = 240;
    let mut rig = Rig::with(1, 2, RoomsOptions { ring_messages: 8, ..options(vec![fast]) });
    let (deaf, good) = (rig.open_for(ShardIndex(1), 0, "deaf"), rig.open(0, "good"));
    rig.join(deaf, "bob");
    let ann = rig.join(good, "ann");
    assert_eq!(rig.wait_joined(ann), Ok(()));
    // Sorted by channel: the room of the stalled shard, then the good one.
    let last_ticks = |rig: &Rig| rig.rooms.rooms().iter().map(|room| room.tick).collect::<Vec<_>>();
    while rig.counters().held < 10 {
        rig.take_until("a tick", |message| matches!(message, FromRoom::Tick { .. }));
    }
    let before = last_ticks(&rig);
    rig.take_until(
        "the other room",
        |message| matches!(message, FromRoom::Tick { update, .. } if update.tick() > before[1] + 100),
    );
    let after = last_ticks(&rig);
    assert_eq!(after[0], before[0], "it is held");
    assert!(after[1] > before[1] + 100);
}
