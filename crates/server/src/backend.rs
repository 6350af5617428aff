//! HTTP requests about sessions to the application's backend: Centrifugo's proxies.
//!
//! A shard passes a request to a separate thread and continues, so neither a shard nor the server API waits for a slow
//! backend. Each proxy has limits: the number of concurrent requests, the time and the size of a response. After a
//! number of consecutive failures the circuit breaker stops requests for a while.

// This module parses bytes from backends.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::string_slice))]

mod answer;
mod breaker;
mod caller;
mod counters;
mod endpoint;
mod push_target;
mod request;
mod trace;

use std::{
    fmt,
    hash::{BuildHasher as _, Hash, RandomState},
    io,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Instant,
};

use dunlin_config::ProxyOptions;
use dunlin_engine::backend::{ProxyError, ProxyRequest, ProxyResult};
use dunlin_net::{HeaderPicker, PickedHeaders};
use dunlin_queues::{AdmittedReceiver, AdmittedSender, declared::BACKEND_CALLS};
use tokio::sync::mpsc;

use crate::{
    node::SourceNetwork,
    otlp::{OpenSpan, TRACE_HEADERS, Tracer},
};

use breaker::{Breaker, ProxyCaller};
use caller::{Caller, RequestFields};

pub use answer::read as read_answer;
pub use counters::{BackendCounts, CallOutcome, CodeCount, ProxyCounts, ProxyKind};
pub(crate) use endpoint::Endpoint;
pub(crate) use push_target::{NoResponse, PushTarget};
#[cfg(test)]
pub(crate) use tests::service;

/// A request to a backend, and the receiver of its result.
pub struct BackendCall {
    /// The request and its proxy.
    pub request: ProxyRequest,
    /// The header fields of the session's own request that proxies forward.
    pub headers: Option<PickedHeaders>,
    /// The client's address, as far as trusted proxies report it; `None` if it is unknown.
    pub address: Option<IpAddr>,
    /// Called once, on any thread. It does not block.
    pub answer: Box<dyn FnOnce(ProxyResult) + Send>,
}

/// Sends requests to backends. Shards call it on their own threads, so it must not block.
pub trait ProxyClient: Send + Sync + 'static {
    /// Sends the request and passes the result to its callback.
    fn ask(&self, call: BackendCall);

    /// Selects the header fields of a session's request that are kept for backend requests.
    fn wanted_headers(&self) -> &HeaderPicker;
}

/// The implementation for a node without backends.
#[derive(Debug, Default)]
pub struct NoBackends(HeaderPicker);

impl NoBackends {
    /// Without backends, only traces need header fields of sessions.
    pub fn new(is_traced: bool) -> Self {
        Self(HeaderPicker::new(TRACE_HEADERS.into_iter().filter(|_| is_traced).map(Into::into)))
    }
}

impl ProxyClient for NoBackends {
    fn ask(&self, call: BackendCall) {
        (call.answer)(Err(ProxyError::Failed));
    }

    fn wanted_headers(&self) -> &HeaderPicker {
        &self.0
    }
}

/// The backends of a node.
pub struct Backends {
    proxies: Vec<Arc<Proxy>>,
    calls: AdmittedSender<Admitted>,
    wanted: HeaderPicker,
    started: Instant,
    /// Hashes sessions, users and addresses to numbers.
    hasher: RandomState,
}

/// One proxy: its options and its state.
struct Proxy {
    options: ProxyOptions,
    caller: Caller,
    breaker: Mutex<Breaker>,
    counters: counters::ProxyCounters,
}

/// A request that the limits admit.
struct Admitted {
    proxy: Arc<Proxy>,
    questioner: ProxyCaller,
    call: BackendCall,
}

/// Why the backends cannot be used.
#[derive(Debug)]
pub enum BackendError {
    /// The thread could not be started.
    Thread(io::Error),
    /// The TLS options of a proxy are invalid.
    Tls {
        /// The proxy's name in the configuration.
        label: String,
        /// The reason.
        why: String,
    },
}

impl Backends {
    /// Starts the thread. A proxy's [`dunlin_engine::backend::ProxyIndex`] is its index in `proxies`.
    ///
    /// # Errors
    /// [`BackendError`]
    pub fn start(proxies: &[ProxyOptions], tracer: Option<Arc<Tracer>>) -> Result<Self, BackendError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(BackendError::Thread)?;
        let proxies: Vec<_> =
            proxies.iter().map(|options| Proxy::new(options).map(Arc::new)).collect::<Result<_, _>>()?;
        // A request holds a place of its proxy until it has completed.
        let (calls, called) = BACKEND_CALLS.admitted_channel();
        let started = Instant::now();
        let traced_headers = tracer.as_ref().map(|_| TRACE_HEADERS.map(Into::into));
        let run = move || {
            runtime.block_on(run(called, started, tracer));
            runtime.shutdown_background();
        };
        thread::Builder::new().name("backend".to_owned()).spawn(run).map_err(BackendError::Thread)?;
        let forwarded = proxies.iter().flat_map(|proxy| proxy.options.http_headers.iter().cloned());
        let wanted = HeaderPicker::new(forwarded.chain(traced_headers.into_iter().flatten()));
        Ok(Self { proxies, calls, wanted, started, hasher: RandomState::new() })
    }

    fn questioner(&self, call: &BackendCall) -> ProxyCaller {
        let asker = &call.request.asker;
        let number = |what: &dyn Fn(&mut std::hash::DefaultHasher)| {
            let mut hasher = self.hasher.build_hasher();
            what(&mut hasher);
            std::hash::Hasher::finish(&hasher)
        };
        let user = asker.user.as_deref().filter(|user| !user.is_empty());
        ProxyCaller {
            session: number(&|hasher| asker.client.hash(hasher)),
            user: user.map(|user| number(&|hasher| user.hash(hasher))),
            address: call.address.map(|address| number(&|hasher| SourceNetwork::of(address).hash(hasher))),
        }
    }

    /// The counters of all proxies.
    pub fn counts(&self) -> BackendCounts {
        let now_ms = now_ms(self.started);
        BackendCounts { proxies: self.proxies.iter().map(|proxy| proxy.counts(now_ms)).collect() }
    }
}

