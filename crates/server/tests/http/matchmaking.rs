//! Matchmaking through the server API and by clients, decisions of a backend, and lobbies.

use std::{
    collections::VecDeque,
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    time::Instant,
};

use serde_json::{Value, json};

use crate::{
    cli::Folder,
    http::server::{Client, PATIENCE, Server, handshake},
};

fn settings(rules: &Value) -> Value {
    json!({
        "client": { "token": { "hmac_secret_key": "a key of at least 32 bytes, for one test" } },
        "channel": { "namespaces": [
            {
                "name": "arena",
                "room": {
                    "simulation": "crowd", "params": { "player_objects": true, "objects": 1 }, "match": rules,
                    "lobby_channel": "lobby:arena", "lobby_interval": "100ms", "max_players": 4,
                },
                "history_size": 10, "history_ttl": "1m",
                "allow_subscribe_for_client": true, "allow_subscribe_for_anonymous": true,
            },
            {
                "name": "lobby", "delivery": "latest", "conflation_key": "room", "cache_keys": 100,
                "allow_subscribe_for_client": true, "allow_subscribe_for_anonymous": true,
            },
            { "name": "user", "allow_user_limited_channels": true },
            { "name": "chat" },
        ] },
    })
}

/// A session with its received messages.
pub(super) struct Player {
    session: Client,
    received: VecDeque<Value>,
    last_id: u32,
}

impl Player {
    pub(super) fn anonymous(server: &Server) -> Self {
        Self { session: server.open_session(), received: VecDeque::new(), last_id: 1 }
    }

    pub(super) fn with_token(server: &Server, token: &str) -> Self {
        Self::with_fields(server, token, "")
    }

    /// Opens a session whose handshake has these header fields.
    pub(super) fn with_fields(server: &Server, token: &str, fields: &str) -> Self {
        let mut session = server.connect();
        session.send(handshake(fields));
        assert_eq!(session.answer().status, 101);
        let mut player = Self { session, received: VecDeque::new(), last_id: 0 };
        assert!(player.ask("connect", &json!({ "token": token }))["connect"].is_object());
        player
    }

    /// Removes and returns the first received message that matches. Waits if there is none.
    pub(super) fn take(&mut self, suits: impl Fn(&Value) -> bool) -> Value {
        loop {
            if let Some(place) = self.received.iter().position(&suits) {
                return self.received.remove(place).expect("it is there");
            }
            let (_, bytes) = self.session.frame();
            // Snapshots of rooms are not JSON.
            let messages = std::str::from_utf8(&bytes).unwrap_or_default().lines();
            self.received.extend(messages.filter_map(|line| serde_json::from_str::<Value>(line).ok()));
        }
    }

    pub(super) fn ask(&mut self, command: &str, body: &Value) -> Value {
        self.last_id += 1;
        let id = self.last_id;
        self.session.send_text(&json!({ "id": id, command: body }).to_string());
        self.take(|message| message["id"] == id)
    }

    /// Sends a command that closes the session. Returns the close code.
    pub(super) fn closed_for(&mut self, command: &str, body: &Value) -> u16 {
        self.last_id += 1;
        self.session.send_text(&json!({ "id": self.last_id, command: body }).to_string());
        loop {
            let (first, bytes) = self.session.frame();
            if first == 0x88 {
                return u16::from_be_bytes([bytes[0], bytes[1]]);
            }
        }
    }

    fn subscribe(&mut self, channel: &str) -> Value {
        self.ask("subscribe", &json!({ "channel": channel }))
    }

    fn rpc(&mut self, method: &str, data: &Value) -> Value {
        let reply = self.ask("rpc", &json!({ "method": method, "data": data }));
        if reply["error"].is_object() { reply["error"]["code"].clone() } else { reply["rpc"]["data"].clone() }
    }

    /// The data of the next matching publication in a channel.
    fn publication(&mut self, channel: &str, suits: impl Fn(&Value) -> bool) -> Value {
        let data = |message: &Value| message["push"]["pub"]["data"].clone();
        let found = self.take(|message| message["push"]["channel"] == channel && suits(&data(message)));
        data(&found)
    }
}

fn api(server: &Server, method: &str, body: &Value) -> Value {
    server.ask("POST", &format!("/api/{method}"), &body.to_string()).json()
}

