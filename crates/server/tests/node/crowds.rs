//! Many clients: admission, placement on shards, and drain.

use std::{net::TcpStream, time::Duration};

use dunlin_config::AdmissionOptions;
use dunlin_net::{RefusalReason, TrustedProxies};

use dunlin::node::{DrainPlan, Drained, NodeNetOptions};

use crate::node::{
    client::{CLOSE, Client, TEXT, upgrade_request},
    rig::{PATIENCE, Rig, engine_options, net_options, wait_until},
};

fn rig(admission: AdmissionOptions) -> Rig {
    Rig::start(NodeNetOptions { admission, shard_count: 2, ..net_options() }, engine_options())
}

/// Sends a handshake with these additional fields. Returns the head of the response, and the client.
fn knock(rig: &Rig, fields: &str) -> (String, Client) {
    let mut client = Client::connect(rig.address());
    client.write(upgrade_request(fields).as_bytes());
    (client.read_head(), client)
}

fn refused(rig: &Rig, reason: RefusalReason) -> u64 {
    rig.count(|net| net.refused[reason.index()])
}

#[test]
fn handshakes_past_the_rate_get_a_503_with_retry_after() {
    let rig = rig(AdmissionOptions { handshakes_per_second: 1, ..AdmissionOptions::default() });
    let (first, _client) = knock(&rig, "");
    assert!(first.starts_with("HTTP/1.1 101 "), "{first}");
    let mut answer = String::new();
    // One handshake per second is admitted, so a slow machine needs several attempts.
    wait_until("a refusal", || {
        answer = knock(&rig, "").0;
        answer.starts_with("HTTP/1.1 503 ")
    });
    let seconds = answer.lines().find_map(|line| line.strip_prefix("Retry-After: ")?.parse().ok());
    assert!(seconds.is_some_and(|seconds: u32| (1..=5).contains(&seconds)), "{answer}");
    assert!(refused(&rig, RefusalReason::HandshakeRate) >= 1);
    // Only handshakes are counted.
    let mut other = Client::connect(rig.address());
    other.write(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n");
    rig.wait_for("it to be handed over", 1, |net| net.handed_over);
}

#[test]
fn sessions_per_address_are_limited_despite_forged_headers() {
    let rig = rig(AdmissionOptions { source_sessions_max: 2, ..AdmissionOptions::default() });
    let (_, first) = knock(&rig, "");
    let (_, _second) = knock(&rig, "X-Forwarded-For: 198.51.100.1\r\n");
    let (third, _) = knock(&rig, "X-Forwarded-For: 198.51.100.2\r\n");
    assert!(third.starts_with("HTTP/1.1 429 ") && third.contains("\r\nRetry-After: "), "{third}");
    assert_eq!(refused(&rig, RefusalReason::SourceSessions), 1);
    drop(first);
    rig.wait_for("two sessions to be left", 1, |net| u64::from(net.sessions < 2));
    wait_until("a place", || knock(&rig, "").0.starts_with("HTTP/1.1 101 "));
}

#[test]
fn behind_a_proxy_clients_are_distinguished_by_the_forwarded_address() {
    let trusted_proxies = TrustedProxies::parse(["127.0.0.0/8"]).expect("a network");
    let rig = rig(AdmissionOptions { source_sessions_max: 1, trusted_proxies, ..AdmissionOptions::default() });
    let (one, _client) = knock(&rig, "X-Forwarded-For: 198.51.100.1\r\n");
    let (other, _other_client) = knock(&rig, "X-Forwarded-For: 198.51.100.2\r\n");
    assert!(one.starts_with("HTTP/1.1 101 ") && other.starts_with("HTTP/1.1 101 "), "{one}{other}");
    for fields in ["X-Forwarded-For: 198.51.100.1\r\n", "X-Forwarded-For: 203.0.113.5, 198.51.100.1\r\n"] {
        let (again, _) = knock(&rig, fields);
        assert!(again.starts_with("HTTP/1.1 429 "), "{fields}: {again}");
    }
}

#[test]
fn new_sessions_are_refused_over_the_memory_limit() {
    let rig = rig(AdmissionOptions::default());
    let (_, mut there) = knock(&rig, "");
    rig.node.set_over_memory(true);
    let (late, _) = knock(&rig, "");
    assert!(late.starts_with("HTTP/1.1 503 "), "{late}");
    assert_eq!(refused(&rig, RefusalReason::Memory), 1);
    there.send(r#"{"id":1,"connect":{}}"#);
    assert!(there.read_line().starts_with(r#"{"id":1,"connect":"#), "existing sessions are served");
    rig.node.set_over_memory(false);
    assert!(knock(&rig, "").0.starts_with("HTTP/1.1 101 "));
}

#[test]
fn a_connection_to_a_full_shard_moves_to_the_emptiest() {
    let net = NodeNetOptions { shard_count: 2, shard_imbalance_max: 4, ..net_options() };
    let rig = Rig::start(net, engine_options());
    let sessions = || rig.counters().iter().map(|net| net.sessions).collect::<Vec<_>>();
    let mut by_shard: [Vec<Client>; 2] = [Vec::new(), Vec::new()];
    for _ in 0..40 {
        let before = sessions();
        let client = Client::session(rig.address());
        by_shard[usize::from(sessions()[1] > before[1])].push(client);
    }
    // All sessions of one shard end. The kernel's hash alone would not restore the balance.
    let [staying, going] = by_shard;
    drop(going);
    wait_until("one shard to be empty", || sessions()[1] == 0);
    let coming: Vec<Client> = (0..staying.len()).map(|_| Client::session(rig.address())).collect();
    let now = sessions();
    assert_eq!(now.iter().sum::<u64>(), (staying.len() + coming.len()) as u64);
    assert!(now[0].abs_diff(now[1]) <= 4, "{now:?}");
    assert!(rig.count(|net| net.placed) > 0);
}

#[test]
fn a_draining_node_serves_its_remaining_sessions() {
    const CLIENTS: usize = 20;
    let rig = Rig::start(NodeNetOptions { shard_count: 2, ..net_options() }, engine_options());
    let channels = ["news".to_owned()];
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| Client::subscribed(rig.address(), &channels)).collect();
    let node = rig.node.clone();
    // At one session per second, most of the sessions stay open during the test.
    let plan = DrainPlan { timeout: Duration::from_secs(40), sessions_per_second: 1 };
    let draining = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(node.drain(plan))
    });
    wait_until("the listeners to close", || TcpStream::connect(rig.address()).is_err());
    rig.publish("news", r#""still there""#).expect("it is published");
    let frames: Vec<_> = clients.iter_mut().map(|client| client.read_frame().expect("a frame")).collect();
    let (answered, closed): (Vec<_>, Vec<_>) = frames.iter().partition(|(opcode, _)| *opcode == TEXT);
    assert!(closed.iter().all(|(opcode, code)| *opcode == CLOSE && code[..2] == 3001_u16.to_be_bytes()), "{closed:?}");
    assert!(!closed.is_empty() && answered.len() > CLIENTS / 2, "{} served, {} closed", answered.len(), closed.len());
    drop(clients);
    assert_eq!(draining.join().expect("it ends"), Drained::Complete);
}

#[test]
fn a_drained_session_has_received_all_earlier_publications() {
    let rig = Rig::simple();
    let mut client = Client::subscribed(rig.address(), &["news".to_owned()]);
    for number in 0..100 {
        rig.publish("news", &number.to_string()).expect("it is published");
    }
    let node = rig.node.clone();
    let plan = DrainPlan { timeout: PATIENCE, sessions_per_second: 0 };
    let draining = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(node.drain(plan))
    });
    let mut lines = Vec::new();
    loop {
        let (opcode, payload) = client.read_frame().expect("a frame");
        if opcode == CLOSE {
            break;
        }
        lines.extend(String::from_utf8(payload).expect("text").lines().map(str::to_owned));
    }
    assert_eq!(lines.len(), 100);
    drop(client);
    assert_eq!(draining.join().expect("it ends"), Drained::Complete);
}

