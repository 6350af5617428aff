//! Messages from a scheduler to shards: messages of rooms, and the load of its thread.

use dunlin_engine::{
    ShardIndex,
    room::{FromRoom, NotJoined},
};

use super::Scheduler;
use crate::rooms::{
    FailureReason,
    clock::{self, Demand},
    job::Failure,
};

/// What a thread has used in the last interval, and where the current one began. Shards are told `permille`, or more if slowed
/// rooms would need more at full rate.
#[derive(Debug)]
pub(in crate::rooms) struct Load {
    since_ns: u64,
    busy_ns_before: u64,
    reported_rooms: u32,
    /// The share of the last interval in which the thread was busy, in thousandths.
    pub(in crate::rooms) permille: u16,
    /// The share of the thread that each room may use, in millionths.
    pub(super) share_ppm: u32,
}

/// Interval between two load reports.
const LOAD_INTERVAL_NS: u64 = 250_000_000;

impl Default for Load {
    fn default() -> Self {
        Self { since_ns: 0, busy_ns_before: 0, reported_rooms: 0, permille: 0, share_ppm: clock::SHARE_MAX_PPM }
    }
}

impl Scheduler {
    /// Sends the messages of ticks that have been logged. Rooms whose log fails end.
    pub(in crate::rooms) fn release_held(&mut self) {
        let mut holding = std::mem::take(&mut self.holding);
        holding.retain(|&(place, key)| {
            let scheduled_room = self.places[place].as_mut().filter(|scheduled_room| scheduled_room.key == key);
            let Some(held) = scheduled_room.and_then(|scheduled_room| scheduled_room.held.as_mut()) else {
                return false;
            };
            let calls = held.release(&mut self.messages);
            let (holds_more, fault) = (!held.is_empty(), held.fault().map(str::to_owned));
            self.count_messages();
            self.send_messages();
            self.send_calls(place, calls);
            if let Some(detail) = fault.filter(|_| holds_more) {
                self.fail(place, Failure { reason: FailureReason::Storage, detail });
                return false;
            }
            holds_more
        });
        self.holding = holding;
    }

    pub(super) fn count_messages(&mut self) {
        let counters = &mut self.counters;
        for (_, message) in &self.messages {
            match message {
                FromRoom::Joined { outcome: Ok(joined), .. } => {
                    counters.joins += 1;
                    counters.seats_resumed += u64::from(joined.is_back);
                }
                FromRoom::Unseated { .. } => counters.unseated += 1,
                FromRoom::Joined { outcome: Err(NotJoined::Reserved), .. } => counters.joins_reserved += 1,
                FromRoom::Joined { outcome: Err(NotJoined::Refused(_)), .. } => counters.joins_refused += 1,
                FromRoom::Event { .. } => counters.events += 1,
                FromRoom::Publish { .. } => counters.publications += 1,
                FromRoom::Keyframe { .. } => counters.keyframes += 1,
                FromRoom::Tick { .. } => counters.updates += 1,
                // The owner counts the joins of a room that has ended.
                FromRoom::Joined { outcome: Err(NotJoined::Gone | NotJoined::Unavailable), .. }
                | FromRoom::Made { .. }
                | FromRoom::Answered { .. }
                | FromRoom::Idle { .. }
                | FromRoom::Closing { .. }
                | FromRoom::Failed { .. }
                | FromRoom::Over { .. }
                | FromRoom::Load { .. } => {}
            }
        }
    }

    pub(super) fn send_messages(&mut self) {
        for (shard, message) in self.messages.drain(..) {
            self.links.send(shard, message);
        }
    }

    /// Reports the load to the shards, if the interval has passed or a thread without rooms is about to sleep.
    pub(in crate::rooms) fn report_load(&mut self, now_ns: u64) {
        let rooms = self.room_count();
        let past_ns = now_ns - self.load.since_ns;
        if past_ns < LOAD_INTERVAL_NS && !(rooms == 0 && self.load.reported_rooms > 0) {
            return;
        }
        let busy_ns = self.counters.busy_ns - self.load.busy_ns_before;
        let permille = if rooms == 0 { 0 } else { (busy_ns * 1_000 / past_ns.max(1)).min(1_000) };
        let permille = u16::try_from(permille).unwrap_or(1_000);
        let demands = self.demands();
        // Slowed rooms leave some time of a thread that has none to spare for further rooms.
        let needed = demands.iter().map(|demand| u64::from(demand.full_ppm)).sum::<u64>() / 1_000;
        let reported = u16::try_from(needed).unwrap_or(1_000).clamp(permille, 1_000);
        let share_ppm = clock::share_ppm(&demands);
        let busy_ns_before = self.counters.busy_ns;
        self.load = Load { since_ns: now_ns, busy_ns_before, reported_rooms: rooms, permille, share_ppm };
        for shard in 0..self.links.shard_count() {
            self.links.send(ShardIndex(shard), FromRoom::Load { permille: reported, rooms });
        }
    }

    /// The shares of the thread that its rooms need; none if no room slows its clock.
    fn demands(&self) -> Vec<Demand> {
        if self.dilating == 0 {
            return Vec::new();
        }
        self.places.iter().flatten().map(|scheduled_room| scheduled_room.timing.clock.demand()).collect()
    }
}
