//! The room thread. Like that of the server, it saves the room and logs the inputs of each tick before it sends the
//! messages of the tick.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use dunlin_engine::{
    host::{Checkpoint, HostOptions, RoomHost, RoomOrigin, RoutedMessage, Runner, Step, TickRecord},
    room::RoomKey,
};
use dunlin_rooms::{Grid, ObjectId, PlayerId, Position, Room, RoomOptions, Simulation as _};

use crate::rooms::{Departures, SeatModel};

use super::{
    KeptFlaw,
    disk::{RoomDisk, RoomWrite},
    game::Marks,
};

/// Ticks for which players stay without clients after a restart.
pub const GRACE_TICKS: u32 = 150;
/// Maximum number of ticks that wait for the log.
const HELD_TICKS_MAX: usize = 6;
/// Ticks between two state hashes in the log.
const HASH_TICKS: u64 = 5;
/// Maximum number of players of a user that stay while their clients are disconnected. No client has a user.
const AWAY_PER_USER_MAX: u32 = 2;
/// A large value, so that a room without players stays open.
const EMPTY_TICKS_MAX: u32 = 1_000_000;

/// The parameters of the room.
#[derive(Clone, Copy)]
pub struct KeptTerms {
    pub is_exact: bool,
    pub checkpoint_ticks: u64,
    pub ticks_per_second: u32,
    /// Ticks for which players stay after they lose their connection. With 0, they leave at once.
    pub seat_grace_ticks: u32,
    pub flaw: Option<KeptFlaw>,
}

/// The recorded room after a tick.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TickTruth {
    pub state_hash: u64,
    pub objects: BTreeMap<ObjectId, (Position, Vec<u8>)>,
    pub avatars: BTreeMap<PlayerId, ObjectId>,
    /// The expected players.
    pub seats: SeatModel,
}

/// The recorded history of the room. Ticks that a crash loses are removed.
#[derive(Default)]
pub struct RoomTruth {
    /// The recorded rooms by tick.
    pub ticks: BTreeMap<u64, TickTruth>,
    /// The tick and the player of each join, by its seat token.
    pub joins: BTreeMap<String, (u64, PlayerId)>,
}

/// The room on its thread.
pub struct KeptRoom {
    pub host: RoomHost,
    pub runner: Runner,
    terms: KeptTerms,
    held: VecDeque<(u64, Vec<RoutedMessage>)>,
    next_checkpoint: u64,
    seats: SeatModel,
}

fn options(terms: KeptTerms) -> RoomOptions {
    RoomOptions { ticks_per_second: terms.ticks_per_second, objects_max: 100, ..RoomOptions::default() }
}

fn origin(terms: KeptTerms) -> RoomOrigin {
    RoomOrigin { simulation: "marks".to_owned(), params: "{}".to_owned(), options: options(terms) }
}

fn truth_of(room: &Room, seats: &SeatModel) -> TickTruth {
    let world = room.world();
    TickTruth {
        state_hash: room.state_hash(),
        objects: world.objects().map(|(id, object)| (id, (object.position, object.state.clone()))).collect(),
        avatars: world.players().filter_map(|player| Some((player, world.avatar_of(player)?))).collect(),
        seats: seats.clone(),
    }
}

impl KeptRoom {
    /// Opens the room. Restores it from the disk if there is a checkpoint.
    ///
    /// # Errors
    /// If the restored room differs from the recorded one.
    pub fn open(
        (key, channel): (RoomKey, &Arc<str>),
        (shard_count, node_seed, seed): (u16, u64, u64),
        terms: KeptTerms,
        disk: &RoomDisk,
        truth: &mut RoomTruth,
    ) -> Result<Self, String> {
        let grid = Grid::new(Marks::default().grid()).map_err(|error| error.to_string())?;
        let of_host = HostOptions {
            shard_count,
            node_seed,
            empty_ticks_max: EMPTY_TICKS_MAX,
            ticks_per_second: terms.ticks_per_second,
            seat_grace_ticks: match terms.flaw {
                Some(KeptFlaw::LosesSeats) => 0,
                Some(KeptFlaw::GraceIsLonger) if terms.seat_grace_ticks > 0 => terms.seat_grace_ticks + 1,
                _ => terms.seat_grace_ticks,
            },
            away_per_user_max: AWAY_PER_USER_MAX,
            call_bytes_max: 1_024,
            is_recorded: false,
        };
        let mut host = RoomHost::new(key, Arc::clone(channel), grid, of_host);
        let runner = if let Some((_, saved)) = &disk.checkpoint {
            if terms.flaw != Some(KeptFlaw::RestoresClients) {
                host.restored(GRACE_TICKS);
            }
            restore(saved, terms, disk, truth).map_err(|error| format!("cannot restore the room: {error}"))?
        } else {
            let made = Room::new(options(terms), seed, Box::<Marks>::default());
            Runner::new(made.map_err(|error| error.to_string())?)
        };
        let last = runner.ticks_run();
        truth.ticks.retain(|tick, _| *tick <= last);
        truth.joins.retain(|_, (tick, _)| *tick <= last);
        let empty = || SeatModel::new(Departures::LostConnections, terms.seat_grace_ticks, AWAY_PER_USER_MAX);
        let seats = truth.ticks.get(&last).map_or_else(empty, |at| at.seats.clone());
        Ok(Self { host, runner, terms, held: VecDeque::new(), next_checkpoint: 0, seats })
    }

