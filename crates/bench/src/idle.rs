//! The server's memory per idle session: the slope over increasing numbers of sessions, which excludes the constant
//! part of the process. It is the profile `idle` with numbers of its own, and also measures servers that speak something else.

use std::fmt::Write as _;

use serde::Serialize;

use crate::args::IdleArgs;
use crate::commands::EncodingOption;
use crate::error::Error;
use crate::goal::Goal;
use crate::interrupt;
use crate::proc::Memory;
use crate::report::{self, Line, size, whole};
use crate::scenario::args::{ScenarioArgs, TargetArgs};
use crate::scenario::{Profile, RunResult, run_once};

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
    sessions: u64,
    #[serde(flatten)]
    memory: Memory,
}

/// Runs the scenario.
pub fn run(args: &IdleArgs) -> Result<(), Error> {
    args.check()?;
    interrupt::watch()?;
    let mut profile = Profile::parse("idle", &document(args), &[]).map_err(Error::Scenario)?;
    profile.message.speaks = args.speaks;
    profile.server.clone_from(&args.run.server.set);
    let result = run_once(&profile, &scenario_args(args));
    let report = IdleReport::of(args, &result)?;
    report::publish(&report, &report.lines(), &args.run.output)
}

/// The profile: a phase for each number of sessions, all of them subscribed to one channel.
fn document(args: &IdleArgs) -> String {
    let encoding = if args.encoding == EncodingOption::Json { "json" } else { "protobuf" };
    let mut text = format!(
        "[message]\nencoding = \"{encoding}\"\ntls = {}\n[[crew]]\nname = \"clients\"\nsubscribe = \"all\"\n",
        args.tls
    );
    for sessions in &args.sessions {
        let _ = writeln!(text, "[[phase]]\nname = \"at-{sessions}\"\nduration = \"100ms\"");
        let _ = writeln!(text, "connections = {{ clients = {sessions} }}");
    }
    text
}

fn scenario_args(args: &IdleArgs) -> ScenarioArgs {
    let server = &args.run.server;
    ScenarioArgs {
        target: TargetArgs {
            target: server.url.clone(),
            server_pid: server.server_pid,
            // Its process is on this machine: --url needs --server-pid.
            i_own_this_target: true,
            start: server.start.clone(),
        },
        set: Vec::new(),
        on: None,
        short: false,
        gate: None,
        runs: std::path::PathBuf::new(),
        pin: args.run.pin.clone(),
        quiet: args.run.output.quiet,
    }
}

impl IdleReport {
    /// Fails if the run is not complete: memory of sessions that are not there says nothing.
    fn of(args: &IdleArgs, result: &RunResult) -> Result<Self, Error> {
        if let Some(why) = &result.partial {
            return Err(Error::Scenario(why.clone()));
        }
        let figure = |name: &str| result.outcome.figures.get(name).map(|figure| figure.value);
        if ["connect_failed", "closed"].into_iter().any(|name| figure(name).is_some_and(|count| count > 0.0)) {
            let did = format!("refused or closed sessions: {:?}", result.outcome.reasons);
            let remedy = "check its log, its connection limits, and that anonymous clients may subscribe";
            return Err(Error::Server { did, remedy: remedy.into() });
        }
        let unknown = || Error::Scenario("the memory of the server could not be read".to_owned());
        let rss_bytes_per_session = figure("rss_per_connection").ok_or_else(unknown)?;
        let bytes_goal = if args.tls { TLS_SESSION_BYTES_GOAL } else { SESSION_BYTES_GOAL };
        Ok(IdleReport {
            scenario: "idle",
            machine: result.origin.machine.description.clone(),
            server: result.target.target.clone(),
            encoding: args.encoding,
            tls: args.tls,
            points: result
                .series
                .points
                .iter()
                .map(|point| Point {
                    sessions: point.connections,
                    memory: Memory { rss_bytes: point.rss_bytes, anon_bytes: point.anon_bytes },
                })
                .collect(),
            anon_bytes_per_session: figure("bytes_per_connection").ok_or_else(unknown)?,
            rss_bytes_per_session,
            goals: vec![Goal::at_most("resident memory a session", Some(rss_bytes_per_session), bytes_goal, "B")],
        })
    }

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
