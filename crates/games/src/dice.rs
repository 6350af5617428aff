//! Random numbers for tests.

/// A deterministic random number generator.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) % bound
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.below(256) as u8
    }
}
