//! The worker processes of a run: starts them, sends commands, and receives answers.

use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use crate::control::{Role, WorkerCommand, WorkerReply};
use crate::error::Error;

/// Timeout for an answer. Connecting many sessions may take a while.
const ANSWER_PATIENCE: Duration = Duration::from_mins(10);

/// A worker process. It ends when this is dropped.
pub struct Worker {
    name: &'static str,
    child: Child,
    /// None only during the drop, because closing it ends the process.
    stdin: Option<ChildStdin>,
    answers: Receiver<WorkerReply>,
}

impl Worker {
    /// Starts this program again as a worker with this role.
    pub fn start(role: &Role) -> Result<Self, Error> {
        let failed =
            |source| Error::os("start another process of this program", source, "check the limit of processes");
        let program = std::env::current_exe().map_err(failed)?;
        let mut child =
            Command::new(program).arg("worker").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed)?;
        let stdout = child.stdout.take().expect("stdout is piped");
        let (sender, answers) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let message = |err| WorkerReply::Failed { message: format!("{line}: {err}") };
                if sender.send(serde_json::from_str(&line).unwrap_or_else(message)).is_err() {
                    break;
                }
            }
        });
        let name = match role {
            Role::Sender(_) => "sender",
            Role::Drain(_) => "receiver",
            Role::Clients(_) | Role::ReconnectingSubscribers(_) | Role::Recoverers(_) => "client",
            Role::Publisher(_) => "publisher",
            Role::Players(_) => "player",
            Role::Crew(_) => "crew",
        };
        let stdin = child.stdin.take();
        let mut worker = Worker { name, child, stdin, answers };
        worker.write_line(role)?;
        Ok(worker)
    }

    /// Sends a command; read its answer with [`Self::answer`].
    pub fn send_command(&mut self, command: &WorkerCommand) -> Result<(), Error> {
        self.write_line(command)
    }

    /// Waits for the next answer.
    pub fn answer(&self) -> Result<WorkerReply, Error> {
        self.answer_within(ANSWER_PATIENCE)?.ok_or_else(|| self.failed("it does not answer"))
    }

    /// The next answer, if it arrives in time.
    pub fn answer_within(&self, patience: Duration) -> Result<Option<WorkerReply>, Error> {
        match self.answers.recv_timeout(patience) {
            Ok(WorkerReply::Failed { message }) => Err(self.failed(&message)),
            Ok(answer) => Ok(Some(answer)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(self.failed("it ended")),
        }
    }

    /// The error for an answer that does not match the command.
    pub fn unexpected(&self, answer: &WorkerReply) -> Error {
        self.failed(&format!("it answered {answer:?}"))
    }

    fn failed(&self, message: &str) -> Error {
        Error::Worker { role: self.name, message: message.to_owned() }
    }

    fn write_line(&mut self, line: &impl serde::Serialize) -> Result<(), Error> {
        let mut bytes = serde_json::to_vec(line).expect("commands have string keys only");
        bytes.push(b'\n');
        let stdin = self.stdin.as_mut().expect("stdin is open until drop");
        match stdin.write_all(&bytes) {
            Ok(()) => Ok(()),
            // The worker's last message is more helpful than the broken pipe.
            Err(err) => {
                Err(self.answer_within(Duration::from_secs(1)).err().unwrap_or_else(|| self.failed(&err.to_string())))
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.stdin.take());
        // The process ends with its stdin. The signal ends a process that hangs in a loop.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A separate local address for each worker. The ports of one address would not be sufficient for 15,000 sessions and
/// connections of earlier runs that the kernel still tracks.
pub fn source_address(worker: usize) -> IpAddr {
    Ipv4Addr::new(127, 0, 1, (worker % 250) as u8 + 1).into()
}
