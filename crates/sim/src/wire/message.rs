//! What the server says, in one shape for both encodings. Fields that the protocol does not have are errors.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use dunlin_protocol::Encoding;

use super::protobuf;

/// A reply, a push, or, when wholly empty, a ping.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs)]
pub struct Message {
    pub id: u32,
    pub error: Option<ErrorBody>,
    pub push: Option<Push>,
    pub connect: Option<ConnectResult>,
    pub subscribe: Option<SubscribeResult>,
    pub unsubscribe: Option<Empty>,
    pub publish: Option<Empty>,
    pub presence: Option<PresenceResult>,
    pub presence_stats: Option<PresenceStatsResult>,
    pub history: Option<HistoryResult>,
    pub rpc: Option<RpcResult>,
    pub refresh: Option<RefreshResult>,
    pub sub_refresh: Option<Expiry>,
}

/// An object without fields.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Empty {}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs)]
pub struct RpcResult {
    #[serde(deserialize_with = "raw")]
    pub data: Vec<u8>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs)]
pub struct ErrorBody {
    pub code: u32,
    pub message: String,
    pub temporary: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs)]
pub struct Push {
    pub id: u64,
    pub channel: String,
    #[serde(rename = "pub")]
    pub publication: Option<PublicationBody>,
    pub join: Option<Presence>,
    pub leave: Option<Presence>,
    pub unsubscribe: Option<UnsubscribePush>,
    pub subscribe: Option<SubscribeResult>,
    pub refresh: Option<Expiry>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs)]
pub struct Presence {
    pub info: ClientInfo,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs)]
pub struct UnsubscribePush {
    pub code: u32,
    pub reason: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs)]
pub struct ClientInfo {
    pub user: String,
    pub client: String,
    #[serde(deserialize_with = "raw")]
    pub conn_info: Vec<u8>,
    #[serde(deserialize_with = "raw")]
    pub chan_info: Vec<u8>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs)]
pub struct PublicationBody {
    #[serde(deserialize_with = "raw")]
    pub data: Vec<u8>,
    pub info: Option<ClientInfo>,
    pub offset: u64,
    pub tags: BTreeMap<String, String>,
    pub delta: bool,
    pub time: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs)]
pub struct ConnectResult {
    pub client: String,
    pub version: String,
    pub expires: bool,
    pub ttl: u32,
    #[serde(deserialize_with = "raw")]
    pub data: Vec<u8>,
    pub subs: BTreeMap<String, SubscribeResult>,
    pub ping: u32,
    pub pong: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs)]
pub struct SubscribeResult {
    pub expires: bool,
    pub ttl: u32,
    pub recoverable: bool,
    pub epoch: String,
    pub publications: Vec<PublicationBody>,
    pub recovered: bool,
    pub offset: u64,
    pub positioned: bool,
    #[serde(deserialize_with = "raw")]
    pub data: Vec<u8>,
    pub was_recovering: bool,
    pub delta: bool,
    pub id: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs)]
pub struct PresenceResult {
    pub presence: BTreeMap<String, ClientInfo>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs)]
pub struct PresenceStatsResult {
    pub num_clients: u32,
    pub num_users: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs)]
pub struct HistoryResult {
    pub publications: Vec<PublicationBody>,
    pub epoch: String,
    pub offset: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs)]
pub struct RefreshResult {
    pub client: String,
    pub version: String,
    pub expires: bool,
    pub ttl: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs)]
pub struct Expiry {
    pub expires: bool,
    pub ttl: u32,
}

/// The messages of a frame's payload.
///
/// # Errors
/// What of them is not of the protocol.
pub fn decode(encoding: Encoding, payload: &[u8]) -> Result<Vec<Message>, String> {
    match encoding {
        Encoding::Json => payload
            .split(|&byte| byte == b'\n')
            .map(|line| {
                serde_json::from_slice(line).map_err(|error| format!("{error} in {}", String::from_utf8_lossy(line)))
            })
            .collect(),
        Encoding::Protobuf => protobuf::messages(payload),
    }
}

fn raw<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    Ok(Box::<RawValue>::deserialize(deserializer)?.get().as_bytes().to_vec())
}
