//! Builds with Cargo.

use std::{
    collections::BTreeMap,
    fs, io,
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
    /// By name.
    programs: BTreeMap<String, PathBuf>,
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
        Some(if status.success() {
            let manifest = fs::read_to_string("Cargo.toml").unwrap_or_default();
            chosen(&said.programs, &manifest).map_or_else(Built::Failed, Built::Program)
        } else if said.errors.is_empty() {
            Built::Failed(self.process.text())
        } else {
            Built::Failed(said.errors)
        })
    }

    pub(super) fn signal(&self, signal: libc::c_int) {
        self.process.signal(signal);
    }
}

/// The program that is the server: the only one, or that of `cargo run`, or that of the package's name.
fn chosen(programs: &BTreeMap<String, PathBuf>, manifest: &str) -> Result<PathBuf, String> {
    let names: Vec<&str> = programs.keys().map(String::as_str).collect();
    if let [only] = names[..] {
        return Ok(programs[only].clone());
    }
    if names.is_empty() {
        return Err("Cargo has built no program: the game needs src/main.rs with a function main".into());
    }
    let Manifest { package } = toml::from_str(manifest).unwrap_or_default();
    let program = package.default_run.or(package.name).and_then(|name| programs.get(&name));
    program.cloned().ok_or_else(|| {
        format!("Cargo has built several programs ({}): name the server as default-run in Cargo.toml", names.join(", "))
    })
}

/// The part of `Cargo.toml` that is used.
#[derive(Default, Deserialize)]
struct Manifest {
    #[serde(default)]
    package: Package,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Package {
    name: Option<String>,
    default_run: Option<String>,
}

/// The part of a message of Cargo that is used.
#[derive(Deserialize)]
#[serde(tag = "reason")]
enum Message {
    #[serde(rename = "compiler-artifact")]
    Artifact { target: Target, executable: Option<PathBuf> },
    #[serde(rename = "compiler-message")]
    Diagnosed { message: Diagnostic },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Target {
    name: String,
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
            Ok(Message::Artifact { target, executable: Some(program) }) => {
                self.programs.insert(target.name, program);
            }
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
        assert_eq!(said.programs, BTreeMap::from([("stars".to_owned(), "/t/debug/stars".into())]));
        assert_eq!(said.errors, "error: no\n --> src\n");
    }

    #[test]
    fn the_server_is_chosen_from_several_programs() {
        let chosen_of = |programs: &[&str], manifest: &str| {
            let programs = programs.iter().map(|name| ((*name).to_owned(), PathBuf::from(name))).collect();
            chosen(&programs, manifest).map(|program| program.display().to_string())
        };
        let stars = "[package]\nname = \"stars\"\n";
        let named = "[package]\nname = \"stars\"\ndefault-run = \"server\"\n";
        assert_eq!(chosen_of(&["other"], stars).as_deref(), Ok("other"), "the only one");
        assert_eq!(chosen_of(&["editor", "stars", "tool"], stars).as_deref(), Ok("stars"));
        assert_eq!(chosen_of(&["server", "stars"], named).as_deref(), Ok("server"));
        for manifest in [named, "[package]\nname = \"game\"\n", "[workspace]\n", "no TOML"] {
            let refused = chosen_of(&["editor", "stars"], manifest).expect_err("which one?");
            assert!(refused.contains("(editor, stars): name the server as default-run"), "{refused}");
        }
        assert!(chosen_of(&[], stars).is_err_and(|refused| refused.contains("no program")));
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
