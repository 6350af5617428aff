//! A directory for the files of servers.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Error;
use crate::interrupt;

/// A directory that is removed at the end.
pub struct DataFolder(PathBuf);

impl DataFolder {
    /// Creates the directory in `parent`, or in the directory for temporary files. Its name begins with `dunlin-bench-`
    /// and `what`.
    pub fn make(parent: Option<&Path>, what: &str) -> Result<Self, Error> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let parent = parent.map_or_else(std::env::temp_dir, Path::to_path_buf);
        let path = parent.join(format!("dunlin-bench-{what}-{}-{number}", std::process::id()));
        interrupt::make_folder(&path, |path| fs::create_dir_all(path)).map_err(|source| {
            Error::os(format!("make {}", path.display()), source, "give --directory a directory with space")
        })?;
        Ok(DataFolder(path))
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for DataFolder {
    fn drop(&mut self) {
        interrupt::remove_folder(&self.0);
    }
}
