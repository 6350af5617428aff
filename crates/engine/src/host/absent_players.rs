//! The players that a room keeps for clients that come back.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use dunlin_rooms::PlayerId;

use crate::room::{SeatClaim, SeatToken, TokenRefusal};

/// The players of a room that keeps them while their clients are away.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AbsentPlayers {
    /// Of all players of the room, whether their clients are away or not.
    entries: BTreeMap<PlayerId, SeatEntry>,
    /// Both tokens of each player.
    by_token: BTreeMap<u128, PlayerId>,
    /// Excludes anonymous users.
    by_user: BTreeSet<(Arc<str>, PlayerId)>,
    /// Players without a client.
    away: BTreeMap<PlayerId, LeavesAt>,
    expiries: BTreeSet<(LeavesAt, PlayerId)>,
    /// The away players of each user, except displaced ones. Excludes anonymous users.
    away_of_users: BTreeMap<Arc<str>, BTreeSet<(LeavesAt, PlayerId)>>,
    /// Players whose user had too many away players. They leave in the next tick.
    displaced: BTreeSet<PlayerId>,
}

/// Identifies the client of a player.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SeatEntry {
    /// Empty for an anonymous user.
    pub(super) user: Arc<str>,
    /// The token that the last join issued.
    pub(super) token: SeatToken,
    /// The token that the last join presented. It stays valid until the client proves that it received `token`, because
    /// the answer may be lost.
    pub(super) returned: Option<SeatToken>,
}

/// The tick in which a player without a client leaves, as a count of the room's ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LeavesAt(pub(super) u64);

impl AbsentPlayers {
    /// Assigns a player to a client.
    pub(super) fn insert(&mut self, player: PlayerId, seat: SeatEntry) {
        self.forget(player);
        for token in [Some(seat.token), seat.returned].into_iter().flatten() {
            self.by_token.insert(token.0, player);
        }
        if !seat.user.is_empty() {
            self.by_user.insert((Arc::clone(&seat.user), player));
        }
        self.entries.insert(player, seat);
    }

    /// Stores the tokens of a join that created a player or took one over.
    pub(super) fn insert_join(&mut self, player: PlayerId, user: Arc<str>, claim: SeatClaim) {
        let Some(token) = claim.given else { return };
        let is_of_player = |returned: &SeatToken| self.by_token.get(&returned.0) == Some(&player);
        let returned = claim.returned.filter(|returned| claim.keeps_returned && is_of_player(returned));
        self.insert(player, SeatEntry { user, token, returned });
    }

    /// The client has acted on the answer to its join, so it has the new token: the token that it presented becomes
    /// invalid.
    pub(super) fn confirm(&mut self, player: PlayerId) {
        let returned = self.entries.get_mut(&player).and_then(|seat| seat.returned.take());
        if let Some(returned) = returned {
            self.forget_token(returned, player);
        }
    }

    /// Removes a player that has left the room.
    pub(super) fn forget(&mut self, player: PlayerId) {
        self.end_absence(player);
        if let Some(seat) = self.entries.remove(&player) {
            for token in [Some(seat.token), seat.returned].into_iter().flatten() {
                self.forget_token(token, player);
            }
            self.by_user.remove(&(seat.user, player));
        }
    }

    /// Another player may have the token by now: the log of a version before may have it twice.
    fn forget_token(&mut self, token: SeatToken, player: PlayerId) {
        if self.by_token.get(&token.0) == Some(&player) {
            self.by_token.remove(&token.0);
        }
    }

    /// Whether a player is kept for its client.
    pub(super) fn has(&self, player: PlayerId) -> bool {
        self.entries.contains_key(&player)
    }

    /// Marks a player as away: its client has disconnected and may return. Returns whether the player has a seat.
    pub(super) fn set_away(&mut self, player: PlayerId, leaves_at: LeavesAt) -> bool {
        self.end_absence(player);
        let Some(seat) = self.entries.get(&player) else { return false };
        if !seat.user.is_empty() {
            self.away_of_users.entry(Arc::clone(&seat.user)).or_default().insert((leaves_at, player));
        }
        self.away.insert(player, leaves_at);
        self.expiries.insert((leaves_at, player));
        true
    }

    /// If the user of a player has more than `players_max` away players, the player with the first deadline leaves at
    /// `leaves_at` instead. Returns whether that happened.
    pub(super) fn displace(&mut self, player: PlayerId, players_max: u32, leaves_at: LeavesAt) -> bool {
        let Some(seat) = self.entries.get(&player) else { return false };
        let Some(of_user) = self.away_of_users.get(&seat.user) else { return false };
        let is_over = of_user.len() > players_max as usize;
        let Some((_, first)) = of_user.first().copied().filter(|_| is_over) else { return false };
        self.end_absence(first);
        self.away.insert(first, leaves_at);
        self.expiries.insert((leaves_at, first));
        self.displaced.insert(first)
    }

