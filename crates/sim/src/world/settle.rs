//! Brings a run to rest and ends it.

use dunlin_engine::Event;

use crate::{client::ClientPhase, socket::ServerSide};

use super::{NodeWorld, connections::Service};

/// Rounds in which everything must have come to rest: longer than any stall, token, or timeout.
const ROUNDS_MAX: u32 = 4_000;
/// Longer than everything that is remembered.
const FOREVER_US: u64 = 400_000_000;

impl NodeWorld {
    /// Lets everything that is under way arrive, while clients do nothing new.
    pub(super) fn settle(&mut self) -> Result<(), String> {
        self.reconfigure_all()?;
        for ring in &mut self.rings {
            ring.stall(0);
        }
        (0..self.threads.ring_count()).for_each(|ring| self.threads.stall(ring, 0));
        // Worlds would go on for ever.
        self.threads.rests = true;
        let mut quiet_ticks = 0;
        for _ in 0..ROUNDS_MAX {
            self.settle_messages()?;
            for number in 0..self.connections.len() {
                if !self.connections[number].is_over() {
                    self.serve(number, Service::Full)?;
                }
            }
            (0..self.places.len()).try_for_each(|shard| self.end_turn(shard, Service::Full))?;
            if self.is_at_rest() && self.rooms_rest(&mut quiet_ticks)? {
                self.threads.rests = false;
                return Ok(());
            }
            self.pass_time(2_000)?;
        }
        Err("never comes to rest".to_owned())
    }

    /// Moves messages on all rings.
    pub(super) fn settle_messages(&mut self) -> Result<(), String> {
        self.steps += 1;
        for ring in 0..self.rings.len() {
            for _ in 0..4 {
                self.deliver(ring)?;
            }
        }
        self.deliver_all_of_rooms()
    }

    fn is_at_rest(&self) -> bool {
        let is_still = |connection: &crate::socket::SimConnection| {
            connection.is_over()
                || connection.server == ServerSide::Open
                    && connection.client_is_there
                    && connection.upward.is_empty()
                    && connection.kernel.is_empty()
                    && !connection.is_dirty
        };
        self.rings.iter().all(crate::ring::ShardRing::is_empty)
            && self.places.iter().all(|place| place.recalled.is_empty())
            && self.threads.is_at_rest()
            && self.verifications.is_empty()
            && !self.questions.iter().any(|question| question.0.is_waited_for())
            && self.connections.iter().all(is_still)
    }

    /// Everyone leaves, by one door or another; nothing may stay behind.
    pub(super) fn end(&mut self) -> Result<(), String> {
        self.settle()?;
        self.census()?;
        if self.plan.drains {
            self.deeds.drained = true;
            for shard in 0..self.places.len() {
                self.handle(shard, Event::Drain)?;
            }
            for _ in 0..60 {
                self.step()?;
            }
        }
        for index in 0..self.clients.len() {
            match self.clients[index].phase {
                ClientPhase::Live if self.chance.percent(40) => self.send_close(index, Some(1000)),
                _ => self.drop_client(index),
            }
        }
        self.settle()?;
        self.await_closed_rooms()?;
        self.pass_time(FOREVER_US)?;
        self.check_nothing_left()
    }
}
