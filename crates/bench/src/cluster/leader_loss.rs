//! Kills a NATS server that leads streams, while a publisher and a subscriber of each stream run.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use dunlin_cluster::names::{PartitionNames, part_of};
use serde::Serialize;

use super::args::ClusterFailoverArgs;
use super::elections::{Election, ElectionWatch};
use super::failover::target;
use super::nats::NatsProcesses;
use super::node::PREFIX;
use crate::api;
use crate::control::{
    ClientsRole, Publish, PublishRate, PublisherReport, PublisherRole, Role, WorkerCommand, WorkerReply,
};
use crate::error::Error;
use crate::metrics::MetricsSample;
use crate::proc::{self, Cores};
use crate::report::{Line, whole};
use crate::spawn::ServerProcess;
use crate::tally::Tally;
use crate::worker_process::{Worker, source_address};

const PAYLOAD_BYTES: usize = 128;
/// Duration of publishing before the server is killed.
const BEFORE: Duration = Duration::from_secs(2);
/// Publications that are missing after this time without any arrival count as lost.
const ARRIVAL_PATIENCE: Duration = Duration::from_secs(3);

/// The outcome of the publications.
#[derive(Debug, Serialize)]
pub struct LeaderLoss {
    /// The number of the killed server.
    server: usize,
    streams_led: usize,
    publications: u64,
    lost: u64,
    duplicated: u64,
    /// Answers with an error, by code.
    refused: BTreeMap<String, u64>,
    /// Publications without an answer 5 s after the last one.
    unanswered: u64,
    /// Channels of the two nodes whose subscribers had to recover. The subscribers of this scenario do not recover, so
    /// their losses are not losses for SDKs.
    interrupted: u64,
    /// Time from the kill to the last election of a stream leader; none if an election was not observed.
    elected_ms: Option<f64>,
    /// The longest time from the election of a stream's leader to the first acknowledgement.
    pub accepted_ms: Option<f64>,
    /// The longest time without an acknowledgement in one of the streams.
    pause_ms: f64,
    /// The same in the streams with other leaders; none if there are no such streams.
    pub others_pause_ms: Option<f64>,
}

/// A publisher and a subscriber for each stream.
pub struct LeaderLossRig {
    partitions: Vec<PartitionLoad>,
    tally: Tally,
    next_sequence: u64,
    /// The two nodes.
    nodes: [SocketAddr; 2],
}

/// One channel of one stream.
struct PartitionLoad {
    stream: String,
    publisher: Worker,
    reader: Worker,
}

impl LeaderLossRig {
    /// Publishers connect to the first node, and subscribers to the second.
    pub fn start(args: &ClusterFailoverArgs, nodes: &[ServerProcess], cores: &Cores) -> Result<Self, Error> {
        let tally = Tally::create()?;
        let mut partitions = Vec::new();
        for part in 0..args.partitions {
            let channel = channel_in(part, args.partitions);
            let worker = usize::from(part);
            let mut reader = Worker::start(&Role::Clients(ClientsRole {
                target: target(&nodes[1], &channel),
                worker,
                source: source_address(worker),
                handshakes_max: 1,
                slow_receive_bytes: 0,
                tally: tally.path(),
                cores: cores.clients.clone(),
                others: Vec::new(),
            }))?;
            let publisher = Worker::start(&Role::Publisher(PublisherRole {
                target: target(&nodes[0], &channel),
                api_key: None,
                payload_bytes: PAYLOAD_BYTES,
                tally: tally.path(),
                cores: cores.clients.clone(),
            }))?;
            reader.send_command(&WorkerCommand::Connect { sessions: 1, slow: 0 })?;
            for worker in [&reader, &publisher] {
                match worker.answer()? {
                    WorkerReply::Connected(connected) if connected.failed.is_empty() => {}
                    other => return Err(worker.unexpected(&other)),
                }
            }
            let stream = PartitionNames::new(PREFIX, "", part).stream.into_string();
            partitions.push(PartitionLoad { stream, publisher, reader });
        }
        Ok(LeaderLossRig { partitions, tally, next_sequence: 0, nodes: [nodes[0].operators, nodes[1].operators] })
    }

    /// Kills the server that leads the first stream, and restarts it afterwards.
    pub fn lose_leader(&mut self, args: &ClusterFailoverArgs, nats: &mut NatsProcesses) -> Result<LeaderLoss, Error> {
        nats.wait_until_in_step()?;
        let watch = ElectionWatch::start(nats)?;
        let interrupted_before = self.interrupted()?;
        let first_sequence = self.next_sequence;
        let duration_ns = args.duration.as_nanos() as u64;
        let pace = PublishRate::PerSecond(args.rate);
        let deliveries_before = self.tally.deliveries();
        for PartitionLoad { reader, publisher, .. } in &mut self.partitions {
            reader.send_command(&WorkerCommand::Begin { first_sequence })?;
            match reader.answer()? {
                WorkerReply::Done => {}
                other => return Err(reader.unexpected(&other)),
            }
            publisher.send_command(&WorkerCommand::Publish(Publish { first_sequence, duration_ns, pace }))?;
        }
        thread::sleep(BEFORE);
        let leaders = nats.leaders()?;
        let led_by = |stream: &str| leaders.get(stream).copied();
        let server = led_by(&self.partitions[0].stream).ok_or_else(|| Error::Nats {
            did: format!("names no leader of {}", self.partitions[0].stream),
            remedy: "check the servers' logs".into(),
        })?;
        watch.seen();
        let killed_ns = proc::now_ns();
        nats.kill(server);
        let mut reports = Vec::new();
        for PartitionLoad { publisher, stream, .. } in &mut self.partitions {
            match publisher.answer()? {
                WorkerReply::Published(published) => reports.push((led_by(stream) == Some(server), stream, published)),
                other => return Err(publisher.unexpected(&other)),
            }
        }
        let elections = watch.seen();
        let mut loss = LeaderLoss::new(server, killed_ns, &elections, &reports);
        let most = reports.iter().map(|(_, _, report)| report.publications).max().unwrap_or(0);
        self.next_sequence += most;
        (loss.lost, loss.duplicated) = self.missed(loss.publications, deliveries_before, first_sequence)?;
        loss.interrupted = self.interrupted()? - interrupted_before;
        nats.restart(server)?;
        Ok(loss)
    }

