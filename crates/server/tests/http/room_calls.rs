//! Calls of games to a real backend over HTTP.

use std::{
    sync::{Arc, Condvar, Mutex},
    time::Instant,
};

use serde_json::{Value, json};

use crate::{
    cli::Folder,
    each_reactor,
    http::{
        hook::start_backend,
        replays::replay_only_recording,
        server::{PATIENCE, Server},
    },
};

/// A backend whose answer depends on the method: none to `hang`, an answer to `gate` when the gate is open, an error to
/// `error`, 65 bytes to `long`, and the data of the call to other methods. It stores the bodies of all requests.
struct Backend {
    url: String,
    calls: Arc<CallLog>,
}

#[derive(Default)]
struct CallLog {
    bodies: Mutex<Vec<Value>>,
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Backend {
    fn start() -> Self {
        let calls = Arc::<CallLog>::default();
        let of_backend = Arc::clone(&calls);
        Self { url: start_backend(move |body| of_backend.answer(body)), calls }
    }

    fn methods(&self) -> Vec<String> {
        let bodies = self.calls.bodies.lock().expect("not poisoned");
        bodies.iter().map(|body| body["method"].as_str().expect("a method").to_owned()).collect()
    }

    fn open_gate(&self) {
        *self.calls.is_open.lock().expect("not poisoned") = true;
        self.calls.opened.notify_all();
    }
}

impl CallLog {
    fn answer(&self, body: &Value) -> Option<Value> {
        self.bodies.lock().expect("not poisoned").push(body.clone());
        if body["method"] == "gate" {
            let closed = self.is_open.lock().expect("not poisoned");
            drop(self.opened.wait_while(closed, |is_open| !*is_open).expect("not poisoned"));
        }
        match body["method"].as_str() {
            Some("hang") => None,
            Some("error") => Some(json!({ "error": { "code": 1_000, "message": "no" } })),
            Some("long") => Some(json!({ "result": { "data": "x".repeat(63) } })),
            _ => Some(json!({ "result": { "data": body["data"] } })),
        }
    }
}

fn settings(folder: &Folder, backend: &Backend) -> Value {
    let room = json!({
        "simulation": "crowd", "params": { "objects": 1 }, "seed": 7, "call_proxy_enabled": true, "call_proxy_name": "game",
        "calls_limit": 2, "call_size_limit": 64, "empty_timeout": "10m",
    });
    let with = |key: &str, value: Value| {
        let mut room = room.clone();
        room[key] = value;
        room
    };
    json!({
        "storage": { "path": folder.0.join("storage") },
        "proxies": [{ "name": "game", "endpoint": backend.url, "timeout": "60s" }],
        "channel": { "namespaces": [
            { "name": "arena", "history_size": 100, "history_ttl": "1m",
              "room": with("record_directory", folder.0.join("recordings").display().to_string().into()) },
            { "name": "kept", "history_size": 100, "history_ttl": "1m", "room": with("survival", "exact".into()) },
        ] },
    })
}

fn call(server: &Server, call: &Value) -> Value {
    call_in("arena:1", server, call)
}

/// Makes the game of the room call the backend.
fn call_in(channel: &str, server: &Server, call: &Value) -> Value {
    server.ask("POST", "/api/room_send", &json!({ "channel": channel, "data": call }).to_string()).json()
}

fn outcome(server: &Server, call: u32) -> Value {
    outcome_in("arena:1", server, call)
}

/// Waits until this number of calls have this outcome.
pub(super) fn wait_for_count(server: &Server, outcome: &str, count: f64) {
    let deadline = Instant::now() + PATIENCE;
    let metric = format!("dunlin_room_calls_total{{outcome=\"{outcome}\"}}");
    while (server.metric(&metric) - count).abs() > 0.1 {
        assert!(Instant::now() < deadline, "{outcome} does not become {count}");
    }
}

/// The event with the outcome of a call, without its tick.
fn outcome_in(channel: &str, server: &Server, call: u32) -> Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let history = json!({ "channel": channel, "limit": -1 }).to_string();
        let history = server.ask("POST", "/api/history", &history).json();
        let publications = history["result"]["publications"].as_array().cloned().unwrap_or_default();
        let events = publications.into_iter().map(|publication| publication["data"]["event"].clone());
        if let Some(mut event) = events.into_iter().find(|event| event["call"] == call) {
            event.as_object_mut().and_then(|event| event.remove("tick")).expect("a tick");
            return event;
        }
        assert!(Instant::now() < deadline, "call {call} has no outcome: {history}");
    }
}

fn open(server: &Server, channel: &str) {
    server.ask("POST", "/api/room_open", &json!({ "channel": channel }).to_string());
}

