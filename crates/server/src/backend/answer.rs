//! A backend's answer: the JSON that Centrifugo's proxies understand.

use std::{borrow::Cow, collections::BTreeMap};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use dunlin_engine::{
    backend::{
        BackendAnswer, BackendOutcome, BackendRefusal, ConnectAnswer, Overrides, PublishAnswer, PublishHow,
        RefreshAnswer, SubscribeAnswer,
    },
    event::ServerSubscription,
};
use dunlin_protocol::{Disconnect, Payload};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{AskKind, Outcome};

/// What is answered is none of ours.
#[derive(Debug)]
struct NotOurs;

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    error: Option<ErrorBody>,
    disconnect: Option<DisconnectBody>,
}

#[derive(Deserialize)]
struct ErrorBody {
    #[serde(default)]
    code: u32,
    #[serde(default)]
    message: Box<str>,
    #[serde(default)]
    temporary: bool,
}

#[derive(Deserialize)]
struct DisconnectBody {
    #[serde(default)]
    code: u32,
    #[serde(default)]
    reason: String,
}

/// The fields of all kinds of result; each kind has some of them.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ResultBody<'a> {
    user: String,
    expired: bool,
    expire_at: i64,
    #[serde(borrow)]
    info: Option<&'a RawValue>,
    b64info: String,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    b64data: String,
    #[serde(borrow)]
    meta: Option<&'a RawValue>,
    channels: Vec<Box<str>>,
    #[serde(borrow)]
    subs: BTreeMap<Box<str>, SubscriptionBody<'a>>,
    #[serde(rename = "override")]
    overrides: Option<OverrideBody>,
    skip_history: bool,
    tags: BTreeMap<Box<str>, Box<str>>,
    idempotency_key: Box<str>,
    delta: bool,
    version: u64,
    version_epoch: Box<str>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SubscriptionBody<'a> {
    expire_at: i64,
    #[serde(borrow)]
    info: Option<&'a RawValue>,
    b64info: String,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    b64data: String,
    #[serde(rename = "override")]
    overrides: Option<OverrideBody>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct OverrideBody {
    presence: Option<BoolBody>,
    join_leave: Option<BoolBody>,
    force_push_join_leave: Option<BoolBody>,
    force_positioning: Option<BoolBody>,
    force_recovery: Option<BoolBody>,
}

#[derive(Deserialize)]
struct BoolBody {
    #[serde(default)]
    value: bool,
}

/// What the body of an answer with status 200 says to a question of this kind.
pub(crate) fn read(kind: AskKind, body: &[u8]) -> (BackendOutcome, Outcome) {
    let envelope = serde_json::from_slice::<&RawValue>(body).map_err(|_| NotOurs);
    let Ok(envelope) = envelope.and_then(object::<Envelope<'_>>) else {
        return (Err(BackendRefusal::Failed), Outcome::NotOurs);
    };
    // In this order, as Centrifugo does.
    if let Some(DisconnectBody { code, reason }) = envelope.disconnect {
        return disconnect(code, reason);
    }
    if let Some(ErrorBody { code, message, temporary }) = envelope.error {
        return error(code, message, temporary);
    }
    match result(kind, envelope.result) {
        Ok(outcome) => (outcome, Outcome::Result),
        Err(NotOurs) => (Err(BackendRefusal::Failed), Outcome::NotOurs),
    }
}

/// What an object says. A list with the fields' values in their order is none.
fn object<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Result<T, NotOurs> {
    if !raw.get().starts_with('{') {
        return Err(NotOurs);
    }
    serde_json::from_str(raw.get()).map_err(|_| NotOurs)
}

/// A code that no client may be closed with is a mistake of the backend.
pub(super) fn disconnect(code: u32, reason: String) -> (BackendOutcome, Outcome) {
    match u16::try_from(code) {
        Ok(code @ 3_000..=4_999) => {
            let reason = Cow::Owned(reason);
            (Err(BackendRefusal::Disconnect(Disconnect { code, reason })), Outcome::Disconnect)
        }
        _ => (Err(BackendRefusal::Failed), Outcome::NotOurs),
    }
}

/// A code that is none of an error's is a mistake of the backend.
pub(super) fn error(code: u32, message: Box<str>, temporary: bool) -> (BackendOutcome, Outcome) {
    match u16::try_from(code) {
        Ok(code @ 100..=1_999) => (Err(BackendRefusal::Error { code, message, temporary }), Outcome::Error),
        _ => (Err(BackendRefusal::Failed), Outcome::NotOurs),
    }
}

