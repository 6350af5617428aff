//! Builds with Cargo.

use std::{
    io,
    path::PathBuf,
    process::Command,
    sync::{Arc, Mutex, PoisonError},
};

use serde::Deserialize;

use super::process::{KEPT_BYTES_MAX, Process};
use crate::cli::{Failure, output};

/// A build that runs.
pub(super) struct Build {
    process: Process,
    said: Arc<Mutex<Said>>,
}

/// What a build has ended with.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Built {
    Program(PathBuf),
    /// The errors of the compiler, or else what Cargo has printed.
    Failed(String),
}

/// What Cargo has said so far.
#[derive(Debug, Default)]
struct Said {
    program: Option<PathBuf>,
    /// Errors of the compiler, the first ones up to [`KEPT_BYTES_MAX`].
    errors: String,
}

impl Build {
    pub(super) fn start(is_release: bool) -> Result<Self, Failure> {
        let mut command = Command::new("cargo");
        command.args(["build", "--message-format=json"]).args(is_release.then_some("--release"));
        let said = Arc::new(Mutex::new(Said::default()));
        let of_reader = Arc::clone(&said);
        let take = move |line: &str| {
            of_reader.lock().unwrap_or_else(PoisonError::into_inner).take(line);
            true
        };
        match Process::start(&mut command, take) {
            Ok(process) => Ok(Self { process, said }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Failure::Usage(
                "cargo is not in PATH: install Rust (https://rustup.rs), or add its folder to PATH".into(),
            )),
            Err(error) => Err(Failure::File("cargo".into(), error)),
        }
    }

    /// The result; `None` while it runs.
    pub(super) fn ended(&mut self) -> Option<Built> {
        let status = self.process.ended()?;
        let said = std::mem::take(&mut *self.said.lock().unwrap_or_else(PoisonError::into_inner));
        Some(match said.program {
            Some(program) if status.success() => Built::Program(program),
            None if status.success() => {
                Built::Failed("Cargo has built no program: the game needs src/main.rs with a function main".into())
            }
            _ if said.errors.is_empty() => Built::Failed(self.process.text()),
            _ => Built::Failed(said.errors),
        })
    }

    pub(super) fn signal(&self, signal: libc::c_int) {
        self.process.signal(signal);
    }
}

/// The part of a message of Cargo that is used.
#[derive(Deserialize)]
#[serde(tag = "reason")]
enum Message {
    #[serde(rename = "compiler-artifact")]
    Artifact { executable: Option<PathBuf> },
    #[serde(rename = "compiler-message")]
    Diagnosed { message: Diagnostic },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Diagnostic {
    level: String,
    rendered: Option<String>,
}

impl Said {
    /// Takes a line of Cargo's standard output.
    fn take(&mut self, line: &str) {
        match serde_json::from_str(line) {
            Ok(Message::Artifact { executable: Some(program) }) => self.program = Some(program),
            Ok(Message::Diagnosed { message: Diagnostic { level, rendered: Some(rendered) } }) => {
                output::error_line(format_args!("{}", rendered.trim_end()));
                if level.starts_with("error") && self.errors.len() + rendered.len() <= KEPT_BYTES_MAX {
                    self.errors.push_str(&rendered);
                }
            }
            Ok(_) | Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_and_the_errors_are_taken_from_cargos_messages() {
        let mut said = Said::default();
        let library = r#"{"reason":"compiler-artifact","target":{"kind":["lib"],"name":"game"},"executable":null}"#;
        let program =
            r#"{"reason":"compiler-artifact","target":{"kind":["bin"],"name":"stars"},"executable":"/t/debug/stars"}"#;
        let warning = r#"{"reason":"compiler-message","message":{"level":"warning","rendered":"warning: unused\n"}}"#;
        let error = r#"{"reason":"compiler-message","message":{"level":"error","rendered":"error: no\n --> src\n"}}"#;
        for line in [library, "no JSON", warning, error, program, r#"{"reason":"build-finished","success":false}"#] {
            said.take(line);
        }
        assert_eq!(said.program.as_deref(), Some(std::path::Path::new("/t/debug/stars")));
        assert_eq!(said.errors, "error: no\n --> src\n");
    }

    #[test]
    fn errors_are_kept_up_to_a_limit() {
        let mut said = Said::default();
        let error = |bytes: usize| {
            let rendered = "x".repeat(bytes);
            format!(r#"{{"reason":"compiler-message","message":{{"level":"error","rendered":"{rendered}"}}}}"#)
        };
        said.take(&error(KEPT_BYTES_MAX));
        assert_eq!(said.errors.len(), KEPT_BYTES_MAX, "at the limit");
        said.take(&error(1));
        assert_eq!(said.errors.len(), KEPT_BYTES_MAX);
    }
}
