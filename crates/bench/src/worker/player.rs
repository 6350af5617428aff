//! One player: its replica, and its unacknowledged inputs.

mod head;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::rc::Rc;

use dunlin_rooms::wire::{Input, encode_input, object_hash};
use dunlin_rooms::{Band, Grid, ObjectId, Replica};

use super::dialogue::{Ended, Observer};
use super::session::Session;
use crate::commands;
use crate::control::{MessageContent, Target};
use crate::error::Error;
use crate::proc;
use crate::push::{self, PlayerPush};
use crate::room::observation::{Observation, Observations};
use crate::room::player_commands::{Played, PlayerBehavior};

/// Maximum number of pending inputs of a player; the oldest are dropped first.
const WAITING_MAX: usize = 4_096;
/// A player checks every visible object once per this number of snapshots.
const LOOK_THROUGH_EVERY: u32 = 64;

pub struct LoadPlayer {
    /// None before its start and after its end.
    pub session: Option<Session>,
    /// Its number in the run.
    pub number: u32,
    /// Its room's number in the run.
    pub room: u32,
    /// The server, and its room there.
    pub target: Rc<Target>,
    /// Whether it can be paused.
    pub slow: bool,
    /// Its state after a pause, if it reads again.
    pub waking: Option<Waking>,
    /// Whether it checks only the heads of snapshots, and does not wait for inputs.
    pub heads_only: bool,
    replica: Replica,
    /// The tick of the last head; 0 for none.
    head_tick: u32,
    snapshots: u32,
    inputs: u32,
    waiting: VecDeque<Sent>,
}

/// A player that reads again.
#[derive(Default)]
pub struct Waking {
    /// When the socket was empty for the first time.
    drained_ns: Option<u64>,
    /// Whether the last snapshot was younger than two ticks when it was read.
    is_fresh: bool,
}

struct Sent {
    number: u32,
    intended_ns: u64,
}

/// The destination of a player's measurements.
pub struct PlayerSink<'a> {
    pub played: &'a mut Played,
    pub observations: Option<&'a mut Observations>,
    pub play: PlayerBehavior,
    pub looks_from_own: bool,
    pub snapshots_ever: &'a mut u64,
    pub failed: &'a mut Option<Error>,
    pub clock: Clock,
}

/// The time of a read, which is determined at most once.
#[derive(Clone, Copy, Default)]
pub struct Clock(Option<(u64, u64)>);

impl Clock {
    /// Nanoseconds of the monotonic clock, and Unix time in microseconds.
    fn read(&mut self) -> (u64, u64) {
        *self.0.get_or_insert_with(|| (proc::now_ns(), proc::unix_us()))
    }
}

/// A player and its sink, while its session reads.
pub struct Reading<'a, 'b> {
    pub player: &'a mut LoadPlayer,
    pub sink: &'a mut PlayerSink<'b>,
    /// The reason, if the subscription has ended.
    pub ended: Option<Ended>,
}

impl Observer for Reading<'_, '_> {
    fn message(&mut self, message: &[u8]) -> bool {
        if self.player.target.content == MessageContent::Bare {
            self.player.snapshot(message, self.sink);
            return true;
        }
        match push::push(self.player.target.encoding, message) {
            Some(PlayerPush::Publication { data, offset: 0 }) => self.player.snapshot(data, self.sink),
            Some(PlayerPush::Publication { .. }) => self.sink.played.events += 1,
            Some(PlayerPush::Unsubscribed { code }) => self.ended = Some(format!("unsubscribed: {code}")),
            Some(PlayerPush::Other) => {}
            None => return false,
        }
        true
    }
}

impl LoadPlayer {
    /// A player without received snapshots.
    pub fn new(session: Option<Session>, number: u32, room: u32, target: Rc<Target>) -> Self {
        LoadPlayer {
            session,
            number,
            room,
            target,
            slow: false,
            waking: None,
            heads_only: false,
            replica: Replica::default(),
            head_tick: 0,
            snapshots: 0,
            inputs: 0,
            waiting: VecDeque::new(),
        }
    }

