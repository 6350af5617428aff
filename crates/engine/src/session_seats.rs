//! The players of a shard's sessions: their seats, their rooms, and their frames.
//!
//! A *seat* is one session's subscription to one room. It exists from the request until the owner has answered and the
//! subscription has ended, so that a room's mirror is kept while the room may have players here. Frames are not queued
//! for a seat: a tick only marks it as *due*.

mod bandwidth_limit;
mod carried;
mod input_gate;
mod kept_seat;

use std::{num::NonZeroU32, rc::Rc, sync::Arc};

use bytes::Bytes;
use dunlin_protocol::PUBLICATION_TAILS;
use dunlin_rooms::{
    Allowance, Base, CellIndex, Grid, Mirror, MirrorCounters, SnapshotBody, SnapshotFormat, TickUpdate, ZONES,
};
use hashbrown::HashMap;

use crate::{
    SessionKey, ShardIndex, Wire,
    frame::RoomHead,
    hub::LocalChannelId,
    names::NamespaceIndex,
    pace::UpdatePace,
    room::{Departure, RoomKey, RoomThreadIndex, SeatChange, SeatKey, SeatToken},
    shrink::shrink_map,
};

use carried::Telling;
use kept_seat::{KeptSeat, SentInputs};

pub(crate) use carried::WroteAt;
pub(crate) use input_gate::InputGate;
pub(crate) use kept_seat::NumberedInput;

/// A seat's index on its shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SeatIndex(pub(crate) u32);

/// One session's subscription to a room.
#[derive(Debug)]
pub(crate) struct Seat {
    generation: u32,
    pub(crate) session: SessionKey,
    pub(crate) wire: Wire,
    /// Whether the client reads the fields of states.
    pub(crate) is_typed: bool,
    pub(crate) channel: LocalChannelId,
    /// The room and the thread for its inputs; `None` until the owner has answered.
    pub(crate) room: Option<RoomRoute>,
    /// How its session left, if that was before the owner's answer.
    pub(crate) departure: Option<Departure>,
    /// What brings the seat back to its player.
    pub(crate) token: Option<SeatToken>,
    /// Set while its room is between two nodes.
    kept: Option<Box<KeptSeat>>,
    /// Whether the next snapshot says that the room has moved.
    has_moved: bool,
    /// The room whose ticks have named it.
    named: Option<RoomKey>,
    /// The seat's entry among the seats that receive frames; `None` while it receives none.
    at: Option<SeatedAt>,
    view: CellIndex,
    ack: u32,
    avatar: u32,
    /// The objects that only this player receives, and the tick that they arrived with.
    own: Option<(Bytes, u32)>,
    /// The tick last written to the socket, at least in part.
    base: Base,
    frame: SeatFrame,
    /// The seat's bandwidth allowance; `None` if it was never limited.
    allowance: Option<Allowance>,
    pace: Option<UpdatePace>,
    pub(crate) inputs: InputGate,
}

/// The frame that was last offered to a seat's socket.
#[derive(Debug, Default)]
struct SeatFrame {
    head: RoomHead,
    /// `None` if no frame is offered.
    body: Option<Rc<SnapshotBody>>,
    base_after: Base,
}

/// An index in [`LocalRoom::seated`].
#[derive(Clone, Copy, Debug)]
struct SeatedAt {
    room: u32,
    place: u32,
}

/// A room and the thread that runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RoomRoute {
    pub(crate) key: RoomKey,
    pub(crate) thread: RoomThreadIndex,
}

/// A room with players of this shard.
#[derive(Debug)]
pub(crate) struct LocalRoom {
    key: RoomKey,
    pub(crate) channel: LocalChannelId,
    pub(crate) namespace: NamespaceIndex,
    mirror: Option<Mirror>,
    /// Maximum bytes of frames per second and seat.
    pub(crate) frame_bytes_per_second: Option<NonZeroU32>,
    /// The part of the mirror's counters that has been added to the shard's.
    counted: MirrorCounters,
    seated: Vec<Seated>,
    /// Inputs in flight that the room has not taken.
    pub(crate) inbox_inputs: u32,
    /// These inputs, if the room may go on elsewhere.
    pub(crate) sent: SentInputs,
    /// Present while the room is recorded.
    telling: Option<Box<Telling>>,
}

