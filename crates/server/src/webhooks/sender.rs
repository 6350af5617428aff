//! Sends events in batches, in order, and again where that may help.

use std::{sync::Arc, time::Duration};

use dunlin_config::WebhookOptions;
use dunlin_queues::CountedReceiver;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout, timeout_at},
};

use super::{
    EventLoss, Happened, RequestOutcome,
    counters::{Counters, unix_ms},
    message::Message,
    shared::SharedChannels,
};
use crate::{backend::Endpoint, telemetry::webhook_events};

/// Maximum bytes of the events of a request, as they are counted in memory.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// The time before the first repetition.
const RETRY_DELAY_MS: u64 = 500;

/// Maximum time between two attempts while the node shuts down.
const LAST_RETRY_DELAY: Duration = Duration::from_millis(250);

/// How much of a response is read, so that its connection can be used again, and for how long.
const RESPONSE_BYTES_MAX: usize = 64 * 1024;
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The task of the thread.
pub(super) struct Sender {
    endpoint: Endpoint,
    options: WebhookOptions,
    node: String,
    counters: Arc<Counters>,
    /// Of a node in a cluster.
    channels: Option<Arc<SharedChannels>>,
    stop: watch::Receiver<bool>,
    /// The number of events taken from the queue, which is the number of the next one.
    taken: u64,
    /// Failed attempts in a row.
    failures: u32,
}

/// What became of a message.
enum Delivery {
    Taken,
    /// The backend takes fewer events at once.
    TooLarge,
    Lost(EventLoss),
}

/// What the sender shares with the webhooks.
pub(super) struct SharedParts {
    pub(super) counters: Arc<Counters>,
    pub(super) channels: Option<Arc<SharedChannels>>,
    pub(super) stop: watch::Receiver<bool>,
}

impl Sender {
    pub(super) fn new(endpoint: Endpoint, options: WebhookOptions, node: &str, shared: SharedParts) -> Self {
        let SharedParts { counters, channels, stop } = shared;
        Self { endpoint, options, node: node.to_owned(), counters, channels, stop, taken: 0, failures: 0 }
    }

    /// Sends events until it is stopped and none is left.
    pub(super) async fn run(mut self, mut queue: CountedReceiver<Happened>) {
        while let Some(batch) = self.collect(&mut queue).await {
            let first = self.taken;
            self.taken += batch.len() as u64;
            self.deliver_all(first, &batch).await;
            self.counters.clear_in_flight();
        }
    }

    /// The events of the next request; `None` if the sender was stopped and none is left.
    async fn collect(&mut self, queue: &mut CountedReceiver<Happened>) -> Option<Vec<Happened>> {
        let first = tokio::select! {
            biased;
            first = queue.recv() => first?,
            () = stopped(&mut self.stop) => queue.try_recv()?,
        };
        let mut bytes = first.event.kept_bytes();
        self.counters.add_in_flight(first.event.unix_ms);
        let mut batch = vec![first];
        let full_at = Instant::now() + Duration::from_millis(self.options.batch_wait_ms);
        while batch.len() < self.options.batch_events_max && bytes < BATCH_BYTES_MAX {
            let mut next = queue.try_recv();
            if next.is_none() {
                next = tokio::select! {
                    biased;
                    next = timeout_at(full_at, queue.recv()) => next.ok().flatten(),
                    () = stopped(&mut self.stop) => queue.try_recv(),
                };
            }
            let Some(next) = next else { break };
            bytes += next.event.kept_bytes();
            self.counters.add_in_flight(next.event.unix_ms);
            batch.push(next);
        }
        Some(batch)
    }

    /// Sends events, the first of which has the number `first`: in halves if they are too large for the backend, down to
    /// single events.
    async fn deliver_all(&mut self, first: u64, batch: &[Happened]) {
        let begun = Instant::now();
        // The last one is sent next.
        let mut parts = vec![(first, batch)];
        while let Some((first, part)) = parts.pop() {
            let delivery = match Message::new(&self.node, first, self.counters.lost(), part) {
                Ok(message) => self.deliver(&message, begun).await,
                Err(_) => Delivery::Lost(EventLoss::Refused),
            };
            let lost = match delivery {
                Delivery::TooLarge if part.len() > 1 => {
                    let (one, other) = part.split_at(part.len() / 2);
                    parts.extend([(first + one.len() as u64, other), (first, one)]);
                    continue;
                }
                Delivery::Taken => None,
                Delivery::TooLarge => Some(EventLoss::Refused),
                Delivery::Lost(why) => Some(why),
            };
            let events = part.len() as u64;
            self.counters.remove_in_flight(events);
            match lost {
                None => self.counters.count_taken(events),
                Some(why) => self.lose(why, part),
            }
            if let Some(channels) = &self.channels {
                channels.end_sending(part);
            }
        }
    }

