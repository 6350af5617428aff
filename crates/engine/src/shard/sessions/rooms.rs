//! Seats in rooms: the mirror of each room's world, the seats of this shard, which of them are due, and the inputs of their
//! players, which are checked here and sent to the room's thread.

use std::sync::Arc;

use bytes::Bytes;
use dunlin_protocol::{ClientInfo, Disconnect, Reply, UnsubscribeCode};
use dunlin_rooms::{
    Grid, TickUpdate,
    wire::{Input, decode_input},
};
use rand_chacha::rand_core::RngCore;

use crate::{
    Effect, Effects, Now, SessionKey, Wire,
    counters::InputRefusal,
    frame::{Delivery, FramePlace, FrameRef},
    hub::LocalChannelId,
    names::NamespaceIndex,
    options::RoomLimits,
    refused::RefusedCommand,
    room::{
        EventAudience, JoinParams, Opening, RoomKey, SeatChange, SeatClaim, SeatKey, SeatToken, ToRoom,
        asks_to_spectate,
    },
    seats::{LocalRoom, RoomRoute, SeatIndex},
    session::{Subscription, SubscriptionParams},
};

use super::{Context, Sessions, commands::CommandOutcome};

impl Sessions {
    /// A room thread reports the end of a room.
    pub(in crate::shard) fn room_thread_ended_room(
        &mut self,
        context: &mut Context,
        room: RoomKey,
        (code, reason): (UnsubscribeCode, Option<Arc<str>>),
    ) {
        match self.seats.room_place(room) {
            Some(place) => {
                let channel = self.seats.room_mut(place).channel;
                self.end_room(context, channel, room, (code, reason));
            }
            None => context.counters.late_messages += 1,
        }
    }

    /// A room thread reports that a session's player has left, or has been taken over by another session.
    pub(in crate::shard) fn unseat(
        &mut self,
        context: &mut Context,
        seat: SeatKey,
        (code, reason): (UnsubscribeCode, Option<Arc<str>>),
    ) {
        // The session may have left in the meantime.
        let Some(index) = context.counters.found_or_late(self.seats.find(seat)) else { return };
        let (session, channel) = (self.seats.at(index).session, self.seats.at(index).channel);
        let reason = reason.as_deref().unwrap_or(code.reason());
        self.end_subscription_with(context, session, channel, code, reason);
    }

    /// Takes a seat for a session that joins. Returns it with the parameters for the room.
    pub(super) fn take_seat(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        (channel, namespace): (&str, NamespaceIndex),
        params: &SubscriptionParams,
        info: Arc<ClientInfo>,
    ) -> (SeatIndex, Box<JoinParams>) {
        // The seat may outlive the session's subscription, until the owner has answered.
        let id = self.hub.hold(channel, namespace);
        let wire = self.table.at(key.index).wire;
        let (index, seat) = self.seats.take(context.identity.index, key, wire, id);
        let source = self.table.at(key.index).source;
        let opening = self.rates.openings.reserve(key, source, context.now.mono_us);
        let is_spectator = asks_to_spectate(&params.data);
        let claim = if is_spectator { SeatClaim::default() } else { seat_claim(context, namespace, &params.data) };
        let shows_address = context.namespace(namespace).room.as_ref().is_some_and(|room| room.shows_address);
        let address = self.table.at(key.index).address.filter(|_| shows_address);
        (index, Box::new(JoinParams { seat, info, address, is_spectator, data: params.data.clone(), opening, claim }))
    }

    pub(super) fn free_seat(&mut self, context: &mut Context, index: SeatIndex) {
        let given_back = self.seats.give_back(index);
        if let Some(outbox) = self.table.outbox_of(given_back.session) {
            outbox.remove_seat(index, given_back.was_due);
        }
        for mut room in given_back.rooms {
            count_room(context, &mut room);
        }
        self.hub.release(given_back.channel);
    }

