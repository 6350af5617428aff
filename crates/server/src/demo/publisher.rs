//! Publishes the simulated prices at the rates of `web/ticker/CONTRACT.md`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dunlin_engine::{api::ApiRequest, backend::PublishHow};
use dunlin_protocol::Payload;
use tokio::time::MissedTickBehavior;

use super::market::{Market, QUOTES_CHANNEL, SYMBOLS};
use crate::{node::Node, telemetry::events};

/// Five steps per second for each symbol.
const STEPS_PER_SECOND: u32 = 5 * SYMBOLS as u32;

/// Steps between two publications of all prices, 20 per second.
const STEPS_PER_QUOTES: u32 = STEPS_PER_SECOND / 20;

/// Publishes until the node stops.
pub async fn run(node: Node, seed: [u8; 32]) {
    let mut market = Market::open(seed);
    let mut steps = tokio::time::interval(Duration::from_secs(1) / STEPS_PER_SECOND);
    // Steps that were missed while the machine was suspended are skipped.
    steps.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut step: u32 = 0;
    loop {
        steps.tick().await;
        let time_ms = unix_ms();
        let Some((channel, payload)) = market.step(step as usize % SYMBOLS, time_ms) else { return };
        if !publish(&node, &channel, payload).await {
            return;
        }
        if step.is_multiple_of(STEPS_PER_QUOTES) && !publish(&node, QUOTES_CHANNEL, market.quotes(time_ms)).await {
            return;
        }
        step = (step + 1) % (STEPS_PER_SECOND * STEPS_PER_QUOTES);
    }
}

/// Returns whether to continue.
async fn publish(node: &Node, channel: &str, payload: String) -> bool {
    let request = ApiRequest::Publish {
        channel: channel.into(),
        data: Payload::from_json(payload.into()),
        how: PublishHow::default(),
    };
    match node.ask_owner(channel, request).await {
        Ok(Ok(_)) => true,
        Ok(Err(refusal)) => {
            events::DemoRefused { channel, error: refusal.code }.emit();
            false
        }
        Err(_) => false,
    }
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_millis() as u64)
}
