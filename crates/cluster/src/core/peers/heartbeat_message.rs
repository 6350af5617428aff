//! The message by which a node announces that it is live.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use dunlin_engine::SessionTagKey;
use serde::{Deserialize, Serialize};

use super::NodeDescription;

/// The version of the format.
const VERSION: u32 = 1;
/// Maximum bytes of a node's name or version.
const TEXT_BYTES_MAX: usize = 512;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Heartbeat {
    pub(crate) node: Box<str>,
    pub(crate) about: NodeDescription,
    /// The sender's Unix time.
    pub(crate) time_ms: u64,
    /// Whether the node is stopping.
    pub(crate) is_leaving: bool,
    /// The number of streams that the node cannot use; 0 from earlier versions.
    pub(crate) unusable_streams: u32,
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
    #[serde(default, skip_serializing_if = "is_zero")]
    unusable_streams: u32,
    /// The node's key for the ids of sessions, in Base64.
    #[serde(borrow, default, skip_serializing_if = "str::is_empty")]
    key: std::borrow::Cow<'a, str>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Heartbeat {
    pub(crate) fn encode(&self) -> Bytes {
        let body = HeartbeatBody {
            v: VERSION,
            node: (&*self.node).into(),
            name: shortened(&self.about.name).into(),
            version: shortened(&self.about.version).into(),
            started_ms: self.about.started_ms,
            time_ms: self.time_ms,
            leaving: self.is_leaving,
            unusable_streams: self.unusable_streams,
            key: self.about.session_tag_key.as_ref().map(encoded).unwrap_or_default().into(),
        };
        serde_json::to_vec(&body).expect("texts and numbers are JSON").into()
    }

    /// Decodes a heartbeat of any version of Dunlin; `None` for any other message.
    pub(crate) fn decode(payload: &[u8]) -> Option<Self> {
        let body: HeartbeatBody<'_> = serde_json::from_slice(payload).ok()?;
        let texts = [&body.node, &body.name, &body.version];
        if body.node.is_empty() || texts.iter().any(|text| text.len() > TEXT_BYTES_MAX) {
            return None;
        }
        let HeartbeatBody { node, name, version, started_ms, time_ms, leaving, unusable_streams, key, .. } = body;
        let session_tag_key = decoded(&key);
        let about = NodeDescription { name: name.into(), version: version.into(), started_ms, session_tag_key };
        Some(Self { node: node.into(), about, time_ms, is_leaving: leaving, unusable_streams })
    }
}

fn encoded(key: &SessionTagKey) -> String {
    STANDARD.encode(key.reveal())
}

/// The key in a heartbeat; `None` for one of another length.
fn decoded(text: &str) -> Option<SessionTagKey> {
    STANDARD.decode(text).ok()?.try_into().ok().map(SessionTagKey::new)
}

fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_BYTES_MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heartbeat() -> Heartbeat {
        let session_tag_key = Some(SessionTagKey::new([9; 32]));
        let about = NodeDescription { name: "n\"1".into(), version: "0.2.0".into(), started_ms: 7, session_tag_key };
        Heartbeat { node: "a".into(), about, time_ms: 9, is_leaving: false, unusable_streams: 0 }
    }

    #[test]
    fn heartbeats_round_trip() {
        for (is_leaving, unusable_streams) in [(false, 0), (true, 3)] {
            let sent = Heartbeat { is_leaving, unusable_streams, ..heartbeat() };
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
