//! The recordings that lie on other nodes.

use serde::{Deserialize, Serialize};

/// See [`super::Received::Recordings`]. The console's page sends these fields as well.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RecordingsQuestion {
    /// The whole name of the channel; empty for all channels.
    #[serde(default)]
    pub channel: Box<str>,
    /// A part of the name of the channel.
    #[serde(default)]
    pub find: Box<str>,
}

/// The newest recordings of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordingList {
    /// The node that has them.
    pub node: RecordingNode,
    /// The newest come first.
    pub recordings: Vec<ListedRecording>,
    /// Further ones with such a name that are not listed.
    pub left_out: u64,
    /// Directories with more files than are looked at.
    pub cut: u64,
    /// Directories in which rooms of the node are recorded.
    pub directories: u64,
    /// Why directories cannot be read.
    pub unreadable: Vec<Box<str>>,
}

/// A node with recordings.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RecordingNode {
    /// Its id.
    pub uid: Box<str>,
    /// Its name; may be empty.
    pub name: Box<str>,
}

/// A recording in a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedRecording {
    /// The name of the file, which opens it.
    pub file: Box<str>,
    /// When the room was opened.
    pub began_ms: u64,
    /// The size of the file.
    pub bytes: u64,
    /// When it was written last.
    pub written_ms: u64,
    /// The channel of the room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<Box<str>>,
    /// The game.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub simulation: Option<Box<str>>,
    /// Why the file is no recording that the node can read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<Box<str>>,
}

/// See [`super::Received::RecordingPart`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RecordingPartQuestion {
    /// The name of the file.
    pub file: Box<str>,
    /// Where the part begins.
    pub offset: u64,
}

/// A part of a recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordingPart {
    /// The size of the file now.
    pub bytes: u64,
    /// The part; empty at the end.
    #[serde(rename = "b64data", with = "super::presence::base64")]
    pub data: Vec<u8>,
}

impl RecordingNode {
    /// Whether it has this id or this name.
    pub fn is_called(&self, called: &str) -> bool {
        *self.uid == *called || (!called.is_empty() && *self.name == *called)
    }
}

impl RecordingList {
    /// Leaves out the oldest recordings until the others have at most this size in JSON.
    pub fn fit(&mut self, bytes_max: usize) {
        let mut bytes_left = bytes_max;
        let mut fits = |recording: &ListedRecording| {
            let bytes = serde_json::to_vec(recording).map_or(usize::MAX, |json| json.len() + 1);
            let left = bytes_left.checked_sub(bytes);
            bytes_left = left.unwrap_or(0);
            left.is_some()
        };
        let count = self.recordings.iter().take_while(|recording| fits(recording)).count();
        self.left_out += (self.recordings.len() - count) as u64;
        self.recordings.truncate(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_at_most_the_bytes_that_it_may_have() {
        let recording = ListedRecording { file: "tag_1-1.dunlin-room".into(), ..ListedRecording::default() };
        let bytes = serde_json::to_vec(&recording).expect("JSON").len() + 1;
        let list = RecordingList { recordings: vec![recording; 3], left_out: 1, ..RecordingList::default() };
        for (bytes_max, count) in [(3 * bytes, 3), (3 * bytes - 1, 2), (bytes - 1, 0)] {
            let mut fitted = list.clone();
            fitted.fit(bytes_max);
            assert_eq!((fitted.recordings.len(), fitted.left_out), (count, 4 - count as u64), "{bytes_max}");
        }
    }
}
