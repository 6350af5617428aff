//! Recoveries: clients at the same position are sent the same bytes, encoded once, and each client is sent what a
//! stream without sharing would have sent.

use std::collections::{BTreeMap, VecDeque};

use dunlin_engine::{Wire, counters::NamespaceCounters};
use dunlin_proof::chance::Xorshift;
use dunlin_protocol::Encoding;
use serde_json::{Value, json};

use crate::node::{Node, options, wire};

const HISTORY_SIZE: usize = 12;
const SEEDS: u64 = 40;
const STEPS: usize = 150;

fn node(shard_count: u16) -> Node {
    node_with(shard_count, "namespace.history_meta_ttl_ms=600000")
}

fn node_with(shard_count: u16, meta_ttl: &str) -> Node {
    let mut settings = dunlin_engine::Options::default();
    options::permissive(&mut settings);
    for setting in [
        &*format!("namespace.history_size={HISTORY_SIZE}"),
        "namespace.history_ttl_ms=60000",
        meta_ttl,
        "namespace.force_recovery=true",
        "namespace.allow_tags_filter=true",
        "client.ping_interval_ms=0",
    ] {
        options::set(&mut settings, setting);
    }
    Node::new(shard_count, settings)
}

/// The replies and pushes that a client has received.
fn take(node: &mut Node, name: &str) -> Vec<Value> {
    let client = node.client(name);
    let came = wire::take(client.wire, &mut client.received).into_iter().map(|came| match came {
        wire::Came::Message(message) => message.get("deflated").cloned().unwrap_or(message),
        _ => panic!("{name} was closed"),
    });
    came.collect()
}

fn publish(node: &mut Node, channel: &str, data: &str) {
    node.ask_api(&json!({"publish": {"channel": channel, "data": data}}));
}

/// All shards' counts for channels outside all namespaces.
fn counts(node: &Node) -> (u64, u64) {
    let namespaces = || node.shards.iter().map(|shard| &shard.counters().namespaces[0]);
    let total = |pick: fn(&NamespaceCounters) -> u64| namespaces().map(pick).sum::<u64>();
    (total(|counters| counters.answers_encoded), total(|counters| counters.answers_shared))
}

fn answers_kept(node: &Node) -> usize {
    node.shards.iter().map(|shard| shard.answers_kept()[0]).sum()
}

/// Makes a new client recover `news`; returns the reply's publications and their number.
fn recover(node: &mut Node, name: &str, wire: Wire, offset: u64) -> (Value, usize) {
    node.open_on(name, wire, 0);
    let subscribe = json!({"id": 2, "subscribe": {"channel": "news", "recover": true, "offset": offset}});
    node.receive(name, wire::commands(wire.encoding(), &[json!({"id": 1, "connect": {}}), subscribe]));
    let reply = take(node, name).pop().expect("a reply");
    let publications = reply["subscribe"]["publications"].clone();
    let count = publications.as_array().map_or(0, Vec::len);
    (publications, count)
}

#[test]
fn equal_recoveries_share_one_encoding() {
    for wire in [Wire::WebSocketJson, Wire::WebSocketProtobuf, Wire::WebSocketDeflateJson, Wire::Sse] {
        let mut node = node(2);
        for number in 0..10 {
            publish(&mut node, "news", &format!("{number} {}", "x".repeat(100)));
        }
        let first = recover(&mut node, "first", wire, 3);
        assert_eq!(first.1, 7);
        for number in 1..100 {
            assert_eq!(recover(&mut node, &format!("r{number}"), wire, 3), first, "{wire:?}");
        }
        assert_eq!(counts(&node), (1, 99), "{wire:?}: encoded, shared");
        // Another position has another answer.
        assert_eq!(recover(&mut node, "other", wire, 4).1, 6);
        assert_eq!(counts(&node), (2, 99));
        assert_eq!(recover(&mut node, "other too", wire, 4).1, 6);
        // A recovery without missed publications encodes nothing.
        assert_eq!(recover(&mut node, "at the top", wire, 10).1, 0);
        assert_eq!(counts(&node), (2, 100));
        assert_eq!(answers_kept(&node), 2);
    }
}

#[test]
fn publications_and_removals_invalidate_cached_answers() {
    let mut node = node(1);
    publish(&mut node, "news", "one");
    publish(&mut node, "other", "one");
    assert_eq!(recover(&mut node, "a", Wire::WebSocketJson, 0).1, 1);
    publish(&mut node, "other", "two");
    assert_eq!(answers_kept(&node), 1, "a publication to another channel changes nothing");
    publish(&mut node, "news", "two");
    assert_eq!(answers_kept(&node), 0);
    assert_eq!(recover(&mut node, "b", Wire::WebSocketJson, 0).1, 2);
    assert_eq!(answers_kept(&node), 1);
    node.ask_api(&json!({"history_remove": {"channel": "news"}}));
    assert_eq!(answers_kept(&node), 0);
    assert_eq!(recover(&mut node, "c", Wire::WebSocketJson, 0).1, 0);
    publish(&mut node, "news", "three");
    assert_eq!(recover(&mut node, "d", Wire::WebSocketJson, 2).1, 1);
    assert_eq!(answers_kept(&node), 1);
    node.wait(60_000);
    assert_eq!(answers_kept(&node), 0, "the publications have expired");
    assert_eq!(counts(&node), (3, 0));
}

