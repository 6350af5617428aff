//! Messages of the backend to rooms: through the API, in recordings, and after a restart.

use std::time::Instant;

use serde_json::{Value, json};

use crate::{
    cli::Folder,
    each_reactor,
    http::{
        replays::replay_only_recording,
        server::{PATIENCE, Server},
    },
};

fn settings(folder: &Folder) -> Value {
    let room = json!({ "simulation": "crowd", "params": { "objects": 1 }, "message_size_limit": 64, "seed": 7 });
    let namespace = |name: &str, more: &Value| {
        let mut room = room.clone();
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

fn send(server: &Server, channel: &str, data: &Value) -> Value {
    server.ask("POST", "/api/room_send", &json!({ "channel": channel, "data": data }).to_string()).json()
}

#[test]
fn a_message_is_answered_recorded_and_in_the_history() {
    let folder = Folder::new(&format!("room-messages-{}", each_reactor::current_name()));
    let mut server = Server::start(&settings(&folder));
    for channel in ["arena:1", "kept:1"] {
        assert_eq!(send(&server, channel, &json!(1))["error"]["code"], 108, "it is not open");
        server.ask("POST", "/api/room_open", &json!({ "channel": channel }).to_string());
        assert_eq!(send(&server, channel, &json!({ "go": true })), json!({ "result": { "data": { "players": 0 } } }));
        let history = json!({ "channel": channel, "limit": -1 }).to_string();
        let history = server.ask("POST", "/api/history", &history).json();
        assert_eq!(history["result"]["publications"][0]["data"]["event"], json!({ "go": true }));
        // 64 bytes with the quotes, and one more.
        assert_eq!(send(&server, channel, &json!("x".repeat(62)))["result"]["data"]["players"], 0);
        assert_eq!(send(&server, channel, &json!("x".repeat(63)))["error"]["code"], 107);
    }
    let answered = server.metric(r#"dunlin_room_messages_total{outcome="answered"}"#);
    let too_long = server.metric(r#"dunlin_room_messages_total{outcome="too_long"}"#);
    assert_eq!((answered, too_long), (4.0, 2.0));

    assert!(server.terminate().success());
    replay_only_recording(&folder.0.join("recordings"), &[]);

    // The restored room continues, and accepts messages.
    let server = Server::start(&settings(&folder));
    let deadline = Instant::now() + PATIENCE;
    while send(&server, "kept:1", &json!(2))["result"].is_null() {
        assert!(Instant::now() < deadline, "the room is not restored");
    }
}

on_io_uring![a_message_is_answered_recorded_and_in_the_history,];
