//! Room threads with correct and with faulty games. The test acts as the shard.

mod bounds;
mod builder;
pub(super) mod games;
mod replay;
pub(super) mod rig;
mod survival;

use std::sync::atomic::Ordering;

use dunlin_config::{OverrunPolicy, RoomSettings};
use dunlin_engine::{
    host::TokensRefused,
    room::{FromRoom, NotJoined, RoomKey, SeatClaim, SeatKey, SeatToken},
};
use dunlin_protocol::UnsubscribeCode;
use dunlin_rooms::ClockRate;

use super::{FailureReason, scheduled_room::Stats};
use rig::{Rig, recording_in, settings, wait_until};

#[test]
fn a_room_opens_ticks_and_closes() {
    let mut rig = Rig::start(1, vec![settings("walk")]);
    let room = rig.open(0, "a");
    let seat = rig.join(room, "ann");
    assert_eq!(rig.wait_joined(seat), Ok(()));
    // The keyframe comes before the tick that names the player, and ticks follow one another.
    let mut seen_keyframe = false;
    let mut last_tick = 0;
    let mut named = false;
    rig.take_until("ten ticks", |message| match message {
        FromRoom::Keyframe { keyframe, .. } => {
            assert!(keyframe.is_keyframe() && !named);
            seen_keyframe = true;
            false
        }
        FromRoom::Tick { update, changes, .. } => {
            named |= changes.iter().any(|change| change.seat == seat);
            assert!(seen_keyframe || !named);
            assert!(last_tick == 0 || update.tick() == last_tick + 1, "{} after {last_tick}", update.tick());
            last_tick = update.tick();
            named && last_tick >= 10
        }
        _ => false,
    });
    rig.close(room, UnsubscribeCode::ROOM_CLOSED);
    rig.take_until("the end", |message| matches!(message, FromRoom::Over { code: UnsubscribeCode::ROOM_CLOSED, .. }));
    wait_until("no room", || rig.rooms.rooms().is_empty());
    let counters = rig.counters();
    assert_eq!((counters.opened, counters.closed, counters.joins), (1, 1, 1));
    assert!(counters.ticks >= 10 && counters.tick_duration.count() == counters.ticks);
}

#[test]
fn inputs_are_acknowledged_and_counted_as_taken() {
    let mut rig = Rig::start(1, vec![settings("walk")]);
    let room = rig.open(0, "a");
    let seat = rig.join(room, "ann");
    assert_eq!(rig.wait_joined(seat), Ok(()));
    for number in 1..=50 {
        rig.input(room, seat, number, b"right");
    }
    rig.input(room, seat, 51, b"no such input");
    let (mut taken, mut ack) = (0, 0);
    rig.take_until("the last input", |message| {
        if let FromRoom::Tick { changes, inputs_taken, .. } = message {
            taken += inputs_taken;
            ack = changes.iter().find(|change| change.seat == seat).map_or(ack, |change| change.ack);
        }
        taken == 51 && ack == 51
    });
    let counters = rig.counters();
    assert_eq!((counters.inputs, counters.undecodable_inputs), (51, 1));
}

#[test]
fn events_reach_the_owner_with_their_audience() {
    let mut rig = Rig::start(1, vec![settings("walk")]);
    let room = rig.open(0, "a");
    let seat = rig.join(room, "ann");
    assert_eq!(rig.wait_joined(seat), Ok(()));
    rig.input(room, seat, 1, b"whisper");
    rig.take_until("the event", |message| {
        let FromRoom::Event { audience: Some(audience), channel, .. } = message else { return false };
        assert_eq!((&**channel, &audience.seats[..]), ("a", &[seat][..]));
        assert_eq!(audience.users.iter().map(|user| &**user).collect::<Vec<_>>(), ["ann"]);
        true
    });
    rig.input(room, seat, 2, b"publish");
    rig.take_until(
        "the publication",
        |message| matches!(message, FromRoom::Publish { channel, .. } if &**channel == "board"),
    );
}