/// Submits a ticket that must be accepted.
fn submit(server: &Server, users: &Value) -> Value {
    let answer = api(server, "match", &json!({ "namespace": "arena", "users": users }));
    assert_eq!(answer["result"]["status"], "waiting", "{answer}");
    answer["result"]["ticket"].clone()
}

fn assert_metric(server: &Server, name: &str, expected: f64) {
    let counted = server.metric(name);
    assert!((counted - expected).abs() < 0.5, "{name} is {counted}");
}

/// Waits until the ticket has this status.
fn until(server: &Server, ticket: &Value, status: &str) -> Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = api(server, "match_status", &json!({ "ticket": ticket }));
        if answer["result"]["status"] == status {
            return answer["result"].clone();
        }
        assert!(Instant::now() < deadline, "{answer} is not {status}");
    }
}

/// A connection token of the user, signed with the key of the settings.
pub(super) fn token(user: &str) -> String {
    // Concurrent tests use the same user names, so the folder needs a unique name.
    static MADE: AtomicU32 = AtomicU32::new(0);
    let folder = Folder::new(&format!("match-token-{}", MADE.fetch_add(1, Ordering::Relaxed)));
    let path = folder.0.join("token.json");
    fs::write(&path, json!({ "client": settings(&json!({}))["client"] }).to_string()).expect("a temporary file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_dunlin"));
    let output = command.args(["gen-token", "--user", user, "--config"]).arg(path).env_clear().output();
    let printed = String::from_utf8(output.expect("it starts").stdout).expect("text");
    let is_token = |line: &&str| line.split('.').count() == 3 && !line.contains(' ');
    printed.lines().find(is_token).unwrap_or_else(|| panic!("no token: {printed}")).to_owned()
}

