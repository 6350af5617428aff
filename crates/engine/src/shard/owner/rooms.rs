//! The owner's side of a room: opens it, and forwards its joins, leaves and events.

use std::sync::Arc;

use dunlin_protocol::{ErrorCode, Payload, UnsubscribeCode};
use dunlin_rooms::{Refusal, RoomOverrides};

use crate::{
    Effect, Effects,
    api::{ApiAnswer, ApiResult},
    backend::PublishHow,
    channel::OwnedRoom,
    counters::NamespaceRoomCounters,
    log_in_flight::{Draft, ReplyTo},
    message::{NotSubscribed, Notice, SubscriptionRequest},
    names::NamespaceIndex,
    room::{
        Departure, EventAudience, JoinedAs, LeftSeat, NotJoined, Opening, RoomKey, RoomRefusal, RoomThreadIndex, ToRoom,
    },
};

use super::{Context, Owner};
use crate::shard::room::RoomThread;

/// The refusal code of joins that were in flight to a room when it was closed.
const CLOSED_CODE: u16 = 400;
/// The refusal code of joins while all free places are reserved for other users.
const RESERVED_CODE: u16 = 409;
const RESERVED: &str = "all free places are reserved for other users";

impl Owner {
    /// Sends a join to the channel's room, which is opened if necessary. [`Owner::joined`] handles the answer.
    pub(super) fn serve_join(&mut self, context: &mut Context, mut request: Box<SubscriptionRequest>) {
        let opening = request.join.as_ref().map_or(Opening::Reserved, |join| join.opening);
        let overrides = match self.overrides_of_join(context, &request) {
            Ok(overrides) => overrides,
            Err(refusal) => {
                if let Ok(namespace) = context.names.resolve(&request.channel) {
                    context.count(namespace).rooms.refused[RoomRefusal::Params as usize] += 1;
                }
                return refuse_join(context, request, NotSubscribed::Refused(refusal));
            }
        };
        match self.room_to_join(context, &request.channel, opening, &overrides) {
            Ok((room, is_new)) => {
                room.pending_joins += 1;
                let OwnedRoom { key, thread, .. } = *room;
                if let Some(join) = request.join.as_mut().filter(|_| is_new) {
                    join.opening = Opening::Used;
                }
                send_to_room(thread, ToRoom::Join { room: key, request }, &mut context.effects);
            }
            Err(code) => refuse_join(context, request, code.into()),
        }
    }

    /// The room of `channel`, and whether this call opened it.
    pub(super) fn room_to_join(
        &mut self,
        context: &mut Context,
        channel: &Arc<str>,
        opening: Opening,
        overrides: &RoomOverrides,
    ) -> Result<(&mut OwnedRoom, bool), ErrorCode> {
        let namespace = context.names.resolve(channel)?;
        if context.namespace(namespace).room.is_none() || self.room_threads.is_empty() {
            return Err(ErrorCode::NotAvailable);
        }
        let is_open = self.channels.named(channel).is_some_and(|channel| channel.room.is_some());
        if !is_open {
            self.check_opening(context, opening).map_err(|refusal| {
                context.count(namespace).rooms.refused[refusal as usize] += 1;
                refusal.code()
            })?;
            // First, so that no room is opened for a channel that the shard has no space for.
            self.owned(context, channel, namespace)?;
            let room = self.open_room(context, channel, namespace, overrides);
            self.owned(context, channel, namespace)?.room = Some(Box::new(room));
            self.review(context, channel);
        }
        Ok((self.owned(context, channel, namespace)?.room.as_deref_mut().expect("opened above"), !is_open))
    }

