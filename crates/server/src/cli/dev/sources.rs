//! Changes of a game's files.
//!
//! The files are looked at several times per second. A game has a few dozen; the kernel's notices of changes would be
//! faster, but they need a crate, and do not come for folders that are mounted from another machine or system.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use crate::cli::Failure;

/// Maximum number of files below the folder of a game.
const FILES_MAX: usize = 10_000;

/// Folders and files that are not part of the build: results, packages, the checkout of Dunlin that the guide makes.
/// Cargo writes its lock file during a build.
const OTHERS: [&str; 4] = ["target", "node_modules", "dunlin", "Cargo.lock"];

/// The folder of the page.
const PAGE: &str = "page";

/// When a file was written last, and its size.
type Stamp = (SystemTime, u64);
type Stamps = BTreeMap<PathBuf, Stamp>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    None,
    /// Only files of the page.
    Page,
    Sources,
}

pub(super) struct Sources {
    folder: PathBuf,
    /// As they were when the last change was reported.
    reported: Stamps,
    /// As they were at the last look.
    seen: Stamps,
}

impl Sources {
    pub(super) fn new(folder: PathBuf) -> Result<Self, Failure> {
        let reported = stamps_of(&folder)?;
        Ok(Self { seen: reported.clone(), folder, reported })
    }

    /// What has changed since the last report. A change is reported when a second look sees the same files, because
    /// editors and version control write several of them in a row.
    pub(super) fn look(&mut self) -> Result<Change, Failure> {
        let now = stamps_of(&self.folder)?;
        let is_settled = now == self.seen;
        self.seen = now;
        if !is_settled || self.seen == self.reported {
            return Ok(Change::None);
        }
        let (page, others) = (self.folder.join(PAGE), |stamps: &Stamps, page: &Path| -> Stamps {
            stamps
                .iter()
                .filter(|(path, _)| !path.starts_with(page))
                .map(|(path, stamp)| (path.clone(), *stamp))
                .collect()
        });
        let is_page = others(&self.seen, &page) == others(&self.reported, &page);
        self.reported = self.seen.clone();
        Ok(if is_page { Change::Page } else { Change::Sources })
    }
}

fn stamps_of(folder: &Path) -> Result<Stamps, Failure> {
    let mut stamps = Stamps::new();
    add(folder, &mut stamps)?;
    Ok(stamps)
}

fn add(folder: &Path, stamps: &mut Stamps) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::File(folder.to_owned(), error);
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let is_hidden = name.as_encoded_bytes().starts_with(b".");
        if is_hidden || OTHERS.iter().any(|other| name == *other) {
            continue;
        }
        // A file that is gone since the folder was read is a change that the next look sees.
        let Ok(metadata) = entry.metadata() else { continue };
        if metadata.is_dir() {
            match add(&entry.path(), stamps) {
                Err(Failure::File(_, error)) if error.kind() == io::ErrorKind::NotFound => {}
                outcome => outcome?,
            }
        } else if entry.path().extension().is_none_or(|extension| extension != "md") {
            if stamps.len() == FILES_MAX {
                return Err(Failure::Usage(format!(
                    "there are more than {FILES_MAX} files below this folder: run `dunlin dev` in the folder of a game, \
                     and keep large data elsewhere or in target/"
                )));
            }
            stamps.insert(entry.path(), (metadata.modified().map_err(failed)?, metadata.len()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("dunlin-dev-{name}-{}", std::process::id()));
            for folder in ["src/deep", "page", "target/debug", ".git"] {
                fs::create_dir_all(path.join(folder)).expect("a folder");
            }
            Self(path)
        }

        fn write(&self, path: &str, text: &str) {
            fs::write(self.0.join(path), text).expect("a file");
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_settled_change_is_reported_once() {
        let folder = Folder::new("settled");
        folder.write("src/main.rs", "a");
        let mut sources = Sources::new(folder.0.clone()).expect("files");
        assert_eq!(sources.look().ok(), Some(Change::None));
        let cases = [
            ("src/main.rs", Change::Sources),
            ("src/deep/new.rs", Change::Sources),
            ("config.json", Change::Sources),
            ("page/game.js", Change::Page),
            ("target/debug/stars", Change::None),
            (".git/index", Change::None),
            ("Cargo.lock", Change::None),
            ("README.md", Change::None),
        ];
        for (path, change) in cases {
            folder.write(path, "longer");
            assert_eq!(sources.look().ok(), Some(Change::None), "{path}: it may still be written");
            assert_eq!(sources.look().ok(), Some(change), "{path}");
            assert_eq!(sources.look().ok(), Some(Change::None), "{path}: reported already");
        }
        fs::remove_file(folder.0.join("src/deep/new.rs")).expect("it is there");
        folder.write("page/game.js", "both");
        assert_eq!(sources.look().ok(), Some(Change::None));
        assert_eq!(sources.look().ok(), Some(Change::Sources), "a file is gone");
    }

    #[test]
    fn a_folder_with_too_many_files_is_refused() {
        let folder = Folder::new("many");
        for number in 0..FILES_MAX {
            folder.write(&format!("src/{number}"), "");
        }
        assert!(Sources::new(folder.0.clone()).is_ok(), "at the limit");
        folder.write("one-more", "");
        let refused = Sources::new(folder.0.clone()).err().map(|failure| failure.to_string());
        assert!(refused.is_some_and(|text| text.contains("more than 10000 files")));
    }
}
