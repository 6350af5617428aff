//! The messages of clients: the upgrade request and the few commands that a load needs, encoded by hand.
//!
//! Field numbers: `centrifugal/protocol`, `definitions/client.proto` (Command: id 1, connect 4, subscribe 5, publish 7,
//! send 12).

use serde::{Deserialize, Serialize};

/// The two encodings of the client protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum EncodingOption {
    /// Text frames, messages joined with a newline.
    Json,
    /// Binary frames, messages prefixed with their length as a varint.
    Protobuf,
}

impl EncodingOption {
    /// The corresponding encoding of `dunlin_protocol`.
    pub fn of_rooms(self) -> dunlin_protocol::Encoding {
        match self {
            EncodingOption::Json => dunlin_protocol::Encoding::Json,
            EncodingOption::Protobuf => dunlin_protocol::Encoding::Protobuf,
        }
    }
}

/// Id of the connect command.
pub const CONNECT_ID: u32 = 1;
/// Id of the subscribe command.
pub const SUBSCRIBE_ID: u32 = 2;

/// The HTTP request that opens a session (RFC 6455, section 4.1). The key is constant, because nothing depends on it
/// here.
pub fn upgrade_request(host: &str, path: &str, encoding: EncodingOption) -> Vec<u8> {
    let subprotocol = match encoding {
        EncodingOption::Json => "",
        EncodingOption::Protobuf => "Sec-WebSocket-Protocol: centrifuge-protobuf\r\n",
    };
    format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: ZHVubGluLWJlbmNoLWtleQ==\r\n{subprotocol}\r\n"
    )
    .into_bytes()
}

