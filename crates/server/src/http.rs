//! The HTTP server on the control thread: server API, health check, metrics, and the demo pages.
//!
//! Shards pass on each connection that is not a WebSocket ([`connection`]). A WebSocket handshake on such a connection
//! moves its socket back to a shard ([`upgrade`]).

pub mod api;
mod authorization;
pub mod backup;
mod browser;
pub mod configuration;
pub mod connection;
pub mod connection_table;
pub mod console;
pub mod debug;
pub mod emulation;
mod health;
mod init;
pub mod internal;
mod profiles;
pub mod reload;
mod rewound_socket;
pub mod shared_shard_reports;
mod stream;
pub mod swagger;
mod tls_stream;
mod upgrade_behind_proxy;

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::{Request, State},
    http::{StatusCode, header},
    middleware,
    response::{IntoResponse, Response},
    routing::{MethodRouter, any, get, post},
};
use dunlin_net::{Acceptor, ClientEndpoint, Transport};
use dunlin_token::Verifier;

use crate::{
    backend::Backends,
    demo::site::Site,
    matchmaking::MatchHandle,
    node::{Node, NodeCluster, NodeStorage, NodeSurvey},
    otlp::{Otlp, Tracer},
    profiling::{Profiling, WaitTotals},
    telemetry::{self, Moment, Scrape, api_counters::ControlCounters, process::ProcessUse},
    webhooks::Webhooks,
};

use health::HealthSources;

pub use emulation::Emulation;
pub use init::Init;

/// The endpoints of one port.
#[derive(Default)]
pub struct HttpParts {
    /// The server API and its path; `None` if it is disabled.
    pub api: Option<(String, Arc<api::Service>)>,
    /// Traces requests to the server API; `None` if they are not traced.
    pub api_tracer: Option<Arc<Tracer>>,
    /// The surveys of the shards, which the health check asks to react.
    pub surveys: Option<Arc<shared_shard_reports::SharedShardReports>>,
    /// Path of the health check.
    pub health_path: Option<String>,
    /// Whether the health check fails while the node cannot use its cluster.
    pub health_requires_cluster: bool,
    /// Whether the node is shutting down. The health check reports it, so that load balancers send no new clients.
    pub is_going: Arc<AtomicBool>,
    /// The storage; the health check reports its failure.
    pub storage: Option<Arc<NodeStorage>>,
    /// The cluster; the health check reports if it is not ready.
    pub cluster: Option<Arc<NodeCluster>>,
    /// Path of the metrics, and what they need.
    pub metrics: Option<(String, Arc<Metrics>)>,
    /// Reloads the configuration. Only on the internal port.
    pub reload: Option<reload::Reload>,
    /// Makes backups. Only on the internal port.
    pub backup: Option<backup::BackupEndpoint>,
    /// The debug page with its path, below which are the profiles. Only on the internal port.
    pub debug: Option<(String, debug::Debug)>,
    /// The console.
    pub console: Option<console::Console>,
    /// Path of the API's `OpenAPI` description.
    pub swagger_path: Option<String>,
    /// Paths of players for the arena's page.
    pub arena_paths: Option<crate::demo::paths::ArenaPaths>,
    /// Tokens for visitors of the demo.
    pub guests: Option<crate::demo::guests::GuestTokens>,
    /// Pages at `/`.
    pub site: Option<Site>,
    /// Opens sessions; `None` if all transports are disabled.
    pub sessions: Option<Arc<SessionAcceptor>>,
    /// Takes commands in separate HTTP requests.
    pub emulation: Option<Emulation>,
    /// The endpoint that tests the connection.
    pub init: Option<Init>,
}

impl HttpParts {
    /// The paths of operators, for which connections are reserved.
    pub fn operators_paths(&self) -> Arc<[String]> {
        let api = self.api.as_ref().map(|(prefix, _)| prefix);
        let metrics = self.metrics.as_ref().map(|(path, _)| path);
        // At `/` it would reserve connections for everything.
        let console = self.console.as_ref().map(console::Console::path).filter(|path| !path.is_empty());
        let paths = [api, metrics, self.health_path.as_ref(), console].into_iter().flatten();
        // If the API's path is `/`, its methods are at the top level.
        paths.map(|path| literal(path).trim_end_matches('/').to_owned()).collect()
    }
}

/// The sources of the metrics page.
pub struct Metrics {
    /// Surveys of the shards.
    pub surveys: Arc<shared_shard_reports::SharedShardReports>,
    /// State that persists between scrapes.
    pub scrape: Scrape,
    /// The control thread's counters.
    pub counters: Arc<ControlCounters>,
    /// Verifies tokens and counts them.
    pub tokens: Arc<Verifier>,
    /// Sends requests to backends and counts them; `None` without backends.
    pub backends: Option<Arc<Backends>>,
    /// Sends events to the backend and counts them; `None` without webhooks.
    pub webhooks: Option<Arc<Webhooks>>,
    /// Pushes profiles and counts them; `None` if nowhere.
    pub profiling: Option<Arc<Profiling>>,
    /// Sends traces and metrics to a collector, and counts them; `None` if nowhere.
    pub otlp: Option<Arc<Otlp>>,
    /// Counts of matchmaking; `None` without it.
    pub matchmaking: Option<MatchHandle>,
    /// The start time of the node.
    pub started: Instant,
}

