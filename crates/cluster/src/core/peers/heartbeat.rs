//! The message by which a node announces that it is live.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::NodeDescription;

/// The version of the format.
const VERSION: u32 = 1;
/// Maximum bytes of a node's name or version.
const TEXT_BYTES_MAX: usize = 512;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Heartbeat {
    pub(super) node: Box<str>,
    pub(super) about: NodeDescription,
    /// The sender's Unix time.
    pub(super) time_ms: u64,
    /// Whether the node is stopping.
    pub(super) is_leaving: bool,
}

#[derive(Serialize, Deserialize)]
struct HeartbeatBody<'a> {
    v: u32,
    #[serde(borrow)]
    node: std::borrow::Cow<'a, str>,
    #[serde(borrow, default)]
    name: std::borrow::Cow<'a, str>,
    #[serde(borrow, default)]
    version: std::borrow::Cow<'a, str>,
    #[serde(default)]
    started_ms: u64,
    #[serde(default)]
    time_ms: u64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    leaving: bool,
}

impl Heartbeat {
    pub(super) fn encode(&self) -> Bytes {
        let body = HeartbeatBody {
            v: VERSION,
            node: (&*self.node).into(),
            name: shortened(&self.about.name).into(),
            version: shortened(&self.about.version).into(),
            started_ms: self.about.started_ms,
            time_ms: self.time_ms,
            leaving: self.is_leaving,
        };
        serde_json::to_vec(&body).expect("texts and numbers are JSON").into()
    }

    /// Decodes a heartbeat of any version of Dunlin; `None` for any other message.
    pub(super) fn decode(payload: &[u8]) -> Option<Self> {
        let body: HeartbeatBody<'_> = serde_json::from_slice(payload).ok()?;
        let texts = [&body.node, &body.name, &body.version];
        if body.node.is_empty() || texts.iter().any(|text| text.len() > TEXT_BYTES_MAX) {
            return None;
        }
        let HeartbeatBody { node, name, version, started_ms, time_ms, leaving, .. } = body;
        let about = NodeDescription { name: name.into(), version: version.into(), started_ms };
        Some(Self { node: node.into(), about, time_ms, is_leaving: leaving })
    }
}

fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_BYTES_MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heartbeat() -> Heartbeat {
        let about = NodeDescription { name: "n\"1".into(), version: "0.2.0".into(), started_ms: 7 };
        Heartbeat { node: "a".into(), about, time_ms: 9, is_leaving: false }
    }

    #[test]
    fn heartbeats_round_trip() {
        for is_leaving in [false, true] {
            let sent = Heartbeat { is_leaving, ..heartbeat() };
            assert_eq!(Heartbeat::decode(&sent.encode()), Some(sent));
        }
        let later = br#"{"v":2,"node":"b","more":[1]}"#;
        assert_eq!(&*Heartbeat::decode(later).expect("a later version adds fields").node, "b");
    }

    #[test]
    fn long_names_are_shortened_and_refused() {
        let about = NodeDescription { name: "é".repeat(TEXT_BYTES_MAX).into(), ..heartbeat().about };
        let sent = Heartbeat { about, ..heartbeat() };
        let read = Heartbeat::decode(&sent.encode()).expect("it was shortened");
        assert_eq!(read.about.name.len(), TEXT_BYTES_MAX);
        let long = format!(r#"{{"v":1,"node":"{}"}}"#, "x".repeat(TEXT_BYTES_MAX + 1));
        assert_eq!(Heartbeat::decode(long.as_bytes()), None);
    }

    #[test]
    fn invalid_heartbeats_are_refused() {
        for bytes in [&b""[..], b"{}", b"[]", b"{\"v\":1}", br#"{"v":1,"node":""}"#, br#"{"v":-1,"node":"a"}"#, b"\xff"]
        {
            assert_eq!(Heartbeat::decode(bytes), None, "{bytes:?}");
        }
    }
}
