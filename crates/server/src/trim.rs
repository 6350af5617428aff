//! Returns freed memory to the system.
//!
//! glibc keeps freed memory between two blocks that are in use. So after a burst the resident memory would stay high
//! for the lifetime of the process, and `net.memory_limit` would refuse all new sessions. A separate thread measures
//! once per second how much memory is resident and how much of it is in use, and trims the heap if the difference is
//! large. ADR 9 contains the measurements and the alternatives.

use std::{
    io,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use crate::telemetry::process;

/// Time between two measurements.
const INTERVAL: Duration = Duration::from_secs(1);

/// Minimum number of unused resident bytes for a trim, because a trim locks each arena of the heap in turn.
const SPARE_BYTES_MIN: u64 = 4 << 20;

/// A burst is over when the use has fallen by at least this number of bytes plus a sixteenth of the remaining use. A
/// trim then delays no allocations of the burst.
const SETTLED_FALL_BYTES_MIN: u64 = 1 << 20;

/// Number of consecutive measurements with about the same use after which a burst is over.
const SETTLED_LOOKS: u32 = 3;

/// Starts the thread, which runs until the process ends. A second call has no effect.
///
/// # Errors
/// The error of the operating system.
pub fn start() -> io::Result<()> {
    static STARTED: AtomicBool = AtomicBool::new(false);
    if STARTED.swap(true, Ordering::AcqRel) {
        return Ok(());
    }
    heap::configure();
    thread::Builder::new().name("trim".to_owned()).spawn(run).map(drop)
}

fn run() {
    let mut judge = TrimJudge::default();
    loop {
        thread::sleep(INTERVAL);
        if judge.observe(heap_use()) {
            heap::trim();
            judge.on_trimmed(heap_use());
        }
    }
}

/// One measurement of the heap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct HeapUse {
    /// Anonymous resident memory of the process.
    resident_bytes: u64,
    /// Bytes in blocks that are in use.
    used_bytes: u64,
}

impl HeapUse {
    fn spare_bytes(self) -> u64 {
        self.resident_bytes.saturating_sub(self.used_bytes)
    }
}

/// Decides when to trim: at once if much memory is unused, and again when the use has fallen and settled.
#[derive(Debug, Default)]
struct TrimJudge {
    /// Unused bytes that the last trim could not return: stacks, rings of the kernel, and pages with one block in use.
    unavoidable_bytes: u64,
    /// The largest use since the last trim after a burst.
    peak_used_bytes: u64,
    /// The use at the last measurement.
    last_used_bytes: u64,
    /// Number of consecutive measurements at which the use was about the same as before.
    settled_looks: u32,
}

impl TrimJudge {
    /// Processes a measurement. Returns whether to trim.
    fn observe(&mut self, heap: HeapUse) -> bool {
        let HeapUse { used_bytes, .. } = heap;
        // Memory that counted as unavoidable may be in use again, so the value is lowered.
        self.unavoidable_bytes = self.unavoidable_bytes.min(heap.spare_bytes());
        self.peak_used_bytes = self.peak_used_bytes.max(used_bytes);
        let is_steady = used_bytes.abs_diff(self.last_used_bytes) <= used_bytes / 64;
        self.settled_looks = if is_steady { self.settled_looks.saturating_add(1) } else { 0 };
        self.last_used_bytes = used_bytes;

        // Earlier trims may have kept pages because of blocks that are free now. Under steady traffic the use does not
        // fall, so buffers of the traffic are not trimmed repeatedly.
        let has_fallen = self.peak_used_bytes > used_bytes + used_bytes / 16 + SETTLED_FALL_BYTES_MIN;
        if has_fallen && self.settled_looks >= SETTLED_LOOKS {
            self.peak_used_bytes = used_bytes;
            return true;
        }
        heap.spare_bytes() > self.unavoidable_bytes + SPARE_BYTES_MIN + used_bytes / 8
    }

    fn on_trimmed(&mut self, after: HeapUse) {
        self.unavoidable_bytes = after.spare_bytes();
    }
}

fn heap_use() -> HeapUse {
    HeapUse { resident_bytes: process::anonymous_bytes(), used_bytes: heap::used_bytes() }
}

#[cfg(target_env = "gnu")]
mod heap {
    /// Minimum size of a block with its own mapping: glibc's initial value.
    const MAPPED_BYTES_MIN: libc::c_int = 128 << 10;

