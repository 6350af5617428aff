//! One channel with many subscribers: the cost and the latency of a delivery, and whether all deliveries arrive.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::args::{FanoutArgs, LoadArgs, PublishVia};
use crate::commands::EncodingOption;
use crate::control::{Send, Slow, Until};
use crate::error::Error;
use crate::goal::Goal;
use crate::latency::Summary;
use crate::proc::{self, Cores, Memory};
use crate::progress::Progress;
use crate::report::{self, Line, grouped, per_second, ratio, size, time, whole};
use crate::rig::{FanoutPhase, FanoutRig, FanoutSetup};
use crate::roofline::{Beside, BesideFigures};
use crate::spawn::ServerProcess;

/// The result of `fanout`.
#[derive(Debug, Serialize)]
pub struct FanoutReport {
    scenario: &'static str,
    machine: String,
    server: String,
    settings: Settings,
    #[serde(flatten)]
    load: LoadFigures,
    /// The kernel's limit in the same run, if requested.
    roofline: Option<BesideFigures>,
    /// The same load with TLS, measured alternately, if requested.
    tls: Option<TlsFigures>,
    /// The outcome of readers that stopped reading, if any.
    slow_readers: Option<Slow>,
    /// The goals for this load, if any.
    goals: Vec<Goal>,
}

/// The settings of the run.
#[derive(Debug, Serialize)]
pub struct Settings {
    subscribers: usize,
    /// None if saturating.
    publications_per_second: Option<f64>,
    /// Publications in flight, if saturating.
    window: Option<u64>,
    payload_bytes: usize,
    encoding: EncodingOption,
    publish_via: PublishVia,
    seconds: f64,
    cores: Cores,
}

/// The measurements of a load.
#[derive(Debug, Serialize)]
pub struct LoadFigures {
    publications: u64,
    /// Publications that the server accepted.
    accepted: u64,
    /// Publications that the server refused, by error code.
    refused: BTreeMap<String, u64>,
    deliveries_offered: u64,
    deliveries_received: u64,
    lost: u64,
    duplicated: u64,
    /// Sessions that ended, by close code or reason.
    closed: BTreeMap<String, u64>,
    /// Sessions that ended before the measurement, by close code or reason.
    closed_in_warm_up: BTreeMap<String, u64>,
    /// The figure to compare with the roofline.
    deliveries_per_server_cpu_second: f64,
    deliveries_per_second: f64,
    reads_per_second: f64,
    deliveries_per_read: f64,
    bytes_per_delivery: f64,
    /// From the intended time of a publication to the read that received it.
    latency: Summary,
    /// From the intended time to the write of the publisher: lateness of the load generator.
    publisher_lag: Summary,
    server_cpu_ns: u64,
    /// Share of the server's processor time spent in its own code (from coarse ticks).
    server_user_share: f64,
    server_cores_busy: f64,
    memory_before: Option<Memory>,
    memory_after: Option<Memory>,
    memory_anon_bytes_max: u64,
    client_cpu_ns: u64,
    publisher_cpu_ns: u64,
    /// Ratio of the clients' cost of a delivery to the server's. It should be below 1.
    client_cost_ratio: f64,
}

/// The cost of TLS.
#[derive(Debug, Serialize)]
struct TlsFigures {
    #[serde(flatten)]
    load: LoadFigures,
    /// Deliveries per server CPU-second, divided by those without TLS.
    ratio: f64,
}

/// The load with TLS, on a separate server.
struct TlsSide {
    rig: FanoutRig,
    warm: FanoutPhase,
    phase: FanoutPhase,
}

