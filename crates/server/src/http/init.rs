//! The endpoint for clients and balancers that want to know whether they get through, before they open a session.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::{HeaderValue, Method, StatusCode, header},
    response::{IntoResponse, Response},
};

use super::{SessionDoor, stream::preflight};

/// What serves these requests.
#[derive(Clone)]
pub struct Init {
    /// The path.
    pub path: String,
    /// Where sessions come in: pages of the same origins may ask.
    pub sessions: Arc<SessionDoor>,
}

/// Answers one request.
pub(super) async fn answer(State(sessions): State<Arc<SessionDoor>>, request: Request) -> Response {
    match *request.method() {
        Method::OPTIONS => return preflight(&sessions, &request),
        Method::GET => {}
        _ => return (StatusCode::METHOD_NOT_ALLOWED, [(header::ALLOW, "GET, OPTIONS")]).into_response(),
    }
    let mut response = "{}".into_response();
    if !sessions.allow_origin(&request, &mut response) {
        return StatusCode::FORBIDDEN.into_response();
    }
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
