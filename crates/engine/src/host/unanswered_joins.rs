//! The joins of a room that are not answered yet, and those of them that nobody waits for any more.

use std::collections::{BTreeSet, VecDeque};

use hashbrown::{HashMap, hash_map};

use crate::{
    message::SubscriptionRequest,
    room::{JoinParams, SeatKey},
    shrink::shrink_map,
};

use super::Step;

/// Bounded by the number of subscriptions.
#[derive(Debug, Default)]
pub(super) struct UnansweredJoins {
    requests: HashMap<SeatKey, Box<SubscriptionRequest>, foldhash::quality::FixedState>,
    /// Seats whose sessions have ended before their joins were answered, or before they have received the answer.
    abandoned: BTreeSet<SeatKey>,
    /// Joins of such sessions that the game never sees, until they are answered.
    unseen: Vec<(SeatKey, Box<SubscriptionRequest>)>,
}

impl UnansweredJoins {
    pub(super) fn add(&mut self, seat: SeatKey, request: Box<SubscriptionRequest>) {
        self.requests.insert(seat, request);
    }

    /// The session of a seat has ended, and may not have received the answer.
    pub(super) fn abandon(&mut self, seat: SeatKey) {
        self.abandoned.insert(seat);
    }

    /// Takes the join of a seat, to answer it.
    pub(super) fn take(&mut self, seat: SeatKey) -> Option<Box<SubscriptionRequest>> {
        let request = self.requests.remove(&seat);
        shrink_map(&mut self.requests);
        request
    }

    /// The parameters of the joins that wait for the game.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (SeatKey, &JoinParams)> {
        self.requests.iter().filter_map(|(seat, request)| Some((*seat, request.join.as_deref()?)))
    }

    /// Removes the abandoned joins among the steps that have arrived: they are not run. Returns all abandoned seats.
    pub(super) fn part_with_abandoned(&mut self, arrived: &mut VecDeque<Step>) -> BTreeSet<SeatKey> {
        let abandoned = std::mem::take(&mut self.abandoned);
        if abandoned.is_empty() {
            return abandoned;
        }
        let Self { requests, unseen, .. } = self;
        arrived.retain(|step| {
            let Step::Join { seat, .. } = step else { return true };
            let request = abandoned.contains(seat).then(|| requests.remove(seat)).flatten();
            let stays = request.is_none();
            unseen.extend(request.map(|request| (*seat, request)));
            stays
        });
        abandoned
    }

    /// Takes the joins that the game never sees.
    pub(super) fn take_unseen(&mut self) -> Vec<(SeatKey, Box<SubscriptionRequest>)> {
        std::mem::take(&mut self.unseen)
    }

    /// The room ends: takes all joins that wait for the game, and the seats that nobody waits for.
    pub(super) fn take_all(&mut self) -> (hash_map::IntoIter<SeatKey, Box<SubscriptionRequest>>, BTreeSet<SeatKey>) {
        (std::mem::take(&mut self.requests).into_iter(), std::mem::take(&mut self.abandoned))
    }
}