    /// Whether one more room may be opened. Checked before the channel is created, so that a refusal leaves no state.
    /// Each shard has an equal share of the node's limits.
    fn check_opening(&mut self, context: &Context, opening: Opening) -> Result<(), RoomRefusal> {
        if let Opening::Refused(refusal) = opening {
            return Err(refusal);
        }
        let part = |limit: usize| limit.div_ceil(usize::from(context.identity.count));
        let open: usize = self.room_threads.iter().map(|thread| thread.open as usize).sum();
        if open >= part(context.options.rooms_max) {
            return Err(RoomRefusal::Limit);
        }
        if self.rooms_opening >= part(context.options.room_openings.opening_max) {
            return Err(RoomRefusal::Queue);
        }
        if self.room_openings.try_take(context.now.mono_us) { Ok(()) } else { Err(RoomRefusal::Rate) }
    }

    /// Opens a room on the least loaded thread.
    fn open_room(
        &mut self,
        context: &mut Context,
        channel: &Arc<str>,
        namespace: NamespaceIndex,
        overrides: &RoomOverrides,
    ) -> OwnedRoom {
        let load = |thread: &RoomThread| (u32::from(thread.load_permille) + thread.opened_since, thread.open);
        let threads = (0..).zip(&mut self.room_threads);
        let (index, thread) = threads.min_by_key(|(_, thread)| load(thread)).expect("asked for above");
        thread.opened_since += 1;
        thread.open += 1;
        let thread = RoomThreadIndex(index);
        self.rooms_opened += 1;
        self.rooms_opening += 1;
        let key = RoomKey { owner: context.identity.index, number: self.rooms_opened };
        context.count(namespace).rooms.opened += 1;
        let overrides = Arc::new(overrides.clone());
        let open = ToRoom::Open { room: key, channel: Arc::clone(channel), namespace: namespace.0, overrides };
        send_to_room(thread, open, &mut context.effects);
        OwnedRoom { key, thread, pending_joins: 0, players: 0, is_made: false }
    }

    /// A room's world is created.
    pub(in crate::shard) fn on_room_made(&mut self, context: &mut Context, key: RoomKey, channel: &Arc<str>) {
        if let Some(room) = self.current_room(channel, key)
            && !std::mem::replace(&mut room.is_made, true)
        {
            let players = room.players;
            self.rooms_opening -= 1;
            self.answer_openings(context, key, &Ok(players));
        }
    }

    /// The room of `channel`, if it is still `key`.
    pub(super) fn current_room(&mut self, channel: &str, key: RoomKey) -> Option<&mut OwnedRoom> {
        let room = self.channels.named_mut(channel)?.room.as_deref_mut()?;
        (room.key == key).then_some(room)
    }

    /// A room has answered a join.
    pub(in crate::shard) fn joined(
        &mut self,
        context: &mut Context,
        key: RoomKey,
        request: Box<SubscriptionRequest>,
        outcome: Result<JoinedAs, NotJoined>,
    ) {
        let room = self.current_room(&request.channel, key).map(|room| {
            room.pending_joins -= 1;
            *room
        });
        let is_closed = room.is_none() && self.closed_room_answers(key);
        // The patterns of names may have changed since the join was sent to the room. It is answered anyway.
        let known = self.channels.named(&request.channel).map(|channel| channel.namespace);
        let namespace = known.or_else(|| context.names.resolve(&request.channel).ok());
        let mut uncounted = NamespaceRoomCounters::default();
        let counters = namespace.map_or(&mut uncounted, |namespace| &mut context.count(namespace).rooms);
        let outcome = match (outcome, room) {
            (Err(NotJoined::Refused(refusal)), _) => {
                counters.joins_refused += 1;
                Err(NotSubscribed::Refused(refusal))
            }
            (Err(NotJoined::Reserved), _) => {
                counters.joins_refused += 1;
                Err(NotSubscribed::Refused(Refusal { code: RESERVED_CODE, message: RESERVED.into() }))
            }
            // A join to a room that has ended is never confirmed. SDKs do not rejoin a closed room, as for the players
            // that were in it; they rejoin a room that failed.
            (Err(NotJoined::Gone), _) | (Ok(_), None) => {
                counters.joins_gone += 1;
                let closed = || Refusal { code: CLOSED_CODE, message: "room closed".into() };
                let error = NotSubscribed::Error(ErrorCode::Internal);
                Err(if is_closed { NotSubscribed::Refused(closed()) } else { error })
            }
            (Ok(joined), Some(room)) => {
                counters.joins_accepted += 1;
                counters.seats_resumed += u64::from(joined.is_back);
                let subscribed = self.accept_subscription(context, &request, None).map_err(NotSubscribed::from);
                self.keep_player(room, &request, subscribed.is_ok(), &mut context.effects);
                subscribed.map(|mut subscribed| {
                    subscribed.room = Some((room.key, room.thread));
                    subscribed.is_back = joined.is_back;
                    subscribed
                })
            }
        };
        self.answer_subscription(context, request, outcome);
    }

