//! Public keys: RSA (RFC 7518, section 3.3), elliptic curves (section 3.4) and Ed25519 (RFC 8037), as PEM or as JSON
//! Web Keys (RFC 7517).

use aws_lc_rs::{
    encoding::AsDer as _,
    rsa::{PublicEncryptingKey, PublicKeyComponents},
    signature::{
        ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ECDSA_P521_SHA512_FIXED, ED25519, ParsedPublicKey,
        RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RsaParameters,
        VerificationAlgorithm,
    },
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use rustls::pki_types::pem::{self, SectionKind};
use serde::Deserialize;

use super::jws::{Algorithm, Signed};

/// Minimum size of an RSA key in bits. Smaller keys can be broken.
pub(super) const RSA_BITS_MIN: usize = 2_048;

/// Maximum size of an RSA key in bits. With larger keys one verification is too expensive.
pub(super) const RSA_BITS_MAX: usize = 8_192;

/// A public key with the algorithms that it supports.
#[derive(Clone, Debug)]
pub struct PublicKey {
    /// One entry per algorithm: several for RSA, one for other kinds.
    uses: Vec<(Algorithm, ParsedPublicKey)>,
}

/// Why a key cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyFault {
    /// Not PEM with one public key.
    NotPem,
    /// A public key of another kind.
    Kind,
    /// An RSA key with fewer than 2048 or more than 8192 bits.
    RsaBits,
}

impl KeyFault {
    /// The constant message.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::NotPem => "is not a public key in PEM format: include the lines with BEGIN and END",
            Self::Kind => "is a public key of a different kind: this key must match the algorithm in its name",
            Self::RsaBits => "is an RSA key of an unsupported size: use 2048 to 8192 bits",
        }
    }
}

const EC_CURVES: [(&str, Algorithm, &dyn VerificationAlgorithm); 3] = [
    ("P-256", Algorithm::Es256, &ECDSA_P256_SHA256_FIXED),
    ("P-384", Algorithm::Es384, &ECDSA_P384_SHA384_FIXED),
    ("P-521", Algorithm::Es512, &ECDSA_P521_SHA512_FIXED),
];

const RSA_HASHES: [(Algorithm, &dyn VerificationAlgorithm); 3] = [
    (Algorithm::Rs256, &RSA_PKCS1_2048_8192_SHA256),
    (Algorithm::Rs384, &RSA_PKCS1_2048_8192_SHA384),
    (Algorithm::Rs512, &RSA_PKCS1_2048_8192_SHA512),
];

impl PublicKey {
    /// An RSA key, as `PUBLIC KEY` or `RSA PUBLIC KEY`.
    ///
    /// # Errors
    /// [`KeyFault`]
    pub fn rsa_from_pem(text: &str) -> Result<Self, KeyFault> {
        let der = read_pem(text)?;
        let key = Self::rsa(&der).ok_or(KeyFault::Kind)?;
        let of_spki = PublicEncryptingKey::from_der(&der).map(|key| key.key_size_bits());
        let bits = of_spki.or_else(|_| RsaParameters::public_modulus_len(&der).map(|bits| bits as usize));
        // A key that is too small has no size here.
        let is_good = bits.is_ok_and(|bits| (RSA_BITS_MIN..=RSA_BITS_MAX).contains(&bits));
        if is_good { Ok(key) } else { Err(KeyFault::RsaBits) }
    }

    /// An elliptic-curve key. Its curve (P-256, P-384 or P-521) determines the algorithm.
    ///
    /// # Errors
    /// [`KeyFault`]
    pub fn ec_from_pem(text: &str) -> Result<Self, KeyFault> {
        let der = read_pem(text)?;
        let mut curves = EC_CURVES.iter();
        let found = curves.find_map(|(_, algorithm, rule)| Some((*algorithm, ParsedPublicKey::new(*rule, &der).ok()?)));
        found.map(|one| Self { uses: vec![one] }).ok_or(KeyFault::Kind)
    }

    fn rsa(der: &[u8]) -> Option<Self> {
        let one = |(algorithm, rule): &(Algorithm, _)| Some((*algorithm, ParsedPublicKey::new(*rule, der).ok()?));
        let uses = RSA_HASHES.iter().map(one).collect::<Option<_>>()?;
        Some(Self { uses })
    }

