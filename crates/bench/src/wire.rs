//! Reads the server's output at minimal cost: parses the WebSocket headers, splits the frames into protocol messages,
//! and examines only the first bytes of each. It decodes nothing that the load does not need.
//!
//! Frame layout: RFC 6455, section 5.2. Several messages per frame: `\n` between JSON messages, a varint length before
//! each Protobuf message.

use serde_json::Value;

use crate::commands::EncodingOption;

/// The result of parsing a frame of the server.
#[derive(Debug, PartialEq, Eq)]
pub enum Walk<'a> {
    /// A complete frame, and its number of bytes.
    Frame(Frame<'a>, usize),
    /// The rest of the frame has not arrived. With the header complete, `frame_bytes` is the size of the whole frame.
    Partial {
        /// Size of the whole frame, if its header has arrived.
        frame_bytes: Option<usize>,
    },
    /// The server must not send this to the client.
    Broken(&'static str),
}

/// One WebSocket frame.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// One or more protocol messages.
    Messages(&'a [u8]),
    /// Must be answered with the same bytes.
    Ping(&'a [u8]),
    /// An unsolicited answer.
    Pong,
    /// The server ends the session; the code is 1005 if it sent none (RFC 6455, section 7.1.5).
    Close(u16),
}

/// Reads one frame at the start of `bytes`.
pub fn walk(bytes: &[u8]) -> Walk<'_> {
    let Some((&[first, second], rest)) = bytes.split_first_chunk::<2>() else {
        return Walk::Partial { frame_bytes: None };
    };
    if second & 0x80 != 0 {
        return Walk::Broken("a masked frame from a server");
    }
    if first & 0x70 != 0 {
        return Walk::Broken("a frame with extension bits that were not negotiated");
    }
    let (is_last, opcode) = (first & 0x80 != 0, first & 0x0f);
    if !is_last || opcode == 0 {
        return Walk::Broken("a fragmented message, which this client does not reassemble");
    }
    let (payload_bytes, header_bytes) = match second {
        126 => match rest.first_chunk::<2>() {
            Some(length) => (u64::from(u16::from_be_bytes(*length)), 4),
            None => return Walk::Partial { frame_bytes: None },
        },
        127 => match rest.first_chunk::<8>() {
            Some(length) => (u64::from_be_bytes(*length), 10),
            None => return Walk::Partial { frame_bytes: None },
        },
        length => (u64::from(length), 2),
    };
    let Some(frame_bytes) = usize::try_from(payload_bytes).ok().and_then(|bytes| bytes.checked_add(header_bytes))
    else {
        return Walk::Broken("a frame longer than memory");
    };
    match bytes.get(header_bytes..frame_bytes) {
        Some(payload) => classify(opcode, payload, frame_bytes),
        None => Walk::Partial { frame_bytes: Some(frame_bytes) },
    }
}

fn classify(opcode: u8, payload: &[u8], frame_bytes: usize) -> Walk<'_> {
    let frame = match opcode {
        1 | 2 => Frame::Messages(payload),
        8 => Frame::Close(payload.first_chunk::<2>().map_or(1005, |code| u16::from_be_bytes(*code))),
        9 => Frame::Ping(payload),
        10 => Frame::Pong,
        _ => return Walk::Broken("a frame with a reserved opcode"),
    };
    Walk::Frame(frame, frame_bytes)
}

/// Splits the payload of a data frame into protocol messages; stops at the first invalid byte.
pub fn messages(encoding: EncodingOption, payload: &[u8]) -> Messages<'_> {
    Messages { encoding, rest: payload }
}

/// Iterator over the protocol messages of a frame.
pub struct Messages<'a> {
    encoding: EncodingOption,
    rest: &'a [u8],
}

impl<'a> Iterator for Messages<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.rest.is_empty() {
            return None;
        }
        let (message, rest) = match self.encoding {
            EncodingOption::Json => match memchr::memchr(b'\n', self.rest) {
                Some(at) => (self.rest.get(..at)?, self.rest.get(at + 1..)?),
                None => (self.rest, &[][..]),
            },
            EncodingOption::Protobuf => {
                let (length, after) = take_varint(self.rest)?;
                after.split_at_checked(usize::try_from(length).ok()?)?
            }
        };
        self.rest = rest;
        Some(message)
    }
}

