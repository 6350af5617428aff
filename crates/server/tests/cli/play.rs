//! `dunlin play`. `tests/browser/play.test.mjs` uses its page.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
};

use serde_json::{Value, json};

use super::{Folder, dunlin, stderr};

const TOKEN: &str = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0.c2VjcmV0";

struct Play {
    child: Child,
    /// The line with the address.
    line: String,
    address: IpAddr,
    port: u16,
}

impl Play {
    fn start(folder: &Folder, address: IpAddr, args: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_dunlin"))
            .args(["play", "--address", &address.to_string()])
            .args(args)
            .env_clear()
            .envs(variables.iter().copied())
            .current_dir(&folder.0)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("text");
        let port = line.split_once("/; ").and_then(|(begin, _)| begin.rsplit_once(':'));
        let port = port.and_then(|(_, port)| port.parse().ok()).unwrap_or_else(|| panic!("no address in {line:?}"));
        Self { child, line, address, port }
    }

    /// A response: its head and its body.
    fn ask(&self, request: &str, fields: &str, body: &str) -> (String, String) {
        let mut stream = TcpStream::connect((self.address, self.port)).expect("it listens");
        let length = body.len();
        let text = format!("{request} HTTP/1.1\r\n{fields}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}");
        stream.write_all(text.as_bytes()).expect("it reads");
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("text");
        let (head, body) = response.split_once("\r\n\r\n").expect("a head and a body");
        (head.to_owned(), body.to_owned())
    }

    fn host(&self) -> String {
        format!("Host: localhost:{}\r\n", self.port)
    }

    fn settings(&self) -> Value {
        let (head, body) = self.ask("GET /settings.json", &self.host(), "");
        assert!(head.contains("cache-control: no-store"), "{head}");
        serde_json::from_str(&body).expect("JSON")
    }

    /// The status of a handshake from this origin.
    fn open_socket(&self, host: &str, origin: &str) -> String {
        let mut stream = TcpStream::connect((self.address, self.port)).expect("it listens");
        let text = format!(
            "GET /connection/websocket HTTP/1.1\r\nHost: {host}\r\nOrigin: {origin}\r\nConnection: Upgrade\r\n\
             Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        stream.write_all(text.as_bytes()).expect("it reads");
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).expect("text");
        line
    }

    /// Ends it; its log.
    fn end(mut self) -> String {
        // SAFETY: a system call without pointers, for a child that has not been waited for.
        let sent = unsafe { libc::kill(self.child.id().cast_signed(), libc::SIGTERM) };
        assert_eq!(sent, 0);
        let mut log = String::new();
        self.child.stderr.take().expect("a pipe").read_to_string(&mut log).expect("text");
        assert!(self.child.wait().expect("it ends").success(), "{log}");
        log
    }
}

impl Drop for Play {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_page_and_its_server_are_for_this_machine_and_this_page() {
    let folder = Folder::new("play");
    // Neither a file nor a variable of the user changes the server.
    folder.file("config.json", r#"{"http_server": {"address": "0.0.0.0"}, "client": {"insecure": true}}"#);
    let variables = [("DUNLIN_HTTP_SERVER_ADDRESS", "0.0.0.0"), ("DUNLIN_CLIENT_ALLOWED_ORIGINS", "*")];
    let play = Play::start(&folder, Ipv4Addr::LOCALHOST.into(), &[], &variables);
    assert!(TcpStream::connect((Ipv4Addr::new(127, 0, 0, 2), play.port)).is_err(), "one address alone");
    let (head, body) = play.ask("GET /", &play.host(), "");
    assert!(head.starts_with("HTTP/1.1 200") && body.contains("playground"), "{head}");
    assert!(head.contains("connect-src 'self'\r\n"), "{head}");

    let settings = play.settings();
    assert_eq!((&settings["url"], &settings["token"]), (&Value::Null, &json!("")));
    let key = settings["apiKey"].as_str().expect("a key");
    let (head, body) = play.ask("POST /api/info", &format!("{}X-API-Key: {key}\r\n", play.host()), "{}");
    assert!(head.starts_with("HTTP/1.1 200") && body.contains("\"nodes\""), "{head}\n{body}");
    let (head, _) = play.ask("POST /api/info", &play.host(), "{}");
    assert!(head.starts_with("HTTP/1.1 401"), "{head}");

    // Another site may give its own name this machine's address.
    let evil = format!("evil.example:{}", play.port);
    for path in ["/", "/settings.json"] {
        let (head, body) = play.ask(&format!("GET {path}"), &format!("Host: {evil}\r\n"), "");
        assert!(head.starts_with("HTTP/1.1 403") && !body.contains(key), "{head}\n{body}");
    }
    let own = format!("localhost:{}", play.port);
    for (host, origin, status) in [
        (&own, format!("http://{own}"), "101"),
        (&own, format!("http://{evil}"), "403"),
        (&evil, format!("http://{evil}"), "403"),
    ] {
        let line = play.open_socket(host, &origin);
        assert!(line.starts_with(&format!("HTTP/1.1 {status}")), "{origin} at {host}: {line}");
    }
    let key = key.to_owned();
    let log = play.end();
    assert!(!log.contains(&key), "{log}");
}

#[test]
fn a_page_for_a_server_of_the_user_keeps_its_token_to_itself() {
    let folder = Folder::new("play-url");
    let url = "wss://example.com:8443/connection/websocket";
    for address in [Ipv4Addr::LOCALHOST.into(), IpAddr::from(Ipv6Addr::LOCALHOST)] {
        // Containers may have no IPv6.
        if TcpListener::bind((address, 0)).is_err() {
            continue;
        }
        let play = Play::start(&folder, address, &["--url", url, "--token", TOKEN], &[]);
        let settings = play.settings();
        assert_eq!((&settings["url"], &settings["token"]), (&json!(url), &json!(TOKEN)));
        assert_eq!((&settings["apiKey"], &settings["channels"]), (&Value::Null, &json!([])));
        let (head, _) = play.ask("GET /", &play.host(), "");
        assert!(head.contains("connect-src 'self' wss://example.com:8443\r\n"), "{head}");
        let (head, body) = play.ask("GET /settings.json", "Host: evil.example\r\n", "");
        assert!(head.starts_with("HTTP/1.1 403") && !body.contains(TOKEN), "{head}\n{body}");
        let line = play.line.clone();
        assert!(!(line + &play.end()).contains(TOKEN));
    }
}

#[test]
fn what_cannot_be_served_is_refused_with_a_remedy() {
    let folder = Folder::new("play-refused");
    let taken = TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
    let port = taken.local_addr().expect("bound").port().to_string();
    let secret = "ws://user:secret@example.com/";
    for (args, code, part) in [
        (&["--address", "0.0.0.0"][..], 2, "`127.0.0.1` or `::1`"),
        (&["--address", "localhost"], 2, "--address"),
        (&["--token", TOKEN], 2, "--url"),
        (&["--url", "http://example.com"], 2, "has to begin with ws:// or wss://"),
        (&["--url", secret], 2, "such as ws://localhost:8000/connection/websocket"),
        (&["--port", &port], 1, "choose another port with --port"),
        (&["--port", &port, "--url", "ws://localhost:8000/"], 2, "choose another port with --port"),
    ] {
        let refused = dunlin(&folder, &[&["play"], args].concat());
        let text = stderr(&refused);
        assert_eq!(refused.status.code(), Some(code), "{args:?}: {text}");
        assert!(text.contains(part) && !text.contains("secret"), "{args:?}: {text}");
    }
}
