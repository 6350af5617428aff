//! The messages of the protocol as a table, with a table-driven Protobuf codec: slow, general, and independent of the
//! crate's own codec, so that the two can be compared.

use serde_json::{Map, Value, json};

/// The type of a field.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    U32,
    U64,
    I32,
    I64,
    Bool,
    Text,
    Payload,
    One(&'static str),
    List(&'static str),
    TextMap,
    Map(&'static str),
}

use Kind::{Bool, I32, I64, List, One, Payload, Text, TextMap, U32, U64};

type Fields = &'static [(u32, &'static str, Kind)];

/// Fields by message, without those of requests that the crate does not read and of results that it does not write.
const MESSAGES: &[(&str, Fields)] = &[
    (
        "Command",
        &[
            (1, "id", U32),
            (4, "connect", One("ConnectRequest")),
            (5, "subscribe", One("SubscribeRequest")),
            (6, "unsubscribe", One("OnlyChannel")),
            (7, "publish", One("PublishRequest")),
            (8, "presence", One("OnlyChannel")),
            (9, "presence_stats", One("OnlyChannel")),
            (10, "history", One("HistoryRequest")),
            (11, "ping", One("Empty")),
            (12, "send", One("OnlyData")),
            (13, "rpc", One("RPCRequest")),
            (14, "refresh", One("RefreshRequest")),
            (15, "sub_refresh", One("SubRefreshRequest")),
        ],
    ),
    (
        "ConnectRequest",
        &[
            (1, "token", Text),
            (2, "data", Payload),
            (3, "subs", Kind::Map("SubscribeRequest")),
            (4, "name", Text),
            (5, "version", Text),
        ],
    ),
    (
        "SubscribeRequest",
        &[
            (1, "channel", Text),
            (2, "token", Text),
            (3, "recover", Bool),
            (6, "epoch", Text),
            (7, "offset", U64),
            (8, "data", Payload),
            (9, "positioned", Bool),
            (10, "recoverable", Bool),
            (11, "join_leave", Bool),
            (12, "delta", Text),
            (14, "flag", I64),
            (15, "type", I32),
        ],
    ),
    ("OnlyChannel", &[(1, "channel", Text)]),
    ("OnlyData", &[(1, "data", Payload)]),
    ("Empty", &[]),
    ("PublishRequest", &[(1, "channel", Text), (2, "data", Payload), (3, "type", I32)]),
    (
        "HistoryRequest",
        &[(1, "channel", Text), (7, "limit", I32), (8, "since", One("StreamPosition")), (9, "reverse", Bool)],
    ),
    ("StreamPosition", &[(1, "offset", U64), (2, "epoch", Text)]),
    ("RPCRequest", &[(1, "data", Payload), (2, "method", Text)]),
    ("RefreshRequest", &[(1, "token", Text)]),
    ("SubRefreshRequest", &[(1, "channel", Text), (2, "token", Text), (3, "type", I32)]),
    (
        "Reply",
        &[
            (1, "id", U32),
            (2, "error", One("Error")),
            (4, "push", One("Push")),
            (5, "connect", One("ConnectResult")),
            (6, "subscribe", One("SubscribeResult")),
            (7, "unsubscribe", One("Empty")),
            (8, "publish", One("Empty")),
            (9, "presence", One("PresenceResult")),
            (10, "presence_stats", One("PresenceStatsResult")),
            (11, "history", One("HistoryResult")),
            (13, "rpc", One("OnlyData")),
            (14, "refresh", One("RefreshResult")),
            (15, "sub_refresh", One("Expiry")),
        ],
    ),
    ("Error", &[(1, "code", U32), (2, "message", Text), (3, "temporary", Bool)]),
    (
        "ConnectResult",
        &[
            (1, "client", Text),
            (2, "version", Text),
            (3, "expires", Bool),
            (4, "ttl", U32),
            (5, "data", Payload),
            (6, "subs", Kind::Map("SubscribeResult")),
            (7, "ping", U32),
            (8, "pong", Bool),
            (9, "session", Text),
            (10, "node", Text),
            (11, "time", I64),
        ],
    ),
    (
        "SubscribeResult",
        &[
            (1, "expires", Bool),
            (2, "ttl", U32),
            (3, "recoverable", Bool),
            (6, "epoch", Text),
            (7, "publications", List("Publication")),
            (8, "recovered", Bool),
            (9, "offset", U64),
            (10, "positioned", Bool),
            (11, "data", Payload),
            (12, "was_recovering", Bool),
            (13, "delta", Bool),
            (14, "id", I64),
        ],
    ),
    (
        "Publication",
        &[
            (4, "data", Payload),
            (5, "info", One("ClientInfo")),
            (6, "offset", U64),
            (7, "tags", TextMap),
            (8, "delta", Bool),
            (9, "time", I64),
            (14, "epoch", Text),
            (16, "version", U64),
        ],
    ),
    ("ClientInfo", &[(1, "user", Text), (2, "client", Text), (3, "conn_info", Payload), (4, "chan_info", Payload)]),
    ("PresenceResult", &[(1, "presence", Kind::Map("ClientInfo"))]),
    ("PresenceStatsResult", &[(1, "num_clients", U32), (2, "num_users", U32)]),
    ("HistoryResult", &[(1, "publications", List("Publication")), (2, "epoch", Text), (3, "offset", U64)]),
    ("RefreshResult", &[(1, "client", Text), (2, "version", Text), (3, "expires", Bool), (4, "ttl", U32)]),
    ("Expiry", &[(1, "expires", Bool), (2, "ttl", U32)]),
    (
        "Push",
        &[
            (1, "id", I64),
            (2, "channel", Text),
            (4, "pub", One("Publication")),
            (5, "join", One("OnlyInfo")),
            (6, "leave", One("OnlyInfo")),
            (7, "unsubscribe", One("Unsubscribe")),
            (8, "message", One("OnlyData")),
            (9, "subscribe", One("Subscribe")),
            (11, "disconnect", One("Disconnect")),
            (12, "refresh", One("Expiry")),
        ],
    ),
    ("OnlyInfo", &[(1, "info", One("ClientInfo"))]),
    ("Unsubscribe", &[(2, "code", U32), (3, "reason", Text)]),
    (
        "Subscribe",
        &[
            (1, "recoverable", Bool),
            (4, "epoch", Text),
            (5, "offset", U64),
            (6, "positioned", Bool),
            (7, "data", Payload),
        ],
    ),
    ("Disconnect", &[(1, "code", U32), (2, "reason", Text), (3, "reconnect", Bool)]),
];

