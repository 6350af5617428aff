//! Places that are reserved for users. While all free places are reserved, joins of other users are refused before they
//! become steps of the room, so logs, recordings and replays need no reservations.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

use dunlin_rooms::PlayerId;

use super::{RoomHost, RoutedMessage, Runner, Step};
use crate::{
    api::PlaceReservation,
    room::{FromRoom, NotJoined},
};

/// Maximum number of reservations kept after all their users have joined. The oldest are dropped first.
const USED_MAX: usize = 1_024;

/// The reservations of a room.
#[derive(Debug, Default)]
pub(super) struct ReservedPlaces {
    /// Oldest first. Those without users are kept for [`RoomHost::reservations`] until they expire.
    kept: VecDeque<KeptPlaces>,
}

#[derive(Debug)]
struct KeptPlaces {
    number: u64,
    /// Users who have not joined.
    users: Vec<Arc<str>>,
    ticks_left: u32,
}

impl ReservedPlaces {
    /// Adds a reservation. It replaces the one with the same number.
    fn put(&mut self, reservation: &PlaceReservation, ticks: u32) {
        self.kept.retain(|kept| kept.number != reservation.number);
        if !reservation.users.is_empty() {
            let PlaceReservation { number, users, .. } = reservation;
            self.kept.push_back(KeptPlaces { number: *number, users: users.clone(), ticks_left: ticks });
        }
    }

    /// The number of reserved places.
    fn len(&self) -> usize {
        self.kept.iter().map(|kept| kept.users.len()).sum()
    }

    fn has(&self, user: &str) -> bool {
        self.kept.iter().any(|kept| kept.users.iter().any(|known| **known == *user))
    }

    /// Removes one reserved place of a user who has joined.
    pub(super) fn use_place(&mut self, user: &str) {
        for kept in &mut self.kept {
            if let Some(index) = kept.users.iter().position(|known| **known == *user) {
                kept.users.swap_remove(index);
                break;
            }
        }
        let mut empty = (0..self.kept.len()).filter(|index| self.kept[*index].users.is_empty());
        if let Some(oldest) = empty.next()
            && empty.count() >= USED_MAX
        {
            self.kept.remove(oldest);
        }
    }

    /// Removes expired reservations, and the oldest ones beyond the number of places. Called once per tick.
    fn expire(&mut self, places_max: usize) {
        self.kept.retain_mut(|kept| {
            kept.ticks_left = kept.ticks_left.saturating_sub(1);
            kept.ticks_left > 0
        });
        let mut excess = self.len().saturating_sub(places_max);
        if excess > 0 {
            self.kept.retain(|kept| {
                let is_kept = excess == 0 || kept.users.is_empty();
                excess = if is_kept { excess } else { excess.saturating_sub(kept.users.len()) };
                is_kept
            });
        }
    }
}

impl RoomHost {
    /// The number of places reserved for users who have not joined.
    pub fn reserved_places(&self) -> usize {
        self.places.len()
    }

    /// The reservations that have not expired: the number, and how many users have not joined.
    pub fn reservations(&self) -> impl Iterator<Item = (u64, u32)> {
        self.places.kept.iter().map(|kept| (kept.number, u32::try_from(kept.users.len()).unwrap_or(u32::MAX)))
    }

    pub(super) fn reserve(&mut self, reservations: &[PlaceReservation]) {
        for reservation in reservations {
            let ticks = u64::from(reservation.timeout_ms) * u64::from(self.options.ticks_per_second);
            // The next tick to begin also decrements the count, so it does not count against the timeout.
            let ticks = u32::try_from(ticks.div_ceil(1_000)).unwrap_or(u32::MAX).saturating_add(1);
            self.places.put(reservation, ticks);
        }
    }

    /// Refuses joins that arrived since the last tick while all free places are reserved for other users. Call it right
    /// before [`RoomHost::begin`]. The answers are appended to `outgoing`.
    pub fn refuse_unreserved(&mut self, runner: &Runner, outgoing: &mut Vec<RoutedMessage>) {
        let Self { places, arrived, requests, key, .. } = self;
        let world = runner.room().world();
        places.expire(world.players_max());
        if places.len() == 0 {
            return;
        }
        let leaving: Vec<PlayerId> = runner.expiring().collect();
        let players = world.player_count().saturating_sub(leaving.len());
        let mut free = world.players_max().saturating_sub(players);
        let (mut reserved, mut holders) = (places.len(), BTreeSet::new());
        let mut is_admitted = |step: &Step| match step {
            Step::Leave { seat } => {
                free += usize::from(runner.seated_players.player(*seat).is_some_and(|player| world.is_player(player)));
                true
            }
            Step::Join { info, is_spectator: false, claim, .. } => {
                // A user who comes back already has a place.
                if runner
                    .returning_players
                    .claimed_by(&info.user, *claim)
                    .is_some_and(|player| !leaving.contains(&player))
                {
                    return true;
                }
                let is_holder = places.has(&info.user) && holders.insert(Arc::clone(&info.user));
                reserved -= usize::from(is_holder);
                // In a full room, the join fails later, with its own reason.
                let is_admitted = is_holder || free == 0 || free > reserved;
                free = free.saturating_sub(usize::from(is_admitted));
                is_admitted
            }
            _ => true,
        };
        arrived.retain(|step| {
            let is_admitted = is_admitted(step);
            if let (Step::Join { seat, .. }, false) = (step, is_admitted)
                && let Some(request) = requests.remove(seat)
            {
                let outcome = Err(NotJoined::Reserved);
                outgoing.push((key.owner, FromRoom::Joined { room: *key, request, outcome }));
            }
            is_admitted
        });
    }
}
