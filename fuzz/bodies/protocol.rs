//! Bodies of the fuzz targets, which unit tests run over the committed corpus. A violated invariant is a failed
//! assertion.

use bytes::Bytes;
use dunlin_protocol::{Command, Commands, DataForm, Encoding, Payload, Publication, Push, Request, encode_push};

/// Any text frame.
pub fn json(frame: &[u8]) {
    play(Encoding::Json, frame);
}

/// Any binary frame.
pub fn protobuf(frame: &[u8]) {
    play(Encoding::Protobuf, frame);
}

fn play(encoding: Encoding, frame: &[u8]) {
    let at_once: Vec<_> = Commands::new(encoding, frame).collect();
    assert!(!at_once.is_empty(), "even an empty frame has a result");
    assert!(at_once.len() <= frame.len() + 1, "a message takes at least a byte");
    assert!(at_once.iter().rev().skip(1).all(Result::is_ok), "nothing comes after an error");

    let left_off_after = frame.last().map_or(0, |byte| usize::from(*byte) % at_once.len());
    let mut commands = Commands::new(encoding, frame);
    for expected in at_once.iter().take(left_off_after) {
        assert_eq!(commands.next().as_ref(), Some(expected));
    }
    let rest = commands.rest();
    assert!(frame.ends_with(rest));
    assert!(commands.eq(Commands::new(encoding, rest)), "the rest means the same later");

    for command in at_once.iter().flatten() {
        check_command(encoding, frame, command);
    }
}

fn check_command(encoding: Encoding, frame: &[u8], command: &Command<'_>) {
    if let Some(Request::Connect(connect)) = &command.request {
        assert!(connect.subs.len() <= frame.len() / 2, "an entry takes at least two bytes");
        assert!(connect.subs.is_sorted_by(|(one, _), (next, _)| one < next), "each channel comes once");
    }
    let data = match &command.request {
        Some(Request::Connect(connect)) => connect.data,
        Some(Request::Subscribe(subscribe)) => subscribe.data,
        Some(Request::Publish(publish)) => publish.data,
        Some(Request::Send { data }) => *data,
        Some(Request::Rpc(rpc)) => rpc.data,
        _ => None,
    };
    if let Some(data) = data {
        check_payload(encoding, data);
    }
}

/// What came as JSON goes out as JSON, on one line; what came as bytes goes out as JSON only if it is JSON.
fn check_payload(encoding: Encoding, data: &[u8]) {
    let bytes = Bytes::copy_from_slice(data);
    let data = match encoding {
        Encoding::Json => Payload::from_json(bytes),
        Encoding::Protobuf => Payload::from_opaque(bytes),
    };
    let publication =
        Publication { data, info: None, offset: 1, tags: Vec::new(), time_ms: 0, epoch: Box::default(), version: 0 };
    let push =
        Push::Publication { channel: "fuzz".into(), publication: &publication, data: DataForm::Plain, skipped: 0 };
    let mut written = Vec::new();
    let outcome = encode_push(Encoding::Json, &push, &mut written);
    assert!(outcome.is_ok() || encoding == Encoding::Protobuf);
    assert_eq!(outcome.is_ok(), !written.is_empty());
    if outcome.is_ok() {
        assert!(!written.contains(&b'\n'));
        let message: Result<serde::de::IgnoredAny, _> = serde_json::from_slice(&written);
        assert!(message.is_ok() && str::from_utf8(&written).is_ok());
    }
}
