//! WebSocket handshakes on kept-alive connections, as proxies send them.

use serde_json::{Value, json};

use crate::http::server::{Answer, Client, Server, handshake};

#[test]
fn a_websocket_opens_on_a_connection_that_carried_requests() {
    let server = Server::start(&json!({}));
    let mut client = server.connect();
    for _ in 0..3 {
        assert_eq!(client.ask("GET", "/health", "").text(), "{}");
    }
    client.send(handshake("Origin: http://good.example\r\n"));
    let answer = client.answer();
    assert_eq!(answer.status, 101);
    assert_eq!(answer.field("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    connect_and_publish(&server, &mut client);
    assert_eq!(metric(&server, "dunlin_websockets_opened_total{by=\"http\"}"), "1");
}

#[test]
fn bytes_behind_the_handshake_are_kept() {
    let server = Server::start(&json!({}));
    let mut client = server.connect();
    // A request, the handshake and the first frame in one segment: the shard reads all of it before it hands the
    // connection over.
    let connect = r#"{"id":1,"connect":{}}"#;
    let frame = [&[0x81, 0x80 | connect.len() as u8, 0, 0, 0, 0], connect.as_bytes()].concat();
    let health = crate::http::server::request("GET", "/health", "");
    client.send([health.as_bytes(), handshake("").as_bytes(), &frame].concat());
    assert_eq!(client.answer().status, 200);
    assert_eq!(client.answer().status, 101);
    assert_eq!(reply(&mut client)["id"], 1);
}

#[test]
fn refusals_equal_those_of_a_fresh_connection() {
    let server = Server::start(&json!({}));
    let plain = |line: &str| format!("{line}\r\nHost: dunlin.example\r\n\r\n");
    for (request, status) in [
        (plain("GET /connection/websocket HTTP/1.1"), 400),
        (plain("POST /connection/websocket HTTP/1.1"), 405),
        (handshake("Origin: http://evil.example\r\n"), 403),
        (handshake("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"), 400),
        (handshake("").replace("Version: 13", "Version: 12"), 426),
        (handshake("Origin: http://good.example\r\nOrigin: http://good.example\r\n"), 403),
    ] {
        let mut fresh = server.connect();
        fresh.send(&request);
        let mut kept = server.connect();
        kept.ask("GET", "/health", "");
        kept.send(&request);
        let (fresh, kept) = (fresh.answer(), kept.answer());
        assert_eq!((fresh.status, kept.status), (status, status), "{request}");
        assert_eq!(fresh.body, kept.body, "{request}");
        let named = |answer: &Answer| -> Vec<_> {
            let names = ["allow", "upgrade", "sec-websocket-version", "content-type"];
            names.map(|name| answer.field(name).map(str::to_owned)).into()
        };
        assert_eq!(named(&fresh), named(&kept), "{request}");
    }
    assert_eq!(metric(&server, "dunlin_http_refused_total{reason=\"origin\"}"), "2");
    assert_eq!(metric(&server, "dunlin_http_refused_total{reason=\"handshake\"}"), "4");
}

#[test]
fn the_subprotocol_selects_the_encoding() {
    let server = Server::start(&json!({}));
    let mut client = server.connect();
    client.ask("GET", "/health", "");
    client.send(handshake("Sec-WebSocket-Protocol: centrifuge-protobuf\r\n"));
    assert_eq!(client.answer().field("sec-websocket-protocol"), Some("centrifuge-protobuf"));
    // A Protobuf connect command with id 1, with a zero mask.
    client.send([0x82, 0x80 | 5, 0, 0, 0, 0, 4, 0x08, 1, 0x22, 0]);
    let (first, payload) = client.frame();
    assert_eq!((first, &payload[1..3]), (0x82, &[0x08, 1][..]));
}

fn connect_and_publish(server: &Server, client: &mut Client) {
    client.send_text(r#"{"id":1,"connect":{}}"#);
    assert!(reply(client)["connect"]["client"].is_string());
    client.send_text(r#"{"id":2,"subscribe":{"channel":"open:a"}}"#);
    assert_eq!(reply(client)["id"], 2);
    let published = server.ask("POST", "/api/publish", r#"{"channel":"open:a","data":{"n":1}}"#);
    assert_eq!(published.json(), json!({"result": {}}));
    assert_eq!(reply(client)["push"]["pub"]["data"], json!({"n": 1}));
}

fn reply(client: &mut Client) -> Value {
    let (first, payload) = client.frame();
    assert_eq!(first, 0x81);
    serde_json::from_slice(&payload).expect("JSON")
}

fn metric(server: &Server, name: &str) -> String {
    server.metric(name).to_string()
}

/// Sends a handshake with these fields on a connection that has carried a request.
fn knock(server: &Server, fields: &str) -> (Answer, Client) {
    let mut client = server.connect();
    assert_eq!(client.ask("GET", "/health", "").status, 200);
    client.send(handshake(fields));
    (client.answer(), client)
}

#[test]
fn refused_clients_get_their_status_before_the_handshake_is_answered() {
    let server = Server::start(&json!({
        "http_server": { "trusted_proxies": ["127.0.0.0/8"] }, "client": { "address_connection_limit": 1 },
    }));
    let (first, mut client) = knock(&server, "X-Forwarded-For: 198.51.100.1\r\n");
    assert_eq!(first.status, 101);
    connect_and_publish(&server, &mut client);
    let (again, _) = knock(&server, "X-Forwarded-For: 198.51.100.1\r\n");
    assert_eq!((again.status, again.field("retry-after").is_some()), (429, true), "{again:?}");
    // The limit of the forwarded address is reached. It applies regardless of the proxy's own address, and also on a
    // fresh connection.
    let mut fresh = server.connect();
    fresh.send(handshake("X-Forwarded-For: 198.51.100.1\r\n"));
    assert_eq!(fresh.answer().status, 429);
    let (other, _other) = knock(&server, "X-Forwarded-For: 198.51.100.2\r\n");
    assert_eq!(other.status, 101);
    assert_eq!(metric(&server, "dunlin_http_refused_total{reason=\"admission\"}"), "1");

    // The place is released when the session ends, and also by admitted clients that did not open a session.
    drop(client);
    let deadline = std::time::Instant::now() + crate::http::server::PATIENCE;
    while knock(&server, "X-Forwarded-For: 198.51.100.1\r\n").0.status != 101 {
        assert!(std::time::Instant::now() < deadline, "the place is never released");
    }
}

#[test]
fn streams_on_kept_connections_pass_the_same_admission() {
    let server = Server::start(&json!({
        "http_server": { "trusted_proxies": ["127.0.0.0/8"] }, "client": { "address_connection_limit": 1 },
        "http_stream": { "enabled": true },
    }));
    let ask = |address: &str| {
        let mut client = server.connect();
        assert_eq!(client.ask("GET", "/health", "").status, 200);
        let body = r#"{"id":1,"connect":{}}"#;
        client.send(format!(
            "POST /connection/http_stream HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: {address}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ));
        (client.status(), client)
    };
    let (first, _client) = ask("198.51.100.1");
    let (again, _) = ask("198.51.100.1");
    let (other, _other) = ask("198.51.100.2");
    assert_eq!((first, again, other), (200, 429, 200));
}

/// A stream whose connect request cannot be decoded gets a status, on a fresh connection and on one that has carried a
/// request: `EventSource` reconnects after any response with status 200. Its place is free again, a little later than the
/// client has the status.
#[test]
fn a_malformed_connect_request_of_a_unidirectional_stream_gets_400() {
    let server = Server::start(&json!({
        "http_server": { "trusted_proxies": ["127.0.0.0/8"] },
        "client": { "address_connection_limit": 1, "allow_anonymous_connect_without_token": true },
        "uni_sse": { "enabled": true }, "uni_http_stream": { "enabled": true },
    }));
    let ask = |is_kept: bool, head: &str, body: &str| {
        let mut client = server.connect();
        if is_kept {
            assert_eq!(client.ask("GET", "/health", "").status, 200);
        }
        let length = body.len();
        let fields = format!("Host: a\r\nX-Forwarded-For: 198.51.100.1\r\nContent-Length: {length}");
        client.send(format!("{head} HTTP/1.1\r\n{fields}\r\n\r\n{body}"));
        (client.status(), client)
    };
    let ask = |is_kept: bool, head: &str, body: &str| {
        let deadline = std::time::Instant::now() + crate::http::server::PATIENCE;
        loop {
            let (status, client) = ask(is_kept, head, body);
            if status != 429 || std::time::Instant::now() > deadline {
                return (status, client);
            }
        }
    };
    for is_kept in [false, true] {
        for text in
            ["{", "[]", "7", "{\"token\":7}", "{\"subs\":{\"a\":1}}", "{} {}", "{\"token\":\"\",\"token\":\"\"}"]
        {
            let encoded = text.replace('{', "%7b").replace('}', "%7d").replace('"', "%22").replace(' ', "%20");
            let get = format!("GET /connection/uni_sse?cf_connect={encoded}");
            assert_eq!(ask(is_kept, &get, "").0, 400, "{is_kept} {text}");
            for path in ["/connection/uni_sse", "/connection/uni_http_stream"] {
                assert_eq!(ask(is_kept, &format!("POST {path}"), text).0, 400, "{is_kept} {path} {text}");
            }
        }
        for body in ["", "{}", "null", "{\"unknown\":[1]}"] {
            assert_eq!(ask(is_kept, "POST /connection/uni_http_stream", body).0, 200, "{is_kept} {body}");
        }
    }
}

on_io_uring![
    a_websocket_opens_on_a_connection_that_carried_requests,
    bytes_behind_the_handshake_are_kept,
    refusals_equal_those_of_a_fresh_connection,
    the_subprotocol_selects_the_encoding,
    refused_clients_get_their_status_before_the_handshake_is_answered,
    streams_on_kept_connections_pass_the_same_admission,
    a_malformed_connect_request_of_a_unidirectional_stream_gets_400,
];
