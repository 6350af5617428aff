//! Paths of players: recorded by rooms, stored, and read through the API.

use std::{fs, process::Command, time::Instant};

use dunlin_rooms::paths::{DecodedBlock, decode_block};
use serde_json::{Value, json};

use crate::{
    cli::Folder,
    each_reactor,
    http::server::{Answer, Client, KEY, PATIENCE, Server, handshake},
};

const STORED: &str = r#"dunlin_room_path_blocks_total{outcome="stored"}"#;

/// A player's number and its points: Unix time, x, y.
type Walked = (u64, Vec<[u64; 3]>);

fn settings(folder: &Folder, paths: &Value) -> Value {
    json!({
        "storage": { "path": folder.0.join("storage") },
        "channel": { "namespaces": [
            {
                "name": "arena",
                "room": { "simulation": "crowd", "params": { "player_objects": true, "objects": 1 }, "paths": paths },
                "history_size": 10,
                "history_ttl": "1m",
                "allow_subscribe_for_client": true,
                "allow_subscribe_for_anonymous": true,
            },
            { "name": "chat" },
        ] },
    })
}

fn join(server: &Server) -> Client {
    let mut session = server.open_session();
    session.send_text(r#"{"id":2,"subscribe":{"channel":"arena:1"}}"#);
    session
}

fn paths(server: &Server, body: &Value) -> Value {
    server.ask("POST", "/api/room_paths", &body.to_string()).json()
}

/// The points of all pages, and the number of pages.
fn all_paths(server: &Server, mut body: Value) -> (Vec<Walked>, usize) {
    let (mut found, mut pages) = (Vec::new(), 0);
    loop {
        let answer = paths(server, &body);
        for path in answer["result"]["paths"].as_array().unwrap_or_else(|| panic!("{answer}")) {
            let points = serde_json::from_value(path["points"].clone()).expect("points");
            found.push((path["player"].as_u64().expect("a player"), points));
        }
        pages += 1;
        match answer["result"].get("more") {
            Some(more) => body["cursor"] = more.clone(),
            None => return (found, pages),
        }
    }
}

fn points_of(paths: &[Walked], player: u64) -> Vec<[u64; 3]> {
    paths.iter().filter(|(of, _)| *of == player).flat_map(|(_, points)| points.clone()).collect()
}

#[test]
fn recorded_player_paths_are_returned() {
    let folder = Folder::new(&format!("room-paths-{}", each_reactor::current_name()));
    let settings = settings(&folder, &json!({ "enabled": true, "block_interval": "50ms" }));
    let mut server = Server::start(&settings);
    let sessions = [join(&server), join(&server)];
    let deadline = Instant::now() + PATIENCE;
    while server.metric(STORED) < 8.0 {
        assert!(Instant::now() < deadline, "no blocks were stored");
    }
    drop(sessions);

    let (found, _) = all_paths(&server, json!({ "channel": "arena:1" }));
    for player in [1, 2] {
        let points = points_of(&found, player);
        assert!(points.len() >= 6, "{found:?}");
        assert!(points.windows(2).all(|pair| pair[0][0] < pair[1][0] && pair[0][1..] != pair[1][1..]), "{points:?}");
        let (one, pages) = all_paths(&server, json!({ "channel": "arena:1", "player": player, "limit": 1 }));
        assert_eq!(points_of(&one, player)[..points.len()], points, "pages of one block are the same path");
        assert!(pages >= 2 && one.iter().all(|(of, _)| *of == player));
        let (from_ms, to_ms) = (points[2][0], points[4][0]);
        let body = json!({ "channel": "arena:1", "player": player, "from_ms": from_ms, "to_ms": to_ms });
        assert_eq!(points_of(&all_paths(&server, body).0, player), points[2..=4]);
        let thin = json!({ "channel": "arena:1", "player": player, "to_ms": to_ms, "interval_ms": 1_000_000 });
        assert_eq!(points_of(&all_paths(&server, thin).0, player), points[..1]);
        assert_eq!(points_of(&in_bytes(&server, player), player)[..points.len()], points, "as bytes");
    }
    assert_eq!(paths(&server, &json!({ "channel": "arena:1", "user": "ada" }))["result"], json!({ "paths": [] }));

    // All recorded points are stored when the node ends.
    assert!(server.terminate().success());
    let server = Server::start(&settings);
    let (after, _) = all_paths(&server, json!({ "channel": "arena:1" }));
    for player in [1, 2] {
        let points = points_of(&found, player);
        assert_eq!(points_of(&after, player)[..points.len()], points);
    }
}

/// The points in a binary response.
fn in_bytes(server: &Server, player: u64) -> Vec<Walked> {
    let body = json!({ "channel": "arena:1", "player": player }).to_string();
    let Answer { status, fields, body, .. } = ask_bytes(server, &body);
    assert_eq!(status, 200);
    assert!(fields.contains(&("content-type".to_owned(), "application/octet-stream".to_owned())), "{fields:?}");
    let (mut rest, mut found) = (&*body, Vec::new());
    while let Some((length, after)) = rest.split_first_chunk() {
        let (block, after) = after.split_at(u32::from_be_bytes(*length) as usize);
        let DecodedBlock { header, points } = decode_block(block).expect("a block");
        let point = |tick, x: u32, y: u32| [header.time_ms(tick), x.into(), y.into()];
        let points = points.iter().map(|at| point(at.tick, at.position.x, at.position.y)).collect();
        found.push((header.player.0.into(), points));
        rest = after;
    }
    found
}

fn ask_bytes(server: &Server, body: &str) -> Answer {
    let mut client: Client = server.connect();
    let length = body.len();
    client.send(format!(
        "POST /api/room_paths HTTP/1.1\r\nHost: a\r\nX-API-Key: {KEY}\r\nAccept: application/octet-stream\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    ));
    client.answer()
}

/// A connection token of the user "ada", signed with the key of `settings`.
fn token(folder: &Folder, settings: &Value) -> String {
    let path = folder.0.join("token.json");
    fs::write(&path, json!({ "client": settings["client"] }).to_string()).expect("a temporary file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_dunlin"));
    let output = command.args(["gen-token", "--user", "ada", "--config"]).arg(path).env_clear().output();
    let printed = String::from_utf8(output.expect("it starts").stdout).expect("text");
    let is_token = |line: &&str| line.split('.').count() == 3 && !line.contains(' ');
    printed.lines().find(is_token).unwrap_or_else(|| panic!("no token: {printed}")).to_owned()
}

#[test]
fn a_player_keeps_its_user_when_its_room_is_restored() {
    let folder = Folder::new(&format!("restored-paths-{}", each_reactor::current_name()));
    let mut settings = settings(&folder, &json!({ "enabled": true, "block_interval": "50ms" }));
    settings["channel"]["namespaces"][0]["room"]["survival"] = json!("exact");
    settings["client"] = json!({ "token": { "hmac_secret_key": "a key of at least 32 bytes, for one test" } });
    let mut server = Server::start(&settings);
    let mut session = server.connect();
    session.send(handshake(""));
    assert_eq!(session.answer().status, 101);
    session.send_text(&json!({ "id": 1, "connect": { "token": token(&folder, &settings) } }).to_string());
    session.frame();
    session.send_text(r#"{"id":2,"subscribe":{"channel":"arena:1"}}"#);
    let of_ada = |server: &Server, least: usize| {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let (found, _) = all_paths(server, json!({ "channel": "arena:1", "user": "ada" }));
            let points = points_of(&found, 1);
            if points.len() >= least {
                return points;
            }
            assert!(Instant::now() < deadline, "{} points", points.len());
        }
    };
    of_ada(&server, 6);
    assert!(!server.signal_until_it_ends("KILL").success());
    drop(session);

    // The client does not return, and the player keeps moving until the grace period ends.
    let server = Server::start(&settings);
    let stored = of_ada(&server, 6).len();
    of_ada(&server, stored + 6);
}

#[test]
fn requests_for_paths_that_are_not_stored_are_refused() {
    let folder = Folder::new(&format!("no-room-paths-{}", each_reactor::current_name()));
    let server = Server::start(&settings(&folder, &json!({})));
    for (channel, code) in [("arena:1", 108), ("chat:1", 108), ("none:1", 102), ("", 107)] {
        assert_eq!(paths(&server, &json!({ "channel": channel }))["error"]["code"], code, "{channel}");
        let answer = ask_bytes(&server, &json!({ "channel": channel }).to_string());
        assert_eq!(answer.json()["error"]["code"], code);
    }
    let batch = json!({ "commands": [{ "room_paths": { "channel": "arena:1" } }] }).to_string();
    assert_eq!(server.ask("POST", "/api/batch", &batch).json()["replies"][0]["error"]["code"], 108);
}

on_io_uring![
    recorded_player_paths_are_returned,
    a_player_keeps_its_user_when_its_room_is_restored,
    requests_for_paths_that_are_not_stored_are_refused
];
