//! Results as JSON: names, and which empty values are left out, are Centrifugo's.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use dunlin_protocol::{ClientInfo, Payload};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use super::{ApiError, Outcome};
use crate::rooms::RoomReport;

/// Of `unsubscribe`, `disconnect` and `history_remove`.
#[derive(Serialize)]
pub struct Done {}

/// Of `publish`.
#[derive(Serialize)]
pub struct Published {
    #[serde(skip_serializing_if = "is_zero")]
    pub offset: u64,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub epoch: Box<str>,
}

/// Of `broadcast`: an answer for each channel, in the order asked for.
#[derive(Serialize)]
pub struct Broadcast {
    pub responses: Vec<Answer>,
}

/// A result or an error.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Result(Box<RawValue>),
    Error(ApiError),
}

/// Of `presence`.
#[derive(Serialize)]
pub struct Presence<'a> {
    pub presence: BTreeMap<&'a str, Client<'a>>,
}

/// A session.
#[derive(Serialize)]
pub struct Client<'a> {
    user: &'a str,
    client: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    conn_info: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    b64conn_info: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    chan_info: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    b64chan_info: Option<String>,
}

/// Of `presence_stats`.
#[derive(Serialize)]
pub struct PresenceStats {
    pub num_clients: u32,
    pub num_users: u32,
}

/// Of `history`.
#[derive(Serialize)]
pub struct History<'a> {
    pub publications: Vec<Publication<'a>>,
    pub epoch: &'a str,
    pub offset: u64,
}

/// A publication.
#[derive(Serialize)]
pub struct Publication<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    b64data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    info: Option<Client<'a>>,
    #[serde(skip_serializing_if = "is_zero")]
    offset: u64,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    tags: BTreeMap<&'a str, &'a str>,
}

/// Of `channels`.
#[derive(Serialize)]
pub struct Channels {
    pub channels: BTreeMap<Box<str>, Channel>,
}

/// A channel.
#[derive(Default, Serialize)]
pub struct Channel {
    pub num_clients: u32,
}

/// Of `room_close`.
#[derive(Serialize)]
pub struct RoomClosed {
    pub num_players: u32,
}

/// Of `rooms`, by channel.
#[derive(Serialize)]
pub struct Rooms<'a> {
    pub rooms: BTreeMap<&'a str, Room>,
}

/// A room.
#[derive(Serialize)]
pub struct Room {
    thread: u16,
    num_players: u32,
    num_objects: u32,
    tick: u32,
    tick_p50_us: u32,
    tick_p99_us: u32,
    late: u64,
    skipped: u64,
    overruns: u64,
    world_bytes: u64,
    memory_bytes: u64,
}

/// Of `info`.
#[derive(Serialize)]
pub struct Info<'a> {
    pub nodes: [Node<'a>; 1],
}

/// A node.
#[derive(Serialize)]
pub struct Node<'a> {
    pub uid: &'a str,
    pub name: &'a str,
    pub version: &'a str,
    pub num_clients: u32,
    pub num_users: u32,
    pub num_channels: u32,
    pub num_subs: u32,
    pub uptime: u64,
    pub process: Process,
    pub reactor: &'a str,
    pub shards: u32,
}

/// What the process uses.
#[derive(Serialize)]
pub struct Process {
    /// Per cent of one processor.
    pub cpu: f64,
    /// Bytes in RAM.
    pub rss: u64,
}

/// The JSON of a result.
pub fn to_outcome(result: &impl Serialize) -> Outcome {
    to_raw_value(result).map_err(|_| ApiError::INTERNAL)
}

impl From<Outcome> for Answer {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Ok(result) => Self::Result(result),
            Err(error) => Self::Error(error),
        }
    }
}

impl Room {
    /// How the API shows a room.
    pub fn new(report: &RoomReport) -> Self {
        Self {
            thread: report.thread,
            num_players: report.players,
            num_objects: report.objects,
            tick: report.tick,
            tick_p50_us: report.tick_p50_us,
            tick_p99_us: report.tick_p99_us,
            late: report.late,
            skipped: report.skipped,
            overruns: report.overruns,
            world_bytes: report.world_bytes,
            memory_bytes: report.memory_bytes,
        }
    }
}

impl<'a> Client<'a> {
    /// How the API shows a session.
    pub fn new(info: &'a ClientInfo) -> Self {
        let (conn_info, b64conn_info) = json_or_base64(info.conn_info.as_ref());
        let (chan_info, b64chan_info) = json_or_base64(info.chan_info.as_ref());
        Self { user: &info.user, client: &info.client, conn_info, b64conn_info, chan_info, b64chan_info }
    }
}

impl<'a> Publication<'a> {
    /// How the API shows a publication.
    pub fn new(publication: &'a dunlin_protocol::Publication) -> Self {
        let (data, b64data) = json_or_base64(Some(&publication.data));
        Self {
            data,
            b64data,
            info: publication.info.as_deref().map(Client::new),
            offset: publication.offset,
            tags: publication.tags.iter().map(|(key, value)| (&**key, &**value)).collect(),
        }
    }
}

/// A payload that is JSON stands in the answer as it is, any other in base64, beside an absent one.
fn json_or_base64(payload: Option<&Payload>) -> (Option<&RawValue>, Option<String>) {
    let Some(payload) = payload else { return (None, None) };
    match serde_json::from_slice(payload.bytes()) {
        Ok(json) => (Some(json), None),
        Err(_) => (None, Some(STANDARD.encode(payload.bytes()))),
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn json(value: &impl Serialize) -> String {
        serde_json::to_string(value).expect("a result is JSON")
    }

    #[test]
    fn empty_values_are_left_out_where_centrifugo_does() {
        assert_eq!(json(&Published { offset: 0, epoch: "".into() }), "{}");
        assert_eq!(json(&Published { offset: 3, epoch: "x".into() }), r#"{"offset":3,"epoch":"x"}"#);
        assert_eq!(json(&Presence { presence: BTreeMap::new() }), r#"{"presence":{}}"#);
        let history = History { publications: Vec::new(), epoch: "", offset: 0 };
        assert_eq!(json(&history), r#"{"publications":[],"epoch":"","offset":0}"#);
    }

    #[test]
    fn payloads_stand_as_json_or_in_base64() {
        let info = ClientInfo {
            user: "u".into(),
            client: "c".into(),
            conn_info: Some(Payload::from_opaque(Bytes::from_static(b"{\"a\": 1}"))),
            chan_info: Some(Payload::from_opaque(Bytes::from_static(b"\xff\0"))),
        };
        assert_eq!(
            json(&Client::new(&info)),
            r#"{"user":"u","client":"c","conn_info":{"a": 1},"b64chan_info":"/wA="}"#
        );
    }
}
