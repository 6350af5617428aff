//! The worker processes of a run. Each is this same program and receives its role over stdin.

mod batches;
mod clients;
mod crew;
mod dialogue;
pub mod direct;
mod direct_session;
mod drain;
mod outbox;
mod player;
mod players;
mod publisher;
mod reconnecting_subscribers;
mod recoverers;
mod secure;
mod sender;
mod sequences;
mod session;

use std::io::{self, BufRead, Write};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use crate::control::{Role, WorkerCommand, WorkerReply};
use crate::error::Error;
use crate::interrupt;
use crate::proc;

/// Size of the read buffer: large enough for any burst that fits in a socket's buffer of the usual size, and small
/// enough for the second-level cache.
const BUFFER_BYTES: usize = 256 * 1024;

/// Reads the role from stdin, and runs it until stdin ends. Failures are reported to the orchestrator, because only
/// that communicates with the user.
pub fn run() {
    interrupt::leave_to_the_orchestrator();
    let mut line = String::new();
    let role = match io::stdin().lock().read_line(&mut line).map_err(|err| err.to_string()) {
        Ok(_) => serde_json::from_str::<Role>(&line)
            .map_err(|err| format!("not a role ({err}); use another `bench` command")),
        Err(message) => Err(message),
    };
    let ended = role.and_then(|role| play(role).map_err(|err| err.to_string()));
    if let Err(message) = ended {
        answer(&WorkerReply::Failed { message });
    }
}

fn play(role: Role) -> Result<(), Error> {
    proc::raise_open_files_limit();
    let cores = match &role {
        Role::Sender(role) => &role.cores,
        Role::Drain(role) => &role.cores,
        Role::Clients(role) | Role::ReconnectingSubscribers(role) | Role::Recoverers(role) => &role.cores,
        Role::Publisher(role) => &role.cores,
        Role::Players(role) => &role.cores,
        Role::Crew(role) => &role.place.cores,
    };
    let doing = format!("pin to cores {cores:?}");
    proc::pin_self(cores).map_err(|source| Error::os(doing, source, "give --no-pin"))?;
    match role {
        Role::Sender(role) => sender::play(&role),
        Role::Drain(role) => drain::play(&role),
        Role::Clients(role) => clients::play(role),
        Role::ReconnectingSubscribers(role) => reconnecting_subscribers::play(role),
        Role::Recoverers(role) => recoverers::play(role),
        Role::Publisher(role) => publisher::play(role),
        Role::Players(role) => players::play(role),
        Role::Crew(role) => crew::play(*role),
    }
}

/// Sends one answer. Ends the process if the orchestrator is gone.
fn answer(answer: &WorkerReply) {
    let mut line = serde_json::to_vec(answer).expect("answers have string keys only");
    line.push(b'\n');
    let mut stdout = io::stdout().lock();
    if stdout.write_all(&line).and_then(|()| stdout.flush()).is_err() {
        std::process::exit(0);
    }
}

/// Reads the commands on a separate thread, and calls `wake` after each. The process ends with its stdin.
fn commands(wake: impl Fn() + Send + 'static) -> Receiver<WorkerCommand> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for line in io::stdin().lines() {
            let Ok(command) = line.map_err(drop).and_then(|line| serde_json::from_str(&line).map_err(drop)) else {
                break;
            };
            if sender.send(command).is_err() {
                break;
            }
            wake();
        }
        std::process::exit(0);
    });
    receiver
}

/// [`commands`] that wake a poll.
fn commands_for(poll: &mio::Poll, token: mio::Token) -> Result<Receiver<WorkerCommand>, Error> {
    let waker = mio::Waker::new(poll.registry(), token).map_err(poll_failed)?;
    let waker = Arc::new(waker);
    Ok(commands(move || {
        // The only error is a full counter, and then the poll is woken anyway.
        let _ = waker.wake();
    }))
}

/// Waits for sockets. A signal ends the wait without events.
fn wait_for_events(poll: &mut mio::Poll, events: &mut mio::Events, timeout: Option<Duration>) -> Result<(), Error> {
    match poll.poll(events, timeout) {
        Err(err) if err.kind() == io::ErrorKind::Interrupted => Ok(()),
        result => result.map_err(poll_failed),
    }
}

fn poll_failed(source: io::Error) -> Error {
    Error::os("wait for sockets", source, "check the limit of open files (ulimit -n)")
}
