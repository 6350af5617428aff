//! Handshakes, refusals and deadlines.

use dunlin_net::RefusalReason;

use dunlin::node::NodeNetOptions;

use crate::node::{
    client::{Client, TEXT, frame, upgrade_request},
    rig::{Rig, engine_options, net_options},
};

#[test]
fn a_handshake_is_read_in_two_pieces_at_any_split() {
    let rig = Rig::simple();
    let request = upgrade_request("") + "";
    let connect = frame(TEXT, br#"{"id":1,"connect":{}}"#);
    let bytes = [request.as_bytes(), &connect].concat();
    let mut read_bytes = 0;
    for cut in 1..bytes.len() {
        let (front, back) = bytes.split_at(cut);
        let mut client = Client::connect(rig.address());
        client.write(front);
        read_bytes += front.len() as u64;
        rig.wait_for("the first piece to be read", read_bytes, |net| net.read_bytes);
        client.write(back);
        read_bytes += back.len() as u64;
        assert!(client.read_head().starts_with("HTTP/1.1 101 "), "cut at {cut}");
        assert!(client.read_line().starts_with(r#"{"id":1,"connect":"#), "cut at {cut}");
    }
}

#[test]
fn frames_right_behind_the_handshake_are_received() {
    let rig = Rig::simple();
    let mut client = Client::connect(rig.address());
    let mut bytes = upgrade_request("Sec-WebSocket-Protocol: centrifuge-json\r\n").into_bytes();
    bytes.extend(frame(TEXT, br#"{"id":1,"connect":{}}"#));
    bytes.extend(frame(TEXT, br#"{"id":2,"subscribe":{"channel":"news"}}"#));
    client.write(&bytes);
    assert!(client.read_head().contains("Sec-WebSocket-Protocol: centrifuge-json\r\n"));
    let lines = client.read_lines(2);
    assert!(
        lines[0].starts_with(r#"{"id":1,"connect":"#) && lines[1].starts_with(r#"{"id":2,"subscribe":"#),
        "{lines:?}"
    );
}

#[test]
fn refused_handshakes_get_a_status_and_are_closed() {
    let rig = Rig::simple();
    let plain = |line: &str, fields: &str| format!("{line}\r\nHost: dunlin.example\r\n{fields}\r\n");
    let cases = [
        ("403", upgrade_request("Origin: https://evil.example\r\n"), RefusalReason::Origin),
        ("405", plain("POST /connection/websocket HTTP/1.1", ""), RefusalReason::Handshake),
        ("400", plain("GET /connection/websocket HTTP/1.1", ""), RefusalReason::Handshake),
        ("400", "\u{16}\u{3}\u{1} is how TLS begins".to_owned(), RefusalReason::Malformed),
        ("400", plain("GET / HTTP/1.1", "no colon\r\n"), RefusalReason::Malformed),
        ("505", plain("GET / HTTP/3.0", ""), RefusalReason::Malformed),
        ("431", plain("GET / HTTP/1.1", &"X: y\r\n".repeat(64)), RefusalReason::HeadTooLarge),
        ("431", plain("GET / HTTP/1.1", &format!("X: {}\r\n", "y".repeat(16_384))), RefusalReason::HeadTooLarge),
        ("414", plain(&format!("GET /{} HTTP/1.1", "a".repeat(4_096)), ""), RefusalReason::RequestLineTooLong),
    ];
    let mut expected = [0; RefusalReason::ALL.len()];
    for (status, request, reason) in cases {
        let mut client = Client::connect(rig.address());
        client.write(request.as_bytes());
        let response = client.read_to_end();
        assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{request:.60}: {response}");
        assert!(response.contains("\r\nConnection: close"), "{response}");
        expected[reason.index()] += 1;
    }
    assert_eq!(rig.counters()[0].refused, expected);
}

#[test]
fn a_slow_head_is_answered_with_408() {
    let rig = Rig::start(NodeNetOptions { head_timeout_ms: 50, ..net_options() }, engine_options());
    let mut silent = Client::connect(rig.address());
    let mut slow = Client::connect(rig.address());
    // Sends single bytes until the node closes the connection. The deadline counts from the accept, regardless of these
    // bytes.
    let dripping = std::thread::spawn(move || {
        let request = upgrade_request("");
        for byte in request.bytes().cycle() {
            if byte == b'\n' || slow.try_write(&[byte]).is_err() {
                break;
            }
        }
        slow.read_to_end()
    });
    assert!(silent.read_to_end().starts_with("HTTP/1.1 408 "));
    assert!(dripping.join().expect("it ends").starts_with("HTTP/1.1 408 "));
    assert_eq!(rig.count(|net| net.refused[RefusalReason::HeadTimeout.index()]), 2);
}

#[test]
fn a_refused_client_is_disconnected() {
    let rig = Rig::start(NodeNetOptions { linger_timeout_ms: 50, ..net_options() }, engine_options());
    let mut client = Client::connect(rig.address());
    client.write(b"GET /connection/websocket HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(client.read_head().starts_with("HTTP/1.1 400 "));
    crate::node::rig::wait_until("the node to hang up", || rig.count(|net| net.connections) == 0);
}

#[test]
fn one_session_more_than_allowed_gets_a_503() {
    let rig = Rig::start(NodeNetOptions { sessions_max: 2, shard_count: 2, ..net_options() }, engine_options());
    let first = Client::session(rig.address());
    let _second = Client::session(rig.address());
    let mut third = Client::connect(rig.address());
    third.write(upgrade_request("").as_bytes());
    let response = third.read_to_end();
    assert!(response.starts_with("HTTP/1.1 503 ") && response.contains("\r\nRetry-After: "), "{response}");
    drop(first);
    crate::node::rig::wait_until("the first to be gone", || rig.count(|net| net.sessions) == 1);
    let _fourth = Client::session(rig.address());
}

#[test]
fn a_refused_client_that_keeps_sending_is_reset() {
    let rig = Rig::start(NodeNetOptions { linger_timeout_ms: 3_600_000, ..net_options() }, engine_options());
    let mut client = Client::connect(rig.address());
    client.write(b"GET /connection/websocket HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(client.read_head().starts_with("HTTP/1.1 400 "));
    let chunk = vec![b'x'; 16_384];
    crate::node::rig::wait_until("the node to have had enough", || client.try_write(&chunk).is_err());
    assert_eq!(rig.count(|net| net.connections), 0);
    // At most 256 KiB are read. Bytes in the kernel's buffer are not read.
    let read = rig.count(|net| net.read_bytes);
    assert!((256 * 1024..=256 * 1024 + 2 * 16_384).contains(&read), "{read}");
}

#[test]
fn an_address_with_too_many_unfinished_handshakes_loses_its_oldest() {
    let net = NodeNetOptions { pending_address_connections_max: 3, head_timeout_ms: 3_600_000, ..net_options() };
    let rig = Rig::start(net, engine_options());
    // Sessions do not count toward the limit.
    let _sessions: Vec<Client> = (0..5).map(|_| Client::session(rig.address())).collect();
    let mut silent: Vec<Client> = Vec::new();
    for number in 1..=3 {
        silent.push(Client::connect(rig.address()));
        crate::node::rig::wait_until("it to be accepted", || rig.count(|net| net.connections) == 5 + number);
    }
    let mut fourth = Client::connect(rig.address());
    assert!(silent[0].read_to_end().starts_with("HTTP/1.1 429 "));
    assert_eq!(rig.count(|net| net.refused[RefusalReason::AddressPending.index()]), 1);
    for client in silent.iter_mut().skip(1).chain([&mut fourth]) {
        client.write(upgrade_request("").as_bytes());
        assert!(client.read_head().starts_with("HTTP/1.1 101 "));
    }
}

#[test]
fn lingering_refused_connections_are_closed_for_new_ones_of_their_address() {
    let net = NodeNetOptions { pending_address_connections_max: 2, linger_timeout_ms: 3_600_000, ..net_options() };
    let rig = Rig::start(net, engine_options());
    let mut refused = Vec::new();
    for _ in 0..20 {
        let mut client = Client::connect(rig.address());
        client.write(b"GET /connection/websocket HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(client.read_head().starts_with("HTTP/1.1 400 "));
        refused.push(client);
    }
    assert_eq!(rig.count(|net| net.connections), 2);
    let _session = Client::session(rig.address());
}

on_io_uring![
    a_handshake_is_read_in_two_pieces_at_any_split,
    frames_right_behind_the_handshake_are_received,
    refused_handshakes_get_a_status_and_are_closed,
    a_slow_head_is_answered_with_408,
    a_refused_client_is_disconnected,
    one_session_more_than_allowed_gets_a_503,
    a_refused_client_that_keeps_sending_is_reset,
    an_address_with_too_many_unfinished_handshakes_loses_its_oldest,
    lingering_refused_connections_are_closed_for_new_ones_of_their_address,
];