fn result(kind: AskKind, raw: Option<&RawValue>) -> Result<BackendOutcome, NotOurs> {
    let Some(raw) = raw else { return Ok(without_result(kind)) };
    let body: ResultBody<'_> = object(raw)?;
    let info = payload(body.info, &body.b64info)?;
    let expires_at_s = expires_at_s(body.expire_at);
    Ok(Ok(match kind {
        AskKind::Connect => BackendAnswer::Connect(Box::new(ConnectAnswer {
            user: body.user,
            expires_at_s,
            info,
            data: payload(body.data, &body.b64data)?,
            meta: json(body.meta),
            subscriptions: subscriptions(body.channels, body.subs)?,
        })),
        AskKind::Refresh => {
            BackendAnswer::Refresh(RefreshAnswer { expired: body.expired, expires_at_s, info, meta: json(body.meta) })
        }
        AskKind::SubRefresh => {
            BackendAnswer::SubRefresh(RefreshAnswer { expired: body.expired, expires_at_s, info, meta: None })
        }
        AskKind::Subscribe => BackendAnswer::Subscribe(Box::new(SubscribeAnswer {
            expires_at_s,
            info,
            data: payload(body.data, &body.b64data)?,
            overrides: overrides(body.overrides.as_ref()),
        })),
        AskKind::Publish => BackendAnswer::Publish(Box::new(PublishAnswer {
            data: payload(body.data, &body.b64data)?,
            how: PublishHow {
                tags: body.tags.into_iter().collect(),
                skip_history: body.skip_history,
                idempotency_key: Some(body.idempotency_key).filter(|key| !key.is_empty()),
                delta: body.delta,
                version: body.version,
                version_epoch: body.version_epoch,
            },
        })),
        AskKind::Rpc => BackendAnswer::Rpc { data: payload(body.data, &body.b64data)? },
    }))
}

/// What `{}` means: nobody is known, nothing goes on; or, where only a permission was asked for, it is given.
fn without_result(kind: AskKind) -> BackendOutcome {
    let over = RefreshAnswer { expired: true, ..RefreshAnswer::default() };
    match kind {
        AskKind::Connect => Err(BackendRefusal::Disconnect(Disconnect::BAD_REQUEST)),
        AskKind::Refresh => Ok(BackendAnswer::Refresh(over)),
        AskKind::SubRefresh => Ok(BackendAnswer::SubRefresh(over)),
        AskKind::Subscribe => Ok(BackendAnswer::Subscribe(Box::default())),
        AskKind::Publish => Ok(BackendAnswer::Publish(Box::default())),
        AskKind::Rpc => Ok(BackendAnswer::Rpc { data: None }),
    }
}

fn subscriptions(
    channels: Vec<Box<str>>,
    subs: BTreeMap<Box<str>, SubscriptionBody<'_>>,
) -> Result<Vec<ServerSubscription>, NotOurs> {
    let mut subscriptions = Vec::with_capacity(channels.len() + subs.len());
    let mut plain: Vec<_> = channels.into_iter().filter(|channel| !subs.contains_key(channel)).collect();
    plain.sort_unstable();
    plain.dedup();
    subscriptions.extend(plain.into_iter().map(|channel| ServerSubscription { channel, ..Default::default() }));
    for (channel, body) in subs {
        subscriptions.push(ServerSubscription {
            channel,
            info: payload(body.info, &body.b64info)?,
            data: payload(body.data, &body.b64data)?,
            expires_at_s: expires_at_s(body.expire_at),
            overrides: overrides(body.overrides.as_ref()),
            recover_since: None,
        });
    }
    Ok(subscriptions)
}

fn overrides(body: Option<&OverrideBody>) -> Overrides {
    let Some(body) = body else { return Overrides::default() };
    let value = |one: &Option<BoolBody>| one.as_ref().map(|one| one.value);
    Overrides {
        presence: value(&body.presence),
        join_leave: value(&body.join_leave),
        force_push_join_leave: value(&body.force_push_join_leave),
        force_positioning: value(&body.force_positioning),
        force_recovery: value(&body.force_recovery),
    }
}

/// 0 is for never.
fn expires_at_s(expire_at: i64) -> Option<u64> {
    u64::try_from(expire_at).ok().filter(|at_s| *at_s > 0)
}

