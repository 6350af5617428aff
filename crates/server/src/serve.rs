//! The control thread: starts all parts, waits for a signal, and shuts them down in order.

mod backups;
mod certificate_polling;
mod cluster;
mod error;
mod limits;
mod memory_limit;
mod open_files;
mod ports;
mod reload;
mod reopen_rooms;
mod session_services;
mod storage;

use std::{
    fs,
    io::{self, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use dunlin_config::{AdminAccess, ApiAccess, Config, Loaded};
use dunlin_engine::SessionTagKey;
use dunlin_net::{Certificates, OriginCheck};
use dunlin_profiles::{HEAP_INTERVAL_BYTES, sample_heap};
use dunlin_queues::declared::HANDED_OVER;
use dunlin_token::{Verifier, VerifyTokens};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::{mpsc, watch},
    task::JoinHandle,
};

use crate::{
    access_sync,
    demo::site::{Site, is_this_machine},
    http::{HttpParts, api::NodeIdentity, connection::Port, connection_table::ConnectionTable, internal},
    matchmaking::{self, MatchHandle, MatchTask},
    node::{DrainPlan, Drained, HandOver, Node, NodeNetOptions, NodeStart, StartError, StorageEnd},
    peers::{AskedParts, RecordingNode},
    recordings::OwnRecordings,
    rooms::SAVE_TIMEOUT,
    telemetry::{api_counters::ControlCounters, client_summary, config_events, events, log},
    trim,
    webhooks::Webhooks,
};

use limits::{connection_limits, table_limits};
use open_files::OpenFiles;
use ports::{Pages, Ports, Served};
use reload::{LiveOrigins, LiveParts};
use session_services::{Asked, start_reporter};

pub use backups::{BackupMaker, BackupOutcome, MadeBackup};
pub(crate) use cluster::cluster_options;
pub use error::ServeError;
pub use reload::{Reloaded, Reloader, Reread};

/// Places among the connections on their way from the shards that are reserved for health, metrics and the API.
const HANDED_OVER_RESERVED: usize = 64;

/// Time to write the last log lines.
const LAST_LINES_TIMEOUT: Duration = Duration::from_secs(1);

/// Time to write the last responses after the node has stopped.
const LAST_ANSWERS_TIMEOUT: Duration = Duration::from_secs(1);

/// Time to send the last spans to the collector.
const LAST_SPANS_TIMEOUT: Duration = Duration::from_secs(1);

/// Minimum time to send the last events to the backend.
const LAST_WEBHOOKS_TIMEOUT: Duration = Duration::from_secs(1);

/// How long the process waits until its database is closed. Nothing is written meanwhile.
const STORAGE_END_TIMEOUT: Duration = Duration::from_secs(2);

/// The part of `shutdown.timeout` that webhooks have to themselves, one in so many. Sessions that do not take their last
/// frames would leave them nothing, and the end of these sessions is told last.
const WEBHOOKS_SHARE: u32 = 4;

/// What a server of `dunlin dev` prints when it accepts connections. Its log may be elsewhere.
pub(crate) const DEVELOPMENT_LISTENING: &str = "dunlin dev: listening";

/// Maximum time that a server of `dunlin dev` drains.
const DEVELOPMENT_DRAIN_MAX: Duration = Duration::from_secs(5);

/// Time after which a server of `dunlin dev` has ended and saved its rooms.
pub(crate) const DEVELOPMENT_END_MAX: Duration = DEVELOPMENT_DRAIN_MAX
    .saturating_add(SAVE_TIMEOUT)
    .saturating_add(LAST_ANSWERS_TIMEOUT)
    .saturating_add(LAST_WEBHOOKS_TIMEOUT)
    .saturating_add(STORAGE_END_TIMEOUT)
    .saturating_add(LAST_LINES_TIMEOUT);

/// What a node is for.
#[derive(Debug)]
pub enum Purpose {
    /// To serve clients.
    Production,
    /// `dunlin dev`: see [`dunlin_storage::StorageOptions::is_development`].
    Development,
    /// `dunlin play`: to be tried on this machine.
    Playground {
        /// The pages at `/`. They may connect under each name of this machine.
        site: Site,
        /// Is called with the address when the node listens.
        announce: fn(SocketAddr),
    },
}

/// Which pages of the node itself may connect, whatever `client.allowed_origins` allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OwnPages {
    None,
    /// Under whatever name the node is reached.
    AnyHost,
    /// Under a name of this machine. Another site may give its own name this machine's address.
    ThisMachine,
}

