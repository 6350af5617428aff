//! Metrics of rooms.

use dunlin_engine::{
    counters::{InputRefusal, MessageOutcome, NamespaceRoomCounters as OfShards},
    host::CallCounts,
    room::RoomRefusal,
};

use dunlin_relay::{LinkLoss, RelayCounters, RelayLimit};

use super::{Moment, Page, Samples, Scrape, ShardReport, add_latency, in_namespace, m, place, sum};
use crate::rooms::{
    CutReason, Deletion, FailureReason, RecordingReport, RoomCounters, SurvivalReport, TICK_BOUNDS_US, ThreadReport,
    TickHistogram,
};

/// Reads a shard's counter for the rooms of a namespace.
type OfNamespace = fn(&OfShards) -> u64;

/// Reads a counter of the relay.
type OfRelay = fn(&RelayCounters) -> u64;

/// Reads a value of a thread's report.
type Pick = fn(&ThreadReport) -> u64;

pub(super) fn threads(page: &mut Page, scrape: &Scrape, moment: &Moment<'_>) {
    let threads = moment.room_threads;
    let total = |pick: fn(&RoomCounters) -> u64| threads.iter().map(|thread| pick(&thread.counters)).sum::<u64>();
    let gauges: [(&'static m::Family, Pick); 4] = [
        (&m::ROOMS, |thread| thread.rooms.into()),
        (&m::ROOMS_OPENING, |thread| thread.opening.into()),
        (&m::ROOM_PLAYERS, |thread| thread.players),
        (&m::ROOM_SPECTATORS, |thread| thread.spectators),
    ];
    for (family, pick) in gauges {
        per_thread(page, family, threads, |thread| pick(thread) as f64);
    }
    page.single(&m::ROOMS_MEMORY, moment.room_memory_bytes);
    let builder = moment.room_builder;
    page.single(&m::ROOM_BUILDER_BUSY, builder.busy_ns as f64 / 1e9);
    page.single(&m::ROOM_BUILDER_REPLACED, builder.replaced);
    page.single(&m::ROOM_BUILDER_LOST, builder.replaced.saturating_sub(builder.came_back));
    page.single(&m::ROOMS_OPENED, total(|counters| counters.opened));
    page.family(&m::ROOMS_REFUSED, |samples| {
        for (index, namespace) in scrape.namespaces().iter().enumerate() {
            for (reason, refusal) in RoomRefusal::ALL.into_iter().enumerate() {
                let counted = in_namespace(moment.shards, index).map(|counters| place(&counters.rooms.refused, reason));
                samples.add(&[namespace, refusal.name()], counted.sum::<u64>());
            }
        }
    });
    page.single(&m::ROOMS_CLOSED, total(|counters| counters.closed));
    page.family(&m::ROOMS_FAILED, |samples| {
        for (index, reason) in FailureReason::ALL.into_iter().enumerate() {
            let failed = threads.iter().map(|thread| place(&thread.counters.failed, index)).sum::<u64>();
            samples.add(&[reason.name()], failed);
        }
    });
    joins(page, moment);
    ticks(page, moment);
    relay(page, moment.room_relay);
    page.family(&m::ROOM_INPUTS, |samples| {
        let undecodable = total(|counters| counters.undecodable_inputs);
        samples.add(&["applied"], total(|counters| counters.inputs) - undecodable);
        samples.add(&["undecodable"], undecodable);
        for refusal in InputRefusal::ALL {
            let refused = sum(moment.shards, |counters| place(&counters.inputs_refused, refusal as usize));
            samples.add(&[refusal.name()], refused);
        }
    });
    page.single(&m::ROOM_VALUES_LIMITED, total(|counters| counters.values_limited));
    page.family(&m::ROOM_MESSAGES, |samples| {
        for outcome in MessageOutcome::ALL {
            let namespaces = moment.shards.iter().flat_map(|shard| &shard.counters.namespaces);
            let counted = namespaces.map(|counters| place(&counters.rooms.messages, outcome as usize));
            samples.add(&[outcome.name()], counted.sum::<u64>());
        }
    });
    calls(page, threads);
    page.single(&m::ROOM_EVENTS, total(|counters| counters.events));
    page.family(&m::ROOM_PUBLICATIONS, |samples| {
        let refused = sum(moment.shards, |counters| counters.room_publications_refused);
        samples.add(&["accepted"], total(|counters| counters.publications).saturating_sub(refused));
        samples.add(&["refused"], refused);
    });
    page.single(&m::ROOM_KEYFRAMES, total(|counters| counters.keyframes));
    page.single(&m::ROOM_UPDATES, total(|counters| counters.updates));
    recordings(page, &moment.recordings);
    survival(page, moment.room_survival);
    page.family(&m::ROOM_PATH_BLOCKS, |samples| {
        samples.add(&["stored"], moment.paths.stored);
        samples.add(&["queue_full"], moment.paths.queue_full);
        samples.add(&["storage_failed"], moment.paths.storage_failed);
    });
    page.single(&m::ROOM_PATH_POINTS, moment.paths.points);
    page.single(&m::ROOM_PATH_BYTES, moment.paths.stored_bytes);
}

/// Adds the families of joins and seats.
fn joins(page: &mut Page, moment: &Moment<'_>) {
    let (threads, shards) = (moment.room_threads, moment.shards);
    let total = |pick: fn(&RoomCounters) -> u64| threads.iter().map(|thread| pick(&thread.counters)).sum::<u64>();
    let of_shards = |pick: OfNamespace| {
        let namespaces = shards.iter().flat_map(|shard| &shard.counters.namespaces);
        namespaces.map(|counters| pick(&counters.rooms)).sum::<u64>()
    };
    page.family(&m::ROOM_JOINS, |samples| {
        samples.add(&["accepted"], total(|counters| counters.joins));
        samples.add(&["refused"], total(|counters| counters.joins_refused));
        samples.add(&["reserved"], total(|counters| counters.joins_reserved));
        samples.add(&["gone"], of_shards(|rooms| rooms.joins_gone));
        samples.add(&["not_read"], of_shards(|rooms| rooms.joins_unread));
        samples.add(&["too_many_wait"], of_shards(|rooms| rooms.joins_unheld));
    });
    page.family(&m::ROOM_SEATS, |samples| {
        samples.add(&["kept"], of_shards(|rooms| rooms.seats_kept));
        samples.add(&["not_kept"], of_shards(|rooms| rooms.seats_not_kept));
        samples.add(&["resumed"], total(|counters| counters.seats_resumed));
        samples.add(&["expired"], total(|counters| counters.seats_expired));
        samples.add(&["displaced"], total(|counters| counters.seats_displaced));
        samples.add(&["unseated"], total(|counters| counters.unseated));
        samples.add(&["token_unknown"], total(|counters| counters.tokens_refused.unknown as u64));
        samples.add(&["token_of_other_user"], total(|counters| counters.tokens_refused.other_user as u64));
    });
}

/// Adds the families of games' calls to the backend.
fn calls(page: &mut Page, threads: &[ThreadReport]) {
    let total = |pick: fn(&CallCounts) -> u64| threads.iter().map(|thread| pick(&thread.counters.calls)).sum::<u64>();
    page.family(&m::ROOM_CALLS, |samples| {
        samples.add(&["answered"], total(|calls| calls.answered));
        samples.add(&["error"], total(|calls| calls.errors));
        samples.add(&["failed"], total(|calls| calls.failed));
        samples.add(&["busy"], total(|calls| calls.busy));
        samples.add(&["too_long"], total(|calls| calls.too_long));
        samples.add(&["timeout"], total(|calls| calls.timed_out));
        samples.add(&["late"], total(|calls| calls.late));
        samples.add(&["lost"], total(|calls| calls.lost));
        samples.add(&["refused"], total(|calls| calls.refused));
    });
}

/// Adds the families of recordings.
fn recordings(page: &mut Page, report: &RecordingReport) {
    page.single(&m::ROOM_RECORDINGS_BYTES, report.bytes);
    page.family(&m::ROOM_RECORDINGS_DELETED, |samples| {
        for (outcome, count) in Deletion::ALL.into_iter().zip(report.deletions) {
            samples.add(&[outcome.name()], count);
        }
    });
    page.family(&m::ROOM_RECORDINGS_CUT, |samples| {
        for (reason, count) in CutReason::ALL.into_iter().zip(report.cut) {
            samples.add(&[reason.name()], count);
        }
    });
}

/// Adds the families of stored rooms; without a storage they have no samples.
fn survival(page: &mut Page, report: Option<SurvivalReport>) {
    type Count = fn(&SurvivalReport) -> u64;
    let outcomes = |page: &mut Page, family: &'static m::Family, counts: &[(&str, Count)]| {
        page.family(family, |samples| {
            for (report, (outcome, count)) in
                report.iter().flat_map(|report| counts.iter().map(move |count| (report, count)))
            {
                samples.add(&[*outcome], count(report));
            }
        });
    };
    outcomes(
        page,
        &m::ROOM_CHECKPOINTS,
        &[("written", |report| report.checkpoints), ("failed", |report| report.checkpoints_failed)],
    );
    let counters: [(&'static m::Family, Count); 4] = [
        (&m::ROOM_CHECKPOINT_BYTES, |report| report.checkpoint_bytes),
        (&m::ROOM_LOG_RECORDS, |report| report.records),
        (&m::ROOM_LOG_BYTES, |report| report.record_bytes),
        (&m::ROOM_TICKS_REPLAYED, |report| report.replayed_ticks),
    ];
    for (family, count) in counters {
        page.family(family, |samples| report.iter().for_each(|report| samples.add(&[], count(report))));
    }
    outcomes(
        page,
        &m::ROOMS_RESTORED,
        &[
            ("restored", |report| report.restored),
            ("migrated", |report| report.migrated),
            ("failed", |report| report.not_restored),
        ],
    );
}

/// Adds the families of rooms with players on several nodes; without a cluster they have no samples.
fn relay(page: &mut Page, counters: Option<RelayCounters>) {
    let with_label: [(&'static m::Family, &[(&str, OfRelay)]); 3] = [
        (&m::ROOM_REMOTE_PLAYERS, &[("away", |of| of.players_away), ("here", |of| of.players_here)]),
        (
            &m::ROOM_RELAY_FRAMES,
            &[
                ("sent", |of| of.frames_sent),
                ("received", |of| of.frames_received),
                ("unknown", |of| of.frames_unknown),
            ],
        ),
        (&m::ROOM_RELAY_BYTES, &[("sent", |of| of.bytes_sent), ("received", |of| of.bytes_received)]),
    ];
    page.family(&m::ROOM_REMOTE_ROOMS, |samples| counters.iter().for_each(|of| samples.add(&[], of.rooms)));
    for (family, values) in with_label {
        page.family(family, |samples| {
            if let Some(counters) = &counters {
                for (label, value) in values {
                    samples.add(&[label], value(counters));
                }
            }
        });
    }
    page.family(&m::ROOM_RELAY_LOSSES, |samples| {
        if let Some(counters) = counters {
            for (why, lost) in LinkLoss::ALL.into_iter().zip(counters.losses) {
                samples.add(&[why.name()], lost);
            }
        }
    });
    page.family(&m::ROOM_RELAY_LIMITS, |samples| {
        if let Some(counters) = counters {
            for (limit, times) in RelayLimit::ALL.into_iter().zip(counters.limits) {
                samples.add(&[limit.name()], times);
            }
        }
    });
}

fn ticks(page: &mut Page, moment: &Moment<'_>) {
    let threads = moment.room_threads;
    per_thread(page, &m::ROOM_TICKS, threads, |thread| thread.counters.ticks as f64);
    page.family(&m::ROOM_TICK_DURATION, |samples| {
        for thread in threads {
            let name = thread.thread.to_string();
            if !samples.add_exponential(&[&name], || thread.counters.tick_duration_fine.exponential()) {
                add_ticks(samples, &name, &thread.counters.tick_duration);
            }
        }
    });
    histogram(page, &m::ROOM_TICK_LATENESS, threads, |thread| &thread.counters.tick_lateness);
    per_thread(page, &m::ROOM_TICK_LONGEST, threads, |thread| {
        let rooms = moment.rooms.iter().filter(|room| room.thread == thread.thread);
        f64::from(rooms.map(|room| room.tick_p99_us).max().unwrap_or(0)) / 1e6
    });
    per_thread(page, &m::ROOM_TICKS_LATE, threads, |thread| thread.counters.late as f64);
    page.family(&m::ROOM_TICKS_SKIPPED, |samples| {
        for thread in threads {
            let name = thread.thread.to_string();
            samples.add(&[&name, "late"], thread.counters.skipped);
            samples.add(&[&name, "held"], thread.counters.held);
            samples.add(&[&name, "held_for_log"], thread.counters.held_for_log);
        }
    });
    per_thread(page, &m::ROOM_OVERRUNS, threads, |thread| thread.counters.overruns as f64);
    per_thread(page, &m::ROOM_RATE, threads, |thread| {
        let rooms = moment.rooms.iter().filter(|room| room.thread == thread.thread);
        f64::from(rooms.map(|room| room.rate).min().unwrap_or_default().permille()) / 1e3
    });
    per_thread(page, &m::ROOM_LOAD, threads, |thread| f64::from(thread.load_permille) / 1e3);
    per_thread(page, &m::ROOM_BUSY, threads, |thread| thread.counters.busy_ns as f64 / 1e9);
    per_thread(page, &m::ROOM_THREADS_REPLACED, threads, |thread| thread.counters.replaced as f64);
    let lost = |counters: &RoomCounters| counters.replaced.saturating_sub(counters.came_back);
    per_thread(page, &m::ROOM_THREADS_LOST, threads, |thread| lost(&thread.counters) as f64);
    per_thread(page, &m::ROOM_PRIORITY, threads, |thread| f64::from(u8::from(thread.granted.priority)));
}

fn per_thread(
    page: &mut Page,
    family: &'static m::Family,
    threads: &[ThreadReport],
    pick: impl Fn(&ThreadReport) -> f64,
) {
    page.family(family, |samples| {
        for thread in threads {
            samples.add(&[&thread.thread.to_string()], pick(thread));
        }
    });
}

fn histogram(
    page: &mut Page,
    family: &'static m::Family,
    threads: &[ThreadReport],
    pick: impl Fn(&ThreadReport) -> &TickHistogram,
) {
    page.family(family, |samples| {
        for thread in threads {
            add_ticks(samples, &thread.thread.to_string(), pick(thread));
        }
    });
}

fn add_ticks(samples: &mut Samples<'_>, thread: &str, histogram: &TickHistogram) {
    let TickHistogram { buckets: [bounded @ .., beyond], sum_ns } = histogram;
    let bounds_s = TICK_BOUNDS_US.iter().map(|bound_us| *bound_us as f64 / 1e6);
    let buckets: Vec<_> = bounds_s.zip(bounded.iter().copied()).collect();
    samples.add_histogram(&[thread], &buckets, *beyond, *sum_ns as f64 / 1e9);
}

fn per_namespace(
    page: &mut Page,
    family: &'static m::Family,
    scrape: &Scrape,
    shards: &[ShardReport],
    pick: OfNamespace,
) {
    page.family(family, |samples| {
        for (index, namespace) in scrape.namespaces().iter().enumerate() {
            samples.add(&[namespace], total(shards, index, pick));
        }
    });
}

fn total(shards: &[ShardReport], namespace: usize, pick: OfNamespace) -> u64 {
    in_namespace(shards, namespace).map(|counters| pick(&counters.rooms)).sum()
}

/// Metrics of snapshots on the shards.
pub(super) fn frames(page: &mut Page, scrape: &Scrape, shards: &[ShardReport]) {
    let total = |index, pick: OfNamespace| total(shards, index, pick);
    for (family, metric) in m::ROOM_COUNTERS.iter().zip(&OfShards::METRICS) {
        per_namespace(page, family, scrape, shards, metric.value);
    }
    page.family(&m::ROOM_ASSEMBLIES, |samples| {
        for (index, namespace) in scrape.namespaces().iter().enumerate() {
            let (all, full) = (total(index, |rooms| rooms.assemblies), total(index, |rooms| rooms.assemblies_full));
            let catch_up = total(index, |rooms| rooms.assemblies_catch_up);
            samples.add(&[namespace, "last_tick"], all.saturating_sub(full + catch_up));
            samples.add(&[namespace, "catch_up"], catch_up);
            samples.add(&[namespace, "full"], full);
        }
    });
    page.family(&m::ROOM_VIEW_AGE, |samples| {
        for (index, namespace) in scrape.namespaces().iter().enumerate() {
            let ages = in_namespace(shards, index).map(|counters| &counters.rooms.view_age);
            add_latency(samples, &[namespace], ages);
        }
    });
}
