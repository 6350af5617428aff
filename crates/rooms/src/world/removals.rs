//! Players that the game removes, and rooms that the game closes.

use std::collections::BTreeMap;

use crate::{
    PlayerId,
    binary::{Reader, Unreadable, put_bytes, put_number},
    hash::Hasher,
};

/// Maximum length of a reason in bytes; longer ones are truncated.
pub(crate) const REASON_BYTES_MAX: usize = 120;

/// The game's decisions since the last tick.
#[derive(Debug, Default)]
pub(crate) struct PendingRemovals {
    kicks: BTreeMap<PlayerId, Box<str>>,
    closing: Option<Box<str>>,
}

impl PendingRemovals {
    /// Removes a player at the end of the tick. The first reason is kept.
    pub(super) fn kick(&mut self, player: PlayerId, reason: &str) {
        self.kicks.entry(player).or_insert_with(|| shortened(reason));
    }

    /// Forgets a player that has left.
    pub(super) fn forget(&mut self, player: PlayerId) {
        self.kicks.remove(&player);
    }

    /// Closes the room. The first reason is kept.
    pub(super) fn close(&mut self, reason: &str) {
        self.closing.get_or_insert_with(|| shortened(reason));
    }

    /// Takes the player with the lowest number from the players to be removed.
    pub(super) fn take_kick(&mut self) -> Option<(PlayerId, Box<str>)> {
        self.kicks.pop_first()
    }

    /// The reason for closing the room, if it is closed.
    pub(super) fn closing(&self) -> Option<&str> {
        self.closing.as_deref()
    }

    /// Appends the form that [`PendingRemovals::restore`] reads.
    pub(super) fn save(&self, out: &mut Vec<u8>) {
        put_number(self.kicks.len() as u64, out);
        for (player, reason) in &self.kicks {
            put_number(u64::from(player.0), out);
            put_bytes(reason.as_bytes(), out);
        }
        out.push(self.closing.is_some().into());
        if let Some(reason) = &self.closing {
            put_bytes(reason.as_bytes(), out);
        }
    }

    pub(super) fn restore(saved: &mut Reader<'_>) -> Result<Self, Unreadable> {
        let mut removals = Self::default();
        for _ in 0..saved.count()? {
            let player = PlayerId(saved.number_of()?);
            removals.kicks.insert(player, saved.text()?.into());
        }
        removals.closing = match saved.byte()? {
            0 => None,
            1 => Some(saved.text()?.into()),
            _ => return Err(Unreadable::Wrong),
        };
        Ok(removals)
    }

    /// Adds everything that the future depends on to a hash; nothing if nothing is pending.
    pub(super) fn hash(&self, hasher: Hasher) -> Hasher {
        let kicks = self.kicks.iter();
        let hasher =
            kicks.fold(hasher, |hasher, (player, reason)| hasher.number(u64::from(player.0)).bytes(reason.as_bytes()));
        self.closing.iter().fold(hasher, |hasher, reason| hasher.number(1).bytes(reason.as_bytes()))
    }
}

fn shortened(reason: &str) -> Box<str> {
    reason[..reason.floor_char_boundary(REASON_BYTES_MAX)].into()
}
