//! Application bytes, which the server carries but never reads.

use bytes::Bytes;

/// A payload was to be written into a JSON message and is not JSON itself. The session is closed with
/// [`crate::Disconnect::INAPPROPRIATE_PROTOCOL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotJson;

/// The bytes of a `data`, `conn_info` or `chan_info` field: raw JSON when they came from a JSON message, otherwise
/// anything.
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

    /// Bytes of which nothing is known. Whether they are JSON is found out when a JSON session is to receive them.
    pub fn from_opaque(bytes: Bytes) -> Self {
        Self { bytes, known_json: false }
    }

    /// The bytes as they came.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Whether a parser has already accepted the bytes as JSON.
    pub fn is_known_json(&self) -> bool {
        self.known_json
    }
}
