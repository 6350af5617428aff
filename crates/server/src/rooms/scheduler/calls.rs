//! Calls of games to the backend, and their results.

use std::sync::Arc;

use dunlin_rooms::GameCall;

use super::Scheduler;
use crate::rooms::{
    calls::{CallingRoom, ReturnedCall},
    held_ticks::HeldTicks,
};

impl Scheduler {
    /// Passes the results of calls to their rooms.
    pub(in crate::rooms) fn take_returned_calls(&mut self) {
        while let Some(ReturnedCall { room, call, result }) = self.calls.next() {
            let place = self.by_key.get(&room);
            let scheduled_room = place.and_then(|&place| self.places[place].as_mut());
            if !scheduled_room.is_some_and(|scheduled_room| scheduled_room.take_answer(call, result)) {
                // The room has ended.
                self.counters.calls.late += 1;
            }
        }
    }

    /// Sends calls of a room.
    pub(super) fn send_calls(&self, place: usize, calls: Vec<GameCall>) {
        let Some(scheduled_room) = self.places[place].as_ref().filter(|_| !calls.is_empty()) else { return };
        // Without a proxy the world refuses calls.
        let Some(proxy) = scheduled_room.settings.call_proxy else { return };
        let channel = Arc::clone(&scheduled_room.channel);
        self.calls.send(&CallingRoom { key: scheduled_room.key, channel, proxy }, calls);
    }

    /// Sends the calls that wait for the log of a room that ends.
    pub(super) fn send_held_calls(&mut self, place: usize) {
        let held = self.places[place].as_mut().and_then(|scheduled_room| scheduled_room.held.as_mut());
        let calls = held.map_or_else(Vec::new, HeldTicks::take_calls);
        self.send_calls(place, calls);
    }
}
