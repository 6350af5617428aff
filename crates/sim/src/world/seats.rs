//! Seats with a grace period: compares the result of each tick with the model, and records it for the checks of
//! clients.

use std::sync::Arc;

use dunlin_engine::{
    api::{ApiRequest, KickOrder, KickTarget},
    host::{CompletedTick, Step},
};
use dunlin_rooms::PlayerId;

use crate::rooms::{RoomModel, numbered};

use super::{NodeWorld, rooms::HostedRoom};

/// Maximum number of players of a user that stay while their clients are disconnected.
pub(super) const AWAY_PER_USER_MAX: u32 = 2;

/// A bug that tests plant in the room threads to verify that the checks find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeatFlaw {
    /// Players leave at once when their connection is lost.
    LeavesAtOnce,
    /// Players leave one tick late.
    StaysLonger,
    /// Players leave one tick early.
    LeavesEarly,
}

impl SeatFlaw {
    /// The grace period, changed by the planted bug.
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

impl HostedRoom {
    /// Checks that no player is duplicated, lost or swapped, and that the grace period ends at the exact tick.
    pub(super) fn check_seats(
        &mut self,
        room_model: &mut RoomModel,
        steps: &[Step],
        done: &CompletedTick,
    ) -> Result<(), String> {
        let (room, tick) = (self.host.key(), self.runner.ticks_run());
        let at = |error: String| format!("{room:?} in tick {tick}: {error}");
        self.seats.check(tick, steps, done, self.runner.room()).map_err(at)?;
        self.record_joins(room_model, steps, done).map_err(at)?;
        self.record_kicks(room_model);
        for (what, times) in [
            ("seat: grace period ended", done.expired()),
            ("seat: displaced", done.displaced()),
            ("seat: unknown token", done.tokens_refused().unknown),
            ("seat: token of another user", done.tokens_refused().other_user),
        ] {
            (0..times).for_each(|_| room_model.count(what));
        }
        Ok(())
    }

    /// Records the joins of players who resume. The game only gets and records new players.
    fn record_joins(&self, room_model: &mut RoomModel, steps: &[Step], done: &CompletedTick) -> Result<(), String> {
        let joins = steps.iter().filter_map(|step| match step {
            Step::Join { info, data, .. } => Some((info, data)),
            _ => None,
        });
        let room = self.host.key();
        for ((info, data), (_, joined)) in joins.zip(done.joins()) {
            let Some(entered) = joined else { continue };
            let earlier = room_model.records[&room].events.iter().filter(|event| {
                let emitted = &room_model.events[**event as usize];
                emitted.tick < room_model.records[&room].tick
            });
            let earlier = earlier.count();
            let number = numbered(data, r#"{"join":"#).ok_or("a join without a number")?;
            let join = room_model.joins.get_mut(number as usize).ok_or("a join that no client requested")?;
            (join.is_back, join.events_before) = (entered.is_back, earlier);
            if !entered.is_back {
                continue;
            }
            if join.user != *info.user || join.outcome.is_some() {
                return Err(format!("{entered:?} must not resume by {join:?}"));
            }
            (join.room, join.outcome) = (Some(room), Some(Ok(entered.player)));
            if entered.left_seat.is_some() {
                room_model.taken_over.insert((room, entered.player));
                room_model.count("seat: resumed over a half-open connection");
            }
            room_model.count("seat: resumed");
        }
        Ok(())
    }

    /// Records the kicks of a tick. A player that is kicked at the end of a tick gets none of its events.
    fn record_kicks(&self, room_model: &mut RoomModel) {
        let (kicked, away) = &self.seats.kicked;
        let room = self.host.key();
        let RoomModel { records, events, .. } = room_model;
        let record = &records[&room];
        for event in record.events.iter().rev() {
            let emitted = &mut events[*event as usize];
            if emitted.tick < record.tick || kicked.is_empty() {
                break;
            }
            emitted.players.retain(|player| !kicked.contains(player));
            if let Some(users) = &mut emitted.users {
                *users = emitted.players.iter().filter_map(|player| record.users.get(player).cloned()).collect();
            }
        }
        room_model.kicked.extend(kicked.iter().map(|player| (room, *player)));
        (0..kicked.len()).for_each(|_| room_model.count("seat: kicked"));
        (0..*away).for_each(|_| room_model.count("seat: kicked while away"));
    }
}

impl NodeWorld {
    /// Kicks a random user or player from a room.
    pub(super) fn kick(&mut self, shard: usize, channel: &str) -> Result<(), String> {
        let target = match self.harness.chance.below(3) {
            0 => KickTarget::User((*self.harness.chance.pick(&["ann", "ben", "cat"])).into()),
            _ => KickTarget::Player(PlayerId(self.harness.chance.between(1, 6) as u32)),
        };
        let order = Arc::new(KickOrder { target, reason: "".into() });
        self.send_room_request(shard, ApiRequest::KickFromRoom { channel: channel.into(), order })
    }
}