/// Opens sessions on kept-alive HTTP connections.
#[derive(Clone)]
pub struct SessionAcceptor {
    /// Applies the same checks as the shards.
    pub acceptor: Acceptor,
    /// Timeout for a request's body.
    pub body_timeout: Duration,
    /// The node that takes over the sockets.
    pub node: Node,
    /// Counts refused requests.
    pub counters: Arc<ControlCounters>,
}

/// Two endpoints have the same path.
#[derive(Debug, PartialEq, Eq)]
pub struct PathTaken(pub String);

/// The peer's address, if it is known.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub Option<SocketAddr>);

impl Peer {
    /// The peer of a request.
    pub fn of(request: &Request) -> Self {
        request.extensions().get::<Self>().copied().unwrap_or(Self(None))
    }
}

/// A router for these endpoints.
///
/// # Errors
/// [`PathTaken`]
pub fn router(parts: HttpParts) -> Result<Router, PathTaken> {
    let mut by_path: Vec<(String, MethodRouter)> = Vec::new();
    if let Some((prefix, service)) = parts.api {
        by_path.extend(api_endpoints(&prefix, service, parts.api_tracer.as_ref()));
    }
    if let Some(path) = parts.health_path {
        let HttpParts { surveys, is_going, storage, cluster, health_requires_cluster: requires_cluster, .. } = parts;
        let sources = HealthSources { surveys, is_going, storage, cluster, requires_cluster };
        by_path.push((literal(&path), get(health::answer).with_state(sources)));
    }
    if let Some((path, metrics)) = parts.metrics {
        by_path.push((literal(&path), get(page_of_metrics).with_state(metrics)));
    }
    if let Some(reload) = parts.reload {
        by_path.push((literal(configuration::PATH), post(configuration::answer).with_state(reload.clone())));
        by_path.push((literal(reload::PATH), post(reload::answer).with_state(reload)));
    }
    if let Some(backup) = parts.backup {
        by_path.push((literal(backup::PATH), post(backup::answer).with_state(backup)));
    }
    if let Some((path, debug)) = parts.debug {
        let below = |name| format!("{}/{name}", literal(&path).trim_end_matches('/'));
        by_path.push((below("profile"), get(profiles::cpu)));
        by_path.push((below("heap"), get(profiles::heap)));
        by_path.push((below("allocs"), get(profiles::allocs)));
        by_path.push((below("block"), get(profiles::block).with_state(debug.metrics())));
        by_path.push((literal(&path), get(debug::answer).with_state(Arc::new(debug))));
    }
    if let Some(console) = parts.console {
        by_path.extend(console.endpoints(literal));
    }
    if let Some(path) = parts.swagger_path {
        let path = literal(&path);
        by_path.push((format!("{}/openapi.json", path.trim_end_matches('/')), get(swagger::document)));
        by_path.push((path, get(swagger::page)));
    }
    if let Some(sessions) = parts.sessions {
        for ClientEndpoint { path, transport } in &sessions.acceptor.places {
            let answer = match transport {
                Transport::WebSocket { .. } | Transport::UniWebSocket { .. } => any(upgrade_behind_proxy::open),
                _ => any(stream::open),
            };
            by_path.push((literal(path), answer.with_state(Arc::clone(&sessions))));
        }
    }
    if let Some(emulation) = parts.emulation {
        by_path.push((literal(&emulation.path), any(emulation::answer).with_state(Arc::new(emulation))));
    }
    if let Some(Init { path, sessions }) = parts.init {
        by_path.push((literal(&path), any(init::answer).with_state(sessions)));
    }
    if let Some(paths) = parts.arena_paths {
        let answer = get(crate::demo::paths::answer).with_state(Arc::new(paths));
        by_path.push((literal(crate::demo::paths::PATH), answer));
    }
    if let Some(guests) = parts.guests {
        let answer = get(crate::demo::guests::answer).with_state(Arc::new(guests));
        by_path.push((literal(crate::demo::guests::PATH), answer));
    }
    let mut taken = BTreeSet::new();
    let mut router = Router::new().without_v07_checks();
    for (path, answer) in by_path {
        if !taken.insert(path.clone()) {
            return Err(PathTaken(path));
        }
        router = router.route(&path, answer);
    }
    Ok(match parts.site {
        Some(site) => router.fallback_service(get(crate::demo::site::answer).with_state(Arc::new(site))),
        None => router.fallback(nothing_here),
    })
}

