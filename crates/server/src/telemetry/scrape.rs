//! The metrics page, computed from the shards' reports.

mod backends;
mod channels;
mod cluster;
mod matchmaking;
mod rooms;
mod storage;

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use dunlin_cluster::thread::ClusterState;
use dunlin_engine::{
    ShardIndex, Wire,
    counters::{CommandKind, Counters, Histogram, LATENCY_BOUNDS_US, NamespaceCounters, Suppression},
};
use dunlin_net::RefusalReason;
use dunlin_protocol::{Disconnect, ErrorCode};
use dunlin_relay::RelayCounters;
use dunlin_token::TokenCounts;

use super::{
    api_counters::{ControlCounters, HttpRefusal, ReloadOutcome},
    exposition::{Page, Samples},
    metrics as m,
    process::ProcessUse,
};
use crate::{
    access_sync::AccessCounts,
    backend::BackendCounts,
    http::api::Method,
    matchmaking::MatchmakingReport,
    node::{NetCounters, ShardReport},
    otlp::{FamilyPoints, OtlpCounts},
    peers::QuestionCounts,
    profiling::ProfileCounts,
    rooms::{BuilderReport, PathCounts, RecordingReport, RoomReport, SurvivalReport, ThreadReport},
    webhooks::WebhookCounts,
};

pub use self::storage::StorageState;
pub use super::exposition::CONTENT_TYPE;

/// State that persists between scrapes.
pub struct Scrape {
    /// The server's version.
    pub version: &'static str,
    /// The shards' reactor.
    pub reactor: &'static str,
    /// Names of the namespaces, in the order of [`Counters::namespaces`].
    namespaces: RwLock<Arc<[String]>>,
}

/// The state of the node at the time of a scrape.
pub struct Moment<'a> {
    /// The shards' reports.
    pub shards: &'a [ShardReport],
    /// The shards that did not report in time.
    pub silent_shards: &'a [ShardIndex],
    /// The room threads' reports.
    pub room_threads: &'a [ThreadReport],
    /// The room builder's report.
    pub room_builder: BuilderReport,
    /// Counters of the relay; `None` without a cluster.
    pub room_relay: Option<RelayCounters>,
    /// Memory of all rooms in bytes.
    pub room_memory_bytes: u64,
    /// Counters of stored rooms; `None` without a storage.
    pub room_survival: Option<SurvivalReport>,
    /// Counts of stored paths.
    pub paths: PathCounts,
    /// Counts of recordings.
    pub recordings: RecordingReport,
    /// Reports of all rooms.
    pub rooms: &'a [RoomReport],
    /// The control thread's counters.
    pub control: &'a ControlCounters,
    /// Matchmaking and lobbies.
    pub matchmaking: MatchmakingReport,
    /// Rules about who may not connect.
    pub access: AccessCounts,
    /// Counters of tokens.
    pub tokens: TokenCounts,
    /// Counters of backends.
    pub backends: BackendCounts,
    /// Counters of webhooks.
    pub webhooks: WebhookCounts,
    /// Counters of pushed profiles.
    pub profiles: ProfileCounts,
    /// Counters of what is sent to a collector.
    pub otlp: OtlpCounts,
    /// The storage; `None` without one.
    pub storage: Option<StorageState>,
    /// The cluster; `None` without one.
    pub cluster: Option<ClusterState>,
    /// Questions between nodes; `None` without a cluster.
    pub peers: Option<QuestionCounts>,
    /// The resources of the process.
    pub process: ProcessUse,
    /// Time since the start.
    pub uptime: Duration,
}

impl Scrape {
    /// State for a node with these `namespaces`.
    pub fn new(version: &'static str, reactor: &'static str, namespaces: impl IntoIterator<Item = String>) -> Self {
        Self { version, reactor, namespaces: RwLock::new(labels(namespaces)) }
    }

    /// Changes the namespaces after a reload.
    pub fn set_namespaces(&self, namespaces: impl IntoIterator<Item = String>) {
        *self.namespaces.write().unwrap_or_else(PoisonError::into_inner) = labels(namespaces);
    }

    /// The namespaces' names, in the order of [`Counters::namespaces`].
    pub fn namespaces(&self) -> Arc<[String]> {
        Arc::clone(&self.namespaces.read().unwrap_or_else(PoisonError::into_inner))
    }
}