    /// Whether a player leaves because its user had too many away players.
    pub(super) fn is_displaced(&self, player: PlayerId) -> bool {
        self.displaced.contains(&player)
    }

    /// Marks all players as away: their clients have disconnected and may return.
    pub(super) fn set_all_away(&mut self, leaves_at: LeavesAt) {
        let players: Vec<PlayerId> = self.entries.keys().copied().collect();
        for player in players {
            self.set_away(player, leaves_at);
        }
    }

    /// A player has a client again.
    pub(super) fn end_absence(&mut self, player: PlayerId) {
        self.displaced.remove(&player);
        let Some(leaves_at) = self.away.remove(&player) else { return };
        self.expiries.remove(&(leaves_at, player));
        let user = self.entries.get(&player).map(|seat| &seat.user);
        if let Some((user, of_user)) = user.and_then(|user| Some((user, self.away_of_users.get_mut(user)?))) {
            of_user.remove(&(leaves_at, player));
            if of_user.is_empty() {
                self.away_of_users.remove(user);
            }
        }
    }

    /// The player that a join takes over: the one that it has created or taken over already; otherwise the one with its
    /// token; otherwise the user's first away player; otherwise, if a user has one seat, the user's player.
    pub(super) fn claimed_by(&self, user: &str, claim: SeatClaim) -> Option<PlayerId> {
        let given = claim.given?;
        if claim.is_keeping() {
            return self.of_same_join(user, given);
        }
        self.of_same_join(user, given).or_else(|| self.of_token(user, claim).ok().flatten()).or_else(|| {
            let may_be_claimed = |player: &PlayerId| claim.is_one_per_user || self.away.contains_key(player);
            self.of_user(user).find(may_be_claimed)
        })
    }

    /// The player of a join that is here for the second time: the room had taken it, and was lost before the answer, but its
    /// log was not.
    fn of_same_join(&self, user: &str, given: SeatToken) -> Option<PlayerId> {
        let player = *self.by_token.get(&given.0)?;
        let seat = self.entries.get(&player)?;
        (seat.token == given && *seat.user == *user).then_some(player)
    }

    /// Why a join's token has no effect. A node's claim has none of a client: its session counts if the seat is not kept.
    pub(super) fn token_refusal(&self, user: &str, claim: SeatClaim) -> Option<TokenRefusal> {
        claim.given.filter(|_| !claim.is_keeping())?;
        self.of_token(user, claim).err()
    }

    /// The player of the token that a join presents; `None` without a token. The token issued by the last join takes
    /// over the player whether or not it has a client. The token presented by that join takes it over only while the
    /// player is away: a join of an earlier connection can arrive late, and must not take the player from the client
    /// that has come back in the meantime.
    fn of_token(&self, user: &str, claim: SeatClaim) -> Result<Option<PlayerId>, TokenRefusal> {
        let Some(returned) = claim.returned else { return Ok(None) };
        let player = self.by_token.get(&returned.0).copied().ok_or(TokenRefusal::Unknown)?;
        let seat = self.entries.get(&player).ok_or(TokenRefusal::Unknown)?;
        if *seat.user != *user {
            return Err(TokenRefusal::OtherUser);
        }
        let is_valid = seat.token == returned || self.away.contains_key(&player);
        if is_valid { Ok(Some(player)) } else { Err(TokenRefusal::Unknown) }
    }

    /// The players of a user; none for the anonymous user.
    pub(super) fn of_user(&self, user: &str) -> impl Iterator<Item = PlayerId> {
        let user: Arc<str> = user.into();
        let first = (Arc::clone(&user), PlayerId(0));
        let of_user = self.by_user.range(first..).take_while(move |(entries, _)| *entries == user);
        of_user.map(|(_, player)| *player)
    }

    /// The players that leave in the tick with this count because they did not come back, in the order in which they
    /// leave.
    pub(super) fn expired(&self, ticks_run: u64) -> impl Iterator<Item = PlayerId> {
        self.expiries.iter().take_while(move |(leaves_at, _)| leaves_at.0 <= ticks_run).map(|(_, player)| *player)
    }

    /// The number of players without a client.
    pub(super) fn away_count(&self) -> usize {
        self.away.len()
    }

