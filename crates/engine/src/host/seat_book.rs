//! Who may come back as which player.

use std::{collections::BTreeMap, sync::Arc};

use dunlin_rooms::PlayerId;

use crate::room::SeatToken;

/// The players of a room that keeps them for clients that come back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SeatBook {
    booked: BTreeMap<PlayerId, BookedSeat>,
    /// Players without a client.
    away: BTreeMap<PlayerId, LeavesAt>,
}

/// What a client has to show for a player.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BookedSeat {
    /// Empty for an anonymous one.
    pub(super) user: Arc<str>,
    pub(super) token: SeatToken,
}

/// The tick in which a player without a client leaves, as a count of the room's ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LeavesAt(pub(super) u64);

impl SeatBook {
    /// A client has a player from now on.
    pub(super) fn book(&mut self, player: PlayerId, user: Arc<str>, token: SeatToken) {
        self.booked.insert(player, BookedSeat { user, token });
    }

    /// A player has left the room.
    pub(super) fn forget(&mut self, player: PlayerId) {
        self.booked.remove(&player);
        self.away.remove(&player);
    }

    /// A player's client is gone, and may come back. Returns whether the player is known.
    pub(super) fn set_away(&mut self, player: PlayerId, leaves_at: LeavesAt) -> bool {
        let is_known = self.booked.contains_key(&player);
        if is_known {
            self.away.insert(player, leaves_at);
        }
        is_known
    }

    /// All clients are gone, and may come back.
    pub(super) fn set_all_away(&mut self, leaves_at: LeavesAt) {
        self.away = self.booked.keys().map(|player| (*player, leaves_at)).collect();
    }

    /// The player whose client has come back: the one with this token, otherwise the first of the user.
    pub(super) fn take_back(&mut self, user: &str, token: Option<SeatToken>) -> Option<PlayerId> {
        let seats = || self.away.keys().filter_map(|player| Some((*player, self.booked.get(player)?)));
        let by_token = seats().find(|(_, seat)| token.is_some_and(|token| seat.token == token));
        let of_user = || seats().find(|(_, seat)| !user.is_empty() && *seat.user == *user);
        let (player, _) = by_token.or_else(of_user)?;
        self.away.remove(&player);
        Some(player)
    }

    /// A player whose time to come back is over in the tick with this count.
    pub(super) fn take_expired(&mut self, ticks_run: u64) -> Option<PlayerId> {
        let (player, _) = self.away.iter().find(|(_, leaves_at)| leaves_at.0 <= ticks_run)?;
        let player = *player;
        self.forget(player);
        Some(player)
    }

    /// Players without a client.
    pub(super) fn away_count(&self) -> usize {
        self.away.len()
    }

    /// All players with what their clients have to show, and when they leave if they have none.
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = (PlayerId, &BookedSeat, Option<LeavesAt>)> {
        self.booked.iter().map(|(player, seat)| (*player, seat, self.away.get(player).copied()))
    }
}
