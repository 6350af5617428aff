//! `POST /-/backup` on the internal port.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Request, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};

use super::reload::Reload;
use crate::serve::{BackupMaker, BackupOutcome};

/// The path of the endpoint.
pub const PATH: &str = "/-/backup";

/// The state of the endpoint.
#[derive(Clone)]
pub struct BackupEndpoint {
    /// Makes the backup.
    pub maker: Arc<BackupMaker>,
    /// Checks the API key, as for a reload.
    pub reload: Reload,
}

/// Makes a backup, if the request has an API key.
pub(super) async fn answer(State(endpoint): State<BackupEndpoint>, request: Request) -> Response {
    if let Err(refusal) = endpoint.reload.authorize(&request) {
        return refusal;
    }
    // On a separate task, so that the backup is made even if the client disconnects.
    match tokio::spawn(endpoint.maker.make()).await {
        Ok(outcome) => (status_of(&outcome), Json(outcome)).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

const fn status_of(outcome: &BackupOutcome) -> StatusCode {
    match outcome {
        BackupOutcome::Made(_) => StatusCode::OK,
        BackupOutcome::Busy => StatusCode::CONFLICT,
        BackupOutcome::Failed { .. } => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
