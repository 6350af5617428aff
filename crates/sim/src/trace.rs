//! The events of a run: as a hash, which two runs of one seed must share, and as lines for people.

/// The record of a run.
pub struct Trace {
    hash: u64,
    prints: bool,
}

impl Trace {
    /// An empty record; `prints` says whether lines go to the standard output.
    pub fn new(prints: bool) -> Self {
        Self { hash: 0x6475_6e6c_696e, prints }
    }

    /// Takes in a number.
    pub fn number(&mut self, number: u64) {
        // A multiplication by an odd constant and a rotation: every bit reaches all others within a few numbers.
        self.hash = (self.hash.rotate_left(23) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    /// Takes in bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.number(u64::from_le_bytes(word));
        }
    }

    /// Prints a line, if lines are wanted.
    pub fn line(&self, now_us: u64, line: impl FnOnce() -> String) {
        if self.prints {
            println!("{:>12.6}  {}", now_us as f64 / 1e6, line());
        }
    }

    /// The hash so far.
    pub fn hash(&self) -> u64 {
        self.hash
    }
}