#[test]
fn forwarded_addresses_count_wherever_the_head_is_cut() {
    let trusted_proxies = TrustedProxies::parse(["127.0.0.0/8"]).expect("a network");
    let rig = rig(AdmissionOptions { source_sessions_max: 1, trusted_proxies, ..AdmissionOptions::default() });
    let (_, _there) = knock(&rig, "X-Forwarded-For: 198.51.100.1\r\n");
    let request = upgrade_request("X-Forwarded-For: 198.51.100.1\r\n");
    let field = request.find("X-Forwarded-For").expect("it is there");
    // Cuts before the field, in its name, in the address, after the address, and before the last byte.
    for cut in [1, field, field + 4, field + 22, field + 31, request.len() - 1] {
        let read = rig.count(|net| net.read_bytes);
        let (front, back) = request.as_bytes().split_at(cut);
        let mut client = Client::connect(rig.address());
        client.write(front);
        rig.wait_for("the first piece to be read", read + front.len() as u64, |net| net.read_bytes);
        client.write(back);
        let answer = client.read_head();
        assert!(answer.starts_with("HTTP/1.1 429 "), "cut at {cut}: {answer}");
    }
    let (other, _other) = knock(&rig, "X-Forwarded-For: 198.51.100.2\r\n");
    assert!(other.starts_with("HTTP/1.1 101 "), "{other}");
}

on_io_uring![
    handshakes_past_the_rate_get_a_503_with_retry_after,
    sessions_per_address_are_limited_despite_forged_headers,
    behind_a_proxy_clients_are_distinguished_by_the_forwarded_address,
    new_sessions_are_refused_over_the_memory_limit,
    a_connection_to_a_full_shard_moves_to_the_emptiest,
    a_draining_node_serves_its_remaining_sessions,
    a_drained_session_has_received_all_earlier_publications,
    forwarded_addresses_count_wherever_the_head_is_cut,
];
