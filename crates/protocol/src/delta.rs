//! Deltas between payloads in the Fossil delta format, for subscriptions with `delta: "fossil"`
//! (<https://fossil-scm.org/home/doc/tip/www/delta_format.wiki>).
//!
//! A patch contains the length of the new bytes, then copies of old ranges and inserts, then a checksum. The encoder
//! hashes blocks of the old bytes into a table, looks up each position of the new bytes, and takes the longest of a few
//! matches. So the work is linear in both lengths for any input.

/// Size of a block of the old bytes, which is also the minimum length of a match.
const BLOCK_BYTES: usize = 16;
/// Maximum number of blocks with the same hash that are tried per position.
const TRIES_MAX: usize = 16;
/// No block.
const NONE: u32 = u32::MAX;

/// Creates patches. The memory of its table is reused for the next patch.
#[derive(Debug, Default)]
pub struct DeltaEncoder {
    /// The first block of each hash.
    heads: Vec<u32>,
    /// For each block, the next one with the same hash.
    next: Vec<u32>,
}

impl DeltaEncoder {
    /// A patch that turns `old` into `new`; `None` if it would not be smaller than `new`. If `new` is UTF-8, the patch
    /// is, too.
    pub fn patch(&mut self, old: &[u8], new: &[u8]) -> Option<Vec<u8>> {
        // All decoders use 32-bit lengths and positions.
        if old.len() > u32::MAX as usize / 2 || new.len() > u32::MAX as usize / 2 {
            return None;
        }
        let mut patch = Patch::new(new);
        let prefix = common_prefix(old, new);
        let suffix = common_prefix_of_reversed(&old[prefix..], &new[prefix..]);
        patch.copy(0, prefix, 0);
        self.match_blocks(old, &new[..new.len() - suffix], prefix, &mut patch);
        patch.copy(new.len() - suffix, suffix, old.len() - suffix);
        patch.finish()
    }

    /// Finds copies for the bytes of `new` from `start` on.
    fn match_blocks(&mut self, old: &[u8], new: &[u8], start: usize, patch: &mut Patch<'_>) {
        if old.len() < BLOCK_BYTES || new.len() < start + BLOCK_BYTES {
            return;
        }
        self.index(old);
        let mut at = start;
        while let Some(block) = block_at(new, at) {
            match self.longest(old, new, at, block, at - patch.written) {
                Some(found) if patch.copy(at - found.before, found.before + found.behind, found.from) => {
                    at += found.behind;
                }
                _ => at += 1,
            }
        }
    }

    fn index(&mut self, old: &[u8]) {
        let blocks = old.len() / BLOCK_BYTES;
        self.heads.clear();
        self.heads.resize(blocks.next_power_of_two(), NONE);
        self.next.clear();
        self.next.resize(blocks, NONE);
        // In reverse order, so that the first of equal blocks is tried first.
        for (index, block) in old.chunks_exact(BLOCK_BYTES).enumerate().rev() {
            let head = self.slot(block);
            self.next[index] = std::mem::replace(&mut self.heads[head], index as u32);
        }
    }

    fn slot(&self, block: &[u8]) -> usize {
        let half = |half: &[u8]| half.iter().rev().fold(0_u64, |value, byte| value << 8 | u64::from(*byte));
        let (low, high) = block.split_at(BLOCK_BYTES / 2);
        let mixed = (half(low) ^ half(high).rotate_left(29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 32) as usize & (self.heads.len() - 1)
    }

    /// The longest match around `block` at `new[at]`. It may begin up to `unwritten` bytes earlier.
    fn longest(&self, old: &[u8], new: &[u8], at: usize, block: &[u8], unwritten: usize) -> Option<Match> {
        let mut best: Option<Match> = None;
        let mut candidate = self.heads[self.slot(block)];
        for _ in 0..TRIES_MAX {
            let Some(next) = self.next.get(candidate as usize) else { break };
            let from = candidate as usize * BLOCK_BYTES;
            let behind = common_prefix(&old[from..], &new[at..]);
            if behind >= BLOCK_BYTES {
                let before = common_prefix_of_reversed(&old[..from], &new[at - unwritten..at]);
                let found = Match { from: from - before, before, behind };
                if best.as_ref().is_none_or(|best| best.before + best.behind < before + behind) {
                    best = Some(found);
                }
            }
            candidate = *next;
        }
        best
    }
}

/// A range that occurs in the old and the new bytes: its start in the old bytes, and its length before and after a
/// position of the new ones.
struct Match {
    from: usize,
    before: usize,
    behind: usize,
}

/// A patch under construction.
struct Patch<'a> {
    new: &'a [u8],
    /// Whether copies and inserts must begin and end between characters.
    is_text: bool,
    /// The number of bytes of `new` that the patch covers.
    written: usize,
    out: Vec<u8>,
}

