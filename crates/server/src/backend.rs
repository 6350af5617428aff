//! The application's backend, asked over HTTP about what sessions do: Centrifugo's proxies.
//!
//! A shard hands a question over and goes on; the request runs on a thread of its own, so that neither a shard nor the
//! server API waits for a slow backend. What a backend may cost is bounded for each proxy: so many questions at a time, so
//! long for each, so many bytes for an answer, and after a number of failures in a row it is left alone for a while.

// Bytes of others are read here.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::string_slice))]

pub(crate) mod answer;
mod breaker;
mod caller;
mod counters;
mod headers;
mod options;
mod question;

use std::{
    fmt, io,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Instant,
};

use dunlin_engine::backend::{BackendOutcome, BackendQuestion, BackendRefusal};
use tokio::sync::mpsc;

use breaker::Breaker;
use caller::Caller;

pub use counters::{AskKind, BackendCounts, Outcome, ProxyCounts};
pub use headers::{HeaderPicker, PickedHeaders};
pub use options::{ClientTls, ProxyOptions, StatusTransform, Transformed};

/// A question on its way, and where its answer goes.
pub struct BackendCall {
    /// What is asked, and whom.
    pub question: BackendQuestion,
    /// What the session's own request had in the header fields that some proxy wants.
    pub headers: Option<PickedHeaders>,
    /// To be called once, on whatever thread; it neither blocks nor waits.
    pub answer: Box<dyn FnOnce(BackendOutcome) + Send>,
}

/// Asks backends. Called on the shard's thread, where it may neither block nor wait for another thread.
pub trait AskBackends: Send + Sync + 'static {
    /// Asks, and has the answer told.
    fn ask(&self, call: BackendCall);

    /// Which header fields of a session's request are to be kept for its questions.
    fn wanted_headers(&self) -> &HeaderPicker;
}

/// Asks nobody, since nobody is configured.
#[derive(Debug, Default)]
pub struct NoBackends(HeaderPicker);

impl AskBackends for NoBackends {
    fn ask(&self, call: BackendCall) {
        (call.answer)(Err(BackendRefusal::Failed));
    }

    fn wanted_headers(&self) -> &HeaderPicker {
        &self.0
    }
}

/// The backends of a node.
pub struct Backends {
    proxies: Vec<Arc<Proxy>>,
    calls: mpsc::UnboundedSender<Admitted>,
    wanted: HeaderPicker,
    started: Instant,
}

/// One proxy: whom to ask, how, and how that has gone.
struct Proxy {
    options: ProxyOptions,
    caller: Caller,
    breaker: Mutex<Breaker>,
    counters: counters::ProxyCounters,
}

/// A call that may be made.
struct Admitted {
    proxy: Arc<Proxy>,
    call: BackendCall,
}

/// Why backends cannot be asked.
#[derive(Debug)]
pub enum BackendError {
    /// The thread could not be had.
    Thread(io::Error),
    /// What a proxy needs for TLS is of no use.
    Tls {
        /// The proxy's place in the configuration.
        label: String,
        /// What is wrong.
        why: String,
    },
}

impl Backends {
    /// Starts the thread. The proxies' places are their [`dunlin_engine::backend::ProxyIndex`].
    ///
    /// # Errors
    /// [`BackendError`]
    pub fn start(proxies: &[ProxyOptions]) -> Result<Self, BackendError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(BackendError::Thread)?;
        let proxies: Vec<_> =
            proxies.iter().map(|options| Proxy::new(options).map(Arc::new)).collect::<Result<_, _>>()?;
        // Not bounded by itself: each proxy bounds its questions from the moment they are asked.
        let (calls, called) = mpsc::unbounded_channel();
        let started = Instant::now();
        let run = move || {
            runtime.block_on(run(called, started));
            runtime.shutdown_background();
        };
        thread::Builder::new().name("backend".to_owned()).spawn(run).map_err(BackendError::Thread)?;
        let wanted = HeaderPicker::new(proxies.iter().flat_map(|proxy| proxy.options.http_headers.iter().cloned()));
        Ok(Self { proxies, calls, wanted, started })
    }

    /// What is counted, by proxy.
    pub fn counts(&self) -> BackendCounts {
        let now_ms = now_ms(self.started);
        BackendCounts { proxies: self.proxies.iter().map(|proxy| proxy.counts(now_ms)).collect() }
    }
}

impl AskBackends for Backends {
    fn ask(&self, call: BackendCall) {
        let Some(proxy) = self.proxies.get(usize::from(call.question.proxy.0)) else {
            return (call.answer)(Err(BackendRefusal::Failed));
        };
        let kind = AskKind::of(&call.question.ask);
        // The number of questions first: whoever tries an open breaker has to go through with it.
        if !proxy.counters.admit(proxy.options.requests_max) {
            proxy.counters.count(kind, Outcome::Busy);
            return (call.answer)(Err(BackendRefusal::Busy));
        }
        if !proxy.breaker().admits(now_ms(self.started)) {
            proxy.counters.dismiss();
            proxy.counters.count(kind, Outcome::Open);
            return (call.answer)(Err(BackendRefusal::Failed));
        }
        let admitted = Admitted { proxy: Arc::clone(proxy), call };
        if let Err(mpsc::error::SendError(Admitted { proxy, call })) = self.calls.send(admitted) {
            proxy.counters.dismiss();
            (call.answer)(Err(BackendRefusal::Failed));
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

    /// Asks, and tells what came of it.
    async fn carry_out(&self, call: BackendCall, started: Instant) {
        let BackendCall { question, headers, answer } = call;
        let kind = AskKind::of(&question.ask);
        let asked = Instant::now();
        let (outcome, word) = match question::body(&question, &self.options) {
            Ok(body) => self.caller.call(kind, body, headers.as_ref(), &self.options).await,
            // The client's doing: the backend is neither asked nor blamed.
            Err(refusal) => (Err(refusal), Outcome::NotAsked),
        };
        let now_ms = now_ms(started);
        let mut breaker = self.breaker();
        match word {
            Outcome::NotAsked => breaker.withdrawn(),
            word if word.is_failure() => breaker.failed(now_ms),
            _ => breaker.succeeded(),
        }
        drop(breaker);
        self.counters.count(kind, word);
        self.counters.observe(kind, asked.elapsed());
        self.counters.dismiss();
        answer(outcome);
    }
}

async fn run(mut called: mpsc::UnboundedReceiver<Admitted>, started: Instant) {
    while let Some(Admitted { proxy, call }) = called.recv().await {
        tokio::spawn(async move { proxy.carry_out(call, started).await });
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
