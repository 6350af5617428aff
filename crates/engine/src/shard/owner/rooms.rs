//! The owner's side of a room: opens it, and forwards its joins, leaves and events.

use std::sync::Arc;

use bytes::Bytes;
use dunlin_protocol::{ErrorCode, Payload, UnsubscribeCode};
use dunlin_rooms::{Refusal, RoomOverrides};

use crate::{
    Effects,
    api::{ApiAnswer, ApiResult, PlaceReservation},
    backend::PublishHow,
    channel::{Audience, ChannelKey, OwnedRoom},
    counters::NamespaceRoomCounters,
    event::Ticket,
    log_in_flight::{Draft, ReplyTo},
    message::{NotSubscribed, Notice, SubscriptionRequest},
    names::NamespaceIndex,
    refused::Refused,
    room::{
        Departure, EventAudience, JoinedAs, LeftSeat, NotJoined, Opening, RoomKey, RoomRefusal, RoomThreadIndex, ToRoom,
    },
};

use super::{
    Context, NamedChannel, Owner,
    room_directory::{BackendMessage, NO_ROOMS, NOT_OPEN, send_to_room, why_unusable},
    room_queries::may_open,
};

/// The refusal code of joins that were in flight to a room when it was closed.
const CLOSED_CODE: u16 = 400;
/// The refusal code of joins while all free places are reserved for other users.
const RESERVED_CODE: u16 = 409;
const RESERVED: &str = "all free places are reserved for other users";
const IS_OPEN: &str = "the room is open already, and only a room that is closed is opened with options";

impl Owner {
    /// Sends a join to the channel's room, which is opened if necessary, and if no other node of the cluster has it.
    /// [`Owner::joined`] handles the answer.
    pub(super) fn serve_join(&mut self, context: &mut Context, request: Box<SubscriptionRequest>) {
        if may_open(&request) && self.should_ask_for_room(context, &request.channel) {
            self.ask_for_room_to_join(context, request);
        } else {
            self.join_here(context, request);
        }
    }

    pub(super) fn join_here(&mut self, context: &mut Context, mut request: Box<SubscriptionRequest>) {
        let key = self.channels.find(&request.channel);
        let is_open = key.is_some_and(|key| self.channels[key].room.is_some());
        let namespace = context.names.resolve(&request.channel);
        let overrides = match namespace {
            Ok(namespace) if !is_open => overrides_of_join(context, namespace, &request),
            _ => Ok(RoomOverrides::default()),
        };
        let overrides = match overrides {
            Ok(overrides) => overrides,
            Err(refusal) => {
                if let Ok(namespace) = namespace {
                    context.count(namespace).rooms.refused[RoomRefusal::Params as usize] += 1;
                }
                return refuse_join(context, request, NotSubscribed::Refused(refusal));
            }
        };
        let opening = request.join.as_ref().map_or(Opening::Reserved, |join| join.opening);
        let room = namespace.map_err(Refused::from).and_then(|namespace| {
            let mut channel = NamedChannel { name: &request.channel, namespace, key };
            self.room_to_join(context, &mut channel, opening, &overrides)
        });
        match room {
            Ok((room, is_new)) => {
                room.pending_joins += 1;
                let OwnedRoom { key, thread, .. } = *room;
                if let Some(join) = request.join.as_mut().filter(|_| is_new) {
                    join.opening = Opening::Used;
                }
                send_to_room(thread, ToRoom::Join { room: key, request }, &mut context.effects);
            }
            Err(refused) => refuse_join(context, request, refused.into()),
        }
    }

    /// The room of a channel, and whether this call opened it.
    fn room_to_join(
        &mut self,
        context: &mut Context,
        channel: &mut NamedChannel<'_>,
        opening: Opening,
        overrides: &RoomOverrides,
    ) -> Result<(&mut OwnedRoom, bool), Refused> {
        if context.namespace(channel.namespace).room.is_none() || !self.rooms.has_threads() {
            return Err(ErrorCode::NotAvailable.into());
        }
        let is_open = channel.key.is_some_and(|key| self.channels[key].room.is_some());
        if !is_open {
            self.rooms.check_opening(context, opening).map_err(|refusal| {
                context.count(channel.namespace).rooms.refused[refusal as usize] += 1;
                Refused::from(refusal)
            })?;
            // First, so that no room is opened for a channel that the shard has no space for.
            let key = self.ensure(context, channel)?;
            self.rooms.open(context, &mut self.channels[key], overrides);
            self.review(context, key);
        }
        let key = self.ensure(context, channel)?;
        Ok((self.channels[key].room.as_deref_mut().expect("opened above"), !is_open))
    }

