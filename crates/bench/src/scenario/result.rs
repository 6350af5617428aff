//! The result of a run, as JSON: everything that is needed to repeat it, to compare it and to draw it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::{Deserialize, Serialize};

use super::figures::{self, FIGURES, Slope, Values};
use super::gate::Broken;
use super::machine::{self, Machine};
use super::sampler::Sample;
use super::secrets::shown_flags;
use crate::error::Error;
use crate::latency::{Latency, Summary};
use crate::proc::{self, Cores};
use crate::report::Line;

/// Raised when a field changes its meaning.
pub const FORMAT: u32 = 1;

/// The result of a run. As JSON, all its parts are one object.
#[derive(Debug, Serialize, Deserialize)]
pub struct RunResult {
    pub format: u32,
    /// Why the run ended early; none if it is complete.
    pub partial: Option<String>,
    #[serde(flatten)]
    pub origin: Origin,
    #[serde(flatten)]
    pub scenario: ScenarioOfRun,
    #[serde(flatten)]
    pub target: TargetOfRun,
    #[serde(flatten)]
    pub outcome: Outcome,
    #[serde(flatten)]
    pub series: SeriesOfRun,
}

/// Where and when a run took place, and how it was started.
#[derive(Debug, Serialize, Deserialize)]
pub struct Origin {
    /// In UTC.
    pub started_at: String,
    pub machine: Machine,
    /// The commit of the checkout from which the run was started.
    pub commit: Option<String>,
    pub bench_version: String,
    /// The arguments of the command, without secrets.
    pub flags: Vec<String>,
    pub cores: Cores,
}

impl Origin {
    /// Here and now.
    pub fn now(cores: Cores) -> Self {
        Origin {
            started_at: machine::utc(proc::unix_us() / 1_000_000),
            machine: Machine::now(),
            commit: machine::commit(),
            bench_version: env!("CARGO_PKG_VERSION").to_owned(),
            flags: shown_flags(std::env::args().skip(1)),
            cores,
        }
    }
}

/// What was to be done.
#[derive(Debug, Serialize, Deserialize)]
pub struct ScenarioOfRun {
    pub profile: String,
    pub about: String,
    /// The profile with all changes, without secrets.
    pub document: serde_json::Value,
    pub gates: Vec<String>,
}

/// The server, and what it counted itself.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct TargetOfRun {
    pub target: String,
    /// Its version, if its metrics show one.
    pub target_version: Option<String>,
    /// CPU time of its threads in the measured phases, in seconds.
    pub threads: BTreeMap<String, f64>,
    /// What its metrics counted in the measured phases.
    pub counts: BTreeMap<String, f64>,
}

/// What was measured.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// Over all measured phases.
    pub figures: BTreeMap<String, FigureResult>,
    pub broken: Vec<Broken>,
    pub phases: Vec<PhaseResult>,
    /// The phase after which the run stopped, because one of its gates is broken.
    #[serde(default)]
    pub stopped_after: Option<String>,
    /// Reasons, with numbers: connections that failed or were closed, publications that were refused.
    pub reasons: BTreeMap<String, BTreeMap<String, u64>>,
}

/// What plots show.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct SeriesOfRun {
    /// Memory by number of connections, at the end of each phase.
    pub points: Vec<Point>,
    pub samples: Vec<Sample>,
    /// Latencies over time, of all phases.
    pub intervals: Vec<Interval>,
    /// From the intended time of a publication to its arrival: microseconds and counts, over all measured phases.
    pub latency: Latency,
    /// The same from the time at which it was really sent.
    pub service: Latency,
}

/// A figure, and its spread over the measured phases and their repetitions.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FigureResult {
    pub value: f64,
    /// For reading.
    pub shown: String,
    pub min: f64,
    pub max: f64,
}

/// A phase or one of its repetitions.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PhaseResult {
    pub name: String,
    pub is_measured: bool,
    pub from_s: f64,
    pub until_s: f64,
    pub figures: BTreeMap<String, f64>,
}

/// The server's memory at a number of connections.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Point {
    pub connections: u64,
    pub anon_bytes: u64,
    pub rss_bytes: u64,
    pub kernel_bytes: Option<u64>,
}

/// The latencies of an interval.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Interval {
    pub at_s: f64,
    #[serde(flatten)]
    pub latency: Summary,
}

