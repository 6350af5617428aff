//! The course of a run: its phases in turn, what they add up to, and the result.

use std::collections::BTreeMap;

use super::crew_commands::CrewReport;
use super::figures::{self, Values};
use super::gate::{Broken, Gate};
use super::profile::Profile;
use super::result::{
    self, Interval, Origin, Outcome, PhaseResult, Point, RunResult, ScenarioOfRun, SeriesOfRun, TargetOfRun,
};
use super::rig::{ScenarioRig, Window};
use super::sampler::Sample;
use super::secrets::without_secrets;
use super::target::ScenarioTarget;
use crate::error::Error;
use crate::latency::Latency;
use crate::progress::Progress;

/// The figures of a phase in the log, if they were measured.
const LOGGED: [&str; 8] = ["connections", "delivered", "lost", "p50", "p99", "input_p99", "inputs_lost", "memory"];

/// Where a run says what it does: a bar on a terminal, and a line for each phase.
pub struct Log<'a> {
    pub progress: &'a Progress,
    pub is_quiet: bool,
}

impl Log<'_> {
    fn phase(&self, name: &str, values: &Values) {
        if self.is_quiet {
            return;
        }
        let shown = LOGGED.into_iter().filter_map(|name| {
            let value = values.get(name)?;
            Some(format!("{name} {}", figures::figure(name)?.unit.show(*value)))
        });
        self.progress.line(&format!("{name}: {}", shown.collect::<Vec<_>>().join(", ")));
    }
}

/// What has happened in a run so far.
#[derive(Default)]
pub struct Course {
    target: TargetOfRun,
    phases: Vec<PhaseResult>,
    points: Vec<Point>,
    sums: Sums,
    /// What went wrong since the last measured phase.
    before: CrewReport,
    samples: Vec<Sample>,
    /// How often each latency in microseconds occurred, by interval.
    intervals: BTreeMap<u64, BTreeMap<u64, u64>>,
    broken: Vec<Broken>,
    stopped_after: Option<String>,
}

/// The sums of measured phases.
#[derive(Default)]
struct Sums {
    all: Option<Window>,
    by_phase: BTreeMap<String, Window>,
    /// The longest phase.
    longest_s: (f64, f64),
}

impl Sums {
    fn add(&mut self, name: &str, window: Window, seconds: f64) {
        if window.until_s - window.from_s > self.longest_s.1 - self.longest_s.0 {
            self.longest_s = (window.from_s, window.from_s + seconds);
        }
        let sum = self.by_phase.entry(name.to_owned());
        sum.and_modify(|sum| sum.add(&window)).or_insert_with(|| window.clone());
        match &mut self.all {
            Some(sum) => sum.add(&window),
            None => self.all = Some(window),
        }
    }
}

impl Course {
    /// Notes which server is loaded.
    pub fn meets(&mut self, target: &ScenarioTarget) {
        let version = target.metrics().and_then(|page| page.by("dunlin_build_info", "version").into_keys().next());
        self.target = TargetOfRun { target: target.name.clone(), target_version: version, ..TargetOfRun::default() };
    }

