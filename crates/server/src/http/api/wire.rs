//! Request bodies as received. Unknown fields are ignored; missing fields and `null` are empty.

use std::collections::BTreeMap;

use dunlin_token::UnixTime;
use serde::Deserialize;
use serde_json::value::RawValue;

pub use crate::members::OnlyObject;
use crate::members::{Text, empty_if_null, raw};

/// Defines the body of a method that publishes.
macro_rules! publish_body {
    ($(#[$doc:meta])* $name:ident, $target:ident: $type:ty) => {
        $(#[$doc])*
        #[derive(Debug, Default, Deserialize)]
        #[serde(default)]
        pub struct $name {
            #[serde(deserialize_with = "empty_if_null")]
            $target: $type,
            #[serde(deserialize_with = "raw")]
            data: Option<Box<RawValue>>,
            #[serde(deserialize_with = "empty_if_null")]
            b64data: String,
            #[serde(deserialize_with = "empty_if_null")]
            skip_history: bool,
            #[serde(deserialize_with = "empty_if_null")]
            tags: BTreeMap<String, Text>,
            #[serde(deserialize_with = "empty_if_null")]
            idempotency_key: String,
            #[serde(deserialize_with = "empty_if_null")]
            delta: bool,
            #[serde(deserialize_with = "empty_if_null")]
            version: u64,
            #[serde(deserialize_with = "empty_if_null")]
            version_epoch: String,
        }

        impl $name {
            /// Splits into the target and the publication.
            pub fn split(self) -> ($type, PublicationFields) {
                let publication = PublicationFields {
                    data: self.data,
                    b64data: self.b64data,
                    skip_history: self.skip_history,
                    tags: self.tags,
                    idempotency_key: self.idempotency_key,
                    delta: self.delta,
                    version: self.version,
                    version_epoch: self.version_epoch,
                };
                (self.$target, publication)
            }
        }
    };
}

publish_body! {
    /// `publish`
    PublishParams, channel: String
}

publish_body! {
    /// `broadcast`
    BroadcastParams, channels: Vec<Text>
}

/// The common fields of `publish` and `broadcast`.
pub struct PublicationFields {
    pub data: Option<Box<RawValue>>,
    pub b64data: String,
    pub skip_history: bool,
    pub tags: BTreeMap<String, Text>,
    pub idempotency_key: String,
    pub delta: bool,
    pub version: u64,
    pub version_epoch: String,
}

/// `presence`, `presence_stats` and `history_remove`
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ChannelParams {
    #[serde(deserialize_with = "empty_if_null")]
    pub channel: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct HistoryParams {
    #[serde(deserialize_with = "empty_if_null")]
    pub channel: String,
    #[serde(deserialize_with = "empty_if_null")]
    pub limit: i32,
    pub since: Option<OnlyObject<PositionParams>>,
    #[serde(deserialize_with = "empty_if_null")]
    pub reverse: bool,
}

/// A position in a stream.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct PositionParams {
    #[serde(deserialize_with = "empty_if_null")]
    pub offset: u64,
    #[serde(deserialize_with = "empty_if_null")]
    pub epoch: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ChannelsParams {
    #[serde(deserialize_with = "empty_if_null")]
    pub pattern: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct DisconnectParams {
    #[serde(deserialize_with = "empty_if_null")]
    pub user: String,
    pub disconnect: Option<OnlyObject<CloseWith>>,
    #[serde(deserialize_with = "empty_if_null")]
    pub client: String,
    #[serde(deserialize_with = "empty_if_null")]
    pub whitelist: Vec<Text>,
    #[serde(deserialize_with = "empty_if_null")]
    pub session: String,
    pub label_filter: Option<serde::de::IgnoredAny>,
    #[serde(deserialize_with = "empty_if_null")]
    pub all_users: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RoomPathsParams {
    #[serde(deserialize_with = "empty_if_null")]
    pub channel: String,
    #[serde(deserialize_with = "empty_if_null")]
    pub user: String,
    pub player: Option<u32>,
    pub avatar: Option<u32>,
    #[serde(deserialize_with = "empty_if_null")]
    pub from_ms: u64,
    pub to_ms: Option<u64>,
    #[serde(deserialize_with = "empty_if_null")]
    pub limit: u32,
    #[serde(deserialize_with = "empty_if_null")]
    pub interval_ms: u64,
    #[serde(deserialize_with = "empty_if_null")]
    pub cursor: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RoomOpenParams {
    #[serde(deserialize_with = "empty_if_null")]
    pub channel: String,
    pub params: Option<Box<RawValue>>,
    pub seed: Option<u64>,
    pub max_players: Option<u32>,
    pub locked: Option<bool>,
    pub unlisted: Option<bool>,
    pub metadata: Option<Box<RawValue>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RoomListParams {
    pub namespace: Option<String>,
    #[serde(deserialize_with = "empty_if_null")]
    pub pattern: String,
    pub locked: Option<bool>,
    #[serde(deserialize_with = "empty_if_null")]
    pub min_free_places: u32,
    #[serde(deserialize_with = "empty_if_null")]
    pub metadata: serde_json::Map<String, serde_json::Value>,
    #[serde(deserialize_with = "empty_if_null")]
    pub include_unlisted: bool,
    pub limit: Option<u64>,
    #[serde(deserialize_with = "empty_if_null")]
    pub cursor: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RoomUpdateParams {
    #[serde(deserialize_with = "empty_if_null")]
    pub channel: String,
    pub max_players: Option<u32>,
    pub locked: Option<bool>,
    pub unlisted: Option<bool>,
    #[serde(deserialize_with = "raw")]
    pub metadata: Option<Box<RawValue>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RoomLockParams {
    #[serde(deserialize_with = "empty_if_null")]
    pub channel: String,
    pub locked: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RoomSendParams {
    #[serde(deserialize_with = "empty_if_null")]
    pub channel: String,
    #[serde(deserialize_with = "raw")]
    pub data: Option<Box<RawValue>>,
    #[serde(deserialize_with = "empty_if_null")]
    pub b64data: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RoomKickParams {
    #[serde(deserialize_with = "empty_if_null")]
    pub channel: String,
    #[serde(deserialize_with = "empty_if_null")]
    pub user: String,
    #[serde(deserialize_with = "empty_if_null")]
    pub client: String,
    pub player: Option<u32>,
    #[serde(deserialize_with = "empty_if_null")]
    pub reason: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct MatchParams {
    #[serde(deserialize_with = "empty_if_null")]
    pub namespace: String,
    #[serde(deserialize_with = "empty_if_null")]
    pub users: Vec<Text>,
    #[serde(deserialize_with = "empty_if_null")]
    pub criteria: BTreeMap<String, Text>,
    #[serde(deserialize_with = "empty_if_null")]
    pub region: String,
    #[serde(deserialize_with = "empty_if_null")]
    pub skill: i32,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct MatchTicketParams {
    #[serde(deserialize_with = "empty_if_null")]
    pub ticket: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct SessionsParams {
    #[serde(deserialize_with = "empty_if_null")]
    pub client: String,
    /// An empty id means the anonymous user.
    pub user: Option<String>,
    #[serde(deserialize_with = "empty_if_null")]
    pub address: String,
    #[serde(deserialize_with = "empty_if_null")]
    pub channel: String,
    pub limit: Option<u64>,
    #[serde(deserialize_with = "empty_if_null")]
    pub cursor: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ExplainParams {
    #[serde(deserialize_with = "empty_if_null")]
    pub client: String,
    /// An empty id means the anonymous user.
    pub user: Option<String>,
    #[serde(deserialize_with = "empty_if_null")]
    pub address: String,
    #[serde(deserialize_with = "empty_if_null")]
    pub channel: String,
    pub slowest: Option<u64>,
}

/// The code and the reason of a close.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct CloseWith {
    #[serde(deserialize_with = "empty_if_null")]
    pub code: u32,
    #[serde(deserialize_with = "empty_if_null")]
    pub reason: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct UnsubscribeParams {
    #[serde(deserialize_with = "empty_if_null")]
    pub channel: String,
    #[serde(deserialize_with = "empty_if_null")]
    pub user: String,
    #[serde(deserialize_with = "empty_if_null")]
    pub client: String,
    #[serde(deserialize_with = "empty_if_null")]
    pub session: String,
    pub label_filter: Option<serde::de::IgnoredAny>,
    #[serde(deserialize_with = "empty_if_null")]
    pub all_users: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct SubscribeParams {
    #[serde(deserialize_with = "empty_if_null")]
    pub channel: String,
    #[serde(deserialize_with = "empty_if_null")]
    pub user: String,
    #[serde(deserialize_with = "empty_if_null")]
    pub expire_at: UnixTime,
    pub info: Option<Box<RawValue>>,
    #[serde(deserialize_with = "empty_if_null")]
    pub b64info: String,
    #[serde(deserialize_with = "empty_if_null")]
    pub client: String,
    pub data: Option<Box<RawValue>>,
    #[serde(deserialize_with = "empty_if_null")]
    pub b64data: String,
    pub recover_since: Option<OnlyObject<PositionParams>>,
    pub r#override: Option<OnlyObject<Override>>,
    #[serde(deserialize_with = "empty_if_null")]
    pub session: String,
    pub label_filter: Option<serde::de::IgnoredAny>,
    #[serde(deserialize_with = "empty_if_null")]
    pub all_users: bool,
}

/// The overridden options of a subscription.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Override {
    pub presence: Option<OnlyObject<Switch>>,
    pub join_leave: Option<OnlyObject<Switch>>,
    pub force_push_join_leave: Option<OnlyObject<Switch>>,
    pub force_positioning: Option<OnlyObject<Switch>>,
    pub force_recovery: Option<OnlyObject<Switch>>,
}

/// A boolean that is present.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Switch {
    #[serde(deserialize_with = "empty_if_null")]
    pub value: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RefreshParams {
    #[serde(deserialize_with = "empty_if_null")]
    pub user: String,
    #[serde(deserialize_with = "empty_if_null")]
    pub client: String,
    #[serde(deserialize_with = "empty_if_null")]
    pub expired: bool,
    #[serde(deserialize_with = "empty_if_null")]
    pub expire_at: UnixTime,
    pub info: Option<Box<RawValue>>,
    #[serde(deserialize_with = "empty_if_null")]
    pub session: String,
    pub label_filter: Option<serde::de::IgnoredAny>,
    #[serde(deserialize_with = "empty_if_null")]
    pub all_users: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RpcParams {
    #[serde(deserialize_with = "empty_if_null")]
    pub method: String,
}

/// A body whose content is ignored: `info`, and unsupported methods.
#[derive(Debug, Default, Deserialize)]
pub struct NoParams {}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct BatchParams {
    #[serde(deserialize_with = "empty_if_null")]
    pub commands: Vec<Option<OnlyObject<BatchCommand>>>,
    #[serde(deserialize_with = "empty_if_null")]
    pub parallel: bool,
}

/// One command of a batch: the first field that is present determines it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct BatchCommand {
    pub publish: Option<OnlyObject<PublishParams>>,
    pub broadcast: Option<OnlyObject<BroadcastParams>>,
    pub subscribe: Option<OnlyObject<SubscribeParams>>,
    pub unsubscribe: Option<OnlyObject<UnsubscribeParams>>,
    pub disconnect: Option<OnlyObject<DisconnectParams>>,
    pub history: Option<OnlyObject<HistoryParams>>,
    pub history_remove: Option<OnlyObject<ChannelParams>>,
    pub presence: Option<OnlyObject<ChannelParams>>,
    pub presence_stats: Option<OnlyObject<ChannelParams>>,
    pub info: Option<OnlyObject<NoParams>>,
    pub room_open: Option<OnlyObject<RoomOpenParams>>,
    pub room_close: Option<OnlyObject<ChannelParams>>,
    pub rooms: Option<OnlyObject<NoParams>>,
    pub room_list: Option<OnlyObject<RoomListParams>>,
    pub room_info: Option<OnlyObject<ChannelParams>>,
    pub room_paths: Option<OnlyObject<RoomPathsParams>>,
    pub sessions: Option<OnlyObject<SessionsParams>>,
    pub explain: Option<OnlyObject<ExplainParams>>,
    pub room_send: Option<OnlyObject<RoomSendParams>>,
    pub room_update: Option<OnlyObject<RoomUpdateParams>>,
    pub room_lock: Option<OnlyObject<RoomLockParams>>,
    pub room_kick: Option<OnlyObject<RoomKickParams>>,
    pub r#match: Option<OnlyObject<MatchParams>>,
    pub match_cancel: Option<OnlyObject<MatchTicketParams>>,
    pub match_status: Option<OnlyObject<MatchTicketParams>>,
    pub rpc: Option<OnlyObject<RpcParams>>,
    pub refresh: Option<OnlyObject<RefreshParams>>,
    pub channels: Option<OnlyObject<ChannelsParams>>,
    pub map_publish: Option<OnlyObject<NoParams>>,
    pub map_remove: Option<OnlyObject<NoParams>>,
    pub map_read_state: Option<OnlyObject<NoParams>>,
    pub map_read_stream: Option<OnlyObject<NoParams>>,
    pub map_stats: Option<OnlyObject<NoParams>>,
    pub map_clear: Option<OnlyObject<NoParams>>,
    pub shared_poll_publish: Option<OnlyObject<NoParams>>,
}
