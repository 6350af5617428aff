//! Commands about one room, and the list of all rooms.

use std::sync::Arc;

use dunlin_engine::api::{ApiAnswer, ApiRequest, KickOrder, KickTarget};
use dunlin_protocol::Payload;
use dunlin_rooms::{ListingChange, PlayerId, RoomOverrides};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{
    ApiError, Executor, JsonResult, RequestLimits,
    command::{Command, data_of, named},
    own_node::OwnNode,
    result::{EmptyJson, RoomClosedJson, to_outcome},
    trace,
    wire::{ChannelParams, NoParams},
};
use crate::json_members::{empty_if_null, raw};

/// See [`super::Method::RoomOpen`].
#[derive(Clone, Debug)]
pub struct RoomOpenCommand {
    /// Channel name, not checked yet.
    pub channel: Box<str>,
    /// Settings that override those of the namespace.
    overrides: RoomOverrides,
}

/// See [`super::Method::RoomClose`].
#[derive(Clone, Debug)]
pub struct RoomCloseCommand {
    /// Channel name, not checked yet.
    pub channel: Box<str>,
}

/// See [`super::Method::RoomUpdate`].
#[derive(Clone, Debug)]
pub struct RoomUpdateCommand {
    /// Channel name, not checked yet.
    pub channel: Box<str>,
    change: ListingChange,
}

/// See [`super::Method::RoomLock`].
#[derive(Clone, Debug)]
pub struct RoomLockCommand {
    /// Channel name, not checked yet.
    pub channel: Box<str>,
    change: ListingChange,
}

/// See [`super::Method::RoomSend`].
#[derive(Clone, Debug)]
pub struct RoomSendCommand {
    /// Channel name, not checked yet.
    pub channel: Box<str>,
    /// The data for the game.
    data: Payload,
}

/// See [`super::Method::RoomKick`].
#[derive(Clone, Debug)]
pub struct RoomKickCommand {
    /// Channel name, not checked yet.
    pub channel: Box<str>,
    /// The players to remove, and the reason.
    order: KickOrder,
}

/// See [`super::Method::Rooms`].
#[derive(Clone, Debug)]
pub struct RoomsCommand;

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

/// The result of `room_send`.
#[derive(Serialize)]
struct SentJson<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    b64data: Option<String>,
}

impl Command for RoomOpenCommand {
    type Params = RoomOpenParams;

    fn check(params: RoomOpenParams, _: &RequestLimits) -> Result<Self, ApiError> {
        let channel = named(params.channel)?;
        let text = match params.params {
            Some(params) if !params.get().starts_with('{') => {
                return Err(ApiError::bad_request("params must be a JSON object"));
            }
            // An empty object is equivalent to no parameters.
            Some(params) if params.get()[1..].trim_start() == "}" => Box::default(),
            Some(params) => Box::<str>::from(params),
            None => Box::default(),
        };
        let listing = ListingChange {
            players_max: params.max_players,
            is_locked: params.locked,
            is_unlisted: params.unlisted,
            metadata: params.metadata.map(|json| json.get().into()),
        };
        let overrides = RoomOverrides { params: text, seed: params.seed, listing, continues: false };
        Ok(Self { channel, overrides })
    }

    async fn carry_out(self, executor: &Executor) -> JsonResult {
        let Self { channel, overrides } = self;
        let request = ApiRequest::OpenRoom { channel: channel.clone(), overrides: Arc::new(overrides) };
        let _opener = trace::opening(&channel);
        match executor.own().ask_room(&channel, request).await? {
            ApiAnswer::NotOpened(refusal) => Err(ApiError::bad_request(refusal.message)),
            _ => to_outcome(&EmptyJson {}),
        }
    }
}

impl Command for RoomCloseCommand {
    type Params = ChannelParams;

    fn check(params: ChannelParams, _: &RequestLimits) -> Result<Self, ApiError> {
        Ok(Self { channel: named(params.channel)? })
    }

    async fn carry_out(self, executor: &Executor) -> JsonResult {
        executor.all_nodes().close_room(self.channel).await
    }
}

impl Command for RoomUpdateCommand {
    type Params = RoomUpdateParams;

