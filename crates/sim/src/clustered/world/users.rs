//! Checks of the limit on the sessions of a user across all nodes.

use crate::harness::PromptWorld as _;

use super::{ClusteredWorld, peers::KNOWN_AFTER_US};

/// Time after which all nodes know a session, without faults: a heartbeat and the delays before and after it.
const COUNTED_AFTER_US: u64 = 700_000;
/// Time after which a client is admitted or rejected.
const CONNECTED_AFTER_US: u64 = 300_000;

impl ClusteredWorld<'_> {
    /// The user of a client. Clients use it as their token.
    pub(super) const fn user_of(number: usize) -> &'static str {
        if number % 3 == 2 { "" } else { "u0" }
    }

    /// Checks the limit if a client was just admitted. Sessions on other nodes only count after a heartbeat.
    pub(super) fn check_admitted(&mut self, number: usize) -> Result<(), String> {
        let client = &self.clients[number];
        let (id, user) = (client.client_id.clone(), client.session.user.clone());
        if user.is_empty() || !client.is_open() || self.peers.connected_us.contains_key(&id) {
            return Ok(());
        }
        let is_spread =
            self.is_calm && (0..self.nodes.len()).all(|node_index| self.delivers_for(node_index, KNOWN_AFTER_US));
        let node_index = client.session.at.map(|(node_index, _)| node_index);
        let mut counted = 0;
        for other in
            self.clients.iter().filter(|other| other.is_open() && other.session.user == user && other.client_id != id)
        {
            let since_us = self.peers.connected_us.get(&other.client_id).copied().unwrap_or(self.harness.now_us);
            let is_here = other.session.at.map(|(node_index, _)| node_index) == node_index;
            counted += usize::from(is_here || is_spread && since_us + COUNTED_AFTER_US <= self.harness.now_us);
        }
        self.peers.connected_us.insert(id, self.harness.now_us);
        let sessions_max = self.options.client.user_sessions_max;
        if sessions_max > 0 && counted >= sessions_max {
            return Err(format!("client {number} is admitted, but {user} has {counted} of {sessions_max} sessions"));
        }
        Ok(())
    }

    /// Ends the connections that the server closed.
    pub(super) fn end_closed(&mut self) -> Result<(), String> {
        for number in 0..self.clients.len() {
            let session = &self.clients[number].session;
            if session.at.is_some() && self.clients[number].is_over {
                self.harness.count(if session.is_connected { "closed by server" } else { "user rejected" });
                self.hang_up(number)?;
            }
        }
        Ok(())
    }

    /// Checks that, without faults, a user is admitted exactly while it is below the limit.
    pub(super) fn check_users(&mut self) -> Result<(), String> {
        let sessions_max = self.options.client.user_sessions_max;
        let is_delivering = (0..self.nodes.len()).all(|node_index| self.delivers_for(node_index, 3 * COUNTED_AFTER_US));
        if sessions_max == 0 || !is_delivering {
            return Ok(());
        }
        for number in 0..self.clients.len() {
            let user = self.clients[number].session.user.clone();
            if user.is_empty() || self.clients[number].session.at.is_some() {
                continue;
            }
            let sessions = self.clients.iter().filter(|client| client.is_open() && client.session.user == user).count();
            self.open(number)?;
            self.run_for(CONNECTED_AFTER_US)?;
            let is_admitted = self.clients[number].is_open();
            if is_admitted != (sessions < sessions_max) {
                let what = if is_admitted { "admitted" } else { "rejected" };
                return Err(format!("client {number} is {what} at rest: {sessions} of {sessions_max} sessions"));
            }
            self.harness.count("user at rest");
            self.run_for(COUNTED_AFTER_US)?;
        }
        Ok(())
    }
}