fn labels(namespaces: impl IntoIterator<Item = String>) -> Arc<[String]> {
    std::iter::once(m::NO_NAMESPACE.to_owned()).chain(namespaces).collect()
}

/// Generates the metrics page.
pub fn page(scrape: &Scrape, moment: &Moment<'_>) -> String {
    let mut page = Page::of_text();
    fill(&mut page, scrape, moment);
    page.into_text()
}

/// The values of all metrics for a collector.
pub fn points(scrape: &Scrape, moment: &Moment<'_>) -> Vec<FamilyPoints> {
    let mut page = Page::of_points();
    fill(&mut page, scrape, moment);
    page.into_points()
}

fn fill(page: &mut Page, scrape: &Scrape, moment: &Moment<'_>) {
    process(page, scrape, moment);
    sessions(page, scrape, moment.shards);
    channels::channels(page, moment.shards);
    publications(page, scrape, moment.shards);
    clients(page, moment.shards);
    queues(page, moment.shards);
    connections(page, moment.shards);
    turns(page, moment.shards, moment.silent_shards);
    rooms::threads(page, scrape, moment);
    rooms::frames(page, scrape, moment.shards);
    matchmaking::matchmaking(page, &moment.matchmaking);
    backends::access(page, moment.access);
    backends::tokens(page, &moment.tokens);
    backends::backends(page, &moment.backends);
    backends::webhooks(page, &moment.webhooks);
    backends::profiles(page, &moment.profiles);
    backends::otlp(page, &moment.otlp);
    storage::storage(page, scrape, moment.storage.as_ref(), moment.control);
    cluster::cluster(page, moment.cluster.as_ref(), moment.peers.as_ref());
    control(page, moment.control);
}

fn process(page: &mut Page, scrape: &Scrape, moment: &Moment<'_>) {
    page.family(&m::BUILD_INFO, |samples| samples.add(&[scrape.version, scrape.reactor], 1_u64));
    page.single(&m::UPTIME, moment.uptime.as_secs_f64());
    page.single(&m::STANDARD_CPU, moment.process.cpu.as_secs_f64());
    page.single(&m::STANDARD_RESIDENT, moment.process.resident_bytes);
    page.single(&m::STANDARD_VIRTUAL, moment.process.virtual_bytes);
    page.single(&m::STANDARD_OPEN_FILES, moment.process.open_files);
    page.single(&m::STANDARD_FILES_MAX, moment.process.open_files_max);
    page.single(&m::STANDARD_START, moment.process.started_unix.as_secs_f64());
    page.single(&m::PROCESS_CPU, moment.process.cpu.as_secs_f64());
    page.single(&m::PROCESS_RESIDENT, moment.process.resident_bytes);
    page.single(&m::PROCESS_MEMORY_LIMIT, moment.control.memory_bytes_max());
    page.single(&m::PROCESS_OPEN_FILES, moment.process.open_files);
    page.single(&m::PROCESS_FILES_MAX, moment.process.open_files_max);
    page.single(&m::PROCESS_THREADS, moment.process.threads);
}

fn sessions(page: &mut Page, scrape: &Scrape, shards: &[ShardReport]) {
    page.family(&m::SESSIONS, |samples| per_shard(samples, shards, |shard| shard.survey.sessions.into()));
    page.single(&m::USERS, count_users(shards));
    page.single(&m::CHANNELS, shards.iter().map(|shard| u64::from(shard.survey.channels)).sum::<u64>());
    page.family(&m::SUBSCRIPTIONS, |samples| {
        per_namespace(samples, scrape, shards, |counters| counters.subscriptions);
    });
    page.family(&m::PACED_SUBSCRIPTIONS, |samples| {
        per_namespace(samples, scrape, shards, |counters| counters.paced_subscriptions);
    });
}

/// The number of users. A user with sessions on several shards counts once.
pub fn count_users(shards: &[ShardReport]) -> usize {
    let mut users: Vec<u64> = shards.iter().flat_map(|shard| shard.survey.users.iter().copied()).collect();
    users.sort_unstable();
    users.dedup();
    users.len()
}

