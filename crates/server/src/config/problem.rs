//! What is wrong with a configuration, told so that it can be mended.

use std::{fmt, sync::Arc};

/// Problems that are told; the rest is counted. A file of another program would otherwise fill the screen.
const PROBLEMS_MAX: usize = 50;

/// Where a setting was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// In this file.
    File(Arc<str>),
    /// In this environment variable.
    Variable(String),
    /// By this flag of the command line.
    Flag(&'static str),
    /// Nowhere: it is the default.
    Default,
}

/// One thing that is wrong or odd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where the setting was made.
    pub source: Source,
    /// The setting's key, from the top; empty when it is the source itself.
    pub path: String,
    /// What is wrong, and what to do.
    pub text: String,
}

/// All that was found.
#[derive(Clone, Debug, Default)]
pub struct Problems {
    /// What keeps the node from starting.
    pub errors: Vec<Problem>,
    /// What does not.
    pub warnings: Vec<Problem>,
    /// Errors beyond those told.
    pub errors_untold: usize,
}

impl Problems {
    pub(super) fn error(&mut self, source: &Source, path: &str, text: impl Into<String>) {
        if self.errors.len() == PROBLEMS_MAX {
            self.errors_untold += 1;
        } else {
            self.errors.push(Problem { source: source.clone(), path: path.to_owned(), text: text.into() });
        }
    }

    pub(super) fn warning(&mut self, source: &Source, path: &str, text: impl Into<String>) {
        if self.warnings.len() < PROBLEMS_MAX {
            self.warnings.push(Problem { source: source.clone(), path: path.to_owned(), text: text.into() });
        }
    }

    /// Whether enough errors are told: what is costly to tell need not be looked for any more.
    pub(super) fn is_full(&self) -> bool {
        self.errors.len() == PROBLEMS_MAX
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, path, text } = self;
        match (source, path.is_empty()) {
            (Source::File(file), true) => write!(f, "{file}: {text}"),
            (Source::File(file), false) => write!(f, "{file}: {path}: {text}"),
            (Source::Variable(name), true) => write!(f, "{name}: {text}"),
            (Source::Variable(name), false) => write!(f, "{name} ({path}): {text}"),
            (Source::Flag(name), _) => write!(f, "{name} ({path}): {text}"),
            (Source::Default, _) => write!(f, "{path}: {text}"),
        }
    }
}

/// All errors, each on its line.
impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.errors.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{problem}")?;
        }
        match self.errors_untold {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

impl std::error::Error for Problems {}
