//! Profiles in pprof format, below the path of the debug page: `profile` (processor time), `heap`, `allocs` and `block` (waits).

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use axum::{
    extract::{Query, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use dunlin_profiles::{CpuError, HeapError, HeapView, wait_profile};
use serde::Deserialize;
use tokio::task::spawn_blocking;

use super::Metrics;
use crate::profiling::{WaitTotals, cpu_profile_for_operator, heap_profile_for_operator};

/// Default duration of a CPU profile, and maximum duration of a profile.
const SECONDS_DEFAULT: u64 = 30;
const SECONDS_MAX: u64 = 300;

/// Over which time a profile is taken.
#[derive(Deserialize)]
pub(super) struct ProfiledTime {
    seconds: Option<String>,
}

impl ProfiledTime {
    /// The time in the request, or `default_s`; `None` if it may not be so long or so short.
    fn seconds(&self, default_s: u64) -> Option<u64> {
        let seconds = self.seconds.as_ref().map_or(Some(default_s), |seconds| seconds.parse().ok());
        seconds.filter(|seconds| (1..=SECONDS_MAX).contains(seconds))
    }
}

fn wrong_time() -> Response {
    failure(StatusCode::BAD_REQUEST, &format!("seconds must be from 1 to {SECONDS_MAX}"))
}

/// Ends a recording when nobody waits for it any more.
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// `GET {prefix}/profile?seconds=N`
pub(super) async fn cpu(Query(time): Query<ProfiledTime>) -> Response {
    let Some(seconds) = time.seconds(SECONDS_DEFAULT) else { return wrong_time() };
    let is_cancelled = Arc::new(AtomicBool::new(false));
    let _cancel = CancelOnDrop(Arc::clone(&is_cancelled));
    let record =
        move || cpu_profile_for_operator(Duration::from_secs(seconds), || is_cancelled.load(Ordering::Relaxed));
    match spawn_blocking(record).await {
        Ok(Ok(profile)) => answer("profile", profile),
        Ok(Err(error @ (CpuError::Busy | CpuError::Cancelled))) => failure(StatusCode::CONFLICT, &error.to_string()),
        Ok(Err(error @ CpuError::LockedUnwinder { .. })) => failure(StatusCode::NOT_IMPLEMENTED, &error.to_string()),
        Ok(Err(error)) => failure(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// `GET {prefix}/heap`
pub(super) async fn heap() -> Response {
    memory("heap", HeapView::InUse).await
}

/// `GET {prefix}/allocs`
pub(super) async fn allocs() -> Response {
    memory("allocs", HeapView::Allocated).await
}

/// `GET {prefix}/block?seconds=N`: the waits of N seconds, or those since the start.
pub(super) async fn block(State(metrics): State<Arc<Metrics>>, Query(time): Query<ProfiledTime>) -> Response {
    let (before, began) = if time.seconds.is_none() {
        (WaitTotals::default(), metrics.started)
    } else {
        let Some(seconds) = time.seconds(SECONDS_MAX) else { return wrong_time() };
        let (before, began) = (metrics.wait_totals().await, Instant::now());
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        (before, began)
    };
    let waits = metrics.wait_totals().await.since(&before);
    answer("block", wait_profile(&waits, began.elapsed()))
}

async fn memory(name: &str, view: HeapView) -> Response {
    match spawn_blocking(move || heap_profile_for_operator(view)).await {
        Ok(Ok(profile)) => answer(name, profile),
        Ok(Err(error @ (HeapError::OtherAllocator | HeapError::Off))) => {
            failure(StatusCode::NOT_IMPLEMENTED, &error.to_string())
        }
        Ok(Err(error @ HeapError::Busy)) => failure(StatusCode::CONFLICT, &error.to_string()),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

fn answer(name: &str, profile: Vec<u8>) -> Response {
    let disposition = format!("attachment; filename=\"{name}.pb\"");
    let fields =
        [(header::CONTENT_TYPE, "application/octet-stream".to_owned()), (header::CONTENT_DISPOSITION, disposition)];
    (fields, profile).into_response()
}

/// With the field that makes `go tool pprof` print the text.
fn failure(status: StatusCode, why: &str) -> Response {
    let fields = [("content-type", "text/plain; charset=utf-8"), ("x-go-pprof", "1")];
    (status, fields, format!("{why}\n")).into_response()
}
