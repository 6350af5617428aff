//! Sends spans and metrics to the collector.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use dunlin_config::OpenTelemetryOptions;
use dunlin_queues::CountedReceiver;
use dunlin_token::SecretUrl;
use hyper::{
    header::{HeaderMap, RETRY_AFTER},
    http::response::Parts,
};
use tokio::time::{Instant, sleep, timeout_at};

use super::{ExportOutcome, Resource, Shared, Signal, encode, span::Span};
use crate::{
    backend::{NoResponse, PushTarget},
    telemetry::otlp_events::OtlpFailed,
};

/// Maximum number of spans in a request, as in other SDKs.
const BATCH_SPANS_MAX: usize = 512;

/// How long a span waits for others.
const BATCH_WAIT: Duration = Duration::from_secs(1);

/// How often a batch is sent before it is given up. The pauses between are 1, 2 and 4 seconds.
const ATTEMPTS_MAX: u32 = 4;

/// The pause after the first attempt; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// Maximum pause that a collector can ask for. Spans wait meanwhile, and are lost beyond their queue's limit.
const ASKED_PAUSE_MAX: Duration = Duration::from_secs(30);

/// What takes one kind of data, and what counts the requests.
pub(super) struct Target {
    push: PushTarget,
    signal: Signal,
    shared: Arc<Shared>,
}

/// The outcome of a request.
struct Exchanged {
    outcome: ExportOutcome,
    /// Whether it may have another one later.
    is_retryable: bool,
    /// How much the collector says that it did not take.
    rejected: u64,
    /// The pause that the collector asks for.
    asked_pause: Option<Duration>,
}

impl Target {
    /// # Errors
    /// Why the address or a certificate cannot be used.
    pub(super) fn new(
        options: &OpenTelemetryOptions,
        url: &SecretUrl,
        signal: Signal,
        shared: Arc<Shared>,
    ) -> Result<Self, String> {
        let push = PushTarget::new(url, options.tls.as_deref(), options.headers.clone(), options.timeout_ms)?;
        Ok(Self { push, signal, shared })
    }

    async fn send(&self, body: Bytes) -> Exchanged {
        let (exchanged, why) = match self.push.post("application/x-protobuf", None, body).await {
            Err(NoResponse::Timeout) => (Exchanged::failed(ExportOutcome::Timeout), "no response in time".to_owned()),
            Err(NoResponse::Unreachable(why)) => (Exchanged::failed(ExportOutcome::Unreachable), why),
            Ok((head, body)) => Exchanged::of_response(&head, &body),
        };
        self.shared.counters.count_push(self.signal, exchanged.outcome);
        if exchanged.outcome != ExportOutcome::Accepted || exchanged.rejected > 0 {
            let (signal, outcome, why) = (self.signal.name(), exchanged.outcome.name(), self.push.scrubbed(&why));
            OtlpFailed { signal, outcome, rejected: exchanged.rejected, why: &why }.emit();
        }
        exchanged
    }
}

impl Exchanged {
    const fn failed(outcome: ExportOutcome) -> Self {
        Self { outcome, is_retryable: true, rejected: 0, asked_pause: None }
    }

    fn of_response(head: &Parts, body: &[u8]) -> (Self, String) {
        let status = head.status.as_u16();
        let outcome = ExportOutcome::of_status(status);
        // The statuses that the specification of OTLP names. After another one, the same request would fail again.
        let is_retryable = matches!(status, 429 | 502 | 503 | 504);
        let rejected = if outcome == ExportOutcome::Accepted { encode::rejected(body) } else { 0 };
        // A message of OTLP is Protobuf, whose texts are readable.
        let text: String = String::from_utf8_lossy(body).chars().filter(|c| !c.is_control()).collect();
        let asked_pause = asked_pause(&head.headers);
        (Self { outcome, is_retryable, rejected, asked_pause }, format!("status {status}: {}", text.trim()))
    }
}

/// The pause that a response asks for. A date is not read: then the pauses are those of other failures.
pub(super) fn asked_pause(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(ASKED_PAUSE_MAX))
}

/// Sends spans.
pub(super) struct SpanPusher {
    target: Target,
    spans: CountedReceiver<Box<Span>>,
    resource: Arc<Resource>,
}

impl SpanPusher {
    pub(super) fn new(target: Target, spans: CountedReceiver<Box<Span>>, resource: Arc<Resource>) -> Self {
        Self { target, spans, resource }
    }

    pub(super) async fn run(mut self) {
        loop {
            let (batch, is_last) = self.batch().await;
            if !batch.is_empty() {
                self.push(&batch).await;
            }
            if is_last {
                // What did not fit into the last batch.
                let left = std::iter::from_fn(|| self.spans.try_recv()).count();
                self.target.shared.counters.count_spans(ExportOutcome::Dropped, left as u64);
                return;
            }
        }
    }

    /// The next spans, and whether they are the last ones.
    async fn batch(&mut self) -> (Vec<Box<Span>>, bool) {
        let shared = Arc::clone(&self.target.shared);
        let mut batch = Vec::new();
        let mut deadline = None;
        while batch.len() < BATCH_SPANS_MAX && !shared.is_stopping() {
            let next = async {
                match deadline {
                    None => Ok(self.spans.recv().await),
                    Some(deadline) => timeout_at(deadline, self.spans.recv()).await,
                }
            };
            tokio::select! {
                next = next => match next {
                    Ok(Some(span)) => {
                        batch.push(span);
                        deadline.get_or_insert_with(|| Instant::now() + BATCH_WAIT);
                    }
                    // The node has dropped the tracer.
                    Ok(None) => return (batch, true),
                    Err(_) => return (batch, false),
                },
                () = shared.stopping.notified() => {}
            }
        }
        let is_last = shared.is_stopping();
        while is_last
            && batch.len() < BATCH_SPANS_MAX
            && let Some(span) = self.spans.try_recv()
        {
            batch.push(span);
        }
        (batch, is_last)
    }

    async fn push(&self, batch: &[Box<Span>]) {
        let shared = &self.target.shared;
        let spans = batch.len() as u64;
        let body = Bytes::from(encode::traces(&self.resource, batch));
        let mut pause = FIRST_PAUSE;
        for attempt in 1.. {
            let Exchanged { outcome, is_retryable, rejected, asked_pause } = self.target.send(body.clone()).await;
            if is_retryable && attempt < ATTEMPTS_MAX && !shared.is_stopping() {
                tokio::select! {
                    () = sleep(asked_pause.unwrap_or_default().max(pause)) => pause *= 2,
                    () = shared.stopping.notified() => {}
                }
                continue;
            }
            let rejected = rejected.min(spans);
            shared.counters.count_spans(ExportOutcome::Rejected, rejected);
            return shared.counters.count_spans(outcome, spans - rejected);
        }
    }
}

/// Sends metrics.
pub(super) struct MetricsPusher(Target);

impl MetricsPusher {
    pub(super) fn new(target: Target) -> Self {
        Self(target)
    }

    /// Metrics that were not taken are not sent again: the next ones include them.
    pub(super) async fn run(self) {
        let Self(target) = self;
        loop {
            match target.shared.take_metrics() {
                Some(metrics) => {
                    target.send(metrics.into()).await;
                }
                None if target.shared.is_stopping() => return,
                None => target.shared.metrics_changed.notified().await,
            }
        }
    }
}
