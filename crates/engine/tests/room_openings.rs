//! Rate limits on opening rooms: at each limit, and one past it.

use std::num::NonZeroU64;

use dunlin_engine::{
    SourceKey,
    options::RoomOpenings,
    room::{FromRoom, RoomRefusal},
};
use dunlin_protocol::Encoding;
use serde_json::{Value, json};

use crate::{
    hall::{Hall, options},
    node,
};

const NO_RATES: RoomOpenings =
    RoomOpenings { per_second: 0, session_per_second: 0, source_per_second: 0, opening_max: 100 };

fn hall(shards: u16, room_openings: RoomOpenings) -> Hall {
    let mut options = options();
    options.room_openings = room_openings;
    Hall::new(shards, options)
}

fn open_from(hall: &mut Hall, name: &str, address: u64) {
    hall.node.source = NonZeroU64::new(address).map(SourceKey);
    hall.open(name, Encoding::Json, 0);
}

/// Joins a room; returns the code of the error if the join is refused.
fn join(hall: &mut Hall, name: &str, channel: &str) -> Result<(), u64> {
    hall.seen(name).messages.clear();
    hall.subscribe(name, channel);
    hall.tick();
    let messages = hall.seen[name].messages.iter().map(|text| serde_json::from_str::<Value>(text).expect("JSON"));
    let reply = messages.into_iter().find(|message| message["id"] == 2).expect("a reply");
    reply["error"]["code"].as_u64().map_or(Ok(()), Err)
}

fn join_many(hall: &mut Hall, name: &str, rooms: std::ops::Range<usize>) -> Vec<Result<(), u64>> {
    rooms.map(|room| join(hall, name, &format!("arena:{room}"))).collect()
}

fn refused(hall: &Hall, refusal: RoomRefusal) -> u64 {
    let counted = |shard: &dunlin_engine::Shard| shard.counters().namespaces[1].rooms.refused[refusal as usize];
    hall.node.shards.iter().map(counted).sum()
}

fn pass_time(hall: &mut Hall, time_us: u64) {
    hall.node.step_to(hall.node.now.mono_us + time_us);
}

#[test]
fn rooms_opened_per_session_and_second_are_limited() {
    let mut hall = hall(1, RoomOpenings { session_per_second: 3, ..NO_RATES });
    open_from(&mut hall, "a", 1);
    open_from(&mut hall, "b", 1);
    assert_eq!(join_many(&mut hall, "a", 0..4), [Ok(()), Ok(()), Ok(()), Err(111)]);
    assert_eq!((refused(&hall, RoomRefusal::SessionRate), hall.rooms.len()), (1, 3));
    // Another session may open the room, and then the first one can join it.
    assert_eq!(join(&mut hall, "b", "arena:3"), Ok(()));
    assert_eq!(join(&mut hall, "a", "arena:3"), Ok(()));
    pass_time(&mut hall, 1_000_000 / 3 + 1);
    assert_eq!(join_many(&mut hall, "a", 4..6), [Ok(()), Err(111)]);
}

#[test]
fn a_join_that_opens_no_room_uses_no_opening() {
    for shards in [1, 2] {
        let mut hall = hall(shards, RoomOpenings { session_per_second: 2, source_per_second: 4, ..NO_RATES });
        open_from(&mut hall, "a", 1);
        open_from(&mut hall, "b", 2);
        assert_eq!(join(&mut hall, "b", "arena:b"), Ok(()));
        for _ in 0..20 {
            assert_eq!(join(&mut hall, "a", "arena:b"), Ok(()));
            hall.unsubscribe("a", "arena:b");
            hall.tick();
        }
        assert_eq!(join_many(&mut hall, "a", 0..3), [Ok(()), Ok(()), Err(111)]);
    }
}

#[test]
fn rooms_opened_per_address_and_second_are_limited() {
    let mut hall = hall(1, RoomOpenings { session_per_second: 3, source_per_second: 4, ..NO_RATES });
    open_from(&mut hall, "a", 1);
    open_from(&mut hall, "b", 1);
    open_from(&mut hall, "c", 2);
    assert_eq!(join_many(&mut hall, "a", 0..3), [Ok(()); 3]);
    assert_eq!(join_many(&mut hall, "b", 3..5), [Ok(()), Err(111)]);
    assert_eq!((refused(&hall, RoomRefusal::AddressRate), hall.rooms.len()), (1, 4));
    assert_eq!(join(&mut hall, "c", "arena:4"), Ok(()));
    // A refusal for the address uses no token of the session.
    pass_time(&mut hall, 500_000);
    assert_eq!(join_many(&mut hall, "b", 5..7), [Ok(()), Ok(())]);
}

#[test]
fn rooms_opened_per_node_and_second_are_limited() {
    let mut hall = hall(1, RoomOpenings { per_second: 2, ..NO_RATES });
    open_from(&mut hall, "a", 1);
    assert_eq!(join_many(&mut hall, "a", 0..3), [Ok(()), Ok(()), Err(111)]);
    hall.node.answers.clear();
    hall.node.ask_api(&json!({"open_room": {"channel": "arena:3"}}));
    let answers: Vec<Value> = hall.node.answers.iter().map(node::api::answer).collect();
    assert_eq!(answers, [json!({"error": 111})]);
    assert_eq!((refused(&hall, RoomRefusal::Rate), hall.rooms.len()), (2, 2));
    pass_time(&mut hall, 500_000);
    assert_eq!(join(&mut hall, "a", "arena:3"), Ok(()));
}

#[test]
fn worlds_in_creation_are_limited() {
    let mut hall = hall(1, RoomOpenings { opening_max: 2, ..NO_RATES });
    hall.reports_made = false;
    open_from(&mut hall, "a", 1);
    assert_eq!(join_many(&mut hall, "a", 0..3), [Ok(()), Ok(()), Err(111)]);
    assert_eq!(refused(&hall, RoomRefusal::Queue), 1);
    // A created world, a failed room and a closed one each free a slot.
    let rooms: Vec<_> = hall.rooms.iter().map(|(room, (host, _))| (*room, host.channel().clone())).collect();
    for _ in 0..2 {
        hall.on_message(0, FromRoom::Made { room: rooms[0].0, channel: rooms[0].1.clone() });
    }
    assert_eq!(join_many(&mut hall, "a", 3..5), [Ok(()), Err(111)]);
    hall.on_message(0, FromRoom::Failed { room: rooms[1].0, channel: rooms[1].1.clone(), refusal: None });
    assert_eq!(join_many(&mut hall, "a", 5..7), [Ok(()), Err(111)]);
    hall.node.ask_api(&json!({"close_room": {"channel": "arena:5"}}));
    hall.tick();
    assert_eq!(join_many(&mut hall, "a", 7..9), [Ok(()), Err(111)]);
}
