//! Surveys of other nodes, and their requests to this node.

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
use dunlin_engine::{Event, ShardIndex, event::ShardEvents};
use dunlin_protocol::ErrorCode;
use dunlin_queues::{CountedReceiver, CountedSender, declared::NODE_QUERIES};
use tokio::sync::oneshot;

use super::NodeCluster;
use crate::{
    peers::{ChannelQuestion, QuestionCounters, QuestionKind, QuestionReceivers, QuestionSenders},
    telemetry::cluster_events::{NodeChanged, log_lease},
};

type SurveyOutcome = Result<SurveyAnswers, SurveyFault>;

/// A request of another node.
#[derive(Debug)]
pub struct NodeQuery {
    /// Identifies the request in [`NodeCluster::answer`].
    pub number: QueryNumber,
    /// The encoded request.
    pub payload: Bytes,
    /// The time for which the other node waits.
    pub timeout_ms: u64,
}

/// Requests that this node must answer.
#[derive(Debug)]
pub struct ClusterInbox {
    /// Requests of other nodes.
    pub queries: CountedReceiver<NodeQuery>,
    /// Requests of this node's shards.
    pub questions: QuestionReceivers,
}

/// The surveys in progress, and the receivers of requests.
#[derive(Default)]
pub(super) struct Surveying {
    numbered: AtomicU64,
    waiting: Mutex<HashMap<SurveyNumber, oneshot::Sender<SurveyOutcome>>>,
    queries: OnceLock<CountedSender<NodeQuery>>,
    questions: OnceLock<QuestionSenders>,
    counters: QuestionCounters,
}

impl Surveying {
    fn waiting(&self) -> std::sync::MutexGuard<'_, HashMap<SurveyNumber, oneshot::Sender<SurveyOutcome>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Processes an effect of the cluster's thread about other nodes.
    pub(super) fn take(&self, effect: PeerEffect) {
        match effect {
            PeerEffect::Surveyed { number, outcome } => {
                if let Some(asker) = self.waiting().remove(&number) {
                    // An error means that the requester has stopped waiting.
                    let _ = asker.send(outcome);
                }
            }
            PeerEffect::Queried { query: number, payload, timeout_ms } => {
                if let Some(queries) = self.queries.get() {
                    // The queue has space for the maximum number of requests that the protocol admits. If their bytes
                    // do not fit, the other node's timeout applies.
                    let bytes = payload.len();
                    let _ = queries.try_send(NodeQuery { number, payload, timeout_ms }, bytes);
                }
            }
            PeerEffect::Changed { node, change } => NodeChanged { node: &node, change }.emit(),
            PeerEffect::LeaseChanged(change) => log_lease(&change),
            // The cluster's thread sends it to the shards.
            PeerEffect::UserSessionsElsewhere { .. } => {}
        }
    }
}

impl NodeCluster {
    /// Announces this node to the cluster. Returns the requests that it must answer.
    pub fn announce(&self, about: NodeDescription) -> ClusterInbox {
        let (asker, queries) = NODE_QUERIES.with_messages(self.queries_max).counted_channel();
        let (shards, questions) = QuestionSenders::new();
        let surveying = &self.host.surveying;
        let is_first = surveying.queries.set(asker).is_ok() && surveying.questions.set(shards).is_ok();
        debug_assert!(is_first, "a node is announced once");
        self.send_to_peers(PeerEvent::Announce { about });
        ClusterInbox { queries, questions }
    }

    /// All live nodes, including this one, sorted by id. Empty until this node is announced.
    pub fn live_nodes(&self) -> LiveNodes {
        self.state().nodes
    }

    /// Sends a request to other nodes, and waits for their answers up to the configured timeout.
    ///
    /// # Errors
    /// The request could not be sent.
    pub async fn survey(&self, to: SurveyTarget, payload: Bytes) -> SurveyOutcome {
        let surveying = &self.host.surveying;
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

    /// Answers a request of another node.
    pub fn answer(&self, query: QueryNumber, payload: Bytes) {
        self.send_to_peers(PeerEvent::QueryAnswered { query, payload });
    }

    /// Queues a shard's request.
    pub(in crate::node) fn ask_about(
        &self,
        shard: ShardIndex,
        channel: Arc<str>,
        kind: QuestionKind,
    ) -> Result<(), ErrorCode> {
        let surveying = &self.host.surveying;
        let questions = surveying.questions.get().ok_or(ErrorCode::TooManyRequests)?;
        questions.send(ChannelQuestion { shard, channel, kind }, &surveying.counters)
    }

    /// Counts of questions and answers.
    pub fn question_counters(&self) -> &QuestionCounters {
        &self.host.surveying.counters
    }

    /// Sends a shard the answer to its request.
    pub fn answer_shard(&self, shard: ShardIndex, answer: Event<'static>) {
        self.host.send(shard, answer);
    }

    /// Ends the cluster's thread, which notifies the other nodes that this node stops.
    pub fn stop(&self) {
        self.thread.stop();
    }

    fn send_to_peers(&self, event: PeerEvent) {
        // An error means that the thread has ended, because the node is stopping.
        let _ = self.thread.send(CoreEvent::Peers(event));
    }
}
