//! The subscribers of a channel that have stated a pace, of one frame class and with one filter.
//!
//! They share a table with the newest publication of each key. A publication is put there once, whatever the number of
//! subscribers: none of them is visited. Each has a *turn* at most once in its interval, in which it is queued the newest
//! publication of each key that has changed since its last turn. So no key's last publication is lost, and none waits for
//! longer than an interval.
//!
//! A subscriber *rests* from its turn until its interval is over. If nothing waits for it then, it is *ready*: its next
//! turn is as soon as something is published.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
};

use hashbrown::HashMap;

use crate::{frame::FrameRef, options::ClientOptions, pace::UpdatePace};

/// Entries of the table, and of the lists of places, below which nothing is searched for entries that nobody needs.
const KEPT_ENTRIES: usize = 64;
/// Subscribers that a search for such entries may visit for each publication since the last one.
const VISITS_PER_PUBLICATION: usize = 8;

#[derive(Debug, Default)]
pub(crate) struct PacedSubscribers {
    /// By number, which is the order of publication.
    newest: BTreeMap<u64, Newest>,
    /// The number of each key's publication.
    numbers: HashMap<u64, u64, foldhash::fast::FixedState>,
    /// The number of publications so far, which is the number of the last one.
    last_number: u64,
    bytes: usize,
    /// The number of entries at which those are searched for that all subscribers were queued.
    search_at: usize,
    /// By the place of the subscriber.
    turns: Vec<Turn>,
    /// The number of subscribers for which something waits.
    waiting: usize,
    /// Those that rest, by the end of their rest.
    resting: BinaryHeap<Reverse<(u64, u32)>>,
    /// Those whose rest is over, and for which nothing waits.
    ready: Vec<u32>,
    /// Those whose turn is now.
    open: Vec<u32>,
}

#[derive(Debug)]
struct Newest {
    key_hash: u64,
    frame: FrameRef,
}

/// When a subscriber has its turns. The lists of places may have outdated entries for it, which do not match it.
#[derive(Clone, Copy, Debug)]
struct Turn {
    pace: UpdatePace,
    /// The end of its rest; `None` if it does not rest.
    rests_until_us: Option<u64>,
    /// The number of the last publication before its last turn.
    taken_through: u64,
}

impl PacedSubscribers {
    /// Adds a subscriber at the next place. Nothing waits for it.
    pub(crate) fn add(&mut self, pace: UpdatePace) {
        let place = self.turns.len() as u32;
        self.turns.push(Turn { pace, rests_until_us: None, taken_through: self.last_number });
        self.ready.push(place);
        self.drop_outdated();
    }

    /// Removes the subscriber at `place`; the last one takes its place.
    pub(crate) fn remove(&mut self, place: u32) {
        let removed = self.turns.swap_remove(place as usize);
        self.waiting -= usize::from(removed.taken_through < self.last_number);
        if let Some(moved) = self.turns.get(place as usize) {
            let waits = moved.taken_through < self.last_number;
            match moved.rests_until_us {
                Some(until_us) => self.resting.push(Reverse((until_us, place))),
                None if waits => self.open.push(place),
                None => self.ready.push(place),
            }
        }
        self.drop_outdated();
        self.drop_taken();
    }

    /// Changes the pace of a subscriber.
    pub(crate) fn set_pace(&mut self, place: u32, pace: UpdatePace) {
        let turn = &mut self.turns[place as usize];
        let before = std::mem::replace(&mut turn.pace, pace);
        if let Some(until_us) = &mut turn.rests_until_us {
            *until_us = until_us.saturating_sub(before.interval_us()) + pace.interval_us();
            self.resting.push(Reverse((*until_us, place)));
            self.drop_outdated();
        }
    }

    /// A publication for all subscribers.
    pub(crate) fn put(&mut self, key_hash: u64, frame: FrameRef, client: &ClientOptions) {
        self.last_number += 1;
        self.bytes += frame.len();
        if let Some(before) = self.numbers.insert(key_hash, self.last_number)
            && let Some(replaced) = self.newest.remove(&before)
        {
            self.bytes -= replaced.frame.len();
        }
        self.newest.insert(self.last_number, Newest { key_hash, frame });
        self.waiting = self.turns.len();
        self.open.append(&mut self.ready);
        if self.newest.len() >= self.search_at {
            self.drop_taken_by_all();
        }
        // A turn must fit into the queue of a session with space left, as it does without a pace.
        if self.bytes > client.queue_bytes_max / 2 || self.newest.len() > client.queue_frames_max / 2 {
            self.open_all();
        }
    }

