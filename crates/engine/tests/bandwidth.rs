//! The bandwidth limit per player.

use std::{
    collections::{BTreeMap, VecDeque},
    num::NonZeroU32,
};

use dunlin_engine::counters::NamespaceRoomCounters;
use dunlin_protocol::Encoding;
use dunlin_rooms::{GridShape, ObjectId, Position};

use crate::hall::{Hall, Meadow, WOLF, options};

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
    let meadow = Meadow { shape, sheep: 800, ..Meadow::default() };
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
    let meadow = Meadow { shape, sheep: 800, is_quiet: true, ..Meadow::default() };
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

/// A crowded meadow: from its center, a player sees 25 near cells in the inner zones, 56 around them, and some far cells.
const CROWD: Meadow = Meadow {
    shape: GridShape { columns: 12, rows: 12, cell_units: 100, near_cells: 4, far_cells: 1, far_interval_ticks: 2 },
    sheep: 900,
    wolves: &[],
    wolf_weight: 1,
    is_quiet: false,
};
/// The same with six wolves, at a distance of three and four cells from its center.
const WOLVES: &[Position] = &[
    Position { x: 350, y: 650 },
    Position { x: 650, y: 950 },
    Position { x: 950, y: 350 },
    Position { x: 1_050, y: 650 },
    Position { x: 250, y: 850 },
    Position { x: 650, y: 250 },
];
/// The first and the last distance of each zone of the crowded meadow, in cells.
const ZONES: [[u16; 2]; 4] = [[0, 1], [2, 2], [3, 4], [5, 5]];
/// More ticks than an object is ever old.
const KNOWN_TICKS: usize = 64;

/// What a player in the center of the crowded meadow sees.
#[derive(Debug, Default)]
struct Crowd {
    /// By zone.
    sheep: [Ages; 4],
    wolves: Ages,
    /// Sheep that the player does not see, because they have come from a cell that was sent to one that waits.
    absent: u64,
    /// Snapshots that say that cells have waited.
    waits: u64,
    bytes_per_second: u64,
    counted: NamespaceRoomCounters,
}

/// How old what a player sees of some objects is.
#[derive(Clone, Copy, Debug, Default)]
struct Ages {
    /// The number of objects, summed over all ticks.
    objects: u64,
    /// The sum of the ticks that they are old.
    age_ticks: u64,
    oldest_ticks: usize,
}

impl Ages {
    fn add(&mut self, age_ticks: usize) {
        self.objects += 1;
        self.age_ticks += age_ticks as u64;
        self.oldest_ticks = self.oldest_ticks.max(age_ticks);
    }

    fn mean_ticks(&self) -> f64 {
        self.age_ticks as f64 / self.objects as f64
    }
}

impl Crowd {
    fn mean_ages_ticks(&self) -> [f64; 4] {
        self.sheep.map(|ages| ages.mean_ticks())
    }

    fn oldest_ticks(&self) -> [usize; 4] {
        self.sheep.map(|ages| ages.oldest_ticks)
    }

    /// Compares the player's replica with the world's last ticks.
    fn observe(&mut self, hall: &Hall, past: &VecDeque<BTreeMap<ObjectId, Position>>) {
        let replica = &hall.seen["a"].replicas[ARENA];
        let grid = hall.only_room().1.room().grid();
        let now = past.back().expect("a tick");
        self.waits += u64::from(replica.waited_ticks() != [0; 4]);
        for (id, position) in
            now.iter().filter(|(_, position)| grid.band(replica.view(), grid.cell_of(**position)).is_some())
        {
            let Some(seen) = replica.object(*id) else {
                self.absent += 1;
                continue;
            };
            let age = past.iter().rev().position(|then| then.get(id) == Some(&seen.position));
            let age = age.expect("a client sees nothing that the server did not have");
            if seen.kind == WOLF {
                self.wolves.add(age);
                continue;
            }
            let (center, cell) = (grid.place(replica.view()), grid.place(grid.cell_of(*position)));
            let distance = center.0.abs_diff(cell.0).max(center.1.abs_diff(cell.1));
            let zone = ZONES.iter().position(|[_, last]| distance <= *last).expect("it is visible");
            self.sheep[zone].add(age);
        }
    }
}

