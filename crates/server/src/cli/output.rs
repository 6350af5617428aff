//! Standard output. A full disk or a closed pipe is an error, not a panic.

use std::{
    fmt,
    io::{self, Write as _},
};

use super::Failure;

/// Prints a line.
pub(super) fn line(line: impl fmt::Display) -> Result<(), Failure> {
    text(format_args!("{line}\n"))
}

/// Prints text unchanged.
pub(super) fn text(text: impl fmt::Display) -> Result<(), Failure> {
    let mut output = io::stdout().lock();
    write!(output, "{text}").and_then(|()| output.flush()).map_err(Failure::Output)
}

/// Prints a line to stderr. If that fails, there is no place to report it.
pub(crate) fn error_line(line: impl fmt::Display) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}