/// The kind of a message without a stamp.
#[derive(Debug, PartialEq, Eq)]
pub enum UnstampedMessage {
    /// The server's ping: an empty reply.
    Ping,
    /// The reply to one of our commands.
    Reply {
        /// Id of the command.
        id: u32,
        /// Error code, 0 for success.
        error: u32,
    },
    /// A push, or another message that needs no reaction.
    Other,
}

/// Classifies a message without a stamp.
pub fn answer(encoding: EncodingOption, message: &[u8]) -> UnstampedMessage {
    match encoding {
        EncodingOption::Json => json_answer(message),
        EncodingOption::Protobuf => protobuf_answer(message).unwrap_or(UnstampedMessage::Other),
    }
}

/// The Go and the Rust encoders write the fields of a reply in the order of their numbers: id, then error, then the
/// rest.
fn json_answer(message: &[u8]) -> UnstampedMessage {
    if message == b"{}" {
        return UnstampedMessage::Ping;
    }
    let Some(after) = message.strip_prefix(br#"{"id":"#) else { return UnstampedMessage::Other };
    let (id, rest) = take_decimal(after);
    let error = match rest.strip_prefix(br#","error":{"code":"#) {
        Some(code) => take_decimal(code).0,
        None => 0,
    };
    UnstampedMessage::Reply { id, error }
}

fn take_decimal(bytes: &[u8]) -> (u32, &[u8]) {
    let mut value = 0_u32;
    let mut rest = bytes;
    while let [digit @ b'0'..=b'9', after @ ..] = rest {
        value = value.wrapping_mul(10).wrapping_add(u32::from(digit - b'0'));
        rest = after;
    }
    (value, rest)
}

/// Reply: 1 id, 2 error { 1 code }.
fn protobuf_answer(message: &[u8]) -> Option<UnstampedMessage> {
    if message.is_empty() {
        return Some(UnstampedMessage::Ping);
    }
    let (mut id, mut error, mut rest) = (0, 0, message);
    while !rest.is_empty() {
        let (field, value, after) = take_field(rest)?;
        match (field, value) {
            (1, Field::Number(number)) => id = number as u32,
            (2, Field::Bytes(bytes)) => {
                error = match take_field(bytes) {
                    Some((1, Field::Number(code), _)) => code as u32,
                    _ => u32::MAX,
                };
            }
            _ => {}
        }
        rest = after;
    }
    Some(if id == 0 { UnstampedMessage::Other } else { UnstampedMessage::Reply { id, error } })
}

/// The position in the reply to a subscribe command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SubscribedPosition {
    /// The stream's epoch.
    pub epoch: String,
    /// Whether a recovery was requested.
    pub was_recovering: bool,
    /// Whether all publications were recovered.
    pub recovered: bool,
}

