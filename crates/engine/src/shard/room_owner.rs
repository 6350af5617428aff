//! The owner's side of a room: it is opened here, and everybody who comes, goes or is told something passes here.

use std::sync::Arc;

use dunlin_protocol::{ErrorCode, Payload, UnsubscribeCode};
use dunlin_rooms::Refusal;

use crate::{
    Effect, Effects, Now,
    api::{Answer, ApiAnswer},
    backend::PublishHow,
    channel::OwnedRoom,
    message::{NotSubscribed, Notice, SubscribeOrder},
    names::NamespaceIndex,
    room::{EventAudience, NotJoined, RoomKey, RoomThreadIndex, SeatKey, ToRoom},
};

use super::{Shard, publication::Draft};

/// What an owner knows of a room thread.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RoomThread {
    /// As it said last.
    load_permille: u16,
    /// Rooms that this shard has opened there since then. Each counts like a thousandth, so that not all rooms that are
    /// opened between two reports go to one thread.
    opened_since: u32,
    /// Rooms that this shard has open there.
    open: u32,
}

/// What joins are answered with that were on the way to a room when it was closed.
const CLOSED_CODE: u16 = 400;

impl Shard {
    /// Asks the channel's room to let a player in; it is opened if it is not. The answer comes by [`Shard::joined`].
    pub(super) fn serve_join(&mut self, mut order: Box<SubscribeOrder>, effects: &mut Effects) {
        match self.room_to_join(&order.channel, effects) {
            Ok(room) => {
                room.joins_on_way += 1;
                let OwnedRoom { key, thread, .. } = *room;
                tell_room(thread, ToRoom::Join { room: key, order }, effects);
            }
            Err(code) => {
                order.recover = None;
                let shard = order.asker.shard;
                self.notify(shard, Notice::Subscribed { order, outcome: Err(code.into()) }, effects);
            }
        }
    }

    fn room_to_join(&mut self, channel: &Arc<str>, effects: &mut Effects) -> Result<&mut OwnedRoom, ErrorCode> {
        let namespace = self.names.resolve(channel)?;
        if self.namespace(namespace).room.is_none() {
            return Err(ErrorCode::NotAvailable);
        }
        let is_open = self.channels.get(channel).is_some_and(|channel| channel.room.is_some());
        if !is_open {
            self.check_room_limit(namespace)?;
            // Before the room, so that none is opened for a channel that there is no place for.
            self.owned(channel, namespace)?;
            let room = self.open_room(channel, namespace, effects);
            self.owned(channel, namespace)?.room = Some(Box::new(room));
        }
        Ok(self.owned(channel, namespace)?.room.as_deref_mut().expect("opened above"))
    }

    /// Whether one more room may be opened. Asked before the channel is remembered, so that a refusal leaves nothing.
    fn check_room_limit(&mut self, namespace: NamespaceIndex) -> Result<(), ErrorCode> {
        if self.room_threads.is_empty() {
            return Err(ErrorCode::NotAvailable);
        }
        // Each shard has an equal part of the node's limit.
        let most = self.options.rooms_max.div_ceil(usize::from(self.identity.count));
        let open: usize = self.room_threads.iter().map(|thread| thread.open as usize).sum();
        if open >= most {
            self.count(namespace).rooms.refused += 1;
            return Err(ErrorCode::LimitExceeded);
        }
        Ok(())
    }

    /// Opens a room on the thread with the least to do.
    fn open_room(&mut self, channel: &Arc<str>, namespace: NamespaceIndex, effects: &mut Effects) -> OwnedRoom {
        let load = |thread: &RoomThread| (u32::from(thread.load_permille) + thread.opened_since, thread.open);
        let threads = (0..).zip(&mut self.room_threads);
        let (index, thread) = threads.min_by_key(|(_, thread)| load(thread)).expect("asked for above");
        thread.opened_since += 1;
        thread.open += 1;
        let thread = RoomThreadIndex(index);
        self.rooms_opened += 1;
        let key = RoomKey { owner: self.identity.index, number: self.rooms_opened };
        self.count(namespace).rooms.opened += 1;
        let open = ToRoom::Open { room: key, channel: Arc::clone(channel), namespace: namespace.0 };
        tell_room(thread, open, effects);
        OwnedRoom { key, thread, joins_on_way: 0, players: 0 }
    }

