//! The thread that writes log lines. Other threads put lines into a bounded queue without waiting, so a slow disk or a
//! blocked pipe cannot delay a shard. If the queue is full, a line is dropped and counted.

use std::{
    io::Write,
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
        mpsc::{Receiver, SyncSender, TryRecvError, TrySendError},
    },
    thread,
    time::{Duration, Instant},
};

use dunlin_queues::declared::{LOG_LINE_BYTES_MAX, LOG_LINES};

use super::{log_tail::LogTail, session_events};

/// Maximum number of bytes per write.
const BATCH_BYTES: usize = 64 * 1024;

/// Puts lines into the queue.
#[derive(Clone)]
pub struct LineSender {
    sender: SyncSender<Box<[u8]>>,
    state: Arc<QueueState>,
    tail: Arc<LogTail>,
}

/// The state of the queue, shared with the thread.
#[derive(Default)]
pub struct QueueState {
    /// Number of lines that are not written yet.
    queued: AtomicUsize,
    dropped: AtomicU64,
    /// Number of dropped lines that the log does not mention yet.
    unmentioned: AtomicU64,
    empty: Condvar,
    /// For [`Self::empty`].
    lock: Mutex<()>,
}

/// Starts the thread. It ends when all senders are dropped and all lines are written.
///
/// # Errors
/// The thread could not be started.
pub fn start(output: impl Write + Send + 'static, lines_max: usize) -> std::io::Result<LineSender> {
    let (sender, receiver) = LOG_LINES.with_messages(lines_max).std_channel();
    let state = Arc::new(QueueState::default());
    let tail = Arc::new(LogTail::of_this_run());
    let of_thread = (Arc::clone(&state), Arc::clone(&tail));
    thread::Builder::new()
        .name("log".to_owned())
        .spawn(move || write_all(&receiver, output, (&of_thread.0, &of_thread.1)))?;
    Ok(LineSender { sender, state, tail })
}

impl LineSender {
    /// Puts a line into the queue, or counts it as dropped. Never blocks.
    pub fn send(&self, line: &[u8]) {
        self.state.queued.fetch_add(1, Ordering::AcqRel);
        let fits = line.len() <= LOG_LINE_BYTES_MAX;
        let sent = fits.then(|| self.sender.try_send(line.into()));
        if !matches!(sent, Some(Ok(()))) {
            debug_assert!(!matches!(sent, Some(Err(TrySendError::Disconnected(_)))), "the thread outlives its senders");
            self.state.done(1);
            self.state.dropped.fetch_add(1, Ordering::Relaxed);
            self.state.unmentioned.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The newest lines, if they are kept.
    pub fn tail(&self) -> &Arc<LogTail> {
        &self.tail
    }

    /// The state of the queue.
    pub fn state(&self) -> &Arc<QueueState> {
        &self.state
    }
}

impl QueueState {
    /// Total number of dropped lines.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Waits until all lines are written, at most for `timeout`.
    pub fn flush(&self, timeout: Duration) {
        let deadline = Instant::now() + timeout;
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        while self.queued.load(Ordering::Acquire) > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            guard = self.empty.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn done(&self, lines: usize) {
        if self.queued.fetch_sub(lines, Ordering::AcqRel) == lines {
            let _guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
            self.empty.notify_all();
        }
    }
}

fn write_all(receiver: &Receiver<Box<[u8]>>, mut output: impl Write, (state, tail): (&QueueState, &LogTail)) {
    let mut batch = Vec::new();
    let mut lines = 0;
    loop {
        let next =
            if lines == 0 { receiver.recv().map_err(|_| TryRecvError::Disconnected) } else { receiver.try_recv() };
        if let Ok(line) = &next {
            batch.extend_from_slice(line);
            tail.push(line);
            lines += 1;
            if batch.len() < BATCH_BYTES {
                continue;
            }
        }
        // There is no place to log a failed write.
        let is_written = output.write_all(&batch).is_ok();
        if !is_written {
            state.dropped.fetch_add(lines as u64, Ordering::Relaxed);
        }
        state.done(lines);
        batch.clear();
        lines = 0;
        match next {
            Ok(_) => {}
            Err(TryRecvError::Disconnected) => return,
            Err(TryRecvError::Empty) => {
                let dropped = state.unmentioned.swap(0, Ordering::Relaxed);
                if dropped > 0 {
                    session_events::LogLinesDropped { lines: dropped }.emit();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{io, sync::mpsc};

    use super::*;

    /// Takes one write for each permit.
    struct Gated {
        permits: mpsc::Receiver<()>,
        written: mpsc::Sender<Vec<u8>>,
    }

    impl Write for Gated {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.written.send(bytes.to_vec()).map_err(io::Error::other)?;
            self.permits.recv().map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_stalled_log_reader_drops_lines_and_blocks_no_sender() {
        let (permit, permits) = mpsc::channel();
        let (written, writes) = mpsc::channel();
        let sender = start(Gated { permits, written }, 3).unwrap();
        sender.send(b"first\n");
        // The thread now waits for its next permit.
        assert_eq!(writes.recv().unwrap(), b"first\n");
        for line in [b"a\n", b"b\n", b"c\n", b"d\n", b"e\n"] {
            sender.send(line);
        }
        assert_eq!(sender.state().dropped(), 2, "three lines wait, and two are dropped");
        permit.send(()).unwrap();
        assert_eq!(writes.recv().unwrap(), b"a\nb\nc\n");
        permit.send(()).unwrap();
        sender.state().flush(Duration::from_secs(20));
        assert_eq!(sender.state().queued.load(Ordering::Acquire), 0);
    }

    #[test]
    fn a_line_at_the_limit_is_written_and_a_longer_one_is_dropped() {
        let (permit, permits) = mpsc::channel();
        let (written, writes) = mpsc::channel();
        let sender = start(Gated { permits, written }, 3).unwrap();
        permit.send(()).unwrap();
        sender.send(&vec![b'x'; LOG_LINE_BYTES_MAX + 1]);
        sender.send(&vec![b'y'; LOG_LINE_BYTES_MAX]);
        assert_eq!(writes.recv().unwrap(), vec![b'y'; LOG_LINE_BYTES_MAX]);
        assert_eq!(sender.state().dropped(), 1);
    }
}
