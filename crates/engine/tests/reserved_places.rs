//! Places of a room that are reserved for users.

use std::sync::Arc;

use dunlin_engine::{
    ShardIndex,
    api::PlaceReservation,
    host::{HostOptions, RoomHost, Runner},
    room::{Departure, FromRoom, JoinParams, NotJoined, Opening, RoomKey, SeatClaim, SeatKey, SeatToken, ToRoom},
};
use dunlin_protocol::{ClientInfo, Encoding};
use dunlin_rooms::{
    GridShape, InputError, PlayerId, Refusal, RestoreError, Room, RoomOptions, Simulation, Visitor, World,
};
use serde_json::{Value, json};

use crate::{
    hall::{Hall, TERMS, join_message, options},
    node::api,
};

const ROOM: RoomKey = RoomKey { owner: ShardIndex(0), number: 1 };
const TICKS_PER_SECOND: u32 = 10;

/// A game that refuses joins with the data `no`.
struct Hut;

impl Simulation for Hut {
    fn grid(&self) -> GridShape {
        GridShape { columns: 1, rows: 1, cell_units: 10, near_cells: 1, far_cells: 0, far_interval_ticks: 1 }
    }

    fn start(&mut self, _: &mut World) {}

    fn join(&mut self, _: &mut World, _: PlayerId, _: &Visitor<'_>, data: &[u8]) -> Result<(), Refusal> {
        let refusal = Refusal { code: 450, message: "not today".into() };
        if data == b"no" { Err(refusal) } else { Ok(()) }
    }

    fn leave(&mut self, _: &mut World, _: PlayerId) {}

    fn input(&mut self, _: &mut World, _: PlayerId, _: &[u8]) -> Result<(), InputError> {
        Ok(())
    }

    fn tick(&mut self, _: &mut World) {}

    fn save(&self, _: &mut Vec<u8>) {}

    fn restore(&mut self, _: &[u8]) -> Result<(), RestoreError> {
        Ok(())
    }
}

/// A room with a fixed number of places.
struct Hosted {
    host: RoomHost,
    runner: Runner,
    /// The number of steps in the last tick.
    steps: usize,
}

/// The outcome of a join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    In,
    Reserved,
    Refused(u16),
    /// Its session has ended.
    Gone,
}

fn seat(index: u32) -> SeatKey {
    SeatKey { shard: ShardIndex(0), index, generation: 1 }
}

/// A join of a user at a seat.
struct Join {
    index: u32,
    user: &'static str,
    data: &'static [u8],
    returned: Option<u32>,
    is_spectator: bool,
}

fn join(index: u32, user: &'static str) -> Join {
    Join { index, user, data: b"", returned: None, is_spectator: false }
}

impl Hosted {
    fn with_places(players_max: usize) -> Self {
        let options = RoomOptions { players_max, ticks_per_second: TICKS_PER_SECOND, ..RoomOptions::default() };
        let room = Room::new(options, 1, Box::new(Hut)).expect("a map");
        let terms =
            HostOptions { empty_ticks_max: 1_000, ticks_per_second: TICKS_PER_SECOND, seat_grace_ticks: 5, ..TERMS };
        let host = RoomHost::new(ROOM, Arc::from("arena:a"), room.grid().clone(), terms);
        Self { host, runner: Runner::new(room), steps: 0 }
    }

    fn reserve(&mut self, number: u64, users: &[&str], timeout_ms: u32) {
        let users = users.iter().map(|user| Arc::from(*user)).collect();
        let reservations = [PlaceReservation { number, users, timeout_ms }].into();
        self.host.take(ToRoom::ReservePlaces { room: ROOM, reservations });
    }

    fn leave(&mut self, index: u32, departure: Departure) {
        self.host.take(ToRoom::Leave { room: ROOM, seat: seat(index), departure });
    }

    fn join(&mut self, Join { index, user, data, returned, is_spectator }: Join) {
        let given = Some(SeatToken(u128::from(index)));
        let returned = returned.map(|index| SeatToken(index.into()));
        let params = JoinParams {
            seat: seat(index),
            info: Arc::new(ClientInfo::of_user(user)),
            address: None,
            is_spectator,
            is_typed: false,
            data: bytes::Bytes::from_static(data),
            opening: Opening::Reserved,
            claim: SeatClaim { given, returned, is_one_per_user: false, keeps_returned: true },
            waits_until_us: 0,
            held_until_us: 0,
        };
        self.host.take(join_message(ROOM, params, Encoding::Json));
    }

