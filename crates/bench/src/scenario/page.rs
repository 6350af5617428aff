//! A page with the results of runs: one HTML file without scripts and without other files.

mod plot;

use std::fmt::Write as _;

use self::plot::{Axis, Kind, Plot, Series, escaped};
use super::figures::{self, FIGURES, Slope};
use super::gate::Gate;
use super::quantity::Unit;
use super::result::RunResult;
use super::sampler::Sample;
use super::secrets::{shown_flags, without_secrets};
use crate::report::{grouped, ratio};

/// The figures at the top of a run, if they were measured. Those of its gates follow.
const TILES: [&str; 10] = [
    "p50",
    "p99",
    "p999",
    "lost",
    "deliveries_per_second",
    "deliveries_per_cpu_second",
    "cpu_cores",
    "connections",
    "bytes_per_connection",
    "ack_p99",
];

/// The page of these runs.
pub fn page(results: &[RunResult]) -> String {
    let css = include_str!("page/page.css");
    let mut body = String::new();
    if results.len() > 1 {
        body.push_str(&contents(results));
    }
    for result in results {
        run(&mut body, result);
    }
    let title = match results {
        [one] => format!("Dunlin benchmark: {}", escaped(&one.scenario.profile)),
        _ => "Dunlin benchmarks".to_owned(),
    };
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
         <style>\n{css}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n{body}</main>\n</body>\n</html>\n"
    )
}

/// A table of all runs.
fn contents(results: &[RunResult]) -> String {
    let names = ["p50", "p99", "lost", "deliveries_per_second", "deliveries_per_cpu_second", "memory"];
    let mut table = String::from("<div class=\"scroll card\"><table><tr><th>profile</th><th>gates</th>");
    for name in names {
        let _ = write!(table, "<th>{name}</th>");
    }
    table.push_str("</tr>");
    for result in results {
        let profile = escaped(&result.scenario.profile);
        let _ = write!(table, "<tr><td><a href=\"#{profile}\">{profile}</a></td><td>{}</td>", verdict(result));
        for name in names {
            let shown = result.outcome.figures.get(name).map_or("", |figure| figure.shown.as_str());
            let _ = write!(table, "<td>{}</td>", escaped(shown));
        }
        table.push_str("</tr>");
    }
    table.push_str("</table></div>\n");
    table
}

fn verdict(result: &RunResult) -> String {
    let (class, text) = match (&result.partial, result.outcome.broken.len()) {
        (Some(_), _) => ("bad", "partial".to_owned()),
        (None, 0) if result.scenario.gates.is_empty() => ("soft", "no gates".to_owned()),
        (None, 0) => ("good", format!("✓ all {} hold", result.scenario.gates.len())),
        (None, broken) => ("bad", format!("✗ {broken} broken")),
    };
    format!("<span class=\"verdict {class}\">{text}</span>")
}

fn run(body: &mut String, result: &RunResult) {
    let profile = escaped(&result.scenario.profile);
    let _ = writeln!(body, "<h2 id=\"{profile}\">{profile}</h2>\n<p>{}</p>", escaped(&result.scenario.about));
    let _ = writeln!(body, "<p>{}</p>", verdict(result));
    if let Some(why) = &result.partial {
        // The output of a server may follow.
        let (why, output) = why.split_once('\n').unwrap_or((why, ""));
        let _ = writeln!(body, "<p class=\"bad\">The run ended early: {}</p>", escaped(why));
        if !output.is_empty() {
            let _ = writeln!(body, "<pre>{}</pre>", escaped(output));
        }
    }
    for broken in &result.outcome.broken {
        let _ = writeln!(body, "<p class=\"bad\">{}</p>", escaped(&broken.message));
    }
    if let Some(phase) = &result.outcome.stopped_after {
        let _ = writeln!(body, "<p>The run stopped after phase {}. Later ones did not run.</p>", escaped(phase));
    }
    for (what, reasons) in &result.outcome.reasons {
        for (why, count) in reasons {
            let _ = writeln!(body, "<p class=\"soft\">{what}, {}: {}</p>", grouped(*count as f64), escaped(why));
        }
    }
    let version = result.target.target_version.as_deref().map_or(String::new(), |version| format!(" {version}"));
    let commit = result.origin.commit.as_deref().map_or(String::new(), |commit| format!(", commit {commit}"));
    let place = format!(
        "{}, {}, {} MiB of memory, load {:.1} before and {:.1} after; {}{version}{commit}",
        result.origin.started_at,
        result.origin.machine.description,
        grouped(result.origin.machine.memory_bytes as f64 / 1_048_576.0),
        result.origin.machine.load_before,
        result.origin.machine.load_after,
        result.target.target,
    );
    let _ = writeln!(body, "<p class=\"soft\">{}</p>", escaped(&place));
    tiles(body, result);
    body.push_str("<div class=\"plots\">\n");
    for plot in plots(result) {
        body.extend(plot.figure());
        body.push('\n');
    }
    body.push_str("</div>\n");
    tables(body, result);
}

