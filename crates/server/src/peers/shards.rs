//! What the shards of this node ask other nodes about a channel. Each kind of question has a queue and permits of its
//! own, so that no kind delays another: clients ask for presence, and would delay subscriptions and joins.

use std::{future::Future, sync::Arc};

use dunlin_engine::{
    Event, ShardIndex,
    event::{ClusterPresence, PeerKeys, PeerQueryNumber, PresenceKind},
};
use dunlin_protocol::ErrorCode;
use dunlin_queues::declared::{KEY_QUESTIONS, PRESENCE_QUESTIONS, ROOM_QUESTIONS};
use futures_util::future::join_all;
use tokio::sync::{Semaphore, mpsc};

use super::{
    ask::ask_all,
    channel_owner,
    counters::QuestionCounters,
    kinds::NewestKeysQuestion,
    presence::{Presence, PresenceQuestion, PresenceUsers, PresenceUsersQuestion},
    rooms::find_room,
};
use crate::node::{Node, NodeCluster};

/// A shard's question about a channel to other nodes.
#[derive(Debug)]
pub struct ChannelQuestion {
    /// The shard.
    pub shard: ShardIndex,
    /// The channel.
    pub channel: Arc<str>,
    /// The requested information.
    pub kind: QuestionKind,
}

/// What a shard requests.
#[derive(Clone, Copy, Debug)]
pub enum QuestionKind {
    /// Presence on all nodes, including this one.
    Presence {
        /// The number of the shard's query.
        query: PeerQueryNumber,
        /// The requested part.
        kind: PresenceKind,
    },
    /// The newest publications of keys on other nodes.
    Keys,
    /// Whether another node has the channel's room.
    Room,
}

/// A queue of the shards' questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuestionQueue {
    /// See [`QuestionKind::Presence`].
    Presence,
    /// See [`QuestionKind::Keys`].
    Keys,
    /// See [`QuestionKind::Room`].
    Rooms,
}

impl QuestionQueue {
    /// All queues.
    pub const ALL: [Self; 3] = [Self::Presence, Self::Keys, Self::Rooms];

    /// The label in metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Presence => "presence",
            Self::Keys => "keys",
            Self::Rooms => "rooms",
        }
    }

    const fn of(kind: QuestionKind) -> Self {
        match kind {
            QuestionKind::Presence { .. } => Self::Presence,
            QuestionKind::Keys => Self::Keys,
            QuestionKind::Room => Self::Rooms,
        }
    }

    /// Maximum number of concurrent surveys, of `surveys_limit` of this node. Clients cause these and the forwards of
    /// `/emulation` and of commands about tickets. Three eighths, the half of the default that `/emulation` may take, and a
    /// sixteenth leave a sixteenth to the server API.
    fn surveys_max(surveys_limit: usize) -> usize {
        (surveys_limit / 8).max(1)
    }
}

/// The sending ends of the queues, by [`QuestionQueue`].
#[derive(Debug)]
pub struct QuestionSenders([mpsc::Sender<ChannelQuestion>; QuestionQueue::ALL.len()]);

/// The receiving ends.
#[derive(Debug)]
pub struct QuestionReceivers([(QuestionQueue, mpsc::Receiver<ChannelQuestion>); QuestionQueue::ALL.len()]);

impl QuestionSenders {
    /// The queues.
    pub fn new() -> (Self, QuestionReceivers) {
        let (presence, presence_asked) = PRESENCE_QUESTIONS.tokio_channel();
        let (keys, keys_asked) = KEY_QUESTIONS.tokio_channel();
        let (rooms, rooms_asked) = ROOM_QUESTIONS.tokio_channel();
        let receivers = [
            (QuestionQueue::Presence, presence_asked),
            (QuestionQueue::Keys, keys_asked),
            (QuestionQueue::Rooms, rooms_asked),
        ];
        (Self([presence, keys, rooms]), QuestionReceivers(receivers))
    }

