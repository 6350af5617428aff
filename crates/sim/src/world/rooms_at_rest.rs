//! Checks rooms when nothing is in flight: each room has exactly the players of the clients that joined it, and their
//! replicas equal the world.

use std::collections::{BTreeMap, BTreeSet};

use dunlin_engine::room::RoomKey;
use dunlin_rooms::PlayerId;

use super::NodeWorld;

/// Ticks after which all replicas must equal the world.
const QUIET_TICKS: u32 = 2;
/// Ticks within which a room without players must be closed, in addition to its timeouts.
const CLOSING_TICKS: u32 = 50;

impl NodeWorld {
    /// Ticks all rooms a few more times while the rest of the node is at rest, and checks them each time. Returns
    /// whether all ticks are done.
    pub(super) fn settle_rooms(&mut self, quiet_ticks: &mut u32) -> Result<bool, String> {
        if self.plan.rooms.is_none() {
            return Ok(true);
        }
        self.check_rooms().map_err(|error| format!("after {quiet_ticks} quiet ticks: {error}"))?;
        if *quiet_ticks == QUIET_TICKS {
            return Ok(true);
        }
        *quiet_ticks += 1;
        self.tick_rooms(&|_| true)?;
        Ok(false)
    }

    /// Checks all rooms. The node must be at rest.
    fn check_rooms(&self) -> Result<(), String> {
        let room_model = self.model.rooms.lock();
        let mut expected: BTreeMap<RoomKey, BTreeSet<PlayerId>> = BTreeMap::new();
        for client in self.clients.iter().filter(|client| self.is_live(client)) {
            for subscription in client.subscriptions.values() {
                let Some(seat) = &subscription.seat else { continue };
                seat.check_complete(&room_model)
                    .map_err(|error| format!("client {} in {} at rest: {error}", client.index, subscription.channel))?;
                if !expected.entry(seat.room).or_default().insert(seat.player) {
                    return Err(format!("two clients have {:?} of {:?}", seat.player, seat.room));
                }
            }
        }
        let seated: usize = expected.values().map(BTreeSet::len).sum();
        for hosted in self.threads.hosted() {
            let room = hosted.host.key();
            let record = &room_model.records[&room];
            let expected = expected.remove(&room).unwrap_or_default();
            // Players that are away are in the world, but have no client.
            let in_world = hosted.runner.room().player_count().saturating_sub(record.away.len());
            let counts = (hosted.host.player_count(), in_world);
            let players: BTreeSet<PlayerId> =
                record.players.keys().filter(|player| !record.away.contains(player)).copied().collect();
            if players != expected || counts != (expected.len(), expected.len()) {
                return Err(format!("{room:?} has {counts:?} players, {players:?} instead of {expected:?}"));
            }
            if hosted.runner.undecodable_inputs() != record.rejected_inputs {
                let counted = hosted.runner.undecodable_inputs();
                return Err(format!(
                    "the room counted {counted} inputs that the game rejected, but there were {}",
                    record.rejected_inputs
                ));
            }
        }
        let seats: usize = self.node.threads.iter().map(|thread| thread.shard.room_holdings()[0]).sum();
        if seats != seated {
            return Err(format!("{seats} seats are taken instead of {seated}"));
        }
        match expected.first_key_value() {
            Some((room, players)) => Err(format!("clients of {players:?} are in {room:?}, which does not exist")),
            None => Ok(()),
        }
    }

    /// Waits until all rooms are closed because they have no players, and checks the counters.
    pub(super) fn await_closed_rooms(&mut self) -> Result<(), String> {
        let Some(rooms) = &self.plan.rooms else { return Ok(()) };
        let (tick_us, ticks) = (rooms.tick_us, rooms.empty_ticks_max + rooms.seat_grace_ticks + CLOSING_TICKS);
        for _ in 0..ticks {
            self.pass_time(tick_us)?;
            self.settle_messages()?;
        }
        let room_model = self.model.rooms.lock();
        let left = self
            .threads
            .hosted()
            .map(|hosted| hosted.host.key())
            .chain(room_model.records.iter().filter(|(_, record)| record.ended.is_empty()).map(|(room, _)| *room));
        let left: Vec<RoomKey> = left.collect();
        if !left.is_empty() {
            return Err(format!("the rooms {left:?} are still open"));
        }
        let (mut held, mut opened, mut over) = ([0; 2], 0, 0);
        for thread in &self.node.threads {
            let [seats, rooms] = thread.shard.room_holdings();
            held = [held[0] + seats, held[1] + rooms];
            for counters in &thread.shard.counters().namespaces {
                opened += counters.rooms.opened;
                over += counters.rooms.closed + counters.rooms.failed;
            }
        }
        let records = room_model.records.len() as u64;
        if held == [0; 2] && (opened, over) == (records, records) {
            Ok(())
        } else {
            Err(format!("seats and rooms left {held:?}, opened {opened}, ended {over}, of {records}"))
        }
    }
}