#[test]
fn spectators_and_returning_players_are_not_counted_as_new_players() {
    let mut rig = Rig::start(1, vec![RoomSettings { seat_grace_ms: 60_000, ..settings("walk") }]);
    let room = rig.open(0, "a");
    let claim = |given, returned: Option<u128>| SeatClaim {
        given: Some(SeatToken(given)),
        returned: returned.map(SeatToken),
        is_one_per_user: false,
        keeps_returned: true,
    };
    let seat = rig.join_with(room, "ann", claim(1, None));
    let watching = rig.watch(room);
    assert_eq!((rig.wait_joined(seat), rig.wait_joined(watching)), (Ok(()), Ok(())));
    let counts = |rig: &Rig| {
        let rooms = rig.rooms.rooms();
        rooms.first().map(|room| (room.players, room.players_away, room.spectators, room.players_joined))
    };
    wait_until("the counts", || counts(&rig) == Some((1, 0, 1, 1)));
    rig.lose(room, seat);
    wait_until("a player who is away", || counts(&rig) == Some((0, 1, 1, 1)));
    let seat = rig.join_with(room, "ann", claim(2, Some(1)));
    assert_eq!(rig.wait_joined(seat), Ok(()));
    wait_until("the player", || counts(&rig) == Some((1, 0, 1, 1)));
    let ben = rig.join_with(room, "ben", claim(3, None));
    assert_eq!(rig.wait_joined(ben), Ok(()));
    wait_until("a new player", || counts(&rig) == Some((2, 0, 1, 2)));
    let threads = rig.rooms.threads();
    assert_eq!((threads[0].players, threads[0].spectators), (2, 1));
}

#[test]
fn an_empty_room_reports_it_and_continues_until_it_is_closed() {
    let mut rig = Rig::start(1, vec![RoomSettings { empty_timeout_ms: 50, ..settings("walk") }]);
    let room = rig.open(0, "a");
    for _ in 0..2 {
        rig.take_until("an idle room", |message| matches!(message, FromRoom::Idle { .. }));
    }
    let seat = rig.join(room, "ann");
    assert_eq!(rig.wait_joined(seat), Ok(()), "the join arrived before the close");
}

#[test]
fn a_join_to_a_missing_room_is_refused() {
    let mut rig = Rig::start(1, vec![settings("walk")]);
    let room = rig.open(0, "a");
    rig.close(room, UnsubscribeCode::ROOM_CLOSED);
    let seat = rig.join(room, "ann");
    assert_eq!(rig.wait_joined(seat), Err(NotJoined::Unavailable), "another room may be open by now");
}

#[test]
fn a_refused_join_has_the_games_error() {
    let mut rig = Rig::start(1, vec![settings("walk")]);
    let room = rig.open(0, "a");
    let seat = rig.join(room, "eve");
    let Err(NotJoined::Refused(refusal)) = rig.wait_joined(seat) else { panic!("eve is let in") };
    assert_eq!((refusal.code, &*refusal.message), (403, "not you"));
    assert_eq!(rig.counters().joins_refused, 1);
}

/// Makes one room fail, and checks that another room on the same thread is not affected.
fn one_fails_alone(
    game: &'static str,
    input: &'static [u8],
    reason: FailureReason,
    change: fn(&mut RoomSettings),
) -> Rig {
    let mut bad = settings(game);
    change(&mut bad);
    let mut rig = Rig::start(1, vec![settings("walk"), bad]);
    let (good, bad) = (rig.open(0, "good"), rig.open(1, "bad"));
    let (ann, bob) = (rig.join(good, "ann"), rig.join(bad, "bob"));
    assert_eq!(rig.wait_joined(ann), Ok(()));
    assert_eq!(rig.wait_joined(bob), Ok(()));
    rig.input(bad, bob, 1, input);
    let (mut is_over, mut is_failed) = (false, false);
    rig.take_until("the failure", |message| {
        match message {
            FromRoom::Over { room, code, .. } => {
                assert_eq!((*room, *code), (bad, UnsubscribeCode::ROOM_FAILED));
                is_over = true;
            }
            FromRoom::Failed { room, .. } => {
                assert_eq!(*room, bad);
                is_failed = true;
            }
            _ => {}
        }
        is_over && is_failed
    });
    // The other room continues with its player and its world.
    rig.input(good, ann, 1, b"right");
    rig.take_until("the other room", |message| {
        let FromRoom::Tick { room, changes, .. } = message else { return false };
        *room == good && changes.iter().any(|change| change.seat == ann && change.ack == 1)
    });
    let counters = rig.counters();
    let mut failed = [0; FailureReason::ALL.len()];
    failed[reason as usize] = 1;
    assert_eq!(counters.failed, failed);
    let rooms = rig.rooms.rooms();
    assert_eq!(rooms.iter().map(|room| &*room.channel).collect::<Vec<_>>(), ["good"]);
    // A new room with the same game is not affected either.
    let again = rig.open(1, "bad");
    let bob = rig.join(again, "bob");
    assert_eq!(rig.wait_joined(bob), Ok(()));
    rig
}

#[test]
fn a_panic_fails_only_its_room() {
    one_fails_alone("rogue", b"panic", FailureReason::Panic, |_| {});
}

