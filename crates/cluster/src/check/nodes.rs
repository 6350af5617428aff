//! The nodes that run now, and whether they can use their streams, by their heartbeats.

use std::{collections::BTreeMap, time::Duration};

use async_nats::Client;
use futures_util::StreamExt as _;
use tokio::time::{Instant, timeout_at};

use super::{ClusterOptions, FindingState, Findings};
use crate::core::peers::heartbeat_message::Heartbeat;

/// Number of heartbeat intervals within which each running node is heard.
const INTERVALS: u32 = 3;
/// Maximum time to listen.
const LISTEN_MAX: Duration = Duration::from_secs(3);

/// The nodes that run, by id.
pub(super) async fn running(client: &Client, options: &ClusterOptions) -> BTreeMap<Box<str>, Heartbeat> {
    let mut nodes = BTreeMap::new();
    let Ok(mut heartbeats) = client.subscribe(format!("{}.n", options.prefix)).await else { return nodes };
    let interval = Duration::from_millis(options.limits.peers.heartbeat_interval_ms);
    let end = Instant::now() + (interval * INTERVALS).min(LISTEN_MAX);
    while nodes.len() < options.limits.peers.nodes_max
        && let Ok(Some(message)) = timeout_at(end, heartbeats.next()).await
    {
        if let Some(heartbeat) = Heartbeat::decode(&message.payload) {
            nodes.insert(heartbeat.node.clone(), heartbeat);
        }
    }
    nodes
}

pub(super) fn judge(nodes: &BTreeMap<Box<str>, Heartbeat>, findings: &mut Findings) {
    let unwell: Vec<&Heartbeat> = nodes.values().filter(|node| node.unusable_streams > 0).collect();
    for node in &unwell {
        let text = format!(
            "cannot use {} of its streams: its log and its /health name them, with the reason",
            node.unusable_streams
        );
        findings.add(FindingState::Wrong, format_args!("node {}", node.about.name), text);
    }
    if unwell.is_empty() && !nodes.is_empty() {
        let text = format!("{} run, and can use all their streams", nodes.len());
        findings.add(FindingState::Good, "nodes", text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::peers::NodeDescription;

    #[test]
    fn a_node_with_an_unusable_stream_is_wrong() {
        let node = |name: &str, unusable_streams| {
            let about = NodeDescription { name: name.into(), ..NodeDescription::default() };
            let payload =
                Heartbeat { node: name.into(), about, time_ms: 0, is_leaving: false, unusable_streams }.encode();
            (Box::from(name), Heartbeat::decode(&payload).expect("a heartbeat"))
        };
        for (nodes, states) in [
            (vec![], vec![]),
            (vec![node("a", 0), node("b", 0)], vec![FindingState::Good]),
            (vec![node("a", 0), node("b", 2)], vec![FindingState::Wrong]),
        ] {
            let mut findings = Findings::default();
            judge(&nodes.into_iter().collect(), &mut findings);
            assert_eq!(findings.all.iter().map(|one| one.state).collect::<Vec<_>>(), states);
        }
    }
}