/// A seat that receives frames. A tick accesses only these fields, so they are stored contiguously.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seated {
    seat: SeatIndex,
    /// The index of the seat's session.
    pub(crate) session: u32,
    /// The first tick that it has to be sent, or a newer one; [`NOT_DUE`] if it has the newest.
    due_from_tick: u32,
    /// The first tick that its pace allows.
    rests_until_tick: u32,
}

/// In place of a tick: no room has so many.
const NOT_DUE: u32 = u32::MAX;

/// What remains to be done when a seat is released.
#[derive(Debug)]
pub(crate) struct GivenBack {
    pub(crate) session: SessionKey,
    pub(crate) channel: LocalChannelId,
    pub(crate) was_due: bool,
    /// Rooms that have no more players here, for their counters.
    pub(crate) rooms: Vec<LocalRoom>,
}

/// The rooms of a channel, while it has seats here.
#[derive(Debug, Default)]
struct ChannelSeats {
    seats: u32,
    /// Inputs of seats that are kept.
    kept_inputs: u32,
    rooms: Vec<u32>,
    /// The number of the newest room that was lost. Its keyframe may still come, by another ring.
    lost: Option<u64>,
}

/// All seats and rooms of a shard.
#[derive(Debug, Default)]
pub(crate) struct Seats {
    seats: Vec<Option<Box<Seat>>>,
    generations: Vec<u32>,
    free: Vec<SeatIndex>,
    rooms: Vec<Option<LocalRoom>>,
    free_rooms: Vec<u32>,
    rooms_by_key: HashMap<RoomKey, u32, foldhash::quality::FixedState>,
    channels: HashMap<LocalChannelId, ChannelSeats, foldhash::quality::FixedState>,
    seat_count: usize,
    /// A buffer for players' headers, reused.
    scratch: Vec<u8>,
}

/// What was written of a seat's frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameWritten {
    pub(crate) frame_bytes: usize,
    /// Ticks since the frame written before; `None` for the first.
    pub(crate) base_age_ticks: Option<u32>,
    pub(crate) namespace: NamespaceIndex,
    /// The zones of its view that were due and were left out.
    pub(crate) is_postponed: [bool; ZONES],
    /// For a limited seat, the age of the oldest zone of its view before this frame, without the ticks that its pace has left
    /// out.
    pub(crate) view_age_us: Option<u64>,
    /// Ticks before this one that the seat's pace has left out.
    pub(crate) paced_ticks: u32,
}

impl Seats {
    /// A seat for a session that asks to join the room of `channel`.
    pub(crate) fn take(
        &mut self,
        shard: ShardIndex,
        session: SessionKey,
        (wire, is_typed): (Wire, bool),
        channel: LocalChannelId,
    ) -> (SeatIndex, SeatKey) {
        let index = self.free.pop().unwrap_or_else(|| {
            self.seats.push(None);
            self.generations.push(0);
            SeatIndex((self.seats.len() - 1) as u32)
        });
        let generation = &mut self.generations[index.0 as usize];
        *generation = generation.wrapping_add(1);
        self.seats[index.0 as usize] = Some(Box::new(Seat::new(*generation, session, (wire, is_typed), channel)));
        self.channels.entry(channel).or_default().seats += 1;
        self.seat_count += 1;
        (index, SeatKey { shard, index: index.0, generation: *generation })
    }

    /// Releases a seat. With the last one of a channel, its rooms are dropped.
    pub(crate) fn give_back(&mut self, index: SeatIndex) -> GivenBack {
        let was_due = self.remove_seated(index);
        self.release_inputs(index);
        let seat = self.seats[index.0 as usize].take().expect("a seat is given back once");
        let Seat { session, channel, .. } = *seat;
        self.free.push(index);
        self.seat_count -= 1;
        let of_channel = self.channels.get_mut(&channel).expect("a channel with a seat is known");
        of_channel.seats -= 1;
        let mut rooms = Vec::new();
        if of_channel.seats == 0 {
            let places = self.channels.remove(&channel).map_or_else(Vec::new, |of_channel| of_channel.rooms);
            rooms.extend(places.into_iter().filter_map(|place| self.take_out(place)));
        }
        GivenBack { session, channel, was_due, rooms }
    }

