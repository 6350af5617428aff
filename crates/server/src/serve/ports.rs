//! Which port serves what: clients have their endpoints on the public one; what they have no business with is on the
//! internal one, where there is one.

use std::{sync::Arc, time::Duration};

use super::{Asked, head_limits};
use crate::{
    config::Config,
    demo::site::Site,
    http::{
        Emulation, HttpParts, Init, Metrics, SessionDoor,
        api::{ApiOptions, Executor, NodeIdentity, RequestLimits, Service},
        debug::Debug,
        surveys::Surveys,
    },
    net::{Door, Place, Transport},
    node::{Node, OriginCheck},
    telemetry::{Scrape, api_counters::ControlCounters},
};

/// What browsers come for.
pub(super) struct Pages {
    pub(super) site: Option<Site>,
    pub(super) origins: OriginCheck,
}

/// What each port serves.
pub(super) struct Ports {
    pub(super) public: HttpParts,
    /// `None` when there is one port.
    pub(super) internal: Option<HttpParts>,
}

pub(super) fn divide(
    config: &Config,
    node: &Node,
    asked: Asked,
    pages: Pages,
    identity: &NodeIdentity,
    counters: &Arc<ControlCounters>,
) -> Ports {
    let Pages { site, origins } = pages;
    let headers = asked.backends().wanted_headers().clone();
    let places = places(config);
    let init = config.transports.init_prefix.clone();
    let sessions = (!places.is_empty() || init.is_some()).then(|| {
        Arc::new(SessionDoor {
            door: Door { places, origins, limits: head_limits(config), headers },
            body_timeout: Duration::from_millis(config.net.head_timeout_ms),
            node: node.clone(),
            counters: Arc::clone(counters),
        })
    });
    let emulation = config.transports.emulation.clone().zip(sessions.clone());
    let emulation = emulation.map(|(emulation, sessions)| Emulation {
        path: emulation.handler_prefix,
        body_bytes_max: emulation.body_bytes_max,
        sessions,
    });
    let init = init.zip(sessions.clone()).map(|(path, sessions)| Init { path, sessions });
    let api = config.http_api.handler_prefix.clone().map(|prefix| {
        let executor = Executor::new(node.clone(), identity.clone(), Arc::clone(counters));
        (prefix, Service::new(executor, api_options(config), Arc::clone(counters)))
    });
    let for_clients = HttpParts { site, sessions, emulation, init, ..HttpParts::default() };
    let for_operators = for_operators(config, node, asked, identity, counters);
    match config.http_server.internal {
        None => Ports {
            // The page of what the shards hold shows names of channels.
            public: HttpParts {
                api,
                debug: None,
                site: for_clients.site,
                sessions: for_clients.sessions,
                emulation: for_clients.emulation,
                init: for_clients.init,
                ..for_operators
            },
            internal: None,
        },
        Some(_) if config.http_api.external => {
            Ports { public: HttpParts { api, ..for_clients }, internal: Some(for_operators) }
        }
        Some(_) => Ports { public: for_clients, internal: Some(HttpParts { api, ..for_operators }) },
    }
}

/// Where clients come in.
pub(super) fn places(config: &Config) -> Vec<Place> {
    let websocket = config.websocket.handler_prefix.clone().map(|path| {
        let deflate = config.websocket.compression;
        Place { path, transport: Transport::WebSocket { deflate } }
    });
    websocket.into_iter().chain(config.transports.places.iter().cloned()).collect()
}

fn for_operators(
    config: &Config,
    node: &Node,
    asked: Asked,
    identity: &NodeIdentity,
    counters: &Arc<ControlCounters>,
) -> HttpParts {
    let age_max = Duration::from_millis(config.prometheus_survey_age_max_ms);
    let surveys = Arc::new(Surveys::new(node.clone(), age_max));
    let metrics = config.prometheus_prefix.clone().map(|path| {
        let namespaces = config.engine.namespaces.iter().map(|namespace| namespace.name.clone());
        let scrape = Scrape::new(identity.version, identity.reactor, namespaces);
        let (surveys, counters) = (Arc::clone(&surveys), Arc::clone(counters));
        let Asked { tokens, backends } = asked;
        (path, Metrics { surveys, scrape, counters, tokens, backends, started: identity.started })
    });
    HttpParts {
        health_path: config.health_prefix.clone(),
        metrics,
        debug: config.debug_prefix.clone().map(|path| (path, Debug::new(surveys))),
        swagger_path: config.swagger_prefix.clone(),
        ..HttpParts::default()
    }
}

fn api_options(config: &Config) -> ApiOptions {
    let http_api = &config.http_api;
    ApiOptions {
        access: http_api.access.clone(),
        request_bytes_max: http_api.request_bytes_max,
        requests_max: http_api.requests_max,
        timeout: Duration::from_millis(http_api.timeout_ms),
        transport_errors: http_api.transport_errors,
        limits: RequestLimits {
            broadcast_channels_max: http_api.broadcast_channels_max,
            batch_commands_max: http_api.batch_commands_max,
        },
    }
}
