//! Typed commands. A value of these types is valid input for the shards.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use dunlin_engine::{
    api::{ApiRequest, HistoryQuery, SessionFilter},
    backend::{Overrides, PublishHow},
    event::{ServerSubscription, SubscriptionGrant},
};
use dunlin_protocol::{Disconnect, Payload, Tags, UnsubscribeCode};
use dunlin_token::UnixTime;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    ApiError, Method,
    body::{Body, Malformed, Params},
    glob::Glob,
    paths::{PathFields, PathsWanted},
    room_list::{self, RoomQuery},
    rooms::{self, RoomCommand},
    sessions::{self, SessionsWanted},
    tickets, wire,
};
use crate::{matchmaking::TicketCommand, telemetry::events::ApiFieldUnknown};

/// A parsed request of the server API.
#[derive(Clone, Debug)]
pub enum ApiCommand {
    /// See [`Method::Publish`].
    Publish {
        /// Channel name, not checked yet.
        channel: Box<str>,
        /// The content of the publication.
        publication: ApiPublication,
    },
    /// See [`Method::Broadcast`].
    Broadcast {
        /// The channels. An empty name causes an error in the response.
        channels: Vec<Box<str>>,
        /// The content of the publications.
        publication: ApiPublication,
    },
    /// See [`Method::Presence`].
    Presence {
        /// Channel name, not checked yet.
        channel: Box<str>,
    },
    /// See [`Method::PresenceStats`].
    PresenceStats {
        /// Channel name, not checked yet.
        channel: Box<str>,
    },
    /// See [`Method::History`].
    History {
        /// Channel name, not checked yet.
        channel: Box<str>,
        /// The requested part of the history.
        query: HistoryQuery,
    },
    /// See [`Method::HistoryRemove`].
    HistoryRemove {
        /// Channel name, not checked yet.
        channel: Box<str>,
    },
    /// See [`Method::Channels`].
    Channels {
        /// The pattern of channel names; `None` for all channels.
        pattern: Option<Glob>,
    },
    /// See [`Method::Disconnect`], [`Method::Unsubscribe`], [`Method::Subscribe`] and [`Method::Refresh`]: every shard
    /// executes it on its sessions.
    WithSessions(ApiRequest),
    /// See [`Method::Info`].
    Info,
    /// See [`Method::RoomClose`].
    RoomClose {
        /// Channel name, not checked yet.
        channel: Box<str>,
    },
    /// See [`Method::Rooms`].
    Rooms,
    /// See [`Method::RoomList`].
    RoomList(Box<RoomQuery>),
    /// See [`Method::RoomInfo`].
    RoomInfo {
        /// Channel name, not checked yet.
        channel: Box<str>,
    },
    /// See [`Method::RoomPaths`].
    RoomPaths(Box<PathsWanted>),
    /// See [`Method::Sessions`] and [`Method::Explain`].
    Sessions(Box<SessionsWanted>),
    /// A command about one room of this node.
    Room(RoomCommand),
    /// See [`Method::Match`], [`Method::MatchCancel`] and [`Method::MatchStatus`].
    Ticket(Box<TicketCommand>),
}

/// The content of a publication.
#[derive(Clone, Debug)]
pub struct ApiPublication {
    /// The application's data.
    pub data: Payload,
    /// Options of the publication.
    pub how: PublishHow,
}

/// A command, or its error if the command is invalid.
pub type Parsed = Result<ApiCommand, ApiError>;

/// The commands of one request.
#[derive(Debug)]
pub struct CommandBatch {
    /// In order. Unknown commands have no method.
    pub commands: Vec<(Option<Method>, Parsed)>,
    /// The commands may be executed concurrently.
    pub parallel: bool,
}

/// Limits of one request.
#[derive(Clone, Copy, Debug)]
pub struct RequestLimits {
    /// `http_api.broadcast_channels_limit`; requests above it get error 107.
    pub broadcast_channels_max: usize,
    /// Maximum number of commands in a batch, or in a request to the single path.
    pub batch_commands_max: usize,
}

impl Default for RequestLimits {
    fn default() -> Self {
        Self { broadcast_channels_max: 1_000, batch_commands_max: 1_000 }
    }
}

