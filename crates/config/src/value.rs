//! The typed value of one setting.

use std::fmt;

use super::{
    duration,
    keys::{Key, ValueKind},
    tree::Tree,
};

/// Maximum number of characters of a value in a message.
const SHOWN_CHARS_MAX: usize = 60;

/// A typed value.
#[derive(Clone, PartialEq)]
pub(super) enum Value {
    Bool(bool),
    Int(i64),
    /// A duration; negative for off.
    Millis(i64),
    Text(String),
    Texts(Vec<String>),
    /// A value of any type, and whether it is blank.
    Any {
        blank: bool,
        json: serde_json::Value,
    },
}

/// Shows only the type, because the value may be a secret.
impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bool(_) => "Bool",
            Self::Int(_) => "Int",
            Self::Millis(_) => "Millis",
            Self::Text(_) => "Text",
            Self::Texts(_) => "Texts",
            Self::Any { .. } => "Any",
        })
    }
}

impl Value {
    /// The value as JSON, for comparisons.
    pub(super) fn to_json(&self) -> serde_json::Value {
        match self {
            Self::Bool(value) => (*value).into(),
            Self::Int(value) | Self::Millis(value) => (*value).into(),
            Self::Text(text) => text.as_str().into(),
            Self::Texts(texts) => texts.as_slice().into(),
            Self::Any { json, .. } => json.clone(),
        }
    }

    /// Parses a value. Numbers and booleans may be given as text, as in environment variables.
    ///
    /// # Errors
    /// The problem and its remedy.
    pub(super) fn read(key: &Key, tree: &Tree) -> Result<Self, String> {
        let is = || shown(key, tree);
        match key.kind {
            ValueKind::Bool => {
                read_bool(tree).map(Self::Bool).ok_or_else(|| format!("{} is not a boolean: write true or false", is()))
            }
            ValueKind::Int(min, max) => {
                read_int(tree, min, max).map(Self::Int).map_err(|why| format!("{} {why}", is()))
            }
            ValueKind::Duration | ValueKind::DurationOrOff => {
                read_ms(tree, matches!(key.kind, ValueKind::DurationOrOff))
                    .map(Self::Millis)
                    .map_err(|why| format!("{} {why}", is()))
            }
            ValueKind::Text | ValueKind::Secret | ValueKind::Url => {
                read_text(tree).map(Self::Text).ok_or_else(|| format!("is {}; write text, in quotes", tree.describe()))
            }
            ValueKind::Choice(words) => read_text(tree)
                .filter(|text| words.contains(&text.as_str()))
                .map(Self::Text)
                .ok_or_else(|| format!("{} is not a valid value: use one of {}", is(), listed(words))),
            ValueKind::Texts => read_texts(tree).map(Self::Texts).ok_or_else(|| "write a list of strings".to_owned()),
            ValueKind::Any => Ok(Self::Any { blank: tree.is_blank(), json: tree.to_json() }),
            ValueKind::Table(_) | ValueKind::Tables(_) => unreachable!("tables hold values and are none"),
        }
    }

    /// The default value of a key.
    pub(super) fn default_of(key: &Key) -> Self {
        let tree = match key.kind {
            ValueKind::Texts if key.default.is_empty() => Tree::List(Vec::new()),
            _ => Tree::Text(key.default.to_owned()),
        };
        Self::read(key, &tree).unwrap_or_else(|why| unreachable!("the default of {} is right: {why}", key.name))
    }

    /// Whether the value is empty, which for an unsupported key is equivalent to an absent one.
    pub(super) fn is_blank(&self) -> bool {
        match self {
            Self::Text(text) => text.is_empty(),
            Self::Texts(texts) => texts.is_empty(),
            Self::Any { blank, .. } => *blank,
            Self::Bool(_) | Self::Int(_) | Self::Millis(_) => false,
        }
    }
}

