//! Messages of the backend to rooms, and the requests of the server API that wait for answers.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use dunlin_protocol::{ErrorCode, UnsubscribeCode};
use dunlin_rooms::{ListingChange, Refusal};

use crate::{
    api::{ApiAnswer, ApiResult, KickOrder, PlaceReservation},
    counters::MessageOutcome,
    event::Ticket,
    names::NamespaceIndex,
    options::RoomLimits,
    room::{RoomKey, ToRoom},
};

use super::{Context, Owner, rooms::send_to_room};

const NO_ROOMS: &str = "the namespace of the channel has no rooms: set room.simulation";
const NO_PUBLICATIONS: &str = "the channel is a room, whose publications are the events of its game: use room_send";
const NOT_OPEN: &str = "the room is not open: open it with room_open";
const TOO_LONG: &str = "data is longer than room.message_size_limit";
const TOO_MANY: &str = "room.messages_limit messages wait for the room";
const CLOSED: &str = "the room was closed before it answered";
const FAILED: &str = "the room failed before it answered";
pub(super) const METADATA_TOO_LONG: &str = "metadata is longer than room.metadata_size_limit";
const KICK_TOO_LONG: &str = "user, client and reason are longer than room.message_size_limit";
const ANSWER_TOO_LONG: &str = "the answer of the game is longer than room.message_size_limit";

/// A message of the backend to a room.
pub(super) enum BackendMessage {
    /// Bytes for the game.
    Data(Bytes),
    /// A change of the listing.
    Listing(Arc<ListingChange>),
    /// Players to remove.
    Kick(Arc<KickOrder>),
}

impl BackendMessage {
    /// The reason of a refusal: the message is longer than a limit.
    fn why_too_long(&self, limits: &RoomLimits) -> Option<&'static str> {
        match self {
            Self::Data(data) => (data.len() > limits.message_bytes_max).then_some(TOO_LONG),
            Self::Kick(order) => (order.text_bytes() > limits.message_bytes_max).then_some(KICK_TOO_LONG),
            Self::Listing(change) => {
                let length = change.metadata.as_ref().map_or(0, |metadata| metadata.len());
                (length > limits.metadata_bytes_max).then_some(METADATA_TOO_LONG)
            }
        }
    }
}

/// The requests that wait for answers of rooms.
#[derive(Debug, Default)]
pub(super) struct WaitingMessages {
    /// The number of messages sent so far.
    sent: u64,
    /// By the numbers of the room and the message. Contains no room without waiting requests.
    rooms: BTreeMap<u64, BTreeMap<u64, Ticket>>,
}

impl WaitingMessages {
    /// The number of requests that wait for a room of this shard.
    pub(super) fn of(&self, room: RoomKey) -> usize {
        self.rooms.get(&room.number).map_or(0, BTreeMap::len)
    }

    fn add(&mut self, room: RoomKey, ticket: Ticket) -> u64 {
        self.sent += 1;
        self.rooms.entry(room.number).or_default().insert(self.sent, ticket);
        self.sent
    }

    fn take(&mut self, room: RoomKey, id: u64) -> Option<Ticket> {
        let waiting = self.rooms.get_mut(&room.number)?;
        let ticket = waiting.remove(&id)?;
        if waiting.is_empty() {
            self.rooms.remove(&room.number);
        }
        Some(ticket)
    }
}

impl Context {
    /// Whether the channel is a room. Its history contains only the game's events, in the order of its ticks.
    pub(super) fn refuses_publication_into_room(&self, channel: &str) -> bool {
        let is_room = self.names.resolve(channel).is_ok_and(|namespace| self.namespace(namespace).room.is_some());
        if is_room {
            self.note_refusal_reason(NO_PUBLICATIONS);
        }
        is_room
    }
}

impl Owner {
    /// Sends a message to the room of a channel. The request is answered by [`Owner::room_has_answered`], or when the
    /// room ends.
    pub(super) fn send_message_to_room(
        &mut self,
        context: &mut Context,
        ticket: Ticket,
        channel: &str,
        message: BackendMessage,
    ) {
        if let Err(code) = self.try_send_message(context, ticket, channel, message) {
            context.answer_api(ticket, Err(code));
        }
    }

