//! A hash that is the same on every machine and in every build, because state hashes are compared between them.

/// An odd number without a pattern.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Hashes a sequence of numbers and bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hasher(u64);

impl Hasher {
    /// A hasher for a `purpose`: the same content hashes differently for other purposes.
    pub(crate) fn new(purpose: u64) -> Self {
        Self(scramble(purpose.wrapping_add(STEP)))
    }

    /// Adds a number.
    #[must_use]
    pub(crate) fn number(self, number: u64) -> Self {
        Self(scramble(self.0.rotate_left(29) ^ number.wrapping_add(STEP)))
    }

    /// Adds bytes and their length.
    #[must_use]
    pub(crate) fn bytes(self, bytes: &[u8]) -> Self {
        let mut hasher = self.number(bytes.len() as u64);
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            hasher = hasher.number(u64::from_le_bytes(*word));
        }
        if rest.is_empty() {
            return hasher;
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        hasher.number(u64::from_le_bytes(last))
    }

    /// The hash of everything that was added.
    pub(crate) fn finish(self) -> u64 {
        self.0
    }
}

/// A bijection in which every bit of the result depends on every bit of the argument.
fn scramble(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
