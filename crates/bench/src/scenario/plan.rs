//! `plan`: what a load needs, from short runs on this machine.
//!
//! The first run has many publications with few deliveries each, the second one few publications with many deliveries
//! and more and more connections. So the costs of a publication, of a delivery and of a connection are told apart. If the load has several
//! channels, a third run has more and more of them; if they have history, a last one fills it.

mod fit;
mod prices;

use std::collections::BTreeMap;

use serde::Serialize;

use self::fit::{Estimate, Fit, Scatter};
use self::prices::{Need, Offer, PriceList};
use super::args::{PlanArgs, ScenarioArgs};
use super::machine::Machine;
use super::profile::Profile;
use super::result::{PhaseResult, Point, RunResult};
use crate::commands::EncodingOption;
use crate::error::Error;
use crate::interrupt;
use crate::report::{self, Line, grouped};

const PUBLICATIONS: (&str, &str) = ("plan-publications", include_str!("plan/publications.toml"));
const DELIVERIES: (&str, &str) = ("plan-deliveries", include_str!("plan/deliveries.toml"));
const CHANNELS: (&str, &str) = ("plan-channels", include_str!("plan/channels.toml"));
const HISTORY: (&str, &str) = ("plan-history", include_str!("plan/history.toml"));
/// Settings of a server whose channels have the history of the load.
const HISTORY_TTL: &str = "server.channel.without_namespace.history_ttl=\"1h\"";
const HISTORY_SIZE: &str = "server.channel.without_namespace.history_size";
/// Limits of histories with their defaults: one of a channel, and one of a node.
const CHANNEL_LIMIT: (&str, u64) = ("channel.without_namespace.history_memory_limit", 16 << 20);
const NODE_LIMIT: (&str, u64) = ("channel.history_memory_limit", 1 << 30);
/// What these limits count for a publication beside its data.
const PUBLICATION_BYTES: u64 = 256;
/// Ethernet, IP and TCP headers of a packet.
const HEADER_BYTES: f64 = 66.0;
const MIB: f64 = 1_048_576.0;

/// What the load needs.
#[derive(Debug, Serialize)]
struct Plan {
    machine: Machine,
    load: PlannedLoad,
    /// Cores like the ones of this machine.
    cores: Estimate,
    /// Private memory of the servers for connections and channels.
    memory_bytes: Estimate,
    /// Private memory of the servers for histories that are full; none without history.
    history_bytes: Option<Estimate>,
    /// Keys of the configuration to raise to these bytes, so that histories can be full.
    limits: BTreeMap<&'static str, u64>,
    /// The kernel's memory for the connections, measured for both ends.
    kernel_bytes: Option<Estimate>,
    /// From the servers to the clients, with the headers of one packet for each delivery.
    network_mbit: f64,
    /// What the prices are in.
    price_unit: Option<String>,
    offers: Vec<Offer>,
}

/// The load to be planned.
#[derive(Debug, Clone, Serialize)]
struct PlannedLoad {
    connections: u64,
    /// Publications per second.
    publications: f64,
    payload_bytes: u64,
    channels: u64,
    history_size: u64,
    encoding: EncodingOption,
    deliveries_per_second: f64,
}

impl PlannedLoad {
    /// Channels with clients.
    fn occupied_channels(&self) -> f64 {
        self.channels.min(self.connections) as f64
    }

    /// Publications in full histories.
    fn stored(&self) -> f64 {
        self.channels as f64 * self.history_size as f64
    }

    /// Limits whose default evicts publications before histories are full, with the bytes that the load needs.
    fn limits(&self) -> BTreeMap<&'static str, u64> {
        let publication = self.payload_bytes.saturating_add(PUBLICATION_BYTES);
        let channel = self.history_size.saturating_mul(publication);
        let needs = [(CHANNEL_LIMIT, channel), (NODE_LIMIT, channel.saturating_mul(self.channels))];
        needs.into_iter().filter(|((_, limit), bytes)| bytes > limit).map(|((key, _), bytes)| (key, bytes)).collect()
    }
}

