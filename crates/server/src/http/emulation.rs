//! Commands of sessions whose transport carries data only from the server. Each request selects its session by the
//! session's secret id.

use std::{borrow::Cow, fmt, net::IpAddr, sync::Arc};

use axum::{
    extract::{Request, State},
    http::{HeaderValue, Method, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Deserialize;

use super::{
    SessionAcceptor,
    stream::{preflight, read_body},
};
use crate::{
    node::{Emulated, SourceNetwork},
    peers::{ForwardFault, Forwards, emulate_on},
    telemetry::api_counters::HttpRefusal,
};

/// The state of the endpoint.
#[derive(Clone)]
pub struct Emulation {
    /// `emulation.handler_prefix`.
    pub path: String,
    /// Maximum length of a request's body.
    pub body_bytes_max: usize,
    /// The node's id, which clients receive when they connect.
    pub node_id: Arc<str>,
    /// Access to the sessions.
    pub sessions: Arc<SessionAcceptor>,
    /// The requests that are being forwarded.
    pub forwards: Arc<Forwards>,
}

/// Handles one request.
pub async fn answer(State(emulation): State<Arc<Emulation>>, request: Request) -> Response {
    let sessions = &emulation.sessions;
    match *request.method() {
        Method::OPTIONS => return preflight(sessions, &request),
        Method::POST => {}
        _ => return (StatusCode::METHOD_NOT_ALLOWED, [(header::ALLOW, "POST, OPTIONS")]).into_response(),
    }
    let mut response = StatusCode::NO_CONTENT.into_response();
    if !sessions.allow_origin(&request, &mut response) {
        return StatusCode::FORBIDDEN.into_response();
    }
    let is_protobuf = request
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|content_type| content_type.as_bytes().trim_ascii() == b"application/octet-stream");
    let client = sessions.client_of(&request);
    let coming = read_body(request.into_body(), emulation.body_bytes_max);
    *response.status_mut() = match tokio::time::timeout(sessions.body_timeout, coming).await {
        Ok(Ok(body)) => emulate(&emulation, client, is_protobuf, &body).await,
        Ok(Err(status)) => status,
        Err(_) => StatusCode::REQUEST_TIMEOUT,
    };
    if response.status() == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

async fn emulate(emulation: &Emulation, client: Option<IpAddr>, is_protobuf: bool, body: &[u8]) -> StatusCode {
    let parsed = if is_protobuf { read_protobuf(body) } else { read_json(body) };
    let Some(parsed) = parsed else { return StatusCode::BAD_REQUEST };
    if !parsed.node.is_empty() && *parsed.node != *emulation.node_id {
        return forward(emulation, client, parsed).await;
    }
    match emulation.sessions.node.emulate(&parsed.session, parsed.data.into_owned()).await {
        // A session may have just ended. This is not an error of its client, which sees the end in its stream.
        Ok(Emulated::Taken | Emulated::Unknown) => StatusCode::NO_CONTENT,
        Ok(Emulated::Busy) | Err(_) => StatusCode::SERVICE_UNAVAILABLE,
    }
}

/// Forwards a request to another node of the cluster.
async fn forward(emulation: &Emulation, client: Option<IpAddr>, parsed: EmulationBody<'_>) -> StatusCode {
    let Some(cluster) = emulation.sessions.node.cluster() else { return StatusCode::NOT_FOUND };
    let Some(_place) = emulation.forwards.begin(client.map(SourceNetwork::of)) else {
        emulation.sessions.counters.count_refusal(HttpRefusal::Forwards);
        return StatusCode::SERVICE_UNAVAILABLE;
    };
    match emulate_on(cluster, &parsed.node, &parsed.session, parsed.data.into_owned()).await {
        // As for a session of this node that is unknown.
        Ok(()) | Err(ForwardFault::ForeignSession) => StatusCode::NO_CONTENT,
        Err(ForwardFault::UnknownNode) => StatusCode::NOT_FOUND,
        Err(ForwardFault::TooLarge) => StatusCode::PAYLOAD_TOO_LARGE,
        Err(ForwardFault::Unavailable) => StatusCode::SERVICE_UNAVAILABLE,
    }
}

/// One request.
#[derive(PartialEq, Eq)]
pub struct EmulationBody<'b> {
    /// The id of the session's node; may be empty.
    pub node: Cow<'b, str>,
    /// The session's id.
    pub session: Cow<'b, str>,
    /// The commands, in the format of a frame.
    pub data: Cow<'b, [u8]>,
}

/// Hides the session's secret id, and what the client sends.
impl fmt::Debug for EmulationBody<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { node, session: _, data } = self;
        f.debug_struct("EmulationBody").field("node", node).field("bytes", &data.len()).finish_non_exhaustive()
    }
}

