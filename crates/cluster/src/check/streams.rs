//! The streams: their configuration, leaders and replicas, and the clocks of the leading servers.

use std::collections::BTreeMap;

use async_nats::Client;
use serde_json::Value;
use tokio::time::timeout;

use super::{ANSWER_TIMEOUT, AskedAt, ClusterOptions, FindingState, Findings, clock_finding, unix_ms};
use crate::{
    names::PartitionNames,
    record,
    streams::{StreamFault, StreamTerms, differences, info},
    thread::{
        ClusterNamespace,
        preparation::{lease_terms, room_log_terms, terms_of},
    },
};

/// More idle streams cost the servers a tenth of a core.
const STREAMS_MAX: usize = 64;
/// Under load, a replica always lags by a few operations.
const LAG_MAX: u64 = 1_000;
/// A replica is out of sync if its leader has received nothing from it for this long.
const SILENCE_MAX_NS: u64 = 10_000_000_000;

pub(super) async fn check(client: &Client, options: &ClusterOptions, nodes: usize, findings: &mut Findings) {
    if options.namespaces.iter().flatten().next().is_none() {
        let text = "no namespace has `history_size` and `history_ttl`, so none has a stream";
        findings.add(FindingState::Warning, "streams", text);
    }
    let mut streams = Streams { client, options, nodes, clocks: BTreeMap::new(), count: 0 };
    for namespace in options.namespaces.iter().flatten() {
        if !streams.check_namespace(namespace, findings).await {
            return;
        }
    }
    if (streams.count > 0 || options.keeps_rooms) && !streams.check_own(&lease_terms(options), findings).await {
        return;
    }
    if options.keeps_rooms && !streams.check_own(&room_log_terms(options), findings).await {
        return;
    }
    if streams.count > STREAMS_MAX {
        let text = format!(
            "there are {}, and each costs the servers CPU when idle: keep them below {STREAMS_MAX}",
            streams.count
        );
        findings.add(FindingState::Warning, "streams", text);
    }
    for (leader, offset_ms) in &streams.clocks {
        let (state, text) = clock_finding(*offset_ms);
        findings.add(state, format_args!("clock of {leader}"), text);
    }
}

struct Streams<'a> {
    client: &'a Client,
    options: &'a ClusterOptions,
    /// The number of nodes that run.
    nodes: usize,
    /// The clock offset by server.
    clocks: BTreeMap<String, i64>,
    count: usize,
}

impl Streams<'_> {
    /// Returns whether to continue: not if there is no answer.
    async fn check_namespace(&mut self, namespace: &ClusterNamespace, findings: &mut Findings) -> bool {
        let mut parts = self.options.partitions.max(1);
        let mut part = 0;
        while part < parts {
            let name = PartitionNames::new(&self.options.prefix, &namespace.name, part).stream;
            let Ok(found) = self.read_info(&name, findings).await else { return false };
            if let Some((info, asked)) = found {
                if part == 0 {
                    parts = partitions_of(&info).unwrap_or(parts);
                }
                let terms = terms_of(self.options, namespace, part, parts);
                self.check_stream(&terms, &info, asked, findings);
            }
            part += 1;
        }
        self.count += usize::from(parts);
        true
    }

    /// Checks a stream that belongs to no namespace. Returns whether to continue.
    async fn check_own(&mut self, terms: &StreamTerms, findings: &mut Findings) -> bool {
        let Ok(found) = self.read_info(&terms.name, findings).await else { return false };
        if let Some((info, asked)) = found {
            self.check_stream(terms, &info, asked, findings);
        }
        self.count += 1;
        true
    }

    /// The state of a stream, if it exists. Without an answer, the caller stops the check.
    async fn read_info(&self, name: &str, findings: &mut Findings) -> Result<Option<(Value, AskedAt)>, ()> {
        let before_ms = unix_ms();
        let asking = async {
            loop {
                match info(self.client, name).await {
                    Err(StreamFault::Silent { .. }) => {}
                    answer => break answer,
                }
            }
        };
        let answer = timeout(ANSWER_TIMEOUT, asking).await;
        let asked = AskedAt { before_ms, after_ms: unix_ms() };
        match answer.unwrap_or(Err(StreamFault::Silent { stream: name.into() })) {
            Ok(Some(info)) => Ok(Some((info, asked))),
            Ok(None) => {
                let (state, text) = absent_finding(self.nodes);
                findings.add(state, format_args!("stream {name}"), text);
                Ok(None)
            }
            Err(fault) => {
                findings.add(FindingState::Wrong, format_args!("stream {name}"), fault);
                Err(())
            }
        }
    }

    fn check_stream(&mut self, terms: &StreamTerms, info: &Value, asked: AskedAt, findings: &mut Findings) {
        let subject = format!("stream {}", terms.name);
        let differences = differences(terms, &info["config"]);
        for difference in &differences {
            let state = if difference.is_tolerable { FindingState::Warning } else { FindingState::Wrong };
            findings.add(state, &subject, difference);
        }
        let copies = copies_finding(info, differences.is_empty());
        findings.add(copies.0, &subject, copies.1);
        let leader = info["cluster"]["leader"].as_str().filter(|name| !name.is_empty()).unwrap_or("the server");
        if let Some(there_ms) = info["ts"].as_str().and_then(record::unix_ms) {
            self.clocks.insert(leader.to_owned(), asked.offset_ms(there_ms));
        }
    }
}