fn tiles(body: &mut String, result: &RunResult) {
    body.push_str("<div class=\"tiles\">\n");
    let gates = Gate::parse_all(&result.scenario.gates.join(",")).unwrap_or_default();
    let mut names = TILES.to_vec();
    names.extend(gates.iter().map(|gate| gate.figure().name));
    let mut shown = Vec::new();
    for name in names {
        if shown.contains(&name) {
            continue;
        }
        shown.push(name);
        if let Some(found) = result.outcome.figures.get(name) {
            let (shown, name) = (escaped(&found.shown), name.replace('_', " "));
            let _ = writeln!(body, "<div class=\"card\"><b>{shown}</b><span class=\"soft\">{name}</span></div>");
        }
    }
    body.push_str("</div>\n");
}

fn tables(body: &mut String, result: &RunResult) {
    body.push_str("<details><summary>All figures</summary><div class=\"scroll\"><table>");
    body.push_str("<tr><th>figure</th><th>value</th><th>lowest phase</th><th>highest phase</th><th>meaning</th></tr>");
    for figure in FIGURES {
        let Some(found) = result.outcome.figures.get(figure.name) else { continue };
        let [value, min, max] = [found.value, found.min, found.max].map(|value| escaped(&figure.unit.show(value)));
        let (name, meaning) = (figure.name, escaped(figure.meaning));
        let _ = write!(
            body,
            "<tr><td>{name}</td><td>{value}</td><td>{min}</td><td>{max}</td><td class=\"long\">{meaning}</td></tr>"
        );
    }
    body.push_str("</table></div></details>\n<details><summary>Phases</summary><div class=\"scroll\"><table>");
    let names = ["connections", "delivered", "lost", "p50", "p99", "max", "cpu_cores", "memory"];
    let _ = write!(body, "<tr><th>phase</th><th>from</th><th>counts</th>");
    for name in names {
        let _ = write!(body, "<th>{name}</th>");
    }
    body.push_str("</tr>");
    for phase in &result.outcome.phases {
        let counts = if phase.is_measured { "yes" } else { "no" };
        let _ = write!(body, "<tr><td>{}</td><td>{:.1} s</td><td>{counts}</td>", escaped(&phase.name), phase.from_s);
        for name in names {
            let unit = figures::figure(name).map_or(Unit::Count, |figure| figure.unit);
            let shown = phase.figures.get(name).map_or(String::new(), |value| unit.show(*value));
            let _ = write!(body, "<td>{}</td>", escaped(&shown));
        }
        body.push_str("</tr>");
    }
    body.push_str("</table></div></details>\n");
    counted(body, "CPU time of the server by thread, in seconds", &result.target.threads);
    counted(body, "What the server's metrics counted", &result.target.counts);
    // Results of earlier versions may have secrets.
    let flags = shown_flags(result.origin.flags.iter().cloned()).join(" ");
    let document = serde_json::to_string_pretty(&without_secrets(result.scenario.document.clone())).unwrap_or_default();
    let _ = writeln!(
        body,
        "<details><summary>Command and profile</summary><pre>dunlin bench {}\n\n{}</pre></details>",
        escaped(&flags),
        escaped(&document)
    );
}

fn counted(body: &mut String, summary: &str, counts: &std::collections::BTreeMap<String, f64>) {
    let counts: Vec<_> = counts.iter().filter(|(_, count)| **count > 0.0).collect();
    if counts.is_empty() {
        return;
    }
    let _ = write!(body, "<details><summary>{summary}</summary><div class=\"scroll\"><table>");
    for (name, count) in counts {
        let shown = if count.fract() == 0.0 { grouped(*count) } else { format!("{count:.2}") };
        let _ = write!(body, "<tr><td>{}</td><td>{shown}</td></tr>", escaped(name));
    }
    body.push_str("</table></div></details>\n");
}

fn plots(result: &RunResult) -> Vec<Plot> {
    let spans: Vec<_> =
        result.outcome.phases.iter().map(|phase| (phase.name.clone(), phase.from_s, phase.until_s)).collect();
    let seconds = || Axis { name: "seconds", is_log: false, show: |s| format!("{s:.0}"), from_zero: true };
    vec![
        latency_over_time(result, seconds(), spans.clone()),
        histogram(result),
        memory_by_connections(result),
        memory_over_time(result, seconds(), spans.clone()),
        cpu(result, seconds(), spans),
    ]
}

fn latency_over_time(result: &RunResult, x: Axis, spans: Vec<(String, f64, f64)>) -> Plot {
    let of = |value: fn(&super::result::Interval) -> u64| {
        result.series.intervals.iter().map(|interval| (interval.at_s, value(interval) as f64)).collect()
    };
    let line = |name: &str, class, points| Series { name: name.to_owned(), class, kind: Kind::Line, points };
    Plot {
        title: "Latency over time",
        x,
        y: times(),
        series: vec![
            line("max", "s3", of(|interval| interval.latency.max_us)),
            line("p99", "s2", of(|interval| interval.latency.p99_us)),
            line("p50", "s1", of(|interval| interval.latency.p50_us)),
        ],
        spans,
    }
}

