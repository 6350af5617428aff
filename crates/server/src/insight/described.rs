//! A session in the server API.

use dunlin_engine::{
    insight::{ChannelQueue, LaneFacts, QueueLimits},
    options::Lane,
};
use dunlin_net::SocketFacts;
use dunlin_protocol::Encoding;
use serde::Serialize;

use super::{
    limits::{LimitJson, limits_of},
    verdict::{Judged, Verdict},
};
use crate::node::RecentSegments;

/// The node of a session, or of a room.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct NodeJson<'a> {
    /// Its id.
    pub uid: &'a str,
    /// Its name; may be empty.
    pub name: &'a str,
}

/// A session. It has the public id of the client, and never the secret one.
#[derive(Clone, Debug, Serialize)]
pub struct SessionJson<'a> {
    client: &'a str,
    user: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    node: NodeJson<'a>,
    transport: &'static str,
    encoding: &'static str,
    num_subs: u32,
    verdict: VerdictJson,
    #[serde(skip_serializing_if = "Option::is_none")]
    commands_wait_for: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    limits: Vec<LimitJson>,
    queue: QueueJson<'a>,
    socket: SocketJson,
    ping: PingJson,
    shard: ShardJson,
}

#[derive(Clone, Debug, Serialize)]
struct VerdictJson {
    code: &'static str,
    text: String,
}

#[derive(Clone, Debug, Serialize)]
struct QueueJson<'a> {
    bytes: u64,
    frames: u64,
    age_ms: u64,
    replaced: u64,
    reliable: LaneJson,
    latest: LaneJson,
    room_bytes: u64,
    rooms_due: u32,
    #[serde(skip_serializing_if = "is_zero")]
    limited_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    channels: Option<Vec<ChannelJson<'a>>>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    channels_cut: bool,
    #[serde(skip_serializing_if = "is_zero")]
    unexamined_frames: u64,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct LaneJson {
    frames: u64,
    bytes: u64,
}