impl OwnPages {
    fn of(config: &Config, purpose: &Purpose) -> Self {
        match purpose {
            Purpose::Playground { .. } => Self::ThisMachine,
            _ if config.demo.is_some() => Self::AnyHost,
            _ => Self::None,
        }
    }

    fn may_connect(self, host: &str) -> bool {
        match self {
            Self::None => false,
            Self::AnyHost => !host.is_empty(),
            Self::ThisMachine => is_this_machine(host),
        }
    }
}

impl Purpose {
    /// The shutdown with this drain plan and this delay before it.
    fn shutdown(&self, (plan, delay): (DrainPlan, Duration)) -> (DrainPlan, Duration) {
        match self {
            Self::Production | Self::Playground { .. } => (plan, delay),
            // No balancer has to see it, and the next server waits for it.
            Self::Development => {
                (DrainPlan { timeout: plan.timeout.min(DEVELOPMENT_DRAIN_MAX), ..plan }, Duration::ZERO)
            }
        }
    }
}

/// Runs a node until a signal ends it. SIGTERM and SIGINT close all sessions with 3001 after their reliable lanes.
/// Returns when all are closed or the timeout has passed. A second signal ends the process at once.
///
/// # Errors
/// The node could not be started, or its shards stopped on their own.
pub fn run(loaded: Loaded, tokens: Arc<Verifier>, reread: Reread, purpose: Purpose) -> Result<(), ServeError> {
    let config = &loaded.config;
    log::start(&config.log).map_err(|source| ServeError::Log { path: config.log.file.clone(), source })?;
    config_events::ServiceVariablesIgnored { names: &loaded.service_variables }.emit();
    if (config.debug_prefix.is_some() && config.http_server.internal.is_some()) || config.pyroscope.is_some() {
        // The endpoint says so if the program has another allocator.
        let _ = sample_heap(HEAP_INTERVAL_BYTES);
    }
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.thread_name("blocking").enable_all().build().map_err(ServeError::Runtime)?;
    let mut storage_end = None;
    let ended = runtime.block_on(serve(loaded, tokens, (reread, purpose), &mut storage_end));
    // Drops tasks that wait for peers, with their sockets.
    runtime.shutdown_background();
    // The threads of shards and rooms have told that they end, and may still hold the storage. A process that ends while one of them
    // closes the database may crash: the database's own globals are destroyed meanwhile.
    if let Some(end) = storage_end
        && !end.wait(STORAGE_END_TIMEOUT)
    {
        events::StorageStillOpen.emit();
    }
    log::flush(LAST_LINES_TIMEOUT);
    ended
}