    /// Runs a tick. Returns the outcomes of the joins, by the index of the seat.
    fn tick(&mut self) -> Vec<(u32, End)> {
        let mut outgoing = Vec::new();
        self.host.refuse_unreserved(&self.runner, &mut outgoing);
        let batch = self.host.begin();
        self.steps = batch.steps.len();
        let done = self.runner.run(&batch, 0);
        self.host.finish(done, &mut outgoing);
        let joined = outgoing.into_iter().filter_map(|(_, message)| match message {
            FromRoom::Joined { request, outcome, .. } => {
                let end = match outcome {
                    Ok(_) => End::In,
                    Err(NotJoined::Reserved) => End::Reserved,
                    Err(NotJoined::Refused(refusal)) => End::Refused(refusal.code),
                    Err(NotJoined::Gone) => End::Gone,
                    Err(NotJoined::Unavailable) => panic!("the room is there"),
                };
                Some((request.asker.session.index, end))
            }
            _ => None,
        });
        let mut joined: Vec<_> = joined.collect();
        joined.sort_unstable_by_key(|(index, _)| *index);
        joined
    }

    /// Sends joins in one tick.
    fn join_all(&mut self, joins: impl IntoIterator<Item = Join>) -> Vec<End> {
        joins.into_iter().for_each(|join| self.join(join));
        self.tick().into_iter().map(|(_, end)| end).collect()
    }
}

#[test]
fn reserved_places_are_only_for_their_users() {
    use End::{In, Refused, Reserved};
    let mut hut = Hosted::with_places(3);
    hut.reserve(1, &["ada", "bob"], 60_000);
    assert_eq!(hut.join_all([join(0, "eve"), join(1, "eve"), join(2, "")]), [In, Reserved, Reserved], "one is free");
    assert_eq!(hut.steps, 1, "a refused join is not a step of the room");
    assert_eq!(hut.join_all([join(3, "eve"), join(4, "ada"), join(5, "ada")]), [Reserved, In, Reserved]);
    assert_eq!(hut.host.reserved_places(), 1, "a user has one place");
    assert_eq!(hut.join_all([Join { is_spectator: true, ..join(6, "fay") }]), [In], "a spectator takes no place");
    assert_eq!(hut.join_all([Join { is_spectator: true, ..join(7, "bob") }]), [In]);
    assert_eq!(hut.host.reserved_places(), 1, "a spectator uses no reserved place");
    assert_eq!(hut.join_all([join(8, "bob"), join(9, "eve")]), [In, Refused(400)], "a full room refuses the join");
    assert_eq!(hut.host.reserved_places(), 0);
    hut.leave(0, Departure::Left);
    assert_eq!(hut.join_all([join(10, "eve")]), [In]);
}

#[test]
fn a_join_that_the_game_refuses_leaves_the_place_reserved() {
    let mut hut = Hosted::with_places(1);
    hut.reserve(1, &["ada"], 60_000);
    assert_eq!(hut.join_all([Join { data: b"no", ..join(0, "ada") }]), [End::Refused(450)]);
    assert_eq!(hut.join_all([join(1, "eve")]), [End::Reserved]);
    assert_eq!(hut.join_all([join(2, "ada")]), [End::In]);
}

#[test]
fn a_join_whose_session_has_ended_takes_no_place() {
    let mut hut = Hosted::with_places(2);
    hut.reserve(1, &["ada"], 60_000);
    for (index, user) in [(0, "eve"), (1, "fay"), (2, "gus")] {
        hut.join(join(index, user));
    }
    hut.leave(0, Departure::Unanswered);
    assert_eq!(hut.join_all([]), [End::Gone, End::In, End::Reserved]);
    // A player that has joined keeps its place for the client's next join.
    hut.leave(1, Departure::Unanswered);
    assert_eq!(hut.join_all([Join { returned: Some(1), ..join(3, "fay") }]), [End::In]);
    assert_eq!(hut.runner.room().player_count(), 1, "it is the same player");
}

#[test]
fn a_leave_frees_its_place_in_the_same_tick() {
    let mut hut = Hosted::with_places(2);
    assert_eq!(hut.join_all([join(0, "eve")]), [End::In]);
    hut.reserve(1, &["ada"], 60_000);
    hut.leave(0, Departure::Left);
    assert_eq!(hut.join_all([join(1, "fay")]), [End::In]);
    // An away player keeps its place, and comes back to it.
    hut.leave(1, Departure::Lost);
    assert_eq!(hut.join_all([join(2, "eve"), Join { returned: Some(9), ..join(3, "eve") }]), [End::Reserved; 2]);
    assert_eq!(hut.join_all([Join { returned: Some(1), ..join(4, "fay") }]), [End::In]);
    // The player's place is free when its grace period has ended.
    hut.leave(4, Departure::Lost);
    for _ in 0..5 {
        assert_eq!(hut.join_all([join(5, "eve")]), [End::Reserved]);
    }
    assert_eq!(hut.join_all([join(6, "fay"), join(7, "eve")]), [End::In, End::Reserved]);
    assert_eq!(hut.join_all([join(8, "ada")]), [End::In]);
}

