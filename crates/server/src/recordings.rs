//! The recordings of rooms that lie in the directories of this node.

use std::{
    cmp::Reverse,
    collections::BTreeSet,
    fs::{self, File},
    io::{self, Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
    sync::Arc,
    time::UNIX_EPOCH,
};

use dunlin_rooms::recording::Header;
use tokio::{sync::Semaphore, task::spawn_blocking};

use crate::{
    peers::{
        ListedRecording, PeerError, RecordingList, RecordingNode, RecordingPart, RecordingPartQuestion,
        RecordingsQuestion,
    },
    rooms::{name_of_recordings, parts_of_recording},
};

/// Maximum recordings of an answer: the newest.
pub(crate) const LISTED_MAX: usize = 100;

/// Maximum files whose names are looked at in a directory.
const FILES_MAX: usize = 100_000;

/// Maximum bytes of a recording that are read to list it. Parameters of a room may be longer than this.
const HEADER_BYTES_MAX: u64 = 64 << 10;

/// Maximum bytes of a part of a recording that another node asks for.
const PART_BYTES_MAX: usize = 256 << 10;

/// The recordings in the directories of this node.
#[derive(Clone, Debug)]
pub struct OwnRecordings {
    node: RecordingNode,
    directories: Arc<BTreeSet<PathBuf>>,
    /// One directory is looked through at a time.
    looking: Arc<Semaphore>,
}

/// The time in the name of a recording, and the name. The newest are the smallest.
type Found = (Reverse<u64>, String, PathBuf);

impl Default for OwnRecordings {
    fn default() -> Self {
        Self::new(RecordingNode::default(), BTreeSet::new())
    }
}

impl OwnRecordings {
    /// Those of a node that records into these directories.
    pub fn new(node: RecordingNode, directories: BTreeSet<PathBuf>) -> Self {
        Self { node, directories: Arc::new(directories), looking: Arc::new(Semaphore::new(1)) }
    }

    /// This node.
    pub const fn node(&self) -> &RecordingNode {
        &self.node
    }

    /// The newest recordings that are wanted; `None` if they could not be looked for.
    pub async fn list(&self, wanted: RecordingsQuestion) -> Option<RecordingList> {
        let (node, directories) = (self.node.clone(), Arc::clone(&self.directories));
        self.look(move || RecordingList { node, ..list(&directories, &wanted) }).await
    }

    /// The path of a recording with this name, if there is one.
    pub async fn find(&self, file: &str) -> Option<PathBuf> {
        let (directories, file) = (Arc::clone(&self.directories), file.to_owned());
        spawn_blocking(move || find(&directories, &file)).await.ok()?
    }

    /// A part of a recording for another node, in an answer of at most this size.
    ///
    /// # Errors
    /// For the other node.
    pub async fn part(
        &self,
        RecordingPartQuestion { file, offset }: RecordingPartQuestion,
        answer_bytes_max: usize,
    ) -> Result<RecordingPart, PeerError> {
        let directories = Arc::clone(&self.directories);
        // Three bytes are four characters of base64.
        let bytes_max = PART_BYTES_MAX.min(answer_bytes_max / 4 * 3);
        let read = spawn_blocking(move || {
            let path = find(&directories, &file).ok_or_else(|| PeerError::not_found(NO_SUCH_RECORDING))?;
            read_part(&path, offset, bytes_max).map_err(PeerError::internal)
        });
        read.await.map_err(PeerError::internal)?
    }

    /// Runs this on a thread that may block. The permit is given back at its end, also if nobody waits for it any more.
    async fn look<T: Send + 'static>(&self, look: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let permit = Arc::clone(&self.looking).acquire_owned().await.ok()?;
        let looking = spawn_blocking(move || {
            let _permit = permit;
            look()
        });
        looking.await.ok()
    }
}

/// What is said of a name for which there is no recording.
pub(crate) const NO_SUCH_RECORDING: &str = "this node has no such recording";

/// Lists recordings. Reads names of files, and the beginning of those that are listed.
fn list(directories: &BTreeSet<PathBuf>, wanted: &RecordingsQuestion) -> RecordingList {
    let mut answer = RecordingList { directories: directories.len() as u64, ..RecordingList::default() };
    let mut newest: BTreeSet<Found> = BTreeSet::new();
    for directory in directories {
        match collect(directory, wanted, &mut newest, &mut answer.left_out) {
            Ok(is_cut) => answer.cut += u64::from(is_cut),
            // It is made with the first recording.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => answer.unreadable.push(format!("{}: {error}", directory.display()).into()),
        }
    }
    let described = newest.into_iter().filter_map(|(Reverse(began_ms), file, path)| described(began_ms, file, &path));
    answer.recordings = described.filter(|recording| takes(wanted, recording)).collect();
    answer
}

/// The path of a recording with this name, if there is one.
fn find(directories: &BTreeSet<PathBuf>, file: &str) -> Option<PathBuf> {
    parts_of_recording(file)?;
    let paths = directories.iter().map(|directory| directory.join(file));
    paths.into_iter().find(|path| fs::metadata(path).is_ok_and(|metadata| metadata.is_file()))
}

