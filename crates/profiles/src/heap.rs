//! Which code has allocated the memory that is in use. An allocator in front of the system's takes a sample about every
//! half mebibyte of allocated bytes, as Go's does, and remembers it until the block is freed.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering},
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

/// The number of classes of addresses, by which a block without a sample is recognized without a lock. With 4 GiB in use, one
/// of 128 such blocks is in a class with a sample; with the maximum of sampled blocks, one of five.
const CLASSES_LOG2: u32 = 20;

/// The number of tables of blocks. A free of a block in a class with a sample waits only for others of its table.
const TABLES: usize = 64;

const TABLE_BLOCKS_MAX: usize = BLOCKS_MAX / TABLES;

/// Mean bytes between two samples; 0 while none are taken.
static INTERVAL_BYTES: AtomicUsize = AtomicUsize::new(0);

/// How many sampled blocks each class of addresses has. A full count stays full. Changed only with the lock of the class's table
/// in [`BLOCKS`].
static BLOCKS_OF_CLASS: [AtomicU8; 1 << CLASSES_LOG2] = [const { AtomicU8::new(0) }; 1 << CLASSES_LOG2];

/// The sampled blocks that are in use.
static BLOCKS: Blocks = Blocks::new();

/// What the samples stand for. Locked after a table of [`BLOCKS`], never before.
static TAKEN: Mutex<Option<Taken>> = Mutex::new(None);

/// Whether a profile is being made.
static IS_BUSY: AtomicBool = AtomicBool::new(false);

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
    /// Another one is being made. Each looks up the names of all functions, which takes memory and processor time.
    Busy,
}

/// The only profile that is being made.
struct Turn(());

/// Sampled blocks by address. All of a class are in the same table.
struct Blocks {
    tables: [Mutex<BTreeMap<usize, Block>>; TABLES],
}

/// The samples so far.
struct Taken {
    interval_bytes: usize,
    /// The places of stacks in `totals`.
    places: HashMap<Arc<[usize]>, usize>,
    totals: Vec<(Arc<[usize]>, Totals)>,
    /// Blocks that were not remembered.
    dropped: u64,
}

/// What the samples were at one moment.
struct Snapshot {
    interval_bytes: usize,
    totals: Vec<(Arc<[usize]>, Totals)>,
    dropped: u64,
}

#[derive(Clone, Copy)]
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
        *taken = Some(Taken::new(interval_bytes));
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

/// The profile in pprof format. One is made at a time.
///
/// # Errors
/// [`HeapError`]
pub fn heap_profile(view: HeapView, names: &mut Names) -> Result<Vec<u8>, HeapError> {
    let _turn = Turn::take().ok_or(HeapError::Busy)?;
    Ok(snapshot()?.profile(view, &HeapMark::default()).encode(names))
}

/// The profile with what is in use, and what was allocated since `mark`, which is moved to now. For servers that add up what
/// they are sent.
///
/// # Errors
/// [`HeapError`]
pub fn heap_profile_since(mark: &mut HeapMark, names: &mut Names) -> Result<Vec<u8>, HeapError> {
    let _turn = Turn::take().ok_or(HeapError::Busy)?;
    let snapshot = snapshot()?;
    let profile = snapshot.profile(HeapView::InUse, mark);
    mark.0 = snapshot.totals.iter().map(|(_, totals)| totals.allocated).collect();
    Ok(profile.encode(names))
}

fn snapshot() -> Result<Snapshot, HeapError> {
    if INTERVAL_BYTES.load(Ordering::Relaxed) == 0 {
        return Err(if lock().is_some() { HeapError::OtherAllocator } else { HeapError::Off });
    }
    let was_taking = IS_TAKING.replace(true);
    // Allocates while it holds the lock, which taking a sample needs as well.
    let snapshot = lock().as_ref().map(Taken::snapshot);
    IS_TAKING.set(was_taking);
    snapshot.ok_or(HeapError::Off)
}

impl Turn {
    fn take() -> Option<Self> {
        (!IS_BUSY.swap(true, Ordering::Acquire)).then(|| Self(()))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        IS_BUSY.store(false, Ordering::Release);
    }
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
    &BLOCKS_OF_CLASS[class_number(block)]
}

