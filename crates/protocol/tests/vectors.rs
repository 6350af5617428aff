//! The vectors of `schema/vectors/protocol`: decodes commands, encodes replies and pushes.

use bytes::Bytes;
use dunlin_protocol::{
    ChannelRef, Commands, DataForm, Encoding, FilterLimits, NotJson, Payload, Push, Reply, Request, TagsFilter,
    encode_push, encode_reply, ping_message,
};
use serde_json::Value;

use crate::meaning::{self, Reader, text};

#[test]
fn commands() {
    assert_eq!(check_commands(include_str!("../../../schema/vectors/protocol/commands.json")), 88);
}

#[test]
fn lenient_commands() {
    assert_eq!(check_commands(include_str!("../../../schema/vectors/protocol/commands-lenient.json")), 63);
}

#[test]
fn malformed_commands() {
    assert_eq!(check_commands(include_str!("../../../schema/vectors/protocol/commands-malformed.json")), 112);
}

#[test]
fn replies() {
    assert_eq!(check_replies(include_str!("../../../schema/vectors/protocol/replies.json")), 63);
}

#[test]
fn pushes() {
    assert_eq!(check_replies(include_str!("../../../schema/vectors/protocol/pushes.json")), 93);
}

fn vectors(file: &str) -> Vec<Value> {
    let file: Value = serde_json::from_str(file).expect("a vector file is JSON");
    file["vectors"].as_array().expect("a list of vectors").clone()
}

/// Decodes every frame and returns the number of vectors.
fn check_commands(file: &str) -> usize {
    let vectors = vectors(file);
    for vector in &vectors {
        let frames = Encoding::ALL.into_iter().filter_map(|encoding| Some((encoding, frame(vector, encoding)?)));
        let frames = frames.collect::<Vec<_>>();
        assert!(!frames.is_empty(), "{}: no frame", vector["name"]);
        check_filters(vector, &frames);
        for (encoding, frame) in frames {
            check_frame(vector, encoding, &frame);
            check_frame_in_parts(encoding, &frame);
        }
    }
    vectors.len()
}

/// A tags filter is the same in both encodings.
fn check_filters(vector: &Value, frames: &[(Encoding, Vec<u8>)]) {
    if vector["meaning"][0]["subscribe"]["tf"].as_object().is_none_or(serde_json::Map::is_empty) {
        return;
    }
    let limits = FilterLimits { bytes_max: 1_000, nodes_max: 10, depth_max: 5 };
    let filter_of = |(encoding, frame): &(Encoding, Vec<u8>)| {
        let command = Commands::new(*encoding, frame).next().expect("a command").expect("a command");
        let Some(Request::Subscribe(subscribe)) = command.request else { panic!("{}: no subscribe", vector["name"]) };
        TagsFilter::parse(*encoding, subscribe.tags_filter.expect("a filter"), &limits).expect("a filter")
    };
    let filters: Vec<TagsFilter> = frames.iter().map(filter_of).collect();
    assert!(filters.windows(2).all(|pair| pair[0] == pair[1]), "{}: {filters:?}", vector["name"]);
}

/// The frame of a vector in `encoding`, if there is one.
fn frame(vector: &Value, encoding: Encoding) -> Option<Vec<u8>> {
    match encoding {
        Encoding::Json if vector.get("json_hex").is_some() => Some(meaning::unhex(text(&vector["json_hex"]))),
        Encoding::Json => vector["json"].as_str().map(|frame| frame.as_bytes().to_vec()),
        Encoding::Protobuf => vector["protobuf"].as_str().map(meaning::unhex),
    }
}

fn check_frame(vector: &Value, encoding: Encoding, frame: &[u8]) {
    let name = format!("{} in {}", vector["name"], encoding.name());
    let mut commands = Commands::new(encoding, frame);
    for (index, expected) in vector["meaning"].as_array().expect("a list of commands").iter().enumerate() {
        let chosen = vector["chosen"][index].as_str();
        let command = commands.next().expect(&name).expect(&name);
        assert_eq!(meaning::of_command(&command), meaning::as_read(expected, chosen), "{name}");
    }
    if let Some(error) = vector.get("error") {
        assert_eq!(commands.next().expect(&name).expect_err(&name).what, text(error), "{name}");
    }
    assert_eq!(commands.next(), None, "{name}");
    assert_eq!(commands.rest(), b"", "{name}");
}

/// Checks that decoding a frame with an interruption gives the same commands as decoding it at once.
fn check_frame_in_parts(encoding: Encoding, frame: &[u8]) {
    let at_once = Commands::new(encoding, frame).collect::<Vec<_>>();
    let mut in_parts = Vec::new();
    let mut rest = frame;
    loop {
        let mut commands = Commands::new(encoding, rest);
        in_parts.extend(commands.next());
        rest = commands.rest();
        if rest.is_empty() {
            break;
        }
    }
    assert_eq!(at_once, in_parts);
}

