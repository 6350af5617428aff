//! Epochs of streams. The epoch of a stream without publications is computed from the channel's name, so an idle
//! channel keeps its position without memory. A stream that had publications never gets an earlier epoch again.

use std::collections::VecDeque;

use hashbrown::HashMap;

use crate::shard::hash_of;

/// Maximum number of ended epochs stored exactly.
const ENDED_MAX: usize = 65_536;
/// Older ones are stored in shared slots: each changes the epochs of all channels that hash to its slot.
const PLACES: usize = 4_096;

/// The number of ended epochs of each channel of a shard.
pub(crate) struct Epochs {
    secret: u64,
    /// By the hash of the channel's name.
    ended: HashMap<u64, u32, foldhash::quality::FixedState>,
    /// The hashes of `ended`, in insertion order.
    order: VecDeque<u64>,
    places: Box<[u32]>,
    ended_max: usize,
}

impl Epochs {
    /// No epoch has ended. `secret` differs at each start, so that no epoch is reused.
    pub(crate) fn new(secret: u64) -> Self {
        Self {
            secret,
            ended: HashMap::with_hasher(foldhash::quality::FixedState::with_seed(secret)),
            order: VecDeque::new(),
            places: vec![0; PLACES].into(),
            ended_max: ENDED_MAX,
        }
    }

    /// The epoch of the channel's next stream: eight letters.
    pub(crate) fn of(&self, channel: &str) -> Box<str> {
        let hash = hash_of(channel, self.secret);
        let ended = self.ended.get(&hash).copied().unwrap_or(0);
        let mut rest = hash_of(&(channel, self.places[place(hash)], ended), !self.secret);
        let mut letter = || {
            let letter = char::from(b'a' + (rest % 26) as u8);
            rest /= 26;
            letter
        };
        (0..8).map(|_| letter()).collect::<String>().into()
    }

    /// Ends the channel's epoch, which had publications: its next stream gets another one.
    pub(crate) fn end(&mut self, channel: &str) {
        let hash = hash_of(channel, self.secret);
        let ended = self.ended.entry(hash).or_insert(0);
        if *ended == 0 {
            self.order.push_back(hash);
        }
        *ended = ended.wrapping_add(1).max(1);
        if self.order.len() > self.ended_max
            && let Some(oldest) = self.order.pop_front()
        {
            self.ended.remove(&oldest);
            let place = &mut self.places[place(oldest)];
            *place = place.wrapping_add(1);
        }
    }
}

fn place(hash: u64) -> usize {
    (hash % PLACES as u64) as usize
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn an_ended_epoch_is_never_reused() {
        let mut epochs = Epochs { ended_max: 3, ..Epochs::new(1) };
        let channels = ["a", "b", "c", "d", "e", "f"];
        let mut seen: BTreeSet<(&str, Box<str>)> = channels.iter().map(|name| (*name, epochs.of(name))).collect();
        assert_eq!(epochs.of("a"), epochs.of("a"));
        for round in 0..50 {
            let channel = channels[round % channels.len()];
            epochs.end(channel);
            assert!(seen.insert((channel, epochs.of(channel))), "round {round}: the epoch of {channel} came back");
            assert!(epochs.ended.len() <= 3 && epochs.order.len() <= 3);
        }
    }

    #[test]
    fn ending_one_epoch_keeps_the_others() {
        let mut epochs = Epochs::new(1);
        let before: Vec<Box<str>> = (0..1_000).map(|number| epochs.of(&format!("quiet{number}"))).collect();
        (0..1_000).for_each(|number| epochs.end(&format!("busy{number}")));
        let after: Vec<Box<str>> = (0..1_000).map(|number| epochs.of(&format!("quiet{number}"))).collect();
        assert_eq!(before, after);
    }
}
