//! HTTP connections: each is a task that ends when its peer is done, too slow, or silent for too long.

use std::{
    io::Write as _,
    net::{Shutdown, SocketAddr},
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{Router, extract::Request};
use hyper::{body::Incoming, server::conn::http1};
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use tokio::{
    net::TcpStream,
    sync::{Notify, Semaphore, mpsc, watch},
    time::Instant,
};

use super::{
    Peer, SessionDoor,
    replay::{Replay, Socket},
    stream::TakeOver,
};
use crate::{
    node::{Adoption, HandOver},
    telemetry::{
        api_counters::{ControlCounters, HttpRefusal},
        events,
    },
    tls::{TlsSession, TlsStream},
};

/// What a connection is measured against.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// HTTP connections of the node at a time.
    pub connections_max: usize,
    /// Bytes of a request's head.
    pub head_bytes_max: usize,
    /// Header fields of a request.
    pub head_fields_max: usize,
    /// Time for a begun head to come.
    pub head_timeout: Duration,
    /// Time between two requests, and for an answer to be taken.
    pub idle_timeout: Duration,
}

/// Serves connections as they are handed over, until there are no more senders. `connections` has a permit for each that
/// may be open.
pub async fn serve_all(
    mut handed_over: mpsc::Receiver<HandOver>,
    router: Router,
    limits: ConnectionLimits,
    connections: Arc<Semaphore>,
    counters: Arc<ControlCounters>,
    stop: watch::Receiver<bool>,
) {
    while let Some(hand_over) = handed_over.recv().await {
        let HandOver { stream, peer, head, tls } = hand_over;
        let Ok(()) = stream.set_nonblocking(true) else { continue };
        let Ok(permit) = Arc::clone(&connections).try_acquire_owned() else {
            refuse(&stream, peer, tls, &counters);
            continue;
        };
        let Ok(stream) = TcpStream::from_std(stream) else { continue };
        let stream = TlsStream::new(stream, tls);
        let connection = serve_one(stream, head, peer, router.clone(), limits, Arc::clone(&counters), stop.clone());
        tokio::spawn(async move {
            connection.await;
            drop(permit);
        });
    }
}

/// Answers a connection that is one too many. So short an answer fits into the socket of a connection that has carried
/// nothing yet, so nobody has to wait for it.
fn refuse(
    mut stream: &std::net::TcpStream,
    peer: SocketAddr,
    tls: Option<Box<TlsSession>>,
    counters: &ControlCounters,
) {
    counters.count_refusal(HttpRefusal::Connections);
    let detail = "the server has as many HTTP connections as it may";
    events::HttpRefused { reason: HttpRefusal::Connections, peer: Some(peer), detail: &detail }.emit();
    let answer =
        b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    match tls {
        Some(mut tls) => {
            tls.encrypt(answer);
            tls.say_goodbye();
            let _ = stream.write_all(tls.waiting());
        }
        None => drop(stream.write_all(answer)),
    }
    let _ = stream.shutdown(Shutdown::Write);
}

async fn serve_one(
    stream: TlsStream,
    head: Vec<u8>,
    peer: SocketAddr,
    router: Router,
    limits: ConnectionLimits,
    counters: Arc<ControlCounters>,
    mut stop: watch::Receiver<bool>,
) {
    counters.connection_opened();
    let activity = Arc::new(Activity::new());
    let (socket, take_over) = (Socket::new(stream), TakeOver::default());
    let io = TokioIo::new(Replay::new(socket.clone(), head, Arc::clone(&activity)));
    let router = TowerToHyperService::new(router);
    let service =
        Tracked { router, peer: Peer(Some(peer)), take_over: take_over.clone(), activity: Arc::clone(&activity) };
    let connection = http1::Builder::new()
        .max_headers(limits.head_fields_max)
        .max_buf_size(limits.head_bytes_max.max(HYPER_BUFFER_BYTES_MIN))
        // Watched over by `Activity`, which tells a begun head from a silent connection.
        .header_read_timeout(None)
        .serve_connection(io, service)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let overdue = tokio::select! {
        // What went wrong on the wire is the peer's; hyper has answered it where there is an answer.
        _ = connection.as_mut() => None,
        reason = activity.overdue(&limits) => Some(reason),
        (sessions, adoption) = take_over.asked() => {
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
    };
    if let Some(reason) = overdue {
        counters.count_refusal(reason);
        events::HttpRefused { reason, peer: Some(peer), detail: &"closed a connection that took too long" }.emit();
    }
    counters.connection_closed();
}

/// Gives a connection to a shard.
async fn give_away(sessions: &SessionDoor, socket: &Socket, adoption: Adoption) {
    let Some((stream, tls, _)) = socket.take().map(TlsStream::into_parts) else { return };
    if let Ok(stream) = stream.into_std() {
        // A node that is stopping closes it, which is all that can be done.
        let _ = sessions.node.adopt(stream, Adoption { tls, ..adoption }).await;
    }
}

/// The smallest read buffer that hyper allows.
const HYPER_BUFFER_BYTES_MIN: usize = 8_192;

async fn stopped(stop: &mut watch::Receiver<bool>) {
    // Without a sender nobody can say so any more.
    if stop.wait_for(|stop| *stop).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// The router, telling when it works.
struct Tracked {
    router: TowerToHyperService<Router>,
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
        let answer = self.router.call(request);
        Box::pin(async move {
            activity.enter(Phase::Answering);
            let answer = answer.await;
            activity.enter(Phase::Idle);
            answer
        })
    }
}

/// What a connection is doing, and since when.
pub struct Activity {
    now: Mutex<(Phase, Instant)>,
    changed: Notify,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Between two requests, or while an answer is being taken.
    Idle,
    /// A request has begun to come.
    Head,
    /// A request is being answered, which has deadlines of its own.
    Answering,
}

impl Activity {
    fn new() -> Self {
        Self { now: Mutex::new((Phase::Idle, Instant::now())), changed: Notify::new() }
    }

    /// Something was read.
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

    /// Waits until the connection has taken too long.
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
        connections_max: 1,
        head_bytes_max: 8_192,
        head_fields_max: 64,
        head_timeout: Duration::from_secs(5),
        idle_timeout: Duration::from_mins(1),
    };

    /// With a paused clock nothing here takes any time.
    fn paused(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime").block_on(test);
    }

    #[test]
    fn silence_is_bounded() {
        paused(async {
            let activity = Activity::new();
            let start = Instant::now();
            assert_eq!(activity.overdue(&LIMITS).await, HttpRefusal::Idle);
            assert_eq!(start.elapsed().as_secs(), 60);
        });
    }

    #[test]
    fn a_begun_head_has_less_time_however_often_bytes_come() {
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
    fn an_answer_takes_its_time_and_then_the_connection_may_rest() {
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