    /// Whether a closed room has answered a join.
    fn closed_room_answers(&mut self, key: RoomKey) -> bool {
        let Some(pending_joins) = self.closed_rooms.get_mut(&key.number) else { return false };
        *pending_joins -= 1;
        if *pending_joins == 0 {
            self.closed_rooms.remove(&key.number);
        }
        true
    }

    /// A player has joined its room; it stays if its subscription is accepted.
    fn keep_player(&mut self, room: OwnedRoom, request: &SubscriptionRequest, stays: bool, effects: &mut Effects) {
        if stays {
            if let Some(room) = self.current_room(&request.channel, room.key) {
                room.players += 1;
            }
        } else if let Some(join) = &request.join {
            let leave = ToRoom::Leave { room: room.key, seat: join.seat, departure: Departure::Left };
            send_to_room(room.thread, leave, effects);
        }
    }

    /// A player's subscription has ended. A room that has ended receives no message.
    pub(in crate::shard) fn serve_leave(&mut self, channel: &str, left: LeftSeat, effects: &mut Effects) {
        let LeftSeat { room: key, seat, departure } = left;
        if let Some(room) = self.current_room(channel, key) {
            room.players -= 1;
            let thread = room.thread;
            send_to_room(thread, ToRoom::Leave { room: key, seat, departure }, effects);
        }
    }

    /// A room has been empty for the maximum time. Closes it, unless it has a player or a join is in flight.
    pub(in crate::shard) fn room_is_idle(&mut self, context: &mut Context, key: RoomKey, channel: &Arc<str>) {
        let Some(room) = self.current_room(channel, key) else { return };
        let is_needed = room.players > 0 || room.pending_joins > 0 || self.waiting_messages.of(key) > 0;
        if !is_needed {
            self.close_room(context, channel, key, None);
        }
    }

    /// Closes a room, if it is still open. `reason` is for its clients; `None` for the default reason of the code.
    pub(in crate::shard) fn close_room(
        &mut self,
        context: &mut Context,
        channel: &Arc<str>,
        key: RoomKey,
        reason: Option<Arc<str>>,
    ) {
        let code = UnsubscribeCode::ROOM_CLOSED;
        if let Some((room, namespace)) = self.forget_owned_room(context, channel, key, (code, reason.clone())) {
            context.count(namespace).rooms.closed += 1;
            if room.pending_joins > 0 {
                self.closed_rooms.insert(key.number, room.pending_joins);
            }
            send_to_room(room.thread, ToRoom::Close { room: key, code, reason }, &mut context.effects);
        }
    }

    /// A room has failed and no longer exists.
    pub(in crate::shard) fn room_has_failed(
        &mut self,
        context: &mut Context,
        key: RoomKey,
        channel: &Arc<str>,
        refusal: Option<Refusal>,
    ) {
        if self.current_room(channel, key).is_some() {
            self.answer_openings(context, key, &Err(refusal));
        }
        if let Some((_, namespace)) =
            self.forget_owned_room(context, channel, key, (UnsubscribeCode::ROOM_FAILED, None))
        {
            context.count(namespace).rooms.failed += 1;
        }
    }

