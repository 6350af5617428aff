//! The rooms of one thread with their schedule and their rings. No game code runs while its lock is held, so the lock
//! is held only briefly, and a thread that is stuck in a game can be replaced.

mod calls;
mod outgoing;

use std::{
    collections::{HashMap, VecDeque},
    ops::Bound,
    sync::{
        Arc,
        mpsc::{Receiver, Sender},
    },
};

use dunlin_engine::{
    ShardIndex,
    host::{CompletedTick, RoutedMessage, Step},
    room::{FromRoom, NotJoined, RoomKey, ToRoom},
};
use dunlin_protocol::UnsubscribeCode;
use dunlin_rooms::{Grid, RoomOverrides, TickTime};
use tokio::sync::mpsc;

use outgoing::Load;

use super::{
    FailureReason, RoomCounters, RoomReport,
    builder::{BuildRequest, Made, Task},
    calls::CallLink,
    first_rooms::first_rooms,
    held_ticks::{HeldTick, HeldTicks},
    job::{Failure, Finished, Job},
    links::ShardLinks,
    scheduled_room::{Live, ScheduledRoom, Stage, Stats, refusal},
    shared::Shared,
    tick_schedule::Schedule,
};

/// The rooms of one thread.
pub(super) struct Scheduler {
    /// The generation of the current thread; abandoned threads have lower ones.
    pub(super) generation: u32,
    pub(super) links: ShardLinks,
    pub(super) counters: RoomCounters,
    /// Failures that are not logged yet.
    pub(super) failures: VecDeque<RoomFailure>,
    pub(super) load: Load,
    /// When shards were last woken for new messages.
    pub(super) announced_ns: u64,
    /// Held by everything that must end in order; the thread drops it at its end.
    pub(super) alive: Option<mpsc::Sender<()>>,
    thread: u16,
    places: Vec<Option<ScheduledRoom>>,
    free: Vec<usize>,
    by_key: HashMap<RoomKey, usize>,
    schedule: Schedule,
    /// The current job.
    running: Option<Running>,
    /// Calls of games to the backend.
    calls: CallLink,
    /// Tasks for the builder.
    tasks: Sender<Task>,
    /// Results of the builder.
    made: Receiver<Made>,
    /// Number of rooms whose game is being created.
    opening: u32,
    /// Number of rooms whose clock runs slower while they are overloaded.
    dilating: u32,
    /// Rooms that will not be created. Waiting joins must be refused first.
    refused: Vec<(usize, RoomKey, Failure)>,
    /// Rooms with messages that wait for their log.
    holding: Vec<(usize, RoomKey)>,
    /// A buffer; reused to keep its capacity.
    messages: Vec<RoutedMessage>,
}

/// A job in progress.
struct Running {
    place: usize,
    namespace: u16,
    /// Since when the thread is busy, with messages first.
    busy_since_ns: u64,
    /// When the tick began.
    began_ns: u64,
}

/// A room failed.
#[derive(Debug)]
pub(super) struct RoomFailure {
    pub(super) channel: Arc<str>,
    pub(super) simulation: String,
    pub(super) reason: FailureReason,
    pub(super) detail: String,
}

/// Maximum number of failures that wait to be logged; more are only counted.
const FAILURES_MAX: usize = 64;

/// Maximum number of messages read from one ring at a time.
const MESSAGES_PER_LOOK: usize = 4_096;

impl Scheduler {
    pub(super) fn new(
        thread: u16,
        links: ShardLinks,
        calls: CallLink,
        (tasks, made): (Sender<Task>, Receiver<Made>),
        alive: mpsc::Sender<()>,
    ) -> Self {
        Self {
            generation: 0,
            links,
            counters: RoomCounters::default(),
            failures: VecDeque::new(),
            load: Load::default(),
            announced_ns: 0,
            alive: Some(alive),
            thread,
            places: Vec::new(),
            free: Vec::new(),
            by_key: HashMap::new(),
            schedule: Schedule::default(),
            running: None,
            calls,
            tasks,
            made,
            opening: 0,
            dilating: 0,
            refused: Vec::new(),
            holding: Vec::new(),
            messages: Vec::new(),
        }
    }

    /// The number of rooms.
    pub(super) fn room_count(&self) -> u32 {
        u32::try_from(self.by_key.len()).unwrap_or(u32::MAX)
    }

