//! `dunlin mcp` of the real binary beside a real node. `crates/server/src/cli/mcp/transcripts` has the protocol, `tests/mcp` the
//! official SDK.

use std::io::{BufRead as _, BufReader, Write as _};

use serde_json::{Value, json};

use crate::http::server::{KEY, Server};

/// A node with an internal port.
fn start() -> Server {
    let [public, internal] = [(); 2].map(|()| dunlin_processes::free_address().expect("a free port").port());
    Server::start(&json!({ "http_server": { "port": public, "internal_port": internal } }))
}

/// What a process answers to these lines, one line each. Its input then ends, and so does it.
fn converse(server: &Server, options: &[&str], lines: &[String]) -> Vec<Value> {
    let mut child = server.spawn_with(&[&["mcp"], options].concat());
    let mut input = child.stdin.take().expect("it is piped");
    let mut output = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut answers = Vec::new();
    for line in lines {
        writeln!(input, "{line}").expect("it reads");
        let mut answer = String::new();
        output.read_line(&mut answer).expect("it writes");
        answers.push(serde_json::from_str(&answer).unwrap_or_else(|_| panic!("no JSON: {answer}")));
    }
    drop(input);
    assert_eq!(output.lines().count(), 0, "nothing else is written");
    assert!(child.wait().expect("a child").success());
    answers
}

fn request(id: u64, method: &str, params: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string()
}

fn call(id: u64, tool: &str, arguments: &Value) -> String {
    request(id, "tools/call", &json!({ "name": tool, "arguments": arguments }))
}

fn handshake() -> String {
    request(1, "initialize", &json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {} }))
}

fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {answer}"))
}

#[test]
fn an_agent_asks_a_node() {
    let server = start();
    let mut session = server.open_session();
    session.send_text(r#"{"id":2,"subscribe":{"channel":"open:a"}}"#);
    session.frame();
    let lines = [
        handshake(),
        call(2, "sessions", &json!({ "channel": "open:a" })),
        "not JSON".to_owned(),
        call(3, "configuration", &json!({})),
        call(4, "metrics", &json!({ "prefix": "dunlin_sessions" })),
        call(5, "publish", &json!({ "channel": "open:a", "data": 1 })),
        call(6, "presence", &json!({ "channel": "open:a" })),
    ];
    let answers = converse(&server, &[], &lines);
    assert_eq!(answers[0]["result"]["serverInfo"]["name"], "dunlin");
    let sessions: Value = serde_json::from_str(text(&answers[1])).expect("JSON");
    assert_eq!(sessions["sessions"].as_array().map(Vec::len), Some(1), "{sessions}");
    assert_eq!(answers[2]["error"]["code"], -32_700);
    let shown: Value = serde_json::from_str(text(&answers[3])).expect("JSON");
    assert_eq!(shown["source"], "the running node");
    assert!(!text(&answers[3]).contains(KEY), "{shown}");
    assert!(text(&answers[4]).contains("# TYPE dunlin_sessions "), "{}", answers[4]);
    assert!(text(&answers[5]).contains("without `--allow-writes`"), "{}", answers[5]);
    assert!(text(&answers[6]).contains("error 108: not available"), "{}", answers[6]);
}

#[test]
fn an_agent_acts_only_where_it_is_allowed() {
    let server = start();
    let mut session = server.open_session();
    session.send_text(r#"{"id":2,"subscribe":{"channel":"open:a"}}"#);
    session.frame();
    let published = call(2, "publish", &json!({ "channel": "open:a", "data": { "text": "hello" } }));
    let answers = converse(&server, &["--allow-writes"], &[handshake(), published]);
    assert_eq!(text(&answers[1]), "{}");
    let pushed: Value = serde_json::from_slice(&session.frame().1).expect("JSON");
    assert_eq!(pushed["push"]["pub"]["data"]["text"], "hello");
}

#[test]
fn the_configuration_needs_the_key() {
    let internal = dunlin_processes::free_address().expect("a free port");
    let server = Server::start(&json!({ "http_server": { "internal_port": internal.port() } }));
    assert_eq!(server.ask("POST", "/-/configuration", "").status, 404, "it is not on the public port");
    let ask = |key: &str| {
        let connection = std::net::TcpStream::connect(internal).expect("it listens");
        let mut client = crate::http::server::Client::new(connection);
        let head =
            format!("POST /-/configuration HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nX-API-Key: {key}\r\n\r\n");
        client.send(head);
        client.answer()
    };
    assert_eq!(ask("a-wrong-key").status, 401);
    let answer = ask(KEY);
    let shown: Value = serde_json::from_str(&answer.text()).expect("JSON");
    let key = shown["settings"].as_array().expect("a list").iter().find(|setting| setting["key"] == "http_api.key");
    assert_eq!(key.expect("it is set"), &json!({ "key": "http_api.key", "value": null, "hidden": true }));
}

on_io_uring![an_agent_asks_a_node, an_agent_acts_only_where_it_is_allowed, the_configuration_needs_the_key,];
