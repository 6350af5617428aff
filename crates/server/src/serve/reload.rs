//! Reloads the configuration of a running node, on SIGHUP or `POST /-/reload` on the internal port.

use std::{
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use dunlin_config::{AllowedOrigins, ApiAccess, Changes, Config, Loaded, NeedsRestart, Problems, Values};
use dunlin_net::Certificates;
use dunlin_token::Verifier;
use serde::Serialize;
use tokio::signal::unix::Signal;

use super::{
    drain_plan, ports,
    storage::{disk_limits, durable_namespaces},
};
use crate::{
    http::{Metrics, api::Service, console::ConsoleAccess},
    node::{DrainPlan, LiveAdmission, Node},
    telemetry::{
        api_counters::{ControlCounters, ReloadOutcome},
        config_events, events, log,
    },
};

/// Reads the configuration from the same file, environment and flags as at the start.
pub type Reread = Arc<dyn Fn() -> Result<Loaded, Problems> + Send + Sync>;

/// Timeout for shards to use new options. A slower shard has them in its inbox.
const SHARDS_TIMEOUT: Duration = Duration::from_secs(5);

/// The result of a reload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Reloaded {
    /// The new configuration is in effect, except for keys that need a restart.
    Applied {
        /// Keys with new values.
        changed: Vec<String>,
        /// Keys whose new values apply after a restart.
        needs_restart: Vec<NeedsRestart>,
        /// Warnings about the configuration.
        warnings: Vec<String>,
    },
    /// The new configuration is invalid, and nothing has changed.
    Refused {
        /// The errors.
        errors: Vec<String>,
        /// The configuration is valid, but takes away too much to be applied without `force`.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        needs_force: bool,
    },
}

/// The parts of a running node that use changeable options.
pub(super) struct LiveParts {
    pub(super) node: Node,
    pub(super) tokens: Arc<Verifier>,
    pub(super) origins: LiveOrigins,
    pub(super) certificates: Option<Arc<Certificates>>,
    pub(super) api: Option<Arc<Service>>,
    pub(super) metrics: Option<Arc<Metrics>>,
    pub(super) console: Option<Arc<ConsoleAccess>>,
    pub(super) counters: Arc<ControlCounters>,
}

/// Reads the configuration again and applies it.
pub struct Reloader {
    reread: Reread,
    parts: LiveParts,
    /// Locked during a reload, so that reloads do not overlap.
    running: tokio::sync::Mutex<Running>,
    /// Who may request a reload.
    access: RwLock<Arc<ApiAccess>>,
    drain_plan: Mutex<(DrainPlan, Duration)>,
}

/// A valid configuration.
struct Read {
    loaded: Loaded,
    certificates: Option<Certificates>,
}

/// The running configuration.
struct Running {
    config: Config,
    values: Values,
    /// See [`Loaded::has_document_settings`].
    has_document_settings: bool,
    /// The warnings about it.
    warnings: Vec<String>,
}

impl Running {
    /// Why a valid configuration is not applied.
    fn objection(&self, wanted: &Loaded, is_forced: bool) -> Option<Reloaded> {
        if self.has_document_settings && !wanted.has_document_settings {
            let file = wanted.config.file.as_deref().unwrap_or("the configuration file");
            let text = format!("{file}: sets nothing any more: write the settings that the node is to have into it");
            return Some(Reloaded::refused(vec![text]));
        }
        let losses = if is_forced { Vec::new() } else { self.values.losses(&wanted.values) };
        (!losses.is_empty()).then_some(Reloaded::Refused { errors: losses, needs_force: true })
    }
}

/// The currently allowed origins.
#[derive(Clone)]
pub(super) struct LiveOrigins(Arc<RwLock<Arc<AllowedOrigins>>>);

impl LiveOrigins {
    pub(super) fn new(origins: AllowedOrigins) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(origins))))
    }

    pub(super) fn now(&self) -> Arc<AllowedOrigins> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn set(&self, origins: AllowedOrigins) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(origins);
    }
}

impl Reloader {
    pub(super) fn new(loaded: Loaded, reread: Reread, parts: LiveParts) -> Self {
        let Loaded { config, values, has_document_settings, warnings, .. } = loaded;
        let warnings = warnings.iter().map(ToString::to_string).collect();
        Self {
            reread,
            parts,
            access: RwLock::new(Arc::new(config.http_api.access.clone())),
            drain_plan: Mutex::new(shutdown_of(&config)),
            running: tokio::sync::Mutex::new(Running { config, values, has_document_settings, warnings }),
        }
    }

