//! Parses the bytes that a client receives, and encodes its commands.

use dunlin_engine::Wire;
use dunlin_protocol::Encoding;
use dunlin_websocket::{MessageKind, WebSocketLimits, deflate::Inflater};
use serde_json::{Value, json};

use super::schema;

/// A frame with these commands, each a JSON object.
pub fn commands(encoding: Encoding, commands: &[Value]) -> Vec<u8> {
    match encoding {
        Encoding::Json => commands.iter().map(Value::to_string).collect::<Vec<_>>().join("\n").into_bytes(),
        Encoding::Protobuf => {
            let mut frame = Vec::new();
            for command in commands {
                let message = schema::encode("Command", command);
                schema::varint(message.len() as u64, &mut frame);
                frame.extend_from_slice(&message);
            }
            frame
        }
    }
}

/// A parsed frame.
pub enum Came {
    Message(Value),
    Close(String),
    Pong(String),
}

/// Removes the complete frames, or chunks of a response, from the front of `received`.
pub fn take(wire: Wire, received: &mut Vec<u8>) -> Vec<Came> {
    if wire.is_websocket() { take_frames(wire.encoding(), received) } else { take_chunks(wire, received) }
}

fn take_chunks(wire: Wire, received: &mut Vec<u8>) -> Vec<Came> {
    let mut came = Vec::new();
    while let Some(line_end) = received.windows(2).position(|pair| pair == b"\r\n") {
        let length = std::str::from_utf8(&received[..line_end]).expect("a length");
        let length = usize::from_str_radix(length, 16).expect("a length");
        let (start, end) = (line_end + 2, line_end + 2 + length);
        if received.len() < end + 2 {
            break;
        }
        let chunk = received[start..end].to_vec();
        received.drain(..end + 2);
        match wire {
            _ if chunk.is_empty() => came.push(Came::Close("of the response".into())),
            Wire::HttpStreamProtobuf => {
                let mut rest = &*chunk;
                while !rest.is_empty() {
                    came.push(Came::Message(schema::decode("Reply", schema::read_bytes(&mut rest))));
                }
            }
            _ => {
                let text = std::str::from_utf8(&chunk).expect("UTF-8");
                let message = if matches!(wire, Wire::Sse | Wire::UniSse) {
                    text.strip_prefix("data: ").and_then(|text| text.strip_suffix("\n\n")).expect("an event")
                } else {
                    text.strip_suffix('\n').expect("a line")
                };
                came.push(Came::Message(serde_json::from_str(message).expect("JSON")));
            }
        }
    }
    came
}

fn take_frames(encoding: Encoding, received: &mut Vec<u8>) -> Vec<Came> {
    let mut came = Vec::new();
    while let Some((opcode, payload_start, payload_end)) = frame(received) {
        let payload = &received[payload_start..payload_end];
        match (opcode, encoding) {
            (0x81, Encoding::Json) => {
                let text = std::str::from_utf8(payload).expect("UTF-8");
                came.extend(text.split('\n').map(|line| Came::Message(serde_json::from_str(line).expect("JSON"))));
            }
            // Marked as compressed, because otherwise no test would notice the compression.
            (0xc1, Encoding::Json) => {
                let mut inflater = Inflater::default();
                let message =
                    inflater.inflate(MessageKind::Text, payload, &WebSocketLimits::default()).expect("deflated");
                let message: Value = serde_json::from_slice(message).expect("JSON");
                came.push(Came::Message(json!({ "deflated": message })));
            }
            (0x82, Encoding::Protobuf) => {
                let mut rest = payload;
                while !rest.is_empty() {
                    came.push(Came::Message(schema::decode("Reply", schema::read_bytes(&mut rest))));
                }
            }
            (0x88, _) => {
                let (code, reason) = payload.split_at(payload.len().min(2));
                let code = code.iter().fold(0_u32, |code, byte| code << 8 | u32::from(*byte));
                came.push(Came::Close(format!("{code} {}", String::from_utf8_lossy(reason))));
            }
            (0x89, _) => came.push(Came::Message(json!({ "frame": "ping" }))),
            (0x8a, _) => came.push(Came::Pong(String::from_utf8_lossy(payload).into_owned())),
            (opcode, _) => panic!("opcode {opcode:#x} to a {} session", encoding.name()),
        }
        received.drain(..payload_end);
    }
    came
}

/// First byte, start and end of the payload of the first frame, if it is complete.
pub fn frame(bytes: &[u8]) -> Option<(u8, usize, usize)> {
    let (&opcode, &short) = (bytes.first()?, bytes.get(1)?);
    let (start, length) = match short {
        126 => (4, bytes.get(2..4)?.iter().fold(0, |length, byte| length << 8 | usize::from(*byte))),
        127 => (10, bytes.get(2..10)?.iter().fold(0, |length, byte| length << 8 | usize::from(*byte))),
        short => (2, usize::from(short)),
    };
    (bytes.len() >= start + length).then_some((opcode, start, start + length))
}