/// Connect, and subscribe to `channel` if one is given, in one frame; `join` is the data of the subscription, a JSON
/// document.
pub fn hello(encoding: EncodingOption, channel: Option<&str>, join: Option<&str>) -> Vec<u8> {
    let mut messages = Vec::new();
    match encoding {
        EncodingOption::Json => {
            messages.extend_from_slice(format!(r#"{{"id":{CONNECT_ID},"connect":{{"name":"bench"}}}}"#).as_bytes());
            if let Some(channel) = channel {
                let data = join.map(|join| format!(",\"data\":{join}")).unwrap_or_default();
                let subscribe =
                    format!("\n{{\"id\":{SUBSCRIBE_ID},\"subscribe\":{{\"channel\":\"{channel}\"{data}}}}}");
                messages.extend_from_slice(subscribe.as_bytes());
            }
        }
        EncodingOption::Protobuf => {
            let mut connect = Vec::new();
            push_field(&mut connect, 4, b"bench");
            push_command(&mut messages, CONNECT_ID, 4, &connect);
            if let Some(channel) = channel {
                let mut subscribe = Vec::new();
                push_field(&mut subscribe, 1, channel.as_bytes());
                if let Some(join) = join {
                    push_field(&mut subscribe, 8, join.as_bytes());
                }
                push_command(&mut messages, SUBSCRIBE_ID, 5, &subscribe);
            }
        }
    }
    frame(encoding, &messages)
}

/// Subscriptions in one frame, which is then shorter than any server's limit.
const SUBSCRIPTIONS_PER_FRAME: usize = 100;

/// Connect, and subscribe to all these channels. Each command has one answer.
pub fn hello_to(encoding: EncodingOption, channels: &[String]) -> Vec<u8> {
    let mut frames = hello(encoding, None, None);
    for (at, some) in channels.chunks(SUBSCRIPTIONS_PER_FRAME).enumerate() {
        let mut messages = Vec::new();
        for (number, channel) in some.iter().enumerate() {
            let id = SUBSCRIBE_ID + (at * SUBSCRIPTIONS_PER_FRAME + number) as u32;
            match encoding {
                EncodingOption::Json => {
                    let separator = if number == 0 { "" } else { "\n" };
                    let command = format!(r#"{separator}{{"id":{id},"subscribe":{{"channel":"{channel}"}}}}"#);
                    messages.extend_from_slice(command.as_bytes());
                }
                EncodingOption::Protobuf => {
                    let mut subscribe = Vec::new();
                    push_field(&mut subscribe, 1, channel.as_bytes());
                    push_command(&mut messages, id, 5, &subscribe);
                }
            }
        }
        frames.extend(frame(encoding, &messages));
    }
    frames
}

/// Connect, and subscribe to `channel` with a recovery of the publications after `offset`.
pub fn hello_again(encoding: EncodingOption, channel: &str, epoch: &str, offset: u64) -> Vec<u8> {
    let mut messages = Vec::new();
    match encoding {
        EncodingOption::Json => {
            let connect = format!(r#"{{"id":{CONNECT_ID},"connect":{{"name":"bench"}}}}"#);
            let place = format!(r#""recover":true,"epoch":"{epoch}","offset":{offset}"#);
            let subscribe = format!(r#"{{"id":{SUBSCRIBE_ID},"subscribe":{{"channel":"{channel}",{place}}}}}"#);
            messages.extend_from_slice(format!("{connect}\n{subscribe}").as_bytes());
        }
        EncodingOption::Protobuf => {
            let mut connect = Vec::new();
            push_field(&mut connect, 4, b"bench");
            push_command(&mut messages, CONNECT_ID, 4, &connect);
            let mut subscribe = Vec::new();
            push_field(&mut subscribe, 1, channel.as_bytes());
            // SubscribeRequest: recover 3, epoch 6, offset 7.
            subscribe.extend_from_slice(&[3 << 3, 1]);
            push_field(&mut subscribe, 6, epoch.as_bytes());
            subscribe.push(7 << 3);
            push_varint(&mut subscribe, usize::try_from(offset).unwrap_or(usize::MAX));
            push_command(&mut messages, SUBSCRIBE_ID, 5, &subscribe);
        }
    }
    frame(encoding, &messages)
}

/// A publish command in a separate frame.
pub fn publish(encoding: EncodingOption, id: u32, channel: &str, payload: &[u8]) -> Vec<u8> {
    let mut messages = Vec::with_capacity(payload.len() + channel.len() + 48);
    match encoding {
        EncodingOption::Json => {
            let head = format!(r#"{{"id":{id},"publish":{{"channel":"{channel}","data":"#);
            messages.extend_from_slice(head.as_bytes());
            messages.extend_from_slice(payload);
            messages.extend_from_slice(b"}}");
        }
        EncodingOption::Protobuf => {
            let mut publish = Vec::new();
            push_field(&mut publish, 1, channel.as_bytes());
            push_field(&mut publish, 2, payload);
            push_command(&mut messages, id, 7, &publish);
        }
    }
    frame(encoding, &messages)
}

/// A send command, which has no reply, in a separate frame.
pub fn send(encoding: EncodingOption, data: &[u8]) -> Vec<u8> {
    let mut messages = Vec::with_capacity(data.len() + 32);
    match encoding {
        EncodingOption::Json => {
            messages.extend_from_slice(br#"{"send":{"data":"#);
            messages.extend_from_slice(data);
            messages.extend_from_slice(b"}}");
        }
        EncodingOption::Protobuf => {
            let mut send = Vec::new();
            push_field(&mut send, 1, data);
            let mut command = Vec::new();
            push_field(&mut command, 12, &send);
            push_varint(&mut messages, command.len());
            messages.extend_from_slice(&command);
        }
    }
    frame(encoding, &messages)
}

/// A text message that contains only `data`.
pub fn text(data: &[u8]) -> Vec<u8> {
    masked_frame(1, data)
}

/// A binary message that contains only `data`.
pub fn bare(data: &[u8]) -> Vec<u8> {
    masked_frame(2, data)
}

/// The answer to a server ping: an empty command.
pub fn pong(encoding: EncodingOption) -> Vec<u8> {
    match encoding {
        EncodingOption::Json => frame(encoding, b"{}"),
        EncodingOption::Protobuf => frame(encoding, &[0]),
    }
}

/// The answer to a WebSocket ping frame (RFC 6455, section 5.5.3).
pub fn websocket_pong(payload: &[u8]) -> Vec<u8> {
    masked_frame(0xa, payload)
}

/// A publication through the HTTP API on a kept-alive connection.
pub fn api_publish(host: &str, key: &str, channel: &str, payload: &[u8]) -> Vec<u8> {
    let head = format!(r#"{{"channel":"{channel}","data":"#);
    let length = head.len() + payload.len() + 1;
    let mut request = format!(
        "POST /api/publish HTTP/1.1\r\nHost: {host}\r\nX-API-Key: {key}\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{head}"
    )
    .into_bytes();
    request.extend_from_slice(payload);
    request.push(b'}');
    request
}

/// The number of bytes of one publication on the wire to one subscriber, as the reference server encodes it (push,
/// channel, data, and the publisher's client id if a client published it). Used for the roofline before a measurement
/// exists.
pub fn delivery_bytes(encoding: EncodingOption, channel: &str, payload_bytes: usize, by_client: bool) -> usize {
    const CLIENT_ID_BYTES: usize = 36;
    let message = match encoding {
        EncodingOption::Json => {
            let info = if by_client { br#","info":{"client":""}"#.len() + CLIENT_ID_BYTES } else { 0 };
            br#"{"push":{"channel":"","pub":{"data":}}}"#.len() + channel.len() + payload_bytes + info
        }
        EncodingOption::Protobuf => {
            let field = |length: usize| 1 + varint_bytes(length) + length;
            let info = if by_client { field(field(CLIENT_ID_BYTES)) } else { 0 };
            let reply = field(field(channel.len()) + field(field(payload_bytes) + info));
            varint_bytes(reply) + reply
        }
    };
    message + if message < 126 { 2 } else { 4 }
}

fn push_command(out: &mut Vec<u8>, id: u32, field: u8, body: &[u8]) {
    let mut command = vec![0x08];
    push_varint(&mut command, id as usize);
    push_field(&mut command, field, body);
    push_varint(out, command.len());
    out.extend_from_slice(&command);
}

fn push_field(out: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    out.push(number << 3 | 2);
    push_varint(out, bytes.len());
    out.extend_from_slice(bytes);
}

fn push_varint(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        out.push(((value & 0x7f) | 0x80) as u8);
        value >>= 7;
    }
    out.push(value as u8);
}

fn varint_bytes(value: usize) -> usize {
    (usize::BITS - (value | 1).leading_zeros()).div_ceil(7) as usize
}

fn frame(encoding: EncodingOption, messages: &[u8]) -> Vec<u8> {
    let opcode = match encoding {
        EncodingOption::Json => 1,
        EncodingOption::Protobuf => 2,
    };
    masked_frame(opcode, messages)
}

/// Clients must mask (RFC 6455, section 5.3). The mask is constant, because masks protect proxies of browsers, and none
/// are involved here.
fn masked_frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];
    const LENGTH_16: u8 = 126;
    const LENGTH_64: u8 = 127;
    let mut out = Vec::with_capacity(payload.len() + 14);
    out.push(0x80 | opcode);
    match payload.len() {
        length @ 0..126 => out.push(0x80 | length as u8),
        length @ 126..=0xffff => {
            out.push(0x80 | LENGTH_16);
            out.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            out.push(0x80 | LENGTH_64);
            out.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(&MASK);
    out.extend(payload.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes a masked frame of less than 126 bytes.
    fn unmask(frame: &[u8]) -> (u8, Vec<u8>) {
        assert_eq!(frame[1] & 0x80, 0x80);
        assert_eq!(frame.len(), 6 + usize::from(frame[1] & 0x7f));
        (frame[0], frame[6..].iter().enumerate().map(|(at, byte)| byte ^ frame[2 + at % 4]).collect())
    }

    #[test]
    fn commands_have_the_documented_bytes() {
        let json = b"{\"id\":1,\"connect\":{\"name\":\"bench\"}}\n{\"id\":2,\"subscribe\":{\"channel\":\"c\"}}";
        assert_eq!(unmask(&hello(EncodingOption::Json, Some("c"), None)), (0x81, json.to_vec()));
        let connect = [0x0b, 0x08, 1, 0x22, 7, 0x22, 5, b'b', b'e', b'n', b'c', b'h'];
        let subscribe = [0x07, 0x08, 2, 0x2a, 3, 0x0a, 1, b'c'];
        assert_eq!(
            unmask(&hello(EncodingOption::Protobuf, Some("c"), None)),
            (0x82, [&connect[..], &subscribe].concat())
        );
        assert_eq!(unmask(&hello(EncodingOption::Protobuf, None, None)), (0x82, connect.to_vec()));
        let json = br#"{"id":7,"publish":{"channel":"c","data":"p"}}"#;
        assert_eq!(unmask(&publish(EncodingOption::Json, 7, "c", br#""p""#)), (0x81, json.to_vec()));
        let protobuf = [0x0b, 0x08, 0x81, 0x01, 0x3a, 6, 0x0a, 1, b'c', 0x12, 1, b'p'];
        assert_eq!(unmask(&publish(EncodingOption::Protobuf, 129, "c", b"p")), (0x82, protobuf.to_vec()));
        let json =
            b"{\"id\":1,\"connect\":{\"name\":\"bench\"}}\n{\"id\":2,\"subscribe\":{\"channel\":\"c\",\"data\":{}}}";
        assert_eq!(unmask(&hello(EncodingOption::Json, Some("c"), Some("{}"))), (0x81, json.to_vec()));
        let subscribe = [0x0b, 0x08, 2, 0x2a, 7, 0x0a, 1, b'c', 0x42, 2, b'{', b'}'];
        assert_eq!(
            unmask(&hello(EncodingOption::Protobuf, Some("c"), Some("{}"))),
            (0x82, [&connect[..], &subscribe].concat())
        );
        let json = b"{\"id\":1,\"connect\":{\"name\":\"bench\"}}\n{\"id\":2,\"subscribe\":{\"channel\":\"c\",\"recover\":true,\"epoch\":\"ab\",\"offset\":300}}";
        assert_eq!(unmask(&hello_again(EncodingOption::Json, "c", "ab", 300)), (0x81, json.to_vec()));
        let subscribe = [0x10, 0x08, 2, 0x2a, 12, 0x0a, 1, b'c', 0x18, 1, 0x32, 2, b'a', b'b', 0x38, 0xac, 2];
        assert_eq!(
            unmask(&hello_again(EncodingOption::Protobuf, "c", "ab", 300)),
            (0x82, [&connect[..], &subscribe].concat())
        );
        assert_eq!(unmask(&send(EncodingOption::Json, b"{}")), (0x81, br#"{"send":{"data":{}}}"#.to_vec()));
        assert_eq!(unmask(&send(EncodingOption::Protobuf, &[8, 1])), (0x82, vec![6, 0x62, 4, 0x0a, 2, 8, 1]));
        assert_eq!(unmask(&bare(&[8, 1])), (0x82, vec![8, 1]));
        assert_eq!(unmask(&text(b"40")), (0x81, b"40".to_vec()));
        assert_eq!(unmask(&pong(EncodingOption::Json)), (0x81, b"{}".to_vec()));
        assert_eq!(unmask(&pong(EncodingOption::Protobuf)), (0x82, vec![0]));
        assert_eq!(unmask(&websocket_pong(b"hi")), (0x8a, b"hi".to_vec()));
    }

    #[test]
    fn a_greeting_subscribes_to_all_channels() {
        let frames = hello_to(EncodingOption::Json, &["a".into(), "b".into()]);
        let connect_bytes = hello(EncodingOption::Json, None, None).len();
        let json = "{\"id\":2,\"subscribe\":{\"channel\":\"a\"}}\n{\"id\":3,\"subscribe\":{\"channel\":\"b\"}}";
        assert_eq!(unmask(&frames[connect_bytes..]), (0x81, json.as_bytes().to_vec()));
        let frames = hello_to(EncodingOption::Protobuf, &["a".into(), "b".into()]);
        let connect_bytes = hello(EncodingOption::Protobuf, None, None).len();
        let subscribe = |id, name| [0x07, 0x08, id, 0x2a, 3, 0x0a, 1, name];
        let both = [subscribe(2, b'a'), subscribe(3, b'b')].concat();
        assert_eq!(unmask(&frames[connect_bytes..]), (0x82, both));
        assert_eq!(hello_to(EncodingOption::Json, &[]), hello(EncodingOption::Json, None, None));
    }

    #[test]
    fn long_frames_use_extended_length_fields() {
        assert_eq!(masked_frame(1, &[0; 125])[1], 0xfd);
        assert_eq!(masked_frame(1, &[0; 126])[1..4], [0xfe, 0, 126]);
        assert_eq!(masked_frame(1, &vec![0; 0x1_0000])[1..10], [0xff, 0, 0, 0, 0, 0, 1, 0, 0]);
    }

    #[test]
    fn an_api_request_announces_its_body() {
        let request = String::from_utf8(api_publish("h", "k", "c", br#""p""#)).unwrap();
        let (head, body) = request.split_once("\r\n\r\n").unwrap();
        assert_eq!(body, r#"{"channel":"c","data":"p"}"#);
        assert!(head.contains("Content-Length: 26\r\n") || head.ends_with("Content-Length: 26"), "{head}");
        assert!(head.contains("X-API-Key: k\r\n"));
    }

    #[test]
    fn delivery_sizes_match_encoded_frames() {
        let json = br#"{"push":{"channel":"c","pub":{"data":"pp"}}}"#;
        assert_eq!(delivery_bytes(EncodingOption::Json, "c", 4, false), 2 + json.len());
        // Frame header, length, push 4 { channel 2 "c", pub 4 { data 4 "pppp" } }.
        assert_eq!(delivery_bytes(EncodingOption::Protobuf, "c", 4, false), 2 + 1 + 2 + 3 + 2 + 6);
        assert_eq!(delivery_bytes(EncodingOption::Protobuf, "c", 4, true), 2 + 1 + 2 + 3 + 2 + 6 + 2 + 38);
    }
}