impl ApiCommand {
    /// Parses the body of a request for `method`, which is not [`Method::Batch`].
    ///
    /// # Errors
    /// [`Malformed`]
    pub fn parse(method: Method, body: &[u8], limits: &RequestLimits) -> Result<Parsed, Malformed> {
        let body = Body { method, bytes: body };
        let of_channel = |make: fn(Box<str>) -> Self| parse_as(body, |body| channel_of(body).map(make));
        Ok(match method {
            Method::Publish => parse_as(body, publish)?,
            Method::Broadcast => parse_as(body, |body| broadcast(body, limits))?,
            Method::Presence => of_channel(|channel| Self::Presence { channel })?,
            Method::PresenceStats => of_channel(|channel| Self::PresenceStats { channel })?,
            Method::History => parse_as(body, history)?,
            Method::HistoryRemove => of_channel(|channel| Self::HistoryRemove { channel })?,
            Method::Channels => parse_as(body, |body| channels(&body))?,
            Method::Disconnect => parse_as(body, disconnect)?,
            Method::Unsubscribe => parse_as(body, unsubscribe)?,
            Method::Info => parse_as(body, |_: wire::NoParams| Ok(Self::Info))?,
            Method::RoomOpen => parse_as(body, rooms::open)?,
            Method::RoomClose => of_channel(|channel| Self::RoomClose { channel })?,
            Method::Rooms => parse_as(body, |_: wire::NoParams| Ok(Self::Rooms))?,
            Method::RoomList => parse_as(body, room_list::list)?,
            Method::RoomInfo => parse_as(body, room_list::info)?,
            Method::RoomPaths => parse_as(body, room_paths)?,
            Method::Sessions => parse_as(body, sessions::list)?,
            Method::Explain => parse_as(body, sessions::explain)?,
            Method::RoomSend => parse_as(body, rooms::send)?,
            Method::RoomUpdate => parse_as(body, rooms::update)?,
            Method::RoomLock => parse_as(body, rooms::lock)?,
            Method::RoomKick => parse_as(body, rooms::kick)?,
            Method::Match => parse_as(body, tickets::submit)?,
            Method::MatchCancel => parse_as(body, |body| tickets::cancel(&body))?,
            Method::MatchStatus => parse_as(body, |body| tickets::status(&body))?,
            Method::Rpc => parse_as(body, |body| rpc(&body))?,
            Method::Batch => Err(ApiError::NOT_FOUND),
            Method::Subscribe => parse_as(body, subscribe)?,
            Method::Refresh => parse_as(body, refresh)?,
            Method::MapPublish
            | Method::MapRemove
            | Method::MapReadState
            | Method::MapReadStream
            | Method::MapStats
            | Method::MapClear
            | Method::SharedPollPublish => parse_as(body, |_: wire::NoParams| Err(unsupported(method)))?,
        })
    }
}

impl CommandBatch {
    /// Parses the body of a [`Method::Batch`].
    ///
    /// # Errors
    /// [`Malformed`] if any of the commands is malformed; then none is executed.
    pub fn parse(body: &[u8], limits: &RequestLimits) -> Result<Result<Self, ApiError>, Malformed> {
        let body = Body { method: Method::Batch, bytes: body };
        let Params { params: batch, unknown } = body.parse::<wire::BatchParams>()?;
        warn_of_unknown(body.method, unknown);
        if batch.commands.len() > limits.batch_commands_max {
            let most = limits.batch_commands_max;
            return Ok(Err(ApiError::bad_request(format_args!("at most {most} commands in a batch"))));
        }
        let commands = batch.commands.into_iter().map(|command| batch_command(command, limits)).collect();
        Ok(Ok(Self { commands, parallel: batch.parallel }))
    }
}

