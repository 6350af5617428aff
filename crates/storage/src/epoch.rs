//! Epochs: ids of sequences of offsets.
//!
//! Reading stores nothing, so the epoch of a channel that has no head is computed: from a random number of the
//! database, and from everything after which the channel's offsets may begin again. A head stores the epoch with which
//! it began.

use dunlin_engine::log::LogTerms;

use crate::{
    records::ChannelHead,
    state::{Eras, fnv1a},
    writer::head_expiry_ms,
};

const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// Creates a random epoch; `None` if the operating system returns no random bytes.
pub(crate) fn new_epoch() -> Option<Box<str>> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).ok()?;
    Some(bytes.iter().map(|byte| char::from(LETTERS[usize::from(byte % 32)])).collect::<String>().into())
}

/// Computes epochs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EpochSource {
    /// A random number that the database stores, so that epochs stay the same after a restart.
    pub(crate) seed: u64,
    pub(crate) eras: Eras,
}

impl EpochSource {
    /// The epoch of a channel without a head.
    ///
    /// A head that expires leaves no trace, and its offsets begin again. So this epoch also ends by itself, after the
    /// shortest time for which a head that began with it is kept.
    pub(crate) fn of_empty(&self, channel: &str, terms: &LogTerms, now_ms: u64) -> Box<str> {
        // What was synced survives a power loss.
        let power_era = if terms.is_synced { 0 } else { u64::from(self.eras.power) + 1 };
        let head_lifetime_ms = head_expiry_ms(0, terms);
        let numbers = [power_era, u64::from(self.eras.damage), head_lifetime_ms, now_ms / head_lifetime_ms];
        self.computed(&[channel], &numbers)
    }

    /// The epoch that follows the epoch of a head, after a loss.
    pub(crate) fn after_loss(&self, channel: &str, head: &ChannelHead) -> Box<str> {
        self.computed(&[channel, &head.epoch], &[u64::from(self.eras.power), u64::from(self.eras.damage)])
    }

    fn computed(&self, texts: &[&str], numbers: &[u64]) -> Box<str> {
        let mut bytes = self.seed.to_be_bytes().to_vec();
        for text in texts {
            bytes.extend_from_slice(&(text.len() as u64).to_be_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        for number in numbers {
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        let mut rest = mixed(fnv1a(&bytes));
        let mut letter = || {
            let letter = char::from(LETTERS[(rest % 32) as usize]);
            rest /= 32;
            letter
        };
        (0..8).map(|_| letter()).collect::<String>().into()
    }
}

/// Spreads a change of any bit over all bits, as `SplitMix64` does.
const fn mixed(mut number: u64) -> u64 {
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use dunlin_engine::log::LogRetention;

    use super::*;

    const TERMS: LogTerms = LogTerms {
        retention: LogRetention { publications_max: 10, ttl_ms: 1_000 },
        meta_ttl_ms: 3_600_000,
        result_ttl_ms: 300_000,
        is_synced: false,
    };

    #[test]
    fn an_empty_channel_has_one_epoch_until_its_offsets_may_begin_again() {
        let source = EpochSource { seed: 7, eras: Eras { power: 0, damage: 0 } };
        let epoch = source.of_empty("chat:1", &TERMS, 10_000);
        assert_eq!(epoch.len(), 8);
        assert_eq!(source.of_empty("chat:1", &TERMS, 20_000), epoch);
        let power = EpochSource { eras: Eras { power: 1, damage: 0 }, ..source };
        let damage = EpochSource { eras: Eras { power: 0, damage: 1 }, ..source };
        let synced = LogTerms { is_synced: true, ..TERMS };
        let expired_ms = 10_000 + head_expiry_ms(0, &TERMS);
        let epochs = [
            epoch,
            source.of_empty("chat:2", &TERMS, 10_000),
            EpochSource { seed: 8, ..source }.of_empty("chat:1", &TERMS, 10_000),
            power.of_empty("chat:1", &TERMS, 10_000),
            damage.of_empty("chat:1", &TERMS, 10_000),
            source.of_empty("chat:1", &TERMS, expired_ms),
            source.of_empty("chat:1", &LogTerms { meta_ttl_ms: 7_200_000, ..TERMS }, 10_000),
            source.of_empty("chat:1", &synced, 10_000),
            damage.of_empty("chat:1", &synced, 10_000),
        ];
        assert_eq!(epochs.iter().collect::<BTreeSet<_>>().len(), epochs.len(), "{epochs:?}");
        assert_eq!(power.of_empty("chat:1", &synced, 10_000), source.of_empty("chat:1", &synced, 10_000));
    }

    #[test]
    fn computed_epochs_of_many_channels_differ() {
        let source = EpochSource { seed: 7, eras: Eras::default() };
        let epochs: BTreeSet<_> = (0..20_000).map(|number| source.computed(&[&format!("c{number}")], &[])).collect();
        // With 40 bits, two of these are equal once in 5,000 runs with another seed.
        assert_eq!(epochs.len(), 20_000);
    }
}
