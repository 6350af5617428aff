//! Rooms that are opened with their own parameters: through the API, in recordings, and after a restart.

use std::{fs, process::Command, time::Instant};

use serde_json::{Value, json};

use crate::{
    cli::Folder,
    each_reactor,
    http::server::{PATIENCE, Server},
};

fn settings(folder: &Folder) -> Value {
    let namespace = |name: &str, more: &Value| {
        let mut room =
            json!({ "simulation": "crowd", "params": { "objects": 1, "columns": 4 }, "params_size_limit": 40 });
        room.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        json!({ "name": name, "room": room, "history_size": 10, "history_ttl": "1m" })
    };
    json!({
        "storage": { "path": folder.0.join("storage") },
        "channel": { "namespaces": [
            namespace("arena", &json!({ "record_directory": folder.0.join("recordings") })),
            namespace("kept", &json!({ "survival": "exact" })),
        ] },
    })
}

fn open(server: &Server, body: &Value) -> Value {
    server.ask("POST", "/api/room_open", &body.to_string()).json()
}

/// Waits until the room has this number of objects.
fn wait_for_objects(server: &Server, channel: &str, objects: u64) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let rooms = server.ask("POST", "/api/rooms", "{}").json();
        if rooms["result"]["rooms"][channel]["num_objects"] == objects {
            return;
        }
        assert!(Instant::now() < deadline, "{channel} has not {objects} objects: {rooms}");
    }
}

fn refused(server: &Server, body: &Value) -> String {
    let answer = open(server, body);
    assert_eq!(answer["error"]["code"], 107, "{answer}");
    answer["error"]["message"].as_str().expect("a text").to_owned()
}

#[test]
fn a_room_has_the_params_it_was_opened_with() {
    let folder = Folder::new(&format!("room-params-{}", each_reactor::current_name()));
    let mut server = Server::start(&settings(&folder));
    let opened = json!({ "result": {} });
    assert_eq!(open(&server, &json!({ "channel": "arena:1", "params": { "objects": 5 }, "seed": 11 })), opened);
    assert_eq!(open(&server, &json!({ "channel": "arena:1" })), opened, "it is open");
    assert_eq!(open(&server, &json!({ "channel": "arena:2", "params": {} })), opened);
    assert_eq!(open(&server, &json!({ "channel": "kept:1", "params": { "objects": 6 } })), opened);
    for (channel, objects) in [("arena:1", 5), ("arena:2", 1), ("kept:1", 6)] {
        wait_for_objects(&server, channel, objects);
    }

    let bad = refused(&server, &json!({ "channel": "arena:3", "params": { "objects": -1 } }));
    assert_eq!(bad, "bad request: `objects` is -1; it may be a whole number from 0 to 100000");
    let bad = refused(&server, &json!({ "channel": "arena:3", "params": [1] }));
    assert_eq!(bad, "bad request: params must be a JSON object");
    // 40 bytes, and one more.
    let params = |name_bytes: usize| json!({ "channel": "arena:3", "params": { "x".repeat(name_bytes): 1 } });
    assert!(refused(&server, &params(34)).starts_with("bad request: unknown parameter `xxx"));
    assert_eq!(refused(&server, &params(35)), "bad request: params is longer than room.params_size_limit");
    let is_open = refused(&server, &json!({ "channel": "arena:1", "seed": 12 }));
    assert!(is_open.starts_with("bad request: the room is open already"), "{is_open}");
    let failed = server.metric(r#"dunlin_rooms_failed_total{reason="params"}"#);
    let too_long = server.metric(r#"dunlin_rooms_refused_total{namespace="arena",reason="params"}"#);
    assert_eq!((failed, too_long), (2.0, 1.0));

    assert!(server.terminate().success());
    let recordings = fs::read_dir(folder.0.join("recordings")).expect("a folder");
    let recordings = recordings.map(|entry| entry.expect("an entry").path());
    let recording =
        recordings.into_iter().find(|path| path.to_string_lossy().contains("arena_1-")).expect("of arena:1");
    let replay = Command::new(env!("CARGO_BIN_EXE_dunlin"))
        .args(["replay", "-o", "json"])
        .arg(recording)
        .env_clear()
        .output()
        .expect("it starts");
    assert!(replay.status.success(), "{}", String::from_utf8_lossy(&replay.stderr));
    let end: Value = serde_json::from_slice(&replay.stdout).expect("JSON");
    assert_eq!((&end["params"], &end["seed"]), (&json!({ "objects": 5, "columns": 4 }), &json!(11)));

    // The restored room continues with its own parameters.
    let server = Server::start(&settings(&folder));
    wait_for_objects(&server, "kept:1", 6);
}

on_io_uring![a_room_has_the_params_it_was_opened_with,];
