//! Random messages survive a round trip in both encodings and both directions.

use dunlin_protocol::{
    ChannelRef, Commands, DataForm, Disconnect, EncodedPublications, Encoding, ErrorCode, Gaps, Payload, Push, Reply,
    SubscribeResult, encode_push, encode_reply, encode_reply_around,
};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::{
    meaning::{self, Reader, text},
    schema::{self, Kind},
};

const CASES: u32 = 10_000;

/// The results of subscriptions in a reply.
fn subscribe_results(reply: &mut Reply) -> impl Iterator<Item = &mut SubscribeResult> {
    let (one, many) = match reply {
        Reply::Subscribe(result) => (Some(&mut **result), None),
        Reply::Connect(result) => (None, Some(&mut result.subs)),
        _ => (None, None),
    };
    one.into_iter().chain(many.into_iter().flatten().map(|(_, result)| result))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]

    /// Decodes the commands of one frame with interruptions at random positions, and continues with the stored rest.
    #[test]
    fn commands_are_decoded_to_their_meaning(commands in vec(command(), 1..5), sittings in any::<u8>()) {
        for encoding in Encoding::ALL {
            let frame = write_frame(encoding, "Command", &commands);
            prop_assert_eq!(&read_in_sittings(encoding, &frame, sittings), &commands);
        }
    }

    #[test]
    fn replies_are_encoded_with_their_meaning(reply in reply(), id in 1..=u32::MAX, opaque in any::<bool>()) {
        let mut meaning = reply;
        meaning["id"] = json!(id);
        let (id, reply) = reader(opaque).reply(&meaning).expect("a reply");
        for encoding in Encoding::ALL {
            let mut written = Vec::new();
            prop_assert_eq!(encode_reply(encoding, id, &reply, &mut written), Ok(()));
            prop_assert_eq!(read_reply(encoding, &written), without_empty(&meaning));
        }
    }

    /// Already encoded publications result in the same message, whether they are copied or inserted into gaps.
    #[test]
    fn pre_encoded_parts_give_the_same_message(reply in reply(), id in 1..=u32::MAX, opaque in any::<bool>()) {
        let mut meaning = reply;
        meaning["id"] = json!(id);
        let (id, mut reply) = reader(opaque).reply(&meaning).expect("a reply");
        for encoding in Encoding::ALL {
            let mut plain = Vec::new();
            prop_assert_eq!(encode_reply(encoding, id, &reply, &mut plain), Ok(()));
            for result in subscribe_results(&mut reply).filter(|result| !result.publications.is_empty()) {
                result.encoded = Some(EncodedPublications::new(encoding, result).expect("as above").into());
            }
            let mut copied = Vec::new();
            prop_assert_eq!(encode_reply(encoding, id, &reply, &mut copied), Ok(()));
            prop_assert_eq!(&copied, &plain);
            let (mut around, mut gaps) = (b"before".to_vec(), Gaps::default());
            prop_assert_eq!(encode_reply_around(encoding, id, &reply, &mut around, &mut gaps), Ok(()));
            prop_assert_eq!(around.len() - b"before".len() + gaps.missing_bytes(), plain.len());
            for (place, missing) in gaps.into_missing().into_iter().rev() {
                around.splice(place..place, missing.bytes().iter().copied());
            }
            prop_assert_eq!(&around[b"before".len()..], &plain);
            subscribe_results(&mut reply).for_each(|result| result.encoded = None);
        }
    }

    #[test]
    fn publications_are_encoded_with_their_meaning(
        channel in ".{1,40}",
        publication in message("Publication"),
        skipped in prop_oneof![Just(0), any::<u32>()],
        opaque in any::<bool>(),
    ) {
        let mut meaning = publication;
        let publication = reader(opaque).publication(&meaning);
        if skipped > 0 {
            meaning["tags"]["skipped"] = json!(skipped.to_string());
        }
        let meaning = json!({"push": {"channel": channel, "pub": meaning}});
        let push = Push::Publication {
            channel: channel.as_str().into(),
            publication: &publication,
            data: DataForm::Plain,
            skipped,
        };
        for encoding in Encoding::ALL {
            let mut written = Vec::new();
            prop_assert_eq!(encode_push(encoding, &push, &mut written), Ok(()));
            prop_assert_eq!(read_reply(encoding, &written), without_empty(&meaning));
        }
    }

    /// Publications for a subscription with deltas, whole or as a patch, with the channel's number.
    #[test]
    fn deltas_are_encoded_with_their_meaning(
        number in 1..=i64::MAX.cast_unsigned(),
        publication in message("Publication"),
        patch in proptest::option::of(".{1,60}"),
    ) {
        let mut meaning = publication;
        let publication = reader(true).publication(&meaning);
        let bytes = patch.clone().unwrap_or_else(|| text(&meaning["data"]).to_owned());
        if patch.is_some() {
            meaning["delta"] = json!(true);
        }
        let data = patch.as_ref().map_or(DataForm::Whole, |patch| DataForm::Patch(patch.as_bytes()));
        let push = Push::Publication { channel: ChannelRef::Number(number), publication: &publication, data, skipped: 0 };
        for encoding in Encoding::ALL {
            let mut written = Vec::new();
            prop_assert_eq!(encode_push(encoding, &push, &mut written), Ok(()));
            // In JSON, the bytes are the content of a string.
            let is_json = encoding == Encoding::Json;
            meaning["data"] = if is_json { json!(json!(bytes).to_string()) } else { json!(bytes) };
            let meaning = json!({"push": {"id": number, "pub": meaning}});
            prop_assert_eq!(read_reply(encoding, &written), without_empty(&meaning));
        }
    }
}

