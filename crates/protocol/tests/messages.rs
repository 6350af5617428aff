//! Basic messages in both encodings, written by hand.

use std::sync::Arc;

use bytes::Bytes;
use dunlin_protocol::{
    Command, Commands, DataForm, Encoding, ErrorCode, PUBLICATION_TAILS, Payload, Publication, Push, Reply, Request,
    Tags, encode_push, encode_reply, publication_head,
};

fn decode(encoding: Encoding, frame: &[u8]) -> Vec<Option<Command<'_>>> {
    Commands::new(encoding, frame).map(Result::ok).collect()
}

#[test]
fn a_connect_and_a_pong_in_json() {
    let commands = decode(Encoding::Json, b"{\"id\":1,\"connect\":{\"name\":\"js\",\"data\": {\"a\":[1]} }}\n{}\n");
    let [Some(connect), Some(pong)] = commands.as_slice() else { panic!("{commands:?}") };
    assert_eq!(connect.id, 1);
    let Some(Request::Connect(request)) = &connect.request else { panic!("{connect:?}") };
    assert_eq!(request.name, "js");
    assert_eq!(request.data, Some(b"{\"a\":[1]}".as_slice()));
    assert_eq!(*pong, Command { id: 0, request: None });
}

#[test]
fn a_subscribe_and_a_pong_in_protobuf() {
    let commands = decode(Encoding::Protobuf, b"\x09\x08\x02\x2a\x05\x0a\x01c\x70\x01\x00");
    let [Some(subscribe), Some(pong)] = commands.as_slice() else { panic!("{commands:?}") };
    let Some(Request::Subscribe(request)) = &subscribe.request else { panic!("{subscribe:?}") };
    assert_eq!((subscribe.id, &*request.channel, request.flag.wants_compaction()), (2, "c", true));
    assert_eq!(*pong, Command { id: 0, request: None });
}

#[test]
fn a_publication_and_an_error() {
    let publication = Publication {
        data: Payload::from_json(Bytes::from_static(b"{\n\"a\": 1}")),
        info: None,
        offset: 7,
        tags: vec![("k".into(), "v".into())],
        time_ms: 0,
        epoch: Box::default(),
        version: 0,
    };
    let push = Push::Publication {
        channel: "c".into(),
        publication: &Arc::new(publication),
        data: DataForm::Plain,
        skipped: 12,
    };
    let mut json = Vec::new();
    encode_push(Encoding::Json, &push, &mut json).unwrap();
    assert_eq!(
        String::from_utf8(json).unwrap(),
        r#"{"push":{"channel":"c","pub":{"data":{"a": 1},"offset":7,"tags":{"k":"v","skipped":"12"}}}}"#
    );
    let mut protobuf = Vec::new();
    encode_push(Encoding::Protobuf, &push, &mut protobuf).unwrap();
    assert_eq!(
        protobuf,
        b"\x2b\x22\x29\x12\x01c\x22\x24\x22\x09{\n\"a\": 1}\x30\x07\x3a\x06\x0a\x01k\x12\x01v\x3a\x0d\x0a\x07skipped\x12\x0212"
    );
    let mut error = Vec::new();
    encode_reply(Encoding::Json, 3, &Reply::Error(ErrorCode::Internal), &mut error).unwrap();
    assert_eq!(error, br#"{"id":3,"error":{"code":100,"message":"internal server error","temporary":true}}"#);
}

#[test]
fn parts_of_a_publication_concatenate_to_the_whole() {
    for data_bytes in [1, 2, 125, 126, 127, 128, 16_383, 16_384, 100_000] {
        for channel in ["c", "arena:with \"quotes\" and \u{fc}", &"n".repeat(200)] {
            let data = vec![b'7'; data_bytes];
            for encoding in Encoding::ALL {
                let publication = Publication {
                    data: Payload::from_json(Bytes::from(data.clone())),
                    info: None,
                    offset: 0,
                    tags: Tags::new(),
                    time_ms: 0,
                    epoch: Box::default(),
                    version: 0,
                };
                let mut whole = Vec::new();
                let push = Push::Publication {
                    channel: channel.into(),
                    publication: &publication,
                    data: DataForm::Plain,
                    skipped: 0,
                };
                encode_push(encoding, &push, &mut whole).unwrap();
                let mut parts = Vec::new();
                publication_head(encoding, channel, data_bytes, &mut parts);
                parts.extend_from_slice(&data);
                parts.extend_from_slice(PUBLICATION_TAILS[encoding.index()]);
                assert!(parts == whole, "{data_bytes} bytes in {channel}, {}", encoding.name());
            }
        }
    }
}
