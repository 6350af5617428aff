//! The cluster of a node. Passes requests of shards to the cluster's thread, and results back.

mod surveys;

use std::sync::{Arc, OnceLock};

use dunlin_cluster::{
    core::{
        CoreEvent, StreamChange,
        peers::{PeerEffect, PeerEvent},
    },
    streams::StreamDifference,
    thread::{ClusterAnswers, ClusterFault, ClusterOptions, ClusterState, ClusterThread},
};
use dunlin_engine::{
    NamespaceNames, Options, ShardIndex,
    broadcast::BroadcastMessage,
    event::Ticket,
    log::{LoadNumber, LoadQuery, LogError, LogPage, LogRecord, ProposalNumber},
};

use super::answers::{AnswerSender, Answered};
use crate::telemetry::cluster_events::{ReadinessChanged, log_stream};
use surveys::Surveying;

pub use surveys::{ChannelQuestion, ClusterInbox, NodeQuery, QuestionKind};

/// A running cluster thread, and the shards that use it.
pub struct NodeCluster {
    thread: ClusterThread,
    names: NamespaceNames,
    answers: Arc<AnswersOfCluster>,
    /// Maximum number of queued requests of other nodes.
    queries_max: usize,
}

impl NodeCluster {
    /// Connects to the cluster, for a node with this number of shards. Also returns the tolerable differences between
    /// the streams and the configuration.
    ///
    /// # Errors
    /// See [`ClusterFault`].
    pub fn start(
        options: ClusterOptions,
        engine: &Options,
        shard_count: u16,
    ) -> Result<(Self, Vec<StreamDifference>), ClusterFault> {
        let senders = (0..shard_count).map(|_| OnceLock::new()).collect();
        let answers = Arc::new(AnswersOfCluster { senders, surveying: Surveying::default() });
        let queries_max = options.limits.peers.queries_max;
        let of_thread = Arc::clone(&answers) as Arc<dyn ClusterAnswers>;
        let (thread, differences) = ClusterThread::start(options, of_thread)?;
        Ok((Self { thread, names: NamespaceNames::new(engine), answers, queries_max }, differences))
    }

    /// The state of the cluster connection, for the metrics.
    pub fn state(&self) -> ClusterState {
        self.thread.state()
    }

    /// Sets the receiver of a shard's results. Must be called before the shard's first request.
    pub(super) fn connect(&self, shard: ShardIndex, sender: AnswerSender) {
        if let Some(place) = self.answers.senders.get(usize::from(shard.0)) {
            let is_first = place.set(sender).is_ok();
            debug_assert!(is_first, "a shard starts once");
        }
    }

    pub(super) fn propose(
        &self,
        shard: ShardIndex,
        channel: Arc<str>,
        proposal: ProposalNumber,
        record: Box<LogRecord>,
    ) -> Result<(), LogError> {
        let namespace = self.namespace(&channel)?;
        self.thread.request(CoreEvent::Propose { shard, channel, namespace, proposal, record })
    }

    pub(super) fn load(
        &self,
        shard: ShardIndex,
        channel: Arc<str>,
        load: LoadNumber,
        query: LoadQuery,
    ) -> Result<(), LogError> {
        self.thread.request(CoreEvent::Load { shard, channel, load, query })
    }

    /// Has no effect on a channel whose namespace was added after the start. Its loads and publications are refused.
    pub(super) fn follow(&self, shard: ShardIndex, channel: Arc<str>) -> Result<(), LogError> {
        let namespace = self.namespace(&channel)?;
        self.thread.send(CoreEvent::Follow { shard, channel, namespace })
    }

    pub(super) fn unfollow(&self, channel: Arc<str>, only_user: u64) {
        self.send(&channel.clone(), |_| CoreEvent::Unfollow { channel, only_user });
    }

    /// An error means that the ticket gets no answer.
    pub(super) fn trim(&self, shard: ShardIndex, channel: Arc<str>, ticket: Option<Ticket>) -> Result<(), LogError> {
        let namespace = self.namespace(&channel)?;
        let request = CoreEvent::Trim { shard, channel, namespace, ticket };
        // A removal that nobody waits for cannot be refused.
        if ticket.is_some() { self.thread.request(request) } else { self.thread.send(request) }
    }

