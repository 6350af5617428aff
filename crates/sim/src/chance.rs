//! The randomness of a run: one generator, seeded once.

use rand_chacha::{
    ChaCha8Rng,
    rand_core::{RngCore, SeedableRng},
};

/// A seeded source of decisions.
pub struct Chance(ChaCha8Rng);

impl Chance {
    /// Decisions that follow from `seed` alone.
    pub fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `bound`; 0 if the bound is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.0.next_u64()) * bound as u128) >> 64) as usize
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below((high - low + 1) as usize) as u64
    }

    /// Yes in `share` of 100 cases.
    pub fn percent(&mut self, share: u32) -> bool {
        self.below(100) < share as usize
    }

    /// One of `options`, of which there is at least one.
    pub fn pick<'a, T>(&mut self, options: &'a [T]) -> &'a T {
        &options[self.below(options.len())]
    }

    /// A place in `weights`, more often where the weight is greater.
    pub fn weighted(&mut self, weights: &[u32]) -> usize {
        let mut left = self.below(weights.iter().sum::<u32>() as usize) as u32;
        weights
            .iter()
            .position(|&weight| {
                let here = left < weight;
                left = left.saturating_sub(weight);
                here
            })
            .expect("what is left is below the sum of all weights")
    }

    /// A seed for a generator of someone else's.
    pub fn seed(&mut self) -> [u8; 32] {
        let mut seed = [0; 32];
        self.0.fill_bytes(&mut seed);
        seed
    }
}
