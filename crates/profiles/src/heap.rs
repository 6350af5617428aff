//! Which code has allocated the memory that is in use. An allocator in front of the system's takes a sample about every
//! half mebibyte of allocated bytes, as Go's does, and remembers it until the block is freed.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    collections::HashMap,
    fmt,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU8, AtomicUsize, Ordering},
    },
};

use crate::{
    pprof::{Names, Profile, Sample},
    stack::Stack,
};

/// Mean number of allocated bytes between two samples.
pub const HEAP_INTERVAL_BYTES: usize = 512 << 10;

/// Maximum number of sampled blocks that are remembered: 128 GiB in use with the usual interval.
const BLOCKS_MAX: usize = 1 << 18;

/// Maximum number of different stacks. Others count together.
const STACKS_MAX: usize = 16_384;

/// The number of classes of addresses, by which a block without a sample is recognized without a lock.
const CLASSES_LOG2: u32 = 16;

/// Mean bytes between two samples; 0 while none are taken.
static INTERVAL_BYTES: AtomicUsize = AtomicUsize::new(0);

/// How many sampled blocks each class of addresses has. A full count stays full. Changed only with the lock of [`TAKEN`].
static BLOCKS_OF_CLASS: [AtomicU8; 1 << CLASSES_LOG2] = [const { AtomicU8::new(0) }; 1 << CLASSES_LOG2];

static TAKEN: Mutex<Option<Taken>> = Mutex::new(None);

thread_local! {
    /// Bytes that this thread allocates until its next sample.
    static BYTES_LEFT: Cell<i64> = const { Cell::new(0) };
    /// The state of this thread's random numbers; 0 before the first one.
    static RANDOM: Cell<u64> = const { Cell::new(0) };
    /// Whether this thread is taking a sample, which allocates.
    static IS_TAKING: Cell<bool> = const { Cell::new(false) };
}

/// The system's allocator, with samples while [`sample_heap`] wants them:
///
/// ```
/// #[global_allocator]
/// static ALLOCATOR: dunlin_profiles::SampledAllocator = dunlin_profiles::SampledAllocator;
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct SampledAllocator;

/// What a heap profile shows first. Both views have all numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeapView {
    /// The bytes in use.
    InUse,
    /// The bytes allocated since sampling began.
    Allocated,
}

/// How much each stack had allocated at an earlier profile.
#[derive(Debug, Default)]
pub struct HeapMark(Vec<Amount>);

/// Why there is no heap profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeapError {
    /// The program has another global allocator.
    OtherAllocator,
    /// [`sample_heap`] was not called.
    Off,
}

/// The samples so far.
struct Taken {
    interval_bytes: usize,
    /// The sampled blocks that are in use, by address.
    blocks: HashMap<usize, Block>,
    stacks: HashMap<Box<[usize]>, usize>,
    totals: Vec<Totals>,
    /// Blocks that were not remembered.
    dropped: u64,
}

struct Block {
    stack: usize,
    bytes: usize,
}

/// What the samples of a stack stand for.
#[derive(Clone, Copy, Default)]
struct Totals {
    allocated: Amount,
    in_use: Amount,
}

#[derive(Clone, Copy, Debug, Default)]
struct Amount {
    blocks: f64,
    bytes: f64,
}

/// Takes samples of all allocations from now on, one about every `interval_bytes`.
///
/// # Errors
/// [`HeapError::OtherAllocator`]
pub fn sample_heap(interval_bytes: usize) -> Result<(), HeapError> {
    let mut taken = lock();
    if taken.is_none() {
        let stacks = HashMap::from([(Box::default(), OTHER_STACKS)]);
        let (blocks, totals) = (HashMap::new(), vec![Totals::default()]);
        *taken = Some(Taken { interval_bytes, blocks, stacks, totals, dropped: 0 });
    }
    drop(taken);
    INTERVAL_BYTES.store(interval_bytes, Ordering::Relaxed);
    // With this allocator, a block reduces what is left until the next sample.
    let before = BYTES_LEFT.get();
    drop(std::hint::black_box(Box::new([0_u8; 64])));
    if BYTES_LEFT.get() == before {
        INTERVAL_BYTES.store(0, Ordering::Relaxed);
        return Err(HeapError::OtherAllocator);
    }
    Ok(())
}

