//! Connects the node to its configured cluster.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use dunlin_cluster::{
    core::{BroadcastNamespace, CoreLimits, peers::NodeDescription},
    links::{LinkCredentials, LinkOptions, parsed_servers},
    thread::{ClusterNamespace, ClusterOptions},
};
use dunlin_config::{BrokerSettings, Config, RoomSurvival};
use dunlin_engine::{log::PublicationLog, options::NamespaceOptions};

use super::{Purpose, ServeError, Signals, open_files::OpenFiles, ports::Served, storage};
use crate::{
    access_sync,
    http::api::OwnNode,
    matchmaking::MatchHandle,
    node::{Node, NodeCluster, NodeLogs, ShardQueues, StorageEnd},
    peers::{AskedParts, OwnName, PeerService},
    telemetry::cluster_events::{StreamDiffers, log_report},
};

/// After this time without an acknowledgement, a publication is sent again.
const ACK_TIMEOUT: Duration = Duration::from_secs(1);
const READ_TIMEOUT: Duration = Duration::from_secs(2);
/// How long streams remember message ids for deduplication; equal to the lifetime of the node's idempotency keys.
const DUPLICATE_WINDOW_MS: u64 = 300_000;

/// Opens the storage and the connection to the cluster, if they are configured. The servers of the cluster determine
/// the maximum size of broadcasts.
pub(super) async fn open_logs(
    config: &mut Config,
    signals: &mut Signals,
    open_files: OpenFiles,
    purpose: &Purpose,
    storage_end: &mut Option<StorageEnd>,
) -> Result<NodeLogs, ServeError> {
    let queues = ShardQueues::new(u16::try_from(config.shards).unwrap_or(u16::MAX));
    let storage;
    (storage, *storage_end) = storage::open(config, open_files, &queues, purpose)?.unzip();
    let cluster = tokio::select! {
        started = start(config, &queues) => started?,
        signal = signals.next() => {
            return Err(ServeError::Cluster(format!("{signal} came before it was connected")));
        }
    };
    if let Some(storage) = &storage {
        Arc::make_mut(&mut config.engine).access_rules = access_sync::known_at_start(storage.storage());
    }
    if let Some(cluster) = &cluster {
        Arc::make_mut(&mut config.engine).broadcast_bytes_max = cluster.broadcast_bytes_max();
    }
    Ok(NodeLogs { queues, storage, cluster })
}

/// Connects to the cluster, and waits for its servers; `None` without a broker.
async fn start(config: &Config, queues: &Arc<ShardQueues>) -> Result<Option<Arc<NodeCluster>>, ServeError> {
    let Some(settings) = &config.broker else { return Ok(None) };
    let options = options(config, settings)?;
    let (engine, queues) = (Arc::clone(&config.engine), Arc::clone(queues));
    let starting = tokio::task::spawn_blocking(move || NodeCluster::start(options, &engine, queues));
    let started = starting.await.map_err(|error| ServeError::Runtime(error.into()))?;
    let (cluster, differences) = started.map_err(|fault| ServeError::Cluster(fault.to_string()))?;
    for difference in &differences {
        StreamDiffers { difference }.emit();
    }
    Ok(Some(Arc::new(cluster)))
}

/// Announces the node to its cluster, and serves the requests of the other nodes.
pub(super) fn join(Served { config, node, identity, counters, surveys }: Served<'_>, parts: AskedParts) {
    let Some(cluster) = node.cluster() else { return };
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let inbox = cluster.announce(NodeDescription {
        name: identity.name.as_str().into(),
        version: identity.version.into(),
        started_ms: u64::try_from(started.as_millis()).unwrap_or(u64::MAX),
        session_tag_key: config.engine.session_tag_key.clone(),
    });
    let reports = OwnNode::new(Arc::clone(surveys), identity.clone(), Arc::clone(counters));
    let own = OwnName { uid: identity.uid.as_str().into(), name: identity.name.as_str().into() };
    let surveys_limit = config.broker.as_ref().map_or(0, |broker| broker.limits.peers.surveys_max);
    let service = PeerService::new(node.clone(), Arc::clone(cluster), own, reports, parts);
    tokio::spawn(service.serve(inbox, surveys_limit));
}

