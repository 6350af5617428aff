//! Tokens for visitors of the demo: `GET /lobby/guest`. Each token has a unique user id, which matchmaking needs.
//! Enabled only by `demo.guests`.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use axum::{
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use dunlin_token::{Grant, Rules, Secret, issue};
use serde_json::json;

/// The path of the endpoint.
pub const PATH: &str = "/lobby/guest";

/// Lifetime of a token.
const LIFETIME: Duration = Duration::from_hours(24);

/// Issues the tokens.
pub struct GuestTokens {
    secret: Secret,
    rules: Rules,
}

impl GuestTokens {
    /// Creates an issuer that signs with the key of connection tokens.
    pub fn new(secret: Secret, rules: Rules) -> Self {
        Self { secret, rules }
    }

    fn issue(&self) -> Option<String> {
        let mut id = [0; 16];
        getrandom::fill(&mut id).ok()?;
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let grant = Grant {
            user: &format!("guest-{:032x}", u128::from_le_bytes(id)),
            expires_at_s: Some(now_s + LIFETIME.as_secs()),
            issued_at_s: now_s,
            channel: None,
            rules: &self.rules,
        };
        issue(&grant, &self.secret).ok()
    }
}

/// Handles a request.
pub async fn answer(State(guests): State<Arc<GuestTokens>>) -> Response {
    let Some(token) = guests.issue() else { return StatusCode::SERVICE_UNAVAILABLE.into_response() };
    let fields = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")];
    (fields, json!({ "token": token }).to_string()).into_response()
}
