//! What the process uses, as `/proc` tells it (proc(5)).

use std::{fs, time::Duration};

/// What the process uses now. A part that `/proc` does not tell is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessUse {
    /// Time on a processor since the start, in user and kernel mode.
    pub cpu: Duration,
    /// Memory in RAM.
    pub resident_bytes: u64,
    /// Open file descriptors.
    pub open_files: u64,
    /// File descriptors that may be open.
    pub open_files_max: u64,
    /// Threads.
    pub threads: u64,
}

impl ProcessUse {
    /// Reads `/proc/self`.
    pub fn now() -> Self {
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        // The directory itself is open while it is counted.
        let open_files = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count).saturating_sub(1) as u64;
        Self {
            cpu: cpu_of(&stat),
            resident_bytes: number_behind(&status, "VmRSS:").saturating_mul(1_024),
            open_files,
            open_files_max: number_behind(&limits, "Max open files"),
            threads: number_behind(&status, "Threads:"),
        }
    }
}

/// Memory of the process in RAM; 0 if `/proc` does not tell.
pub fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    number_behind(&status, "VmRSS:").saturating_mul(1_024)
}

/// Clock ticks per second in `/proc`, the same on every Linux that this runs on (`USER_HZ`).
const TICKS_PER_SECOND: u64 = 100;

/// Fields 14 and 15, counted behind the program's name, which may hold spaces and parentheses.
fn cpu_of(stat: &str) -> Duration {
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks: u64 =
        fields.split_ascii_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks.saturating_mul(1_000 / TICKS_PER_SECOND))
}

fn number_behind(text: &str, label: &str) -> u64 {
    text.lines()
        .find_map(|line| line.strip_prefix(label))
        .and_then(|rest| rest.split_ascii_whitespace().next())
        .and_then(|number| number.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_is_read_behind_the_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 4 0 100 1000 200";
        assert_eq!(cpu_of(stat), Duration::from_secs(3));
        assert_eq!(cpu_of(""), Duration::ZERO);
    }

    #[test]
    fn this_process_uses_something() {
        let now = ProcessUse::now();
        assert!(now.resident_bytes > 100_000, "{now:?}");
        assert!(now.open_files >= 3 && now.open_files_max >= now.open_files, "{now:?}");
        assert!(now.threads >= 1, "{now:?}");
    }
}