    /// All players with their clients' identity, and when those without a client leave.
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = (PlayerId, &SeatEntry, Option<LeavesAt>)> {
        self.entries.iter().map(|(player, seat)| (*player, seat, self.away.get(player).copied()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(returned: Option<u128>, is_one_per_user: bool) -> SeatClaim {
        let returned = returned.map(SeatToken);
        SeatClaim { given: Some(SeatToken(9)), returned, is_one_per_user, keeps_returned: true }
    }

    fn seat(user: &str, token: u32) -> SeatEntry {
        SeatEntry { user: user.into(), token: SeatToken(token.into()), returned: None }
    }

    fn table() -> AbsentPlayers {
        let mut table = AbsentPlayers::default();
        for (player, user, token) in [(1, "ann", 11), (2, "ann", 12), (3, "ben", 13), (4, "", 14)] {
            table.insert(PlayerId(player), seat(user, token));
        }
        table
    }

    #[test]
    fn a_token_finds_its_player_only_for_its_user() {
        let table = table();
        for (user, returned, expected) in [
            ("ann", Some(12), Some(2)),
            ("ben", Some(12), None),
            ("", Some(12), None),
            ("", Some(14), Some(4)),
            ("ann", Some(99), None),
            ("ann", None, None),
        ] {
            let found = table.claimed_by(user, claim(returned, false));
            assert_eq!(found, expected.map(PlayerId), "{user} with {returned:?}");
        }
        let without_seats = SeatClaim { given: None, ..claim(Some(12), true) };
        assert_eq!(table.claimed_by("ann", without_seats), None);
    }

    #[test]
    fn a_token_without_effect_has_a_reason() {
        let table = table();
        for (user, returned, expected) in [
            ("ann", Some(12), None),
            ("ann", None, None),
            ("ann", Some(99), Some(TokenRefusal::Unknown)),
            ("ben", Some(12), Some(TokenRefusal::OtherUser)),
            ("", Some(12), Some(TokenRefusal::OtherUser)),
            ("ann", Some(14), Some(TokenRefusal::OtherUser)),
        ] {
            assert_eq!(table.token_refusal(user, claim(returned, false)), expected, "{user} with {returned:?}");
        }
        let without_seats = SeatClaim { given: None, ..claim(Some(99), false) };
        assert_eq!(table.token_refusal("ann", without_seats), None);
    }

    #[test]
    fn the_presented_token_stays_valid_until_the_client_has_the_new_one() {
        let rejoin = |table: &mut AbsentPlayers, given, returned| {
            let claim = SeatClaim { given: Some(SeatToken(given)), ..claim(Some(returned), false) };
            let player = table.claimed_by("", claim);
            if let Some(player) = player {
                table.insert_join(player, "".into(), claim);
            }
            player.is_some()
        };
        let finds = |table: &AbsentPlayers| -> Vec<u128> {
            (10..30).filter(|token| table.by_token.get(token) == Some(&PlayerId(4))).collect()
        };
        let mut table = table();
        // Two answers are lost, and the client presents its old token again.
        for given in [21, 22] {
            assert!(table.set_away(PlayerId(4), LeavesAt(5)));
            assert!(rejoin(&mut table, given, 14));
            assert_eq!(finds(&table), [14, given], "at most two tokens are valid");
        }
        assert!(!rejoin(&mut table, 23, 14), "a late join of an earlier connection has no effect");
        assert_eq!(table.token_refusal("", claim(Some(14), false)), Some(TokenRefusal::Unknown));
        // The client uses the new token.
        assert!(rejoin(&mut table, 23, 22) && !rejoin(&mut table, 24, 14));
        assert_eq!(finds(&table), [22, 23]);
        table.confirm(PlayerId(4));
        assert_eq!(finds(&table), [23]);
        assert!(!rejoin(&mut table, 24, 22) && rejoin(&mut table, 24, 23));
        // As in logs of earlier versions.
        table.insert_join(PlayerId(4), "".into(), SeatClaim { keeps_returned: false, ..claim(Some(24), false) });
        assert_eq!(finds(&table), Vec::<u128>::new());
        assert_eq!(table.by_token.get(&9), Some(&PlayerId(4)));
        for player in 1..=4 {
            table.forget(PlayerId(player));
        }
        assert_eq!(table, AbsentPlayers::default(), "no state remains of players that left");
    }

    /// A node has stored the tick of a join, and stops before it answers. The join asks again, and another node has restored
    /// the room.
    #[test]
    fn a_join_that_is_asked_for_again_finds_its_player() {
        for (user, returned) in [("", None), ("", Some(14)), ("ann", None), ("ann", Some(99))] {
            let mut table = table();
            let join = SeatClaim { given: Some(SeatToken(21)), ..claim(returned, false) };
            let player = table.claimed_by(user, join).unwrap_or(PlayerId(5));
            table.insert_join(player, user.into(), join);
            // Another player of the user is away for longer.
            assert!(table.set_away(PlayerId(1), LeavesAt(5)) && table.set_away(player, LeavesAt(6)));
            assert_eq!(table.claimed_by(user, join), Some(player), "{user} with {returned:?}");
            assert_eq!(table.claimed_by("ben", join), None, "another user has no claim");
            table.end_absence(player);
            table.insert_join(player, user.into(), join);
            assert_eq!(table.claimed_by(user, join), Some(player), "also if its first client has not left yet");
            assert_eq!(table.by_token.get(&21), Some(&player));
        }
    }

    #[test]
    fn a_player_that_leaves_takes_no_token_of_another_one_with_it() {
        let mut table = table();
        table.insert(PlayerId(5), seat("", 14));
        table.forget(PlayerId(4));
        assert_eq!(table.claimed_by("", claim(Some(14), false)), Some(PlayerId(5)));
        table.insert(PlayerId(6), SeatEntry { returned: Some(SeatToken(14)), ..seat("", 16) });
        table.insert(PlayerId(5), seat("", 14));
        table.confirm(PlayerId(6));
        assert_eq!(table.claimed_by("", claim(Some(14), false)), Some(PlayerId(5)));
    }

    #[test]
    fn a_user_without_a_token_gets_its_player_that_is_away() {
        let mut table = table();
        assert!(table.set_away(PlayerId(2), LeavesAt(5)) && table.set_away(PlayerId(4), LeavesAt(5)));
        assert_eq!(table.claimed_by("ann", claim(None, false)), Some(PlayerId(2)));
        assert_eq!(table.claimed_by("ann", claim(Some(99), false)), Some(PlayerId(2)), "a stale token");
        assert_eq!(table.claimed_by("", claim(None, false)), None, "anonymous users have no players");
        assert_eq!(table.claimed_by("ann", claim(None, true)), Some(PlayerId(1)), "the user's first");
        assert_eq!(table.claimed_by("ben", claim(None, true)), Some(PlayerId(3)), "also one with a client");
    }

    #[test]
    fn away_players_per_user_are_limited() {
        let mut table = AbsentPlayers::default();
        for (player, user) in [(1, "ann"), (2, "ann"), (3, "ann"), (4, ""), (5, ""), (6, "ben")] {
            table.insert(PlayerId(player), seat(user, player));
            assert!(table.set_away(PlayerId(player), LeavesAt(100 + u64::from(player))));
            // At the limit, no player leaves. One past the limit, the user's player that would leave first does.
            assert_eq!(table.displace(PlayerId(player), 2, LeavesAt(7)), player == 3, "{player}");
        }
        assert_eq!(table.expired(7).collect::<Vec<_>>(), [PlayerId(1)]);
        assert!(table.is_displaced(PlayerId(1)) && table.away_count() == 6);
        // The displaced player may still return, and counts again when it is away again.
        table.end_absence(PlayerId(1));
        assert!(!table.is_displaced(PlayerId(1)));
        assert!(table.set_away(PlayerId(1), LeavesAt(200)) && table.displace(PlayerId(1), 2, LeavesAt(8)));
        assert!(table.is_displaced(PlayerId(2)));
        for player in 1..=6 {
            table.forget(PlayerId(player));
        }
        assert_eq!(table, AbsentPlayers::default(), "no state remains of players that left");
    }

    #[test]
    fn players_expire_at_their_tick() {
        let mut table = table();
        assert!(!table.set_away(PlayerId(9), LeavesAt(5)));
        for (player, tick) in [(1, 6), (2, 5), (3, 5)] {
            table.set_away(PlayerId(player), LeavesAt(tick));
        }
        table.end_absence(PlayerId(3));
        let expired = |table: &AbsentPlayers, tick| table.expired(tick).map(|player| player.0).collect::<Vec<_>>();
        assert_eq!(expired(&table, 4), Vec::<u32>::new());
        assert_eq!(expired(&table, 5), [2]);
        assert_eq!(expired(&table, 6), [2, 1]);
        table.forget(PlayerId(2));
        assert_eq!((expired(&table, 6), table.away_count()), (vec![1], 1));
        assert_eq!(table.claimed_by("ann", claim(Some(12), false)), Some(PlayerId(1)), "its token is void");
    }
}
