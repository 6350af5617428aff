//! The page of metrics, computed from what the shards report.

mod backends;
mod rooms;

use std::{collections::BTreeMap, sync::Mutex, time::Duration};

use dunlin_engine::{
    Wire,
    counters::{COMMAND_KINDS, Counters, Histogram, LATENCY_BOUNDS_US, NamespaceCounters, Suppression},
};
use dunlin_protocol::{Disconnect, ErrorCode};

use super::{
    api_counters::{ControlCounters, HttpRefusal},
    exposition::{Page, Samples},
    metrics as m,
    process::ProcessUse,
};
use crate::{
    backend::BackendCounts,
    http::api::Method,
    node::{NetCounters, RefusalReason, ShardReport},
    rooms::{RoomReport, ThreadReport},
    token::TokenCounts,
};

pub use super::exposition::CONTENT_TYPE;

/// What stays the same from page to page, and what one page must remember for the next.
pub struct Scrape {
    /// The server's version.
    pub version: &'static str,
    /// What the shards wait on.
    pub reactor: &'static str,
    /// Names of the namespaces, in the order of [`Counters::namespaces`].
    pub namespaces: Vec<String>,
    /// Busy and idle time of each shard at the last page.
    last_turns: Mutex<Vec<(u64, u64)>>,
}

/// What is true at the moment of the page.
pub struct Moment<'a> {
    /// What the shards counted.
    pub shards: &'a [ShardReport],
    /// What the room threads counted.
    pub room_threads: &'a [ThreadReport],
    /// What there is to tell of each room.
    pub rooms: &'a [RoomReport],
    /// What the control thread counted.
    pub control: &'a ControlCounters,
    /// What was counted about tokens.
    pub tokens: TokenCounts,
    /// What was counted about backends.
    pub backends: BackendCounts,
    /// What the process uses.
    pub process: ProcessUse,
    /// Time since the start.
    pub uptime: Duration,
}

impl Scrape {
    /// For a node whose options name these `namespaces`.
    pub fn new(version: &'static str, reactor: &'static str, namespaces: impl IntoIterator<Item = String>) -> Self {
        let namespaces = std::iter::once(m::NO_NAMESPACE.to_owned()).chain(namespaces).collect();
        Self { version, reactor, namespaces, last_turns: Mutex::default() }
    }

    /// The share of time that each shard worked since the last call.
    fn busy_ratios(&self, shards: &[ShardReport]) -> Vec<f64> {
        let now: Vec<_> = shards.iter().map(|shard| (shard.net.busy_us, shard.net.idle_us)).collect();
        let mut last = self.last_turns.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let before = std::mem::replace(&mut *last, now.clone());
        let before = before.into_iter().chain(std::iter::repeat((0, 0)));
        now.into_iter()
            .zip(before)
            .map(|((busy_us, idle_us), (busy_before_us, idle_before_us))| {
                let busy_us = busy_us.saturating_sub(busy_before_us);
                let whole_us = busy_us + idle_us.saturating_sub(idle_before_us);
                if whole_us == 0 { 0.0 } else { busy_us as f64 / whole_us as f64 }
            })
            .collect()
    }
}

/// The page of metrics.
pub fn page(scrape: &Scrape, moment: &Moment<'_>) -> String {
    let mut page = Page::default();
    process(&mut page, scrape, moment);
    sessions(&mut page, scrape, moment.shards);
    publications(&mut page, scrape, moment.shards);
    clients(&mut page, moment.shards);
    queues(&mut page, moment.shards);
    connections(&mut page, moment.shards);
    turns(&mut page, moment.shards, &scrape.busy_ratios(moment.shards));
    rooms::threads(&mut page, scrape, moment);
    rooms::frames(&mut page, scrape, moment.shards);
    backends::tokens(&mut page, &moment.tokens);
    backends::backends(&mut page, &moment.backends);
    control(&mut page, moment.control);
    page.into_text()
}

fn process(page: &mut Page, scrape: &Scrape, moment: &Moment<'_>) {
    page.family(&m::BUILD_INFO, |samples| samples.add(&[scrape.version, scrape.reactor], 1));
    page.single(&m::UPTIME, moment.uptime.as_secs_f64());
    page.single(&m::PROCESS_CPU, moment.process.cpu.as_secs_f64());
    page.single(&m::PROCESS_RESIDENT, moment.process.resident_bytes);
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
    page.single(&m::SESSIONS_OPENED, sum(shards, |counters| counters.sessions_opened));
}

