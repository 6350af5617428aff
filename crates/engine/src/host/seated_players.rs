//! The seats of a room's players.

use dunlin_rooms::PlayerId;
use hashbrown::HashMap;

use crate::room::SeatKey;

/// The players of a room that have a client.
#[derive(Debug, Default)]
pub(super) struct SeatedPlayers {
    players: HashMap<SeatKey, PlayerId, foldhash::quality::FixedState>,
    seats: HashMap<PlayerId, SeatKey, foldhash::quality::FixedState>,
}

impl SeatedPlayers {
    /// Assigns a seat to a player. Returns its former seat.
    pub(super) fn put(&mut self, seat: SeatKey, player: PlayerId) -> Option<SeatKey> {
        let before = self.seats.insert(player, seat);
        if let Some(before) = before {
            self.players.remove(&before);
        }
        self.players.insert(seat, player);
        before
    }

    pub(super) fn player(&self, seat: SeatKey) -> Option<PlayerId> {
        self.players.get(&seat).copied()
    }

    pub(super) fn remove_seat(&mut self, seat: SeatKey) -> Option<PlayerId> {
        let player = self.players.remove(&seat)?;
        self.seats.remove(&player);
        Some(player)
    }

    pub(super) fn remove_player(&mut self, player: PlayerId) -> Option<SeatKey> {
        let seat = self.seats.remove(&player)?;
        self.players.remove(&seat);
        Some(seat)
    }

    pub(super) fn clear(&mut self) {
        self.players.clear();
        self.seats.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.players.len()
    }

    /// In no particular order.
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = (SeatKey, PlayerId)> + '_ {
        self.players.iter().map(|(seat, player)| (*seat, *player))
    }
}
