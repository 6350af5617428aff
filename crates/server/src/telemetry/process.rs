//! The resources that the process uses, from `/proc` (proc(5)).

use std::{fs, sync::OnceLock, time::Duration};

/// The resources of the process. Values that `/proc` does not contain are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessUse {
    /// User and kernel time since the start.
    pub cpu: Duration,
    /// Resident memory.
    pub resident_bytes: u64,
    /// Address space.
    pub virtual_bytes: u64,
    /// Time from 1970 to the start.
    pub started_unix: Duration,
    /// Open file descriptors.
    pub open_files: u64,
    /// Maximum number of open file descriptors.
    pub open_files_max: u64,
    /// Including threads of libraries.
    pub threads: u64,
}

impl ProcessUse {
    /// Reads `/proc/self`.
    pub fn now() -> Self {
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        // Includes the directory itself, which is open while it is read.
        let open_files = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count).saturating_sub(1) as u64;
        Self {
            cpu: cpu_of(&stat),
            resident_bytes: number_behind(&status, "VmRSS:").saturating_mul(1_024),
            virtual_bytes: number_behind(&status, "VmSize:").saturating_mul(1_024),
            started_unix: started_unix(),
            open_files,
            open_files_max: number_behind(&limits, "Max open files"),
            threads: number_behind(&status, "Threads:"),
        }
    }
}

/// The start time of the process, which is constant.
fn started_unix() -> Duration {
    static STARTED: OnceLock<Duration> = OnceLock::new();
    *STARTED.get_or_init(|| {
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let boot = fs::read_to_string("/proc/stat").unwrap_or_default();
        Duration::from_secs(number_behind(&boot, "btime")) + since_boot(&stat)
    })
}

/// Resident memory; 0 if `/proc` does not contain it.
pub fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    number_behind(&status, "VmRSS:").saturating_mul(1_024)
}

/// Anonymous resident memory; 0 if `/proc` does not contain it.
pub fn anonymous_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    number_behind(&status, "RssAnon:").saturating_mul(1_024)
}

/// Clock ticks per second in `/proc` (`USER_HZ`), constant on all supported systems.
const TICKS_PER_SECOND: u64 = 100;

/// Fields 14 and 15, counted from the end of the program's name, which may contain spaces and parentheses.
fn cpu_of(stat: &str) -> Duration {
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks: u64 =
        fields.split_ascii_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks.saturating_mul(1_000 / TICKS_PER_SECOND))
}

/// Field 22: the start time since boot.
fn since_boot(stat: &str) -> Duration {
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks: u64 = fields.split_ascii_whitespace().nth(19).and_then(|field| field.parse().ok()).unwrap_or(0);
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
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn cpu_times_are_parsed_after_the_process_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 4 0 100 1000 200";
        assert_eq!(cpu_of(stat), Duration::from_secs(3));
        assert_eq!(cpu_of(""), Duration::ZERO);
        assert_eq!((since_boot(stat), since_boot("")), (Duration::from_secs(1), Duration::ZERO));
    }

    #[test]
    fn the_use_of_this_process_is_read() {
        let now = ProcessUse::now();
        assert!(now.resident_bytes > 100_000, "{now:?}");
        assert!(now.open_files >= 3 && now.open_files_max >= now.open_files, "{now:?}");
        assert!(now.threads >= 1, "{now:?}");
        assert!(now.virtual_bytes >= now.resident_bytes, "{now:?}");
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is later than 1970");
        assert!(
            now.started_unix + Duration::from_hours(24) > unix && now.started_unix <= unix + Duration::from_secs(2)
        );
    }
}