/// The slopes of memory over the number of connections, if that varies.
pub fn memory_slopes(points: &[Point]) -> Values {
    type BytesOf = fn(&Point) -> Option<u64>;
    let mut values = Values::new();
    let bytes: [(&'static str, BytesOf); 3] = [
        ("bytes_per_connection", |point| Some(point.anon_bytes)),
        ("rss_per_connection", |point| Some(point.rss_bytes)),
        ("kernel_bytes_per_connection", |point| point.kernel_bytes),
    ];
    for (name, of) in bytes {
        let known = points.iter().filter_map(|point| Some((point.connections as f64, of(point)? as f64)));
        let points: Vec<_> = known.collect();
        values.extend(Slope::of(&points).map(|slope| (name, slope.slope)));
    }
    values
}

/// Fewer points say nothing about growth.
const GROWTH_POINTS_MIN: usize = 10;

/// Growth per hour between two times of the run.
pub fn growth(samples: &[Sample], intervals: &[Interval], (from_s, until_s): (f64, f64)) -> Values {
    let mut values = Values::new();
    let is_within = |at_s: f64| (from_s..until_s).contains(&at_s);
    let mut add = |(name, floor), points: Vec<(f64, f64)>| {
        if points.len() >= GROWTH_POINTS_MIN
            && let Some(slope) = Slope::of(&points)
        {
            values.extend([(name, slope.significant() * 3600.0), (floor, slope.floor() * 3600.0)]);
        }
    };
    let of = |value: fn(&Sample) -> Option<u64>| {
        let within = samples.iter().filter(|sample| is_within(sample.at_s));
        within.filter_map(|sample| Some((sample.at_s, value(sample)? as f64))).collect::<Vec<_>>()
    };
    add(("memory_growth", "memory_growth_floor"), of(|sample| Some(sample.anon_bytes)));
    add(("files_growth", "files_growth_floor"), of(|sample| sample.open_files));
    let within = intervals.iter().filter(|interval| is_within(interval.at_s));
    let p99 = within.map(|interval| (interval.at_s, interval.latency.p99_us as f64)).collect();
    add(("latency_growth", "latency_growth_floor"), p99);
    values
}

/// The figures of a run, with their spread over the measured phases.
pub fn with_spread(values: &Values, phases: &[PhaseResult]) -> BTreeMap<String, FigureResult> {
    let figure = |(name, value): (&&'static str, &f64)| {
        let measured = phases.iter().filter(|phase| phase.is_measured);
        let found = measured.filter_map(|phase| phase.figures.get(*name)).copied();
        let (min, max) = found.fold((*value, *value), |(min, max), value| (min.min(value), max.max(value)));
        let shown = figures::figure(name).map_or_else(|| value.to_string(), |figure| figure.unit.show(*value));
        ((*name).to_owned(), FigureResult { value: *value, shown, min, max })
    };
    values.iter().map(figure).collect()
}

impl RunResult {
    /// Reads a file that `run` wrote.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let remedy = "give a file that `dunlin bench run` wrote";
        let failed = |source| Error::os(format!("read {}", path.display()), source, remedy);
        let text = fs::read_to_string(path).map_err(failed)?;
        let result: RunResult =
            serde_json::from_str(&text).map_err(|err| failed(std::io::Error::other(err.to_string())))?;
        if result.format != FORMAT {
            let message = format!("it has format {}, and this program reads {FORMAT}", result.format);
            return Err(failed(std::io::Error::other(message)));
        }
        Ok(result)
    }

    /// Writes the file, and the folders above it.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        write_file(path, &serde_json::to_string(self).expect("a result has string keys only"))
    }

    /// The figures as a table.
    pub fn lines(&self) -> Vec<Line> {
        let mut lines = vec![
            Line::new("profile", &self.scenario.profile),
            Line::new("machine", &self.origin.machine.description),
            Line::new("target", &self.target.target),
        ];
        for figure in FIGURES {
            let Some(found) = self.outcome.figures.get(figure.name) else { continue };
            let spread = if found.max - found.min > 1e-9 {
                format!("  ({} to {})", figure.unit.show(found.min), figure.unit.show(found.max))
            } else {
                String::new()
            };
            lines.push(Line::new(figure.name, format!("{}{spread}", found.shown)));
        }
        for (what, reasons) in &self.outcome.reasons {
            lines.extend(reasons.iter().map(|(why, count)| Line::new(what.clone(), format!("{count}: {why}"))));
        }
        let stopped = self.outcome.stopped_after.iter();
        lines.extend(stopped.map(|phase| Line::new("stopped", format!("after phase {phase}; later ones did not run"))));
        lines.extend(self.partial.iter().map(|why| Line::new("partial", why)));
        lines.extend(self.outcome.broken.iter().map(|broken| Line::new("gate", &broken.message)));
        lines
    }
}