#[test]
fn an_expired_stream_leaves_no_cached_answer() {
    let mut node = node_with(1, "namespace.history_meta_ttl_ms=1000");
    publish(&mut node, "news", "one");
    assert_eq!(recover(&mut node, "a", Wire::WebSocketJson, 0).1, 1);
    node.receive("a", wire::commands(Encoding::Json, &[json!({"id": 3, "unsubscribe": {"channel": "news"}})]));
    assert_eq!(answers_kept(&node), 1);
    node.wait(1_000);
    assert_eq!(answers_kept(&node), 0);
}

/// The history of a channel, in the form that a client receives.
#[derive(Default)]
struct Channel {
    kept: VecDeque<Value>,
    top: u64,
}

impl Channel {
    /// The publications that a recovery from `offset` returns, if it succeeds.
    fn after(&self, offset: u64, kind: Option<&str>) -> Option<Vec<Value>> {
        let missed = self.top.checked_sub(offset).filter(|missed| *missed <= self.kept.len() as u64)?;
        let passes = |publication: &&Value| kind.is_none_or(|kind| publication["tags"]["kind"] == kind);
        Some(self.kept.iter().skip(self.kept.len() - missed as usize).filter(passes).cloned().collect())
    }
}

/// All wires except one whose compressed messages the test cannot read.
const WIRES: [Wire; 10] = [
    Wire::WebSocketJson,
    Wire::WebSocketProtobuf,
    Wire::WebSocketDeflateJson,
    Wire::HttpStreamJson,
    Wire::HttpStreamProtobuf,
    Wire::Sse,
    Wire::UniWebSocket,
    Wire::UniWebSocketDeflate,
    Wire::UniHttpStream,
    Wire::UniSse,
];

const CHANNELS: [&str; 2] = ["news", "sport"];

/// The answers that a client still has to receive: by the command's id, the publications of each channel.
type Expected = BTreeMap<u64, BTreeMap<String, Option<Vec<Value>>>>;

struct Play {
    node: Node,
    chance: Xorshift,
    channels: BTreeMap<&'static str, Channel>,
    /// By the client's name.
    expected: BTreeMap<String, Expected>,
    /// Recoveries that returned publications.
    with_publications: u64,
}

impl Play {
    fn step(&mut self, step: u64) {
        let channel = CHANNELS[self.chance.below(2) as usize];
        match self.chance.below(12) {
            0 if self.chance.below(6) == 0 => {
                self.node.ask_api(&json!({"history_remove": {"channel": channel}}));
                self.channels.get_mut(channel).expect("one of both").kept.clear();
            }
            0..4 => self.publish(channel, step),
            _ => self.come(step),
        }
        let names: Vec<String> = self.expected.keys().cloned().collect();
        for name in names {
            let client = self.node.client(&name);
            client.room_bytes = self.chance.below(700) as usize;
            let place = client.place;
            self.node.write(place);
            self.read_messages(&name);
        }
    }

    fn publish(&mut self, name: &str, step: u64) {
        let kind = if self.chance.below(2) == 0 { "odd" } else { "even" };
        let data = format!("{step} {}", "\"\u{e9}".repeat(self.chance.below(60) as usize));
        self.node.ask_api(&json!({"publish": {"channel": name, "data": data, "tags": {"kind": kind}}}));
        let channel = self.channels.get_mut(name).expect("one of both");
        channel.top += 1;
        channel.kept.push_back(json!({"data": data, "offset": channel.top, "tags": {"kind": kind}}));
        channel.kept.drain(..channel.kept.len().saturating_sub(HISTORY_SIZE));
    }

