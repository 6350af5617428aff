//! Decides from a connection's first request whether it becomes a session, is passed to the HTTP server, or is refused.

// This module parses bytes from outside.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::unreachable)
)]

use std::{str, sync::Arc};

use dunlin_engine::Wire;
use dunlin_websocket::handshake::{self, DeflateOffer};

use super::{
    HeaderPicker, PickedHeaders,
    body::RequestBody,
    body_length::BodyLength,
    endpoints::{ClientEndpoint, Transport},
    head::{HeadBuffer, HeadLimits, Progress},
    response::{RefusalReason, Refused},
    stream_request::{Stream, StreamRequest, connect_of},
};

/// Maximum number of header fields of a request.
pub const HEAD_FIELDS_MAX: usize = 64;

/// Decides whether a page may open a WebSocket, from the value of `Origin`, if present, and of `Host`.
pub type OriginCheck = Arc<dyn Fn(Option<&str>, &str) -> bool + Send + Sync>;

/// Decides whether a connection becomes a session, from the head of its first request.
#[derive(Clone)]
pub struct Acceptor {
    /// The paths for clients, without duplicates.
    pub places: Vec<ClientEndpoint>,
    /// The allowed origins.
    pub origins: OriginCheck,
    /// Limits of a head.
    pub limits: HeadLimits,
    /// Selects the header fields that the session keeps.
    pub headers: HeaderPicker,
}

/// The decision about a request.
#[derive(Debug, PartialEq, Eq)]
pub enum HeadVerdict {
    /// The head is incomplete.
    Unfinished,
    /// The request opens a WebSocket.
    WebSocket {
        /// The session's transport and encoding.
        wire: Wire,
        /// Whether the client may send compressed messages. The server's direction is part of `wire`.
        inflates: bool,
        /// The handshake response.
        response: Vec<u8>,
        /// The connect request from the query.
        connect: Option<Vec<u8>>,
        /// Where the first frame begins in the received bytes.
        head_len: usize,
        /// The header fields that the session keeps.
        headers: Option<PickedHeaders>,
    },
    /// The response becomes a session after the body has arrived.
    Stream {
        /// The session's transport and encoding.
        wire: Wire,
        /// The beginning of the response.
        response: Vec<u8>,
        /// The body, without the bytes that have arrived.
        body: RequestBody,
        /// Where the body begins in the received bytes.
        head_len: usize,
        /// The header fields that the session keeps.
        headers: Option<PickedHeaders>,
    },
    /// The request is for the HTTP server.
    HandOver,
    /// The request is refused.
    Refused(Refused),
}

impl Acceptor {
    /// Appends `piece` to `head`, and decides when the head is complete.
    pub fn judge(&self, head: &mut HeadBuffer, piece: &[u8]) -> HeadVerdict {
        match head.push(piece, &self.limits) {
            Progress::Partial => HeadVerdict::Unfinished,
            Progress::Refused(reason) => HeadVerdict::Refused(reason.into()),
            Progress::Whole { head_len } => {
                self.judge_whole(head.bytes(), head_len).unwrap_or_else(HeadVerdict::Refused)
            }
        }
    }

    fn judge_whole(&self, bytes: &[u8], head_len: usize) -> Result<HeadVerdict, Refused> {
        let mut fields = [httparse::EMPTY_HEADER; HEAD_FIELDS_MAX];
        let mut request = httparse::Request::new(&mut fields);
        let parsed = request.parse(bytes).map_err(|error| match error {
            httparse::Error::TooManyHeaders => RefusalReason::HeadTooLarge.into(),
            httparse::Error::Version => Refused::http_version(),
            _ => RefusalReason::Malformed.into(),
        })?;
        let (true, Some(method), Some(target), Some(minor)) =
            (parsed.is_complete(), request.method, request.path, request.version)
        else {
            return Err(RefusalReason::Malformed.into());
        };
        let length = BodyLength::of(minor, request.headers)?;
        let (path, query) = split_target(target);
        let Some(ClientEndpoint { transport, .. }) = self.places.iter().find(|place| place.path == path) else {
            return Ok(HeadVerdict::HandOver);
        };
        let (deflate, is_uni) = match *transport {
            Transport::WebSocket { deflate } => (deflate, false),
            Transport::UniWebSocket { deflate } => (deflate, true),
            // The HTTP server responds to preflight requests.
            _ if method == "OPTIONS" => return Ok(HeadVerdict::HandOver),
            _ if minor != 1 => return Err(Refused::http_version()),
            transport => {
                let stream = StreamRequest { method, query, fields: request.headers, length }.judge(transport)?;
                if !self.admits_origin(request.headers) {
                    return Err(RefusalReason::Origin.into());
                }
                let Stream { wire, body, response } = stream;
                let headers = self.headers.pick(request.headers.iter().map(|field| (field.name, field.value)));
                return Ok(HeadVerdict::Stream { wire, response, body, head_len, headers });
            }
        };
        // The bytes after the head are frames here. A proxy might treat them as a body.
        if length != BodyLength::Bytes(0) {
            return Err(Refused::ambiguous_length());
        }
        let fields = request.headers.iter().map(|field| (field.name, field.value));
        let wants_protobuf = asks_for_protobuf(query) && !is_uni;
        let offered = if is_uni { &[][..] } else { offered(wants_protobuf) };
        let mut accepted = handshake::accept(method, minor, fields, offered)?;
        if !self.admits_origin(request.headers) {
            return Err(RefusalReason::Origin.into());
        }
        let is_protobuf = wants_protobuf || accepted.subprotocol == Some(PROTOBUF_SUBPROTOCOL);
        let agreed = if deflate { accepted.agree_on_deflate() } else { None };
        let compresses = agreed.is_some_and(DeflateOffer::has_full_window);
        let wire = match (compresses, is_uni, is_protobuf) {
            (false, true, _) => Wire::UniWebSocket,
            (true, true, _) => Wire::UniWebSocketDeflate,
            (false, false, false) => Wire::WebSocketJson,
            (false, false, true) => Wire::WebSocketProtobuf,
            (true, false, false) => Wire::WebSocketDeflateJson,
            (true, false, true) => Wire::WebSocketDeflateProtobuf,
        };
        let connect = if is_uni { connect_of(query)? } else { None };
        let mut response = Vec::new();
        accepted.append_response(&mut response);
        let headers = self.headers.pick(request.headers.iter().map(|field| (field.name, field.value)));
        Ok(HeadVerdict::WebSocket { wire, inflates: agreed.is_some(), response, connect, head_len, headers })
    }