/// Users, each counted once for however many shards they have sessions on.
pub fn count_users(shards: &[ShardReport]) -> usize {
    let mut users: Vec<u64> = shards.iter().flat_map(|shard| shard.survey.users.iter().copied()).collect();
    users.sort_unstable();
    users.dedup();
    users.len()
}

fn publications(page: &mut Page, scrape: &Scrape, shards: &[ShardReport]) {
    type Pick = fn(&NamespaceCounters) -> u64;
    let counters: [(&'static m::Family, Pick); 8] = [
        (&m::PUBLICATIONS, |counters| counters.publications),
        (&m::ENCODES, |counters| counters.encodes),
        (&m::ENCODES_SKIPPED, |counters| counters.encodes_skipped),
        (&m::DELIVERIES, |counters| counters.deliveries),
        (&m::JOIN_LEAVE_DELIVERIES, |counters| counters.join_leave_deliveries),
        (&m::SKIPPED, |counters| counters.skipped),
        (&m::FILTERED, |counters| counters.filtered),
        (&m::PATCHES, |counters| counters.patches),
    ];
    for (family, pick) in counters {
        page.family(family, |samples| per_namespace(samples, scrape, shards, pick));
    }
    page.family(&m::SUPPRESSED, |samples| {
        for (index, namespace) in scrape.namespaces.iter().enumerate() {
            for why in Suppression::ALL {
                let total = in_namespace(shards, index).map(|counters| counters.suppressed[why as usize]);
                samples.add(&[namespace, why.name()], total.sum::<u64>());
            }
        }
    });
    let by_yes_and_no: [(_, Pick, Pick); 2] = [
        (&m::RECOVERIES, |counters| counters.recovered, |counters| counters.unrecovered),
        (&m::RECOVERY_ANSWERS, |counters| counters.answers_shared, |counters| counters.answers_encoded),
    ];
    for (family, yes, no) in by_yes_and_no {
        page.family(family, |samples| {
            for (index, namespace) in scrape.namespaces.iter().enumerate() {
                let total = |pick: Pick| in_namespace(shards, index).map(pick).sum::<u64>();
                samples.add(&[namespace, "yes"], total(yes));
                samples.add(&[namespace, "no"], total(no));
            }
        });
    }
    let too_long: [(_, Pick); 2] = [
        (&m::HISTORIES_CUT, |counters| counters.histories_cut),
        (&m::PRESENCES_REFUSED, |counters| counters.presences_refused),
    ];
    for (family, pick) in too_long {
        page.family(family, |samples| per_namespace(samples, scrape, shards, pick));
    }
    page.family(&m::PUBLISH_TO_SOCKET, |samples| {
        for (index, namespace) in scrape.namespaces.iter().enumerate() {
            add_latency(samples, namespace, in_namespace(shards, index).map(|counters| &counters.publish_to_socket));
        }
    });
}

fn add_latency<'a>(samples: &mut Samples<'_>, label: &str, parts: impl Iterator<Item = &'a Histogram>) {
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
    samples.add_histogram(&[label], &buckets, beyond, whole.sum_us as f64 / 1e6);
}

fn clients(page: &mut Page, shards: &[ShardReport]) {
    page.family(&m::COMMANDS, |samples| {
        for (index, kind) in COMMAND_KINDS.iter().enumerate() {
            samples.add(&[kind], sum(shards, |counters| place(&counters.commands, index)));
        }
    });
    page.family(&m::ERROR_REPLIES, |samples| {
        for code in ErrorCode::ALL.iter().map(|code| code.code()) {
            let index = code.saturating_sub(100) as usize;
            samples.add(&[&code.to_string()], sum(shards, |counters| place(&counters.error_replies, index)));
        }
    });
    page.family(&m::DISCONNECTS, |samples| disconnects(samples, shards));
    page.single(&m::MALFORMED_FRAMES, sum(shards, |counters| counters.malformed_frames));
    page.single(&m::VIOLATIONS, sum(shards, |counters| counters.violations));
    page.family(&m::SLOW_SESSIONS, |samples| {
        samples.add(&["bytes"], sum(shards, |counters| counters.slow_bytes));
        samples.add(&["frames"], sum(shards, |counters| counters.slow_frames));
    });
    page.single(&m::LATE_MESSAGES, sum(shards, |counters| counters.late_messages));
    page.single(&m::USER_SESSIONS_REFUSED, sum(shards, |counters| counters.user_sessions_refused));
    page.single(&m::SERVER_SUBSCRIPTIONS_REFUSED, sum(shards, |counters| counters.server_subscriptions_refused));
}

