//! Rooms that are opened with parameters: by joins, and by the server API, which waits until the world is created.

use dunlin_engine::{
    Options,
    room::{FromRoom, RoomRefusal, ToRoom},
};
use dunlin_protocol::Encoding;
use dunlin_rooms::{ListingChange, Refusal, RoomOverrides};
use serde_json::{Value, json};

use crate::{
    hall::{self, Hall},
    node::api,
};

const ARENA: &str = "arena:a";

fn options() -> Options {
    let mut options = hall::options();
    let room = options.namespaces[0].room.as_mut().expect("rooms");
    (room.join_params, room.params_bytes_max) = (vec!["map".into()], 11);
    options
}

impl Hall {
    fn ask_to_open(&mut self, fields: &Value) {
        self.node.ask_api(&json!({ "open_room": fields }));
    }

    /// Takes the answers received since the last call.
    fn answers_of_api(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.node.answers).iter().map(api::answer).collect()
    }

    /// The overrides of the only room that was opened.
    fn overrides(&self) -> RoomOverrides {
        let opened = self.node.to_rooms.iter().filter_map(|(_, message)| match message {
            ToRoom::Open { overrides, .. } => Some(RoomOverrides::clone(overrides)),
            _ => None,
        });
        let opened: Vec<_> = opened.collect();
        let [overrides] = &opened[..] else { panic!("one room is opened: {opened:?}") };
        overrides.clone()
    }

    fn join_with(&mut self, name: &str, data: &Value) {
        self.send_json(name, &json!({"id": 2, "subscribe": {"channel": ARENA, "data": data}}));
    }

    fn params_refused(&self) -> u64 {
        self.refused(RoomRefusal::Params)
    }

    fn refused(&self, refusal: RoomRefusal) -> u64 {
        let refused = self.node.shards.iter().map(|shard| &shard.counters().namespaces[1].rooms.refused);
        refused.map(|refused| refused[refusal as usize]).sum()
    }
}

#[test]
fn the_first_join_sets_the_params_that_clients_may_set() {
    let mut hall = Hall::new(1, options());
    hall.open("a", Encoding::Json, 0);
    hall.tick();
    hall.seen("a").messages.clear();
    for (params, message) in [
        (json!({"gold": 1}), "room_params: a client may not set \\\"gold\\\": see room.join_params"),
        (json!(1), "room_params must be a JSON object"),
        (json!({"map": 1234}), "room_params is longer than room.params_size_limit"),
    ] {
        hall.join_with("a", &json!({ "room_params": params }));
        hall.tick();
        let expected = format!(r#"{{"id":2,"error":{{"code":400,"message":"{message}"}}}}"#);
        assert_eq!(std::mem::take(&mut hall.seen("a").messages), [expected]);
    }
    assert_eq!((hall.params_refused(), hall.rooms.len()), (3, 0));
    hall.join_with("a", &json!({"room_params": {"map": 123}}));
    assert_eq!(
        hall.overrides(),
        RoomOverrides { params: r#"{"map":123}"#.into(), seed: None, ..RoomOverrides::default() }
    );
    hall.tick();
    hall.check("a", ARENA);
    // The parameters of a join to an open room are ignored.
    hall.open("b", Encoding::Json, 0);
    hall.join_with("b", &json!({"room_params": {"gold": 1}}));
    hall.tick();
    hall.check("b", ARENA);
    assert_eq!(hall.params_refused(), 3);
}

#[test]
fn the_api_sets_all_params_and_replies_once_the_world_exists() {
    for shards in [1, 2] {
        let mut hall = Hall::new(shards, options());
        hall.ask_to_open(&json!({"channel": ARENA, "params": r#"{"g":12345}"#, "seed": 7}));
        assert_eq!(
            hall.overrides(),
            RoomOverrides { params: r#"{"g":12345}"#.into(), seed: Some(7), ..RoomOverrides::default() }
        );
        // Until the world is created, at most 2 requests wait, as for messages.
        hall.ask_to_open(&json!({"channel": ARENA}));
        hall.ask_to_open(&json!({"channel": ARENA}));
        hall.ask_to_open(&json!({"channel": ARENA, "seed": 8}));
        assert_eq!(hall.answers_of_api(), [json!({"error": 111}), json!({"error": 107})]);
        hall.pass();
        assert_eq!(hall.answers_of_api(), [json!({"sessions": 0}), json!({"sessions": 0})]);
        hall.ask_to_open(&json!({"channel": ARENA}));
        hall.ask_to_open(&json!({"channel": ARENA, "seed": 8}));
        hall.ask_to_open(&json!({"channel": "arena:b", "params": r#"{"g":123456}"#}));
        assert_eq!(hall.answers_of_api(), [json!({"sessions": 0}), json!({"error": 107}), json!({"error": 107})]);
        assert_eq!((hall.params_refused(), hall.rooms.len()), (1, 1));
    }
}

#[test]
fn a_failed_opening_is_answered_with_its_reason() {
    for (refusal, answer) in [
        (Some(Refusal { code: 400, message: "no such map".into() }), json!({"not_opened": "no such map"})),
        (None, json!({"error": 100})),
    ] {
        let mut hall = Hall::new(1, options());
        hall.reports_made = false;
        hall.ask_to_open(&json!({"channel": ARENA}));
        hall.pass();
        let room = hall.only_room().0.key();
        assert_eq!(hall.answers_of_api(), Vec::<Value>::new());
        hall.on_message(0, FromRoom::Failed { room, channel: ARENA.into(), refusal });
        assert_eq!(hall.answers_of_api(), [answer]);
    }
    let mut hall = Hall::new(1, options());
    hall.reports_made = false;
    hall.ask_to_open(&json!({"channel": ARENA}));
    hall.pass();
    hall.node.ask_api(&json!({"close_room": {"channel": ARENA}}));
    assert_eq!(hall.answers_of_api(), [json!({"error": 100}), json!({"sessions": 0})]);
}

#[test]
fn the_api_opens_a_room_with_its_listing() {
    let mut options = options();
    options.namespaces[0].room.as_mut().expect("rooms").players_max = 5;
    for (players_max, metadata) in [(1, "123456789012"), (5, "")] {
        let mut hall = Hall::new(1, options.clone());
        let fields = json!({"channel": ARENA, "players_max": players_max, "is_locked": true, "is_unlisted": true, "metadata": metadata});
        hall.ask_to_open(&fields);
        let listing = ListingChange {
            players_max: Some(players_max),
            is_locked: Some(true),
            is_unlisted: Some(true),
            metadata: Some(metadata.into()),
        };
        assert_eq!(hall.overrides(), RoomOverrides { listing, ..RoomOverrides::default() });
        hall.pass();
        hall.ask_to_open(&json!({"channel": ARENA, "is_locked": false}));
        assert_eq!(hall.answers_of_api(), [json!({"sessions": 0}), json!({"error": 107})], "the room is open already");
    }
    let mut hall = Hall::new(1, options);
    for fields in [json!({"players_max": 0}), json!({"players_max": 6}), json!({"metadata": "1234567890123"})] {
        let mut fields = fields;
        fields["channel"] = json!(ARENA);
        hall.ask_to_open(&fields);
    }
    assert_eq!(hall.answers_of_api(), vec![json!({"error": 107}); 3]);
    assert_eq!((hall.refused(RoomRefusal::Listing), hall.rooms.len()), (3, 0));
}
