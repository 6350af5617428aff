//! Requests between nodes: a JSON document with the version of the format, a method, and the parameters that the method
//! has in the server API.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use dunlin_engine::{
    api::{ApiRequest, SessionFilter},
    backend::Overrides,
    event::ServerSubscription,
};
use dunlin_protocol::Payload;
use serde::{Deserialize, Serialize};
use serde_json::{
    Map, Number, Value, json,
    value::{RawValue, to_raw_value},
};

use super::super::{ApiError, JsonResult, glob::Glob};

/// The version of the format.
const VERSION: u32 = 1;

/// The method for the users of a channel's presence: results of the API's `presence_stats` cannot be added, because a
/// user can be on several nodes.
pub(super) const PRESENCE_USERS: &str = "presence_users";

/// The method for the rooms of a channel. A node has at most one; a node without one returns an empty list, not an
/// error.
pub(super) const CHANNEL_ROOMS: &str = "channel_rooms";

/// The method for the newest publications of a channel's keys, with the format of [`dunlin_cluster::keys`].
pub(super) const NEWEST_KEYS: &str = "newest_keys";

/// The method for the state of a channel's room: whether the node has it, or asks for it as well.
pub(super) const ROOM_STATE: &str = "room_state";

/// The method for commands of a session whose transport carries data only from the server.
pub(super) const EMULATE: &str = "emulate";

/// The parameters of [`EMULATE`].
#[derive(Serialize, Deserialize)]
pub(super) struct EmulateBody {
    pub(super) session: Box<str>,
    /// The commands.
    pub(super) b64data: Box<str>,
}

/// The result of [`EMULATE`].
#[derive(Serialize, Deserialize)]
pub(super) struct EmulateResult {
    /// False if too many bytes are queued for the session.
    pub(super) taken: bool,
}

/// A request to another node.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PeerCall {
    v: u32,
    pub(super) method: Box<str>,
    pub(super) params: Box<RawValue>,
}

/// The answer: a result or an error.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PeerReply {
    v: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) result: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<PeerError>,
}

/// An error of another node, with the codes of the server API.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PeerError {
    pub(super) code: u32,
    pub(super) message: Box<str>,
}

impl PeerCall {
    pub(super) fn plain(method: &str) -> Self {
        Self::new(method, &json!({}))
    }

    pub(super) fn of_channel(method: &str, channel: &str) -> Self {
        Self::new(method, &json!({ "channel": channel }))
    }

    pub(super) fn channels(pattern: Option<&Glob>) -> Self {
        Self::new("channels", &json!({ "pattern": pattern.map(Glob::pattern).unwrap_or_default() }))
    }

    /// The call for a request on sessions; `None` for other requests.
    pub(super) fn with_sessions(request: &ApiRequest) -> Option<Self> {
        Some(match request {
            ApiRequest::Disconnect { user, only, whitelist, disconnect } => {
                let close = json!({ "code": disconnect.code, "reason": &*disconnect.reason });
                let mut params = chosen(user, only);
                params.insert("whitelist".to_owned(), json!(whitelist));
                params.insert("disconnect".to_owned(), close);
                Self::new("disconnect", &params)
            }
            ApiRequest::Unsubscribe { channel, user, only, code: _ } => {
                let mut params = chosen(user, only);
                params.insert("channel".to_owned(), json!(channel));
                Self::new("unsubscribe", &params)
            }
            ApiRequest::Subscribe { user, only, subscription } => {
                Self::new("subscribe", &SubscribeBody::new(user, only, subscription))
            }
            ApiRequest::Refresh { user, only, expired, expires_at_ms, info } => {
                let info = info.as_ref().and_then(raw_json);
                let refresh = RefreshBody {
                    chosen: chosen(user, only),
                    expired: *expired,
                    expire_at: expire_at(*expires_at_ms),
                    info,
                };
                Self::new("refresh", &refresh)
            }
            _ => return None,
        })
    }

    pub(super) fn new(method: &str, params: &impl Serialize) -> Self {
        let params = to_raw_value(params).expect("texts and numbers are JSON");
        Self { v: VERSION, method: method.into(), params }
    }

    pub(super) fn encode(&self) -> Bytes {
        serde_json::to_vec(self).expect("texts and numbers are JSON").into()
    }

