//! The debug page: the state of the shards. It contains channel names, so only the internal port serves it.

use std::{cmp::Reverse, collections::BinaryHeap, sync::Arc};

use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use dunlin_engine::api::{ApiAnswer, ApiRequest};
use serde::Serialize;
use tokio::sync::Semaphore;

use super::{Metrics, shared_shard_reports::SharedShardReports};
use crate::node::ShardReport;

/// Number of channels on the page: those with the most subscribers.
const CHANNELS_SHOWN: usize = 20;

/// The sources of the page.
pub struct Debug {
    surveys: Arc<SharedShardReports>,
    metrics: Arc<Metrics>,
    /// Allows one request at a time, because each reads the names of all channels.
    permit: Semaphore,
}

#[derive(Serialize)]
struct Page {
    shards: Vec<Shard>,
    /// Shards that did not report in time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    silent_shards: Vec<u16>,
    top_channels: Vec<Channel>,
}

#[derive(Serialize)]
struct Shard {
    shard: u16,
    sessions: u32,
    subscriptions: u32,
    channels: u32,
    seats: u32,
    rooms: u32,
    queued_bytes: u64,
    queued_frames: u64,
    queue_age_ms_max: u64,
    behind_sessions: [u32; 5],
    connections: u64,
    turns: u64,
    busy_us: u64,
    idle_us: u64,
    ring_depth: u64,
    ring_overflow: u64,
}

#[derive(Serialize)]
struct Channel {
    channel: String,
    num_clients: u32,
}

impl Debug {
    /// The page for these reports, and the profile of the waits that these metrics have.
    pub fn new(surveys: Arc<SharedShardReports>, metrics: Arc<Metrics>) -> Self {
        Self { surveys, metrics, permit: Semaphore::new(1) }
    }

    pub(super) fn metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.metrics)
    }

    async fn page(&self) -> Page {
        let survey = self.surveys.latest().await;
        let shards = survey.reports.iter().map(Shard::new).collect();
        let silent_shards = survey.silent.iter().map(|shard| shard.0).collect();
        let mut top = BinaryHeap::new();
        for answer in self.surveys.node().ask_all(ApiRequest::Channels).await {
            let Ok(ApiAnswer::Channels(found)) = answer else { continue };
            for (channel, num_clients) in found {
                top.push(Reverse((num_clients, channel)));
                if top.len() > CHANNELS_SHOWN {
                    top.pop();
                }
            }
            tokio::task::yield_now().await;
        }
        let top_channels = top.into_sorted_vec().into_iter();
        let top_channels =
            top_channels.map(|Reverse((num_clients, channel))| Channel { channel: channel.to_string(), num_clients });
        Page { shards, silent_shards, top_channels: top_channels.collect() }
    }
}

impl Shard {
    fn new(report: &ShardReport) -> Self {
        let ShardReport { shard, survey, net, .. } = report;
        Self {
            shard: shard.0,
            sessions: survey.sessions,
            subscriptions: survey.subscriptions,
            channels: survey.channels,
            seats: survey.seats,
            rooms: survey.rooms,
            queued_bytes: survey.queued_bytes,
            queued_frames: survey.queued_frames,
            queue_age_ms_max: survey.queue_age_ms_max,
            behind_sessions: survey.behind_sessions,
            connections: net.connections,
            turns: net.turns,
            busy_us: net.busy_us,
            idle_us: net.idle_us,
            ring_depth: net.ring_depth,
            ring_overflow: net.ring_overflow,
        }
    }
}

/// `GET {prefix}`
pub async fn answer(State(debug): State<Arc<Debug>>) -> Response {
    let Ok(_permit) = debug.permit.try_acquire() else {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    };
    Json(debug.page().await).into_response()
}
