//! The limit of the kernel: how many frames a bare loop of `send` writes per second of processor time.

use std::net::IpAddr;
use std::time::Duration;

use serde::Serialize;

use crate::args::RooflineArgs;
use crate::commands;
use crate::control::{DrainRole, Role, Send, SenderReport, SenderRole, Until, WorkerCommand, WorkerReply};
use crate::error::Error;
use crate::proc::{self, Cores};
use crate::progress::Progress;
use crate::report::{self, Line, grouped};
use crate::worker_process::{Worker, source_address};

/// Number of receivers per process.
const SOCKETS_PER_DRAIN: usize = 8_000;

/// Sender and receivers, connected.
pub struct Roofline {
    sender: Worker,
    /// Kept alive, because dropping it ends the receivers.
    _drains: Vec<Worker>,
}

impl Roofline {
    /// Connects `sockets` loopback sockets.
    pub fn start(sockets: usize, cores: &Cores) -> Result<Self, Error> {
        let sender = Worker::start(&Role::Sender(SenderRole { sockets, cores: cores.server.clone() }))?;
        let address = match sender.answer()? {
            WorkerReply::Listening { address } => address,
            other => return Err(sender.unexpected(&other)),
        };
        let mut drains = Vec::new();
        let mut left = sockets;
        while left > 0 {
            let part = left.min(SOCKETS_PER_DRAIN);
            let source: IpAddr = source_address(100 + drains.len());
            let role = DrainRole { address, sockets: part, source, cores: cores.clients.clone() };
            let drain = Worker::start(&Role::Drain(role))?;
            match drain.answer()? {
                WorkerReply::Connected(_) => drains.push(drain),
                other => return Err(drain.unexpected(&other)),
            }
            left -= part;
        }
        Ok(Roofline { sender, _drains: drains })
    }

    /// Sends rounds of frames to all sockets.
    pub fn send(&mut self, command: &Send) -> Result<SenderReport, Error> {
        self.sender.send_command(&WorkerCommand::Send(command.clone()))?;
        match self.sender.answer()? {
            WorkerReply::Sent(sent) => Ok(sent),
            WorkerReply::NoBatches { reason } => {
                let source = std::io::Error::other(reason);
                Err(Error::os("send in batches through io_uring", source, "leave that part out with --batch 0"))
            }
            other => Err(self.sender.unexpected(&other)),
        }
    }
}

/// Number of sends per submission in turns beside another scenario, which is typical of a server's reactor.
const BATCH_BESIDE: usize = 1_000;

/// The roofline, alternating with another scenario, so that a change in the machine's load affects both.
pub struct Beside {
    roofline: Roofline,
    command: Send,
    bare: SenderReport,
    /// `None` after the kernel has refused `io_uring`.
    in_batches: Option<SenderReport>,
}

/// The results of [`Beside`].
#[derive(Debug, Serialize)]
pub struct BesideFigures {
    frame_bytes: usize,
    #[serde(flatten)]
    figure: Figure,
    /// Deliveries per server CPU-second, divided by sends per CPU-second.
    pub ratio: f64,
    /// Processor time of one round of the bare loop, which is the minimum latency of the last receiver of a
    /// publication.
    round_cpu_us: f64,
    /// The same sends through `io_uring`, if the kernel permits it.
    in_batches: Option<Figure>,
    /// Deliveries per server CPU-second, divided by the sends per CPU-second in batches.
    ratio_in_batches: Option<f64>,
}

impl Beside {
    /// Connects `sockets` sockets. `command` determines what is sent to them in each turn; both ways of sending use the
    /// same command.
    pub fn start(sockets: usize, cores: &Cores, mut command: Send) -> Result<Self, Error> {
        if let Until::DurationNs(turn) = &mut command.until {
            *turn /= 2;
        }
        let roofline = Roofline::start(sockets, cores)?;
        Ok(Beside { roofline, command, bare: SenderReport::default(), in_batches: Some(SenderReport::default()) })
    }

    /// Sends one round to all sockets and adds its figures.
    pub fn turn(&mut self, progress: &Progress) -> Result<(), Error> {
        progress.doing("roofline".into());
        self.bare.add(&self.roofline.send(&self.command)?);
        if let Some(sum) = &mut self.in_batches {
            match self.roofline.send(&Send { batch: Some(BATCH_BESIDE), ..self.command.clone() }) {
                Ok(sent) => sum.add(&sent),
                Err(_) => self.in_batches = None,
            }
        }
        Ok(())
    }

    /// The figures of all turns, compared with the deliveries per CPU-second of the scenario.
    pub fn figures(self, deliveries_per_cpu_second: f64) -> BesideFigures {
        let in_batches = self.in_batches.map(Figure::new);
        let over = |figure: &Figure| report::ratio(deliveries_per_cpu_second, figure.sends_per_cpu_second);
        let figure = Figure::new(self.bare);
        BesideFigures {
            frame_bytes: self.command.frame_bytes,
            ratio: over(&figure),
            round_cpu_us: report::ratio(figure.sent.cpu_ns as f64 / 1e3, figure.sent.rounds as f64),
            ratio_in_batches: in_batches.as_ref().map(over),
            in_batches,
            figure,
        }
    }
}

impl BesideFigures {
    pub fn lines(&self) -> Vec<Line> {
        let sends = |figure: &Figure| grouped(figure.sends_per_cpu_second);
        let mut lines = vec![Line::new(
            "roofline",
            format!(
                "{} sends of {} bytes per CPU-second; ratio {:.2}; a round of them takes {}",
                sends(&self.figure),
                self.frame_bytes,
                self.ratio,
                report::time(report::whole(self.round_cpu_us))
            ),
        )];
        if let Some((figure, ratio)) = self.in_batches.as_ref().zip(self.ratio_in_batches) {
            let value = format!("{} in batches of {BATCH_BESIDE}; ratio {ratio:.2}", sends(figure));
            lines.push(Line::new("roofline of io_uring", value));
        }
        lines
    }
}

