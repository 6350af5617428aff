//! The claims of a token.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use dunlin_engine::{
    backend::Overrides,
    event::{ConnectionClaims, ServerSubscription, SubscriptionClaims, SubscriptionGrant},
};
use dunlin_protocol::Payload;
use serde::{Deserialize, Deserializer, de::Visitor};

use super::{
    TokenFault, TokenKind,
    object::Object,
    rules::{Caught, Rules},
};

/// The end of the year 9999, the last year that RFC 3339 can represent. A later expiry is reduced to it.
const TIME_MAX_S: u64 = 253_402_300_799;

/// The verified claims of a token of either kind.
#[derive(Clone, Debug)]
pub(super) enum VerifiedClaims {
    Connection(ConnectionClaims),
    Subscription(SubscriptionClaims),
}

impl VerifiedClaims {
    /// The claims of a connection token. The fingerprint of a token includes its purpose, so this is never a
    /// subscription token.
    pub(super) fn connection(&self) -> ConnectionClaims {
        match self {
            Self::Connection(claims) => claims.clone(),
            Self::Subscription(_) => unreachable!("a connection token was asked for"),
        }
    }

    /// The claims of a subscription token.
    pub(super) fn subscription(&self) -> SubscriptionClaims {
        match self {
            Self::Subscription(claims) => claims.clone(),
            Self::Connection(_) => unreachable!("a subscription token was asked for"),
        }
    }
}

/// The claims that Dunlin uses; others are ignored.
pub(super) struct Claims<'c> {
    object: Object<'c>,
    exp: Option<NumericDate>,
    /// The second from which the token is valid (`nbf`).
    not_before_s: Option<u64>,
    channel: String,
}

/// The interval in which a token is valid, in seconds since 1970. It includes the first second and excludes the last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) from_s: Option<u64>,
    pub(super) until_s: Option<u64>,
}

impl Validity {
    /// Rejects a token in the second of its `exp`, and accepts it in the second of its `nbf` (RFC 7519, sections 4.1.4
    /// and 4.1.5).
    pub(super) fn check(self, now_unix_s: u64) -> Result<(), TokenFault> {
        let over = self.until_s.is_some_and(|until_s| until_s <= now_unix_s);
        let early = self.from_s.is_some_and(|from_s| from_s > now_unix_s);
        if over || early { Err(TokenFault::Time) } else { Ok(()) }
    }
}

impl<'c> Claims<'c> {
    /// Parses signed claims, and checks those that both kinds of token have.
    pub(super) fn read(json: &'c [u8], kind: TokenKind) -> Result<Self, TokenFault> {
        let object = Object::read(json).map_err(|error| fault(&error))?;
        let exp = object.get::<Option<NumericDate>>("exp").map_err(|error| fault(&error))?.flatten();
        let nbf = object.get::<Option<NumericDate>>("nbf").map_err(|error| fault(&error))?.flatten();
        let channel: String = object.get("channel").map_err(|error| fault(&error))?.unwrap_or_default();
        if channel.is_empty() == (kind == TokenKind::Subscription) {
            return Err(TokenFault::Purpose);
        }
        Ok(Self { object, exp, not_before_s: nbf.map(|nbf| nbf.ceil_s), channel })
    }

    /// The interval in which the token is valid.
    pub(super) fn validity(&self) -> Validity {
        Validity { from_s: self.not_before_s, until_s: self.exp.map(|exp| exp.floor_s) }
    }

    /// Checks issuer and audience against `rules`.
    pub(super) fn check(&self, rules: &Rules) -> Result<Caught, TokenFault> {
        rules.check(&self.object)
    }

    /// Converts the claims of a connection token.
    pub(super) fn into_connection(self, rules: &Rules) -> Result<ConnectionClaims, TokenFault> {
        let meta = self.object.raw("meta").filter(|meta| meta.get() != "null");
        Ok(ConnectionClaims {
            info: payload(&self.object, "info", "b64info")?,
            expires_at_s: self.expires_at_s()?,
            user: self.user(rules)?,
            meta: meta.map(|meta| Payload::from_json(Bytes::copy_from_slice(meta.get().as_bytes()))),
            subscriptions: subscriptions(&self.object)?,
        })
    }

