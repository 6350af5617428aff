//! Tests of stored rooms, with room threads and a storage.

mod migration;

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use dunlin_config::{RoomSettings, RoomSurvival};
use dunlin_engine::{
    ShardIndex,
    room::{FromRoom, NotJoined, RoomKey, SeatClaim, SeatKey, SeatToken},
};
use dunlin_protocol::UnsubscribeCode;
use dunlin_rooms::{CallId, GameCall, RoomOverrides};
use dunlin_storage::{EntryBatch, StorageOptions};

use super::rig::{Rig, options, settings, wait_until};
use crate::{
    node::{NodeStorage, ShardQueues},
    rooms::{
        FailureReason, SurvivalReport, ThreadWaker,
        held_ticks::{HeldTick, HeldTicks},
        survival::{CheckpointPieces, KeptRooms, PART_BYTES},
    },
};

/// The directory of a storage, removed on drop.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("dunlin-survival-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).expect("the directory for temporary files can be written");
        Self(path)
    }

    fn open(&self) -> Arc<NodeStorage> {
        self.open_for(false)
    }

    fn open_for(&self, is_development: bool) -> Arc<NodeStorage> {
        let options = StorageOptions { is_development, ..StorageOptions::at(&self.0) };
        Arc::new(NodeStorage::open(&options, ShardQueues::new(1)).expect("a storage").0)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn kept(survival: RoomSurvival) -> RoomSettings {
    RoomSettings { survival, empty_timeout_ms: 1_000_000, ..settings("walk") }
}

fn start(storage: &Arc<NodeStorage>, settings: RoomSettings) -> Rig {
    Rig::with_storage(1, 1, options(vec![settings]), Some(Arc::clone(storage)))
}

/// A process may end when nobody uses the files of the database any more.
#[test]
fn a_storage_ends_with_its_last_user() {
    let directory = Directory::new();
    let open = || NodeStorage::open(&StorageOptions::at(&directory.0), ShardQueues::new(1)).expect("a storage");
    let (storage, end) = open();
    let shard = Arc::new(storage);
    let room = Arc::clone(&shard);
    drop(shard);
    assert!(!end.wait(Duration::from_millis(1)), "a room still uses it");
    std::thread::spawn(move || drop(room));
    assert!(end.wait(Duration::from_mins(1)));
    drop(open());
}

/// Shuts a node down.
fn end(rig: Rig, storage: &Arc<NodeStorage>) {
    rig.stop();
    drop(rig);
    storage.storage().close();
    // The watchdog releases the storage last, which unlocks the directory.
    wait_until("the threads to release the storage", || Arc::strong_count(storage) == 1);
}

fn survival(rig: &Rig) -> SurvivalReport {
    rig.rooms.survival().expect("there is a storage")
}

fn join_as(rig: &mut Rig, room: RoomKey, user: &str, number: u128, returned: Option<SeatToken>) -> SeatKey {
    let given = Some(SeatToken(number));
    rig.join_with(room, user, SeatClaim { given, returned, is_one_per_user: false, keeps_returned: true })
}

/// Waits for a tick that names a player; returns the tick and the player's own object.
fn see_player(rig: &mut Rig, seat: SeatKey) -> (u32, u32) {
    let mut seen = None;
    rig.take_until("a tick with the player", |message| {
        let FromRoom::Tick { update, changes, .. } = message else { return false };
        seen = changes.iter().find(|change| change.seat == seat).map(|change| (update.tick(), change.avatar));
        seen.is_some()
    });
    seen.expect("it was waited for")
}

fn see_tick(rig: &mut Rig, after: u32) -> u32 {
    let mut tick = 0;
    rig.take_until("a later tick", |message| {
        if let FromRoom::Tick { update, .. } = message {
            tick = update.tick();
        }
        tick > after
    });
    tick
}

#[test]
fn a_room_and_its_player_survive_a_clean_shutdown() {
    for mode in [RoomSurvival::Checkpoint, RoomSurvival::Exact] {
        let directory = Directory::new();
        let storage = directory.open();
        let mut rig = start(&storage, kept(mode));
        let room = rig.open(0, "a");
        let ann = join_as(&mut rig, room, "", 7, None);
        assert_eq!(rig.wait_joined(ann), Ok(()));
        let (tick, avatar) = see_player(&mut rig, ann);
        let seen = see_tick(&mut rig, tick + 20);
        end(rig, &storage);
        drop(storage);

        let storage = directory.open();
        let mut rig = start(&storage, kept(mode));
        let room = rig.open(0, "a");
        let ann = join_as(&mut rig, room, "", 8, Some(SeatToken(7)));
        assert_eq!(rig.wait_joined(ann), Ok(()));
        let (tick, again) = see_player(&mut rig, ann);
        assert!(tick > seen && again == avatar, "{mode:?}: {tick} after {seen}, {again} is {avatar}");
        let report = survival(&rig);
        assert_eq!((report.restored, report.not_restored), (1, 0), "{mode:?}");
        end(rig, &storage);
    }
}

#[test]
fn exact_survival_loses_nothing_visible_in_a_crash() {
    let directory = Directory::new();
    let storage = directory.open();
    // With this interval, the only checkpoint is that of tick 0 or 1.
    let exact = RoomSettings { checkpoint_interval_ms: 1_000_000, ..kept(RoomSurvival::Exact) };
    let mut rig = start(&storage, exact.clone());
    let room = rig.open(0, "a");
    let ann = join_as(&mut rig, room, "ann", 7, None);
    assert_eq!(rig.wait_joined(ann), Ok(()));
    let (tick, avatar) = see_player(&mut rig, ann);
    for number in 1..=30 {
        rig.input(room, ann, number, b"right");
    }
    let seen = see_tick(&mut rig, tick + 40);
    // Later writes of the threads are lost, as in a crash.
    storage.storage().close();
    let copy = storage;
    drop(rig);
    drop(copy);

    let storage = loop {
        // The directory stays locked until the threads of the first node have ended.
        match NodeStorage::open(&StorageOptions::at(&directory.0), ShardQueues::new(1)) {
            Ok((storage, _)) => break Arc::new(storage),
            Err(error) if error.fault.label() == "locked" => std::thread::sleep(Duration::from_millis(1)),
            Err(error) => panic!("{error}"),
        }
    };
    let mut rig = start(&storage, exact);
    let room = rig.open(0, "a");
    let ann = join_as(&mut rig, room, "ann", 8, None);
    assert_eq!(rig.wait_joined(ann), Ok(()));
    let (tick, again) = see_player(&mut rig, ann);
    let report = survival(&rig);
    assert!(report.restored == 1 && report.replayed_ticks >= 40, "{report:?}");
    assert!(tick > seen && again == avatar, "{tick} after {seen}");
    end(rig, &storage);
}

#[test]
fn a_closed_room_is_removed_from_the_storage() {
    let directory = Directory::new();
    let storage = directory.open();
    let mut rig = start(&storage, kept(RoomSurvival::Exact));
    let room = rig.open(0, "a");
    let ann = join_as(&mut rig, room, "ann", 7, None);
    let (tick, _) = see_player(&mut rig, ann);
    let seen = see_tick(&mut rig, tick + 20);
    rig.close(room, UnsubscribeCode::ROOM_CLOSED);
    let room = rig.open(0, "a");
    let ann = join_as(&mut rig, room, "ann", 8, None);
    let (tick, _) = see_player(&mut rig, ann);
    assert!(tick < seen, "a new world");
    assert_eq!(survival(&rig).restored, 0);
    let kept = rig.rooms.kept().expect("there is a storage");
    let closed = kept.claim_of("a");
    assert!(closed.is_some());
    rig.close(room, UnsubscribeCode::ROOM_CLOSED);
    kept.forget("a", closed).expect("it is deleted");
    assert_eq!(storage.storage().rooms_with_checkpoints(None, 9), Ok(vec![]), "also after a crash");
    drop(kept);
    wait_until("no room", || rig.rooms.rooms().is_empty());
    end(rig, &storage);
    assert_eq!(storage.storage().rooms_with_checkpoints(None, 9), Ok(vec![]));
}

#[test]
fn joins_may_ask_again_for_a_room_whose_entries_another_one_still_has() {
    let directory = Directory::new();
    let storage = directory.open();
    let mut rig = start(&storage, RoomSettings { tick_stuck_timeout_ms: 200, ..kept(RoomSurvival::Checkpoint) });
    let first = rig.open(0, "a");
    let ann = rig.join(first, "ann");
    assert_eq!(rig.wait_joined(ann), Ok(()));
    let second = rig.open(0, "a");
    let ben = rig.join(second, "ben");
    assert_eq!(rig.wait_joined(ben), Err(NotJoined::Unavailable));
    wait_until("the failure", || rig.counters().failed[FailureReason::Storage as usize] == 1);
    end(rig, &storage);
}

/// A queue that is full for a moment says nothing about what is stored.
#[test]
fn joins_may_ask_again_for_a_room_whose_storage_accepts_nothing_now() {
    let directory = Directory::new();
    let storage = directory.open();
    let mut rig = start(&storage, kept(RoomSurvival::Exact));
    // As a full queue, a closed storage accepts nothing.
    storage.storage().close();
    let room = rig.open(0, "a");
    let ann = rig.join(room, "ann");
    assert_eq!(rig.wait_joined(ann), Err(NotJoined::Unavailable));
    wait_until("the failure", || rig.counters().failed[FailureReason::Storage as usize] == 1);
    assert_eq!((survival(&rig).not_restored, rig.counters().ticks), (0, 0));
    end(rig, &storage);
}

#[test]
fn an_unusable_checkpoint_keeps_its_room_closed_until_it_is_discarded() {
    let directory = Directory::new();
    let storage = directory.open();
    let mut batch = EntryBatch::new(false);
    batch.put_checkpoint("a", 1, 60, vec![1, 2, 3]);
    storage.storage().write_entries(batch, Box::new(|_| {})).expect("it is written");
    let mut rig = start(&storage, kept(RoomSurvival::Checkpoint));
    let (mut refused, mut tries) = (0, 0);
    while refused < 2 {
        tries += 1;
        let room = rig.open(0, "a");
        let ann = rig.join(room, "ann");
        match rig.wait_joined(ann) {
            Err(NotJoined::Refused(refusal)) => {
                assert_eq!((refusal.code, &*refusal.message), (400, "the room cannot be restored"));
                refused += 1;
            }
            // The room failed before the join arrived.
            Err(NotJoined::Gone | NotJoined::Unavailable) => {}
            outcome => panic!("{outcome:?}"),
        }
        assert_eq!(rig.counters().failed[FailureReason::Restore as usize], tries);
        assert_eq!(survival(&rig).not_restored, tries);
    }
    rig.rooms.kept().expect("there is a storage").forget("a", None).expect("it is deleted");
    let room = rig.open(0, "a");
    let ann = rig.join(room, "ann");
    assert_eq!(rig.wait_joined(ann), Ok(()));
    end(rig, &storage);
}

/// Players whose room moves ask for it.
#[test]
fn a_room_without_state_is_not_continued() {
    for has_state in [false, true] {
        let directory = Directory::new();
        if has_state {
            let storage = directory.open();
            let mut rig = start(&storage, kept(RoomSurvival::Exact));
            let room = rig.open(0, "a");
            let ann = join_as(&mut rig, room, "", 7, None);
            assert_eq!(rig.wait_joined(ann), Ok(()));
            see_player(&mut rig, ann);
            end(rig, &storage);
        }
        let storage = directory.open();
        let mut rig = start(&storage, kept(RoomSurvival::Exact));
        rig.open_with("a", RoomOverrides { continues: true, ..RoomOverrides::default() });
        if has_state {
            wait_until("the room to go on", || survival(&rig).restored == 1);
        } else {
            wait_until("the failure", || rig.counters().failed[FailureReason::NoState as usize] == 1);
            // The join of a client opens a new room.
            let room = rig.open(0, "a");
            let ann = join_as(&mut rig, room, "", 7, None);
            assert_eq!(rig.wait_joined(ann), Ok(()));
        }
        end(rig, &storage);
    }
}

/// The joins that wait for such a room: those of its players end, and others ask again.
#[test]
fn joins_to_a_room_without_state() {
    let directory = Directory::new();
    let storage = directory.open();
    let mut rig = start(&storage, kept(RoomSurvival::Exact));
    let (mut tries, mut refused) = (0, 0);
    while refused < 2 {
        tries += 1;
        let room = RoomKey { owner: ShardIndex(0), number: tries };
        rig.open_with("a", RoomOverrides { continues: true, ..RoomOverrides::default() });
        let kept = rig.join_with(room, "", SeatClaim::keeping(SeatToken(7)));
        let ann = join_as(&mut rig, room, "ann", 8, None);
        match rig.wait_joined(kept) {
            Err(NotJoined::Gone) => refused += 1,
            // The room failed before the join arrived.
            outcome => assert_eq!(outcome, Err(NotJoined::Unavailable)),
        }
        assert_eq!(rig.wait_joined(ann), Err(NotJoined::Unavailable));
        assert_eq!(rig.counters().failed[FailureReason::NoState as usize], tries);
    }
    end(rig, &storage);
}

#[test]
fn in_development_a_room_whose_checkpoint_is_unusable_begins_anew() {
    for mode in [RoomSurvival::Checkpoint, RoomSurvival::Exact] {
        let directory = Directory::new();
        let storage = directory.open_for(true);
        let mut batch = EntryBatch::new(false);
        // A new room begins with the first tick, so this checkpoint would stay the newest.
        batch.put_checkpoint("a", 1, u64::MAX, vec![1, 2, 3]);
        storage.storage().write_entries(batch, Box::new(|_| {})).expect("it is written");
        let mut rig = start(&storage, kept(mode));
        let room = rig.open(0, "a");
        let ann = rig.join(room, "ann");
        assert_eq!(rig.wait_joined(ann), Ok(()));
        let report = survival(&rig);
        assert_eq!((report.restored, report.not_restored), (0, 1), "{mode:?}");
        end(rig, &storage);
        drop(storage);

        let storage = directory.open_for(true);
        let mut rig = start(&storage, kept(mode));
        rig.open(0, "a");
        wait_until("the room to go on", || survival(&rig).restored == 1);
        end(rig, &storage);
    }
}

#[test]
fn a_checkpoint_at_the_limit_is_written_and_one_past_it_is_not() {
    // Measure the size of a checkpoint.
    let directory = Directory::new();
    let storage = directory.open();
    let seeded = RoomSettings { seed: Some(1), ..kept(RoomSurvival::Exact) };
    let size_bytes = {
        let mut rig = start(&storage, seeded.clone());
        rig.open(0, "a");
        wait_until("a checkpoint", || survival(&rig).checkpoints > 0);
        let report = survival(&rig);
        (report.checkpoint_bytes / report.checkpoints) as usize
    };
    for (bytes_max, is_open) in [(size_bytes, true), (size_bytes - 1, false)] {
        let directory = Directory::new();
        let storage = directory.open();
        let limited = RoomSettings { checkpoint_bytes_max: bytes_max, ..seeded.clone() };
        let mut rig = start(&storage, limited);
        rig.open(0, "a");
        let written = if is_open { (1, 0) } else { (0, 1) };
        wait_until("an outcome", || {
            let report = survival(&rig);
            (report.checkpoints.min(1), report.checkpoints_failed.min(1)) == written
        });
        end(rig, &storage);
    }
}

#[test]
fn held_ticks_are_limited_and_released_in_order() {
    let directory = Directory::new();
    let storage = directory.open();
    let rooms = Arc::new(KeptRooms::on_disk(Arc::clone(&storage)));
    let waker = Arc::new(ThreadWaker::default());
    let entries = rooms.claim(&Arc::from("a"), Arc::clone(&waker), Duration::ZERO).expect("the entries are unclaimed");
    assert!(rooms.claim(&Arc::from("a"), waker, Duration::ZERO).is_none(), "it has a room");
    let mut held = HeldTicks::new(Arc::clone(&entries), 3);
    let load = |tick: u16| vec![(ShardIndex(0), FromRoom::Load { permille: tick, rooms: 0 })];
    let mut outgoing = Vec::new();
    for tick in 1..=3 {
        assert!(!held.is_full());
        let calls = vec![GameCall { id: CallId(tick.into()), method: "m".into(), data: Bytes::new() }];
        held.hold(HeldTick { tick_count: tick.into(), messages: load(tick), calls });
    }
    assert!(held.is_full());
    assert!(held.release(&mut outgoing).is_empty() && outgoing.is_empty());
    for tick in [1, 2] {
        entries.write_record(tick, vec![0]).expect("it is queued");
    }
    wait_until("two records", || entries.logged() == 2);
    let released: Vec<_> = held.release(&mut outgoing).into_iter().map(|call| call.id.0).collect();
    assert_eq!(released, [1, 2], "calls wait for the log as well");
    let ticks: Vec<u16> = outgoing
        .iter()
        .map(|(_, message)| if let FromRoom::Load { permille, .. } = message { *permille } else { 0 })
        .collect();
    assert_eq!((ticks, held.is_full(), held.is_empty()), (vec![1, 2], false, false));
    assert_eq!(held.take_calls().iter().map(|call| call.id.0).collect::<Vec<_>>(), [3], "of a room that ends for ever");
    held.discard(&NotJoined::Unavailable, &mut outgoing);
    assert_eq!(outgoing.len(), 2, "messages without a waiting join are dropped");
    // Nothing is written after the end.
    entries.end(true);
    entries.write_record(9, vec![0]).expect("it is ignored");
    storage.storage().close();
    assert_eq!(storage.storage().rooms_with_checkpoints(None, 9), Ok(vec![]));
}

/// Bytes that differ by tick and position.
fn world(tick: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|place| (place.wrapping_mul(0x9e37_79b9) >> 13) as u8 ^ tick as u8).collect()
}

