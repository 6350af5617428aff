//! How much memory a room takes: an allocator that counts, for each thread, what it allocates and frees.
//!
//! The count is a plain number of the thread, so that it costs an addition. What a thread allocates and another frees is
//! not made up for; whoever measures sees to it that what leaves a room is a copy, and that what was lent to others is
//! dropped where it is counted ([`Account`]).
//!
//! A call that would grow past its ceiling is not let go on: its thread stops inside of the allocator for ever, since an
//! allocator may neither unwind nor, without the process ending, refuse. Others see the flag and go on without the thread.

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

/// The system's allocator, counted.
pub struct CountingHeap;

#[global_allocator]
static HEAP: CountingHeap = CountingHeap;

thread_local! {
    /// Bytes that this thread allocated, less those that it freed.
    static BALANCE_BYTES: Cell<i64> = const { Cell::new(0) };
    /// The balance past which this thread stops.
    static CEILING_BYTES: Cell<i64> = const { Cell::new(i64::MAX) };
    /// Told when it does.
    static STOPPED: Cell<Option<&'static AtomicBool>> = const { Cell::new(None) };
}

// SAFETY: every call is handed to the system's allocator as it came, and its answer is given back unchanged. The counting
// around it touches only `Cell`s without a destructor, which neither allocate nor unwind.
unsafe impl GlobalAlloc for CountingHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(signed(layout.size()));
        // SAFETY: the caller's promises are those that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(signed(layout.size()));
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-signed(layout.size()));
        // SAFETY: as above; `pointer` came from `System`, as all of ours do.
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
    // A thread that is ending may have no such variables any more; nobody measures it.
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

/// Does not return. Nothing in here allocates.
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

/// Makes a flag that is told when this thread is stopped by its ceiling. Called once by a thread; the flag outlives it.
pub fn stopped_flag() -> &'static AtomicBool {
    let flag: &'static AtomicBool = Box::leak(Box::default());
    STOPPED.with(|stopped| stopped.set(Some(flag)));
    flag
}

/// Calls `work`, and stops this thread if that allocates more than `growth_bytes_max`. Returns by how many bytes it grew.
pub fn measured<T>(growth_bytes_max: i64, work: impl FnOnce() -> T) -> (T, i64) {
    /// Lifts the ceiling when `work` unwinds as well.
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

/// Lets panic hooks, from now on, allocate as they like and on nobody's account: a thread that is stopped within one keeps
/// whatever it has locked, such as the standard error stream, and everybody else who panics waits for that.
pub fn spare_panic_hooks() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| std::panic::set_hook(spared(std::panic::take_hook())));
}

type PanicHook = Box<dyn Fn(&PanicHookInfo<'_>) + Sync + Send>;

fn spared(hook: PanicHook) -> PanicHook {
    Box::new(move |info| {
        // A thread without these variables is ending, and has no ceiling.
        let ceiling = CEILING_BYTES.try_with(|ceiling| ceiling.replace(i64::MAX));
        let balance = BALANCE_BYTES.try_with(Cell::get);
        hook(info);
        if let (Ok(ceiling), Ok(balance)) = (ceiling, balance) {
            let _ = BALANCE_BYTES.try_with(|cell| cell.set(balance));
            let _ = CEILING_BYTES.try_with(|cell| cell.set(ceiling));
        }
    })
}

/// What one room takes.
#[derive(Debug, Default)]
pub struct Account {
    bytes: i64,
    /// Updates that shards still hold. They are kept until nobody else does, so that they are freed on the room's account.
    lent: VecDeque<Arc<TickUpdate>>,
}

/// Updates that are kept for that, at most: a mirror remembers fewer.
const LENT_MAX: usize = 64;

impl Account {
    /// How many bytes it takes now.
    pub fn bytes(&self) -> u64 {
        u64::try_from(self.bytes).unwrap_or(0)
    }

    /// Calls `work` on this account; see [`measured`].
    pub fn charge<T>(&mut self, growth_bytes_max: u64, work: impl FnOnce() -> T) -> T {
        let (done, growth_bytes) = measured(i64::try_from(growth_bytes_max).unwrap_or(i64::MAX), work);
        self.bytes = self.bytes.saturating_add(growth_bytes);
        done
    }

    /// Keeps an update that was made on this account and goes to shards. If too many are kept, because a shard is far
    /// behind, whoever has it last frees it: then it counts no more from now on.
    pub fn lend(&mut self, update: &Arc<TickUpdate>) {
        if self.lent.len() < LENT_MAX {
            self.lent.push_back(Arc::clone(update));
        } else {
            // Itself, and the two counts that an `Arc` has.
            let bytes = update.memory_bytes() + size_of::<TickUpdate>() + 2 * size_of::<usize>();
            self.bytes = self.bytes.saturating_sub(i64::try_from(bytes).unwrap_or(i64::MAX));
        }
    }

    /// Frees the updates that nobody else holds any more.
    pub fn collect(&mut self) {
        let mut lent = std::mem::take(&mut self.lent);
        self.charge(u64::MAX, || lent.retain(|update| Arc::strong_count(update) > 1));
        self.lent = lent;
    }
}

#[cfg(test)]
mod tests;
