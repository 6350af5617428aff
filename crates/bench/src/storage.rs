//! `storage`: what namespaces with `durability` cost, and what the storage costs everything else.
//!
//! - `args`: the command line. `latency`, `start`, `background`: the scenarios.
//! - `fill`: writes a storage before a server opens it. `disk`: how long one sync takes, what compactions have done.

pub mod args;

mod background;
mod disk;
mod fill;
mod latency;
mod start;

use std::fs;
use std::path::{Path, PathBuf};

use self::args::{StorageBenchArgs, StorageScenario};
use crate::error::Error;

/// Runs the scenario of the command line.
pub fn run(args: &StorageBenchArgs) -> Result<(), Error> {
    match &args.scenario {
        StorageScenario::Latency(args) => latency::run(args),
        StorageScenario::Start(args) => start::run(args),
        StorageScenario::Background(args) => background::run(args),
    }
}

/// A directory for storages that is removed at the end.
struct DataFolder(PathBuf);

impl DataFolder {
    /// Makes it in `parent`, or where temporary files are.
    fn make(parent: Option<&Path>) -> Result<Self, Error> {
        let parent = parent.map_or_else(std::env::temp_dir, Path::to_path_buf);
        let path = parent.join(format!("dunlin-bench-storage-{}", std::process::id()));
        fs::create_dir_all(&path).map_err(|source| {
            Error::os(format!("make {}", path.display()), source, "give --directory a directory with space")
        })?;
        Ok(DataFolder(path))
    }

    fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for DataFolder {
    fn drop(&mut self) {
        // Fails only if there is nothing left to do.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A setting of a started server.
fn setting(key: &str, value: impl std::fmt::Display) -> String {
    format!("{key}={value}")
}
