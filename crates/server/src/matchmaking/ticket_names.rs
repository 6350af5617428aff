//! The names of tickets that other nodes have named.

use std::collections::HashMap;

use dunlin_matchmaking::TicketId;

use super::TicketName;

/// The tickets of a queue that were handed over to it. They keep their names.
#[derive(Debug, Default)]
pub(super) struct TicketNames {
    by_name: HashMap<TicketName, TicketId>,
    by_id: HashMap<TicketId, TicketName>,
}

impl TicketNames {
    pub(super) fn insert(&mut self, name: TicketName, id: TicketId) {
        self.by_name.insert(name, id);
        self.by_id.insert(id, name);
    }

    pub(super) fn id_of(&self, name: TicketName) -> Option<TicketId> {
        self.by_name.get(&name).copied()
    }

    pub(super) fn name_of(&self, id: TicketId) -> Option<TicketName> {
        self.by_id.get(&id).copied()
    }

    pub(super) fn remove(&mut self, id: TicketId) {
        if let Some(name) = self.by_id.remove(&id) {
            self.by_name.remove(&name);
        }
    }

    /// Removes the names of tickets that are no longer known.
    pub(super) fn retain(&mut self, is_known: impl Fn(TicketId) -> bool) {
        self.by_name.retain(|_, id| is_known(*id));
        self.by_id.retain(|id, _| is_known(*id));
    }
}
