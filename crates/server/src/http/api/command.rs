//! Commands as types: what is in one of these can be asked of the shards.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use dunlin_engine::api::HistoryQuery;
use dunlin_protocol::{Disconnect, Payload, Tags};
use serde::Deserialize;

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
    /// See [`Method::Disconnect`].
    Disconnect {
        /// Whose sessions; empty means the anonymous user's.
        user: Box<str>,
        /// Only this one, if given.
        client: Option<Box<str>>,
        /// All but these.
        whitelist: Vec<Box<str>>,
        /// With which code.
        disconnect: Disconnect,
    },
    /// See [`Method::Unsubscribe`].
    Unsubscribe {
        /// The channel; empty for all.
        channel: Box<str>,
        /// Whose sessions.
        user: Box<str>,
        /// Only this one, if given.
        client: Option<Box<str>>,
    },
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
    /// Tags, by key.
    pub tags: Tags,
    /// Leave the channel's stream alone.
    pub skip_history: bool,
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
            Method::Subscribe
            | Method::Refresh
            | Method::MapPublish
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
        subscribe => Subscribe, |_: wire::Nothing| Err(unsupported(Method::Subscribe));
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
        refresh => Refresh, |_: wire::Nothing| Err(unsupported(Method::Refresh));
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
    Ok(Command::Publish { channel: named(channel)?, publication: publication_of(publication, Method::Publish)? })
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
    Ok(Command::Broadcast { channels, publication: publication_of(publication, Method::Broadcast)? })
}

/// Fields that would change what is delivered are refused as long as they are not supported.
fn publication_of(body: wire::Publication, method: Method) -> Result<Publication, ApiError> {
    let unsupported_fields = [
        ("idempotency_key", !body.idempotency_key.is_empty()),
        ("delta", body.delta),
        ("version", body.version != 0),
        ("version_epoch", !body.version_epoch.is_empty()),
    ];
    refuse_fields(method, &unsupported_fields)?;
    let data = if !body.b64data.is_empty() {
        Payload::from_opaque(STANDARD.decode(body.b64data).map_err(|_| ApiError::BAD_REQUEST)?.into())
    } else if let Some(json) = body.data {
        Payload::from_json(Bytes::from(Box::<str>::from(json).into_string()))
    } else {
        return Err(ApiError::BAD_REQUEST);
    };
    let tags: Tags = body.tags.into_iter().map(|(key, value)| (key.into(), value.0.into())).collect();
    Ok(Publication { data, tags, skip_history: body.skip_history })
}

fn history(body: wire::History) -> Parsed {
    let since = body.since.map(|wire::Object(position)| (position.offset, position.epoch.into()));
    let query = HistoryQuery { limit: body.limit, since, reverse: body.reverse };
    Ok(Command::History { channel: named(body.channel)?, query })
}

fn channels(body: &wire::Channels) -> Parsed {
    if body.pattern.is_empty() {
        return Ok(Command::Channels { pattern: None });
    }
    Ok(Command::Channels { pattern: Some(Glob::compile(&body.pattern).map_err(ApiError::bad_request)?) })
}

fn disconnect(body: wire::Disconnect) -> Parsed {
    let fields = [
        ("session", !body.session.is_empty()),
        ("label_filter", body.label_filter.is_some()),
        ("all_users", body.all_users),
    ];
    refuse_fields(Method::Disconnect, &fields)?;
    let disconnect = match body.disconnect {
        None => Disconnect::FORCE_NO_RECONNECT,
        Some(wire::Object(wire::CloseWith { code, reason })) => {
            Disconnect { code: close_code(code)?, reason: reason.into() }
        }
    };
    Ok(Command::Disconnect {
        user: body.user.into(),
        client: some_text(body.client),
        whitelist: body.whitelist.into_iter().map(|client| client.0.into()).collect(),
        disconnect,
    })
}

/// What an application may send in a close frame (RFC 6455, section 7.4.2).
fn close_code(code: u32) -> Result<u16, ApiError> {
    match u16::try_from(code) {
        Ok(code @ 3_000..=4_999) => Ok(code),
        _ => Err(ApiError::bad_request("a disconnect code lies between 3000 and 4999")),
    }
}

fn unsubscribe(body: wire::Unsubscribe) -> Parsed {
    let fields = [
        ("session", !body.session.is_empty()),
        ("label_filter", body.label_filter.is_some()),
        ("all_users", body.all_users),
    ];
    refuse_fields(Method::Unsubscribe, &fields)?;
    let client = some_text(body.client);
    Ok(Command::Unsubscribe { channel: body.channel.into(), user: body.user.into(), client })
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
