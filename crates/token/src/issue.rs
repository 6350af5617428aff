//! Issues tokens for development: `dunlin gen-token`, `dunlin gen-sub-token`.

use serde_json::{Map, Value, json};

use super::{
    Secret,
    rules::{Rule, Rules},
    signature::HmacKey,
};

/// The claims of a new token.
#[derive(Clone, Debug)]
pub struct Grant<'g> {
    /// User id; empty for an anonymous user.
    pub user: &'g str,
    /// Unix time in seconds at which the token expires; `None` for never.
    pub expires_at_s: Option<u64>,
    /// Unix time in seconds at which the token is issued.
    pub issued_at_s: u64,
    /// The channel of a subscription token; `None` for a connection token.
    pub channel: Option<&'g str>,
    /// Requirements on issuer, audience and the user claim.
    pub rules: &'g Rules,
}

/// A token with these claims, signed with HS256.
///
/// # Errors
/// The configuration key of a rule that no generated token can satisfy, and the reason.
pub fn issue(grant: &Grant<'_>, secret: &Secret) -> Result<String, &'static str> {
    let mut claims = Map::new();
    let user_claim = grant.rules.user_claim.as_deref().unwrap_or("sub");
    claims.insert(user_claim.to_owned(), json!(grant.user));
    claims.insert("iat".to_owned(), json!(grant.issued_at_s));
    if let Some(expires_at_s) = grant.expires_at_s {
        claims.insert("exp".to_owned(), json!(expires_at_s));
    }
    if let Some(channel) = grant.channel {
        claims.insert("channel".to_owned(), json!(channel));
    }
    for (name, rule, why) in [
        ("iss", &grant.rules.issuer, "issuer_regex is set, and it can't be guessed what matches it"),
        ("aud", &grant.rules.audience, "audience_regex is set, and it can't be guessed what matches it"),
    ] {
        match rule {
            None => {}
            Some(Rule::Exactly(text)) => drop(claims.insert(name.to_owned(), json!(text))),
            Some(Rule::Matches(_)) => return Err(why),
        }
    }
    Ok(issue_claims(Value::Object(claims).to_string().as_bytes(), secret))
}

/// A token with arbitrary bytes as claims, signed with HS256.
pub fn issue_claims(claims: &[u8], secret: &Secret) -> String {
    HmacKey::new(secret.reveal()).sign(claims)
}
