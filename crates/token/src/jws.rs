//! The parts of a token (RFC 7515, section 7.1). Nothing in them is trusted before the signature is verified.

use std::borrow::Cow;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

use super::{TokenFault, object::Object};

/// `{"alg":"HS256","typ":"JWT"}` in base64url. Nearly every HMAC token begins with it.
pub(super) const USUAL_HEADER: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9";

/// A token split into its parts.
pub(super) struct Signed<'t> {
    pub(super) algorithm: Algorithm,
    /// The `kid` of the header.
    pub(super) key_id: Option<Box<str>>,
    /// Header and claims in base64url: the signed bytes.
    pub(super) message: &'t str,
    claims_base64: &'t str,
    pub(super) signature: Vec<u8>,
}

/// The algorithm in the header. The configured keys determine which algorithms are valid, never the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    Hs256,
    Hs384,
    Hs512,
    Rs256,
    Rs384,
    Rs512,
    Es256,
    Es384,
    Es512,
    EdDsa,
}

impl<'t> Signed<'t> {
    pub(super) fn parse(token: &'t str) -> Result<Self, TokenFault> {
        let (message, signature_base64) = token.rsplit_once('.').ok_or(TokenFault::Malformed)?;
        let (header_base64, claims_base64) = message.split_once('.').ok_or(TokenFault::Malformed)?;
        if claims_base64.contains('.') {
            return Err(TokenFault::Malformed);
        }
        let (algorithm, key_id) =
            if header_base64 == USUAL_HEADER { (Algorithm::Hs256, None) } else { read_header(header_base64)? };
        let signature = URL_SAFE_NO_PAD.decode(signature_base64).map_err(|_| TokenFault::Malformed)?;
        Ok(Self { algorithm, key_id, message, claims_base64, signature })
    }

    /// The claims as JSON.
    pub(super) fn claims(&self) -> Result<Vec<u8>, TokenFault> {
        URL_SAFE_NO_PAD.decode(self.claims_base64).map_err(|_| TokenFault::Malformed)
    }
}

/// Parses `alg`, `kid` and `crit` of a header, and ignores other fields that can name a key (`jku`, `jwk`, `x5u`,
/// `x5c`). Rejects duplicate names.
fn read_header(header_base64: &str) -> Result<(Algorithm, Option<Box<str>>), TokenFault> {
    let json = URL_SAFE_NO_PAD.decode(header_base64).map_err(|_| TokenFault::Malformed)?;
    let header = Object::read(&json).map_err(|_| TokenFault::Malformed)?;
    let name = header.get::<Cow<'_, str>>("alg").map_err(|_| TokenFault::Malformed)?.ok_or(TokenFault::Malformed)?;
    // `crit` lists extensions that a verifier must support or reject (RFC 7515, section 4.1.11). Dunlin supports none.
    if header.has("crit") {
        return Err(TokenFault::Algorithm);
    }
    let key_id = header.get::<Box<str>>("kid").map_err(|_| TokenFault::Malformed)?;
    Ok((Algorithm::named(&name).ok_or(TokenFault::Algorithm)?, key_id))
}

impl Algorithm {
    /// The algorithm with this name (RFC 7518, section 3.1, and RFC 8037).
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "HS256" => Self::Hs256,
            "HS384" => Self::Hs384,
            "HS512" => Self::Hs512,
            "RS256" => Self::Rs256,
            "RS384" => Self::Rs384,
            "RS512" => Self::Rs512,
            "ES256" => Self::Es256,
            "ES384" => Self::Es384,
            "ES512" => Self::Es512,
            "EdDSA" => Self::EdDsa,
            _ => return None,
        })
    }

    /// Whether the algorithm uses a shared key.
    pub(super) const fn is_hmac(self) -> bool {
        matches!(self, Self::Hs256 | Self::Hs384 | Self::Hs512)
    }
}