pub fn fields(message: &str) -> Fields {
    MESSAGES.iter().find(|(name, _)| *name == message).unwrap_or_else(|| panic!("no message {message}")).1
}

/// Encodes a message with this meaning, its fields in the order of their names, and unknown fields in between.
pub fn encode(message: &str, meaning: &Value) -> Vec<u8> {
    let known = fields(message);
    let mut bytes = Vec::new();
    for (name, value) in meaning.as_object().expect("a message is an object") {
        let (number, _, kind) = known.iter().find(|(_, known, _)| known == name).expect("a known field");
        encode_field(*number, *kind, value, &mut bytes);
        length_prefixed(1000 + number, name.as_bytes(), &mut bytes);
    }
    bytes
}

fn encode_field(number: u32, kind: Kind, value: &Value, bytes: &mut Vec<u8>) {
    match kind {
        U32 | U64 => tagged_varint(number, value.as_u64().expect("an unsigned number"), bytes),
        I32 | I64 => tagged_varint(number, value.as_i64().expect("a number").cast_unsigned(), bytes),
        Bool => tagged_varint(number, u64::from(value.as_bool().expect("a bool")), bytes),
        Text | Payload => length_prefixed(number, value.as_str().expect("a string").as_bytes(), bytes),
        One(message) => length_prefixed(number, &encode(message, value), bytes),
        List(message) => {
            for item in value.as_array().expect("a list") {
                length_prefixed(number, &encode(message, item), bytes);
            }
        }
        TextMap | Kind::Map(_) => {
            for (key, value) in value.as_object().expect("a map") {
                let mut entry = Vec::new();
                encode_field(1, Text, &json!(key), &mut entry);
                encode_field(2, entry_kind(kind), value, &mut entry);
                length_prefixed(number, &entry, bytes);
            }
        }
    }
}

