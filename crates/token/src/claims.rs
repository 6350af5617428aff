//! The claims of a token.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use dunlin_engine::{
    backend::Overrides,
    event::{ConnectionClaims, ServerSubscription, SubscriptionClaims, SubscriptionGrant, TokenIdentity},
};
use dunlin_protocol::Payload;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    TokenFault, TokenKind, UnixTime,
    object::Object,
    rules::{Caught, Rules},
};

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
    exp: Option<UnixTime>,
    /// The time from which the token is valid.
    nbf: Option<UnixTime>,
    channel: String,
}

/// The interval in which a token is valid, in milliseconds since 1970. It includes the first one and excludes the last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) from_ms: Option<u64>,
    pub(super) until_ms: Option<u64>,
}

impl Validity {
    /// Rejects a token at its `exp`, and accepts it at its `nbf` (RFC 7519, sections 4.1.4 and 4.1.5).
    pub(super) fn check(self, now_unix_ms: u64) -> Result<(), TokenFault> {
        let over = self.until_ms.is_some_and(|until_ms| until_ms <= now_unix_ms);
        let early = self.from_ms.is_some_and(|from_ms| from_ms > now_unix_ms);
        if over || early { Err(TokenFault::Time) } else { Ok(()) }
    }
}

impl<'c> Claims<'c> {
    /// Parses signed claims, and checks those that both kinds of token have.
    pub(super) fn read(json: &'c [u8], kind: TokenKind) -> Result<Self, TokenFault> {
        let object = Object::read(json).map_err(|error| fault(&error))?;
        let exp = object.get("exp").map_err(|error| fault(&error))?;
        let nbf = object.get("nbf").map_err(|error| fault(&error))?;
        let channel: String = object.get("channel").map_err(|error| fault(&error))?.unwrap_or_default();
        if channel.is_empty() == (kind == TokenKind::Subscription) {
            return Err(TokenFault::Purpose);
        }
        Ok(Self { object, exp, nbf, channel })
    }

    /// The interval in which the token is valid.
    pub(super) fn validity(&self) -> Validity {
        Validity { from_ms: self.nbf.map(UnixTime::unix_ms), until_ms: self.exp.map(UnixTime::unix_ms) }
    }

    /// Checks issuer and audience against `rules`.
    pub(super) fn check(&self, rules: &Rules) -> Result<Caught, TokenFault> {
        rules.check(&self.object)
    }

    /// Converts the claims of a connection token.
    pub(super) fn into_connection(self, rules: &Rules) -> Result<ConnectionClaims, TokenFault> {
        let meta = self.object.raw("meta");
        Ok(ConnectionClaims {
            info: payload(&self.object, "info", "b64info")?,
            expires_at_ms: self.expires_at_ms()?,
            user: self.user(rules)?,
            meta: meta.map(|meta| Payload::from_json(Bytes::copy_from_slice(meta.get().as_bytes()))),
            subscriptions: subscriptions(&self.object)?,
            token: self.identity(),
        })
    }

    /// Converts the claims of a subscription token.
    pub(super) fn into_subscription(self, rules: &Rules) -> Result<SubscriptionClaims, TokenFault> {
        Ok(SubscriptionClaims {
            grant: SubscriptionGrant { expires_at_ms: self.expires_at_ms()?, ..grant(&self.object)? },
            user: self.user(rules)?,
            client: self.get("client")?.unwrap_or_default(),
            token: self.identity(),
            channel: self.channel,
        })
    }

    fn get<T: Deserialize<'c>>(&self, name: &str) -> Result<Option<T>, TokenFault> {
        get(&self.object, name)
    }

    /// The user id: text, or in a configured claim also an integer, in its original notation.
    fn user(&self, rules: &Rules) -> Result<String, TokenFault> {
        let Some(claim) = &rules.user_claim else { return Ok(self.get("sub")?.unwrap_or_default()) };
        let Some(raw) = self.object.raw(claim) else { return Ok(String::new()) };
        match raw.get() {
            text if text.starts_with('"') => serde_json::from_str(text).map_err(|error| fault(&error)),
            number if serde_json::from_str::<i128>(number).is_ok() => Ok(number.to_owned()),
            _ => Err(TokenFault::Claim),
        }
    }

    /// What revokes the token. An id that is no text counts as it is written; a time that is none is missing.
    fn identity(&self) -> TokenIdentity {
        let id = self.object.raw("jti").map(RawValue::get).unwrap_or_default();
        let issued_at: Option<UnixTime> = self.object.get("iat").ok().flatten();
        TokenIdentity {
            id: serde_json::from_str::<Box<str>>(id).unwrap_or_else(|_| id.into()),
            issued_at_ms: issued_at.map(UnixTime::unix_ms),
        }
    }

    /// `expire_at` takes precedence over `exp`; 0 means never.
    fn expires_at_ms(&self) -> Result<Option<u64>, TokenFault> {
        Ok(match self.get::<UnixTime>("expire_at")? {
            Some(at) => at.expiry_ms(),
            None => self.exp.map(UnixTime::unix_ms),
        })
    }
}

/// The base64 form takes precedence, as in Centrifugo.
fn payload(object: &Object<'_>, json: &str, base64: &str) -> Result<Option<Payload>, TokenFault> {
    match get::<String>(object, base64)?.filter(|text| !text.is_empty()) {
        Some(text) => {
            let bytes = STANDARD.decode(text).map_err(|_| TokenFault::Claim)?;
            Ok(Some(Payload::from_opaque(Bytes::from(bytes))))
        }
        None => Ok(object.raw(json).map(|json| Payload::from_json(Bytes::copy_from_slice(json.get().as_bytes())))),
    }
}

/// The claim `subs`, or else `channels`.
fn subscriptions(object: &Object<'_>) -> Result<Vec<ServerSubscription>, TokenFault> {
    let subs = get::<Object<'_>>(object, "subs")?.unwrap_or_default();
    let channels = get::<Vec<Box<str>>>(object, "channels")?.unwrap_or_default();
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
        expires_at_ms: None,
    })
}

/// The field `override`: for each option an object with a `value`.
fn overrides(object: &Object<'_>) -> Result<Overrides, TokenFault> {
    let Some(overrides) = get::<Object<'_>>(object, "override")? else { return Ok(Overrides::default()) };
    let value = |name: &str| -> Result<Option<bool>, TokenFault> {
        let Some(one) = get::<Object<'_>>(&overrides, name)? else { return Ok(None) };
        Ok(Some(get(&one, "value")?.unwrap_or_default()))
    };
    Ok(Overrides {
        presence: value("presence")?,
        join_leave: value("join_leave")?,
        force_push_join_leave: value("force_push_join_leave")?,
        force_positioning: value("force_positioning")?,
        force_recovery: value("force_recovery")?,
    })
}

fn get<'j, T: Deserialize<'j>>(object: &Object<'j>, name: &str) -> Result<Option<T>, TokenFault> {
    object.get(name).map_err(|error| fault(&error))
}

fn fault(error: &serde_json::Error) -> TokenFault {
    if error.is_data() { TokenFault::Claim } else { TokenFault::Malformed }
}
