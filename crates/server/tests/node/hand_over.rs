//! Connections that move to the control thread and back.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
};

use dunlin::node::{Adoption, DrainPlan, Drained, NodeNetOptions};
use dunlin_engine::Wire;
use dunlin_engine::api::{ApiAnswer, ApiRequest};
use dunlin_net::RefusalReason;

use crate::node::{
    client::{Client, TEXT, frame, upgrade_request},
    rig::{PATIENCE, Rig, engine_options, net_options},
};

fn all_at_once(timeout: std::time::Duration) -> DrainPlan {
    DrainPlan { timeout, sessions_per_second: 0 }
}

#[test]
fn a_request_for_another_path_is_handed_over_with_every_byte() {
    let mut rig = Rig::simple();
    let head = "POST /api/publish HTTP/1.1\r\nHost: dunlin.example\r\nContent-Length: 10\r\n\r\n";
    let mut client = Client::connect(rig.address());
    // The first half of the body arrives with the head, and the other half later.
    client.write(&head.as_bytes()[..20]);
    rig.wait_for("the first piece to be read", 20, |net| net.read_bytes);
    client.write([&head.as_bytes()[20..], b"01234"].concat().as_slice());
    let handed_over = rig.runtime.block_on(rig.handed_over.recv()).expect("the node runs");
    client.write(b"56789");

    let mut stream = handed_over.stream;
    assert_eq!(handed_over.peer, stream.peer_addr().expect("connected"));
    let error = stream.read(&mut []).err();
    assert!(error.is_none());
    stream.set_nonblocking(false).expect("a socket");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let mut request = handed_over.head;
    let missing = head.len() + 10 - request.len();
    let mut rest = vec![0; missing];
    stream.read_exact(&mut rest).expect("the rest comes");
    request.extend(rest);
    assert_eq!(String::from_utf8(request).expect("ASCII"), format!("{head}0123456789"));

    stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").expect("the client reads");
    assert!(client.read_head().starts_with("HTTP/1.1 204 "));
    let net = &rig.counters()[0];
    assert_eq!((net.handed_over, net.connections), (1, 0));
}

#[test]
fn a_full_control_inbox_is_answered_with_an_error() {
    let mut rig = Rig::simple();
    let request = b"GET /health HTTP/1.1\r\nHost: dunlin.example\r\n\r\n";
    let mut first = Client::connect(rig.address());
    first.write(request);
    rig.wait_for("the first to be handed over", 1, |net| net.handed_over);
    let mut second = Client::connect(rig.address());
    second.write(request);
    assert!(second.read_to_end().starts_with("HTTP/1.1 503 "));
    assert_eq!(rig.counters()[0].refused[RefusalReason::ControlBusy.index()], 1);
    assert!(rig.handed_over.try_recv().is_ok(), "the first is still there");
    let mut third = Client::connect(rig.address());
    third.write(request);
    assert!(rig.runtime.block_on(rig.handed_over.recv()).is_some());
}