/// What was measured.
struct Calibration {
    publications: RunResult,
    deliveries: RunResult,
    /// None for one channel.
    channels: Option<RunResult>,
    /// None without history.
    history: Option<RunResult>,
}

/// Runs the calibrations, and prints the plan.
pub fn run(args: &PlanArgs) -> Result<(), Error> {
    let prices = args.prices.as_deref().map(PriceList::read).transpose()?;
    let load = load(args)?;
    interrupt::watch()?;
    let mut machine = Machine::now();
    let of_load = if args.history_size > 0 {
        vec![format!("{HISTORY_SIZE}={}", args.history_size), HISTORY_TTL.to_owned()]
    } else {
        Vec::new()
    };
    let measured = Calibration {
        publications: calibrate(args, PUBLICATIONS, &of_load)?,
        deliveries: calibrate(args, DELIVERIES, &of_load)?,
        channels: (args.channels > 1).then(|| calibrate(args, CHANNELS, &of_load)).transpose()?,
        history: (args.history_size > 0).then(|| calibrate(args, HISTORY, &[])).transpose()?,
    };
    machine.end();
    let mut plan = estimate(load, machine, &measured)?;
    if let Some(prices) = prices {
        // With the upper ends: machines that may be too small are no plan.
        let need = Need {
            cores: plan.cores.high,
            memory_bytes: plan.memory_bytes.high
                + [plan.history_bytes, plan.kernel_bytes].into_iter().flatten().map(|part| part.high).sum::<f64>(),
            network_mbit: plan.network_mbit,
        };
        plan.offers = prices.offers(need, args.share);
        plan.price_unit = Some(prices.unit);
    }
    report::publish(&plan, &plan.lines(args.share), &args.output)
}

fn load(args: &PlanArgs) -> Result<PlannedLoad, Error> {
    let wrong = |name, value: String, remedy: &str| Error::Setting { name, value, remedy: remedy.to_owned() };
    if args.connections == 0 || args.channels == 0 {
        return Err(wrong("connections", args.connections.to_string(), "give at least 1, and at least 1 channel"));
    }
    if args.history_size > 16_777_216 {
        return Err(wrong("history-size", args.history_size.to_string(), "give 0 to 16777216"));
    }
    if args.history_size > 0 && args.target.target.is_some() {
        let remedy = "leave out --target: the history of a running server is as it is configured";
        return Err(wrong("history-size", args.history_size.to_string(), remedy));
    }
    if !(args.publications >= 0.0 && args.publications <= 1e9) {
        return Err(wrong("publications", args.publications.to_string(), "give 0 to 1000000000"));
    }
    if !(args.share > 0.0 && args.share <= 1.0) {
        return Err(wrong("share", args.share.to_string(), "give more than 0, at most 1"));
    }
    Ok(PlannedLoad {
        connections: args.connections,
        publications: args.publications,
        payload_bytes: args.bytes,
        channels: args.channels,
        history_size: args.history_size,
        encoding: args.encoding,
        deliveries_per_second: args.publications * args.connections as f64 / args.channels as f64,
    })
}