#[test]
fn tickets_of_the_api_fill_a_room_that_a_lobby_lists() {
    let server = Server::start(&settings(&json!({
        "enabled": true, "min_players": 2, "max_players": 2, "party_limit": 2, "fill_wait": "0s", "queue_limit": 2,
        // The players are anonymous, so places cannot be bound to users.
        "bind_places": false,
    })));
    let mut lobby = Player::anonymous(&server);
    lobby.subscribe("lobby:arena");
    let first = submit(&server, &json!(["ada"]));
    let refused =
        |users: &Value| api(&server, "match", &json!({ "namespace": "arena", "users": users }))["error"].clone();
    assert_eq!(refused(&json!(["ada"]))["code"], 113);
    for users in [json!([]), json!(["b", "b"]), json!(["b", ""]), json!(["b", "c", "d"])] {
        assert_eq!(refused(&users)["code"], 107, "{users}");
    }
    let elsewhere = api(&server, "match", &json!({ "namespace": "chat", "users": ["b"] }));
    assert_eq!(elsewhere["error"]["code"], 108);
    for method in ["match_status", "match_cancel"] {
        assert_eq!(api(&server, method, &json!({ "ticket": "nothing" }))["error"]["code"], 104);
        assert_eq!(api(&server, method, &json!({}))["error"]["code"], 107);
    }
    // A cancelled ticket does not affect the room of the others.
    let region =
        json!({ "namespace": "arena", "users": ["carl"], "criteria": { "mode": "other" }, "skill": 7, "region": "eu" });
    let cancelled = api(&server, "match", &region)["result"]["ticket"].clone();
    assert_eq!(refused(&json!(["eve"]))["code"], 111, "the queue is full");
    assert_eq!(api(&server, "match_cancel", &json!({ "ticket": cancelled }))["result"]["reason"], "cancelled");
    let second = submit(&server, &json!(["bob"]));
    let room = until(&server, &first, "placed")["channel"].clone();
    assert_eq!(until(&server, &second, "placed")["channel"], room);
    let name = room.as_str().expect("a channel").to_owned();

    let listing = lobby.publication("lobby:arena", |data| data["room"] == room);
    assert_eq!(listing, json!({ "room": room, "players": 0, "max_players": 4 }));
    let mut players = [Player::anonymous(&server), Player::anonymous(&server)];
    for player in &mut players {
        assert!(player.subscribe(&name)["subscribe"].is_object());
    }
    for ticket in [&first, &second] {
        assert_eq!(until(&server, ticket, "joined")["channel"], room);
    }
    assert_eq!(api(&server, "match_cancel", &json!({ "ticket": first }))["error"]["code"], 113);
    lobby.publication("lobby:arena", |data| data["players"] == 2);
    // A later subscriber receives the current listing.
    let newest = Player::anonymous(&server).subscribe("lobby:arena")["subscribe"]["publications"].clone();
    assert_eq!(newest[0]["data"]["players"], 2, "{newest}");
    assert_eq!(newest.as_array().map(Vec::len), Some(1));

    api(&server, "room_close", &json!({ "channel": room }));
    let closed = lobby.publication("lobby:arena", |data| data["closed"] == true);
    assert_eq!(closed["room"], room);
    assert_eq!(Player::anonymous(&server).subscribe("lobby:arena")["subscribe"].get("publications"), None);
    assert_metric(&server, r#"dunlin_match_placed_total{namespace="arena"}"#, 2.0);
    assert_metric(&server, r#"dunlin_match_ended_total{namespace="arena",outcome="joined"}"#, 2.0);
    assert_metric(&server, r#"dunlin_lobby_listings_total{channel="lobby:arena",outcome="refused"}"#, 0.0);
}

#[test]
fn clients_form_a_party_and_are_informed() {
    let server = Server::start(&settings(&json!({
        "enabled": true, "min_players": 2, "max_players": 2, "party_limit": 2, "fill_wait": "0s", "allow_for_client": true,
        "notify_namespace": "user",
    })));
    let (mut ada, mut bob) = (Player::with_token(&server, &token("ada")), Player::with_token(&server, &token("bob")));
    let mut eve = Player::with_token(&server, &token("eve"));
    assert!(bob.subscribe("user:#bob")["subscribe"].is_object());
    let answer = ada.rpc("dunlin.match", &json!({ "namespace": "arena", "users": ["bob"] }));
    assert_eq!((&answer["status"], &answer["unconfirmed"]), (&json!("unconfirmed"), &json!(["bob"])), "{answer}");
    let ticket = json!({ "ticket": answer["ticket"] });
    let invitation = bob.publication("user:#bob", |data| data["match"]["status"] == "invited")["match"].clone();
    assert_eq!((&invitation["ticket"], &invitation["namespace"]), (&answer["ticket"], &json!("arena")));

    // A user who is not in the ticket cannot use it.
    for method in ["dunlin.match_confirm", "dunlin.match_cancel", "dunlin.match_status"] {
        assert_eq!(eve.rpc(method, &ticket), 404, "{method}");
    }
    assert_eq!(ada.rpc("dunlin.match", &json!({ "namespace": "arena" })), 409);
    assert_eq!(ada.rpc("dunlin.match_status", &json!({ "namespace": "arena" }))["ticket"], answer["ticket"]);
    assert_eq!(bob.rpc("dunlin.match_confirm", &ticket)["ticket"], answer["ticket"]);
    let placed = bob.publication("user:#bob", |data| data["match"]["status"] == "placed");
    assert_eq!(ada.rpc("dunlin.match_status", &ticket)["channel"], placed["match"]["channel"]);
    assert_eq!(ada.rpc("dunlin.match_cancel", &ticket)["status"], "ended");
    let ended = bob.publication("user:#bob", |data| data["match"]["status"] == "ended");
    assert_eq!(ended["match"]["reason"], "cancelled");

    for (method, data, code) in [
        ("dunlin.match", json!({ "namespace": "arena", "skill": 9 }), 107),
        ("dunlin.match", json!({ "namespace": "arena", "users": 5 }), 107),
        ("dunlin.match", json!({ "namespace": "arena", "users": ["a", "b"] }), 107),
        ("dunlin.match", json!([]), 107),
        ("dunlin.match", json!({ "namespace": "chat" }), 108),
        ("dunlin.match_confirm", json!({ "namespace": "arena" }), 107),
        ("dunlin.match_status", json!({ "namespace": "arena" }), 404),
        ("dunlin.other", json!({}), 104),
    ] {
        assert_eq!(eve.rpc(method, &data), code, "{method} {data}");
    }
    assert_eq!(Player::anonymous(&server).rpc("dunlin.match", &json!({ "namespace": "arena" })), 103);
}

#[test]
fn criteria_are_parameters_of_the_room_that_the_game_checks() {
    let mut settings = settings(&json!({
        "enabled": true, "min_players": 1, "max_players": 2, "fill_wait": "0s",
        "criteria_params": ["columns"], "region_param": "leaderboard_channel",
    }));
    let room = &mut settings["channel"]["namespaces"][0]["room"];
    (room["simulation"], room["params"]) = (json!("treasure_hunt"), json!({ "treasures": 0, "obstacles": 0 }));
    let server = Server::start(&settings);
    let submit = |user: &str, criteria: &Value| {
        let request = json!({ "namespace": "arena", "users": [user], "criteria": criteria, "region": "leaders:eu" });
        api(&server, "match", &request)["result"]["ticket"].clone()
    };
    let channel = until(&server, &submit("ada", &json!({ "mode": "duel" })), "placed")["channel"].clone();
    let deadline = Instant::now() + PATIENCE;
    let params =
        || api(&server, "rooms", &json!({}))["result"]["rooms"][channel.as_str().unwrap_or_default()]["params"].clone();
    while params() != json!({ "treasures": 0, "obstacles": 0, "leaderboard_channel": "leaders:eu" }) {
        assert!(Instant::now() < deadline, "{}", params());
    }
    // A text, although the game requires a number.
    let ended = until(&server, &submit("bob", &json!({ "columns": "many" })), "ended");
    assert_eq!(ended["reason"], "room_failed");
}

#[test]
fn a_user_requests_no_more_tickets_than_the_rate_allows() {
    let server = Server::start(&settings(&json!({
        "enabled": true, "min_players": 2, "max_players": 2, "allow_for_client": true, "user_rate_limit": 3,
    })));
    let (mut ada, mut bob) = (Player::with_token(&server, &token("ada")), Player::with_token(&server, &token("bob")));
    let arena = json!({ "namespace": "arena" });
    // Other users are not affected, and the user may continue when its bucket has filled up.
    let mut accepted = 0;
    let mut repeat = |player: &mut Player, until_code: Option<u16>| {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answer = player.rpc("dunlin.match", &arena);
            if answer["status"] == "waiting" {
                accepted += 1;
                assert_eq!(player.rpc("dunlin.match_cancel", &arena)["status"], "ended");
            } else {
                assert_eq!(answer, 111);
            }
            if until_code.map_or(answer["status"] == "waiting", |code| answer == code) {
                return accepted;
            }
            assert!(Instant::now() < deadline, "{answer}");
        }
    };
    assert!(repeat(&mut ada, Some(111)) >= 3, "as many as the limit at once");
    repeat(&mut bob, None);
    repeat(&mut ada, None);
    let refused = r#"dunlin_match_refused_total{namespace="arena",reason="rate_limited"}"#;
    let deadline = Instant::now() + PATIENCE;
    while server.metric(refused) < 1.0 {
        assert!(Instant::now() < deadline, "{refused}");
    }
}

#[test]
fn an_address_has_no_more_waiting_users_than_its_limit() {
    let mut settings = settings(&json!({
        "enabled": true, "min_players": 4, "max_players": 4, "fill_wait": "10m", "ticket_timeout": "10m",
        "allow_for_client": true, "user_rate_limit": 1_000_000, "address_users_limit": 2,
    }));
    settings["http_server"] = json!({ "trusted_proxies": ["127.0.0.1"] });
    let server = Server::start(&settings);
    let arena = json!({ "namespace": "arena" });
    let at = |user: &str, address: &str| {
        Player::with_fields(&server, &token(user), &format!("X-Forwarded-For: {address}\r\n"))
    };
    let mut players = [("ada", "192.0.2.1"), ("bob", "192.0.2.1")].map(|(user, address)| at(user, address));
    for player in &mut players {
        assert_eq!(player.rpc("dunlin.match", &arena)["status"], "waiting", "up to the limit");
    }
    let mut cat = at("cat", "192.0.2.1");
    assert_eq!(cat.rpc("dunlin.match", &arena), 111, "one past it");
    assert_eq!(players[0].rpc("dunlin.match", &arena), 409, "a user who has a ticket counts once");
    // Four waiting users would get a room.
    let mut dan = at("dan", "192.0.2.2");
    assert_eq!(dan.rpc("dunlin.match", &arena)["status"], "waiting", "another address");
    assert_eq!(dan.rpc("dunlin.match_cancel", &arena)["status"], "ended");
    submit(&server, &json!(["eve"]));
    let refused = r#"dunlin_match_refused_total{namespace="arena",reason="address_limited"}"#;
    let deadline = Instant::now() + PATIENCE;
    while server.metric(refused) < 1.0 {
        assert!(Instant::now() < deadline, "{refused}");
    }
    assert_metric(&server, refused, 1.0);
    // A user whose ticket has ended no longer counts toward the limit.
    assert_eq!(players[1].rpc("dunlin.match_cancel", &arena)["status"], "ended");
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = cat.rpc("dunlin.match", &arena);
        if answer["status"] == "waiting" {
            break;
        }
        assert_eq!(answer, 111);
        assert!(Instant::now() < deadline, "the place is not free");
    }
    // Full buckets have been removed in the meantime, so the other users count only because of their tickets.
    assert_eq!(at("fay", "192.0.2.1").rpc("dunlin.match", &arena), 111);
}

/// A server that places two users in each room, which has this number of places.
fn with_reserved_pairs(places: u32) -> Server {
    let mut settings = settings(&json!({
        "enabled": true, "min_players": 2, "max_players": 2, "fill_wait": "0s", "allow_for_client": true,
        "reserve_timeout": "1m",
    }));
    let room = &mut settings["channel"]["namespaces"][0]["room"];
    (room["max_players"], room["empty_timeout"]) = (json!(places), json!("1m"));
    Server::start(&settings)
}

#[test]
fn a_reserved_place_is_kept_for_the_user_of_the_ticket() {
    let server = with_reserved_pairs(2);
    let [mut ada, mut bob, mut eve] = ["ada", "bob", "eve"].map(|user| Player::with_token(&server, &token(user)));
    let arena = json!({ "namespace": "arena" });
    let place = |first: &mut Player, second: &mut Player| {
        let tickets = [first, second].map(|player| player.rpc("dunlin.match", &arena)["ticket"].clone());
        let channels = tickets.map(|ticket| until(&server, &ticket, "placed")["channel"].clone());
        assert_eq!(channels[0], channels[1]);
        channels[0].as_str().expect("a channel").to_owned()
    };
    let room = place(&mut ada, &mut bob);
    let refused = |player: &mut Player, room: &str| {
        let reply = player.subscribe(room);
        (reply["error"]["code"].clone(), reply["error"]["message"].clone())
    };
    let reserved = (json!(409), json!("all free places are reserved for other users"));
    assert_eq!(refused(&mut eve, &room), reserved, "between placing and joining");
    assert_eq!(refused(&mut Player::anonymous(&server), &room), reserved);
    assert!(bob.subscribe(&room)["subscribe"].is_object());
    assert_eq!(refused(&mut eve, &room), reserved, "one place is left, and reserved");
    assert!(ada.subscribe(&room)["subscribe"].is_object());
    assert_eq!(refused(&mut eve, &room), (json!(400), json!("the room is full")));
    assert_metric(&server, r#"dunlin_room_joins_total{outcome="reserved"}"#, 3.0);

    // A cancelled ticket releases only its own place.
    let [mut cat, mut dan] = ["cat", "dan"].map(|user| Player::with_token(&server, &token(user)));
    let room = place(&mut cat, &mut dan);
    assert_eq!(refused(&mut eve, &room), reserved);
    assert_eq!(dan.rpc("dunlin.match_cancel", &arena)["status"], "ended");
    let deadline = Instant::now() + PATIENCE;
    while !eve.subscribe(&room)["subscribe"].is_object() {
        assert!(Instant::now() < deadline, "the place of dan is kept");
    }
    assert_eq!(refused(&mut dan, &room), reserved);
    assert!(cat.subscribe(&room)["subscribe"].is_object());
}

#[test]
fn a_player_without_a_ticket_uses_no_reserved_place() {
    let server = with_reserved_pairs(3);
    let [mut ada, mut bob, mut eve] = ["ada", "bob", "eve"].map(|user| Player::with_token(&server, &token(user)));
    let arena = json!({ "namespace": "arena" });
    let [of_ada, of_bob] = [&mut ada, &mut bob].map(|player| player.rpc("dunlin.match", &arena)["ticket"].clone());
    let room = until(&server, &of_ada, "placed")["channel"].as_str().expect("a channel").to_owned();
    assert!(eve.subscribe(&room)["subscribe"].is_object(), "one place is not reserved");
    assert!(bob.subscribe(&room)["subscribe"].is_object());
    until(&server, &of_bob, "joined");
    let answer = api(&server, "match_status", &json!({ "ticket": of_ada }));
    assert_eq!(answer["result"]["status"], "placed", "the ticket of ada is older, and she has not joined");
    assert!(ada.subscribe(&room)["subscribe"].is_object());
    until(&server, &of_ada, "joined");
}

/// Starts a backend whose answer depends on the requesting user. Returns its port.
fn backend() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let port = listener.local_addr().expect("bound").port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || decide(&stream));
        }
    });
    port
}

