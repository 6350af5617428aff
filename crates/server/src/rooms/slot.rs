//! One room of a deck: everything but the game's code.

use std::sync::Arc;

use dunlin_engine::{
    ShardIndex,
    host::{HostTerms, Post, RoomHost, Table},
    room::{FromRoom, NotJoined, RoomKey, ToRoom},
};
use dunlin_protocol::UnsubscribeCode;
use dunlin_rooms::{Grid, Refusal};

use super::{
    RoomReport, RoomSettings,
    heap::Account,
    recorder::{RoomRecorder, Tail},
    report::Recent,
    schedule::Timing,
};

/// One room.
pub(super) struct Slot {
    pub(super) key: RoomKey,
    pub(super) channel: Arc<str>,
    pub(super) namespace: u16,
    pub(super) settings: Arc<RoomSettings>,
    pub(super) timing: Timing,
    pub(super) stage: Stage,
    pub(super) stats: Stats,
    /// What its world was made from.
    pub(super) seed: u64,
    /// The end of its recording, if there is one.
    pub(super) recording: Option<Arc<Tail>>,
    /// The shards that its last tick had something for.
    pub(super) reached: Vec<ShardIndex>,
}

/// A room's table, and what goes where it goes.
pub(super) struct Live {
    pub(super) table: Table,
    pub(super) account: Account,
    pub(super) recorder: Option<RoomRecorder>,
}

/// How far a room is.
pub(super) enum Stage {
    /// Its game is not made yet. Keeps what came for it.
    Opening { arrived: Vec<ToRoom> },
    /// It ticks. Its table is away during a tick.
    Open { host: Box<RoomHost>, live: Option<Box<Live>> },
}

/// What is told of a room.
#[derive(Default)]
pub(super) struct Stats {
    recent: Recent,
    tick_p50_us: u32,
    tick_p99_us: u32,
    pub(super) objects: u32,
    pub(super) tick: u32,
    pub(super) late: u64,
    pub(super) skipped: u64,
    pub(super) overruns: u64,
    pub(super) overruns_in_a_row: u32,
    pub(super) world_bytes: u64,
    pub(super) memory_bytes: u64,
    /// How long the last tick took; 0 before the first.
    took_ns: u64,
    /// How many senseless inputs the table had counted after the last tick.
    pub(super) inputs_senseless: u64,
}

impl Slot {
    /// Takes in a message about this room, neither its first nor its last.
    pub(super) fn take(&mut self, message: ToRoom) {
        match &mut self.stage {
            Stage::Opening { arrived } => arrived.push(message),
            Stage::Open { host, .. } => host.take(message),
        }
    }

    /// The game is made: from the next tick on there is a room.
    pub(super) fn open(&mut self, live: Live, grid: Grid, shard_count: u16, node_seed: u64) {
        let ticks_per_second = self.settings.room.ticks_per_second;
        let empty_ticks = self.settings.empty_timeout_ms * u64::from(ticks_per_second) / 1_000;
        let empty_ticks_max = u32::try_from(empty_ticks).unwrap_or(u32::MAX).max(1);
        let terms = HostTerms { shard_count, node_seed, empty_ticks_max, ticks_per_second };
        self.recording = live.recorder.as_ref().map(|recorder| Arc::clone(recorder.tail()));
        let mut host = Box::new(RoomHost::new(self.key, Arc::clone(&self.channel), grid, terms));
        if let Stage::Opening { arrived } = &mut self.stage {
            arrived.drain(..).for_each(|message| host.take(message));
        }
        self.stage = Stage::Open { host, live: Some(Box::new(live)) };
    }

    /// Its game will not be made: tells those who are on the way, in words for them.
    pub(super) fn refuse_arrived(&mut self, message: &str, posts: &mut Vec<Post>) {
        let Stage::Opening { arrived } = &mut self.stage else { return };
        for message_to_room in arrived.drain(..) {
            let ToRoom::Join { room, order } = message_to_room else { continue };
            // A refusal, so that nobody's SDK asks again and again.
            let refusal = Refusal { code: BARRED_CODE, message: message.into() };
            posts.push((room.owner, FromRoom::Joined { room, order, outcome: Err(NotJoined::Refused(refusal)) }));
        }
    }

    /// Remembers which shards a tick has something for.
    pub(super) fn note_reached(&mut self, posts: &[Post]) {
        self.reached.clear();
        for (shard, _) in posts {
            if !self.reached.contains(shard) {
                self.reached.push(*shard);
            }
        }
    }

    /// The room is over: tells everybody who is in it, or on the way. Gives the table back, if it is here.
    pub(super) fn end(self, code: UnsubscribeCode, posts: &mut Vec<Post>) -> Option<Box<Live>> {
        if let Some(recording) = &self.recording {
            // Its thread may never come back with the recorder.
            recording.end();
        }
        match self.stage {
            Stage::Opening { arrived } => {
                posts.extend(arrived.into_iter().filter_map(refusal));
                None
            }
            Stage::Open { mut host, live } => {
                host.end(code, posts);
                live
            }
        }
    }

    /// How many players it has.
    pub(super) fn player_count(&self) -> usize {
        match &self.stage {
            Stage::Opening { .. } => 0,
            Stage::Open { host, .. } => host.player_count(),
        }
    }

    pub(super) fn report(&self, thread: u16) -> RoomReport {
        let stats = &self.stats;
        RoomReport {
            channel: Arc::clone(&self.channel),
            thread,
            players: u32::try_from(self.player_count()).unwrap_or(u32::MAX),
            objects: stats.objects,
            tick: stats.tick,
            tick_p50_us: stats.tick_p50_us,
            tick_p99_us: stats.tick_p99_us,
            late: stats.late,
            skipped: stats.skipped,
            overruns: stats.overruns,
            world_bytes: stats.world_bytes,
            memory_bytes: stats.memory_bytes,
        }
    }
}

impl Stats {
    /// After a tick that took so long.
    pub(super) fn update(&mut self, live: &Live, took_ns: u64) {
        let room = live.table.room();
        let narrow = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        self.recent.observe(took_ns);
        self.took_ns = took_ns;
        self.objects = narrow(room.object_count());
        self.tick = room.tick_number();
        self.memory_bytes = live.account.bytes();
        self.inputs_senseless = live.table.inputs_senseless();
        if self.tick % LOOK_INTERVAL_TICKS == 1 {
            self.world_bytes = room.world_bytes() as u64;
            self.tick_p50_us = self.recent.quantile_us(0.5);
            self.tick_p99_us = self.recent.quantile_us(0.99);
        }
    }

    /// How long a tick is going to take if it is like the last ones; as long as can be, if there were none.
    pub(super) fn expected_ns(&self) -> u64 {
        if self.took_ns == 0 { u64::MAX } else { self.took_ns.max(u64::from(self.tick_p99_us) * 1_000) }
    }
}

/// What a join is answered with while rooms of its namespace are not opened.
const BARRED_CODE: u16 = 400;

/// Ticks between two looks at what takes time to find out.
const LOOK_INTERVAL_TICKS: u32 = 64;

/// The answer to a message that finds no room: a join is told that it is gone, the rest needs none.
pub(super) fn refusal(message: ToRoom) -> Option<Post> {
    let ToRoom::Join { room, order } = message else { return None };
    Some((room.owner, FromRoom::Joined { room, order, outcome: Err(NotJoined::Gone) }))
}
