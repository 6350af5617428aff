//! Reloading the configuration of a running node.

use std::{
    fs,
    net::{SocketAddr, TcpStream},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Instant,
};

use serde_json::{Value, json};

use crate::http::server::{Answer, Client, KEY, PATIENCE, Server, handshake};

const RELOAD: &str = "/-/reload";

/// A server with an internal port, and that port's address.
fn start(more: &Value) -> (Server, SocketAddr) {
    let free = dunlin_processes::free_address().expect("a free port");
    let mut settings = json!({
        "http_server": { "internal_port": free.port().to_string() },
        "channel": { "namespaces": [
            open("chat", &json!({ "history_size": 10, "history_ttl": "10m", "force_recovery": true })),
            open("leaving", &json!({ "history_size": 10, "history_ttl": "10m" })),
            open("arena", &json!({ "room": { "simulation": "crowd" }, "history_size": 10, "history_ttl": "10m" })),
        ] },
    });
    if let Some(more) = more.as_object() {
        settings.as_object_mut().expect("an object").extend(more.clone());
    }
    (Server::start(&settings), free)
}

fn open(name: &str, more: &Value) -> Value {
    let mut namespace = json!({
        "name": name, "allow_subscribe_for_client": true, "allow_subscribe_for_anonymous": true,
    });
    namespace.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    namespace
}

fn ask(address: SocketAddr, key: &str, path: &str, body: &str) -> Answer {
    let mut client = Client::new(TcpStream::connect(address).expect("it listens"));
    let length = body.len();
    client
        .send(format!("POST {path} HTTP/1.1\r\nHost: a\r\nX-API-Key: {key}\r\nContent-Length: {length}\r\n\r\n{body}"));
    client.answer()
}