    /// Queues a question.
    ///
    /// # Errors
    /// Its queue is full, which is counted, or the node is stopping.
    pub fn send(&self, question: ChannelQuestion, counters: &QuestionCounters) -> Result<(), ErrorCode> {
        let queue = QuestionQueue::of(question.kind);
        self.0[queue as usize].try_send(question).map_err(|error| {
            if matches!(error, mpsc::error::TrySendError::Full(_)) {
                counters.count_refused(queue);
            }
            ErrorCode::TooManyRequests
        })
    }
}

/// Answers the questions of this node's shards.
pub(super) struct ShardAnswers {
    node: Node,
    cluster: Arc<NodeCluster>,
    own_uid: Box<str>,
}

impl ShardAnswers {
    pub(super) const fn new(node: Node, cluster: Arc<NodeCluster>, own_uid: Box<str>) -> Self {
        Self { node, cluster, own_uid }
    }

    /// Serves until the node ends. `surveys_limit` bounds what this node asks.
    pub(super) async fn serve(self, questions: QuestionReceivers, surveys_limit: usize) {
        let answers = Arc::new(self);
        answer_queues(questions, surveys_limit, move |question| {
            let answers = Arc::clone(&answers);
            async move { answers.answer(question).await }
        })
        .await;
    }

    async fn answer(&self, ChannelQuestion { shard, channel, kind }: ChannelQuestion) {
        let answer = match kind {
            QuestionKind::Presence { query, kind } => {
                Event::PeersAnswered { query, outcome: self.find_presence(&channel, kind).await }
            }
            QuestionKind::Keys => {
                let found = self.find_keys(&channel).await;
                Event::KeysAnswered { channel, found }
            }
            QuestionKind::Room => {
                let found = find_room(&self.cluster, &self.own_uid, &channel).await;
                Event::RoomQueried { channel, found }
            }
        };
        self.cluster.answer_shard(shard, answer);
    }

    /// Returns the results that have arrived at the deadline. The client protocol cannot mark a result as partial.
    async fn find_presence(&self, channel: &str, kind: PresenceKind) -> Result<ClusterPresence, ErrorCode> {
        let own = channel_owner::presence(&self.node, channel).await.map_err(|_| ErrorCode::Internal)?;
        match kind {
            PresenceKind::Clients => {
                let question = PresenceQuestion { channel: channel.into() };
                let found = ask_all(&self.cluster, &question).await.map_err(|_| ErrorCode::Internal)?;
                let mut all: Presence = own.into_iter().collect();
                found.results.into_iter().for_each(|other| all.merge(other));
                Ok(ClusterPresence::Clients(all.clients().cloned().collect()))
            }
            PresenceKind::Stats => {
                let question = PresenceUsersQuestion { channel: channel.into() };
                let found = ask_all(&self.cluster, &question).await.map_err(|_| ErrorCode::Internal)?;
                let mut all = PresenceUsers::of(&own);
                found.results.into_iter().for_each(|other| all.merge(other));
                Ok(ClusterPresence::Stats { num_clients: all.num_clients, num_users: all.num_users() })
            }
        }
    }

    /// Returns what has arrived at the deadline of a survey.
    async fn find_keys(&self, channel: &str) -> PeerKeys {
        let question = NewestKeysQuestion { channel: channel.into() };
        let Ok(answers) = ask_all(&self.cluster, &question).await else { return PeerKeys::UNKNOWN };
        let mut all = PeerKeys { keys: Vec::new(), is_partial: answers.is_partial() };
        for answer in answers.results {
            let PeerKeys { mut keys, is_partial } = answer.found;
            all.keys.append(&mut keys);
            all.is_partial |= is_partial;
        }
        all
    }
}

/// Answers the questions of all queues, a limited number of each at a time.
async fn answer_queues<A, F>(QuestionReceivers(queues): QuestionReceivers, surveys_limit: usize, answer: A)
where
    A: Fn(ChannelQuestion) -> F,
    F: Future<Output = ()> + Send + 'static,
{
    let answer = &answer;
    join_all(queues.map(|(_, mut questions)| async move {
        let permits = Arc::new(Semaphore::new(QuestionQueue::surveys_max(surveys_limit)));
        while let Some(question) = questions.recv().await {
            let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
            let answered = answer(question);
            tokio::spawn(async move {
                answered.await;
                drop(permit);
            });
        }
    }))
    .await;
}

