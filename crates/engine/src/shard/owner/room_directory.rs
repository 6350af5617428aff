//! The rooms that a shard has opened: limits on opening them, the threads they run on, and the requests of the server API
//! that wait for them.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use dunlin_protocol::{ErrorCode, UnsubscribeCode};
use dunlin_rooms::{ListingChange, Refusal, RoomOverrides};
use hashbrown::HashMap;

use crate::{
    Effects, Options,
    api::{ApiAnswer, ApiResult, KickOrder},
    channel::{OwnedChannel, OwnedRoom},
    counters::MessageOutcome,
    event::{Effect, Ticket},
    names::NamespaceIndex,
    options::RoomLimits,
    refused::Refused,
    room::{Opening, RoomKey, RoomRefusal, RoomSite, RoomThreadIndex, ToRoom},
    shard::ShardIdentity,
    shrink::shrink_map,
    token_bucket::{Bucket, RefillRate},
};

use super::{Context, opening_line::OpeningLine};

pub(super) const NO_ROOMS: &str = "the namespace of the channel has no rooms: set room.simulation";
pub(super) const NO_PUBLICATIONS: &str =
    "the channel is a room, whose publications are the events of its game: use room_send";
pub(super) const NOT_OPEN: &str = "the room is not open: open it with room_open";
const TOO_LONG: &str = "data is longer than room.message_size_limit";
const TOO_MANY_MESSAGES: &str = "room.messages_limit messages wait for the room";
const CLOSED: &str = "the room was closed before it answered";
const FAILED: &str = "the room failed before it answered";
const METADATA_TOO_LONG: &str = "metadata is longer than room.metadata_size_limit";
const KICK_TOO_LONG: &str = "user, client and reason are longer than room.message_size_limit";
const ANSWER_TOO_LONG: &str = "the answer of the game is longer than room.message_size_limit";
const PARAMS_TOO_LONG: &str = "params is longer than room.params_size_limit";
const NO_SUCH_PLAYERS_MAX: &str = "max_players must be from 1 to room.max_players";
const TOO_MANY_OPENINGS: &str = "room.messages_limit requests wait for the room";
const NOT_CREATED: &str =
    "the room was closed, or failed, before its world was made: if it failed, the log of the server has the reason";

/// The rooms of a shard's channels. Each channel has its own room ([`OwnedRoom`]); this has what all of them share.
pub(super) struct RoomDirectory {
    /// The state of the room threads, by index.
    threads: Vec<RoomThread>,
    /// The number of rooms that this shard has ever opened.
    opened: u64,
    /// The number of rooms whose world is not created yet.
    opening: usize,
    openings: Bucket,
    pub(super) line: OpeningLine,
    /// Rooms that were closed with joins in flight, by number: how many joins each has not answered yet.
    closed: HashMap<u64, u32, foldhash::quality::FixedState>,
    waiting_messages: WaitingMessages,
    /// The requests that wait until the world of a room is created, by the number of the room.
    waiting_openings: BTreeMap<u64, Vec<Ticket>>,
}

/// Who opens a room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opener {
    /// A join, which may wait in line.
    Join(Opening),
    /// A request of the server API, of matchmaking, or of the node itself. They do not wait.
    Request,
}

/// A channel in the line: its joins were not refused by the limits of their sessions and addresses.
const IN_LINE: Opener = Opener::Join(Opening::Reserved);

/// With this many worlds of a shard that may be created at a time, or more, the channels in the line leave one to requests.
const LEFT_TO_REQUESTS_FROM: usize = 8;

/// What an owner stores about a room thread.
#[derive(Clone, Copy, Debug, Default)]
struct RoomThread {
    /// From its last load report.
    load_permille: u16,
    /// Rooms that this shard has opened there since that report. Each counts as one permille, so that rooms opened
    /// between two reports are spread over the threads.
    opened_since: u32,
    /// The number of open rooms of this shard on the thread.
    open: u32,
}

impl RoomDirectory {
    pub(super) fn new(identity: ShardIdentity, options: &Options) -> Self {
        Self {
            threads: vec![RoomThread::default(); usize::from(options.room_threads)],
            opened: 0,
            opening: 0,
            openings: identity.share(options.room_openings.per_second),
            line: OpeningLine::default(),
            closed: HashMap::default(),
            waiting_messages: WaitingMessages::default(),
            waiting_openings: BTreeMap::new(),
        }
    }