    /// The room of a seat, and the seat's key there.
    pub(super) fn room_of(&self, context: &Context, seat: SeatIndex) -> Option<(RoomKey, SeatKey)> {
        let route = self.seats.at(seat).room?;
        Some((route.key, self.seats.key(context.identity.index, seat)))
    }

    /// A session's subscription to a room has been accepted.
    pub(super) fn join_room(&mut self, now: Now, seat: SeatIndex, route: RoomRoute, effects: &mut Effects) {
        let (session, channel) = (self.seats.at(seat).session, self.seats.at(seat).channel);
        let namespace = self.hub.channel(channel).namespace;
        self.seats.find_or_insert_room(route.key, channel, namespace);
        self.table.outbox(session.index).add_seat(seat);
        if self.seats.join_room(seat, route) {
            self.seat_is_due(now, seat, effects);
        }
    }

    fn seat_is_due(&mut self, now: Now, seat: SeatIndex, effects: &mut Effects) {
        if let Some(session) = self.seats.mark_due(seat) {
            let outbox = self.table.outbox(session);
            outbox.seat_is_due(now.mono_us);
            outbox.list(session, effects);
        }
    }

    /// Handles the keyframe of a room.
    pub(in crate::shard) fn see_room(
        &mut self,
        context: &mut Context,
        key: RoomKey,
        channel: &str,
        (grid, ticks_per_second, keyframe): (Grid, u32, Arc<TickUpdate>),
    ) {
        let id = self.hub.find(channel);
        let place = id.and_then(|id| self.seats.find_or_insert_room(key, id, self.hub.channel(id).namespace));
        match place {
            Some(place) => self.seats.room_mut(place).show(grid, ticks_per_second, keyframe),
            // The last player left in the meantime; the room will receive the leave.
            None => context.counters.late_messages += 1,
        }
    }

    /// Handles a tick: applies the changes of players, and marks all seats as due. Marking costs a player one flag of
    /// its seat and one of its session.
    pub(in crate::shard) fn take_tick(
        &mut self,
        context: &mut Context,
        key: RoomKey,
        update: Arc<TickUpdate>,
        changes: Vec<SeatChange>,
        inputs_taken: u32,
    ) {
        let Some(place) = context.counters.found_or_late(self.seats.room_place(key)) else { return };
        let tick = update.tick();
        let room = self.seats.room_mut(place);
        room.inbox_inputs = room.inbox_inputs.saturating_sub(inputs_taken);
        let counted = room.newly_counted();
        let namespace = room.namespace;
        if !room.advance(update) {
            // The tick was for earlier players: a keyframe precedes the tick that names the next one.
            context.counters.late_messages += 1;
            return;
        }
        context.counters.count_bodies(namespace, counted);
        context.count(namespace).rooms.ticks += 1;
        for change in changes {
            self.seats.change(key, tick, change);
        }
        let limit = context.namespace(namespace).room.as_ref().and_then(|room| room.frame_bytes_per_second);
        let now_us = context.now.mono_us;
        let Self { seats, table: sessions, .. } = self;
        seats.room_mut(place).frame_bytes_per_second = limit;
        let mark = |session| {
            let outbox = sessions.outbox(session);
            outbox.seat_is_due(now_us);
            outbox.list(session, &mut context.effects);
        };
        match limit {
            None => seats.mark_all_due(place, mark),
            Some(limit) => {
                let limited = seats.mark_due_within(place, now_us, limit, mark);
                context.count(namespace).rooms.limited_ticks += limited;
            }
        }
    }

    /// The owner reports the end of a room.
    pub(in crate::shard) fn room_is_over(
        &mut self,
        context: &mut Context,
        channel: &str,
        room: RoomKey,
        why: (UnsubscribeCode, Option<Arc<str>>),
    ) {
        match self.hub.find(channel) {
            Some(id) => self.end_room(context, id, room, why),
            None => context.counters.late_messages += 1,
        }
    }