fn decide(stream: &TcpStream) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let request: Value = serde_json::from_slice(&body).ok()?;
        let answer = match request["user"].as_str()? {
            "vip" => json!({ "result": { "data": { "channel": "arena:vip" } } }),
            "captain" => json!({ "result": { "data": { "users": ["captain", "mate"], "skill": 5 } } }),
            "banned" => json!({ "error": { "code": 1_403, "message": "not you" } }),
            "odd" => json!({ "result": { "data": [1] } }),
            // No answer.
            "slow" => continue,
            _ => json!({ "result": {} }),
        };
        let text = answer.to_string();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", text.len());
        (&*stream).write_all((head + &text).as_bytes()).ok()?;
    }
}

#[test]
fn a_backend_places_changes_or_refuses_a_ticket() {
    let mut settings = settings(&json!({
        "enabled": true, "min_players": 2, "max_players": 4, "fill_wait": "0s", "allow_for_client": true,
        "proxy_enabled": true, "proxy_name": "decider",
    }));
    settings["proxies"] =
        json!([{ "name": "decider", "endpoint": format!("http://127.0.0.1:{}/", backend()), "timeout": "300ms" }]);
    let server = Server::start(&settings);
    let ask =
        |user: &str| Player::with_token(&server, &token(user)).rpc("dunlin.match", &json!({ "namespace": "arena" }));
    assert_eq!(ask("vip"), json!({ "status": "placed", "channel": "arena:vip" }));
    assert_eq!((ask("banned"), ask("odd"), ask("slow")), (json!(1_403), json!(100), json!(100)));
    // The backend is responsible for the users that it names, so they need not confirm.
    let party = ask("captain");
    assert_eq!(party["status"], "waiting");
    until(&server, &party["ticket"], "placed");
    assert_eq!(ask("somebody")["status"], "waiting");
}

