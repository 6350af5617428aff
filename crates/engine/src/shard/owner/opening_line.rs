//! Channels whose joins wait until this node may open one more room. They take turns in the order in which they came, and
//! before all others. The other nodes are asked again when the turn of a channel has come, and not before.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// A channel's place in the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PlaceInLine(u64);

/// The line. Each channel in it has joins that wait, so these bound it.
#[derive(Debug, Default)]
pub(super) struct OpeningLine {
    arrived: u64,
    waiting: BTreeMap<PlaceInLine, Arc<str>>,
    /// Channels whose turn has come, until the other nodes have answered. Each holds one of the openings.
    called: BTreeSet<Arc<str>>,
    /// Whether a request that does not wait in line was the last to open a room while channels waited.
    was_passed: bool,
}

impl OpeningLine {
    pub(super) fn enter(&mut self, channel: Arc<str>) -> PlaceInLine {
        self.arrived += 1;
        let place = PlaceInLine(self.arrived);
        self.waiting.insert(place, channel);
        place
    }

    /// No join of the channel waits in the line any more.
    pub(super) fn leave(&mut self, place: PlaceInLine) {
        self.waiting.remove(&place);
    }

    pub(super) fn first(&self) -> Option<&Arc<str>> {
        self.waiting.first_key_value().map(|(_, channel)| channel)
    }

    /// The turn of the first channel has come, with one of the openings.
    pub(super) fn call_first(&mut self) -> Option<Arc<str>> {
        let (_, channel) = self.waiting.pop_first()?;
        self.called.insert(Arc::clone(&channel));
        self.was_passed = false;
        Some(channel)
    }

    /// A request that does not wait in line opens a room before the first channel, if it is its turn: after each of them, one of the
    /// channels is next.
    pub(super) fn pass(&mut self) -> bool {
        !std::mem::replace(&mut self.was_passed, true)
    }

    /// Removes the first channel, for which there is no opening.
    pub(super) fn dismiss_first(&mut self) -> Option<Arc<str>> {
        self.waiting.pop_first().map(|(_, channel)| channel)
    }

    /// Ends a channel's turn. Returns whether it was one.
    pub(super) fn end_turn(&mut self, channel: &str) -> bool {
        self.called.remove(channel)
    }

    /// The number of openings that channels hold.
    pub(super) fn called(&self) -> usize {
        self.called.len()
    }
}
