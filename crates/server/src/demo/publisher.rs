//! Publishes the simulated prices at the rates of `web/ticker/CONTRACT.md`. In a cluster, one node publishes.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use dunlin_engine::{
    api::{ApiAnswer, ApiRefusal, ApiRequest, HistoryQuery},
    backend::PublishHow,
};
use dunlin_protocol::{ErrorCode, Payload};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::market::{Market, QUOTES_CHANNEL, SYMBOLS};
use crate::{
    node::{Node, NodeError},
    telemetry::events,
};

/// Interval of the steps of each symbol: five per second.
const STEP: Duration = Duration::from_millis(200);

/// Interval of the publications of all prices: twenty per second.
const QUOTES: Duration = Duration::from_millis(50);

/// Time until a new node knows the other nodes from their heartbeats.
const SETTLING: Duration = Duration::from_secs(3);

/// The prices, and the node that publishes them.
struct Publisher {
    node: Node,
    market: Mutex<Market>,
    started: Instant,
}

/// A publication that is retried until its outcome is known.
struct Pending {
    payload: String,
    key: Option<Box<str>>,
}

/// The outcome of a publication.
enum Outcome {
    Published,
    /// The publication may have been published, or may be published later, but the answer was lost.
    Unknown,
    /// The node refuses the publication, or has stopped.
    Over,
}

/// Publishes until the node stops. If a symbol's publications wait because its stream has no leader, other symbols are
/// not delayed.
pub fn start(node: Node, seed: [u8; 32]) {
    let publisher = Arc::new(Publisher { node, market: Mutex::new(Market::open(seed)), started: Instant::now() });
    for index in 0..SYMBOLS {
        tokio::spawn(Arc::clone(&publisher).run_symbol(index));
    }
    tokio::spawn(publisher.run_quotes());
}

impl Publisher {
    async fn run_symbol(self: Arc<Self>, index: usize) {
        let Some(channel) = Market::channel(index) else { return };
        // The symbols start at different offsets, so that the publications are spread evenly.
        let offset = STEP * u32::try_from(index).unwrap_or(0) / u32::try_from(SYMBOLS).unwrap_or(1);
        let mut steps = interval_at(Instant::now() + offset, STEP);
        // Steps that were missed while the machine was suspended are skipped.
        steps.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut is_continued = false;
        let mut pending: Option<Pending> = None;
        loop {
            steps.tick().await;
            if !self.is_publisher() {
                (is_continued, pending) = (false, None);
                continue;
            }
            if !is_continued {
                is_continued = self.continue_symbol(index, &channel).await;
                continue;
            }
            let next = match pending.take() {
                Some(pending) => pending,
                None => match self.next(index, &channel) {
                    Some(next) => next,
                    None => return,
                },
            };
            match self.publish(&channel, next.payload.clone(), next.key.clone()).await {
                Outcome::Published => {}
                Outcome::Unknown => pending = Some(next),
                Outcome::Over => return,
            }
        }
    }

    async fn run_quotes(self: Arc<Self>) {
        let mut steps = tokio::time::interval(QUOTES);
        steps.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            steps.tick().await;
            if !self.is_publisher() {
                continue;
            }
            let payload = self.market().quotes(unix_ms());
            if let Outcome::Over = self.publish(QUOTES_CHANNEL, payload, None).await {
                return;
            }
        }
    }

    /// Whether this node publishes the prices.
    fn is_publisher(&self) -> bool {
        let Some(cluster) = self.node.cluster() else { return true };
        self.started.elapsed() >= SETTLING && cluster.is_longest_live()
    }

    fn next(&self, index: usize, channel: &str) -> Option<Pending> {
        let time_ms = unix_ms();
        let (_, payload) = self.market().step(index, time_ms)?;
        // Without a cluster, no outcome is unknown.
        let key = self.node.cluster().map(|_| format!("{channel}/{time_ms}").into());
        Some(Pending { payload, key })
    }

    /// Continues after the newest publication of another node or an earlier run. Returns whether the history could be
    /// read.
    async fn continue_symbol(&self, index: usize, channel: &str) -> bool {
        let query = HistoryQuery { limit: 1, reverse: true, ..HistoryQuery::default() };
        match self.node.ask_owner(channel, ApiRequest::History { channel: channel.into(), query }).await {
            Ok(Ok(ApiAnswer::History { publications, .. })) => {
                if let Some(newest) = publications.first() {
                    self.market().continue_after(index, newest.data.bytes());
                }
                true
            }
            // A namespace without history has nothing to continue.
            Ok(Err(refusal)) => refusal.code == ErrorCode::NotAvailable,
            Ok(Ok(_)) | Err(_) => false,
        }
    }

    /// Publishes a payload. Calls with the same key publish the payload only once.
    async fn publish(&self, channel: &str, payload: String, idempotency_key: Option<Box<str>>) -> Outcome {
        let how = PublishHow { idempotency_key, ..PublishHow::default() };
        let data = Payload::from_json(payload.into());
        let request = ApiRequest::Publish { channel: channel.into(), data, how };
        outcome_of(channel, &self.node.ask_owner(channel, request).await)
    }

    fn market(&self) -> std::sync::MutexGuard<'_, Market> {
        self.market.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn outcome_of(channel: &str, answer: &Result<Result<ApiAnswer, ApiRefusal>, NodeError>) -> Outcome {
    match answer {
        Ok(Ok(_)) => Outcome::Published,
        Ok(Err(refusal)) if refusal.code.temporary() => Outcome::Unknown,
        Ok(Err(refusal)) => {
            events::DemoRefused { channel, error: refusal.code }.emit();
            Outcome::Over
        }
        Err(_) => Outcome::Over,
    }
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_millis() as u64)
}
