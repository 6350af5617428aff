//! Scenarios that a profile describes, on one rig: a target, crews of clients, phases, samples of the server, gates and
//! a result. A new scenario is a file in `bench/scenarios`, and no code.
//!
//! - `profile`, `document`, `quantity`: reading a profile. `gate`, `figures`: what is measured, and what must hold.
//! - `rig`, `target`, `sampler`: a run. `crew_commands`, `streams`, `stamp`: what it shares with `worker::crew`.
//! - `result`, `machine`: what a run writes. `compare`, `page`: what is made of it.

pub mod args;
pub mod compare;
pub mod crew_commands;
mod document;
mod figures;
mod gate;
mod machine;
mod page;
mod profile;
mod quantity;
pub mod rate_curve;
mod result;
mod rig;
mod sampler;
pub mod stamp;
pub mod streams;
mod target;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use self::args::{ReportArgs, RunProfileArgs, ScenarioArgs};
use self::figures::{FIGURES, Values};
use self::gate::{Broken, Gate};
use self::machine::Machine;
use self::profile::Profile;
use self::result::{Interval, PhaseResult, Point, RunResult};
use self::rig::{ScenarioRig, Window};
use self::target::ScenarioTarget;
use crate::error::Error;
use crate::latency::Latency;
use crate::proc::{self, Cores};
use crate::progress::Progress;
use crate::report;

/// Runs profiles one after the other. Broken gates are an error after all of them.
pub fn run(args: &RunProfileArgs) -> Result<(), Error> {
    if args.list {
        return print_list();
    }
    if args.json.is_some() && args.profiles.len() > 1 {
        let remedy = "give one profile, or --runs FOLDER for the results of several".to_owned();
        return Err(Error::Setting { name: "json", value: args.profiles.join(" "), remedy });
    }
    let (mut results, mut broken, mut partial) = (Vec::new(), Vec::new(), Vec::new());
    // A mistake in the last profile is found before the first one has run.
    let profiles = args.profiles.iter().map(|source| load(source, &args.common)).collect::<Result<Vec<_>, _>>()?;
    for profile in &profiles {
        let result = run_once(profile, &args.common)?;
        let path = args.json.clone().unwrap_or_else(|| path_of(&args.common.runs, &result));
        result.write(&path)?;
        if !args.common.quiet {
            report::print(&result.lines());
            note(&format!("result: {}\n", path.display()));
        }
        broken.extend(result.broken.iter().map(|broken| format!("{}: {}", profile.name, broken.message)));
        partial.extend(result.partial.iter().map(|why| format!("{}: {why}", profile.name)));
        results.push(result);
    }
    if let Some(path) = &args.page {
        result::write_file(path, &page::page(&results))?;
        if !args.common.quiet {
            note(&format!("page: {}", path.display()));
        }
    }
    match (partial.is_empty(), broken.is_empty()) {
        (false, _) => Err(Error::Scenario(format!("the result is partial; {}", partial.join("; ")))),
        (true, false) => Err(Error::Gates(broken)),
        (true, true) => Ok(()),
    }
}

/// Makes a page of results.
pub fn report(args: &ReportArgs) -> Result<(), Error> {
    let results = args.runs.iter().map(|path| RunResult::read(path)).collect::<Result<Vec<_>, _>>()?;
    let first = args.runs.first().map_or(Path::new("run.json"), PathBuf::as_path);
    let path = args.output.clone().unwrap_or_else(|| first.with_extension("html"));
    result::write_file(&path, &page::page(&results))?;
    note(&format!("page: {}", path.display()));
    Ok(())
}

fn print_list() -> Result<(), Error> {
    let mut text = String::from("Profiles:\n");
    for name in profile::built_in_names() {
        let about = Profile::load(name, false, &[]).map_err(Error::Scenario)?.about;
        let _ = writeln!(text, "  {name:14} {about}");
    }
    text.push_str("\nFigures:\n");
    for figure in FIGURES {
        let _ = writeln!(text, "  {:28} {}", figure.name, figure.meaning);
    }
    let written = std::io::stdout().write_all(text.as_bytes());
    written.map_err(|source| Error::os("write the list to stdout", source, "open stdout"))
}

