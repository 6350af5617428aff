//! What is wrong with a token.

/// Why a token does not count. The words are fixed: nothing of the token is in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// More than [`super::TOKEN_BYTES_MAX`] bytes.
    TooLong,
    /// Not three parts in base64url, of which the first two are JSON objects.
    Malformed,
    /// Signed in a way that no key is set for, or not at all.
    Algorithm,
    /// There is no key to verify it with.
    NoKey,
    /// It does not name its key, and that is to be found in a set.
    KeyId,
    /// The set has no key of the name that it gives.
    UnknownKey,
    /// The set of keys cannot be fetched now.
    KeysUnavailable,
    /// Too many tokens wait to be verified.
    Busy,
    /// Signed by somebody else.
    Signature,
    /// Past its `exp`, or before its `nbf`.
    Time,
    /// A claim is of the wrong type, or stands there twice.
    Claim,
    /// It was made for somebody else.
    Audience,
    /// It was made by somebody else.
    Issuer,
    /// A subscription token where a connection token is needed, or the other way.
    Purpose,
}

impl Fault {
    /// Every fault.
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

    /// What is wrong, in fixed words.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::TooLong => "it is longer than 8192 bytes",
            Self::Malformed => "it is not a signed JSON Web Token",
            Self::Algorithm => "it is signed in a way that no configured key is for, or not at all",
            Self::NoKey => "no key is set to verify it with (client.token)",
            Self::KeyId => "its header does not name its key (kid)",
            Self::UnknownKey => "the set of keys has none of the name that its header gives (kid)",
            Self::KeysUnavailable => "the set of keys cannot be fetched now (jwks_public_endpoint)",
            Self::Busy => "too many tokens wait to be verified (client.token_queue_limit)",
            Self::Signature => "its signature is not made with a key that is set",
            Self::Time => "it is past its exp, or before its nbf",
            Self::Claim => "a claim is of the wrong type, or stands there twice",
            Self::Audience => "it is made for another audience (aud)",
            Self::Issuer => "it is made by another issuer (iss)",
            Self::Purpose => {
                "a subscription token has to have the claim channel, and a connection token must not have it"
            }
        }
    }

    /// Whether the same token may count a moment later.
    pub const fn is_temporary(self) -> bool {
        matches!(self, Self::KeysUnavailable | Self::Busy)
    }
}
