//! The figures of a run: their names, their units, and how they are computed.

use std::collections::BTreeMap;

use super::crew_commands::CrewReport;
use super::quantity::Unit;
use super::sampler::Usage;
use crate::latency::Latency;
use crate::report::ratio;

/// A figure that gates, reports and comparisons can name.
pub struct Figure {
    pub name: &'static str,
    pub unit: Unit,
    pub meaning: &'static str,
    /// Whether comparisons show it.
    pub is_compared: bool,
}

/// Declares the figures in the order of reports.
macro_rules! figures {
    ($($name:literal $unit:ident $is_compared:literal $meaning:literal,)*) => {
        /// All figures, in the order of reports.
        pub static FIGURES: &[Figure] = &[
            $(Figure { name: $name, unit: Unit::$unit, meaning: $meaning, is_compared: $is_compared },)*
        ];
    };
}

figures! {
    "p50" Time true "from the intended time of a publication to its arrival, median",
    "p90" Time false "the same, 90th percentile",
    "p99" Time true "the same, 99th percentile",
    "p999" Time true "the same, 99.9th percentile",
    "max" Time false "the same, longest",
    "slowest_client" Time false "shortest latency of the client whose shortest one is the longest: one that is always late",
    "service_p99" Time false "from the time at which a publication was really sent to its arrival, 99th percentile",
    "ack_p50" Time false "from the intended time of a publication to the target's answer, median",
    "ack_p99" Time true "the same, 99th percentile",
    "lag_p99" Time false "how late the load generator sent publications, 99th percentile",
    "connect_p50" Time false "from the intended time of a connection until it is subscribed, median",
    "connect_p99" Time true "the same, 99th percentile",
    "players" Count false "players in rooms at the end",
    "inputs" Count false "inputs that players sent",
    "inputs_lost" Count false "inputs that no snapshot acknowledged",
    "input_p50" Time true "from the intended time of an input to the snapshot that acknowledges it, median",
    "input_p99" Time true "the same, 99th percentile",
    "snapshots" Count false "snapshots of rooms that players received",
    "snapshots_broken" Count false "snapshots that do not follow the ones before",
    "events" Count false "events of rooms that players received",
    "removed_players" Count false "players whose subscription the target ended",
    "silent_players" Count false "players that received no snapshot in a phase",
    "expectations_missed" Count false "expected texts that a player had not seen in an event at the end",
    "connections" Count false "open connections at the end",
    "connected" Count false "connections that were opened",
    "churned" Count false "connections that were closed and replaced",
    "connect_failed" Count false "connections that failed before they were subscribed",
    "closed" Count false "connections that the target ended",
    "published" Count false "publications sent",
    "accepted" Count false "publications that the target confirmed",
    "refused" Count false "publications that the target refused",
    "unanswered" Count false "publications that the target has not answered",
    "unsent" Count false "publications that were due while their connection was closed",
    "delivered" Count false "publications received, counted once for each client",
    "lost" Count false "publications that a client should have received and did not",
    "duplicated" Count false "publications that a client received again",
    "reordered" Count false "publications that arrived after a later one of the same publisher and channel",
    "stray" Count false "publications of channels to which the client is not subscribed",
    "unchecked" Count false "publications that the load generator could not follow; above 0, lost is an upper bound",
    "deliveries_per_second" Rate true "deliveries per second",
    "deliveries_per_cpu_second" Rate true "deliveries per second of the server's CPU time",
    "cpu_cores" Ratio true "CPU time of the server per second",
    "cpu_user_share" Ratio false "share of that time outside the kernel",
    "client_cores" Ratio false "CPU time of the clients per second; close to their number of cores, they are the bottleneck",
    "client_cost" Ratio false "CPU time of the clients per delivery, divided by that of the server",
    "memory" Bytes true "private memory of the server at the end",
    "memory_max" Bytes false "the same, largest sample",
    "bytes_per_connection" Bytes true "private memory of the server for each further connection (slope over the phases)",
    "rss_per_connection" Bytes false "resident memory of the server for each further connection (slope)",
    "kernel_bytes_per_connection" Bytes false "the kernel's memory for each further connection, both ends (slope)",
    "open_files" Count false "open files of the server at the end",
    "memory_growth" BytesPerHour false "growth of private memory at a constant load; 0 if it is not significant",
    "latency_growth" TimePerHour false "growth of the 99th percentile of intervals; 0 if it is not significant",
    "files_growth" CountPerHour false "growth of open files; 0 if it is not significant",
    "memory_growth_floor" BytesPerHour false "the smallest growth of private memory that this run would have shown",
    "latency_growth_floor" TimePerHour false "the smallest growth of the 99th percentile that this run would have shown",
    "files_growth_floor" CountPerHour false "the smallest growth of open files that this run would have shown",
}