/// Encodes every meaning and returns the number of vectors.
fn check_replies(file: &str) -> usize {
    let vectors = vectors(file);
    for vector in &vectors {
        for encoding in Encoding::ALL {
            check_encoded(vector, encoding, &Reader { make_payload: Payload::from_opaque });
            if !vector["json"].is_null() {
                check_encoded(vector, encoding, &Reader { make_payload: Payload::from_json });
            }
        }
    }
    vectors.len()
}

fn check_encoded(vector: &Value, encoding: Encoding, reader: &Reader) {
    let name = format!("{} in {}", vector["name"], encoding.name());
    let mut written = b"what is there stays".to_vec();
    let before = written.len();
    let mut outcome = Ok(());
    for (index, message) in vector["meaning"].as_array().expect("a list of replies").iter().enumerate() {
        if index > 0 && encoding == Encoding::Json {
            written.push(b'\n');
        }
        outcome = outcome.and(encode(message, vector, encoding, reader, &mut written));
    }
    assert_eq!(&written[..before], b"what is there stays", "{name}");
    match frame(vector, encoding) {
        Some(frame) => {
            assert_eq!(outcome, Ok(()), "{name}");
            assert_eq!(readable(encoding, &written[before..]), readable(encoding, &frame), "{name}");
        }
        None => assert_eq!((outcome, written.len()), (Err(NotJson), before), "{name}"),
    }
}

fn readable(encoding: Encoding, frame: &[u8]) -> String {
    match encoding {
        Encoding::Json => String::from_utf8_lossy(frame).into_owned(),
        Encoding::Protobuf => meaning::hex(frame),
    }
}

fn encode(
    message: &Value,
    vector: &Value,
    encoding: Encoding,
    reader: &Reader,
    out: &mut Vec<u8>,
) -> Result<(), NotJson> {
    if let Some((id, mut reply)) = reader.reply(message) {
        if message["subscribe"]["delta"] == true {
            let subscribe = reader.subscribe_with_delta(&message["subscribe"], |data| written(encoding, data));
            reply = Reply::Subscribe(Box::new(subscribe));
        }
        return encode_reply(encoding, id, &reply, out);
    }
    let Some(push) = message.get("push") else {
        out.extend_from_slice(ping_message(encoding));
        return Ok(());
    };
    let skipped = vector["skipped"].as_u64().unwrap_or_default() as u32;
    encode_one_push(push, skipped, encoding, reader, out)
}

/// The bytes to encode for data that is a JSON string in the meaning. In JSON, they are encoded to that string again.
fn written(encoding: Encoding, data: &Payload) -> Vec<u8> {
    match encoding {
        Encoding::Json => {
            serde_json::from_slice::<String>(data.bytes()).map_or_else(|_| data.bytes().to_vec(), String::into_bytes)
        }
        Encoding::Protobuf => data.bytes().to_vec(),
    }
}

fn encode_one_push(
    push: &Value,
    skipped: u32,
    encoding: Encoding,
    reader: &Reader,
    out: &mut Vec<u8>,
) -> Result<(), NotJson> {
    let channel = text(&push["channel"]);
    let of = push["id"].as_u64().map_or(ChannelRef::Name(channel), ChannelRef::Number);
    let is_body = |name: &str| name != "channel" && name != "id";
    let (name, body) = push.as_object().and_then(|push| push.iter().find(|(name, _)| is_body(name))).expect("a push");
    match name.as_str() {
        "pub" => {
            let mut publication = reader.publication(body);
            publication.tags.retain(|(key, _)| skipped == 0 || &**key != "skipped");
            let bytes = written(encoding, &publication.data);
            let data = match body["delta"].as_bool() {
                None => DataForm::Plain,
                Some(false) => DataForm::Whole,
                Some(true) => DataForm::Patch(&bytes),
            };
            if data == DataForm::Whole {
                publication.data = (reader.make_payload)(bytes.clone().into());
            }
            encode_push(encoding, &Push::Publication { channel: of, publication: &publication, data, skipped }, out)
        }
        "join" => encode_push(encoding, &Push::Join { channel: of, info: &reader.client_info(&body["info"]) }, out),
        "leave" => encode_push(encoding, &Push::Leave { channel: of, info: &reader.client_info(&body["info"]) }, out),
        "unsubscribe" => {
            let code = meaning::unsubscribe_code(body);
            encode_push(encoding, &Push::Unsubscribe { channel, code, reason: text(&body["reason"]) }, out)
        }
        "message" => {
            let data = reader.payload(&body["data"]).unwrap_or_else(|| Payload::from_opaque(Bytes::new()));
            encode_push(encoding, &Push::Message { data: &data }, out)
        }
        "subscribe" => encode_push(encoding, &Push::Subscribe { channel, result: &reader.subscribe(body) }, out),
        "disconnect" => encode_push(encoding, &Push::Disconnect { disconnect: &meaning::disconnect(body) }, out),
        "refresh" => encode_push(encoding, &Push::Refresh { ttl_s: meaning::ttl_s(body) }, out),
        other => panic!("no such push: {other}"),
    }
}
