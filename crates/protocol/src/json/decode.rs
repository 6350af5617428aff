//! Decodes text frames into commands.
//!
//! Rules for each line: it is valid UTF-8 and exactly one JSON object. Field names are case-sensitive; unknown fields
//! are skipped. `null` is equivalent to an absent field, except for a payload, where it is the payload `null`. A
//! duplicate field, a wrong type, and a number out of range are errors. Unknown fields and payloads are scanned without
//! recursion: each nesting level costs a byte of heap memory and no stack.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::{
    Command, ConnectRequest, DecodeError, HistoryRequest, PublishRequest, Request, RpcRequest, ShapeLimits,
    StreamPosition, SubRefreshRequest, SubscribeFlags, SubscribeRequest, command::each_channel_once, json_limits,
};

/// Reads the commands of a text frame.
pub struct JsonDecoder<'a> {
    /// Unread lines; `None` after the last item of the frame.
    rest: Option<&'a [u8]>,
    limits: Option<ShapeLimits>,
}

impl<'a> JsonDecoder<'a> {
    pub(crate) fn new(frame: &'a [u8]) -> Self {
        Self { rest: Some(frame), limits: None }
    }

    pub(crate) fn set_limits(&mut self, limits: ShapeLimits) {
        self.limits = Some(limits);
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest.unwrap_or_default()
    }

    pub(crate) fn next(&mut self) -> Option<Result<Command<'a>, DecodeError>> {
        let lines = self.rest.take()?;
        let (line, rest) = split_line(lines);
        let within_limits = self.limits.map_or(Ok(()), |limits| json_limits::check_json(line, limits));
        let command = within_limits.and_then(|()| read_command(line));
        if command.is_ok() {
            self.rest = Some(rest).filter(|rest| !rest.is_empty());
        }
        Some(command)
    }
}

/// The first line of `lines` and all that follows its line feed.
fn split_line(lines: &[u8]) -> (&[u8], &[u8]) {
    let Some((line, rest)) = memchr::memchr(b'\n', lines).and_then(|end| lines.split_at_checked(end)) else {
        return (lines, &[]);
    };
    (line, rest.get(1..).unwrap_or_default())
}

/// Reads a connect request without a command around it. Empty input is an empty request.
pub(crate) fn read_connect(text: &[u8], limits: ShapeLimits) -> Result<ConnectRequest<'_>, DecodeError> {
    if text.is_empty() {
        return Ok(ConnectRequest::default());
    }
    json_limits::check_json(text, limits)?;
    let text = std::str::from_utf8(text).map_err(|_| DecodeError { what: "text is not UTF-8" })?;
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let reader = ObjectReader::<ConnectRequest<'_>>(PhantomData);
    let request = reader.deserialize(&mut deserializer).map_err(|error| describe(&error))?;
    deserializer.end().map_err(|error| describe(&error))?;
    Ok(request.unwrap_or_default())
}

fn read_command(line: &[u8]) -> Result<Command<'_>, DecodeError> {
    if line.is_empty() {
        return Err(DecodeError { what: "empty message" });
    }
    let text = std::str::from_utf8(line).map_err(|_| DecodeError { what: "text is not UTF-8" })?;
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let command = deserializer.deserialize_map(CommandVisitor).map_err(|error| describe(&error))?;
    deserializer.end().map_err(|error| describe(&error))?;
    Ok(command)
}

/// The kind of a JSON error. The error's own text could quote the client's data.
fn describe(error: &serde_json::Error) -> DecodeError {
    let what = match error.classify() {
        serde_json::error::Category::Eof => "JSON ends too early",
        serde_json::error::Category::Data => "JSON field of the wrong type",
        serde_json::error::Category::Syntax | serde_json::error::Category::Io => "not JSON",
    };
    DecodeError { what }
}

/// Reads the fields of a command one by one and keeps the request with the lowest field number. The others are checked
/// and dropped.
struct CommandVisitor;