#[test]
fn a_lobby_of_many_rooms_publishes_changes_alone() {
    let mut settings = settings(&json!({}));
    settings["channel"]["namespaces"][0]["room"]["ticks_per_second"] = json!(1);
    settings["channel"]["namespaces"][1]["cache_keys"] = json!(2_000);
    settings["room"] = json!({ "open_rate_limit": 0, "opening_limit": 5_000 });
    let server = Server::start(&settings);
    let rooms: usize = 60;
    for room in 0..rooms {
        assert!(api(&server, "room_open", &json!({ "channel": format!("arena:{room}") }))["result"].is_object());
    }
    let listed = r#"dunlin_lobby_rooms{channel="lobby:arena"}"#;
    let published = r#"dunlin_lobby_listings_total{channel="lobby:arena",outcome="published"}"#;
    let deadline = Instant::now() + PATIENCE;
    while server.metric(published) < rooms as f64 {
        assert!(Instant::now() < deadline, "{} of {rooms} rooms are listed", server.metric(listed));
    }
    let mut lobby = Player::anonymous(&server);
    let state = lobby.subscribe("lobby:arena")["subscribe"]["publications"].clone();
    assert_eq!(state.as_array().map(Vec::len), Some(rooms), "the answer has all rooms");
    let before = server.metric(published);
    let mut player = Player::anonymous(&server);
    player.subscribe("arena:7");
    assert_eq!(lobby.publication("lobby:arena", |_| true)["room"], "arena:7", "nothing else was published");
    assert_metric(&server, published, before + 1.0);
}