/// Figures that come from several phases or from the samples of the run: one phase has none of them.
pub const OF_RUN: [&str; 9] = [
    "bytes_per_connection",
    "files_growth",
    "files_growth_floor",
    "kernel_bytes_per_connection",
    "latency_growth",
    "latency_growth_floor",
    "memory_growth",
    "memory_growth_floor",
    "rss_per_connection",
];

/// The figure of this name.
pub fn figure(name: &str) -> Option<&'static Figure> {
    FIGURES.iter().find(|figure| figure.name == name)
}

/// Values of figures. What was not measured is missing.
pub type Values = BTreeMap<&'static str, f64>;

/// The figures of one or several phases.
pub fn values(report: &CrewReport, usage: &Usage) -> Values {
    let mut values = Values::new();
    latencies(report, &mut values);
    let sum = |counts: &BTreeMap<String, u64>| counts.values().sum::<u64>();
    let (connections, sent, received) = (&report.connections, &report.sent, &report.received);
    for (name, count) in [
        ("connections", connections.open),
        ("connected", connections.connected),
        ("churned", connections.churned),
        ("connect_failed", sum(&connections.failed)),
        ("closed", sum(&connections.closed)),
        ("published", sent.published),
        ("accepted", sent.accepted),
        ("refused", sum(&sent.refused)),
        ("unanswered", sent.published.saturating_sub(sent.accepted + sum(&sent.refused))),
        ("unsent", sent.unsent),
        ("delivered", received.delivered),
        ("lost", received.lost),
        ("duplicated", received.duplicated),
        ("reordered", received.reordered),
        ("stray", received.stray),
        ("unchecked", received.unchecked + sent.unchecked),
    ] {
        values.insert(name, count as f64);
    }
    let played = &report.played;
    for (name, count) in [
        ("players", played.players),
        ("inputs", played.inputs),
        ("inputs_lost", played.inputs_lost),
        ("snapshots", played.snapshots),
        ("snapshots_broken", played.snapshots_broken),
        ("events", played.events),
        ("removed_players", played.removed),
        ("silent_players", played.silent_players),
        ("expectations_missed", played.expectations_missed),
    ] {
        // Runs without rooms have no such figures.
        values.extend((played.players + played.removed > 0).then_some((name, count as f64)));
    }
    let delivered = received.delivered as f64;
    values.insert("deliveries_per_second", ratio(delivered, usage.seconds));
    values.insert("client_cores", ratio(report.cpu_ns as f64 / 1e9, usage.seconds));
    if let Some(cpu) = usage.cpu {
        values.insert("deliveries_per_cpu_second", ratio(delivered, cpu.cpu_s));
        values.insert("cpu_cores", cpu.cores());
        values.insert("cpu_user_share", cpu.user_share());
        values.insert("client_cost", ratio(report.cpu_ns as f64 / 1e9, cpu.cpu_s));
    }
    for (name, value) in
        [("memory", usage.anon_bytes), ("memory_max", usage.anon_bytes_max), ("open_files", usage.open_files)]
    {
        values.extend(value.map(|value| (name, value as f64)));
    }
    values
}

