//! The messages of the server, with the same types for both encodings. Unknown fields are errors.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use dunlin_protocol::Encoding;

use super::protobuf;

/// A reply, a push, or, if all fields are empty, a ping.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs)]
pub struct ServerMessage {
    pub id: u32,
    pub error: Option<ErrorBody>,
    pub push: Option<PushBody>,
    pub connect: Option<ConnectBody>,
    pub subscribe: Option<SubscribeBody>,
    pub unsubscribe: Option<Empty>,
    pub publish: Option<Empty>,
    pub presence: Option<PresenceBody>,
    pub presence_stats: Option<PresenceStatsBody>,
    pub history: Option<HistoryBody>,
    pub rpc: Option<RpcBody>,
    pub refresh: Option<RefreshBody>,
    pub sub_refresh: Option<Expiry>,
}

/// An object without fields.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Empty {}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs)]
pub struct RpcBody {
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
pub struct PushBody {
    pub id: u64,
    pub channel: String,
    #[serde(rename = "pub")]
    pub publication: Option<PublicationBody>,
    pub join: Option<PresencePush>,
    pub leave: Option<PresencePush>,
    pub unsubscribe: Option<UnsubscribePush>,
    pub subscribe: Option<SubscribeBody>,
    pub refresh: Option<Expiry>,
    pub disconnect: Option<DisconnectPush>,
    pub connect: Option<ConnectBody>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs)]
pub struct DisconnectPush {
    pub code: u32,
    pub reason: String,
    pub reconnect: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs)]
pub struct PresencePush {
    pub info: ClientInfoBody,
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
pub struct ClientInfoBody {
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
    pub info: Option<ClientInfoBody>,
    pub offset: u64,
    pub tags: BTreeMap<String, String>,
    pub delta: bool,
    pub time: i64,
    pub epoch: String,
    pub version: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs)]
pub struct ConnectBody {
    pub client: String,
    pub version: String,
    pub expires: bool,
    pub ttl: u32,
    #[serde(deserialize_with = "raw")]
    pub data: Vec<u8>,
    pub subs: BTreeMap<String, SubscribeBody>,
    pub ping: u32,
    pub pong: bool,
    pub session: String,
    pub node: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs)]
pub struct SubscribeBody {
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
pub struct PresenceBody {
    pub presence: BTreeMap<String, ClientInfoBody>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs)]
pub struct PresenceStatsBody {
    pub num_clients: u32,
    pub num_users: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs)]
pub struct HistoryBody {
    pub publications: Vec<PublicationBody>,
    pub epoch: String,
    pub offset: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs)]
pub struct RefreshBody {
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

/// Decodes the messages of a frame.
///
/// # Errors
/// If the payload is not valid.
pub fn decode(encoding: Encoding, payload: &[u8]) -> Result<Vec<ServerMessage>, String> {
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

/// Decodes a push of a unidirectional transport.
///
/// # Errors
/// If the payload is not valid.
pub fn decode_push(payload: &[u8]) -> Result<PushBody, String> {
    serde_json::from_slice(payload).map_err(|error| format!("{error} in {}", String::from_utf8_lossy(payload)))
}

fn raw<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    Ok(Box::<RawValue>::deserialize(deserializer)?.get().as_bytes().to_vec())
}
