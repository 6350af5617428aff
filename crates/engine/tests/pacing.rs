//! Commands wait for the replies to earlier ones, so a client that reads is never closed because of the replies it
//! requested.

use dunlin_engine::{
    Event, Options, Shard, Wire,
    event::{ConnectionClaims, ServerSubscription},
    owner_of,
};
use dunlin_protocol::Encoding;
use serde_json::{Value, json};

use crate::node::{self, Node, options};

const QUEUE_BYTES_MAX: usize = 1 << 20;

fn keeping() -> Options {
    let mut options = Options::default();
    options::permissive(&mut options);
    options.without_namespace.history_size = 100;
    options.without_namespace.history_ttl_ms = 600_000;
    options.without_namespace.history_meta_ttl_ms = 600_000;
    options.without_namespace.force_recovery = true;
    options.client.queue_bytes_max = QUEUE_BYTES_MAX;
    options
}

fn publish(node: &mut Node, channel: &str, count: usize, bytes: usize) {
    let request = json!({"publish": {"channel": channel, "data": "x".repeat(bytes)}});
    (0..count).for_each(|_| node.ask_api(&request));
}

/// The messages that the client received, and whether it was closed.
fn received_data(node: &mut Node, name: &str) -> (Vec<Value>, bool) {
    let came = node::wire::take(Wire::WebSocketJson, &mut node.client(name).received);
    let is_closed = came.iter().any(|came| matches!(came, node::wire::Came::Close(_)));
    let messages = came.into_iter().filter_map(|came| match came {
        node::wire::Came::Message(message) => Some(message),
        _ => None,
    });
    (messages.collect(), is_closed)
}

fn slow(node: &Node) -> u64 {
    node.shards.iter().map(Shard::counters).map(|counters| counters.slow_bytes + counters.slow_frames).sum()
}

