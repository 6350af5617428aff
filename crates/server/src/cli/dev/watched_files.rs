//! Changes of a game's files.
//!
//! The files are looked at several times per second. A game has a few dozen; the kernel's notices of changes would be
//! faster, but they need a crate, and do not come for folders that are mounted from another machine or system.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{self, Component, Path, PathBuf},
    time::SystemTime,
};

use crate::cli::Failure;

/// Maximum number of files below the folder of a game.
const FILES_MAX: usize = 10_000;

/// Folders and files that are not part of the build: results, packages, the checkout of Dunlin that the guide makes.
/// Cargo writes its lock file during a build.
const OTHERS: [&str; 4] = ["target", "node_modules", "dunlin", "Cargo.lock"];

/// A file that Cargo writes into its target folder, whatever the folder's name is, and other programs into their caches.
const CACHE_TAG: &str = "CACHEDIR.TAG";

/// The folder of the page.
const PAGE: &str = "page";

/// Maximum number of looks that a change waits for others: editors and version control write several files in a row, and
/// some program may write a file all the time.
const WAITS_MAX: u32 = 5;

/// When a file was written last, and its size.
type Stamp = (SystemTime, u64);
type Stamps = BTreeMap<PathBuf, Stamp>;

/// What has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    /// Files of the page.
    pub(super) page: bool,
    /// Others.
    pub(super) sources: bool,
}

pub(super) struct Sources {
    folder: PathBuf,
    /// Files and folders that the game's server writes.
    written: BTreeSet<PathBuf>,
    /// Each file as it was when its last change was reported.
    reported: Stamps,
    /// As they were at the last look.
    seen: Stamps,
    /// The number of looks that a change has waited for others.
    waits: u32,
}

impl Sources {
    pub(super) fn new(folder: &Path, written: &[PathBuf]) -> Result<Self, Failure> {
        let folder = plain(folder);
        let written: BTreeSet<PathBuf> = written.iter().map(|path| plain(path)).collect();
        let reported = stamps_of(&folder, &written)?;
        Ok(Self { seen: reported.clone(), folder, written, reported, waits: 0 })
    }

    /// Sets the files and folders that the game's server writes. Their changes are not reported.
    pub(super) fn skip(&mut self, written: &[PathBuf]) {
        self.written = written.iter().map(|path| plain(path)).collect();
        for stamps in [&mut self.reported, &mut self.seen] {
            stamps.retain(|file, _| !file.ancestors().any(|path| self.written.contains(path)));
        }
    }

    /// What has changed since the last report. A change is reported when a second look sees the same file, and no other
    /// one that is being written, or when it has waited for others for long enough.
    pub(super) fn look(&mut self) -> Result<Changes, Failure> {
        let now = stamps_of(&self.folder, &self.written)?;
        let (mut settled, mut is_written_now) = (Vec::new(), false);
        for file in now.keys().chain(self.reported.keys()).collect::<BTreeSet<_>>() {
            if now.get(file) != self.seen.get(file) {
                is_written_now = true;
            } else if now.get(file) != self.reported.get(file) {
                settled.push(file.clone());
            }
        }
        self.seen = now;
        let waits = is_written_now && self.waits < WAITS_MAX && !settled.is_empty();
        self.waits = if waits { self.waits + 1 } else { 0 };
        if waits {
            return Ok(Changes::default());
        }
        let (mut changes, page) = (Changes::default(), self.folder.join(PAGE));
        for file in settled {
            let of_page = file.starts_with(&page);
            changes.page |= of_page;
            changes.sources |= !of_page;
            match self.seen.get(&file) {
                Some(stamp) => self.reported.insert(file, *stamp),
                None => self.reported.remove(&file),
            };
        }
        Ok(changes)
    }
}

/// An absolute path without `.` and `..`, so that two paths of a file are equal. Links are not followed.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path::absolute(path).unwrap_or_else(|_| path.to_owned()).components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

fn stamps_of(folder: &Path, written: &BTreeSet<PathBuf>) -> Result<Stamps, Failure> {
    let mut stamps = Stamps::new();
    add(folder, written, &mut stamps)?;
    Ok(stamps)
}

