//! The internal port, and that the public port then no longer serves its endpoints.

use std::net::{SocketAddr, TcpStream};

use serde_json::{Value, json};

use crate::http::server::{Answer, Client, Server, handshake};

/// Paths that only operators use.
const OPERATORS_PATHS: [&str; 5] = ["/health", "/metrics", "/debug/pprof", "/swagger", "/swagger/openapi.json"];

/// A server with an internal port, and that port's address.
fn start(more: &Value) -> (Server, SocketAddr) {
    let free = dunlin_processes::free_address().expect("a free port");
    let mut settings = json!({
        "http_server": { "internal_port": free.port().to_string() },
        "debug": { "enabled": true },
        "swagger": { "enabled": true },
    });
    if let Some(more) = more.as_object() {
        settings.as_object_mut().expect("an object").extend(more.clone());
    }
    (Server::start(&settings), free)
}

fn ask(address: SocketAddr, method: &str, path: &str) -> Answer {
    Client::new(TcpStream::connect(address).expect("it listens")).ask(method, path, "{}")
}

#[test]
fn operator_paths_are_served_on_the_internal_port_alone() {
    let (server, internal) = start(&json!({}));
    for path in OPERATORS_PATHS {
        assert_eq!(ask(server.address, "GET", path).status, 404, "{path}");
        assert_eq!(ask(internal, "GET", path).status, 200, "{path}");
    }
    for path in ["/api/info", "/api"] {
        assert_eq!(ask(server.address, "POST", path).status, 404, "{path}");
    }
    assert_eq!(ask(internal, "POST", "/api/info").status, 200);
    let mut session = Client::new(TcpStream::connect(internal).expect("it listens"));
    session.send(handshake(""));
    assert_eq!(session.answer().status, 404, "WebSockets are the public port's");
    let mut session = server.connect();
    session.send(handshake(""));
    assert_eq!(session.answer().status, 101);
}

#[test]
fn the_api_can_stay_on_the_public_port() {
    let (server, internal) = start(&json!({ "http_api": { "key": crate::http::server::KEY, "external": true } }));
    assert_eq!(ask(server.address, "POST", "/api/info").status, 200);
    assert_eq!(ask(internal, "POST", "/api/info").status, 404);
    assert_eq!(ask(internal, "GET", "/health").status, 200);
}

#[test]
fn without_an_internal_port_the_debug_page_is_off() {
    let server = Server::start(&json!({ "debug": { "enabled": true }, "swagger": { "enabled": true } }));
    assert_eq!(server.ask("GET", "/debug/pprof", "").status, 404);
    assert_eq!(server.ask("GET", "/swagger", "").status, 200);
}

#[test]
fn the_debug_page_shows_the_content_of_shards() {
    let (server, internal) = start(&json!({}));
    let mut session = server.open_session();
    for number in 0..30 {
        session.send_text(&format!(r#"{{"id":{},"subscribe":{{"channel":"open:{number}"}}}}"#, number + 2));
        session.frame();
    }
    let answer = ask(internal, "GET", "/debug/pprof");
    let page: Value = serde_json::from_slice(&answer.body).expect("JSON");
    let shards = page["shards"].as_array().expect("shards");
    assert_eq!(shards.len(), 2);
    let sum = |field: &str| shards.iter().filter_map(|shard| shard[field].as_u64()).sum::<u64>();
    assert_eq!((sum("sessions"), sum("subscriptions"), sum("channels")), (1, 30, 30));
    let channels = page["top_channels"].as_array().expect("channels");
    assert_eq!(channels.len(), 20, "the page shows at most 20");
    assert!(channels.iter().all(|channel| channel["num_clients"] == 1));
}

#[test]
fn the_description_is_the_one_in_the_repository_and_its_page_loads_nothing() {
    let server = Server::start(&json!({ "swagger": { "enabled": true } }));
    let document = server.ask("GET", "/swagger/openapi.json", "");
    assert_eq!(document.body, include_bytes!("../../../../schema/openapi.json"));
    let page = server.ask("GET", "/swagger", "");
    assert!(page.field("content-security-policy").is_some_and(|policy| policy.starts_with("default-src 'none'")));
    let page = page.text();
    assert!(page.contains("/api/publish") && page.contains("idempotency_key"));
    assert!(!page.contains("<script") && !page.contains("src=") && !page.contains("href="), "{page}");
}

#[test]
fn concurrent_scrapes_share_one_survey() {
    let server = Server::start(&json!({ "prometheus": { "survey_max_age": "1h" } }));
    let turns = || server.metric("dunlin_sessions_opened_total");
    assert!(turns() < 0.5);
    let _session = server.open_session();
    assert!(turns() < 0.5, "the page still tells the survey of before");
}

#[test]
fn without_a_key_every_call_is_refused() {
    let server = Server::start(&json!({ "http_api": { "key": "" } }));
    for path in ["/api/info", "/api", "/api/publish", "/api/info?api_key="] {
        assert_eq!(server.ask("POST", path, "{}").status, 401, "{path}");
    }
}

on_io_uring![
    operator_paths_are_served_on_the_internal_port_alone,
    the_api_can_stay_on_the_public_port,
    without_an_internal_port_the_debug_page_is_off,
    the_debug_page_shows_the_content_of_shards,
    the_description_is_the_one_in_the_repository_and_its_page_loads_nothing,
    concurrent_scrapes_share_one_survey,
    without_a_key_every_call_is_refused,
];