#[test]
fn a_websocket_is_adopted_with_what_was_read_behind_its_request() {
    let rig = Rig::simple();
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let mut client = Client::over(TcpStream::connect(listener.local_addr().expect("bound")).expect("listening"));
    let (stream, _) = listener.accept().expect("a client waits");
    let mut bytes = frame(TEXT, br#"{"id":1,"connect":{}}"#);
    bytes.extend(frame(TEXT, br#"{"id":2,"subscribe":{"channel":"news"}}"#));
    let (read, unread) = bytes.split_at(40);
    client.write(unread);
    let adoption = Adoption {
        wire: Wire::WebSocketJson,
        inflates: false,
        response: Vec::new(),
        request: None,
        read: read.to_vec(),
        headers: None,
        tls: None,
        admitted: rig.node.admit(None, &[]).expect("there is room"),
    };
    rig.runtime.block_on(rig.node.adopt(stream, adoption)).expect("the node runs");
    let lines = client.read_lines(2);
    assert!(lines[1].starts_with(r#"{"id":2,"subscribe":"#), "{lines:?}");
    assert_eq!(rig.counters()[0].adopted, 1);
}

#[test]
fn a_drained_node_closes_its_sessions_with_3001_and_refuses_new_ones() {
    let rig = Rig::simple();
    let mut client = Client::session(rig.address());
    let reading = std::thread::spawn(move || {
        let code = client.read_close();
        assert!(client.read_frame().is_none());
        code
    });
    assert_eq!(rig.runtime.block_on(rig.node.drain(all_at_once(PATIENCE))), Drained::Complete);
    assert_eq!(reading.join().expect("closed"), 3001);
    assert!(TcpStream::connect(rig.address()).is_err(), "the listeners are closed");
    assert!(rig.counters().is_empty(), "the threads have ended");
}

#[test]
fn a_drain_waits_no_longer_than_its_timeout() {
    let rig = Rig::simple();
    // The client never closes its connection.
    let client = Client::session(rig.address());
    let drained = rig.runtime.block_on(rig.node.drain(all_at_once(std::time::Duration::from_millis(50))));
    assert_eq!(drained, Drained::Late { sessions: 1 });
    drop(client);
}

#[test]
fn an_upgrade_on_a_node_that_drains_gets_a_503() {
    let rig = Rig::simple();
    let mut late = Client::connect(rig.address());
    // Prevents the drain from completing.
    let client = Client::session(rig.address());
    rig.wait_for("both to be accepted", 2, |net| net.accepted);
    let node = rig.node.clone();
    let draining = std::thread::spawn(move || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime")
            .block_on(node.drain(all_at_once(PATIENCE)))
    });
    let mut reader = client;
    assert_eq!(reader.read_close(), 3001);
    late.write(upgrade_request("").as_bytes());
    assert!(late.read_to_end().starts_with("HTTP/1.1 503 "));
    drop(reader);
    assert_eq!(draining.join().expect("it ends"), Drained::Complete);
}

#[test]
fn requests_beyond_the_inbox_wait_for_their_turn() {
    const REQUESTS: usize = 200;
    let rig = Rig::start(NodeNetOptions { inbox_requests: 1, ..net_options() }, engine_options());
    let answered = rig.runtime.block_on(async {
        let tasks: Vec<_> = (0..REQUESTS)
            .map(|_| {
                let node = rig.node.clone();
                tokio::spawn(async move { node.ask_owner("news", ApiRequest::Channels).await })
            })
            .collect();
        let mut answered = 0;
        for task in tasks {
            let answer = task.await.expect("no task panics").expect("the node runs");
            assert!(matches!(answer, Ok(ApiAnswer::Channels(_))), "{answer:?}");
            answered += 1;
        }
        answered
    });
    assert_eq!(answered, REQUESTS);
}

#[test]
fn operators_are_handed_over_when_others_are_refused() {
    let net = NodeNetOptions { operators_paths: vec!["/health".to_owned()], handed_over_reserved: 1, ..net_options() };
    let mut rig = Rig::start(net, engine_options());
    let mut other = Client::connect(rig.address());
    other.write(b"GET /elsewhere HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(other.read_to_end().starts_with("HTTP/1.1 503 "));
    let mut operator = Client::connect(rig.address());
    operator.write(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n");
    let handed_over = rig.runtime.block_on(rig.handed_over.recv()).expect("the node runs");
    assert!(handed_over.head.starts_with(b"GET /health "));
    assert_eq!(rig.count(|net| net.refused[RefusalReason::ControlBusy.index()]), 1);
}

on_io_uring![
    a_request_for_another_path_is_handed_over_with_every_byte,
    a_full_control_inbox_is_answered_with_an_error,
    a_websocket_is_adopted_with_what_was_read_behind_its_request,
    a_drained_node_closes_its_sessions_with_3001_and_refuses_new_ones,
    a_drain_waits_no_longer_than_its_timeout,
    an_upgrade_on_a_node_that_drains_gets_a_503,
    requests_beyond_the_inbox_wait_for_their_turn,
    operators_are_handed_over_when_others_are_refused,
];
