//! `POST /-/reload` on the internal port.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Request, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};

use super::{
    Peer,
    authorization::{Unauthorized, authorize},
};
use crate::{
    serve::{Reloaded, Reloader},
    telemetry::{api_counters::ControlCounters, events},
};

/// The path of the endpoint.
pub const PATH: &str = "/-/reload";

/// The request that applies also what a reload otherwise refuses to take away.
pub const FORCED_PATH: &str = "/-/reload?force=true";

/// The state of the endpoint.
#[derive(Clone)]
pub struct Reload {
    /// Reloads the configuration.
    pub reloader: Arc<Reloader>,
    /// Counts refused requests.
    pub counters: Arc<ControlCounters>,
}

impl Reload {
    /// Checks the API key of a request; otherwise returns the response.
    #[allow(clippy::result_large_err, reason = "a response is sent at once")]
    pub(super) fn authorize(&self, request: &Request) -> Result<(), Response> {
        let checked = authorize(&self.reloader.access(), request.headers(), request.uri());
        let Err(why) = checked else { return Ok(()) };
        let reason = why.reason();
        self.counters.count_refusal(reason);
        events::HttpRefused { reason, peer: Peer::of(request).0, detail: &why.detail() }.emit();
        Err(match why {
            Unauthorized::Key => StatusCode::UNAUTHORIZED.into_response(),
            Unauthorized::OtherSite => {
                (StatusCode::FORBIDDEN, format!("Forbidden: {}\n", why.detail())).into_response()
            }
        })
    }
}

/// Whether the request asks to apply a configuration that takes away all of something: `?force=true`.
///
/// # Errors
/// The value is neither `true` nor `false`.
#[allow(clippy::result_large_err, reason = "a response is sent at once")]
fn is_forced(query: Option<&str>) -> Result<bool, Response> {
    let mut forces = query.unwrap_or_default().split('&').filter_map(|pair| match pair.split_once('=') {
        Some(("force", value)) => Some(value),
        _ => (pair == "force").then_some(""),
    });
    match forces.next() {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(_) => Err((StatusCode::BAD_REQUEST, "`force` is true or false\n").into_response()),
    }
}

/// Reloads the configuration, if the request has an API key.
pub(super) async fn answer(State(reload): State<Reload>, request: Request) -> Response {
    if let Err(refusal) = reload.authorize(&request) {
        return refusal;
    }
    let is_forced = match is_forced(request.uri().query()) {
        Ok(is_forced) => is_forced,
        Err(refusal) => return refusal,
    };
    let reloader = Arc::clone(&reload.reloader);
    // On a separate task, so that a client that disconnects does not leave a half-applied configuration.
    match tokio::spawn(async move { reloader.reload(is_forced).await }).await {
        Ok(outcome @ Reloaded::Applied { .. }) => Json(outcome).into_response(),
        Ok(outcome) => (StatusCode::UNPROCESSABLE_ENTITY, Json(outcome)).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
