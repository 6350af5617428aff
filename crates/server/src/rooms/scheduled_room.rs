//! One room of a scheduler, except its game.

use std::sync::Arc;

use dunlin_config::{OverrunPolicy, RoomSettings};
use dunlin_engine::{
    ShardIndex,
    backend::ProxyResult,
    host::{CompletedTick, Entered, HostOptions, RoomHost, RoutedMessage, Runner, Step},
    message::SubscriptionRequest,
    room::{Departure, FromRoom, JoinedAs, NotJoined, RoomKey, SeatKey, ToRoom},
};
use dunlin_protocol::UnsubscribeCode;
use dunlin_rooms::{CallId, Grid, Refusal, Room};

use super::{
    FailureReason, RoomReport,
    checkpoints_and_steps::{RoomWriter, ticks_of},
    held_ticks::HeldTicks,
    job::Failure,
    paths::RoomPaths,
    recorder::{RoomRecorder, Tail},
    report::Recent,
    shared::{MemoryShare, Shared},
    survival::RoomEntries,
    tick_schedule::Timing,
};

pub(super) struct ScheduledRoom {
    pub(super) key: RoomKey,
    pub(super) channel: Arc<str>,
    pub(super) namespace: u16,
    pub(super) settings: Arc<RoomSettings>,
    pub(super) timing: Timing,
    pub(super) stage: Stage,
    pub(super) stats: Stats,
    /// The tail of its recording, if there is one.
    pub(super) recording: Option<Arc<Tail>>,
    /// The shards that received messages of its last tick.
    pub(super) reached: Vec<ShardIndex>,
    /// Its entries in the storage, if it is stored.
    pub(super) entries: Option<Arc<RoomEntries>>,
    /// The messages that wait for its log, if it has one.
    pub(super) held: Option<HeldTicks>,
}

/// A room's runner with the state that moves with it.
pub(super) struct Live {
    pub(super) runner: Runner,
    pub(super) recorder: Option<RoomRecorder>,
    pub(super) writer: Option<RoomWriter>,
    /// `None` if its namespace stores no paths.
    pub(super) paths: Option<RoomPaths>,
    pub(super) namespace: u16,
    pub(super) settings: Arc<RoomSettings>,
    /// Its memory as of the last tick. Dropped after all fields that own memory.
    pub(super) share: MemoryShare,
}

/// The stage of a room.
pub(super) enum Stage {
    /// Its game is being created. Stores messages until then.
    Opening { arrived: Vec<ToRoom> },
    /// The room ticks. `live` is `None` during a tick.
    Open { host: Box<RoomHost>, live: Option<Box<Live>> },
}

/// The messages about a room.
#[derive(Default)]
pub(super) struct Stats {
    recent: Recent,
    tick_p50_us: u32,
    tick_p99_us: u32,
    pub(super) objects: u32,
    pub(super) players: u32,
    pub(super) players_away: u32,
    pub(super) spectators: u32,
    pub(super) players_joined: u64,
    pub(super) players_max: u32,
    pub(super) is_locked: bool,
    is_unlisted: bool,
    seed: u64,
    pub(super) metadata: Arc<str>,
    pub(super) params: Arc<str>,
    pub(super) tick: u32,
    pub(super) late: u64,
    pub(super) skipped: u64,
    pub(super) overruns: u64,
    pub(super) overruns_in_a_row: u32,
    pub(super) world_bytes: u64,
    pub(super) memory_bytes: u64,
    /// Duration of the last tick; 0 before the first.
    took_ns: u64,
    /// The runner's count of rejected inputs after the last tick.
    pub(super) undecodable_inputs: u64,
    /// The world's count of limited values after the last tick.
    pub(super) values_limited: u64,
}