fn reader(opaque: bool) -> Reader {
    Reader { make_payload: if opaque { Payload::from_opaque } else { Payload::from_json } }
}

fn write_frame(encoding: Encoding, message: &str, meanings: &[Value]) -> Vec<u8> {
    match encoding {
        Encoding::Json => meanings.iter().map(to_json).collect::<Vec<_>>().join("\n").into_bytes(),
        Encoding::Protobuf => meanings.iter().fold(Vec::new(), |mut frame, meaning| {
            let bytes = schema::encode(message, meaning);
            schema::varint(bytes.len() as u64, &mut frame);
            frame.extend(bytes);
            frame
        }),
    }
}

/// The JSON text of a message, with its payloads embedded unchanged.
fn to_json(meaning: &Value) -> String {
    let Some(fields) = meaning.as_object() else { return meaning.to_string() };
    let fields = fields.iter().map(|(name, value)| {
        let value = if is_payload(name) { text(value).to_owned() } else { to_json(value) };
        format!("{}: {value}", json!(name))
    });
    format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
}

fn is_payload(name: &str) -> bool {
    matches!(name, "data" | "conn_info" | "chan_info")
}

/// Reads a frame. Stops after each command whose bit is set, and continues with the rest.
fn read_in_sittings(encoding: Encoding, frame: &[u8], sittings: u8) -> Vec<Value> {
    let mut meanings = Vec::new();
    let mut commands = Commands::new(encoding, frame);
    while let Some(command) = commands.next() {
        meanings.push(meaning::of_command(&command.expect("a command")));
        let rest = commands.rest();
        if !rest.is_empty() && sittings >> (meanings.len() % 8) & 1 == 1 {
            commands = Commands::new(encoding, rest);
        }
    }
    meanings
}

fn read_reply(encoding: Encoding, written: &[u8]) -> Value {
    let read = match encoding {
        Encoding::Json => payloads_as_text(serde_json::from_slice(written).expect("JSON")),
        Encoding::Protobuf => {
            let mut rest = written;
            let message = schema::read_bytes(&mut rest);
            assert_eq!(rest, b"");
            schema::decode("Reply", message)
        }
    };
    without_empty(&read)
}

/// Converts payloads from JSON values to text. They were compact JSON texts, so the result is identical.
fn payloads_as_text(mut value: Value) -> Value {
    let turn = |(name, field): (String, Value)| {
        let field = if is_payload(&name) { Value::String(field.to_string()) } else { payloads_as_text(field) };
        (name, field)
    };
    match &mut value {
        Value::Object(fields) => std::mem::take(fields).into_iter().map(turn).collect::<Map<_, _>>().into(),
        Value::Array(items) => std::mem::take(items).into_iter().map(payloads_as_text).collect(),
        _ => value,
    }
}

/// Removes zero values and empty lists and maps, which an encoding may omit. Empty messages stay, because their
/// presence is significant.
fn without_empty(message: &Value) -> Value {
    without_empty_in(message, "")
}

fn without_empty_in(value: &Value, parent: &str) -> Value {
    let is_empty = |name: &str, field: &Value| match field {
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_i64() == Some(0),
        Value::Bool(set) => !set,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => {
            fields.is_empty() && (matches!(name, "tags" | "subs") || (name, parent) == ("presence", "presence"))
        }
        Value::Null => true,
    };
    match value {
        Value::Object(fields) => fields
            .iter()
            .filter(|(name, field)| !is_empty(name, field))
            .map(|(name, field)| (name.clone(), without_empty_in(field, name)))
            .collect::<Map<_, _>>()
            .into(),
        Value::Array(items) => items.iter().map(|item| without_empty_in(item, parent)).collect(),
        _ => value.clone(),
    }
}

