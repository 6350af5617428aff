//! Seats with grace: compares the result of each tick with the model, and records it for the checks of clients.

use std::sync::Arc;

use dunlin_engine::{
    api::{ApiRequest, KickOrder, KickTarget},
    host::{CompletedTick, Step},
};
use dunlin_rooms::PlayerId;

use crate::rooms::{Pages, numbered};

use super::{NodeWorld, rooms::Hosted};

/// Players of a user that stay without their clients.
pub(super) const AWAY_PER_USER_MAX: u32 = 2;

/// A mistake of room threads, which tests make to check that it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeatFlaw {
    /// Players whose connections are lost leave at once.
    LeavesAtOnce,
    /// They stay for one tick too long.
    StaysLonger,
    /// They leave one tick early.
    LeavesEarly,
}

impl SeatFlaw {
    /// The grace with the mistake.
    pub(super) fn applied_to(flaw: Option<Self>, grace_ticks: u32) -> u32 {
        match flaw {
            _ if grace_ticks == 0 => 0,
            Some(Self::LeavesAtOnce) => 0,
            Some(Self::StaysLonger) => grace_ticks + 1,
            Some(Self::LeavesEarly) if grace_ticks > 1 => grace_ticks - 1,
            _ => grace_ticks,
        }
    }
}

impl Hosted {
    /// No player is doubled, lost or mixed up, and grace ends at the exact tick.
    pub(super) fn check_seats(
        &mut self,
        pages: &mut Pages,
        steps: &[Step],
        done: &CompletedTick,
    ) -> Result<(), String> {
        let (room, tick) = (self.host.key(), self.runner.ticks_run());
        let at = |error: String| format!("{room:?} in tick {tick}: {error}");
        self.seats.run(tick, steps, done).map_err(at)?;
        let here: Vec<PlayerId> = self.runner.room().world().players().collect();
        if !self.seats.players().eq(here.iter().copied()) {
            let expected: Vec<PlayerId> = self.seats.players().collect();
            return Err(at(format!("the players are {here:?} instead of {expected:?}")));
        }
        if self.seats.away() != done.away() {
            return Err(at(format!("{} players are away instead of {}", done.away(), self.seats.away())));
        }
        self.note_joins(pages, steps, done).map_err(at)?;
        self.note_kicks(pages);
        for (what, times) in [
            ("seat: grace over", done.expired()),
            ("seat: displaced", done.displaced()),
            ("seat: unknown token", done.tokens_refused().unknown),
            ("seat: token of another user", done.tokens_refused().other_user),
        ] {
            (0..times).for_each(|_| pages.count(what));
        }
        Ok(())
    }

    /// The game lets in new players only, so the joins of players who come back are recorded here.
    fn note_joins(&self, pages: &mut Pages, steps: &[Step], done: &CompletedTick) -> Result<(), String> {
        let joins = steps.iter().filter_map(|step| match step {
            Step::Join { info, data, .. } => Some((info, data)),
            _ => None,
        });
        let room = self.host.key();
        for ((info, data), (_, joined)) in joins.zip(done.joins()) {
            let Some(entered) = joined else { continue };
            let earlier = pages.lives[&room].events.iter().filter(|event| {
                let emitted = &pages.events[**event as usize];
                emitted.tick < pages.lives[&room].tick
            });
            let earlier = earlier.count();
            let number = numbered(data, r#"{"join":"#).ok_or("a join without a number")?;
            let join = pages.joins.get_mut(number as usize).ok_or("nobody asked to join")?;
            (join.is_back, join.events_before) = (entered.is_back, earlier);
            if !entered.is_back {
                continue;
            }
            if join.user != *info.user || join.outcome.is_some() {
                return Err(format!("{entered:?} is back by {join:?}"));
            }
            (join.room, join.outcome) = (Some(room), Some(Ok(entered.player)));
            if entered.left_seat.is_some() {
                pages.taken.insert((room, entered.player));
                pages.count("seat: back over a half-open connection");
            }
            pages.count("seat: back");
        }
        Ok(())
    }

    /// A player who is removed at the end of a tick gets none of its events.
    fn note_kicks(&self, pages: &mut Pages) {
        let (kicked, away) = &self.seats.kicked;
        let room = self.host.key();
        let Pages { lives, events, .. } = pages;
        let life = &lives[&room];
        for event in life.events.iter().rev() {
            let emitted = &mut events[*event as usize];
            if emitted.tick < life.tick || kicked.is_empty() {
                break;
            }
            emitted.players.retain(|player| !kicked.contains(player));
            if let Some(users) = &mut emitted.users {
                *users = emitted.players.iter().filter_map(|player| life.users.get(player).cloned()).collect();
            }
        }
        pages.kicked.extend(kicked.iter().map(|player| (room, *player)));
        (0..kicked.len()).for_each(|_| pages.count("seat: kicked"));
        (0..*away).for_each(|_| pages.count("seat: kicked while away"));
    }
}

impl NodeWorld {
    /// The backend removes a user, or a player, from a room.
    pub(super) fn kick(&mut self, shard: usize, channel: &str) -> Result<(), String> {
        let target = match self.chance.below(3) {
            0 => KickTarget::User((*self.chance.pick(&["ann", "ben", "cat"])).into()),
            _ => KickTarget::Player(PlayerId(self.chance.between(1, 6) as u32)),
        };
        let order = Arc::new(KickOrder { target, reason: "".into() });
        self.ask_about_room(shard, ApiRequest::KickFromRoom { channel: channel.into(), order })
    }
}
