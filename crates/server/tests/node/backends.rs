//! A node whose sessions' calls go to a real backend over HTTP.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::Arc,
    thread,
};

use dunlin::backend::{Backends, ProxyOptions};
use dunlin_engine::backend::ProxyIndex;

use crate::{
    client::{Client, upgrade_request},
    rig::{Rig, engine_options, net_options},
};

/// A backend that answers by the method's name: `hang` never, `error` and `disconnect` with those, `cookie` with what the
/// client's own request had there, others with `"pong"`.
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
        let cookie = head.lines().find_map(|line| line.strip_prefix("cookie: ")).unwrap_or("none");
        let answer = match body["method"].as_str() {
            Some("hang") => continue,
            Some("error") => r#"{"error":{"code":1000,"message":"no","temporary":true}}"#.to_owned(),
            Some("disconnect") => r#"{"disconnect":{"code":4501,"reason":"go"}}"#.to_owned(),
            Some("cookie") => serde_json::json!({ "result": { "data": cookie } }).to_string(),
            _ => r#"{"result":{"data":"pong"}}"#.to_owned(),
        };
        let length = answer.len();
        let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{answer}");
        if stream.write_all(response.as_bytes()).is_err() {
            return;
        }
    }
}

fn rig() -> Rig {
    let proxy = ProxyOptions {
        http_headers: vec!["cookie".into()],
        timeout_ms: 60_000,
        ..ProxyOptions::new("rpc.proxy", serve().parse().expect("an address"))
    };
    let mut engine = engine_options();
    engine.backend.rpc_without_namespace = Some(ProxyIndex(0));
    Rig::with_backends(net_options(), engine, Arc::new(Backends::start(&[proxy]).expect("a thread")))
}

fn call(id: u32, method: &str) -> String {
    format!(r#"{{"id":{id},"rpc":{{"method":"{method}"}}}}"#)
}

#[test]
fn a_call_is_answered_by_the_backend() {
    let rig = rig();
    let mut client = Client::session(rig.address());
    client.say(&call(2, "ping"));
    assert_eq!(client.read_line(), r#"{"id":2,"rpc":{"data":"pong"}}"#);
    client.say(&call(3, "error"));
    assert_eq!(client.read_line(), r#"{"id":3,"error":{"code":1000,"message":"no","temporary":true}}"#);
    client.say(&call(4, "disconnect"));
    assert_eq!(client.read_close(), 4_501);
}

#[test]
fn a_backend_is_told_of_the_header_fields_that_it_wants() {
    let rig = rig();
    for (fields, expected) in [("Cookie: a=b\r\nX-Other: c\r\n", "a=b"), ("", "none")] {
        let mut client = Client::connect(rig.address());
        client.write(upgrade_request(fields).as_bytes());
        assert!(client.read_head().starts_with("HTTP/1.1 101 "));
        client.say(r#"{"id":1,"connect":{}}"#);
        client.read_line();
        client.say(&call(2, "cookie"));
        assert_eq!(client.read_line(), format!(r#"{{"id":2,"rpc":{{"data":"{expected}"}}}}"#));
    }
}

/// Sessions that wait for a backend which hangs keep nobody waiting: neither those who publish, nor those who ask the same
/// backend something that it answers.
#[test]
fn a_backend_that_hangs_delays_those_alone_who_wait_for_it() {
    let rig = rig();
    let mut waiting: Vec<_> = (0..40).map(|_| Client::session(rig.address())).collect();
    for client in &mut waiting {
        client.say(&call(2, "hang"));
        // Behind the call, in its order.
        client.say(&call(3, "ping"));
    }
    let mut client = Client::subscribed(rig.address(), &["news".to_owned()]);
    for id in 10..110 {
        client.say(&format!(r#"{{"id":{id},"publish":{{"channel":"news","data":{id}}}}}"#));
        client.read_lines(2);
        client.say(&call(id, "ping"));
        assert_eq!(client.read_line(), format!(r#"{{"id":{id},"rpc":{{"data":"pong"}}}}"#));
    }
    drop(waiting);
}
