//! A WebSocket handshake on a kept-alive connection of the HTTP server, as proxies use them. It must pass the same
//! checks as on a shard, and the socket moves to a shard.

use std::{io::Write as _, net::IpAddr, sync::Arc};

use axum::{
    body::Body,
    extract::{Request, State},
    http::{HeaderName, HeaderValue, StatusCode, Version},
    response::{IntoResponse, Response},
};
use dunlin_engine::Wire;
use dunlin_net::{HeadBuffer, HeadVerdict, PickedHeaders, RefusalReason, Refused};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;

use super::{Peer, SessionAcceptor, rewound_socket::ReplaySocket};
use crate::{
    node::{Admitted, Adoption},
    telemetry::{api_counters::HttpRefusal, events},
};

/// Maximum number of header fields in a handshake response.
const ANSWER_FIELDS_MAX: usize = 16;

/// Handles a request for the WebSocket's path.
pub async fn open(State(sessions): State<Arc<SessionAcceptor>>, mut request: Request) -> Response {
    let head = head_of(&request);
    match sessions.acceptor.judge(&mut HeadBuffer::default(), &head) {
        HeadVerdict::WebSocket { wire, inflates, response, connect, headers, .. } => {
            let admitted = match sessions.admit(&request, &head) {
                Ok(admitted) => admitted,
                Err(refused) => return sessions.refused(&request, &refused),
            };
            let upgraded = hyper::upgrade::on(&mut request);
            let session = NewSession { wire, inflates, connect, headers, admitted };
            tokio::spawn(adopt(Arc::clone(&sessions), upgraded, session));
            parsed(&response)
        }
        HeadVerdict::Refused(refused) => sessions.refused(&request, &refused),
        // The router's path is the acceptor's, and the head is complete.
        HeadVerdict::Stream { .. } | HeadVerdict::Unfinished | HeadVerdict::HandOver => {
            StatusCode::BAD_REQUEST.into_response()
        }
    }
}

/// The properties of a session that are known when the handshake response is sent.
struct NewSession {
    wire: Wire,
    inflates: bool,
    connect: Option<Vec<u8>>,
    headers: Option<PickedHeaders>,
    admitted: Admitted,
}

impl SessionAcceptor {
    /// Admits the client of a request with this head, or returns the response.
    pub(super) fn admit(&self, request: &Request, head: &[u8]) -> Result<Admitted, Refused> {
        let peer = Peer::of(request).0.map(|peer| peer.ip());
        self.node.admit(peer, head)
    }

    /// The address of the client that sent a request, which a trusted proxy may have forwarded.
    pub(super) fn client_of(&self, request: &Request) -> Option<IpAddr> {
        Peer::of(request).0.map(|peer| self.node.client_of(peer.ip(), &head_of(request)))
    }

    /// Counts and logs a refused request, and returns the response.
    pub(super) fn refused(&self, request: &Request, refused: &Refused) -> Response {
        let (refusal, detail) = match refused.reason {
            RefusalReason::Origin => (HttpRefusal::Origin, "this origin is not allowed; see client.allowed_origins"),
            RefusalReason::SessionLimit
            | RefusalReason::SourceSessions
            | RefusalReason::SourceRate
            | RefusalReason::HandshakeRate
            | RefusalReason::Memory => (HttpRefusal::Admission, "the node admits no more sessions at present"),
            _ => (HttpRefusal::Handshake, "not a valid request for a session"),
        };
        self.counters.count_refusal(refusal);
        events::HttpRefused { reason: refusal, peer: Peer::of(request).0, detail: &detail }.emit();
        parsed(&refused.response)
    }
}

/// Waits until the response is written, and passes the socket to a shard.
async fn adopt(sessions: Arc<SessionAcceptor>, upgraded: OnUpgrade, session: NewSession) {
    let Ok(parts) = upgraded.await.map(Upgraded::downcast::<TokioIo<ReplaySocket>>) else { return };
    let Ok(parts) = parts else { unreachable!("connections are served over this one type") };
    let mut read = parts.read_buf.to_vec();
    let Some((stream, rest)) = parts.io.into_inner().into_parts() else { return };
    read.extend_from_slice(&rest);
    let (stream, tls, plain) = stream.into_parts();
    read.extend_from_slice(&plain);
    if let Ok(stream) = stream.into_std() {
        // An error means that the node is stopping. It closes the socket, and no other response is possible.
        let NewSession { wire, inflates, connect, headers, admitted } = session;
        let adoption =
            Adoption { wire, inflates, response: Vec::new(), request: connect, read, headers, tls, admitted };
        let _ = sessions.node.adopt(stream, adoption).await;
    }
}

/// The request's head as received, except for the case of field names.
pub(super) fn head_of(request: &Request) -> Vec<u8> {
    let version = if request.version() == Version::HTTP_10 { "HTTP/1.0" } else { "HTTP/1.1" };
    let mut head = format!("{} {} {version}\r\n", request.method(), request.uri()).into_bytes();
    for (name, value) in request.headers() {
        let _ = write!(head, "{name}: ");
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"\r\n");
    head
}

/// Parses the text of a response.
fn parsed(text: &[u8]) -> Response {
    let mut fields = [httparse::EMPTY_HEADER; ANSWER_FIELDS_MAX];
    let mut answer = httparse::Response::new(&mut fields);
    let Ok(httparse::Status::Complete(head_len)) = answer.parse(text) else {
        unreachable!("the acceptor writes whole responses");
    };
    let body = text.get(head_len..).unwrap_or_default().to_vec();
    let mut response = Response::new(if body.is_empty() { Body::empty() } else { Body::from(body) });
    *response.status_mut() =
        answer.code.and_then(|code| StatusCode::from_u16(code).ok()).unwrap_or(StatusCode::BAD_REQUEST);
    for field in answer.headers.iter() {
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(field.name.as_bytes()), HeaderValue::from_bytes(field.value))
        {
            response.headers_mut().append(name, value);
        }
    }
    response
}