    /// Rejects an origin that occurs twice or is not text.
    fn admits_origin(&self, fields: &[httparse::Header<'_>]) -> bool {
        let value_of = |name: &str| {
            let mut values = fields.iter().filter(|field| field.name.eq_ignore_ascii_case(name));
            (values.next().map(|field| str::from_utf8(field.value)), values.next().is_none())
        };
        let ((origin, origin_once), (host, _)) = (value_of("origin"), value_of("host"));
        match (origin.transpose(), host.transpose()) {
            (Ok(origin), Ok(host)) => origin_once && (self.origins)(origin, host.unwrap_or_default()),
            _ => false,
        }
    }
}

const JSON_SUBPROTOCOL: &str = "centrifuge-json";
const PROTOBUF_SUBPROTOCOL: &str = "centrifuge-protobuf";

/// The subprotocols in the server's order of preference. If the client's address names an encoding, that one comes
/// first.
fn offered(wants_protobuf: bool) -> &'static [&'static str] {
    if wants_protobuf { &[PROTOBUF_SUBPROTOCOL, JSON_SUBPROTOCOL] } else { &[JSON_SUBPROTOCOL, PROTOBUF_SUBPROTOCOL] }
}

fn asks_for_protobuf(query: &str) -> bool {
    query.split('&').any(|pair| matches!(pair, "format=protobuf" | "cf_protocol=protobuf"))
}

