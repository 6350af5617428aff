//! Services for sessions: verifiers of tokens, backends, and the methods that the node answers.

use std::sync::Arc;

use dunlin_config::{Config, ProxyOptions};
use dunlin_token::Verifier;

use super::ServeError;
use crate::{
    backend::{Backends, NoBackends, ProxyClient},
    matchmaking::{MatchHandle, NodeMethods},
    webhooks::Webhooks,
};

/// The verifiers and backends that sessions use, and who is told of them.
pub(super) struct Asked {
    pub(super) tokens: Arc<Verifier>,
    /// `None` if no backend is configured.
    pub(super) backends: Option<Arc<Backends>>,
    /// `None` if nobody is told of events.
    pub(super) webhooks: Option<Arc<Webhooks>>,
}

impl Asked {
    pub(super) fn backends(&self) -> Arc<dyn ProxyClient> {
        match &self.backends {
            Some(backends) => Arc::clone(backends) as Arc<dyn ProxyClient>,
            None => Arc::new(NoBackends::default()),
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

pub(super) fn start_webhooks(config: &Config, node: &str) -> Result<Option<Arc<Webhooks>>, ServeError> {
    let options = config.webhooks.as_ref();
    let started = options.map(|options| Webhooks::start(options, node).map(Arc::new)).transpose();
    started.map_err(ServeError::Webhooks)
}

pub(super) fn start_backends(config: &Config) -> Result<Option<Arc<Backends>>, ServeError> {
    if config.backends.is_empty() {
        return Ok(None);
    }
    let trusts_proxies = !config.admission.trusted_proxies.is_empty();
    let proxies: Vec<_> =
        config.backends.iter().map(|proxy| ProxyOptions { trusts_proxies, ..proxy.clone() }).collect();
    Backends::start(&proxies).map(|backends| Some(Arc::new(backends))).map_err(ServeError::Backends)
}