/// If two fields of a command are set, the order of these checks determines which is used. It is Centrifugo's order.
fn batch_command(
    command: Option<wire::OnlyObject<wire::BatchCommand>>,
    limits: &RequestLimits,
) -> (Option<Method>, Parsed) {
    let Some(wire::OnlyObject(command)) = command else {
        return (None, Err(ApiError::bad_request("a command is null")));
    };
    macro_rules! first {
        ($($field:ident => $method:ident, $parse:expr;)*) => {
            $(if let Some(wire::OnlyObject(body)) = command.$field {
                let parse: &dyn Fn(_) -> Parsed = &$parse;
                return (Some(Method::$method), parse(body));
            })*
        };
    }
    first! {
        publish => Publish, publish;
        broadcast => Broadcast, |body| broadcast(body, limits);
        subscribe => Subscribe, subscribe;
        unsubscribe => Unsubscribe, unsubscribe;
        disconnect => Disconnect, disconnect;
        history => History, history;
        history_remove => HistoryRemove, |body| channel_of(body).map(|channel| ApiCommand::HistoryRemove { channel });
        presence => Presence, |body| channel_of(body).map(|channel| ApiCommand::Presence { channel });
        presence_stats => PresenceStats, |body| channel_of(body).map(|channel| ApiCommand::PresenceStats { channel });
        info => Info, |_: wire::NoParams| Ok(ApiCommand::Info);
        room_open => RoomOpen, rooms::open;
        room_close => RoomClose, |body| channel_of(body).map(|channel| ApiCommand::RoomClose { channel });
        rooms => Rooms, |_: wire::NoParams| Ok(ApiCommand::Rooms);
        room_list => RoomList, room_list::list;
        room_info => RoomInfo, room_list::info;
        room_paths => RoomPaths, room_paths;
        sessions => Sessions, sessions::list;
        explain => Explain, sessions::explain;
        room_send => RoomSend, rooms::send;
        room_update => RoomUpdate, rooms::update;
        room_lock => RoomLock, rooms::lock;
        room_kick => RoomKick, rooms::kick;
        r#match => Match, tickets::submit;
        match_cancel => MatchCancel, |body| tickets::cancel(&body);
        match_status => MatchStatus, |body| tickets::status(&body);
        rpc => Rpc, |body| rpc(&body);
        refresh => Refresh, refresh;
        channels => Channels, |body| channels(&body);
        map_publish => MapPublish, |_: wire::NoParams| Err(unsupported(Method::MapPublish));
        map_remove => MapRemove, |_: wire::NoParams| Err(unsupported(Method::MapRemove));
        map_read_state => MapReadState, |_: wire::NoParams| Err(unsupported(Method::MapReadState));
        map_read_stream => MapReadStream, |_: wire::NoParams| Err(unsupported(Method::MapReadStream));
        map_stats => MapStats, |_: wire::NoParams| Err(unsupported(Method::MapStats));
        map_clear => MapClear, |_: wire::NoParams| Err(unsupported(Method::MapClear));
        shared_poll_publish => SharedPollPublish, |_: wire::NoParams| Err(unsupported(Method::SharedPollPublish));
    }
    (None, Err(ApiError::NOT_FOUND))
}

/// Parses a body and converts it to a command. If a required field is missing, an unknown field is reported as the
/// likely cause.
fn parse_as<'a, T: Default + Deserialize<'a>>(
    body: Body<'a>,
    make: impl FnOnce(T) -> Parsed,
) -> Result<Parsed, Malformed> {
    let Params { params, unknown } = body.parse()?;
    let parsed = make(params);
    // A field of another object is no other spelling of `channel` or `data`.
    let misspelt = unknown.iter().find(|field| !field.contains('.'));
    if let (Err(error), Some(field)) = (&parsed, misspelt)
        && [ApiError::NO_CHANNEL, ApiError::NO_DATA].contains(error)
    {
        return Ok(Err(ApiError::bad_request(format_args!("unknown field {field:?}"))));
    }
    warn_of_unknown(body.method, unknown);
    Ok(parsed)
}

/// Unknown fields are ignored, as in Centrifugo, so a misspelt option would have no effect and no error.
fn warn_of_unknown(method: Method, fields: Vec<String>) {
    for field in fields {
        ApiFieldUnknown { method, field }.emit();
    }
}

fn publish(body: wire::PublishParams) -> Parsed {
    let (channel, publication) = body.split();
    Ok(ApiCommand::Publish { channel: named(channel)?, publication: publication_of(publication)? })
}

