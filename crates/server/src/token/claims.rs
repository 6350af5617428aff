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

use super::{
    Fault,
    object::Object,
    rules::{Caught, Rules},
};

/// The end of the year 9999, the last that RFC 3339 can write. A later expiry is as good as this one.
const TIME_MAX_S: u64 = 253_402_300_799;

/// What a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Connection,
    Subscription,
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
        if is_some(self.get("channels")?) || is_some(self.get("subs")?) {
            return Err(Fault::Unsupported);
        }
        Ok(ConnectionClaims {
            info: self.payload("info", "b64info")?,
            expires_at_s: self.expires_at_s()?,
            user: self.user(rules)?,
        })
    }

    /// Of a subscription token.
    pub(super) fn into_subscription(self, rules: &Rules) -> Result<SubscriptionClaims, Fault> {
        if is_some(self.get("override")?) {
            return Err(Fault::Unsupported);
        }
        Ok(SubscriptionClaims {
            info: self.payload("info", "b64info")?,
            data: self.payload("data", "b64data")?,
            expires_at_s: self.expires_at_s()?,
            user: self.user(rules)?,
            client: self.get("client")?.unwrap_or_default(),
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

    /// The base64 form wins, as it does in Centrifugo.
    fn payload(&self, json: &str, base64: &str) -> Result<Option<Payload>, Fault> {
        match self.get::<Option<String>>(base64)?.flatten().filter(|text| !text.is_empty()) {
            Some(text) => {
                let bytes = STANDARD.decode(text).map_err(|_| Fault::Claim)?;
                Ok(Some(Payload::from_opaque(Bytes::from(bytes))))
            }
            None => Ok(self
                .object
                .raw(json)
                .filter(|json| json.get() != "null")
                .map(|json| Payload::from_json(Bytes::copy_from_slice(json.get().as_bytes())))),
        }
    }
}

fn fault(error: &serde_json::Error) -> Fault {
    if error.is_data() { Fault::Claim } else { Fault::Malformed }
}

fn is_some(amount: Option<Amount>) -> bool {
    amount == Some(Amount::Some)
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