    /// Waits until all publications have arrived or are lost.
    fn missed(&mut self, publications: u64, before: u64, first_sequence: u64) -> Result<(u64, u64), Error> {
        let (mut deliveries, mut changed) = (self.tally.deliveries(), Instant::now());
        while deliveries < before + publications && changed.elapsed() < ARRIVAL_PATIENCE {
            thread::sleep(Duration::from_millis(5));
            let now = self.tally.deliveries();
            if now != deliveries {
                (deliveries, changed) = (now, Instant::now());
            }
        }
        let (mut lost, mut duplicated) = (0, 0);
        let end_sequence = first_sequence + publications / self.partitions.len() as u64;
        for PartitionLoad { reader, .. } in &mut self.partitions {
            reader.send_command(&WorkerCommand::End { end_sequence })?;
            match reader.answer()? {
                WorkerReply::Received(received) => {
                    lost += received.lost;
                    duplicated += received.duplicated;
                }
                other => return Err(reader.unexpected(&other)),
            }
        }
        Ok((lost, duplicated))
    }

    fn interrupted(&self) -> Result<u64, Error> {
        let mut interrupted = 0.0;
        for node in self.nodes {
            let metrics = MetricsSample::parse(&api::get(node, "/metrics")?);
            interrupted += metrics.sum("dunlin_cluster_channels_interrupted_total").unwrap_or(0.0);
        }
        Ok(whole(interrupted))
    }
}

/// The name of a channel in a partition.
fn channel_in(part: u16, parts: u16) -> String {
    let mut number = 0_u64;
    loop {
        let channel = format!("failover{number}");
        if part_of(&channel, parts) == part {
            return channel;
        }
        number += 1;
    }
}

/// The longest of these times; none if one of them is missing.
fn longest(all: &[Option<f64>]) -> Option<f64> {
    all.iter().try_fold(0.0_f64, |longest, found| Some(longest.max((*found)?)))
}

fn unanswered(report: &PublisherReport) -> u64 {
    report.publications - report.accepted - report.refused.values().sum::<u64>()
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

impl LeaderLoss {
    /// `reports` contains for each stream whether the killed server led it.
    fn new(
        server: usize,
        killed_ns: u64,
        elections: &[Election],
        reports: &[(bool, &mut String, Box<PublisherReport>)],
    ) -> Self {
        let election_ns = |stream: &str| {
            let later = elections.iter().filter(|election| election.stream == stream && election.seen_ns > killed_ns);
            later.map(|election| election.seen_ns).min()
        };
        let led = || reports.iter().filter(|(is_led, ..)| *is_led);
        let elected_ms: Vec<Option<f64>> =
            led().map(|(_, stream, _)| Some(ms(election_ns(stream)? - killed_ns))).collect();
        let accepted = |stream: &str, report: &PublisherReport| {
            Some(ms(report.pause.until_ns.saturating_sub(election_ns(stream)?)))
        };
        let accepted_ms: Vec<Option<f64>> = led().map(|(_, stream, report)| accepted(stream, report)).collect();
        let others: Vec<f64> =
            reports.iter().filter(|(is_led, ..)| !is_led).map(|(_, _, report)| ms(report.pause.ns())).collect();
        LeaderLoss {
            server,
            streams_led: reports.len() - others.len(),
            publications: reports.iter().map(|(_, _, report)| report.publications).sum(),
            lost: 0,
            duplicated: 0,
            unanswered: reports.iter().map(|(_, _, report)| unanswered(report)).sum(),
            refused: reports.iter().fold(BTreeMap::new(), |mut all, (_, _, report)| {
                for (code, count) in &report.refused {
                    *all.entry(code.clone()).or_default() += count;
                }
                all
            }),
            interrupted: 0,
            elected_ms: longest(&elected_ms),
            accepted_ms: longest(&accepted_ms),
            pause_ms: led().map(|(_, _, report)| ms(report.pause.ns())).fold(0.0, f64::max),
            others_pause_ms: others.iter().copied().reduce(f64::max),
        }
    }

    /// The number of publications that were not accepted, and of missing or repeated deliveries.
    pub fn missed(&self) -> u64 {
        self.lost + self.duplicated + self.unanswered + self.refused.values().sum::<u64>()
    }

    pub fn line(&self) -> Line {
        let shown = |ms: Option<f64>| ms.map_or("not seen".into(), |ms| format!("{ms:.0} ms"));
        let value = format!(
            "led {} streams; elected after {}, accepted {} after the election (pause {:.0} ms); pause of others {}; \
             {} publications, {} lost, {} duplicated, {:?} refused, {} unanswered, {} channels interrupted",
            self.streams_led,
            shown(self.elected_ms),
            shown(self.accepted_ms),
            self.pause_ms,
            shown(self.others_pause_ms),
            self.publications,
            self.lost,
            self.duplicated,
            self.refused,
            self.unanswered,
            self.interrupted
        );
        Line::new(format!("server n{} killed", self.server), value)
    }
}
