//! Samples of the server while a scenario runs: processor time, memory and open files from `/proc`, and its metrics at
//! the beginning and the end of each phase.

use std::collections::BTreeMap;
use std::fs;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::metrics::MetricsSample;
use crate::proc::{self, Ticks};
use crate::report::ratio;

/// The state of the server's process at one time.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Sample {
    /// Since the beginning of the run.
    pub at_s: f64,
    /// Processor time since the process began.
    pub cpu_s: f64,
    pub user_ticks: u64,
    pub system_ticks: u64,
    pub rss_bytes: u64,
    pub anon_bytes: u64,
    /// None if it could not be read: another user's process hides its files.
    pub open_files: Option<u64>,
    /// The kernel's slabs of the whole machine, which hold the sockets of both ends.
    pub kernel_bytes: Option<u64>,
}

impl Sample {
    /// None if the process is gone.
    fn take(pid: u32, run_start_ns: u64) -> Option<Sample> {
        let (memory, ticks) = (proc::memory(pid).ok()?, proc::ticks(pid).ok()?);
        Some(Sample {
            at_s: seconds_since(run_start_ns),
            cpu_s: proc::cpu_ns(pid).ok()? as f64 / 1e9,
            user_ticks: ticks.user,
            system_ticks: ticks.system,
            rss_bytes: memory.rss_bytes,
            anon_bytes: memory.anon_bytes,
            open_files: entries(&format!("/proc/{pid}/fd")),
            kernel_bytes: slab_bytes(&fs::read_to_string("/proc/meminfo").unwrap_or_default()),
        })
    }
}

fn seconds_since(start_ns: u64) -> f64 {
    proc::now_ns().saturating_sub(start_ns) as f64 / 1e9
}

/// The number of entries of a folder.
fn entries(folder: &str) -> Option<u64> {
    fs::read_dir(folder).ok().map(|entries| entries.count() as u64)
}

