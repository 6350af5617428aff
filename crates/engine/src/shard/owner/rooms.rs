//! The owner's side of a room: opens it, and forwards its joins, leaves and events.

use std::sync::Arc;

use bytes::Bytes;
use dunlin_protocol::{ErrorCode, Payload, UnsubscribeCode};
use dunlin_rooms::{Refusal, RoomOverrides};

use crate::{
    api::{ApiAnswer, ApiResult, PlaceReservation},
    backend::PublishHow,
    channel::{Audience, ChannelKey, OwnedRoom},
    counters::NamespaceRoomCounters,
    event::Ticket,
    lifecycle::{Lifecycle, LifecycleKind},
    log_in_flight::{Draft, ParkedCost, ReplyTo},
    message::{AnswerPace, NotSubscribed, Notice, Subscribed, SubscriptionRequest},
    names::NamespaceIndex,
    refused::Refused,
    room::{
        Departure, EventAudience, JoinedAs, LeftSeat, NotJoined, Opening, RoomElsewhere, RoomKey, RoomRefusal,
        RoomSite, RoomState, RoomThreadIndex, SeatKey, ToRoom,
    },
};

use super::{
    Context,
    channels::{Channels, NamedChannel},
    room_directory::{BackendMessage, NO_ROOMS, NOT_OPEN, Opener, RoomDirectory, send_to_room, why_unusable},
    room_queries::{
        ELSEWHERE, JoinPlace, Pausing, RoomQueries, TOO_MANY, UNANSWERED, WaitingRequest, count_refusal, may_open,
        not_here, waits_until_us, why_not_joined,
    },
};

/// The refusal code of joins that were in flight to a room when it was closed.
const CLOSED_CODE: u16 = 400;
/// The refusal code of joins while all free places are reserved for other users.
const RESERVED_CODE: u16 = 409;
const RESERVED: &str = "all free places are reserved for other users";
const IS_OPEN: &str = "the room is open already, and only a room that is closed is opened with options";

/// A request for the room of a channel, or a message of a room: changes the room and its channel together.
pub(in crate::shard) struct Rooms<'r> {
    pub(super) context: &'r mut Context,
    pub(super) channels: &'r mut Channels,
    pub(super) directory: &'r mut RoomDirectory,
    pub(super) queries: &'r mut RoomQueries,
}