/// Path and query of a request target, which may be in absolute form (RFC 9112, section 3.2.2).
fn split_target(target: &str) -> (&str, &str) {
    let target = match target.split_once("://") {
        Some((scheme, rest)) if scheme.bytes().all(|byte| byte.is_ascii_alphabetic()) => {
            rest.find(['/', '?']).and_then(|at| rest.get(at..)).unwrap_or("/")
        }
        _ => target,
    };
    target.split_once('?').unwrap_or((target, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acceptor() -> Acceptor {
        Acceptor {
            places: vec![ClientEndpoint::websocket("/connection/websocket")],
            origins: Arc::new(|origin, host| {
                assert_eq!(host, "dunlin.example");
                origin != Some("https://evil.example")
            }),
            limits: HeadLimits { head_bytes_max: 16_384, request_line_bytes_max: 4_096 },
            headers: HeaderPicker::new(["cookie".into()]),
        }
    }

    fn judge(request_line: &str, more_fields: &str) -> HeadVerdict {
        let request = format!(
            "{request_line}\r\nHost: dunlin.example\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{more_fields}\r\n"
        );
        acceptor().judge(&mut HeadBuffer::default(), request.as_bytes())
    }

    fn status(verdict: &HeadVerdict) -> &str {
        match verdict {
            HeadVerdict::Refused(refused) => str::from_utf8(&refused.response[9..12]).expect("three digits"),
            HeadVerdict::WebSocket { .. } => "101",
            HeadVerdict::Stream { .. } => "200",
            HeadVerdict::HandOver => "handed over",
            HeadVerdict::Unfinished => "unfinished",
        }
    }

    #[test]
    fn the_encoding_follows_the_subprotocol_and_the_query() {
        let cases = [
            ("/connection/websocket", "", Wire::WebSocketJson, None),
            ("/connection/websocket", "centrifuge-json", Wire::WebSocketJson, Some("centrifuge-json")),
            ("/connection/websocket", "centrifuge-protobuf", Wire::WebSocketProtobuf, Some("centrifuge-protobuf")),
            ("/connection/websocket", "other", Wire::WebSocketJson, None),
            ("/connection/websocket?format=protobuf", "", Wire::WebSocketProtobuf, None),
            ("/connection/websocket?a=b&cf_protocol=protobuf", "", Wire::WebSocketProtobuf, None),
            ("/connection/websocket?cf_protocol=json", "", Wire::WebSocketJson, None),
            (
                "/connection/websocket?cf_protocol=protobuf",
                "centrifuge-json, centrifuge-protobuf",
                Wire::WebSocketProtobuf,
                Some("centrifuge-protobuf"),
            ),
            ("http://dunlin.example/connection/websocket?format=protobuf", "", Wire::WebSocketProtobuf, None),
        ];
        for (target, offered, expected, echoed) in cases {
            let field =
                if offered.is_empty() { String::new() } else { format!("Sec-WebSocket-Protocol: {offered}\r\n") };
            let HeadVerdict::WebSocket { wire, response, .. } = judge(&format!("GET {target} HTTP/1.1"), &field) else {
                panic!("{target} {offered} opens a WebSocket");
            };
            let response = String::from_utf8(response).expect("ASCII");
            let echo = response.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Protocol: "));
            assert_eq!((wire, echo), (expected, echoed), "{target} {offered}");
        }
    }

    #[test]
    fn header_fields_for_backends_are_kept() {
        let verdict = judge("GET /connection/websocket HTTP/1.1", "Cookie: a=b\r\nX-Other: 1\r\n");
        let HeadVerdict::WebSocket { headers: Some(headers), .. } = verdict else { panic!("{verdict:?}") };
        assert_eq!(headers[..], [("cookie".into(), b"a=b".as_slice().into())]);
        let verdict = judge("GET /connection/websocket HTTP/1.1", "X-Other: 1\r\n");
        assert!(matches!(verdict, HeadVerdict::WebSocket { headers: None, .. }));
    }

    #[test]
    fn every_refusal_has_its_status() {
        let many = |count: usize| "X: y\r\n".repeat(count);
        let cases = [
            ("GET /connection/websocket HTTP/1.1", String::new(), "101"),
            ("GET /connection/websocket HTTP/1.1", "Origin: https://good.example\r\n".to_owned(), "101"),
            ("GET /connection/websocket HTTP/1.1", "Origin: https://evil.example\r\n".to_owned(), "403"),
            ("GET /connection/websocket HTTP/1.1", "Origin: a\r\nOrigin: a\r\n".to_owned(), "403"),
            ("GET /connection/websocket HTTP/1.1", "Origin: \u{e9}\r\n".to_owned(), "101"),
            ("POST /connection/websocket HTTP/1.1", String::new(), "405"),
            ("GET /connection/websocket HTTP/1.0", String::new(), "505"),
            ("GET /connection/websocket HTTP/2.0", String::new(), "505"),
            ("GET /connection/websocket HTTP/1.1", "Sec-WebSocket-Key: again\r\n".to_owned(), "400"),
            ("GET /connection/websocket HTTP/1.1", "bad field\r\n".to_owned(), "400"),
            ("GET /connection/websocket HTTP/1.1", "Content-Length: 0\r\n".to_owned(), "101"),
            ("GET /connection/websocket HTTP/1.1", "Content-Length: 1\r\n".to_owned(), "400"),
            ("GET /connection/websocket HTTP/1.1", "Transfer-Encoding: chunked\r\n".to_owned(), "400"),
            ("POST /api HTTP/1.1", "Content-Length: 1\r\nContent-Length: 1\r\n".to_owned(), "400"),
            ("POST /api HTTP/1.1", "Transfer-Encoding: gzip, chunked\r\n".to_owned(), "400"),
            ("POST /api HTTP/1.1", "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n".to_owned(), "400"),
            ("GET /connection/websocket", String::new(), "400"),
            // Five fields are there already.
            ("GET /connection/websocket HTTP/1.1", many(59), "101"),
            ("GET /connection/websocket HTTP/1.1", many(60), "431"),
            ("GET /connection/websocket/ HTTP/1.1", String::new(), "handed over"),
            ("GET /connection/websocketx HTTP/1.1", String::new(), "handed over"),
            ("POST /api/publish HTTP/1.0", String::new(), "handed over"),
            ("GET / HTTP/1.1", String::new(), "handed over"),
        ];
        for (line, fields, expected) in cases {
            let verdict = judge(line, &fields);
            assert_eq!(status(&verdict), expected, "{line} {fields}: {verdict:?}");
        }
        let plain = "GET /connection/websocket HTTP/1.1\r\nHost: dunlin.example\r\n\r\n";
        assert_eq!(status(&acceptor().judge(&mut HeadBuffer::default(), plain.as_bytes())), "400");
    }

    #[test]
    fn an_origin_that_is_not_text_is_refused() {
        let mut request = b"GET /connection/websocket HTTP/1.1\r\nHost: dunlin.example\r\nUpgrade: websocket\r\n\
            Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
            Origin: "
            .to_vec();
        request.extend_from_slice(&[0xff, 0xfe]);
        request.extend_from_slice(b"\r\n\r\n");
        assert_eq!(status(&acceptor().judge(&mut HeadBuffer::default(), &request)), "403");
    }
}
