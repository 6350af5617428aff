//! The figures that both kinds of servers report.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::api;
use crate::control::MessageContent;
use crate::error::Error;
use crate::metrics::MetricsSample;
use crate::report::{Line, ratio, whole};

const TICKS: &str = "dunlin_room_ticks_total";
const TICK_SECONDS: &str = "dunlin_room_tick_seconds";
const LATENESS_SECONDS: &str = "dunlin_room_tick_lateness_seconds";
const OVERRUNS: &str = "dunlin_room_overruns_total";
const SKIPPED: &str = "dunlin_room_ticks_skipped_total";
const LATE: &str = "dunlin_room_ticks_late_total";
const ASSEMBLIES: &str = "dunlin_room_assemblies_total";
const SNAPSHOTS: &str = "dunlin_room_frames_total";
/// Kinds of bodies that update a player from the previous tick.
const UP_TO_DATE: [&str; 1] = ["last_tick"];
const INPUTS: &str = "dunlin_room_inputs_total";

/// The counters of a server.
#[derive(Debug, Clone)]
pub enum ServerStats {
    /// Dunlin.
    Metrics(MetricsSample),
    /// The Go peer, since the last request.
    Peer(PeerStats),
}

impl Default for ServerStats {
    fn default() -> Self {
        ServerStats::Metrics(MetricsSample::default())
    }
}

/// The response of the Go peer.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct PeerStats {
    ticks: f64,
    tick_p50_us: f64,
    tick_p99_us: f64,
    tick_max_us: f64,
    late_p99_us: f64,
    encodes: f64,
    inputs: f64,
    snapshots_written: f64,
    snapshots_replaced: f64,
}

/// The figures that are compared between servers; `None` if not reported.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ServerFigures {
    /// Number of ticks that ran.
    pub ticks: f64,
    /// Median duration of ticks.
    pub tick_p50_us: Option<f64>,
    /// 99th percentile of the duration of ticks.
    pub tick_p99_us: Option<f64>,
    /// Mean duration of ticks.
    pub tick_mean_us: Option<f64>,
    /// 99th percentile of the lateness of ticks.
    pub late_p99_us: Option<f64>,
    /// Ticks that took longer than their interval.
    pub overruns: Option<f64>,
    /// Ticks that began after the next tick was due.
    pub ticks_late: Option<f64>,
    /// Skipped ticks.
    pub ticks_skipped: Option<f64>,
    /// Encoded snapshot bodies.
    pub encodes_per_tick: Option<f64>,
    /// Encoded bodies for players whose base is older than the previous tick, or who have none; included in
    /// `encodes_per_tick`.
    pub catch_ups_per_tick: Option<f64>,
    /// Snapshots written.
    pub snapshots_per_tick: Option<f64>,
    /// Inputs by result.
    pub inputs: BTreeMap<String, u64>,
}

impl ServerStats {
    /// Requests the counters from the server.
    pub fn ask(content: MessageContent, address: SocketAddr) -> Result<Self, Error> {
        Ok(match content {
            MessageContent::Protocol => ServerStats::Metrics(MetricsSample::parse(&api::get(address, "/metrics")?)),
            MessageContent::Bare | MessageContent::Peer(_) => {
                let text = api::get(address, "/stats")?;
                ServerStats::Peer(serde_json::from_str(&text).map_err(|err| Error::Server {
                    did: format!("answered something else than its figures ({err})"),
                    remedy: "build the peers again with bench/peers/build".into(),
                })?)
            }
        })
    }

    /// The difference to earlier counters.
    #[must_use]
    pub fn since(self, earlier: &ServerStats) -> ServerStats {
        match (self, earlier) {
            (ServerStats::Metrics(now), ServerStats::Metrics(before)) => ServerStats::Metrics(now.since(before)),
            (unchanged, _) => unchanged,
        }
    }

    /// Adds the counters of a later phase. Of the peer's percentiles, the largest is kept.
    pub fn add(&mut self, later: ServerStats) {
        match (self, later) {
            (ServerStats::Metrics(all), ServerStats::Metrics(more)) => all.add(&more),
            (ServerStats::Peer(all), ServerStats::Peer(more)) => {
                all.tick_p50_us = all.tick_p50_us.max(more.tick_p50_us);
                all.tick_p99_us = all.tick_p99_us.max(more.tick_p99_us);
                all.tick_max_us = all.tick_max_us.max(more.tick_max_us);
                all.late_p99_us = all.late_p99_us.max(more.late_p99_us);
                all.ticks += more.ticks;
                all.encodes += more.encodes;
                all.inputs += more.inputs;
                all.snapshots_written += more.snapshots_written;
                all.snapshots_replaced += more.snapshots_replaced;
            }
            (own, other) => *own = other,
        }
    }