    /// The seat, which must exist.
    pub(crate) fn at(&self, index: SeatIndex) -> &Seat {
        self.seats[index.0 as usize].as_deref().expect("a seat is given back when nobody refers to it")
    }

    /// The seat, which must exist.
    pub(crate) fn at_mut(&mut self, index: SeatIndex) -> &mut Seat {
        self.seats[index.0 as usize].as_deref_mut().expect("a seat is given back when nobody refers to it")
    }

    /// The seat that `key` names, unless it has been released.
    pub(crate) fn find(&self, key: SeatKey) -> Option<SeatIndex> {
        let seat = self.seats.get(key.index as usize)?.as_ref()?;
        (seat.generation == key.generation).then_some(SeatIndex(key.index))
    }

    /// The node-wide key of a seat.
    pub(crate) fn key(&self, shard: ShardIndex, index: SeatIndex) -> SeatKey {
        SeatKey { shard, index: index.0, generation: self.at(index).generation }
    }

    /// The number of seats and of rooms.
    pub(crate) fn holdings(&self) -> [usize; 2] {
        [self.seat_count, self.rooms_by_key.len()]
    }

    /// The room's index here, if the shard has the room.
    pub(crate) fn room_place(&self, key: RoomKey) -> Option<u32> {
        self.rooms_by_key.get(&key).copied()
    }

    /// The room, which must exist.
    pub(crate) fn room_mut(&mut self, place: u32) -> &mut LocalRoom {
        self.rooms[place as usize].as_mut().expect("a room's place is forgotten with the room")
    }

    /// Adds a room, unless it exists; `None` if it is lost, or no session of this shard has a seat in its channel.
    pub(crate) fn find_or_insert_room(
        &mut self,
        key: RoomKey,
        channel: LocalChannelId,
        namespace: NamespaceIndex,
    ) -> Option<u32> {
        if let Some(place) = self.room_place(key) {
            return Some(place);
        }
        // The owner of a channel counts its rooms.
        let of_channel = self.channels.get_mut(&channel).filter(|known| known.lost < Some(key.number))?;
        let place = self.free_rooms.pop().unwrap_or_else(|| {
            self.rooms.push(None);
            (self.rooms.len() - 1) as u32
        });
        of_channel.rooms.push(place);
        self.rooms[place as usize] = Some(LocalRoom::new(key, channel, namespace));
        self.rooms_by_key.insert(key, place);
        Some(place)
    }

    /// A room that is over may come back with the answer to a join, and its owner then reports its end. Nobody reports the
    /// end of one that was lost.
    pub(crate) fn lose_room(
        &mut self,
        channel: LocalChannelId,
        key: RoomKey,
        undo: impl FnMut(u32),
    ) -> Option<LocalRoom> {
        if let Some(of_channel) = self.channels.get_mut(&channel) {
            of_channel.lost = of_channel.lost.max(Some(key.number));
        }
        self.forget_room(key, undo)
    }

    /// Removes a room, whose seats receive no more frames. Returns it, for its counters, and calls `undo` for each seat
    /// that was due.
    pub(crate) fn forget_room(&mut self, key: RoomKey, mut undo: impl FnMut(u32)) -> Option<LocalRoom> {
        let place = self.room_place(key)?;
        for seated in std::mem::take(&mut self.room_mut(place).seated) {
            self.at_mut(seated.seat).leave_frames();
            if seated.is_due() {
                undo(seated.session);
            }
        }
        let room = self.take_out(place)?;
        if let Some(of_channel) = self.channels.get_mut(&room.channel) {
            of_channel.rooms.retain(|known| *known != place);
        }
        Some(room)
    }

    /// The owner has accepted the seat's join, so the seat receives frames from now on. Returns whether it is due.
    pub(crate) fn join_room(&mut self, index: SeatIndex, route: RoomRoute) -> bool {
        self.at_mut(index).room = Some(route);
        self.begin_frames(index)
    }

