//! Traces and metrics for an OpenTelemetry Collector (`opentelemetry.*`), by OTLP over HTTP.
//!
//! Whoever does something that is traced opens a span, and goes on: a span that has ended is put into a bounded queue, or
//! dropped and counted if it is full. One thread sends them in batches. The control thread collects all metrics from time to
//! time, as for `/metrics`, and the same thread sends them; metrics that have not left yet are replaced by newer ones, which
//! include them. So a collector that is slow or away costs no memory beyond the queue, and no shard waits for it.

// This module parses header fields of clients and responses of collectors.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::string_slice))]

mod context;
mod counters;
mod encode;
mod points;
mod push;
mod span;
#[cfg(test)]
pub(crate) mod tests;

use std::{
    fmt, io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use dunlin_config::OpenTelemetryOptions;
use dunlin_queues::declared::OTLP_SPANS;
use tokio::sync::{Notify, oneshot};

use counters::Counters;
use push::{MetricsPusher, SpanPusher, Target};

pub use context::{TRACE_HEADERS, TraceContext};
pub use counters::{ExportOutcome, OtlpCounts, Signal};
pub use encode::Resource;
pub use points::{Exponential, FamilyPoints, Number, Point, PointValue};
pub use span::{
    OpenSpan, Parent, RoomOpener, RoomOpeners, SpanKind, Tracer, current_child, current_opens_room, traced,
};

/// What is sent to the collector, until it is dropped.
pub struct Otlp {
    shared: Arc<Shared>,
    /// `None` if no traces are sent.
    tracer: Option<Arc<Tracer>>,
    /// Time between two pushes of metrics; `None` if none are sent.
    metrics_interval: Option<Duration>,
    resource: Arc<Resource>,
    /// Completes when the thread has ended.
    ended: Mutex<Option<oneshot::Receiver<()>>>,
}

/// What the thread shares with others.
struct Shared {
    counters: Counters,
    /// The metrics that wait, encoded.
    metrics: Mutex<Option<Vec<u8>>>,
    metrics_changed: Notify,
    is_stopping: AtomicBool,
    stopping: Notify,
}

/// Why nothing can be sent.
#[derive(Debug)]
pub enum OtlpError {
    /// The thread could not be started.
    Thread(io::Error),
    /// The address or the TLS options cannot be used, for this reason.
    Endpoint(String),
}

impl Otlp {
    /// Starts the thread. `node` is the id of the node, unique for each start, and `name` its name; empty for none.
    ///
    /// # Errors
    /// [`OtlpError`]
    pub fn start(options: &OpenTelemetryOptions, node: &str, name: &str) -> Result<Self, OtlpError> {
        let shared = Arc::new(Shared::default());
        let resource = Arc::new(Resource::new(&options.resource, node, name));
        let target = |endpoint, signal| Target::new(options, endpoint, signal, Arc::clone(&shared));
        let mut tracer = None;
        let mut span_pusher = None;
        if let Some(traces) = &options.traces {
            let (sender, spans) = OTLP_SPANS.with_messages(traces.spans_max).counted_channel();
            let target = target(&traces.endpoint, Signal::Traces).map_err(OtlpError::Endpoint)?;
            span_pusher = Some(SpanPusher::new(target, spans, Arc::clone(&resource)));
            tracer = Some(Arc::new(Tracer::new(sender, traces, Arc::clone(&shared))));
        }
        let metrics_pusher = options.metrics.as_ref().map(|metrics| target(&metrics.endpoint, Signal::Metrics));
        let metrics_pusher = metrics_pusher.transpose().map_err(OtlpError::Endpoint)?.map(MetricsPusher::new);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(OtlpError::Thread)?;
        let (is_ended, ended) = oneshot::channel();
        let run = move || {
            runtime.block_on(async {
                let spans = async {
                    if let Some(pusher) = span_pusher {
                        pusher.run().await;
                    }
                };
                let metrics = async {
                    if let Some(pusher) = metrics_pusher {
                        pusher.run().await;
                    }
                };
                tokio::join!(spans, metrics);
            });
            let _ = is_ended.send(());
        };
        thread::Builder::new().name("otlp-push".to_owned()).spawn(run).map_err(OtlpError::Thread)?;
        let metrics_interval = options.metrics.as_ref().map(|metrics| Duration::from_millis(metrics.interval_ms));
        Ok(Self { shared, tracer, metrics_interval, resource, ended: Mutex::new(Some(ended)) })
    }

    /// What opens spans; `None` if no traces are sent.
    pub fn tracer(&self) -> Option<&Arc<Tracer>> {
        self.tracer.as_ref()
    }

    /// What opens spans of requests to the server API; `None` if these are not traced.
    pub fn api_tracer(&self) -> Option<Arc<Tracer>> {
        self.tracer.clone().filter(|tracer| tracer.traces_api())
    }

    /// Time between two pushes of metrics; `None` if none are sent.
    pub fn metrics_interval(&self) -> Option<Duration> {
        self.metrics_interval
    }

    /// Has metrics sent. Those that still wait are dropped.
    pub fn put_metrics(&self, families: &[FamilyPoints], started_unix: Duration) {
        let encoded = encode::metrics(&self.resource, families, started_unix);
        let mut waiting = self.shared.metrics.lock().unwrap_or_else(PoisonError::into_inner);
        let replaced = waiting.replace(encoded);
        drop(waiting);
        if replaced.is_some() {
            self.shared.counters.count_push(Signal::Metrics, ExportOutcome::Dropped);
        }
        self.shared.metrics_changed.notify_one();
    }

    /// The counters at this moment.
    pub fn counts(&self) -> OtlpCounts {
        let waiting = self.tracer.as_ref().map_or(0, |tracer| tracer.waiting());
        self.shared.counters.now(waiting)
    }

    /// Sends what waits, and ends the thread. Spans that are not taken within `timeout` are lost.
    pub async fn end(&self, timeout: Duration) {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(ended) = ended else { return };
        self.shared.stop();
        let _ = tokio::time::timeout(timeout, ended).await;
    }
}

impl Drop for Otlp {
    fn drop(&mut self) {
        self.shared.stop();
    }
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            counters: Counters::default(),
            metrics: Mutex::default(),
            metrics_changed: Notify::new(),
            is_stopping: AtomicBool::new(false),
            stopping: Notify::new(),
        }
    }
}

impl Shared {
    fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        self.stopping.notify_one();
        self.metrics_changed.notify_one();
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    fn take_metrics(&self) -> Option<Vec<u8>> {
        self.metrics.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl fmt::Display for OtlpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Thread(error) => write!(f, "can't get a thread for traces and metrics: {error}"),
            Self::Endpoint(why) => write!(f, "opentelemetry: {why}"),
        }
    }
}

impl std::error::Error for OtlpError {}