fn times() -> Axis {
    Axis { name: "latency", is_log: true, show: short_time, from_zero: false }
}

/// A time on an axis.
fn short_time(us: f64) -> String {
    match us {
        ..1e3 => format!("{us:.0} µs"),
        1e3..1e6 => format!("{} ms", short(us / 1e3)),
        _ => format!("{} s", short(us / 1e6)),
    }
}

fn short(value: f64) -> String {
    if value >= 10.0 || value.fract() < 0.05 { format!("{value:.0}") } else { format!("{value:.1}") }
}

/// Bars of equal width on the logarithmic axis: ten for each power of ten.
fn histogram(result: &RunResult) -> Plot {
    const PER_DECADE: f64 = 10.0;
    let mut bars: Vec<(f64, f64)> = Vec::new();
    for (us, count) in result.series.latency.counts() {
        let at = 10_f64.powf(((us.max(1) as f64).log10() * PER_DECADE).floor() / PER_DECADE);
        match bars.last_mut() {
            Some((last, sum)) if (*last - at).abs() < at * 1e-9 => *sum += count as f64,
            _ => bars.push((at, count as f64)),
        }
    }
    Plot {
        title: "Deliveries by latency",
        x: times(),
        y: Axis { name: "deliveries", is_log: true, show: grouped, from_zero: false },
        series: vec![Series { name: "deliveries".into(), class: "s1", kind: Kind::Bars, points: bars }],
        spans: Vec::new(),
    }
}

fn memory_by_connections(result: &RunResult) -> Plot {
    let points: Vec<_> =
        result.series.points.iter().map(|point| (point.connections as f64, point.anon_bytes as f64)).collect();
    let mut series = Vec::new();
    if let Some(line) = Slope::of(&points) {
        let at = |x: f64| (x, line.intercept + line.slope * x);
        let (first, last) =
            points.iter().fold((f64::INFINITY, 0.0_f64), |(first, last), (x, _)| (first.min(*x), last.max(*x)));
        let name = format!("{} for each further connection", Unit::Bytes.show(line.slope));
        series.push(Series { name, class: "s3", kind: Kind::Line, points: vec![at(first), at(last)] });
        series.push(Series { name: "private memory".into(), class: "s1", kind: Kind::Dots, points });
    }
    Plot {
        title: "Memory by connections",
        x: Axis { name: "connections", is_log: false, show: grouped, from_zero: true },
        y: bytes(),
        series,
        spans: Vec::new(),
    }
}

fn bytes() -> Axis {
    Axis { name: "memory", is_log: false, show: |bytes| format!("{} MiB", short(bytes / 1_048_576.0)), from_zero: true }
}

fn memory_over_time(result: &RunResult, x: Axis, spans: Vec<(String, f64, f64)>) -> Plot {
    let of = |value: fn(&Sample) -> u64| {
        result.series.samples.iter().map(|sample| (sample.at_s, value(sample) as f64)).collect::<Vec<_>>()
    };
    let line = |name: &str, class, points| Series { name: name.to_owned(), class, kind: Kind::Line, points };
    Plot {
        title: "Memory of the server over time",
        x,
        y: bytes(),
        series: vec![
            line("resident", "s3", of(|sample| sample.rss_bytes)),
            line("private", "s1", of(|sample| sample.anon_bytes)),
        ],
        spans,
    }
}

fn cpu(result: &RunResult, x: Axis, spans: Vec<(String, f64, f64)>) -> Plot {
    let share = |from: &Sample, to: &Sample| {
        let (user, system) = (to.user_ticks - from.user_ticks, to.system_ticks - from.system_ticks);
        ratio(user as f64, (user + system) as f64)
    };
    let of = |part: &dyn Fn(f64) -> f64| {
        let pairs = result.series.samples.iter().zip(result.series.samples.iter().skip(1));
        pairs
            .map(|(from, to)| {
                let cores = ratio(to.cpu_s - from.cpu_s, to.at_s - from.at_s);
                (to.at_s, cores * part(share(from, to)))
            })
            .collect::<Vec<_>>()
    };
    let line = |name: &str, class, points| Series { name: name.to_owned(), class, kind: Kind::Line, points };
    Plot {
        title: "CPU of the server over time",
        x,
        y: Axis { name: "cores", is_log: false, show: |cores| format!("{cores:.2}"), from_zero: true },
        series: vec![
            line("all", "s3", of(&|_| 1.0)),
            line("kernel", "s2", of(&|user| 1.0 - user)),
            line("own code", "s1", of(&|user| user)),
        ],
        spans,
    }
}
