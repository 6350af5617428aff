//! A directory for the files of servers.

use std::fs::{self, DirBuilder};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::interrupt;

/// A directory that is removed at the end.
pub struct DataFolder(PathBuf);

impl DataFolder {
    /// Creates the directory in `parent`, or in the directory for temporary files. Its name begins with `dunlin-bench-`
    /// and `what`, and nobody can know the rest before.
    pub fn make(parent: Option<&Path>, what: &str) -> Result<Self, Error> {
        let remedy = if parent.is_some() {
            "give --directory a directory with space"
        } else {
            "set TMPDIR to a directory with space"
        };
        let parent = parent.map_or_else(std::env::temp_dir, Path::to_path_buf);
        let number = RandomState::new().build_hasher().finish();
        let path = parent.join(format!("dunlin-bench-{what}-{number:016x}"));
        fs::create_dir_all(&parent)
            .and_then(|()| interrupt::make_folder(&path, make_private))
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

/// Creates a directory that only this user can read: the configuration of a server has the key of its API. One that exists may
/// be another user's.
fn make_private(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_folder_is_new_private_and_removed() {
        let parent = DataFolder::make(None, "parent").expect("a folder");
        let inner = parent.join("missing");
        let folders = [(); 2].map(|()| DataFolder::make(Some(&inner), "test").expect("a folder"));
        assert_ne!(folders[0].path(), folders[1].path());
        let mode = fs::metadata(folders[0].path()).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        let refused = make_private(folders[0].path()).expect_err("it may be another user's");
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        let path = parent.path().to_owned();
        drop((folders, parent));
        assert!(!path.exists());
    }
}
