//! Public-key signatures: each family of algorithms, and invalid variants.

use aws_lc_rs::{
    encoding::AsDer as _,
    rand::SystemRandom,
    rsa::{KeyPair as RsaKeyPair, KeySize},
    signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, ECDSA_P521_SHA512_FIXED_SIGNING,
        EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384,
        RSA_PKCS1_SHA512, RsaEncoding,
    },
};
use base64::engine::general_purpose::STANDARD;

use super::*;

/// A key that can sign, and how it is published.
pub(super) enum Signer {
    Rsa(Box<RsaKeyPair>),
    Ec(EcdsaKeyPair, &'static str),
    Ed(Ed25519KeyPair),
}

impl Signer {
    pub(super) fn rsa(size: KeySize) -> Self {
        Self::Rsa(Box::new(RsaKeyPair::generate(size).unwrap()))
    }

    pub(super) fn ec(curve: &'static str) -> Self {
        let algorithm: &'static EcdsaSigningAlgorithm = match curve {
            "P-256" => &ECDSA_P256_SHA256_FIXED_SIGNING,
            "P-384" => &ECDSA_P384_SHA384_FIXED_SIGNING,
            _ => &ECDSA_P521_SHA512_FIXED_SIGNING,
        };
        Self::Ec(EcdsaKeyPair::generate(algorithm).unwrap(), curve)
    }

    pub(super) fn ed() -> Self {
        Self::Ed(Ed25519KeyPair::generate().unwrap())
    }

    /// The token of these claims, under this header.
    pub(super) fn sign(&self, header: &str, claims: &str) -> String {
        let message = format!("{}.{}", encode(header), encode(claims));
        let random = SystemRandom::new();
        let signature = match self {
            Self::Rsa(key) => {
                let padding: &'static dyn RsaEncoding = match () {
                    () if header.contains("384") => &RSA_PKCS1_SHA384,
                    () if header.contains("512") => &RSA_PKCS1_SHA512,
                    () => &RSA_PKCS1_SHA256,
                };
                let mut signature = vec![0; key.public_modulus_len()];
                key.sign(padding, &random, message.as_bytes(), &mut signature).unwrap();
                signature
            }
            Self::Ec(key, _) => key.sign(&random, message.as_bytes()).unwrap().as_ref().to_vec(),
            Self::Ed(key) => key.sign(message.as_bytes()).as_ref().to_vec(),
        };
        format!("{message}.{}", encode(signature))
    }

    /// The public key as PEM.
    pub(super) fn pem(&self) -> String {
        let der = match self {
            Self::Rsa(key) => key.public_key().as_der().unwrap().as_ref().to_vec(),
            Self::Ec(key, _) => key.public_key().as_der().unwrap().as_ref().to_vec(),
            Self::Ed(key) => key.public_key().as_der().unwrap().as_ref().to_vec(),
        };
        pem_of("PUBLIC KEY", &der)
    }

    /// The public key as a JSON Web Key of this name.
    pub(super) fn jwk(&self, key_id: &str) -> serde_json::Value {
        match self {
            Self::Rsa(key) => {
                // A sequence of two numbers (RFC 8017, appendix A.1.1): n of 2048 bits with a zero before it, and 65537.
                let der = key.public_key().as_ref();
                let (n, e) = (&der[9..265], &der[267..270]);
                serde_json::json!({"kty": "RSA", "use": "sig", "kid": key_id, "n": encode(n), "e": encode(e)})
            }
            Self::Ec(key, curve) => {
                let point = &key.public_key().as_ref()[1..];
                let (x, y) = point.split_at(point.len() / 2);
                serde_json::json!({"kty": "EC", "kid": key_id, "crv": curve, "x": encode(x), "y": encode(y)})
            }
            Self::Ed(key) => serde_json::json!({
                "kty": "OKP", "use": "sig", "alg": "EdDSA", "kid": key_id, "crv": "Ed25519",
                "x": encode(key.public_key().as_ref()),
            }),
        }
    }
}

fn pem_of(kind: &str, der: &[u8]) -> String {
    let base64 = STANDARD.encode(der);
    let lines: Vec<_> = base64.as_bytes().chunks(64).map(|line| str::from_utf8(line).unwrap()).collect();
    format!("-----BEGIN {kind}-----\n{}\n-----END {kind}-----\n", lines.join("\n"))
}