/// Runs the scenario.
pub fn run(args: &FanoutArgs) -> Result<(), Error> {
    args.check()?;
    let cores = args.run.pin.cores();
    let progress = Progress::new(args.run.output.quiet);
    progress.doing("starting the server".into());
    let server = ServerProcess::start(&args.run.server.speaking(args.speaks), &cores)?;
    let name = server.name.clone();
    let mut rig = FanoutRig::start(server, &FanoutSetup::of(&args.load, &cores))?.ready(
        &args.load,
        args.slow_readers,
        &args.run.server.start.api_key,
        &progress,
    )?;
    let pace = args.load.pace(args.slow_readers);
    let mut tls = if args.tls { Some(TlsSide::start(args, &cores, &progress)?) } else { None };
    let warm = rig.phase(pace, args.load.warm_up, "warming up", &progress)?;
    if args.slow_readers > 0 {
        rig.pause_slow()?;
    }
    let turn = args.load.duration / args.load.turns;
    let mut phase = FanoutPhase::default();
    let mut roofline = if args.roofline {
        Some(Beside::start(args.load.subscribers, &cores, roofline_order(&args.load, &warm, turn))?)
    } else {
        None
    };
    for number in 1..=args.load.turns {
        if let Some(roofline) = &mut roofline {
            roofline.turn(&progress)?;
        }
        let label = format!("turn {number} of {}", args.load.turns);
        let is_plain_first = number % 2 == 1;
        if is_plain_first {
            phase.add(&rig.phase(pace, turn, &label, &progress)?);
        }
        if let Some(tls) = &mut tls {
            let label = format!("{label}, TLS");
            tls.phase.add(&tls.rig.phase(pace, turn, &label, &progress)?);
        }
        if !is_plain_first {
            phase.add(&rig.phase(pace, turn, &label, &progress)?);
        }
        if let Some(roofline) = &mut roofline {
            roofline.turn(&progress)?;
        }
    }
    let slow_readers = if args.slow_readers > 0 { Some(rig.wake_slow()?) } else { None };
    progress.finish();
    let load = LoadFigures::new(&phase, &warm.received.closed);
    let roofline = roofline.map(|roofline| roofline.figures(load.deliveries_per_server_cpu_second));
    let tls = tls.map(|side| side.figures(&load));
    let goals = goals(&args.load, &load, roofline.as_ref(), tls.as_ref());
    let report = FanoutReport {
        goals,
        scenario: "fanout",
        machine: proc::machine(),
        server: name,
        settings: Settings::new(&args.load, &cores),
        load,
        roofline,
        tls,
        slow_readers,
    };
    report::publish(&report, &report.lines(), &args.run.output)
}

/// Minimum ratio of deliveries per CPU-second with TLS to those without.
const TLS_RATIO_GOAL: f64 = 0.7;

impl TlsSide {
    fn start(args: &FanoutArgs, cores: &Cores, progress: &Progress) -> Result<Self, Error> {
        progress.doing("starting a server with TLS".into());
        let server = ServerProcess::start(&args.run.server.next(true), cores)?;
        let mut rig = FanoutRig::start(server, &FanoutSetup::of(&args.load, cores))?.ready(
            &args.load,
            0,
            &args.run.server.start.api_key,
            progress,
        )?;
        let warm = rig.phase(args.load.pace(0), args.load.warm_up, "warming up, TLS", progress)?;
        Ok(TlsSide { rig, warm, phase: FanoutPhase::default() })
    }

    fn figures(self, plain: &LoadFigures) -> TlsFigures {
        let load = LoadFigures::new(&self.phase, &self.warm.received.closed);
        let ratio = ratio(load.deliveries_per_server_cpu_second, plain.deliveries_per_server_cpu_second);
        TlsFigures { load, ratio }
    }
}

