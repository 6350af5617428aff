//! Room threads. They tick on time or late, fail at random, and pass messages. The room hosts of the engine make the
//! decisions, as in the server. The players after each tick are compared with those of the model.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use dunlin_engine::{
    Event, ShardIndex,
    api::{ApiAnswer, ApiRequest, ApiResult, HistoryQuery, KickOrder, KickTarget},
    host::{CompletedTick, HostOptions, RoomHost, RoutedMessage, Runner, Step},
    room::{Departure, FromRoom, NotJoined, RoomKey, RoomThreadIndex, SeatKey, ToRoom},
};
use dunlin_protocol::UnsubscribeCode;
use dunlin_rooms::{Grid, PlayerId, Room};

use crate::{
    plan::{Plan, RoomPlan},
    ring::{RoomMessage, RoomRings},
    rooms::{Departures, Game, RoomModel, RoomRecord, SeatModel, event_number, numbered},
    wire::ClientPosition,
};

use super::{NodeWorld, moving_rooms::MovingRoom};

/// Ticks by which a room may be late before it skips ticks.
const LATE_TICKS_MAX: u64 = 3;
/// Maximum number of players of a user that stay while their clients are disconnected.
const AWAY_PER_USER_MAX: u32 = 2;

/// A room on its thread.
pub(super) struct HostedRoom {
    /// The room in the model: the first key that it had.
    pub(super) record: RoomKey,
    pub(super) host: RoomHost,
    pub(super) runner: Runner,
    pub(super) seats: SeatModel,
    /// When the next tick is scheduled, and when it actually runs.
    next_us: u64,
    due_us: u64,
}

/// The room threads of the node.
#[derive(Default)]
pub(super) struct RoomThreads {
    pub(super) rooms: Vec<BTreeMap<RoomKey, HostedRoom>>,
    pub(super) rings: RoomRings,
    /// The rate limiter of each seat: the remaining credit in millionths of an input, and when it was last updated.
    rate_limiters: BTreeMap<SeatKey, (u64, u64)>,
    /// Whether only rooms with queued messages tick.
    pub(super) is_settling: bool,
    pub(super) flaw: Option<SeatFlaw>,
    /// Rooms that this node has opened, without those of other nodes.
    pub(super) opened_here: u64,
}

impl RoomThreads {
    pub(super) fn new(plan: &Plan) -> Self {
        let Some(rooms) = &plan.rooms else { return Self::default() };
        // The relay is behind the threads.
        let threads = rooms.threads + u16::from(rooms.moves);
        Self {
            rooms: (0..threads).map(|_| BTreeMap::new()).collect(),
            rings: RoomRings::all(plan.shards, threads),
            ..Self::default()
        }
    }

    /// Whether no message is in flight.
    pub(super) fn is_at_rest(&self) -> bool {
        self.rings.is_still() && self.hosted().all(|hosted| hosted.host.arrived_len() == 0)
    }

    pub(super) fn hosted(&self) -> impl Iterator<Item = &HostedRoom> {
        self.rooms.iter().flat_map(BTreeMap::values)
    }

    /// When the next room is due.
    pub(super) fn next_us(&self) -> Option<u64> {
        let active = self.hosted().filter(|hosted| !self.is_settling || hosted.host.arrived_len() > 0);
        active.map(|hosted| hosted.due_us).min()
    }
}

impl NodeWorld {
    fn room_plan(&self) -> &RoomPlan {
        self.plan.rooms.as_ref().expect("only nodes with rooms have room messages")
    }

    /// Pushes a message of a shard to its ring.
    pub(super) fn send_to_room(
        &mut self,
        shard: usize,
        thread: RoomThreadIndex,
        message: ToRoom,
    ) -> Result<(), String> {
        self.harness.trace.number(u64::from(thread.0));
        self.other_nodes.check_sent(&message)?;
        if let ToRoom::Close { room, code, .. } = &message {
            self.record_end(*room, *code);
        }
        if let ToRoom::Input { room, seat, data, .. } = &message
            && !self.has_moved(*room)
        {
            self.check_input(*seat, data)?;
        }
        self.threads.rings.send(shard, thread, message)
    }

