//! The request that carries a batch of events: its body, and its signature.

use bytes::Bytes;
use dunlin_config::WebhookKey;
use dunlin_engine::lifecycle::{Lifecycle, LifecycleEvent};
use dunlin_protocol::{ClientInfo, Encoding};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use serde::Serialize;

use super::{Happened, signature::signature};

const ID: HeaderName = HeaderName::from_static("webhook-id");
const TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// A batch of events. Its id and its body are the same in each attempt.
#[derive(Debug)]
pub(super) struct Message {
    id: String,
    pub(super) body: Bytes,
    pub(super) events: u64,
}

/// The body of a request.
#[derive(Serialize)]
struct Body<'a> {
    /// The id of the node, another one after each start.
    node: &'a str,
    /// Events that the node has lost since its start.
    lost: u64,
    events: Vec<EventFields<'a>>,
}

/// An event. Fields that its kind does not have are absent.
#[derive(Serialize, Default)]
struct EventFields<'a> {
    id: String,
    #[serde(rename = "type")]
    kind: &'static str,
    time_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<&'a str>,
    /// Absent for anonymous users.
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    channel: Option<&'a str>,
    #[serde(flatten)]
    of_session: Option<SessionFields>,
    #[serde(flatten)]
    end: Option<EndFields<'a>>,
}

/// How a session is connected.
#[derive(Serialize)]
struct SessionFields {
    transport: &'static str,
    protocol: &'static str,
}

/// How a session, a subscription or a room ended.
#[derive(Serialize, Default)]
struct EndFields<'a> {
    code: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_ms: Option<u64>,
    /// Bytes of the connection that the client has acknowledged.
    #[serde(skip_serializing_if = "Option::is_none")]
    sent_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    received_bytes: Option<u64>,
}

impl Message {
    /// A message with these events of the node, the first of which has the number `first`.
    ///
    /// # Errors
    /// The events cannot be written as JSON.
    pub(super) fn new(node: &str, first: u64, lost: u64, events: &[Happened]) -> Result<Self, serde_json::Error> {
        let numbered = (first..).zip(events);
        let fields = numbered
            .map(|(number, happened)| EventFields { id: format!("{node}-{number}"), ..EventFields::of(happened) })
            .collect();
        let body = serde_json::to_vec(&Body { node, lost, events: fields })?;
        // A part of a batch is another message.
        let id = format!("batch-{node}-{first}-{}", events.len());
        Ok(Self { id, body: body.into(), events: events.len() as u64 })
    }

    /// The header fields of an attempt at this time, over `fields`.
    pub(super) fn headers(&self, unix_s: u64, keys: &[WebhookKey], fields: &HeaderMap) -> HeaderMap {
        let mut headers = fields.clone();
        let signed = (self.id.as_str(), unix_s, &*self.body);
        let signatures: Vec<String> = keys.iter().map(|key| signature(key, signed)).collect();
        let values = [(ID, self.id.clone()), (TIMESTAMP, unix_s.to_string()), (SIGNATURE, signatures.join(" "))];
        for (name, value) in values {
            // All are ASCII.
            if let Ok(value) = HeaderValue::from_str(&value) {
                headers.insert(name, value);
            }
        }
        headers
    }
}

impl<'a> EventFields<'a> {
    /// The fields except the id.
    fn of(Happened { event, traffic }: &'a Happened) -> Self {
        let LifecycleEvent { unix_ms, what } = event;
        let fields = Self { kind: event.kind().name(), time_ms: *unix_ms, ..Self::default() };
        match what {
            Lifecycle::Connected { info, wire } => {
                let protocol = match wire.encoding() {
                    Encoding::Json => "json",
                    Encoding::Protobuf => "protobuf",
                };
                let of_session = Some(SessionFields { transport: wire.transport_name(), protocol });
                Self { of_session, ..fields.about(info) }
            }
            Lifecycle::Disconnected { session: _, info, code, reason, duration_ms } => {
                let end = EndFields {
                    code: u32::from(*code),
                    reason: Some(reason),
                    duration_ms: Some(*duration_ms),
                    sent_bytes: traffic.map(|traffic| traffic.acknowledged_bytes),
                    received_bytes: traffic.map(|traffic| traffic.received_bytes),
                };
                Self { end: Some(end), ..fields.about(info) }
            }
            Lifecycle::Subscribed { info, channel } => Self { channel: Some(channel), ..fields.about(info) },
            Lifecycle::Unsubscribed { info, channel, code } => {
                let end = EndFields { code: code.0, ..EndFields::default() };
                Self { channel: Some(channel), end: Some(end), ..fields.about(info) }
            }
            Lifecycle::Occupied { channel } | Lifecycle::Vacated { channel } | Lifecycle::RoomOpened { channel } => {
                Self { channel: Some(channel), ..fields }
            }
            Lifecycle::RoomEnded { channel, code, reason } => {
                let reason = reason.as_deref().unwrap_or(code.reason());
                let end = EndFields { code: code.0, reason: Some(reason), ..EndFields::default() };
                Self { channel: Some(channel), end: Some(end), ..fields }
            }
        }
    }

    fn about(self, info: &'a ClientInfo) -> Self {
        let user = Some(&*info.user).filter(|user| !user.is_empty());
        Self { client: Some(&info.client), user, ..self }
    }
}