#[cfg(test)]
mod tests {
    use dunlin_queues::Queue;

    use super::*;

    const SURVEYS_LIMIT: usize = 256;

    #[test]
    fn what_clients_cause_leaves_surveys_to_the_server_api() {
        let of_shards = QuestionQueue::ALL.len() * QuestionQueue::surveys_max(SURVEYS_LIMIT);
        // The default of `forwards_limit`, and commands about tickets.
        assert_eq!(SURVEYS_LIMIT - of_shards - 128 - SURVEYS_LIMIT / 16, 16);
        assert_eq!([0, 7, 8, 64].map(QuestionQueue::surveys_max), [1, 1, 1, 8]);
    }

    fn question(queue: QuestionQueue) -> ChannelQuestion {
        let kind = match queue {
            QuestionQueue::Presence => {
                QuestionKind::Presence { query: PeerQueryNumber(1), kind: PresenceKind::Clients }
            }
            QuestionQueue::Keys => QuestionKind::Keys,
            QuestionQueue::Rooms => QuestionKind::Room,
        };
        ChannelQuestion { shard: ShardIndex(0), channel: "c".into(), kind }
    }

    const fn bounds(queue: QuestionQueue) -> Queue {
        match queue {
            QuestionQueue::Presence => PRESENCE_QUESTIONS,
            QuestionQueue::Keys => KEY_QUESTIONS,
            QuestionQueue::Rooms => ROOM_QUESTIONS,
        }
    }

    /// Fills a queue, and returns the number of questions that it took.
    fn fill(questions: &QuestionSenders, queue: QuestionQueue, counters: &QuestionCounters) -> usize {
        (0..=bounds(queue).messages.max).take_while(|_| questions.send(question(queue), counters).is_ok()).count()
    }

    /// Answers questions, except those of `stuck`, which never end.
    fn answering(receivers: QuestionReceivers, stuck: QuestionQueue) -> mpsc::UnboundedReceiver<QuestionQueue> {
        let (begun, begins) = mpsc::unbounded_channel();
        tokio::spawn(answer_queues(receivers, SURVEYS_LIMIT, move |question| {
            let begun = begun.clone();
            async move {
                let queue = QuestionQueue::of(question.kind);
                let _ = begun.send(queue);
                if queue == stuck {
                    std::future::pending::<()>().await;
                }
            }
        }));
        begins
    }

    #[test]
    fn a_queue_takes_what_it_declares_and_counts_one_past_it() {
        let counters = QuestionCounters::default();
        let (senders, _receivers) = QuestionSenders::new();
        for queue in QuestionQueue::ALL {
            assert_eq!(fill(&senders, queue, &counters), bounds(queue).messages.max, "{queue:?}");
        }
        assert_eq!(counters.counts().questions_refused, [1, 1, 1]);
    }

    #[tokio::test]
    async fn a_full_queue_delays_no_other_kind() {
        for stuck in QuestionQueue::ALL {
            let counters = QuestionCounters::default();
            let (senders, receivers) = QuestionSenders::new();
            let mut begun = answering(receivers, stuck);
            fill(&senders, stuck, &counters);
            // All permits of the kind are held.
            for _ in 0..QuestionQueue::surveys_max(SURVEYS_LIMIT) {
                assert_eq!(begun.recv().await, Some(stuck));
            }
            while senders.send(question(stuck), &counters).is_ok() {}
            for other in QuestionQueue::ALL.into_iter().filter(|other| *other != stuck) {
                senders.send(question(other), &counters).expect("its queue is empty");
                assert_eq!(begun.recv().await, Some(other), "while {stuck:?} is full");
            }
            assert!(begun.is_empty(), "no question of {stuck:?} exceeds the permits");
        }
    }
}