    /// Decodes a request; `None` if this version does not support it.
    pub(super) fn decode(payload: &[u8]) -> Option<Self> {
        serde_json::from_slice(payload).ok().filter(|call: &Self| call.v == VERSION)
    }
}

impl PeerReply {
    pub(super) fn new(outcome: JsonResult) -> Self {
        match outcome {
            Ok(result) => Self { v: VERSION, result: Some(result), error: None },
            Err(error) => {
                let error = PeerError { code: error.code(), message: error.message().into() };
                Self { v: VERSION, result: None, error: Some(error) }
            }
        }
    }

    pub(super) fn not_understood() -> Self {
        Self::new(Err(ApiError::NOT_FOUND))
    }

    pub(super) fn encode(&self) -> Bytes {
        serde_json::to_vec(self).expect("texts and numbers are JSON").into()
    }

    pub(super) fn decode(payload: &[u8]) -> Option<Self> {
        serde_json::from_slice(payload).ok().filter(|reply: &Self| reply.v == VERSION)
    }
}

#[derive(Serialize)]
struct RefreshBody<'a> {
    #[serde(flatten)]
    chosen: Map<String, Value>,
    expired: bool,
    expire_at: Number,
    #[serde(skip_serializing_if = "Option::is_none")]
    info: Option<&'a RawValue>,
}

#[derive(Serialize)]
struct SubscribeBody<'a> {
    #[serde(flatten)]
    chosen: Map<String, Value>,
    channel: &'a str,
    expire_at: Number,
    #[serde(skip_serializing_if = "Option::is_none")]
    info: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "String::is_empty")]
    b64info: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "String::is_empty")]
    b64data: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    recover_since: Option<Value>,
    r#override: Value,
}

impl<'a> SubscribeBody<'a> {
    fn new(user: &str, only: &SessionFilter, subscription: &'a ServerSubscription) -> Self {
        let ServerSubscription { channel, grant, recover_since, from_token: _ } = subscription;
        let (info, b64info) = json_or_base64(grant.info.as_ref());
        let (data, b64data) = json_or_base64(grant.data.as_ref());
        let position = |(offset, epoch): &(u64, Box<str>)| json!({ "offset": offset, "epoch": epoch });
        Self {
            chosen: chosen(user, only),
            channel,
            expire_at: expire_at(grant.expires_at_ms),
            info,
            b64info,
            data,
            b64data,
            recover_since: recover_since.as_ref().map(position),
            r#override: overridden(grant.overrides),
        }
    }
}

/// An expiry in seconds, with a fraction only if it has one: earlier versions read whole seconds.
fn expire_at(expires_at_ms: Option<u64>) -> Number {
    let ms = expires_at_ms.unwrap_or(0);
    match (ms % 1_000, Number::from_f64(ms as f64 / 1_000.0)) {
        (1.., Some(seconds)) => seconds,
        _ => Number::from(ms / 1_000),
    }
}

fn overridden(overrides: Overrides) -> Value {
    let Overrides { presence, join_leave, force_push_join_leave, force_positioning, force_recovery } = overrides;
    let switches = [
        ("presence", presence),
        ("join_leave", join_leave),
        ("force_push_join_leave", force_push_join_leave),
        ("force_positioning", force_positioning),
        ("force_recovery", force_recovery),
    ];
    let given = switches.into_iter().filter_map(|(name, switch)| Some((name.to_owned(), json!({ "value": switch? }))));
    Value::Object(given.collect())
}

/// The fields that select sessions.
fn chosen(user: &str, only: &SessionFilter) -> Map<String, Value> {
    let SessionFilter { client, session } = only;
    let fields = [("user", Some(user)), ("client", client.as_deref()), ("session", session.as_deref())];
    fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), json!(value?)))).collect()
}

/// Encodes a payload. JSON is embedded unchanged.
fn json_or_base64(payload: Option<&Payload>) -> (Option<&RawValue>, String) {
    match payload.map(|payload| (payload, raw_json(payload))) {
        None => (None, String::new()),
        Some((_, Some(json))) => (Some(json), String::new()),
        Some((payload, None)) => (None, STANDARD.encode(payload.bytes())),
    }
}

fn raw_json(payload: &Payload) -> Option<&RawValue> {
    serde_json::from_slice(payload.bytes()).ok()
}