    /// Applies a player's changes. Returns the seat if it starts to receive frames.
    pub(crate) fn change(&mut self, room: RoomKey, tick: u32, change: SeatChange) -> Option<SeatIndex> {
        let index = self.find(change.seat)?;
        let seat = self.at_mut(index);
        (seat.view, seat.ack, seat.avatar) = (change.view, change.ack, change.avatar);
        if let Some(own) = change.own {
            seat.own = Some((own, tick));
        }
        seat.named = Some(room);
        self.begin_frames(index).then_some(index)
    }

    fn begin_frames(&mut self, index: SeatIndex) -> bool {
        let seat = self.at(index);
        let Some(route) = seat.room else { return false };
        if seat.at.is_some() || seat.named != Some(route.key) {
            return false;
        }
        let Some(room_place) = self.room_place(route.key) else { return false };
        let session = seat.session.index;
        let room = self.room_mut(room_place);
        if room.mirror.is_none() {
            return false;
        }
        room.seated.push(Seated { seat: index, session, due_from_tick: NOT_DUE, rests_until_tick: 0 });
        let place = (room.seated.len() - 1) as u32;
        self.at_mut(index).at = Some(SeatedAt { room: room_place, place });
        true
    }

    /// Removes a seat from its room's list; returns whether it was due.
    fn remove_seated(&mut self, index: SeatIndex) -> bool {
        let Some(at) = self.at_mut(index).leave_frames() else { return false };
        let seated = &mut self.room_mut(at.room).seated;
        let was_due = seated.swap_remove(at.place as usize).is_due();
        if seated.len() * 4 < seated.capacity() {
            seated.shrink_to(seated.len() * 2);
        }
        if let Some(moved) = seated.get(at.place as usize).copied() {
            self.at_mut(moved.seat).at = Some(at);
        }
        was_due
    }

    fn take_out(&mut self, place: u32) -> Option<LocalRoom> {
        let room = self.rooms[place as usize].take()?;
        self.rooms_by_key.remove(&room.key);
        shrink_map(&mut self.rooms_by_key);
        self.free_rooms.push(place);
        Some(room)
    }

    /// Calls `mark` for each seat in the room that becomes due. This is the cost of a tick per player.
    pub(crate) fn mark_all_due(&mut self, place: u32, mut mark: impl FnMut(u32)) {
        let room = self.room_mut(place);
        let tick = room.tick();
        for seated in room.seated.iter_mut().filter(|seated| seated.rests_until_tick <= tick) {
            if seated.becomes_due(tick) {
                mark(seated.session);
            }
        }
    }

    /// Marks a seat that starts to receive frames as due; returns the index of its session, unless it was due.
    pub(crate) fn mark_due(&mut self, index: SeatIndex) -> Option<u32> {
        let SeatedAt { room, place } = self.at(index).at?;
        let room = self.room_mut(room);
        let tick = room.tick();
        let seated = &mut room.seated[place as usize];
        seated.becomes_due(tick).then_some(seated.session)
    }