    /// The room of `channel`, if it is still `key`.
    fn current_room(&mut self, channel: &str, key: RoomKey) -> Option<&mut OwnedRoom> {
        let room = self.channels.get_mut(channel)?.room.as_deref_mut()?;
        (room.key == key).then_some(room)
    }

    /// A room has answered a join.
    pub(super) fn joined(
        &mut self,
        now: Now,
        key: RoomKey,
        order: Box<SubscribeOrder>,
        outcome: Result<(), NotJoined>,
        effects: &mut Effects,
    ) {
        let room = self.current_room(&order.channel, key).map(|room| {
            room.joins_on_way -= 1;
            *room
        });
        let is_closed = room.is_none() && self.closed_room_answers(key);
        let Ok(namespace) = self.names.resolve(&order.channel) else { return };
        let counters = &mut self.count(namespace).rooms;
        let outcome = match (outcome, room) {
            (Err(NotJoined::Refused(refusal)), _) => {
                counters.joins_refused += 1;
                Err(NotSubscribed::Refused(refusal))
            }
            // Of a room that is over, nobody is told that they are in it. SDKs stay away from one that was closed, like
            // those of the players who were there; for one that failed they come again.
            (Err(NotJoined::Gone), _) | (Ok(()), None) => {
                counters.joins_gone += 1;
                let closed = || Refusal { code: CLOSED_CODE, message: "room closed".into() };
                let error = NotSubscribed::Error(ErrorCode::Internal);
                Err(if is_closed { NotSubscribed::Refused(closed()) } else { error })
            }
            (Ok(()), Some(room)) => {
                counters.joins_accepted += 1;
                let subscribed = self.accept_subscription(now, &order).map_err(NotSubscribed::from);
                self.keep_player(room, &order, subscribed.is_ok(), effects);
                subscribed.map(|mut subscribed| {
                    subscribed.room = Some((room.key, room.thread));
                    subscribed
                })
            }
        };
        self.answer_subscription(now, order, outcome, effects);
    }

    /// Whether it is a closed room that answers a join.
    fn closed_room_answers(&mut self, key: RoomKey) -> bool {
        let Some(joins_on_way) = self.closed_rooms.get_mut(&key.number) else { return false };
        *joins_on_way -= 1;
        if *joins_on_way == 0 {
            self.closed_rooms.remove(&key.number);
        }
        true
    }

    /// A player is in its room; it stays if its subscription stands.
    fn keep_player(&mut self, room: OwnedRoom, order: &SubscribeOrder, stays: bool, effects: &mut Effects) {
        if stays {
            if let Some(room) = self.current_room(&order.channel, room.key) {
                room.players += 1;
            }
        } else if let Some(join) = &order.join {
            tell_room(room.thread, ToRoom::Leave { room: room.key, seat: join.seat }, effects);
        }
    }

    /// A player's subscription is over. Nothing is said to a room that is over too.
    pub(super) fn serve_leave(&mut self, channel: &str, key: RoomKey, seat: SeatKey, effects: &mut Effects) {
        if let Some(room) = self.current_room(channel, key) {
            room.players -= 1;
            let thread = room.thread;
            tell_room(thread, ToRoom::Leave { room: key, seat }, effects);
        }
    }

    /// A room has been empty for long. It is closed, unless somebody is there or on the way.
    pub(super) fn room_is_idle(&mut self, key: RoomKey, channel: &Arc<str>, effects: &mut Effects) {
        let Some(room) = self.current_room(channel, key) else { return };
        if room.players == 0 && room.joins_on_way == 0 {
            self.close_room(channel, key, effects);
        }
    }

    fn close_room(&mut self, channel: &Arc<str>, key: RoomKey, effects: &mut Effects) {
        let code = UnsubscribeCode::ROOM_CLOSED;
        if let Some((room, namespace)) = self.forget_owned_room(channel, key, code, effects) {
            self.count(namespace).rooms.closed += 1;
            if room.joins_on_way > 0 {
                self.closed_rooms.insert(key.number, room.joins_on_way);
            }
            tell_room(room.thread, ToRoom::Close { room: key, code }, effects);
        }
    }