    /// Converts the claims of a subscription token.
    pub(super) fn into_subscription(self, rules: &Rules) -> Result<SubscriptionClaims, TokenFault> {
        Ok(SubscriptionClaims {
            grant: SubscriptionGrant { expires_at_s: self.expires_at_s()?, ..grant(&self.object)? },
            user: self.user(rules)?,
            client: self.get("client")?.unwrap_or_default(),
            channel: self.channel,
        })
    }

    fn get<T: Deserialize<'c>>(&self, name: &str) -> Result<Option<T>, TokenFault> {
        self.object.get(name).map_err(|error| fault(&error))
    }

    /// The user id: text, or in a configured claim also an integer, in its original notation.
    fn user(&self, rules: &Rules) -> Result<String, TokenFault> {
        let Some(claim) = &rules.user_claim else { return Ok(self.get("sub")?.unwrap_or_default()) };
        let Some(raw) = self.object.raw(claim) else { return Ok(String::new()) };
        match raw.get() {
            "null" => Ok(String::new()),
            text if text.starts_with('"') => serde_json::from_str(text).map_err(|error| fault(&error)),
            number if serde_json::from_str::<i128>(number).is_ok() => Ok(number.to_owned()),
            _ => Err(TokenFault::Claim),
        }
    }

    /// `expire_at` takes precedence over `exp`; 0 means never.
    fn expires_at_s(&self) -> Result<Option<u64>, TokenFault> {
        Ok(match self.get::<Option<NumericDate>>("expire_at")?.flatten() {
            Some(NumericDate { floor_s: 0, .. }) => None,
            Some(at) => Some(at.floor_s),
            None => self.exp.map(|exp| exp.floor_s),
        })
    }
}

/// The base64 form takes precedence, as in Centrifugo.
fn payload(object: &Object<'_>, json: &str, base64: &str) -> Result<Option<Payload>, TokenFault> {
    match optional::<String>(object, base64)?.filter(|text| !text.is_empty()) {
        Some(text) => {
            let bytes = STANDARD.decode(text).map_err(|_| TokenFault::Claim)?;
            Ok(Some(Payload::from_opaque(Bytes::from(bytes))))
        }
        None => Ok(object
            .raw(json)
            .filter(|json| json.get() != "null")
            .map(|json| Payload::from_json(Bytes::copy_from_slice(json.get().as_bytes())))),
    }
}

/// The claim `subs`, or else `channels`.
fn subscriptions(object: &Object<'_>) -> Result<Vec<ServerSubscription>, TokenFault> {
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
fn subscription(channel: &str, options: &Object<'_>) -> Result<ServerSubscription, TokenFault> {
    Ok(ServerSubscription { channel: channel.into(), grant: grant(options)?, ..ServerSubscription::default() })
}

/// What a subscription token and an entry of `subs` have in common. An entry of `subs` does not expire by itself.
fn grant(object: &Object<'_>) -> Result<SubscriptionGrant, TokenFault> {
    Ok(SubscriptionGrant {
        info: payload(object, "info", "b64info")?,
        data: payload(object, "data", "b64data")?,
        overrides: overrides(object)?,
        expires_at_s: None,
    })
}

/// The field `override`: for each option an object with a `value`.
fn overrides(object: &Object<'_>) -> Result<Overrides, TokenFault> {
    let Some(overrides) = optional::<Object<'_>>(object, "override")? else { return Ok(Overrides::default()) };
    let value = |name: &str| -> Result<Option<bool>, TokenFault> {
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

/// A value that may be absent or null.
fn optional<'j, T: Deserialize<'j>>(object: &Object<'j>, name: &str) -> Result<Option<T>, TokenFault> {
    object.get::<Option<T>>(name).map(Option::flatten).map_err(|error| fault(&error))
}

fn fault(error: &serde_json::Error) -> TokenFault {
    if error.is_data() { TokenFault::Claim } else { TokenFault::Malformed }
}

/// Seconds since 1970, possibly with a fraction (RFC 7519, section 2). Negative values become 0.
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