fn header(alg: &str) -> String {
    format!(r#"{{"alg":"{alg}","typ":"JWT"}}"#)
}

fn with_rsa(pem: &str) -> Verifier {
    with_keys(TokenKeys { rsa: Some(PublicKey::rsa_from_pem(pem).unwrap()), ..TokenKeys::default() })
}

fn with_ec(pem: &str) -> Verifier {
    with_keys(TokenKeys { ecdsa: Some(PublicKey::ec_from_pem(pem).unwrap()), ..TokenKeys::default() })
}

/// Signatures by public keys are checked under the real clock.
const CLAIMS: &str = r#"{"sub":"42","exp":4000000000}"#;

#[test]
fn rsa_verifies_with_its_three_hashes_and_no_other() {
    let signer = Signer::rsa(KeySize::Rsa2048);
    let verifier = with_rsa(&signer.pem());
    for alg in ["RS256", "RS384", "RS512"] {
        let token = signer.sign(&header(alg), CLAIMS);
        assert_eq!(verifier.judge_connection(&token, NOW_MS).unwrap().user, "42", "{alg}");
        let other = Signer::rsa(KeySize::Rsa2048).sign(&header(alg), CLAIMS);
        assert_eq!(verifier.judge_connection(&other, NOW_MS).err(), Some(TokenFault::Signature), "{alg}");
    }
    // Signed with one hash, said to be another.
    let token = signer.sign(&header("RS256"), CLAIMS);
    let (_, rest) = token.split_once('.').unwrap();
    let forged = format!("{}.{rest}", encode(header("RS512")));
    assert_eq!(verifier.judge_connection(&forged, NOW_MS).err(), Some(TokenFault::Signature));
    for alg in ["PS256", "RS1", "ES256", "EdDSA", "none"] {
        let token = signer.sign(&header(alg), CLAIMS);
        assert_eq!(verifier.judge_connection(&token, NOW_MS).err(), Some(TokenFault::Algorithm), "{alg}");
    }
}

#[test]
fn each_curve_verifies_with_its_own_hash() {
    for (curve, alg) in [("P-256", "ES256"), ("P-384", "ES384"), ("P-521", "ES512")] {
        let signer = Signer::ec(curve);
        let verifier = with_ec(&signer.pem());
        let token = signer.sign(&header(alg), CLAIMS);
        assert_eq!(verifier.judge_connection(&token, NOW_MS).unwrap().user, "42", "{alg}");
        let other = Signer::ec(curve).sign(&header(alg), CLAIMS);
        assert_eq!(verifier.judge_connection(&other, NOW_MS).err(), Some(TokenFault::Signature), "{alg}");
        for other in ["ES256", "ES384", "ES512"].into_iter().filter(|other| *other != alg) {
            let token = signer.sign(&header(other), CLAIMS);
            assert_eq!(
                verifier.judge_connection(&token, NOW_MS).err(),
                Some(TokenFault::Algorithm),
                "{other} of {alg}"
            );
        }
        // All zeros, which careless verifiers of ECDSA have let pass (CVE-2022-21449).
        let (message, signature) = token.rsplit_once('.').unwrap();
        let zeros = encode(vec![0; URL_SAFE_NO_PAD.decode(signature).unwrap().len()]);
        assert_eq!(verifier.judge_connection(&format!("{message}.{zeros}"), NOW_MS).err(), Some(TokenFault::Signature));
    }
}

/// The public key of a key pair is no HMAC key, however the token calls it.
#[test]
fn a_public_key_is_not_accepted_as_an_hmac_secret() {
    let signer = Signer::rsa(KeySize::Rsa2048);
    let pem = signer.pem();
    for secret in [pem.as_str(), pem.trim_end(), &pem.replace('\n', "")] {
        let forged = token_with(HS256, CLAIMS, secret);
        assert_eq!(with_rsa(&pem).judge_connection(&forged, NOW_MS).err(), Some(TokenFault::Algorithm));
        // Nor where HMAC is allowed beside it, with a key of its own.
        let both = TokenKeys { rsa: Some(PublicKey::rsa_from_pem(&pem).unwrap()), ..keys(SECRET) };
        let both = with_keys(both);
        assert_eq!(both.judge_connection(&forged, NOW_MS).err(), Some(TokenFault::Signature));
        assert!(both.judge_connection(&token(CLAIMS), NOW_MS).is_ok());
        assert!(both.judge_connection(&signer.sign(&header("RS256"), CLAIMS), NOW_MS).is_ok());
    }
}

/// Fields of a header that locate a key are ignored.
#[test]
fn keys_inside_tokens_are_ignored() {
    let (signer, thief) = (Signer::rsa(KeySize::Rsa2048), Signer::rsa(KeySize::Rsa2048));
    let verifier = with_rsa(&signer.pem());
    let jwk = thief.jwk("x").to_string();
    for more in [
        format!(r#""jwk":{jwk}"#),
        r#""jku":"https://evil.example/keys""#.to_owned(),
        r#""x5u":"https://evil.example/cert","x5c":["MIIB"]"#.to_owned(),
        r#""kid":"../../../../dev/null""#.to_owned(),
        r#""kid":"' OR 1=1 --""#.to_owned(),
    ] {
        let header = format!(r#"{{"alg":"RS256",{more}}}"#);
        let stolen = thief.sign(&header, CLAIMS);
        assert_eq!(verifier.judge_connection(&stolen, NOW_MS).err(), Some(TokenFault::Signature), "{more}");
        assert!(verifier.judge_connection(&signer.sign(&header, CLAIMS), NOW_MS).is_ok(), "{more}");
    }
    let critical = signer.sign(r#"{"alg":"RS256","crit":["exp"]}"#, CLAIMS);
    assert_eq!(verifier.judge_connection(&critical, NOW_MS).err(), Some(TokenFault::Algorithm));
}

#[test]
fn a_key_of_another_type_is_refused() {
    let (rsa, ec, ed) = (Signer::rsa(KeySize::Rsa2048), Signer::ec("P-256"), Signer::ed());
    assert_eq!(PublicKey::rsa_from_pem(&ec.pem()).err(), Some(KeyFault::Kind));
    assert_eq!(PublicKey::ec_from_pem(&rsa.pem()).err(), Some(KeyFault::Kind));
    assert_eq!(PublicKey::ec_from_pem(&ed.pem()).err(), Some(KeyFault::Kind));
    for text in ["", "x", "-----BEGIN PUBLIC KEY-----\n", &rsa.pem().replace("PUBLIC", "PRIVATE")] {
        assert_eq!(PublicKey::rsa_from_pem(text).err(), Some(KeyFault::NotPem), "{text}");
    }
    let Signer::Rsa(key) = &rsa else { unreachable!() };
    let pkcs1 = pem_of("RSA PUBLIC KEY", key.public_key().as_ref());
    let token = rsa.sign(&header("RS256"), CLAIMS);
    assert!(with_rsa(&pkcs1).judge_connection(&token, NOW_MS).is_ok());
}

/// Made with `openssl genrsa BITS | openssl rsa -pubout`.
#[test]
fn short_rsa_keys_are_refused() {
    for pem in [RSA_1024, RSA_2047] {
        assert_eq!(PublicKey::rsa_from_pem(pem).err(), Some(KeyFault::RsaBits), "{pem}");
    }
}

const RSA_1024: &str = "-----BEGIN PUBLIC KEY-----
MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQCyxo6oLz5WR8n0mHfCaBbmouUd
X4DTP884MogeZ+lKcCZ8vwSnkjL82rcuw6ATbx+uA6FJkMIYb2LDvNYGJ3z8vaTW
UQ3Syc3CnfAokAaCY6J13B3mBXo6U4V75HSbHPNeOc3F/aWXMdwYYR5waaB6A2LI
9LnkM34Jj6bcwG6EhwIDAQAB
-----END PUBLIC KEY-----";

const RSA_2047: &str = "-----BEGIN PUBLIC KEY-----
MIIBITANBgkqhkiG9w0BAQEFAAOCAQ4AMIIBCQKCAQBft5oy/n/rvnsYT9pCrp6p
khUMKURJLYSGvetDghiylOuMItBqj5o+efGux4K09AyjVRG0VRvJk4RjnF+Ys122
/Nd6v/f1h60++iDTPGygP53zuZLc2aAiRzRa7vO1wUF4c287do9g7KX/JPQrGKrv
mayrpXkxI1d1sFbyLOLq/2e+iIENuq77vD2SoOBOYXCbPADlm14JJiviecvGxEy8
ZILnY2HY3peWsGZ83pGwaZLVsMXZH3ytAaovdUyx27/nmflvXcRP6qguefyVLh5h
/DOig7v+xq0MikcfyJ5JpVf9rpeQteq9krzCx/KQmqw6CYk1RbIQ5Z5k1CI1TkVz
AgMBAAE=
-----END PUBLIC KEY-----";
