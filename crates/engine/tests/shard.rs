//! Behavior that scripts cannot express: exact times, late events, and the amount of state that a shard keeps.

use dunlin_engine::{Effect, Effects, Event, Options, SessionKey, ShardIndex, event::ConnectionClaims, owner_of};
use dunlin_protocol::Encoding;

use crate::node::{self, Node, options};

fn permissive() -> Options {
    let mut options = Options::default();
    options::permissive(&mut options);
    options
}

fn publish(node: &mut Node, channel: &str) {
    let request = serde_json::json!({"publish": {"channel": channel, "data": 1}});
    node.ask_api(&request);
}

/// The time until the session's next ping, in microseconds.
fn time_to_ping(node: &mut Node, name: &str) -> u64 {
    let start_us = node.now.mono_us;
    node.client(name).received.clear();
    while node.client(name).received.is_empty() {
        let due_us = node.shards[0].next_deadline_us().expect("a ping to come");
        node.step_to(due_us);
        node.handle(0, Event::Woke);
    }
    node.now.mono_us - start_us
}

#[test]
fn the_first_ping_comes_in_the_second_half_of_the_interval_and_the_next_after_a_full_one() {
    let mut options = permissive();
    options.client.ping_interval_ms = 10_000;
    options.client.pong_timeout_ms = 3_000;
    let mut moments = Vec::new();
    let mut node = Node::new(1, options);
    for number in 0..64 {
        let name = format!("client {number}");
        node.open(&name, Encoding::Json, 0);
        node.receive(&name, br#"{"id":1,"connect":{}}"#.to_vec());
        let first_us = time_to_ping(&mut node, &name);
        assert!((5_000_000..10_000_000).contains(&first_us), "{first_us}");
        moments.push(first_us);
        node.receive(&name, b"{}".to_vec());
        assert_eq!(time_to_ping(&mut node, &name), 10_000_000);
        let (shard, session) = node.client(&name).place;
        node.client(&name).is_gone = true;
        node.handle(shard, Event::Gone { session });
    }
    moments.sort_unstable();
    moments.dedup();
    assert_eq!(moments.len(), 64, "each session has its own time");
}

#[test]
fn a_pong_at_the_timeout_is_too_late() {
    for (late_us, is_in_time) in [(2_999_999, true), (3_000_000, false)] {
        let mut options = permissive();
        options.client.ping_interval_ms = 10_000;
        options.client.pong_timeout_ms = 3_000;
        let mut node = Node::new(1, options);
        node.open("a", Encoding::Protobuf, 0);
        // {id: 1, connect: {}}
        node.receive("a", b"\x04\x08\x01\x22\x00".to_vec());
        time_to_ping(&mut node, "a");
        node.client("a").received.clear();
        node.step_to(node.now.mono_us + late_us);
        node.handle(0, Event::Woke);
        node.receive("a", b"\x00".to_vec());
        node.step_to(node.now.mono_us + 10_000_000);
        node.handle(0, Event::Woke);
        let received = &node.client("a").received;
        assert_eq!(received.starts_with(b"\x82\x01\x00"), is_in_time, "after {late_us} µs came {received:?}");
        assert_eq!(received.starts_with(b"\x88\x09\x0b\xc4no pong"), !is_in_time, "after {late_us} µs: {received:?}");
    }
}

#[test]
fn late_events_of_a_session_do_not_affect_the_next_at_its_index() {
    let mut node = Node::new(1, permissive());
    let (first, second) = (SessionKey { index: 0, generation: 1 }, SessionKey { index: 0, generation: 2 });
    let mut effects = Effects::default();
    let (now, shard) = (node.now, &mut node.shards[0]);
    shard.handle(
        now,
        Event::Opened { session: first, wire: Encoding::Json.into(), source: None, address: None },
        &mut effects,
    );
    shard.handle(now, Event::Received { session: first, frame: br#"{"id":1,"connect":{"token":"x"}}"# }, &mut effects);
    shard.handle(now, Event::Gone { session: first }, &mut effects);
    shard.handle(
        now,
        Event::Opened { session: second, wire: Encoding::Json.into(), source: None, address: None },
        &mut effects,
    );
    effects = Effects::default();
    let late = [
        Event::Authenticated { session: first, outcome: Ok(ConnectionClaims::default()) },
        Event::Received { session: first, frame: br#"{"id":1,"connect":{}}"# },
        Event::Pinged { session: first, payload: b"x" },
        Event::CloseReceived { session: first, code: None },
        Event::Violated { session: first, code: 1002, what: "late" },
        Event::Wrote { session: first, bytes: 0 },
        Event::Gone { session: first },
    ];
    for event in late {
        shard.handle(now, event, &mut effects);
    }
    assert!(effects.list.is_empty() && effects.dirty.is_empty(), "{effects:?}");
    assert_eq!(shard.outgoing(first).count(), 0);
    assert!(!shard.has_outgoing(first));
    assert_eq!(shard.holdings()[0], 1, "the second session is still there");
    shard.handle(now, Event::Received { session: second, frame: br#"{"id":1,"connect":{}}"# }, &mut effects);
    assert_eq!(effects.dirty, [second]);
    assert!(shard.outgoing(second).count() == 1);
}

#[test]
fn a_session_that_was_pinged_before_it_connects_is_dirty_once() {
    let mut options = permissive();
    options.without_namespace.allow_subscribe_for_anonymous = true;
    let mut node = Node::new(1, options);
    let session = SessionKey { index: 0, generation: 1 };
    let mut effects = Effects::default();
    let (now, shard) = (node.now, &mut node.shards[0]);
    shard.handle(
        now,
        Event::Opened { session, wire: Encoding::Json.into(), source: None, address: None },
        &mut effects,
    );
    shard.handle(now, Event::Pinged { session, payload: b"1" }, &mut effects);
    let connect = br#"{"id":1,"connect":{"subs":{"a":{},"b":{}}}}"#;
    shard.handle(now, Event::Received { session, frame: connect }, &mut effects);
    assert_eq!(effects.dirty, [session]);
    let offered: usize = shard.outgoing(session).map(<[u8]>::len).sum();
    shard.handle(now, Event::Wrote { session, bytes: offered }, &mut effects);
    assert!(!shard.has_outgoing(session));
}

#[test]
fn queued_frames_are_written_while_owners_answer() {
    let mut options = permissive();
    options.without_namespace.allow_subscribe_for_anonymous = true;
    let mut node = Node::new(2, options);
    let session = SessionKey { index: 0, generation: 1 };
    let mut effects = Effects::default();
    let now = node.now;
    node.shards[0].handle(
        now,
        Event::Opened { session, wire: Encoding::Json.into(), source: None, address: None },
        &mut effects,
    );
    node.shards[0].handle(now, Event::Pinged { session, payload: b"1" }, &mut effects);
    let channel = ["a", "b", "c", "d"].into_iter().find(|name| owner_of(name, 2, node::NODE_SEED).0 == 1);
    let connect =
        format!(r#"{{"id":1,"connect":{{"subs":{{"{}":{{}}}}}}}}"#, channel.expect("one of the other shard's"));
    node.shards[0].handle(now, Event::Received { session, frame: connect.as_bytes() }, &mut effects);
    assert_eq!(std::mem::take(&mut effects.dirty), [session]);
    let offered: Vec<u8> = node.shards[0].outgoing(session).flatten().copied().collect();
    assert_eq!(offered, b"\x8a\x011");
    // Frames queued in the meantime wait for the answer, so the caller is not notified.
    node.shards[0].handle(now, Event::Wrote { session, bytes: 3 }, &mut effects);
    node.shards[0].handle(now, Event::Pinged { session, payload: b"2" }, &mut effects);
    assert!(effects.dirty.is_empty() && !node.shards[0].has_outgoing(session));
    assert_eq!(node.shards[0].outgoing(session).count(), 0);
    let mut answered = Effects::default();
    for effect in std::mem::take(&mut effects.list) {
        if let Effect::Send { to, message } = effect {
            node.shards[usize::from(to.0)].handle(now, Event::Message { from: ShardIndex(0), message }, &mut answered);
        }
    }
    for effect in answered.list {
        let Effect::Send { message, .. } = effect else { continue };
        node.shards[0].handle(now, Event::Message { from: ShardIndex(1), message }, &mut effects);
    }
    assert_eq!(effects.dirty, [session]);
    let offered: Vec<u8> = node.shards[0].outgoing(session).flatten().copied().collect();
    assert!(offered.starts_with(b"\x81") && offered.ends_with(b"\x8a\x012"), "{offered:?}");
}

#[test]
fn a_write_longer_than_offered_closes_only_its_session() {
    let mut node = Node::new(1, permissive());
    let session = SessionKey { index: 0, generation: 1 };
    let mut effects = Effects::default();
    let (now, shard) = (node.now, &mut node.shards[0]);
    shard.handle(
        now,
        Event::Opened { session, wire: Encoding::Json.into(), source: None, address: None },
        &mut effects,
    );
    shard.handle(now, Event::Pinged { session, payload: b"1" }, &mut effects);
    shard.handle(now, Event::Wrote { session, bytes: 4 }, &mut effects);
    assert!(matches!(effects.list.as_slice(), [Effect::HangUp { session: of }] if *of == session), "{effects:?}");
    assert_eq!(shard.counters().writes_beyond_offer, 1);
}

#[test]
fn a_session_is_dirty_once_until_all_is_written() {
    let mut node = Node::new(1, permissive());
    let session = SessionKey { index: 0, generation: 1 };
    let mut effects = Effects::default();
    let (now, shard) = (node.now, &mut node.shards[0]);
    shard.handle(
        now,
        Event::Opened { session, wire: Encoding::Json.into(), source: None, address: None },
        &mut effects,
    );
    for payload in [b"1", b"2", b"3"] {
        shard.handle(now, Event::Pinged { session, payload }, &mut effects);
    }
    assert_eq!(effects.dirty, [session]);
    let offered: usize = shard.outgoing(session).map(<[u8]>::len).sum();
    assert_eq!(offered, 9);
    effects.dirty.clear();
    shard.handle(now, Event::Wrote { session, bytes: 8 }, &mut effects);
    shard.handle(now, Event::Pinged { session, payload: b"4" }, &mut effects);
    assert!(effects.dirty.is_empty(), "its socket is full, and the caller has been notified");
    let offered: Vec<u8> = shard.outgoing(session).flatten().copied().collect();
    assert_eq!(offered, b"3\x8a\x014");
    shard.handle(now, Event::Wrote { session, bytes: 4 }, &mut effects);
    shard.handle(now, Event::Pinged { session, payload: b"5" }, &mut effects);
    assert_eq!(effects.dirty, [session]);
}

#[test]
fn one_write_is_bounded() {
    let mut node = Node::new(1, permissive());
    let session = SessionKey { index: 0, generation: 1 };
    let mut effects = Effects::default();
    let (now, shard) = (node.now, &mut node.shards[0]);
    shard.handle(
        now,
        Event::Opened { session, wire: Encoding::Json.into(), source: None, address: None },
        &mut effects,
    );
    for _ in 0..100 {
        shard.handle(now, Event::Pinged { session, payload: b"x" }, &mut effects);
    }
    assert_eq!(shard.outgoing(session).count(), 64);
}

#[test]
fn a_paused_session_that_is_closed_is_read_from_again() {
    let mut node = Node::new(1, Options::default());
    let session = SessionKey { index: 0, generation: 1 };
    let mut effects = Effects::default();
    let shard = &mut node.shards[0];
    shard.handle(
        node.now,
        Event::Opened { session, wire: Encoding::Json.into(), source: None, address: None },
        &mut effects,
    );
    let frame = br#"{"id":1,"connect":{"token":"x"}}"#;
    shard.handle(node.now, Event::Received { session, frame }, &mut effects);
    assert!(matches!(effects.list[..], [Effect::Pause { .. }, Effect::Authenticate { .. }]), "{effects:?}");
    effects.list.clear();
    shard.handle(node.now, Event::Drain, &mut effects);
    assert!(matches!(effects.list[..], [Effect::Resume { .. }]), "{effects:?}");
}

#[test]
fn a_session_is_closed_once() {
    let mut node = Node::new(1, Options::default());
    let session = SessionKey { index: 0, generation: 1 };
    let mut effects = Effects::default();
    let (now, shard) = (node.now, &mut node.shards[0]);
    shard.handle(
        now,
        Event::Opened { session, wire: Encoding::Json.into(), source: None, address: None },
        &mut effects,
    );
    shard.handle(now, Event::Drain, &mut effects);
    let bytes = shard.outgoing(session).map(<[u8]>::len).sum();
    shard.handle(now, Event::Wrote { session, bytes }, &mut effects);
    assert!(matches!(effects.list[..], [Effect::Finish { .. }]), "{effects:?}");
    shard.handle(now, Event::CloseReceived { session, code: Some(3001) }, &mut effects);
    shard.handle(now, Event::CloseReceived { session, code: Some(3001) }, &mut effects);
    assert!(matches!(effects.list[..], [Effect::Finish { .. }, Effect::HangUp { .. }]), "{effects:?}");
}

#[test]
fn stale_timer_entries_do_not_accumulate() {
    let mut options = permissive();
    options.without_namespace.history_size = 1;
    options.without_namespace.history_ttl_ms = 1_000;
    options.without_namespace.history_meta_ttl_ms = 30 * 24 * 3_600 * 1_000;
    let mut node = Node::new(1, options);
    // Each publication expires before the next one, and the channel's position is kept for 30 days.
    for _ in 0..10_000 {
        publish(&mut node, "news");
        node.wait(1_001);
    }
    // Sessions that open and close long before any of their deadlines.
    for number in 0..10_000 {
        let name = number.to_string();
        node.open(&name, Encoding::Json, 0);
        let (shard, session) = node.client(&name).place;
        node.clients.clear();
        node.handle(shard, Event::Gone { session });
    }
    let entries = node.shards[0].timer_entries();
    assert!(entries <= 130, "{entries} entries for one channel");
}

#[test]
fn infinite_durations_never_expire() {
    let mut options = permissive();
    options.client.ping_interval_ms = u64::MAX;
    options.client.pong_timeout_ms = u64::MAX;
    options.client.stale_close_delay_ms = u64::MAX;
    options.client.close_timeout_ms = u64::MAX;
    options.client.expired_close_delay_ms = u64::MAX;
    options.client.expired_sub_close_delay_ms = u64::MAX;
    options.without_namespace.history_size = 1;
    options.without_namespace.history_ttl_ms = u64::MAX;
    options.without_namespace.history_meta_ttl_ms = u64::MAX;
    let mut node = Node::new(1, options);
    node.open("a", Encoding::Json, 0);
    node.receive("a", br#"{"id":1,"connect":{"token":"user=ann;ttl=1"}}"#.to_vec());
    let subscribe = br#"{"id":2,"subscribe":{"channel":"news","token":"user=ann;channel=news;ttl=1"}}"#;
    node.receive("a", subscribe.to_vec());
    publish(&mut node, "news");
    node.jump(100 * 365 * 24 * 3_600 * 1_000);
    assert_eq!(node.shards[0].holdings(), [1, 1, 1, 1]);
}

#[test]
fn the_same_events_lead_to_the_same_effects() {
    let play = || {
        let mut options = permissive();
        options.without_namespace.presence = true;
        let mut node = Node::new(3, options);
        for number in 0..60_u16 {
            let name = number.to_string();
            node.open(&name, Encoding::Json, number % 3);
            node.receive(&name, format!(r#"{{"id":1,"connect":{{"token":"user=u{}"}}}}"#, number % 7).into_bytes());
            let channel = number % 5;
            node.receive(&name, format!(r#"{{"id":2,"subscribe":{{"channel":"c{channel}"}}}}"#).into_bytes());
            node.receive(&name, format!(r#"{{"id":3,"presence":{{"channel":"c{channel}"}}}}"#).into_bytes());
        }
        node.ask_api(&serde_json::json!({"channels": {}}));
        node.ask_api(&serde_json::json!({"disconnect": {"user": "u3"}}));
        let received = |client: &node::Client| String::from_utf8_lossy(&client.received).into_owned();
        (node.clients.values().map(received).collect::<Vec<_>>(), format!("{:?}", node.answers))
    };
    assert_eq!(play(), play());
}

#[test]
fn a_publication_larger_than_the_queue_is_refused() {
    let mut options = permissive();
    options.client.queue_bytes_max = 1_000;
    let mut node = Node::new(1, options);
    for (bytes, is_taken) in [(1_000, true), (1_001, false)] {
        // The payload includes two quotes.
        let data = "x".repeat(bytes - 2);
        node.ask_api(&serde_json::json!({"publish": {"channel": "news", "data": data}}));
        let answer = node.answers.pop().expect("an answer");
        assert_eq!(answer.is_ok(), is_taken, "{bytes} bytes: {answer:?}");
    }
}

#[test]
fn publications_per_turn_are_limited_to_a_quarter_of_the_queue() {
    let mut options = permissive();
    options.client.queue_frames_max = 40;
    let mut node = Node::new(1, options);
    node.open("a", Encoding::Json, 0);
    node.receive("a", br#"{"id":1,"connect":{}}"#.to_vec());
    node.receive("a", br#"{"id":2,"subscribe":{"channel":"news"}}"#.to_vec());
    node.handle(0, Event::TurnEnded);
    let mut publications = 0;
    while node.shards[0].takes_more() {
        publish(&mut node, "news");
        publications += 1;
    }
    assert_eq!(publications, 11, "ten, and the one that exceeds the limit");
    node.handle(0, Event::TurnEnded);
    assert!(node.shards[0].takes_more());
}

#[test]
fn an_empty_stream_is_not_kept() {
    let mut options = permissive();
    options.without_namespace.history_size = 10;
    options.without_namespace.history_ttl_ms = 3_600_000;
    options.without_namespace.history_meta_ttl_ms = 3_600_000;
    let mut node = Node::new(1, options);
    publish(&mut node, "said");
    for name in ["asked", "said"] {
        node.ask_api(&serde_json::json!({"history": {"channel": name}}));
    }
    let channels = |node: &Node| node.shards[0].holdings()[2];
    assert_eq!(channels(&node), 1, "a channel with publications is kept");
    assert_eq!(node.shards[0].channel_holdings(), [0, 1], "it has no subscribers");
    node.wait(3_600_000);
    assert_eq!(channels(&node), 0);
    assert_eq!(node.shards[0].channel_holdings(), [0, 0]);
}