/// The size of the kernel's slabs.
fn slab_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("Slab:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// The usage of the server in one or several phases.
#[derive(Debug, Clone, Default)]
pub struct Usage {
    pub seconds: f64,
    /// None if the process is unknown.
    pub cpu: Option<CpuUsage>,
    pub anon_bytes: Option<u64>,
    pub anon_bytes_max: Option<u64>,
    pub open_files: Option<u64>,
    /// Processor time by thread, in seconds; numbers in names are left out.
    pub threads: BTreeMap<String, f64>,
    /// What the metrics counted.
    pub counts: MetricsSample,
}

impl Usage {
    /// Adds a later phase.
    pub fn add(&mut self, later: &Usage) {
        self.seconds += later.seconds;
        self.cpu = match (self.cpu, later.cpu) {
            (Some(one), Some(other)) => Some(one.with(other)),
            (one, other) => one.or(other),
        };
        self.anon_bytes = later.anon_bytes.or(self.anon_bytes);
        self.anon_bytes_max = self.anon_bytes_max.max(later.anon_bytes_max);
        self.open_files = later.open_files.or(self.open_files);
        for (name, seconds) in &later.threads {
            *self.threads.entry(name.clone()).or_default() += seconds;
        }
        self.counts.add(&later.counts);
    }
}

/// The processor time of the server at one time.
#[derive(Debug, Clone, Copy)]
pub struct CpuReading {
    pub at_ns: u64,
    pub cpu_ns: u64,
    pub ticks: Ticks,
}

impl CpuReading {
    /// What was used from this reading until a later one.
    pub fn until(self, later: CpuReading) -> CpuUsage {
        let seconds = |from_ns: u64, until_ns: u64| until_ns.saturating_sub(from_ns) as f64 / 1e9;
        CpuUsage {
            seconds: seconds(self.at_ns, later.at_ns),
            cpu_s: seconds(self.cpu_ns, later.cpu_ns),
            ticks: Ticks {
                user: later.ticks.user.saturating_sub(self.ticks.user),
                system: later.ticks.system.saturating_sub(self.ticks.system),
            },
        }
    }
}

/// Processor time and the time in which it was used: both between the same two readings.
#[derive(Debug, Clone, Copy)]
pub struct CpuUsage {
    seconds: f64,
    pub cpu_s: f64,
    ticks: Ticks,
}

impl CpuUsage {
    fn with(self, later: CpuUsage) -> CpuUsage {
        CpuUsage {
            seconds: self.seconds + later.seconds,
            cpu_s: self.cpu_s + later.cpu_s,
            ticks: Ticks { user: self.ticks.user + later.ticks.user, system: self.ticks.system + later.ticks.system },
        }
    }

    /// Processor time per second.
    pub fn cores(self) -> f64 {
        ratio(self.cpu_s, self.seconds)
    }

    /// The share outside the kernel.
    pub fn user_share(self) -> f64 {
        ratio(self.ticks.user as f64, (self.ticks.user + self.ticks.system) as f64)
    }
}

/// The beginning of a phase.
pub struct Mark {
    sample: Option<Sample>,
    threads: BTreeMap<String, f64>,
    metrics: Option<MetricsSample>,
    at_s: f64,
}

/// Takes samples on a thread of its own until it is dropped.
pub struct Sampler {
    pid: Option<u32>,
    run_start_ns: u64,
    samples: Arc<Mutex<Vec<Sample>>>,
    thread: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Sampler {
    /// Begins to take samples.
    pub fn start(pid: Option<u32>, run_start_ns: u64, every: Duration) -> Self {
        let samples = Arc::new(Mutex::new(Vec::new()));
        let thread = pid.map(|pid| {
            let (end, ended) = mpsc::channel::<()>();
            let taken = Arc::clone(&samples);
            let sample = move || {
                while ended.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                    let Some(sample) = Sample::take(pid, run_start_ns) else { return };
                    taken.lock().unwrap_or_else(PoisonError::into_inner).push(sample);
                }
            };
            (end, thread::spawn(sample))
        });
        Sampler { pid, run_start_ns, samples, thread }
    }

    /// A sample now.
    pub fn now(&self) -> Option<Sample> {
        Sample::take(self.pid?, self.run_start_ns)
    }

    /// The beginning of a phase.
    pub fn mark(&self, metrics: Option<MetricsSample>) -> Mark {
        let threads = self.pid.map(thread_times).unwrap_or_default();
        Mark { sample: self.now(), threads, metrics, at_s: seconds_since(self.run_start_ns) }
    }

    /// The processor time of the server now; none if the process is unknown or gone.
    pub fn cpu(&self) -> Option<CpuReading> {
        let pid = self.pid?;
        Some(CpuReading { at_ns: proc::now_ns(), cpu_ns: proc::cpu_ns(pid).ok()?, ticks: proc::ticks(pid).ok()? })
    }

    /// The usage since a mark, without processor time.
    pub fn since(&self, mark: &Mark, metrics: Option<MetricsSample>) -> Usage {
        let now = self.mark(metrics);
        let mut usage = Usage { seconds: now.at_s - mark.at_s, ..Usage::default() };
        if let (Some(metrics), Some(before)) = (&now.metrics, &mark.metrics) {
            usage.counts = metrics.since(before);
        }
        let (Some(sample), Some(before)) = (now.sample, mark.sample) else { return usage };
        let samples = self.samples();
        let during = samples.iter().filter(|sample| sample.at_s >= mark.at_s).chain([&before, &sample]);
        usage.anon_bytes_max = during.map(|sample| sample.anon_bytes).max();
        usage.anon_bytes = Some(sample.anon_bytes);
        usage.open_files = sample.open_files;
        for (name, seconds) in now.threads {
            let spent = seconds - mark.threads.get(&name).copied().unwrap_or(0.0);
            if spent > 0.0 {
                usage.threads.insert(name, spent);
            }
        }
        usage
    }

    /// Whether the process has ended. False if it is unknown.
    pub fn has_lost_its_process(&self) -> bool {
        self.pid.is_some_and(|pid| proc::memory(pid).is_err())
    }

    /// All samples so far.
    pub fn samples(&self) -> Vec<Sample> {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.thread.take() {
            drop(end);
            // It fails only if it has panicked.
            let _ = thread.join();
        }
    }
}

/// Processor time of threads in seconds, by name. Threads whose names differ only in digits are one.
fn thread_times(pid: u32) -> BTreeMap<String, f64> {
    // SAFETY: a plain system call without pointers.
    let ticks_per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as f64;
    let mut times = BTreeMap::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        // A thread may have ended.
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        let Some((name, ticks)) = proc::parse_thread(&stat) else { continue };
        let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || "-_ ".contains(c));
        *times.entry(name.to_owned()).or_default() += (ticks.user + ticks.system) as f64 / ticks_per_second;
    }
    times
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_this_process_are_taken_and_the_usage_is_that_since_the_mark() {
        let sampler = Sampler::start(Some(std::process::id()), proc::now_ns(), Duration::from_millis(1));
        let mark = sampler.mark(None);
        let held = vec![1_u8; 8 << 20];
        while sampler.samples().len() < 3 {
            thread::sleep(Duration::from_millis(1));
        }
        let usage = sampler.since(&mark, None);
        assert!(usage.seconds > 0.0, "{usage:?}");
        let (first, last) = (sampler.cpu().unwrap(), sampler.cpu().unwrap());
        assert!(last.at_ns >= first.at_ns && last.cpu_ns >= first.cpu_ns && first.cpu_ns > 0);
        assert!(usage.anon_bytes_max >= Some(held.len() as u64) && usage.open_files > Some(2), "{usage:?}");
        let mut twice = usage.clone();
        twice.add(&usage);
        assert!((twice.seconds - 2.0 * usage.seconds).abs() < 1e-9);
    }

    #[test]
    fn processor_time_is_divided_by_the_time_in_which_it_was_used() {
        let reading = |at_ms: u64, cpu_ms: u64, user| CpuReading {
            at_ns: at_ms * 1_000_000,
            cpu_ns: cpu_ms * 1_000_000,
            ticks: Ticks { user, system: 10 },
        };
        let first = reading(1_000, 300, 10).until(reading(3_000, 1_300, 30));
        assert!((first.cores() - 0.5).abs() < 1e-9 && (first.user_share() - 1.0).abs() < 1e-9);
        let both = first.with(reading(9_000, 2_000, 30).until(reading(10_000, 2_200, 31)));
        assert!((both.cores() - 0.4).abs() < 1e-9 && (both.cpu_s - 1.2).abs() < 1e-9, "{both:?}");
    }

    #[test]
    fn what_cannot_be_read_is_not_zero() {
        assert_eq!(entries("/proc/0/fd"), None);
        assert!(entries("/proc/self/fd") > Some(2));
        assert_eq!(slab_bytes("MemTotal: 5 kB"), None);
        assert_eq!(slab_bytes("MemTotal: 5 kB\nSlab:   12 kB"), Some(12_288));
    }

    #[test]
    fn a_process_that_has_ended_is_lost() {
        let start = |pid| Sampler::start(pid, proc::now_ns(), Duration::from_secs(1));
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let sampler = start(Some(child.id()));
        assert!(!sampler.has_lost_its_process() && !start(None).has_lost_its_process());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(sampler.has_lost_its_process());
    }

    #[test]
    fn an_unknown_process_has_no_figures() {
        let sampler = Sampler::start(None, proc::now_ns(), Duration::from_secs(1));
        let usage = sampler.since(&sampler.mark(None), None);
        assert_eq!((usage.anon_bytes, usage.open_files), (None, None));
        assert!(sampler.cpu().is_none() && usage.cpu.is_none());
    }
}