fn publications(page: &mut Page, scrape: &Scrape, shards: &[ShardReport]) {
    type Pick = fn(&NamespaceCounters) -> u64;
    type Latency = fn(&NamespaceCounters) -> &Histogram;
    for (family, metric) in m::NAMESPACE_COUNTERS.iter().zip(&NamespaceCounters::METRICS) {
        page.family(family, |samples| per_namespace(samples, scrape, shards, metric.value));
    }
    page.family(&m::SUPPRESSED, |samples| {
        for (index, namespace) in scrape.namespaces().iter().enumerate() {
            for why in Suppression::ALL {
                let total = in_namespace(shards, index).map(|counters| counters.suppressed[why as usize]);
                samples.add(&[namespace, why.name()], total.sum::<u64>());
            }
        }
    });
    let by_yes_and_no: [(_, Pick, Pick); 3] = [
        (&m::RECOVERIES, |counters| counters.recovered, |counters| counters.unrecovered),
        (&m::RECOVERY_ANSWERS, |counters| counters.answers_shared, |counters| counters.answers_encoded),
        (&m::KEYS_GATHERED, |counters| counters.keys_gathered, |counters| counters.keys_missed),
    ];
    for (family, yes, no) in by_yes_and_no {
        page.family(family, |samples| {
            for (index, namespace) in scrape.namespaces().iter().enumerate() {
                let total = |pick: Pick| in_namespace(shards, index).map(pick).sum::<u64>();
                samples.add(&[namespace, "yes"], total(yes));
                samples.add(&[namespace, "no"], total(no));
            }
        });
    }
    page.family(&m::CACHED_BYTES, |samples| per_shard(samples, shards, |shard| shard.survey.cached_bytes));
    let latencies: [(_, Latency); 4] = [
        (&m::PUBLISH_TO_COMMIT, |counters| &counters.publish_to_commit),
        (&m::PUBLISH_TO_SHARD, |counters| &counters.publish_to_shard),
        (&m::PUBLISH_TO_LAST_SOCKET, |counters| &counters.publish_to_last_socket),
        (&m::PUBLISH_TO_SOCKET, |counters| &counters.publish_to_socket),
    ];
    for (family, latency) in latencies {
        page.family(family, |samples| {
            for (index, namespace) in scrape.namespaces().iter().enumerate() {
                add_latency(samples, &[namespace], in_namespace(shards, index).map(latency));
            }
        });
    }
}

fn add_latency<'a>(samples: &mut Samples<'_>, labels: &[&str], parts: impl Iterator<Item = &'a Histogram>) {
    let mut whole = Histogram::default();
    for part in parts {
        whole.sum_us += part.sum_us;
        for (total, count) in whole.buckets.iter_mut().zip(part.buckets) {
            *total += count;
        }
    }
    let [bounded @ .., beyond] = whole.buckets;
    let bounds_s = LATENCY_BOUNDS_US.iter().map(|bound_us| *bound_us as f64 / 1e6);
    let buckets: Vec<_> = bounds_s.zip(bounded).collect();
    samples.add_histogram(labels, &buckets, beyond, whole.sum_us as f64 / 1e6);
}

fn clients(page: &mut Page, shards: &[ShardReport]) {
    for (family, metric) in m::SHARD_COUNTERS.iter().zip(&Counters::METRICS) {
        page.single(family, sum(shards, metric.value));
    }
    page.family(&m::COMMANDS, |samples| {
        for kind in CommandKind::ALL {
            samples.add(&[kind.name()], sum(shards, |counters| place(&counters.commands, kind as usize)));
        }
    });
    page.family(&m::ERROR_REPLIES, |samples| {
        for code in ErrorCode::ALL.iter().map(|code| code.code()) {
            let index = code.saturating_sub(100) as usize;
            samples.add(&[&code.to_string()], sum(shards, |counters| place(&counters.error_replies, index)));
        }
    });
    page.family(&m::DISCONNECTS, |samples| disconnects(samples, shards));
    page.family(&m::SLOW_SESSIONS, |samples| {
        samples.add(&["bytes"], sum(shards, |counters| counters.slow_bytes));
        samples.add(&["frames"], sum(shards, |counters| counters.slow_frames));
    });
    page.family(&m::PING_ROUND_TRIP, |samples| {
        add_latency(samples, &[], shards.iter().map(|shard| &shard.counters.ping_round_trip));
    });
    page.family(&m::NETWORK_ROUND_TRIP, |samples| {
        add_latency(samples, &[], shards.iter().map(|shard| &shard.net.round_trip));
    });
}

