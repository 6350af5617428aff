//! Compares two server programs or two profiles: they run in turns, A B B A, so that a steady change of the machine cancels out,
//! and each pair of runs gives a ratio.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;

use super::args::{CompareArgs, ScenarioArgs};
use super::figures::{FIGURES, Figure};
use super::machine::{self, Machine};
use super::profile::{Profile, built_in_names, is_toml};
use super::result::{self, RunResult};
use super::secrets::shown_flags;
use crate::error::Error;
use crate::interrupt;
use crate::report::{self, Line};

/// The result of a comparison.
#[derive(Debug, Serialize)]
struct Comparison {
    format: u32,
    started_at: String,
    machine: Machine,
    commit: Option<String>,
    flags: Vec<String>,
    a: String,
    b: String,
    rounds: u32,
    /// In which order they ran, such as `ABBA`.
    order: String,
    /// B divided by A.
    ratios: BTreeMap<&'static str, Ratio>,
    /// What was broken, by run.
    broken: Vec<String>,
}

/// The ratio of a figure, with the interval that holds it with a confidence of 95 %.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Ratio {
    a: Vec<f64>,
    b: Vec<f64>,
    /// Geometric mean of the ratios of the pairs.
    ratio: f64,
    /// None with fewer than two pairs.
    interval: Option<(f64, f64)>,
}

/// Runs the comparison.
pub fn run(args: &CompareArgs) -> Result<(), Error> {
    interrupt::watch()?;
    let sides = sides(args)?;
    let started_at = machine::utc(crate::proc::unix_us() / 1_000_000);
    let mut machine = Machine::now();
    let (mut runs, mut broken, mut order) = ([Vec::new(), Vec::new()], Vec::new(), String::new());
    for round in 1..=args.rounds {
        for number in order_of(round) {
            let (side, letter) = (&sides[number], ["A", "B"][number]);
            order.push_str(letter);
            let result = super::run_once(&side.profile, &side.args);
            if let Some(why) = &result.partial {
                return Err(Error::Scenario(format!("run {round} of {letter} is partial: {why}")));
            }
            broken.extend(
                result.outcome.broken.iter().map(|broken| format!("{letter}, run {round}: {}", broken.message)),
            );
            let stem = format!("{}.{letter}{round}", super::stem_of(&result));
            result.write(&result::make_file_in(&args.common.runs, &stem)?)?;
            runs[number].push(result);
        }
    }
    machine.end();
    let comparison = Comparison {
        format: result::FORMAT,
        started_at,
        machine,
        commit: machine::commit(),
        flags: shown_flags(std::env::args().skip(1)),
        a: args.a.clone(),
        b: args.b.clone(),
        rounds: args.rounds,
        order,
        ratios: ratios(&runs[0], &runs[1]),
        broken,
    };
    let stem = format!("{}-compare", comparison.started_at.replace([':', '-'], ""));
    let path = args.json.clone().map_or_else(|| result::make_file_in(&args.common.runs, &stem), Ok)?;
    result::write_file(&path, &serde_json::to_string_pretty(&comparison).expect("it has string keys only"))?;
    if !args.common.quiet {
        report::print(&comparison.lines());
        super::note(&format!("comparison: {}", path.display()));
    }
    if comparison.broken.is_empty() { Ok(()) } else { Err(Error::Gates(comparison.broken)) }
}

/// Which one comes first in a round: 0 for A. Their turns change, so that neither is always the later one.
fn order_of(round: u32) -> [usize; 2] {
    if round % 2 == 1 { [0, 1] } else { [1, 0] }
}

/// One of the two.
struct Side {
    profile: Profile,
    args: ScenarioArgs,
}

fn sides(args: &CompareArgs) -> Result<[Side; 2], Error> {
    let is_profile = |name: &str| is_toml(name) || built_in_names().contains(&name);
    let side = |name: &String| {
        let mut run = args.common.clone();
        let source = if is_profile(name) {
            name
        } else {
            run.target.start.spawn = Some(PathBuf::from(name));
            &args.profile
        };
        Ok(Side { profile: super::load(source, &run)?, args: run })
    };
    if is_profile(&args.a) != is_profile(&args.b) {
        let message = format!("{} and {} are a profile and a program; give two of the same kind", args.a, args.b);
        return Err(Error::Scenario(message));
    }
    if !is_profile(&args.a) && args.common.target.target.is_some() {
        return Err(Error::Scenario("two programs are started for the comparison; leave out --target".to_owned()));
    }
    Ok([side(&args.a)?, side(&args.b)?])
}

