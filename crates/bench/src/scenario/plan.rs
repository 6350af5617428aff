//! `plan`: what a load needs, from two short runs on this machine.
//!
//! The first run has many publications with few deliveries each, the second one few publications with many deliveries
//! and more and more connections. So the costs of a publication, of a delivery and of a connection are told apart.

mod fit;
mod prices;

use serde::Serialize;

use self::fit::{Estimate, Fit, Scatter};
use self::prices::{Need, Offer, PriceList};
use super::args::{PlanArgs, ScenarioArgs};
use super::machine::Machine;
use super::profile::Profile;
use super::result::{PhaseResult, RunResult};
use crate::commands::EncodingOption;
use crate::error::Error;
use crate::interrupt;
use crate::report::{self, Line, grouped};

const PUBLICATIONS: (&str, &str) = ("plan-publications", include_str!("plan/publications.toml"));
const DELIVERIES: (&str, &str) = ("plan-deliveries", include_str!("plan/deliveries.toml"));
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
    /// Private memory of the servers.
    memory_bytes: Estimate,
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
    encoding: EncodingOption,
    deliveries_per_second: f64,
}

/// Runs the calibrations, and prints the plan.
pub fn run(args: &PlanArgs) -> Result<(), Error> {
    let prices = args.prices.as_deref().map(PriceList::read).transpose()?;
    let load = load(args)?;
    interrupt::watch()?;
    let mut machine = Machine::now();
    let publications = calibrate(args, PUBLICATIONS)?;
    let deliveries = calibrate(args, DELIVERIES)?;
    machine.end();
    let mut plan = estimate(load, machine, &publications, &deliveries)?;
    if let Some(prices) = prices {
        // With the upper ends: machines that may be too small are no plan.
        let need = Need {
            cores: plan.cores.high,
            memory_bytes: plan.memory_bytes.high + plan.kernel_bytes.map_or(0.0, |kernel| kernel.high),
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
        encoding: args.encoding,
        deliveries_per_second: args.publications * args.connections as f64 / args.channels as f64,
    })
}

/// A run with the messages of the load.
fn calibrate(args: &PlanArgs, (name, text): (&str, &str)) -> Result<RunResult, Error> {
    let encoding = if args.encoding == EncodingOption::Json { "json" } else { "protobuf" };
    let changes = [format!("message.bytes={}", args.bytes), format!("message.encoding=\"{encoding}\"")];
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

fn estimate(
    load: PlannedLoad,
    machine: Machine,
    publications: &RunResult,
    deliveries: &RunResult,
) -> Result<Plan, Error> {
    let unknown = |what: &str| {
        let remedy = "give --server-pid for a running server, or run it again on a quieter machine";
        Error::Scenario(format!("{what} of the server is not known from the calibration; {remedy}"))
    };
    let phases = publications.outcome.phases.iter().chain(&deliveries.outcome.phases);
    let costs: Vec<_> = phases.filter(|phase| phase.is_measured).filter_map(cost).collect();
    let cpu = Fit::of(&costs, Scatter::Relative).ok_or_else(|| unknown("the CPU time"))?;
    let connections = load.connections as f64;
    let points = &deliveries.series.points;
    let memory: Vec<_> = points.iter().map(|of| ([1.0, of.connections as f64], of.anon_bytes as f64)).collect();
    let memory = Fit::of(&memory, Scatter::Absolute).ok_or_else(|| unknown("the memory"))?;
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
        memory_bytes: memory.predict(&[1.0, connections]),
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
        let mut lines = vec![
            Line::new("machine", &self.machine.description),
            Line::new(
                "load",
                format!(
                    "{} connections in {} channels, {} publications/s of {} bytes: {} deliveries/s",
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