fn note(line: &str) {
    // Standard error may be closed.
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// A profile with the gates of the command line.
fn load(source: &str, args: &ScenarioArgs) -> Result<Profile, Error> {
    let mut profile = Profile::load(source, args.short, &args.set).map_err(Error::Scenario)?;
    if let Some(gates) = &args.gate {
        profile.gates = Gate::parse_all(gates).map_err(Error::Scenario)?;
        for gate in &profile.gates {
            profile.check_gate(gate).map_err(Error::Scenario)?;
        }
    }
    Ok(profile)
}

/// The file for a result in the folder of results.
fn path_of(folder: &Path, result: &RunResult) -> PathBuf {
    let time = result.started_at.replace([':', '-'], "");
    folder.join(format!("{time}-{}.json", result.profile))
}

/// Runs a profile once. If the run fails after its first phase, the result is partial.
fn run_once(profile: &Profile, args: &ScenarioArgs) -> Result<RunResult, Error> {
    let progress = Progress::new(args.quiet);
    let cores = if args.target.target.is_some() && args.target.server_pid.is_none() {
        Cores::unpinned()
    } else {
        args.pin.cores()
    };
    let machine = Machine::now();
    let started_at = machine::utc(proc::unix_us() / 1_000_000);
    progress.doing("starting the target".into());
    let target = ScenarioTarget::start(&args.target, profile, &cores)?;
    let version = target.metrics().and_then(|page| page.by("dunlin_build_info", "version").into_keys().next());
    let name = target.name.clone();
    let mut rig = ScenarioRig::start(profile, target, &args.target.api_key, &cores, &progress)?;
    let mut course = Course::default();
    let ended = course.run(profile, &mut rig, &Log { progress: &progress, is_quiet: args.quiet });
    progress.finish();
    if let (Err(error), true) = (&ended, course.phases.is_empty()) {
        return Err(Error::Scenario(error.to_string()));
    }
    let mut result = course.result(profile, &rig, ended.err().map(|error| error.to_string()));
    result.started_at = started_at;
    result.machine = machine;
    result.machine.end();
    result.target = name;
    result.target_version = version;
    result.cores = cores;
    Ok(result)
}

/// Where a run says what it does: a bar on a terminal, and a line for each phase.
struct Log<'a> {
    progress: &'a Progress,
    is_quiet: bool,
}

impl Log<'_> {
    fn phase(&self, name: &str, values: &Values) {
        if self.is_quiet {
            return;
        }
        let shown = ["connections", "delivered", "lost", "p50", "p99", "memory"].into_iter().filter_map(|name| {
            let value = values.get(name)?;
            Some(format!("{name} {}", figures::figure(name)?.unit.show(*value)))
        });
        self.progress.line(&format!("{name}: {}", shown.collect::<Vec<_>>().join(", ")));
    }
}

/// What has happened in a run so far.
#[derive(Default)]
struct Course {
    phases: Vec<PhaseResult>,
    points: Vec<Point>,
    /// The sum of the measured phases.
    measured: Option<Window>,
    /// The sums of phases with gates of their own.
    by_phase: BTreeMap<String, Window>,
    /// The longest measured phase.
    longest_s: (f64, f64),
    /// How often each latency in microseconds occurred, by interval.
    intervals: BTreeMap<u64, BTreeMap<u64, u64>>,
    broken: Vec<Broken>,
}

