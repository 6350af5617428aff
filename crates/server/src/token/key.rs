//! Signatures (RFC 7515): from the text of a token to claims that are known to be somebody's.

use std::{borrow::Cow, fmt};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::{Deserialize, de::IgnoredAny};
use sha2::{Sha256, Sha384, Sha512};

use super::Fault;

/// `{"alg":"HS256","typ":"JWT"}`, which is how nearly every token begins.
const USUAL_HEADER: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9";

/// The longest signature: that of HS512.
const SIGNATURE_BYTES_MAX: usize = 64;

/// An HMAC key, already mixed into the hashes that can be asked for.
pub(super) struct Key {
    hs256: Hmac<Sha256>,
    hs384: Hmac<Sha384>,
    hs512: Hmac<Sha512>,
}

/// A token taken apart. Nothing in it is to be believed before a key has signed it.
pub(super) struct Signed<'t> {
    algorithm: Algorithm,
    /// Header and claims as they stand in the token: what was signed.
    message: &'t str,
    claims_base64: &'t str,
    signature: [u8; SIGNATURE_BYTES_MAX],
    signature_len: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Algorithm {
    Hs256,
    Hs384,
    Hs512,
}

#[derive(Deserialize)]
struct Header<'h> {
    #[serde(borrow)]
    alg: Cow<'h, str>,
    /// Extensions that a verifier has to understand or refuse (RFC 7515, section 4.1.11); we know none.
    crit: Option<IgnoredAny>,
}

impl Key {
    pub(super) fn new(secret: &[u8]) -> Self {
        const ANY: &str = "HMAC takes keys of any length";
        Self {
            hs256: Hmac::new_from_slice(secret).expect(ANY),
            hs384: Hmac::new_from_slice(secret).expect(ANY),
            hs512: Hmac::new_from_slice(secret).expect(ANY),
        }
    }

    /// Whether this key made the signature. Takes as long for a wrong one as for the right one.
    pub(super) fn has_signed(&self, signed: &Signed<'_>) -> bool {
        let message = signed.message.as_bytes();
        let Some(signature) = signed.signature.get(..signed.signature_len) else { return false };
        match signed.algorithm {
            Algorithm::Hs256 => self.hs256.clone().chain_update(message).verify_slice(signature),
            Algorithm::Hs384 => self.hs384.clone().chain_update(message).verify_slice(signature),
            Algorithm::Hs512 => self.hs512.clone().chain_update(message).verify_slice(signature),
        }
        .is_ok()
    }

    /// The token of these claims, with HS256.
    pub(super) fn sign(&self, claims_json: &[u8]) -> String {
        let message = format!("{USUAL_HEADER}.{}", URL_SAFE_NO_PAD.encode(claims_json));
        let signature = self.hs256.clone().chain_update(message.as_bytes()).finalize().into_bytes();
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

impl<'t> Signed<'t> {
    pub(super) fn parse(token: &'t str) -> Result<Self, Fault> {
        let (message, signature_base64) = token.rsplit_once('.').ok_or(Fault::Malformed)?;
        let (header_base64, claims_base64) = message.split_once('.').ok_or(Fault::Malformed)?;
        if claims_base64.contains('.') {
            return Err(Fault::Malformed);
        }
        let algorithm =
            if header_base64 == USUAL_HEADER { Algorithm::Hs256 } else { Algorithm::of_header(header_base64)? };
        let mut signature = [0; SIGNATURE_BYTES_MAX];
        let signature_len =
            URL_SAFE_NO_PAD.decode_slice(signature_base64, &mut signature).map_err(|_| Fault::Malformed)?;
        Ok(Self { algorithm, message, claims_base64, signature, signature_len })
    }

    pub(super) fn claims(&self) -> Result<Vec<u8>, Fault> {
        URL_SAFE_NO_PAD.decode(self.claims_base64).map_err(|_| Fault::Malformed)
    }
}

impl Algorithm {
    fn of_header(header_base64: &str) -> Result<Self, Fault> {
        let json = URL_SAFE_NO_PAD.decode(header_base64).map_err(|_| Fault::Malformed)?;
        let header: Header<'_> = serde_json::from_slice(&json).map_err(|_| Fault::Malformed)?;
        match &*header.alg {
            _ if header.crit.is_some() => Err(Fault::Algorithm),
            "HS256" => Ok(Self::Hs256),
            "HS384" => Ok(Self::Hs384),
            "HS512" => Ok(Self::Hs512),
            _ => Err(Fault::Algorithm),
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}
