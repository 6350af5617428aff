//! Runs a node until nothing is in flight, and ends a run.

use dunlin_engine::Event;

use crate::{client::ClientPhase, socket::ServerSide};

use super::{NodeWorld, connections::Service};

/// Rounds after which nothing may be in flight: longer than all stalls, token verifications and timeouts.
const ROUNDS_MAX: u32 = 4_000;
/// Longer than all timeouts and retention times.
const EXPIRE_ALL_US: u64 = 400_000_000;

impl NodeWorld {
    /// Delivers everything that is in flight, without new actions of clients.
    pub(super) fn settle(&mut self) -> Result<(), String> {
        self.reconfigure_all()?;
        for ring in &mut self.node.rings {
            ring.stall(0);
        }
        (0..self.threads.rings.len()).for_each(|ring| self.threads.rings.stall(ring, 0));
        // Otherwise rooms would tick forever.
        self.threads.is_settling = true;
        let mut quiet_ticks = 0;
        for _ in 0..ROUNDS_MAX {
            self.settle_messages()?;
            for number in 0..self.connections.len() {
                if !self.connections[number].is_over() {
                    self.serve(number, Service::Full)?;
                }
            }
            (0..self.node.threads.len()).try_for_each(|shard| self.end_turn(shard, Service::Full))?;
            if self.is_at_rest() && self.settle_rooms(&mut quiet_ticks)? {
                self.threads.is_settling = false;
                return Ok(());
            }
            self.pass_time(2_000)?;
        }
        Err("messages are still in flight after the maximum number of rounds".to_owned())
    }

    /// Delivers messages of all rings.
    pub(super) fn settle_messages(&mut self) -> Result<(), String> {
        self.harness.steps += 1;
        for ring in 0..self.node.rings.len() {
            for _ in 0..4 {
                self.deliver(ring)?;
            }
        }
        self.deliver_all_room_messages()
    }

    fn is_at_rest(&self) -> bool {
        let is_still = |connection: &crate::socket::SimConnection| {
            connection.is_over()
                || connection.server == ServerSide::Open
                    && connection.client_is_there
                    && connection.to_server.is_empty()
                    && connection.kernel.is_empty()
                    && !connection.is_dirty
        };
        self.node.is_still()
            && self.node.threads.iter().all(|thread| thread.recalled.is_empty())
            && self.threads.is_at_rest()
            && self.verifications.is_empty()
            && !self.proxy_requests.iter().any(|request| request.0.blocks_command())
            && self.connections.iter().all(is_still)
    }

    /// Ends a run: all clients leave, and the node must not hold anything.
    pub(super) fn end(&mut self) -> Result<(), String> {
        self.settle()?;
        self.check_at_rest()?;
        if self.plan.drains {
            self.actions.drained = true;
            for shard in 0..self.node.threads.len() {
                self.handle(shard, Event::Drain)?;
            }
            for _ in 0..60 {
                self.step()?;
            }
        }
        for index in 0..self.clients.len() {
            match self.clients[index].phase {
                ClientPhase::Live if self.harness.chance.percent(40) => self.send_close(index, Some(1000)),
                _ => self.drop_client(index),
            }
        }
        self.settle()?;
        self.await_closed_rooms()?;
        self.pass_time(EXPIRE_ALL_US)?;
        self.check_nothing_left()
    }
}
