//! Metrics and log lines.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    each_reactor,
    http::server::{Client, KEY, PATIENCE, Server, handshake, metric_on},
};

#[test]
fn the_metrics_page_has_the_listed_metrics() {
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
        assert!(series.insert(name), "{line} occurs twice");
    }
}

#[test]
fn events_increment_their_metrics() {
    let server = Server::start(&json!({}));
    let mut session = server.open_session();
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
fn log_lines_escape_outside_text() {
    let mut server = Server::start(&json!({}));
    let secret = "s3cr3t-p4yl04d";
    let body = format!("{{\"channel\": \"open:a\", \"data\": \"{secret}\", \"tags\": 5}}");
    assert_eq!(server.ask("POST", "/api/publish", &body).status, 400);
    let line = server.logged("HTTP request refused");
    assert_eq!(line["reason"], "malformed");
    assert!(!line.to_string().contains(secret), "{line}");
    server.ask("POST", &format!("/api/info?api_key={secret}"), "[");
    server.signal("TERM");
    let line = server.logged("closing sessions with 3001 (shutdown)");
    assert!(!line.to_string().contains(secret), "{line}");
}

#[test]
fn errors_and_disconnects_are_logged_with_their_context() {
    let mut server = Server::start(&json!({}));
    let mut session = server.open_session();
    session.send_text(r#"{"id":2,"presence":{"channel":"open:a"}}"#);
    session.frame();
    let line = server.logged("command failed");
    let about = ["level", "user", "command", "channel", "error"].map(|field| line[field].as_str().expect(field));
    assert_eq!(about, ["INFO", "", "presence", "open:a", "not available"]);
    assert_eq!((line["id"].as_u64(), line["code"].as_u64()), (Some(2), Some(108)));
    let client = line["client"].as_str().expect("a client").to_owned();
    session.send_text("not of the protocol");
    let line = server.logged("session closed by the server");
    assert_eq!((line["code"].as_u64(), line["reason"].as_str()), (Some(3501), Some("bad request")));
    assert_eq!(line["client"], client);
}

#[test]
fn trace_logs_dunlin_but_not_libraries() {
    let mut server = Server::start(&json!({ "log": { "level": "trace" } }));
    let mut session = server.connect();
    server.logged("connection accepted");
    session.send(handshake(""));
    session.answer();
    session.send_text(r#"{"id":1,"connect":{}}"#);
    session.frame();
    assert_eq!(server.logged("command received")["command"], "connect");
    server.logged("session connected");
    session.send_text(r#"{"id":2,"subscribe":{"channel":"open:a"}}"#);
    session.frame();
    assert_eq!(server.logged("command received")["channel"], "open:a");
    drop(session);
    server.logged("session ended");
    let mut refused = server.connect();
    refused.send(handshake("Origin: http://evil.example\r\n"));
    assert_eq!(refused.answer().status, 403);
    assert_eq!(server.logged("connection refused")["reason"], "origin");
    server.signal("TERM");
    server.logged("all sessions are closed");
}

#[test]
fn an_unread_log_blocks_nothing() {
    let server = Server::start(&json!({
        "log": { "queue_limit": 16, "client_rate_limit": 0, "session_rate_limit": 0 }
    }));
    let mut session = server.open_session();
    // Many times the capacity of a pipe.
    for _ in 0..3_000 {
        session.send_text(r#"{"id":2,"presence":{"channel":"open:a"}}"#);
        session.frame();
    }
    until(|| server.metric("dunlin_log_lines_dropped_total") > 0.5);
    assert!(server.metric("dunlin_log_records_suppressed_total") < 0.5);
}

#[test]
fn one_session_does_not_fill_the_log() {
    let server = Server::start(&json!({ "log": { "session_rate_limit": 1 } }));
    let mut session = server.open_session();
    for _ in 0..100 {
        session.send_text(r#"{"id":2,"presence":{"channel":"open:a"}}"#);
        session.frame();
    }
    until(|| server.metric("dunlin_log_records_suppressed_total") > 0.5);
}

#[test]
fn an_unknown_field_of_a_request_is_logged_once() {
    let mut server = Server::start(&json!({}));
    let publish = |more: &str| {
        let body = format!(r#"{{"channel":"open:a","data":{{"inside":1}},{more}}}"#);
        assert_eq!(server.ask("POST", "/api/publish", &body).status, 200);
    };
    publish(r#""idempotencyKey":"k""#);
    publish(r#""idempotencyKey":"k""#);
    publish(r#""skipHistory":true"#);
    let fields = [(); 2].map(|()| server.logged("unknown field in an API request; it is ignored")["field"].clone());
    assert_eq!(fields, ["idempotencyKey", "skipHistory"]);
}

#[test]
fn one_malformed_request_is_no_warning() {
    let mut server = Server::start(&json!({}));
    assert_eq!(server.ask("POST", "/api/publish", "{").status, 400);
    assert_eq!(server.logged("HTTP request refused")["level"], "INFO");
}

pub fn until(mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "it did not come to pass");
        // Pause between two checks of the condition.
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

#[test]
fn a_refused_origin_is_named_with_the_key_to_set() {
    let mut server = Server::start(&json!({}));
    let origin = format!("http://evil.example/\u{1b}[31m{}", "x".repeat(1_000));
    let mut page = server.connect();
    page.send(handshake(&format!("Origin: {}\r\n", origin.replace('\u{1b}', "%1b"))));
    assert_eq!(page.answer().status, 403);
    let log_line =
        server.logged("page refused: its origin is not in client.allowed_origins; add the origin if this is your page");
    assert_eq!(log_line["key"], "client.allowed_origins");
    let shown = log_line["origin"].as_str().expect("an origin");
    assert!(shown.starts_with("http://evil.example/") && shown.chars().count() <= 201, "{shown}");
}

#[test]
fn a_node_that_no_page_can_reach_warns() {
    let mut server = Server::start(&json!({ "client": { "allowed_origins": [] } }));
    let warning = "client.allowed_origins is empty, so no page of a browser can connect; set it to the origins of your pages, \
                such as [\"https://example.com\"]";
    server.logged(warning);
    let checked = server.run("check-config");
    assert_eq!((checked.code, checked.text.contains(warning)), (Some(0), true), "{}", checked.text);
}

#[test]
fn the_open_file_limit_is_raised_and_a_low_one_is_logged() {
    let settings = json!({ "client": { "connection_limit": 9_000 }, "net": { "shard_connections_limit": 0 } });
    let mut server = Server::start_below("ulimit -n 6000 && ulimit -Sn 64", &settings);
    let log_line = server.logged(
        "the limit of open files is below what client.connection_limit and net.http_connections_limit allow; raise the hard \
         limit (LimitNOFILE in systemd, ulimit -Hn in a shell), or lower them",
    );
    assert_eq!((&log_line["limit"], &log_line["needed"]), (&json!(6_000), &json!(13_352)));
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", server.process())).expect("it runs");
    let files = limits.lines().find(|line| line.starts_with("Max open files")).expect("a limit");
    assert_eq!(files.split_ascii_whitespace().nth(3), Some("6000"), "{files}");
    assert_eq!(server.metric("dunlin_accept_failures_total{reason=\"other\"}").to_string(), "0");
}

#[test]
fn connections_in_tables_may_be_more_than_the_open_file_limit() {
    const FILES: u64 = 200;
    let settings = json!({ "shards": 2, "client": { "connection_limit": 500 } });
    let mut server = Server::start_below(&format!("ulimit -n {FILES}"), &settings);
    if each_reactor::current() != dunlin_net::ReactorOption::IoUring {
        assert!(server.metric("dunlin_connections_max{shard=\"0\"}") < 0.5);
        return;
    }
    let log_line = server.logged(
        "the shards may have connections_max connections each, fewer together than client.connection_limit; raise \
         net.shard_connections_limit and the hard limit of open files (LimitNOFILE in systemd, ulimit -Hn in a shell), the \
         lower of which counts, use more shards, or lower client.connection_limit",
    );
    assert_eq!((&log_line["connections_max"], &log_line["shards"]), (&json!(FILES), &json!(2)));
    let mut sessions: Vec<_> = (0..300).map(|_| server.open_session()).collect();
    let files = std::fs::read_dir(format!("/proc/{}/fd", server.process())).expect("it runs").count();
    assert!(files < 100, "{files}");
    let all: f64 = (0..2).map(|shard| server.metric(&format!("dunlin_connections{{shard=\"{shard}\"}}"))).sum();
    assert!(all >= 300.0, "{all}");
    assert!((server.metric("dunlin_connections_max{shard=\"1\"}") - FILES as f64).abs() < 0.5);
    // A shard asks the kernel about a session's socket with a descriptor of its own.
    sessions.truncate(1);
    assert_eq!(server.ask("GET", "/health", "").status, 200);
}

#[test]
fn accepts_with_a_reserved_file_descriptor_are_counted() {
    let settings = json!({ "net": { "reserved_open_files": 1, "shard_connections_limit": 0 } });
    let server = Server::start_below("ulimit -n 96", &settings);
    let mut scraper = server.connect();
    let failures = |scraper: &mut Client, reason: &str| -> u64 {
        let name = format!("dunlin_accept_failures_total{{reason=\"{reason}\"}} ");
        let page = scraper.ask("GET", "/metrics", "").text();
        let value = page.lines().find_map(|line| line.strip_prefix(&*name)).expect("a metric");
        value.parse().expect("a number")
    };
    assert_eq!(failures(&mut scraper, "reserved"), 0);
    // Each connection uses a file descriptor of the server until its head times out.
    let crowd: Vec<_> = (0..96).map(|_| server.connect()).collect();
    let deadline = Instant::now() + PATIENCE;
    while failures(&mut scraper, "reserved") == 0 {
        assert!(Instant::now() < deadline, "no accept was refused");
    }
    // The kernel accepts a burst before the node closes those that lie in the reserve, so it may run out for a moment.
    assert_eq!(failures(&mut scraper, "other"), 0);
    drop(crowd);
    let files = || std::fs::read_dir(format!("/proc/{}/fd", server.process())).expect("it runs").count();
    while files() > 60 {
        assert!(Instant::now() < deadline, "the files of closed connections are not closed");
    }
    assert_eq!(server.ask("GET", "/health", "").status, 200);
}

/// However many clients connect, the storage, the internal port and others find file descriptors.
#[test]
fn connections_leave_file_descriptors_for_the_storage_and_the_internal_port() {
    let storage =
        std::env::temp_dir().join(format!("dunlin-files-{}-{}", std::process::id(), each_reactor::current_name()));
    let internal = dunlin_processes::free_address().expect("a free port");
    let server = Server::start_below(
        "ulimit -n 256",
        &json!({
            "http_server": { "internal_port": internal.port().to_string() },
            "net": { "shard_connections_limit": 0 },
            "storage": { "path": storage, "memtable_size": 65_536, "wal_size_limit": 65_536 },
            "channel": { "namespaces": [
                { "name": "disk", "history_size": 100, "history_ttl": "1h", "durability": "disk" },
            ] },
        }),
    );
    let ask = |method: &str, path: &str, body: &str| {
        let mut client = Client::new(std::net::TcpStream::connect(internal).expect("it listens"));
        client.ask(method, path, body)
    };
    let failures = |reason: &str| {
        metric_on(&ask("GET", "/metrics", "").text(), &format!("dunlin_accept_failures_total{{reason=\"{reason}\"}}"))
    };
    let crowd: Vec<_> = (0..300).map(|_| server.connect()).collect();
    let deadline = Instant::now() + PATIENCE;
    while failures("reserved") < 172.0 {
        assert!(Instant::now() < deadline, "connections use what is reserved");
    }
    // Each of these publications needs new files.
    let data = "x".repeat(20_000);
    for number in 0..100 {
        let body = json!({ "channel": format!("disk:{number}"), "data": data }).to_string();
        let request = format!(
            "POST /api/publish HTTP/1.1\r\nHost: a\r\nX-API-Key: {KEY}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut client = Client::new(std::net::TcpStream::connect(internal).expect("it listens"));
        client.send(request);
        let answer = client.answer();
        assert!(answer.json()["result"]["offset"].is_u64(), "{number}: {answer:?}");
    }
    assert_eq!(ask("GET", "/health", "").status, 200);
    assert!(failures("out_of_files") + failures("other") < 0.5);
    drop(crowd);
    drop(server);
    std::fs::remove_dir_all(storage).expect("it is there");
}

on_io_uring![
    connections_leave_file_descriptors_for_the_storage_and_the_internal_port,
    the_metrics_page_has_the_listed_metrics,
    events_increment_their_metrics,
    log_lines_escape_outside_text,
    errors_and_disconnects_are_logged_with_their_context,
    trace_logs_dunlin_but_not_libraries,
    an_unread_log_blocks_nothing,
    one_session_does_not_fill_the_log,
    an_unknown_field_of_a_request_is_logged_once,
    one_malformed_request_is_no_warning,
    a_refused_origin_is_named_with_the_key_to_set,
    a_node_that_no_page_can_reach_warns,
    the_open_file_limit_is_raised_and_a_low_one_is_logged,
    connections_in_tables_may_be_more_than_the_open_file_limit,
    accepts_with_a_reserved_file_descriptor_are_counted,
];
