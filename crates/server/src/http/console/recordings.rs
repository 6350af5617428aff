//! The recordings of rooms that lie in the directories of this node.

use std::{
    cmp::Reverse,
    collections::BTreeSet,
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use dunlin_rooms::recording::Header;
use serde::{Deserialize, Serialize};

use crate::rooms::{RECORDING_EXTENSION, name_of_recordings};

/// Maximum recordings of an answer: the newest.
const LISTED_MAX: usize = 100;

/// Maximum files whose names are looked at in a directory.
const FILES_MAX: usize = 100_000;

/// Maximum bytes of a recording that are read to list it. Parameters of a room may be longer than this.
const HEADER_BYTES_MAX: u64 = 64 << 10;

/// Which recordings the page asks for.
#[derive(Debug, Deserialize)]
pub(super) struct RecordingsWanted {
    /// A part of the name of the channel.
    #[serde(default)]
    find: String,
    /// The whole name of the channel; empty for all channels.
    #[serde(default)]
    channel: String,
}

/// The recordings that were asked for.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Recordings {
    /// The newest come first.
    recordings: Vec<Recording>,
    /// Further ones with such a name that are not listed.
    left_out: usize,
    /// Directories with more files than are looked at.
    cut: usize,
    /// Directories in which rooms of this node are recorded.
    directories: usize,
    /// Why directories cannot be read.
    unreadable: Vec<String>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Recording {
    /// The name of the file, which opens it.
    file: String,
    /// When the room was opened.
    began_ms: u64,
    bytes: u64,
    written_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    channel: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    simulation: Option<String>,
    /// Why the file is no recording that this version can read.
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<String>,
}

/// The time in the name of a recording, and the name. The newest are the smallest.
type Found = (Reverse<u64>, String, PathBuf);

/// Lists recordings. Reads names of files, and the beginning of those that are listed.
pub(super) fn list(directories: &BTreeSet<PathBuf>, wanted: &RecordingsWanted) -> Recordings {
    let mut answer = Recordings {
        recordings: Vec::new(),
        left_out: 0,
        cut: 0,
        directories: directories.len(),
        unreadable: Vec::new(),
    };
    let mut newest: BTreeSet<Found> = BTreeSet::new();
    for directory in directories {
        match collect(directory, wanted, &mut newest, &mut answer.left_out) {
            Ok(is_cut) => answer.cut += usize::from(is_cut),
            // It is made with the first recording.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => answer.unreadable.push(format!("{}: {error}", directory.display())),
        }
    }
    let described = newest.into_iter().map(|(Reverse(began_ms), file, path)| Recording::of(began_ms, file, &path));
    answer.recordings = described.filter(|recording| wanted.takes(recording)).collect();
    answer
}

/// The path of a recording with this name, if there is one.
pub(super) fn find(directories: &BTreeSet<PathBuf>, file: &str) -> Option<PathBuf> {
    parts_of(file)?;
    let paths = directories.iter().map(|directory| directory.join(file));
    paths.into_iter().find(|path| fs::metadata(path).is_ok_and(|metadata| metadata.is_file()))
}

/// Whether the directory has more files than are looked at.
fn collect(
    directory: &Path,
    wanted: &RecordingsWanted,
    newest: &mut BTreeSet<Found>,
    left_out: &mut usize,
) -> io::Result<bool> {
    for (index, entry) in fs::read_dir(directory)?.enumerate() {
        if index == FILES_MAX {
            return Ok(true);
        }
        let entry = entry?;
        let Ok(file) = entry.file_name().into_string() else { continue };
        let Some((_, began_ms)) = parts_of(&file).filter(|(name, _)| wanted.may_be(name)) else { continue };
        newest.insert((Reverse(began_ms), file, entry.path()));
        if newest.len() > LISTED_MAX {
            newest.pop_last();
            *left_out += 1;
        }
    }
    Ok(false)
}

/// The room and the time in a name such as `chat_1-5000.dunlin-room`; `None` for any other name, such as one with a path.
fn parts_of(file: &str) -> Option<(&str, u64)> {
    let (name, time) = file.strip_suffix(RECORDING_EXTENSION)?.strip_suffix('.')?.rsplit_once('-')?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_recording = name.bytes().all(is_plain) && time.bytes().all(|byte| byte.is_ascii_digit());
    if is_recording { time.parse().ok().map(|began_ms| (name, began_ms)) } else { None }
}

impl RecordingsWanted {
    /// Whether a file whose name begins so may be one of them.
    fn may_be(&self, name: &str) -> bool {
        name.contains(&name_of_recordings(&self.find))
            && (self.channel.is_empty() || name == name_of_recordings(&self.channel))
    }

    fn takes(&self, recording: &Recording) -> bool {
        self.channel.is_empty() || recording.channel.as_ref().is_none_or(|channel| *channel == self.channel)
    }
}

impl Recording {
    fn of(began_ms: u64, file: String, path: &Path) -> Self {
        let mut recording =
            Self { file, began_ms, bytes: 0, written_ms: 0, channel: None, simulation: None, fault: None };
        match recording.read(path) {
            Ok(header) => {
                recording.channel = Some(header.channel);
                recording.simulation = Some(header.simulation);
            }
            Err(fault) => recording.fault = Some(fault),
        }
        recording
    }

    fn read(&mut self, path: &Path) -> Result<Header, String> {
        let failed = |error: io::Error| error.to_string();
        // To open a pipe would wait for a writer.
        if !fs::metadata(path).map_err(failed)?.is_file() {
            return Err("it is not a regular file".to_owned());
        }
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        self.bytes = metadata.len();
        let since = metadata.modified().map_err(failed)?.duration_since(UNIX_EPOCH).unwrap_or_default();
        self.written_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        let mut beginning = Vec::new();
        file.take(HEADER_BYTES_MAX).read_to_end(&mut beginning).map_err(failed)?;
        Header::read(&beginning).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use dunlin_rooms::{RoomOptions, recording::Recorder};

    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("dunlin-recordings-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).expect("a folder");
            Self(path)
        }

        fn add(&self, channel: &str, began_ms: u64) {
            let header = Header {
                simulation: "tag".to_owned(),
                params: "{}".to_owned(),
                seed: 1,
                channel: channel.to_owned(),
                options: RoomOptions::default(),
            };
            let bytes = std::mem::take(Recorder::new(&header, Vec::new()).written());
            self.put(&format!("{}-{began_ms}.{RECORDING_EXTENSION}", name_of_recordings(channel)), &bytes);
        }

        fn put(&self, file: &str, bytes: &[u8]) {
            fs::write(self.0.join(file), bytes).expect("a file");
        }

        fn directories(&self) -> BTreeSet<PathBuf> {
            BTreeSet::from([self.0.clone(), self.0.join("not-made-yet")])
        }

        fn list(&self, find: &str, channel: &str) -> Recordings {
            list(&self.directories(), &RecordingsWanted { find: find.to_owned(), channel: channel.to_owned() })
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn channels(listed: &Recordings) -> Vec<&str> {
        listed.recordings.iter().map(|recording| recording.channel.as_deref().unwrap_or("-")).collect()
    }

    #[test]
    fn the_newest_come_first_and_others_than_recordings_do_not() {
        let folder = Folder::new("list");
        folder.add("tag:1", 5_000);
        folder.add("tag_1", 7_000);
        folder.add("arena:hunt", 10_000);
        folder.put("notes.txt", b"none");
        folder.put("tag_1-x.dunlin-room", b"none");
        assert_eq!(channels(&folder.list("", "")), ["arena:hunt", "tag_1", "tag:1"]);
        assert_eq!(channels(&folder.list("g:1", "")), ["tag_1", "tag:1"], "as they are written in names of files");
        assert_eq!(channels(&folder.list("", "tag:1")), ["tag:1"], "and no other channel with such a name");
        assert_eq!(channels(&folder.list("5000", "")), [""; 0], "the time is no part of the name");
        let listed = folder.list("", "");
        assert_eq!((listed.left_out, listed.cut, listed.directories), (0, 0, 2));
        assert_eq!(listed.unreadable, [""; 0]);
    }

    #[test]
    fn a_file_that_is_no_recording_is_listed_with_the_reason() {
        let folder = Folder::new("faults");
        folder.put("tag_1-1.dunlin-room", b"nonsense");
        folder.put("tag_1-2.dunlin-room", b"DUNLINRR\xff");
        folder.put("tag_1-3.dunlin-room", b"DUNLINRR\x03");
        let faults: Vec<_> = folder.list("", "").recordings.into_iter().map(|recording| recording.fault).collect();
        let faults: Vec<_> = faults.iter().map(|fault| fault.as_deref().expect("a fault")).collect();
        assert_eq!(
            faults,
            ["the recording breaks off", "recordings of version 255 are not known here", "this is no recording"]
        );
    }

    #[test]
    fn as_many_are_listed_as_an_answer_may_have() {
        let folder = Folder::new("many");
        for began_ms in 0..LISTED_MAX as u64 {
            folder.add("tag:1", began_ms);
        }
        let listed = folder.list("", "");
        assert_eq!((listed.recordings.len(), listed.left_out), (LISTED_MAX, 0));
        folder.add("tag:1", 1_000);
        let listed = folder.list("", "");
        assert_eq!((listed.recordings.len(), listed.left_out), (LISTED_MAX, 1));
        assert_eq!(listed.recordings.first().map(|recording| recording.began_ms), Some(1_000));
    }

    #[test]
    fn only_names_of_recordings_are_opened() {
        let folder = Folder::new("find");
        folder.add("tag:1", 1);
        folder.put("secret", b"x");
        let directories = folder.directories();
        assert_eq!(find(&directories, "tag_1-1.dunlin-room"), Some(folder.0.join("tag_1-1.dunlin-room")));
        for other in ["tag_1-2.dunlin-room", "secret", "", "../secret", "/etc/passwd", "../x/tag_1-1.dunlin-room"] {
            assert_eq!(find(&directories, other), None, "{other}");
        }
    }
}
