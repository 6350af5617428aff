//! Two nodes, each with a room that the other one plays. Frames between them are lost, repeated, held back and put out of
//! order. Whatever happened, the nodes agree again soon after it has stopped, and stay in agreement.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;
use dunlin_engine::{
    ShardIndex,
    message::SubscriptionRequest,
    room::{
        Departure, FromRoom, JoinParams, JoinedAs, Opening, RoomKey, RoomSite, RoomThreadIndex, SeatClaim, SeatKey,
        ToRoom,
    },
};
use dunlin_proof::chance::Xorshift;
use dunlin_protocol::{ClientInfo, Encoding, Payload, UnsubscribeCode};
use dunlin_relay::{Relay, RelayEffect, RelayOptions, WAKE_INTERVAL_US};

const ROOM: RoomKey = RoomKey { owner: ShardIndex(0), number: 7 };
const STEP_US: u64 = 50_000;
const SECOND_US: u64 = 1_000_000;
/// The usual time of a frame.
const TRANSIT_US: u64 = 1_000;

struct Node {
    relay: Relay,
    /// Players of the other node in the room of this one.
    players: BTreeSet<SeatKey>,
    /// The room of the other node, while it is open here.
    open: Option<RoomKey>,
    rooms: u64,
    /// Players of this node in it.
    seats: BTreeSet<SeatKey>,
    refused: u32,
}

struct Pair {
    now_us: u64,
    nodes: [Node; 2],
    /// Frames on their way, by the time of their arrival and in the order in which they were sent.
    frames: BTreeMap<(u64, u64), (usize, Vec<u8>)>,
    sent: u64,
    next_seat: u32,
}

/// What may happen to a frame, in thousandths.
#[derive(Clone, Copy)]
struct Trouble {
    lost: u64,
    repeated: u64,
    held_back: u64,
    is_cut: bool,
}

const CALM: Trouble = Trouble { lost: 0, repeated: 0, held_back: 0, is_cut: false };

fn name(node: usize) -> Arc<str> {
    ["ann", "ben"][node].into()
}

impl Pair {
    fn new() -> Self {
        let node = |index| Node {
            relay: Relay::new(RelayOptions { node: name(index), shard_count: 1, room_threads: 1 }),
            players: BTreeSet::new(),
            open: None,
            rooms: 0,
            seats: BTreeSet::new(),
            refused: 0,
        };
        Self { now_us: 1, nodes: [node(0), node(1)], frames: BTreeMap::new(), sent: 0, next_seat: 0 }
    }

    /// A player of `node` joins the room of the other one.
    fn join(&mut self, node: usize) {
        let other = name(1 - node);
        let Node { relay, open, rooms, .. } = &mut self.nodes[node];
        let room = *open.get_or_insert_with(|| {
            *rooms += 1;
            let room = RoomKey { owner: ShardIndex(0), number: *rooms };
            let site = Box::new(RoomSite { node: other, room: ROOM, thread: RoomThreadIndex(0), sends_changes: true });
            relay.take_to_room(self.now_us, ToRoom::OpenRemote { room, channel: "arena".into(), site });
            room
        });
        self.next_seat += 1;
        let join = JoinParams {
            seat: SeatKey { shard: ShardIndex(0), index: self.next_seat, generation: 1 },
            info: Arc::new(ClientInfo::of_user("ann")),
            address: None,
            is_spectator: false,
            is_typed: false,
            data: Bytes::new(),
            opening: Opening::Reserved,
            claim: SeatClaim::default(),
            waits_until_us: 0,
            held_until_us: 0,
        };
        let request = Box::new(SubscriptionRequest::of_remote_join("arena".into(), Encoding::Json, join));
        relay.take_to_room(self.now_us, ToRoom::Join { room, request });
    }

    fn leave(&mut self, node: usize) {
        let Node { relay, open, seats, .. } = &mut self.nodes[node];
        if let (Some(room), Some(seat)) = (*open, seats.pop_first()) {
            relay.take_to_room(self.now_us, ToRoom::Leave { room, seat, departure: Departure::Left });
        }
    }

    /// The room of `node` says something to a player of the other one.
    fn say(&mut self, node: usize) {
        let Node { relay, players, .. } = &mut self.nodes[node];
        if let Some(seat) = players.first() {
            let data = Payload::from_json(Bytes::from_static(b"1"));
            let event = FromRoom::Event { room: ROOM, channel: "arena".into(), data, audience: None };
            relay.take_from_room(self.now_us, seat.shard, event);
        }
    }

