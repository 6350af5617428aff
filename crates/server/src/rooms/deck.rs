//! A deck: the rooms of one thread, their schedule and their rings. Whoever holds its lock runs no game's code, so the lock
//! is never held for long, and a thread that a game holds up can be replaced.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use dunlin_engine::{
    ShardIndex,
    host::{Done, Post as Letter, Step},
    room::{FromRoom, RoomKey, ToRoom},
};
use dunlin_protocol::UnsubscribeCode;
use tokio::sync::mpsc;

use super::{
    FailureReason, RoomCounters, RoomReport,
    job::{Failure, Finished, Job, Product, Work},
    post::Post,
    recorder::RoomRecorder,
    schedule::Schedule,
    shared::Shared,
    slot::{Live, Slot, Stage, Stats, refusal},
};

/// The rooms of one thread.
pub(super) struct Deck {
    /// The number of the thread that may work with it: one that was replaced has a lower one.
    pub(super) crew: u32,
    pub(super) post: Post,
    pub(super) counters: RoomCounters,
    /// Failures that nobody has told the log of.
    pub(super) news: VecDeque<News>,
    pub(super) load: Load,
    /// When shards were last told of what was sent to them.
    pub(super) announced_ns: u64,
    /// Held by all that has to come to an end in order; the thread drops it when it has.
    pub(super) alive: Option<mpsc::Sender<()>>,
    thread: u16,
    places: Vec<Option<Slot>>,
    free: Vec<usize>,
    by_key: HashMap<RoomKey, usize>,
    schedule: Schedule,
    /// What the thread is at.
    running: Option<Running>,
    /// Rooms that are over, whose game's code is to be let go.
    discarded: VecDeque<Job>,
    /// Rooms whose game is not made yet. Some may be closed by now.
    opening: VecDeque<(usize, RoomKey)>,
    /// The last job was no tick.
    did_chore: bool,
    /// Lends its capacity.
    letters: Vec<Letter>,
}

/// What a thread is at.
struct Running {
    place: usize,
    namespace: u16,
    began_ns: u64,
    /// Whether there is a room that fails if this does not end.
    has_room: bool,
}

/// A room failed.
#[derive(Debug)]
pub(super) struct News {
    pub(super) channel: Arc<str>,
    pub(super) simulation: String,
    pub(super) reason: FailureReason,
    pub(super) detail: String,
}

/// Failures that wait to be told, at most; more are only counted.
const NEWS_MAX: usize = 64;

/// Messages taken from one ring in one look.
const MESSAGES_PER_LOOK: usize = 4_096;

/// How busy a thread was, told to shards now and then.
#[derive(Debug, Default)]
pub(super) struct Load {
    since_ns: u64,
    busy_ns_before: u64,
    told_rooms: u32,
    pub(super) permille: u16,
}

/// Time between two tellings.
const LOAD_INTERVAL_NS: u64 = 250_000_000;

impl Deck {
    pub(super) fn new(thread: u16, post: Post, alive: mpsc::Sender<()>) -> Self {
        Self {
            crew: 0,
            post,
            counters: RoomCounters::default(),
            news: VecDeque::new(),
            load: Load::default(),
            announced_ns: 0,
            alive: Some(alive),
            thread,
            places: Vec::new(),
            free: Vec::new(),
            by_key: HashMap::new(),
            schedule: Schedule::default(),
            running: None,
            discarded: VecDeque::new(),
            opening: VecDeque::new(),
            did_chore: false,
            letters: Vec::new(),
        }
    }

    /// How many rooms there are.
    pub(super) fn room_count(&self) -> u32 {
        u32::try_from(self.by_key.len()).unwrap_or(u32::MAX)
    }

    /// How many players there are in them.
    pub(super) fn player_count(&self) -> u64 {
        self.places.iter().flatten().map(|slot| slot.player_count() as u64).sum()
    }

    /// When the next room's turn is.
    pub(super) fn next_ns(&self) -> Option<u64> {
        if self.discarded.is_empty() && self.opening.is_empty() { self.schedule.next_ns() } else { Some(0) }
    }

    /// Wakes the shards that were sent something.
    pub(super) fn announce(&mut self, now_ns: u64) {
        self.announced_ns = now_ns;
        self.post.announce();
    }

    /// Takes in what shards have sent.
    pub(super) fn take_messages(&mut self, shared: &Shared, now_ns: u64) {
        for shard in 0..self.post.shard_count() {
            for _ in 0..MESSAGES_PER_LOOK {
                let Some(message) = self.post.next(shard) else { break };
                self.take(message, shared, now_ns);
            }
        }
    }

