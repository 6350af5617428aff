//! Players that the backend removes.

use std::collections::BTreeSet;

use bytes::Bytes;
use dunlin_protocol::ClientInfo;
use dunlin_rooms::{PlayerId, Refusal};

use super::{RoomHost, Runner};
use crate::{
    api::{KickOrder, KickTarget},
    room::SeatKey,
};

/// The refusal code of a kick without a matching player or spectator.
const NOBODY_CODE: u16 = 404;

impl RoomHost {
    /// The seats of a user or a client, including joins that wait for the next tick. A runner's seat table has only
    /// players that may come back, so it cannot find them all. Sorted, because a replay must find the same seats.
    pub(super) fn seats_of(&self, target: &KickTarget) -> Vec<SeatKey> {
        let is_meant = |user: &str, client: &str| match target {
            KickTarget::User(meant) => !meant.is_empty() && **meant == *user,
            KickTarget::Client(meant) => !meant.is_empty() && **meant == *client,
            KickTarget::Player(_) => false,
        };
        let is_joining = |info: &ClientInfo| is_meant(&info.user, &info.client);
        let joining = self
            .requests
            .iter()
            .filter(|(_, request)| request.join.as_ref().is_some_and(|join| is_joining(&join.info)));
        let seated = self.players.values().filter(|player| is_meant(&player.user, &player.client));
        let seats = joining.map(|(seat, _)| *seat).chain(seated.map(|player| player.seat));
        seats.collect::<BTreeSet<SeatKey>>().into_iter().collect()
    }
}

impl Runner {
    /// Marks players for removal at the end of the tick, including a user's away players. Returns them, in order.
    pub(super) fn kick(&mut self, order: &KickOrder, seats: &[SeatKey]) -> Vec<PlayerId> {
        let mut players: BTreeSet<PlayerId> =
            seats.iter().filter_map(|seat| self.seated_players.player(*seat)).collect();
        match &order.target {
            KickTarget::User(user) => players.extend(self.returning_players.of_user(user)),
            KickTarget::Player(player) => players.extend([*player]),
            KickTarget::Client(_) => {}
        }
        players.retain(|player| self.room.kick(*player, &order.reason));
        players.into_iter().collect()
    }
}

/// The number of removed players.
///
/// # Errors
/// The [`Refusal`] if no player was removed.
pub(super) fn answer_to_kick(players: &[PlayerId]) -> Result<Bytes, Refusal> {
    if players.is_empty() {
        return Err(Refusal { code: NOBODY_CODE, message: "no such player or spectator is in the room".into() });
    }
    Ok(Bytes::from(players.len().to_string()))
}