impl ScheduledRoom {
    /// Processes a message for this room, except open and close. A join that is answered at once is appended to `outgoing`.
    pub(super) fn take(&mut self, message: ToRoom, outgoing: &mut Vec<RoutedMessage>) {
        match (&mut self.stage, message) {
            (Stage::Open { host, .. }, message) => host.take(message),
            (Stage::Opening { arrived }, ToRoom::Leave { seat, departure: Departure::Unanswered, .. }) => {
                // The world may take long to restore, and the session of the join has ended.
                let is_of_seat = |message: &ToRoom| match message {
                    ToRoom::Join { request, .. } => request.join.as_ref().is_some_and(|join| join.seat == seat),
                    _ => false,
                };
                let join = arrived.iter().position(is_of_seat).map(|place| arrived.remove(place));
                outgoing.extend(join.and_then(|join| refusal(join, NotJoined::Gone)));
            }
            (Stage::Opening { arrived }, message) => arrived.push(message),
        }
    }

    /// Processes the backend's result of a call. Returns whether the room takes it.
    pub(super) fn take_answer(&mut self, call: CallId, result: ProxyResult) -> bool {
        let Stage::Open { host, .. } = &mut self.stage else { return false };
        host.take_answer(call, result);
        true
    }

    /// Begins the shutdown. If the room is stored, its players stay in it without their clients.
    pub(super) fn begin_drain(&mut self) {
        if let (Stage::Open { host, .. }, Some(_)) = (&mut self.stage, &self.entries) {
            host.begin_drain();
        }
    }

    /// Whether its clock runs slower while it is overloaded.
    pub(super) fn may_dilate(&self) -> bool {
        self.settings.overrun != OverrunPolicy::Skip
    }

    /// Counts a tick that took longer than its interval, and such ticks in a row. Returns whether this one did. While the
    /// clock can become slower, the room is not to end, so none is in a row.
    pub(super) fn count_overrun(&mut self, took_ns: u64) -> bool {
        let overran = took_ns > self.timing.interval_ns();
        self.stats.overruns += u64::from(overran);
        let is_in_row = overran && !self.timing.clock.can_slow();
        self.stats.overruns_in_a_row = if is_in_row { self.stats.overruns_in_a_row + 1 } else { 0 };
        overran
    }

    /// The game was created; the room ticks from now on.
    pub(super) fn open(&mut self, live: Box<Live>, grid: Grid, shared: &Shared) {
        let ticks_per_second = self.settings.room.ticks_per_second;
        let narrow = |ticks: u64| u32::try_from(ticks).unwrap_or(u32::MAX);
        let empty_ticks_max = narrow(ticks_of(self.settings.empty_timeout_ms, &self.settings)).max(1);
        let Shared { shard_count, node_seed, .. } = *shared;
        let seat_grace_ticks = narrow(ticks_of(self.settings.seat_grace_ms, &self.settings));
        let call_bytes_max = self.settings.room.call_bytes_max;
        let away_per_user_max = self.settings.away_per_user_max;
        let terms = HostOptions {
            shard_count,
            node_seed,
            empty_ticks_max,
            ticks_per_second,
            seat_grace_ticks,
            away_per_user_max,
            call_bytes_max,
            is_recorded: live.recorder.is_some(),
        };
        // Before the room is listed for the first time.
        self.stats.take_listing(live.runner.room());
        self.recording = live.recorder.as_ref().map(|recorder| Arc::clone(recorder.tail()));
        let mut host = Box::new(RoomHost::new(self.key, Arc::clone(&self.channel), grid, terms));
        if let Some(writer) = &live.writer {
            self.entries = Some(Arc::clone(&writer.entries));
            let held = || HeldTicks::new(Arc::clone(&writer.entries), self.settings.held_ticks_max);
            self.held = writer.is_exact().then(held);
            if shared.is_draining() {
                host.begin_drain();
            }
            if writer.is_restored {
                host.restored(seat_grace_ticks);
            }
        }
        if let Stage::Opening { arrived } = &mut self.stage {
            arrived.drain(..).for_each(|message| host.take(message));
        }
        self.stage = Stage::Open { host, live: Some(live) };
    }