    /// Opens a room for the server API, if no other node of the cluster has it.
    pub(super) fn open_room_by_api(
        &mut self,
        context: &mut Context,
        ticket: Ticket,
        channel: &Arc<str>,
        overrides: &RoomOverrides,
    ) {
        if !self.should_ask_for_room(context, channel) {
            self.open_room_here(context, ticket, channel, overrides);
        } else if let Err(refused) = self.ask_for_room_to_open(context, ticket, channel, overrides) {
            context.answer_api(ticket, Err(refused));
        }
    }

    /// Opens a room for the server API. The request is answered when its world is created.
    pub(super) fn open_room_here(
        &mut self,
        context: &mut Context,
        ticket: Ticket,
        channel: &Arc<str>,
        overrides: &RoomOverrides,
    ) {
        if let Some(answer) = self.try_open_room(context, ticket, channel, overrides).transpose() {
            context.answer_api(ticket, answer);
        }
    }

    /// The answer, if known already.
    fn try_open_room(
        &mut self,
        context: &mut Context,
        ticket: Ticket,
        name: &Arc<str>,
        overrides: &RoomOverrides,
    ) -> Result<Option<ApiAnswer>, Refused> {
        let namespace = context.resolve(name)?;
        let limits = context.namespace(namespace).room.as_ref();
        // A namespace without rooms is refused by the next step.
        let unusable = limits.and_then(|limits| why_unusable(limits, overrides));
        let waiting_max = limits.map_or(0, |limits| limits.messages_max);
        if let Some((refusal, why)) = unusable {
            context.count(namespace).rooms.refused[refusal as usize] += 1;
            return Err(Refused::new(refusal.code(), why));
        }
        let mut channel = NamedChannel { name, namespace, key: self.channels.find(name) };
        let (room, is_new) = self.room_to_join(context, &mut channel, Opening::Reserved, overrides)?;
        let room = *room;
        if !is_new && !overrides.is_empty() {
            return Err(Refused::new(ErrorCode::BadRequest, IS_OPEN));
        }
        self.rooms.wait_for_world(&room, ticket, waiting_max)
    }

    /// A room's world is created.
    pub(in crate::shard) fn on_room_made(&mut self, context: &mut Context, room: RoomKey, name: &Arc<str>) {
        if let Some(key) = self.channel_of_room(name, room)
            && let Some(room) = self.channels[key].room.as_deref_mut()
        {
            self.rooms.world_created(context, room);
        }
    }

    /// The channel with this name, if `room` is still its room.
    fn channel_of_room(&self, name: &str, room: RoomKey) -> Option<ChannelKey> {
        self.channels.find(name).filter(|key| self.channels[*key].has_room(room))
    }

