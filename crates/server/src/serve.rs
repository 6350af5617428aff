//! The control thread: starts everything, waits for a signal, and ends everything in order.

mod certificates;
mod ports;

use std::{
    fmt, fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::{Semaphore, mpsc, watch},
    task::JoinHandle,
};

use crate::{
    backend::{AskBackends, BackendError, Backends, NoBackends},
    config::{ApiAccess, Config},
    demo::{bots, publisher, site::Site},
    http::{
        HttpParts, PathTaken,
        api::NodeIdentity,
        connection::{self, ConnectionLimits},
        internal,
    },
    net::{HEAD_FIELDS_MAX, HeadLimits},
    node::{DrainPlan, Drained, HandOver, NetOptions, Node, NodeStart, OriginCheck, StartError, VerifyTokens},
    telemetry::{api_counters::ControlCounters, events, log, lookout, watermark},
    tls::TlsError,
    token::Verifier,
};

use ports::Pages;

/// Connections on their way from the shards; one more is answered with 503 there.
const HANDED_OVER_MAX: usize = 256;

/// Time for answers that are being written when the node has stopped.
const LAST_ANSWERS_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs a node until a signal ends it. SIGTERM and SIGINT close all sessions with 3001 after their reliable lanes; when
/// all are gone, or the time for that is over, this returns. A second signal ends the process at once.
///
/// # Errors
/// The node could not be started, or its shards stopped by themselves.
pub fn run(config: &Config, tokens: Arc<Verifier>) -> Result<(), ServeError> {
    log::start(&config.log).map_err(|source| ServeError::Log { path: config.log.file.clone(), source })?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(ServeError::Runtime)?;
    let ended = runtime.block_on(serve(config, tokens));
    // Tasks that still wait for peers are dropped with their sockets.
    runtime.shutdown_background();
    ended
}

async fn serve(config: &Config, tokens: Arc<Verifier>) -> Result<(), ServeError> {
    let mut signals = Signals::new().map_err(ServeError::Runtime)?;
    let asked = Asked { tokens, backends: start_backends(config)? };
    let site = load_site(config)?;
    let certificates = certificates::read(config)?;
    let (hand_over, handed_over) = mpsc::channel(HANDED_OVER_MAX);
    let origins = origin_check(config);
    let uid = uuid(random()?);
    let engine = dunlin_engine::Options { node_id: uid.as_str().into(), ..(*config.engine).clone() };
    let node = Node::start(NodeStart {
        net: NetOptions { certificates: certificates.clone(), ..net_options(config) },
        engine: Arc::new(engine),
        rooms: config.rooms.clone(),
        tokens: Arc::clone(&asked.tokens) as Arc<dyn VerifyTokens>,
        backends: asked.backends(),
        origins: Arc::clone(&origins),
        hand_over,
    })
    .map_err(ServeError::Start)?;
    let pid_file = PidFile::write(config.pid_file.as_deref())?;
    let control = Control::start(config, &node, uid, asked, site, origins, handed_over).await?;
    tell_start(config, &node, &control.identity);
    if let Some(certificates) = certificates {
        let hangup = signal(SignalKind::hangup()).map_err(ServeError::Runtime)?;
        tokio::spawn(certificates::renew(certificates, hangup, Arc::clone(&control.counters)));
    }

    let signal = tokio::select! {
        signal = signals.next() => signal,
        () = control.node_lost => {
            events::NodeLost.emit();
            return Err(ServeError::NodeLost);
        }
    };
    let plan = drain_plan(config);
    events::ShutdownBegun { signal, timeout: plan.timeout }.emit();
    control.is_going.store(true, Ordering::Relaxed);
    let going = async {
        tokio::time::sleep(Duration::from_millis(config.shutdown.delay_ms)).await;
        let _ = control.stop.send(true);
        node.drain(plan).await
    };
    tokio::select! {
        drained = going => {
            let sessions_cut = match drained { Drained::Complete => 0, Drained::Late { sessions } => sessions };
            events::ShutdownEnded { sessions_cut }.emit();
        }
        signal = signals.next() => {
            events::ShutdownForced { signal }.emit();
            drop(pid_file);
            std::process::exit(FORCED_EXIT_CODE);
        }
    }
    let all = u32::try_from(control.connections_max).unwrap_or(u32::MAX);
    let all_gone = async {
        for connections in &control.connections {
            let _ = connections.acquire_many(all).await;
        }
    };
    let _ = tokio::time::timeout(LAST_ANSWERS_TIMEOUT, all_gone).await;
    Ok(())
}

fn drain_plan(config: &Config) -> DrainPlan {
    DrainPlan {
        timeout: Duration::from_millis(config.shutdown.timeout_ms),
        sessions_per_second: config.shutdown.sessions_per_second,
    }
}

/// What the process answers to a second signal.
const FORCED_EXIT_CODE: i32 = 1;

