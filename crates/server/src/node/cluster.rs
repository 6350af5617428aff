//! The cluster of a node. Passes requests of shards to the cluster's thread, and results back.

mod surveys;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use dunlin_cluster::{
    core::{
        CoreEvent, StreamChange,
        peers::{PeerChange, PeerEffect, PeerEvent},
        room_logs::{RoomLogEffect, RoomLogEvent},
    },
    node_frames::NodeFramesOptions,
    streams::StreamDifference,
    thread::{ClusterFault, ClusterHost, ClusterOptions, ClusterState, ClusterThread},
};
use dunlin_engine::{
    Event, NamespaceNames, Options, ShardIndex,
    broadcast::BroadcastMessage,
    event::{ShardEvents, Ticket},
    log::{LoadNumber, LoadQuery, LogError, LogRecord, ProposalNumber},
};

use tokio::sync::Notify;

use super::event_queue::ShardQueues;
use crate::telemetry::cluster_events::{ReadinessChanged, log_stream};
use surveys::Surveying;

pub use surveys::{ClusterInbox, NodeQuery};

/// A running cluster thread, and the shards that use it.
pub struct NodeCluster {
    thread: ClusterThread,
    names: NamespaceNames,
    host: Arc<HostOfCluster>,
    /// Maximum number of queued requests of other nodes.
    queries_max: usize,
    /// The connection for rooms with players on several nodes.
    frames: NodeFramesOptions,
}

impl NodeCluster {
    /// Connects to the cluster, for a node with these queues to its shards. Also returns the tolerable differences between
    /// the streams and the configuration.
    ///
    /// # Errors
    /// See [`ClusterFault`].
    pub fn start(
        options: ClusterOptions,
        engine: &Options,
        queues: Arc<ShardQueues>,
    ) -> Result<(Self, Vec<StreamDifference>), ClusterFault> {
        let host = Arc::new(HostOfCluster {
            queues,
            surveying: Surveying::default(),
            room_logs: OnceLock::new(),
            gone: Arc::default(),
        });
        let queries_max = options.limits.peers.queries_max;
        let frames = NodeFramesOptions::new(&options);
        let of_thread = Arc::clone(&host) as Arc<dyn ClusterHost>;
        let (thread, differences) = ClusterThread::start(options, of_thread)?;
        Ok((Self { thread, names: NamespaceNames::new(engine), host, queries_max, frames }, differences))
    }

    /// How to connect for rooms with players on several nodes.
    pub(crate) fn frames(&self) -> &NodeFramesOptions {
        &self.frames
    }

    /// The state of the cluster connection, for the metrics.
    pub fn state(&self) -> ClusterState {
        self.thread.state()
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

    /// The nodes that are gone.
    pub(crate) fn gone_nodes(&self) -> &Arc<GoneNodes> {
        &self.host.gone
    }

    /// Receives the answers about the logs of rooms from now on.
    pub(crate) fn receive_room_logs(&self, receiver: Arc<dyn RoomLogReceiver>) {
        let is_first = self.host.room_logs.set(receiver).is_ok();
        debug_assert!(is_first, "a node has one set of rooms");
    }

    /// Queues a request about the log of a room.
    ///
    /// # Errors
    /// The queue is full, or the thread has ended.
    pub(crate) fn room_log(&self, event: RoomLogEvent) -> Result<(), LogError> {
        let is_end = matches!(event, RoomLogEvent::End { .. });
        let event = CoreEvent::RoomLog(event);
        // Without its end, no other node could have the room.
        if is_end { self.thread.send(event) } else { self.thread.request(event) }
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

/// Maximum number of nodes that the relay has not looked at.
const GONE_NODES_MAX: usize = 256;

/// Nodes that have stopped or become silent, for the relay. Each is in it until the relay looks.
#[derive(Debug, Default)]
pub(crate) struct GoneNodes {
    nodes: Mutex<Vec<Box<str>>>,
    is_news: Notify,
}

impl GoneNodes {
    fn add(&self, node: &str) {
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        // A node without room threads has no relay.
        if nodes.len() >= GONE_NODES_MAX {
            nodes.remove(0);
        }
        nodes.push(node.into());
        drop(nodes);
        self.is_news.notify_one();
    }

    /// Those since the last call.
    pub(crate) fn take(&self) -> Vec<Box<str>> {
        std::mem::take(&mut *self.nodes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits for one.
    pub(crate) async fn some(&self) {
        self.is_news.notified().await;
    }
}

/// What takes the answers about the logs of rooms. Called on the cluster's thread.
pub(crate) trait RoomLogReceiver: Send + Sync {
    /// Takes an answer.
    fn take(&self, effect: RoomLogEffect);
}

/// Called on the cluster's thread.
struct HostOfCluster {
    queues: Arc<ShardQueues>,
    surveying: Surveying,
    /// Set when the node has rooms that it keeps.
    room_logs: OnceLock<Arc<dyn RoomLogReceiver>>,
    gone: Arc<GoneNodes>,
}

impl ShardEvents for HostOfCluster {
    fn send(&self, to: ShardIndex, event: Event<'static>) -> bool {
        self.queues.send(to, event)
    }
}

impl ClusterHost for HostOfCluster {
    fn shard_count(&self) -> u16 {
        self.queues.shard_count()
    }

    fn peers(&self, effect: PeerEffect) {
        if let PeerEffect::Changed { node, change: PeerChange::Lost | PeerChange::Left } = &effect {
            self.gone.add(&node.node);
        }
        self.surveying.take(effect);
    }

    fn room_log(&self, effect: RoomLogEffect) {
        // Without a receiver, nothing was asked, and rooms without a node are found again.
        if let Some(receiver) = self.room_logs.get() {
            receiver.take(effect);
        }
    }

    fn stream_changed(&self, stream: &str, change: &StreamChange) {
        log_stream(stream, change);
    }

    fn readiness_changed(&self, is_ready: bool) {
        ReadinessChanged { is_ready }.emit();
    }
}