fn add(folder: &Path, written: &BTreeSet<PathBuf>, stamps: &mut Stamps) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::File(folder.to_owned(), error);
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let (name, path) = (entry.file_name(), entry.path());
        let is_hidden = name.as_encoded_bytes().starts_with(b".");
        if is_hidden || OTHERS.iter().any(|other| name == *other) || written.contains(&path) {
            continue;
        }
        // A file that is gone since the folder was read is a change that the next look sees.
        let Ok(metadata) = entry.metadata() else { continue };
        if metadata.is_dir() {
            if path.join(CACHE_TAG).exists() {
                continue;
            }
            match add(&path, written, stamps) {
                Err(Failure::File(_, error)) if error.kind() == io::ErrorKind::NotFound => {}
                outcome => outcome?,
            }
        } else if path.extension().is_none_or(|extension| extension != "md") {
            if stamps.len() == FILES_MAX {
                return Err(Failure::Usage(format!(
                    "there are more than {FILES_MAX} files below this folder: run `dunlin dev` in the folder of a game, \
                     and keep large data elsewhere or in target/"
                )));
            }
            stamps.insert(path, (metadata.modified().map_err(failed)?, metadata.len()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Changes = Changes { page: false, sources: false };
    const OF_PAGE: Changes = Changes { page: true, sources: false };
    const OF_SOURCES: Changes = Changes { page: false, sources: true };

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("dunlin-dev-{name}-{}", std::process::id()));
            for folder in ["src/deep", "page", "target/debug", "built/debug", "logs/rooms", ".git"] {
                fs::create_dir_all(path.join(folder)).expect("a folder");
            }
            let folder = Self(path);
            folder.write("built/CACHEDIR.TAG", "");
            folder
        }

        fn write(&self, path: &str, text: &str) {
            fs::write(self.0.join(path), text).expect("a file");
        }

        fn sources(&self, written: &[&str]) -> Result<Sources, Failure> {
            let written: Vec<PathBuf> = written.iter().map(|path| self.0.join(path)).collect();
            Sources::new(&self.0, &written)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn look(sources: &mut Sources) -> Changes {
        sources.look().expect("the files are read")
    }

    #[test]
    fn a_settled_change_is_reported_once() {
        let folder = Folder::new("settled");
        folder.write("src/main.rs", "a");
        let mut sources = folder.sources(&[]).expect("files");
        assert_eq!(look(&mut sources), NOTHING);
        let cases = [
            ("src/main.rs", OF_SOURCES),
            ("src/deep/new.rs", OF_SOURCES),
            ("config.json", OF_SOURCES),
            ("page/game.js", OF_PAGE),
            ("target/debug/stars", NOTHING),
            ("built/debug/stars", NOTHING),
            (".git/index", NOTHING),
            ("Cargo.lock", NOTHING),
            ("README.md", NOTHING),
        ];
        for (path, changes) in cases {
            folder.write(path, "longer");
            assert_eq!(look(&mut sources), NOTHING, "{path}: it may still be written");
            assert_eq!(look(&mut sources), changes, "{path}");
            assert_eq!(look(&mut sources), NOTHING, "{path}: reported already");
        }
        fs::remove_file(folder.0.join("src/deep/new.rs")).expect("it is there");
        folder.write("page/game.js", "both");
        assert_eq!(look(&mut sources), NOTHING);
        assert_eq!(look(&mut sources), Changes { page: true, sources: true }, "a file of each kind");
    }

    #[test]
    fn what_the_server_writes_is_no_change() {
        let folder = Folder::new("written");
        let mut sources = folder.sources(&["game.pid", "./src/../logs"]).expect("files");
        for path in ["game.pid", "logs/game", "logs/rooms/a", "game.log"] {
            folder.write(path, "a");
        }
        assert_eq!(look(&mut sources), NOTHING);
        assert_eq!(look(&mut sources), OF_SOURCES, "nobody has named game.log");
        // The configuration names it now.
        folder.write("game.log", "longer");
        sources.skip(&["game.pid", "game.log", "logs"].map(|path| folder.0.join(path)));
        for _ in 0..2 {
            folder.write("logs/game", "longer");
            assert_eq!(look(&mut sources), NOTHING);
        }
    }

    #[test]
    fn a_file_that_is_written_all_the_time_hides_no_change() {
        let folder = Folder::new("busy");
        let mut sources = folder.sources(&[]).expect("files");
        folder.write("src/main.rs", "a");
        let mut looks = 0..;
        let mut busy = |sources: &mut Sources| {
            folder.write("data.bin", &"x".repeat(looks.next().expect("a number")));
            look(sources)
        };
        assert_eq!(busy(&mut sources), NOTHING);
        for _ in 0..WAITS_MAX {
            assert_eq!(busy(&mut sources), NOTHING, "the files may belong together");
        }
        assert_eq!(busy(&mut sources), OF_SOURCES);
        for _ in 0..2 * WAITS_MAX {
            assert_eq!(busy(&mut sources), NOTHING, "reported already");
        }
        assert_eq!(look(&mut sources), OF_SOURCES, "nobody writes it any more");
    }

    #[test]
    fn a_folder_with_too_many_files_is_refused() {
        let folder = Folder::new("many");
        for number in 0..FILES_MAX {
            folder.write(&format!("src/{number}"), "");
        }
        let mut sources = folder.sources(&[]).expect("at the limit");
        folder.write("one-more", "");
        assert!(sources.look().is_err_and(|failure| failure.to_string().contains("more than 10000 files")));
        assert!(folder.sources(&[]).is_err());
        fs::remove_file(folder.0.join("one-more")).expect("it is there");
        assert_eq!(look(&mut sources), NOTHING, "it goes on");
    }
}