/// The goals for 1,000 subscribers at 60 and at 500 publications per second.
fn goals(
    load: &LoadArgs,
    figures: &LoadFigures,
    roofline: Option<&BesideFigures>,
    tls: Option<&TlsFigures>,
) -> Vec<Goal> {
    let of_roofline = roofline.map(|roofline| roofline.ratio);
    let missed = |figures: &LoadFigures| (figures.lost + figures.duplicated) as f64;
    let lost = missed(figures) + tls.map_or(0.0, |tls| missed(&tls.load));
    let mut goals = vec![Goal::at_most("lost or duplicated", Some(lost), 0.0, "")];
    if let Some(tls) = tls {
        goals.push(Goal::at_least(
            "deliveries per CPU-second, TLS against plain",
            Some(tls.ratio),
            TLS_RATIO_GOAL,
            "×",
        ));
    }
    // With a second server on the same machine, latencies are not comparable.
    if tls.is_some() || load.saturate.is_some() || load.subscribers != 1_000 {
        return goals;
    }
    match whole(load.rate) {
        60 => {
            goals.push(Goal::at_most("latency, p99", Some(figures.p99_us() as f64 / 1e3), 8.0, "ms"));
            goals.push(Goal::at_least("deliveries per CPU-second, against the roofline", of_roofline, 1.15, "×"));
        }
        500 => goals.push(Goal::at_least("deliveries per CPU-second, against the roofline", of_roofline, 2.0, "×")),
        _ => {}
    }
    goals
}

/// The roofline command that corresponds to this load, with frames of the size that the server sends.
fn roofline_order(load: &LoadArgs, warm: &FanoutPhase, turn: Duration) -> Send {
    let bytes = ratio(warm.received.bytes as f64, warm.received.deliveries as f64);
    Send {
        frame_bytes: (whole(bytes.round()) as usize).max(1),
        rounds_per_second: load.saturate.is_none().then_some(load.rate),
        until: Until::DurationNs(turn.as_nanos() as u64),
        batch: None,
    }
}

impl Settings {
    /// The settings from the arguments.
    pub(crate) fn new(load: &LoadArgs, cores: &Cores) -> Self {
        Settings {
            subscribers: load.subscribers,
            publications_per_second: load.saturate.is_none().then_some(load.rate),
            window: load.saturate,
            payload_bytes: load.payload_bytes,
            encoding: load.encoding,
            publish_via: load.publish_via,
            seconds: load.duration.as_secs_f64(),
            cores: cores.clone(),
        }
    }

    pub(crate) fn line(&self) -> Line {
        let pace = match (self.publications_per_second, self.window) {
            (Some(rate), _) => format!("{rate} publications/s"),
            (None, window) => format!("saturating, {} publications under way", window.unwrap_or(0)),
        };
        let encoding = match self.encoding {
            EncodingOption::Json => "JSON",
            EncodingOption::Protobuf => "Protobuf",
        };
        let load = format!(
            "{} subscribers, {pace}, {} bytes, {encoding}, {} s",
            self.subscribers, self.payload_bytes, self.seconds
        );
        Line::new("load", load)
    }
}

impl LoadFigures {
    /// Computes the figures of a phase.
    pub(crate) fn new(phase: &FanoutPhase, closed_in_warm_up: &BTreeMap<String, u64>) -> Self {
        let (received, published) = (&phase.received, &phase.published);
        let per_delivery = |ns: u64| ratio(ns as f64, received.deliveries as f64);
        let ticks = phase.server_split;
        LoadFigures {
            publications: published.publications,
            accepted: published.accepted,
            refused: published.refused.clone(),
            deliveries_offered: phase.offered,
            deliveries_received: received.deliveries,
            lost: received.lost,
            duplicated: received.duplicated,
            closed: received.closed.clone(),
            closed_in_warm_up: closed_in_warm_up.clone(),
            deliveries_per_server_cpu_second: per_second(received.deliveries, phase.server_cpu_ns),
            deliveries_per_second: per_second(received.deliveries, phase.wall_ns),
            reads_per_second: per_second(received.reads, phase.wall_ns),
            deliveries_per_read: ratio(received.deliveries as f64, received.reads as f64),
            bytes_per_delivery: ratio(received.bytes as f64, received.deliveries as f64),
            latency: received.latency.summary(),
            publisher_lag: published.lag.summary(),
            server_cpu_ns: phase.server_cpu_ns,
            server_user_share: ratio(ticks.user as f64, (ticks.user + ticks.system) as f64),
            server_cores_busy: ratio(phase.server_cpu_ns as f64, phase.wall_ns as f64),
            memory_before: phase.memory_before,
            memory_after: phase.memory_after,
            memory_anon_bytes_max: phase.anon_bytes_max,
            client_cpu_ns: received.cpu_ns,
            publisher_cpu_ns: published.cpu_ns,
            client_cost_ratio: ratio(per_delivery(received.cpu_ns), per_delivery(phase.server_cpu_ns)),
        }
    }

