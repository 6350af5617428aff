//! One server under one load, with its figures in a report.

use std::collections::BTreeMap;

use serde::Serialize;

use super::figures::ServerFigures;
use super::rig::RoomPhase;
use crate::latency::Summary;
use crate::report::{Line, grouped, per_second, ratio, size, time};

/// The measurements of a server under a load.
#[derive(Debug, Clone, Serialize)]
pub struct Side {
    /// Its name in the report.
    pub name: String,
    seconds: f64,
    snapshots: u64,
    snapshots_per_second: f64,
    bytes_per_snapshot: f64,
    /// The share of ticks for which a player received no snapshot.
    ticks_skipped_share: f64,
    events: u64,
    /// Snapshots that could not be applied, by reason.
    broken: BTreeMap<String, u64>,
    /// Replicas that were checked object by object; the next fields count their errors.
    looked_through: u64,
    objects_seen_mean: f64,
    inconsistent: u64,
    misplaced: u64,
    closed: BTreeMap<String, u64>,
    /// From the server's time of the tick to the read.
    pub age: Summary,
    inputs: u64,
    acknowledged: u64,
    inputs_held_up: u64,
    shown: u64,
    pub acknowledgement: Summary,
    pub effect: Summary,
    /// Lateness of the load generator.
    input_lag: Summary,
    pub server_cpu_us_per_snapshot: f64,
    pub server_cpu_us_per_tick: f64,
    server_cores_busy: f64,
    server_user_share: f64,
    pub memory_anon_bytes_max: u64,
    client_cores_busy: f64,
    pub server: ServerFigures,
}

impl Side {
    /// Computes the figures of a phase.
    pub fn new(name: &str, phase: &RoomPhase) -> Self {
        let played = &phase.played;
        let server = phase.server_stats.figures();
        let snapshots = played.snapshots as f64;
        let ticks = phase.server_split;
        Side {
            name: name.into(),
            seconds: phase.wall_ns as f64 / 1e9,
            snapshots: played.snapshots,
            snapshots_per_second: per_second(played.snapshots, phase.wall_ns),
            bytes_per_snapshot: ratio(played.snapshot_bytes as f64, snapshots),
            ticks_skipped_share: ratio(played.ticks_skipped as f64, played.ticks_skipped as f64 + snapshots),
            events: played.events,
            broken: played.broken.clone(),
            looked_through: played.looked_through,
            objects_seen_mean: ratio(played.objects_seen as f64, played.looked_through as f64),
            inconsistent: played.inconsistent,
            misplaced: played.misplaced,
            closed: played.closed.clone(),
            age: played.age.summary(),
            inputs: played.inputs,
            acknowledged: played.acknowledged,
            inputs_held_up: played.inputs_held_up,
            shown: played.shown,
            acknowledgement: played.acknowledgement.summary(),
            effect: played.effect.summary(),
            input_lag: played.lag.summary(),
            server_cpu_us_per_snapshot: phase.cpu_ns_per_snapshot() / 1e3,
            server_cpu_us_per_tick: ratio(phase.server_cpu_ns as f64 / 1e3, server.ticks),
            server_cores_busy: ratio(phase.server_cpu_ns as f64, phase.wall_ns as f64),
            server_user_share: ratio(ticks.user as f64, (ticks.user + ticks.system) as f64),
            memory_anon_bytes_max: phase.memory.iter().map(|memory| memory.anon_bytes).max().unwrap_or(0),
            client_cores_busy: ratio(played.cpu_ns as f64, phase.wall_ns as f64),
            server,
        }
    }

    /// The mean over the run.
    pub fn bytes_per_snapshot(&self) -> f64 {
        self.bytes_per_snapshot
    }

    /// Whether players could apply all snapshots, stayed connected, and saw no inconsistency.
    pub fn is_sound(&self) -> bool {
        self.broken.is_empty() && self.closed.is_empty() && self.inconsistent == 0 && self.misplaced == 0
    }

    pub fn lines(&self) -> Vec<Line> {
        let mut lines = vec![
            Line::new(self.name.clone(), ""),
            Line::new(
                "  snapshots",
                format!(
                    "{} in {:.1} s ({}/s), {:.0} bytes each, {:.0} objects seen; {:.2} % of ticks skipped",
                    grouped(self.snapshots as f64),
                    self.seconds,
                    grouped(self.snapshots_per_second),
                    self.bytes_per_snapshot,
                    self.objects_seen_mean,
                    100.0 * self.ticks_skipped_share
                ),
            ),
            summary_line("  age", &self.age),
            summary_line("  input to effect", &self.effect),
            summary_line("  input lag", &self.input_lag),
            Line::new(
                "  server",
                format!(
                    "{:.2} µs of processor time a snapshot, {:.2} cores busy, {:.0} % of that in its own code, {} private",
                    self.server_cpu_us_per_snapshot,
                    self.server_cores_busy,
                    100.0 * self.server_user_share,
                    size(self.memory_anon_bytes_max)
                ),
            ),
            Line::new("  players", format!("{:.2} cores busy", self.client_cores_busy)),
        ];
        lines.extend(self.server.lines());
        if !self.is_sound() {
            lines.push(Line::new(
                "  WRONG",
                format!(
                    "not understood {:?}, ended {:?}, {} of {} replicas contradict themselves, {} players not where they look from",
                    self.broken, self.closed, self.inconsistent, self.looked_through, self.misplaced
                ),
            ));
        }
        lines
    }
}

/// A line with the percentiles.
pub fn summary_line(name: &str, summary: &Summary) -> Line {
    let text = format!(
        "p50 {}, p90 {}, p99 {}, p99.9 {}, at most {} ({})",
        time(summary.p50_us),
        time(summary.p90_us),
        time(summary.p99_us),
        time(summary.p999_us),
        time(summary.max_us),
        grouped(summary.count as f64)
    );
    Line::new(name, text)
}