    /// The number of rooms whose game is being created.
    pub(super) fn opening_count(&self) -> u32 {
        self.opening
    }

    /// The numbers of players and of spectators in all rooms.
    pub(super) fn audience(&self) -> (u64, u64) {
        let stats = || self.places.iter().flatten().map(|scheduled_room| &scheduled_room.stats);
        (stats().map(|stats| u64::from(stats.players)).sum(), stats().map(|stats| u64::from(stats.spectators)).sum())
    }

    /// When the next room is due.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.schedule.next_ns()
    }

    /// Wakes the shards with new messages.
    pub(super) fn announce(&mut self, now_ns: u64) {
        self.announced_ns = now_ns;
        self.links.announce();
    }

    /// Reads messages from shards.
    pub(super) fn take_messages(&mut self, shared: &Shared, now_ns: u64) {
        // The relay follows the last shard.
        for shard in 0..=self.links.shard_count() {
            for _ in 0..MESSAGES_PER_LOOK {
                let Some(message) = self.links.next(shard) else { break };
                self.take(message, shared, now_ns);
            }
        }
        for (place, key, failure) in std::mem::take(&mut self.refused) {
            self.refuse(place, key, failure);
        }
    }

    /// Processes results of the builder. Returns whether there were any.
    pub(super) fn take_made(&mut self, shared: &Shared, now_ns: u64) -> bool {
        let mut is_any = false;
        while let Ok(Made { place, key, outcome }) = self.made.try_recv() {
            is_any = true;
            match outcome {
                Ok(opened) => self.begin(place, key, opened, shared, now_ns),
                Err(failure) => self.refuse(place, key, failure),
            }
        }
        is_any
    }

    /// A room was created and ticks from now on.
    fn begin(&mut self, place: usize, key: RoomKey, (live, grid): (Box<Live>, Grid), shared: &Shared, now_ns: u64) {
        let Some(scheduled_room) = self.places[place].as_mut().filter(|scheduled_room| scheduled_room.key == key)
        else {
            // The room was closed in the meantime.
            if let Some(writer) = &live.writer {
                writer.entries.end(true);
            }
            return self.discard(live);
        };
        scheduled_room.open(live, grid, shared);
        scheduled_room.timing.skip_behind(now_ns, 0);
        scheduled_room.timing.advance(now_ns);
        self.schedule.insert(place, &scheduled_room.timing);
        self.opening -= 1;
        let made = FromRoom::Made { room: key, channel: Arc::clone(&scheduled_room.channel) };
        self.links.send(key.owner, made);
    }

    /// A room could not be created.
    fn refuse(&mut self, place: usize, key: RoomKey, failure: Failure) {
        let Some(scheduled_room) = self.places[place].as_mut().filter(|scheduled_room| scheduled_room.key == key)
        else {
            return;
        };
        if let Some(refusal) = failure.reason.refusal(&failure.detail) {
            scheduled_room.refuse_arrived(&refusal, &mut self.messages);
        }
        self.fail(place, failure);
    }

    /// Passes a room that has ended to the builder, which drops it.
    fn discard(&self, mut live: Box<Live>) {
        // The builder may end before it looks at this task.
        live.paths = None;
        let (namespace, settings) = (live.namespace, Arc::clone(&live.settings));
        // If the builder has ended, the node is about to end.
        let _ = self.tasks.send(Task::Discard { namespace, settings, live });
    }

    fn take(&mut self, message: ToRoom, shared: &Shared, now_ns: u64) {
        match message {
            ToRoom::Open { room, channel, namespace, overrides } => {
                self.open((room, channel, namespace), overrides, shared, now_ns);
            }
            ToRoom::Close { room, code, reason } => self.close(room, code, reason),
            ToRoom::OpenRemote { .. } => unreachable!("only the relay receives it"),
            message => {
                match self.by_key.get(&message.room()).and_then(|&place| self.places[place].as_mut()) {
                    Some(scheduled_room) => {
                        if shared.is_draining() {
                            scheduled_room.begin_drain();
                        }
                        scheduled_room.take(message, &mut self.messages);
                    }
                    None => self.messages.extend(refusal(message, NotJoined::Unavailable)),
                }
                self.send_messages();
            }
        }
    }

    fn open(
        &mut self,
        (key, channel, namespace): (RoomKey, Arc<str>, u16),
        overrides: Arc<RoomOverrides>,
        shared: &Shared,
        now_ns: u64,
    ) {
        let settings = shared.options.namespaces.get(usize::from(namespace)).and_then(Option::as_ref);
        let settings = Arc::clone(settings.expect("the engine opens rooms only in namespaces that have them"));
        let timing = self.schedule.timing(now_ns, settings.room.ticks_per_second, settings.overrun);
        crate::telemetry::session_events::RoomChanged { channel: &channel, ended: None }.emit();
        let request = BuildRequest {
            thread: self.thread,
            place: self.free.last().copied().unwrap_or(self.places.len()),
            key,
            channel: Arc::clone(&channel),
            namespace,
            seed: overrides.seed.or(settings.seed).unwrap_or_else(|| shared.random_seed()),
            overrides,
            settings: Arc::clone(&settings),
        };
        let players_max = settings.room.players_max;
        let scheduled_room = ScheduledRoom {
            key,
            channel,
            namespace,
            settings,
            timing,
            stage: Stage::Opening { arrived: Vec::new() },
            stats: Stats::before_first_tick(players_max),
            recording: None,
            reached: Vec::new(),
            entries: None,
            held: None,
        };
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        self.dilating += u32::from(scheduled_room.may_dilate());
        self.places[place] = Some(scheduled_room);
        self.by_key.insert(key, place);
        self.opening += 1;
        self.counters.opened += 1;
        match shared.refusal_of_room(namespace) {
            // The builder checks this as well. Here, joins that have already arrived get a specific error.
            Some(failure) => self.refused.push((place, key, failure)),
            // If the builder has ended, the node is about to end.
            None => drop(self.tasks.send(Task::Make(Box::new(request)))),
        }
    }

    fn close(&mut self, key: RoomKey, code: UnsubscribeCode, reason: Option<Arc<str>>) {
        // The owner may close a room before it learns of the room's failure.
        if let Some(&place) = self.by_key.get(&key) {
            self.counters.closed += 1;
            self.end(place, (code, reason), None);
        }
    }

    /// The next tick, if one is due. A job is in progress until [`Scheduler::put_back`]. The thread is busy since `busy_since_ns`:
    /// with the messages of all rooms, which are no part of this room's tick.
    pub(super) fn next_job(&mut self, shared: &Shared, busy_since_ns: u64, now_ns: u64) -> Option<Job> {
        let job = self.next_tick(shared, now_ns)?;
        self.running = Some(Running { place: job.place, namespace: job.namespace, busy_since_ns, began_ns: now_ns });
        Some(job)
    }

    fn next_tick(&mut self, shared: &Shared, now_ns: u64) -> Option<Job> {
        let is_full = |links: &ShardLinks, shard: ShardIndex| links.overflow_of(shard) > shared.options.ring_messages;
        while let Some(place) = self.schedule.take_due(now_ns) {
            let scheduled_room = self.places[place].as_mut().expect("the schedule knows rooms alone");
            let skipped = scheduled_room.timing.skip_behind(now_ns, scheduled_room.settings.catch_up_ticks);
            scheduled_room.stats.skipped += skipped;
            self.counters.skipped += skipped;
            if scheduled_room.reached.iter().any(|&shard| is_full(&self.links, shard)) {
                // Its messages would not fit, so the room does not tick.
                scheduled_room.stats.skipped += 1;
                self.counters.held += 1;
                scheduled_room.timing.advance(now_ns.saturating_add(1));
                self.schedule.insert(place, &scheduled_room.timing);
                continue;
            }
            if scheduled_room.held.as_ref().is_some_and(HeldTicks::is_full) {
                // The disk is slower than the room.
                scheduled_room.stats.skipped += 1;
                self.counters.held_for_log += 1;
                scheduled_room.timing.advance(now_ns.saturating_add(1));
                self.schedule.insert(place, &scheduled_room.timing);
                continue;
            }
            let late_ns = now_ns - scheduled_room.timing.tick_due_ns.min(now_ns);
            self.counters.tick_lateness.observe(late_ns);
            let is_late = u64::from(late_ns >= scheduled_room.timing.interval_ns());
            self.counters.late += is_late;
            scheduled_room.stats.late += is_late;
            return Some(job_for(place, scheduled_room, now_ns, &mut self.messages));
        }
        None
    }

    /// Takes back the room of a completed job.
    pub(super) fn put_back(&mut self, finished: Finished, now_ns: u64) {
        let running = self.running.take().expect("a job was given out");
        let Finished { place, steps, outcome } = finished;
        let took_ns = now_ns - running.began_ns;
        self.counters.busy_ns += now_ns - running.busy_since_ns;
        match outcome {
            Err(failure) => self.fail(place, failure),
            Ok((live, done)) => {
                self.ticked(place, live, done, &steps, took_ns);
                self.judge(place, running.began_ns, took_ns);
            }
        }
    }

    fn ticked(&mut self, place: usize, mut live: Box<Live>, mut done: CompletedTick, steps: &[Step], took_ns: u64) {
        let scheduled_room = self.places[place].as_mut().expect("a room is there until it ends");
        self.counters.ticks += 1;
        self.counters.tick_duration.observe(took_ns);
        self.counters.tick_duration_fine.observe(took_ns);
        self.counters.inputs += steps.iter().filter(|step| matches!(step, Step::Input { .. })).count() as u64;
        self.counters.undecodable_inputs += live.runner.undecodable_inputs() - scheduled_room.stats.undecodable_inputs;
        let values_limited = live.runner.room().world().limited_values();
        self.counters.values_limited += values_limited - scheduled_room.stats.values_limited;
        scheduled_room.stats.update(&live, took_ns);
        scheduled_room.stats.count_players(live.runner.room(), steps, &done);
        self.counters.seats_expired += done.expired() as u64;
        self.counters.seats_displaced += done.displaced() as u64;
        self.counters.tokens_refused += done.tokens_refused();
        self.counters.calls += done.calls();
        // Its writer counts it.
        drop(live.recorder.take_if(|recorder| recorder.tail().is_cut()));
        let Stage::Open { host, live: home } = &mut scheduled_room.stage else {
            unreachable!("a room that ticks is open")
        };
        let calls = done.take_calls();
        host.finish(done, &mut self.messages);
        let tick_count = live.runner.ticks_run();
        *home = Some(live);
        scheduled_room.note_reached(&self.messages);
        if let Some(held) = &mut scheduled_room.held {
            // A room with held ticks is in the list already.
            if held.is_empty() {
                self.holding.push((place, scheduled_room.key));
            }
            held.hold(HeldTick { tick_count, messages: std::mem::take(&mut self.messages), calls });
        } else {
            self.count_messages();
            self.send_messages();
            self.send_calls(place, calls);
        }
    }

    /// Checks whether a room may continue after a tick.
    fn judge(&mut self, place: usize, began_ns: u64, took_ns: u64) {
        let share_ppm = self.load.share_ppm;
        let scheduled_room = self.places[place].as_mut().expect("a room is there until it ends");
        self.counters.overruns += u64::from(scheduled_room.count_overrun(took_ns));
        // Another node may have taken the room over.
        let fault = scheduled_room.entries.as_ref().and_then(|entries| entries.fault());
        if let Some(detail) = fault.map(str::to_owned) {
            return self.fail(place, Failure { reason: FailureReason::Storage, detail });
        }
        if let Some(failure) = scheduled_room.stats.failure(&scheduled_room.settings) {
            return self.fail(place, failure);
        }
        scheduled_room.timing.observe(began_ns, took_ns, share_ppm);
        scheduled_room.timing.advance(began_ns + took_ns);
        self.schedule.insert(place, &scheduled_room.timing);
    }

    /// The current job does not end: its room fails, and another thread takes over the scheduler.
    pub(super) fn abandon_running(&mut self, shared: &Shared) {
        self.generation += 1;
        self.counters.replaced += 1;
        // A job's deadline is set and removed under the lock that the caller holds.
        let Running { place, namespace, .. } = self.running.take().expect("a thread is abandoned while it runs a job");
        shared.lose_thread(namespace);
        self.fail(place, Failure { reason: FailureReason::Stuck, detail: String::new() });
    }

    fn fail(&mut self, place: usize, Failure { reason, detail }: Failure) {
        self.counters.failed[reason as usize] += 1;
        let scheduled_room = self.places[place].as_ref().expect("a room is there until it ends");
        let (room, channel) = (scheduled_room.key, Arc::clone(&scheduled_room.channel));
        let refusal = reason.refusal_of_opening(&detail);
        // Invalid parameters come from a client, and content from clients is not logged.
        let is_expected = matches!(reason, FailureReason::Params | FailureReason::NoState);
        if !is_expected && self.failures.len() < FAILURES_MAX {
            let simulation = scheduled_room.settings.simulation.clone();
            self.failures.push_back(RoomFailure { channel: Arc::clone(&channel), simulation, reason, detail });
        }
        self.end(place, (UnsubscribeCode::ROOM_FAILED, None), Some(reason));
        self.links.send(room.owner, FromRoom::Failed { room, channel, refusal });
    }

    fn end(&mut self, place: usize, why: (UnsubscribeCode, Option<Arc<str>>), failed: Option<FailureReason>) {
        if !failed.is_some_and(FailureReason::keeps_checkpoint) {
            self.send_held_calls(place);
        }
        let scheduled_room = self.places[place].take().expect("a room ends once");
        crate::telemetry::session_events::RoomChanged { channel: &scheduled_room.channel, ended: Some(why.0.0) }.emit();
        self.by_key.remove(&scheduled_room.key);
        self.schedule.forget(place, &scheduled_room.timing);
        self.free.push(place);
        self.opening -= u32::from(matches!(scheduled_room.stage, Stage::Opening { .. }));
        self.dilating -= u32::from(scheduled_room.may_dilate());
        if let Some(live) = scheduled_room.end(why, failed, &mut self.messages) {
            self.discard(live);
        }
        self.send_messages();
    }

    /// The number of players with a client in the room of a channel.
    pub(super) fn players_of(&self, channel: &str) -> Option<u32> {
        self.places.iter().flatten().find(|room| *room.channel == *channel).map(|room| room.stats.players)
    }

    /// Reports about the rooms.
    pub(super) fn report(&self) -> Vec<RoomReport> {
        self.places.iter().flatten().map(|scheduled_room| scheduled_room.report(self.thread)).collect()
    }

    /// The report about the room of a channel.
    pub(super) fn report_of(&self, channel: &str) -> Option<RoomReport> {
        let room = self.places.iter().flatten().find(|room| *room.channel == *channel);
        room.map(|room| room.report(self.thread))
    }

    /// Reports about at most `count` rooms from this channel on, in any order.
    pub(super) fn report_from(&self, from: Bound<&str>, count: usize) -> Vec<RoomReport> {
        let rooms = self.places.iter().flatten().map(|room| (&*room.channel, room));
        first_rooms(rooms, from, count).into_iter().map(|room| room.report(self.thread)).collect()
    }

    /// Removes everything at the end.
    pub(super) fn empty_out(&mut self) -> impl Iterator<Item = Box<Live>> + use<> {
        // Of rooms that were created a moment ago.
        let made: Vec<_> = std::iter::from_fn(|| self.made.try_recv().ok())
            .filter_map(|made| made.outcome.ok())
            .map(|(live, _)| live)
            .collect();
        let slots = std::mem::take(&mut self.places);
        self.by_key.clear();
        self.dilating = 0;
        self.schedule = Schedule::default();
        slots
            .into_iter()
            .flatten()
            .filter_map(|scheduled_room| match scheduled_room.stage {
                Stage::Open { mut live, .. } => {
                    if let Some(live) = &mut live {
                        live.paths = None;
                    }
                    live
                }
                Stage::Opening { .. } => None,
            })
            .chain(made)
    }
}

/// The next tick of a room. Answers to joins that do not need the tick are appended to `outgoing`.
fn job_for(place: usize, scheduled_room: &mut ScheduledRoom, now_ns: u64, outgoing: &mut Vec<RoutedMessage>) -> Job {
    let (namespace, settings) = (scheduled_room.namespace, Arc::clone(&scheduled_room.settings));
    let Stage::Open { host, live } = &mut scheduled_room.stage else { unreachable!("a room that ticks is open") };
    let live = live.take().expect("a room is here between its ticks");
    host.refuse_unreserved(&live.runner, outgoing);
    let batch = host.begin();
    let unix_us = Shared::unix_us_at(scheduled_room.timing.tick_due_ns.min(now_ns), now_ns);
    let time = TickTime { unix_us, rate: scheduled_room.timing.clock.rate() };
    Job { place, namespace, settings, expected_ns: scheduled_room.stats.expected_ns(), live, batch, time }
}