/// The profile in pprof format.
///
/// # Errors
/// [`HeapError`]
pub fn heap_profile(view: HeapView, names: &mut Names) -> Result<Vec<u8>, HeapError> {
    profile_of(|taken| taken.profile(view, &HeapMark::default())).map(|profile| profile.encode(names))
}

/// The profile with what is in use, and what was allocated since `mark`, which is moved to now. For servers that add up what
/// they are sent.
///
/// # Errors
/// [`HeapError`]
pub fn heap_profile_since(mark: &mut HeapMark, names: &mut Names) -> Result<Vec<u8>, HeapError> {
    let profile = profile_of(|taken| {
        let profile = taken.profile(HeapView::InUse, mark);
        mark.0 = taken.totals.iter().map(|totals| totals.allocated).collect();
        profile
    });
    profile.map(|profile| profile.encode(names))
}

fn profile_of(make: impl FnOnce(&Taken) -> Profile) -> Result<Profile, HeapError> {
    if INTERVAL_BYTES.load(Ordering::Relaxed) == 0 {
        return Err(if lock().is_some() { HeapError::OtherAllocator } else { HeapError::Off });
    }
    let was_taking = IS_TAKING.replace(true);
    // Allocates while it holds the lock, which taking a sample needs as well.
    let profile = lock().as_ref().map(make);
    IS_TAKING.set(was_taking);
    profile.ok_or(HeapError::Off)
}

/// The place of [`Taken::totals`] for stacks beyond [`STACKS_MAX`].
const OTHER_STACKS: usize = 0;

fn lock() -> MutexGuard<'static, Option<Taken>> {
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner)
}

// SAFETY: each method passes its arguments to the system's allocator and returns its result. What happens beside that does not
// touch the block.
unsafe impl GlobalAlloc for SampledAllocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract.
        let block = unsafe { System.alloc(layout) };
        note_allocated(block, layout.size());
        block
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract.
        let block = unsafe { System.alloc_zeroed(layout) };
        note_allocated(block, layout.size());
        block
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // Before another thread can get the same address.
        note_freed(block);
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(block, layout) };
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note_freed(block);
        // SAFETY: the caller keeps the contract.
        let block = unsafe { System.realloc(block, layout, size) };
        note_allocated(block, size);
        block
    }
}

#[inline]
fn note_allocated(block: *mut u8, bytes: usize) {
    let interval_bytes = INTERVAL_BYTES.load(Ordering::Relaxed);
    if interval_bytes == 0 {
        return;
    }
    let left = BYTES_LEFT.get() - bytes.cast_signed() as i64;
    BYTES_LEFT.set(left);
    if left < 0 {
        take_sample(block as usize, bytes, interval_bytes);
    }
}

#[inline]
fn note_freed(block: *mut u8) {
    if INTERVAL_BYTES.load(Ordering::Relaxed) != 0 && class_of(block as usize).load(Ordering::Relaxed) != 0 {
        forget_sample(block as usize);
    }
}

#[inline]
fn class_of(block: usize) -> &'static AtomicU8 {
    // The low bits of addresses are zero.
    let hash = (block as u64 >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    &BLOCKS_OF_CLASS[(hash >> (u64::BITS - CLASSES_LOG2)) as usize]
}

#[cold]
fn take_sample(block: usize, bytes: usize, interval_bytes: usize) {
    if IS_TAKING.get() || block == 0 {
        return;
    }
    let is_first = RANDOM.get() == 0;
    let distance = next_distance(interval_bytes);
    if is_first {
        // The first distance of a thread begins before this block.
        let left = distance - bytes.cast_signed() as i64;
        if left >= 0 {
            return BYTES_LEFT.set(left);
        }
    }
    BYTES_LEFT.set(distance);
    IS_TAKING.set(true);
    let stack = Stack::of_caller();
    if let Some(taken) = &mut *lock() {
        taken.add(block, bytes, stack.frames());
    }
    IS_TAKING.set(false);
}

#[cold]
fn forget_sample(block: usize) {
    // A block that is freed while this thread takes a sample is one that the sample has allocated, which has none.
    if IS_TAKING.replace(true) {
        return;
    }
    if let Some(taken) = &mut *lock() {
        taken.remove(block);
    }
    IS_TAKING.set(false);
}