async fn serve(
    mut loaded: Loaded,
    tokens: Arc<Verifier>,
    (reread, purpose): (Reread, Purpose),
    storage_end: &mut Option<StorageEnd>,
) -> Result<(), ServeError> {
    let mut signals = Signals::new().map_err(ServeError::Runtime)?;
    // Must come early: without a handler, the signal would end the process.
    let hangup = signal(SignalKind::hangup()).map_err(ServeError::Runtime)?;
    let uid = name_node(&mut loaded.config)?;
    let asked = Asked::start(&loaded.config, tokens, &uid)?;
    let (webhooks, profiling, otlp) = (asked.webhooks.clone(), asked.profiling.clone(), asked.otlp.clone());
    let own_pages = OwnPages::of(&loaded.config, &purpose);
    let (site, announce) = pages(&loaded.config, &purpose)?;
    let certificates = certificate_polling::read(&loaded.config)?;
    let open_files = OpenFiles::of(&loaded.config);
    let logs = cluster::open_logs(&mut loaded.config, &mut signals, open_files, &purpose, storage_end).await?;
    let config = &loaded.config;
    let (hand_over, handed_over) = HANDED_OVER.tokio_channel();
    let live_origins = LiveOrigins::new(config.allowed_origins.clone());
    let origins = origin_check(own_pages, live_origins.clone());
    let (matchmaking, match_handle) = matchmaking(config)?;
    let node = Node::start(NodeStart {
        net: NodeNetOptions { certificates: certificates.clone(), ..net_options(config, open_files) },
        engine: Arc::clone(&config.engine),
        rooms: config.rooms.clone(),
        tokens: Arc::clone(&asked.tokens) as Arc<dyn VerifyTokens>,
        backends: asked.answering(match_handle.clone()),
        webhooks: webhooks.clone(),
        tracer: otlp.as_ref().and_then(|otlp| otlp.tracer().cloned()),
        logs: logs.clone(),
        origins: Arc::clone(&origins),
        hand_over,
    })
    .map_err(ServeError::Start)?;
    let pid_file = PidFile::write(config.pid_file.as_deref())?;
    let counters = Arc::new(ControlCounters::default());
    counters.set_memory_bytes_max(config.net.memory_bytes_max);
    let identity = identity(config, &node, uid);
    let tokens = Arc::clone(&asked.tokens);
    let reporter = webhooks.as_ref().and_then(|webhooks| start_reporter(&node, &identity, webhooks));
    let surveys = ports::surveys(config, &node);
    let served = Served { config, node: &node, identity: &identity, counters: &counters, surveys: &surveys };
    let recordings = join_cluster(served, webhooks.clone(), match_handle.clone());
    let of_pages = Pages { site, origins, matchmaking: match_handle.clone(), cookie_key: random()?, recordings };
    let ports = ports::divide(served, asked, of_pages);
    let live_parts = LiveParts {
        node: node.clone(),
        tokens,
        origins: live_origins,
        certificates: certificates.clone(),
        api: ports.api(),
        metrics: ports.metrics(),
        console: ports.console_access(),
        counters: Arc::clone(&counters),
    };
    let reloader = Arc::new(Reloader::new(loaded.clone(), reread, live_parts));
    let backups = backups::start(config, logs.storage, &counters);
    let ports = ports.with_operations(&reloader, &counters, backups.as_ref()).with_console(served, &reloader);
    let mut control = Control::start(served, ports, handed_over).await?;
    start_tasks(config, &node, &control.counters, (matchmaking, certificates));
    log_start(config, &node, &control.identity, open_files, own_pages);
    announce(node.local_addr());
    tokio::spawn(reload::on_hangup(Arc::clone(&reloader), hangup));

    let signal = control.wait_for_signal(&mut signals).await?;
    let (plan, delay) = purpose.shutdown(reloader.shutdown());
    let begun = Instant::now();
    let drain = drain_before_webhooks(plan, webhooks.is_some());
    let ending = control.end(signal, &mut signals, (drain, delay), &node, pid_file);
    tokio::join!(ending, backups::stop(backups, plan.timeout));
    let left = (plan.timeout + delay).saturating_sub(begun.elapsed()).max(LAST_WEBHOOKS_TIMEOUT);
    session_services::end_webhooks(webhooks.as_ref(), reporter, left).await;
    session_services::end_pushes(profiling, otlp.as_deref(), LAST_SPANS_TIMEOUT).await;
    cluster::leave(&node, match_handle).await;
    Ok(())
}

/// The task of matchmaking, which has not started, and its handle; `None` without matchmaking.
fn matchmaking(config: &Config) -> Result<(Option<MatchTask>, Option<MatchHandle>), ServeError> {
    let boot = u32::from_ne_bytes(random()?);
    let surveys_limit = config.broker.as_ref().map_or(0, |broker| broker.limits.peers.surveys_max);
    let task = matchmaking::prepare(&config.matchmaking, &config.lobbies, boot, &config.node.region, surveys_limit);
    let handle = task.as_ref().map(MatchTask::handle);
    Ok((task, handle))
}

/// Announces the node to its cluster, if it has one. Returns its recordings, which other nodes ask for.
fn join_cluster(
    served: Served<'_>,
    webhooks: Option<Arc<Webhooks>>,
    matchmaking: Option<MatchHandle>,
) -> Arc<OwnRecordings> {
    let Served { node, identity, .. } = served;
    let own = RecordingNode { uid: identity.uid.as_str().into(), name: identity.name.as_str().into() };
    let recordings = Arc::new(OwnRecordings::new(own, node.record_directories()));
    cluster::join(served, AskedParts { webhooks, matchmaking, recordings: Arc::clone(&recordings) });
    recordings
}

