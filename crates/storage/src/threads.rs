//! The threads of a storage.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    process,
    thread::{Builder, JoinHandle},
};

use crate::error::StorageError;

/// Starts a thread of the storage in `path`, which ends the process if it panics. Without the thread, requests would wait
/// forever.
pub(crate) fn start(
    name: String,
    path: &Path,
    run: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, StorageError> {
    let thread_name = name.clone();
    let thread = Builder::new().name(name).spawn(move || {
        if catch_unwind(AssertUnwindSafe(run)).is_err() {
            eprintln!("dunlin: the thread `{thread_name}` panicked, see above; the process ends");
            process::abort();
        }
    });
    thread.map_err(|error| StorageError::io("start a thread of the storage", path, &error))
}
