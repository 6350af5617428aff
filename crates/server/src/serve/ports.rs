//! Assigns endpoints to ports: the public port serves clients; the internal port, if configured, serves operators.

use std::{sync::Arc, time::Duration};

use dunlin_config::Config;
use dunlin_net::{Acceptor, ClientEndpoint, OriginCheck, Transport};

use super::{Asked, BackupMaker, Reloader, limits::head_limits};
use crate::{
    demo::{guests::GuestTokens, paths::ArenaPaths, site::Site},
    http::{
        Emulation, HttpParts, Init, Metrics, SessionAcceptor,
        api::{ApiOptions, Executor, NodeIdentity, OwnNode, RequestLimits, Service},
        backup::BackupEndpoint,
        console::{Console, ConsoleAccess, ConsoleParts},
        debug::Debug,
        reload::Reload,
        shared_shard_reports::SharedShardReports,
    },
    matchmaking::MatchHandle,
    node::Node,
    peers::Forwards,
    recordings::OwnRecordings,
    telemetry::{Scrape, api_counters::ControlCounters, log},
};

/// The endpoints for browsers, and the services other than the node that the API uses.
pub(super) struct Pages {
    pub(super) site: Option<Site>,
    pub(super) origins: OriginCheck,
    pub(super) matchmaking: Option<MatchHandle>,
    /// Signs cookies of the console unless a secret is configured.
    pub(super) cookie_key: [u8; 32],
    /// The recordings of rooms, for the console.
    pub(super) recordings: Arc<OwnRecordings>,
}

/// The endpoints of each port.
pub(super) struct Ports {
    pub(super) public: HttpParts,
    /// Executes the commands of the server API and of the console; `None` without both.
    service: Option<Arc<Service>>,
    /// Who may use the console; `None` without one.
    console: Option<Arc<ConsoleAccess>>,
    recordings: Arc<OwnRecordings>,
    /// What collects all metrics; `None` if nobody wants them.
    metrics: Option<Arc<Metrics>>,
    /// `None` without an internal port.
    pub(super) internal: Option<HttpParts>,
}

impl Ports {
    /// What executes the commands of the server API and of the console.
    pub(super) fn api(&self) -> Option<Arc<Service>> {
        self.service.clone()
    }

    /// Who may use the console; `None` without one.
    pub(super) fn console_access(&self) -> Option<Arc<ConsoleAccess>> {
        self.console.clone()
    }

    /// Adds the console to its port, if it is enabled.
    pub(super) fn with_console(mut self, served: Served<'_>, reloader: &Arc<Reloader>) -> Self {
        let Served { config, node, counters, .. } = served;
        let Some(((options, service), access)) = config.admin.as_ref().zip(self.api()).zip(self.console_access())
        else {
            return self;
        };
        let is_public = options.external || self.internal.is_none();
        let parts = ConsoleParts {
            service,
            reloader: Arc::clone(reloader),
            node: node.clone(),
            counters: Arc::clone(counters),
            log: log::kept_tail(),
            has_tls: is_public && config.http_server.tls.is_some(),
            recordings: Arc::clone(&self.recordings),
            replays: options.replays,
        };
        let port = self.internal.as_mut().filter(|_| !is_public).unwrap_or(&mut self.public);
        port.console = Some(Console::new(&options.handler_prefix, access, parts));
        self
    }

    /// What collects all metrics; `None` if nobody wants them.
    pub(super) fn metrics(&self) -> Option<Arc<Metrics>> {
        self.metrics.clone()
    }

    /// Adds the endpoints for reloads and backups to the internal port, if there is one.
    pub(super) fn with_operations(
        mut self,
        reloader: &Arc<Reloader>,
        counters: &Arc<ControlCounters>,
        backups: Option<&Arc<BackupMaker>>,
    ) -> Self {
        if let Some(internal) = &mut self.internal {
            let reload = Reload { reloader: Arc::clone(reloader), counters: Arc::clone(counters) };
            internal.backup = backups.map(|maker| BackupEndpoint { maker: Arc::clone(maker), reload: reload.clone() });
            internal.reload = Some(reload);
        }
        self
    }
}

/// What the ports serve.
#[derive(Clone, Copy)]
pub(super) struct Served<'a> {
    pub(super) config: &'a Config,
    pub(super) node: &'a Node,
    pub(super) identity: &'a NodeIdentity,
    pub(super) counters: &'a Arc<ControlCounters>,
    pub(super) surveys: &'a Arc<SharedShardReports>,
}

/// The surveys of the node's shards, which all endpoints share.
pub(super) fn surveys(config: &Config, node: &Node) -> Arc<SharedShardReports> {
    Arc::new(SharedShardReports::new(node.clone(), Duration::from_millis(config.prometheus_survey_age_max_ms)))
}