    /// For comparing runs.
    pub(crate) fn p50_us(&self) -> u64 {
        self.latency.p50_us
    }

    /// For comparing runs.
    pub(crate) fn p99_us(&self) -> u64 {
        self.latency.p99_us
    }

    /// Deliveries per second.
    pub(crate) fn deliveries_per_second(&self) -> f64 {
        self.deliveries_per_second
    }

    /// The number of lost or duplicated deliveries.
    pub(crate) fn missed(&self) -> u64 {
        self.lost + self.duplicated
    }

    pub(crate) fn lines(&self) -> Vec<Line> {
        let memory = |memory: Option<Memory>| memory.map_or("?".into(), |memory| size(memory.anon_bytes));
        let mut lines = vec![
            Line::new(
                "deliveries",
                format!(
                    "{} of {} ({} lost, {} duplicated)",
                    grouped(self.deliveries_received as f64),
                    grouped(self.deliveries_offered as f64),
                    self.lost,
                    self.duplicated
                ),
            ),
            Line::new(
                "server",
                format!(
                    "{} deliveries per CPU-second ({:.2} cores busy, {:.0} % of that in its own code)",
                    grouped(self.deliveries_per_server_cpu_second),
                    self.server_cores_busy,
                    100.0 * self.server_user_share
                ),
            ),
            latency_line("latency", &self.latency),
            latency_line("publisher lag", &self.publisher_lag),
            Line::new(
                "rates",
                format!(
                    "{} deliveries/s in {} reads/s, {:.0} bytes each",
                    grouped(self.deliveries_per_second),
                    grouped(self.reads_per_second),
                    self.bytes_per_delivery
                ),
            ),
            Line::new(
                "private memory",
                format!(
                    "{} before, {} after, {} at most",
                    memory(self.memory_before),
                    memory(self.memory_after),
                    size(self.memory_anon_bytes_max)
                ),
            ),
            Line::new("client cost", format!("{:.2} of the server's per delivery", self.client_cost_ratio)),
        ];
        let failures =
            [("closed", &self.closed), ("closed in warm-up", &self.closed_in_warm_up), ("refused", &self.refused)];
        lines.extend(
            failures
                .iter()
                .filter(|(_, counts)| !counts.is_empty())
                .map(|(name, counts)| Line::new(*name, format!("{counts:?}"))),
        );
        lines
    }
}

fn latency_line(name: &str, latency: &Summary) -> Line {
    let value = format!(
        "p50 {}, p90 {}, p99 {}, p99.9 {}, max {}",
        time(latency.p50_us),
        time(latency.p90_us),
        time(latency.p99_us),
        time(latency.p999_us),
        time(latency.max_us)
    );
    Line::new(name, value)
}

impl FanoutReport {
    fn lines(&self) -> Vec<Line> {
        let mut lines = vec![Line::new("machine", &self.machine), self.settings.line()];
        lines.extend(self.load.lines());
        if let Some(roofline) = &self.roofline {
            lines.extend(roofline.lines());
        }
        if let Some(tls) = &self.tls {
            lines.push(Line::new("with TLS", format!("{:.2} of the deliveries per CPU-second without", tls.ratio)));
            lines.extend(tls.load.lines());
        }
        if let Some(slow) = &self.slow_readers {
            lines.push(slow_readers_line(slow));
        }
        lines.extend(self.goals.iter().map(Goal::line));
        lines
    }
}

pub(crate) fn slow_readers_line(slow: &Slow) -> Line {
    let value = format!(
        "{} in all: {} with the newest publication ({} skipped), {} behind, closed {:?}",
        slow.sessions, slow.newest, slow.skipped, slow.behind, slow.closed
    );
    Line::new("slow readers", value)
}
