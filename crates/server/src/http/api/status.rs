//! The state of one node, for the console: counters since the start, of which the page computes rates, and gauges.

use std::time::{SystemTime, UNIX_EPOCH};

use dunlin_cluster::{link::LinkName, thread::ClusterState};
use dunlin_engine::counters::{Counters, Histogram, LATENCY_BOUNDS_US};
use dunlin_storage::StorageCounts;
use serde_json::{Map, Value, json};

use super::own_node::OwnNode;
use crate::{
    node::{NodeSurvey, ShardReport},
    telemetry::{StorageState, count_users, process::ProcessUse},
};

/// What the state of a node is made of.
pub(super) struct NodeState<'a> {
    pub(super) own: &'a OwnNode,
    pub(super) survey: &'a NodeSurvey,
    pub(super) process: &'a ProcessUse,
    pub(super) cpu_percent: f64,
}

impl NodeState<'_> {
    pub(super) fn to_json(&self) -> Value {
        let Self { own, survey, process, cpu_percent } = self;
        let (identity, node) = (own.identity(), own.node());
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        json!({
            "uid": identity.uid,
            "name": identity.name,
            "version": identity.version,
            "reactor": identity.reactor,
            "time_ms": u64::try_from(now_ms).unwrap_or(u64::MAX),
            "uptime_s": identity.started.elapsed().as_secs(),
            "cpu_percent": cpu_percent,
            "memory_bytes": process.resident_bytes,
            "sessions": self.sessions(),
            "traffic": self.traffic(),
            "publish_to_socket": histogram(of_namespaces(survey, |counts| &counts.publish_to_socket)),
            "round_trip": histogram(survey.reports.iter().map(|shard| &shard.counters.ping_round_trip)),
            "shards": survey.reports.iter().map(shard).collect::<Vec<_>>(),
            "silent_shards": survey.silent.iter().map(|shard| shard.0).collect::<Vec<_>>(),
            "rooms": self.rooms(),
            "storage": node.storage().map(|storage| self.storage(&storage.state())),
            "cluster": node.cluster().map(|cluster| cluster_state(&cluster.state())),
        })
    }

    fn sum(&self, pick: impl Fn(&ShardReport) -> u64) -> u64 {
        self.survey.reports.iter().map(pick).sum()
    }

    fn sessions(&self) -> Value {
        let mut behind = [0_u64; 5];
        for (all, own) in self.survey.reports.iter().flat_map(|shard| shard.survey.behind_sessions.iter().enumerate()) {
            if let Some(sum) = behind.get_mut(all) {
                *sum += u64::from(*own);
            }
        }
        let mut closes = Map::new();
        for slot in 0..dunlin_engine::counters::CLOSE_SLOTS {
            let ended = self.sum(|shard| shard.counters.closes.get(slot).copied().unwrap_or_default());
            if ended > 0 {
                let code = Counters::close_code(slot).map_or("other".to_owned(), |code| code.to_string());
                closes.insert(code, ended.into());
            }
        }
        json!({
            "open": self.sum(|shard| shard.survey.sessions.into()),
            "users": count_users(&self.survey.reports),
            "channels": self.sum(|shard| shard.survey.channels.into()),
            "subscriptions": self.sum(|shard| shard.survey.subscriptions.into()),
            "opened": self.sum(|shard| shard.counters.sessions_opened),
            "behind": behind,
            "slow_bytes": self.sum(|shard| shard.counters.slow_bytes),
            "slow_frames": self.sum(|shard| shard.counters.slow_frames),
            "queued_bytes": self.sum(|shard| shard.survey.queued_bytes),
            "queue_age_ms": self.survey.reports.iter().map(|shard| shard.survey.queue_age_ms_max).max(),
            "closes": closes,
        })
    }

    fn traffic(&self) -> Value {
        let of_namespaces = |pick: fn(&dunlin_engine::counters::NamespaceCounters) -> u64| {
            self.sum(|shard| shard.counters.namespaces.iter().map(pick).sum())
        };
        json!({
            "publications": of_namespaces(|counts| counts.publications),
            "deliveries": of_namespaces(|counts| counts.deliveries),
            "replaced": of_namespaces(|counts| counts.skipped),
            "written_bytes": self.sum(|shard| shard.net.write_bytes),
            "read_bytes": self.sum(|shard| shard.net.read_bytes),
            "refused": self.sum(|shard| shard.net.refused.iter().sum()),
        })
    }

    fn rooms(&self) -> Value {
        let threads = self.own.node().room_threads();
        json!({
            "open": threads.iter().map(|thread| u64::from(thread.rooms)).sum::<u64>(),
            "players": threads.iter().map(|thread| thread.players).sum::<u64>(),
            "threads": threads.iter().map(|thread| json!({
                "thread": thread.thread,
                "rooms": thread.rooms,
                "players": thread.players,
                "load_percent": f64::from(thread.load_permille) / 10.0,
                "overruns": thread.counters.overruns,
            })).collect::<Vec<_>>(),
        })
    }

    fn storage(&self, state: &StorageState) -> Value {
        let counters = self.own.counters();
        let counts =
            StorageCounts::METRICS.iter().map(|metric| (metric.field.to_owned(), (metric.value)(&state.counts)));
        json!({
            "counts": counts.map(|(field, value)| (field, value.into())).collect::<Map<String, Value>>(),
            "commit_us": state.counts.commit_us,
            "commit_us_max": state.counts.commit_us_max,
            "refused_low_space": state.counts.refused_low_space,
            "refused_full": state.counts.refused_channel_full + state.counts.refused_namespace_full
                + state.counts.refused_node_full,
            "history_bytes": state.history_bytes.iter().map(|(_, bytes)| bytes).sum::<u64>(),
            "free_bytes": state.free_bytes,
            "fault": state.fault,
            "backups_made": counters.backups(true),
            "backups_failed": counters.backups(false),
            "last_backup_s": Some(counters.last_backup_s()).filter(|last_s| *last_s > 0),
        })
    }
}