/// Leaves the cluster, and closes the storage. May block, because all sessions are closed and nothing else waits for
/// this thread.
pub(super) async fn leave(node: &Node, matchmaking: Option<MatchHandle>) {
    if let Some(cluster) = node.cluster() {
        if let Some(matchmaking) = matchmaking {
            matchmaking.leave().await;
        }
        cluster.stop();
    }
    if let Some(storage) = node.storage() {
        storage.close();
    }
}

fn options(config: &Config, settings: &BrokerSettings) -> Result<ClusterOptions, ServeError> {
    let url = settings.url.clone().unwrap_or_default();
    let servers = parsed_servers(url.reveal());
    let servers =
        servers.map_err(|error| ServeError::Cluster(format!("broker.nats.url: {}", url.scrub(&error.to_string()))))?;
    let tls = match &settings.tls {
        Some(tls) => Some(tls.client_config().map_err(|why| ServeError::Cluster(format!("broker.nats.tls: {why}")))?),
        None => None,
    };
    let node = &config.engine.node_id;
    let links = LinkOptions {
        servers,
        credentials: LinkCredentials::None,
        tls,
        name: if config.node.name.is_empty() {
            format!("dunlin {node}").into()
        } else {
            config.node.name.as_str().into()
        },
        inbox: format!("_DN.{node}").into(),
        dial_timeout: Duration::from_millis(settings.dial_timeout_ms),
        ack_timeout: ACK_TIMEOUT,
        read_timeout: READ_TIMEOUT,
        messages_max: settings.messages_max,
        messages_bytes_max: settings.messages_bytes_max,
        report: Arc::new(|report| log_report(&report)),
    };
    let engine = &config.engine;
    let namespaces = || std::iter::once(&engine.without_namespace).chain(&engine.namespaces);
    Ok(ClusterOptions {
        links,
        prefix: settings.prefix.as_str().into(),
        node: node.as_ref().into(),
        namespaces: namespaces().map(streamed).collect(),
        broadcasts: namespaces().map(shared).collect(),
        keeps_rooms: config.rooms.namespaces.iter().flatten().any(|room| room.survival != RoomSurvival::None),
        replicas: settings.replicas,
        is_in_memory: settings.is_in_memory,
        partitions: settings.partitions,
        duplicate_window_ms: DUPLICATE_WINDOW_MS,
        publication_bytes_max: config.websocket.limits.message_bytes_max,
        limits: CoreLimits {
            window_bytes_max: limit_or_none(engine.channel.history_bytes_max),
            ..settings.limits.clone()
        },
        start_timeout: Duration::from_millis(settings.start_timeout_ms),
        requests_max: settings.requests_max,
        requests_bytes_max: settings.requests_bytes_max,
    })
}

/// Options have 0 for no limit.
const fn limit_or_none(limit: usize) -> usize {
    if limit == 0 { usize::MAX } else { limit }
}

fn streamed(namespace: &NamespaceOptions) -> Option<ClusterNamespace> {
    (namespace.log == PublicationLog::OrderedByLog).then(|| ClusterNamespace {
        name: namespace.name.as_str().into(),
        history_size: namespace.history_size,
        history_ttl_ms: namespace.history_ttl_ms,
        meta_ttl_ms: namespace.history_meta_ttl_ms,
        history_bytes_max: limit_or_none(namespace.history_bytes_max),
    })
}

fn shared(namespace: &NamespaceOptions) -> Option<BroadcastNamespace> {
    (namespace.is_clustered && namespace.room.is_none()).then(|| BroadcastNamespace {
        name: namespace.name.as_str().into(),
        // Without joins and leaves, only publications that skip the history are broadcast.
        is_wide: namespace.log == PublicationLog::OrderedByLog && !namespace.join_leave,
    })
}

/// The options of the cluster's thread, also for commands that run without a node.
///
/// # Errors
/// An address or a certificate cannot be used.
pub(crate) fn cluster_options(config: &Config, settings: &BrokerSettings) -> Result<ClusterOptions, ServeError> {
    options(config, settings)
}
