//! Paths of the arena's players for its page, which has no API key: `GET /arena/paths`. The page can request only the
//! demo's room, and only the last minutes.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use axum::{
    extract::{Query, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::Semaphore;

use crate::{
    http::api::{PathsWanted, read_paths},
    node::Node,
};

/// The demo's room.
const ROOM: &str = "arena:hunt";

/// The path of the endpoint.
pub const PATH: &str = "/arena/paths";

/// Maximum age of the requested points.
const PAST_MAX: Duration = Duration::from_mins(10);

/// Minimum time between two points of a player.
const INTERVAL_MS_MIN: u64 = 100;

/// Maximum number of points in a response. The page requests more with the cursor.
const POINTS_MAX: u32 = 20_000;

/// Maximum number of concurrent requests.
const REQUESTS_MAX: usize = 4;

/// The state of the endpoint.
pub struct ArenaPaths {
    node: Node,
    permits: Semaphore,
}

/// The query of a request.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct ArenaQuery {
    from_ms: u64,
    interval_ms: u64,
    avatar: Option<u32>,
    cursor: String,
}

impl ArenaPaths {
    /// Paths that the rooms of `node` have stored.
    pub fn new(node: Node) -> Self {
        Self { node, permits: Semaphore::new(REQUESTS_MAX) }
    }
}

/// Handles a request.
pub async fn answer(State(paths): State<Arc<ArenaPaths>>, Query(query): Query<ArenaQuery>) -> Response {
    let Ok(_permit) = paths.permits.try_acquire() else {
        return respond(StatusCode::SERVICE_UNAVAILABLE, json!({ "message": "too many requests" }).to_string());
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let earliest_ms = u64::try_from(now.saturating_sub(PAST_MAX).as_millis()).unwrap_or(0);
    let wanted = PathsWanted::of_avatar(ROOM.into(), query.avatar, query.from_ms.max(earliest_ms), &query.cursor);
    let wanted = wanted.map(|wanted| PathsWanted {
        points_max: POINTS_MAX,
        interval_ms: query.interval_ms.max(INTERVAL_MS_MIN),
        ..wanted
    });
    let outcome = match wanted {
        Ok(wanted) => read_paths(&paths.node, wanted).await,
        Err(error) => Err(error),
    };
    match outcome {
        Ok(result) => respond(StatusCode::OK, result.get().to_owned()),
        Err(error) => {
            let status = StatusCode::from_u16(error.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            respond(status, serde_json::to_string(&error).unwrap_or_default())
        }
    }
}

fn respond(status: StatusCode, body: String) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")], body).into_response()
}