fn broadcast(body: wire::BroadcastParams, limits: &RequestLimits) -> Parsed {
    let (channels, publication) = body.split();
    if channels.is_empty() {
        return Err(ApiError::NO_CHANNEL);
    }
    if channels.len() > limits.broadcast_channels_max {
        let most = limits.broadcast_channels_max;
        return Err(ApiError::bad_request(format_args!("at most {most} channels in a broadcast")));
    }
    let channels = channels.into_iter().map(|channel| channel.0.into()).collect();
    Ok(ApiCommand::Broadcast { channels, publication: publication_of(publication)? })
}

fn publication_of(body: wire::PublicationFields) -> Result<ApiPublication, ApiError> {
    let data = data_of(body.data, body.b64data)?.ok_or(ApiError::NO_DATA)?;
    let tags: Tags = body.tags.into_iter().map(|(key, value)| (key.into(), value.0.into())).collect();
    let how = PublishHow {
        tags,
        skip_history: body.skip_history,
        idempotency_key: some_text(body.idempotency_key),
        delta: body.delta,
        version: body.version,
        version_epoch: body.version_epoch.into(),
    };
    Ok(ApiPublication { data, how })
}

/// The payload in `data` or `b64data`, if any.
pub(super) fn data_of(json: Option<Box<RawValue>>, base64: String) -> Result<Option<Payload>, ApiError> {
    payload_of(json, base64, "b64data")
}

/// The payload in `info` or `b64info`, if any.
fn info_of(json: Option<Box<RawValue>>, base64: String) -> Result<Option<Payload>, ApiError> {
    payload_of(json, base64, "b64info")
}

fn payload_of(json: Option<Box<RawValue>>, base64: String, field: &str) -> Result<Option<Payload>, ApiError> {
    if !base64.is_empty() {
        let bytes = STANDARD.decode(base64);
        let bytes = bytes.map_err(|_| ApiError::bad_request(format_args!("{field:?} is not base64")))?;
        return Ok(Some(Payload::from_opaque(bytes.into())));
    }
    Ok(json.map(|json| Payload::from_json(Bytes::from(Box::<str>::from(json).into_string()))))
}

fn history(body: wire::HistoryParams) -> Parsed {
    let since = body.since.map(|wire::OnlyObject(position)| (position.offset, position.epoch.into()));
    let query = HistoryQuery { limit: body.limit, since, reverse: body.reverse, bytes_max: None };
    Ok(ApiCommand::History { channel: named(body.channel)?, query })
}

fn channels(body: &wire::ChannelsParams) -> Parsed {
    if body.pattern.is_empty() {
        return Ok(ApiCommand::Channels { pattern: None });
    }
    Ok(ApiCommand::Channels { pattern: Some(Glob::compile(&body.pattern).map_err(ApiError::bad_request)?) })
}

fn disconnect(body: wire::DisconnectParams) -> Parsed {
    refuse_labels(Method::Disconnect, body.label_filter.is_some(), body.all_users)?;
    let disconnect = match body.disconnect {
        None => Disconnect::FORCE_NO_RECONNECT,
        Some(wire::OnlyObject(wire::CloseWith { code, reason })) => {
            Disconnect { code: close_code(code)?, reason: reason.into() }
        }
    };
    Ok(ApiCommand::WithSessions(ApiRequest::Disconnect {
        user: body.user.into(),
        only: only(body.client, body.session),
        whitelist: body.whitelist.into_iter().map(|client| client.0.into()).collect(),
        disconnect,
    }))
}

fn close_code(code: u32) -> Result<u16, ApiError> {
    Disconnect::code_for_applications(code)
        .ok_or_else(|| ApiError::bad_request("a disconnect code must be from 3000 to 4999"))
}

fn unsubscribe(body: wire::UnsubscribeParams) -> Parsed {
    refuse_labels(Method::Unsubscribe, body.label_filter.is_some(), body.all_users)?;
    Ok(ApiCommand::WithSessions(ApiRequest::Unsubscribe {
        channel: body.channel.into(),
        user: body.user.into(),
        only: only(body.client, body.session),
        code: UnsubscribeCode::SERVER,
    }))
}