/// The base64 form wins.
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
    use super::*;

    fn answer(kind: AskKind, body: &str) -> BackendAnswer {
        read(kind, body.as_bytes()).0.unwrap()
    }

    #[test]
    fn results_of_every_kind() {
        let BackendAnswer::Connect(connect) = answer(
            AskKind::Connect,
            r#"{"result":{"user":"42","expire_at":1700000000,"info":{"a":1},"b64data":"AAE=","meta":{"m":1},"unknown":[],
                "channels":["b","a","b"],"subs":{"a":{"data":[],"expire_at":5,"override":{"presence":{"value":true}}}}}}"#,
        ) else {
            panic!("an answer to connect")
        };
        assert_eq!((connect.user.as_str(), connect.expires_at_s), ("42", Some(1_700_000_000)));
        assert_eq!(&connect.info.unwrap().bytes()[..], br#"{"a":1}"#);
        assert_eq!(&connect.data.unwrap().bytes()[..], &[0, 1]);
        assert_eq!(&connect.meta.unwrap().bytes()[..], br#"{"m":1}"#);
        let [b, a] = &connect.subscriptions[..] else { panic!("{:?}", connect.subscriptions) };
        assert_eq!((&*b.channel, &*a.channel, a.expires_at_s), ("b", "a", Some(5)));
        assert_eq!(a.overrides.presence, Some(true));

        for kind in [AskKind::Refresh, AskKind::SubRefresh] {
            for (body, expired) in [
                (r#"{"result":{"expire_at":9}}"#, false),
                (r#"{"result":{"expired":true}}"#, true),
                ("{}", true),
                (r#"{"result":null}"#, true),
            ] {
                let answer = answer(kind, body);
                let (BackendAnswer::Refresh(answer) | BackendAnswer::SubRefresh(answer)) = answer else { panic!() };
                assert_eq!(answer.expired, expired, "{body}");
            }
        }

        let BackendAnswer::Publish(publish) = answer(
            AskKind::Publish,
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
        assert!(matches!(answer(AskKind::Publish, "{}"), BackendAnswer::Publish(publish) if publish.data.is_none()));
        assert!(matches!(answer(AskKind::Subscribe, "{}"), BackendAnswer::Subscribe(_)));
        assert!(matches!(answer(AskKind::Rpc, "{}"), BackendAnswer::Rpc { data: None }));
        assert!(matches!(answer(AskKind::Rpc, r#"{"result":{"data":7}}"#), BackendAnswer::Rpc { data: Some(_) }));
    }

    #[test]
    fn refusals_are_the_backends_words() {
        for (body, expected, word) in [
            (
                r#"{"error":{"code":1000,"message":"no","temporary":true},"result":{}}"#,
                BackendRefusal::Error { code: 1_000, message: "no".into(), temporary: true },
                Outcome::Error,
            ),
            (
                r#"{"disconnect":{"code":4501,"reason":"go"},"error":{"code":1000}}"#,
                BackendRefusal::Disconnect(Disconnect { code: 4_501, reason: "go".into() }),
                Outcome::Disconnect,
            ),
            (r#"{"error":{"code":99}}"#, BackendRefusal::Failed, Outcome::NotOurs),
            (r#"{"error":{"code":2000}}"#, BackendRefusal::Failed, Outcome::NotOurs),
            (r#"{"error":{}}"#, BackendRefusal::Failed, Outcome::NotOurs),
            (r#"{"disconnect":{"code":2999}}"#, BackendRefusal::Failed, Outcome::NotOurs),
            (r#"{"disconnect":{"code":5000}}"#, BackendRefusal::Failed, Outcome::NotOurs),
            (r#"{"disconnect":{"code":70000}}"#, BackendRefusal::Failed, Outcome::NotOurs),
            (r#"{"result":{"b64info":"!"}}"#, BackendRefusal::Failed, Outcome::NotOurs),
            (r#"{"result":[]}"#, BackendRefusal::Failed, Outcome::NotOurs),
            (r#"{"result":{"user":7}}"#, BackendRefusal::Failed, Outcome::NotOurs),
            (r#"{"result":{}"#, BackendRefusal::Failed, Outcome::NotOurs),
            ("", BackendRefusal::Failed, Outcome::NotOurs),
            ("null", BackendRefusal::Failed, Outcome::NotOurs),
            ("7", BackendRefusal::Failed, Outcome::NotOurs),
            ("[]", BackendRefusal::Failed, Outcome::NotOurs),
            ("[null,null,null]", BackendRefusal::Failed, Outcome::NotOurs),
        ] {
            for kind in AskKind::ALL {
                let (outcome, told) = read(kind, body.as_bytes());
                assert_eq!((outcome.err(), told), (Some(expected.clone()), word), "{kind:?} {body}");
            }
        }
        let nobody = read(AskKind::Connect, b"{}").0.err();
        assert_eq!(nobody, Some(BackendRefusal::Disconnect(Disconnect::BAD_REQUEST)));
    }
}
