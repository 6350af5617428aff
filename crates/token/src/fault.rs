//! Why a token is invalid.

/// Why a token is invalid. The messages are constant and contain nothing of the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenFault {
    /// Longer than [`super::TOKEN_BYTES_MAX`].
    TooLong,
    /// Not three base64url parts, the first two of them JSON objects.
    Malformed,
    /// Signed with an algorithm for which no key is configured, or unsigned.
    Algorithm,
    /// No key is configured to verify it.
    NoKey,
    /// It has no `kid`, and the key must be found in a set.
    KeyId,
    /// The set has no key with its `kid`.
    UnknownKey,
    /// The key set cannot be fetched at present.
    KeysUnavailable,
    /// Too many tokens wait for verification.
    Busy,
    /// The signature is wrong.
    Signature,
    /// Expired (`exp`), or not valid yet (`nbf`).
    Time,
    /// A claim has the wrong type or occurs twice.
    Claim,
    /// The audience (`aud`) is wrong.
    Audience,
    /// The issuer (`iss`) is wrong.
    Issuer,
    /// A subscription token in place of a connection token, or the reverse.
    Purpose,
}

impl TokenFault {
    /// All faults.
    pub const ALL: [Self; 14] = [
        Self::TooLong,
        Self::Malformed,
        Self::Algorithm,
        Self::NoKey,
        Self::KeyId,
        Self::UnknownKey,
        Self::KeysUnavailable,
        Self::Busy,
        Self::Signature,
        Self::Time,
        Self::Claim,
        Self::Audience,
        Self::Issuer,
        Self::Purpose,
    ];

    /// The constant message.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::TooLong => {
                "it is longer than 8192 bytes (8 KiB), and no setting raises this limit: put less into its claims"
            }
            Self::Malformed => "it is not a signed JSON Web Token",
            Self::Algorithm => "it is unsigned, or no key is configured for its algorithm",
            Self::NoKey => "no key is configured to verify it (client.token)",
            Self::KeyId => "its header has no key id (kid)",
            Self::UnknownKey => "the key set has no key with its key id (kid)",
            Self::KeysUnavailable => "the key set cannot be fetched at present (jwks_public_endpoint)",
            Self::Busy => "too many tokens wait to be verified (client.token_queue_limit)",
            Self::Signature => "its signature does not match a configured key",
            Self::Time => "it has expired (exp), or is not valid yet (nbf)",
            Self::Claim => "a claim has the wrong type, or occurs twice",
            Self::Audience => "it is for a different audience (aud)",
            Self::Issuer => "it is from a different issuer (iss)",
            Self::Purpose => {
                "a subscription token has to have the claim channel, and a connection token must not have it"
            }
        }
    }

    /// Whether the same token may be valid later.
    pub const fn is_temporary(self) -> bool {
        matches!(self, Self::KeysUnavailable | Self::Busy)
    }
}
