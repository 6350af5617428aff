//! Commands as types: what is in one of these can be asked of the shards.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use dunlin_engine::{
    api::{ApiRequest, HistoryQuery, SessionFilter},
    backend::{Overrides, PublishHow},
    event::ServerSubscription,
};
use dunlin_protocol::{Disconnect, Payload, Tags, UnsubscribeCode};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{ApiError, Method, glob::Glob, wire};

/// A command.
#[derive(Clone, Debug)]
pub enum Command {
    /// See [`Method::Publish`].
    Publish {
        /// The channel.
        channel: Box<str>,
        /// What to publish.
        publication: Publication,
    },
    /// See [`Method::Broadcast`].
    Broadcast {
        /// The channels, of which some may be empty: the answer to those is an error.
        channels: Vec<Box<str>>,
        /// What to publish.
        publication: Publication,
    },
    /// See [`Method::Presence`].
    Presence {
        /// The channel.
        channel: Box<str>,
    },
    /// See [`Method::PresenceStats`].
    PresenceStats {
        /// The channel.
        channel: Box<str>,
    },
    /// See [`Method::History`].
    History {
        /// The channel.
        channel: Box<str>,
        /// What part of it.
        query: HistoryQuery,
    },
    /// See [`Method::HistoryRemove`].
    HistoryRemove {
        /// The channel.
        channel: Box<str>,
    },
    /// See [`Method::Channels`].
    Channels {
        /// Which names; `None` for all.
        pattern: Option<Glob>,
    },
    /// See [`Method::Disconnect`], [`Method::Unsubscribe`], [`Method::Subscribe`] and [`Method::Refresh`]: what every shard
    /// is asked to do with its sessions.
    WithSessions(ApiRequest),
    /// See [`Method::Info`].
    Info,
    /// See [`Method::RoomOpen`].
    RoomOpen {
        /// The channel.
        channel: Box<str>,
    },
    /// See [`Method::RoomClose`].
    RoomClose {
        /// The channel.
        channel: Box<str>,
    },
    /// See [`Method::Rooms`].
    Rooms,
}

/// What to publish.
#[derive(Clone, Debug)]
pub struct Publication {
    /// The application's bytes.
    pub data: Payload,
    /// How.
    pub how: PublishHow,
}

/// A command, or the error that it is answered with because it cannot be true.
pub type Parsed = Result<Command, ApiError>;

/// Commands of one request.
#[derive(Debug)]
pub struct Batch {
    /// In order; those of an unknown kind have no method.
    pub commands: Vec<(Option<Method>, Parsed)>,
    /// They may be carried out in any order.
    pub parallel: bool,
}

/// A body that is not JSON, or not of the method's form. The text says where, and nothing of what stands there.
#[derive(Debug)]
pub struct Malformed(String);

/// What one request may hold.
#[derive(Clone, Copy, Debug)]
pub struct RequestLimits {
    /// Channels of one broadcast.
    pub broadcast_channels_max: usize,
    /// Commands of one batch, and of one request of the one-path form.
    pub batch_commands_max: usize,
}

impl Default for RequestLimits {
    fn default() -> Self {
        Self { broadcast_channels_max: 1_000, batch_commands_max: 1_000 }
    }
}

