//! Rooms that admit only some users: by subscription tokens, and by a password that a backend checks.

use std::{fs, process::Command};

use serde_json::{Value, json};

use crate::{
    cli::Folder,
    each_reactor,
    http::{
        hook::start_backend,
        matchmaking::{Player, token},
        server::Server,
    },
};

/// The key of [`token`].
const KEY: &str = "a key of at least 32 bytes, for one test";
const CHANNEL: &str = "private:1";

fn settings(more: &Value) -> Value {
    let mut private = json!({
        "name": "private", "room": { "simulation": "crowd", "params": { "objects": 1 } },
        "history_size": 10, "history_ttl": "1m",
    });
    private.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    json!({ "client": { "token": { "hmac_secret_key": KEY } }, "channel": { "namespaces": [private] } })
}

fn open(server: &Server) {
    let body = json!({ "channel": CHANNEL, "unlisted": true });
    assert_eq!(server.ask("POST", "/api/room_open", &body.to_string()).json(), json!({ "result": {} }));
}

/// A subscription token of the user for the room.
fn subscription_token(user: &str) -> String {
    let folder = Folder::new(&format!("private-token-{user}-{}", each_reactor::current_name()));
    let path = folder.0.join("token.json");
    fs::write(&path, json!({ "client": { "token": { "hmac_secret_key": KEY } } }).to_string()).expect("a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_dunlin"));
    let command = command.args(["gen-sub-token", "--user", user, "--channel", CHANNEL, "--config"]).arg(path);
    let printed = String::from_utf8(command.env_clear().output().expect("it starts").stdout).expect("text");
    let is_token = |line: &&str| line.split('.').count() == 3 && !line.contains(' ');
    printed.lines().find(is_token).unwrap_or_else(|| panic!("no token: {printed}")).to_owned()
}

fn join(player: &mut Player, fields: &Value) -> Value {
    let mut body = fields.clone();
    body["channel"] = json!(CHANNEL);
    let reply = player.ask("subscribe", &body);
    if reply["subscribe"].is_object() { json!("joined") } else { reply["error"].clone() }
}

fn players(server: &Server) -> Value {
    let answer = server.ask("POST", "/api/room_info", &json!({ "channel": CHANNEL }).to_string()).json();
    answer["result"]["num_players"].clone()
}

#[test]
fn a_subscription_token_admits_its_user_alone() {
    let server = Server::start(&settings(&json!({})));
    open(&server);
    let of_ada = subscription_token("ada");
    let (mut ada, mut eve) = (Player::with_token(&server, &token("ada")), Player::with_token(&server, &token("eve")));
    let denied = json!({ "code": 103, "message": "permission denied" });
    assert_eq!(join(&mut eve, &json!({})), denied, "without a token");
    let with_other_token = json!({ "channel": CHANNEL, "token": of_ada });
    assert_eq!(eve.closed_for("subscribe", &with_other_token), 3_500, "the token of another user");
    assert_eq!(players(&server), 0);
    assert_eq!(join(&mut ada, &json!({ "token": of_ada })), "joined");
    assert_eq!(players(&server), 1);
}

/// Starts a backend that admits joins with the password. Returns its URL.
fn start_password_backend() -> String {
    start_backend(|body| {
        Some(if body["channel"] == CHANNEL && body["data"]["password"] == "swordfish" {
            json!({ "result": {} })
        } else {
            json!({ "error": { "code": 1_403, "message": "wrong password" } })
        })
    })
}

#[test]
fn a_backend_checks_the_password_of_a_join() {
    let mut settings = settings(&json!({ "subscribe_proxy_enabled": true, "subscribe_proxy_name": "passwords" }));
    settings["proxies"] = json!([{ "name": "passwords", "endpoint": start_password_backend(), "timeout": "10s" }]);
    let server = Server::start(&settings);
    open(&server);
    let mut player = Player::with_token(&server, &token("ada"));
    let wrong = json!({ "code": 1_403, "message": "wrong password" });
    for data in [json!({}), json!({ "data": { "password": "shark" } }), json!({ "data": "swordfish" })] {
        assert_eq!(join(&mut player, &data), wrong, "{data}");
    }
    assert_eq!(players(&server), 0);
    assert_eq!(join(&mut player, &json!({ "data": { "password": "swordfish", "name": "Ada" } })), "joined");
    assert_eq!(players(&server), 1);
}

on_io_uring![a_subscription_token_admits_its_user_alone, a_backend_checks_the_password_of_a_join];
