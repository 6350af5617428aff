//! What a token says.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use dunlin_engine::event::{ConnectionClaims, SubscriptionClaims};
use dunlin_protocol::Payload;
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use super::Fault;

/// The end of the year 9999, the last that RFC 3339 can write. A later expiry is as good as this one.
const TIME_MAX_S: u64 = 253_402_300_799;

/// What a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Connection,
    Subscription,
}

/// The claims that we know; others are for others. A name that stands there twice is refused, since verifiers differ in
/// which one they believe (RFC 7519, section 4).
#[derive(Deserialize)]
pub(super) struct Claims<'c> {
    #[serde(default)]
    sub: String,
    exp: Option<NumericDate>,
    nbf: Option<NumericDate>,
    expire_at: Option<NumericDate>,
    #[serde(borrow)]
    info: Option<&'c RawValue>,
    b64info: Option<String>,
    #[serde(default)]
    channel: String,
    #[serde(default)]
    client: String,
    #[serde(borrow)]
    data: Option<&'c RawValue>,
    b64data: Option<String>,
    channels: Option<Amount>,
    subs: Option<Amount>,
    #[serde(rename = "override")]
    overrides: Option<Amount>,
}

impl<'c> Claims<'c> {
    /// Reads signed claims, and checks what both kinds of token have.
    pub(super) fn read(json: &'c [u8], purpose: Purpose, now_unix_s: u64) -> Result<Self, Fault> {
        let claims: Self = serde_json::from_slice(json)
            .map_err(|error| if error.is_data() { Fault::Claim } else { Fault::Malformed })?;
        // On its last second a token is no longer accepted, on its first it is (RFC 7519, sections 4.1.4 and 4.1.5).
        let over = claims.exp.is_some_and(|exp| exp.floor_s <= now_unix_s);
        let early = claims.nbf.is_some_and(|nbf| nbf.ceil_s > now_unix_s);
        if claims.channel.is_empty() == (purpose == Purpose::Subscription) {
            return Err(Fault::Purpose);
        }
        if over || early { Err(Fault::Time) } else { Ok(claims) }
    }

    /// Of a connection token.
    pub(super) fn into_connection(self) -> Result<ConnectionClaims, Fault> {
        if is_some(self.channels) || is_some(self.subs) {
            return Err(Fault::Unsupported);
        }
        Ok(ConnectionClaims {
            info: payload(self.info, self.b64info.as_deref())?,
            expires_at_s: expires_at_s(self.exp, self.expire_at),
            user: self.sub,
        })
    }

    /// Of a subscription token.
    pub(super) fn into_subscription(self) -> Result<SubscriptionClaims, Fault> {
        if is_some(self.overrides) {
            return Err(Fault::Unsupported);
        }
        Ok(SubscriptionClaims {
            info: payload(self.info, self.b64info.as_deref())?,
            data: payload(self.data, self.b64data.as_deref())?,
            expires_at_s: expires_at_s(self.exp, self.expire_at),
            user: self.sub,
            channel: self.channel,
            client: self.client,
        })
    }
}

fn is_some(amount: Option<Amount>) -> bool {
    amount == Some(Amount::Some)
}

/// `expire_at` wins over `exp`, and 0 there means never.
fn expires_at_s(exp: Option<NumericDate>, expire_at: Option<NumericDate>) -> Option<u64> {
    match expire_at {
        Some(NumericDate { floor_s: 0, .. }) => None,
        Some(at) => Some(at.floor_s),
        None => exp.map(|exp| exp.floor_s),
    }
}

/// The base64 form wins, as it does in Centrifugo.
fn payload(json: Option<&RawValue>, base64: Option<&str>) -> Result<Option<Payload>, Fault> {
    match base64.filter(|text| !text.is_empty()) {
        Some(text) => {
            let bytes = STANDARD.decode(text).map_err(|_| Fault::Claim)?;
            Ok(Some(Payload::from_opaque(Bytes::from(bytes))))
        }
        None => Ok(json.map(|json| Payload::from_json(Bytes::copy_from_slice(json.get().as_bytes())))),
    }
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

/// Whether a list or an object holds anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Amount {
    None,
    Some,
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AmountVisitor;

        impl<'de> Visitor<'de> for AmountVisitor {
            type Value = Amount;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list or an object")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Amount, A::Error> {
                let mut amount = Amount::None;
                while seq.next_element::<IgnoredAny>()?.is_some() {
                    amount = Amount::Some;
                }
                Ok(amount)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Amount, A::Error> {
                let mut amount = Amount::None;
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
                    amount = Amount::Some;
                }
                Ok(amount)
            }
        }

        deserializer.deserialize_any(AmountVisitor)
    }
}
