//! Queries to the other nodes of a cluster, about presence and keys: what waits for the answers, and the limits.

use std::sync::Arc;

use dunlin_engine::{
    Event, Options,
    event::{ClusterPresence, PeerKeys, PeerQueryNumber, PresenceKind},
};
use dunlin_protocol::{ClientInfo, Encoding, ErrorCode};

use crate::node::{Node, options};

fn clustered(peer_queries_max: usize) -> Options {
    let mut clustered = Options::default();
    options::permissive(&mut clustered);
    clustered.client.ping_interval_ms = 0;
    clustered.without_namespace.presence = true;
    clustered.log.peer_queries_max = peer_queries_max;
    clustered
}

fn node(options: Options, names: &[&str]) -> Node {
    let mut node = Node::new(1, options);
    for name in names {
        node.open(name, Encoding::Json, 0);
        node.receive(name, br#"{"id":1,"connect":{}}"#.to_vec());
        node.client(name).received.clear();
    }
    node
}

fn ask(node: &mut Node, name: &str, id: u32, method: &str) {
    node.receive(name, format!(r#"{{"id":{id},"{method}":{{"channel":"c"}}}}"#).into_bytes());
}

/// The replies that a client has received since the last call.
fn replies(node: &mut Node, name: &str) -> String {
    let bytes = std::mem::take(&mut node.client(name).received);
    let json: Vec<u8> = bytes.into_iter().filter(|byte| (b' '..=b'~').contains(byte)).collect();
    String::from_utf8(json).expect("it is text")
}

/// The only query in flight.
fn question(node: &mut Node) -> (PeerQueryNumber, PresenceKind) {
    let questions = std::mem::take(&mut node.peer_queries);
    let [(0, query, channel, kind)] = &questions[..] else { panic!("{questions:?}") };
    assert_eq!(&**channel, "c");
    (*query, *kind)
}

fn answer(node: &mut Node, query: PeerQueryNumber, outcome: Result<ClusterPresence, ErrorCode>) {
    node.handle(0, Event::PeersAnswered { query, outcome });
}

fn clients(ids: &[&str]) -> ClusterPresence {
    let info =
        |id: &&str| Arc::new(ClientInfo { user: "u".into(), client: (*id).into(), conn_info: None, chan_info: None });
    ClusterPresence::Clients(ids.iter().map(info).collect())
}

#[test]
fn presence_covers_all_nodes() {
    let mut node = node(clustered(10), &["a"]);
    ask(&mut node, "a", 2, "presence");
    assert_eq!(replies(&mut node, "a"), "", "the reply waits for the other nodes");
    let (query, kind) = question(&mut node);
    assert_eq!(kind, PresenceKind::Clients);
    answer(&mut node, query, Ok(clients(&["x"])));
    assert!(replies(&mut node, "a").contains(r#"{"id":2,"presence":{"presence":{"x":{"user":"u","client":"x"}}}}"#));
    ask(&mut node, "a", 3, "presence_stats");
    let (query, kind) = question(&mut node);
    assert_eq!(kind, PresenceKind::Stats);
    answer(&mut node, query, Ok(ClusterPresence::Stats { num_clients: 3, num_users: 2 }));
    assert!(replies(&mut node, "a").contains(r#"{"id":3,"presence_stats":{"num_clients":3,"num_users":2}}"#));
    ask(&mut node, "a", 4, "presence_stats");
    let (query, _) = question(&mut node);
    answer(&mut node, query, Err(ErrorCode::Internal));
    assert!(replies(&mut node, "a").contains(r#""code":100"#));
    // A second answer changes nothing.
    answer(&mut node, query, Err(ErrorCode::Internal));
    assert_eq!(replies(&mut node, "a"), "");
}

#[test]
fn a_single_node_sends_no_survey() {
    let mut node = node(clustered(0), &["a"]);
    ask(&mut node, "a", 2, "presence");
    assert!(node.peer_queries.is_empty());
    assert!(replies(&mut node, "a").contains(r#"{"id":2,"presence":{"presence":{}}}"#));
}

#[test]
fn commands_share_a_survey_that_began_after_them() {
    let mut node = node(clustered(10), &["a", "b", "c"]);
    ask(&mut node, "a", 2, "presence");
    let (first, _) = question(&mut node);
    // The answers in flight may be older than these commands.
    ask(&mut node, "b", 2, "presence");
    ask(&mut node, "c", 2, "presence");
    assert!(node.peer_queries.is_empty(), "one query per channel is in flight");
    answer(&mut node, first, Ok(clients(&["x"])));
    assert!(replies(&mut node, "a").contains(r#""x""#));
    assert_eq!((replies(&mut node, "b"), replies(&mut node, "c")), (String::new(), String::new()));
    let (second, _) = question(&mut node);
    answer(&mut node, second, Ok(clients(&["y"])));
    for name in ["b", "c"] {
        assert!(replies(&mut node, name).contains(r#""y""#));
    }
    assert!(node.peer_queries.is_empty());
    assert_eq!(node.shards[0].log_holdings(), [0; 3]);
}

#[test]
fn commands_waiting_for_a_survey_are_limited() {
    let mut node = node(clustered(2), &["a", "b", "c"]);
    for name in ["a", "b", "c"] {
        ask(&mut node, name, 2, "presence_stats");
    }
    assert_eq!((replies(&mut node, "a"), replies(&mut node, "b")), (String::new(), String::new()));
    assert!(replies(&mut node, "c").contains(r#""code":111"#));
    assert_eq!(node.shards[0].log_holdings(), [0, 0, 2]);
    let (query, _) = question(&mut node);
    answer(&mut node, query, Ok(ClusterPresence::Stats { num_clients: 0, num_users: 0 }));
    ask(&mut node, "c", 3, "presence_stats");
    assert_eq!(replies(&mut node, "c"), "", "the limit is free again");
}

#[test]
fn an_answer_that_is_too_large_is_an_error() {
    let mut options = clustered(10);
    options.client.presence_bytes_max = 1_000;
    let mut node = node(options, &["a"]);
    let ids: Vec<String> = (0..20).map(|number| format!("client-{number:04}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    for (count, fits) in [(1, true), (20, false)] {
        ask(&mut node, "a", 2, "presence");
        let (query, _) = question(&mut node);
        answer(&mut node, query, Ok(clients(&ids[..count])));
        let reply = replies(&mut node, "a");
        assert_eq!(!reply.contains(r#""code":106"#), fits, "{reply}");
    }
}

#[test]
fn a_session_can_end_before_the_survey() {
    let mut node = node(clustered(10), &["a"]);
    ask(&mut node, "a", 2, "presence");
    let (query, _) = question(&mut node);
    let (shard, session) = node.client("a").place;
    node.client("a").is_gone = true;
    node.handle(shard, Event::Gone { session });
    answer(&mut node, query, Ok(clients(&["x"])));
    assert_eq!(node.shards[0].log_holdings(), [0; 3]);
}

#[test]
fn queries_for_keys_in_flight_are_limited() {
    const QUERIES_MAX: usize = 64;
    let mut options = clustered(10);
    options.without_namespace.is_clustered = true;
    options.without_namespace.cache_keys_max = 1;
    options.without_namespace.cache_keys_ttl_ms = 1_000;
    // A session waits for one reply at a time.
    let names: Vec<String> = (0..QUERIES_MAX + 2).map(|number| format!("c{number}")).collect();
    let mut node = node(options, &names.iter().map(String::as_str).collect::<Vec<_>>());
    let asked = |node: &mut Node| {
        let sent = std::mem::take(&mut node.sent).into_iter();
        sent.filter_map(|line| line.strip_prefix("ask keys ").map(str::to_owned)).collect::<Vec<String>>()
    };
    for name in &names {
        node.receive(name, format!(r#"{{"id":2,"subscribe":{{"channel":"{name}"}}}}"#).into_bytes());
    }
    let first = asked(&mut node);
    assert_eq!(first.len(), QUERIES_MAX, "at the limit, and past it");
    for (answered, next) in [("c0", "c64"), ("c64", "c65")] {
        node.handle(0, Event::KeysAnswered { channel: answered.into(), found: PeerKeys::default() });
        assert_eq!(asked(&mut node), [next]);
    }
    assert_eq!(node.shards[0].log_holdings(), [0, 0, QUERIES_MAX]);
    for channel in first.into_iter().skip(1).chain(["c65".to_owned()]) {
        node.handle(0, Event::KeysAnswered { channel: channel.into(), found: PeerKeys::default() });
    }
    assert_eq!((asked(&mut node).len(), node.shards[0].log_holdings()), (0, [0; 3]));
}
