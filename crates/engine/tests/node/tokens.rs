//! Tokens in plain text: `user=ann;ttl=60;info={"a":1}`, for subscriptions also `channel=…`, `client=…`, `data=…` and
//! `override={…}`, for both `id=…` and `issued=…` in seconds from now, for connections `meta=…` and `subs={"news":{}}`; `expired`, `invalid`; and `later`, which the test
//! answers.

use bytes::Bytes;
use dunlin_engine::{
    Now,
    event::{ConnectionClaims, SubscriptionClaims, TokenError},
};
use dunlin_protocol::Payload;
use serde_json::Value;

use super::backend;

pub fn connection(token: &str, now: Now) -> Option<Result<ConnectionClaims, TokenError>> {
    let mut claims = ConnectionClaims::default();
    let outcome = read(token, |name, value| match name {
        "user" => value.clone_into(&mut claims.user),
        "info" => claims.info = Some(payload(value)),
        "ttl" => claims.expires_at_ms = Some(expiry(value, now)),
        "id" => claims.token.id = value.into(),
        "issued" => claims.token.issued_at_ms = Some(expiry(value, now)),
        "meta" => claims.meta = Some(payload(value)),
        "subs" => {
            let subs: Value = serde_json::from_str(value).expect("JSON");
            let subs = subs.as_object().expect("an object").iter();
            claims.subscriptions = subs.map(|(name, fields)| backend::subscription(name, fields, now)).collect();
        }
        other => panic!("no claim {other} of a connection"),
    })?;
    Some(outcome.map(|()| claims))
}

pub fn subscription(token: &str, now: Now) -> Option<Result<SubscriptionClaims, TokenError>> {
    let mut claims = SubscriptionClaims::default();
    let outcome = read(token, |name, value| match name {
        "user" => value.clone_into(&mut claims.user),
        "channel" => value.clone_into(&mut claims.channel),
        "client" => value.clone_into(&mut claims.client),
        "id" => claims.token.id = value.into(),
        "issued" => claims.token.issued_at_ms = Some(expiry(value, now)),
        "info" => claims.grant.info = Some(payload(value)),
        "data" => claims.grant.data = Some(payload(value)),
        "ttl" => claims.grant.expires_at_ms = Some(expiry(value, now)),
        "override" => claims.grant.overrides = backend::overrides(&serde_json::from_str(value).expect("JSON")),
        other => panic!("no claim {other} of a subscription"),
    })?;
    Some(outcome.map(|()| claims))
}

fn read(token: &str, mut claim: impl FnMut(&str, &str)) -> Option<Result<(), TokenError>> {
    match token {
        "later" => return None,
        "expired" => return Some(Err(TokenError::Expired)),
        "invalid" => return Some(Err(TokenError::Invalid)),
        claims => {
            for (name, value) in claims.split(';').filter_map(|part| part.split_once('=')) {
                claim(name, value);
            }
        }
    }
    Some(Ok(()))
}

fn payload(text: &str) -> Payload {
    Payload::from_opaque(Bytes::copy_from_slice(text.as_bytes()))
}

pub fn expiry(ttl_s: &str, now: Now) -> u64 {
    let lifetime_ms = (ttl_s.parse::<f64>().expect("seconds") * 1_000.0) as i64;
    now.unix_ms.checked_add_signed(lifetime_ms).expect("a time after 1970")
}
