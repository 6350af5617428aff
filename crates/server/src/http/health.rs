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
use serde_json::{Map, Value, json};

use crate::node::{NodeCluster, NodeStorage};

/// The sources of the health check.
#[derive(Clone)]
pub(super) struct HealthSources {
    /// Whether the node is shutting down.
    pub is_going: Arc<AtomicBool>,
    /// `None` without a storage.
    pub storage: Option<Arc<NodeStorage>>,
    /// `None` without a cluster.
    pub cluster: Option<Arc<NodeCluster>>,
    /// Whether the status is an error while the node cannot use its cluster.
    pub requires_cluster: bool,
}

/// Reports a failed storage and a cluster that is not ready in the body, not in the status. Sessions, live delivery and
/// all other namespaces continue to work, and a load balancer that removed the node would end them. NATS usually
/// becomes unreachable for all nodes at once, so no node would be left. `health.requires_cluster` changes the status
/// for operators who prefer that.
pub(super) async fn answer(State(sources): State<HealthSources>) -> Response {
    let is_going = sources.is_going.load(Ordering::Relaxed);
    let storage = sources.storage.as_ref().and_then(|storage| storage.storage().poison());
    let storage = storage.map(|error| json!({ "fault": error.fault.label(), "error": error.to_string() }));
    let is_ready = sources.cluster.as_ref().is_none_or(|cluster| cluster.is_ready());
    let is_well = !is_going && (is_ready || !sources.requires_cluster);
    let status = if is_well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, [(header::CONTENT_TYPE, "application/json")], body(storage, is_ready)).into_response()
}

/// The failed checks; an empty object if there are none.
fn body(storage: Option<Value>, is_cluster_ready: bool) -> String {
    let cluster = (!is_cluster_ready).then(|| json!({ "ready": false }));
    let parts = [("storage", storage), ("cluster", cluster)];
    let faults = parts.into_iter().filter_map(|(name, fault)| Some((name.to_owned(), fault?)));
    Value::Object(faults.collect::<Map<_, _>>()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_body_names_failed_checks() {
        let fault = || Some(json!({ "fault": "write" }));
        assert_eq!(body(None, true), "{}");
        assert_eq!(body(None, false), r#"{"cluster":{"ready":false}}"#);
        assert_eq!(body(fault(), true), r#"{"storage":{"fault":"write"}}"#);
        let both: Value = serde_json::from_str(&body(fault(), false)).expect("it is JSON");
        assert_eq!(both, json!({ "cluster": { "ready": false }, "storage": { "fault": "write" } }));
    }
}
