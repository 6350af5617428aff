//! A recording of another node, which this node replays: its bytes come through the protocol of nodes, one part after the other.

use std::{sync::Arc, time::Duration};

use tokio::time::sleep;

use crate::{
    node::{Node, NodeCluster},
    peers::{self, AskFault, RecordingPart, RecordingPartQuestion},
};

/// Maximum times that a node is asked for a part. A recording has hundreds of them, and one answer may be lost.
const ASKED_MAX: u32 = 3;

/// Time after which a node is asked again, which may have been answering too many questions.
const ASKED_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// A recording, of which the first part has arrived.
pub(super) struct PeerRecording {
    cluster: Arc<NodeCluster>,
    uid: Box<str>,
    /// The name of its node, or its id.
    node: Box<str>,
    file: Box<str>,
    /// Its size when it was opened. That of a room that runs has grown since.
    bytes: u64,
    fetched: u64,
    first: Option<Vec<u8>>,
}

impl PeerRecording {
    /// Asks the node with this id or name for the first part.
    ///
    /// # Errors
    /// The reason, with the name of the node.
    pub(super) async fn open(node: &Node, called: &str, file: &str) -> Result<Self, String> {
        let unknown = || format!("no live node is called {called}: open the list of recordings again");
        let cluster = Arc::clone(node.cluster().ok_or_else(unknown)?);
        let nodes = cluster.live_nodes();
        let by_name = || nodes.iter().find(|live| !called.is_empty() && *live.about.name == *called);
        let live = nodes.iter().find(|live| *live.node == *called).or_else(by_name).ok_or_else(unknown)?;
        let name = if live.about.name.is_empty() { &live.node } else { &live.about.name };
        let (uid, node) = (live.node.clone(), name.clone());
        let mut recording = Self { cluster, uid, node, file: file.into(), bytes: 0, fetched: 0, first: None };
        let RecordingPart { bytes, data } = recording.part(0).await?;
        (recording.bytes, recording.first) = (bytes, Some(data));
        Ok(recording)
    }

    /// Its size when it was opened.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The bytes of all parts so far.
    pub(super) const fn fetched(&self) -> u64 {
        self.fetched
    }

    /// The next part; `None` at the end.
    ///
    /// # Errors
    /// The reason, with the name of the node.
    pub(super) async fn next_part(&mut self) -> Result<Option<Vec<u8>>, String> {
        let left = self.bytes.saturating_sub(self.fetched);
        if left == 0 {
            return Ok(None);
        }
        let mut data = match self.first.take() {
            Some(data) => data,
            None => self.part(self.fetched).await?.data,
        };
        data.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        if data.is_empty() {
            return Err(format!("node {}: the recording has become shorter", self.node));
        }
        self.fetched += data.len() as u64;
        Ok(Some(data))
    }

    async fn part(&self, offset: u64) -> Result<RecordingPart, String> {
        let question = RecordingPartQuestion { file: self.file.clone(), offset };
        let asked = until_answered(|| peers::ask_node(&self.cluster, &self.uid, &question)).await;
        asked.map_err(|why| format!("node {} {why}", self.node))
    }
}

/// Asks again if there is no answer.
async fn until_answered<T, F>(ask: impl Fn() -> F) -> Result<T, AskFault>
where
    F: Future<Output = Result<T, AskFault>>,
{
    let mut asked = ask().await;
    for _ in 1..ASKED_MAX {
        if !matches!(asked, Err(AskFault::Unanswered(_))) {
            break;
        }
        sleep(ASKED_AGAIN_AFTER).await;
        asked = ask().await;
    }
    asked
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, collections::VecDeque, future::ready};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_lost_answer_is_asked_for_again_and_an_error_is_not() {
        let lost = || Err(AskFault::Unanswered("does not answer".to_owned()));
        let refused = || Err(AskFault::Refused("answers with error 104".to_owned()));
        for (answers, result, left) in [
            (vec![Ok(1), Ok(2)], Ok(1), 1),
            (vec![lost(), lost(), Ok(3), Ok(4)], Ok(3), 1),
            (vec![lost(), lost(), lost(), Ok(4)], lost(), 1),
            (vec![refused(), Ok(2)], refused(), 1),
        ] {
            let answers = RefCell::new(VecDeque::from(answers));
            let ask = || ready(answers.borrow_mut().pop_front().expect("it is not asked more often"));
            assert_eq!(until_answered(ask).await, result);
            assert_eq!(answers.borrow().len(), left);
        }
    }
}
