//! Log events of the connections to a cluster.

use dunlin_cluster::{
    core::{
        StreamChange,
        leases::LeaseChange,
        peers::{LiveNode, PeerChange},
    },
    links::LinkReport,
    streams::StreamDifference,
};
use tracing::{info, warn};

use super::log::Outside;

/// A stream differs from this node's configuration. Nodes use it unchanged.
pub struct StreamDiffers<'a> {
    /// The field and both values.
    pub difference: &'a StreamDifference,
}

impl StreamDiffers<'_> {
    /// Logs it.
    pub fn emit(&self) {
        let StreamDifference { stream, field, there, wanted, .. } = self.difference;
        warn!(stream = %Outside(stream), field, there = %Outside(there), configured = %Outside(wanted),
            remedy = "change the stream with `nats stream edit`, or the configuration of all nodes",
            "a stream differs from the configuration; the stream's value counts");
    }
}

/// The cluster has become available or unavailable.
pub struct ReadinessChanged {
    /// Whether all connections are up and all streams are known.
    pub is_ready: bool,
}

impl ReadinessChanged {
    /// Logs it.
    pub fn emit(&self) {
        if self.is_ready {
            info!("the cluster is ready");
        } else {
            warn!(
                "the cluster is not ready; publications to shared channels wait, and get error 100 after \
                broker.nats.jetstream.publish_timeout"
            );
        }
    }
}

/// Another node has changed.
pub struct NodeChanged<'a> {
    /// The node.
    pub node: &'a LiveNode,
    /// The change.
    pub change: PeerChange,
}

impl NodeChanged<'_> {
    /// Logs it.
    pub fn emit(&self) {
        let LiveNode { node, about } = self.node;
        let (node, name, version) = (Outside(node), Outside(&about.name), Outside(&about.version));
        match self.change {
            PeerChange::Joined => info!(%node, %name, %version, "another node is live"),
            PeerChange::Left => info!(%node, %name, "another node has stopped"),
            PeerChange::Lost => warn!(%node, %name, "another node is silent, and is not asked any more"),
            PeerChange::OtherVersion => {
                warn!(%node, %name, %version, own_version = env!("CARGO_PKG_VERSION"),
                    remedy = "run the same version on all nodes", "another node has another version");
            }
            PeerChange::ClockOff { offset_ms } => {
                warn!(%node, %name, offset_ms, remedy = "synchronize the clocks of all nodes, for example with chrony",
                    "the clock of another node and the clock of this node differ");
            }
            PeerChange::ClockRight => info!(%node, %name, "the clock of another node agrees with this node's again"),
            PeerChange::SameId => {
                warn!(%node, %name, remedy = "restart one of the two nodes",
                    "another node has the id of this node, so their messages cannot be told apart");
            }
        }
    }
}

/// Logs that a lease has changed.
pub fn log_lease(change: &LeaseChange) {
    match change {
        LeaseChange::Began { term } => info!(term, "this node holds its lease"),
        LeaseChange::Lost { by } => {
            warn!(by = %Outside(by), "another node has taken the lease of this node, which was not renewed in time");
        }
        LeaseChange::Gone => warn!("the lease of this node is gone, together with the stream of the leases"),
        LeaseChange::Took { node } => {
            warn!(node = %Outside(node), "this node has taken the lease of another node, which did not renew it");
        }
    }
}

/// Logs that a stream has become unusable or usable, or was created again.
pub fn log_stream(stream: &str, change: &StreamChange) {
    let stream = Outside(stream);
    match change {
        StreamChange::Unusable(trouble) => {
            let why = trouble.to_string();
            warn!(%stream, why = %Outside(&why), remedy = "see `dunlin cluster check` and the NATS servers",
                "this node cannot use a stream; publications to its channels get error 100");
        }
        StreamChange::Usable => info!(%stream, "this node can use a stream again"),
        StreamChange::Created { epoch } => {
            warn!(%stream, epoch = %Outside(epoch),
                "a stream was gone, and this node has created it again, empty and with a new epoch");
        }
    }
}

/// Logs what happened to a connection.
pub fn log_report(report: &LinkReport) {
    match report {
        LinkReport::Connected { link, server } => {
            info!(link = link.label(), server = %Outside(server), "connected to NATS");
        }
        LinkReport::Lost { link, server } => {
            warn!(link = link.label(), server = %Outside(server), "the connection to NATS is lost; it is being opened again");
        }
        LinkReport::ConnectFailed { link, server, error } => {
            warn!(link = link.label(), server = %Outside(server), why = %Outside(error), "a NATS server takes no connection");
        }
        LinkReport::Waiting { why, left_s } => {
            warn!(why = %Outside(why), left_s, "the node waits for the NATS servers, until broker.nats.jetstream.start_timeout");
        }
        LinkReport::ServerError { link, text } => {
            warn!(link = link.label(), why = %Outside(text), "a NATS server has reported an error");
        }
    }
}
