//! The HTTP server on the control thread: the server API, health, metrics, and the pages of a demonstration.
//!
//! Connections come from the shards, which hand over whatever is not a WebSocket ([`connection`]); a WebSocket that is
//! asked for on such a connection goes back to a shard ([`upgrade`]).

pub mod api;
pub mod connection;
pub mod debug;
pub(crate) mod emulation;
mod init;
pub mod internal;
mod replay;
mod stream;
pub mod surveys;
pub mod swagger;
mod upgrade;

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::{Request, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::{MethodRouter, any, get, post},
};

use crate::{
    backend::Backends,
    demo::site::Site,
    net::{Door, Place, Transport},
    node::Node,
    telemetry::{self, Moment, Scrape, api_counters::ControlCounters, process::ProcessUse},
    token::Verifier,
};

pub use emulation::Emulation;
pub use init::Init;

/// What is served on one port, and where.
#[derive(Default)]
pub struct HttpParts {
    /// The server API and its path; `None` when it is off.
    pub api: Option<(String, api::Service)>,
    /// Path of the health check.
    pub health_path: Option<String>,
    /// Whether the node is about to end, so that nobody should be sent here: the health check says so.
    pub is_going: Arc<AtomicBool>,
    /// Path of the metrics, and what they need.
    pub metrics: Option<(String, Metrics)>,
    /// Path of the page of what the shards hold, and what it needs.
    pub debug: Option<(String, debug::Debug)>,
    /// Path of the API's description.
    pub swagger_path: Option<String>,
    /// Pages at `/`.
    pub site: Option<Site>,
    /// Opens sessions; `None` when all transports are off.
    pub sessions: Option<Arc<SessionDoor>>,
    /// Takes commands of sessions that come by requests of their own.
    pub emulation: Option<Emulation>,
    /// The endpoint that does nothing but answer.
    pub init: Option<Init>,
}

/// What a page of metrics is computed from.
pub struct Metrics {
    /// What the shards report.
    pub surveys: Arc<surveys::Surveys>,
    /// What stays from page to page.
    pub scrape: Scrape,
    /// What the control thread counts.
    pub counters: Arc<ControlCounters>,
    /// Judges tokens, and counts them.
    pub tokens: Arc<Verifier>,
    /// Asks backends, and counts that; `None` where there are none.
    pub backends: Option<Arc<Backends>>,
    /// When the node started.
    pub started: Instant,
}

/// Opens sessions on connections that have carried HTTP before.
#[derive(Clone)]
pub struct SessionDoor {
    /// Judges as the shards do.
    pub door: Door,
    /// Time for a request's body to come.
    pub body_timeout: Duration,
    /// Takes the sockets.
    pub node: Node,
    /// Counts what is refused.
    pub counters: Arc<ControlCounters>,
}

/// Two parts of the server want the same path.
#[derive(Debug, PartialEq, Eq)]
pub struct PathTaken(pub String);

/// The other end of a connection, where it is known.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub Option<SocketAddr>);

impl Peer {
    /// Whose request it is.
    pub fn of(request: &Request) -> Self {
        request.extensions().get::<Self>().copied().unwrap_or(Self(None))
    }
}

/// The paths and what answers there.
///
/// # Errors
/// [`PathTaken`]
pub fn router(parts: HttpParts) -> Result<Router, PathTaken> {
    let mut by_path: Vec<(String, MethodRouter)> = Vec::new();
    if let Some((prefix, service)) = parts.api {
        let service = Arc::new(service);
        let prefix = literal(&prefix);
        let methods = format!("{}/{{method}}", prefix.trim_end_matches('/'));
        by_path.push((methods, post(api::answer).with_state(Arc::clone(&service))));
        by_path.push((prefix, post(api::answer_legacy).with_state(service)));
    }
    if let Some(path) = parts.health_path {
        by_path.push((literal(&path), get(health).with_state(parts.is_going)));
    }
    if let Some((path, metrics)) = parts.metrics {
        by_path.push((literal(&path), get(page_of_metrics).with_state(Arc::new(metrics))));
    }
    if let Some((path, debug)) = parts.debug {
        by_path.push((literal(&path), get(debug::answer).with_state(Arc::new(debug))));
    }
    if let Some(path) = parts.swagger_path {
        let path = literal(&path);
        by_path.push((format!("{}/openapi.json", path.trim_end_matches('/')), get(swagger::document)));
        by_path.push((path, get(swagger::page)));
    }
    if let Some(sessions) = parts.sessions {
        for Place { path, transport } in &sessions.door.places {
            let answer = match transport {
                Transport::WebSocket { .. } | Transport::UniWebSocket { .. } => any(upgrade::open),
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

/// A configured path as the router's pattern for exactly that path, without a slash at its end.
fn literal(path: &str) -> String {
    let path = path.trim_end_matches('/').replace('{', "{{").replace('}', "}}");
    if path.starts_with('/') { path } else { format!("/{path}") }
}

async fn nothing_here() -> Response {
    (StatusCode::NOT_FOUND, [(header::CONTENT_TYPE, "text/plain; charset=utf-8")], "404 page not found\n")
        .into_response()
}

async fn health(State(is_going): State<Arc<AtomicBool>>) -> Response {
    let status = if is_going.load(Ordering::Relaxed) { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    (status, [(header::CONTENT_TYPE, "application/json")], "{}").into_response()
}

async fn page_of_metrics(State(metrics): State<Arc<Metrics>>) -> Response {
    let shards = metrics.surveys.reports().await;
    let node = metrics.surveys.node();
    let (room_threads, rooms) = (node.room_threads(), node.rooms());
    let moment = Moment {
        shards: &shards,
        room_threads: &room_threads,
        rooms: &rooms,
        control: &metrics.counters,
        tokens: metrics.tokens.counters().now(),
        backends: metrics.backends.as_ref().map(|backends| backends.counts()).unwrap_or_default(),
        process: ProcessUse::now(),
        uptime: metrics.started.elapsed(),
    };
    let page = telemetry::page(&metrics.scrape, &moment);
    ([(header::CONTENT_TYPE, telemetry::CONTENT_TYPE)], page).into_response()
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
    fn odd_paths_do_no_harm() {
        for path in ["/{", "/}", "/:a", "/*a", "/a b", "/%", "//", "/ж", "", "/{*rest}"] {
            assert!(router(parts(path)).is_ok(), "{path}");
        }
    }
}