    /// Ends the subscriptions of this shard's players in a room. Sessions that wait for the owner's answer are notified
    /// after it.
    fn end_room(
        &mut self,
        context: &mut Context,
        channel: LocalChannelId,
        room: RoomKey,
        (code, reason): (UnsubscribeCode, Option<Arc<str>>),
    ) {
        let Self { seats, table: sessions, .. } = self;
        if let Some(mut room) = seats.forget_room(room, |session| sessions.outbox(session).seat_is_not_due()) {
            count_room(context, &mut room);
        }
        let is_in_it = |session: &u32| {
            let seat = self.table.at(*session).subscription(channel).and_then(Subscription::seat);
            seat.and_then(|seat| self.seats.at(seat).room).is_some_and(|route| route.key == room)
        };
        let local = self.hub.channel(channel);
        let subscribers = local.classes().flat_map(|(_, subscribers)| subscribers);
        let players: Vec<SessionKey> =
            subscribers.map(|entry| entry.session).filter(is_in_it).map(|session| self.table.at(session).key).collect();
        let reason = reason.as_deref().unwrap_or(code.reason());
        for key in players {
            self.end_subscription_with(context, key, channel, code, reason);
        }
    }

    /// Queues an event for its recipients on this shard. Other subscribers are not visited.
    pub(super) fn deliver_to_players(
        &mut self,
        context: &mut Context,
        delivery: &Arc<Delivery>,
        audience: &EventAudience,
    ) {
        let mut frames: [Option<FrameRef>; Wire::ALL.len()] = Default::default();
        for (place, class_frames) in delivery.frames() {
            let shared = || FrameRef::shared(Arc::clone(delivery), FramePlace::Whole(place));
            frames[class_frames.class.wire.index()] = class_frames.whole.is_ok().then(shared);
        }
        let mut slow = Vec::new();
        let mut unwritable = Vec::new();
        for seat in audience.seats_on(context.identity.index) {
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
            let outbox = self.table.outbox(key.index);
            outbox.push(frame.clone());
            context.counters.namespaces[usize::from(delivery.namespace.0)].deliveries += 1;
            outbox.list(key.index, &mut context.effects);
            if outbox.is_too_far_behind(&context.options.client) {
                slow.push(key);
            }
        }
        self.turn.add(delivery);
        for key in slow {
            self.close_slow(context, key);
        }
        for key in unwritable {
            self.close(context, key, &Disconnect::INAPPROPRIATE_PROTOCOL);
        }
    }

    /// Releases an opening that a join of this session did not use. If the session has ended, its openings are only
    /// refilled by time.
    pub(super) fn release_opening(&mut self, key: SessionKey, join: &JoinParams, now_us: u64) {
        if join.opening == Opening::Reserved
            && let Some(session) = self.table.get(key)
        {
            let source = session.source;
            self.rates.openings.release(key, source, now_us);
        }
    }

    /// Handles an input sent by `publish`, which names the room by its channel.
    pub(super) fn publish_input(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        channel: &str,
        data: &[u8],
    ) -> CommandOutcome {
        let encoding = self.table.at(key.index).encoding();
        let outcome = match (self.seat_in(key, channel), decode_input(encoding, data)) {
            (None, _) => Err(InputRefusal::NotSeated),
            (Some(_), Err(_)) => Err(InputRefusal::Malformed),
            (Some(seat), Ok(input)) => self.pass_on(context, seat, &input),
        };
        match outcome {
            Ok(()) => Ok(Some(Reply::Publish)),
            Err(refusal) => {
                count_refusal(context, refusal);
                Err(refusal.error_code().into())
            }
        }
    }

