//! Rooms of other nodes, and their moves. The players of this node are in them by its relay, which is the room thread behind the
//! last one. A room that moves is on no node for a while, and goes on exactly where it was: on another node, or on this one.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use dunlin_engine::{
    host::{RoutedMessage, Runner, Step},
    room::{FromRoom, NotJoined, RoomKey, SeatKey, ToRoom},
};
use dunlin_protocol::{Encoding, UnsubscribeCode};
use dunlin_rooms::{Refusal, Schema, SnapshotFormat, TickUpdate};

use crate::{model::Model, rooms::SeatModel};

use super::{NodeWorld, rooms::HostedRoom};

/// The refusal code of messages of the backend to a room of another node.
const ELSEWHERE_CODE: u16 = 421;

/// Rooms between two nodes.
#[derive(Default)]
pub(super) struct MovingRooms {
    rooms: BTreeMap<Arc<str>, MovingRoom>,
    /// Whether other nodes have rooms.
    is_possible: bool,
    /// The rooms of the model that go on under other keys.
    records: BTreeMap<RoomKey, RoomKey>,
    /// Those that have named nobody since.
    silent: BTreeSet<RoomKey>,
    /// What the keyframes of rooms of other nodes say: the schema, and the side of a cell.
    worlds: BTreeMap<RoomKey, (Arc<Schema>, u32)>,
    /// Joins of clients that ask for fields, of which the room does not know it.
    untyped: BTreeSet<SeatKey>,
}

pub(super) struct MovingRoom {
    pub(super) runner: Runner,
    pub(super) seats: SeatModel,
    /// The room in the model.
    pub(super) record: RoomKey,
}

impl MovingRooms {
    pub(super) fn new(is_possible: bool) -> Self {
        Self { is_possible, ..Self::default() }
    }

    /// Whether a room of the model is between two nodes.
    pub(super) fn has(&self, record: RoomKey) -> bool {
        self.rooms.values().any(|moving| moving.record == record)
    }

    /// Whether other nodes may have rooms.
    pub(super) fn is_possible(&self) -> bool {
        self.is_possible
    }

    /// The room of the model that goes on under this key.
    pub(super) fn record_of(&self, room: RoomKey) -> RoomKey {
        self.records.get(&room).copied().unwrap_or(room)
    }

    /// Whether a channel has a room that goes on. It does not if a room of the model was closed when it was on its way.
    pub(super) fn goes_on(&self, channel: &str, model: &Model) -> bool {
        let is_over = |record| model.rooms.lock().records.get(&record).is_some_and(|record| !record.ended.is_empty());
        self.rooms.get(channel).is_some_and(|moving| !is_over(moving.record))
    }

    /// Takes the room of a channel that goes on under another key.
    pub(super) fn take(&mut self, channel: &str, room: RoomKey, model: &Model) -> Option<MovingRoom> {
        let goes_on = self.goes_on(channel, model);
        let moving = self.rooms.remove(channel).filter(|_| goes_on)?;
        self.records.insert(room, moving.record);
        self.silent.insert(room);
        Some(moving)
    }

    /// A message to a room of another node as it arrives there: only a node that sends changes learns that a client receives them.
    pub(super) fn arrived_there(&mut self, message: &mut ToRoom) {
        let ToRoom::Join { room, request } = message else { return };
        let is_asked = request.subscriber.class.encoding() == Encoding::Protobuf && sends_changes(*room);
        if let Some(join) = request.join.as_mut().filter(|join| join.is_typed && !is_asked) {
            join.is_typed = false;
            self.untyped.insert(join.seat);
        }
    }

    /// A message of a room of another node as it arrives here. Returns whether it has changes, if it is a tick.
    pub(super) fn arrived_here(&mut self, message: &mut FromRoom) -> Option<bool> {
        match message {
            FromRoom::Joined { request, .. } => {
                if let Some(join) = &mut request.join {
                    join.is_typed |= self.untyped.remove(&join.seat);
                }
                None
            }
            FromRoom::Keyframe { room, grid, keyframe, .. } => {
                let arrived = TickUpdate::from_bytes(&bytes_of(*room, keyframe)).expect("the room has written it");
                self.worlds.insert(*room, (Arc::clone(arrived.schema()), grid.shape().cell_units));
                *keyframe = Arc::new(arrived);
                None
            }
            FromRoom::Tick { room, update, .. } => {
                let (schema, cell_units) = self.worlds.get(room).expect("a keyframe comes before the ticks");
                let arrived = TickUpdate::from_bytes_in(&bytes_of(*room, update), schema, *cell_units);
                *update = Arc::new(arrived.expect("the room has written it"));
                Some(update.formats().contains(SnapshotFormat::TypedProtobuf))
            }
            _ => None,
        }
    }