    pub(super) fn set_rate(&mut self, rate: Option<RefillRate>) {
        self.openings.set_rate(rate);
    }

    /// Whether the room of a channel may be opened. Checked before the channel is created, so that a refusal leaves no
    /// state. Each shard has an equal share of the node's limits.
    pub(super) fn check_opening(&mut self, context: &Context, name: &str, opener: Opener) -> Result<(), RoomRefusal> {
        if let Opener::Join(Opening::Refused(refusal)) = opener {
            return Err(refusal);
        }
        if self.line.end_turn(name) {
            return Ok(());
        }
        self.check_numbers(context, opener)?;
        let now_us = context.now.mono_us;
        let has_taken = match opener {
            _ if self.line.first().is_none() => self.openings.try_take(now_us),
            // Those in the line are first.
            Opener::Join(_) => false,
            // Those in the line take each token at once, so a request takes the one that comes next.
            Opener::Request => {
                let is_next = self.line.pass();
                if is_next {
                    self.openings.take_ahead(now_us);
                }
                is_next
            }
        };
        if has_taken { Ok(()) } else { Err(RoomRefusal::Rate) }
    }

    fn check_numbers(&self, context: &Context, opener: Opener) -> Result<(), RoomRefusal> {
        let part = |limit: usize| limit.div_ceil(usize::from(context.identity.count));
        let (open, called) = (self.threads.iter().map(|thread| thread.open as usize), self.line.called());
        if open.sum::<usize>() + called >= part(context.options.rooms_max) {
            return Err(RoomRefusal::Limit);
        }
        let opening_max = part(context.options.room_openings.opening_max);
        let is_from_line = opener != Opener::Request && self.line.first().is_some();
        let left = usize::from(is_from_line && opening_max >= LEFT_TO_REQUESTS_FROM);
        if self.opening + called >= opening_max - left { Err(RoomRefusal::Queue) } else { Ok(()) }
    }

    /// The next channel of the line that asks the other nodes for its room, if one may.
    pub(super) fn call_next(&mut self, context: &Context) -> Option<Arc<str>> {
        self.line.first()?;
        match self.check_numbers(context, IN_LINE) {
            // It does not wait for other rooms to end, and is refused.
            Err(RoomRefusal::Limit) => self.line.dismiss_first(),
            Ok(()) if self.openings.try_take(context.now.mono_us) => self.line.call_first(),
            _ => None,
        }
    }

    /// When the first channel of the line may ask; `None` if that takes the end of another opening.
    pub(super) fn next_call_us(&self, context: &Context) -> Option<u64> {
        self.check_numbers(context, IN_LINE).ok().map(|()| self.openings.next_us(context.now.mono_us))
    }

    /// The other nodes have answered a channel, or none of its joins waits. If it has not used its opening, another channel
    /// may.
    pub(super) fn end_turn(&mut self, name: &str) {
        if self.line.end_turn(name) {
            self.openings.put_back();
        }
    }

    pub(super) fn has_threads(&self) -> bool {
        !self.threads.is_empty()
    }

    /// Opens the room of a channel, on the least loaded thread.
    pub(super) fn open(&mut self, context: &mut Context, channel: &mut OwnedChannel, overrides: &RoomOverrides) {
        let load = |thread: &RoomThread| (u32::from(thread.load_permille) + thread.opened_since, thread.open);
        let threads = (0..).zip(&mut self.threads);
        let (index, thread) = threads.min_by_key(|(_, thread)| load(thread)).expect("a node with rooms has threads");
        thread.opened_since += 1;
        thread.open += 1;
        let thread = RoomThreadIndex(index);
        self.opened += 1;
        self.opening += 1;
        let key = RoomKey { owner: context.identity.index, number: self.opened };
        let namespace = channel.namespace;
        context.count(namespace).rooms.opened += 1;
        let (name, overrides) = (Arc::clone(&channel.name), Arc::new(overrides.clone()));
        let open = ToRoom::Open { room: key, channel: name, namespace: namespace.0, overrides };
        send_to_room(thread, open, &mut context.effects);
        channel.room = Some(Box::new(OwnedRoom { key, thread, pending_joins: 0, players: 0, is_made: false }));
    }

