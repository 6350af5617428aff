//! Errors of a run, each with the operation and the remedy.

use std::fmt;
use std::io;

/// Why a run could not be made. A run that *was* made and shows losses is a result, not an error.
#[derive(Debug)]
pub enum Error {
    /// An option has a value this program can't work with.
    Setting {
        /// The option's name as typed on the command line.
        name: &'static str,
        /// The value it was given.
        value: String,
        /// What to give instead.
        remedy: String,
    },
    /// The operating system refused something.
    Os {
        /// What was being done, with the path, address or pid in question.
        doing: String,
        /// What the system answered.
        source: io::Error,
        /// What to try.
        remedy: &'static str,
    },
    /// One of our own processes failed or went away.
    Worker {
        /// The role of the worker, such as `clients`.
        role: &'static str,
        /// Its message, or how it ended.
        message: String,
    },
    /// A NATS server did not do what the scenario needs.
    Nats {
        /// What it did.
        did: String,
        /// What to try.
        remedy: String,
    },
    /// The server under test did not do what the scenario needs.
    Server {
        /// What it did.
        did: String,
        /// What to try.
        remedy: String,
    },
}

impl Error {
    /// Wraps an operating system error; `doing` reads as "could not {doing}".
    pub(crate) fn os(doing: impl Into<String>, source: io::Error, remedy: &'static str) -> Self {
        Error::Os { doing: doing.into(), source, remedy }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Setting { name, value, remedy } => write!(f, "--{name} {value}: {remedy}"),
            Error::Os { doing, source, remedy } => write!(f, "could not {doing}: {source}; {remedy}"),
            Error::Worker { role, message } => write!(f, "the {role} process failed: {message}"),
            Error::Nats { did, remedy } => write!(f, "NATS {did}; {remedy}"),
            Error::Server { did, remedy } => write!(f, "the server under test {did}; {remedy}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Os { source, .. } => Some(source),
            Error::Setting { .. } | Error::Worker { .. } | Error::Nats { .. } | Error::Server { .. } => None,
        }
    }
}