    fn take(&mut self, message: ToRoom, shared: &Shared, now_ns: u64) {
        match message {
            ToRoom::Open { room, channel, namespace } => self.open(room, channel, namespace, shared, now_ns),
            ToRoom::Close { room, code } => self.close(room, code),
            ToRoom::Join { room, .. } | ToRoom::Leave { room, .. } | ToRoom::Input { room, .. } => {
                match self.by_key.get(&room).and_then(|&place| self.places[place].as_mut()) {
                    Some(slot) => slot.take(message),
                    None => self.letters.extend(refusal(message)),
                }
                self.send_letters();
            }
        }
    }

    fn open(&mut self, key: RoomKey, channel: Arc<str>, namespace: u16, shared: &Shared, now_ns: u64) {
        let settings = shared.options.namespaces.get(usize::from(namespace)).and_then(Option::as_ref);
        let settings = Arc::clone(settings.expect("the engine opens rooms only in namespaces that have them"));
        let timing = self.schedule.timing(now_ns, settings.room.ticks_per_second);
        let slot = Slot {
            key,
            channel,
            namespace,
            settings,
            timing,
            stage: Stage::Opening { arrived: Vec::new() },
            stats: Stats::default(),
            seed: 0,
            recording: None,
            reached: Vec::new(),
        };
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        self.places[place] = Some(slot);
        self.by_key.insert(key, place);
        self.opening.push_back((place, key));
        self.counters.opened += 1;
    }

    fn close(&mut self, key: RoomKey, code: UnsubscribeCode) {
        // The owner closes rooms whose failure it has not heard of yet.
        if let Some(&place) = self.by_key.get(&key) {
            self.counters.closed += 1;
            self.end(place, code);
        }
    }

    /// The next thing to do that runs a game's code, if its time has come. The deck counts as away with it until
    /// [`Deck::put_back`].
    pub(super) fn next_job(&mut self, shared: &Shared, now_ns: u64) -> Option<Job> {
        // Making a room takes as long as its game likes, and so does letting go of one. After each, rooms that are due tick
        // first, so that a burst of either delays a tick by one of them at most.
        let is_chores_turn = !self.did_chore;
        for is_chore in [is_chores_turn, !is_chores_turn] {
            let job = if is_chore { self.next_chore(shared, now_ns) } else { self.next_tick(shared, now_ns) };
            if let Some(job) = job {
                let (place, namespace, has_room) = (job.place, job.namespace, !matches!(job.work, Work::Discard(_)));
                self.running = Some(Running { place, namespace, began_ns: now_ns, has_room });
                self.did_chore = is_chore;
                return Some(job);
            }
        }
        None
    }

    fn next_chore(&mut self, shared: &Shared, now_ns: u64) -> Option<Job> {
        if let Some(job) = self.discarded.pop_front() {
            return Some(job);
        }
        while let Some((place, key)) = self.opening.pop_front() {
            let Some(slot) = self.places[place].as_mut().filter(|slot| slot.key == key) else { continue };
            if !shared.is_barred(slot.namespace) {
                return Some(job_for(place, slot, shared, now_ns));
            }
            slot.refuse_arrived("rooms of this kind have failed too often", &mut self.letters);
            let detail = format!("{} threads are lost to its namespace", shared.lost_threads(slot.namespace));
            self.fail(place, Failure { reason: FailureReason::Barred, detail });
        }
        None
    }

    fn next_tick(&mut self, shared: &Shared, now_ns: u64) -> Option<Job> {
        let is_full = |post: &Post, shard: ShardIndex| post.overflow_of(shard) > shared.options.ring_messages;
        while let Some(place) = self.schedule.take_due(now_ns) {
            let slot = self.places[place].as_mut().expect("the schedule knows rooms alone");
            let skipped = slot.timing.skip_behind(now_ns, slot.settings.catch_up_ticks);
            slot.stats.skipped += skipped;
            self.counters.skipped += skipped;
            if slot.reached.iter().any(|&shard| is_full(&self.post, shard)) {
                // What it would send has no room, so it stands still, and all who look at it with it.
                slot.stats.skipped += 1;
                self.counters.held += 1;
                slot.timing.advance(now_ns.saturating_add(1));
                self.schedule.insert(place, &slot.timing);
                continue;
            }
            let late_ns = now_ns - slot.timing.tick_due_ns.min(now_ns);
            self.counters.tick_lateness.observe(late_ns);
            let is_late = u64::from(late_ns >= slot.timing.interval_ns());
            self.counters.late += is_late;
            slot.stats.late += is_late;
            return Some(job_for(place, slot, shared, now_ns));
        }
        None
    }

