//! Parses the answers of the server.

use async_nats::{HeaderMap, Message};
use bytes::Bytes;
use serde::Deserialize;

use crate::{
    link::{MessageHeaders, PublishAck, PublishFault, ReadFault, StoredMessage, StreamShape, StreamState},
    record,
};

pub const STATUS_END: u16 = 204;
const STATUS_NOT_FOUND: u16 = 404;
const STATUS_NO_RESPONDERS: u16 = 503;

/// Headers that the server adds to a stored message.
const SERVER_HEADERS: [&str; 6] =
    ["Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp", "Nats-Num-Pending", "Nats-Last-Sequence"];

/// One message of the answer to a direct get.
#[derive(Debug)]
pub enum ReadPart {
    /// A message.
    Stored(StoredMessage),
    /// There is no matching message.
    Nothing,
    /// All matching messages have been sent, or the maximum of one answer.
    End { pending: u64, last_sequence: u64, up_to_sequence: u64 },
}

#[derive(Deserialize)]
struct ErrorBody {
    code: u16,
    #[serde(default)]
    err_code: u64,
    #[serde(default)]
    description: Box<str>,
}

#[derive(Deserialize)]
struct AckBody {
    error: Option<ErrorBody>,
    #[serde(default)]
    stream: Box<str>,
    #[serde(default, rename = "seq")]
    sequence: u64,
    #[serde(default, rename = "duplicate")]
    is_duplicate: bool,
}

/// Parses the answer to a publication.
pub fn ack(message: &Message) -> Result<PublishAck, PublishFault> {
    if status(message) == Some(STATUS_NO_RESPONDERS) {
        return Err(PublishFault::NoResponders);
    }
    let body: AckBody = serde_json::from_slice(&message.payload).map_err(|_| PublishFault::Refused {
        code: 0,
        error_code: 0,
        description: "the answer is no acknowledgement of a stream".into(),
    })?;
    match body.error {
        Some(ErrorBody { code, err_code, description }) => {
            Err(PublishFault::Refused { code, error_code: err_code, description })
        }
        None => Ok(PublishAck { stream: body.stream, sequence: body.sequence, is_duplicate: body.is_duplicate }),
    }
}

/// Parses one message of the answer to a direct get.
pub fn read_part(message: Message) -> Result<ReadPart, ReadFault> {
    match status(&message) {
        None | Some(200) => stored(message).map(ReadPart::Stored),
        Some(STATUS_END) => Ok(ReadPart::End {
            pending: number(&message, "Nats-Num-Pending").unwrap_or(0),
            last_sequence: number(&message, "Nats-Last-Sequence").unwrap_or(0),
            up_to_sequence: number(&message, "Nats-UpTo-Sequence").unwrap_or(0),
        }),
        Some(STATUS_NOT_FOUND) => Ok(ReadPart::Nothing),
        Some(STATUS_NO_RESPONDERS) => Err(ReadFault::NoResponders),
        Some(code) => Err(ReadFault::Refused {
            code,
            error_code: 0,
            description: message.description.as_deref().unwrap_or_default().into(),
        }),
    }
}

fn stored(message: Message) -> Result<StoredMessage, ReadFault> {
    let malformed = |what| ReadFault::Malformed { what };
    let sequence = number(&message, "Nats-Sequence").ok_or_else(|| malformed("no Nats-Sequence"))?;
    let subject = text(&message, "Nats-Subject").ok_or_else(|| malformed("no Nats-Subject"))?.into();
    let time = text(&message, "Nats-Time-Stamp").and_then(record::unix_ms);
    Ok(StoredMessage {
        subject,
        sequence,
        last_sequence: number(&message, "Nats-Last-Sequence").unwrap_or(0),
        time_ms: time.ok_or_else(|| malformed("no Nats-Time-Stamp in UTC"))?,
        headers: message.headers.as_ref().map(publishers_headers).unwrap_or_default(),
        payload: message.payload,
    })
}

fn publishers_headers(map: &HeaderMap) -> MessageHeaders {
    let mut headers = MessageHeaders::new();
    for (name, value) in headers_of(map).iter() {
        if !SERVER_HEADERS.contains(&name) {
            headers.push(name, value);
        }
    }
    headers
}

/// Converts all headers of a received message.
pub fn headers_of(map: &HeaderMap) -> MessageHeaders {
    let mut headers = MessageHeaders::new();
    for (name, values) in map.iter() {
        let name: &str = name.as_ref();
        for value in values {
            headers.push(name, value.as_str());
        }
    }
    headers
}