/// What runs on the control thread.
struct Control {
    identity: NodeIdentity,
    counters: Arc<ControlCounters>,
    /// For each port one permit for each HTTP connection that may still come.
    connections: Vec<Arc<Semaphore>>,
    connections_max: usize,
    /// Makes the health check fail.
    is_going: Arc<AtomicBool>,
    /// Tells HTTP connections to end after the answer that they are at.
    stop: watch::Sender<bool>,
    /// Ends when the shards do not answer any more.
    node_lost: std::pin::Pin<Box<dyn Future<Output = ()>>>,
}

impl Control {
    async fn start(
        config: &Config,
        node: &Node,
        uid: String,
        asked: Asked,
        site: Option<Site>,
        origins: OriginCheck,
        handed_over: mpsc::Receiver<HandOver>,
    ) -> Result<Self, ServeError> {
        let identity = identity(config, node, uid);
        let counters = Arc::new(ControlCounters::default());
        let ports = ports::divide(config, node, asked, Pages { site, origins }, &identity, &counters);
        let is_going = Arc::new(AtomicBool::new(false));
        let limits = connection_limits(config);
        let (stop, stopped) = watch::channel(false);
        let mut connections = Vec::new();
        let mut serve = |handed_over, of_port: HttpParts| {
            let of_port = HttpParts { is_going: Arc::clone(&is_going), ..of_port };
            let router = crate::http::router(of_port).map_err(ServeError::Path)?;
            let permits = Arc::new(Semaphore::new(limits.connections_max));
            connections.push(Arc::clone(&permits));
            let (counters, stopped) = (Arc::clone(&counters), stopped.clone());
            tokio::spawn(connection::serve_all(handed_over, router, limits, permits, counters, stopped));
            Ok(())
        };
        serve(handed_over, ports.public)?;
        if let Some((door, parts)) = config.http_server.internal.zip(ports.internal) {
            let address = SocketAddr::from((door.address.unwrap_or_else(every_address), door.port));
            let listening = internal::listen(address, stopped.clone()).await;
            let handed_over = listening.map_err(|source| StartError::Listen { address, source });
            serve(handed_over.map_err(ServeError::Start)?, parts)?;
            events::InternalPort { address }.emit();
        }
        if let Some(demo) = &config.demo {
            tokio::spawn(publisher::run(node.clone(), random()?));
            if let Some(path) = config.websocket.handler_prefix.clone().filter(|_| demo.bots > 0) {
                let place = bots::Place { address: node.local_addr(), path };
                bots::start(place, demo.bots, random()?).map_err(ServeError::Runtime)?;
            }
        }
        if config.net.memory_bytes_max > 0 {
            tokio::spawn(watermark::watch(node.clone(), config.net.memory_bytes_max));
        }
        let watched: JoinHandle<()> = tokio::spawn(lookout::watch(node.clone()));
        let node_lost = Box::pin(async move {
            let _ = watched.await;
        });
        Ok(Self { identity, counters, connections, connections_max: limits.connections_max, is_going, stop, node_lost })
    }
}

/// Who is asked about sessions.
struct Asked {
    tokens: Arc<Verifier>,
    /// `None` where the configuration names no backend.
    backends: Option<Arc<Backends>>,
}

impl Asked {
    fn backends(&self) -> Arc<dyn AskBackends> {
        match &self.backends {
            Some(backends) => Arc::clone(backends) as Arc<dyn AskBackends>,
            None => Arc::new(NoBackends::default()),
        }
    }
}

fn start_backends(config: &Config) -> Result<Option<Arc<Backends>>, ServeError> {
    if config.backends.is_empty() {
        return Ok(None);
    }
    Backends::start(&config.backends).map(|backends| Some(Arc::new(backends))).map_err(ServeError::Backends)
}

fn head_limits(config: &Config) -> HeadLimits {
    HeadLimits { head_bytes_max: config.net.head_bytes_max, request_line_bytes_max: config.net.request_line_bytes_max }
}

fn connection_limits(config: &Config) -> ConnectionLimits {
    ConnectionLimits {
        connections_max: config.net.http_connections_max,
        head_bytes_max: config.net.head_bytes_max,
        head_fields_max: HEAD_FIELDS_MAX,
        head_timeout: Duration::from_millis(config.net.head_timeout_ms),
        idle_timeout: Duration::from_millis(config.net.idle_timeout_ms),
    }
}

