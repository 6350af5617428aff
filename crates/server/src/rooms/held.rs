//! The messages of ticks that wait until what the ticks began with is logged. What nobody has seen may be lost in a crash;
//! what somebody has seen may not.

use std::{collections::VecDeque, sync::Arc};

use dunlin_engine::{
    host::RoutedMessage,
    room::{FromRoom, NotJoined},
};

use super::survival::RoomEntries;

/// Ticks whose messages wait, in order.
pub(super) struct HeldTicks {
    entries: Arc<RoomEntries>,
    ticks: VecDeque<(u64, Vec<RoutedMessage>)>,
    ticks_max: usize,
}

impl HeldTicks {
    pub(super) fn new(entries: Arc<RoomEntries>, ticks_max: usize) -> Self {
        Self { entries, ticks: VecDeque::new(), ticks_max: ticks_max.max(1) }
    }

    /// Adds the messages of the tick with this count.
    pub(super) fn hold(&mut self, tick_count: u64, messages: Vec<RoutedMessage>) {
        self.ticks.push_back((tick_count, messages));
    }

    /// Whether as many ticks wait as may.
    pub(super) fn is_full(&self) -> bool {
        self.ticks.len() >= self.ticks_max
    }

    /// Whether no tick waits.
    pub(super) fn is_empty(&self) -> bool {
        self.ticks.is_empty()
    }

    /// Moves the messages of logged ticks to `outgoing`.
    pub(super) fn release(&mut self, outgoing: &mut Vec<RoutedMessage>) {
        let logged = self.entries.logged();
        while let Some((_, messages)) = self.ticks.pop_front_if(|(tick_count, _)| *tick_count <= logged) {
            outgoing.extend(messages);
        }
    }

    /// Why nothing is logged any more.
    pub(super) fn fault(&self) -> Option<&str> {
        self.entries.fault()
    }

    /// The room ends for ever: what happened in it may be seen.
    pub(super) fn release_all(self, outgoing: &mut Vec<RoutedMessage>) {
        outgoing.extend(self.ticks.into_iter().flat_map(|(_, messages)| messages));
    }

    /// The room may go on without what is not logged: nobody sees it. Who waits for an answer gets one.
    pub(super) fn discard(self, outgoing: &mut Vec<RoutedMessage>) {
        for (shard, message) in self.ticks.into_iter().flat_map(|(_, messages)| messages) {
            if let FromRoom::Joined { room, request, .. } = message {
                outgoing.push((shard, FromRoom::Joined { room, request, outcome: Err(NotJoined::Gone) }));
            }
        }
    }
}
