//! Shrinks tables after a burst.
//!
//! A table that is mostly empty after a removal shrinks to about twice its remaining entries. The cost of copying is
//! amortized over several times as many removals, and a burst that has ended occupies no memory.

use std::{
    collections::{BinaryHeap, VecDeque},
    hash::{BuildHasher, Hash},
};

use hashbrown::{HashMap, HashTable};

/// Minimum capacity in entries.
const KEPT: usize = 1_024;
/// A table shrinks when fewer than one in `SPARSE` slots has an entry.
const SPARSE: usize = 8;

const fn is_sparse(len: usize, capacity: usize) -> bool {
    capacity > KEPT && len < capacity / SPARSE
}

/// The capacity for `len` entries, with space for more without a reallocation.
const fn roomy(len: usize) -> usize {
    if len < KEPT / 2 { KEPT } else { len * 2 }
}

/// Call it after entries were removed.
pub(crate) fn shrink_map<K: Eq + Hash, V, S: BuildHasher>(map: &mut HashMap<K, V, S>) {
    // `capacity` excludes slots that removed entries have used up.
    if is_sparse(map.len(), map.allocation_size() / (size_of::<(K, V)>() + 1)) {
        map.shrink_to(roomy(map.len()));
    }
}

/// Call it after entries were removed.
pub(crate) fn shrink_table<T>(table: &mut HashTable<T>, hash_of: impl Fn(&T) -> u64) {
    if is_sparse(table.len(), table.allocation_size() / (size_of::<T>() + 1)) {
        table.shrink_to(roomy(table.len()), hash_of);
    }
}

/// Call it after entries were removed.
pub(crate) fn shrink_vec<T>(entries: &mut Vec<T>) {
    if is_sparse(entries.len(), entries.capacity()) {
        entries.shrink_to(roomy(entries.len()));
    }
}

/// Call it after entries were removed.
pub(crate) fn shrink_queue<T>(queue: &mut VecDeque<T>) {
    if is_sparse(queue.len(), queue.capacity()) {
        queue.shrink_to(roomy(queue.len()));
    }
}

/// Call it after entries were removed.
pub(crate) fn shrink_heap<T: Ord>(heap: &mut BinaryHeap<T>) {
    if is_sparse(heap.len(), heap.capacity()) {
        heap.shrink_to(roomy(heap.len()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacity_of_a_burst_is_returned_with_few_copies() {
        let mut map: HashMap<u32, u64, foldhash::quality::FixedState> = HashMap::default();
        let (mut queue, mut heap) = (VecDeque::new(), BinaryHeap::new());
        for number in 0..100_000 {
            map.insert(number, 0);
            queue.push_back(number);
            heap.push(number);
        }
        let (mut bytes, mut copies) = (map.allocation_size(), 0);
        for number in 0..100_000 {
            map.remove(&number);
            queue.pop_front();
            heap.pop();
            shrink_map(&mut map);
            shrink_queue(&mut queue);
            shrink_heap(&mut heap);
            copies += u32::from(map.allocation_size() != bytes);
            bytes = map.allocation_size();
        }
        assert!(copies <= 6, "{copies} copies");
        assert!(bytes <= KEPT * 4 * (size_of::<(u32, u64)>() + 1), "{bytes} bytes are kept");
        for capacity in [queue.capacity(), heap.capacity()] {
            assert!(capacity <= KEPT * 2, "{capacity} places are kept");
        }
    }
}
