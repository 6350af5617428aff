//! Clients with deltas and filters, under all kinds of events: each ends up with the published data.

use std::collections::BTreeMap;

use dunlin_proof::chance::Xorshift;
use dunlin_protocol::Encoding;
use serde_json::{Value, json};

use crate::node::{Node, options, wire};

const SEEDS: u64 = 60;
const STEPS: usize = 120;

/// The state that one client builds from its messages.
struct Reader {
    encoding: Encoding,
    /// The tag that its filter requires, if any.
    wants: Option<&'static str>,
    has: Option<Vec<u8>>,
    offset: u64,
    messages: Vec<u64>,
    patches: usize,
    commands: u64,
    /// Whether it keeps only every second publication, so that it gets patches against others than it has.
    forgets: bool,
}

/// Applies a patch, as the format's description states.
fn apply(old: &[u8], patch: &[u8]) -> Vec<u8> {
    const DIGITS: &str = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz~";
    let (mut new, mut number, mut bytes, mut at) = (Vec::new(), 0, 0, 0);
    while let Some(&byte) = patch.get(at) {
        at += 1;
        if let Some(digit) = DIGITS.find(char::from(byte)) {
            number = number * 64 + digit;
            continue;
        }
        match byte {
            b'@' => bytes = number,
            b',' => new.extend_from_slice(&old[number..number + bytes]),
            b':' => {
                new.extend_from_slice(&patch[at..at + number]);
                at += number;
            }
            _ => {}
        }
        number = 0;
    }
    new
}

impl Reader {
    fn take(&mut self, publication: &Value, published: &BTreeMap<u64, String>) {
        let text = publication["data"].as_str().expect("a string");
        let is_patch = publication["delta"] == true;
        let data = if is_patch {
            self.patches += 1;
            apply(self.has.as_ref().expect("something to stand on"), text.as_bytes())
        } else {
            text.as_bytes().to_vec()
        };
        let data_text = String::from_utf8(data.clone()).expect("UTF-8");
        let value: Value = serde_json::from_str(&data_text).unwrap_or_else(|_| panic!("{data_text} of {publication}"));
        let number = value["number"].as_u64().expect("a number");
        assert_eq!(published.get(&number), Some(&data_text));
        assert!(self.messages.last().is_none_or(|last| *last < number), "{number} behind {:?}", self.messages);
        let passes = self.wants.is_none_or(|kind| publication["tags"]["kind"] == kind);
        assert!(passes, "{publication} is not wanted");
        self.messages.push(number);
        if !self.forgets || self.messages.len() % 2 == 1 {
            self.has = Some(data);
        }
        self.offset = publication["offset"].as_u64().unwrap_or(self.offset);
    }

    fn subscribe(&mut self, chance: &mut Xorshift) -> Value {
        self.commands += 1;
        let mut subscribe = json!({"channel": "news", "delta": "fossil", "flag": chance.below(2)});
        if self.offset > 0 && chance.below(3) > 0 {
            subscribe["recover"] = json!(true);
            subscribe["offset"] = json!(self.offset);
        }
        // Another test covers filters of Protobuf sessions.
        if let Some(kind) = self.wants {
            subscribe["tf"] = json!({"key": "kind", "cmp": "eq", "val": kind});
        }
        json!({"id": self.commands, "subscribe": subscribe})
    }
}

fn play(seed: u64, forgets: bool) -> (usize, usize) {
    let mut chance = Xorshift::new(seed);
    let mut settings = dunlin_engine::Options::default();
    options::permissive(&mut settings);
    for setting in [
        "namespace.allow_delta=true",
        "namespace.delta_publish=true",
        "namespace.allow_tags_filter=true",
        "namespace.allow_channel_compaction=true",
        "namespace.history_size=6",
        "namespace.history_ttl_ms=60000",
        "namespace.force_recovery=true",
        "client.ping_interval_ms=0",
    ] {
        options::set(&mut settings, setting);
    }
    let mut node = Node::new(1 + (seed % 3) as u16, settings);
    let mut readers: BTreeMap<String, Reader> = BTreeMap::new();
    let mut published = BTreeMap::new();
    for index in 0..6 {
        let name = format!("r{index}");
        let encoding = Encoding::ALL[index % 2];
        let wants = (encoding == Encoding::Json).then(|| [None, Some("odd"), Some("even")][index / 2]).flatten();
        let reader =
            Reader { encoding, wants, has: None, offset: 0, messages: Vec::new(), patches: 0, commands: 1, forgets };
        node.open(&name, encoding, (index as u64 % (1 + seed % 3)) as u16);
        node.receive(&name, wire::commands(encoding, &[json!({"id": 1, "connect": {}})]));
        readers.insert(name, reader);
    }
    for step in 1..=STEPS as u64 {
        match chance.below(10) {
            0 | 1 => {
                let name = format!("r{}", chance.below(6));
                let reader = readers.get_mut(&name).expect("a reader");
                reader.commands += 1;
                let leave = json!({"id": reader.commands, "unsubscribe": {"channel": "news"}});
                let commands = [leave, reader.subscribe(&mut chance)];
                node.receive(&name, wire::commands(reader.encoding, &commands));
            }
            2 if chance.below(4) == 0 => node.ask_api(&json!({"history_remove": {"channel": "news"}})),
            _ => {
                let kind = if chance.below(2) == 0 { "odd" } else { "even" };
                let filler = "a text that stays as it is ".repeat(chance.below(4) as usize);
                let data = json!({"filler": filler, "number": step, "price": chance.below(3)});
                published.insert(step, data.to_string());
                let skip_history = chance.below(8) == 0;
                let publish =
                    json!({"channel": "news", "data": data, "tags": {"kind": kind}, "skip_history": skip_history});
                node.ask_api(&json!({"publish": publish}));
            }
        }
        read_messages(&mut node, &mut readers, &published);
    }
    readers
        .values()
        .fold((0, 0), |(messages, patches), reader| (messages + reader.messages.len(), patches + reader.patches))
}

fn read_messages(node: &mut Node, readers: &mut BTreeMap<String, Reader>, published: &BTreeMap<u64, String>) {
    for (name, reader) in readers {
        let client = node.client(name);
        for came in wire::take(reader.encoding.into(), &mut client.received) {
            let wire::Came::Message(message) = came else { panic!("{name} was closed") };
            if let Some(publication) = message["push"].get("pub") {
                reader.take(publication, published);
            } else if let Some(subscribed) = message.get("subscribe") {
                reader.offset = subscribed["offset"].as_u64().unwrap_or_default();
                for publication in subscribed["publications"].as_array().into_iter().flatten() {
                    reader.take(publication, published);
                }
            }
            assert!(message.get("error").is_none(), "{name}: {message}");
        }
    }
}

#[test]
fn deltas_rebuild_the_publications() {
    let (mut messages, mut patches) = (0, 0);
    for seed in 1..=SEEDS {
        let (more_messages, more_patches) = play(seed, false);
        messages += more_messages;
        patches += more_patches;
    }
    println!("{messages} publications heard, {patches} of them as patches");
    assert!(patches > 1_000 && messages > patches, "{messages} received, {patches} as patches");
}

#[test]
fn a_patch_against_another_publication_is_detected() {
    let found = (1..=SEEDS).any(|seed| std::panic::catch_unwind(|| play(seed, true)).is_err());
    assert!(found, "no seed detected it");
}
