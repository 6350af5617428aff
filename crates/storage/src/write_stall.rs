//! Handles writes while `RocksDB` stalls them. A full disk can stop a flush before it stops the write-ahead log.
//! `RocksDB` then blocks every write and waits for free space, so callers would never get an error.

use std::{ffi::CString, os::unix::ffi::OsStrExt as _, path::Path, time::Duration};

use rocksdb::{DB, ErrorKind, WriteBatch, WriteOptions, properties};

use crate::error::{FAILED_FLUSH, StorageFault};

/// Time between two checks of a stalled `RocksDB`.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Number of checks after which a stall that follows a background failure counts as a failure. Compactions end ordinary
/// stalls.
const STALL_POLLS_MAX: u32 = 1_000;
/// A compaction takes up to 25 files (`max_compaction_bytes`), each about as large as a memtable, and a flush takes one
/// more.
const COMPACTION_MEMTABLES: u64 = 26;
/// The size of a file that a compaction writes (`target_file_size_base`).
const FILE_BYTES: u64 = 64 << 20;

/// Writes a batch. Waits while writes are stopped or slowed down because flushes or compactions are behind. If a flush
/// or a compaction has failed, waits for at most a second.
pub(crate) fn write(
    db: &DB,
    path: &Path,
    batch: &WriteBatch,
    is_synced: bool,
    memtable_bytes: usize,
) -> Result<(), StorageFault> {
    let mut options = WriteOptions::default();
    options.set_sync(is_synced);
    options.set_no_slowdown(true);
    let mut polls = 0;
    loop {
        match db.write_opt(WriteBatch::from_data(batch.data()), &options) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() != ErrorKind::Incomplete => return Err(StorageFault::of_rocksdb(&error)),
            Err(_) if has_failed(db) => {
                if polls >= STALL_POLLS_MAX {
                    return Err(fault_of_stall(path, memtable_bytes));
                }
                polls += 1;
                options.set_no_slowdown(true);
                std::thread::sleep(POLL_INTERVAL);
            }
            // Writes are only slowed down, and `RocksDB` waits for the right time.
            Err(_) if !is_stopped(db) => options.set_no_slowdown(false),
            Err(_) => {
                options.set_no_slowdown(true);
                std::thread::sleep(POLL_INTERVAL);
            }
        }
    }
}

fn is_stopped(db: &DB) -> bool {
    db.property_int_value(properties::IS_WRITE_STOPPED).ok().flatten() == Some(1)
}

/// Whether a flush or a compaction has failed since the start.
fn has_failed(db: &DB) -> bool {
    db.property_int_value(properties::BACKGROUND_ERRORS).ok().flatten().is_some_and(|errors| errors > 0)
}

/// `RocksDB` does not return the error of a background job. Nearly always, it had no space for a new file.
fn fault_of_stall(path: &Path, memtable_bytes: usize) -> StorageFault {
    let needed = (memtable_bytes as u64).saturating_mul(COMPACTION_MEMTABLES).max(FILE_BYTES);
    match free_bytes(path) {
        Some(free) if free < needed => {
            StorageFault::DiskFull(format!("{free} bytes are free, and a compaction may need {needed}"))
        }
        _ => StorageFault::Io(format!("{FAILED_FLUSH}, and writes are stopped; see the file LOG")),
    }
}

pub(crate) fn free_bytes(path: &Path) -> Option<u64> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    let mut found = std::mem::MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: the path ends with a zero, and the kernel writes the whole structure when the call succeeds.
    let found = unsafe {
        if libc::statvfs(path.as_ptr(), found.as_mut_ptr()) != 0 {
            return None;
        }
        found.assume_init()
    };
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_on_a_full_disk_is_a_full_disk() {
        let here = Path::new(".");
        assert!(matches!(fault_of_stall(here, usize::MAX), StorageFault::DiskFull(_)));
        assert!(matches!(fault_of_stall(here, 0), StorageFault::Io(_)));
        assert_eq!(free_bytes(Path::new("/no such directory")), None);
    }

    const CHILD_DIRECTORY: &str = "DUNLIN_STALL_CHILD";

    /// Fills the file system of the tables, while the write-ahead log is on another file system with enough space.
    #[test]
    fn child_fills_the_disk_of_the_tables() {
        const MEMTABLE_BYTES: usize = 64 << 10;
        let Some(directory) = std::env::var_os(CHILD_DIRECTORY) else { return };
        let directory = Path::new(&directory);
        let tables = directory.join("tables");
        let mut options = rocksdb::Options::default();
        options.create_if_missing(true);
        options.set_write_buffer_size(MEMTABLE_BYTES);
        options.set_compression_type(rocksdb::DBCompressionType::None);
        options.set_wal_dir(directory.join("log"));
        let db = DB::open(&options, &tables).expect("it has space so far");
        let refusal = (0_u64..10_000).find_map(|number| {
            let mut batch = WriteBatch::default();
            batch.put(number.to_be_bytes(), [7; 4096]);
            write(&db, &tables, &batch, false, MEMTABLE_BYTES).err()
        });
        // A write that waited for `RocksDB` would never return.
        assert!(matches!(refusal, Some(StorageFault::DiskFull(_))), "{refusal:?}");
        println!("filled");
    }

    #[test]
    fn a_flush_that_meets_the_full_disk_first_ends_writes() {
        let directory = std::env::temp_dir().join(format!("dunlin-stall-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory for tests");
        let script = "mkdir \"$0/tables\" && mount -t tmpfs -o size=4m tmpfs \"$0/tables\" && exec \"$@\"";
        let mut command = std::process::Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c", script]).arg(&directory);
        command.arg(std::env::current_exe().expect("a test is a file"));
        command.args(["--exact", "write_stall::tests::child_fills_the_disk_of_the_tables", "--nocapture"]);
        let output = command.env(CHILD_DIRECTORY, &directory).output().expect("util-linux is installed");
        std::fs::remove_dir_all(&directory).expect("nothing is mounted there outside of the child");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && text.contains("filled"),
            "{text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}