    /// Runs the phases.
    pub fn run(&mut self, profile: &Profile, rig: &mut ScenarioRig<'_>, log: &Log<'_>) -> Result<(), Error> {
        self.before.add_faults(&rig.connect_publishers(log.progress)?.report);
        rig.check()?;
        for (number, phase) in profile.phases.iter().enumerate() {
            if let Some(ramp) = rig.ramp(number, log.progress)? {
                self.collect(&ramp.report);
                self.before.add_faults(&ramp.report);
                rig.check()?;
            }
            for repetition in 0..phase.repeat {
                let window = rig.phase(number, repetition, log.progress)?;
                self.collect(&window.report);
                let values = self.end_phase(profile, rig, (number, window));
                log.phase(&phase.name, &values);
                rig.check()?;
                if profile.stops_at_broken_gate && phase.is_measured {
                    self.broken = broken_in_phase(profile, &phase.name, &values);
                    if !self.broken.is_empty() {
                        let is_last = number + 1 == profile.phases.len() && repetition + 1 == phase.repeat;
                        self.stopped_after = (!is_last).then(|| phase.name.clone());
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// Takes over the samples at the end of the run.
    pub fn sampled(&mut self, rig: &ScenarioRig<'_>) {
        self.samples = rig.sampler().samples();
    }

    fn collect(&mut self, report: &CrewReport) {
        for (interval, counts) in &report.intervals {
            let sum = self.intervals.entry(*interval).or_default();
            for (us, count) in counts {
                *sum.entry(*us).or_default() += count;
            }
        }
    }

    fn end_phase(&mut self, profile: &Profile, rig: &ScenarioRig<'_>, (number, mut window): (usize, Window)) -> Values {
        let phase = &profile.phases[number];
        if phase.is_measured {
            // What went wrong while connections were opened and in warm-ups counts for the phase that needs them.
            window.report.add_faults(&std::mem::take(&mut self.before));
        } else {
            self.before.add_faults(&window.report);
        }
        if profile.connections_vary() {
            rig.settle_memory();
        }
        self.points.extend(rig.sampler().now().map(|sample| Point {
            connections: window.report.connections.open,
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
            self.sums.add(&phase.name, window, phase.duration.as_secs_f64());
        }
        values
    }

    /// The result. A run that ended early has only the figures of the phases before, and no verdict about figures that
    /// it did not measure.
    pub fn result(mut self, profile: &Profile, origin: Origin, partial: Option<String>) -> RunResult {
        let seconds_each = profile.interval.as_secs_f64();
        if let Some(sum) = &mut self.sums.all {
            sum.report.add_faults(&self.before);
        }
        let interval = |(at, latency): (&u64, &BTreeMap<u64, u64>)| Interval {
            at_s: *at as f64 * seconds_each,
            latency: Latency::of_counts(latency).summary(),
        };
        let intervals: Vec<Interval> = self.intervals.iter().map(interval).collect();
        let mut values = self.sums.all.as_ref().map(|sum| figures::values(&sum.report, &sum.usage)).unwrap_or_default();
        if !self.phases.is_empty() {
            values.extend(result::memory_slopes(&self.points));
            values.extend(result::growth(&self.samples, &intervals, self.sums.longest_s));
        }
        let mut broken = self.broken;
        if broken.is_empty() {
            broken = broken_in_run(profile, &values, &self.sums, partial.is_some());
        }
        let nothing_measured = || Window { report: self.before, ..Window::default() };
        let sum = self.sums.all.unwrap_or_else(nothing_measured);
        let (report, usage) = (sum.report, sum.usage);
        let (failed, closed) = (report.connections.failed, report.connections.closed);
        let reasons = [("failed", failed), ("closed", closed), ("refused", report.sent.refused)];
        RunResult {
            format: result::FORMAT,
            partial,
            origin,
            scenario: ScenarioOfRun {
                profile: profile.name.clone(),
                about: profile.about.clone(),
                document: without_secrets(serde_json::to_value(&profile.document).unwrap_or_default()),
                gates: profile.gates.iter().cloned().map(String::from).collect(),
            },
            target: TargetOfRun { threads: usage.threads, counts: usage.counts.sums(), ..self.target },
            outcome: Outcome {
                figures: result::with_spread(&values, &self.phases),
                broken,
                phases: self.phases,
                stopped_after: self.stopped_after,
                reasons: reasons
                    .into_iter()
                    .filter(|(_, reasons)| !reasons.is_empty())
                    .map(|(what, reasons)| (what.to_owned(), reasons))
                    .collect(),
            },
            series: SeriesOfRun {
                points: self.points,
                samples: self.samples,
                intervals,
                latency: report.received.latency,
                service: report.received.service,
            },
        }
    }
}

/// The gates that a whole run breaks.
fn broken_in_run(profile: &Profile, values: &Values, sums: &Sums, is_partial: bool) -> Vec<Broken> {
    let check = |gate: &Gate| {
        let of = gate.phase.as_ref().map(|phase| sums.by_phase.get(phase));
        let of =
            of.map(|window| window.map(|window| figures::values(&window.report, &window.usage)).unwrap_or_default());
        let values = of.as_ref().unwrap_or(values);
        let is_known = values.contains_key(gate.figure().name);
        if is_known || !is_partial { gate.check(values, gate.phase.as_deref()) } else { None }
    };
    profile.gates.iter().filter_map(check).collect()
}

/// The gates that a phase breaks. A slope may not be known yet.
fn broken_in_phase(profile: &Profile, phase: &str, values: &Values) -> Vec<Broken> {
    let concerns = |gate: &&Gate| gate.phase.as_deref().is_none_or(|of| of == phase);
    let known = profile.gates.iter().filter(concerns).filter(|gate| values.contains_key(gate.figure().name));
    known.filter_map(|gate| gate.check(values, Some(phase))).collect()
}
