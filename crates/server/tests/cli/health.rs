//! `dunlin health`.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener},
    process::Stdio,
    thread,
};

use super::{Folder, RunningNode, dunlin, stderr, stdout};

/// Starts a server that answers one request with `answer`. Its thread returns the request. Without an answer, the
/// connection stays open until the client closes it.
fn answering(answer: Option<&'static str>) -> (SocketAddr, thread::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it listens");
    let answering = thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("a connection");
        let mut request = Vec::new();
        let mut part = [0; 1_024];
        while !request.ends_with(b"\r\n\r\n") {
            let read = socket.read(&mut part).expect("a request");
            request.extend_from_slice(&part[..read]);
        }
        match answer {
            Some(answer) => socket.write_all(answer.as_bytes()).expect("it takes the answer"),
            None => drop(socket.read(&mut part)),
        }
        String::from_utf8(request).expect("text")
    });
    (address, answering)
}

#[test]
fn health_checks_the_configured_address_and_exits_with_0_or_1() {
    let folder = Folder::new("health");
    for (answer, code, expected) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", 0, "200 OK"),
        ("HTTP/1.1 503 Service Unavailable\r\n\r\n", 1, "503 Service Unavailable"),
        ("HTTP/1.1 404 Not Found\r\n\r\n", 1, "404 Not Found. Set `health.enabled`"),
        ("hello\r\n", 1, "the response is not HTTP"),
    ] {
        let (address, asked) = answering(Some(answer));
        let port = address.port();
        let file = folder.file(
            "dunlin.json",
            &format!(
                r#"{{"http_server": {{"port": {port}}}, "health": {{"enabled": true, "handler_prefix": "/up"}}}}"#
            ),
        );
        let output = dunlin(&folder, &["health", "-c", &file]);
        let printed = stdout(&output).to_owned() + stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{printed}");
        assert!(printed.contains(&format!("http://127.0.0.1:{port}/up: {expected}")), "{printed}");
        assert_eq!(printed.lines().count(), 1, "{printed}");
        assert!(asked.join().expect("it was asked").starts_with("GET /up HTTP/1.1\r\n"));
    }
    let internal = folder
        .file("internal.json", r#"{"http_server": {"port": 1, "internal_port": 2}, "health": {"enabled": true}}"#);
    let output = dunlin(&folder, &["health", "-c", &internal]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("http://127.0.0.1:2/health: cannot connect"), "{}", stderr(&output));
}

#[test]
fn health_uses_the_given_address_and_times_out() {
    let folder = Folder::new("health-flags");
    let (address, asked) = answering(Some("HTTP/1.1 200 OK\r\n\r\n"));
    let output = dunlin(&folder, &["health", "--address", &address.to_string()]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(asked.join().expect("it was asked").starts_with("GET /health HTTP/1.1\r\n"));

    let (address, asked) = answering(Some("HTTP/1.1 200 OK\r\n\r\n"));
    let output = dunlin(&folder, &["health", "-c", "not-there.json", "--url", &format!("http://{address}/ready?x=1")]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(asked.join().expect("it was asked").starts_with("GET /ready?x=1 HTTP/1.1\r\n"));

    let (address, asked) = answering(None);
    let output = dunlin(&folder, &["health", "--timeout", "1", "--address", &address.to_string()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).ends_with("no response within 1 s\n"), "{}", stderr(&output));
    drop(asked);

    for (args, expected) in [
        (&["health"][..], "set `health.enabled` to true"),
        (&["health", "-c", "not-there.json"], "not-there.json: can't be opened"),
        (&["health", "--address", "here and there"], "is not a host and a port"),
        (&["health", "--url", "ftp://127.0.0.1/"], "is not a URL"),
    ] {
        let output = dunlin(&folder, args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
        assert_eq!(stderr(&output).lines().count(), 1);
    }
}

#[test]
fn health_of_a_running_node_over_tls() {
    let folder = Folder::new("health-tls");
    let authority = concat!(env!("CARGO_MANIFEST_DIR"), "/src/backend/tests/tls");
    let file = folder.file(
        "dunlin.json",
        &format!(
            r#"{{"http_server": {{"address": "127.0.0.1", "port": 0, "tls": {{"enabled": true,
                "cert_pem": "{authority}/certificate.pem", "key_pem": "{authority}/key.pem"}}}}, "health": {{"enabled": true}}}}"#
        ),
    );
    let mut node = RunningNode::start(&folder, &["-c", &file], Stdio::piped());
    let log = node.log_until("dunlin is listening");
    let address = log.split(r#""dunlin is listening","address":""#).nth(1).and_then(|rest| rest.split('"').next());
    let address = address.unwrap_or_else(|| panic!("{log}"));
    let output = dunlin(&folder, &["health", "-c", &file, "--address", address]);
    assert_eq!(stdout(&output), format!("https://{address}/health: 200 OK\n"), "{}", stderr(&output));
    let output = dunlin(&folder, &["health", "--url", &format!("http://{address}/health")]);
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
}
