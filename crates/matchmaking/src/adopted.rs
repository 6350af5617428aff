//! Rooms that others have opened, and that get tickets all the same.

use std::sync::Arc;

use crate::{MatchCriteria, MatchEffect, MatchRoomId, Matchmaker, OpenFailure, room::MatchRoom};

/// A room that the matchmaker has not opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenedRoom {
    /// Its channel.
    pub channel: Arc<str>,
    /// Its number, which no later room of the channel has.
    pub number: u64,
    /// What its tickets must have in common; `None` if no ticket can have it.
    pub criteria: Option<MatchCriteria>,
    /// Its region.
    pub region: Option<Arc<str>>,
}

impl Matchmaker {
    /// Whether a room is known: one that the matchmaker has opened, or that it has adopted.
    pub fn has_room(&self, channel: &str, number: u64) -> bool {
        let room = self.channels.get(channel).and_then(|id| self.rooms.get(id));
        room.is_some_and(|room| room.adopted.is_none_or(|adopted| adopted == number))
    }

    /// Takes over a room that is not known. It gets tickets from the next report on. A room that the channel had before is closed.
    pub fn adopt_room(&mut self, now_ms: u64, opened: OpenedRoom, effects: &mut Vec<MatchEffect>) {
        let OpenedRoom { channel, number, criteria, region } = opened;
        if self.has_room(&channel, number) {
            return;
        }
        if let Some(before) = self.channels.get(&channel).copied() {
            self.close_room(now_ms, before, OpenFailure::Failed, effects);
        }
        self.last_room += 1;
        let id = MatchRoomId(self.last_room);
        let takes_tickets = criteria.is_some();
        let (criteria, limits) =
            (self.known_criteria(criteria.unwrap_or_default()), (self.rules.players_max, self.reports));
        let mut room = MatchRoom::new(Arc::clone(&channel), criteria, region, now_ms, limits);
        (room.adopted, room.takes_tickets) = (Some(number), takes_tickets);
        // Until its first report.
        room.accepts = false;
        self.rooms.insert(id, room);
        self.channels.insert(channel, id);
    }
}
