//! `POST /-/configuration` on the internal port.

use axum::{
    Json,
    extract::{Request, State},
    response::{IntoResponse, Response},
};

use super::reload::Reload;

/// The path of the endpoint.
pub const PATH: &str = "/-/configuration";

/// Returns the configuration as it holds, without secrets, if the request has an API key.
pub(super) async fn answer(State(reload): State<Reload>, request: Request) -> Response {
    match reload.authorize(&request) {
        Ok(()) => Json(reload.reloader.shown().await).into_response(),
        Err(refusal) => refusal,
    }
}
