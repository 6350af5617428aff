//! Addresses of clients in rooms: behind a proxy, and in recordings.

use serde_json::{Value, json};

use super::matchmaking::{Player, token};
use crate::{
    cli::Folder,
    each_reactor,
    http::{replays::replay_only_recording, server::Server},
};

fn settings(folder: &Folder) -> Value {
    let namespace = |name: &str, shows: bool| {
        json!({
            "name": name, "history_size": 10, "history_ttl": "1m", "allow_subscribe_for_client": true,
            "room": {
                "simulation": "crowd", "params": { "objects": 1, "player_objects": true }, "visitor_address": shows,
                "record_directory": folder.0.join(name),
            },
        })
    };
    json!({
        "client": { "token": { "hmac_secret_key": "a key of at least 32 bytes, for one test" } },
        "http_server": { "trusted_proxies": ["127.0.0.1"] },
        "channel": { "namespaces": [namespace("shown", true), namespace("hidden", false)] },
    })
}

/// The joins in the only recording of a folder: the user, and the address.
fn joins(folder: &Folder, name: &str) -> Vec<(Value, Value)> {
    let lines = replay_only_recording(&folder.0.join(name), &["--steps", "-o", "json"]);
    let steps = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let joins = steps.filter(|step| step["step"] == "join");
    joins.map(|step| (step["visitor"]["user"].clone(), step["visitor"]["address"].clone())).collect()
}

#[test]
fn a_game_gets_the_forwarded_address_where_allowed() {
    let folder = Folder::new(&format!("room-address-{}", each_reactor::current_name()));
    let mut server = Server::start(&settings(&folder));
    let clients = [
        ("ada", "X-Forwarded-For: 203.0.113.9, 192.0.2.7\r\n", "192.0.2.7"),
        ("bob", "X-Forwarded-For: 2001:db8::7\r\n", "2001:db8::7"),
        ("eve", "X-Forwarded-For: ::ffff:192.0.2.8\r\n", "192.0.2.8"),
        ("tom", "", "127.0.0.1"),
    ];
    for (user, fields, _) in clients {
        let mut player = Player::with_fields(&server, &token(user), fields);
        for channel in ["shown:1", "hidden:1"] {
            let reply = player.ask("subscribe", &json!({ "channel": channel }));
            assert!(reply["subscribe"].is_object(), "{reply}");
        }
    }
    assert!(server.terminate().success());
    let expected = |shows: bool| {
        let address = |address: &str| if shows { json!(address) } else { Value::Null };
        clients.map(|(user, _, known)| (json!(user), address(known))).to_vec()
    };
    assert_eq!(joins(&folder, "shown"), expected(true));
    assert_eq!(joins(&folder, "hidden"), expected(false));
}

on_io_uring![a_game_gets_the_forwarded_address_where_allowed,];