    /// Sends the next input. An input that the socket does not take is skipped.
    pub fn send(&mut self, play: PlayerBehavior, intended_ns: u64, played: &mut Played) -> Result<(), Ended> {
        let number = self.inputs + 1;
        let data = match play {
            PlayerBehavior::Stamp { .. } => stamp(self.number, number).to_vec(),
            PlayerBehavior::Hunt => hunt(self.number, number),
        };
        let input = Input { number, room: Cow::Borrowed(""), data: Cow::Owned(data) };
        let mut bytes = Vec::with_capacity(48);
        encode_input(self.target.encoding.of_rooms(), &input, &mut bytes);
        let frame = match self.target.content {
            MessageContent::Bare | MessageContent::Peer(_) => commands::bare(&bytes),
            MessageContent::Protocol => commands::send(self.target.encoding, &bytes),
        };
        let Some(session) = &mut self.session else { return Ok(()) };
        if !session.offer(&frame)? {
            played.inputs_held_up += 1;
            return Ok(());
        }
        self.inputs = number;
        played.inputs += 1;
        played.inputs_ever += 1;
        played.lag.record_ns(proc::now_ns().saturating_sub(intended_ns));
        if self.heads_only {
            return Ok(());
        }
        if self.waiting.len() == WAITING_MAX {
            self.waiting.pop_front();
        }
        self.waiting.push_back(Sent { number, intended_ns });
        Ok(())
    }

    /// Called when the socket is empty.
    pub fn drained(&mut self, played: &mut Played) {
        let Some(waking) = &mut self.waking else { return };
        if waking.drained_ns.is_none() {
            waking.drained_ns = Some(proc::now_ns());
            played.drained += 1;
        }
        if waking.is_fresh {
            played.caught_up += 1;
            played.catch_up.record_ns(waking.drained_ns.map_or(0, |drained_ns| proc::now_ns() - drained_ns));
            self.waking = None;
        }
    }

    /// Checks that the base of a snapshot is the last received tick, and counts the snapshot.
    fn snapshot_head(&mut self, data: &[u8], sink: &mut PlayerSink<'_>) {
        let head = head::read(data).filter(|head| head.tick > self.head_tick);
        let Some(head) = head.filter(|head| head.base == 0 || head.base == self.head_tick) else {
            *sink.played.broken.entry("the head of a snapshot is wrong".into()).or_default() += 1;
            return;
        };
        let (_, unix_us) = sink.clock.read();
        if self.head_tick != 0 {
            sink.played.ticks_skipped += u64::from(head.tick - self.head_tick - 1);
        }
        self.head_tick = head.tick;
        *sink.snapshots_ever += 1;
        sink.played.snapshots += 1;
        sink.played.snapshot_bytes += data.len() as u64;
        sink.played.age.record_ns(unix_us.saturating_sub(head.time_us) * 1_000);
    }

    fn snapshot(&mut self, data: &[u8], sink: &mut PlayerSink<'_>) {
        if self.heads_only {
            return self.snapshot_head(data, sink);
        }
        let before = self.replica.tick();
        if let Err(err) = self.replica.apply(self.target.encoding.of_rooms(), data) {
            *sink.played.broken.entry(err.to_string()).or_default() += 1;
            return;
        }
        let (now_ns, unix_us) = sink.clock.read();
        let age_us = unix_us.saturating_sub(self.replica.time_us());
        *sink.snapshots_ever += 1;
        sink.played.snapshots += 1;
        sink.played.snapshot_bytes += data.len() as u64;
        sink.played.age.record_ns(age_us * 1_000);
        if before != 0 {
            sink.played.ticks_skipped += u64::from(self.replica.tick().saturating_sub(before + 1));
        }
        if let Some(waking) = &mut self.waking {
            waking.is_fresh = age_us < TWO_TICKS_US;
        }
        self.note_inputs(now_ns, sink);
        self.snapshots += 1;
        let Some(grid) = self.replica.grid() else { return };
        let hash = near_hash(&self.replica, grid);
        if self.snapshots % LOOK_THROUGH_EVERY == self.number % LOOK_THROUGH_EVERY {
            self.look_through(grid, hash, sink);
        }
        if let Some(observations) = &mut sink.observations {
            let (tick, view) = (self.replica.tick(), self.replica.view().0);
            let added = observations.add(Observation { room: self.room, tick, view, hash });
            *sink.failed = added.err().or(sink.failed.take());
        }
    }

