//! Commands about one room: parses and executes them.

use std::sync::Arc;

use dunlin_engine::api::{ApiAnswer, ApiRequest, KickOrder, KickTarget};
use dunlin_protocol::Payload;
use dunlin_rooms::{ListingChange, PlayerId, RoomOverrides};
use serde::Serialize;
use serde_json::value::RawValue;

use super::{
    ApiCommand, ApiError, JsonResult, Parsed,
    command::{data_of, named},
    own_node::OwnNode,
    result, wire,
};

/// A command about one room.
#[derive(Clone, Debug)]
pub enum RoomCommand {
    /// See [`super::Method::RoomOpen`].
    Open {
        /// Channel name, not checked yet.
        channel: Box<str>,
        /// Settings that override those of the namespace.
        overrides: Arc<RoomOverrides>,
    },
    /// See [`super::Method::RoomUpdate`] and [`super::Method::RoomLock`].
    Update {
        /// Channel name, not checked yet.
        channel: Box<str>,
        /// The change.
        change: Arc<ListingChange>,
    },
    /// See [`super::Method::RoomSend`].
    Send {
        /// Channel name, not checked yet.
        channel: Box<str>,
        /// The data for the game.
        data: Payload,
    },
    /// See [`super::Method::RoomKick`].
    Kick {
        /// Channel name, not checked yet.
        channel: Box<str>,
        /// The players to remove, and the reason.
        order: Arc<KickOrder>,
    },
}

/// The result of `room_send`.
#[derive(Serialize)]
struct SentJson<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    b64data: Option<String>,
}

pub(super) fn open(body: wire::RoomOpenParams) -> Parsed {
    let channel = named(body.channel)?;
    let params = match body.params {
        Some(params) if !params.get().starts_with('{') => {
            return Err(ApiError::bad_request("params must be a JSON object"));
        }
        // An empty object is equivalent to no parameters.
        Some(params) if params.get()[1..].trim_start() == "}" => Box::default(),
        Some(params) => Box::<str>::from(params),
        None => Box::default(),
    };
    let listing = ListingChange {
        players_max: body.max_players,
        is_locked: body.locked,
        is_unlisted: body.unlisted,
        metadata: body.metadata.map(|json| json.get().into()),
    };
    let overrides = Arc::new(RoomOverrides { params, seed: body.seed, listing });
    Ok(ApiCommand::Room(RoomCommand::Open { channel, overrides }))
}

pub(super) fn update(body: wire::RoomUpdateParams) -> Parsed {
    let channel = named(body.channel)?;
    let metadata = body.metadata.map(|json| match json.get() {
        // `null` removes the metadata.
        "null" => "".into(),
        json => json.into(),
    });
    let change =
        ListingChange { players_max: body.max_players, is_locked: body.locked, is_unlisted: body.unlisted, metadata };
    Ok(ApiCommand::Room(RoomCommand::Update { channel, change: change.into() }))
}

pub(super) fn lock(body: wire::RoomLockParams) -> Parsed {
    let channel = named(body.channel)?;
    let is_locked = body.locked.ok_or_else(|| ApiError::bad_request("locked is missing"))?;
    let change = ListingChange { is_locked: Some(is_locked), ..ListingChange::default() };
    Ok(ApiCommand::Room(RoomCommand::Update { channel, change: change.into() }))
}

pub(super) fn send(body: wire::RoomSendParams) -> Parsed {
    let channel = named(body.channel)?;
    let data = data_of(body.data, body.b64data)?.ok_or(ApiError::NO_DATA)?;
    Ok(ApiCommand::Room(RoomCommand::Send { channel, data }))
}

pub(super) fn kick(body: wire::RoomKickParams) -> Parsed {
    let channel = named(body.channel)?;
    let target = match (body.user.is_empty(), body.client.is_empty(), body.player) {
        (false, true, None) => KickTarget::User(body.user.into()),
        (true, false, None) => KickTarget::Client(body.client.into()),
        (true, true, Some(player)) => KickTarget::Player(PlayerId(player)),
        _ => return Err(ApiError::bad_request("name one of user, client and player")),
    };
    let order = KickOrder { target, reason: body.reason.into() };
    Ok(ApiCommand::Room(RoomCommand::Kick { channel, order: order.into() }))
}

impl RoomCommand {
    /// The channel of the room.
    pub fn channel(&self) -> &str {
        match self {
            Self::Open { channel, .. }
            | Self::Update { channel, .. }
            | Self::Send { channel, .. }
            | Self::Kick { channel, .. } => channel,
        }
    }
}

pub(super) async fn carry_out(own: &OwnNode, command: RoomCommand) -> JsonResult {
    match command {
        RoomCommand::Open { channel, overrides } => {
            match own.ask_room(&channel, ApiRequest::OpenRoom { channel: channel.clone(), overrides }).await? {
                ApiAnswer::NotOpened(refusal) => Err(ApiError::bad_request(refusal.message)),
                _ => result::to_outcome(&result::EmptyJson {}),
            }
        }
        RoomCommand::Update { channel, change } => {
            match own.ask_room(&channel, ApiRequest::ChangeListing { channel: channel.clone(), change }).await? {
                ApiAnswer::MessageAnswered(Ok(_)) => result::to_outcome(&result::EmptyJson {}),
                ApiAnswer::MessageAnswered(Err(refusal)) => Err(ApiError::bad_request(refusal.message)),
                _ => Err(ApiError::INTERNAL),
            }
        }
        RoomCommand::Kick { channel, order } => {
            match own.ask_room(&channel, ApiRequest::KickFromRoom { channel: channel.clone(), order }).await? {
                ApiAnswer::MessageAnswered(Ok(count)) => {
                    let num_players = serde_json::from_slice(&count).map_err(|_| ApiError::INTERNAL)?;
                    result::to_outcome(&result::RoomClosedJson { num_players })
                }
                ApiAnswer::MessageAnswered(Err(refusal)) => Err(ApiError::not_found(refusal.message)),
                _ => Err(ApiError::INTERNAL),
            }
        }
        RoomCommand::Send { channel, data } => {
            let request = ApiRequest::SendToRoom { channel: channel.clone(), data: data.bytes().clone() };
            match own.ask_room(&channel, request).await? {
                ApiAnswer::MessageAnswered(Ok(answer)) => {
                    let answer = Payload::from_opaque(answer);
                    let (data, b64data) = crate::members::json_or_base64(Some(&answer));
                    result::to_outcome(&SentJson { data, b64data })
                }
                ApiAnswer::MessageAnswered(Err(refusal)) => Err(ApiError::of_game(refusal)),
                _ => Err(ApiError::INTERNAL),
            }
        }
    }
}