/// A command with one request or none.
fn command() -> impl Strategy<Value = Value> {
    (any::<u32>(), proptest::option::of(one_of_the_messages("Command"))).prop_map(|(id, request)| {
        let mut command = request.unwrap_or_else(|| json!({}));
        if id > 0 {
            command["id"] = json!(id);
        }
        command
    })
}

/// A reply without its id. Another test covers pushes.
fn reply() -> impl Strategy<Value = Value> {
    one_of_the_messages("Reply").prop_filter("a push", |reply| reply.get("push").is_none())
}

fn one_of_the_messages(message: &'static str) -> impl Strategy<Value = Value> {
    let fields = schema::fields(message).iter().filter(|(_, name, _)| !matches!(*name, "id" | "channel"));
    let fields = fields.map(|(_, name, kind)| value(name, *kind).prop_map(move |value| json!({*name: value})).boxed());
    proptest::strategy::Union::new(fields.collect::<Vec<_>>())
}

/// A message in which each field is set or not.
fn message(name: &'static str) -> BoxedStrategy<Value> {
    if name == "Error" {
        return proptest::sample::select(ErrorCode::ALL).prop_map(of_error).boxed();
    }
    let mut strategy = Just(Map::new()).boxed();
    for (_, field, kind) in schema::fields(name) {
        let set = proptest::option::of(value(field, *kind));
        // Every publication has a payload; everything else may be absent.
        let set = if name == "Publication" && *field == "data" {
            value(field, *kind).prop_map(Some).boxed()
        } else {
            set.boxed()
        };
        strategy = (strategy, set)
            .prop_map(|(mut fields, value)| {
                fields.extend(value.map(|value| ((*field).to_owned(), value)));
                fields
            })
            .boxed();
    }
    strategy.prop_map(move |fields| possible(name, fields)).boxed()
}

fn value(field: &'static str, kind: Kind) -> BoxedStrategy<Value> {
    match kind {
        Kind::U32 => (1..=u32::MAX).prop_map(Value::from).boxed(),
        Kind::U64 => (1..=u64::MAX).prop_map(Value::from).boxed(),
        Kind::I32 => any::<i32>().prop_filter("zero", |number| *number != 0).prop_map(Value::from).boxed(),
        Kind::I64 => any::<i64>().prop_filter("zero", |number| *number != 0).prop_map(Value::from).boxed(),
        Kind::Bool => Just(json!(true)).boxed(),
        Kind::Text => ".{1,20}".prop_map(Value::from).boxed(),
        Kind::Payload => payload().prop_map(Value::from).boxed(),
        Kind::One(name) => message(name),
        Kind::List(name) => vec(message(name), 1..3).prop_map(Value::from).boxed(),
        Kind::TextMap => btree_map(".{0,6}", ".{0,6}", 1..4).prop_map(|map| json!(map)).boxed(),
        Kind::Map(name) => btree_map(".{0,6}", message(name), 1..3)
            .prop_map(move |mut map| {
                // The map of presence is keyed by each entry's client id.
                for (key, info) in map.iter_mut().filter(|_| field == "presence") {
                    info["client"] = json!(key);
                }
                json!(map)
            })
            .boxed(),
    }
}

/// The compact text of a JSON value.
fn payload() -> impl Strategy<Value = String> {
    let text = ".{0,20}".prop_map(Value::from);
    prop_oneof![
        text.clone(),
        any::<i64>().prop_map(Value::from),
        Just(Value::Null),
        vec(any::<bool>(), 0..4).prop_map(Value::from),
        btree_map(".{0,5}", text, 0..3).prop_map(|map| json!(map)),
    ]
    .prop_map(|value| value.to_string())
}

/// Corrects messages that the crate's types cannot represent.
fn possible(message: &str, mut fields: Map<String, Value>) -> Value {
    if !fields.contains_key("expires") {
        fields.remove("ttl");
    }
    // A separate test covers deltas.
    if matches!(message, "Publication" | "SubscribeResult") {
        fields.remove("delta");
    }
    if let Some(id) = fields.get_mut("id").filter(|_| message == "SubscribeResult") {
        *id = json!(id.as_i64().unwrap_or_default().unsigned_abs().max(1));
    }
    if message == "Disconnect" {
        let code = fields.get("code").and_then(Value::as_u64).unwrap_or_default() as u16;
        let disconnect = Disconnect { code, reason: "".into() };
        fields.insert("code".into(), json!(code));
        fields.insert("reconnect".into(), json!(disconnect.reconnects()));
    }
    Value::Object(fields)
}

fn of_error(error: ErrorCode) -> Value {
    json!({"code": error.code(), "message": error.message(), "temporary": error.temporary()})
}