    /// Whether a room has moved: then it receives what its players have sent meanwhile, at once.
    fn has_moved(&self, room: RoomKey) -> bool {
        let record = self.moving.record_of(room);
        self.model.rooms.lock().records.get(&record).is_some_and(|record| record.moves > 0)
    }

    /// Checks that an input that a shard accepted respects the length limit and the rate limit.
    fn check_input(&mut self, seat: SeatKey, data: &[u8]) -> Result<(), String> {
        let (limits, now_us) = (&self.room_plan().limits, self.harness.now_us);
        let (bytes_max, per_second) = (limits.input_bytes_max, u64::from(limits.inputs_per_second));
        let most_millionths = per_second * 1_000_000;
        let (credit_millionths, since_us) = self.threads.rate_limiters.entry(seat).or_insert((most_millionths, now_us));
        *credit_millionths = most_millionths.min(*credit_millionths + (now_us - *since_us) * per_second);
        *since_us = now_us;
        let left_millionths = credit_millionths.checked_sub(1_000_000).filter(|_| data.len() <= bytes_max);
        *credit_millionths = left_millionths
            .ok_or_else(|| format!("an input of {} bytes exceeds a limit, but is accepted for {seat:?}", data.len()))?;
        Ok(())
    }

    /// Pushes messages of a room thread to its rings.
    pub(super) fn post(&mut self, thread: usize, outgoing: Vec<RoutedMessage>) {
        for (shard, mut message) in outgoing {
            if self.is_relay(thread)
                && let Some(has_changes) = self.moving.arrived_here(&mut message)
            {
                let what =
                    if has_changes { "tick with changes between nodes" } else { "tick of whole states between nodes" };
                self.model.rooms.lock().count(what);
            }
            let names_first = self.moving.names_first(&message);
            if let (Some(SeatFlaw::ForgetsLastInput), FromRoom::Tick { changes, .. }, true) =
                (self.threads.flaw, &mut message, names_first)
            {
                for change in changes {
                    change.ack = change.ack.saturating_sub(1);
                }
            }
            if let (Some(SeatFlaw::EventReachesAll), FromRoom::Event { audience, .. }) =
                (self.threads.flaw, &mut message)
            {
                *audience = None;
            }
            self.harness.trace.number(u64::from(shard.0) << 32);
            self.threads.rings.post(thread, shard, message);
        }
    }

    /// Delivers some messages to and from room threads.
    pub(super) fn deliver_some_room_messages(&mut self) -> Result<(), String> {
        if !self.threads.rooms.is_empty() && self.harness.chance.percent(2) {
            self.report_load();
        }
        for ring in 0..self.threads.rings.len() {
            if self.harness.chance.percent(25) {
                let most = self.harness.chance.between(1, 12);
                self.deliver_room_messages(ring, most)?;
            }
        }
        Ok(())
    }

    /// Reports a random load of a room thread.
    fn report_load(&mut self) {
        let thread = self.harness.chance.below(self.threads.rooms.len());
        let (permille, rooms) = (self.harness.chance.below(1_000) as u16, self.threads.rooms[thread].len() as u32);
        let shards = (0..self.node.shard_count()).map(ShardIndex);
        self.post(thread, shards.map(|shard| (shard, FromRoom::Load { permille, rooms })).collect());
    }

    /// Delivers all messages to and from room threads.
    pub(super) fn deliver_all_room_messages(&mut self) -> Result<(), String> {
        (0..self.threads.rings.len()).try_for_each(|ring| self.deliver_room_messages(ring, u64::MAX))
    }

    fn deliver_room_messages(&mut self, ring: usize, most: u64) -> Result<(), String> {
        for _ in 0..most {
            match self.threads.rings.pop(ring, self.harness.now_us) {
                None => break,
                Some(RoomMessage::To(from, thread, message)) => {
                    self.deliver_to_room(from, thread.0.into(), message)?;
                }
                Some(RoomMessage::From(from, to, message)) => self.deliver_from_room(from, to.0.into(), message)?,
            }
        }
        Ok(())
    }

