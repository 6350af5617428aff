//! Decodes a server's pushes: publications, and the end of a subscription.
//!
//! Field numbers: `centrifugal/protocol`, `definitions/client.proto` (Reply: push 4; Push: pub 4, unsubscribe 7;
//! Publication: data 4, offset 6; Unsubscribe: code 2).

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::commands::EncodingOption;
use crate::wire::{Field, take_field};

/// The part of a push that players use.
#[derive(Debug, PartialEq, Eq)]
pub enum PlayerPush<'a> {
    /// A publication; with offset 0, it is not in a stream.
    Publication {
        data: &'a [u8],
        /// 0 on the latest lane.
        offset: u64,
    },
    /// The subscription has ended.
    Unsubscribed { code: u32 },
    /// Any other push.
    Other,
}

/// Parses a message of the server; `None` if it is not a push.
pub fn push(encoding: EncodingOption, message: &[u8]) -> Option<PlayerPush<'_>> {
    match encoding {
        EncodingOption::Json => json_push(message),
        EncodingOption::Protobuf => protobuf_push(message),
    }
}

#[derive(Deserialize)]
struct JsonReply<'a> {
    #[serde(borrow)]
    push: Option<JsonPush<'a>>,
}

#[derive(Deserialize)]
struct JsonPush<'a> {
    #[serde(borrow, rename = "pub")]
    publication: Option<JsonPublication<'a>>,
    unsubscribe: Option<JsonUnsubscribe>,
}

#[derive(Deserialize)]
struct JsonPublication<'a> {
    #[serde(borrow)]
    data: &'a RawValue,
    #[serde(default)]
    offset: u64,
}

#[derive(Deserialize)]
struct JsonUnsubscribe {
    #[serde(default)]
    code: u32,
}

fn json_push(message: &[u8]) -> Option<PlayerPush<'_>> {
    if !message.starts_with(br#"{"push""#) {
        return None;
    }
    let push = serde_json::from_slice::<JsonReply<'_>>(message).ok()?.push?;
    Some(match (push.publication, push.unsubscribe) {
        (Some(publication), _) => {
            PlayerPush::Publication { data: publication.data.get().as_bytes(), offset: publication.offset }
        }
        (None, Some(unsubscribe)) => PlayerPush::Unsubscribed { code: unsubscribe.code },
        (None, None) => PlayerPush::Other,
    })
}

fn protobuf_push(message: &[u8]) -> Option<PlayerPush<'_>> {
    let push = field(message, 4)?;
    Some(if let Some(publication) = field(push, 4) {
        PlayerPush::Publication { data: field(publication, 4).unwrap_or_default(), offset: number(publication, 6) }
    } else if let Some(unsubscribe) = field(push, 7) {
        PlayerPush::Unsubscribed { code: number(unsubscribe, 2) as u32 }
    } else {
        PlayerPush::Other
    })
}

/// The first field with this number that contains bytes.
fn field(mut message: &[u8], wanted: u64) -> Option<&[u8]> {
    while !message.is_empty() {
        let (found, value, rest) = take_field(message)?;
        match value {
            Field::Bytes(bytes) if found == wanted => return Some(bytes),
            _ => message = rest,
        }
    }
    None
}

fn number(mut message: &[u8], wanted: u64) -> u64 {
    while let Some((found, value, rest)) = take_field(message) {
        match value {
            Field::Number(number) if found == wanted => return number,
            _ => message = rest,
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn publications_and_ends_are_distinguished_from_replies() {
        let json = |message: &'static str| push(EncodingOption::Json, message.as_bytes());
        let snapshot = r#"{"push":{"channel":"c","pub":{"data":{"tick":1},"time":5}}}"#;
        assert_eq!(json(snapshot), Some(PlayerPush::Publication { data: br#"{"tick":1}"#, offset: 0 }));
        let event = r#"{"push":{"channel":"c","pub":{"offset":3,"data":1}}}"#;
        assert_eq!(json(event), Some(PlayerPush::Publication { data: b"1", offset: 3 }));
        assert_eq!(json(r#"{"push":{"unsubscribe":{"code":2510}}}"#), Some(PlayerPush::Unsubscribed { code: 2510 }));
        assert_eq!(json(r#"{"push":{"channel":"c","join":{}}}"#), Some(PlayerPush::Other));
        assert_eq!(json(r#"{"id":1,"connect":{}}"#), None);
        assert_eq!(json("{}"), None);
        let protobuf = |message: &'static [u8]| push(EncodingOption::Protobuf, message);
        let snapshot = vec![0x22, 9, 0x12, 1, b'c', 0x22, 4, 0x22, 2, 7, 8].leak();
        assert_eq!(protobuf(snapshot), Some(PlayerPush::Publication { data: &[7, 8], offset: 0 }));
        let event = vec![0x22, 7, 0x22, 5, 0x22, 1, 9, 0x30, 3].leak();
        assert_eq!(protobuf(event), Some(PlayerPush::Publication { data: &[9], offset: 3 }));
        assert_eq!(protobuf(&[0x22, 5, 0x3a, 3, 0x10, 0xce, 0x13]), Some(PlayerPush::Unsubscribed { code: 2510 }));
        assert_eq!(protobuf(&[0x22, 2, 0x2a, 0]), Some(PlayerPush::Other));
        assert_eq!(protobuf(&[0x08, 1, 0x2a, 0]), None);
        assert_eq!(protobuf(&[]), None);
    }
}