/// Converts the headers of a message to send.
pub fn header_map(headers: &MessageHeaders) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in headers.iter() {
        map.append(name, value);
    }
    map
}

fn text<'m>(message: &'m Message, name: &str) -> Option<&'m str> {
    Some(message.headers.as_ref()?.get_last(name)?.as_str())
}

fn number(message: &Message, name: &str) -> Option<u64> {
    text(message, name)?.parse().ok()
}

fn status(message: &Message) -> Option<u16> {
    message.status.map(|status| status.as_u16())
}

#[derive(Deserialize)]
struct InfoBody {
    error: Option<ErrorBody>,
    config: Option<ConfigBody>,
    state: Option<StateBody>,
    cluster: Option<ClusterBody>,
}

#[derive(Deserialize)]
struct ConfigBody {
    #[serde(default)]
    max_msgs_per_subject: i64,
    #[serde(default)]
    max_age: u64,
    #[serde(default)]
    duplicate_window: u64,
    #[serde(default)]
    num_replicas: u16,
    #[serde(default)]
    allow_atomic: bool,
    #[serde(default)]
    metadata: std::collections::BTreeMap<Box<str>, Box<str>>,
}

#[derive(Deserialize)]
struct StateBody {
    first_seq: u64,
    last_seq: u64,
}

#[derive(Deserialize)]
struct ClusterBody {
    #[serde(default)]
    leader: Box<str>,
}

/// Parses the answer to `STREAM.INFO`.
pub fn stream_state(message: &Message) -> Result<Box<StreamState>, ReadFault> {
    if status(message) == Some(STATUS_NO_RESPONDERS) {
        return Err(ReadFault::NoResponders);
    }
    stream_state_of(&message.payload)
}

/// Parses the body of the answer to `STREAM.INFO`.
pub fn stream_state_of(body: &Bytes) -> Result<Box<StreamState>, ReadFault> {
    let body: InfoBody =
        serde_json::from_slice(body).map_err(|_| ReadFault::Malformed { what: "not the state of a stream" })?;
    if let Some(ErrorBody { code, err_code, description }) = body.error {
        return Err(ReadFault::Refused { code, error_code: err_code, description });
    }
    let (Some(config), Some(state)) = (body.config, body.state) else {
        return Err(ReadFault::Malformed { what: "no config or no state of the stream" });
    };
    let shape = StreamShape {
        messages_per_subject_max: u64::try_from(config.max_msgs_per_subject).ok().filter(|max| *max > 0),
        age_max_ms: Some(config.max_age / 1_000_000).filter(|age| *age > 0),
        duplicate_window_ms: config.duplicate_window / 1_000_000,
        replicas: config.num_replicas,
        is_atomic_allowed: config.allow_atomic,
    };
    Ok(Box::new(StreamState {
        shape,
        first_sequence: state.first_seq,
        last_sequence: state.last_seq,
        metadata: config.metadata.into_iter().collect(),
        has_leader: body.cluster.is_none_or(|cluster| !cluster.leader.is_empty()),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_a_stream_is_read() {
        let body = Bytes::from_static(
            br#"{"type":"io.nats.jetstream.api.v1.stream_info_response","total":0,
            "config":{"name":"DN_chat_0","max_msgs_per_subject":11,"max_age":60000000000,"num_replicas":3,
            "duplicate_window":300000000000,"metadata":{"dunlin.epoch":"x7Yq"}},
            "state":{"messages":3,"first_seq":4,"last_seq":9},"cluster":{"name":"c","replicas":[]}}"#,
        );
        let state = stream_state_of(&body).expect("it is well-formed");
        assert_eq!((state.first_sequence, state.last_sequence, state.has_leader), (4, 9, false));
        assert_eq!(state.metadata("dunlin.epoch"), Some("x7Yq"));
        assert_eq!(
            (state.shape.messages_per_subject_max, state.shape.age_max_ms, state.shape.duplicate_window_ms),
            (Some(11), Some(60_000), 300_000)
        );
    }

    #[test]
    fn refusals_and_malformed_replies_are_faults() {
        let refused =
            Bytes::from_static(br#"{"error":{"code":404,"err_code":10059,"description":"stream not found"}}"#);
        assert!(matches!(stream_state_of(&refused), Err(ReadFault::Refused { error_code: 10_059, .. })));
        for body in ["", "{}", "[1]", r#"{"config":{}}"#] {
            let outcome = stream_state_of(&Bytes::from_static(body.as_bytes()));
            assert!(matches!(outcome, Err(ReadFault::Malformed { .. })), "{body}");
        }
    }
}
