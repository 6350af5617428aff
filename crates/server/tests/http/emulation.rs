//! Commands in separate HTTP requests.

use serde_json::{Value, json};

use crate::http::server::{Answer, Server};

fn emulate(server: &Server, node: &str, session: &str) -> Answer {
    let body = json!({ "node": node, "session": session, "data": r#"{"id":2,"rpc":{"method":"m"}}"# });
    server.ask("POST", "/emulation", &body.to_string())
}

/// Opens a stream. Returns it with its connect reply.
pub fn open(server: &Server) -> (crate::http::server::Client, Value) {
    let mut stream = server.connect();
    let body = r#"{"id":1,"connect":{}}"#;
    let head = "POST /connection/http_stream HTTP/1.1\r\nHost: a\r\nContent-Length:";
    stream.send(format!("{head} {}\r\n\r\n{body}", body.len()));
    assert_eq!(stream.answer().status, 200);
    let chunk = stream.line();
    assert!(!chunk.is_empty(), "the length of a chunk");
    let reply = serde_json::from_str(&stream.line()).expect("a reply");
    (stream, reply)
}

#[test]
fn emulation_accepts_an_ended_session_and_refuses_an_unknown_node() {
    let server = Server::start(&json!({ "http_stream": { "enabled": true } }));
    let (stream, reply) = open(&server);
    let connect = &reply["connect"];
    let (node, session) = (connect["node"].as_str().expect("a node"), connect["session"].as_str().expect("a session"));
    assert_eq!(emulate(&server, node, session).status, 204);
    assert_eq!(emulate(&server, "", session).status, 204);
    assert_eq!(emulate(&server, "another", session).status, 404, "this node knows nothing of another");
    drop(stream);
    crate::http::observation::until(|| server.metric("dunlin_http_connections") < 1.5);
    for session in [session, "", "nobody"] {
        assert_eq!(emulate(&server, node, session).status, 204, "{session:?}");
    }
}

on_io_uring![emulation_accepts_an_ended_session_and_refuses_an_unknown_node,];