fn latencies(report: &CrewReport, values: &mut Values) {
    let mut add = |latency: &Latency, names: &[(&'static str, f64)]| {
        if latency.summary().count > 0 {
            values.extend(names.iter().map(|&(name, percentile)| (name, latency.percentile_us(percentile) as f64)));
        }
    };
    let (received, sent) = (&report.received, &report.sent);
    add(&received.latency, &[("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p999", 99.9), ("max", 100.0)]);
    add(&received.service, &[("service_p99", 99.0)]);
    add(&sent.acknowledged, &[("ack_p50", 50.0), ("ack_p99", 99.0)]);
    add(&sent.lag, &[("lag_p99", 99.0)]);
    add(&report.connections.time, &[("connect_p50", 50.0), ("connect_p99", 99.0)]);
    add(&report.played.input_time, &[("input_p50", 50.0), ("input_p99", 99.0)]);
    values.extend(received.slowest_client_ns.map(|ns| ("slowest_client", ns as f64 / 1e3)));
}

/// The least-squares line through points, and how sure its slope is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slope {
    pub slope: f64,
    pub intercept: f64,
    /// Standard error of the slope.
    pub error: f64,
}

impl Slope {
    /// None with fewer than two different positions.
    pub fn of(points: &[(f64, f64)]) -> Option<Self> {
        let count = points.len() as f64;
        let (mean_x, mean_y) =
            (points.iter().map(|(x, _)| x).sum::<f64>() / count, points.iter().map(|(_, y)| y).sum::<f64>() / count);
        let spread: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
        if points.len() < 2 || spread <= 0.0 {
            return None;
        }
        let slope = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum::<f64>() / spread;
        let intercept = mean_y - slope * mean_x;
        let rest: f64 = points.iter().map(|(x, y)| (y - intercept - slope * x).powi(2)).sum();
        let error = if points.len() > 2 { (rest / (count - 2.0) / spread).sqrt() } else { 0.0 };
        Some(Slope { slope, intercept, error })
    }

    /// The slope, or 0 if it may be due to chance. Samples of one process follow each other closely, so the bound is
    /// wider than for independent ones.
    pub fn significant(&self) -> f64 {
        if self.slope.abs() > self.floor() { self.slope } else { 0.0 }
    }

    /// The smallest slope that is no chance among points that scatter like these.
    pub fn floor(&self) -> f64 {
        4.0 * self.error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        for found in FIGURES {
            assert!(std::ptr::eq(figure(found.name).unwrap(), found), "{} is there twice", found.name);
        }
        assert!(figure("p98").is_none());
    }

    #[test]
    fn a_slope_ignores_the_constant_part() {
        let slope = Slope::of(&[(1000.0, 5e6), (5000.0, 13e6), (15_000.0, 33e6)]).unwrap();
        assert!((slope.slope - 2000.0).abs() < 1e-6 && (slope.intercept - 3e6).abs() < 1e-3);
        assert_eq!(Slope::of(&[(1.0, 1.0)]), None);
        assert_eq!(Slope::of(&[(1.0, 1.0), (1.0, 2.0)]), None);
    }

    #[test]
    fn noise_is_no_growth_and_a_leak_is() {
        let noise = |at: u32| f64::from(at * 7919 % 13) * 1000.0;
        let flat: Vec<_> = (0..60).map(|at| (f64::from(at), 1e7 + noise(at))).collect();
        assert!(Slope::of(&flat).unwrap().significant() == 0.0);
        let leak: Vec<_> = (0..60).map(|at| (f64::from(at), 1e7 + noise(at) + 1024.0 * f64::from(at))).collect();
        assert!((Slope::of(&leak).unwrap().significant() - 1024.0).abs() < 200.0);
    }
}
