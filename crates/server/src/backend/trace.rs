//! Traces of requests to backends.

use std::sync::Arc;

use dunlin_engine::backend::{ProxyRequest, ProxyRequestKind};
use dunlin_net::PickedField;

use super::{CallOutcome, ProxyKind};
use crate::otlp::{OpenSpan, Parent, SpanKind, TraceContext, Tracer};

/// Opens the span of a request. It continues the trace of the client's own request, if that has one.
pub(super) fn open(
    tracer: &Arc<Tracer>,
    proxy: &str,
    request: &ProxyRequest,
    picked: Option<&[PickedField]>,
) -> OpenSpan {
    let client = picked.and_then(TraceContext::of_picked);
    let kind = ProxyKind::of(&request.kind).name();
    let parent = client.as_ref().map_or(Parent::None, Parent::Client);
    let mut span = tracer.open(format!("backend {kind}"), SpanKind::Client, parent);
    span.set("http.request.method", "POST");
    span.set("dunlin.proxy", proxy);
    span.set("dunlin.kind", kind);
    match &request.kind {
        ProxyRequestKind::Subscribe { channel, .. }
        | ProxyRequestKind::Publish { channel, .. }
        | ProxyRequestKind::SubRefresh { channel }
        | ProxyRequestKind::RoomCall { channel, .. } => span.set("dunlin.channel", &**channel),
        ProxyRequestKind::Rpc { method, .. } => span.set("dunlin.method", &**method),
        ProxyRequestKind::Connect { .. } | ProxyRequestKind::Refresh => {}
    }
    span
}

/// Ends the span of a request.
pub(super) fn end(span: Option<OpenSpan>, outcome: CallOutcome) {
    let Some(mut span) = span else { return };
    span.set("dunlin.outcome", outcome.name());
    if !matches!(outcome, CallOutcome::Result | CallOutcome::Error | CallOutcome::Disconnect) {
        span.fail(outcome.name());
    }
}
