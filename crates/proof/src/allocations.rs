//! An allocator that counts what each thread does with it. A test makes it its own:
//!
//! ```
//! use dunlin_proof::allocations::{Counting, allocations_of};
//!
//! #[global_allocator]
//! static ALLOCATOR: Counting = Counting;
//!
//! let (count, _) = allocations_of(|| vec![1_u8]);
//! assert_eq!(count, 1);
//! ```

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

/// The system's allocator, counted.
pub struct Counting;

/// Memory in use: what a thread allocated less what it freed, so it is negative where a thread frees what another one made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InUse {
    /// Allocated minus freed bytes.
    pub bytes: isize,
    /// Allocations that are not freed.
    pub blocks: isize,
}

thread_local! {
    // Of one thread alone: the test harness has others.
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
    static IN_USE: Cell<InUse> = const { Cell::new(InUse { bytes: 0, blocks: 0 }) };
}

/// What `work` allocates on this thread; an allocation that grows counts again.
pub fn allocations_of<T>(work: impl FnOnce() -> T) -> (usize, T) {
    let before = ALLOCATIONS.get();
    let done = work();
    (ALLOCATIONS.get() - before, done)
}

/// What this thread has in use.
pub fn in_use() -> InUse {
    IN_USE.get()
}

fn count(allocations: usize, bytes: isize, blocks: isize) {
    ALLOCATIONS.set(ALLOCATIONS.get() + allocations);
    let before = IN_USE.get();
    IN_USE.set(InUse { bytes: before.bytes + bytes, blocks: before.blocks + blocks });
}

// SAFETY: every call is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size().cast_signed(), 1);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(0, -layout.size().cast_signed(), -1);
        // SAFETY: the caller keeps the contract of `dealloc`, and `pointer` came from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(1, size.cast_signed() - layout.size().cast_signed(), 0);
        // SAFETY: the caller keeps the contract of `realloc`, and `pointer` came from the system's allocator.
        unsafe { System.realloc(pointer, layout, size) }
    }
}
