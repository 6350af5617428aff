//! A session whose transport is an HTTP response, asked for on a connection that has carried HTTP before, as browsers and
//! proxies keep them open to us. The request is judged by the same rules as on a shard, and the connection goes to one.

use std::sync::{Arc, Mutex, PoisonError};

use axum::{
    body::Body,
    extract::{Request, State},
    http::{HeaderValue, Method, StatusCode, header},
    response::{IntoResponse, Response},
};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use tokio::sync::Notify;

use super::{SessionDoor, upgrade};
use crate::{
    net::{HeadBuffer, Verdict},
    node::Adoption,
};

/// Where a service says that a connection is to become a session.
#[derive(Clone, Default)]
pub struct TakeOver(Arc<Wanted>);

#[derive(Default)]
struct Wanted {
    adoption: Mutex<Option<(Arc<SessionDoor>, Adoption)>>,
    told: Notify,
}

impl TakeOver {
    /// Asks for the connection. There is no answer after that.
    fn ask(&self, sessions: Arc<SessionDoor>, adoption: Adoption) {
        *self.0.adoption.lock().unwrap_or_else(PoisonError::into_inner) = Some((sessions, adoption));
        self.0.told.notify_one();
    }

    /// Waits until the connection is asked for.
    pub async fn asked(&self) -> (Arc<SessionDoor>, Adoption) {
        loop {
            let asked = self.0.adoption.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(asked) = asked {
                return asked;
            }
            self.0.told.notified().await;
        }
    }
}

/// Answers a request for the path of a transport over HTTP.
pub async fn open(State(sessions): State<Arc<SessionDoor>>, request: Request) -> Response {
    if request.method() == Method::OPTIONS {
        return preflight(&sessions, &request);
    }
    let head = upgrade::head_of(&request);
    let (wire, response, body, headers) = match sessions.door.judge(&mut HeadBuffer::default(), &head) {
        Verdict::Stream { wire, response, body, headers, .. } => (wire, response, body, headers),
        Verdict::Refused(refused) => return sessions.refused(&request, &refused),
        // The router's paths are the door's, and the head is whole.
        Verdict::WebSocket { .. } | Verdict::Unfinished | Verdict::HandOver => {
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
    // Whoever serves the connection drops this.
    std::future::pending().await
}

/// The whole body, or the status that says why not.
pub(super) async fn read_body(body: Body, bytes_max: usize) -> Result<Vec<u8>, StatusCode> {
    match Limited::new(body, bytes_max).collect().await {
        Ok(collected) => Ok(collected.to_bytes().into()),
        Err(error) if error.is::<LengthLimitError>() => Err(StatusCode::PAYLOAD_TOO_LARGE),
        Err(_) => Err(StatusCode::BAD_REQUEST),
    }
}

/// What a page of another origin is told before it sends a request.
pub(super) fn preflight(sessions: &SessionDoor, request: &Request) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let fields = response.headers_mut();
    fields.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("300"));
    fields.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, OPTIONS"));
    if !sessions.allow_origin(request, &mut response) {
        return StatusCode::FORBIDDEN.into_response();
    }
    response
}

impl SessionDoor {
    /// Lets pages of the request's origin read `response`. Returns whether they may; where there is no origin, there is
    /// nothing to allow.
    pub(super) fn allow_origin(&self, request: &Request, response: &mut Response) -> bool {
        let mut origins = request.headers().get_all(header::ORIGIN).iter();
        let (Some(origin), None) = (origins.next(), origins.next()) else {
            return !request.headers().contains_key(header::ORIGIN);
        };
        let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        if !origin.to_str().is_ok_and(|origin| (self.door.origins)(Some(origin), host)) {
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
