//! HTTP connections: each is a task that ends when its peer closes it, is too slow, or is idle for too long.

use std::{
    io::Write as _,
    net::{Shutdown, SocketAddr},
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    extract::Request,
    http::{HeaderValue, StatusCode, header},
    response::IntoResponse as _,
};
use dunlin_net::{HeadLimits, RequestScanner, TlsSession, TrustedProxies, is_websocket_upgrade};
use hyper::{body::Incoming, server::conn::http1};
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use tokio::{
    net::TcpStream,
    sync::{Notify, mpsc, watch},
    time::Instant,
};

use super::{
    Peer, SessionAcceptor,
    connection_table::{ConnectionPlace, ConnectionTable},
    rewound_socket::{ReplaySocket, Socket},
    stream::TakeOver,
    tls_stream::TlsStream,
};
use crate::{
    node::{Adoption, HandOver, SourceNetwork},
    telemetry::{
        api_counters::{ControlCounters, HttpRefusal},
        events,
    },
};

/// Limits and timeouts of a connection.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// Maximum length of a request's head.
    pub head_bytes_max: usize,
    /// Maximum number of header fields of a request.
    pub head_fields_max: usize,
    /// Timeout for an incomplete head.
    pub head_timeout: Duration,
    /// Maximum time between two requests, and to write a response.
    pub idle_timeout: Duration,
}

impl ConnectionLimits {
    /// The limits of a head. The HTTP library has its own limits; the smaller one applies.
    fn head(&self) -> HeadLimits {
        HeadLimits {
            head_bytes_max: self.head_bytes_max.max(HYPER_BUFFER_BYTES_MIN),
            request_line_bytes_max: self.head_bytes_max.max(HYPER_BUFFER_BYTES_MIN),
        }
    }
}

/// The options of one port.
#[derive(Clone)]
pub struct Port {
    /// The router for requests.
    pub router: Router,
    /// The limits of each connection.
    pub limits: ConnectionLimits,
    /// All connections of the port.
    pub connections: Arc<ConnectionTable>,
    /// Paths that are also served on reserved connections, including paths below them.
    pub operators_paths: Arc<[String]>,
    /// Proxies that carry requests of many clients, so their own address does not identify a client.
    pub trusted_proxies: TrustedProxies,
    /// The counters.
    pub counters: Arc<ControlCounters>,
    /// Makes connections close after the current response.
    pub stop: watch::Receiver<bool>,
}

impl Port {
    /// Serves connections until all senders are dropped.
    pub async fn serve_all(self, mut handed_over: mpsc::Receiver<HandOver>) {
        while let Some(hand_over) = handed_over.recv().await {
            let HandOver { stream, peer, head, tls } = hand_over;
            let Ok(()) = stream.set_nonblocking(true) else { continue };
            let address = Some(peer.ip()).filter(|peer| !self.trusted_proxies.contain(*peer)).map(SourceNetwork::of);
            let place = match self.connections.admit(address) {
                Ok(place) => Arc::new(place),
                Err(reason) => {
                    refuse(&stream, peer, tls, reason, &self.counters);
                    continue;
                }
            };
            let Ok(stream) = TcpStream::from_std(stream) else { continue };
            tokio::spawn(serve_one(TlsStream::new(stream, tls), head, peer, place, self.clone()));
        }
    }

