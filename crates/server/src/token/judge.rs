//! What can be said about a token with the keys at hand.

use std::sync::Arc;

use super::{
    Fault, TOKEN_BYTES_MAX,
    cache::{Cache, Fingerprint},
    claims::{Claims, Purpose, Said, Validity},
    counters::TokenCounters,
    jwks::JwksOptions,
    key::Key,
    public_key::PublicKey,
    rules::Rules,
    signed::{Algorithm, Signed},
};
use crate::config::{TokenKeys, TokenOptions};

/// What a judgement comes to on the spot.
#[derive(Debug)]
pub(super) enum Verdict {
    /// This.
    Now(Result<Arc<Said>, Fault>),
    /// Nothing: it takes a signature by a public key, or a key that is not here.
    Elsewhere,
}

/// Keys, rules, and what was judged before. Shared by the shards and the place where signatures are checked.
#[derive(Debug)]
pub(super) struct Judge {
    connection: Keys,
    /// `None`: those of connection tokens.
    subscription: Option<Keys>,
    pub(super) cache: Cache,
    pub(super) counters: TokenCounters,
}

/// The keys of one kind of token.
#[derive(Debug)]
pub(super) struct Keys {
    hmac: Option<Key>,
    hmac_previous: Option<Key>,
    hmac_previous_valid_until_s: Option<u64>,
    rsa: Option<PublicKey>,
    ec: Option<PublicKey>,
    pub(super) jwks: Option<Arc<JwksOptions>>,
    pub(super) rules: Rules,
}

/// What a signature has to be checked with: decided by the keys that are set, and by what the header claims only as far as
/// it chooses among them.
pub(super) enum Method<'k> {
    Hmac(&'k Key),
    Public(&'k PublicKey),
    /// A key of this name out of a set.
    KeySet(&'k Arc<JwksOptions>, Box<str>),
}

impl Judge {
    pub(super) fn new(options: &TokenOptions) -> Self {
        Self {
            connection: Keys::new(&options.connection),
            subscription: options.subscription.as_ref().map(Keys::new),
            cache: Cache::new(options.cache_bytes_max),
            counters: TokenCounters::default(),
        }
    }

    pub(super) fn keys(&self, purpose: Purpose) -> &Keys {
        match purpose {
            Purpose::Connection => &self.connection,
            Purpose::Subscription => self.subscription.as_ref().unwrap_or(&self.connection),
        }
    }

    /// Whether there are keys with which a token is judged elsewhere.
    pub(super) fn needs_place(&self) -> bool {
        [Some(&self.connection), self.subscription.as_ref()].into_iter().flatten().any(Keys::has_public)
    }

    /// What can be said at once: HMAC and what is known already. It takes microseconds and asks nobody.
    pub(super) fn judge(&self, purpose: Purpose, token: &str, now_unix_s: u64) -> Verdict {
        self.judge_cheaply(purpose, token, now_unix_s).unwrap_or_else(|fault| Verdict::Now(Err(fault)))
    }

    fn judge_cheaply(&self, purpose: Purpose, token: &str, now_unix_s: u64) -> Result<Verdict, Fault> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(Fault::TooLong);
        }
        let keys = self.keys(purpose);
        let signed = Signed::parse(token)?;
        if let Method::Hmac(key) = keys.method(&signed)? {
            let signed_by_current = key.has_signed(&signed);
            if !(signed_by_current || keys.previous(now_unix_s).is_some_and(|previous| previous.has_signed(&signed))) {
                return Err(Fault::Signature);
            }
            let (said, _) = keys.believe(purpose, &signed, now_unix_s)?;
            return Ok(Verdict::Now(Ok(Arc::new(said))));
        }
        let known = self.cache.get(&Fingerprint::of(purpose, token), now_unix_s);
        self.counters.count_look_up(known.is_some());
        Ok(known.map_or(Verdict::Elsewhere, Verdict::Now))
    }

    /// Checks the signature with this key, and remembers what is good. The dear part.
    pub(super) fn verify(
        &self,
        purpose: Purpose,
        token: &str,
        key: &PublicKey,
        now_unix_s: u64,
        again_at_s: u64,
    ) -> Result<Arc<Said>, Fault> {
        let signed = Signed::parse(token)?;
        if !key.is_for(signed.algorithm) {
            return Err(Fault::Algorithm);
        }
        self.counters.count_signature();
        if !key.has_signed(&signed) {
            return Err(Fault::Signature);
        }
        let (said, validity) = self.keys(purpose).believe(purpose, &signed, now_unix_s)?;
        let said = Arc::new(said);
        let fingerprint = Fingerprint::of(purpose, token);
        self.cache.remember(fingerprint, Arc::clone(&said), validity, again_at_s, token.len());
        Ok(said)
    }
}

impl Keys {
    fn new(options: &TokenKeys) -> Self {
        Self {
            hmac: options.hmac.as_ref().map(|secret| Key::new(secret.reveal())),
            hmac_previous: options.hmac_previous.as_ref().map(|secret| Key::new(secret.reveal())),
            hmac_previous_valid_until_s: options.hmac_previous_valid_until_s,
            rsa: options.rsa.clone(),
            ec: options.ecdsa.clone(),
            jwks: options.jwks.clone(),
            rules: options.rules.clone(),
        }
    }

    fn has_public(&self) -> bool {
        self.rsa.is_some() || self.ec.is_some() || self.jwks.is_some()
    }

    fn previous(&self, now_unix_s: u64) -> Option<&Key> {
        let counts = self.hmac_previous_valid_until_s.is_none_or(|until_s| now_unix_s <= until_s);
        self.hmac_previous.as_ref().filter(|_| counts)
    }

    /// As Centrifugo does: where key sets are fetched, no other key counts.
    pub(super) fn method(&self, signed: &Signed<'_>) -> Result<Method<'_>, Fault> {
        let missing = if self.hmac.is_some() || self.has_public() { Fault::Algorithm } else { Fault::NoKey };
        if let Some(jwks) = &self.jwks {
            if signed.algorithm.is_hmac() {
                return Err(Fault::Algorithm);
            }
            let key_id = signed.key_id.as_ref().filter(|key_id| !key_id.is_empty()).ok_or(Fault::KeyId)?;
            return Ok(Method::KeySet(jwks, key_id.clone()));
        }
        match signed.algorithm {
            Algorithm::Hs256 | Algorithm::Hs384 | Algorithm::Hs512 => self.hmac.as_ref().map(Method::Hmac),
            Algorithm::Rs256 | Algorithm::Rs384 | Algorithm::Rs512 => self.rsa.as_ref().map(Method::Public),
            algorithm => self.ec.as_ref().filter(|key| key.is_for(algorithm)).map(Method::Public),
        }
        .ok_or(missing)
    }

    /// What a token says whose signature is right.
    fn believe(&self, purpose: Purpose, signed: &Signed<'_>, now_unix_s: u64) -> Result<(Said, Validity), Fault> {
        let json = signed.claims()?;
        let claims = Claims::read(&json, purpose)?;
        claims.check(&self.rules)?;
        let validity = claims.validity();
        validity.check(now_unix_s)?;
        let said = match purpose {
            Purpose::Connection => Said::Connection(claims.into_connection(&self.rules)?),
            Purpose::Subscription => Said::Subscription(claims.into_subscription(&self.rules)?),
        };
        Ok((said, validity))
    }
}
