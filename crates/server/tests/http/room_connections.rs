//! What the connections of players have carried, in the recordings of their rooms.

use std::path::Path;

use serde_json::{Value, json};

use super::matchmaking::Player;
use crate::{
    cli::Folder,
    each_reactor,
    http::{observation::until, replays::replay_only_recording, server::Server},
};

/// Namespaces whose rooms have large snapshots, 16 cells that are all in view.
fn settings(folder: &Folder) -> Value {
    let params = json!({ "objects": 1_000, "columns": 4, "rows": 4, "near_cells": 3, "player_objects": true });
    let namespace = |name: &str, limit: u32| {
        json!({
            "name": name, "history_size": 10, "history_ttl": "1m",
            "allow_subscribe_for_client": true, "allow_subscribe_for_anonymous": true,
            "room": {
                "simulation": "crowd", "params": params, "record_directory": folder.0.join(name),
                "player_bandwidth_limit": limit,
            },
        })
    };
    json!({
        "client": { "allow_anonymous_connect_without_token": true },
        "channel": { "namespaces": [namespace("slow", 0), namespace("paced", 0), namespace("limited", 60_000)] },
    })
}

/// Reads the next snapshot; returns its tick.
fn tick(player: &mut Player) -> u64 {
    let publication = player.take(|message| message["push"]["pub"].is_object());
    publication["push"]["pub"]["data"]["tick"].as_u64().unwrap_or_default()
}

fn join(server: &Server, channel: &str, data: &Value) -> Player {
    let mut player = Player::anonymous(server);
    let reply = player.ask("subscribe", &json!({ "channel": channel, "data": data }));
    assert!(reply["subscribe"].is_object(), "{reply}");
    tick(&mut player);
    player
}

fn read_until(player: &mut Player, last: u64) {
    while tick(player) < last {}
}

/// What the only recording of a folder says of connections.
fn carried(directory: &Path) -> Vec<Value> {
    let steps = replay_only_recording(directory, &["--steps", "-o", "json"]);
    let lines = steps.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    lines.filter(|line| line["step"] == "carried" && line["player"] == 1).collect()
}

#[test]
fn a_recording_says_what_connections_carried() {
    let folder = Folder::new(&format!("room-connections-{}", each_reactor::current_name()));
    let mut server = Server::start(&settings(&folder));
    let tick_of = |channel: &str| {
        let answer = server.ask("POST", "/api/room_info", &json!({ "channel": channel }).to_string()).json();
        answer["result"]["tick"].as_u64().unwrap_or_default()
    };

    let mut slow = join(&server, "slow:1", &json!({}));
    let from = tick_of("slow:1");
    until(|| tick_of("slow:1") > from + 180);
    let last = tick_of("slow:1");
    read_until(&mut slow, last);
    let mut paced = join(&server, "paced:1", &json!({ "updates_per_second_max": 6 }));
    read_until(&mut paced, 60);
    let mut limited = join(&server, "limited:1", &json!({}));
    read_until(&mut limited, 240);
    // What is told arrives with the next ticks.
    for channel in ["slow:1", "paced:1", "limited:1"] {
        let at = tick_of(channel);
        until(|| tick_of(channel) > at + 4);
    }
    drop((slow, paced, limited));
    assert!(server.terminate().success());

    let told = carried(&folder.0.join("slow"));
    let gap = told.iter().max_by_key(|line| line["waited_ticks"].as_u64()).expect("it was behind");
    assert!(gap["waited_ticks"].as_u64() > Some(10) && gap["waited_for"] == "connection", "{told:?}");
    assert_eq!((&gap["paced_ticks"], &gap["limited_ticks"]), (&json!(0), &json!(0)));
    let told = carried(&folder.0.join("paced"));
    assert!(told.iter().any(|line| line["paced_ticks"] == 9), "each tenth of 60 ticks: {told:?}");
    let told = carried(&folder.0.join("limited"));
    assert!(told.iter().any(|line| line["limited_ticks"].as_u64() > Some(0)), "{told:?}");
}

on_io_uring![a_recording_says_what_connections_carried,];