    fn try_send_message(
        &mut self,
        context: &mut Context,
        ticket: Ticket,
        channel: &str,
        message: BackendMessage,
    ) -> Result<(), ErrorCode> {
        let namespace = context.resolve(channel)?;
        let Some(limits) = &context.namespace(namespace).room else {
            context.note_refusal_reason(NO_ROOMS);
            return Err(ErrorCode::NotAvailable);
        };
        let (messages_max, why_too_long) = (limits.messages_max, message.why_too_long(limits));
        let mut refuse = |outcome: MessageOutcome, why, code| {
            context.count(namespace).rooms.messages[outcome as usize] += 1;
            context.note_refusal_reason(why);
            Err(code)
        };
        if let Some(why) = why_too_long {
            return refuse(MessageOutcome::TooLong, why, ErrorCode::BadRequest);
        }
        let room = self.channels.named(channel).and_then(|channel| channel.room.as_deref());
        let Some((room, thread)) = room.map(|room| (room.key, room.thread)) else {
            return refuse(MessageOutcome::NotOpen, NOT_OPEN, ErrorCode::NotAvailable);
        };
        if self.waiting_messages.of(room) >= messages_max {
            return refuse(MessageOutcome::TooMany, TOO_MANY, ErrorCode::TooManyRequests);
        }
        let id = self.waiting_messages.add(room, ticket);
        let message = match message {
            BackendMessage::Data(data) => ToRoom::Message { room, id, data },
            BackendMessage::Listing(change) => ToRoom::ChangeListing { room, id, change },
            BackendMessage::Kick(order) => ToRoom::Kick { room, id, order },
        };
        send_to_room(thread, message, &mut context.effects);
        Ok(())
    }

    /// Sends reservations to the room of a channel.
    pub(super) fn reserve_places(
        &mut self,
        context: &mut Context,
        channel: &str,
        reservations: Arc<[PlaceReservation]>,
    ) -> ApiResult {
        let namespace = context.resolve(channel)?;
        let room = self.channels.named(channel).and_then(|channel| channel.room.as_deref());
        let Some(room) = room else {
            let has_rooms = context.namespace(namespace).room.is_some();
            context.note_refusal_reason(if has_rooms { NOT_OPEN } else { NO_ROOMS });
            return Err(ErrorCode::NotAvailable);
        };
        send_to_room(room.thread, ToRoom::ReservePlaces { room: room.key, reservations }, &mut context.effects);
        Ok(ApiAnswer::Done { sessions: 0 })
    }

    /// A room has answered a message. If the room has ended, the request was answered at that point.
    pub(in crate::shard) fn room_has_answered(
        &mut self,
        context: &mut Context,
        key: RoomKey,
        channel: &str,
        id: u64,
        answer: Result<Bytes, Refusal>,
    ) {
        let Some(ticket) = self.waiting_messages.take(key, id) else { return };
        // Not by the name, because the patterns of names may have changed since the room was opened. The channel of a
        // room that answers exists.
        let Some(namespace) = self.channels.named(channel).map(|channel| channel.namespace) else {
            return context.answer_api(ticket, Err(ErrorCode::Internal));
        };
        let bytes_max = context.namespace(namespace).room.as_ref().map_or(0, |limits| limits.message_bytes_max);
        let (outcome, answer) = match answer {
            Ok(data) if data.len() > bytes_max => {
                context.note_refusal_reason(ANSWER_TOO_LONG);
                (MessageOutcome::AnswerTooLong, Err(ErrorCode::Internal))
            }
            Ok(data) => (MessageOutcome::Answered, Ok(ApiAnswer::MessageAnswered(Ok(data)))),
            Err(refusal) => (MessageOutcome::Refused, Ok(ApiAnswer::MessageAnswered(Err(refusal)))),
        };
        context.count(namespace).rooms.messages[outcome as usize] += 1;
        context.answer_api(ticket, answer);
    }

    /// A room has ended: answers the requests that wait for it.
    pub(super) fn answer_waiting_messages(
        &mut self,
        context: &mut Context,
        key: RoomKey,
        namespace: NamespaceIndex,
        code: UnsubscribeCode,
    ) {
        let waiting = self.waiting_messages.rooms.remove(&key.number).unwrap_or_default();
        let (why, error) = match code {
            UnsubscribeCode::ROOM_FAILED => (FAILED, ErrorCode::Internal),
            _ => (CLOSED, ErrorCode::NotAvailable),
        };
        for ticket in waiting.into_values() {
            context.count(namespace).rooms.messages[MessageOutcome::RoomEnded as usize] += 1;
            context.note_refusal_reason(why);
            context.answer_api(ticket, Err(error));
        }
    }
}