#[test]
fn an_endless_tick_fails_its_room_and_abandons_the_thread() {
    let rig = one_fails_alone("rogue", b"loop", FailureReason::Stuck, |room| room.tick_stuck_timeout_ms = 1_000);
    assert_eq!(rig.counters().replaced, 1);
    // The abandoned thread returns, detects that it was replaced, and drops the game.
    let dropped = games::DROPPED_AFTER_LOOP.load(Ordering::Acquire);
    games::LOOPS_ON.store(false, Ordering::Release);
    wait_until("the old thread's end", || games::DROPPED_AFTER_LOOP.load(Ordering::Acquire) > dropped);
}

#[test]
fn a_room_over_its_memory_limit_fails() {
    // The memory that the game reports, and that of its world.
    for input in [&b"grow"[..], b"swell"] {
        let rig = one_fails_alone("rogue", input, FailureReason::Memory, |room| room.memory_bytes_max = 8 << 20);
        assert_eq!(rig.counters().replaced, 0);
    }
}

#[test]
fn a_room_may_reach_its_memory_limit() {
    let settings = RoomSettings { memory_bytes_max: 5_000, ..settings("walk") };
    let reason = |memory_bytes| {
        let mut stats = Stats::default();
        stats.memory_bytes = memory_bytes;
        stats.failure(&settings).map(|failure| failure.reason as usize)
    };
    assert_eq!(reason(5_000), None, "at the limit");
    assert_eq!(reason(5_001), Some(FailureReason::Memory as usize), "past it");
}

#[test]
fn consecutive_overruns_fail_the_room() {
    let rig = one_fails_alone("rogue", b"dawdle", FailureReason::Overrun, |room| {
        room.overrun_ticks_max = 3;
        room.room.ticks_per_second = 200;
    });
    assert!(rig.counters().overruns >= 3);
}

/// A room whose ticks take 8 ms, of intervals of 5 ms.
fn overloaded(overrun: OverrunPolicy) -> (Rig, RoomKey, SeatKey) {
    // A room that can become slower does not end.
    let overrun_ticks_max = if overrun == OverrunPolicy::Skip { 600 } else { 3 };
    let mut settings = RoomSettings { overrun, overrun_ticks_max, catch_up_ticks: 100, ..settings("rogue") };
    settings.room.ticks_per_second = 200;
    let mut rig = Rig::start(1, vec![settings]);
    let room = rig.open(0, "a");
    let seat = rig.join(room, "ann");
    assert_eq!(rig.wait_joined(seat), Ok(()));
    rig.input(room, seat, 1, b"dawdle");
    (rig, room, seat)
}

#[test]
fn the_clock_of_an_overloaded_room_is_slowed_and_recovers() {
    let rate_min = ClockRate::from_permille(100).expect("a rate");
    let (mut rig, room, seat) = overloaded(OverrunPolicy::Dilate { rate_min });
    // Ticks of 8 ms take at most 19 twentieths of the interval, which is 5 ms at full rate.
    let slow = ClockRate::from_permille(594).expect("a rate");
    let (mut ticks, mut even, mut before_us) = (0, 0, None);
    rig.take_until("a slow and even clock", |message| {
        let FromRoom::Tick { update, .. } = message else { return false };
        let interval_us = 5_000_000 / u64::from(update.rate().permille());
        // The clocks of the schedule and of the messages are read one after the other.
        let is_even = |before_us| update.time_us().abs_diff(before_us + interval_us) <= 200;
        if update.rate() <= slow {
            ticks += 1;
            even += u32::from(before_us.is_some_and(is_even));
        }
        before_us = Some(update.time_us());
        even >= 100
    });
    // A busy machine delays many ticks.
    assert!(even * 4 > ticks, "{even} of {ticks} ticks are evenly spaced");
    assert!(rig.rooms.rooms()[0].rate <= slow);
    // Although it is idle for some time between ticks.
    rig.take_until("a thread without time to spare", |message| {
        matches!(message, FromRoom::Load { permille: 1_000, .. })
    });
    rig.input(room, seat, 2, b"hurry");
    let mut lowest = ClockRate::FULL;
    rig.take_until("full rate", |message| {
        let FromRoom::Tick { update, .. } = message else { return false };
        lowest = lowest.min(update.rate());
        update.rate().is_full()
    });
    assert!(lowest <= slow);
    assert_eq!(rig.counters().skipped, 0);
    assert_eq!(rig.rooms.rooms().iter().map(|room| room.skipped).sum::<u64>(), 0);
}

