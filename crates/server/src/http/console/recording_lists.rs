//! Merges the lists of recordings of nodes.

use std::cmp::Reverse;

use dunlin_cluster::core::peers::SurveyFault;
use serde::Serialize;

use crate::{
    peers::{ListedRecording, MissingPart, MissingPeer, PeerAnswers, RecordingList, RecordingNode},
    recordings::LISTED_MAX,
};

/// The newest recordings of all nodes.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Recordings {
    /// The newest come first.
    recordings: Vec<Recording>,
    /// Further ones with such a name that are not listed.
    left_out: u64,
    /// Directories with more files than are looked at.
    cut: u64,
    /// Directories in which rooms are recorded.
    directories: u64,
    /// Why directories cannot be read, with their node.
    unreadable: Vec<String>,
    /// The nodes whose recordings are not known.
    missing: Vec<MissingPart>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Recording {
    node: RecordingNode,
    #[serde(flatten)]
    recording: ListedRecording,
}

/// The newest recordings of this node and the others.
pub(super) fn merged(own: RecordingList, others: Result<PeerAnswers<RecordingList>, SurveyFault>) -> Recordings {
    let mut all = Recordings::default();
    all.add(own);
    let nobody = |why: &str| MissingPart { node: Box::default(), why: why.to_owned() };
    match others {
        Ok(PeerAnswers { results, missing, is_cut_off, declining: _ }) => {
            for list in results {
                all.add(list);
            }
            let named = missing.into_iter().map(|MissingPeer { name, why }| MissingPart { node: name, why });
            all.missing.extend(named);
            if is_cut_off {
                all.missing.push(nobody("this node does not reach the cluster, and does not know all other nodes"));
            }
        }
        Err(SurveyFault::Busy) => {
            all.missing.push(nobody("too many requests wait for other nodes: see broker.nats.peers.surveys_limit"));
        }
        Err(SurveyFault::TooLarge) => all.missing.push(nobody("the question is too large for NATS")),
    }
    all.recordings.sort_by(|a, b| a.place().cmp(&b.place()));
    all.left_out = all.left_out.saturating_add(all.recordings.len().saturating_sub(LISTED_MAX) as u64);
    all.recordings.truncate(LISTED_MAX);
    all
}

impl Recordings {
    fn add(&mut self, list: RecordingList) {
        let RecordingList { node, recordings, left_out, cut, directories, unreadable } = list;
        let name = if node.name.is_empty() { &node.uid } else { &node.name };
        self.unreadable.extend(unreadable.iter().map(|why| format!("{name}: {why}")));
        self.left_out = self.left_out.saturating_add(left_out);
        self.cut = self.cut.saturating_add(cut);
        self.directories = self.directories.saturating_add(directories);
        self.recordings.extend(recordings.into_iter().map(|recording| Recording { node: node.clone(), recording }));
    }
}

impl Recording {
    fn place(&self) -> (Reverse<u64>, &str, &RecordingNode) {
        (Reverse(self.recording.began_ms), &self.recording.file, &self.node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(name: &str, times: impl IntoIterator<Item = u64>) -> RecordingList {
        let recording = |began_ms| ListedRecording { began_ms, ..ListedRecording::default() };
        RecordingList {
            node: RecordingNode { uid: format!("uid-{name}").into(), name: name.into() },
            recordings: times.into_iter().map(recording).collect(),
            left_out: 1,
            directories: 1,
            ..RecordingList::default()
        }
    }

    #[test]
    fn the_newest_of_all_nodes_are_listed_and_nodes_without_an_answer_are_named() {
        let mut other = list("b", [8, 2]);
        other.unreadable.push("/r: no".into());
        let missing = vec![MissingPeer { name: "c".into(), why: "does not answer".to_owned() }];
        let others = PeerAnswers { results: vec![other], missing, ..PeerAnswers::ALONE };
        let all = merged(list("a", [9, 3]), Ok(others));
        let places: Vec<_> = all.recordings.iter().map(|one| (&*one.node.name, one.recording.began_ms)).collect();
        assert_eq!(places, [("a", 9), ("b", 8), ("a", 3), ("b", 2)]);
        assert_eq!((all.left_out, all.directories, &all.unreadable[..]), (2, 2, &["b: /r: no".to_owned()][..]));
        assert_eq!(all.missing, [MissingPart { node: "c".into(), why: "does not answer".to_owned() }]);
    }

    #[test]
    fn as_many_are_listed_as_an_answer_may_have_and_one_more_is_counted() {
        let of = |count: u64| {
            let others = PeerAnswers { results: vec![list("b", 1..=count)], ..PeerAnswers::ALONE };
            let all = merged(list("a", [1_000]), Ok(others));
            (all.recordings.len(), all.left_out)
        };
        assert_eq!(of(LISTED_MAX as u64 - 1), (LISTED_MAX, 2));
        assert_eq!(of(LISTED_MAX as u64), (LISTED_MAX, 3));
    }

    #[test]
    fn a_cluster_that_cannot_be_asked_is_not_taken_for_one_without_recordings() {
        let busy = merged(list("a", []), Err(SurveyFault::Busy));
        assert_eq!(busy.missing.len(), 1);
        let cut_off = merged(list("a", []), Ok(PeerAnswers { is_cut_off: true, ..PeerAnswers::ALONE }));
        assert_eq!(cut_off.missing.len(), 1);
    }
}
