//! The listening side of a room: its picture, who of this shard sees it, and who has something to be written.

use std::sync::Arc;

use dunlin_protocol::{Disconnect, UnsubscribeCode};
use dunlin_rooms::{Grid, TickUpdate};

use crate::{
    Effects, Now, SessionKey, Wire,
    frame::{Delivery, FramePlace, FrameRef},
    hub::LocalChannelId,
    names::NamespaceIndex,
    room::{EventAudience, FromRoom, JoinWish, RoomKey, RoomThreadIndex, SeatChange, SeatKey},
    seats::{LocalRoom, RoomRoad, SeatIndex},
    session::{SubscribeWish, Subscription},
};

use super::Shard;

impl Shard {
    /// Takes in what a room thread says.
    pub(super) fn hear_room(&mut self, now: Now, from: RoomThreadIndex, message: FromRoom, effects: &mut Effects) {
        match message {
            FromRoom::Joined { room, order, outcome } => self.joined(now, room, order, outcome, effects),
            FromRoom::Event { room, channel, data, audience } => {
                self.take_event(now, room, &channel, data, audience, effects);
            }
            FromRoom::Publish { channel, data } => self.take_room_publication(now, &channel, data, effects),
            FromRoom::Idle { room, channel } => self.room_is_idle(room, &channel, effects),
            FromRoom::Failed { room, channel } => self.room_has_failed(room, &channel, effects),
            FromRoom::Keyframe { room, channel, grid, ticks_per_second, keyframe } => {
                self.see_room(room, &channel, grid, ticks_per_second, keyframe);
            }
            FromRoom::Tick { room, update, changes, inputs_taken } => {
                self.take_tick(now, room, update, changes, inputs_taken, effects);
            }
            FromRoom::Over { room, code } => match self.seats.room_place(room) {
                Some(place) => {
                    let channel = self.seats.room_mut(place).channel;
                    self.end_room(now, channel, room, code, effects);
                }
                None => self.counters.late_messages += 1,
            },
            FromRoom::Load { permille, rooms: _ } => self.room_thread_load(from, permille),
        }
    }

    /// A seat for a session that wants to join, and what its room has to know.
    pub(super) fn take_seat(
        &mut self,
        key: SessionKey,
        channel: &str,
        namespace: NamespaceIndex,
        wish: &SubscribeWish,
    ) -> (SeatIndex, Box<JoinWish>) {
        // The seat may outlive the session's subscription, until the owner has answered.
        let id = self.hub.hold(channel, namespace);
        let wire = self.sessions.at(key.index).wire;
        let (index, seat) = self.seats.take(self.identity.index, key, wire, id);
        (index, Box::new(JoinWish { seat, user: self.user(key), data: wish.data.clone() }))
    }

    /// Gives a seat back.
    pub(super) fn free_seat(&mut self, index: SeatIndex) {
        let given_back = self.seats.give_back(index);
        if let Some(outbox) = self.sessions.outbox_of(given_back.session) {
            outbox.remove_seat(index, given_back.was_due);
        }
        for mut room in given_back.rooms {
            self.count_room(&mut room);
        }
        self.hub.release(given_back.channel);
    }

    fn count_room(&mut self, room: &mut LocalRoom) {
        self.counters.count_bodies(room.namespace, room.newly_counted());
    }

    /// The room that a seat is in, and the seat's name there.
    pub(super) fn room_of(&self, seat: SeatIndex) -> Option<(RoomKey, SeatKey)> {
        let road = self.seats.at(seat).room?;
        Some((road.key, self.seats.key(self.identity.index, seat)))
    }

    /// A session's subscription to a room stands.
    pub(super) fn sit_down(&mut self, now: Now, seat: SeatIndex, road: RoomRoad, effects: &mut Effects) {
        let (session, channel) = (self.seats.at(seat).session, self.seats.at(seat).channel);
        let namespace = self.hub.channel(channel).namespace;
        self.seats.know_room(road.key, channel, namespace);
        self.sessions.outbox(session.index).add_seat(seat);
        if self.seats.sit_down(seat, road) {
            self.seat_is_due(now, seat, effects);
        }
    }

    fn seat_is_due(&mut self, now: Now, seat: SeatIndex, effects: &mut Effects) {
        if let Some(session) = self.seats.is_due_now(seat) {
            let outbox = self.sessions.outbox(session);
            outbox.seat_is_due(now.mono_us);
            if !std::mem::replace(&mut outbox.listed, true) {
                effects.dirty.push(SessionKey { index: session, generation: outbox.generation });
            }
        }
    }

    /// Takes in the whole world of a room.
    fn see_room(&mut self, key: RoomKey, channel: &str, grid: Grid, ticks_per_second: u32, keyframe: Arc<TickUpdate>) {
        let id = self.hub.find(channel);
        let place = id.and_then(|id| self.seats.know_room(key, id, self.hub.channel(id).namespace));
        match place {
            Some(place) => self.seats.room_mut(place).show(grid, ticks_per_second, keyframe),
            // The last who was there has left meanwhile; the room will hear of it.
            None => self.counters.late_messages += 1,
        }
    }

