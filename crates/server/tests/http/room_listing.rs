//! Rooms that the backend locks and describes: through the API, in recordings, and after a restart.

use std::time::Instant;

use serde_json::{Value, json};

use crate::{
    cli::Folder,
    each_reactor,
    http::{
        matchmaking::Player,
        replays::replay_only_recording,
        server::{PATIENCE, Server},
    },
};

fn settings(folder: &Folder) -> Value {
    let namespace = |name: &str, more: &Value| {
        let mut room = json!({ "simulation": "crowd", "params": { "objects": 1 }, "metadata_size_limit": 20 });
        room.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        json!({
            "name": name, "room": room, "history_size": 10, "history_ttl": "1m",
            "allow_subscribe_for_client": true, "allow_subscribe_for_anonymous": true,
        })
    };
    json!({
        "storage": { "path": folder.0.join("storage") },
        "channel": { "namespaces": [
            namespace("arena", &json!({ "record_directory": folder.0.join("recordings"), "max_players": 5 })),
            namespace("kept", &json!({ "survival": "exact" })),
        ] },
    })
}

fn ask(server: &Server, method: &str, body: &Value) -> Value {
    server.ask("POST", &format!("/api/{method}"), &body.to_string()).json()
}

/// Waits until a listed room has these fields.
fn wait_for(server: &Server, channel: &str, fields: &Value) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let rooms = ask(server, "rooms", &json!({}));
        let room = &rooms["result"]["rooms"][channel];
        if fields.as_object().expect("an object").iter().all(|(name, value)| room[name] == *value) {
            return;
        }
        assert!(Instant::now() < deadline, "{channel} is not {fields}: {rooms}");
    }
}

#[test]
fn a_backend_locks_and_describes_a_room() {
    let folder = Folder::new(&format!("room-listing-{}", each_reactor::current_name()));
    let mut server = Server::start(&settings(&folder));
    let done = json!({ "result": {} });
    for channel in ["arena:1", "kept:1"] {
        let lock = json!({ "channel": channel, "locked": true });
        assert_eq!(ask(&server, "room_lock", &lock)["error"]["code"], 108, "it is not open");
        assert_eq!(ask(&server, "room_open", &json!({ "channel": channel })), done);
        assert_eq!(ask(&server, "room_lock", &lock), done);
        wait_for(&server, channel, &json!({ "locked": true, "metadata": null, "params": { "objects": 1 } }));
        let update =
            |metadata: &str, locked: bool| json!({ "channel": channel, "metadata": metadata, "locked": locked });
        // 20 bytes with the quotes, and one more.
        assert_eq!(ask(&server, "room_update", &update(&"x".repeat(18), true)), done);
        let refused = ask(&server, "room_update", &update(&"x".repeat(19), false));
        let reason = "bad request: metadata is longer than room.metadata_size_limit";
        assert_eq!(refused, json!({ "error": { "code": 107, "message": reason } }));
        wait_for(&server, channel, &json!({ "locked": true, "metadata": "x".repeat(18) }));
    }
    assert_eq!(ask(&server, "room_lock", &json!({ "channel": "arena:1" }))["error"]["code"], 107, "locked is missing");
    wait_for(&server, "arena:1", &json!({ "max_players": 5 }));
    let update = json!({ "channel": "arena:1", "max_players": 2, "metadata": null, "locked": false });
    assert_eq!(ask(&server, "room_update", &update), done);
    wait_for(&server, "arena:1", &json!({ "max_players": 2, "metadata": null, "locked": false }));
    assert_eq!(ask(&server, "room_update", &json!({ "channel": "arena:1", "max_players": 9 })), done);
    wait_for(&server, "arena:1", &json!({ "max_players": 5 }));

    assert!(server.terminate().success());
    let text = replay_only_recording(&folder.0.join("recordings"), &["--steps"]);
    for part in [": the backend changes the listing: ", ": the listing is now: "] {
        assert!(text.contains(part), "{part}: {text}");
    }

    // The restored room is still locked.
    let server = Server::start(&settings(&folder));
    wait_for(&server, "kept:1", &json!({ "locked": true, "metadata": "x".repeat(18) }));
}

