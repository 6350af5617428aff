//! Tests each limit at its value and one past it.

use serde_json::json;

use crate::http::server::{Answer, Client, KEY, Server, request};

#[test]
fn body_size_is_limited() {
    let server = Server::start(&json!({ "http_api": { "request_size_limit": 1000 } }));
    let body = |len: usize| format!(r#"{{"channel":"open:a","data":"{}"}}"#, "x".repeat(len - 30));
    assert_eq!(body(1000).len(), 1000);
    let within = server.ask("POST", "/api/publish", &body(1000));
    assert_eq!((within.status, within.json()), (200, json!({"result": {}})));
    assert_eq!(server.ask("POST", "/api/publish", &body(1001)).status, 413);
    let in_chunks = |len: usize| {
        let body = body(len);
        let mut client = server.connect();
        client.send(format!(
            "POST /api/publish HTTP/1.1\r\nHost: a\r\nX-API-Key: {KEY}\r\nTransfer-Encoding: chunked\r\n\r\n{len:x}\r\n{body}\r\n0\r\n\r\n"
        ));
        client.answer().status
    };
    assert_eq!((in_chunks(1000), in_chunks(1001)), (200, 413));
    assert!(server.metric("dunlin_http_refused_total{reason=\"body_too_large\"}") > 1.5);
    // Without a key, a large body is refused before it is read.
    let mut client = server.connect();
    client.send("POST /api/publish HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n");
    assert_eq!(client.answer().status, 401);
}

#[test]
fn a_slow_body_times_out() {
    let server = Server::start(&json!({ "http_api": { "timeout": "200ms" } }));
    let mut client = server.connect();
    client.send(format!("POST /api/info HTTP/1.1\r\nHost: a\r\nX-API-Key: {KEY}\r\nContent-Length: 2\r\n\r\n{{"));
    assert_eq!(client.answer().status, 408);
}

#[test]
fn broadcasts_and_batches_are_limited() {
    let server = Server::start(&json!({ "http_api": { "broadcast_channels_limit": 5, "batch_commands_limit": 4 } }));
    let broadcast = |count: usize| {
        let body = json!({ "channels": vec!["open:a"; count], "data": 1 });
        server.ask("POST", "/api/broadcast", &body.to_string()).json()
    };
    assert_eq!(broadcast(5)["result"]["responses"].as_array().expect("responses").len(), 5);
    assert_eq!(broadcast(6)["error"]["code"], 107);
    let batch = |count: usize| {
        let body = json!({ "commands": vec![json!({ "channels": {} }); count] });
        server.ask("POST", "/api/batch", &body.to_string()).json()
    };
    assert_eq!(batch(4)["replies"].as_array().expect("replies").len(), 4);
    assert_eq!(batch(5)["error"]["code"], 107);
    let one_path = |count: usize| {
        let answer = server.ask("POST", "/api", &r#"{"method":"channels","params":{}}"#.repeat(count));
        answer.text().lines().count()
    };
    assert_eq!((one_path(4), one_path(5)), (4, 1));
}

#[test]
fn http_connections_are_limited() {
    let net = json!({ "http_connections_limit": 2, "http_reserved_connections": 0 });
    let server = Server::start(&json!({ "net": net, "http_api": { "timeout": "20s" } }));
    let (mut one, mut two) = (busy(&server), busy(&server));
    let refused = server.ask("GET", "/health", "");
    assert_eq!((refused.status, refused.field("retry-after")), (503, Some("1")));
    one.send("{}");
    assert_eq!(one.answer().status, 200, "those that are open go on");
    assert_eq!(server.ask("GET", "/health", "").status, 200, "the one that waits gives way");
    assert!(one.is_ended());
    two.send("{}");
    assert_eq!(two.answer().status, 200);
    assert!(server.metric("dunlin_http_refused_total{reason=\"gave_way\"}") > 0.5);
}

#[test]
fn idle_connections_are_closed_oldest_first() {
    let server = Server::start(&json!({ "net": { "http_connections_limit": 2, "http_reserved_connections": 0 } }));
    let (mut one, mut two) = (server.connect(), server.connect());
    assert_eq!(one.ask("GET", "/health", "").status, 200);
    assert_eq!(two.ask("GET", "/health", "").status, 200);
    assert_eq!(one.ask("GET", "/health", "").status, 200);
    let mut three = server.connect();
    assert_eq!(three.ask("GET", "/health", "").status, 200);
    assert!(two.is_ended(), "it had waited longest");
    assert_eq!((one.ask("GET", "/health", "").status, three.ask("GET", "/health", "").status), (200, 200));
}

#[test]
fn operators_are_answered_when_all_connections_are_taken() {
    let net = json!({ "http_connections_limit": 1, "http_reserved_connections": 1 });
    let server = Server::start(&json!({ "net": net, "http_api": { "timeout": "20s" } }));
    let mut one = busy(&server);
    let mut kept_back = server.connect();
    assert_eq!(kept_back.ask("GET", "/health", "").status, 200);
    assert_eq!(kept_back.ask("POST", "/api/info", "{}").status, 200);
    assert_eq!(kept_back.ask("GET", "/metrics", "").status, 200);
    let refused = kept_back.ask("GET", "/elsewhere", "");
    assert_eq!((refused.status, refused.field("retry-after")), (503, Some("1")));
    assert!(kept_back.is_ended());
    // A reserved connection is also closed in favor of a new one.
    let mut waiting = server.connect();
    assert_eq!(waiting.ask("GET", "/health", "").status, 200);
    assert_eq!(server.ask("GET", "/health", "").status, 200);
    assert!(waiting.is_ended());
    one.send("{}");
    assert_eq!(one.answer().status, 200);
}

#[test]
fn connections_per_address_are_limited() {
    let net = json!({ "http_address_connections_limit": 2 });
    let server = Server::start(&json!({ "net": net, "http_api": { "timeout": "20s" } }));
    let (mut one, mut two) = (busy(&server), busy(&server));
    let refused = server.ask("GET", "/health", "");
    assert_eq!((refused.status, refused.field("retry-after")), (429, Some("1")));
    one.send("{}");
    assert_eq!(one.answer().status, 200);
    assert_eq!(server.ask("GET", "/health", "").status, 200, "the one that waits gives way");
    assert!(one.is_ended());
    two.send("{}");
    assert_eq!(two.answer().status, 200);
    // Connections of a trusted proxy are not limited, because they belong to many clients.
    let settings = json!({ "http_server": { "trusted_proxies": ["127.0.0.1"] },
        "net": { "http_address_connections_limit": 1 }, "http_api": { "timeout": "20s" } });
    let server = Server::start(&settings);
    let _one = busy(&server);
    assert_eq!(server.ask("GET", "/health", "").status, 200);
}

/// A connection with a request in progress, which is completed by sending `{}`.
fn busy(server: &Server) -> Client {
    let mut client = server.connect();
    let fields = format!("Host: a\r\nX-API-Key: {KEY}\r\nContent-Length: 2\r\nExpect: 100-continue");
    client.send(format!("POST /api/info HTTP/1.1\r\n{fields}\r\n\r\n"));
    assert_eq!(client.answer().status, 100, "it is let in");
    client
}

#[test]
fn concurrent_api_requests_are_limited() {
    let server = Server::start(&json!({ "http_api": { "requests_limit": 1, "timeout": "10s" } }));
    let mut slow = busy(&server);
    assert_eq!(server.ask("POST", "/api/info", "{}").status, 503);
    slow.send("{}");
    assert_eq!(slow.answer().status, 200);
    assert_eq!(server.ask("POST", "/api/info", "{}").status, 200);
}

#[test]
fn silent_and_trickling_connections_time_out() {
    let server = Server::start(&json!({ "net": { "idle_timeout": "300ms", "head_timeout": "200ms" } }));
    let mut silent = server.connect();
    assert_eq!(silent.ask("GET", "/health", "").status, 200);
    assert!(silent.is_ended(), "an idle connection is closed");
    let mut begun = server.connect();
    assert_eq!(begun.ask("GET", "/health", "").status, 200);
    begun.send("GET /health HT");
    assert!(begun.is_ended(), "a begun request is not waited for");
    for reason in ["idle", "head_timeout"] {
        let name = format!("dunlin_http_refused_total{{reason=\"{reason}\"}}");
        until(|| server.metric(&name) > 0.5);
    }
}

#[test]
fn head_size_is_limited_on_kept_connections() {
    let server = Server::start(&json!({}));
    let with_fields = |count: usize| -> Answer {
        let mut client: Client = server.connect();
        client.ask("GET", "/health", "");
        client.send(format!("GET /health HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(count - 1)));
        client.answer()
    };
    assert_eq!((with_fields(64).status, with_fields(65).status), (200, 431));
    let mut client = server.connect();
    client.ask("GET", "/health", "");
    client.send(format!("GET /health HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "y".repeat(70_000)));
    assert_eq!(client.answer().status, 431);
}

#[test]
fn errors_are_http_statuses_where_configured() {
    let server = Server::start(&json!({ "http_api": { "error_mode": "transport" } }));
    let answer = server.ask("POST", "/api/publish", r#"{"channel":"unknown:a","data":1}"#);
    assert_eq!((answer.status, answer.json()), (404, json!({ "code": 102, "message": "unknown channel" })));
}

#[test]
fn without_a_key_requests_are_refused_unless_insecure() {
    let server = Server::start(&json!({ "http_api": { "key": "" } }));
    assert_eq!(server.ask("POST", "/api/info", "{}").status, 401);
    let server = Server::start(&json!({ "http_api": { "key": "", "insecure": true } }));
    let mut client = server.connect();
    let key = format!("X-API-Key: {KEY}\r\n");
    client.send(request("POST", "/api/info", "{}").replace(&key, ""));
    assert_eq!(client.answer().status, 200);
    client.send(request("POST", "/api/info", "{}").replace(&key, "Origin: http://evil.example\r\n"));
    let answer = client.answer();
    assert_eq!(answer.status, 403);
    assert_eq!(answer.text(), "Forbidden: with http_api.insecure, pages of other sites may not use the API\n");
    let metrics = server.ask("GET", "/metrics", "").text();
    assert!(metrics.contains("dunlin_http_refused_total{reason=\"origin\"} 1\n"), "{metrics}");
}

fn until(condition: impl FnMut() -> bool) {
    crate::http::observation::until(condition);
}

on_io_uring![
    body_size_is_limited,
    a_slow_body_times_out,
    broadcasts_and_batches_are_limited,
    http_connections_are_limited,
    idle_connections_are_closed_oldest_first,
    operators_are_answered_when_all_connections_are_taken,
    connections_per_address_are_limited,
    concurrent_api_requests_are_limited,
    silent_and_trickling_connections_time_out,
    head_size_is_limited_on_kept_connections,
    errors_are_http_statuses_where_configured,
    without_a_key_requests_are_refused_unless_insecure,
];