    /// The game will not be created: refuses the waiting joins.
    pub(super) fn refuse_arrived(&mut self, refusal: &Refusal, outgoing: &mut Vec<RoutedMessage>) {
        let Stage::Opening { arrived } = &mut self.stage else { return };
        for message_to_room in arrived.drain(..) {
            let ToRoom::Join { room, request } = message_to_room else { continue };
            let outcome = Err(NotJoined::Refused(refusal.clone()));
            outgoing.push(answer_to_join(room, request, outcome));
        }
    }

    /// Stores the shards that receive messages of a tick.
    pub(super) fn note_reached(&mut self, outgoing: &[RoutedMessage]) {
        self.reached.clear();
        for (shard, _) in outgoing {
            if !self.reached.contains(shard) {
                self.reached.push(*shard);
            }
        }
    }

    /// Ends the room, because it was closed or has `failed`: notifies players and waiting joins. If it continues after a
    /// restart, messages of ticks that are not logged are dropped. Returns the runner, unless a thread is using it.
    pub(super) fn end(
        self,
        (code, reason): (UnsubscribeCode, Option<Arc<str>>),
        failed: Option<FailureReason>,
        outgoing: &mut Vec<RoutedMessage>,
    ) -> Option<Box<Live>> {
        let goes_on = failed.is_some_and(FailureReason::keeps_checkpoint);
        let not_joined = failed.map_or(NotJoined::Gone, FailureReason::not_joined);
        match self.held {
            Some(held) if goes_on => held.discard(&not_joined, outgoing),
            Some(held) => held.release_all(outgoing),
            None => {}
        }
        if let Some(entries) = &self.entries {
            entries.end(!goes_on);
        }
        if let Some(recording) = &self.recording {
            // The thread with the recorder may never return.
            recording.end();
        }
        match self.stage {
            Stage::Opening { arrived } => {
                // The players of the room before would ask for it again and again.
                let is_of_none = |message: &ToRoom| {
                    let ToRoom::Join { request, .. } = message else { return false };
                    failed == Some(FailureReason::NoState) && request.is_keeping()
                };
                let why = |message: &ToRoom| if is_of_none(message) { NotJoined::Gone } else { not_joined.clone() };
                outgoing.extend(arrived.into_iter().filter_map(|message| {
                    let why = why(&message);
                    refusal(message, why)
                }));
                None
            }
            Stage::Open { mut host, live } => {
                host.end(code, reason.as_ref(), &not_joined, outgoing);
                live
            }
        }
    }

    pub(super) fn report(&self, thread: u16) -> RoomReport {
        let stats = &self.stats;
        RoomReport {
            channel: Arc::clone(&self.channel),
            namespace: Arc::clone(&self.settings.namespace),
            thread,
            players: stats.players,
            players_away: stats.players_away,
            spectators: stats.spectators,
            players_joined: stats.players_joined,
            players_max: stats.players_max,
            reservations: match &self.stage {
                Stage::Opening { .. } => Box::default(),
                Stage::Open { host, .. } => host.reservations().collect(),
            },
            is_locked: stats.is_locked,
            is_unlisted: stats.is_unlisted,
            is_made: matches!(self.stage, Stage::Open { .. }),
            key: self.key,
            seed: stats.seed,
            ticks_per_second: self.settings.room.ticks_per_second,
            metadata: Arc::clone(&stats.metadata),
            params: Arc::clone(&stats.params),
            objects: stats.objects,
            tick: stats.tick,
            tick_p50_us: stats.tick_p50_us,
            tick_p99_us: stats.tick_p99_us,
            late: stats.late,
            skipped: stats.skipped,
            overruns: stats.overruns,
            rate: self.timing.clock.rate(),
            world_bytes: stats.world_bytes,
            memory_bytes: stats.memory_bytes,
        }
    }
}

impl Stats {
    /// The figures of a room that has not run a tick.
    pub(super) fn before_first_tick(players_max: usize) -> Self {
        Self { players_max: u32::try_from(players_max).unwrap_or(u32::MAX), ..Self::default() }
    }

