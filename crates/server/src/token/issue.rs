//! Tokens of our own making, for development: `dunlin gen-token`.

use serde::Serialize;

use super::key::Key;
use crate::config::Secret;

/// What a token is to say.
#[derive(Clone, Debug, Serialize)]
pub struct Grant<'g> {
    /// The user's id; empty for the anonymous user.
    #[serde(rename = "sub")]
    pub user: &'g str,
    /// Unix time in seconds at which it expires; `None` for never.
    #[serde(rename = "exp", skip_serializing_if = "Option::is_none")]
    pub expires_at_s: Option<u64>,
    /// Unix time in seconds at which it is made.
    #[serde(rename = "iat")]
    pub issued_at_s: u64,
    /// The channel of a subscription token; `None` for a connection token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<&'g str>,
}

/// The token that says so, signed with HS256.
pub fn issue(grant: &Grant<'_>, secret: &Secret) -> String {
    let claims = serde_json::to_vec(grant).unwrap_or_else(|error| unreachable!("text and numbers are JSON: {error}"));
    issue_claims(&claims, secret)
}

/// The token of any bytes, signed with HS256.
pub(crate) fn issue_claims(claims: &[u8], secret: &Secret) -> String {
    Key::new(secret.reveal()).sign(claims)
}