    /// Handles an input sent by `send`, which is not answered.
    pub(super) fn send_input(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        data: Option<&[u8]>,
    ) -> Result<(), RefusedCommand> {
        let options = &context.options;
        if options.without_namespace.room.is_none() && options.namespaces.iter().all(|known| known.room.is_none()) {
            let why = "send is for rooms, and no namespace has one";
            return Err(RefusedCommand::close(Disconnect::NOT_AVAILABLE, why));
        }
        let encoding = self.table.at(key.index).encoding();
        let outcome = match decode_input(encoding, data.unwrap_or_default()) {
            Err(_) => Err(InputRefusal::Malformed),
            Ok(input) => {
                let seat = if input.room.is_empty() { self.only_seat(key) } else { self.seat_in(key, &input.room) };
                match seat {
                    Some(seat) => self.pass_on(context, seat, &input),
                    None => Err(InputRefusal::NotSeated),
                }
            }
        };
        if let Err(refusal) = outcome {
            count_refusal(context, refusal);
        }
        Ok(())
    }

    /// The session's seat in the room of `channel`.
    fn seat_in(&self, key: SessionKey, channel: &str) -> Option<SeatIndex> {
        let id = self.hub.find(channel)?;
        let seat = self.table.get(key)?.subscription(id)?.seat()?;
        self.seats.at(seat).room.map(|_| seat)
    }

    /// The session's seat, if it has exactly one.
    fn only_seat(&self, key: SessionKey) -> Option<SeatIndex> {
        let subscriptions = self.table.get(key)?.subscriptions.iter();
        let seats = subscriptions.filter_map(Subscription::seat);
        let mut seats = seats.filter(|seat| self.seats.at(*seat).room.is_some());
        seats.next().filter(|_| seats.next().is_none())
    }

    /// Checks an input and sends it to its room.
    fn pass_on(&mut self, context: &mut Context, seat: SeatIndex, input: &Input<'_>) -> Result<(), InputRefusal> {
        let route = self.seats.at(seat).room.ok_or(InputRefusal::NotSeated)?;
        let place = self.seats.room_place(route.key).ok_or(InputRefusal::NotSeated)?;
        let namespace = self.seats.room_mut(place).namespace;
        let limits = context.namespace(namespace).room.as_ref().ok_or(InputRefusal::NotSeated)?;
        // Not a clone of all limits, which have texts.
        let &RoomLimits { input_bytes_max, inbox_inputs_max, inputs_per_second, .. } = limits;
        if input.data.len() > input_bytes_max {
            return Err(InputRefusal::TooLong);
        }
        if input.number <= self.seats.at(seat).inputs.last_number {
            return Err(InputRefusal::OldNumber);
        }
        if self.seats.room_mut(place).inbox_inputs >= inbox_inputs_max {
            return Err(InputRefusal::Inbox);
        }
        let gate = &mut self.seats.at_mut(seat).inputs;
        if !gate.try_take(context.now.mono_us, inputs_per_second) {
            return Err(InputRefusal::Rate);
        }
        gate.last_number = input.number;
        self.seats.room_mut(place).inbox_inputs += 1;
        context.count(namespace).rooms.inputs += 1;
        let message = ToRoom::Input {
            room: route.key,
            seat: self.seats.key(context.identity.index, seat),
            number: input.number,
            data: Bytes::copy_from_slice(&input.data),
        };
        context.effects.list.push(Effect::ToRoom { thread: route.thread, message });
        Ok(())
    }
}

fn seat_claim(context: &mut Context, namespace: NamespaceIndex, join_data: &[u8]) -> SeatClaim {
    let Some(room) = context.namespace(namespace).room.as_ref().filter(|room| room.gives_seat_tokens) else {
        return SeatClaim::default();
    };
    let is_one_per_user = room.is_one_seat_per_user;
    let (high, low) = (u128::from(context.random.next_u64()), u128::from(context.random.next_u64()));
    SeatClaim {
        given: Some(SeatToken(high << 64 | low)),
        returned: SeatToken::in_join_data(join_data),
        is_one_per_user,
        keeps_returned: true,
    }
}

fn count_room(context: &mut Context, room: &mut LocalRoom) {
    context.counters.count_bodies(room.namespace, room.newly_counted());
}

fn count_refusal(context: &mut Context, refusal: InputRefusal) {
    context.counters.inputs_refused[refusal as usize] += 1;
}
