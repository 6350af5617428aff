//! Rooms that the backend locks and describes: over the API, in recordings, and after a restart.

use std::{fs, process::Command, time::Instant};

use serde_json::{Value, json};

use crate::{
    cli::Folder,
    each_reactor,
    http::server::{PATIENCE, Server},
};

fn settings(folder: &Folder) -> Value {
    let namespace = |name: &str, more: &Value| {
        let mut room = json!({ "simulation": "crowd", "params": { "objects": 1 }, "metadata_size_limit": 20 });
        room.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        json!({ "name": name, "room": room, "history_size": 10, "history_ttl": "1m" })
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

/// Waits until the fields of a listed room are these.
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

    assert!(server.signal_until_it_ends("TERM").success());
    let recordings: Vec<_> = fs::read_dir(folder.0.join("recordings")).expect("a folder").collect();
    let [Ok(recording)] = &recordings[..] else { panic!("{recordings:?}") };
    let replay = Command::new(env!("CARGO_BIN_EXE_dunlin")).arg("replay").arg(recording.path()).env_clear().output();
    let replay = replay.expect("it starts");
    assert!(replay.status.success(), "{}", String::from_utf8_lossy(&replay.stderr));

    // The room that is kept is still locked.
    let server = Server::start(&settings(&folder));
    wait_for(&server, "kept:1", &json!({ "locked": true, "metadata": "x".repeat(18) }));
}

on_io_uring![a_backend_locks_and_describes_a_room,];
