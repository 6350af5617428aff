//! The leases of the nodes.

use std::collections::BTreeSet;

use dunlin_cluster::core::leases::LeaseChange;

use super::{ClusteredWorld, JetStream, peers::FORGOTTEN_AFTER_US};

/// With connections that are up for so long, a node renews its lease.
const HELD_FOR_US: u64 = 4_000_000;

/// What the servers of nodes with leases do.
pub(super) const fn prepare(jetstream: &mut JetStream, seed: u64) {
    jetstream.is_single = seed.is_multiple_of(2);
    // For longer than a lease lasts.
    jetstream.election_max_us = 2_500_000;
}

impl ClusteredWorld<'_> {
    /// A lease has changed by or for a node.
    pub(super) fn lease_changed(&mut self, place: usize, change: &LeaseChange) {
        self.count(match change {
            LeaseChange::Began { .. } => "lease begun",
            LeaseChange::Lost { .. } => "lease lost",
            LeaseChange::Took { .. } => "lease taken",
        });
        // Renewals get through, and elections take less time than a lease lasts.
        let is_safe = self.jetstream.timeouts == 0 && !self.loses_ends && self.is_sound_for(place, HELD_FOR_US);
        let is_false = match change {
            LeaseChange::Began { .. } => false,
            LeaseChange::Lost { .. } => self.is_calm || is_safe,
            LeaseChange::Took { .. } => self.is_calm,
        };
        if is_false {
            self.peers.false_change = Some(format!("node {place}: {change:?}, and its renewals get through"));
        }
    }

    /// Nothing fails any more: each node that runs holds its lease, and nobody else does.
    pub(super) fn check_leases(&self) -> Result<(), String> {
        if !self.peers.is_on {
            return Ok(());
        }
        let held = self.jetstream.held_leases();
        let running: BTreeSet<String> = self.nodes.iter().map(|node| node.name.clone()).collect();
        if held != running {
            return Err(format!("the leases of {held:?} are held at rest, and {running:?} run"));
        }
        for place in (0..self.nodes.len()).filter(|place| self.is_sound_for(*place, FORGOTTEN_AFTER_US)) {
            let leases = self.nodes[place].core.counters().leases;
            if leases.term == 0 || leases.others as usize + 1 != running.len() {
                return Err(format!("node {place} knows of other leases than are held at rest: {leases:?}"));
            }
        }
        Ok(())
    }
}
