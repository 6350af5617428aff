//! Sessions: order, pauses, full sockets, closing.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use dunlin_engine::api::{ApiAnswer, ApiRequest, SessionFilter};
use dunlin_protocol::Disconnect;
use dunlin_websocket::WebSocketLimits;

use crate::node::{
    client::{CLOSE, Client, PING, PONG, TEXT, frame},
    rig::{Rig, engine_options, net_options, wait_until},
};

#[test]
fn pauses_keep_the_order_of_commands() {
    const SUBSCRIPTIONS: usize = 500;
    let mut engine = engine_options();
    engine.client.channel_limit = SUBSCRIPTIONS;
    let rig = Rig::start(net_options(), engine);
    let mut client = Client::open(rig.address());
    // Every command pauses the session until its token is verified. All commands arrive at once, and take more than one
    // read.
    let mut bytes = frame(TEXT, br#"{"id":1,"connect":{"token":"user:ann"}}"#);
    for index in 0..SUBSCRIPTIONS {
        let command =
            format!(r#"{{"id":{},"subscribe":{{"channel":"$c{index}","token":"channel:$c{index}"}}}}"#, index + 2);
        bytes.extend(frame(TEXT, command.as_bytes()));
    }
    assert!(bytes.len() > 2 * net_options().read_bytes_per_turn);
    client.write(&bytes);
    let lines = client.read_lines(SUBSCRIPTIONS + 1);
    assert!(lines[0].starts_with(r#"{"id":1,"connect":"#), "{}", lines[0]);
    for (line, id) in lines[1..].iter().zip(2..) {
        assert!(line.starts_with(&format!(r#"{{"id":{id},"subscribe":"#)), "{line} is not the reply to {id}");
    }
}

#[test]
fn a_full_socket_delays_no_others_and_loses_nothing() {
    const PUBLICATIONS: usize = 400;
    let mut engine = engine_options();
    engine.client.queue_bytes_max = 64 << 20;
    let rig = Rig::start(net_options(), engine);
    let channels = ["news".to_owned()];
    let mut slow = Client::subscribed(rig.address(), &channels);
    let mut quick = Client::subscribed(rig.address(), &channels);
    let filling = "x".repeat(32_000);
    for index in 0..PUBLICATIONS {
        rig.publish("news", &format!(r#"{{"n":{index},"f":"{filling}"}}"#)).expect("published");
    }
    let check = |client: &mut Client| {
        for (line, index) in client.read_lines(PUBLICATIONS).iter().zip(0..) {
            assert!(line.contains(&format!(r#"{{"n":{index},"f":"#)), "{line:.80} is not publication {index}");
        }
    };
    check(&mut quick);
    wait_until("the slow one's socket to be full", || rig.count(|net| net.blocked_writes) > 0);
    check(&mut slow);
    slow.send(r#"{"id":9,"unsubscribe":{"channel":"news"}}"#);
    assert!(slow.read_line().starts_with(r#"{"id":9,"unsubscribe":"#));
}

#[test]
fn a_client_that_closes_gets_its_code_back() {
    let rig = Rig::simple();
    let mut client = Client::session(rig.address());
    client.write(&frame(CLOSE, &1000_u16.to_be_bytes()));
    assert_eq!(client.read_close(), 1000);
    assert!(client.read_frame().is_none());
    wait_until("the session to be gone", || rig.count(|net| net.connections + net.sessions) == 0);
}

#[test]
fn a_disconnected_client_reads_the_close_frame_and_the_end() {
    let rig = Rig::simple();
    let mut client = Client::session(rig.address());
    let request = ApiRequest::Disconnect {
        user: "".into(),
        only: SessionFilter::default(),
        whitelist: Vec::new(),
        disconnect: Disconnect::FORCE_NO_RECONNECT,
    };
    let answers = rig.runtime.block_on(rig.node.ask_all(request));
    assert!(matches!(answers.as_slice(), [Ok(ApiAnswer::Done { sessions: 1 })]), "{answers:?}");
    assert_eq!(client.read_close(), 3503);
    assert!(client.read_frame().is_none(), "the server has ended its side");
    // The client may still send a close frame, and the server closes the connection.
    client.write(&frame(CLOSE, &3503_u16.to_be_bytes()));
    wait_until("the session to be gone", || rig.count(|net| net.connections + net.sessions) == 0);
}

#[test]
fn an_abrupt_disconnect_leaves_no_session() {
    let rig = Rig::simple();
    let mut half_closed = Client::session(rig.address());
    half_closed.finish();
    assert!(half_closed.read_frame().is_none());
    drop(Client::session(rig.address()));
    wait_until("both to be gone", || rig.count(|net| net.connections + net.sessions) == 0);
    let reports = rig.runtime.block_on(rig.node.report());
    assert_eq!(reports[0].survey.sessions, 0);
    assert_eq!(reports[0].net.upgraded, 2);
}

#[test]
fn pings_are_answered_in_order_with_replies() {
    let rig = Rig::simple();
    let mut client = Client::session(rig.address());
    client.write(&frame(PING, b"are you there?"));
    assert_eq!(client.read_frame(), Some((PONG, b"are you there?".to_vec())));
}

#[test]
fn a_ping_and_a_connect_with_subscriptions_in_one_segment_are_both_answered() {
    for shard_count in [1, 2] {
        let mut engine = engine_options();
        engine.without_namespace.allow_subscribe_for_client = true;
        engine.without_namespace.allow_subscribe_for_anonymous = true;
        let rig = Rig::start(dunlin::node::NodeNetOptions { shard_count, ..net_options() }, engine);
        let mut clients = Vec::new();
        for number in 0..50 {
            let mut client = Client::open(rig.address());
            let mut segment = frame(PING, b"first");
            let connect = format!(r#"{{"id":1,"connect":{{"subs":{{"a{number}":{{}},"b{number}":{{}}}}}}}}"#);
            segment.extend(frame(TEXT, connect.as_bytes()));
            segment.extend(frame(PING, b"last"));
            client.write(&segment);
            let mut frames: Vec<(u8, Vec<u8>)> = (0..3).filter_map(|_| client.read_frame()).collect();
            frames.sort_unstable();
            let [(TEXT, reply), (PONG, first), (PONG, last)] = frames.as_slice() else { panic!("{frames:?}") };
            let reply = String::from_utf8_lossy(reply);
            assert!(reply.starts_with(r#"{"id":1,"connect":{"#) && reply.contains(&format!("b{number}")), "{reply}");
            assert_eq!((first.as_slice(), last.as_slice()), (&b"first"[..], &b"last"[..]));
            clients.push(client);
        }
        assert_eq!(rig.count(|net| net.sessions), 50, "no session was closed");
    }
}

#[test]
fn invalid_frames_close_the_session_with_their_code() {
    let limits = WebSocketLimits { unfinished_age_max_ms: 50, ..WebSocketLimits::default() };
    let rig = Rig::start(dunlin::node::NodeNetOptions { websocket_limits: limits, ..net_options() }, engine_options());
    let mut masked_not = frame(TEXT, b"{}");
    masked_not[1] &= 0x7f;
    let unfinished = frame(TEXT, b"{}")[..5].to_vec();
    let cases = [
        (1002, [masked_not.clone(), masked_not].concat()),
        (1007, frame(TEXT, &[0xff])),
        (1009, vec![0x81, 0xff, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0]),
        (1008, unfinished),
    ];
    let count = cases.len() as u64;
    for (code, bytes) in cases {
        let mut client = Client::session(rig.address());
        client.write(&bytes);
        assert_eq!(client.read_close(), code);
        assert!(client.read_frame().is_none());
    }
    let reports = rig.runtime.block_on(rig.node.report());
    assert_eq!(reports[0].counters.violations, count, "each is reported once");
}

#[test]
fn a_client_that_floods_does_not_starve_others() {
    let has_enough = Arc::new(AtomicBool::new(false));
    let stops = Arc::clone(&has_enough);
    let rig = Rig::simple();
    let address = rig.address();
    let talking = std::thread::spawn(move || {
        let mut client = Client::session(address);
        let pongs = frame(10, b"unasked").repeat(5_000);
        while !stops.load(Ordering::Relaxed) {
            client.write(&pongs);
        }
    });
    let mut client = Client::session(address);
    rig.wait_for("the client's bytes to be read", 1 << 20, |net| net.read_bytes);
    for id in 2..200 {
        client.send(&format!(r#"{{"id":{id},"publish":{{"channel":"news","data":{{}}}}}}"#));
        let reply = client.read_line();
        assert!(reply.starts_with(&format!(r#"{{"id":{id},"#)), "{reply}");
    }
    has_enough.store(true, Ordering::Relaxed);
    talking.join().expect("the talker was never cut off");
}

/// After a violation, the server reads from the session only for a limited time and a limited number of bytes, even if
/// the client keeps sending or does not close its connection.
#[test]
fn bytes_read_after_a_close_are_limited() {
    let violate = |rig: &Rig| {
        let mut client = Client::session(rig.address());
        client.write(&[0x81, 0x02, b'{', b'}']);
        assert_eq!(client.read_close(), 1002);
        assert!(client.read_frame().is_none(), "the server has ended its side");
        client
    };
    let mut engine = engine_options();
    engine.client.close_timeout_ms = 3_600_000;
    let net = |linger_timeout_ms| dunlin::node::NodeNetOptions { linger_timeout_ms, ..net_options() };
    let rig = Rig::start(net(50), engine.clone());
    let _stays = violate(&rig);
    wait_until("the node to hang up", || rig.count(|net| net.connections + net.sessions) == 0);

    let rig = Rig::start(net(3_600_000), engine);
    let mut talks_on = violate(&rig);
    let before = rig.count(|net| net.read_bytes);
    let chunk = vec![b'x'; 16_384];
    wait_until("the node to have had enough", || talks_on.try_write(&chunk).is_err());
    assert_eq!(rig.count(|net| net.connections + net.sessions), 0);
    let read = rig.count(|net| net.read_bytes) - before;
    assert!((256 * 1024..=256 * 1024 + 2 * 16_384).contains(&read), "{read}");
}

on_io_uring![
    pauses_keep_the_order_of_commands,
    a_full_socket_delays_no_others_and_loses_nothing,
    a_client_that_closes_gets_its_code_back,
    a_disconnected_client_reads_the_close_frame_and_the_end,
    an_abrupt_disconnect_leaves_no_session,
    pings_are_answered_in_order_with_replies,
    a_ping_and_a_connect_with_subscriptions_in_one_segment_are_both_answered,
    invalid_frames_close_the_session_with_their_code,
    a_client_that_floods_does_not_starve_others,
    bytes_read_after_a_close_are_limited,
];