    /// Assembles the frame of a seat, if it is due. Returns its bytes.
    pub(crate) fn offer<'h>(
        &mut self,
        index: SeatIndex,
        channel: impl FnOnce(LocalChannelId) -> &'h str,
    ) -> Option<usize> {
        let Self { seats, rooms, scratch, .. } = self;
        let seat = seats[index.0 as usize].as_deref_mut().expect("a session's seats are taken");
        let SeatedAt { room, place } = seat.at?;
        let room = rooms[room as usize].as_mut().expect("a room's place is forgotten with the room");
        if !room.seated[place as usize].is_due() {
            return None;
        }
        let mirror = room.mirror.as_mut().expect("nobody is seated in a room that is not mirrored");
        Some(seat.offer(mirror, room.frame_bytes_per_second, channel(seat.channel), scratch))
    }

    /// The two slices of a seat's offered frame.
    pub(crate) fn slices(&self, index: SeatIndex) -> [&[u8]; 2] {
        self.at(index).frame.slices()
    }

    /// The kernel has accepted the first bytes of a seat's offered frame: the rest follows before anything else. `wrote_at` is
    /// called if the room is recorded.
    pub(crate) fn begun(&mut self, index: SeatIndex, wrote_at: impl FnOnce() -> WroteAt) -> FrameWritten {
        let seat = self.at_mut(index);
        let frame_bytes = seat.frame.slices().iter().map(|slice| slice.len()).sum();
        let after = seat.frame.base_after;
        let had_tick = seat.base.tick;
        let base_age_ticks = (had_tick > 0).then(|| after.tick.saturating_sub(had_tick));
        seat.base = after;
        seat.has_moved = false;
        let body = seat.frame.body.as_ref();
        let is_postponed = body.map_or_else(Default::default, |body| body.is_postponed);
        let allowance = seat.allowance.as_mut();
        let view_age_ticks = allowance.zip(body).and_then(|(allowance, body)| allowance.written(frame_bytes, body));
        let pace = seat.pace;
        let SeatedAt { room, place } = seat.at.expect("only who gets frames is offered one");
        let room = self.room_mut(room);
        let interval_ticks = pace.map_or(1, |pace| pace.interval_ticks(room.ticks_per_second()));
        let seated = &mut room.seated[place as usize];
        let before = *seated;
        (seated.due_from_tick, seated.rests_until_tick) = (NOT_DUE, after.tick.saturating_add(interval_ticks));
        let paced_ticks = interval_ticks - 1;
        // What the subscriber chose is no age: without the ticks that its pace has left out since the last frame.
        let left_out_ticks = paced_ticks.min(base_age_ticks.unwrap_or_default().saturating_sub(1));
        let view_age_us =
            view_age_ticks.map(|ticks| ticks_us(ticks.saturating_sub(left_out_ticks), room.ticks_per_second()));
        let namespace = room.namespace;
        if room.is_told() {
            self.tell_of_frame(before, had_tick, wrote_at());
        }
        FrameWritten { frame_bytes, base_age_ticks, namespace, is_postponed, view_age_us, paced_ticks }
    }

    /// Sets the pace of a seat. It counts from the last snapshot, or from now if that was of another world: the ticks of this
    /// one may be lower.
    pub(crate) fn set_pace(&mut self, index: SeatIndex, pace: Option<UpdatePace>) {
        let seat = self.at_mut(index);
        seat.pace = pace;
        let Some((SeatedAt { room, place }, base_tick)) = seat.at.map(|at| (at, seat.base.tick)) else { return };
        let room = self.room_mut(room);
        let interval_ticks = pace.map_or(1, |pace| pace.interval_ticks(room.ticks_per_second()));
        let from_tick = base_tick.min(room.tick());
        room.seated[place as usize].rests_until_tick = from_tick.saturating_add(interval_ticks);
    }

    /// Takes the offered frame, so that none is offered any more.
    pub(crate) fn take_offer(&mut self, index: SeatIndex) -> Option<(&RoomHead, Rc<SnapshotBody>)> {
        let frame = &mut self.at_mut(index).frame;
        frame.body.take().map(|body| (&frame.head, body))
    }
}

impl Seated {
    fn is_due(&self) -> bool {
        self.due_from_tick != NOT_DUE
    }

    /// Returns whether it was not due before.
    fn becomes_due(&mut self, tick: u32) -> bool {
        let becomes_due = !self.is_due();
        if becomes_due {
            self.due_from_tick = tick;
        }
        becomes_due
    }
}

impl LocalRoom {
    fn new(key: RoomKey, channel: LocalChannelId, namespace: NamespaceIndex) -> Self {
        Self {
            key,
            channel,
            namespace,
            mirror: None,
            frame_bytes_per_second: None,
            counted: MirrorCounters::default(),
            seated: Vec::new(),
            inbox_inputs: 0,
            sent: SentInputs::default(),
            telling: None,
        }
    }

    /// The room has taken inputs of this shard.
    pub(crate) fn inputs_taken(&mut self, count: u32) {
        self.inbox_inputs = self.inbox_inputs.saturating_sub(count);
        self.sent.taken(count);
    }

    /// Replaces the whole world.
    pub(crate) fn show(&mut self, grid: Grid, ticks_per_second: u32, keyframe: Arc<TickUpdate>) {
        // The ticks of another world may be lower.
        self.seated.iter_mut().for_each(|seated| seated.rests_until_tick = 0);
        match &mut self.mirror {
            Some(mirror) => mirror.apply(keyframe),
            None => self.mirror = Some(Mirror::new(grid, ticks_per_second, keyframe, PUBLICATION_TAILS)),
        }
    }