#[test]
fn a_room_is_opened_with_its_listing() {
    let folder = Folder::new(&format!("room-opened-listing-{}", each_reactor::current_name()));
    let mut server = Server::start(&settings(&folder));
    // 20 bytes with the quotes.
    let metadata = "x".repeat(18);
    let described = json!({ "max_players": 5, "locked": true, "unlisted": true, "metadata": metadata });
    let mut info = Value::Null;
    for channel in ["arena:1", "kept:1"] {
        let mut body = described.clone();
        (body["channel"], body["seed"]) = (json!(channel), json!(7));
        assert_eq!(ask(&server, "room_open", &body), json!({ "result": {} }));
        // The listing applies at once, before the room has run a tick.
        info = ask(&server, "room_info", &json!({ "channel": channel }))["result"].clone();
        for (name, value) in described.as_object().expect("an object") {
            assert_eq!(info[name], *value, "{info}");
        }
        assert_eq!((&info["seed"], &info["ticks_per_second"]), (&json!(7), &json!(60)));
        assert_eq!((&info["params"], &info["num_players"]), (&json!({ "objects": 1 }), &json!(0)));
        let joined = Player::anonymous(&server).ask("subscribe", &json!({ "channel": channel }));
        assert_eq!(joined["error"]["code"], 423, "{joined}");
    }
    assert!(info["node"]["uid"].is_string() && info["node"]["name"].is_string(), "{info}");
    let refuse = |field: &str, value: Value| {
        let answer = ask(&server, "room_open", &json!({ "channel": "arena:2", field: value }));
        assert_eq!(answer["error"]["code"], 107, "{answer}");
        answer["error"]["message"].as_str().expect("a text").to_owned()
    };
    let no_such_number = "bad request: max_players must be from 1 to room.max_players";
    assert_eq!(refuse("max_players", json!(0)), no_such_number);
    assert_eq!(refuse("max_players", json!(6)), no_such_number);
    let too_long = "bad request: metadata is longer than room.metadata_size_limit";
    assert_eq!(refuse("metadata", json!("x".repeat(19))), too_long);
    let is_open = ask(&server, "room_open", &json!({ "channel": "arena:1", "unlisted": true }));
    assert_eq!(is_open["error"]["code"], 107, "{is_open}");
    let refused = server.metric(r#"dunlin_rooms_refused_total{namespace="arena",reason="listing"}"#);
    assert!((refused - 3.0).abs() < 0.5, "{refused}");
    for (channel, code) in [("arena:2", 104), ("none:1", 102)] {
        assert_eq!(ask(&server, "room_info", &json!({ "channel": channel }))["error"]["code"], code, "{channel}");
    }
    let wrong = server.ask("POST", "/api/room_open", r#"{"channel":"arena:2","max_players":"5"}"#);
    assert_eq!(wrong.status, 400);

    // The listing is in the first checkpoint, which is written in the background.
    let deadline = Instant::now() + PATIENCE;
    while server.metric(r#"dunlin_room_checkpoints_total{outcome="written"}"#) < 1.0 {
        assert!(Instant::now() < deadline, "no checkpoint was written");
    }
    server.signal_until_it_ends("KILL");
    let server = Server::start(&settings(&folder));
    wait_for(&server, "kept:1", &described);
}

#[test]
fn a_recording_begins_with_the_listing() {
    let folder = Folder::new(&format!("room-recorded-listing-{}", each_reactor::current_name()));
    let mut server = Server::start(&settings(&folder));
    let body = json!({ "channel": "arena:1", "max_players": 2, "locked": true, "unlisted": true, "metadata": [1] });
    assert_eq!(ask(&server, "room_open", &body), json!({ "result": {} }));
    let deadline = Instant::now() + PATIENCE;
    while ask(&server, "room_info", &json!({ "channel": "arena:1" }))["result"]["tick"] == 0 {
        assert!(Instant::now() < deadline, "it does not tick");
    }
    assert!(server.terminate().success());
    replay_only_recording(&folder.0.join("recordings"), &[]);
}

on_io_uring![
    a_backend_locks_and_describes_a_room,
    a_room_is_opened_with_its_listing,
    a_recording_begins_with_the_listing,
];
