//! Application data, which the server passes on without parsing it.

use bytes::Bytes;
use serde::de::IgnoredAny;

/// A payload for a JSON message is not JSON. The session is closed with [`crate::Disconnect::INAPPROPRIATE_PROTOCOL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotJson;

/// Whether `bytes` are UTF-8 and exactly one JSON value.
fn is_json(bytes: &[u8]) -> bool {
    str::from_utf8(bytes).is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok())
}

/// The bytes of a `data`, `conn_info` or `chan_info` field: raw JSON if they were received in a JSON message, otherwise
/// any bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload {
    bytes: Bytes,
    known_json: bool,
}

impl Payload {
    /// Bytes that a JSON parser has already accepted as exactly one value.
    pub fn from_json(bytes: Bytes) -> Self {
        Self { bytes, known_json: true }
    }

    /// Bytes of unknown content. They are validated as JSON only when they are encoded for a JSON session.
    pub fn from_opaque(bytes: Bytes) -> Self {
        Self { bytes, known_json: false }
    }

    /// The unchanged bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Whether the bytes are exactly one JSON value. Validates them if this is unknown.
    pub fn is_json(&self) -> bool {
        self.known_json || is_json(&self.bytes)
    }

    /// Whether a parser has already accepted the bytes as JSON.
    pub fn is_known_json(&self) -> bool {
        self.known_json
    }
}

/// The string value of a member of a JSON object; `None` if the bytes are not a JSON object with such a member.
pub fn text_member(json: &[u8], name: &str) -> Option<String> {
    // Avoids parsing, because nearly all data has no such member.
    memchr::memmem::find(json, name.as_bytes())?;
    let mut value: serde_json::Value = serde_json::from_slice(json).ok()?;
    match value.get_mut(name)?.take() {
        serde_json::Value::String(text) => Some(text),
        _ => None,
    }
}

/// A member of a JSON object that should be a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NumberMember {
    /// The bytes are no JSON object, or it has no such member.
    Absent,
    /// The member is `null`.
    Null,
    /// The member's value.
    Number(f64),
    /// A value of another type.
    Other,
}

impl NumberMember {
    /// The member `name` of a JSON object.
    pub fn of(json: &[u8], name: &str) -> Self {
        // Avoids parsing, because nearly all data has no such member.
        if memchr::memmem::find(json, name.as_bytes()).is_none() {
            return Self::Absent;
        }
        let value = serde_json::from_slice::<serde_json::Value>(json);
        match value.as_ref().ok().and_then(|value| value.get(name)) {
            None => Self::Absent,
            Some(serde_json::Value::Null) => Self::Null,
            Some(value) => value.as_f64().map_or(Self::Other, Self::Number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_member_is_found_in_objects_alone() {
        let found = |json: &str| NumberMember::of(json.as_bytes(), "rate");
        assert_eq!(found(r#"{"name":"Ada","rate":1}"#), NumberMember::Number(1.0));
        assert_eq!(found(r#"{"rate":-0.5}"#), NumberMember::Number(-0.5));
        assert_eq!(found(r#"{"rate":null}"#), NumberMember::Null);
        for json in [r#"{"rate":"1"}"#, r#"{"rate":[1]}"#, r#"{"rate":true}"#] {
            assert_eq!(found(json), NumberMember::Other, "{json}");
        }
        for json in ["", "rate", r#"["rate",1]"#, r#"{"other":{"rate":1}}"#, r#"{"rate":1"#, r#"{"rate":NaN}"#] {
            assert_eq!(found(json), NumberMember::Absent, "{json}");
        }
    }

    #[test]
    fn a_text_member_is_found_in_objects_alone() {
        let found = |json: &str| text_member(json.as_bytes(), "seat");
        assert_eq!(found(r#"{"name":"Ada","seat":"a\u0062"}"#).as_deref(), Some("ab"));
        for json in [
            "",
            "null",
            "seat",
            r#""seat""#,
            r#"["seat"]"#,
            r#"{"seat":7}"#,
            r#"{"other":{"seat":"a"}}"#,
            r#"{"seat":"a""#,
        ] {
            assert_eq!(found(json), None, "{json}");
        }
    }
}