    fn check(params: RoomUpdateParams, _: &RequestLimits) -> Result<Self, ApiError> {
        let channel = named(params.channel)?;
        let metadata = params.metadata.map(|json| match json.get() {
            // `null` removes the metadata.
            "null" => "".into(),
            json => json.into(),
        });
        let change = ListingChange {
            players_max: params.max_players,
            is_locked: params.locked,
            is_unlisted: params.unlisted,
            metadata,
        };
        Ok(Self { channel, change })
    }

    async fn carry_out(self, executor: &Executor) -> JsonResult {
        change_listing(executor.own(), self.channel, self.change).await
    }
}

impl Command for RoomLockCommand {
    type Params = RoomLockParams;

    fn check(params: RoomLockParams, _: &RequestLimits) -> Result<Self, ApiError> {
        let channel = named(params.channel)?;
        let is_locked = params.locked.ok_or_else(|| ApiError::bad_request("locked is missing"))?;
        let change = ListingChange { is_locked: Some(is_locked), ..ListingChange::default() };
        Ok(Self { channel, change })
    }

    async fn carry_out(self, executor: &Executor) -> JsonResult {
        change_listing(executor.own(), self.channel, self.change).await
    }
}

impl Command for RoomSendCommand {
    type Params = RoomSendParams;

    fn check(params: RoomSendParams, _: &RequestLimits) -> Result<Self, ApiError> {
        let channel = named(params.channel)?;
        let data = data_of(params.data, params.b64data)?.ok_or(ApiError::NO_DATA)?;
        Ok(Self { channel, data })
    }

    async fn carry_out(self, executor: &Executor) -> JsonResult {
        let Self { channel, data } = self;
        let request = ApiRequest::SendToRoom { channel: channel.clone(), data: data.bytes().clone() };
        match executor.own().ask_room(&channel, request).await? {
            ApiAnswer::MessageAnswered(Ok(answer)) => {
                let answer = Payload::from_opaque(answer);
                let (data, b64data) = crate::json_members::json_or_base64(Some(&answer));
                to_outcome(&SentJson { data, b64data })
            }
            ApiAnswer::MessageAnswered(Err(refusal)) => Err(ApiError::of_game(refusal)),
            _ => Err(ApiError::INTERNAL),
        }
    }
}

impl Command for RoomKickCommand {
    type Params = RoomKickParams;

    fn check(params: RoomKickParams, _: &RequestLimits) -> Result<Self, ApiError> {
        let channel = named(params.channel)?;
        let target = match (params.user.is_empty(), params.client.is_empty(), params.player) {
            (false, true, None) => KickTarget::User(params.user.into()),
            (true, false, None) => KickTarget::Client(params.client.into()),
            (true, true, Some(player)) => KickTarget::Player(PlayerId(player)),
            _ => return Err(ApiError::bad_request("name one of user, client and player")),
        };
        let order = KickOrder { target, reason: params.reason.into() };
        Ok(Self { channel, order })
    }

    async fn carry_out(self, executor: &Executor) -> JsonResult {
        let Self { channel, order } = self;
        let request = ApiRequest::KickFromRoom { channel: channel.clone(), order: order.into() };
        match executor.own().ask_room(&channel, request).await? {
            ApiAnswer::MessageAnswered(Ok(count)) => {
                let num_players = serde_json::from_slice(&count).map_err(|_| ApiError::INTERNAL)?;
                to_outcome(&RoomClosedJson { num_players })
            }
            ApiAnswer::MessageAnswered(Err(refusal)) => Err(ApiError::not_found(refusal.message)),
            _ => Err(ApiError::INTERNAL),
        }
    }
}

impl Command for RoomsCommand {
    type Params = NoParams;

    fn check(_: NoParams, _: &RequestLimits) -> Result<Self, ApiError> {
        Ok(Self)
    }

    async fn carry_out(self, executor: &Executor) -> JsonResult {
        executor.all_nodes().rooms().await
    }
}

async fn change_listing(own: &OwnNode, channel: Box<str>, change: ListingChange) -> JsonResult {
    let request = ApiRequest::ChangeListing { channel: channel.clone(), change: change.into() };
    match own.ask_room(&channel, request).await? {
        ApiAnswer::MessageAnswered(Ok(_)) => to_outcome(&EmptyJson {}),
        ApiAnswer::MessageAnswered(Err(refusal)) => Err(ApiError::bad_request(refusal.message)),
        _ => Err(ApiError::INTERNAL),
    }
}