/// Whether the directory has more files than are looked at.
fn collect(
    directory: &Path,
    wanted: &RecordingsQuestion,
    newest: &mut BTreeSet<Found>,
    left_out: &mut u64,
) -> io::Result<bool> {
    for (index, entry) in fs::read_dir(directory)?.enumerate() {
        if index == FILES_MAX {
            return Ok(true);
        }
        let entry = entry?;
        let Ok(file) = entry.file_name().into_string() else { continue };
        let Some((_, began_ms)) = parts_of_recording(&file).filter(|(name, _)| may_be(wanted, name)) else { continue };
        newest.insert((Reverse(began_ms), file, entry.path()));
        if newest.len() > LISTED_MAX {
            newest.pop_last();
            *left_out += 1;
        }
    }
    Ok(false)
}

/// Whether a file whose name begins so may be one of them.
fn may_be(wanted: &RecordingsQuestion, name: &str) -> bool {
    name.contains(&name_of_recordings(&wanted.find))
        && (wanted.channel.is_empty() || name == name_of_recordings(&wanted.channel))
}

fn takes(wanted: &RecordingsQuestion, recording: &ListedRecording) -> bool {
    wanted.channel.is_empty() || recording.channel.as_ref().is_none_or(|channel| *channel == wanted.channel)
}

/// Describes a file; `None` if it has been deleted meanwhile.
fn described(began_ms: u64, file: String, path: &Path) -> Option<ListedRecording> {
    let mut recording = ListedRecording { file: file.into(), began_ms, ..ListedRecording::default() };
    match read_header(path, &mut recording) {
        Ok(Ok(header)) => {
            recording.channel = Some(header.channel.into());
            recording.simulation = Some(header.simulation.into());
        }
        Ok(Err(fault)) => recording.fault = Some(fault.into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => recording.fault = Some(error.to_string().into()),
    }
    Some(recording)
}

/// The header of a recording, or why it has none.
fn read_header(path: &Path, recording: &mut ListedRecording) -> io::Result<Result<Header, String>> {
    // To open a pipe would wait for a writer.
    if !fs::metadata(path)?.is_file() {
        return Ok(Err("it is not a regular file".to_owned()));
    }
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    recording.bytes = metadata.len();
    let since = metadata.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    recording.written_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
    let mut beginning = Vec::new();
    file.take(HEADER_BYTES_MAX).read_to_end(&mut beginning)?;
    Ok(Header::read(&beginning).map_err(|error| error.to_string()))
}

/// At most so many bytes of a file.
fn read_part(path: &Path, offset: u64, bytes_max: usize) -> io::Result<RecordingPart> {
    let mut file = File::open(path)?;
    let bytes = file.metadata()?.len();
    let mut data = Vec::new();
    file.seek(SeekFrom::Start(offset))?;
    file.take(bytes_max as u64).read_to_end(&mut data)?;
    Ok(RecordingPart { bytes, data })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use dunlin_rooms::{RoomOptions, recording::Recorder};

    use super::*;
    use crate::rooms::RECORDING_EXTENSION;

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

        fn list(&self, find: &str, channel: &str) -> RecordingList {
            list(&self.directories(), &RecordingsQuestion { find: find.into(), channel: channel.into() })
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn channels(listed: &RecordingList) -> Vec<&str> {
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
        assert!(listed.unreadable.is_empty());
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

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().build().expect("a runtime")
    }

    #[test]
    fn a_directory_is_looked_through_alone_also_after_its_page_has_gone() {
        let recordings = OwnRecordings::default();
        let (begun, has_begun) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel::<()>();
        // It owns the sender: a test that fails lets the look end as well.
        runtime().block_on(async move {
            let of_page = recordings.clone();
            let page = tokio::spawn(async move {
                let look = move || {
                    begun.send(()).expect("the test waits");
                    let _ = may_go_on.recv();
                };
                of_page.look(look).await
            });
            // The page's task has begun, and waits for its look.
            while has_begun.try_recv().is_err() {
                tokio::task::yield_now().await;
            }
            page.abort();
            assert!(page.await.is_err_and(|error| error.is_cancelled()));
            assert_eq!(recordings.looking.available_permits(), 0, "it is looked through still");
            go_on.send(()).expect("it looks still");
            assert_eq!(recordings.look(|| 7).await, Some(7), "and then the next one is");
        });
    }

    #[test]
    fn parts_of_a_recording_are_bounded_and_make_up_the_whole() {
        let folder = Folder::new("parts");
        let whole: Vec<u8> = (0..PART_BYTES_MAX + 5).map(|place| place as u8).collect();
        folder.put("tag_1-1.dunlin-room", &whole);
        let recordings = OwnRecordings::new(RecordingNode::default(), folder.directories());
        let part = |file: &str, offset, bytes_max| {
            runtime().block_on(recordings.part(RecordingPartQuestion { file: file.into(), offset }, bytes_max))
        };
        let first = part("tag_1-1.dunlin-room", 0, usize::MAX).expect("a part");
        assert_eq!((first.data.len(), first.bytes), (PART_BYTES_MAX, whole.len() as u64));
        let rest = part("tag_1-1.dunlin-room", PART_BYTES_MAX as u64, usize::MAX).expect("a part");
        assert_eq!([first.data, rest.data].concat(), whole);
        assert!(part("tag_1-1.dunlin-room", whole.len() as u64 + 1, usize::MAX).expect("a part").data.is_empty());
        assert_eq!(part("tag_1-1.dunlin-room", 0, 8).expect("a part").data.len(), 6, "in base64");
        let refused = part("../secret", 0, 8).expect_err("there is none");
        assert_eq!((refused.code, &*refused.message), (104, "not found: this node has no such recording"));
    }
}