    /// Whether the key supports `algorithm`.
    pub(super) fn is_for(&self, algorithm: Algorithm) -> bool {
        self.uses.iter().any(|(one, _)| *one == algorithm)
    }

    /// Whether this key made the signature, with an algorithm that it supports.
    pub(super) fn has_signed(&self, signed: &Signed<'_>) -> bool {
        let Some((_, key)) = self.uses.iter().find(|(algorithm, _)| *algorithm == signed.algorithm) else {
            return false;
        };
        key.verify_sig(signed.message.as_bytes(), &signed.signature).is_ok()
    }
}

/// The first PEM section with a public key.
fn read_pem(text: &str) -> Result<Vec<u8>, KeyFault> {
    let mut rest = text.as_bytes();
    // The PEM reader below ignores PKCS #1 keys (RFC 8017, appendix A.1.1) because of their label.
    let as_rsa = text.replace("RSA PUBLIC KEY-----", "PUBLIC KEY-----");
    if as_rsa.len() != text.len() {
        rest = as_rsa.as_bytes();
    }
    loop {
        match pem::from_buf(&mut rest) {
            Ok(Some((SectionKind::PublicKey, der))) => return Ok(der),
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => return Err(KeyFault::NotPem),
        }
    }
}

/// A JSON Web Key of a set. Keys with unknown parameters are ignored.
#[derive(Deserialize)]
pub(super) struct Jwk {
    kty: String,
    kid: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    alg: Option<String>,
    n: Option<String>,
    e: Option<String>,
    crv: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl Jwk {
    /// Its `kid` and the key, if it is a public signature key of a supported kind.
    pub(super) fn usable(&self) -> Option<(Box<str>, PublicKey)> {
        let key_id = self.kid.as_deref().filter(|key_id| !key_id.is_empty())?;
        if self.purpose.as_deref().is_some_and(|purpose| purpose != "sig") {
            return None;
        }
        let mut key = match self.kty.as_str() {
            "RSA" => self.rsa()?,
            "EC" => self.ec()?,
            "OKP" => self.ed25519()?,
            _ => return None,
        };
        if let Some(alg) = &self.alg {
            let alg = Algorithm::named(alg)?;
            key.uses.retain(|(algorithm, _)| *algorithm == alg);
        }
        (!key.uses.is_empty()).then(|| (key_id.into(), key))
    }

    fn rsa(&self) -> Option<PublicKey> {
        let whole = |text: &Option<String>| {
            let bytes = URL_SAFE_NO_PAD.decode(text.as_deref()?).ok()?;
            let leading = bytes.iter().take_while(|byte| **byte == 0).count();
            bytes.get(leading..).map(<[u8]>::to_vec)
        };
        let (n, e) = (whole(&self.n)?, whole(&self.e)?);
        let bits = n.len() * 8 - n.first()?.leading_zeros() as usize;
        if !(RSA_BITS_MIN..=RSA_BITS_MAX).contains(&bits) {
            return None;
        }
        PublicKey::rsa(PublicKeyComponents { n, e }.as_der().ok()?.as_ref())
    }

    fn ec(&self) -> Option<PublicKey> {
        let (_, algorithm, rule) = EC_CURVES.iter().find(|(curve, ..)| self.crv.as_deref() == Some(curve))?;
        let (x, y) = (decode(self.x.as_deref())?, decode(self.y.as_deref())?);
        // An uncompressed point (SEC 1, section 2.3.3): both coordinates in full width.
        let point = [&[4], x.as_slice(), &y].concat();
        (x.len() == y.len()).then_some(())?;
        Some(PublicKey { uses: vec![(*algorithm, ParsedPublicKey::new(*rule, &point).ok()?)] })
    }

    fn ed25519(&self) -> Option<PublicKey> {
        let x = decode(self.x.as_deref()).filter(|x| x.len() == 32 && self.crv.as_deref() == Some("Ed25519"))?;
        Some(PublicKey { uses: vec![(Algorithm::EdDsa, ParsedPublicKey::new(&ED25519, &x).ok()?)] })
    }
}

fn decode(base64: Option<&str>) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(base64?).ok()
}