    /// Whether this is the first tick of a room since its move that names players.
    pub(super) fn names_first(&mut self, message: &FromRoom) -> bool {
        matches!(message, FromRoom::Tick { room, changes, .. } if !changes.is_empty() && self.silent.remove(room))
    }
}

/// Whether the node of a room sends changes. The others are of an earlier version.
const fn sends_changes(room: RoomKey) -> bool {
    !room.number.is_multiple_of(3)
}

/// An update between nodes.
fn bytes_of(room: RoomKey, update: &TickUpdate) -> Vec<u8> {
    if sends_changes(room) { update.to_bytes_with_changes() } else { update.to_bytes() }
}

impl NodeWorld {
    /// Whether a room thread is the relay.
    pub(super) fn is_relay(&self, thread: usize) -> bool {
        self.plan.rooms.as_ref().is_some_and(|rooms| rooms.moves && thread == usize::from(rooms.threads))
    }

    /// Answers a message that the relay does not pass on. Returns it otherwise.
    pub(super) fn answer_as_relay(&self, message: ToRoom, outgoing: &mut Vec<RoutedMessage>) -> Option<ToRoom> {
        let (room, id) = match &message {
            ToRoom::Message { room, id, .. }
            | ToRoom::ChangeListing { room, id, .. }
            | ToRoom::Kick { room, id, .. } => (*room, *id),
            _ => return Some(message),
        };
        let thread = self.threads.rooms.last()?;
        let channel = Arc::clone(thread.get(&room)?.host.channel());
        let answer = Err(Refusal { code: ELSEWHERE_CODE, message: "elsewhere".into() });
        outgoing.push((room.owner, FromRoom::Answered { room, channel, id, answer }));
        None
    }

    /// The node of a room stops or dies. It may have run a tick that nobody sees.
    pub(super) fn move_room(&mut self, thread: usize, room: RoomKey) -> Result<(), String> {
        let Some(mut hosted) = self.threads.rooms[thread].remove(&room) else { return Ok(()) };
        self.harness.line(|| format!("the node of {room:?} is lost"));
        let (channel, record) = (Arc::clone(hosted.host.channel()), hosted.record);
        let mut outgoing = Vec::new();
        let batch = hosted.host.begin();
        // A game sees a join once.
        let has_join = batch.steps.iter().any(|step| matches!(step, Step::Join { .. }));
        if !has_join && self.harness.chance.percent(50) {
            self.model.rooms.lock().begin_tick(record, false, BTreeMap::new());
            let time_us = self.harness.start_unix_ms * 1_000 + self.harness.now_us;
            let done = hosted.runner.run(&batch, time_us);
            let mut room_model = self.model.rooms.lock();
            if let Some(failure) = room_model.failure.take() {
                return Err(failure);
            }
            hosted.check_seats(&mut room_model, &batch.steps, &done)?;
            room_model.lose_events_of_last_tick(record);
            room_model.count("tick that nobody has seen");
            if batch.steps.iter().any(|step| matches!(step, Step::Input { .. })) {
                room_model.count("input in a tick that nobody has seen");
            }
            drop(room_model);
            // Of what it sends, the relay has answered the joins of sessions that have ended. They are the only ones.
            hosted.host.finish(done, &mut outgoing);
        }
        // The relay answers the joins that the room has not.
        hosted.host.end(UnsubscribeCode::ROOM_FAILED, None, &NotJoined::Unavailable, &mut outgoing);
        outgoing.retain(|(_, message)| matches!(message, FromRoom::Joined { .. }));
        let lost = FromRoom::Failed { room, channel: Arc::clone(&channel), refusal: None };
        outgoing.push((room.owner, lost));
        self.post(thread, outgoing);
        let mut room_model = self.model.rooms.lock();
        let is_over = room_model.records.get_mut(&record).is_none_or(|record| {
            record.moves += 1;
            !record.ended.is_empty()
        });
        room_model.count("room moves");
        drop(room_model);
        if !is_over {
            let HostedRoom { runner, seats, .. } = hosted;
            self.moving.rooms.insert(channel, MovingRoom { runner, seats, record });
        }
        Ok(())
    }
}