pub(super) fn divide(served: Served<'_>, asked: Asked, pages: Pages) -> Ports {
    let Served { config, node, identity, counters, surveys } = served;
    let Pages { site, origins, matchmaking, cookie_key, recordings } = pages;
    let console = config.admin.as_ref().map(|options| Arc::new(ConsoleAccess::new(options, cookie_key)));
    let headers = asked.backends().wanted_headers().clone();
    let places = places(config);
    let init = config.transports.init_prefix.clone();
    let sessions = (!places.is_empty() || init.is_some()).then(|| {
        Arc::new(SessionAcceptor {
            acceptor: Acceptor { places, origins, limits: head_limits(config), headers },
            body_timeout: Duration::from_millis(config.net.head_timeout_ms),
            node: node.clone(),
            counters: Arc::clone(counters),
        })
    });
    let emulation = config.transports.emulation.clone().zip(sessions.clone());
    let emulation = emulation.map(|(emulation, sessions)| Emulation {
        path: emulation.handler_prefix,
        body_bytes_max: emulation.body_bytes_max,
        node_id: identity.uid.as_str().into(),
        forwards: Forwards::new(config.broker.as_ref().map_or(0, |broker| broker.forwards_max)),
        sessions,
    });
    let init = init.zip(sessions.clone()).map(|(path, sessions)| Init { path, sessions });
    let prefix = config.http_api.handler_prefix.clone();
    let service = (prefix.is_some() || config.admin.is_some()).then(|| {
        let own = OwnNode::new(Arc::clone(surveys), identity.clone(), Arc::clone(counters));
        let executor = Executor::new(own, Arc::clone(counters)).with_matchmaking(matchmaking.clone());
        Arc::new(Service::new(executor, api_options(config), Arc::clone(counters)))
    });
    let api = prefix.zip(service.clone());
    let arena_paths = config.demo.is_some().then(|| ArenaPaths::new(node.clone()));
    let guests = guests(config);
    let for_clients = HttpParts { arena_paths, guests, site, sessions, emulation, init, ..HttpParts::default() };
    let api_tracer = asked.otlp.as_ref().and_then(|otlp| otlp.api_tracer());
    let metrics = metrics(served, (asked, matchmaking));
    let for_operators = for_operators(served, metrics.clone());
    let (public, internal) = match config.http_server.internal {
        None => {
            // The debug page contains channel names.
            let public = HttpParts {
                api,
                api_tracer,
                debug: None,
                site: for_clients.site,
                arena_paths: for_clients.arena_paths,
                guests: for_clients.guests,
                sessions: for_clients.sessions,
                emulation: for_clients.emulation,
                init: for_clients.init,
                ..for_operators
            };
            (public, None)
        }
        Some(_) if config.http_api.external => (HttpParts { api, api_tracer, ..for_clients }, Some(for_operators)),
        Some(_) => (for_clients, Some(HttpParts { api, api_tracer, ..for_operators })),
    };
    Ports { public, service, console, recordings, metrics, internal }
}

/// Tokens for visitors of the demo, signed with the key of connection tokens.
fn guests(config: &Config) -> Option<GuestTokens> {
    config.demo.as_ref().filter(|demo| demo.has_guests)?;
    let keys = &config.token.connection;
    keys.hmac.clone().map(|secret| GuestTokens::new(secret, keys.rules.clone()))
}

/// The operators' paths on the public port, if any.
pub(super) fn operators_paths(config: &Config) -> Vec<String> {
    let has_all = config.http_server.internal.is_none();
    let api = config.http_api.handler_prefix.as_ref().filter(|_| has_all || config.http_api.external);
    let others = [&config.health_prefix, &config.prometheus_prefix].into_iter().flatten().filter(|_| has_all);
    let console = config.admin.as_ref().filter(|admin| has_all || admin.external).map(|admin| &admin.handler_prefix);
    // At `/` it would reserve connections for everything.
    let console = console.filter(|path| *path != "/");
    others.chain(api).chain(console).map(|path| path.trim_end_matches('/').to_owned()).collect()
}

/// The paths of transports.
pub(super) fn places(config: &Config) -> Vec<ClientEndpoint> {
    let websocket = config.websocket.handler_prefix.clone().map(|path| {
        let deflate = config.websocket.compression;
        ClientEndpoint { path, transport: Transport::WebSocket { deflate } }
    });
    websocket.into_iter().chain(config.transports.places.iter().cloned()).collect()
}

/// What collects all metrics, for Prometheus, for a collector or for the profile of waits.
fn metrics(served: Served<'_>, (asked, matchmaking): (Asked, Option<MatchHandle>)) -> Option<Arc<Metrics>> {
    let Served { config, identity, counters, surveys, .. } = served;
    let Asked { tokens, backends, webhooks, profiling, otlp } = asked;
    let is_pushed = otlp.as_ref().is_some_and(|otlp| otlp.metrics_interval().is_some());
    if config.prometheus_prefix.is_none() && config.debug_prefix.is_none() && !is_pushed {
        return None;
    }
    let namespaces = config.engine.namespaces.iter().map(|namespace| namespace.name.clone());
    let scrape = Scrape::new(identity.version, identity.reactor, namespaces);
    let (surveys, counters) = (Arc::clone(surveys), Arc::clone(counters));
    let started = identity.started;
    Some(Arc::new(Metrics {
        surveys,
        scrape,
        counters,
        tokens,
        backends,
        webhooks,
        profiling,
        otlp,
        matchmaking,
        started,
    }))
}

fn for_operators(served: Served<'_>, metrics: Option<Arc<Metrics>>) -> HttpParts {
    let Served { config, surveys, .. } = served;
    HttpParts {
        surveys: Some(Arc::clone(surveys)),
        health_path: config.health_prefix.clone(),
        health_requires_cluster: config.health_requires_cluster,
        metrics: config.prometheus_prefix.clone().zip(metrics.clone()),
        debug: config
            .debug_prefix
            .clone()
            .zip(metrics)
            .map(|(path, metrics)| (path, Debug::new(Arc::clone(surveys), metrics))),
        swagger_path: config.swagger_prefix.clone(),
        ..HttpParts::default()
    }
}

pub(super) fn api_options(config: &Config) -> ApiOptions {
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