/// Makes an empty file in the folder, which is made as well: `STEM.json`, or with a number if another run began in the same second.
/// It is made at once, not when the result is there, so that two runs at a time cannot get the same one.
pub fn make_file_in(folder: &Path, stem: &str) -> Result<PathBuf, Error> {
    let failed =
        |path: &Path, source| Error::os(format!("make {}", path.display()), source, "give another file or folder");
    fs::create_dir_all(folder).map_err(|source| failed(folder, source))?;
    let numbered = (2..u32::MAX).map(|number| folder.join(format!("{stem}-{number}.json")));
    for path in std::iter::once(folder.join(format!("{stem}.json"))).chain(numbered) {
        match fs::File::create_new(&path) {
            Ok(_) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(source) => return Err(failed(&path, source)),
        }
    }
    let full = io::Error::other("all names of this second are taken");
    Err(failed(folder, full))
}

/// Writes a file and the folders above it.
pub fn write_file(path: &Path, text: &str) -> Result<(), Error> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let written = folder.map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(path, text));
    written.map_err(|source| Error::os(format!("write {}", path.display()), source, "give another file or folder"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_the_same_second_have_different_files() {
        let folder = crate::folder::DataFolder::make(None, "results").expect("a folder");
        let names = [(); 3].map(|()| {
            let path = make_file_in(folder.path(), "20261129T220000Z-idle").expect("the folder has space");
            path.file_name().expect("a name").to_string_lossy().into_owned()
        });
        assert_eq!(names, ["", "-2", "-3"].map(|end| format!("20261129T220000Z-idle{end}.json")));
    }

    #[test]
    fn the_memory_of_a_connection_is_a_slope() {
        let point = |connections| Point {
            connections,
            anon_bytes: 5_000_000 + 700 * connections,
            rss_bytes: 9_000_000 + 900 * connections,
            kernel_bytes: Some(4_000 * connections),
        };
        let values = memory_slopes(&[point(1_000), point(2_000), point(9_000)]);
        assert!((values["bytes_per_connection"] - 700.0).abs() < 1e-6);
        assert!((values["rss_per_connection"] - 900.0).abs() < 1e-6);
        assert_eq!(memory_slopes(&[point(5), point(5)]), Values::new(), "the number does not vary");
    }

    #[test]
    fn growth_is_measured_within_the_phase() {
        let sample = |at: u32| Sample {
            at_s: f64::from(at),
            cpu_s: 0.0,
            user_ticks: 0,
            system_ticks: 0,
            rss_bytes: 0,
            anon_bytes: if at < 20 { 1_000_000 * u64::from(at) } else { 20_000_000 + 1_000 * u64::from(at) },
            open_files: at.is_multiple_of(2).then_some(9),
            kernel_bytes: None,
        };
        let samples: Vec<Sample> = (0..60).map(sample).collect();
        let values = growth(&samples, &[], (20.0, 60.0));
        assert!((values["memory_growth"] - 3_600_000.0).abs() < 1.0, "{values:?}");
        assert!(values["files_growth"] == 0.0, "samples without a number are left out");
        let hidden: Vec<Sample> = samples.iter().map(|sample| Sample { open_files: None, ..*sample }).collect();
        assert!(
            !growth(&hidden, &[], (20.0, 60.0)).contains_key("files_growth"),
            "what is unknown does not stand still"
        );
        assert!(growth(&samples, &[], (55.0, 60.0)).is_empty(), "too few points");
    }

    #[test]
    fn slopes_are_figures_of_the_run() {
        let point = |connections| Point {
            connections,
            anon_bytes: connections,
            rss_bytes: connections,
            kernel_bytes: Some(connections),
        };
        let sample = |at: u32| Sample {
            at_s: f64::from(at),
            cpu_s: 0.0,
            user_ticks: 0,
            system_ticks: 0,
            rss_bytes: 0,
            anon_bytes: 0,
            open_files: Some(9),
            kernel_bytes: None,
        };
        let samples: Vec<Sample> = (0..20).map(sample).collect();
        let latency = Latency::default().summary();
        let intervals: Vec<Interval> = (0..20_u32).map(|at| Interval { at_s: f64::from(at), latency }).collect();
        let mut values = memory_slopes(&[point(1), point(2)]);
        values.extend(growth(&samples, &intervals, (0.0, 20.0)));
        assert_eq!(values.into_keys().collect::<Vec<_>>(), figures::OF_RUN);
    }
}
