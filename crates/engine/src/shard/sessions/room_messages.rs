//! What a room and its owner send to the players of a shard: the keyframes and ticks that the mirrors show, and ends.

use std::sync::Arc;

use dunlin_protocol::UnsubscribeCode;
use dunlin_rooms::{Grid, TickUpdate};

use crate::{
    SessionKey,
    hub::LocalChannelId,
    room::{RoomKey, SeatChange, SeatKey},
    session::Subscription,
};

use super::{
    Context,
    open_sessions::{OpenSessions, count_room},
};

/// A message of a room to its players on this shard.
pub(in crate::shard) struct RoomMessages<'s> {
    pub(super) context: &'s mut Context,
    pub(super) sessions: &'s mut OpenSessions,
}

impl RoomMessages<'_> {
    /// A room thread reports the end of a room.
    pub(in crate::shard) fn room_thread_ended_room(
        &mut self,
        room: RoomKey,
        (code, reason): (UnsubscribeCode, Option<Arc<str>>),
    ) {
        match self.sessions.seats.room_place(room) {
            Some(place) => {
                let channel = self.sessions.seats.room_mut(place).channel;
                self.end_room(channel, room, (code, reason));
            }
            None => self.context.counters.late_messages += 1,
        }
    }

    /// A room thread reports that a session's player has left, or has been taken over by another session.
    pub(in crate::shard) fn unseat(&mut self, seat: SeatKey, (code, reason): (UnsubscribeCode, Option<Arc<str>>)) {
        // The session may have left in the meantime.
        let Some(index) = self.context.counters.found_or_late(self.sessions.seats.find(seat)) else { return };
        let (session, channel) = (self.sessions.seats.at(index).session, self.sessions.seats.at(index).channel);
        let reason = reason.as_deref().unwrap_or(code.reason());
        self.sessions.end_subscription_with(self.context, session, channel, code, reason);
    }

    /// Handles the keyframe of a room.
    pub(in crate::shard) fn see_room(
        &mut self,
        key: RoomKey,
        channel: &str,
        (grid, ticks_per_second, keyframe): (Grid, u32, Arc<TickUpdate>),
    ) {
        let id = self.sessions.hub.find(channel);
        let place =
            id.and_then(|id| self.sessions.seats.find_or_insert_room(key, id, self.sessions.hub.channel(id).namespace));
        match place {
            Some(place) => self.sessions.seats.room_mut(place).show(grid, ticks_per_second, keyframe),
            // The last player left in the meantime; the room will receive the leave.
            None => self.context.counters.late_messages += 1,
        }
    }

    /// Handles a tick: applies the changes of players, and marks all seats as due. Marking costs a player one flag of
    /// its seat and one of its session.
    pub(in crate::shard) fn take_tick(
        &mut self,
        key: RoomKey,
        update: Arc<TickUpdate>,
        changes: Vec<SeatChange>,
        inputs_taken: u32,
    ) {
        let Some(place) = self.context.counters.found_or_late(self.sessions.seats.room_place(key)) else { return };
        let tick = update.tick();
        let room = self.sessions.seats.room_mut(place);
        room.inbox_inputs = room.inbox_inputs.saturating_sub(inputs_taken);
        let counted = room.newly_counted();
        let namespace = room.namespace;
        if !room.advance(update) {
            // The tick was for earlier players: a keyframe precedes the tick that names the next one.
            self.context.counters.late_messages += 1;
            return;
        }
        self.context.counters.count_bodies(namespace, counted);
        self.context.count(namespace).rooms.ticks += 1;
        for change in changes {
            self.sessions.seats.change(key, tick, change);
        }
        let limit = self.context.namespace(namespace).room.as_ref().and_then(|room| room.frame_bytes_per_second);
        let now_us = self.context.now.mono_us;
        let OpenSessions { seats, table: sessions, .. } = &mut *self.sessions;
        seats.room_mut(place).frame_bytes_per_second = limit;
        let mark = |session| {
            let outbox = sessions.outbox(session);
            outbox.seat_is_due(now_us);
            outbox.list(session, &mut self.context.effects);
        };
        match limit {
            None => seats.mark_all_due(place, mark),
            Some(limit) => {
                let limited = seats.mark_due_within(place, now_us, limit, mark);
                self.context.count(namespace).rooms.limited_ticks += limited;
            }
        }
    }

    /// The owner reports the end of a room.
    pub(in crate::shard) fn room_is_over(
        &mut self,
        channel: &str,
        room: RoomKey,
        why: (UnsubscribeCode, Option<Arc<str>>),
    ) {
        match self.sessions.hub.find(channel) {
            Some(id) => self.end_room(id, room, why),
            None => self.context.counters.late_messages += 1,
        }
    }

    /// Ends the subscriptions of this shard's players in a room. Sessions that wait for the owner's answer are notified
    /// after it.
    fn end_room(
        &mut self,
        channel: LocalChannelId,
        room: RoomKey,
        (code, reason): (UnsubscribeCode, Option<Arc<str>>),
    ) {
        let OpenSessions { seats, table: sessions, .. } = &mut *self.sessions;
        if let Some(mut room) = seats.forget_room(room, |session| sessions.outbox(session).seat_is_not_due()) {
            count_room(self.context, &mut room);
        }
        let is_in_it = |session: &u32| {
            let seat = self.sessions.table.at(*session).subscription(channel).and_then(Subscription::seat);
            seat.and_then(|seat| self.sessions.seats.at(seat).room).is_some_and(|route| route.key == room)
        };
        let local = self.sessions.hub.channel(channel);
        let players: Vec<SessionKey> = local
            .subscribers()
            .map(|entry| entry.session)
            .filter(is_in_it)
            .map(|session| self.sessions.table.at(session).key)
            .collect();
        let reason = reason.as_deref().unwrap_or(code.reason());
        for key in players {
            self.sessions.end_subscription_with(self.context, key, channel, code, reason);
        }
    }
}