/// Codes of the tables are always present; codes of applications after their first use.
fn disconnects(samples: &mut Samples<'_>, shards: &[ShardReport]) {
    let slots = shards.iter().map(|shard| shard.counters.closes.len()).max().unwrap_or(0);
    for slot in 0..slots {
        let count = sum(shards, |counters| place(&counters.closes, slot));
        let code = Counters::close_code(slot);
        let known = code.is_some_and(|code| Disconnect::ALL.iter().any(|disconnect| disconnect.code == code));
        if known || count > 0 {
            samples.add(&[&code.map_or_else(|| "other".to_owned(), |code| code.to_string())], count);
        }
    }
}

/// Bounds of [`dunlin_engine::api::Survey::behind_sessions`] in seconds.
const BEHIND_BOUNDS_S: [&str; 5] = ["0.001", "0.01", "0.1", "1", "10"];

fn queues(page: &mut Page, shards: &[ShardReport]) {
    page.family(&m::QUEUE_BYTES, |samples| per_shard(samples, shards, |shard| shard.survey.queued_bytes));
    page.family(&m::QUEUE_FRAMES, |samples| per_shard(samples, shards, |shard| shard.survey.queued_frames));
    page.family(&m::QUEUE_AGE, |samples| {
        for shard in shards {
            samples.add(&[&shard.shard.0.to_string()], shard.survey.queue_age_ms_max as f64 / 1e3);
        }
    });
    page.family(&m::SESSIONS_BEHIND, |samples| {
        for (index, bound) in BEHIND_BOUNDS_S.iter().enumerate() {
            let sessions = shards.iter().filter_map(|shard| shard.survey.behind_sessions.get(index));
            samples.add(&[bound], sessions.map(|count| u64::from(*count)).sum::<u64>());
        }
    });
}

fn connections(page: &mut Page, shards: &[ShardReport]) {
    let total = |pick: fn(&NetCounters) -> u64| shards.iter().map(|shard| pick(&shard.net)).sum::<u64>();
    page.family(&m::CONNECTIONS, |samples| per_shard(samples, shards, |shard| shard.net.connections));
    page.family(&m::WEBSOCKETS, |samples| per_shard(samples, shards, |shard| shard.net.sessions));
    page.family(&m::ACCEPTED, |samples| per_shard(samples, shards, |shard| shard.net.accepted));
    page.family(&m::ACCEPT_FAILURES, |samples| {
        samples.add(&["out_of_files"], total(|net| net.accepts_out_of_files));
        samples.add(&["reserved"], total(|net| net.accepts_reserved));
        samples.add(&["shard_full"], total(|net| net.accepts_shard_full));
        samples.add(&["other"], total(|net| net.accepts_failed));
    });
    page.family(&m::REFUSED, |samples| {
        for reason in RefusalReason::ALL {
            let count = shards.iter().map(|shard| place(&shard.net.refused, reason.index())).sum::<u64>();
            samples.add(&[reason.name()], count);
        }
    });
    page.family(&m::PLACED, |samples| per_shard(samples, shards, |shard| shard.net.placed));
    page.single(&m::IMBALANCE, imbalance(shards));
    page.family(&m::RATE_REFUSED, |samples| {
        samples.add(&["connect"], sum(shards, |counters| counters.connects_refused));
        samples.add(&["command"], sum(shards, |counters| counters.commands_refused));
        samples.add(&["recovery"], sum(shards, |counters| counters.recoveries_refused));
    });
    page.single(&m::LOG_DROPPED, crate::telemetry::log::lines_dropped());
    page.single(&m::ABANDONED, total(|net| net.abandoned));
    page.family(&m::TRANSPORTS, |samples| {
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        for wire in Wire::ALL {
            let opened = shards.iter().map(|shard| place(&shard.net.opened, wire.index())).sum::<u64>();
            *counts.entry(wire.transport_name()).or_default() += opened;
        }
        for (transport, count) in &counts {
            samples.add(&[transport], *count);
        }
    });
    page.family(&m::TLS_HANDSHAKES, |samples| {
        samples.add(&["finished"], total(|net| net.tls_handshakes));
        samples.add(&["failed"], total(|net| net.tls_failures));
    });
    page.single(&m::HANDED_OVER, total(|net| net.handed_over));
    page.family(&m::OPENED_WEBSOCKETS, |samples| {
        samples.add(&["shard"], total(|net| net.upgraded));
        samples.add(&["http"], total(|net| net.adopted));
    });
    shard_readings(page, shards, m::SOCKETS);
}