impl Command {
    /// Reads the body of a request for `method`, which is not [`Method::Batch`].
    ///
    /// # Errors
    /// [`Malformed`]
    pub fn parse(method: Method, body: &[u8], limits: &RequestLimits) -> Result<Parsed, Malformed> {
        Ok(match method {
            Method::Publish => publish(read(body)?),
            Method::Broadcast => broadcast(read(body)?, limits),
            Method::Presence => channel_of(read(body)?).map(|channel| Self::Presence { channel }),
            Method::PresenceStats => channel_of(read(body)?).map(|channel| Self::PresenceStats { channel }),
            Method::History => history(read(body)?),
            Method::HistoryRemove => channel_of(read(body)?).map(|channel| Self::HistoryRemove { channel }),
            Method::Channels => channels(&read(body)?),
            Method::Disconnect => disconnect(read(body)?),
            Method::Unsubscribe => unsubscribe(read(body)?),
            Method::Info => read::<wire::Nothing>(body).map(|_| Ok(Self::Info))?,
            Method::RoomOpen => channel_of(read(body)?).map(|channel| Self::RoomOpen { channel }),
            Method::RoomClose => channel_of(read(body)?).map(|channel| Self::RoomClose { channel }),
            Method::Rooms => read::<wire::Nothing>(body).map(|_| Ok(Self::Rooms))?,
            Method::Rpc => rpc(&read(body)?),
            Method::Batch => Err(ApiError::NOT_FOUND),
            Method::Subscribe => subscribe(read(body)?),
            Method::Refresh => refresh(read(body)?),
            Method::MapPublish
            | Method::MapRemove
            | Method::MapReadState
            | Method::MapReadStream
            | Method::MapStats
            | Method::MapClear
            | Method::SharedPollPublish => read::<wire::Nothing>(body).map(|_| Err(unsupported(method)))?,
        })
    }
}

impl Batch {
    /// Reads the body of a [`Method::Batch`].
    ///
    /// # Errors
    /// [`Malformed`] if any of the commands is; then none is carried out.
    pub fn parse(body: &[u8], limits: &RequestLimits) -> Result<Result<Self, ApiError>, Malformed> {
        let batch: wire::Batch = read(body)?;
        if batch.commands.len() > limits.batch_commands_max {
            let most = limits.batch_commands_max;
            return Ok(Err(ApiError::bad_request(format_args!("at most {most} commands in a batch"))));
        }
        let commands = batch.commands.into_iter().map(|command| batch_command(command, limits)).collect();
        Ok(Ok(Self { commands, parallel: batch.parallel }))
    }
}

