//! Options of tokens: keys and rules.

use std::sync::Arc;

use super::{JwksOptions, PublicKey, Rules, Secret};

/// Keys and limits of tokens (`client.token.*`, `client.subscription_token.*`).
#[derive(Clone, Debug)]
pub struct TokenOptions {
    /// Keys of connection tokens.
    pub connection: TokenKeys,
    /// Keys of subscription tokens; `None` to use those of connection tokens.
    pub subscription: Option<TokenKeys>,
    /// Maximum number of tokens that wait for the verification thread or for a key set.
    pub waiting_max: usize,
    /// Maximum size of the cache of verified tokens.
    pub cache_bytes_max: usize,
}

impl Default for TokenOptions {
    /// Options without a key.
    fn default() -> Self {
        let (connection, subscription) = (TokenKeys::default(), None);
        Self { connection, subscription, waiting_max: 65_536, cache_bytes_max: 1 << 26 }
    }
}

/// Keys of one kind of token. Without a key no token is valid.
#[derive(Clone, Debug, Default)]
pub struct TokenKeys {
    /// The HMAC key.
    pub hmac: Option<Secret>,
    /// The previous HMAC key.
    pub hmac_previous: Option<Secret>,
    /// Unix time in seconds until which the previous key is valid; `None` for no limit.
    pub hmac_previous_valid_until_s: Option<u64>,
    /// The public key for RS256, RS384 and RS512.
    pub rsa: Option<PublicKey>,
    /// The public key for ES256, ES384 or ES512; its curve determines which.
    pub ecdsa: Option<PublicKey>,
    /// The source of a key set. If it is set, no other key is used.
    pub jwks: Option<Arc<JwksOptions>>,
    /// Requirements on issuer, audience and the user claim.
    pub rules: Rules,
}

impl TokenKeys {
    /// Whether there is a key.
    pub const fn has_any(&self) -> bool {
        self.hmac.is_some() || self.rsa.is_some() || self.ecdsa.is_some() || self.jwks.is_some()
    }
}
