//! Errors and warnings about a configuration, with the remedy for each.

use std::{
    fmt::{self, Write as _},
    sync::Arc,
};

use super::{relations::is_namespace_name, settings::Settings, variables::NAMED_LISTS};

/// Maximum number of reported problems; the others are only counted. The file of a different program would otherwise
/// fill the screen.
const PROBLEMS_MAX: usize = 50;

/// The source of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingSource {
    /// This file.
    File(Arc<str>),
    /// This environment variable.
    Variable(String),
    /// This command-line flag.
    Flag(&'static str),
    /// The default.
    Default,
}

/// An error or a warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The source of the setting.
    pub source: SettingSource,
    /// The path of the key; empty if the problem is about the source itself.
    pub path: String,
    /// The problem and its remedy.
    pub text: String,
}

/// All problems of a configuration.
#[derive(Clone, Debug, Default)]
pub struct Problems {
    /// Problems that prevent a start.
    pub errors: Vec<Problem>,
    /// Problems that do not prevent a start.
    pub warnings: Vec<Problem>,
    /// Number of errors that are not reported.
    pub errors_unlisted: usize,
}

impl Problems {
    pub(super) fn error(&mut self, source: &SettingSource, path: &str, text: impl Into<String>) {
        if self.errors.len() == PROBLEMS_MAX {
            self.errors_unlisted += 1;
        } else {
            self.errors.push(Problem { source: source.clone(), path: path.to_owned(), text: text.into() });
        }
    }

    pub(super) fn warning(&mut self, source: &SettingSource, path: &str, text: impl Into<String>) {
        if self.warnings.len() < PROBLEMS_MAX {
            self.warnings.push(Problem { source: source.clone(), path: path.to_owned(), text: text.into() });
        }
    }

    /// Replaces `channel.namespaces[3]` by `channel.namespaces["chat"]` if the name is valid and unique.
    pub(super) fn name_tables(&mut self, settings: &Settings) {
        for problem in self.errors.iter_mut().chain(&mut self.warnings) {
            for list in NAMED_LISTS {
                problem.path = with_names(&problem.path, list, settings);
                problem.text = with_names(&problem.text, list, settings);
            }
        }
    }

    /// Whether the maximum number of errors is reached, so that expensive checks can be skipped.
    pub(super) fn is_full(&self) -> bool {
        self.errors.len() == PROBLEMS_MAX
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, path, text } = self;
        match (source, path.is_empty()) {
            (SettingSource::File(file), true) => write!(f, "{file}: {text}"),
            (SettingSource::File(file), false) => write!(f, "{file}: {path}: {text}"),
            (SettingSource::Variable(name), true) => write!(f, "{name}: {text}"),
            (SettingSource::Variable(name), false) => write!(f, "{name} ({path}): {text}"),
            (SettingSource::Flag(name), _) => write!(f, "{name} ({path}): {text}"),
            (SettingSource::Default, _) => write!(f, "{path}: {text}"),
        }
    }
}

/// Prints one error per line.
impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.errors.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{problem}")?;
        }
        match self.errors_unlisted {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

impl std::error::Error for Problems {}

fn with_names(text: &str, list: &str, settings: &Settings) -> String {
    let opening = format!("{list}[");
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once(&opening) {
        out.push_str(before);
        out.push_str(&opening);
        rest = behind;
        let Some((index, after)) = behind.split_once(']') else { continue };
        if let Some(name) = index.parse().ok().and_then(|index| unique_name(list, index, settings)) {
            let _ = write!(out, "{name:?}]");
            rest = after;
        }
    }
    out.push_str(rest);
    out
}

fn unique_name<'s>(list: &str, index: usize, settings: &'s Settings) -> Option<&'s str> {
    let name_at = |index| settings.text(&format!("{list}[{index}].name"));
    let name = name_at(index).filter(|name| is_namespace_name(name))?;
    let times = (0..settings.len(list)).filter(|index| name_at(*index) == Some(name)).count();
    (times == 1).then_some(name)
}
