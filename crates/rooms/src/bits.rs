//! Numbers of some bits each in bytes: the lowest bit of a number first, in the lowest free bit of a byte.

/// Collects bits. [`BitWriter::finish`] fills the last byte with zeros.
#[derive(Debug, Default)]
pub(crate) struct BitWriter {
    bytes: Vec<u8>,
    held: u64,
    held_bits: u32,
}

/// The classes of a [`BitWriter::count`]: the bits of each, which follow as many ones and a zero (the last class has no
/// zero). A class begins where the one before ends.
const COUNT_BITS: [u32; 5] = [0, 4, 8, 16, 32];

/// Bits that a reader takes at once: those of 8 bytes, wherever in a byte they begin.
pub(crate) const TAKEN_BITS_MAX: u32 = 57;

impl BitWriter {
    /// Drops all bits, and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        (self.held, self.held_bits) = (0, 0);
    }

    /// The number of bits so far.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() * 8 + self.held_bits as usize
    }

    pub(crate) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Appends a number of some bits, at most 64, and which has no others.
    #[inline]
    pub(crate) fn put(&mut self, number: u64, bits: u32) {
        debug_assert!(bits <= 64 && number.checked_shr(bits).unwrap_or(0) == 0, "{number} in {bits} bits");
        self.held |= number << self.held_bits;
        let bits_after = self.held_bits + bits;
        if bits_after < u64::BITS {
            self.held_bits = bits_after;
            return;
        }
        self.bytes.extend_from_slice(&self.held.to_le_bytes());
        // All bits of the number were held if it began at the first one.
        self.held = number.checked_shr(u64::BITS - self.held_bits).unwrap_or(0);
        self.held_bits = bits_after - u64::BITS;
    }

    /// Appends bytes.
    pub(crate) fn put_bytes(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.put(u64::from_le_bytes(*word), u64::BITS);
        }
        for byte in rest {
            self.put((*byte).into(), u8::BITS);
        }
    }

    /// Appends a number that is small most of the time.
    #[inline]
    pub(crate) fn count(&mut self, number: u32) {
        if number == 0 {
            return self.put(0, 1);
        }
        self.long_count(number);
    }

    fn long_count(&mut self, number: u32) {
        let (mut class, mut first) = (0, 0_u64);
        while class + 1 < COUNT_BITS.len() && u64::from(number) - first >= 1 << COUNT_BITS[class] {
            first += 1 << COUNT_BITS[class];
            class += 1;
        }
        let ones = class as u32;
        let has_zero = class + 1 < COUNT_BITS.len();
        self.put((1 << ones) - 1, ones + u32::from(has_zero));
        self.put(u64::from(number) - first, COUNT_BITS[class]);
    }

    /// All bits in bytes. Nothing can be appended any more.
    pub(crate) fn finish(&mut self) -> &[u8] {
        let bytes = self.held_bits.div_ceil(8) as usize;
        self.bytes.extend_from_slice(&self.held.to_le_bytes()[..bytes]);
        (self.held, self.held_bits) = (0, 0);
        &self.bytes
    }
}

/// Reads what a [`BitWriter`] wrote. `None` after the end.
#[derive(Clone, Debug)]
pub(crate) struct BitReader<'a> {
    bytes: &'a [u8],
    /// The index of the next bit.
    at: usize,
}

impl<'a> BitReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Begins at the bit `at`.
    pub(crate) fn skip_to(&mut self, at: usize) {
        self.at = at;
    }

    /// The next `bits` bits; at most 32.
    pub(crate) fn take(&mut self, bits: u32) -> Option<u32> {
        self.take_wide(bits).and_then(|number| u32::try_from(number).ok())
    }

    /// The next `bits` bits; at most [`TAKEN_BITS_MAX`].
    #[inline]
    pub(crate) fn take_wide(&mut self, bits: u32) -> Option<u64> {
        let end = self.at.checked_add(bits as usize)?;
        if bits > TAKEN_BITS_MAX || end > self.bytes.len().checked_mul(8)? {
            return None;
        }
        let from = self.bytes.get(self.at / 8..).unwrap_or_default();
        let word = from.first_chunk().copied().unwrap_or_else(|| {
            let mut word = [0; 8];
            word[..from.len()].copy_from_slice(from);
            word
        });
        let number = u64::from_le_bytes(word) >> (self.at % 8) & ((1 << bits) - 1);
        self.at = end;
        Some(number)
    }

    pub(crate) fn flag(&mut self) -> Option<bool> {
        self.take(1).map(|bit| bit == 1)
    }

    /// A number of [`BitWriter::count`]; `None` as well if it has more than 32 bits.
    pub(crate) fn count(&mut self) -> Option<u32> {
        let (mut class, mut first) = (0, 0_u64);
        while class + 1 < COUNT_BITS.len() && self.flag()? {
            first += 1 << COUNT_BITS[class];
            class += 1;
        }
        u32::try_from(first + u64::from(self.take(COUNT_BITS[class])?)).ok()
    }

    /// Whether nothing is left except the zeros that fill the last byte.
    pub(crate) fn is_finished(&self) -> bool {
        let left = (self.bytes.len() * 8).saturating_sub(self.at);
        left < 8 && self.clone().take(left as u32) == Some(0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_come_back(numbers: Vec<(u64, bool)>) {
            let mut writer = BitWriter::default();
            let bits = |number: u64| u64::BITS - number.leading_zeros();
            for (number, is_count) in &numbers {
                if *is_count { writer.count(*number as u32) } else { writer.put(*number, bits(*number)) }
            }
            let mut reader = BitReader::new(writer.finish());
            for (number, is_count) in &numbers {
                if *is_count {
                    prop_assert_eq!(reader.count(), Some(*number as u32));
                    continue;
                }
                let low = bits(*number).min(32);
                let read = (reader.take(low), reader.take(bits(*number) - low));
                prop_assert_eq!(read, (Some(*number as u32), Some((*number >> 32) as u32)));
            }
            prop_assert!(reader.is_finished());
            prop_assert_eq!(reader.take(8), None);
        }
    }

    proptest! {
        #[test]
        fn bytes_come_back(before in 0..64_u32, bytes: Vec<u8>) {
            let mut writer = BitWriter::default();
            writer.put(0, before);
            writer.put_bytes(&bytes);
            let mut reader = BitReader::new(writer.finish());
            reader.skip_to(before as usize);
            for byte in bytes {
                prop_assert_eq!(reader.take(8), Some(byte.into()));
            }
        }
    }

    #[test]
    fn small_counts_take_few_bits() {
        for (number, bits) in
            [(0, 1), (1, 6), (16, 6), (17, 11), (272, 11), (273, 20), (65_808, 20), (65_809, 36), (u32::MAX, 36)]
        {
            let mut writer = BitWriter::default();
            writer.count(number);
            let mut reader = BitReader::new(writer.finish());
            assert_eq!((reader.count(), reader.at), (Some(number), bits), "{number}");
        }
        // Four ones, and 2³² − 1 after the numbers of the classes before.
        assert_eq!(BitReader::new(&[0xff; 5]).count(), None);
    }
}