fn subscribe(body: wire::SubscribeParams) -> Parsed {
    refuse_labels(Method::Subscribe, body.label_filter.is_some(), body.all_users)?;
    let wire::OnlyObject(overrides) = body.r#override.unwrap_or_default();
    let switch = |switch: Option<wire::OnlyObject<wire::Switch>>| switch.map(|wire::OnlyObject(switch)| switch.value);
    let subscription = ServerSubscription {
        channel: named(body.channel)?,
        grant: SubscriptionGrant {
            info: info_of(body.info, body.b64info)?,
            data: data_of(body.data, body.b64data)?,
            expires_at_ms: expiry_of(body.expire_at)?,
            overrides: Overrides {
                presence: switch(overrides.presence),
                join_leave: switch(overrides.join_leave),
                force_push_join_leave: switch(overrides.force_push_join_leave),
                force_positioning: switch(overrides.force_positioning),
                force_recovery: switch(overrides.force_recovery),
            },
        },
        recover_since: body.recover_since.map(|wire::OnlyObject(position)| (position.offset, position.epoch.into())),
        from_token: false,
    };
    Ok(ApiCommand::WithSessions(ApiRequest::Subscribe {
        user: body.user.into(),
        only: only(body.client, body.session),
        subscription: Box::new(subscription),
    }))
}

fn refresh(body: wire::RefreshParams) -> Parsed {
    refuse_labels(Method::Refresh, body.label_filter.is_some(), body.all_users)?;
    Ok(ApiCommand::WithSessions(ApiRequest::Refresh {
        user: body.user.into(),
        only: only(body.client, body.session),
        expired: body.expired,
        expires_at_ms: expiry_of(body.expire_at)?,
        info: info_of(body.info, String::new())?,
    }))
}

fn room_paths(body: wire::RoomPathsParams) -> Parsed {
    let wire::RoomPathsParams { channel, user, player, avatar, from_ms, to_ms, limit, interval_ms, cursor } = body;
    let fields = PathFields { user, player, avatar, from_ms, to_ms, limit, interval_ms, cursor };
    Ok(ApiCommand::RoomPaths(Box::new(PathsWanted::new(named(channel)?, fields)?)))
}

/// 0 means never.
fn expiry_of(expire_at: UnixTime) -> Result<Option<u64>, ApiError> {
    if expire_at.is_negative() {
        return Err(ApiError::bad_request("expire_at must be a Unix time in seconds, or 0 for never"));
    }
    Ok(expire_at.expiry_ms())
}

/// Rejects filters of sessions: ignoring them would affect other sessions.
fn refuse_labels(method: Method, label_filter: bool, all_users: bool) -> Result<(), ApiError> {
    refuse_fields(method, &[("label_filter", label_filter), ("all_users", all_users)])
}

/// There are no extensions, so every method is unknown.
fn rpc(body: &wire::RpcParams) -> Parsed {
    Err(if body.method.is_empty() { ApiError::bad_request("no method is named") } else { ApiError::NOT_FOUND })
}

fn channel_of(body: wire::ChannelParams) -> Result<Box<str>, ApiError> {
    named(body.channel)
}

pub(super) fn named(channel: String) -> Result<Box<str>, ApiError> {
    if channel.is_empty() { Err(ApiError::NO_CHANNEL) } else { Ok(channel.into()) }
}

fn only(client: String, session: String) -> SessionFilter {
    SessionFilter { client: some_text(client), session: some_text(session) }
}

fn some_text(text: String) -> Option<Box<str>> {
    (!text.is_empty()).then(|| text.into())
}

fn unsupported(method: Method) -> ApiError {
    refuse(method, method.name())
}

fn refuse_fields(method: Method, fields: &[(&'static str, bool)]) -> Result<(), ApiError> {
    match fields.iter().find(|(_, set)| *set) {
        Some((field, _)) => Err(refuse(method, field)),
        None => Ok(()),
    }
}

fn refuse(method: Method, field: &'static str) -> ApiError {
    crate::telemetry::events::ApiFieldUnsupported { method, field }.emit();
    ApiError::unsupported(format_args!("{field} is not supported"))
}