#[test]
fn a_reservation_expires() {
    let mut hut = Hosted::with_places(2);
    // 250 ms are 3 ticks.
    hut.reserve(1, &["ada"], 250);
    hut.reserve(2, &["bob"], 60_000);
    for tick in 0..3 {
        assert_eq!(hut.join_all([join(tick, "eve")]), [End::Reserved], "tick {tick}");
    }
    assert_eq!(hut.join_all([join(3, "eve"), join(4, "eve")]), [End::In, End::Reserved], "the reservation has expired");
    hut.reserve(3, &[], 0);
    assert_eq!(hut.join_all([join(5, "eve")]), [End::Reserved], "another reservation was released");
    hut.reserve(2, &[], 0);
    assert_eq!(hut.join_all([join(6, "eve")]), [End::In], "the reservation was released");
}

#[test]
fn used_reservations_are_listed_until_they_expire() {
    let mut hut = Hosted::with_places(4);
    // 300 ms are 3 ticks.
    hut.reserve(1, &["ada", "bob"], 300);
    hut.reserve(2, &["cat"], 60_000);
    let listed = |hut: &Hosted| hut.host.reservations().collect::<Vec<_>>();
    assert_eq!(hut.join_all([join(0, "ada")]), [End::In]);
    assert_eq!(listed(&hut), [(1, 1), (2, 1)]);
    assert_eq!(hut.join_all([join(1, "bob")]), [End::In]);
    assert_eq!((listed(&hut), hut.host.reserved_places()), (vec![(1, 0), (2, 1)], 1));
    hut.tick();
    assert_eq!(listed(&hut), [(1, 0), (2, 1)]);
    hut.tick();
    assert_eq!(listed(&hut), [(2, 1)]);
}

#[test]
fn used_reservations_are_bounded() {
    let mut hut = Hosted::with_places(4);
    let used = |hut: &Hosted| hut.host.reservations().map(|(number, _)| number).collect::<Vec<_>>();
    let mut use_one = |number| {
        hut.reserve(number, &["ada"], 600_000);
        assert_eq!(hut.join_all([join(0, "ada")]), [End::In]);
        hut.leave(0, Departure::Left);
        (used(&hut)[0], used(&hut).len() as u64)
    };
    for number in 1..=1_024 {
        assert_eq!(use_one(number), (1, number));
    }
    assert_eq!(use_one(1_025), (2, 1_024), "one past the limit: the oldest is dropped");
}

#[test]
fn reservations_are_limited_to_the_free_places() {
    let mut hut = Hosted::with_places(2);
    for (number, user) in [(1, "ada"), (2, "bob")] {
        hut.reserve(number, &[user], 60_000);
    }
    hut.tick();
    assert_eq!(hut.host.reserved_places(), 2, "the room has two places");
    hut.reserve(3, &["cat"], 60_000);
    hut.tick();
    assert_eq!(hut.host.reserved_places(), 2, "one past the limit: the oldest is dropped");
    assert_eq!(hut.join_all([join(0, "ada"), join(1, "bob"), join(2, "cat")]), [End::Reserved, End::In, End::In]);
}

#[test]
fn the_owner_registers_reservations_and_reports_refused_ones() {
    let mut hall = Hall::new(1, options());
    let reserve = |hall: &mut Hall, channel: &str| {
        hall.node.ask_api(&json!({"reserve_places": {"channel": channel, "number": 1, "users": ["ada"]}}));
        std::mem::take(&mut hall.node.answers).iter().map(api::answer).collect::<Vec<Value>>()
    };
    for (channel, error) in [("arena:a", 108), ("news", 108), ("nowhere:a", 102)] {
        assert_eq!(reserve(&mut hall, channel), [json!({"error": error})], "{channel}");
    }
    hall.gather(&[("a", Encoding::Json, 0)], "arena:a");
    assert_eq!(reserve(&mut hall, "arena:a"), [json!({"sessions": 0})]);
    hall.node.ask_api(&json!({"change_listing": {"channel": "arena:a", "players_max": 2}}));
    hall.tick();
    hall.open("b", Encoding::Json, 0);
    hall.subscribe("b", "arena:a");
    hall.tick();
    let refused: u64 = hall.node.shards.iter().map(|shard| shard.counters().namespaces[1].rooms.joins_reserved).sum();
    assert_eq!(refused, 1);
    let answer = r#"{"id":2,"error":{"code":409,"message":"all free places are reserved for other users"}}"#;
    assert_eq!(hall.seen["b"].messages, [answer]);
}