    /// A room is no more.
    pub(super) fn room_has_failed(&mut self, key: RoomKey, channel: &Arc<str>, effects: &mut Effects) {
        if let Some((_, namespace)) = self.forget_owned_room(channel, key, UnsubscribeCode::ROOM_FAILED, effects) {
            self.count(namespace).rooms.failed += 1;
        }
    }

    /// Forgets a room. Shards with players of it are told, behind the answers to those: what the room itself tells them may
    /// come before, to sessions that still wait.
    fn forget_owned_room(
        &mut self,
        name: &Arc<str>,
        key: RoomKey,
        code: UnsubscribeCode,
        effects: &mut Effects,
    ) -> Option<(OwnedRoom, NamespaceIndex)> {
        let room = *self.current_room(name, key)?;
        let channel = self.channels.get_mut(name)?;
        channel.room = None;
        let namespace = channel.namespace;
        let shards: Vec<_> = channel.listening_shards(crate::channel::Audience::Publications).collect();
        let is_forgettable = channel.is_forgettable();
        for shard in shards {
            self.notify(shard, Notice::RoomOver { channel: Arc::clone(name), room: key, code }, effects);
        }
        if let Some(thread) = self.room_threads.get_mut(usize::from(room.thread.0)) {
            thread.open = thread.open.saturating_sub(1);
        }
        if is_forgettable {
            self.forget_channel(name);
        }
        Some((room, namespace))
    }

    /// An event of a room: a publication in its channel. One of a room that has been closed is dropped: the channel may
    /// have another one by now, on another thread, and its players are not to hear it.
    pub(super) fn take_event(
        &mut self,
        now: Now,
        key: RoomKey,
        channel: &Arc<str>,
        data: Payload,
        audience: Option<Box<EventAudience>>,
        effects: &mut Effects,
    ) {
        if self.current_room(channel, key).is_none() {
            self.counters.late_messages += 1;
            return;
        }
        let audience = audience.map(|audience| Arc::new(*audience));
        let draft = Draft { data, info: None, how: PublishHow::default(), audience };
        self.take_from_room(now, channel, &draft, effects);
        if let Ok(namespace) = self.names.resolve(channel) {
            self.count(namespace).rooms.events += 1;
        }
    }

    /// A publication of a room in another channel.
    pub(super) fn take_room_publication(&mut self, now: Now, channel: &Arc<str>, data: Payload, effects: &mut Effects) {
        let draft = Draft { data, info: None, how: PublishHow::default(), audience: None };
        self.take_from_room(now, channel, &draft, effects);
    }

    fn take_from_room(&mut self, now: Now, channel: &Arc<str>, draft: &Draft, effects: &mut Effects) {
        if self.accept(now, channel, draft, effects).is_err() {
            self.counters.room_publications_refused += 1;
        }
    }

    /// How busy a room thread is.
    pub(super) fn room_thread_load(&mut self, thread: RoomThreadIndex, permille: u16) {
        if let Some(thread) = self.room_threads.get_mut(usize::from(thread.0)) {
            (thread.load_permille, thread.opened_since) = (permille, 0);
        }
    }

    pub(super) fn open_room_by_api(&mut self, channel: &Arc<str>, effects: &mut Effects) -> Answer {
        let players = self.room_to_join(channel, effects)?.players;
        Ok(ApiAnswer::Done { sessions: players })
    }

    pub(super) fn close_room_by_api(&mut self, channel: &Arc<str>, effects: &mut Effects) -> Answer {
        let namespace = self.names.resolve(channel)?;
        if self.namespace(namespace).room.is_none() {
            return Err(ErrorCode::NotAvailable);
        }
        let room = self.channels.get(channel).and_then(|channel| channel.room.as_deref().copied());
        if let Some(room) = room {
            self.close_room(channel, room.key, effects);
        }
        Ok(ApiAnswer::Done { sessions: room.map_or(0, |room| room.players) })
    }
}

fn tell_room(thread: RoomThreadIndex, message: ToRoom, effects: &mut Effects) {
    effects.list.push(Effect::ToRoom { thread, message });
}
