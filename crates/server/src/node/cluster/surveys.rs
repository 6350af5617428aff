//! Surveys of other nodes, and their questions to this one.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use dunlin_cluster::core::{
    CoreEvent,
    peers::{
        LiveNodes, NodeDescription, PeerEffect, PeerEvent, QueryNumber, SurveyAnswers, SurveyFault, SurveyNumber,
        SurveyTarget,
    },
};
use dunlin_engine::{
    ShardIndex,
    event::{ClusterPresence, PeerQueryNumber, PresenceKind},
};
use dunlin_protocol::ErrorCode;
use tokio::sync::{mpsc, oneshot};

use super::{super::answers::Answered, NodeCluster};
use crate::telemetry::cluster_events::{NodeChanged, log_lease};

/// Questions of shards about presence that wait. Each stands for all commands about its channel.
const PRESENCE_QUESTIONS_MAX: usize = 1_024;

type SurveyOutcome = Result<SurveyAnswers, SurveyFault>;

/// A question of another node.
#[derive(Debug)]
pub struct NodeQuery {
    /// Given back with the answer.
    pub number: QueryNumber,
    /// The question.
    pub payload: Bytes,
    /// How long the other node waits.
    pub timeout_ms: u64,
}

/// A shard asks who is in a channel on all nodes.
#[derive(Debug)]
pub struct PresenceQuestion {
    shard: ShardIndex,
    query: PeerQueryNumber,
    /// The channel.
    pub channel: Arc<str>,
    /// What is asked.
    pub kind: PresenceKind,
}

/// What waits for an answer of this node.
#[derive(Debug)]
pub struct ClusterInbox {
    /// Questions of other nodes.
    pub queries: mpsc::Receiver<NodeQuery>,
    /// Questions of this node's shards.
    pub presence: mpsc::Receiver<PresenceQuestion>,
}

/// Surveys that wait, and where questions go.
#[derive(Default)]
pub(super) struct Surveying {
    numbered: AtomicU64,
    waiting: Mutex<HashMap<SurveyNumber, oneshot::Sender<SurveyOutcome>>>,
    queries: OnceLock<mpsc::Sender<NodeQuery>>,
    presence: OnceLock<mpsc::Sender<PresenceQuestion>>,
}

impl Surveying {
    fn waiting(&self) -> std::sync::MutexGuard<'_, HashMap<SurveyNumber, oneshot::Sender<SurveyOutcome>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what the cluster's thread says about other nodes.
    pub(super) fn take(&self, effect: PeerEffect) {
        match effect {
            PeerEffect::Surveyed { number, outcome } => {
                if let Some(asker) = self.waiting().remove(&number) {
                    // Who has asked may wait no longer.
                    let _ = asker.send(outcome);
                }
            }
            PeerEffect::Queried { query: number, payload, timeout_ms } => {
                if let Some(queries) = self.queries.get() {
                    // It has room for as many as the protocol lets through. The other node waits for a bounded time.
                    let _ = queries.try_send(NodeQuery { number, payload, timeout_ms });
                }
            }
            PeerEffect::Changed { node, change } => NodeChanged { node: &node, change }.emit(),
            PeerEffect::LeaseChanged(change) => log_lease(&change),
            // Shards take it.
            PeerEffect::UserSessionsElsewhere { .. } => {}
        }
    }
}

impl NodeCluster {
    /// Makes this node a part of the cluster.
    pub fn announce(&self, about: NodeDescription) -> ClusterInbox {
        let (asker, queries) = mpsc::channel(self.queries_max);
        let (shards, presence) = mpsc::channel(PRESENCE_QUESTIONS_MAX);
        let surveying = &self.answers.surveying;
        let is_first = surveying.queries.set(asker).is_ok() && surveying.presence.set(shards).is_ok();
        debug_assert!(is_first, "a node is announced once");
        self.send_to_peers(PeerEvent::Announce { about });
        ClusterInbox { queries, presence }
    }

    /// All live nodes, this one included, by their ids. Empty until this node is announced.
    pub fn live_nodes(&self) -> LiveNodes {
        self.state().nodes
    }

    /// Asks other nodes, and waits for their answers for as long as is configured.
    ///
    /// # Errors
    /// If nobody can be asked.
    pub async fn survey(&self, to: SurveyTarget, payload: Bytes) -> SurveyOutcome {
        let surveying = &self.answers.surveying;
        let number = SurveyNumber(surveying.numbered.fetch_add(1, Ordering::Relaxed));
        let (asker, outcome) = oneshot::channel();
        surveying.waiting().insert(number, asker);
        let survey = CoreEvent::Peers(PeerEvent::Survey { number, to, payload });
        if self.thread.request(survey).is_err() {
            surveying.waiting().remove(&number);
            return Err(SurveyFault::Busy);
        }
        outcome.await.unwrap_or(Err(SurveyFault::Busy))
    }

    /// Answers a question.
    pub fn answer(&self, query: QueryNumber, payload: Bytes) {
        self.send_to_peers(PeerEvent::QueryAnswered { query, payload });
    }

    /// Queues a shard's question about presence.
    pub(in crate::node) fn ask_presence(
        &self,
        shard: ShardIndex,
        query: PeerQueryNumber,
        channel: Arc<str>,
        kind: PresenceKind,
    ) -> Result<(), ErrorCode> {
        let questions = self.answers.surveying.presence.get().ok_or(ErrorCode::TooManyRequests)?;
        let question = PresenceQuestion { shard, query, channel, kind };
        questions.try_send(question).map_err(|_| ErrorCode::TooManyRequests)
    }

    /// Answers it.
    pub fn answer_presence(&self, question: &PresenceQuestion, outcome: Result<ClusterPresence, ErrorCode>) {
        self.answers.send(question.shard, Answered::Peers { query: question.query, outcome });
    }

    /// Ends the cluster's thread: the other nodes hear that this one stops.
    pub fn stop(&self) {
        self.thread.stop();
    }

    fn send_to_peers(&self, event: PeerEvent) {
        // A thread that has ended answers nothing; the node is stopping.
        let _ = self.thread.send(CoreEvent::Peers(event));
    }
}
