//! Verifies tokens with the keys that are available locally.

use std::sync::{Arc, PoisonError, RwLock};

use super::{
    OnTokenEvent, TOKEN_BYTES_MAX, TokenFault, TokenKeys, TokenKind, TokenOptions,
    cache::{Cache, Fingerprint},
    claims::{Claims, Validity, VerifiedClaims},
    counters::TokenCounters,
    jwks::JwksOptions,
    jws::{Algorithm, Signed},
    public_key::PublicKey,
    rules::Rules,
    signature::HmacKey,
};

/// The result of a local verification.
#[derive(Debug)]
pub(super) enum TokenVerdict {
    /// The verification is complete.
    Now(Result<Arc<VerifiedClaims>, TokenFault>),
    /// The token needs a public-key verification or a key that is not available locally.
    Elsewhere,
}

/// Keys, rules and the cache of verified tokens. The shards and the verification thread share it.
#[derive(Debug)]
pub(super) struct Judge {
    /// Read once per token; replaced when the configuration is reloaded.
    ring: RwLock<Arc<KeyRing>>,
    pub(super) cache: Cache,
    pub(super) counters: TokenCounters,
    pub(super) on_event: OnTokenEvent,
}

#[derive(Debug)]
pub(super) struct KeyRing {
    connection: Keys,
    /// `None`: the keys of connection tokens apply.
    subscription: Option<Keys>,
}

/// The keys of one kind of token.
#[derive(Debug)]
pub(super) struct Keys {
    hmac: Option<HmacKey>,
    hmac_previous: Option<HmacKey>,
    hmac_previous_valid_until_s: Option<u64>,
    rsa: Option<PublicKey>,
    ec: Option<PublicKey>,
    pub(super) jwks: Option<Arc<JwksOptions>>,
    pub(super) rules: Rules,
}