    /// Applies a tick; returns whether the room is mirrored here.
    pub(crate) fn advance(&mut self, update: Arc<TickUpdate>) -> bool {
        let Some(mirror) = &mut self.mirror else { return false };
        mirror.apply(update);
        true
    }

    /// The newest tick.
    fn tick(&self) -> u32 {
        self.mirror.as_ref().map_or(0, Mirror::tick)
    }

    /// At the current rate of its clock. 0 for a room that is not mirrored here, which has no seats that receive frames.
    fn ticks_per_second(&self) -> u32 {
        self.mirror.as_ref().map_or(0, Mirror::ticks_per_real_second)
    }

    /// The mirror's counts since the last call.
    pub(crate) fn newly_counted(&mut self) -> MirrorCounters {
        let Some(mirror) = &self.mirror else { return MirrorCounters::default() };
        let (now, before) = (mirror.counters(), self.counted);
        self.counted = now;
        MirrorCounters {
            assemblies: now.assemblies - before.assemblies,
            assemblies_full: now.assemblies_full - before.assemblies_full,
            assemblies_catch_up: now.assemblies_catch_up - before.assemblies_catch_up,
            bodies: now.bodies - before.bodies,
            assembled_bytes: now.assembled_bytes - before.assembled_bytes,
            weighed_cells: now.weighed_cells - before.weighed_cells,
        }
    }
}

impl Seat {
    fn new(generation: u32, session: SessionKey, (wire, is_typed): (Wire, bool), channel: LocalChannelId) -> Self {
        Self {
            generation,
            session,
            wire,
            is_typed,
            channel,
            room: None,
            departure: None,
            token: None,
            kept: None,
            has_moved: false,
            named: None,
            at: None,
            view: CellIndex::default(),
            ack: 0,
            avatar: 0,
            own: None,
            base: Base::default(),
            frame: SeatFrame::default(),
            allowance: None,
            pace: None,
            inputs: InputGate { last_number: 0, credit_millionths: u64::MAX, refilled_us: 0 },
        }
    }

    /// Stops its frames; returns its former entry in the room's list.
    fn leave_frames(&mut self) -> Option<SeatedAt> {
        (self.named, self.frame.body) = (None, None);
        self.at.take()
    }

    fn offer(&mut self, mirror: &mut Mirror, limit: Option<NonZeroU32>, channel: &str, scratch: &mut Vec<u8>) -> usize {
        let zones = self.allowance.as_ref().and_then(|allowance| allowance.zones(limit, self.view, mirror));
        let encoding = self.wire.encoding();
        let format = if self.is_typed { SnapshotFormat::typed(encoding) } else { encoding.into() };
        let body = mirror.body_of_zones(format, self.view, self.base, zones);
        // A client that receives a full state drops its own objects as well.
        let is_newer = |came: u32| body.base_tick == 0 || came > self.base.tick;
        let own = self.own.as_ref().filter(|(_, came)| is_newer(*came)).map(|(own, _)| &**own);
        scratch.clear();
        dunlin_rooms::wire::write_player_header(encoding, self.ack, self.avatar, own, scratch);
        // Once: what follows builds on the first frame that is written.
        if self.is_typed && self.base == Base::default() {
            dunlin_rooms::wire::write_schema(encoding, mirror.schema(), scratch);
        }
        if self.has_moved {
            dunlin_rooms::wire::write_moved(encoding, scratch);
        }
        let SeatFrame { head, base_after, .. } = &mut self.frame;
        head.write(encoding, channel, scratch, body.bytes.len(), body.data_bytes);
        *base_after = Base { tick: body.tick, view: self.view };
        self.frame.body = Some(body);
        self.frame.slices().iter().map(|slice| slice.len()).sum()
    }
}

fn ticks_us(ticks: u32, per_second: u32) -> u64 {
    u64::from(ticks) * 1_000_000 / u64::from(per_second.max(1))
}

impl SeatFrame {
    fn slices(&self) -> [&[u8]; 2] {
        match &self.body {
            Some(body) => [self.head.bytes(), &body.bytes],
            None => [&[], &[]],
        }
    }
}
