//! Measures the memory of a room: an allocator that counts, per thread, the bytes that it allocates and frees.
//!
//! The count is a plain integer of the thread, so an allocation costs one addition. Memory that one thread allocates
//! and another frees is not corrected. The caller must copy data that leaves a room, and must drop lent data where it
//! is counted ([`Account`]).
//!
//! A call that would exceed its ceiling does not continue: its thread stops inside the allocator forever, since an
//! allocator must not unwind and cannot refuse without ending the process. Other threads see the flag and continue
//! without this thread.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    collections::VecDeque,
    panic::PanicHookInfo,
    sync::{
        Arc, Once,
        atomic::{AtomicBool, Ordering},
    },
};

use dunlin_rooms::TickUpdate;

use super::system;

/// The system's allocator with counters.
pub struct CountingHeap;

#[global_allocator]
static HEAP: CountingHeap = CountingHeap;

thread_local! {
    /// Bytes allocated by this thread minus bytes freed by it.
    static BALANCE_BYTES: Cell<i64> = const { Cell::new(0) };
    /// The balance above which this thread stops.
    static CEILING_BYTES: Cell<i64> = const { Cell::new(i64::MAX) };
    /// Set when this thread stops.
    static STOPPED: Cell<Option<&'static AtomicBool>> = const { Cell::new(None) };
}

// SAFETY: every call is passed to the system's allocator unchanged, as is its result. The counters are `Cell`s without
// a destructor, which neither allocate nor unwind.
unsafe impl GlobalAlloc for CountingHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(signed(layout.size()));
        // SAFETY: the caller guarantees what `System` requires.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(signed(layout.size()));
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-signed(layout.size()));
        // SAFETY: as above; `pointer` came from `System`, like all pointers of this allocator.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(signed(new_size) - signed(layout.size()));
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}

/// No layout is larger than `isize::MAX`.
fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn count(bytes: i64) {
    // The variables of a thread that is ending may be gone; it is not measured.
    let Ok(balance) = BALANCE_BYTES.try_with(|balance| {
        balance.set(balance.get().saturating_add(bytes));
        balance.get()
    }) else {
        return;
    };
    if CEILING_BYTES.try_with(|ceiling| balance > ceiling.get()).unwrap_or(false) {
        stop_here();
    }
}

/// Stops the thread forever. Nothing in this function allocates.
#[cold]
fn stop_here() {
    let _ = STOPPED.try_with(|stopped| {
        if let Some(stopped) = stopped.get() {
            stopped.store(true, Ordering::Release);
        }
    });
    loop {
        system::wait_for_a_signal();
    }
}

/// Creates a flag that is set when this thread exceeds its ceiling and stops. Call it once per thread. The flag
/// outlives the thread.
pub fn stopped_flag() -> &'static AtomicBool {
    let flag: &'static AtomicBool = Box::leak(Box::default());
    STOPPED.with(|stopped| stopped.set(Some(flag)));
    flag
}

/// Calls `work`, and stops this thread if it allocates more than `growth_bytes_max`. Returns the growth in bytes.
pub fn measured<T>(growth_bytes_max: i64, work: impl FnOnce() -> T) -> (T, i64) {
    /// Lifts the ceiling even if `work` unwinds.
    struct Lift;
    impl Drop for Lift {
        fn drop(&mut self) {
            CEILING_BYTES.with(|ceiling| ceiling.set(i64::MAX));
        }
    }
    let before = BALANCE_BYTES.with(Cell::get);
    CEILING_BYTES.with(|ceiling| ceiling.set(before.saturating_add(growth_bytes_max)));
    let lift = Lift;
    let done = work();
    drop(lift);
    (done, BALANCE_BYTES.with(Cell::get) - before)
}

/// Lifts the ceiling in panic hooks: a thread that stopped within a hook would keep its locks, such as that of stderr,
/// and every other panicking thread would wait for them.
pub fn spare_panic_hooks() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| std::panic::set_hook(spared(std::panic::take_hook())));
}

type PanicHook = Box<dyn Fn(&PanicHookInfo<'_>) + Sync + Send>;

fn spared(hook: PanicHook) -> PanicHook {
    Box::new(move |info| {
        // The variables of a thread that is ending may be gone; it has no ceiling.
        let ceiling = CEILING_BYTES.try_with(|ceiling| ceiling.replace(i64::MAX));
        let balance = BALANCE_BYTES.try_with(Cell::get);
        hook(info);
        if let (Ok(ceiling), Ok(balance)) = (ceiling, balance) {
            let _ = BALANCE_BYTES.try_with(|cell| cell.set(balance));
            let _ = CEILING_BYTES.try_with(|cell| cell.set(ceiling));
        }
    })
}

/// The memory account of one room.
#[derive(Debug, Default)]
pub struct Account {
    bytes: i64,
    /// Updates that shards may still hold. They are kept until no shard holds them, so that they are freed on the
    /// room's account.
    lent: VecDeque<Arc<TickUpdate>>,
}

/// Maximum number of kept updates. A mirror keeps fewer.
const LENT_MAX: usize = 64;

impl Account {
    /// The current balance in bytes.
    pub fn bytes(&self) -> u64 {
        u64::try_from(self.bytes).unwrap_or(0)
    }

    /// Calls `work` on this account; see [`measured`].
    pub fn charge<T>(&mut self, growth_bytes_max: u64, work: impl FnOnce() -> T) -> T {
        let (done, growth_bytes) = measured(i64::try_from(growth_bytes_max).unwrap_or(i64::MAX), work);
        self.bytes = self.bytes.saturating_add(growth_bytes);
        done
    }

    /// Keeps an update that was allocated on this account and is shared with shards. If a shard is far behind and too
    /// many are kept, its last owner frees it, and this account no longer counts it.
    pub fn lend(&mut self, update: &Arc<TickUpdate>) {
        if self.lent.len() < LENT_MAX {
            self.lent.push_back(Arc::clone(update));
        } else {
            // The update itself and the two counters of an `Arc`.
            let bytes = update.memory_bytes() + size_of::<TickUpdate>() + 2 * size_of::<usize>();
            self.bytes = self.bytes.saturating_sub(i64::try_from(bytes).unwrap_or(i64::MAX));
        }
    }

    /// Frees the updates that only this account holds.
    pub fn collect(&mut self) {
        let mut lent = std::mem::take(&mut self.lent);
        self.charge(u64::MAX, || lent.retain(|update| Arc::strong_count(update) > 1));
        self.lent = lent;
    }
}

#[cfg(test)]
mod tests;