impl<'a> Visitor<'a> for CommandVisitor {
    type Value = Command<'a>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a command")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Command<'a>, A::Error> {
        let mut id = 0;
        let mut chosen: Option<(Field, Request<'a>)> = None;
        let mut seen = 0;
        while let Some(field) = map.next_key::<Field>()? {
            if field != Field::Unknown {
                see_once(&mut seen, field as u32)?;
            }
            if field == Field::Id {
                id = number(&mut map)?;
            } else if let Some(request) = request(field, &mut map)?
                && chosen.as_ref().is_none_or(|(first, _)| (field as u32) < *first as u32)
            {
                chosen = Some((field, request));
            }
        }
        Ok(Command { id, request: chosen.map(|(_, request)| request) })
    }
}

/// Fields of a command, by field number.
#[derive(Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum Field {
    Id = 1,
    Connect = 4,
    Subscribe,
    Unsubscribe,
    Publish,
    Presence,
    PresenceStats,
    History,
    Ping,
    Send,
    Rpc,
    Refresh,
    SubRefresh,
    #[serde(other)]
    Unknown,
}

fn request<'a, A: MapAccess<'a>>(field: Field, map: &mut A) -> Result<Option<Request<'a>>, A::Error> {
    Ok(match field {
        Field::Id | Field::Unknown => map.next_value::<IgnoredAny>().map(|_| None)?,
        Field::Connect => object(map)?.map(|request| Request::Connect(Box::new(request))),
        Field::Subscribe => object(map)?.map(|request| Request::Subscribe(Box::new(request))),
        Field::Unsubscribe => object(map)?.map(|ChannelFields { channel }| Request::Unsubscribe { channel }),
        Field::Publish => object(map)?.map(Request::Publish),
        Field::Presence => object(map)?.map(|ChannelFields { channel }| Request::Presence { channel }),
        Field::PresenceStats => object(map)?.map(|ChannelFields { channel }| Request::PresenceStats { channel }),
        Field::History => object(map)?.map(Request::History),
        Field::Ping => object(map)?.map(|PingFields {}| Request::Ping),
        Field::Send => object(map)?.map(|SendFields { data }| Request::Send { data }),
        Field::Rpc => object(map)?.map(Request::Rpc),
        Field::Refresh => object(map)?.map(|RefreshFields { token }| Request::Refresh { token }),
        Field::SubRefresh => object(map)?.map(Request::SubRefresh),
    })
}

/// Marks the field numbered `index` as read.
fn see_once<E: Error>(seen: &mut u32, index: u32) -> Result<(), E> {
    let bit = 1 << index;
    if *seen & bit != 0 {
        return Err(E::custom("repeated field"));
    }
    *seen |= bit;
    Ok(())
}

/// An object that is read field by field.
trait Object<'a>: Default {
    /// The names of its fields.
    const NAMES: &'static [&'static str];

    /// Reads the value of the field `name`, which is one of the names.
    fn read_field<A: MapAccess<'a>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error>;
}

/// Defines for each object the names of its fields, their destinations, and the functions that read them.
macro_rules! objects {
    ($($type:ty: { $($name:literal => $field:ident: $read:ident,)* })*) => {$(
        impl<'a> Object<'a> for $type {
            const NAMES: &'static [&'static str] = &[$($name),*];

            fn read_field<A: MapAccess<'a>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
                match name {
                    $($name => self.$field = $read(map)?,)*
                    _ => drop(map.next_value::<IgnoredAny>()?),
                }
                Ok(())
            }
        }
    )*};
}

objects! {
    ConnectRequest<'a>: {
        "token" => token: text,
        "data" => data: payload,
        "subs" => subs: subs,
        "name" => name: text,
        "version" => version: text,
    }
    SubscribeRequest<'a>: {
        "channel" => channel: text,
        "token" => token: text,
        "recover" => recover: boolean,
        "epoch" => epoch: text,
        "offset" => offset: number,
        "data" => data: payload,
        "positioned" => positioned: boolean,
        "recoverable" => recoverable: boolean,
        "join_leave" => join_leave: boolean,
        "delta" => delta: text,
        "tf" => tags_filter: unless_null,
        "flag" => flag: flags,
        "type" => kind: number,
    }
    PublishRequest<'a>: {
        "channel" => channel: text,
        "data" => data: payload,
        "type" => kind: number,
    }
    HistoryRequest<'a>: {
        "channel" => channel: text,
        "limit" => limit: number,
        "since" => since: object,
        "reverse" => reverse: boolean,
    }
    StreamPosition<'a>: {
        "offset" => offset: number,
        "epoch" => epoch: text,
    }
    RpcRequest<'a>: {
        "data" => data: payload,
        "method" => method: text,
    }
    SubRefreshRequest<'a>: {
        "channel" => channel: text,
        "token" => token: text,
        "type" => kind: number,
    }
    ChannelFields<'a>: { "channel" => channel: text, }
    SendFields<'a>: { "data" => data: payload, }
    RefreshFields<'a>: { "token" => token: text, }
    PingFields: {}
}