    /// Takes back what a job was about.
    pub(super) fn put_back(&mut self, finished: Finished, shared: &Shared, now_ns: u64) {
        let running = self.running.take().expect("a job was given out");
        let Finished { place, steps, product } = finished;
        let took_ns = now_ns - running.began_ns;
        self.counters.busy_ns += took_ns;
        match product {
            Err(failure) => self.fail(place, failure),
            Ok(Product::Discarded) => {}
            Ok(Product::Made { table, account, grid }) => {
                let slot = self.places[place].as_mut().expect("a room is there until it ends");
                let recorder = RoomRecorder::start(&slot.channel, &slot.settings, slot.seed, self.alive.clone());
                let live = Live { table: *table, account, recorder };
                slot.open(live, grid, shared.shard_count, shared.node_seed);
                slot.timing.skip_behind(now_ns, 0);
                slot.timing.advance(now_ns);
                self.schedule.insert(place, &slot.timing);
            }
            Ok(Product::Ticked { live, done }) => {
                self.ticked(place, live, done, &steps, took_ns);
                self.judge(place, now_ns, took_ns);
            }
        }
    }

    fn ticked(&mut self, place: usize, mut live: Box<Live>, done: Done, steps: &[Step], took_ns: u64) {
        let slot = self.places[place].as_mut().expect("a room is there until it ends");
        self.counters.ticks += 1;
        self.counters.tick_duration.observe(took_ns);
        self.counters.inputs += steps.iter().filter(|step| matches!(step, Step::Input { .. })).count() as u64;
        self.counters.inputs_senseless += live.table.inputs_senseless() - slot.stats.inputs_senseless;
        slot.stats.update(&live, took_ns);
        if live.recorder.take_if(|recorder| recorder.tail().is_cut()).is_some() {
            self.counters.recordings_cut += 1;
        }
        let Stage::Open { host, live: home } = &mut slot.stage else { unreachable!("a room that ticks is open") };
        host.finish(done, &mut self.letters);
        *home = Some(live);
        slot.note_reached(&self.letters);
        self.count_letters();
        self.send_letters();
    }

    /// Whether a room that has ticked may go on.
    fn judge(&mut self, place: usize, now_ns: u64, took_ns: u64) {
        let slot = self.places[place].as_mut().expect("a room is there until it ends");
        let overran = took_ns > slot.timing.interval_ns();
        slot.stats.overruns += u64::from(overran);
        self.counters.overruns += u64::from(overran);
        slot.stats.overruns_in_a_row = if overran { slot.stats.overruns_in_a_row + 1 } else { 0 };
        let detail = if slot.stats.memory_bytes > slot.settings.memory_bytes_max {
            Some((FailureReason::Memory, format!("it takes {} bytes", slot.stats.memory_bytes)))
        } else if slot.stats.overruns_in_a_row >= slot.settings.overrun_ticks_max {
            Some((FailureReason::Overrun, format!("{} ticks in a row", slot.stats.overruns_in_a_row)))
        } else {
            None
        };
        if let Some((reason, detail)) = detail {
            return self.fail(place, Failure { reason, detail });
        }
        slot.timing.advance(now_ns);
        self.schedule.insert(place, &slot.timing);
    }

    /// The job that the thread is at does not end: its room fails, and the deck is another's.
    pub(super) fn abandon_running(&mut self, reason: FailureReason, shared: &Shared) {
        self.crew += 1;
        self.counters.replaced += 1;
        let Some(Running { place, namespace, has_room, .. }) = self.running.take() else { return };
        shared.lose_thread(namespace);
        if has_room {
            self.fail(place, Failure { reason, detail: String::new() });
        }
    }

    fn fail(&mut self, place: usize, Failure { reason, detail }: Failure) {
        self.counters.failed[reason as usize] += 1;
        let slot = self.places[place].as_ref().expect("a room is there until it ends");
        let (room, channel) = (slot.key, Arc::clone(&slot.channel));
        if self.news.len() < NEWS_MAX {
            let simulation = slot.settings.simulation.clone();
            self.news.push_back(News { channel: Arc::clone(&channel), simulation, reason, detail });
        }
        self.end(place, UnsubscribeCode::ROOM_FAILED);
        self.post.send(room.owner, FromRoom::Failed { room, channel });
    }

