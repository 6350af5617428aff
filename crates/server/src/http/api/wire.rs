//! Bodies of requests as they come. Unknown fields are ignored; missing ones and `null` are empty.

use std::{collections::BTreeMap, fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::value::RawValue;

/// Publishing, whatever into.
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
            /// Where to publish, and what.
            pub fn split(self) -> ($type, Publication) {
                let publication = Publication {
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
    Publish, channel: String
}

publish_body! {
    /// `broadcast`
    Broadcast, channels: Vec<Text>
}

/// What `publish` and `broadcast` have in common.
pub struct Publication {
    pub data: Option<Box<RawValue>>,
    pub b64data: String,
    pub skip_history: bool,
    pub tags: BTreeMap<String, Text>,
    pub idempotency_key: String,
    pub delta: bool,
    pub version: u64,
    pub version_epoch: String,
}

/// A string inside of a list or an object; `null` is an empty one.
#[derive(Debug, Default)]
pub struct Text(pub String);

/// `presence`, `presence_stats` and `history_remove`
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct OneChannel {
    #[serde(deserialize_with = "empty_if_null")]
    pub channel: String,
}

/// `history`
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct History {
    #[serde(deserialize_with = "empty_if_null")]
    pub channel: String,
    #[serde(deserialize_with = "empty_if_null")]
    pub limit: i32,
    pub since: Option<Object<Position>>,
    #[serde(deserialize_with = "empty_if_null")]
    pub reverse: bool,
}

/// A position in a stream.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Position {
    #[serde(deserialize_with = "empty_if_null")]
    pub offset: u64,
    #[serde(deserialize_with = "empty_if_null")]
    pub epoch: String,
}

/// `channels`
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Channels {
    #[serde(deserialize_with = "empty_if_null")]
    pub pattern: String,
}

/// `disconnect`
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Disconnect {
    #[serde(deserialize_with = "empty_if_null")]
    pub user: String,
    pub disconnect: Option<Object<CloseWith>>,
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

/// Code and reason of a close.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct CloseWith {
    #[serde(deserialize_with = "empty_if_null")]
    pub code: u32,
    #[serde(deserialize_with = "empty_if_null")]
    pub reason: String,
}

/// `unsubscribe`
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Unsubscribe {
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

/// `subscribe`
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Subscribe {
    #[serde(deserialize_with = "empty_if_null")]
    pub channel: String,
    #[serde(deserialize_with = "empty_if_null")]
    pub user: String,
    #[serde(deserialize_with = "empty_if_null")]
    pub expire_at: i64,
    pub info: Option<Box<RawValue>>,
    #[serde(deserialize_with = "empty_if_null")]
    pub b64info: String,
    #[serde(deserialize_with = "empty_if_null")]
    pub client: String,
    pub data: Option<Box<RawValue>>,
    #[serde(deserialize_with = "empty_if_null")]
    pub b64data: String,
    pub recover_since: Option<Object<Position>>,
    pub r#override: Option<Object<Override>>,
    #[serde(deserialize_with = "empty_if_null")]
    pub session: String,
    pub label_filter: Option<serde::de::IgnoredAny>,
    #[serde(deserialize_with = "empty_if_null")]
    pub all_users: bool,
}

/// What a subscription has instead of its namespace's options.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Override {
    pub presence: Option<Object<Switch>>,
    pub join_leave: Option<Object<Switch>>,
    pub force_push_join_leave: Option<Object<Switch>>,
    pub force_positioning: Option<Object<Switch>>,
    pub force_recovery: Option<Object<Switch>>,
}

/// A switch that is there.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Switch {
    #[serde(deserialize_with = "empty_if_null")]
    pub value: bool,
}

/// `refresh`
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Refresh {
    #[serde(deserialize_with = "empty_if_null")]
    pub user: String,
    #[serde(deserialize_with = "empty_if_null")]
    pub client: String,
    #[serde(deserialize_with = "empty_if_null")]
    pub expired: bool,
    #[serde(deserialize_with = "empty_if_null")]
    pub expire_at: i64,
    pub info: Option<Box<RawValue>>,
    #[serde(deserialize_with = "empty_if_null")]
    pub session: String,
    pub label_filter: Option<serde::de::IgnoredAny>,
    #[serde(deserialize_with = "empty_if_null")]
    pub all_users: bool,
}

/// `rpc`
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Rpc {
    #[serde(deserialize_with = "empty_if_null")]
    pub method: String,
}

/// A body of which nothing is looked at: `info`, and methods that are not supported.
#[derive(Debug, Default, Deserialize)]
pub struct Nothing {}

/// `batch`
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Batch {
    #[serde(deserialize_with = "empty_if_null")]
    pub commands: Vec<Option<Object<BatchCommand>>>,
    #[serde(deserialize_with = "empty_if_null")]
    pub parallel: bool,
}

/// One command of a batch: the first field that is there counts.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct BatchCommand {
    pub publish: Option<Object<Publish>>,
    pub broadcast: Option<Object<Broadcast>>,
    pub subscribe: Option<Object<Subscribe>>,
    pub unsubscribe: Option<Object<Unsubscribe>>,
    pub disconnect: Option<Object<Disconnect>>,
    pub history: Option<Object<History>>,
    pub history_remove: Option<Object<OneChannel>>,
    pub presence: Option<Object<OneChannel>>,
    pub presence_stats: Option<Object<OneChannel>>,
    pub info: Option<Object<Nothing>>,
    pub room_open: Option<Object<OneChannel>>,
    pub room_close: Option<Object<OneChannel>>,
    pub rooms: Option<Object<Nothing>>,
    pub rpc: Option<Object<Rpc>>,
    pub refresh: Option<Object<Refresh>>,
    pub channels: Option<Object<Channels>>,
    pub map_publish: Option<Object<Nothing>>,
    pub map_remove: Option<Object<Nothing>>,
    pub map_read_state: Option<Object<Nothing>>,
    pub map_read_stream: Option<Object<Nothing>>,
    pub map_stats: Option<Object<Nothing>>,
    pub map_clear: Option<Object<Nothing>>,
    pub shared_poll_publish: Option<Object<Nothing>>,
}

/// A JSON object. What `serde` derives for a structure would take an array of the fields' values as well.
#[derive(Debug, Default)]
pub struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
            type Value = T;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(fields))
            }
        }

        deserializer.deserialize_map(Fields(PhantomData)).map(Self)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        empty_if_null(deserializer).map(Self)
    }
}

fn empty_if_null<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Keeps `null`, which is a payload like any other.
fn raw<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}