    /// A room has answered a join.
    pub(in crate::shard) fn joined(
        &mut self,
        context: &mut Context,
        room_key: RoomKey,
        request: Box<SubscriptionRequest>,
        outcome: Result<JoinedAs, NotJoined>,
    ) {
        let mut key = self.channels.find(&request.channel);
        let room = key.and_then(|key| self.channels[key].room_mut(room_key)).map(|room| {
            room.pending_joins -= 1;
            *room
        });
        let is_closed = room.is_none() && self.rooms.closed_room_answers(room_key);
        // The patterns of names may have changed since the join was sent to the room. It is answered anyway.
        let known = key.map(|key| self.channels[key].namespace);
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
                let error = ErrorCode::Internal.into();
                Err(if is_closed { NotSubscribed::Refused(closed()) } else { error })
            }
            (Ok(joined), Some(room)) => {
                counters.joins_accepted += 1;
                counters.seats_resumed += u64::from(joined.is_back);
                let subscribed = self.accept_named(context, &mut key, &request, None).map_err(NotSubscribed::from);
                self.keep_player(key, room, &request, subscribed.is_ok(), &mut context.effects);
                subscribed.map(|mut subscribed| {
                    subscribed.room = Some((room.key, room.thread));
                    subscribed.is_back = joined.is_back;
                    subscribed
                })
            }
        };
        self.answer_subscription(context, key, request, outcome);
    }

    /// A player has joined its room; it stays if its subscription is accepted.
    fn keep_player(
        &mut self,
        channel: Option<ChannelKey>,
        room: OwnedRoom,
        request: &SubscriptionRequest,
        stays: bool,
        effects: &mut Effects,
    ) {
        if stays {
            let channel = channel.and_then(|key| self.channels.get_mut(key));
            if let Some(room) = channel.and_then(|channel| channel.room_mut(room.key)) {
                room.players += 1;
            }
        } else if let Some(join) = &request.join {
            let leave = ToRoom::Leave { room: room.key, seat: join.seat, departure: Departure::Left };
            send_to_room(room.thread, leave, effects);
        }
    }

    /// A player's subscription has ended. A room that has ended receives no message.
    pub(super) fn serve_leave(&mut self, channel: ChannelKey, left: LeftSeat, effects: &mut Effects) {
        let LeftSeat { room: key, seat, departure } = left;
        if let Some(room) = self.channels[channel].room_mut(key) {
            room.players -= 1;
            send_to_room(room.thread, ToRoom::Leave { room: key, seat, departure }, effects);
        }
    }

    /// A room has been empty for the maximum time. Closes it, unless it has a player or a join is in flight.
    pub(in crate::shard) fn room_is_idle(&mut self, context: &mut Context, key: RoomKey, name: &str) {
        let Some(channel) = self.channels.find(name) else { return };
        let Some(room) = self.channels[channel].room_mut(key) else { return };
        let is_needed = room.players > 0 || room.pending_joins > 0 || self.rooms.has_waiting_messages(key);
        if !is_needed {
            self.end_room_of(context, channel, key, None);
        }
    }

    /// Closes a room, if it is still open. `reason` is for its clients; `None` for the default reason of the code.
    pub(in crate::shard) fn close_room(
        &mut self,
        context: &mut Context,
        name: &str,
        key: RoomKey,
        reason: Option<Arc<str>>,
    ) {
        if let Some(channel) = self.channels.find(name) {
            self.end_room_of(context, channel, key, reason);
        }
    }

    fn end_room_of(&mut self, context: &mut Context, channel: ChannelKey, key: RoomKey, reason: Option<Arc<str>>) {
        let code = UnsubscribeCode::ROOM_CLOSED;
        if let Some((room, namespace)) = self.forget_room(context, channel, key, (code, reason.clone())) {
            context.count(namespace).rooms.closed += 1;
            self.rooms.note_closed(&room);
            send_to_room(room.thread, ToRoom::Close { room: key, code, reason }, &mut context.effects);
        }
    }

    pub(super) fn close_room_by_api(&mut self, context: &mut Context, name: &str) -> ApiResult {
        let namespace = context.names.resolve(name)?;
        if context.namespace(namespace).room.is_none() {
            return Err(ErrorCode::NotAvailable.into());
        }
        let Some(channel) = self.channels.find(name) else { return Ok(ApiAnswer::Done { sessions: 0 }) };
        let Some(room) = self.channels[channel].room.as_deref().copied() else {
            return Ok(ApiAnswer::Done { sessions: 0 });
        };
        self.end_room_of(context, channel, room.key, None);
        Ok(ApiAnswer::Done { sessions: room.players })
    }

    /// A room has failed and no longer exists.
    pub(in crate::shard) fn room_has_failed(
        &mut self,
        context: &mut Context,
        key: RoomKey,
        name: &str,
        refusal: Option<Refusal>,
    ) {
        let Some(channel) = self.channel_of_room(name, key) else { return };
        self.rooms.answer_openings(context, key, &Err(refusal));
        let ended = (UnsubscribeCode::ROOM_FAILED, None);
        if let Some((_, namespace)) = self.forget_room(context, channel, key, ended) {
            context.count(namespace).rooms.failed += 1;
        }
    }

    /// Removes a room and notifies the shards of its players, after the answers to the players' joins. The room's own
    /// messages may arrive earlier, at sessions that still wait for those answers.
    fn forget_room(
        &mut self,
        context: &mut Context,
        key: ChannelKey,
        room_key: RoomKey,
        (code, reason): (UnsubscribeCode, Option<Arc<str>>),
    ) -> Option<(OwnedRoom, NamespaceIndex)> {
        let channel = &mut self.channels[key];
        let room = *channel.room_mut(room_key)?;
        channel.room = None;
        let namespace = channel.namespace;
        self.rooms.ended(context, &room, namespace, code);
        for shard in channel.listening_shards(Audience::Publications) {
            let (name, reason) = (Arc::clone(&channel.name), reason.clone());
            context.notify(shard, Notice::RoomOver { channel: name, room: room_key, code, reason });
        }
        self.review(context, key);
        Some((room, namespace))
    }

    /// An event of a room: a publication in its channel. An event of a closed room is dropped: the channel may already
    /// have a new room on another thread, whose players must not receive it.
    pub(in crate::shard) fn take_event(
        &mut self,
        context: &mut Context,
        room: RoomKey,
        name: &Arc<str>,
        data: Payload,
        audience: Option<Box<EventAudience>>,
    ) {
        let Some(channel) = context.counters.found_or_late(self.channel_of_room(name, room)) else { return };
        let audience = audience.map(|audience| Arc::new(*audience));
        let draft = Draft { data, info: None, how: PublishHow::default(), audience, creator: None };
        self.propose_to(context, (name, Some(channel)), draft, ReplyTo::Room);
        if let Ok(namespace) = context.names.resolve(name) {
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
        self.rooms.thread_reports(thread, permille);
    }

    /// Sends a message to the room of a channel. The request is answered by [`Owner::room_has_answered`], or when the
    /// room ends.
    pub(super) fn send_message_to_room(
        &mut self,
        context: &mut Context,
        ticket: Ticket,
        name: &str,
        message: BackendMessage,
    ) {
        let sent = context.resolve(name).and_then(|namespace| {
            let channel = self.channels.named(name);
            self.rooms.send_message(context, (namespace, channel), ticket, message)
        });
        if let Err(refused) = sent {
            context.answer_api(ticket, Err(refused));
        }
    }

    /// A room has answered a message.
    pub(in crate::shard) fn room_has_answered(
        &mut self,
        context: &mut Context,
        room: RoomKey,
        name: &str,
        id: u64,
        answer: Result<Bytes, Refusal>,
    ) {
        // Not by the name, because the patterns of names may have changed since the room was opened.
        let namespace = self.channels.named(name).map(|channel| channel.namespace);
        self.rooms.message_answered(context, (room, namespace), id, answer);
    }

    /// Sends reservations to the room of a channel.
    pub(super) fn reserve_places(
        &mut self,
        context: &mut Context,
        name: &str,
        reservations: Arc<[PlaceReservation]>,
    ) -> ApiResult {
        let namespace = context.resolve(name)?;
        let room = self.channels.named(name).and_then(|channel| channel.room.as_deref());
        let Some(room) = room else {
            let has_rooms = context.namespace(namespace).room.is_some();
            return Err(Refused::new(ErrorCode::NotAvailable, if has_rooms { NOT_OPEN } else { NO_ROOMS }));
        };
        send_to_room(room.thread, ToRoom::ReservePlaces { room: room.key, reservations }, &mut context.effects);
        Ok(ApiAnswer::Done { sessions: 0 })
    }
}

/// The overrides for a room that a join opens.
///
/// # Errors
/// The client may not open a room with these parameters.
fn overrides_of_join(
    context: &Context,
    namespace: NamespaceIndex,
    request: &SubscriptionRequest,
) -> Result<RoomOverrides, Refusal> {
    match (&request.join, &context.namespace(namespace).room) {
        (Some(join), Some(limits)) => {
            RoomOverrides::of_join_data(&join.data, &limits.join_params, limits.params_bytes_max)
        }
        _ => Ok(RoomOverrides::default()),
    }
}

pub(super) fn refuse_join(context: &mut Context, mut request: Box<SubscriptionRequest>, refused: NotSubscribed) {
    request.recover = None;
    let shard = request.asker.shard;
    context.notify(shard, Notice::Subscribed { request, outcome: Err(refused) });
}
