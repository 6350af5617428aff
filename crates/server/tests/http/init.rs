//! The endpoint that tests the connection.

use serde_json::json;

use crate::http::server::Server;

const PATH: &str = "/connection/init";

fn ask(server: &Server, method: &str, fields: &str) -> crate::http::server::Answer {
    let mut client = server.connect();
    client.send(format!("{method} {PATH} HTTP/1.1\r\nHost: dunlin.example\r\nContent-Length: 0\r\n{fields}\r\n"));
    client.answer()
}

#[test]
fn init_requests_follow_the_origin_check() {
    let server = Server::start(&json!({ "init": { "enabled": true } }));
    let answer = ask(&server, "GET", "");
    assert_eq!((answer.status, answer.text().as_str()), (200, "{}"));
    assert_eq!(answer.field("content-type"), Some("application/json"));
    assert_eq!(answer.field("access-control-allow-origin"), None);
    let good = ask(&server, "GET", "Origin: http://good.example\r\n");
    assert_eq!((good.status, good.field("access-control-allow-origin")), (200, Some("http://good.example")));
    assert_eq!(ask(&server, "GET", "Origin: http://evil.example\r\n").status, 403);
    assert_eq!(ask(&server, "OPTIONS", "Origin: http://good.example\r\n").status, 204);
    assert_eq!(ask(&server, "OPTIONS", "Origin: http://evil.example\r\n").status, 403);
    let posted = ask(&server, "POST", "");
    assert_eq!((posted.status, posted.field("allow")), (405, Some("GET, OPTIONS")));
}

#[test]
fn init_is_off_by_default_and_served_at_its_prefix() {
    assert_eq!(ask(&Server::start(&json!({})), "GET", "").status, 404);
    let server = Server::start(&json!({ "init": { "enabled": true, "handler_prefix": "/there" } }));
    assert_eq!(ask(&server, "GET", "").status, 404);
    assert_eq!(server.ask("GET", "/there", "").text(), "{}");
}

on_io_uring![init_requests_follow_the_origin_check, init_is_off_by_default_and_served_at_its_prefix,];