/// Gives the node the id of this run. Returns it.
fn name_node(config: &mut Config) -> Result<String, ServeError> {
    let uid = uuid(random()?);
    let session_tag_key = config.broker.is_some().then(|| random().map(SessionTagKey::new)).transpose()?;
    let engine = Arc::make_mut(&mut config.engine);
    (engine.node_id, engine.session_tag_key) = (uid.as_str().into(), session_tag_key);
    Ok(uid)
}

/// Opens the stored rooms, and starts what runs beside the node.
fn start_tasks(
    config: &Config,
    node: &Node,
    counters: &Arc<ControlCounters>,
    (matchmaking, certificates): (Option<MatchTask>, Option<Arc<Certificates>>),
) {
    certificate_polling::start(certificates, counters);
    tokio::spawn(access_sync::keep(node.clone()));
    tokio::spawn(memory_limit::watch(node.clone(), Arc::clone(counters)));
    tokio::spawn(reopen_rooms::reopen_rooms(node.clone(), reopen_rooms::KeptNamespaces::new(config)));
    if let Some(matchmaking) = matchmaking {
        tokio::spawn(matchmaking.run(node.clone(), config.engine.node_id.as_ref().into()));
    }
}

/// The drain, which leaves webhooks their share of the timeout.
fn drain_before_webhooks(plan: DrainPlan, has_webhooks: bool) -> DrainPlan {
    let share = if has_webhooks { plan.timeout / WEBHOOKS_SHARE } else { Duration::ZERO };
    DrainPlan { timeout: plan.timeout.saturating_sub(share), ..plan }
}

fn drain_plan(config: &Config) -> DrainPlan {
    DrainPlan {
        timeout: Duration::from_millis(config.shutdown.timeout_ms),
        sessions_per_second: config.shutdown.sessions_per_second,
    }
}

/// The exit code after a second signal.
const FORCED_EXIT_CODE: i32 = 1;

/// The state of the control thread.
struct Control {
    identity: NodeIdentity,
    counters: Arc<ControlCounters>,
    /// The HTTP connections of each port.
    connections: Vec<Arc<ConnectionTable>>,
    /// Makes the health check return 503.
    is_going: Arc<AtomicBool>,
    /// Makes HTTP connections close after the current response.
    stop: watch::Sender<bool>,
    /// Completes when the shards have stopped.
    node_lost: std::pin::Pin<Box<dyn Future<Output = ()>>>,
}