    pub(super) fn broadcast(&self, channel: Arc<str>, message: BroadcastMessage) {
        if let Ok(namespace) = self.namespace(&channel) {
            self.thread.broadcast(CoreEvent::Broadcast { channel, namespace, message });
        }
    }

    pub(super) fn share_user_sessions(&self, user: Arc<str>, sessions: u32) {
        // An error means that the thread has ended, because the node is stopping.
        let _ = self.thread.send(CoreEvent::Peers(PeerEvent::UserSessions { user, sessions }));
    }

    /// Maximum size of a broadcast in bytes.
    pub fn broadcast_bytes_max(&self) -> usize {
        self.thread.broadcast_bytes_max()
    }

    fn send(&self, channel: &str, event: impl FnOnce(u16) -> CoreEvent) {
        if let Ok(namespace) = self.namespace(channel) {
            // An error means that the thread has ended, because the node is stopping.
            let _ = self.thread.send(event(namespace));
        }
    }

    fn namespace(&self, channel: &str) -> Result<u16, LogError> {
        self.names.index_of(channel).map_err(|_| LogError::Unavailable)
    }
}

/// Receives results on the cluster's thread, and sends each to its shard.
struct AnswersOfCluster {
    senders: Box<[OnceLock<AnswerSender>]>,
    surveying: Surveying,
}

impl AnswersOfCluster {
    fn send(&self, to: ShardIndex, answered: Answered) {
        if let Some(sender) = self.senders.get(usize::from(to.0)).and_then(OnceLock::get) {
            sender.send_answer(answered);
        }
    }

    /// Returns whether the shard has space for it.
    fn send_message(&self, to: ShardIndex, answered: Answered) -> bool {
        let sender = self.senders.get(usize::from(to.0)).and_then(OnceLock::get);
        sender.is_none_or(|sender| sender.send_message(answered).is_ok())
    }
}

impl ClusterAnswers for AnswersOfCluster {
    fn committed(&self, to: ShardIndex, channel: Arc<str>, proposal: ProposalNumber, outcome: Result<u64, LogError>) {
        self.send(to, Answered::Committed { channel, proposal, outcome });
    }

    fn trim_committed(&self, to: ShardIndex, ticket: Ticket, outcome: Result<(), LogError>) {
        self.send(to, Answered::TrimCommitted { ticket, outcome });
    }

    fn loaded(&self, to: ShardIndex, channel: Arc<str>, load: LoadNumber, outcome: Result<Box<LogPage>, LogError>) {
        self.send(to, Answered::Loaded { channel, load, outcome });
    }

    fn replicated(&self, to: ShardIndex, channel: Arc<str>, record: Box<LogRecord>) -> bool {
        self.send_message(to, Answered::Replicated { channel, record })
    }

    fn broadcasted(&self, to: ShardIndex, channel: Arc<str>, message: BroadcastMessage) -> bool {
        self.send_message(to, Answered::BroadcastReceived { channel, message })
    }

    fn followed(&self, to: ShardIndex, channel: Arc<str>) {
        self.send(to, Answered::Followed { channel });
    }

    fn trimmed(&self, to: ShardIndex, channel: Arc<str>, through: u64) {
        self.send(to, Answered::Trimmed { channel, through });
    }

    fn interrupted(&self, to: ShardIndex, channel: Arc<str>) {
        self.send(to, Answered::Interrupted { channel });
    }

    fn peers(&self, effect: PeerEffect) {
        match effect {
            PeerEffect::UserSessionsElsewhere { user, sessions } => {
                for sender in self.senders.iter().filter_map(OnceLock::get) {
                    sender.send_answer(Answered::UserSessionsElsewhere { user: Arc::clone(&user), sessions });
                }
            }
            effect => self.surveying.take(effect),
        }
    }

    fn stream_changed(&self, stream: &str, change: &StreamChange) {
        log_stream(stream, change);
    }

    fn readiness_changed(&self, is_ready: bool) {
        ReadinessChanged { is_ready }.emit();
    }
}
