//! The machine, the checkout and the time of a run, for its result.

use std::fs;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::proc;

/// The machine on which a run took place.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Machine {
    /// Number and model of the processors, and the kernel.
    pub description: String,
    pub memory_bytes: u64,
    pub open_files_limit: u64,
    /// Processes that were running or waiting, over the last minute.
    pub load_before: f64,
    pub load_after: f64,
}

impl Machine {
    pub fn now() -> Self {
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
        let kib = total.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
        Machine {
            description: proc::machine(),
            memory_bytes: kib.unwrap_or(0) * 1024,
            open_files_limit: proc::raise_open_files_limit(),
            load_before: load(),
            load_after: 0.0,
        }
    }

    /// Notes the load at the end.
    pub fn end(&mut self) {
        self.load_after = load();
    }
}

fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0)
}

/// The commit of the checkout in the current folder, with `-changed` if files differ from it.
pub fn commit() -> Option<String> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).stderr(Stdio::null()).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let is_changed = git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|changes| !changes.is_empty());
    Some(if is_changed { format!("{commit}-changed") } else { commit })
}

/// A time in UTC, such as `2026-11-29T07:14:51Z`.
pub fn utc(unix_s: u64) -> String {
    let (days, rest) = (unix_s / 86_400, unix_s % 86_400);
    let (year, month, day) = civil(days);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

/// The date of a number of days since 1970 in the Gregorian calendar. Years begin in March here, so that the day of a
/// leap year is the last one.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_dates_of_the_calendar() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(utc(1_767_225_599), "2025-12-31T23:59:59Z");
        assert_eq!(utc(1_795_936_491), "2026-11-29T07:14:51Z");
    }
}