#[test]
fn a_large_checkpoint_is_written_in_parts_and_read_as_one() {
    const OTHER_PARTS: u8 = 4;
    let directory = Directory::new();
    let storage = directory.open();
    let rooms = Arc::new(KeptRooms::on_disk(Arc::clone(&storage)));
    let entries = rooms.claim(&Arc::from("a"), Arc::default(), Duration::ZERO).expect("the entries are unclaimed");
    let newest =
        || entries.newest_checkpoint(&|| ()).expect("it can be read").map(|found| (found.tick, found.bytes.into_vec()));
    let parts =
        || storage.storage().checkpoints("a", OTHER_PARTS, 0..=u64::MAX, usize::MAX).expect("they can be read").len();
    assert_eq!(newest(), None);
    let sizes = [PART_BYTES, PART_BYTES + 1, 5 * PART_BYTES + 7, 10, 300 * PART_BYTES, 2 * PART_BYTES];
    for (tick, bytes) in (1..).zip(sizes) {
        entries.write_record(tick, vec![0]).expect("it is queued");
        entries.write_checkpoint(tick, world(tick, bytes), CheckpointPieces::Parts).expect("it is queued");
        wait_until("it is written", || rooms.report().checkpoints == tick);
        let (found_tick, found) = newest().expect("there is one");
        assert!((found_tick, &found) == (tick, &world(tick, bytes)), "{tick}: {} bytes", found.len());
        assert!(entries.records(0, 1_000).expect("they can be read").is_empty(), "the log begins behind it");
        assert_eq!(parts(), bytes.div_ceil(PART_BYTES.max(bytes.div_ceil(256))) - 1);
    }
    // An incomplete checkpoint, as a crash leaves it, is ignored, and the next checkpoint removes its parts.
    let mut batch = EntryBatch::new(false);
    batch.put_checkpoint("a", OTHER_PARTS, 9 << 8, vec![1]);
    storage.storage().write_entries(batch, Box::new(|_| {})).expect("there is room");
    assert_eq!(newest().map(|(tick, _)| tick), Some(6));
    assert_eq!(parts(), 2);
    entries.write_checkpoint(10, world(10, 10), CheckpointPieces::Parts).expect("it is queued");
    wait_until("it is written", || rooms.report().checkpoints == 7);
    assert_eq!((newest(), parts()), (Some((10, world(10, 10))), 0));
    // The checkpoint in one piece is queued before the storage closes.
    entries.write_checkpoint(11, world(11, 4 * PART_BYTES), CheckpointPieces::Parts).expect("it is queued");
    entries.write_checkpoint(12, world(12, 3 * PART_BYTES), CheckpointPieces::One).expect("it is queued");
    storage.storage().close();
    drop((entries, rooms, storage));
    let rooms = Arc::new(KeptRooms::on_disk(directory.open()));
    let entries = rooms.claim(&Arc::from("a"), Arc::default(), Duration::ZERO).expect("the entries are unclaimed");
    let newest = entries.newest_checkpoint(&|| ()).expect("it can be read").expect("there is one");
    assert!((newest.tick, newest.bytes.into_vec()) == (12, world(12, 3 * PART_BYTES)));
}

