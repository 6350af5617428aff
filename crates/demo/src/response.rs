//! The head of an HTTP response.

use std::io;

/// Maximum number of header fields.
const FIELDS_MAX: usize = 32;

/// What the demo needs of a head.
#[derive(Debug, PartialEq, Eq)]
pub struct ResponseHead {
    pub status: u32,
    /// The text beside the status.
    pub reason: Box<str>,
    /// The length of the head, and that of the body if it is stated.
    pub bytes: usize,
    pub body_bytes: Option<u64>,
    /// Whether the connection ends with the response.
    pub is_last: bool,
}

impl ResponseHead {
    /// Parses the begin of a response. `None` if the head is incomplete.
    ///
    /// # Errors
    /// It is no head of a response.
    pub fn parse(received: &[u8]) -> io::Result<Option<Self>> {
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut response = httparse::Response::new(&mut fields);
        let invalid = |error: httparse::Error| io::Error::new(io::ErrorKind::InvalidData, error.to_string());
        let httparse::Status::Complete(bytes) = response.parse(received).map_err(invalid)? else { return Ok(None) };
        let field = |name: &str| {
            let field = response.headers.iter().find(|field| field.name.eq_ignore_ascii_case(name))?;
            std::str::from_utf8(field.value).ok()
        };
        Ok(Some(Self {
            status: response.code.unwrap_or_default().into(),
            reason: response.reason.unwrap_or_default().into(),
            bytes,
            body_bytes: field("content-length").and_then(|length| length.parse().ok()),
            is_last: field("connection").is_some_and(|value| value.eq_ignore_ascii_case("close")),
        }))
    }
}