    /// Who may request a reload now.
    pub fn access(&self) -> Arc<ApiAccess> {
        Arc::clone(&self.access.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The configuration as it holds, for people and agents, without secrets.
    pub async fn shown(&self) -> serde_json::Value {
        let running = self.running.lock().await;
        serde_json::json!({
            "file": running.config.file,
            "settings": running.values.shown(),
            "warnings": running.warnings,
        })
    }

    /// The current drain plan, and the delay before it.
    pub(super) fn shutdown(&self) -> (DrainPlan, Duration) {
        *self.drain_plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads and applies the configuration, or returns the error. Counts and logs the result. A configuration that takes
    /// away all namespaces, all keys of a kind or the storage is applied only if `is_forced`.
    pub async fn reload(&self, is_forced: bool) -> Reloaded {
        let mut running = self.running.lock().await;
        let reloaded = match self.read().await {
            Ok(read) => match running.objection(&read.loaded, is_forced) {
                None => self.apply(&mut running, read.loaded, read.certificates).await,
                Some(objection) => objection,
            },
            Err(errors) => Reloaded::refused(errors),
        };
        let outcome = reloaded.outcome();
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        self.parts.counters.count_reload(outcome, now_s);
        config_events::ConfigurationReread { reloaded: &reloaded }.emit();
        reloaded
    }

    /// Reads and checks everything before any of it is applied.
    async fn read(&self) -> Result<Read, Vec<String>> {
        let reread = Arc::clone(&self.reread);
        // Reading and checking may block.
        let read = tokio::task::spawn_blocking(move || {
            let loaded = reread()?;
            let files = loaded.config.http_server.tls.clone();
            let certificates = files.map(Certificates::read);
            Ok((loaded, certificates))
        });
        match read.await {
            Ok(Ok((loaded, certificates))) => match certificates.transpose() {
                Ok(certificates) => Ok(Read { loaded, certificates }),
                Err(error) => {
                    self.parts.counters.count_certificates(false);
                    events::CertificatesRenewed { error: Some(&error) }.emit();
                    Err(vec![format!("http_server.tls: {error}")])
                }
            },
            Ok(Err(problems)) => Err(Problems::to_string(&problems).lines().map(str::to_owned).collect()),
            Err(_) => Err(vec!["the configuration could not be read: its reader panicked".to_owned()]),
        }
    }

    async fn apply(&self, running: &mut Running, loaded: Loaded, certificates: Option<Certificates>) -> Reloaded {
        let (config, held) = running.config.succeeded_by(&loaded.config);
        let mut values = running.values.clone();
        let changes = values.take_over(&loaded.values, &held);
        let token_tables = ["client.token.", "client.subscription_token."];
        if changes.has_changed(&token_tables)
            && let Err(error) = self.parts.tokens.replace_keys(&config.token)
        {
            return Reloaded::refused(vec![format!("cannot start the token thread: {error}")]);
        }
        let mut warnings: Vec<String> = loaded.warnings.iter().map(ToString::to_string).collect();
        self.apply_outside_shards(&config, certificates);
        let reconfigured = self.parts.node.reconfigure(Arc::clone(&config.engine));
        if tokio::time::timeout(SHARDS_TIMEOUT, reconfigured).await.is_err() {
            warnings.push("not all shards have taken over the options yet; they are busy".to_owned());
        }
        let has_document_settings = loaded.has_document_settings;
        *running = Running { config, values, has_document_settings, warnings: warnings.clone() };
        let Changes { changed, needs_restart } = changes;
        Reloaded::Applied { changed, needs_restart, warnings }
    }

    fn apply_outside_shards(&self, config: &Config, certificates: Option<Certificates>) {
        let parts = &self.parts;
        log::set_levels(&config.log);
        parts.origins.set(config.allowed_origins.clone());
        parts.node.set_admission(LiveAdmission {
            sessions_max: u32::try_from(config.net.connections_max).unwrap_or(u32::MAX),
            handshakes_per_second: config.admission.handshakes_per_second,
        });
        parts.counters.set_memory_bytes_max(config.net.memory_bytes_max);
        if let Some(api) = &parts.api {
            api.set_options(ports::api_options(config));
        }
        if let (Some(console), Some(admin)) = (&parts.console, &config.admin) {
            console.apply(admin);
        }
        *self.access.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config.http_api.access.clone());
        *self.drain_plan.lock().unwrap_or_else(PoisonError::into_inner) = shutdown_of(config);
        if let Some(storage) = parts.node.storage() {
            storage.set_durable_namespaces(durable_namespaces(&config.engine));
            storage.storage().set_disk_limits(disk_limits(&config.engine));
        }
        if let Some(metrics) = &parts.metrics {
            metrics.scrape.set_namespaces(config.engine.namespaces.iter().map(|namespace| namespace.name.clone()));
        }
        if let (Some(shown), Some(read)) = (&parts.certificates, certificates) {
            shown.replace(read);
            parts.counters.count_certificates(true);
            events::CertificatesRenewed { error: None }.emit();
        }
    }
}

impl Reloaded {
    const fn refused(errors: Vec<String>) -> Self {
        Self::Refused { errors, needs_force: false }
    }

    fn outcome(&self) -> ReloadOutcome {
        match self {
            Self::Refused { .. } => ReloadOutcome::Refused,
            Self::Applied { changed, needs_restart, .. } if changed.is_empty() && needs_restart.is_empty() => {
                ReloadOutcome::Unchanged
            }
            Self::Applied { .. } => ReloadOutcome::Applied,
        }
    }
}

fn shutdown_of(config: &Config) -> (DrainPlan, Duration) {
    (drain_plan(config), Duration::from_millis(config.shutdown.delay_ms))
}

/// Reloads the configuration on each SIGHUP.
pub(super) async fn on_hangup(reloader: Arc<Reloader>, mut hangup: Signal) {
    while hangup.recv().await.is_some() {
        // A signal cannot carry `force`.
        reloader.reload(false).await;
    }
}