/// A run with the messages of the load, and these changes.
fn calibrate(args: &PlanArgs, (name, text): (&str, &str), changes: &[String]) -> Result<RunResult, Error> {
    let encoding = if args.encoding == EncodingOption::Json { "json" } else { "protobuf" };
    let of_messages = [format!("message.bytes={}", args.bytes), format!("message.encoding=\"{encoding}\"")];
    let changes = [&of_messages[..], changes].concat();
    let profile = Profile::parse(name, text, &changes).map_err(Error::Scenario)?;
    let run = ScenarioArgs {
        target: args.target.clone(),
        set: Vec::new(),
        on: None,
        short: false,
        gate: None,
        runs: std::path::PathBuf::new(),
        pin: args.pin.clone(),
        quiet: args.output.quiet,
    };
    let result = super::run_once(&profile, &run);
    if let Some(why) = &result.partial {
        return Err(Error::Scenario(format!("the calibration {name} ended early: {why}")));
    }
    let faults = ["lost", "refused", "closed", "connect_failed", "unsent"];
    let sum = |name: &&str| result.outcome.figures.get(*name).map_or(0.0, |figure| figure.value);
    if let Some(fault) = faults.iter().find(|name| sum(name) > 0.0) {
        let message = format!("{} {fault} in the calibration {name}: this machine does not carry it", sum(fault));
        return Err(Error::Scenario(format!("{message}; end other programs, or plan on a larger one")));
    }
    Ok(result)
}

/// Publications and deliveries per second, and the cores for them.
fn cost(phase: &PhaseResult) -> Option<([f64; 3], f64)> {
    let figure = |name| phase.figures.get(name).copied();
    let (rate, cores) = (figure("deliveries_per_second")?, figure("cpu_cores")?);
    let seconds = figure("delivered").filter(|delivered| *delivered > 0.0)? / rate;
    Some(([1.0, figure("published")? / seconds, rate], cores))
}

/// The memory of connections and channels, from runs with more and more of both.
fn memory(load: &PlannedLoad, deliveries: &[Point], channels: Option<&[Point]>) -> Option<Estimate> {
    let connections = load.connections as f64;
    let Some(of_channels) = channels else {
        let points: Vec<_> = deliveries.iter().map(|of| ([1.0, of.connections as f64], of.anon_bytes as f64)).collect();
        return Some(Fit::of(&points, Scatter::Absolute)?.predict(&[1.0, connections]));
    };
    // Each run is a process with a constant part of its own. In the second one, each connection has a channel of its own.
    let in_one = deliveries.iter().map(|of| ([1.0, 0.0, of.connections as f64, 1.0], of.anon_bytes as f64));
    let in_own = of_channels.iter().map(|of| {
        let connections = of.connections as f64;
        ([0.0, 1.0, connections, connections], of.anon_bytes as f64)
    });
    let points: Vec<_> = in_one.chain(in_own).collect();
    Some(Fit::of(&points, Scatter::Absolute)?.predict(&[1.0, 0.0, connections, load.occupied_channels()]))
}

/// The memory of full histories, from a run that fills them.
fn histories(load: &PlannedLoad, phases: &[PhaseResult]) -> Option<Estimate> {
    let mut stored = 0.0;
    let points: Option<Vec<_>> = phases
        .iter()
        .map(|phase| {
            stored += phase.figures.get("published")?;
            Some(([1.0, stored], *phase.figures.get("memory")?))
        })
        .collect();
    // Without the constant part, which is that of the process.
    Some(Fit::of(&points?, Scatter::Absolute)?.predict(&[0.0, load.stored()]))
}