fn api_endpoints(
    prefix: &str,
    service: Arc<api::Service>,
    tracer: Option<&Arc<Tracer>>,
) -> [(String, MethodRouter); 2] {
    let prefix = literal(prefix);
    let methods = format!("{}/{{method}}", prefix.trim_end_matches('/'));
    let answer = post(api::answer).with_state(Arc::clone(&service));
    let endpoints = [(methods, answer), (prefix, post(api::answer_legacy).with_state(service))];
    let Some(tracer) = tracer else { return endpoints };
    endpoints.map(|(path, answer)| {
        let state = api::TracedRoute { tracer: Arc::clone(tracer), route: path.as_str().into() };
        (path, answer.layer(middleware::from_fn_with_state(state, api::trace)))
    })
}

/// A router pattern that matches exactly this path, without a trailing slash.
fn literal(path: &str) -> String {
    let path = path.trim_end_matches('/').replace('{', "{{").replace('}', "}}");
    if path.starts_with('/') { path } else { format!("/{path}") }
}

async fn nothing_here() -> Response {
    (StatusCode::NOT_FOUND, [(header::CONTENT_TYPE, "text/plain; charset=utf-8")], "404 page not found\n")
        .into_response()
}

async fn page_of_metrics(State(metrics): State<Arc<Metrics>>) -> Response {
    let page = metrics.at_this_moment(telemetry::page).await;
    ([(header::CONTENT_TYPE, telemetry::CONTENT_TYPE)], page).into_response()
}

impl Metrics {
    /// Sends all metrics to the collector, from time to time.
    pub async fn push(self: Arc<Self>) {
        let Some((otlp, interval)) = self.otlp.as_ref().and_then(|otlp| Some((otlp, otlp.metrics_interval()?))) else {
            return;
        };
        loop {
            tokio::time::sleep(interval).await;
            let read = |scrape: &Scrape, moment: &Moment<'_>| {
                // Without a shard, sums would fall, which a collector takes for a restart.
                moment
                    .silent_shards
                    .is_empty()
                    .then(|| (telemetry::points(scrape, moment), moment.process.started_unix))
            };
            if let Some((families, started_unix)) = self.at_this_moment(read).await {
                otlp.put_metrics(&families, started_unix);
            }
        }
    }

    /// What the node has waited for since its start.
    async fn wait_totals(&self) -> WaitTotals {
        // Not a shared survey: two that are some seconds apart may not be the same.
        let survey = self.surveys.node().survey().await;
        self.with_survey(&survey, |scrape, moment| WaitTotals::at(moment, &scrape.namespaces()))
    }

    /// Asks the shards, and returns what `read` makes of the state of the node.
    async fn at_this_moment<T>(&self, read: impl FnOnce(&Scrape, &Moment<'_>) -> T) -> T {
        let survey = self.surveys.latest().await;
        self.with_survey(&survey, read)
    }

    fn with_survey<T>(&self, survey: &NodeSurvey, read: impl FnOnce(&Scrape, &Moment<'_>) -> T) -> T {
        let node = self.surveys.node();
        let (room_threads, rooms) = (node.room_threads(), node.rooms());
        let moment = Moment {
            shards: &survey.reports,
            silent_shards: &survey.silent,
            room_threads: &room_threads,
            room_builder: node.room_builder(),
            room_relay: node.room_relay(),
            room_memory_bytes: node.room_memory_bytes(),
            room_survival: node.room_survival(),
            paths: node.path_counts(),
            recordings: node.recordings(),
            rooms: &rooms,
            control: &self.counters,
            access: node.access().counts(),
            tokens: self.tokens.counters().now(),
            matchmaking: self.matchmaking.as_ref().map(MatchHandle::report).unwrap_or_default(),
            backends: self.backends.as_ref().map(|backends| backends.counts()).unwrap_or_default(),
            webhooks: self.webhooks.as_ref().map(|webhooks| webhooks.counts()).unwrap_or_default(),
            profiles: self.profiling.as_ref().map(|profiling| profiling.counts()).unwrap_or_default(),
            otlp: self.otlp.as_ref().map(|otlp| otlp.counts()).unwrap_or_default(),
            storage: node.storage().map(|storage| storage.state()),
            cluster: node.cluster().map(|cluster| cluster.state()),
            peers: node.cluster().map(|cluster| cluster.question_counters().counts()),
            process: ProcessUse::now(),
            uptime: self.started.elapsed(),
        };
        read(&self.scrape, &moment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(health: &str) -> HttpParts {
        HttpParts { health_path: Some(health.to_owned()), site: Some(Site::default()), ..HttpParts::default() }
    }

    #[test]
    fn configured_paths_are_literal() {
        for (path, expected) in
            [("/api", "/api"), ("/api/", "/api"), ("api", "/api"), ("/", "/"), ("", "/"), ("/a{b}", "/a{{b}}")]
        {
            assert_eq!(literal(path), expected);
        }
    }

    #[test]
    fn unusual_paths_are_harmless() {
        for path in ["/{", "/}", "/:a", "/*a", "/a b", "/%", "//", "/ж", "", "/{*rest}"] {
            assert!(router(parts(path)).is_ok(), "{path}");
        }
    }
}