/// Parses a JSON object with the fields of [`EmulationBody`].
pub fn read_json(body: &[u8]) -> Option<EmulationBody<'_>> {
    #[derive(Deserialize)]
    struct Fields<'b> {
        #[serde(borrow, default)]
        node: Cow<'b, str>,
        #[serde(borrow, default)]
        session: Cow<'b, str>,
        #[serde(borrow, default)]
        data: Cow<'b, str>,
    }
    // The derived `Deserialize` of a struct would also accept an array.
    if body.trim_ascii_start().first() != Some(&b'{') {
        return None;
    }
    let Fields { node, session, data } = serde_json::from_slice(body).ok()?;
    let data = match data {
        Cow::Borrowed(data) => Cow::Borrowed(data.as_bytes()),
        Cow::Owned(data) => Cow::Owned(data.into_bytes()),
    };
    Some(EmulationBody { node, session, data })
}

/// Parses Protobuf: `node` is field 1, `session` 2, `data` 3, all length-delimited; other fields are skipped.
pub fn read_protobuf(mut body: &[u8]) -> Option<EmulationBody<'_>> {
    let (mut node, mut session, mut data) = ("", "", &[][..]);
    while !body.is_empty() {
        let tag = take_number(&mut body)?;
        let value = match tag & 7 {
            0 => {
                take_number(&mut body)?;
                continue;
            }
            1 => {
                body = body.get(8..)?;
                continue;
            }
            5 => {
                body = body.get(4..)?;
                continue;
            }
            2 => {
                let length = usize::try_from(take_number(&mut body)?).ok()?;
                let (value, rest) = body.split_at_checked(length)?;
                body = rest;
                value
            }
            _ => return None,
        };
        match tag >> 3 {
            1 => node = std::str::from_utf8(value).ok()?,
            2 => session = std::str::from_utf8(value).ok()?,
            3 => data = value,
            _ => {}
        }
    }
    Some(EmulationBody { node: Cow::Borrowed(node), session: Cow::Borrowed(session), data: Cow::Borrowed(data) })
}

fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for place in 0..10 {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f).checked_shl(7 * place)?;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed<'b>(node: &'b str, session: &'b str, data: &'b [u8]) -> EmulationBody<'b> {
        EmulationBody { node: node.into(), session: session.into(), data: data.into() }
    }

    #[test]
    fn both_encodings_name_a_session_and_its_commands() {
        let json = br#"{"session":"s","node":"n","data":"{\"id\":1}\n{}"}"#;
        assert_eq!(read_json(json), Some(parsed("n", "s", b"{\"id\":1}\n{}")));
        assert_eq!(read_json(br#"{"session":"s"}"#), Some(parsed("", "s", b"")));
        let protobuf = b"\x0a\x01n\x12\x01s\x1a\x03\x02\x08\x01\x20\x07";
        assert_eq!(read_protobuf(protobuf), Some(parsed("n", "s", b"\x02\x08\x01")));
    }

    #[test]
    fn malformed_bodies_are_refused() {
        for json in ["", "{", "[]", r#"{"session":1}"#, r#"{"session":"s","data":{}}"#, r#"{"data":"x"} x"#] {
            assert_eq!(read_json(json.as_bytes()), None, "{json}");
        }
        for protobuf in
            [&b"\x12"[..], b"\x12\x05s", b"\x12\x01\xff", b"\x0b", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"]
        {
            assert_eq!(read_protobuf(protobuf), None, "{protobuf:02x?}");
        }
    }
}
