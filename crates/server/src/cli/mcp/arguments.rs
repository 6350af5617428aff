//! What a tool is given. One declaration of its parameters makes their schema for the client, and checks what it sends.

use std::fmt;

use serde_json::{Map, Value, json};

/// A parameter of a tool.
#[derive(Debug)]
pub(super) struct Param {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) about: &'static str,
    pub(super) is_required: bool,
}

/// What a parameter can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Flag,
    /// An integer in this range, and its default if it has one.
    Number {
        least: u64,
        most: u64,
        default: Option<u64>,
    },
    /// A number that JavaScript cannot hold: up to 2⁶⁴ − 1.
    Offset,
    Object,
    /// Any JSON.
    Any,
}

/// The checked arguments of a call.
#[derive(Debug)]
pub(super) struct Arguments(pub(super) Map<String, Value>);

impl Param {
    pub(super) const fn new(name: &'static str, kind: Kind, about: &'static str) -> Self {
        Self { name, kind, about, is_required: false }
    }

    pub(super) const fn required(name: &'static str, kind: Kind, about: &'static str) -> Self {
        Self { name, kind, about, is_required: true }
    }

    fn schema(&self) -> Value {
        let mut schema = match self.kind {
            Kind::Text => json!({ "type": "string" }),
            Kind::Flag => json!({ "type": "boolean" }),
            Kind::Number { least, most, default } => {
                let mut schema = json!({ "type": "integer", "minimum": least, "maximum": most });
                if let Some(default) = default {
                    schema["default"] = default.into();
                }
                schema
            }
            Kind::Offset => json!({ "type": "integer", "minimum": 0 }),
            Kind::Object => json!({ "type": "object" }),
            Kind::Any => json!({}),
        };
        schema["description"] = self.about.into();
        schema
    }
}

impl Kind {
    fn admits(self, value: &Value) -> bool {
        match self {
            Self::Text => value.is_string(),
            Self::Flag => value.is_boolean(),
            Self::Number { least, most, .. } => value.as_u64().is_some_and(|number| (least..=most).contains(&number)),
            Self::Offset => value.is_u64(),
            Self::Object => value.is_object(),
            Self::Any => true,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text => f.write_str("a text"),
            Self::Flag => f.write_str("true or false"),
            Self::Number { least, most, .. } => write!(f, "an integer from {least} to {most}"),
            Self::Offset => f.write_str("an integer of at least 0"),
            Self::Object => f.write_str("an object"),
            Self::Any => f.write_str("any JSON"),
        }
    }
}

/// The schema of an object with these parameters.
pub(super) fn schema(params: &[Param]) -> Value {
    let properties: Map<_, _> = params.iter().map(|param| (param.name.to_owned(), param.schema())).collect();
    let required: Vec<_> = params.iter().filter(|param| param.is_required).map(|param| param.name).collect();
    let mut schema = json!({ "type": "object", "properties": properties, "additionalProperties": false });
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

impl Arguments {
    /// Checks arguments. Those that are `null` count as absent. The error is for a model, which then calls again.
    pub(super) fn check(given: &Map<String, Value>, params: &[Param]) -> Result<Self, String> {
        let given: Map<_, _> = given
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        for (name, value) in &given {
            match params.iter().find(|param| param.name == name) {
                None => {
                    let known: Vec<_> = params.iter().map(|param| format!("`{}`", param.name)).collect();
                    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                    return Err(format!("there is no parameter `{}`: the tool has {known}", shortened(name)));
                }
                Some(Param { kind, .. }) if !kind.admits(value) => {
                    return Err(format!("`{name}` is {}, and has to be {kind}", shortened(&value.to_string())));
                }
                Some(_) => {}
            }
        }
        match params.iter().find(|param| param.is_required && !given.contains_key(param.name)) {
            Some(Param { name, kind, about, .. }) => Err(format!("`{name}` is missing: {kind}. {about}")),
            None => Ok(Self(given)),
        }
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.as_str()
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        self.0.get(name).and_then(Value::as_bool).unwrap_or_default()
    }

    /// The number that is given, or the default of the parameter.
    pub(super) fn number(&self, name: &str, params: &[Param]) -> usize {
        let default = params.iter().find_map(|param| match param.kind {
            Kind::Number { default, .. } if param.name == name => default,
            _ => None,
        });
        let number = self.0.get(name).and_then(Value::as_u64).or(default).unwrap_or(0);
        usize::try_from(number).unwrap_or(usize::MAX)
    }
}

/// What an error quotes of a value.
fn shortened(text: &str) -> String {
    const CHARS_MAX: usize = 60;
    let mut short: String = text.chars().take(CHARS_MAX).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARAMS: [Param; 4] = [
        Param::required("channel", Kind::Text, "The channel."),
        Param::new("limit", Kind::Number { least: 1, most: 100, default: Some(20) }, "How many."),
        Param::new("reverse", Kind::Flag, "The newest first."),
        Param::new("offset", Kind::Offset, "A position."),
    ];

    #[test]
    fn arguments_are_checked_at_their_limits_and_one_past_them() {
        for (given, expected) in [
            (json!({ "channel": "a" }), Ok(20)),
            (json!({ "channel": "", "limit": 1 }), Ok(1)),
            (json!({ "channel": "a", "limit": 100, "reverse": null }), Ok(100)),
            (json!({ "channel": "a", "limit": 101 }), Err("`limit` is 101, and has to be an integer from 1 to 100")),
            (json!({ "channel": "a", "limit": 0 }), Err("`limit` is 0, and has to be an integer from 1 to 100")),
            (json!({ "channel": "a", "limit": "5" }), Err("`limit` is \"5\", and has to be an integer from 1 to 100")),
            (json!({ "channel": "a", "limit": 1.5 }), Err("`limit` is 1.5, and has to be an integer from 1 to 100")),
            (json!({ "channel": "a", "offset": u64::MAX }), Ok(20)),
            (json!({ "channel": "a", "offset": -1 }), Err("`offset` is -1, and has to be an integer of at least 0")),
            (json!({ "channel": ["a"] }), Err("`channel` is [\"a\"], and has to be a text")),
            (json!({ "channel": "a", "reverse": "no" }), Err("`reverse` is \"no\", and has to be true or false")),
            (json!({}), Err("`channel` is missing: a text. The channel.")),
            (json!({ "channel": null }), Err("`channel` is missing: a text. The channel.")),
            (
                json!({ "channel": "a", "chanel": "b" }),
                Err("there is no parameter `chanel`: the tool has `channel`, `limit`, `reverse`, `offset`"),
            ),
        ] {
            let checked = Arguments::check(given.as_object().expect("an object"), &PARAMS);
            let limit = checked.map(|arguments| arguments.number("limit", &PARAMS));
            assert_eq!(limit, expected.map_err(str::to_owned), "{given}");
        }
        let long = json!({ "channel": vec!["x"; 10_000] });
        let error = Arguments::check(long.as_object().expect("an object"), &PARAMS).expect_err("it is no text");
        assert!(error.len() < 200, "{error}");
    }
}
