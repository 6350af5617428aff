//! Signatures with HMAC (RFC 7518, section 3.2).

use std::fmt;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Sha256, Sha384, Sha512};

use super::jws::{Algorithm, Signed, USUAL_HEADER};

/// An HMAC key, prepared for each hash function.
pub(super) struct HmacKey {
    hs256: Hmac<Sha256>,
    hs384: Hmac<Sha384>,
    hs512: Hmac<Sha512>,
}

impl HmacKey {
    pub(super) fn new(secret: &[u8]) -> Self {
        const ANY: &str = "HMAC takes keys of any length";
        Self {
            hs256: Hmac::new_from_slice(secret).expect(ANY),
            hs384: Hmac::new_from_slice(secret).expect(ANY),
            hs512: Hmac::new_from_slice(secret).expect(ANY),
        }
    }

    /// Whether this key made the signature. Compares in constant time.
    pub(super) fn has_signed(&self, signed: &Signed<'_>) -> bool {
        let (message, signature) = (signed.message.as_bytes(), signed.signature.as_slice());
        match signed.algorithm {
            Algorithm::Hs256 => self.hs256.clone().chain_update(message).verify_slice(signature).is_ok(),
            Algorithm::Hs384 => self.hs384.clone().chain_update(message).verify_slice(signature).is_ok(),
            Algorithm::Hs512 => self.hs512.clone().chain_update(message).verify_slice(signature).is_ok(),
            _ => false,
        }
    }

    /// A token with these claims, signed with HS256.
    pub(super) fn sign(&self, claims_json: &[u8]) -> String {
        let message = format!("{USUAL_HEADER}.{}", URL_SAFE_NO_PAD.encode(claims_json));
        let signature = self.hs256.clone().chain_update(message.as_bytes()).finalize().into_bytes();
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

impl fmt::Debug for HmacKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HmacKey(…)")
    }
}