    /// Runs a tick, unless too many ticks wait for the log. Appends its messages to `outgoing` if they need not wait
    /// for the log.
    ///
    /// # Errors
    /// If the room does not have the expected players.
    pub fn tick(
        &mut self,
        now_us: u64,
        disk: &mut RoomDisk,
        truth: &mut RoomTruth,
        outgoing: &mut Vec<RoutedMessage>,
    ) -> Result<(), String> {
        if self.held.len() >= HELD_TICKS_MAX {
            return Ok(());
        }
        let tick = self.runner.ticks_run() + 1;
        if self.terms.is_exact && self.next_checkpoint == 0 {
            // The log begins with the first tick.
            self.save(now_us, disk);
        }
        let batch = self.host.begin();
        if self.terms.is_exact {
            let state_hash = tick.is_multiple_of(HASH_TICKS).then(|| self.runner.room().state_hash());
            let mut record = Vec::new();
            TickRecord::write(&batch.steps, state_hash, &mut record);
            disk.write(now_us, RoomWrite::Record(tick, record));
        }
        let given: Vec<String> = batch.steps.iter().filter_map(token_given).collect();
        let done = self.runner.run(&batch, now_us);
        if given.len() != done.joins().count() || done.joins().any(|(_, joined)| joined.is_none()) {
            return Err(format!("tick {tick}: a join is rejected, or has no token"));
        }
        let outcome = self.seats.check(tick, &batch.steps, &done, self.runner.room());
        outcome.map_err(|error| format!("tick {tick}: {error}"))?;
        for (given, (_, player)) in given.into_iter().zip(done.joins()) {
            if let Some(player) = player {
                truth.joins.insert(given, (tick, player.player));
            }
        }
        truth.ticks.insert(tick, truth_of(self.runner.room(), &self.seats));
        let mut messages = Vec::new();
        self.host.finish(done, &mut messages);
        if self.terms.is_exact && self.terms.flaw != Some(KeptFlaw::ShowsUnlogged) {
            self.held.push_back((tick, messages));
        } else {
            outgoing.append(&mut messages);
        }
        if tick >= self.next_checkpoint {
            self.save(now_us, disk);
        }
        Ok(())
    }

    /// Releases the messages of ticks up to `tick`, which the log has.
    pub fn logged(&mut self, tick: u64, outgoing: &mut Vec<RoutedMessage>) {
        while let Some((_, messages)) = self.held.pop_front_if(|(held, _)| *held <= tick) {
            outgoing.extend(messages);
        }
    }

    pub fn save(&mut self, now_us: u64, disk: &mut RoomDisk) {
        let mut saved = Vec::new();
        self.runner.save(&origin(self.terms), &mut saved);
        disk.write(now_us, RoomWrite::Checkpoint(self.runner.ticks_run(), saved));
        self.next_checkpoint = self.runner.ticks_run() + self.terms.checkpoint_ticks;
    }

    /// Whether no message waits for a tick or for the log.
    pub fn is_at_rest(&self) -> bool {
        self.held.is_empty() && self.host.arrived_len() == 0
    }
}

/// The seat token that a join issues. Every join in this room issues one.
fn token_given(step: &Step) -> Option<String> {
    match step {
        Step::Join { claim, .. } => claim.given.map(|token| format!("{:032x}", token.0)),
        _ => None,
    }
}

/// Restores the room after the last tick on the disk, and checks that each replayed tick has the recorded result.
fn restore(saved: &[u8], terms: KeptTerms, disk: &RoomDisk, truth: &RoomTruth) -> Result<Runner, String> {
    let checkpoint = Checkpoint::read(saved).map_err(|error| error.to_string())?;
    checkpoint.check_origin(&origin(terms)).map_err(|error| error.to_string())?;
    let made = checkpoint.restore(options(terms), Box::<Marks>::default());
    let mut runner = made.map_err(|error| error.to_string())?;
    if terms.flaw == Some(KeptFlaw::ForgetsLog) {
        return Ok(runner);
    }
    for (tick, record) in disk.log.range(runner.ticks_run() + 1..) {
        let record = TickRecord::read(record).map_err(|error| error.to_string())?;
        runner.replay(*tick, &record).map_err(|error| error.to_string())?;
        let was = truth.ticks.get(tick);
        let is = truth_of(runner.room(), was.map_or(&SeatModel::default(), |was| &was.seats));
        if was != Some(&is) {
            return Err(format!("tick {tick} was {was:?}, but is {is:?} after the replay"));
        }
    }
    Ok(runner)
}