/// A room with `exact` needs its first checkpoint: records without one are worth nothing.
#[test]
fn a_checkpoint_that_comes_before_a_log_fails_if_it_is_not_queued() {
    let directory = Directory::new();
    let storage = directory.open();
    let rooms = Arc::new(KeptRooms::on_disk(Arc::clone(&storage)));
    let entries = rooms.claim(&Arc::from("a"), Arc::default(), Duration::ZERO).expect("the entries are unclaimed");
    // As a full queue, a closed storage accepts nothing.
    storage.storage().close();
    for pieces in [CheckpointPieces::One, CheckpointPieces::WithoutLog] {
        entries.write_checkpoint(1, world(1, 10), pieces).expect_err("it is not queued");
    }
    assert_eq!(rooms.report().checkpoints_failed, 2);
}

#[test]
fn the_newest_checkpoint_replaces_the_queued_one() {
    let directory = Directory::new();
    let storage = directory.open();
    let rooms = Arc::new(KeptRooms::on_disk(Arc::clone(&storage)));
    let entries = rooms.claim(&Arc::from("a"), Arc::default(), Duration::ZERO).expect("the entries are unclaimed");
    for tick in 1..=20 {
        entries.write_checkpoint(tick, world(tick, 8 * PART_BYTES), CheckpointPieces::Parts).expect("it is queued");
    }
    wait_until("each is written or replaced", || {
        let report = rooms.report();
        report.checkpoints + report.checkpoints_failed == 20
    });
    let newest = entries.newest_checkpoint(&|| ()).expect("it can be read").expect("there is one");
    assert!((newest.tick, newest.bytes.into_vec()) == (20, world(20, 8 * PART_BYTES)));
    entries.end(true);
    storage.storage().close();
    assert_eq!(storage.storage().rooms_with_checkpoints(None, 9), Ok(vec![]), "all parts go with the room");
}