    fn deliver_to_room(&mut self, from: ShardIndex, thread: usize, message: ToRoom) -> Result<(), String> {
        self.harness.line(|| format!("{from:?} to room thread {thread}: {message:?}"));
        let mut outgoing = Vec::new();
        let message = if self.is_relay(thread) { self.answer_as_relay(message, &mut outgoing) } else { Some(message) };
        let Some(mut message) = message else {
            self.post(thread, outgoing);
            return Ok(());
        };
        if self.is_relay(thread) {
            self.moving.arrived_there(&mut message);
        }
        match message {
            ToRoom::Open { room, channel, ref overrides, .. }
                if overrides.continues && !self.moving.goes_on(&channel, &self.model) =>
            {
                // Its state is gone: the room of before has ended. The joins that wait for it follow.
                self.model.rooms.lock().count("room without state not opened");
                self.threads.opened_here += 1;
                outgoing.push((room.owner, FromRoom::Failed { room, channel, refusal: None }));
            }
            ToRoom::Open { room, channel, .. } | ToRoom::OpenRemote { room, channel, .. } => {
                self.open_room(thread, room, &channel)?;
            }
            ToRoom::Close { room, code, reason } => {
                if let Some(mut hosted) = self.threads.rooms[thread].remove(&room) {
                    hosted.host.end(code, reason.as_ref(), &NotJoined::Gone, &mut outgoing);
                }
            }
            ToRoom::Join { room, ref request } if !self.threads.rooms[thread].contains_key(&room) => {
                let has_params = request.join.is_some();
                let ToRoom::Join { request, .. } = message else { unreachable!("matched above") };
                let outcome = Err(if self.is_relay(thread) { NotJoined::Unavailable } else { self.why_not_joined() });
                if !has_params {
                    return Err(format!("a join request without parameters: {request:?}"));
                }
                outgoing.push((room.owner, FromRoom::Joined { room, request, outcome }));
            }
            message => {
                if let Some(hosted) = self.threads.rooms[thread].get_mut(&message.room()) {
                    match &message {
                        ToRoom::Leave { seat, departure: Departure::Lost, .. } => hosted.seats.lose(*seat),
                        ToRoom::Leave { seat, departure: Departure::Unanswered, .. } => hosted.seats.abandon(*seat),
                        _ => {}
                    }
                    hosted.host.take(message);
                }
            }
        }
        self.post(thread, outgoing);
        Ok(())
    }

    fn open_room(&mut self, thread: usize, room: RoomKey, channel: &Arc<str>) -> Result<(), String> {
        let (tick_us, next_us) = (self.room_plan().tick_us, self.harness.now_us + self.room_plan().tick_us);
        let rooms = self.room_plan();
        let grid = Grid::new(rooms.game_options.shape).map_err(|error| error.to_string())?;
        let is_limited = rooms.limits.frame_bytes_per_second.is_some();
        let mut record = RoomRecord::new(grid.clone(), is_limited, rooms.game_options.near_units);
        record.has_been_elsewhere = self.is_relay(thread);
        let terms = HostOptions {
            shard_count: self.plan.shards,
            node_seed: self.node.seed,
            empty_ticks_max: rooms.empty_ticks_max,
            ticks_per_second: (1_000_000 / tick_us) as u32,
            seat_grace_ticks: SeatFlaw::applied_to(self.threads.flaw, rooms.seat_grace_ticks),
            away_per_user_max: AWAY_PER_USER_MAX,
            call_bytes_max: 1_024,
            is_recorded: true,
        };
        let (options, game_options) = (rooms.options.clone(), rooms.game_options.clone());
        let host = RoomHost::new(room, Arc::clone(channel), grid.clone(), terms);
        let times = (next_us, next_us);
        let seats = SeatModel::new(Departures::Any, rooms.seat_grace_ticks, AWAY_PER_USER_MAX);
        self.threads.opened_here += u64::from(!self.is_relay(thread));
        if let Some(moving) = self.moving.take(channel, room, &self.model) {
            return self.go_on(thread, host, moving, times);
        }
        let mut room_model = self.model.rooms.lock();
        record.ended.extend(room_model.ended_unopened.remove(&room));
        if room_model.records.insert(room, record).is_some() {
            return Err(format!("{room:?} is opened twice"));
        }
        room_model.count("room");
        drop(room_model);
        let game = Game::new(self.model.rooms.clone(), room, game_options);
        let made =
            Room::new(options, self.harness.chance.number(), Box::new(game)).map_err(|error| error.to_string())?;
        let runner = Runner::new(made);
        self.host_room(thread, HostedRoom { record: room, host, runner, seats, next_us, due_us: next_us });
        Ok(())
    }

