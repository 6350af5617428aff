//! Figures of a process from Linux: processor time in nanoseconds, memory, and the cores that it may use.

use std::fs;
use std::io;
use std::mem;

use crate::error::Error;

/// Nanoseconds of the monotonic clock, the same in every process of the machine.
pub fn now_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC).expect("the monotonic clock always exists")
}

/// Unix time in microseconds.
pub fn unix_us() -> u64 {
    clock_ns(libc::CLOCK_REALTIME).expect("the clock of the day always exists") / 1_000
}

/// Processor time (user and system, of all threads including ended ones) of this process.
pub fn own_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID).expect("a process can always read its own clock")
}

/// Processor time (user and system, of all threads including ended ones) of another process.
pub fn cpu_ns(pid: u32) -> Result<u64, Error> {
    // The kernel's encoding of "the scheduler's processor clock of process PID" (clock_getcpuclockid(3) computes the
    // same).
    let clock = (!pid.cast_signed()) << 3 | 2;
    clock_ns(clock).map_err(|source| gone(pid, source))
}

fn clock_ns(clock: libc::clockid_t) -> io::Result<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec for the duration of the call.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned())
}

fn gone(pid: u32, source: io::Error) -> Error {
    Error::os(format!("read the usage of process {pid}"), source, "check that it is still running")
}

/// Resident memory of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Memory {
    /// All resident pages (`VmRSS`).
    pub rss_bytes: u64,
    /// Heap, stacks and other private pages (`RssAnon`): the part that grows with sessions.
    pub anon_bytes: u64,
}

/// Reads `/proc/PID/status`.
pub fn memory(pid: u32) -> Result<Memory, Error> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).map_err(|source| gone(pid, source))?;
    parse_status(&status).ok_or_else(|| gone(pid, io::Error::other("no VmRSS or RssAnon in its status")))
}

fn parse_status(status: &str) -> Option<Memory> {
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        let kib: u64 = line.strip_prefix(':')?.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kib * 1024)
    };
    Some(Memory { rss_bytes: field("VmRSS")?, anon_bytes: field("RssAnon")? })
}

/// Processor time in user and in kernel mode, in clock ticks: coarse, for the ratio of the two.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ticks {
    /// In user mode.
    pub user: u64,
    /// In kernel mode.
    pub system: u64,
}

/// Reads `/proc/PID/stat`.
pub fn ticks(pid: u32) -> Result<Ticks, Error> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).map_err(|source| gone(pid, source))?;
    parse_stat(&stat).ok_or_else(|| gone(pid, io::Error::other("no times in its stat")))
}

/// The name and the times of a thread, from its `stat`.
pub fn parse_thread(stat: &str) -> Option<(&str, Ticks)> {
    let (before, _) = stat.rsplit_once(')')?;
    let (_, name) = before.split_once('(')?;
    Some((name, parse_stat(stat)?))
}

/// The name in parentheses may itself contain spaces and parentheses; utime and stime are fields 14 and 15 (proc(5)).
fn parse_stat(stat: &str) -> Option<Ticks> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_ascii_whitespace().skip(11);
    Some(Ticks { user: fields.next()?.parse().ok()?, system: fields.next()?.parse().ok()? })
}

/// The cores of the side under test and of the load. The roofline and every server use the same split.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Cores {
    /// Cores of the server under test, or of the roofline's sender. Empty: not pinned.
    pub server: Vec<usize>,
    /// Cores of clients, receivers and the publisher. Empty: not pinned.
    pub clients: Vec<usize>,
}

impl Cores {
    /// No process is pinned.
    pub fn unpinned() -> Self {
        Cores { server: Vec::new(), clients: Vec::new() }
    }

    /// Assigns the last of the cores that this process may use to the server, and the others to the load. With one
    /// core, nothing is split.
    pub fn split() -> Self {
        let mut clients = allowed_cores();
        match clients.pop() {
            Some(server) if !clients.is_empty() => Cores { server: vec![server], clients },
            _ => Cores::unpinned(),
        }
    }
}

fn allowed_cores() -> Vec<usize> {
    // SAFETY: a cpu_set_t is a plain bit array, for which zero is valid.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: the size is that of the set, which is valid for the call.
    if unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) } != 0 {
        return Vec::new();
    }
    // SAFETY: the index stays below CPU_SETSIZE.
    (0..libc::CPU_SETSIZE.cast_unsigned() as usize).filter(|&core| unsafe { libc::CPU_ISSET(core, &set) }).collect()
}

