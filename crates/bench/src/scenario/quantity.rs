//! Numbers with units, as profiles and gates write them.

/// What a number counts, and in which unit it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Microseconds.
    Time,
    Bytes,
    /// Things without a unit.
    Count,
    /// A quotient.
    Ratio,
    /// Things per second.
    Rate,
    /// Bytes per hour.
    BytesPerHour,
    /// Microseconds per hour.
    TimePerHour,
    /// Things per hour.
    CountPerHour,
}

const TIMES: [(&str, f64); 5] = [("us", 1.0), ("µs", 1.0), ("ms", 1e3), ("s", 1e6), ("m", 60e6)];
const HOURS: (&str, f64) = ("h", 3_600e6);
const SIZES: [(&str, f64); 7] = [
    ("B", 1.0),
    ("kB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
];

impl Unit {
    /// Reads a number with this unit, such as `50ms` or `2KiB`. Counts and ratios have none; a ratio may be in percent.
    pub fn parse(self, text: &str) -> Result<f64, String> {
        let text = text.trim().trim_end_matches("/h").trim_end_matches("/s");
        let at = text.find(|c: char| c.is_alphabetic() || c == '%').unwrap_or(text.len());
        let (number, unit) = (text[..at].trim(), text[at..].trim());
        let number: f64 = number.replace('_', "").parse().map_err(|_| self.examples())?;
        let factor = match self {
            _ if !number.is_finite() || number < 0.0 => None,
            Unit::Time | Unit::TimePerHour => TIMES.iter().chain([&HOURS]).find(|(name, _)| *name == unit),
            Unit::Bytes | Unit::BytesPerHour => SIZES.iter().find(|(name, _)| *name == unit),
            Unit::Ratio if unit == "%" => Some(&("%", 0.01)),
            _ if unit.is_empty() => Some(&("", 1.0)),
            _ => None,
        };
        match factor {
            Some((_, factor)) => Ok(number * factor),
            None => Err(self.examples()),
        }
    }

    fn examples(self) -> String {
        let examples = match self {
            Unit::Time => "a time, such as 500us, 50ms, 10s, 2m or 1h",
            Unit::Bytes => "bytes, such as 800B, 2KiB or 1MiB",
            Unit::Count => "a number, such as 0 or 10000",
            Unit::Ratio => "a ratio, such as 0.5 or 50%",
            Unit::Rate => "a number per second, such as 5000",
            Unit::BytesPerHour => "bytes per hour, such as 1MiB",
            Unit::TimePerHour => "a time per hour, such as 1ms",
            Unit::CountPerHour => "a number per hour, such as 10",
        };
        format!("give {examples}")
    }

    /// The value for reading.
    pub fn show(self, value: f64) -> String {
        match self {
            Unit::Time => show_time(value),
            Unit::TimePerHour => format!("{}/h", show_time(value)),
            Unit::Bytes => show_bytes(value),
            Unit::BytesPerHour => format!("{}/h", show_bytes(value)),
            Unit::Ratio => format!("{value:.3}"),
            Unit::Count => crate::report::grouped(value),
            Unit::Rate => format!("{}/s", rounded(value)),
            Unit::CountPerHour => format!("{}/h", rounded(value)),
        }
    }
}

fn rounded(value: f64) -> String {
    if value.abs() < 100.0 { format!("{value:.2}") } else { crate::report::grouped(value) }
}

fn show_time(us: f64) -> String {
    match us.abs() {
        0.0..1e3 => format!("{us:.0} µs"),
        1e3..1e6 => format!("{:.2} ms", us / 1e3),
        _ => format!("{:.2} s", us / 1e6),
    }
}

fn show_bytes(bytes: f64) -> String {
    match bytes.abs() {
        0.0..10_240.0 => format!("{bytes:.0} B"),
        10_240.0..10_485_760.0 => format!("{:.1} KiB", bytes / 1024.0),
        _ => format!("{:.1} MiB", bytes / 1_048_576.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_need_the_unit_of_what_they_count() {
        for (unit, text, value) in [
            (Unit::Time, "50ms", 50_000.0),
            (Unit::Time, "1.5 s", 1_500_000.0),
            (Unit::Time, "200µs", 200.0),
            (Unit::Time, "2h", 7_200e6),
            (Unit::Bytes, "2KiB", 2048.0),
            (Unit::Bytes, "2kB", 2000.0),
            (Unit::BytesPerHour, "1MiB/h", 1_048_576.0),
            (Unit::Count, "10_000", 10_000.0),
            (Unit::Ratio, "5%", 0.05),
            (Unit::Rate, "500/s", 500.0),
        ] {
            let found = unit.parse(text).unwrap();
            assert!((found - value).abs() < 1e-9, "{text}: {found}");
        }
        for (unit, text) in [
            (Unit::Time, "50"),
            (Unit::Time, "50KiB"),
            (Unit::Bytes, "2"),
            (Unit::Count, "2ms"),
            (Unit::Count, "-1"),
            (Unit::Count, ""),
            (Unit::Ratio, "NaN"),
        ] {
            assert!(unit.parse(text).is_err(), "{text}");
        }
    }
}
