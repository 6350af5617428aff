//! Deadlines. Each session and channel has at most one entry that counts, at or before its earliest deadline; when it
//! comes up, its owner looks what is due and asks for the next. So moving a deadline further away costs nothing. Entries
//! that no longer count stay until they come up, or until they are more than those that do.

use std::{cmp::Reverse, collections::BinaryHeap, sync::Arc};

use crate::SessionKey;

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

/// When an owner's entry comes up; kept by the owner, so that entries which no longer count are told apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scheduled(Option<u64>);

impl Timers {
    /// Sees to it that `owner` comes up at `due_us` or before.
    pub(crate) fn schedule(&mut self, scheduled: &mut Scheduled, due_us: u64, owner: impl FnOnce() -> TimerOwner) {
        if scheduled.0.is_none_or(|earlier_us| due_us < earlier_us) {
            self.void += usize::from(scheduled.0.is_some());
            scheduled.0 = Some(due_us);
            self.heap.push(Reverse((due_us, owner())));
        }
    }

    /// The next entry that is due, with its time; the owner checks it with [`Scheduled::take`].
    pub(crate) fn pop(&mut self, now_us: u64) -> Option<(u64, TimerOwner)> {
        if self.next_us()? > now_us {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| entry)
    }

    /// The entry of an owner that has gone no longer counts.
    pub(crate) fn abandon(&mut self, scheduled: Scheduled) {
        self.void += usize::from(scheduled.0.is_some());
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
    /// Whether the entry of `due_us` is the one that counts.
    pub(crate) fn is_at(self, due_us: u64) -> bool {
        self.0 == Some(due_us)
    }

    /// Whether the entry of `due_us` is the one that counts; if so, it is used up.
    pub(crate) fn take(&mut self, due_us: u64) -> bool {
        let counts = self.0 == Some(due_us);
        if counts {
            self.0 = None;
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_deadline_adds_no_entry_and_an_earlier_one_replaces_what_counts() {
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