    /// Sets two parameters of glibc. Without them, a trim would not return some free pages:
    ///
    /// - The threshold for mapped blocks is fixed. Otherwise glibc raises it to the size of the largest mapped block
    ///   that was freed, up to 32 MiB. Then the large tables of a burst lie between small blocks.
    /// - Small blocks are merged with their free neighbors when they are freed, not by the next trim. A trim does not
    ///   return the free end of an arena, except of the first one; only a free that merges at least 64 KiB does.
    pub(super) fn configure() {
        // SAFETY: each call sets a number that glibc reads with a lock held.
        let is_set =
            unsafe { [libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES_MIN), libc::mallopt(libc::M_MXFAST, 0)] };
        debug_assert_eq!(is_set, [1, 1], "glibc takes these values");
    }

    /// Bytes in blocks that are in use, in all arenas and in separate mappings.
    pub(super) fn used_bytes() -> u64 {
        let info = info();
        (info.uordblks as u64).saturating_add(info.hblkhd as u64)
    }

    /// Bytes in blocks with their own mappings.
    #[cfg(test)]
    pub(super) fn mapped_bytes() -> u64 {
        info().hblkhd as u64
    }

    fn info() -> libc::mallinfo2 {
        // SAFETY: the call has no arguments and returns a structure of numbers.
        unsafe { libc::mallinfo2() }
    }

    /// Returns every free page to the system.
    pub(super) fn trim() {
        // SAFETY: the call does not change blocks that are in use; other threads wait for the lock of their arena.
        unsafe { libc::malloc_trim(0) };
    }
}

/// Other C libraries return memory by themselves, or have no function for it.
#[cfg(not(target_env = "gnu"))]
mod heap {
    pub(super) fn configure() {}

    pub(super) fn used_bytes() -> u64 {
        u64::MAX
    }

    pub(super) fn trim() {}
}

#[cfg(test)]
mod tests {
    use std::{hint::black_box, time::Instant};

    use super::*;

    const MIB: u64 = 1 << 20;

    fn heap(resident_mib: u64, used_mib: u64) -> HeapUse {
        HeapUse { resident_bytes: resident_mib * MIB, used_bytes: used_mib * MIB }
    }

    #[test]
    fn free_memory_above_the_threshold_is_trimmed() {
        let mut judge = TrimJudge::default();
        assert!(!judge.observe(heap(94, 80)));
        assert!(judge.observe(heap(95, 80)));
    }

    #[test]
    fn memory_that_a_trim_did_not_free_is_not_trimmed_again() {
        let mut judge = TrimJudge::default();
        assert!(judge.observe(heap(200, 80)));
        judge.on_trimmed(heap(120, 80));
        assert!(!judge.observe(heap(120, 80)) && !judge.observe(heap(134, 80)));
        assert!(judge.observe(heap(135, 80)));
        // The memory is used again, and later unused again.
        assert!(!judge.observe(heap(120, 110)));
        assert!(judge.observe(heap(120, 80)));
    }

    #[test]
    fn memory_of_a_burst_is_trimmed_once_the_use_has_settled() {
        let mut judge = TrimJudge::default();
        judge.on_trimmed(heap(90, 80));
        assert!(!judge.observe(heap(120, 110)), "the burst");
        let looks: Vec<bool> = (0..4).map(|_| judge.observe(heap(93, 80))).collect();
        assert_eq!(looks, [false, false, false, true]);
        judge.on_trimmed(heap(92, 80));
        assert!((0..100).all(|_| !judge.observe(heap(94, 80))), "the use has not fallen since");
    }

    #[test]
    #[cfg(target_env = "gnu")]
    fn free_memory_between_used_blocks_is_returned() {
        start().expect("a thread");
        // Every other block stays in use, so that the heap cannot shrink at its end.
        let mut blocks: Vec<_> = (0..4_000).map(|_| Some(black_box(vec![1_u8; 32 << 10]))).collect();
        let full = heap_use();
        for block in blocks.iter_mut().step_by(2) {
            *block = None;
        }
        let deadline = Instant::now() + Duration::from_mins(1);
        while heap_use().resident_bytes + 40 * MIB > full.resident_bytes {
            assert!(Instant::now() < deadline, "{:?}, and {full:?} before", heap_use());
            thread::sleep(Duration::from_millis(1));
        }
        drop(blocks);
    }

    #[test]
    #[cfg(target_env = "gnu")]
    fn a_large_block_has_a_mapping_of_its_own_after_a_larger_one_was_freed() {
        start().expect("a thread");
        drop(black_box(vec![1_u8; 16 << 20]));
        // Other tests allocate and free memory concurrently. So mappings of theirs may end during an attempt, and
        // blocks may fit in memory that they have freed.
        let is_mapped = (0..10).any(|_| {
            let mut blocks = Vec::new();
            (0..100).any(|_| {
                let before = heap::mapped_bytes();
                blocks.push(black_box(vec![1_u8; 1 << 20]));
                heap::mapped_bytes() >= before + MIB
            })
        });
        assert!(is_mapped, "a block of 1 MiB lies in the heap");
    }
}