impl Control {
    /// The signal that ends the node.
    async fn wait_for_signal(&mut self, signals: &mut Signals) -> Result<&'static str, ServeError> {
        tokio::select! {
            signal = signals.next() => Ok(signal),
            () = &mut self.node_lost => {
                events::NodeLost.emit();
                Err(ServeError::NodeLost)
            }
        }
    }

    async fn start(
        served: Served<'_>,
        ports: Ports,
        handed_over: mpsc::Receiver<HandOver>,
    ) -> Result<Self, ServeError> {
        let Served { config, node, identity, counters, .. } = served;
        if let Some(metrics) = ports.metrics() {
            tokio::spawn(metrics.push());
        }
        let is_going = Arc::new(AtomicBool::new(false));
        let limits = connection_limits(config);
        let (stop, stopped) = watch::channel(false);
        let mut connections = Vec::new();
        let mut serve = |handed_over, of_port: HttpParts| {
            let (storage, cluster) = (node.storage().cloned(), node.cluster().cloned());
            let of_port = HttpParts { is_going: Arc::clone(&is_going), storage, cluster, ..of_port };
            let port = Port {
                operators_paths: of_port.operators_paths(),
                router: crate::http::router(of_port).map_err(ServeError::Path)?,
                limits,
                connections: ConnectionTable::new(table_limits(config)),
                trusted_proxies: config.admission.trusted_proxies.clone(),
                counters: Arc::clone(counters),
                stop: stopped.clone(),
            };
            connections.push(Arc::clone(&port.connections));
            tokio::spawn(port.serve_all(handed_over));
            Ok(())
        };
        serve(handed_over, ports.public)?;
        if let Some((acceptor, parts)) = config.http_server.internal.zip(ports.internal) {
            let address = SocketAddr::from((acceptor.address.unwrap_or_else(every_address), acceptor.port));
            let listening = internal::listen(address, stopped.clone()).await;
            let handed_over =
                listening.map_err(|source| StartError::listen(address, "http_server.internal_port", source));
            serve(handed_over.map_err(ServeError::Start)?, parts)?;
            events::InternalPort { address }.emit();
        }
        if let Err(source) = trim::start() {
            events::NoTrim { source: &source }.emit();
        }
        let watched: JoinHandle<()> = tokio::spawn(client_summary::watch(node.clone()));
        let node_lost = Box::pin(async move {
            let _ = watched.await;
        });
        let (identity, counters) = (identity.clone(), Arc::clone(counters));
        Ok(Self { identity, counters, connections, is_going, stop, node_lost })
    }

    /// Shuts all parts down in order.
    async fn end(
        self,
        signal: &'static str,
        signals: &mut Signals,
        (plan, delay): (DrainPlan, Duration),
        node: &Node,
        pid_file: PidFile,
    ) {
        let begun = Instant::now();
        events::ShutdownBegun { signal, timeout: plan.timeout }.emit();
        self.is_going.store(true, Ordering::Relaxed);
        let going = async {
            tokio::time::sleep(delay).await;
            let _ = self.stop.send(true);
            node.drain(plan).await
        };
        tokio::select! {
            drained = going => {
                let sessions_cut = match drained { Drained::Complete => 0, Drained::Late { sessions } => sessions };
                events::ShutdownEnded { sessions_cut }.emit();
            }
            signal = signals.next_after(begun) => {
                events::ShutdownForced { signal }.emit();
                drop(pid_file);
                log::flush(LAST_LINES_TIMEOUT);
                std::process::exit(FORCED_EXIT_CODE);
            }
        }
        let all_gone = async {
            for connections in &self.connections {
                connections.empty().await;
            }
        };
        let _ = tokio::time::timeout(LAST_ANSWERS_TIMEOUT, all_gone).await;
    }
}

fn net_options(config: &Config, open_files: OpenFiles) -> NodeNetOptions {
    let address = config.http_server.address.unwrap_or_else(every_address);
    let narrow = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    NodeNetOptions {
        reactor: config.reactor,
        listen: SocketAddr::from((address, config.http_server.port)),
        shard_count: u16::try_from(config.shards).unwrap_or(u16::MAX),
        certificates: None,
        places: ports::places(config),
        websocket_limits: config.websocket.limits,
        uni_websocket_limits: config.transports.uni_websocket_limits,
        mail_bytes_max: config.transports.mail_bytes_max,
        operators_paths: ports::operators_paths(config),
        handed_over_reserved: HANDED_OVER_RESERVED,
        admission: config.admission.clone(),
        shard_imbalance_max: config.net.shard_imbalance_max,
        shard_connections_max: config.net.shard_connections_max,
        sessions_max: narrow(config.net.connections_max),
        descriptors_below: open_files.connections_below(),
        backlog: config.net.accept_backlog,
        notsent_lowat_bytes: narrow(config.net.tcp_notsent_lowat_bytes),
        head_bytes_max: config.net.head_bytes_max,
        request_line_bytes_max: config.net.request_line_bytes_max,
        head_timeout_ms: config.net.head_timeout_ms,
        linger_timeout_ms: config.net.linger_timeout_ms,
        pending_address_connections_max: config.net.pending_address_connections_max,
        read_bytes_per_turn: config.net.read_bytes_per_turn,
        ring_messages: config.net.ring_messages_max,
        inbox_requests: config.net.inbox_requests_max,
    }
}

/// The wildcard address: IPv6, which includes IPv4, or IPv4 if the kernel has no IPv6.
fn every_address() -> IpAddr {
    match UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)) {
        Ok(_) => Ipv6Addr::UNSPECIFIED.into(),
        Err(_) => Ipv4Addr::UNSPECIFIED.into(),
    }
}

