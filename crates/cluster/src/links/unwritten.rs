//! The bytes that a connection's client has accepted and not written to its socket.
//!
//! The client bounds the number of its commands and not their bytes. So this counts the bytes that are passed to it, and
//! places a mark, which is a flush, behind every part of them: when the flush has completed, the part is written.

use std::collections::VecDeque;

use dunlin_queues::declared::NATS_COMMANDS;
use tokio::task::JoinHandle;

use super::reconnecting::{Lost, within};

/// The part of the bound after which a mark is placed. While the client makes progress, it completes one in less than the
/// timeout: with a sixteenth of the bound, at 512 KiB a second.
const MARKS: usize = 16;

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Unwritten {
    bytes: usize,
    /// Of these, the bytes behind the last mark.
    unmarked: usize,
    marked: VecDeque<Part>,
}

/// Bytes in front of a mark, and the mark.
#[derive(Debug)]
struct Part {
    bytes: usize,
    /// Whether they were written before the connection was lost.
    written: JoinHandle<bool>,
}

impl Unwritten {
    /// Waits until a message of this size fits, and counts it. A message that is larger than the bound fits if nothing
    /// else waits.
    /// `flush` completes when all that was passed on before is written, with whether it was.
    pub async fn make_room<F>(&mut self, bytes: usize, flush: impl FnOnce() -> F) -> Result<(), Lost>
    where
        F: Future<Output = bool> + Send + 'static,
    {
        while let Some(part) = self.marked.front()
            && (part.written.is_finished() || self.bytes + bytes > NATS_COMMANDS.bytes_max())
            && let Some(part) = self.marked.pop_front()
        {
            if !within(part.written).await? {
                return Err(Lost);
            }
            self.bytes -= part.bytes;
        }
        self.bytes += bytes;
        self.unmarked += bytes;
        if self.unmarked >= NATS_COMMANDS.bytes_max() / MARKS {
            let bytes = std::mem::take(&mut self.unmarked);
            self.marked.push_back(Part { bytes, written: tokio::spawn(flush()) });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::{sync::oneshot, time::timeout};

    use super::*;

    const PART: usize = NATS_COMMANDS.bytes_max() / MARKS;

    /// Passes on a part of the bound. Returns its mark, or `None` if the part has to wait.
    async fn pass_on(unwritten: &mut Unwritten) -> Option<oneshot::Sender<bool>> {
        let (written, is_written) = oneshot::channel();
        let mark = async move || is_written.await.unwrap_or(false);
        let waiting = unwritten.make_room(PART, mark);
        timeout(Duration::ZERO, waiting).await.ok()?.ok()?;
        Some(written)
    }

    #[tokio::test(flavor = "current_thread")]
    async fn bytes_beyond_the_bound_wait_until_the_first_ones_are_written() {
        let mut unwritten = Unwritten::default();
        let mut marks = VecDeque::new();
        for _ in 0..MARKS {
            marks.push_back(pass_on(&mut unwritten).await.expect("it fits"));
        }
        assert_eq!(unwritten.bytes, NATS_COMMANDS.bytes_max(), "at the limit");
        assert!(pass_on(&mut unwritten).await.is_none(), "past it");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn what_is_written_makes_room() {
        let mut unwritten = Unwritten::default();
        for _ in 0..4 * MARKS {
            let mark = pass_on(&mut unwritten).await.expect("it fits");
            mark.send(true).expect("the mark waits");
            tokio::task::yield_now().await;
        }
        assert!(unwritten.bytes <= 2 * PART, "{}", unwritten.bytes);
        let (_written, is_written) = oneshot::channel::<bool>();
        drop(pass_on(&mut unwritten).await);
        tokio::task::yield_now().await;
        let lost = unwritten.make_room(PART, async move || is_written.await.unwrap_or(false)).await;
        assert!(lost.is_err(), "the connection was lost before the bytes were written");
    }
}