    /// A client connects, and recovers both channels with `connect`, or one by `subscribe`.
    fn come(&mut self, step: u64) {
        let wire = WIRES[self.chance.below(WIRES.len() as u64) as usize];
        let name = format!("c{step}");
        let shard = self.chance.below(self.node.shards.len() as u64) as u16;
        self.node.open_on(&name, wire, shard);
        // The client's socket accepts nothing until the end of the step.
        self.node.client(&name).room_bytes = 0;
        let mut expected = Expected::new();
        if wire.is_unidirectional() || self.chance.below(3) == 0 {
            let (mut subs, mut publications) = (json!({}), BTreeMap::new());
            for channel in CHANNELS {
                let offset = self.position(channel);
                subs[channel] = json!({"recover": true, "offset": offset});
                publications.insert(channel.to_owned(), self.channels[channel].after(offset, None));
            }
            expected.insert(1, publications);
            let connect = json!({ "subs": subs });
            let command = if wire.is_unidirectional() { connect } else { json!({"id": 1, "connect": connect}) };
            self.node.receive(&name, wire::commands(wire.encoding(), &[command]));
        } else {
            let channel = CHANNELS[self.chance.below(2) as usize];
            let offset = self.position(channel);
            let mut subscribe = json!({"channel": channel, "recover": true, "offset": offset});
            let kind = [None, Some("odd")][self.chance.below(2) as usize];
            // Another test covers filters of Protobuf sessions.
            let kind = kind.filter(|_| wire.encoding() == Encoding::Json);
            if let Some(kind) = kind {
                subscribe["tf"] = json!({"key": "kind", "cmp": "eq", "val": kind});
            }
            expected.insert(2, [(channel.to_owned(), self.channels[channel].after(offset, kind))].into());
            let commands = [json!({"id": 1, "connect": {}}), json!({"id": 2, "subscribe": subscribe})];
            self.node.receive(&name, wire::commands(wire.encoding(), &commands));
        }
        let came = expected.values().flat_map(BTreeMap::values).flatten();
        self.with_publications += came.filter(|publications| !publications.is_empty()).count() as u64;
        self.expected.insert(name, expected);
    }

    /// A plausible position of a client. Many clients share one.
    fn position(&mut self, channel: &str) -> u64 {
        let behind = [1, 1, 1, 3, 3, 8, 0, 14][self.chance.below(8) as usize];
        self.channels[channel].top.saturating_sub(behind)
    }

    fn read_messages(&mut self, name: &str) {
        let is_opaque = self.node.client(name).encoding == Encoding::Protobuf;
        let expected = self.expected.get_mut(name).expect("a client that came");
        for message in take(&mut self.node, name) {
            assert!(message.get("error").is_none(), "{name}: {message}");
            let id = message["id"].as_u64().unwrap_or(1);
            let results: Vec<(String, Value)> = match (message.get("connect"), message.get("subscribe")) {
                (Some(connect), None) => {
                    let subs = connect["subs"].as_object().into_iter().flatten();
                    subs.map(|(channel, result)| (channel.clone(), result.clone())).collect()
                }
                (None, Some(result)) => {
                    let channel = expected[&id].keys().next().expect("its channel").clone();
                    vec![(channel, result.clone())]
                }
                _ => continue,
            };
            for (channel, result) in results {
                let expected = expected.get_mut(&id).and_then(|expected| expected.remove(&channel));
                let expected = expected.expect("one answer for each");
                assert_eq!(result["recovered"] == true, expected.is_some(), "{name}: {result}");
                let none = json!([]);
                let came = result.get("publications").unwrap_or(&none);
                let mut expected = expected.unwrap_or_default();
                for publication in &mut expected {
                    if is_opaque {
                        publication["data"] = as_text(&publication["data"]);
                    }
                    if publication["offset"] == 1 {
                        publication["epoch"] = result["epoch"].clone();
                    }
                }
                assert_eq!(*came, json!(expected), "{name}");
            }
        }
    }
}

/// Data of a Protobuf message: bytes, here those of JSON.
fn as_text(data: &Value) -> Value {
    Value::String(data.to_string())
}

/// Plays one seed on all wires, with sockets that accept a few bytes at a time. Returns how many answers were encoded,
/// and how many shared.
fn play(seed: u64) -> (u64, u64) {
    let mut play = Play {
        node: node(1 + (seed % 3) as u16),
        chance: Xorshift::new(seed),
        channels: CHANNELS.map(|channel| (channel, Channel::default())).into(),
        expected: BTreeMap::new(),
        with_publications: 0,
    };
    for step in 1..=STEPS as u64 {
        play.step(step);
    }
    let names: Vec<String> = play.expected.keys().cloned().collect();
    for name in names {
        let client = play.node.client(&name);
        client.room_bytes = usize::MAX;
        let place = client.place;
        play.node.write(place);
        play.read_messages(&name);
        let missing = play.expected[&name].values().map(BTreeMap::len).sum::<usize>();
        assert_eq!(missing, 0, "seed {seed}: {name} was not answered");
    }
    let (encoded, shared) = counts(&play.node);
    assert_eq!(encoded + shared, play.with_publications, "seed {seed}");
    (encoded, shared)
}

#[test]
fn all_clients_recover_missed_publications() {
    let (mut encoded, mut shared) = (0, 0);
    for seed in 1..=SEEDS {
        let (more_encoded, more_shared) = play(seed);
        encoded += more_encoded;
        shared += more_shared;
    }
    println!("{encoded} answers encoded, {shared} shared");
    assert!(shared > 500 && encoded > 500, "{encoded} encoded, {shared} shared");
}
