//! Rounds of tag that end with a call to a real backend. The tests check the events that a player receives.

use std::sync::mpsc;

use serde_json::{Value, json};

use super::{
    matchmaking::{Player, token},
    room_calls::wait_for_count,
};
use crate::http::{hook::start_backend, server::Server};

const ROOM: &str = "tag:1";

/// Starts a server with rooms of tag in which bots win rounds of one point. `start_round` of the backend skips the
/// pause between rounds.
fn start(backend_url: &str) -> Server {
    let params = json!({ "bots": 60, "score_limit": 1, "columns": 4, "rows": 4 });
    let room = json!({ "simulation": "tag", "params": params, "call_proxy_enabled": true, "call_proxy_name": "game" });
    Server::start(&json!({
        "client": { "token": { "hmac_secret_key": "a key of at least 32 bytes, for one test" } },
        "proxies": [{ "name": "game", "endpoint": backend_url, "timeout": "60s" }],
        "channel": { "namespaces": [{
            "name": "tag", "room": room, "history_size": 100, "history_ttl": "1m", "allow_subscribe_for_client": true,
        }] },
    }))
}

fn join(server: &Server) -> Player {
    let mut player = Player::with_token(server, &token("ada"));
    let reply = player.ask("subscribe", &json!({ "channel": ROOM, "data": { "name": "Ada" } }));
    assert!(reply["subscribe"].is_object(), "{reply}");
    player
}

/// The next event with this name that the player receives.
fn event(player: &mut Player, name: &str) -> Value {
    let is_wanted = |message: &Value| message["push"]["pub"]["data"]["event"][name].is_object();
    player.take(is_wanted)["push"]["pub"]["data"]["event"][name].clone()
}

fn start_round(server: &Server) -> Value {
    let message = json!({ "channel": ROOM, "data": { "start_round": true } });
    server.ask("POST", "/api/room_send", &message.to_string()).json()["result"]["data"]["round"].clone()
}

#[test]
fn players_of_tag_see_the_backends_round_result() {
    let (sender, calls) = mpsc::channel();
    let url = start_backend(move |call| {
        let _ = sender.send(call.clone());
        // The second round is refused.
        Some(match call["data"]["round"].as_u64() {
            Some(1) => json!({ "result": { "data": { "message": "Ada has played 1 round" } } }),
            _ => json!({ "error": { "code": 1_000, "message": "the season is over" } }),
        })
    });
    let server = start(&url);
    let mut player = join(&server);
    let over = event(&mut player, "round_over");
    let shown = event(&mut player, "result");
    assert_eq!(shown, json!({ "round": 1, "message": "Ada has played 1 round" }));
    let call = calls.recv().expect("the result came from a call");
    assert_eq!((&call["channel"], &call["method"]), (&json!(ROOM), &json!("round_over")), "{call}");
    // Results exclude bots. The round ends with a single point, so the player has one only if it won.
    let score = u32::from(over["name"] == "Ada");
    let scores = json!([{ "user": "ada", "name": "Ada", "score": score }]);
    assert_eq!(call["data"], json!({ "room": ROOM, "round": 1, "scores": scores }));

    assert_eq!(start_round(&server), 2);
    assert_eq!(event(&mut player, "round_over")["round"], 2);
    assert_eq!(event(&mut player, "result"), json!({ "round": 2, "error": "the season is over" }));
    wait_for_count(&server, "answered", 1.0);
    wait_for_count(&server, "error", 1.0);
}

#[test]
fn a_backend_that_hangs_does_not_stop_a_game_of_tag() {
    let (sender, calls) = mpsc::channel();
    let url = start_backend(move |call| {
        let _ = sender.send(call.clone());
        None
    });
    let server = start(&url);
    let mut player = join(&server);
    // The game continues: the second round begins and ends before the first result times out.
    assert_eq!(event(&mut player, "round_over")["round"], 1);
    assert_eq!(start_round(&server), 2);
    assert_eq!(event(&mut player, "round_started")["round"], 2);
    for round in [1, 2] {
        assert_eq!(event(&mut player, "result"), json!({ "round": round, "error": "timeout" }));
        assert_eq!(calls.recv().expect("it was sent")["data"]["round"], round);
    }
    wait_for_count(&server, "timeout", 2.0);
    // Without a message of the backend, the next round begins after the pause.
    assert_eq!(event(&mut player, "round_started")["round"], 3);
}

on_io_uring![players_of_tag_see_the_backends_round_result, a_backend_that_hangs_does_not_stop_a_game_of_tag,];
