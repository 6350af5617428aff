//! Deadlines. Each session and channel has at most one valid entry, at or before its earliest deadline. When an entry
//! expires, its owner checks what is due and schedules the next one, so postponing a deadline costs nothing. Invalid
//! entries stay until they expire, or until they outnumber the valid ones.

use std::{cmp::Reverse, collections::BinaryHeap, sync::Arc};

use crate::{SessionKey, spare::shrink_heap};

/// Whose deadline it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TimerOwner {
    Session(SessionKey),
    Channel(Arc<str>),
}

/// All deadlines of a shard.
#[derive(Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(u64, TimerOwner)>>,
    /// Entries that no longer count, at most.
    void: usize,
}

/// Entries that no longer count and are not worth the work to look for them.
const VOID_ENTRIES_KEPT: usize = 64;

/// When an owner's entry is due; kept by the owner, so that obsolete entries can be recognized.
///
/// Eight bytes, in each channel and session: a time later than all others stands for no entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scheduled(u64);

impl Default for Scheduled {
    fn default() -> Self {
        Self::NEVER
    }
}

impl Timers {
    /// Sees to it that `owner` comes up at `due_us` or before.
    pub(crate) fn schedule(&mut self, scheduled: &mut Scheduled, due_us: u64, owner: impl FnOnce() -> TimerOwner) {
        if due_us < scheduled.0 {
            self.void += usize::from(scheduled.is_set());
            scheduled.0 = due_us;
            self.heap.push(Reverse((due_us, owner())));
        }
    }

    /// The next entry that is due, with its time; the owner checks it with [`Scheduled::take`].
    pub(crate) fn pop(&mut self, now_us: u64) -> Option<(u64, TimerOwner)> {
        if self.next_us()? > now_us {
            return None;
        }
        let entry = self.heap.pop().map(|Reverse(entry)| entry);
        shrink_heap(&mut self.heap);
        entry
    }

    /// The entry of an owner that has gone no longer counts.
    pub(crate) fn abandon(&mut self, scheduled: Scheduled) {
        self.void += usize::from(scheduled.is_set());
    }

    /// An entry came up that did not count.
    pub(crate) fn popped_void(&mut self) {
        self.void = self.void.saturating_sub(1);
    }

    /// Drops the entries that do not count, once they are the most; an entry counts if `counts` says so of its time and
    /// owner. An entry is looked at as often as one like it was added, on average.
    pub(crate) fn tidy(&mut self, counts: impl Fn(u64, &TimerOwner) -> bool) {
        if self.void <= VOID_ENTRIES_KEPT || self.void * 2 <= self.heap.len() {
            return;
        }
        self.heap.retain(|Reverse((due_us, owner))| counts(*due_us, owner));
        self.heap.shrink_to(self.heap.len() * 2);
        self.void = 0;
    }

    /// When the next entry comes up.
    pub(crate) fn next_us(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((due_us, _))| *due_us)
    }

    /// How many entries there are, those included that no longer count.
    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }
}

impl Scheduled {
    const NEVER: Self = Self(u64::MAX);

    fn is_set(self) -> bool {
        self != Self::NEVER
    }

    /// Whether the entry of `due_us` is the one that counts.
    pub(crate) fn is_at(self, due_us: u64) -> bool {
        self.is_set() && self.0 == due_us
    }

    /// Whether the entry of `due_us` is the one that counts; if so, it is used up.
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
        assert!(!scheduled.take(50), "the entry was replaced by an earlier one");
    }
}
