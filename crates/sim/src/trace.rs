//! The trace of a run: a hash, which is the same for two runs of a seed, and lines for people to read.

/// The trace of a run.
pub struct Trace {
    hash: u64,
    prints: bool,
}

impl Trace {
    /// Creates an empty trace. If `prints` is set, lines are written to standard output.
    pub fn new(prints: bool) -> Self {
        Self { hash: 0x6475_6e6c_696e, prints }
    }

    /// Adds a number to the hash.
    pub fn number(&mut self, number: u64) {
        // A rotation and a multiplication by an odd constant. Each bit affects all others after a few numbers.
        self.hash = (self.hash.rotate_left(23) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    /// Adds bytes to the hash.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.number(u64::from_le_bytes(word));
        }
    }

    /// Prints a line if printing is enabled.
    pub fn line(&self, now_us: u64, line: impl FnOnce() -> String) {
        if self.prints {
            println!("{:>12.6}  {}", now_us as f64 / 1e6, line());
        }
    }

    pub fn hash(&self) -> u64 {
        self.hash
    }
}
