//! Results as JSON for programs, and as a short table for human readers.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;

use serde::Serialize;

use crate::args::OutputArgs;
use crate::error::Error;

/// The channel of every run.
pub const CHANNEL: &str = "bench";

/// A line of the table: a name and a value.
pub struct Line {
    name: String,
    value: String,
}

impl Line {
    /// Creates a line.
    pub fn new(name: impl Into<String>, value: impl Into<String>) -> Self {
        Line { name: name.into(), value: value.into() }
    }
}

/// Writes the table to stdout, and the JSON to the file in `--json`. If the JSON goes to stdout, the table goes to stderr.
pub fn publish(report: &impl Serialize, lines: &[Line], output: &OutputArgs) -> Result<(), Error> {
    let is_json_printed = output.json.as_deref() == Some(Path::new("-"));
    if !output.quiet {
        let table = table_of(lines);
        if is_json_printed {
            // Standard error may be closed. The result must still be written.
            let _ = std::io::stderr().write_all(table.as_bytes());
        } else {
            let written = std::io::stdout().write_all(table.as_bytes());
            written
                .map_err(|source| Error::os("write the result to stdout", source, "give a file with --json FILE"))?;
        }
    }
    let Some(path) = &output.json else { return Ok(()) };
    let mut json = serde_json::to_string_pretty(report).expect("reports have string keys only");
    json.push('\n');
    let written = if is_json_printed { std::io::stdout().write_all(json.as_bytes()) } else { fs::write(path, json) };
    written.map_err(|source| {
        let path = if is_json_printed { "stdout".into() } else { path.display().to_string() };
        Error::os(format!("write the result to {path}"), source, "give another --json FILE")
    })
}

/// Writes a table to stderr.
pub fn print(lines: &[Line]) {
    // Standard error may be closed. The result must still be written.
    let _ = std::io::stderr().write_all(table_of(lines).as_bytes());
}

fn table_of(lines: &[Line]) -> String {
    let width = lines.iter().map(|line| line.name.chars().count()).max().unwrap_or(0);
    let mut table = String::new();
    for line in lines {
        let _ = writeln!(table, "{:width$}  {}", line.name, line.value);
    }
    table
}

/// Events per second in an interval of `ns`; 0 for an empty interval.
pub fn per_second(events: u64, ns: u64) -> f64 {
    ratio(events as f64 * 1e9, ns as f64)
}

/// A quotient; 0 if the divisor is 0.
pub fn ratio(dividend: f64, divisor: f64) -> f64 {
    if divisor == 0.0 { 0.0 } else { dividend / divisor }
}

/// The integer part of a non-negative number, saturated to the range of the type.
#[expect(clippy::cast_sign_loss, reason = "`as` saturates, which is what this promises")]
pub fn whole(value: f64) -> u64 {
    value as u64
}

/// `1234567.8` as `1,234,568`.
pub fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Microseconds in the most readable unit.
pub fn time(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} µs"),
        1_000..1_000_000 => format!("{:.2} ms", us as f64 / 1e3),
        _ => format!("{:.2} s", us as f64 / 1e6),
    }
}

/// Bytes in the most readable unit.
pub fn size(bytes: u64) -> String {
    match bytes {
        0..10_240 => format!("{bytes} B"),
        10_240..10_485_760 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_formatted_for_reading() {
        assert_eq!(grouped(0.0), "0");
        assert_eq!(grouped(999.4), "999");
        assert_eq!(grouped(1_234_567.8), "1,234,568");
        assert_eq!(time(999), "999 µs");
        assert_eq!(time(14_250), "14.25 ms");
        assert_eq!(time(2_500_000), "2.50 s");
        assert_eq!(size(2048), "2048 B");
        assert_eq!(size(59_392), "58.0 KiB");
        assert_eq!(size(20 << 20), "20.0 MiB");
    }

    #[test]
    fn a_rate_over_no_time_is_zero() {
        assert!(per_second(5, 0) == 0.0);
        assert!((per_second(5, 500_000_000) - 10.0).abs() < 1e-9);
    }
}
