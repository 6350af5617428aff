//! The rings of a shard: to and from the other shards of its node, and to and from the room threads.

use dunlin_engine::{
    Event, ShardIndex,
    message::ShardMessage,
    room::{RoomThreadIndex, ToRoom},
};

use super::{NetCounters, engine::Engine, peers::Peers};
use crate::{ring::SentTo, rooms::RoomLinks, telemetry::session_events::RingOverflow};

/// Maximum number of messages read from one ring per turn: about the number of frames that one write sends.
const MESSAGES_PER_TURN: usize = 64;

/// The rings of one shard.
pub(super) struct Rings {
    index: ShardIndex,
    peers: Peers,
    rooms: RoomLinks,
    /// Until when `held_us` has been counted, if the last turn read no input because of an overflow.
    held_since_us: Option<u64>,
    /// Counters; see [`NetCounters`].
    messages: u64,
    overflowed: u64,
    held_turns: u64,
    holds: u64,
    held_us: u64,
    wakes: u64,
}

impl Rings {
    pub(super) const fn new(index: ShardIndex, peers: Peers, rooms: RoomLinks) -> Self {
        Self {
            index,
            peers,
            rooms,
            held_since_us: None,
            messages: 0,
            overflowed: 0,
            held_turns: 0,
            holds: 0,
            held_us: 0,
            wakes: 0,
        }
    }

    /// Begins a turn. Returns whether it may read input that can cause messages.
    pub(super) fn begin_turn(&mut self, now_us: u64) -> bool {
        self.flush();
        let intake = self.may_take_in();
        self.held_turns += u64::from(!intake);
        // In each turn and not at the end of the hold only, so that a report during a long hold has it.
        self.held_us += self.held_since_us.map_or(0, |since_us| now_us - since_us);
        if intake == self.held_since_us.is_some() {
            self.holds += u64::from(!intake);
            RingOverflow { shard: self.index, waiting: self.peers.overflow_len() }.emit();
        }
        self.held_since_us = (!intake).then_some(now_us);
        intake
    }

    pub(super) fn send(&mut self, to: ShardIndex, message: ShardMessage) {
        let sent = self.peers.send(to, message);
        self.count(sent);
    }

    pub(super) fn send_to_room(&mut self, thread: RoomThreadIndex, message: ToRoom) {
        let sent = self.rooms.send(thread, message);
        self.count(sent);
    }

    fn count(&mut self, sent: SentTo) {
        self.messages += 1;
        self.overflowed += u64::from(sent == SentTo::Overflow);
    }

    /// Moves messages from overflows to their rings while there is space.
    pub(super) fn flush(&mut self) {
        self.peers.flush();
        self.rooms.flush();
    }

    /// Wakes the receivers of sent messages.
    pub(super) fn announce(&mut self) {
        self.wakes += self.peers.announce() + self.rooms.announce();
    }

    /// Wakes the threads that wait for space in their rings to this shard.
    pub(super) fn announce_room(&mut self) {
        self.wakes += self.peers.announce_room() + self.rooms.announce_room();
    }

    /// Whether input that can cause messages may be read.
    pub(super) fn may_take_in(&self) -> bool {
        self.peers.may_take_in()
    }

    /// Whether there is a message that may be read. Those of room threads cause notices, as requests do.
    pub(super) fn has_messages(&self) -> bool {
        self.peers.has_messages() || (self.peers.may_take_requests() && self.rooms.has_messages())
    }

    /// Passes messages to the engine: the same number from each ring, so that none delays the others.
    pub(super) fn deliver(&mut self, engine: &mut Engine) {
        for place in 0..self.peers.len() {
            let from = ShardIndex(place as u16);
            for _ in 0..MESSAGES_PER_TURN {
                if !engine.takes_more() {
                    return;
                }
                let Some(notice) = self.peers.next_notice(place) else { break };
                engine.handle(Event::Message { from, message: ShardMessage::Notice(notice) });
            }
            // The messages caused by requests are still in the effects; they count in the next turn.
            for _ in 0..self.requests_per_turn() {
                if !engine.takes_more() {
                    return;
                }
                let Some(request) = self.peers.next_request(place) else { break };
                engine.handle(Event::Message { from, message: ShardMessage::Request(request) });
            }
        }
        for place in 0..self.rooms.len() {
            let from = RoomThreadIndex(place as u16);
            for _ in 0..self.requests_per_turn() {
                if !engine.takes_more() {
                    return;
                }
                let Some(message) = self.rooms.next(place) else { break };
                engine.handle(Event::FromRoom { from, message });
            }
        }
    }

    fn requests_per_turn(&self) -> usize {
        if self.peers.may_take_requests() { MESSAGES_PER_TURN } else { 0 }
    }

    pub(super) fn count_into(&self, net: &mut NetCounters) {
        net.ring_messages += self.messages;
        net.ring_overflowed += self.overflowed;
        net.held_turns += self.held_turns;
        net.holds += self.holds;
        net.held_us += self.held_us;
        net.wakes += self.wakes;
        net.ring_overflow = (self.peers.overflow_len() + self.rooms.overflow_len()) as u64;
        net.ring_depth = (self.peers.depth() + self.rooms.depth()) as u64;
    }
}