fn estimate(load: PlannedLoad, machine: Machine, measured: &Calibration) -> Result<Plan, Error> {
    let (publications, deliveries) = (&measured.publications, &measured.deliveries);
    let unknown = |what: &str| {
        let remedy = "give --server-pid for a running server, or run it again on a quieter machine";
        Error::Scenario(format!("{what} of the server is not known from the calibration; {remedy}"))
    };
    let phases = publications.outcome.phases.iter().chain(&deliveries.outcome.phases);
    let costs: Vec<_> = phases.filter(|phase| phase.is_measured).filter_map(cost).collect();
    let cpu = Fit::of(&costs, Scatter::Relative).ok_or_else(|| unknown("the CPU time"))?;
    let connections = load.connections as f64;
    let points = &deliveries.series.points;
    let of_channels = measured.channels.as_ref().map(|run| run.series.points.as_slice());
    let memory = memory(&load, points, of_channels).ok_or_else(|| unknown("the memory"))?;
    let history = match &measured.history {
        Some(run) => Some(histories(&load, &run.outcome.phases).ok_or_else(|| unknown("the memory of histories"))?),
        None => None,
    };
    let kernel: Vec<_> =
        points.iter().filter_map(|of| Some(([1.0, of.connections as f64], of.kernel_bytes? as f64))).collect();
    // Without the constant part, which is that of all programs of the machine.
    let kernel = Fit::of(&kernel, Scatter::Absolute).map(|kernel| kernel.predict(&[0.0, connections]));
    let delivered = deliveries.outcome.figures.get("delivered").map_or(0.0, |figure| figure.value);
    let written = deliveries.target.counts.get("dunlin_written_bytes_total").copied();
    let bytes = written.ok_or_else(|| unknown("the number of written bytes"))? / delivered + HEADER_BYTES;
    Ok(Plan {
        machine,
        cores: cpu.predict(&[1.0, load.publications, load.deliveries_per_second]),
        memory_bytes: memory,
        history_bytes: history,
        limits: load.limits(),
        kernel_bytes: kernel,
        network_mbit: load.deliveries_per_second * bytes * 8.0 / 1e6,
        load,
        price_unit: None,
        offers: Vec::new(),
    })
}

