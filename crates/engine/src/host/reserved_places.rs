//! Places that are reserved for users. While all free places are reserved, joins of other users are refused before they
//! become steps of the room, so logs, recordings and replays need no reservations.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

use dunlin_rooms::PlayerId;

use super::{Runner, Step};
use crate::api::PlaceReservation;

/// Maximum number of reservations kept after all their users have joined. The oldest are dropped first.
const USED_MAX: usize = 1_024;

/// The reservations of a room.
#[derive(Debug, Default)]
pub(super) struct ReservedPlaces {
    /// Oldest first. Those without users are kept for [`ReservedPlaces::reservations`] until they expire.
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
    pub(super) fn reserve(&mut self, reservations: &[PlaceReservation], ticks_per_second: u32) {
        for reservation in reservations {
            let ticks = u64::from(reservation.timeout_ms) * u64::from(ticks_per_second);
            // The next tick to begin also decrements the count, so it does not count against the timeout.
            let ticks = u32::try_from(ticks.div_ceil(1_000)).unwrap_or(u32::MAX).saturating_add(1);
            self.put(reservation, ticks);
        }
    }

    /// The reservations that have not expired: the number, and how many users have not joined.
    pub(super) fn reservations(&self) -> impl Iterator<Item = (u64, u32)> {
        self.kept.iter().map(|kept| (kept.number, u32::try_from(kept.users.len()).unwrap_or(u32::MAX)))
    }

    /// Removes expired reservations. Returns what decides about the steps that arrived since the last tick; `None` if no
    /// place is reserved.
    pub(super) fn begin_admission<'a>(&'a mut self, runner: &'a Runner) -> Option<Admission<'a>> {
        let world = runner.room().world();
        self.expire(world.players_max());
        if self.len() == 0 {
            return None;
        }
        let leaving: Vec<PlayerId> = runner.expiring().collect();
        let players = world.player_count().saturating_sub(leaving.len());
        let free = world.players_max().saturating_sub(players);
        Some(Admission { reserved: self.len(), places: self, runner, leaving, free, holders: BTreeSet::new() })
    }

    /// Adds a reservation. It replaces the one with the same number.
    fn put(&mut self, reservation: &PlaceReservation, ticks: u32) {
        self.kept.retain(|kept| kept.number != reservation.number);
        if !reservation.users.is_empty() {
            let PlaceReservation { number, users, .. } = reservation;
            self.kept.push_back(KeptPlaces { number: *number, users: users.clone(), ticks_left: ticks });
        }
    }

    /// The number of reserved places.
    pub(super) fn len(&self) -> usize {
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

/// Decides which of the steps that arrived since the last tick are admitted.
pub(super) struct Admission<'a> {
    places: &'a ReservedPlaces,
    runner: &'a Runner,
    /// Players that leave before the steps are applied.
    leaving: Vec<PlayerId>,
    free: usize,
    reserved: usize,
    /// The users who have used a reserved place.
    holders: BTreeSet<Arc<str>>,
}

impl Admission<'_> {
    /// Whether a step is admitted. Steps must be passed in their order.
    pub(super) fn admits(&mut self, step: &Step) -> bool {
        match step {
            Step::Leave { seat } => {
                let world = self.runner.room().world();
                let is_player = self.runner.player(*seat).is_some_and(|player| world.is_player(player));
                self.free += usize::from(is_player);
                true
            }
            Step::Join { info, is_spectator: false, claim, .. } => {
                let claimed = self.runner.claimed_by(&info.user, *claim);
                // A user who comes back already has a place.
                if claimed.is_some_and(|player| !self.leaving.contains(&player)) {
                    return true;
                }
                let is_holder = self.places.has(&info.user) && self.holders.insert(Arc::clone(&info.user));
                self.reserved -= usize::from(is_holder);
                // In a full room, the join fails later, with its own reason.
                let is_admitted = is_holder || self.free == 0 || self.free > self.reserved;
                self.free = self.free.saturating_sub(usize::from(is_admitted));
                is_admitted
            }
            _ => true,
        }
    }
}
