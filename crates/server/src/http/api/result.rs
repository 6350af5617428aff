//! Results as JSON. Names, and which empty values are omitted, are Centrifugo's.

use std::collections::BTreeMap;

use dunlin_protocol::ClientInfo;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use super::{ApiError, JsonResult};
use crate::{json_members::json_or_base64, rooms::RoomReport};

/// The result of `unsubscribe`, `disconnect` and `history_remove`.
#[derive(Serialize)]
pub struct EmptyJson {}

/// A session.
#[derive(Serialize)]
pub struct ClientJson<'a> {
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

#[derive(Serialize)]
pub struct PresenceStatsJson {
    pub num_clients: u32,
    pub num_users: u32,
}

#[derive(Serialize)]
pub struct PublicationJson<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    b64data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    info: Option<ClientJson<'a>>,
    #[serde(skip_serializing_if = "is_zero")]
    offset: u64,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    tags: BTreeMap<&'a str, &'a str>,
}

/// The result of `room_close` and `room_kick`.
#[derive(Serialize)]
pub struct RoomClosedJson {
    pub num_players: u32,
}

#[derive(Serialize)]
pub struct RoomJson<'a> {
    thread: u16,
    num_players: u32,
    num_players_away: u32,
    num_spectators: u32,
    max_players: u32,
    locked: bool,
    unlisted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<&'a RawValue>,
    num_objects: u32,
    tick: u32,
    tick_p50_us: u32,
    tick_p99_us: u32,
    late: u64,
    skipped: u64,
    overruns: u64,
    /// In thousandths.
    rate: u16,
    world_bytes: u64,
    memory_bytes: u64,
}

#[derive(Serialize)]
pub struct NodeJson<'a> {
    pub uid: &'a str,
    pub name: &'a str,
    pub version: &'a str,
    pub num_clients: u32,
    pub num_users: u32,
    pub num_channels: u32,
    pub num_subs: u32,
    pub uptime: u64,
    pub process: ProcessJson,
    pub reactor: &'a str,
    pub shards: u32,
    /// Shards that did not reply in time. Their sessions and channels are missing from the counts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub silent_shards: Vec<u16>,
}

/// The resources that the process uses.
#[derive(Serialize)]
pub struct ProcessJson {
    /// CPU usage in percent of one core.
    pub cpu: f64,
    /// Resident memory in bytes.
    pub rss: u64,
}

/// Serializes a result.
pub fn to_outcome(result: &impl Serialize) -> JsonResult {
    to_raw_value(result).map_err(|_| ApiError::INTERNAL)
}

impl<'a> RoomJson<'a> {
    /// The API's representation of a room.
    pub fn new(report: &'a RoomReport) -> Self {
        Self {
            thread: report.thread,
            num_players: report.players,
            num_players_away: report.players_away,
            num_spectators: report.spectators,
            max_players: report.players_max,
            locked: report.is_locked,
            unlisted: report.is_unlisted,
            metadata: serde_json::from_str(&report.metadata).ok(),
            params: serde_json::from_str(&report.params).ok(),
            num_objects: report.objects,
            tick: report.tick,
            tick_p50_us: report.tick_p50_us,
            tick_p99_us: report.tick_p99_us,
            late: report.late,
            skipped: report.skipped,
            overruns: report.overruns,
            rate: report.rate.permille(),
            world_bytes: report.world_bytes,
            memory_bytes: report.memory_bytes,
        }
    }
}

impl<'a> ClientJson<'a> {
    /// The API's representation of a session.
    pub fn new(info: &'a ClientInfo) -> Self {
        let (conn_info, b64conn_info) = json_or_base64(info.conn_info.as_ref());
        let (chan_info, b64chan_info) = json_or_base64(info.chan_info.as_ref());
        Self { user: &info.user, client: &info.client, conn_info, b64conn_info, chan_info, b64chan_info }
    }
}

impl<'a> PublicationJson<'a> {
    /// The API's representation of a publication.
    pub fn new(publication: &'a dunlin_protocol::Publication) -> Self {
        let (data, b64data) = json_or_base64(Some(&publication.data));
        Self {
            data,
            b64data,
            info: publication.info.as_deref().map(ClientJson::new),
            offset: publication.offset,
            tags: publication.tags.iter().map(|(key, value)| (&**key, &**value)).collect(),
        }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
pub fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::http::api::{history::HistoryJson, publish::PublishedJson};

    fn json(value: &impl Serialize) -> String {
        serde_json::to_string(value).expect("a result is JSON")
    }

    #[test]
    fn empty_values_are_omitted_as_in_centrifugo() {
        assert_eq!(json(&PublishedJson { offset: 0, epoch: "".into() }), "{}");
        assert_eq!(json(&PublishedJson { offset: 3, epoch: "x".into() }), r#"{"offset":3,"epoch":"x"}"#);
        let history = HistoryJson { publications: Vec::new(), epoch: "", offset: 0, truncated: false };
        assert_eq!(json(&history), r#"{"publications":[],"epoch":"","offset":0}"#);
    }

    #[test]
    fn payloads_are_written_as_json_or_base64() {
        let info = ClientInfo {
            user: "u".into(),
            client: "c".into(),
            conn_info: Some(dunlin_protocol::Payload::from_opaque(Bytes::from_static(b"{\"a\": 1}"))),
            chan_info: Some(dunlin_protocol::Payload::from_opaque(Bytes::from_static(b"\xff\0"))),
        };
        assert_eq!(
            json(&ClientJson::new(&info)),
            r#"{"user":"u","client":"c","conn_info":{"a": 1},"b64chan_info":"/wA="}"#
        );
    }
}