fn net_options(config: &Config) -> NetOptions {
    let address = config.http_server.address.unwrap_or_else(every_address);
    let narrow = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    NetOptions {
        reactor: config.reactor,
        listen: SocketAddr::from((address, config.http_server.port)),
        shard_count: u16::try_from(config.shards).unwrap_or(u16::MAX),
        certificates: None,
        places: ports::places(config),
        websocket_limits: config.websocket.limits,
        uni_websocket_limits: config.transports.uni_websocket_limits,
        mail_bytes_max: config.transports.mail_bytes_max,
        admission: config.admission.clone(),
        shard_imbalance_max: config.net.shard_imbalance_max,
        sessions_max: narrow(config.net.connections_max),
        backlog: config.net.accept_backlog,
        notsent_lowat_bytes: narrow(config.net.tcp_notsent_lowat_bytes),
        head_bytes_max: config.net.head_bytes_max,
        request_line_bytes_max: config.net.request_line_bytes_max,
        head_timeout_ms: config.net.head_timeout_ms,
        linger_timeout_ms: config.net.linger_timeout_ms,
        read_bytes_per_turn: config.net.read_bytes_per_turn,
        ring_messages: config.net.ring_messages_max,
        inbox_requests: config.net.inbox_requests_max,
    }
}

/// All addresses of the machine: those of IPv6 include IPv4's, but a kernel may come without it.
fn every_address() -> IpAddr {
    match UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)) {
        Ok(_) => Ipv6Addr::UNSPECIFIED.into(),
        Err(_) => Ipv4Addr::UNSPECIFIED.into(),
    }
}

/// The pages of a demonstration are the node's own, so it lets them in whatever address they were opened under.
fn origin_check(config: &Config) -> OriginCheck {
    let (allowed, own_pages) = (config.allowed_origins.clone(), config.demo.is_some());
    Arc::new(move |origin, host| {
        let from_here = |origin: &str| {
            let origin_host = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
            origin_host.is_some_and(|origin_host| !host.is_empty() && origin_host.eq_ignore_ascii_case(host))
        };
        allowed.allows(origin.map(str::as_bytes)) || (own_pages && origin.is_some_and(from_here))
    })
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

fn tell_start(config: &Config, node: &Node, identity: &NodeIdentity) {
    events::NodeStarted {
        address: node.local_addr(),
        version: identity.version,
        name: &identity.name,
        shards: config.shards,
        reactor: identity.reactor,
        reactor_reason: &node.reactor().reason,
    }
    .emit();
    let doors = [
        (matches!(config.http_api.access, ApiAccess::Everyone), "http_api.insecure", "the API answers everyone"),
        (config.engine.client.insecure, "client.insecure", "clients need neither tokens nor permissions"),
        (config.allowed_origins.allows_everything(), "client.allowed_origins", "pages of any site may connect"),
    ];
    for (_, key, meaning) in doors.into_iter().filter(|(open, ..)| *open) {
        events::OpenDoor { key, meaning }.emit();
    }
    if let Some(demo) = &config.demo {
        events::DemoStarted { dir: &demo.dir, address: node.local_addr() }.emit();
    }
}

/// The signals that ask a node to go.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

/// The file with the process id, removed at the end.
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

/// Why a node does not run.
#[derive(Debug)]
pub enum ServeError {
    /// The log file cannot be written.
    Log {
        /// The file, if it is one.
        path: Option<PathBuf>,
        /// Why not.
        source: io::Error,
    },
    /// The control thread could not be set up.
    Runtime(io::Error),
    /// The shards could not be started.
    Start(StartError),
    /// Backends cannot be asked.
    Backends(BackendError),
    /// There is nothing for TLS to show.
    Tls(TlsError),
    /// Two parts of the server want one path.
    Path(PathTaken),
    /// The pages of the demonstration cannot be read.
    Site {
        /// Where they should lie.
        dir: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The file for the process id cannot be written.
    PidFile {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The shards have stopped by themselves.
    NodeLost,
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Log { path, source } => {
                write!(f, "can't log to {}: {source}", path.as_deref().unwrap_or(Path::new("-")).display())
            }
            Self::Runtime(source) => write!(f, "can't set up the control thread: {source}"),
            Self::Start(error) => error.fmt(f),
            Self::Tls(error) => write!(f, "there is no TLS: {error}"),
            Self::Backends(error) => error.fmt(f),
            Self::Path(PathTaken(path)) => write!(f, "two parts of the server want the path {path}"),
            Self::Site { dir, source } => write!(f, "can't serve the pages in {}: {source}", dir.display()),
            Self::PidFile { path, source } => write!(f, "can't write the process id to {}: {source}", path.display()),
            Self::NodeLost => f.write_str("the shards have stopped"),
        }
    }
}

impl std::error::Error for ServeError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_says_that_it_is_random() {
        assert_eq!(uuid([0xff; 16]), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        assert_eq!(uuid([0; 16]), "00000000-0000-4000-8000-000000000000");
    }

    #[test]
    fn pages_of_a_demonstration_are_let_in_and_only_they() {
        let check = |demo: bool, origin: Option<&str>, host: &str| {
            let demo = demo.then(|| crate::config::DemoOptions { dir: "/nowhere".into(), bots: 0 });
            let config = Config { demo, ..Config::default() };
            origin_check(&config)(origin, host)
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
}