    /// Why the room may not continue after a tick.
    pub(super) fn failure(&self, settings: &RoomSettings) -> Option<Failure> {
        let Self { memory_bytes, overruns_in_a_row, .. } = *self;
        let (reason, detail) = if memory_bytes > settings.memory_bytes_max {
            (FailureReason::Memory, format!("it takes {memory_bytes} bytes"))
        } else if overruns_in_a_row >= settings.overrun_ticks_max {
            (FailureReason::Overrun, format!("{overruns_in_a_row} ticks in a row"))
        } else {
            return None;
        };
        Some(Failure { reason, detail })
    }

    /// Updates the figures after a tick of this duration.
    pub(super) fn update(&mut self, live: &Live, took_ns: u64) {
        let room = live.runner.room();
        let narrow = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        self.recent.observe(took_ns);
        self.took_ns = took_ns;
        self.objects = narrow(room.object_count());
        self.tick = room.tick_number();
        self.memory_bytes = live.share.bytes();
        self.world_bytes = live.share.world_bytes();
        self.undecodable_inputs = live.runner.undecodable_inputs();
        self.values_limited = room.world().limited_values();
        if self.tick % LOOK_INTERVAL_TICKS == 1 {
            self.tick_p50_us = self.recent.quantile_us(0.5);
            self.tick_p99_us = self.recent.quantile_us(0.99);
        }
    }

    /// Updates the numbers of players and spectators after a tick that began with these steps.
    pub(super) fn count_players(&mut self, room: &Room, steps: &[Step], done: &CompletedTick) {
        let narrow = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        self.players = narrow(room.player_count().saturating_sub(done.away()));
        self.players_away = narrow(done.away());
        self.spectators = narrow(room.world().spectator_count());
        self.take_listing(room);
        let joining = steps.iter().filter_map(|step| match step {
            Step::Join { is_spectator, .. } => Some(*is_spectator),
            _ => None,
        });
        let is_new = |(is_spectator, (_, entered)): &(bool, (SeatKey, Option<Entered>))| {
            !is_spectator && entered.is_some_and(|entered| !entered.is_back)
        };
        self.players_joined += joining.zip(done.joins()).filter(is_new).count() as u64;
    }

    /// Updates how the room is listed.
    pub(super) fn take_listing(&mut self, room: &Room) {
        let (world, listing) = (room.world(), room.world().listing());
        self.players_max = u32::try_from(world.players_max()).unwrap_or(u32::MAX);
        (self.is_locked, self.is_unlisted, self.seed) = (listing.is_locked, listing.is_unlisted, world.info().seed);
        if self.metadata != listing.metadata {
            self.metadata = (*listing.metadata).into();
        }
        if self.params.is_empty() {
            self.params = (*world.info().params).into();
        }
    }

    /// Expected duration of a tick; the maximum if there was none.
    pub(super) fn expected_ns(&self) -> u64 {
        if self.took_ns == 0 { u64::MAX } else { self.took_ns.max(u64::from(self.tick_p99_us) * 1_000) }
    }
}

/// Ticks between two updates of figures that are expensive to compute.
const LOOK_INTERVAL_TICKS: u32 = 64;

/// The reply to a message for a room that does not exist: a join is refused; other messages need no reply.
pub(super) fn refusal(message: ToRoom, why: NotJoined) -> Option<RoutedMessage> {
    let ToRoom::Join { room, request } = message else { return None };
    Some(answer_to_join(room, request, Err(why)))
}

fn answer_to_join(
    room: RoomKey,
    request: Box<SubscriptionRequest>,
    outcome: Result<JoinedAs, NotJoined>,
) -> RoutedMessage {
    let seat = request.join.as_ref().map(|join| join.seat);
    let to = seat.map_or(room.owner, |seat| room.answers_join_at(seat));
    (to, FromRoom::Joined { room, request, outcome })
}
