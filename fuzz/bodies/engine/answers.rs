//! Results from other threads: verified tokens and backend responses.

use bytes::Bytes;
use dunlin_engine::{
    backend::{
        ConnectResponse, Overrides, ProxyError, ProxyRequestKind, ProxyResponse, ProxyResult, PublishHow,
        PublishResponse, RefreshResponse,
    },
    event::{ConnectionClaims, ServerSubscription, SubscriptionClaims, SubscriptionGrant, TokenError, TokenIdentity},
};
use dunlin_protocol::{Disconnect, Payload, Tags};

use super::{Script, USERS, options::CHANNELS};

pub(super) fn connection_claims(script: &mut Script<'_>, now_ms: u64) -> Result<ConnectionClaims, TokenError> {
    fault(script)?;
    let user = script.pick(&USERS).to_owned();
    let (info, expires_at_ms, subscriptions) = (info(script), expiry(script, now_ms), subscriptions(script, now_ms));
    Ok(ConnectionClaims {
        user,
        info: info.clone(),
        expires_at_ms,
        meta: info,
        subscriptions,
        token: TokenIdentity::default(),
    })
}

pub(super) fn subscription_claims(script: &mut Script<'_>, now_ms: u64) -> Result<SubscriptionClaims, TokenError> {
    fault(script)?;
    Ok(SubscriptionClaims {
        user: script.pick(&USERS).to_owned(),
        channel: script.pick(&CHANNELS).to_owned(),
        client: String::new(),
        grant: SubscriptionGrant {
            info: info(script),
            data: info(script),
            expires_at_ms: expiry(script, now_ms),
            overrides: overrides(script),
        },
        token: TokenIdentity::default(),
    })
}

/// A backend's answer to a question.
pub(super) fn outcome(script: &mut Script<'_>, ask: ProxyRequestKind, now_ms: u64) -> ProxyResult {
    let how = script.next();
    match how % 16 {
        0 => return Err(ProxyError::Failed),
        1 => return Err(ProxyError::Busy),
        2 => return Err(ProxyError::Error { code: 1_000, message: "no".into(), temporary: how >= 128 }),
        3 => return Err(ProxyError::Disconnect(Disconnect::FORCE_NO_RECONNECT)),
        _ => {}
    }
    Ok(match ask {
        ProxyRequestKind::Connect { .. } => ProxyResponse::Connect(Box::new(ConnectResponse {
            user: script.pick(&USERS).to_owned(),
            expires_at_ms: expiry(script, now_ms),
            info: info(script),
            data: info(script),
            meta: info(script),
            subscriptions: subscriptions(script, now_ms),
        })),
        ProxyRequestKind::Refresh => ProxyResponse::Refresh(refreshed(script, now_ms)),
        ProxyRequestKind::SubRefresh { .. } => ProxyResponse::SubRefresh(refreshed(script, now_ms)),
        ProxyRequestKind::Subscribe { .. } => ProxyResponse::Subscribe(Box::new(SubscriptionGrant {
            expires_at_ms: expiry(script, now_ms),
            info: info(script),
            data: info(script),
            overrides: overrides(script),
        })),
        ProxyRequestKind::Publish { .. } => {
            ProxyResponse::Publish(Box::new(PublishResponse { data: info(script), how: publish(script) }))
        }
        ProxyRequestKind::Rpc { data, .. } => ProxyResponse::Rpc { data },
        ProxyRequestKind::RoomCall { data, .. } => ProxyResponse::Rpc { data: Some(data) },
    })
}

/// How something is published.
pub(super) fn publish(script: &mut Script<'_>) -> PublishHow {
    let how = script.next();
    let tags: Tags = vec![("k".into(), script.next().to_string().into())];
    PublishHow {
        tags: if how & 1 == 0 { Tags::new() } else { tags },
        skip_history: how & 2 != 0,
        idempotency_key: (how & 4 != 0).then(|| (how % 32).to_string().into()),
        delta: how & 8 != 0,
        version: if how & 16 == 0 { 0 } else { u64::from(how / 32) },
        version_epoch: if how >= 128 { "e".into() } else { Box::default() },
    }
}

pub(super) fn server_subscription(script: &mut Script<'_>, now_ms: u64) -> ServerSubscription {
    let recover_since = match script.next() {
        offset @ 192.. => Some((u64::from(offset - 192), Box::default())),
        _ => None,
    };
    ServerSubscription {
        channel: script.pick(&CHANNELS).into(),
        grant: SubscriptionGrant {
            info: info(script),
            data: info(script),
            expires_at_ms: expiry(script, now_ms),
            overrides: overrides(script),
        },
        recover_since,
        from_token: false,
    }
}

pub(super) fn info(script: &mut Script<'_>) -> Option<Payload> {
    match script.next() {
        0..192 => None,
        192..240 => Some(Payload::from_json(Bytes::from_static(b"{\"n\":1}"))),
        _ => Some(Payload::from_opaque(Bytes::from_static(b"\xff, no JSON"))),
    }
}

/// In the past, at once, or in a minute.
pub(super) fn expiry(script: &mut Script<'_>, now_ms: u64) -> Option<u64> {
    script.next().checked_sub(160).map(|after| now_ms + u64::from(after) * 500 - 1_000)
}

fn subscriptions(script: &mut Script<'_>, now_ms: u64) -> Vec<ServerSubscription> {
    let count = script.next().saturating_sub(192) / 16;
    (0..count).map(|_| server_subscription(script, now_ms)).collect()
}

fn overrides(script: &mut Script<'_>) -> Overrides {
    let how = script.next();
    let value = |bit: u8| (how & 32 != 0 && how & bit != 0).then_some(how & 64 != 0);
    Overrides {
        presence: value(1),
        join_leave: value(2),
        force_push_join_leave: value(4),
        force_positioning: value(8),
        force_recovery: value(16),
    }
}

fn refreshed(script: &mut Script<'_>, now_ms: u64) -> RefreshResponse {
    let (expires_at_ms, info) = (expiry(script, now_ms), info(script));
    RefreshResponse { expired: script.next() >= 192, expires_at_ms, info: info.clone(), meta: info }
}

fn fault(script: &mut Script<'_>) -> Result<(), TokenError> {
    match script.next() % 8 {
        0 => Err(TokenError::Expired),
        1 => Err(TokenError::Invalid),
        2 => Err(TokenError::Unavailable),
        _ => Ok(()),
    }
}
