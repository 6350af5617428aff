//! A streaming session on a kept-alive connection of the HTTP server, as browsers and proxies use them. The request
//! must pass the same checks as on a shard, and the connection moves to a shard.

use std::sync::{Arc, Mutex, PoisonError};

use axum::{
    body::Body,
    extract::{Request, State},
    http::{HeaderValue, Method, StatusCode, header},
    response::{IntoResponse, Response},
};
use dunlin_net::{HeadBuffer, HeadVerdict};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use tokio::sync::Notify;

use super::{SessionAcceptor, upgrade_behind_proxy};
use crate::node::Adoption;

/// Where a service requests that a connection becomes a session.
#[derive(Clone, Default)]
pub struct TakeOver(Arc<Wanted>);

#[derive(Default)]
struct Wanted {
    adoption: Mutex<Option<(Arc<SessionAcceptor>, Adoption)>>,
    notify: Notify,
}

impl TakeOver {
    /// Requests the connection. The caller sends no response.
    fn ask(&self, sessions: Arc<SessionAcceptor>, adoption: Adoption) {
        *self.0.adoption.lock().unwrap_or_else(PoisonError::into_inner) = Some((sessions, adoption));
        self.0.notify.notify_one();
    }

    /// Waits until a session is requested for the connection.
    pub async fn requested(&self) -> (Arc<SessionAcceptor>, Adoption) {
        loop {
            let asked = self.0.adoption.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(asked) = asked {
                return asked;
            }
            self.0.notify.notified().await;
        }
    }
}

/// Handles a request for the path of a streaming transport.
pub async fn open(State(sessions): State<Arc<SessionAcceptor>>, request: Request) -> Response {
    if request.method() == Method::OPTIONS {
        return preflight(&sessions, &request);
    }
    let head = upgrade_behind_proxy::head_of(&request);
    let (wire, response, body, headers) = match sessions.acceptor.judge(&mut HeadBuffer::default(), &head) {
        HeadVerdict::Stream { wire, response, body, headers, .. } => (wire, response, body, headers),
        HeadVerdict::Refused(refused) => return sessions.refused(&request, &refused),
        // The router's paths are those of the acceptor, and the head is complete.
        HeadVerdict::WebSocket { .. } | HeadVerdict::Unfinished | HeadVerdict::HandOver => {
            return StatusCode::BAD_REQUEST.into_response();
        }
    };
    let Some(take_over) = request.extensions().get::<TakeOver>().cloned() else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let admitted = match sessions.admit(&request, &head) {
        Ok(admitted) => admitted,
        Err(refused) => return sessions.refused(&request, &refused),
    };
    let request = if body.is_whole() {
        body.into_bytes()
    } else {
        let coming = read_body(request.into_body(), body.bytes_max());
        match tokio::time::timeout(sessions.body_timeout, coming).await {
            Ok(Ok(bytes)) => bytes,
            Ok(Err(status)) => return status.into_response(),
            Err(_) => return StatusCode::REQUEST_TIMEOUT.into_response(),
        }
    };
    let request = Some(request);
    let adoption =
        Adoption { wire, inflates: false, response, request, read: Vec::new(), headers, tls: None, admitted };
    take_over.ask(sessions, adoption);
    // The task that serves the connection drops this future.
    std::future::pending().await
}

/// Reads the whole body, or returns the status for the error.
pub(super) async fn read_body(body: Body, bytes_max: usize) -> Result<Vec<u8>, StatusCode> {
    match Limited::new(body, bytes_max).collect().await {
        Ok(collected) => Ok(collected.to_bytes().into()),
        Err(error) if error.is::<LengthLimitError>() => Err(StatusCode::PAYLOAD_TOO_LARGE),
        Err(_) => Err(StatusCode::BAD_REQUEST),
    }
}

/// The response to a preflight request of a page from another origin.
pub(super) fn preflight(sessions: &SessionAcceptor, request: &Request) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let fields = response.headers_mut();
    fields.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("300"));
    fields.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, OPTIONS"));
    if !sessions.allow_origin(request, &mut response) {
        return StatusCode::FORBIDDEN.into_response();
    }
    response
}

impl SessionAcceptor {
    /// Allows pages of the request's origin to read `response`. Returns whether they may. A request without an origin
    /// needs no permission.
    pub(super) fn allow_origin(&self, request: &Request, response: &mut Response) -> bool {
        let mut origins = request.headers().get_all(header::ORIGIN).iter();
        let (Some(origin), None) = (origins.next(), origins.next()) else {
            return !request.headers().contains_key(header::ORIGIN);
        };
        let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        if !origin.to_str().is_ok_and(|origin| (self.acceptor.origins)(Some(origin), host)) {
            return false;
        }
        let fields = response.headers_mut();
        fields.insert(header::VARY, HeaderValue::from_static("Origin"));
        fields.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        fields.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
        if let Some(wanted) = request.headers().get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
            fields.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, wanted.clone());
        }
        true
    }
}