    /// Takes in a tick: what is new about some players, and that everybody has something to be written. What the latter
    /// costs a player is a flag of its seat, and one of its session.
    fn take_tick(
        &mut self,
        now: Now,
        key: RoomKey,
        update: Arc<TickUpdate>,
        changes: Vec<SeatChange>,
        inputs_taken: u32,
        effects: &mut Effects,
    ) {
        let Some(place) = self.seats.room_place(key) else {
            self.counters.late_messages += 1;
            return;
        };
        let tick = update.tick();
        let room = self.seats.room_mut(place);
        room.inbox_inputs = room.inbox_inputs.saturating_sub(inputs_taken);
        let counted = room.newly_counted();
        let namespace = room.namespace;
        if !room.advance(update) {
            // Meant for those who were here before: the whole world comes before the tick that names the next.
            self.counters.late_messages += 1;
            return;
        }
        self.counters.count_bodies(namespace, counted);
        self.count(namespace).rooms.ticks += 1;
        for change in changes {
            self.seats.change(key, tick, change);
        }
        let Self { seats, sessions, .. } = self;
        seats.all_are_due(place, |session| {
            let outbox = sessions.outbox(session);
            outbox.seat_is_due(now.mono_us);
            if !std::mem::replace(&mut outbox.listed, true) {
                effects.dirty.push(SessionKey { index: session, generation: outbox.generation });
            }
        });
    }

    /// The owner says that a room is over.
    pub(super) fn room_is_over(
        &mut self,
        now: Now,
        channel: &str,
        room: RoomKey,
        code: UnsubscribeCode,
        effects: &mut Effects,
    ) {
        match self.hub.find(channel) {
            Some(id) => self.end_room(now, id, room, code, effects),
            None => self.counters.late_messages += 1,
        }
    }

    /// Ends the subscriptions of this shard's players of a room. Those who still wait for the owner's answer are told when
    /// it has come.
    fn end_room(
        &mut self,
        now: Now,
        channel: LocalChannelId,
        room: RoomKey,
        code: UnsubscribeCode,
        effects: &mut Effects,
    ) {
        let Self { seats, sessions, .. } = self;
        if let Some(mut room) = seats.forget_room(room, |session| sessions.outbox(session).seat_is_not_due()) {
            self.count_room(&mut room);
        }
        let is_in_it = |session: &u32| {
            let seat = self.sessions.at(*session).subscription(channel).and_then(Subscription::seat);
            seat.and_then(|seat| self.seats.at(seat).room).is_some_and(|road| road.key == room)
        };
        let local = self.hub.channel(channel);
        let subscribers = local.classes().flat_map(|(_, subscribers)| subscribers);
        let players: Vec<SessionKey> = subscribers
            .map(|entry| entry.session)
            .filter(is_in_it)
            .map(|session| self.sessions.at(session).key)
            .collect();
        for key in players {
            self.end_subscription(now, key, channel, code, effects);
        }
    }

    /// Puts an event into the lanes of the players of this shard that it is for. The other subscribers are not looked at.
    pub(super) fn deliver_to_players(
        &mut self,
        now: Now,
        delivery: &Arc<Delivery>,
        audience: &EventAudience,
        effects: &mut Effects,
    ) {
        let mut frames: [Option<FrameRef>; Wire::ALL.len()] = Default::default();
        for (place, class_frames) in delivery.frames() {
            let shared = || FrameRef::shared(Arc::clone(delivery), FramePlace::Whole(place));
            frames[class_frames.class.wire.index()] = class_frames.whole.is_ok().then(shared);
        }
        let mut slow = Vec::new();
        let mut unwritable = Vec::new();
        for seat in audience.seats_on(self.identity.index) {
            let Some(index) = self.seats.find(*seat) else { continue };
            let seat = self.seats.at(index);
            let key = seat.session;
            if seat.room.is_none() {
                continue;
            }
            let Some(frame) = &frames[seat.wire.index()] else {
                unwritable.push(key);
                continue;
            };
            let outbox = self.sessions.outbox(key.index);
            outbox.push(frame.clone());
            self.counters.namespaces[usize::from(delivery.namespace.0)].deliveries += 1;
            if !std::mem::replace(&mut outbox.listed, true) {
                effects.dirty.push(key);
            }
            if outbox.is_too_far_behind(&self.options.client) {
                slow.push(key);
            }
        }
        self.turn_bytes += delivery.frame_bytes_max();
        self.turn_frames += 1;
        self.delivered.push((delivery.namespace, delivery.accepted_us));
        for key in slow {
            self.close_slow(now, key, effects);
        }
        for key in unwritable {
            self.close(now, key, &Disconnect::INAPPROPRIATE_PROTOCOL, effects);
        }
    }
}
