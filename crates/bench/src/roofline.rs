//! The kernel's own limit: how many frames a bare loop of `send` gets rid of in a second of processor time.

use std::net::IpAddr;
use std::time::Duration;

use serde::Serialize;

use crate::args::RooflineArgs;
use crate::commands;
use crate::control::{Answer, DrainRole, Order, Role, Send, SenderRole, Sent, Until};
use crate::crew::{Worker, source_address};
use crate::error::Error;
use crate::proc::{self, Cores};
use crate::progress::Progress;
use crate::report::{self, Line, grouped};

/// Receivers in one process.
const SOCKETS_PER_DRAIN: usize = 8_000;

/// Sender and receivers, connected.
pub struct Roofline {
    sender: Worker,
    /// Held so that the receivers go on.
    _drains: Vec<Worker>,
}

impl Roofline {
    /// Connects `sockets` loopback sockets.
    pub fn start(sockets: usize, cores: &Cores) -> Result<Self, Error> {
        let sender = Worker::start(&Role::Sender(SenderRole { sockets, cores: cores.server.clone() }))?;
        let address = match sender.answer()? {
            Answer::Listening { address } => address,
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
                Answer::Connected(_) => drains.push(drain),
                other => return Err(drain.unexpected(&other)),
            }
            left -= part;
        }
        Ok(Roofline { sender, _drains: drains })
    }

    /// Sends rounds of frames to all sockets.
    pub fn send(&mut self, order: &Send) -> Result<Sent, Error> {
        self.sender.order(&Order::Send(order.clone()))?;
        match self.sender.answer()? {
            Answer::Sent(sent) => Ok(sent),
            other => Err(self.sender.unexpected(&other)),
        }
    }
}

impl Sent {
    /// The figure that everything else is compared with.
    pub fn per_cpu_second(&self) -> f64 {
        report::per_second(self.sends, self.cpu_ns)
    }

    /// Adds another turn of the same kind.
    pub fn add(&mut self, other: &Sent) {
        self.rounds += other.rounds;
        self.sends += other.sends;
        self.would_block += other.would_block;
        self.cpu_ns += other.cpu_ns;
        self.wall_ns += other.wall_ns;
    }
}

/// What `roofline` found.
#[derive(Debug, Serialize)]
pub struct RooflineReport {
    scenario: &'static str,
    machine: String,
    cores: Cores,
    sockets: usize,
    frame_bytes: usize,
    rounds_per_second: f64,
    /// Rounds at the rate of a server under ordinary load.
    paced: Figure,
    /// Rounds back to back.
    saturated: Figure,
}

/// One way of sending.
#[derive(Debug, Serialize)]
pub struct Figure {
    /// The roofline.
    pub sends_per_cpu_second: f64,
    /// Sends for each second that passed.
    pub sends_per_second: f64,
    /// The counters behind it.
    #[serde(flatten)]
    pub sent: Sent,
}

impl Figure {
    /// Computes the figures from the counters.
    pub fn new(sent: Sent) -> Self {
        let sends_per_second = report::per_second(sent.sends, sent.wall_ns);
        Figure { sends_per_cpu_second: sent.per_cpu_second(), sends_per_second, sent }
    }
}

/// Runs the scenario: paced and saturated in turns, so that a change of the machine's mood meets both.
pub fn run(args: &RooflineArgs) -> Result<(), Error> {
    args.check()?;
    let cores = args.pin.cores();
    let frame_bytes = args
        .frame_bytes
        .unwrap_or_else(|| commands::delivery_bytes(args.encoding, report::CHANNEL, args.payload_bytes, true));
    let progress = Progress::new(args.output.quiet);
    progress.doing(format!("connecting {} sockets", args.sockets));
    let mut roofline = Roofline::start(args.sockets, &cores)?;
    let order = |rate, turn: Duration| {
        let until = match args.rounds {
            Some(rounds) => Until::Rounds(rounds),
            None => Until::DurationNs(turn.as_nanos() as u64),
        };
        Send { frame_bytes, rounds_per_second: rate, until }
    };
    let turns = if args.rounds.is_some() { 1 } else { args.turns };
    let turn = args.duration / turns / 2;
    let (mut paced, mut saturated) = (Sent::default(), Sent::default());
    for number in 1..=turns {
        progress.doing(format!("turn {number} of {turns}: paced"));
        paced.add(&roofline.send(&order(Some(args.rate), turn))?);
        progress.doing(format!("turn {number} of {turns}: saturated"));
        saturated.add(&roofline.send(&order(None, turn))?);
    }
    progress.finish();
    let report = RooflineReport {
        scenario: "roofline",
        machine: proc::machine(),
        cores,
        sockets: args.sockets,
        frame_bytes,
        rounds_per_second: args.rate,
        paced: Figure::new(paced),
        saturated: Figure::new(saturated),
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
        vec![
            Line::new("machine", &self.machine),
            Line::new("load", format!("{} sockets × {} bytes", self.sockets, self.frame_bytes)),
            Line::new("paced", format!("{} at {} rounds/s", figure(&self.paced), self.rounds_per_second)),
            Line::new("saturated", figure(&self.saturated)),
        ]
    }
}
