//! When nothing is in flight, rooms have exactly the players whose clients are joined, and those see the world as it
//! is.

use std::collections::{BTreeMap, BTreeSet};

use dunlin_engine::room::RoomKey;
use dunlin_rooms::PlayerId;

use super::NodeWorld;

/// Ticks in which everybody who reads must have the world as it is.
const QUIET_TICKS: u32 = 2;
/// Ticks in which rooms without players must be gone, beyond those that they wait.
const CLOSING_TICKS: u32 = 50;

impl NodeWorld {
    /// The node is at rest but for its rooms: they tick a few times more, and everybody who is in one follows. Returns
    /// whether it was so, and stays so.
    pub(super) fn rooms_rest(&mut self, quiet_ticks: &mut u32) -> Result<bool, String> {
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

    /// The node must be at rest.
    fn check_rooms(&self) -> Result<(), String> {
        let pages = self.model.rooms.pages();
        let mut believed: BTreeMap<RoomKey, BTreeSet<PlayerId>> = BTreeMap::new();
        for client in self.clients.iter().filter(|client| self.is_live(client)) {
            for subscription in client.subscriptions.values() {
                let Some(seat) = &subscription.seat else { continue };
                seat.check_complete(&pages)
                    .map_err(|error| format!("client {} in {} at rest: {error}", client.index, subscription.channel))?;
                if !believed.entry(seat.room).or_default().insert(seat.player) {
                    return Err(format!("two clients are {:?} of {:?}", seat.player, seat.room));
                }
            }
        }
        let seated: usize = believed.values().map(BTreeSet::len).sum();
        for hosted in self.threads.hosted() {
            let room = hosted.host.key();
            let life = &pages.lives[&room];
            let believed = believed.remove(&room).unwrap_or_default();
            // Those who are away are in the world alone.
            let in_world = hosted.runner.room().player_count().saturating_sub(life.away.len());
            let counts = (hosted.host.player_count(), in_world);
            let players: BTreeSet<PlayerId> =
                life.players.keys().filter(|player| !life.away.contains(player)).copied().collect();
            if players != believed || counts != (believed.len(), believed.len()) {
                return Err(format!("{room:?} has {counts:?} players, {players:?}, and should have {believed:?}"));
            }
            if hosted.runner.inputs_senseless() != life.senseless {
                let counted = hosted.runner.inputs_senseless();
                return Err(format!("{counted} inputs without sense were counted, and there were {}", life.senseless));
            }
        }
        let seats: usize = self.places.iter().map(|place| place.shard.room_holdings()[0]).sum();
        if seats != seated {
            return Err(format!("{seats} seats are taken, and should be {seated}"));
        }
        match believed.first_key_value() {
            Some((room, players)) => Err(format!("{players:?} believe to be in {room:?}, which is not there")),
            None => Ok(()),
        }
    }

    /// Everybody has left: rooms find that they are idle, and their owners close them.
    pub(super) fn await_closed_rooms(&mut self) -> Result<(), String> {
        let Some(rooms) = &self.plan.rooms else { return Ok(()) };
        let (tick_us, ticks) = (rooms.tick_us, rooms.empty_ticks_max + rooms.seat_grace_ticks + CLOSING_TICKS);
        for _ in 0..ticks {
            self.pass_time(tick_us)?;
            self.settle_messages()?;
        }
        let pages = self.model.rooms.pages();
        let left = self
            .threads
            .hosted()
            .map(|hosted| hosted.host.key())
            .chain(pages.lives.iter().filter(|(_, life)| life.ended.is_empty()).map(|(room, _)| *room));
        let left: Vec<RoomKey> = left.collect();
        if !left.is_empty() {
            return Err(format!("{left:?} are still there"));
        }
        let (mut held, mut opened, mut over) = ([0; 2], 0, 0);
        for place in &self.places {
            let [seats, rooms] = place.shard.room_holdings();
            held = [held[0] + seats, held[1] + rooms];
            for counters in &place.shard.counters().namespaces {
                opened += counters.rooms.opened;
                over += counters.rooms.closed + counters.rooms.failed;
            }
        }
        let lives = pages.lives.len() as u64;
        if held == [0; 2] && (opened, over) == (lives, lives) {
            Ok(())
        } else {
            Err(format!("seats and rooms left {held:?}, opened {opened}, over {over}, of {lives}"))
        }
    }
}