impl Course {
    fn run(&mut self, profile: &Profile, rig: &mut ScenarioRig<'_>, log: &Log<'_>) -> Result<(), Error> {
        for (number, phase) in profile.phases.iter().enumerate() {
            // What goes wrong while connections are opened counts for the phase that needs them.
            let mut ramp = rig.ramp(number, log.progress)?;
            for repetition in 0..phase.repeat {
                let window = rig.phase(number, repetition, log.progress)?;
                for (interval, counts) in ramp.iter().chain([&window]).flat_map(|window| &window.report.intervals) {
                    let sum = self.intervals.entry(*interval).or_default();
                    for (us, count) in counts {
                        *sum.entry(*us).or_default() += count;
                    }
                }
                let values = self.end_phase(profile, rig, (number, window), ramp.take());
                log.phase(&phase.name, &values);
                if profile.stops_at_broken_gate && phase.is_measured {
                    self.broken = broken_in_phase(profile, &phase.name, &values);
                    if !self.broken.is_empty() {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    fn end_phase(
        &mut self,
        profile: &Profile,
        rig: &ScenarioRig<'_>,
        (number, mut window): (usize, Window),
        ramp: Option<Window>,
    ) -> Values {
        let phase = &profile.phases[number];
        if let Some(ramp) = ramp {
            add_ramp(&mut window, &ramp);
        }
        if profile.connections_vary() {
            rig.settle_memory();
        }
        self.points.extend(rig.sampler().now().map(|sample| Point {
            connections: window.report.connections,
            anon_bytes: sample.anon_bytes,
            rss_bytes: sample.rss_bytes,
            kernel_bytes: sample.kernel_bytes,
        }));
        let mut values = figures::values(&window.report, &window.usage);
        values.extend(result::memory_slopes(&self.points));
        self.phases.push(PhaseResult {
            name: phase.name.clone(),
            is_measured: phase.is_measured,
            from_s: window.from_s,
            until_s: window.until_s,
            figures: values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
        });
        if phase.is_measured {
            if window.until_s - window.from_s > self.longest_s.1 - self.longest_s.0 {
                self.longest_s = (window.from_s, window.from_s + phase.duration.as_secs_f64());
            }
            let sum = self.by_phase.entry(phase.name.clone());
            sum.and_modify(|sum| sum.add(&window)).or_insert_with(|| window.clone());
            match &mut self.measured {
                Some(sum) => sum.add(&window),
                None => self.measured = Some(window),
            }
        }
        values
    }

    /// The result, without what is known before the run.
    fn result(self, profile: &Profile, rig: &ScenarioRig<'_>, partial: Option<String>) -> RunResult {
        let samples = rig.sampler().samples();
        let seconds_each = profile.interval.as_secs_f64();
        let intervals: Vec<Interval> = self
            .intervals
            .iter()
            .map(|(at, latency)| Interval {
                at_s: *at as f64 * seconds_each,
                latency: Latency::of_counts(latency).summary(),
            })
            .collect();
        let window = self.measured.unwrap_or_default();
        let mut values = figures::values(&window.report, &window.usage);
        values.extend(result::memory_slopes(&self.points));
        values.extend(result::growth(&samples, &intervals, self.longest_s));
        let mut broken = self.broken;
        if broken.is_empty() {
            for gate in &profile.gates {
                let of = gate.phase.as_ref().and_then(|phase| self.by_phase.get(phase));
                let of = of.map(|window| figures::values(&window.report, &window.usage));
                broken.extend(gate.check(of.as_ref().unwrap_or(&values), gate.phase.as_deref()));
            }
        }
        let report = window.report;
        let reasons = [("failed", report.failed), ("closed", report.closed), ("refused", report.refused)];
        RunResult {
            format: result::FORMAT,
            partial,
            started_at: String::new(),
            machine: Machine::now(),
            commit: machine::commit(),
            bench_version: env!("CARGO_PKG_VERSION").to_owned(),
            flags: result::shown_flags(std::env::args().skip(1)),
            profile: profile.name.clone(),
            about: profile.about.clone(),
            document: serde_json::to_value(&profile.document).unwrap_or_default(),
            target: String::new(),
            target_version: None,
            cores: Cores::unpinned(),
            figures: result::with_spread(&values, &self.phases),
            gates: profile.gates.iter().cloned().map(String::from).collect(),
            broken,
            phases: self.phases,
            points: self.points,
            samples,
            intervals,
            latency: report.latency,
            service: report.service,
            threads: window.usage.threads,
            counts: window.usage.counts.sums(),
            reasons: reasons
                .into_iter()
                .filter(|(_, reasons)| !reasons.is_empty())
                .map(|(what, reasons)| (what.to_owned(), reasons))
                .collect(),
        }
    }
}

/// Adds to a phase what went wrong while its connections were opened, and how long that took. Latencies and costs are
/// those of the phase alone.
fn add_ramp(window: &mut Window, ramp: &Window) {
    let (report, before) = (&mut window.report, &ramp.report);
    report.connected += before.connected;
    report.connect.add(&before.connect);
    report.lost += before.lost;
    report.duplicated += before.duplicated;
    report.reordered += before.reordered;
    report.stray += before.stray;
    report.unsent += before.unsent;
    for (sum, other) in [
        (&mut report.failed, &before.failed),
        (&mut report.closed, &before.closed),
        (&mut report.refused, &before.refused),
    ] {
        for (why, count) in other {
            *sum.entry(why.clone()).or_default() += count;
        }
    }
}

/// The gates that a phase breaks. A slope may not be known yet.
fn broken_in_phase(profile: &Profile, phase: &str, values: &Values) -> Vec<Broken> {
    let concerns = |gate: &&Gate| gate.phase.as_deref().is_none_or(|of| of == phase);
    let known = profile.gates.iter().filter(concerns).filter(|gate| values.contains_key(gate.figure().name));
    known.filter_map(|gate| gate.check(values, Some(phase))).collect()
}