    /// When the next turn is: 0 for now, `None` while nothing waits.
    pub(crate) fn next_us(&self) -> Option<u64> {
        if self.waiting == 0 {
            return None;
        }
        let of_resting = self.resting.peek().map(|Reverse((until_us, _))| *until_us);
        if self.open.is_empty() { of_resting } else { Some(0) }
    }

    /// The next subscriber whose turn is now, if there is one, and the number of the last publication before its last
    /// turn. It rests from now on.
    pub(crate) fn begin_turn(&mut self, now_us: u64) -> Option<(u32, u64)> {
        let place = self.next_place(now_us)?;
        let turn = &mut self.turns[place as usize];
        let taken_through = std::mem::replace(&mut turn.taken_through, self.last_number);
        let until_us = now_us + turn.pace.interval_us();
        turn.rests_until_us = Some(until_us);
        self.waiting -= 1;
        self.resting.push(Reverse((until_us, place)));
        Some((place, taken_through))
    }

    /// The hash and the frame of each key that has changed after the publication `number`.
    pub(crate) fn newest_after(&self, number: u64) -> impl Iterator<Item = (u64, &FrameRef)> {
        self.newest.range(number + 1..).map(|(_, newest)| (newest.key_hash, &newest.frame))
    }

    /// The number of publications after the publication `number`.
    pub(crate) fn published_after(&self, number: u64) -> u64 {
        self.last_number - number
    }

    /// The number of the last publication before the last turn of the subscriber at `place`.
    pub(crate) fn taken_through(&self, place: u32) -> u64 {
        self.turns[place as usize].taken_through
    }

    /// Drops the publications if they wait for nobody. Call it after turns.
    pub(crate) fn drop_taken(&mut self) {
        if self.waiting == 0 && !self.newest.is_empty() {
            self.newest.clear();
            self.numbers = HashMap::default();
            (self.bytes, self.search_at) = (0, 0);
        }
    }

    /// The entries of the table, and of the lists of places.
    #[cfg(test)]
    fn holdings(&self) -> [usize; 2] {
        [self.newest.len(), self.resting.len() + self.ready.len() + self.open.len()]
    }

    /// A place whose turn is now.
    fn next_place(&mut self, now_us: u64) -> Option<u32> {
        loop {
            if let Some(place) = self.open.pop() {
                let is_open = |turn: &Turn| turn.rests_until_us.is_none() && turn.taken_through < self.last_number;
                if self.turns.get(place as usize).is_some_and(is_open) {
                    return Some(place);
                }
                continue;
            }
            let Reverse((until_us, place)) = *self.resting.peek().filter(|Reverse((until_us, _))| *until_us <= now_us)?;
            self.resting.pop();
            let Some(turn) = self.turns.get_mut(place as usize) else { continue };
            if turn.rests_until_us != Some(until_us) {
                continue;
            }
            turn.rests_until_us = None;
            if turn.taken_through < self.last_number {
                return Some(place);
            }
            self.ready.push(place);
        }
    }

    /// All turns are now.
    fn open_all(&mut self) {
        if self.resting.is_empty() {
            return;
        }
        for (place, turn) in (0_u32..).zip(&mut self.turns) {
            if turn.rests_until_us.take().is_some() {
                self.open.push(place);
            }
        }
        self.resting.clear();
    }

    /// Drops the publications that all subscribers were queued.
    fn drop_taken_by_all(&mut self) {
        let taken_through = self.turns.iter().map(|turn| turn.taken_through).min().unwrap_or(self.last_number);
        let kept = self.newest.split_off(&(taken_through + 1));
        for dropped in std::mem::replace(&mut self.newest, kept).into_values() {
            self.bytes -= dropped.frame.len();
            self.numbers.remove(&dropped.key_hash);
        }
        let visits = self.turns.len() / VISITS_PER_PUBLICATION;
        self.search_at = KEPT_ENTRIES.max(self.newest.len() * 2).max(self.newest.len() + visits);
    }

    /// Makes the lists of places anew if most of their entries are outdated.
    fn drop_outdated(&mut self) {
        if self.resting.len() + self.ready.len() + self.open.len() > 2 * self.turns.len() + KEPT_ENTRIES {
            self.list_places();
        }
    }

    fn list_places(&mut self) {
        self.resting.clear();
        self.ready.clear();
        self.open.clear();
        for (place, turn) in (0_u32..).zip(&self.turns) {
            match turn.rests_until_us {
                Some(until_us) => self.resting.push(Reverse((until_us, place))),
                None if turn.taken_through < self.last_number => self.open.push(place),
                None => self.ready.push(place),
            }
        }
    }
}
