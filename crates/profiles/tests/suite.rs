//! Profiles of this process, which has the sampled allocator.

mod cpu;
mod decoded;
mod heap;

use std::sync::{Mutex, MutexGuard, PoisonError};

#[global_allocator]
static ALLOCATOR: dunlin_profiles::SampledAllocator = dunlin_profiles::SampledAllocator;

/// Tests that make a profile, or change a limit of the process, hold it: there is one profile of each kind at a time.
static PROCESS: Mutex<()> = Mutex::new(());

fn process() -> MutexGuard<'static, ()> {
    PROCESS.lock().unwrap_or_else(PoisonError::into_inner)
}
