//! Compares the keys of the server API.

use std::fmt;

use dunlin_token::Secret;
use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConstantTimeEq as _};

/// The keys of the server API, as SHA-256 hashes: comparing hashes reveals nothing about a key, not even its length.
#[derive(Clone)]
pub struct ApiKeys(Vec<[u8; 32]>);

impl ApiKeys {
    /// A set of these keys.
    pub fn new<'a>(keys: impl IntoIterator<Item = &'a Secret>) -> Self {
        Self(keys.into_iter().map(|key| Sha256::digest(key.reveal()).into()).collect())
    }

    /// Whether `offered` is one of the keys. The duration does not depend on which key matches or how many bytes do.
    pub fn admit(&self, offered: &[u8]) -> bool {
        let offered: [u8; 32] = Sha256::digest(offered).into();
        self.0.iter().fold(Choice::from(0), |found, key| found | key.ct_eq(&offered)).into()
    }
}

impl fmt::Debug for ApiKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApiKeys({})", self.0.len())
    }
}