    /// Removes a room and notifies the shards of its players, after the answers to the players' joins. The room's own
    /// messages may arrive earlier, at sessions that still wait for those answers.
    fn forget_owned_room(
        &mut self,
        context: &mut Context,
        name: &Arc<str>,
        key: RoomKey,
        (code, reason): (UnsubscribeCode, Option<Arc<str>>),
    ) -> Option<(OwnedRoom, NamespaceIndex)> {
        let room = *self.current_room(name, key)?;
        let channel = self.channels.named_mut(name)?;
        channel.room = None;
        self.rooms_opening -= usize::from(!room.is_made);
        let namespace = channel.namespace;
        self.answer_openings(context, key, &Err(None));
        self.answer_waiting_messages(context, key, namespace, code);
        let channel = self.channels.named(name)?;
        let shards: Vec<_> = channel.listening_shards(crate::channel::Audience::Publications).collect();
        for shard in shards {
            let reason = reason.clone();
            context.notify(shard, Notice::RoomOver { channel: Arc::clone(name), room: key, code, reason });
        }
        if let Some(thread) = self.room_threads.get_mut(usize::from(room.thread.0)) {
            thread.open = thread.open.saturating_sub(1);
        }
        self.review(context, name);
        Some((room, namespace))
    }

    /// An event of a room: a publication in its channel. An event of a closed room is dropped: the channel may already
    /// have a new room on another thread, whose players must not receive it.
    pub(in crate::shard) fn take_event(
        &mut self,
        context: &mut Context,
        key: RoomKey,
        channel: &Arc<str>,
        data: Payload,
        audience: Option<Box<EventAudience>>,
    ) {
        if self.current_room(channel, key).is_none() {
            context.counters.late_messages += 1;
            return;
        }
        let audience = audience.map(|audience| Arc::new(*audience));
        let draft = Draft { data, info: None, how: PublishHow::default(), audience, creator: None };
        self.propose(context, channel, draft, ReplyTo::Room);
        if let Ok(namespace) = context.names.resolve(channel) {
            context.count(namespace).rooms.events += 1;
        }
    }

    /// A publication of a room to another channel.
    pub(in crate::shard) fn take_room_publication(&mut self, context: &mut Context, channel: &Arc<str>, data: Payload) {
        let draft = Draft { data, info: None, how: PublishHow::default(), audience: None, creator: None };
        self.propose(context, channel, draft, ReplyTo::Room);
    }

    /// The load report of a room thread.
    pub(in crate::shard) fn room_thread_load(&mut self, thread: RoomThreadIndex, permille: u16) {
        if let Some(thread) = self.room_threads.get_mut(usize::from(thread.0)) {
            (thread.load_permille, thread.opened_since) = (permille, 0);
        }
    }

    pub(super) fn close_room_by_api(&mut self, context: &mut Context, channel: &Arc<str>) -> ApiResult {
        let namespace = context.names.resolve(channel)?;
        if context.namespace(namespace).room.is_none() {
            return Err(ErrorCode::NotAvailable);
        }
        let room = self.channels.named(channel).and_then(|channel| channel.room.as_deref().copied());
        if let Some(room) = room {
            self.close_room(context, channel, room.key, None);
        }
        Ok(ApiAnswer::Done { sessions: room.map_or(0, |room| room.players) })
    }
}

fn refuse_join(context: &mut Context, mut request: Box<SubscriptionRequest>, refused: NotSubscribed) {
    request.recover = None;
    let shard = request.asker.shard;
    context.notify(shard, Notice::Subscribed { request, outcome: Err(refused) });
}

pub(super) fn send_to_room(thread: RoomThreadIndex, message: ToRoom, effects: &mut Effects) {
    effects.list.push(Effect::ToRoom { thread, message });
}