    fn host_room(&mut self, thread: usize, hosted: HostedRoom) {
        let (room, channel) = (hosted.host.key(), Arc::clone(hosted.host.channel()));
        self.threads.rooms[thread].insert(room, hosted);
        if !self.is_relay(thread) {
            self.post(thread, vec![(room.owner, FromRoom::Made { room, channel })]);
        }
    }

    /// A room that has moved goes on.
    fn go_on(
        &mut self,
        thread: usize,
        mut host: RoomHost,
        moving: MovingRoom,
        (next_us, due_us): (u64, u64),
    ) -> Result<(), String> {
        let MovingRoom { runner, seats, record } = moving;
        let room = host.key();
        host.restored(self.room_plan().seat_grace_ticks);
        let mut room_model = self.model.rooms.lock();
        if let Some(code) = room_model.ended_unopened.remove(&room) {
            room_model.records.get_mut(&record).ok_or("a room without a record")?.ended.push(code);
        }
        // The game does not see that their clients are gone.
        if let Some(record) = room_model.records.get_mut(&record) {
            record.away = record.players.keys().copied().collect();
            record.has_been_elsewhere |= self.is_relay(thread);
        }
        room_model.count(if self.is_relay(thread) { "room goes on there" } else { "room goes on here" });
        drop(room_model);
        self.host_room(thread, HostedRoom { record, host, runner, seats, next_us, due_us });
        Ok(())
    }

    /// Records the end of a room.
    fn record_end(&mut self, room: RoomKey, code: UnsubscribeCode) {
        let room = self.moving.record_of(room);
        let mut room_model = self.model.rooms.lock();
        room_model.count(if code == UnsubscribeCode::ROOM_FAILED { "room failed" } else { "room closed" });
        if let Some(record) = room_model.records.get_mut(&room) {
            record.ended.push(code);
        } else {
            // The message that opens it is still in flight.
            room_model.ended_unopened.insert(room, code);
        }
    }

    /// Ticks each room that is due.
    pub(super) fn tick_due_rooms(&mut self) -> Result<(), String> {
        let (now_us, is_settling) = (self.harness.now_us, self.threads.is_settling);
        let is_due = |hosted: &HostedRoom| hosted.due_us <= now_us && (!is_settling || hosted.host.arrived_len() > 0);
        self.tick_rooms(&is_due)
    }

    /// Ticks the rooms that `is_selected` selects.
    pub(super) fn tick_rooms(&mut self, is_selected: &dyn Fn(&HostedRoom) -> bool) -> Result<(), String> {
        for thread in 0..self.threads.rooms.len() {
            let rooms = self.threads.rooms[thread].iter();
            let selected: Vec<RoomKey> =
                rooms.filter(|(_, hosted)| is_selected(hosted)).map(|(room, _)| *room).collect();
            for room in selected {
                self.tick_room(thread, room)?;
            }
        }
        Ok(())
    }

