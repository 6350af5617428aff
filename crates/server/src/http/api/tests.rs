//! Compares `schema/openapi.json` with the types of requests and the tables of responses.

use std::collections::BTreeSet;

use serde::{
    Deserializer,
    de::{DeserializeOwned, Error as _, Visitor, value::Error},
    forward_to_deserialize_any,
};
use serde_json::Value;

use dunlin_proof::members::{members, sample};

use super::{
    ApiCommand, ApiError, CommandBatch, Method, RequestLimits,
    method::{BatchCommand, ParamsVisitor, show_params},
    session_orders::{CloseWith, Override, Switch},
    wire::{BatchParams, PositionParams},
};
use crate::http::swagger::DOCUMENT;

type Names = BTreeSet<String>;

/// A deserializer that records the field names of a struct, and provides no values.
struct Probe<'f>(&'f mut &'static [&'static str]);

impl<'de> Deserializer<'de> for Probe<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(Error::custom("no structure"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Error> {
        *self.0 = fields;
        Err(Error::custom("seen"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct newtype_struct
        seq tuple tuple_struct map enum identifier ignored_any
    }
}

fn fields<T: DeserializeOwned>() -> Names {
    let mut fields: &[&str] = &[];
    assert!(T::deserialize(Probe(&mut fields)).is_err_and(|error| error.to_string() == "seen"));
    fields.iter().map(ToString::to_string).collect()
}

/// The schemas of requests, with the fields that are read.
struct Cases(Vec<(String, Names)>);

impl ParamsVisitor for Cases {
    fn visit<P: DeserializeOwned>(&mut self, variant: &str) {
        self.0.push((format!("{variant}Request"), fields::<P>()));
    }
}

fn document() -> Value {
    serde_json::from_str(DOCUMENT).expect("it is JSON")
}

fn names(value: &Value) -> Names {
    value.as_object().expect("an object").keys().cloned().collect()
}

#[test]
fn the_description_has_exactly_the_served_methods() {
    let served = Method::ALL.iter().filter(|method| method.unsupported().is_none());
    let served: Names = served.map(|method| format!("/api/{}", method.name())).collect();
    assert_eq!(names(&document()["paths"]), served);
}

#[test]
fn described_request_fields_match_the_parser() {
    let document = document();
    let mut cases = Cases(vec![
        ("BatchRequest".to_owned(), fields::<BatchParams>()),
        ("StreamPosition".to_owned(), fields::<PositionParams>()),
        ("Override".to_owned(), fields::<Override>()),
        ("Switch".to_owned(), fields::<Switch>()),
        ("CloseWith".to_owned(), fields::<CloseWith>()),
    ]);
    show_params(&mut cases);
    let Cases(cases) = cases;
    let schemas = &document["components"]["schemas"];
    for (name, read) in &cases {
        assert_eq!(&names(&schemas[name]["properties"]), read, "{name} in schema/openapi.json");
    }
    let described = names(schemas).into_iter().filter(|name| name.ends_with("Request"));
    let looked_at: Names = cases.iter().map(|(name, _)| name.clone()).collect();
    assert!(described.collect::<Names>().is_subset(&looked_at));
}

#[test]
fn batches_accept_every_served_method() {
    let read = fields::<BatchCommand>().into_iter();
    let read: Names =
        read.filter(|name| Method::by_name(name).is_some_and(|method| method.unsupported().is_none())).collect();
    assert_eq!(names(&document()["components"]["schemas"]["BatchCommand"]["properties"]), read);
}

#[test]
fn the_status_of_every_error_is_described() {
    let errors = [
        ApiError::INTERNAL,
        ApiError::UNKNOWN_CHANNEL,
        ApiError::NOT_FOUND,
        ApiError::BAD_REQUEST,
        ApiError::NOT_AVAILABLE,
        ApiError::TOO_MANY_REQUESTS,
        ApiError::UNRECOVERABLE_POSITION,
        ApiError::CONFLICT,
    ];
    assert_eq!(errors.len(), ApiError::CODES.len());
    for (path, item) in document()["paths"].as_object().expect("an object") {
        let described = names(&item["post"]["responses"]);
        for error in &errors {
            assert!(described.contains(&error.http_status().to_string()), "{path}: {error:?}");
        }
    }
}

#[test]
fn described_errors_and_version_match_the_program() {
    let document = document();
    assert_eq!(
        document["components"]["schemas"]["Error"]["properties"]["code"]["anyOf"][0]["enum"],
        serde_json::json!(ApiError::CODES)
    );
    assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
}

/// Members in which `null` is a value: a payload, and metadata to remove.
const NULL_IS_A_VALUE: [&str; 4] = ["publish/data", "broadcast/data", "room_send/data", "room_update/metadata"];

/// The members come from the types, so a new one is covered as well.
#[test]
fn null_is_absent_in_every_member() {
    let limits = RequestLimits::default();
    for (name, body) in sample::<BatchCommand>().as_object().expect("an object") {
        let method = Method::by_name(name).expect("a method");
        let outcome = |body: &Value| {
            let parsed = ApiCommand::parse(method, body.to_string().as_bytes(), &limits);
            format!("{:?}", parsed.unwrap_or_else(|malformed| panic!("{name} {body}: {malformed}")))
        };
        for member in members(body) {
            let (null, absent) = (outcome(&member.null), outcome(&member.absent));
            let is_value = member.is_of_map || NULL_IS_A_VALUE.contains(&&*format!("{name}{}", member.path));
            assert!(is_value || null == absent, "{name}{}: {null} {absent}", member.path);
        }
    }
    for member in members(&sample::<BatchParams>()) {
        let outcome = |body: &Value| format!("{:?}", CommandBatch::parse(body.to_string().as_bytes(), &limits));
        let (null, absent) = (outcome(&member.null), outcome(&member.absent));
        let is_value = member.is_of_map || NULL_IS_A_VALUE.iter().any(|path| member.path.ends_with(path));
        assert!(is_value || null == absent, "{}", member.path);
        assert!(!null.contains("Malformed"), "{}", member.path);
    }
}