/// Pins the calling thread, and threads and processes that it starts later, to these cores. Has no effect without
/// cores. Safe between fork and exec, because it does not allocate.
pub fn pin_self(cores: &[usize]) -> io::Result<()> {
    pin_thread(0, cores)
}

/// Pins all threads of a running process.
pub fn pin_process(pid: u32, cores: &[usize]) -> Result<(), Error> {
    let denied = |source| {
        let remedy = "run as the server's user, or give --no-pin";
        Error::os(format!("pin process {pid} to cores {cores:?}"), source, remedy)
    };
    for entry in fs::read_dir(format!("/proc/{pid}/task")).map_err(|source| gone(pid, source))? {
        let name = entry.map_err(denied)?.file_name();
        let thread = name.to_str().and_then(|name| name.parse().ok());
        pin_thread(thread.unwrap_or(0), cores).map_err(denied)?;
    }
    Ok(())
}

fn pin_thread(thread: libc::pid_t, cores: &[usize]) -> io::Result<()> {
    if cores.is_empty() {
        return Ok(());
    }
    // SAFETY: a cpu_set_t is a plain bit array, for which zero is valid.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    for &core in cores {
        // SAFETY: CPU_SET checks the index against the size of the set.
        unsafe { libc::CPU_SET(core, &mut set) };
    }
    // SAFETY: the size is that of the set, which is valid for the call.
    match unsafe { libc::sched_setaffinity(thread, size_of::<libc::cpu_set_t>(), &raw const set) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Raises the soft limit of open files to the hard one, and returns it.
pub fn raise_open_files_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid rlimit for the duration of both calls.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
    }
    limit.rlim_cur
}

/// A description of the machine in one line, for later comparisons.
pub fn machine() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("?", |(_, name)| name);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{} × {model}, Linux {}", allowed_cores().len(), kernel.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str =
        "Name:\tdunlin\nVmPeak:\t  9999 kB\nVmRSS:\t    2564 kB\nRssAnon:\t     112 kB\nRssFile:\t    2452 kB\n";

    #[test]
    fn status_lines_are_read_in_bytes() {
        assert_eq!(parse_status(STATUS), Some(Memory { rss_bytes: 2564 * 1024, anon_bytes: 112 * 1024 }));
    }

    #[test]
    fn a_status_without_memory_fields_is_refused() {
        assert_eq!(parse_status("Name:\tkthreadd\nState:\tS\n"), None);
        assert_eq!(parse_status("VmRSS:\t 1 MB\nRssAnon:\t 1 kB\n"), None);
    }

    #[test]
    fn cpu_times_are_parsed_after_any_process_name() {
        let stat = "77 (a) b (c) S 1 77 77 0 -1 4194304 100 0 0 0 321 45 0 0 20 0 3 0 100 1000 10 18446744073709551615";
        assert_eq!(parse_stat(stat), Some(Ticks { user: 321, system: 45 }));
        assert_eq!(parse_thread(stat), Some(("a) b (c", Ticks { user: 321, system: 45 })));
        assert_eq!(parse_stat("77 (a) S 1 77"), None);
        assert_eq!(parse_stat(""), None);
    }

    #[test]
    fn our_own_clock_and_our_clock_by_pid_are_the_same_clock() {
        let before = own_cpu_ns();
        let by_pid = cpu_ns(std::process::id()).unwrap();
        assert!(before <= by_pid && by_pid <= own_cpu_ns());
        assert!(memory(std::process::id()).unwrap().anon_bytes > 0);
    }

    #[test]
    fn a_process_that_does_not_exist_is_an_error_that_names_it() {
        let pid = u32::MAX >> 4;
        assert!(cpu_ns(pid).unwrap_err().to_string().contains(&pid.to_string()));
        assert!(memory(pid).is_err());
    }

    #[test]
    fn server_and_clients_never_share_a_core() {
        let cores = Cores::split();
        assert!(cores.server.iter().all(|core| !cores.clients.contains(core)));
        assert_eq!(cores.server.is_empty(), cores.clients.is_empty());
    }
}
