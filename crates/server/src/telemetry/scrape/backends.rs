//! Metrics of tokens, of rules about who may not connect, of backend requests, webhooks, pushed profiles,
//! and what is sent to a collector.

use dunlin_engine::counters::{Histogram, LATENCY_BOUNDS_US};
use dunlin_token::TokenCounts;

use super::{Page, m};
use crate::{
    access_sync::AccessCounts,
    backend::{BackendCounts, CallOutcome, CodeCount, ProxyKind},
    otlp::{ExportOutcome, OtlpCounts, Signal},
    profiling::{ProfileCounts, ProfileKind, PushOutcome},
    webhooks::{EventLoss, RequestOutcome, WebhookCounts},
};

pub(super) fn access(page: &mut Page, counts: AccessCounts) {
    page.single(&m::ACCESS_RULES, counts.rules);
    page.single(&m::ACCESS_RULES_BYTES, counts.bytes);
    page.single(&m::ACCESS_RULES_UNSTORED, counts.unstored);
    page.family(&m::ACCESS_RULES_REFUSED, |samples| {
        samples.add(&["full"], counts.refused);
        samples.add(&["not_stored"], counts.not_stored);
    });
}

pub(super) fn tokens(page: &mut Page, counts: &TokenCounts) {
    page.family(&m::TOKENS, |samples| {
        samples.add(&["accepted"], counts.accepted);
        samples.add(&["expired"], counts.expired);
        samples.add(&["refused"], counts.refused);
        samples.add(&["unavailable"], counts.unavailable);
    });
    page.family(&m::TOKEN_CACHE, |samples| {
        samples.add(&["hit"], counts.cache_hits);
        samples.add(&["miss"], counts.cache_misses);
    });
    page.single(&m::TOKEN_SIGNATURES, counts.signatures);
    page.single(&m::TOKENS_WAITING, counts.waiting);
    page.family(&m::KEY_FETCHES, |samples| {
        samples.add(&["ok"], counts.fetches);
        samples.add(&["failed"], counts.fetches_failed);
    });
}

/// One sample per kind of request that a proxy serves, and per outcome that has occurred.
pub(super) fn backends(page: &mut Page, counts: &BackendCounts) {
    page.family(&m::BACKEND_CALLS, |samples| {
        for proxy in &counts.proxies {
            for (kind, outcomes) in ProxyKind::ALL.iter().zip(&proxy.outcomes) {
                for (outcome, count) in CallOutcome::ALL.iter().zip(outcomes).filter(|(_, count)| **count > 0) {
                    samples.add(&[&proxy.label, kind.name(), outcome.name()], *count);
                }
            }
        }
    });
    page.family(&m::BACKEND_CODES, |samples| {
        for proxy in &counts.proxies {
            for CodeCount { kind, code, count } in &proxy.codes {
                let code = code.map_or_else(|| "other".to_owned(), |code| code.to_string());
                samples.add(&[&proxy.label, kind.name(), &code], *count);
            }
        }
    });
    page.family(&m::BACKEND_DURATION, |samples| {
        for proxy in &counts.proxies {
            let asked = ProxyKind::ALL.iter().zip(&proxy.durations).filter(|(_, duration)| duration.count() > 0);
            for (kind, Histogram { buckets: [bounded @ .., beyond], sum_us }) in asked {
                let bounds_s = LATENCY_BOUNDS_US.iter().map(|bound_us| *bound_us as f64 / 1e6);
                let buckets: Vec<_> = bounds_s.zip(bounded.iter().copied()).collect();
                samples.add_histogram(&[&proxy.label, kind.name()], &buckets, *beyond, *sum_us as f64 / 1e6);
            }
        }
    });
    page.family(&m::BACKEND_WAITING, |samples| {
        for proxy in &counts.proxies {
            samples.add(&[&proxy.label], proxy.waiting);
        }
    });
    page.family(&m::BACKEND_OPEN, |samples| {
        for proxy in &counts.proxies {
            samples.add(&[&proxy.label], u64::from(proxy.is_open));
        }
    });
}

pub(super) fn webhooks(page: &mut Page, counts: &WebhookCounts) {
    page.single(&m::WEBHOOK_EVENTS, counts.taken);
    page.family(&m::WEBHOOK_EVENTS_LOST, |samples| {
        for (reason, count) in EventLoss::ALL.iter().zip(counts.lost) {
            samples.add(&[reason.name()], count);
        }
    });
    page.family(&m::WEBHOOK_REQUESTS, |samples| {
        for (outcome, count) in RequestOutcome::ALL.iter().zip(counts.requests) {
            samples.add(&[outcome.name()], count);
        }
    });
    page.single(&m::WEBHOOK_EVENTS_WAITING, counts.waiting);
    page.single(&m::WEBHOOK_BYTES_WAITING, counts.waiting_bytes);
    page.single(&m::WEBHOOK_OLDEST_AGE, counts.oldest_age_ms as f64 / 1e3);
}

pub(super) fn profiles(page: &mut Page, counts: &ProfileCounts) {
    page.family(&m::PROFILES_PUSHED, |samples| {
        for kind in ProfileKind::ALL {
            for outcome in PushOutcome::ALL {
                samples.add(&[kind.name(), outcome.name()], counts.of(kind, outcome));
            }
        }
    });
}

pub(super) fn otlp(page: &mut Page, counts: &OtlpCounts) {
    page.family(&m::OTLP_SPANS, |samples| {
        for (outcome, count) in ExportOutcome::ALL.iter().zip(counts.spans) {
            samples.add(&[outcome.name()], count);
        }
    });
    page.single(&m::OTLP_SPANS_WAITING, counts.spans_waiting);
    page.family(&m::OTLP_REQUESTS, |samples| {
        for (signal, counts) in Signal::ALL.iter().zip(counts.pushes) {
            for (outcome, count) in ExportOutcome::ALL.iter().zip(counts) {
                samples.add(&[signal.name(), outcome.name()], count);
            }
        }
    });
}
