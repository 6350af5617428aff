//! The slices offered for one session do not change while others are offered theirs: a shard that writes in batches
//! lends the slices of many sessions to the kernel at once.

use dunlin_engine::{
    SessionKey,
    options::{Lane, NamespaceOptions},
};
use dunlin_protocol::Encoding;
use serde_json::json;

use crate::hall::{self, Hall};

const SESSIONS: usize = 60;

/// A slice that a batch holds, and a copy of its bytes.
struct Lent {
    start: *const u8,
    bytes: Vec<u8>,
}

#[test]
fn the_slices_of_many_sessions_stay_valid_until_the_first_wrote() {
    let mut options = hall::options();
    let prices = NamespaceOptions {
        name: "prices".to_owned(),
        delivery: Lane::Latest,
        history_size: 0,
        history_ttl_ms: 0,
        ..options.without_namespace.clone()
    };
    options.namespaces.push(prices);
    let mut hall = Hall::new(1, options);
    let names: Vec<String> = (0..SESSIONS).map(|number| format!("session {number}")).collect();
    for (number, name) in names.iter().enumerate() {
        hall.open(name, if number % 2 == 0 { Encoding::Json } else { Encoding::Protobuf }, 0);
        for channel in ["arena:a", "arena:b", "news", "prices:gold"] {
            hall.subscribe(name, channel);
        }
    }
    hall.tick();
    // From here on, no socket accepts bytes, and each lane fills: room frames are due, the reliable lane has a queue,
    // and the latest one has a publication that follows skipped ones and gets a tag when it is offered.
    for name in &names {
        hall.node.client(name).room_bytes = 0;
    }
    for round in 0..3 {
        for channel in ["news", "prices:gold"] {
            let request = json!({"publish": {"channel": channel, "data": {"round": round}}});
            hall.node.ask_api(&request);
        }
        hall.tick();
    }
    let sessions: Vec<SessionKey> = names.iter().map(|name| hall.node.client(name).place.1).collect();
    let shard = &mut hall.node.shards[0];
    let mut lent: Vec<Vec<Lent>> = Vec::new();
    for session in &sessions {
        let slices = shard.outgoing(*session);
        lent.push(slices.map(|slice| Lent { start: slice.as_ptr(), bytes: slice.to_vec() }).collect());
    }
    // Three of news, one of gold, and two of each room.
    assert!(lent.iter().all(|slices| slices.len() >= 8));
    let is_tagged = |lent: &&Lent| lent.bytes.windows(7).any(|word| word == b"skipped");
    assert!(lent.iter().all(|slices| slices.iter().filter(is_tagged).count() == 1), "each session has its own tag");
    for Lent { start, bytes } in lent.iter().flatten() {
        // SAFETY: `Shard::outgoing` promises that this may be read until the shard handles the next event.
        let now = unsafe { std::slice::from_raw_parts(*start, bytes.len()) };
        assert!(now == bytes, "a later offer changed the slice");
    }
    // The first write must send these same bytes.
    for (name, slices) in names.iter().zip(lent) {
        let client = hall.node.client(name);
        let place = client.place;
        client.received.clear();
        client.room_bytes = usize::MAX;
        hall.node.write(place);
        let expected: Vec<u8> = slices.into_iter().flat_map(|lent| lent.bytes).collect();
        assert!(hall.node.client(name).received == expected);
    }
}
