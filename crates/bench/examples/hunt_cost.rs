//! Measures a tick of the treasure hunt on the demo's map:
//! `cargo run --profile measured -p dunlin-bench --example hunt_cost`.
//!
//! Prints the median and the 99th percentile of each part of a tick in microseconds. To compare two versions, build
//! both and run the programs alternately on the same machine, because figures of runs at different times are not
//! comparable.

use std::time::Instant;

use dunlin_games::TreasureHunt;
use dunlin_protocol::Encoding;
use dunlin_rooms::{PlayerId, Room, RoomOptions, Visitor};
use serde_json::json;

const PLAYERS: u32 = 300;
const WARM_UP_TICKS: u32 = 300;
const TICKS: u32 = 3_000;

/// A part of a tick.
struct Part {
    name: &'static str,
    times_ns: Vec<u64>,
}

impl Part {
    fn new(name: &'static str) -> Self {
        Self { name, times_ns: Vec::with_capacity((WARM_UP_TICKS + TICKS) as usize) }
    }

    fn time<R>(&mut self, run: impl FnOnce() -> R) -> R {
        let start = Instant::now();
        let result = run();
        self.times_ns.push(start.elapsed().as_nanos() as u64);
        result
    }

    fn print(&mut self) {
        let times = &mut self.times_ns[WARM_UP_TICKS as usize..];
        times.sort_unstable();
        let at = |percent: usize| times[times.len() * percent / 100] as f64 / 1_000.0;
        println!("{:<22} median {:>7.1} µs, p99 {:>7.1} µs", self.name, at(50), at(99));
    }
}

fn main() {
    let params =
        json!({ "columns": 32, "rows": 32, "treasures": 1_500, "obstacles": 1_500, "leaderboard_channel": "leaders" });
    let hunt = TreasureHunt::new(&params).expect("good parameters");
    let mut room = Room::new(RoomOptions::default(), 1, Box::new(hunt)).expect("a map");
    for player in 0..PLAYERS {
        // A few players use JSON, and the others Protobuf.
        let encoding = if player < 3 { Encoding::Json } else { Encoding::Protobuf };
        room.join(&Visitor::of_user(""), encoding, b"").expect("there is room");
    }
    let mut chance = 7_u64;
    let mut below = |bound: u64| {
        chance = chance.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (chance >> 33) % bound
    };
    let mut parts = ["inputs", "rules and settlement", "whole tick", "state hash"].map(Part::new);
    let [inputs, rules, whole, hash] = &mut parts;
    for number in 1..=WARM_UP_TICKS + TICKS {
        inputs.time(|| {
            for player in 1..=PLAYERS {
                // Changes direction three times per second, and digs every few seconds.
                let input: [u8; 3] = match below(200) {
                    0..10 => [0, below(256) as u8, below(256) as u8],
                    10 => [1, 0, 0],
                    _ => continue,
                };
                let length = if input[0] == 1 { 1 } else { 3 };
                room.input(PlayerId(player), number, &input[..length]);
            }
        });
        // Every other tick runs without an update, as in a replay. The difference is the cost of the update.
        if number % 2 == 0 {
            rules.time(|| room.tick_without_update());
            whole.times_ns.push(*whole.times_ns.last().unwrap_or(&0));
        } else {
            whole.time(|| room.tick(u64::from(number)));
            rules.times_ns.push(*rules.times_ns.last().unwrap_or(&0));
        }
        hash.time(|| room.state_hash());
    }
    parts.iter_mut().for_each(Part::print);
    println!("state hash at the end  {:016x}", room.state_hash());
}
