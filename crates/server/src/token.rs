//! JSON Web Tokens (RFC 7519) that say who a client is, and what it may subscribe to.
//!
//! Verified on the shard's own thread, so there is no lock and no call to anybody: a signature over a few hundred bytes,
//! and one pass over the claims. HMAC alone (RFC 7518, section 3.2): what a header names otherwise is refused before
//! anything is computed, so that no token can choose how it is judged.

// Text from outside is read here: no way of reading may end the process.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::string_slice))]

mod claims;
mod issue;
mod key;

use std::sync::atomic::{AtomicU64, Ordering};

use dunlin_engine::event::{ConnectionClaims, SubscriptionClaims, TokenError};

pub(crate) use self::issue::issue_claims;
pub use self::issue::{Grant, issue};
use self::{
    claims::{Claims, Purpose},
    key::Key,
};
use crate::{
    config::{TokenKeys, TokenOptions},
    node::VerifyTokens,
};

/// Bytes of a token. Longer ones are not looked at.
pub const TOKEN_BYTES_MAX: usize = 8_192;

/// Judges tokens.
#[derive(Debug)]
pub struct Verifier {
    connection: Keys,
    /// `None`: those of connection tokens.
    subscription: Option<Keys>,
    /// The second after the one in which a refusal was last told.
    told_at_s: AtomicU64,
}

/// Why a token does not count. The words are fixed: nothing of the token is in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// More than [`TOKEN_BYTES_MAX`] bytes.
    TooLong,
    /// Not three parts in base64url, of which the first two are JSON objects.
    Malformed,
    /// Signed in a way that is not HMAC with SHA-2, or not at all.
    Algorithm,
    /// There is no key to verify it with.
    NoKey,
    /// Signed by somebody else.
    Signature,
    /// Past its `exp`, or before its `nbf`.
    Time,
    /// A claim is of the wrong type.
    Claim,
    /// A subscription token where a connection token is needed, or the other way.
    Purpose,
    /// It asks for server-side subscriptions or overrides, and the user would silently not get them.
    Unsupported,
}

/// The keys of one kind of token.
#[derive(Debug)]
struct Keys {
    current: Option<Key>,
    previous: Option<Key>,
    previous_valid_until_s: Option<u64>,
}

impl Verifier {
    /// With these keys.
    pub fn new(options: &TokenOptions) -> Self {
        Self {
            connection: Keys::new(&options.connection),
            subscription: options.subscription.as_ref().map(Keys::new),
            told_at_s: AtomicU64::new(0),
        }
    }

    /// What a connection token says.
    ///
    /// # Errors
    /// [`TokenError::Expired`] when the time is wrong and all else right, otherwise [`TokenError::Invalid`].
    pub fn verify_connection(&self, token: &str, now_unix_s: u64) -> Result<ConnectionClaims, TokenError> {
        self.judge_connection(token, now_unix_s).map_err(|fault| self.refuse("connection", fault, now_unix_s))
    }

    /// What a subscription token says. Whether it is this user's, and for this channel, is for the caller to compare.
    ///
    /// # Errors
    /// [`TokenError::Expired`] when the time is wrong and all else right, otherwise [`TokenError::Invalid`].
    pub fn verify_subscription(&self, token: &str, now_unix_s: u64) -> Result<SubscriptionClaims, TokenError> {
        self.judge_subscription(token, now_unix_s).map_err(|fault| self.refuse("subscription", fault, now_unix_s))
    }

    /// As [`Self::verify_connection`], and says what is wrong.
    ///
    /// # Errors
    /// What is wrong.
    pub fn judge_connection(&self, token: &str, now_unix_s: u64) -> Result<ConnectionClaims, Fault> {
        let json = self.connection.open(token, now_unix_s)?;
        Claims::read(&json, Purpose::Connection, now_unix_s)?.into_connection()
    }

    /// As [`Self::verify_subscription`], and says what is wrong.
    ///
    /// # Errors
    /// What is wrong.
    pub fn judge_subscription(&self, token: &str, now_unix_s: u64) -> Result<SubscriptionClaims, Fault> {
        let json = self.subscription.as_ref().unwrap_or(&self.connection).open(token, now_unix_s)?;
        Claims::read(&json, Purpose::Subscription, now_unix_s)?.into_subscription()
    }

    /// Tells of invalid tokens, at most once a second: the cause lies outside. Expired ones are everyday life.
    fn refuse(&self, kind: &'static str, fault: Fault, now_unix_s: u64) -> TokenError {
        if fault == Fault::Time {
            return TokenError::Expired;
        }
        let this_s = now_unix_s.saturating_add(1);
        if self.told_at_s.swap(this_s, Ordering::Relaxed) != this_s {
            tracing::info!(kind, reason = fault.reason(), "a token was refused");
        }
        TokenError::Invalid
    }
}

impl VerifyTokens for Verifier {
    fn verify_connection(&self, token: &str, now_unix_s: u64) -> Result<ConnectionClaims, TokenError> {
        Self::verify_connection(self, token, now_unix_s)
    }

    fn verify_subscription(&self, token: &str, now_unix_s: u64) -> Result<SubscriptionClaims, TokenError> {
        Self::verify_subscription(self, token, now_unix_s)
    }
}

impl Fault {
    /// What is wrong, in fixed words.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::TooLong => "it is longer than 8192 bytes",
            Self::Malformed => "it is not a signed JSON Web Token",
            Self::Algorithm => "it is not signed with HS256, HS384 or HS512",
            Self::NoKey => "no key is set to verify it with (client.token.hmac_secret_key)",
            Self::Signature => "its signature is not made with the key that is set",
            Self::Time => "it is past its exp, or before its nbf",
            Self::Claim => "a claim is of the wrong type",
            Self::Purpose => {
                "a subscription token has to have the claim channel, and a connection token must not have it"
            }
            Self::Unsupported => {
                "it has one of the claims channels, subs and override, which are not supported in this version"
            }
        }
    }
}

impl Keys {
    fn new(options: &TokenKeys) -> Self {
        Self {
            current: options.hmac.as_ref().map(|secret| Key::new(secret.reveal())),
            previous: options.hmac_previous.as_ref().map(|secret| Key::new(secret.reveal())),
            previous_valid_until_s: options.hmac_previous_valid_until_s,
        }
    }

    /// The claims of a token that somebody with a key has signed, as JSON.
    fn open(&self, token: &str, now_unix_s: u64) -> Result<Vec<u8>, Fault> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(Fault::TooLong);
        }
        let current = self.current.as_ref().ok_or(Fault::NoKey)?;
        let signed = key::Signed::parse(token)?;
        let previous_counts = self.previous_valid_until_s.is_none_or(|until_s| now_unix_s <= until_s);
        let previous = self.previous.as_ref().filter(|_| previous_counts);
        if current.has_signed(&signed) || previous.is_some_and(|previous| previous.has_signed(&signed)) {
            signed.claims()
        } else {
            Err(Fault::Signature)
        }
    }
}

#[cfg(test)]
mod tests;
