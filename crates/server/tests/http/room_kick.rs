//! Players that the backend removes from rooms: through the API, in recordings, and after a restart.

use std::time::Instant;

use serde_json::{Value, json};

use super::matchmaking::{Player, token};
use crate::{
    cli::Folder,
    each_reactor,
    http::{
        replays::replay_only_recording,
        server::{PATIENCE, Server},
    },
};

fn settings(folder: &Folder) -> Value {
    let namespace = |name: &str, more: &Value| {
        let mut room = json!({
            "simulation": "crowd", "params": { "objects": 1, "player_objects": true }, "seat_grace": "10m",
        });
        room.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        json!({
            "name": name, "room": room, "history_size": 10, "history_ttl": "1m",
            "allow_subscribe_for_client": true, "allow_subscribe_for_anonymous": true,
        })
    };
    json!({
        "client": { "token": { "hmac_secret_key": "a key of at least 32 bytes, for one test" } },
        "storage": { "path": folder.0.join("storage") },
        "channel": { "namespaces": [
            namespace("arena", &json!({ "record_directory": folder.0.join("recordings") })),
            namespace("kept", &json!({ "survival": "exact" })),
        ] },
    })
}

fn kick(server: &Server, body: &Value) -> Value {
    server.ask("POST", "/api/room_kick", &body.to_string()).json()
}

fn join(player: &mut Player, channel: &str, data: &Value) -> Value {
    let reply = player.ask("subscribe", &json!({ "channel": channel, "data": data }));
    assert!(reply["subscribe"].is_object(), "{reply}");
    reply["subscribe"]["data"].clone()
}

/// Waits until a room has the expected number of players with a client, and of players without one.
fn wait_for(server: &Server, channel: &str, here: u32, away: u32) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let rooms = server.ask("POST", "/api/rooms", "{}").json();
        let room = &rooms["result"]["rooms"][channel];
        if room["num_players"] == here && room["num_players_away"] == away {
            return;
        }
        assert!(Instant::now() < deadline, "{channel} has not {here} players and {away} away: {rooms}");
    }
}

#[test]
fn a_backend_kicks_connected_and_away_players() {
    let folder = Folder::new(&format!("room-kick-{}", each_reactor::current_name()));
    let mut server = Server::start(&settings(&folder));
    let (ada, bob) = (token("ada"), token("bob"));
    let nobody =
        json!({ "error": { "code": 104, "message": "not found: no such player or spectator is in the room" } });
    let removed = |count: u32| json!({ "result": { "num_players": count } });
    for channel in ["arena:1", "kept:1"] {
        let user = |user: &str| json!({ "channel": channel, "user": user, "reason": "enough" });
        assert_eq!(kick(&server, &user("ada"))["error"]["code"], 108, "it is not open");
        let mut players = [&ada, &ada, &bob].map(|token| Player::with_token(&server, token));
        let seats = players.each_mut().map(|player| join(player, channel, &json!({})));
        wait_for(&server, channel, 3, 0);
        let [mut here, away, mut bob] = players;
        drop(away);
        wait_for(&server, channel, 2, 1);
        assert_eq!(kick(&server, &user("eve")), nobody);
        assert_eq!(kick(&server, &user("ada")), removed(2), "one is here, and one is away");
        let push = here.take(|message| message["push"]["unsubscribe"].is_object());
        let unsubscribe = json!({ "code": 2012, "reason": "enough" });
        assert_eq!(push["push"], json!({ "channel": channel, "unsubscribe": unsubscribe }));
        assert_eq!(kick(&server, &user("ada")), nobody);
        wait_for(&server, channel, 1, 0);
        // The seat is invalid, and the user may join again.
        let mut again = Player::with_token(&server, &ada);
        let data = join(&mut again, channel, &json!({ "seat_token": seats[1]["seat_token"] }));
        assert_eq!(data["seat_resumed"], false);
        assert_eq!(kick(&server, &json!({ "channel": channel, "player": 3 })), removed(1));
        let push = bob.take(|message| message["push"]["unsubscribe"].is_object());
        assert_eq!(push["push"]["unsubscribe"]["code"], 2012);
        wait_for(&server, channel, 1, 0);
    }
    let counted = |outcome: &str| server.metric(&format!(r#"dunlin_room_messages_total{{outcome="{outcome}"}}"#));
    assert_eq!((counted("answered"), counted("refused"), counted("not_open")), (4.0, 4.0, 2.0));

    assert!(server.terminate().success());
    replay_only_recording(&folder.0.join("recordings"), &[]);

    // After a restart, the removed players are not in the restored room.
    let mut server = Server::start(&settings(&folder));
    wait_for(&server, "kept:1", 0, 1);
    assert_eq!(server.logged("room restored")["channel"], "kept:1");
    assert_eq!(server.logged("all stored rooms opened")["opened"], 1);
}

on_io_uring![a_backend_kicks_connected_and_away_players,];
