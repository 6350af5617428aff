//! JSON documents that are derived from the types that read them, so that a test covers each member of a type, also one
//! that is added later.

use serde::{
    Deserialize, Deserializer,
    de::{
        DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor,
        value::{BorrowedStrDeserializer, Error},
    },
};
use serde_json::{Map, Value, json};

/// The sample of a text: also a number, and base64.
const TEXT: &str = "1234";

/// The name of the member of a map, whose names are free.
const KEY: &str = "key";

/// The sample of a value that is kept as JSON text.
const RAW: &str = "{}";

/// A document that has a value of the right type for each member that `T` and the structures below it read. Lists and
/// maps have one entry.
///
/// # Panics
/// If `T` does not accept the document.
pub fn sample<T: Deserialize<'static>>() -> Value {
    let mut value = Value::Null;
    if let Err(error) = T::deserialize(Sampler(&mut value)) {
        panic!("{}: {error}; until then: {value}", std::any::type_name::<T>());
    }
    value
}

/// A member of a document, and the document without it in two ways.
pub struct Member {
    /// The JSON pointer of the member (RFC 6901).
    pub path: String,
    /// Whether it belongs to a map, whose names are free, so that `null` can be a value.
    pub is_of_map: bool,
    /// The document in which the member is `null`.
    pub null: Value,
    /// The document without the member.
    pub absent: Value,
}

/// The members of a document at every depth.
pub fn members(document: &Value) -> Vec<Member> {
    let mut paths = Vec::new();
    collect(document, "", &mut paths);
    let without = |path: &String| {
        let (parent, name) = path.rsplit_once('/').expect("a pointer to a member");
        let (mut null, mut absent) = (document.clone(), document.clone());
        *null.pointer_mut(path).expect("the member exists") = Value::Null;
        let parent = absent.pointer_mut(parent).and_then(Value::as_object_mut).expect("the object exists");
        parent.remove(name).expect("the member exists");
        Member { path: path.clone(), is_of_map: name == KEY, null, absent }
    };
    paths.iter().map(without).collect()
}

fn collect(value: &Value, path: &str, paths: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                let path = format!("{path}/{name}");
                collect(value, &path, paths);
                paths.push(path);
            }
        }
        Value::Array(list) => {
            for (index, value) in list.iter().enumerate() {
                collect(value, &format!("{path}/{index}"), paths);
            }
        }
        _ => {}
    }
}

/// Gives every type a value that it accepts, and writes the value down.
struct Sampler<'v>(&'v mut Value);

impl Sampler<'_> {
    fn text<V: Visitor<'static>>(self, visitor: V) -> Result<V::Value, Error> {
        *self.0 = json!(TEXT);
        visitor.visit_borrowed_str(TEXT)
    }
}

impl Deserializer<'static> for Sampler<'_> {
    type Error = Error;

    /// A number, which is also what all types of numbers get.
    fn deserialize_any<V: Visitor<'static>>(self, visitor: V) -> Result<V::Value, Error> {
        *self.0 = json!(1);
        visitor.visit_u64(1)
    }

    fn deserialize_bool<V: Visitor<'static>>(self, visitor: V) -> Result<V::Value, Error> {
        *self.0 = json!(true);
        visitor.visit_bool(true)
    }

    fn deserialize_str<V: Visitor<'static>>(self, visitor: V) -> Result<V::Value, Error> {
        self.text(visitor)
    }

    fn deserialize_string<V: Visitor<'static>>(self, visitor: V) -> Result<V::Value, Error> {
        self.text(visitor)
    }

    fn deserialize_option<V: Visitor<'static>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'static>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        // `serde_json` reads raw JSON as a structure with this name and one member of the same name.
        if name.starts_with("$serde_json") {
            *self.0 = serde_json::from_str(RAW).map_err(Error::custom)?;
            return visitor.visit_map(RawMember { name: Some(name) });
        }
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'static>>(self, visitor: V) -> Result<V::Value, Error> {
        let mut item = Some(Value::Null);
        let read = visitor.visit_seq(OneItem { item: item.as_mut() })?;
        *self.0 = json!([item]);
        Ok(read)
    }

    fn deserialize_map<V: Visitor<'static>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_struct("", &[KEY], visitor)
    }

    fn deserialize_struct<V: Visitor<'static>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let mut fields = Fields { names: fields.iter(), name: "", object: Map::new() };
        let read = visitor.visit_map(&mut fields);
        *self.0 = Value::Object(fields.object);
        read
    }

    fn deserialize_ignored_any<V: Visitor<'static>>(self, visitor: V) -> Result<V::Value, Error> {
        *self.0 = json!(true);
        visitor.visit_unit()
    }

    serde::forward_to_deserialize_any! {
        <V: Visitor<'static>>
        i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf unit unit_struct tuple tuple_struct enum
        identifier
    }
}

struct Fields {
    names: std::slice::Iter<'static, &'static str>,
    name: &'static str,
    object: Map<String, Value>,
}

impl MapAccess<'static> for &mut Fields {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'static>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some(name) = self.names.next() else { return Ok(None) };
        self.name = name;
        seed.deserialize(BorrowedStrDeserializer::new(name)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'static>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let mut value = Value::Null;
        let read =
            seed.deserialize(Sampler(&mut value)).map_err(|error| Error::custom(format!("{}: {error}", self.name)));
        self.object.insert(self.name.to_owned(), value);
        read
    }
}

struct OneItem<'v> {
    item: Option<&'v mut Value>,
}

impl SeqAccess<'static> for OneItem<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'static>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        self.item.take().map(|item| seed.deserialize(Sampler(item))).transpose()
    }
}

struct RawMember {
    name: Option<&'static str>,
}

impl MapAccess<'static> for RawMember {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'static>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        self.name.take().map(|name| seed.deserialize(BorrowedStrDeserializer::new(name))).transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'static>>(&mut self, seed: V) -> Result<V::Value, Error> {
        seed.deserialize(BorrowedStrDeserializer::new(RAW))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::value::RawValue;

    use super::*;

    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only the names and types matter")]
    struct Outer {
        number: Option<i32>,
        #[serde(rename = "use")]
        purpose: String,
        inner: Vec<Inner>,
        by_name: BTreeMap<String, Inner>,
        raw: Box<RawValue>,
    }

    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only the names and types matter")]
    struct Inner {
        is_set: bool,
    }

    #[test]
    fn a_sample_has_every_member_of_a_type() {
        let document = sample::<Outer>();
        let expected = json!({
            "number": 1, "use": "1234", "inner": [{"is_set": true}], "by_name": {"key": {"is_set": true}}, "raw": {},
        });
        assert_eq!(document, expected);
        let paths: Vec<String> = members(&document).into_iter().map(|member| member.path).collect();
        let expected =
            ["/by_name/key/is_set", "/by_name/key", "/by_name", "/inner/0/is_set", "/inner", "/number", "/raw", "/use"];
        assert_eq!(paths, expected);
    }
}