#[test]
fn a_game_calls_the_backend() {
    let folder = Folder::new(&format!("room-calls-{}", each_reactor::current_name()));
    let backend = Backend::start();
    let mut server = Server::start(&settings(&folder, &backend));
    open(&server, "arena:1");
    let sent = call(&server, &json!({ "call": "echo", "data": { "score": 7 }, "timeout_ticks": 1_000_000 }));
    assert_eq!(sent, json!({ "result": { "data": { "call": 1 } } }));
    assert_eq!(outcome(&server, 1), json!({ "call": 1, "answer": { "score": 7 } }));
    let body = json!({ "channel": "arena:1", "method": "echo", "encoding": "json", "data": { "score": 7 } });
    assert_eq!(*backend.calls.bodies.lock().expect("not poisoned"), [body]);
    wait_for_count(&server, "answered", 1.0);
    call(&server, &json!({ "call": "error", "timeout_ticks": 1_000_000 }));
    assert_eq!(outcome(&server, 2), json!({ "call": 2, "error": 1_000 }));
    // The data has the maximum length, and one byte more. The limit of 64 bytes covers the method and the data.
    let data = "x".repeat(58);
    call(&server, &json!({ "call": "echo", "data": data, "timeout_ticks": 1_000_000 }));
    assert_eq!(outcome(&server, 3), json!({ "call": 3, "answer": data }));
    let data = "x".repeat(59);
    let refused = call(&server, &json!({ "call": "echo", "data": data, "timeout_ticks": 1_000_000 }));
    assert_eq!(refused["error"]["code"], 460);
    wait_for_count(&server, "refused", 1.0);
    call(&server, &json!({ "call": "long", "timeout_ticks": 1_000_000 }));
    assert_eq!(outcome(&server, 4), json!({ "call": 4, "error": "too_long" }));
    call(&server, &json!({ "call": "hang", "timeout_ticks": 2 }));
    assert_eq!(outcome(&server, 5), json!({ "call": 5, "error": "timeout" }));

    assert!(server.terminate().success());
    let replayed = |format| replay_only_recording(&folder.0.join("recordings"), &["--steps", "-o", format]);
    let lines: Vec<Value> = replayed("json").lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let numbers = |kind: &str| {
        let of_kind = lines.iter().filter(|line| line["step"] == kind);
        of_kind.map(|line| line["call"].as_u64().expect("a call")).collect::<Vec<_>>()
    };
    assert_eq!(numbers("call"), [1, 2, 3, 4, 5], "the calls are made again");
    assert!(numbers("answer").contains(&1), "{lines:?}");
    assert!(lines.iter().any(|line| line["step"] == "message" && line["tick"].is_u64()), "{lines:?}");
    let text = replayed("text");
    for part in [": the game makes call 1 of ", ": the backend answers call 1: ", ": the backend sends the message "] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_backend_that_hangs_costs_its_calls_alone() {
    let folder = Folder::new(&format!("room-calls-hang-{}", each_reactor::current_name()));
    let backend = Backend::start();
    let server = Server::start(&settings(&folder, &backend));
    open(&server, "arena:1");
    open(&server, "arena:2");
    call(&server, &json!({ "call": "gate", "timeout_ticks": 1 }));
    assert_eq!(outcome(&server, 1), json!({ "call": 1, "error": "timeout" }));
    for number in [2, 3] {
        let sent = call(&server, &json!({ "call": "gate", "timeout_ticks": 1_000_000 }));
        assert_eq!(sent["result"]["data"]["call"], number);
    }
    let refused = call(&server, &json!({ "call": "echo", "timeout_ticks": 1_000_000 }));
    assert_eq!(refused["error"]["code"], 460, "two calls wait");
    // A call of another room is answered.
    call_in("arena:2", &server, &json!({ "call": "echo", "data": 7, "timeout_ticks": 1_000_000 }));
    assert_eq!(outcome_in("arena:2", &server, 1), json!({ "call": 1, "answer": 7 }));
    // Answers that arrive after the timeout or after the end of the room are dropped.
    server.ask("POST", "/api/room_close", &json!({ "channel": "arena:1" }).to_string());
    backend.open_gate();
    wait_for_count(&server, "late", 3.0);
    wait_for_count(&server, "answered", 1.0);
    wait_for_count(&server, "timeout", 1.0);
}

#[test]
fn a_call_is_lost_by_a_restart_and_not_sent_again() {
    for signal in ["TERM", "KILL"] {
        let folder = Folder::new(&format!("room-calls-{signal}-{}", each_reactor::current_name()));
        let backend = Backend::start();
        let mut server = Server::start(&settings(&folder, &backend));
        open(&server, "kept:1");
        call_in("kept:1", &server, &json!({ "call": "hang", "timeout_ticks": 1_000_000 }));
        let deadline = Instant::now() + PATIENCE;
        while backend.methods() != ["hang"] {
            assert!(Instant::now() < deadline, "the call does not arrive");
        }
        server.signal_until_it_ends(signal);
        let server = Server::start(&settings(&folder, &backend));
        assert_eq!(outcome_in("kept:1", &server, 1), json!({ "call": 1, "error": "lost" }));
        wait_for_count(&server, "lost", 1.0);
        call_in("kept:1", &server, &json!({ "call": "echo", "data": 7, "timeout_ticks": 1_000_000 }));
        assert_eq!(outcome_in("kept:1", &server, 2), json!({ "call": 2, "answer": 7 }));
        assert_eq!(backend.methods(), ["hang", "echo"]);
    }
}

on_io_uring![
    a_game_calls_the_backend,
    a_backend_that_hangs_costs_its_calls_alone,
    a_call_is_lost_by_a_restart_and_not_sent_again,
];
