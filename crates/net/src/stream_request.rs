//! Parses requests whose response is a session: HTTP streaming and server-sent events.

// This module parses bytes from outside.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::unreachable)
)]

use dunlin_engine::Wire;

use super::{
    body::RequestBody,
    body_length::BodyLength,
    endpoints::Transport,
    response::{RefusalReason, Refused},
};

/// The query parameter with the connect request, for requests without a body.
const CONNECT_PARAMETER: &str = "cf_connect";

/// The parts of the request that this module examines.
pub(super) struct StreamRequest<'r> {
    pub(super) method: &'r str,
    pub(super) query: &'r str,
    pub(super) fields: &'r [httparse::Header<'r>],
    pub(super) length: BodyLength,
}

/// An accepted request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stream {
    pub(super) wire: Wire,
    pub(super) body: RequestBody,
    /// The beginning of the response; the session writes the rest.
    pub(super) response: Vec<u8>,
}

impl StreamRequest<'_> {
    /// Checks the request by the rules of its transport.
    pub(super) fn judge(&self, transport: Transport) -> Result<Stream, Refused> {
        let (wire, body_bytes_max, takes_get) = match transport {
            Transport::HttpStream { body_bytes_max } if self.content_is_protobuf() => {
                (Wire::HttpStreamProtobuf, body_bytes_max, false)
            }
            Transport::HttpStream { body_bytes_max } => (Wire::HttpStreamJson, body_bytes_max, false),
            Transport::UniHttpStream { body_bytes_max } => (Wire::UniHttpStream, body_bytes_max, false),
            Transport::Sse { body_bytes_max } => (Wire::Sse, body_bytes_max, true),
            Transport::UniSse { body_bytes_max } => (Wire::UniSse, body_bytes_max, true),
            Transport::WebSocket { .. } | Transport::UniWebSocket { .. } => return Err(RefusalReason::Malformed.into()),
        };
        if self.values("host").count() != 1 {
            return Err(RefusalReason::Malformed.into());
        }
        let body = match self.method {
            "POST" => self.body(body_bytes_max)?,
            "GET" if takes_get => match connect_of(self.query)? {
                Some(connect) => RequestBody::whole(connect),
                // On these transports the connect request is optional and defaults to an empty one.
                None if wire.is_unidirectional() => RequestBody::whole(Vec::new()),
                None => return Err(RefusalReason::Malformed.into()),
            },
            _ => return Err(Refused::method(if takes_get { "GET, POST, OPTIONS" } else { "POST, OPTIONS" })),
        };
        Ok(Stream { wire, body, response: self.response(wire) })
    }

    fn body(&self, bytes_max: usize) -> Result<RequestBody, RefusalReason> {
        match self.length {
            BodyLength::Bytes(0) => Ok(RequestBody::whole(Vec::new())),
            BodyLength::Bytes(length) => RequestBody::of_length(length, bytes_max),
            BodyLength::Chunked => Ok(RequestBody::chunked(bytes_max)),
        }
    }

    fn content_is_protobuf(&self) -> bool {
        self.values("content-type").next().is_some_and(|value| value.trim_ascii() == b"application/octet-stream")
    }

    fn values(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        self.fields.iter().filter(move |field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value)
    }

    fn response(&self, wire: Wire) -> Vec<u8> {
        let mut response = b"HTTP/1.1 200 OK\r\n".to_vec();
        let is_sse = matches!(wire, Wire::Sse | Wire::UniSse);
        let content_type = match wire {
            Wire::Sse | Wire::UniSse => "text/event-stream; charset=utf-8",
            Wire::HttpStreamProtobuf => "application/octet-stream",
            _ => "application/json; charset=utf-8",
        };
        response.extend_from_slice(
            format!(
                "Content-Type: {content_type}\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\
                 X-Accel-Buffering: no\r\n\
                 Cache-Control: private, no-cache, no-store, must-revalidate, max-age=0\r\n\
                 Pragma: no-cache\r\nExpires: 0\r\n"
            )
            .as_bytes(),
        );
        // The origin was accepted before. Without an origin the headers are not needed.
        if let Some(origin) = self.values("origin").next() {
            response.extend_from_slice(b"Vary: Origin\r\nAccess-Control-Allow-Origin: ");
            response.extend_from_slice(origin);
            response.extend_from_slice(b"\r\nAccess-Control-Allow-Credentials: true\r\n");
        }
        response.extend_from_slice(b"\r\n");
        if is_sse {
            // Proxies in front then see that the response has begun.
            response.extend_from_slice(b"2\r\n\r\n\r\n");
        }
        response
    }
}

/// The connect request in the query.
///
/// # Errors
/// [`RefusalReason::Malformed`] if it is not percent-encoded.
pub(super) fn connect_of(query: &str) -> Result<Option<Vec<u8>>, RefusalReason> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let Some((_, value)) = pairs.find(|(name, _)| *name == CONNECT_PARAMETER) else { return Ok(None) };
    let mut decoded = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    loop {
        rest = match rest {
            [] => return Ok((!decoded.is_empty()).then_some(decoded)),
            [b'%', high, low, rest @ ..] => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                let (high, low) = digit(*high).zip(digit(*low)).ok_or(RefusalReason::Malformed)?;
                decoded.push((high << 4 | low) as u8);
                rest
            }
            [b'%', ..] => return Err(RefusalReason::Malformed),
            [b'+', rest @ ..] => {
                decoded.push(b' ');
                rest
            }
            [byte, rest @ ..] => {
                decoded.push(*byte);
                rest
            }
        };
    }
}

#[cfg(test)]
mod tests;