    fn lose(&self, why: EventLoss, part: &[Happened]) {
        let events = part.len() as u64;
        self.counters.count_lost(why, events);
        webhook_events::WebhookEventsLost { reason: why.name(), events }.emit();
        // The backend may be back later. What it refuses, it would refuse again.
        if why == EventLoss::Expired
            && let Some(channels) = &self.channels
        {
            channels.give_up(part);
        }
    }

    /// Sends a message until it is taken, refused or too old. `begun`: when its events were sent for the first time.
    async fn deliver(&mut self, message: &Message, begun: Instant) -> Delivery {
        let retry_timeout = Duration::from_millis(self.options.retry_timeout_ms);
        loop {
            let (outcome, why) = self.attempt(message).await;
            self.counters.count_request(outcome);
            let ends = match outcome {
                RequestOutcome::Taken => {
                    self.failures = 0;
                    return Delivery::Taken;
                }
                RequestOutcome::Refused => Some(Delivery::Lost(EventLoss::Refused)),
                RequestOutcome::TooLarge => Some(Delivery::TooLarge),
                _ => (begun.elapsed() >= retry_timeout).then_some(Delivery::Lost(EventLoss::Expired)),
            };
            webhook_events::WebhookFailed { outcome: outcome.name(), why: &why, events: message.events }.emit();
            if !matches!(outcome, RequestOutcome::Refused | RequestOutcome::TooLarge) {
                self.failures = self.failures.saturating_add(1);
                self.wait_to_retry().await;
            }
            if let Some(ends) = ends {
                return ends;
            }
        }
    }

    /// Sends a message once. Returns the outcome, and why it is not better.
    async fn attempt(&self, message: &Message) -> (RequestOutcome, String) {
        let WebhookOptions { keys, static_headers, timeout_ms, .. } = &self.options;
        let headers = message.headers(unix_ms() / 1_000, keys, static_headers);
        let answered = timeout(Duration::from_millis(*timeout_ms), self.endpoint.post(headers, message.body.clone()));
        match answered.await {
            Err(_) => (RequestOutcome::Timeout, "no response in time".to_owned()),
            Ok(Err(why)) => (RequestOutcome::Unreachable, why),
            Ok(Ok(response)) => {
                let status = response.status().as_u16();
                read_rest(response.into_body()).await;
                (RequestOutcome::of_status(status), format!("the response has status {status}"))
            }
        }
    }

    /// Waits before the next attempt: twice as long after each failure, and shorter by a random part, so that the nodes of
    /// a cluster do not return to a backend at the same time.
    async fn wait_to_retry(&mut self) {
        let delay = retry_delay(self.failures, self.options.retry_delay_ms_max, random());
        if *self.stop.borrow() {
            return sleep(delay.min(LAST_RETRY_DELAY)).await;
        }
        tokio::select! {
            () = sleep(delay) => {}
            () = stopped(&mut self.stop) => {}
        }
    }
}

/// The time to wait after this number of failures in a row.
fn retry_delay(failures: u32, delay_ms_max: u64, random: u32) -> Duration {
    let doubled = 1_u64.checked_shl(failures.saturating_sub(1)).unwrap_or(u64::MAX);
    let delay_ms = RETRY_DELAY_MS.saturating_mul(doubled).min(delay_ms_max);
    let half_ms = delay_ms / 2;
    Duration::from_millis(half_ms + (delay_ms - half_ms) * u64::from(random) / u64::from(u32::MAX))
}

/// Any number. Without random bytes, the longest delay.
fn random() -> u32 {
    let mut bytes = [u8::MAX; 4];
    let _ = getrandom::fill(&mut bytes);
    u32::from_ne_bytes(bytes)
}

/// Completes when the sender is stopped.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that the webhooks were dropped.
    let _ = stop.wait_for(|is_stopped| *is_stopped).await;
}

/// Reads what follows the head of a response. The status has decided already, so an error only costs the connection.
async fn read_rest(body: Incoming) {
    let _ = timeout(RESPONSE_TIMEOUT, Limited::new(body, RESPONSE_BYTES_MAX).collect()).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_maximum_and_are_at_least_half_of_it() {
        let between = |failures: u32| [0, u32::MAX].map(|random| retry_delay(failures, 30_000, random).as_millis());
        assert_eq!(between(1), [250, 500]);
        assert_eq!(between(2), [500, 1_000]);
        assert_eq!(between(6), [8_000, 16_000]);
        for failures in [7, 64, 65, u32::MAX] {
            assert_eq!(between(failures), [15_000, 30_000], "{failures}");
        }
        assert_eq!(retry_delay(9, 1, 0).as_millis(), 0, "the maximum may be shorter than the first delay");
    }
}