    fn tick_room(&mut self, thread: usize, room: RoomKey) -> Result<(), String> {
        let tick_us = self.room_plan().tick_us;
        let late_us = if self.harness.chance.percent(5) { self.harness.chance.between(0, 4 * tick_us) } else { 0 };
        let fails = !self.threads.is_settling && self.harness.chance.below(500) == 0;
        let now_us = self.harness.now_us;
        let is_relay = self.is_relay(thread);
        if is_relay && !self.threads.is_settling {
            // More often with something to lose.
            let has_steps = self.threads.rooms[thread].get(&room).is_some_and(|hosted| hosted.host.arrived_len() > 0);
            if self.harness.chance.below(if has_steps { 8 } else { 60 }) == 0 {
                return self.move_room(thread, room);
            }
        }
        let Some(hosted) = self.threads.rooms[thread].get_mut(&room) else { return Ok(()) };
        let record = hosted.record;
        hosted.next_us += tick_us;
        if hosted.next_us + LATE_TICKS_MAX * tick_us < now_us {
            hosted.next_us = now_us;
        }
        hosted.due_us = hosted.next_us + late_us;
        let batch = hosted.host.begin();
        let time_us = self.harness.start_unix_ms * 1_000 + now_us;
        let mut outgoing = Vec::new();
        if fails && !is_relay {
            // The room fails after running the tick, or before it.
            let has_run = self.harness.chance.percent(50);
            if has_run {
                hosted.runner.run(&batch, time_us);
                self.model.rooms.lock().lose_tick(record);
            }
            return self.fail_room(thread, room, has_run);
        }
        let has_kick = batch.steps.iter().any(|step| matches!(step, Step::Kick { .. }));
        self.model.rooms.lock().begin_tick(record, has_kick, keeping(&batch.steps, &hosted.seats));
        let done = hosted.runner.run(&batch, time_us);
        let mut room_model = self.model.rooms.lock();
        room_model.set_kicking(record, false);
        if let Some(failure) = room_model.failure.take() {
            return Err(failure);
        }
        hosted.check_seats(&mut room_model, &batch.steps, &done)?;
        hosted.host.finish(done, &mut outgoing);
        self.harness.trace.number(hosted.runner.room().state_hash());
        if let Some(record) = room_model.records.get_mut(&record) {
            record.times_us.insert(record.tick, time_us);
        }
        drop(room_model);
        self.harness.line(|| format!("room thread {thread} ticks {room:?}: {outgoing:?}"));
        self.post(thread, outgoing);
        Ok(())
    }

    /// Fails a room as a panic does. The room is lost, but its record in the model is kept.
    fn fail_room(&mut self, thread: usize, room: RoomKey, has_run: bool) -> Result<(), String> {
        let Some(mut hosted) = self.threads.rooms[thread].remove(&room) else { return Ok(()) };
        self.harness.line(|| format!("room thread {thread}: {room:?} fails"));
        // A game that has seen a join does not see it again.
        let not_joined = if has_run { NotJoined::Gone } else { self.why_not_joined() };
        let mut outgoing = Vec::new();
        hosted.host.end(UnsubscribeCode::ROOM_FAILED, None, &not_joined, &mut outgoing);
        let channel = Arc::clone(hosted.host.channel());
        outgoing.push((room.owner, FromRoom::Failed { room, channel, refusal: None }));
        self.record_end(room, UnsubscribeCode::ROOM_FAILED);
        self.post(thread, outgoing);
        self.model.rooms.lock().failure.take().map_or(Ok(()), Err)
    }