/// The codes of the tables always; others that applications have used, once they have.
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
    page.family(&m::READ_BYTES, |samples| per_shard(samples, shards, |shard| shard.net.read_bytes));
    page.family(&m::WRITTEN_BYTES, |samples| per_shard(samples, shards, |shard| shard.net.write_bytes));
    page.family(&m::WRITES, |samples| per_shard(samples, shards, |shard| shard.net.writes));
    page.family(&m::BLOCKED_WRITES, |samples| per_shard(samples, shards, |shard| shard.net.blocked_writes));
    page.family(&m::REACTOR_CALLS, |samples| per_shard(samples, shards, |shard| shard.net.reactor.calls));
    page.family(&m::SEND_SUBMISSIONS, |samples| per_shard(samples, shards, |shard| shard.net.reactor.batches));
    page.family(&m::SUBMITTED_SENDS, |samples| per_shard(samples, shards, |shard| shard.net.reactor.batched_sends));
    page.family(&m::BUFFERS_EMPTY, |samples| per_shard(samples, shards, |shard| shard.net.reactor.buffers_ran_out));
}

/// Most sessions of a shard over the mean; 1 where there are none.
fn imbalance(shards: &[ShardReport]) -> f64 {
    let sessions = || shards.iter().map(|shard| shard.net.sessions);
    let (most, all) = (sessions().max().unwrap_or(0), sessions().sum::<u64>());
    if all == 0 { 1.0 } else { (most * shards.len() as u64) as f64 / all as f64 }
}

