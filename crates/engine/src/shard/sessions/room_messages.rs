//! What a room and its owner send to the players of a shard: the keyframes and ticks that the mirrors show, and ends.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use dunlin_protocol::UnsubscribeCode;
use dunlin_rooms::{Grid, TickUpdate};

use crate::{
    Effect, SessionKey,
    hub::{HubEntry, LocalChannelId},
    message::{AnswerPace, ShardRequest, SubscriptionRequest},
    room::{
        JOIN_WAIT_MAX_MS, JoinParams, Opening, RoomKey, RoomThreadIndex, SeatChange, SeatClaim, SeatKey, SeatToken,
    },
    session::Subscription,
    session_seats::SeatIndex,
};

use super::{
    Context,
    inputs::send_kept,
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
        // A session that has left a room which moves may have joined it again: its new seat has taken over this one.
        let current = self.sessions.table.get(session).and_then(|session| session.subscription(channel));
        if current.and_then(Subscription::seat) != Some(index) {
            self.context.counters.late_messages += 1;
            return;
        }
        let reason = reason.as_deref().unwrap_or(code.reason());
        self.sessions.end_subscription_with(self.context, session, channel, code, reason);
    }

    /// Handles the keyframe of a room.
    pub(in crate::shard) fn see_room(
        &mut self,
        key: RoomKey,
        channel: &str,
        (grid, ticks_per_second, keyframe): (Grid, u32, Arc<TickUpdate>),
        recorded_by: Option<RoomThreadIndex>,
    ) {
        let id = self.sessions.hub.find(channel);
        let place =
            id.and_then(|id| self.sessions.seats.find_or_insert_room(key, id, self.sessions.hub.channel(id).namespace));
        match place {
            Some(place) => {
                let room = self.sessions.seats.room_mut(place);
                room.show(grid, ticks_per_second, keyframe);
                room.tell(recorded_by.map(|thread| (thread, self.context.identity.index)));
            }
            // The last player left in the meantime; the room will receive the leave. Or the room was lost.
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
        room.inputs_taken(inputs_taken);
        if let Some((thread, message)) = room.take_told() {
            self.context.effects.list.push(Effect::ToRoom { thread, message });
        }
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
            if let Some(seat) = self.sessions.seats.change(key, tick, change) {
                send_kept(self.context, &mut self.sessions.seats, seat);
            }
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
        let forgotten = seats.forget_room(room, |session| sessions.outbox(session).seat_is_not_due());
        if let Some(mut room) = forgotten {
            count_room(self.context, &mut room);
        }
        let reason = reason.as_deref().unwrap_or(code.reason());
        for (key, _) in self.players_of(channel, room) {
            self.sessions.end_subscription_with(self.context, key, channel, code, reason);
        }
    }

    /// The sessions of this shard whose players are in a room, and their seats.
    fn players_of(&self, channel: LocalChannelId, room: RoomKey) -> Vec<(SessionKey, SeatIndex)> {
        let in_room = |entry: &HubEntry| {
            let session = self.sessions.table.at(entry.session);
            let seat = session.subscription(channel).and_then(Subscription::seat)?;
            let route = self.sessions.seats.at(seat).room.filter(|route| route.key == room);
            route.map(|_| (session.key, seat))
        };
        self.sessions.hub.channel(channel).subscribers().filter_map(in_room).collect()
    }

    /// A room of another node is lost and may go on elsewhere: its players join again with their seat tokens. Spectators have
    /// none, and their clients join again.
    pub(in crate::shard) fn room_moves(&mut self, channel: &str, room: RoomKey) {
        let Some(channel) = self.context.counters.found_or_late(self.sessions.hub.find(channel)) else { return };
        let OpenSessions { seats, table: sessions, .. } = &mut *self.sessions;
        let forgotten = seats.lose_room(channel, room, |session| sessions.outbox(session).seat_is_not_due());
        let mut sent = forgotten.map_or_else(BTreeMap::new, |mut room| {
            count_room(self.context, &mut room);
            room.sent.by_seat()
        });
        for (key, seat) in self.players_of(channel, room) {
            let Some(token) = self.sessions.seats.at(seat).token else {
                self.sessions.end_subscription(self.context, key, channel, UnsubscribeCode::ROOM_FAILED);
                continue;
            };
            let SeatKey { index, generation, .. } = self.sessions.seats.key(self.context.identity.index, seat);
            self.sessions.seats.keep(seat, sent.remove(&(index, generation)).unwrap_or_default());
            self.sessions.table.outbox(key.index).remove_seat(seat, false);
            let request = self.join_again(key, seat, token);
            self.context.request(self.context.owner(&request.channel), ShardRequest::Subscribe(request));
        }
    }

    /// The join of a seat that is kept. It waits for the room as other joins do.
    fn join_again(&self, key: SessionKey, seat: SeatIndex, token: SeatToken) -> Box<SubscriptionRequest> {
        let kept = self.sessions.seats.at(seat);
        let channel = self.sessions.hub.channel(kept.channel);
        let session = self.sessions.table.at(key.index);
        let subscription = session.subscription(kept.channel).expect("it is one of the channel's subscribers");
        let of_session = session.info.as_ref().expect("a session with a subscription is authenticated");
        let limits = self.context.namespace(channel.namespace).room.as_ref();
        let join = JoinParams {
            seat: self.sessions.seats.key(self.context.identity.index, seat),
            info: Arc::clone(subscription.info(of_session)),
            address: session.address.filter(|_| limits.is_some_and(|room| room.shows_address)),
            is_spectator: false,
            is_typed: kept.is_typed,
            data: Bytes::new(),
            // Nothing was taken from the rates of the session and its address.
            opening: Opening::Used,
            claim: SeatClaim::keeping(token),
            waits_until_us: self.context.now.after_ms(JOIN_WAIT_MAX_MS),
            // It asks for nothing that may be too large for the session's queue, so nothing holds it.
            held_until_us: 0,
        };
        Box::new(SubscriptionRequest {
            answer: AnswerPace::Short,
            channel: Arc::clone(&channel.name),
            asker: self.context.asker(key, 0),
            creator: session.creator(self.context.identity.index, self.context.node_seed),
            subscriber: session.subscriber(subscription),
            positioned: false,
            was_recovering: false,
            asked_us: self.context.now.mono_us,
            recover: None,
            filter: None,
            join: Some(Box::new(join)),
        })
    }
}