    fn perform(&mut self, trouble: Trouble, chance: &mut Xorshift) {
        for node in 0..2 {
            // A join is answered at once, and the owner closes a room that nobody uses.
            loop {
                let effects = self.nodes[node].relay.take_effects(self.now_us);
                if effects.is_empty() {
                    break;
                }
                for effect in effects {
                    match effect {
                        RelayEffect::Send { frame, .. } => self.send(1 - node, &frame, trouble, chance),
                        RelayEffect::ToThread { message, .. } => self.nodes[node].take_to_room(self.now_us, message),
                        RelayEffect::ToShard { message, .. } => self.nodes[node].take_from_room(self.now_us, message),
                    }
                }
            }
        }
    }

    fn send(&mut self, to: usize, frame: &[u8], trouble: Trouble, chance: &mut Xorshift) {
        let mut happens = |per_mille| chance.below(1_000) < per_mille;
        if trouble.is_cut || happens(trouble.lost) {
            return;
        }
        let copies = 1 + u32::from(happens(trouble.repeated));
        for _ in 0..copies {
            let held_back_us = if happens(trouble.held_back) { SECOND_US / 20 } else { 0 };
            // Up to six seconds: beyond what a node waits for.
            let held_back_us = held_back_us * (1 + u64::from(held_back_us > 0) * (self.sent % 120));
            self.sent += 1;
            let due_us = self.now_us + TRANSIT_US + held_back_us;
            self.frames.insert((due_us, self.sent), (to, frame.to_vec()));
        }
    }

    /// Lets time pass.
    fn run(&mut self, time_us: u64, trouble: Trouble, chance: &mut Xorshift) {
        let until_us = self.now_us + time_us;
        self.perform(trouble, chance);
        while self.now_us < until_us {
            let wake_us = (self.now_us / WAKE_INTERVAL_US + 1) * WAKE_INTERVAL_US;
            let next_us = self.frames.first_key_value().map_or(u64::MAX, |((due_us, _), _)| *due_us);
            self.now_us = wake_us.min(next_us).max(self.now_us);
            if self.now_us >= wake_us {
                self.nodes.iter_mut().for_each(|node| node.relay.wake(self.now_us));
            }
            while let Some(first) = self.frames.first_entry().filter(|first| first.key().0 <= self.now_us) {
                let (to, frame) = first.remove();
                self.nodes[to].relay.receive(self.now_us, &frame);
            }
            self.perform(trouble, chance);
        }
    }

    fn losses(&self) -> u64 {
        self.nodes.iter().flat_map(|node| node.relay.counters().losses).sum()
    }

    fn check_agreement(&self, what: &str) {
        for node in 0..2 {
            let (edge, host) = (&self.nodes[node], &self.nodes[1 - node]);
            let on_host: Vec<u32> = host.players.iter().map(|seat| seat.index).collect();
            let on_edge: Vec<u32> = edge.seats.iter().map(|seat| seat.index).collect();
            assert_eq!(on_host, on_edge, "{what}: players of {} in the room of the other node", name(node));
            assert_eq!(edge.relay.counters().players_away, on_edge.len() as u64, "{what}");
            assert_eq!(host.relay.counters().players_here, on_host.len() as u64, "{what}");
        }
    }

    /// Each node joins, and is not refused.
    fn check_joins(&mut self, chance: &mut Xorshift, what: &str) {
        for node in 0..2 {
            let (seats, refused) = (self.nodes[node].seats.len(), self.nodes[node].refused);
            self.join(node);
            self.run(SECOND_US / 2, CALM, chance);
            assert_eq!(self.nodes[node].refused, refused, "{what}: {} is refused", name(node));
            assert_eq!(self.nodes[node].seats.len(), seats + 1, "{what}: {} has joined", name(node));
        }
    }
}

impl Node {
    /// A message to the room of this node.
    fn take_to_room(&mut self, now_us: u64, message: ToRoom) {
        match message {
            ToRoom::Join { room, request } => {
                let seat = request.join.as_ref().expect("a room's subscription").seat;
                self.players.insert(seat);
                let outcome = Ok(JoinedAs { is_back: false });
                self.relay.take_from_room(now_us, seat.shard, FromRoom::Joined { room, request, outcome });
            }
            ToRoom::Leave { seat, .. } => {
                self.players.remove(&seat);
            }
            message => panic!("{message:?}"),
        }
    }

