//! The process that replays a recording for the console: `dunlin replay FILE --answers BYTES` of the same program. A game that
//! panics, never returns or takes all memory ends this process, and the node goes on. A recording of another node comes
//! through the process's standard input, so that this node keeps none of it.

use std::{
    io,
    os::{fd::OwnedFd, unix::process::ExitStatusExt as _},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use axum::body::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::unix::pipe::{Receiver, Sender},
    runtime::Handle,
    task::spawn_blocking,
    time::timeout,
};

use crate::cli::REPLAY_LINE_BYTES_MAX;

/// The program of this process, also after an upgrade has replaced its file.
const PROGRAM: &str = "/proc/self/exe";

/// Time in which a line must come. While the process replays, it writes lines with the tick: a game whose tick takes longer
/// than this does not return.
const LINE_TIMEOUT: Duration = Duration::from_secs(30);

/// The recording that a process replays.
#[derive(Clone, Copy, Debug)]
pub(super) enum ReplayInput<'a> {
    File(&'a Path),
    /// So many bytes, which [`ReplayProcess::feed`] gives it.
    Bytes(u64),
}

/// A process, and what it has written. It ends with this value.
pub(super) struct ReplayProcess {
    child: Option<Child>,
    questions: Sender,
    answers: Receiver,
    /// Written and not taken yet.
    unread: Vec<u8>,
    /// So many bytes of it have no end of a line.
    searched: usize,
    /// The last tick that it has told.
    tick: u32,
    memory_bytes_max: u64,
}

/// What the process writes.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Line {
    /// The recording has been replayed up to this tick.
    Tick(u32),
    /// What the page shows at once: now ticks can be asked for.
    Index(Box<RawValue>),
    /// Ticks that were asked for.
    Ticks(Box<RawValue>),
    /// Why not.
    Error(String),
}

impl ReplayProcess {
    /// Starts to replay a recording. Call it on a thread that lasts as long as the node: the process ends with it.
    pub(super) fn start(recording: ReplayInput<'_>, memory_bytes_max: u64) -> io::Result<Self> {
        let mut command = Command::new(PROGRAM);
        command.args(["replay", "--answers", &memory_bytes_max.to_string()]);
        match recording {
            ReplayInput::File(path) => command.arg(path),
            ReplayInput::Bytes(bytes) => command.args(["--recording-bytes", &bytes.to_string(), "-"]),
        };
        Self::of(command, memory_bytes_max)
    }

    fn of(mut command: Command, memory_bytes_max: u64) -> io::Result<Self> {
        let mut child = command
            // Variables of the node have keys and passwords.
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let ends = child.stdin.take().map(OwnedFd::from).zip(child.stdout.take().map(OwnedFd::from));
        let pipes: io::Result<_> =
            ends.ok_or_else(|| io::ErrorKind::BrokenPipe.into()).and_then(|(questions, answers)| {
                Ok((Sender::from_owned_fd(questions)?, Receiver::from_owned_fd(answers)?))
            });
        let (questions, answers) = pipes.inspect_err(|_| drop(child.kill()))?;
        let unread = Vec::new();
        Ok(Self { child: Some(child), questions, answers, unread, searched: 0, tick: 0, memory_bytes_max })
    }

    /// Asks for ticks. Lines with the tick may come before the answer.
    pub(super) async fn ask(&mut self, from: u32, count: u32) -> Result<(), String> {
        self.feed(format!("{{\"from\":{from},\"count\":{count}}}\n").as_bytes()).await
    }

    /// Gives it a part of the recording.
    pub(super) async fn feed(&mut self, bytes: &[u8]) -> Result<(), String> {
        match timeout(LINE_TIMEOUT, self.questions.write_all(bytes)).await {
            Ok(Ok(())) => Ok(()),
            // Why it reads no more, it says in a last line, or it has ended.
            Ok(Err(_)) => Err(self.last_words().await),
            Err(_) => Err(self.silent()),
        }
    }

    /// The next line; otherwise why there is none. If this is cancelled, nothing is lost.
    pub(super) async fn line(&mut self) -> Result<Line, String> {
        let line = match timeout(LINE_TIMEOUT, self.bytes_of_line()).await {
            Ok(Ok(Some(line))) => line,
            Ok(Ok(None)) => return Err(self.how_it_ended().await),
            Ok(Err(error)) => return Err(format!("the replay cannot be read: {error}")),
            Err(_) => return Err(self.silent()),
        };
        let line =
            serde_json::from_slice(&line).map_err(|error| format!("the replay has written nonsense: {error}"))?;
        if let Line::Tick(tick) = line {
            self.tick = tick;
        }
        Ok(line)
    }

    fn silent(&self) -> String {
        let (tick, seconds) = (self.tick, LINE_TIMEOUT.as_secs());
        format!(
            "the game does not return: nothing has come for {seconds} s after tick {tick}, and what is behind it is missing"
        )
    }

    async fn last_words(&mut self) -> String {
        match self.line().await {
            Ok(Line::Error(why)) | Err(why) => why,
            Ok(_) => "the replay has ended".to_owned(),
        }
    }

    async fn bytes_of_line(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            let unsearched = self.unread.get(self.searched..).unwrap_or_default();
            if let Some(end) = unsearched.iter().position(|byte| *byte == b'\n') {
                let rest = self.unread.split_off(self.searched + end + 1);
                self.searched = 0;
                return Ok(Some(Bytes::from(std::mem::replace(&mut self.unread, rest))));
            }
            self.searched = self.unread.len();
            if self.unread.len() > REPLAY_LINE_BYTES_MAX {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a line is too long"));
            }
            if self.answers.read_buf(&mut self.unread).await? == 0 {
                return Ok(None);
            }
        }
    }

    async fn how_it_ended(&mut self) -> String {
        let Some(mut child) = self.child.take() else { return "the replay has ended".to_owned() };
        // It has closed its standard output, so it ends at once unless the game has done that.
        let status = spawn_blocking(move || child.kill().and_then(|()| child.wait())).await;
        end_text(status.ok().and_then(Result::ok), self.memory_bytes_max)
    }
}

impl Drop for ReplayProcess {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        // It cannot fail: nobody else waits for the process.
        let _ = child.kill();
        // A killed process may take a moment to give back its memory. Without a runtime, the node ends.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn_blocking(move || child.wait());
        }
    }
}

/// How the process has ended without a word.
fn end_text(status: Option<ExitStatus>, memory_bytes_max: u64) -> String {
    let mib = memory_bytes_max >> 20;
    match status.and_then(|status| status.signal()) {
        Some(libc::SIGABRT) => format!(
            "the replay has been aborted: probably it needs more memory than admin.replay_memory_limit ({mib} MiB); \
             `dunlin replay FILE --page` has no such limit"
        ),
        Some(signal) => format!("the replay was ended by signal {signal}"),
        None => "the replay has ended without a reason".to_owned(),
    }
}

#[cfg(test)]
impl ReplayProcess {
    /// A process that runs this script of a shell.
    pub(super) fn of_script(script: &str) -> io::Result<Self> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        Self::of(command, 64 << 20)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_was_aborted_has_probably_needed_more_memory() {
        let ended = |raw| end_text(Some(ExitStatus::from_raw(raw)), 64 << 20);
        assert!(ended(libc::SIGABRT).contains("admin.replay_memory_limit (64 MiB)"));
        assert_eq!(ended(libc::SIGKILL), "the replay was ended by signal 9");
        assert_eq!(ended(0), "the replay has ended without a reason");
    }
}
