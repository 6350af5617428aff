//! A node that sends requests to a real backend over HTTP.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::Arc,
    thread,
};

use dunlin::backend::{Backends, CallOutcome, ProxyClient, ProxyKind};
use dunlin_config::ProxyOptions;
use dunlin_engine::backend::ProxyIndex;
use dunlin_net::TrustedProxies;

use crate::node::{
    client::{Client, upgrade_request},
    rig::{Rig, engine_options, net_options},
};

/// Starts a backend whose answer depends on the method: none to `hang`, an error or a disconnect to `error` and
/// `disconnect`, status 400 or 500 to `refuse` and `fail`, the value of this header field to `cookie` and `x-real-ip`,
/// and `"pong"` to other methods. Returns its URL.
fn serve() -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let address = listener.local_addr().expect("bound");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || answer_all(stream));
        }
    });
    format!("http://{address}/hook")
}

fn answer_all(mut stream: TcpStream) {
    let mut bytes = Vec::new();
    let mut piece = [0; 4_096];
    while let Ok(count @ 1..) = stream.read(&mut piece) {
        bytes.extend_from_slice(&piece[..count]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let Ok(body) = serde_json::from_str::<serde_json::Value>(body) else { continue };
        bytes.clear();
        let field = |name: &str| {
            let value = head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            serde_json::json!({ "result": { "data": value.unwrap_or("none") } }).to_string()
        };
        let status = match body["method"].as_str() {
            Some("refuse") => "400 Bad Request",
            Some("fail") => "500 Internal Server Error",
            _ => "200 OK",
        };
        let answer = match body["method"].as_str() {
            Some("hang") => continue,
            Some("error") => r#"{"error":{"code":1000,"message":"no","temporary":true}}"#.to_owned(),
            Some("disconnect") => r#"{"disconnect":{"code":4501,"reason":"go"}}"#.to_owned(),
            Some(name @ ("cookie" | "x-real-ip")) => field(name),
            _ => r#"{"result":{"data":"pong"}}"#.to_owned(),
        };
        let length = answer.len();
        let response = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{answer}");
        if stream.write_all(response.as_bytes()).is_err() {
            return;
        }
    }
}

fn rig() -> Rig {
    rig_behind(&[]).0
}

/// The same, with trusted proxies.
fn rig_behind(trusted: &[&str]) -> (Rig, Arc<Backends>) {
    let proxy = ProxyOptions {
        http_headers: vec!["cookie".into(), "x-real-ip".into()],
        trusts_proxies: !trusted.is_empty(),
        timeout_ms: 60_000,
        ..ProxyOptions::new("rpc.proxy", serve().parse().expect("an address"))
    };
    let mut engine = engine_options();
    engine.backend.rpc_without_namespace = Some(ProxyIndex(0));
    let backends = Arc::new(Backends::start(&[proxy], None).expect("a thread"));
    let mut net = net_options();
    net.admission.trusted_proxies = TrustedProxies::parse(trusted.iter().copied()).expect("addresses");
    (Rig::with_backends(net, engine, Arc::clone(&backends) as Arc<dyn ProxyClient>), backends)
}

/// Opens a session whose handshake has these fields.
fn session_with(rig: &Rig, fields: &str) -> Client {
    let mut client = Client::connect(rig.address());
    client.write(upgrade_request(fields).as_bytes());
    assert!(client.read_head().starts_with("HTTP/1.1 101 "));
    client.send(r#"{"id":1,"connect":{}}"#);
    client.read_line();
    client
}

/// Makes calls one after another. Each must be answered with `expected` after its id.
fn call_often(client: &mut Client, method: &str, count: u32, expected: &str) {
    for id in 2..2 + count {
        client.send(&call(id, method));
        assert_eq!(client.read_line(), format!(r#"{{"id":{id},{expected}}}"#), "{method}");
    }
}

const FAILED: &str = r#""error":{"code":100,"message":"internal server error","temporary":true}"#;
const PONG: &str = r#""rpc":{"data":"pong"}"#;

/// Answers of a backend are not outages, and failures that one address causes do not block other clients.
#[test]
fn one_client_alone_cannot_open_the_breaker_for_others() {
    let (rig, backends) = rig_behind(&[]);
    let (mut bad, mut good) = (Client::session(rig.address()), Client::session(rig.address()));
    call_often(&mut bad, "refuse", 100, FAILED);
    call_often(&mut good, "ping", 1, PONG);
    call_often(&mut bad, "fail", 100, FAILED);
    let mut sessions: Vec<_> = (0..10).map(|_| Client::session(rig.address())).collect();
    for session in &mut sessions {
        call_often(session, "fail", 10, FAILED);
    }
    let counts = backends.counts();
    assert!(!counts.proxies[0].is_open);
    assert_eq!(counts.proxies[0].outcomes[ProxyKind::Rpc as usize][CallOutcome::Open as usize], 0, "all were asked");
    call_often(&mut good, "ping", 1, PONG);
}

#[test]
fn failures_for_several_clients_open_the_breaker() {
    let (rig, backends) = rig_behind(&["127.0.0.1"]);
    for client in 1..=4 {
        let mut session = session_with(&rig, &format!("X-Forwarded-For: 192.0.2.{client}\r\n"));
        call_often(&mut session, "fail", 5, FAILED);
    }
    assert!(backends.counts().proxies[0].is_open);
    call_often(&mut session_with(&rig, "X-Forwarded-For: 192.0.2.9\r\n"), "ping", 1, FAILED);
}

#[test]
fn a_backend_gets_the_address_of_the_client() {
    let address_of = |rig: &Rig, fields: &str| {
        let mut session = session_with(rig, fields);
        session.send(&call(2, "x-real-ip"));
        session.read_line()
    };
    let is = |address: &str| format!(r#"{{"id":2,"rpc":{{"data":"{address}"}}}}"#);
    let (alone, _) = rig_behind(&[]);
    assert_eq!(address_of(&alone, ""), is("127.0.0.1"));
    assert_eq!(address_of(&alone, "X-Real-Ip: 192.0.2.1\r\n"), is("192.0.2.1"), "kept without trusted proxies");
    let (behind, _) = rig_behind(&["127.0.0.1"]);
    assert_eq!(address_of(&behind, "X-Forwarded-For: 192.0.2.2\r\nX-Real-Ip: 192.0.2.1\r\n"), is("192.0.2.2"));
    assert_eq!(address_of(&behind, "X-Forwarded-For: 10.0.0.1, 192.0.2.3\r\n"), is("192.0.2.3"));
}

#[test]
fn codes_of_a_backend_are_counted() {
    let (rig, backends) = rig_behind(&[]);
    let mut client = Client::session(rig.address());
    call_often(&mut client, "error", 3, r#""error":{"code":1000,"message":"no","temporary":true}"#);
    client.send(&call(9, "disconnect"));
    assert_eq!(client.read_close(), 4_501);
    let mut codes = backends.counts().proxies[0].codes.clone();
    codes.sort_by_key(|one| one.code);
    let codes: Vec<_> = codes.iter().map(|one| (one.kind, one.code, one.count)).collect();
    assert_eq!(codes, [(ProxyKind::Rpc, Some(1_000), 3), (ProxyKind::Rpc, Some(4_501), 1)]);
}

fn call(id: u32, method: &str) -> String {
    format!(r#"{{"id":{id},"rpc":{{"method":"{method}"}}}}"#)
}

#[test]
fn a_call_is_answered_by_the_backend() {
    let rig = rig();
    let mut client = Client::session(rig.address());
    client.send(&call(2, "ping"));
    assert_eq!(client.read_line(), r#"{"id":2,"rpc":{"data":"pong"}}"#);
    client.send(&call(3, "error"));
    assert_eq!(client.read_line(), r#"{"id":3,"error":{"code":1000,"message":"no","temporary":true}}"#);
    client.send(&call(4, "disconnect"));
    assert_eq!(client.read_close(), 4_501);
}

#[test]
fn a_backend_gets_the_configured_header_fields() {
    let rig = rig();
    for (fields, expected) in [("Cookie: a=b\r\nX-Other: c\r\n", "a=b"), ("", "none")] {
        let mut client = Client::connect(rig.address());
        client.write(upgrade_request(fields).as_bytes());
        assert!(client.read_head().starts_with("HTTP/1.1 101 "));
        client.send(r#"{"id":1,"connect":{}}"#);
        client.read_line();
        client.send(&call(2, "cookie"));
        assert_eq!(client.read_line(), format!(r#"{{"id":2,"rpc":{{"data":"{expected}"}}}}"#));
    }
}

/// Sessions that wait for a hanging backend delay neither publications nor other calls to the same backend.
#[test]
fn a_hanging_backend_delays_only_its_callers() {
    let rig = rig();
    let mut waiting: Vec<_> = (0..40).map(|_| Client::session(rig.address())).collect();
    for client in &mut waiting {
        client.send(&call(2, "hang"));
        // The command is answered in order, so it waits for the call.
        client.send(&call(3, "ping"));
    }
    let mut client = Client::subscribed(rig.address(), &["news".to_owned()]);
    for id in 10..110 {
        client.send(&format!(r#"{{"id":{id},"publish":{{"channel":"news","data":{id}}}}}"#));
        client.read_lines(2);
        client.send(&call(id, "ping"));
        assert_eq!(client.read_line(), format!(r#"{{"id":{id},"rpc":{{"data":"pong"}}}}"#));
    }
    drop(waiting);
}

on_io_uring![
    one_client_alone_cannot_open_the_breaker_for_others,
    failures_for_several_clients_open_the_breaker,
    a_backend_gets_the_address_of_the_client,
    codes_of_a_backend_are_counted,
    a_call_is_answered_by_the_backend,
    a_backend_gets_the_configured_header_fields,
    a_hanging_backend_delays_only_its_callers,
];