    fn deliver_from_room(&mut self, from: RoomThreadIndex, to: usize, message: FromRoom) -> Result<(), String> {
        self.harness.line(|| format!("{from:?} to shard {to}: {message:?}"));
        let event = match &message {
            FromRoom::Joined { request, outcome: Ok(_), .. } if !request.is_keeping() => {
                let join = request.join.as_ref().and_then(|join| numbered(&join.data, r#"{"join":"#));
                let (_, at) = self.newest(&request.channel)?;
                let unix_ms = self.harness.unix_ms();
                let mut room_model = self.model.rooms.lock();
                let join = join
                    .and_then(|join| room_model.joins.get_mut(join as usize))
                    .ok_or("a join that no client requested")?;
                (join.answered_at, join.answered_ms) = (Some(at), unix_ms);
                None
            }
            FromRoom::Event { channel, data, .. } => {
                let number =
                    event_number(data.bytes()).ok_or_else(|| format!("an event that no game emitted: {data:?}"))?;
                Some((Arc::clone(channel), number.1))
            }
            _ => None,
        };
        self.handle(to, Event::FromRoom { from, message })?;
        if let Some((channel, number)) = event {
            self.on_event(&channel, number)?;
        }
        Ok(())
    }

    /// Checks that an event got the next position when it reached the owner, unless its room has ended.
    fn on_event(&mut self, channel: &str, number: u64) -> Result<(), String> {
        let (newest, at) = self.newest(channel)?;
        let unix_ms = self.harness.unix_ms();
        let mut room_model = self.model.rooms.lock();
        let room = room_model.events[number as usize].room;
        if newest == Some(number) {
            room_model.count("event");
            return room_model.positioned(channel, &at, number, unix_ms);
        }
        let is_over = !room_model.records[&room].ended.is_empty();
        if is_over { Ok(()) } else { Err(format!("{channel}: event {number} is lost, the newest is {newest:?}")) }
    }

    /// The newest event of a channel, and the top position of the channel.
    fn newest(&mut self, channel: &str) -> Result<(Option<u64>, ClientPosition), String> {
        let query = HistoryQuery { limit: 1, reverse: true, ..HistoryQuery::default() };
        let answer = self.call_api(self.node.owner(channel), ApiRequest::History { channel: channel.into(), query })?;
        let Ok(ApiAnswer::History { publications, epoch, offset, .. }) = answer else {
            return Err(format!("unexpected reply to a history request for {channel}: {answer:?}"));
        };
        let newest = publications.first().filter(|publication| publication.offset == offset);
        let newest = newest.and_then(|publication| event_number(publication.data.bytes()));
        Ok((newest.map(|(_, number)| number), ClientPosition { epoch: epoch.into(), offset }))
    }

    /// Opens or closes a room, or kicks a player.
    pub(super) fn run_room_operator_action(&mut self) -> Result<(), String> {
        let Some(rooms) = &self.plan.rooms else { return Ok(()) };
        let channel = self.harness.chance.pick(&rooms.channels).clone();
        let closes = self.harness.chance.percent(40);
        let owner = self.node.owner(&channel);
        if rooms.seat_grace_ticks > 0 && self.harness.chance.percent(60) {
            return self.kick(owner, &channel);
        }
        if !closes {
            return self.request_open_room(owner, &channel);
        }
        let request = ApiRequest::CloseRoom { channel: channel.as_str().into() };
        let answer: ApiResult = self.call_api(owner, request)?;
        if matches!(answer, Ok(ApiAnswer::Done { .. } | ApiAnswer::NoRoom)) {
            Ok(())
        } else {
            Err(format!("unexpected reply to an operator: {answer:?}"))
        }
    }
}

/// A bug that tests plant in the room threads to verify that the checks find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeatFlaw {
    /// Players leave at once when their connection is lost.
    LeavesAtOnce,
    /// Players leave one tick late.
    StaysLonger,
    /// Players leave one tick early.
    LeavesEarly,
    /// An event for some players of a room reaches all of them.
    EventReachesAll,
    /// A room that has moved does not know the last input that it has applied.
    ForgetsLastInput,
}

impl SeatFlaw {
    /// The grace period, changed by the planted bug.
    pub(super) fn applied_to(flaw: Option<Self>, grace_ticks: u32) -> u32 {
        match flaw {
            _ if grace_ticks == 0 => 0,
            Some(Self::LeavesAtOnce) => 0,
            Some(Self::StaysLonger) => grace_ticks + 1,
            Some(Self::LeavesEarly) if grace_ticks > 1 => grace_ticks - 1,
            _ => grace_ticks,
        }
    }
}

/// For each client, whether its joins are those of a seat that is kept, in order. Of players that the room does not know, the game
/// sees nothing.
fn keeping(steps: &[Step], seats: &SeatModel) -> BTreeMap<String, VecDeque<bool>> {
    let mut keeping = BTreeMap::<_, VecDeque<bool>>::new();
    for step in steps {
        if let Step::Join { info, claim, .. } = step
            && (!claim.is_keeping() || seats.knows(*claim))
        {
            keeping.entry(info.client.to_string()).or_default().push_back(claim.is_keeping());
        }
    }
    keeping
}

impl HostedRoom {
    /// Checks that no player is duplicated, lost or swapped, and that the grace period ends at the exact tick.
    pub(super) fn check_seats(
        &mut self,
        room_model: &mut RoomModel,
        steps: &[Step],
        done: &CompletedTick,
    ) -> Result<(), String> {
        let (room, tick) = (self.record, self.runner.ticks_run());
        let at = |error: String| format!("{room:?} in tick {tick}: {error}");
        self.seats.check(tick, steps, done, self.runner.room()).map_err(at)?;
        self.record_joins(room_model, steps, done).map_err(at)?;
        self.record_kicks(room_model);
        for (what, times) in [
            ("seat: grace period ended", done.expired()),
            ("seat: displaced", done.displaced()),
            ("seat: unknown token", done.tokens_refused().unknown),
            ("seat: token of another user", done.tokens_refused().other_user),
        ] {
            (0..times).for_each(|_| room_model.count(what));
        }
        Ok(())
    }