/// The key for a signature. The configured keys determine it; the header only selects one of them.
pub(super) enum Method<'k> {
    Hmac(&'k HmacKey),
    Public(&'k PublicKey),
    /// The key of a set with this `kid`.
    KeySet(&'k Arc<JwksOptions>, Box<str>),
}

impl Judge {
    pub(super) fn new(options: &TokenOptions, on_event: OnTokenEvent) -> Self {
        Self {
            ring: RwLock::new(Arc::new(KeyRing::new(options))),
            cache: Cache::new(options.cache_bytes_max),
            counters: TokenCounters::default(),
            on_event,
        }
    }

    /// The current keys.
    pub(super) fn ring(&self) -> Arc<KeyRing> {
        Arc::clone(&self.ring.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the keys, and clears the cache of tokens that the previous keys verified.
    pub(super) fn replace_ring(&self, ring: KeyRing) {
        *self.ring.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(ring);
        self.cache.clear();
    }

    /// Verifies a token with HMAC keys and the cache only. Takes microseconds and does not block.
    pub(super) fn judge(&self, kind: TokenKind, token: &str, now_unix_ms: u64) -> TokenVerdict {
        self.judge_cheaply(kind, token, now_unix_ms).unwrap_or_else(|fault| TokenVerdict::Now(Err(fault)))
    }

    fn judge_cheaply(&self, kind: TokenKind, token: &str, now_unix_ms: u64) -> Result<TokenVerdict, TokenFault> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(TokenFault::TooLong);
        }
        let ring = self.ring();
        let keys = ring.keys(kind);
        let signed = Signed::parse(token)?;
        if let Method::Hmac(key) = keys.method(&signed)? {
            let signed_by_current = key.has_signed(&signed);
            if !(signed_by_current || keys.previous(now_unix_ms).is_some_and(|previous| previous.has_signed(&signed))) {
                return Err(TokenFault::Signature);
            }
            let (verified, _) = keys.verified_claims(kind, &signed, now_unix_ms)?;
            return Ok(TokenVerdict::Now(Ok(Arc::new(verified))));
        }
        let known = self.cache.get(&Fingerprint::of(kind, token), now_unix_ms);
        self.counters.count_look_up(known.is_some());
        Ok(known.map_or(TokenVerdict::Elsewhere, TokenVerdict::Now))
    }

    /// Verifies the signature with this key, and caches a valid token. This is the expensive part.
    pub(super) fn verify(
        &self,
        kind: TokenKind,
        token: &str,
        key: &PublicKey,
        now_unix_ms: u64,
        again_at_ms: u64,
    ) -> Result<Arc<VerifiedClaims>, TokenFault> {
        let signed = Signed::parse(token)?;
        if !key.is_for(signed.algorithm) {
            return Err(TokenFault::Algorithm);
        }
        self.counters.count_signature();
        if !key.has_signed(&signed) {
            return Err(TokenFault::Signature);
        }
        let ring = self.ring();
        let (verified, validity) = ring.keys(kind).verified_claims(kind, &signed, now_unix_ms)?;
        let verified = Arc::new(verified);
        let fingerprint = Fingerprint::of(kind, token);
        self.cache.remember(fingerprint, Arc::clone(&verified), validity, again_at_ms, token.len());
        if !Arc::ptr_eq(&ring, &self.ring()) {
            // The keys were replaced in the meantime, perhaps after the cache was cleared. A token verified by the
            // previous keys must not stay in the cache.
            self.cache.clear();
        }
        Ok(verified)
    }
}

impl KeyRing {
    pub(super) fn new(options: &TokenOptions) -> Self {
        Self { connection: Keys::new(&options.connection), subscription: options.subscription.as_ref().map(Keys::new) }
    }

    pub(super) fn keys(&self, kind: TokenKind) -> &Keys {
        match kind {
            TokenKind::Connection => &self.connection,
            TokenKind::Subscription => self.subscription.as_ref().unwrap_or(&self.connection),
        }
    }

    /// Whether the keys require the verification thread.
    pub(super) fn needs_place(&self) -> bool {
        [Some(&self.connection), self.subscription.as_ref()].into_iter().flatten().any(Keys::has_public)
    }
}

impl Keys {
    fn new(options: &TokenKeys) -> Self {
        Self {
            hmac: options.hmac.as_ref().map(|secret| HmacKey::new(secret.reveal())),
            hmac_previous: options.hmac_previous.as_ref().map(|secret| HmacKey::new(secret.reveal())),
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

    fn previous(&self, now_unix_ms: u64) -> Option<&HmacKey> {
        let counts = self.hmac_previous_valid_until_s.is_none_or(|until_s| now_unix_ms / 1_000 <= until_s);
        self.hmac_previous.as_ref().filter(|_| counts)
    }

    /// As in Centrifugo: if a key set is configured, no other key is used.
    pub(super) fn method(&self, signed: &Signed<'_>) -> Result<Method<'_>, TokenFault> {
        let missing = if self.hmac.is_some() || self.has_public() { TokenFault::Algorithm } else { TokenFault::NoKey };
        if let Some(jwks) = &self.jwks {
            if signed.algorithm.is_hmac() {
                return Err(TokenFault::Algorithm);
            }
            let key_id = signed.key_id.as_ref().filter(|key_id| !key_id.is_empty()).ok_or(TokenFault::KeyId)?;
            return Ok(Method::KeySet(jwks, key_id.clone()));
        }
        match signed.algorithm {
            Algorithm::Hs256 | Algorithm::Hs384 | Algorithm::Hs512 => self.hmac.as_ref().map(Method::Hmac),
            Algorithm::Rs256 | Algorithm::Rs384 | Algorithm::Rs512 => self.rsa.as_ref().map(Method::Public),
            algorithm => self.ec.as_ref().filter(|key| key.is_for(algorithm)).map(Method::Public),
        }
        .ok_or(missing)
    }

    /// The claims of a token with a valid signature.
    fn verified_claims(
        &self,
        kind: TokenKind,
        signed: &Signed<'_>,
        now_unix_ms: u64,
    ) -> Result<(VerifiedClaims, Validity), TokenFault> {
        let json = signed.claims()?;
        let claims = Claims::read(&json, kind)?;
        claims.check(&self.rules)?;
        let validity = claims.validity();
        validity.check(now_unix_ms)?;
        let verified = match kind {
            TokenKind::Connection => VerifiedClaims::Connection(claims.into_connection(&self.rules)?),
            TokenKind::Subscription => VerifiedClaims::Subscription(claims.into_subscription(&self.rules)?),
        };
        Ok((verified, validity))
    }
}
