//! Processes that `dunlin dev` starts, and what they print.

use std::{
    collections::VecDeque,
    io::{self, BufRead as _, BufReader, Read},
    os::unix::process::CommandExt as _,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crate::cli::output;

/// Maximum size of the text that is kept for the page.
pub(super) const KEPT_BYTES_MAX: usize = 64 << 10;

/// Maximum length of a line. The rest becomes a line of its own.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// Maximum time that the output of a process is awaited after its end. Another process may have inherited it and go on,
/// such as a compiler cache that the build has started.
const READERS_TIMEOUT: Duration = Duration::from_secs(1);

/// A process in a group of its own. Ctrl-C in the terminal reaches only `dunlin dev`, which ends the group in order.
pub(super) struct Process {
    child: Child,
    lines: Arc<Mutex<Lines>>,
    /// They end with the output.
    readers: Vec<JoinHandle<()>>,
    /// When the end of the process was seen.
    end_seen: Option<Instant>,
    /// Set when the process has been waited for. Until then, no other process has its number.
    status: Option<ExitStatus>,
}

impl Process {
    /// Starts a process whose output is printed and kept, without the lines of standard output that `take` returns `true`
    /// for.
    pub(super) fn start(
        command: &mut Command,
        mut take: impl FnMut(&str) -> bool + Send + 'static,
    ) -> io::Result<Self> {
        let lines = Arc::new(Mutex::new(Lines::default()));
        let (of_out, of_error) = (Arc::clone(&lines), Arc::clone(&lines));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        // `kill -9` of this process ends them as well.
        dunlin_processes::end_with_this(command, libc::SIGTERM);
        let mut child = command.spawn()?;
        let (out, error) = (child.stdout.take(), child.stderr.take());
        let print_others = move |line: String| {
            if !take(&line) {
                print(&of_out, line);
            }
        };
        let readers = vec![
            thread::spawn(move || each_line(out, print_others)),
            thread::spawn(move || each_line(error, |line| print(&of_error, line))),
        ];
        Ok(Self { child, lines, readers, end_seen: None, status: None })
    }

    /// How the process has ended; `None` while it runs, or while its output is being read.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() && self.is_over() {
            let seen = *self.end_seen.get_or_insert_with(Instant::now);
            if self.readers.iter().all(JoinHandle::is_finished) || seen.elapsed() >= READERS_TIMEOUT {
                // An error means that there is no such child any more.
                self.status = Some(self.child.wait().unwrap_or_default());
            }
        }
        self.status
    }

    /// Whether the process has ended. It keeps its number.
    fn is_over(&self) -> bool {
        let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        // SAFETY: zeros are a value of this type, and the system call writes to no other place.
        let (failed, pid) = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            (libc::waitid(libc::P_PID, self.child.id(), &raw mut info, options) != 0, info.si_pid())
        };
        // An error means that there is no such child any more.
        failed || pid != 0
    }

    /// Signals the process and its children.
    pub(super) fn signal(&self, signal: libc::c_int) {
        if self.status.is_some() {
            return;
        }
        // SAFETY: a system call without pointers. The child has not been waited for, so its group is not another one's.
        unsafe { libc::kill(-self.child.id().cast_signed(), signal) };
    }

    /// The lines that were kept.
    pub(super) fn text(&self) -> String {
        lock(&self.lines).text()
    }
}

fn print(kept: &Mutex<Lines>, line: String) {
    output::error_line(format_args!("{line}"));
    lock(kept).add(line);
}

fn lock(lines: &Mutex<Lines>) -> MutexGuard<'_, Lines> {
    lines.lock().unwrap_or_else(PoisonError::into_inner)
}

fn each_line(from: Option<impl Read>, mut take: impl FnMut(String)) {
    let Some(from) = from else { return };
    let mut from = BufReader::new(from);
    loop {
        let mut line = Vec::new();
        match from.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => take(String::from_utf8_lossy(&line).trim_end().to_owned()),
        }
    }
}

/// With its end.
fn bytes_of(line: &str) -> usize {
    line.len() + 1
}

/// The last lines up to a total size.
#[derive(Debug, Default)]
struct Lines {
    lines: VecDeque<String>,
    bytes: usize,
}

impl Lines {
    fn add(&mut self, line: String) {
        self.bytes += bytes_of(&line);
        self.lines.push_back(line);
        while self.bytes > KEPT_BYTES_MAX {
            self.bytes -= self.lines.pop_front().map_or(self.bytes, |line| bytes_of(&line));
        }
    }

    fn text(&self) -> String {
        self.lines.iter().map(String::as_str).collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_mins(1);

    fn wait(process: &mut Process) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = process.ended() {
                return status;
            }
            assert!(begun.elapsed() < TIMEOUT, "it has not ended");
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn start(script: &str) -> Process {
        Process::start(Command::new("sh").args(["-c", script]), |_| false).expect("sh")
    }

    #[test]
    fn the_last_lines_are_kept_up_to_a_limit() {
        let mut lines = Lines::default();
        let half = "x".repeat(KEPT_BYTES_MAX / 2 - 1);
        lines.add(half.clone());
        lines.add(half.clone());
        assert_eq!(lines.lines.len(), 2, "at the limit");
        lines.add("y".into());
        assert_eq!(lines.text(), format!("{half}\ny"));
        // Lines without text take space as well.
        for _ in 0..=KEPT_BYTES_MAX {
            lines.add(String::new());
        }
        assert_eq!(lines.lines.len(), KEPT_BYTES_MAX);
    }

    #[test]
    fn a_process_has_a_status_and_lines() {
        let mut process = start("echo out; echo error >&2; exit 3");
        assert_eq!(wait(&mut process).code(), Some(3));
        let mut lines: Vec<String> = process.text().lines().map(str::to_owned).collect();
        lines.sort();
        assert_eq!(lines, ["error", "out"]);

        let (sender, taken) = std::sync::mpsc::channel();
        let take = move |line: &str| line == "out" && sender.send(line.to_owned()).is_ok();
        let mut process = Process::start(Command::new("sh").args(["-c", "echo out; echo other"]), take).expect("sh");
        wait(&mut process);
        assert_eq!((process.text().as_str(), taken.recv().as_deref()), ("other", Ok("out")));
    }

    #[test]
    fn a_signal_ends_a_process_with_its_children() {
        let mut process = start("sleep 1000 & echo started; wait");
        while process.text() != "started" {
            thread::sleep(Duration::from_millis(1));
        }
        assert!(process.ended().is_none());
        process.signal(libc::SIGTERM);
        // The child has inherited the output, which ends with the last of both.
        assert_eq!(wait(&mut process).code(), None, "by a signal");
        // It has been waited for: another process may have its number.
        process.signal(libc::SIGTERM);
    }

    #[test]
    fn a_process_has_ended_although_another_one_keeps_its_output() {
        let mut process = start("setsid sleep 1000 & echo $!");
        assert!(wait(&mut process).success());
        let daemon: libc::pid_t = process.text().parse().expect("a number");
        // SAFETY: a system call without pointers. Nobody has waited for this process, which runs until now.
        assert_eq!(unsafe { libc::kill(daemon, libc::SIGKILL) }, 0, "it runs");
    }
}
