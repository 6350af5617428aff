//! Processes that `dunlin dev` starts, and what they print.

use std::{
    collections::VecDeque,
    io::{self, BufRead as _, BufReader, Read},
    os::unix::process::CommandExt as _,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
};

use crate::cli::output;

/// Maximum size of the text that is kept for the page.
pub(super) const KEPT_BYTES_MAX: usize = 64 << 10;

/// Maximum length of a line. The rest becomes a line of its own.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// A process in a group of its own. Ctrl-C in the terminal reaches only `dunlin dev`, which ends the group in order.
pub(super) struct Process {
    child: Child,
    lines: Arc<Mutex<Lines>>,
    /// They end with the output.
    readers: Vec<JoinHandle<()>>,
}

impl Process {
    /// Starts a process whose output is printed and kept.
    pub(super) fn start(command: &mut Command) -> io::Result<Self> {
        let lines = Arc::new(Mutex::new(Lines::default()));
        let of_out = Arc::clone(&lines);
        Self::spawn(command, lines, move |line| print(&of_out, line))
    }

    /// As [`Self::start`], but passes the lines of standard output to `take` instead.
    pub(super) fn start_with(command: &mut Command, take: impl FnMut(String) + Send + 'static) -> io::Result<Self> {
        Self::spawn(command, Arc::default(), take)
    }

    fn spawn(
        command: &mut Command,
        lines: Arc<Mutex<Lines>>,
        take: impl FnMut(String) + Send + 'static,
    ) -> io::Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        // `kill -9` of this process ends them as well.
        dunlin_processes::end_with_this(command, libc::SIGTERM);
        let mut child = command.spawn()?;
        let (out, error) = (child.stdout.take(), child.stderr.take());
        let of_error = Arc::clone(&lines);
        let readers = vec![
            thread::spawn(move || each_line(out, take)),
            thread::spawn(move || each_line(error, |line| print(&of_error, line))),
        ];
        Ok(Self { child, lines, readers })
    }

    /// How the process has ended; `None` while it runs, or while its output is being read.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        // An error means that there is no such child any more.
        let status = self.child.try_wait().unwrap_or_else(|_| Some(ExitStatus::default()))?;
        self.readers.iter().all(JoinHandle::is_finished).then_some(status)
    }

    /// Signals the process and its children.
    pub(super) fn signal(&self, signal: libc::c_int) {
        // SAFETY: a system call without pointers. The child is not waited for until it has ended, so the number of its
        // group is not another one's.
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

/// The last lines up to a total size.
#[derive(Debug, Default)]
struct Lines {
    lines: VecDeque<String>,
    bytes: usize,
}

impl Lines {
    fn add(&mut self, line: String) {
        self.bytes += line.len();
        self.lines.push_back(line);
        while self.bytes > KEPT_BYTES_MAX {
            self.bytes -= self.lines.pop_front().map_or(self.bytes, |line| line.len());
        }
    }

    fn text(&self) -> String {
        self.lines.iter().map(String::as_str).collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn wait(process: &mut Process) -> ExitStatus {
        loop {
            if let Some(status) = process.ended() {
                return status;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn the_last_lines_are_kept_up_to_a_limit() {
        let mut lines = Lines::default();
        let half = "x".repeat(KEPT_BYTES_MAX / 2);
        lines.add(half.clone());
        lines.add(half.clone());
        assert_eq!(lines.lines.len(), 2, "at the limit");
        lines.add("y".into());
        assert_eq!(lines.text(), format!("{half}\ny"));
    }

    #[test]
    fn a_process_has_a_status_and_lines() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo out; echo error >&2; exit 3"]);
        let mut process = Process::start(&mut command).expect("sh");
        assert_eq!(wait(&mut process).code(), Some(3));
        let mut lines: Vec<String> = process.text().lines().map(str::to_owned).collect();
        lines.sort();
        assert_eq!(lines, ["error", "out"]);

        let (sender, taken) = std::sync::mpsc::channel();
        let mut process =
            Process::start_with(&mut command, move |line| sender.send(line).expect("it is read")).expect("sh");
        wait(&mut process);
        assert_eq!((process.text().as_str(), taken.recv().as_deref()), ("error", Ok("out")));
    }

    #[test]
    fn a_signal_ends_a_process_with_its_children() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 1000 & echo started; wait"]);
        let mut process = Process::start(&mut command).expect("sh");
        while process.text() != "started" {
            thread::sleep(Duration::from_millis(1));
        }
        assert!(process.ended().is_none());
        process.signal(libc::SIGTERM);
        // The child has inherited the output, which ends with the last of both.
        assert_eq!(wait(&mut process).code(), None, "by a signal");
    }
}
