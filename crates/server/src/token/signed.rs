//! The parts of a token (RFC 7515, section 7.1), taken apart. Nothing in them is to be believed before a key has signed it.

use std::borrow::Cow;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

use super::{Fault, object::Object};

/// `{"alg":"HS256","typ":"JWT"}`, which is how nearly every HMAC token begins.
pub(super) const USUAL_HEADER: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9";

/// A token taken apart.
pub(super) struct Signed<'t> {
    pub(super) algorithm: Algorithm,
    /// The name of the key that is said to have signed it.
    pub(super) key_id: Option<Box<str>>,
    /// Header and claims as they stand in the token: what was signed.
    pub(super) message: &'t str,
    claims_base64: &'t str,
    pub(super) signature: Vec<u8>,
}

/// How a token says that it is signed. Which of these count is decided by the keys that are set, never by the token.
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
    pub(super) fn parse(token: &'t str) -> Result<Self, Fault> {
        let (message, signature_base64) = token.rsplit_once('.').ok_or(Fault::Malformed)?;
        let (header_base64, claims_base64) = message.split_once('.').ok_or(Fault::Malformed)?;
        if claims_base64.contains('.') {
            return Err(Fault::Malformed);
        }
        let (algorithm, key_id) =
            if header_base64 == USUAL_HEADER { (Algorithm::Hs256, None) } else { read_header(header_base64)? };
        let signature = URL_SAFE_NO_PAD.decode(signature_base64).map_err(|_| Fault::Malformed)?;
        Ok(Self { algorithm, key_id, message, claims_base64, signature })
    }

    /// The claims as JSON.
    pub(super) fn claims(&self) -> Result<Vec<u8>, Fault> {
        URL_SAFE_NO_PAD.decode(self.claims_base64).map_err(|_| Fault::Malformed)
    }
}

/// Of a header only these are looked at: `alg`, `kid` and `crit`. What else it may carry to name a key (`jku`, `jwk`, `x5u`,
/// `x5c`) is not. A name that stands there twice is refused, whatever it is.
fn read_header(header_base64: &str) -> Result<(Algorithm, Option<Box<str>>), Fault> {
    let json = URL_SAFE_NO_PAD.decode(header_base64).map_err(|_| Fault::Malformed)?;
    let header = Object::read(&json).map_err(|_| Fault::Malformed)?;
    let name = header.get::<Cow<'_, str>>("alg").map_err(|_| Fault::Malformed)?.ok_or(Fault::Malformed)?;
    // Extensions that a verifier has to understand or refuse (RFC 7515, section 4.1.11); we know none.
    if header.has("crit") {
        return Err(Fault::Algorithm);
    }
    let key_id = header.get::<Box<str>>("kid").map_err(|_| Fault::Malformed)?;
    Ok((Algorithm::named(&name).ok_or(Fault::Algorithm)?, key_id))
}

impl Algorithm {
    /// Of this name (RFC 7518, section 3.1, and RFC 8037).
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

    /// Whether it takes a key that both sides know.
    pub(super) const fn is_hmac(self) -> bool {
        matches!(self, Self::Hs256 | Self::Hs384 | Self::Hs512)
    }
}