    fn end(&mut self, place: usize, code: UnsubscribeCode) {
        let slot = self.places[place].take().expect("a room ends once");
        self.by_key.remove(&slot.key);
        self.schedule.forget(place, &slot.timing);
        self.free.push(place);
        let (namespace, settings) = (slot.namespace, Arc::clone(&slot.settings));
        if let Some(live) = slot.end(code, &mut self.letters) {
            let work = Work::Discard(live);
            self.discarded.push_back(Job { place: usize::MAX, namespace, settings, expected_ns: u64::MAX, work });
        }
        self.send_letters();
    }

    fn count_letters(&mut self) {
        let counters = &mut self.counters;
        for (_, message) in &self.letters {
            match message {
                FromRoom::Joined { outcome: Ok(()), .. } => counters.joins += 1,
                FromRoom::Joined { outcome: Err(_), .. } => counters.joins_refused += 1,
                FromRoom::Event { .. } => counters.events += 1,
                FromRoom::Publish { .. } => counters.publications += 1,
                FromRoom::Keyframe { .. } => counters.keyframes += 1,
                FromRoom::Tick { .. } => counters.updates += 1,
                FromRoom::Idle { .. } | FromRoom::Failed { .. } | FromRoom::Over { .. } | FromRoom::Load { .. } => {}
            }
        }
    }

    fn send_letters(&mut self) {
        for (shard, message) in self.letters.drain(..) {
            self.post.send(shard, message);
        }
    }

    /// Tells the shards how busy the thread is, if it is time for that or a thread without rooms is about to sleep.
    pub(super) fn tell_load(&mut self, now_ns: u64) {
        let rooms = self.room_count();
        let past_ns = now_ns - self.load.since_ns;
        if past_ns < LOAD_INTERVAL_NS && !(rooms == 0 && self.load.told_rooms > 0) {
            return;
        }
        let busy_ns = self.counters.busy_ns - self.load.busy_ns_before;
        let permille = if rooms == 0 { 0 } else { (busy_ns * 1_000 / past_ns.max(1)).min(1_000) };
        let permille = u16::try_from(permille).unwrap_or(1_000);
        self.load = Load { since_ns: now_ns, busy_ns_before: self.counters.busy_ns, told_rooms: rooms, permille };
        for shard in 0..self.post.shard_count() {
            self.post.send(ShardIndex(shard), FromRoom::Load { permille, rooms });
        }
    }

    /// What is told about the rooms.
    pub(super) fn report(&self) -> Vec<RoomReport> {
        self.places.iter().flatten().map(|slot| slot.report(self.thread)).collect()
    }

    /// Takes everything out, at the end.
    pub(super) fn empty_out(&mut self) -> impl Iterator<Item = Box<Live>> + use<> {
        let slots = std::mem::take(&mut self.places);
        self.by_key.clear();
        self.schedule = Schedule::default();
        let rooms = slots.into_iter().flatten().filter_map(|slot| match slot.stage {
            Stage::Open { live, .. } => live,
            Stage::Opening { .. } => None,
        });
        let discarded = std::mem::take(&mut self.discarded).into_iter().filter_map(|job| match job.work {
            Work::Discard(live) => Some(live),
            Work::Make { .. } | Work::Tick { .. } => None,
        });
        rooms.chain(discarded)
    }
}

fn job_for(place: usize, slot: &mut Slot, shared: &Shared, now_ns: u64) -> Job {
    let (namespace, settings) = (slot.namespace, Arc::clone(&slot.settings));
    let mut expected_ns = u64::MAX;
    let work = match &mut slot.stage {
        Stage::Opening { .. } => {
            slot.seed = settings.seed.unwrap_or_else(|| shared.random_seed());
            Work::Make { registry: Arc::clone(&shared.options.registry), seed: slot.seed }
        }
        Stage::Open { host, live } => {
            let mut live = live.take().expect("a room is here between its ticks");
            // The batch is freed where the game runs, so it counts from here on.
            let batch = live.account.charge(u64::MAX, || host.begin());
            expected_ns = slot.stats.expected_ns();
            let time_us = Shared::unix_us_at(slot.timing.tick_due_ns.min(now_ns), now_ns);
            Work::Tick { live, batch, time_us }
        }
    };
    Job { place, namespace, settings, expected_ns, work }
}