fn of_namespaces(
    survey: &NodeSurvey,
    pick: fn(&dunlin_engine::counters::NamespaceCounters) -> &Histogram,
) -> impl Iterator<Item = &Histogram> {
    survey.reports.iter().flat_map(|shard| &shard.counters.namespaces).map(pick)
}

/// The sum of these; the last bucket has no bound.
fn histogram<'h>(parts: impl Iterator<Item = &'h Histogram>) -> Value {
    let mut sum = Histogram::default();
    for part in parts {
        for (all, own) in sum.buckets.iter_mut().zip(part.buckets) {
            *all += own;
        }
    }
    json!({ "bounds_us": LATENCY_BOUNDS_US, "buckets": sum.buckets })
}

fn shard(report: &ShardReport) -> Value {
    let ShardReport { shard, survey, net, .. } = report;
    json!({
        "shard": shard.0,
        "busy_percent": f64::from(net.busy_ppm / 1_000) / 10.0,
        "sessions": survey.sessions,
        "channels": survey.channels,
        "queued_bytes": survey.queued_bytes,
        "queue_age_ms": survey.queue_age_ms_max,
        "ring_depth": net.ring_depth,
        "ring_overflow": net.ring_overflow,
    })
}

fn cluster_state(state: &ClusterState) -> Value {
    let counters = &state.counters;
    let links = LinkName::ALL.into_iter().zip(counters.links_opened);
    json!({
        "ready": state.is_ready,
        "unusable_streams": state.unusable_streams.iter().map(|one| json!({
            "stream": one.stream,
            "why": one.trouble.to_string(),
        })).collect::<Vec<_>>(),
        "live": state.nodes.iter().map(|live| json!({
            "uid": live.node,
            "name": live.about.name,
            "version": live.about.version,
            "started_ms": live.about.started_ms,
        })).collect::<Vec<_>>(),
        "connections_opened": links.map(|(link, opened)| (link.label().to_owned(), opened.into()))
            .collect::<Map<String, Value>>(),
        "requests_queued": state.requests_queued,
        "requests_refused": state.requests_refused,
        "effects_waiting": state.effects_waiting,
        "followed": counters.followed,
        "in_flight": counters.in_flight,
        "gaps": counters.gaps,
        "filled": counters.filled,
        "lost_tails": counters.lost_tails,
        "truncations": counters.truncations,
        "holes": counters.holes,
        "interrupted": counters.interrupted,
        "overflows": counters.overflows,
        "retries": counters.retries,
        "abandoned": counters.abandoned,
    })
}