/// The sheep that move, and the wolves.
fn movers(hall: &Hall) -> BTreeMap<ObjectId, Position> {
    let world = hall.only_room().1.room().world();
    let moving = world.objects().filter(|(id, object)| object.kind == WOLF || object.kind == 1 && id.0 % 4 == 0);
    moving.map(|(id, object)| (id, object.position)).collect()
}

fn crowd(limit: Option<u32>, encoding: Encoding, meadow: Meadow) -> Crowd {
    let mut hall = hall(limit, meadow);
    hall.gather(&[("a", encoding, 0)], ARENA);
    hall.publish("a", ARENA, 1, &[150, 150]);
    let mut past = VecDeque::new();
    let (mut crowd, mut before) = (Crowd::default(), NamespaceRoomCounters::default());
    // In the first seconds, the player has what it saved.
    for tick in 0..(3 + SECONDS) * 60 {
        ticks(&mut hall, 1);
        past.push_back(movers(&hall));
        past.drain(..past.len().saturating_sub(KNOWN_TICKS));
        match tick {
            0..179 => {}
            179 => before = rooms(&hall),
            180.. => crowd.observe(&hall, &past),
        }
    }
    crowd.counted = rooms(&hall);
    crowd.bytes_per_second = (crowd.counted.frame_bytes - before.frame_bytes) / SECONDS;
    // After a pause nothing is missing.
    hall.node.step_to(hall.node.now.mono_us + 60_000_000);
    hall.tick();
    hall.check("a", ARENA);
    crowd
}

#[test]
fn a_third_of_the_bandwidth_keeps_what_is_near_fresh() {
    for encoding in Encoding::ALL {
        let free = crowd(None, encoding, CROWD);
        assert_eq!((&free.mean_ages_ticks()[..3], free.waits), (&[0.0; 3][..], 0));
        let limit = free.bytes_per_second / 3;
        let third = crowd(Some(limit as u32), encoding, CROWD);
        println!("{encoding:?}, {} bytes a second without a limit, limit {limit}: {third:?}", free.bytes_per_second);
        let ages = third.mean_ages_ticks();
        println!("mean ages in ticks {ages:.2?}");
        assert_eq!((third.counted.limited_ticks, third.oldest_ticks()[0]), (0, 0), "what is nearest is sent each tick");
        assert!(ages.is_sorted() && third.oldest_ticks().iter().all(|oldest| *oldest < 13), "{third:?}");
        // At the end of the measured seconds, the credit may be lower than at their start, by a frame with all zones.
        let most = limit + free.bytes_per_second / 60 / SECONDS;
        assert!(third.bytes_per_second <= most && third.bytes_per_second > limit / 10 * 9, "the limit is used");
        assert!(third.waits > SECONDS * 10, "clients learn it: {third:?}");
        assert!(third.counted.near_postponed > 0 && third.counted.view_age.count() > 0, "{third:?}");
    }
}

/// Far away, wolves walk among the sheep. The game says that they are eight times as important.
#[test]
fn an_important_kind_is_fresher_and_nothing_starves() {
    for encoding in Encoding::ALL {
        let free = crowd(None, encoding, Meadow { wolves: WOLVES, ..CROWD });
        assert_eq!((free.wolves.oldest_ticks, free.waits), (0, 0));
        let limit = free.bytes_per_second / 3;
        let [light, heavy] = [1, 8].map(|wolf_weight| {
            let third = crowd(Some(limit as u32), encoding, Meadow { wolves: WOLVES, wolf_weight, ..CROWD });
            let (wolves, oldest) = (third.wolves.mean_ticks(), third.wolves.oldest_ticks);
            println!("{encoding:?}, limit {limit}, wolves of weight {wolf_weight}: {wolves:.2}, {oldest}");
            println!("sheep {:.2?}, {:?}", third.mean_ages_ticks(), third.oldest_ticks());
            assert_eq!(
                (third.counted.limited_ticks, third.oldest_ticks()[0]),
                (0, 0),
                "what is nearest is sent each tick"
            );
            assert!(third.oldest_ticks().iter().all(|oldest| *oldest < 13), "nothing starves: {third:?}");
            third
        });
        assert!(heavy.wolves.mean_ticks() < light.wolves.mean_ticks() * 0.7, "{heavy:?}");
        let [_, second, third, _] = heavy.mean_ages_ticks();
        assert!(third < second, "their zone is sent before one that is nearer: {heavy:?}");
    }
}