#[inline]
const fn class_number(block: usize) -> usize {
    // The low bits of addresses are zero.
    let hash = (block as u64 >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (hash >> (u64::BITS - CLASSES_LOG2)) as usize
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
    let place = lock().as_mut().map(|taken| taken.add(bytes, stack.frames()));
    if let Some(stack) = place {
        let sampled = Block { stack, bytes };
        if !BLOCKS.insert(block, sampled)
            && let Some(taken) = &mut *lock()
        {
            taken.drop_block(sampled);
        }
    }
    IS_TAKING.set(false);
}

#[cold]
fn forget_sample(block: usize) {
    // A block that is freed while this thread takes a sample is one that the sample has allocated, which has none.
    if IS_TAKING.replace(true) {
        return;
    }
    if let Some(sampled) = BLOCKS.remove(block)
        && let Some(taken) = &mut *lock()
    {
        taken.remove(sampled);
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

impl Blocks {
    const fn new() -> Self {
        Self { tables: [const { Mutex::new(BTreeMap::new()) }; TABLES] }
    }

    /// Remembers a block. Returns whether there was space.
    fn insert(&self, address: usize, block: Block) -> bool {
        let mut table = self.table(address);
        if table.len() >= TABLE_BLOCKS_MAX {
            return false;
        }
        table.insert(address, block);
        let class = class_of(address);
        class.store(class.load(Ordering::Relaxed).saturating_add(1), Ordering::Relaxed);
        true
    }

    fn remove(&self, address: usize) -> Option<Block> {
        let mut table = self.table(address);
        let block = table.remove(&address)?;
        let class = class_of(address);
        let count = class.load(Ordering::Relaxed);
        if count < u8::MAX {
            class.store(count - 1, Ordering::Relaxed);
        }
        Some(block)
    }

    fn table(&self, address: usize) -> MutexGuard<'_, BTreeMap<usize, Block>> {
        self.tables[class_number(address) % TABLES].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    fn new(interval_bytes: usize) -> Self {
        let others: Arc<[usize]> = Arc::default();
        let places = HashMap::from([(Arc::clone(&others), OTHER_STACKS)]);
        Self { interval_bytes, places, totals: vec![(others, Totals::default())], dropped: 0 }
    }

    /// Adds a sample. Returns the place of its stack.
    fn add(&mut self, bytes: usize, frames: &[usize]) -> usize {
        let stack = self.stack(frames);
        let amount = amount(self.interval_bytes, bytes);
        let (_, totals) = &mut self.totals[stack];
        totals.allocated.add(amount, 1.0);
        totals.in_use.add(amount, 1.0);
        stack
    }

    fn remove(&mut self, Block { stack, bytes }: Block) {
        let amount = amount(self.interval_bytes, bytes);
        self.totals[stack].1.in_use.add(amount, -1.0);
    }

    /// For a block that was not remembered, whose end nobody would notice.
    fn drop_block(&mut self, block: Block) {
        self.remove(block);
        self.dropped += 1;
    }

    fn stack(&mut self, frames: &[usize]) -> usize {
        if let Some(place) = self.places.get(frames) {
            return *place;
        }
        if self.totals.len() >= STACKS_MAX {
            return OTHER_STACKS;
        }
        let (place, frames) = (self.totals.len(), Arc::from(frames));
        self.places.insert(Arc::clone(&frames), place);
        self.totals.push((frames, Totals::default()));
        place
    }

    /// Copies no stack, because allocations that are sampled wait meanwhile.
    fn snapshot(&self) -> Snapshot {
        let Self { interval_bytes, totals, dropped, .. } = self;
        Snapshot { interval_bytes: *interval_bytes, totals: totals.clone(), dropped: *dropped }
    }
}

/// What a sampled block of this size stands for: it is sampled with the probability 1 - e^(-size / interval).
fn amount(interval_bytes: usize, bytes: usize) -> Amount {
    let bytes = bytes.max(1) as f64;
    let blocks = -1.0 / (-bytes / interval_bytes as f64).exp_m1();
    Amount { blocks, bytes: blocks * bytes }
}

impl Snapshot {
    /// What is in use, and what was allocated since `mark`.
    fn profile(&self, view: HeapView, mark: &HeapMark) -> Profile {
        let sample = |place: usize, frames: &[usize], Totals { mut allocated, in_use }: Totals| {
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
            samples: (0..)
                .zip(&self.totals)
                .filter_map(|(place, (frames, totals))| sample(place, frames, *totals))
                .collect(),
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
            Self::Busy => "a heap profile is being made, and there is one at a time",
        })
    }
}

impl std::error::Error for HeapError {}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL_BYTES: usize = 1_000;

    fn values(taken: &Taken) -> Vec<Vec<i64>> {
        let profile = taken.snapshot().profile(HeapView::InUse, &HeapMark::default());
        let mut values: Vec<_> = profile.samples.into_iter().map(|sample| sample.values).collect();
        values.sort();
        values
    }

    #[test]
    fn a_sampled_block_stands_for_others_until_it_is_freed() {
        let mut taken = Taken::new(INTERVAL_BYTES);
        taken.add(10, &[1, 2]);
        let stack = taken.add(100_000, &[3]);
        // A block of 10 bytes is sampled once in about 100 times; a large one always.
        assert_eq!(values(&taken), [[1, 100_000, 1, 100_000], [101, 1_005, 101, 1_005]]);
        taken.remove(Block { stack, bytes: 100_000 });
        assert_eq!(values(&taken), [[1, 100_000, 0, 0], [101, 1_005, 101, 1_005]]);
    }

    #[test]
    fn what_was_allocated_before_a_mark_is_left_out() {
        let mut taken = Taken::new(INTERVAL_BYTES);
        taken.add(100_000, &[1]);
        let stack = taken.add(100_000, &[2]);
        let mark = HeapMark(taken.totals.iter().map(|(_, totals)| totals.allocated).collect());
        taken.remove(Block { stack, bytes: 100_000 });
        taken.add(200_000, &[1]);
        taken.add(300_000, &[3]);
        let profile = taken.snapshot().profile(HeapView::InUse, &mark);
        let mut values: Vec<_> = profile.samples.into_iter().map(|sample| sample.values).collect();
        values.sort();
        // Of the second stack, nothing is new and nothing in use.
        assert_eq!(values, [[1, 200_000, 2, 300_000], [1, 300_000, 1, 300_000]]);
    }

    #[test]
    fn stacks_beyond_the_maximum_count_together() {
        let mut taken = Taken::new(INTERVAL_BYTES);
        let places: Vec<_> = (1..=STACKS_MAX + 10).map(|stack| taken.add(1 << 20, &[stack])).collect();
        assert_eq!((taken.totals.len(), taken.places.len()), (STACKS_MAX, STACKS_MAX));
        let of_others = taken.totals[OTHER_STACKS].1.in_use.blocks;
        assert!((of_others - 11.0).abs() < 0.01, "the place of the others is one of them");
        for stack in places {
            taken.remove(Block { stack, bytes: 1 << 20 });
        }
        assert!(taken.totals.iter().all(|(_, totals)| totals.in_use.bytes.abs() < 1e-3));
    }

    /// Other tests of this process have other addresses.
    #[test]
    fn blocks_are_found_once_and_by_their_own_address_only() {
        let blocks = Blocks::new();
        assert!(blocks.insert(0x1000, Block { stack: 7, bytes: 10 }));
        assert!(class_of(0x1000).load(Ordering::Relaxed) > 0 && blocks.remove(0x2000).is_none());
        assert_eq!(blocks.remove(0x1000).map(|block| (block.stack, block.bytes)), Some((7, 10)));
        assert!(blocks.remove(0x1000).is_none() && class_of(0x1000).load(Ordering::Relaxed) == 0);
    }

    #[test]
    fn a_table_is_bounded_and_a_block_beyond_it_is_counted() {
        let blocks = Blocks::new();
        let of_first_table =
            (0x7000_0000_usize..).step_by(16).filter(|address| class_number(*address).is_multiple_of(TABLES));
        let addresses: Vec<_> = of_first_table.take(TABLE_BLOCKS_MAX + 1).collect();
        let (last, first) = addresses.split_last().expect("some");
        let block = Block { stack: OTHER_STACKS, bytes: 1 << 20 };
        assert!(first.iter().all(|address| blocks.insert(*address, block)) && !blocks.insert(*last, block));
        assert!(first.iter().all(|address| blocks.remove(*address).is_some()));
        let mut taken = Taken::new(INTERVAL_BYTES);
        let stack = taken.add(1 << 20, &[1]);
        taken.drop_block(Block { stack, bytes: 1 << 20 });
        let profile = taken.snapshot().profile(HeapView::InUse, &HeapMark::default());
        assert_eq!(profile.samples.first().map(|sample| sample.values[2]), Some(0));
        assert!(profile.comments.contains(&"1 blocks are missing in what is in use".to_owned()));
    }

    #[test]
    fn a_free_of_a_block_without_a_sample_does_not_wait_for_those_that_count() {
        let address = 0x3000;
        assert!(BLOCKS.insert(address, Block { stack: OTHER_STACKS, bytes: 1 }));
        let mut others = (1_usize..).map(|step| address + (step << 4));
        let other = others.find(|other| class_number(*other) == class_number(address)).expect("one");
        let counting = lock();
        // It would wait for itself.
        forget_sample(other);
        drop(counting);
        assert!(BLOCKS.remove(address).is_some());
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