impl Rooms<'_> {
    /// Sends a join to the channel's room, which is opened if necessary, and if no other node of the cluster has it.
    /// [`Rooms::joined`] handles the answer.
    pub(super) fn serve_join(&mut self, request: Box<SubscriptionRequest>) {
        if let Some(join) = &request.join {
            self.end_hold(&request.channel, join.seat);
        }
        if may_open(&request) && self.should_ask_for_room(&request.channel) {
            self.ask_for_room_to_join(request);
        } else {
            self.join_here(request);
        }
    }

    /// Whether other nodes may have the room of a channel.
    pub(super) fn should_ask_for_room(&self, name: &str) -> bool {
        let has_peers = self.context.options.log.has_peers() && self.directory.has_threads();
        has_peers
            && self.channels.table.named(name).is_none_or(|channel| channel.room.is_none())
            && self.context.names.resolve(name).is_ok_and(|namespace| self.context.namespace(namespace).room.is_some())
    }

    /// Makes a join wait until the other nodes have answered.
    pub(super) fn ask_for_room_to_join(&mut self, request: Box<SubscriptionRequest>) {
        if let Some(request) = self.park(request) {
            let name = Arc::clone(&request.channel);
            self.queries.add(self.context, name, WaitingRequest::Join(request));
        }
    }

    /// A join is about to wait. `None` if too much waits already: then it is refused. [`Rooms::unpark`] ends it.
    fn park(&mut self, mut request: Box<SubscriptionRequest>) -> Option<Box<SubscriptionRequest>> {
        let cost = ParkedCost::of_subscription(&request);
        if let Err(refused) = self.channels.log_traffic.check_parked(&self.context.options.log, cost) {
            refuse_join(self.context, request, refused.into());
            return None;
        }
        self.channels.log_traffic.note_parked(&request);
        self.queries.begin_stay(self.context, &request, JoinPlace::Here);
        // No command waits for a subscription that the server makes itself.
        if request.asker.command_id != 0 && request.answer == AnswerPace::Awaited {
            request.answer = AnswerPace::Late;
            self.context.notify(request.asker.shard, Notice::JoinWaits { asker: request.asker });
        }
        Some(request)
    }

    /// Makes a request of the server API wait until the other nodes have answered.
    pub(super) fn ask_for_room_to_open(
        &mut self,
        ticket: Ticket,
        name: &Arc<str>,
        overrides: &RoomOverrides,
    ) -> Result<(), Refused> {
        if !self.queries.may_wait_to_open(self.context, name) {
            return Err(Refused::new(ErrorCode::TooManyRequests, TOO_MANY));
        }
        let overrides = Box::new(overrides.clone());
        self.queries.add(self.context, Arc::clone(name), WaitingRequest::Open { ticket, overrides });
        Ok(())
    }

    /// The other nodes have answered.
    pub(in crate::shard) fn room_queried(&mut self, name: &Arc<str>, found: &RoomElsewhere) {
        let Some(waiting) = self.queries.take(name) else {
            self.context.counters.late_messages += 1;
            return;
        };
        // The other node may have asked everybody before this one did, so it is not in their answers.
        let found = match *found {
            RoomElsewhere::Nowhere { is_contended } if !self.queries.may_open(self.context, name, is_contended) => {
                &RoomElsewhere::Unanswered
            }
            _ => found,
        };
        for request in waiting {
            match request {
                WaitingRequest::Join(join) => {
                    if let Some(request) = self.unpark(join) {
                        self.join_where_found(request, found);
                    }
                }
                WaitingRequest::Open { ticket, overrides } => match not_here(found) {
                    None => self.open_room_here(ticket, name, &overrides),
                    Some(refusal) => {
                        count_refusal(self.context, name, refusal);
                        let why = if refusal == RoomRefusal::Elsewhere { ELSEWHERE } else { UNANSWERED };
                        self.context.answer_api(ticket, Err(Refused::new(refusal.code(), why)));
                    }
                },
            }
        }
        if matches!(found, RoomElsewhere::Open { .. }) {
            self.end_pause(name, found);
        }
        // Its next turn may have come above.
        if !self.queries.is_asking(name) {
            self.directory.end_turn(name);
        }
        self.call_next();
    }

    /// A join waits no longer. `None` if nobody waits for its answer: then it is refused.
    fn unpark(&mut self, request: Box<SubscriptionRequest>) -> Option<Box<SubscriptionRequest>> {
        self.channels.log_traffic.unpark(&request);
        if !self.queries.end_stay(&request) {
            refuse_join(self.context, request, ErrorCode::Internal.into());
            return None;
        }
        Some(request)
    }

    fn join_where_found(&mut self, request: Box<SubscriptionRequest>, found: &RoomElsewhere) {
        match (not_here(found), found) {
            (None, _) => self.join_here(request),
            (_, RoomElsewhere::Open { site: Some(site), .. }) => self.join_there(request, site),
            (Some(RoomRefusal::Unanswered), _) if self.waits_on(&request) => self.wait_to_ask_again(request),
            (Some(refusal), _) => {
                count_refusal(self.context, &request.channel, refusal);
                refuse_join(self.context, request, why_not_joined(found, refusal));
            }
        }
    }

    /// Whether a join that cannot reach the room now may still wait for it.
    fn waits_on(&self, request: &SubscriptionRequest) -> bool {
        self.context.options.log.has_peers() && self.context.now.mono_us < waits_until_us(request)
    }

    fn wait_to_ask_again(&mut self, request: Box<SubscriptionRequest>) {
        if let Some(request) = self.park(request) {
            self.queries.pause(self.context, request);
        }
    }

    /// A join waits until this node may open one more room.
    fn wait_in_line(&mut self, request: Box<SubscriptionRequest>) {
        let Some(request) = self.park(request) else { return };
        if self.queries.is_asking(&request.channel) {
            // The turn of the channel has come with the join before this one, and they share it.
            let name = Arc::clone(&request.channel);
            return self.queries.add(self.context, name, WaitingRequest::Join(request));
        }
        let line = &mut self.directory.line;
        self.queries.wait_in_line(self.context, request, |channel| line.enter(channel));
        self.call_next();
    }

    /// Another node has the room: the joins that were to ask again need not.
    fn end_pause(&mut self, name: &str, found: &RoomElsewhere) {
        let Pausing { joins, in_line, .. } = self.queries.take_pausing(self.context, name);
        for request in joins {
            if let Some(request) = self.unpark(request) {
                self.join_where_found(request, found);
            }
        }
        if let Some(place) = in_line {
            self.directory.line.leave(place);
        }
    }

    /// The channel has a room now: the joins that were to ask again go to it.
    fn serve_pausing(&mut self, name: &str) {
        let Pausing { joins, in_line, .. } = self.queries.take_pausing(self.context, name);
        for request in joins {
            if let Some(request) = self.unpark(request) {
                self.join_here(request);
            }
        }
        if let Some(place) = in_line {
            self.directory.line.leave(place);
            self.call_next();
        }
    }

    /// Joins that waited for a room ask again, or have waited too long. Returns whether the timer is theirs.
    pub(in crate::shard) fn wake_joins(&mut self, due_us: u64, name: &Arc<str>) -> bool {
        if !self.queries.take_timer(due_us, name) {
            return false;
        }
        if self.queries.pausing(name).is_some_and(|pausing| pausing.in_line.is_some()) {
            self.end_wait_in_line(name);
            self.call_next();
        } else {
            self.ask_again(name);
        }
        true
    }

    fn ask_again(&mut self, name: &Arc<str>) {
        for request in self.queries.take_pausing(self.context, name).joins {
            if let Some(request) = self.unpark(request) {
                self.serve_join(request);
            }
        }
    }

    /// The joins of a channel in the line that have waited too long ask a last time: while they waited, another node may have
    /// opened the room. If none has, they are refused.
    fn end_wait_in_line(&mut self, name: &Arc<str>) {
        let overdue = self.queries.take_overdue(self.context, name);
        let is_none_left = self.queries.pausing(name).is_none_or(|pausing| pausing.joins.is_empty());
        if is_none_left && let Some(place) = self.queries.take_pausing(self.context, name).in_line {
            self.directory.line.leave(place);
        }
        for request in overdue {
            if let Some(request) = self.unpark(request) {
                self.serve_join(request);
            }
        }
    }

    /// Lets those in the line whose turn has come ask the other nodes for their rooms.
    fn call_next(&mut self) {
        while let Some(name) = self.directory.call_next(self.context) {
            self.ask_again(&name);
            if !self.queries.is_asking(&name) {
                // Nobody waits for these joins any more.
                self.directory.end_turn(&name);
            }
        }
        let first = self.directory.line.first().map(Arc::clone);
        if let (Some(first), Some(due_us)) = (first, self.directory.next_call_us(self.context)) {
            self.queries.wake_at(self.context, &first, due_us);
        }
    }

    /// The state of a channel's room on this node, for another one that asks for it.
    ///
    /// # Errors
    /// See [`RoomQueries::state_for_peer`].
    pub(super) fn room_state_for_peer(&mut self, name: Arc<str>, wait_ms: u64) -> Result<RoomState, Refused> {
        let room = self.channels.table.named(&name).and_then(|channel| channel.room.as_deref());
        // The node that has the room answers for it.
        if let Some(OwnedRoom { key, thread, .. }) = room.filter(|room| !self.directory.is_remote(room)) {
            return Ok(RoomState::Open { room: *key, thread: *thread });
        }
        self.queries.state_for_peer(self.context, name, wait_ms)
    }

    /// Sends a join to a room of another node.
    fn join_there(&mut self, request: Box<SubscriptionRequest>, site: &RoomSite) {
        let name = Arc::clone(&request.channel);
        let key = self.context.resolve(&name).and_then(|namespace| {
            let mut channel = NamedChannel { name: &name, namespace, key: self.channels.table.find(&name) };
            self.channels.ensure(self.context, &mut channel)
        });
        match key {
            Ok(key) => {
                let channel = &mut self.channels.table[key];
                // The join before this one may have been waiting for the same answers.
                let is_new = channel.room.is_none();
                if is_new {
                    self.directory.open_remote(self.context, channel, site);
                }
                self.channels.review(self.context, key);
                self.send_join(key, request);
                if is_new {
                    self.serve_pausing(&name);
                }
                self.end_unused_relay(&name);
            }
            Err(refused) => refuse_join(self.context, request, refused.into()),
        }
    }

    /// Sends a join to the room of a channel, which is open, unless its session has to agree first.
    fn send_join(&mut self, channel: ChannelKey, request: Box<SubscriptionRequest>) {
        if request.answer == AnswerPace::Late {
            return self.hold_join(channel, request);
        }
        let room = self.channels.table[channel].room.as_deref_mut().expect("the caller has opened it");
        room.pending_joins += 1;
        let OwnedRoom { key: room, thread, .. } = *room;
        self.queries.begin_stay(self.context, &request, JoinPlace::Room);
        send_to_room(thread, ToRoom::Join { room, request }, &mut self.context.effects);
    }

    /// Sends a join to its session, which may be slow. The room is to be open until then.
    fn hold_join(&mut self, channel: ChannelKey, request: Box<SubscriptionRequest>) {
        let channel = &mut self.channels.table[channel];
        let room = channel.room.as_deref_mut().expect("the caller has opened it");
        match self.queries.begin_hold(self.context, &request, room.key) {
            Ok(()) => {
                room.pending_joins += 1;
                self.context.notify(request.asker.shard, Notice::JoinDue { request });
            }
            Err(refused) => {
                self.context.count(channel.namespace).rooms.joins_unheld += 1;
                refuse_join(self.context, request, refused.into());
            }
        }
    }

    pub(super) fn join_here(&mut self, mut request: Box<SubscriptionRequest>) {
        let key = self.channels.table.find(&request.channel);
        let is_open = key.is_some_and(|key| self.channels.table[key].room.is_some());
        let namespace = self.context.names.resolve(&request.channel);
        let overrides = match namespace {
            Ok(namespace) if !is_open => overrides_of_join(self.context, namespace, &request),
            _ => Ok(RoomOverrides::default()),
        };
        let overrides = match overrides {
            Ok(overrides) => overrides,
            Err(refusal) => {
                if let Ok(namespace) = namespace {
                    self.context.count(namespace).rooms.refused[RoomRefusal::Params as usize] += 1;
                }
                return refuse_join(self.context, request, NotSubscribed::Refused(refusal));
            }
        };
        let opener = Opener::Join(request.join.as_ref().map_or(Opening::Reserved, |join| join.opening));
        let name = Arc::clone(&request.channel);
        let room = namespace.map_err(NoRoom::from).and_then(|namespace| {
            let mut channel = NamedChannel { name: &name, namespace, key };
            self.room_to_join(&mut channel, opener, &overrides)
        });
        match room {
            Ok((channel, is_new)) => {
                if let Some(join) = request.join.as_mut().filter(|_| is_new) {
                    join.opening = Opening::Used;
                }
                self.send_join(channel, request);
                if is_new {
                    self.serve_pausing(&name);
                }
            }
            // When a node has died, all its rooms are opened at once.
            Err(NoRoom::NotOpened(RoomRefusal::Queue | RoomRefusal::Rate)) if self.waits_on(&request) => {
                self.wait_in_line(request);
            }
            Err(why) => {
                let refused = self.refused(&name, why);
                refuse_join(self.context, request, refused.into());
            }
        }
    }

    /// Counts a room that is not opened.
    fn refused(&mut self, name: &str, why: NoRoom) -> Refused {
        match why {
            NoRoom::NotOpened(refusal) => {
                count_refusal(self.context, name, refusal);
                refusal.into()
            }
            NoRoom::Refused(refused) => refused,
        }
    }

    /// The channel, which has a room, and whether this call opened it.
    fn room_to_join(
        &mut self,
        channel: &mut NamedChannel<'_>,
        opener: Opener,
        overrides: &RoomOverrides,
    ) -> Result<(ChannelKey, bool), NoRoom> {
        if self.context.namespace(channel.namespace).room.is_none() || !self.directory.has_threads() {
            return Err(NoRoom::Refused(ErrorCode::NotAvailable.into()));
        }
        let is_open = channel.key.is_some_and(|key| self.channels.table[key].room.is_some());
        if !is_open {
            self.directory.check_opening(self.context, channel.name, opener).map_err(NoRoom::NotOpened)?;
            // First, so that no room is opened for a channel that the shard has no space for.
            let key = self.channels.ensure(self.context, channel)?;
            self.directory.open(self.context, &mut self.channels.table[key], overrides);
            self.channels.review(self.context, key);
        }
        Ok((self.channels.ensure(self.context, channel)?, !is_open))
    }

    /// Opens a room for the server API, if no other node of the cluster has it.
    pub(super) fn open_room_by_api(&mut self, ticket: Ticket, channel: &Arc<str>, overrides: &RoomOverrides) {
        if !self.should_ask_for_room(channel) {
            self.open_room_here(ticket, channel, overrides);
        } else if let Err(refused) = self.ask_for_room_to_open(ticket, channel, overrides) {
            self.context.answer_api(ticket, Err(refused));
        }
    }

    /// Opens a room for the server API. The request is answered when its world is created.
    pub(super) fn open_room_here(&mut self, ticket: Ticket, channel: &Arc<str>, overrides: &RoomOverrides) {
        if let Some(answer) = self.try_open_room(ticket, channel, overrides).transpose() {
            self.context.answer_api(ticket, answer);
        }
    }

    /// The answer, if known already.
    fn try_open_room(
        &mut self,
        ticket: Ticket,
        name: &Arc<str>,
        overrides: &RoomOverrides,
    ) -> Result<Option<ApiAnswer>, Refused> {
        let namespace = self.context.resolve(name)?;
        let limits = self.context.namespace(namespace).room.as_ref();
        // A namespace without rooms is refused by the next step.
        let unusable = limits.and_then(|limits| why_unusable(limits, overrides));
        let waiting_max = limits.map_or(0, |limits| limits.messages_max);
        if let Some((refusal, why)) = unusable {
            self.context.count(namespace).rooms.refused[refusal as usize] += 1;
            return Err(Refused::new(refusal.code(), why));
        }
        let mut channel = NamedChannel { name, namespace, key: self.channels.table.find(name) };
        let opened = self.room_to_join(&mut channel, Opener::Request, overrides);
        let (key, is_new) = opened.map_err(|why| self.refused(name, why))?;
        if is_new {
            self.serve_pausing(name);
        }
        let room = *self.channels.table[key].room.as_deref().expect("opened above");
        if self.directory.is_remote(&room) {
            return Err(Refused::new(RoomRefusal::Elsewhere.code(), ELSEWHERE));
        }
        // A room that continues has no overrides: whoever has opened it meanwhile continues it as well.
        if !is_new && !overrides.continues && !overrides.is_empty() {
            return Err(Refused::new(ErrorCode::BadRequest, IS_OPEN));
        }
        self.directory.wait_for_world(&room, ticket, waiting_max)
    }

    /// A room's world is created.
    pub(in crate::shard) fn on_room_made(&mut self, room: RoomKey, name: &Arc<str>) {
        let Some(key) = self.channel_of_room(name, room) else { return };
        let channel = &mut self.channels.table[key];
        let Some(room) = channel.room.as_deref_mut() else { return };
        let is_new = self.directory.world_created(self.context, room);
        if is_new && self.context.tells(LifecycleKind::RoomOpened, channel.namespace) {
            self.context.tell(Lifecycle::RoomOpened { channel: Arc::clone(name) });
        }
        self.call_next();
    }

    /// The channel with this name, if `room` is still its room.
    fn channel_of_room(&self, name: &str, room: RoomKey) -> Option<ChannelKey> {
        self.channels.table.find(name).filter(|key| self.channels.table[*key].has_room(room))
    }

    /// A room has answered a join.
    pub(in crate::shard) fn joined(
        &mut self,
        room_key: RoomKey,
        request: Box<SubscriptionRequest>,
        outcome: Result<JoinedAs, NotJoined>,
    ) {
        let is_awaited = self.queries.end_stay(&request);
        let mut key = self.channels.table.find(&request.channel);
        let room = key.and_then(|key| self.channels.table[key].room_mut(room_key)).map(|room| {
            room.pending_joins -= 1;
            *room
        });
        let is_closed = room.is_none() && self.directory.closed_room_answers(room_key);
        if outcome == Err(NotJoined::Unavailable) && !is_closed && is_awaited && self.waits_on(&request) {
            return self.wait_to_ask_again(request);
        }
        // The patterns of names may have changed since the join was sent to the room. It is answered anyway.
        let known = key.map(|key| self.channels.table[key].namespace);
        let namespace = known.or_else(|| self.context.names.resolve(&request.channel).ok());
        let mut uncounted = NamespaceRoomCounters::default();
        let counters = namespace.map_or(&mut uncounted, |namespace| &mut self.context.count(namespace).rooms);
        let outcome = match (outcome, room) {
            (outcome, room) if request.is_keeping() => {
                let joined = outcome.ok().zip(room);
                return self.answer_kept_seat(key, request, joined);
            }
            (Err(NotJoined::Refused(refusal)), _) => {
                counters.joins_refused += 1;
                Err(NotSubscribed::Refused(refusal))
            }
            (Err(NotJoined::Reserved), _) => {
                counters.joins_reserved += 1;
                Err(NotSubscribed::Refused(Refusal { code: RESERVED_CODE, message: RESERVED.into() }))
            }
            // A join to a room that has ended is never confirmed. SDKs do not rejoin a closed room, as for the players
            // that were in it; they rejoin a room that failed.
            (Err(NotJoined::Gone | NotJoined::Unavailable), _) | (Ok(_), None) => {
                counters.joins_gone += 1;
                let closed = || Refusal { code: CLOSED_CODE, message: "room closed".into() };
                let error = ErrorCode::Internal.into();
                Err(if is_closed { NotSubscribed::Refused(closed()) } else { error })
            }
            (Ok(joined), Some(room)) => {
                counters.joins_accepted += 1;
                counters.seats_resumed += u64::from(joined.is_back);
                let subscribed =
                    self.channels.accept_named(self.context, &mut key, &request, None).map_err(NotSubscribed::from);
                self.keep_player(key, room, &request, subscribed.is_ok());
                subscribed.map(|mut subscribed| {
                    subscribed.room = Some((room.key, room.thread));
                    subscribed.is_back = joined.is_back;
                    subscribed
                })
            }
        };
        self.channels.answer_subscription(self.context, key, request, outcome);
    }

    /// Answers the join of a seat that is kept. The session is subscribed, so nothing else changes here.
    fn answer_kept_seat(
        &mut self,
        channel: Option<ChannelKey>,
        request: Box<SubscriptionRequest>,
        joined: Option<(JoinedAs, OwnedRoom)>,
    ) {
        let Some((joined, room)) = joined else {
            return refuse_join(self.context, request, ErrorCode::Internal.into());
        };
        // A host of an earlier version has made a new player.
        self.keep_player(channel, room, &request, joined.is_back);
        if !joined.is_back {
            return refuse_join(self.context, request, ErrorCode::Internal.into());
        }
        let subscribed = Subscribed { room: Some((room.key, room.thread)), is_back: true, ..Subscribed::default() };
        let shard = request.asker.shard;
        self.context.notify(shard, Notice::Subscribed { request, outcome: Ok(Box::new(subscribed)) });
    }

    /// A player has joined its room; it stays if its subscription is accepted.
    fn keep_player(
        &mut self,
        channel: Option<ChannelKey>,
        room: OwnedRoom,
        request: &SubscriptionRequest,
        stays: bool,
    ) {
        if stays {
            let channel = channel.and_then(|key| self.channels.table.get_mut(key));
            if let Some(room) = channel.and_then(|channel| channel.room_mut(room.key)) {
                room.players += 1;
            }
        } else if let Some(join) = &request.join {
            let leave = ToRoom::Leave { room: room.key, seat: join.seat, departure: Departure::Left };
            send_to_room(room.thread, leave, &mut self.context.effects);
        }
    }

    /// A player's subscription has ended. A room that has ended receives no message.
    pub(super) fn serve_leave(&mut self, channel: ChannelKey, left: LeftSeat) {
        let LeftSeat { room: key, seat, departure } = left;
        if let Some(room) = self.channels.table[channel].room_mut(key) {
            room.players -= 1;
            send_to_room(room.thread, ToRoom::Leave { room: key, seat, departure }, &mut self.context.effects);
        }
    }

    /// A join that its session held has come back, or will not. Returns whether it was one.
    fn end_hold(&mut self, name: &str, seat: SeatKey) -> bool {
        let Some(room) = self.queries.end_hold(seat) else { return false };
        match self.channel_of_room(name, room).and_then(|key| self.channels.table[key].room_mut(room)) {
            Some(room) => room.pending_joins -= 1,
            None => _ = self.directory.closed_room_answers(room),
        }
        true
    }

    /// Nobody waits for the answer to a join any more. If the client may join again before the answer, the room learns it now:
    /// the client is to find its player away.
    pub(super) fn abandon_join(&mut self, name: &str, seat: SeatKey, departure: Departure) {
        if self.end_hold(name, seat) {
            return self.end_unused_relay(name);
        }
        if self.queries.abandon(seat) || departure != Departure::Lost {
            return;
        }
        let room = self.channels.table.named(name).and_then(|channel| channel.room.as_deref());
        if let Some(room) = room {
            let leave = ToRoom::Leave { room: room.key, seat, departure: Departure::Unanswered };
            send_to_room(room.thread, leave, &mut self.context.effects);
        }
    }

    /// A room has been empty for the maximum time. Closes it, unless it has a player or a join is in flight.
    pub(in crate::shard) fn room_is_idle(&mut self, key: RoomKey, name: &str) {
        let Some(channel) = self.channels.table.find(name) else { return };
        let Some(room) = self.channels.table[channel].room_mut(key) else { return };
        let is_needed = room.players > 0 || room.pending_joins > 0 || self.directory.has_waiting_messages(key);
        if !is_needed {
            self.end_room_of(channel, key, None);
        }
    }

    /// Forgets the room of another node to which nobody goes now. The relay, other than a room of this node, does not report
    /// again that nobody is there.
    fn end_unused_relay(&mut self, name: &str) {
        let room = self.channels.table.named(name).and_then(|channel| channel.room.as_deref());
        if let Some(key) = room.filter(|room| self.directory.is_remote(room)).map(|room| room.key) {
            self.room_is_idle(key, name);
        }
    }

    /// Closes a room, if it is still open. `reason` is for its clients; `None` for the default reason of the code.
    pub(in crate::shard) fn close_room(&mut self, name: &str, key: RoomKey, reason: Option<Arc<str>>) {
        if let Some(channel) = self.channels.table.find(name) {
            self.end_room_of(channel, key, reason);
        }
    }

    fn end_room_of(&mut self, channel: ChannelKey, key: RoomKey, reason: Option<Arc<str>>) {
        let code = UnsubscribeCode::ROOM_CLOSED;
        if let Some((room, namespace)) = self.forget_room(channel, key, (code, reason.clone())) {
            self.context.count(namespace).rooms.closed += u64::from(!self.directory.is_remote(&room));
            self.directory.note_closed(&room);
            send_to_room(room.thread, ToRoom::Close { room: key, code, reason }, &mut self.context.effects);
        }
    }

    pub(super) fn close_room_by_api(&mut self, name: &str) -> ApiResult {
        let namespace = self.context.names.resolve(name)?;
        if self.context.namespace(namespace).room.is_none() {
            return Err(ErrorCode::NotAvailable.into());
        }
        let Some(channel) = self.channels.table.find(name) else { return Ok(ApiAnswer::NoRoom) };
        // A room of another node is closed there.
        let room = self.channels.table[channel].room.as_deref().filter(|room| !self.directory.is_remote(room));
        let Some(room) = room.copied() else { return Ok(ApiAnswer::NoRoom) };
        self.end_room_of(channel, room.key, None);
        Ok(ApiAnswer::Done { sessions: room.players })
    }

    /// A room has failed and no longer exists.
    pub(in crate::shard) fn room_has_failed(&mut self, key: RoomKey, name: &str, refusal: Option<Refusal>) {
        let Some(channel) = self.channel_of_room(name, key) else { return };
        self.directory.answer_openings(self.context, key, &Err(refusal));
        let ended = (UnsubscribeCode::ROOM_FAILED, None);
        if let Some((room, namespace)) = self.forget_room(channel, key, ended) {
            self.context.count(namespace).rooms.failed += u64::from(!self.directory.is_remote(&room));
        }
    }

    /// Removes a room and notifies the shards of its players, after the answers to the players' joins. The room's own
    /// messages may arrive earlier, at sessions that still wait for those answers. If a room of another node is lost that may go
    /// on elsewhere, its players stay and join again.
    fn forget_room(
        &mut self,
        key: ChannelKey,
        room_key: RoomKey,
        (code, reason): (UnsubscribeCode, Option<Arc<str>>),
    ) -> Option<(OwnedRoom, NamespaceIndex)> {
        let channel = &mut self.channels.table[key];
        let room = *channel.room_mut(room_key)?;
        channel.room = None;
        let namespace = channel.namespace;
        self.directory.ended(self.context, &room, namespace, code);
        // The node that has a room tells of its end, as of its beginning. A node that loses that one does not know of it.
        let is_own = room.is_made && !self.directory.is_remote(&room);
        if is_own && self.context.tells(LifecycleKind::RoomEnded, namespace) {
            let (channel, reason) = (Arc::clone(&channel.name), reason.clone());
            self.context.tell(Lifecycle::RoomEnded { channel, code, reason });
        }
        let moves = code == UnsubscribeCode::ROOM_FAILED
            && self.directory.is_remote(&room)
            && self.context.namespace(namespace).room.as_ref().is_some_and(|limits| limits.moves);
        for shard in channel.listening_shards(Audience::Publications) {
            let (name, reason) = (Arc::clone(&channel.name), reason.clone());
            let notice = if moves {
                Notice::RoomMoves { channel: name, room: room_key }
            } else {
                Notice::RoomOver { channel: name, room: room_key, code, reason }
            };
            self.context.notify(shard, notice);
        }
        self.channels.review(self.context, key);
        self.call_next();
        Some((room, namespace))
    }

    /// An event of a room: a publication in its channel. An event of a closed room is dropped: the channel may already
    /// have a new room on another thread, whose players must not receive it.
    pub(in crate::shard) fn take_event(
        &mut self,
        room: RoomKey,
        name: &Arc<str>,
        data: Payload,
        audience: Option<Box<EventAudience>>,
    ) {
        let Some(channel) = self.context.counters.found_or_late(self.channel_of_room(name, room)) else { return };
        let audience = audience.map(|audience| Arc::new(*audience));
        let draft = Draft { data, info: None, how: PublishHow::default(), audience, creator: None };
        self.channels.propose_to(self.context, (name, Some(channel)), draft, ReplyTo::Room);
        if let Ok(namespace) = self.context.names.resolve(name) {
            self.context.count(namespace).rooms.events += 1;
        }
    }

    /// A publication of a room to another channel.
    pub(in crate::shard) fn take_publication(&mut self, channel: &Arc<str>, data: Payload) {
        let draft = Draft { data, info: None, how: PublishHow::default(), audience: None, creator: None };
        self.channels.propose(self.context, channel, draft, ReplyTo::Room);
    }

    /// The load report of a room thread.
    pub(in crate::shard) fn thread_reports(&mut self, thread: RoomThreadIndex, permille: u16) {
        self.directory.thread_reports(thread, permille);
    }

    /// Sends a message to the room of a channel. The request is answered by [`Rooms::room_has_answered`], or when the
    /// room ends.
    pub(super) fn send_message_to_room(&mut self, ticket: Ticket, name: &str, message: BackendMessage) {
        let sent = self.context.resolve(name).and_then(|namespace| {
            let channel = self.channels.table.named(name);
            self.directory.send_message(self.context, (namespace, channel), ticket, message)
        });
        if let Err(refused) = sent {
            self.context.answer_api(ticket, Err(refused));
        }
    }

    /// A room has answered a message.
    pub(in crate::shard) fn room_has_answered(
        &mut self,
        room: RoomKey,
        name: &str,
        id: u64,
        answer: Result<Bytes, Refusal>,
    ) {
        // Not by the name, because the patterns of names may have changed since the room was opened.
        let namespace = self.channels.table.named(name).map(|channel| channel.namespace);
        self.directory.message_answered(self.context, (room, namespace), id, answer);
    }

    /// Sends reservations to the room of a channel.
    pub(super) fn reserve_places(&mut self, name: &str, reservations: Arc<[PlaceReservation]>) -> ApiResult {
        let namespace = self.context.resolve(name)?;
        let room = self.channels.table.named(name).and_then(|channel| channel.room.as_deref());
        let Some(room) = room else {
            let has_rooms = self.context.namespace(namespace).room.is_some();
            return Err(Refused::new(ErrorCode::NotAvailable, if has_rooms { NOT_OPEN } else { NO_ROOMS }));
        };
        send_to_room(room.thread, ToRoom::ReservePlaces { room: room.key, reservations }, &mut self.context.effects);
        Ok(ApiAnswer::Done { sessions: 0 })
    }
}

/// Why a channel has no room to join.
#[derive(Clone, Copy)]
enum NoRoom {
    NotOpened(RoomRefusal),
    Refused(Refused),
}

impl From<Refused> for NoRoom {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

impl From<ErrorCode> for NoRoom {
    fn from(code: ErrorCode) -> Self {
        Self::Refused(code.into())
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
        // Only the clients know the parameters of another one.
        _ if request.is_keeping() => Ok(RoomOverrides { continues: true, ..RoomOverrides::default() }),
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
