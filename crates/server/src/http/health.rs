//! The health check.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use axum::{
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use dunlin_cluster::thread::ClusterState;
use dunlin_engine::ShardIndex;
use dunlin_storage::{SpaceShortage, Storage};
use serde_json::{Map, Value, json};

use super::shared_shard_reports::SharedShardReports;
use crate::node::{NodeCluster, NodeStorage};

/// The sources of the health check.
#[derive(Clone)]
pub(super) struct HealthSources {
    /// The surveys of the shards, which are asked to react; `None` in tests.
    pub surveys: Option<Arc<SharedShardReports>>,
    /// Whether the node is shutting down.
    pub is_going: Arc<AtomicBool>,
    /// `None` without a storage.
    pub storage: Option<Arc<NodeStorage>>,
    /// `None` without a cluster.
    pub cluster: Option<Arc<NodeCluster>>,
    /// Whether the status is an error while the node cannot use its cluster.
    pub requires_cluster: bool,
}

/// Reports a failed storage, a cluster that is not ready and shards that do not react in the body, not in the status. Sessions, live delivery and
/// all other namespaces continue to work, and a load balancer that removed the node would end them. NATS usually
/// becomes unreachable for all nodes at once, so no node would be left. `health.requires_cluster` changes the status
/// for operators who prefer that.
pub(super) async fn answer(State(sources): State<HealthSources>) -> Response {
    let silent_shards = match &sources.surveys {
        Some(surveys) => surveys.silent_shards().await,
        None => Arc::default(),
    };
    let is_going = sources.is_going.load(Ordering::Relaxed);
    let storage = sources.storage.as_ref().and_then(|storage| storage_fault(storage.storage()));
    let cluster = sources.cluster.as_ref().map(|cluster| cluster.state());
    let is_ready = cluster.as_ref().is_none_or(|cluster| cluster.is_ready);
    let is_well = !is_going && (is_ready || !sources.requires_cluster);
    let status = if is_well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, [(header::CONTENT_TYPE, "application/json")], body(storage, cluster.as_ref(), &silent_shards))
        .into_response()
}

/// Why the storage refuses publications.
fn storage_fault(storage: &Storage) -> Option<Value> {
    if let Some(error) = storage.poison() {
        return Some(json!({ "fault": error.fault.label(), "error": error.to_string() }));
    }
    let shortage = storage.space_shortage()?;
    Some(json!({ "fault": SpaceShortage::LABEL, "error": shortage.to_string() }))
}

/// The failed checks; an empty object if there are none.
fn body(storage: Option<Value>, cluster: Option<&ClusterState>, silent_shards: &[ShardIndex]) -> String {
    let cluster = cluster.filter(|cluster| !cluster.is_ready).map(cluster_fault);
    let silent: Vec<u16> = silent_shards.iter().map(|shard| shard.0).collect();
    let shards = (!silent.is_empty()).then(|| json!({ "silent": silent }));
    let parts = [("storage", storage), ("cluster", cluster), ("shards", shards)];
    let faults = parts.into_iter().filter_map(|(name, fault)| Some((name.to_owned(), fault?)));
    Value::Object(faults.collect::<Map<_, _>>()).to_string()
}

/// The streams that the node cannot use, each with the reason; without them, a connection is down.
fn cluster_fault(cluster: &ClusterState) -> Value {
    let streams = cluster.unusable_streams.iter();
    let streams: Map<_, _> =
        streams.map(|one| (one.stream.to_string(), Value::from(one.trouble.to_string()))).collect();
    if streams.is_empty() { json!({ "ready": false }) } else { json!({ "ready": false, "streams": streams }) }
}

#[cfg(test)]
mod tests {
    use dunlin_cluster::core::{StreamTrouble, UnusableStream};

    use super::*;

    #[test]
    fn the_body_names_unusable_streams_with_the_reason() {
        let trouble = StreamTrouble::Refusing { why: "insufficient resources (10023)".into() };
        let unusable_streams = vec![UnusableStream { stream: "dn_chat_0".into(), trouble }];
        let state = ClusterState { unusable_streams, ..ClusterState::default() };
        let found: Value = serde_json::from_str(&body(None, Some(&state), &[])).expect("it is JSON");
        let streams = json!({ "dn_chat_0": "it stores nothing: insufficient resources (10023)" });
        assert_eq!(found, json!({ "cluster": { "ready": false, "streams": streams } }));
    }

    #[test]
    fn the_body_names_failed_checks() {
        let fault = || Some(json!({ "fault": "write" }));
        let ready = ClusterState { is_ready: true, ..ClusterState::default() };
        let down = ClusterState::default();
        assert_eq!((body(None, None, &[]), body(None, Some(&ready), &[])), ("{}".to_owned(), "{}".to_owned()));
        assert_eq!(body(None, None, &[ShardIndex(0), ShardIndex(3)]), r#"{"shards":{"silent":[0,3]}}"#);
        assert_eq!(body(None, Some(&down), &[]), r#"{"cluster":{"ready":false}}"#);
        assert_eq!(body(fault(), Some(&ready), &[]), r#"{"storage":{"fault":"write"}}"#);
        let both: Value = serde_json::from_str(&body(fault(), Some(&down), &[])).expect("it is JSON");
        assert_eq!(both, json!({ "cluster": { "ready": false }, "storage": { "fault": "write" } }));
    }
}
