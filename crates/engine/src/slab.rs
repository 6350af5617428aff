//! A table of entries with generation-checked keys.

use std::ops::{Index, IndexMut};

use crate::shrink::shrink_vec;

/// The key of an entry. A key whose entry was removed finds nothing, even after the slot is used again: no two entries
/// of a slab have the same generation until 2^32 later insertions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlabKey {
    index: u32,
    generation: u32,
}

/// Entries in the slots of a vector. Entries of more than a few words are boxed by the user, so that free slots stay
/// small: only those at the end are returned.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<Slot<T>>,
    /// Candidates for the next insertion. Some were returned since, or are in use again.
    free: Vec<u32>,
    len: usize,
    /// Counts the insertions. One counter for all slots instead of one in each: a slot that is returned and created
    /// anew does not begin with an earlier generation.
    generation: u32,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    entry: Option<T>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), len: 0, generation: 0 }
    }
}

impl<T> Slab<T> {
    /// Adds the entry that `make` returns for its key.
    pub(crate) fn insert_with(&mut self, make: impl FnOnce(SlabKey) -> T) -> SlabKey {
        self.generation = self.generation.wrapping_add(1);
        let index = self.take_free().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, entry: None });
            u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 entries fit into memory")
        });
        let key = SlabKey { index, generation: self.generation };
        self.slots[index as usize] = Slot { generation: key.generation, entry: Some(make(key)) };
        self.len += 1;
        key
    }

    fn take_free(&mut self) -> Option<u32> {
        while let Some(index) = self.free.pop() {
            if self.slots.get(index as usize).is_some_and(|slot| slot.entry.is_none()) {
                return Some(index);
            }
        }
        None
    }

    pub(crate) fn remove(&mut self, key: SlabKey) -> Option<T> {
        let slot = self.slots.get_mut(key.index as usize).filter(|slot| slot.generation == key.generation)?;
        let entry = slot.entry.take()?;
        self.len -= 1;
        self.free.push(key.index);
        while self.slots.last().is_some_and(|slot| slot.entry.is_none()) {
            self.slots.pop();
        }
        if self.slots.is_empty() {
            self.free.clear();
        }
        shrink_vec(&mut self.slots);
        shrink_vec(&mut self.free);
        Some(entry)
    }

    /// The entry, unless it was removed.
    pub(crate) fn get(&self, key: SlabKey) -> Option<&T> {
        let slot = self.slots.get(key.index as usize).filter(|slot| slot.generation == key.generation)?;
        slot.entry.as_ref()
    }

    /// The entry, unless it was removed.
    pub(crate) fn get_mut(&mut self, key: SlabKey) -> Option<&mut T> {
        let slot = self.slots.get_mut(key.index as usize).filter(|slot| slot.generation == key.generation)?;
        slot.entry.as_mut()
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }
}

impl<T> Index<SlabKey> for Slab<T> {
    type Output = T;

    fn index(&self, key: SlabKey) -> &T {
        self.get(key).expect("the entry of this key was not removed")
    }
}

impl<T> IndexMut<SlabKey> for Slab<T> {
    fn index_mut(&mut self, key: SlabKey) -> &mut T {
        self.get_mut(key).expect("the entry of this key was not removed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_finds_its_own_entry_or_none() {
        let mut slab = Slab::default();
        let mut keys: Vec<(SlabKey, u32)> = Vec::new();
        let mut removed = Vec::new();
        // Every pattern of insertions and removals at the start, the middle and the end, with slots that are returned.
        for step in 0..4_000_u32 {
            if step % 7 < 4 - u32::from(step % 1_000 > 600) * 3 {
                keys.push((slab.insert_with(|_| step), step));
            } else if !keys.is_empty() {
                let (key, value) = keys.swap_remove(step as usize * 31 % keys.len());
                assert_eq!(slab.remove(key), Some(value));
                removed.push(key);
            }
            assert_eq!(slab.len(), keys.len());
        }
        assert!(keys.iter().all(|(key, value)| slab.get(*key) == Some(value)));
        assert!(removed.iter().all(|key| slab.get(*key).is_none() && slab.get_mut(*key).is_none()));
        for (key, value) in keys {
            assert_eq!(slab.remove(key), Some(value));
            assert_eq!(slab.remove(key), None);
        }
        assert_eq!((slab.slots.len(), slab.free.len()), (0, 0));
        let key = slab.insert_with(|_| 0);
        assert!(!removed.contains(&key), "a slot that was returned begins with a new generation");
    }

    #[test]
    fn free_slots_are_used_again_and_a_burst_is_returned() {
        let mut slab = Slab::default();
        let first = slab.insert_with(|_| 0_u32);
        for round in 0..10 {
            let keys: Vec<_> = (0..10_000).map(|number| slab.insert_with(|_| number)).collect();
            assert_eq!(slab.slots.len(), 10_001, "round {round}");
            for key in keys {
                slab.remove(key);
            }
            assert_eq!(slab.slots.len(), 1);
            assert!(slab.slots.capacity() <= 2_048 && slab.free.len() <= 10_000);
        }
        assert_eq!(slab.get(first), Some(&0));
    }
}
