//! Traces of requests to the server API.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::StatusCode,
    middleware::Next,
    response::Response,
};

use super::{ApiError, Method};
use crate::otlp::{
    OpenSpan, Parent, RoomOpener, SpanKind, TraceContext, Tracer, current_child, current_opens_room, traced,
};

/// A path whose requests are traced.
#[derive(Clone)]
pub struct TracedRoute {
    /// Opens their spans.
    pub tracer: Arc<Tracer>,
    /// The path, with placeholders.
    pub route: Arc<str>,
}

/// Answers a request in a span, which continues the trace of the caller.
pub async fn trace(State(TracedRoute { tracer, route }): State<TracedRoute>, request: Request, next: Next) -> Response {
    let caller = TraceContext::of_headers(request.headers());
    let parent = caller.as_ref().map_or(Parent::None, Parent::Caller);
    let path = request.uri().path().to_owned();
    let mut span = tracer.open(format!("{} {route}", request.method()), SpanKind::Server, parent);
    span.set("http.request.method", request.method().as_str());
    span.set("http.route", &*route);
    span.set("url.path", &*path);
    let response = traced(&span, next.run(request)).await;
    let status = response.status();
    span.set("http.response.status_code", i64::from(status.as_u16()));
    if status == StatusCode::UNAUTHORIZED {
        // Otherwise those who have no key would fill the queue.
        span.discard();
    } else if status.is_server_error() {
        span.fail(status.canonical_reason().unwrap_or_default());
    }
    response
}

/// A span for one command of the request, if the request is traced.
pub(super) fn command(method: Method) -> Option<OpenSpan> {
    let mut span = current_child(method.name())?;
    span.set("dunlin.api.method", method.name());
    Some(span)
}

/// Ends the span of a command.
pub(super) fn end(span: Option<OpenSpan>, error: Option<&ApiError>) {
    if let (Some(mut span), Some(error)) = (span, error) {
        span.set("dunlin.error.code", i64::from(error.code()));
        span.fail(error.message());
    }
}

/// While it lives, the creation of this room belongs to the request.
pub(super) fn opening(channel: &str) -> Option<RoomOpener> {
    current_opens_room(channel)
}
