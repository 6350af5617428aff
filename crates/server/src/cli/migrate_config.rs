//! `dunlin migrate-config`: converts a configuration of Centrifugo v5.

use std::{
    env, fs,
    fs::OpenOptions,
    io::{self, Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use clap::Args;
use dunlin_config::{Config, ConfigInput, Document, Format, migrate};
use dunlin_games::Registry;

use super::{Failure, output, warn};

/// Convert a configuration of Centrifugo v5 into the form that Dunlin reads.
#[derive(Debug, Args)]
pub(super) struct MigrateConfigArgs {
    /// The old configuration file: .json, .yaml, .yml or .toml
    #[arg(value_name = "FILE", required_unless_present_any = ["env", "env_file"])]
    file: Option<PathBuf>,
    /// File to write, which must not exist; the extension selects the format. Without it, standard output and the format of
    /// FILE
    #[arg(short, long, value_name = "NEW_FILE")]
    output: Option<PathBuf>,
    /// Also convert the `CENTRIFUGO_…` variables of the environment; they override FILE
    #[arg(long)]
    env: bool,
    /// Also convert the `CENTRIFUGO_…` variables in this file of lines NAME=value, such as `.env`; -: standard input
    #[arg(long, value_name = "ENV_FILE")]
    env_file: Option<PathBuf>,
}

pub(super) fn run(args: &MigrateConfigArgs, registry: &Registry) -> Result<(), Failure> {
    let input = ConfigInput::read(args.file.as_deref(), Vec::new()).map_err(Failure::Config)?;
    let document = input.document.as_ref();
    let format = match &args.output {
        None => document.map_or(Format::Json, |document| document.format),
        Some(path) => Format::of(path).ok_or_else(|| {
            Failure::Usage("the name of the new file must end in .json, .yaml, .yml or .toml".to_owned())
        })?,
    };
    let variables = args.variables()?;
    let migrated = migrate::migrate(document, &variables)
        .map_err(|why| Failure::Migration(format!("{}: {why}", document.map_or("", |document| &document.name))))?;
    let text = migrated.text(format);
    let name = args.output.as_ref().map_or_else(|| "the new file".to_owned(), |path| path.display().to_string());
    for (label, fate) in &migrated.fates {
        output::error_line(format_args!("{label}: {fate}"));
    }
    if document.is_some_and(|document| document.format != Format::Json && has_comments(&document.text)) {
        output::error_line("comments that begin with #: not in the new file; copy those that you need");
    }
    // Another file with the name is not overwritten, and the text is only lost with a decision about it.
    match &args.output {
        Some(path) => create(path, &text)?,
        None => output::text(&text)?,
    }
    // Header fields refer to these variables, which are not in the new file.
    let placeholders = input.variables.iter().chain(&variables).filter(|(name, _)| migrate::is_placeholder(name));
    let checked = ConfigInput {
        document: Some(Document { name: name.clone(), format, text }),
        variables: placeholders.cloned().collect(),
        ..ConfigInput::default()
    };
    let errors = check(&checked, registry);
    match migrated.decisions() + errors {
        0 => Ok(()),
        1 => Err(Failure::Migration(format!("{name} needs a decision: see above"))),
        several => Err(Failure::Migration(format!("{name} needs {several} decisions: see above"))),
    }
}

/// Prints what `check-config` would say about the result. Returns the number of errors.
fn check(input: &ConfigInput, registry: &Registry) -> usize {
    match Config::with_registry(input, registry) {
        Ok((_, warnings)) => {
            warn(&warnings);
            0
        }
        Err(problems) => {
            warn(&problems.warnings);
            for error in &problems.errors {
                output::error_line(format_args!("needs a decision: {error}"));
            }
            problems.errors.len() + problems.errors_unlisted
        }
    }
}

/// Whether a text in YAML or TOML has comments. A `#` within a word begins none, and one in a value rarely has a space before it.
fn has_comments(text: &str) -> bool {
    text.lines().any(|line| line.trim_start().starts_with('#') || line.contains(" #"))
}

/// Creates a file that only its owner can read, because it may contain keys.
fn create(path: &Path, text: &str) -> Result<(), Failure> {
    let failed = |error| Failure::File(path.to_owned(), error);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)
}

impl MigrateConfigArgs {
    fn variables(&self) -> Result<Vec<(String, String)>, Failure> {
        let mut variables = Vec::new();
        if self.env {
            let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
                Some((name.into_string().ok()?, value.into_string().ok()?))
            };
            variables.extend(env::vars_os().filter_map(text));
            variables.sort();
        }
        if let Some(path) = &self.env_file {
            variables.extend(lines_of(&read(path)?));
        }
        Ok(variables)
    }
}

fn read(path: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let read = if path == Path::new("-") {
        io::stdin().lock().read_to_string(&mut text)
    } else {
        fs::File::open(path).and_then(|mut file| file.read_to_string(&mut text))
    };
    read.map(|_| text).map_err(|error| Failure::File(path.to_owned(), error))
}

/// The variables of a file as Docker and shells write it: `NAME=value`, with or without `export` and quotes.
fn lines_of(text: &str) -> Vec<(String, String)> {
    let of_line = |line: &str| {
        let line = line.trim();
        let line = line.strip_prefix("export ").unwrap_or(line);
        let (name, value) = line.split_once('=').filter(|_| !line.starts_with('#'))?;
        let unquoted = ['"', '\''].iter().find_map(|quote| value.trim().strip_prefix(*quote)?.strip_suffix(*quote));
        Some((name.trim().to_owned(), unquoted.unwrap_or_else(|| value.trim()).to_owned()))
    };
    text.lines().filter_map(of_line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_found() {
        for (text, expected) in [
            ("# all of it\na: 1", true),
            ("a: 1\n  # of b\nb: 2", true),
            ("a: 1 # of a", true),
            ("channel_user_boundary: \"#\"", false),
            ("a: \"x#y\"", false),
            ("", false),
        ] {
            assert_eq!(has_comments(text), expected, "{text}");
        }
    }

    #[test]
    fn lines_of_environment_files_are_read() {
        let text = "# A=b\nexport A=1\n B = \"two words\" \nC='x=y'\n\nD=\nno line\n";
        let expected = [("A", "1"), ("B", "two words"), ("C", "x=y"), ("D", "")];
        assert_eq!(lines_of(text), expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
}