    /// Records the joins of players who resume. The game only gets and records new players.
    fn record_joins(&self, room_model: &mut RoomModel, steps: &[Step], done: &CompletedTick) -> Result<(), String> {
        let joins = steps.iter().filter_map(|step| match step {
            Step::Join { info, data, claim, .. } => Some((info, data, claim.is_keeping())),
            _ => None,
        });
        let room = self.record;
        for ((info, data, is_keeping), (_, joined)) in joins.zip(done.joins()) {
            if is_keeping {
                room_model.count(if joined.is_some() { "seat: kept" } else { "seat: not kept" });
                continue;
            }
            let Some(entered) = joined else { continue };
            let earlier = room_model.records[&room].events.iter().filter(|event| {
                let emitted = &room_model.events[**event as usize];
                emitted.tick < room_model.records[&room].tick
            });
            let earlier = earlier.count();
            let number = numbered(data, r#"{"join":"#).ok_or("a join without a number")?;
            let join = room_model.joins.get_mut(number as usize).ok_or("a join that no client requested")?;
            (join.is_back, join.events_before) = (entered.is_back, earlier);
            if !entered.is_back {
                continue;
            }
            if join.user != *info.user || join.outcome.is_some() {
                return Err(format!("{entered:?} must not resume by {join:?}"));
            }
            (join.room, join.outcome) = (Some(room), Some(Ok(entered.player)));
            if entered.left_seat.is_some() {
                room_model.taken_over.insert((room, entered.player));
                room_model.count("seat: resumed over a half-open connection");
            }
            room_model.count("seat: resumed");
        }
        Ok(())
    }

    /// Records the kicks of a tick. A player that is kicked at the end of a tick gets none of its events.
    fn record_kicks(&self, room_model: &mut RoomModel) {
        let (kicked, away) = &self.seats.kicked;
        let room = self.record;
        let RoomModel { records, events, .. } = room_model;
        let record = &records[&room];
        for event in record.events.iter().rev() {
            let emitted = &mut events[*event as usize];
            if emitted.tick < record.tick || kicked.is_empty() {
                break;
            }
            emitted.players.retain(|player| !kicked.contains(player));
            if let Some(users) = &mut emitted.users {
                *users = emitted.players.iter().filter_map(|player| record.users.get(player).cloned()).collect();
            }
        }
        room_model.kicked.extend(kicked.iter().map(|player| (room, *player)));
        (0..kicked.len()).for_each(|_| room_model.count("seat: kicked"));
        (0..*away).for_each(|_| room_model.count("seat: kicked while away"));
    }
}

impl NodeWorld {
    /// Kicks a random user or player from a room.
    pub(super) fn kick(&mut self, shard: usize, channel: &str) -> Result<(), String> {
        let target = match self.harness.chance.below(3) {
            0 => KickTarget::User((*self.harness.chance.pick(&["ann", "ben", "cat"])).into()),
            _ => KickTarget::Player(PlayerId(self.harness.chance.between(1, 6) as u32)),
        };
        let order = Arc::new(KickOrder { target, reason: "".into() });
        self.send_room_request(shard, ApiRequest::KickFromRoom { channel: channel.into(), order })
    }
}