fn ratios(a: &[RunResult], b: &[RunResult]) -> BTreeMap<&'static str, Ratio> {
    let compared = FIGURES.iter().filter(|figure| figure.is_compared);
    let ratio = |figure: &Figure| {
        let values = |runs: &[RunResult]| {
            runs.iter()
                .map(|run| run.outcome.figures.get(figure.name).map(|found| found.value))
                .collect::<Option<Vec<_>>>()
        };
        Some((figure.name, Ratio::of(values(a)?, values(b)?)?))
    };
    compared.filter_map(ratio).collect()
}

impl Ratio {
    /// None if a value is not above zero.
    fn of(a: Vec<f64>, b: Vec<f64>) -> Option<Self> {
        if a.is_empty() || a.iter().chain(&b).any(|value| *value <= 0.0) {
            return None;
        }
        let logs: Vec<f64> = a.iter().zip(&b).map(|(a, b)| (b / a).ln()).collect();
        let count = logs.len() as f64;
        let mean = logs.iter().sum::<f64>() / count;
        let interval = (logs.len() > 1).then(|| {
            let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (count - 1.0);
            let half = student(logs.len() - 1) * (variance / count).sqrt();
            ((mean - half).exp(), (mean + half).exp())
        });
        Some(Ratio { a, b, ratio: mean.exp(), interval })
    }

    fn line(&self, figure: &Figure) -> Line {
        let of = |values: &[f64]| figure.unit.show(median(values));
        let verdict = match self.interval {
            None => "one pair shows no spread".to_owned(),
            Some((low, high)) if low <= 1.0 && high >= 1.0 => format!("{low:.3} to {high:.3}, no difference shown"),
            Some((low, high)) => format!("{low:.3} to {high:.3}"),
        };
        Line::new(figure.name, format!("{:.3} × ({verdict})  A {}, B {}", self.ratio, of(&self.a), of(&self.b)))
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |place: usize| sorted.get(place).copied().unwrap_or(0.0);
    f64::midpoint(at(sorted.len().saturating_sub(1) / 2), at(sorted.len() / 2))
}

/// The quantile of Student's t distribution that 2.5 % exceed, by degrees of freedom.
pub fn student(freedom: usize) -> f64 {
    const QUANTILES: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
        2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
    ];
    // Between the last entry and the normal distribution, the larger one is on the safe side.
    QUANTILES.get(freedom.saturating_sub(1)).copied().unwrap_or(2.042)
}

impl Comparison {
    fn lines(&self) -> Vec<Line> {
        let mut lines = vec![
            Line::new("A", &self.a),
            Line::new("B", &self.b),
            Line::new("B / A", format!("{} pairs of runs, intervals of 95 % confidence", self.rounds)),
        ];
        for figure in FIGURES {
            lines.extend(self.ratios.get(figure.name).map(|ratio| ratio.line(figure)));
        }
        lines.extend(self.broken.iter().map(|broken| Line::new("gate", broken)));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_change_of_the_machine_is_no_difference() {
        // Each run takes 1 % longer than the one before.
        let mut time = 1.0;
        let mut runs = [Vec::new(), Vec::new()];
        for number in (1..=6).flat_map(order_of) {
            runs[number].push(time);
            time *= 1.01;
        }
        let [a, b] = runs;
        let ratio = Ratio::of(a, b).unwrap();
        let (low, high) = ratio.interval.unwrap();
        assert!((ratio.ratio - 1.0).abs() < 1e-9 && low < 1.0 && high > 1.0, "{ratio:?}");
    }

    #[test]
    fn the_median_of_an_even_number_is_between_the_middle_ones() {
        let cases: [(&[f64], f64); 4] =
            [(&[], 0.0), (&[7.0], 7.0), (&[9.0, 1.0, 2.0], 2.0), (&[9.0, 1.0, 4.0, 2.0], 3.0)];
        for (values, expected) in cases {
            assert!((median(values) - expected).abs() < 1e-9, "{values:?}");
        }
    }

    #[test]
    fn the_interval_of_a_ratio_is_that_of_its_pairs() {
        let same = Ratio::of(vec![1.0, 2.0, 4.0], vec![2.0, 4.0, 8.0]).unwrap();
        let (low, high) = same.interval.unwrap();
        assert!((same.ratio - 2.0).abs() < 1e-9 && (low - 2.0).abs() < 1e-9 && (high - 2.0).abs() < 1e-9);
        // ln 1.1 and ln 0.9: mean −0.00503, standard error 0.10034, t of one degree 12.706.
        let two = Ratio::of(vec![1.0, 1.0], vec![1.1, 0.9]).unwrap();
        let (low, high) = two.interval.unwrap();
        assert!((two.ratio - 0.994_987).abs() < 1e-6);
        assert!((low - 0.278_07).abs() < 1e-3 && (high - 3.560_26).abs() < 1e-2, "{low} {high}");
        assert_eq!(Ratio::of(vec![1.0], vec![3.0]).unwrap().interval, None);
        assert_eq!(Ratio::of(vec![0.0], vec![3.0]), None);
    }
}
