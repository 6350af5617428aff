//! Players that the game removes, and the end of a room by its game.

use std::collections::BTreeMap;

use crate::{
    PlayerId,
    binary::{Reader, Unreadable, put_bytes, put_number},
    hash::Hasher,
};

/// Maximum length of a reason in bytes; longer ones are cut.
pub(crate) const REASON_BYTES_MAX: usize = 120;

/// What the game has decided since the last tick.
#[derive(Debug, Default)]
pub(crate) struct PendingRemovals {
    kicks: BTreeMap<PlayerId, Box<str>>,
    closing: Option<Box<str>>,
}

impl PendingRemovals {
    /// A player is removed at the end of the tick. The first reason counts.
    pub(super) fn kick(&mut self, player: PlayerId, reason: &str) {
        self.kicks.entry(player).or_insert_with(|| shortened(reason));
    }

    /// The player has left.
    pub(super) fn forget(&mut self, player: PlayerId) {
        self.kicks.remove(&player);
    }

    /// The room is closed. The first reason counts.
    pub(super) fn close(&mut self, reason: &str) {
        self.closing.get_or_insert_with(|| shortened(reason));
    }

    /// The player with the lowest number that is to be removed.
    pub(super) fn take_kick(&mut self) -> Option<(PlayerId, Box<str>)> {
        self.kicks.pop_first()
    }

    /// The reason for which the room is closed.
    pub(super) fn closing(&self) -> Option<&str> {
        self.closing.as_deref()
    }

    /// Appends what [`PendingRemovals::restore`] reads.
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

    /// Takes in everything that the future depends on; nothing, if nothing is pending.
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
