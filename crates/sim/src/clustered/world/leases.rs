//! Checks of the leases of nodes.

use std::collections::BTreeSet;

use dunlin_cluster::core::leases::LeaseChange;

use super::{ClusteredWorld, JetStream, peers::FORGOTTEN_AFTER_US};

/// A node whose connections are up for this long must have renewed its lease.
const HELD_FOR_US: u64 = 4_000_000;

/// Configures the servers for nodes with leases.
pub(super) const fn prepare(jetstream: &mut JetStream, seed: u64) {
    jetstream.is_single = seed.is_multiple_of(2);
    // Longer than a lease is valid.
    jetstream.election_max_us = 2_500_000;
}

impl ClusteredWorld<'_> {
    /// Checks a change of a lease that a node reports.
    pub(super) fn lease_changed(&mut self, node_index: usize, change: &LeaseChange) {
        self.harness.count(match change {
            LeaseChange::Began { .. } => "lease begun",
            LeaseChange::Lost { .. } => "lease lost",
            LeaseChange::Took { .. } => "lease taken",
            LeaseChange::Gone => "lease gone",
        });
        // Renewals are delivered, and elections take less time than a lease is valid.
        let is_safe = self.jetstream.timeouts == 0
            && !self.truncates
            && !self.loses_streams
            && self.delivers_for(node_index, HELD_FOR_US);
        let is_false = match change {
            LeaseChange::Began { .. } => false,
            LeaseChange::Gone => !self.has_lost_stream,
            LeaseChange::Lost { .. } => self.is_calm || is_safe,
            LeaseChange::Took { .. } => self.is_calm,
        };
        if is_false {
            self.peers.false_change =
                Some(format!("node {node_index}: {change:?}, although its renewals are delivered"));
        }
    }

    /// Checks that, without faults, exactly the running nodes hold a lease.
    pub(super) fn check_leases(&self) -> Result<(), String> {
        if !self.peers.is_on {
            return Ok(());
        }
        let held = self.jetstream.held_leases();
        let running: BTreeSet<String> = self.nodes.iter().map(|node| node.name.clone()).collect();
        if held != running {
            return Err(format!("the leases of {held:?} are held at rest, but {running:?} run"));
        }
        for node_index in (0..self.nodes.len()).filter(|node_index| self.delivers_for(*node_index, FORGOTTEN_AFTER_US))
        {
            let leases = self.nodes[node_index].core.counters().leases;
            if leases.term == 0 || leases.others as usize + 1 != running.len() {
                return Err(format!("node {node_index} has different leases at rest: {leases:?}"));
            }
        }
        Ok(())
    }
}