    fn is_for_operators(&self, path: &str) -> bool {
        self.operators_paths
            .iter()
            .any(|own| path.strip_prefix(own.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
    }
}

/// Responds to a connection above the limit. The response is short and fits into the buffer of a new socket, so the
/// write does not wait.
fn refuse(
    mut stream: &std::net::TcpStream,
    peer: SocketAddr,
    tls: Option<Box<TlsSession>>,
    reason: HttpRefusal,
    counters: &ControlCounters,
) {
    counters.count_refusal(reason);
    let (status, detail) = match reason {
        HttpRefusal::AddressConnections => (
            "429 Too Many Requests",
            "too many HTTP connections from this address (net.http_address_connections_limit)",
        ),
        _ => ("503 Service Unavailable", "too many HTTP connections (net.http_connections_limit)"),
    };
    events::HttpRefused { reason, peer: Some(peer), detail: &detail }.emit();
    let answer =
        format!("HTTP/1.1 {status}\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").into_bytes();
    let answer = answer.as_slice();
    match tls {
        Some(mut tls) => {
            tls.encrypt(answer);
            tls.send_close_notify();
            let _ = stream.write_all(tls.waiting());
        }
        None => drop(stream.write_all(answer)),
    }
    let _ = stream.shutdown(Shutdown::Write);
}

async fn serve_one(stream: TlsStream, head: Vec<u8>, peer: SocketAddr, place: Arc<ConnectionPlace>, port: Port) {
    let (limits, counters, mut stop) = (port.limits, Arc::clone(&port.counters), port.stop.clone());
    counters.connection_opened();
    let activity = Arc::new(Activity::new());
    let (socket, take_over) = (Socket::new(stream), TakeOver::default());
    let scanner = RequestScanner::new(limits.head());
    let io = TokioIo::new(ReplaySocket::new(socket.clone(), head, Arc::clone(&activity), scanner));
    let service = Tracked {
        router: TowerToHyperService::new(port.router.clone()),
        port,
        place: Arc::clone(&place),
        peer: Peer(Some(peer)),
        take_over: take_over.clone(),
        activity: Arc::clone(&activity),
    };
    let connection = http1::Builder::new()
        .max_headers(limits.head_fields_max)
        .max_buf_size(limits.head_bytes_max.max(HYPER_BUFFER_BYTES_MIN))
        // `Activity` measures the timeouts instead, because it distinguishes an incomplete head from an idle
        // connection.
        .header_read_timeout(None)
        .serve_connection(io, service)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let overdue = tokio::select! {
        // An error is caused by the peer; hyper has sent a response if one was possible.
        _ = connection.as_mut() => None,
        reason = activity.overdue(&limits) => Some(reason),
        (sessions, adoption) = take_over.requested() => {
            give_away(&sessions, &socket, adoption).await;
            None
        }
        () = stopped(&mut stop) => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                _ = connection.as_mut() => None,
                reason = activity.overdue(&limits) => Some(reason),
            }
        }
        // A request that has just arrived is still served.
        () = place.given_away() => {
            if activity.is_answering() {
                connection.as_mut().graceful_shutdown();
                tokio::select! {
                    _ = connection.as_mut() => {}
                    _ = activity.overdue(&limits) => {}
                }
            }
            Some(HttpRefusal::GaveWay)
        }
    };
    if activity.requests_are_stopped() {
        counters.count_refusal(HttpRefusal::Malformed);
        let detail = "the length of the request's body is ambiguous";
        events::HttpRefused { reason: HttpRefusal::Malformed, peer: Some(peer), detail: &detail }.emit();
    }
    if let Some(reason) = overdue {
        counters.count_refusal(reason);
        let detail = match reason {
            HttpRefusal::GaveWay => "closed the longest idle connection in favor of a new one",
            _ => "closed a connection because of a timeout",
        };
        events::HttpRefused { reason, peer: Some(peer), detail: &detail }.emit();
    }
    counters.connection_closed();
}

/// Passes a connection to a shard.
async fn give_away(sessions: &SessionAcceptor, socket: &Socket, adoption: Adoption) {
    let Some((stream, tls, _)) = socket.take().map(TlsStream::into_parts) else { return };
    if let Ok(stream) = stream.into_std() {
        // A node that is stopping closes the connection.
        let _ = sessions.node.adopt(stream, Adoption { tls, ..adoption }).await;
    }
}

/// The minimum size of a read buffer in hyper.
const HYPER_BUFFER_BYTES_MIN: usize = 8_192;