    /// Begins to forward a channel's joins to the room that another node has. The limits on rooms do not apply: this node
    /// runs no world for it.
    pub(super) fn open_remote(&mut self, context: &mut Context, channel: &mut OwnedChannel, site: &RoomSite) {
        self.opened += 1;
        let key = RoomKey { owner: context.identity.index, number: self.opened };
        let thread = self.relay();
        let open = ToRoom::OpenRemote { room: key, channel: Arc::clone(&channel.name), site: Box::new(site.clone()) };
        send_to_room(thread, open, &mut context.effects);
        channel.room = Some(Box::new(OwnedRoom { key, thread, pending_joins: 0, players: 0, is_made: true }));
    }

    /// The relay, which follows the room threads.
    fn relay(&self) -> RoomThreadIndex {
        RoomThreadIndex(u16::try_from(self.threads.len()).expect("the number of room threads is of this type"))
    }

    /// Whether another node has the room.
    pub(super) fn is_remote(&self, room: &OwnedRoom) -> bool {
        room.thread == self.relay()
    }

    /// Answers a request to open a room, or lets it wait until the world of the room is created. Returns the answer, if
    /// it is known already.
    pub(super) fn wait_for_world(
        &mut self,
        room: &OwnedRoom,
        ticket: Ticket,
        waiting_max: usize,
    ) -> Result<Option<ApiAnswer>, Refused> {
        if room.is_made {
            return Ok(Some(ApiAnswer::Done { sessions: room.players }));
        }
        let waiting = self.waiting_openings.entry(room.key.number).or_default();
        if waiting.len() >= waiting_max {
            return Err(Refused::new(ErrorCode::TooManyRequests, TOO_MANY_OPENINGS));
        }
        waiting.push(ticket);
        Ok(None)
    }

    /// A room's world is created. Returns whether that is new.
    pub(super) fn world_created(&mut self, context: &mut Context, room: &mut OwnedRoom) -> bool {
        let is_new = !std::mem::replace(&mut room.is_made, true);
        if is_new {
            self.opening -= 1;
            self.answer_openings(context, room.key, &Ok(room.players));
        }
        is_new
    }

    /// The world of a room is created, or will never be.
    pub(super) fn answer_openings(
        &mut self,
        context: &mut Context,
        key: RoomKey,
        outcome: &Result<u32, Option<Refusal>>,
    ) {
        for ticket in self.waiting_openings.remove(&key.number).unwrap_or_default() {
            let answer: ApiResult = match outcome {
                Ok(players) => Ok(ApiAnswer::Done { sessions: *players }),
                Err(Some(refusal)) => Ok(ApiAnswer::NotOpened(refusal.clone())),
                Err(None) => Err(Refused::new(ErrorCode::Internal, NOT_CREATED)),
            };
            context.answer_api(ticket, answer);
        }
    }

    /// A room was closed, or has failed. Answers the requests that wait for it.
    pub(super) fn ended(
        &mut self,
        context: &mut Context,
        room: &OwnedRoom,
        namespace: NamespaceIndex,
        code: UnsubscribeCode,
    ) {
        self.opening -= usize::from(!room.is_made);
        self.answer_openings(context, room.key, &Err(None));
        self.answer_waiting_messages(context, room.key, namespace, code);
        if let Some(thread) = self.threads.get_mut(usize::from(room.thread.0)) {
            thread.open = thread.open.saturating_sub(1);
        }
    }

    /// Notes a closed room with joins in flight.
    pub(super) fn note_closed(&mut self, room: &OwnedRoom) {
        if room.pending_joins > 0 {
            self.closed.insert(room.key.number, room.pending_joins);
        }
    }

    /// Whether a closed room has answered a join.
    pub(super) fn closed_room_answers(&mut self, key: RoomKey) -> bool {
        let Some(pending_joins) = self.closed.get_mut(&key.number) else { return false };
        *pending_joins -= 1;
        if *pending_joins == 0 {
            self.closed.remove(&key.number);
            shrink_map(&mut self.closed);
        }
        true
    }

    /// Whether messages wait for the answers of a room.
    pub(super) fn has_waiting_messages(&self, key: RoomKey) -> bool {
        self.waiting_messages.of(key) > 0
    }

    /// The load report of a room thread.
    pub(super) fn thread_reports(&mut self, thread: RoomThreadIndex, permille: u16) {
        if let Some(thread) = self.threads.get_mut(usize::from(thread.0)) {
            (thread.load_permille, thread.opened_since) = (permille, 0);
        }
    }

