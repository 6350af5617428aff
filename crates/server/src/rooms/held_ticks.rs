//! Holds messages and calls of ticks until the inputs of those ticks are logged. A crash may lose a tick that no client
//! has seen, but no tick that a client has seen.

use std::{collections::VecDeque, sync::Arc};

use dunlin_engine::{
    host::RoutedMessage,
    room::{FromRoom, NotJoined},
};
use dunlin_rooms::GameCall;

use super::survival::RoomEntries;

/// A tick whose messages wait for its log record.
pub(super) struct HeldTick {
    /// The number of ticks up to and including this one.
    pub(super) tick_count: u64,
    pub(super) messages: Vec<RoutedMessage>,
    /// Calls of the game.
    pub(super) calls: Vec<GameCall>,
}

/// The ticks whose messages wait, in order.
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

    /// Whether the maximum number of ticks waits.
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

    /// Why logging has stopped, if it has.
    pub(super) fn fault(&self) -> Option<&str> {
        self.entries.fault()
    }

    /// Removes and returns the calls of a room that ends without continuing after a restart.
    pub(super) fn take_calls(&mut self) -> Vec<GameCall> {
        self.ticks.iter_mut().flat_map(|tick| std::mem::take(&mut tick.calls)).collect()
    }

    /// Releases all messages, because the room will not continue after a restart, so clients may see ticks that are not
    /// logged.
    pub(super) fn release_all(self, outgoing: &mut Vec<RoutedMessage>) {
        outgoing.extend(self.ticks.into_iter().flat_map(|tick| tick.messages));
    }

    /// Drops the messages of ticks that are not logged, because the room may continue after a restart without these
    /// ticks. Their joins are answered with `why`: they may ask again, wherever the room goes on.
    pub(super) fn discard(self, why: &NotJoined, outgoing: &mut Vec<RoutedMessage>) {
        for (shard, message) in self.ticks.into_iter().flat_map(|tick| tick.messages) {
            if let FromRoom::Joined { room, request, .. } = message {
                outgoing.push((shard, FromRoom::Joined { room, request, outcome: Err(why.clone()) }));
            }
        }
    }
}
