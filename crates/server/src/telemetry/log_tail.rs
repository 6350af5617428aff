//! The newest lines of the log, in memory, for the console. The thread that writes the log adds them, so shards do not
//! wait for readers.

use std::{
    collections::VecDeque,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

/// Maximum number of lines that are kept.
pub const LINES_MAX: usize = 2_000;

/// Maximum number of bytes of all lines that are kept.
pub const BYTES_MAX: usize = 512 << 10;

/// The newest lines.
pub struct LogTail {
    /// Tells this run of the process from others, whose lines are numbered from 0 as well.
    run: String,
    is_kept: AtomicBool,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    lines: VecDeque<Box<[u8]>>,
    bytes: usize,
    /// The number of the line that comes next; lines are numbered from 0.
    next: u64,
}

/// Some lines.
#[derive(Debug, PartialEq, Eq)]
pub struct TailPart {
    /// The run of the process.
    pub run: String,
    /// The lines, the oldest first.
    pub lines: Vec<String>,
    /// The number of the line after them.
    pub next: u64,
    /// How many lines between the wanted one and the first of these are no longer kept.
    pub missed: u64,
}

impl LogTail {
    /// No lines, of the run with this name.
    pub fn new(run: String) -> Self {
        Self { run, is_kept: AtomicBool::default(), kept: Mutex::default() }
    }

    /// No lines, of a run that is named by the time.
    pub fn of_this_run() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::new(format!("{:x}", now.as_nanos()))
    }

    /// From now on, lines are kept.
    pub fn keep(&self) {
        self.is_kept.store(true, Ordering::Relaxed);
    }

    /// Adds a line, if lines are kept.
    pub fn push(&self, line: &[u8]) {
        if !self.is_kept.load(Ordering::Relaxed) {
            return;
        }
        let line = line.trim_ascii_end();
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.next += 1;
        kept.bytes += line.len();
        kept.lines.push_back(line.into());
        while kept.lines.len() > LINES_MAX || kept.bytes > BYTES_MAX {
            let Some(oldest) = kept.lines.pop_front() else { break };
            kept.bytes -= oldest.len();
        }
    }

    /// The lines from number `from` of this run on. Of a reader that knows another run, or numbers that were not given yet,
    /// none are known.
    pub fn since(&self, run: Option<&str>, from: u64) -> TailPart {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let is_of_another_run = run.is_some_and(|run| run != self.run);
        let from = if is_of_another_run || from > kept.next { 0 } else { from };
        let first = kept.next - kept.lines.len() as u64;
        let skipped = usize::try_from(from.saturating_sub(first)).unwrap_or(usize::MAX);
        let lines = kept.lines.iter().skip(skipped).map(|line| String::from_utf8_lossy(line).into_owned()).collect();
        TailPart { run: self.run.clone(), lines, next: kept.next, missed: first.saturating_sub(from) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(lines: &[&str], next: u64) -> TailPart {
        let lines = lines.iter().map(|line| (*line).to_owned()).collect();
        TailPart { run: "this".to_owned(), lines, next, missed: 0 }
    }

    fn tail() -> LogTail {
        LogTail::new("this".to_owned())
    }

    #[test]
    fn lines_are_kept_once_wanted_and_read_from_a_number_on() {
        let tail = tail();
        tail.push(b"before\n");
        tail.keep();
        tail.push(b"one\n");
        tail.push(b"two\n");
        for run in [None, Some("this")] {
            assert_eq!(tail.since(run, 0), part(&["one", "two"], 2));
            assert_eq!(tail.since(run, 1), part(&["two"], 2));
            assert_eq!(tail.since(run, 2), part(&[], 2));
        }
    }

    #[test]
    fn a_reader_of_an_earlier_run_gets_all_lines_of_this_one() {
        let tail = tail();
        tail.keep();
        assert_eq!(tail.since(Some("earlier"), 500), part(&[], 0));
        tail.push(b"one\n");
        tail.push(b"two\n");
        for from in [0, 1, 2, 500, u64::MAX] {
            assert_eq!(tail.since(Some("earlier"), from), part(&["one", "two"], 2), "{from}");
        }
        assert_eq!(tail.since(None, 3), part(&["one", "two"], 2), "no line has had this number");
        assert_ne!(LogTail::of_this_run().since(None, 0).run, "");
    }

    #[test]
    fn lines_and_bytes_are_bounded() {
        let tail = tail();
        tail.keep();
        for number in 0..=LINES_MAX {
            tail.push(format!("{number}").as_bytes());
        }
        let part = tail.since(None, 0);
        assert_eq!((part.lines.len(), part.missed, &*part.lines[0]), (LINES_MAX, 1, "1"));
        tail.push(&vec![b'x'; BYTES_MAX]);
        assert_eq!(tail.since(None, 0).lines.len(), 1);
        tail.push(&vec![b'x'; BYTES_MAX + 1]);
        assert_eq!(tail.since(None, 0).lines.len(), 0);
        tail.push(b"after");
        assert_eq!(tail.since(None, 0).lines, ["after"]);
    }
}