fn entry_kind(map: Kind) -> Kind {
    match map {
        Kind::Map(message) => One(message),
        _ => Text,
    }
}

fn tagged_varint(number: u32, value: u64, bytes: &mut Vec<u8>) {
    varint(u64::from(number) * 8, bytes);
    varint(value, bytes);
}

fn length_prefixed(number: u32, content: &[u8], bytes: &mut Vec<u8>) {
    varint(u64::from(number) * 8 + 2, bytes);
    varint(content.len() as u64, bytes);
    bytes.extend_from_slice(content);
}

pub fn varint(mut value: u64, bytes: &mut Vec<u8>) {
    loop {
        let low = (value % 128) as u8;
        value /= 128;
        if value == 0 {
            return bytes.push(low);
        }
        bytes.push(low + 128);
    }
}

/// Decodes a message to its meaning.
pub fn decode(message: &str, mut bytes: &[u8]) -> Value {
    let known = fields(message);
    let mut meaning = Map::new();
    while !bytes.is_empty() {
        let tag = read_varint(&mut bytes);
        let (_, name, kind) = known.iter().find(|(number, ..)| u64::from(*number) == tag / 8).expect("a known field");
        match (*kind, tag % 8) {
            (U32 | U64, 0) => drop(meaning.insert((*name).into(), json!(read_varint(&mut bytes)))),
            (I32 | I64, 0) => drop(meaning.insert((*name).into(), json!(read_varint(&mut bytes).cast_signed()))),
            (Bool, 0) => drop(meaning.insert((*name).into(), json!(read_varint(&mut bytes) == 1))),
            (kind, 2) => decode_bytes(&mut meaning, name, kind, &mut bytes),
            (kind, wire_type) => panic!("{kind:?} with wire type {wire_type}"),
        }
    }
    Value::Object(meaning)
}

fn decode_bytes(meaning: &mut Map<String, Value>, name: &str, kind: Kind, bytes: &mut &[u8]) {
    let content = read_bytes(bytes);
    let text = || String::from_utf8(content.to_vec()).expect("UTF-8");
    match kind {
        Text | Payload => drop(meaning.insert(name.into(), json!(text()))),
        One(message) => drop(meaning.insert(name.into(), decode(message, content))),
        List(message) => {
            let list = meaning.entry(name).or_insert_with(|| json!([]));
            list.as_array_mut().expect("a list").push(decode(message, content));
        }
        TextMap | Kind::Map(_) => {
            let mut entry = Map::new();
            let mut content = content;
            while !content.is_empty() {
                match read_varint(&mut content) {
                    10 => decode_bytes(&mut entry, "key", Text, &mut content),
                    18 => decode_bytes(&mut entry, "value", entry_kind(kind), &mut content),
                    tag => panic!("tag {tag} in the entry of a map"),
                }
            }
            let map = meaning.entry(name).or_insert_with(|| json!({}));
            map[entry["key"].as_str().expect("a key")] = entry["value"].clone();
        }
        _ => panic!("{kind:?} as bytes"),
    }
}

pub fn read_bytes<'a>(bytes: &mut &'a [u8]) -> &'a [u8] {
    let length = usize::try_from(read_varint(bytes)).expect("a length");
    let (content, rest) = bytes.split_at(length);
    *bytes = rest;
    content
}

fn read_varint(bytes: &mut &[u8]) -> u64 {
    let end = bytes.iter().position(|byte| *byte < 128).expect("a last byte") + 1;
    let (digits, rest) = bytes.split_at(end);
    *bytes = rest;
    digits.iter().rev().fold(0, |value, digit| value * 128 + u64::from(digit % 128))
}