/// The result of `roofline`.
#[derive(Debug, Serialize)]
pub struct RooflineReport {
    scenario: &'static str,
    machine: String,
    cores: Cores,
    sockets: usize,
    frame_bytes: usize,
    rounds_per_second: f64,
    /// Rounds at the rate of a server under normal load.
    paced: Figure,
    /// Rounds without pauses.
    saturated: Figure,
    /// The same in batches, if requested.
    io_uring: Option<InBatches>,
}

/// Sends in batches through `io_uring`.
#[derive(Debug, Serialize)]
struct InBatches {
    /// Number of sends per submission.
    batch: usize,
    paced: Figure,
    saturated: Figure,
    /// Sends per CPU-second, divided by those of the bare loop in the same run.
    paced_ratio: f64,
    saturated_ratio: f64,
}

/// The measurements of one way of sending.
#[derive(Debug, Serialize)]
pub struct Figure {
    /// The roofline: sends per second of processor time.
    pub sends_per_cpu_second: f64,
    /// Sends per second of elapsed time.
    pub sends_per_second: f64,
    /// The underlying counters.
    #[serde(flatten)]
    pub sent: SenderReport,
}

impl Figure {
    /// Computes the figures from the counters.
    pub fn new(sent: SenderReport) -> Self {
        let sends_per_second = report::per_second(sent.sends, sent.wall_ns);
        Figure { sends_per_cpu_second: sent.per_cpu_second(), sends_per_second, sent }
    }
}

impl InBatches {
    fn new(batch: usize, [paced, saturated]: [Figure; 2], bare_paced: &Figure, bare_saturated: &Figure) -> Self {
        let of = |part: &Figure, bare: &Figure| report::ratio(part.sends_per_cpu_second, bare.sends_per_cpu_second);
        let (paced_ratio, saturated_ratio) = (of(&paced, bare_paced), of(&saturated, bare_saturated));
        InBatches { batch, paced, saturated, paced_ratio, saturated_ratio }
    }
}

/// Runs the scenario, alternating paced and saturated, so that a change in the machine's load affects both.
pub fn run(args: &RooflineArgs) -> Result<(), Error> {
    args.check()?;
    let cores = args.pin.cores();
    let frame_bytes = args
        .frame_bytes
        .unwrap_or_else(|| commands::delivery_bytes(args.encoding, report::CHANNEL, args.payload_bytes, true));
    let progress = Progress::new(args.output.quiet);
    progress.doing(format!("connecting {} sockets", args.sockets));
    let mut roofline = Roofline::start(args.sockets, &cores)?;
    let command = |rate, turn: Duration, batch| {
        let until = match args.rounds {
            Some(rounds) => Until::Rounds(rounds),
            None => Until::DurationNs(turn.as_nanos() as u64),
        };
        Send { frame_bytes, rounds_per_second: rate, until, batch }
    };
    let turns = if args.rounds.is_some() { 1 } else { args.turns };
    let batch = Some(args.batch).filter(|batch| *batch > 0);
    let ways = if batch.is_some() { vec![None, batch] } else { vec![None] };
    let turn = args.duration / turns / 2 / ways.len() as u32;
    // For each way of sending: paced and saturated.
    let mut sent = vec![[SenderReport::default(), SenderReport::default()]; ways.len()];
    for number in 1..=turns {
        for (place, (what, rate)) in [("paced", Some(args.rate)), ("saturated", None)].into_iter().enumerate() {
            for (way, sent) in ways.iter().zip(&mut sent) {
                progress.doing(format!("turn {number} of {turns}: {what}"));
                sent[place].add(&roofline.send(&command(rate, turn, *way))?);
            }
        }
    }
    progress.finish();
    let mut figures = sent.into_iter().map(|parts| parts.map(Figure::new));
    let [paced, saturated] = figures.next().expect("the bare loop is always measured");
    let in_batches = figures.next().zip(batch).map(|(parts, batch)| InBatches::new(batch, parts, &paced, &saturated));
    let report = RooflineReport {
        scenario: "roofline",
        machine: proc::machine(),
        cores,
        sockets: args.sockets,
        frame_bytes,
        rounds_per_second: args.rate,
        paced,
        saturated,
        io_uring: in_batches,
    };
    report::publish(&report, &report.lines(), &args.output)
}

impl RooflineReport {
    fn lines(&self) -> Vec<Line> {
        let figure = |figure: &Figure| {
            format!(
                "{} sends per CPU-second ({} sends/s, {} refused)",
                grouped(figure.sends_per_cpu_second),
                grouped(figure.sends_per_second),
                figure.sent.would_block
            )
        };
        let mut lines = vec![
            Line::new("machine", &self.machine),
            Line::new("load", format!("{} sockets × {} bytes", self.sockets, self.frame_bytes)),
            Line::new("paced", format!("{} at {} rounds/s", figure(&self.paced), self.rounds_per_second)),
            Line::new("saturated", figure(&self.saturated)),
        ];
        if let Some(way) = &self.io_uring {
            let batch = way.batch;
            let line = |part, ratio| format!("{} in batches of {batch}; ratio {ratio:.2}", figure(part));
            lines.push(Line::new("paced, io_uring", line(&way.paced, way.paced_ratio)));
            lines.push(Line::new("saturated, io_uring", line(&way.saturated, way.saturated_ratio)));
        }
        lines
    }
}