pub(super) fn read_bool(tree: &Tree) -> Option<bool> {
    match tree {
        Tree::Bool(value) => Some(*value),
        Tree::Text(text) => match text.to_ascii_lowercase().as_str() {
            "true" | "1" | "t" => Some(true),
            "false" | "0" | "f" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

fn read_int(tree: &Tree, min: i64, max: i64) -> Result<i64, String> {
    let number = match tree {
        Tree::Int(number) => Some(*number),
        Tree::Text(text) => text.parse().ok(),
        _ => None,
    };
    match number {
        Some(number) if (min..=max).contains(&number) => Ok(number),
        None if max == i64::MAX => Err("is not a whole number".to_owned()),
        Some(number) if number < min => Err(format!("is too small: write at least {min}")),
        Some(_) => Err(format!("is too large: write at most {max}")),
        None => Err(format!("is not a whole number from {min} to {max}")),
    }
}

fn read_ms(tree: &Tree, may_be_off: bool) -> Result<i64, String> {
    let ms = match tree {
        Tree::Text(text) if may_be_off && text == "-1" => Ok(-1),
        Tree::Text(text) => duration::parse_ms(text),
        Tree::Int(0) => Ok(0),
        Tree::Int(-1) if may_be_off => Ok(-1),
        Tree::Int(_) | Tree::Float(_) => Err(duration::NotADuration::Unit),
        _ => Err(duration::NotADuration::Syntax),
    };
    match ms {
        Ok(ms) if ms < 0 && !may_be_off => Err("is negative; write a duration such as \"25s\"".to_owned()),
        Ok(ms) => Ok(ms),
        Err(why) => Err(why.to_string()),
    }
}

/// Accepts only text. The original notation of a number is unknown, and `007` and `7` are different keys.
fn read_text(tree: &Tree) -> Option<String> {
    match tree {
        Tree::Text(text) => Some(text.clone()),
        _ => None,
    }
}

fn read_texts(tree: &Tree) -> Option<Vec<String>> {
    match tree {
        Tree::List(items) => items.iter().map(read_text).collect(),
        // The same format as in an environment variable.
        Tree::Text(text) if !is_bracketed(text) => Some(text.split_ascii_whitespace().map(ToOwned::to_owned).collect()),
        _ => None,
    }
}

/// Whether a text is a list as in JSON or a shell, and not one such as `[::1]`.
pub(super) fn is_bracketed(text: &str) -> bool {
    let inside = text.trim().strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    inside.is_some_and(|inside| inside.is_empty() || inside.contains(['"', '\'', ',']))
}

/// The value for a message: shortened if it is long, and omitted if it is a secret.
fn shown(key: &Key, tree: &Tree) -> String {
    match tree {
        _ if matches!(key.kind, ValueKind::Secret | ValueKind::Url) => "the value".to_owned(),
        Tree::Text(text) => format!("{:?}", shortened(text)),
        Tree::Int(number) => number.to_string(),
        Tree::Float(number) => number.to_string(),
        Tree::Bool(value) => value.to_string(),
        Tree::Null | Tree::List(_) | Tree::Table(_) => tree.describe().to_owned(),
    }
}

/// The first characters of a long text.
pub(super) fn shortened(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// Whether a text contains a placeholder that a shell, an orchestrator or a template would have filled in: `${NAME}`,
/// `$(NAME)`, or `$NAME` in capitals as the whole text.
pub(super) fn has_placeholder(text: &str) -> bool {
    let is_name = |name: &str| {
        let mut bytes = name.bytes();
        bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
            && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    let is_closed = |behind: &str, closing: char| {
        let inside = behind.split_once(closing).map(|(inside, _)| inside);
        // A shell also fills in `${NAME:-default}`.
        inside.and_then(|inside| inside.split([':', '-']).next()).is_some_and(is_name)
    };
    let whole = text.strip_prefix('$');
    whole.is_some_and(|name| is_name(name) && !name.bytes().any(|byte| byte.is_ascii_lowercase()))
        || text.split("${").skip(1).any(|behind| is_closed(behind, '}'))
        || text.split("$(").skip(1).any(|behind| is_closed(behind, ')'))
}

fn listed(words: &[&str]) -> String {
    let quoted: Vec<_> = words.iter().filter(|word| !word.is_empty()).map(|word| format!("{word:?}")).collect();
    quoted.join(", ")
}