fn turns(page: &mut Page, shards: &[ShardReport], busy_ratios: &[f64]) {
    type Pick = fn(&NetCounters) -> u64;
    page.family(&m::TURNS, |samples| per_shard(samples, shards, |shard| shard.net.turns));
    let seconds: [(&'static m::Family, Pick); 2] = [(&m::BUSY, |net| net.busy_us), (&m::IDLE, |net| net.idle_us)];
    for (family, pick) in seconds {
        page.family(family, |samples| {
            for shard in shards {
                samples.add(&[&shard.shard.0.to_string()], pick(&shard.net) as f64 / 1e6);
            }
        });
    }
    page.family(&m::BUSY_RATIO, |samples| {
        for (shard, ratio) in shards.iter().zip(busy_ratios) {
            samples.add(&[&shard.shard.0.to_string()], ratio);
        }
    });
    page.family(&m::HELD_TURNS, |samples| per_shard(samples, shards, |shard| shard.net.held_turns));
    page.family(&m::WAKES, |samples| per_shard(samples, shards, |shard| shard.net.wakes));
    page.family(&m::RING_MESSAGES, |samples| per_shard(samples, shards, |shard| shard.net.ring_messages));
    page.family(&m::RING_OVERFLOWED, |samples| per_shard(samples, shards, |shard| shard.net.ring_overflowed));
    page.family(&m::RING_OVERFLOW, |samples| per_shard(samples, shards, |shard| shard.net.ring_overflow));
    page.family(&m::RING_DEPTH, |samples| per_shard(samples, shards, |shard| shard.net.ring_depth));
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
    page.single(&m::HTTP_CONNECTIONS, control.connections());
    page.family(&m::HTTP_REFUSED, |samples| {
        for reason in HttpRefusal::ALL {
            samples.add(&[reason.name()], control.refused(reason));
        }
    });
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
    for (index, namespace) in scrape.namespaces.iter().enumerate() {
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
mod tests {
    use std::collections::HashMap;

    use dunlin_engine::{ShardIndex, api::Survey};

    use super::*;
    use crate::http::api::ApiError;

    fn shard(index: u16) -> ShardReport {
        let mut report = ShardReport {
            shard: ShardIndex(index),
            counters: Counters::new(2),
            survey: Survey { sessions: 3, users: vec![1, 2 + u64::from(index)], channels: 5, ..Survey::default() },
            net: NetCounters { busy_us: 250_000, idle_us: 750_000, writes: 11, ..NetCounters::default() },
        };
        report.counters.namespaces[1].publications = 7;
        report.counters.namespaces[1].publish_to_socket.observe(60);
        report.counters.namespaces[1].publish_to_socket.observe(20_000_000);
        report.counters.count_close(3008);
        report.counters.count_close(4321);
        report.survey.queue_age_ms_max = 1_500;
        report.survey.behind_sessions = [5, 4, 3, 2, 1];
        report
    }

    fn moment<'a>(shards: &'a [ShardReport], control: &'a ControlCounters) -> Moment<'a> {
        let (process, uptime) = (ProcessUse::default(), Duration::ZERO);
        let (tokens, backends) = (TokenCounts::default(), BackendCounts::default());
        Moment { shards, room_threads: &[], rooms: &[], control, tokens, backends, process, uptime }
    }

    fn samples_of(text: &str) -> HashMap<&str, f64> {
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        samples.map(|line| line.rsplit_once(' ').unwrap()).map(|(name, value)| (name, value.parse().unwrap())).collect()
    }

    #[test]
    fn the_page_holds_every_family_and_no_other() {
        let scrape = Scrape::new("0", "epoll", ["chat".to_owned()]);
        let (control, shard) = (ControlCounters::default(), shard(0));
        let moment = moment(std::slice::from_ref(&shard), &control);
        let text = page(&scrape, &moment);
        let on_page: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
        let listed: Vec<_> = m::FAMILIES.iter().map(|family| family.name).collect();
        assert_eq!(on_page, listed);
    }

    #[test]
    fn the_imbalance_is_that_of_the_fullest_shard() {
        let with = |sessions: u64| {
            let mut report = shard(0);
            report.net.sessions = sessions;
            report
        };
        assert!((imbalance(&[with(30), with(10)]) - 1.5).abs() < 1e-9);
        assert!((imbalance(&[with(0), with(0)]) - 1.0).abs() < 1e-9 && (imbalance(&[]) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn shards_are_added_up_or_told_apart() {
        let scrape = Scrape::new("0", "epoll", ["chat".to_owned()]);
        let control = ControlCounters::default();
        control.count_request(Method::Publish, Some(&ApiError::NOT_AVAILABLE));
        let shards = [shard(0), shard(1)];
        let moment = moment(&shards, &control);
        let text = page(&scrape, &moment);
        let samples = samples_of(&text);
        for (name, value) in [
            ("dunlin_publications_total{namespace=\"chat\"}", 14.0),
            ("dunlin_publications_total{namespace=\"-\"}", 0.0),
            ("dunlin_sessions{shard=\"1\"}", 3.0),
            ("dunlin_users", 3.0),
            ("dunlin_channels", 10.0),
            ("dunlin_writes_total{shard=\"0\"}", 11.0),
            ("dunlin_shard_busy_ratio{shard=\"1\"}", 0.25),
            ("dunlin_shard_busy_seconds_total{shard=\"1\"}", 0.25),
            ("dunlin_disconnects_total{code=\"3008\"}", 2.0),
            ("dunlin_disconnects_total{code=\"other\"}", 2.0),
            ("dunlin_disconnects_total{code=\"3500\"}", 0.0),
            ("dunlin_queue_age_seconds{shard=\"0\"}", 1.5),
            ("dunlin_sessions_behind{over_seconds=\"0.1\"}", 6.0),
            ("dunlin_publish_to_socket_seconds_bucket{namespace=\"chat\",le=\"0.00005\"}", 0.0),
            ("dunlin_publish_to_socket_seconds_bucket{namespace=\"chat\",le=\"0.0001\"}", 2.0),
            ("dunlin_publish_to_socket_seconds_bucket{namespace=\"chat\",le=\"10\"}", 2.0),
            ("dunlin_publish_to_socket_seconds_bucket{namespace=\"chat\",le=\"+Inf\"}", 4.0),
            ("dunlin_publish_to_socket_seconds_count{namespace=\"chat\"}", 4.0),
            ("dunlin_api_requests_total{method=\"publish\"}", 1.0),
            ("dunlin_api_errors_total{method=\"publish\",code=\"108\"}", 1.0),
        ] {
            assert_eq!(samples.get(name), Some(&value), "{name}");
        }
    }

    #[test]
    fn the_busy_ratio_is_of_the_time_since_the_last_page() {
        let scrape = Scrape::new("0", "epoll", []);
        let mut report = shard(0);
        assert_eq!(scrape.busy_ratios(std::slice::from_ref(&report)), [0.25]);
        assert_eq!(scrape.busy_ratios(std::slice::from_ref(&report)), [0.0]);
        report.net.busy_us += 30;
        report.net.idle_us += 10;
        assert_eq!(scrape.busy_ratios(std::slice::from_ref(&report)), [0.75]);
    }
}
