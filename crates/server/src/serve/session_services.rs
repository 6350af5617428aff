//! Services for sessions: verifiers of tokens, backends, and the methods that the node answers.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use dunlin_config::{Config, ProxyOptions};
use dunlin_token::Verifier;
use tokio::{sync::oneshot, task::JoinHandle};

use super::ServeError;
use crate::{
    backend::{Backends, NoBackends, ProxyClient},
    http::api::NodeIdentity,
    matchmaking::{MatchHandle, NodeMethods},
    node::Node,
    otlp::{Otlp, Tracer},
    profiling::Profiling,
    webhooks::{OccupancyReporter, Webhooks},
};

/// The verifiers and backends that sessions use, and who is told of the node.
pub(super) struct Asked {
    pub(super) tokens: Arc<Verifier>,
    /// `None` if no backend is configured.
    pub(super) backends: Option<Arc<Backends>>,
    /// `None` if nobody is told of events.
    pub(super) webhooks: Option<Arc<Webhooks>>,
    /// `None` if profiles are pushed nowhere.
    pub(super) profiling: Option<Arc<Profiling>>,
    /// `None` if traces and metrics are sent nowhere.
    pub(super) otlp: Option<Arc<Otlp>>,
}

impl Asked {
    /// Starts all. `node` is the id of this node, unique for each start.
    pub(super) fn start(config: &Config, tokens: Arc<Verifier>, node: &str) -> Result<Self, ServeError> {
        let profiling = config.pyroscope.as_ref().map(|options| Profiling::start(options, &config.node.name));
        let otlp = config.opentelemetry.as_ref().map(|options| Otlp::start(options, node, &config.node.name));
        let otlp = otlp.transpose().map_err(ServeError::Otlp)?.map(Arc::new);
        let tracer = otlp.as_ref().and_then(|otlp| otlp.tracer().cloned());
        Ok(Self {
            tokens,
            backends: start_backends(config, tracer)?,
            webhooks: start_webhooks(config, node)?,
            profiling: profiling.transpose().map_err(ServeError::Profiling)?.map(Arc::new),
            otlp,
        })
    }

    pub(super) fn backends(&self) -> Arc<dyn ProxyClient> {
        match &self.backends {
            Some(backends) => Arc::clone(backends) as Arc<dyn ProxyClient>,
            None => Arc::new(NoBackends::new(self.otlp.as_ref().is_some_and(|otlp| otlp.tracer().is_some()))),
        }
    }

    /// The client for proxy requests: answers the node's own methods, and passes other requests to the backends.
    pub(super) fn answering(&self, matchmaking: Option<MatchHandle>) -> Arc<dyn ProxyClient> {
        match matchmaking {
            Some(matchmaking) => Arc::new(NodeMethods::new(matchmaking, self.backends())),
            None => self.backends(),
        }
    }
}

fn start_webhooks(config: &Config, node: &str) -> Result<Option<Arc<Webhooks>>, ServeError> {
    let options = config.webhooks.as_ref();
    let started =
        options.map(|options| Webhooks::start(options, node, config.broker.is_some()).map(Arc::new)).transpose();
    started.map_err(ServeError::Webhooks)
}

/// The task that finds out which channels of the cluster are occupied, and what ends it.
pub(super) type ReporterTask = (oneshot::Sender<()>, JoinHandle<()>);

/// Starts the task; `None` without a cluster.
pub(super) fn start_reporter(node: &Node, identity: &NodeIdentity, webhooks: &Arc<Webhooks>) -> Option<ReporterTask> {
    let reporter = OccupancyReporter::new(webhooks, Arc::clone(node.cluster()?), &identity.uid)?;
    let (stop, stopped) = oneshot::channel();
    Some((stop, tokio::spawn(reporter.run(stopped))))
}

/// Sends the last events.
pub(super) async fn end_webhooks(webhooks: Option<&Arc<Webhooks>>, reporter: Option<ReporterTask>, timeout: Duration) {
    let Some(webhooks) = webhooks else { return };
    let begun = Instant::now();
    if let Some((stop, mut task)) = reporter {
        drop(stop);
        // The queue has the other half. What the reporter has not told by then is counted as lost.
        if tokio::time::timeout(timeout / 2, &mut task).await.is_err() {
            task.abort();
        }
    }
    webhooks.flush(timeout.saturating_sub(begun.elapsed())).await;
}

/// Ends the pushes of profiles, and sends the last spans.
pub(super) async fn end_pushes(profiling: Option<Arc<Profiling>>, otlp: Option<&Otlp>, timeout: Duration) {
    drop(profiling);
    if let Some(otlp) = otlp {
        otlp.end(timeout).await;
    }
}

fn start_backends(config: &Config, tracer: Option<Arc<Tracer>>) -> Result<Option<Arc<Backends>>, ServeError> {
    if config.backends.is_empty() {
        return Ok(None);
    }
    let trusts_proxies = !config.admission.trusted_proxies.is_empty();
    let proxies: Vec<_> =
        config.backends.iter().map(|proxy| ProxyOptions { trusts_proxies, ..proxy.clone() }).collect();
    Backends::start(&proxies, tracer).map(|backends| Some(Arc::new(backends))).map_err(ServeError::Backends)
}