/// A running node creates the streams that it knows when they are gone.
const fn absent_finding(nodes: usize) -> (FindingState, &'static str) {
    match nodes {
        0 => (FindingState::Warning, "does not exist: the next node that starts makes it"),
        _ => (
            FindingState::Wrong,
            "does not exist, although nodes run: they make it again within seconds, if their user may publish to \
             $JS.API.STREAM.CREATE.*. The stream of a namespace that was added needs a restart of a node",
        ),
    }
}

fn partitions_of(info: &Value) -> Option<u16> {
    info["config"]["metadata"]["dunlin.parts"].as_str()?.parse().ok().filter(|parts| *parts > 0)
}

fn copies_finding(info: &Value, is_as_configured: bool) -> (FindingState, String) {
    let cluster = &info["cluster"];
    let leader = cluster["leader"].as_str().unwrap_or_default();
    let replicas = cluster["replicas"].as_array().map(Vec::as_slice).unwrap_or_default();
    let wanted = info["config"]["num_replicas"].as_u64().unwrap_or(1);
    if wanted > 1 && leader.is_empty() {
        let text = "has no leader: publications wait until a majority of its servers is back";
        return (FindingState::Wrong, text.to_owned());
    }
    let behind: Vec<String> = replicas.iter().filter_map(behind).collect();
    if !behind.is_empty() {
        let text = format!(
            "not all of its {wanted} copies are in step: {}. Until they are, the loss of another server can stop it",
            behind.join(", ")
        );
        return (FindingState::Warning, text);
    }
    let as_configured = if is_as_configured { "as configured, " } else { "" };
    let copies = if wanted == 1 { "1 copy".to_owned() } else { format!("leader {leader}, {wanted} copies in step") };
    let text = format!("{as_configured}{copies}, {} messages", info["state"]["messages"].as_u64().unwrap_or(0));
    (FindingState::Good, text)
}

/// Describes a replica that is out of sync; `None` if it is in sync.
fn behind(replica: &Value) -> Option<String> {
    let name = replica["name"].as_str().unwrap_or("a server");
    if replica["offline"].as_bool() == Some(true) {
        return Some(format!("{name} is offline"));
    }
    let lag = replica["lag"].as_u64().unwrap_or(0);
    // A new leader reports 0 for a server from which it has received nothing yet.
    let is_silent = replica["active"].as_u64().is_none_or(|silence_ns| silence_ns == 0 || silence_ns > SILENCE_MAX_NS);
    let is_current = replica["current"].as_bool() == Some(true);
    (lag > LAG_MAX || is_silent && !is_current).then(|| format!("{name} is {lag} operations behind"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lagging_stream_replicas_are_reported() {
        let replica = |name: &str, lag: u64, silence_ns: u64| json!({"name": name, "current": lag == 0, "lag": lag, "active": silence_ns});
        let in_step = || replica("n1", 0, 1);
        for (leader, replicas, state, part) in [
            ("n0", vec![in_step(), replica("n2", 0, 60_000_000_000)], FindingState::Good, "3 copies in step"),
            ("n0", vec![in_step(), replica("n2", 1_000, 10_000_000_000)], FindingState::Good, "3 copies in step"),
            ("n0", vec![in_step(), replica("n2", 1_001, 1)], FindingState::Warning, "n2 is 1001 operations behind"),
            (
                "n0",
                vec![in_step(), replica("n2", 7, 10_000_000_001)],
                FindingState::Warning,
                "n2 is 7 operations behind",
            ),
            ("n0", vec![in_step(), replica("n2", 3, 0)], FindingState::Warning, "n2 is 3 operations behind"),
            ("n0", vec![in_step(), json!({"name": "n2", "offline": true})], FindingState::Warning, "n2 is offline"),
            ("", vec![], FindingState::Wrong, "no leader"),
        ] {
            let info = json!({"config": {"num_replicas": 3}, "cluster": {"leader": leader, "replicas": replicas}});
            let found = copies_finding(&info, true);
            assert!(found.0 == state && found.1.contains(part), "{found:?}");
        }
        let single = copies_finding(&json!({"config": {"num_replicas": 1}, "state": {"messages": 5}}), true);
        assert_eq!(single, (FindingState::Good, "as configured, 1 copy, 5 messages".to_owned()));
    }
}
