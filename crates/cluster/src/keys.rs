//! The newest publications of a channel's keys, as one node sends them to another: a JSON object, in which a publication has
//! the headers of a broadcast.

use bytes::Bytes;
use dunlin_engine::{
    broadcast::BroadcastMessage,
    event::{PeerKey, PeerKeys},
};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use crate::{link::MessageHeaders, record};

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
    headers: Vec<(Box<str>, Box<str>)>,
    /// The data, escaped.
    data: Box<str>,
}

/// Encodes the first of the publications that fit into `bytes_max` together. The caller lists the newest first.
pub fn encode(keys: &[PeerKey], bytes_max: usize) -> Box<RawValue> {
    let (mut body, mut bytes) = (KeysBody { keys: Vec::new(), cut: false }, ENVELOPE_BYTES);
    for key in keys {
        let encoded = to_raw_value(&KeyBody::of(key)).expect("texts and numbers are JSON");
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
        let (headers, data) = record::encode_broadcast(&BroadcastMessage::Publication(publication.clone()));
        let headers = headers.iter().map(|(name, value)| (name.into(), value.into())).collect();
        Self { age_us: *age_us, headers, data: record::escape(&data).into() }
    }

    fn into_key(self) -> Option<PeerKey> {
        let mut headers = MessageHeaders::new();
        self.headers.into_iter().for_each(|(name, value)| headers.push(name, value));
        match record::decode_broadcast(&headers, &Bytes::from(record::unescape(&self.data)?))? {
            BroadcastMessage::Publication(publication) => Some(PeerKey { publication, age_us: self.age_us }),
            BroadcastMessage::Join(_) | BroadcastMessage::Leave(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use dunlin_protocol::{ClientInfo, Payload, Publication};

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
        let of =
            |headers: &str, data: &str| format!(r#"{{"keys":[{{"age_us":1,"headers":{headers},"data":"{data}"}}]}}"#);
        assert!(decode(&of("[]", "x%20")).is_some());
        for json in
            ["", "[]", "{}", r#"{"keys":[1]}"#, &of("[]", "%2"), &of(r#"[["Dn-Op","leave"],["Dn-Client","c"]]"#, "")]
        {
            assert_eq!(decode(json), None, "{json}");
        }
    }
}