/// Exponentially distributed, so that each byte is as likely to be sampled as any other.
fn next_distance(interval_bytes: usize) -> i64 {
    let mut state = RANDOM.get();
    if state == 0 {
        // Threads have their variables at different addresses.
        state = RANDOM.with(ptr_bits) | 1;
    }
    // Xorshift.
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    RANDOM.set(state);
    let share = ((state >> 11) + 1) as f64 / (1_u64 << 53) as f64;
    (-share.ln() * interval_bytes as f64) as i64
}

fn ptr_bits(place: &Cell<u64>) -> u64 {
    (std::ptr::from_ref(place) as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

impl Taken {
    fn add(&mut self, block: usize, bytes: usize, frames: &[usize]) {
        let stack = self.stack(frames);
        let amount = self.amount(bytes);
        self.totals[stack].allocated.add(amount, 1.0);
        if self.blocks.len() >= BLOCKS_MAX {
            self.dropped += 1;
            return;
        }
        self.totals[stack].in_use.add(amount, 1.0);
        self.blocks.insert(block, Block { stack, bytes });
        let class = class_of(block);
        class.store(class.load(Ordering::Relaxed).saturating_add(1), Ordering::Relaxed);
    }

    fn remove(&mut self, block: usize) {
        let Some(Block { stack, bytes }) = self.blocks.remove(&block) else { return };
        let amount = self.amount(bytes);
        self.totals[stack].in_use.add(amount, -1.0);
        let class = class_of(block);
        let count = class.load(Ordering::Relaxed);
        if count < u8::MAX {
            class.store(count - 1, Ordering::Relaxed);
        }
    }

    fn stack(&mut self, frames: &[usize]) -> usize {
        if let Some(place) = self.stacks.get(frames) {
            return *place;
        }
        if self.totals.len() >= STACKS_MAX {
            return OTHER_STACKS;
        }
        let place = self.totals.len();
        self.stacks.insert(frames.into(), place);
        self.totals.push(Totals::default());
        place
    }

    /// What a sampled block of this size stands for: it is sampled with the probability 1 - e^(-size / interval).
    fn amount(&self, bytes: usize) -> Amount {
        let bytes = bytes.max(1) as f64;
        let blocks = -1.0 / (-bytes / self.interval_bytes as f64).exp_m1();
        Amount { blocks, bytes: blocks * bytes }
    }

    /// What is in use, and what was allocated since `mark`.
    fn profile(&self, view: HeapView, mark: &HeapMark) -> Profile {
        let sample = |frames: &[usize], place: usize| {
            let Totals { mut allocated, in_use } = self.totals[place];
            allocated.add(mark.0.get(place).copied().unwrap_or_default(), -1.0);
            let numbers = [allocated.blocks, allocated.bytes, in_use.blocks, in_use.bytes];
            let values = numbers.map(|number| number.round() as i64);
            let is_shown = values.iter().any(|value| *value > 0);
            is_shown.then(|| Sample { frames: frames.into(), values: values.to_vec(), thread: None })
        };
        let mut comments = vec!["Memory that C and C++ code allocates (RocksDB) is not in this profile.".to_owned()];
        if self.dropped > 0 {
            comments.push(format!("{} blocks are missing in what is in use", self.dropped));
        }
        Profile {
            value_types: &[
                ("alloc_objects", "count"),
                ("alloc_space", "bytes"),
                ("inuse_objects", "count"),
                ("inuse_space", "bytes"),
            ],
            default_type: match view {
                HeapView::InUse => "inuse_space",
                HeapView::Allocated => "alloc_space",
            },
            period_type: ("space", "bytes"),
            period: self.interval_bytes.cast_signed() as i64,
            duration_ns: 0,
            comments,
            own_functions: &[
                "_Unwind_Backtrace",
                "backtrace::backtrace::",
                "dunlin_profiles::",
                "__rust_alloc",
                "__rust_alloc_zeroed",
                "__rust_realloc",
            ],
            samples: self.stacks.iter().filter_map(|(frames, place)| sample(frames, *place)).collect(),
        }
    }
}

impl Amount {
    fn add(&mut self, other: Self, sign: f64) {
        self.blocks += sign * other.blocks;
        self.bytes += sign * other.bytes;
    }
}

impl fmt::Display for HeapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OtherAllocator => "the program has another global allocator than dunlin_profiles::SampledAllocator",
            Self::Off => "allocations are not sampled",
        })
    }
}

