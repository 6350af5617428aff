//! Deadlines. Each session and channel has at most one valid entry, at or before its earliest deadline. When an entry
//! expires, its owner checks its deadlines and schedules the next one, so postponing a deadline costs nothing. Invalid
//! entries stay until they expire, or until they outnumber the valid ones.

use std::{cmp::Reverse, collections::BinaryHeap, sync::Arc};

use crate::{SessionKey, shrink::shrink_heap};

/// The owner of a deadline.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TimerOwner {
    Session(SessionKey),
    /// A channel, the joins that ask the other nodes again for its room, or its paced subscribers. A variant of their own would
    /// make each timer of a session larger.
    Channel(Arc<str>),
}

/// All deadlines of a shard.
#[derive(Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(u64, TimerOwner)>>,
    /// Upper bound on the number of invalid entries.
    void: usize,
}

/// Number of invalid entries that are too few to search for.
const VOID_ENTRIES_KEPT: usize = 64;

/// The time of an owner's entry. The owner stores it, to recognize invalid entries.
///
/// Eight bytes, in each channel and session: the maximum time means no entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scheduled(u64);

impl Default for Scheduled {
    fn default() -> Self {
        Self::NEVER
    }
}

impl Timers {
    /// Ensures that `owner` has an entry at or before `due_us`.
    pub(crate) fn schedule(&mut self, scheduled: &mut Scheduled, due_us: u64, owner: impl FnOnce() -> TimerOwner) {
        if due_us < scheduled.0 {
            self.void += usize::from(scheduled.is_set());
            scheduled.0 = due_us;
            self.heap.push(Reverse((due_us, owner())));
        }
    }

    /// The next entry whose time has come, with that time; the owner checks it with [`Scheduled::take`].
    pub(crate) fn pop(&mut self, now_us: u64) -> Option<(u64, TimerOwner)> {
        if self.next_us()? > now_us {
            return None;
        }
        let entry = self.heap.pop().map(|Reverse(entry)| entry);
        shrink_heap(&mut self.heap);
        entry
    }

    /// Invalidates the entry of an owner that has ended.
    pub(crate) fn abandon(&mut self, scheduled: Scheduled) {
        self.void += usize::from(scheduled.is_set());
    }

    /// An invalid entry has expired.
    pub(crate) fn count_popped_invalid(&mut self) {
        self.void = self.void.saturating_sub(1);
    }

    /// Removes the invalid entries once they are the majority; `counts` tells by time and owner whether an entry is
    /// valid. The amortized cost is one check per entry.
    pub(crate) fn tidy(&mut self, counts: impl Fn(u64, &TimerOwner) -> bool) {
        if self.void <= VOID_ENTRIES_KEPT || self.void * 2 <= self.heap.len() {
            return;
        }
        self.heap.retain(|Reverse((due_us, owner))| counts(*due_us, owner));
        self.heap.shrink_to(self.heap.len() * 2);
        self.void = 0;
    }

    /// When the next entry expires.
    pub(crate) fn next_us(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((due_us, _))| *due_us)
    }

    /// The number of entries, including invalid ones.
    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }
}

impl Scheduled {
    const NEVER: Self = Self(u64::MAX);

    fn is_set(self) -> bool {
        self != Self::NEVER
    }

    /// Whether the entry at `due_us` is the valid one.
    pub(crate) fn is_at(self, due_us: u64) -> bool {
        self.is_set() && self.0 == due_us
    }

    /// Whether the entry at `due_us` is the valid one; if so, it is consumed.
    pub(crate) fn take(&mut self, due_us: u64) -> bool {
        let counts = self.is_set() && self.0 == due_us;
        if counts {
            *self = Self::NEVER;
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_deadlines_add_no_entry_and_earlier_ones_replace_it() {
        let key = SessionKey { index: 0, generation: 0 };
        let (mut timers, mut scheduled) = (Timers::default(), Scheduled::default());
        let mut at = |timers: &mut Timers, due_us| timers.schedule(&mut scheduled, due_us, || TimerOwner::Session(key));
        at(&mut timers, 50);
        at(&mut timers, 90);
        assert_eq!(timers.len(), 1);
        at(&mut timers, 20);
        assert_eq!(timers.next_us(), Some(20));
        assert_eq!(timers.pop(19), None);
        assert_eq!(timers.pop(20), Some((20, TimerOwner::Session(key))));
        assert!(scheduled.take(20));
        assert_eq!(timers.pop(60), Some((50, TimerOwner::Session(key))));
        assert!(!scheduled.take(50), "an earlier entry replaced this one");
    }
}
