//! Members of JSON objects: payloads in those that this node writes, and how it reads those that others write: requests of the server API, and responses of backends. `null` is absent, for
//! each member at every depth, because encoders of several languages write empty members so (Go's nil slices, Jackson,
//! pydantic, .NET). The few members that keep `null` as a value use [`raw`].

use std::{collections::BTreeMap, fmt};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use dunlin_protocol::Payload;
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;

/// A payload that is JSON, to be embedded unchanged.
pub fn embedded(payload: &Payload) -> Option<&RawValue> {
    serde_json::from_slice(payload.bytes()).ok()
}

/// The pair of members of a payload: one that is JSON is embedded unchanged, any other is encoded in base64.
pub fn json_or_base64(payload: Option<&Payload>) -> (Option<&RawValue>, Option<String>) {
    let Some(payload) = payload else { return (None, None) };
    match embedded(payload) {
        Some(json) => (Some(json), None),
        None => (None, Some(STANDARD.encode(payload.bytes()))),
    }
}

/// For `deserialize_with`: `null` is the empty value, which an absent member has as well.
pub fn empty_if_null<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// For `deserialize_with`: keeps `null`, which is a valid payload.
pub fn raw<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

/// A string in a list or an object; `null` is an empty one.
#[derive(Debug, Default)]
pub struct Text(pub String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        empty_if_null(deserializer).map(Self)
    }
}

/// For `deserialize_with`: a list of strings; `null` in it is an empty one.
pub fn texts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<String>>, D::Error> {
    let texts: Option<Vec<Text>> = Option::deserialize(deserializer)?;
    Ok(texts.map(|texts| texts.into_iter().map(|text| text.0).collect()))
}

/// For `deserialize_with`: an object of strings; `null` in it is an empty one.
pub fn texts_by_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<BTreeMap<String, String>>, D::Error> {
    let texts: Option<BTreeMap<String, Text>> = Option::deserialize(deserializer)?;
    Ok(texts.map(|texts| texts.into_iter().map(|(name, text)| (name, text.0)).collect()))
}

/// A JSON object. The derived `Deserialize` of a struct would also accept an array of the field values.
#[derive(Debug, Default)]
pub struct OnlyObject<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OnlyObject<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(NoArrays(deserializer)).map(Self)
    }
}

/// Passes only objects on to the visitor of a struct.
struct NoArrays<D>(D);

impl<'de, D: Deserializer<'de>> Deserializer<'de> for NoArrays<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_map(MembersOf(visitor))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_struct(name, fields, MembersOf(visitor))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

struct MembersOf<V>(V);

impl<'de, V: Visitor<'de>> Visitor<'de> for MembersOf<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(members)
    }
}
