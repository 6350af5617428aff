//! Rooms under random operations in any order: sessions join, read slowly, join twice, and leave while they wait; rooms
//! fail, are closed, and become empty; messages between shards are held back. Clients always receive consistent
//! messages, their queues stay small, and in the end every client has the world.

use dunlin_engine::room::{FromRoom, NotJoined};
use dunlin_protocol::{Encoding, UnsubscribeCode};
use serde_json::json;

use crate::hall::{Hall, options};

const ROOMS: [&str; 3] = ["arena:a", "arena:b", "arena:c"];
const CLIENTS: usize = 6;
const SHARDS: u16 = 2;

/// `SplitMix64` (Steele, Lea, Flood: "Fast splittable pseudorandom number generators").
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }
}

struct Crowd {
    hall: Hall,
    chance: Chance,
    /// By client number.
    names: [Option<String>; CLIENTS],
    opened: u32,
    inputs: u32,
}

impl Crowd {
    fn new(seed: u64) -> Self {
        let mut options = options();
        options.client.queue_bytes_max = 16_384;
        let mut hall = Hall::new(SHARDS, options);
        hall.empty_ticks_max = 4;
        Self { hall, chance: Chance(seed), names: Default::default(), opened: 0, inputs: 0 }
    }

    fn act(&mut self) {
        let place = self.chance.below(CLIENTS);
        let room = ROOMS[self.chance.below(ROOMS.len())];
        let Some(name) = self.names[place].clone() else { return self.open(place) };
        match self.chance.below(20) {
            0..=5 => self.hall.tick(),
            6..=8 => self.hall.subscribe(&name, room),
            9 => self.hall.unsubscribe(&name, room),
            10 => self.leave(place),
            11 | 12 => {
                self.inputs += 1;
                let data: [&[u8]; 5] = [b"shout", b"whisper", b"news", &[self.inputs as u8, 9], b"?"];
                self.hall.publish(&name, room, self.inputs, data[self.chance.below(data.len())]);
            }
            13 | 14 => {
                let bytes = self.chance.below(400);
                self.hall.take(&name, bytes);
            }
            15 => self.hall.take(&name, usize::MAX),
            16 => self.fail_a_room(),
            17 => self.hall.node.ask_api(&json!({"close_room": {"channel": room}})),
            18 => self.hall.node.holds_rings = true,
            _ => {
                self.hall.node.holds_rings = false;
                self.hall.node.settle();
            }
        }
        self.hall.pass();
        self.hall.look();
        self.check();
    }

    fn open(&mut self, place: usize) {
        self.opened += 1;
        let name = format!("client {}", self.opened);
        let encoding = Encoding::ALL[self.chance.below(2)];
        let shard = self.chance.below(usize::from(SHARDS)) as u16;
        self.hall.open(&name, encoding, shard);
        self.names[place] = Some(name);
    }

    fn leave(&mut self, place: usize) {
        if let Some(name) = self.names[place].take() {
            self.hall.leave(&name);
            self.hall.seen.remove(&name);
        }
    }

    fn fail_a_room(&mut self) {
        let rooms: Vec<_> = self.hall.rooms.keys().copied().collect();
        if rooms.is_empty() {
            return;
        }
        let room = rooms[self.chance.below(rooms.len())];
        let (mut host, _) = self.hall.rooms.remove(&room).expect("a room");
        let mut posts = Vec::new();
        host.end(UnsubscribeCode::ROOM_FAILED, None, &NotJoined::Gone, &mut posts);
        let failed = (room.owner, FromRoom::Failed { room, channel: host.channel().clone(), refusal: None });
        // After the messages on the same path, and anywhere among the rest.
        let after = posts.iter().rposition(|(shard, _)| *shard == room.owner).map_or(0, |place| place + 1);
        let place = after + self.chance.below(posts.len() - after + 1);
        posts.insert(place, failed);
        for (shard, message) in posts {
            self.hall.on_message(shard.0, message);
        }
    }

    fn check(&mut self) {
        for place in 0..CLIENTS {
            let Some(name) = self.names[place].clone() else { continue };
            let (bytes, frames) = self.hall.queued(&name);
            assert!(bytes <= 16_384 + 4_096 && frames < 1_000, "{bytes} bytes in {frames} frames wait for {name}");
            if self.hall.node.client(&name).finished {
                self.leave(place);
            }
        }
    }

    /// Completes all pending operations, and makes all clients rejoin.
    fn calm_down(&mut self) {
        self.hall.node.holds_rings = false;
        self.hall.node.settle();
        self.hall.node.step_to(self.hall.node.now.mono_us + 1_000_000);
        for place in 0..CLIENTS {
            if self.names[place].is_none() {
                self.open(place);
            }
        }
        let names: Vec<String> = self.names.iter().flatten().cloned().collect();
        for name in &names {
            self.hall.take(name, usize::MAX);
            for room in ROOMS {
                self.hall.unsubscribe(name, room);
            }
        }
        (0..8).for_each(|_| self.hall.tick());
        assert_eq!(self.hall.holdings(), [0, 0], "all sessions have left");
        assert!(self.hall.rooms.is_empty(), "empty rooms are closed");
        for name in &names {
            for room in ROOMS {
                self.hall.subscribe(name, room);
            }
        }
        (0..2).for_each(|_| self.hall.tick());
        for _ in 0..5 {
            self.hall.tick();
            for name in &names {
                for room in ROOMS {
                    self.hall.check(name, room);
                }
            }
        }
        assert_eq!(self.hall.holdings()[0], CLIENTS * ROOMS.len());
    }
}

#[test]
fn random_operations_end_with_the_same_world_at_all_clients() {
    let mut opened = 0;
    for seed in 0..60 {
        let mut crowd = Crowd::new(seed);
        for _ in 0..3 {
            (0..120).for_each(|_| crowd.act());
            crowd.calm_down();
        }
        (0..CLIENTS).for_each(|place| crowd.leave(place));
        assert_eq!(crowd.hall.holdings(), [0, 0], "seed {seed}");
        (0..8).for_each(|_| crowd.hall.tick());
        assert!(crowd.hall.rooms.is_empty(), "seed {seed}");
        let rooms = crowd.hall.node.shards.iter().map(|shard| shard.counters().namespaces[1].rooms);
        opened += rooms.map(|rooms| rooms.opened).sum::<u64>();
    }
    assert!(opened > 60 * 9, "{opened} rooms were opened");
}
