//! Profiles of the running process in pprof format, which `go tool pprof` reads: where its threads spend processor time
//! ([`cpu_profile`]), which code has allocated its memory ([`heap_profile`]), and where it has waited ([`wait_profile`]).
//!
//! A signal handler and an allocator take the samples: they do not allocate, and know only addresses. Names are looked up
//! when a profile is written, also in a file of symbols beside the binary. Without symbols, a profile has addresses and
//! build ids.

mod cpu;
mod heap;
mod mappings;
mod pprof;
mod stack;
mod waits;

pub use cpu::{CpuError, SAMPLES_PER_SECOND, cpu_profile};
pub use heap::{
    HEAP_INTERVAL_BYTES, HeapError, HeapMark, HeapView, SampledAllocator, heap_profile, heap_profile_since, sample_heap,
};
pub use pprof::Names;
pub use waits::{Wait, wait_profile};