#[test]
fn an_unlisted_room_is_in_no_lobby_and_gets_no_tickets() {
    let server = Server::start(&settings(&json!({
        "enabled": true, "min_players": 2, "max_players": 4, "fill_wait": "0s", "fill_opened_rooms": true,
    })));
    let done = json!({ "result": {} });
    let hidden = json!({ "channel": "arena:hidden", "unlisted": true, "metadata": { "mode": "ice" } });
    assert_eq!(api(&server, "room_open", &hidden), done);
    let shown = json!({ "channel": "arena:shown", "max_players": 2, "metadata": { "mode": "ice", "n": [1] } });
    assert_eq!(api(&server, "room_open", &shown), done);
    let state = || Player::anonymous(&server).subscribe("lobby:arena")["subscribe"]["publications"].clone();
    let deadline = Instant::now() + PATIENCE;
    let listings = loop {
        let listings = state();
        if listings.is_array() {
            break listings;
        }
        assert!(Instant::now() < deadline, "nothing is listed");
    };
    assert_eq!(listings.as_array().map(Vec::len), Some(1), "{listings}");
    let listing =
        json!({ "room": "arena:shown", "players": 0, "max_players": 2, "metadata": { "mode": "ice", "n": [1] } });
    assert_eq!(listings[0]["data"], listing, "from the first listing on");

    // Two single users, who alone would not get a new room, fill the shown one.
    let placed = |user: &str| until(&server, &submit(&server, &json!([user])), "placed")["channel"].clone();
    assert_eq!((placed("ada"), placed("bob")), (json!("arena:shown"), json!("arena:shown")));
    let both = until(&server, &submit(&server, &json!(["cat", "dan"])), "placed")["channel"].clone();
    assert!(both.as_str().is_some_and(|channel| channel.starts_with("arena:match-")), "{both}");

    let channels = |body: &Value| -> Vec<String> {
        let answer = api(&server, "room_list", body);
        let rooms = answer["result"]["rooms"].as_array().unwrap_or_else(|| panic!("{answer}")).iter();
        rooms.map(|room| room["channel"].as_str().expect("a text").to_owned()).collect()
    };
    let ice = |include: bool| json!({ "metadata": { "mode": "ice" }, "include_unlisted": include });
    assert_eq!(channels(&ice(false)), ["arena:shown"]);
    assert_eq!(channels(&ice(true)), ["arena:hidden", "arena:shown"]);
    assert_eq!(channels(&json!({ "pattern": "arena:[hs]*", "min_free_places": 2 })), ["arena:shown"]);
    assert_eq!(api(&server, "room_info", &json!({ "channel": "arena:hidden" }))["result"]["unlisted"], true);

    // A client that knows the channel can still join.
    assert!(Player::anonymous(&server).subscribe("arena:hidden")["subscribe"].is_object());
    assert_eq!(api(&server, "room_update", &json!({ "channel": "arena:hidden", "unlisted": false })), done);
    let mut lobby = Player::anonymous(&server);
    let now = lobby.subscribe("lobby:arena")["subscribe"]["publications"].clone();
    let is_hidden = |data: &Value| data["room"] == "arena:hidden";
    if !now.as_array().into_iter().flatten().any(|publication| is_hidden(&publication["data"])) {
        lobby.publication("lobby:arena", is_hidden);
    }
}

on_io_uring![
    an_unlisted_room_is_in_no_lobby_and_gets_no_tickets,
    tickets_of_the_api_fill_a_room_that_a_lobby_lists,
    clients_form_a_party_and_are_informed,
    criteria_are_parameters_of_the_room_that_the_game_checks,
    a_user_requests_no_more_tickets_than_the_rate_allows,
    an_address_has_no_more_waiting_users_than_its_limit,
    a_player_without_a_ticket_uses_no_reserved_place,
    a_reserved_place_is_kept_for_the_user_of_the_ticket,
    a_backend_places_changes_or_refuses_a_ticket,
    a_lobby_of_many_rooms_publishes_changes_alone
];