/// Two rooms whose ticks take 8 ms of 10 ms, and a small one: each fits the thread alone.
#[test]
fn rooms_that_do_not_fit_one_thread_are_slowed_and_a_small_one_is_not() {
    let rate_min = ClockRate::from_permille(100).expect("a rate");
    let of = |simulation| {
        let overrun = OverrunPolicy::Dilate { rate_min };
        let mut settings = RoomSettings { overrun, catch_up_ticks: 100, ..settings(simulation) };
        settings.room.ticks_per_second = 100;
        settings
    };
    let mut rig = Rig::start(1, vec![of("rogue"), of("walk")]);
    for channel in ["a", "b"] {
        let room = rig.open(0, channel);
        let seat = rig.join(room, "ann");
        assert_eq!(rig.wait_joined(seat), Ok(()));
        rig.input(room, seat, 1, b"dawdle");
    }
    rig.open(1, "small");
    let slow = ClockRate::from_permille(650).expect("a rate");
    let rooms = &rig.rooms;
    wait_until("two slow rooms", || {
        let rooms = rooms.rooms();
        let rate = |channel| rooms.iter().find(|room| &*room.channel == channel).map(|room| room.rate);
        rate("a") < Some(slow) && rate("b") < Some(slow) && rate("small").is_some_and(ClockRate::is_full)
    });
}

#[test]
fn a_room_whose_clock_cannot_become_slower_ends_as_others() {
    let rate_min = ClockRate::from_permille(900).expect("a rate");
    let (mut rig, ..) = overloaded(OverrunPolicy::Dilate { rate_min });
    rig.take_until("the failure", |message| matches!(message, FromRoom::Failed { .. }));
    assert_eq!(rig.counters().failed[FailureReason::Overrun as usize], 1);
}

#[test]
fn an_overloaded_room_skips_ticks_by_default() {
    let (mut rig, ..) = overloaded(OverrunPolicy::default());
    let mut is_slowed = false;
    rig.take_until("some hundred ticks", |message| {
        let FromRoom::Tick { update, .. } = message else { return false };
        is_slowed |= !update.rate().is_full();
        update.tick() > 300
    });
    assert!(!is_slowed);
    assert!(rig.rooms.rooms()[0].rate.is_full());
    let counters = rig.counters();
    assert!(counters.skipped > 0 && counters.late > 0, "{} skipped, {} late", counters.skipped, counters.late);
}

#[test]
fn a_room_with_an_invalid_game_fails() {
    let mut rig = Rig::start(1, vec![settings("broken")]);
    let room = rig.open(0, "a");
    rig.join(room, "ann");
    // The join may arrive while the room is being created or after the creation has failed, so both orders are
    // possible.
    let (mut has_failed, mut is_refused) = (false, false);
    rig.take_until("the failure and the answer", |message| {
        has_failed |= matches!(message, FromRoom::Failed { .. });
        is_refused |=
            matches!(message, FromRoom::Joined { outcome: Err(NotJoined::Gone | NotJoined::Unavailable), .. });
        has_failed && is_refused
    });
    assert_eq!(rig.counters().failed[FailureReason::Start as usize], 1);
}

/// The memory of a room after 300 inputs, and after 300 more.
fn memory_of_rounds(simulation: &str, inputs: [&[u8]; 2]) -> [u64; 2] {
    let mut fast = settings(simulation);
    fast.room.ticks_per_second = 240;
    let mut rig = Rig::start(1, vec![fast]);
    let room = rig.open(0, "a");
    let seat = rig.join(room, "ann");
    assert_eq!(rig.wait_joined(seat), Ok(()));
    [1_000_u32, 2_000].map(|round| {
        for number in round + 1..=round + 300 {
            rig.input(room, seat, number, inputs[number as usize % 2]);
            rig.take_until("the input", |message| {
                let FromRoom::Tick { changes, .. } = message else { return false };
                changes.iter().any(|change| change.ack == number)
            });
        }
        rig.rooms.rooms()[0].memory_bytes
    })
}

#[test]
fn a_rooms_memory_does_not_grow_over_time() {
    let [first, second] = memory_of_rounds("walk", [b"whisper", b"publish"]);
    assert!(first > 1_000, "{first} bytes for a world");
    assert!(second.abs_diff(first) < 4_096, "{first} bytes, later {second}");
    // The same measurement finds a game that keeps something of each input.
    let [first, second] = memory_of_rounds("rogue", [b"keep"; 2]);
    assert!(second >= first + 300 * 1_000, "{first} bytes, later {second}");
}

