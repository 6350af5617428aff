//! The newest publications of a channel's keys, as one node sends them to another: a JSON object.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use dunlin_engine::event::{PeerKey, PeerKeys};
use dunlin_protocol::{ClientInfo, Payload, Publication};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

/// Bytes around the publications.
const ENVELOPE_BYTES: usize = 64;

#[derive(Serialize, Deserialize)]
struct KeysBody {
    keys: Vec<Box<RawValue>>,
    /// Whether older ones were left out.
    #[serde(default)]
    cut: bool,
}

#[derive(Serialize, Deserialize)]
struct KeyBody {
    age_us: u64,
    data: PayloadBody,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tags: Vec<(Box<str>, Box<str>)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    info: Option<InfoBody>,
    #[serde(default, skip_serializing_if = "is_zero")]
    version: u64,
}

/// JSON is embedded as it is.
#[derive(Serialize, Deserialize)]
enum PayloadBody {
    #[serde(rename = "json")]
    Json(Box<RawValue>),
    #[serde(rename = "b64")]
    Base64(String),
}

#[derive(Serialize, Deserialize)]
struct InfoBody {
    user: Box<str>,
    client: Box<str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    conn_info: Option<PayloadBody>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    chan_info: Option<PayloadBody>,
}

/// Encodes the first of the publications that fit into `bytes_max` together. The caller lists the newest first.
pub fn encode(keys: &[PeerKey], bytes_max: usize) -> Box<RawValue> {
    let (mut body, mut bytes) = (KeysBody { keys: Vec::new(), cut: false }, ENVELOPE_BYTES);
    for key in keys {
        let encoded = to_raw_value(&KeyBody::of(key)).expect("texts, numbers and JSON are JSON");
        bytes += encoded.get().len() + 1;
        if bytes > bytes_max {
            body.cut = true;
            break;
        }
        body.keys.push(encoded);
    }
    to_raw_value(&body).expect("JSON is JSON")
}

/// Decodes an answer; `None` if this version does not understand it.
pub fn decode(json: &str) -> Option<PeerKeys> {
    let body: KeysBody = serde_json::from_str(json).ok()?;
    let keys = body.keys.iter().map(|key| serde_json::from_str::<KeyBody>(key.get()).ok()?.into_key());
    Some(PeerKeys { keys: keys.collect::<Option<_>>()?, is_partial: body.cut })
}

impl KeyBody {
    fn of(PeerKey { publication, age_us }: &PeerKey) -> Self {
        let info = publication.info.as_deref().map(|info| InfoBody {
            user: (*info.user).into(),
            client: (*info.client).into(),
            conn_info: info.conn_info.as_ref().map(PayloadBody::of),
            chan_info: info.chan_info.as_ref().map(PayloadBody::of),
        });
        Self {
            age_us: *age_us,
            data: PayloadBody::of(&publication.data),
            tags: publication.tags.clone(),
            info,
            version: publication.version,
        }
    }

    fn into_key(self) -> Option<PeerKey> {
        let info = match self.info {
            Some(info) => Some(Arc::new(ClientInfo {
                user: info.user.into(),
                client: info.client.into(),
                conn_info: info.conn_info.map(PayloadBody::into_payload).transpose().ok()?,
                chan_info: info.chan_info.map(PayloadBody::into_payload).transpose().ok()?,
            })),
            None => None,
        };
        let publication = Publication {
            data: self.data.into_payload().ok()?,
            info,
            offset: 0,
            tags: self.tags,
            time_ms: 0,
            epoch: Box::default(),
            version: self.version,
        };
        Some(PeerKey { publication: Arc::new(publication), age_us: self.age_us })
    }
}

impl PayloadBody {
    fn of(payload: &Payload) -> Self {
        let json = payload.is_known_json().then(|| serde_json::from_slice(payload.bytes()).ok()).flatten();
        json.map_or_else(|| Self::Base64(STANDARD.encode(payload.bytes())), Self::Json)
    }

    fn into_payload(self) -> Result<Payload, base64::DecodeError> {
        Ok(match self {
            Self::Json(json) => Payload::from_json(Bytes::from(Box::<str>::from(json).into_string())),
            Self::Base64(text) => Payload::from_opaque(STANDARD.decode(text)?.into()),
        })
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(data: Payload, age_us: u64) -> PeerKey {
        let info = ClientInfo {
            user: "u\"".into(),
            client: "c".into(),
            conn_info: Some(Payload::from_json(Bytes::from_static(b"{ \"a\": 1 }"))),
            chan_info: Some(Payload::from_opaque(Bytes::from_static(&[0, 255]))),
        };
        let publication = Publication {
            data,
            info: Some(Arc::new(info)),
            offset: 0,
            tags: vec![("symbol".into(), "é=\n".into()), ("gone".into(), "".into())],
            time_ms: 0,
            epoch: Box::default(),
            version: 7,
        };
        PeerKey { publication: Arc::new(publication), age_us }
    }

    #[test]
    fn keys_round_trip_with_all_fields() {
        let json = key(Payload::from_json(Bytes::from_static(b"[1,  2.50]")), 12);
        let opaque = key(Payload::from_opaque(Bytes::from_static(b"\0{")), u64::MAX);
        let keys = vec![json, opaque];
        let decoded = decode(encode(&keys, usize::MAX).get());
        assert_eq!(decoded, Some(PeerKeys { keys, is_partial: false }));
    }

    #[test]
    fn an_answer_is_cut_behind_the_newest_keys_at_the_limit() {
        let keys = [1, 2, 3].map(|age_us| key(Payload::from_opaque(Bytes::from_static(b"x")), age_us));
        let whole = encode(&keys, usize::MAX).get().len() + ENVELOPE_BYTES;
        let one = to_raw_value(&KeyBody::of(&keys[0])).expect("it is JSON").get().len() + 1;
        let limit = ENVELOPE_BYTES + 3 * one;
        for (bytes_max, count) in [(limit, 3), (limit - 1, 2), (0, 0)] {
            let encoded = encode(&keys, bytes_max);
            let found = decode(encoded.get()).expect("it is an answer");
            assert_eq!((found.keys.len(), found.is_partial), (count, count < 3), "{bytes_max}");
            assert!(found.keys == keys[..count] && encoded.get().len() <= bytes_max.max(ENVELOPE_BYTES).min(whole));
        }
    }

    #[test]
    fn foreign_answers_are_refused() {
        for json in ["", "[]", "{}", r#"{"keys":[1]}"#, r#"{"keys":[{"age_us":1,"data":{"b64":"?"}}]}"#] {
            assert_eq!(decode(json), None, "{json}");
        }
    }
}