impl ProxyClient for Backends {
    fn ask(&self, call: BackendCall) {
        let Some(proxy) = self.proxies.get(usize::from(call.request.proxy.0)) else {
            return (call.answer)(Err(ProxyError::Failed));
        };
        let kind = ProxyKind::of(&call.request.kind);
        // First the limit on concurrent requests: a request that passes the half-open breaker must be sent.
        if !proxy.counters.admit(proxy.options.requests_max) {
            proxy.counters.count(kind, CallOutcome::Busy);
            return (call.answer)(Err(ProxyError::Busy));
        }
        let questioner = self.questioner(&call);
        if !proxy.breaker().try_admit(now_ms(self.started), questioner) {
            proxy.counters.dismiss();
            proxy.counters.count(kind, CallOutcome::Open);
            return (call.answer)(Err(ProxyError::Failed));
        }
        let admitted = Admitted { proxy: Arc::clone(proxy), questioner, call };
        if let Err(mpsc::error::SendError(Admitted { proxy, call, .. })) = self.calls.send(admitted) {
            proxy.counters.dismiss();
            (call.answer)(Err(ProxyError::Failed));
        }
    }

    fn wanted_headers(&self) -> &HeaderPicker {
        &self.wanted
    }
}

impl Proxy {
    fn new(options: &ProxyOptions) -> Result<Self, BackendError> {
        let failed = |why| BackendError::Tls { label: options.label.clone(), why };
        Ok(Self {
            caller: Caller::new(options).map_err(failed)?,
            breaker: Mutex::new(Breaker::new(options.breaker_failures_max, options.breaker_pause_ms)),
            counters: counters::ProxyCounters::default(),
            options: options.clone(),
        })
    }

    fn breaker(&self) -> std::sync::MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn counts(&self, now_ms: u64) -> ProxyCounts {
        self.counters.now(&self.options.label, self.breaker().is_open(now_ms))
    }

    /// Sends a request and passes on its result.
    async fn carry_out(
        &self,
        call: BackendCall,
        questioner: ProxyCaller,
        started: Instant,
        tracer: Option<Arc<Tracer>>,
    ) {
        let BackendCall { request, headers, address, answer } = call;
        let kind = ProxyKind::of(&request.kind);
        let asked = Instant::now();
        let span = tracer.map(|tracer| trace::open(&tracer, &self.options.label, &request, headers.as_deref()));
        let (outcome, word) = match request::body(&request, &self.options) {
            Ok(body) => {
                let trace = span.as_ref().map(OpenSpan::context);
                let fields = RequestFields { picked: headers.as_deref(), address, trace };
                self.caller.call(kind, body, fields, &self.options).await
            }
            // The client's data is invalid, so the backend is neither called nor blamed.
            Err(refusal) => (Err(refusal), CallOutcome::NotAsked),
        };
        let (proxy, took) = (&self.options.label, asked.elapsed());
        crate::telemetry::session_events::BackendAsked { proxy, kind: kind.name(), outcome: word.name(), took }.emit();
        trace::end(span, word);
        let now_ms = now_ms(started);
        let mut breaker = self.breaker();
        match word {
            CallOutcome::NotAsked => breaker.withdrawn(),
            word if word.is_outage() => breaker.failed(now_ms, questioner),
            _ => breaker.succeeded(),
        }
        drop(breaker);
        self.counters.count(kind, word);
        self.counters.observe(kind, asked.elapsed());
        if let Err(refusal) = &outcome {
            self.counters.count_code(kind, word, refusal);
        }
        self.counters.dismiss();
        answer(outcome);
    }
}

async fn run(mut called: AdmittedReceiver<Admitted>, started: Instant, tracer: Option<Arc<Tracer>>) {
    while let Some(Admitted { proxy, questioner, call }) = called.recv().await {
        let tracer = tracer.clone();
        tokio::spawn(async move { proxy.carry_out(call, questioner, started, tracer).await });
    }
}

fn now_ms(started: Instant) -> u64 {
    u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX)
}

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Thread(error) => write!(f, "can't get a thread for calls to backends: {error}"),
            Self::Tls { label, why } => write!(f, "{label}: can't set up TLS: {why}"),
        }
    }
}

impl std::error::Error for BackendError {}

#[cfg(test)]
mod tests;
