//! The endpoint with which clients and load balancers test the connection before they open a session.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::{HeaderValue, Method, StatusCode, header},
    response::{IntoResponse, Response},
};

use super::{SessionAcceptor, stream::preflight};

/// The state of the endpoint.
#[derive(Clone)]
pub struct Init {
    /// `init.handler_prefix`.
    pub path: String,
    /// The allowed origins are those of the sessions.
    pub sessions: Arc<SessionAcceptor>,
}

/// Handles one request.
pub(super) async fn answer(State(sessions): State<Arc<SessionAcceptor>>, request: Request) -> Response {
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