#[test]
fn a_room_pauses_while_a_shard_receives_nothing() {
    let mut fast = settings("walk");
    fast.room.ticks_per_second = 240;
    let mut rig = Rig::with_rings(1, vec![fast], 8);
    let room = rig.open(0, "a");
    let seat = rig.join(room, "ann");
    assert_eq!(rig.wait_joined(seat), Ok(()));
    // Eight messages fit in the ring, and about as many may wait in the overflow.
    wait_until("a room that is held", || rig.counters().held >= 10);
    assert!(rig.counters().ticks < 60, "{}", rig.counters().ticks);
    rig.input(room, seat, 1, b"right");
    rig.take_until("the room to go on", |message| {
        let FromRoom::Tick { changes, .. } = message else { return false };
        changes.iter().any(|change| change.seat == seat && change.ack == 1)
    });
}

#[test]
fn messages_past_a_full_ring_wait_in_order() {
    let mut rig = Rig::with_rings(1, vec![settings("walk")], 2);
    let room = rig.open(0, "a");
    let seat = rig.join(room, "ann");
    assert_eq!(rig.wait_joined(seat), Ok(()));
    for number in 1..=100 {
        rig.input(room, seat, number, b"right");
    }
    rig.take_until("all inputs", |message| {
        let FromRoom::Tick { changes, .. } = message else { return false };
        changes.iter().any(|change| change.ack == 100)
    });
}

#[test]
fn seat_tokens_without_effect_are_counted() {
    let mut rig = Rig::start(1, vec![RoomSettings { seat_grace_ms: 60_000, ..settings("walk") }]);
    let room = rig.open(0, "a");
    let mut join = |user, given, returned: Option<u128>| {
        let (given, returned) = (Some(SeatToken(given)), returned.map(SeatToken));
        let claim = SeatClaim { given, returned, is_one_per_user: false, keeps_returned: true };
        let seat = rig.join_with(room, user, claim);
        assert_eq!(rig.wait_joined(seat), Ok(()));
    };
    join("ann", 1, None);
    join("ben", 2, Some(99));
    join("ben", 3, Some(1));
    join("", 4, Some(1));
    let expected = TokensRefused { unknown: 1, other_user: 2 };
    wait_until("the counters", || rig.counters().tokens_refused == expected);
}

#[test]
fn rooms_are_recorded_and_can_be_replayed() {
    let dir = std::env::temp_dir().join(format!("dunlin-record-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    let recorded =
        RoomSettings { recording: Some(recording_in(&dir)), seed: Some(7), seat_grace_ms: 500, ..settings("walk") };
    let mut rig = Rig::start(1, vec![recorded]);
    let room = rig.open(0, "a");
    // A spectator and two players lose their connections. One of the players returns.
    let claim = |given, returned: Option<u128>| SeatClaim {
        given: Some(SeatToken(given)),
        returned: returned.map(SeatToken),
        is_one_per_user: false,
        keeps_returned: true,
    };
    let lost =
        [rig.watch(room), rig.join_with(room, "ann", claim(1, None)), rig.join_with(room, "ben", claim(2, None))];
    for seat in lost {
        assert_eq!(rig.wait_joined(seat), Ok(()));
    }
    for seat in lost {
        rig.lose(room, seat);
    }
    let seat = rig.join_with(room, "ann", claim(3, Some(1)));
    assert_eq!(rig.wait_joined(seat), Ok(()));
    rig.input(room, seat, 1, b"right");
    rig.take_until("the input", |message| {
        let FromRoom::Tick { changes, .. } = message else { return false };
        changes.iter().any(|change| change.ack == 1)
    });
    wait_until("the end of the grace", || rig.counters().seats_expired == 1);
    // The spectator may leave in the tick of its join.
    let seat = rig.watch(room);
    rig.lose(room, seat);
    assert_eq!(rig.wait_joined(seat), Ok(()));
    let seat = rig.join(room, "dan");
    assert_eq!(rig.wait_joined(seat), Ok(()));
    rig.stop();
    let file = std::fs::read_dir(&dir).expect("the directory").next().expect("a recording").expect("its name").path();
    let bytes = std::fs::read(&file).expect("the recording");
    std::fs::remove_dir_all(&dir).expect("the directory");
    let registry = games::registry();
    let mut replay = dunlin_rooms::recording::replay(&bytes, |header| {
        assert_eq!((header.seed, &*header.simulation), (7, "walk"));
        registry.make(&header.simulation, &serde_json::Value::Null).expect("it is there").expect("it can be made")
    })
    .expect("a recording");
    assert!(replay.finish().expect("the same hashes") > 1);
    assert!(replay.player_of("ann").is_some());
}
