//! The JSON body of a request as the type of its method. What is wrong in it, or not read, is named by its field.

use std::fmt;

use serde::Deserialize;
use serde_ignored::Path;
use serde_json::error::Category;
use serde_path_to_error::Segment;

use super::{Method, wire::OnlyObject};

/// Maximum number of characters of a field's path in a message.
const PATH_CHARS_MAX: usize = 60;

/// Maximum number of unknown fields that are remembered of one body.
const UNKNOWN_MAX: usize = 8;

/// Fields whose members are named by the application, not by the API.
const MAPS: [&str; 2] = ["tags", "criteria"];

/// A body that is not JSON or not of the method's format. The message names the field and the position, and quotes no value.
#[derive(Debug)]
pub struct Malformed(String);

/// The parameters in a body, and the paths of its fields that the method does not have, in their order.
pub struct Params<T> {
    pub params: T,
    pub unknown: Vec<String>,
}

/// The body of a request for a method.
#[derive(Clone, Copy)]
pub struct Body<'a> {
    pub method: Method,
    pub bytes: &'a [u8],
}

impl<'a> Body<'a> {
    /// `null` is equivalent to an empty object, as in Centrifugo.
    ///
    /// # Errors
    /// [`Malformed`]
    pub fn parse<T: Default + Deserialize<'a>>(self) -> Result<Params<T>, Malformed> {
        let mut unknown = Vec::new();
        let mut json = serde_json::Deserializer::from_slice(self.bytes);
        let parsed = serde_ignored::deserialize(&mut json, |path| {
            if unknown.len() < UNKNOWN_MAX {
                unknown.push(path_of_unknown(&path));
            }
        });
        let parsed: Result<Option<OnlyObject<T>>, _> = parsed.and_then(|params| json.end().map(|()| params));
        match parsed {
            Ok(params) => Ok(Params { params: params.unwrap_or_default().0, unknown }),
            Err(error) => Err(Malformed::of::<T>(self.bytes, &error)),
        }
    }
}

impl Malformed {
    pub(super) fn empty() -> Self {
        Self("the body is empty".to_owned())
    }

