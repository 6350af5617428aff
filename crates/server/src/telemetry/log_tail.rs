//! The newest lines of the log, in memory, for the console. The thread that writes the log adds them, so shards do not
//! wait for readers.

use std::{
    collections::VecDeque,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

/// Maximum number of lines that are kept.
pub const LINES_MAX: usize = 2_000;

/// Maximum number of bytes of all lines that are kept.
pub const BYTES_MAX: usize = 512 << 10;

/// The newest lines.
#[derive(Default)]
pub struct LogTail {
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
    /// The lines, the oldest first.
    pub lines: Vec<String>,
    /// The number of the line after them.
    pub next: u64,
    /// How many lines between the wanted one and the first of these are no longer kept.
    pub missed: u64,
}

impl LogTail {
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

    /// The lines from number `from` on.
    pub fn since(&self, from: u64) -> TailPart {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let first = kept.next - kept.lines.len() as u64;
        let skipped = usize::try_from(from.saturating_sub(first)).unwrap_or(usize::MAX);
        let lines = kept.lines.iter().skip(skipped).map(|line| String::from_utf8_lossy(line).into_owned()).collect();
        TailPart { lines, next: kept.next, missed: first.saturating_sub(from) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_kept_once_wanted_and_read_from_a_number_on() {
        let tail = LogTail::default();
        tail.push(b"before\n");
        tail.keep();
        tail.push(b"one\n");
        tail.push(b"two\n");
        assert_eq!(tail.since(0), TailPart { lines: vec!["one".into(), "two".into()], next: 2, missed: 0 });
        assert_eq!(tail.since(1), TailPart { lines: vec!["two".into()], next: 2, missed: 0 });
        assert_eq!(tail.since(2), TailPart { lines: vec![], next: 2, missed: 0 });
        assert_eq!(tail.since(u64::MAX), TailPart { lines: vec![], next: 2, missed: 0 });
    }

    #[test]
    fn lines_and_bytes_are_bounded() {
        let tail = LogTail::default();
        tail.keep();
        for number in 0..=LINES_MAX {
            tail.push(format!("{number}").as_bytes());
        }
        let part = tail.since(0);
        assert_eq!((part.lines.len(), part.missed, &*part.lines[0]), (LINES_MAX, 1, "1"));
        tail.push(&vec![b'x'; BYTES_MAX]);
        assert_eq!(tail.since(0).lines.len(), 1);
        tail.push(&vec![b'x'; BYTES_MAX + 1]);
        assert_eq!(tail.since(0).lines.len(), 0);
        tail.push(b"after");
        assert_eq!(tail.since(0).lines, ["after"]);
    }
}