fn api(address: SocketAddr, method: &str, body: &Value) -> Value {
    let answer = ask(address, KEY, &format!("/api/{method}"), &body.to_string());
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

fn session(server: &Server) -> Client {
    let mut session = server.connect();
    session.send(handshake(""));
    assert_eq!(session.answer().status, 101);
    command(&mut session, &json!({ "id": 1, "connect": {} }));
    session
}

/// Sends a command. Returns its reply, and skips pushes.
fn command(session: &mut Client, command: &Value) -> Value {
    session.send_text(&command.to_string());
    loop {
        let message = message(session);
        if message["id"] == command["id"] {
            return message;
        }
    }
}

/// The next text message. A frame must contain only one. Answers pings, since a test may take longer than their interval.
fn message(session: &mut Client) -> Value {
    loop {
        let (first, payload) = session.frame();
        assert_eq!(first, 0x81, "{payload:?}");
        if payload != b"{}" {
            return serde_json::from_slice(&payload).expect("JSON");
        }
        session.send_text("{}");
    }
}

fn subscribe(session: &mut Client, id: u32, channel: &str) -> Value {
    command(session, &json!({ "id": id, "subscribe": { "channel": channel } }))
}

fn namespaces(config: &mut Value) -> &mut Vec<Value> {
    config["channel"]["namespaces"].as_array_mut().expect("a list")
}

#[test]
fn a_reload_changes_the_level_of_the_log_and_of_records() {
    let (mut server, internal) = start(&json!({ "log": { "level": "info" } }));
    server.rewrite(|config| config["log"]["level"] = json!("debug"));
    let answer = ask(internal, KEY, RELOAD, "");
    assert_eq!(answer.json()["changed"], json!(["log.level"]), "{answer:?}");
    // Whatever came before was below the level of that time.
    server.logged("configuration reloaded");
    drop(session(&server));
    let accepted = server.logged("connection accepted");
    assert_eq!((&accepted["level"], &accepted["address"]), (&json!("DEBUG"), &json!("127.0.0.1")));
    assert_eq!(server.logged("session connected")["session"], accepted["session"]);
    let ended = server.logged("connection ended");
    assert_eq!((&ended["session"], &ended["address"]), (&accepted["session"], &accepted["address"]));
    assert!(ended["duration_ms"].is_u64() && ended["stage"] == "session", "{ended}");
    // The handshake alone is longer.
    for bytes in ["received_bytes", "acknowledged_bytes"] {
        assert!(ended[bytes].as_u64() > Some(100), "{ended}");
    }
}

#[test]
fn a_reload_applies_changes_and_keeps_sessions_and_rooms() {
    let (server, internal) = start(&json!({}));
    let mut session = session(&server);
    let chat = subscribe(&mut session, 2, "chat:a");
    subscribe(&mut session, 3, "leaving:a");
    assert!(subscribe(&mut session, 4, "arena:a")["error"].is_null());
    assert_eq!(subscribe(&mut session, 5, "late:a")["error"]["code"], 102);
    api(internal, "publish", &json!({ "channel": "chat:a", "data": 1 }));
    let opened = api(internal, "rooms", &json!({}));

    server.rewrite(|config| {
        namespaces(config).retain(|namespace| namespace["name"] != "leaving");
        namespaces(config).push(open("late", &json!({ "history_size": 5, "history_ttl": "10m" })));
        namespaces(config).insert(0, open("first", &json!({})));
        namespaces(config)
            .push(open("lobby", &json!({ "room": { "simulation": "crowd" }, "history_size": 9, "history_ttl": "1m" })));
        config["client"]["channel_limit"] = json!(4);
        config["client"]["allowed_origins"] = json!(["http://new.example"]);
        config["shards"] = json!(3);
    });
    let answer = ask(internal, KEY, RELOAD, "");
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(
        answer.json(),
        json!({
            "outcome": "applied",
            "changed": [
                "channel.namespaces[first]", "channel.namespaces[late]", "channel.namespaces[leaving]",
                "client.allowed_origins", "client.channel_limit",
            ],
            "needs_restart": [
                { "key": "channel.namespaces[lobby]", "why": "it has rooms" },
                { "key": "shards" },
            ],
            "warnings": [],
        })
    );
    let ended = loop {
        let message = message(&mut session);
        if !message["push"]["unsubscribe"].is_null() {
            break message;
        }
    };
    assert_eq!((&ended["push"]["channel"], &ended["push"]["unsubscribe"]["code"]), (&json!("leaving:a"), &json!(2000)));
    assert_eq!(subscribe(&mut session, 6, "leaving:a")["error"]["code"], 102);
    assert!(subscribe(&mut session, 7, "late:a")["error"].is_null());
    assert!(subscribe(&mut session, 8, "first:a")["error"].is_null());
    assert_eq!(subscribe(&mut session, 9, "first:b")["error"]["code"], 106, "four subscriptions are there");

    api(internal, "publish", &json!({ "channel": "chat:a", "data": 2 }));
    let pushed = loop {
        let message = message(&mut session);
        if message["push"]["pub"]["data"] == 2 {
            break message;
        }
    };
    assert_eq!(pushed["push"]["pub"]["offset"], 2, "the stream went on");
    let history = api(internal, "history", &json!({ "channel": "chat:a", "limit": 10 }));
    assert_eq!(history["result"]["epoch"], chat["subscribe"]["epoch"]);
    assert_eq!(history["result"]["publications"].as_array().map(Vec::len), Some(2));
    let rooms = api(internal, "rooms", &json!({}));
    assert_eq!(rooms["result"]["rooms"][0]["channel"], opened["result"]["rooms"][0]["channel"], "{rooms}");
    let mut page = server.connect();
    page.send(handshake("Origin: http://new.example\r\n"));
    assert_eq!(page.answer().status, 101);

    // A second reload changes nothing, and the same keys still require a restart.
    let again = ask(internal, KEY, RELOAD, "").json();
    assert_eq!((&again["changed"], again["needs_restart"].as_array().map(Vec::len)), (&json!([]), Some(2)), "{again}");
}

#[test]
fn the_api_key_changes_by_reload_and_other_keys_are_refused() {
    let (server, internal) = start(&json!({}));
    assert_eq!(ask(server.address, KEY, RELOAD, "").status, 404, "the public port knows no such path");
    assert_eq!(ask(internal, "wrong", RELOAD, "").status, 401);
    server.rewrite(|config| config["http_api"] = json!({ "key": "another-key-of-the-tests-32-bytes" }));
    let refused = server.run("reload");
    assert_eq!((refused.code, refused.text.contains("previous_key")), (Some(1), true), "{}", refused.text);
    server.rewrite(|config| {
        config["http_api"] = json!({ "key": "another-key-of-the-tests-32-bytes", "previous_key": KEY });
    });
    let done = server.run("reload");
    assert_eq!((done.code, &*done.text), (Some(0), "changed: http_api.key\nchanged: http_api.previous_key\n"));
    server.rewrite(|config| config["http_api"] = json!({ "key": "another-key-of-the-tests-32-bytes" }));
    assert_eq!(server.run("reload").text, "changed: http_api.previous_key\n");
    assert_eq!(server.run("reload").text, "nothing has changed\n");
    assert_eq!(ask(internal, KEY, "/api/info", "{}").status, 401);
    assert_eq!(ask(internal, "another-key-of-the-tests-32-bytes", "/api/info", "{}").status, 200);
}

#[test]
fn an_invalid_configuration_changes_nothing() {
    let (mut server, internal) = start(&json!({}));
    server.rewrite(|config| {
        config["client"]["channel_limit"] = json!(1);
        config["client"]["ping_intervall"] = json!("1s");
    });
    let answer = ask(internal, KEY, RELOAD, "");
    assert_eq!((answer.status, &answer.json()["outcome"]), (422, &json!("refused")));
    assert!(answer.text().contains("ping_intervall"), "{answer:?}");
    let log_line = server.logged("configuration reload refused; nothing has changed");
    assert!(log_line["error"].as_str().is_some_and(|error| error.contains("ping_intervall")), "{log_line}");
    let done = server.run("reload");
    assert_eq!(done.code, Some(3), "the command reads the file as well: {}", done.text);
    let mut session = session(&server);
    assert!(subscribe(&mut session, 2, "chat:a")["error"].is_null());
    assert!(subscribe(&mut session, 3, "chat:b")["error"].is_null(), "the limit is as it was");
    let page = Client::new(TcpStream::connect(internal).expect("it listens")).ask("GET", "/metrics", "").text();
    let metric = |name: &str| crate::http::server::metric_on(&page, name).to_string();
    assert_eq!(metric("dunlin_config_reloads_total{outcome=\"refused\"}"), "1");
    assert_eq!(metric("dunlin_config_last_reload_success_timestamp_seconds"), "0");
}

#[test]
fn sighup_reloads_the_configuration() {
    let mut server = Server::start(&json!({}));
    let mut session = session(&server);
    server.rewrite(|config| namespaces(config).push(open("late", &json!({}))));
    server.signal("HUP");
    let log_line = server.logged("configuration reloaded");
    assert_eq!(log_line["changed"], "channel.namespaces[late]");
    assert!(subscribe(&mut session, 2, "late:a")["error"].is_null());
    assert_eq!(server.metric("dunlin_config_reloads_total{outcome=\"applied\"}").to_string(), "1");
    assert!(server.metric("dunlin_config_last_reload_success_timestamp_seconds") > 1.0e9);
    // Without an internal port, no port has this endpoint.
    assert_eq!(server.ask("POST", RELOAD, "").status, 404);
    assert_eq!(server.run("reload").code, Some(2));
}

/// The numbers of threads, open files and resident bytes of a process.
fn use_of(process: u32) -> (usize, usize, usize) {
    let count = |what: &str| fs::read_dir(format!("/proc/{process}/{what}")).expect("it runs").count();
    let statm = fs::read_to_string(format!("/proc/{process}/statm")).expect("it runs");
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).expect("a number");
    (count("task"), count("fd"), pages * 4_096)
}

