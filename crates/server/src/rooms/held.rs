//! Messages and calls of ticks, held until the inputs of those ticks are logged. A crash may lose what no client has seen, and nothing
//! that a client has seen.

use std::{collections::VecDeque, sync::Arc};

use dunlin_engine::{
    host::RoutedMessage,
    room::{FromRoom, NotJoined},
};
use dunlin_rooms::GameCall;

use super::survival::RoomEntries;

/// A tick that waits.
pub(super) struct HeldTick {
    /// The count of the tick.
    pub(super) tick_count: u64,
    pub(super) messages: Vec<RoutedMessage>,
    /// Calls of the game.
    pub(super) calls: Vec<GameCall>,
}

/// Ticks whose messages wait, in order.
pub(super) struct HeldTicks {
    entries: Arc<RoomEntries>,
    ticks: VecDeque<HeldTick>,
    ticks_max: usize,
}

impl HeldTicks {
    pub(super) fn new(entries: Arc<RoomEntries>, ticks_max: usize) -> Self {
        Self { entries, ticks: VecDeque::new(), ticks_max: ticks_max.max(1) }
    }

    /// Adds a tick.
    pub(super) fn hold(&mut self, tick: HeldTick) {
        self.ticks.push_back(tick);
    }

    /// Whether as many ticks wait as may.
    pub(super) fn is_full(&self) -> bool {
        self.ticks.len() >= self.ticks_max
    }

    /// Whether no tick waits.
    pub(super) fn is_empty(&self) -> bool {
        self.ticks.is_empty()
    }

    /// Moves the messages of logged ticks to `outgoing`. Returns their calls.
    pub(super) fn release(&mut self, outgoing: &mut Vec<RoutedMessage>) -> Vec<GameCall> {
        let logged = self.entries.logged();
        let mut released = Vec::new();
        while let Some(HeldTick { messages, calls, .. }) = self.ticks.pop_front_if(|tick| tick.tick_count <= logged) {
            outgoing.extend(messages);
            released.extend(calls);
        }
        released
    }

    /// Why nothing is logged any more.
    pub(super) fn fault(&self) -> Option<&str> {
        self.entries.fault()
    }

    /// Takes out the calls of a room that ends for ever.
    pub(super) fn take_calls(&mut self) -> Vec<GameCall> {
        self.ticks.iter_mut().flat_map(|tick| std::mem::take(&mut tick.calls)).collect()
    }

    /// The room ends for ever: what happened in it may be seen.
    pub(super) fn release_all(self, outgoing: &mut Vec<RoutedMessage>) {
        outgoing.extend(self.ticks.into_iter().flat_map(|tick| tick.messages));
    }

    /// The room may go on without what is not logged: nobody sees it. Who waits for an answer gets one.
    pub(super) fn discard(self, outgoing: &mut Vec<RoutedMessage>) {
        for (shard, message) in self.ticks.into_iter().flat_map(|tick| tick.messages) {
            if let FromRoom::Joined { room, request, .. } = message {
                outgoing.push((shard, FromRoom::Joined { room, request, outcome: Err(NotJoined::Gone) }));
            }
        }
    }
}
