//! Errors of a run, each with the operation and the remedy.

use std::fmt;
use std::io;

/// Why a run could not be completed. A completed run that shows losses is a result, not an error.
#[derive(Debug)]
pub enum Error {
    /// An option has an invalid value.
    Setting {
        /// The option's name as typed on the command line.
        name: &'static str,
        /// The value it was given.
        value: String,
        /// The allowed values.
        remedy: String,
    },
    /// An operation of the operating system failed.
    Os {
        /// The operation, with its path, address or process id.
        doing: String,
        /// The error of the operating system.
        source: io::Error,
        /// The remedy.
        remedy: &'static str,
    },
    /// A worker process failed or ended unexpectedly.
    Worker {
        /// The role of the worker, such as `clients`.
        role: &'static str,
        /// Its message, or its exit status.
        message: String,
    },
    /// A NATS server did not behave as the scenario requires.
    Nats {
        /// What the server did.
        did: String,
        /// The remedy.
        remedy: String,
    },
    /// The server under test did not behave as the scenario requires.
    Server {
        /// What the server did.
        did: String,
        /// The remedy.
        remedy: String,
    },
    /// A scenario cannot be run as it is described.
    Scenario(String),
    /// Gates of a complete run are broken.
    Gates(Vec<String>),
    /// Runs ended early, so their results are partial. The gates of others may be broken.
    Partial { why: Vec<String>, broken: Vec<String> },
}

impl Error {
    /// The exit code of the program.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Gates(_) => 3,
            _ => 1,
        }
    }

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
            Error::Scenario(message) => f.write_str(message),
            Error::Gates(broken) => write!(f, "gates are broken\n{}", broken.join("\n")),
            Error::Partial { why, broken } if broken.is_empty() => {
                write!(f, "the result is partial\n{}", why.join("\n"))
            }
            Error::Partial { why, broken } => {
                write!(f, "the result is partial\n{}\n{}", why.join("\n"), Error::Gates(broken.clone()))
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Os { source, .. } => Some(source),
            _ => None,
        }
    }
}