/// The highest offset in a JSON message, if there is one. Stamped payloads contain none.
pub fn newest_offset(message: &[u8]) -> Option<u64> {
    const NAME: &[u8] = br#""offset":"#;
    let offset_at = |at: usize| {
        let digits = message.get(at + NAME.len()..)?.iter().take_while(|byte| byte.is_ascii_digit());
        Some(digits.fold(0_u64, |value, digit| value.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'))))
    };
    memchr::memmem::find_iter(message, NAME).filter_map(offset_at).max()
}

/// Reads the reply to a subscribe command; `None` if the message is something else.
pub fn subscribed(encoding: EncodingOption, message: &[u8]) -> Option<SubscribedPosition> {
    match encoding {
        EncodingOption::Json => {
            let reply = message.starts_with(br#"{"id":"#).then(|| serde_json::from_slice::<Value>(message).ok())??;
            let result = reply.get("subscribe")?;
            let is_set = |name: &str| result.get(name).and_then(Value::as_bool).unwrap_or(false);
            Some(SubscribedPosition {
                epoch: result.get("epoch").and_then(Value::as_str).unwrap_or_default().to_owned(),
                was_recovering: is_set("was_recovering"),
                recovered: is_set("recovered"),
            })
        }
        EncodingOption::Protobuf => protobuf_subscribed(message),
    }
}

/// Reply: 1 id, 6 subscribe { 6 epoch, 8 recovered, 12 `was_recovering` }.
fn protobuf_subscribed(message: &[u8]) -> Option<SubscribedPosition> {
    let mut rest = message;
    let mut result = loop {
        let (field, value, after) = take_field(rest)?;
        match (field, value) {
            (6, Field::Bytes(result)) => break result,
            _ => rest = after,
        }
    };
    let mut position = SubscribedPosition::default();
    while let Some((field, value, after)) = take_field(result) {
        match (field, value) {
            (6, Field::Bytes(epoch)) => position.epoch = String::from_utf8_lossy(epoch).into_owned(),
            (8, Field::Number(recovered)) => position.recovered = recovered != 0,
            (12, Field::Number(was_recovering)) => position.was_recovering = was_recovering != 0,
            _ => {}
        }
        result = after;
    }
    Some(position)
}

/// The value of a Protobuf field.
pub enum Field<'a> {
    /// A varint.
    Number(u64),
    /// Bytes, a string or a message.
    Bytes(&'a [u8]),
}

/// Reads a Protobuf field. Returns its number, its value, and the bytes after it.
pub fn take_field(bytes: &[u8]) -> Option<(u64, Field<'_>, &[u8])> {
    let (tag, rest) = take_varint(bytes)?;
    let (value, rest) = match tag & 7 {
        0 => {
            let (number, rest) = take_varint(rest)?;
            (Field::Number(number), rest)
        }
        2 => {
            let (length, rest) = take_varint(rest)?;
            let (body, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
            (Field::Bytes(body), rest)
        }
        _ => return None,
    };
    Some((tag >> 3, value, rest))
}

fn take_varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0_u64;
    for (at, byte) in bytes.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * at).min(63);
        if byte & 0x80 == 0 {
            return Some((value, bytes.get(at + 1..)?));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
        let mut out = vec![first];
        match payload.len() {
            length @ 0..126 => out.push(length as u8),
            length @ 126..=0xffff => {
                out.push(126);
                out.extend_from_slice(&(length as u16).to_be_bytes());
            }
            length => {
                out.push(127);
                out.extend_from_slice(&(length as u64).to_be_bytes());
            }
        }
        out.extend_from_slice(payload);
        out
    }

    #[test]
    fn frames_of_each_length_form_are_parsed_and_truncated_ones_are_partial() {
        for length in [0, 1, 125, 126, 300, 0xffff, 0x1_0000] {
            let bytes = frame(0x81, &vec![b'a'; length]);
            match walk(&bytes) {
                Walk::Frame(Frame::Messages(payload), taken) => {
                    assert_eq!((payload.len(), taken), (length, bytes.len()));
                }
                other => panic!("{length}: {other:?}"),
            }
            for cut in [0, 1, 2, 3, 5, 9, bytes.len() / 2, bytes.len() - 1] {
                match walk(&bytes[..cut.min(bytes.len() - 1)]) {
                    Walk::Partial { frame_bytes: None } => assert!(cut < 10),
                    Walk::Partial { frame_bytes: Some(whole) } => assert_eq!(whole, bytes.len()),
                    other => panic!("{length} cut at {cut}: {other:?}"),
                }
            }
        }
    }

    #[test]
    fn frames_that_follow_each_other_are_found_one_after_the_other() {
        let mut bytes = frame(0x81, b"one");
        bytes.extend(frame(0x89, b"p"));
        bytes.extend(frame(0x82, b""));
        bytes.extend(frame(0x8a, b""));
        bytes.extend(frame(0x88, &[0x0b, 0xc0, b's', b'l', b'o', b'w']));
        bytes.extend(frame(0x88, &[]));
        let mut seen = Vec::new();
        let mut at = 0;
        while let Walk::Frame(frame, taken) = walk(&bytes[at..]) {
            seen.push(frame);
            at += taken;
        }
        let expected = [
            Frame::Messages(b"one"),
            Frame::Ping(b"p"),
            Frame::Messages(b""),
            Frame::Pong,
            Frame::Close(3008),
            Frame::Close(1005),
        ];
        assert_eq!(seen, expected);
        assert_eq!(at, bytes.len());
    }

    #[test]
    fn invalid_server_frames_are_broken() {
        let cases: [&[u8]; 6] = [
            &[0x81, 0x80, 0, 0, 0, 0],
            &[0xc1, 0],
            &[0x01, 0],
            &[0x80, 0],
            &[0x83, 0],
            &[0x82, 127, 255, 255, 255, 255, 255, 255, 255, 255],
        ];
        for bytes in cases {
            assert!(matches!(walk(bytes), Walk::Broken(_)), "{bytes:?}");
        }
    }

    #[test]
    fn joined_messages_are_split() {
        let json = |payload| messages(EncodingOption::Json, payload).collect::<Vec<_>>();
        assert_eq!(json(b"{}"), [b"{}"]);
        assert_eq!(json(b"{\"id\":1}\n{}"), [&b"{\"id\":1}"[..], b"{}"]);
        assert_eq!(json(b"{}\n"), [b"{}"]);
        let protobuf = |payload| messages(EncodingOption::Protobuf, payload).collect::<Vec<_>>();
        assert_eq!(protobuf(&[2, 8, 1, 0, 1, 9]), [&[8, 1][..], &[], &[9]]);
        assert_eq!(protobuf(&[0]), [&[] as &[u8]]);
        assert_eq!(protobuf(&[3, 8, 1]), [] as [&[u8]; 0], "the message is shorter than announced");
        assert_eq!(protobuf(&[0x80]), [] as [&[u8]; 0]);
        let long = [&[0x80, 0x02][..], &[7; 256]].concat();
        assert_eq!(protobuf(&long), [&[7; 256]]);
    }

    #[test]
    fn positions_are_parsed_from_replies_alone() {
        let position = |epoch: &str, was_recovering, recovered| {
            Some(SubscribedPosition { epoch: epoch.to_owned(), was_recovering, recovered })
        };
        let json = |message: &[u8]| subscribed(EncodingOption::Json, message);
        assert_eq!(json(br#"{"id":2,"subscribe":{"epoch":"ab","positioned":true}}"#), position("ab", false, false));
        let recovered = br#"{"id":2,"subscribe":{"epoch":"ab","recovered":true,"was_recovering":true}}"#;
        assert_eq!(json(recovered), position("ab", true, true));
        assert_eq!(json(br#"{"push":{"channel":"c","pub":{"data":1}}}"#), None);
        assert_eq!(json(br#"{"id":1,"connect":{}}"#), None);
        let protobuf = |message: &[u8]| subscribed(EncodingOption::Protobuf, message);
        assert_eq!(protobuf(&[8, 2, 0x32, 8, 0x32, 2, b'a', b'b', 0x40, 1, 0x60, 1]), position("ab", true, true));
        assert_eq!(protobuf(&[8, 2, 0x32, 4, 0x32, 2, b'a', b'b']), position("ab", false, false));
        assert_eq!(protobuf(&[8, 1, 0x2a, 0]), None);
        assert_eq!(protobuf(&[0x22, 2, 0x22, 0]), None);
    }

    #[test]
    fn the_newest_offset_of_a_message_is_found() {
        assert_eq!(newest_offset(br#"{"push":{"channel":"c","pub":{"data":"d","offset":17}}}"#), Some(17));
        let reply =
            br#"{"id":2,"subscribe":{"publications":[{"data":1,"offset":8},{"data":1,"offset":12}],"offset":11}}"#;
        assert_eq!(newest_offset(reply), Some(12));
        assert_eq!(newest_offset(br#"{"push":{"channel":"c","pub":{"data":"d"}}}"#), None);
    }

    #[test]
    fn replies_are_distinguished() {
        let json = |message| answer(EncodingOption::Json, message);
        assert_eq!(json(b"{}"), UnstampedMessage::Ping);
        assert_eq!(json(br#"{"id":1,"connect":{"client":"x"}}"#), UnstampedMessage::Reply { id: 1, error: 0 });
        assert_eq!(
            json(br#"{"id":20,"error":{"code":103,"message":"m"}}"#),
            UnstampedMessage::Reply { id: 20, error: 103 }
        );
        assert_eq!(json(br#"{"push":{"channel":"c"}}"#), UnstampedMessage::Other);
        let protobuf = |message| answer(EncodingOption::Protobuf, message);
        assert_eq!(protobuf(&[]), UnstampedMessage::Ping);
        assert_eq!(protobuf(&[0x08, 1, 0x2a, 0]), UnstampedMessage::Reply { id: 1, error: 0 });
        assert_eq!(protobuf(&[0x08, 0x81, 1, 0x12, 2, 0x08, 103]), UnstampedMessage::Reply { id: 129, error: 103 });
        assert_eq!(protobuf(&[0x22, 2, 0x12, 0]), UnstampedMessage::Other);
        assert_eq!(protobuf(&[0x22, 9]), UnstampedMessage::Other);
    }
}