#[test]
fn a_hundred_reloads_under_load_leak_nothing() {
    let (server, internal) = start(&json!({}));
    let mut sessions: Vec<Client> = (0..20).map(|_| session(&server)).collect();
    for session in &mut sessions {
        subscribe(session, 2, "chat:a");
    }
    let reload = |name: &str| {
        server.rewrite(|config| {
            namespaces(config).retain(|namespace| namespace["name"] != "even" && namespace["name"] != "odd");
            namespaces(config).push(open(name, &json!({ "history_size": 5, "history_ttl": "10m" })));
            config["client"]["token"] =
                json!({ "hmac_secret_key": format!("{name}-0123456789abcdef0123456789abcdef") });
        });
        assert_eq!(ask(internal, KEY, RELOAD, "").status, 200);
    };
    let (mut before, is_over) = ((0, 0, 0), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                api(internal, "publish", &json!({ "channel": "chat:a", "data": { "a": 1 } }));
                // Each session reads, so that its queue does not grow with the duration of the test.
                for session in &mut sessions {
                    assert!(message(session)["push"]["pub"]["data"]["a"] == 1, "no session was closed");
                }
            }
        });
        for round in 0..110 {
            reload(if round % 2 == 0 { "even" } else { "odd" });
            if round == 9 {
                before = use_of(server.process());
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    // Threads that read files end ten seconds after their last task.
    let (mut after, deadline) = (use_of(server.process()), Instant::now() + PATIENCE);
    while after.0 > before.0 + 1 && Instant::now() < deadline {
        after = use_of(server.process());
    }
    assert!(after.0 <= before.0 + 1 && after.1 <= before.1 + 4, "threads and files {before:?} became {after:?}");
    assert!(after.2 < before.2 + (24 << 20), "memory {before:?} became {after:?}");
}

on_io_uring![
    a_reload_applies_changes_and_keeps_sessions_and_rooms,
    the_api_key_changes_by_reload_and_other_keys_are_refused,
    a_reload_changes_the_level_of_the_log_and_of_records,
    an_invalid_configuration_changes_nothing,
    sighup_reloads_the_configuration,
    a_hundred_reloads_under_load_leak_nothing,
];
