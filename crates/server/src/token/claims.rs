//! What a token says.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use dunlin_engine::{
    backend::Overrides,
    event::{ConnectionClaims, ServerSubscription, SubscriptionClaims},
};
use dunlin_protocol::Payload;
use serde::{Deserialize, Deserializer, de::Visitor};

use super::{
    Fault,
    object::Object,
    rules::{Caught, Rules},
};
use crate::node::TokenKind;

/// The end of the year 9999, the last that RFC 3339 can write. A later expiry is as good as this one.
const TIME_MAX_S: u64 = 253_402_300_799;

/// What a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Connection,
    Subscription,
}

/// What a token says, for either purpose.
#[derive(Clone, Debug)]
pub(super) enum Said {
    Connection(ConnectionClaims),
    Subscription(SubscriptionClaims),
}

impl Purpose {
    pub(super) const fn of(kind: TokenKind) -> Self {
        match kind {
            TokenKind::Connection => Self::Connection,
            TokenKind::Subscription => Self::Subscription,
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::Subscription => "subscription",
        }
    }
}

impl Said {
    /// Of a connection token; nothing was ever judged for another purpose than the one that it was asked for.
    pub(super) fn connection(&self) -> ConnectionClaims {
        match self {
            Self::Connection(claims) => claims.clone(),
            Self::Subscription(_) => unreachable!("a connection token was asked for"),
        }
    }

    /// Of a subscription token.
    pub(super) fn subscription(&self) -> SubscriptionClaims {
        match self {
            Self::Subscription(claims) => claims.clone(),
            Self::Connection(_) => unreachable!("a subscription token was asked for"),
        }
    }
}

/// The claims that we know; others are for others.
pub(super) struct Claims<'c> {
    object: Object<'c>,
    exp: Option<NumericDate>,
    /// The second from which it counts.
    not_before_s: Option<u64>,
    channel: String,
}

/// From when and until when a token counts, in seconds since 1970: it does from the first, and no longer at the second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) from_s: Option<u64>,
    pub(super) until_s: Option<u64>,
}

impl Validity {
    /// On its last second a token is no longer accepted, on its first it is (RFC 7519, sections 4.1.4 and 4.1.5).
    pub(super) fn check(self, now_unix_s: u64) -> Result<(), Fault> {
        let over = self.until_s.is_some_and(|until_s| until_s <= now_unix_s);
        let early = self.from_s.is_some_and(|from_s| from_s > now_unix_s);
        if over || early { Err(Fault::Time) } else { Ok(()) }
    }
}

impl<'c> Claims<'c> {
    /// Reads signed claims, and checks what both kinds of token have.
    pub(super) fn read(json: &'c [u8], purpose: Purpose) -> Result<Self, Fault> {
        let object = Object::read(json).map_err(|error| fault(&error))?;
        let exp = object.get::<Option<NumericDate>>("exp").map_err(|error| fault(&error))?.flatten();
        let nbf = object.get::<Option<NumericDate>>("nbf").map_err(|error| fault(&error))?.flatten();
        let channel: String = object.get("channel").map_err(|error| fault(&error))?.unwrap_or_default();
        if channel.is_empty() == (purpose == Purpose::Subscription) {
            return Err(Fault::Purpose);
        }
        Ok(Self { object, exp, not_before_s: nbf.map(|nbf| nbf.ceil_s), channel })
    }

    /// When it counts.
    pub(super) fn validity(&self) -> Validity {
        Validity { from_s: self.not_before_s, until_s: self.exp.map(|exp| exp.floor_s) }
    }

    /// Whether it is for us, from whom it has to be.
    pub(super) fn check(&self, rules: &Rules) -> Result<Caught, Fault> {
        rules.check(&self.object)
    }

    /// Of a connection token.
    pub(super) fn into_connection(self, rules: &Rules) -> Result<ConnectionClaims, Fault> {
        let meta = self.object.raw("meta").filter(|meta| meta.get() != "null");
        Ok(ConnectionClaims {
            info: payload(&self.object, "info", "b64info")?,
            expires_at_s: self.expires_at_s()?,
            user: self.user(rules)?,
            meta: meta.map(|meta| Payload::from_json(Bytes::copy_from_slice(meta.get().as_bytes()))),
            subscriptions: subscriptions(&self.object)?,
        })
    }

    /// Of a subscription token.
    pub(super) fn into_subscription(self, rules: &Rules) -> Result<SubscriptionClaims, Fault> {
        Ok(SubscriptionClaims {
            info: payload(&self.object, "info", "b64info")?,
            data: payload(&self.object, "data", "b64data")?,
            expires_at_s: self.expires_at_s()?,
            user: self.user(rules)?,
            client: self.get("client")?.unwrap_or_default(),
            overrides: overrides(&self.object)?,
            channel: self.channel,
        })
    }

