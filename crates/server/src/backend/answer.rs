//! Parses a backend's response: the JSON of Centrifugo's proxies.

use std::{borrow::Cow, collections::BTreeMap};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use dunlin_engine::{
    backend::{
        ConnectResponse, Overrides, ProxyError, ProxyResponse, ProxyResult, PublishHow, PublishResponse,
        RefreshResponse,
    },
    event::{ServerSubscription, SubscriptionGrant},
};
use dunlin_protocol::{Disconnect, Payload};
use dunlin_token::UnixTime;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{CallOutcome, ProxyKind};
use crate::json_members::{OnlyObject, Text, empty_if_null};

/// The response does not have the documented format.
#[derive(Debug)]
struct NotOurs;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Envelope<'a> {
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    error: Option<OnlyObject<ErrorBody>>,
    disconnect: Option<OnlyObject<DisconnectBody>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ErrorBody {
    #[serde(deserialize_with = "empty_if_null")]
    code: u32,
    #[serde(deserialize_with = "empty_if_null")]
    message: Box<str>,
    #[serde(deserialize_with = "empty_if_null")]
    temporary: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct DisconnectBody {
    #[serde(deserialize_with = "empty_if_null")]
    code: u32,
    #[serde(deserialize_with = "empty_if_null")]
    reason: String,
}

/// The fields of all kinds of results; each kind uses some of them.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ResultBody<'a> {
    #[serde(deserialize_with = "empty_if_null")]
    user: String,
    #[serde(deserialize_with = "empty_if_null")]
    expired: bool,
    #[serde(deserialize_with = "empty_if_null")]
    expire_at: UnixTime,
    #[serde(borrow)]
    info: Option<&'a RawValue>,
    #[serde(deserialize_with = "empty_if_null")]
    b64info: String,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    #[serde(deserialize_with = "empty_if_null")]
    b64data: String,
    #[serde(borrow)]
    meta: Option<&'a RawValue>,
    #[serde(deserialize_with = "empty_if_null")]
    channels: Vec<Text>,
    #[serde(borrow)]
    subs: Option<BTreeMap<Box<str>, Option<OnlyObject<SubscriptionBody<'a>>>>>,
    #[serde(rename = "override")]
    overrides: Option<OnlyObject<OverrideBody>>,
    #[serde(deserialize_with = "empty_if_null")]
    skip_history: bool,
    #[serde(deserialize_with = "empty_if_null")]
    tags: BTreeMap<Box<str>, Text>,
    #[serde(deserialize_with = "empty_if_null")]
    idempotency_key: Box<str>,
    #[serde(deserialize_with = "empty_if_null")]
    delta: bool,
    #[serde(deserialize_with = "empty_if_null")]
    version: u64,
    #[serde(deserialize_with = "empty_if_null")]
    version_epoch: Box<str>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SubscriptionBody<'a> {
    #[serde(deserialize_with = "empty_if_null")]
    expire_at: UnixTime,
    #[serde(borrow)]
    info: Option<&'a RawValue>,
    #[serde(deserialize_with = "empty_if_null")]
    b64info: String,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    #[serde(deserialize_with = "empty_if_null")]
    b64data: String,
    #[serde(rename = "override")]
    overrides: Option<OnlyObject<OverrideBody>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct OverrideBody {
    presence: Option<OnlyObject<BoolBody>>,
    join_leave: Option<OnlyObject<BoolBody>>,
    force_push_join_leave: Option<OnlyObject<BoolBody>>,
    force_positioning: Option<OnlyObject<BoolBody>>,
    force_recovery: Option<OnlyObject<BoolBody>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct BoolBody {
    #[serde(deserialize_with = "empty_if_null")]
    value: bool,
}

/// Parses the body of a response with status 200 to a request of this kind.
pub fn read(kind: ProxyKind, body: &[u8]) -> (ProxyResult, CallOutcome) {
    let Ok(OnlyObject(envelope)) = serde_json::from_slice::<OnlyObject<Envelope<'_>>>(body) else {
        return (Err(ProxyError::Failed), CallOutcome::NotOurs);
    };
    // Centrifugo checks the fields in this order.
    if let Some(OnlyObject(DisconnectBody { code, reason })) = envelope.disconnect {
        return disconnect(code, reason);
    }
    if let Some(OnlyObject(ErrorBody { code, message, temporary })) = envelope.error {
        return error(code, message, temporary);
    }
    match result(kind, envelope.result) {
        Ok(outcome) => (outcome, CallOutcome::Result),
        Err(NotOurs) => (Err(ProxyError::Failed), CallOutcome::NotOurs),
    }
}

/// An invalid disconnect code is an error of the backend.
pub(super) fn disconnect(code: u32, reason: String) -> (ProxyResult, CallOutcome) {
    match Disconnect::code_for_applications(code) {
        Some(code) => {
            let reason = Cow::Owned(reason);
            (Err(ProxyError::Disconnect(Disconnect { code, reason })), CallOutcome::Disconnect)
        }
        None => (Err(ProxyError::Failed), CallOutcome::NotOurs),
    }
}

/// An invalid error code is an error of the backend.
pub(super) fn error(code: u32, message: Box<str>, temporary: bool) -> (ProxyResult, CallOutcome) {
    match u16::try_from(code) {
        Ok(code @ 100..=1_999) => (Err(ProxyError::Error { code, message, temporary }), CallOutcome::Error),
        _ => (Err(ProxyError::Failed), CallOutcome::NotOurs),
    }
}

fn result(kind: ProxyKind, raw: Option<&RawValue>) -> Result<ProxyResult, NotOurs> {
    let Some(raw) = raw else { return Ok(without_result(kind)) };
    let OnlyObject(body): OnlyObject<ResultBody<'_>> = serde_json::from_str(raw.get()).map_err(|_| NotOurs)?;
    let info = payload(body.info, &body.b64info)?;
    let expires_at_ms = body.expire_at.expiry_ms();
    Ok(Ok(match kind {
        ProxyKind::Connect => ProxyResponse::Connect(Box::new(ConnectResponse {
            user: body.user,
            expires_at_ms,
            info,
            data: payload(body.data, &body.b64data)?,
            meta: json(body.meta),
            subscriptions: subscriptions(body.channels, body.subs.unwrap_or_default())?,
        })),
        ProxyKind::Refresh => ProxyResponse::Refresh(RefreshResponse {
            expired: body.expired,
            expires_at_ms,
            info,
            meta: json(body.meta),
        }),
        ProxyKind::SubRefresh => {
            ProxyResponse::SubRefresh(RefreshResponse { expired: body.expired, expires_at_ms, info, meta: None })
        }
        ProxyKind::Subscribe => ProxyResponse::Subscribe(Box::new(SubscriptionGrant {
            expires_at_ms,
            info,
            data: payload(body.data, &body.b64data)?,
            overrides: overrides(body.overrides),
        })),
        ProxyKind::Publish => ProxyResponse::Publish(Box::new(PublishResponse {
            data: payload(body.data, &body.b64data)?,
            how: PublishHow {
                tags: body.tags.into_iter().map(|(name, value)| (name, value.0.into())).collect(),
                skip_history: body.skip_history,
                idempotency_key: Some(body.idempotency_key).filter(|key| !key.is_empty()),
                delta: body.delta,
                version: body.version,
                version_epoch: body.version_epoch,
            },
        })),
        ProxyKind::Rpc | ProxyKind::RoomCall => ProxyResponse::Rpc { data: payload(body.data, &body.b64data)? },
    }))
}

/// The meaning of `{}`: no user, no extension, and no data; for permission requests, permission.
fn without_result(kind: ProxyKind) -> ProxyResult {
    let over = RefreshResponse { expired: true, ..RefreshResponse::default() };
    match kind {
        ProxyKind::Connect => Err(ProxyError::Disconnect(Disconnect::BAD_REQUEST)),
        ProxyKind::Refresh => Ok(ProxyResponse::Refresh(over)),
        ProxyKind::SubRefresh => Ok(ProxyResponse::SubRefresh(over)),
        ProxyKind::Subscribe => Ok(ProxyResponse::Subscribe(Box::default())),
        ProxyKind::Publish => Ok(ProxyResponse::Publish(Box::default())),
        ProxyKind::Rpc | ProxyKind::RoomCall => Ok(ProxyResponse::Rpc { data: None }),
    }
}

fn subscriptions(
    channels: Vec<Text>,
    subs: BTreeMap<Box<str>, Option<OnlyObject<SubscriptionBody<'_>>>>,
) -> Result<Vec<ServerSubscription>, NotOurs> {
    let mut subscriptions = Vec::with_capacity(channels.len() + subs.len());
    let channels = channels.into_iter().map(|channel| Box::<str>::from(channel.0));
    let mut plain: Vec<_> = channels.filter(|channel| !subs.contains_key(channel)).collect();
    plain.sort_unstable();
    plain.dedup();
    subscriptions.extend(plain.into_iter().map(|channel| ServerSubscription { channel, ..Default::default() }));
    for (channel, body) in subs {
        let OnlyObject(body) = body.unwrap_or_default();
        subscriptions.push(ServerSubscription {
            channel,
            grant: SubscriptionGrant {
                info: payload(body.info, &body.b64info)?,
                data: payload(body.data, &body.b64data)?,
                expires_at_ms: body.expire_at.expiry_ms(),
                overrides: overrides(body.overrides),
            },
            ..ServerSubscription::default()
        });
    }
    Ok(subscriptions)
}

fn overrides(body: Option<OnlyObject<OverrideBody>>) -> Overrides {
    let OnlyObject(body) = body.unwrap_or_default();
    let value = |one: Option<OnlyObject<BoolBody>>| one.map(|OnlyObject(one)| one.value);
    Overrides {
        presence: value(body.presence),
        join_leave: value(body.join_leave),
        force_push_join_leave: value(body.force_push_join_leave),
        force_positioning: value(body.force_positioning),
        force_recovery: value(body.force_recovery),
    }
}

/// The base64 form takes precedence.
fn payload(json_value: Option<&RawValue>, base64: &str) -> Result<Option<Payload>, NotOurs> {
    if base64.is_empty() {
        return Ok(json(json_value));
    }
    let bytes = STANDARD.decode(base64).map_err(|_| NotOurs)?;
    Ok(Some(Payload::from_opaque(Bytes::from(bytes))))
}

fn json(value: Option<&RawValue>) -> Option<Payload> {
    value.map(|value| Payload::from_json(Bytes::copy_from_slice(value.get().as_bytes())))
}

#[cfg(test)]
mod tests {
    use dunlin_proof::members::{members, sample};

    use super::*;

    fn answer(kind: ProxyKind, body: &str) -> ProxyResponse {
        read(kind, body.as_bytes()).0.unwrap()
    }

    #[test]
    fn results_of_each_kind_are_parsed() {
        let ProxyResponse::Connect(connect) = answer(
            ProxyKind::Connect,
            r#"{"result":{"user":"42","expire_at":1700000000.5,"info":{"a":1},"b64data":"AAE=","meta":{"m":1},"unknown":[],
                "channels":["b","a","b"],"subs":{"a":{"data":[],"expire_at":5,"override":{"presence":{"value":true}}}}}}"#,
        ) else {
            panic!("an answer to connect")
        };
        assert_eq!((connect.user.as_str(), connect.expires_at_ms), ("42", Some(1_700_000_000_500)));
        assert_eq!(&connect.info.unwrap().bytes()[..], br#"{"a":1}"#);
        assert_eq!(&connect.data.unwrap().bytes()[..], &[0, 1]);
        assert_eq!(&connect.meta.unwrap().bytes()[..], br#"{"m":1}"#);
        let [b, a] = &connect.subscriptions[..] else { panic!("{:?}", connect.subscriptions) };
        assert_eq!((&*b.channel, &*a.channel, a.grant.expires_at_ms), ("b", "a", Some(5_000)));
        assert_eq!(a.grant.overrides.presence, Some(true));

        for kind in [ProxyKind::Refresh, ProxyKind::SubRefresh] {
            for (body, expired) in [
                (r#"{"result":{"expire_at":9}}"#, false),
                (r#"{"result":{"expired":true}}"#, true),
                ("{}", true),
                (r#"{"result":null}"#, true),
            ] {
                let answer = answer(kind, body);
                let (ProxyResponse::Refresh(answer) | ProxyResponse::SubRefresh(answer)) = answer else { panic!() };
                assert_eq!(answer.expired, expired, "{body}");
            }
        }

        let ProxyResponse::Publish(publish) = answer(
            ProxyKind::Publish,
            r#"{"result":{"data":{"x":1},"skip_history":true,"tags":{"k":"v"},"idempotency_key":"i","delta":true,
                "version":7,"version_epoch":"e"}}"#,
        ) else {
            panic!("an answer to publish")
        };
        assert_eq!(&publish.data.unwrap().bytes()[..], br#"{"x":1}"#);
        let how = PublishHow {
            tags: vec![("k".into(), "v".into())],
            skip_history: true,
            idempotency_key: Some("i".into()),
            delta: true,
            version: 7,
            version_epoch: "e".into(),
        };
        assert_eq!(publish.how, how);
        assert!(matches!(answer(ProxyKind::Publish, "{}"), ProxyResponse::Publish(publish) if publish.data.is_none()));
        assert!(matches!(answer(ProxyKind::Subscribe, "{}"), ProxyResponse::Subscribe(_)));
        assert!(matches!(answer(ProxyKind::Rpc, "{}"), ProxyResponse::Rpc { data: None }));
        assert!(matches!(answer(ProxyKind::Rpc, r#"{"result":{"data":7}}"#), ProxyResponse::Rpc { data: Some(_) }));
    }

    #[test]
    fn refusals_have_the_backends_code_and_message() {
        for (body, expected, word) in [
            (
                r#"{"error":{"code":1000,"message":"no","temporary":true},"result":{}}"#,
                ProxyError::Error { code: 1_000, message: "no".into(), temporary: true },
                CallOutcome::Error,
            ),
            (
                r#"{"disconnect":{"code":4501,"reason":"go"},"error":{"code":1000}}"#,
                ProxyError::Disconnect(Disconnect { code: 4_501, reason: "go".into() }),
                CallOutcome::Disconnect,
            ),
            (r#"{"error":{"code":99}}"#, ProxyError::Failed, CallOutcome::NotOurs),
            (r#"{"error":{"code":2000}}"#, ProxyError::Failed, CallOutcome::NotOurs),
            (r#"{"error":{}}"#, ProxyError::Failed, CallOutcome::NotOurs),
            (r#"{"disconnect":{"code":2999}}"#, ProxyError::Failed, CallOutcome::NotOurs),
            (r#"{"disconnect":{"code":5000}}"#, ProxyError::Failed, CallOutcome::NotOurs),
            (r#"{"disconnect":{"code":70000}}"#, ProxyError::Failed, CallOutcome::NotOurs),
            (r#"{"result":{"b64info":"!"}}"#, ProxyError::Failed, CallOutcome::NotOurs),
            (r#"{"result":[]}"#, ProxyError::Failed, CallOutcome::NotOurs),
            (r#"{"error":[1000]}"#, ProxyError::Failed, CallOutcome::NotOurs),
            (r#"{"result":{"subs":{"a":[]}}}"#, ProxyError::Failed, CallOutcome::NotOurs),
            (r#"{"result":{"user":7}}"#, ProxyError::Failed, CallOutcome::NotOurs),
            (r#"{"result":{}"#, ProxyError::Failed, CallOutcome::NotOurs),
            ("", ProxyError::Failed, CallOutcome::NotOurs),
            ("null", ProxyError::Failed, CallOutcome::NotOurs),
            ("7", ProxyError::Failed, CallOutcome::NotOurs),
            ("[]", ProxyError::Failed, CallOutcome::NotOurs),
            ("[null,null,null]", ProxyError::Failed, CallOutcome::NotOurs),
        ] {
            for kind in ProxyKind::ALL {
                let (outcome, outcome_word) = read(kind, body.as_bytes());
                assert_eq!((outcome.err(), outcome_word), (Some(expected.clone()), word), "{kind:?} {body}");
            }
        }
        let nobody = read(ProxyKind::Connect, b"{}").0.err();
        assert_eq!(nobody, Some(ProxyError::Disconnect(Disconnect::BAD_REQUEST)));
    }

    /// The members come from the types, so a new one is covered as well.
    #[test]
    fn null_is_absent_in_every_member() {
        let mut whole = sample::<Envelope<'_>>();
        whole["result"] = sample::<ResultBody<'_>>();
        let without = |names: &[&str]| {
            let mut document = whole.clone();
            document.as_object_mut().unwrap().retain(|name, _| !names.contains(&name.as_str()));
            document
        };
        for document in [without(&["error", "disconnect"]), without(&["disconnect"]), whole.clone()] {
            for kind in ProxyKind::ALL {
                let outcome =
                    |document: &serde_json::Value| format!("{:?}", read(kind, document.to_string().as_bytes()));
                for member in members(&document) {
                    let (null, absent) = (outcome(&member.null), outcome(&member.absent));
                    assert!(member.is_of_map || null == absent, "{kind:?} {}: {null} {absent}", member.path);
                    let is_result = document.get("error").is_none();
                    assert!(!is_result || !null.contains("NotOurs"), "{kind:?} {} {null}", member.path);
                }
            }
        }
    }
}