/// Pages of the node may connect to it.
fn origin_check(own_pages: OwnPages, allowed: LiveOrigins) -> OriginCheck {
    Arc::new(move |origin, host| {
        let from_here = |origin: &str| {
            let origin_host = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
            origin_host.is_some_and(|origin_host| origin_host.eq_ignore_ascii_case(host))
        };
        let is_own = own_pages.may_connect(host) && origin.is_some_and(from_here);
        let is_allowed = is_own || allowed.now().allows(origin.map(str::as_bytes));
        if !is_allowed {
            config_events::OriginRefused { origin: origin.unwrap_or_default() }.emit();
        }
        is_allowed
    })
}

/// What is called with the address when the node listens.
type Announce = fn(SocketAddr);

/// The pages at `/`, and what is called with their address.
fn pages(config: &Config, purpose: &Purpose) -> Result<(Option<Site>, Announce), ServeError> {
    match purpose {
        Purpose::Playground { site, announce } => Ok((Some(site.clone()), *announce)),
        Purpose::Production => Ok((load_site(config)?, |_| ())),
        // An error means that `dunlin dev` has ended; then a signal follows.
        Purpose::Development => Ok((load_site(config)?, |_| drop(writeln!(io::stdout(), "{DEVELOPMENT_LISTENING}")))),
    }
}

fn load_site(config: &Config) -> Result<Option<Site>, ServeError> {
    let Some(demo) = &config.demo else { return Ok(None) };
    let failed = |source| ServeError::Site { dir: demo.dir.clone(), source };
    let site = Site::load(&demo.dir).map_err(failed)?;
    if !site.has_index() {
        return Err(failed(io::Error::other("there is no index.html in it")));
    }
    Ok(Some(site))
}

fn identity(config: &Config, node: &Node, uid: String) -> NodeIdentity {
    let name = if config.node.name.is_empty() {
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        format!("{}_{}", host.trim(), node.local_addr().port())
    } else {
        config.node.name.clone()
    };
    let version = env!("CARGO_PKG_VERSION");
    let reactor = node.reactor().kind.name();
    NodeIdentity { uid, name, version, reactor, started: Instant::now() }
}

/// A random UUID (RFC 9562, section 5.4).
fn uuid(random: [u8; 16]) -> String {
    let bits = u128::from_be_bytes(random) & !(0xf << 76) & !(0x3 << 62) | (0x4 << 76) | (0x2 << 62);
    let digits = format!("{bits:032x}");
    let part = |from: usize, to: usize| digits.get(from..to).unwrap_or_default();
    [part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)].join("-")
}

fn random<const N: usize>() -> Result<[u8; N], ServeError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|_| ServeError::Start(StartError::Random))?;
    Ok(bytes)
}

fn log_start(config: &Config, node: &Node, identity: &NodeIdentity, open_files: OpenFiles, own_pages: OwnPages) {
    events::ConfigurationRead { file: config.file.as_deref() }.emit();
    events::NodeStarted {
        address: node.local_addr(),
        version: identity.version,
        name: &identity.name,
        shards: config.shards,
        reactor: identity.reactor,
        reactor_reason: &node.reactor().reason,
        storage: node.storage().map(|opened| storage::recovered(opened)).as_deref(),
    }
    .emit();
    let doors = [
        (
            matches!(config.http_api.access, ApiAccess::Everyone),
            "http_api.insecure",
            "anyone who can reach the port can use the API",
        ),
        (
            config.admin.as_ref().is_some_and(|admin| matches!(admin.access, AdminAccess::Everyone)),
            "admin.insecure",
            "anyone who can reach the port can use the console",
        ),
        (config.engine.client.insecure, "client.insecure", "clients need neither tokens nor permissions"),
        (config.allowed_origins.allows_everything(), "client.allowed_origins", "pages of any site can connect"),
    ];
    for (_, key, meaning) in doors.into_iter().filter(|(open, ..)| *open) {
        events::InsecureSetting { key, meaning }.emit();
    }
    if own_pages == OwnPages::None && config.admits_no_page() {
        config_events::NoPageAdmitted.emit();
    }
    open_files.warn(config, node);
    if let Some(demo) = &config.demo {
        events::DemoStarted { dir: &demo.dir, address: node.local_addr() }.emit();
    }
}