    /// Records the inputs that this snapshot acknowledges, and the input that it shows.
    fn note_inputs(&mut self, now_ns: u64, sink: &mut PlayerSink<'_>) {
        if self.waiting.is_empty() {
            return;
        }
        let shared = match sink.play {
            PlayerBehavior::Stamp { shared_objects } => shared_objects,
            PlayerBehavior::Hunt => None,
        };
        let own = shared.map(|objects| ObjectId(self.number % objects + 1)).or_else(|| self.replica.avatar());
        let state = own.and_then(|id| self.replica.object(id)).map_or(&[][..], |object| object.state.as_slice());
        let shown = shown_number(self.number, state).unwrap_or(0);
        // Without acknowledgements, only the state of the object shows that an input was applied.
        let settled = if shared.is_some() { shown } else { self.replica.ack() };
        while let Some(sent) = self.waiting.front().filter(|sent| sent.number <= settled) {
            let since_ns = now_ns.saturating_sub(sent.intended_ns);
            if shared.is_none() {
                sink.played.acknowledged += 1;
                sink.played.acknowledged_ever += 1;
                sink.played.acknowledgement.record_ns(since_ns);
            }
            let is_shown = if shared.is_some() { sent.number == shown } else { sent.number <= shown };
            if is_shown {
                sink.played.shown += 1;
                sink.played.effect.record_ns(since_ns);
            }
            self.waiting.pop_front();
        }
    }

    /// Checks that the running hash matches the objects, that all objects are visible, and that the player is at its
    /// viewpoint.
    fn look_through(&self, grid: &Grid, hash: u64, sink: &mut PlayerSink<'_>) {
        let played = &mut *sink.played;
        let (mut sum, mut objects) = (0, 0);
        for (id, object) in self.replica.objects() {
            objects += 1;
            match object.cell.map(|cell| grid.band(self.replica.view(), cell)) {
                Some(Some(Band::Near)) => sum ^= object_hash(id, object.kind, object.position, &object.state),
                Some(None) => played.inconsistent += 1,
                Some(Some(Band::Far)) | None => {}
            }
        }
        played.looked_through += 1;
        played.objects_seen += objects;
        played.inconsistent += u64::from(sum != hash);
        let own = self.replica.avatar().and_then(|id| self.replica.object(id));
        let is_at_home = own.is_some_and(|own| own.cell == Some(self.replica.view()));
        played.misplaced += u64::from(sink.looks_from_own && !is_at_home);
    }
}

/// A snapshot that is older than two ticks of 60 Hz is stale.
const TWO_TICKS_US: u64 = 2_000_000 / 60;

fn near_hash(replica: &Replica, grid: &Grid) -> u64 {
    let near = grid.visible(replica.view()).filter(|(_, band)| *band == Band::Near);
    near.fold(0, |hash, (cell, _)| hash ^ replica.cell_hash(cell))
}

/// The content of a player's input: the player and the number of the input.
fn stamp(player: u32, number: u32) -> [u8; 8] {
    let mut stamp = [0; 8];
    let (first, second) = stamp.split_at_mut(4);
    first.copy_from_slice(&player.to_be_bytes());
    second.copy_from_slice(&number.to_be_bytes());
    stamp
}

/// The number of the input whose stamp this state begins with, if it is this player's.
fn shown_number(player: u32, state: &[u8]) -> Option<u32> {
    let (who, rest) = state.split_first_chunk::<4>()?;
    let (number, _) = rest.split_first_chunk::<4>()?;
    (u32::from_be_bytes(*who) == player).then_some(u32::from_be_bytes(*number))
}

/// An input for the treasure hunt: mostly a new direction, sometimes a dig, and rarely a wave.
fn hunt(player: u32, number: u32) -> Vec<u8> {
    let mixed = (u64::from(player) << 32 | u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let [.., a, b, c] = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9).to_be_bytes();
    match c {
        0..24 => vec![1],
        24..32 => vec![2, a % 8],
        _ => vec![0, a, b],
    }
}

#[cfg(test)]
mod tests;