    /// A message of the room of the other node.
    fn take_from_room(&mut self, now_us: u64, message: FromRoom) {
        match message {
            FromRoom::Joined { room, request, outcome } => {
                let seat = request.join.expect("a room's subscription").seat;
                if outcome.is_ok() && self.open == Some(room) {
                    self.seats.insert(seat);
                } else {
                    self.refused += 1;
                }
            }
            FromRoom::Failed { room, .. } if self.open == Some(room) => {
                self.open = None;
                self.seats.clear();
            }
            FromRoom::Idle { room, .. } if self.open == Some(room) && self.seats.is_empty() => {
                self.open = None;
                let code = UnsubscribeCode::ROOM_CLOSED;
                self.relay.take_to_room(now_us, ToRoom::Close { room, code, reason: None });
            }
            FromRoom::Event { .. } | FromRoom::Idle { .. } | FromRoom::Failed { .. } => {}
            message => panic!("{message:?}"),
        }
    }
}

/// Things happen for a while.
fn play(pair: &mut Pair, steps: u32, trouble: Trouble, chance: &mut Xorshift) {
    for _ in 0..steps {
        let node = chance.below(2) as usize;
        match chance.below(8) {
            0 => pair.join(node),
            1 => pair.leave(node),
            2..=5 => pair.say(node),
            _ => {}
        }
        pair.run(STEP_US, trouble, chance);
    }
}

#[test]
fn nodes_agree_after_any_trouble_and_do_not_end_each_other_again() {
    for seed in 0..150 {
        let mut chance = Xorshift::new(seed);
        let mut pair = Pair::new();
        for round in 0..4 {
            let what = format!("seed {seed}, round {round}");
            let trouble = Trouble {
                lost: chance.below(200),
                repeated: chance.below(100),
                held_back: chance.below(100),
                is_cut: chance.below(4) == 0,
            };
            let steps = 1 + chance.below(120) as u32;
            play(&mut pair, steps, trouble, &mut chance);
            // What was held back arrives within six seconds, and a node that knows nothing of the end learns it in three.
            pair.run(12 * SECOND_US, CALM, &mut chance);
            pair.check_agreement(&what);
            let losses = pair.losses();
            pair.check_joins(&mut chance, &what);
            play(&mut pair, 100, CALM, &mut chance);
            pair.run(chance.below(100) * SECOND_US, CALM, &mut chance);
            pair.check_agreement(&what);
            assert_eq!(pair.losses(), losses, "{what}: nothing happened to the frames");
        }
    }
}

#[test]
fn a_join_after_any_pause_succeeds_at_once() {
    for seed in 0..40 {
        let mut chance = Xorshift::new(seed);
        let mut pair = Pair::new();
        for round in 0..6 {
            let what = format!("seed {seed}, round {round}");
            pair.check_joins(&mut chance, &what);
            while pair.nodes.iter().any(|node| !node.seats.is_empty()) {
                (0..2).for_each(|node| pair.leave(node));
            }
            let pause_us = [100_000, 2_900_000, 3_100_000, 29_000_000, 31_000_000, 59_000_000, 61_000_000, 200_000_000];
            let pause_us = pause_us[chance.below(8) as usize] + chance.below(500_000);
            pair.run(pause_us, CALM, &mut chance);
            // Both begin at the same time.
            (0..2).for_each(|node| pair.join(node));
            pair.run(SECOND_US, CALM, &mut chance);
            pair.check_agreement(&what);
            let refused: u32 = pair.nodes.iter().map(|node| node.refused).sum();
            assert_eq!((refused, pair.losses()), (0, 0), "{what}: after {pause_us} microseconds");
        }
    }
}

#[test]
fn a_node_that_has_forgotten_the_other_one_joins_at_once() {
    let mut chance = Xorshift::new(1);
    let mut pair = Pair::new();
    pair.check_joins(&mut chance, "at first");
    // The other node's epochs have gone on without this one.
    for _ in 0..5 {
        pair.nodes[1].relay.disconnect(pair.now_us);
        pair.run(SECOND_US, Trouble { is_cut: true, ..CALM }, &mut chance);
    }
    pair.run(10 * SECOND_US, Trouble { is_cut: true, ..CALM }, &mut chance);
    pair.check_joins(&mut chance, "after the cut");
    pair.check_agreement("after the cut");
}
