//! The settings of nodes with and without a cluster.

use dunlin_cluster::names::PartitionNames;

use super::nats::NatsProcesses;
use crate::args::ServerArgs;
use crate::spawn::setting;

/// Prefix of the names of streams and subjects.
pub const PREFIX: &str = "bench";
/// Number of publications that a channel keeps.
pub const HISTORY_SIZE: u64 = 100;

/// The subject of publications in a channel without a namespace, if there is one partition.
pub fn live_subject(channel: &str) -> String {
    PartitionNames::new(PREFIX, "", 0).live_subject(channel).into_string()
}

/// Settings of a node of a cluster. Settings of the command line come last, and take precedence.
pub fn in_cluster(server: &ServerArgs, name: &str, nats: &NatsProcesses, more: &[String]) -> ServerArgs {
    let cluster = [
        setting("node.name", name),
        setting("broker.enabled", true),
        setting("broker.type", "nats"),
        setting("broker.nats.url", nats.urls()),
        setting("broker.nats.prefix", PREFIX),
        setting("broker.nats.jetstream.replicas", nats.replicas()),
    ];
    with_history(server, cluster.into_iter().chain(more.iter().cloned()))
}

/// Settings of a node without a cluster, with the same history in memory.
pub fn alone(server: &ServerArgs, more: &[String]) -> ServerArgs {
    with_history(server, more.iter().cloned())
}

fn with_history(server: &ServerArgs, more: impl Iterator<Item = String>) -> ServerArgs {
    let history = [
        setting("prometheus.enabled", true),
        setting("channel.without_namespace.history_size", HISTORY_SIZE),
        setting("channel.without_namespace.history_ttl", "1h"),
    ];
    let set = history.into_iter().chain(more).chain(server.set.iter().cloned()).collect();
    // Each node has its own port.
    ServerArgs { set, ..server.at(None, server.tls) }
}
