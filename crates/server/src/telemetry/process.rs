//! The resources that the process uses, from `/proc` (proc(5)).

use std::{
    fs,
    sync::{Mutex, OnceLock, PoisonError},
    time::{Duration, Instant},
};

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
        Self {
            cpu: cpu_of(&stat),
            resident_bytes: number_behind(&status, "VmRSS:").saturating_mul(1_024),
            virtual_bytes: number_behind(&status, "VmSize:").saturating_mul(1_024),
            started_unix: started_unix(),
            open_files: open_files(),
            open_files_max: number_behind(&limits, "Max open files"),
            threads: number_behind(&status, "Threads:"),
        }
    }
}

/// The number of open file descriptors.
fn open_files() -> u64 {
    // Since Linux 6.2 it is the size of the directory. To list 15,000 of them takes 13 ms of the thread that answers the API.
    match fs::metadata("/proc/self/fd").map_or(0, |folder| folder.len()) {
        0 => listed_files(),
        open => open,
    }
}

fn listed_files() -> u64 {
    // Includes the directory itself, which is open while it is read.
    fs::read_dir("/proc/self/fd").map_or(0, Iterator::count).saturating_sub(1) as u64
}

/// The share of a processor that the process uses. Its readers share it, and none changes what another one measures.
#[derive(Debug)]
pub struct CpuShare {
    samples: Mutex<CpuSamples>,
}

/// Processor time at two moments.
#[derive(Clone, Copy, Debug)]
struct CpuSamples {
    before: CpuSample,
    last: CpuSample,
}

#[derive(Clone, Copy, Debug)]
struct CpuSample {
    at: Instant,
    cpu: Duration,
}

/// Minimum time over which the share is measured, once the process has run that long.
const CPU_SHARE_OVER: Duration = Duration::from_secs(5);

impl CpuShare {
    /// The share of a process that has started then.
    pub const fn since(started: Instant) -> Self {
        let start = CpuSample { at: started, cpu: Duration::ZERO };
        Self { samples: Mutex::new(CpuSamples { before: start, last: start }) }
    }

    /// The share of one processor in percent, in about the last [`CPU_SHARE_OVER`], or since the last reading if that was
    /// longer ago.
    pub fn percent(&self, cpu: Duration, now: Instant) -> f64 {
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_duration_since(samples.last.at) >= CPU_SHARE_OVER {
            *samples = CpuSamples { before: samples.last, last: CpuSample { at: now, cpu } };
        }
        let CpuSample { at, cpu: before } = samples.before;
        let elapsed_s = now.saturating_duration_since(at).as_secs_f64();
        if elapsed_s > 0.0 { cpu.saturating_sub(before).as_secs_f64() / elapsed_s * 100.0 } else { 0.0 }
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
    fn open_files_are_counted_alike_by_size_and_by_list() {
        let own: Vec<_> = (0..200).map(|_| fs::File::open("/dev/null").expect("a file")).collect();
        let (counted, listed) = (open_files(), listed_files());
        // Other tests open and close files meanwhile.
        assert!(counted >= own.len() as u64 && counted.abs_diff(listed) < 150, "{counted} and {listed}");
    }

    #[test]
    fn readers_of_the_processor_share_do_not_disturb_each_other() {
        let start = Instant::now();
        let share = CpuShare::since(start);
        // The process uses half a processor for a minute, then all of one.
        let used = |second: f64| Duration::from_secs_f64(if second < 60.0 { second / 2.0 } else { second - 30.0 });
        let check = |second: f64, expected: f64| {
            let percent = share.percent(used(second), start + Duration::from_secs_f64(second));
            assert!((percent - expected).abs() < 0.5, "{percent} after {second} s");
        };
        check(0.0, 0.0);
        for tenths in 1..=600 {
            let second = f64::from(tenths) / 10.0;
            check(second, 50.0);
            // Another reader follows at once.
            check(second + 0.001, 50.0);
        }
        // At the end, nobody has read for long.
        for second in [66.0, 72.0, 72.0, 600.0] {
            check(second, 100.0);
        }
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