#[derive(Clone, Debug, Serialize)]
struct ChannelJson<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    channel: Option<&'a str>,
    lane: &'static str,
    frames: u64,
    bytes: u64,
    replaced: u64,
    oldest_ms: u64,
    newest_ms: u64,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct SocketJson {
    full: bool,
    #[serde(skip_serializing_if = "is_zero")]
    tls_bytes: u64,
    #[serde(flatten)]
    kernel: Option<KernelJson>,
    #[serde(flatten)]
    network: Option<NetworkJson>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct KernelJson {
    kernel_bytes: u64,
    not_sent_bytes: u64,
    unacked_segments: u32,
    window_probes: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    receive_window_bytes: Option<u32>,
    segment_bytes_max: u32,
    last_send_ms: u32,
    last_ack_ms: u32,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct NetworkJson {
    rtt_ms: f64,
    rtt_var_ms: f64,
    sent_segments: u32,
    retransmitted_segments: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    recent_seconds: Option<u32>,
    recent_sent_segments: u32,
    recent_retransmitted_segments: u32,
    retransmissions_in_row: u8,
    delivery_bytes_per_second: u64,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct PingJson {
    #[serde(skip_serializing_if = "Option::is_none")]
    pong_age_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    round_trip_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unanswered_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct ShardJson {
    index: u16,
    busy_percent: f64,
    longest_turn_ms: f64,
}

impl<'a> SessionJson<'a> {
    /// A session of a shard. `with_channels`: with its queue by channel.
    pub fn new(
        judged: Judged<'a>,
        (node, shard): (NodeJson<'a>, u16),
        bounds: QueueLimits,
        with_channels: bool,
    ) -> Self {
        let Judged { facts, socket, turns } = judged;
        let verdict = Verdict::of(judged);
        Self {
            client: &facts.info.client,
            user: &facts.info.user,
            address: facts.address.map(|address| address.to_string()),
            node,
            transport: facts.wire.transport_name(),
            encoding: match facts.wire.encoding() {
                Encoding::Json => "json",
                Encoding::Protobuf => "protobuf",
            },
            num_subs: facts.subscriptions,
            verdict: VerdictJson { code: verdict.code(), text: verdict.to_string() },
            commands_wait_for: facts.commands_wait_for.map(dunlin_engine::insight::CommandsWaitFor::name),
            limits: limits_of(facts, bounds),
            queue: QueueJson::new(judged, with_channels),
            socket: SocketJson {
                full: socket.is_full,
                tls_bytes: socket.tls_bytes as u64,
                kernel: socket.kernel.map(KernelJson::from),
                network: socket.kernel.map(|kernel| NetworkJson::new(kernel, socket.recent)),
            },
            ping: PingJson {
                pong_age_ms: facts.pings.pong_age_us.map(|us| us / 1_000),
                round_trip_ms: facts.pings.round_trip_us.map(ms_of),
                unanswered_ms: facts.pings.unanswered_us.map(|us| us / 1_000),
            },
            shard: ShardJson {
                index: shard,
                busy_percent: f64::from(turns.busy_ppm / 1_000) / 10.0,
                longest_turn_ms: ms_of(turns.longest_us),
            },
        }
    }
}

impl<'a> QueueJson<'a> {
    fn new(Judged { facts, .. }: Judged<'a>, with_channels: bool) -> Self {
        let queue = &facts.queue;
        Self {
            bytes: (queue.reliable.bytes + queue.latest.bytes) as u64,
            frames: (queue.reliable.frames + queue.latest.frames) as u64,
            age_ms: queue.age_us / 1_000,
            replaced: queue.replaced,
            reliable: queue.reliable.into(),
            latest: queue.latest.into(),
            room_bytes: queue.room_bytes as u64,
            rooms_due: queue.rooms_due,
            limited_ms: queue.limited_us / 1_000,
            channels: with_channels.then(|| facts.channels.iter().map(ChannelJson::from).collect()),
            channels_cut: facts.are_channels_cut,
            unexamined_frames: queue.unexamined_frames as u64,
        }
    }
}

impl From<LaneFacts> for LaneJson {
    fn from(LaneFacts { frames, bytes }: LaneFacts) -> Self {
        Self { frames: frames as u64, bytes: bytes as u64 }
    }
}

impl<'a> From<&'a ChannelQueue> for ChannelJson<'a> {
    fn from(queue: &'a ChannelQueue) -> Self {
        Self {
            channel: queue.channel.as_deref(),
            lane: match queue.lane {
                Lane::Reliable => "reliable",
                Lane::Latest => "latest",
            },
            frames: queue.queued.frames as u64,
            bytes: queue.queued.bytes as u64,
            replaced: queue.replaced,
            oldest_ms: queue.oldest_age_us / 1_000,
            newest_ms: queue.newest_age_us / 1_000,
        }
    }
}

impl From<SocketFacts> for KernelJson {
    fn from(kernel: SocketFacts) -> Self {
        Self {
            kernel_bytes: kernel.kernel_bytes,
            not_sent_bytes: kernel.not_sent_bytes,
            unacked_segments: kernel.unacked_segments,
            window_probes: kernel.window_probes,
            receive_window_bytes: kernel.receive_window_bytes,
            segment_bytes_max: kernel.segment_bytes_max,
            last_send_ms: kernel.last_send_ms,
            last_ack_ms: kernel.last_ack_ms,
        }
    }
}

impl NetworkJson {
    fn new(kernel: SocketFacts, recent: RecentSegments) -> Self {
        Self {
            rtt_ms: ms_of(kernel.rtt_us.into()),
            rtt_var_ms: ms_of(kernel.rtt_var_us.into()),
            sent_segments: kernel.segments.sent,
            retransmitted_segments: kernel.segments.retransmitted,
            recent_seconds: recent.over_s,
            recent_sent_segments: recent.segments.sent,
            recent_retransmitted_segments: recent.segments.retransmitted,
            retransmissions_in_row: kernel.retransmissions_in_row,
            delivery_bytes_per_second: kernel.delivery_bytes_per_second,
        }
    }
}

fn ms_of(us: u64) -> f64 {
    us as f64 / 1_000.0
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}
