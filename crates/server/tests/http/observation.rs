//! What an operator sees.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::server::{PATIENCE, Server, handshake};

#[test]
fn the_page_of_metrics_holds_what_the_list_says() {
    let server = Server::start(&json!({}));
    let answer = server.ask("GET", "/metrics", "");
    assert_eq!(answer.field("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let page = answer.text();
    let listed: Value = serde_json::from_str(include_str!("../../../../schema/metrics.json")).expect("JSON");
    for family in listed.as_array().expect("a list") {
        let line = format!(
            "# TYPE {} {}\n",
            family["name"].as_str().expect("a name"),
            family["type"].as_str().expect("a type")
        );
        assert!(page.contains(&line), "{line}");
    }
    let mut series = BTreeSet::new();
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').expect("a sample");
        assert!(value.parse::<f64>().is_ok(), "{line}");
        assert!(series.insert(name), "{line} stands there twice");
    }
}

#[test]
fn what_happens_is_counted() {
    let server = Server::start(&json!({}));
    let mut session = server.connect();
    session.send(handshake(""));
    session.answer();
    session.send_text(r#"{"id":1,"connect":{}}"#);
    session.frame();
    session.send_text(r#"{"id":2,"subscribe":{"channel":"open:a"}}"#);
    session.frame();
    session.send_text(r#"{"id":3,"presence":{"channel":"open:a"}}"#);
    session.frame();
    server.ask("POST", "/api/publish", r#"{"channel":"open:a","data":1}"#);
    server.ask("POST", "/api/presence", r#"{"channel":"open:a"}"#);
    session.frame();
    for (name, value) in [
        ("dunlin_users", 1.0),
        ("dunlin_channels", 1.0),
        ("dunlin_subscriptions{namespace=\"open\"}", 1.0),
        ("dunlin_publications_total{namespace=\"open\"}", 1.0),
        ("dunlin_publications_total{namespace=\"-\"}", 0.0),
        ("dunlin_deliveries_total{namespace=\"open\"}", 1.0),
        ("dunlin_encodes_total{namespace=\"open\"}", 1.0),
        ("dunlin_commands_total{command=\"subscribe\"}", 1.0),
        ("dunlin_error_replies_total{code=\"108\"}", 1.0),
        ("dunlin_api_requests_total{method=\"publish\"}", 1.0),
        ("dunlin_api_errors_total{method=\"presence\",code=\"108\"}", 1.0),
        ("dunlin_websockets_opened_total{by=\"shard\"}", 1.0),
    ] {
        until(|| (server.metric(name) - value).abs() < 0.1);
    }
    session.send_text("not of the protocol");
    let (first, _) = session.frame();
    assert_eq!(first, 0x88);
    until(|| server.metric("dunlin_malformed_frames_total") > 0.5);
    until(|| server.metric("dunlin_disconnects_total{code=\"3501\"}") > 0.5);
}

#[test]
fn no_line_of_the_log_holds_what_came_from_outside_as_it_came() {
    let mut server = Server::start(&json!({}));
    let secret = "s3cr3t-p4yl04d";
    let body = format!("{{\"channel\": \"open:a\", \"data\": \"{secret}\", \"tags\": 5}}");
    assert_eq!(server.ask("POST", "/api/publish", &body).status, 400);
    let line = server.logged("refused an HTTP request");
    assert_eq!(line["reason"], "malformed");
    assert!(!line.to_string().contains(secret), "{line}");
    server.ask("POST", &format!("/api/info?api_key={secret}"), "[");
    server.signal("TERM");
    let line = server.logged("closing sessions with 3001 (shutdown)");
    assert!(!line.to_string().contains(secret), "{line}");
}

pub fn until(mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "it did not come to pass");
        // Between two looks; the verdict is the condition's.
        std::thread::park_timeout(Duration::from_millis(5));
    }
}
