//! A directory for the files of servers.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
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
        let remedy = if parent.is_some() {
            "give --directory a directory with space"
        } else {
            "set TMPDIR to a directory with space"
        };
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let parent = parent.map_or_else(std::env::temp_dir, Path::to_path_buf);
        let path = parent.join(format!("dunlin-bench-{what}-{}-{number}", std::process::id()));
        // The configuration of a server has the key of its API.
        let make = |path: &Path| DirBuilder::new().recursive(true).mode(0o700).create(path);
        interrupt::make_folder(&path, make)
            .map_err(|source| Error::os(format!("make {}", path.display()), source, remedy))?;
        Ok(DataFolder(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
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
