//! Requests with an ambiguous length, on fresh and on kept-alive connections, on both ports.

use std::net::{SocketAddr, TcpStream};

use serde_json::json;

use crate::http::server::{Client, KEY, Server};

const COMMAND: &str = r#"{"channel":"open:a","data":1}"#;

/// Requests whose length is given twice or is ambiguous. Each would publish if it were executed.
fn ambiguous() -> [(&'static str, String); 6] {
    let length = COMMAND.len();
    let chunks = format!("{length:x}\r\n{COMMAND}\r\n0\r\n\r\n");
    let request = |fields: &str, body: &str| {
        format!("POST /api/publish HTTP/1.1\r\nHost: a\r\nX-API-Key: {KEY}\r\n{fields}\r\n{body}")
    };
    let plain = format!("Content-Length: {length}\r\n");
    let chunked = "Transfer-Encoding: chunked\r\n";
    [
        ("a length and chunks", request(&format!("{plain}{chunked}"), &chunks)),
        ("chunks and a length", request(&format!("{chunked}{plain}"), &chunks)),
        ("two equal lengths", request(&plain.repeat(2), COMMAND)),
        ("gzip, chunked", request("Transfer-Encoding: gzip, chunked\r\n", &chunks)),
        ("gzip and chunked in two fields", request(&format!("Transfer-Encoding: gzip\r\n{chunked}"), &chunks)),
        ("chunked twice", request(&chunked.repeat(2), &chunks)),
    ]
}

fn connect(address: SocketAddr) -> Client {
    Client::new(TcpStream::connect(address).expect("it listens"))
}

/// The same requests with one length are executed, so the length is the only reason for the refusals.
#[test]
fn a_request_with_one_length_is_served() {
    let server = Server::start(&json!({}));
    let mut client = server.connect();
    for _ in 0..2 {
        let length = COMMAND.len();
        let head = format!("POST /api/publish HTTP/1.1\r\nHost: a\r\nX-API-Key: {KEY}\r\n");
        client.send(format!("{head}Content-Length: {length}\r\n\r\n{COMMAND}"));
        assert_eq!(client.answer().status, 200);
        client.send(format!("{head}Transfer-Encoding: chunked\r\n\r\n{length:x}\r\n{COMMAND}\r\n0\r\n\r\n"));
        assert_eq!(client.answer().status, 200);
    }
}

#[test]
fn an_ambiguous_length_is_refused_on_fresh_and_kept_connections() {
    let server = Server::start(&json!({}));
    for (what, request) in ambiguous() {
        let mut fresh = server.connect();
        fresh.send(&request);
        assert_eq!(fresh.answer().status, 400, "{what} on a fresh connection");
        assert!(fresh.is_ended(), "{what}");
        let mut kept = server.connect();
        assert_eq!(kept.ask("GET", "/elsewhere", "").status, 404);
        kept.send(&request);
        assert_eq!(kept.answer().status, 400, "{what} on a kept connection");
        assert!(kept.is_ended(), "{what}");
        // After another request: in the same segment, and in separate segments.
        let mut pipelined = server.connect();
        pipelined.send(format!("GET /elsewhere HTTP/1.1\r\nHost: a\r\n\r\n{request}"));
        assert_eq!((pipelined.answer().status, pipelined.answer().status), (404, 400), "{what}, pipelined");
        let mut pieces = server.connect();
        assert_eq!(pieces.ask("GET", "/elsewhere", "").status, 404);
        let (front, back) = request.split_at(60);
        pieces.send(front);
        pieces.send(back);
        assert_eq!(pieces.answer().status, 400, "{what}, in pieces");
    }
    assert!(server.metric("dunlin_publications_total{namespace=\"open\"}") < 0.5);
}

/// Connections of the internal port never pass a shard.
#[test]
fn an_ambiguous_length_is_refused_on_the_internal_port() {
    let free = dunlin_processes::free_address().expect("a free port");
    let server = Server::start(&json!({ "http_server": { "internal_port": free.port().to_string() } }));
    for (what, request) in ambiguous() {
        let mut fresh = connect(free);
        fresh.send(&request);
        assert_eq!(fresh.answer().status, 400, "{what} on a fresh connection");
        let mut kept = connect(free);
        assert_eq!(kept.ask("GET", "/health", "").status, 200);
        kept.send(&request);
        assert_eq!(kept.answer().status, 400, "{what} on a kept connection");
        assert!(kept.is_ended(), "{what}");
    }
    drop(server);
}

/// Bytes after a handshake are not parsed as a request, whether the handshake is refused or accepted.
#[test]
fn nothing_is_answered_behind_a_refused_handshake() {
    let server = Server::start(&json!({}));
    let mut client = server.connect();
    assert_eq!(client.ask("GET", "/elsewhere", "").status, 404);
    let refused = "GET /elsewhere HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    client.send(format!("{refused}{}", ambiguous()[2].1));
    assert_eq!(client.answer().status, 404);
    assert!(client.is_ended(), "the connection carries no further request");
}

#[test]
fn a_websocket_has_no_body() {
    let server = Server::start(&json!({}));
    for body in ["Content-Length: 2\r\n", "Transfer-Encoding: chunked\r\n"] {
        for is_kept in [false, true] {
            let mut client = server.connect();
            if is_kept {
                assert_eq!(client.ask("GET", "/elsewhere", "").status, 404);
            }
            client.send(crate::http::server::handshake(body));
            assert_eq!(client.answer().status, 400, "{body} {is_kept}");
        }
    }
}

on_io_uring![
    a_request_with_one_length_is_served,
    an_ambiguous_length_is_refused_on_fresh_and_kept_connections,
    an_ambiguous_length_is_refused_on_the_internal_port,
    nothing_is_answered_behind_a_refused_handshake,
    a_websocket_has_no_body,
];