async fn stopped(stop: &mut watch::Receiver<bool>) {
    // Without a sender the signal can never arrive.
    if stop.wait_for(|stop| *stop).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Wraps the router and records when it is active.
struct Tracked {
    router: TowerToHyperService<Router>,
    port: Port,
    place: Arc<ConnectionPlace>,
    peer: Peer,
    take_over: TakeOver,
    activity: Arc<Activity>,
}

impl hyper::service::Service<Request<Incoming>> for Tracked {
    type Response = axum::response::Response;
    type Error = std::convert::Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        request.extensions_mut().insert(self.peer);
        request.extensions_mut().insert(self.take_over.clone());
        let activity = Arc::clone(&self.activity);
        let mut fields = request.headers().iter();
        let is_last = fields.any(|(name, value)| is_websocket_upgrade(name.as_str(), value.as_bytes()));
        if self.place.is_reserved && !self.port.is_for_operators(request.uri().path()) {
            self.port.counters.count_refusal(HttpRefusal::Connections);
            return Box::pin(async move {
                activity.enter(Phase::Idle);
                let fields = [(header::RETRY_AFTER, "1"), (header::CONNECTION, "close")];
                Ok((StatusCode::SERVICE_UNAVAILABLE, fields).into_response())
            });
        }
        let place = Arc::clone(&self.place);
        let answer = self.router.call(request);
        Box::pin(async move {
            activity.enter(Phase::Answering);
            place.work();
            let mut answer = answer.await;
            activity.enter(Phase::Idle);
            place.rest();
            if let Ok(answer) = &mut answer
                && (is_last || activity.closes_after_response())
                && answer.status() != StatusCode::SWITCHING_PROTOCOLS
            {
                answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            answer
        })
    }
}

/// The state of a connection, and when it began.
pub struct Activity {
    now: Mutex<(Phase, Instant)>,
    changed: Notify,
    /// The beginning of the next request is unknown.
    closes_after_response: AtomicBool,
    /// A request was refused before the HTTP library received it.
    requests_are_stopped: AtomicBool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Between two requests, or while a response is written.
    Idle,
    /// The head of a request is incomplete.
    Head,
    /// A request is in progress; it has its own timeouts.
    Answering,
}

impl Activity {
    fn new() -> Self {
        Self {
            now: Mutex::new((Phase::Idle, Instant::now())),
            changed: Notify::new(),
            closes_after_response: AtomicBool::new(false),
            requests_are_stopped: AtomicBool::new(false),
        }
    }

    fn is_answering(&self) -> bool {
        self.now.lock().unwrap_or_else(PoisonError::into_inner).0 == Phase::Answering
    }

    /// Forbids further requests on the connection.
    pub fn close_after_response(&self) {
        self.closes_after_response.store(true, Ordering::Relaxed);
    }

    fn closes_after_response(&self) -> bool {
        self.closes_after_response.load(Ordering::Relaxed)
    }

    /// Records that a request was refused because of the length of its body.
    pub fn stop_requests(&self) {
        self.requests_are_stopped.store(true, Ordering::Relaxed);
    }

    fn requests_are_stopped(&self) -> bool {
        self.requests_are_stopped.load(Ordering::Relaxed)
    }

    /// Records that bytes were read.
    pub fn bytes_came(&self) {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        if now.0 == Phase::Idle {
            *now = (Phase::Head, Instant::now());
            self.changed.notify_one();
        }
    }

    fn enter(&self, phase: Phase) {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) = (phase, Instant::now());
        self.changed.notify_one();
    }

    /// Waits until the connection exceeds a timeout.
    async fn overdue(&self, limits: &ConnectionLimits) -> HttpRefusal {
        loop {
            let (phase, since) = *self.now.lock().unwrap_or_else(PoisonError::into_inner);
            let (deadline, reason) = match phase {
                Phase::Idle => (since + limits.idle_timeout, HttpRefusal::Idle),
                Phase::Head => (since + limits.head_timeout, HttpRefusal::HeadTimeout),
                Phase::Answering => {
                    self.changed.notified().await;
                    continue;
                }
            };
            if tokio::time::timeout_at(deadline, self.changed.notified()).await.is_err() {
                return reason;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ConnectionLimits = ConnectionLimits {
        head_bytes_max: 8_192,
        head_fields_max: 64,
        head_timeout: Duration::from_secs(5),
        idle_timeout: Duration::from_mins(1),
    };

    /// Runs a test with a paused clock, so that timeouts pass at once.
    fn paused(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime").block_on(test);
    }

    #[test]
    fn silent_connections_time_out() {
        paused(async {
            let activity = Activity::new();
            let start = Instant::now();
            assert_eq!(activity.overdue(&LIMITS).await, HttpRefusal::Idle);
            assert_eq!(start.elapsed().as_secs(), 60);
        });
    }

    #[test]
    fn a_partial_head_times_out_despite_further_bytes() {
        paused(async {
            let activity = Arc::new(Activity::new());
            let start = Instant::now();
            let trickle = Arc::clone(&activity);
            tokio::spawn(async move {
                loop {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    trickle.bytes_came();
                }
            });
            assert_eq!(activity.overdue(&LIMITS).await, HttpRefusal::HeadTimeout);
            assert_eq!(start.elapsed().as_secs(), 6);
        });
    }

    #[test]
    fn the_idle_timeout_begins_after_the_response() {
        paused(async {
            let activity = Arc::new(Activity::new());
            let start = Instant::now();
            activity.enter(Phase::Answering);
            let service = Arc::clone(&activity);
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(100)).await;
                service.enter(Phase::Idle);
            });
            assert_eq!(activity.overdue(&LIMITS).await, HttpRefusal::Idle);
            assert_eq!(start.elapsed().as_secs(), 160);
        });
    }
}