    /// The parser's own message could quote the body.
    pub(super) fn of<'a, T: Deserialize<'a>>(body: &'a [u8], error: &serde_json::Error) -> Self {
        if body.is_empty() {
            return Self::empty();
        }
        let what = match error.classify() {
            Category::Eof => "the body ends too early".to_owned(),
            Category::Data => {
                let message = error.to_string();
                match (wrong_field::<T>(body), expected(&message), duplicate_field(&message)) {
                    (_, _, Some(field)) => format!("the field {field:?} occurs twice"),
                    (Some(field), Some(expected), None) => format!("the field {field:?} is not {expected}"),
                    (Some(field), None, None) => format!("the field {field:?} has a wrong value"),
                    (None, _, None) => "the body is not an object".to_owned(),
                }
            }
            _ => "the body is not JSON".to_owned(),
        };
        Self(format!("{what} (line {}, column {})", error.line(), error.column()))
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What the parser expected, such as "a string" or "u64". What comes before the last "expected" may quote the body.
fn expected(message: &str) -> Option<&str> {
    let is_of_parser = message.starts_with("invalid type: ") || message.starts_with("invalid value: ");
    let (_, expected) = message.rsplit_once(", expected ").filter(|_| is_of_parser)?;
    expected.rsplit_once(" at line ").map(|(expected, _)| expected)
}

/// The field that occurs twice. Only known fields can, so its name is one of the API's, and quotes nothing.
fn duplicate_field(message: &str) -> Option<&str> {
    let (field, _) = message.strip_prefix("duplicate field `")?.split_once('`')?;
    Some(field)
}

/// The path of the field that `T` does not accept. The body is parsed a second time: the position of each element of a list
/// is only followed for a wrong body.
fn wrong_field<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Option<String> {
    let json = &mut serde_json::Deserializer::from_slice(body);
    let error = serde_path_to_error::deserialize::<_, Option<OnlyObject<T>>>(json).err()?;
    let mut path = String::new();
    for segment in error.path() {
        match segment {
            Segment::Map { .. } if MAPS.contains(&path.rsplit('.').next().unwrap_or_default()) => {
                append(&mut path, "*");
                break;
            }
            Segment::Map { key } => append(&mut path, key),
            Segment::Seq { index } => path.extend(["[", &index.to_string(), "]"]),
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    (!path.is_empty()).then_some(path)
}

/// The path of a field without the indexes of lists, so that the same mistake in each element is one.
fn path_of_unknown(path: &Path<'_>) -> String {
    fn write(path: &Path<'_>, text: &mut String) {
        match path {
            Path::Root => {}
            Path::Map { parent, key } => {
                write(parent, text);
                append(text, key);
            }
            Path::Seq { parent, .. }
            | Path::Some { parent }
            | Path::NewtypeStruct { parent }
            | Path::NewtypeVariant { parent } => write(parent, text),
        }
    }
    let mut text = String::new();
    write(path, &mut text);
    text.chars().take(PATH_CHARS_MAX).collect()
}

fn append(path: &mut String, key: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(key);
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            history::HistoryParams,
            publish::{BroadcastParams, PublishParams},
            wire::BatchParams,
        },
        *,
    };

    fn unknown<T: Default + for<'a> Deserialize<'a>>(body: &str) -> Vec<String> {
        Body { method: Method::Publish, bytes: body.as_bytes() }.parse::<T>().expect("well-formed").unknown
    }

    fn malformed<T: Default + for<'a> Deserialize<'a>>(body: &str) -> String {
        match (Body { method: Method::Publish, bytes: body.as_bytes() }.parse::<T>()) {
            Ok(_) => panic!("{body} is well-formed"),
            Err(malformed) => malformed.to_string(),
        }
    }

    #[test]
    fn fields_that_a_method_does_not_have_are_found() {
        assert_eq!(unknown::<PublishParams>("null"), [""; 0]);
        let of_publish = r#"{"channel":"a","data":{"other":1},"tags":{"x":"y"},"idempotencyKey":{"b":[1]}}"#;
        assert_eq!(unknown::<PublishParams>(of_publish), ["idempotencyKey"]);
        assert_eq!(unknown::<HistoryParams>(r#"{"since":{"ofset":1,"offset":2}}"#), ["since.ofset"]);
        let of_batch = r#"{"commands":[{"publish":{}},{"publish":{"chanel":"a"}}],"paralel":true}"#;
        assert_eq!(unknown::<BatchParams>(of_batch), ["commands.publish.chanel", "paralel"]);
    }

    #[test]
    fn unknown_fields_are_bounded_in_number_and_length() {
        let members = |count: usize| (0..count).map(|number| format!(r#""f{number}":1"#)).collect::<Vec<_>>().join(",");
        assert_eq!(unknown::<PublishParams>(&format!("{{{}}}", members(UNKNOWN_MAX))).len(), UNKNOWN_MAX);
        assert_eq!(unknown::<PublishParams>(&format!("{{{}}}", members(UNKNOWN_MAX + 1))).len(), UNKNOWN_MAX);
        let long = "é".repeat(PATH_CHARS_MAX);
        assert_eq!(unknown::<PublishParams>(&format!(r#"{{"{long}é":1}}"#)), [long]);
    }

    #[test]
    fn the_field_of_a_wrong_type_is_named_and_no_value_quoted() {
        let of_publish = malformed::<PublishParams>;
        assert_eq!(of_publish(r#"{"channel":1}"#), r#"the field "channel" is not a string (line 1, column 12)"#);
        let of_a_tag = of_publish(r#"{"tags":{"secret":1}}"#);
        assert_eq!(of_a_tag, r#"the field "tags.*" is not a string (line 1, column 19)"#);
        let twice = of_publish(r#"{"channel":"a","channel":"b"}"#);
        assert!(twice.starts_with(r#"the field "channel" occurs twice (line 1,"#), "{twice}");
        let twice = malformed::<HistoryParams>(r#"{"since":{"offset":1,"offset":2}}"#);
        assert!(twice.starts_with(r#"the field "offset" occurs twice (line 1,"#), "{twice}");
        assert_eq!(of_publish("[1]"), "the body is not an object (line 1, column 1)");
        assert_eq!(of_publish("{\n\"channel\":"), "the body ends too early (line 2, column 10)");
        assert_eq!(of_publish(r#"{"channel":"a"} x"#), "the body is not JSON (line 1, column 17)");
        let of_broadcast = malformed::<BroadcastParams>(r#"{"channels":["a",{}]}"#);
        assert_eq!(of_broadcast, r#"the field "channels[1]" is not a string (line 1, column 17)"#);
        let of_history = malformed::<HistoryParams>(r#"{"since":{"offset":"5"}}"#);
        assert_eq!(of_history, r#"the field "since.offset" is not u64 (line 1, column 22)"#);
        let of_batch = malformed::<BatchParams>(r#"{"commands":[{},{"history":{"limit":"x"}}]}"#);
        assert_eq!(of_batch, r#"the field "commands[1].history.limit" is not i32 (line 1, column 39)"#);
    }
}
