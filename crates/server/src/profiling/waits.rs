//! Where the node has waited, from the counters that its threads keep anyway.
//!
//! The threads of a node share queues and no locks, so a profile of locks would be empty. What waits here is named by the
//! queue, the disk or the backend that it waits for.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use dunlin_profiles::Wait;

use crate::{
    backend::{ProxyCounts, ProxyKind},
    node::ShardReport,
    rooms::ThreadReport,
    telemetry::Moment,
};

/// Totals of all waits since the start, by place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WaitTotals {
    places: BTreeMap<Vec<String>, Total>,
    /// The outermost names of places whose waits are missing: shards that did not answer.
    missing: BTreeSet<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Total {
    count: u64,
    ns: u64,
}

impl WaitTotals {
    /// The waits that the counters of this moment have. Those of a shard that did not answer are missing.
    pub fn at(moment: &Moment<'_>, namespaces: &[String]) -> Self {
        let missing = moment.silent_shards.iter().map(|shard| format!("shard-{}", shard.0)).collect();
        let mut totals = Self { places: BTreeMap::new(), missing };
        for shard in moment.shards {
            totals.add_shard(shard, namespaces);
        }
        for thread in moment.room_threads {
            totals.add_room_thread(thread);
        }
        for proxy in &moment.backends.proxies {
            totals.add_backend(proxy);
        }
        if let Some(storage) = &moment.storage {
            let counts = &storage.counts;
            totals.add(["a group of writes is committed", "storage"], counts.commits, counts.commit_us * 1_000);
        }
        totals
    }

    fn add_shard(&mut self, report: &ShardReport, namespaces: &[String]) {
        let shard = format!("shard-{}", report.shard.0);
        let full_ring = ["sockets are not read: a ring to another shard is full", "rings", &shard];
        self.add(full_ring, report.net.holds, report.net.held_us * 1_000);
        for (namespace, counters) in namespaces.iter().zip(&report.counters.namespaces) {
            let latency = &counters.publish_to_socket;
            let to_socket =
                [&*format!("namespace {namespace:?}"), "a publication is written to its last socket", &shard];
            self.add(to_socket, latency.count(), latency.sum_us * 1_000);
        }
    }

    fn add_room_thread(&mut self, report: &ThreadReport) {
        let lateness = &report.counters.tick_lateness;
        let late = ["a tick that is due waits for its thread", "rooms", &*format!("rooms-{}", report.thread)];
        self.add(late, lateness.buckets.iter().sum(), lateness.sum_ns);
    }

    fn add_backend(&mut self, proxy: &ProxyCounts) {
        for (kind, duration) in ProxyKind::ALL.iter().zip(&proxy.durations) {
            let request = [kind.name(), &*format!("proxy {:?}", proxy.label), "backends"];
            self.add(request, duration.count(), duration.sum_us * 1_000);
        }
    }

    /// `place` begins with the most specific name.
    fn add<const N: usize>(&mut self, place: [&str; N], count: u64, ns: u64) {
        if count > 0 {
            let total = self.places.entry(place.map(str::to_owned).to_vec()).or_default();
            *total = Total { count: total.count + count, ns: total.ns + ns };
        }
    }

    /// What has been waited since `before`.
    pub fn since(&self, before: &Self) -> Vec<Wait> {
        // Of a shard that did not answer then, this has all waits since the start.
        let is_known = |place: &[String]| place.last().is_none_or(|outermost| !before.missing.contains(outermost));
        let known = self.places.iter().filter(|(place, _)| is_known(place));
        let waits = known.map(|(place, total)| {
            let before = before.places.get(place).copied().unwrap_or_default();
            let count = total.count.saturating_sub(before.count);
            let total = Duration::from_nanos(total.ns.saturating_sub(before.ns));
            Wait { place: place.clone(), count, total }
        });
        // A long wait that began before and goes on has no count of its own.
        waits.filter(|wait| wait.count > 0 || !wait.total.is_zero()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(waits: &[(&str, u64, u64)]) -> WaitTotals {
        let mut totals = WaitTotals::default();
        for &(place, count, ns) in waits {
            totals.add([place, "group"], count, ns);
        }
        totals
    }

    #[test]
    fn a_profile_of_some_seconds_has_what_was_waited_in_them() {
        let before = totals(&[("same", 5, 500), ("more", 1, 10), ("silent", 3, 30), ("long", 1, 100)]);
        let after = totals(&[("same", 5, 500), ("more", 4, 70), ("new", 2, 20), ("long", 1, 900)]);
        let wait = |place: &str, count, ns| {
            let place = vec![place.to_owned(), "group".to_owned()];
            Wait { place, count, total: Duration::from_nanos(ns) }
        };
        assert_eq!(after.since(&before), [wait("long", 0, 800), wait("more", 3, 60), wait("new", 2, 20)]);
    }

    #[test]
    fn a_shard_that_did_not_answer_before_has_no_waits_since_then() {
        let mut before = WaitTotals::default();
        before.missing.insert("shard-1".to_owned());
        let mut after = WaitTotals::default();
        after.add(["rings", "shard-0"], 1, 10);
        after.add(["rings", "shard-1"], 900, 9_000);
        let places: Vec<_> = after.since(&before).into_iter().map(|wait| wait.place).collect();
        assert_eq!(places, [["rings", "shard-0"]]);
    }

    #[test]
    fn waits_at_the_same_place_add_up() {
        let mut totals = WaitTotals::default();
        totals.add(["a"], 1, 10);
        totals.add(["a"], 2, 20);
        totals.add(["nothing"], 0, 0);
        let waits = totals.since(&WaitTotals::default());
        assert_eq!(waits, [Wait { place: vec!["a".to_owned()], count: 3, total: Duration::from_nanos(30) }]);
    }
}
