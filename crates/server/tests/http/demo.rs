//! The demo with the configuration of `make run`.

use std::{fs, path::PathBuf};

use serde_json::{Value, json};

use crate::{
    each_reactor,
    http::server::{Client, Server, handshake},
};

struct Pages(PathBuf);

impl Pages {
    fn new() -> Self {
        let name = format!("dunlin-pages-{}-{}", std::process::id(), each_reactor::current_name());
        let dir = std::env::temp_dir().join(name);
        fs::create_dir_all(&dir).expect("a temporary directory");
        fs::write(dir.join("index.html"), "<p>ticker").expect("a page");
        fs::write(dir.join(".built-from"), "note").expect("a note");
        Self(dir)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn the_page_is_served_with_what_it_asks_for() {
    let pages = Pages::new();
    let mut settings: Value = serde_json::from_str(include_str!("../../../../demo/config.json")).expect("JSON");
    settings["http_server"]["port"] = 0.into();
    settings["demo"]["dir"] = json!(pages.0);
    settings["storage"]["path"] = json!(pages.0.join(".storage"));
    let server = Server::start(&settings);

    let page = server.ask("GET", "/", "");
    assert_eq!((page.status, page.text().as_str()), (200, "<p>ticker"));
    assert_eq!(page.field("content-type"), Some("text/html; charset=utf-8"));
    for (method, path, status) in [
        ("GET", "/.built-from", 404),
        ("GET", "/../config.json", 404),
        ("POST", "/", 405),
        ("HEAD", "/?encoding=protobuf", 200),
        ("GET", "/api/info", 405),
    ] {
        let mut client = server.connect();
        client.send(format!("{method} {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        // The response to HEAD has the length of the omitted body.
        assert_eq!(client.status(), status, "{method} {path}");
    }

    // The page has no API key. It can read the paths of the demo's room, and nothing else of the API.
    let paths = server.ask("GET", "/arena/paths?interval_ms=500&avatar=1", "");
    assert_eq!((paths.status, paths.json()), (200, json!({ "paths": [] })));
    for (path, status) in
        [("/arena/paths?cursor=x", 400), ("/arena/paths?avatar=x", 400), ("/arena/paths?from_ms=-1", 400)]
    {
        assert_eq!(server.ask("GET", path, "").status, status, "{path}");
    }

    check_guests(&server);

    let mut session = server.connect();
    session.send(handshake("Origin: http://dunlin.example\r\n"));
    assert_eq!(session.answer().status, 101, "the page's own origin is let in");
    session.send_text(r#"{"id":1,"connect":{}}"#);
    session.frame();
    session.send_text(r#"{"id":2,"subscribe":{"channel":"ticker:ACME"}}"#);
    assert!(messages(&mut session)[0]["subscribe"].is_object());
}

/// Checks that a visitor gets a token, and with it a place in a room of the tag game.
fn check_guests(server: &Server) {
    let answer = server.ask("GET", "/lobby/guest", "");
    assert_eq!((answer.status, answer.field("cache-control")), (200, Some("no-store")));
    let token = answer.json()["token"].take();
    assert_ne!(server.ask("GET", "/lobby/guest", "").json()["token"], token, "each visitor is another user");
    let mut session = server.connect();
    session.send(handshake("Origin: http://dunlin.example\r\n"));
    assert_eq!(session.answer().status, 101);
    session.send_text(&json!({"id": 1, "connect": {"token": token}}).to_string());
    assert!(messages(&mut session)[0]["connect"].is_object());
    session.send_text(&json!({"id": 2, "rpc": {"method": "dunlin.match", "data": {"namespace": "tag"}}}).to_string());
    let ticket = loop {
        let answers = messages(&mut session);
        if let Some(answer) = answers.iter().find(|answer| answer["id"] == 2) {
            break answer["rpc"]["data"]["ticket"].clone();
        }
    };
    assert!(ticket.is_string(), "{ticket}");
}

fn messages(session: &mut Client) -> Vec<Value> {
    let (first, payload) = session.frame();
    assert_eq!(first, 0x81);
    let text = String::from_utf8(payload).expect("text");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

on_io_uring![the_page_is_served_with_what_it_asks_for,];