fn connect(node: &mut Node, name: &str) {
    node.open(name, Encoding::Json, 0);
    node.receive(name, br#"{"id":1,"connect":{}}"#.to_vec());
    node.client(name).received.clear();
}

/// One frame that recovers `channels` channels from the start.
fn recover_all(channels: usize) -> Vec<u8> {
    let command = |number: usize| {
        let (id, channel) = (number + 2, format!("c{number}"));
        json!({"id": id, "subscribe": {"channel": channel, "recover": true, "offset": 0, "epoch": ""}}).to_string()
    };
    (0..channels).map(command).collect::<Vec<_>>().join("\n").into_bytes()
}

#[test]
fn recoveries_larger_than_the_queue_arrive_in_full() {
    for shards in [1, 3] {
        let mut node = Node::new(shards, keeping());
        (0..128).for_each(|number| publish(&mut node, &format!("c{number}"), 20, 1_000));
        connect(&mut node, "a");
        node.receive("a", recover_all(128));
        let (messages, is_closed) = received_data(&mut node, "a");
        assert!(!is_closed && slow(&node) == 0);
        assert_eq!(messages.len(), 128);
        for message in messages {
            let result = &message["subscribe"];
            assert_eq!(result["recovered"], true, "{result:.200}");
            assert_eq!(result["publications"].as_array().map(Vec::len), Some(20));
        }
    }
}

#[test]
fn queued_bytes_of_a_stalled_client_are_bounded() {
    for shards in [1, 3] {
        let mut node = Node::new(shards, keeping());
        (0..128).for_each(|number| publish(&mut node, &format!("c{number}"), 20, 1_000));
        connect(&mut node, "a");
        node.client("a").room_bytes = 0;
        node.receive("a", recover_all(128));
        let (shard, session) = node.client("a").place;
        let (bytes, _) = node.shards[usize::from(shard)].queued(session).expect("it is there");
        assert!((QUEUE_BYTES_MAX / 4..QUEUE_BYTES_MAX / 2).contains(&bytes), "{bytes}");
        assert!(node.client("a").is_paused);
        // The socket accepts a few bytes at a time.
        while node.client("a").is_paused {
            node.client("a").room_bytes = 10_000;
            node.write((shard, session));
        }
        node.client("a").room_bytes = usize::MAX;
        node.write((shard, session));
        let (messages, is_closed) = received_data(&mut node, "a");
        assert!(!is_closed && messages.len() == 128);
    }
}

#[test]
fn pipelined_histories_all_arrive() {
    let mut node = Node::new(2, keeping());
    publish(&mut node, "news", 20, 10_000);
    connect(&mut node, "a");
    let commands: Vec<String> =
        (2..50).map(|id| json!({"id": id, "history": {"channel": "news", "limit": -1}}).to_string()).collect();
    for frame in commands.chunks(16) {
        node.receive("a", frame.join("\n").into_bytes());
    }
    let (messages, is_closed) = received_data(&mut node, "a");
    assert!(!is_closed && slow(&node) == 0);
    let ids: Vec<u64> = messages.iter().filter_map(|message| message["id"].as_u64()).collect();
    assert_eq!(ids, (2..50).collect::<Vec<u64>>());
    assert!(messages.iter().all(|message| message["history"]["publications"].as_array().map(Vec::len) == Some(20)));
}

#[test]
fn connect_omits_publications_past_the_queue_limit() {
    for shards in [1, 2] {
        let mut node = Node::new(shards, keeping());
        (0..60).for_each(|number| publish(&mut node, &format!("c{number}"), 20, 1_000));
        node.open("a", Encoding::Json, 0);
        node.receive("a", br#"{"id":1,"connect":{"token":"later"}}"#.to_vec());
        let (shard, session) = node.client("a").place;
        let subscription = |number| ServerSubscription {
            channel: format!("c{number}").into(),
            recover_since: Some((0, Box::from(""))),
            ..ServerSubscription::default()
        };
        let claims = ConnectionClaims {
            user: "ann".to_owned(),
            subscriptions: (0..60).map(subscription).collect(),
            ..ConnectionClaims::default()
        };
        node.handle(shard, Event::Authenticated { session, outcome: Ok(claims) });
        let (messages, is_closed) = received_data(&mut node, "a");
        assert!(!is_closed && slow(&node) == 0);
        let [message] = messages.as_slice() else { panic!("{} messages", messages.len()) };
        let subs = message["connect"]["subs"].as_object().expect("subscriptions");
        assert_eq!(subs.len(), 60);
        let recovered = subs.values().filter(|sub| sub["recovered"] == true).count();
        assert!((20..60).contains(&recovered), "{recovered}");
        for sub in subs.values() {
            let is_whole = sub["publications"].as_array().map(Vec::len) == Some(20);
            assert_eq!(sub["recovered"] == true, is_whole);
            assert!(is_whole || sub["offset"] == 20, "{sub:.300}");
        }
        let cut: u64 = node.shards.iter().map(|shard| shard.counters().recoveries_cut).sum();
        assert_eq!(cut, 60 - recovered as u64);
    }
}

#[test]
fn a_pong_behind_paced_commands_counts_while_the_socket_drains() {
    for takes_something in [true, false] {
        let mut options = keeping();
        options.client.ping_interval_ms = 10_000;
        options.client.pong_timeout_ms = 3_000;
        let mut node = Node::new(1, options);
        (0..40).for_each(|number| publish(&mut node, &format!("c{number}"), 20, 1_000));
        connect(&mut node, "a");
        node.client("a").room_bytes = 0;
        node.receive("a", recover_all(40));
        let place = node.client("a").place;
        for _ in 0..40 {
            if takes_something {
                node.client("a").room_bytes = 1_000;
                node.write(place);
            }
            node.wait(1_000);
        }
        assert_eq!(node.client("a").is_gone, !takes_something);
        if !takes_something {
            continue;
        }
        assert!(node.client("a").is_paused);
        node.client("a").room_bytes = usize::MAX;
        node.write(place);
        let (messages, is_closed) = received_data(&mut node, "a");
        assert!(!is_closed && slow(&node) == 0);
        // The session may answer each ping, however late.
        let pings = messages.iter().filter(|message| message.as_object().is_some_and(serde_json::Map::is_empty));
        for _ in 0..pings.count() {
            node.receive("a", b"{}".to_vec());
        }
        assert!(!received_data(&mut node, "a").1);
    }
}

#[test]
fn an_ending_subscription_does_not_use_the_channel_limit() {
    let mut options = keeping();
    options.client.channel_limit = 2;
    let mut node = Node::new(2, options);
    connect(&mut node, "a");
    let remote = |number: &usize| owner_of(&format!("c{number}"), 2, node::NODE_SEED).0 == 1;
    let channels: Vec<String> = (0..).filter(remote).take(6).map(|number| format!("c{number}")).collect();
    let commands: Vec<String> = channels
        .iter()
        .zip(1..)
        .flat_map(|(channel, number)| {
            [
                json!({"id": number * 2, "subscribe": {"channel": channel}}).to_string(),
                json!({"id": number * 2 + 1, "unsubscribe": {"channel": channel}}).to_string(),
            ]
        })
        .collect();
    node.receive("a", commands.join("\n").into_bytes());
    let (messages, _) = received_data(&mut node, "a");
    assert_eq!(messages.len(), 12);
    assert!(messages.iter().all(|message| message["error"].is_null()), "{messages:?}");
}