/// The maximum number of sessions of a shard, divided by the mean; 1 without sessions.
fn imbalance(shards: &[ShardReport]) -> f64 {
    let sessions = || shards.iter().map(|shard| shard.net.sessions);
    let (most, all) = (sessions().max().unwrap_or(0), sessions().sum::<u64>());
    if all == 0 { 1.0 } else { (most * shards.len() as u64) as f64 / all as f64 }
}

fn turns(page: &mut Page, shards: &[ShardReport], silent_shards: &[ShardIndex]) {
    type Pick = fn(&NetCounters) -> u64;
    page.family(&m::SHARD_ANSWERED, |samples| {
        let answered = shards.iter().map(|shard| (shard.shard, 1_u64));
        for (shard, is_there) in answered.chain(silent_shards.iter().map(|shard| (*shard, 0))) {
            samples.add(&[&shard.0.to_string()], is_there);
        }
    });
    page.family(&m::TURNS, |samples| per_shard(samples, shards, |shard| shard.net.turns));
    let seconds: [(&'static m::Family, Pick); 3] =
        [(&m::BUSY, |net| net.busy_us), (&m::HELD, |net| net.held_us), (&m::IDLE, |net| net.idle_us)];
    for (family, pick) in seconds {
        page.family(family, |samples| {
            for shard in shards {
                samples.add(&[&shard.shard.0.to_string()], pick(&shard.net) as f64 / 1e6);
            }
        });
    }
    page.family(&m::BUSY_RATIO, |samples| {
        for shard in shards {
            samples.add(&[&shard.shard.0.to_string()], f64::from(shard.net.busy_ppm) / 1e6);
        }
    });
    shard_readings(page, shards, m::TURNS_AND_RINGS);
}

fn control(page: &mut Page, control: &ControlCounters) {
    page.family(&m::API_REQUESTS, |samples| {
        for method in Method::ALL {
            samples.add(&[method.name()], control.requests(method));
        }
    });
    page.family(&m::API_ERRORS, |samples| {
        for method in Method::ALL {
            for (code, count) in control.errors(method) {
                samples.add(&[method.name(), &code.to_string()], count);
            }
        }
    });
    page.family(&m::TLS_RELOADS, |samples| {
        samples.add(&["renewed"], control.certificates(true));
        samples.add(&["failed"], control.certificates(false));
    });
    page.family(&m::CONFIG_RELOADS, |samples| {
        for outcome in ReloadOutcome::ALL {
            samples.add(&[outcome.name()], control.reloads(outcome));
        }
    });
    page.single(&m::CONFIG_LAST_RELOAD, control.last_reload_s());
    page.single(&m::HTTP_CONNECTIONS, control.connections());
    page.single(&m::CONSOLE_REPLAYS, control.replays());
    page.family(&m::HTTP_REFUSED, |samples| {
        for reason in HttpRefusal::ALL {
            samples.add(&[reason.name()], control.refused(reason));
        }
    });
}

fn shard_readings(page: &mut Page, shards: &[ShardReport], readings: &'static [m::Reading<NetCounters>]) {
    for reading in readings {
        page.family(&reading.family, |samples| per_shard(samples, shards, |shard| (reading.value)(&shard.net)));
    }
}

fn per_shard(samples: &mut Samples<'_>, shards: &[ShardReport], pick: impl Fn(&ShardReport) -> u64) {
    for shard in shards {
        samples.add(&[&shard.shard.0.to_string()], pick(shard));
    }
}

fn per_namespace(
    samples: &mut Samples<'_>,
    scrape: &Scrape,
    shards: &[ShardReport],
    pick: impl Fn(&NamespaceCounters) -> u64,
) {
    for (index, namespace) in scrape.namespaces().iter().enumerate() {
        samples.add(&[namespace], in_namespace(shards, index).map(&pick).sum::<u64>());
    }
}

fn in_namespace(shards: &[ShardReport], index: usize) -> impl Iterator<Item = &NamespaceCounters> {
    shards.iter().filter_map(move |shard| shard.counters.namespaces.get(index))
}

fn sum(shards: &[ShardReport], pick: impl Fn(&Counters) -> u64) -> u64 {
    shards.iter().map(|shard| pick(&shard.counters)).sum()
}

fn place(counts: &[u64], index: usize) -> u64 {
    counts.get(index).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests;