impl<'a> Patch<'a> {
    fn new(new: &'a [u8]) -> Self {
        let mut patch = Self { new, is_text: str::from_utf8(new).is_ok(), written: 0, out: Vec::new() };
        patch.number(new.len());
        patch.out.push(b'\n');
        patch
    }

    /// Writes a copy of `bytes` bytes from position `from` of the old bytes to position `at` of the new ones, which is
    /// not written yet. Does nothing if an insert would be shorter. Returns whether it wrote a copy.
    fn copy(&mut self, mut at: usize, bytes: usize, mut from: usize) -> bool {
        let mut end = at + bytes;
        while at < end && !self.is_between_characters(at) {
            (at, from) = (at + 1, from + 1);
        }
        while at < end && !self.is_between_characters(end) {
            end -= 1;
        }
        // The size of the copy command, and of the insert command that ends before it.
        if end - at < digits(end - at) + digits(from) + 2 + 2 {
            return false;
        }
        self.insert_until(at);
        self.number(end - at);
        self.out.push(b'@');
        self.number(from);
        self.out.push(b',');
        self.written = end;
        true
    }

    fn insert_until(&mut self, end: usize) {
        if self.written < end {
            self.number(end - self.written);
            self.out.push(b':');
            self.out.extend_from_slice(&self.new[self.written..end]);
            self.written = end;
        }
    }

    fn finish(mut self) -> Option<Vec<u8>> {
        self.insert_until(self.new.len());
        self.number(checksum(self.new) as usize);
        self.out.push(b';');
        (self.out.len() < self.new.len()).then_some(self.out)
    }

    fn is_between_characters(&self, at: usize) -> bool {
        !self.is_text || self.new.get(at).is_none_or(|byte| byte & 0xc0 != 0x80)
    }

    fn number(&mut self, number: usize) {
        const DIGITS: &[u8; 64] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz~";
        for place in (0..digits(number)).rev() {
            self.out.push(DIGITS[number >> (6 * place) & 63]);
        }
    }
}

/// The number of base-64 digits of a number.
fn digits(number: usize) -> usize {
    (number | 1).ilog2() as usize / 6 + 1
}

/// The sum of all 32-bit words, in big-endian order.
fn checksum(bytes: &[u8]) -> u32 {
    let word =
        |bytes: &[u8]| bytes.iter().zip([24, 16, 8, 0]).fold(0, |word, (byte, by)| word | u32::from(*byte) << by);
    bytes.chunks(4).fold(0, |sum, bytes| sum.wrapping_add(word(bytes)))
}

fn block_at(bytes: &[u8], at: usize) -> Option<&[u8]> {
    bytes.get(at..at + BLOCK_BYTES)
}

fn common_prefix(one: &[u8], other: &[u8]) -> usize {
    count_compared(one.iter().zip(other).take_while(|(one, other)| one == other).count())
}

fn common_prefix_of_reversed(one: &[u8], other: &[u8]) -> usize {
    count_compared(one.iter().rev().zip(other.iter().rev()).take_while(|(one, other)| one == other).count())
}

/// Returns the number unchanged. In tests, it is also summed up.
fn count_compared(bytes: usize) -> usize {
    #[cfg(test)]
    COMPARED.set(COMPARED.get() + bytes);
    bytes
}

#[cfg(test)]
thread_local! {
    static COMPARED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
mod tests;