#[derive(Default)]
struct ChannelFields<'a> {
    channel: Cow<'a, str>,
}

#[derive(Default)]
struct SendFields<'a> {
    data: Option<&'a [u8]>,
}

#[derive(Default)]
struct RefreshFields<'a> {
    token: Cow<'a, str>,
}

#[derive(Default)]
struct PingFields {}

/// The next value as an object; `None` for null.
fn object<'a, T: Object<'a>, A: MapAccess<'a>>(map: &mut A) -> Result<Option<T>, A::Error> {
    map.next_value_seed(ObjectReader(PhantomData))
}

struct ObjectReader<T>(PhantomData<T>);

impl<'a, T: Object<'a>> DeserializeSeed<'a> for ObjectReader<T> {
    type Value = Option<T>;

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<Option<T>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'a, T: Object<'a>> Visitor<'a> for ObjectReader<T> {
    type Value = Option<T>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_unit<E: Error>(self) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Option<T>, A::Error> {
        let mut object = T::default();
        let mut seen = 0;
        while let Some(Text(name)) = map.next_key()? {
            if let Some(index) = T::NAMES.iter().position(|known| *known == name) {
                see_once(&mut seen, index as u32)?;
            }
            object.read_field(&name, &mut map)?;
        }
        Ok(Some(object))
    }
}

/// A string, borrowed unless it contains escapes; empty for null.
struct Text<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextVisitor).map(Self)
    }
}

struct TextVisitor;

impl<'a> Visitor<'a> for TextVisitor {
    type Value = Cow<'a, str>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string")
    }

    fn visit_borrowed_str<E>(self, text: &'a str) -> Result<Cow<'a, str>, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Cow<'a, str>, E> {
        Ok(Cow::Owned(text.to_owned()))
    }

    fn visit_unit<E>(self) -> Result<Cow<'a, str>, E> {
        Ok(Cow::Borrowed(""))
    }
}

fn text<'a, A: MapAccess<'a>>(map: &mut A) -> Result<Cow<'a, str>, A::Error> {
    map.next_value().map(|Text(text)| text)
}

fn number<'a, T: Deserialize<'a> + Default, A: MapAccess<'a>>(map: &mut A) -> Result<T, A::Error> {
    map.next_value::<Option<T>>().map(Option::unwrap_or_default)
}

fn boolean<'a, A: MapAccess<'a>>(map: &mut A) -> Result<bool, A::Error> {
    number(map)
}

fn flags<'a, A: MapAccess<'a>>(map: &mut A) -> Result<SubscribeFlags, A::Error> {
    number(map).map(SubscribeFlags)
}

/// The verbatim bytes of a value, without the white space around it.
fn payload<'a, A: MapAccess<'a>>(map: &mut A) -> Result<Option<&'a [u8]>, A::Error> {
    map.next_value::<&'a RawValue>().map(|raw| Some(raw.get().as_bytes()))
}

/// The same; `None` for null.
fn unless_null<'a, A: MapAccess<'a>>(map: &mut A) -> Result<Option<&'a [u8]>, A::Error> {
    payload(map).map(|value| value.filter(|value| *value != b"null"))
}

fn subs<'a, A: MapAccess<'a>>(map: &mut A) -> Result<Vec<(Cow<'a, str>, SubscribeRequest<'a>)>, A::Error> {
    map.next_value_seed(SubsReader)
}

struct SubsReader;

impl<'a> DeserializeSeed<'a> for SubsReader {
    type Value = Vec<(Cow<'a, str>, SubscribeRequest<'a>)>;

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'a> Visitor<'a> for SubsReader {
    type Value = Vec<(Cow<'a, str>, SubscribeRequest<'a>)>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object of subscriptions")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut subs = Vec::new();
        while let Some(Text(channel)) = map.next_key()? {
            subs.push((channel, object(&mut map)?.unwrap_or_default()));
        }
        each_channel_once(&mut subs);
        Ok(subs)
    }
}