impl std::error::Error for HeapError {}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL_BYTES: usize = 1_000;

    fn taken() -> Taken {
        let stacks = HashMap::from([(Box::default(), OTHER_STACKS)]);
        let (blocks, totals) = (HashMap::new(), vec![Totals::default()]);
        Taken { interval_bytes: INTERVAL_BYTES, blocks, stacks, totals, dropped: 0 }
    }

    fn values(taken: &Taken) -> Vec<Vec<i64>> {
        let mut values: Vec<_> = taken
            .profile(HeapView::InUse, &HeapMark::default())
            .samples
            .into_iter()
            .map(|sample| sample.values)
            .collect();
        values.sort();
        values
    }

    #[test]
    fn a_sampled_block_stands_for_others_until_it_is_freed() {
        let mut taken = taken();
        taken.add(0x1000, 10, &[1, 2]);
        taken.add(0x2000, 100_000, &[3]);
        // A block of 10 bytes is sampled once in about 100 times; a large one always.
        assert_eq!(values(&taken), [[1, 100_000, 1, 100_000], [101, 1_005, 101, 1_005]]);
        taken.remove(0x2000);
        taken.remove(0x2000);
        taken.remove(0x3000);
        assert_eq!(values(&taken), [[1, 100_000, 0, 0], [101, 1_005, 101, 1_005]]);
    }

    #[test]
    fn what_was_allocated_before_a_mark_is_left_out() {
        let mut taken = taken();
        taken.add(0x1000, 100_000, &[1]);
        taken.add(0x2000, 100_000, &[2]);
        let mark = HeapMark(taken.totals.iter().map(|totals| totals.allocated).collect());
        taken.remove(0x2000);
        taken.add(0x3000, 200_000, &[1]);
        taken.add(0x4000, 300_000, &[3]);
        let mut values: Vec<_> =
            taken.profile(HeapView::InUse, &mark).samples.into_iter().map(|sample| sample.values).collect();
        values.sort();
        // Of the second stack, nothing is new and nothing in use.
        assert_eq!(values, [[1, 200_000, 2, 300_000], [1, 300_000, 1, 300_000]]);
    }

    #[test]
    fn stacks_beyond_the_maximum_count_together() {
        let mut taken = taken();
        for stack in 0..STACKS_MAX + 10 {
            taken.add(0x10_0000 + stack * 64, 1 << 20, &[stack + 1]);
        }
        assert_eq!((taken.totals.len(), taken.stacks.len()), (STACKS_MAX, STACKS_MAX));
        assert!(
            (taken.totals[OTHER_STACKS].in_use.blocks - 11.0).abs() < 0.01,
            "the place of the others is one of them"
        );
        for stack in 0..STACKS_MAX + 10 {
            taken.remove(0x10_0000 + stack * 64);
        }
        assert!(taken.totals.iter().all(|totals| totals.in_use.bytes.abs() < 1e-3) && taken.blocks.is_empty());
    }

    #[test]
    fn distances_have_the_mean_that_is_asked_for() {
        RANDOM.set(1);
        let draws = 20_000;
        let sum: i64 = (0..draws).map(|_| next_distance(INTERVAL_BYTES)).sum();
        let mean = sum as f64 / f64::from(draws);
        assert!((mean - INTERVAL_BYTES as f64).abs() < 30.0, "{mean}");
    }

    #[test]
    fn another_allocator_is_noticed() {
        assert_eq!(
            heap_profile(HeapView::InUse, &mut Names::default()).expect_err("this program has none"),
            HeapError::Off
        );
        assert_eq!(sample_heap(HEAP_INTERVAL_BYTES), Err(HeapError::OtherAllocator));
        assert_eq!(
            heap_profile(HeapView::Allocated, &mut Names::default()).expect_err("as before"),
            HeapError::OtherAllocator
        );
    }
}