/// The order of the questions is that of Centrifugo, for commands of which two fields are set.
fn batch_command(
    command: Option<wire::Object<wire::BatchCommand>>,
    limits: &RequestLimits,
) -> (Option<Method>, Parsed) {
    let Some(wire::Object(command)) = command else { return (None, Err(ApiError::BAD_REQUEST)) };
    macro_rules! first {
        ($($field:ident => $method:ident, $parse:expr;)*) => {
            $(if let Some(wire::Object(body)) = command.$field {
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
        history_remove => HistoryRemove, |body| channel_of(body).map(|channel| Command::HistoryRemove { channel });
        presence => Presence, |body| channel_of(body).map(|channel| Command::Presence { channel });
        presence_stats => PresenceStats, |body| channel_of(body).map(|channel| Command::PresenceStats { channel });
        info => Info, |_: wire::Nothing| Ok(Command::Info);
        room_open => RoomOpen, |body| channel_of(body).map(|channel| Command::RoomOpen { channel });
        room_close => RoomClose, |body| channel_of(body).map(|channel| Command::RoomClose { channel });
        rooms => Rooms, |_: wire::Nothing| Ok(Command::Rooms);
        rpc => Rpc, |body| rpc(&body);
        refresh => Refresh, refresh;
        channels => Channels, |body| channels(&body);
        map_publish => MapPublish, |_: wire::Nothing| Err(unsupported(Method::MapPublish));
        map_remove => MapRemove, |_: wire::Nothing| Err(unsupported(Method::MapRemove));
        map_read_state => MapReadState, |_: wire::Nothing| Err(unsupported(Method::MapReadState));
        map_read_stream => MapReadStream, |_: wire::Nothing| Err(unsupported(Method::MapReadStream));
        map_stats => MapStats, |_: wire::Nothing| Err(unsupported(Method::MapStats));
        map_clear => MapClear, |_: wire::Nothing| Err(unsupported(Method::MapClear));
        shared_poll_publish => SharedPollPublish, |_: wire::Nothing| Err(unsupported(Method::SharedPollPublish));
    }
    (None, Err(ApiError::NOT_FOUND))
}

/// `null` is an object without fields, as it is to Centrifugo.
fn read<'a, T: Default + Deserialize<'a>>(body: &'a [u8]) -> Result<T, Malformed> {
    let body: Option<wire::Object<T>> = serde_json::from_slice(body).map_err(|error| Malformed::from(&error))?;
    Ok(body.unwrap_or_default().0)
}

fn publish(body: wire::Publish) -> Parsed {
    let (channel, publication) = body.split();
    Ok(Command::Publish { channel: named(channel)?, publication: publication_of(publication)? })
}

fn broadcast(body: wire::Broadcast, limits: &RequestLimits) -> Parsed {
    let (channels, publication) = body.split();
    if channels.is_empty() {
        return Err(ApiError::BAD_REQUEST);
    }
    if channels.len() > limits.broadcast_channels_max {
        let most = limits.broadcast_channels_max;
        return Err(ApiError::bad_request(format_args!("at most {most} channels in a broadcast")));
    }
    let channels = channels.into_iter().map(|channel| channel.0.into()).collect();
    Ok(Command::Broadcast { channels, publication: publication_of(publication)? })
}

fn publication_of(body: wire::Publication) -> Result<Publication, ApiError> {
    let data = payload_of(body.data, body.b64data)?.ok_or(ApiError::BAD_REQUEST)?;
    let tags: Tags = body.tags.into_iter().map(|(key, value)| (key.into(), value.0.into())).collect();
    let how = PublishHow {
        tags,
        skip_history: body.skip_history,
        idempotency_key: some_text(body.idempotency_key),
        delta: body.delta,
        version: body.version,
        version_epoch: body.version_epoch.into(),
    };
    Ok(Publication { data, how })
}

/// What a pair of fields such as `data` and `b64data` holds, if it holds anything.
fn payload_of(json: Option<Box<RawValue>>, base64: String) -> Result<Option<Payload>, ApiError> {
    if !base64.is_empty() {
        let bytes = STANDARD.decode(base64).map_err(|_| ApiError::BAD_REQUEST)?;
        return Ok(Some(Payload::from_opaque(bytes.into())));
    }
    Ok(json.map(|json| Payload::from_json(Bytes::from(Box::<str>::from(json).into_string()))))
}

fn history(body: wire::History) -> Parsed {
    let since = body.since.map(|wire::Object(position)| (position.offset, position.epoch.into()));
    let query = HistoryQuery { limit: body.limit, since, reverse: body.reverse, bytes_max: None };
    Ok(Command::History { channel: named(body.channel)?, query })
}

fn channels(body: &wire::Channels) -> Parsed {
    if body.pattern.is_empty() {
        return Ok(Command::Channels { pattern: None });
    }
    Ok(Command::Channels { pattern: Some(Glob::compile(&body.pattern).map_err(ApiError::bad_request)?) })
}

fn disconnect(body: wire::Disconnect) -> Parsed {
    refuse_labels(Method::Disconnect, body.label_filter.is_some(), body.all_users)?;
    let disconnect = match body.disconnect {
        None => Disconnect::FORCE_NO_RECONNECT,
        Some(wire::Object(wire::CloseWith { code, reason })) => {
            Disconnect { code: close_code(code)?, reason: reason.into() }
        }
    };
    Ok(Command::WithSessions(ApiRequest::Disconnect {
        user: body.user.into(),
        only: only(body.client, body.session),
        whitelist: body.whitelist.into_iter().map(|client| client.0.into()).collect(),
        disconnect,
    }))
}

/// What an application may send in a close frame (RFC 6455, section 7.4.2).
fn close_code(code: u32) -> Result<u16, ApiError> {
    match u16::try_from(code) {
        Ok(code @ 3_000..=4_999) => Ok(code),
        _ => Err(ApiError::bad_request("a disconnect code lies between 3000 and 4999")),
    }
}

fn unsubscribe(body: wire::Unsubscribe) -> Parsed {
    refuse_labels(Method::Unsubscribe, body.label_filter.is_some(), body.all_users)?;
    Ok(Command::WithSessions(ApiRequest::Unsubscribe {
        channel: body.channel.into(),
        user: body.user.into(),
        only: only(body.client, body.session),
        code: UnsubscribeCode::SERVER,
    }))
}

fn subscribe(body: wire::Subscribe) -> Parsed {
    refuse_labels(Method::Subscribe, body.label_filter.is_some(), body.all_users)?;
    let wire::Object(overrides) = body.r#override.unwrap_or_default();
    let switch = |switch: Option<wire::Object<wire::Switch>>| switch.map(|wire::Object(switch)| switch.value);
    let subscription = ServerSubscription {
        channel: named(body.channel)?,
        info: payload_of(body.info, body.b64info)?,
        data: payload_of(body.data, body.b64data)?,
        expires_at_s: moment_of(body.expire_at)?,
        overrides: Overrides {
            presence: switch(overrides.presence),
            join_leave: switch(overrides.join_leave),
            force_push_join_leave: switch(overrides.force_push_join_leave),
            force_positioning: switch(overrides.force_positioning),
            force_recovery: switch(overrides.force_recovery),
        },
        recover_since: body.recover_since.map(|wire::Object(position)| (position.offset, position.epoch.into())),
    };
    Ok(Command::WithSessions(ApiRequest::Subscribe {
        user: body.user.into(),
        only: only(body.client, body.session),
        subscription: Box::new(subscription),
    }))
}

fn refresh(body: wire::Refresh) -> Parsed {
    refuse_labels(Method::Refresh, body.label_filter.is_some(), body.all_users)?;
    Ok(Command::WithSessions(ApiRequest::Refresh {
        user: body.user.into(),
        only: only(body.client, body.session),
        expired: body.expired,
        expires_at_s: moment_of(body.expire_at)?,
        info: payload_of(body.info, String::new())?,
    }))
}

/// Unix time in seconds; 0 is never.
fn moment_of(expire_at: i64) -> Result<Option<u64>, ApiError> {
    match u64::try_from(expire_at) {
        Ok(0) => Ok(None),
        Ok(moment_s) => Ok(Some(moment_s)),
        Err(_) => Err(ApiError::bad_request("expire_at is a Unix time in seconds, or 0 for never")),
    }
}

/// Ignoring who is meant would concern others.
fn refuse_labels(method: Method, label_filter: bool, all_users: bool) -> Result<(), ApiError> {
    refuse_fields(method, &[("label_filter", label_filter), ("all_users", all_users)])
}

/// There are no extensions, so every method that is named is unknown.
fn rpc(body: &wire::Rpc) -> Parsed {
    Err(if body.method.is_empty() { ApiError::BAD_REQUEST } else { ApiError::NOT_FOUND })
}

fn channel_of(body: wire::OneChannel) -> Result<Box<str>, ApiError> {
    named(body.channel)
}

fn named(channel: String) -> Result<Box<str>, ApiError> {
    if channel.is_empty() { Err(ApiError::BAD_REQUEST) } else { Ok(channel.into()) }
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

impl Malformed {
    pub(super) fn empty() -> Self {
        Self("the body holds nothing".to_owned())
    }
}

impl From<&serde_json::Error> for Malformed {
    /// The parser's own words could quote the body.
    fn from(error: &serde_json::Error) -> Self {
        let what = match error.classify() {
            serde_json::error::Category::Eof => "ends too early",
            serde_json::error::Category::Data => "has a field of the wrong type",
            _ => "is not JSON",
        };
        Self(format!("the body {what} at line {} column {}", error.line(), error.column()))
    }
}

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}