/// A terminal and a supervisor may both send a signal at the same time.
const SIGNAL_ECHO: Duration = Duration::from_millis(100);

/// The signals that stop a process.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }

    /// The next signal that is not a duplicate of the first one, which arrived at `first`.
    pub(crate) async fn next_after(&mut self, first: Instant) -> &'static str {
        loop {
            let signal = self.next().await;
            if first.elapsed() >= SIGNAL_ECHO {
                return signal;
            }
        }
    }
}

/// The file with the process id, removed on drop.
struct PidFile(Option<PathBuf>);

impl PidFile {
    fn write(path: Option<&Path>) -> Result<Self, ServeError> {
        if let Some(path) = path {
            let written = fs::write(path, format!("{}\n", std::process::id()));
            written.map_err(|source| ServeError::PidFile { path: path.to_owned(), source })?;
        }
        Ok(Self(path.map(Path::to_owned)))
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_in_development_ends_without_a_delay() {
        let timeout = Duration::from_secs(30);
        let configured = (DrainPlan { timeout, sessions_per_second: 7 }, Duration::from_mins(1));
        let (plan, delay) = Purpose::Development.shutdown(configured);
        assert_eq!((plan.timeout, plan.sessions_per_second, delay), (DEVELOPMENT_DRAIN_MAX, 7, Duration::ZERO));
        let (plan, delay) = Purpose::Production.shutdown(configured);
        assert_eq!((plan.timeout, delay), (timeout, Duration::from_mins(1)));
    }

    #[test]
    fn webhooks_have_their_share_of_the_shutdown() {
        let plan = DrainPlan { timeout: Duration::from_secs(30), sessions_per_second: 7 };
        let timeouts = [true, false].map(|has_webhooks| drain_before_webhooks(plan, has_webhooks).timeout);
        assert_eq!(timeouts, [Duration::from_millis(22_500), Duration::from_secs(30)]);
        assert_eq!(drain_before_webhooks(plan, true).sessions_per_second, 7);
    }

    #[test]
    fn a_uuid_has_the_version_of_random_ones() {
        assert_eq!(uuid([0xff; 16]), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        assert_eq!(uuid([0; 16]), "00000000-0000-4000-8000-000000000000");
    }

    #[test]
    fn the_demo_accepts_its_own_origin_alone() {
        let check = |demo: bool, origin: Option<&str>, host: &str| {
            let demo = demo.then(|| dunlin_config::DemoOptions { dir: "/nowhere".into(), has_guests: false });
            let config = Config { demo, ..Config::default() };
            let own_pages = OwnPages::of(&config, &Purpose::Production);
            origin_check(own_pages, LiveOrigins::new(config.allowed_origins.clone()))(origin, host)
        };
        assert!(check(false, None, "a:1"));
        assert!(!check(false, Some("http://a:1"), "a:1"));
        assert!(check(true, Some("http://a:1"), "a:1"));
        assert!(check(true, Some("https://A.example"), "a.example"));
        for origin in
            ["http://a:2", "http://a", "http://a:1/", "ftp://a:1", "http://a:1.evil.example", "null", "http://"]
        {
            assert!(!check(true, Some(origin), "a:1"), "{origin}");
        }
        assert!(!check(true, Some("http://"), ""));
    }

    #[test]
    fn the_playground_accepts_its_own_origin_under_names_of_this_machine() {
        let config = Config::default();
        let purpose = Purpose::Playground { site: Site::default(), announce: |_| () };
        let check = origin_check(OwnPages::of(&config, &purpose), LiveOrigins::new(config.allowed_origins.clone()));
        for (origin, host, expected) in [
            ("http://localhost:1", "localhost:1", true),
            ("http://127.0.0.1:1", "127.0.0.1:1", true),
            ("http://[::1]:1", "[::1]:1", true),
            ("http://localhost:2", "localhost:1", false),
            ("http://evil.example:1", "evil.example:1", false),
            ("http://evil.example:1", "localhost:1", false),
        ] {
            assert_eq!(check(Some(origin), host), expected, "{origin} at {host}");
        }
        assert!(check(None, "localhost:1"), "no page");
    }
}
