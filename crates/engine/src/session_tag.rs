//! Proofs that a session's secret id was issued by a node.
//!
//! A node that receives a command for a session of another node knows nothing of that session. With the other node's
//! key, it can check that the id was issued there, before it forwards the command.

use std::fmt;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// Bytes of a key.
pub const SESSION_TAG_KEY_BYTES: usize = 32;
/// Bytes of a tag: half of the hash.
const TAG_BYTES: usize = 16;

/// The key of a node, which it shares with the nodes of its cluster.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionTagKey([u8; SESSION_TAG_KEY_BYTES]);

impl SessionTagKey {
    /// A key of random bytes.
    pub const fn new(bytes: [u8; SESSION_TAG_KEY_BYTES]) -> Self {
        Self(bytes)
    }

    /// The bytes, for the other nodes of the cluster.
    pub const fn reveal(&self) -> &[u8; SESSION_TAG_KEY_BYTES] {
        &self.0
    }

    /// The id with its tag behind it.
    pub fn tagged(&self, id: &str) -> String {
        let tag = self.mac(id).finalize().into_bytes();
        let mut tagged = String::with_capacity(id.len() + 1 + 2 * TAG_BYTES);
        tagged.push_str(id);
        tagged.push('-');
        for byte in tag.iter().take(TAG_BYTES) {
            tagged.push(char::from(HEX[usize::from(byte >> 4)]));
            tagged.push(char::from(HEX[usize::from(byte & 15)]));
        }
        tagged
    }

    /// Whether [`Self::tagged`] made this text with the same key. Compares in constant time.
    pub fn has_tagged(&self, text: &str) -> bool {
        let Some((id, tag)) = text.rsplit_once('-') else { return false };
        let Some(tag) = bytes_of(tag) else { return false };
        self.mac(id).verify_truncated_left(&tag).is_ok()
    }

    fn mac(&self, id: &str) -> Hmac<Sha256> {
        Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length").chain_update(id.as_bytes())
    }
}

impl fmt::Debug for SessionTagKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionTagKey(…)")
    }
}

const HEX: &[u8; 16] = b"0123456789abcdef";

fn bytes_of(tag: &str) -> Option<[u8; TAG_BYTES]> {
    let mut bytes = [0; TAG_BYTES];
    if tag.len() != 2 * TAG_BYTES || !tag.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(tag.get(at..at + 2)?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_proves_the_key_and_the_id() {
        let (one, other) = (SessionTagKey::new([1; 32]), SessionTagKey::new([2; 32]));
        let tagged = one.tagged("0-1f-3-00ff");
        assert!(tagged.starts_with("0-1f-3-00ff-") && one.has_tagged(&tagged), "{tagged}");
        assert!(!other.has_tagged(&tagged));
        let (id, tag) = tagged.rsplit_once('-').expect("a tag");
        for forged in [
            id.to_owned(),
            format!("{id}-"),
            format!("{id}-{}", &tag[..30]),
            format!("{id}-{tag}00"),
            format!("1{id}-{tag}"),
            format!("{id}-{}", "0".repeat(32)),
            format!("{id}-{}", "é".repeat(16)),
            String::new(),
        ] {
            assert!(!one.has_tagged(&forged), "{forged}");
        }
    }

    #[test]
    fn a_key_is_not_printed() {
        assert_eq!(format!("{:?}", SessionTagKey::new([7; 32])), "SessionTagKey(…)");
    }
}
