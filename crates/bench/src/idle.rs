//! The server's memory per idle session: the slope over increasing numbers of sessions, which excludes the constant
//! part of the process.

use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::args::{IdleArgs, ServerArgs};
use crate::commands::EncodingOption;
use crate::error::Error;
use crate::goal::Goal;
use crate::proc::{self, Memory};
use crate::progress::Progress;
use crate::report::{self, Line, ratio, size, whole};
use crate::rig::{FanoutRig, FanoutSetup};
use crate::spawn::ServerProcess;

/// Memory has settled when it has changed by less than a thousandth in this time.
const SETTLED_FOR: Duration = Duration::from_secs(1);
const SETTLE_PATIENCE: Duration = Duration::from_secs(10);

/// The result of `idle`.
#[derive(Debug, Serialize)]
pub struct IdleReport {
    scenario: &'static str,
    machine: String,
    server: String,
    encoding: EncodingOption,
    /// Whether sessions use TLS.
    tls: bool,
    points: Vec<Point>,
    /// Slope of private memory (`RssAnon`).
    anon_bytes_per_session: f64,
    /// Slope of all resident memory (`VmRSS`).
    rss_bytes_per_session: f64,
    goals: Vec<Goal>,
}

/// Maximum resident memory of a session.
const SESSION_BYTES_GOAL: f64 = 1024.0;
/// The same for a session with TLS.
const TLS_SESSION_BYTES_GOAL: f64 = 8192.0;

/// Memory at a number of sessions.
#[derive(Debug, Clone, Copy, Serialize)]
struct Point {
    sessions: usize,
    #[serde(flatten)]
    memory: Memory,
}

/// Runs the scenario.
pub fn run(args: &IdleArgs) -> Result<(), Error> {
    args.check()?;
    let cores = args.run.pin.cores();
    let progress = Progress::new(args.run.output.quiet);
    progress.doing("starting the server".into());
    let server = ServerArgs { tls: args.tls, ..args.run.server.speaking(args.speaks) };
    let server = ServerProcess::start(&server, &cores)?;
    let (name, pid) = (server.name.clone(), server.pid);
    let sessions_max = args.sessions.last().copied().unwrap_or(0);
    let setup = FanoutSetup { sessions_max, encoding: args.encoding, workers: None, slow_receive_bytes: 0, cores };
    let mut rig = FanoutRig::start(server, &setup)?;
    let mut points: Vec<Point> = Vec::new();
    let mut connected = 0;
    for &sessions in &args.sessions {
        rig.connect(sessions - connected, 0, &progress)?;
        connected = sessions;
        progress.doing(format!("{sessions} sessions: letting memory settle"));
        points.push(Point { sessions, memory: settled_memory(pid)? });
    }
    progress.finish();
    let of = |bytes: fn(&Memory) -> u64| {
        slope(points.iter().map(|point| (point.sessions as f64, bytes(&point.memory) as f64)))
    };
    let rss_bytes_per_session = of(|memory| memory.rss_bytes);
    let bytes_goal = if args.tls { TLS_SESSION_BYTES_GOAL } else { SESSION_BYTES_GOAL };
    let report = IdleReport {
        scenario: "idle",
        machine: proc::machine(),
        server: name,
        encoding: args.encoding,
        tls: args.tls,
        anon_bytes_per_session: of(|memory| memory.anon_bytes),
        rss_bytes_per_session,
        points,
        goals: vec![Goal::at_most("resident memory a session", Some(rss_bytes_per_session), bytes_goal, "B")],
    };
    report::publish(&report, &report.lines(), &args.run.output)
}

fn settled_memory(pid: u32) -> Result<Memory, Error> {
    let deadline = Instant::now() + SETTLE_PATIENCE;
    let mut before = proc::memory(pid)?;
    loop {
        thread::sleep(SETTLED_FOR);
        let now = proc::memory(pid)?;
        let settled = now.anon_bytes.abs_diff(before.anon_bytes) < before.anon_bytes / 1000;
        if settled || Instant::now() > deadline {
            return Ok(now);
        }
        before = now;
    }
}

/// The slope of the least-squares line.
fn slope(points: impl Iterator<Item = (f64, f64)> + Clone) -> f64 {
    let count = points.clone().count() as f64;
    let (sum_x, sum_y) = points.clone().fold((0.0, 0.0), |(x, y), point| (x + point.0, y + point.1));
    let (mean_x, mean_y) = (ratio(sum_x, count), ratio(sum_y, count));
    let (above, below) = points.fold((0.0, 0.0), |(above, below), (x, y)| {
        (above + (x - mean_x) * (y - mean_y), below + (x - mean_x) * (x - mean_x))
    });
    ratio(above, below)
}

impl IdleReport {
    fn lines(&self) -> Vec<Line> {
        let mut lines = vec![Line::new("machine", &self.machine)];
        lines.extend(self.points.iter().map(|point| {
            let memory =
                format!("{} private, {} resident", size(point.memory.anon_bytes), size(point.memory.rss_bytes));
            Line::new(format!("{} sessions", point.sessions), memory)
        }));
        let slope = |bytes: f64| size(whole(bytes));
        lines.push(Line::new(
            "each session",
            format!(
                "{} private, {} resident (slope)",
                slope(self.anon_bytes_per_session),
                slope(self.rss_bytes_per_session)
            ),
        ));
        lines.extend(self.goals.iter().map(Goal::line));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slope_ignores_the_constant_part() {
        let line = [(1000.0, 5_000_000.0), (5000.0, 13_000_000.0), (15_000.0, 33_000_000.0)];
        assert!((slope(line.into_iter()) - 2000.0).abs() < 1e-6);
        assert!(slope([(1.0, 1.0)].into_iter()) == 0.0);
    }
}