    fn get<T: Deserialize<'c>>(&self, name: &str) -> Result<Option<T>, Fault> {
        self.object.get(name).map_err(|error| fault(&error))
    }

    /// Text; of a claim of the operator's choice whole numbers as well, as they stand there.
    fn user(&self, rules: &Rules) -> Result<String, Fault> {
        let Some(claim) = &rules.user_claim else { return Ok(self.get("sub")?.unwrap_or_default()) };
        let Some(raw) = self.object.raw(claim) else { return Ok(String::new()) };
        match raw.get() {
            "null" => Ok(String::new()),
            text if text.starts_with('"') => serde_json::from_str(text).map_err(|error| fault(&error)),
            number if serde_json::from_str::<i128>(number).is_ok() => Ok(number.to_owned()),
            _ => Err(Fault::Claim),
        }
    }

    /// `expire_at` wins over `exp`, and 0 there means never.
    fn expires_at_s(&self) -> Result<Option<u64>, Fault> {
        Ok(match self.get::<Option<NumericDate>>("expire_at")?.flatten() {
            Some(NumericDate { floor_s: 0, .. }) => None,
            Some(at) => Some(at.floor_s),
            None => self.exp.map(|exp| exp.floor_s),
        })
    }
}

/// The base64 form wins, as it does in Centrifugo.
pub(crate) fn payload(object: &Object<'_>, json: &str, base64: &str) -> Result<Option<Payload>, Fault> {
    match optional::<String>(object, base64)?.filter(|text| !text.is_empty()) {
        Some(text) => {
            let bytes = STANDARD.decode(text).map_err(|_| Fault::Claim)?;
            Ok(Some(Payload::from_opaque(Bytes::from(bytes))))
        }
        None => Ok(object
            .raw(json)
            .filter(|json| json.get() != "null")
            .map(|json| Payload::from_json(Bytes::copy_from_slice(json.get().as_bytes())))),
    }
}

/// `subs`, or else `channels`.
fn subscriptions(object: &Object<'_>) -> Result<Vec<ServerSubscription>, Fault> {
    let subs = optional::<Object<'_>>(object, "subs")?.unwrap_or_default();
    let channels = optional::<Vec<Box<str>>>(object, "channels")?.unwrap_or_default();
    let mut subscriptions = Vec::new();
    for (channel, raw) in subs.entries() {
        let options: Option<Object<'_>> = serde_json::from_str(raw.get()).map_err(|error| fault(&error))?;
        subscriptions.push(subscription(channel, &options.unwrap_or_default())?);
    }
    if subscriptions.is_empty() {
        for channel in channels {
            let is_new = !subscriptions.iter().any(|known: &ServerSubscription| known.channel == channel);
            if is_new {
                subscriptions.push(ServerSubscription { channel, ..ServerSubscription::default() });
            }
        }
    }
    Ok(subscriptions)
}

/// One entry of `subs`.
pub(crate) fn subscription(channel: &str, options: &Object<'_>) -> Result<ServerSubscription, Fault> {
    Ok(ServerSubscription {
        channel: channel.into(),
        info: payload(options, "info", "b64info")?,
        data: payload(options, "data", "b64data")?,
        overrides: overrides(options)?,
        ..ServerSubscription::default()
    })
}

/// `override`: of each of these an object with a `value`.
pub(crate) fn overrides(object: &Object<'_>) -> Result<Overrides, Fault> {
    let Some(overrides) = optional::<Object<'_>>(object, "override")? else { return Ok(Overrides::default()) };
    let value = |name: &str| -> Result<Option<bool>, Fault> {
        let Some(one) = optional::<Object<'_>>(&overrides, name)? else { return Ok(None) };
        Ok(Some(optional(&one, "value")?.unwrap_or_default()))
    };
    Ok(Overrides {
        presence: value("presence")?,
        join_leave: value("join_leave")?,
        force_push_join_leave: value("force_push_join_leave")?,
        force_positioning: value("force_positioning")?,
        force_recovery: value("force_recovery")?,
    })
}

/// A value that may be missing, or null.
fn optional<'j, T: Deserialize<'j>>(object: &Object<'j>, name: &str) -> Result<Option<T>, Fault> {
    object.get::<Option<T>>(name).map(Option::flatten).map_err(|error| fault(&error))
}

fn fault(error: &serde_json::Error) -> Fault {
    if error.is_data() { Fault::Claim } else { Fault::Malformed }
}

/// Seconds since 1970, with a fraction perhaps (RFC 7519, section 2), and none before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NumericDate {
    floor_s: u64,
    ceil_s: u64,
}

impl<'de> Deserialize<'de> for NumericDate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct DateVisitor;

        impl Visitor<'_> for DateVisitor {
            type Value = NumericDate;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("seconds since 1970")
            }

            fn visit_u64<E>(self, seconds: u64) -> Result<NumericDate, E> {
                let s = seconds.min(TIME_MAX_S);
                Ok(NumericDate { floor_s: s, ceil_s: s })
            }

            fn visit_i64<E: serde::de::Error>(self, seconds: i64) -> Result<NumericDate, E> {
                self.visit_u64(u64::try_from(seconds).unwrap_or(0))
            }

            #[expect(clippy::cast_sign_loss, reason = "`as` saturates, and no time lies before 1970 here")]
            fn visit_f64<E>(self, seconds: f64) -> Result<NumericDate, E> {
                let within = |s: f64| (s as u64).min(TIME_MAX_S);
                Ok(NumericDate { floor_s: within(seconds.floor()), ceil_s: within(seconds.ceil()) })
            }
        }

        deserializer.deserialize_any(DateVisitor)
    }
}