impl Plan {
    fn lines(&self, share: f64) -> Vec<Line> {
        let of = |estimate: Estimate, unit: f64, name: &str| {
            let [value, low, high] = [estimate.value, estimate.low, estimate.high].map(|value| value / unit);
            let shown = |value: f64| if value < 100.0 { format!("{value:.2}") } else { grouped(value) };
            format!("{} {name} ({} to {})", shown(value), shown(low), shown(high))
        };
        let load = &self.load;
        let history = match load.history_size {
            0 => String::new(),
            size => format!(" with a history of {}", grouped(size as f64)),
        };
        let mut lines = vec![
            Line::new("machine", &self.machine.description),
            Line::new(
                "load",
                format!(
                    "{} connections in {} channels{history}, {} publications/s of {} bytes: {} deliveries/s",
                    grouped(load.connections as f64),
                    grouped(load.channels as f64),
                    grouped(load.publications),
                    load.payload_bytes,
                    grouped(load.deliveries_per_second)
                ),
            ),
            Line::new("cores", of(self.cores, 1.0, "like the ones of this machine")),
            Line::new("memory", of(self.memory_bytes, MIB, "MiB")),
        ];
        lines.extend(self.history_bytes.map(|history| Line::new("history", of(history, MIB, "MiB when it is full"))));
        lines.extend(self.limits.iter().map(|(key, bytes)| {
            let mib = grouped((*bytes as f64 / MIB).ceil());
            Line::new(
                "limit",
                format!("raise {key} to {mib} MiB, or publications are evicted before histories are full"),
            )
        }));
        lines.extend(self.kernel_bytes.map(|kernel| Line::new("kernel memory", of(kernel, MIB, "MiB for both ends"))));
        lines.push(Line::new("network", format!("{} Mbit/s to the clients", grouped(self.network_mbit))));
        let unit = self.price_unit.as_deref().unwrap_or_default();
        for offer in &self.offers {
            let machines = format!("{} × {}", offer.count, offer.machine);
            let why = format!("{} decide, {:.0} % used", offer.decided_by, share * 100.0);
            lines.push(Line::new("cost", format!("{} {unit}: {machines} ({why})", grouped(offer.price))));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(connections: u64, channels: u64, history_size: u64) -> PlannedLoad {
        PlannedLoad {
            connections,
            publications: 0.0,
            payload_bytes: 128,
            channels,
            history_size,
            encoding: EncodingOption::Json,
            deliveries_per_second: 0.0,
        }
    }

    /// Memory by connections.
    fn points(bytes: impl Fn(u64) -> u64) -> Vec<Point> {
        let point =
            |connections| Point { connections, anon_bytes: bytes(connections), rss_bytes: 0, kernel_bytes: None };
        [400, 800, 1_200, 1_600, 2_000].map(point).into()
    }

    #[test]
    fn channels_take_memory_up_to_one_for_each_client() {
        // 700 bytes a connection, 500 a channel; the second process happens to be larger from the beginning.
        let in_one = points(|connections| 8_000_500 + 700 * connections);
        let in_own = points(|connections| 8_100_000 + 1_200 * connections);
        let of = |load: PlannedLoad| memory(&load, &in_one, Some(&in_own)).unwrap().value;
        assert!((of(planned(10_000, 1_000, 0)) - (8_000_000.0 + 7e6 + 0.5e6)).abs() < 100.0);
        assert!((of(planned(10_000, 90_000, 0)) - (8_000_000.0 + 7e6 + 5e6)).abs() < 100.0, "90,000 are not occupied");
        let one = memory(&planned(10_000, 1, 0), &in_one, None).unwrap().value;
        assert!((one - 15_000_500.0).abs() < 100.0);
    }

    #[test]
    fn histories_take_memory_for_each_publication_when_they_are_full() {
        let phase = |name: &str, published: f64, memory: f64| PhaseResult {
            name: name.to_owned(),
            is_measured: name != "warm-up",
            from_s: 0.0,
            until_s: 0.0,
            figures: BTreeMap::from([("published".to_owned(), published), ("memory".to_owned(), memory)]),
        };
        // 400 bytes each, in a process of 8 MB.
        let phases = [
            phase("warm-up", 1_500.0, 8_600_000.0),
            phase("hold", 3_000.0, 9_800_000.0),
            phase("hold", 3_000.0, 11_000_000.0),
            phase("hold", 3_000.0, 12_200_000.0),
        ];
        let estimate = histories(&planned(10, 1_000, 100), &phases).unwrap();
        assert!((estimate.value - 40e6).abs() < 100.0 && estimate.high < 40.1e6, "{estimate:?}");
        let mut hidden = phases.to_vec();
        hidden[1].figures.remove("memory");
        assert!(histories(&planned(10, 1_000, 100), &hidden).is_none());
    }

    #[test]
    fn a_load_names_the_limits_that_it_exceeds() {
        // 128 bytes of payload count as 384.
        assert!(planned(10, 1_000, 2_796).limits().is_empty(), "77,824 bytes below 1 GiB");
        assert_eq!(planned(10, 1_000, 2_797).limits(), BTreeMap::from([(NODE_LIMIT.0, 1_074_048_000)]));
        assert!(planned(10, 1, 43_690).limits().is_empty(), "256 bytes below 16 MiB");
        assert_eq!(planned(10, 1, 43_691).limits(), BTreeMap::from([(CHANNEL_LIMIT.0, 16_777_344)]));
        let schema = include_str!("../../../../schema/config.json");
        let schema: serde_json::Value = serde_json::from_str(schema).unwrap();
        for (key, default) in [CHANNEL_LIMIT, NODE_LIMIT] {
            let option = key.split('.').fold(&schema, |schema, part| &schema["properties"][part]);
            assert_eq!(option["default"], default, "{key}");
        }
    }

    #[test]
    fn calibrations_are_valid_with_the_history_of_a_load() {
        let history = [format!("{HISTORY_SIZE}=50"), HISTORY_TTL.to_owned()];
        for (name, text) in [PUBLICATIONS, DELIVERIES, CHANNELS] {
            let profile = Profile::parse(name, text, &history).unwrap();
            assert!(profile.server.contains(&"channel.without_namespace.history_size=50".to_owned()), "{name}");
            assert!(profile.server.contains(&"channel.without_namespace.history_ttl=1h".to_owned()), "{name}");
        }
        assert!(Profile::parse(HISTORY.0, HISTORY.1, &[]).unwrap().server.len() == 2);
    }
}