    /// Sends a message to the room of a channel, whose answer answers the ticket.
    pub(super) fn send_message(
        &mut self,
        context: &mut Context,
        (namespace, channel): (NamespaceIndex, Option<&OwnedChannel>),
        ticket: Ticket,
        message: BackendMessage,
    ) -> Result<(), Refused> {
        let Some(limits) = &context.namespace(namespace).room else {
            return Err(Refused::new(ErrorCode::NotAvailable, NO_ROOMS));
        };
        let (messages_max, why_too_long) = (limits.messages_max, message.why_too_long(limits));
        let mut refuse = |outcome: MessageOutcome, why, code| {
            context.count(namespace).rooms.messages[outcome as usize] += 1;
            Err(Refused::new(code, why))
        };
        if let Some(why) = why_too_long {
            return refuse(MessageOutcome::TooLong, why, ErrorCode::BadRequest);
        }
        let room = channel.and_then(|channel| channel.room.as_deref());
        let Some((room, thread)) = room.map(|room| (room.key, room.thread)) else {
            return refuse(MessageOutcome::NotOpen, NOT_OPEN, ErrorCode::NotAvailable);
        };
        if self.waiting_messages.of(room) >= messages_max {
            return refuse(MessageOutcome::TooMany, TOO_MANY_MESSAGES, ErrorCode::TooManyRequests);
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

    /// A room has answered a message. If the room has ended, the request was answered at that point. `namespace` is that
    /// of the channel, which exists as long as its room.
    pub(super) fn message_answered(
        &mut self,
        context: &mut Context,
        (key, namespace): (RoomKey, Option<NamespaceIndex>),
        id: u64,
        answer: Result<Bytes, Refusal>,
    ) {
        let Some(ticket) = self.waiting_messages.take(key, id) else { return };
        let Some(namespace) = namespace else {
            return context.answer_api(ticket, Err(ErrorCode::Internal.into()));
        };
        let bytes_max = context.namespace(namespace).room.as_ref().map_or(0, |limits| limits.message_bytes_max);
        let (outcome, answer) = match answer {
            Ok(data) if data.len() > bytes_max => {
                (MessageOutcome::AnswerTooLong, Err(Refused::new(ErrorCode::Internal, ANSWER_TOO_LONG)))
            }
            Ok(data) => (MessageOutcome::Answered, Ok(ApiAnswer::MessageAnswered(Ok(data)))),
            Err(refusal) => (MessageOutcome::Refused, Ok(ApiAnswer::MessageAnswered(Err(refusal)))),
        };
        context.count(namespace).rooms.messages[outcome as usize] += 1;
        context.answer_api(ticket, answer);
    }

    /// A room has ended: answers the requests that wait for it.
    fn answer_waiting_messages(
        &mut self,
        context: &mut Context,
        key: RoomKey,
        namespace: NamespaceIndex,
        code: UnsubscribeCode,
    ) {
        let waiting = self.waiting_messages.rooms.remove(&key.number).unwrap_or_default();
        let refused = match code {
            UnsubscribeCode::ROOM_FAILED => Refused::new(ErrorCode::Internal, FAILED),
            _ => Refused::new(ErrorCode::NotAvailable, CLOSED),
        };
        for ticket in waiting.into_values() {
            context.count(namespace).rooms.messages[MessageOutcome::RoomEnded as usize] += 1;
            context.answer_api(ticket, Err(refused));
        }
    }
}

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

/// Why a room cannot be opened with these overrides.
pub(super) fn why_unusable(limits: &RoomLimits, overrides: &RoomOverrides) -> Option<(RoomRefusal, &'static str)> {
    let listing = &overrides.listing;
    let metadata_bytes = listing.metadata.as_ref().map_or(0, |metadata| metadata.len());
    let is_possible = |max: u32| usize::try_from(max).is_ok_and(|max| (1..=limits.players_max).contains(&max));
    if overrides.params.len() > limits.params_bytes_max {
        Some((RoomRefusal::Params, PARAMS_TOO_LONG))
    } else if metadata_bytes > limits.metadata_bytes_max {
        Some((RoomRefusal::Listing, METADATA_TOO_LONG))
    } else if !listing.players_max.is_none_or(is_possible) {
        Some((RoomRefusal::Listing, NO_SUCH_PLAYERS_MAX))
    } else {
        None
    }
}

pub(super) fn send_to_room(thread: RoomThreadIndex, message: ToRoom, effects: &mut Effects) {
    effects.list.push(Effect::ToRoom { thread, message });
}