#[cfg(test)]
mod tests {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    use dunlin_engine::{SessionKey, Wire, lifecycle::BY_CLIENT};
    use dunlin_net::Traffic;
    use dunlin_protocol::UnsubscribeCode;
    use serde_json::{Value, json};

    use super::*;

    fn key(byte: u8) -> WebhookKey {
        WebhookKey::parse(&format!("whsec_{}", STANDARD.encode([byte; 32]))).expect("a key")
    }

    /// The events of a message, without ids and times.
    fn shown(events: Vec<Lifecycle>) -> Vec<Value> {
        let traffic = Some(Traffic { received_bytes: 10, acknowledged_bytes: 300 });
        let events: Vec<_> =
            events.into_iter().map(|what| Happened { event: LifecycleEvent { unix_ms: 5, what }, traffic }).collect();
        let message = Message::new("n", 7, 2, &events).expect("JSON");
        let body: Value = serde_json::from_slice(&message.body).expect("JSON");
        assert_eq!((&body["node"], &body["lost"]), (&json!("n"), &json!(2)));
        assert_eq!(message.id, format!("batch-n-7-{}", events.len()));
        let Value::Array(mut shown) = body["events"].clone() else { panic!("{body}") };
        for (number, event) in shown.iter_mut().enumerate() {
            let fields = event.as_object_mut().expect("an object");
            assert_eq!(fields.remove("id"), Some(json!(format!("n-{}", 7 + number))));
            assert_eq!(fields.remove("time_ms"), Some(json!(5)));
        }
        shown
    }

    #[test]
    fn each_kind_has_its_fields() {
        let info = std::sync::Arc::new(ClientInfo { client: "c".into(), ..ClientInfo::of_user("ann") });
        let nobody = std::sync::Arc::new(ClientInfo { client: "d".into(), ..ClientInfo::of_user("") });
        let channel = || std::sync::Arc::<str>::from("chat:1");
        let session = SessionKey { index: 0, generation: 0 };
        let events = vec![
            Lifecycle::Connected { info: info.clone(), wire: Wire::WebSocketProtobuf },
            Lifecycle::Connected { info: nobody, wire: Wire::Sse },
            Lifecycle::Subscribed { info: info.clone(), channel: channel() },
            Lifecycle::Unsubscribed { info: info.clone(), channel: channel(), code: BY_CLIENT },
            Lifecycle::Disconnected { session, info, code: 3001, reason: "shutdown".into(), duration_ms: 9 },
            Lifecycle::Occupied { channel: channel() },
            Lifecycle::Vacated { channel: channel() },
            Lifecycle::RoomOpened { channel: channel() },
            Lifecycle::RoomEnded { channel: channel(), code: UnsubscribeCode::ROOM_CLOSED, reason: Some("won".into()) },
            Lifecycle::RoomEnded { channel: channel(), code: UnsubscribeCode::ROOM_FAILED, reason: None },
        ];
        let failed = UnsubscribeCode::ROOM_FAILED.reason();
        assert_eq!(
            shown(events),
            vec![
                json!({"type": "connected", "client": "c", "user": "ann", "transport": "websocket",
                    "protocol": "protobuf"}),
                json!({"type": "connected", "client": "d", "transport": "sse", "protocol": "json"}),
                json!({"type": "subscribed", "client": "c", "user": "ann", "channel": "chat:1"}),
                json!({"type": "unsubscribed", "client": "c", "user": "ann", "channel": "chat:1", "code": 0}),
                json!({"type": "disconnected", "client": "c", "user": "ann", "code": 3001, "reason": "shutdown",
                    "duration_ms": 9, "sent_bytes": 300, "received_bytes": 10}),
                json!({"type": "occupied", "channel": "chat:1"}),
                json!({"type": "vacated", "channel": "chat:1"}),
                json!({"type": "room_opened", "channel": "chat:1"}),
                json!({"type": "room_ended", "channel": "chat:1", "code": 2010, "reason": "won"}),
                json!({"type": "room_ended", "channel": "chat:1", "code": 2510, "reason": failed}),
            ]
        );
    }

    #[test]
    fn a_signature_covers_id_time_and_body_with_each_key() {
        let message = Message { id: "batch-n-1".to_owned(), body: Bytes::from_static(b"{}"), events: 1 };
        let fields: HeaderMap = [(ID, HeaderValue::from_static("mine"))].into_iter().collect();
        let text = |headers: &HeaderMap, name| headers[name].to_str().expect("ASCII").to_owned();
        let headers = message.headers(1_700_000_000, &[key(1), key(2)], &fields);
        assert_eq!((text(&headers, ID), text(&headers, TIMESTAMP)), ("batch-n-1".into(), "1700000000".into()));
        // Computed with: printf 'batch-n-1.1700000000.{}' | openssl dgst -sha256 -mac HMAC -macopt hexkey:0101… -binary | base64
        let expected =
            "v1,cxNKIZZaKvTTeabpl0niLl7MVbrPsBpPsjk2UKAwXEM= v1,eKg9czOrQ3KmoiPIfGWGS7Ha950cT8lVeiOWrl/jP7Y=";
        assert_eq!(text(&headers, SIGNATURE), expected);
        let later = message.headers(1_700_000_001, &[key(1)], &fields);
        assert!(!expected.contains(&text(&later, SIGNATURE)), "another time has another signature");
    }
}