    /// Ticks that began later than this; `None` if not reported.
    pub fn late_by(&self, bound_s: f64) -> Option<f64> {
        match self {
            ServerStats::Metrics(scrape) => Some(scrape.histogram(LATENESS_SECONDS)?.above(bound_s)),
            ServerStats::Peer(_) => None,
        }
    }

    /// The sum of all series of a counter; 0 if there is none.
    pub fn counted(&self, name: &str) -> f64 {
        match self {
            ServerStats::Metrics(scrape) => scrape.sum(name).unwrap_or(0.0),
            ServerStats::Peer(_) => 0.0,
        }
    }

    /// The number of inputs that the server refused for a reason.
    pub fn inputs_turned_away(&self) -> u64 {
        let inputs = self.figures().inputs;
        // Inputs that the game rejects are also acknowledged.
        let is_taken = |outcome: &str| matches!(outcome, "applied" | "senseless");
        inputs.iter().filter(|(outcome, _)| !is_taken(outcome)).map(|(_, count)| count).sum()
    }

    /// The figures of a report.
    pub fn figures(&self) -> ServerFigures {
        match self {
            ServerStats::Metrics(scrape) => of_metrics(scrape),
            ServerStats::Peer(stats) => ServerFigures {
                ticks: stats.ticks,
                tick_p50_us: Some(stats.tick_p50_us),
                tick_p99_us: Some(stats.tick_p99_us),
                late_p99_us: Some(stats.late_p99_us),
                encodes_per_tick: Some(ratio(stats.encodes, stats.ticks)),
                snapshots_per_tick: Some(ratio(stats.snapshots_written, stats.ticks)),
                inputs: BTreeMap::from([("applied".into(), whole(stats.inputs))]),
                ..ServerFigures::default()
            },
        }
    }
}

fn of_metrics(scrape: &MetricsSample) -> ServerFigures {
    let ticks = scrape.sum(TICKS).unwrap_or(0.0);
    let duration = scrape.histogram(TICK_SECONDS).filter(|times| times.count() > 0.0);
    let lateness = scrape.histogram(LATENESS_SECONDS).filter(|times| times.count() > 0.0);
    let per_tick = |name: &str| scrape.sum(name).filter(|_| ticks > 0.0).map(|count| count / ticks);
    ServerFigures {
        ticks,
        tick_p50_us: duration.as_ref().map(|times| times.quantile_us(0.5)),
        tick_p99_us: duration.as_ref().map(|times| times.quantile_us(0.99)),
        tick_mean_us: duration.as_ref().map(|times| times.sum_s() * 1e6 / times.count()),
        late_p99_us: lateness.map(|times| times.quantile_us(0.99)),
        overruns: scrape.sum(OVERRUNS),
        ticks_late: scrape.sum(LATE),
        ticks_skipped: scrape.sum(SKIPPED),
        encodes_per_tick: per_tick(ASSEMBLIES),
        catch_ups_per_tick: per_tick(ASSEMBLIES).map(|_| {
            let kinds = scrape.by(ASSEMBLIES, "kind");
            let others = kinds.iter().filter(|(kind, _)| !UP_TO_DATE.contains(&kind.as_str()));
            ratio(others.map(|(_, count)| count).sum(), ticks)
        }),
        snapshots_per_tick: per_tick(SNAPSHOTS),
        inputs: scrape.by(INPUTS, "outcome").into_iter().map(|(outcome, count)| (outcome, whole(count))).collect(),
    }
}

impl ServerFigures {
    pub fn lines(&self) -> Vec<Line> {
        let us = |value: Option<f64>| value.map_or("?".into(), |us| crate::report::time(whole(us.round())));
        let count = |value: Option<f64>| value.map_or("?".into(), |count| format!("{count:.2}"));
        vec![
            Line::new(
                "  ticks",
                format!(
                    "{:.0}; p50 {}, p99 {}; begun late by p99 {}; {} overruns, {} passed over",
                    self.ticks,
                    us(self.tick_p50_us),
                    us(self.tick_p99_us),
                    us(self.late_p99_us),
                    count(self.overruns),
                    count(self.ticks_skipped),
                ),
            ),
            Line::new(
                "  each tick",
                format!(
                    "{} bodies put together, {} snapshots",
                    count(self.encodes_per_tick),
                    count(self.snapshots_per_tick)
                ),
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_metrics_give_missing_figures() {
        let page = "dunlin_room_ticks_total{thread=\"0\"} 100\ndunlin_room_assemblies_total{namespace=\"room\"} 250\n\
            dunlin_room_inputs_total{outcome=\"applied\"} 7\n";
        let figures = ServerStats::Metrics(MetricsSample::parse(page)).figures();
        assert_eq!((figures.ticks, figures.encodes_per_tick), (100.0, Some(2.5)));
        assert_eq!(figures.inputs, BTreeMap::from([("applied".into(), 7)]));
        assert_eq!((figures.tick_p99_us, figures.overruns), (None, None));
    }
}
